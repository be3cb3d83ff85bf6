//! Uploads, downloads, copies and fills: lists of strided boxes, executed as one `VkBufferCopy` per run.
//!
//! `vkCmdCopyBuffer` takes any byte offset and size, so exactness needs nothing more. It costs about two
//! microseconds a run on a discrete device, whatever its length; this module is what a gather/scatter kernel
//! would replace.
//!
//! Borrowed host memory goes through staging, packed run after run, in pieces of at most a chunk. A piece's
//! lease is held while the host touches it, and stays untouched by others until its ticket is done.

use std::collections::VecDeque;

use ash::vk;
use hedgerow::driver::{CopyBox, Ticket};
use hedgerow::region::MAX_RANK;

use crate::belt::Lease;
use crate::device::{Deadline, STALL, Shared, State, Which};
use crate::error::Result;
use crate::memory::Memory;
use crate::raw::Raw;

/// Most regions of one copy command.
const REGIONS: usize = 4096;

/// Most runs of one piece, which bounds the host memory a transfer needs.
const PIECE_RUNS: usize = 16 * REGIONS;

/// Longest block of repeated pattern.
const PATTERN_BYTES: u64 = 1 << 20;

/// Contiguous bytes, from a place to a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    src: u64,
    dst: u64,
    bytes: u64,
}

/// The runs of a list of boxes, one after another.
#[derive(Clone)]
struct Runs<'a> {
    boxes: &'a [CopyBox],
    /// Runs of the first box that are left.
    left: u64,
    at: [u32; MAX_RANK],
    src: u64,
    dst: u64,
}

impl<'a> Runs<'a> {
    fn new(boxes: &'a [CopyBox]) -> Self {
        let mut runs = Self { boxes, left: 0, at: [0; MAX_RANK], src: 0, dst: 0 };
        runs.enter();
        runs
    }

    /// Starts with the first box.
    fn enter(&mut self) {
        if let Some(first) = self.boxes.first() {
            self.left = if first.run == 0 { 0 } else { first.runs() };
            self.at = [0; MAX_RANK];
            self.src = first.src;
            self.dst = first.dst;
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let mut first = self.boxes.first()?;
        while self.left == 0 {
            self.boxes = &self.boxes[1..];
            first = self.boxes.first()?;
            self.enter();
        }
        let run = Run { src: self.src, dst: self.dst, bytes: first.run };
        self.left -= 1;
        for (dim, at) in first.dims().iter().zip(&mut self.at) {
            *at += 1;
            self.src = self.src.wrapping_add_signed(dim.src_stride);
            self.dst = self.dst.wrapping_add_signed(dim.dst_stride);
            if *at < dim.count {
                break;
            }
            *at = 0;
            let back = i64::from(dim.count).wrapping_neg();
            self.src = self.src.wrapping_add_signed(dim.src_stride.wrapping_mul(back));
            self.dst = self.dst.wrapping_add_signed(dim.dst_stride.wrapping_mul(back));
        }
        Some(run)
    }
}

/// Cuts runs into pieces of bounded size.
struct Pieces<'a> {
    runs: Runs<'a>,
    /// What is left of a run that was cut.
    rest: Option<Run>,
    most: u64,
}

/// Runs that fit one lease together.
struct Piece {
    runs: Vec<Run>,
    bytes: u64,
}

impl<'a> Pieces<'a> {
    fn new(boxes: &'a [CopyBox], most: u64) -> Self {
        Self { runs: Runs::new(boxes), rest: None, most }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let mut piece = Piece { runs: Vec::new(), bytes: 0 };
        while piece.bytes < self.most && piece.runs.len() < PIECE_RUNS {
            let Some(mut run) = self.rest.take().or_else(|| self.runs.next()) else { break };
            let room = self.most - piece.bytes;
            if run.bytes > room {
                self.rest =
                    Some(Run { src: run.src + room, dst: run.dst + room, bytes: run.bytes - room });
                run.bytes = room;
            }
            piece.bytes += run.bytes;
            piece.runs.push(run);
        }
        (piece.bytes > 0).then_some(piece)
    }
}

impl Piece {
    /// Calls `each` with every run and its place in the packed bytes.
    fn packed(&self) -> impl Iterator<Item = (u64, &Run)> {
        self.runs.iter().scan(0, |at, run| {
            let here = *at;
            *at += run.bytes;
            Some((here, run))
        })
    }
}

