//! What a tree moved, and why.

use core::fmt;

/// Counts over the life of one tree (a detached tree has its own). Bytes are those of elements; zeroing, poison and packing do not count, and
/// what was moved only because of widening is counted apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Bytes from the host to a device that an access asked for.
    pub bytes_up: u64,
    /// Bytes from a device to the host that an access asked for.
    pub bytes_down: u64,
    /// Bytes straight from device to device that an access asked for. Where a driver has no
    /// [`peer_copies`](crate::driver::Caps::peer_copies), they go by way of the host storage, count as
    /// down and up, and stay fresh there.
    pub bytes_across: u64,
    /// Bytes moved beside the region asked for: whole granules, the gaps of stepped views, and cells that
    /// could not be cut for want of capacity.
    pub bytes_widened: u64,
    /// Bytes that nobody had written and that were zeroed and became defined because a write covered
    /// them by widening.
    pub defined_by_widening: u64,
    /// Device allocations.
    pub allocations: u32,
    /// Times that device memory was given back while the tree went on.
    pub evictions: u32,
    /// Kernel launches accepted.
    pub launches: u32,
    /// Copy lists handed to drivers.
    pub lists: u32,
}

impl Counters {
    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            bytes_up: self.bytes_up.wrapping_sub(earlier.bytes_up),
            bytes_down: self.bytes_down.wrapping_sub(earlier.bytes_down),
            bytes_across: self.bytes_across.wrapping_sub(earlier.bytes_across),
            bytes_widened: self.bytes_widened.wrapping_sub(earlier.bytes_widened),
            defined_by_widening: self.defined_by_widening.wrapping_sub(earlier.defined_by_widening),
            allocations: self.allocations.wrapping_sub(earlier.allocations),
            evictions: self.evictions.wrapping_sub(earlier.evictions),
            launches: self.launches.wrapping_sub(earlier.launches),
            lists: self.lists.wrapping_sub(earlier.lists),
        }
    }
}

impl core::ops::Add for Counters {
    type Output = Self;

    /// Both together: for pipelines over several trees.
    fn add(self, other: Self) -> Self {
        let zero = Self::default();
        // What was counted since "minus other".
        self.since(&zero.since(&other))
    }
}

impl core::iter::Sum for Counters {
    fn sum<I: Iterator<Item = Self>>(each: I) -> Self {
        each.fold(Self::default(), |sum, one| sum + one)
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes up, {} down, {} across, {} by widening; {} allocations, {} launches, {} lists",
            self.bytes_up,
            self.bytes_down,
            self.bytes_across,
            self.bytes_widened,
            self.allocations,
            self.launches,
            self.lists
        )
    }
}

defmt_as_display! { impl Counters; }
