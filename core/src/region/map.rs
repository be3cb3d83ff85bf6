//! The affine map from a view's coordinates to its root's.

use super::{GeometryError, MAX_RANK, PerAxis, Region};

/// A step along an axis of the root for each step along an axis of a view.
pub type Step = i32;

/// How a view's coordinates map to its root's: per axis a first coordinate, an extent, a root axis and
/// a step. Views compose to the root when they are made, so a crop of a crop adds no indirection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ViewMap {
    rank: u8,
    root_rank: u8,
    /// Root coordinate of the view's first element, for hidden axes too.
    origin: PerAxis<i32>,
    min: PerAxis<i32>,
    extent: PerAxis<u32>,
    step: PerAxis<Step>,
    axis: PerAxis<u8>,
}

impl ViewMap {
    /// The map of a whole root to itself.
    pub fn identity(root: &Region) -> Self {
        let mut map = Self {
            rank: root.rank() as u8,
            root_rank: root.rank() as u8,
            origin: PerAxis::all(0),
            min: PerAxis::all(0),
            extent: PerAxis::all(1),
            step: PerAxis::all(1),
            axis: PerAxis::all(0),
        };
        for axis in 0..root.rank() {
            map.origin.set(axis, root.lo(axis));
            map.min.set(axis, root.lo(axis));
            map.extent.set(axis, root.extent(axis));
            map.axis.set(axis, axis as u8);
        }
        map
    }

    /// Number of axes of the view.
    #[inline]
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// First coordinate on `axis`.
    #[inline]
    pub fn min(&self, axis: usize) -> i32 {
        self.min.at(axis)
    }

    /// Number of coordinates on `axis`; 1 beyond the last axis.
    #[inline]
    pub fn extent(&self, axis: usize) -> u32 {
        if axis < self.rank() { self.extent.at(axis) } else { 1 }
    }

    /// Signed steps in the root for one step on `axis`.
    #[inline]
    pub fn step(&self, axis: usize) -> Step {
        self.step.at(axis)
    }

    /// The root axis that `axis` walks along.
    #[inline]
    pub fn root_axis(&self, axis: usize) -> usize {
        self.axis.at(axis) as usize
    }

    /// Root coordinates of the view's first element.
    #[inline]
    pub fn origin(&self) -> &PerAxis<i32> {
        &self.origin
    }

    /// Number of elements; saturates at `u64::MAX`.
    pub fn volume(&self) -> u64 {
        (0..self.rank()).fold(1u64, |n, axis| n.saturating_mul(u64::from(self.extent(axis))))
    }

    /// Whether the view holds no element.
    pub fn is_empty(&self) -> bool {
        (0..self.rank()).any(|axis| self.extent(axis) == 0)
    }

    /// The view's own coordinates as a box.
    pub fn region(&self) -> Region {
        let mut region = Region::with_rank(self.rank());
        for axis in 0..self.rank() {
            let lo = self.min(axis);
            region.set(axis, lo, (i64::from(lo) + i64::from(self.extent(axis))) as i32);
        }
        region
    }

    /// The smallest box of the root that holds every element of the view.
    pub fn root_region(&self) -> Region {
        let mut region = Region::with_rank(self.root_rank as usize);
        for axis in 0..region.rank() {
            let at = self.origin.at(axis);
            region.set(axis, at, at.saturating_add(1));
        }
        for axis in 0..self.rank() {
            let root_axis = self.root_axis(axis);
            let at = i64::from(self.origin.at(root_axis));
            let extent = i64::from(self.extent(axis));
            if extent == 0 {
                region.set(root_axis, at as i32, at as i32);
                continue;
            }
            let end = at + i64::from(self.step(axis)) * (extent - 1);
            region.set(root_axis, at.min(end) as i32, at.max(end) as i32 + 1);
        }
        region
    }

    /// Whether the view holds every element of its [`root_region`](Self::root_region).
    pub fn covers_its_box(&self) -> bool {
        (0..self.rank()).all(|axis| self.extent(axis) <= 1 || self.step(axis).unsigned_abs() == 1)
    }

    /// Root coordinates of the view's element at `at`; `None` when it is outside.
    pub fn to_root(&self, at: &[i32]) -> Option<PerAxis<i32>> {
        if at.len() != self.rank() {
            return None;
        }
        let mut root = self.origin;
        for (axis, c) in at.iter().enumerate() {
            let steps = i64::from(*c) - i64::from(self.min(axis));
            if steps < 0 || steps >= i64::from(self.extent(axis)) {
                return None;
            }
            let root_axis = self.root_axis(axis);
            let moved = i64::from(root.at(root_axis)) + steps * i64::from(self.step(axis));
            root.set(root_axis, moved as i32);
        }
        Some(root)
    }

    fn checked_axis(&self, axis: usize) -> Result<(), GeometryError> {
        if axis < self.rank() {
            Ok(())
        } else {
            Err(GeometryError::NoAxis { axis, rank: self.rank() })
        }
    }

    fn advance_origin(&mut self, axis: usize, steps: i64) {
        let root_axis = self.root_axis(axis);
        let moved = i64::from(self.origin.at(root_axis)) + steps * i64::from(self.step(axis));
        self.origin.set(root_axis, moved as i32);
    }

