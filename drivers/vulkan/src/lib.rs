//! The raw Vulkan driver of [`hedgerow`]: Vulkan 1.2 with timeline semaphores, by `ash` and
//! `gpu-allocator`.
//!
//! A kernel, in Rust for drivers on the host and in WGSL for this one, on a crop of an image:
//!
//! ```no_run
//! use hedgerow::driver::{ComputeDriver, DeviceCode, Form, HostCall, KernelError, KernelSource};
//! use hedgerow::{Shape, Tree};
//! use hedgerow_vulkan::{Vulkan, wgsl_prelude};
//!
//! fn amplify(call: &HostCall<'_>) -> Result<(), KernelError> {
//!     let image = call.view::<f32>(0)?;
//!     let gain: f32 = call.params()?;
//!     image.for_each(|at: [i32; 2]| {
//!         if let Some(value) = image.get(at) {
//!             image.set(at, gain * value);
//!         }
//!     });
//!     Ok(())
//! }
//!
//! // Binding 0 has a record for each view, then the parameters; bindings from 1 on are the views.
//! const WGSL: &str = concat!(
//!     wgsl_prelude!(),
//!     "
//!     struct Call { views: array<View, 1>, gain: f32 }
//!     @group(0) @binding(0) var<storage, read> call: Call;
//!     @group(0) @binding(1) var<storage, read_write> image: array<f32>;
//!     @compute @workgroup_size(8, 8)
//!     fn main(@builtin(global_invocation_id) id: vec3<u32>) {
//!         let extent = call.views[0].extent;
//!         if (id.x >= extent[0] || id.y >= extent[1] || id.z >= extent[2]) { return; }
//!         image[view_byte(0u, id) / 4u] *= call.gain;
//!     }"
//! );
//!
//! static AMPLIFY: KernelSource<'static> = KernelSource {
//!     name: "amplify",
//!     views: 1,
//!     workgroup: [8, 8, 1],
//!     granule: 4, // WGSL writes words
//!     // SAFETY: it returns outside the extents, touches its view where `view_byte` says, and ends.
//!     forms: &[Form::Host(amplify), Form::Wgsl(unsafe { DeviceCode::new(WGSL, "main") })],
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let gpu = Vulkan::open("")?; // the best device, or what HEDGEROW_VULKAN_DEVICE says
//! let kernel = gpu.load(&AMPLIFY)?; // needs the feature `wgsl`
//!
//! let mut image = vec![1.0f32; 640 * 480];
//! let tree = Tree::over(&mut image, Shape::packed([640, 480]), gpu)?;
//! let root = tree.root();
//! kernel.launch((root.crop([100..200, 50..80])?.as_update(),), 3.0f32)?; // the crop alone moves
//! {
//!     let seen = root.crop([90..110, 60..61])?.read()?; // waits, and brings what is newer there
//!     assert_eq!((seen.get([99, 60]), seen.get([100, 60])), (Some(&1.0), Some(&3.0)));
//! }
//! drop(root);
//! tree.close().map_err(|error| error.to_string())?; // brings the rest home
//! assert_eq!(image[60 * 640 + 150], 3.0);
//! # Ok(())
//! # }
//! ```
//!
//! [`layout`] is what kernels see, and what of it is checked.
//!
//! # How it works
//!
//! [`Vulkan`] is a cheap handle; all clones of it are one driver. Top-down:
//!
//! | module | what |
//! |---|---|
//! | `device` | opening and closing, the shared state and its lock, [`DeviceDriver`] |
//! | `adopt`, `interop` | devices that an engine owns, and sharing memory and order with it |
//! | `kernel`, `wgsl`, `demands` | SPIR-V and WGSL to pipelines, dispatches and what they refuse, [`ComputeDriver`] |
//! | [`layout`] | what kernels see of their views |
//! | `transfer` | uploads, downloads, copies and fills of strided boxes |
//! | `batch` | recording, submitting, tickets, barriers |
//! | `lanes` | timelines of others |
//! | `belt` | staging and kernel records: short-lived host-visible memory |
//! | `memory` | buffers, memory types, allocators, the table of handles |
//! | `instance` | the loader, choosing a device, validation |
//! | `limits`, `features` | what the device allows, and pretending that it allows less |
//! | `raw` | one wrapper for each Vulkan call |
//! | `script` | what calls answer in tests |
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
mod demands;
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
mod script;
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
