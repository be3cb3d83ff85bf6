//! What is fresh where: cuts, cells, and one stale bitmap for each place that bytes live in.
//!
//! Per axis a sorted list of *cuts* divides the root; the intervals between them span a grid of
//! *cells*; each *plane* (the host, each device, and one for what was lost) has one bit for each cell.
//! A set bit means stale: that place does not hold the newest value. A region whose edges are cuts is an
//! exact union of cells, so all set algebra is word-wise.
//!
//! This layer is pure: no lock, no `unsafe`, no driver. Its storage is borrowed slices, so that every
//! algorithm is compiled once, whatever the capacity.
//!
//! # Layout of the bits
//!
//! The cells of axis 0 are one *row*. A row takes a power of two of bits up to 32, then whole words, so
//! that no row straddles a word it does not begin. Rows follow each other, axis 1 fastest.
//!
//! # Two approximations make every commit sound
//!
//! Where a region's edge is not a cut, a cell is only partly inside. Freshness is then recorded for cells
//! wholly inside, and staleness for every cell touched: the map may claim too little, never too much. A
//! write may not leave a cell partly newer, so its region is cut first, or widened to whole cells.

mod boxes;
mod grid;
mod widen;

pub use boxes::{Cursor, Pick};
pub use grid::{Grid, MAX_INTERVALS};

use crate::region::{PerAxis, Region};
use grid::Span;

/// The most planes: the host, up to six devices, and the plane of lost bytes.
pub const MAX_PLANES: usize = 8;

/// A set of planes, one bit each.
pub type Planes = u8;

/// The set of one plane.
#[inline]
pub const fn plane_bit(plane: usize) -> Planes {
    1u8.wrapping_shl(plane as u32)
}

/// A range of cells, by their interval numbers on each axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cells {
    lo: PerAxis<u16>,
    hi: PerAxis<u16>,
}

impl Cells {
    fn is_empty(&self, rank: usize) -> bool {
        (0..rank).any(|axis| self.lo.at(axis) >= self.hi.at(axis))
    }
}

/// A change of state that an access is about to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// The plane that becomes fresh.
    pub plane: usize,
    /// Whether all other planes become stale.
    pub write: bool,
}

/// The coherence map over borrowed storage.
#[derive(Debug)]
pub struct Map<'a> {
    /// Root region and interval counts.
    pub grid: &'a mut Grid,
    /// Interior cuts, an equal share of the slice for each axis.
    pub cuts: &'a mut [i32],
    /// The planes' bitmaps, an equal share of the slice for each plane.
    pub bits: &'a mut [u32],
}

