//! Boxes, layouts and maps against brute force over coordinates.

#![allow(clippy::panic, clippy::indexing_slicing, clippy::unwrap_used)] // tests may
#![allow(clippy::reversed_empty_ranges, clippy::single_range_in_vec_init)] // boxes are made of ranges

extern crate std;

use std::collections::{BTreeMap, BTreeSet};
use std::string::ToString;
use std::vec::Vec;

use super::{GeometryError, IntoRegion, Layout, MAX_RANK, PerAxis, Region, Shape, ViewMap};

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn within(&mut self, lo: i32, hi: i32) -> i32 {
        lo + self.below((hi - lo) as u64) as i32
    }

    fn order(&mut self, rank: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..rank).collect();
        for i in (1..rank).rev() {
            order.swap(i, self.below(i as u64 + 1) as usize);
        }
        order
    }
}

fn region(ranges: &[core::ops::Range<i32>]) -> Region {
    Region::new(ranges).unwrap()
}

/// All coordinates of a box.
fn points(region: &Region) -> BTreeSet<Vec<i32>> {
    let mut out = BTreeSet::from([Vec::new()]);
    for axis in 0..region.rank() {
        let longer = |at: &Vec<i32>, c: i32| at.iter().copied().chain([c]).collect::<Vec<i32>>();
        out = out.iter().flat_map(|at| region.range(axis).map(|c| longer(at, c))).collect();
    }
    out
}

/// A box of `rank` axes with coordinates near zero, sometimes empty, sometimes backwards.
fn any_box(random: &mut Random, rank: usize) -> Region {
    let mut out = Region::with_rank(rank);
    for axis in 0..rank {
        let lo = random.within(-3, 3);
        out.set(axis, lo, lo + random.within(-1, 5));
    }
    out
}

// Boxes ----------------------------------------------------------------------------------------------

#[test]
fn box_algebra_is_set_algebra() {
    let mut random = Random(1);
    for round in 0..4_000 {
        let rank = round % 4;
        let (a, b) = (any_box(&mut random, rank), any_box(&mut random, rank));
        let (in_a, in_b) = (points(&a), points(&b));
        let both: BTreeSet<_> = in_a.intersection(&in_b).cloned().collect();

        assert_eq!(a.volume(), in_a.len() as u64);
        assert_eq!(a.is_empty(), in_a.is_empty());
        assert_eq!(a.overlaps(&b), !both.is_empty(), "{a} {b}");
        assert_eq!(a.intersection(&b).is_some(), !both.is_empty());
        assert_eq!(a.intersection(&b).map(|i| points(&i)).unwrap_or_default(), both);
        assert_eq!(a.contains(&b), in_b.is_subset(&in_a), "{a} {b}");
        for at in &in_b {
            assert_eq!(a.contains_point(at), in_a.contains(at));
        }

        let hull = a.hull(&b);
        assert!(hull.contains(&a) && hull.contains(&b));
        for axis in 0..rank {
            // The smallest: each face touches a point.
            let faces: Vec<i32> = in_a.union(&in_b).map(|at| at[axis]).collect();
            if let (Some(lo), Some(hi)) = (faces.iter().min(), faces.iter().max()) {
                assert_eq!(hull.range(axis), *lo..*hi + 1);
            }
        }

        let mut left = BTreeSet::new();
        let mut pieces = 0;
        a.subtract(&b, &mut |piece| {
            assert!(!piece.is_empty());
            for at in points(&piece) {
                assert!(left.insert(at), "{a} minus {b}: pieces overlap");
            }
            pieces += 1;
        });
        assert!(pieces <= 2 * rank.max(1));
        assert_eq!(left, in_a.difference(&in_b).cloned().collect(), "{a} minus {b}");
    }
}

#[test]
fn subtract_keeps_whole_rows() {
    let mut pieces = Vec::new();
    region(&[0..10, 0..10]).subtract(&region(&[3..5, 4..6]), &mut |piece| pieces.push(piece));
    assert_eq!(
        pieces,
        [
            region(&[0..10, 0..4]),
            region(&[0..10, 6..10]),
            region(&[0..3, 4..6]),
            region(&[5..10, 4..6])
        ]
    );
}

