//! Buffers and the memory under them, and the table of what the driver handed out.

use std::cmp::Ordering;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use ash::vk;
use gpu_allocator::vulkan::{
    Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc,
};
use gpu_allocator::{AllocationError, AllocationSizes, MemoryLocation};
use hedgerow::driver::{After, Ticket};

use crate::error::{Result, VulkanError};
use crate::limits::{Limits, PAD};
use crate::raw::{Atoms, Raw};

use vk::MemoryPropertyFlags as Flags;

/// Names memory of one device. Cheap to copy: the driver keeps the allocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Memory {
    slot: u32,
    generation: u32,
}

/// What memory is for, which decides its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// A root on the device.
    Device,
    /// Host storage that kernels run on.
    Shared,
    /// Host storage that is copied from and to.
    Pinned,
    /// Staging: written and read by the host, once.
    Staging,
    /// Records for kernels: written by the host, once.
    Records,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Shared => "shared",
            Self::Pinned => "pinned",
            Self::Staging => "staging",
            Self::Records => "record",
        }
    }

    /// What its memory type must have.
    fn required(self) -> Flags {
        match self {
            Self::Device => Flags::DEVICE_LOCAL,
            Self::Staging => Flags::HOST_VISIBLE,
            Self::Shared | Self::Pinned | Self::Records => {
                Flags::HOST_VISIBLE | Flags::HOST_COHERENT
            }
        }
    }

    /// How well a memory type fits that has all it must have.
    fn score(self, flags: Flags) -> u32 {
        let has = |flag, score| if flags.contains(flag) { score } else { 0 };
        let lacks = |flag, score| if flags.contains(flag) { 0 } else { score };
        match self {
            Self::Device => lacks(Flags::HOST_VISIBLE, 1),
            // The host reads it: uncached memory is a thousand times slower.
            Self::Shared => has(Flags::HOST_CACHED, 2) + has(Flags::DEVICE_LOCAL, 1),
            Self::Pinned => has(Flags::HOST_CACHED, 2) + lacks(Flags::DEVICE_LOCAL, 1),
            Self::Staging => {
                has(Flags::HOST_CACHED, 4)
                    + has(Flags::HOST_COHERENT, 2)
                    + lacks(Flags::DEVICE_LOCAL, 1)
            }
            Self::Records => has(Flags::DEVICE_LOCAL, 2) + lacks(Flags::HOST_CACHED, 1),
        }
    }

    fn usage(self) -> vk::BufferUsageFlags {
        let transfer = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
        match self {
            Self::Device | Self::Shared | Self::Pinned | Self::Staging => {
                transfer | vk::BufferUsageFlags::STORAGE_BUFFER
            }
            Self::Records => vk::BufferUsageFlags::STORAGE_BUFFER,
        }
    }

    /// Whether it lives long, as what is handed out does.
    fn long_lived(self) -> bool {
        matches!(self, Self::Device | Self::Shared | Self::Pinned)
    }
}

/// The memory type that fits `place` best.
fn pick(types: &[vk::MemoryType], bits: u32, place: Place) -> Option<usize> {
    // Others need a feature (protected, AMD's uncached) or cannot be bound to buffers (lazy).
    let known =
        Flags::DEVICE_LOCAL | Flags::HOST_VISIBLE | Flags::HOST_COHERENT | Flags::HOST_CACHED;
    let mut best = None;
    for (index, kind) in types.iter().enumerate() {
        let flags = kind.property_flags;
        let allowed = bits >> index & 1 == 1 && (flags & !known).is_empty();
        if allowed && flags.contains(place.required()) {
            let score = place.score(flags);
            if best.is_none_or(|(_, found)| score > found) {
                best = Some((index, score));
            }
        }
    }
    best.map(|(index, _)| index)
}

/// A buffer with memory of its own.
pub(crate) struct Block {
    pub(crate) buffer: vk::Buffer,
    /// Bytes of the buffer: what was asked for, rounded up to [`PAD`].
    pub(crate) bytes: u64,
    /// Where the host sees it.
    pub(crate) host: Option<NonNull<u8>>,
    /// Whether the host's view of it needs flushes.
    pub(crate) flushes: bool,
    memory: vk::DeviceMemory,
    memory_offset: u64,
    /// What it is for and its memory; `None` for a buffer that is somebody else's.
    own: Option<(Place, Allocation)>,
}

