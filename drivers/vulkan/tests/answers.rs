//! Each raw Vulkan call of a program fails in turn: by losing the device, for want of memory, or in time.
//!
//! The program is data, so that a step that failed can be done again. Beside it runs a dense model: each
//! element's value, and who holds it.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{SECONDS, open_with, silent, spirv};
use hedgerow::driver::{
    ComputeDriver, Contents, DeviceCode, DeviceDriver, DriverError, ErrorKind, Form, Kernel,
    KernelSource,
};
use hedgerow::{Error, Location, Region, Shape, Tree};
use hedgerow_vulkan::ash::vk;
use hedgerow_vulkan::{LimitsOverride, Vulkan, VulkanError, layout};

const ADD: &str = "
struct Call { views: array<View, 1>, more: i32 }
@group(0) @binding(0) var<storage, read> call: Call;
@group(0) @binding(1) var<storage, read_write> image: array<i32>;
@compute @workgroup_size(8, 4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let extent = call.views[0].extent;
    if (id.x >= extent[0] || id.y >= extent[1] || id.z >= extent[2]) { return; }
    image[view_byte(0u, id) / 4u] += call.more;
}";

const WIDTH: usize = 48;
const HEIGHT: usize = 40;

type Box2 = [std::ops::Range<i32>; 2];

/// What can be done to a tree, on a box of it.
#[derive(Clone, Debug)]
enum Step {
    Load,
    Fill(Box2, i32),
    Add(Box2, i32),
    Copy(Box2, Box2),
    Read(Box2),
    Update(Box2, i32),
    Overwrite(Box2, i32),
    Flush,
    Release,
}

/// Every kind of call that the driver has, in an order in which host and device need each other's bytes.
fn program() -> Vec<Step> {
    use Step::*;
    vec![
        Load,
        Fill([4..20, 3..17], 7),
        Add([0..30, 0..20], 1),
        Read([10..24, 5..30]),
        Update([20..48, 10..40], 100),
        Copy([0..16, 0..10], [30..46, 25..35]),
        Flush,
        Add([25..48, 20..40], 2),
        Overwrite([0..10, 30..40], -4),
        Read([28..40, 22..38]),
        Add([0..48, 0..40], 3),
        Release,
        Fill([1..47, 1..3], 9),
        Add([2..40, 2..9], 4),
    ]
}

