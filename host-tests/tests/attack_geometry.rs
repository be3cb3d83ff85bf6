//! Extremes of everything that a caller may give, on drivers that have no room: no call may panic.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use common::Random;
use hedgerow::driver::DeviceDriver;
use hedgerow::{Builder, Element, Location, MAX_RANK, Mode, Region, Shape, View};
use hedgerow_host::Host;

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}

const EXTENTS: [u32; 12] =
    [0, 1, 1, 2, 3, 5, 255, 65_536, 0x7fff_ffff, 0x8000_0000, u32::MAX - 1, u32::MAX];
const SMALL: [u32; 6] = [0, 1, 2, 3, 4, 5];
const COORDS: [i32; 14] = [
    i32::MIN,
    i32::MIN + 1,
    -65_536,
    -3,
    -1,
    0,
    0,
    1,
    2,
    5,
    65_536,
    i32::MAX - 5,
    i32::MAX - 1,
    i32::MAX,
];
const STRIDES: [i64; 16] = [
    i64::MIN,
    i64::MIN + 1,
    -(1 << 40),
    -100,
    -5,
    -1,
    0,
    1,
    1,
    2,
    5,
    30,
    1 << 32,
    1 << 40,
    1 << 62,
    i64::MAX,
];

fn near(random: &mut Random, lo: i32, hi: i32) -> i32 {
    match random.below(6) {
        0 => pick(random, &COORDS),
        1 => lo,
        2 => hi,
        3 => lo.wrapping_add(1),
        4 => hi.wrapping_sub(1),
        _ => lo.wrapping_add((i64::from(hi) - i64::from(lo)).div_euclid(2) as i32),
    }
}

fn derive<'t, T: Element, D: DeviceDriver>(
    random: &mut Random,
    view: &View<'t, T, D>,
) -> Option<View<'t, T, D>> {
    let rank = view.rank();
    let axis = random.below(rank as u64 + 1) as usize;
    let region = view.region();
    match random.below(8) {
        0 => {
            let mut wanted = region;
            for a in 0..rank {
                let (lo, hi) = (region.lo(a), region.hi(a));
                wanted.set(a, near(random, lo, hi), near(random, lo, hi));
            }
            view.crop(wanted).ok()
        }
        1 => {
            let (lo, hi) = (region.lo(axis), region.hi(axis));
            view.crop_axis(axis, near(random, lo, hi)..near(random, lo, hi)).ok()
        }
        2 => view.slice(axis, near(random, region.lo(axis), region.hi(axis))).ok(),
        3 => match rank {
            0 => view.translate([]).ok(),
            1 => view.translate([pick(random, &COORDS)]).ok(),
            2 => view.translate([pick(random, &COORDS), pick(random, &COORDS)]).ok(),
            3 => view
                .translate([pick(random, &COORDS), pick(random, &COORDS), pick(random, &COORDS)])
                .ok(),
            _ => view.translate([pick(random, &COORDS); MAX_RANK]).ok(),
        },
        4 => match rank {
            2 => view.permute([1, 0]).ok(),
            3 => view.permute([2, 0, 1]).ok(),
            _ => view.permute([0, usize::MAX]).ok(),
        },
        5 | 6 => {
            view.step_by(axis, pick(random, &[i32::MIN, -1, 0, 1, 2, 3, 46_341, i32::MAX])).ok()
        }
        _ => view.flip(axis).ok(),
    }
}

fn use_it<T: Element>(
    random: &mut Random,
    view: &View<'_, T, Host<'static>>,
    gpu: &Host<'static>,
    value: T,
) {
    let _ = format!("{view:?} {:?} {}", view.region(), view.root_region());
    let _ = (view.map().volume(), view.map().is_empty(), view.map().covers_its_box());
    let kernel = common::load(gpu, 1, |_| Ok(()));
    for mode in [Mode::Read, Mode::Overwrite, Mode::Update] {
        for location in [Location::Host, Location::Device(0), Location::Device(255)] {
            let _ = view.plan(location, mode);
        }
    }
    match random.below(14) {
        0 => drop(view.read().map(|guard| {
            let _ =
                (guard.as_slice().map(<[T]>::len), guard.rows().map(|rows| rows.take(3).count()));
            let at = [pick(random, &COORDS); 2];
            let _ = (
                guard.get(at),
                guard.row(at).map(<[T]>::len),
                guard.get([]),
                guard.row([]).is_some(),
            );
            let mut out = [value; 3];
            guard.copy_to_slice(&mut out)
        })),
        1 => drop(view.overwrite().map(|mut guard| {
            if guard.region().volume() < 100_000 {
                guard.fill(value);
                guard.fill_with(|_: [i32; 2]| value);
                for row in guard.rows_mut().into_iter().flatten() {
                    row.fill(value);
                }
            }
            guard.copy_from_slice(&[value; 3])
        })),
        2 => drop(view.update().map(|mut guard| {
            let at = [pick(random, &COORDS); 1];
            (guard.get_mut(at).is_some(), guard.row_mut(at).is_some()) == (true, true)
        })),
        3 => drop(view.fill_on(0, value)),
        4 => drop(view.prefetch(0)),
        5 => drop(kernel.launch(view.as_update(), 0)),
        6 => drop(kernel.launch(view.as_overwrite(), [0u8; 128])),
        7 => drop(kernel.launch_groups(view.as_overwrite(), 0, [u32::MAX; 3])),
        8 => drop(view.assume_fresh(pick(
            random,
            &[Location::Host, Location::Device(0), Location::Device(9)],
        ))),
        9 => drop(view.copy_from(view, 0)),
        10 => drop(view.read_into(&mut [value; 30])),
        11 => drop(view.on_device(0, Mode::Update).map(|access| format!("{access:?}"))),
        12 => {
            if let Ok(detached) = Builder::new(gpu).detach(view, Mode::Update) {
                let _ = detached.root().fill_on(0, value);
                let _ = format!("{detached}");
                let _ = detached.close().map_err(|failed| failed.tree.discard());
            }
        }
        _ => drop(view.begin_read().and_then(|mut pending| pending.poll().map(|_| ()))),
    }
    view.for_each_fresh(Location::Device(0), |_| {});
    view.for_each_fresh(Location::Device(255), |_| {});
}

