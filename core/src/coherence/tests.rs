//! The map against a dense model: one flag for each element and plane.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::single_range_in_vec_init)] // a region of one axis

extern crate std;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::region::MAX_RANK;

/// A small generator, so that failures repeat.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

struct Model {
    root: Region,
    /// `fresh[plane][element]`
    fresh: Vec<Vec<bool>>,
    lost: Vec<bool>,
}

fn elements(region: &Region) -> Vec<PerAxis<i32>> {
    let mut out = vec![PerAxis::all(0)];
    for axis in (0..region.rank()).rev() {
        out = out
            .into_iter()
            .flat_map(|at| {
                region.range(axis).map(move |c| {
                    let mut at = at;
                    at.set(axis, c);
                    at
                })
            })
            .collect();
    }
    if region.is_empty() { Vec::new() } else { out }
}

fn one(root: &Region, at: &PerAxis<i32>) -> Region {
    let mut one = *root;
    for axis in 0..root.rank() {
        one.set(axis, at.at(axis), at.at(axis) + 1);
    }
    one
}

impl Model {
    fn index(&self, at: &PerAxis<i32>) -> usize {
        (0..self.root.rank()).rev().fold(0, |n, axis| {
            n * self.root.extent(axis) as usize + (at.at(axis) - self.root.lo(axis)) as usize
        })
    }

    fn cells(&self, region: &Region) -> Vec<usize> {
        elements(region).iter().map(|at| self.index(at)).collect()
    }

    fn nobody(&self, i: usize) -> bool {
        self.fresh.iter().all(|plane| !plane[i])
    }
}

struct Storage {
    grid: Grid,
    cuts: Vec<i32>,
    bits: Vec<u32>,
}

impl Storage {
    fn new(root: Region, places: usize, words: usize, cuts: usize) -> Self {
        Self {
            grid: Grid::new(root, places + 1),
            cuts: vec![0; cuts * MAX_RANK],
            bits: vec![0; words * (places + 1)],
        }
    }

    fn map(&mut self) -> Map<'_> {
        Map { grid: &mut self.grid, cuts: &mut self.cuts, bits: &mut self.bits }
    }
}

fn random_region(rng: &mut Rng, inside: &Region) -> Region {
    let mut region = *inside;
    for axis in 0..inside.rank() {
        let extent = u64::from(inside.extent(axis));
        let a = rng.below(extent + 1) as i32;
        let b = rng.below(extent + 1) as i32;
        let lo = inside.lo(axis);
        region.set(axis, lo + a.min(b), lo + a.max(b));
    }
    region
}

/// What the planner promises, element by element: runs along axis 0; runs that neighbours along axis 1 have
/// in common, as one box; and so on. `at` says where on the axes beyond `axis`.
fn planned(
    region: &Region,
    axis: usize,
    mut at: PerAxis<i32>,
    picked: &dyn Fn(&PerAxis<i32>) -> bool,
) -> Vec<Region> {
    let (mut done, mut open) = (Vec::new(), Vec::<Region>::new());
    for c in region.range(axis) {
        at.set(axis, c);
        let here = match axis {
            0 if picked(&at) => vec![one(region, &at)],
            0 => Vec::new(),
            _ => planned(region, axis - 1, at, picked),
        };
        let mut next = Vec::new();
        for mut found in here {
            found.set(axis, c, c + 1);
            let same = |other: &Region| (0..axis).all(|a| other.range(a) == found.range(a));
            if let Some(before) = open.iter().position(same) {
                found.set(axis, open.swap_remove(before).lo(axis), c + 1);
            }
            next.push(found);
        }
        done.append(&mut open);
        open = next;
    }
    done.append(&mut open);
    done
}

