//! Extending what a kernel writes to whole granules of device memory.

use crate::region::{Layout, Region};

/// The smallest box, of those this looks at, that holds every element sharing a granule with an element
/// of `region`.
///
/// Axes are looked at from the smallest stride up. Where all outer rows begin at the same place in a granule
/// the extension is exact; where they do not, it is the worst case. An extension that leaves a row
/// takes the whole row, and goes on with the next axis.
pub(super) fn extend(region: &Region, layout: &Layout, granule: u32) -> Region {
    let granule = u64::from(granule.max(1));
    let root = layout.region();
    let mut wide = *region;
    if granule == 1 || region.is_empty() {
        return wide;
    }
    let mut order = [0usize; crate::region::MAX_RANK];
    let mut axes = 0;
    for axis in 0..root.rank() {
        if root.extent(axis) > 1 {
            if let Some(slot) = order.get_mut(axes) {
                *slot = axis;
            }
            axes += 1;
        }
    }
    let order = order.get_mut(..axes).unwrap_or_default();
    order.sort_unstable_by_key(|axis| layout.stride(*axis).unsigned_abs());

    for (i, axis) in order.iter().copied().enumerate() {
        let stride = layout.stride(axis);
        let unit = stride.unsigned_abs();
        let outer = order.get(i + 1..).unwrap_or_default();
        let uniform = outer.iter().all(|axis| {
            wide.extent(*axis) == 1 || layout.stride(*axis).unsigned_abs().is_multiple_of(granule)
        });
        let (before, behind) = if uniform {
            // Up to here every inner axis is whole, so one row's run is contiguous.
            let mut row = wide;
            for axis in outer {
                row.set(*axis, wide.lo(*axis), wide.lo(*axis) + 1);
            }
            let (start, bytes) = layout.window(&row);
            (start % granule, (start + bytes).next_multiple_of(granule) - (start + bytes))
        } else {
            (granule - 1, granule - 1)
        };
        if before == 0 && behind == 0 {
            return wide;
        }
        let (before, behind) = (before.div_ceil(unit) as i64, behind.div_ceil(unit) as i64);
        // A negative stride puts higher coordinates at lower addresses.
        let (down, up) = if stride < 0 { (behind, before) } else { (before, behind) };
        let lo = i64::from(wide.lo(axis)) - down;
        let hi = i64::from(wide.hi(axis)) + up;
        if lo >= i64::from(root.lo(axis)) && hi <= i64::from(root.hi(axis)) {
            wide.set(axis, lo as i32, hi as i32);
            return wide;
        }
        wide.set(axis, root.lo(axis), root.hi(axis));
    }
    wide
}