impl Map<'_> {
    /// Number of planes that say where bytes are fresh; the plane of that number says what was lost.
    #[inline]
    pub fn places(&self) -> usize {
        self.grid.planes.saturating_sub(1)
    }

    /// All planes that say where bytes are fresh.
    #[inline]
    fn all_places(&self) -> Planes {
        plane_bit(self.places()).wrapping_sub(1)
    }

    /// The plane of bytes that a lost device took along.
    #[inline]
    pub fn lost_plane(&self) -> usize {
        self.places()
    }

    /// Starts over: one cell, fresh on the planes of `fresh`, stale on the others, nothing lost.
    pub fn reset(&mut self, fresh: Planes) {
        self.grid.count = PerAxis::all(1);
        let all = self.whole();
        for plane in 0..self.places() {
            self.fill(plane, &all, fresh & plane_bit(plane) == 0);
        }
        self.fill(self.lost_plane(), &all, false);
    }

    /// Whether every byte of `region` is fresh on `plane`.
    pub fn is_fresh(&self, plane: usize, region: &Region) -> bool {
        region.is_empty() || !self.any(&self.cells(region), Pick::stale(plane))
    }

    /// Whether any cell touched by `region` is picked.
    pub fn touches(&self, region: &Region, pick: Pick) -> bool {
        !region.is_empty() && self.any(&self.cells(region), pick)
    }

    /// Cells that nobody holds a value for.
    pub fn nobody(&self) -> Pick {
        Pick { stale: self.all_places(), fresh: 0 }
    }

    /// Cells stale on `to`, fresh on `from`, and stale on every plane of `before` (which was asked first).
    pub fn source(&self, to: usize, from: usize, before: Planes) -> Pick {
        Pick { stale: plane_bit(to) | before, fresh: plane_bit(from) }
    }

    /// Cells that only `planes` hold a value for.
    pub fn only_on(&self, planes: Planes) -> OnlyOn {
        OnlyOn { others: self.all_places() & !planes, planes }
    }

    /// Records that `plane` now holds the newest value of `region`, where anybody does. Only cells wholly
    /// inside are recorded.
    pub fn mark_fresh(&mut self, plane: usize, region: &Region) {
        let cells = self.cells_inside(region);
        let nobody = self.nobody();
        let span = Span::of(&cells);
        self.grid.for_rows(&cells, |grid, row| {
            for chunk in span.chunks() {
                let keep = grid.picked(self.bits, row, chunk, nobody);
                grid.update(self.bits, plane, row, chunk, span.mask(chunk) & !keep, 0);
            }
            true
        });
    }

    /// Records that `region` was written on `plane`: fresh there, stale everywhere else, no longer lost.
    /// Cells only partly inside keep their state on `plane` (it is fresh, or the region was not cut).
    pub fn mark_written(&mut self, plane: usize, region: &Region) {
        if region.is_empty() {
            return;
        }
        let touched = self.cells(region);
        let lost = self.lost_plane();
        for other in 0..self.places() {
            if other != plane {
                self.fill(other, &touched, true);
            }
        }
        let inside = self.cells_inside(region);
        self.fill(plane, &inside, false);
        self.fill(lost, &inside, false);
    }

    /// Records that `planes` hold nothing any more: cells fresh only there become nobody's, and lost.
    pub fn mark_lost(&mut self, planes: Planes) {
        let all = self.whole();
        let others = self.all_places() & !planes;
        let nobody = self.nobody();
        let lost = self.lost_plane();
        let span = Span::of(&all);
        self.grid.for_rows(&all, |grid, row| {
            for chunk in span.chunks() {
                let mask = span.mask(chunk);
                // Held by one of `planes` and by no other.
                let nobody_else =
                    grid.picked(self.bits, row, chunk, Pick { stale: others, fresh: 0 });
                let nobody = grid.picked(self.bits, row, chunk, nobody);
                grid.update(self.bits, lost, row, chunk, mask & nobody_else & !nobody, u32::MAX);
                for plane in 0..MAX_PLANES {
                    if planes & plane_bit(plane) != 0 {
                        grid.update(self.bits, plane, row, chunk, mask, u32::MAX);
                    }
                }
            }
            true
        });
    }

    /// Records that `plane` holds nothing any more. What only it held must be elsewhere by now.
    pub fn mark_stale(&mut self, plane: usize) {
        let all = self.whole();
        self.fill(plane, &all, true);
    }

    /// Forgets which bytes were lost; they stay nobody's.
    pub fn clear_lost(&mut self) {
        let all = self.whole();
        self.fill(self.lost_plane(), &all, false);
    }

    /// The same for cells wholly inside `region`.
    pub fn clear_lost_in(&mut self, region: &Region) {
        let inside = self.cells_inside(region);
        self.fill(self.lost_plane(), &inside, false);
    }

    /// Elements of `region` in picked cells.
    pub fn volume(&self, region: &Region, pick: Pick) -> u64 {
        let mut sum = 0u64;
        self.boxes(region, pick, &mut Cursor::default(), &mut |piece| {
            sum = sum.saturating_add(piece.volume());
            true
        });
        sum
    }

    /// All cells.
    fn whole(&self) -> Cells {
        Cells { lo: PerAxis::all(0), hi: self.grid.count }
    }

    /// Whether any cell in `cells` is picked.
    fn any(&self, cells: &Cells, pick: Pick) -> bool {
        let span = Span::of(cells);
        let mut found = false;
        self.grid.for_rows(cells, |grid, row| {
            found = span
                .chunks()
                .any(|chunk| grid.picked(self.bits, row, chunk, pick) & span.mask(chunk) != 0);
            !found
        });
        found
    }

    fn fill(&mut self, plane: usize, cells: &Cells, stale: bool) {
        let value = if stale { u32::MAX } else { 0 };
        let span = Span::of(cells);
        self.grid.for_rows(cells, |grid, row| {
            for chunk in span.chunks() {
                grid.update(self.bits, plane, row, chunk, span.mask(chunk), value);
            }
            true
        });
    }

    /// The structure's own invariants: cuts sorted, inside the root and within capacity; the bits fit.
    pub fn check(&self) -> Result<(), &'static str> {
        let rank = self.grid.root.rank();
        for axis in 0..rank {
            let cuts = self.cuts_of(axis);
            if cuts.len() + 1 != usize::from(self.grid.count.at(axis)) {
                return Err("more cuts than their table holds");
            }
            if !cuts.is_sorted_by(|a, b| a < b) {
                return Err("cuts are not strictly ascending");
            }
            let range = self.grid.root.range(axis);
            let inside = |c: &i32| *c > range.start && *c < range.end;
            if !cuts.iter().all(inside) {
                return Err("a cut is not inside the root");
            }
        }
        if self.grid.words() > self.words() {
            return Err("the grid needs more words than a plane has");
        }
        let all = self.whole();
        let held_and_lost = (0..self.places()).any(|plane| {
            let pick = Pick { stale: plane_bit(self.lost_plane()), fresh: plane_bit(plane) };
            !self.grid.root.is_empty() && self.any(&all, pick)
        });
        if held_and_lost {
            return Err("a cell is lost and yet held by somebody");
        }
        Ok(())
    }
}

/// Cells that only some planes hold a value for: stale on all others, fresh on at least one of these.
#[derive(Clone, Copy, Debug)]
pub struct OnlyOn {
    others: Planes,
    planes: Planes,
}

impl OnlyOn {
    /// Calls `each` with boxes of those cells inside `region`, each cell once; stops when it answers
    /// `false`.
    pub fn for_each(self, map: &Map<'_>, region: &Region, each: &mut dyn FnMut(Region) -> bool) {
        let mut before = self.others;
        let mut go_on = true;
        for plane in 0..MAX_PLANES {
            if self.planes & plane_bit(plane) != 0 && go_on {
                let pick = Pick { stale: before, fresh: plane_bit(plane) };
                map.boxes(region, pick, &mut Cursor::default(), &mut |piece| {
                    go_on = each(piece);
                    go_on
                });
                before |= plane_bit(plane);
            }
        }
    }
}

#[cfg(test)]
mod tests;
