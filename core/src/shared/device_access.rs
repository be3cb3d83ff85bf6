//! Device accesses: a view's bytes held on a device, for work that hedgerow does not launch itself.

use core::fmt;

use super::erased::{Erased, locked_surely};
use super::launch::{Arg, bind};
use super::ops::{self, Transit};
use super::poison;
use crate::driver::{After, Binding, DeviceDriver, Ticket};
use crate::error::Error;
use crate::region::{Region, ViewMap};
use crate::tree::{Location, Mode, Sharing};

/// A view's bytes on a device: fresh there, and kept from conflicting use while this lives.
///
/// With a mode that writes, the bytes count as written there from the start. Work recorded on
/// [`binding`](Self::binding) must follow the tickets of [`after`](Self::after), and be done before this is
/// dropped; or be named by [`end_with`](Self::end_with).
#[must_use = "the bytes are held only while the access lives"]
pub struct DeviceAccess<'t, D: DeviceDriver> {
    tree: &'t dyn Erased<D>,
    slot: Option<usize>,
    region: Region,
    device: usize,
    mode: Mode,
    binding: Option<Binding<D::Memory>>,
    after: After,
}

/// When the bytes of an access that writes are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filled {
    /// While it is held.
    Later,
    /// They have been already.
    Before,
}

impl<'t, D: DeviceDriver> DeviceAccess<'t, D> {
    pub(crate) fn open(
        tree: &'t dyn Erased<D>,
        map: ViewMap,
        element: usize,
        device: usize,
        mode: Mode,
        fill: Filled,
    ) -> Result<Self, Error<D::Error>> {
        let Some(driver) = tree.device(device) else {
            return Err(Error::NoDevice { device, devices: tree.devices() });
        };
        if map.is_empty() {
            return Ok(Self {
                tree,
                slot: None,
                region: Region::default(),
                device,
                mode,
                binding: None,
                after: After::NONE,
            });
        }
        let arg = Arg::on(tree, map, element, mode);
        arg.check_window(driver.caps(), device)?;
        let request = arg.request(Location::Device(device as u8), 1);
        let requests = core::slice::from_ref(&request);
        let mut transit = Transit::new();
        if ops::may_stage(tree) {
            // Nothing moves for what will be refused.
            ops::reserve(tree, requests, Sharing::Refused, ops::Wait::Yes, &mut transit)?;
            drop(transit);
            ops::stage_through_host(tree, &request)?;
            transit = Transit::new();
        }
        ops::reserve(tree, requests, Sharing::Refused, ops::Wait::Yes, &mut transit)?;
        let Some(entry) = transit.entries.first_mut() else { return Err(Error::StaleHandle) };
        let memory = ops::memory(tree, device, ops::Wait::Yes)?;
        ops::bring(tree, &mut entry.reservation, Some(memory), ops::Wait::Yes)?;
        if fill == Filled::Later {
            poison::before_overwrite(tree, &mut entry.reservation)?;
        }
        let mut after = *entry.reservation.transfers();
        let mut lost = false;
        locked_surely(tree, |inner| {
            let state = &mut inner.state;
            lost = state.device(device).is_none_or(|state| state.lost);
            if lost {
                return;
            }
            let (reads, writes) = state.planes_of(device + 1, mode);
            after.extend(&state.dependencies(entry.reservation.outer(), reads, writes, device));
            state.record(&entry.reservation, device, &After::NONE);
        });
        if lost {
            return Err(Error::Lost { region: None, boxes: 0, cause: None });
        }
        poison::became_stale(tree, &entry.reservation);
        locked_surely(tree, |inner| inner.state.settle(&entry.reservation, true));
        let slot = entry.reservation.slot();
        transit.entries.clear();
        Ok(Self {
            tree,
            slot: Some(slot),
            region: request.region,
            device,
            mode,
            binding: Some(bind(&arg, memory, driver.caps(), device)),
            after,
        })
    }

    /// The memory, the window in it, and where the view's elements are; `None` for an empty view.
    pub fn binding(&self) -> Option<&Binding<D::Memory>> {
        self.binding.as_ref()
    }

    /// Ends the access with work that is still to run: whatever conflicts follows `ticket`, one of the
    /// device's driver (for a lane of the caller's own, as the driver hands it out).
    pub fn end_with(mut self, ticket: Ticket) {
        let Some(slot) = self.slot.take() else { return };
        let mut tickets = After::NONE;
        tickets.add(ticket);
        locked_surely(self.tree, |inner| {
            let (reads, writes) = inner.state.planes_of(self.device + 1, self.mode);
            inner.state.add_work(self.region, &tickets, self.device, reads, writes);
        });
        self.tree.drop_access(slot);
    }

    /// What work on the bytes must follow.
    pub fn after(&self) -> &[Ticket] {
        self.after.as_slice()
    }
}

impl<D: DeviceDriver> Drop for DeviceAccess<'_, D> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.tree.drop_access(slot);
        }
    }
}

impl<D: DeviceDriver> fmt::Debug for DeviceAccess<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceAccess").field("binding", &self.binding).finish_non_exhaustive()
    }
}