/// Boxes are disjoint, and hold exactly the picked elements, however the enumeration is interrupted; they are
/// as large as promised, and come in order.
fn assert_boxes(map: &Map<'_>, model: &Model, region: &Region, pick: Pick, rng: &mut Rng) {
    let mut seen = vec![0u32; model.lost.len()];
    let mut found = Vec::new();
    let mut cursor = Cursor::default();
    loop {
        let mut left = 1 + rng.below(4);
        let done = map.boxes(region, pick, &mut cursor, &mut |piece| {
            if left == 0 {
                return false;
            }
            left -= 1;
            assert!(region.contains(&piece));
            for i in model.cells(&piece) {
                seen[i] += 1;
            }
            found.push(piece);
            true
        });
        if done {
            break;
        }
    }
    let picked = |at: &PerAxis<i32>| map.touches(&one(region, at), pick);
    let mut boxes = planned(region, region.rank() - 1, PerAxis::all(0), &picked);
    boxes.sort_by_key(|piece| {
        core::array::from_fn::<_, MAX_RANK, _>(|i| piece.lo(MAX_RANK - 1 - i))
    });
    assert_eq!(found, boxes, "{pick:?} of {region}");
    for at in elements(region) {
        let one = one(region, &at);
        let picked = map.any(&map.cells(&one), pick);
        assert_eq!(seen[model.index(&at)], u32::from(picked), "{at:?} of {region}");
    }
    assert_eq!(seen.iter().sum::<u32>() as u64, map.volume(region, pick));
}

/// Loses planes on both sides; what only they held is told first, each element once.
fn lose(map: &mut Map<'_>, model: &mut Model, planes: Planes) {
    let mut told = vec![0; model.lost.len()];
    map.only_on(planes).for_each(map, &model.root, &mut |piece| {
        model.cells(&piece).into_iter().for_each(|i| told[i] += 1);
        true
    });
    map.mark_lost(planes);
    for (i, told) in told.into_iter().enumerate() {
        let held = !model.nobody(i);
        for plane in (0..model.fresh.len()).filter(|plane| planes & plane_bit(*plane) != 0) {
            model.fresh[plane][i] = false;
        }
        let lost = held && model.nobody(i);
        model.lost[i] |= lost;
        assert_eq!(told, u32::from(lost));
    }
}

fn run(seed: u64, ample: bool) {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    // Sometimes rows of many words.
    let wide = ample && seed.is_multiple_of(4);
    let rank = 1 + rng.below(if wide { 2 } else { MAX_RANK as u64 }) as usize;
    let mut root = Region::with_rank(rank);
    for axis in 0..rank {
        let lo = rng.below(9) as i32 - 4;
        let extent = match axis {
            0 if wide => 60 + rng.below(80),
            1 if wide => 1 + rng.below(6),
            _ => 1 + rng.below(if rank > 2 { 4 } else { 45 }),
        };
        root.set(axis, lo, lo + extent as i32);
    }
    let places = 1 + rng.below(3) as usize;
    let (words, cuts) =
        if ample { (4096, 160) } else { (1 + rng.below(6) as usize, 1 + rng.below(5) as usize) };
    let mut storage = Storage::new(root, places, words, cuts);
    let n = root.volume() as usize;
    let mut model = Model { root, fresh: vec![vec![false; n]; places], lost: vec![false; n] };
    let first = rng.below(2) as Planes;
    storage.map().reset(first);
    model.fresh[0] = vec![first == 1; n];
    for c in root.range(0).step_by(2).filter(|_| wide && places > 1) {
        let mut column = root;
        column.set(0, c, c + 1);
        let mut map = storage.map();
        map.cut(&column, Change { plane: 1, write: true }, &|_, _| false);
        map.mark_written(1, &column);
        for i in model.cells(&column) {
            (0..places).for_each(|p| model.fresh[p][i] = p == 1);
        }
    }

    for _ in 0..60 {
        let region = random_region(&mut rng, &root);
        let plane = rng.below(places as u64) as usize;
        let mut map = storage.map();
        match rng.below(8) {
            0..3 => {
                // A write: widened bytes are brought in, or zeroed where nobody has them.
                let wide = map.cut(&region, Change { plane, write: true }, &|_, _| false);
                assert!(wide.contains(&region));
                assert!(!ample || wide == region || region.is_empty(), "{wide} for {region}");
                map.mark_written(plane, &wide);
                for i in model.cells(&wide) {
                    (0..places).for_each(|p| model.fresh[p][i] = p == plane);
                    model.lost[i] = false;
                }
            }
            3..6 => {
                let wide = map.cut(&region, Change { plane, write: false }, &|_, _| false);
                assert_eq!(wide, region);
                map.mark_fresh(plane, &region);
                for i in model.cells(&region) {
                    if !model.nobody(i) {
                        model.fresh[plane][i] = true;
                    }
                }
                if !ample {
                    // A copy that could not be recorded is one that nobody relies on.
                    for at in elements(&region) {
                        let i = model.index(&at);
                        model.fresh[plane][i] = map.is_fresh(plane, &one(&root, &at));
                    }
                }
            }
            6 => match rng.below(12) {
                0..3 => lose(&mut map, &mut model, 1 + rng.below((1 << places) - 1) as Planes),
                3 => {
                    map.mark_stale(plane);
                    model.fresh[plane].fill(false);
                }
                4 => {
                    map.clear_lost();
                    model.lost.fill(false);
                }
                5 => {
                    map.clear_lost_in(&region);
                    // Cells partly outside keep what was lost of them.
                    for at in elements(&region) {
                        let cell = map.region_of(&map.cells(&one(&root, &at)));
                        let i = model.index(&at);
                        model.lost[i] &= !region.contains(&cell);
                    }
                }
                _ => {}
            },
            _ => {
                map.coalesce(&|_, _| false);
            }
        }
        let map = storage.map();
        map.check().unwrap();
        for at in elements(&root) {
            let i = model.index(&at);
            let one = one(&root, &at);
            for p in 0..places {
                let claimed = map.is_fresh(p, &one);
                assert!(!claimed || model.fresh[p][i], "seed {seed}: over-claims {at:?} on {p}");
                assert!(!ample || claimed == model.fresh[p][i], "seed {seed}: {at:?} on {p}");
            }
            let lost = map.touches(&one, Pick::stale(map.lost_plane()));
            assert!(!ample || lost == model.lost[i], "seed {seed}: lost {at:?}");
            // Nobody's bytes stay nobody's, and nothing is lost by running out of cuts.
            assert_eq!(map.touches(&one, map.nobody()), model.nobody(i), "seed {seed}: {at:?}");
        }
        let region = random_region(&mut rng, &root);
        let pick = Pick {
            stale: rng.below(1 << places) as Planes,
            fresh: rng.below(1 << places) as Planes,
        };
        let pick = Pick { fresh: pick.fresh & !pick.stale, ..pick };
        assert_boxes(&map, &model, &region, pick, &mut rng);
    }
}