// SAFETY: `host` points at mapped memory that the block owns, valid from any thread; who may touch it when
// is up to the code that holds the block.
unsafe impl Send for Block {}

impl Block {
    /// Somebody else's buffer, which is only used here.
    pub(crate) fn wrapped(buffer: vk::Buffer, bytes: u64) -> Self {
        Self {
            buffer,
            bytes,
            host: None,
            flushes: false,
            memory: vk::DeviceMemory::null(),
            memory_offset: 0,
            own: None,
        }
    }

    /// The bytes that count as handed out.
    fn counted(&self) -> u64 {
        if self.own.is_some() { self.bytes } else { 0 }
    }

    /// The atoms of a part, which starts and ends at multiples of the flush alignment.
    pub(crate) fn atoms(&self, offset: u64, bytes: u64) -> Atoms {
        Atoms { memory: self.memory, offset: self.memory_offset + offset, bytes }
    }
}

/// The device's memory: two allocators, so that a short-lived piece never pins a root's block.
pub(crate) struct Heaps {
    roots: Allocator,
    rest: Allocator,
    types: Vec<vk::MemoryType>,
    heaps: Vec<vk::MemoryHeap>,
    flush_align: u64,
    /// Live memory objects.
    objects: u32,
    max_allocations: u32,
    non_coherent: bool,
}

impl Heaps {
    pub(crate) fn new(
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        memory: &vk::PhysicalDeviceMemoryProperties,
        raw: &Raw,
        limits: &Limits,
    ) -> Result<Self> {
        let make = |device_block: u64, host_block: u64| {
            let sizes = AllocationSizes::new(device_block << 20, host_block << 20)
                .with_max_device_memblock_size(256 << 20)
                .with_max_host_memblock_size(64 << 20);
            Allocator::new(&AllocatorCreateDesc {
                instance: instance.clone(),
                device: raw.device().clone(),
                physical_device: physical,
                debug_settings: Default::default(),
                buffer_device_address: false,
                allocation_sizes: sizes,
            })
            .map_err(|error| VulkanError::Allocator { reason: error.to_string() })
        };
        Ok(Self {
            roots: make(32, 16)?,
            rest: make(16, 16)?,
            types: memory.memory_types_as_slice().to_vec(),
            heaps: memory.memory_heaps_as_slice().to_vec(),
            flush_align: u64::from(limits.flush_align),
            objects: 0,
            max_allocations: limits.max_allocations,
            non_coherent: limits.non_coherent,
        })
    }

    /// Runs a call that makes or frees at most one memory object, and counts it: gpu-allocator counts none
    /// against the device's limit, but its capacity changes with each.
    fn counted<T>(&mut self, place: Place, call: impl FnOnce(&mut Allocator) -> T) -> T {
        let allocator = self.allocator(place);
        let before = allocator.capacity();
        let result = call(allocator);
        let after = allocator.capacity();
        match after.cmp(&before) {
            Ordering::Less => self.objects = self.objects.saturating_sub(1),
            Ordering::Equal => {}
            Ordering::Greater => self.objects += 1,
        }
        result
    }

    fn allocator(&mut self, place: Place) -> &mut Allocator {
        if place.long_lived() { &mut self.roots } else { &mut self.rest }
    }

    /// A buffer of `bytes` (not zero), with undefined contents.
    pub(crate) fn make(&mut self, raw: &Raw, bytes: u64, place: Place) -> Result<Block> {
        let bytes = bytes.next_multiple_of(PAD);
        let buffer = raw.create_buffer(bytes, place.usage())?;
        self.back(raw, buffer, bytes, place).inspect_err(|_| raw.destroy_buffer(buffer))
    }

