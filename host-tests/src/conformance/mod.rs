//! The conformance suite: what must hold on every driver, whoever wrote it.
//!
//! Each case is a small program. It runs on trees of the driver under test and on a plain sequential
//! [model], and is compared with it in every byte that can be read, in the bytes that were moved
//! (counted at the driver, by the tree, and planned before), and in what is left allocated at the end.
//! Most cases come from public reports about other libraries and are named for them.
//!
//! To run all of it on a driver of one's own:
//!
//! ```no_run
//! # fn open() -> Result<hedgerow_host::Host<'static>, String> { Ok(hedgerow_host::Host::new()) }
//! use hedgerow_tests::conformance::Suite;
//!
//! let suite: Suite<_> = Suite::new("mine", |_| open());
//! libtest_mimic::run(&libtest_mimic::Arguments::from_args(), suite.trials()).exit();
//! ```
//!
//! `examples/own_driver.rs` does so for a whole driver in one file.

#![allow(missing_docs, reason = "the suite's own tools, named for what they do")]

mod cases;
pub mod kernels;
pub mod lab;
pub mod model;
pub mod rows;

use std::sync::Arc;

use hedgerow::capacity::{Capacity, Standard};
use hedgerow::driver::middleware::{Counting, Fault};
use hedgerow::driver::{Device, DeviceDriver, DropError, ErrorKind};
use libtest_mimic::{Completion, Failed, Trial};

use lab::{Hardware, Lab, Shelf, Skip, Storage};

type Open<H> = Box<dyn Fn(usize) -> Result<H, String> + Send + Sync>;
type Look<H, R> = Box<dyn Fn(&<H as Device>::Driver) -> R + Send + Sync>;

/// The suite for one driver.
pub struct Suite<H: Hardware, C: Capacity = Standard> {
    name: String,
    open: Open<H>,
    finish: Look<H, Result<(), String>>,
    drop_error: Option<Look<H, Option<DropError>>>,
    exact: bool,
    poison: bool,
    devices: usize,
    shelf: Shelf<H>,
    capacity: std::marker::PhantomData<fn() -> C>,
}

impl<H: Hardware> Suite<H> {
    /// A suite whose trials are named `name::storage::case`.
    ///
    /// `open` gives device number 0 or 1: for each trial anew, or a handle to the same again (which
    /// saves loading kernels). Without a second device, the cases that need two are skipped.
    pub fn new(
        name: &str,
        open: impl Fn(usize) -> Result<H, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.to_owned(),
            open: Box::new(open),
            finish: Box::new(|_| Ok(())),
            drop_error: None,
            exact: true,
            poison: false,
            devices: 1,
            shelf: Shelf::default(),
            capacity: std::marker::PhantomData,
        }
    }
}

impl<H: Hardware, C: Capacity> Suite<H, C> {
    /// Trees with other capacities. Where they are so small that writes widen, `exact` is false: results
    /// are compared as ever, and bytes moved are bounded from below.
    #[must_use]
    pub fn capacity<C2: Capacity>(self, exact: bool) -> Suite<H, C2> {
        let Self { name, open, finish, drop_error, poison, devices, shelf, .. } = self;
        let capacity = std::marker::PhantomData;
        Suite { name, open, finish, drop_error, exact, poison, devices, shelf, capacity }
    }

    /// All trees are poisoned: results and bytes moved must be what they are without.
    #[must_use]
    pub fn poison(mut self) -> Self {
        self.poison = true;
        self
    }

    /// All trees have two devices, on which operations take turns. The capacity must have room for them.
    #[must_use]
    pub fn two_devices(mut self) -> Self {
        self.devices = 2;
        self
    }

    /// What else must hold of the driver at the end of every trial.
    #[must_use]
    pub fn finish(
        mut self,
        look: impl Fn(&H::Driver) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.finish = Box::new(look);
        self
    }

    /// How to take the oldest error out that a tree met in its drop.
    #[must_use]
    pub fn drop_error(
        mut self,
        take: impl Fn(&H::Driver) -> Option<DropError> + Send + Sync + 'static,
    ) -> Self {
        self.drop_error = Some(Box::new(take));
        self
    }

    /// One trial for each case and kind of storage.
    pub fn trials(self) -> Vec<Trial> {
        let suite = Arc::new(self);
        let mut trials = Vec::new();
        for (storage, label) in [(Storage::Borrowed, "borrowed"), (Storage::Owned, "owned")] {
            for case in cases::all::<H, C>() {
                if case.only.is_some_and(|only| only != storage) {
                    continue;
                }
                let suite = Arc::clone(&suite);
                let name = format!("{}::{label}::{}", suite.name, case.name);
                trials.push(Trial::ignorable_test(name, move || suite.run(&case, storage)));
            }
        }
        trials
    }

    fn run(&self, case: &cases::Case<H, C>, storage: Storage) -> Result<Completion, Failed> {
        if let Some(reason) = cases::one_device(case.name).filter(|_| self.devices > 1) {
            return Ok(Completion::ignored_with(reason));
        }
        let open = |index| (self.open)(index).map(|device| Counting::new(Fault::new(device)));
        let other = if self.devices > 1 { Some(open(1)?) } else { None };
        let lab = Lab { rig: open(0)?, other, storage, suite: self };
        if storage == Storage::Owned && !owns_storage(&lab.rig) {
            return Ok(Completion::ignored_with("the driver owns no host memory"));
        }
        lab.rig.reset();
        let skipped = (case.run)(&lab);
        for rig in lab.rigs() {
            let counts = rig.snapshot();
            if counts.live() != 0 {
                let live = counts.live();
                return Err(format!("{live} allocations were not released: {counts}").into());
            }
            (self.finish)(rig.inner().inner())?;
        }
        Ok(match skipped {
            Ok(()) => Completion::Completed,
            Err(Skip(reason)) => Completion::ignored_with(reason),
        })
    }
}

fn owns_storage<D: DeviceDriver>(driver: &D) -> bool {
    match driver.storage(1) {
        Ok(storage) => {
            // SAFETY: just made, and used by nothing.
            unsafe { driver.release(storage.memory, &[]) };
            true
        }
        Err(error) => hedgerow::driver::DriverError::kind(&error) != ErrorKind::Unsupported,
    }
}
