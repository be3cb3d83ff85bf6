//! The device's shared state, opening and closing it, and the coherence half of the driver.

use std::collections::BTreeMap;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ash::vk;
use hedgerow::driver::{
    Allocation, Caps, Contents, CopyBox, Device, DeviceDriver, DriverError, DriverId, DropError,
    DropLog, ErrorKind, Storage, Ticket,
};

use crate::batch::Recorder;
use crate::belt::{Belt, Lease};
use crate::error::{Result, VulkanError};
use crate::features::Features;
use crate::instance::{Candidate, DeviceInfo, Instance, Options, ValidationLog};
use crate::lanes;
use crate::limits::{Limits, LimitsOverride};
use crate::memory::{Block, Heaps, Kept, Memory, Place, Table};
use crate::raw::Raw;
use crate::transfer;

/// How long calls that have no timeout of their own wait for room at most.
pub(crate) const STALL: Duration = Duration::from_secs(30);

/// How long the last handle waits for the device.
const CLOSING: Duration = Duration::from_secs(10);

/// How often a wait for another thread's lease looks up.
const GLANCE: Duration = Duration::from_millis(50);

/// A Vulkan device: a cheap handle, all clones of which are the same driver. Devices opened apart do not copy
/// from each other directly (no [`peer_copies`](hedgerow::driver::Caps::peer_copies)).
///
/// The last handle waits for what is in flight, then frees everything; see the crate's documentation.
#[derive(Clone)]
pub struct Vulkan {
    pub(crate) shared: Arc<Shared>,
}

impl fmt::Debug for Vulkan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vulkan")
            .field("id", &self.shared.id)
            .field("name", &self.shared.info.name)
            .finish_non_exhaustive()
    }
}

/// How to open a device. Made by [`Vulkan::builder`].
#[derive(Clone, Debug, Default)]
pub struct VulkanBuilder {
    selector: String,
    options: Options,
    limits: LimitsOverride,
    budget: Option<u64>,
}

impl VulkanBuilder {
    /// Chooses the device, as [`Vulkan::open`] does.
    pub fn device(mut self, selector: &str) -> Self {
        selector.clone_into(&mut self.selector);
        self
    }

    /// Runs with the Khronos validation layer; [`open`](Self::open) fails where it is not installed.
    pub fn validation(mut self, on: bool) -> Self {
        self.options.validation = on;
        self
    }

    /// Also checks barriers. Implies [`validation`](Self::validation).
    pub fn synchronization_validation(mut self, on: bool) -> Self {
        self.options.synchronization = on;
        self.options.validation |= on;
        self
    }

    /// Pretends a stricter device.
    pub fn limits(mut self, limits: LimitsOverride) -> Self {
        self.limits = limits;
        self
    }

    /// The most bytes of device memory and storage to hand out at a time.
    pub fn budget(mut self, bytes: u64) -> Self {
        self.budget = Some(bytes);
        self
    }

    /// Opens the device.
    ///
    /// # Errors
    /// No loader, no device, none that matches, one that is too old, or no validation layer:
    /// [`ErrorKind::Unsupported`], with a message that says which.
    pub fn open(self) -> Result<Vulkan> {
        let instance = Instance::new(self.options)?;
        let chosen = instance.select(&self.selector)?;
        let (device, features) = create_device(&instance, &chosen)?;
        let raw = Raw::open(device, chosen.family)?;
        self.finish(Parts {
            raw,
            features,
            version: instance.version(&chosen.properties),
            chosen,
            instance: instance.raw().clone(),
            log: instance.log().clone(),
            own: Some(instance),
        })
    }

    pub(crate) fn finish(&self, parts: Parts) -> Result<Vulkan> {
        let shared = Shared::new(parts, &self.limits, self.budget)?;
        Ok(Vulkan { shared: Arc::new(shared) })
    }
}

impl Vulkan {
    /// Opens the device that `selector` chooses: its index ("0"), or a part of its name in any case. Empty:
    /// what the environment variable `HEDGEROW_VULKAN_DEVICE` says in the same way, else the best device
    /// (discrete, then integrated, then others).
    ///
    /// # Errors
    /// As [`VulkanBuilder::open`].
    pub fn open(selector: &str) -> Result<Self> {
        Self::builder().device(selector).open()
    }

    /// Opens a device with more to say about how.
    pub fn builder() -> VulkanBuilder {
        VulkanBuilder::default()
    }

