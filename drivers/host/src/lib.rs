//! A [`hedgerow`] driver whose device is the host itself.
//!
//! Its device memory is apart from the memory it is copied from and to, so a transfer that was forgotten
//! shows in results as it would on a GPU. It serves tests, machines without a GPU, and
//! microcontrollers, where the "device" is a second bank of memory.
//!
//! ```
//! # #[cfg(feature = "std")] {
//! use hedgerow_host::Host;
//!
//! let host = Host::new();                              // as much memory as there is
//! let small = Host::with_capacity(1 << 20);            // a budget of 1 MiB
//! let strict = Host::new().name("strict").bind_align(256).max_binding(128 << 20);
//! # }
//! // Without the feature `std`:
//! # use hedgerow_host::Host;
//! let mut arena = [0u8; 4096];
//! let lent = Host::in_arena(&mut arena);
//! ```
//!
//! # What it does
//!
//! * **Everything is done when a call returns.** Tickets are of one lane, count up from one, and are
//!   done. Nothing is locked while bytes are copied or a kernel runs: threads work on disjoint boxes at
//!   once, on their own cores.
//! * **Stale use shows.** Memory is [`POISON`] when it is released, and when it is handed out undefined.
//! * **It can pretend.** Unified memory, alignments and limits are options, so that paths of stricter
//!   devices run on it. In debug builds it checks what the core should have: that handles are live, boxes
//!   inside, offsets aligned.
//! * **Kernels** are Rust functions ([`Form::Host`]), called once for a dispatch, on the caller's thread.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `std` | memory from the global allocator: [`Host::new`](Host), `Host::with_capacity` |
//!
//! Without it the crate needs neither `std` nor `alloc`, and an arena holds up to 32 allocations.
#![no_std]

#[cfg(feature = "std")]
extern crate std;

mod error;
mod pool;

pub use error::HostError;
pub use pool::HostMemory;

use core::mem::MaybeUninit;
use core::ptr;
use core::slice;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use hedgerow::driver::{
    Allocation, Binding, Caps, ComputeDriver, Contents, CopyBox, Device, DeviceDriver, Dispatch,
    DriverId, DropError, DropLog, Form, HostCall, HostKernel, KernelSource, Storage, Ticket,
};

use pool::{Arena, Pool};

/// What released and undefined memory is filled with.
pub const POISON: u8 = 0xA5;

/// The most views that a kernel can be given.
pub const MAX_VIEWS: usize = 8;

/// The host as a device. See the [crate](self).
#[derive(Debug)]
pub struct Host<'a> {
    id: DriverId,
    caps: Caps,
    /// Invariant: set once, never cleared.
    lost: AtomicBool,
    drops: DropLog,
    state: spin::Mutex<State<'a>>,
}

#[derive(Debug)]
struct State<'a> {
    pool: Pool<'a>,
    /// The last allocation's number.
    serial: u32,
    /// The last ticket's value: all up to it are done.
    ticket: u64,
    used: u64,
    peak: u64,
}

#[cfg(feature = "std")]
impl Host<'static> {
    /// A device with as much memory as the global allocator gives.
    pub fn new() -> Self {
        Self::from_pool(Pool::Heap(pool::heap::Heap::new(isize::MAX as usize)))
    }

    /// A device with `bytes` bytes of memory, from the global allocator as it is needed.
    pub fn with_capacity(bytes: usize) -> Self {
        Self::from_pool(Pool::Heap(pool::heap::Heap::new(bytes)))
    }
}

