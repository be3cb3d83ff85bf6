//! Kernels: from SPIR-V or WGSL to a pipeline, and one dispatch of it. What kernels see is in
//! [`layout`](crate::layout).

use std::ffi::CString;
use std::fmt;
use std::sync::Arc;

use ash::vk;
use hedgerow::driver::{ComputeDriver, Dispatch, Form, KernelSource, Ticket};

use crate::belt::Lease;
use crate::demands::Demands;
use crate::device::{Deadline, Layouts, STALL, Shared, Vulkan, Which};
use crate::error::{Result, VulkanError};
use crate::features::Features;
use crate::layout;
use crate::limits::PAD;
use crate::memory::Memory;
use crate::raw::Window;

/// A kernel that is ready to run. Keeps its device open.
pub struct Kernel {
    shared: Arc<Shared>,
    name: String,
    views: usize,
    demands: Demands,
    pipeline: vk::Pipeline,
    layouts: Layouts,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("name", &self.name)
            .field("views", &self.views)
            .finish_non_exhaustive()
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.shared.lock().retire_pipeline(self.pipeline);
    }
}

/// Refuses a kernel, in the form of an error.
struct Refusal<'a>(&'a str);

impl Refusal<'_> {
    fn because(&self, reason: impl fmt::Display) -> VulkanError {
        VulkanError::Kernel { name: self.0.to_owned(), reason: reason.to_string() }
    }
}

impl Shared {
    fn load_kernel(self: &Arc<Self>, source: &KernelSource<'_>) -> Result<Kernel> {
        self.raw.check()?;
        let refuse = Refusal(source.name);
        let limits = &self.limits;
        if source.views > limits.max_views as usize {
            let (views, most) = (source.views, limits.max_views);
            return Err(refuse.because(format_args!("it takes {views} views of at most {most}")));
        }
        let volume = source.workgroup.iter().fold(1u64, |n, side| n.saturating_mul((*side).into()));
        let fits = source.workgroup.iter().zip(&limits.max_workgroup).all(|(a, b)| a <= b);
        if !fits || volume > limits.max_invocations.into() {
            let (asked, most, all) =
                (source.workgroup, limits.max_workgroup, limits.max_invocations);
            return Err(refuse.because(format_args!(
                "its workgroup of {asked:?} is over the limit of {most:?}, {all} in all"
            )));
        }
        let pipeline = source.forms.iter().find_map(|form| match form {
            Form::Spirv(code) => Some(
                self.pipeline(source, code.code(), code.entry())
                    .map(|pipeline| (pipeline, Demands::default())),
            ),
            #[cfg(feature = "wgsl")]
            Form::Wgsl(code) => Some(
                crate::wgsl::compile(&self.features, source, code.code(), code.entry()).and_then(
                    |(words, demands)| Ok((self.pipeline(source, &words, code.entry())?, demands)),
                ),
            ),
            _ => None,
        });
        let ((pipeline, layouts), demands) = pipeline.ok_or_else(|| no_form(source))??;
        Ok(Kernel {
            shared: Arc::clone(self),
            name: source.name.to_owned(),
            views: source.views,
            demands,
            pipeline,
            layouts,
        })
    }

    fn pipeline(
        &self,
        source: &KernelSource<'_>,
        code: &[u32],
        entry: &str,
    ) -> Result<(vk::Pipeline, Layouts)> {
        let refuse = Refusal(source.name);
        inspect(code, entry, &self.features).map_err(|reason| refuse.because(reason))?;
        let entry = CString::new(entry).map_err(|error| refuse.because(error))?;
        let layouts = self.lock().layouts(&self.raw, source.views as u32 + 1)?;
        let pipeline = self.raw.create_pipeline(code, &entry, layouts.1)?;
        Ok((pipeline, layouts))
    }

