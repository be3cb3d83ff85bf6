//! What an engine has before it meets hedgerow: an instance, a device, a queue that it locks, a timeline that
//! counts its submissions, and the validation layer if that is wanted.
//!
//! hedgerow's tests use it as well.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hedgerow_vulkan::ash::{self, ext, vk};
use hedgerow_vulkan::{Features, QueueLock, RawDevice};

pub(crate) type Failure = Box<dyn std::error::Error>;

const LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

/// The queue's lock. Counts who was let in through it.
#[derive(Default)]
pub(crate) struct Turnstile {
    queue: Mutex<()>,
    passed: AtomicUsize,
}

impl Turnstile {
    /// How many submissions others than the engine have made.
    pub(crate) fn passed(&self) -> usize {
        self.passed.load(Ordering::Relaxed)
    }
}

impl QueueLock for Turnstile {
    fn with(&self, submit: &mut dyn FnMut()) {
        self.passed.fetch_add(1, Ordering::Relaxed);
        self.queue.with(submit);
    }
}

/// How many messages the validation layer has sent. Boxed: the messenger knows its address.
#[derive(Default)]
struct Heard(AtomicUsize);

/// Called by the validation layer; `user` is the engine's [`Heard`].
unsafe extern "system" fn heard(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kind: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    user: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the layer passes data that is valid during the call, or null.
    let data = unsafe { data.as_ref() };
    // SAFETY: `user` is the counter that the engine keeps for as long as its instance.
    let count = unsafe { user.cast::<Heard>().as_ref() };
    if let (Some(data), Some(count)) = (data, count) {
        // SAFETY: a message is a string that ends in a zero byte, or null.
        let text = unsafe { data.message_as_c_str() };
        eprintln!("validation: {}", text.unwrap_or_default().to_string_lossy());
        count.0.fetch_add(1, Ordering::Relaxed);
    }
    vk::FALSE
}

/// The engine's half of things.
pub(crate) struct Own {
    pub(crate) instance: ash::Instance,
    pub(crate) physical: vk::PhysicalDevice,
    pub(crate) name: String,
    pub(crate) device: ash::Device,
    pub(crate) queue: vk::Queue,
    pub(crate) family: u32,
    pub(crate) lock: Arc<Turnstile>,
    /// Counts the engine's own submissions.
    pub(crate) timeline: vk::Semaphore,
    submitted: u64,
    pool: vk::CommandPool,
    messenger: Option<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    heard: Box<Heard>,
    /// Last: the library stays loaded until everything else is gone.
    _entry: ash::Entry,
}

