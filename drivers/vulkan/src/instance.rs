//! The Vulkan loader: listing and choosing devices, and the validation layer.

use std::ffi::{CStr, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use ash::{ext, vk};

use crate::error::{Result, VulkanError};

/// The environment variable that chooses a device where the program does not.
pub const DEVICE_VARIABLE: &str = "HEDGEROW_VULKAN_DEVICE";

/// The least version that this driver needs, of loader and device.
pub(crate) const NEEDED: u32 = vk::API_VERSION_1_2;

const LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

/// How many validation messages are kept; more are only counted.
const KEPT: usize = 1 << 14;

/// What the validation layer has said. A handle: it stays readable after the device is closed.
#[derive(Clone, Debug, Default)]
pub struct ValidationLog(Arc<Mutex<Messages>>);

#[derive(Debug, Default)]
struct Messages {
    count: usize,
    kept: Vec<String>,
}

impl ValidationLog {
    /// How many warnings and errors there were.
    pub fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).count
    }

    /// The first of them.
    pub fn messages(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).kept.clone()
    }

    fn push(&self, text: String) {
        warning!("vulkan validation: {}", text);
        let mut messages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        messages.count += 1;
        if messages.kept.len() < KEPT {
            messages.kept.push(text);
        }
    }
}

/// Called by the validation layer; `user` is the instance's [`ValidationLog`].
unsafe extern "system" fn heard(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kind: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    user: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the layer passes data that is valid during the call, or null.
    let data = unsafe { data.as_ref() };
    // SAFETY: `user` points at the log boxed in `Instance`, which outlives its messenger.
    let log = unsafe { user.cast::<ValidationLog>().as_ref() };
    if let (Some(data), Some(log)) = (data, log) {
        let text = match data.p_message {
            p if p.is_null() => String::from("(no text)"),
            // SAFETY: not null, and by the specification a string that ends in a zero byte.
            p => unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned(),
        };
        log.push(text);
    }
    vk::FALSE
}

/// What sort of device it is, in the order in which devices are preferred.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum DeviceType {
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the host's memory.
    Integrated,
    /// A GPU seen through a virtual machine.
    Virtual,
    /// The host itself.
    Cpu,
    /// Something else.
    Other,
}

/// One device that the loader lists.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its place in the list.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// What sort of device it is.
    pub device_type: DeviceType,
    /// The Vulkan version it speaks: major, minor, patch.
    pub api_version: (u32, u32, u32),
    /// Whether it works in the host's memory, so that nothing needs to be copied.
    pub unified: bool,
    /// Why this driver cannot use it, if so.
    pub unusable: Option<String>,
}

/// A device of the list, with its Vulkan handle.
pub(crate) struct Candidate {
    pub(crate) info: DeviceInfo,
    pub(crate) physical: vk::PhysicalDevice,
    pub(crate) properties: vk::PhysicalDeviceProperties,
    pub(crate) memory: vk::PhysicalDeviceMemoryProperties,
    /// What its queue families can do.
    pub(crate) families: Vec<vk::QueueFlags>,
    /// The first one with compute.
    pub(crate) family: u32,
}

/// How an instance is made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    pub(crate) validation: bool,
    pub(crate) synchronization: bool,
}

/// A loaded Vulkan library and an instance of it.
pub(crate) struct Instance {
    raw: ash::Instance,
    messenger: Option<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    /// Boxed: the messenger knows its address.
    log: Box<ValidationLog>,
    version: u32,
    /// Last: the library stays loaded until everything else is gone.
    _entry: ash::Entry,
}

pub(crate) fn version_text(version: u32) -> String {
    let (major, minor, patch) = version_parts(version);
    format!("{major}.{minor}.{patch}")
}

fn version_parts(version: u32) -> (u32, u32, u32) {
    (vk::api_version_major(version), vk::api_version_minor(version), vk::api_version_patch(version))
}

pub(crate) fn failed(call: &'static str) -> impl Fn(vk::Result) -> VulkanError {
    move |result| VulkanError::Call { call, result }
}

