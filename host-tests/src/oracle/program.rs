//! Random programs: made from a seed, run step by step on both sides.

use std::task::Poll;

use hedgerow::capacity::Capacity;
use hedgerow::driver::{ComputeDriver, Device};
use hedgerow::{Builder, Error, Location, Mode, ReadGuard, Shape, Spin, Tree, View, WriteGuard};

use super::kernels::{self, Value};
use super::model::{Answer, Model, ModelView};

/// A small generator, so that programs repeat from their seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xd1b5_4a32_d192_ed03)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    fn between(&mut self, lo: i64, hi: i64) -> i64 {
        lo + self.below((hi - lo + 1) as u64) as i64
    }

    fn pick<'a, X>(&mut self, from: &'a [X]) -> &'a X {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// What a program runs on.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Picks everything random.
    pub seed: u64,
    /// Steps to run.
    pub steps: usize,
    /// Whether the capacity suffices for every cut: then bytes moved must be exact.
    pub ample: bool,
    /// Storage of the driver's own instead of a borrowed slice.
    pub owned: bool,
    /// Whether calls are made to fail. Detached trees are left out then: the model would have to know which
    /// parts of them came home.
    pub disturbed: bool,
    /// Whether stale bytes are filled with poison.
    pub poison: bool,
    /// Bytes that a kernel's smallest write touches, as stated to the core.
    pub granule: u32,
}

/// Disturbs a program from outside: failing calls, lost devices.
pub trait Disturb {
    /// Called before each step with a random number.
    fn before(&self, _random: u64) {}
    /// Called when the program is over and must end well.
    fn calm(&self) {}
    /// Whether a device is gone.
    fn is_lost(&self, _device: usize) -> bool {
        false
    }
}

/// No disturbance.
#[derive(Clone, Copy, Debug)]
pub struct Calm;

impl Disturb for Calm {}

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Steps run.
    pub steps: u64,
    /// Elements compared.
    pub compared: u64,
    /// Bytes moved.
    pub moved: u64,
    /// Calls that failed because they were made to.
    pub failed: u64,
}

/// A view on both sides.
type Pair<'t, T, D> = (View<'t, T, D>, ModelView);

enum Guard<'t, T: Value> {
    Read(ReadGuard<'t, T>),
    Write(WriteGuard<'t, T>),
}

/// A live guard: its view, and its number in the model.
struct Held<'t, T: Value> {
    guard: Guard<'t, T>,
    view: ModelView,
    number: usize,
}

/// A root's geometry, drawn at random: extents, mins, and a layout of any order, direction and padding.
#[derive(Debug)]
struct Geometry {
    min: Vec<i64>,
    extent: Vec<i64>,
    stride: Vec<i64>,
    span: usize,
    /// Offset of each element in the storage.
    offset: Vec<usize>,
}

impl Geometry {
    fn random(rng: &mut Rng) -> Self {
        let rank = 1 + rng.below(hedgerow::MAX_RANK as u64) as usize;
        let most = [0, 33, 17, 7, 4, 3, 3, 2, 2][rank];
        let extent: Vec<i64> =
            (0..rank).map(|_| if rng.below(40) == 0 { 0 } else { rng.between(1, most) }).collect();
        let min: Vec<i64> = (0..rank).map(|_| rng.between(-5, 5)).collect();
        let mut order: Vec<usize> = (0..rank).collect();
        for i in 0..rank {
            order.swap(i, i + rng.below((rank - i) as u64) as usize);
        }
        let mut stride = vec![0; rank];
        let mut next = 1;
        for axis in order {
            next += if rng.below(3) == 0 { rng.between(0, 3) } else { 0 };
            stride[axis] = if rng.below(5) == 0 { -next } else { next };
            next *= extent[axis].max(1);
        }
        let base: i64 = (0..rank).map(|a| (-stride[a]).max(0) * (extent[a] - 1).max(0)).sum();
        let root = ModelView::root(&min, &extent);
        let mut offset = Vec::new();
        for mut element in root.elements {
            let mut at = base;
            for axis in 0..rank {
                at += (element as i64 % extent[axis]) * stride[axis];
                element /= extent[axis] as usize;
            }
            offset.push(at as usize);
        }
        let span = offset.iter().max().map_or(0, |last| last + 1);
        Self { min, extent, stride, span, offset }
    }