/// Copy commands from one buffer to another, a region for each run.
struct Regions<'a> {
    raw: &'a Raw,
    commands: vk::CommandBuffer,
    src: vk::Buffer,
    dst: vk::Buffer,
    list: Vec<vk::BufferCopy>,
}

impl<'a> Regions<'a> {
    fn new(raw: &'a Raw, commands: vk::CommandBuffer, src: vk::Buffer, dst: vk::Buffer) -> Self {
        Self { raw, commands, src, dst, list: Vec::new() }
    }

    fn push(&mut self, src: u64, dst: u64, bytes: u64) {
        self.list.push(vk::BufferCopy { src_offset: src, dst_offset: dst, size: bytes });
        if self.list.len() == REGIONS {
            self.write();
        }
    }

    fn write(&mut self) {
        if !self.list.is_empty() {
            self.raw.cmd_copy(self.commands, self.src, self.dst, &self.list);
            self.list.clear();
        }
    }
}

impl Drop for Regions<'_> {
    fn drop(&mut self) {
        self.write();
    }
}

/// Bytes of one piece.
fn piece_bytes(shared: &Shared) -> u64 {
    shared.lock().belt(Which::Staging).chunk_bytes()
}

/// Copies boxes from host memory, which is read before this returns.
///
/// # Safety
/// As [`DeviceDriver::upload`](hedgerow::driver::DeviceDriver::upload).
pub(crate) unsafe fn upload(
    shared: &Shared,
    src: *const u8,
    dst: Memory,
    boxes: &[CopyBox],
    after: &[Ticket],
) -> Result<Ticket> {
    shared.raw.check()?;
    // SAFETY: the caller's promise.
    let result = unsafe { upload_pieces(shared, src, dst, boxes, after) };
    if result.is_err() {
        // Some pieces may be recorded, and nobody gets a ticket to follow them.
        shared.lock().recorder.fence();
    }
    result
}

/// The pieces of an upload, one after another.
///
/// # Safety
/// As [`upload`].
unsafe fn upload_pieces(
    shared: &Shared,
    src: *const u8,
    dst: Memory,
    boxes: &[CopyBox],
    after: &[Ticket],
) -> Result<Ticket> {
    let mut last = Ticket::DONE;
    for piece in Pieces::new(boxes, piece_bytes(shared)) {
        let lease = shared.reserve(Which::Staging, piece.bytes, Deadline::new(STALL))?;
        for (at, run) in piece.packed() {
            let from = src.wrapping_add(run.src as usize);
            // SAFETY: the run lies inside a box, whose source bytes the caller promises are readable.
            unsafe { lease.write(at, from, run.bytes) };
        }
        let recorded = lease.flush(&shared.raw).and_then(|()| {
            let mut state = shared.enter_to_record(Deadline::new(STALL))?;
            record_upload(&mut state, &shared.raw, &lease, &piece, dst, after)
        });
        shared.give_back(Which::Staging, lease);
        last = recorded?;
    }
    Ok(last)
}

fn record_upload(
    state: &mut State,
    raw: &Raw,
    lease: &Lease,
    piece: &Piece,
    dst: Memory,
    after: &[Ticket],
) -> Result<Ticket> {
    let buffer = state.table.get(dst)?.buffer;
    let ticket = state.recorder.record(raw, after, |commands| {
        let mut regions = Regions::new(raw, commands, lease.buffer, buffer);
        for (at, run) in piece.packed() {
            regions.push(lease.offset + at, run.dst, run.bytes);
        }
    })?;
    state.table.touch(dst, ticket.value);
    state.touch(raw, Which::Staging, lease, ticket.value);
    Ok(ticket)
}

/// A piece on its way to the host.
struct Coming {
    lease: Lease,
    piece: Piece,
    value: u64,
}

