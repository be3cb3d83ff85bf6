//! The grid of cells: cuts, rows of bits, and splitting and merging intervals in place.

use super::{Cells, Map, Pick, plane_bit};
use crate::region::{MAX_RANK, PerAxis, Region};

/// The most intervals on one axis: coalescing keeps one bit for each on the stack.
pub const MAX_INTERVALS: usize = 1024;

const WORD: usize = u32::BITS as usize;

/// Root region, interval counts, and number of planes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grid {
    /// The region that the grid divides.
    pub root: Region,
    /// Intervals on each axis: one more than cuts.
    pub(super) count: PerAxis<u16>,
    /// Planes that share the bits.
    pub(super) planes: usize,
}

impl Grid {
    /// An undivided root with `planes` planes, the last of which is the plane of lost bytes.
    pub fn new(root: Region, planes: usize) -> Self {
        Self { root, count: PerAxis::all(1), planes }
    }

    /// How many cells there are.
    pub fn cells(&self) -> usize {
        (0..self.root.rank()).map(|axis| usize::from(self.count.at(axis))).product()
    }

    /// Bits from one row to the next.
    #[inline]
    fn pitch(&self) -> usize {
        pitch_of(usize::from(self.count.at(0)))
    }

    /// Rows: cells on all axes but the first.
    fn rows(&self) -> usize {
        (1..self.root.rank()).map(|axis| usize::from(self.count.at(axis))).product()
    }

    /// Words that one plane needs.
    pub(super) fn words(&self) -> usize {
        (self.rows() * self.pitch()).div_ceil(WORD)
    }

    /// Words that one plane would need with `more` intervals added.
    pub(super) fn words_with(&self, more: &PerAxis<u16>) -> usize {
        let count = |axis: usize| usize::from(self.count.at(axis)) + usize::from(more.at(axis));
        let rows = (1..self.root.rank()).fold(1usize, |n, axis| n.saturating_mul(count(axis)));
        rows.saturating_mul(pitch_of(count(0))).div_ceil(WORD)
    }

    /// Number of the row at `at` (its axis 0 does not count).
    #[inline]
    pub(super) fn row(&self, at: &PerAxis<u16>) -> usize {
        let mut row = 0;
        for axis in (1..self.root.rank()).rev() {
            row = row * usize::from(self.count.at(axis)) + usize::from(at.at(axis));
        }
        row
    }

    /// Calls `each` with every row of `cells` until it answers `false`.
    #[inline]
    pub(super) fn for_rows(&self, cells: &Cells, mut each: impl FnMut(&Self, usize) -> bool) {
        let rank = self.root.rank();
        if cells.is_empty(rank) {
            return;
        }
        let mut at = cells.lo;
        let mut row = self.row(&at);
        loop {
            if !each(self, row) {
                return;
            }
            let mut stride = 1usize;
            let mut axis = 1;
            loop {
                if axis >= rank {
                    return;
                }
                let next = at.at(axis) + 1;
                if next < cells.hi.at(axis) {
                    at.set(axis, next);
                    row += stride;
                    break;
                }
                let lo = cells.lo.at(axis);
                row -= usize::from(at.at(axis) - lo) * stride;
                at.set(axis, lo);
                stride *= usize::from(self.count.at(axis));
                axis += 1;
            }
        }
    }

    /// Word and shift at which 32 cells of a row start.
    #[inline]
    fn place(pitch: usize, row: usize, chunk: usize) -> (usize, u32) {
        let bit = row * pitch;
        (bit / WORD + chunk, (bit % WORD) as u32)
    }

    #[inline]
    fn plane_words(&self, bits: &[u32]) -> usize {
        bits.len() / self.planes.max(1)
    }

    /// Up to 32 cells of a row on one plane; bits beyond the row are whatever lies there.
    #[inline]
    pub(super) fn read(&self, bits: &[u32], plane: usize, row: usize, chunk: usize) -> u32 {
        let (word, shift) = Self::place(self.pitch(), row, chunk);
        bits.get(plane * self.plane_words(bits) + word).copied().unwrap_or(0) >> shift
    }

    /// Sets the cells of `mask` to those of `value`.
    #[inline]
    pub(super) fn update(
        &self,
        bits: &mut [u32],
        plane: usize,
        row: usize,
        chunk: usize,
        mask: u32,
        value: u32,
    ) {
        self.write(bits, self.pitch(), plane, row, chunk, mask, value);
    }

    #[inline]
    #[allow(clippy::too_many_arguments)] // the coordinates of one word
    fn write(
        &self,
        bits: &mut [u32],
        pitch: usize,
        plane: usize,
        row: usize,
        chunk: usize,
        mask: u32,
        value: u32,
    ) {
        let (word, shift) = Self::place(pitch, row, chunk);
        let words = self.plane_words(bits);
        if let Some(slot) = bits.get_mut(plane * words + word) {
            let mask = mask << shift;
            *slot = (*slot & !mask) | ((value << shift) & mask);
        }
    }