    fn shape(&self) -> Shape {
        macro_rules! ranks {
            ($($n:literal),*) => {
                match self.extent.len() {
                    $($n => {
                        let mut extents = [0u32; $n];
                        let mut strides = [0i64; $n];
                        let mut min = [0i32; $n];
                        for axis in 0..$n {
                            extents[axis] = self.extent[axis] as u32;
                            strides[axis] = self.stride[axis];
                            min[axis] = self.min[axis] as i32;
                        }
                        Shape::strided(extents, strides).min(min)
                    })*
                    _ => unreachable!("rank"),
                }
            };
        }
        ranks!(1, 2, 3, 4, 5, 6, 7, 8)
    }
}

/// Runs one program on trees of elements `T`, capacity `C`, on `devices`.
///
/// # Panics
/// When the two sides differ; the message has the seed.
pub fn run<T, H, C>(setup: Setup, devices: &[H], disturb: &dyn Disturb) -> Report
where
    T: Value,
    H: Device + Clone,
    H::Driver: ComputeDriver,
    C: Capacity,
{
    let mut rng = Rng::new(setup.seed);
    let geometry = Geometry::random(&mut rng);
    let n = geometry.offset.len();
    // Values beside the root's elements must survive.
    let mut storage: Vec<T> = (0..geometry.span + 2).map(|i| T::of(1_000 + i as u64)).collect();
    let before = storage.clone();
    let mut report = Report::default();
    let places = devices.len() + 1;
    let unified = hedgerow::driver::DeviceDriver::caps(devices[0].driver()).unified;
    let mut model = Model {
        shared: setup.owned && unified,
        min: geometry.min.clone(),
        extent: geometry.extent.clone(),
        value: vec![None; n],
        fresh: vec![vec![false; n]; places],
        lost: vec![false; n],
        held: Vec::new(),
    };
    let mut builder = Builder::new(devices[0].clone()).capacity::<C>().poison(setup.poison);
    for device in &devices[1..] {
        builder = builder.device(device.clone());
    }
    let expected = if setup.owned {
        let tree = builder.owned::<T>(geometry.shape()).expect("an owned tree");
        program(setup, &mut rng, &tree, devices, &mut model, &mut report, disturb);
        disturb.calm();
        None
    } else {
        for (element, offset) in geometry.offset.iter().enumerate() {
            model.value[element] = Some(1_000 + *offset as u64);
        }
        model.fresh[0] = vec![true; n];
        let span = geometry.span;
        let tree = builder.over(&mut storage[..span], geometry.shape()).expect("a tree");
        program(setup, &mut rng, &tree, devices, &mut model, &mut report, disturb);
        disturb.calm();
        if rng.below(2) == 0 {
            tree.close().expect("a close");
        } else {
            drop(tree);
        }
        Some(model.value.clone())
    };
    if let Some(expected) = expected {
        let mut whole = before;
        for (value, offset) in expected.iter().zip(&geometry.offset) {
            whole[*offset] = value.map_or(storage[*offset], T::of);
        }
        assert_eq!(storage, whole, "{setup:?}: storage after the tree, {geometry:?}");
    }
    report
}

