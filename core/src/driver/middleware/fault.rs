//! Fails calls to a driver on purpose.

use core::fmt;
use core::time::Duration;

use crate::driver::{
    After, Allocation, Caps, ComputeDriver, Contents, CopyBox, Device, DeviceDriver, Dispatch,
    DriverError, DriverId, DropError, ErrorKind, KernelSource, Storage, Ticket,
};

/// How long to wait for work that must have ended before a failure is reported.
const SETTLE: Duration = Duration::from_secs(10);

/// An error that was asked for, or one of the driver inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultError<E> {
    /// [`Fault`] failed the call.
    Injected {
        /// Which call since it was armed, counted from 1.
        call: u32,
        /// What it was told to answer.
        kind: ErrorKind,
    },
    /// The driver inside failed by itself.
    Driver(E),
}

impl<E: DriverError> DriverError for FaultError<E> {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Injected { kind, .. } => *kind,
            Self::Driver(error) => error.kind(),
        }
    }
}

impl<E: fmt::Display> fmt::Display for FaultError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Injected { call, kind } => write!(f, "injected at call {call}: {kind}"),
            Self::Driver(error) => error.fmt(f),
        }
    }
}

impl<E: core::error::Error + 'static> core::error::Error for FaultError<E> {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Injected { .. } => None,
            Self::Driver(error) => error.source(),
        }
    }
}

#[cfg(feature = "defmt")]
impl<E: fmt::Display> defmt::Format for FaultError<E> {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "{}", defmt::Display2Format(self));
    }
}

/// What to fail next.
#[derive(Clone, Copy, Debug)]
struct Armed {
    call: u32,
    kind: ErrorKind,
    partial: bool,
}

/// Invariant: `lost` is the call that an injected loss answered; while it is set, no fallible call
/// reaches the driver.
#[derive(Debug)]
struct State {
    calls: u32,
    armed: Option<Armed>,
    fired: Option<u32>,
    lost: Option<u32>,
    /// The latest ticket of each lane, to settle before a loss is reported.
    last: After,
}

/// Fails the n-th call to the driver of `H`, once, with an error of one's choice.
///
/// Every call that returns a `Result` counts, whatever it is for. Failing call 1, 2, 3 and so on until
/// [`fired`](Self::fired) says `false` takes an operation through all its failures:
///
/// ```
/// use hedgerow::driver::middleware::Fault;
/// use hedgerow::driver::null::Null;
/// use hedgerow::driver::{DeviceDriver, DriverError, ErrorKind};
///
/// let fault = Fault::new(Null::new());
/// let operation = || fault.flush().and_then(|()| fault.flush());
/// let mut failed = 0;
/// loop {
///     fault.arm(failed + 1, ErrorKind::Timeout);
///     let answer = operation();
///     if !fault.fired() {
///         break;
///     }
///     assert_eq!(answer.unwrap_err().to_string(), format!("injected at call {}: timed out", failed + 1));
///     failed += 1;
/// }
/// assert_eq!(failed, 2);
/// ```
///
/// An injected [`ErrorKind::DeviceLost`] is one-way, as a real one: all later calls answer it, until
/// [`revive`](Self::revive). [`release`](DeviceDriver::release) always reaches the driver.
#[derive(Debug)]
pub struct Fault<H> {
    inner: H,
    state: spin::Mutex<State>,
}

/// What becomes of a call.
enum Verdict {
    Pass,
    /// Fail after a part of the work.
    Part(Armed),
}

type InnerError<H> = <<H as Device>::Driver as DeviceDriver>::Error;

impl<H: Device> Fault<H> {
    /// Wraps a driver, or a reference to one. Nothing fails until it is armed.
    pub const fn new(inner: H) -> Self {
        let state = State { calls: 0, armed: None, fired: None, lost: None, last: After::NONE };
        Self { inner, state: spin::Mutex::new(state) }
    }

    /// Fails the `n`-th fallible call from now (1 is the next one) with `kind`, before it reaches the
    /// driver.
    pub fn arm(&self, n: u32, kind: ErrorKind) {
        self.set(Some(Armed { call: n.max(1), kind, partial: false }));
    }

    /// As [`arm`](Self::arm), but a call with a copy list does the first half of its work before it fails.
    ///
    /// Calls that promise to have done nothing when they fail are failed before they reach the driver:
    /// all but upload, download and the copies, and a fill only when `kind` is a loss.
    pub fn arm_partial(&self, n: u32, kind: ErrorKind) {
        self.set(Some(Armed { call: n.max(1), kind, partial: true }));
    }

    /// Fails nothing more (but a loss stays a loss) and counts calls from zero.
    pub fn disarm(&self) {
        self.set(None);
    }

    fn set(&self, armed: Option<Armed>) {
        let mut state = self.state.lock();
        state.armed = armed;
        state.calls = 0;
        state.fired = None;
    }

