//! What a backend implements: [`DeviceDriver`] for coherence, [`ComputeDriver`] for kernels.
//!
//! # Implementing a driver
//!
//! Start from [`null`], the skeleton, and run the conformance suite (`hedgerow-tests`) on the result.
//! The core validates everything (bounds, overlap, alignment against [`Caps`]) before it calls, so a
//! driver executes plain lists and checks nothing twice. What it must keep to is in the `# Safety`
//! sections of the two traits; the design behind them:
//!
//! * **Recording is acceptance.** Every call that returns a [`Ticket`] has *accepted* the work: it may
//!   still be unsubmitted. [`flush`](DeviceDriver::flush) and [`wait`](DeviceDriver::wait) submit.
//! * **Order comes from tickets alone.** An operation runs after the tickets in its `after` list, and
//!   may run beside or before anything else. A driver never infers overlap: the core has done so.
//! * **No lock is held.** The core calls drivers from any thread, several at once, with none of its
//!   locks held.
//! * **Borrowed host memory is touched only during a call.** `upload` reads its bytes before it
//!   returns, `download` has written them when it returns.

mod caps;
mod copy;
mod error;
mod kernel;
pub mod middleware;
pub mod null;

pub use caps::{Caps, DriverId};
pub use copy::{CopyBox, Dim};
pub use error::{DriverError, DropError, DropLog, ErrorKind};
pub use kernel::{
    Binding, DeviceCode, Dispatch, Form, Geometry, HostCall, HostKernel, HostView, Kernel,
    KernelError, KernelSource,
};

use core::fmt;
use core::ptr::NonNull;
use core::time::Duration;

use crate::error::Error;

/// The most lanes a driver may order its work in.
pub const MAX_LANES: usize = 4;

/// Names work that a driver accepted. Opaque to the core but for its order: within a lane, a ticket is
/// done only when all tickets of lower value in that lane are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ticket {
    /// Which of the driver's orders (queues, timelines) it belongs to, below [`MAX_LANES`].
    pub lane: u8,
    /// Its place there. Zero is done from the start.
    pub value: u64,
}

impl Ticket {
    /// A ticket that is done from the start: for work that finished during the call.
    pub const DONE: Self = Self { lane: 0, value: 0 };

    /// Whether the ticket is done from the start.
    pub fn is_done_from_start(&self) -> bool {
        self.value == 0
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.lane, self.value)
    }
}

defmt_as_display! { impl Ticket; }

/// The tickets an operation must follow: at most one for each lane, the latest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct After {
    tickets: [Ticket; MAX_LANES],
    len: u8,
}

impl After {
    /// Nothing to follow.
    pub const NONE: Self = Self { tickets: [Ticket::DONE; MAX_LANES], len: 0 };

    /// The tickets of a list.
    pub fn of(tickets: &[Ticket]) -> Self {
        let mut after = Self::NONE;
        tickets.iter().for_each(|ticket| after.add(*ticket));
        after
    }

    /// Adds a ticket; keeps the later of two in one lane.
    pub fn add(&mut self, ticket: Ticket) {
        if ticket.is_done_from_start() {
            return;
        }
        let len = self.len as usize;
        for held in self.tickets.iter_mut().take(len) {
            if held.lane == ticket.lane {
                held.value = held.value.max(ticket.value);
                return;
            }
        }
        if let Some(slot) = self.tickets.get_mut(len) {
            *slot = ticket;
            self.len += 1;
        }
    }

    /// Adds all tickets of another list.
    pub fn extend(&mut self, other: &Self) {
        for ticket in other.as_slice() {
            self.add(*ticket);
        }
    }

    /// The tickets.
    pub fn as_slice(&self) -> &[Ticket] {
        self.tickets.get(..self.len as usize).unwrap_or_default()
    }
}

/// What fresh device memory holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Contents {
    /// Zeroes (invariant I10).
    #[default]
    Zeroed,
    /// Whatever was there. Only where the caller opted out of zeroing in so many words.
    Undefined,
}

/// Device memory as a driver hands it out.
#[derive(Clone, Copy, Debug)]
pub struct Allocation<M> {
    /// The driver's name for it.
    pub memory: M,
    /// When its contents are as asked: the first operations on it follow this ticket.
    pub ready: Ticket,
}

/// Host memory that a driver owns: the storage of a root, in reach of the device.
#[derive(Clone, Copy, Debug)]
pub struct Storage<M> {
    /// The driver's name for it: a source or destination of [`DeviceDriver::copy`], and, when `shared`,
    /// what kernels bind.
    pub memory: M,
    /// Where the host sees its first byte. Coherent: the host's writes need no flush.
    pub host: NonNull<u8>,
    /// Whether kernels run on these very bytes (unified memory), so that nothing is ever copied.
    pub shared: bool,
}