fn program<'t, T, H, C>(
    setup: Setup,
    rng: &mut Rng,
    tree: &'t Tree<'_, T, H, C, Spin>,
    devices: &[H],
    model: &mut Model,
    report: &mut Report,
    disturb: &dyn Disturb,
) where
    T: Value,
    H: Device + Clone,
    H::Driver: ComputeDriver,
    C: Capacity,
{
    let kernels: Vec<_> =
        devices.iter().map(|d| kernels::load::<T, _>(d.driver(), setup.granule)).collect();
    let root = ModelView::root(&model.min, &model.extent);
    let mut views: Vec<Pair<'t, T, H::Driver>> = vec![(tree.root(), root)];
    let mut held: Vec<Held<'t, T>> = Vec::new();
    let mut stamp = 1u64 << 20;
    for step in 0..setup.steps {
        report.steps += 1;
        let context = || format!("{setup:?} step {step}");
        let which = rng.below(views.len() as u64) as usize;
        disturb.before(rng.below(1 << 40));
        match rng.below(26) {
            0..5 => {
                if let Some(made) = derive(rng, &views[which]) {
                    if views.len() < 7 {
                        views.push(made);
                    } else {
                        let at = 1 + rng.below(6) as usize;
                        views[at] = made;
                    }
                }
            }
            5..9 => {
                host_access(setup, rng, &views[which], model, &mut held, &mut stamp, report, tree)
            }
            9..11 if !held.is_empty() => {
                let at = rng.below(held.len() as u64) as usize;
                let gone = held.swap_remove(at);
                compare(&gone, model, report, &context());
                model.held[gone.number] = None;
            }
            11..18 => {
                let device = rng.below(devices.len() as u64) as usize;
                let other = rng.below(views.len() as u64) as usize;
                launch(
                    setup,
                    rng,
                    &views[which],
                    &views[other],
                    device,
                    &kernels[device],
                    model,
                    &mut stamp,
                    tree,
                    report,
                );
            }
            20..22 => {
                let device = rng.below(devices.len() as u64) as usize;
                fill(setup, &views[which], device, model, &mut stamp, report);
            }
            22..24 => {
                let device = rng.below(devices.len() as u64) as usize;
                shift(setup, rng, &views[which], device, model, report, tree);
            }
            24..26 if !setup.disturbed => {
                let device = rng.below(devices.len() as u64) as usize;
                detached::<T, H, C>(
                    setup,
                    rng,
                    &views[which],
                    &devices[device],
                    &kernels[device],
                    model,
                    &mut stamp,
                );
            }
            18 => {
                // Bringing everything home.
                let boxed: Vec<usize> = (0..model.value.len()).collect();
                match tree.sync() {
                    Ok(()) => model.bring(&boxed, 0),
                    // Guards hold every slot.
                    Err(Error::Full { .. }) => {}
                    Err(Error::Driver(_) | Error::Lost { .. }) => report.failed += 1,
                    Err(error) => panic!("{}: sync: {error}", context()),
                }
            }
            _ => {
                match tree.release() {
                    Ok(()) => {}
                    Err(Error::Full { .. }) => continue,
                    Err(Error::Driver(_) | Error::Lost { .. }) => {
                        report.failed += 1;
                        learn_of_losses(model, disturb);
                        continue;
                    }
                    Err(error) => panic!("{}: release: {error}", context()),
                }
                let boxed: Vec<usize> = (0..model.value.len()).collect();
                model.bring(&boxed, 0);
                // Where host and device share bytes there is nothing to give back.
                if !model.shared {
                    for place in 1..model.fresh.len() {
                        model.fresh[place].fill(false);
                    }
                }
            }
        }
        tree.check().unwrap_or_else(|why| panic!("{}: {why}", context()));
        learn_of_losses(model, disturb);
        for guard in &held {
            compare(guard, model, report, &context());
        }
    }
}

/// Takes devices that went meanwhile out of the model, with what only they held.
fn learn_of_losses(model: &mut Model, disturb: &dyn Disturb) {
    for place in 1..model.fresh.len() {
        if disturb.is_lost(place - 1) {
            model.lose(place);
        }
    }
}

/// Every element under a live guard holds the model's value.
fn compare<T: Value>(held: &Held<'_, T>, model: &Model, report: &mut Report, context: &str) {
    let mut out = vec![T::of(0); held.view.elements.len()];
    let copied = match &held.guard {
        Guard::Read(guard) => guard.copy_to_slice(&mut out),
        Guard::Write(guard) => guard.copy_to_slice(&mut out),
    };
    assert_eq!(copied, out.len(), "{context}");
    for (element, got) in held.view.elements.iter().zip(&out) {
        let wanted = model.value[*element].map(T::of);
        assert_eq!(Some(*got), wanted, "{context}: element {element} under a guard");
        report.compared += 1;
    }
}

