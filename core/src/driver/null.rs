//! The skeleton of a driver: every method is there, and there is no memory.
//!
//! [`Null`] has the shape that the traits ask for and nothing else. It cannot promise that copies take
//! effect, so it hands out no memory to copy: [`allocate`](DeviceDriver::allocate) and
//! [`storage`](DeviceDriver::storage) answer [`ErrorKind::Unsupported`], and its handles are a type
//! without values. Its other methods are thereby unreachable, and its promises hold because there is
//! nothing they could be broken with. It is also what a program can be built against before its backend
//! exists.
//!
//! # Null made real
//!
//! To write a backend, copy this file and give the types values. Here is the smallest complete one, which
//! keeps its device memory in a fixed array and has done everything when a call returns. A GPU's driver
//! differs in that it records, returns the [`Ticket`] of its queue, and waits in
//! [`download`](DeviceDriver::download) and [`wait`](DeviceDriver::wait).
//!
//! ```
//! use core::cell::UnsafeCell;
//! use core::fmt;
//! use core::ptr::{self, NonNull};
//! use core::sync::atomic::{AtomicBool, Ordering};
//! use core::time::Duration;
//! use hedgerow::driver::*;
//!
//! const BYTES: usize = 4096;
//!
//! /// One block of device memory, taken or free.
//! #[repr(align(16))]
//! struct Block {
//!     bytes: UnsafeCell<[u8; BYTES]>,
//!     taken: AtomicBool,
//! }
//!
//! /// A device with four blocks of memory.
//! pub struct Tiny {
//!     id: DriverId,
//!     caps: Caps,
//!     blocks: [Block; 4],
//! }
//!
//! // SAFETY: a block's bytes are touched only through the driver's unsafe methods, whose callers keep
//! // conflicting uses apart, and by the one thread that has just set `taken`.
//! unsafe impl Sync for Tiny {}
//!
//! /// Which block. Handles are cheap names; the driver keeps what they name.
//! #[derive(Clone, Copy, Debug)]
//! pub struct Memory(usize);
//!
//! impl Tiny {
//!     pub fn new() -> Self {
//!         let block = || Block { bytes: UnsafeCell::new([0; BYTES]), taken: AtomicBool::new(false) };
//!         let mut caps = Caps::new("tiny");
//!         caps.max_allocation = BYTES as u64;
//!         caps.max_views = 4;
//!         Self { id: DriverId::unique(), caps, blocks: [block(), block(), block(), block()] }
//!     }
//!
//!     /// Where a byte of a block is. Offsets are inside: the core has checked.
//!     fn at(&self, memory: Memory, offset: u64) -> *mut u8 {
//!         self.blocks[memory.0].bytes.get().cast::<u8>().wrapping_add(offset as usize)
//!     }
//! }
//!
//! // SAFETY: a block has one live handle at a time, by `taken`; it is zeroed before it is handed out and
//! // freed with the driver; a list's bytes, and no others, are copied before its call returns, so that
//! // every ticket is done, in order, and visible.
//! unsafe impl DeviceDriver for Tiny {
//!     type Error = TinyError;
//!     type Memory = Memory;
//!
//!     fn id(&self) -> DriverId {
//!         self.id
//!     }
//!
//!     fn caps(&self) -> &Caps {
//!         &self.caps
//!     }
//!
//!     fn allocate(&self, bytes: u64, _: Contents) -> Result<Allocation<Memory>, TinyError> {
//!         if bytes > BYTES as u64 {
//!             return Err(TinyError::TooLarge);
//!         }
//!         let free = |block: &Block| !block.taken.swap(true, Ordering::Acquire);
//!         let memory = Memory(self.blocks.iter().position(free).ok_or(TinyError::Full)?);
//!         // SAFETY: the block was free, and is ours since the swap.
//!         unsafe { self.at(memory, 0).write_bytes(0, BYTES) };
//!         Ok(Allocation { memory, ready: Ticket::DONE })
//!     }
//!
//!     fn storage(&self, bytes: u64) -> Result<Storage<Memory>, TinyError> {
//!         let memory = self.allocate(bytes, Contents::Zeroed)?.memory;
//!         let host = NonNull::new(self.at(memory, 0)).ok_or(TinyError::Full)?;
//!         Ok(Storage { memory, host, shared: false })
//!     }
//!
//!     unsafe fn release(&self, memory: Memory, _after: &[Ticket]) {
//!         self.blocks[memory.0].taken.store(false, Ordering::Release);
//!     }
//!
//!     unsafe fn upload(
//!         &self,
//!         src: *const u8,
//!         dst: Memory,
//!         boxes: &[CopyBox],
//!         _after: &[Ticket],
//!     ) -> Result<Ticket, TinyError> {
//!         for copy in boxes {
//!             copy.for_each_run(|from, to| {
//!                 let (from, to) = (src.wrapping_add(from as usize), self.at(dst, to));
//!                 // SAFETY: the caller promises that both are inside, and that nobody else uses them.
//!                 unsafe { ptr::copy_nonoverlapping(from, to, copy.run as usize) }
//!             });
//!         }
//!         Ok(Ticket::DONE)
//!     }
//!
//!     unsafe fn download(
//!         &self,
//!         src: Memory,
//!         dst: *mut u8,
//!         boxes: &[CopyBox],
//!         _after: &[Ticket],
//!         _timeout: Duration,
//!     ) -> Result<(), TinyError> {
//!         for copy in boxes {
//!             copy.for_each_run(|from, to| {
//!                 let (from, to) = (self.at(src, from), dst.wrapping_add(to as usize));
//!                 // SAFETY: as in `upload`.
//!                 unsafe { ptr::copy_nonoverlapping(from, to, copy.run as usize) }
//!             });
//!         }
//!         Ok(())
//!     }
//!
//!     unsafe fn copy(
//!         &self,
//!         src: Memory,
//!         dst: Memory,
//!         boxes: &[CopyBox],
//!         after: &[Ticket],
//!     ) -> Result<Ticket, TinyError> {
//!         // SAFETY: the caller's promises cover the source as they would borrowed memory.
//!         unsafe { self.upload(self.at(src, 0), dst, boxes, after) }
//!     }
//!
//!     unsafe fn fill(
//!         &self,
//!         dst: Memory,
//!         boxes: &[CopyBox],
//!         value: &[u8],
//!         _after: &[Ticket],
//!     ) -> Result<Ticket, TinyError> {
//!         for fill in boxes {
//!             fill.for_each_run(|_, to| {
//!                 for (at, byte) in (to..to + fill.run).zip(value.iter().cycle()) {
//!                     // SAFETY: as in `upload`.
//!                     unsafe { self.at(dst, at).write(*byte) };
//!                 }
//!             });
//!         }
//!         Ok(Ticket::DONE)
//!     }
//!
//!     fn flush(&self) -> Result<(), TinyError> {
//!         Ok(())
//!     }
//!
//!     fn poll(&self, _: Ticket) -> Result<bool, TinyError> {
//!         Ok(true)
//!     }
//!
//!     fn wait(&self, _: Ticket, _: Duration) -> Result<(), TinyError> {
//!         Ok(())
//!     }
//! }
//!
//! // SAFETY: host kernels reach memory only through accessors that check against their windows, and
//! // refuse before they have written.
//! unsafe impl ComputeDriver for Tiny {
//!     type Kernel = HostKernel;
//!
//!     fn load_kernel(&self, source: &KernelSource<'_>) -> Result<HostKernel, TinyError> {
//!         let host = |form: &Form<'_>| match form {
//!             Form::Host(kernel) => Some(*kernel),
//!             _ => None,
//!         };
//!         source.forms.iter().find_map(host).ok_or(TinyError::NoForm)
//!     }
//!
//!     unsafe fn dispatch(
//!         &self,
//!         kernel: &HostKernel,
//!         dispatch: &Dispatch<'_, Memory>,
//!         _after: &[Ticket],
//!     ) -> Result<Ticket, TinyError> {
//!         let bind = |view: &Binding<Memory>| view.with_memory(self.at(view.memory, view.offset));
//!         let views: Vec<_> = dispatch.views.iter().map(bind).collect();
//!         // SAFETY: the windows are valid and free of conflicting use, as the caller promises.
//!         let ran = unsafe { HostCall::run(*kernel, &views, dispatch.params) };
//!         ran.map_err(TinyError::Kernel)?;
//!         Ok(Ticket::DONE)
//!     }
//! }
//!
//! /// By value too, so that a tree can own its device.
//! impl Device for Tiny {
//!     type Driver = Self;
//!
//!     fn driver(&self) -> &Self {
//!         self
//!     }
//! }
//!
//! #[derive(Debug)]
//! pub enum TinyError {
//!     TooLarge,
//!     Full,
//!     NoForm,
//!     Kernel(KernelError),
//! }
//!
//! impl DriverError for TinyError {
//!     fn kind(&self) -> ErrorKind {
//!         match self {
//!             Self::TooLarge => ErrorKind::TooLarge,
//!             Self::Full => ErrorKind::OutOfMemory,
//!             Self::NoForm => ErrorKind::Unsupported,
//!             Self::Kernel(_) => ErrorKind::Other,
//!         }
//!     }
//! }
//!
//! impl core::error::Error for TinyError {}
//!
//! impl fmt::Display for TinyError {
//!     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
//!         match self {
//!             Self::Kernel(error) => error.fmt(f),
//!             error => error.kind().fmt(f),
//!         }
//!     }
//! }
//!
//! // What a tree does with it, by hand: twelve bytes up, two of three elements doubled, twelve down.
//! # use hedgerow::region::PerAxis;
//! # use hedgerow::tree::Mode;
//! fn double(call: &HostCall<'_>) -> Result<(), KernelError> {
//!     let view = call.view::<i32>(0)?;
//!     view.for_each(|at: [i32; 1]| view.set(at, 2 * view.get(at).unwrap_or(0)));
//!     Ok(())
//! }
//! let source = KernelSource {
//!     name: "double",
//!     views: 1,
//!     workgroup: [1, 1, 1],
//!     granule: 1,
//!     forms: &[Form::Host(double)],
//! };
//!
//! let tiny = Tiny::new();
//! let double = tiny.load_kernel(&source)?;
//! let memory = tiny.allocate(12, Contents::Zeroed)?.memory;
//! let (up, mut down) = ([1i32, 2, 3], [0i32; 3]);
//! let all = [CopyBox::flat(0, 0, 12)];
//! let view = Binding {
//!     memory,
//!     offset: 4,
//!     bytes: 8,
//!     geometry: Geometry {
//!         rank: 1,
//!         origin: 0,
//!         min: PerAxis::all(1),
//!         extent: PerAxis::all(2),
//!         stride: PerAxis::all(4),
//!     },
//!     element: 4,
//!     mode: Mode::Update,
//! };
//! let run = Dispatch { views: &[view], params: &[], groups: [1, 1, 1] };
//! // SAFETY: twelve bytes are inside `up`, `down` and `memory`; each call follows the last, and nobody
//! // else has the memory, which is not used after its release.
//! unsafe {
//!     let uploaded = tiny.upload(up.as_ptr().cast(), memory, &all, &[])?;
//!     let doubled = tiny.dispatch(&double, &run, &[uploaded])?;
//!     tiny.download(memory, down.as_mut_ptr().cast(), &all, &[doubled], Duration::from_secs(1))?;
//!     tiny.release(memory, &[doubled]);
//! }
//! assert_eq!(down, [1, 4, 6]);
//! # Ok::<(), TinyError>(())
//! ```

