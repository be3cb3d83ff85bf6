//! Random programs on a tree's state, its copies carried out on real bytes, against a dense model: the newest
//! value of each element, and who holds it.

use std::collections::BTreeSet;

use super::*;
use crate::coherence::{Pick, plane_bit};
use crate::error::Busy;

/// A small generator, so that failures repeat.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn chance(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A box inside `root`, not empty.
    fn region(&mut self, root: &Region) -> Region {
        let mut region = *root;
        for axis in 0..root.rank() {
            let lo = root.lo(axis) + self.below(u64::from(root.extent(axis))) as i32;
            let room = (root.hi(axis) - lo) as u64;
            region.set(axis, lo, lo + 1 + self.below(room) as i32);
        }
        region
    }
}

/// What one element is, and who has it.
#[derive(Clone, Default)]
struct Element {
    at: PerAxis<i32>,
    value: u8,
    /// By plane.
    fresh: [bool; 3],
    lost: bool,
}

impl Element {
    fn is_held(&self) -> bool {
        self.fresh.contains(&true)
    }

    fn only_on(&self, planes: u8) -> bool {
        let holds = |plane: &usize| self.fresh[*plane];
        self.is_held() && (0..3).filter(holds).all(|plane| planes & plane_bit(plane) != 0)
    }
}

struct Live {
    slot: usize,
    region: Region,
    mode: Mode,
    plane: usize,
    recorded: bool,
}

struct Program {
    rng: Rng,
    owned: Box<Owned>,
    /// By plane.
    bytes: [Vec<u8>; 3],
    model: Vec<Element>,
    live: Vec<Live>,
    /// Reserved, and not yet carried out.
    pending: Vec<(Reservation, Request)>,
    /// Whether capacity is such that nothing widens.
    ample: bool,
    seen: Seen,
}

/// How accesses ended, so that a program that tests nothing is found out.
#[derive(Default, Debug)]
struct Seen {
    done: u32,
    given_up: u32,
    full: u32,
    busy: u32,
    undefined: u32,
    read_only: u32,
    zeroed: u32,
}

fn elements(region: &Region) -> Vec<PerAxis<i32>> {
    let mut out = vec![PerAxis::all(0)];
    for axis in (0..region.rank()).rev() {
        let longer = |mut at: PerAxis<i32>, c| {
            at.set(axis, c);
            at
        };
        out = out.iter().flat_map(|at| region.range(axis).map(move |c| longer(*at, c))).collect();
    }
    out
}

fn has(region: &Region, at: &PerAxis<i32>) -> bool {
    region.contains_point(&at.0[..region.rank()])
}

impl Program {
    fn new(seed: u64, ample: bool) -> Self {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let rank = 1 + rng.below(3) as usize;
        // Some padding, and the last axis walks down.
        let (x, y, z) = [(60, 1, 1), (9, 7, 1), (5, 4, 3)][rank - 1];
        let strides = [1, i64::from(x) + 3, -(i64::from(x) + 3) * i64::from(y)];
        let shape = match rank {
            1 => Shape::strided([x], [-1]).min([-7]),
            2 => Shape::strided([x, y], [1, strides[1]]).min([-2, 3]),
            _ => Shape::strided([x, y, z], strides).min([4, -1, 0]),
        };
        let host = Layout::new(&shape, 1).unwrap();
        let shared = rng.chance(5);
        let has_host = shared || !rng.chance(6);
        let setup = Setup {
            host,
            device: host.packed_like(host.region()).unwrap(),
            devices: 2,
            has_host,
            host_fresh: has_host && !rng.chance(3),
            host_readonly: has_host && !shared && rng.chance(6),
            host_owned: shared || rng.chance(3),
            shared,
            host_survives_loss: rng.chance(2),
        };
        let (words, cuts) = if ample { (512, 40) } else { (1 + rng.below(4) as usize, 4) };
        let mut owned = Owned::with(setup, 4, 32, words, cuts);
        let sizes = [setup.host.span(), setup.device.span(), setup.device.span()];
        let bytes = sizes.map(|span| vec![0xa5; span as usize]);
        let root = *owned.state().root();
        let model = elements(&root)
            .into_iter()
            .map(|at| Element { at, fresh: [setup.host_fresh, false, false], ..Element::default() })
            .collect();
        let mut program = Self {
            rng,
            owned,
            bytes,
            model,
            live: Vec::new(),
            pending: Vec::new(),
            ample,
            seen: Seen::default(),
        };
        for i in 0..program.model.len() {
            program.model[i].value = i as u8;
            let at = program.model[i].at;
            *program.byte(0, &at) = i as u8;
        }
        program
    }

