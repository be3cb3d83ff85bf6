//! Failures of the driver: at every call, of every kind, whole and half done; loss; and what `Drop` does.

use std::cell::Cell;
use std::sync::Mutex;

use hedgerow::capacity::Capacity;
use hedgerow::driver::middleware::Counts;
use hedgerow::driver::{DeviceDriver, ErrorKind};
use hedgerow::{CloseError, Error, Shape};

use super::super::kernels;
use super::super::lab::{Bed, Hardware, Lab, Pair, Plot, Rig, Skip, Storage, lock};
use super::start;

super::cases! {
    both:
        faults_out_of_memory_at_every_call,
        faults_timeout_at_every_call,
        faults_half_a_copy_list_then_failure,
        faults_half_a_copy_list_then_timeout,
        faults_loss_at_every_call,
        faults_half_a_copy_list_then_loss,
        faults_no_room_for_the_root_loses_nothing,
        faults_loss_of_one_device_of_two,
        faults_after_a_loss_the_host_goes_on,
        faults_discard_moves_nothing;
    borrowed:
        faults_discard_leaves_what_became_stale,
        faults_drop_writes_back,
        faults_drop_reports_what_it_could_not_write_back,
        faults_close_gives_the_tree_back,
        faults_close_after_a_loss;
    owned:
        faults_no_room_for_owned_storage,
        faults_a_failed_overwrite_leaves_nothing_behind,
}

/// Calls of every kind, in an order in which host and device need each other's bytes.
fn program<H: Hardware, C: Capacity>(bed: &Bed<'_, '_, i32, H, C>) {
    let root = bed.root();
    let (a, b) = (root.crop([1..6, 1..5]), root.crop([7..12, 4..8]));
    bed.fill(&a, 1);
    bed.write(&root.crop([0..12, 8..10]), 2);
    bed.read(&a);
    start(bed);
    bed.bring(&root.crop([0..4, 0..10]));
    bed.add(&a, 3);
    bed.fill(&b, 4);
    bed.update(&root.crop([4..9, 2..9]), 5);
    bed.copy(&root.crop([0..5, 0..4]), &root.crop([7..12, 5..9]), 6);
    bed.stencil(&root.crop([0..8, 0..5]), &root.crop([1..7, 5..9]));
    bed.read(&root.slice(0, 3));
    bed.add(&root.step_by(1, 3), 7);
    bed.read(&root);
    bed.add(&root.slice(1, 4), 8);
}

fn plot() -> Plot {
    Plot::strided(&[12, 10], &[1, 15])
}

/// Runs the program with call `k` failing, for every `k` that there is.
pub(super) fn fail_every_call<H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
    kind: ErrorKind,
    partial: bool,
) {
    lab.run(&plot(), program);
    for rig in lab.rigs() {
        for k in 1.. {
            let fired = Cell::new(false);
            lab.run(&plot(), |bed| {
                bed.retry(kind);
                arm(rig, k, kind, partial);
                program(bed);
                fired.set(rig.inner().fired());
                rig.inner().disarm();
            });
            assert_eq!(rig.snapshot().live(), 0, "call {k}");
            if !fired.get() {
                let few = 10 / lab.rigs().len() as u32;
                assert!(k > few || lab.is_shared(), "a program of {k} calls is no test");
                break;
            }
        }
    }
}

fn arm<H: Hardware>(rig: &Rig<H>, k: u32, kind: ErrorKind, partial: bool) {
    let fault = rig.inner();
    if partial { fault.arm_partial(k, kind) } else { fault.arm(k, kind) }
}

fn faults_out_of_memory_at_every_call<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    fail_every_call(lab, ErrorKind::OutOfMemory, false);
}

fn faults_timeout_at_every_call<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    fail_every_call(lab, ErrorKind::Timeout, false);
}

fn faults_half_a_copy_list_then_failure<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    fail_every_call(lab, ErrorKind::Other, true);
}

