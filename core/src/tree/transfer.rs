//! Planning: what an access needs brought to its place, as copy lists.

use super::State;
use super::access::{Reservation, corner};
use crate::coherence::{Cursor, Pick, Planes, plane_bit};
use crate::driver::{CopyBox, Dim};
use crate::region::{Layout, MAX_RANK, Region};

/// What to do next for a reserved access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Copy the listed boxes from a place.
    Copy {
        /// The place number of the source.
        from: usize,
        /// Bytes of the region asked for.
        bytes: u64,
        /// Bytes beside it.
        widened: u64,
    },
    /// Zero the listed boxes: nobody holds a value for them, and a widened write covers them.
    Zero {
        /// Bytes.
        bytes: u64,
    },
    /// Nothing is left.
    Done,
}

/// The copy of one region between two layouts, with the smallest strides innermost and contiguous axes
/// folded.
pub fn copy_box(region: &Region, src: &Layout, dst: &Layout) -> CopyBox {
    let at = corner(region);
    let mut copy = CopyBox::flat(src.offset(&at), dst.offset(&at), u64::from(dst.element()));
    let mut last = None;
    for _ in 0..region.rank().min(MAX_RANK) {
        // The next larger stride; equal ones only happen on axes of one element.
        let next = (0..region.rank())
            .filter(|axis| region.extent(*axis) > 1)
            .map(|axis| (dst.stride(axis).unsigned_abs(), axis))
            .filter(|key| last.is_none_or(|last| *key > last))
            .min();
        let Some((_, axis)) = next else { break };
        last = next;
        copy.push(Dim {
            count: region.extent(axis),
            src_stride: src.stride(axis),
            dst_stride: dst.stride(axis),
        });
    }
    copy
}

impl State<'_> {
    /// Fills `list` with the next boxes to bring to the access's place, all from one source, and says
    /// what they are and how many. Sources are asked in the order host, device 0, 1, ...; last come the
    /// bytes that nobody holds and a widened write covers.
    ///
    /// Nothing is recorded here: the same reservation, started afresh, plans the same again.
    pub fn next(&mut self, reservation: &mut Reservation, list: &mut [CopyBox]) -> (Next, usize) {
        let places = 1 + self.devices.len();
        let to = self.plane(reservation.place);
        while reservation.pass <= places {
            let pass = reservation.pass;
            let (pick, from) = if pass < places {
                let plane = self.plane(pass);
                if plane == to || (plane == 0 && pass != 0) || !self.is_usable(pass) {
                    reservation.pass += 1;
                    continue;
                }
                let before = self.planes_before(pass, to);
                (self.map().source(to, plane, before), pass)
            } else if reservation.mode.writes() {
                (self.map().nobody(), reservation.place)
            } else {
                reservation.pass += 1;
                continue;
            };
            let (done, len, inside, beside) = self.list(reservation, pick, from, list);
            if done {
                reservation.pass += 1;
                reservation.cursor = Cursor::default();
                reservation.pieces = 0;
            }
            if len > 0 {
                let next = if pass < places {
                    Next::Copy { from, bytes: inside, widened: beside }
                } else {
                    Next::Zero { bytes: inside + beside }
                };
                return (next, len);
            }
        }
        (Next::Done, 0)
    }

    /// The planes of usable sources that are asked before `pass`.
    fn planes_before(&self, pass: usize, to: usize) -> Planes {
        (0..pass)
            .filter(|place| self.is_usable(*place) && self.plane(*place) != to)
            .fold(0, |set, place| set | plane_bit(self.plane(place)))
    }

    /// One list of picked boxes: whether all were listed, how many, and their bytes inside and beside the
    /// region asked for.
    fn list(
        &mut self,
        reservation: &mut Reservation,
        pick: Pick,
        from: usize,
        list: &mut [CopyBox],
    ) -> (bool, usize, u64, u64) {
        let Reservation { exact, outer, place, .. } = *reservation;
        let src = *self.layout(from);
        let dst = *self.layout(place);
        let element = u64::from(dst.element());
        // What an overwrite covers is not fetched, and what is fresh without the map knowing stays untouched.
        let skip_exact = (!reservation.mode.reads() && reservation.covers).then_some(exact);
        let accesses = &*self.accesses;
        let map =
            crate::coherence::Map { grid: &mut self.header.grid, cuts: self.cuts, bits: self.bits };
        let hole = |i: usize| match i.checked_sub(1) {
            None => Some(skip_exact),
            Some(i) => accesses.get(i).map(|access| access.fresh_at(place as u8).copied()),
        };

        let (mut len, mut inside, mut beside) = (0usize, 0u64, 0u64);
        let mut cursor = reservation.cursor;
        let mut pieces = reservation.pieces;
        let done = map.boxes(&outer, pick, &mut cursor, &mut |found| {
            let mut seen = 0usize;
            let mut full = false;
            cut_out(&found, 0, &hole, &mut |piece| {
                seen += 1;
                if seen <= pieces || full {
                    return;
                }
                let Some(slot) = list.get_mut(len) else {
                    full = true;
                    return;
                };
                *slot = copy_box(&piece, &src, &dst);
                len += 1;
                pieces += 1;
                let bytes = piece.volume() * element;
                let asked = piece.intersection(&exact).map_or(0, |p| p.volume() * element);
                inside += asked;
                beside += bytes - asked;
            });
            if !full {
                pieces = 0;
            }
            !full
        });
        reservation.cursor = cursor;
        reservation.pieces = pieces;
        (done, len, inside, beside)
    }
}

/// Calls `each` with what is left of `region` without the holes from number `first` on. A number without a
/// hole answers `Some(None)`; the end, `None`.
fn cut_out(
    region: &Region,
    first: usize,
    hole: &dyn Fn(usize) -> Option<Option<Region>>,
    each: &mut dyn FnMut(Region),
) {
    let mut at = first;
    loop {
        match hole(at) {
            None => return each(*region),
            Some(Some(hole_region)) if hole_region.overlaps(region) => {
                return region
                    .subtract(&hole_region, &mut |piece| cut_out(&piece, at + 1, hole, each));
            }
            Some(_) => at += 1,
        }
    }
}
