//! Logs the calls to a driver.

use core::fmt;
use core::time::Duration;

use crate::driver::{
    Allocation, Caps, ComputeDriver, Contents, CopyBox, Device, DeviceDriver, Dispatch, DriverId,
    DropError, KernelSource, Storage, Ticket,
};

/// Logs every call that passes through to the driver of `H`: what it was, its boxes and bytes, what it had
/// to follow, and what the driver answered.
///
/// A call that was accepted is a line of level *trace*, one that failed is a *warning*; the lines go to `defmt`
/// or `log`, whichever feature is on, and nowhere if neither is. An upload is a line like
///
/// ```text
/// driver 1: upload to Memory(3), 2 boxes, 5 runs, 37 bytes, after 0:4: 0:5
/// ```
///
/// ```
/// use hedgerow::driver::null::Null;
/// use hedgerow::driver::middleware::Trace;
/// use hedgerow::{Shape, Tree};
///
/// let mut pixels = [0u8; 64];
/// let tree = Tree::over(&mut pixels, Shape::packed([8, 8]), Trace::new(Null::new()))?;
/// # tree.close().map_err(|error| error.error)?;
/// # Ok::<(), hedgerow::Error<hedgerow::driver::null::NullError>>(())
/// ```
#[derive(Debug, Default)]
pub struct Trace<H> {
    inner: H,
}

/// One line of the log.
struct Line<'a> {
    driver: DriverId,
    call: &'a str,
    /// What follows the name of the call.
    about: &'a dyn fmt::Display,
    after: &'a [Ticket],
    answer: &'a dyn fmt::Display,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}{}", self.driver, self.call, self.about)?;
        let mut separator = ", after ";
        for ticket in self.after {
            write!(f, "{separator}{ticket}")?;
            separator = " ";
        }
        write!(f, ": {}", self.answer)
    }
}

defmt_as_display! { impl Line<'_>; }

/// A list in numbers.
struct Boxes<'a>(&'a [CopyBox]);

impl fmt::Display for Boxes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |each: fn(&CopyBox) -> u64| {
            self.0.iter().fold(0u64, |sum, boxed| sum.saturating_add(each(boxed)))
        };
        let (runs, bytes) = (sum(CopyBox::runs), sum(CopyBox::bytes));
        write!(f, "{} boxes, {runs} runs, {bytes} bytes", self.0.len())
    }
}

impl<H: Device> Trace<H> {
    /// Wraps a driver, or a reference to one.
    pub const fn new(inner: H) -> Self {
        Self { inner }
    }

    /// The driver inside.
    pub fn inner(&self) -> &H::Driver {
        self.inner.driver()
    }

    /// Unwraps it.
    pub fn into_inner(self) -> H {
        self.inner
    }

    /// Logs a call and hands its answer back; `shown` is what of the answer is shown.
    fn told<T, S: fmt::Display>(
        &self,
        call: &str,
        about: fmt::Arguments<'_>,
        after: &[Ticket],
        answer: Answer<T, H>,
        shown: impl FnOnce(&T) -> S,
    ) -> Answer<T, H> {
        let line = |answer| Line { driver: self.id(), call, about: &about, after, answer };
        match &answer {
            Ok(value) => trace!("{}", line(&shown(value))),
            Err(error) => warn!("{}", line(error)),
        }
        answer
    }
}

type Answer<T, H> = Result<T, <<H as Device>::Driver as DeviceDriver>::Error>;

/// What is shown of calls that answer nothing.
const DONE: &str = "done";

