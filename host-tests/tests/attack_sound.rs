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

/// A kernel that panics leaves nothing reserved.
#[test]
fn a_kernel_that_panics() {
    let gpu = Host::new();
    let bad = load(&gpu, 2, |_| panic!("on purpose"));
    let (good, more) = (load(&gpu, 1, stamp), load(&gpu, 1, add));
    let mut pixels = vec![0i32; 64];
    let mut others = vec![0i32; 64];
    let tree = Tree::over(&mut pixels, Shape::packed([8, 8]), &gpu).unwrap();
    let other = Tree::over(&mut others, Shape::packed([8, 8]), &gpu).unwrap();
    good.launch(tree.root().as_overwrite(), 1).unwrap();
    for _ in 0..50 {
        let run = || bad.launch((other.root().as_read(), tree.root().as_update()), 0);
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        tree.check().unwrap();
        assert_eq!((tree.live_accesses(), other.live_accesses()), (0, 0));
        more.launch(tree.root().as_update(), 1).unwrap();
    }
    // In closures that a tree calls, too.
    let plan = || tree.root().plan_each(Location::Host, Mode::Read, |_, _, _| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(plan)).is_err());
    let views = tree.root().crop([0..1, 0..1]).unwrap();
    let each = || tree.for_each_live_view(|_, _| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(each)).is_err());
    drop(views);
    let fill = || tree.root().overwrite().unwrap().fill_with(|_: [i32; 2]| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(fill)).is_err());
    good.launch(tree.root().as_overwrite(), 1).unwrap();
    assert_eq!(tree.root().read().unwrap()[[3, 4]], stamped(3, 4, 1));
    tree.close().unwrap();
}

/// Forgetting everything that can be forgotten, then closing.
#[test]
fn everything_forgotten() {
    let gpu = Host::new();
    for owned in [false, true] {
        let mut pixels = vec![0i32; 64];
        let over = (!owned).then(|| Tree::over(&mut pixels, Shape::packed([8, 8]), &gpu).unwrap());
        let tree = over.unwrap_or_else(|| Tree::owned(Shape::packed([8, 8]), &gpu).unwrap());
        tree.root().fill_on(0, 3).unwrap();
        let row = |y: i32| tree.root().crop([0..8, y..y + 1]).unwrap();
        std::mem::forget(row(0).read().unwrap());
        std::mem::forget(row(1).overwrite().unwrap());
        std::mem::forget(row(2).begin_read().unwrap());
        let mut begun = row(3).begin_overwrite().unwrap();
        let _ = begun.poll();
        std::mem::forget(begun);
        std::mem::forget(row(4).on_device(0, Mode::Update).unwrap());
        std::mem::forget(row(5));
        std::mem::forget(Builder::new(&gpu).detach(&row(6), Mode::Update).unwrap());
        assert!(matches!(row(2).overwrite(), Err(Error::Busy(_))));
        tree.check().unwrap();
        tree.close().unwrap();
    }
}