    fn dispatch(
        &self,
        kernel: &Kernel,
        dispatch: &Dispatch<'_, Memory>,
        after: &[Ticket],
    ) -> Result<Ticket> {
        self.raw.check()?;
        let (given, expected) = (dispatch.views.len(), kernel.views);
        if given != expected {
            return Err(VulkanError::Views { expected, given });
        }
        let (bytes, limit) = (dispatch.params.len() as u64, u64::from(self.limits.max_params));
        if bytes > limit {
            return Err(VulkanError::TooLarge { what: "a kernel's parameters", bytes, limit });
        }
        kernel.demands.check(&kernel.name, dispatch)?;
        let mut block = Vec::with_capacity(layout::block_bytes(dispatch));
        layout::encode(dispatch, &mut block);
        // Never empty: a descriptor needs a window. The belt's atoms are padding enough.
        let size = (block.len() as u64).max(PAD);
        let lease = self.reserve(Which::Records, size, Deadline::new(STALL))?;
        lease.write_slice(0, &block);
        let recorded = lease
            .flush(&self.raw)
            .and_then(|()| self.record_dispatch(kernel, dispatch, &lease, after));
        self.give_back(Which::Records, lease);
        recorded
    }

    /// Everything that can fail comes before the one operation is recorded.
    fn record_dispatch(
        &self,
        kernel: &Kernel,
        dispatch: &Dispatch<'_, Memory>,
        lease: &Lease,
        after: &[Ticket],
    ) -> Result<Ticket> {
        let raw = &self.raw;
        let mut state = self.enter_to_record(Deadline::new(STALL))?;
        let state = &mut *state;
        let mut windows = Vec::with_capacity(dispatch.views.len() + 1);
        windows.push(lease.window());
        for view in dispatch.views {
            let block = state.table.get(view.memory)?;
            // Buffers are padded, and offsets are multiples of the padding: this stays inside. Only a
            // wrapped buffer may end before.
            let bytes = view.bytes.max(1).next_multiple_of(PAD);
            let bytes = bytes.min(block.bytes.saturating_sub(view.offset));
            let limit = self.limits.max_binding;
            if bytes > limit {
                return Err(VulkanError::TooLarge { what: "a window", bytes: view.bytes, limit });
            }
            debug_assert!(view.offset.is_multiple_of(self.limits.bind_align.into()));
            debug_assert!(view.offset + bytes <= block.bytes);
            windows.push(Window { buffer: block.buffer, offset: view.offset, bytes });
        }
        let (set_layout, layout) = kernel.layouts;
        state.recorder.prepare(raw, after)?;
        let set = state.recorder.set(raw, set_layout, &windows)?;
        let ticket = state.recorder.record(raw, after, |commands| {
            raw.cmd_bind_pipeline(commands, kernel.pipeline);
            raw.cmd_bind_set(commands, layout, set);
            raw.cmd_dispatch(commands, dispatch.groups);
        })?;
        for view in dispatch.views {
            state.table.touch(view.memory, ticket.value);
        }
        state.touch(raw, Which::Records, lease, ticket.value);
        Ok(ticket)
    }
}

/// The error for a source without a form for this driver.
fn no_form(source: &KernelSource<'_>) -> VulkanError {
    let names: Vec<_> = source.forms.iter().map(|form| format!("{form:?}")).collect();
    VulkanError::NoForm {
        name: source.name.to_owned(),
        forms: if names.is_empty() { String::from("none") } else { names.join(", ") },
        takes: if cfg!(feature = "wgsl") {
            "the driver takes Spirv and Wgsl"
        } else if source.forms.iter().any(|form| matches!(form, Form::Wgsl(_))) {
            "enable the feature `wgsl` of hedgerow-vulkan"
        } else {
            "the driver takes Spirv, and Wgsl with the feature `wgsl` of hedgerow-vulkan"
        },
    }
}