#[test]
fn ample_capacity_is_exact() {
    (1..80).for_each(|seed| run(seed, true));
}

/// I3 at the level of the map: scarce cuts and words cost precision, never correctness.
#[test]
fn scarce_capacity_never_over_claims() {
    (1..250).for_each(|seed| run(seed, false));
}

#[test]
fn a_write_cuts_only_where_states_differ() {
    let root = Region::new(&[0..100, 0..100]).unwrap();
    let mut storage = Storage::new(root, 2, 64, 16);
    let mut map = storage.map();
    map.reset(1);
    let half = Region::new(&[0..100, 0..50]).unwrap();
    map.cut(&half, Change { plane: 1, write: true }, &|_, _| false);
    map.mark_written(1, &half);
    assert_eq!((map.grid.count.at(1), map.grid.cells()), (2, 2));
    // Inside bytes that only the device has, another write there changes nothing.
    let inner = Region::new(&[10..20, 10..20]).unwrap();
    map.cut(&inner, Change { plane: 1, write: true }, &|_, _| false);
    map.mark_written(1, &inner);
    assert_eq!((map.grid.count.at(0), map.grid.count.at(1)), (1, 2));
}

#[test]
fn tiles_merge_back_to_one_cell() {
    let root = Region::new(&[0..64, 0..64]).unwrap();
    let mut storage = Storage::new(root, 2, 256, 96);
    let mut map = storage.map();
    map.reset(1);
    for i in 0..64 {
        let i = i * 27 % 64;
        let (x, y) = (i % 8 * 8, i / 8 * 8);
        let tile = Region::new(&[x..x + 8, y..y + 8]).unwrap();
        let wide = map.cut(&tile, Change { plane: 1, write: true }, &|_, _| false);
        assert_eq!(wide, tile);
        map.mark_written(1, &tile);
    }
    assert!(map.coalesce(&|_, _| false));
    assert_eq!((map.grid.count.at(0), map.grid.count.at(1)), (1, 1));
    let mut boxes = 0;
    map.boxes(&root, Pick::stale(0), &mut Cursor::default(), &mut |piece| {
        boxes += 1;
        assert_eq!(piece, root);
        true
    });
    assert_eq!(boxes, 1);
}