    /// The devices there are, usable or not.
    ///
    /// # Errors
    /// No loader, or an old one: [`ErrorKind::Unsupported`]. No device is an empty list.
    pub fn list() -> Result<Vec<DeviceInfo>> {
        let instance = Instance::new(Options::default())?;
        Ok(instance.candidates()?.into_iter().map(|candidate| candidate.info).collect())
    }

    /// Which device it is.
    pub fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    /// What the validation layer said so far: empty, or something is wrong.
    pub fn validation_messages(&self) -> Vec<String> {
        self.shared.log.messages()
    }

    /// The validation layer's log, which stays readable after the last handle is gone.
    pub fn validation_log(&self) -> ValidationLog {
        self.shared.log.clone()
    }

    /// What trees met in `Drop`, where nobody could be told.
    pub fn drop_errors(&self) -> &DropLog {
        &self.shared.drops
    }

    /// For tests: from now on, the device is lost.
    pub fn simulate_loss(&self) {
        self.shared.raw.lose_in_a_test();
        self.shared.returned.notify_all();
    }
}

/// A point in time that may be further away than an `Instant` can say.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    start: Instant,
    timeout: Duration,
}

impl Deadline {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { start: Instant::now(), timeout }
    }

    pub(crate) fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.start.elapsed())
    }
}

/// Which belt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    Staging,
    Records,
}

/// A set layout and the pipeline layout of that set alone.
pub(crate) type Layouts = (vk::DescriptorSetLayout, vk::PipelineLayout);

/// All that changes, behind one mutex. Waits for the device are never made with it held.
pub(crate) struct State {
    heaps: Kept<Heaps>,
    pub(crate) table: Table,
    pub(crate) recorder: Recorder,
    staging: Belt,
    records: Belt,
    /// By number of storage buffers.
    layouts: BTreeMap<u32, Layouts>,
    /// Pipelines of kernels that are gone, and the last ticket that may use each.
    pipelines: Vec<(u64, vk::Pipeline)>,
}

impl State {
    pub(crate) fn belt(&mut self, which: Which) -> &mut Belt {
        match which {
            Which::Staging => &mut self.staging,
            Which::Records => &mut self.records,
        }
    }

    /// Notes that the operation just recorded uses a lease.
    pub(crate) fn touch(&mut self, raw: &Raw, which: Which, lease: &Lease, value: u64) {
        let belt = self.belt(which);
        belt.touch(lease, value);
        let most = belt.quarter();
        self.recorder.weigh(raw, which as usize, lease.bytes, most);
    }

    /// A lease, or `None` when there is no room now.
    pub(crate) fn reserve(&mut self, raw: &Raw, which: Which, bytes: u64) -> Result<Option<Lease>> {
        let belt = match which {
            Which::Staging => &mut self.staging,
            Which::Records => &mut self.records,
        };
        belt.reserve(raw, &mut self.heaps, bytes, raw.completed())
    }

    pub(crate) fn layouts(&mut self, raw: &Raw, buffers: u32) -> Result<Layouts> {
        if let Some(found) = self.layouts.get(&buffers) {
            return Ok(*found);
        }
        let made = raw.create_layouts(buffers)?;
        self.layouts.insert(buffers, made);
        Ok(made)
    }

    /// Destroys a pipeline once all that is recorded so far is done.
    pub(crate) fn retire_pipeline(&mut self, pipeline: vk::Pipeline) {
        self.pipelines.push((self.recorder.recorded(), pipeline));
    }

    /// Takes back and frees what the device is done with.
    fn collect(&mut self, raw: &Raw) -> Result<()> {
        self.recorder.retire(raw)?;
        let completed = raw.completed();
        let lanes = &mut self.recorder.lanes;
        self.table.collect(raw, &mut self.heaps, |ticket| match ticket.lane {
            0 => ticket.value <= completed,
            // One that is unknown, or cannot be asked for now, waits for the end.
            _ => lanes.is_done(raw, *ticket).unwrap_or(false),
        });
        for (_, pipeline) in self.pipelines.extract_if(.., |(value, _)| *value <= completed) {
            raw.destroy_pipeline(pipeline);
        }
        Ok(())
    }
}

/// A device, ready to be used.
pub(crate) struct Parts {
    pub(crate) chosen: Candidate,
    pub(crate) raw: Raw,
    pub(crate) features: Features,
    pub(crate) instance: ash::Instance,
    /// The version in use.
    pub(crate) version: u32,
    pub(crate) log: ValidationLog,
    /// The instance, where it goes with the device.
    pub(crate) own: Option<Instance>,
}