/// Looks whether this is SPIR-V for Vulkan 1.2 with that entry point, and asks for nothing that the device
/// was not created with. The rest is the promise of whoever made the [`DeviceCode`].
///
/// [`DeviceCode`]: hedgerow::driver::DeviceCode
fn inspect(code: &[u32], entry: &str, features: &Features) -> Result<(), String> {
    const MAGIC: u32 = 0x0723_0203;
    const NEWEST: u32 = 0x0001_0500;
    const OP_ENTRY_POINT: u32 = 15;
    const OP_CAPABILITY: u32 = 17;
    const OP_FUNCTION: u32 = 54;
    const GL_COMPUTE: u32 = 5;

    let [MAGIC, version, _, _, _, rest @ ..] = code else {
        return Err(String::from("it does not start as spir-v does"));
    };
    if *version > NEWEST {
        let (major, minor) = (version >> 16, version >> 8 & 0xff);
        return Err(format!("it is spir-v {major}.{minor}, and vulkan 1.2 takes up to 1.5"));
    }
    let mut rest = rest;
    let mut found = false;
    while let Some(first) = rest.first() {
        let (op, words) = (first & 0xffff, (first >> 16) as usize);
        if words == 0 || words > rest.len() {
            return Err(String::from("its spir-v is cut off"));
        }
        let (instruction, next) = rest.split_at(words);
        match (op, &instruction[1..]) {
            (OP_CAPABILITY, [capability]) => {
                if let Some(name) = missing(*capability, features) {
                    return Err(format!("it needs {name}, which the device does not have"));
                }
            }
            (OP_ENTRY_POINT, [GL_COMPUTE, _, name @ ..]) => {
                let bytes = name.iter().flat_map(|word| word.to_le_bytes());
                found |= bytes.take_while(|byte| *byte != 0).eq(entry.bytes());
            }
            (OP_FUNCTION, _) => break,
            _ => {}
        }
        rest = next;
    }
    if found { Ok(()) } else { Err(format!("it has no compute entry point {entry:?}")) }
}

/// The name of a SPIR-V capability that is optional and not there.
fn missing(capability: u32, features: &Features) -> Option<&'static str> {
    let (has, name) = match capability {
        9 => (features.float16, "Float16"),
        10 => (features.float64, "Float64"),
        11 => (features.int64, "Int64"),
        12 => (features.int64_atomics, "Int64Atomics"),
        22 => (features.int16, "Int16"),
        39 => (features.int8, "Int8"),
        4433 => (features.storage16, "StorageBuffer16BitAccess"),
        4448 => (features.storage8, "StorageBuffer8BitAccess"),
        _ => (true, ""),
    };
    (!has).then_some(name)
}

// SAFETY: a kernel's descriptors name its bindings' windows (rounded up to whole 16 bytes inside the padded
// buffer, which a kernel that keeps to its promise does not touch) and its record, nothing else; all that
// can fail in a dispatch comes before it is recorded.
unsafe impl ComputeDriver for Vulkan {
    type Kernel = Kernel;

    fn load_kernel(&self, source: &KernelSource<'_>) -> Result<Kernel> {
        self.shared.load_kernel(source)
    }

    unsafe fn dispatch(
        &self,
        kernel: &Kernel,
        dispatch: &Dispatch<'_, Memory>,
        after: &[Ticket],
    ) -> Result<Ticket> {
        self.shared.dispatch(kernel, dispatch, after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header, a capability and an entry point "main".
    fn module(version: u32, capability: u32) -> Vec<u32> {
        let name = u32::from_le_bytes(*b"main");
        let header = [0x0723_0203, version, 0, 10, 0];
        let body = [2 << 16 | 17, capability, 5 << 16 | 15, 5, 1, name, 0];
        header.into_iter().chain(body).collect()
    }

    #[test]
    fn inspects_spirv() {
        let none = Features::default();
        let shader = module(0x0001_0300, 1);
        assert_eq!(inspect(&shader, "main", &none), Ok(()));
        let says = |code: &[u32], entry| inspect(code, entry, &none).expect_err("refused");
        assert_eq!(says(&shader, "mai"), "it has no compute entry point \"mai\"");
        assert_eq!(says(&shader[1..], "main"), "it does not start as spir-v does");
        assert_eq!(says(&shader[..6], "main"), "its spir-v is cut off");
        let newer = module(0x0001_0600, 1);
        assert_eq!(says(&newer, "main"), "it is spir-v 1.6, and vulkan 1.2 takes up to 1.5");
        let wide = module(0x0001_0300, 11);
        assert_eq!(says(&wide, "main"), "it needs Int64, which the device does not have");
        let has = Features { int64: true, ..none };
        assert_eq!(inspect(&wide, "main", &has), Ok(()));
    }
}