#[test]
fn pinned_cuts_stay() {
    let root = Region::new(&[0..64]).unwrap();
    let mut storage = Storage::new(root, 2, 2, 8);
    let mut map = storage.map();
    map.reset(1);
    let region = Region::new(&[8..16]).unwrap();
    map.cut(&region, Change { plane: 1, write: true }, &|_, _| false);
    map.coalesce(&|_, cut| cut == 8 || cut == 16);
    assert_eq!(map.cuts_of(0), [8, 16]);
    map.coalesce(&|_, _| false);
    assert!(map.cuts_of(0).is_empty());
}

#[test]
fn a_source_is_fresh_and_the_first_asked() {
    let mut storage = Storage::new(Region::new(&[0..9]).unwrap(), 4, 2, 2);
    let map = storage.map();
    assert_eq!(map.source(0, 2, 0b1010), Pick { stale: 0b1011, fresh: 0b100 });
    assert_eq!(map.source(1, 2, 0b0011), Pick { stale: 0b0011, fresh: 0b100 });
    assert_eq!(map.nobody(), Pick { stale: 0b1111, fresh: 0 });
    assert_eq!((map.places(), map.lost_plane()), (4, 4));
}

/// An enumeration of what only some planes hold ends when its caller has seen enough, whichever plane that is on.
#[test]
fn what_only_some_hold_can_be_left_early() {
    let root = Region::new(&[0..30]).unwrap();
    let mut storage = Storage::new(root, 3, 2, 8);
    let mut map = storage.map();
    map.reset(0);
    for (plane, at) in [(1, 0), (1, 10), (2, 20)] {
        let region = Region::new(&[at..at + 5]).unwrap();
        map.cut(&region, Change { plane, write: true }, &|_, _| false);
        map.mark_written(plane, &region);
    }
    let told = |most: usize| {
        let mut told = Vec::new();
        map.only_on(0b110).for_each(&map, &root, &mut |piece| {
            told.push(piece.lo(0));
            told.len() < most
        });
        told
    };
    assert_eq!(told(9), [0, 10, 20]);
    assert_eq!(told(3), [0, 10, 20]);
    assert_eq!(told(2), [0, 10]);
    assert_eq!(told(1), [0]);
}

/// The check of a map's structure sees each way in which it can be broken.
#[test]
fn a_broken_map_is_found() {
    let root = Region::new(&[2..12, 0..4]).unwrap();
    let broken = |spoil: &dyn Fn(&mut Storage)| {
        let mut storage = Storage::new(root, 2, 2, 3);
        storage.map().reset(1);
        storage.map().split(0, &[4, 8]);
        storage.map().check().unwrap();
        spoil(&mut storage);
        storage.map().check().err()
    };
    assert_eq!(broken(&|_| ()), None);
    let order = Some("cuts are not strictly ascending");
    assert_eq!(broken(&|storage| storage.cuts[0] = 9), order);
    assert_eq!(broken(&|storage| storage.cuts[0] = 8), order);
    let inside = Some("a cut is not inside the root");
    assert_eq!(broken(&|storage| storage.cuts[0] = 2), inside);
    assert_eq!(broken(&|storage| storage.cuts[0] = 1), inside);
    assert_eq!(broken(&|storage| storage.cuts[1] = 12), inside);
    assert_eq!(broken(&|storage| storage.cuts[1] = 13), inside);
    let table = Some("more cuts than their table holds");
    assert_eq!(broken(&|storage| storage.grid.count.set(1, 99)), table);
    assert_eq!(broken(&|storage| storage.grid.count.set(0, 0)), table);
    let words = Some("the grid needs more words than a plane has");
    assert_eq!(broken(&|storage| storage.bits.truncate(0)), words);
    // Three rows of two words each take six; rows of two bits, one.
    let rows = |storage: &mut Storage, words: usize| {
        storage.cuts = (0..40 * MAX_RANK as i32).collect();
        storage.cuts[40..42].copy_from_slice(&[1, 2]);
        storage.grid.root.set(0, -1, 99);
        (storage.grid.count, storage.bits) = (PerAxis::from_slice(&[40, 3], 1), vec![0; words * 3]);
    };
    assert_eq!(broken(&|storage| rows(storage, 5)), words);
    assert_eq!(broken(&|storage| rows(storage, 6)), None);
    let held = Some("a cell is lost and yet held by somebody");
    assert_eq!(broken(&|storage| storage.bits[4] = 0b100), held);
    // Lost, and nobody has it.
    assert_eq!(broken(&|storage| (storage.bits[4], storage.bits[0]) = (0b100, 0b100)), None);
}