fn shape(random: &mut Random, rank: u64, small: bool) -> Shape {
    let mut extents = [0u32; 5];
    let mut strides = [0i64; 5];
    let mut mins = [0i32; 5];
    let mut next = 1;
    for axis in 0..5 {
        extents[axis] = if small { pick(random, &SMALL) } else { pick(random, &EXTENTS) };
        let sign = if random.below(4) == 0 { -1 } else { 1 };
        strides[axis] = if small || random.below(2) == 0 {
            let stride = next * sign;
            next *= i64::from(extents[axis]).clamp(1, 1 << 12) + random.below(3) as i64;
            stride
        } else {
            pick(random, &STRIDES)
        };
        mins[axis] = if random.below(2) == 0 { 0 } else { pick(random, &COORDS) };
    }
    macro_rules! of {
        ($n:expr) => {
            Shape::strided::<$n>(
                extents[..$n].try_into().unwrap(),
                strides[..$n].try_into().unwrap(),
            )
            .min::<$n>(mins[..$n].try_into().unwrap())
        };
    }
    match rank {
        0 => of!(0),
        1 => of!(1),
        2 => of!(2),
        3 => of!(3),
        4 => of!(4),
        _ => of!(5),
    }
}

hedgerow::capacity! {
    struct Least { words: 1, cuts: 1, nodes: 2, guards: 1, devices: 1, list: 1 }
}

fn run<T: Element>(seed: u64, value: T) {
    let mut random = Random::new(seed);
    let random = &mut random;
    let small = random.below(2) == 0;
    let rank = random.below(6);
    let shape = shape(random, rank, small);
    let gpu = Host::with_capacity(1 << 16).unified(random.below(3) == 0).bind_align(16);
    let mut storage = vec![value; 4000];
    let kind = random.below(4);
    let least = random.below(3) == 0;
    macro_rules! drive {
        ($tree:expr) => {
            if let Ok(tree) = $tree {
                let _ = format!("{tree} {tree:?} {:?}", tree.device_layout());
                let mut views = vec![tree.root()];
                for _ in 0..12 {
                    let of = random.below(views.len() as u64) as usize;
                    if let Some(view) = derive(random, &views[of]) {
                        views.push(view);
                    }
                    let of = random.below(views.len() as u64) as usize;
                    use_it(random, &views[of], &gpu, value);
                    tree.check().unwrap();
                    if random.below(8) == 0 {
                        let _ = (tree.sync(), tree.evict(0), tree.release());
                    }
                    if random.below(4) == 0 {
                        views.truncate(3);
                    }
                }
                let _ = format!("{tree}");
                tree.for_each_live_view(|_, region: &Region| drop(format!("{region}")));
                drop(views);
                if let Err(failed) = tree.close() {
                    failed.tree.discard();
                }
            }
        };
    }
    match (kind, least) {
        (0, false) => drive!(Builder::new(&gpu).device_only::<T>(shape)),
        (0, true) => drive!(Builder::new(&gpu).capacity::<Least>().device_only::<T>(shape)),
        (1, false) => drive!(Builder::new(&gpu).owned::<T>(shape)),
        (1, true) => drive!(Builder::new(&gpu).capacity::<Least>().owned::<T>(shape)),
        (2, false) => drive!(Builder::new(&gpu).poison(true).over(&mut storage, shape)),
        (2, true) => drive!(Builder::new(&gpu).capacity::<Least>().over(&mut storage, shape)),
        _ => drive!(Builder::new(&gpu).over_ref(&storage, shape)),
    }
}

#[test]
fn nothing_panics() {
    let from: u64 = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let count: u64 = std::env::var("RUNS").ok().and_then(|s| s.parse().ok()).unwrap_or(2000);
    let mut bad = Vec::new();
    for seed in from..from + count {
        let result = catch_unwind(AssertUnwindSafe(|| match seed % 4 {
            0 => run(seed, 7u8),
            1 => run(seed, [7u8; 3]),
            2 => run(seed, 7u128),
            _ => run(seed, [7u16; 5]),
        }));
        if result.is_err() {
            bad.push(seed);
        }
    }
    assert!(bad.is_empty(), "{} panics, at {:?}", bad.len(), &bad[..bad.len().min(10)]);
}
