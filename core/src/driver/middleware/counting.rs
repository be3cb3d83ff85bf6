//! Counts the calls to a driver, and what they moved.

use core::fmt;
use core::ops::Sub;
use core::time::Duration;

use crate::driver::{
    Allocation, Caps, ComputeDriver, Contents, CopyBox, Device, DeviceDriver, Dispatch, DriverId,
    DropError, KernelSource, Storage, Ticket,
};

/// Calls that copy or fill boxes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// Calls.
    pub calls: u64,
    /// Boxes in their lists.
    pub boxes: u64,
    /// Contiguous runs in those boxes.
    pub runs: u64,
    /// Bytes in those runs.
    pub bytes: u64,
}

/// Calls that hand out memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reserved {
    /// Calls.
    pub calls: u64,
    /// Bytes asked for.
    pub bytes: u64,
}

/// What passed through a [`Counting`]. Only calls that the driver accepted count, but for `failures`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counts {
    /// [`DeviceDriver::allocate`].
    pub allocations: Reserved,
    /// [`DeviceDriver::storage`].
    pub storages: Reserved,
    /// [`DeviceDriver::release`].
    pub releases: u64,
    /// [`DeviceDriver::upload`].
    pub uploads: Moved,
    /// [`DeviceDriver::download`].
    pub downloads: Moved,
    /// [`DeviceDriver::copy`] and [`DeviceDriver::copy_from`].
    pub copies: Moved,
    /// [`DeviceDriver::fill`].
    pub fills: Moved,
    /// [`ComputeDriver::load_kernel`].
    pub loads: u64,
    /// [`ComputeDriver::dispatch`].
    pub dispatches: u64,
    /// [`DeviceDriver::flush`].
    pub flushes: u64,
    /// [`DeviceDriver::poll`].
    pub polls: u64,
    /// [`DeviceDriver::wait`].
    pub waits: u64,
    /// Calls of any kind that the driver refused.
    pub failures: u64,
}

impl Counts {
    /// Allocations and storages not yet released.
    pub fn live(&self) -> u64 {
        let handed_out = self.allocations.calls.saturating_add(self.storages.calls);
        handed_out.saturating_sub(self.releases)
    }

    /// Bytes copied between host and device, within the device, or from another; fills are not among them.
    pub fn bytes_moved(&self) -> u64 {
        let up_and_down = self.uploads.bytes.saturating_add(self.downloads.bytes);
        up_and_down.saturating_add(self.copies.bytes)
    }
}

impl Moved {
    fn add(&mut self, boxes: &[CopyBox]) {
        self.calls += 1;
        self.boxes += boxes.len() as u64;
        for copy in boxes {
            self.runs = self.runs.saturating_add(copy.runs());
            self.bytes = self.bytes.saturating_add(copy.bytes());
        }
    }
}

impl Reserved {
    fn add(&mut self, bytes: u64) {
        self.calls += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl Sub for Moved {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(earlier.calls),
            boxes: self.boxes.saturating_sub(earlier.boxes),
            runs: self.runs.saturating_sub(earlier.runs),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }
}

impl Sub for Reserved {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(earlier.calls),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }
}

/// What was counted since `earlier`: zero, not an underflow, where a reset came between.
impl Sub for Counts {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            allocations: self.allocations - earlier.allocations,
            storages: self.storages - earlier.storages,
            releases: self.releases.saturating_sub(earlier.releases),
            uploads: self.uploads - earlier.uploads,
            downloads: self.downloads - earlier.downloads,
            copies: self.copies - earlier.copies,
            fills: self.fills - earlier.fills,
            loads: self.loads.saturating_sub(earlier.loads),
            dispatches: self.dispatches.saturating_sub(earlier.dispatches),
            flushes: self.flushes.saturating_sub(earlier.flushes),
            polls: self.polls.saturating_sub(earlier.polls),
            waits: self.waits.saturating_sub(earlier.waits),
            failures: self.failures.saturating_sub(earlier.failures),
        }
    }
}

