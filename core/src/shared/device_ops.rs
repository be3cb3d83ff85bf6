//! What views do on devices without a kernel: prefetch, fill, copy; and memory filled from outside.

use bytemuck::bytes_of;

use super::device_access::Filled;
use super::execute::{Manner, device_of, execute};
use super::launch::Arg;
use super::ops::{self, Wait};
use super::{Element, View};
use crate::driver::{After, Contents, CopyBox, DeviceDriver, Dim, Ticket};
use crate::error::Error;
use crate::region::{Layout, MAX_RANK, ViewMap};
use crate::tree::{Location, MAX_VIEWS, Mode, Sharing};

impl<'t, T: Element, D: DeviceDriver> View<'t, T, D> {
    /// Makes the view fresh on a device of the tree, without holding it there, and has the transfers start.
    /// Returns when they are accepted, with the ticket after which the view is there: for
    /// [`Tree::poll`](crate::Tree::poll) and [`Tree::wait`](crate::Tree::wait). What only another device
    /// has is waited for, where it has to come through the host.
    ///
    /// # Errors
    /// As for a launch that reads the view.
    pub fn prefetch(&self, device: usize) -> Result<Ticket, Error<D::Error>> {
        let access = self.on_device(device, Mode::Read)?;
        // One lane's transfers follow another's, so the latest stands for all.
        let last = access.after().iter().max_by_key(|ticket| ticket.value).copied();
        ops::flush(self.tree(), device)?;
        Ok(last.unwrap_or(Ticket::DONE))
    }

    /// Writes `value` to every element, on a device of the tree.
    ///
    /// # Errors
    /// As for a launch that overwrites the view.
    pub fn fill_on(&self, device: usize, value: T) -> Result<Ticket, Error<D::Error>> {
        let driver = self.driver(device)?;
        if self.map().is_empty() {
            return Ok(Ticket::DONE);
        }
        let arg = self.as_overwrite();
        let layout = arg.layout(device);
        let pattern = bytes_of(&value);
        let boxed = view_box(self.map(), &layout, &layout, self.map());
        let devices = [device; MAX_VIEWS];
        if matches!(pattern.len(), 1 | 2 | 4 | 8 | 16) {
            return execute(&[arg], &devices, Manner::PLAIN, &mut |memories, after| {
                let [Some(memory), ..] = *memories else { return Ok(Ticket::DONE) };
                // SAFETY: the memory is live while the region is reserved, the box lies inside it, and what
                // conflicts is in `after`.
                unsafe { driver.fill(memory, &[boxed], pattern, after) }
            });
        }
        // No fill of that size: every element is a copy of one in memory of its own.
        let bytes = pattern.len() as u64;
        let room = driver.allocate(bytes, Contents::Undefined);
        let room = room.map_err(|error| ops::failed(self.tree(), device, error))?;
        let fixed = boxed.with_fixed_source(bytes);
        let mut used = After::NONE;
        used.add(room.ready);
        let one = CopyBox::flat(0, 0, bytes);
        // SAFETY: the memory is ours alone, made for the element; the element is read during the call.
        let first =
            unsafe { driver.upload(pattern.as_ptr(), room.memory, &[one], used.as_slice()) };
        let first = first.map_err(|error| ops::failed(self.tree(), device, error));
        let result = first.and_then(|first| {
            used.add(first);
            execute(&[arg], &devices, Manner::PLAIN, &mut |memories, after| {
                let [Some(memory), ..] = *memories else { return Ok(Ticket::DONE) };
                let mut after = After::of(after);
                after.add(first);
                // SAFETY: as above, for both memories.
                let done = unsafe { driver.copy(room.memory, memory, &[fixed], after.as_slice()) }?;
                used.add(done);
                Ok(done)
            })
        });
        // SAFETY: made here; `used` is all work on it.
        unsafe { driver.release(room.memory, used.as_slice()) };
        result
    }