/// What all handles of a device share.
pub(crate) struct Shared {
    pub(crate) id: DriverId,
    pub(crate) caps: Caps,
    pub(crate) limits: Limits,
    pub(crate) features: Features,
    pub(crate) raw: Raw,
    info: DeviceInfo,
    drops: DropLog,
    log: ValidationLog,
    budget: Option<u64>,
    state: Mutex<State>,
    /// Signalled when a lease is given back.
    returned: Condvar,
    instance: Kept<Option<Instance>>,
}

impl Shared {
    pub(crate) fn new(parts: Parts, over: &LimitsOverride, budget: Option<u64>) -> Result<Self> {
        let largest = largest_allocation(&parts);
        let Parts { chosen, raw, features, instance, log, own, .. } = parts;
        let limits = Limits::new(&chosen.properties.limits, largest, chosen.info.unified, over);
        let heaps = Heaps::new(&instance, chosen.physical, &chosen.memory, &raw, &limits);
        let heaps = match heaps {
            Ok(heaps) => heaps,
            Err(error) => {
                // SAFETY: nothing but the timeline was made from the device, and `raw` ends here.
                unsafe { raw.destroy() };
                return Err(error);
            }
        };
        let atom = u64::from(limits.flush_align);
        let bind = u64::from(limits.bind_align);
        let state = State {
            heaps: ManuallyDrop::new(heaps),
            table: Table::default(),
            recorder: Recorder::default(),
            staging: Belt::new(Place::Staging, limits.staging_chunk, limits.staging_chunks, atom),
            records: Belt::new(Place::Records, 256 << 10, 16, atom.max(bind)),
            layouts: BTreeMap::new(),
            pipelines: Vec::new(),
        };
        let mut caps = Caps::new(&chosen.info.name);
        caps.unified = limits.unified;
        caps.copy_align = limits.copy_align;
        caps.bind_align = limits.bind_align;
        caps.flush_align = limits.flush_align;
        caps.max_allocation = limits.max_allocation;
        caps.max_binding = limits.max_binding;
        caps.max_views = limits.max_views;
        caps.max_params = limits.max_params;
        caps.max_groups = limits.max_groups;
        caps.storage_survives_loss = false;
        Ok(Self {
            id: DriverId::unique(),
            caps,
            limits,
            features,
            raw,
            info: chosen.info,
            drops: DropLog::new(),
            log,
            budget,
            state: Mutex::new(state),
            returned: Condvar::new(),
            instance: ManuallyDrop::new(own),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, for work on a device that is there, with what is done taken back first.
    pub(crate) fn enter(&self) -> Result<MutexGuard<'_, State>> {
        self.raw.check()?;
        let mut state = self.lock();
        state.collect(&self.raw)?;
        Ok(state)
    }

    /// The same, for recording: waits where too many batches are on their way.
    pub(crate) fn enter_to_record(&self, deadline: Deadline) -> Result<MutexGuard<'_, State>> {
        loop {
            let state = self.enter()?;
            let Some(value) = state.recorder.crowd() else { return Ok(state) };
            drop(state);
            self.wait_value(value, deadline)?;
        }
    }

    /// A lease of `bytes`, waiting for room.
    pub(crate) fn reserve(&self, which: Which, bytes: u64, deadline: Deadline) -> Result<Lease> {
        loop {
            let mut state = self.enter()?;
            if let Some(lease) = state.reserve(&self.raw, which, bytes)? {
                return Ok(lease);
            }
            self.make_room(state, which, deadline)?;
        }
    }

    /// Waits until a chunk of the belt may be free. The caller holds no lease of it.
    pub(crate) fn make_room(
        &self,
        mut state: MutexGuard<'_, State>,
        which: Which,
        deadline: Deadline,
    ) -> Result<()> {
        match state.belt(which).oldest() {
            Some(value) => {
                drop(state);
                self.wait_value(value, deadline)
            }
            // Other threads hold all chunks. They wait for nobody while they do.
            None => self.pause(state, deadline),
        }
    }

    /// Gives a lease back.
    pub(crate) fn give_back(&self, which: Which, lease: Lease) {
        self.lock().belt(which).give_back(lease);
        self.returned.notify_all();
    }

    /// Submits what `value` needs and waits for it.
    pub(crate) fn wait_value(&self, value: u64, deadline: Deadline) -> Result<()> {
        self.raw.check()?;
        if value <= self.raw.completed() {
            return Ok(());
        }
        let signal = {
            let mut state = self.lock();
            let last = state.recorder.recorded();
            if value > last {
                return Err(VulkanError::UnknownTicket { lane: 0, value, last });
            }
            if value > state.recorder.submitted() {
                state.recorder.submit(&self.raw, value)?;
            }
            state.recorder.signal(value)
        };
        // A batch that is not on its way any more is done.
        let Some(signal) = signal else { return Ok(()) };
        if self.raw.wait(signal, deadline.left())? {
            return Ok(());
        }
        Err(VulkanError::Timeout { value, ms: deadline.timeout.as_millis() })
    }

    /// Waits for any ticket, and submits what it needs.
    pub(crate) fn wait_ticket(&self, ticket: Ticket, deadline: Deadline) -> Result<()> {
        if ticket.lane == 0 {
            return self.wait_value(ticket.value, deadline);
        }
        self.raw.check()?;
        // Held while waiting, which keeps the timeline from being removed.
        let found = self.lock().recorder.lanes.find(ticket)?;
        let lanes::Place::At(semaphore, value) = found else { return Ok(()) };
        let done = self.raw.wait_on((*semaphore, value), deadline.left());
        drop(semaphore);
        if done? {
            self.lock().recorder.lanes.reached(ticket);
            return Ok(());
        }
        let ms = deadline.timeout.as_millis();
        Err(VulkanError::Timeout { value: ticket.value, ms })
    }

    /// Lets go of the state until something is given back, but not for long.
    pub(crate) fn pause(&self, state: MutexGuard<'_, State>, deadline: Deadline) -> Result<()> {
        let left = deadline.left();
        if left.is_zero() {
            let value = state.recorder.recorded();
            return Err(VulkanError::Timeout { value, ms: deadline.timeout.as_millis() });
        }
        drop(self.returned.wait_timeout(state, left.min(GLANCE)));
        self.raw.check()
    }

    /// Makes a block and notes it in the table; `fill` then sees it, still under the lock.
    fn make(
        &self,
        bytes: u64,
        place: Place,
        fill: impl FnOnce(&mut Recorder, &Block) -> Result<Ticket>,
    ) -> Result<(Memory, Ticket, Option<std::ptr::NonNull<u8>>)> {
        let limit = self.limits.max_allocation;
        if bytes > limit {
            return Err(VulkanError::TooLarge { what: "an allocation", bytes, limit });
        }
        let mut state = self.enter_to_record(Deadline::new(STALL))?;
        let state = &mut *state;
        if let Some(budget) = self.budget {
            let used = state.table.bytes();
            if used.saturating_add(bytes.next_multiple_of(crate::limits::PAD)) > budget {
                return Err(VulkanError::Budget { bytes, used, budget });
            }
        }
        let block = state.heaps.make(&self.raw, bytes, place)?;
        match fill(&mut state.recorder, &block) {
            Ok(ready) => {
                let host = block.host;
                Ok((state.table.insert(block, ready.value), ready, host))
            }
            Err(error) => {
                state.heaps.unmake(&self.raw, block);
                Err(error)
            }
        }
    }

    /// Calls `make`, and once more where there was no room and released memory could be waited for.
    fn with_room<T>(&self, mut make: impl FnMut() -> Result<T>) -> Result<T> {
        let error = match make() {
            Err(error) if matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::Budget) => {
                error
            }
            other => return other,
        };
        let Some(after) = self.lock().table.last_dead() else { return Err(error) };
        let deadline = Deadline::new(STALL);
        for ticket in after.as_slice() {
            self.wait_ticket(*ticket, deadline)?;
        }
        make()
    }
}

