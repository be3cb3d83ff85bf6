//! Trees on two and three devices: where bytes come from, how they get across, and what a loss takes.

mod common;

use common::{Counted, Three, add, counted, load, region, relay, stamp, stamped};
use hedgerow::driver::Kernel;
use hedgerow::driver::middleware::{Counting, Moved};
use hedgerow::error::Holder;
use hedgerow::{Builder, Counters, Error, Location, Mode, Region, Shape, Tree, View};
use hedgerow_host::Host;

/// 8 x 8 numbers: 256 bytes, 32 a row.
fn shape() -> Shape {
    Shape::packed([8, 8])
}

type Tree3<'m, 'd> = Tree<'m, i32, &'d Counted, Three>;
type Builder3<'d> = Builder<&'d Counted, Three>;

fn hosts<const N: usize>(peers: bool) -> [Counted; N] {
    core::array::from_fn(|_| Counting::new(Host::new().peer_copies(peers)))
}

fn builder<const N: usize>(gpus: &[Counted; N]) -> Builder3<'_> {
    let mut all = gpus.iter();
    let first = Builder::new(all.next().expect("a device")).capacity::<Three>();
    all.fold(first, |builder, gpu| builder.device(gpu))
}

fn kernels<const N: usize>(
    gpus: &[Counted; N],
    views: usize,
    kernel: hedgerow::driver::HostKernel,
) -> [Kernel<Counted>; N] {
    gpus.each_ref().map(|gpu| load(gpu, views, kernel))
}

fn rows<'t>(tree: &'t Tree3<'_, '_>, from: i32, to: i32) -> View<'t, i32, Counted> {
    tree.root().crop([0..8, from..to]).expect("rows")
}

/// Up, down, across; nothing by widening.
fn bytes(counters: Counters) -> (u64, u64, u64) {
    assert_eq!((counters.bytes_widened, counters.defined_by_widening), (0, 0));
    (counters.bytes_up, counters.bytes_down, counters.bytes_across)
}

/// Checks rows against what [`stamp`] wrote with some parameter, or `None` where the numbers still count.
fn check(tree: &Tree3<'_, '_>, parameter: [Option<i32>; 8]) {
    let mut all = [0; 64];
    tree.root().read_into(&mut all).expect("all of it");
    for (i, value) in (0..).zip(all) {
        let (x, y) = (i % 8, i / 8);
        let expected = parameter[y as usize].map_or(i, |p| stamped(x, y, p));
        assert_eq!(value, expected, "at {x}, {y}");
    }
    tree.check().expect("sound");
}

/// A box whose parts are fresh in different places is split by source.
#[test]
fn sources_are_split() {
    for peers in [false, true] {
        let gpus = hosts::<3>(peers);
        let (write, change) = (kernels(&gpus, 1, stamp), kernels(&gpus, 1, add));
        let mut pixels = counted(64);
        let tree = builder(&gpus).over(&mut pixels, shape()).unwrap();
        write[0].launch((rows(&tree, 0, 4).as_overwrite(),), 1).unwrap();
        write[1].launch((rows(&tree, 4, 6).as_overwrite(),), 2).unwrap();
        assert_eq!(bytes(tree.counters()), (0, 0, 0));

        // Rows 0..4 are on device 0, 4..6 on device 1, 6..8 at home.
        let plan = tree.root().plan(Location::Device(2), Mode::Read).unwrap();
        let planned = (plan.bytes_up, plan.bytes_down, plan.bytes_across);
        assert_eq!(planned, if peers { (64, 0, 192) } else { (256, 192, 0) });
        assert_eq!(plan.boxes, 3);
        let calls = gpus.each_ref().map(Counting::snapshot);
        change[2].launch((tree.root().as_update(),), 0).unwrap();
        let since: [_; 3] = core::array::from_fn(|i| gpus[i].since(&calls[i]));
        let down = since.map(|calls| calls.downloads.bytes);
        if peers {
            assert_eq!(bytes(tree.counters()), (64, 0, 192));
            assert_eq!((since[2].uploads.bytes, since[2].copies.bytes), (64, 192));
            assert_eq!(down, [0, 0, 0]);
        } else {
            // Home first, which so has it too.
            assert_eq!(bytes(tree.counters()), (256, 192, 0));
            assert_eq!((since[2].uploads.bytes, since[2].copies.bytes), (256, 0));
            assert_eq!(down, [128, 64, 0]);
        }
        // Everything is newest on device 2 now, and one device is enough to read it.
        let before = tree.counters();
        check(&tree, [Some(1), Some(1), Some(1), Some(1), Some(2), Some(2), None, None]);
        assert_eq!(bytes(tree.counters().since(&before)), (0, 256, 0));
        tree.close().unwrap();
        assert!(gpus.iter().all(|gpu| gpu.snapshot().live() == 0));
    }
}

