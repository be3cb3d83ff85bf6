//! What can go wrong in this driver, and what that means to the core.

use ash::vk;
use hedgerow::driver::{DriverError, ErrorKind};
use thiserror::Error;

/// Shorthand for results of this crate.
pub type Result<T, E = VulkanError> = std::result::Result<T, E>;

/// What can go wrong in this driver. [`kind`](DriverError::kind) says what to do about it.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum VulkanError {
    /// There is no Vulkan loader library on this machine.
    #[error("no vulkan loader on this machine: {reason}")]
    NoLoader {
        /// What the system's linker says.
        reason: String,
    },
    /// The loader is older than Vulkan 1.2.
    #[error("the vulkan loader is version {found}, and 1.2 is needed")]
    OldLoader {
        /// The loader's version.
        found: String,
    },
    /// The loader lists no device at all.
    #[error("the vulkan loader lists no device")]
    NoDevice,
    /// No device is selected by the text given.
    #[error("no vulkan device matches {selector:?}; available: {available}")]
    NoMatch {
        /// The selector.
        selector: String,
        /// The devices there are: index and name.
        available: String,
    },
    /// The selected device cannot run this driver.
    #[error("{name} cannot be used: {reason}")]
    OldDevice {
        /// The device.
        name: String,
        /// What it lacks.
        reason: String,
    },
    /// Validation was asked for, and the layer or an extension for it is not installed.
    #[error("validation was asked for, and {missing} is not installed")]
    NoValidation {
        /// The layer or extension.
        missing: &'static str,
    },
    /// The physical device of a [`RawDevice`](crate::RawDevice) is not one of its instance.
    #[error("the physical device is not one that the instance lists")]
    ForeignDevice,
    /// The queue family of a [`RawDevice`](crate::RawDevice) does not exist.
    #[error("queue family {given} does not exist: the device has {families}")]
    NoFamily {
        /// The index given.
        given: u32,
        /// How many families there are.
        families: usize,
    },
    /// A [`QueueLock`](crate::QueueLock) returned without running the submission. It is kept.
    #[error("the queue lock returned without running the submission")]
    QueueLock,
    /// All lanes for imported timelines are taken.
    #[error("no lane is left: {most} timelines are imported")]
    NoLane {
        /// How many there are.
        most: usize,
    },
    /// The lane of a timeline that was removed, or of another device.
    #[error("lane {lane} was removed, or belongs to another device")]
    StaleLane {
        /// Its index.
        lane: u8,
    },
    /// A null handle was passed.
    #[error("the {what} is a null handle")]
    Null {
        /// What it should be.
        what: &'static str,
    },
    /// A buffer is smaller than what it was wrapped as, or that is nothing.
    #[error("a buffer with {has} bytes of memory cannot be wrapped as {bytes} bytes")]
    TooSmall {
        /// Bytes it was wrapped as.
        bytes: u64,
        /// Bytes of memory that it needs.
        has: u64,
    },
    /// No room now.
    #[error("out of memory: {bytes} bytes of {place} memory asked for")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
        /// Which memory.
        place: &'static str,
    },
    /// The device allows no further memory object now.
    #[error("out of memory: the device allows {limit} memory objects, and all are in use")]
    TooManyAllocations {
        /// The device's limit, or the one set by [`LimitsOverride`](crate::LimitsOverride).
        limit: u32,
    },
    /// Never fits.
    #[error("{what} of {bytes} bytes is over the device's limit of {limit}")]
    TooLarge {
        /// What was asked for.
        what: &'static str,
        /// Bytes asked for.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Over the budget set when the device was opened.
    #[error("{bytes} bytes asked for with {used} of a budget of {budget} in use")]
    Budget {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes in use.
        used: u64,
        /// The budget.
        budget: u64,
    },
    /// The device is gone for good.
    #[error("the device is lost")]
    Lost,
    /// Not done in time.
    #[error("ticket {value} was not done after {ms} ms")]
    Timeout {
        /// The ticket's value.
        value: u64,
        /// Milliseconds waited.
        ms: u128,
    },
    /// The kernel has no form that this driver runs.
    #[error("kernel {name:?} has no form that this driver runs: it has {forms}; {takes}")]
    NoForm {
        /// The kernel.
        name: String,
        /// The forms that it has.
        forms: String,
        /// What this build takes, or the feature to enable.
        takes: &'static str,
    },
    /// The kernel's code is refused.
    #[error("kernel {name:?} is refused: {reason}")]
    Kernel {
        /// The kernel.
        name: String,
        /// Why.
        reason: String,
    },
    /// A kernel was launched with a number of views that it does not take.
    #[error("a kernel that takes {expected} views was given {given}")]
    Views {
        /// How many it takes.
        expected: usize,
        /// How many it was given.
        given: usize,
    },
    /// A WGSL kernel was launched with parameters of another size than its struct at binding 0 has.
    #[error(
        "kernel {name:?} takes {}{expected} bytes of parameters, and was given {given}",
        if *at_least { "at least " } else { "" }
    )]
    Params {
        /// The kernel.
        name: String,
        /// Bytes that it takes.
        expected: usize,
        /// Whether it takes more: its last parameter is an array without a length.
        at_least: bool,
        /// Bytes that it was given.
        given: usize,
    },
    /// A WGSL kernel that binds a view as floats was given elements that are not whole floats.
    #[error(
        "kernel {name:?} binds view {view} as floats of {width} bytes, and was given elements of {element}"
    )]
    Element {
        /// The kernel.
        name: String,
        /// The view.
        view: usize,
        /// Bytes of the view's elements.
        element: u32,
        /// Bytes of the binding's floats.
        width: u32,
    },
    /// A WGSL kernel writes words that are wider than its source says, to elements that are not whole words.
    #[error(
        "kernel {name:?} writes words of {width} bytes to view {view}, whose elements have {element}, and states granule {granule}: state `granule: {width}`"
    )]
    Granule {
        /// The kernel.
        name: String,
        /// The view.
        view: usize,
        /// Bytes of the view's elements.
        element: u32,
        /// What [`KernelSource::granule`](hedgerow::driver::KernelSource::granule) says.
        granule: u32,
        /// What it should say.
        width: u32,
    },
    /// A memory handle that is not, or no longer, in use.
    #[error("memory {slot} was released, or belongs to another device")]
    StaleMemory {
        /// Its place in the driver's table.
        slot: u32,
    },
    /// A ticket that this device never gave out, or of a lane without a timeline.
    #[error("ticket {lane}:{value} was never given out; the last is {lane}:{last}")]
    UnknownTicket {
        /// Its lane.
        lane: u8,
        /// Its value.
        value: u64,
        /// The last value given out.
        last: u64,
    },
    /// The memory allocator failed in a way of its own.
    #[error("the memory allocator failed: {reason}")]
    Allocator {
        /// What it says.
        reason: String,
    },
    /// A Vulkan call failed.
    #[error("{call} failed: {result}")]
    Call {
        /// The call.
        call: &'static str,
        /// Its answer.
        result: vk::Result,
    },
}

