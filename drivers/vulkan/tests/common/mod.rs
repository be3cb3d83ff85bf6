//! Opening devices for tests, and a model of what transfers do.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::time::Duration;

use hedgerow::driver::{Contents, CopyBox, DeviceDriver, Dim};
use hedgerow_vulkan::{LimitsOverride, Memory, ValidationLog, Vulkan, VulkanError};

pub(crate) const SECONDS: Duration = Duration::from_secs(20);

/// A device under test; complains when dropped if the validation layer has.
pub(crate) struct Tested {
    pub(crate) gpu: Vulkan,
    pub(crate) name: &'static str,
}

impl std::ops::Deref for Tested {
    type Target = Vulkan;

    fn deref(&self) -> &Vulkan {
        &self.gpu
    }
}

/// Whether tests must fail where there is no Vulkan.
pub(crate) fn required() -> bool {
    let wanted = std::env::var("HEDGEROW_REQUIRE").unwrap_or_default();
    wanted.split([',', ' ']).any(|word| matches!(word, "vulkan" | "all"))
}

fn strict() -> LimitsOverride {
    LimitsOverride::strict()
}

fn tiny_staging() -> LimitsOverride {
    let mut limits = LimitsOverride::default();
    limits.staging_chunk = Some(4096);
    limits.staging_chunks = Some(1);
    limits
}

/// A device with these limits, validated where the layer is installed. `None`, said aloud, without Vulkan.
pub(crate) fn open_with(limits: LimitsOverride, budget: Option<u64>) -> Option<Vulkan> {
    open_validated(limits, budget, true)
}