/// A device on which small programs meet every path: staging in pieces, flushes, no shared memory.
fn open() -> Option<Vulkan> {
    let mut limits = LimitsOverride::strict();
    limits.staging_chunk = Some(4096);
    limits.staging_chunks = Some(2);
    open_with(limits, None)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Element {
    /// `None`: nobody's.
    value: Option<i32>,
    host: bool,
    device: bool,
}

/// All elements, x fastest.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Model(Vec<Element>);

fn elements(region: &Box2) -> Vec<usize> {
    let [xs, ys] = region.clone();
    ys.flat_map(|y| xs.clone().map(move |x| y as usize * WIDTH + x as usize)).collect()
}

fn elements_of(region: &Region) -> Vec<usize> {
    elements(&[region.range(0), region.range(1)])
}

impl Model {
    fn new(values: &[i32]) -> Self {
        let all = values.iter().map(|v| Element { value: Some(*v), host: true, device: false });
        Self(all.collect())
    }

    fn bring(&mut self, region: &Box2, to_device: bool) {
        for e in elements(region) {
            let element = &mut self.0[e];
            if to_device { element.device = true } else { element.host = true }
        }
    }

    fn write(&mut self, e: usize, value: i32, on_device: bool) {
        self.0[e] = Element { value: Some(value), host: !on_device, device: on_device };
    }

    /// What a step does where it works.
    fn apply(&mut self, step: &Step) {
        let value = |model: &Self, e: usize| model.0[e].value.expect("somebody's");
        match step {
            Step::Load | Step::Flush => {}
            Step::Fill(at, v) => elements(at).iter().for_each(|e| self.write(*e, *v, true)),
            Step::Overwrite(at, v) => elements(at).iter().for_each(|e| self.write(*e, *v, false)),
            Step::Add(at, v) | Step::Update(at, v) => {
                for e in elements(at) {
                    let sum = value(self, e) + v;
                    self.write(e, sum, matches!(step, Step::Add(..)));
                }
            }
            Step::Copy(from, to) => {
                self.bring(from, true);
                for (from, to) in elements(from).into_iter().zip(elements(to)) {
                    let copied = value(self, from);
                    self.write(to, copied, true);
                }
            }
            Step::Read(at) => self.bring(at, false),
            Step::Release => {
                for element in &mut self.0 {
                    *element = Element { host: true, device: false, ..*element };
                }
            }
        }
    }

    /// The device is gone: the elements that only it held.
    fn lose(&mut self) -> Vec<usize> {
        let mut lost = Vec::new();
        for (e, element) in self.0.iter_mut().enumerate() {
            if element.device && !element.host {
                lost.push(e);
                element.value = None;
            }
            element.device = false;
        }
        lost
    }
}

type Failure = Error<VulkanError>;

/// A tree with its model.
struct Bench<'t, 'm> {
    tree: &'t Tree<'m, i32, Vulkan>,
    gpu: Vulkan,
    kernel: Option<Kernel<Vulkan>>,
    model: Model,
}

impl Bench<'_, '_> {
    #[allow(clippy::result_large_err, reason = "the tree's own error")]
    fn call(&mut self, step: &Step) -> Result<(), Failure> {
        let root = self.tree.root();
        match step {
            Step::Load => {
                let text = format!("{}{ADD}", layout::WGSL);
                let words = spirv(&text, "main");
                // SAFETY: the kernel keeps to its view, and ends.
                let forms = [Form::Spirv(unsafe { DeviceCode::new(words.as_slice(), "main") })];
                let workgroup = [8, 4, 1];
                let source =
                    KernelSource { name: "add", views: 1, workgroup, granule: 4, forms: &forms };
                self.kernel = Some(self.gpu.load(&source)?);
            }
            Step::Fill(at, value) => {
                root.crop(at.clone())?.fill_on(0, *value)?;
            }
            Step::Add(at, value) => {
                let kernel = self.kernel.as_ref().expect("loaded");
                kernel.launch((root.crop(at.clone())?.as_update(),), *value)?;
            }
            Step::Copy(from, to) => {
                root.crop(to.clone())?.copy_from(&root.crop(from.clone())?, 0)?;
            }
            Step::Read(at) => {
                let guard = root.crop(at.clone())?.read()?;
                let mut seen = vec![0; elements(at).len()];
                guard.copy_to_slice(&mut seen);
                let expected: Vec<_> =
                    elements(at).iter().map(|e| self.model.0[*e].value).collect();
                assert!(seen.iter().map(|v| Some(*v)).eq(expected), "{step:?} reads {seen:?}");
            }
            Step::Update(at, more) => {
                let mut guard = root.crop(at.clone())?.update()?;
                for row in guard.rows_mut().expect("rows") {
                    row.iter_mut().for_each(|value| *value += more);
                }
            }
            Step::Overwrite(at, value) => root.crop(at.clone())?.overwrite()?.fill(*value),
            Step::Flush => self.gpu.flush().map_err(Error::Driver)?,
            Step::Release => self.tree.release()?,
        }
        Ok(())
    }

    /// The tree says of each element's holders what the model says.
    fn agree(&self, when: &str) {
        assert_eq!(self.tree.check(), Ok(()), "{when}");
        assert_eq!(self.tree.live_accesses(), 0, "{when}");
        let holds = |location| {
            let mut holds = vec![false; WIDTH * HEIGHT];
            self.tree.root().for_each_fresh(location, |region| {
                elements_of(&region).into_iter().for_each(|e| holds[e] = true);
            });
            holds
        };
        let model = |of: fn(&Element) -> bool| self.model.0.iter().map(of).collect::<Vec<_>>();
        assert!(holds(Location::Host) == model(|e| e.host), "{when}: what the host holds");
        assert!(holds(Location::Device(0)) == model(|e| e.device), "{when}: what the device holds");
    }

    /// The device is lost: exactly what only it held is reported; it stays lost; the host goes on.
    fn survive(&mut self, error: &Failure, when: &str) {
        let before = self.model.clone();
        let expected = self.model.lose();
        let mut lost = Vec::new();
        self.tree.take_lost(|region| lost.push(region));
        match error {
            Error::Lost { region, boxes, .. } => {
                assert_eq!(
                    (lost.first(), lost.len()),
                    (region.as_ref(), *boxes as usize),
                    "{when}"
                );
            }
            // A call that is of no tree: the tree learns of it by its next call.
            error => {
                assert_eq!(error.kind(), Some(ErrorKind::DeviceLost), "{when}: {error}");
                let answer = self.tree.root().fill_on(0, 1);
                assert!(matches!(answer, Err(Error::Lost { .. })), "{when}: {answer:?}");
                self.tree.take_lost(|region| lost.push(region));
            }
        }
        let mut elements: Vec<_> = lost.iter().flat_map(elements_of).collect();
        elements.sort_unstable();
        assert_eq!(elements, expected, "{when}: lost, each element once; before {:?}", before.0[0]);
        self.agree(when);

        let one_way =
            |error: VulkanError| assert_eq!(error.kind(), ErrorKind::DeviceLost, "{when}");
        one_way(self.gpu.allocate(64, Contents::Zeroed).expect_err("lost"));
        one_way(self.gpu.flush().expect_err("lost"));
        one_way(self.gpu.wait(hedgerow::driver::Ticket::DONE, SECONDS).expect_err("lost"));
        let again = self.call(&Step::Fill([0..1, 0..1], 1));
        assert!(matches!(again, Err(Error::Lost { boxes: 0, .. })), "{when}: {again:?}");

        for e in expected {
            let (x, y) = ((e % WIDTH) as i32, (e / WIDTH) as i32);
            let step = Step::Overwrite([x..x + 1, y..y + 1], e as i32);
            self.call(&step).expect("what was lost is written anew");
            self.model.apply(&step);
        }
        self.call(&Step::Read([0..WIDTH as i32, 0..HEIGHT as i32])).expect("all is the host's");
    }
}

/// Which call fails, and how.
type Fails = Option<(usize, vk::Result, bool)>;

/// Runs the program on a device. Returns the calls, and the kinds of the errors that came back.
fn run(gpu: &Vulkan, fails: Fails) -> (Vec<&'static str>, Vec<ErrorKind>) {
    let when = format!("{fails:?}");
    let mut memory: Vec<i32> = (0..(WIDTH * HEIGHT) as i32).collect();
    let mut errors = Vec::new();
    let (calls, model) = {
        let model = Model::new(&memory);
        let tree =
            Tree::over(&mut memory, Shape::packed([WIDTH as u32, HEIGHT as u32]), gpu.clone());
        let tree = tree.expect("a tree");
        gpu.script(fails);
        let mut bench = Bench { tree: &tree, gpu: gpu.clone(), kernel: None, model };
        'program: for step in program() {
            while let Err(error) = bench.call(&step) {
                let kind = error.kind().unwrap_or_else(|| panic!("{when}: {step:?}: {error}"));
                errors.push(kind);
                assert!(errors.len() < 3, "{when}: it does not end: {error}");
                if kind == ErrorKind::DeviceLost {
                    bench.survive(&error, &when);
                    break 'program;
                }
                bench.agree(&when);
            }
            bench.model.apply(&step);
            bench.agree(&when);
        }
        let model = bench.model.clone();
        drop(bench);
        let mut open = Some(tree);
        while let Some(tree) = open.take() {
            if let Err(failed) = tree.close() {
                errors.push(failed.error.kind().expect("a driver's"));
                if let Error::Lost { .. } = failed.error {
                    let mut model = model.clone();
                    let lost = model.lose();
                    let mut told = 0;
                    failed.tree.take_lost(|region| told += region.volume());
                    // A part may have come home before.
                    assert!(told > 0 && told <= lost.len() as u64, "{when}: {told} elements");
                    failed.tree.discard();
                    return (gpu.scripted(), errors);
                }
                assert!(errors.len() < 3, "{when}: it does not end");
                open = Some(failed.tree);
            }
        }
        (gpu.scripted(), model)
    };
    let expected: Vec<_> = model.0.iter().map(|element| element.value).collect();
    assert!(memory.iter().map(|value| Some(*value)).eq(expected), "{when}: the bytes at the end");
    (calls, errors)
}

