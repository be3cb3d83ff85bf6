//! Launches: a kernel on bound views, with everything it reads brought to its device.

use core::fmt;

use bytemuck::Pod;

use super::Element;
use super::erased::{Erased, locked_surely};
use super::execute::{Manner, device_of, execute};
use super::ops::Wait;
use crate::driver::{
    Binding, Caps, ComputeDriver, DeviceDriver, Dispatch, Geometry, Kernel, Ticket,
};
use crate::error::Error;
use crate::region::{MAX_RANK, PerAxis, ViewMap};
use crate::tree::{Location, MAX_VIEWS, Mode, Request, Sharing};

/// A view as an argument of a launch: which elements, and what the kernel may do with them.
///
/// It borrows the tree, not the view it came from.
pub struct Arg<'t, D: DeviceDriver> {
    pub(super) tree: &'t dyn Erased<D>,
    pub(super) map: ViewMap,
    pub(super) mode: Mode,
    pub(super) element: usize,
}

impl<D: DeviceDriver> Clone for Arg<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: DeviceDriver> Copy for Arg<'_, D> {}

impl<D: DeviceDriver> fmt::Debug for Arg<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {}", self.mode, self.map.region())
    }
}

impl<'t, D: DeviceDriver> Arg<'t, D> {
    pub(crate) fn new<T: Element>(tree: &'t dyn Erased<D>, map: ViewMap, mode: Mode) -> Self {
        Self::on(tree, map, size_of::<T>(), mode)
    }

    pub(crate) fn on(tree: &'t dyn Erased<D>, map: ViewMap, element: usize, mode: Mode) -> Self {
        Self { tree, map, mode, element }
    }

    pub(crate) fn request(&self, location: Location, granule: u32) -> Request {
        Request {
            region: self.map.root_region(),
            location,
            mode: self.mode,
            covers: self.map.covers_its_box(),
            granule,
            skip_undefined: false,
            homing: false,
        }
    }

    /// The layout of the root on a device.
    pub(super) fn layout(&self, device: usize) -> crate::region::Layout {
        let setup = self.tree.setup();
        if device == 0 && setup.shared { setup.host } else { setup.device }
    }

    /// Aligned start and bytes of the view's window.
    fn window(&self, caps: &Caps, device: usize) -> (u64, u64) {
        let (start, span) = self.layout(device).window(&self.map.root_region());
        let align = u64::from(caps.bind_align.max(1));
        let aligned = start - start % align;
        (aligned, start - aligned + span)
    }

    /// Refuses a window that the device cannot bind.
    pub(crate) fn check_window<E>(&self, caps: &Caps, device: usize) -> Result<(), Error<E>> {
        let (_, span) = self.window(caps, device);
        if span > caps.max_binding {
            return Err(Error::TooLarge { span, limit: caps.max_binding });
        }
        Ok(())
    }
}

/// The binding of a view that is not empty.
pub(crate) fn bind<D: DeviceDriver>(
    arg: &Arg<'_, D>,
    memory: D::Memory,
    caps: &Caps,
    device: usize,
) -> Binding<D::Memory> {
    let layout = arg.layout(device);
    let map = &arg.map;
    let (offset, bytes) = arg.window(caps, device);
    let mut geometry = Geometry {
        rank: map.rank(),
        origin: layout.offset(map.origin()).wrapping_sub(offset),
        min: PerAxis::all(0),
        extent: PerAxis::all(1),
        stride: PerAxis::all(0),
    };
    for axis in 0..map.rank().min(MAX_RANK) {
        geometry.min.set(axis, map.min(axis));
        geometry.extent.set(axis, map.extent(axis));
        let stride = layout.stride(map.root_axis(axis)).wrapping_mul(i64::from(map.step(axis)));
        geometry.stride.set(axis, stride);
    }
    if map.is_empty() {
        geometry.origin = 0;
    }
    Binding { memory, offset, bytes, geometry, element: arg.element as u32, mode: arg.mode }
}