/// What is not zero, as `upload 2 (3 boxes, 12 runs, 160 B), dispatch 1`; `nothing` if all is.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, reserved) in [("allocate", self.allocations), ("storage", self.storages)] {
            if reserved.calls > 0 {
                write!(f, "{separator}{name} {} ({} B)", reserved.calls, reserved.bytes)?;
                separator = ", ";
            }
        }
        let moved = [
            ("upload", self.uploads),
            ("download", self.downloads),
            ("copy", self.copies),
            ("fill", self.fills),
        ];
        for (name, Moved { calls, boxes, runs, bytes }) in moved {
            if calls > 0 {
                write!(f, "{separator}{name} {calls} ({boxes} boxes, {runs} runs, {bytes} B)")?;
                separator = ", ";
            }
        }
        let calls = [
            ("release", self.releases),
            ("load", self.loads),
            ("dispatch", self.dispatches),
            ("flush", self.flushes),
            ("poll", self.polls),
            ("wait", self.waits),
            ("failure", self.failures),
        ];
        for (name, calls) in calls {
            if calls > 0 {
                write!(f, "{separator}{name} {calls}")?;
                separator = ", ";
            }
        }
        if separator.is_empty() { f.write_str("nothing") } else { Ok(()) }
    }
}

defmt_as_display! { impl Counts; }

/// Counts what passes through to the driver of `H`.
///
/// ```
/// use hedgerow::driver::null::Null;
/// use hedgerow::driver::middleware::Counting;
/// use hedgerow::driver::DeviceDriver;
///
/// let null = Null::new();
/// let counting = Counting::new(&null);
/// let before = counting.snapshot();
/// counting.flush()?;
/// let _ = counting.storage(64); // which this driver does not have
/// assert_eq!(counting.since(&before).to_string(), "flush 1, failure 1");
/// # Ok::<(), hedgerow::driver::null::NullError>(())
/// ```
// A lock, not atomics: the counts are 64-bit also where atomics are not, and a snapshot never falls
// between the counters of one call.
#[derive(Debug, Default)]
pub struct Counting<H> {
    inner: H,
    counts: spin::Mutex<Counts>,
}

impl<H: Device> Counting<H> {
    /// Wraps a driver, or a reference to one.
    pub const fn new(inner: H) -> Self {
        Self { inner, counts: spin::Mutex::new(Counts::ZERO) }
    }

    /// What was counted so far.
    pub fn snapshot(&self) -> Counts {
        *self.counts.lock()
    }

    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Counts) -> Counts {
        self.snapshot() - *earlier
    }

    /// Starts from zero, and returns what was counted before.
    pub fn reset(&self) -> Counts {
        core::mem::take(&mut *self.counts.lock())
    }

    /// The driver inside.
    pub fn inner(&self) -> &H::Driver {
        self.inner.driver()
    }

    /// Unwraps it.
    pub fn into_inner(self) -> H {
        self.inner
    }

    fn counted<T, E>(&self, answer: Result<T, E>, count: impl FnOnce(&mut Counts)) -> Result<T, E> {
        let counts = &mut *self.counts.lock();
        match answer {
            Ok(_) => count(counts),
            Err(_) => counts.failures += 1,
        }
        answer
    }
}

impl Counts {
    const ZERO: Self = Self {
        allocations: Reserved { calls: 0, bytes: 0 },
        storages: Reserved { calls: 0, bytes: 0 },
        releases: 0,
        uploads: Moved { calls: 0, boxes: 0, runs: 0, bytes: 0 },
        downloads: Moved { calls: 0, boxes: 0, runs: 0, bytes: 0 },
        copies: Moved { calls: 0, boxes: 0, runs: 0, bytes: 0 },
        fills: Moved { calls: 0, boxes: 0, runs: 0, bytes: 0 },
        loads: 0,
        dispatches: 0,
        flushes: 0,
        polls: 0,
        waits: 0,
        failures: 0,
    };
}

// SAFETY: every call is handed on as it is, once, and its answer handed back: the promises are the inner
// driver's.
unsafe impl<H: Device> DeviceDriver for Counting<H> {
    type Error = <H::Driver as DeviceDriver>::Error;
    type Memory = <H::Driver as DeviceDriver>::Memory;

    fn id(&self) -> DriverId {
        self.inner().id()
    }

    fn caps(&self) -> &Caps {
        self.inner().caps()
    }