/// A view made from another at random, on both sides. `None` where the real side has no room.
fn derive<'t, T: Value, D: ComputeDriver>(
    rng: &mut Rng,
    from: &Pair<'t, T, D>,
) -> Option<Pair<'t, T, D>> {
    let (view, model) = from;
    let rank = model.rank();
    let axis = rng.below(rank.max(1) as u64) as usize;
    let made = match rng.below(if rank == 0 { 1 } else { 8 }) {
        0..3 => {
            let (mut lo, mut hi) = (Vec::new(), Vec::new());
            for axis in 0..rank {
                let (first, last) = (model.min[axis], model.min[axis] + model.extent[axis]);
                let (a, b) = (rng.between(first, last), rng.between(first, last));
                lo.push(a.min(b));
                hi.push(if a == b && rng.below(8) > 0 { (a + 1).min(last) } else { a.max(b) });
            }
            let ranges: Vec<_> = lo.iter().zip(&hi).map(|(a, b)| *a as i32..*b as i32).collect();
            (view.crop(&ranges[..]), model.crop(&lo, &hi))
        }
        3 if model.extent[axis] > 0 => {
            let c = model.min[axis] + rng.between(0, model.extent[axis] - 1);
            (view.slice(axis, c as i32), model.slice(axis, c))
        }
        4 => {
            let by: Vec<i64> = (0..rank).map(|_| rng.between(-9, 9)).collect();
            macro_rules! ranks {
                ($($n:literal),*) => {
                    match rank {
                        $($n => view.translate::<$n>(std::array::from_fn(|a| by[a] as i32)),)*
                        _ => return None,
                    }
                };
            }
            (ranks!(1, 2, 3, 4, 5, 6, 7, 8), model.translate(&by))
        }
        5 => {
            let mut order: Vec<usize> = (0..rank).collect();
            for i in 0..rank {
                order.swap(i, i + rng.below((rank - i) as u64) as usize);
            }
            macro_rules! ranks {
                ($($n:literal),*) => {
                    match rank {
                        $($n => view.permute::<$n>(std::array::from_fn(|a| order[a])),)*
                        _ => return None,
                    }
                };
            }
            (ranks!(1, 2, 3, 4, 5, 6, 7, 8), model.permute(&order))
        }
        6 => {
            let step = rng.between(1, 4);
            (view.step_by(axis, step as i32), model.step_by(axis, step))
        }
        _ => (view.flip(axis), model.flip(axis)),
    };
    match made {
        (Ok(view), model) => {
            assert_eq!(view.rank(), model.rank());
            Some((view, model))
        }
        (Err(Error::Full { .. }), _) => None,
        (Err(error), _) => panic!("a view that is inside its parent: {error}"),
    }
}

/// Whether a view holds each element of its box.
fn covers(view: &ModelView, boxed: &[usize]) -> bool {
    view.elements.len() == boxed.len()
}

