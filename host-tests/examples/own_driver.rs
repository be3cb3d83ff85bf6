//! The whole conformance suite on a driver of one's own, as it could lie in any other repository: `Null` made
//! real, with heap blocks for device memory. The last function is all that the suite asks for.
//!
//! ```sh
//! cargo run --package hedgerow-tests --example own_driver
//! ```

use std::collections::HashMap;
use std::fmt;
use std::process::ExitCode;
use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::time::Duration;

use hedgerow::driver::{
    Allocation, Binding, Caps, ComputeDriver, Contents, CopyBox, Device, DeviceDriver, Dispatch,
    DriverError, DriverId, ErrorKind, Form, HostCall, HostKernel, KernelError, KernelSource,
    Storage, Ticket,
};
use hedgerow_tests::conformance::Suite;

/// A device that has done everything when a call returns.
struct Heap {
    id: DriverId,
    caps: Caps,
    /// By address, so that a block is freed once and with its own length.
    blocks: Mutex<HashMap<usize, usize>>,
}

/// A block's first byte. Blocks are vectors of 16-byte words, for their alignment.
#[derive(Clone, Copy, Debug)]
struct Memory(NonNull<u128>);

// SAFETY: an address; the driver's unsafe methods say who may use it and when.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn at(self, offset: u64) -> *mut u8 {
        self.0.as_ptr().cast::<u8>().wrapping_add(offset as usize)
    }
}

impl Heap {
    fn new() -> Self {
        Self { id: DriverId::unique(), caps: Caps::new("heap"), blocks: Mutex::default() }
    }

    fn blocks(&self) -> std::sync::MutexGuard<'_, HashMap<usize, usize>> {
        self.blocks.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn take(&self, bytes: u64) -> Result<Memory, HeapError> {
        let words = usize::try_from(bytes.div_ceil(16)).map_err(|_| HeapError::TooLarge)?;
        if words > isize::MAX as usize / 16 {
            return Err(HeapError::TooLarge);
        }
        let block = Box::leak(vec![0u128; words].into_boxed_slice());
        let memory = Memory(NonNull::from(block).cast());
        self.blocks().insert(memory.at(0).addr(), words);
        Ok(memory)
    }
}

/// Copies every run of every box.
///
/// # Safety
/// The boxes are inside both sides, and nobody else uses them in a way that conflicts.
unsafe fn copy_runs(src: *const u8, dst: *mut u8, boxes: &[CopyBox]) {
    for copy in boxes {
        copy.for_each_run(|from, to| {
            let (from, to) = (src.wrapping_add(from as usize), dst.wrapping_add(to as usize));
            // SAFETY: as the caller promises.
            unsafe { ptr::copy_nonoverlapping(from, to, copy.run as usize) };
        });
    }
}

// SAFETY: a handle is the address of a block that is zeroed, this driver's alone, and there until its release;
// every list is copied, byte for byte, before its call returns, so that all tickets are done.
unsafe impl DeviceDriver for Heap {
    type Error = HeapError;
    type Memory = Memory;