#[test]
fn the_largest_boxes_do_not_overflow() {
    let all = region(&[i32::MIN..i32::MAX, i32::MIN..i32::MAX, i32::MIN..i32::MAX]);
    assert_eq!(all.extent(0), u32::MAX);
    assert_eq!(all.volume(), u64::MAX);
    assert!(all.overlaps(&all) && all.contains(&all));
    assert_eq!(all.hull(&all), all);
    all.subtract(&all, &mut |piece| panic!("{piece} is left"));
    let backwards = region(&[i32::MAX..i32::MIN]);
    assert_eq!((backwards.extent(0), backwards.volume(), backwards.is_empty()), (0, 0, true));
}

#[test]
fn ranks() {
    let too_many = [const { 0..1 }; MAX_RANK + 1];
    assert_eq!(Region::new(&too_many), None);
    assert_eq!(too_many.as_slice().into_region(), None);
    assert_eq!([1..2, 3..4].into_region(), Some(region(&[1..2, 3..4])));
    let point = region(&[]);
    assert_eq!((point.rank(), point.volume(), point.is_empty()), (0, 1, false));
    assert!(point.contains_point(&[]) && !point.contains_point(&[0]));
    // Of different ranks: no answer makes sense, but each is one.
    let square = region(&[0..2, 0..2]);
    let _ = (square.overlaps(&point), point.contains(&square), square.intersection(&point));
    assert_eq!(square.range(MAX_RANK), 0..1);
    assert_eq!(square.extent(7), 1);
}

#[test]
fn boxes_print_their_ranges() {
    assert_eq!(region(&[-1..2, 3..3]).to_string(), "[-1..2, 3..3]");
    assert_eq!(region(&[]).to_string(), "[]");
}

// Layouts --------------------------------------------------------------------------------------------

fn layout(shape: Shape, element: usize) -> Layout {
    Layout::new(&shape, element).unwrap()
}

/// Checks that no two elements share a byte, that all are inside the span, and that both ends are used.
fn check_bytes(layout: &Layout) {
    let element = u64::from(layout.element());
    let mut used = BTreeSet::new();
    for at in points(layout.region()) {
        let first = layout.offset(&PerAxis::from_slice(&at, 0));
        for byte in first..first + element {
            assert!(used.insert(byte), "byte {byte} twice in {layout:?}");
        }
    }
    assert_eq!(used.first().copied(), (!layout.region().is_empty()).then_some(0));
    assert_eq!(used.last().map_or(0, |last| last + 1), layout.span(), "{layout:?}");
}

#[test]
fn packed() {
    let l = layout(Shape::packed([640, 480, 3]), 2);
    assert_eq!([l.stride(0), l.stride(1), l.stride(2)], [2, 1280, 614_400]);
    assert_eq!(l.span(), 640 * 480 * 3 * 2);
    assert_eq!(l.window(&region(&[10..20, 5..7, 1..2])), (614_400 + 5 * 1280 + 20, 1280 + 20));
}

#[test]
fn interleaved() {
    let l = layout(Shape::with_order([4, 3, 3], [2, 0, 1]), 1);
    assert_eq!([l.stride(0), l.stride(1), l.stride(2)], [3, 12, 1]);
    assert_eq!(l.span(), 36);
    check_bytes(&l);
}

#[test]
fn padded() {
    let l = layout(Shape::strided([6, 4], [1, 9]), 4);
    assert_eq!(l.span(), (9 * 3 + 6) * 4);
    check_bytes(&l);
    let packed = l.packed_like(l.region()).unwrap();
    assert_eq!((packed.stride(0), packed.stride(1), packed.span()), (4, 24, 96));
    check_bytes(&packed);
}

