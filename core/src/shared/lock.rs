//! The lock around a tree's tables, replaceable by the integrator.

/// A call could not have the lock without waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Locked;

/// A kind of lock. It is held for the time of table work only, never across a driver call.
///
/// Implement it over whatever mutual exclusion the program has. A spin lock shared with an interrupt
/// handler deadlocks a single core: there use a critical section, or [`TryLock`].
pub trait Locking: 'static {
    /// A value behind the lock.
    type Cell<S: Send>: Send + Sync;

    /// Puts a value behind a lock.
    fn new<S: Send>(value: S) -> Self::Cell<S>;

    /// Runs `f` on the value alone; may wait for the lock.
    ///
    /// # Errors
    /// [`Locked`] where this kind of lock does not wait.
    fn with<S: Send, R>(cell: &Self::Cell<S>, f: impl FnOnce(&mut S) -> R) -> Result<R, Locked>;

    /// Runs `f` on the value alone, without waiting.
    ///
    /// # Errors
    /// [`Locked`] when somebody has the lock.
    fn try_with<S: Send, R>(cell: &Self::Cell<S>, f: impl FnOnce(&mut S) -> R)
    -> Result<R, Locked>;

    /// Called in a loop while another call finishes its work on the same bytes.
    fn relax() {
        core::hint::spin_loop();
    }
}

/// A spin lock: the default.
#[derive(Clone, Copy, Debug)]
pub struct Spin;

impl Locking for Spin {
    type Cell<S: Send> = spin::Mutex<S>;

    fn new<S: Send>(value: S) -> Self::Cell<S> {
        spin::Mutex::new(value)
    }

    fn with<S: Send, R>(cell: &Self::Cell<S>, f: impl FnOnce(&mut S) -> R) -> Result<R, Locked> {
        Ok(f(&mut cell.lock()))
    }

    fn try_with<S: Send, R>(
        cell: &Self::Cell<S>,
        f: impl FnOnce(&mut S) -> R,
    ) -> Result<R, Locked> {
        cell.try_lock().map(|mut value| f(&mut value)).ok_or(Locked)
    }
}

/// A lock that never waits: a call that meets it answers `Busy`.
#[derive(Clone, Copy, Debug)]
pub struct TryLock;

impl Locking for TryLock {
    type Cell<S: Send> = spin::Mutex<S>;

    fn new<S: Send>(value: S) -> Self::Cell<S> {
        Spin::new(value)
    }

    fn with<S: Send, R>(cell: &Self::Cell<S>, f: impl FnOnce(&mut S) -> R) -> Result<R, Locked> {
        Spin::try_with(cell, f)
    }

    fn try_with<S: Send, R>(
        cell: &Self::Cell<S>,
        f: impl FnOnce(&mut S) -> R,
    ) -> Result<R, Locked> {
        Spin::try_with(cell, f)
    }
}
