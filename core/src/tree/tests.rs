//! The state machine by itself: granules, work in flight, nodes, and what reserving refuses.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::single_range_in_vec_init)] // a region of one axis

extern crate std;
use std::boxed::Box;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::driver::CopyBox;
use crate::error::{Error, Holder, Table};
use crate::region::{MAX_RANK, PerAxis, Shape};

mod program;

/// Tables of any size, for one or two devices.
struct Owned {
    header: Header,
    nodes: Vec<Node>,
    accesses: Vec<Access>,
    work: Vec<Work>,
    cuts: Vec<i32>,
    bits: Vec<u32>,
    devices: Vec<DeviceState>,
}

impl Owned {
    fn new(shape: &Shape, element: usize, guards: usize, work: usize, words: usize) -> Box<Self> {
        let host = Layout::new(shape, element).unwrap();
        let setup = Setup {
            host,
            device: host.packed_like(host.region()).unwrap(),
            devices: 2,
            has_host: true,
            host_fresh: true,
            host_readonly: false,
            host_owned: false,
            shared: false,
            host_survives_loss: false,
        };
        Self::with(setup, guards, work, words, 8)
    }

    fn with(setup: Setup, guards: usize, work: usize, words: usize, cuts: usize) -> Box<Self> {
        let mut owned = Box::new(Self {
            header: Header::new(setup),
            nodes: vec![Node::default(); 4],
            accesses: vec![Access::default(); guards],
            work: vec![Work::default(); work],
            cuts: vec![0; cuts * MAX_RANK],
            bits: vec![0; words * 4],
            devices: vec![DeviceState::default(); setup.devices],
        });
        owned.state().start();
        owned
    }

    fn state(&mut self) -> State<'_> {
        State {
            header: &mut self.header,
            nodes: &mut self.nodes,
            accesses: &mut self.accesses,
            work: &mut self.work,
            cuts: &mut self.cuts,
            bits: &mut self.bits,
            devices: &mut self.devices,
        }
    }
}

fn request(region: Region, location: Location, mode: Mode) -> Request {
    Request {
        region,
        location,
        mode,
        covers: true,
        granule: 1,
        skip_undefined: false,
        homing: false,
    }
}

fn take(state: &mut State<'_>, request: Request) -> Result<Reservation, Error> {
    let mut got = None;
    state.reserve(&[request], Sharing::Refused, |reservation| got = Some(reservation))?;
    Ok(got.unwrap())
}

/// Every element that shares a granule with one of `region`, by looking at every byte.
fn sharing(region: &Region, layout: &Layout, granule: u64) -> Vec<PerAxis<i32>> {
    let points = |region: &Region| -> Vec<PerAxis<i32>> {
        let mut out = vec![PerAxis::all(0)];
        for axis in 0..region.rank() {
            out = out
                .iter()
                .flat_map(|at| {
                    region.range(axis).map(move |c| {
                        let mut at = *at;
                        at.set(axis, c);
                        at
                    })
                })
                .collect();
        }
        out
    };
    let granules = |at: &PerAxis<i32>| {
        let first = layout.offset(at);
        first / granule..(first + u64::from(layout.element())).div_ceil(granule)
    };
    let written: Vec<_> = points(region).iter().map(granules).collect();
    points(layout.region())
        .into_iter()
        .filter(|at| {
            let mine = granules(at);
            written.iter().any(|g| g.start < mine.end && mine.start < g.end)
        })
        .collect()
}