#[test]
fn flipped_strides_start_at_the_far_end() {
    let l = layout(Shape::strided([5, 4], [-1, -8]).min([-2, 10]), 2);
    assert_eq!(l.span(), (4 + 3 * 8 + 1) * 2);
    assert_eq!(l.offset(&PerAxis::from_slice(&[-2, 10], 0)), l.span() - 2);
    assert_eq!(l.offset(&PerAxis::from_slice(&[2, 13], 0)), 0);
    check_bytes(&l);
    // Packing keeps the directions.
    let packed = l.packed_like(l.region()).unwrap();
    assert_eq!((packed.stride(0), packed.stride(1), packed.span()), (-2, -10, 40));
    check_bytes(&packed);
}

#[test]
fn strides_in_any_order_and_direction() {
    let mut random = Random(7);
    for _ in 0..500 {
        let rank = 1 + random.below(3) as usize;
        let mut extents = [1u32; 3];
        let mut strides = [0i64; 3];
        let mut span = 1i64;
        for axis in random.order(rank) {
            extents[axis] = random.below(5) as u32;
            let stride = span + random.below(3) as i64;
            strides[axis] = if random.below(3) == 0 { -stride } else { stride };
            if extents[axis] > 1 {
                span += stride * i64::from(extents[axis] - 1);
            }
        }
        let l = layout(Shape::strided(extents, strides).min([-1, 0, 5]), 3);
        check_bytes(&l);
        let packed = l.packed_like(l.region()).unwrap();
        assert_eq!(packed.span(), l.region().volume() * 3);
        check_bytes(&packed);

        // Windows: the lowest and highest byte of a part.
        let part = any_box(&mut random, 3).intersection(l.region());
        let Some(part) = part.filter(|part| !part.is_empty()) else { continue };
        let starts: Vec<u64> =
            points(&part).iter().map(|at| l.offset(&PerAxis::from_slice(at, 0))).collect();
        let (lo, hi) = (*starts.iter().min().unwrap(), *starts.iter().max().unwrap() + 3);
        assert_eq!(l.window(&part), (lo, hi - lo));
        check_bytes(&l.packed_like(&part).unwrap());
    }
}

#[test]
fn overlapping_elements_are_refused() {
    let refused = |shape: Shape| Layout::new(&shape, 4).unwrap_err();
    let overlap =
        |axis, stride, inner_span| GeometryError::OverlappingStrides { axis, stride, inner_span };
    assert_eq!(refused(Shape::strided([4, 4], [1, 3])), overlap(1, 12, 16));
    assert_eq!(refused(Shape::strided([4, 4], [1, 1])), overlap(1, 4, 16));
    // A zero stride on a longer axis is a broadcast.
    assert_eq!(refused(Shape::strided([4, 4], [1, 0])), overlap(1, 0, 4));
    assert_eq!(refused(Shape::strided([4], [0])), overlap(0, 0, 4));
    // Rows of four, whose pitch is one short, walking down.
    assert_eq!(refused(Shape::strided([4, 4], [1, -3])), overlap(1, -12, 16));
    assert!(matches!(
        refused(Shape::with_order([4, 4], [0, 0])),
        GeometryError::OverlappingStrides { .. }
    ));
}

#[test]
fn axes_without_neighbours_are_ignored() {
    for stride in [0, 1, -1, 12_345, i64::MAX, i64::MIN] {
        let l = layout(Shape::strided([4, 1, 3], [1, stride, 4]), 4);
        assert_eq!((l.span(), l.stride(1)), (48, 0));
        check_bytes(&l);
        let l = layout(Shape::strided([4, 0, 3], [stride, stride, stride]), 4);
        assert_eq!(l.span(), 0);
        assert_eq!(l.window(l.region()), (0, 0));
    }
    let point = layout(Shape::packed([]), 8);
    assert_eq!((point.span(), point.region().rank()), (8, 0));
    check_bytes(&point);
}

