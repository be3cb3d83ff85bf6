//! Thin wrappers around the Vulkan calls in use: one call each, so that what makes it sound is said once.
//!
//! They are safe only because nothing outside this crate reaches them. What the rest of the crate keeps
//! to, and what the `SAFETY` comments here refer to:
//!
//! * **R1 Live.** Every handle passed in was made by this `Raw` and is not destroyed: memory, batches,
//!   belts and pipelines own theirs, and destroy them only when the last ticket that uses them is done.
//! * **R2 Alone.** Command buffers, pools, descriptor sets and the queue are reached only through the one
//!   mutex around `State` (or `&mut` in `drop`): nobody else uses them during a call. A queue that is shared
//!   with its owner is reached only inside the owner's [`QueueLock`] as well.
//! * **R3 Recording.** A command buffer passed to a `cmd_` wrapper is the open batch's, which is recording;
//!   its pool's family has compute, hence transfer.
//! * **R4 Inside.** Offsets and sizes lie inside the buffer: the core promises that for boxes and windows,
//!   `belt` for its leases, `memory` for whole buffers.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ash::vk;

use crate::adopt::QueueLock;
use crate::error::{Result, VulkanError};
use crate::script::{Script, Scripted};

/// The longest that one `vkWaitSemaphores` may take: then loss is looked at again.
const SLICE: Duration = Duration::from_millis(500);

/// The device is there.
const ALIVE: u8 = 0;
/// A test says that it is lost.
const SIMULATED: u8 = 1;
/// A call said that it is lost.
const LOST: u8 = 2;

/// Stages in which this driver's work runs.
const WORK: vk::PipelineStageFlags = vk::PipelineStageFlags::from_raw(
    vk::PipelineStageFlags::TRANSFER.as_raw() | vk::PipelineStageFlags::COMPUTE_SHADER.as_raw(),
);
/// How it writes.
const WRITES: vk::AccessFlags = vk::AccessFlags::from_raw(
    vk::AccessFlags::TRANSFER_WRITE.as_raw() | vk::AccessFlags::SHADER_WRITE.as_raw(),
);
/// How it touches memory at all.
const TOUCHES: vk::AccessFlags = vk::AccessFlags::from_raw(
    WRITES.as_raw()
        | vk::AccessFlags::TRANSFER_READ.as_raw()
        | vk::AccessFlags::SHADER_READ.as_raw(),
);

/// A part of a buffer, as a descriptor names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) buffer: vk::Buffer,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// A part of mapped memory, in whole atoms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Atoms {
    pub(crate) memory: vk::DeviceMemory,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// A semaphore and the value of it to wait for.
pub(crate) type Wait = (vk::Semaphore, u64);

/// The device, its one queue, and the timeline that tickets are values of.
pub(crate) struct Raw {
    device: ash::Device,
    /// Whether the device is the caller's: never destroyed here, and its queue is shared under this lock.
    adopted: Option<Arc<dyn QueueLock>>,
    queue: vk::Queue,
    family: u32,
    timeline: vk::Semaphore,
    lost: AtomicU8,
    /// The highest value known to be done, its effects visible to the host.
    completed: AtomicU64,
    /// How many submissions fail next, for a test.
    failing: AtomicU32,
    script: Script,
}

impl Raw {
    /// Takes a device that was created with timeline semaphores and one queue of `family`, and is now this
    /// one's to destroy.
    pub(crate) fn open(device: ash::Device, family: u32) -> Result<Self> {
        // SAFETY: the device was created with one queue of this family.
        let queue = unsafe { device.get_device_queue(family, 0) };
        Self::new(device, queue, family, None)
    }

    /// Works on somebody else's device and queue, which has timeline semaphores.
    pub(crate) fn adopt(
        device: ash::Device,
        queue: vk::Queue,
        family: u32,
        lock: Arc<dyn QueueLock>,
    ) -> Result<Self> {
        Self::new(device, queue, family, Some(lock))
    }