use core::convert::Infallible;
use core::fmt;
use core::time::Duration;

use super::{
    Allocation, Caps, ComputeDriver, Contents, CopyBox, Device, DeviceDriver, Dispatch,
    DriverError, DriverId, ErrorKind, KernelSource, Storage, Ticket,
};

/// A device without memory. See the [module](self).
#[derive(Debug)]
pub struct Null {
    id: DriverId,
    caps: Caps,
}

impl Null {
    /// A device of its own.
    pub fn new() -> Self {
        let mut caps = Caps::new("null");
        caps.max_allocation = 0;
        caps.max_binding = 0;
        caps.max_views = 0;
        Self { id: DriverId::unique(), caps }
    }
}

impl Default for Null {
    fn default() -> Self {
        Self::new()
    }
}

/// The answer to all that [`Null`] is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NullError;

impl DriverError for NullError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Unsupported
    }
}

impl fmt::Display for NullError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the null driver has no memory and runs no kernels")
    }
}

impl core::error::Error for NullError {}

defmt_as_display! { impl NullError; }

// SAFETY: there are no memory handles (`Infallible` has no values), hence none whose bytes or copies any
// promise is about, and no work that a ticket could stand for.
unsafe impl DeviceDriver for Null {
    type Error = NullError;
    // A real driver: a `Copy` name, as an index or an address, for memory that the driver keeps.
    type Memory = Infallible;

