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
pub mod trouble;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

use hedgerow::capacity::{Capacity, Standard};
use hedgerow::driver::middleware::{Counting, Fault};
use hedgerow::driver::{Device, DeviceDriver, DropError, ErrorKind};
use libtest_mimic::{Completion, Failed, Trial};

use lab::{Hardware, Lab, Shelf, Skip, Storage, lock};
use trouble::{Mishap, Over, Trouble};

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
    /// How a call of each case fails, in a run for every call that there is.
    mishaps: &'static [Mishap],
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
            mishaps: &[],
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
        let Self { name, open, finish, drop_error, poison, devices, mishaps, shelf, .. } = self;
        let capacity = std::marker::PhantomData;
        Suite { name, open, finish, drop_error, exact, poison, devices, mishaps, shelf, capacity }
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

    /// Runs every case with each of its driver calls failing in turn, in each of these ways. `open` must give
    /// a device of its own each time, which makes the same calls each time.
    #[must_use]
    pub fn failing(mut self, mishaps: &'static [Mishap]) -> Self {
        self.mishaps = mishaps;
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
        if self.mishaps.is_empty() {
            return self.run_once(case, storage, None, &self.shelf).map(|(done, _)| done);
        }
        if let Some(reason) = cases::not_failed(case.name, self.mishaps[0].is_loss()) {
            return Ok(Completion::ignored_with(reason));
        }
        self.run_failing(case, storage)
    }

    /// Runs a case, with a call of one of its devices failing. Returns the calls that each device was asked
    /// for, and what became of the one that failed.
    fn run_once(
        &self,
        case: &cases::Case<H, C>,
        storage: Storage,
        fails: Option<Fails>,
        shelf: &Shelf<H>,
    ) -> Result<(Completion, Seen), Failed> {
        let open = |index| (self.open)(index).map(|device| Counting::new(Fault::new(device)));
        let other = if self.devices > 1 { Some(open(1)?) } else { None };
        let trouble = Trouble::of(fails.map(|fails| fails.mishap));
        let lab = Lab { rig: open(0)?, other, storage, suite: self, shelf, trouble };
        if storage == Storage::Owned && !owns_storage(&lab.rig) {
            let done = Completion::ignored_with("the driver owns no host memory");
            return Ok((done, Seen::default()));
        }
        lab.rig.reset();
        lab.rigs().iter().for_each(|rig| rig.inner().disarm());
        if let Some(Fails { device, call, mishap: Mishap { kind, partial } }) = fails {
            let fault = lab.rigs()[device].inner();
            if partial { fault.arm_partial(call, kind) } else { fault.arm(call, kind) }
        }
        let skipped = match catch_unwind(AssertUnwindSafe(|| (case.run)(&lab))) {
            Ok(skipped) => skipped,
            Err(payload) if payload.is::<Over>() => Ok(()),
            Err(payload) => resume_unwind(payload),
        };
        for rig in lab.rigs() {
            let counts = rig.snapshot();
            if counts.live() != 0 {
                let live = counts.live();
                return Err(format!("{live} allocations were not released: {counts}").into());
            }
            if let (Some(take), true) = (&self.drop_error, rig.inner().lost()) {
                // A tree that a loss unwound past says there what it could not write home.
                while take(rig.inner().inner()).is_some() {}
            }
            (self.finish)(rig.inner().inner())?;
        }
        let seen = Seen {
            calls: lab.rigs().iter().map(|rig| rig.inner().calls()).collect(),
            fired: lab.rigs().iter().any(|rig| rig.inner().fired()),
            errors: lab.trouble.errors(),
        };
        let done = match skipped {
            Ok(()) => Completion::Completed,
            Err(Skip(reason)) => Completion::ignored_with(reason),
        };
        Ok((done, seen))
    }

    /// Every call in every way; of a long program, every call in one way, the ways in turn.
    fn fails(&self, device: usize, calls: u32) -> impl Iterator<Item = Fails> {
        let ways = self.mishaps.len() as u32;
        let long = calls * ways > MOST_RUNS;
        (0..calls).flat_map(move |call| {
            let ways = if long { call % ways..call % ways + 1 } else { 0..ways };
            ways.map(move |way| Fails {
                device,
                call: call + 1,
                mishap: self.mishaps[way as usize],
            })
        })
    }

    /// Runs a case without a failure, and then once for each of its calls and each way to fail it.
    fn run_failing(
        &self,
        case: &cases::Case<H, C>,
        storage: Storage,
    ) -> Result<Completion, Failed> {
        let (done, clean) = self.run_once(case, storage, None, &Shelf::default())?;
        let mut told = Tally { programs: 1, ..Tally::default() };
        for (device, calls) in clean.calls.iter().enumerate() {
            for fails in self.fails(device, *calls) {
                let run = || self.run_once(case, storage, Some(fails), &Shelf::default());
                let answer = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| {
                    let text = payload.downcast_ref::<String>().map(String::as_str);
                    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
                    Err(text.unwrap_or("a panic").into())
                });
                let said = |message: String| Failed::from(format!("{fails:?}: {message}"));
                let (_, seen) = answer
                    .map_err(|failed| said(failed.message().unwrap_or_default().to_owned()))?;
                if !seen.fired {
                    return Err(said(String::from("the program made fewer calls than before")));
                }
                told.calls += 1;
                told.errors += u64::from(seen.errors > 0);
            }
        }
        lock(&TALLY).add(&told);
        Ok(done)
    }
}

/// A program is long that would take more runs than this for each device.
const MOST_RUNS: u32 = 200;

/// Which call fails, and how.
#[derive(Clone, Copy, Debug)]
struct Fails {
    device: usize,
    call: u32,
    mishap: Mishap,
}

/// What a run was like.
#[derive(Debug, Default)]
struct Seen {
    /// Of each device.
    calls: Vec<u32>,
    fired: bool,
    errors: u32,
}

/// What the rows with failing calls did so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Cases, each on one kind of storage.
    pub programs: u64,
    /// Runs with a failing call.
    pub calls: u64,
    /// Of these, runs in which the error came back to the caller; the others did without the call.
    pub errors: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.programs += other.programs;
        self.calls += other.calls;
        self.errors += other.errors;
    }
}

static TALLY: Mutex<Tally> = Mutex::new(Tally { programs: 0, calls: 0, errors: 0 });

/// What the rows with failing calls did so far in this process.
pub fn tally() -> Tally {
    *lock(&TALLY)
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
