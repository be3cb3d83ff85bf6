//! The raw Vulkan driver of [`hedgerow`]: Vulkan 1.2 with timeline semaphores, by `ash` and
//! `gpu-allocator`.
//!
//! ```no_run
//! use hedgerow::driver::{Contents, DeviceDriver};
//! use hedgerow_vulkan::Vulkan;
//!
//! # fn main() -> Result<(), hedgerow_vulkan::VulkanError> {
//! let gpu = Vulkan::open("")?; // the best device, or what HEDGEROW_VULKAN_DEVICE says
//! println!("{}, unified: {}", gpu.caps().name, gpu.caps().unified);
//! let memory = gpu.allocate(1 << 20, Contents::Zeroed)?;
//! gpu.wait(memory.ready, std::time::Duration::from_secs(1))?;
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! [`Vulkan`] is a cheap handle; all clones of it are one driver. Top-down:
//!
//! | module | what |
//! |---|---|
//! | `device` | opening and closing, the shared state and its lock, [`DeviceDriver`] |
//! | `adopt`, `interop` | devices that an engine owns, and sharing memory and order with it |
//! | `kernel`, `wgsl` | SPIR-V and WGSL to pipelines, dispatches, [`ComputeDriver`] |
//! | [`layout`] | what kernels see of their views |
//! | `transfer` | uploads, downloads, copies and fills of strided boxes |
//! | `batch` | recording, submitting, tickets, barriers |
//! | `lanes` | timelines of others |
//! | `belt` | staging and kernel records: short-lived host-visible memory |
//! | `memory` | buffers, memory types, allocators, the table of handles |
//! | `instance` | the loader, choosing a device, validation |
//! | `limits`, `features` | what the device allows, and pretending that it allows less |
//! | `raw` | one wrapper for each Vulkan call |
//!
//! * **Order.** One queue, one timeline: a ticket is a value of it, lane 0. Work is recorded into the open
//!   batch; `flush` and `wait` submit it, and a batch of 1,024 operations, or with a quarter of what there is
//!   of staging, submits itself. A barrier is recorded only where an operation follows one that
//!   none separates it from, so independent work of a batch runs at once.
//! * **Locking.** One mutex around all state; no wait for the device happens under it, nor does the copying
//!   of borrowed bytes.
//! * **Waiting.** Every wait is bounded: by the caller's timeout, or 30 seconds where a call without one
//!   needs room in staging or among the batches on their way, or 10 seconds when the last handle closes the device.
//! * **Loss** is one-way: see [`Vulkan::simulate_loss`] for tests. A device that really is lost leaks its
//!   memory when it is closed, with a report, since destroying it may crash.
//! * **Memory.** Buffers are padded to 16 bytes. Released memory is freed at the first call after its last
//!   ticket is done. Storage is coherent, host-cached where there is such memory, and mapped for its life.
//!   Staging is capped, and waits for its oldest ticket when it is full.
//!
//! # Engines that own their device
//!
//! [`Vulkan::from_raw`] works on an engine's own instance, device and queue; the queue is shared under the
//! engine's [`QueueLock`]. An engine works on a view's bytes with a command buffer of its own like this
//! (`examples/engine` is the whole of it):
//!
//! 1. [`View::on_device`](hedgerow::View::on_device) makes the bytes fresh on the device, and keeps others
//!    away from them.
//! 2. [`Vulkan::buffer`] is the buffer behind the access's binding, which has offset and geometry. The
//!    engine's submission waits for the access's tickets: [`Vulkan::semaphore_wait`] says for what.
//! 3. The submission signals a timeline of the engine's, registered once by [`Vulkan::import_timeline`].
//! 4. [`DeviceAccess::end_with`](hedgerow::DeviceAccess::end_with) ends the access with the
//!    [ticket](Vulkan::ticket) of that value: kernels, copies and reads of these bytes follow it.
//!
//! # Features
//!
//! | feature | what |
//! |---|---|
//! | `wgsl` | kernels in WGSL, compiled by naga |
//! | `log` | leaks, drop errors and validation messages go to the `log` crate |
//!
//! [`DeviceDriver`]: hedgerow::driver::DeviceDriver
//! [`ComputeDriver`]: hedgerow::driver::ComputeDriver

#[macro_use]
mod fmt;

mod adopt;
mod batch;
mod belt;
mod device;
mod error;
mod features;
mod instance;
mod interop;
mod kernel;
mod lanes;
pub mod layout;
mod limits;
mod memory;
mod raw;
mod transfer;
#[cfg(feature = "wgsl")]
mod wgsl;

/// The Vulkan bindings whose types appear in this crate.
pub use ash;

pub use adopt::{QueueLock, RawDevice, SoleUser};
pub use device::{Vulkan, VulkanBuilder};
pub use error::{Result, VulkanError};
pub use features::Features;
pub use instance::{DEVICE_VARIABLE, DeviceInfo, DeviceType, ValidationLog};
pub use kernel::Kernel;
pub use lanes::Lane;
pub use limits::LimitsOverride;
pub use memory::Memory;