    /// Which of 32 cells of a row are picked.
    #[inline]
    pub(super) fn picked(&self, bits: &[u32], row: usize, chunk: usize, pick: Pick) -> u32 {
        let mut all = u32::MAX;
        for plane in 0..self.planes {
            let bit = plane_bit(plane);
            if pick.stale & bit != 0 {
                all &= self.read(bits, plane, row, chunk);
            } else if pick.fresh & bit != 0 {
                all &= !self.read(bits, plane, row, chunk);
            }
        }
        all
    }
}

/// Bits that a row of `cells` cells takes.
#[inline]
fn pitch_of(cells: usize) -> usize {
    if cells <= WORD { cells.next_power_of_two() } else { cells.next_multiple_of(WORD) }
}

/// The cells of a range within a row, as masks of 32.
#[derive(Clone, Copy)]
pub(super) struct Span {
    lo: usize,
    hi: usize,
}

impl Span {
    #[inline]
    pub(super) fn of(cells: &Cells) -> Self {
        Self { lo: usize::from(cells.lo.at(0)), hi: usize::from(cells.hi.at(0)) }
    }

    #[inline]
    pub(super) fn new(lo: usize, hi: usize) -> Self {
        Self { lo, hi }
    }

    #[inline]
    pub(super) fn chunks(self) -> core::ops::Range<usize> {
        self.lo / WORD..self.hi.div_ceil(WORD)
    }

    #[inline]
    pub(super) fn mask(self, chunk: usize) -> u32 {
        let start = chunk * WORD;
        let lo = self.lo.saturating_sub(start);
        let hi = self.hi.saturating_sub(start).min(WORD);
        if lo >= hi {
            return 0;
        }
        (u32::MAX >> (WORD - (hi - lo))) << lo
    }
}

