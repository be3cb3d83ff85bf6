//! Views: typed handles to a root, a crop or a slice.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;

use super::device_access::Filled;
use super::erased::{Erased, Wait, locked, locked_surely};
use super::guard::{ReadGuard, WriteGuard, WrittenGuard};
use super::launch::Arg;
use super::ops::{self, Plan};
use super::tree::Held;
use super::{DeviceAccess, Element};
use crate::coherence::Cursor;
use crate::driver::{CopyBox, DeviceDriver};
use crate::error::Error;
use crate::region::{GeometryError, IntoRegion, Layout, MAX_RANK, Region, Step, ViewMap};
use crate::tree::{Location, Mode, NodeId, Request};

/// A typed handle to a part of a tree: a root, a crop, a slice, with any steps and flips.
///
/// It knows its map to the root, however many views it was made through, and aliases the root on the host
/// and on every device. Making one costs a slot in the node table, which its drop gives back; it moves and
/// allocates nothing.
pub struct View<'t, T, D: DeviceDriver> {
    tree: &'t dyn Erased<D>,
    node: NodeId,
    map: ViewMap,
    elements: PhantomData<fn() -> T>,
}

impl<T, D: DeviceDriver> Drop for View<'_, T, D> {
    fn drop(&mut self) {
        if self.node != NodeId::ROOT {
            self.tree.drop_node(usize::from(self.node.slot));
        }
    }
}

impl<T, D: DeviceDriver> fmt::Debug for View<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View {} of {}", self.map.region(), self.map.root_region())
    }
}

impl<'t, T: Element, D: DeviceDriver> View<'t, T, D> {
    pub(crate) fn root(tree: &'t dyn Erased<D>, map: ViewMap) -> Self {
        Self { tree, node: NodeId::ROOT, map, elements: PhantomData }
    }

    fn child(&self, map: ViewMap) -> Result<Self, Error<D::Error>> {
        let region = map.root_region();
        let node = locked(self.tree, Wait::Yes, |inner| inner.state.add_node(self.node, region))?;
        Ok(Self { tree: self.tree, node: node.map_err(Error::lift)?, map, elements: PhantomData })
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.map.rank()
    }

    /// The view's own coordinates.
    pub fn region(&self) -> Region {
        self.map.region()
    }

    /// The smallest box of the root that holds the view.
    pub fn root_region(&self) -> Region {
        self.map.root_region()
    }

    /// Number of coordinates on `axis`; 1 beyond the last.
    pub fn extent(&self, axis: usize) -> u32 {
        self.map.extent(axis)
    }

    /// First coordinate on `axis`.
    pub fn min(&self, axis: usize) -> i32 {
        self.map.min(axis)
    }

    /// The map to the root.
    pub fn map(&self) -> &ViewMap {
        &self.map
    }

    /// The part inside `ranges`, one for each axis. Coordinates stay as they are.
    ///
    /// # Errors
    /// [`Error::Geometry`] when the ranges are not inside the view, [`Error::Full`] when live views hold
    /// every node.
    pub fn crop(&self, ranges: impl IntoRegion) -> Result<Self, Error<D::Error>> {
        let too_many = GeometryError::Rank { given: MAX_RANK + 1, expected: self.rank() };
        self.child(self.map.crop(&ranges.into_region().ok_or(too_many)?)?)
    }

    /// The part inside `range` on one axis, and everything on the others.
    ///
    /// # Errors
    /// As [`crop`](Self::crop).
    pub fn crop_axis(&self, axis: usize, range: Range<i32>) -> Result<Self, Error<D::Error>> {
        if axis >= self.rank() {
            return Err(GeometryError::NoAxis { axis, rank: self.rank() }.into());
        }
        let mut region = self.map.region();
        region.set(axis, range.start, range.end);
        self.child(self.map.crop(&region)?)
    }

    /// The elements whose coordinate on `axis` is `at`; that axis is hidden.
    ///
    /// # Errors
    /// As [`crop`](Self::crop).
    pub fn slice(&self, axis: usize, at: i32) -> Result<Self, Error<D::Error>> {
        self.child(self.map.slice(axis, at)?)
    }

    /// The same elements with coordinates shifted by `by`.
    ///
    /// # Errors
    /// [`Error::Geometry`] when a coordinate overflows, [`Error::Full`].
    pub fn translate<const N: usize>(&self, by: [i32; N]) -> Result<Self, Error<D::Error>> {
        self.child(self.map.translate(&by)?)
    }