fn faults_half_a_copy_list_then_timeout<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    fail_every_call(lab, ErrorKind::Timeout, true);
}

fn lose_at_every_call<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>, partial: bool) {
    lab.run(&plot(), program);
    for rig in lab.rigs() {
        for k in 1.. {
            let fired = Cell::new(false);
            lab.run(&plot(), |bed| {
                bed.expect_loss();
                arm(rig, k, ErrorKind::DeviceLost, partial);
                program(bed);
                fired.set(rig.inner().fired());
                rig.inner().disarm();
                if bed.met_loss() {
                    bed.take_lost();
                    // Without the device, what needs no more than the others still runs.
                    program(bed);
                }
            });
            rig.inner().revive();
            if !fired.get() {
                break;
            }
        }
    }
}

fn faults_loss_at_every_call<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lose_at_every_call(lab, false);
}

fn faults_half_a_copy_list_then_loss<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lose_at_every_call(lab, true);
}

fn faults_no_room_for_the_root_loses_nothing<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[10, 10]), |bed| {
        let root = bed.root();
        start(bed);
        let add = bed.kernel(&kernels::ADD_I32);
        lab.rig.inner().arm(1, ErrorKind::OutOfMemory);
        let answer = add.launch((root.view.as_update(),), 1);
        assert_eq!(answer.err().and_then(|error| error.kind()), Some(ErrorKind::OutOfMemory));
        bed.read(&root);
        bed.add(&root, 1);
        bed.read(&root);
        lab.rig.inner().disarm();
    });
}

fn faults_loss_of_one_device_of_two<H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
) -> Result<(), Skip> {
    let second = lab.second()?;
    lab.run_on::<i32, Pair>(&[&lab.rig, &second], &Plot::packed(&[12, 12]), |bed| {
        let root = bed.root();
        start(bed);
        bed.fill_on(0, &root.crop([0..6, 0..6]), 1);
        bed.fill_on(1, &root.crop([4..12, 4..12]), 2);
        bed.add_on(0, &root.crop([7..9, 7..9]), 3);
        lab.rig.inner().arm(1, ErrorKind::DeviceLost);
        bed.expect_loss();
        bed.add_on(0, &root, 4);
        assert!(bed.met_loss());
        bed.take_lost();
        bed.add_on(1, &root.crop([9..12, 4..12]), 5);
        bed.read(&root.crop([9..12, 0..12]));
        bed.write(&root, 6);
        bed.add_on(1, &root, 7);
        bed.read(&root);
        lab.rig.inner().disarm();
    });
    lab.rig.inner().revive();
    assert_eq!(second.snapshot().live(), 0, "of the second device");
    Ok(())
}

fn faults_after_a_loss_the_host_goes_on<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[12, 12]), |bed| {
        let root = bed.root();
        start(bed);
        for kernel in [&kernels::FILL_I32, &kernels::ADD_I32] {
            bed.kernel(kernel);
        }
        bed.add(&root.crop([0..6, 0..12]), 1);
        bed.read(&root.crop([0..3, 0..12]));
        bed.fill(&root.crop([8..10, 2..4]), 2);
        bed.expect_loss();
        lab.rig.inner().arm(1, ErrorKind::DeviceLost);
        bed.add(&root, 1);
        assert!(bed.met_loss());
        bed.read(&root);
        bed.read(&root.crop([0..3, 0..12]));
        bed.read(&root.crop([10..12, 0..12]));
        bed.write(&root.crop([3..12, 0..12]), 3);
        bed.read(&root.crop([3..12, 0..12]));
        bed.add(&root, 1);
        bed.fill(&root, 1);
        lab.rig.inner().disarm();
    });
    lab.rig.inner().revive();
}

