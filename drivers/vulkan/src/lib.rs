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
//! | `kernel`, `wgsl` | SPIR-V and WGSL to pipelines, dispatches, [`ComputeDriver`] |
//! | [`layout`] | what kernels see of their views |
//! | `transfer` | uploads, downloads, copies and fills of strided boxes |
//! | `batch` | recording, submitting, tickets, barriers |
//! | `belt` | staging and kernel records: short-lived host-visible memory |
//! | `memory` | buffers, memory types, allocators, the table of handles |
//! | `instance` | the loader, choosing a device, validation |
//! | `limits` | what the device allows, and pretending that it allows less |
//! | `raw` | one wrapper for each Vulkan call |
//!
//! * **Order.** One queue, one timeline: a ticket is a value of it, lane 0. Work is recorded into the open
//!   batch; `flush` and `wait` submit it. A barrier is recorded only where an operation follows one that
//!   none separates it from, so independent work of a batch runs at once.
//! * **Locking.** One mutex around all state; no wait for the device happens under it, nor does the copying
//!   of borrowed bytes.
//! * **Waiting.** Every wait is bounded: by the caller's timeout, or 30 seconds where a call without one
//!   needs room in staging, or 10 seconds when the last handle closes the device.
//! * **Loss** is one-way: see [`Vulkan::simulate_loss`] for tests. A device that really is lost leaks its
//!   memory when it is closed, with a report, since destroying it may crash.
//! * **Memory.** Buffers are padded to 16 bytes. Released memory is freed at the first call after its last
//!   ticket is done. Storage is coherent, host-cached where there is such memory, and mapped for its life.
//!   Staging is capped, and waits for its oldest ticket when it is full.
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

mod batch;
mod belt;
mod device;
mod error;
mod instance;
mod kernel;
pub mod layout;
mod limits;
mod memory;
mod raw;
mod transfer;
#[cfg(feature = "wgsl")]
mod wgsl;

pub use device::{Vulkan, VulkanBuilder};
pub use error::{Result, VulkanError};
pub use instance::{DEVICE_VARIABLE, DeviceInfo, DeviceType, ValidationLog};
pub use kernel::Kernel;
pub use limits::LimitsOverride;
pub use memory::Memory;
