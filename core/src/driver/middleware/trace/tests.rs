//! Every kind of call, and the line it leaves in the log.

#![allow(clippy::unwrap_used, clippy::panic)]

extern crate std;
use core::cell::RefCell;
use core::ptr::NonNull;
use core::time::Duration;
use std::format;
use std::string::String;
use std::vec::Vec;

use super::*;
use crate::driver::null::NullError;
use crate::driver::{Binding, Form, Geometry, HostCall, KernelError};
use crate::region::PerAxis;
use crate::tree::Mode;

std::thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the lines of each thread for its test.
struct Keep;

impl log::Log for Keep {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let level = record.level().as_str().to_ascii_lowercase();
        LINES.with_borrow_mut(|lines| lines.push(format!("{level} {}", record.args())));
    }

    fn flush(&self) {}
}

/// The lines that `calls` leave, without the number of the driver.
fn lines(driver: &Fake, calls: impl FnOnce()) -> Vec<String> {
    // Whoever comes first sets it; it is the same for all.
    let _ = log::set_logger(&Keep);
    log::set_max_level(log::LevelFilter::Trace);
    LINES.take();
    calls();
    let own = format!("{}: ", driver.id);
    LINES.take().into_iter().map(|line| line.replacen(&own, "", 1)).collect()
}

/// A driver that accepts everything, or nothing, and does nothing: only its answers are looked at.
struct Fake {
    id: DriverId,
    caps: Caps,
    fails: bool,
}

impl Fake {
    fn new(fails: bool) -> Self {
        Self { id: DriverId::unique(), caps: Caps::new("fake"), fails }
    }

    fn answer<T>(&self, value: T) -> Result<T, NullError> {
        if self.fails { Err(NullError) } else { Ok(value) }
    }
}

const NEXT: Ticket = Ticket { lane: 1, value: 7 };

// SAFETY: for tests that never look at memory.
unsafe impl DeviceDriver for Fake {
    type Error = NullError;
    type Memory = u8;

    fn id(&self) -> DriverId {
        self.id
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn allocate(&self, _: u64, _: Contents) -> Result<Allocation<u8>, NullError> {
        self.answer(Allocation { memory: 3, ready: NEXT })
    }

    fn storage(&self, _: u64) -> Result<Storage<u8>, NullError> {
        self.answer(Storage { memory: 4, host: NonNull::dangling(), shared: true })
    }

    unsafe fn release(&self, _: u8, _: &[Ticket]) {}

    unsafe fn upload(
        &self,
        _: *const u8,
        _: u8,
        _: &[CopyBox],
        _: &[Ticket],
    ) -> Result<Ticket, NullError> {
        self.answer(NEXT)
    }

    unsafe fn download(
        &self,
        _: u8,
        _: *mut u8,
        _: &[CopyBox],
        _: &[Ticket],
        _: Duration,
    ) -> Result<(), NullError> {
        self.answer(())
    }

    unsafe fn copy(&self, _: u8, _: u8, _: &[CopyBox], _: &[Ticket]) -> Result<Ticket, NullError> {
        self.answer(NEXT)
    }

    unsafe fn copy_from(
        &self,
        peer: &Self,
        _: u8,
        _: u8,
        _: &[CopyBox],
        _: &[Ticket],
    ) -> Option<Result<Ticket, NullError>> {
        (!peer.fails).then(|| self.answer(NEXT))
    }

    unsafe fn fill(
        &self,
        _: u8,
        _: &[CopyBox],
        _: &[u8],
        _: &[Ticket],
    ) -> Result<Ticket, NullError> {
        self.answer(NEXT)
    }

    fn flush(&self) -> Result<(), NullError> {
        self.answer(())
    }

    fn poll(&self, ticket: Ticket) -> Result<bool, NullError> {
        self.answer(ticket != NEXT)
    }

    fn wait(&self, _: Ticket, _: Duration) -> Result<(), NullError> {
        self.answer(())
    }
}

// SAFETY: as above.
unsafe impl ComputeDriver for Fake {
    type Kernel = ();

    fn load_kernel(&self, _: &KernelSource<'_>) -> Result<(), NullError> {
        self.answer(())
    }

