//! Imported timelines: lanes 1 and up, whose tickets name work that others submit.
//!
//! **Invariant:** within a lane, ticket values never go down, whatever timeline has it. A ticket is a value of
//! the timeline plus the lane's `base`, and `base` rises over every ticket of a lane when its timeline is
//! removed, all of which are done by then. So an old ticket, or what a tree remembers of one, never means work
//! on the timeline that has the lane next. `base <= done <= named` and `waited <= named`.

use std::sync::Arc;
use std::time::Duration;

use ash::vk;
use hedgerow::driver::{MAX_LANES, Ticket};

use crate::error::{Result, VulkanError};
use crate::raw::{Raw, Wait};

/// How many timelines can be imported at a time.
const MOST: usize = MAX_LANES - 1;

/// An imported timeline, as [`Vulkan::import_timeline`](crate::Vulkan::import_timeline) names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lane {
    index: u8,
    generation: u32,
}

impl Lane {
    /// The lane of its tickets.
    pub fn index(&self) -> u8 {
        self.index
    }
}

#[derive(Default)]
struct Slot {
    /// Shared with those who wait for it, so that it is not removed under them.
    semaphore: Option<Arc<vk::Semaphore>>,
    generation: u32,
    /// What ticket values are above the timeline's.
    base: u64,
    /// The highest ticket that anybody has named.
    named: u64,
    /// The highest ticket that a wait has seen done.
    done: u64,
    /// The highest ticket that the queue waits for, in some batch recorded so far.
    waited: u64,
}

/// Where a ticket of an imported timeline stands.
pub(crate) enum Place {
    /// It is done.
    Done,
    /// It is done when this is.
    At(Arc<vk::Semaphore>, u64),
}

/// What the next operation makes its batch wait for.
#[derive(Default)]
pub(crate) struct Waits {
    /// By lane.
    list: [Option<Wait>; MOST],
    /// Whether any of them may not be done yet.
    pub(crate) pending: bool,
}

impl Waits {
    pub(crate) fn iter(&self) -> impl Iterator<Item = Wait> + '_ {
        self.list.iter().flatten().copied()
    }
}

/// The lanes from 1 on.
#[derive(Default)]
pub(crate) struct Lanes {
    slots: [Slot; MOST],
}

impl Lanes {
    fn slot(&mut self, ticket: Ticket) -> Result<&mut Slot> {
        let Ticket { lane, value } = ticket;
        let place = usize::from(lane).wrapping_sub(1);
        self.slots.get_mut(place).ok_or(VulkanError::UnknownTicket { lane, value, last: 0 })
    }

    fn held(&mut self, lane: Lane) -> Result<&mut Slot> {
        let Lane { index, generation } = lane;
        self.slots
            .get_mut(usize::from(index).wrapping_sub(1))
            .filter(|slot| slot.generation == generation && slot.semaphore.is_some())
            .ok_or(VulkanError::StaleLane { lane: index })
    }

    pub(crate) fn import(&mut self, semaphore: vk::Semaphore) -> Result<Lane> {
        let free = self.slots.iter_mut().zip(1..).find(|(slot, _)| slot.semaphore.is_none());
        let (slot, index) = free.ok_or(VulkanError::NoLane { most: MOST })?;
        slot.semaphore = Some(Arc::new(semaphore));
        Ok(Lane { index, generation: slot.generation })
    }

    /// The ticket for a value of the timeline.
    pub(crate) fn ticket(&mut self, lane: Lane, value: u64) -> Result<Ticket> {
        let slot = self.held(lane)?;
        let value = slot.base.saturating_add(value);
        slot.named = slot.named.max(value);
        Ok(Ticket { lane: lane.index, value })
    }

    /// The last ticket of a timeline that anybody has named.
    pub(crate) fn last(&mut self, lane: Lane) -> Result<Ticket> {
        let slot = self.held(lane)?;
        Ok(Ticket { lane: lane.index, value: slot.named })
    }

