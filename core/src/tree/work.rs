//! Device work in flight: which bytes it touches, and the tickets that later work must follow.

use super::State;
use crate::coherence::{Planes, plane_bit};
use crate::driver::{After, Ticket};
use crate::region::Region;

/// One entry: work on one device, one lane. When the table is full, two entries of a lane become one that
/// covers both: more is ordered than need be, nothing is left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    region: Region,
    ticket: Ticket,
    device: u8,
    reads: Planes,
    writes: Planes,
}

impl Work {
    fn is_used(&self) -> bool {
        !self.ticket.is_done_from_start()
    }

    pub(super) fn is_on(&self, device: usize) -> bool {
        self.is_used() && usize::from(self.device) == device
    }

    pub(super) fn ticket(&self) -> Ticket {
        self.ticket
    }

    fn conflicts(&self, region: &Region, reads: Planes, writes: Planes) -> bool {
        (self.writes & (reads | writes) | self.reads & writes) != 0 && self.region.overlaps(region)
    }

    fn absorb(&mut self, other: &Self) {
        self.region = self.region.hull(&other.region);
        self.ticket.value = self.ticket.value.max(other.ticket.value);
        self.reads |= other.reads;
        self.writes |= other.writes;
    }
}

impl State<'_> {
    /// The tickets on `device` that an operation on `region` must follow.
    pub fn dependencies(
        &self,
        region: &Region,
        reads: Planes,
        writes: Planes,
        device: usize,
    ) -> After {
        let mut after = After::NONE;
        for work in self.work.iter() {
            if work.is_on(device) && work.conflicts(region, reads, writes) {
                after.add(work.ticket);
            }
        }
        let own = plane_bit(self.plane(device + 1));
        if let Some(state) = self.devices.get(device).filter(|_| own & (reads | writes) != 0) {
            after.add(state.ready);
        }
        after
    }

    /// Enters accepted work.
    pub fn add_work(
        &mut self,
        region: Region,
        tickets: &After,
        device: usize,
        reads: Planes,
        writes: Planes,
    ) {
        if self.devices.get(device).is_some_and(|device| device.lost) {
            // It went with the device: whoever waited for it would be told of the loss, again and again.
            return;
        }
        for ticket in tickets.as_slice() {
            let done = self.devices.get(device).and_then(|d| d.done.get(usize::from(ticket.lane)));
            if done.is_some_and(|done| ticket.value <= *done) {
                continue;
            }
            self.add_one(Work { region, ticket: *ticket, device: device as u8, reads, writes });
        }
    }

    fn add_one(&mut self, new: Work) {
        if let Some(slot) = self.work.iter_mut().find(|work| !work.is_used()) {
            *slot = new;
            return;
        }
        // Into the entry of its lane that grows the least; or, if its lane has none, the two of another
        // lane become one: the table has more entries than there are lanes.
        let growth = |a: &Work, b: &Work| a.region.hull(&b.region).volume() - a.region.volume();
        let same = |a: &Work, b: &Work| a.device == b.device && a.ticket.lane == b.ticket.lane;
        let best = self.work.iter_mut().filter(|work| same(work, &new));
        if let Some(work) = best.min_by_key(|work| growth(work, &new)) {
            work.absorb(&new);
            return;
        }
        for at in 0..self.work.len() {
            let (before, rest) = self.work.split_at_mut(at);
            let Some(last) = rest.first_mut() else { return };
            if let Some(other) = before.iter_mut().find(|other| same(other, last)) {
                other.absorb(last);
                *last = new;
                return;
            }
        }
    }

    /// Takes note that a ticket, and all before it in its lane, are done.
    pub fn retire(&mut self, device: usize, ticket: Ticket) {
        let Some(state) = self.devices.get_mut(device) else { return };
        if let Some(done) = state.done.get_mut(usize::from(ticket.lane)) {
            *done = (*done).max(ticket.value);
        }
        let covers = |t: Ticket| t.lane == ticket.lane && t.value <= ticket.value;
        if covers(state.ready) {
            state.ready = Ticket::DONE;
        }
        for work in self.work.iter_mut() {
            if work.is_on(device) && covers(work.ticket) {
                *work = Work::default();
            }
        }
    }

    /// The oldest ticket in flight on a device, when the table is more than half full: worth a poll.
    pub fn worth_polling(&self, device: usize) -> Option<Ticket> {
        let used = self.work.iter().filter(|work| work.is_used()).count();
        if used * 2 <= self.work.len() {
            return None;
        }
        self.work
            .iter()
            .filter(|work| work.is_on(device))
            .map(|work| work.ticket)
            .min_by_key(|ticket| ticket.value)
    }

    /// The planes that running at `place` in a mode reads and writes.
    pub(crate) fn planes_of(&self, place: usize, mode: super::Mode) -> (Planes, Planes) {
        let bit = plane_bit(self.plane(place));
        (if mode.reads() { bit } else { 0 }, if mode.writes() { bit } else { 0 })
    }
}
