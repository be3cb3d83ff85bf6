//! What the device allows, and pretending that it allows less.

use ash::vk;

/// Pretends a stricter device, so that paths which a lenient one never takes are tested on it.
///
/// A value only ever makes the device stricter: alignments are raised, limits lowered. Start from
/// [`Default`] (the device as it is) or [`strict`](Self::strict).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct LimitsOverride {
    /// Bindings start at multiples of this (a power of two).
    pub bind_align: Option<u32>,
    /// Copies want multiples of this. Informative.
    pub copy_align: Option<u32>,
    /// Flushes cover multiples of this (a power of two).
    pub flush_align: Option<u32>,
    /// Largest window of a binding, in bytes.
    pub max_binding: Option<u64>,
    /// Largest allocation, in bytes.
    pub max_allocation: Option<u64>,
    /// Most memory objects at a time.
    pub max_allocations: Option<u32>,
    /// Bytes of one staging chunk. Larger transfers are cut into chunks.
    pub staging_chunk: Option<u64>,
    /// Most staging chunks at a time. When all are in use, transfers wait for the oldest.
    pub staging_chunks: Option<u32>,
    /// Treats a unified device as a discrete one.
    pub discrete: bool,
    /// Flushes and invalidates staging memory even where it is coherent.
    pub non_coherent: bool,
}

impl LimitsOverride {
    /// A discrete device with non-coherent staging, large alignments, few memory objects, and staging so
    /// small that most transfers are chunked.
    pub const fn strict() -> Self {
        Self {
            bind_align: Some(256),
            copy_align: Some(4),
            flush_align: Some(256),
            max_binding: Some(16 << 20),
            max_allocation: Some(64 << 20),
            max_allocations: Some(16),
            staging_chunk: Some(64 << 10),
            staging_chunks: Some(4),
            discrete: true,
            non_coherent: true,
        }
    }
}

/// Buffers are padded to, and windows end at, multiples of this: the largest element that a kernel may
/// read a window as.
pub(crate) const PAD: u64 = 16;

/// What counts: the device's limits, made stricter by the override.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) unified: bool,
    pub(crate) bind_align: u32,
    pub(crate) copy_align: u32,
    pub(crate) flush_align: u32,
    pub(crate) max_binding: u64,
    pub(crate) max_allocation: u64,
    pub(crate) max_allocations: u32,
    pub(crate) max_views: u32,
    pub(crate) max_params: u32,
    pub(crate) max_groups: [u32; 3],
    pub(crate) max_workgroup: [u32; 3],
    pub(crate) max_invocations: u32,
    pub(crate) staging_chunk: u64,
    pub(crate) staging_chunks: u32,
    pub(crate) non_coherent: bool,
}

impl Limits {
    /// Limits of a device with these properties.
    ///
    /// `allocation` is its largest allocation and largest buffer, whichever is less.
    pub(crate) fn new(
        device: &vk::PhysicalDeviceLimits,
        allocation: u64,
        unified: bool,
        over: &LimitsOverride,
    ) -> Self {
        let power = |asked: Option<u32>| asked.unwrap_or(1).clamp(1, 1 << 20).next_power_of_two();
        let bind = device.min_storage_buffer_offset_alignment.clamp(PAD, 1 << 20) as u32;
        let atom = device.non_coherent_atom_size.clamp(PAD, 1 << 20) as u32;
        let flush_align = atom.next_power_of_two().max(power(over.flush_align));
        let views = device
            .max_per_stage_descriptor_storage_buffers
            .min(device.max_descriptor_set_storage_buffers)
            .saturating_sub(1);
        let down = |bytes: u64| (bytes / PAD).max(1) * PAD;
        let range = u64::from(device.max_storage_buffer_range);
        let chunk = over.staging_chunk.unwrap_or(8 << 20).clamp(4 << 10, 256 << 20);
        Self {
            unified: unified && !over.discrete,
            bind_align: bind.next_power_of_two().max(power(over.bind_align)),
            copy_align: over.copy_align.unwrap_or(4).max(1),
            flush_align,
            max_binding: down(range.min(over.max_binding.unwrap_or(u64::MAX))),
            max_allocation: down(allocation.min(over.max_allocation.unwrap_or(u64::MAX))),
            // A few are kept back: whether a request needs a new memory object is known only after it.
            max_allocations: device
                .max_memory_allocation_count
                .saturating_sub(4)
                .min(over.max_allocations.unwrap_or(u32::MAX)),
            max_views: views.min(255),
            max_params: 64 << 10,
            max_groups: device.max_compute_work_group_count,
            max_workgroup: device.max_compute_work_group_size,
            max_invocations: device.max_compute_work_group_invocations,
            staging_chunk: chunk.next_multiple_of(u64::from(flush_align)),
            staging_chunks: over.staging_chunks.unwrap_or(8).max(1),
            non_coherent: over.non_coherent,
        }
    }
}