    /// Fallible calls since it was last armed or disarmed.
    pub fn calls(&self) -> u32 {
        self.state.lock().calls
    }

    /// Whether it has failed a call since it was last armed.
    pub fn fired(&self) -> bool {
        self.state.lock().fired.is_some()
    }

    /// Whether an injected loss is in force.
    pub fn lost(&self) -> bool {
        self.state.lock().lost.is_some()
    }

    /// Ends an injected loss, which no real device does.
    pub fn revive(&self) {
        self.state.lock().lost = None;
    }

    /// The driver inside.
    pub fn inner(&self) -> &H::Driver {
        self.inner.driver()
    }

    /// Unwraps it.
    pub fn into_inner(self) -> H {
        self.inner
    }

    /// Counts a call and decides on it; `divisible` where it may do a part of its work and fail.
    fn judge(
        &self,
        divisible: impl FnOnce(ErrorKind) -> bool,
    ) -> Result<Verdict, FaultError<InnerError<H>>> {
        let (armed, last) = {
            let mut state = self.state.lock();
            state.calls = state.calls.saturating_add(1);
            if let Some(call) = state.lost {
                return Err(FaultError::Injected { call, kind: ErrorKind::DeviceLost });
            }
            let call = state.calls;
            let Some(armed) = state.armed.take_if(|armed| armed.call == call) else {
                return Ok(Verdict::Pass);
            };
            state.fired = Some(call);
            if armed.kind == ErrorKind::DeviceLost {
                state.lost = Some(call);
            }
            (armed, state.last)
        };
        if armed.kind == ErrorKind::DeviceLost {
            self.settle(&last);
        }
        if armed.partial && divisible(armed.kind) {
            return Ok(Verdict::Part(armed));
        }
        Err(FaultError::Injected { call: armed.call, kind: armed.kind })
    }

    /// Waits for work inside, which a lost or failed device would not go on with. What the wait answers
    /// makes no difference to what is reported.
    fn settle(&self, tickets: &After) {
        for ticket in tickets.as_slice() {
            let _ = self.inner().wait(*ticket, SETTLE);
        }
    }

    /// Hands a call on that does not name a ticket.
    fn pass<T>(
        &self,
        call: impl FnOnce(&H::Driver) -> Result<T, InnerError<H>>,
    ) -> Result<T, FaultError<InnerError<H>>> {
        self.judge(|_| false)?;
        call(self.inner()).map_err(FaultError::Driver)
    }

    /// Notes accepted work, and ends it if a loss was injected meanwhile by another thread.
    fn remember(&self, ticket: Ticket) -> Ticket {
        let (lost, last) = {
            let mut state = self.state.lock();
            state.last.add(ticket);
            (state.lost.is_some(), state.last)
        };
        if lost {
            self.settle(&last);
        }
        ticket
    }

    /// Hands a copy list on, whole, or its first half (in units of `unit` bytes) before failing.
    fn list(
        &self,
        boxes: &[CopyBox],
        unit: usize,
        divisible: impl FnOnce(ErrorKind) -> bool,
        mut call: impl FnMut(&[CopyBox]) -> Result<Ticket, InnerError<H>>,
    ) -> Result<Ticket, FaultError<InnerError<H>>> {
        let Armed { call: n, kind, .. } = match self.judge(divisible)? {
            Verdict::Pass => {
                return Ok(self.remember(call(boxes).map_err(FaultError::Driver)?));
            }
            Verdict::Part(armed) => armed,
        };
        let (whole, rest) = boxes.split_at_checked(boxes.len() / 2).unwrap_or_default();
        let half = rest.first().filter(|_| boxes.len() % 2 == 1).map(|copy| first_half(copy, unit));
        let mut done = After::NONE;
        for part in [whole, half.as_slice()] {
            if part.iter().any(|copy| copy.bytes() > 0) {
                // What it answers makes no difference: the call fails.
                done.add(call(part).unwrap_or(Ticket::DONE));
            }
        }
        // Later work must not meet what this failed call has begun: nobody gets its ticket.
        self.settle(&done);
        Err(FaultError::Injected { call: n, kind })
    }
}

/// About the first half of a box: half of its outermost axis, or of its only run in whole units.
fn first_half(copy: &CopyBox, unit: usize) -> CopyBox {
    let Some((outermost, inner)) = copy.dims().split_last() else {
        let half = copy.run / 2;
        let odd = half.checked_rem(unit as u64).unwrap_or(0);
        return CopyBox::flat(copy.src, copy.dst, half - odd);
    };
    let mut half = CopyBox::flat(copy.src, copy.dst, copy.run);
    for dim in inner {
        half.push(*dim);
    }
    let mut outermost = *outermost;
    outermost.count /= 2;
    half.push(outermost);
    half
}