impl Drop for Shared {
    /// Waits, bounded, and frees everything; or leaks it with a report rather than free memory in use.
    fn drop(&mut self) {
        let raw = &self.raw;
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let submitted = state.recorder.submitted();
        // Work that was never submitted has no effect that anybody could still see.
        let deadline = Deadline::new(CLOSING);
        let idle = !raw.really_lost()
            && (submitted == 0 || raw.wait_once(submitted, deadline.left()).unwrap_or(false))
            // Others may use memory of this one for as long as they named.
            && state
                .recorder
                .lanes
                .all()
                .all(|wait| raw.wait_once_on(wait, deadline.left()).unwrap_or(false));
        if !idle {
            let bytes = state.table.bytes();
            let why = if raw.really_lost() { "it is lost" } else { "its work did not end in time" };
            warning!("{}: {} bytes are leaked, since {}", self.info.name, bytes, why);
            return;
        }
        state.recorder.destroy(raw);
        for (_, pipeline) in state.pipelines.drain(..) {
            raw.destroy_pipeline(pipeline);
        }
        for (set, layout) in std::mem::take(&mut state.layouts).into_values() {
            raw.destroy_layouts(set, layout);
        }
        let blocks = [state.staging.drain(), state.records.drain(), state.table.drain()];
        for block in blocks.into_iter().flatten() {
            state.heaps.unmake(raw, block);
        }
        // SAFETY: it is not used again: `Shared` is going, and this is the one place that drops it.
        unsafe { ManuallyDrop::drop(&mut state.heaps) };
        // SAFETY: nothing is in flight, and all that was made from the device is destroyed above; kernels
        // hold a handle, so none is left.
        unsafe { self.raw.destroy() };
        // SAFETY: as for the heaps; the device, its one child, is destroyed with it, or both are somebody
        // else's.
        unsafe { ManuallyDrop::drop(&mut self.instance) };
    }
}

