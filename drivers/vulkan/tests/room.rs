//! No room on the device: for real, over a budget, and for want of memory objects. Nothing is lost, and work
//! goes on when there is room again.

mod common;

use common::{open_with, silent};
use std::process::Command;

use hedgerow::driver::{Contents, DeviceDriver, DriverError, ErrorKind};
use hedgerow::{Error, Location, Shape, Tree, with_room};
use hedgerow_vulkan::{DeviceType, LimitsOverride, Vulkan, VulkanError};

/// Elements of a tree: 40 MiB, more than a block of the allocator, so that each has a memory object.
const LEN: u32 = 10 << 20;
const BYTES: u64 = 4 * LEN as u64;

#[allow(clippy::result_large_err, reason = "the tree's own error")]
#[allow(clippy::single_range_in_vec_init, reason = "a crop of one axis")]
fn fill<'m>(tree: &Tree<'m, i32, Vulkan>, value: i32) -> Result<(), Error<VulkanError>> {
    // A part of it, so that the rest must survive an eviction at home.
    tree.root().crop([100..LEN as i32 - 100])?.fill_on(0, value).map(drop)
}

fn holds(memory: &[i32], around: i32, value: i32) -> bool {
    let inside = 100..LEN as usize - 100;
    let expected = |i| if inside.contains(&i) { value } else { around };
    memory.iter().enumerate().all(|(i, found)| *found == expected(i))
}

/// Trees take turns on a device that has room for two of three.
#[allow(clippy::result_large_err, reason = "the tree's own error")]
fn trees_take_turns(gpu: &Vulkan, kind: ErrorKind) {
    let mut memories = [vec![-1; LEN as usize], vec![-2; LEN as usize], vec![-3; LEN as usize]];
    let [a, b, c] = &mut memories;
    let tree = |memory| Tree::over(memory, Shape::packed([LEN]), gpu.clone()).expect("a tree");
    let (a, b, c) = (tree(a), tree(b), tree(c));
    fill(&a, 1).expect("there is room");
    // What staging needs, it has from here on.
    assert!(a.evict(0).expect("comes home") >= BYTES);
    fill(&a, 1).expect("there is room");
    fill(&b, 2).expect("there is room");
    let error = fill(&c, 3).expect_err("there is room for two");
    assert_eq!(error.kind(), Some(kind), "{error}");
    for tree in [&a, &b, &c] {
        assert_eq!((tree.check(), tree.live_accesses()), (Ok(()), 0));
    }
    let plan = c.root().plan(Location::Host, hedgerow::Mode::Read).expect("a plan");
    assert_eq!(plan.bytes_down, 0, "a call that failed claims nothing");
    // A retry fails in the same way, until the first gives way: by itself or as asked.
    assert_eq!(fill(&c, 3).expect_err("still none").kind(), Some(kind));
    with_room(&[&a, &b], || fill(&c, 3)).expect("there is room again");
    assert_eq!((a.counters().evictions, b.counters().evictions), (2, 0), "no more than needed");
    assert_eq!(fill(&a, 4).expect_err("now the others have it").kind(), Some(kind));
    assert!(b.evict(0).expect("gives its memory back") > 0);
    fill(&a, 4).expect("there is room again");
    for tree in [a, b, c] {
        tree.close().map_err(|failed| failed.error).expect("closes");
    }
    let [a, b, c] = &memories;
    assert!(holds(a, -1, 4) && holds(b, -2, 2) && holds(c, -3, 3), "nothing is lost");
}

#[test]
fn over_a_budget() {
    let Some(gpu) = open_with(LimitsOverride::default(), Some(100 << 20)) else { return };
    let log = gpu.validation_log();
    trees_take_turns(&gpu, ErrorKind::Budget);
    drop(gpu);
    silent(&log);
}

/// Each tree has a memory object of its own; so has staging, which must not starve.
#[test]
fn out_of_memory_objects() {
    let mut limits = LimitsOverride::strict();
    // One for staging, and two for trees.
    limits.max_allocations = Some(3);
    let Some(gpu) = open_with(limits, None) else { return };
    let log = gpu.validation_log();
    trees_take_turns(&gpu, ErrorKind::OutOfMemory);
    drop(gpu);
    silent(&log);
}

/// A tree on a device whose memory others have taken, all of it.
#[cfg(target_os = "linux")]
fn short_of_memory(gpu: &Vulkan) {
    let mut memory = vec![-1; LEN as usize];
    let tree = Tree::over(&mut memory, Shape::packed([LEN]), gpu.clone()).expect("a tree");
    fill(&tree, 1).expect("there is room");
    // What staging needs, it has from here on.
    assert!(tree.evict(0).expect("comes home") >= BYTES);

    let statm = std::fs::read_to_string("/proc/self/statm").expect("is Linux");
    let pages: u64 = statm.split(' ').next().and_then(|n| n.parse().ok()).expect("a size");
    let limit = format!("--as={}", pages * 4096 + (2 << 30));
    let own = std::process::id().to_string();
    let set = Command::new("prlimit").args(["--pid", &own, &limit]).status();
    assert!(set.expect("util-linux is there").success());

    let mut taken = Vec::new();
    for bytes in [512 << 20, BYTES] {
        let error = loop {
            match gpu.allocate(bytes, Contents::Undefined) {
                Ok(memory) => taken.push(memory.memory),
                Err(error) => break error,
            }
            assert!(taken.len() < 200, "the limit does not hold");
        };
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    }
    for _ in 0..2 {
        let error = fill(&tree, 2).expect_err("there is no room");
        assert_eq!(error.kind(), Some(ErrorKind::OutOfMemory), "{error}");
        assert_eq!((tree.check(), tree.live_accesses()), (Ok(()), 0));
        assert_eq!(tree.root().read().expect("at home").get([LEN as i32 / 2]), Some(&1));
    }
    // SAFETY: nothing uses it.
    unsafe { gpu.release(taken.swap_remove(0), &[]) };
    fill(&tree, 2).expect("there is room again");
    tree.close().map_err(|failed| failed.error).expect("closes");
    assert!(holds(&memory, -1, 2), "nothing is lost");
}

/// Address space is what lavapipe runs out of. A process of its own: the limit is for all of it.
#[test]
#[cfg(target_os = "linux")]
fn out_of_memory_for_real() {
    const CHILD: &str = "HEDGEROW_TEST_CHILD";
    const DONE: &str = "went on";
    if std::env::var_os(CHILD).is_some() {
        let Some(gpu) = open_with(LimitsOverride::default(), None) else { return };
        let log = gpu.validation_log();
        short_of_memory(&gpu);
        drop(gpu);
        silent(&log);
        println!("{DONE}");
        return;
    }
    let Some(gpu) = open_with(LimitsOverride::default(), None) else { return };
    if gpu.info().device_type != DeviceType::Cpu {
        return; // Its memory is not the process's.
    }
    let program = std::env::current_exe().expect("has a path");
    let output = Command::new(program)
        .args(["--exact", "out_of_memory_for_real", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(DONE), "{said}{complained}");
}