/// One test after the other: between them they make hundreds of devices, and the table in which validation layer
/// 1.3.239 looks a device up is not locked against another that is made or destroyed meanwhile.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What calls may answer for want of something, and go on.
#[test]
fn every_call_fails_for_want_of_memory() {
    let _alone = alone();
    let Some(gpu) = open() else { return };
    let (clean, errors) = run(&gpu, None);
    assert!(clean.len() > 60 && errors.is_empty(), "{clean:?}");
    let (again, _) = run(&gpu, None);
    drop(gpu);

    let (mut told, mut calls) = (0, 0);
    for answer in [vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, vk::Result::ERROR_OUT_OF_HOST_MEMORY] {
        let Some(mut gpu) = open() else { return };
        let mut log = gpu.validation_log();
        // The first run makes what later ones find.
        for (at, call) in clean.iter().enumerate() {
            let (seen, errors) = run(&gpu, Some((at, answer, false)));
            calls += 1;
            told += errors.len();
            match seen.get(at) {
                // An end that fails takes accepted work along: the device counts as lost.
                Some(&"vkEndCommandBuffer") => assert_eq!(errors, [ErrorKind::DeviceLost]),
                // Later programs find pools and layouts ready, and make fewer calls.
                None => assert!(errors.is_empty() && again.len() < clean.len(), "{call}"),
                Some(_) => assert!(errors.iter().all(|kind| *kind == ErrorKind::OutOfMemory)),
            }
            if errors.contains(&ErrorKind::DeviceLost) {
                drop(gpu);
                silent(&log);
                let Some(next) = open() else { return };
                (log, gpu) = (next.validation_log(), next);
            }
        }
        // Nothing is left behind by all these failures, or the layer would name it.
        drop(gpu);
        silent(&log);
    }
    println!("{calls} calls failed, {told} errors came back");
    assert!(told * 2 > calls, "most come back: {told} of {calls}");
}

