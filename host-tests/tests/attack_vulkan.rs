//! What a Vulkan device must refuse, and closing it at odd moments. Skipped where there is none.

#![allow(clippy::single_range_in_vec_init)] // a crop of one axis
#![allow(clippy::result_large_err)] // errors name their numbers

use std::time::Duration;

use hedgerow::driver::middleware::Fault;
use hedgerow::driver::{
    ComputeDriver, DeviceCode, DeviceDriver, ErrorKind, Form, Kernel, KernelSource, Ticket,
};
use hedgerow::{Builder, Error, Mode, Shape, Tree};
use hedgerow_vulkan::{LimitsOverride, Vulkan};

const ADD: &str = "
struct Call { views: array<View, 1>, p: u32 }
@group(0) @binding(0) var<storage, read> call: Call;
@group(0) @binding(1) var<storage, read_write> image: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= call.views[0].extent[0]) { return; }
    var n = image[view_byte(0u, id) / 4u];
    for (var i = 0u; i < 2000u; i++) { n = n * 3u - n * 2u; }
    image[view_byte(0u, id) / 4u] = n + call.p;
}";

fn open(limits: LimitsOverride) -> Option<Vulkan> {
    Vulkan::builder().limits(limits).open().ok()
}

fn source<'a>(forms: &'a [Form<'a>]) -> KernelSource<'a> {
    KernelSource { name: "test", views: 1, workgroup: [64, 1, 1], granule: 4, forms }
}

fn add<D: ComputeDriver>(gpu: &D) -> Kernel<D> {
    let text = [hedgerow_vulkan::layout::WGSL, ADD].concat();
    // SAFETY: it changes the elements of its view, and ends.
    let code = unsafe { DeviceCode::new(text.as_str(), "main") };
    gpu.load(&source(&[Form::Wgsl(code)])).unwrap()
}

#[test]
fn bad_code_is_refused() {
    let Some(gpu) = open(LimitsOverride::default()) else { return };
    let wgsl = |text: &str, entry: &str| {
        // SAFETY: nothing of it is run.
        let code = unsafe { DeviceCode::new(text, entry) };
        gpu.load(&source(&[Form::Wgsl(code)])).map(drop)
    };
    let good = [hedgerow_vulkan::layout::WGSL, ADD].concat();
    assert!(wgsl(&good, "main").is_ok());
    for (text, entry) in [
        ("", "main"),
        ("fn", "main"),
        ("@compute @workgroup_size(64) fn main() { let x: u32 = -1.0; }", "main"),
        ("@compute @workgroup_size(0) fn main() {}", "main"),
        ("@compute @workgroup_size(32) fn main() {}", "main"),
        ("@vertex fn main() -> @builtin(position) vec4<f32> { return vec4<f32>(); }", "main"),
        ("\u{0}\u{1F600}((((((((((", "main"),
        (&good, ""),
        (&good, "mai"),
        (&good, "main\0"),
        (&good[..good.len() - 3], "main"),
    ] {
        let error = wgsl(text, entry).unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::Unsupported), "{text}: {error}");
    }
    let spirv = |words: &[u32], entry: &str| {
        // SAFETY: nothing of it is run.
        let code = unsafe { DeviceCode::new(words, entry) };
        gpu.load(&source(&[Form::Spirv(code)])).map(drop)
    };
    for words in
        [&[][..], &[0x0723_0203], &[0x0723_0203, 0x1_0300, 0, 10, 0], &[u32::MAX; 64], &[0; 9]]
    {
        assert!(spirv(words, "main").is_err());
    }
    for (views, workgroup, granule) in
        [(usize::MAX, [64, 1, 1], 4), (1, [0; 3], 4), (1, [u32::MAX; 3], 4), (1, [64, 1, 1], 3)]
    {
        // SAFETY: nothing of it is run.
        let code = unsafe { DeviceCode::new(good.as_str(), "main") };
        let forms = [Form::Wgsl(code)];
        let bad = KernelSource { name: "bad", views, workgroup, granule, forms: &forms };
        assert!(gpu.load(&bad).is_err(), "{views} {workgroup:?} {granule}");
    }
}