    /// The part of the view inside `region`, in the view's coordinates, which are kept.
    ///
    /// # Errors
    /// [`GeometryError::OutOfBounds`] when `region` is not inside the view, [`GeometryError::Rank`] when
    /// it has another number of axes. An empty region is fine anywhere inside or at the end.
    pub fn crop(&self, region: &Region) -> Result<Self, GeometryError> {
        if region.rank() != self.rank() {
            return Err(GeometryError::Rank { given: region.rank(), expected: self.rank() });
        }
        let mut map = *self;
        for axis in 0..self.rank() {
            let range = region.range(axis);
            let (start, end) = (i64::from(range.start), i64::from(range.end));
            let parent_start = self.min(axis);
            let parent_end = i64::from(parent_start) + i64::from(self.extent(axis));
            if start < i64::from(parent_start) || end > parent_end || start > end {
                return Err(GeometryError::OutOfBounds {
                    axis,
                    start,
                    end,
                    parent_start,
                    parent_end,
                });
            }
            map.min.set(axis, range.start);
            map.extent.set(axis, (end - start) as u32);
            // An empty crop at the very end has no first element; it keeps its parent's.
            if start < parent_end {
                map.advance_origin(axis, start - i64::from(parent_start));
            }
        }
        Ok(map)
    }

    /// The elements whose coordinate on `axis` is `at`, with that axis hidden.
    ///
    /// # Errors
    /// [`GeometryError::NoAxis`], or [`GeometryError::OutOfBounds`] when `at` is outside.
    pub fn slice(&self, axis: usize, at: i32) -> Result<Self, GeometryError> {
        self.checked_axis(axis)?;
        let mut region = self.region();
        let start = i64::from(at);
        let parent_end = i64::from(self.min(axis)) + i64::from(self.extent(axis));
        if start < i64::from(self.min(axis)) || start >= parent_end {
            return Err(GeometryError::OutOfBounds {
                axis,
                start,
                end: start + 1,
                parent_start: self.min(axis),
                parent_end,
            });
        }
        region.set(axis, at, at + 1);
        let mut map = self.crop(&region)?;
        for outer in axis..map.rank() {
            let next = outer + 1;
            map.min.set(outer, map.min.at(next));
            map.extent.set(outer, map.extent.at(next));
            map.step.set(outer, map.step.at(next));
            map.axis.set(outer, map.axis.at(next));
        }
        map.rank -= 1;
        // Unused axes are kept in one state, so that equal maps compare equal.
        let last = map.rank();
        map.min.set(last, 0);
        map.extent.set(last, 1);
        map.step.set(last, 1);
        map.axis.set(last, 0);
        Ok(map)
    }

    /// The same elements with coordinates on each axis shifted by `by`.
    ///
    /// # Errors
    /// [`GeometryError::Rank`], or [`GeometryError::Overflow`] when a coordinate leaves `i32`.
    pub fn translate(&self, by: &[i32]) -> Result<Self, GeometryError> {
        if by.len() != self.rank() {
            return Err(GeometryError::Rank { given: by.len(), expected: self.rank() });
        }
        let mut map = *self;
        for (axis, by) in by.iter().enumerate() {
            let lo = i64::from(self.min(axis)) + i64::from(*by);
            let hi = lo + i64::from(self.extent(axis));
            let overflow = GeometryError::Overflow { axis };
            let lo = i32::try_from(lo).map_err(|_| overflow)?;
            i32::try_from(hi).map_err(|_| overflow)?;
            map.min.set(axis, lo);
        }
        Ok(map)
    }

    /// The same elements with axis `order[i]` as axis `i`.
    ///
    /// # Errors
    /// [`GeometryError::Rank`] or [`GeometryError::BadPermutation`].
    pub fn permute(&self, order: &[usize]) -> Result<Self, GeometryError> {
        if order.len() != self.rank() {
            return Err(GeometryError::Rank { given: order.len(), expected: self.rank() });
        }
        let mut seen = [false; MAX_RANK];
        let mut map = *self;
        for (to, from) in order.iter().enumerate() {
            self.checked_axis(*from)?;
            match seen.get_mut(*from) {
                Some(seen) if !*seen => *seen = true,
                _ => return Err(GeometryError::BadPermutation),
            }
            map.min.set(to, self.min.at(*from));
            map.extent.set(to, self.extent.at(*from));
            map.step.set(to, self.step.at(*from));
            map.axis.set(to, self.axis.at(*from));
        }
        Ok(map)
    }

    /// Every `step`-th element along `axis`, from the first: `c` maps to `min + (c - min) * step`.
    ///
    /// # Errors
    /// [`GeometryError::NoAxis`], [`GeometryError::BadStep`] for a step below one,
    /// [`GeometryError::Overflow`] when the steps of nested views multiply beyond `i32`.
    pub fn step_by(&self, axis: usize, step: Step) -> Result<Self, GeometryError> {
        self.checked_axis(axis)?;
        if step < 1 {
            return Err(GeometryError::BadStep { step });
        }
        let mut map = *self;
        map.extent.set(axis, self.extent(axis).div_ceil(step as u32));
        // With one element left the step is never taken: it need not fit.
        let step = match self.step(axis).checked_mul(step) {
            Some(step) => step,
            None if map.extent(axis) <= 1 => 1,
            None => return Err(GeometryError::Overflow { axis }),
        };
        map.step.set(axis, step);
        Ok(map)
    }

    /// The same elements in opposite order along `axis`: `c` maps to `min + max - c`, both inclusive.
    ///
    /// # Errors
    /// [`GeometryError::NoAxis`], or [`GeometryError::Overflow`] for a step of `i32::MIN`.
    pub fn flip(&self, axis: usize) -> Result<Self, GeometryError> {
        self.checked_axis(axis)?;
        let mut map = *self;
        if self.extent(axis) > 0 {
            map.advance_origin(axis, i64::from(self.extent(axis)) - 1);
        }
        // As in `step_by`.
        let step = match self.step(axis).checked_neg() {
            Some(step) => step,
            None if self.extent(axis) <= 1 => 1,
            None => return Err(GeometryError::Overflow { axis }),
        };
        map.step.set(axis, step);
        Ok(map)
    }
}
