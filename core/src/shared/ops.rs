//! One access from reservation to commit: what to wait for, what to move, what to allocate.

use core::task::Poll;

pub(super) use super::erased::Wait;
use super::erased::{Erased, Inner, locked, locked_surely};
use super::poison;
use crate::coherence::{Pick, Planes, plane_bit};
use crate::driver::{After, CopyBox, DeviceDriver, DriverError, ErrorKind};
use crate::error::{Busy, Error, Holder};
use crate::region::Region;
use crate::tree::{Location, Next, Request, Reservation, Residency, Sharing};

/// What an access would move, if it were made now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Plan {
    /// Bytes from the host to a device, of the region asked for.
    pub bytes_up: u64,
    /// Bytes from a device to the host, of the region asked for.
    pub bytes_down: u64,
    /// Bytes straight from device to device, of the region asked for; by way of the host they count as
    /// down and up.
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
    warn!("device {} is lost, with {} boxes that only it held", device, boxes);
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
    sharing: Sharing,
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
                let device = reservation.place().saturating_sub(1);
                // There is room: one launch has no more views than the list.
                let _ = transit.entries.push(Entry { tree, reservation, device });
            };
            inner.state.reserve(requests, sharing, keep).map_err(Error::lift)
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
    wait: Wait,
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
            Found::InProgress if wait == Wait::No => {
                let region = *tree.setup().host.region();
                return Err(Error::Busy(Busy { region, holder: Holder::Call }));
            }
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
    loop {
        let step = next_step(tree, reservation, list);
        if step.next == Next::Done {
            return Ok(());
        }
        if wait == Wait::No {
            // Towards a device, the host's bytes go without waiting; all else waits for something.
            let waits = match step.next {
                Next::Copy { from, .. } => reservation.place() == 0 || from > 0,
                _ => reservation.place() == 0,
            };
            let region = *reservation.region();
            let busy = Error::Busy(Busy { region, holder: Holder::Work });
            if waits {
                return Err(busy);
            }
            for (device, after) in step.foreign.iter().enumerate() {
                if !retire_done(tree, device, after)? {
                    return Err(busy);
                }
            }
        }
        for (device, after) in step.foreign.iter().enumerate() {
            wait_for(tree, device, after)?;
        }
        let boxes = list.get(..step.len).unwrap_or_default();
        match reservation.place().checked_sub(1) {
            None => {
                if let Some((device, tickets)) = to_host(tree, reservation, &step, boxes)? {
                    wait_for(tree, device, &tickets)?;
                }
            }
            Some(device) => {
                let tickets = to_device(tree, device, target, &step, boxes)?;
                let source = match step.next {
                    Next::Copy { from, .. } => from,
                    _ => reservation.place(),
                };
                locked_surely(tree, |inner| {
                    inner.state.transferred(reservation, source, &tickets);
                });
            }
        }
        count(tree, reservation, &step);
    }
}

/// As [`bring`] to the host, but without waiting: what is not done yet is pending, and copies into storage of
/// the driver's are left running, in `copies`.
pub(crate) fn bring_polled<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    reservation: &mut Reservation,
    copies: &mut [After],
) -> Result<Poll<()>, Error<D::Error>> {
    let mut result = Ok(Poll::Ready(()));
    tree.with_list(&mut |list| {
        result = loop {
            let before = *reservation;
            let step = next_step(tree, reservation, list);
            let (Next::Copy { .. } | Next::Zero { .. }) = step.next else {
                break Ok(Poll::Ready(()));
            };
            match step_can_run(tree, &step) {
                Ok(true) => {}
                Ok(false) => {
                    *reservation = before;
                    break Ok(Poll::Pending);
                }
                Err(error) => break Err(error),
            }
            let boxes = list.get(..step.len).unwrap_or_default();
            match to_host(tree, reservation, &step, boxes) {
                Ok(None) => {}
                Ok(Some((device, tickets))) => {
                    if let Some(copies) = copies.get_mut(device) {
                        copies.extend(&tickets);
                    }
                    if let Err(error) = flush(tree, device) {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error),
            }
            count(tree, reservation, &step);
        };
    });
    result
}

/// Whether everything that a step towards the host follows is done.
fn step_can_run<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    step: &Step<D::Memory>,
) -> Result<bool, Error<D::Error>> {
    if let Next::Copy { from, .. } = step.next
        && !retire_done(tree, from.saturating_sub(1), &step.after)?
    {
        return Ok(false);
    }
    for (device, after) in step.foreign.iter().enumerate() {
        if !retire_done(tree, device, after)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether all tickets are done; takes note of those that are.
pub(crate) fn retire_done<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    device: usize,
    after: &After,
) -> Result<bool, Error<D::Error>> {
    let mut all = true;
    for ticket in after.as_slice() {
        let done = driver(tree, device)?.poll(*ticket);
        if done.map_err(|error| failed(tree, device, error))? {
            locked_surely(tree, |inner| inner.state.retire(device, *ticket));
        } else {
            all = false;
        }
    }
    Ok(all)
}

/// Submits what a device has recorded.
pub(crate) fn flush<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    device: usize,
) -> Result<(), Error<D::Error>> {
    driver(tree, device)?.flush().map_err(|error| failed(tree, device, error))
}

