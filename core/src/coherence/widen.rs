//! Cutting a region out of the grid before its state changes, and widening it where cuts or words run out.

use super::{Cells, Change, Map, Pick, plane_bit};
use crate::region::{PerAxis, Region};

/// A cut that an access needs: a coordinate strictly inside an interval.
#[derive(Clone, Copy, Default)]
struct Needed {
    lo: Option<i32>,
    hi: Option<i32>,
}

impl Map<'_> {
    /// Cuts the grid so that `change` can be recorded for `region`, and returns the region that it will
    /// be recorded for: `region`, or for a write without room, a wider union of cells.
    ///
    /// Cuts are made only where their two sides would end in different states. When there is no room,
    /// redundant cuts go first (but none that `pinned` holds); then a read is left uncut (its inner
    /// cells will be recorded, the rest not), and a write gives up the cuts that move the fewest bytes.
    ///
    /// No state changes here: cutting and coalescing leave every element as fresh as it was.
    pub fn cut(
        &mut self,
        region: &Region,
        change: Change,
        pinned: &dyn Fn(usize, i32) -> bool,
    ) -> Region {
        if region.is_empty() || self.is_final(&self.cells(region), change) {
            return *region;
        }
        let mut needed = self.needed(region, change);
        if !self.fits(&needed) {
            self.coalesce(pinned);
            needed = self.needed(region, change);
        }
        let mut wide = *region;
        if !self.fits(&needed) {
            if !change.write {
                return *region;
            }
            wide = self.widen(region, change, &mut needed);
        }
        for axis in 0..self.grid.root.rank() {
            let Needed { lo, hi } = needed.at(axis);
            match (lo, hi) {
                (Some(lo), Some(hi)) => self.split(axis, &[lo, hi]),
                (Some(c), None) | (None, Some(c)) => self.split(axis, &[c]),
                (None, None) => {}
            }
        }
        wide
    }

    /// Whether every cell is already in the state that `change` leads to.
    fn is_final(&self, cells: &Cells, change: Change) -> bool {
        if self.any(cells, Pick::stale(change.plane)) {
            return false;
        }
        !change.write
            || (0..self.places()).all(|other| {
                other == change.plane
                    || !self.any(cells, Pick { stale: 0, fresh: plane_bit(other) })
            })
    }

    fn needed(&self, region: &Region, change: Change) -> PerAxis<Needed> {
        let cells = self.cells(region);
        let mut needed = PerAxis::all(Needed::default());
        for axis in 0..self.grid.root.rank() {
            let range = region.range(axis);
            let (first, last) = (cells.lo.at(axis), cells.hi.at(axis) - 1);
            let slab_is_final = |index: u16| {
                let mut slab = cells;
                slab.lo.set(axis, index);
                slab.hi.set(axis, index + 1);
                self.is_final(&slab, change)
            };
            let cuts_lo = self.interval(axis, usize::from(first)).start < range.start;
            let cuts_hi = range.end < self.interval(axis, usize::from(last)).end;
            needed.set(
                axis,
                Needed {
                    lo: (cuts_lo && !slab_is_final(first)).then_some(range.start),
                    hi: (cuts_hi && !slab_is_final(last)).then_some(range.end),
                },
            );
        }
        needed
    }

    fn fits(&self, needed: &PerAxis<Needed>) -> bool {
        let mut more = PerAxis::all(0u16);
        for axis in 0..self.grid.root.rank() {
            let Needed { lo, hi } = needed.at(axis);
            more.set(axis, u16::from(lo.is_some()) + u16::from(hi.is_some()));
        }
        self.has_room_for(&more)
    }

    fn has_room_for(&self, more: &PerAxis<u16>) -> bool {
        (0..self.grid.root.rank()).all(|axis| {
            let cuts = self.cuts_of(axis).len() + usize::from(more.at(axis));
            more.at(axis) == 0 || cuts <= self.cuts_per_axis()
        }) && self.grid.words_with(more) <= self.words()
    }

    /// Gives up the cuts that cost the fewest bytes, until the rest fits, and returns the region widened
    /// to the cells' edges on those sides.
    ///
    /// The cost of a cut is counted alone, as the bytes that must be brought in plus those that others
    /// must fetch again; all ways to keep zero, one or two cuts on each axis are compared.
    fn widen(&self, region: &Region, change: Change, needed: &mut PerAxis<Needed>) -> Region {
        let rank = self.grid.root.rank();
        let cells = self.cells(region);
        let whole = self.region_of(&cells);
        let mut costs = PerAxis::all((0u64, 0u64));
        for axis in 0..rank {
            let cost = |lo: i32, hi: i32| {
                let mut slab = *region;
                slab.set(axis, lo, hi);
                let moved = self.volume(&slab, Pick::stale(change.plane));
                moved.saturating_add(slab.volume())
            };
            costs.set(
                axis,
                (cost(whole.lo(axis), region.lo(axis)), cost(region.hi(axis), whole.hi(axis))),
            );
        }

        // Ways to give up cuts on one axis: none, lo, hi, both; an absent cut costs nothing to give up.
        let ways = 4usize.pow(rank as u32);
        let mut best = None;
        for way in 0..ways {
            let mut more = PerAxis::all(0u16);
            let mut cost = 0u64;
            let mut sensible = true;
            for axis in 0..rank {
                let gives = way >> (2 * axis) & 3;
                let Needed { lo, hi } = needed.at(axis);
                let (cost_lo, cost_hi) = costs.at(axis);
                for (present, given_up, price) in [
                    (lo.is_some(), gives & 1 != 0, cost_lo),
                    (hi.is_some(), gives & 2 != 0, cost_hi),
                ] {
                    match (present, given_up) {
                        (false, true) => sensible = false,
                        (true, true) => cost = cost.saturating_add(price),
                        (true, false) => more.set(axis, more.at(axis) + 1),
                        (false, false) => {}
                    }
                }
            }
            if sensible && best.is_none_or(|(least, _)| cost < least) && self.has_room_for(&more) {
                best = Some((cost, way));
            }
        }

        // Giving up every cut always fits: the region becomes a union of cells that are there.
        let way = best.map_or(ways - 1, |(_, way)| way);
        let mut wide = *region;
        for axis in 0..rank {
            let gives = way >> (2 * axis) & 3;
            let mut cuts = needed.at(axis);
            if gives & 1 != 0 && cuts.lo.take().is_some() {
                wide.set(axis, whole.lo(axis), wide.hi(axis));
            }
            if gives & 2 != 0 && cuts.hi.take().is_some() {
                wide.set(axis, wide.lo(axis), whole.hi(axis));
            }
            needed.set(axis, cuts);
        }
        wide
    }
}
