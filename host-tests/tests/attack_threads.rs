//! Threads that own a stripe each and do everything to it, among threads that look at and move everything.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Random, add, stamp, stamped};
use hedgerow::capacity::Capacity;
use hedgerow::driver::{ComputeDriver, Device, DeviceCode, Form, HostKernel, Kernel, KernelSource};
use hedgerow::{Builder, Error, Location, Locked, Locking, Mode, Shape, Tree, View};
use hedgerow_host::Host;

hedgerow::capacity! {
    struct Roomy { words: 512, cuts: 64, nodes: 256, guards: 64, devices: 2, list: 8 }
}
hedgerow::capacity! {
    struct Tight { words: 2, cuts: 4, nodes: 256, guards: 24, devices: 2, list: 1 }
}

const STRIPES: i32 = 5;
const WIDE: i32 = 12;
const HIGH: i32 = 4;

fn seconds() -> u64 {
    std::env::var("ATTACK_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(1)
}

/// A lock for threads that are more than the cores: who waits lets others go on.
struct Yielding;

impl Locking for Yielding {
    type Cell<S: Send> = std::sync::Mutex<S>;

    fn new<S: Send>(value: S) -> Self::Cell<S> {
        std::sync::Mutex::new(value)
    }

    fn with<S: Send, R>(cell: &Self::Cell<S>, f: impl FnOnce(&mut S) -> R) -> Result<R, Locked> {
        Ok(f(&mut cell.lock().unwrap()))
    }

    fn try_with<S: Send, R>(
        cell: &Self::Cell<S>,
        f: impl FnOnce(&mut S) -> R,
    ) -> Result<R, Locked> {
        cell.try_lock().map(|mut value| f(&mut value)).map_err(|_| Locked)
    }

    fn relax() {
        std::thread::yield_now();
    }
}

const STAMP: &str = "
struct Call { views: array<View, 1>, p: i32 }
@group(0) @binding(0) var<storage, read> call: Call;
@group(0) @binding(1) var<storage, read_write> image: array<i32>;
@compute @workgroup_size(4, 4, 1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let extent = call.views[0].extent;
    if (id.x >= extent[0] || id.y >= extent[1]) { return; }
    let x = call.views[0].first[0] + i32(id.x);
    let y = call.views[0].first[1] + i32(id.y);
    image[view_byte(0u, id) / 4u] = x * 100 + y + call.p * 10000;
}";

const ADD: &str = "
struct Call { views: array<View, 1>, p: i32 }
@group(0) @binding(0) var<storage, read> call: Call;
@group(0) @binding(1) var<storage, read_write> image: array<i32>;
@compute @workgroup_size(4, 4, 1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let extent = call.views[0].extent;
    if (id.x >= extent[0] || id.y >= extent[1]) { return; }
    image[view_byte(0u, id) / 4u] += call.p;
}";

/// A kernel for hosts and for Vulkan.
fn load<D: ComputeDriver>(gpu: &D, host: HostKernel, wgsl: &str) -> Kernel<D> {
    let text = [hedgerow_vulkan::layout::WGSL, wgsl].concat();
    // SAFETY: both write the elements of the view that they are given to write, and end.
    let code = unsafe { DeviceCode::new(text.as_str(), "main") };
    let forms = [Form::Host(host), Form::Wgsl(code)];
    let source =
        KernelSource { name: "test", views: 1, workgroup: [4, 4, 1], granule: 4, forms: &forms };
    gpu.load(&source).expect("a form")
}

/// Whether a call went through; `false` for what may be refused at any time here.
fn went<R, E: std::fmt::Debug>(result: Result<R, Error<E>>) -> bool {
    match result {
        Ok(_) => true,
        Err(Error::Busy(_) | Error::Full { .. }) => false,
        Err(error) => panic!("{error:?}"),
    }
}

/// One owner's next step; `state` says what the stripe holds: `stamped(x, y, state)`.
fn own<D: ComputeDriver>(
    view: &View<'_, i32, D>,
    random: &mut Random,
    state: &mut i32,
    kernels: &[(hedgerow::driver::Kernel<D>, hedgerow::driver::Kernel<D>)],
    gpus: u64,
) {
    let device = random.below(gpus) as usize;
    let next = *state + 1;
    match random.below(12) {
        0 => {
            if let Ok(mut guard) = view.update() {
                guard.fill_with(|[x, y]| stamped(x, y, next));
                *state = next;
            }
        }
        1 => {
            if let Ok(mut guard) = view.overwrite() {
                guard.fill_with(|[x, y]| stamped(x, y, next));
                *state = next;
            }
        }
        2 | 3 => {
            if went(kernels[device].0.launch(view.as_overwrite(), next)) {
                *state = next;
            }
        }
        4 | 5 => {
            if went(kernels[device].1.launch(view.as_update(), 10_000)) {
                *state = next;
            }
        }
        6 => {
            if went(kernels[device].1.try_launch(view.as_update(), 10_000)) {
                *state = next;
            }
        }
        7 => drop(went(view.prefetch(device))),
        8 => {
            if let Ok(mut pending) = view.begin_update() {
                let until = Instant::now() + Duration::from_secs(20);
                loop {
                    match pending.poll() {
                        Ok(std::task::Poll::Ready(mut guard)) => {
                            guard.fill_with(|[x, y]| stamped(x, y, next));
                            *state = next;
                            break;
                        }
                        Ok(std::task::Poll::Pending) => std::thread::yield_now(),
                        Err(error) => panic!("{error:?}"),
                    }
                    assert!(Instant::now() < until, "never ready");
                }
            }
        }
        9 => {
            if let Ok(guard) = view.read() {
                for y in 0..HIGH {
                    for x in 0..WIDE {
                        let at = [x, view.min(1) + y];
                        assert_eq!(guard[at], stamped(at[0], at[1], *state), "at {at:?}");
                    }
                }
            }
        }
        10 => {
            let left = view.crop_axis(0, 0..WIDE / 2);
            let right = view.crop_axis(0, WIDE / 2..WIDE);
            if let (Ok(left), Ok(right)) = (left, right) {
                let mut out = vec![0; left.extent(0) as usize * HIGH as usize];
                if went(left.read_into(&mut out)) {
                    assert_eq!(out[0], stamped(0, view.min(1), *state));
                }
                let _ = right.try_read();
            }
        }
        _ => {
            let y = view.min(1);
            let row = view.crop_axis(1, y..y + 1);
            if let Ok(row) = row {
                let mut first = vec![0; WIDE as usize];
                if went(row.read_into(&mut first)) {
                    assert_eq!(first[1], stamped(1, y, *state));
                }
            }
        }
    }
}

fn hammer<'d, D: ComputeDriver + 'd, H: Device<Driver = D>, C: Capacity, L: Locking>(
    tree: &Tree<'_, i32, H, C, L>,
    gpus: &[&'d D],
) {
    let stop = AtomicBool::new(false);
    let steps: [AtomicU64; 8] = std::array::from_fn(|_| AtomicU64::new(0));
    let kernels: Vec<_> =
        gpus.iter().map(|gpu| (load(*gpu, stamp, STAMP), load(*gpu, add, ADD))).collect();
    let count = gpus.len() as u64;
    // No thread may stand still.
    std::thread::scope(|scope| {
        for stripe in 0..STRIPES {
            let (stop, steps, kernels) = (&stop, &steps, &kernels);
            scope.spawn(move || {
                let mut random = Random::new(stripe as u64 + 11);
                let mut state = 0;
                let view = loop {
                    let all = [0..WIDE, stripe * HIGH..(stripe + 1) * HIGH];
                    if let Ok(view) = tree.root().crop(all) {
                        break view;
                    }
                };
                while !stop.load(Ordering::Relaxed) {
                    own(&view, &mut random, &mut state, kernels, count);
                    steps[stripe as usize].fetch_add(1, Ordering::Relaxed);
                }
                for _ in 0..1000 {
                    if let Ok(guard) = view.read() {
                        let at = [3, view.min(1) + 2];
                        assert_eq!(guard[at], stamped(at[0], at[1], state));
                        return;
                    }
                    std::thread::yield_now();
                }
            });
        }
        for other in 5..8usize {
            let (stop, steps) = (&stop, &steps);
            scope.spawn(move || {
                let mut random = Random::new(other as u64 + 100);
                let root = tree.root();
                while !stop.load(Ordering::Relaxed) {
                    match random.below(12) {
                        0 => drop(went(tree.sync())),
                        1 | 2 => drop(went(tree.evict(random.below(count) as usize))),
                        3 => drop(went(tree.release())),
                        4 => drop(format!("{tree}")),
                        5 => tree.check().unwrap(),
                        6 => drop(went(root.read())),
                        7 => {
                            let column = random.below(WIDE as u64) as i32;
                            if let Ok(view) = root.slice(0, column) {
                                let _ = went(view.read());
                                let _ = went(view.prefetch(random.below(count) as usize));
                            }
                        }
                        8 => drop(went(root.plan(Location::Device(0), Mode::Read))),
                        9 => root.for_each_fresh(Location::Host, |_| {}),
                        10 => {
                            if let Ok(mut pending) = root.begin_read() {
                                let _ = went(pending.poll());
                            }
                        }
                        _ => drop(went(root.try_read())),
                    }
                    steps[other].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let end = Instant::now() + Duration::from_secs(seconds());
        let mut seen = [0; 8];
        let mut stuck = [Instant::now(); 8];
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(100));
            for (i, step) in steps.iter().enumerate() {
                let now = step.load(Ordering::Relaxed);
                if now != seen[i] {
                    (seen[i], stuck[i]) = (now, Instant::now());
                }
                if stuck[i].elapsed() > Duration::from_secs(15) {
                    eprintln!("thread {i} stands still: {seen:?}\n{tree}");
                    std::process::abort();
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        if std::env::var("ATTACK_SECONDS").is_ok() {
            eprintln!("{:?}", steps);
        }
    });
    tree.check().unwrap();
    assert_eq!(tree.live_accesses(), 0);
}

fn filled() -> Vec<i32> {
    (0..STRIPES * HIGH).flat_map(|y| (0..WIDE).map(move |x| stamped(x, y, 0))).collect()
}

fn on_hosts<C: Capacity>(peers: bool, poison: bool, unified: bool) {
    let gpus = [(); 2].map(|()| Host::new().peer_copies(peers).unified(unified));
    let shape = Shape::packed([WIDE as u32, (STRIPES * HIGH) as u32]);
    let mut pixels = filled();
    let builder = || Builder::new(&gpus[0]).device(&gpus[1]).capacity::<C>().poison(poison);
    if unified {
        let tree = builder().owned::<i32>(shape).unwrap();
        tree.root().overwrite().unwrap().copy_from_slice(&pixels);
        hammer(&tree, &[&gpus[0], &gpus[1]]);
        tree.close().unwrap();
    } else {
        let tree = builder().over(&mut pixels, shape).unwrap();
        hammer(&tree, &[&gpus[0], &gpus[1]]);
        tree.close().unwrap();
    }
}

#[test]
fn roomy() {
    on_hosts::<Roomy>(false, false, false);
}

#[test]
fn roomy_peers() {
    on_hosts::<Roomy>(true, false, false);
}

#[test]
fn roomy_poison() {
    on_hosts::<Roomy>(true, true, false);
}

#[test]
fn roomy_unified() {
    on_hosts::<Roomy>(false, false, true);
}

#[test]
fn tight() {
    on_hosts::<Tight>(false, false, false);
}

#[test]
fn tight_poison() {
    on_hosts::<Tight>(true, true, false);
}

#[test]
fn tight_unified() {
    on_hosts::<Tight>(true, true, true);
}

fn on_vulkan(limits: hedgerow_vulkan::LimitsOverride, handles: usize, owned: bool) {
    let open = || hedgerow_vulkan::Vulkan::builder().limits(limits).open();
    let Ok(first) = open() else { return };
    let gpus: Vec<_> =
        std::iter::once(first).chain((1..handles).filter_map(|_| open().ok())).collect();
    let shape = Shape::packed([WIDE as u32, (STRIPES * HIGH) as u32]);
    let mut pixels = filled();
    let builder = gpus[1..].iter().fold(Builder::new(&gpus[0]), |builder, gpu| builder.device(gpu));
    let builder = builder.capacity::<Roomy>().lock::<Yielding>();
    let all: Vec<_> = gpus.iter().collect();
    if owned {
        let tree = builder.owned::<i32>(shape).unwrap();
        tree.root().overwrite().unwrap().copy_from_slice(&pixels);
        hammer(&tree, &all);
        tree.close().unwrap();
    } else {
        let tree = builder.over(&mut pixels, shape).unwrap();
        hammer(&tree, &all);
        tree.close().unwrap();
    }
}

#[test]
fn vulkan() {
    on_vulkan(Default::default(), 1, false);
}

#[test]
fn vulkan_owned_strict() {
    on_vulkan(hedgerow_vulkan::LimitsOverride::strict(), 1, true);
}

#[test]
fn vulkan_twice() {
    on_vulkan(Default::default(), 2, false);
}

#[test]
fn vulkan_twice_owned_strict() {
    on_vulkan(hedgerow_vulkan::LimitsOverride::strict(), 2, true);
}
