//! One tree: the node table, the coherence map, the accesses under way, and the device work in flight.
//!
//! This layer decides; it calls nobody. Every access goes through three steps here: [`State::reserve`]
//! checks it and makes room for it, [`State::next`] plans its transfers list by list, and
//! [`State::commit`] or [`State::abandon`] ends it. Between these calls the layer above runs drivers with
//! no lock held; what is reserved cannot change meanwhile.

mod access;
mod counters;
mod draw;
mod granule;
mod nodes;
mod transfer;
mod work;

pub use access::{Access, MAX_VIEWS, Request, Reservation, Sharing};
pub use counters::Counters;
pub use draw::Drawing;
pub(crate) use nodes::visit;
pub use nodes::{Node, NodeId};
pub use transfer::{Next, copy_box};
pub use work::Work;

use core::fmt;

use crate::coherence::{Cursor, Grid, MAX_PLANES, Map, Pick, Planes, plane_bit};
use crate::driver::{After, MAX_LANES, Ticket};
use crate::region::{Layout, PerAxis, Region};

/// The most devices a tree can have.
pub const MAX_DEVICES: usize = MAX_PLANES - 2;

/// What an access may do with the bytes of its region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Read them.
    #[default]
    Read,
    /// Write every one, without reading any: nothing is moved.
    Overwrite,
    /// Read and write them.
    Update,
}

impl Mode {
    /// Whether the bytes must be fresh before.
    pub fn reads(self) -> bool {
        !matches!(self, Self::Overwrite)
    }

    /// Whether the bytes are new after.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }
}

/// Where bytes live.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Location {
    /// Host memory.
    #[default]
    Host,
    /// The memory of the tree's device of that index.
    Device(u8),
}

impl Location {
    /// The place number: the host is 0, device `d` is `d + 1`.
    pub(crate) fn place(self) -> usize {
        match self {
            Self::Host => 0,
            Self::Device(index) => usize::from(index) + 1,
        }
    }

    pub(crate) fn of_place(place: usize) -> Self {
        match place.checked_sub(1) {
            None => Self::Host,
            Some(device) => Self::Device(device as u8),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Device(index) => write!(f, "device {index}"),
        }
    }
}

defmt_as_display! { impl Location; }

/// Whether a device holds memory for the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Residency {
    /// It does not.
    #[default]
    Absent,
    /// A call is allocating it, or giving it back.
    Changing,
    /// It does.
    Present,
}

/// What the tree knows of one of its devices.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceState {
    /// Whether it holds memory for the root.
    pub residency: Residency,
    /// Whether it is lost. One-way.
    pub lost: bool,
    /// Whether its memory is the caller's.
    pub wrapped: bool,
    /// When its memory holds what it was allocated with.
    pub ready: Ticket,
    /// The latest ticket known to be done, lane by lane.
    done: [u64; MAX_LANES],
}

/// What a tree is made with.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The root on the host (or, without host storage, as it would lie there).
    pub host: Layout,
    /// The root on devices.
    pub device: Layout,
    /// How many devices there are.
    pub devices: usize,
    /// Whether there is host storage.
    pub has_host: bool,
    /// Whether the host bytes hold values from the start.
    pub host_fresh: bool,
    /// Whether the host storage must not be written.
    pub host_readonly: bool,
    /// Whether the host storage is the driver's, so that copies run on it after a call returns.
    pub host_owned: bool,
    /// Whether device 0 runs on the host storage itself.
    pub shared: bool,
    /// Whether driver-owned host storage keeps its bytes when the device is lost.
    pub host_survives_loss: bool,
}

/// Everything of fixed size.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    grid: Grid,
    setup: Setup,
    counters: Counters,
}

/// A tree's tables, erased: borrowed slices, so that no algorithm is compiled for each capacity.
#[derive(Debug)]
pub struct State<'a> {
    /// Everything of fixed size.
    pub header: &'a mut Header,
    /// The nodes; slot 0 is the root's.
    pub nodes: &'a mut [Node],
    /// Accesses reserved or alive.
    pub accesses: &'a mut [Access],
    /// Device work in flight.
    pub work: &'a mut [Work],
    /// Cuts, for [`Map`].
    pub cuts: &'a mut [i32],
    /// Bitmaps, for [`Map`].
    pub bits: &'a mut [u32],
    /// The devices.
    pub devices: &'a mut [DeviceState],
}

impl Header {
    /// A header for `setup`. The tables beside it start empty; [`State::start`] completes them.
    pub fn new(setup: Setup) -> Self {
        let planes = 2 + setup.devices;
        Self { grid: Grid::new(*setup.host.region(), planes), setup, counters: Counters::default() }
    }
}

