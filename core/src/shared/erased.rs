//! A tree as its views see it: without its capacity, its lock, and the form its driver is held in.

use core::time::Duration;

use crate::driver::{CopyBox, DeviceDriver};
use crate::error::{Busy, Error, Holder};
use crate::region::Region;
use crate::tree::{Setup, State};

/// The tables and the devices' memory, in the lock.
pub(crate) struct Inner<'a, M> {
    pub(crate) state: State<'a>,
    pub(crate) memory: &'a mut [Option<M>],
}

/// Where the root's host bytes are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostSide<M> {
    /// The lowest byte; dangling when there is no host storage.
    pub(crate) base: *mut u8,
    /// The driver's name for it, when the storage is the driver's.
    pub(crate) owned: Option<M>,
}

// SAFETY: the pointer is only an address here. What may be read or written through it, and by which
// thread, is decided by the accesses in the tables (I9).
unsafe impl<M: Send> Send for HostSide<M> {}
// SAFETY: as above.
unsafe impl<M: Sync> Sync for HostSide<M> {}

/// What dropping views and guards needs: flags that the next call on the tree reaps.
pub(crate) trait Slots: Send + Sync {
    fn drop_node(&self, slot: usize);
    fn drop_access(&self, slot: usize);
}

/// A tree, erased.
pub(crate) trait Erased<D: DeviceDriver>: Slots {
    /// Runs `f` on the tables, after reaping; may wait for the lock. `false` when the lock does not wait.
    fn with(&self, f: &mut dyn FnMut(Inner<'_, D::Memory>)) -> bool;
    /// The same without waiting.
    fn try_with(&self, f: &mut dyn FnMut(Inner<'_, D::Memory>)) -> bool;
    fn device(&self, index: usize) -> Option<&D>;
    fn devices(&self) -> usize;
    fn host(&self) -> &HostSide<D::Memory>;
    fn setup(&self) -> &Setup;
    fn timeout(&self) -> Duration;
    fn contents(&self) -> crate::driver::Contents;
    fn poisons(&self) -> bool;
    /// Calls `f` with an empty copy list of the tree's capacity.
    fn with_list(&self, f: &mut dyn FnMut(&mut [CopyBox]));
    fn relax(&self);
}

/// Whether a call may wait: for the lock, for other calls, for device work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    Yes,
    No,
}

/// Runs `f` on the tables and returns what it gives.
pub(crate) fn locked<D: DeviceDriver, R>(
    tree: &dyn Erased<D>,
    wait: Wait,
    f: impl FnOnce(&mut Inner<'_, D::Memory>) -> R,
) -> Result<R, Error<D::Error>> {
    let mut f = Some(f);
    let mut result = None;
    let mut call = |mut inner: Inner<'_, D::Memory>| {
        if let Some(f) = f.take() {
            result = Some(f(&mut inner));
        }
    };
    match wait {
        Wait::Yes => tree.with(&mut call),
        Wait::No => tree.try_with(&mut call),
    };
    result.ok_or(Error::Busy(Busy { region: Region::default(), holder: Holder::Lock }))
}

/// The same for what must not fail: ends of reservations. A lock that does not wait is asked again.
pub(crate) fn locked_surely<D: DeviceDriver, R>(
    tree: &dyn Erased<D>,
    mut f: impl FnMut(&mut Inner<'_, D::Memory>) -> R,
) -> R {
    loop {
        if let Ok(result) = locked(tree, Wait::Yes, &mut f) {
            return result;
        }
        tree.relax();
    }
}
