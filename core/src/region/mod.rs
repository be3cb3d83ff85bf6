//! Geometry: axis-aligned boxes, strided layouts, and the affine maps of views to their root.

mod layout;
mod map;

pub use layout::{Layout, Shape};
pub use map::{Step, ViewMap};

use core::fmt;
use core::ops::Range;

/// The most axes a tree can have: 4, or 6 and 8 with the features `rank-6` and `rank-8`.
///
/// It is a constant, not a parameter: every algorithm is compiled once, and the rank in use is a
/// length inside arrays of this size.
pub const MAX_RANK: usize = if cfg!(feature = "rank-8") {
    8
} else if cfg!(feature = "rank-6") {
    6
} else {
    4
};

/// One value for each axis. Reading beyond the last axis gives the default, writing there is ignored,
/// so that no loop over axes can panic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PerAxis<T>(pub [T; MAX_RANK]);

impl<T: Copy + Default> PerAxis<T> {
    /// The same value for each axis.
    #[inline]
    pub const fn all(value: T) -> Self {
        Self([value; MAX_RANK])
    }

    /// The value for `axis`.
    #[inline]
    pub fn at(&self, axis: usize) -> T {
        self.0.get(axis).copied().unwrap_or_default()
    }

    /// Sets the value for `axis`.
    #[inline]
    pub fn set(&mut self, axis: usize, value: T) {
        if let Some(slot) = self.0.get_mut(axis) {
            *slot = value;
        }
    }

    /// The first values of `values`; axes beyond them keep `fill`.
    pub fn from_slice(values: &[T], fill: T) -> Self {
        let mut out = Self::all(fill);
        for (slot, value) in out.0.iter_mut().zip(values) {
            *slot = *value;
        }
        out
    }
}

/// An axis-aligned half-open box of integer coordinates. Axis 0 is the innermost.
///
/// Mins may be negative. A box is empty when any axis has `end <= start`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Region {
    rank: u8,
    lo: PerAxis<i32>,
    hi: PerAxis<i32>,
}

impl Default for Region {
    /// The region of rank 0: one element, no axis.
    fn default() -> Self {
        Self { rank: 0, lo: PerAxis::all(0), hi: PerAxis::all(1) }
    }
}

impl Region {
    /// The box spanned by one range for each axis; `None` above [`MAX_RANK`] axes. A range that runs
    /// backwards makes an empty box, which [`ViewMap::crop`] refuses.
    pub fn new(ranges: &[Range<i32>]) -> Option<Self> {
        if ranges.len() > MAX_RANK {
            return None;
        }
        let mut region = Self::with_rank(ranges.len());
        for (axis, range) in ranges.iter().enumerate() {
            region.set(axis, range.start, range.end);
        }
        Some(region)
    }

    /// The box of `rank` axes that holds only the origin.
    pub(crate) fn with_rank(rank: usize) -> Self {
        Self { rank: rank.min(MAX_RANK) as u8, ..Self::default() }
    }

    /// Number of axes.
    #[inline]
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// First coordinate on `axis`.
    #[inline]
    pub fn lo(&self, axis: usize) -> i32 {
        self.lo.at(axis)
    }

    /// One past the last coordinate on `axis`.
    #[inline]
    pub fn hi(&self, axis: usize) -> i32 {
        self.hi.at(axis)
    }

    /// The range on `axis`; `0..1` beyond the last axis.
    #[inline]
    pub fn range(&self, axis: usize) -> Range<i32> {
        if axis < self.rank() { self.lo.at(axis)..self.hi.at(axis) } else { 0..1 }
    }

    /// Replaces the range on `axis`.
    #[inline]
    pub fn set(&mut self, axis: usize, lo: i32, hi: i32) {
        self.lo.set(axis, lo);
        self.hi.set(axis, hi);
    }

    /// Number of coordinates on `axis`.
    #[inline]
    pub fn extent(&self, axis: usize) -> u32 {
        let range = self.range(axis);
        (i64::from(range.end) - i64::from(range.start)).clamp(0, i64::from(u32::MAX)) as u32
    }

    /// Whether the box holds no element.
    #[inline]
    pub fn is_empty(&self) -> bool {
        (0..self.rank()).any(|axis| self.hi.at(axis) <= self.lo.at(axis))
    }

    /// Number of elements; saturates at `u64::MAX`.
    pub fn volume(&self) -> u64 {
        (0..self.rank()).fold(1u64, |n, axis| n.saturating_mul(u64::from(self.extent(axis))))
    }

    /// Whether the two boxes share an element.
    #[inline]
    pub fn overlaps(&self, other: &Self) -> bool {
        (0..self.rank()).all(|axis| {
            self.lo.at(axis).max(other.lo.at(axis)) < self.hi.at(axis).min(other.hi.at(axis))
        })
    }