    fn byte(&mut self, plane: usize, at: &PerAxis<i32>) -> &mut u8 {
        let state = self.owned.state();
        let layout = if plane == 0 { &state.setup().host } else { &state.setup().device };
        &mut self.bytes[plane][layout.offset(at) as usize]
    }

    fn plane(&mut self, location: Location) -> usize {
        let place = location.place();
        if place == 1 && self.owned.state().setup().shared { 0 } else { place }
    }

    fn is_lost(&mut self, device: usize) -> bool {
        self.owned.state().device(device).unwrap().lost
    }

    /// Where an access can be: a place that exists and works.
    fn location(&mut self) -> Option<Location> {
        let location =
            [Location::Host, Location::Device(0), Location::Device(1)][self.rng.below(3) as usize];
        let works = match location {
            Location::Host => self.owned.state().setup().has_host,
            Location::Device(device) => !self.is_lost(usize::from(device)),
        };
        works.then_some(location)
    }

    fn request(&mut self, location: Location) -> Request {
        let root = *self.owned.state().root();
        let mode = [Mode::Read, Mode::Overwrite, Mode::Update][self.rng.below(3) as usize];
        Request {
            region: self.rng.region(&root),
            location,
            mode,
            covers: !self.rng.chance(4),
            granule: [1, 1, 2, 4][self.rng.below(4) as usize],
            skip_undefined: self.rng.chance(4),
            homing: mode == Mode::Read && self.rng.chance(4),
        }
    }

    /// The elements that a request touches: its region, in whole granules if it writes.
    fn extended(&mut self, request: &Request) -> Region {
        let plane = self.plane(request.location);
        let state = self.owned.state();
        let layout = if plane == 0 { state.setup().host } else { state.setup().device };
        match request.mode {
            Mode::Read => request.region,
            _ => granule::extend(&request.region, &layout, request.granule),
        }
    }

    /// Whether a live access is in the way, or a call at work on the bytes.
    fn conflicts(&mut self, request: &Request) -> bool {
        let region = self.extended(request);
        let plane = self.plane(request.location);
        let called = |(reservation, _): &(Reservation, _)| reservation.outer().overlaps(&region);
        self.pending.iter().any(called)
            || self.live.iter().any(|live| {
                let both_read = live.mode == Mode::Read && request.mode == Mode::Read;
                let homing = request.homing && live.plane == plane;
                // Its bytes went with a lost device: they must not be brought back under it.
                let gone = live.plane == plane
                    && live.recorded
                    && self.model.iter().any(|e| has(&live.region, &e.at) && !e.fresh[plane]);
                live.region.overlaps(&region) && (gone || !(both_read || homing))
            })
    }

    /// Read-only storage on the host is not written, nor are bytes brought there.
    fn is_read_only(&mut self, request: &Request) -> bool {
        let readonly = self.owned.state().setup().host_readonly;
        let newer = |e: &Element| has(&request.region, &e.at) && !e.fresh[0] && e.is_held();
        readonly
            && request.location == Location::Host
            && (request.mode != Mode::Read || self.model.iter().any(newer))
    }

    fn undefined(&self, request: &Request) -> bool {
        request.mode != Mode::Overwrite
            && !request.skip_undefined
            && self.model.iter().any(|e| has(&request.region, &e.at) && !e.is_held())
    }

    fn access(&mut self) {
        let Some(location) = self.location() else { return };
        let request = self.request(location);
        let (conflicts, undefined) = (self.conflicts(&request), self.undefined(&request));
        let read_only = self.is_read_only(&request);
        let full = self.live.len() + self.pending.len() == 4;
        let result = take(&mut self.owned.state(), request);
        let reservation = match result {
            Ok(reservation) => reservation,
            Err(Error::Full { .. }) => {
                self.seen.full += 1;
                return assert!(full);
            }
            Err(Error::Busy(Busy { region, holder })) => {
                self.seen.busy += 1;
                assert!(conflicts || (!self.ample && request.mode != Mode::Read), "{region}");
                let by_call = |(r, _): &(Reservation, _)| r.outer().contains(&region);
                let live = |live: &Live| live.region.contains(&region);
                return match holder {
                    Holder::Call => assert!(self.pending.iter().any(by_call)),
                    _ => assert!(self.live.iter().any(live)),
                };
            }
            Err(Error::Undefined { region, lost }) => {
                self.seen.undefined += 1;
                assert!(undefined && !conflicts && request.region.contains(&region));
                let inside: Vec<_> = self.model.iter().filter(|e| has(&region, &e.at)).collect();
                assert!(inside.iter().all(|e| !e.is_held()));
                return assert!(!self.ample || lost == inside.iter().any(|e| e.lost));
            }
            Err(Error::ReadOnly { .. }) => {
                self.seen.read_only += 1;
                return assert!(read_only && !undefined && !conflicts);
            }
            Err(error) => panic!("{error}"),
        };
        assert!(!full && !conflicts && !undefined && !read_only, "{request:?} was not refused");
        let outer = *reservation.outer();
        let extended = self.extended(&request);
        assert!(outer.contains(&extended) && (!self.ample || outer == extended));
        if self.rng.chance(4) {
            self.pending.push((reservation, request));
        } else {
            self.bring(reservation, &request);
        }
    }

