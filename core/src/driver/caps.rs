//! What a device is and can do.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

/// Which driver instance: two views may meet in one launch only when theirs are equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DriverId(u32);

impl DriverId {
    /// An id that no other driver of this program has. Call it once for each device opened.
    pub fn unique() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Display for DriverId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "driver {}", self.0)
    }
}

/// What a device is and can do. Made by [`Caps::new`], then adjusted field by field.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Caps {
    /// The device's own name, cut at 64 bytes.
    pub name: heapless::String<64>,
    /// Whether kernels reach host memory at full speed, so that [`storage`](super::DeviceDriver::storage)
    /// can be shared instead of copied.
    pub unified: bool,
    /// Copies want offsets that are multiples of this many bytes. Informative: a driver must handle
    /// every offset.
    pub copy_align: u32,
    /// A binding's offset is a multiple of this many bytes (a power of two).
    pub bind_align: u32,
    /// Flushes of non-coherent memory cover multiples of this many bytes.
    pub flush_align: u32,
    /// Largest allocation, in bytes.
    pub max_allocation: u64,
    /// Largest window a binding may have, in bytes.
    pub max_binding: u64,
    /// Most views a kernel may be given.
    pub max_views: u32,
    /// Most bytes of parameters a kernel may be given.
    pub max_params: u32,
    /// Most workgroups on each axis.
    pub max_groups: [u32; 3],
    /// Whether [`copy_from`](super::DeviceDriver::copy_from) works; else bytes go through the host.
    pub peer_copies: bool,
    /// Whether memory from [`storage`](super::DeviceDriver::storage) keeps its bytes when the device is
    /// lost.
    pub storage_survives_loss: bool,
}

impl Caps {
    /// A discrete device with no limits and no alignment.
    pub fn new(name: &str) -> Self {
        let mut short = heapless::String::new();
        for c in name.chars() {
            if short.push(c).is_err() {
                break;
            }
        }
        Self {
            name: short,
            unified: false,
            copy_align: 1,
            bind_align: 1,
            flush_align: 1,
            max_allocation: u64::MAX,
            max_binding: u64::MAX,
            max_views: u32::MAX,
            max_params: u32::MAX,
            max_groups: [u32::MAX; 3],
            peer_copies: false,
            storage_survives_loss: false,
        }
    }
}