    fn id(&self) -> DriverId {
        self.id
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn allocate(&self, bytes: u64, _: Contents) -> Result<Allocation<Memory>, HeapError> {
        Ok(Allocation { memory: self.take(bytes)?, ready: Ticket::DONE })
    }

    fn storage(&self, bytes: u64) -> Result<Storage<Memory>, HeapError> {
        let memory = self.take(bytes)?;
        Ok(Storage { memory, host: memory.0.cast(), shared: false })
    }

    unsafe fn release(&self, memory: Memory, _: &[Ticket]) {
        if let Some(words) = self.blocks().remove(&memory.at(0).addr()) {
            let block = ptr::slice_from_raw_parts_mut(memory.0.as_ptr(), words);
            // SAFETY: leaked by `take` with this length, and taken out of the table: freed once.
            drop(unsafe { Box::from_raw(block) });
        }
    }

    unsafe fn upload(
        &self,
        src: *const u8,
        dst: Memory,
        boxes: &[CopyBox],
        _: &[Ticket],
    ) -> Result<Ticket, HeapError> {
        // SAFETY: the caller's promises.
        unsafe { copy_runs(src, dst.at(0), boxes) };
        Ok(Ticket::DONE)
    }

    unsafe fn download(
        &self,
        src: Memory,
        dst: *mut u8,
        boxes: &[CopyBox],
        _: &[Ticket],
        _: Duration,
    ) -> Result<(), HeapError> {
        // SAFETY: the caller's promises.
        unsafe { copy_runs(src.at(0), dst, boxes) };
        Ok(())
    }

    unsafe fn copy(
        &self,
        src: Memory,
        dst: Memory,
        boxes: &[CopyBox],
        _: &[Ticket],
    ) -> Result<Ticket, HeapError> {
        // SAFETY: the caller's promises.
        unsafe { copy_runs(src.at(0), dst.at(0), boxes) };
        Ok(Ticket::DONE)
    }

    unsafe fn fill(
        &self,
        dst: Memory,
        boxes: &[CopyBox],
        value: &[u8],
        _: &[Ticket],
    ) -> Result<Ticket, HeapError> {
        for fill in boxes {
            fill.for_each_run(|_, to| {
                for (at, byte) in (to..to + fill.run).zip(value.iter().cycle()) {
                    // SAFETY: the caller's promises.
                    unsafe { dst.at(at).write(*byte) };
                }
            });
        }
        Ok(Ticket::DONE)
    }

    fn flush(&self) -> Result<(), HeapError> {
        Ok(())
    }

    fn poll(&self, _: Ticket) -> Result<bool, HeapError> {
        Ok(true)
    }

    fn wait(&self, _: Ticket, _: Duration) -> Result<(), HeapError> {
        Ok(())
    }
}

// SAFETY: host kernels reach memory only through accessors that check against their windows, and refuse
// before they have written.
unsafe impl ComputeDriver for Heap {
    type Kernel = HostKernel;

    fn load_kernel(&self, source: &KernelSource<'_>) -> Result<HostKernel, HeapError> {
        let host = |form: &Form<'_>| match form {
            Form::Host(kernel) => Some(*kernel),
            _ => None,
        };
        source.forms.iter().find_map(host).ok_or(HeapError::NoForm)
    }

    unsafe fn dispatch(
        &self,
        kernel: &HostKernel,
        dispatch: &Dispatch<'_, Memory>,
        _: &[Ticket],
    ) -> Result<Ticket, HeapError> {
        let bind = |view: &Binding<Memory>| view.with_memory(view.memory.at(view.offset));
        let views: Vec<_> = dispatch.views.iter().map(bind).collect();
        // SAFETY: the windows are valid and free of conflicting use, as the caller promises.
        let ran = unsafe { HostCall::run(*kernel, &views, dispatch.params) };
        ran.map_err(HeapError::Kernel)?;
        Ok(Ticket::DONE)
    }
}

/// By value, so that the suite can take one for each trial.
impl Device for Heap {
    type Driver = Self;

    fn driver(&self) -> &Self {
        self
    }
}

#[derive(Debug)]
enum HeapError {
    TooLarge,
    NoForm,
    Kernel(KernelError),
}

impl DriverError for HeapError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::TooLarge => ErrorKind::TooLarge,
            Self::NoForm => ErrorKind::Unsupported,
            Self::Kernel(_) => ErrorKind::Other,
        }
    }
}

impl std::error::Error for HeapError {}

impl fmt::Display for HeapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(error) => error.fmt(f),
            error => error.kind().fmt(f),
        }
    }
}

fn main() -> ExitCode {
    let blocks_are_gone = |heap: &Heap| match heap.blocks().len() {
        0 => Ok(()),
        left => Err(format!("{left} blocks are left")),
    };
    let suite: Suite<_> = Suite::new("heap", |_| Ok(Heap::new())).finish(blocks_are_gone);
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), suite.trials()).exit_code()
}