/// Copies boxes to host memory, which is written only in here.
///
/// # Safety
/// As [`DeviceDriver::download`](hedgerow::driver::DeviceDriver::download).
pub(crate) unsafe fn download(
    shared: &Shared,
    src: Memory,
    dst: *mut u8,
    boxes: &[CopyBox],
    after: &[Ticket],
    deadline: Deadline,
) -> Result<()> {
    shared.raw.check()?;
    let mut pieces = Pieces::new(boxes, piece_bytes(shared)).peekable();
    let mut coming = VecDeque::new();
    let mut run = || -> Result<()> {
        loop {
            // As many as there is room for, so that one wait overlaps the copies of the rest.
            while let Some(piece) = pieces.peek() {
                let mut state = shared.enter_to_record(deadline)?;
                let Some(lease) = state.reserve(&shared.raw, Which::Staging, piece.bytes)? else {
                    if coming.is_empty() {
                        shared.make_room(state, Which::Staging, deadline)?;
                        continue;
                    }
                    break;
                };
                match record_download(&mut state, &shared.raw, &lease, piece, src, after) {
                    Ok(value) => {
                        if let Some(piece) = pieces.next() {
                            coming.push_back(Coming { lease, piece, value });
                        }
                    }
                    Err(error) => {
                        state.belt(Which::Staging).give_back(lease);
                        return Err(error);
                    }
                }
            }
            let Some(Coming { lease, piece, value }) = coming.pop_front() else { return Ok(()) };
            let here =
                shared.wait_value(value, deadline).and_then(|()| lease.invalidate(&shared.raw));
            if here.is_ok() {
                for (at, run) in piece.packed() {
                    let to = dst.wrapping_add(run.dst as usize);
                    // SAFETY: the run lies inside a box, whose destination bytes the caller promises are
                    // writable; the device has written the lease: its ticket is done.
                    unsafe { lease.read(at, to, run.bytes) };
                }
            }
            shared.give_back(Which::Staging, lease);
            here?;
        }
    };
    let result = run();
    // After a failure: nobody reads these, and the belt keeps them until their tickets are done.
    for late in coming {
        shared.give_back(Which::Staging, late.lease);
    }
    result
}

fn record_download(
    state: &mut State,
    raw: &Raw,
    lease: &Lease,
    piece: &Piece,
    src: Memory,
    after: &[Ticket],
) -> Result<u64> {
    let buffer = state.table.get(src)?.buffer;
    let ticket = state.recorder.record(raw, after, |commands| {
        let mut regions = Regions::new(raw, commands, buffer, lease.buffer);
        for (at, run) in piece.packed() {
            regions.push(run.src, lease.offset + at, run.bytes);
        }
    })?;
    state.table.touch(src, ticket.value);
    state.touch(raw, Which::Staging, lease, ticket.value);
    Ok(ticket.value)
}

/// Copies boxes from buffer to buffer.
pub(crate) fn copy(
    shared: &Shared,
    src: Memory,
    dst: Memory,
    boxes: &[CopyBox],
    after: &[Ticket],
) -> Result<Ticket> {
    let mut state = shared.enter_to_record(Deadline::new(STALL))?;
    let runs = Runs::new(boxes);
    if runs.clone().next().is_none() {
        return Ok(Ticket::DONE);
    }
    let (from, to) = (state.table.get(src)?.buffer, state.table.get(dst)?.buffer);
    let ticket = state.recorder.record(&shared.raw, after, |commands| {
        let mut regions = Regions::new(&shared.raw, commands, from, to);
        for run in runs {
            regions.push(run.src, run.dst, run.bytes);
        }
    })?;
    state.table.touch(src, ticket.value);
    state.table.touch(dst, ticket.value);
    Ok(ticket)
}

/// A value to fill with.
struct Pattern<'a> {
    value: &'a [u8],
    /// The same as a word's bytes, where the pattern repeats with every word.
    word: Option<[u8; 4]>,
}

/// A part of a run to fill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// Whole words of one value.
    Words { dst: u64, bytes: u64, word: u32 },
    /// Bytes that begin at this byte of the pattern.
    Bytes { dst: u64, bytes: u64, phase: u64 },
}

impl<'a> Pattern<'a> {
    fn new(value: &'a [u8]) -> Self {
        let word = match *value {
            [a] => Some([a; 4]),
            [a, b] => Some([a, b, a, b]),
            _ => value
                .first_chunk::<4>()
                .filter(|first| value.chunks(4).all(|chunk| chunk == *first))
                .copied(),
        };
        Self { value, word }
    }