#[cfg(feature = "std")]
impl Default for Host<'static> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Host<'a> {
    /// A device whose memory is `memory`, in up to 32 allocations. Each starts at a multiple of 64 bytes.
    pub fn in_arena(memory: &'a mut [u8]) -> Self {
        let bytes = memory.len();
        // SAFETY: same address, length, element size and lifetime. The slice stays private, and what is
        // written there is initialized bytes (zeroes, poison, the callers' plain data): the caller gets
        // valid `u8`s back.
        Self::in_uninit(unsafe { slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), bytes) })
    }

    /// As [`in_arena`](Self::in_arena), in memory that nobody has written.
    pub fn in_uninit(memory: &'a mut [MaybeUninit<u8>]) -> Self {
        Self::from_pool(Pool::Arena(Arena::new(memory)))
    }

    fn from_pool(pool: Pool<'a>) -> Self {
        let mut caps = Caps::new("host");
        caps.max_allocation = pool.limit() as u64;
        caps.max_views = MAX_VIEWS as u32;
        caps.storage_survives_loss = true;
        let state = State { pool, serial: 0, ticket: 0, used: 0, peak: 0 };
        Self {
            id: DriverId::unique(),
            caps,
            lost: AtomicBool::new(false),
            drops: DropLog::new(),
            state: spin::Mutex::new(state),
        }
    }

    /// Another name, cut at 64 bytes.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.caps.name = Caps::new(name).name;
        self
    }

    /// Whether kernels run on storage itself (unified memory) instead of on a copy. They do not unless
    /// asked to.
    #[must_use]
    pub fn unified(mut self, unified: bool) -> Self {
        self.caps.unified = unified;
        self
    }

    /// Asks for copies at multiples of `bytes`, which the core may or may not respect.
    #[must_use]
    pub fn copy_align(mut self, bytes: u32) -> Self {
        self.caps.copy_align = bytes.max(1);
        self
    }

    /// Insists on bindings at multiples of `bytes`, a power of two.
    #[must_use]
    pub fn bind_align(mut self, bytes: u32) -> Self {
        self.caps.bind_align = bytes.max(1);
        self
    }

    /// Insists on windows of at most `bytes`.
    #[must_use]
    pub fn max_binding(mut self, bytes: u64) -> Self {
        self.caps.max_binding = bytes;
        self
    }

    /// Insists on allocations of at most `bytes`.
    #[must_use]
    pub fn max_allocation(mut self, bytes: u64) -> Self {
        self.caps.max_allocation = self.caps.max_allocation.min(bytes);
        self
    }

    /// Whether to copy from one such device to another without a detour. It does not unless asked to.
    #[must_use]
    pub fn peer_copies(mut self, direct: bool) -> Self {
        self.caps.peer_copies = direct;
        self
    }

    /// Whether to claim that storage keeps its bytes in a loss. It does, so it says so unless asked
    /// not to.
    #[must_use]
    pub fn storage_survives_loss(mut self, survives: bool) -> Self {
        self.caps.storage_survives_loss = survives;
        self
    }

    /// Pretends that the device is lost, for good: every later call that needs it says so.
    pub fn simulate_loss(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Bytes allocated now, storage among them.
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().used
    }

    /// The most bytes that were allocated at once.
    pub fn peak_bytes(&self) -> u64 {
        self.state.lock().peak
    }

    /// Allocations and storages that were not released.
    pub fn live_allocations(&self) -> usize {
        self.state.lock().pool.live().len()
    }

    /// Takes the oldest error out that a tree met in its `Drop`. The last four are kept.
    pub fn take_drop_error(&self) -> Option<DropError> {
        self.drops.take()
    }

    /// Takes out the errors that trees met in `Drop`, oldest first.
    pub fn drop_errors(&self) -> impl Iterator<Item = DropError> {
        core::iter::from_fn(|| self.drops.take())
    }

    fn alive(&self) -> Result<(), HostError> {
        if self.lost.load(Ordering::Acquire) { Err(HostError::DeviceLost) } else { Ok(()) }
    }

    /// Names work that is done. Called when it is: so all lower tickets are done too.
    fn ticket(&self) -> Ticket {
        let mut state = self.state.lock();
        state.ticket += 1;
        Ticket { lane: 0, value: state.ticket }
    }

    fn take(&self, bytes: u64, contents: Contents) -> Result<HostMemory, HostError> {
        self.alive()?;
        let bytes = bytes.max(1);
        let limit = self.caps.max_allocation;
        let too_large = HostError::TooLarge { bytes, limit };
        if bytes > limit {
            return Err(too_large);
        }
        let length = usize::try_from(bytes).map_err(|_| too_large)?;
        let fresh = {
            let mut state = self.state.lock();
            let serial = state.serial.wrapping_add(1);
            let fresh = state.pool.take(length, serial)?;
            state.serial = serial;
            state.used += bytes;
            state.peak = state.peak.max(state.used);
            fresh
        };
        let value = match contents {
            Contents::Zeroed if fresh.zeroed => return Ok(fresh.memory),
            Contents::Zeroed => 0,
            Contents::Undefined => POISON,
        };
        // SAFETY: the pool has just given us these bytes, and nobody else knows them yet.
        unsafe { ptr::write_bytes(fresh.memory.start.as_ptr(), value, length) };
        Ok(fresh.memory)
    }

    /// Where a byte of `memory` is. The caller has been promised that `offset` is inside.
    fn at(memory: HostMemory, offset: u64) -> *mut u8 {
        memory.start.as_ptr().wrapping_add(offset as usize)
    }

    /// In debug builds, checks what the callers of the driver's unsafe methods promise.
    fn check(&self, memory: HostMemory, sides: impl IntoIterator<Item = core::ops::Range<u64>>) {
        if cfg!(debug_assertions) {
            let live = self.state.lock().pool.live().contains(&memory);
            assert!(live, "{memory:?} is not live on this device");
            for side in sides {
                let inside = side.start <= side.end && side.end <= memory.bytes as u64;
                assert!(inside, "bytes {side:?} are not inside {memory:?}");
            }
        }
    }

    /// In debug builds, checks that tickets to follow can be this device's.
    fn check_after(&self, after: &[Ticket]) {
        if cfg!(debug_assertions) {
            let last = self.state.lock().ticket;
            for ticket in after {
                let ours = ticket.lane == 0 && ticket.value <= last;
                assert!(ours, "ticket {ticket} is not ours");
            }
        }
    }
}

