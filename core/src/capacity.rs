//! How big a tree's tables are.
//!
//! One type parameter of a tree says it all: a preset, or a type of one's own made by [`capacity!`](crate::capacity!).
//! It does not appear in the types of views and guards.

use crate::driver::CopyBox;
use crate::tree::{Access, Node, Work};

// What a dropped view or guard sets, and the fence that orders it. A model checker brings its own.
#[cfg(not(hedgerow_loom))]
#[doc(hidden)]
pub use core::sync::atomic::AtomicBool as Flag;
#[cfg(not(hedgerow_loom))]
pub(crate) use core::sync::atomic::fence;
#[cfg(hedgerow_loom)]
#[doc(hidden)]
pub use loom::sync::atomic::AtomicBool as Flag;
#[cfg(hedgerow_loom)]
pub(crate) use loom::sync::atomic::fence;

mod sealed {
    pub trait Sealed {}

    impl<X, const N: usize> Sealed for [X; N] {}
}

/// A fixed number of `X`: `[X; N]`, and nothing else, since the tables must stay what was put there.
pub trait Array<X>: Send + Sync + sealed::Sealed {
    /// One made of what `each` gives.
    fn build(each: impl FnMut(usize) -> X) -> Self;
    /// Its elements.
    fn as_slice(&self) -> &[X];
    /// Its elements.
    fn as_mut_slice(&mut self) -> &mut [X];
}

impl<X: Send + Sync, const N: usize> Array<X> for [X; N] {
    fn build(each: impl FnMut(usize) -> X) -> Self {
        core::array::from_fn(each)
    }

    fn as_slice(&self) -> &[X] {
        self
    }

    fn as_mut_slice(&mut self) -> &mut [X] {
        self
    }
}

/// The sizes of a tree's tables. Made by [`capacity!`](crate::capacity!).
pub trait Capacity: 'static {
    /// Bitmaps of all planes.
    type Words: Array<u32>;
    /// Cuts of all axes.
    type Cuts: Array<i32>;
    /// Nodes.
    type Nodes: Array<Node>;
    /// A flag for each node.
    type NodeFlags: Array<Flag>;
    /// Guards and launches under way.
    type Accesses: Array<Access>;
    /// A flag for each access.
    type AccessFlags: Array<Flag>;
    /// Device work in flight.
    type Work: Array<Work>;
    /// One thing for each device.
    type Devices<X: Send + Sync>: Array<X>;
    /// A copy list, on the stack of the calls that transfer.
    type List: Array<CopyBox>;
}

/// Makes a [`Capacity`].
///
/// * `words`: 32-bit words of each bitmap; there is one bitmap for the host, one for each device, and one
///   for what was lost. A word holds 32 cells; rows of fewer than 32 cells take a power of two of bits.
/// * `cuts`: cuts on each axis, at most 1,023.
/// * `nodes`: views alive at once, plus the root; at most 65,536.
/// * `guards`: guards alive at once, plus the views of launches under way; at most 65,536.
/// * `devices`: devices, at most 6.
/// * `list`: boxes of a copy list. Longer transfers take several lists.
///
/// When `words` or `cuts` run out, more bytes move than need be; nothing is lost.
///
/// ```
/// hedgerow::capacity! {
///     /// Many tiles, two devices.
///     pub struct Tiles { words: 1024, cuts: 128, nodes: 512, guards: 32, devices: 2, list: 32 }
/// }
/// ```
#[macro_export]
macro_rules! capacity {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        words: $words:expr, cuts: $cuts:expr, nodes: $nodes:expr, guards: $guards:expr,
        devices: $devices:expr, list: $list:expr $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $name;

        const _: () = {
            assert!($words >= 1 && $cuts >= 1 && $nodes >= 2 && $guards >= 1 && $list >= 1);
            assert!($cuts < $crate::coherence::MAX_INTERVALS);
            assert!($devices >= 1 && $devices <= $crate::tree::MAX_DEVICES);
            // A slot is named by 16 bits.
            assert!($nodes <= 65_536 && $guards <= 65_536);
        };

        impl $crate::capacity::Capacity for $name {
            type Words = [u32; $words * ($devices + 2)];
            type Cuts = [i32; $cuts * $crate::region::MAX_RANK];
            type Nodes = [$crate::tree::Node; $nodes];
            type NodeFlags = [$crate::capacity::Flag; $nodes];
            type Accesses = [$crate::tree::Access; $guards];
            type AccessFlags = [$crate::capacity::Flag; $guards];
            // More entries than lanes, so that two can always become one.
            type Work = [$crate::tree::Work; $guards + $crate::driver::MAX_LANES * $devices];
            type Devices<X: Send + Sync> = [X; $devices];
            type List = [$crate::driver::CopyBox; $list];
        }
    };
}

capacity! {
    /// For microcontrollers: 128 cells at most, 7 views, 4 guards, one device.
    pub struct Small { words: 4, cuts: 12, nodes: 8, guards: 4, devices: 1, list: 4 }
}

capacity! {
    /// The default: 8,192 cells at most, 31 views, 16 guards, one device.
    pub struct Standard { words: 256, cuts: 96, nodes: 32, guards: 16, devices: 1, list: 32 }
}

capacity! {
    /// For many tiles and scattered crops: 65,536 cells at most, 255 views, 64 guards, four devices.
    pub struct Large { words: 2048, cuts: 256, nodes: 256, guards: 64, devices: 4, list: 64 }
}
