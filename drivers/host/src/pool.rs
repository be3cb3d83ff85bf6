//! Where memory comes from: a lent arena, or the global allocator.

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use crate::error::HostError;

/// Every allocation starts at a multiple of this many bytes: the largest alignment of plain data that a
/// kernel is likely to see (a 512-bit vector).
pub(crate) const ALIGN: usize = 64;

/// How many allocations an arena keeps account of.
pub(crate) const BLOCKS: usize = 32;

/// Names an allocation. The driver keeps the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostMemory {
    pub(crate) start: NonNull<u8>,
    pub(crate) bytes: usize,
    /// Tells allocations apart that had the same place, one after the other.
    pub(crate) serial: u32,
}

// SAFETY: a name gives no access; the driver's unsafe methods do, whose callers promise what threads need.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

/// Fresh memory that nobody else has.
pub(crate) struct Fresh {
    pub(crate) memory: HostMemory,
    pub(crate) zeroed: bool,
}

/// Takes memory and gives it back. It never touches the bytes.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // one for each device, and an arena has no heap to box in
pub(crate) enum Pool<'a> {
    Arena(Arena<'a>),
    #[cfg(feature = "std")]
    Heap(heap::Heap),
}

impl Pool<'_> {
    /// Bytes there are.
    pub(crate) fn limit(&self) -> usize {
        match self {
            Self::Arena(arena) => arena.bytes,
            #[cfg(feature = "std")]
            Self::Heap(heap) => heap.limit,
        }
    }

    pub(crate) fn live(&self) -> &[HostMemory] {
        match self {
            Self::Arena(arena) => &arena.live,
            #[cfg(feature = "std")]
            Self::Heap(heap) => &heap.live,
        }
    }

    pub(crate) fn take(&mut self, bytes: usize, serial: u32) -> Result<Fresh, HostError> {
        match self {
            Self::Arena(arena) => Ok(Fresh { memory: arena.take(bytes, serial)?, zeroed: false }),
            #[cfg(feature = "std")]
            Self::Heap(heap) => Ok(Fresh { memory: heap.take(bytes, serial)?, zeroed: true }),
        }
    }

    /// Frees live memory; what is not live is left alone, and answered `false`.
    pub(crate) fn give(&mut self, memory: HostMemory) -> bool {
        match self {
            Self::Arena(arena) => arena.give(memory),
            #[cfg(feature = "std")]
            Self::Heap(heap) => heap.give(memory),
        }
    }
}

/// First fit in lent memory. Holes are what lies between live blocks, so they coalesce by themselves.
///
/// Invariant: `live` is sorted by address; its blocks are disjoint, not empty, start at multiples of
/// [`ALIGN`], and lie in the `bytes` bytes from `base`, which are ours alone for `'a`.
#[derive(Debug)]
pub(crate) struct Arena<'a> {
    base: NonNull<u8>,
    bytes: usize,
    live: heapless::Vec<HostMemory, BLOCKS>,
    lent: PhantomData<&'a mut [MaybeUninit<u8>]>,
}

// SAFETY: the arena is an exclusive borrow of bytes, which may move between threads.
unsafe impl Send for Arena<'_> {}

impl<'a> Arena<'a> {
    pub(crate) fn new(memory: &'a mut [MaybeUninit<u8>]) -> Self {
        let bytes = memory.len();
        let base = NonNull::from(memory).cast::<u8>();
        Self { base, bytes, live: heapless::Vec::new(), lent: PhantomData }
    }

    fn take(&mut self, bytes: usize, serial: u32) -> Result<HostMemory, HostError> {
        // Addresses, rounded up; beyond the end where that overflows.
        let aligned = |at: usize| at.checked_next_multiple_of(ALIGN).unwrap_or(usize::MAX);
        let base = self.base.addr().get();
        let end = base + self.bytes;
        let mut at = aligned(base);
        let limit = end.saturating_sub(at);
        if bytes > limit {
            return Err(HostError::TooLarge { bytes: bytes as u64, limit: limit as u64 });
        }
        if self.live.is_full() {
            return Err(HostError::TableFull { blocks: BLOCKS });
        }
        let mut largest = 0;
        let ends = self.live.iter().map(|block| (block.start.addr().get(), block.bytes));
        let mut found = None;
        for (index, (start, length)) in ends.chain([(end, 0)]).enumerate() {
            let hole = start.saturating_sub(at);
            if hole >= bytes {
                found = Some(index);
                break;
            }
            largest = largest.max(hole);
            at = aligned(start + length);
        }
        let full = HostError::OutOfMemory { bytes: bytes as u64, largest: largest as u64 };
        let index = found.ok_or(full)?;
        let start = NonNull::new(self.base.as_ptr().wrapping_add(at - base)).ok_or(full)?;
        let memory = HostMemory { start, bytes, serial };
        self.live.insert(index, memory).map_err(|_| full)?;
        Ok(memory)
    }

    fn give(&mut self, memory: HostMemory) -> bool {
        let Some(index) = self.live.iter().position(|block| *block == memory) else {
            return false;
        };
        self.live.remove(index);
        true
    }
}

#[cfg(feature = "std")]
pub(crate) mod heap {
    //! Memory from the global allocator.

    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;
    use std::vec::Vec;

    use super::{ALIGN, HostMemory};
    use crate::error::HostError;

    /// Invariant: each block of `live` came from `alloc_zeroed` with [`layout`] of its bytes, and is not
    /// yet freed; together they have `used` bytes, at most `limit`.
    #[derive(Debug)]
    pub(crate) struct Heap {
        pub(crate) limit: usize,
        pub(crate) live: Vec<HostMemory>,
        used: usize,
    }

    impl Heap {
        pub(crate) const fn new(limit: usize) -> Self {
            Self { limit, live: Vec::new(), used: 0 }
        }

        pub(super) fn take(&mut self, bytes: usize, serial: u32) -> Result<HostMemory, HostError> {
            let too_large = HostError::TooLarge { bytes: bytes as u64, limit: self.limit as u64 };
            if bytes > self.limit {
                return Err(too_large);
            }
            let layout = layout(bytes).ok_or(too_large)?;
            let largest = (self.limit - self.used) as u64;
            let full = HostError::OutOfMemory { bytes: bytes as u64, largest };
            if bytes > self.limit - self.used || self.live.try_reserve(1).is_err() {
                return Err(full);
            }
            // SAFETY: the layout's size is not zero.
            let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(full)?;
            let memory = HostMemory { start, bytes, serial };
            self.live.push(memory);
            self.used += bytes;
            Ok(memory)
        }

        pub(super) fn give(&mut self, memory: HostMemory) -> bool {
            let Some(index) = self.live.iter().position(|block| *block == memory) else {
                return false;
            };
            free(self.live.swap_remove(index));
            self.used -= memory.bytes;
            true
        }
    }

    impl Drop for Heap {
        fn drop(&mut self) {
            self.live.drain(..).for_each(free);
        }
    }

    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes.max(1), ALIGN).ok()
    }

    /// Frees a block that was just taken out of `live`.
    fn free(memory: HostMemory) {
        if let Some(layout) = layout(memory.bytes) {
            // SAFETY: by the invariant it came from the allocator with this layout, and is freed once:
            // it is in `live` no more.
            unsafe { dealloc(memory.start.as_ptr(), layout) };
        }
    }

    // SAFETY: the blocks are the heap's own, and memory may be freed by any thread.
    unsafe impl Send for Heap {}
}
