//! Copy boxes against nested loops.

#![allow(clippy::panic, clippy::indexing_slicing, clippy::unwrap_used)] // tests may
#![allow(clippy::reversed_empty_ranges, clippy::single_range_in_vec_init)] // boxes are made of ranges

extern crate std;

use std::vec::Vec;

use super::{CopyBox, Dim};
use crate::region::MAX_RANK;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn pick(&mut self, choices: &[i64]) -> i64 {
        choices[self.below(choices.len() as u64) as usize]
    }
}

fn dim(count: u32, src_stride: i64, dst_stride: i64) -> Dim {
    Dim { count, src_stride, dst_stride }
}

fn boxed(src: u64, dst: u64, run: u64, dims: &[Dim]) -> CopyBox {
    let mut out = CopyBox::flat(src, dst, run);
    for dim in dims {
        out.push(*dim);
    }
    out
}

/// The byte pairs that nested loops would copy, sorted.
fn by_loops(src: u64, dst: u64, run: u64, dims: &[Dim]) -> Vec<(u64, u64)> {
    let mut starts = std::vec![(src as i64, dst as i64)];
    for dim in dims {
        let step = |k: u32, (s, d): (i64, i64)| {
            (s + dim.src_stride * i64::from(k), d + dim.dst_stride * i64::from(k))
        };
        starts = (0..dim.count).flat_map(|k| starts.iter().map(move |at| step(k, *at))).collect();
    }
    let mut bytes: Vec<_> =
        starts.iter().flat_map(|(s, d)| (0..run).map(|b| (*s as u64 + b, *d as u64 + b))).collect();
    bytes.sort_unstable();
    bytes
}

fn by_runs(copy: &CopyBox) -> Vec<(u64, u64)> {
    let mut bytes = Vec::new();
    copy.for_each_run(|src, dst| bytes.extend((0..copy.run).map(|b| (src + b, dst + b))));
    bytes.sort_unstable();
    bytes
}

#[test]
fn a_dense_box_is_one_run() {
    let copy = boxed(8, 16, 4, &[dim(10, 4, 4), dim(6, 40, 40), dim(3, 240, 240)]);
    assert_eq!((copy.src, copy.dst, copy.run), (8, 16, 720));
    assert!(copy.dims().is_empty());
    assert_eq!((copy.runs(), copy.bytes()), (1, 720));
    assert_eq!(copy.bounds(), (8..728, 16..736));
}

#[test]
fn unit_axes_do_not_stop_folding() {
    // Halide #8956: a unit axis with an odd stride between two that fold.
    let copy = boxed(0, 0, 4, &[dim(10, 4, 4), dim(1, 7777, -3), dim(6, 40, 40)]);
    assert_eq!((copy.run, copy.dims().len()), (240, 0));
}

#[test]
fn axes_fold_only_when_both_sides_do() {
    let copy = boxed(0, 0, 4, &[dim(10, 4, 4), dim(6, 64, 40)]);
    assert_eq!((copy.run, copy.dims()), (40, &[dim(6, 64, 40)][..]));
    // The outer axis continues the rows on both sides.
    let copy = boxed(0, 0, 4, &[dim(10, 4, 4), dim(6, 64, 40), dim(5, 384, 240)]);
    assert_eq!((copy.run, copy.dims()), (40, &[dim(30, 64, 40)][..]));
    // And here on one only.
    let copy = boxed(0, 0, 4, &[dim(10, 4, 4), dim(6, 64, 40), dim(5, 400, 240)]);
    assert_eq!((copy.run, copy.dims()), (40, &[dim(6, 64, 40), dim(5, 400, 240)][..]));
}

#[test]
fn two_sides_walking_down_are_one_run() {
    let copy = boxed(36, 136, 4, &[dim(10, -4, -4)]);
    assert_eq!((copy.src, copy.dst, copy.run), (0, 100, 40));
    // One side down is a real reversal.
    let copy = boxed(36, 100, 4, &[dim(10, -4, 4)]);
    assert_eq!((copy.src, copy.dst, copy.run, copy.runs()), (36, 100, 4, 10));
    assert_eq!(copy.bounds(), (0..40, 100..140));
}

#[test]
fn random_boxes_copy_what_nested_loops_copy() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..20_000 {
        let run = random.pick(&[1, 2, 4, 6]) as u64;
        let (src, dst) = (100_000, 200_000);
        let mut dims = Vec::new();
        let (mut src_next, mut dst_next) = (run as i64, run as i64);
        for _ in 0..random.below(MAX_RANK as u64 + 1) {
            let count = random.below(5) as u32;
            // Strides that often continue the axis inside, sometimes pad, sometimes turn around.
            let pad = [random.pick(&[0, 0, 0, 2]), random.pick(&[0, 0, 0, 2])];
            let sign = [random.pick(&[1, 1, 1, -1]), random.pick(&[1, 1, 1, -1])];
            let axis = dim(count, sign[0] * (src_next + pad[0]), sign[1] * (dst_next + pad[1]));
            src_next = axis.src_stride.abs() * i64::from(count.max(1));
            dst_next = axis.dst_stride.abs() * i64::from(count.max(1));
            dims.push(axis);
        }
        let copy = boxed(src, dst, run, &dims);
        let expected = by_loops(src, dst, run, &dims);
        assert_eq!(by_runs(&copy), expected, "{dims:?} became {copy:?}");
        assert_eq!(copy.bytes(), expected.len() as u64);
        let (src_bounds, dst_bounds) = copy.bounds();
        if expected.is_empty() {
            assert!(src_bounds.is_empty() && dst_bounds.is_empty());
            continue;
        }
        let range = |bytes: &mut dyn Iterator<Item = u64>| {
            bytes.fold(u64::MAX..0, |r, b| r.start.min(b)..r.end.max(b + 1))
        };
        assert_eq!(src_bounds, range(&mut expected.iter().map(|pair| pair.0)));
        assert_eq!(dst_bounds, range(&mut expected.iter().map(|pair| pair.1)));
    }
}

#[test]
fn no_number_panics() {
    let counts = [0, 1, 2, u32::MAX];
    let strides = [0, 1, -1, i64::MAX, i64::MIN, 1 << 62];
    let runs = [0, 1, 1 << 63, u64::MAX];
    for run in runs {
        for count in counts {
            for stride in strides {
                let dims = [dim(count, stride, -1), dim(3, 5, stride), dim(count, stride, stride)];
                let copy = boxed(u64::MAX, 0, run, &dims);
                let (_, _) = copy.bounds();
                if copy.runs() < 100 {
                    copy.for_each_run(|_, _| {});
                }
                assert!(copy.bytes() >= copy.runs().min(copy.run) || copy.bytes() == 0);
            }
        }
    }
}