    fn id(&self) -> DriverId {
        self.id
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn allocate(&self, _: u64, _: Contents) -> Result<Allocation<Infallible>, NullError> {
        Err(NullError)
    }

    fn storage(&self, _: u64) -> Result<Storage<Infallible>, NullError> {
        Err(NullError)
    }

    unsafe fn release(&self, memory: Infallible, _after: &[Ticket]) {
        match memory {}
    }

    unsafe fn upload(
        &self,
        _src: *const u8,
        dst: Infallible,
        _boxes: &[CopyBox],
        _after: &[Ticket],
    ) -> Result<Ticket, NullError> {
        match dst {}
    }

    unsafe fn download(
        &self,
        src: Infallible,
        _dst: *mut u8,
        _boxes: &[CopyBox],
        _after: &[Ticket],
        _timeout: Duration,
    ) -> Result<(), NullError> {
        match src {}
    }

    unsafe fn copy(
        &self,
        src: Infallible,
        _dst: Infallible,
        _boxes: &[CopyBox],
        _after: &[Ticket],
    ) -> Result<Ticket, NullError> {
        match src {}
    }

    unsafe fn fill(
        &self,
        dst: Infallible,
        _boxes: &[CopyBox],
        _value: &[u8],
        _after: &[Ticket],
    ) -> Result<Ticket, NullError> {
        match dst {}
    }

    fn flush(&self) -> Result<(), NullError> {
        Ok(())
    }

    fn poll(&self, _: Ticket) -> Result<bool, NullError> {
        Ok(true)
    }

    fn wait(&self, _: Ticket, _timeout: Duration) -> Result<(), NullError> {
        Ok(())
    }
}

// SAFETY: no kernel is ever loaded (`Infallible` has no values).
unsafe impl ComputeDriver for Null {
    type Kernel = Infallible;

    fn load_kernel(&self, _: &KernelSource<'_>) -> Result<Infallible, NullError> {
        Err(NullError)
    }

    unsafe fn dispatch(
        &self,
        kernel: &Infallible,
        _dispatch: &Dispatch<'_, Infallible>,
        _after: &[Ticket],
    ) -> Result<Ticket, NullError> {
        match *kernel {}
    }
}

impl Device for Null {
    type Driver = Self;

    fn driver(&self) -> &Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn null_answers_everything() {
        let (null, other) = (Null::new(), Null::default());
        assert_ne!(null.id(), other.id());
        assert_eq!(null.allocate(1, Contents::Zeroed).err(), Some(NullError));
        assert_eq!(null.storage(1).err(), Some(NullError));
        assert_eq!(null.flush(), Ok(()));
        assert_eq!(null.poll(Ticket::DONE), Ok(true));
        assert_eq!(null.wait(Ticket::DONE, Duration::ZERO), Ok(()));
        let source =
            KernelSource { name: "none", views: 0, workgroup: [1; 3], granule: 1, forms: &[] };
        assert!(matches!(null.load(&source), Err(Error::Driver(NullError))));
        assert_eq!(NullError.kind(), ErrorKind::Unsupported);
    }
}