#[test]
fn layouts_that_overflow_are_refused() {
    let refused = |shape: Shape, element| Layout::new(&shape, element).unwrap_err();
    let overflow = |axis| GeometryError::Overflow { axis };
    // Coordinates.
    assert_eq!(refused(Shape::packed([1, 2]).min([0, i32::MAX - 1]), 1), overflow(1));
    assert!(Layout::new(&Shape::packed([1, 1]).min([0, i32::MAX - 1]), 1).is_ok());
    assert_eq!(refused(Shape::packed([1 << 31]), 1), overflow(0));
    assert!(Layout::new(&Shape::packed([u32::MAX]).min([i32::MIN]), 1).is_ok());
    // Strides and spans.
    assert_eq!(refused(Shape::strided([2, 2], [1, i64::MAX]), 2), overflow(1));
    assert_eq!(refused(Shape::strided([2, 3], [1, i64::MAX]), 1), overflow(1));
    assert_eq!(refused(Shape::strided([2, 2], [1, i64::MAX]), 1), overflow(1));
    assert_eq!(layout(Shape::strided([2], [i64::MAX - 1]), 1).span(), i64::MAX as u64);
    assert_eq!(refused(Shape::strided([2], [i64::MIN]), 1), overflow(0));
    let huge = Shape::packed([i32::MAX as u32; 4]);
    assert!(matches!(refused(huge, 1), GeometryError::Overflow { .. }));
    // Elements.
    assert_eq!(refused(Shape::packed([1]), 0), GeometryError::ZeroSized);
    assert_eq!(refused(Shape::packed([1]), usize::MAX), overflow(0));
    // A box that is not inside has no window that makes sense, but no panic either.
    let l = layout(Shape::strided([2], [i64::MAX - 1]), 1);
    let _ = l.window(&region(&[i32::MIN..i32::MAX]));
}

#[test]
fn wrong_ranks_are_refused() {
    assert_eq!(
        Layout::new(&Shape::packed([1; MAX_RANK + 1]), 1),
        Err(GeometryError::Rank { given: MAX_RANK + 1, expected: MAX_RANK })
    );
    assert_eq!(
        Layout::new(&Shape::packed([4, 4]).min([1]), 1),
        Err(GeometryError::Rank { given: 1, expected: 2 })
    );
}

// Maps -----------------------------------------------------------------------------------------------

/// What a map should be: root coordinates by view coordinates.
type Model = BTreeMap<Vec<i32>, Vec<i32>>;

fn model_of(root: &Region) -> Model {
    points(root).into_iter().map(|at| (at.clone(), at)).collect()
}

/// Rebuilds a model with each key replaced, or dropped.
fn rekeyed(model: &Model, key: impl Fn(&[i32]) -> Option<Vec<i32>>) -> Model {
    model.iter().filter_map(|(at, to)| Some((key(at)?, to.clone()))).collect()
}

fn check_map(map: &ViewMap, model: &Model) {
    assert_eq!(map.volume(), model.len() as u64);
    assert_eq!(map.is_empty(), model.is_empty());
    let own = points(&map.region());
    assert_eq!(own, model.keys().cloned().collect());
    let mut hull: Option<Region> = None;
    for (at, to) in model {
        let got = map.to_root(at).unwrap();
        assert_eq!(&got.0[..to.len()], &to[..], "{at:?} of {map:?}");
        let point = region(&to.iter().map(|c| *c..c + 1).collect::<Vec<_>>());
        hull = Some(hull.map_or(point, |hull| hull.hull(&point)));
    }
    let box_of_it = map.root_region();
    match hull {
        Some(hull) => assert_eq!(box_of_it, hull, "{map:?}"),
        None => assert!(box_of_it.is_empty(), "{map:?}"),
    }
    if !model.is_empty() {
        assert_eq!(map.covers_its_box(), box_of_it.volume() == map.volume(), "{map:?}");
    }
    for axis in 0..map.rank() {
        let mut outside: Vec<i32> = (0..map.rank()).map(|axis| map.min(axis)).collect();
        for c in [map.min(axis) - 1, map.region().hi(axis), i32::MIN, i32::MAX] {
            outside[axis] = c;
            assert_eq!(map.to_root(&outside), None);
        }
    }
}