    unsafe fn dispatch(
        &self,
        (): &(),
        _: &Dispatch<'_, u8>,
        _: &[Ticket],
    ) -> Result<Ticket, NullError> {
        self.answer(NEXT)
    }
}

fn nothing(_: &HostCall<'_>) -> Result<(), KernelError> {
    Ok(())
}

/// One call of each kind.
fn all_calls(driver: &Trace<&Fake>) {
    let boxes = [CopyBox::flat(0, 8, 5), CopyBox::flat(16, 16, 32)];
    let after = [Ticket { lane: 0, value: 4 }, Ticket { lane: 1, value: 2 }];
    let second = Duration::from_secs(1);
    let _ = driver.allocate(256, Contents::Zeroed);
    let _ = driver.storage(64);
    let mut bytes = [0u8; 64];
    // SAFETY: the driver does nothing.
    let _ = unsafe { driver.upload(bytes.as_ptr(), 3, &boxes, &after) };
    // SAFETY: as above.
    let _ = unsafe { driver.download(3, bytes.as_mut_ptr(), &boxes, &[], second) };
    // SAFETY: as above.
    let _ = unsafe { driver.copy(3, 4, &boxes, &after) };
    // SAFETY: as above.
    let _ = unsafe { driver.fill(3, &boxes, &[0xa5, 1], &[]) };
    // SAFETY: as above.
    unsafe { driver.release(3, &after) };
    let _ = driver.flush();
    let _ = driver.poll(NEXT);
    let _ = driver.poll(Ticket::DONE);
    let _ = driver.wait(NEXT, second);
    let forms = [Form::Host(nothing)];
    let source =
        KernelSource { name: "nothing", views: 0, workgroup: [1; 3], granule: 1, forms: &forms };
    let _ = driver.load_kernel(&source);
    let geometry = Geometry { extent: PerAxis::all(1), ..Geometry::default() };
    let (memory, offset, mode) = (3, 0, Mode::Read);
    let view = Binding { memory, offset, bytes: 24, geometry, element: 4, mode };
    let dispatch = Dispatch { views: &[view, view], params: &[0; 12], groups: [1, 2, 3] };
    // SAFETY: as above.
    let _ = unsafe { driver.dispatch(&(), &dispatch, &after) };
}

#[test]
fn what_was_accepted() {
    let fake = Fake::new(false);
    let trace = Trace::new(&fake);
    let said = lines(&fake, || all_calls(&trace));
    let expected = [
        "trace allocate 256 bytes, Zeroed: 3, ready 1:7",
        "trace storage 64 bytes: 4, shared",
        "trace upload to 3, 2 boxes, 2 runs, 37 bytes, after 0:4 1:2: 1:7",
        "trace download from 3, 2 boxes, 2 runs, 37 bytes, in 1s: done",
        "trace copy 3 to 4, 2 boxes, 2 runs, 37 bytes, after 0:4 1:2: 1:7",
        "trace fill 3 with [a5, 1], 2 boxes, 2 runs, 37 bytes: 1:7",
        "trace release 3, after 0:4 1:2: done",
        "trace flush: done",
        "trace poll 1:7: not yet",
        "trace poll 0:0: done",
        "trace wait 1:7, for 1s: done",
        "trace load nothing: done",
        "trace dispatch [1, 2, 3], 2 views of 48 bytes, 12 bytes of parameters, after 0:4 1:2: 1:7",
    ];
    assert_eq!(said, expected);
}

#[test]
fn what_was_refused() {
    let fake = Fake::new(true);
    let trace = Trace::new(&fake);
    let said = lines(&fake, || all_calls(&trace));
    let why = format!(": {NullError}");
    let failed = said.iter().filter(|line| line.starts_with("warn ") && line.ends_with(&why));
    // All but the release, which cannot fail.
    assert_eq!((failed.count(), said.len()), (12, 13), "{said:#?}");
}

#[test]
fn copies_from_a_peer() {
    let (fine, broken) = (Fake::new(false), Fake::new(true));
    let (to, from, no) = (Trace::new(&fine), Trace::new(&fine), Trace::new(&broken));
    let boxes = [CopyBox::flat(0, 8, 5)];
    let said = lines(&fine, || {
        // SAFETY: the driver does nothing.
        assert_eq!(unsafe { to.copy_from(&from, 1, 2, &boxes, &[]) }, Some(Ok(NEXT)));
        // SAFETY: as above.
        assert_eq!(unsafe { to.copy_from(&no, 1, 2, &boxes, &[]) }, None);
    });
    let line = |peer: &Fake, answer: &str| {
        format!("trace copy 1 of {} to 2, 1 boxes, 1 runs, 5 bytes: {answer}", peer.id)
    };
    assert_eq!(said, [line(&fine, "1:7"), line(&broken, "refused")]);
}

/// What is inside is handed out, by reference and by value.
#[test]
fn it_unwraps() {
    let trace = Trace::new(crate::driver::null::Null::new());
    assert_eq!(trace.inner().id(), trace.id());
    assert_eq!(trace.caps().name, trace.inner().caps().name);
    let inner = trace.into_inner();
    assert_eq!(inner.caps().name, crate::driver::null::Null::new().caps().name);
}