impl Map<'_> {
    /// Words that one plane has.
    pub(super) fn words(&self) -> usize {
        self.grid.plane_words(self.bits)
    }

    /// Cuts that one axis may have.
    pub(super) fn cuts_per_axis(&self) -> usize {
        (self.cuts.len() / MAX_RANK).min(MAX_INTERVALS - 1)
    }

    fn cuts_start(&self, axis: usize) -> usize {
        axis * (self.cuts.len() / MAX_RANK)
    }

    /// The cuts on `axis`.
    #[inline]
    pub(super) fn cuts_of(&self, axis: usize) -> &[i32] {
        let start = self.cuts_start(axis);
        let len = usize::from(self.grid.count.at(axis)).saturating_sub(1);
        self.cuts.get(start..start + len).unwrap_or_default()
    }

    /// The coordinates of an interval.
    #[inline]
    pub(super) fn interval(&self, axis: usize, index: usize) -> core::ops::Range<i32> {
        let cuts = self.cuts_of(axis);
        let root = self.grid.root.range(axis);
        let lo = match index.checked_sub(1) {
            Some(before) => cuts.get(before).copied().unwrap_or(root.end),
            None => root.start,
        };
        lo..cuts.get(index).copied().unwrap_or(root.end)
    }

    /// The coordinates of a range of cells.
    pub(super) fn region_of(&self, cells: &Cells) -> Region {
        let mut region = self.grid.root;
        for axis in 0..region.rank() {
            let lo = self.interval(axis, usize::from(cells.lo.at(axis))).start;
            let last = usize::from(cells.hi.at(axis)).saturating_sub(1);
            region.set(axis, lo, self.interval(axis, last).end);
        }
        region
    }

    /// The cells that `region` (not empty) touches.
    #[inline]
    pub(super) fn cells(&self, region: &Region) -> Cells {
        let mut cells = Cells { lo: PerAxis::all(0), hi: PerAxis::all(1) };
        for axis in 0..self.grid.root.rank() {
            let range = region.range(axis);
            let cuts = self.cuts_of(axis);
            cells.lo.set(axis, cuts.partition_point(|c| *c <= range.start) as u16);
            cells.hi.set(axis, cuts.partition_point(|c| *c < range.end) as u16 + 1);
        }
        cells
    }

    /// The cells wholly inside `region`; possibly none.
    pub(super) fn cells_inside(&self, region: &Region) -> Cells {
        let mut cells = self.cells(region);
        for axis in 0..self.grid.root.rank() {
            let range = region.range(axis);
            let (lo, hi) = (cells.lo.at(axis), cells.hi.at(axis));
            if self.interval(axis, usize::from(lo)).start < range.start {
                cells.lo.set(axis, lo + 1);
            }
            if self.interval(axis, usize::from(hi) - 1).end > range.end {
                cells.hi.set(axis, hi - 1);
            }
        }
        cells
    }

    /// Splits intervals of `axis` at up to two coordinates strictly inside them, in ascending order. The
    /// caller has checked that cuts and words suffice.
    pub(super) fn split(&mut self, axis: usize, at: &[i32]) {
        let [first, second] = match at {
            [] => return,
            [c] => [Some(*c), None],
            [a, b, ..] => [Some(*a), Some(*b)],
        };
        let Some(first) = first else { return };
        let cuts = self.cuts_of(axis);
        let position = |c: i32| cuts.partition_point(|cut| *cut < c);
        let p = position(first);
        let q = second.map(position);
        let old = usize::from(self.grid.count.at(axis));
        let add = 1 + usize::from(q.is_some());
        if axis == 0 {
            self.split_rows(p, q, old, add);
        } else {
            self.split_slabs(axis, p, q, old, add);
        }

        // Cuts: the tail moves up by what was inserted before it.
        let start = self.cuts_start(axis);
        let len = old - 1;
        if let Some(cuts) = self.cuts.get_mut(start..start + len + add) {
            if let (Some(q), Some(second)) = (q, second) {
                cuts.copy_within(q..len, q + 2);
                if let Some(slot) = cuts.get_mut(q + 1) {
                    *slot = second;
                }
                cuts.copy_within(p..q, p + 1);
            } else {
                cuts.copy_within(p..len, p + 1);
            }
            if let Some(slot) = cuts.get_mut(p) {
                *slot = first;
            }
        }
        self.grid.count.set(axis, (old + add) as u16);
    }

    /// Duplicates slabs `p` and `q` of an outer axis, from the end backwards.
    fn split_slabs(&mut self, axis: usize, p: usize, q: Option<usize>, old: usize, add: usize) {
        let count = |a: usize| usize::from(self.grid.count.at(a));
        let inner: usize = (1..axis).map(count).product();
        let outer: usize = (axis + 1..self.grid.root.rank()).map(count).product();
        let new = old + add;
        for plane in 0..self.grid.planes {
            for block in (0..outer).rev() {
                // Slab j of the new grid is slab j minus the duplicates before it.
                for j in (0..new).rev() {
                    let mut source = j - usize::from(j > p);
                    if let Some(q) = q
                        && j > q + 1
                    {
                        source -= 1;
                    }
                    self.move_rows(
                        plane,
                        (block * old + source) * inner,
                        (block * new + j) * inner,
                        inner,
                    );
                }
            }
        }
    }

    /// Moves `count` rows of one plane; the ranges may overlap.
    fn move_rows(&mut self, plane: usize, from: usize, to: usize, count: usize) {
        if from == to {
            return;
        }
        let pitch = self.grid.pitch();
        if pitch.is_multiple_of(WORD) {
            let words = pitch / WORD;
            let base = plane * self.words();
            let (from, to, len) = (base + from * words, base + to * words, count * words);
            if from + len <= self.bits.len() && to + len <= self.bits.len() {
                self.bits.copy_within(from..from + len, to);
            }
            return;
        }
        let mask = u32::MAX >> (WORD - pitch);
        let mut step = |row: usize| {
            let value = self.grid.read(self.bits, plane, from + row, 0);
            self.grid.update(self.bits, plane, to + row, 0, mask, value);
        };
        if to > from {
            (0..count).rev().for_each(&mut step);
        } else {
            (0..count).for_each(&mut step);
        }
    }

    /// Duplicates bits `p` and `q` of every row, from the end backwards; the pitch may grow.
    fn split_rows(&mut self, p: usize, q: Option<usize>, old: usize, add: usize) {
        let new_pitch = pitch_of(old + add);
        let chunks = (old + add).div_ceil(WORD);
        // Bits up to `p` stay, bits up to `q + 1` come from one below, the rest from two below.
        let second = q.map_or(usize::MAX, |q| q + 1);
        for plane in 0..self.grid.planes {
            for row in (0..self.grid.rows()).rev() {
                for chunk in (0..chunks).rev() {
                    let here = self.grid.read(self.bits, plane, row, chunk);
                    let below = match chunk.checked_sub(1) {
                        Some(below) => self.grid.read(self.bits, plane, row, below),
                        None => 0,
                    };
                    let one = here << 1 | below >> (WORD - 1);
                    let two = here << 2 | below >> (WORD - 2);
                    let stay = Span::new(0, p + 1).mask(chunk);
                    let after = Span::new(0, second.saturating_add(1)).mask(chunk);
                    let value = here & stay | one & after & !stay | two & !after;
                    let mask = Span::new(0, old + add).mask(chunk);
                    self.grid.write(self.bits, new_pitch, plane, row, chunk, mask, value);
                }
            }
        }
    }

    /// Removes every cut whose two sides are in the same state on all planes and which `pinned` does not
    /// hold. Returns whether any went.
    pub fn coalesce(&mut self, pinned: &dyn Fn(usize, i32) -> bool) -> bool {
        let mut any = false;
        for axis in 0..self.grid.root.rank() {
            any |= self.coalesce_axis(axis, pinned);
        }
        any
    }

    fn coalesce_axis(&mut self, axis: usize, pinned: &dyn Fn(usize, i32) -> bool) -> bool {
        let old = usize::from(self.grid.count.at(axis));
        let mut keep = [0u32; MAX_INTERVALS / WORD];
        set_bit(&mut keep, 0);
        let mut kept = 1;
        for interval in 1..old {
            let cut = self.interval(axis, interval).start;
            if pinned(axis, cut) || !self.same_state(axis, interval) {
                set_bit(&mut keep, interval);
                kept += 1;
            }
        }
        if kept == old {
            return false;
        }
        if axis == 0 {
            self.merge_rows(&keep, old, kept)
        } else {
            self.merge_slabs(axis, &keep, old)
        }

        let start = self.cuts_start(axis);
        if let Some(cuts) = self.cuts.get_mut(start..start + old - 1) {
            let mut to = 0;
            for from in 0..old - 1 {
                if has_bit(&keep, from + 1) {
                    cuts.copy_within(from..from + 1, to);
                    to += 1;
                }
            }
        }
        self.grid.count.set(axis, kept as u16);
        true
    }

    /// Whether an interval's cells are in the same state as those of the interval before it.
    fn same_state(&self, axis: usize, interval: usize) -> bool {
        let mut cells = Cells { lo: PerAxis::all(0), hi: self.grid.count };
        if axis > 0 {
            cells.lo.set(axis, interval as u16);
            cells.hi.set(axis, interval as u16 + 1);
        }
        let inner: usize = (1..axis).map(|a| usize::from(self.grid.count.at(a))).product();
        let span = Span::of(&cells);
        let mut same = true;
        self.grid.for_rows(&cells, |grid, row| {
            same = (0..grid.planes).all(|plane| {
                if axis == 0 {
                    let bit =
                        |at: usize| grid.read(self.bits, plane, row, at / WORD) >> (at % WORD) & 1;
                    bit(interval) == bit(interval - 1)
                } else {
                    span.chunks().all(|chunk| {
                        let differ = grid.read(self.bits, plane, row, chunk)
                            ^ grid.read(self.bits, plane, row - inner, chunk);
                        differ & span.mask(chunk) == 0
                    })
                }
            });
            same
        });
        same
    }

    fn merge_slabs(&mut self, axis: usize, keep: &[u32], old: usize) {
        let count = |a: usize| usize::from(self.grid.count.at(a));
        let inner: usize = (1..axis).map(count).product();
        let outer: usize = (axis + 1..self.grid.root.rank()).map(count).product();
        for plane in 0..self.grid.planes {
            let mut to = 0;
            for block in 0..outer {
                for interval in (0..old).filter(|interval| has_bit(keep, *interval)) {
                    self.move_rows(plane, (block * old + interval) * inner, to, inner);
                    to += inner;
                }
            }
        }
    }

    fn merge_rows(&mut self, keep: &[u32], old: usize, kept: usize) {
        let new_pitch = pitch_of(kept);
        for plane in 0..self.grid.planes {
            for row in 0..self.grid.rows() {
                let (mut value, mut to) = (0u32, 0usize);
                let mut source = 0;
                for interval in 0..old {
                    if interval % WORD == 0 {
                        source = self.grid.read(self.bits, plane, row, interval / WORD);
                    }
                    if !has_bit(keep, interval) {
                        continue;
                    }
                    value |= (source >> (interval % WORD) & 1) << (to % WORD);
                    to += 1;
                    if to % WORD == 0 || to == kept {
                        let chunk = (to - 1) / WORD;
                        let mask = Span::new(0, kept).mask(chunk);
                        self.grid.write(self.bits, new_pitch, plane, row, chunk, mask, value);
                        value = 0;
                    }
                }
            }
        }
    }
}

fn set_bit(bits: &mut [u32], at: usize) {
    if let Some(word) = bits.get_mut(at / WORD) {
        *word |= 1 << (at % WORD);
    }
}

fn has_bit(bits: &[u32], at: usize) -> bool {
    bits.get(at / WORD).is_some_and(|word| word >> (at % WORD) & 1 != 0)
}
