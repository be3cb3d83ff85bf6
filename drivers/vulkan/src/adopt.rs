//! Working on a device that somebody else owns.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ash::vk;

use crate::device::{Parts, Vulkan, VulkanBuilder};
use crate::error::{Result, VulkanError};
use crate::features::Features;
use crate::instance::{Candidate, NEEDED, ValidationLog, version_text};
use crate::raw::Raw;

/// Lets one user at a time have a queue. `vkQueueSubmit` must not run twice at once on one queue, so every
/// submission of hedgerow runs inside the lock that the queue's owner uses for its own.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use hedgerow_vulkan::QueueLock;
///
/// let queue = Arc::new(Mutex::new(())); // the engine locks it around its own submissions
/// let for_hedgerow: Arc<dyn QueueLock> = queue.clone();
/// for_hedgerow.with(&mut || { /* vkQueueSubmit */ });
/// ```
pub trait QueueLock: Send + Sync {
    /// Waits for the queue, calls `submit` once, and lets go of the queue.
    ///
    /// A call that returns without having called `submit` (say, as the engine shuts down) fails the
    /// submission with [`VulkanError::QueueLock`]; what was to be submitted is kept.
    fn with(&self, submit: &mut dyn FnMut());
}

/// A lock that an engine holds around its own submissions.
impl QueueLock for Mutex<()> {
    fn with(&self, submit: &mut dyn FnMut()) {
        let _alone = self.lock().unwrap_or_else(PoisonError::into_inner);
        submit();
    }
}

/// No lock: for a queue that hedgerow alone uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SoleUser;

impl QueueLock for SoleUser {
    fn with(&self, submit: &mut dyn FnMut()) {
        submit();
    }
}

/// A Vulkan device that somebody else owns, for [`Vulkan::from_raw`].
#[derive(Clone)]
pub struct RawDevice {
    /// The instance.
    pub instance: ash::Instance,
    /// The version that the instance was created with (`VkApplicationInfo::apiVersion`): at least
    /// `vk::API_VERSION_1_2`.
    pub api_version: u32,
    /// The physical device, one that the instance lists.
    pub physical_device: vk::PhysicalDevice,
    /// The device, created with `timelineSemaphore`.
    pub device: ash::Device,
    /// A queue of it.
    pub queue: vk::Queue,
    /// The family of the queue: one with compute.
    pub queue_family_index: u32,
    /// Which optional features the device was created with. None is a safe answer.
    pub features: Features,
}

impl fmt::Debug for RawDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawDevice")
            .field("physical_device", &self.physical_device)
            .field("queue", &self.queue)
            .field("queue_family_index", &self.queue_family_index)
            .field("features", &self.features)
            .finish_non_exhaustive()
    }
}

impl Vulkan {
    /// Works on a device that somebody else owns: with its queue, and with memory, semaphores and pipelines
    /// that hedgerow makes on it and destroys when its last handle goes. The device itself, its instance and
    /// queue stay their owner's.
    ///
    /// Handles are clones of what this returns, trees that were given one, and kernels. The last of them
    /// waits for hedgerow's work, and for the tickets of imported timelines, 10 seconds at most. Where they
    /// are not done by then, or the device is lost, hedgerow's objects are leaked with a report (feature
    /// `log`): an owner that calls `vkDeviceWaitIdle` before lets that not happen.
    ///
    /// hedgerow locks the queue from any thread that calls it, for one `vkQueueSubmit` at a time and never
    /// while it waits for the device. Call nothing of hedgerow with the queue's lock held.
    ///
    /// Validation is the owner's as well: [`validation_log`](Self::validation_log) stays empty.
    ///
    /// [`VulkanBuilder::from_raw`] takes limits and a budget as well.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](hedgerow::driver::ErrorKind::Unsupported), with nothing changed:
    /// * [`VulkanError::ForeignDevice`] when the instance does not list the physical device;
    /// * [`VulkanError::OldDevice`] when `api_version` or the device's is below 1.2, or the device cannot have
    ///   timeline semaphores or one of `features`, or the queue's family has no compute;
    /// * [`VulkanError::NoFamily`] when there is no such family; [`VulkanError::Null`] when the queue is null.
    ///
    /// # Safety
    /// * The loader's library, the instance and the device are there for as long as any handle is.
    /// * The instance was created with `api_version`, the physical device is the device's, and the queue is
    ///   one of `queue_family_index` that the device was created with, without `PROTECTED`.
    /// * The device was created with `timelineSemaphore`, and with every one of `features`.
    /// * `queue_lock` keeps `submit` from running while anybody else uses the queue: for submitting, binding
    ///   sparse memory, presenting or waiting for it to be idle.
    pub unsafe fn from_raw(raw: RawDevice, queue_lock: Arc<dyn QueueLock>) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::builder().from_raw(raw, queue_lock) }
    }
}

impl VulkanBuilder {
    /// Works on a device that somebody else owns, with this builder's limits and budget. What it says about
    /// choosing a device and validation means nothing here.
    ///
    /// # Errors
    /// As [`Vulkan::from_raw`].
    ///
    /// # Safety
    /// As [`Vulkan::from_raw`].
    #[allow(clippy::wrong_self_convention, reason = "it makes a device, as `open` does")]
    pub unsafe fn from_raw(self, raw: RawDevice, lock: Arc<dyn QueueLock>) -> Result<Vulkan> {
        let RawDevice { instance, api_version, physical_device, device, queue, features, .. } = raw;
        // SAFETY: the instance is there, by the caller's promise.
        let listed = unsafe { Candidate::all(&instance) }?;
        let mut chosen = listed
            .into_iter()
            .find(|candidate| candidate.physical == physical_device)
            .ok_or(VulkanError::ForeignDevice)?;
        let unusable = |reason| VulkanError::OldDevice { name: chosen.info.name.clone(), reason };
        if let Some(reason) = chosen.info.unusable.clone() {
            return Err(unusable(reason));
        }
        if api_version < NEEDED {
            let found = version_text(api_version);
            return Err(unusable(format!("its instance is for vulkan {found}, and 1.2 is needed")));
        }
        let given = raw.queue_family_index;
        let (family, families) = (chosen.families.get(given as usize), chosen.families.len());
        let family = family.ok_or(VulkanError::NoFamily { given, families })?;
        if !family.contains(vk::QueueFlags::COMPUTE) {
            return Err(unusable(format!("its queue family {given} has no compute")));
        }
        if queue == vk::Queue::null() {
            return Err(VulkanError::Null { what: "queue" });
        }
        // SAFETY: the device is of this instance, and both speak Vulkan 1.2.
        let has = unsafe { Features::of(&instance, &chosen) }?;
        if let Some(name) = has.lacks(&features) {
            return Err(unusable(format!("it has no {name}, which was said to be enabled")));
        }
        chosen.family = given;
        let version = api_version.min(chosen.properties.api_version);
        let raw = Raw::adopt(device, queue, given, lock)?;
        let log = ValidationLog::default();
        self.finish(Parts { chosen, raw, features, instance, version, log, own: None })
    }
}