/// Applies one random operation to both.
fn compose(random: &mut Random, map: ViewMap, model: &Model) -> (ViewMap, Model) {
    let rank = map.rank();
    let axis = random.below(rank.max(1) as u64) as usize;
    let (lo, hi) = (map.region().lo(axis), map.region().hi(axis));
    match random.below(6) {
        0 => {
            let mut part = map.region();
            for axis in 0..rank {
                let range = part.range(axis);
                let start = random.within(range.start, range.end + 1);
                // Often the whole axis, so that four levels leave something.
                if random.below(2) == 0 {
                    part.set(axis, start, random.within(start, range.end + 1));
                }
            }
            let next = map.crop(&part).unwrap();
            (next, rekeyed(model, |at| part.contains_point(at).then(|| at.to_vec())))
        }
        1 if rank > 0 && lo < hi => {
            let plane = random.within(lo, hi);
            let next = map.slice(axis, plane).unwrap();
            let key = |at: &[i32]| {
                let rest: Vec<i32> = [&at[..axis], &at[axis + 1..]].concat();
                (at[axis] == plane).then_some(rest)
            };
            (next, rekeyed(model, key))
        }
        2 => {
            let by: Vec<i32> = (0..rank).map(|_| random.within(-20, 20)).collect();
            let next = map.translate(&by).unwrap();
            let key = |at: &[i32]| Some(at.iter().zip(&by).map(|(c, by)| c + by).collect());
            (next, rekeyed(model, key))
        }
        3 => {
            let order = random.order(rank);
            let next = map.permute(&order).unwrap();
            (next, rekeyed(model, |at| Some(order.iter().map(|from| at[*from]).collect())))
        }
        4 if rank > 0 => {
            let step = random.within(1, 5);
            let next = map.step_by(axis, step).unwrap();
            let key = |at: &[i32]| {
                let mut to = at.to_vec();
                to[axis] = lo + (at[axis] - lo) / step;
                ((at[axis] - lo) % step == 0).then_some(to)
            };
            (next, rekeyed(model, key))
        }
        5 if rank > 0 => {
            let next = map.flip(axis).unwrap();
            let key = |at: &[i32]| {
                let mut to = at.to_vec();
                to[axis] = lo + (hi - 1) - at[axis];
                Some(to)
            };
            (next, rekeyed(model, key))
        }
        _ => (map, model.clone()),
    }
}

#[test]
fn maps_compose_as_coordinates_do() {
    let mut random = Random(42);
    let mut elements = 0;
    for round in 0..3_000 {
        let rank = round % 4;
        let mut root = Region::with_rank(rank);
        for axis in 0..rank {
            let lo = random.within(-6, 6);
            root.set(axis, lo, lo + random.within(1, 8));
        }
        let (mut map, mut model) = (ViewMap::identity(&root), model_of(&root));
        for _ in 0..4 {
            (map, model) = compose(&mut random, map, &model);
            check_map(&map, &model);
        }
        elements += model.len();
    }
    assert!(elements > 10_000, "the test looks at something: {elements} elements");
}

#[test]
fn a_crop_of_a_crop_is_the_crop() {
    let map = ViewMap::identity(&region(&[0..20, 0..20]));
    let inner = region(&[4..6, 5..7]);
    let nested = map.crop(&region(&[2..10, 4..8])).unwrap().crop(&inner).unwrap();
    assert_eq!(nested, map.crop(&inner).unwrap());
    assert_eq!(nested.root_region(), inner);
    assert_eq!(map.flip(0).unwrap().flip(0).unwrap(), map);
    assert_eq!(map.translate(&[3, -4]).unwrap().translate(&[-3, 4]).unwrap(), map);
    assert_eq!(map.permute(&[1, 0]).unwrap().permute(&[1, 0]).unwrap(), map);
    // Slices in either order leave equal maps.
    let point = map.slice(1, 3).unwrap().slice(0, 9).unwrap();
    assert_eq!(point, map.slice(0, 9).unwrap().slice(0, 3).unwrap());
    assert_eq!((point.rank(), point.volume()), (0, 1));
    assert_eq!(point.root_region(), region(&[9..10, 3..4]));
}

