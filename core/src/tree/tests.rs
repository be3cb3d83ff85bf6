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
        let mut owned = Box::new(Self {
            header: Header::new(setup),
            nodes: vec![Node::default(); 4],
            accesses: vec![Access::default(); guards],
            work: vec![Work::default(); work],
            cuts: vec![0; 8 * MAX_RANK],
            bits: vec![0; words * 4],
            devices: vec![DeviceState::default(); 2],
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