    /// The same elements with axis `order[i]` as axis `i`.
    ///
    /// # Errors
    /// [`Error::Geometry`] when `order` is not a permutation, [`Error::Full`].
    pub fn permute<const N: usize>(&self, order: [usize; N]) -> Result<Self, Error<D::Error>> {
        self.child(self.map.permute(&order)?)
    }

    /// Every `step`-th element along `axis`, from the first: `c` is the parent's `min + (c - min) * step`.
    ///
    /// # Errors
    /// [`Error::Geometry`] for a step below one, [`Error::Full`].
    pub fn step_by(&self, axis: usize, step: Step) -> Result<Self, Error<D::Error>> {
        self.child(self.map.step_by(axis, step)?)
    }

    /// The same elements in opposite order along `axis`.
    ///
    /// # Errors
    /// [`Error::Geometry`] when there is no such axis, [`Error::Full`].
    pub fn flip(&self, axis: usize) -> Result<Self, Error<D::Error>> {
        self.child(self.map.flip(axis)?)
    }

    pub(super) fn tree(&self) -> &'t dyn Erased<D> {
        self.tree
    }

    pub(super) fn request(&self, location: Location, mode: Mode) -> Request {
        Request {
            region: self.map.root_region(),
            location,
            mode,
            covers: self.map.covers_its_box(),
            granule: 1,
            skip_undefined: false,
            homing: false,
        }
    }

    /// Where the view lies in host memory: its layout, in its own coordinates, and its lowest byte.
    pub(super) fn host_layout(&self) -> Result<(Layout, *mut u8), Error<D::Error>> {
        if !self.tree.setup().has_host {
            return Err(Error::NoHostStorage);
        }
        let layout = self.tree.setup().host.of_view(&self.map)?;
        let (lowest, _) = self.tree.setup().host.window(&self.map.root_region());
        Ok((layout, self.tree.host().base.wrapping_add(lowest as usize)))
    }

    /// Holds the view on the host as a guard of `mode` does.
    pub(super) fn hold(&self, mode: Mode) -> Result<Option<Held<'t>>, Error<D::Error>> {
        let slot = self.open(mode, Wait::Yes)?;
        Ok(slot.map(|slot| Held { slots: self.tree, slot }))
    }

    fn open(&self, mode: Mode, wait: Wait) -> Result<Option<usize>, Error<D::Error>> {
        if self.map.is_empty() {
            return Ok(None);
        }
        ops::on_host(self.tree, &self.request(Location::Host, mode), wait, true).map(Some)
    }

    /// Reads on the host: brings home exactly what is stale there, waits for the device work that wrote it
    /// and for no other, and holds the region against writers while the guard lives.
    ///
    /// # Errors
    /// [`Error::Busy`] when a live guard or device access writes any of it, [`Error::Undefined`] when
    /// nobody holds a value for some of it, [`Error::Full`] when live guards hold all slots; what the
    /// driver says. Nothing has changed then.
    pub fn read(&self) -> Result<ReadGuard<'t, T>, Error<D::Error>> {
        let slot = self.open(Mode::Read, Wait::Yes)?;
        Ok(ReadGuard::new(self.tree, slot, self.map, self.tree.host().base))
    }

    /// As [`read`](Self::read), where some elements may never have been written (or were lost with a
    /// device): brings home the rest, and hands out a guard that refuses those.
    ///
    /// # Errors
    /// As [`read`](Self::read), but for [`Error::Undefined`].
    pub fn read_written(&self) -> Result<WrittenGuard<'t, T, D>, Error<D::Error>> {
        if self.map.is_empty() {
            return Ok(WrittenGuard::new(self.tree, None, self.map));
        }
        let request = Request { skip_undefined: true, ..self.request(Location::Host, Mode::Read) };
        let slot = ops::on_host(self.tree, &request, Wait::Yes, true)?;
        Ok(WrittenGuard::new(self.tree, Some(slot), self.map))
    }

    /// Writes every element on the host, without reading any: nothing moves. The elements count as new
    /// from now on; those not written keep what the host memory held.
    ///
    /// # Errors
    /// As [`read`](Self::read), but for [`Error::Undefined`].
    pub fn overwrite(&self) -> Result<WriteGuard<'t, T>, Error<D::Error>> {
        let slot = self.open(Mode::Overwrite, Wait::Yes)?;
        Ok(WriteGuard::new(self.tree, slot, self.map, self.tree.host().base))
    }

    /// Reads and writes on the host. The elements count as new from now on.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn update(&self) -> Result<WriteGuard<'t, T>, Error<D::Error>> {
        let slot = self.open(Mode::Update, Wait::Yes)?;
        Ok(WriteGuard::new(self.tree, slot, self.map, self.tree.host().base))
    }

    /// As [`read`](Self::read), but never waits for the lock, another call, or a device.
    ///
    /// # Errors
    /// [`Error::Busy`] too when waiting or moving bytes would be needed.
    pub fn try_read(&self) -> Result<ReadGuard<'t, T>, Error<D::Error>> {
        let slot = self.open(Mode::Read, Wait::No)?;
        Ok(ReadGuard::new(self.tree, slot, self.map, self.tree.host().base))
    }

    /// As [`overwrite`](Self::overwrite), but never waits.
    ///
    /// # Errors
    /// [`Error::Busy`] too when waiting or moving bytes would be needed.
    pub fn try_overwrite(&self) -> Result<WriteGuard<'t, T>, Error<D::Error>> {
        let slot = self.open(Mode::Overwrite, Wait::No)?;
        Ok(WriteGuard::new(self.tree, slot, self.map, self.tree.host().base))
    }

    /// As [`update`](Self::update), but never waits.
    ///
    /// # Errors
    /// [`Error::Busy`] too when waiting or moving bytes would be needed.
    pub fn try_update(&self) -> Result<WriteGuard<'t, T>, Error<D::Error>> {
        let slot = self.open(Mode::Update, Wait::No)?;
        Ok(WriteGuard::new(self.tree, slot, self.map, self.tree.host().base))
    }

    /// This view as something a kernel reads.
    pub fn as_read(&self) -> Arg<'t, D> {
        Arg::new::<T>(self.tree, self.map, Mode::Read)
    }

    /// This view as something a kernel writes whole, without reading it.
    pub fn as_overwrite(&self) -> Arg<'t, D> {
        Arg::new::<T>(self.tree, self.map, Mode::Overwrite)
    }

    /// This view as something a kernel reads and writes.
    pub fn as_update(&self) -> Arg<'t, D> {
        Arg::new::<T>(self.tree, self.map, Mode::Update)
    }

    /// Holds the view's bytes on a device of the tree: fresh there, and kept from conflicting use while the
    /// access lives. For work that hedgerow does not launch itself.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Error::NoDevice`].
    pub fn on_device(
        &self,
        device: usize,
        mode: Mode,
    ) -> Result<DeviceAccess<'t, D>, Error<D::Error>> {
        self.on_device_filled(device, mode, Filled::Later)
    }

    pub(super) fn on_device_filled(
        &self,
        device: usize,
        mode: Mode,
        fill: Filled,
    ) -> Result<DeviceAccess<'t, D>, Error<D::Error>> {
        DeviceAccess::open(self.tree, self.map, size_of::<T>(), device, mode, fill)
    }

    /// Calls `each` with boxes, in root coordinates, that together are the part of the view's box that
    /// `location` holds the newest value of.
    pub fn for_each_fresh(&self, location: Location, mut each: impl FnMut(Region)) {
        let region = self.map.root_region();
        let mut cursor = Cursor::default();
        let next = |cursor: &mut Cursor| {
            locked_surely(self.tree, |inner| inner.state.next_fresh(location, &region, cursor))
        };
        // One at a time, so that `each` runs without the lock.
        while let Some(piece) = next(&mut cursor) {
            each(piece);
        }
    }

    /// What an access would move if it were made now. Moves nothing and changes nothing.
    ///
    /// # Errors
    /// What the access itself would answer before it moved anything.
    pub fn plan(&self, location: Location, mode: Mode) -> Result<Plan, Error<D::Error>> {
        self.plan_each(location, mode, |_, _, _| {})
    }

    /// As [`plan`](Self::plan), and calls `each` with every copy: source, destination, and the box in bytes
    /// of the root's memory on either side. A copy between devices that have no direct way goes through the
    /// host, and is still told as one. Until it returns the region is reserved: calls that conflict, from
    /// `each` too, are answered [`Error::Busy`].
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub fn plan_each(
        &self,
        location: Location,
        mode: Mode,
        mut each: impl FnMut(Location, Location, &CopyBox),
    ) -> Result<Plan, Error<D::Error>> {
        if let Location::Device(device) = location
            && usize::from(device) >= self.tree.devices()
        {
            let device = usize::from(device);
            return Err(Error::NoDevice { device, devices: self.tree.devices() });
        }
        ops::plan(self.tree, &self.request(location, mode), &mut each)
    }
}