#[test]
fn bad_maps_are_refused() {
    let map = ViewMap::identity(&region(&[-2..10, 0..4]));
    let outside = |axis, start, end, parent_start, parent_end| {
        Err(GeometryError::OutOfBounds { axis, start, end, parent_start, parent_end })
    };
    assert_eq!(map.crop(&region(&[-3..5, 0..4])), outside(0, -3, 5, -2, 10));
    assert_eq!(map.crop(&region(&[0..5, 1..5])), outside(1, 1, 5, 0, 4));
    assert_eq!(map.crop(&region(&[5..3, 0..4])), outside(0, 5, 3, -2, 10));
    assert_eq!(map.crop(&region(&[11..11, 0..4])), outside(0, 11, 11, -2, 10));
    assert!(map.crop(&region(&[10..10, 4..4])).unwrap().is_empty());
    assert_eq!(map.crop(&region(&[0..5])), Err(GeometryError::Rank { given: 1, expected: 2 }));
    assert_eq!(map.slice(2, 0), Err(GeometryError::NoAxis { axis: 2, rank: 2 }));
    assert_eq!(map.slice(1, 4), outside(1, 4, 5, 0, 4));
    assert_eq!(map.slice(1, i32::MAX), outside(1, i64::from(i32::MAX), 1 << 31, 0, 4));
    assert_eq!(map.slice(0, i32::MIN).unwrap_err().to_string(), {
        "axis 0: -2147483648..-2147483647 is not inside -2..10"
    });
    assert_eq!(map.translate(&[1]), Err(GeometryError::Rank { given: 1, expected: 2 }));
    assert_eq!(map.translate(&[i32::MAX, 0]), Err(GeometryError::Overflow { axis: 0 }));
    assert_eq!(map.translate(&[i32::MIN, 0]), Err(GeometryError::Overflow { axis: 0 }));
    assert_eq!(map.permute(&[0]), Err(GeometryError::Rank { given: 1, expected: 2 }));
    assert_eq!(map.permute(&[0, 2]), Err(GeometryError::NoAxis { axis: 2, rank: 2 }));
    assert_eq!(map.permute(&[1, 1]), Err(GeometryError::BadPermutation));
    for step in [0, -1, i32::MIN] {
        assert_eq!(map.step_by(0, step), Err(GeometryError::BadStep { step }));
    }
    assert_eq!(map.step_by(2, 1), Err(GeometryError::NoAxis { axis: 2, rank: 2 }));
    assert_eq!(map.flip(9), Err(GeometryError::NoAxis { axis: 9, rank: 2 }));
    assert_eq!(map.to_root(&[0]), None);
    // Nothing is left to slice or flip in a point.
    let point = map.slice(0, 0).unwrap().slice(0, 0).unwrap();
    assert_eq!(point.flip(0), Err(GeometryError::NoAxis { axis: 0, rank: 0 }));
    assert_eq!(point.crop(&region(&[])), Ok(point));
}

#[test]
fn empty_views_compose() {
    let map = ViewMap::identity(&region(&[0..4, 0..4]));
    let empty = map.crop(&region(&[4..4, 1..3])).unwrap();
    for next in [
        empty.flip(0).unwrap(),
        empty.step_by(0, 3).unwrap(),
        empty.translate(&[7, 7]).unwrap(),
        empty.permute(&[1, 0]).unwrap(),
        empty.slice(1, 2).unwrap(),
        empty.crop(&region(&[4..4, 2..2])).unwrap(),
    ] {
        check_map(&next, &Model::new());
    }
    assert!(matches!(empty.slice(0, 4), Err(GeometryError::OutOfBounds { .. })));
}