    /// Gives the lane up, if its last ticket is this one, which is done for the queue and the host, and nobody
    /// waits. Whether that is so.
    pub(crate) fn remove(&mut self, lane: Lane, last: Ticket) -> Result<bool> {
        let slot = self.held(lane)?;
        let alone = slot.semaphore.as_ref().is_none_or(|shared| Arc::strong_count(shared) == 1);
        if slot.named != last.value || !alone {
            return Ok(false);
        }
        let (generation, base) = (slot.generation.wrapping_add(1), slot.named);
        *slot = Slot { semaphore: None, generation, base, named: base, done: base, waited: base };
        Ok(true)
    }

    /// Where a ticket of lane 1 or up stands.
    pub(crate) fn find(&mut self, ticket: Ticket) -> Result<Place> {
        if ticket.is_done_from_start() {
            return Ok(Place::Done);
        }
        let slot = self.slot(ticket)?;
        if ticket.value <= slot.done {
            return Ok(Place::Done);
        }
        let Some(semaphore) = &slot.semaphore else {
            let Ticket { lane, value } = ticket;
            return Err(VulkanError::UnknownTicket { lane, value, last: slot.base });
        };
        slot.named = slot.named.max(ticket.value);
        Ok(Place::At(Arc::clone(semaphore), ticket.value - slot.base))
    }

    /// The semaphore of a ticket's lane, and its value there, done or not; `None` for one of a timeline that
    /// was removed.
    pub(crate) fn wait(&mut self, ticket: Ticket) -> Result<Option<Wait>> {
        let found = self.find(ticket)?;
        let slot = self.slot(ticket)?;
        Ok(match (found, &slot.semaphore) {
            (Place::At(semaphore, value), _) => Some((*semaphore, value)),
            (Place::Done, Some(semaphore)) if ticket.value > slot.base => {
                Some((**semaphore, ticket.value - slot.base))
            }
            (Place::Done, _) => None,
        })
    }

    /// Notes that a wait has seen a ticket done.
    pub(crate) fn reached(&mut self, ticket: Ticket) {
        if let Ok(slot) = self.slot(ticket) {
            slot.done = slot.done.max(ticket.value.min(slot.named));
        }
    }

    /// Whether a ticket of lane 1 or up is done. Looks, and does not wait.
    pub(crate) fn is_done(&mut self, raw: &Raw, ticket: Ticket) -> Result<bool> {
        match self.find(ticket)? {
            Place::Done => Ok(true),
            Place::At(semaphore, value) => {
                let done = raw.wait_once_on((*semaphore, value), Duration::ZERO)?;
                if done {
                    self.reached(ticket);
                }
                Ok(done)
            }
        }
    }

    /// What an operation that follows `after` makes the queue wait for, beyond what it waits for already:
    /// those tickets, and what is done by now, so that its effects are visible.
    pub(crate) fn waits(&mut self, after: &[Ticket]) -> Result<Waits> {
        let mut waits = Waits::default();
        for ticket in after.iter().filter(|ticket| ticket.lane != 0) {
            self.find(*ticket)?;
        }
        for ((slot, lane), wait) in self.slots.iter().zip(1..).zip(&mut waits.list) {
            let Some(semaphore) = &slot.semaphore else { continue };
            let own = after.iter().filter(|ticket| ticket.lane == lane);
            let follows = own.map(|ticket| ticket.value).max().unwrap_or(0);
            waits.pending |= follows > slot.waited && follows > slot.done;
            let value = follows.max(slot.done);
            if value > slot.waited {
                *wait = Some((**semaphore, value - slot.base));
            }
        }
        Ok(waits)
    }

    /// Notes that a batch waits for these.
    pub(crate) fn queued(&mut self, waits: &Waits) {
        for (slot, wait) in self.slots.iter_mut().zip(&waits.list) {
            if let Some((_, value)) = wait {
                slot.waited = slot.waited.max(slot.base + value);
            }
        }
    }