/// A tree whose left half is on the device only; on both by halves, where there are two.
fn half_on_the_device<H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
    tree: &hedgerow::Tree<'_, i32, &super::super::lab::Rig<H>, C>,
) {
    let fills = lab.kernels(&kernels::FILL_I32);
    let rows = 8 / fills.len() as i32;
    for (fill, y) in fills.iter().zip((0..8).step_by(rows as usize)) {
        let half = tree.root().crop([0..4, y..y + rows]).expect("a crop");
        fill.launch((half.as_overwrite(),), 1).expect("runs");
    }
}

fn is_filled(memory: &[i32]) -> bool {
    (0..64).all(|i| {
        memory[i] == if i % 8 < 4 { kernels::code(&[i as i32 % 8, i as i32 / 8], 1) } else { 0 }
    })
}

fn faults_drop_writes_back<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let mut memory = vec![0; 64];
    let tree = lab.builder().over(&mut memory, Shape::packed([8, 8])).expect("a tree");
    half_on_the_device(lab, &tree);
    drop(tree);
    assert!(is_filled(&memory));
    if lab.is_exact() {
        assert_eq!(lab.count(|counts| counts.downloads.bytes), 4 * 32);
    }
}

/// The log of drop errors belongs to the driver, which trials may share.
static DROPS: Mutex<()> = Mutex::new(());

fn faults_drop_reports_what_it_could_not_write_back<H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
) -> Result<(), Skip> {
    let Some(take) = &lab.suite.drop_error else {
        return Err(Skip(String::from("the driver shows no drop errors")));
    };
    let _alone = lock(&DROPS);
    let driver = lab.rig.inner().inner();
    while take(driver).is_some() {}
    let here = 32 / lab.rigs().len() as u64;
    for kind in [ErrorKind::Timeout, ErrorKind::DeviceLost] {
        let mut memory = vec![0; 64];
        let tree = lab.builder().over(&mut memory, Shape::packed([8, 8])).expect("a tree");
        half_on_the_device(lab, &tree);
        lab.rig.inner().arm(1, kind);
        drop(tree);
        lab.rig.inner().disarm();
        lab.rig.inner().revive();
        let error = take(driver).expect("a report");
        assert_eq!(
            (error.kind, error.bytes),
            (kind, 4 * if lab.is_exact() { here } else { error.bytes / 4 })
        );
        assert_eq!(error.region.lo(0), 0);
        assert!(take(driver).is_none(), "one report");
        if let Some(other) = &lab.other {
            // What the other device held came home, or is reported there.
            let is_home = |i: usize| memory[i] == kernels::code(&[i as i32 % 8, i as i32 / 8], 1);
            let home = (0..64).filter(|i| i / 8 >= 4 && i % 8 < 4).all(is_home);
            match take(other.inner().inner()) {
                Some(error) => assert_eq!((error.kind, error.bytes), (kind, 4 * here)),
                None => assert!(home, "neither at home nor reported"),
            }
            assert!(take(other.inner().inner()).is_none(), "one report");
        }
    }
    Ok(())
}

fn faults_close_gives_the_tree_back<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let mut memory = vec![0; 64];
    let tree = lab.builder().over(&mut memory, Shape::packed([8, 8])).expect("a tree");
    half_on_the_device(lab, &tree);
    lab.rig.inner().arm(1, ErrorKind::Timeout);
    let CloseError { tree, error } = tree.close().expect_err("the injected failure");
    assert_eq!(error.kind(), Some(ErrorKind::Timeout));
    assert_eq!(tree.check(), Ok(()));
    lab.rig.inner().arm_partial(1, ErrorKind::Other);
    let tree = tree.close().expect_err("the second failure").tree;
    tree.close().expect("closes");
    assert!(is_filled(&memory));
}