fn lists(extensions: &[vk::ExtensionProperties], name: &CStr) -> bool {
    extensions.iter().any(|e| e.extension_name_as_c_str() == Ok(name))
}

impl Candidate {
    /// All devices of an instance, usable or not.
    ///
    /// # Safety
    /// The instance is alive.
    pub(crate) unsafe fn all(instance: &ash::Instance) -> Result<Vec<Self>> {
        // SAFETY: the caller's promise.
        let devices = unsafe { instance.enumerate_physical_devices() }
            .map_err(failed("vkEnumeratePhysicalDevices"))?;
        // SAFETY: as above, and the devices are its own.
        let look = |(index, device)| unsafe { Self::new(instance, index, device) };
        Ok(devices.into_iter().enumerate().map(look).collect())
    }

    /// Looks at one device.
    ///
    /// # Safety
    /// The instance is alive, and the device comes from it.
    unsafe fn new(instance: &ash::Instance, index: usize, physical: vk::PhysicalDevice) -> Self {
        // SAFETY: the caller's promise.
        let properties = unsafe { instance.get_physical_device_properties(physical) };
        // SAFETY: as above.
        let memory = unsafe { instance.get_physical_device_memory_properties(physical) };
        // SAFETY: as above.
        let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
        let families: Vec<_> = families.into_iter().map(|family| family.queue_flags).collect();
        let family = families.iter().position(|flags| flags.contains(vk::QueueFlags::COMPUTE));
        let device_type = match properties.device_type {
            vk::PhysicalDeviceType::DISCRETE_GPU => DeviceType::Discrete,
            vk::PhysicalDeviceType::INTEGRATED_GPU => DeviceType::Integrated,
            vk::PhysicalDeviceType::VIRTUAL_GPU => DeviceType::Virtual,
            vk::PhysicalDeviceType::CPU => DeviceType::Cpu,
            _ => DeviceType::Other,
        };
        let unusable = if properties.api_version < NEEDED {
            let found = version_text(properties.api_version);
            Some(format!("it speaks vulkan {found}, and 1.2 is needed"))
        } else if family.is_none() {
            Some(String::from("it has no queue for compute"))
        } else {
            None
        };
        let info = DeviceInfo {
            index,
            name: properties
                .device_name_as_c_str()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default(),
            device_type,
            api_version: version_parts(properties.api_version),
            unified: unified(device_type, &memory),
            unusable,
        };
        let family = family.unwrap_or_default() as u32;
        Self { info, physical, properties, memory, families, family }
    }
}