fn src_side(copy: &CopyBox) -> core::ops::Range<u64> {
    copy.bounds().0
}

fn dst_side(copy: &CopyBox) -> core::ops::Range<u64> {
    copy.bounds().1
}

/// Copies every run of every box.
///
/// # Safety
/// Every box lies inside what `src` is valid to read and `dst` is valid to write; nobody else writes the
/// former or touches the latter during the call, and the two do not overlap.
unsafe fn copy_boxes(src: *const u8, dst: *mut u8, boxes: &[CopyBox]) {
    for copy in boxes {
        copy.for_each_run(|from, to| {
            let (from, to) = (src.wrapping_add(from as usize), dst.wrapping_add(to as usize));
            // SAFETY: a run lies inside its box, for which the caller promises all of this.
            unsafe { ptr::copy_nonoverlapping(from, to, copy.run as usize) };
        });
    }
}

/// Fills `run` bytes from `to` with repetitions of `value`.
///
/// # Safety
/// The bytes are valid to write, and nobody else touches them; `value` is no part of them.
unsafe fn fill_run(to: *mut u8, run: usize, value: &[u8]) {
    // The bytes written so far are copied behind themselves: few, ever longer copies.
    let mut done = value.len().min(run);
    // SAFETY: at most `run` bytes, apart from `value`.
    unsafe { ptr::copy_nonoverlapping(value.as_ptr(), to, done) };
    while done > 0 && done < run {
        let next = done.min(run - done);
        // SAFETY: `done + next <= run`, and the two parts lie side by side.
        unsafe { ptr::copy_nonoverlapping(to, to.wrapping_add(done), next) };
        done += next;
    }
}