fn faults_close_after_a_loss<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let mut memory = vec![0; 64];
    let tree = lab.builder().over(&mut memory, Shape::packed([8, 8])).expect("a tree");
    half_on_the_device(lab, &tree);
    lab.rig.inner().arm(1, ErrorKind::DeviceLost);
    let CloseError { tree, error } = tree.close().expect_err("the loss");
    assert!(matches!(error, Error::Lost { region: Some(_), .. }), "{error:?}");
    let mut elements = 0;
    tree.take_lost(|region| elements += region.volume());
    if lab.is_exact() {
        assert_eq!(elements, 32 / lab.rigs().len() as u64);
    }
    tree.close().expect("what is left needs no device");
    lab.rig.inner().revive();
    assert!((0..64).filter(|i| i % 8 >= 4).all(|i| memory[i] == 0));
    if lab.other.is_some() {
        let code = |i: usize| kernels::code(&[i as i32 % 8, i as i32 / 8], 1);
        let theirs = |i: &usize| i / 8 >= 4 && i % 8 < 4;
        assert!((0..64).filter(theirs).all(|i| memory[i] == code(i)), "of the other device");
    }
}

fn faults_discard_moves_nothing<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let mut memory = vec![0; 64];
    let shape = Shape::packed([8, 8]);
    let tree = match lab.storage {
        Storage::Borrowed => lab.builder().over(&mut memory, shape),
        Storage::Owned => lab.trouble.insist(|| lab.builder().owned(shape)),
    };
    let tree = tree.expect("a tree");
    half_on_the_device(lab, &tree);
    tree.discard();
    assert_eq!(lab.count(Counts::bytes_moved), 0);
}

/// The one look at stale bytes that there is: what a device wrote is stale at home, so poisoned if trees are,
/// and else as it was.
fn faults_discard_leaves_what_became_stale<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let mut memory = vec![7; 64];
    let tree = lab.builder().over(&mut memory, Shape::packed([8, 8])).expect("a tree");
    half_on_the_device(lab, &tree);
    tree.discard();
    let stale = if lab.poisons() { i32::from_ne_bytes([0xa5; 4]) } else { 7 };
    for (i, value) in memory.iter().enumerate() {
        if lab.is_exact() {
            assert_eq!(*value, if i % 8 < 4 { stale } else { 7 }, "element {i}");
        }
    }
}

fn faults_no_room_for_owned_storage<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.rig.inner().arm(1, ErrorKind::OutOfMemory);
    let answer = lab.builder().owned::<i32>(Shape::packed([8, 8])).map(drop);
    assert_eq!(answer.err().and_then(|error| error.kind()), Some(ErrorKind::OutOfMemory));
    let tree = lab.builder().owned::<i32>(Shape::packed([8, 8])).expect("there is room again");
    half_on_the_device(lab, &tree);
    // Its memory is the driver's: nobody could see what a drop wrote back.
    drop(tree);
    assert_eq!(lab.count(Counts::bytes_moved), 0);
    let survives = lab.rig.caps().storage_survives_loss;
    assert_eq!(lab.host_survives_loss(), survives);
}

/// Bytes that nobody has written become zero between those of a stepped view, also where an overwrite was
/// prepared and failed. (With poison it had left its mark.)
fn faults_a_failed_overwrite_leaves_nothing_behind<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let fill = lab.kernel(&kernels::FILL_I32);
    for k in 1..6 {
        lab.run::<i32>(&Plot::packed(&[12, 6]), |bed| {
            let root = bed.root();
            let part = root.crop([0..12, 1..4]);
            lab.rig.inner().arm(k, ErrorKind::Other);
            let answer = fill.launch((part.view.as_overwrite(),), 1);
            lab.rig.inner().disarm();
            if answer.is_ok() {
                let code = |at: &Vec<i32>| kernels::code(at, 1);
                let values: Vec<_> = part.spot.coordinates().iter().map(code).collect();
                bed.wrote(&part, 1, &values);
            }
            bed.fill_on(0, &root.step_by(0, 2), 3);
            let hull = root.crop([0..11, 0..6]);
            bed.read(&hull);
        });
    }
}