#[diagnostic::on_unimplemented(
    message = "a launch takes `Arg`s of this driver, not `{Self}`",
    note = "say what the kernel does with a view: `as_read()`, `as_overwrite()` or `as_update()`; several go in a tuple"
)]
/// What a launch takes: one argument, a tuple of up to eight, an array, or a slice.
pub trait Args<'t, D: DeviceDriver> {
    /// Calls `f` with the arguments in order.
    fn with<R>(self, f: impl FnOnce(&[Arg<'t, D>]) -> R) -> R;
}

impl<'t, D: DeviceDriver> Args<'t, D> for Arg<'t, D> {
    fn with<R>(self, f: impl FnOnce(&[Arg<'t, D>]) -> R) -> R {
        f(&[self])
    }
}

impl<'t, D: DeviceDriver> Args<'t, D> for &[Arg<'t, D>] {
    fn with<R>(self, f: impl FnOnce(&[Arg<'t, D>]) -> R) -> R {
        f(self)
    }
}

impl<'t, D: DeviceDriver, const N: usize> Args<'t, D> for [Arg<'t, D>; N] {
    fn with<R>(self, f: impl FnOnce(&[Arg<'t, D>]) -> R) -> R {
        f(&self)
    }
}

macro_rules! tuple_args {
    ($($name:ident),+) => {
        impl<'t, D: DeviceDriver> Args<'t, D> for ($(tuple_args!(@one $name, 't, D),)+) {
            fn with<R>(self, f: impl FnOnce(&[Arg<'t, D>]) -> R) -> R {
                let ($($name,)+) = self;
                f(&[$($name),+])
            }
        }
    };
    (@one $name:ident, $t:lifetime, $d:ident) => { Arg<$t, $d> };
}

tuple_args!(a);
tuple_args!(a, b);
tuple_args!(a, b, c);
tuple_args!(a, b, c, d);
tuple_args!(a, b, c, d, e);
tuple_args!(a, b, c, d, e, g);
tuple_args!(a, b, c, d, e, g, h);
tuple_args!(a, b, c, d, e, g, h, i);

impl<D: ComputeDriver> Kernel<D> {
    /// Runs the kernel once for each element of its *domain*: the first view it writes, or else its first.
    ///
    /// Everything it reads is made fresh on its device, and nothing else moves; device memory is allocated
    /// for whole roots on first use. The launch is ordered after earlier work that touches the same bytes,
    /// and beside all other. It returns when the work is accepted: reading a view waits for it. An empty
    /// domain is no work, and no error.
    ///
    /// # Errors
    /// Nothing has changed then, and a retry is right:
    /// * [`Error::Views`], [`Error::Params`], [`Error::TooLarge`], [`Error::Groups`]: what the kernel or device
    ///   cannot take;
    /// * [`Error::WrongDriver`] when a view's tree is not on the kernel's device;
    /// * [`Error::Overlap`] when two views share elements and one is written; [`Error::Busy`] when a live
    ///   guard conflicts; [`Error::Undefined`] when it reads what nobody holds;
    /// * [`Error::Driver`] and [`Error::Lost`].
    pub fn launch<'t, P: Pod>(
        &self,
        args: impl Args<'t, D>,
        params: P,
    ) -> Result<Ticket, Error<D::Error>>
    where
        D: 't,
    {
        args.with(|args| self.run(args, bytemuck::bytes_of(&params), None, self.manner()))
    }

    /// As [`launch`](Self::launch), but never waits: not for the lock, nor for another call at work on the same
    /// bytes, nor for another device that has some of them.
    ///
    /// # Errors
    /// [`Error::Busy`] too where waiting would be needed.
    pub fn try_launch<'t, P: Pod>(
        &self,
        args: impl Args<'t, D>,
        params: P,
    ) -> Result<Ticket, Error<D::Error>>
    where
        D: 't,
    {
        let manner = Manner { wait: Wait::No, ..self.manner() };
        args.with(|args| self.run(args, bytemuck::bytes_of(&params), None, manner))
    }

    fn manner(&self) -> Manner {
        Manner { granule: self.granule, ..Manner::PLAIN }
    }

    /// Runs `groups` workgroups, whatever the views' extents.
    ///
    /// # Errors
    /// As [`launch`](Self::launch); [`Error::ZeroGroups`] when any of `groups` is zero.
    pub fn launch_groups<'t, P: Pod>(
        &self,
        args: impl Args<'t, D>,
        params: P,
        groups: [u32; 3],
    ) -> Result<Ticket, Error<D::Error>>
    where
        D: 't,
    {
        args.with(|args| self.run(args, bytemuck::bytes_of(&params), Some(groups), self.manner()))
    }

    /// As [`launch`](Self::launch), for views that share elements which one of them writes.
    ///
    /// # Errors
    /// As [`launch`](Self::launch), but for [`Error::Overlap`].
    ///
    /// # Safety
    /// The kernel keeps the views apart: within the launch, it touches no element through one view that it
    /// writes through another (in whole granules).
    pub unsafe fn launch_kept_apart<'t, P: Pod>(
        &self,
        args: impl Args<'t, D>,
        params: P,
    ) -> Result<Ticket, Error<D::Error>>
    where
        D: 't,
    {
        let manner = Manner { sharing: Sharing::KeptApart, ..self.manner() };
        args.with(|args| self.run(args, bytemuck::bytes_of(&params), None, manner))
    }

    fn run(
        &self,
        args: &[Arg<'_, D>],
        params: &[u8],
        groups: Option<[u32; 3]>,
        manner: Manner,
    ) -> Result<Ticket, Error<D::Error>> {
        if args.len() != self.views || args.len() > MAX_VIEWS {
            return Err(Error::Views { given: args.len(), expected: self.views.min(MAX_VIEWS) });
        }
        if groups.is_some_and(|groups| groups.contains(&0)) {
            return Err(Error::ZeroGroups);
        }
        let domain = args.iter().find(|arg| arg.mode.writes()).or(args.first());
        let Some(domain) = domain else { return Err(Error::Views { given: 0, expected: 1 }) };

        // The device of each view's tree that this kernel runs on.
        let mut devices = [0usize; MAX_VIEWS];
        for (arg, device) in args.iter().zip(&mut devices) {
            *device = device_of(arg.tree, self.driver).ok_or(Error::WrongDriver)?;
        }
        let runs_on = devices.first().copied().unwrap_or(0);
        let Some(driver) = args.first().and_then(|arg| arg.tree.device(runs_on)) else {
            return Err(Error::WrongDriver);
        };
        let caps = driver.caps();
        if params.len() > caps.max_params as usize {
            return Err(Error::Params { given: params.len(), limit: caps.max_params as usize });
        }
        if args.len() > caps.max_views as usize {
            return Err(Error::Views { given: args.len(), expected: caps.max_views as usize });
        }
        for (arg, device) in args.iter().zip(devices) {
            arg.check_window(caps, device)?;
        }
        if domain.map.is_empty() && groups.is_none() || args.iter().all(|arg| arg.map.is_empty()) {
            return Ok(Ticket::DONE);
        }
        let groups = self.groups(domain, groups, caps)?;
        self.run_checked(driver, args, &devices, (params, groups), manner)
    }

    /// Workgroups: as given, or enough for the domain, whose axes from the third on are one.
    fn groups(
        &self,
        domain: &Arg<'_, D>,
        given: Option<[u32; 3]>,
        caps: &Caps,
    ) -> Result<[u32; 3], Error<D::Error>> {
        let map = &domain.map;
        let deep = (2..map.rank()).fold(1u64, |n, axis| n.saturating_mul(map.extent(axis).into()));
        let threads = [map.extent(0).into(), map.extent(1).into(), deep];
        let mut groups = [1u32; 3];
        for (axis, slot) in groups.iter_mut().enumerate() {
            let at = |values: [u32; 3]| values.get(axis).copied().unwrap_or(1);
            let needed = match given {
                Some(given) => u64::from(at(given)),
                None => {
                    let threads: u64 = threads.get(axis).copied().unwrap_or(1);
                    threads.div_ceil(u64::from(at(self.workgroup)))
                }
            };
            let limit = at(caps.max_groups);
            *slot = u32::try_from(needed)
                .ok()
                .filter(|groups| *groups <= limit)
                .ok_or(Error::Groups { axis, given: needed, limit })?;
        }
        Ok(groups)
    }

    fn run_checked(
        &self,
        driver: &D,
        args: &[Arg<'_, D>],
        devices: &[usize; MAX_VIEWS],
        (params, groups): (&[u8], [u32; 3]),
        manner: Manner,
    ) -> Result<Ticket, Error<D::Error>> {
        execute(args, devices, manner, &mut |memories, after| {
            let mut bindings = heapless::Vec::<Binding<D::Memory>, MAX_VIEWS>::new();
            // An empty view of an empty root has no memory: it borrows a window nobody will look into.
            let some = memories.iter().copied().flatten().next();
            for ((arg, device), memory) in args.iter().zip(devices).zip(memories) {
                let Some(memory) = memory.or(some) else { continue };
                let mut binding = bind(arg, memory, driver.caps(), *device);
                if arg.map.is_empty() {
                    let span = arg.tree.setup().device.span();
                    binding.offset = 0;
                    binding.bytes = u64::from(binding.element).min(span.max(1));
                }
                // No more than the arguments.
                let _ = bindings.push(binding);
            }
            let dispatch = Dispatch { views: &bindings, params, groups };
            // SAFETY: the kernel is this driver's (checked by id); every binding's memory is live while its
            // region is reserved, and holds its window; what conflicts is in `after`, and nothing that
            // conflicts can start before the reservations end, when the ticket is entered. Views that
            // share elements with a written one were refused, or the caller keeps them apart.
            unsafe { driver.dispatch(&self.code, &dispatch, after) }
        })
        .inspect(|_| {
            if let Some(arg) = args.first() {
                locked_surely(arg.tree, |inner| inner.state.counters().launches += 1);
            }
        })
    }
}