fn next_step<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    reservation: &mut Reservation,
    list: &mut [CopyBox],
) -> Step<D::Memory> {
    let before = *reservation;
    locked_surely(tree, |inner| {
        *reservation = before;
        let step = plan_step(inner, reservation, list, tree.devices());
        if step.next == Next::Done {
            inner.state.brought(reservation);
        }
        step
    })
}

fn count<D: DeviceDriver>(tree: &dyn Erased<D>, reservation: &Reservation, step: &Step<D::Memory>) {
    locked_surely(tree, |inner| {
        let counters = inner.state.counters();
        counters.lists += 1;
        match step.next {
            Next::Copy { from, bytes, widened } => {
                trace!("{} + {} bytes from {} to {}", bytes, widened, from, reservation.place());
                counters.bytes_widened += widened;
                match (from, reservation.place()) {
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
        after: After::NONE,
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
    // Transfers so far were made by the accessed device, or, towards the host, by the one whose storage it is:
    // to another their tickets mean nothing (and it writes other bytes).
    if executes == Some(place.saturating_sub(1)) {
        step.after.extend(reservation.transfers());
    }
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

/// Executes one list towards the host. Bytes in borrowed memory are there on return; a copy into storage of
/// the driver's is under way, and its device and ticket are returned: host bytes are fresh only when
/// that is done.
fn to_host<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    reservation: &mut Reservation,
    step: &Step<D::Memory>,
    boxes: &[CopyBox],
) -> Result<Option<(usize, After)>, Error<D::Error>> {
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
        return Ok(None);
    };
    let device = from.saturating_sub(1);
    let driver = driver(tree, device)?;
    let (Some(source), after) = (step.source, step.after.as_slice()) else { return Ok(None) };
    let Some(storage) = host.owned.filter(|_| device == 0) else {
        // SAFETY: the storage holds every box (the layout was checked against it), and nobody else
        // touches the reserved region during the call (I9).
        let result = unsafe { driver.download(source, host.base, boxes, after, tree.timeout()) };
        return result.map(|()| None).map_err(|error| failed(tree, device, error));
    };
    // SAFETY: both handles are live while the region is reserved; the planner's boxes lie inside both roots
    // and do not overlap; host accesses to the region follow the ticket, which is entered below.
    let result = unsafe { driver.copy(source, storage, boxes, after) };
    let mut tickets = After::NONE;
    tickets.add(result.map_err(|error| failed(tree, device, error))?);
    // Entered before the wait: if that fails, the copy still runs, and whoever comes next must follow it.
    locked_surely(tree, |inner| inner.state.transferred(reservation, from, &tickets));
    Ok(Some((device, tickets)))
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
        Next::Copy { from, .. } => {
            return across(
                tree,
                from.saturating_sub(1),
                device,
                (step.source, target),
                step,
                boxes,
            );
        }
        Next::Done => return Ok(After::NONE),
    };
    let mut tickets = After::NONE;
    tickets.add(result.map_err(|error| failed(tree, device, error))?);
    Ok(tickets)
}

/// Executes one list from one device to another. The source's work was waited for.
fn across<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    from: usize,
    to: usize,
    (source, target): (Option<D::Memory>, D::Memory),
    step: &Step<D::Memory>,
    boxes: &[CopyBox],
) -> Result<After, Error<D::Error>> {
    let (peer, driver) = (driver(tree, from)?, driver(tree, to)?);
    let Some(source) = source else { return Ok(After::NONE) };
    let after = step.after.as_slice();
    let mut tickets = After::NONE;
    if driver.caps().peer_copies {
        // SAFETY: both handles are live while the region is reserved; boxes lie inside both; nobody writes
        // the source region before the ticket, which is entered as reading it.
        let copied = unsafe { driver.copy_from(peer, source, target, boxes, after) };
        if let Some(result) = copied {
            tickets.add(result.map_err(|error| failed(tree, to, error))?);
            // The source device knows no ticket of this one: it must be over before anything follows.
            wait_for(tree, to, &tickets)?;
            return Ok(tickets);
        }
    }
    // Through memory of the target's driver, box by box, packed.
    for boxed in boxes {
        let bounce = driver.storage(boxed.bytes()).map_err(|error| failed(tree, to, error))?;
        let (pack, unpack) = boxed.through_packed();
        // SAFETY: the bounce memory holds the packed box, and is ours alone.
        let down =
            unsafe { peer.download(source, bounce.host.as_ptr(), &[pack], &[], tree.timeout()) };
        let result = match down {
            Ok(()) => {
                // SAFETY: as above; the target's region is reserved and the box lies inside.
                let ticket = unsafe { driver.copy(bounce.memory, target, &[unpack], after) };
                ticket.map_err(|error| failed(tree, to, error))
            }
            Err(error) => Err(failed(tree, from, error)),
        };
        let mut used = After::NONE;
        if let Ok(ticket) = &result {
            used.add(*ticket);
        }
        // SAFETY: made here, used by the one copy whose ticket is given.
        unsafe { driver.release(bounce.memory, used.as_slice()) };
        tickets.add(result?);
    }
    Ok(tickets)
}

/// The device that holds most of a region: where reading it all costs least.
pub(crate) fn holder_of<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    region: &Region,
) -> Result<usize, Error<D::Error>> {
    let volume = |inner: &mut Inner<'_, D::Memory>, device: usize| {
        let pick = Pick { stale: 0, fresh: plane_bit(inner.state.plane(device + 1)) };
        inner.state.map().volume(region, pick)
    };
    locked(tree, Wait::Yes, |inner| {
        (0..tree.devices()).max_by_key(|device| (volume(inner, *device), usize::MAX - device))
    })
    .map(|device| device.unwrap_or(0))
}