#[test]
fn the_largest_maps_do_not_overflow() {
    let root = region(&[i32::MIN..i32::MAX, i32::MAX - 1..i32::MAX]);
    let map = ViewMap::identity(&root);
    assert_eq!(map.root_region(), root);
    let last = i32::MAX - 1;
    let flipped = map.flip(0).unwrap();
    assert_eq!(flipped.root_region(), root);
    assert_eq!(flipped.to_root(&[i32::MIN, last]).unwrap().at(0), last);
    assert_eq!(flipped.to_root(&[last, last]).unwrap().at(0), i32::MIN);

    // A step of i32::MIN: two elements, 2^31 apart.
    let strided = flipped.step_by(0, 1 << 30).unwrap().step_by(0, 2).unwrap();
    assert_eq!((strided.step(0), strided.extent(0)), (i32::MIN, 2));
    assert!(!strided.covers_its_box());
    assert_eq!(strided.to_root(&[i32::MIN + 1, last]).unwrap().at(0), -2);
    assert_eq!(strided.root_region(), region(&[-2..i32::MAX, last..i32::MAX]));
    assert_eq!(strided.flip(0), Err(GeometryError::Overflow { axis: 0 }));
    assert_eq!(strided.step_by(0, 1), Ok(strided));
    // With one element left no step is taken, and none overflows.
    let one = strided.step_by(0, i32::MAX).unwrap();
    assert_eq!((one.extent(0), one.covers_its_box()), (1, true));
    let one = strided.crop(&region(&[i32::MIN..i32::MIN + 1, last..i32::MAX])).unwrap();
    assert_eq!(one.flip(0).unwrap().root_region(), region(&[last..i32::MAX, last..i32::MAX]));

    assert_eq!(map.translate(&[1, 0]), Err(GeometryError::Overflow { axis: 0 }));
    assert_eq!(map.translate(&[-1, 0]), Err(GeometryError::Overflow { axis: 0 }));
    assert!(map.translate(&[0, i32::MIN]).is_ok());
    let end = map.crop(&region(&[i32::MAX..i32::MAX, last..i32::MAX])).unwrap();
    assert!(end.is_empty() && end.root_region().is_empty());
    assert_eq!(map.volume(), u64::from(u32::MAX));
}

#[test]
fn errors_carry_the_numbers() {
    let text = |error: GeometryError| error.to_string();
    assert_eq!(text(GeometryError::Rank { given: 1, expected: 2 }), "1 axes given, 2 expected");
    assert_eq!(text(GeometryError::TooShort { needed: 9, given: 8 }), {
        "the shape spans 9 elements, the storage has 8"
    });
    assert_eq!(
        text(GeometryError::OverlappingStrides { axis: 1, stride: 12, inner_span: 16 }),
        "axis 1: stride of 12 bytes is less than the 16 bytes of the axes inside it"
    );
    assert_eq!(text(GeometryError::NoAxis { axis: 3, rank: 2 }), "no axis 3 in a view of 2 axes");
    assert_eq!(text(GeometryError::Overflow { axis: 1 }), {
        "axis 1: extent, stride or coordinate overflows"
    });
    assert_eq!(text(GeometryError::BadStep { step: -2 }), "step -2 is not positive");
    assert_eq!(text(GeometryError::BadPermutation), "a permutation must name each axis once");
    assert_eq!(text(GeometryError::ZeroSized), "elements have no bytes");
}

/// What lies beyond the last axis has no say, whatever was put there.
#[test]
fn beyond_the_last_axis() {
    let mut line = region(&[2..5]);
    line.set(1, 7, 9);
    assert_eq!((line.range(1), line.extent(1), line.volume()), (0..1, 1, 3));
    assert_eq!(std::format!("{line:?}"), "[2..5]");
    assert_eq!((line.lo(0), line.hi(0)), (2, 5));
    let map = ViewMap::identity(&line);
    assert_eq!((map.extent(0), map.extent(1), map.rank()), (3, 1, 1));
    assert_eq!(Shape::packed([3, 4]).rank(), 2);
    let axes = PerAxis::from_slice(&[1, 2], 9);
    assert_eq!((axes.at(1), axes.at(2), axes.at(MAX_RANK)), (2, 9, 0));
    let mut axes = PerAxis::all(5u8);
    axes.set(MAX_RANK, 1);
    assert_eq!(axes, PerAxis::all(5));
}