#[test]
fn beyond_limits() {
    for limits in [LimitsOverride::default(), LimitsOverride::strict()] {
        let Some(gpu) = open(limits) else { return };
        let kernel = add(&gpu);
        let mut words = vec![0u32; 70];
        let tree = Tree::over(&mut words, Shape::packed([70]), &gpu).unwrap();
        let root = tree.root();
        let all = root.as_update();
        let refused = kernel.launch_groups(all, 1u32, [u32::MAX; 3]);
        assert!(matches!(refused, Err(Error::Groups { .. })), "{refused:?}");
        assert!(matches!(kernel.launch_groups(all, 1u32, [1, 0, 1]), Err(Error::ZeroGroups)));
        assert!(matches!(kernel.launch([all; 2], 1u32), Err(Error::Views { .. })));
        assert!(matches!(kernel.launch([all; 0], 1u32), Err(Error::Views { .. })));
        assert!(matches!(kernel.launch(&[all; 9][..], 1u32), Err(Error::Views { .. })));
        if gpu.caps().max_params < 65_536 {
            let large = kernel.launch(all, [[0u64; 1024]; 8]);
            assert!(matches!(large, Err(Error::Params { .. })), "{large:?}");
        }
        kernel.launch(all, 1u32).unwrap();
        for ticket in [
            Ticket { lane: 0, value: u64::MAX },
            Ticket { lane: 1, value: 1 },
            Ticket { lane: 255, value: u64::MAX },
        ] {
            assert!(!matches!(gpu.poll(ticket), Ok(true)), "{ticket}");
            assert!(gpu.wait(ticket, Duration::MAX).is_err(), "{ticket}");
            assert!(!matches!(tree.poll(0, ticket), Ok(true)));
        }
        assert!(root.read().unwrap().as_slice().unwrap().iter().all(|n| *n == 1));
        // More than there can be.
        let huge = Builder::new(&gpu).device_only::<u64>(Shape::packed([u32::MAX >> 1, 1 << 28]));
        let huge = huge.unwrap();
        assert!(huge.root().fill_on(0, 1).is_err());
        let part = huge.root().crop([0..4, 0..4]).unwrap();
        assert!(part.fill_on(0, 1).is_err() && part.prefetch(0).is_err());
        assert!(part.read_into(&mut [0; 16]).is_err());
        drop(part);
        huge.close().unwrap();
    }
}

/// More trees than memory objects, with odd sizes; every one keeps its own.
#[test]
fn many_trees() {
    for limits in [LimitsOverride::default(), LimitsOverride::strict()] {
        let Some(gpu) = open(limits) else { return };
        let mut storage: Vec<Vec<[u8; 3]>> =
            (0..150).map(|i| vec![[i as u8; 3]; 1 + i * 37 % 200]).collect();
        let trees: Vec<_> = storage
            .iter_mut()
            .map(|pixels| {
                let shape = Shape::packed([pixels.len() as u32]);
                Tree::over(pixels, shape, gpu.clone()).unwrap()
            })
            .collect();
        for (i, tree) in trees.iter().enumerate() {
            let root = tree.root();
            root.step_by(0, 2).unwrap().fill_on(0, [255, i as u8, 1]).unwrap();
            root.flip(0).unwrap().copy_from(&root, 0).unwrap();
        }
        for (i, tree) in trees.iter().enumerate() {
            let guard = tree.root().read().unwrap();
            let all = guard.as_slice().unwrap();
            for (at, pixel) in all.iter().rev().enumerate() {
                let expected = if at % 2 == 0 { [255, i as u8, 1] } else { [i as u8; 3] };
                assert_eq!(*pixel, expected, "tree {i} at {at}");
            }
        }
        for (i, tree) in trees.into_iter().enumerate() {
            if i % 3 == 0 { drop(tree) } else { tree.close().unwrap() }
        }
        assert!(gpu.drop_errors().take().is_none());
    }
}

