//! Optional features of a device, which kernels may ask for.

use ash::vk;

use crate::error::{Result, VulkanError};
use crate::instance::Candidate;

/// Optional features that a device was created with. A kernel that asks for another one is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Features {
    /// `shaderInt64`.
    pub int64: bool,
    /// `shaderInt16`.
    pub int16: bool,
    /// `shaderInt8`, of Vulkan 1.2.
    pub int8: bool,
    /// `shaderFloat64`.
    pub float64: bool,
    /// `shaderFloat16`, of Vulkan 1.2.
    pub float16: bool,
    /// `storageBuffer16BitAccess`, of Vulkan 1.1.
    pub storage16: bool,
    /// `storageBuffer8BitAccess`, of Vulkan 1.2.
    pub storage8: bool,
    /// `shaderBufferInt64Atomics`, of Vulkan 1.2.
    pub int64_atomics: bool,
}

impl Features {
    /// What a device can be created with. An error where it lacks what this driver needs.
    ///
    /// # Safety
    /// The device is of this instance, and both speak Vulkan 1.2.
    pub(crate) unsafe fn of(instance: &ash::Instance, chosen: &Candidate) -> Result<Self> {
        let mut has11 = vk::PhysicalDeviceVulkan11Features::default();
        let mut has12 = vk::PhysicalDeviceVulkan12Features::default();
        let mut has =
            vk::PhysicalDeviceFeatures2::default().push_next(&mut has11).push_next(&mut has12);
        // SAFETY: the caller's promise; Vulkan 1.2 knows both structures.
        unsafe { instance.get_physical_device_features2(chosen.physical, &mut has) };
        let has10 = has.features;
        if has12.timeline_semaphore == vk::FALSE {
            return Err(VulkanError::OldDevice {
                name: chosen.info.name.clone(),
                reason: String::from("it has no timeline semaphores"),
            });
        }
        Ok(Self {
            int64: has10.shader_int64 == vk::TRUE,
            int16: has10.shader_int16 == vk::TRUE,
            int8: has12.shader_int8 == vk::TRUE,
            float64: has10.shader_float64 == vk::TRUE,
            float16: has12.shader_float16 == vk::TRUE,
            storage16: has11.storage_buffer16_bit_access == vk::TRUE,
            storage8: has12.storage_buffer8_bit_access == vk::TRUE,
            int64_atomics: has12.shader_buffer_int64_atomics == vk::TRUE,
        })
    }

    fn named(&self) -> [(bool, &'static str); 8] {
        [
            (self.int64, "shaderInt64"),
            (self.int16, "shaderInt16"),
            (self.int8, "shaderInt8"),
            (self.float64, "shaderFloat64"),
            (self.float16, "shaderFloat16"),
            (self.storage16, "storageBuffer16BitAccess"),
            (self.storage8, "storageBuffer8BitAccess"),
            (self.int64_atomics, "shaderBufferInt64Atomics"),
        ]
    }

    /// The first feature of `asked` that is not among these.
    pub(crate) fn lacks(&self, asked: &Self) -> Option<&'static str> {
        let pairs = self.named().into_iter().zip(asked.named());
        pairs.filter(|((has, _), (asked, _))| *asked && !has).map(|(_, (_, name))| name).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_is_lacking() {
        let has = Features { int64: true, int8: true, ..Features::default() };
        assert_eq!(has.lacks(&Features::default()), None);
        assert_eq!(has.lacks(&Features { int8: true, ..Features::default() }), None);
        let asked = Features { int8: true, storage8: true, ..Features::default() };
        assert_eq!(has.lacks(&asked), Some("storageBuffer8BitAccess"));
    }
}