    /// The last named value of every timeline.
    pub(crate) fn all(&self) -> impl Iterator<Item = Wait> + '_ {
        self.slots.iter().filter_map(|slot| {
            let semaphore = slot.semaphore.as_ref()?;
            (slot.named > slot.done).then_some((**semaphore, slot.named - slot.base))
        })
    }
}

#[cfg(test)]
mod tests {
    use ash::vk::Handle;

    use super::*;

    fn semaphore(handle: u64) -> vk::Semaphore {
        vk::Semaphore::from_raw(handle)
    }

    #[test]
    fn tickets_of_a_lane_only_rise() {
        let mut lanes = Lanes::default();
        let first = lanes.import(semaphore(7)).expect("a lane");
        assert_eq!(first.index(), 1);
        let old = lanes.ticket(first, 40).expect("a ticket");
        assert_eq!(old, Ticket { lane: 1, value: 40 });
        assert!(matches!(lanes.find(old), Ok(Place::At(_, 40))));
        lanes.reached(old);
        assert!(lanes.remove(first, old).expect("is held"));
        assert!(lanes.ticket(first, 41).is_err(), "a stale handle");
        assert!(matches!(lanes.find(old), Ok(Place::Done)));
        let never = Ticket { lane: 1, value: 41 };
        assert!(lanes.find(never).is_err(), "nobody has the lane");

        let second = lanes.import(semaphore(8)).expect("a lane");
        let new = lanes.ticket(second, 1).expect("a ticket");
        assert_eq!(new, Ticket { lane: 1, value: 41 });
        assert!(matches!(lanes.find(new), Ok(Place::At(s, 1)) if *s == semaphore(8)));
        assert!(matches!(lanes.find(old), Ok(Place::Done)));
        assert!(lanes.remove(first, new).is_err());
    }

    #[test]
    fn not_removed_while_in_use() {
        let mut lanes = Lanes::default();
        let lane = lanes.import(semaphore(7)).expect("a lane");
        let ticket = lanes.ticket(lane, 3).expect("a ticket");
        let waiting = lanes.find(ticket);
        lanes.reached(ticket);
        assert!(!lanes.remove(lane, ticket).expect("is held"), "somebody waits");
        drop(waiting);
        let later = lanes.ticket(lane, 4).expect("a ticket");
        assert!(!lanes.remove(lane, ticket).expect("is held"), "a later one was named");
        assert!(lanes.remove(lane, later).expect("is held"));
    }

    #[test]
    fn waits_once() {
        let mut lanes = Lanes::default();
        let lane = lanes.import(semaphore(7)).expect("a lane");
        let other = lanes.import(semaphore(8)).expect("a lane");
        let a = lanes.ticket(lane, 3).expect("a ticket");
        let b = lanes.ticket(other, 9).expect("a ticket");
        let own = Ticket { lane: 0, value: 99 };
        let waits = lanes.waits(&[own, a]).expect("known");
        assert!(waits.pending);
        assert!(waits.iter().eq([(semaphore(7), 3)]));
        lanes.queued(&waits);
        assert_eq!(lanes.waits(&[a]).expect("known").iter().count(), 0);
        // What is done is waited for by the way, without delay.
        lanes.reached(b);
        let waits = lanes.waits(&[own]).expect("known");
        assert!(!waits.pending);
        assert!(waits.iter().eq([(semaphore(8), 9)]));
        assert!(lanes.waits(&[Ticket { lane: 3, value: 1 }]).is_err());
        assert!(lanes.waits(&[Ticket { lane: 9, value: 1 }]).is_err());
        assert_eq!(lanes.import(semaphore(9)).expect("the last lane").index(), 3);
        assert!(matches!(lanes.import(semaphore(9)), Err(VulkanError::NoLane { most: 3 })));
    }
}
