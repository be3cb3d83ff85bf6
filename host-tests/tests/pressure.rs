//! Memory pressure: evicting, making room, and retries after running out.

mod common;

use common::{Three, add, counted, load, region, stamp, stamped};
use hedgerow::driver::ErrorKind;
use hedgerow::driver::middleware::{Counting, Fault};
use hedgerow::error::{Busy, Holder};
use hedgerow::{Builder, Error, Evict, Location, Mode, Shape, Tree, with_room};
use hedgerow_host::{Host, HostError};

/// 16 x 16 numbers: 1,024 bytes.
fn shape() -> Shape {
    Shape::packed([16, 16])
}

#[test]
fn evicting_brings_home_what_only_the_device_has() {
    let gpu = Counting::new(Host::new());
    let (change, write) = (load(&gpu, 1, add), load(&gpu, 1, stamp));
    let mut pixels = counted(256);
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    // There is nothing to give back.
    assert_eq!((tree.evict(0), tree.counters().evictions), (Ok(0), 0));
    assert!(matches!(tree.evict(1), Err(Error::NoDevice { device: 1, devices: 1 })));

    change.launch((tree.root().as_update(),), 1).unwrap();
    drop(tree.root().crop([0..16, 0..8]).unwrap().read().unwrap());
    write.launch((tree.root().crop([4..6, 0..2]).unwrap().as_overwrite(),), 1).unwrap();
    let before = (gpu.snapshot(), tree.counters());
    assert_eq!(tree.evict(0), Ok(1024));
    let (calls, moved) = (gpu.since(&before.0), tree.counters().since(&before.1));
    // The lower half and four elements; the rest is at home already.
    assert_eq!((calls.downloads.bytes, calls.releases), (512 + 16, 1));
    assert_eq!((moved.bytes_down, moved.evictions), (512 + 16, 1));
    assert_eq!((gpu.snapshot().live(), gpu.inner().used_bytes()), (0, 0));
    assert_eq!(tree.evict(0), Ok(0));
    assert_eq!(tree.counters().evictions, 1);

    // All is at home; the next use allocates and brings back what it needs.
    let before = (gpu.snapshot(), tree.counters());
    let home = tree.root().read().unwrap();
    assert_eq!((home[[4, 1]], home[[3, 1]], home[[0, 15]]), (stamped(4, 1, 1), 20, 241));
    assert_eq!(gpu.since(&before.0).bytes_moved(), 0);
    drop(home);
    change.launch((tree.root().crop([0..2, 0..2]).unwrap().as_update(),), 1).unwrap();
    let (calls, moved) = (gpu.since(&before.0), tree.counters().since(&before.1));
    assert_eq!((calls.allocations.calls, calls.uploads.bytes), (1, 16));
    assert_eq!((moved.allocations, moved.bytes_up), (1, 16));
    tree.release().unwrap();
    assert_eq!((gpu.snapshot().live(), tree.counters().evictions), (0, 2));
    tree.check().unwrap();
}

#[test]
fn what_is_held_is_not_evicted() {
    let gpu = Host::new();
    let mut pixels = counted(256);
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    let crop = tree.root().crop([4..6, 0..2]).unwrap();
    crop.fill_on(0, 7).unwrap();
    for mode in [Mode::Read, Mode::Update] {
        let access = crop.on_device(0, mode).unwrap();
        let refused = tree.evict(0);
        assert!(matches!(refused, Err(Error::Busy(Busy { holder: Holder::Access, .. }))));
        assert!(!tree.evict_one());
        drop(access);
    }
    // Guards at home are no obstacle, wherever they are.
    let (read, write) = (crop.read().unwrap(), tree.root().crop([8..9, 8..9]).unwrap().update());
    let mut write = write.unwrap();
    tree.root().crop([0..16, 10..16]).unwrap().fill_on(0, 9).unwrap();
    assert_eq!(tree.evict(0), Ok(1024));
    write[[8, 8]] = 1;
    assert_eq!(read[[4, 0]], 7);
    drop((read, write));
    let home = tree.root().read().unwrap();
    assert_eq!((home[[8, 8]], home[[5, 1]], home[[0, 12]], home[[0, 0]]), (1, 7, 9, 0));
    assert_eq!(gpu.live_allocations(), 0);
}

