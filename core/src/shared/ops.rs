//! One access from reservation to commit: what to wait for, what to move, what to allocate.

use super::erased::{Erased, Inner, Wait, locked, locked_surely};
use crate::coherence::{Planes, plane_bit};
use crate::driver::{After, CopyBox, DeviceDriver, DriverError, ErrorKind};
use crate::error::{Busy, Error, Holder};
use crate::region::Region;
use crate::tree::{Location, Next, Request, Reservation, Residency};

/// What an access would move, if it were made now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Plan {
    /// Bytes from the host to a device, of the region asked for.
    pub bytes_up: u64,
    /// Bytes from a device to the host, of the region asked for.
    pub bytes_down: u64,
    /// Bytes from device to device, of the region asked for.
    pub bytes_across: u64,
    /// Bytes moved beside the region asked for (granules, gaps, widening).
    pub bytes_widened: u64,
    /// Bytes that nobody holds and that a widened write would zero and define.
    pub bytes_defined: u64,
    /// Strided boxes copied.
    pub boxes: u64,
}

/// Reservations of one call. What is still in here when it goes is abandoned, also when a driver panics.
pub(crate) struct Transit<'t, D: DeviceDriver> {
    pub(crate) entries: heapless::Vec<Entry<'t, D>, { crate::tree::MAX_VIEWS }>,
}

pub(crate) struct Entry<'t, D: DeviceDriver> {
    pub(crate) tree: &'t dyn Erased<D>,
    pub(crate) reservation: Reservation,
    /// The device that executes: the accessed one, or for host accesses none.
    pub(crate) device: usize,
}

impl<D: DeviceDriver> Transit<'_, D> {
    pub(crate) fn new() -> Self {
        Self { entries: heapless::Vec::new() }
    }
}

impl<D: DeviceDriver> Drop for Transit<'_, D> {
    fn drop(&mut self) {
        for entry in &self.entries {
            locked_surely(entry.tree, |inner| {
                inner.state.abandon(&entry.reservation, entry.device);
            });
        }
    }
}

/// What calls without `try_` in their name do.
pub(crate) const fn wait() -> Wait {
    Wait::Yes
}

/// Turns a driver's error into the tree's. A loss is entered first: what only that device held becomes
/// nobody's.
pub(crate) fn failed<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    device: usize,
    error: D::Error,
) -> Error<D::Error> {
    if error.kind() != ErrorKind::DeviceLost {
        return Error::Driver(error);
    }
    let (region, boxes) = locked_surely(tree, |inner| inner.state.lose(device));
    Error::Lost { region, boxes, cause: Some(error) }
}

fn driver<D: DeviceDriver>(tree: &dyn Erased<D>, device: usize) -> Result<&D, Error<D::Error>> {
    tree.device(device).ok_or(Error::NoDevice { device, devices: tree.devices() })
}

/// Refuses a device that this tree knows to be lost.
fn check_lost<M, E>(inner: &mut Inner<'_, M>, device: usize) -> Result<(), Error<E>> {
    match inner.state.device(device) {
        Some(state) if state.lost => Err(Error::Lost { region: None, boxes: 0, cause: None }),
        _ => Ok(()),
    }
}

/// Waits for tickets of one device and takes note that they are done.
pub(crate) fn wait_for<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    device: usize,
    after: &After,
) -> Result<(), Error<D::Error>> {
    for ticket in after.as_slice() {
        let result = driver(tree, device)?.wait(*ticket, tree.timeout());
        result.map_err(|error| failed(tree, device, error))?;
        locked_surely(tree, |inner| inner.state.retire(device, *ticket));
    }
    Ok(())
}

/// Reserves `requests` on one tree. Waits for other calls at work on the same bytes, unless told not to.
pub(crate) fn reserve<'t, D: DeviceDriver>(
    tree: &'t dyn Erased<D>,
    requests: &[Request],
    wait: Wait,
    transit: &mut Transit<'t, D>,
) -> Result<(), Error<D::Error>> {
    loop {
        let answer = locked(tree, wait, |inner| {
            for request in requests {
                if let Location::Device(device) = request.location {
                    check_lost(inner, usize::from(device))?;
                }
            }
            let keep = |reservation: Reservation| {
                let device = match requests.first().map(|request| request.location) {
                    Some(Location::Device(device)) => usize::from(device),
                    _ => 0,
                };
                // There is room: one launch has no more views than the list.
                let _ = transit.entries.push(Entry { tree, reservation, device });
            };
            inner.state.reserve(requests, keep).map_err(Error::lift)
        })?;
        match answer {
            Err(Error::Busy(Busy { holder: Holder::Call, .. })) if wait == Wait::Yes => {
                drop_kept(transit, tree);
                tree.relax();
            }
            Err(error) => {
                drop_kept(transit, tree);
                return Err(error);
            }
            Ok(()) => return Ok(()),
        }
    }
}