/// Whether bytes of one device may have to go through the host storage to reach another.
pub(crate) fn may_stage<D: DeviceDriver>(tree: &dyn Erased<D>) -> bool {
    let setup = tree.setup();
    let peers = tree.device(0).is_some_and(|driver| driver.caps().peer_copies);
    tree.devices() > 1 && setup.has_host && !setup.host_readonly && !peers
}

/// Where a device access would have to go through the host, brings the region home first, so that the
/// device can fetch it from there.
pub(crate) fn stage_through_host<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    request: &Request,
) -> Result<(), Error<D::Error>> {
    if !request.mode.reads() && request.covers {
        return Ok(());
    }
    // Box by box, so that nothing comes home that the device has already.
    while let Some(region) = locked(tree, Wait::Yes, |inner| inner.state.only_on_another(request))?
    {
        // Without room to record it at home, it goes across by itself.
        if !bring_home(tree, region)? {
            break;
        }
    }
    Ok(())
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
    reserve(tree, core::slice::from_ref(request), Sharing::Refused, wait, &mut transit)?;
    let Some(entry) = transit.entries.first_mut() else { return Err(Error::StaleHandle) };
    bring(tree, &mut entry.reservation, None, wait)?;
    for device in 0..tree.devices() {
        let after = locked_surely(tree, |inner| {
            let (reads, writes) = inner.state.planes_of(0, request.mode);
            inner.state.dependencies(entry.reservation.outer(), reads, writes, device)
        });
        if wait == Wait::No && !retire_done(tree, device, &after)? {
            let region = request.region;
            return Err(Error::Busy(Busy { region, holder: Holder::Work }));
        }
        wait_for(tree, device, &after)?;
    }
    // A write that nobody will hold is the claim that it has been made: its bytes are as they should be.
    if wait == Wait::Yes && hold {
        poison::before_overwrite(tree, &mut entry.reservation)?;
    }
    let slot = entry.reservation.slot();
    locked_surely(tree, |inner| inner.state.record(&entry.reservation, 0, &After::NONE));
    if wait == Wait::Yes {
        poison::became_stale(tree, &entry.reservation);
    }
    locked_surely(tree, |inner| inner.state.settle(&entry.reservation, hold));
    transit.entries.clear();
    Ok(slot)
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
    reserve(tree, core::slice::from_ref(request), Sharing::Refused, Wait::Yes, &mut transit)?;
    let Some(entry) = transit.entries.first_mut() else { return Err(Error::StaleHandle) };
    let reservation = &mut entry.reservation;
    // `each` may do as it likes meanwhile, and must not wait for this very call.
    locked_surely(tree, |inner| inner.state.park(reservation));
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
                        _ if may_stage(tree) => {
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

/// Brings home what only devices hold of a region, that and no more. Whether all of it is there now, as far as
/// the map knows.
pub(crate) fn bring_home<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    region: Region,
) -> Result<bool, Error<D::Error>> {
    let request = Request {
        region,
        location: Location::Host,
        mode: crate::tree::Mode::Read,
        covers: true,
        granule: 1,
        skip_undefined: true,
        homing: true,
    };
    on_host(tree, &request, Wait::Yes, false)?;
    locked(tree, Wait::Yes, |inner| inner.state.is_fresh_at_home(&region))
}

/// Brings home everything that only devices hold.
pub(crate) fn sync<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    root: Region,
) -> Result<(), Error<D::Error>> {
    if root.is_empty() || !tree.setup().has_host {
        return Ok(());
    }
    bring_home(tree, root).map(drop)
}