/// One device is evicted: what others hold stays where it is.
#[test]
fn others_keep_what_they_have() {
    let (a, b) = (Counting::new(Host::new()), Counting::new(Host::new()));
    let mut pixels = counted(256);
    let builder = Builder::new(&a).device(&b).capacity::<Three>();
    let tree = builder.over(&mut pixels, shape()).unwrap();
    let rows = |from: i32, to: i32| tree.root().crop([0..16, from..to]).unwrap();
    rows(0, 4).fill_on(0, 1).unwrap();
    rows(4, 8).fill_on(1, 2).unwrap();
    rows(8, 12).fill_on(0, 3).unwrap();
    rows(12, 16).fill_on(1, 4).unwrap();
    let writer = rows(4, 5).on_device(1, Mode::Update).unwrap();
    let before = tree.counters();
    assert_eq!(tree.evict(0), Ok(1024));
    assert_eq!(tree.counters().since(&before).bytes_down, 2 * 4 * 64);
    assert_eq!((a.snapshot().live(), b.snapshot().live()), (0, 1));
    assert_eq!(b.snapshot().downloads.bytes, 0);
    drop(writer);
    let home = tree.root().read().unwrap();
    assert_eq!([0, 4, 8, 12].map(|y| home[[3, y]]), [1, 2, 3, 4]);
    drop(home);
    tree.check().unwrap();
}

#[test]
fn a_failing_eviction_gives_nothing_back() {
    let host = Host::new();
    let gpu = Fault::new(&host);
    let mut pixels = counted(256);
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    tree.root().fill_on(0, 7).unwrap();
    gpu.arm(1, ErrorKind::Timeout);
    assert_eq!(tree.evict(0).unwrap_err().kind(), Some(ErrorKind::Timeout));
    gpu.disarm();
    assert_eq!((host.live_allocations(), tree.counters().evictions), (1, 0));
    assert_eq!(tree.evict(0), Ok(1024));
    assert_eq!(tree.root().read().unwrap()[[9, 9]], 7);
}

#[test]
fn room_is_made_in_order() {
    // Room for two of four.
    let gpu = Counting::new(Host::with_capacity(2 * 1024));
    let kernel = load(&gpu, 1, add);
    let mut pixels = [0, 1, 2, 3].map(|_| counted(256));
    let trees = pixels.each_mut().map(|pixels| Tree::over(pixels, shape(), &gpu).unwrap());
    let [a, b, c, d] = &trees;
    let run = |tree: &Tree<'_, i32, _>, others: &[&dyn Evict]| {
        with_room(others, || kernel.launch((tree.root().as_update(),), 1))
    };
    run(a, &[]).unwrap();
    run(b, &[a]).unwrap();
    // Nothing was evicted while there was room.
    assert_eq!(a.counters().evictions, 0);
    let full = run(c, &[]);
    assert!(matches!(full, Err(Error::Driver(HostError::OutOfMemory { bytes: 1024, .. }))));
    run(c, &[a, b]).unwrap();
    assert_eq!((a.counters().evictions, b.counters().evictions), (1, 0));
    // One that holds nothing, or is in use, is passed over.
    let held = b.root().on_device(0, Mode::Read).unwrap();
    run(d, &[a, b, c]).unwrap();
    assert_eq!([a, b, c, d].map(|tree| tree.counters().evictions), [1, 0, 1, 0]);
    // When nobody can make room, that is the answer.
    let held_too = d.root().on_device(0, Mode::Read).unwrap();
    let before = gpu.snapshot();
    let full = run(a, &[b, c, d]);
    assert_eq!(full.unwrap_err().kind(), Some(ErrorKind::OutOfMemory));
    assert_eq!(gpu.since(&before).to_string(), "failure 1");
    drop((held, held_too));
    run(a, &[b, c, d]).unwrap();
    for tree in &trees {
        let expected = 1 + i32::from(core::ptr::eq(tree, a));
        assert_eq!(tree.root().read().unwrap()[[0, 0]], expected);
        tree.check().unwrap();
    }
    assert!(gpu.inner().peak_bytes() <= 2 * 1024);
}

