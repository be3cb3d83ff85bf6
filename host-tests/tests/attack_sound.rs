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