/// As [`open_with`], with or without validation.
pub(crate) fn open_validated(
    limits: LimitsOverride,
    budget: Option<u64>,
    validation: bool,
) -> Option<Vulkan> {
    // HEDGEROW_VULKAN_VALIDATION: "off", "core", else barriers as well.
    let how = std::env::var("HEDGEROW_VULKAN_VALIDATION").unwrap_or_default();
    let open = |validation: bool| {
        let mut builder = Vulkan::builder()
            .validation(validation && how != "off")
            .synchronization_validation(validation && how != "off" && how != "core")
            .limits(limits);
        if let Some(bytes) = budget {
            builder = builder.budget(bytes);
        }
        builder.open()
    };
    let opened = match open(validation) {
        Err(VulkanError::NoValidation { missing }) => {
            assert!(!required(), "validation is required, and {missing} is missing");
            eprintln!("not validated: {missing} is missing");
            open(false)
        }
        other => other,
    };
    match opened {
        Ok(gpu) => Some(gpu),
        Err(error) if required() => panic!("vulkan is required: {error}"),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// Runs a test on the device as it is and on stricter ones, and expects the validation layer to be silent.
pub(crate) fn on_all(test: impl Fn(&Tested)) {
    let variants =
        [("as it is", LimitsOverride::default()), ("strict", strict()), ("tiny", tiny_staging())];
    for (name, limits) in variants {
        let Some(gpu) = open_with(limits, None) else { return };
        let log = gpu.validation_log();
        let tested = Tested { gpu, name };
        test(&tested);
        drop(tested);
        silent(&log);
    }
}

pub(crate) fn silent(log: &ValidationLog) {
    assert_eq!(log.count(), 0, "validation: {:#?}", log.messages());
}

/// Bytes that differ from their neighbours, from a seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed | 1);
    (0..len).map(|_| random.next() as u8).collect()
}

/// A small generator (xorshift), so that tests repeat.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// A box: a run, and `(count, src_stride, dst_stride)` for each axis around it.
pub(crate) fn boxed(src: u64, dst: u64, run: u64, dims: &[(u32, i64, i64)]) -> CopyBox {
    let mut out = CopyBox::flat(src, dst, run);
    for (count, src_stride, dst_stride) in dims {
        out.push(Dim { count: *count, src_stride: *src_stride, dst_stride: *dst_stride });
    }
    out
}

/// What copying the boxes does.
pub(crate) fn model(src: &[u8], dst: &mut [u8], boxes: &[CopyBox]) {
    for one in boxes {
        one.for_each_run(|from, to| {
            let (from, to, run) = (from as usize, to as usize, one.run as usize);
            dst[to..to + run].copy_from_slice(&src[from..from + run]);
        });
    }
}

/// The same boxes with source and destination exchanged.
pub(crate) fn reversed(boxes: &[CopyBox]) -> Vec<CopyBox> {
    let turn = |one: &CopyBox| {
        let mut out = CopyBox::flat(one.dst, one.src, one.run);
        for dim in one.dims() {
            out.push(Dim { src_stride: dim.dst_stride, dst_stride: dim.src_stride, ..*dim });
        }
        out
    };
    boxes.iter().map(turn).collect()
}

/// Device memory that holds these bytes.
pub(crate) fn holding(gpu: &Vulkan, bytes: &[u8]) -> Memory {
    let len = bytes.len() as u64;
    let memory = gpu.allocate(len, Contents::Zeroed).expect("allocates");
    // SAFETY: the box lies inside both sides.
    let ticket = unsafe {
        gpu.upload(bytes.as_ptr(), memory.memory, &[CopyBox::flat(0, 0, len)], &[memory.ready])
    };
    gpu.wait(ticket.expect("uploads"), SECONDS).expect("is done");
    memory.memory
}

/// All bytes of device memory, after this ticket.
pub(crate) fn bytes_of(
    gpu: &Vulkan,
    memory: Memory,
    len: usize,
    after: &[hedgerow::driver::Ticket],
) -> Vec<u8> {
    let mut out = vec![0xa5; len];
    let boxes = [CopyBox::flat(0, 0, len as u64)];
    // SAFETY: the box lies inside both sides.
    unsafe { gpu.download(memory, out.as_mut_ptr(), &boxes, after, SECONDS) }.expect("downloads");
    out
}

/// Lists of boxes between two buffers of [`SPACE`] bytes: odd offsets and lengths, gaps, negative strides.
pub(crate) fn box_lists() -> Vec<Vec<CopyBox>> {
    let mut lists = vec![
        vec![boxed(0, 0, SPACE, &[])],
        vec![boxed(3, 5, 1, &[])],
        vec![boxed(1, 2, 7, &[(13, 11, 9)])],
        vec![boxed(17, 3, 1, &[(50, 3, 2), (7, 200, 301)])],
        vec![boxed(5, 9, 3, &[(4, 5, 7), (3, 40, 50), (5, 1000, 777)])],
        vec![boxed(50_000, 10, 33, &[(20, -64, 64)])],
        vec![boxed(0, 1, 60_001, &[])],
        vec![boxed(0, 0, 0, &[])],
        vec![],
        vec![
            boxed(0, 1, 2, &[(3, 4, 4)]),
            boxed(100, 101, 40, &[(100, 50, 50)]),
            boxed(9, 0, 1, &[]),
            boxed(20_000, 30_000, 30_003, &[]),
        ],
    ];
    let mut random = Random(0x1234_5678_9abc);
    for _ in 0..10 {
        let run = 1 + random.below(40);
        let rows = 1 + random.below(60) as u32;
        let planes = 1 + random.below(6) as u32;
        let pitch = |random: &mut Random| (run + random.below(20)) as i64;
        let (src_row, dst_row) = (pitch(&mut random), pitch(&mut random));
        let (src_plane, dst_plane) = (src_row * i64::from(rows) + 3, dst_row * i64::from(rows) + 1);
        let at = (random.below(1000), random.below(1000));
        let dims = [(rows, src_row, dst_row), (planes, src_plane, dst_plane)];
        lists.push(vec![boxed(at.0, at.1, run, &dims)]);
    }
    lists
}

/// Bytes of the buffers that [`box_lists`] is for.
pub(crate) const SPACE: u64 = 70_003;

/// Byte `at` of storage.
///
/// # Safety
/// The storage is longer than that, and nobody writes it now.
pub(crate) unsafe fn byte(host: std::ptr::NonNull<u8>, at: usize) -> u8 {
    let place = host.as_ptr().wrapping_add(at);
    // SAFETY: the caller's promise.
    unsafe { place.read() }
}

/// SPIR-V of WGSL text.
pub(crate) fn spirv(text: &str, entry: &str) -> Vec<u32> {
    use naga::back::spv;
    let module = naga::front::wgsl::parse_str(text).expect("parses");
    let all = naga::valid::Capabilities::empty();
    let info = naga::valid::Validator::new(naga::valid::ValidationFlags::all(), all)
        .validate(&module)
        .expect("is valid");
    let options = spv::Options { lang_version: (1, 3), ..spv::Options::default() };
    let pipeline = spv::PipelineOptions {
        shader_stage: naga::ShaderStage::Compute,
        entry_point: entry.to_owned(),
    };
    spv::write_vec(&module, &info, &options, Some(&pipeline)).expect("compiles")
}