// Cutting and widening ---------------------------------------------------------------------------------

/// A side of a region: an axis, and whether it is the far one.
type Side = (usize, bool);

/// What a write or a read of `region` asks of the map, looked up element by element.
struct Wanted<'a> {
    map: &'a Map<'a>,
    region: Region,
    change: Change,
}

impl Wanted<'_> {
    fn is_final(&self, region: &Region) -> bool {
        let Change { plane, write } = self.change;
        elements(region).iter().all(|at| {
            let one = one(region, at);
            let others =
                || (0..self.map.places()).all(|p| p == plane || !self.map.is_fresh(p, &one));
            self.map.is_fresh(plane, &one) && (!write || others())
        })
    }

    fn edge(&self, (axis, far): Side) -> i32 {
        if far { self.region.hi(axis) } else { self.region.lo(axis) }
    }

    /// The cells touched, as a box.
    fn whole(&self) -> Region {
        self.map.region_of(&self.map.cells(&self.region))
    }

    /// The sides at which states would end different.
    fn sides(&self) -> Vec<Side> {
        let whole = self.whole();
        let all = (0..self.region.rank()).flat_map(|axis| [(axis, false), (axis, true)]);
        all.filter(|side| {
            let (axis, far) = *side;
            let edge = self.edge(*side);
            let end = if far { whole.hi(axis) } else { whole.lo(axis) };
            // The slab of cells that the edge runs through.
            let inner = if far { edge - 1 } else { edge };
            let mut slab = whole;
            let cuts = self.map.cuts_of(axis).iter().copied();
            let lo = cuts.clone().filter(|c| *c <= inner).max().unwrap_or(whole.lo(axis));
            let hi = cuts.filter(|c| *c > inner).min().unwrap_or(whole.hi(axis));
            slab.set(axis, lo, hi);
            edge != end && !self.is_final(&slab)
        })
        .collect()
    }

    fn fits(&self, sides: &[Side], cuts: usize, words: usize) -> bool {
        let count = |axis: usize| {
            let more = sides.iter().filter(|side| side.0 == axis).count();
            (more, self.map.cuts_of(axis).len() + more)
        };
        let rank = self.region.rank();
        let row = match count(0).1 + 1 {
            cells @ ..=32 => cells.next_power_of_two(),
            cells => cells.div_ceil(32) * 32,
        };
        let rows: usize = (1..rank).map(|axis| count(axis).1 + 1).product();
        (0..rank).map(count).all(|(more, all)| more == 0 || all <= cuts)
            && (rows * row).div_ceil(32) <= words
    }

    /// What giving up a side costs: elements to bring, and elements that others must fetch again.
    fn cost(&self, side: Side) -> u64 {
        let whole = self.whole();
        let (mut slab, (axis, far)) = (self.region, side);
        if far {
            slab.set(axis, self.region.hi(axis), whole.hi(axis));
        } else {
            slab.set(axis, whole.lo(axis), self.region.lo(axis));
        }
        let stale = |at: &PerAxis<i32>| !self.map.is_fresh(self.change.plane, &one(&slab, at));
        slab.volume() + elements(&slab).iter().filter(|at| stale(at)).count() as u64
    }
}