// SAFETY: a call is handed on as it is, or failed without reaching the driver (nothing was done, as every
// call may answer), or failed after a part of a copy list, which the traits allow for these calls and
// which is over when the error is returned. After an injected loss every fallible call says so, and no
// work is left running inside.
unsafe impl<H: Device> DeviceDriver for Fault<H> {
    type Error = FaultError<InnerError<H>>;
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
        let allocation = self.pass(|driver| driver.allocate(bytes, contents))?;
        self.remember(allocation.ready);
        Ok(allocation)
    }

    fn storage(&self, bytes: u64) -> Result<Storage<Self::Memory>, Self::Error> {
        self.pass(|driver| driver.storage(bytes))
    }

    fn alignment(&self, memory: Self::Memory) -> u64 {
        self.inner().alignment(memory)
    }

    unsafe fn release(&self, memory: Self::Memory, after: &[Ticket]) {
        // SAFETY: the caller's promises are those that the inner driver asks for.
        unsafe { self.inner().release(memory, after) };
    }

    unsafe fn upload(
        &self,
        src: *const u8,
        dst: Self::Memory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Result<Ticket, Self::Error> {
        self.list(
            boxes,
            1,
            |_| true,
            |boxes| {
                // SAFETY: as in `release`; a part of a list that keeps the promises keeps them too.
                unsafe { self.inner().upload(src, dst, boxes, after) }
            },
        )
    }

    unsafe fn download(
        &self,
        src: Self::Memory,
        dst: *mut u8,
        boxes: &[CopyBox],
        after: &[Ticket],
        timeout: Duration,
    ) -> Result<(), Self::Error> {
        self.list(
            boxes,
            1,
            |_| true,
            |boxes| {
                // SAFETY: as in `upload`.
                unsafe { self.inner().download(src, dst, boxes, after, timeout) }?;
                Ok(Ticket::DONE)
            },
        )?;
        Ok(())
    }

    unsafe fn copy(
        &self,
        src: Self::Memory,
        dst: Self::Memory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Result<Ticket, Self::Error> {
        self.list(
            boxes,
            1,
            |kind| kind == ErrorKind::DeviceLost,
            |boxes| {
                // SAFETY: as in `upload`.
                unsafe { self.inner().copy(src, dst, boxes, after) }
            },
        )
    }

    unsafe fn copy_from(
        &self,
        peer: &Self,
        src: Self::Memory,
        dst: Self::Memory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Option<Result<Ticket, Self::Error>> {
        // A loss of the peer is for the peer to answer: the core then asks it.
        if !self.caps().peer_copies || peer.lost() {
            return None;
        }
        let mut refused = false;
        let answer = self.list(
            boxes,
            1,
            |_| true,
            |boxes| {
                // SAFETY: as in `upload`.
                let copied =
                    unsafe { self.inner().copy_from(peer.inner(), src, dst, boxes, after) };
                copied.unwrap_or_else(|| {
                    refused = true;
                    Ok(Ticket::DONE)
                })
            },
        );
        // An injected error stays one, also where there would have been nothing to fail.
        if refused && answer.is_ok() { None } else { Some(answer) }
    }

    unsafe fn fill(
        &self,
        dst: Self::Memory,
        boxes: &[CopyBox],
        value: &[u8],
        after: &[Ticket],
    ) -> Result<Ticket, Self::Error> {
        self.list(
            boxes,
            value.len(),
            |kind| kind == ErrorKind::DeviceLost,
            |boxes| {
                // SAFETY: as in `upload`.
                unsafe { self.inner().fill(dst, boxes, value, after) }
            },
        )
    }

    fn flush(&self) -> Result<(), Self::Error> {
        self.pass(|driver| driver.flush())
    }

    fn poll(&self, ticket: Ticket) -> Result<bool, Self::Error> {
        self.pass(|driver| driver.poll(ticket))
    }

    fn wait(&self, ticket: Ticket, timeout: Duration) -> Result<(), Self::Error> {
        self.pass(|driver| driver.wait(ticket, timeout))
    }

    fn report_drop(&self, error: DropError) {
        self.inner().report_drop(error);
    }
}

// SAFETY: as above; a failed dispatch has not reached the driver.
unsafe impl<H: Device> ComputeDriver for Fault<H>
where
    H::Driver: ComputeDriver,
{
    type Kernel = <H::Driver as ComputeDriver>::Kernel;

    fn load_kernel(&self, source: &KernelSource<'_>) -> Result<Self::Kernel, Self::Error> {
        self.pass(|driver| driver.load_kernel(source))
    }

    unsafe fn dispatch(
        &self,
        kernel: &Self::Kernel,
        dispatch: &Dispatch<'_, Self::Memory>,
        after: &[Ticket],
    ) -> Result<Ticket, Self::Error> {
        let ticket = self.pass(|driver| {
            // SAFETY: as in `release`.
            unsafe { driver.dispatch(kernel, dispatch, after) }
        })?;
        Ok(self.remember(ticket))
    }
}

impl<H: Device> Device for Fault<H> {
    type Driver = Self;

    fn driver(&self) -> &Self {
        self
    }
}
