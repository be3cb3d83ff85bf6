//! What views do on devices without a kernel: fill, copy, prefetch.

mod common;

use common::{Random, Three, add, counted, load, region};
use hedgerow::driver::middleware::{Counting, Fault};
use hedgerow::driver::{DeviceDriver, ErrorKind, Ticket};
use hedgerow::error::{Busy, Holder};
use hedgerow::{Builder, Element, Error, Location, Mode, Shape, Tree, View};
use hedgerow_host::Host;

/// 16 x 12 elements.
const SHAPE: [u32; 2] = [16, 12];
const ELEMENTS: usize = 16 * 12;

fn shape() -> Shape {
    Shape::packed(SHAPE)
}

/// Fills of elements of one size: whole, a crop, and with gaps.
fn fills<const N: usize>()
where
    [u8; N]: Element,
{
    let gpu = Counting::new(Host::new());
    let element = |n: u8| core::array::from_fn::<u8, N, _>(|i| n.wrapping_mul(31) ^ i as u8);
    let mut model: Vec<[u8; N]> = (0..ELEMENTS).map(|i| element(i as u8)).collect();
    let mut pixels = model.clone();
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    let size = N as u64;

    let crop = tree.root().crop([3..8, 2..5]).unwrap();
    crop.fill_on(0, element(201)).unwrap();
    assert_eq!(tree.counters().bytes_up, 0);
    // With gaps it is an update of its box: what lies between is fetched.
    let sparse = tree.root().crop([0..16, 6..11]).unwrap().step_by(0, 3).unwrap();
    let sparse = {
        let columns = sparse;
        columns.step_by(1, 2).unwrap().flip(0).unwrap()
    };
    assert_eq!((sparse.extent(0), sparse.extent(1)), (6, 3));
    sparse.fill_on(0, element(202)).unwrap();
    // The elements along a row that the step covers, by the rows.
    let moved = tree.counters();
    assert_eq!(moved.bytes_up + moved.bytes_widened, 16 * 5 * size);
    let turned =
        tree.root().crop([14..16, 0..2]).unwrap().permute([1, 0]).unwrap().flip(1).unwrap();
    turned.fill_on(0, element(203)).unwrap();
    let moved = gpu.snapshot();

    for (i, value) in model.iter_mut().enumerate() {
        let (x, y) = (i % 16, i / 16);
        if (3..8).contains(&x) && (2..5).contains(&y) {
            *value = element(201);
        } else if x % 3 == 0 && (6..11).contains(&y) && y % 2 == 0 {
            *value = element(202);
        } else if x >= 14 && y < 2 {
            *value = element(203);
        }
    }
    drop((crop, sparse, turned));
    tree.close().unwrap();
    assert_eq!(pixels, model, "{N} bytes");
    let home = gpu.since(&moved).downloads.bytes;
    assert_eq!(home, (15 + 16 * 5 + 4) * size, "{N} bytes");
    assert_eq!(gpu.snapshot().live(), 0);
}

#[test]
fn fills_of_every_size() {
    macro_rules! sizes {
        ($($n:literal),*) => { $(fills::<$n>();)* };
    }
    sizes!(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 24, 32);
}

#[test]
fn fills_that_are_refused_or_nothing() {
    let gpu = Counting::new(Host::new());
    let mut pixels = counted(ELEMENTS as i32);
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    let before = gpu.snapshot();
    let nothing = tree.root().crop([3..3, 0..12]).unwrap();
    assert_eq!(nothing.fill_on(0, 1), Ok(Ticket::DONE));
    let crop = tree.root().crop([0..2, 0..2]).unwrap();
    let wrong = crop.fill_on(1, 1);
    assert!(matches!(wrong, Err(Error::NoDevice { device: 1, devices: 1 })));
    let guard = crop.read().unwrap();
    let busy = tree.root().fill_on(0, 1);
    assert!(matches!(busy, Err(Error::Busy(Busy { holder: Holder::Access, region: r }))
        if r == region(0..2, 0..2)));
    assert_eq!(gpu.since(&before).to_string(), "nothing");
    drop(guard);
    // Never written, and defined by it.
    let unwritten = Builder::new(&gpu).device_only::<i32>(shape()).unwrap();
    unwritten.root().crop([0..2, 0..2]).unwrap().fill_on(0, 9).unwrap();
    let mut out = [0; 4];
    unwritten.root().crop([0..2, 0..2]).unwrap().read_into(&mut out).unwrap();
    assert_eq!(out, [9; 4]);
    let rest = unwritten.root().read_into(&mut [0; ELEMENTS]);
    assert!(matches!(rest, Err(Error::Undefined { .. })));
}

