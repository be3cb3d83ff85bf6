//! Host accesses that never wait: opened by polling.

use core::fmt;
use core::marker::PhantomData;
use core::task::Poll;

use super::erased::{Erased, locked_surely};
use super::guard::{ReadGuard, WriteGuard};
use super::ops::{self, Transit, Wait};
use super::{Element, View};
use crate::driver::{After, DeviceDriver};
use crate::error::Error;
use crate::region::ViewMap;
use crate::tree::{Location, MAX_DEVICES, Mode, Sharing};

/// A host access under way. [`poll`](PendingRead::poll) drives it: each call does what can be done without
/// waiting for a device. Until it is ready the region is reserved: nobody else can open or launch on it.
/// Dropping it gives up; nothing has changed then.
struct Pending<'t, D: DeviceDriver> {
    tree: &'t dyn Erased<D>,
    transit: Transit<'t, D>,
    map: ViewMap,
    mode: Mode,
    /// Copies under way into storage of the driver's.
    copies: [After; MAX_DEVICES],
    flushed: bool,
    done: bool,
}

impl<'t, D: DeviceDriver> Pending<'t, D> {
    fn open<T: Element>(view: &View<'t, T, D>, mode: Mode) -> Result<Self, Error<D::Error>> {
        let tree = view.tree();
        if !tree.setup().has_host {
            return Err(Error::NoHostStorage);
        }
        let mut transit = Transit::new();
        if !view.map().is_empty() {
            let request = view.request(Location::Host, mode);
            let requests = core::slice::from_ref(&request);
            ops::reserve(tree, requests, Sharing::Refused, Wait::No, &mut transit)?;
            for entry in &transit.entries {
                locked_surely(tree, |inner| inner.state.park(&entry.reservation));
            }
        }
        Ok(Self {
            tree,
            transit,
            map: *view.map(),
            mode,
            copies: [After::NONE; MAX_DEVICES],
            flushed: false,
            done: false,
        })
    }

    /// `Ready` with the slot that vouches for the access.
    fn poll(&mut self) -> Result<Poll<Option<usize>>, Error<D::Error>> {
        if self.done {
            // Polled again after it was ready, or after it failed.
            return Err(Error::StaleHandle);
        }
        let mut result = self.advance();
        if matches!(result, Ok(Poll::Pending)) && !self.flushed {
            // Polling does not submit: what is waited for may not have been.
            result = self.flush().map(|()| Poll::Pending);
        }
        self.done = !matches!(result, Ok(Poll::Pending));
        if result.is_err() {
            // What was reserved is given up with the error.
            self.transit = Transit::new();
        }
        result
    }

    fn flush(&mut self) -> Result<(), Error<D::Error>> {
        for device in 0..self.tree.devices() {
            let lost = locked_surely(self.tree, |inner| {
                inner.state.device(device).is_none_or(|device| device.lost)
            });
            if !lost {
                ops::flush(self.tree, device)?;
            }
        }
        self.flushed = true;
        Ok(())
    }

    fn advance(&mut self) -> Result<Poll<Option<usize>>, Error<D::Error>> {
        let Some(entry) = self.transit.entries.first_mut() else { return Ok(Poll::Ready(None)) };
        let brought = ops::bring_polled(self.tree, &mut entry.reservation, &mut self.copies)?;
        if brought.is_pending() {
            return Ok(Poll::Pending);
        }
        for device in 0..self.tree.devices() {
            let mut after = locked_surely(self.tree, |inner| {
                let (reads, writes) = inner.state.planes_of(0, self.mode);
                inner.state.dependencies(entry.reservation.outer(), reads, writes, device)
            });
            if let Some(copies) = self.copies.get(device) {
                after.extend(copies);
            }
            if !ops::retire_done(self.tree, device, &after)? {
                return Ok(Poll::Pending);
            }
        }
        let slot = entry.reservation.slot();
        locked_surely(self.tree, |inner| {
            inner.state.commit(&entry.reservation, 0, &After::NONE, true);
        });
        self.transit.entries.clear();
        Ok(Poll::Ready(Some(slot)))
    }
}

impl<D: DeviceDriver> fmt::Debug for Pending<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} under way", self.mode, self.map.region())
    }
}

/// A read under way. See [`View::begin_read`].
#[derive(Debug)]
#[must_use = "it does nothing until it is polled"]
pub struct PendingRead<'t, T, D: DeviceDriver>(Pending<'t, D>, PhantomData<fn() -> T>);

/// A write under way. See [`View::begin_overwrite`] and [`View::begin_update`].
#[derive(Debug)]
#[must_use = "it does nothing until it is polled"]
pub struct PendingWrite<'t, T, D: DeviceDriver>(Pending<'t, D>, PhantomData<fn() -> T>);

impl<'t, T: Element, D: DeviceDriver> PendingRead<'t, T, D> {
    /// The guard, once everything is there. Never waits for a device, but for a copy into borrowed memory
    /// whose source is ready: that runs at the speed of the link.
    ///
    /// # Errors
    /// As [`View::read`]; [`Error::StaleHandle`] when polled again after it was ready or failed.
    pub fn poll(&mut self) -> Result<Poll<ReadGuard<'t, T>>, Error<D::Error>> {
        let Pending { tree, map, .. } = self.0;
        Ok(self.0.poll()?.map(|slot| ReadGuard::new(tree, slot, map, tree.host().base)))
    }
}

impl<'t, T: Element, D: DeviceDriver> PendingWrite<'t, T, D> {
    /// The guard, once everything is there. As [`PendingRead::poll`].
    ///
    /// # Errors
    /// As [`View::update`]; [`Error::StaleHandle`] when polled again after it was ready or failed.
    pub fn poll(&mut self) -> Result<Poll<WriteGuard<'t, T>>, Error<D::Error>> {
        let Pending { tree, map, .. } = self.0;
        Ok(self.0.poll()?.map(|slot| WriteGuard::new(tree, slot, map, tree.host().base)))
    }
}

impl<'t, T: Element, D: DeviceDriver> View<'t, T, D> {
    /// Starts a read on the host that never waits.
    ///
    /// # Errors
    /// As [`try_read`](Self::try_read), but not because bytes have to move or work is unfinished.
    pub fn begin_read(&self) -> Result<PendingRead<'t, T, D>, Error<D::Error>> {
        Ok(PendingRead(Pending::open(self, Mode::Read)?, PhantomData))
    }

    /// Starts an overwrite on the host that never waits.
    ///
    /// # Errors
    /// As [`begin_read`](Self::begin_read).
    pub fn begin_overwrite(&self) -> Result<PendingWrite<'t, T, D>, Error<D::Error>> {
        Ok(PendingWrite(Pending::open(self, Mode::Overwrite)?, PhantomData))
    }

    /// Starts an update on the host that never waits.
    ///
    /// # Errors
    /// As [`begin_read`](Self::begin_read).
    pub fn begin_update(&self) -> Result<PendingWrite<'t, T, D>, Error<D::Error>> {
        Ok(PendingWrite(Pending::open(self, Mode::Update)?, PhantomData))
    }
}