impl Own {
    /// Opens the best device there is. `Ok(None)` where there is no Vulkan, or no layer that was asked for.
    pub(crate) fn new(validation: bool) -> Result<Option<Self>, Failure> {
        // SAFETY: loading the system's Vulkan loader runs its initialisers; it is kept as long as all else.
        let Ok(entry) = (unsafe { ash::Entry::load() }) else { return Ok(None) };
        // SAFETY: the entry is loaded.
        let layers = unsafe { entry.enumerate_instance_layer_properties() }?;
        if validation && !layers.iter().any(|l| l.layer_name_as_c_str() == Ok(LAYER)) {
            return Ok(None);
        }
        let heard = Box::new(Heard::default());
        let Some(instance) = instance(&entry, validation, &heard)? else { return Ok(None) };
        let mut messenger = None;
        if validation {
            let utils = ext::debug_utils::Instance::new(&entry, &instance);
            // SAFETY: the extension is enabled, and the counter outlives the messenger.
            let made = unsafe { utils.create_debug_utils_messenger(&listener(&heard), None) }?;
            messenger = Some((utils, made));
        }
        // SAFETY: the instance is alive.
        let all = unsafe { instance.enumerate_physical_devices() }?;
        let best = all.into_iter().filter_map(|d| rank(&instance, d)).min_by_key(|best| best.0);
        let Some((_, physical, family, name)) = best else { return Ok(None) };
        let priorities = [1.0];
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(family)
            .queue_priorities(&priorities)];
        // All that hedgerow must have.
        let mut features = vk::PhysicalDeviceVulkan12Features::default().timeline_semaphore(true);
        let info =
            vk::DeviceCreateInfo::default().queue_create_infos(&queues).push_next(&mut features);
        // SAFETY: the family exists, and Vulkan 1.2 devices have timeline semaphores.
        let device = unsafe { instance.create_device(physical, &info, None) }?;
        // SAFETY: the device was created with one queue of the family.
        let queue = unsafe { device.get_device_queue(family, 0) };
        let timeline = timeline(&device)?;
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(family);
        // SAFETY: the family is the device's.
        let pool = unsafe { device.create_command_pool(&info, None) }?;
        Ok(Some(Self {
            instance,
            physical,
            name,
            device,
            queue,
            family,
            lock: Arc::default(),
            timeline,
            submitted: 0,
            pool,
            messenger,
            heard,
            _entry: entry,
        }))
    }

    /// The device as hedgerow takes it.
    pub(crate) fn raw(&self) -> RawDevice {
        RawDevice {
            instance: self.instance.clone(),
            api_version: vk::API_VERSION_1_2,
            physical_device: self.physical,
            device: self.device.clone(),
            queue: self.queue,
            queue_family_index: self.family,
            features: Features::default(),
        }
    }

    /// Records and submits work that follows `waits`. The value of the timeline when it is done.
    pub(crate) fn submit(
        &mut self,
        waits: &[(vk::Semaphore, u64)],
        record: impl FnOnce(&ash::Device, vk::CommandBuffer),
    ) -> Result<u64, Failure> {
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.pool)
            .command_buffer_count(1);
        // SAFETY: the pool is alive, and `&mut self` has it alone.
        let commands = unsafe { self.device.allocate_command_buffers(&info) }?;
        let &[buffer] = commands.as_slice() else { return Err("no command buffer".into()) };
        let once = vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT;
        let begin = vk::CommandBufferBeginInfo::default().flags(once);
        // SAFETY: the buffer is new.
        unsafe { self.device.begin_command_buffer(buffer, &begin) }?;
        // What hedgerow has done already has no ticket any more; it was on this queue, so that a barrier
        // makes it visible.
        let all = vk::PipelineStageFlags::ALL_COMMANDS;
        let barrier = [vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::MEMORY_WRITE)
            .dst_access_mask(vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE)];
        let none = vk::DependencyFlags::empty();
        // SAFETY: the buffer is recording.
        unsafe { self.device.cmd_pipeline_barrier(buffer, all, all, none, &barrier, &[], &[]) };
        record(&self.device, buffer);
        // SAFETY: as above.
        unsafe { self.device.end_command_buffer(buffer) }?;

        let (semaphores, values): (Vec<_>, Vec<_>) = waits.iter().copied().unzip();
        let stages = vec![all; waits.len()];
        let (signals, signalled) = ([self.timeline], [self.submitted + 1]);
        let mut timeline = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&values)
            .signal_semaphore_values(&signalled);
        let info = vk::SubmitInfo::default()
            .wait_semaphores(&semaphores)
            .wait_dst_stage_mask(&stages)
            .command_buffers(&commands)
            .signal_semaphores(&signals)
            .push_next(&mut timeline);
        let queue = self.lock.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: all of it is alive, the queue is locked, and the timeline's values rise.
        unsafe { self.device.queue_submit(self.queue, &[info], vk::Fence::null()) }?;
        drop(queue);
        self.submitted += 1;
        Ok(self.submitted)
    }

    /// Waits for the engine's timeline. Whether it reached the value in time.
    pub(crate) fn wait(&self, value: u64, time: Duration) -> Result<bool, Failure> {
        let (semaphores, values) = ([self.timeline], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: the timeline is alive.
        match unsafe { self.device.wait_semaphores(&info, time.as_nanos() as u64) } {
            Ok(()) => Ok(true),
            Err(vk::Result::TIMEOUT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Everything that the engine has submitted is done.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        let done = self.wait(self.submitted, Duration::from_secs(10))?;
        if done { Ok(()) } else { Err("the engine's work did not end in time".into()) }
    }

    /// Whether the validation layer listens.
    pub(crate) fn validated(&self) -> bool {
        self.messenger.is_some()
    }

    /// How many messages the validation layer has sent.
    pub(crate) fn messages(&self) -> usize {
        self.heard.0.load(Ordering::Relaxed)
    }

    /// Destroys everything. How many messages the validation layer has sent, up to the very end.
    pub(crate) fn close(mut self) -> Result<usize, Failure> {
        self.finish()?;
        // SAFETY: nothing uses the command buffers any more.
        unsafe { self.device.destroy_command_pool(self.pool, None) };
        // SAFETY: nor the timeline.
        unsafe { self.device.destroy_semaphore(self.timeline, None) };
        // SAFETY: all that was made from the device is destroyed. hedgerow's last handle is gone, or the
        // validation layer says so here.
        unsafe { self.device.destroy_device(None) };
        if let Some((utils, messenger)) = self.messenger.take() {
            // SAFETY: it is the instance's, and destroyed once.
            unsafe { utils.destroy_debug_utils_messenger(messenger, None) };
        }
        // SAFETY: its device is destroyed; the counter is alive still.
        unsafe { self.instance.destroy_instance(None) };
        Ok(self.messages())
    }
}

/// A timeline semaphore at zero.
pub(crate) fn timeline(device: &ash::Device) -> Result<vk::Semaphore, vk::Result> {
    let mut kind =
        vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
    let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
    // SAFETY: the device is alive, with timeline semaphores.
    unsafe { device.create_semaphore(&info, None) }
}

fn listener(heard: &Heard) -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
    type Severity = vk::DebugUtilsMessageSeverityFlagsEXT;
    type Kind = vk::DebugUtilsMessageTypeFlagsEXT;
    vk::DebugUtilsMessengerCreateInfoEXT::default()
        .message_severity(Severity::WARNING | Severity::ERROR)
        .message_type(Kind::VALIDATION | Kind::PERFORMANCE)
        .pfn_user_callback(Some(self::heard))
        .user_data(std::ptr::from_ref(heard).cast_mut().cast())
}

/// An instance; `None` where the loader finds no driver.
fn instance(
    entry: &ash::Entry,
    validation: bool,
    heard: &Heard,
) -> Result<Option<ash::Instance>, Failure> {
    let application = vk::ApplicationInfo::default()
        .application_name(c"an engine")
        .api_version(vk::API_VERSION_1_2);
    let (layers, extensions) = if validation {
        let extensions =
            vec![vk::EXT_DEBUG_UTILS_NAME.as_ptr(), vk::EXT_VALIDATION_FEATURES_NAME.as_ptr()];
        (vec![LAYER.as_ptr()], extensions)
    } else {
        (Vec::new(), Vec::new())
    };
    let barriers = [vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION];
    let mut more = vk::ValidationFeaturesEXT::default().enabled_validation_features(&barriers);
    let mut listen = listener(heard);
    let mut info = vk::InstanceCreateInfo::default()
        .application_info(&application)
        .enabled_layer_names(&layers)
        .enabled_extension_names(&extensions);
    if validation {
        info = info.push_next(&mut more).push_next(&mut listen);
    }
    // SAFETY: all that `info` points at is alive, the layer is installed and brings its extensions, and the
    // counter lives as long as the instance.
    match unsafe { entry.create_instance(&info, None) } {
        Ok(instance) => Ok(Some(instance)),
        Err(vk::Result::ERROR_INCOMPATIBLE_DRIVER) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// How good a device is (less is better), with a queue family that has compute. `None` if it will not do.
fn rank(
    instance: &ash::Instance,
    device: vk::PhysicalDevice,
) -> Option<(usize, vk::PhysicalDevice, u32, String)> {
    // SAFETY: the device is the instance's.
    let properties = unsafe { instance.get_physical_device_properties(device) };
    // SAFETY: as above.
    let families = unsafe { instance.get_physical_device_queue_family_properties(device) };
    let family = families.iter().position(|f| f.queue_flags.contains(vk::QueueFlags::COMPUTE))?;
    let kinds = [vk::PhysicalDeviceType::DISCRETE_GPU, vk::PhysicalDeviceType::INTEGRATED_GPU];
    let rank = kinds.iter().position(|kind| *kind == properties.device_type).unwrap_or(2);
    let name = properties.device_name_as_c_str().ok()?.to_string_lossy().into_owned();
    (properties.api_version >= vk::API_VERSION_1_2).then_some((rank, device, family as u32, name))
}