impl DriverError for VulkanError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::OutOfMemory { .. } | Self::TooManyAllocations { .. } => ErrorKind::OutOfMemory,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::Budget { .. } => ErrorKind::Budget,
            Self::Lost => ErrorKind::DeviceLost,
            Self::Timeout { .. } => ErrorKind::Timeout,
            Self::NoLoader { .. }
            | Self::OldLoader { .. }
            | Self::NoDevice
            | Self::NoMatch { .. }
            | Self::OldDevice { .. }
            | Self::NoValidation { .. }
            | Self::ForeignDevice
            | Self::NoFamily { .. }
            | Self::NoForm { .. }
            | Self::Kernel { .. } => ErrorKind::Unsupported,
            Self::Views { .. }
            | Self::Params { .. }
            | Self::Element { .. }
            | Self::Granule { .. }
            | Self::QueueLock
            | Self::NoLane { .. }
            | Self::StaleLane { .. }
            | Self::Null { .. }
            | Self::TooSmall { .. }
            | Self::StaleMemory { .. }
            | Self::UnknownTicket { .. }
            | Self::Allocator { .. } => ErrorKind::Other,
            Self::Call { result, .. } => match *result {
                vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
                | vk::Result::ERROR_OUT_OF_HOST_MEMORY
                | vk::Result::ERROR_OUT_OF_POOL_MEMORY
                | vk::Result::ERROR_FRAGMENTED_POOL
                | vk::Result::ERROR_FRAGMENTATION
                | vk::Result::ERROR_TOO_MANY_OBJECTS
                | vk::Result::ERROR_MEMORY_MAP_FAILED => ErrorKind::OutOfMemory,
                vk::Result::ERROR_DEVICE_LOST => ErrorKind::DeviceLost,
                vk::Result::TIMEOUT => ErrorKind::Timeout,
                vk::Result::ERROR_LAYER_NOT_PRESENT
                | vk::Result::ERROR_EXTENSION_NOT_PRESENT
                | vk::Result::ERROR_FEATURE_NOT_PRESENT
                | vk::Result::ERROR_INCOMPATIBLE_DRIVER
                | vk::Result::ERROR_FORMAT_NOT_SUPPORTED => ErrorKind::Unsupported,
                _ => ErrorKind::Other,
            },
        }
    }
}
