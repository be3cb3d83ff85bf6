//! Poison: overwriting what became stale, so that a test sees whoever still reads it.
//!
//! Off unless the builder asks for it. What an overwrite is about to cover is poisoned too, so that elements
//! the writer missed show. A failure to poison is not an error of the access: the bytes are stale either way.

use super::erased::{Erased, locked_surely};
use super::ops;
use crate::coherence::{Cursor, Pick};
use crate::driver::{After, CopyBox, DeviceDriver};
use crate::error::Error;
use crate::region::Region;
use crate::tree::{Mode, Reservation, Residency, copy_box};

/// The byte that stale memory is filled with.
pub(crate) const POISON: u8 = 0xa5;

/// Poisons what an overwrite covers at its own place, where it is stale there, after everything that still uses
/// it. What is fresh there stays: should the access fail, it is still the newest value.
pub(super) fn before_overwrite<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    reservation: &mut Reservation,
) -> Result<(), Error<D::Error>> {
    if !tree.poisons() || reservation.mode() != Mode::Overwrite || !reservation.covers() {
        return Ok(());
    }
    let region = *reservation.region();
    let place = reservation.place();
    let mut cursor = Cursor::default();
    let next = |cursor: &mut Cursor| {
        locked_surely(tree, |inner| {
            let pick = Pick::stale(inner.state.plane(place));
            inner.state.next_box(&region, pick, cursor)
        })
    };
    while let Some(piece) = next(&mut cursor) {
        if let Some(after) = fill(tree, place, &piece)? {
            locked_surely(tree, |inner| inner.state.transferred(reservation, place, &after));
        }
    }
    Ok(())
}

/// Poisons the bytes that a recorded write made stale, everywhere else. The access is still reserved.
pub(super) fn became_stale<D: DeviceDriver>(tree: &dyn Erased<D>, reservation: &Reservation) {
    if !tree.poisons() || !reservation.mode().writes() {
        return;
    }
    let region = *reservation.outer();
    for place in 0..=tree.devices() {
        let apart = locked_surely(tree, |inner| {
            let state = &inner.state;
            state.plane(place) != state.plane(reservation.place())
        });
        if !apart {
            continue;
        }
        if let Ok(Some(after)) = fill(tree, place, &region)
            && let Some(device) = place.checked_sub(1)
        {
            locked_surely(tree, |inner| {
                let (_, writes) = inner.state.planes_of(place, Mode::Overwrite);
                inner.state.add_work(region, &after, device, 0, writes);
            });
        }
    }
}

/// Fills a region at a place, and returns the ticket; `None` where there is nothing to fill.
fn fill<D: DeviceDriver>(
    tree: &dyn Erased<D>,
    place: usize,
    region: &Region,
) -> Result<Option<After>, Error<D::Error>> {
    let (memory, layout) = locked_surely(tree, |inner| {
        let memory = place.checked_sub(1).and_then(|device| {
            let state = inner.state.device(device)?;
            let usable = state.residency == Residency::Present && !state.lost;
            inner.memory.get(device).copied().flatten().filter(|_| usable)
        });
        (memory, *inner.state.layout(place))
    });
    let boxed = copy_box(region, &layout, &layout);
    let setup = tree.setup();
    let is_host = place == 0;
    if is_host && (!setup.has_host || setup.host_readonly) || !is_host && memory.is_none() {
        return Ok(None);
    }
    let mut own = After::NONE;
    for device in 0..tree.devices() {
        let found = locked_surely(tree, |inner| {
            let (_, writes) = inner.state.planes_of(place, Mode::Overwrite);
            inner.state.dependencies(region, 0, writes, device)
        });
        if place.checked_sub(1) == Some(device) {
            own = found;
        } else {
            ops::wait_for(tree, device, &found)?;
        }
    }
    let Some((memory, device)) = memory.zip(place.checked_sub(1)) else {
        fill_host(tree, &boxed);
        return Ok(None);
    };
    let Some(driver) = tree.device(device) else { return Ok(None) };
    // SAFETY: the memory is live while the region is reserved; the box lies inside it; what uses the bytes is in
    // `after`.
    let result = unsafe { driver.fill(memory, &[boxed], &[POISON], own.as_slice()) };
    let mut after = After::NONE;
    after.add(result.map_err(|error| ops::failed(tree, device, error))?);
    Ok(Some(after))
}

fn fill_host<D: DeviceDriver>(tree: &dyn Erased<D>, boxed: &CopyBox) {
    let base = tree.host().base;
    boxed.for_each_run(|_, dst| {
        let run = base.wrapping_add(dst as usize);
        // SAFETY: the run is inside the root's storage, in a region that is reserved: no guard overlaps
        // it (I9), and device work on it was waited for.
        unsafe { run.write_bytes(POISON, boxed.run as usize) }
    });
}
