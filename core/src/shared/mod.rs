//! The tree as users hold it: a lock around the tables, RAII views and guards, launches.
//!
//! Every access reserves under the lock, calls drivers with no lock held, and commits or abandons under
//! the lock. This is the one layer with `unsafe` code: it turns regions that the tables say nobody else
//! holds into slices, and pointers into driver calls.

mod device_access;
mod device_ops;
mod erased;
mod execute;
mod guard;
mod launch;
mod lock;
mod ops;
mod owned;
mod pending;
mod poison;
mod room;
mod tree;
mod view;

pub use device_access::DeviceAccess;
pub use guard::{ReadGuard, Rows, RowsMut, WriteGuard, WrittenGuard};
pub use launch::{Arg, Args};
pub use lock::{Locked, Locking, Spin, TryLock};
pub use ops::Plan;
pub use owned::{OwnedStorage, OwnedTree, RawStorage};
pub use pending::{PendingRead, PendingWrite};
pub use room::{Evict, with_room};
pub use tree::{Builder, CloseError, Tree};
pub use view::View;

use bytemuck::Pod;

/// What a tree's elements can be: plain old data, of any size but zero.
pub trait Element: Pod + Send + Sync {}

impl<T: Pod + Send + Sync> Element for T {}