    fn new(
        device: ash::Device,
        queue: vk::Queue,
        family: u32,
        adopted: Option<Arc<dyn QueueLock>>,
    ) -> Result<Self> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default()
            .semaphore_type(vk::SemaphoreType::TIMELINE)
            .initial_value(0);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device is alive, and its timeline feature is enabled.
        let made = unsafe { device.create_semaphore(&info, None) };
        let timeline = match made {
            Ok(timeline) => timeline,
            Err(result) => {
                if adopted.is_none() {
                    // SAFETY: nothing was made from the device, and nobody else has it.
                    unsafe { device.destroy_device(None) };
                }
                return Err(VulkanError::Call { call: "vkCreateSemaphore", result });
            }
        };
        Ok(Self {
            device,
            adopted,
            queue,
            family,
            timeline,
            lost: AtomicU8::new(ALIVE),
            completed: AtomicU64::new(0),
            failing: AtomicU32::new(0),
            script: Script::default(),
        })
    }

    pub(crate) fn device(&self) -> &ash::Device {
        &self.device
    }

    // Loss

    /// An error where the device is lost.
    pub(crate) fn check(&self) -> Result<()> {
        if self.lost.load(Ordering::Acquire) == ALIVE { Ok(()) } else { Err(VulkanError::Lost) }
    }

    /// Marks the device as lost, for good.
    pub(crate) fn lose(&self) {
        self.lost.store(LOST, Ordering::Release);
    }

    /// Marks a healthy device as lost, for good.
    pub(crate) fn lose_in_a_test(&self) {
        let _ = self.lost.compare_exchange(ALIVE, SIMULATED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether the device itself said that it is lost.
    pub(crate) fn really_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire) == LOST
    }

    /// The error for a failed call. Sees loss.
    pub(crate) fn fail(&self, call: &'static str, result: vk::Result) -> VulkanError {
        if result == vk::Result::ERROR_DEVICE_LOST {
            self.lose();
            return VulkanError::Lost;
        }
        VulkanError::Call { call, result }
    }

    /// Makes a call, unless a test's script says what it answers.
    fn ask<T>(
        &self,
        call: &'static str,
        make: impl FnOnce() -> Result<T, vk::Result>,
    ) -> Result<T> {
        self.script.call(call, make).map_err(|result| self.fail(call, result))
    }

    /// The same for a call that somebody else makes: gpu-allocator's own.
    pub(crate) fn foresee(&self, call: &'static str) -> Result<()> {
        self.ask(call, || Ok(()))
    }

    /// For tests: see [`Script`].
    pub(crate) fn script(&self) -> &Script {
        &self.script
    }

    // Timelines

    /// The timeline that tickets of lane 0 are values of.
    pub(crate) fn timeline(&self) -> vk::Semaphore {
        self.timeline
    }

    /// The highest value known to be done.
    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// Waits once, loss or not. Whether the value is done.
    pub(crate) fn wait_once(&self, value: u64, time: Duration) -> Result<bool> {
        let done = self.wait_once_on((self.timeline, value), time)?;
        if done {
            self.completed.fetch_max(value, Ordering::AcqRel);
        }
        Ok(done)
    }

    /// The same for any timeline, which is this one's or was imported and not removed.
    pub(crate) fn wait_once_on(&self, (semaphore, value): Wait, time: Duration) -> Result<bool> {
        let (semaphores, values) = ([semaphore], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(i64::MAX as u64);
        let wait = || {
            // SAFETY: R1, or alive by the promise of `import_timeline`; a timeline may be waited for from
            // any thread.
            unsafe { self.device.wait_semaphores(&info, nanos) }
        };
        match self.script.call("vkWaitSemaphores", wait) {
            Ok(()) => Ok(true),
            Err(vk::Result::TIMEOUT) => Ok(false),
            Err(result) => Err(self.fail("vkWaitSemaphores", result)),
        }
    }

    /// Waits for a submitted value, in slices. Whether it is done.
    pub(crate) fn wait(&self, value: u64, timeout: Duration) -> Result<bool> {
        if value <= self.completed() {
            return self.check().map(|()| true);
        }
        let done = self.wait_on((self.timeline, value), timeout)?;
        if done {
            self.completed.fetch_max(value, Ordering::AcqRel);
        }
        Ok(done)
    }

    /// The same for any timeline, as [`wait_once_on`](Self::wait_once_on).
    pub(crate) fn wait_on(&self, wait: Wait, timeout: Duration) -> Result<bool> {
        let start = Instant::now();
        loop {
            self.check()?;
            let left = timeout.saturating_sub(start.elapsed());
            if self.wait_once_on(wait, left.min(SLICE))? {
                return Ok(true);
            }
            if left <= SLICE {
                return Ok(false);
            }
        }
    }

    /// Submits a batch that follows `waits` and ends with `value`.
    pub(crate) fn submit(
        &self,
        commands: vk::CommandBuffer,
        waits: &[Wait],
        value: u64,
    ) -> Result<()> {
        if self.fails_for_a_test() {
            let result = vk::Result::ERROR_OUT_OF_HOST_MEMORY;
            return Err(self.fail("vkQueueSubmit", result));
        }
        let scripted = self.script.next("vkQueueSubmit");
        if let Some(Scripted::NotMade(answer)) = scripted {
            return Err(self.fail("vkQueueSubmit", answer));
        }
        let (semaphores, values): (Vec<_>, Vec<_>) = waits.iter().copied().unzip();
        let stages = vec![WORK; waits.len()];
        let (buffers, signals, signalled) = ([commands], [self.timeline], [value]);
        let mut timeline = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&values)
            .signal_semaphore_values(&signalled);
        let info = vk::SubmitInfo::default()
            .wait_semaphores(&semaphores)
            .wait_dst_stage_mask(&stages)
            .command_buffers(&buffers)
            .signal_semaphores(&signals)
            .push_next(&mut timeline);
        let mut result = None;
        let mut submit = || {
            // Once, however often a lock calls it.
            result.get_or_insert_with(|| {
                // SAFETY: R1, R2; the buffer is ended and not in flight (`batch` submits each once), values
                // rise from batch to batch, and imported semaphores are alive until they are removed.
                unsafe { self.device.queue_submit(self.queue, &[info], vk::Fence::null()) }
            });
        };
        match &self.adopted {
            Some(lock) => lock.with(&mut submit),
            None => submit(),
        }
        let result = result.ok_or(VulkanError::QueueLock)?;
        match scripted {
            Some(Scripted::Made(answer)) => Err(self.fail("vkQueueSubmit", answer)),
            _ => result.map_err(|result| self.fail("vkQueueSubmit", result)),
        }
    }

    /// For a test: the next submissions fail, and reach no queue.
    pub(crate) fn fail_submissions(&self, count: u32) {
        self.failing.store(count, Ordering::Release);
    }

    fn fails_for_a_test(&self) -> bool {
        let less = |count: u32| count.checked_sub(1);
        self.failing.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    // Memory

    pub(crate) fn create_buffer(
        &self,
        bytes: u64,
        usage: vk::BufferUsageFlags,
    ) -> Result<vk::Buffer> {
        let info = vk::BufferCreateInfo::default()
            .size(bytes)
            .usage(usage)
            .sharing_mode(vk::SharingMode::EXCLUSIVE);
        self.ask("vkCreateBuffer", || {
            // SAFETY: the size is not zero and below the device's limit (`memory` checks both).
            unsafe { self.device.create_buffer(&info, None) }
        })
    }

    pub(crate) fn requirements(&self, buffer: vk::Buffer) -> vk::MemoryRequirements {
        // SAFETY: R1.
        unsafe { self.device.get_buffer_memory_requirements(buffer) }
    }

    pub(crate) fn bind(&self, buffer: vk::Buffer, memory: vk::DeviceMemory, at: u64) -> Result<()> {
        self.ask("vkBindBufferMemory", || {
            // SAFETY: R1; the memory was allocated for this buffer's requirements, which is bound once.
            unsafe { self.device.bind_buffer_memory(buffer, memory, at) }
        })
    }

    pub(crate) fn destroy_buffer(&self, buffer: vk::Buffer) {
        // SAFETY: R1; its owner gives it up here.
        unsafe { self.device.destroy_buffer(buffer, None) };
    }

    /// Makes the host's writes to these atoms visible to the device.
    pub(crate) fn flush(&self, atoms: Atoms) -> Result<()> {
        let range = mapped(atoms);
        self.ask("vkFlushMappedMemoryRanges", || {
            // SAFETY: R1; the memory is mapped for all its life, and the range is in whole atoms inside it.
            unsafe { self.device.flush_mapped_memory_ranges(&[range]) }
        })
    }

    /// Makes the device's writes to these atoms visible to the host.
    pub(crate) fn invalidate(&self, atoms: Atoms) -> Result<()> {
        let range = mapped(atoms);
        self.ask("vkInvalidateMappedMemoryRanges", || {
            // SAFETY: as in `flush`.
            unsafe { self.device.invalidate_mapped_memory_ranges(&[range]) }
        })
    }

    // Command buffers

    pub(crate) fn create_command_pool(&self) -> Result<vk::CommandPool> {
        let info = vk::CommandPoolCreateInfo::default()
            .queue_family_index(self.family)
            .flags(vk::CommandPoolCreateFlags::TRANSIENT);
        self.ask("vkCreateCommandPool", || {
            // SAFETY: the family is the one the device was created with.
            unsafe { self.device.create_command_pool(&info, None) }
        })
    }

    pub(crate) fn allocate_commands(&self, pool: vk::CommandPool) -> Result<vk::CommandBuffer> {
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        let buffers = self.ask("vkAllocateCommandBuffers", || {
            // SAFETY: R1, R2.
            unsafe { self.device.allocate_command_buffers(&info) }
        })?;
        // One was asked for.
        Ok(buffers.first().copied().unwrap_or_default())
    }

    pub(crate) fn reset_command_pool(&self, pool: vk::CommandPool) -> Result<()> {
        self.ask("vkResetCommandPool", || {
            // SAFETY: R1, R2; its command buffer is done.
            unsafe { self.device.reset_command_pool(pool, vk::CommandPoolResetFlags::empty()) }
        })
    }

    pub(crate) fn destroy_command_pool(&self, pool: vk::CommandPool) {
        // SAFETY: R1, R2; its command buffer is done, or was never submitted.
        unsafe { self.device.destroy_command_pool(pool, None) };
    }

    pub(crate) fn begin(&self, commands: vk::CommandBuffer) -> Result<()> {
        let info = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        self.ask("vkBeginCommandBuffer", || {
            // SAFETY: R1, R2; it is new, or its pool was reset.
            unsafe { self.device.begin_command_buffer(commands, &info) }
        })
    }

    pub(crate) fn end(&self, commands: vk::CommandBuffer) -> Result<()> {
        self.ask("vkEndCommandBuffer", || {
            // SAFETY: R1, R2, R3.
            unsafe { self.device.end_command_buffer(commands) }
        })
    }

    // Commands

    fn cmd_barrier(
        &self,
        commands: vk::CommandBuffer,
        to: vk::PipelineStageFlags,
        access: vk::AccessFlags,
    ) {
        let barrier = vk::MemoryBarrier::default().src_access_mask(WRITES).dst_access_mask(access);
        let none = vk::DependencyFlags::empty();
        // SAFETY: R1, R2, R3; the stages and accesses are ones that a compute queue has.
        unsafe {
            self.device.cmd_pipeline_barrier(commands, WORK, to, none, &[barrier], &[], &[]);
        };
    }

    /// What is recorded later follows all that was recorded before, in this batch and in earlier ones.
    pub(crate) fn cmd_order(&self, commands: vk::CommandBuffer) {
        self.cmd_barrier(commands, WORK, TOUCHES);
    }

    /// The host sees, after its wait, what was recorded before.
    pub(crate) fn cmd_show_host(&self, commands: vk::CommandBuffer) {
        let access = vk::AccessFlags::HOST_READ | vk::AccessFlags::HOST_WRITE;
        self.cmd_barrier(commands, vk::PipelineStageFlags::HOST, access);
    }

    pub(crate) fn cmd_copy(
        &self,
        commands: vk::CommandBuffer,
        src: vk::Buffer,
        dst: vk::Buffer,
        regions: &[vk::BufferCopy],
    ) {
        // SAFETY: R1 to R4; there is at least one region, none is empty, and none overlaps another.
        unsafe { self.device.cmd_copy_buffer(commands, src, dst, regions) };
    }

    /// Fills whole words: offset and size are multiples of four.
    pub(crate) fn cmd_fill(
        &self,
        commands: vk::CommandBuffer,
        dst: vk::Buffer,
        offset: u64,
        bytes: u64,
        word: u32,
    ) {
        debug_assert!(offset.is_multiple_of(4) && bytes.is_multiple_of(4) && bytes > 0);
        // SAFETY: R1 to R4; the callers pass whole words.
        unsafe { self.device.cmd_fill_buffer(commands, dst, offset, bytes, word) };
    }

    pub(crate) fn cmd_bind_pipeline(&self, commands: vk::CommandBuffer, pipeline: vk::Pipeline) {
        // SAFETY: R1, R2, R3; it is a compute pipeline.
        unsafe {
            self.device.cmd_bind_pipeline(commands, vk::PipelineBindPoint::COMPUTE, pipeline);
        };
    }

    pub(crate) fn cmd_bind_set(
        &self,
        commands: vk::CommandBuffer,
        layout: vk::PipelineLayout,
        set: vk::DescriptorSet,
    ) {
        let point = vk::PipelineBindPoint::COMPUTE;
        // SAFETY: R1, R2, R3; the set was allocated with the layout's own set layout.
        unsafe { self.device.cmd_bind_descriptor_sets(commands, point, layout, 0, &[set], &[]) };
    }

    pub(crate) fn cmd_dispatch(&self, commands: vk::CommandBuffer, groups: [u32; 3]) {
        let [x, y, z] = groups;
        // SAFETY: R1, R2, R3; a pipeline and its one set are bound, and the core keeps groups in limits.
        unsafe { self.device.cmd_dispatch(commands, x, y, z) };
    }

    // Descriptors

    /// A layout of `count` storage buffers in one set, and the pipeline layout of that set alone.
    pub(crate) fn create_layouts(
        &self,
        count: u32,
    ) -> Result<(vk::DescriptorSetLayout, vk::PipelineLayout)> {
        let bindings: Vec<_> = (0..count)
            .map(|binding| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        let set = self.ask("vkCreateDescriptorSetLayout", || {
            // SAFETY: the number of storage buffers is within the device's limits (`kernel` checks it).
            unsafe { self.device.create_descriptor_set_layout(&info, None) }
        })?;
        let sets = [set];
        let info = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets);
        let made = self.ask("vkCreatePipelineLayout", || {
            // SAFETY: the set layout was just made.
            unsafe { self.device.create_pipeline_layout(&info, None) }
        });
        match made {
            Ok(layout) => Ok((set, layout)),
            Err(error) => {
                // SAFETY: R1; nothing uses it.
                unsafe { self.device.destroy_descriptor_set_layout(set, None) };
                Err(error)
            }
        }
    }

    pub(crate) fn destroy_layouts(&self, set: vk::DescriptorSetLayout, layout: vk::PipelineLayout) {
        // SAFETY: R1; all pipelines and sets made with it are gone.
        unsafe { self.device.destroy_pipeline_layout(layout, None) };
        // SAFETY: as above.
        unsafe { self.device.destroy_descriptor_set_layout(set, None) };
    }

    pub(crate) fn create_descriptor_pool(
        &self,
        sets: u32,
        buffers: u32,
    ) -> Result<vk::DescriptorPool> {
        let sizes = [vk::DescriptorPoolSize::default()
            .ty(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(buffers)];
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(sets).pool_sizes(&sizes);
        self.ask("vkCreateDescriptorPool", || {
            // SAFETY: the sizes are not zero.
            unsafe { self.device.create_descriptor_pool(&info, None) }
        })
    }

    pub(crate) fn reset_descriptor_pool(&self, pool: vk::DescriptorPool) -> Result<()> {
        let none = vk::DescriptorPoolResetFlags::empty();
        self.ask("vkResetDescriptorPool", || {
            // SAFETY: R1, R2; the batch that uses its sets is done.
            unsafe { self.device.reset_descriptor_pool(pool, none) }
        })
    }

    pub(crate) fn destroy_descriptor_pool(&self, pool: vk::DescriptorPool) {
        // SAFETY: R1, R2; the batch that uses its sets is done, or was never submitted.
        unsafe { self.device.destroy_descriptor_pool(pool, None) };
    }

    /// One set of the pool, or `None` when the pool has none left.
    pub(crate) fn allocate_set(
        &self,
        pool: vk::DescriptorPool,
        layout: vk::DescriptorSetLayout,
    ) -> Result<Option<vk::DescriptorSet>> {
        let layouts = [layout];
        let info =
            vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool).set_layouts(&layouts);
        let allocate = || {
            // SAFETY: R1, R2.
            unsafe { self.device.allocate_descriptor_sets(&info) }
        };
        match self.script.call("vkAllocateDescriptorSets", allocate) {
            Ok(sets) => Ok(sets.first().copied()),
            Err(vk::Result::ERROR_OUT_OF_POOL_MEMORY | vk::Result::ERROR_FRAGMENTED_POOL) => {
                Ok(None)
            }
            Err(result) => Err(self.fail("vkAllocateDescriptorSets", result)),
        }
    }

    /// Points the set's bindings at these windows, in order.
    pub(crate) fn write_set(&self, set: vk::DescriptorSet, windows: &[Window]) {
        let infos: Vec<_> = windows
            .iter()
            .map(|window| {
                [vk::DescriptorBufferInfo::default()
                    .buffer(window.buffer)
                    .offset(window.offset)
                    .range(window.bytes)]
            })
            .collect();
        let writes: Vec<_> = (0..)
            .zip(&infos)
            .map(|(binding, info)| {
                vk::WriteDescriptorSet::default()
                    .dst_set(set)
                    .dst_binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .buffer_info(info)
            })
            .collect();
        // SAFETY: R1, R2, R4; the set is new, and has one storage buffer for each window.
        unsafe { self.device.update_descriptor_sets(&writes, &[]) };
    }

    // Pipelines

    /// A compute pipeline of SPIR-V whose entry point is known to be there.
    pub(crate) fn create_pipeline(
        &self,
        code: &[u32],
        entry: &CStr,
        layout: vk::PipelineLayout,
    ) -> Result<vk::Pipeline> {
        let info = vk::ShaderModuleCreateInfo::default().code(code);
        let module = self.ask("vkCreateShaderModule", || {
            // SAFETY: the code is SPIR-V with a header that was checked; that it is valid is what the caller of
            // `DeviceCode::new` promised, or naga's output.
            unsafe { self.device.create_shader_module(&info, None) }
        })?;
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(entry);
        let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout);
        let cache = vk::PipelineCache::null();
        let result = self.script.call("vkCreateComputePipelines", || {
            // SAFETY: R1; the module has the entry point, and by the promise above fits the layout.
            let made = unsafe { self.device.create_compute_pipelines(cache, &[info], None) };
            // Failed ones are null handles: there is nothing to destroy.
            made.map_err(|(_, result)| result)
        });
        // SAFETY: R1; pipelines do not need their module once made.
        unsafe { self.device.destroy_shader_module(module, None) };
        match result {
            Ok(pipelines) => Ok(pipelines.first().copied().unwrap_or_default()),
            Err(result) => Err(self.fail("vkCreateComputePipelines", result)),
        }
    }

    pub(crate) fn destroy_pipeline(&self, pipeline: vk::Pipeline) {
        // SAFETY: R1; the last batch that uses it is done.
        unsafe { self.device.destroy_pipeline(pipeline, None) };
    }

    // The end

    /// Destroys the timeline, and the device unless it is somebody else's.
    ///
    /// # Safety
    /// * Everything else made from the device is destroyed.
    /// * Nothing is in flight, and nothing is called on this afterwards.
    pub(crate) unsafe fn destroy(&self) {
        // SAFETY: nothing is in flight, so nothing signals or waits for it.
        unsafe { self.device.destroy_semaphore(self.timeline, None) };
        if self.adopted.is_none() {
            // SAFETY: the caller's promise.
            unsafe { self.device.destroy_device(None) };
        }
    }
}

fn mapped(atoms: Atoms) -> vk::MappedMemoryRange<'static> {
    vk::MappedMemoryRange::default().memory(atoms.memory).offset(atoms.offset).size(atoms.bytes)
}