    /// Goes on with what was only reserved: whatever happened meanwhile, nothing happened to its bytes.
    fn go_on(&mut self) {
        if let Some(last) = self.pending.len().checked_sub(1) {
            let at = self.rng.below(last as u64 + 1) as usize;
            let (reservation, request) = self.pending.swap_remove(at);
            self.bring(reservation, &request);
        }
    }

    fn end(&mut self) {
        if let Some(last) = self.live.len().checked_sub(1) {
            let live = self.live.swap_remove(self.rng.below(last as u64 + 1) as usize);
            let called = |(r, _): &(Reservation, _)| r.outer().overlaps(&live.region);
            // A call at work may rely on what the map does not know.
            let needed = !live.recorded && self.pending.iter().any(called);
            assert_eq!(self.owned.state().end(live.slot), !needed);
            if needed {
                self.live.push(live);
            }
        }
    }

    /// Carries out the plan of an access, checks it, and commits it or gives it up.
    fn bring(&mut self, mut reservation: Reservation, request: &Request) {
        let plane = self.plane(request.location);
        let outer = *reservation.outer();
        let keeps = request.mode == Mode::Overwrite && request.covers;
        let give_up = self.rng.chance(6);
        let mut brought = BTreeSet::new();
        let mut list = [CopyBox::default(); 3];
        loop {
            let (next, len) = self.owned.state().next(&mut reservation, &mut list);
            let list = &list[..len];
            let total: u64 = list.iter().map(CopyBox::bytes).sum();
            let mut inside = 0;
            let source = match next {
                Next::Done => break,
                Next::Zero { bytes } => {
                    assert_eq!(bytes, total);
                    self.seen.zeroed += 1;
                    None
                }
                Next::Copy { from, bytes, widened } => {
                    assert_eq!(bytes + widened, total);
                    inside = bytes;
                    let from = Location::of_place(from);
                    Some((from, self.plane(from)))
                }
            };
            assert!(len > 0 && total > 0);
            for copy in list {
                let mut moves = Vec::new();
                copy.for_each_run(|src, dst| {
                    moves.extend((0..copy.run).map(|i| ((src + i) as usize, (dst + i) as usize)));
                });
                for (src, dst) in moves {
                    let at = self.element_at(plane, dst);
                    assert!(has(&outer, &at) && brought.insert(at.0), "{at:?} is brought twice");
                    let under = |live: &Live| live.plane == plane && has(&live.region, &at);
                    assert!(!self.live.iter().any(under), "{at:?} is under a guard");
                    let element = self.model.iter().find(|e| e.at == at).unwrap();
                    if let Some((from, source)) = source {
                        assert!(element.fresh[source], "{at:?} is stale on {from}");
                        assert!(!element.fresh[plane] || !self.ample, "{at:?} is there already");
                        inside = inside.saturating_sub(u64::from(has(&request.region, &at)));
                        self.bytes[plane][dst] = self.bytes[source][src];
                    } else {
                        assert!(!element.is_held() && request.mode != Mode::Read);
                        self.bytes[plane][dst] = 0;
                    }
                }
            }
            assert_eq!(inside, 0, "bytes of the region asked for");
            if give_up {
                break;
            }
        }
        if give_up {
            self.seen.given_up += 1;
            self.owned.state().abandon(&reservation, 0);
            return;
        }
        // Exactly what was stale and can be had, but for what is overwritten.
        for element in self.model.iter().filter(|e| has(&outer, &e.at)) {
            let covered = keeps && has(&request.region, &element.at);
            let comes =
                if element.is_held() { !element.fresh[plane] } else { request.mode != Mode::Read };
            let moved = brought.contains(&element.at.0);
            assert!(!moved || !covered, "{:?} is overwritten", element.at);
            assert!(!self.ample || moved == (comes && !covered), "{:?}", element.at);
        }

        let hold = !request.homing && self.rng.chance(3);
        let slot = reservation.slot();
        self.seen.done += 1;
        self.owned.state().commit(&reservation, 0, &After::NONE, hold);
        self.record(request, &outer, plane);
        self.sync();
        let recorded = self.model.iter().all(|e| !has(&outer, &e.at) || e.fresh[plane]);
        if hold {
            let Request { region, mode, .. } = *request;
            self.live.push(Live { slot, region, mode, plane, recorded });
        }
    }

