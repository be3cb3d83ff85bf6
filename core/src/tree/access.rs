//! Accesses: reserve, then commit or abandon.

use super::{Location, Mode, State, granule};
use crate::coherence::{Change, Cursor, Pick, Planes, plane_bit};
use crate::driver::After;
use crate::error::{Busy, Error, Holder, Table};
use crate::region::{PerAxis, Region};

/// The most views of one launch.
pub const MAX_VIEWS: usize = 8;

/// Whether the requests of one call may share elements that one of them writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// They may not.
    Refused,
    /// They may: the caller keeps them apart.
    KeptApart,
}

/// What somebody wants.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The box of the root.
    pub region: Region,
    /// Where.
    pub location: Location,
    /// What for.
    pub mode: Mode,
    /// Whether the view holds every element of the box (stepped views do not): an overwrite that does
    /// not is an update of its box.
    pub covers: bool,
    /// Bytes that the smallest write touches.
    pub granule: u32,
    /// Whether bytes that nobody holds are left out instead of refused.
    pub skip_undefined: bool,
    /// Whether it only brings bytes home, and hands them to nobody: then guards at the same place are not in
    /// the way, since what they hold is fresh there.
    pub homing: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Phase {
    #[default]
    Free,
    /// A call is at work on it: nobody else may touch the region, and its cuts stay.
    Reserved,
    /// A guard or a device access is alive.
    Live,
}

/// A slot for an access.
#[derive(Clone, Copy, Debug, Default)]
pub struct Access {
    region: Region,
    phase: Phase,
    mode: Mode,
    place: u8,
    /// Whether the map says that the region is fresh at the place. A read that could not be cut is not
    /// recorded: while it is alive, its access vouches for it.
    recorded: bool,
    /// Whether all that it needs was brought, while the other views of its launch are still under way.
    brought: bool,
    /// Whether no call is at work on it now: its holder polls when he likes, so nobody should wait for it.
    parked: bool,
}

impl Access {
    pub(super) fn free(&mut self) {
        self.phase = Phase::Free;
    }

    fn holder(&self) -> Option<Holder> {
        match self.phase {
            Phase::Free => None,
            Phase::Reserved if !self.parked => Some(Holder::Call),
            Phase::Reserved | Phase::Live => Some(Holder::Access),
        }
    }

    /// A region at a place that is fresh without the map knowing: of a live read that was not recorded, or
    /// of another view of the launch under way (others cannot overlap with a reserved access).
    pub(super) fn fresh_at(&self, place: u8) -> Option<&Region> {
        let fresh = match self.phase {
            Phase::Free => false,
            Phase::Reserved => self.brought && self.mode.reads(),
            Phase::Live => !self.recorded,
        };
        (fresh && self.place == place).then_some(&self.region)
    }
}

/// A reserved access, in the hands of the call that reserved it.
#[derive(Clone, Copy, Debug)]
pub struct Reservation {
    pub(super) slot: u16,
    /// What was asked for.
    pub(super) exact: Region,
    /// What will change: `exact` in whole granules, widened where capacity is short.
    pub(super) outer: Region,
    pub(super) place: usize,
    pub(super) mode: Mode,
    pub(super) covers: bool,
    /// Where planning is.
    pub(super) pass: usize,
    pub(super) cursor: Cursor,
    pub(super) pieces: usize,
    /// Transfers accepted on its behalf, and the planes that they read after the call returned.
    transfers: After,
    sources: Planes,
}

impl Reservation {
    /// The box that the access was reserved for.
    pub fn region(&self) -> &Region {
        &self.exact
    }

    /// The box that will change or was made fresh: the one asked for, in whole granules, widened where
    /// capacity is short.
    pub fn outer(&self) -> &Region {
        &self.outer
    }

    /// What it was reserved for.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether every element of the box is the view's.
    pub(crate) fn covers(&self) -> bool {
        self.covers
    }

    /// The place number it was reserved at.
    pub(crate) fn place(&self) -> usize {
        self.place
    }

    /// Its slot in the table of accesses.
    pub fn slot(&self) -> usize {
        usize::from(self.slot)
    }

    /// The tickets of its transfers so far.
    pub fn transfers(&self) -> &After {
        &self.transfers
    }
}

