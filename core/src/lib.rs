//! hedgerow keeps one N-dimensional buffer, and every crop and slice taken of it, coherent between host
//! memory and devices. `no_std`, no `alloc`, no GPU API: drivers plug in.
//!
//! A [`Tree`] is one root buffer. [`View`]s of it (crops, slices, steps, flips, permutations, at any depth)
//! alias it on the host and on every device. Host code opens a view by [`read`](View::read),
//! [`overwrite`](View::overwrite) or [`update`](View::update) and gets a guard; kernels are launched on
//! views by [`Kernel::launch`](driver::Kernel::launch). What is stale where is found out, and exactly that is
//! moved.
//!
//! ```
//! use hedgerow::{Shape, Tree, driver::null::Null};
//!
//! let mut pixels = [0u8; 6 * 4];
//! let device = Null::new(); // a driver without memory: enough for host access
//! let tree = Tree::over(&mut pixels, Shape::packed([6, 4]), &device)?;
//! let left = tree.root().crop([0..3, 0..4])?;
//! let right = tree.root().crop([3..6, 0..4])?;
//! // Guards on disjoint regions may be alive at once; `right` could be on another thread.
//! let (mut a, mut b) = (left.update()?, right.overwrite()?);
//! a[[1, 2]] = 7;
//! b.fill(9);
//! assert!(matches!(tree.root().read(), Err(hedgerow::Error::Busy(_))));
//! drop((a, b));
//! assert_eq!(tree.root().read()?[[5, 0]], 9);
//! # Ok::<(), hedgerow::Error<hedgerow::driver::null::NullError>>(())
//! ```
//!
//! # Layers
//!
//! Bottom up; each uses only those below it:
//!
//! | module | what | lock | `unsafe` |
//! |---|---|---|---|
//! | [`region`] | boxes, layouts, affine maps | no | no |
//! | [`coherence`] | cuts, cells, stale bitmaps; boxes to move; widening | no | no |
//! | [`tree`] | nodes, accesses, work in flight: reserve, plan, commit | no | no |
//! | [`driver`] | what a backend implements; kernels; middlewares | no | contracts |
//! | the rest | [`Tree`], [`View`], guards, launches | one | here |
//!
//! # What holds
//!
//! * **I1** A view knows its root: views compose when they are made, device memory is the root's, allocated
//!   once for each device.
//! * **I2** Freshness lives in the tree, never in a view.
//! * **I3** Capacity bounds precision, never correctness ([`coherence`]).
//! * **I4** Nothing moves that is not stale: an access moves exactly the stale part of its region.
//! * **I5** Disjoint stays disjoint: the gaps between a crop's rows are never touched.
//! * **I6** State changes only when the work it describes was accepted ([`driver`]).
//! * **I7** Nothing dies silently ([`Tree::close`], [`Tree::discard`]).
//! * **I8** Aliasing is asked for, never inferred: crops alias, [`Builder::detach`] makes a tree of its own.
//! * **I9** Host access is borrow-checked by region: no two `&mut` overlap, and no transfer writes host bytes
//!   under a guard.
//! * **I10** Fresh device memory is zero, unless [`Builder::undefined_contents`] says otherwise.
//! * **I11** What would move can be asked first ([`View::plan`]).
//!
//! # Features
//!
//! None is on by default. `defmt`, `log`: logging, and `defmt::Format` (with both, defmt wins). `alloc`: trees
//! that own a `Vec` or a boxed slice ([`Builder::over_owned`]). `rank-6`, `rank-8`: more than four axes.
//!
//! # Fixed choices
//!
//! * Axis 0 is the innermost by convention. A crop keeps its parent's coordinates. Coordinates are `i32`,
//!   byte sizes `u64`, byte strides `i64`.
//! * [`MAX_RANK`] is a constant and a rank is a length, capacities are erased before any algorithm runs: each
//!   algorithm is compiled once.
//! * On devices a root lies packed, its axes in the order and direction they have on the host: a dense root is
//!   one flat copy, a padded one leaves its padding at home.
//! * A write counts from when its guard opens or its launch is accepted. Dropping a guard cannot fail; it sets
//!   a flag that the next call reaps.
//! * Calls without `try_` in their names may wait: for the lock, for another call at work on the same bytes,
//!   for device work on the region asked for. They never wait for a guard: that is `Busy` at once, and a retry
//!   once it is dropped is right.
//! * A kernel that runs on the host must not call into a tree that it was launched on.
#![no_std]

#[macro_use]
mod fmt;

pub mod capacity;
pub mod coherence;
pub mod driver;
pub mod error;
pub mod region;
mod shared;
pub mod tree;

pub use error::Error;
pub use region::{GeometryError, IntoRegion, MAX_RANK, Region, Shape};
pub use shared::{
    Arg, Args, Builder, CloseError, DeviceAccess, Element, Evict, Locked, Locking, OwnedStorage,
    OwnedTree, PendingRead, PendingWrite, Plan, RawStorage, ReadGuard, Rows, RowsMut, Spin, Tree,
    TryLock, View, WriteGuard, WrittenGuard, with_room,
};
pub use tree::{Counters, Location, Mode};