#[allow(clippy::too_many_arguments)] // both sides of one step
fn host_access<'t, T: Value, H: Device, C: Capacity>(
    setup: Setup,
    rng: &mut Rng,
    (view, shape): &Pair<'t, T, H::Driver>,
    model: &mut Model,
    held: &mut Vec<Held<'t, T>>,
    stamp: &mut u64,
    report: &mut Report,
    tree: &'t Tree<'_, T, H, C, Spin>,
) {
    let context = format!("{setup:?}: host access to {view:?}");
    let boxed = model.hull(&shape.elements);
    let mode = *rng.pick(&[Mode::Read, Mode::Overwrite, Mode::Update]);
    let expected = model.answer(&boxed, mode.reads(), mode.writes());
    let earlier = tree.counters();
    let plan = view.plan(Location::Host, mode);
    let opened = match mode {
        Mode::Read if rng.below(3) == 0 => view.begin_read().and_then(|mut pending| {
            loop {
                if let Poll::Ready(guard) = pending.poll()? {
                    break Ok(Guard::Read(guard));
                }
            }
        }),
        Mode::Read => view.read().map(Guard::Read),
        Mode::Overwrite => view.overwrite().map(Guard::Write),
        Mode::Update => view.update().map(Guard::Write),
    };
    let guard = match (opened, expected) {
        (Ok(guard), Answer::Fine) => guard,
        (Ok(guard), Answer::Undefined) if may_define(setup, tree) => {
            model.defined_by_widening(&boxed);
            guard
        }
        (Err(Error::Undefined { lost, .. }), Answer::Undefined) => {
            let any_lost = boxed.iter().any(|element| model.lost[*element]);
            assert!(!lost || any_lost, "{context}: called lost");
            return;
        }
        (Err(Error::Busy(_)), Answer::Busy) => return,
        // A write that has to widen may meet a guard; guards may fill their table.
        (Err(Error::Busy(_)), _) if !setup.ample && mode.writes() => return,
        (Err(Error::Full { .. }), _) => return,
        (Err(Error::Driver(_) | Error::Lost { .. }), _) => {
            report.failed += 1;
            return;
        }
        (opened, expected) => {
            panic!("{context}: {:?} instead of {expected:?}", opened.map(|_| ()).err())
        }
    };
    let moved = tree.counters().since(&earlier);
    report.moved += moved.bytes_down;
    let plan = plan.expect("a plan for what then worked");
    assert_eq!((plan.bytes_up, plan.bytes_down), (moved.bytes_up, moved.bytes_down), "{context}");
    // What was needed: all of the box for reads; for a stepped overwrite, too, but without telling.
    let whole = covers(shape, &boxed);
    if mode.reads() || !whole {
        let missing = model.missing(&boxed, 0);
        let bytes: usize = missing[1..].iter().sum::<usize>() * size_of::<T>();
        check_bytes(setup, moved.bytes_down + moved.bytes_widened, bytes as u64, &context);
        model.bring(&boxed, 0);
    } else {
        check_bytes(setup, moved.bytes_down + moved.bytes_widened, 0, &context);
    }
    let mut guard = guard;
    if mode.writes() && !boxed.is_empty() {
        model.written(&boxed, 0);
        if let Guard::Write(guard) = &mut guard {
            let first = *stamp;
            *stamp += shape.elements.len() as u64;
            let values: Vec<T> =
                (0..shape.elements.len()).map(|i| T::of(first + i as u64)).collect();
            assert_eq!(guard.copy_from_slice(&values), values.len(), "{context}");
            for (i, element) in shape.elements.iter().enumerate() {
                model.value[*element] = Some(first + i as u64);
            }
        }
    }
    let number = model.held.len();
    model.held.push(Some((boxed, mode.writes())));
    let now = Held { guard, view: shape.clone(), number };
    compare(&now, model, report, &context);
    if rng.below(3) == 0 {
        held.push(now);
    } else {
        model.held[number] = None;
    }
}

/// The one stated exception to "never over-claims": bytes that a widened write defined, which are counted.
fn may_define<T: Value, H: Device, C: Capacity>(
    setup: Setup,
    tree: &Tree<'_, T, H, C, Spin>,
) -> bool {
    (!setup.ample || setup.granule > 1) && tree.counters().defined_by_widening > 0
}

/// With ample capacity the bytes moved are the model's; with scarce capacity they are no fewer than what
/// the map may have known, which only the values can tell.
fn check_bytes(setup: Setup, moved: u64, needed: u64, context: &str) {
    if setup.ample && setup.granule == 1 {
        assert_eq!(moved, needed, "{context}: bytes moved");
    }
}

