//! Copy lists: plain data that a driver executes.

use crate::region::MAX_RANK;

/// One level of repetition of a [`CopyBox`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dim {
    /// How often.
    pub count: u32,
    /// Bytes from one repetition to the next, in the source.
    pub src_stride: i64,
    /// Bytes from one repetition to the next, in the destination.
    pub dst_stride: i64,
}

/// A strided box: a run of contiguous bytes, repeated along up to [`MAX_RANK`] axes.
///
/// Axes that are contiguous on both sides are folded into the run, or into one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CopyBox {
    /// Byte offset of the first run in the source.
    pub src: u64,
    /// Byte offset of the first run in the destination.
    pub dst: u64,
    /// Contiguous bytes.
    pub run: u64,
    dims: [Dim; MAX_RANK],
    rank: u8,
}

impl CopyBox {
    /// One contiguous run.
    pub fn flat(src: u64, dst: u64, run: u64) -> Self {
        Self { src, dst, run, ..Self::default() }
    }

    /// Adds an outer axis, folding it into the run or into the axis before where both sides allow.
    ///
    /// A box has room for [`MAX_RANK`] axes, as many as a region has: one more is ignored.
    pub fn push(&mut self, dim: Dim) {
        if dim.count == 1 {
            return;
        }
        if self.rank == 0 {
            let run = self.run.cast_signed();
            if dim.src_stride == run && dim.dst_stride == run {
                self.run = self.run.saturating_mul(u64::from(dim.count));
                return;
            }
            // Both sides walk down: the same bytes from the other end.
            let down = run.wrapping_neg();
            if dim.src_stride == down && dim.dst_stride == down {
                let back = self.run.saturating_mul(u64::from(dim.count.saturating_sub(1)));
                self.src = self.src.wrapping_sub(back);
                self.dst = self.dst.wrapping_sub(back);
                self.run = self.run.saturating_mul(u64::from(dim.count));
                return;
            }
        } else if let Some(last) = self.dims.get_mut(self.rank as usize - 1) {
            let count = i64::from(last.count);
            let folds = last.src_stride.checked_mul(count) == Some(dim.src_stride)
                && last.dst_stride.checked_mul(count) == Some(dim.dst_stride);
            if let (true, Some(count)) = (folds, last.count.checked_mul(dim.count)) {
                last.count = count;
                return;
            }
        }
        if let Some(slot) = self.dims.get_mut(self.rank as usize) {
            *slot = dim;
            self.rank += 1;
        }
    }

    /// The axes around the run, innermost first. Empty for a flat copy.
    pub fn dims(&self) -> &[Dim] {
        self.dims.get(..self.rank as usize).unwrap_or_default()
    }

    /// The same destination, element by element of `element` bytes, every one from the source's first.
    pub(crate) fn with_fixed_source(&self, element: u64) -> Self {
        let mut fixed = Self { src: 0, run: element, rank: 0, ..*self };
        fixed.dims = [Dim::default(); MAX_RANK];
        let run = (self.run / element.max(1)) as u32;
        let own = Dim { count: run, src_stride: 0, dst_stride: element as i64 };
        for dim in core::iter::once(own).chain(self.dims().iter().copied()) {
            // Folding needs equal strides on both sides, which a fixed source has only for one element.
            fixed.push(Dim { src_stride: 0, ..dim });
        }
        fixed
    }

    /// The same box in two halves: from the source into packed memory, and from there to the destination.
    pub fn through_packed(&self) -> (Self, Self) {
        let (mut pack, mut unpack) = (*self, *self);
        pack.dst = 0;
        unpack.src = 0;
        let mut next = self.run;
        for (down, up) in pack.dims.iter_mut().zip(&mut unpack.dims).take(self.rank as usize) {
            down.dst_stride = next as i64;
            up.src_stride = next as i64;
            next = next.saturating_mul(u64::from(down.count));
        }
        (pack, unpack)
    }

    /// Number of runs; saturates at `u64::MAX`.
    pub fn runs(&self) -> u64 {
        self.dims().iter().fold(1u64, |n, dim| n.saturating_mul(u64::from(dim.count)))
    }

    /// Bytes copied; saturates at `u64::MAX`.
    pub fn bytes(&self) -> u64 {
        self.run.saturating_mul(self.runs())
    }

    /// Calls `each` with the source and destination offset of every run.
    pub fn for_each_run(&self, mut each: impl FnMut(u64, u64)) {
        let mut at = [0u32; MAX_RANK];
        let (mut src, mut dst) = (self.src, self.dst);
        for _ in 0..self.runs() {
            each(src, dst);
            for (dim, at) in self.dims().iter().zip(&mut at) {
                *at += 1;
                src = src.wrapping_add_signed(dim.src_stride);
                dst = dst.wrapping_add_signed(dim.dst_stride);
                if *at < dim.count {
                    break;
                }
                let back = -i64::from(dim.count);
                *at = 0;
                src = src.wrapping_add_signed(dim.src_stride.wrapping_mul(back));
                dst = dst.wrapping_add_signed(dim.dst_stride.wrapping_mul(back));
            }
        }
    }

    /// The lowest byte touched on each side, and one past the highest: `(src, dst)`. Both are empty when
    /// the box copies nothing.
    pub fn bounds(&self) -> (core::ops::Range<u64>, core::ops::Range<u64>) {
        let (mut src, mut dst) = (self.src..self.src, self.dst..self.dst);
        if self.bytes() == 0 {
            return (src, dst);
        }
        for dim in self.dims() {
            let steps = i64::from(dim.count.saturating_sub(1));
            for (range, stride) in [(&mut src, dim.src_stride), (&mut dst, dim.dst_stride)] {
                let reach = stride.wrapping_mul(steps);
                if stride < 0 {
                    range.start = range.start.wrapping_add_signed(reach);
                } else {
                    range.end = range.end.wrapping_add_signed(reach);
                }
            }
        }
        let end = |end: u64| end.wrapping_add(self.run);
        (src.start..end(src.end), dst.start..end(dst.end))
    }
}

#[cfg(test)]
mod tests;