    fn allocate(
        &self,
        bytes: u64,
        contents: Contents,
    ) -> Result<Allocation<Self::Memory>, Self::Error> {
        self.counted(self.inner().allocate(bytes, contents), |n| n.allocations.add(bytes))
    }

    fn storage(&self, bytes: u64) -> Result<Storage<Self::Memory>, Self::Error> {
        self.counted(self.inner().storage(bytes), |n| n.storages.add(bytes))
    }

    fn alignment(&self, memory: Self::Memory) -> u64 {
        self.inner().alignment(memory)
    }

    unsafe fn release(&self, memory: Self::Memory, after: &[Ticket]) {
        // SAFETY: the caller's promises are those that the inner driver asks for.
        unsafe { self.inner().release(memory, after) };
        self.counts.lock().releases += 1;
    }

    unsafe fn upload(
        &self,
        src: *const u8,
        dst: Self::Memory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Result<Ticket, Self::Error> {
        // SAFETY: as in `release`.
        let answer = unsafe { self.inner().upload(src, dst, boxes, after) };
        self.counted(answer, |n| n.uploads.add(boxes))
    }

    unsafe fn download(
        &self,
        src: Self::Memory,
        dst: *mut u8,
        boxes: &[CopyBox],
        after: &[Ticket],
        timeout: Duration,
    ) -> Result<(), Self::Error> {
        // SAFETY: as in `release`.
        let answer = unsafe { self.inner().download(src, dst, boxes, after, timeout) };
        self.counted(answer, |n| n.downloads.add(boxes))
    }

    unsafe fn copy(
        &self,
        src: Self::Memory,
        dst: Self::Memory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Result<Ticket, Self::Error> {
        // SAFETY: as in `release`.
        let answer = unsafe { self.inner().copy(src, dst, boxes, after) };
        self.counted(answer, |n| n.copies.add(boxes))
    }

    unsafe fn copy_from(
        &self,
        peer: &Self,
        src: Self::Memory,
        dst: Self::Memory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Option<Result<Ticket, Self::Error>> {
        // SAFETY: as in `release`.
        let answer = unsafe { self.inner().copy_from(peer.inner(), src, dst, boxes, after) };
        Some(self.counted(answer?, |n| n.copies.add(boxes)))
    }

    unsafe fn fill(
        &self,
        dst: Self::Memory,
        boxes: &[CopyBox],
        value: &[u8],
        after: &[Ticket],
    ) -> Result<Ticket, Self::Error> {
        // SAFETY: as in `release`.
        let answer = unsafe { self.inner().fill(dst, boxes, value, after) };
        self.counted(answer, |n| n.fills.add(boxes))
    }

    fn flush(&self) -> Result<(), Self::Error> {
        self.counted(self.inner().flush(), |n| n.flushes += 1)
    }

    fn poll(&self, ticket: Ticket) -> Result<bool, Self::Error> {
        self.counted(self.inner().poll(ticket), |n| n.polls += 1)
    }

    fn wait(&self, ticket: Ticket, timeout: Duration) -> Result<(), Self::Error> {
        self.counted(self.inner().wait(ticket, timeout), |n| n.waits += 1)
    }

    fn report_drop(&self, error: DropError) {
        self.inner().report_drop(error);
    }
}

// SAFETY: as above.
unsafe impl<H: Device> ComputeDriver for Counting<H>
where
    H::Driver: ComputeDriver,
{
    type Kernel = <H::Driver as ComputeDriver>::Kernel;

    fn load_kernel(&self, source: &KernelSource<'_>) -> Result<Self::Kernel, Self::Error> {
        self.counted(self.inner().load_kernel(source), |n| n.loads += 1)
    }

    unsafe fn dispatch(
        &self,
        kernel: &Self::Kernel,
        dispatch: &Dispatch<'_, Self::Memory>,
        after: &[Ticket],
    ) -> Result<Ticket, Self::Error> {
        // SAFETY: as in `release`.
        let answer = unsafe { self.inner().dispatch(kernel, dispatch, after) };
        self.counted(answer, |n| n.dispatches += 1)
    }
}

impl<H: Device> Device for Counting<H> {
    type Driver = Self;

    fn driver(&self) -> &Self {
        self
    }
}