/// A tree on two devices has two things to give.
#[test]
fn room_on_every_device() {
    let (a, b) = (Host::with_capacity(1024), Host::with_capacity(1024));
    let (mut first, mut second) = (counted(256), counted(256));
    let builder = || Builder::new(&a).device(&b).capacity::<Three>();
    let old = builder().over(&mut first, shape()).unwrap();
    let new = builder().over(&mut second, shape()).unwrap();
    old.root().prefetch(0).unwrap();
    old.root().prefetch(1).unwrap();
    with_room(&[&old], || new.root().fill_on(1, 5)).unwrap();
    assert_eq!(new.root().read().unwrap()[[1, 1]], 5);
    assert!(old.counters().evictions >= 1);
}

#[test]
fn other_errors_are_not_answered_by_evicting() {
    let host = Host::new();
    let gpu = Fault::new(&host);
    let mut pixels = counted(256);
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    tree.root().prefetch(0).unwrap();
    let mut calls = 0;
    let result = with_room(&[&tree], || {
        calls += 1;
        gpu.arm(1, ErrorKind::Other);
        tree.root().fill_on(0, 1)
    });
    assert_eq!((result.unwrap_err().kind(), calls), (Some(ErrorKind::Other), 1));
    assert_eq!(tree.counters().evictions, 0);
    gpu.disarm();
    // Over a budget is as out of memory.
    let mut calls = 0;
    let result = with_room(&[&tree], || {
        calls += 1;
        match calls {
            1 => gpu.arm(1, ErrorKind::Budget),
            _ => gpu.disarm(),
        }
        tree.root().fill_on(0, 1)
    });
    assert!(result.is_ok());
    assert_eq!((calls, tree.counters().evictions), (2, 1));
}

/// I6: out of memory leaves everything as it was, and a retry works.
#[test]
fn running_out_changes_nothing() {
    let gpu = Counting::new(Host::with_capacity(1024 + 512));
    let kernel = load(&gpu, 1, stamp);
    let mut first = counted(256);
    let mut second = counted(256);
    let one = Tree::over(&mut first, shape(), &gpu).unwrap();
    let two = Tree::over(&mut second, shape(), &gpu).unwrap();
    kernel.launch((one.root().as_overwrite(),), 1).unwrap();
    let picture = (one.to_string(), two.to_string());
    let view = two.root();
    let is_full = |error: Error<HostError>| {
        assert_eq!(error.kind(), Some(ErrorKind::OutOfMemory), "{error}");
    };
    is_full(kernel.launch((view.as_overwrite(),), 2).unwrap_err());
    is_full(view.prefetch(0).unwrap_err());
    is_full(view.fill_on(0, 3).unwrap_err());
    is_full(view.on_device(0, Mode::Update).unwrap_err());
    is_full(view.assume_fresh(Location::Device(0)).unwrap_err());
    is_full(view.copy_from(&one.root(), 0).unwrap_err());
    // The bounce of a copy onto itself does not fit either.
    let [top, middle] =
        [(0, 12), (2, 14)].map(|(from, to)| one.root().crop([0..16, from..to]).unwrap());
    is_full(middle.copy_from(&top, 0).unwrap_err());
    drop((top, middle));
    assert_eq!((one.to_string(), two.to_string()), picture);
    assert_eq!((one.live_accesses(), two.live_accesses()), (0, 0));
    assert_eq!(view.read().unwrap().as_slice().unwrap(), counted(256));
    assert_eq!(one.evict(0), Ok(1024));
    kernel.launch((view.as_overwrite(),), 2).unwrap();
    assert_eq!(view.read().unwrap()[[3, 4]], stamped(3, 4, 2));
    assert_eq!(one.root().read().unwrap()[[3, 4]], stamped(3, 4, 1));
    one.root().for_each_fresh(Location::Host, |at| assert_eq!(at, region(0..16, 0..16)));
}