#[allow(clippy::too_many_arguments)] // both sides of one step
fn launch<'t, T: Value, H: Device, C: Capacity>(
    setup: Setup,
    rng: &mut Rng,
    (view, shape): &Pair<'t, T, H::Driver>,
    (other, other_shape): &Pair<'t, T, H::Driver>,
    device: usize,
    kernels: &[hedgerow::driver::Kernel<H::Driver>; 3],
    model: &mut Model,
    stamp: &mut u64,
    tree: &'t Tree<'_, T, H, C, Spin>,
    report: &mut Report,
) where
    H::Driver: ComputeDriver,
{
    let place = device + 1;
    let kind = rng.below(3);
    let context = format!("{setup:?}: kernel {kind} on device {device}, {view:?}");
    let boxed = model.hull(&shape.elements);
    let source = model.hull(&other_shape.elements);
    let earlier = tree.counters();
    let (result, expected) = match kind {
        0 => (kernels[0].launch((view.as_overwrite(),), *stamp), model.answer(&boxed, false, true)),
        1 => (kernels[1].launch((view.as_update(),), ()), model.answer(&boxed, true, true)),
        _ => {
            let covered = other_shape.elements.len() >= shape.elements.len();
            let mode = if covered { view.as_overwrite() } else { view.as_update() };
            let result = kernels[2].launch((other.as_read(), mode), ());
            let shared = source.iter().any(|element| boxed.contains(element));
            let answers =
                [model.answer(&source, true, false), model.answer(&boxed, !covered, true)];
            if shape.elements.is_empty() {
                (result, Answer::Fine)
            } else if shared || answers.contains(&Answer::Busy) {
                // Which of several reasons is named first is free.
                assert!(result.is_err(), "{context}: views share elements or are held");
                return;
            } else if answers.contains(&Answer::Undefined) {
                (result, Answer::Undefined)
            } else {
                (result, Answer::Fine)
            }
        }
    };
    match (result, expected) {
        (Ok(_), Answer::Fine) => {}
        (Ok(_), Answer::Undefined) if may_define(setup, tree) => {
            model.defined_by_widening(if kind == 2 { &source } else { &boxed });
            if kind == 2 && other_shape.elements.len() < shape.elements.len() {
                model.defined_by_widening(&boxed);
            }
        }
        (Err(Error::Busy(_)), Answer::Busy) => return,
        (Err(Error::Undefined { .. }), Answer::Undefined) => return,
        (Err(Error::Busy(_) | Error::Overlap { .. }), _) if !setup.ample || setup.granule > 1 => {
            return;
        }
        (Err(Error::Full { .. }), _) => return,
        (Err(Error::Driver(_) | Error::Lost { .. }), _) => {
            report.failed += 1;
            return;
        }
        (result, expected) => panic!("{context}: {result:?} instead of {expected:?}"),
    }
    if shape.elements.is_empty() {
        return;
    }
    let moved = tree.counters().since(&earlier);
    let (mut up, mut down) = (0, 0);
    let mut need = |model: &mut Model, boxed: &[usize]| {
        // What only other devices hold goes through the host.
        let missing = model.missing(boxed, place);
        up += missing.iter().sum::<usize>() * size_of::<T>();
        down += missing[1..].iter().sum::<usize>() * size_of::<T>();
        let across: Vec<usize> =
            boxed.iter().copied().filter(|e| !model.fresh[place][*e]).collect();
        model.bring(&across, 0);
        model.bring(boxed, place);
    };
    let whole = covers(shape, &boxed);
    if kind == 2 {
        need(model, &source);
    }
    let reads = kind == 1 || kind == 2 && other_shape.elements.len() < shape.elements.len();
    if reads || !whole {
        need(model, &boxed);
    }
    check_bytes(setup, moved.bytes_up + moved.bytes_widened, up as u64, &context);
    check_bytes(setup, moved.bytes_down, down as u64, &context);
    model.written(&boxed, place);
    match kind {
        0 => {
            for (i, element) in shape.elements.iter().enumerate() {
                model.value[*element] = Some(*stamp + i as u64);
            }
            *stamp += shape.elements.len() as u64;
        }
        1 => {
            for element in &shape.elements {
                model.value[*element] = model.value[*element].map(|v| v + 1);
            }
        }
        _ => {
            let values: Vec<_> =
                other_shape.elements.iter().map(|e| model.value[*e].map(|v| v + 1)).collect();
            for (element, value) in shape.elements.iter().zip(values) {
                model.value[*element] = value;
            }
        }
    }
    report.moved += moved.bytes_up;
}