/// The largest buffer with memory that the device allows.
fn largest_allocation(parts: &Parts) -> u64 {
    let mut maintenance3 = vk::PhysicalDeviceMaintenance3Properties::default();
    let mut maintenance4 = vk::PhysicalDeviceMaintenance4Properties::default();
    let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut maintenance3);
    let has_buffer_size = parts.version >= vk::API_VERSION_1_3;
    if has_buffer_size {
        properties = properties.push_next(&mut maintenance4);
    }
    // SAFETY: the device is of this instance, and the structures are ones that its version knows.
    unsafe {
        parts.instance.get_physical_device_properties2(parts.chosen.physical, &mut properties);
    }
    let buffer = if has_buffer_size { maintenance4.max_buffer_size } else { u64::MAX };
    maintenance3.max_memory_allocation_size.min(buffer)
}

/// Creates the device with one queue, and with those optional features that kernels may want.
fn create_device(instance: &Instance, chosen: &Candidate) -> Result<(ash::Device, Features)> {
    let call = |call| move |result| VulkanError::Call { call, result };
    // SAFETY: the device is of this instance, and one that is chosen speaks Vulkan 1.2.
    let features = unsafe { Features::of(instance.raw(), chosen) }?;
    // SAFETY: the device is of this instance.
    let extensions =
        unsafe { instance.raw().enumerate_device_extension_properties(chosen.physical) }
            .map_err(call("vkEnumerateDeviceExtensionProperties"))?;
    let mut names = Vec::new();
    let subset = vk::KHR_PORTABILITY_SUBSET_NAME;
    if extensions.iter().any(|e| e.extension_name_as_c_str() == Ok(subset)) {
        // A device that has it must be created with it.
        names.push(subset.as_ptr());
    }
    let priorities = [1.0];
    let queues = [vk::DeviceQueueCreateInfo::default()
        .queue_family_index(chosen.family)
        .queue_priorities(&priorities)];
    let enabled = vk::PhysicalDeviceFeatures::default()
        .shader_int64(features.int64)
        .shader_int16(features.int16)
        .shader_float64(features.float64);
    let mut enabled11 = vk::PhysicalDeviceVulkan11Features::default()
        .storage_buffer16_bit_access(features.storage16);
    let mut enabled12 = vk::PhysicalDeviceVulkan12Features::default()
        .timeline_semaphore(true)
        .shader_int8(features.int8)
        .shader_float16(features.float16)
        .storage_buffer8_bit_access(features.storage8)
        .shader_buffer_int64_atomics(features.int64_atomics);
    let info = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queues)
        .enabled_extension_names(&names)
        .enabled_features(&enabled)
        .push_next(&mut enabled11)
        .push_next(&mut enabled12);
    // SAFETY: the family exists, and every extension and feature asked for was found above.
    let device = unsafe { instance.raw().create_device(chosen.physical, &info, None) }
        .map_err(call("vkCreateDevice"))?;
    Ok((device, features))
}

impl Device for Vulkan {
    type Driver = Self;

    fn driver(&self) -> &Self {
        self
    }
}