/// Two devices hand a buffer back and forth, each changing half of it.
#[test]
fn back_and_forth() {
    for peers in [false, true] {
        let gpus = hosts::<2>(peers);
        let change = kernels(&gpus, 1, add);
        let mut pixels = counted(64);
        let tree = builder(&gpus).over(&mut pixels, shape()).unwrap();
        let half = rows(&tree, 2, 6);
        change[0].launch((half.as_update(),), 1).unwrap();
        assert_eq!(bytes(tree.counters()), (128, 0, 0));
        for turn in 0..6 {
            let before = tree.counters();
            change[1 - turn % 2].launch((half.as_update(),), 1).unwrap();
            let moved = bytes(tree.counters().since(&before));
            assert_eq!(moved, if peers { (0, 0, 128) } else { (128, 128, 0) }, "turn {turn}");
        }
        let home = half.read().unwrap();
        assert_eq!((home[[0, 2]], home[[7, 5]]), (16 + 7, 47 + 7));
        drop((home, half));
        let counts = gpus.each_ref().map(|gpu| gpu.snapshot());
        // One allocation a device, and no bounce memory.
        assert!(counts.iter().all(|n| n.allocations.calls == 1 && n.storages.calls == 0));
        tree.close().unwrap();
    }
}

/// Kernels of each device, on disjoint parts; views of two trees in one launch.
#[test]
fn launches_on_each_device() {
    let gpus = hosts::<3>(false);
    let (write, copy) = (kernels(&gpus, 1, stamp), kernels(&gpus, 2, relay));
    let (mut a, mut b) = (counted(64), counted(64));
    let from = builder(&gpus).over(&mut a, shape()).unwrap();
    // The same devices in another order.
    let [x, y, z] = &gpus;
    let to = Builder::new(z).device(x).device(y).capacity::<Three>();
    let to = to.over(&mut b, shape()).unwrap();
    for (device, p) in [(0, 10), (1, 11), (2, 12)] {
        let at = 2 * device as i32;
        write[device].launch((rows(&from, at, at + 2).as_overwrite(),), p).unwrap();
    }
    for (kernel, at) in copy.iter().zip([0, 2, 4]) {
        let args = (rows(&from, at, at + 2).as_read(), rows(&to, at, at + 2).as_overwrite());
        kernel.launch(args, 0).unwrap();
    }
    // Nothing moved at all: each device had what it read.
    assert_eq!((bytes(from.counters()), bytes(to.counters())), ((0, 0, 0), (0, 0, 0)));
    assert_eq!((from.counters().allocations, to.counters().allocations), (3, 3));
    let expected = [10, 10, 11, 11, 12, 12].map(Some);
    let [a, b, c, d, e, f] = expected;
    check(&to, [a, b, c, d, e, f, None, None]);
    assert_eq!(bytes(to.counters()), (0, 192, 0));
    let launches = gpus.each_ref().map(|gpu| gpu.snapshot().dispatches);
    assert_eq!(launches, [2, 2, 2]);
    // A tree without the device of the kernel.
    let mut c = counted(64);
    let small = Builder::new(x).capacity::<Three>().over(&mut c, shape()).unwrap();
    let refused = write[1].launch((small.root().as_overwrite(),), 0);
    assert!(matches!(refused, Err(Error::WrongDriver)));
    assert_eq!(from.device(3).map(drop), None);
    assert!(matches!(
        rows(&from, 0, 1).prefetch(3),
        Err(Error::NoDevice { device: 3, devices: 3 })
    ));
}