    /// Puts memory under a buffer.
    fn back(&mut self, raw: &Raw, buffer: vk::Buffer, bytes: u64, place: Place) -> Result<Block> {
        let mut requirements = raw.requirements(buffer);
        let index = pick(&self.types, requirements.memory_type_bits, place).ok_or_else(|| {
            VulkanError::Allocator { reason: format!("no memory type for {} memory", place.name()) }
        })?;
        let kind = self.types[index];
        let heap = self.heaps[kind.heap_index as usize].size;
        if requirements.size > heap {
            return Err(VulkanError::TooLarge { what: "an allocation", bytes, limit: heap });
        }
        // The type was picked above; the allocator's own choice is not asked for.
        requirements.memory_type_bits = 1 << index;
        // gpu-allocator does not keep mapped pieces to whole atoms.
        requirements.alignment = requirements.alignment.max(self.flush_align);
        requirements.size = requirements.size.next_multiple_of(self.flush_align);
        let before = self.objects;
        let asked = AllocationCreateDesc {
            name: place.name(),
            requirements,
            location: MemoryLocation::Unknown,
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        };
        raw.foresee("vkAllocateMemory")?;
        let allocation = self
            .counted(place, |allocator| allocator.allocate(&asked))
            .map_err(|error| explain(raw, error, bytes, place))?;
        let limit = self.max_allocations;
        if self.objects > before && self.objects > limit {
            self.give_back(place, allocation);
            return Err(VulkanError::TooManyAllocations { limit });
        }
        // SAFETY: the memory is only bound, mapped and flushed, and the allocation freed after the buffer.
        let memory = unsafe { allocation.memory() };
        let memory_offset = allocation.offset();
        if let Err(error) = raw.bind(buffer, memory, memory_offset) {
            self.give_back(place, allocation);
            return Err(error);
        }
        let coherent = kind.property_flags.contains(Flags::HOST_COHERENT);
        let forced = self.non_coherent && !place.long_lived();
        Ok(Block {
            buffer,
            bytes,
            host: allocation.mapped_ptr().map(NonNull::cast),
            flushes: !coherent || forced,
            memory,
            memory_offset,
            own: Some((place, allocation)),
        })
    }

    /// Destroys a buffer that nothing uses any more, and frees its memory. Forgets it if it is somebody
    /// else's.
    pub(crate) fn unmake(&mut self, raw: &Raw, block: Block) {
        if let Some((place, allocation)) = block.own {
            raw.destroy_buffer(block.buffer);
            self.give_back(place, allocation);
        }
    }

    fn give_back(&mut self, place: Place, allocation: Allocation) {
        let freed = self.counted(place, |allocator| allocator.free(allocation));
        if let Err(error) = freed {
            warning!("{} memory was leaked: {}", place.name(), error);
        }
    }
}

/// gpu-allocator hands on most Vulkan errors as text.
fn explain(raw: &Raw, error: AllocationError, bytes: u64, place: Place) -> VulkanError {
    let no_room = VulkanError::OutOfMemory { bytes, place: place.name() };
    match error {
        AllocationError::OutOfMemory | AllocationError::FailedToMap(_) => no_room,
        AllocationError::Internal(text) if text.contains("DEVICE_LOST") => {
            raw.fail("vkAllocateMemory", vk::Result::ERROR_DEVICE_LOST)
        }
        AllocationError::Internal(text)
            if text.contains("OUT_OF_HOST_MEMORY") || text.contains("TOO_MANY_OBJECTS") =>
        {
            no_room
        }
        other => VulkanError::Allocator { reason: other.to_string() },
    }
}

/// One place of the table.
#[derive(Default)]
struct Slot {
    generation: u32,
    block: Option<Block>,
    /// Value of the last ticket that uses it.
    last: u64,
}

/// All memory that was handed out, by slot, and what is released but may still be in use.
///
/// A slot's generation rises when it is released, so that an old handle finds nothing.
#[derive(Default)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// With the last tickets that use each.
    dead: Vec<(After, Block)>,
    /// Bytes of all own blocks, dead ones included.
    bytes: u64,
}

impl Table {
    pub(crate) fn insert(&mut self, block: Block, last: u64) -> Memory {
        self.bytes += block.counted();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let place = &mut self.slots[slot as usize];
        place.block = Some(block);
        place.last = last;
        Memory { slot, generation: place.generation }
    }

