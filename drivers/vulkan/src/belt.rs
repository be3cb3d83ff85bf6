//! Short-lived host-visible memory: chunks that are filled front to back, and used again once the last
//! ticket that uses them is done.
//!
//! **Invariant:** a chunk's bytes are handed out once between two resets, and it is reset only when nobody
//! holds a lease of it (`pins` is zero) and its last ticket is done. So a lease's bytes belong to its holder
//! until it is returned, then to the device until its ticket is done.

use ash::vk;

use crate::error::Result;
use crate::memory::{Block, Heaps, Place};
use crate::raw::{Atoms, Raw, Window};

/// A piece of a chunk. Given back by [`Belt::give_back`], never dropped on the way.
#[must_use = "a lease that is not given back pins its chunk"]
#[derive(Debug)]
pub(crate) struct Lease {
    chunk: usize,
    pub(crate) buffer: vk::Buffer,
    /// Where it starts in the buffer.
    pub(crate) offset: u64,
    /// Bytes asked for.
    pub(crate) bytes: u64,
    /// Where the host sees its first byte.
    host: *mut u8,
    atoms: Option<Atoms>,
}

// SAFETY: `host` points into mapped memory that nobody else touches while the lease is held (the module's
// invariant), whichever thread holds it.
unsafe impl Send for Lease {}

impl Lease {
    /// Copies `bytes` bytes to byte `at` of the lease.
    ///
    /// # Safety
    /// `src` is valid for reading them.
    pub(crate) unsafe fn write(&self, at: u64, src: *const u8, bytes: u64) {
        debug_assert!(at + bytes <= self.bytes);
        let dst = self.host.wrapping_add(at as usize);
        // SAFETY: the source is the caller's promise; the destination is inside the lease, which is ours
        // alone (the module's invariant), so the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, bytes as usize) };
    }

    /// Copies a slice to byte `at` of the lease.
    pub(crate) fn write_slice(&self, at: u64, bytes: &[u8]) {
        // SAFETY: a slice is valid for reads.
        unsafe { self.write(at, bytes.as_ptr(), bytes.len() as u64) };
    }

    /// Copies `bytes` bytes from byte `at` of the lease.
    ///
    /// # Safety
    /// `dst` is valid for writing them, and the device has written them.
    pub(crate) unsafe fn read(&self, at: u64, dst: *mut u8, bytes: u64) {
        debug_assert!(at + bytes <= self.bytes);
        let src = self.host.wrapping_add(at as usize);
        // SAFETY: the destination is the caller's promise, and so is that the source is initialized; it is
        // inside the lease, which the device is done with.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, bytes as usize) };
    }

    /// Call after writing, before the device reads.
    pub(crate) fn flush(&self, raw: &Raw) -> Result<()> {
        self.atoms.map_or(Ok(()), |atoms| raw.flush(atoms))
    }

    /// Call after the device has written, before reading.
    pub(crate) fn invalidate(&self, raw: &Raw) -> Result<()> {
        self.atoms.map_or(Ok(()), |atoms| raw.invalidate(atoms))
    }

    /// As a descriptor names it, in whole 16 bytes.
    pub(crate) fn window(&self) -> Window {
        let bytes = self.bytes.next_multiple_of(crate::limits::PAD);
        Window { buffer: self.buffer, offset: self.offset, bytes }
    }
}

struct Chunk {
    block: Block,
    used: u64,
    /// Leases out.
    pins: u32,
    /// Value of the last ticket that uses it.
    last: u64,
}

/// Chunks of one size for one purpose.
pub(crate) struct Belt {
    place: Place,
    chunk_bytes: u64,
    most: usize,
    /// Leases start and end at multiples of this: no two share an atom.
    align: u64,
    chunks: Vec<Chunk>,
}

impl Belt {
    pub(crate) fn new(place: Place, chunk_bytes: u64, most: u32, align: u64) -> Self {
        let chunk_bytes = chunk_bytes.next_multiple_of(align);
        Self { place, chunk_bytes, most: most as usize, align, chunks: Vec::new() }
    }

    /// The largest lease there is.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// So many bytes of a batch make it worth submitting, well before the belt is full.
    pub(crate) fn quarter(&self) -> u64 {
        self.chunk_bytes.saturating_mul(self.most as u64) / 4
    }

    /// A piece of `bytes` bytes, or `None` when all chunks are in use and there may be no more.
    pub(crate) fn reserve(
        &mut self,
        raw: &Raw,
        heaps: &mut Heaps,
        bytes: u64,
        completed: u64,
    ) -> Result<Option<Lease>> {
        let span = bytes.max(1).next_multiple_of(self.align);
        debug_assert!(span <= self.chunk_bytes);
        for chunk in &mut self.chunks {
            if chunk.pins == 0 && chunk.last <= completed {
                chunk.used = 0;
            }
        }
        let limit = self.chunk_bytes;
        let place = match self.chunks.iter().position(|chunk| chunk.used + span <= limit) {
            Some(place) => place,
            None if self.chunks.len() >= self.most => return Ok(None),
            None => match heaps.make(raw, limit, self.place) {
                Ok(block) => {
                    self.chunks.push(Chunk { block, used: 0, pins: 0, last: 0 });
                    self.chunks.len() - 1
                }
                // Make do with those there are.
                Err(_) if !self.chunks.is_empty() => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        let chunk = &mut self.chunks[place];
        let offset = chunk.used;
        let host = chunk.block.host.map_or(std::ptr::null_mut(), std::ptr::NonNull::as_ptr);
        chunk.used += span;
        chunk.pins += 1;
        Ok(Some(Lease {
            chunk: place,
            buffer: chunk.block.buffer,
            offset,
            bytes,
            host: host.wrapping_add(offset as usize),
            atoms: chunk.block.flushes.then(|| chunk.block.atoms(offset, span)),
        }))
    }

    /// Notes that the work of this ticket uses the lease, which stays with its holder.
    pub(crate) fn touch(&mut self, lease: &Lease, value: u64) {
        let chunk = &mut self.chunks[lease.chunk];
        chunk.last = chunk.last.max(value);
    }

    /// Takes a lease back from its holder. Work that [`touch`](Self::touch) named may go on using it.
    pub(crate) fn give_back(&mut self, lease: Lease) {
        let chunk = &mut self.chunks[lease.chunk];
        chunk.pins -= 1;
    }

    /// The ticket after which a chunk is free that nobody holds.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.chunks.iter().filter(|chunk| chunk.pins == 0).map(|chunk| chunk.last).min()
    }

    /// Takes everything out, in use or not.
    pub(crate) fn drain(&mut self) -> Vec<Block> {
        self.chunks.drain(..).map(|chunk| chunk.block).collect()
    }
}