    /// The box of the elements that both hold, or `None` if they share none.
    #[inline]
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let mut out = *self;
        for axis in 0..self.rank() {
            let lo = self.lo.at(axis).max(other.lo.at(axis));
            let hi = self.hi.at(axis).min(other.hi.at(axis));
            if lo >= hi {
                return None;
            }
            out.set(axis, lo, hi);
        }
        Some(out)
    }

    /// Whether every element of `other` is in this box. An empty box is in every box.
    #[inline]
    pub fn contains(&self, other: &Self) -> bool {
        other.is_empty()
            || (0..self.rank()).all(|axis| {
                self.lo.at(axis) <= other.lo.at(axis) && other.hi.at(axis) <= self.hi.at(axis)
            })
    }

    /// Whether the element at `at` is in this box.
    pub fn contains_point(&self, at: &[i32]) -> bool {
        at.len() == self.rank()
            && at.iter().enumerate().all(|(axis, c)| self.range(axis).contains(c))
    }

    /// The smallest box that holds both.
    pub fn hull(&self, other: &Self) -> Self {
        if self.is_empty() {
            return *other;
        }
        if other.is_empty() {
            return *self;
        }
        let mut out = *self;
        for axis in 0..self.rank() {
            out.set(
                axis,
                self.lo.at(axis).min(other.lo.at(axis)),
                self.hi.at(axis).max(other.hi.at(axis)),
            );
        }
        out
    }

    /// Calls `emit` with disjoint boxes that together hold the elements of `self` not in `hole`.
    pub fn subtract(&self, hole: &Self, emit: &mut dyn FnMut(Region)) {
        let Some(hole) = self.intersection(hole) else {
            if !self.is_empty() {
                emit(*self);
            }
            return;
        };
        // Outer axes first: the pieces left keep whole rows as long as they can.
        let mut rest = *self;
        for axis in (0..self.rank()).rev() {
            if rest.lo.at(axis) < hole.lo.at(axis) {
                let mut piece = rest;
                piece.hi.set(axis, hole.lo.at(axis));
                emit(piece);
            }
            if hole.hi.at(axis) < rest.hi.at(axis) {
                let mut piece = rest;
                piece.lo.set(axis, hole.hi.at(axis));
                emit(piece);
            }
            rest.set(axis, hole.lo.at(axis), hole.hi.at(axis));
        }
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for axis in 0..self.rank() {
            if axis > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{}..{}", self.lo.at(axis), self.hi.at(axis))?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

defmt_as_display! { impl Region; }

/// What a crop can be asked with: an array of ranges, one for each axis, or a [`Region`].
pub trait IntoRegion {
    /// The box asked for; `None` above [`MAX_RANK`] axes.
    fn into_region(self) -> Option<Region>;
}

impl IntoRegion for Region {
    fn into_region(self) -> Option<Region> {
        Some(self)
    }
}

impl<const N: usize> IntoRegion for [Range<i32>; N] {
    fn into_region(self) -> Option<Region> {
        Region::new(&self)
    }
}

impl IntoRegion for &[Range<i32>] {
    fn into_region(self) -> Option<Region> {
        Region::new(self)
    }
}

/// Why a shape, a layout or a view was refused. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GeometryError {
    /// More axes than [`MAX_RANK`], or another number of axes than the view has.
    Rank {
        /// Axes asked for.
        given: usize,
        /// Axes there are, or may be.
        expected: usize,
    },
    /// An axis that the view does not have.
    NoAxis {
        /// The axis asked for.
        axis: usize,
        /// The number of axes.
        rank: usize,
    },
    /// A range that is not inside its parent, or runs backwards.
    OutOfBounds {
        /// The axis.
        axis: usize,
        /// First coordinate asked for.
        start: i64,
        /// One past the last coordinate asked for.
        end: i64,
        /// First coordinate of the parent.
        parent_start: i32,
        /// One past the last coordinate of the parent.
        parent_end: i64,
    },
    /// Extents, strides or coordinates do not fit their types.
    Overflow {
        /// The axis on which it was met.
        axis: usize,
    },
    /// Two axes would put two elements at one address (a zero stride on a longer axis is such a case).
    OverlappingStrides {
        /// The axis whose stride is too small.
        axis: usize,
        /// Its stride in bytes.
        stride: i64,
        /// Bytes that the axes inside it span.
        inner_span: u64,
    },
    /// The storage is too short for the shape.
    TooShort {
        /// Elements that the shape spans.
        needed: u64,
        /// Elements there are.
        given: u64,
    },
    /// A step of zero or below; to walk backwards, flip.
    BadStep {
        /// The step asked for.
        step: i32,
    },
    /// A permutation that names an axis twice or not at all.
    BadPermutation,
    /// An element type of size zero.
    ZeroSized,
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Rank { given, expected } => write!(f, "{given} axes given, {expected} expected"),
            Self::NoAxis { axis, rank } => write!(f, "no axis {axis} in a view of {rank} axes"),
            Self::OutOfBounds { axis, start, end, parent_start, parent_end } => {
                write!(f, "axis {axis}: {start}..{end} is not inside {parent_start}..{parent_end}")
            }
            Self::Overflow { axis } => {
                write!(f, "axis {axis}: extent, stride or coordinate overflows")
            }
            Self::OverlappingStrides { axis, stride, inner_span } => write!(
                f,
                "axis {axis}: stride of {stride} bytes is less than the {inner_span} bytes of the axes inside it"
            ),
            Self::TooShort { needed, given } => {
                write!(f, "the shape spans {needed} elements, the storage has {given}")
            }
            Self::BadStep { step } => write!(f, "step {step} is not positive"),
            Self::BadPermutation => f.write_str("a permutation must name each axis once"),
            Self::ZeroSized => f.write_str("elements have no bytes"),
        }
    }
}

impl core::error::Error for GeometryError {}

defmt_as_display! { impl GeometryError; }

#[cfg(test)]
mod tests;