/// Rule 8: the extension holds everything that shares a granule, and is exact where it can be a box.
#[test]
fn granules_are_never_torn() {
    for (width, height, depth) in [(8, 3, 1), (7, 4, 2), (1, 9, 2), (5, 1, 3), (12, 2, 2)] {
        for element in [1usize, 2, 3, 4, 6] {
            for signs in [[1i64, 1, 1], [-1, 1, 1], [1, -1, -1]] {
                let strides =
                    [signs[0], signs[1] * i64::from(width), signs[2] * i64::from(width * height)];
                let shape = Shape::strided([width, height, depth], strides).min([-2, 0, 5]);
                let layout = Layout::new(&shape, element).unwrap();
                let root = *layout.region();
                for granule in [1u32, 2, 4] {
                    for (x, y, z) in [(0, 0, 0), (1, 0, 0), (2, 1, 0), (0, 1, 1), (3, 2, 1)] {
                        let mut region = root;
                        for (axis, skip) in [x, y, z].into_iter().enumerate() {
                            let lo = (root.lo(axis) + skip).min(root.hi(axis) - 1);
                            region.set(axis, lo, (lo + 2).min(root.hi(axis)));
                        }
                        let wide = granule::extend(&region, &layout, granule);
                        assert!(root.contains(&wide) && wide.contains(&region));
                        for at in sharing(&region, &layout, u64::from(granule)) {
                            assert!(
                                wide.contains_point(&at.0[..3]),
                                "{at:?} beside {wide} of {region}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn whole_words_are_not_extended() {
    let layout = Layout::new(&Shape::packed([16, 4]), 1).unwrap();
    let region = Region::new(&[4..12, 1..3]).unwrap();
    assert_eq!(granule::extend(&region, &layout, 4), region);
    let odd = Region::new(&[5..12, 1..3]).unwrap();
    assert_eq!(granule::extend(&odd, &layout, 4), region);
}

/// Rule 9: a full table orders more than it must, and forgets nothing.
#[test]
fn work_in_flight_is_merged_never_forgotten() {
    let mut owned = Owned::new(&Shape::packed([1000]), 4, 2, 9, 8);
    let mut state = owned.state();
    for i in 0..100u64 {
        let (lane, value) = ((i % 4) as u8, 1 + i / 4);
        let at = (i as i32 * 37) % 990;
        let mut tickets = After::NONE;
        tickets.add(Ticket { lane, value });
        let region = Region::new(&[at..at + 10]).unwrap();
        let plane = if i % 3 == 0 { (0, 2) } else { (2, 0) };
        state.add_work(region, &tickets, (i % 2) as usize, plane.0, plane.1);
        // A writer of the region follows the work just entered, and all earlier work there.
        for j in 0..=i {
            let (lane, value) = ((j % 4) as u8, 1 + j / 4);
            let at = (j as i32 * 37) % 990;
            let region = Region::new(&[at..at + 10]).unwrap();
            let after = state.dependencies(&region, 0, 2, (j % 2) as usize);
            let follows = after.as_slice().iter().any(|t| t.lane == lane && t.value >= value);
            assert!(follows, "work {j} was forgotten when {i} came");
        }
    }
    for device in 0..2 {
        for lane in 0..4 {
            state.retire(device, Ticket { lane, value: 25 });
        }
        assert!(state.all_work(device).as_slice().is_empty());
    }
}

#[test]
fn readers_do_not_wait_for_readers() {
    let mut owned = Owned::new(&Shape::packed([100]), 4, 2, 9, 8);
    let mut state = owned.state();
    let mut ticket = After::NONE;
    ticket.add(Ticket { lane: 0, value: 7 });
    let region = Region::new(&[0..50]).unwrap();
    state.add_work(region, &ticket, 0, 2, 0);
    assert_eq!(state.dependencies(&region, 2, 0, 0), After::NONE);
    assert_eq!(state.dependencies(&region, 0, 2, 0), ticket);
    let beside = Region::new(&[50..100]).unwrap();
    assert_eq!(state.dependencies(&beside, 0, 2, 0), After::NONE);
}

#[test]
fn nodes_are_generation_checked() {
    let mut owned = Owned::new(&Shape::packed([100]), 4, 2, 9, 8);
    let mut state = owned.state();
    let region = Region::new(&[0..50]).unwrap();
    let a = state.add_node(NodeId::ROOT, region).unwrap();
    let b = state.add_node(a, region).unwrap();
    let c = state.add_node(b, region).unwrap();
    let full = state.add_node(NodeId::ROOT, region);
    assert_eq!(full, Err(Error::Full { table: Table::Nodes, capacity: 4 }));
    // The middle one goes: its child becomes its parent's.
    state.remove_node(b).unwrap();
    assert_eq!(state.remove_node(b), Err(Error::StaleHandle));
    let mut depths = Vec::new();
    state.for_each_node(&mut |depth, _| depths.push(depth));
    assert_eq!(depths, [1, 2]);
    // Its slot is used again, its old name is not.
    let d = state.add_node(c, region).unwrap();
    assert_ne!(d, b);
    assert_eq!(state.node(b).err(), Some(Error::StaleHandle));
    assert_eq!(state.add_node(b, region), Err(Error::StaleHandle));
    state.check().unwrap();
}

#[test]
fn reserving_is_all_or_nothing() {
    let mut owned = Owned::new(&Shape::packed([100]), 4, 3, 9, 8);
    let mut state = owned.state();
    let held =
        take(&mut state, request(Region::new(&[60..70]).unwrap(), Location::Host, Mode::Read));
    state.commit(&held.unwrap(), 0, &After::NONE, true);
    let requests = [
        request(Region::new(&[0..10]).unwrap(), Location::Device(0), Mode::Overwrite),
        request(Region::new(&[65..80]).unwrap(), Location::Device(0), Mode::Overwrite),
    ];
    let busy = state.reserve(&requests, Sharing::Refused, |_| ());
    let Err(Error::Busy(busy)) = busy else { panic!("{busy:?}") };
    assert_eq!((busy.region, busy.holder), (Region::new(&[65..70]).unwrap(), Holder::Access));
    // Nothing of it is left: the first region can be had.
    take(&mut state, requests[0]).unwrap();
    assert_eq!(state.live_accesses(), 1);
}

/// P24: one of two views that share elements is written.
#[test]
fn views_of_one_launch_must_not_share_what_is_written() {
    let mut owned = Owned::new(&Shape::packed([100]), 1, 4, 9, 8);
    let mut state = owned.state();
    let device = Location::Device(0);
    let read = request(Region::new(&[0..100]).unwrap(), device, Mode::Read);
    let write = request(Region::new(&[9..20]).unwrap(), device, Mode::Overwrite);
    let shared = Region::new(&[9..20]).unwrap();
    assert_eq!(
        state.reserve(&[read, write], Sharing::Refused, |_| ()),
        Err(Error::Overlap { region: shared })
    );
    state.reserve(&[read, read], Sharing::Refused, |_| ()).unwrap();
    state.forget_accesses();
    state.reserve(&[read, write], Sharing::KeptApart, |_| ()).unwrap();
    state.forget_accesses();
    // Two writers in one word, which the kernel would tear.
    let words = |a, b| Request {
        granule: 4,
        ..request(Region::new(&[a..b]).unwrap(), device, Mode::Overwrite)
    };
    let torn = state.reserve(&[words(0, 9), words(9, 20)], Sharing::Refused, |_| ());
    assert_eq!(torn, Err(Error::Overlap { region: Region::new(&[8..12]).unwrap() }));
    state.reserve(&[words(0, 8), words(8, 20)], Sharing::Refused, |_| ()).unwrap();
}

/// I3: with one word of cells, a write widens, the widened bytes are planned in, and live accesses stop it.
#[test]
fn widening_fetches_or_refuses_before_anything_moves() {
    let mut owned = Owned::new(&Shape::packed([64, 64]), 1, 4, 9, 1);
    let mut state = owned.state();
    let device = Location::Device(0);
    let tiles = |i: i32| Region::new(&[i * 7..i * 7 + 3, i * 7..i * 7 + 3]).unwrap();
    let mut widened = 0;
    for i in 0..8 {
        let mut reservation = take(&mut state, request(tiles(i), device, Mode::Overwrite)).unwrap();
        assert!(reservation.outer().contains(&tiles(i)));
        let mut list = [CopyBox::default(); 2];
        loop {
            let (next, len) = state.next(&mut reservation, &mut list);
            match next {
                Next::Copy { from, bytes, widened: beside } => {
                    assert_eq!((from, bytes), (0, 0));
                    let listed: u64 = list[..len].iter().map(CopyBox::bytes).sum();
                    assert_eq!(listed, beside);
                    widened += beside;
                }
                Next::Zero { .. } => panic!("all bytes have a value"),
                Next::Done => break,
            }
        }
        state.commit(&reservation, 0, &After::NONE, false);
        state.check().unwrap();
    }
    assert!(widened > 0, "32 cells cannot hold 8 scattered tiles");

    let mut owned = Owned::new(&Shape::packed([64, 64]), 1, 4, 9, 1);
    let mut state = owned.state();
    // A guard on a corner: writes that would widen into it are refused, and leave no trace.
    let corner = Region::new(&[63..64, 63..64]).unwrap();
    let held = take(&mut state, request(corner, Location::Host, Mode::Update)).unwrap();
    state.commit(&held, 0, &After::NONE, true);
    let mut refused = 0;
    for i in 0..8 {
        match take(&mut state, request(tiles(i), device, Mode::Overwrite)) {
            Ok(reservation) => {
                assert!(!reservation.outer().overlaps(&corner));
                state.commit(&reservation, 0, &After::NONE, false);
            }
            Err(Error::Busy(busy)) => {
                assert_eq!(busy.holder, Holder::Access);
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
        state.check().unwrap();
    }
    assert!(refused > 0);
}

/// Rule 9 again, exactly: while the table has room, an operation follows those it conflicts with, no other, and
/// what is done is followed by nobody.
#[test]
fn work_in_flight_is_what_conflicts() {
    let mut owned = Owned::new(&Shape::packed([40]), 1, 2, 64, 8);
    let mut state = owned.state();
    let mut random = 88_172_645_463_325_252u64;
    let mut below = |n: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % n
    };
    let ready = Ticket { lane: 3, value: 1 };
    state.device(1).unwrap().ready = ready;
    let mut values = [[1u64; 4]; 2];
    let mut known = Vec::<(Region, Ticket, usize, u8, u8)>::new();
    for _ in 0..3_000 {
        let lo = below(30) as i32;
        let region = Region::new(&[lo..lo + 1 + below(10) as i32]).unwrap();
        let (device, lane) = (below(2) as usize, below(4) as u8);
        let (reads, writes) = (below(8) as u8, below(8) as u8);
        let value = &mut values[device][usize::from(lane)];
        match below(3) {
            0 if known.len() < 64 => {
                *value += 1;
                let ticket = Ticket { lane, value: *value };
                state.add_work(region, &After::of(&[ticket]), device, reads, writes);
                known.push((region, ticket, device, reads, writes));
                // What is done already is not entered.
                let alone = |k: &(_, Ticket, usize, _, _)| {
                    k.2 != device || k.1.lane != lane || k.1.value == *value
                };
                if lane != ready.lane && known.iter().all(alone) {
                    let before = Ticket { lane, value: *value - 1 };
                    state.retire(device, before);
                    state.add_work(region, &After::of(&[before]), device, 7, 7);
                }
            }
            1 if *value > 1 => {
                let done = Ticket { lane, value: 1 + below(*value) };
                // The memory's own ticket stays for the end.
                if lane != ready.lane {
                    state.retire(device, done);
                    known.retain(|k| k.2 != device || k.1.lane != lane || k.1.value > done.value);
                }
            }
            _ => {
                let mut expected = After::NONE;
                for k in &known {
                    let conflict = k.4 & (reads | writes) != 0 || k.3 & writes != 0;
                    if k.2 == device && conflict && k.0.overlaps(&region) {
                        expected.add(k.1);
                    }
                }
                // Whoever touches a device's own plane follows its allocation.
                if device == 1 && (reads | writes) & 0b100 != 0 {
                    expected.add(ready);
                }
                let found = state.dependencies(&region, reads, writes, device);
                let sorted = |after: &After| {
                    let mut tickets: Vec<_> =
                        after.as_slice().iter().map(|t| (t.lane, t.value)).collect();
                    tickets.sort_unstable();
                    tickets
                };
                assert_eq!(sorted(&found), sorted(&expected));
            }
        }
        let of = |device: usize| known.iter().filter(move |k| k.2 == device).map(|k| k.1);
        for device in 0..2 {
            let mut all = After::NONE;
            of(device).for_each(|ticket| all.add(ticket));
            if device == 1 {
                all.add(ready);
            }
            let found = state.all_work(device);
            assert!(all.as_slice().iter().all(|ticket| found.as_slice().contains(ticket)));
            assert_eq!(all.as_slice().len(), found.as_slice().len());
            // Worth a poll when the table is more than half full: the oldest.
            let oldest = of(device).map(|ticket| ticket.value).min();
            let wanted = oldest.filter(|_| known.len() > 32);
            assert_eq!(state.worth_polling(device).map(|ticket| ticket.value), wanted);
        }
    }
    state.retire(1, ready);
    assert!(!state.all_work(1).as_slice().contains(&ready));
}

/// A full table merges work where the merged entry grows the least.
#[test]
fn a_full_table_merges_what_is_near() {
    let mut owned = Owned::new(&Shape::packed([100]), 1, 2, 2, 8);
    let mut state = owned.state();
    let mut add = |at: i32, lane, value| {
        let region = Region::new(&[at..at + 10]).unwrap();
        state.add_work(region, &After::of(&[Ticket { lane, value }]), 0, 0, 2);
    };
    add(0, 0, 1);
    add(80, 0, 2);
    add(60, 0, 3);
    let follows = |state: &State<'_>, at: i32| {
        let region = Region::new(&[at..at + 1]).unwrap();
        state.dependencies(&region, 0, 2, 0).as_slice().iter().map(|t| t.value).max()
    };
    assert_eq!(
        [0, 30, 65, 75, 85].map(|at| follows(&state, at)),
        [Some(1), None, Some(3), Some(3), Some(3)]
    );
    // Of a lane that has no entry: two of another become one, and none is forgotten.
    let region = Region::new(&[40..41]).unwrap();
    state.add_work(region, &After::of(&[Ticket { lane: 1, value: 9 }]), 0, 0, 2);
    assert_eq!([0, 30, 40, 85].map(|at| follows(&state, at)), [Some(3), Some(3), Some(9), Some(3)]);
}

/// Later work follows the transfers of a reservation, whether it was carried out or given up; borrowed host memory
/// is read only during the call.
#[test]
fn transfers_are_followed() {
    let region = Region::new(&[0..10]).unwrap();
    let ticket = After::of(&[Ticket { lane: 0, value: 5 }]);
    for (owned_by_driver, given_up) in [(false, false), (true, false), (false, true), (true, true)]
    {
        let mut owned = Owned::new(&Shape::packed([100]), 1, 2, 9, 8);
        owned.header.setup.host_owned = owned_by_driver;
        let mut state = owned.state();
        let mut reservation =
            take(&mut state, request(region, Location::Device(0), Mode::Read)).unwrap();
        assert_eq!(*reservation.transfers(), After::NONE);
        state.transferred(&mut reservation, 0, &ticket);
        assert_eq!(*reservation.transfers(), ticket);
        if given_up {
            state.abandon(&reservation, 0);
        } else {
            state.commit(&reservation, 0, &After::NONE, false);
        }
        // Its destination, for readers; its source, for writers.
        assert_eq!(state.dependencies(&region, 0b10, 0, 0), ticket);
        let source = if owned_by_driver { ticket } else { After::NONE };
        assert_eq!(state.dependencies(&region, 0, 0b1, 0), source);
        assert_eq!(state.dependencies(&region, 0b1, 0, 0), After::NONE);
    }
    // From a device too, and from both.
    let mut owned = Owned::new(&Shape::packed([100]), 1, 2, 9, 8);
    owned.header.setup.host_owned = true;
    let mut state = owned.state();
    let mut reservation =
        take(&mut state, request(region, Location::Device(0), Mode::Read)).unwrap();
    state.transferred(&mut reservation, 2, &ticket);
    state.transferred(&mut reservation, 0, &ticket);
    state.commit(&reservation, 0, &ticket, false);
    for plane in [0b1, 0b100] {
        assert_eq!(state.dependencies(&region, 0, plane, 0), ticket);
    }
}

/// A read that could not be recorded vouches for its bytes as long as it is alive, and longer if a call relies
/// on it.
#[test]
fn unrecorded_reads_are_relied_on() {
    // One word and no cut to spare: a read in the middle stays uncut.
    let setup = *Owned::new(&Shape::packed([64]), 1, 4, 9, 1).state().setup();
    let mut owned = Owned::with(setup, 4, 9, 1, 0);
    let mut state = owned.state();
    let device = Location::Device(0);
    let middle = Region::new(&[20..30]).unwrap();
    let bring = |state: &mut State<'_>, region: Region| {
        let mut reservation = take(state, request(region, device, Mode::Read)).unwrap();
        let mut list = [CopyBox::default(); 4];
        let mut bytes = 0;
        while let (Next::Copy { bytes: here, .. }, _) = state.next(&mut reservation, &mut list) {
            bytes += here;
        }
        (reservation, bytes)
    };
    let (first, bytes) = bring(&mut state, middle);
    assert_eq!(bytes, 10);
    state.commit(&first, 0, &After::NONE, true);
    // At another place it says nothing.
    let mut other = take(&mut state, request(middle, Location::Device(1), Mode::Read)).unwrap();
    let (next, _) = state.next(&mut other, &mut [CopyBox::default()]);
    assert_eq!(next, Next::Copy { from: 0, bytes: 10, widened: 0 });
    state.abandon(&other, 1);
    let (again, bytes) = bring(&mut state, Region::new(&[15..30]).unwrap());
    assert_eq!(bytes, 5, "what the live read holds is not brought again");
    assert!(!state.end(first.slot()), "a call at work relies on it");
    state.abandon(&again, 0);
    assert!(state.end(first.slot()));
    assert!(state.end(first.slot()), "it is gone already");
    assert!(state.end(99));
    let (_, bytes) = bring(&mut state, middle);
    assert_eq!(bytes, 10, "nobody vouches any more");
}

/// Two views of one launch that share elements: what was brought for the first is not brought over it again.
#[test]
fn what_was_brought_for_one_view_stays() {
    let mut owned = Owned::new(&Shape::packed([64]), 1, 4, 9, 8);
    let mut state = owned.state();
    let whole = request(Region::new(&[0..64]).unwrap(), Location::Device(0), Mode::Read);
    let mut both = Vec::new();
    state.reserve(&[whole, whole], Sharing::Refused, |reservation| both.push(reservation)).unwrap();
    let mut list = [CopyBox::default(); 2];
    let copy = Next::Copy { from: 0, bytes: 64, widened: 0 };
    assert_eq!(state.next(&mut both[0], &mut list).0, copy);
    assert_eq!(state.next(&mut both[1].clone(), &mut list).0, copy);
    state.brought(&both[0]);
    assert_eq!(state.next(&mut both[1], &mut list).0, Next::Done);
}

/// Who is in the way: a call at work is worth waiting for, an access that its holder keeps is not.
#[test]
fn holders() {
    let mut owned = Owned::new(&Shape::packed([64]), 1, 4, 9, 8);
    let mut state = owned.state();
    let region = Region::new(&[0..8]).unwrap();
    let wanted = request(region, Location::Host, Mode::Update);
    let holder = |state: &mut State<'_>| match take(state, wanted) {
        Err(Error::Busy(busy)) => busy.holder,
        other => panic!("{other:?}"),
    };
    let pending = take(&mut state, request(region, Location::Device(0), Mode::Read)).unwrap();
    assert_eq!(holder(&mut state), Holder::Call);
    assert_eq!(state.is_in_use(Location::Device(0)).unwrap().holder, Holder::Call);
    state.park(&pending);
    assert_eq!(holder(&mut state), Holder::Access);
    state.commit(&pending, 0, &After::NONE, true);
    assert_eq!(holder(&mut state), Holder::Access);
    assert_eq!(state.live_accesses(), 1);
    assert!(state.end(pending.slot()));
    assert_eq!(state.live_accesses(), 0);
    assert!(take(&mut state, wanted).is_ok());
}

#[test]
fn a_reservation_says_what_it_is_for() {
    let mut owned = Owned::new(&Shape::packed([64]), 1, 4, 9, 8);
    let mut state = owned.state();
    let region = |lo, hi| Region::new(&[lo..hi]).unwrap();
    let wanted = Request {
        covers: false,
        granule: 4,
        ..request(region(9, 17), Location::Device(1), Mode::Update)
    };
    let first = take(&mut state, request(region(40, 50), Location::Host, Mode::Read)).unwrap();
    assert_eq!((first.mode(), first.covers(), first.place()), (Mode::Read, true, 0));
    take(&mut state, request(region(50, 60), Location::Host, Mode::Read)).unwrap();
    let third = take(&mut state, wanted).unwrap();
    assert_eq!((third.mode(), third.covers(), third.place()), (Mode::Update, false, 2));
    assert_eq!((*third.region(), *third.outer()), (region(9, 17), region(8, 20)));
    assert_eq!((first.slot(), third.slot()), (0, 2));
}

/// A device's memory stays while a call at another place may be copying from it, or poisoning it.
#[test]
fn memory_that_a_call_needs() {
    let mut owned = Owned::new(&Shape::packed([64]), 1, 4, 9, 8);
    let mut state = owned.state();
    let region = Region::new(&[0..8]).unwrap();
    let written = take(&mut state, request(region, Location::Device(1), Mode::Overwrite)).unwrap();
    // Its own calls are not in the way; others that poison are.
    assert_eq!(state.is_needed(1, true), None);
    assert_eq!(state.is_needed(0, false), None);
    assert_eq!(state.is_needed(0, true).unwrap().region, region);
    state.commit(&written, 1, &After::NONE, false);
    let read = take(&mut state, request(region, Location::Device(0), Mode::Read)).unwrap();
    // It copies from device 1; not from itself. A read poisons nothing.
    assert_eq!(state.is_needed(1, false).unwrap().holder, Holder::Call);
    assert_eq!(state.is_needed(0, true), None);
    state.commit(&read, 0, &After::NONE, true);
    assert_eq!(state.is_needed(1, true), None);
    state.end(read.slot());
    let beside = Region::new(&[20..30]).unwrap();
    take(&mut state, request(beside, Location::Device(0), Mode::Read)).unwrap();
    assert_eq!(state.is_needed(1, true), None);
}

/// The check of a tree sees nodes and accesses that cannot be.
#[test]
fn broken_tables_are_found() {
    let root = Region::new(&[0..64]).unwrap();
    let beyond = Region::new(&[60..65]).unwrap();
    let new = || Owned::new(&Shape::packed([64]), 1, 4, 9, 8);

    let mut owned = new();
    let mut state = owned.state();
    let node = state.add_node(NodeId::ROOT, beyond).unwrap();
    assert_eq!(state.check(), Err("a node reaches beyond the root"));
    state.remove_node(node).unwrap();
    assert_eq!(state.check(), Ok(()));
    // A child whose parent vanishes without giving it away; one that is its own parent.
    let parent = state.add_node(NodeId::ROOT, root).unwrap();
    state.add_node(parent, root).unwrap();
    state.nodes[1] = Node::default();
    assert_eq!(state.check(), Err("a node's parent is gone"));
    state.nodes[1] = state.nodes[2];
    state.nodes[2] = Node::default();
    assert_eq!(state.check(), Err("a node's parent is gone"));

    let conflict = |modes: [Mode; 2], regions: [Region; 2], hold: [bool; 2]| {
        let mut owned = new();
        let mut state = owned.state();
        let requests = [0, 1].map(|i| request(regions[i], Location::Host, modes[i]));
        let mut both = Vec::new();
        state.reserve(&requests, Sharing::KeptApart, |reservation| both.push(reservation)).unwrap();
        for (reservation, hold) in both.iter().zip(hold) {
            if hold {
                state.commit(reservation, 0, &After::NONE, true);
            }
        }
        state.check()
    };
    let bad = Err("two live accesses conflict");
    let here = [root, Region::new(&[8..9]).unwrap()];
    let apart = [Region::new(&[9..64]).unwrap(), here[1]];
    assert_eq!(conflict([Mode::Update, Mode::Update], here, [true, true]), bad);
    assert_eq!(conflict([Mode::Read, Mode::Update], here, [true, true]), bad);
    assert_eq!(conflict([Mode::Update, Mode::Read], here, [true, true]), bad);
    assert_eq!(conflict([Mode::Read, Mode::Read], here, [true, true]), Ok(()));
    assert_eq!(conflict([Mode::Update, Mode::Update], apart, [true, true]), Ok(()));
    assert_eq!(conflict([Mode::Update, Mode::Update], here, [true, false]), Ok(()));
    assert_eq!(conflict([Mode::Update, Mode::Update], here, [false, true]), Ok(()));

    let mut owned = new();
    let mut state = owned.state();
    let held = take(&mut state, request(beyond, Location::Host, Mode::Read)).unwrap();
    state.commit(&held, 0, &After::NONE, true);
    assert_eq!(state.check(), Err("an access reaches beyond the root"));
    state.forget_accesses();
    assert_eq!((state.check(), state.live_accesses()), (Ok(()), 0));
}

/// What a launch can be refused for before anything is looked at.
#[test]
fn limits_of_a_launch() {
    let mut owned = Owned::new(&Shape::packed([64]), 1, 12, 9, 8);
    let mut state = owned.state();
    let read = request(Region::new(&[0..8]).unwrap(), Location::Host, Mode::Read);
    let given = MAX_VIEWS + 1;
    assert_eq!(
        state.reserve(&vec![read; given], Sharing::Refused, |_| ()),
        Err(Error::Views { given, expected: MAX_VIEWS })
    );
    let mut reserved = 0;
    state.reserve(&[read; MAX_VIEWS], Sharing::Refused, |_| reserved += 1).unwrap();
    assert_eq!(reserved, MAX_VIEWS);
    // As many as there are slots, and one more.
    let read = Request { region: Region::new(&[8..16]).unwrap(), ..read };
    assert_eq!(
        state.reserve(&[read; 5], Sharing::Refused, |_| ()),
        Err(Error::Full { table: Table::Guards, capacity: 12 })
    );
    state.reserve(&[read; 4], Sharing::Refused, |_| ()).unwrap();
}

/// A launch whose later view cannot widen gives back the slots of the earlier ones.
#[test]
fn a_widening_refused_frees_the_launch() {
    let setup = *Owned::new(&Shape::packed([64]), 1, 4, 9, 1).state().setup();
    let mut owned = Owned::with(setup, 3, 9, 1, 1);
    let mut state = owned.state();
    let device = Location::Device(0);
    let region = |lo, hi| Region::new(&[lo..hi]).unwrap();
    let held = take(&mut state, request(region(40, 41), Location::Host, Mode::Update)).unwrap();
    state.commit(&held, 0, &After::NONE, true);
    // The first takes the only cut; the second would have to widen into the guard.
    let pair = [
        request(region(0, 8), device, Mode::Overwrite),
        request(region(20, 30), device, Mode::Overwrite),
    ];
    let busy = state.reserve(&pair, Sharing::Refused, |_| ());
    assert_eq!(
        busy,
        Err(Error::Busy(crate::error::Busy { region: region(40, 41), holder: Holder::Access }))
    );
    // Its slots are free again: two more fit.
    let pair = [request(region(0, 8), device, Mode::Read); 2];
    state.reserve(&pair, Sharing::Refused, |_| ()).unwrap();
}

#[test]
fn counters_add_and_subtract() {
    let some = Counters {
        bytes_up: 1,
        bytes_down: 2,
        bytes_across: 3,
        bytes_widened: 4,
        defined_by_widening: 5,
        allocations: 6,
        evictions: 7,
        launches: 8,
        lists: 9,
    };
    let twice: Counters = [some, some].into_iter().sum();
    assert_eq!(twice.since(&some), some);
    assert_eq!((twice.bytes_up, twice.defined_by_widening, twice.lists), (2, 10, 18));
    assert_eq!(twice, some + some);
    assert_eq!(
        std::format!("{some}"),
        "1 bytes up, 2 down, 3 across, 4 by widening; 6 allocations, 8 launches, 9 lists"
    );
}

#[test]
fn places_and_planes() {
    assert_eq!(1 + MAX_DEVICES + 1, MAX_PLANES, "the host, devices, and what was lost");
    let locations = [Location::Host, Location::Device(0), Location::Device(1)];
    for (place, location) in locations.into_iter().enumerate() {
        assert_eq!((location.place(), Location::of_place(place)), (place, location));
    }
    assert_eq!(locations.map(|l| std::format!("{l}")), ["host", "device 0", "device 1"]);

    let mut owned = Owned::new(&Shape::packed([64]), 1, 4, 9, 8);
    let state = owned.state();
    assert_eq!(state.planes_of(2, Mode::Read), (0b100, 0));
    assert_eq!(state.planes_of(1, Mode::Overwrite), (0, 0b10));
    assert_eq!(state.planes_of(0, Mode::Update), (1, 1));
    owned.header.setup.shared = true;
    let state = owned.state();
    assert_eq!([0, 1, 2].map(|place| state.plane(place)), [0, 0, 2]);
    assert_eq!(state.planes_of(1, Mode::Update), (1, 1));
}

/// What is taken from the table of nodes, and what the tree knows of each.
#[test]
fn nodes_know_their_regions() {
    let mut owned = Owned::new(&Shape::packed([64]), 1, 4, 9, 8);
    let mut state = owned.state();
    let region = |lo, hi| Region::new(&[lo..hi]).unwrap();
    assert_eq!(state.node(NodeId::ROOT).unwrap().region(), &region(0, 64));
    assert_eq!(state.live_nodes(), 0);
    let a = state.add_node(NodeId::ROOT, region(0, 32)).unwrap();
    let b = state.add_node(a, region(8, 16)).unwrap();
    let c = state.add_node(NodeId::ROOT, region(40, 50)).unwrap();
    assert_eq!(state.live_nodes(), 3);
    assert_eq!(state.node(b).unwrap().region(), &region(8, 16));
    let seen = |state: &State<'_>| {
        let mut seen = Vec::new();
        state.for_each_node(&mut |depth, region| seen.push((depth, *region)));
        seen
    };
    assert_eq!(seen(&state), [(1, region(0, 32)), (2, region(8, 16)), (1, region(40, 50))]);
    // The root stays, whoever asks; nobody's slot is nobody's.
    state.free_node(0);
    state.free_node(99);
    assert!(state.node(NodeId::ROOT).is_ok());
    state.remove_node(a).unwrap();
    assert_eq!(seen(&state), [(1, region(8, 16)), (1, region(40, 50))]);
    state.free_node(usize::from(a.slot));
    state.remove_node(c).unwrap();
    assert_eq!((state.live_nodes(), seen(&state)), (1, vec![(1, region(8, 16))]));
}

/// Of the cuts that nothing needs any more, only those of reserved accesses stay when room is wanted.
#[test]
fn cuts_that_nobody_needs_make_room() {
    let setup = *Owned::new(&Shape::packed([64]), 1, 4, 9, 1).state().setup();
    let mut owned = Owned::with(setup, 4, 9, 1, 2);
    let mut state = owned.state();
    let (device, region) = (Location::Device(0), |lo, hi| Region::new(&[lo..hi]).unwrap());
    // Two cuts, at 10 and 20, whose sides end in the same state.
    for part in [region(10, 20), region(0, 10), region(20, 64)] {
        let written = take(&mut state, request(part, device, Mode::Overwrite)).unwrap();
        assert_eq!(*written.outer(), part);
        state.commit(&written, 0, &After::NONE, false);
    }
    // A call at work elsewhere, and one that has ended at the cut.
    take(&mut state, request(region(0, 5), device, Mode::Read)).unwrap();
    let ended = take(&mut state, request(region(10, 15), device, Mode::Read)).unwrap();
    state.commit(&ended, 0, &After::NONE, true);
    let wanted = request(region(30, 40), Location::Host, Mode::Overwrite);
    let exact = take(&mut state, wanted).unwrap();
    assert_eq!(*exact.outer(), region(30, 40));
    // Its own stay while it is at work: the next has to widen, up to them.
    let next = take(&mut state, request(region(45, 50), Location::Host, Mode::Overwrite)).unwrap();
    assert_eq!(*next.outer(), region(40, 64));
    state.commit(&exact, 0, &After::NONE, false);
    let mut cursor = Cursor::default();
    let fresh = state.next_fresh(Location::Host, &region(0, 64), &mut cursor);
    assert_eq!(fresh, Some(region(30, 40)));
}