/// Takes back the entries of a tree whose reservation was refused as a whole: their slots are free.
fn drop_kept<'t, D: DeviceDriver>(transit: &mut Transit<'t, D>, tree: &'t dyn Erased<D>) {
    transit.entries.retain(|entry| !core::ptr::addr_eq(entry.tree, tree));
}

/// The memory of the root on a device; allocated now if this is the first use.
pub(crate) fn memory<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    device: usize,
) -> Result<D::Memory, Error<D::Error>> {
    enum Found<M> {
        Memory(M),
        Allocate,
        InProgress,
    }
    loop {
        let found = locked_surely(tree, |inner| {
            let memory = inner.memory.get(device).copied().flatten();
            let Some(state) = inner.state.device(device) else { return Found::InProgress };
            match (state.residency, memory) {
                (Residency::Present, Some(memory)) => Found::Memory(memory),
                (Residency::Changing, _) => Found::InProgress,
                _ => {
                    state.residency = Residency::Changing;
                    Found::Allocate
                }
            }
        });
        match found {
            Found::Memory(memory) => return Ok(memory),
            Found::InProgress => tree.relax(),
            Found::Allocate => break,
        }
    }
    let bytes = tree.setup().device.span();
    let result = driver(tree, device)?.allocate(bytes, tree.contents());
    locked_surely(tree, |inner| {
        if let Some(state) = inner.state.device(device) {
            state.residency = match &result {
                Ok(allocation) => {
                    state.ready = allocation.ready;
                    Residency::Present
                }
                Err(_) => Residency::Absent,
            };
        }
        if let (Ok(allocation), Some(slot)) = (&result, inner.memory.get_mut(device)) {
            *slot = Some(allocation.memory);
            inner.state.counters().allocations += 1;
        }
    });
    result.map(|allocation| allocation.memory).map_err(|error| failed(tree, device, error))
}

/// What one step of an access needs, read off the tables in one go.
struct Step<M> {
    next: Next,
    len: usize,
    /// What the step must follow on its own device.
    after: After,
    /// Work of other devices (or, for host steps, of any) that must be done before.
    foreign: [After; crate::tree::MAX_DEVICES],
    source: Option<M>,
}

/// Brings everything that a reserved access needs to its place: plans under the lock, transfers without.
pub(crate) fn bring<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    reservation: &mut Reservation,
    target: Option<D::Memory>,
    wait: Wait,
) -> Result<(), Error<D::Error>> {
    let mut result = Ok(());
    tree.with_list(&mut |list| result = bring_with(tree, reservation, target, list, wait));
    result
}

fn bring_with<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    reservation: &mut Reservation,
    target: Option<D::Memory>,
    list: &mut [CopyBox],
    wait: Wait,
) -> Result<(), Error<D::Error>> {
    let place = match target {
        Some(_) => reservation.place(),
        None => 0,
    };
    loop {
        let before = *reservation;
        let step = locked_surely(tree, |inner| {
            *reservation = before;
            let step = plan_step(inner, reservation, list, tree.devices());
            if step.next == Next::Done {
                inner.state.brought(reservation);
            }
            step
        });
        if step.next == Next::Done {
            return Ok(());
        }
        if wait == Wait::No {
            let region = *reservation.region();
            return Err(Error::Busy(Busy { region, holder: Holder::Work }));
        }
        for (device, after) in step.foreign.iter().enumerate() {
            wait_for(tree, device, after)?;
        }
        let boxes = list.get(..step.len).unwrap_or_default();
        let tickets = match place.checked_sub(1) {
            None => to_host(tree, &step, boxes)?,
            Some(device) => to_device(tree, device, target, &step, boxes)?,
        };
        let source = match step.next {
            Next::Copy { from, .. } => from,
            _ => place,
        };
        locked_surely(tree, |inner| {
            if place > 0 {
                inner.state.transferred(reservation, source, &tickets);
            }
            let counters = inner.state.counters();
            counters.lists += 1;
            match step.next {
                Next::Copy { from, bytes, widened } => {
                    counters.bytes_widened += widened;
                    match (from, place) {
                        (0, _) => counters.bytes_up += bytes,
                        (_, 0) => counters.bytes_down += bytes,
                        _ => counters.bytes_across += bytes,
                    }
                }
                Next::Zero { bytes } => counters.defined_by_widening += bytes,
                Next::Done => {}
            }
        });
    }
}

