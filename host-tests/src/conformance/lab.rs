//! Where a case runs: a driver that counts and fails on request, trees on it, and the model beside them.

use std::collections::HashMap;
use std::fmt::Debug;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hedgerow::capacity::Capacity;
use hedgerow::driver::middleware::{Counting, Counts, Fault, FaultError};
use hedgerow::driver::{
    ComputeDriver, Device, DeviceDriver, DriverId, ErrorKind, Kernel, KernelSource, Ticket,
};
use hedgerow::{
    Arg, Builder, CloseError, Element, Error, Location, Mode, Plan, Region, Shape, Tree, View,
};

use super::kernels::{self, by_rank, code, code_byte};
use super::model::{HOST, Model, Need, Spot};
use super::trouble::{Loaded, Over, Sight, Trouble};

/// What the suite runs on: any handle to a driver with kernels.
pub trait Hardware: Device<Driver: ComputeDriver> + 'static {}

impl<H: Device<Driver: ComputeDriver> + 'static> Hardware for H {}

/// A driver as cases see it: calls pass through a counter, then through what can fail them.
pub type Rig<H> = Counting<Fault<H>>;

/// What calls on a tree answer here.
pub type Failure<H> = Error<<Rig<H> as DeviceDriver>::Error>;

hedgerow::capacity! {
    /// For cases with two devices.
    pub struct Pair { words: 256, cuts: 64, nodes: 32, guards: 16, devices: 2, list: 8 }
}

hedgerow::capacity! {
    /// Tables of the least sensible size, but for views and guards: nearly every write widens.
    pub struct Tight { words: 1, cuts: 2, nodes: 32, guards: 16, devices: 2, list: 1 }
}

hedgerow::capacity! {
    /// As [`Standard`](hedgerow::capacity::Standard), with room for two devices.
    pub struct Double { words: 256, cuts: 96, nodes: 32, guards: 16, devices: 2, list: 32 }
}

/// Why a case does not apply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Skip(pub String);

/// Whose memory a root's host bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// The caller's: fresh from the start.
    Borrowed,
    /// The driver's: never written at the start, and not copied where host and device share it.
    Owned,
}

/// An element that cases know how to make, on the host and by kernel.
pub trait Value: Element + PartialEq + Debug {
    /// A kernel that overwrites with [`of`](Self::of) the coordinates' code.
    const FILL: &'static KernelSource<'static>;
    /// A kernel that updates as [`plus`](Self::plus) does.
    const ADD: &'static KernelSource<'static>;
    /// The element of a code.
    fn of(code: i32) -> Self;
    /// The sum.
    fn plus(self, p: i32) -> Self;
}

impl Value for i32 {
    const FILL: &'static KernelSource<'static> = &kernels::FILL_I32;
    const ADD: &'static KernelSource<'static> = &kernels::ADD_I32;

    fn of(code: i32) -> Self {
        code
    }

    fn plus(self, p: i32) -> Self {
        self.wrapping_add(p)
    }
}

impl Value for f32 {
    const FILL: &'static KernelSource<'static> = &kernels::FILL_F32;
    const ADD: &'static KernelSource<'static> = &kernels::ADD_F32;

    fn of(code: i32) -> Self {
        code as Self
    }

    fn plus(self, p: i32) -> Self {
        self + p as Self
    }
}

macro_rules! byte_values {
    ($($t:ty),+) => {$(
        impl Value for $t {
            const FILL: &'static KernelSource<'static> = &kernels::FILL_BYTES;
            const ADD: &'static KernelSource<'static> = &kernels::ADD_BYTES;

            fn of(code: i32) -> Self {
                let mut value: Self = bytemuck::Zeroable::zeroed();
                for (index, byte) in bytemuck::bytes_of_mut(&mut value).iter_mut().enumerate() {
                    *byte = code_byte(code, index);
                }
                value
            }

            fn plus(mut self, p: i32) -> Self {
                for byte in bytemuck::bytes_of_mut(&mut self) {
                    *byte = byte.wrapping_add(p as u8);
                }
                self
            }
        }
    )+};
}

byte_values!(u8, u16, [u8; 3], u64, [u8; 12]);

/// A root's geometry, in lengths that are known only at run time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plot {
    pub min: Vec<i32>,
    pub extent: Vec<u32>,
    pub stride: Vec<i64>,
}

impl Plot {
    /// As [`Shape::packed`].
    pub fn packed(extent: &[u32]) -> Self {
        let order: Vec<_> = (0..extent.len()).collect();
        Self::ordered(extent, &order)
    }

    /// As [`Shape::with_order`].
    pub fn ordered(extent: &[u32], order: &[usize]) -> Self {
        let mut stride = vec![0; extent.len()];
        let mut next = 1;
        for axis in order {
            stride[*axis] = next;
            next *= i64::from(extent[*axis]).max(1);
        }
        Self::strided(extent, &stride)
    }

    /// As [`Shape::strided`].
    pub fn strided(extent: &[u32], stride: &[i64]) -> Self {
        Self { min: vec![0; extent.len()], extent: extent.to_vec(), stride: stride.to_vec() }
    }

    /// As [`Shape::min`].
    pub fn min(self, min: &[i32]) -> Self {
        Self { min: min.to_vec(), ..self }
    }

    /// For the builder.
    pub fn shape(&self) -> Shape {
        fn array<X: Copy, const N: usize>(values: &[X]) -> [X; N] {
            values.try_into().expect("as many as the rank")
        }
        by_rank!(self.extent.len(), N => {
            let strided = Shape::strided::<N>(array(&self.extent), array(&self.stride));
            strided.min::<N>(array(&self.min))
        }, else panic!("no such rank"))
    }

    /// Elements that the root spans in memory, gaps included.
    pub fn span(&self) -> usize {
        if self.extent.contains(&0) {
            return 0;
        }
        let reach = |(n, stride): (&u32, &i64)| (*n as usize - 1) * stride.unsigned_abs() as usize;
        1 + self.extent.iter().zip(&self.stride).map(reach).sum::<usize>()
    }

    /// The slot in memory of each element, axis 0 fastest.
    pub fn slots(&self) -> Vec<usize> {
        let spot = self.spot();
        let lowest = |(n, stride): (&u32, &i64)| (i64::from(*n) - 1) * stride.min(&0);
        let base: i64 = -self.extent.iter().zip(&self.stride).map(lowest).sum::<i64>();
        let slot = |at: Vec<i32>| {
            let steps = at.iter().zip(&self.min).zip(&self.stride);
            let offset: i64 = steps.map(|((c, min), stride)| i64::from(c - min) * stride).sum();
            (base + offset) as usize
        };
        spot.coordinates().into_iter().map(slot).collect()
    }