/// I6, for an element size that needs memory of its own.
#[test]
fn a_failing_fill_changes_nothing() {
    let host = Host::new();
    let gpu = Fault::new(&host);
    let mut pixels = vec![[1u8, 2, 3]; ELEMENTS];
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    let crop = tree.root().crop([3..8, 2..5]).unwrap();
    let mut failed = 0;
    loop {
        gpu.arm(failed + 1, ErrorKind::Other);
        let result = crop.fill_on(0, [7, 8, 9]);
        if !gpu.fired() {
            result.unwrap();
            break;
        }
        assert_eq!(result.unwrap_err().kind(), Some(ErrorKind::Other));
        gpu.disarm();
        assert_eq!(crop.try_read().unwrap()[[3, 2]], [1, 2, 3]);
        failed += 1;
    }
    gpu.disarm();
    assert_eq!(failed, 4, "memory for the element, its upload, the root's memory, the copy");
    let home = tree.root().read().unwrap();
    assert_eq!((home[[3, 2]], home[[2, 2]]), ([7, 8, 9], [1, 2, 3]));
    assert_eq!(host.live_allocations(), 1);
}

#[test]
fn copies_move_only_what_is_stale() {
    let gpu = Counting::new(Host::new());
    let (mut a, mut b) = (counted(ELEMENTS as i32), vec![-1; ELEMENTS]);
    let from = Tree::over(&mut a, shape(), &gpu).unwrap();
    let to = Tree::over(&mut b, shape(), &gpu).unwrap();
    let source = from.root().crop([2..6, 1..3]).unwrap();
    let target = to.root().crop([9..13, 7..9]).unwrap();
    let before = gpu.snapshot();
    target.copy_from(&source, 0).unwrap();
    // The source goes up; nothing of the target does; the copy is on the device.
    let moved = gpu.since(&before);
    assert_eq!((moved.uploads.bytes, moved.copies.bytes, moved.downloads.bytes), (32, 32, 0));
    let before = gpu.snapshot();
    target.copy_from(&source, 0).unwrap();
    assert_eq!((gpu.since(&before).uploads.bytes, gpu.since(&before).copies.bytes), (0, 32));
    let home = to.root().read().unwrap();
    assert_eq!((home[[9, 7]], home[[12, 8]], home[[8, 7]]), (18, 37, -1));
    assert_eq!(gpu.since(&before).downloads.bytes, 32);
    drop(home);
    // Turned around.
    let turned = to.root().crop([0..2, 0..4]).unwrap().permute([1, 0]).unwrap().flip(0).unwrap();
    turned.copy_from(&source, 0).unwrap();
    let home = to.root().read().unwrap();
    let column = |x| [0, 1, 2, 3].map(|y| home[[x, y]]);
    assert_eq!((column(0), column(1)), ([21, 20, 19, 18], [37, 36, 35, 34]));
}

#[test]
fn overlapping_copies_are_memmove() {
    let gpu = Host::new();
    for shift in [-3, -1, 1, 3] {
        let mut model = counted(ELEMENTS as i32);
        let mut pixels = model.clone();
        let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
        let source = tree.root().crop([4..12, 4..8]).unwrap();
        let target = tree.root().crop([4 + shift..12 + shift, 4 + shift..8 + shift]).unwrap();
        target.copy_from(&source, 0).unwrap();
        drop((source, target));
        tree.close().unwrap();
        let old = model.clone();
        for (x, y) in (4..12).flat_map(|x| (4..8).map(move |y| (x, y))) {
            model[((y + shift) * 16 + x + shift) as usize] = old[(y * 16 + x) as usize];
        }
        assert_eq!(pixels, model, "by {shift}");
    }
    // Onto itself, mirrored; and the even elements onto the odd ones between them.
    let mut pixels = counted(ELEMENTS as i32);
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    tree.root().flip(0).unwrap().copy_from(&tree.root(), 0).unwrap();
    let row = tree.root().crop([0..16, 1..2]).unwrap();
    assert_eq!(row.read().unwrap().row([0, 1]).unwrap(), (16..32).rev().collect::<Vec<_>>());
    let odd = row.crop([1..16, 1..2]).unwrap().step_by(0, 2).unwrap();
    odd.copy_from(&row.step_by(0, 2).unwrap(), 0).unwrap();
    let expected: Vec<i32> = (16..32).rev().map(|value| value | 1).collect();
    assert_eq!(row.read().unwrap().row([0, 1]).unwrap(), expected);
    drop((odd, row));
    drop(tree);
    assert_eq!(gpu.live_allocations(), 0);
}