fn plan_step<M: Copy>(
    inner: &mut Inner<'_, M>,
    reservation: &mut Reservation,
    list: &mut [CopyBox],
    devices: usize,
) -> Step<M> {
    let (next, len) = inner.state.next(reservation, list);
    let mut step = Step {
        next,
        len,
        after: *reservation.transfers(),
        foreign: [After::NONE; crate::tree::MAX_DEVICES],
        source: None,
    };
    let place = reservation.place();
    let writes = plane_bit(inner.state.plane(place));
    let (reads, executes): (Planes, Option<usize>) = match next {
        Next::Copy { from, .. } => {
            step.source = from.checked_sub(1).and_then(|d| inner.memory.get(d).copied().flatten());
            let runs_on = if place > 0 { place } else { from };
            (plane_bit(inner.state.plane(from)), runs_on.checked_sub(1))
        }
        Next::Zero { .. } => (0, place.checked_sub(1)),
        Next::Done => return step,
    };
    for device in 0..devices {
        let after = inner.state.dependencies(reservation.outer(), reads, writes, device);
        if Some(device) == executes {
            step.after.extend(&after);
        } else if let Some(slot) = step.foreign.get_mut(device) {
            *slot = after;
        }
    }
    step
}

/// Executes one list towards the host, and waits for it: host bytes are fresh only when they are there.
fn to_host<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    step: &Step<D::Memory>,
    boxes: &[CopyBox],
) -> Result<After, Error<D::Error>> {
    let host = tree.host();
    let Next::Copy { from, .. } = step.next else {
        for copy in boxes {
            copy.for_each_run(|_, dst| {
                let run = host.base.wrapping_add(dst as usize);
                // SAFETY: the planner lists runs of a reserved region, inside the root's storage; nobody
                // else touches a reserved region (I9), and device work on it was waited for.
                unsafe { run.write_bytes(0, copy.run as usize) }
            });
        }
        return Ok(After::NONE);
    };
    let device = from.saturating_sub(1);
    let driver = driver(tree, device)?;
    let (Some(source), after) = (step.source, step.after.as_slice()) else {
        return Ok(After::NONE);
    };
    let result = match host.owned.filter(|_| device == 0) {
        Some(storage) => {
            // SAFETY: both handles are live while the region is reserved; the planner's boxes lie inside
            // both roots and do not overlap; host accesses to the region wait for this call.
            let ticket = unsafe { driver.copy(source, storage, boxes, after) };
            ticket.and_then(|ticket| driver.wait(ticket, tree.timeout()))
        }
        None => {
            // SAFETY: the storage holds every box (the layout was checked against it), and nobody else
            // touches the reserved region during the call (I9).
            unsafe { driver.download(source, host.base, boxes, after, tree.timeout()) }
        }
    };
    result.map_err(|error| failed(tree, device, error))?;
    Ok(After::NONE)
}

/// Executes one list towards a device.
fn to_device<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    device: usize,
    target: Option<D::Memory>,
    step: &Step<D::Memory>,
    boxes: &[CopyBox],
) -> Result<After, Error<D::Error>> {
    let driver = driver(tree, device)?;
    let Some(target) = target else { return Ok(After::NONE) };
    let after = step.after.as_slice();
    let host = tree.host();
    let result = match step.next {
        Next::Copy { from: 0, .. } => match host.owned.filter(|_| device == 0) {
            // SAFETY: both handles are live while the region is reserved; boxes lie inside both; a host
            // write to the region waits for the ticket, which is entered as reading the storage.
            Some(storage) => unsafe { driver.copy(storage, target, boxes, after) },
            // SAFETY: the storage holds every box, and nobody writes a reserved region during the call.
            None => unsafe { driver.upload(host.base, target, boxes, after) },
        },
        // SAFETY: the handle is live; the planner's boxes lie inside it.
        Next::Zero { .. } => unsafe { driver.fill(target, boxes, &[0], after) },
        _ => return Err(Error::NoHostStorage),
    };
    let mut tickets = After::NONE;
    tickets.add(result.map_err(|error| failed(tree, device, error))?);
    Ok(tickets)
}