    /// The whole root in the model.
    pub fn spot(&self) -> Spot {
        let extent: Vec<_> = self.extent.iter().map(|n| *n as usize).collect();
        Spot::root(&self.min, &extent)
    }
}

/// Kernels loaded so far, for all cases.
pub struct Shelf<H: Hardware>(Mutex<HashMap<Label, Arc<Kernel<Rig<H>>>>>);

/// Whose kernel, and which.
type Label = (DriverId, &'static str);

impl<H: Hardware> Default for Shelf<H> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<H: Hardware> Shelf<H> {
    /// The kernel, loaded at its first use on this driver.
    pub fn kernel(
        &self,
        rig: &Rig<H>,
        source: &'static KernelSource<'static>,
        trouble: &Arc<Trouble>,
    ) -> Loaded<H> {
        let key = (rig.id(), source.name);
        let found = lock(&self.0).get(&key).map(Arc::clone);
        let kernel = found.unwrap_or_else(|| {
            let loaded = trouble.insist(|| rig.load(source));
            let loaded = Arc::new(loaded.unwrap_or_else(|e| panic!("{}: {e}", source.name)));
            lock(&self.0).insert(key, Arc::clone(&loaded));
            loaded
        });
        Loaded { kernel, trouble: Arc::clone(trouble) }
    }
}

/// A case's mutex: a panic elsewhere is that case's own failure.
pub fn lock<X>(mutex: &Mutex<X>) -> MutexGuard<'_, X> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Elements of slack on both sides of borrowed storage, to see writes beyond it.
const SLACK: usize = 9;

/// What borrowed memory holds at first in a slot.
pub fn initial<T: Value>(slot: usize) -> T {
    T::of(-7 * slot as i32 - 5)
}

/// Everything a case is given.
pub struct Lab<'s, H: Hardware, C: Capacity> {
    pub rig: Rig<H>,
    /// The second device of all trees, in rows of two.
    pub other: Option<Rig<H>>,
    pub storage: Storage,
    pub suite: &'s super::Suite<H, C>,
    pub shelf: &'s Shelf<H>,
    /// The call that fails, in rows where one does.
    pub trouble: Arc<Trouble>,
}

impl<H: Hardware, C: Capacity> Lab<'_, H, C> {
    /// Whether the capacity suffices for exact figures.
    pub fn is_exact(&self) -> bool {
        self.suite.exact
    }

    /// Whether trees are poisoned.
    pub fn poisons(&self) -> bool {
        self.suite.poison
    }

    /// The devices of every tree.
    pub fn rigs(&self) -> Vec<&Rig<H>> {
        std::iter::once(&self.rig).chain(&self.other).collect()
    }

    /// Whether host storage survives a loss of the first device.
    pub fn host_survives_loss(&self) -> bool {
        self.storage == Storage::Borrowed || self.rig.caps().storage_survives_loss
    }

    /// Whether kernels run on the host's bytes.
    pub fn is_shared(&self) -> bool {
        self.storage == Storage::Owned && self.rig.caps().unified
    }

    /// Another device of the same kind.
    pub fn second(&self) -> Result<Rig<H>, Skip> {
        let device =
            (self.suite.open)(1).map_err(|reason| Skip(format!("no second device: {reason}")))?;
        Ok(Counting::new(Fault::new(device)))
    }

    /// A kernel of the first device.
    pub fn kernel(&self, source: &'static KernelSource<'static>) -> Loaded<H> {
        self.shelf.kernel(&self.rig, source, &self.trouble)
    }

    /// A kernel, loaded on each device.
    pub fn kernels(&self, source: &'static KernelSource<'static>) -> Vec<Loaded<H>> {
        self.rigs().iter().map(|rig| self.shelf.kernel(rig, source, &self.trouble)).collect()
    }

    /// What was counted at all drivers.
    pub fn count(&self, of: impl Fn(&Counts) -> u64) -> u64 {
        self.rigs().iter().map(|rig| of(&rig.snapshot())).sum()
    }

    /// Builds trees as the row says.
    pub fn builder(&self) -> Builder<&Rig<H>, C> {
        self.builder_on(&self.rigs())
    }

    fn builder_on<'m, C2: Capacity>(&self, rigs: &[&'m Rig<H>]) -> Builder<&'m Rig<H>, C2> {
        let mut builder = Builder::new(rigs[0]).capacity::<C2>().poison(self.poisons());
        for rig in &rigs[1..] {
            builder = builder.device(*rig);
        }
        builder
    }

    /// Runs a program on a tree of its own and on the model, and compares everything at the end.
    pub fn run<T: Value>(&self, plot: &Plot, program: impl FnOnce(&Bed<'_, '_, T, H, C>)) {
        self.run_on(&self.rigs(), plot, program);
    }

    /// The same on several devices and with another capacity.
    pub fn run_on<T: Value, C2: Capacity>(
        &self,
        rigs: &[&Rig<H>],
        plot: &Plot,
        program: impl FnOnce(&Bed<'_, '_, T, H, C2>),
    ) {
        let builder = || self.builder_on::<C2>(rigs);
        let slots = plot.slots();
        let extent = plot.spot().extent;
        let _: Option<()> = match self.storage {
            Storage::Borrowed => {
                let span = plot.span();
                let mut memory: Vec<T> = (0..span + 2 * SLACK).map(initial).collect();
                let values = slots.iter().map(|slot| Some(memory[SLACK + slot])).collect();
                let tree = builder().over(&mut memory[SLACK..SLACK + span], plot.shape());
                let tree = tree.expect("a tree over the caller's memory");
                let model = Model::new(&extent, values, false);
                let (model, over) = self.drive(rigs, plot, &tree, model, program);
                self.close(tree);

                let mut expected: Vec<T> = (0..span + 2 * SLACK).map(initial).collect();
                for (element, slot) in slots.iter().enumerate() {
                    match model.value(element) {
                        Some(value) => expected[SLACK + slot] = value,
                        // Nobody's: whatever is there.
                        None => expected[SLACK + slot] = memory[SLACK + slot],
                    }
                }
                assert_eq!(
                    memory, expected,
                    "the caller's memory, with what is around and between"
                );
                over.map(|over| resume_unwind(Box::new(over)))
            }
            Storage::Owned => {
                let tree = self.trouble.insist(|| builder().owned(plot.shape()));
                let tree = tree.expect("a tree on the driver's memory");
                let model = Model::new(&extent, vec![None; slots.len()], self.is_shared());
                let (_, over) = self.drive(rigs, plot, &tree, model, program);
                self.close(tree);
                over.map(|over| resume_unwind(Box::new(over)))
            }
        };
    }

    /// A view of a tree that the case has made by itself.
    pub fn see<'t, T: Value>(&self, view: View<'t, T, Rig<H>>) -> Sight<'t, T, H> {
        Sight { view, trouble: Arc::clone(&self.trouble) }
    }

    /// Closes such a tree.
    pub fn close_at_last<T: Value, C2: Capacity>(&self, tree: Tree<'_, T, &Rig<H>, C2>) {
        let mut open = Some(tree);
        while let Some(tree) = open.take() {
            if let Err(CloseError { tree, error }) = tree.close() {
                assert!(self.trouble.met(&error), "{error}");
                open = Some(tree);
            }
        }
    }

    /// Closes a tree whose bytes are all at home.
    fn close<T: Value, C2: Capacity>(&self, tree: Tree<'_, T, &Rig<H>, C2>) {
        let mut open = Some(tree);
        while let Some(tree) = open.take() {
            let Err(CloseError { tree, error }) = tree.close() else { return };
            assert!(self.trouble.is_any(), "{error}");
            match &error {
                // All is at home: a loss met here takes nothing along.
                Error::Lost { region, boxes, .. } => assert_eq!((*region, *boxes), (None, 0)),
                error => assert!(self.trouble.met(error), "{error}"),
            }
            assert_eq!(tree.check(), Ok(()));
            open = Some(tree);
        }
    }

    fn drive<'m, T: Value, C2: Capacity>(
        &self,
        rigs: &[&'m Rig<H>],
        plot: &Plot,
        tree: &Tree<'m, T, &'m Rig<H>, C2>,
        model: Model<T>,
        program: impl FnOnce(&Bed<'_, 'm, T, H, C2>),
    ) -> (Model<T>, Option<Over>) {
        let bed = Bed {
            tree,
            rigs: rigs.to_vec(),
            turn: AtomicUsize::new(0),
            one: self.other.is_none(),
            shelf: self.shelf,
            trouble: Arc::clone(&self.trouble),
            spot: plot.spot(),
            model: Mutex::new(model),
            exact: AtomicBool::new(self.is_exact()),
            cumulative: AtomicBool::new(true),
            spent: Mutex::new(Need::default()),
            alone: AtomicBool::new(true),
            moves_within: AtomicBool::new(false),
            retried: Mutex::new(self.trouble.mishap().filter(|m| !m.is_loss()).map(|m| m.kind)),
            loss: Mutex::new(Loss::Unexpected),
            told: Mutex::new(None),
            host_lost_too: !self.host_survives_loss(),
            poison: self.poisons(),
        };
        let run = || {
            program(&bed);
            bed.verify();
        };
        // A loss unwinds to here, all views and guards dropped on the way.
        let over = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(()) => None,
            Err(payload) => Some(*payload.downcast::<Over>().unwrap_or_else(|p| resume_unwind(p))),
        };
        if over.is_some() {
            let survived = catch_unwind(AssertUnwindSafe(|| bed.survive()));
            survived.unwrap_or_else(|payload| match payload.downcast::<Over>() {
                Ok(_) => panic!("a tree that knows of the loss met it again"),
                Err(payload) => resume_unwind(payload),
            });
        }
        if self.trouble.is_any() {
            bed.agree();
        }
        assert_eq!(tree.check(), Ok(()));
        assert_eq!(tree.live_views(), 0, "views that nobody holds");
        (bed.model.into_inner().unwrap_or_else(PoisonError::into_inner), over)
    }
}