impl State<'_> {
    /// Reserves all of `requests` or none. Regions must not be empty.
    ///
    /// # Errors
    /// Nothing is reserved, and no state changed:
    /// * [`Error::Busy`] when a live access conflicts, or another call is at work on the bytes
    ///   ([`Holder::Call`]: worth waiting for), or a write would have to widen into bytes that a live access holds;
    /// * [`Error::Overlap`] when two of the requests share elements and one writes, and `sharing` does not
    ///   allow it;
    /// * [`Error::Undefined`] when one reads what nobody holds;
    /// * [`Error::Full`] when live guards hold too many slots.
    pub fn reserve(
        &mut self,
        requests: &[Request],
        sharing: Sharing,
        mut keep: impl FnMut(Reservation),
    ) -> Result<(), Error> {
        if requests.len() > MAX_VIEWS {
            return Err(Error::Views { given: requests.len(), expected: MAX_VIEWS });
        }
        let capacity = self.accesses.len();
        let free = self.accesses.iter().filter(|a| a.phase == Phase::Free).count();
        if free < requests.len() {
            return Err(Error::Full { table: Table::Guards, capacity });
        }
        for (i, request) in requests.iter().enumerate() {
            let extended = self.extended(request);
            self.check_conflicts(&extended, request, &[])?;
            for other in requests.iter().take(i) {
                let written = request.mode.writes() || other.mode.writes();
                let shared = extended.intersection(&self.extended(other));
                if let Some(region) = shared.filter(|_| written && sharing == Sharing::Refused) {
                    return Err(Error::Overlap { region });
                }
            }
            self.check_defined(request)?;
            self.check_writable(request)?;
        }
        // All that can be refused by looking has been; what is left may still meet a widening it cannot have.
        // Slots are taken as cuts are made, so that one request's cuts hold while the next is cut.
        let mut taken = heapless::Vec::<u16, MAX_VIEWS>::new();
        for request in requests {
            let result = self.take(request, &taken);
            if let Ok(reservation) = result {
                // There is room: the requests are no more than that.
                let _ = taken.push(reservation.slot);
                keep(reservation);
            } else if let Err(error) = result {
                for slot in &taken {
                    if let Some(access) = self.accesses.get_mut(usize::from(*slot)) {
                        access.free();
                    }
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn extended(&self, request: &Request) -> Region {
        if request.mode.writes() {
            granule::extend(&request.region, self.layout(request.location.place()), request.granule)
        } else {
            request.region
        }
    }

    /// Whether another access, reserved or alive, is in the way of `region`.
    /// Those of the same launch (`own`) are not: widened bytes are written with what they hold already.
    fn check_conflicts(
        &mut self,
        region: &Region,
        request: &Request,
        own: &[u16],
    ) -> Result<(), Error> {
        let plane = self.plane(request.location.place());
        for slot in 0..self.accesses.len() {
            if own.iter().any(|own| usize::from(*own) == slot) {
                continue;
            }
            let Some(access) = self.accesses.get(slot).copied() else { break };
            let Some(holder) = access.holder() else { continue };
            let both_read = !access.mode.writes() && !request.mode.writes();
            // What a guard holds at this very place is fresh here: bringing home the rest of a
            // region touches none of it. Unless its storage went with a lost device: then another may have
            // the bytes, and bringing them would write under the guard.
            let same_place = self.plane(usize::from(access.place)) == plane;
            let homing = request.homing && same_place;
            if access.phase == Phase::Live && (both_read || homing) {
                let gone =
                    same_place && access.recorded && !self.map().is_fresh(plane, &access.region);
                if !gone {
                    continue;
                }
            }
            if let Some(region) = access.region.intersection(region) {
                return Err(Error::Busy(Busy { region, holder }));
            }
        }
        Ok(())
    }

    fn check_defined(&mut self, request: &Request) -> Result<(), Error> {
        if !request.mode.reads() || request.skip_undefined {
            return Ok(());
        }
        let nobody = self.map().nobody();
        match self.next_box(&request.region, nobody, &mut Cursor::default()) {
            None => Ok(()),
            Some(region) => {
                let map = self.map();
                let lost = map.touches(&region, Pick::stale(map.lost_plane()));
                Err(Error::Undefined { region, lost })
            }
        }
    }

    /// Read-only host storage takes neither writes nor what only devices hold.
    fn check_writable(&mut self, request: &Request) -> Result<(), Error> {
        if !self.header.setup.host_readonly || request.location != Location::Host {
            return Ok(());
        }
        if request.mode.writes() {
            return Err(Error::ReadOnly { region: request.region });
        }
        for place in 1..=self.devices.len() {
            let pick = Pick { stale: plane_bit(0), fresh: plane_bit(self.plane(place)) };
            if let Some(region) = self.next_box(&request.region, pick, &mut Cursor::default()) {
                return Err(Error::ReadOnly { region });
            }
        }
        Ok(())
    }

    /// Cuts the map for one request and takes a slot.
    fn take(&mut self, request: &Request, own: &[u16]) -> Result<Reservation, Error> {
        let place = request.location.place();
        let plane = self.plane(place);
        let extended = self.extended(request);
        let change = Change { plane, write: request.mode.writes() };
        // Cuts that reserved accesses will be recorded by must not be coalesced away.
        let accesses = &*self.accesses;
        let pinned = |axis: usize, cut: i32| {
            accesses.iter().any(|access| {
                let range = access.region.range(axis);
                access.phase == Phase::Reserved && (range.start == cut || range.end == cut)
            })
        };
        let mut map =
            crate::coherence::Map { grid: &mut self.header.grid, cuts: self.cuts, bits: self.bits };
        let outer = map.cut(&extended, change, &pinned);
        if outer != extended {
            self.check_conflicts(&outer, request, own)?;
        }
        let capacity = self.accesses.len();
        // Of those that have a name.
        let mut slots = self.accesses.iter_mut().take(1 << 16).enumerate();
        let free = slots.find(|(_, a)| a.phase == Phase::Free);
        let (slot, access) = free.ok_or(Error::Full { table: Table::Guards, capacity })?;
        *access = Access {
            region: outer,
            phase: Phase::Reserved,
            mode: request.mode,
            place: place as u8,
            recorded: false,
            brought: false,
            parked: false,
        };
        Ok(Reservation {
            slot: slot as u16,
            exact: request.region,
            outer,
            place,
            mode: request.mode,
            covers: request.covers,
            pass: 0,
            cursor: Cursor::default(),
            pieces: 0,
            transfers: After::NONE,
            sources: 0,
        })
    }

    /// Takes note that a reservation outlives the call that made it.
    pub(crate) fn park(&mut self, reservation: &Reservation) {
        if let Some(access) = self.accesses.get_mut(reservation.slot()) {
            access.parked = true;
        }
    }

    /// Takes note of an accepted transfer: `tickets` on the access's device, reading `source` (a place)
    /// until they are done, if the source is not borrowed host memory.
    pub fn transferred(&mut self, reservation: &mut Reservation, source: usize, tickets: &After) {
        reservation.transfers.extend(tickets);
        let borrowed = source == 0 && !self.header.setup.host_owned;
        if !borrowed {
            reservation.sources |= plane_bit(self.plane(source));
        }
    }

    /// Takes note that everything a reserved access needs was brought.
    pub fn brought(&mut self, reservation: &Reservation) {
        if let Some(access) = self.accesses.get_mut(reservation.slot()) {
            access.brought = true;
        }
    }

    /// Ends a reservation whose work was accepted: records what is fresh, and enters the work in flight.
    ///
    /// `ran` are the tickets of the work itself (a kernel) on `device`. With `hold` the access stays
    /// alive until [`end`](Self::end).
    pub fn commit(&mut self, reservation: &Reservation, device: usize, ran: &After, hold: bool) {
        self.record(reservation, device, ran);
        self.settle(reservation, hold);
    }

    /// The first half of [`commit`](Self::commit): records, with the access still reserved.
    pub fn record(&mut self, reservation: &Reservation, device: usize, ran: &After) {
        let plane = self.plane(reservation.place);
        let outer = reservation.outer;
        if reservation.mode.writes() {
            let alone = outer == *self.root()
                && !self.accesses.iter().enumerate().any(|(slot, access)| {
                    slot != reservation.slot() && access.phase == Phase::Reserved
                });
            let mut map = self.map();
            if alone {
                map.reset(plane_bit(plane));
            } else {
                map.mark_written(plane, &outer);
            }
        } else {
            self.map().mark_fresh(plane, &outer);
        }
        self.enter_transfers(reservation, device);
        let (reads, writes) = self.planes_of(reservation.place, reservation.mode);
        self.add_work(outer, ran, device, reads, writes);
    }

    /// The second half of [`commit`](Self::commit): frees the access, or lets it live.
    pub fn settle(&mut self, reservation: &Reservation, hold: bool) {
        let plane = self.plane(reservation.place);
        let recorded = self.map().is_fresh(plane, &reservation.outer);
        if let Some(access) = self.accesses.get_mut(reservation.slot()) {
            // Bytes beside the region asked for are only written with what they hold: once recorded, they
            // are nobody's to keep.
            access.region = reservation.exact;
            access.recorded = recorded;
            access.parked = false;
            access.phase = if hold { Phase::Live } else { Phase::Free };
        }
    }

    /// Ends a reservation whose work was not accepted. The map stays as it was; transfers that were
    /// accepted are still entered, so that later work follows them.
    pub fn abandon(&mut self, reservation: &Reservation, device: usize) {
        self.enter_transfers(reservation, device);
        if let Some(access) = self.accesses.get_mut(reservation.slot()) {
            access.free();
        }
    }

    fn enter_transfers(&mut self, reservation: &Reservation, device: usize) {
        let writes = plane_bit(self.plane(reservation.place));
        let tickets = reservation.transfers;
        self.add_work(reservation.outer, &tickets, device, reservation.sources, writes);
    }

    /// Ends a live access whose guard is gone. `false` when it must be asked again later: the map does
    /// not know of a read that a call in progress relies on.
    pub fn end(&mut self, slot: usize) -> bool {
        let Some(access) = self.accesses.get(slot).copied() else { return true };
        if access.phase != Phase::Live {
            return true;
        }
        let relied_on = !access.recorded
            && self.accesses.iter().any(|other| {
                other.phase == Phase::Reserved && other.region.overlaps(&access.region)
            });
        if let Some(access) = self.accesses.get_mut(slot).filter(|_| !relied_on) {
            access.free();
        }
        !relied_on
    }

    /// A box of what a device access reads that neither it nor the host has, but another device.
    pub(crate) fn only_on_another(&mut self, request: &Request) -> Option<Region> {
        let to = self.plane(request.location.place());
        let region = self.extended(request);
        (1..=self.devices.len()).find_map(|place| {
            let plane = self.plane(place);
            if plane == to || plane == 0 {
                return None;
            }
            let pick = Pick { stale: plane_bit(to) | plane_bit(0), fresh: plane_bit(plane) };
            self.next_box(&region, pick, &mut Cursor::default())
        })
    }

    /// Whether the map says that the host has all of a region.
    pub(crate) fn is_fresh_at_home(&mut self, region: &Region) -> bool {
        self.map().is_fresh(0, region)
    }

    /// Whether any access is reserved or alive at a place.
    pub fn is_in_use(&self, location: Location) -> Option<Busy> {
        let plane = self.plane(location.place());
        self.accesses.iter().find_map(|access| {
            let holder = access.holder()?;
            (self.plane(usize::from(access.place)) == plane)
                .then_some(Busy { region: access.region, holder })
        })
    }

    /// A call under way at another place that may be copying from a device just now, with no lock held; with
    /// `poisons`, that may be filling its memory.
    pub(crate) fn is_needed(&mut self, device: usize, poisons: bool) -> Option<Busy> {
        let own = self.plane(device + 1);
        for slot in 0..self.accesses.len() {
            let Some(access) = self.accesses.get(slot).copied() else { break };
            let plane = self.plane(usize::from(access.place));
            if access.phase != Phase::Reserved || plane == own {
                continue;
            }
            let source = Pick { stale: plane_bit(plane), fresh: plane_bit(own) };
            let poisoned = poisons && access.mode.writes();
            if let Some(holder) = access.holder()
                && (poisoned || self.map().touches(&access.region, source))
            {
                return Some(Busy { region: access.region, holder });
            }
        }
        None
    }

    /// How many guards and device accesses are alive.
    pub fn live_accesses(&self) -> usize {
        self.accesses.iter().filter(|access| access.phase == Phase::Live).count()
    }

    pub(super) fn check_accesses(&self) -> Result<(), &'static str> {
        let used = |access: &&Access| access.phase != Phase::Free;
        for (i, a) in self.accesses.iter().enumerate().filter(|(_, a)| used(a)) {
            if !self.header.grid.root.contains(&a.region) {
                return Err("an access reaches beyond the root");
            }
            for b in self.accesses.iter().take(i).filter(used) {
                let live = a.phase == Phase::Live && b.phase == Phase::Live;
                if live && (a.mode.writes() || b.mode.writes()) && a.region.overlaps(&b.region) {
                    return Err("two live accesses conflict");
                }
            }
        }
        Ok(())
    }
}

/// The element at the low corner of a region.
pub(super) fn corner(region: &Region) -> PerAxis<i32> {
    let mut at = PerAxis::all(0);
    for axis in 0..region.rank() {
        at.set(axis, region.lo(axis));
    }
    at
}