    /// The parts of a run: whole words in the middle where the pattern allows it and a command is worth it.
    fn parts(&self, run: Run, few: bool) -> impl Iterator<Item = Part> {
        let head = (run.dst.next_multiple_of(4) - run.dst).min(run.bytes);
        let middle = (run.bytes - head) / 4 * 4;
        let phase = |at: u64| at % self.value.len() as u64;
        let whole = Part::Bytes { dst: run.dst, bytes: run.bytes, phase: 0 };
        let parts = match self.word {
            Some(mut word) if middle > 0 && (few || middle >= 1024) => {
                word.rotate_left(head as usize % 4);
                let word = u32::from_ne_bytes(word);
                let end = head + middle;
                let tail = run.bytes - end;
                [
                    Part::Bytes { dst: run.dst, bytes: head, phase: 0 },
                    Part::Words { dst: run.dst + head, bytes: middle, word },
                    Part::Bytes { dst: run.dst + end, bytes: tail, phase: phase(end) },
                ]
            }
            _ => [whole, Part::Bytes { dst: 0, bytes: 0, phase: 0 }, whole.empty()],
        };
        parts.into_iter().filter(|part| part.bytes() > 0)
    }
}

impl Part {
    fn bytes(self) -> u64 {
        match self {
            Self::Words { bytes, .. } | Self::Bytes { bytes, .. } => bytes,
        }
    }

    fn empty(self) -> Self {
        Self::Bytes { dst: 0, bytes: 0, phase: 0 }
    }
}

/// Fills the destination side of boxes.
pub(crate) fn fill(
    shared: &Shared,
    dst: Memory,
    boxes: &[CopyBox],
    value: &[u8],
    after: &[Ticket],
) -> Result<Ticket> {
    shared.raw.check()?;
    let runs = Runs::new(boxes);
    let few = boxes.iter().fold(0u64, |n, b| n.saturating_add(b.runs())) <= 64;
    let pattern = Pattern::new(value);
    let parts = || runs.clone().flat_map(|run| pattern.parts(run, few));
    let longest = parts().filter(|part| matches!(part, Part::Bytes { .. })).map(Part::bytes).max();
    if parts().next().is_none() {
        return Ok(Ticket::DONE);
    }
    // One block of repeated pattern serves all parts that are not whole words.
    let lease = match longest {
        None => None,
        Some(longest) => {
            let step = value.len() as u64;
            let most = PATTERN_BYTES.min(piece_bytes(shared));
            let bytes = longest.next_multiple_of(step).saturating_add(step).min(most) / step * step;
            let lease = shared.reserve(Which::Staging, bytes, Deadline::new(STALL))?;
            lease.write_slice(0, &value.repeat((bytes / step) as usize));
            Some(lease)
        }
    };
    let recorded = record_fill(shared, lease.as_ref(), parts(), dst, value.len() as u64, after);
    if let Some(lease) = lease {
        shared.give_back(Which::Staging, lease);
    }
    recorded
}

fn record_fill(
    shared: &Shared,
    lease: Option<&Lease>,
    parts: impl Iterator<Item = Part>,
    dst: Memory,
    step: u64,
    after: &[Ticket],
) -> Result<Ticket> {
    let raw = &shared.raw;
    if let Some(lease) = lease {
        lease.flush(raw)?;
    }
    let mut state = shared.enter_to_record(Deadline::new(STALL))?;
    let state = &mut *state;
    let buffer = state.table.get(dst)?.buffer;
    let (source, offset, room) = lease.map_or((vk::Buffer::null(), 0, 0), |lease| {
        (lease.buffer, lease.offset, lease.bytes - step)
    });
    let ticket = state.recorder.record(raw, after, |commands| {
        let mut regions = Regions::new(raw, commands, source, buffer);
        for part in parts {
            match part {
                Part::Words { dst, bytes, word } => {
                    raw.cmd_fill(commands, buffer, dst, bytes, word)
                }
                Part::Bytes { dst, bytes, phase } => {
                    let mut done = 0;
                    while done < bytes {
                        // Whole patterns but for the last, so that the phase stays the same.
                        let now = room.min(bytes - done);
                        regions.push(offset + phase, dst + done, now);
                        done += now;
                    }
                }
            }
        }
    })?;
    state.table.touch(dst, ticket.value);
    if let Some(lease) = lease {
        state.touch(raw, Which::Staging, lease, ticket.value);
    }
    Ok(ticket)
}