/// What a case expects of the device's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Loss {
    Unexpected,
    Expected,
    Met,
}

/// A tree with the model of it. Every operation runs on both and compares bytes moved and values.
pub struct Bed<'b, 'm, T: Value, H: Hardware, C: Capacity> {
    pub tree: &'b Tree<'m, T, &'m Rig<H>, C>,
    rigs: Vec<&'m Rig<H>>,
    /// Operations that take turns, so far.
    turn: AtomicUsize,
    /// Whether cases' own figures apply: they are of one device.
    one: bool,
    shelf: &'b Shelf<H>,
    trouble: Arc<Trouble>,
    spot: Spot,
    model: Mutex<Model<T>>,
    /// Whether each access must move exactly what the model says.
    exact: AtomicBool,
    /// Whether all accesses together must move at least that.
    cumulative: AtomicBool,
    spent: Mutex<Need>,
    /// Whether the counts at the drivers are of this tree alone.
    alone: AtomicBool,
    /// Whether the operation under way copies within a device.
    moves_within: AtomicBool,
    /// Injected failures of this kind are retried.
    retried: Mutex<Option<ErrorKind>>,
    loss: Mutex<Loss>,
    /// What the error said by which this tree's own operation met the loss.
    told: Mutex<Option<Told>>,
    host_lost_too: bool,
    poison: bool,
}

/// A view with its model.
pub struct Patch<'t, T: Value, H: Hardware> {
    pub view: Sight<'t, T, H>,
    pub spot: Spot,
}

impl<'t, T: Value, H: Hardware> Patch<'t, T, H> {
    fn new(
        trouble: &Arc<Trouble>,
        view: Result<View<'t, T, Rig<H>>, Failure<H>>,
        spot: Spot,
    ) -> Self {
        let view = view.unwrap_or_else(|error| panic!("a view of {spot:?}: {error}"));
        assert_eq!(view.rank(), spot.rank(), "rank");
        for axis in 0..spot.rank() {
            assert_eq!(view.min(axis), spot.min[axis], "min of axis {axis}");
            assert_eq!(view.extent(axis) as usize, spot.extent[axis], "extent of axis {axis}");
        }
        Self { view: Sight { view, trouble: Arc::clone(trouble) }, spot }
    }

    /// The view itself, which does not insist.
    fn bare(&self) -> &View<'t, T, Rig<H>> {
        &self.view.view
    }

    pub fn crop<const N: usize>(&self, ranges: [Range<i32>; N]) -> Self {
        self.crop_to(&ranges)
    }

    pub fn crop_to(&self, ranges: &[Range<i32>]) -> Self {
        Self::new(&self.view.trouble, self.view.crop(ranges), self.spot.crop(ranges))
    }

    pub fn slice(&self, axis: usize, at: i32) -> Self {
        Self::new(&self.view.trouble, self.view.slice(axis, at), self.spot.slice(axis, at))
    }

    pub fn translate<const N: usize>(&self, by: [i32; N]) -> Self {
        Self::new(&self.view.trouble, self.view.translate(by), self.spot.translate(&by))
    }

    pub fn permute<const N: usize>(&self, order: [usize; N]) -> Self {
        Self::new(&self.view.trouble, self.view.permute(order), self.spot.permute(&order))
    }

    pub fn step_by(&self, axis: usize, step: i32) -> Self {
        Self::new(&self.view.trouble, self.view.step_by(axis, step), self.spot.step_by(axis, step))
    }

    pub fn flip(&self, axis: usize) -> Self {
        Self::new(&self.view.trouble, self.view.flip(axis), self.spot.flip(axis))
    }

    pub fn bytes(&self) -> u64 {
        (self.spot.elements.len() * size_of::<T>()) as u64
    }

    pub fn arg(&self, mode: Mode) -> Arg<'t, Rig<H>> {
        match mode {
            Mode::Read => self.view.as_read(),
            Mode::Overwrite => self.view.as_overwrite(),
            Mode::Update => self.view.as_update(),
        }
    }
}