    /// The memory behind a handle.
    pub(crate) fn get(&self, memory: Memory) -> Result<&Block> {
        self.slots
            .get(memory.slot as usize)
            .filter(|slot| slot.generation == memory.generation)
            .and_then(|slot| slot.block.as_ref())
            .ok_or(VulkanError::StaleMemory { slot: memory.slot })
    }

    /// Notes that the work of this ticket uses the memory.
    pub(crate) fn touch(&mut self, memory: Memory, value: u64) {
        if let Some(slot) = self.slots.get_mut(memory.slot as usize) {
            slot.last = slot.last.max(value);
        }
    }

    /// Releases a handle. Its memory is freed by [`collect`](Self::collect) once `after` is done, and the
    /// last work that the driver itself recorded on it.
    pub(crate) fn release(&mut self, memory: Memory, after: &[Ticket]) {
        if self.get(memory).is_err() {
            warning!("memory {} was released twice", memory.slot);
            return;
        }
        let slot = &mut self.slots[memory.slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
        if let Some(block) = slot.block.take() {
            let mut last = After::NONE;
            last.add(Ticket { lane: 0, value: slot.last });
            for ticket in after {
                last.add(*ticket);
            }
            self.dead.push((last, block));
        }
        self.free.push(memory.slot);
    }

    /// The last tickets that released memory waits for, if any is left.
    pub(crate) fn last_dead(&self) -> Option<After> {
        let mut all = After::NONE;
        for (after, _) in &self.dead {
            all.extend(after);
        }
        (!self.dead.is_empty()).then_some(all)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Frees what was released and is no longer in use.
    pub(crate) fn collect(
        &mut self,
        raw: &Raw,
        heaps: &mut Heaps,
        mut is_done: impl FnMut(&Ticket) -> bool,
    ) {
        let unused = |(after, _): &mut (After, Block)| after.as_slice().iter().all(&mut is_done);
        for (_, block) in self.dead.extract_if(.., unused) {
            self.bytes -= block.counted();
            heaps.unmake(raw, block);
        }
    }

    /// Takes everything out, in use or not.
    pub(crate) fn drain(&mut self) -> Vec<Block> {
        let live = self.slots.iter_mut().filter_map(|slot| slot.block.take());
        live.chain(self.dead.drain(..).map(|(_, block)| block)).collect()
    }
}

/// Memory that is never freed by itself: see `Shared`'s drop.
pub(crate) type Kept<T> = ManuallyDrop<T>;

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(property_flags: Flags, heap_index: u32) -> vk::MemoryType {
        vk::MemoryType { property_flags, heap_index }
    }

    /// The memory types of an NVIDIA GPU of the data centre, and one that needs a feature.
    #[test]
    fn discrete_types() {
        let host = Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
        let types = [
            kind(Flags::empty(), 1),
            kind(Flags::DEVICE_LOCAL | Flags::PROTECTED, 0),
            kind(Flags::DEVICE_LOCAL, 0),
            kind(host, 1),
            kind(host | Flags::HOST_CACHED, 1),
            kind(Flags::DEVICE_LOCAL | host, 0),
        ];
        assert_eq!(pick(&types, !0, Place::Device), Some(2));
        assert_eq!(pick(&types, !0, Place::Pinned), Some(4));
        assert_eq!(pick(&types, !0, Place::Staging), Some(4));
        assert_eq!(pick(&types, !0, Place::Records), Some(5));
        assert_eq!(pick(&types, 0b1000, Place::Staging), Some(3));
        assert_eq!(pick(&types, 0b1000, Place::Device), None);
    }

    /// Cached memory that is not coherent is better for staging than coherent memory that is not cached,
    /// and no storage.
    #[test]
    fn non_coherent_types() {
        let local = Flags::DEVICE_LOCAL | Flags::HOST_VISIBLE;
        let types = [kind(local | Flags::HOST_CACHED, 0), kind(local | Flags::HOST_COHERENT, 0)];
        assert_eq!(pick(&types, !0, Place::Staging), Some(0));
        assert_eq!(pick(&types, !0, Place::Shared), Some(1));
    }
}