impl State<'_> {
    /// Puts the root's node in place and marks what is fresh from the start.
    pub fn start(&mut self) {
        let root = *self.root();
        if let Some(node) = self.nodes.first_mut() {
            *node = Node::root(root);
        }
        let fresh = if self.header.setup.host_fresh { plane_bit(0) } else { 0 };
        self.map().reset(fresh);
    }

    /// The root's region.
    pub fn root(&self) -> &Region {
        &self.header.grid.root
    }

    /// What the tree was made with.
    pub fn setup(&self) -> &Setup {
        &self.header.setup
    }

    /// What was moved so far, and why.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.header.counters
    }

    pub(crate) fn map(&mut self) -> Map<'_> {
        Map { grid: &mut self.header.grid, cuts: self.cuts, bits: self.bits }
    }

    /// The plane that says what is fresh at a place: places that share bytes share it.
    pub(crate) fn plane(&self, place: usize) -> usize {
        if place == 1 && self.header.setup.shared { 0 } else { place }
    }

    /// The layout of the root at a place.
    pub(crate) fn layout(&self, place: usize) -> &Layout {
        if self.plane(place) == 0 { &self.header.setup.host } else { &self.header.setup.device }
    }

    /// Whether a place exists and still works.
    fn is_usable(&self, place: usize) -> bool {
        match place.checked_sub(1) {
            None => self.header.setup.has_host,
            Some(device) => self.devices.get(device).is_some_and(|device| !device.lost),
        }
    }

    /// What the tree knows of a device.
    pub fn device(&mut self, index: usize) -> Option<&mut DeviceState> {
        self.devices.get_mut(index)
    }

    /// Planes of the device, and of host storage that goes with it.
    fn planes_lost_with(&self, device: usize) -> Planes {
        let setup = &self.header.setup;
        let storage_goes = setup.host_owned && !setup.host_survives_loss && device == 0;
        let own = match self.plane(device + 1) {
            0 => 0,
            plane => plane_bit(plane),
        };
        own | if storage_goes { plane_bit(0) } else { 0 }
    }

    /// Takes note that a device is lost: what only it held becomes nobody's. Returns the first such box
    /// and how many there are, this time.
    pub fn lose(&mut self, device: usize) -> (Option<Region>, u32) {
        match self.devices.get_mut(device) {
            Some(state) if !state.lost => {
                state.lost = true;
                state.residency = Residency::Absent;
            }
            _ => return (None, 0),
        }
        for work in self.work.iter_mut().filter(|work| work.is_on(device)) {
            *work = Work::default();
        }
        let planes = self.planes_lost_with(device);
        let root = *self.root();
        let map = self.map();
        let (mut first, mut boxes) = (None, 0);
        map.only_on(planes).for_each(&map, &root, &mut |piece| {
            first = first.or(Some(piece));
            boxes += 1;
            true
        });
        self.map().mark_lost(planes);
        (first, boxes)
    }

    /// Boxes that only a device holds: what giving back its memory would lose.
    pub fn only_on_device(&mut self, device: usize, each: &mut dyn FnMut(Region) -> bool) {
        let plane = self.plane(device + 1);
        let root = *self.root();
        if plane != 0 {
            let map = self.map();
            map.only_on(plane_bit(plane)).for_each(&map, &root, each);
        }
    }

    /// Takes note that a device's memory was given back: it holds nothing any more.
    pub fn forget_device(&mut self, device: usize) {
        let plane = self.plane(device + 1);
        if plane != 0 {
            self.map().mark_stale(plane);
        }
        if let Some(state) = self.devices.get_mut(device) {
            state.residency = Residency::Absent;
            state.wrapped = false;
            state.ready = Ticket::DONE;
        }
        for work in self.work.iter_mut().filter(|work| work.is_on(device)) {
            *work = Work::default();
        }
    }

    /// Whether somebody holds a value for the element at `at`, which is inside the root.
    pub(crate) fn is_defined(&mut self, at: &PerAxis<i32>) -> bool {
        let mut one = *self.root();
        for axis in 0..one.rank() {
            one.set(axis, at.at(axis), at.at(axis).saturating_add(1));
        }
        let map = self.map();
        !map.touches(&one, map.nobody())
    }

    /// The next box that a lost device took along.
    pub fn next_lost(&mut self, cursor: &mut Cursor) -> Option<Region> {
        let root = *self.root();
        let pick = Pick::stale(self.map().lost_plane());
        self.next_box(&root, pick, cursor)
    }

    /// A box that a lost device took along, which is forgotten.
    pub fn take_lost(&mut self) -> Option<Region> {
        let region = self.next_lost(&mut Cursor::default())?;
        self.map().clear_lost_in(&region);
        Some(region)
    }

    /// The next box of `region` that is fresh at a location.
    pub fn next_fresh(
        &mut self,
        location: Location,
        region: &Region,
        cursor: &mut Cursor,
    ) -> Option<Region> {
        if location.place() > self.devices.len() {
            return None;
        }
        let plane = self.plane(location.place());
        self.next_box(region, Pick { stale: 0, fresh: plane_bit(plane) }, cursor)
    }

    pub(crate) fn next_box(
        &mut self,
        region: &Region,
        pick: Pick,
        cursor: &mut Cursor,
    ) -> Option<Region> {
        let mut first = None;
        self.map().boxes(region, pick, cursor, &mut |piece| {
            let wanted = first.is_none();
            first = first.or(Some(piece));
            wanted
        });
        first
    }

    /// Forgets which bytes were lost; they stay nobody's.
    pub fn forget_lost(&mut self) {
        self.map().clear_lost();
    }

    /// Verifies the tree's own invariants: the map's structure, the tables' links, and that no two live
    /// accesses conflict.
    ///
    /// # Errors
    /// Says what is wrong; that would be a bug in this crate.
    pub fn check(&mut self) -> Result<(), &'static str> {
        self.map().check()?;
        self.check_nodes()?;
        self.check_accesses()
    }

    /// Drops accesses that nobody can still hold: the tree is exclusively ours.
    pub fn forget_accesses(&mut self) {
        for access in self.accesses.iter_mut() {
            access.free();
        }
    }

    /// Every ticket of a device that is not known to be done.
    pub fn all_work(&self, device: usize) -> After {
        let mut after = After::NONE;
        for work in self.work.iter().filter(|work| work.is_on(device)) {
            after.add(work.ticket());
        }
        if let Some(state) = self.devices.get(device) {
            after.add(state.ready);
        }
        after
    }
}

#[cfg(test)]
mod tests;
