//! The planner: picked cells as few, maximal boxes, read off the bitmaps without scratch memory.
//!
//! A run of picked cells starts a box unless the row before it (along axis 1) has the very same run; the
//! box then reaches as far as rows repeat it. The same holds one axis up for whole boxes. Each picked cell is
//! in exactly one box, and redundant cuts do not change the boxes.

use super::grid::Span;
use super::{Cells, Map, Planes, plane_bit};
use crate::region::{PerAxis, Region};

const WORD: usize = u32::BITS as usize;

/// Which cells: stale on all planes of one set, and fresh on all of the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pick {
    /// Planes on which the cells are stale.
    pub stale: Planes,
    /// Planes on which the cells are fresh.
    pub fresh: Planes,
}

impl Pick {
    /// Cells stale on one plane.
    pub const fn stale(plane: usize) -> Self {
        Self { stale: plane_bit(plane), fresh: 0 }
    }
}

/// Where an enumeration of boxes goes on: after the box that starts at these coordinates. It holds while
/// the states of the region do not change, whatever cuts come and go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cursor {
    after: Option<PerAxis<i32>>,
}

impl Map<'_> {
    /// Calls `each` with boxes that together hold exactly the picked part of `region`, in ascending order
    /// of their first coordinates, outermost axis first. A box for which `each` answers `false` is not
    /// passed by: the cursor stays before it and the enumeration ends. Returns whether it came to its end.
    pub fn boxes(
        &self,
        region: &Region,
        pick: Pick,
        cursor: &mut Cursor,
        each: &mut dyn FnMut(Region) -> bool,
    ) -> bool {
        if region.is_empty() {
            return true;
        }
        let rank = self.grid.root.rank();
        let range = self.cells(region);
        let search = Search { map: self, pick, range };
        let mut at = range.lo;
        let mut from = usize::from(range.lo.at(0));
        if let Some(after) = cursor.after {
            // Go on in the row of the last box, behind its first run.
            let mut corner = *region;
            for axis in 0..rank {
                corner.set(axis, after.at(axis), after.at(axis).saturating_add(1));
            }
            at = self.cells(&corner).lo;
            let end = usize::from(range.hi.at(0));
            let row = self.grid.row(&at);
            from = search.find(row, usize::from(at.at(0)), end, true).unwrap_or(end);
        }
        loop {
            let row = self.grid.row(&at);
            while let Some((lo, hi)) = search.next_run(row, from) {
                from = hi;
                let mut found = Cells { lo: at, hi: at };
                found.lo.set(0, lo as u16);
                found.hi.set(0, hi as u16);
                if !search.grow(&mut found, rank) {
                    continue;
                }
                let whole = self.region_of(&found);
                let Some(piece) = whole.intersection(region) else { continue };
                if !each(piece) {
                    return false;
                }
                let mut start = PerAxis::all(0);
                for axis in 0..rank {
                    start.set(axis, piece.lo(axis));
                }
                cursor.after = Some(start);
            }
            from = usize::from(range.lo.at(0));
            // The next row, axis 1 fastest.
            let mut axis = 1;
            loop {
                if axis >= rank {
                    return true;
                }
                let next = at.at(axis) + 1;
                if next < range.hi.at(axis) {
                    at.set(axis, next);
                    break;
                }
                at.set(axis, range.lo.at(axis));
                axis += 1;
            }
        }
    }
}

struct Search<'a> {
    map: &'a Map<'a>,
    pick: Pick,
    range: Cells,
}

impl Search<'_> {
    fn chunk(&self, row: usize, chunk: usize) -> u32 {
        self.map.grid.picked(self.map.bits, row, chunk, self.pick)
    }

    fn picked(&self, row: usize, cell: usize) -> bool {
        self.chunk(row, cell / WORD) >> (cell % WORD) & 1 != 0
    }

    /// The next maximal run of picked cells in a row, at or behind `from`.
    fn next_run(&self, row: usize, from: usize) -> Option<(usize, usize)> {
        let end = usize::from(self.range.hi.at(0));
        let lo = self.find(row, from, end, false)?;
        Some((lo, self.find(row, lo, end, true).unwrap_or(end)))
    }

    /// The first cell in `from..end` that is picked, or is not.
    fn find(&self, row: usize, from: usize, end: usize, inverted: bool) -> Option<usize> {
        let span = Span::new(from, end);
        span.chunks().find_map(|chunk| {
            let bits = self.chunk(row, chunk) ^ if inverted { u32::MAX } else { 0 };
            let bits = bits & span.mask(chunk);
            (bits != 0).then(|| chunk * WORD + bits.trailing_zeros() as usize)
        })
    }

    /// Extends a run along all outer axes; `false` when it continues a box that began before.
    fn grow(&self, found: &mut Cells, rank: usize) -> bool {
        for axis in 1..rank {
            let at = found.lo.at(axis);
            let mut probe = *found;
            if at > self.range.lo.at(axis) {
                probe.lo.set(axis, at - 1);
                if self.has(axis - 1, &probe) {
                    return false;
                }
            }
            let mut end = at + 1;
            while end < self.range.hi.at(axis) {
                probe.lo.set(axis, end);
                if !self.has(axis - 1, &probe) {
                    break;
                }
                end += 1;
            }
            found.hi.set(axis, end);
        }
        true
    }

    /// Whether `cells`, seen on axes `0..=axis` (on the others only `lo` counts), is exactly a box: picked,
    /// and not extended along any of those axes.
    fn has(&self, axis: usize, cells: &Cells) -> bool {
        let (lo, hi) = (cells.lo.at(axis), cells.hi.at(axis));
        if axis == 0 {
            let row = self.map.grid.row(&cells.lo);
            let (lo, hi) = (usize::from(lo), usize::from(hi));
            let (first, last) =
                (usize::from(self.range.lo.at(0)), usize::from(self.range.hi.at(0)));
            return (lo == first || !self.picked(row, lo - 1))
                && (hi == last || !self.picked(row, hi))
                && self.find(row, lo, hi, true).is_none();
        }
        let mut probe = *cells;
        let mut at = |c: u16| {
            probe.lo.set(axis, c);
            self.has(axis - 1, &probe)
        };
        (lo..hi).all(&mut at)
            && (lo == self.range.lo.at(axis) || !at(lo - 1))
            && (hi == self.range.hi.at(axis) || !at(hi))
    }
}