/// A wait that answers too early that its time is over is gone on with, or told of, and changes nothing.
#[test]
fn every_wait_times_out() {
    let _alone = alone();
    let Some(gpu) = open() else { return };
    let (calls, _) = run(&gpu, None);
    drop(gpu);
    let mut waits = 0;
    for at in (0..calls.len()).filter(|at| calls[*at] == "vkWaitSemaphores") {
        let Some(gpu) = open() else { return };
        let log = gpu.validation_log();
        let (seen, errors) = run(&gpu, Some((at, vk::Result::TIMEOUT, false)));
        // How far the device is decides where it is looked at: at times another call is the one.
        if seen.get(at) == Some(&"vkWaitSemaphores") {
            waits += 1;
            assert!(errors.iter().all(|kind| *kind == ErrorKind::Timeout), "{errors:?}");
        }
        drop(gpu);
        silent(&log);
    }
    assert!(waits > 3, "{calls:?}");
}

/// The device is lost at each call, before the call does its work and, for submissions, after.
#[test]
fn every_call_loses_the_device() {
    let _alone = alone();
    let Some(gpu) = open() else { return };
    let (calls, _) = run(&gpu, None);
    drop(gpu);
    let mut lost = std::collections::BTreeMap::new();
    for (at, call) in calls.iter().enumerate() {
        for made in [false, true] {
            if made && *call != "vkQueueSubmit" {
                continue;
            }
            let Some(gpu) = open() else { return };
            let log = gpu.validation_log();
            let (seen, errors) = run(&gpu, Some((at, vk::Result::ERROR_DEVICE_LOST, made)));
            // How far the device is decides where it is looked at, and so which call this is.
            match seen.get(at) {
                Some(call) => {
                    assert_eq!(errors, [ErrorKind::DeviceLost], "at {at}, {call}");
                    *lost.entry(*call).or_insert(0) += 1;
                }
                None => assert!(errors.is_empty(), "at {at}: {errors:?}"),
            }
            let start = Instant::now();
            drop(gpu);
            assert!(start.elapsed() < Duration::from_secs(5), "closing a lost device waits");
            silent(&log);
        }
    }
    println!("lost at {lost:?}");
    let met = |call| lost.get(call).is_some_and(|times| *times > 2);
    assert!(["vkQueueSubmit", "vkWaitSemaphores", "vkBeginCommandBuffer"].into_iter().all(met));
}

/// The closing wait fails: what is in use is leaked rather than freed, and closing does not hang.
#[test]
fn the_closing_wait_fails() {
    let _alone = alone();
    for answer in [vk::Result::ERROR_DEVICE_LOST, vk::Result::ERROR_OUT_OF_HOST_MEMORY] {
        let Some(gpu) = open() else { return };
        let log = gpu.validation_log();
        let memory = gpu.allocate(1 << 16, Contents::Zeroed).expect("allocates");
        gpu.flush().expect("submits");
        gpu.script(Some((0, answer, false)));
        let start = Instant::now();
        drop((memory, gpu));
        assert!(start.elapsed() < Duration::from_secs(5), "closing waits");
        silent(&log);
    }
}