/// How an operation on a device ended, against what the model says. `true` when it did its work.
fn settle<E: std::fmt::Debug>(
    setup: Setup,
    result: &Result<hedgerow::driver::Ticket, Error<E>>,
    expected: Answer,
    report: &mut Report,
    context: &str,
) -> bool {
    match (result, expected) {
        (Ok(_), Answer::Fine) => return true,
        (Err(Error::Busy(_)), Answer::Busy)
        | (Err(Error::Undefined { .. }), Answer::Undefined)
        | (Err(Error::Full { .. }), _) => {}
        (Err(Error::Busy(_)), _) if !setup.ample => {}
        (Err(Error::Driver(_) | Error::Lost { .. }), _) => report.failed += 1,
        (result, expected) => panic!("{context}: {result:?} instead of {expected:?}"),
    }
    false
}

/// Brings what the device lacks of `boxed` there, on the model: what only other devices have goes home first.
fn fetch(model: &mut Model, boxed: &[usize], place: usize) {
    let across: Vec<usize> =
        boxed.iter().copied().filter(|element| !model.fresh[place][*element]).collect();
    if model.missing(boxed, place)[1..].iter().any(|n| *n > 0) {
        // Only the part that the host lacks too goes home; the model need not tell them apart: what the host
        // has already stays fresh there.
        model.bring(&across, 0);
    }
    model.bring(boxed, place);
}

fn fill<T: Value, D: ComputeDriver>(
    setup: Setup,
    (view, shape): &Pair<'_, T, D>,
    device: usize,
    model: &mut Model,
    stamp: &mut u64,
    report: &mut Report,
) {
    let context = format!("{setup:?}: fill on device {device}, {view:?}");
    let boxed = model.hull(&shape.elements);
    let expected = model.answer(&boxed, false, true);
    let result = view.fill_on(device, T::of(*stamp));
    if !settle(setup, &result, expected, report, &context) {
        return;
    }
    if !covers(shape, &boxed) {
        fetch(model, &boxed, device + 1);
    }
    model.written(&boxed, device + 1);
    for element in &shape.elements {
        model.value[*element] = Some(*stamp);
    }
    *stamp += 1;
}

/// A copy of all but the last to all but the first along an axis, perhaps flipped: the two overlap.
fn shift<T: Value, H: Device, C: Capacity>(
    setup: Setup,
    rng: &mut Rng,
    (view, shape): &Pair<'_, T, H::Driver>,
    device: usize,
    model: &mut Model,
    report: &mut Report,
    tree: &Tree<'_, T, H, C, Spin>,
) where
    H::Driver: ComputeDriver,
{
    let rank = shape.rank();
    let axis = rng.below(rank.max(1) as u64) as usize;
    if rank == 0 || shape.extent[axis] < 2 || shape.elements.is_empty() {
        return;
    }
    let context = format!("{setup:?}: copy on device {device}, axis {axis} of {view:?}");
    let (first, last) = (shape.min[axis], shape.min[axis] + shape.extent[axis]);
    let part = |lo: i64, hi: i64| {
        let (mut from, mut to) = (shape.min.clone(), shape.min.clone());
        to.iter_mut().zip(&shape.extent).for_each(|(to, extent)| *to += extent);
        (from[axis], to[axis]) = (lo, hi);
        (view.crop_axis(axis, lo as i32..hi as i32), shape.crop(&from, &to))
    };
    let ((Ok(a), from), (Ok(mut b), mut to)) = (part(first, last - 1), part(first + 1, last))
    else {
        return; // no nodes left
    };
    if rng.below(2) == 0 {
        let Ok(flipped) = b.flip(axis) else { return };
        (b, to) = (flipped, to.flip(axis));
    }
    let (source, boxed) = (model.hull(&from.elements), model.hull(&to.elements));
    let answers = [model.answer(&source, true, false), model.answer(&boxed, false, true)];
    let expected = if answers.contains(&Answer::Busy) {
        Answer::Busy
    } else if answers.contains(&Answer::Undefined) {
        Answer::Undefined
    } else {
        Answer::Fine
    };
    let result = b.copy_from(&a, device);
    let may_read = may_define(setup, tree);
    if matches!(result, Err(Error::Undefined { .. })) && expected != Answer::Fine {
        return; // busy and undefined: either may be named
    }
    if expected == Answer::Busy && result.is_err() {
        return;
    }
    if expected == Answer::Undefined && result.is_ok() && may_read {
        model.defined_by_widening(&source);
    } else if !settle(setup, &result, expected, report, &context) {
        return;
    }
    fetch(model, &source, device + 1);
    if !covers(&to, &boxed) {
        fetch(model, &boxed, device + 1);
    }
    let values: Vec<_> = from.elements.iter().map(|element| model.value[*element]).collect();
    model.written(&boxed, device + 1);
    for (element, value) in to.elements.iter().zip(values) {
        model.value[*element] = value;
    }
}