/// What coherence needs of a backend: memory, copies of strided boxes, and waiting.
///
/// All methods take `&self` and may be called from several threads at once.
///
/// # Safety
///
/// An implementation promises, for as long as its memory handles are in use:
///
/// * A memory handle names `bytes` bytes that no other live handle shares, until `release`.
/// * [`Contents::Zeroed`] memory reads as zeroes once its `ready` ticket is done; a `Storage` is zeroed
///   when returned, and its `host` pointer stays valid for reads and writes of `bytes` bytes until
///   `release`, from any thread.
/// * `copy`, `upload`, `download` and `fill` touch exactly the bytes that their lists name: not the gaps
///   between rows, not the neighbours in a word.
/// * `upload` has read all its host bytes when it returns, with success or not, and `download` touches its
///   host bytes only until it returns.
/// * An operation takes effect after every ticket in its `after` list.
/// * `wait` returns `Ok`, and `poll` returns `true`, only when the ticket's work is done and its effects
///   are visible to the host (in `Storage`) and to later operations.
/// * No wait is unbounded. After a loss ([`ErrorKind::DeviceLost`]) every call that needs the device
///   says so.
/// * An error from `dispatch`, `copy`, `copy_from`, `fill`, `allocate` or `storage` other than loss means that
///   nothing was done: what they write may be the only newest value. A failed `upload` or `download` may have
///   done any part of its list (its destination was stale), which then is over before any later operation:
///   nobody has a ticket to wait for it with. A failed `flush` other than loss keeps the recorded work, and
///   can be called again.
/// * Memory released, or still held when the driver's last handle goes, is freed once: after its last use,
///   or leaked with a report where that cannot be established in bounded time.
pub unsafe trait DeviceDriver: Send + Sync {
    /// What can go wrong, with a [`kind`](DriverError::kind) that the core acts on.
    type Error: DriverError;
    /// A name for memory. Cheap to copy: the driver keeps the allocation itself.
    type Memory: Copy + fmt::Debug + Send + Sync + 'static;

    /// Which driver instance this is: equal for handles of one device, different for all others.
    fn id(&self) -> DriverId;

    /// What the device is and can do. Constant over the driver's life.
    fn caps(&self) -> &Caps;