/// Without a home: directly where devices can, else through memory of the target's driver.
#[test]
fn device_only_trees() {
    for peers in [false, true] {
        let gpus = hosts::<2>(peers);
        let (write, change) = (kernels(&gpus, 1, stamp), kernels(&gpus, 1, add));
        let tree = builder(&gpus).device_only::<i32>(shape()).unwrap();
        write[0].launch((rows(&tree, 0, 5).as_overwrite(),), 1).unwrap();
        write[1].launch((rows(&tree, 5, 8).as_overwrite(),), 2).unwrap();
        // A crop with gaps between its rows.
        let crop = tree.root().crop([2..6, 3..7]).unwrap();
        change[1].launch((crop.as_update(),), 0).unwrap();
        let across = 4 * 2 * 4;
        assert_eq!(bytes(tree.counters()), (0, 0, across));
        let [zero, one] = gpus.each_ref().map(|gpu| gpu.snapshot());
        let copies = Moved { calls: 1, boxes: 1, runs: 2, bytes: across };
        if peers {
            assert_eq!((one.copies, one.storages.calls), (copies, 0));
            assert_eq!(zero.downloads, Moved::default());
        } else {
            assert_eq!((zero.downloads.bytes, one.storages.bytes), (across, across));
            assert_eq!(one.copies, copies);
            // The bounce is given back.
            assert_eq!(one.live(), 1);
        }
        drop(crop);
        check(&tree, [1, 1, 1, 1, 1, 2, 2, 2].map(Some));
        tree.close().unwrap();
        assert!(gpus.iter().all(|gpu| gpu.snapshot().live() == 0));
    }
}

/// A read-only home is no way across either.
#[test]
fn read_only_storage_is_no_detour() {
    let gpus = hosts::<2>(false);
    let (write, change) = (kernels(&gpus, 1, stamp), kernels(&gpus, 1, add));
    let pixels = counted(64);
    let tree = builder(&gpus).over_ref(&pixels, shape()).unwrap();
    write[0].launch((rows(&tree, 0, 4).as_overwrite(),), 1).unwrap();
    change[1].launch((tree.root().as_update(),), 0).unwrap();
    assert_eq!(bytes(tree.counters()), (128, 0, 128));
    check(&tree, [Some(1), Some(1), Some(1), Some(1), None, None, None, None]);
    tree.discard();
    assert_eq!(pixels, counted(64));
}

fn lost(tree: &Tree3<'_, '_>) -> Vec<Region> {
    let mut all = Vec::new();
    tree.take_lost(|region| all.push(region));
    all
}