// SAFETY: every call is handed on as it is, once, and its answer handed back: the promises are the inner
// driver's.
unsafe impl<H: Device> DeviceDriver for Trace<H> {
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
        let answer = self.inner().allocate(bytes, contents);
        self.told("allocate", format_args!(" {bytes} bytes, {contents:?}"), &[], answer, |got| {
            let Allocation { memory, ready } = *got;
            fmt::from_fn(move |f| write!(f, "{memory:?}, ready {ready}"))
        })
    }

    fn storage(&self, bytes: u64) -> Result<Storage<Self::Memory>, Self::Error> {
        let answer = self.inner().storage(bytes);
        self.told("storage", format_args!(" {bytes} bytes"), &[], answer, |got| {
            let Storage { memory, shared, .. } = *got;
            fmt::from_fn(move |f| {
                write!(f, "{memory:?}, {}", if shared { "shared" } else { "apart" })
            })
        })
    }

    fn alignment(&self, memory: Self::Memory) -> u64 {
        self.inner().alignment(memory)
    }

    unsafe fn release(&self, memory: Self::Memory, after: &[Ticket]) {
        // SAFETY: the caller's promises are those that the inner driver asks for.
        unsafe { self.inner().release(memory, after) };
        let _ = self.told("release", format_args!(" {memory:?}"), after, Ok(()), |()| DONE);
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
        let about = format_args!(" to {dst:?}, {}", Boxes(boxes));
        self.told("upload", about, after, answer, |ticket| *ticket)
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
        let about = format_args!(" from {src:?}, {}, in {timeout:?}", Boxes(boxes));
        self.told("download", about, after, answer, |()| DONE)
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
        let about = format_args!(" {src:?} to {dst:?}, {}", Boxes(boxes));
        self.told("copy", about, after, answer, |ticket| *ticket)
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
        let copied = unsafe { self.inner().copy_from(peer.inner(), src, dst, boxes, after) };
        let about = format_args!(" {src:?} of {} to {dst:?}, {}", peer.id(), Boxes(boxes));
        let Some(answer) = copied else {
            let _ = self.told("copy", about, after, Ok(()), |()| "refused");
            return None;
        };
        Some(self.told("copy", about, after, answer, |ticket| *ticket))
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
        let about = format_args!(" {dst:?} with {value:x?}, {}", Boxes(boxes));
        self.told("fill", about, after, answer, |ticket| *ticket)
    }

    fn flush(&self) -> Result<(), Self::Error> {
        self.told("flush", format_args!(""), &[], self.inner().flush(), |()| DONE)
    }

    fn poll(&self, ticket: Ticket) -> Result<bool, Self::Error> {
        self.told("poll", format_args!(" {ticket}"), &[], self.inner().poll(ticket), |done| {
            if *done { DONE } else { "not yet" }
        })
    }

    fn wait(&self, ticket: Ticket, timeout: Duration) -> Result<(), Self::Error> {
        let answer = self.inner().wait(ticket, timeout);
        self.told("wait", format_args!(" {ticket}, for {timeout:?}"), &[], answer, |()| DONE)
    }

    fn report_drop(&self, error: DropError) {
        self.inner().report_drop(error);
    }
}

// SAFETY: as above.
unsafe impl<H: Device> ComputeDriver for Trace<H>
where
    H::Driver: ComputeDriver,
{
    type Kernel = <H::Driver as ComputeDriver>::Kernel;

    fn load_kernel(&self, source: &KernelSource<'_>) -> Result<Self::Kernel, Self::Error> {
        let answer = self.inner().load_kernel(source);
        self.told("load", format_args!(" {}", source.name), &[], answer, |_| DONE)
    }

    unsafe fn dispatch(
        &self,
        kernel: &Self::Kernel,
        dispatch: &Dispatch<'_, Self::Memory>,
        after: &[Ticket],
    ) -> Result<Ticket, Self::Error> {
        // SAFETY: as in `release`.
        let answer = unsafe { self.inner().dispatch(kernel, dispatch, after) };
        let Dispatch { views, params, groups } = dispatch;
        let bytes = views.iter().fold(0u64, |sum, view| sum.saturating_add(view.bytes));
        let about = format_args!(
            " {groups:?}, {} views of {bytes} bytes, {} bytes of parameters",
            views.len(),
            params.len()
        );
        self.told("dispatch", about, after, answer, |ticket| *ticket)
    }
}

impl<H: Device> Device for Trace<H> {
    type Driver = Self;

    fn driver(&self) -> &Self {
        self
    }
}

#[cfg(all(test, feature = "log", not(feature = "defmt")))]
mod tests;