/// Cuts are made where states would differ, all of them if they fit; else a read makes none, and a write gives
/// up those that cost the least.
#[test]
fn cuts_are_few_and_widening_is_cheap() {
    let (mut widened, mut uncut) = (0, 0);
    for seed in 1..160u64 {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let rank = 1 + rng.below(3) as usize;
        let mut root = Region::with_rank(rank);
        for axis in 0..rank {
            root.set(axis, -3, -2 + rng.below([70, 14, 6][rank - 1]) as i32);
        }
        let places = 1 + rng.below(3) as usize;
        let (words, cuts) = (1 + rng.below(4) as usize, 1 + rng.below(6) as usize);
        let mut storage = Storage::new(root, places, words, cuts);
        storage.map().reset(1);
        for _ in 0..12 {
            let region = random_region(&mut rng, &root);
            if region.is_empty() {
                continue;
            }
            let change =
                Change { plane: rng.below(places as u64) as usize, write: rng.below(3) > 0 };
            storage.map().coalesce(&|_, _| false);
            let mut before = Storage {
                grid: storage.grid,
                cuts: storage.cuts.clone(),
                bits: storage.bits.clone(),
            };
            let mut map = storage.map();
            let wide = map.cut(&region, change, &|_, _| false);

            let wanted = Wanted { map: &before.map(), region, change };
            let sides = if wanted.is_final(&region) { Vec::new() } else { wanted.sides() };
            let mut kept = sides.clone();
            if !wanted.fits(&sides, cuts, words) {
                kept.clear();
                if change.write {
                    let subset = |set: usize| -> (Vec<Side>, u64) {
                        let (keep, give): (Vec<_>, Vec<_>) =
                            sides.iter().enumerate().partition(|(i, _)| set >> i & 1 != 0);
                        let side = |(_, side): (usize, &Side)| *side;
                        let cost = give.into_iter().map(|(_, side)| wanted.cost(*side)).sum();
                        (keep.into_iter().map(side).collect(), cost)
                    };
                    kept = sides.clone();
                    kept.retain(|(axis, far)| match far {
                        false => wide.lo(*axis) == region.lo(*axis),
                        true => wide.hi(*axis) == region.hi(*axis),
                    });
                    let given_up = sides.iter().filter(|side| !kept.contains(side));
                    let cost: u64 = given_up.map(|side| wanted.cost(*side)).sum();
                    let least = (0..1 << sides.len())
                        .map(subset)
                        .filter(|(kept, _)| wanted.fits(kept, cuts, words))
                        .map(|(_, cost)| cost)
                        .min();
                    assert_eq!(Some(cost), least, "seed {seed}: {region} became {wide}");
                    widened += 1;
                } else {
                    uncut += 1;
                }
            }
            // Wide is what was given up, and nothing else; cut is what was kept.
            let mut expected = region;
            let whole = wanted.whole();
            for axis in 0..rank {
                let gives = |far| {
                    change.write && sides.contains(&(axis, far)) && !kept.contains(&(axis, far))
                };
                let lo = if gives(false) { whole.lo(axis) } else { region.lo(axis) };
                let hi = if gives(true) { whole.hi(axis) } else { region.hi(axis) };
                expected.set(axis, lo, hi);
                let mut all = wanted.map.cuts_of(axis).to_vec();
                all.extend(kept.iter().filter(|s| s.0 == axis).map(|side| wanted.edge(*side)));
                all.sort_unstable();
                assert_eq!(map.cuts_of(axis), all, "seed {seed}: axis {axis} of {region}");
            }
            assert_eq!(wide, expected, "seed {seed}: {region}");
            if change.write {
                map.mark_written(change.plane, &wide);
            } else {
                map.mark_fresh(change.plane, &wide);
            }
            map.check().unwrap();
        }
    }
    assert!(widened > 100 && uncut > 50, "{widened} widened, {uncut} not cut");
}

/// Merging looks at so many intervals of an axis at once and no more: a longer table of cuts is not used beyond.
#[test]
fn more_cuts_than_can_be_merged() {
    let root = Region::new(&[0..3_000]).unwrap();
    let mut storage = Storage::new(root, 2, 200, 2_000);
    let mut map = storage.map();
    map.reset(1);
    assert_eq!(map.cuts_per_axis(), MAX_INTERVALS - 1);
    let mut written = vec![false; 3_000];
    for c in (1..2_998).step_by(3) {
        let one = Region::new(&[c..c + 1]).unwrap();
        let wide = map.cut(&one, Change { plane: 1, write: true }, &|_, _| false);
        map.mark_written(1, &wide);
        wide.range(0).for_each(|c| written[c as usize] = true);
        assert!(map.grid.count.at(0) as usize <= MAX_INTERVALS);
    }
    map.check().unwrap();
    assert!(map.grid.cells() > 1_000, "{} cells", map.grid.cells());
    map.coalesce(&|_, _| false);
    map.check().unwrap();
    for (c, written) in (0..).zip(&written) {
        assert_eq!(map.is_fresh(1, &Region::new(&[c..c + 1]).unwrap()), *written, "{c}");
    }
    assert!(written.contains(&false));
}