#[test]
fn copies_that_are_refused() {
    let (gpu, other) = (Counting::new(Host::new()), Counting::new(Host::new()));
    let (mut a, mut b, mut c) = (counted(192), counted(192), counted(192));
    let tree = Tree::over(&mut a, shape(), &gpu).unwrap();
    let peer = Tree::over(&mut b, shape(), &gpu).unwrap();
    let stranger = Tree::over(&mut c, shape(), &other).unwrap();
    let target = tree.root().crop([0..4, 0..2]).unwrap();
    let part = |tree: &Tree<'_, i32, _>, x: i32, y: i32| {
        let whole: View<'_, i32, Counting<Host<'static>>> = tree.root();
        target.copy_from(&whole.crop([0..x, 0..y]).unwrap(), 0)
    };
    for (x, y) in [(3, 2), (4, 3), (2, 4), (0, 2)] {
        assert!(matches!(part(&peer, x, y), Err(Error::Mismatch)));
    }
    let thinner = peer.root().crop([0..4, 0..2]).unwrap().slice(1, 0).unwrap();
    assert!(matches!(target.copy_from(&thinner, 0), Err(Error::Mismatch)));
    assert!(matches!(part(&stranger, 4, 2), Err(Error::WrongDriver)));
    let wrong = target.copy_from(&peer.root().crop([0..4, 0..2]).unwrap(), 1);
    assert!(matches!(wrong, Err(Error::NoDevice { device: 1, devices: 1 })));
    let guard = peer.root().crop([1..2, 1..2]).unwrap().update().unwrap();
    assert!(matches!(part(&peer, 4, 2), Err(Error::Busy(_))));
    drop(guard);
    let guard = target.read().unwrap();
    assert!(matches!(part(&peer, 4, 2), Err(Error::Busy(_))));
    // Nothing went anywhere.
    assert_eq!(gpu.snapshot().to_string(), "nothing");
    assert_eq!((tree.live_accesses(), peer.live_accesses()), (1, 0));
    drop(guard);
    let unwritten = Builder::new(&gpu).device_only::<i32>(shape()).unwrap();
    let nobody = target.copy_from(&unwritten.root().crop([0..4, 0..2]).unwrap(), 0);
    assert!(matches!(nobody, Err(Error::Undefined { .. })));
    let nothing = tree.root().crop([2..2, 0..2]).unwrap();
    let nothing_there = peer.root().crop([5..5, 0..2]).unwrap();
    assert_eq!(nothing.copy_from(&nothing_there, 0), Ok(Ticket::DONE));
    assert_eq!(gpu.snapshot().bytes_moved(), 0);
}

#[test]
fn prefetch_moves_the_stale_part_once() {
    let gpu = Counting::new(Host::new());
    let kernel = load(&gpu, 1, add);
    let mut pixels = counted(ELEMENTS as i32);
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    tree.root().crop([0..16, 0..4]).unwrap().fill_on(0, 7).unwrap();
    let view = tree.root().crop([0..16, 2..6]).unwrap();
    let plan = view.plan(Location::Device(0), Mode::Read).unwrap();
    let before = gpu.snapshot();
    let ticket = view.prefetch(0).unwrap();
    assert!(gpu.poll(ticket).unwrap() && tree.poll(0, ticket).unwrap());
    assert_eq!((gpu.since(&before).uploads.bytes, plan.bytes_up), (128, 128));
    // It is not held, and a launch finds it there.
    assert_eq!(tree.live_accesses(), 0);
    let before = gpu.snapshot();
    // Nothing is left to move; it is there after the same ticket as before.
    assert_eq!(view.prefetch(0), Ok(ticket));
    tree.wait(0, ticket).unwrap();
    assert_eq!(view.prefetch(0), Ok(Ticket::DONE));
    kernel.launch((view.as_update(),), 1).unwrap();
    assert_eq!(gpu.since(&before).bytes_moved(), 0);
    drop(view.update().unwrap());
    tree.root().prefetch(0).unwrap();
    // The view is newer at home, and the rest never was there.
    let moved = gpu.since(&before);
    assert_eq!((moved.uploads.bytes, moved.downloads.bytes), (256 + 384, 256));
    let home = tree.root().read().unwrap();
    assert_eq!((home[[0, 1]], home[[0, 3]], home[[0, 5]], home[[0, 6]]), (7, 8, 81, 96));
}

