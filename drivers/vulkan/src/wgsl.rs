//! WGSL to SPIR-V, by naga.

use hedgerow::driver::KernelSource;
use naga::back::spv;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ValidationFlags, Validator};

use crate::error::{Result, VulkanError};
use crate::features::Features;

/// Compiles one entry point.
pub(crate) fn compile(
    features: &Features,
    source: &KernelSource<'_>,
    text: &str,
    entry: &str,
) -> Result<Vec<u32>> {
    let refuse = |reason: String| VulkanError::Kernel { name: source.name.to_owned(), reason };
    let module =
        naga::front::wgsl::parse_str(text).map_err(|error| refuse(error.emit_to_string(text)))?;
    let found = module
        .entry_points
        .iter()
        .find(|point| point.name == entry && point.stage == naga::ShaderStage::Compute)
        .ok_or_else(|| refuse(format!("it has no compute entry point {entry:?}")))?;
    if found.workgroup_size != source.workgroup {
        let (code, stated) = (found.workgroup_size, source.workgroup);
        return Err(refuse(format!("its workgroup is {code:?}, and stated as {stated:?}")));
    }
    let mut capabilities = Capabilities::empty();
    capabilities.set(Capabilities::SHADER_INT64, features.int64);
    capabilities.set(Capabilities::FLOAT64, features.float64);
    capabilities.set(Capabilities::SHADER_FLOAT16, features.float16 && features.storage16);
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .map_err(|error| refuse(error.emit_to_string(text)))?;
    let options = |buffer| spv::Options {
        lang_version: (1, 3),
        flags: spv::WriterFlags::empty(),
        bounds_check_policies: BoundsCheckPolicies {
            index: BoundsCheckPolicy::Restrict,
            buffer,
            ..BoundsCheckPolicies::default()
        },
        // It promises to end, too; and this would cost every loop a counter.
        force_loop_bounding: false,
        // Not every device of Vulkan 1.2 zeroes it.
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::Polyfill,
        use_storage_input_output_16: false,
        ..spv::Options::default()
    };
    let pipeline = spv::PipelineOptions {
        shader_stage: naga::ShaderStage::Compute,
        entry_point: entry.to_owned(),
    };
    let write = |buffer| spv::write_vec(&module, &info, &options(buffer), Some(&pipeline));
    // A kernel promises to stay inside its views; where it does not, it had better do nothing. For atomics
    // naga has no code for that: there it stays inside its window.
    write(BoundsCheckPolicy::ReadZeroSkipWrite)
        .or_else(|error| match error {
            spv::Error::FeatureNotImplemented(_) => write(BoundsCheckPolicy::Restrict),
            error => Err(error),
        })
        .map_err(|error| refuse(error.to_string()))
}