    /// Device memory of `bytes` bytes (not zero).
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] when it can never fit, [`ErrorKind::OutOfMemory`] or
    /// [`ErrorKind::Budget`] when it could later.
    fn allocate(
        &self,
        bytes: u64,
        contents: Contents,
    ) -> Result<Allocation<Self::Memory>, Self::Error>;

    /// Zeroed host memory of `bytes` bytes (not zero) that the driver owns.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); [`ErrorKind::Unsupported`] where there is no such memory.
    fn storage(&self, bytes: u64) -> Result<Storage<Self::Memory>, Self::Error>;

    /// A power of two that the address of the memory's first byte is a multiple of, wherever kernels see it.
    /// Memory that is wrapped must suit the tree's elements.
    fn alignment(&self, memory: Self::Memory) -> u64 {
        let _ = memory;
        u64::from(self.caps().bind_align.max(1))
    }

    /// Gives memory back. The driver frees it once every ticket in `after` is done; this call does not
    /// wait.
    ///
    /// # Safety
    /// * `memory` came from `allocate` or `storage` of this driver and was not released before.
    /// * `after` names, lane by lane, the last work that uses it; none is accepted later.
    unsafe fn release(&self, memory: Self::Memory, after: &[Ticket]);

    /// Copies boxes from borrowed host memory at `src` into `dst`.
    ///
    /// # Errors
    /// Anything; the destination may be partly written.
    ///
    /// # Safety
    /// * Every box lies inside both sides; boxes do not overlap one another.
    /// * The source bytes are valid for reads, and written by nobody, during the call.
    unsafe fn upload(
        &self,
        src: *const u8,
        dst: Self::Memory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Result<Ticket, Self::Error>;

    /// Copies boxes from `src` into borrowed host memory at `dst`. The bytes are there on return: this
    /// submits and waits, at most for `timeout`.
    ///
    /// # Errors
    /// Anything; the destination may be partly written. After [`ErrorKind::Timeout`] nothing touches the
    /// host bytes any more, and the call can be made again.
    ///
    /// # Safety
    /// * Every box lies inside both sides; boxes do not overlap one another.
    /// * The destination bytes are valid for writes, and touched by nobody else, during the call.
    unsafe fn download(
        &self,
        src: Self::Memory,
        dst: *mut u8,
        boxes: &[CopyBox],
        after: &[Ticket],
        timeout: Duration,
    ) -> Result<(), Self::Error>;

    /// Copies boxes between memories of this driver, `storage` included.
    ///
    /// # Errors
    /// Anything; other than loss, nothing was written.
    ///
    /// # Safety
    /// * Both handles are live; every box lies inside both; destinations do not overlap one another, nor
    ///   any source.
    /// * The bytes stay free of conflicting use by the host until the ticket is done.
    unsafe fn copy(
        &self,
        src: Self::Memory,
        dst: Self::Memory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Result<Ticket, Self::Error>;

    /// Copies boxes from memory of another device of this kind of driver, where
    /// [`Caps::peer_copies`] says that it can. The core has waited for the source.
    ///
    /// `None` says that nothing was done, and that the bytes must take another way: this driver cannot, or
    /// not from this peer, or the peer is lost (an error would be taken for this device's).
    ///
    /// # Errors
    /// Anything; other than loss, nothing was written.
    ///
    /// # Safety
    /// As [`copy`](Self::copy), with `src` of `peer`; the source stays unwritten until the ticket is done.
    unsafe fn copy_from(
        &self,
        peer: &Self,
        src: Self::Memory,
        dst: Self::Memory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Option<Result<Ticket, Self::Error>> {
        let _ = (peer, src, dst, boxes, after);
        None
    }

    /// Fills the destination side of boxes with repetitions of `value`, whose length divides every run
    /// and is 1, 2, 4, 8 or 16.
    ///
    /// # Errors
    /// Anything; other than loss, nothing was written.
    ///
    /// # Safety
    /// As [`copy`](Self::copy), for the destination.
    unsafe fn fill(
        &self,
        dst: Self::Memory,
        boxes: &[CopyBox],
        value: &[u8],
        after: &[Ticket],
    ) -> Result<Ticket, Self::Error>;

    /// Submits everything recorded so far. Does not wait.
    ///
    /// # Errors
    /// Other than loss, the work is kept and the call can be made again.
    fn flush(&self) -> Result<(), Self::Error>;

    /// Whether `ticket` is done. Never waits; does not submit.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`].
    fn poll(&self, ticket: Ticket) -> Result<bool, Self::Error>;

    /// Submits what `ticket` needs and waits for it, at most for `timeout`.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] changes nothing and can be retried; [`ErrorKind::DeviceLost`].
    fn wait(&self, ticket: Ticket, timeout: Duration) -> Result<(), Self::Error>;

    /// Takes note of an error that a tree's `Drop` could not return to anybody. Drivers keep a
    /// [`DropLog`]; the default only logs.
    fn report_drop(&self, error: DropError) {
        error.log();
    }
}

/// What running kernels needs of a backend.
///
/// # Safety
///
/// An implementation promises, beyond [`DeviceDriver`]:
///
/// * A kernel that keeps to its [`KernelSource`] touches only the bytes of its bindings' windows.
/// * An error from `dispatch` other than loss means that nothing ran.
pub unsafe trait ComputeDriver: DeviceDriver {
    /// A kernel in the driver's own form.
    type Kernel: Send + Sync;

    /// Prepares the first form of `source` that the driver can run.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] when it has no form for this driver, or the code is refused.
    fn load_kernel(&self, source: &KernelSource<'_>) -> Result<Self::Kernel, Self::Error>;

    /// Records one run of `kernel`.
    ///
    /// # Errors
    /// Anything; other than loss, nothing ran.
    ///
    /// # Safety
    /// * `kernel` was loaded by this driver; every binding's memory is live and holds its window.
    /// * Until the ticket is done, nothing else writes what the kernel reads or touches what it writes,
    ///   but for work in `after`. A view that is written shares no element with another.
    unsafe fn dispatch(
        &self,
        kernel: &Self::Kernel,
        dispatch: &Dispatch<'_, Self::Memory>,
        after: &[Ticket],
    ) -> Result<Ticket, Self::Error>;

    /// Loads `source` as a kernel to launch on views of trees on this driver.
    ///
    /// # Errors
    /// [`Error::Driver`] of kind [`ErrorKind::Unsupported`] when it has no form for this driver or its
    /// code is refused; [`Error::BadKernel`] when what it states about itself makes no sense.
    fn load(&self, source: &KernelSource<'_>) -> Result<Kernel<Self>, Error<Self::Error>>
    where
        Self: Sized,
    {
        Kernel::load(self, source)
    }
}

/// A handle to a driver, as a tree takes it by value: a reference to any driver, or a driver that is a
/// cheap handle itself.
///
/// A driver that can be cloned or moved into a tree implements it in three lines, with
/// `type Driver = Self`.
pub trait Device: Send + Sync {
    /// The driver behind the handle. Views and kernels are typed by it, not by the handle.
    type Driver: DeviceDriver;

    /// The driver.
    fn driver(&self) -> &Self::Driver;
}

impl<D: DeviceDriver> Device for &D {
    type Driver = D;

    fn driver(&self) -> &D {
        self
    }
}