/// A detached tree over the view: a kernel on its root, then closed.
#[allow(clippy::too_many_arguments)] // both sides of one step
fn detached<T: Value, H: Device + Clone, C: Capacity>(
    setup: Setup,
    rng: &mut Rng,
    (view, shape): &Pair<'_, T, H::Driver>,
    device: &H,
    kernels: &[hedgerow::driver::Kernel<H::Driver>; 3],
    model: &mut Model,
    stamp: &mut u64,
) where
    H::Driver: ComputeDriver,
{
    let context = format!("{setup:?}: detach of {view:?}");
    let boxed = model.hull(&shape.elements);
    let mode = *rng.pick(&[Mode::Read, Mode::Overwrite, Mode::Update]);
    let expected = model.answer(&boxed, mode.reads(), mode.writes());
    let tree = Builder::new(device.clone()).capacity::<C>().detach(view, mode);
    let tree = match (tree, expected) {
        (Ok(tree), Answer::Fine) => tree,
        (Ok(tree), Answer::Undefined) if !setup.ample || setup.granule > 1 => {
            model.defined_by_widening(&boxed);
            tree
        }
        (Err(Error::Busy(_)), Answer::Busy) => return,
        (Err(Error::Undefined { .. }), Answer::Undefined) => return,
        (Err(Error::Full { .. }), _) => return,
        (Err(Error::Busy(_)), _) if !setup.ample => return,
        (tree, expected) => {
            panic!("{context}: {:?} instead of {expected:?}", tree.map(|_| ()).err())
        }
    };
    if mode.reads() || !covers(shape, &boxed) {
        model.bring(&boxed, 0);
    }
    if mode.writes() && !boxed.is_empty() {
        model.written(&boxed, 0);
    }
    let root = tree.root();
    assert_eq!(root.region().volume(), shape.elements.len() as u64, "{context}");
    if mode == Mode::Read {
        let held = root.read().expect("a read of what is held");
        let rows = held.rows().map_or(0, |rows| rows.flatten().count() as u64);
        assert!(rows == 0 || rows == root.region().volume(), "{context}");
    } else {
        let result = if mode == Mode::Update {
            kernels[1].launch(root.as_update(), ())
        } else {
            kernels[0].launch(root.as_overwrite(), *stamp)
        };
        result.unwrap_or_else(|error| panic!("{context}: {error}"));
    }
    drop(root);
    if rng.below(2) == 0 {
        tree.close().unwrap_or_else(|error| panic!("{context}: {error}"));
    } else {
        drop(tree);
    }
    if mode.writes() {
        for (i, element) in shape.elements.iter().enumerate() {
            model.value[*element] = match mode {
                Mode::Update => model.value[*element].map(|value| value + 1),
                _ => Some(*stamp + i as u64),
            };
        }
        *stamp += shape.elements.len() as u64;
    }
}