/// One device goes: the others, the host, and what is on several go on; exactly the rest is reported.
#[test]
fn a_loss_leaves_the_others_right() {
    for peers in [false, true] {
        let gpus = hosts::<3>(peers);
        let (write, change) = (kernels(&gpus, 1, stamp), kernels(&gpus, 1, add));
        let mut pixels = counted(64);
        let tree = builder(&gpus).over(&mut pixels, shape()).unwrap();
        write[0].launch((rows(&tree, 0, 2).as_overwrite(),), 1).unwrap();
        write[1].launch((rows(&tree, 2, 4).as_overwrite(),), 2).unwrap();
        write[2].launch((rows(&tree, 4, 6).as_overwrite(),), 3).unwrap();
        // Row 1 is on device 2 too.
        rows(&tree, 1, 2).prefetch(2).unwrap();
        if !peers {
            // It went by way of home; it is newer on both devices again.
            change[0].launch((rows(&tree, 1, 2).as_update(),), 0).unwrap();
            drop(rows(&tree, 1, 2).read().unwrap());
        }
        gpus[0].inner().simulate_loss();
        let refused = change[0].launch((rows(&tree, 4, 5).as_update(),), 1);
        let Err(Error::Lost { region: Some(gone), boxes: 1, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(gone, region(0..8, 0..1));
        // It says so from now on, for this device only.
        let again = rows(&tree, 4, 5).prefetch(0);
        assert!(matches!(again, Err(Error::Lost { region: None, boxes: 0, .. })));
        let undefined = tree.root().read().unwrap_err();
        assert!(matches!(undefined, Error::Undefined { region: r, lost: true } if r == gone));
        change[1].launch((rows(&tree, 1, 8).as_update(),), 0).unwrap();
        assert_eq!((lost(&tree), lost(&tree)), (vec![gone], vec![]));
        // Written anew, on another device.
        write[2].launch((rows(&tree, 0, 1).as_overwrite(),), 4).unwrap();
        check(&tree, [Some(4), Some(1), Some(2), Some(2), Some(3), Some(3), None, None]);
        tree.close().unwrap();
        // The memory of a lost device is given back all the same.
        assert!(gpus.iter().all(|gpu| gpu.snapshot().live() == 0));
    }
}

/// A peer that is lost is met while copying from it: its loss, not that of the device that copies.
#[test]
fn a_loss_met_on_the_way_across() {
    for (peers, home) in [(false, false), (true, false), (true, true), (false, true)] {
        let gpus = hosts::<2>(peers);
        let (write, change) = (kernels(&gpus, 1, stamp), kernels(&gpus, 1, add));
        let mut pixels = counted(64);
        let tree = match home {
            true => builder(&gpus).over(&mut pixels, shape()).unwrap(),
            false => builder(&gpus).device_only(shape()).unwrap(),
        };
        write[1].launch((rows(&tree, 4, 8).as_overwrite(),), 2).unwrap();
        write[0].launch((rows(&tree, 0, 2).as_overwrite(),), 1).unwrap();
        write[0].launch((rows(&tree, 2, 4).as_overwrite(),), 1).unwrap();
        // The tree knows from this that all of it is done.
        rows(&tree, 2, 4).prefetch(1).unwrap();
        gpus[0].inner().simulate_loss();
        let met = change[1].launch((tree.root().as_update(),), 0).unwrap_err();
        let gone = region(0..8, 0..2);
        assert!(
            matches!(met, Error::Lost { region: Some(r), boxes: 1, .. } if r == gone),
            "{met:?} with peers: {peers}, a home: {home}"
        );
        assert_eq!(lost(&tree), [gone]);
        change[1].launch((rows(&tree, 2, 8).as_update(),), 0).unwrap();
        write[1].launch((rows(&tree, 0, 2).as_overwrite(),), 5).unwrap();
        check(&tree, [5, 5, 1, 1, 2, 2, 2, 2].map(Some));
    }
}

/// Capacity for fewer devices than were given.
#[test]
fn too_many_devices() {
    let gpus = hosts::<3>(false);
    let mut pixels = counted(64);
    let refused = builder(&gpus).device(&gpus[0]).over(&mut pixels, shape()).map(drop);
    assert!(matches!(refused, Err(Error::NoDevice { device: 3, devices: 3 })));
    let (mut one, gpu) = (counted(64), &gpus[0]);
    let refused = Builder::new(gpu).device(&gpus[1]).over(&mut one, shape()).map(drop);
    assert!(matches!(refused, Err(Error::NoDevice { device: 1, devices: 1 })));
}

/// A launch that must not wait sends what the host has, and refuses to fetch what only another device has.
#[test]
fn launches_that_never_wait() {
    let gpus = hosts::<2>(false);
    let (write, change) = (kernels(&gpus, 1, stamp), kernels(&gpus, 1, add));
    let mut pixels = counted(64);
    let tree = builder(&gpus).over(&mut pixels, shape()).unwrap();
    write[1].try_launch(rows(&tree, 4, 8).as_overwrite(), 3).unwrap();
    change[0].try_launch(rows(&tree, 0, 4).as_update(), 0).unwrap();
    assert_eq!(bytes(tree.counters()), (128, 0, 0));

    let whole = change[0].try_launch(tree.root().as_update(), 0);
    assert!(matches!(whole, Err(Error::Busy(busy)) if busy.holder == Holder::Work), "{whole:?}");
    assert_eq!(bytes(tree.counters()), (128, 0, 0));
    let held = rows(&tree, 0, 1).read().unwrap();
    let over = write[0].try_launch(rows(&tree, 0, 2).as_overwrite(), 4);
    assert!(matches!(over, Err(Error::Busy(busy)) if busy.holder == Holder::Access), "{over:?}");
    drop(held);

    // Home again, nothing is in the way any more.
    tree.sync().unwrap();
    change[0].try_launch(tree.root().as_update(), 0).unwrap();
    tree.check().unwrap();
}

/// I7 on several devices: in a drop too, a loss of one leaves the others right.
#[test]
fn a_drop_brings_home_what_the_others_hold() {
    let gpus = hosts::<3>(false);
    let write = kernels(&gpus, 1, stamp);
    let mut pixels = counted(64);
    let tree = builder(&gpus).over(&mut pixels, shape()).unwrap();
    write[0].launch(rows(&tree, 0, 2).as_overwrite(), 1).unwrap();
    write[1].launch(rows(&tree, 3, 5).as_overwrite(), 2).unwrap();
    write[2].launch(rows(&tree, 6, 8).as_overwrite(), 3).unwrap();
    gpus[0].inner().simulate_loss();
    drop(tree);
    for (i, value) in (0..).zip(&pixels) {
        let (x, y) = (i % 8, i / 8);
        let expected = match y {
            3 | 4 => stamped(x, y, 2),
            6 | 7 => stamped(x, y, 3),
            // Of the lost device: whatever the host held.
            _ => i,
        };
        assert_eq!(*value, expected, "at {x}, {y}");
    }
    let told = gpus[0].inner().take_drop_error().expect("what was lost is told");
    assert_eq!((told.region, told.bytes), (region(0..8, 0..2), 64));
    assert_eq!(gpus[1].inner().take_drop_error(), None);
}

/// A ticket is its device's own: what one device has copied into storage is nothing for another to wait for. (The
/// host driver refuses tickets of which it has never heard.)
#[test]
fn tickets_stay_with_their_device() {
    let gpus = hosts::<2>(false);
    let tree = builder(&gpus).owned::<i32>(shape()).unwrap();
    let write = kernels(&gpus, 1, stamp);
    let mut written = 0;
    let mut fill = || {
        written += 1;
        for _ in 0..20 {
            write[0].launch((rows(&tree, 0, 4).as_overwrite(),), written).unwrap();
        }
        write[1].launch((rows(&tree, 4, 8).as_overwrite(),), written).unwrap();
        written
    };
    let check = |at: [i32; 2], found: i32, p: i32| assert_eq!(found, stamped(at[0], at[1], p));
    let ends = [[7, 0], [0, 7]];
    let p = fill();
    let guard = tree.root().read().unwrap();
    ends.iter().for_each(|at| check(*at, guard[*at], p));
    drop(guard);
    let p = fill();
    let mut pending = tree.root().begin_read().unwrap();
    let std::task::Poll::Ready(guard) = pending.poll().unwrap() else { panic!("all is done") };
    ends.iter().for_each(|at| check(*at, guard[*at], p));
    drop(guard);
    // The other way round: fetched for a device, from all places.
    for gpu in [0, 1] {
        fill();
        tree.root().prefetch(gpu).unwrap();
    }
    fill();
    tree.evict(1).unwrap();
    tree.sync().unwrap();
}