    /// What an access does to the model and, as its holder would, to the bytes.
    fn record(&mut self, request: &Request, outer: &Region, plane: usize) {
        let writes = request.mode != Mode::Read;
        for i in 0..self.model.len() {
            let at = self.model[i].at;
            if !has(outer, &at) {
                continue;
            }
            let held = self.model[i].is_held();
            if held && request.mode != Mode::Overwrite {
                let (found, value) = (*self.byte(plane, &at), self.model[i].value);
                assert_eq!(found, value, "{at:?} at {}", request.location);
            }
            if writes {
                if !held {
                    self.model[i].value = 0;
                }
                if has(&request.region, &at) && (request.covers || i % 2 == 0) {
                    let value = self.rng.below(251) as u8;
                    self.model[i].value = value;
                    *self.byte(plane, &at) = value;
                }
                self.model[i].fresh = [false; 3];
                self.model[i].fresh[plane] = true;
                self.model[i].lost = false;
                // What lies beside was brought, or is zero.
                let value = self.model[i].value;
                assert_eq!(*self.byte(plane, &at), value, "{at:?} beside a write");
            } else if held {
                self.model[i].fresh[plane] = true;
            }
        }
    }

    fn element_at(&mut self, plane: usize, offset: usize) -> PerAxis<i32> {
        let state = self.owned.state();
        let layout = if plane == 0 { state.setup().host } else { state.setup().device };
        let found = self.model.iter().find(|e| layout.offset(&e.at) == offset as u64);
        let Some(element) = found else {
            panic!("a byte between elements is touched, at {offset}")
        };
        element.at
    }

    /// Where capacity is short a read may go unrecorded; else the map says what the model does.
    fn sync(&mut self) {
        let ample = self.ample;
        let mut state = self.owned.state();
        state.check().unwrap();
        for element in &mut self.model {
            let mut one = *state.root();
            for axis in 0..one.rank() {
                one.set(axis, element.at.at(axis), element.at.at(axis) + 1);
            }
            assert_eq!(state.is_defined(&element.at), element.is_held(), "{:?}", element.at);
            assert!(!state.is_fresh_at_home(&one) || element.fresh[0]);
            let map = state.map();
            for plane in 0..3 {
                let claimed = map.is_fresh(plane, &one);
                assert!(!claimed || element.fresh[plane], "{:?} on {plane}", element.at);
                assert!(!ample || claimed == element.fresh[plane], "{:?} on {plane}", element.at);
                element.fresh[plane] = claimed;
            }
            let lost = map.touches(&one, Pick::stale(map.lost_plane()));
            assert!(!ample || lost == element.lost, "{:?}", element.at);
            element.lost = lost;
        }
    }

    fn lose(&mut self, device: usize) {
        let setup = *self.owned.state().setup();
        // Storage that the driver owns goes with it, unless it survives.
        let goes = setup.host_owned && !setup.host_survives_loss && device == 0;
        let mut planes = if device == 0 && setup.shared { 0 } else { plane_bit(device + 1) };
        if goes {
            planes |= plane_bit(0);
        }
        let again = self.is_lost(device);
        let mut count = 0;
        let mut first = None;
        for element in self.model.iter_mut().filter(|_| !again) {
            let lost = element.only_on(planes);
            if lost {
                count += 1;
                element.lost = true;
                first = first.or(Some(element.at));
            }
            for plane in (0..3).filter(|plane| planes & plane_bit(*plane) != 0) {
                element.fresh[plane] = false;
            }
        }
        let (region, boxes) = self.owned.state().lose(device);
        assert_eq!(region.is_some(), count > 0);
        assert!(boxes as usize <= count && (boxes > 0) == (count > 0));
        if let Some(region) = region {
            assert!(
                elements(&region)
                    .iter()
                    .all(|at| { self.model.iter().any(|e| e.at == *at && e.lost) })
            );
        }
        assert!(self.is_lost(device));
        self.sync();
    }

