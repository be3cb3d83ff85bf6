//! Calls into a tree from closures that it was given, limits that are not met elsewhere, and handles that lie.

mod common;

use std::sync::mpsc::channel;
use std::time::Duration;

use common::{load, stamp};
use hedgerow::driver::{DropError, Ticket};
use hedgerow::{Builder, Error, Evict, Location, Mode, Shape, Tree, with_room};
use hedgerow_host::Host;

/// Runs `f` on another thread; `None` when it does not come back.
fn within<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> Option<R> {
    let (done, result) = channel();
    std::thread::spawn(move || done.send(f()));
    result.recv_timeout(Duration::from_secs(5)).ok()
}

#[test]
fn plan_each_may_be_entered_again() {
    let answer = within(|| {
        let gpu = Host::new();
        let mut pixels = vec![0i32; 64];
        let tree = Tree::over(&mut pixels, Shape::packed([8, 8]), &gpu).unwrap();
        let root = tree.root();
        root.fill_on(0, 3).unwrap();
        let mut answers = Vec::new();
        root.plan_each(Location::Host, Mode::Read, |_, _, _| {
            answers.push(matches!(root.read(), Err(Error::Busy(_))));
        })
        .unwrap();
        answers
    });
    assert_eq!(answer, Some(vec![true]));
}

#[test]
fn for_each_live_view_may_be_entered_again() {
    let answer = within(|| {
        let gpu = Host::new();
        let mut pixels = vec![0i32; 64];
        let tree = Tree::over(&mut pixels, Shape::packed([8, 8]), &gpu).unwrap();
        let left = tree.root().crop([0..4, 0..8]).unwrap();
        let below = left.crop([0..4, 0..2]).unwrap();
        let mut seen = Vec::new();
        tree.for_each_live_view(|depth, region| seen.push((depth, *region, tree.live_views())));
        drop(below);
        seen.len()
    });
    assert_eq!(answer, Some(2));
}

#[test]
fn with_room_ends() {
    let answer = within(|| {
        let gpu = Host::with_capacity(1000);
        let kernel = load(&gpu, 2, |_| Ok(()));
        let (mut a, mut b) = (vec![0i32; 200], vec![0i32; 200]);
        let a = Tree::over(&mut a, Shape::packed([200]), &gpu).unwrap();
        let b = Tree::over(&mut b, Shape::packed([200]), &gpu).unwrap();
        let all: [&dyn Evict; 2] = [&a, &b];
        let result =
            with_room(&all, || kernel.launch((a.root().as_read(), b.root().as_overwrite()), 0u32));
        result.is_err()
    });
    assert_eq!(answer, Some(true), "no room for both, ever");
}

/// Every byte that a loss takes along in a tree's drop is told of, not only the first box.
#[test]
fn a_drop_reports_all_that_is_lost() {
    let gpu = Host::new();
    let mut pixels = vec![0i32; 64];
    let tree = Tree::over(&mut pixels, Shape::packed([8, 8]), &gpu).unwrap();
    let kernel = load(&gpu, 1, stamp);
    for y in [0, 4] {
        kernel.launch(tree.root().crop([0..8, y..y + 2]).unwrap().as_overwrite(), 1).unwrap();
    }
    gpu.simulate_loss();
    drop(tree);
    let told: u64 = gpu.drop_errors().map(|DropError { bytes, .. }| bytes).sum();
    assert_eq!(told, 2 * 8 * 2 * 4);
}

/// One device twice would be two memories on it, and launches that could not choose: it is refused.
#[test]
fn one_driver_as_two_devices() {
    let gpu = Host::new();
    let mut pixels: Vec<i32> = (0..64).collect();
    let refused = Builder::new(&gpu)
        .device(&gpu)
        .capacity::<common::Three>()
        .over(&mut pixels, Shape::packed([8, 8]));
    assert_eq!(refused.err(), Some(hedgerow::Error::SameDevice { device: 1 }));
}

/// A step that is never taken, on strides that are long.
#[test]
fn a_step_that_is_never_taken() {
    let gpu = Host::new();
    let far = 1usize << 33;
    // Never touched but at its ends.
    let mut pixels = vec![0u8; far + 1];
    let tree = Tree::over(&mut pixels, Shape::strided([2], [far as i64]), &gpu).unwrap();
    let one = tree.root().step_by(0, i32::MAX).unwrap();
    assert_eq!(one.extent(0), 1);
    {
        let mut guard = one.update().unwrap();
        assert_eq!(guard.row([0]), Some(&[0u8][..]));
        assert_eq!(guard.as_slice(), Some(&[0u8][..]));
        assert_eq!(guard.rows().map(Iterator::count), Some(1));
        guard.fill(3);
    }
    one.fill_on(0, 4).unwrap();
    let kernel = load(&gpu, 1, |call| {
        let view = call.view::<u8>(0)?;
        view.for_each(|at: [i32; 1]| view.set(at, 5));
        Ok(())
    });
    kernel.launch(one.as_update(), 0).unwrap();
    assert_eq!(one.read().unwrap()[[0]], 5);
    let mut out = [0; 1];
    one.read_into(&mut out).unwrap();
    assert_eq!(out, [5]);
    let detached = Builder::new(&gpu).detach(&one, Mode::Update).unwrap();
    kernel.launch(detached.root().as_update(), 0).unwrap();
    detached.close().unwrap();
    drop(one);
    tree.close().unwrap();
}

/// Tickets that nobody handed out do not push out those that count.
#[test]
fn forged_tickets() {
    let gpu = Host::new();
    let mut pixels = vec![0i32; 64];
    let tree = Tree::over(&mut pixels, Shape::packed([8, 8]), &gpu).unwrap();
    assert!(tree.poll(0, Ticket { lane: 77, value: 0 }).is_ok());
    for lane in [4, 5, 6, 7, 200, 255] {
        let access = tree.root().on_device(0, Mode::Update).unwrap();
        access.end_with(Ticket { lane, value: 1 });
    }
    let access = tree.root().on_device(0, Mode::Read).unwrap();
    let lanes: Vec<u8> = access.after().iter().map(|ticket| ticket.lane).collect();
    assert!(lanes.iter().all(|lane| *lane < 4), "{lanes:?}");
}