// SAFETY:
// * A handle names a block that the pool keeps from all others until `release` gives it back (its
//   invariant); `take` zeroes it before handing it out; a storage's address is the block's.
// * Copies and fills write the runs of their boxes and nothing else, during the call: so `after` is done
//   before (its tickets were returned by calls that were), tickets are done when returned, host bytes are
//   touched only during calls, and no wait takes time.
// * Visibility to other threads: a ticket is made under the lock after its work, and the thread that
//   follows it got it from there by the core's own synchronization.
// * `lost` is checked first, by every call that needs the device. A refused call has done nothing.
// * The pool frees what is left with the driver; nothing runs then, since all work was done in calls.
unsafe impl DeviceDriver for Host<'_> {
    type Error = HostError;
    type Memory = HostMemory;

    fn id(&self) -> DriverId {
        self.id
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn allocate(
        &self,
        bytes: u64,
        contents: Contents,
    ) -> Result<Allocation<HostMemory>, HostError> {
        let memory = self.take(bytes, contents)?;
        Ok(Allocation { memory, ready: self.ticket() })
    }

    fn storage(&self, bytes: u64) -> Result<Storage<HostMemory>, HostError> {
        let memory = self.take(bytes, Contents::Zeroed)?;
        Ok(Storage { memory, host: memory.start, shared: self.caps.unified })
    }

    fn alignment(&self, _: HostMemory) -> u64 {
        pool::ALIGN as u64
    }

    unsafe fn release(&self, memory: HostMemory, after: &[Ticket]) {
        self.check(memory, []);
        self.check_after(after);
        // SAFETY: the memory is live and its last user has given it up, as the caller promises; all of
        // `after` is done.
        unsafe { ptr::write_bytes(memory.start.as_ptr(), POISON, memory.bytes) };
        let mut state = self.state.lock();
        if state.pool.give(memory) {
            state.used -= memory.bytes as u64;
        }
    }

    unsafe fn upload(
        &self,
        src: *const u8,
        dst: HostMemory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Result<Ticket, HostError> {
        self.alive()?;
        self.check_after(after);
        self.check(dst, boxes.iter().map(dst_side));
        // SAFETY: the caller's promises; borrowed memory is not the pool's, or another block of it.
        unsafe { copy_boxes(src, Self::at(dst, 0), boxes) };
        Ok(self.ticket())
    }

    unsafe fn download(
        &self,
        src: HostMemory,
        dst: *mut u8,
        boxes: &[CopyBox],
        after: &[Ticket],
        _timeout: Duration,
    ) -> Result<(), HostError> {
        self.alive()?;
        self.check_after(after);
        self.check(src, boxes.iter().map(src_side));
        // SAFETY: as in `upload`.
        unsafe { copy_boxes(Self::at(src, 0), dst, boxes) };
        Ok(())
    }

    unsafe fn copy(
        &self,
        src: HostMemory,
        dst: HostMemory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Result<Ticket, HostError> {
        self.alive()?;
        self.check_after(after);
        self.check(src, boxes.iter().map(src_side));
        self.check(dst, boxes.iter().map(dst_side));
        // SAFETY: the caller's promises, which cover boxes inside one memory too.
        unsafe { copy_boxes(Self::at(src, 0), Self::at(dst, 0), boxes) };
        Ok(self.ticket())
    }

    unsafe fn copy_from(
        &self,
        peer: &Self,
        src: HostMemory,
        dst: HostMemory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Option<Result<Ticket, HostError>> {
        if !self.caps.peer_copies || peer.alive().is_err() {
            return None;
        }
        if let Err(error) = self.alive() {
            return Some(Err(error));
        }
        self.check_after(after);
        peer.check(src, boxes.iter().map(src_side));
        self.check(dst, boxes.iter().map(dst_side));
        // SAFETY: the caller's promises; the memories are of two pools.
        unsafe { copy_boxes(Self::at(src, 0), Self::at(dst, 0), boxes) };
        Some(Ok(self.ticket()))
    }

    unsafe fn fill(
        &self,
        dst: HostMemory,
        boxes: &[CopyBox],
        value: &[u8],
        after: &[Ticket],
    ) -> Result<Ticket, HostError> {
        self.alive()?;
        self.check_after(after);
        self.check(dst, boxes.iter().map(dst_side));
        for fill in boxes {
            fill.for_each_run(|_, to| {
                // SAFETY: the run is inside and free of other use, as the caller promises.
                unsafe { fill_run(Self::at(dst, to), fill.run as usize, value) };
            });
        }
        Ok(self.ticket())
    }

    fn flush(&self) -> Result<(), HostError> {
        self.alive()
    }

    fn poll(&self, _ticket: Ticket) -> Result<bool, HostError> {
        self.alive()?;
        Ok(true)
    }

    fn wait(&self, ticket: Ticket, _timeout: Duration) -> Result<(), HostError> {
        self.poll(ticket).map(drop)
    }

    fn report_drop(&self, error: DropError) {
        self.drops.push(error);
    }
}

// SAFETY: a kernel is a safe function that reaches memory only through the accessors of `HostCall`, which
// check against the views' geometry; it is called once, and one that refuses says so before it writes
// (`HostKernel`).
unsafe impl ComputeDriver for Host<'_> {
    type Kernel = HostKernel;

    fn load_kernel(&self, source: &KernelSource<'_>) -> Result<HostKernel, HostError> {
        self.alive()?;
        if source.views > MAX_VIEWS {
            return Err(HostError::Views { given: source.views, limit: MAX_VIEWS });
        }
        let host = |form: &Form<'_>| match form {
            Form::Host(kernel) => Some(*kernel),
            _ => None,
        };
        source.forms.iter().find_map(host).ok_or(HostError::NoForm)
    }

    unsafe fn dispatch(
        &self,
        kernel: &HostKernel,
        dispatch: &Dispatch<'_, HostMemory>,
        after: &[Ticket],
    ) -> Result<Ticket, HostError> {
        self.alive()?;
        self.check_after(after);
        let mut views = heapless::Vec::<Binding<*mut u8>, MAX_VIEWS>::new();
        for view in dispatch.views {
            let window = view.offset..view.offset.saturating_add(view.bytes);
            self.check(view.memory, [window]);
            debug_assert!(view.bytes <= self.caps.max_binding, "{view:?} is over the limit");
            debug_assert!(
                view.offset.is_multiple_of(u64::from(self.caps.bind_align)),
                "{view:?} is not aligned"
            );
            let given = dispatch.views.len();
            let start = Self::at(view.memory, view.offset);
            let pushed = views.push(view.with_memory(start));
            pushed.map_err(|_| HostError::Views { given, limit: MAX_VIEWS })?;
        }
        // SAFETY: the windows are inside live memory, whose every byte was written when it was handed
        // out, and free of conflicting use for the whole call, as the caller promises.
        let ran = unsafe { HostCall::run(*kernel, &views, dispatch.params) };
        ran.map_err(HostError::Kernel)?;
        Ok(self.ticket())
    }
}

impl Device for Host<'_> {
    type Driver = Self;

    fn driver(&self) -> &Self {
        self
    }
}
