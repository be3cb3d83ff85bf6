//! Work on devices: everything that a kernel, a fill or a copy needs around the one call that does it.

use super::erased::{Erased, locked_surely};
use super::launch::Arg;
use super::ops::{self, Transit, Wait};
use super::poison;
use crate::driver::{After, DeviceDriver, DriverError, ErrorKind, Ticket};
use crate::error::{Busy, Error, Holder};
use crate::tree::{Location, MAX_VIEWS, Request, Sharing};

/// The memory of each argument's root, where it has bytes.
pub(super) type Memories<D> = [Option<<D as DeviceDriver>::Memory>; MAX_VIEWS];

/// The call that does the work, given the memories and what it must follow.
pub(super) type Submit<'a, D> =
    &'a mut dyn FnMut(&Memories<D>, &[Ticket]) -> Result<Ticket, <D as DeviceDriver>::Error>;

/// How to go about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// Bytes that the smallest write touches.
    pub(super) granule: u32,
    /// Whether views that share written elements are fine.
    pub(super) sharing: Sharing,
    /// Whether the call may wait: for other calls, for other devices.
    pub(super) wait: Wait,
}

impl Manner {
    /// Byte by byte, nothing shared, waiting where it must.
    pub(super) const PLAIN: Self = Self { granule: 1, sharing: Sharing::Refused, wait: Wait::Yes };
}

/// Reserves all of `args` (all or none), brings what they read to their devices, calls `submit`, and
/// records what was written.
///
/// `devices` says which device of its tree each argument is for; all are one driver's.
pub(super) fn execute<D: DeviceDriver>(
    args: &[Arg<'_, D>],
    devices: &[usize; MAX_VIEWS],
    manner: Manner,
    submit: Submit<'_, D>,
) -> Result<Ticket, Error<D::Error>> {
    let Manner { granule, sharing, wait } = manner;
    let request = &|i: usize| -> Option<Request> {
        let (arg, device) = (args.get(i)?, devices.get(i)?);
        let request = arg.request(Location::Device(*device as u8), granule);
        (!arg.map.is_empty()).then_some(request)
    };
    // What only another device has may have to go home first; but nothing moves for what will be refused.
    if args.iter().any(|arg| ops::may_stage(arg.tree)) {
        drop(reserve_all(args, manner, request)?);
        for (i, arg) in args.iter().enumerate() {
            if let Some(request) = request(i).filter(|_| wait == Wait::Yes) {
                ops::stage_through_host(arg.tree, &request)?;
            }
        }
    }
    let mut transit = reserve_all(args, manner, request)?;

    let mut memories: Memories<D> = [None; MAX_VIEWS];
    for ((arg, device), memory) in args.iter().zip(devices).zip(&mut memories) {
        if arg.tree.setup().device.span() > 0 {
            *memory = Some(ops::memory(arg.tree, *device, wait)?);
        }
    }
    let mut after = After::NONE;
    for entry in &mut transit.entries {
        let memory = ops::memory(entry.tree, entry.device, wait)?;
        ops::bring(entry.tree, &mut entry.reservation, Some(memory), wait)?;
        // What is written may be what is read, where the caller keeps them apart.
        if sharing == Sharing::Refused {
            poison::before_overwrite(entry.tree, &mut entry.reservation)?;
        }
        after.extend(entry.reservation.transfers());
        for device in 0..entry.tree.devices() {
            let found = locked_surely(entry.tree, |inner| {
                let place = entry.device + 1;
                let (reads, writes) = inner.state.planes_of(place, entry.reservation.mode());
                inner.state.dependencies(entry.reservation.outer(), reads, writes, device)
            });
            if device == entry.device {
                after.extend(&found);
            } else if wait == Wait::No {
                if !ops::retire_done(entry.tree, device, &found)? {
                    let region = *entry.reservation.region();
                    return Err(Error::Busy(Busy { region, holder: Holder::Work }));
                }
            } else {
                ops::wait_for(entry.tree, device, &found)?;
            }
        }
    }

    let ticket = match submit(&memories, after.as_slice()) {
        Ok(ticket) => ticket,
        Err(error) if error.kind() == ErrorKind::DeviceLost => {
            // A loss is entered in every tree of the launch, and told of the first that lost something.
            let (mut region, mut boxes) = (None, 0);
            for entry in &transit.entries {
                let found = locked_surely(entry.tree, |inner| inner.state.lose(entry.device));
                if region.is_none() {
                    (region, boxes) = found;
                }
            }
            return Err(Error::Lost { region, boxes, cause: Some(error) });
        }
        Err(error) => return Err(Error::Driver(error)),
    };

    // Accepted. A loss that another call met meanwhile took this work along.
    let mut ran = After::NONE;
    ran.add(ticket);
    let mut lost = false;
    for entry in &transit.entries {
        locked_surely(entry.tree, |inner| {
            if inner.state.device(entry.device).is_none_or(|device| device.lost) {
                lost = true;
                inner.state.abandon(&entry.reservation, entry.device);
            } else {
                inner.state.record(&entry.reservation, entry.device, &ran);
            }
        });
        if !lost {
            poison::became_stale(entry.tree, &entry.reservation);
            locked_surely(entry.tree, |inner| inner.state.settle(&entry.reservation, false));
        }
    }
    transit.entries.clear();
    if lost {
        return Err(Error::Lost { region: None, boxes: 0, cause: None });
    }
    Ok(ticket)
}

/// Reserves on all trees, in address order and each in one go, so that two launches never wait for each
/// other.
fn reserve_all<'t, D: DeviceDriver>(
    args: &[Arg<'t, D>],
    manner: Manner,
    request: impl Fn(usize) -> Option<Request>,
) -> Result<Transit<'t, D>, Error<D::Error>> {
    let mut transit = Transit::new();
    let address = |i: usize| args.get(i).map_or(0, |arg| core::ptr::from_ref(arg.tree).addr());
    let mut order: [usize; MAX_VIEWS] = core::array::from_fn(|i| i);
    let order = order.get_mut(..args.len()).unwrap_or_default();
    order.sort_unstable_by_key(|i| (address(*i), *i));
    for group in order.chunk_by(|a, b| address(*a) == address(*b)) {
        let mut requests = heapless::Vec::<Request, MAX_VIEWS>::new();
        for request in group.iter().filter_map(|i| request(*i)) {
            // No more than the arguments.
            let _ = requests.push(request);
        }
        let tree = group.first().and_then(|i| args.get(*i)).map(|arg| arg.tree);
        if let (Some(tree), false) = (tree, requests.is_empty()) {
            ops::reserve(tree, &requests, manner.sharing, manner.wait, &mut transit)?;
        }
    }
    Ok(transit)
}

/// The device of `arg`'s tree that is `wanted`'s driver.
pub(super) fn device_of<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    wanted: crate::driver::DriverId,
) -> Option<usize> {
    (0..tree.devices()).find(|index| tree.device(*index).is_some_and(|d| d.id() == wanted))
}