    /// What only a device has can be told; once nothing is, its memory can be given back.
    fn evict(&mut self, device: usize) {
        let plane = self.plane(Location::Device(device as u8));
        let mut only = BTreeSet::new();
        self.owned.state().only_on_device(device, &mut |region| {
            only.extend(elements(&region).iter().map(|at| at.0));
            true
        });
        let wanted = self.model.iter().filter(|e| plane != 0 && e.only_on(plane_bit(plane)));
        assert_eq!(only, wanted.map(|e| e.at.0).collect());
        let location = Location::Device(device as u8);
        if only.is_empty() && self.owned.state().is_in_use(location).is_none() {
            self.owned.state().forget_device(device);
            for element in self.model.iter_mut().filter(|_| plane != 0) {
                element.fresh[plane] = false;
            }
            self.sync();
        }
    }

    /// What can be asked says what the model says.
    fn ask(&mut self) {
        let root = *self.owned.state().root();
        let region = self.rng.region(&root);
        for location in [Location::Host, Location::Device(0), Location::Device(1)] {
            let plane = self.plane(location);
            let mut fresh = BTreeSet::new();
            let mut cursor = Cursor::default();
            let mut state = self.owned.state();
            while let Some(piece) = state.next_fresh(location, &region, &mut cursor) {
                fresh.extend(elements(&piece).iter().map(|at| at.0));
            }
            let inside = || self.model.iter().filter(|e| has(&region, &e.at));
            assert_eq!(fresh, inside().filter(|e| e.fresh[plane]).map(|e| e.at.0).collect());
            let called = |(reservation, _): &(Reservation, Request)| {
                state.plane(reservation.place()) == plane
            };
            let used =
                self.live.iter().any(|live| live.plane == plane) || self.pending.iter().any(called);
            assert_eq!(state.is_in_use(location).is_some(), used);

            let request = request(region, location, Mode::Read);
            let away = |e: &&Element| {
                !e.fresh[plane] && !e.fresh[0] && (1..3).any(|p| p != plane && e.fresh[p])
            };
            let found = state.only_on_another(&request);
            assert_eq!(found.is_some(), inside().any(|e| away(&e)), "{location}: {found:?}");
            let found = found.map(|region| elements(&region)).unwrap_or_default();
            assert!(found.iter().all(|at| inside().filter(away).any(|e| e.at == *at)));
        }
        let mut state = self.owned.state();
        assert_eq!(state.next_fresh(Location::Device(2), &region, &mut Cursor::default()), None);
        assert_eq!(state.live_accesses(), self.live.len());
        let mut lost = BTreeSet::new();
        let mut cursor = Cursor::default();
        while let Some(piece) = state.next_lost(&mut cursor) {
            lost.extend(elements(&piece).iter().map(|at| at.0));
        }
        assert_eq!(lost, self.model.iter().filter(|e| e.lost).map(|e| e.at.0).collect());
    }

    fn take_lost(&mut self) {
        let taken = self.owned.state().take_lost();
        assert_eq!(taken.is_some(), self.model.iter().any(|e| e.lost));
        if let Some(taken) = taken {
            for element in self.model.iter_mut().filter(|e| has(&taken, &e.at)) {
                assert!(element.lost);
                element.lost = false;
            }
        }
        self.sync();
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            match self.rng.below(20) {
                0..12 => self.access(),
                12 => self.end(),
                13..15 => self.go_on(),
                15 => self.evict(0),
                16 => self.evict(1),
                17 => self.take_lost(),
                18 if self.pending.is_empty() && self.rng.chance(6) => {
                    let device = self.rng.below(2) as usize;
                    self.lose(device);
                }
                18 if self.rng.chance(8) => {
                    self.owned.state().forget_lost();
                    self.model.iter_mut().for_each(|e| e.lost = false);
                }
                _ => self.ask(),
            }
        }
    }
}

/// Runs programs; every way in which an access ends must have been met.
fn run_all(ample: bool) {
    let mut all = Seen::default();
    for seed in 1..300 {
        let mut program = Program::new(seed, ample);
        program.run(50);
        let Seen { done, given_up, full, busy, undefined, read_only, zeroed } = program.seen;
        all.done += done;
        all.given_up += given_up;
        all.full += full;
        all.busy += busy;
        all.undefined += undefined;
        all.read_only += read_only;
        all.zeroed += zeroed;
    }
    let Seen { done, given_up, full, busy, undefined, read_only, zeroed } = all;
    let rare = [given_up, full, busy, undefined, read_only, zeroed].into_iter().min();
    assert!(done > 2_000 && rare > Some(30), "{all:?}");
}

#[test]
fn programs_with_ample_capacity() {
    run_all(true);
}

/// I3: the same with a few words: more may move, and a write may be refused; no value is wrong.
#[test]
fn programs_with_scarce_capacity() {
    run_all(false);
}