impl Instance {
    pub(crate) fn new(options: Options) -> Result<Self> {
        // SAFETY: loading the system's Vulkan loader runs its initialisers, which is what it is for; the
        // entry is kept for as long as anything made from it (last field).
        let entry = unsafe { ash::Entry::load() }
            .map_err(|error| VulkanError::NoLoader { reason: error.to_string() })?;
        // SAFETY: the entry is loaded.
        let version = unsafe { entry.try_enumerate_instance_version() }
            .map_err(failed("vkEnumerateInstanceVersion"))?
            .unwrap_or(vk::API_VERSION_1_0);
        if version < NEEDED {
            return Err(VulkanError::OldLoader { found: version_text(version) });
        }
        // Later versions than 1.3 have nothing that is used here.
        let version = version.min(vk::API_VERSION_1_3);

        // SAFETY: the entry is loaded.
        let available = unsafe { entry.enumerate_instance_extension_properties(None) }
            .map_err(failed("vkEnumerateInstanceExtensionProperties"))?;
        let mut extensions = Vec::new();
        let mut layers = Vec::new();
        let mut flags = vk::InstanceCreateFlags::empty();
        if lists(&available, vk::KHR_PORTABILITY_ENUMERATION_NAME) {
            extensions.push(vk::KHR_PORTABILITY_ENUMERATION_NAME.as_ptr());
            flags |= vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR;
        }
        if options.validation {
            require_layer(&entry, &available, options.synchronization)?;
            layers.push(LAYER.as_ptr());
            extensions.push(vk::EXT_DEBUG_UTILS_NAME.as_ptr());
            if options.synchronization {
                extensions.push(vk::EXT_VALIDATION_FEATURES_NAME.as_ptr());
            }
        }

        let log = Box::new(ValidationLog::default());
        let application =
            vk::ApplicationInfo::default().engine_name(c"hedgerow").api_version(version);
        let mut info = vk::InstanceCreateInfo::default()
            .application_info(&application)
            .enabled_layer_names(&layers)
            .enabled_extension_names(&extensions)
            .flags(flags);
        let mut listen = listener(&log);
        let enabled = [vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION];
        let mut features =
            vk::ValidationFeaturesEXT::default().enabled_validation_features(&enabled);
        if options.validation {
            // So that making and destroying the instance is heard as well.
            info = info.push_next(&mut listen);
            if options.synchronization {
                info = info.push_next(&mut features);
            }
        }
        // SAFETY: all that `info` points at is alive, the layers and extensions are installed, and the log
        // is boxed and kept as long as the instance.
        let raw = unsafe { entry.create_instance(&info, None) }.map_err(|result| match result {
            // What the loader says when it finds no driver.
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => VulkanError::NoDevice,
            result => VulkanError::Call { call: "vkCreateInstance", result },
        })?;
        let mut instance = Self { raw, messenger: None, log, version, _entry: entry };
        if options.validation {
            let utils = ext::debug_utils::Instance::new(&instance._entry, &instance.raw);
            let info = listener(&instance.log);
            // SAFETY: the extension is enabled; the log outlives the messenger (destroyed in `drop`).
            let messenger = unsafe { utils.create_debug_utils_messenger(&info, None) }
                .map_err(failed("vkCreateDebugUtilsMessengerEXT"))?;
            instance.messenger = Some((utils, messenger));
        }
        Ok(instance)
    }

    pub(crate) fn raw(&self) -> &ash::Instance {
        &self.raw
    }

    pub(crate) fn log(&self) -> &ValidationLog {
        &self.log
    }

    /// The version in use: the lesser of the loader's and the device's.
    pub(crate) fn version(&self, properties: &vk::PhysicalDeviceProperties) -> u32 {
        self.version.min(properties.api_version)
    }

    /// All devices, usable or not.
    pub(crate) fn candidates(&self) -> Result<Vec<Candidate>> {
        // SAFETY: the instance is alive.
        unsafe { Candidate::all(&self.raw) }
    }

    /// The device that `selector` chooses: its index, a part of its name in any case, or, when empty, what
    /// the environment says, else the best.
    pub(crate) fn select(&self, selector: &str) -> Result<Candidate> {
        let mut candidates = self.candidates()?;
        if candidates.is_empty() {
            return Err(VulkanError::NoDevice);
        }
        let variable = std::env::var(DEVICE_VARIABLE).unwrap_or_default();
        let selector = if selector.is_empty() { variable.trim() } else { selector.trim() };
        let place = choose(selector, candidates.iter().map(|c| &c.info))?;
        let chosen = candidates.swap_remove(place);
        match chosen.info.unusable {
            Some(reason) => Err(VulkanError::OldDevice { name: chosen.info.name, reason }),
            None => Ok(chosen),
        }
    }
}

/// Index into `devices` of the one that `selector` chooses.
fn choose<'a>(
    selector: &str,
    devices: impl Iterator<Item = &'a DeviceInfo> + Clone,
) -> Result<usize> {
    let place = match selector.parse::<usize>() {
        Ok(index) => devices.clone().position(|d| d.index == index),
        Err(_) => {
            let part = selector.to_lowercase();
            devices
                .clone()
                .enumerate()
                .filter(|(_, d)| d.name.to_lowercase().contains(&part))
                .min_by_key(|(_, d)| (d.unusable.is_some(), d.device_type))
                .map(|(place, _)| place)
        }
    };
    place.ok_or_else(|| VulkanError::NoMatch {
        selector: selector.to_owned(),
        available: devices
            .map(|d| format!("[{}] {}", d.index, d.name))
            .collect::<Vec<_>>()
            .join(", "),
    })
}