    /// Copies the elements of `source` here, in the order of each view's own coordinates, on a device.
    /// Where both share elements of one root, it is as if `source` had been read whole before
    /// (`memmove`).
    ///
    /// # Errors
    /// [`Error::Mismatch`] when ranks or extents differ; [`Error::WrongDriver`] when `source` is of a tree
    /// without this device; else as for a launch.
    pub fn copy_from(
        &self,
        source: &View<'_, T, D>,
        device: usize,
    ) -> Result<Ticket, Error<D::Error>> {
        let driver = self.driver(device)?;
        let (to, from) = (self.map(), source.map());
        let same = to.rank() == from.rank()
            && (0..to.rank()).all(|axis| to.extent(axis) == from.extent(axis));
        if !same {
            return Err(Error::Mismatch);
        }
        let there = device_of(source.tree(), driver.id()).ok_or(Error::WrongDriver)?;
        if to.is_empty() {
            return Ok(Ticket::DONE);
        }
        let (read, write) = (source.as_read(), self.as_overwrite());
        let boxed = view_box(to, &read.layout(there), &write.layout(device), from);
        let mut devices = [device; MAX_VIEWS];
        let overlap = core::ptr::addr_eq(source.tree(), self.tree())
            && self.root_region().overlaps(&source.root_region());
        if overlap {
            return self.copy_through(device, read, boxed);
        }
        let [first, ..] = &mut devices;
        *first = there;
        execute(&[read, write], &devices, Manner::PLAIN, &mut |memories, after| {
            let [Some(src), Some(dst), ..] = *memories else { return Ok(Ticket::DONE) };
            // SAFETY: both memories are live while the regions are reserved, the box lies inside both, and
            // the regions share no element; what conflicts is in `after`.
            unsafe { driver.copy(src, dst, &[boxed], after) }
        })
    }

    /// A copy within overlapping elements: through memory of its own.
    fn copy_through(
        &self,
        device: usize,
        read: Arg<'_, D>,
        boxed: CopyBox,
    ) -> Result<Ticket, Error<D::Error>> {
        let driver = self.driver(device)?;
        let room = driver.allocate(boxed.bytes(), Contents::Undefined);
        let room = room.map_err(|error| ops::failed(self.tree(), device, error))?;
        let (pack, unpack) = boxed.through_packed();
        let mut used = After::NONE;
        used.add(room.ready);
        let args = [read, self.as_overwrite()];
        let devices = [device; MAX_VIEWS];
        let apart = Manner { sharing: Sharing::KeptApart, ..Manner::PLAIN };
        let result = execute(&args, &devices, apart, &mut |memories, after| {
            let [Some(src), Some(dst), ..] = *memories else { return Ok(Ticket::DONE) };
            let mut after = After::of(after);
            after.add(room.ready);
            // SAFETY: the root's memory is live while the regions are reserved; the other is ours alone,
            // made for the box; what conflicts is in `after`.
            let packed = unsafe { driver.copy(src, room.memory, &[pack], after.as_slice()) }?;
            used.add(packed);
            after.add(packed);
            // SAFETY: as above, the other way, after the source was read whole.
            let done = unsafe { driver.copy(room.memory, dst, &[unpack], after.as_slice()) }?;
            used.add(done);
            Ok(done)
        });
        // SAFETY: made here; `used` is all work on it.
        unsafe { driver.release(room.memory, used.as_slice()) };
        result
    }

    /// States that somebody else has filled the view's bytes at a location: they are fresh there from now
    /// on, and stale everywhere else. Bytes beside the view that capacity makes part of it are brought there
    /// first.
    ///
    /// # Errors
    /// [`Error::Geometry`] for a view with gaps between its elements (a step); else as for overwriting the
    /// view there.
    pub fn assume_fresh(&self, location: Location) -> Result<(), Error<D::Error>> {
        if !self.map().covers_its_box() {
            // What lies between the elements would have to be brought there, and would bring over them too.
            let steps = (0..self.rank()).map(|axis| self.map().step(axis));
            let step = steps.max_by_key(|step| step.unsigned_abs()).unwrap_or(1);
            return Err(crate::region::GeometryError::BadStep { step }.into());
        }
        match location {
            Location::Device(device) => {
                let device = usize::from(device);
                self.on_device_filled(device, Mode::Overwrite, Filled::Before).map(drop)
            }
            Location::Host if self.map().is_empty() => Ok(()),
            Location::Host => {
                let request = self.request(Location::Host, Mode::Overwrite);
                ops::on_host(self.tree(), &request, Wait::Yes, false).map(drop)
            }
        }
    }