fn location(place: usize) -> Location {
    if place == HOST { Location::Host } else { Location::Device(place as u8 - 1) }
}

/// What [`Error::Lost`] says: the first box that was lost, and how many.
type Told = (Option<Region>, u32);

/// What was seen before an operation.
struct Before<E> {
    plans: Vec<Result<Plan, Error<E>>>,
    counters: hedgerow::Counters,
    counts: Vec<Counts>,
}

impl<'b, 'm, T: Value, H: Hardware, C: Capacity> Bed<'b, 'm, T, H, C> {
    pub fn root(&self) -> Patch<'b, T, H> {
        Patch::new(&self.trouble, Ok(self.tree.root()), self.spot.clone())
    }

    pub fn model(&self) -> MutexGuard<'_, Model<T>> {
        lock(&self.model)
    }

    pub fn rig(&self) -> &'m Rig<H> {
        self.rigs[0]
    }

    /// A kernel of the first device, loaded on all.
    pub fn kernel(&self, source: &'static KernelSource<'static>) -> Loaded<H> {
        self.kernels(source).swap_remove(0)
    }

    /// A kernel, loaded on each device.
    pub fn kernels(&self, source: &'static KernelSource<'static>) -> Vec<Loaded<H>> {
        self.rigs.iter().map(|rig| self.shelf.kernel(rig, source, &self.trouble)).collect()
    }

    /// The device whose turn it is.
    fn turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed) % self.rigs.len()
    }

    /// The device that an injected loss took.
    fn lost_device(&self) -> Option<usize> {
        self.rigs.iter().position(|rig| rig.inner().lost())
    }

    pub fn is_exact(&self) -> bool {
        self.exact.load(Ordering::Relaxed)
    }

    /// From now on the model cannot tell bytes exactly: granules or threads decide.
    pub fn only_values(&self) {
        self.exact.store(false, Ordering::Relaxed);
        self.cumulative.store(false, Ordering::Relaxed);
    }

    /// From now on writes may widen.
    pub fn inexact(&self) {
        self.exact.store(false, Ordering::Relaxed);
    }

    /// Another thread uses the same driver, so counts at the driver are not of this tree alone.
    pub fn threaded(&self) {
        self.only_values();
        self.alone.store(false, Ordering::Relaxed);
    }

    /// Injected failures of `kind` are retried from now on, after a look that nothing has changed.
    pub fn retry(&self, kind: ErrorKind) {
        *lock(&self.retried) = Some(kind);
    }

    /// A loss is what the case is about.
    pub fn expect_loss(&self) {
        *lock(&self.loss) = Loss::Expected;
    }

    pub fn met_loss(&self) -> bool {
        self.settle_loss();
        *lock(&self.loss) == Loss::Met
    }

    /// What was moved since the tree was made.
    pub fn moved(&self) -> u64 {
        let counters = self.tree.counters();
        counters.bytes_up + counters.bytes_down + counters.bytes_across + counters.bytes_widened
    }

    /// Asserts what the last part of a program moved, where capacity suffices, on trees of one device. With
    /// two, the devices' turns decide: every operation of the lab is compared with the model's own figures.
    #[track_caller]
    pub fn expect_since(&self, before: &hedgerow::Counters, up: u64, down: u64) {
        if self.one {
            self.expect_on_first(before, up, down);
        }
    }

    /// The same also on trees of two devices, where all of it was on the first.
    #[track_caller]
    pub fn expect_on_first(&self, before: &hedgerow::Counters, up: u64, down: u64) {
        if self.is_exact() {
            let now = self.tree.counters().since(before);
            if self.trouble.is_any() {
                // A call that was made again has moved more, but never less.
                assert!(now.bytes_up >= up && now.bytes_down >= down && now.bytes_widened == 0);
            } else {
                assert_eq!((now.bytes_up, now.bytes_down, now.bytes_widened), (up, down, 0));
            }
        }
    }

    fn before(
        &self,
        accesses: &[(&Patch<'_, T, H>, usize, Mode)],
    ) -> Before<<Rig<H> as DeviceDriver>::Error> {
        let plan = |(patch, place, mode): &(&Patch<'_, T, H>, usize, Mode)| {
            patch.view.plan(location(*place), *mode)
        };
        let plans = accesses.iter().map(plan).collect();
        let counts = self.rigs.iter().map(|rig| rig.snapshot()).collect();
        Before { plans, counters: self.tree.counters(), counts }
    }

    /// Bytes that reach the drivers, and what the counters and the plan say of them, agree; and they are
    /// what the model says.
    #[track_caller]
    fn after(
        &self,
        before: &Before<<Rig<H> as DeviceDriver>::Error>,
        need: Need,
        gappy: bool,
        planned: bool,
        ok: bool,
    ) {
        let moved = self.tree.counters().since(&before.counters);
        let all = moved.bytes_up + moved.bytes_down + moved.bytes_across + moved.bytes_widened;
        let by_device: Vec<u64> = self
            .rigs
            .iter()
            .zip(&before.counts)
            .map(|(rig, then)| rig.since(then).bytes_moved())
            .collect();
        let counted: u64 = by_device.iter().sum();
        if ok && lock(&self.retried).is_some() {
            // What failed attempts moved is moved again.
            return;
        }
        if ok && self.alone.load(Ordering::Relaxed) && !self.moves_within.load(Ordering::Relaxed) {
            // What is widened and comes from another device passes the host, and is counted once.
            let twice = if self.rigs.len() > 1 { moved.bytes_widened } else { 0 };
            assert!(
                (all..=all + twice).contains(&counted),
                "the drivers' bytes ({counted}) and the tree's counters ({all}): {moved}"
            );
            if self.is_exact() {
                let expected: Vec<u64> =
                    (0..self.rigs.len()).map(|d| need.up[d] + need.down[d]).collect();
                assert_eq!(by_device, expected, "each driver's bytes");
            }
        }
        if let (true, true, [Ok(plan)]) = (ok, planned, before.plans.as_slice()) {
            let said = (plan.bytes_up, plan.bytes_down, plan.bytes_across, plan.bytes_widened);
            let done = (moved.bytes_up, moved.bytes_down, moved.bytes_across, moved.bytes_widened);
            assert_eq!(said, done, "the plan (up, down, across, widened) and what then moved");
            assert_eq!(plan.bytes_defined, moved.defined_by_widening, "defined by widening");
        }
        if !ok {
            if lock(&self.retried).is_none() && *lock(&self.loss) == Loss::Unexpected {
                assert_eq!(counted, 0, "a refused call moved bytes");
            }
            return;
        }
        *lock(&self.spent) += need;
        if self.is_exact() {
            if gappy {
                assert_eq!(
                    all,
                    need.all_up() + need.all_down(),
                    "bytes of the box of a stepped view"
                );
            } else {
                assert_eq!(
                    (moved.bytes_up, moved.bytes_down),
                    (need.all_up(), need.all_down()),
                    "bytes up and down"
                );
                assert_eq!((moved.bytes_across, moved.bytes_widened), (0, 0), "across and widened");
                assert_eq!(moved.defined_by_widening, 0, "defined by widening");
            }
        } else if self.cumulative.load(Ordering::Relaxed) {
            let (spent, now) = (*lock(&self.spent), self.tree.counters());
            let widened = now.bytes_widened;
            assert!(
                now.bytes_up + widened >= spent.all_up(),
                "{now}, and at least {spent:?} is needed"
            );
            assert!(
                now.bytes_down + widened >= spent.all_down(),
                "{now}, and at least {spent:?} is needed"
            );
        }
    }

    /// Who holds each element's newest value: one bit for each place.
    fn holders(&self) -> Vec<u32> {
        let root = self.tree.root();
        let mut holders = vec![0; self.spot.elements.len()];
        for place in 0..=self.rigs.len() {
            root.for_each_fresh(location(place), |region| {
                for element in self.elements(&region) {
                    assert_eq!(holders[element] & 1 << place, 0, "{region} is told of twice");
                    holders[element] |= 1 << place;
                }
            });
        }
        holders
    }

    /// The elements of a box in root coordinates.
    fn elements(&self, region: &Region) -> Vec<usize> {
        let ranges: Vec<_> = (0..region.rank()).map(|axis| region.range(axis)).collect();
        self.spot.crop(&ranges).elements
    }

    /// The tree claims of every element what the model says, where the model is exact.
    #[track_caller]
    fn agree(&self) {
        if self.is_exact() {
            let holders = self.holders();
            let model = self.model();
            let expected: Vec<_> =
                (0..model.len()).map(|e| model.holders(e, self.rigs.len())).collect();
            assert_eq!(holders, expected, "who holds each element");
        }
    }

    /// Calls until no failure is injected any more: a failed call has changed nothing.
    #[track_caller]
    fn attempt<R>(&self, mut call: impl FnMut() -> Result<R, Failure<H>>) -> Result<R, Failure<H>> {
        loop {
            let retried = *lock(&self.retried);
            let Some(kind) = retried else {
                let answer = call();
                if let (Err(error), Loss::Unexpected) = (&answer, *lock(&self.loss)) {
                    if let Error::Lost { region, boxes, cause: Some(_) } = error {
                        *lock(&self.told) = Some((*region, *boxes));
                    }
                    let _ = self.trouble.met(error);
                }
                return answer;
            };
            let before = self.holders();
            let accesses = self.tree.live_accesses();
            match call() {
                Err(error) if error.kind() == Some(kind) => {
                    let injected = matches!(error, Error::Driver(FaultError::Injected { .. }));
                    assert!(injected, "{error}: not injected");
                    let _ = self.trouble.met(&error);
                    let mut now = self.holders();
                    let home = self.model().home();
                    for (element, (then, now)) in before.iter().zip(&mut now).enumerate() {
                        if self.rigs.len() > 1 && *now == then | home && *then != 0 {
                            // What was on its way to another device has come as far as the host: that
                            // was accepted.
                            *now = *then;
                            self.model().brought(&[element], HOST);
                        }
                    }
                    assert_eq!(before, now, "a failed call changed who holds what: {error}");
                    assert_eq!(self.tree.live_accesses(), accesses, "a failed call holds: {error}");
                    assert_eq!(self.tree.check(), Ok(()));
                }
                other => return other,
            }
        }
    }

    /// The device is gone: exactly what only it held is reported, and the rest goes on.
    fn survive(&self) {
        let root = self.root();
        let device = self.lost_device().expect("an injected loss");
        *lock(&self.loss) = Loss::Met;
        let mut told = lock(&self.told).take();
        if told.is_none() {
            // Another tree's call has met it, or one that the case made by itself: this one may not know yet.
            let zero: T = bytemuck::Zeroable::zeroed();
            if let Err(Error::Lost { region, boxes, cause: Some(_) }) =
                root.bare().fill_on(device, zero)
            {
                told = Some((region, boxes));
            }
        }
        assert_eq!(self.tree.check(), Ok(()));
        let mut lost = Vec::new();
        self.tree.take_lost(|region| lost.push(region));
        if let Some((region, boxes)) = told {
            assert_eq!((lost.first().copied(), lost.len()), (region, boxes as usize), "{lost:?}");
        }
        let mut times = vec![0; self.spot.elements.len()];
        lost.iter().flat_map(|region| self.elements(region)).for_each(|e| times[e] += 1);

        let holders = self.holders();
        {
            let mut model = self.model();
            if self.rigs.len() > 1 {
                // What was on its way to another device may have come as far as the host.
                let home = |e: &usize| holders[*e] & 1 << HOST != 0;
                let home: Vec<_> = (0..model.len()).filter(home).collect();
                model.brought(&home, HOST);
            }
            if self.is_exact() {
                model.lose(device, self.host_lost_too && device == 0);
                let expected: Vec<_> =
                    (0..model.len()).map(|e| u32::from(model.is_lost(e))).collect();
                assert_eq!(times, expected, "what was lost, each element once");
                model.forget_lost();
            } else {
                for (element, holders) in holders.iter().enumerate() {
                    assert!(times[element] <= 1 && (times[element] == 0 || *holders == 0));
                    if *holders == 0 {
                        model.forget(element);
                    }
                }
            }
        }
        self.agree();
        self.verify();
        // On what is left: what was saved is worked on, and what was lost is written anew.
        for other in (0..self.rigs.len()).filter(|other| *other != device) {
            for run in self.held_runs().iter().take(3) {
                self.add_on(other, &root.crop_to(run), 3);
            }
            self.fill_on(other, &root, 5);
            self.add_on(other, &root, 6);
        }
        if self.rigs.len() == 1 {
            self.write(&root, 4);
        }
        self.update(&root, 7);
        self.read(&root);
        let model = self.model();
        assert!((0..model.len()).all(|e| model.value(e).is_some()), "work does not go on");
    }

    /// One operation: `None` when it met the expected loss, or was refused as the model says.
    #[track_caller]
    fn operate<R>(
        &self,
        accesses: &[(&Patch<'_, T, H>, usize, Mode)],
        planned: bool,
        mut call: impl FnMut() -> Result<R, Failure<H>>,
    ) -> Option<R> {
        self.settle_loss();
        let (mut need, mut gappy) = (Need::default(), false);
        for (patch, place, mode) in accesses {
            let model = self.model();
            let leaves_out = model.is_gappy(&patch.spot);
            gappy |= leaves_out;
            if mode.reads() || leaves_out {
                let mut one = model.need(&model.hull(&patch.spot), *place);
                one.undefined &= mode.reads();
                need += one;
            }
        }
        let before = self.before(accesses);
        let result = self.attempt(&mut call);
        if *lock(&self.loss) != Loss::Unexpected {
            if let Err(Error::Lost { region, boxes, .. }) = &result {
                self.learn_staged(accesses);
                self.note_loss(region.is_some(), *boxes);
                if !self.is_exact() {
                    self.learn();
                }
                return None;
            }
            let lost = *lock(&self.loss) == Loss::Met;
            let place = self.lost_device().map(|device| device + 1);
            let on_device = accesses.iter().any(|(_, at, _)| Some(*at) == place);
            let any = accesses.iter().any(|(patch, ..)| !patch.spot.elements.is_empty());
            assert!(!(lost && on_device && any), "a lost device did work");
        }
        self.after(&before, need, gappy, planned, result.is_ok());
        match result {
            Ok(done) => {
                // Where capacity is short, a widened write may have defined nobody's bytes.
                assert!(!(need.undefined && self.is_exact()), "read what nobody holds");
                let mut model = self.model();
                if need.undefined && self.met_loss() {
                    // A widened access had brought home what the model holds for lost.
                    for (patch, _, mode) in accesses {
                        for element in model.hull(&patch.spot) {
                            if mode.writes() {
                                model.forget(element);
                            }
                        }
                    }
                    return None;
                }
                for (patch, place, mode) in accesses {
                    let touched = model.hull(&patch.spot);
                    let leaves_out = touched.len() != patch.spot.elements.len();
                    if mode.writes() && leaves_out {
                        for element in touched {
                            model.touched(element, *place, bytemuck::Zeroable::zeroed());
                        }
                    } else if mode.reads() {
                        model.brought(&touched, *place);
                    }
                }
                Some(done)
            }
            Err(Error::Undefined { region, lost }) if need.undefined => {
                let model = self.model();
                for (plan, (patch, ..)) in before.plans.iter().zip(accesses) {
                    let of_this = patch.view.root_region().contains(&region);
                    if of_this && planned {
                        assert!(
                            matches!(plan, Err(Error::Undefined { .. })),
                            "the plan said {plan:?}"
                        );
                    }
                }
                // It names bytes that are nobody's indeed, and whether they were lost.
                let ranges: Vec<_> = (0..region.rank()).map(|axis| region.range(axis)).collect();
                let named = self.spot.crop(&ranges).elements;
                if self.is_exact() {
                    assert!(named.iter().all(|e| model.value(*e).is_none()), "{region} is held");
                    assert_eq!(named.iter().any(|e| model.is_lost(*e)), lost, "{region} lost");
                }
                None
            }
            Err(Error::Undefined { region, .. }) if !self.is_exact() && self.met_loss() => {
                // A widened write had taken along what was lost then.
                let mut model = self.model();
                let ranges: Vec<_> = (0..region.rank()).map(|axis| region.range(axis)).collect();
                for element in self.spot.crop(&ranges).elements {
                    model.forget(element);
                }
                None
            }
            Err(error) => panic!("{accesses:?}: {error}", accesses = describe(accesses)),
        }
    }

    /// Widened writes may have taken more along than the model says: asks the tree what is held.
    fn learn(&self) {
        loop {
            let mut less = false;
            for run in self.held_runs() {
                let part = self.root().crop_to(&run);
                if let Err(Error::Undefined { region, .. }) =
                    part.view.plan(Location::Host, Mode::Read)
                {
                    let ranges: Vec<_> =
                        (0..region.rank()).map(|axis| region.range(axis)).collect();
                    for element in self.spot.crop(&ranges).elements {
                        self.model().forget(element);
                    }
                    less = true;
                }
            }
            if !less {
                return;
            }
        }
    }

    /// Poison may meet a loss after what it follows was done: that is no error of the access, and the next
    /// one finds the device lost.
    fn settle_loss(&self) {
        let mut loss = lock(&self.loss);
        let Some(device) = self.lost_device().filter(|_| self.poison) else { return };
        if *loss == Loss::Expected {
            *loss = Loss::Met;
            self.model().lose(device, self.host_lost_too && device == 0);
        }
    }

    /// A call that failed may have brought home what was on its way from one device to another. Asks the
    /// tree, element by element: reading them compares the values.
    fn learn_staged(&self, accesses: &[(&Patch<'_, T, H>, usize, Mode)]) {
        if self.rigs.len() == 1 {
            return;
        }
        let coordinates = self.spot.coordinates();
        for (patch, place, mode) in accesses.iter().filter(|(_, place, _)| *place != HOST) {
            let hull = self.model().hull(&patch.spot);
            if !mode.reads() && hull.len() == patch.spot.elements.len() {
                continue;
            }
            for element in hull {
                if self.model().need(&[element], *place).all_down() == 0 {
                    continue;
                }
                let one: Vec<_> = coordinates[element].iter().map(|c| *c..c + 1).collect();
                let plan = self.root().crop_to(&one).view.plan(Location::Host, Mode::Read);
                if plan.is_ok_and(|plan| plan.bytes_down == 0) {
                    self.model().brought(&[element], HOST);
                }
            }
        }
    }

    fn note_loss(&self, named: bool, boxes: u32) {
        let mut loss = lock(&self.loss);
        let first = *loss == Loss::Expected;
        *loss = Loss::Met;
        if first {
            let mut model = self.model();
            let device = self.lost_device().expect("an injected loss");
            model.lose(device, self.host_lost_too && device == 0);
            if self.is_exact() {
                let any = (0..model.len()).any(|element| model.is_lost(element));
                assert_eq!((named, boxes > 0), (any, any), "whether the error names what was lost");
            }
        }
    }

    /// Reads on the host and compares.
    #[track_caller]
    pub fn read(&self, patch: &Patch<'_, T, H>) {
        let accesses = [(patch, HOST, Mode::Read)];
        let Some(guard) = self.operate(&accesses, true, || patch.bare().read()) else { return };
        let model = self.model();
        let expected: Vec<_> = patch.spot.elements.iter().map(|e| model.value(*e)).collect();
        drop(model);
        let mut values: Vec<T> = vec![bytemuck::Zeroable::zeroed(); expected.len()];
        assert_eq!(guard.copy_to_slice(&mut values), expected.len(), "elements copied");
        let wrong = values
            .iter()
            .zip(&expected)
            .position(|(value, expected)| expected.is_some_and(|expected| expected != *value));
        if let Some(wrong) = wrong {
            let at = &patch.spot.coordinates()[wrong];
            let (value, expected) = (values[wrong], expected[wrong]);
            panic!("at {at:?}: read {value:?}, expected {expected:?}");
        }
        // The same by coordinate and by rows.
        if values.len() <= 4096 {
            for (at, value) in patch.spot.coordinates().iter().zip(&values) {
                let found = by_rank!(at.len(), N => {
                    let at: [i32; N] = at.as_slice().try_into().expect("the rank");
                    guard.get(at).copied()
                }, else None);
                assert_eq!(found, Some(*value), "by coordinate {at:?}");
            }
            if let Some(rows) = guard.rows() {
                assert!(rows.flatten().eq(values.iter()), "by rows");
            }
        }
    }

    /// Overwrites on the host with the code of the coordinates.
    #[track_caller]
    pub fn write(&self, patch: &Patch<'_, T, H>, p: i32) {
        let accesses = [(patch, HOST, Mode::Overwrite)];
        let Some(mut guard) = self.operate(&accesses, true, || patch.bare().overwrite()) else {
            return;
        };
        let coordinates = patch.spot.coordinates();
        let values: Vec<T> = coordinates.iter().map(|at| T::of(code(at, p))).collect();
        // By each of the ways there are.
        match p.rem_euclid(3) {
            0 => assert_eq!(guard.copy_from_slice(&values), values.len(), "elements copied"),
            1 => {
                let written = by_rank!(patch.spot.rank(), N => {
                    guard.fill_with(|at: [i32; N]| T::of(code(&at, p)))
                }, else 0);
                assert_eq!(written, values.len() as u64, "elements filled");
            }
            _ => {
                for (at, value) in coordinates.iter().zip(&values) {
                    let slot = by_rank!(at.len(), N => {
                        let at: [i32; N] = at.as_slice().try_into().expect("the rank");
                        guard.get_mut(at)
                    }, else None);
                    *slot.expect("inside") = *value;
                }
            }
        }
        drop(guard);
        self.wrote(patch, HOST, &values);
    }

    /// Updates on the host by adding.
    #[track_caller]
    pub fn update(&self, patch: &Patch<'_, T, H>, p: i32) {
        let accesses = [(patch, HOST, Mode::Update)];
        let Some(mut guard) = self.operate(&accesses, true, || patch.bare().update()) else {
            return;
        };
        let values = self.values(patch, |value| value.plus(p));
        if let Some(rows) = guard.rows_mut() {
            let mut changed = 0;
            for row in rows {
                row.iter_mut().for_each(|value| *value = value.plus(p));
                changed += row.len();
            }
            assert_eq!(changed, values.len(), "elements of all rows");
        } else {
            let mut values: Vec<T> = vec![bytemuck::Zeroable::zeroed(); values.len()];
            guard.copy_to_slice(&mut values);
            let values: Vec<T> = values.into_iter().map(|value| value.plus(p)).collect();
            guard.copy_from_slice(&values);
        }
        drop(guard);
        self.wrote(patch, HOST, &values);
    }

    /// What the model holds of a view, changed.
    pub fn values(&self, patch: &Patch<'_, T, H>, change: impl Fn(T) -> T) -> Vec<T> {
        let model = self.model();
        let zero: T = bytemuck::Zeroable::zeroed();
        patch.spot.elements.iter().map(|e| change(model.value(*e).unwrap_or(zero))).collect()
    }

    /// Enters in the model that a view's elements were written at a place.
    pub fn wrote(&self, patch: &Patch<'_, T, H>, place: usize, values: &[T]) {
        let mut model = self.model();
        for (element, value) in patch.spot.elements.iter().zip(values) {
            model.write(*element, place, *value);
        }
    }

    /// Takes the boxes out that the device took along: exactly what the model says.
    #[track_caller]
    pub fn take_lost(&self) {
        let mut lost = vec![0u32; self.spot.elements.len()];
        self.tree.take_lost(|region| {
            let ranges: Vec<_> = (0..region.rank()).map(|axis| region.range(axis)).collect();
            for element in self.spot.crop(&ranges).elements {
                lost[element] += 1;
            }
        });
        let mut model = self.model();
        if self.is_exact() {
            let expected: Vec<_> = (0..model.len()).map(|e| u32::from(model.is_lost(e))).collect();
            assert_eq!(lost, expected, "what was lost, each element once");
        }
        model.forget_lost();
    }

    /// Overwrites on the device with the code of the coordinates.
    #[track_caller]
    pub fn fill(&self, patch: &Patch<'_, T, H>, p: i32) {
        self.fill_on(self.turn(), patch, p);
    }

    /// The same on a device of several.
    #[track_caller]
    pub fn fill_on(&self, device: usize, patch: &Patch<'_, T, H>, p: i32) {
        let done = self.launch_on(device, T::FILL, &[(patch, Mode::Overwrite)], p);
        if done.is_some() {
            let values: Vec<T> =
                patch.spot.coordinates().iter().map(|at| T::of(code(at, p))).collect();
            self.wrote(patch, device + 1, &values);
        }
    }

    /// Updates on the device by adding.
    #[track_caller]
    pub fn add(&self, patch: &Patch<'_, T, H>, p: i32) {
        self.add_on(self.turn(), patch, p);
    }

    /// The same on a device of several.
    #[track_caller]
    pub fn add_on(&self, device: usize, patch: &Patch<'_, T, H>, p: i32) {
        if self.launch_on(device, T::ADD, &[(patch, Mode::Update)], p).is_some() {
            let values = self.values(patch, |value| value.plus(p));
            self.wrote(patch, device + 1, &values);
        }
    }

    /// Fills on the device without a kernel.
    #[track_caller]
    pub fn set(&self, patch: &Patch<'_, T, H>, value: T) {
        let device = self.turn();
        let accesses = [(patch, device + 1, Mode::Overwrite)];
        // An element of a size that drivers do not fill is copied on the device.
        self.moves_within.store(true, Ordering::Relaxed);
        let done = self.operate(&accesses, true, || patch.bare().fill_on(device, value));
        self.moves_within.store(false, Ordering::Relaxed);
        if done.is_some() {
            self.wrote(patch, device + 1, &vec![value; patch.spot.elements.len()]);
        }
    }

    /// Copies on the device without a kernel, as if `from` had been read whole before.
    #[track_caller]
    pub fn transfer(&self, from: &Patch<'_, T, H>, to: &Patch<'_, T, H>) {
        let device = self.turn();
        let accesses = [(from, device + 1, Mode::Read), (to, device + 1, Mode::Overwrite)];
        // On the device itself bytes are copied too: the driver counts those with the others.
        self.moves_within.store(true, Ordering::Relaxed);
        let done = self.operate(&accesses, true, || to.bare().copy_from(from.bare(), device));
        self.moves_within.store(false, Ordering::Relaxed);
        if done.is_some() {
            let values = self.values(from, |value| value);
            self.wrote(to, device + 1, &values);
        }
    }

    /// Launches on views of this tree. What it writes is up to the caller to enter in the model.
    #[track_caller]
    pub fn launch_on(
        &self,
        device: usize,
        source: &'static KernelSource<'static>,
        views: &[(&Patch<'_, T, H>, Mode)],
        p: i32,
    ) -> Option<Ticket> {
        if !size_of::<T>().is_multiple_of(source.granule as usize)
            && views.iter().any(|(_, mode)| mode.writes())
        {
            // Neighbours in a word come along.
            self.only_values();
        }
        let kernel = self.shelf.kernel(self.rigs[device], source, &self.trouble);
        let accesses: Vec<_> =
            views.iter().map(|(patch, mode)| (*patch, device + 1, *mode)).collect();
        let args: Vec<_> = views.iter().map(|(patch, mode)| patch.arg(*mode)).collect();
        let planned = size_of::<T>().is_multiple_of(source.granule as usize);
        self.operate(&accesses, planned, || kernel.kernel.launch(args.as_slice(), p))
    }

    /// Holds a view on a device to read it: moves what is stale there.
    #[track_caller]
    pub fn bring(&self, patch: &Patch<'_, T, H>) {
        self.bring_on(self.turn(), patch);
    }

    /// The same on a device of several.
    #[track_caller]
    pub fn bring_on(&self, device: usize, patch: &Patch<'_, T, H>) {
        let accesses = [(patch, device + 1, Mode::Read)];
        let _ = self.operate(&accesses, true, || patch.bare().on_device(device, Mode::Read));
    }

    /// Brings everything home that only devices hold.
    #[track_caller]
    pub fn sync(&self) {
        let held: Vec<_> = {
            let model = self.model();
            (0..model.len()).filter(|element| model.value(*element).is_some()).collect()
        };
        let need = self.model().need(&held, HOST);
        let before = self.before(&[]);
        self.attempt(|| self.tree.sync()).expect("syncs");
        self.after(&before, need, false, false, true);
        self.model().brought(&held, HOST);
    }

    /// Reads all that somebody holds and compares; asks once for what nobody does.
    #[track_caller]
    pub fn verify(&self) {
        let root = self.root();
        let (all, none) = {
            let model = self.model();
            let held = |e: &usize| model.value(*e).is_some();
            (self.spot.elements.iter().all(held), !self.spot.elements.iter().any(held))
        };
        if all && !self.met_loss() {
            return self.read(&root);
        }
        if self.spot.elements.len() > 1 {
            // Refused, for the part that nobody holds.
            self.read(&root);
        }
        if none {
            return;
        }
        // Again where reading showed that less is held.
        let mut runs = self.held_runs();
        loop {
            for run in &runs {
                self.read(&root.crop_to(run));
            }
            let now = self.held_runs();
            if now == runs {
                break;
            }
            runs = now;
        }
    }

    /// Runs along axis 0 that somebody holds.
    fn held_runs(&self) -> Vec<Vec<Range<i32>>> {
        let model = self.model();
        let mut runs: Vec<Vec<Range<i32>>> = Vec::new();
        let mut open = false;
        for (element, at) in self.spot.elements.iter().zip(self.spot.coordinates()) {
            let held = model.value(*element).is_some();
            let starts = at.first() == self.spot.min.first();
            match (held, runs.last_mut()) {
                (true, Some(run)) if open && !starts => run[0].end += 1,
                (true, _) => runs.push(at.iter().map(|c| *c..c + 1).collect()),
                (false, _) => {}
            }
            open = held;
        }
        runs
    }
}

impl<H: Hardware, C: Capacity> Bed<'_, '_, i32, H, C> {
    /// Overwrites a view on the device with another of the same extents, plus `p`.
    #[track_caller]
    pub fn copy(&self, from: &Patch<'_, i32, H>, to: &Patch<'_, i32, H>, p: i32) {
        let views = [(from, Mode::Read), (to, Mode::Overwrite)];
        let device = self.turn();
        if self.launch_on(device, &kernels::COPY_I32, &views, p).is_some() {
            let values = self.values(from, |value| value.wrapping_add(p));
            self.wrote(to, device + 1, &values);
        }
    }

    /// Overwrites a view on the device with the stencil of another around the same coordinates.
    #[track_caller]
    pub fn stencil(&self, from: &Patch<'_, i32, H>, to: &Patch<'_, i32, H>) {
        let views = [(from, Mode::Read), (to, Mode::Overwrite)];
        let device = self.turn();
        if self.launch_on(device, &kernels::STENCIL_I32, &views, 0).is_some() {
            let input = self.values(from, |value| value);
            let clamp = |axis: usize, c: i32| {
                let min = from.spot.min[axis];
                c.clamp(min, min + from.spot.extent[axis] as i32 - 1)
            };
            let at = |x: i32, y: i32| input[from.spot.index(&[clamp(0, x), clamp(1, y)])];
            let values: Vec<i32> = to
                .spot
                .coordinates()
                .iter()
                .map(|c| {
                    let (x, y) = (c[0], c[1]);
                    let around = at(x - 1, y).wrapping_add(at(x + 1, y));
                    let around = around.wrapping_add(at(x, y - 1)).wrapping_add(at(x, y + 1));
                    at(x, y).wrapping_mul(4).wrapping_add(around)
                })
                .collect();
            self.wrote(to, device + 1, &values);
        }
    }
}

fn describe<T: Value, H: Hardware>(accesses: &[(&Patch<'_, T, H>, usize, Mode)]) -> String {
    let one = |(patch, place, mode): &(&Patch<'_, T, H>, usize, Mode)| {
        format!("{mode:?} {:?} on {}", patch.view, location(*place))
    };
    accesses.iter().map(one).collect::<Vec<_>>().join(", ")
}