/// Whether a device works in the host's memory.
fn unified(device_type: DeviceType, memory: &vk::PhysicalDeviceMemoryProperties) -> bool {
    let both = vk::MemoryPropertyFlags::DEVICE_LOCAL | vk::MemoryPropertyFlags::HOST_VISIBLE;
    matches!(device_type, DeviceType::Integrated | DeviceType::Cpu)
        || memory.memory_types_as_slice().iter().all(|t| t.property_flags.contains(both))
}

fn listener(log: &ValidationLog) -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
    vk::DebugUtilsMessengerCreateInfoEXT::default()
        .message_severity(
            vk::DebugUtilsMessageSeverityFlagsEXT::WARNING
                | vk::DebugUtilsMessageSeverityFlagsEXT::ERROR,
        )
        .message_type(
            vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION
                | vk::DebugUtilsMessageTypeFlagsEXT::PERFORMANCE,
        )
        .pfn_user_callback(Some(heard))
        .user_data(std::ptr::from_ref(log).cast_mut().cast())
}

fn require_layer(
    entry: &ash::Entry,
    available: &[vk::ExtensionProperties],
    synchronization: bool,
) -> Result<()> {
    // SAFETY: the entry is loaded.
    let layers = unsafe { entry.enumerate_instance_layer_properties() }
        .map_err(failed("vkEnumerateInstanceLayerProperties"))?;
    if !layers.iter().any(|layer| layer.layer_name_as_c_str() == Ok(LAYER)) {
        return Err(VulkanError::NoValidation { missing: "VK_LAYER_KHRONOS_validation" });
    }
    // SAFETY: the entry is loaded, and the layer is installed.
    let own = unsafe { entry.enumerate_instance_extension_properties(Some(LAYER)) }
        .map_err(failed("vkEnumerateInstanceExtensionProperties"))?;
    let has = |name| lists(available, name) || lists(&own, name);
    if !has(vk::EXT_DEBUG_UTILS_NAME) {
        return Err(VulkanError::NoValidation { missing: "VK_EXT_debug_utils" });
    }
    if synchronization && !has(vk::EXT_VALIDATION_FEATURES_NAME) {
        return Err(VulkanError::NoValidation { missing: "VK_EXT_validation_features" });
    }
    Ok(())
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some((utils, messenger)) = self.messenger.take() {
            // SAFETY: made by `new` from these, destroyed once.
            unsafe { utils.destroy_debug_utils_messenger(messenger, None) };
        }
        // SAFETY: `Shared` destroys the device, the one child object left, before its instance.
        unsafe { self.raw.destroy_instance(None) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(index: usize, name: &str, device_type: DeviceType) -> DeviceInfo {
        DeviceInfo {
            index,
            name: name.to_owned(),
            device_type,
            api_version: (1, 2, 0),
            unified: false,
            unusable: None,
        }
    }

    #[test]
    fn chooses_by_index_name_and_rank() {
        let mut devices = [
            device(0, "llvmpipe", DeviceType::Cpu),
            device(1, "Thing 620", DeviceType::Integrated),
            device(2, "Thing H200", DeviceType::Discrete),
        ];
        let pick = |devices: &[DeviceInfo], selector| choose(selector, devices.iter()).ok();
        assert_eq!(pick(&devices, ""), Some(2));
        assert_eq!(pick(&devices, "0"), Some(0));
        assert_eq!(pick(&devices, "thing"), Some(2));
        assert_eq!(pick(&devices, "h620"), None);
        assert_eq!(pick(&devices, "7"), None);
        devices[2].unusable = Some(String::from("it is old"));
        assert_eq!(pick(&devices, ""), Some(1));
        assert_eq!(pick(&devices, "h200"), Some(2));
        let error = choose("voodoo", devices.iter()).expect_err("no such device");
        assert_eq!(
            error.to_string(),
            "no vulkan device matches \"voodoo\"; available: [0] llvmpipe, [1] Thing 620, [2] Thing H200"
        );
    }
}
