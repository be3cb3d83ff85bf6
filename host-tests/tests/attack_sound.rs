//! What safe code can do to a tree: handles that lie, losses under live guards, panics in kernels.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Three, add, load, region, stamp, stamped};
use hedgerow::driver::Device;
use hedgerow::{Builder, Error, Location, Mode, Shape, Tree};
use hedgerow_host::Host;
