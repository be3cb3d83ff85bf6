//! WGSL to SPIR-V, by naga.

use hedgerow::driver::KernelSource;
use naga::back::spv;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, FunctionInfo, ValidationFlags, Validator};
use naga::{
    AddressSpace, ArraySize, Handle, Module, Scalar, ScalarKind, StorageAccess, Type, TypeInner,
};

use crate::demands::{Demands, Params, Words};
use crate::error::{Result, VulkanError};
use crate::features::Features;
use crate::layout::RECORD;

/// Compiles one entry point, and finds what its variables say of dispatches.
pub(crate) fn compile(
    features: &Features,
    source: &KernelSource<'_>,
    text: &str,
    entry: &str,
) -> Result<(Vec<u32>, Demands)> {
    let refuse = |reason: String| VulkanError::Kernel { name: source.name.to_owned(), reason };
    let module =
        naga::front::wgsl::parse_str(text).map_err(|error| refuse(error.emit_to_string(text)))?;
    let (index, found) = module
        .entry_points
        .iter()
        .enumerate()
        .find(|(_, point)| point.name == entry && point.stage == naga::ShaderStage::Compute)
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
    let demands = demands(&module, info.get_entry_point(index), source).map_err(refuse)?;
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
        .map(|words| (words, demands))
        .map_err(|error| refuse(error.to_string()))
}

/// What the variables of an entry point say of dispatches. Of a text with one entry point, all variables are
/// its own; with more, those that it uses, though others may stand for views that it does not look at.
fn demands(
    module: &Module,
    uses: &FunctionInfo,
    source: &KernelSource<'_>,
) -> Result<Demands, String> {
    let views = source.views;
    let alone = module.entry_points.len() == 1;
    let mut demands =
        Demands { params: None, views: vec![Words::default(); views], granule: source.granule };
    let mut declared = vec![false; views];
    let mut most = 0;
    for (handle, variable) in module.global_variables.iter() {
        let Some(binding) = &variable.binding else { continue };
        let own = alone || !uses[handle].is_empty();
        let name = variable.name.as_deref().unwrap_or("without a name");
        let AddressSpace::Storage { access } = variable.space else {
            if own {
                return Err(format!("its variable `{name}` is no storage buffer"));
            }
            continue;
        };
        if binding.group != 0 {
            if own {
                return Err(format!("its variable `{name}` is in group {}, not 0", binding.group));
            }
            continue;
        }
        let at = binding.binding as usize;
        if at == 0 {
            if own {
                demands.params = Some(params(module, variable.ty, views)?);
            }
            continue;
        }
        if let Some(declared) = declared.get_mut(at - 1) {
            *declared = true;
        }
        if own {
            most = most.max(at);
            if let Some(words) = demands.views.get_mut(at - 1) {
                *words = consists_of(module, variable.ty);
                if !access.contains(StorageAccess::STORE) {
                    words.written = 0;
                }
            }
        }
    }
    let count = declared.iter().filter(|declared| **declared).count();
    if most > views {
        return Err(format!(
            "it binds view {} at binding {most}, and states {views} views",
            most - 1
        ));
    }
    if let Some(missing) = declared.iter().position(|declared| !declared) {
        return Err(format!(
            "it binds {count} views and states {views}: group 0 has no binding {}",
            missing + 1
        ));
    }
    Ok(demands)
}

/// The parameters behind the view records in the type of binding 0.
fn params(module: &Module, ty: Handle<Type>, views: usize) -> Result<Params, String> {
    let records = views * RECORD;
    let size = |ty: Handle<Type>| module.types[ty].inner.size(module.to_ctx()) as usize;
    let expected =
        || format!("its binding 0 must be a struct that starts with `views: array<View, {views}>`");
    let TypeInner::Struct { members, span } = &module.types[ty].inner else {
        return Err(expected());
    };
    let rest = if views == 0 {
        &members[..]
    } else {
        let (first, rest) = members.split_first().ok_or_else(expected)?;
        let TypeInner::Array { base, size: length, stride } = module.types[first.ty].inner else {
            return Err(expected());
        };
        let ArraySize::Constant(length) = length else { return Err(expected()) };
        if stride as usize != RECORD || size(base) != RECORD {
            let (view, expected) = (size(base), expected());
            return Err(format!("{expected}, and its first array has elements of {view} bytes"));
        }
        if length.get() as usize != views {
            let expected = expected();
            return Err(format!("{expected} for the {views} views stated, and has {length}"));
        }
        rest
    };
    if let Some(second) = rest.first().filter(|second| second.offset as usize != records) {
        let name = second.name.as_deref().unwrap_or_default();
        return Err(format!(
            "its parameters start at byte {records} of binding 0, and `{name}` is at {}",
            second.offset
        ));
    }
    let Some(last) = rest.last() else { return Ok(Params { end: 0, padded: 0, open: false }) };
    let start = last.offset as usize - records;
    let open = open_ended(module, last.ty);
    let end = if open { start } else { start + size(last.ty) };
    Ok(Params { end, padded: *span as usize - records, open })
}

/// Whether this is an array without a length.
fn open_ended(module: &Module, ty: Handle<Type>) -> bool {
    matches!(module.types[ty].inner, TypeInner::Array { size: ArraySize::Dynamic, .. })
}

/// What a type consists of, as if it were written.
fn consists_of(module: &Module, ty: Handle<Type>) -> Words {
    let words = |scalar: Scalar| {
        let width = u32::from(scalar.width);
        let float = if scalar.kind == ScalarKind::Float { width } else { 0 };
        Words { float, written: width.min(4) }
    };
    match &module.types[ty].inner {
        TypeInner::Scalar(scalar)
        | TypeInner::Atomic(scalar)
        | TypeInner::Vector { scalar, .. }
        | TypeInner::Matrix { scalar, .. } => words(*scalar),
        TypeInner::Array { base, .. } => consists_of(module, *base),
        TypeInner::Struct { members, .. } => {
            members.iter().map(|member| consists_of(module, member.ty)).fold(
                Words::default(),
                |a, b| Words { float: a.float.max(b.float), written: a.written.max(b.written) },
            )
        }
        _ => Words::default(),
    }
}