/// Timeouts of nothing and of for ever, and closing, dropping and forgetting while work is in flight.
#[test]
fn closing_with_work_in_flight() {
    for (owned, limits) in [
        (false, LimitsOverride::default()),
        (true, LimitsOverride::default()),
        (true, LimitsOverride::strict()),
    ] {
        let Some(gpu) = open(limits) else { return };
        let kernel = add(&gpu);
        let mut words = vec![0u32; 1 << 16];
        for how in 0..5 {
            let expected = words.clone();
            let shape = Shape::packed([1 << 16]);
            let builder = || {
                let timeout = if how < 4 { Duration::ZERO } else { Duration::MAX };
                Builder::new(gpu.clone()).timeout(timeout)
            };
            let mut out = vec![0; 1 << 16];
            if owned {
                let tree = builder().owned::<u32>(shape).unwrap();
                tree.root().fill_on(0, 7).unwrap();
                for _ in 0..4 {
                    kernel.launch(tree.root().as_update(), 1u32).unwrap();
                }
                match how {
                    0 => drop(tree),
                    1 => tree.discard(),
                    2 => {
                        let mut pending = tree.root().begin_read().unwrap();
                        let _ = pending.poll();
                        std::mem::forget(pending);
                        tree.close().unwrap();
                    }
                    _ => {
                        while tree.root().read_into(&mut out).is_err() {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        assert!(out.iter().all(|n| *n == 11));
                    }
                }
                continue;
            }
            let tree = builder().over(&mut words, shape).unwrap();
            for _ in 0..4 {
                kernel.launch(tree.root().as_update(), 1u32).unwrap();
            }
            match how {
                0 => {
                    drop(tree);
                    // It could not wait, and says so; or it was done already.
                    let told = gpu.drop_errors().take();
                    let kept = words == expected;
                    assert_eq!(told.is_some(), kept, "{told:?}");
                    words.iter_mut().zip(&expected).for_each(|(n, old)| *n = old + 4);
                }
                1 => {
                    tree.discard();
                    assert_eq!(words, expected);
                    words.iter_mut().for_each(|n| *n += 4);
                }
                _ => {
                    let mut tree = tree;
                    let mut tries = 0;
                    while let Err(failed) = tree.close() {
                        assert_eq!(failed.error.kind(), Some(ErrorKind::Timeout));
                        tree = failed.tree;
                        tries += 1;
                        assert!(tries < 20_000, "never done");
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    assert!(words.iter().zip(&expected).all(|(n, old)| *n == old + 4));
                }
            }
        }
        drop(kernel);
    }
}

/// Every call fails once, in every way, while a tree is used, evicted and closed: nothing that was reported as
/// done is missing at the end.
#[test]
fn every_call_fails_once() {
    let Some(gpu) = open(LimitsOverride::default()) else { return };
    let fault = Fault::new(gpu.clone());
    let kernel = add(&fault);
    for kind in [ErrorKind::Timeout, ErrorKind::OutOfMemory, ErrorKind::Other] {
        for partial in [false, true] {
            for n in 1..200 {
                let mut words: Vec<u32> = (0..64).collect();
                let mut added = 0;
                let tree = Tree::over(&mut words, Shape::packed([64]), &fault).unwrap();
                let left = tree.root().crop([0..20]).unwrap();
                let right = tree.root().crop([20..64]).unwrap();
                if partial {
                    fault.arm_partial(n, kind)
                } else {
                    fault.arm(n, kind)
                };
                added += u32::from(kernel.launch(tree.root().as_update(), 1u32).is_ok());
                let one = kernel.launch(left.as_update(), 1u32).is_ok();
                let two = right
                    .update()
                    .map(|mut guard| guard.as_mut_slice().unwrap().iter_mut().for_each(|n| *n += 1))
                    .is_ok();
                let _ = right.prefetch(0);
                let _ = tree.evict(0);
                let _ = tree.sync();
                let _ = right.copy_from(&right, 0);
                if let Ok(detached) = Builder::new(&fault).detach(&left, Mode::Update) {
                    let before = kernel.launch(detached.root().as_update(), 0u32);
                    let _ = before;
                    if let Err(failed) = detached.close() {
                        failed.tree.close().unwrap();
                    }
                }
                drop((left, right));
                let mut closed = tree.close();
                let fired = fault.fired();
                for _ in 0..3 {
                    if let Err(failed) = closed {
                        closed = failed.tree.close();
                    }
                }
                closed.unwrap();
                for (i, word) in words.iter().enumerate() {
                    let more = added + u32::from(if i < 20 { one } else { two });
                    assert_eq!(*word, i as u32 + more, "{kind:?} {partial} at call {n}, word {i}");
                }
                if !fired {
                    break;
                }
                assert!(n < 199);
            }
        }
    }
    fault.disarm();
}