// SAFETY: memory is a buffer of its own, named by a generation-checked slot (`memory`); zeroing is recorded
// or done before the handle is returned; transfers name exactly the bytes of their boxes (`transfer`), and
// touch borrowed bytes only inside the call; order is `batch`'s invariant; `completed` rises only after a
// wait that makes effects visible, to the host by the barrier at each batch's end; waits are bounded, and
// `Raw::check` makes loss one-way; memory is freed by `Table::collect` and `Shared::drop` alone.
unsafe impl DeviceDriver for Vulkan {
    type Error = VulkanError;
    type Memory = Memory;

    fn id(&self) -> DriverId {
        self.shared.id
    }

    fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    fn allocate(&self, bytes: u64, contents: Contents) -> Result<Allocation<Memory>> {
        let raw = &self.shared.raw;
        let (memory, ready, _) = self.shared.with_room(|| {
            self.shared.make(bytes, Place::Device, |recorder, block| match contents {
                Contents::Undefined => Ok(Ticket::DONE),
                Contents::Zeroed => recorder.record(raw, &[], |commands| {
                    raw.cmd_fill(commands, block.buffer, 0, block.bytes, 0);
                }),
            })
        })?;
        Ok(Allocation { memory, ready })
    }

    fn storage(&self, bytes: u64) -> Result<Storage<Memory>> {
        let shared = self.shared.limits.unified;
        let place = if shared { Place::Shared } else { Place::Pinned };
        let (memory, _, host) = self.shared.with_room(|| {
            self.shared.make(bytes, place, |_, block| {
                let host = block.host.ok_or(VulkanError::OutOfMemory { bytes, place: "mapped" })?;
                // SAFETY: the block is mapped for all its bytes, and nobody else has it yet.
                unsafe { host.write_bytes(0, block.bytes as usize) };
                Ok(Ticket::DONE)
            })
        })?;
        // `make` has seen the address above.
        let host = host.ok_or(VulkanError::OutOfMemory { bytes, place: "mapped" })?;
        Ok(Storage { memory, host, shared })
    }

    fn alignment(&self, _: Memory) -> u64 {
        // What windows are aligned to, the driver's rules for buffers give every buffer.
        u64::from(self.caps().bind_align)
    }

    unsafe fn release(&self, memory: Memory, after: &[Ticket]) {
        self.shared.lock().table.release(memory, after);
        // Frees what is free by now. After a loss, that is left to the last handle.
        drop(self.shared.enter());
    }

    unsafe fn upload(
        &self,
        src: *const u8,
        dst: Memory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Result<Ticket> {
        // SAFETY: the caller's promises are `transfer`'s.
        unsafe { transfer::upload(&self.shared, src, dst, boxes, after) }
    }

    unsafe fn download(
        &self,
        src: Memory,
        dst: *mut u8,
        boxes: &[CopyBox],
        after: &[Ticket],
        timeout: Duration,
    ) -> Result<()> {
        let deadline = Deadline::new(timeout);
        // SAFETY: the caller's promises are `transfer`'s.
        unsafe { transfer::download(&self.shared, src, dst, boxes, after, deadline) }
    }

    unsafe fn copy(
        &self,
        src: Memory,
        dst: Memory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Result<Ticket> {
        transfer::copy(&self.shared, src, dst, boxes, after)
    }

    unsafe fn fill(
        &self,
        dst: Memory,
        boxes: &[CopyBox],
        value: &[u8],
        after: &[Ticket],
    ) -> Result<Ticket> {
        transfer::fill(&self.shared, dst, boxes, value, after)
    }

    fn flush(&self) -> Result<()> {
        let mut state = self.shared.enter()?;
        let recorded = state.recorder.recorded();
        state.recorder.submit(&self.shared.raw, recorded)
    }

    fn poll(&self, ticket: Ticket) -> Result<bool> {
        let shared = &self.shared;
        shared.raw.check()?;
        if ticket.lane != 0 {
            return shared.lock().recorder.lanes.is_done(&shared.raw, ticket);
        }
        if ticket.value <= shared.raw.completed() {
            return Ok(true);
        }
        let signal = shared.lock().recorder.signal(ticket.value);
        match signal {
            Some(signal) => shared.raw.wait_once(signal, Duration::ZERO),
            // Not submitted yet, or known to be done since the look above.
            None => Ok(ticket.value <= shared.raw.completed()),
        }
    }

    fn wait(&self, ticket: Ticket, timeout: Duration) -> Result<()> {
        self.shared.wait_ticket(ticket, Deadline::new(timeout))
    }

    fn report_drop(&self, error: DropError) {
        self.shared.drops.push(error);
    }
}