/// A view with its elements' places in the root, made at random with the given extents.
fn random_view<'t, D: DeviceDriver>(
    root: &View<'t, u64, D>,
    extents: [usize; 2],
    rng: &mut Random,
) -> (View<'t, u64, D>, Vec<usize>) {
    let swap = rng.below(2) == 1;
    let mut view = root.permute(if swap { [1, 0] } else { [0, 1] }).unwrap();
    let mut places = [Vec::new(), Vec::new()];
    for axis in 0..2 {
        let (extent, length) = (extents[axis], view.extent(axis) as usize);
        let fitting = |step: usize| (extent - 1) * step < length;
        let wanted = 1 + rng.below(3) as usize;
        let step = if fitting(wanted) { wanted } else { 1 };
        let span = (extent - 1) * step + 1;
        let first = rng.below((length - span + 1) as u64) as usize;
        view = view.crop_axis(axis, first as i32..(first + span) as i32).unwrap();
        view = view.step_by(axis, step as i32).unwrap();
        places[axis] = (0..extent).map(|i| first + i * step).collect();
        if rng.below(3) == 0 {
            view = view.flip(axis).unwrap();
            places[axis].reverse();
        }
    }
    let [xs, ys] = &places;
    let place = |x: usize, y: usize| if swap { x * 16 + y } else { y * 16 + x };
    let all = ys.iter().flat_map(|y| xs.iter().map(move |x| place(*x, *y))).collect();
    (view, all)
}

/// Fills, copies and prefetches at random, on one and two devices, against vectors.
#[test]
fn random_programs() {
    let seeds = match std::env::var("HEDGEROW_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..300u64,
    };
    for seed in seeds {
        let mut rng = Random::new(seed);
        let peers = seed % 4 == 3;
        let devices = [0, 1].map(|_| Host::new().peer_copies(peers));
        let [first, second] = &devices;
        let several = 1 + (seed % 2) as usize;
        let mut models =
            [0, 1].map(|n| (0..ELEMENTS as u64).map(|i| i + 1000 * n).collect::<Vec<_>>());
        let mut pixels = models.clone();
        let trees = pixels.each_mut().map(|pixels| {
            let builder = Builder::new(first).poison(seed % 3 == 0).capacity::<Three>();
            let builder = if several == 2 { builder.device(second) } else { builder };
            builder.over(pixels, shape()).unwrap()
        });
        for step in 0..40 {
            let context = format!("seed {seed}, step {step}");
            let device = rng.below(several as u64) as usize;
            let (a, b) = (rng.below(2) as usize, rng.below(2) as usize);
            // Extents that fit both ways round.
            let extents = [1 + rng.below(12) as usize, 1 + rng.below(12) as usize];
            let (to, places) = random_view(&trees[a].root(), extents, &mut rng);
            match rng.below(4) {
                0 => {
                    let value = 10_000 * (step + 1);
                    to.fill_on(device, value).expect(&context);
                    places.iter().for_each(|place| models[a][*place] = value);
                }
                1 | 2 => {
                    let (from, sources) = random_view(&trees[b].root(), extents, &mut rng);
                    to.copy_from(&from, device).expect(&context);
                    let values: Vec<u64> = sources.iter().map(|place| models[b][*place]).collect();
                    places.iter().zip(values).for_each(|(place, value)| models[a][*place] = value);
                }
                _ => {
                    let ticket = to.prefetch(device).expect(&context);
                    assert!(trees[a].poll(device, ticket).expect(&context));
                    let again =
                        to.plan(Location::Device(device as u8), Mode::Read).expect(&context);
                    assert_eq!(again.boxes, 0, "{context}");
                }
            }
            if rng.below(4) == 0 {
                let mut seen = vec![0; places.len()];
                to.read_into(&mut seen).expect(&context);
                let expected: Vec<u64> = places.iter().map(|place| models[a][*place]).collect();
                assert_eq!(seen, expected, "{context}");
            }
            if rng.below(4) == 0 {
                let mut guard = to.update().expect(&context);
                let values: Vec<u64> = (0..places.len() as u64).map(|i| i + step * 77).collect();
                guard.copy_from_slice(&values);
                places.iter().zip(values).for_each(|(place, value)| models[a][*place] = value);
            }
            trees[a].check().expect(&context);
        }
        for tree in trees {
            tree.close().unwrap();
        }
        assert_eq!(pixels, models, "seed {seed}");
        assert!(devices.iter().all(|device| device.live_allocations() == 0));
    }
}
