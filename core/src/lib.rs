//! hedgerow keeps one N-dimensional buffer, and every crop and slice taken of it, coherent between host
//! memory and devices.
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
    Arg, Args, Builder, CloseError, DeviceAccess, Element, Locked, Locking, Plan, ReadGuard, Rows,
    RowsMut, Spin, Tree, TryLock, View, WriteGuard,
};
pub use tree::{Counters, Location, Mode};
