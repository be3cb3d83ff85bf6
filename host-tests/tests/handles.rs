//! What the handles of a tree show of themselves, and how a tree behaves behind a lock that never waits.

mod common;

use common::{counted, load, region, stamp};
use core::sync::atomic::{AtomicBool, Ordering};
use hedgerow::driver::{Device, DeviceDriver, DropError, ErrorKind, HostCall, KernelError};
use hedgerow::error::{Busy, Holder};
use hedgerow::{Builder, CloseError, Error, Shape, Tree, TryLock};
use hedgerow_host::Host;
use std::sync::mpsc::channel;

fn shape() -> Shape {
    Shape::packed([8, 4])
}

#[test]
fn handles_say_their_region() {
    let gpu = Host::new();
    let mut pixels = counted(32);
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    let (left, right) =
        (tree.root().crop([0..4, 0..4]).unwrap(), tree.root().crop([4..8, 0..4]).unwrap());
    assert_eq!(format!("{:?}", left.read().unwrap()), "ReadGuard [0..4, 0..4]");
    assert_eq!(format!("{:?}", right.update().unwrap()), "WriteGuard [4..8, 0..4]");
    assert_eq!(format!("{:?}", left.read_written().unwrap()), "WrittenGuard [0..4, 0..4]");
    assert_eq!(format!("{tree:?}"), "Tree { root: [0..8, 0..4], .. }");
    let pending = format!("{:?}", left.begin_read().unwrap());
    assert!(pending.starts_with("PendingRead(Read of [0..4, 0..4] under way"), "{pending}");

    let owned = Builder::new(&gpu).over_owned(counted(32), shape()).unwrap();
    assert_eq!(format!("{owned:?}"), "OwnedTree(Tree { root: [0..8, 0..4], .. })");
}

/// The one documented panic: an index outside. `get` answers `None`.
#[test]
fn an_index_outside_panics_and_names_itself() {
    let gpu = Host::new();
    let mut pixels = counted(32);
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    let view = tree.root().crop([2..4, 1..3]).unwrap();
    let said = |outside: &dyn Fn() -> i32| {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(outside)).unwrap_err();
        panic.downcast_ref::<String>().cloned().unwrap_or_default()
    };
    let text = "[4, 1] is outside the view [2..4, 1..3]";
    assert_eq!(said(&|| view.read().unwrap()[[4, 1]]), text);
    assert_eq!(said(&|| std::mem::take(&mut view.update().unwrap()[[4, 1]])), text);
    assert_eq!(view.read().unwrap().get([4, 1]), None);
    // The guards were dropped as the panics passed by.
    view.update().unwrap()[[3, 2]] = 7;
    drop(view);
    drop(tree);
    assert_eq!(pixels[19], 7);
}

#[test]
fn a_tree_that_cannot_be_closed_says_why() {
    let gpu = Host::new();
    let stamp = load(&gpu, 1, stamp);
    let pixels = counted(32);
    // Of read-only storage what the device wrote cannot go home.
    let tree = Builder::new(&gpu).over_ref(&pixels, shape()).unwrap();
    stamp.launch((tree.root().as_overwrite(),), 1).unwrap();
    let failed = tree.close().unwrap_err();
    let root = region(0..8, 0..4);
    assert_eq!(failed.error, Error::ReadOnly { region: root });
    assert_eq!(
        failed.to_string(),
        "the tree could not be closed: [0..8, 0..4] would be written to read-only host storage"
    );
    assert_eq!(
        format!("{failed:?}"),
        "CloseError { error: ReadOnly { region: [0..8, 0..4] }, .. }"
    );
    let CloseError { tree, .. } = failed;
    tree.discard();
}

/// I10: fresh device memory is zero; only who asks for it sees what was there before.
#[test]
fn undefined_contents_are_asked_for() {
    let mut arena = vec![0xeeu8; 256];
    let gpu = Host::in_arena(&mut arena);
    let none = load(&gpu, 1, |_: &HostCall<'_>| -> Result<(), KernelError> { Ok(()) });
    let mut pixels = [7u8; 32];
    // The host driver makes the difference plain.
    for (undefined, left) in [(true, 0xa5), (false, 0)] {
        let mut builder = Builder::new(&gpu);
        if undefined {
            builder = builder.undefined_contents();
        }
        let tree = builder.over(&mut pixels, shape()).unwrap();
        // It was given to write and is left as it came.
        none.launch((tree.root().as_overwrite(),), ()).unwrap();
        assert_eq!(tree.root().read().unwrap()[[3, 2]], left);
    }
}

/// Whoever meets the lock taken is told so at once, and a retry is right; with the lock free all works as with
/// the one that spins.
#[test]
fn a_lock_that_never_waits() {
    let gpu = Host::new();
    let stamp = load(&gpu, 1, stamp);
    let mut pixels = counted(32);
    let tree = Builder::new(&gpu).lock::<TryLock>().over(&mut pixels, shape()).unwrap();
    stamp.launch((tree.root().crop([0..4, 0..4]).unwrap().as_overwrite(),), 3).unwrap();
    assert_eq!(tree.root().read().unwrap()[[2, 1]], 30_201);
    let view = tree.root();

    // A picture is drawn under the lock: one that is written slowly holds it.
    struct Slow<'a>(&'a AtomicBool, std::sync::mpsc::Sender<()>);
    impl core::fmt::Write for Slow<'_> {
        fn write_str(&mut self, _: &str) -> core::fmt::Result {
            let _ = self.1.send(());
            while !self.0.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            Ok(())
        }
    }
    let go_on = AtomicBool::new(false);
    let (told, drawing) = channel();
    std::thread::scope(|scope| {
        let (tree, go_on) = (&tree, &go_on);
        scope.spawn(move || {
            core::fmt::Write::write_fmt(&mut Slow(go_on, told), format_args!("{tree}")).unwrap();
        });
        drawing.recv().unwrap();
        let busy = view.read().map(drop);
        let tried = view.try_read().map(drop);
        let crop = view.crop([0..1, 0..1]).map(drop);
        go_on.store(true, Ordering::SeqCst);
        for (call, result) in [("read", busy), ("try_read", tried), ("crop", crop)] {
            let lock = matches!(result, Err(Error::Busy(Busy { holder: Holder::Lock, .. })));
            assert!(lock, "{call}: {result:?}");
        }
    });
    assert_eq!(view.read().unwrap()[[2, 1]], 30_201);
}

/// A drop error passes through each middleware to the driver's own ring.
#[test]
fn drop_errors_reach_the_driver() {
    use hedgerow::driver::middleware::{Counting, Fault, Trace};
    fn report<H: Device>(wrapped: H) {
        let root = region(0..8, 0..4);
        wrapped.driver().report_drop(DropError { kind: ErrorKind::Other, region: root, bytes: 9 });
    }
    let gpu = Host::new();
    report(&gpu);
    report(Counting::new(&gpu));
    report(Fault::new(&gpu));
    report(Trace::new(&gpu));
    assert_eq!(gpu.drop_errors().filter(|error| error.bytes == 9).count(), 4);
    assert!(gpu.take_drop_error().is_none());
    let memory = gpu.allocate(64, Default::default()).unwrap().memory;
    for alignment in [gpu.alignment(memory), Trace::new(&gpu).driver().alignment(memory)] {
        assert_eq!(alignment, gpu.alignment(memory));
    }
}