/// Where a device access would have to go through the host, brings what only other devices hold home first,
/// box by box, so that the device can fetch it from there.
pub(crate) fn stage_through_host<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    request: &Request,
) -> Result<(), Error<D::Error>> {
    if tree.devices() < 2 || !tree.setup().has_host || request.location == Location::Host {
        return Ok(());
    }
    let mut last = None;
    loop {
        let next = locked(tree, Wait::Yes, |inner| inner.state.only_on_other_devices(request))?;
        let Some(region) = next else { return Ok(()) };
        // A read that cannot be cut is not recorded, and would be asked for forever. A write widens.
        let mode = if last == next { crate::tree::Mode::Update } else { crate::tree::Mode::Read };
        let home = Request {
            region,
            location: Location::Host,
            mode,
            covers: true,
            granule: 1,
            skip_undefined: true,
        };
        on_host(tree, &home, Wait::Yes, false)?;
        last = next;
    }
}

/// A host access: everything fresh and nothing of it in flight when this returns. With `hold`, returns the
/// slot that vouches for it.
pub(crate) fn on_host<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    request: &Request,
    wait: Wait,
    hold: bool,
) -> Result<usize, Error<D::Error>> {
    if !tree.setup().has_host {
        return Err(Error::NoHostStorage);
    }
    let mut transit = Transit::new();
    reserve(tree, core::slice::from_ref(request), wait, &mut transit)?;
    let Some(entry) = transit.entries.first_mut() else { return Err(Error::StaleHandle) };
    bring(tree, &mut entry.reservation, None, wait)?;
    for device in 0..tree.devices() {
        let after = locked_surely(tree, |inner| {
            let (reads, writes) = inner.state.planes_of(0, request.mode);
            inner.state.dependencies(entry.reservation.outer(), reads, writes, device)
        });
        if wait == Wait::No && !all_done(tree, device, &after)? {
            let region = request.region;
            return Err(Error::Busy(Busy { region, holder: Holder::Work }));
        }
        wait_for(tree, device, &after)?;
    }
    let slot = entry.reservation.slot();
    locked_surely(tree, |inner| {
        inner.state.commit(&entry.reservation, 0, &After::NONE, hold);
    });
    transit.entries.clear();
    Ok(slot)
}

fn all_done<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    device: usize,
    after: &After,
) -> Result<bool, Error<D::Error>> {
    for ticket in after.as_slice() {
        let done = driver(tree, device)?.poll(*ticket);
        if !done.map_err(|error| failed(tree, device, error))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What an access would move: reserves, plans, and abandons.
pub(crate) fn plan<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    request: &Request,
    each: &mut dyn FnMut(Location, Location, &CopyBox),
) -> Result<Plan, Error<D::Error>> {
    let mut plan = Plan::default();
    if request.region.is_empty() {
        return Ok(plan);
    }
    if request.location == Location::Host && !tree.setup().has_host {
        return Err(Error::NoHostStorage);
    }
    let mut transit = Transit::new();
    reserve(tree, core::slice::from_ref(request), Wait::Yes, &mut transit)?;
    let Some(entry) = transit.entries.first_mut() else { return Err(Error::StaleHandle) };
    let reservation = &mut entry.reservation;
    tree.with_list(&mut |list| {
        loop {
            let before = *reservation;
            let (next, len) = locked_surely(tree, |inner| {
                *reservation = before;
                inner.state.next(reservation, list)
            });
            let from = match next {
                Next::Done => break,
                Next::Copy { from, bytes, widened } => {
                    plan.bytes_widened += widened;
                    match (from, reservation.place()) {
                        (0, _) => plan.bytes_up += bytes,
                        (_, 0) => plan.bytes_down += bytes,
                        // As `stage_through_host` does it.
                        _ if tree.setup().has_host => {
                            plan.bytes_down += bytes;
                            let shared = reservation.place() == 1 && tree.setup().shared;
                            plan.bytes_up += if shared { 0 } else { bytes };
                        }
                        _ => plan.bytes_across += bytes,
                    }
                    from
                }
                Next::Zero { bytes } => {
                    plan.bytes_defined += bytes;
                    continue;
                }
            };
            plan.boxes += len as u64;
            for copy in list.iter().take(len) {
                each(Location::of_place(from), request.location, copy);
            }
        }
    });
    Ok(plan)
}

/// Brings home everything that only devices hold.
pub(crate) fn sync<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    root: Region,
) -> Result<(), Error<D::Error>> {
    if root.is_empty() || !tree.setup().has_host {
        return Ok(());
    }
    let request = Request {
        region: root,
        location: Location::Host,
        mode: crate::tree::Mode::Read,
        covers: true,
        granule: 1,
        skip_undefined: true,
    };
    on_host(tree, &request, Wait::Yes, false).map(|_| ())
}