    /// Copies the elements into `out`, axis 0 fastest, and returns how many. Works for trees without host
    /// storage, or with storage that may not be written, too: then they come straight from a device, to
    /// nowhere else.
    ///
    /// # Errors
    /// [`Error::Geometry`] when `out` is too short; else as [`read`](Self::read).
    pub fn read_into(&self, out: &mut [T]) -> Result<usize, Error<D::Error>> {
        let (needed, given) = (self.map().volume(), out.len() as u64);
        if given < needed {
            return Err(crate::region::GeometryError::TooShort { needed, given }.into());
        }
        if self.tree().setup().has_host {
            match self.read() {
                // What may not come home is read where it is.
                Err(Error::ReadOnly { .. }) => {}
                guard => return Ok(guard?.copy_to_slice(out)),
            }
        }
        if self.map().is_empty() {
            return Ok(0);
        }
        // Whole on one device first; then one copy.
        let device = ops::holder_of(self.tree(), &self.root_region())?;
        let access = self.on_device(device, Mode::Read)?;
        let Some(binding) = access.binding() else { return Ok(0) };
        let layout = self.as_read().layout(device);
        let boxed = packed_box(self.map(), &layout, size_of::<T>());
        let driver = self.driver(device)?;
        let timeout = self.tree().timeout();
        let to = out.as_mut_ptr().cast();
        // SAFETY: the region is held on the device; `out` holds the packed view and is borrowed exclusively.
        let result =
            unsafe { driver.download(binding.memory, to, &[boxed], access.after(), timeout) };
        result.map_err(|error| ops::failed(self.tree(), device, error))?;
        Ok(needed as usize)
    }

    fn driver(&self, device: usize) -> Result<&'t D, Error<D::Error>> {
        let devices = self.tree().devices();
        self.tree().device(device).ok_or(Error::NoDevice { device, devices })
    }
}

/// The copy of every element of one view to its fellow in another of the same extents.
fn view_box(to: &ViewMap, src: &Layout, dst: &Layout, from: &ViewMap) -> CopyBox {
    let mut boxed =
        CopyBox::flat(src.offset(from.origin()), dst.offset(to.origin()), dst.element().into());
    let stride = |map: &ViewMap, layout: &Layout, axis: usize| {
        layout.stride(map.root_axis(axis)).wrapping_mul(map.step(axis).into())
    };
    // Small strides of the destination first, so that they fold.
    let mut axes: [usize; MAX_RANK] = core::array::from_fn(|axis| axis);
    let axes = axes.get_mut(..to.rank()).unwrap_or_default();
    axes.sort_unstable_by_key(|axis| stride(to, dst, *axis).unsigned_abs());
    for axis in axes.iter().copied() {
        boxed.push(Dim {
            count: to.extent(axis),
            src_stride: stride(from, src, axis),
            dst_stride: stride(to, dst, axis),
        });
    }
    boxed
}

/// The copy of a view into packed memory, axis 0 fastest.
fn packed_box(map: &ViewMap, layout: &Layout, element: usize) -> CopyBox {
    let mut boxed = CopyBox::flat(layout.offset(map.origin()), 0, element as u64);
    let mut next = element as i64;
    for axis in 0..map.rank() {
        let count = map.extent(axis);
        let src_stride = layout.stride(map.root_axis(axis)).wrapping_mul(map.step(axis).into());
        boxed.push(Dim { count, src_stride, dst_stride: next });
        next = next.saturating_mul(count.into());
    }
    boxed
}
