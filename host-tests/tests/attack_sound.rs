//! What safe code can do to a tree: handles that lie, losses under live guards, panics in kernels.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Three, add, load, region, stamp, stamped};
use hedgerow::driver::Device;
use hedgerow::{Builder, Error, Location, Mode, Shape, Tree};
use hedgerow_host::Host;

/// A handle that names another driver each time.
struct Liar<'a>(&'a [Host<'static>; 2], AtomicUsize);

impl Device for Liar<'_> {
    type Driver = Host<'static>;

    fn driver(&self) -> &Host<'static> {
        let n = self.1.fetch_add(1, Ordering::Relaxed);
        &self.0[n % 2]
    }
}

/// Memory of one driver is never handed to another, whatever a handle says.
#[test]
fn a_handle_that_lies() {
    let hosts = [Host::new(), Host::new()];
    let mut pixels = vec![1i32; 64];
    let tree =
        Tree::over(&mut pixels, Shape::packed([8, 8]), Liar(&hosts, AtomicUsize::new(0))).unwrap();
    for i in 0..20 {
        let _ = tree.root().fill_on(0, i);
        let _ = tree.root().prefetch(0);
        let _ = tree.evict(0);
        let _ = tree.sync();
    }
}

/// Storage goes with a lost device while a guard on it is alive: nothing may be written under the guard, though
/// another device has the bytes.
#[test]
fn a_loss_under_a_guard() {
    let hosts: [Host<'static>; 2] =
        std::array::from_fn(|_| Host::new().storage_survives_loss(false));
    let tree = Builder::new(&hosts[0])
        .device(&hosts[1])
        .capacity::<Three>()
        .owned::<i32>(Shape::packed([8, 8]))
        .unwrap();
    tree.root().overwrite().unwrap().fill(5);
    tree.root().prefetch(1).unwrap();
    let guard = tree.root().read().unwrap();
    hosts[0].simulate_loss();
    assert!(matches!(tree.root().prefetch(0), Err(Error::Lost { .. })));
    let before = tree.counters().bytes_down;
    let answer = tree.root().read().map(|guard| guard[[0, 0]]);
    assert_eq!(tree.counters().bytes_down, before, "written under a guard: {answer:?}");
    let _ = tree.sync();
    assert_eq!(tree.counters().bytes_down, before, "written under a guard");
    assert!(matches!(answer, Err(Error::Busy(_))), "{answer:?}");
    drop(guard);
    assert_eq!(tree.root().read().unwrap()[[7, 7]], 5);
}

/// A loss met while an earlier one is told of is not forgotten with it.
#[test]
fn a_loss_while_losses_are_taken() {
    let hosts: [Host<'static>; 2] = std::array::from_fn(|_| Host::new());
    let mut pixels = vec![0i32; 64];
    let tree = Builder::new(&hosts[0])
        .device(&hosts[1])
        .capacity::<Three>()
        .over(&mut pixels, Shape::packed([8, 8]))
        .unwrap();
    tree.root().crop([0..8, 4..6]).unwrap().fill_on(0, 1).unwrap();
    tree.root().crop([0..8, 0..2]).unwrap().fill_on(1, 1).unwrap();
    hosts[0].simulate_loss();
    assert!(tree.flush(0).is_err());
    let mut lost = Vec::new();
    tree.take_lost(|region| {
        lost.push(region);
        hosts[1].simulate_loss();
        let _ = tree.flush(1);
    });
    tree.take_lost(|region| lost.push(region));
    lost.sort_by_key(|region| region.lo(1));
    assert_eq!(lost, [region(0..8, 0..2), region(0..8, 4..6)]);
    tree.take_lost(|region| panic!("{region} again"));
}
