//! Kernels on bound views: geometry, parameters, order, and what is refused.

mod common;

use common::{SECONDS, Tested, bytes_of, holding, noise, on_all, spirv};
use hedgerow::driver::{
    Allocation, Binding, ComputeDriver, Contents, CopyBox, DeviceCode, DeviceDriver, Dispatch,
    DriverError, ErrorKind, Form, Geometry, KernelSource, Ticket,
};
use hedgerow::region::PerAxis;
use hedgerow::tree::Mode;
use hedgerow_vulkan::{Kernel, Memory, VulkanError, layout};

const FILL: &str = "
struct Call { views: array<View, 1>, value: i32 }
@group(0) @binding(0) var<storage, read> call: Call;
@group(0) @binding(1) var<storage, read_write> image: array<i32>;
@compute @workgroup_size(8, 4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let extent = call.views[0].extent;
    if (id.x >= extent[0] || id.y >= extent[1] || id.z >= extent[2]) { return; }
    let x = call.views[0].first[0] + i32(id.x);
    let y = call.views[0].first[1] + i32(id.y);
    image[view_byte(0u, id) / 4u] = call.value + 100 * x + y;
}";

const ADD: &str = "
struct Call { views: array<View, 2>, factor: i32, more: i32 }
@group(0) @binding(0) var<storage, read> call: Call;
@group(0) @binding(1) var<storage, read> source: array<i32>;
@group(0) @binding(2) var<storage, read_write> image: array<i32>;
@compute @workgroup_size(64)
fn add(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= call.views[1].extent[0]) { return; }
    let at = view_byte(1u, id) / 4u;
    image[at] = image[at] * call.factor + source[view_byte(0u, id) / 4u] + call.more;
}";

fn load(
    gpu: &Tested,
    text: &str,
    entry: &str,
    views: usize,
    workgroup: [u32; 3],
) -> Result<Kernel, VulkanError> {
    let text = format!("{}{text}", layout::WGSL);
    let words = spirv(&text, entry);
    // SAFETY: the kernels of these tests keep to their views, and end.
    let code = unsafe { DeviceCode::new(words.as_slice(), entry) };
    let forms = [Form::Spirv(code)];
    // SAFETY: as above.
    #[cfg(feature = "wgsl")]
    let code = unsafe { DeviceCode::new(text.as_str(), entry) };
    // Both ways are taken.
    #[cfg(feature = "wgsl")]
    let forms = if gpu.name == "strict" { forms } else { [Form::Wgsl(code)] };
    let source = KernelSource { name: "a test", views, workgroup, granule: 4, forms: &forms };
    gpu.load_kernel(&source)
}

/// A view of `i32`s in memory whose window starts at `offset`, which must be aligned, `origin` bytes later.
fn view(
    memory: Memory,
    offset: u64,
    origin: u64,
    axes: &[(i32, u32, i64)],
    mode: Mode,
) -> Binding<Memory> {
    let mut geometry = Geometry { rank: axes.len(), origin, ..Geometry::default() };
    let (mut min, mut extent, mut stride) =
        (PerAxis::default(), PerAxis::default(), PerAxis::default());
    let mut end = origin + 4;
    for (axis, (m, e, s)) in axes.iter().enumerate() {
        min.set(axis, *m);
        extent.set(axis, *e);
        stride.set(axis, *s);
        end += (i64::from(*e - 1) * *s).max(0) as u64;
    }
    for axis in axes.len()..hedgerow::region::MAX_RANK {
        extent.set(axis, 1);
    }
    geometry.min = min;
    geometry.extent = extent;
    geometry.stride = stride;
    Binding { memory, offset, bytes: end, geometry, element: 4, mode }
}

fn words(bytes: &[u8]) -> Vec<i32> {
    bytes.chunks_exact(4).map(|b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn ints(gpu: &Tested, memory: Memory, len: usize, after: &[Ticket]) -> Vec<i32> {
    words(&bytes_of(gpu, memory, len * 4, after))
}

/// A crop of an image, written through geometry and parameters; all else is untouched. The window ends with
/// the image, whose size is no multiple of 16.
#[test]
fn writes_a_crop() {
    on_all(|gpu| {
        let kernel = load(gpu, FILL, "main", 1, [8, 4, 1]).expect("loads");
        let (width, height) = (201usize, 37usize);
        let old = noise(1, width * height * 4);
        let memory = holding(gpu, &old);
        // x in 7..201, y in 30..37: the last element is the last of the image.
        let first = (30 * width + 7) as u64 * 4;
        let align = u64::from(gpu.caps().bind_align);
        let offset = first / align * align;
        let axes = [(7, 194, 4), (30, 7, width as i64 * 4)];
        let view = view(memory, offset, first - offset, &axes, Mode::Overwrite);
        assert_eq!(view.offset + view.bytes, old.len() as u64);
        let value = 1_000_000i32.to_ne_bytes();
        let dispatch = Dispatch { views: &[view], params: &value, groups: [25, 2, 1] };
        // SAFETY: the kernel is this driver's, and nothing else uses the memory.
        let ticket = unsafe { gpu.dispatch(&kernel, &dispatch, &[]) }.expect("runs");
        let got = ints(gpu, memory, width * height, &[ticket]);
        let mut expected = words(&old);
        for y in 30..37 {
            for x in 7..201 {
                expected[y * width + x] = 1_000_000 + 100 * x as i32 + y as i32;
            }
        }
        assert!(got == expected, "{}", gpu.name);
    });
}

/// A view that walks down (negative strides), with negative coordinates.
#[test]
fn walks_down() {
    on_all(|gpu| {
        let kernel = load(gpu, FILL, "main", 1, [8, 4, 1]).expect("loads");
        let memory = holding(gpu, &[0; 40 * 4]);
        // Ten by four, flipped on both axes: view (0, 0) is the last element.
        let mut view = view(memory, 0, 39 * 4, &[(-3, 10, -4), (-2, 4, -40)], Mode::Overwrite);
        view.bytes = 160;
        let dispatch = Dispatch { views: &[view], params: &7i32.to_ne_bytes(), groups: [2, 1, 1] };
        // SAFETY: as in `writes_a_crop`.
        let ticket = unsafe { gpu.dispatch(&kernel, &dispatch, &[]) }.expect("runs");
        let got = ints(gpu, memory, 40, &[ticket]);
        for (i, value) in got.iter().enumerate() {
            let (x, y) = (-3 + (9 - i as i32 % 10), -2 + (3 - i as i32 / 10));
            assert_eq!(*value, 7 + 100 * x + y, "element {i}");
        }
    });
}

/// Many dispatches that each need the one before, one submit; and copies and fills between them.
#[test]
fn dependent_chain() {
    on_all(|gpu| {
        let kernel = load(gpu, ADD, "add", 2, [64, 1, 1]).expect("loads");
        let n = 1000usize;
        let source: Vec<u8> = (0..n as i32).flat_map(i32::to_ne_bytes).collect();
        let source = holding(gpu, &source);
        let Allocation { memory, ready } =
            gpu.allocate(n as u64 * 4, Contents::Zeroed).expect("allocates");
        let axes = [(0, n as u32, 4)];
        let views =
            [view(source, 0, 0, &axes, Mode::Read), view(memory, 0, 0, &axes, Mode::Update)];
        let mut expected: Vec<i32> = vec![0; n];
        let mut last = ready;
        for round in 0..200i32 {
            let params: Vec<u8> = [3, round].into_iter().flat_map(i32::to_ne_bytes).collect();
            let dispatch = Dispatch { views: &views, params: &params, groups: [16, 1, 1] };
            // SAFETY: as in `writes_a_crop`; each follows the one before.
            last = unsafe { gpu.dispatch(&kernel, &dispatch, &[last]) }.expect("runs");
            for (i, value) in expected.iter_mut().enumerate() {
                *value = value.wrapping_mul(3).wrapping_add(i as i32).wrapping_add(round);
            }
            if round == 100 {
                let some = [CopyBox::flat(0, 40, 80)];
                // SAFETY: the box lies inside.
                last = unsafe { gpu.fill(memory, &some, &5i32.to_ne_bytes(), &[last]) }
                    .expect("fills");
                expected[10..30].fill(5);
            }
        }
        assert!(ints(gpu, memory, n, &[last]) == expected, "{}", gpu.name);
    });
}

/// Independent dispatches need no order, more of them than one descriptor pool or record chunk holds.
#[test]
fn independent() {
    on_all(|gpu| {
        let kernel = load(gpu, FILL, "main", 1, [8, 4, 1]).expect("loads");
        let align = u64::from(gpu.caps().bind_align);
        let count = 1500;
        let Allocation { memory, ready } =
            gpu.allocate(align * count, Contents::Zeroed).expect("allocates");
        let mut last = Ticket::DONE;
        for i in 0..count {
            let view = view(memory, align * i, 0, &[(0, 3, 4), (0, 1, 12)], Mode::Overwrite);
            let value = (i as i32 * 1000).to_ne_bytes();
            let dispatch = Dispatch { views: &[view], params: &value, groups: [1, 1, 1] };
            // SAFETY: as in `writes_a_crop`; the windows' elements are disjoint.
            let ticket = unsafe { gpu.dispatch(&kernel, &dispatch, &[ready]) }.expect("runs");
            assert_eq!(ticket.value, last.value.max(ready.value) + 1);
            last = ticket;
        }
        drop(kernel);
        let got = ints(gpu, memory, (align * count / 4) as usize, &[last]);
        for i in 0..count as usize {
            let at = i * align as usize / 4;
            let value = i as i32 * 1000;
            assert_eq!(got[at..at + 4], [value, value + 100, value + 200, 0]);
        }
    });
}

/// Kernels run on shared storage itself; on a discrete device, storage is copied.
#[test]
fn on_storage() {
    on_all(|gpu| {
        let storage = gpu.storage(64 * 4).expect("allocates");
        if !storage.shared {
            return;
        }
        let kernel = load(gpu, FILL, "main", 1, [8, 4, 1]).expect("loads");
        let axes = [(0, 8, 4), (0, 8, 32)];
        let view = view(storage.memory, 0, 0, &axes, Mode::Overwrite);
        let dispatch = Dispatch { views: &[view], params: &1i32.to_ne_bytes(), groups: [1, 2, 1] };
        // SAFETY: as in `writes_a_crop`; the host waits before it looks.
        let ticket = unsafe { gpu.dispatch(&kernel, &dispatch, &[]) }.expect("runs");
        gpu.wait(ticket, SECONDS).expect("is done");
        for i in 0..64 {
            let place = storage.host.cast::<i32>().as_ptr().wrapping_add(i);
            // SAFETY: the storage is that long, and its memory is aligned to an atom at least.
            let value = unsafe { place.read() };
            assert_eq!(value, 1 + 100 * (i as i32 % 8) + i as i32 / 8);
        }
    });
}

#[test]
fn refusals() {
    on_all(|gpu| {
        let refused = |result: Result<Kernel, VulkanError>, text: &str| {
            let error = result.expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains(text), "{error}");
        };
        let source =
            KernelSource { name: "none", views: 1, workgroup: [1; 3], granule: 4, forms: &[] };
        refused(gpu.load_kernel(&source), "kernel \"none\" has no form that this driver runs");
        // SAFETY: refused code never runs.
        let forms = [Form::Spirv(unsafe { DeviceCode::new(&[1, 2, 3][..], "main") })];
        refused(gpu.load_kernel(&KernelSource { forms: &forms, ..source }), "does not start");
        let words = spirv(&format!("{}{FILL}", layout::WGSL), "main");
        // SAFETY: as above.
        let forms = [Form::Spirv(unsafe { DeviceCode::new(&words[..], "other") })];
        let other = KernelSource { forms: &forms, ..source };
        refused(gpu.load_kernel(&other), "no compute entry point \"other\"");
        let views = gpu.caps().max_views as usize + 1;
        refused(gpu.load_kernel(&KernelSource { views, ..other }), "views of at most");
        let workgroup = [u32::MAX, 1, 1];
        refused(gpu.load_kernel(&KernelSource { workgroup, ..other }), "over the limit");
        #[cfg(feature = "wgsl")]
        {
            // SAFETY: as above.
            let forms = [Form::Wgsl(unsafe { DeviceCode::new("fn main( {", "main") })];
            refused(gpu.load_kernel(&KernelSource { forms: &forms, ..source }), "refused");
            let text = format!("{}{FILL}", layout::WGSL);
            // SAFETY: as above.
            let forms = [Form::Wgsl(unsafe { DeviceCode::new(text.as_str(), "main") })];
            let text = "its workgroup is [8, 4, 1], and stated as [1, 1, 1]";
            refused(gpu.load_kernel(&KernelSource { forms: &forms, ..source }), text);
            let says = |views: &str, binding: &str, stated: usize, text: &str| {
                let fill = FILL.replace("array<View, 1>", views).replace("@binding(1)", binding);
                let wgsl = [layout::WGSL, &fill].concat();
                // SAFETY: as above.
                let forms = [Form::Wgsl(unsafe { DeviceCode::new(wgsl.as_str(), "main") })];
                let workgroup = [8, 4, 1];
                let source = KernelSource { workgroup, views: stated, forms: &forms, ..source };
                refused(gpu.load_kernel(&source), text);
            };
            let one = "array<View, 1>";
            let text = "starts with `views: array<View, 1>` for the 1 views stated, and has 2";
            says("array<View, 2>", "@binding(1)", 1, text);
            let text = "starts with `views: array<View, 2>` for the 2 views stated, and has 1";
            says(one, "@binding(1)", 2, text);
            let text = "start at byte 128 of binding 0, and `other` is at 256";
            says("array<View, 1>, @align(256) other: u32", "@binding(1)", 1, text);
            let text = "
                struct Call { views: array<vec4<u32>, 1> }
                @group(0) @binding(0) var<storage, read> call: Call;
                @compute @workgroup_size(1) fn main() {}";
            // SAFETY: as above.
            let forms = [Form::Wgsl(unsafe { DeviceCode::new(text, "main") })];
            let other = KernelSource { forms: &forms, ..source };
            refused(gpu.load_kernel(&other), "its first array has elements of 16 bytes");
            let text = "binds view 1 at binding 2, and states 1 views";
            says(one, "@binding(2)", 1, text);
            let text = "binds 1 views and states 2: group 0 has no binding 2";
            says("array<View, 2>", "@binding(1)", 2, text);
            says(
                one,
                "@binding(1) var<uniform> more: vec4<u32>; @group(0) @binding(2)",
                1,
                "`more` is no storage",
            );
        }
        let kernel = load(gpu, FILL, "main", 1, [8, 4, 1]).expect("loads");
        let none = Dispatch { views: &[], params: &[], groups: [1; 3] };
        // SAFETY: it is refused before it is recorded.
        let error = unsafe { gpu.dispatch(&kernel, &none, &[]) }.expect_err("refused");
        assert_eq!(error.to_string(), "a kernel that takes 1 views was given 0");
        let error = {
            let memory = holding(gpu, &[0; 64]);
            let view = view(memory, 0, 0, &[(0, 1, 4)], Mode::Read);
            let params = vec![0; gpu.caps().max_params as usize + 1];
            let dispatch = Dispatch { views: &[view], params: &params, groups: [1; 3] };
            // SAFETY: as above.
            unsafe { gpu.dispatch(&kernel, &dispatch, &[]) }.expect_err("refused")
        };
        assert_eq!(error.kind(), ErrorKind::TooLarge);
    });
}

/// What has no form for this driver says what it has, and what to do.
#[test]
fn no_form() {
    fn nothing(_: &hedgerow::driver::HostCall<'_>) -> Result<(), hedgerow::driver::KernelError> {
        Ok(())
    }
    on_all(|gpu| {
        let refused = |forms: &[Form<'_>]| {
            let source = KernelSource { name: "f", views: 1, workgroup: [1; 3], granule: 4, forms };
            gpu.load_kernel(&source).expect_err("refused")
        };
        // SAFETY: refused code never runs.
        let ptx = Form::Ptx(unsafe { DeviceCode::new("", "main") });
        let error = refused(&[Form::Host(nothing), ptx]);
        assert!(error.to_string().contains("it has Host, Ptx; "), "{error}");
        assert!(format!("{error:?}").contains("Host, Ptx"), "{error:?}");
        #[cfg(not(feature = "wgsl"))]
        {
            // SAFETY: as above.
            let wgsl = Form::Wgsl(unsafe { DeviceCode::new("", "main") });
            let error = refused(&[Form::Host(nothing), wgsl]);
            let text = "it has Host, Wgsl; enable the feature `wgsl` of hedgerow-vulkan";
            assert!(error.to_string().ends_with(text), "{error}");
            assert!(format!("{error:?}").contains("enable the feature `wgsl`"), "{error:?}");
        }
    });
}

#[cfg(feature = "wgsl")]
mod demands {
    use super::*;

    /// A kernel on one view that does nothing, from the struct's members behind `views` and the binding.
    fn kernel(gpu: &Tested, members: &str, binding: &str, granule: u32) -> Kernel {
        let text = format!(
            "{}struct Call {{ views: array<View, 1>, {members} }}
            @group(0) @binding(0) var<storage, read> call: Call;
            @group(0) @binding(1) var<storage, read_write> image: {binding};
            @compute @workgroup_size(1) fn main() {{}}",
            layout::WGSL
        );
        // SAFETY: it touches nothing.
        let forms = [Form::Wgsl(unsafe { DeviceCode::new(text.as_str(), "main") })];
        let source =
            KernelSource { name: "k", views: 1, workgroup: [1; 3], granule, forms: &forms };
        gpu.load_kernel(&source).expect("loads")
    }

    fn run(
        gpu: &Tested,
        kernel: &Kernel,
        params: &[u8],
        element: u32,
        mode: Mode,
    ) -> Result<(), VulkanError> {
        let memory = holding(gpu, &[0; 64]);
        let view = Binding { element, ..view(memory, 0, 0, &[(0, 1, 4)], mode) };
        let dispatch = Dispatch { views: &[view], params, groups: [1; 3] };
        // SAFETY: the kernel touches nothing.
        unsafe { gpu.dispatch(kernel, &dispatch, &[]) }
            .map(|ticket| gpu.wait(ticket, SECONDS).expect("is done"))
    }

    #[test]
    fn params() {
        let cases: &[(&str, &[usize], &[usize])] = &[
            ("gain: f32", &[4], &[0, 3, 5, 8]),
            ("", &[0], &[4]),
            ("first: u32, high: u32", &[8], &[4, 12]),
            ("towards: vec3<f32>", &[12, 16], &[0, 8, 13, 20]),
            ("towards: vec4<f32>, gain: f32", &[20, 32], &[16, 24, 28, 36]),
            ("matrix: array<array<f32, 3>, 3>", &[36], &[32, 40]),
            ("gain: f32, taps: array<f32>", &[4, 8, 12, 400], &[0, 3]),
        ];
        on_all(|gpu| {
            for (members, right, wrong) in cases {
                let kernel = kernel(gpu, members, "array<u32>", 4);
                for len in *right {
                    let ran = run(gpu, &kernel, &vec![0; *len], 4, Mode::Read);
                    assert!(ran.is_ok(), "{members}, {len}: {ran:?}");
                }
                for len in *wrong {
                    let error = run(gpu, &kernel, &vec![0; *len], 4, Mode::Read);
                    let error = error.expect_err("refused");
                    let VulkanError::Params { name, expected, given, .. } = &error else {
                        panic!("{members}, {len}: {error}");
                    };
                    assert_eq!((name.as_str(), *expected, *given), ("k", right[0], *len));
                }
            }
            let gain = kernel(gpu, "gain: f32", "array<f32>", 4);
            let error = run(gpu, &gain, &3f64.to_ne_bytes(), 4, Mode::Update).expect_err("refused");
            let text = "kernel \"k\" takes 4 bytes of parameters, and was given 8";
            assert_eq!(error.to_string(), text);
        });
    }

    #[test]
    fn elements() {
        on_all(|gpu| {
            for binding in ["array<f32>", "array<vec4<f32>>", "array<mat2x2<f32>>"] {
                let kernel = kernel(gpu, "", binding, 4);
                for element in [4, 8, 12] {
                    assert!(run(gpu, &kernel, &[], element, Mode::Update).is_ok());
                }
                let error = run(gpu, &kernel, &[], 2, Mode::Read).expect_err("refused");
                let text =
                    "kernel \"k\" binds view 0 as floats of 4 bytes, and was given elements of 2";
                assert_eq!(error.to_string(), text);
                assert!(matches!(
                    error,
                    VulkanError::Element { view: 0, element: 2, width: 4, .. }
                ));
            }
            // Words of smaller elements.
            let kernel = kernel(gpu, "", "array<u32>", 4);
            for element in [1, 2, 3, 4] {
                assert!(run(gpu, &kernel, &[], element, Mode::Update).is_ok());
            }
        });
    }

    #[test]
    fn granule() {
        on_all(|gpu| {
            for granule in [1, 2] {
                let kernel = kernel(gpu, "", "array<atomic<u32>>", granule);
                for mode in [Mode::Overwrite, Mode::Update] {
                    let error = run(gpu, &kernel, &[], 2, mode).expect_err("refused");
                    assert!(matches!(error, VulkanError::Granule { view: 0, element: 2, .. }));
                    assert!(error.to_string().ends_with("state `granule: 4`"), "{error}");
                    assert!(run(gpu, &kernel, &[], 8, mode).is_ok());
                }
                assert!(run(gpu, &kernel, &[], 2, Mode::Read).is_ok());
            }
        });
    }

    /// Entry points of one text may take different views; one need not look at all of its own.
    #[test]
    fn several_entry_points() {
        let text = concat!(
            hedgerow_vulkan::wgsl_prelude!(),
            "struct One { views: array<View, 1>, gain: f32 }
            struct Two { views: array<View, 2> }
            @group(0) @binding(0) var<storage, read> call: One;
            @group(0) @binding(0) var<storage, read> two: Two;
            @group(0) @binding(1) var<storage, read_write> a: array<u32>;
            @group(0) @binding(2) var<storage, read_write> b: array<u32>;
            @compute @workgroup_size(1) fn first() { a[0] = u32(call.gain); }
            @compute @workgroup_size(1) fn second() { b[0] = two.views[0].rank; }"
        );
        on_all(|gpu| {
            let load = |entry, views| {
                // SAFETY: it never runs.
                let forms = [Form::Wgsl(unsafe { DeviceCode::new(text, entry) })];
                let (workgroup, granule) = ([1; 3], 4);
                let forms = &forms;
                gpu.load_kernel(&KernelSource { name: "k", views, workgroup, granule, forms })
            };
            assert!(load("first", 1).is_ok());
            assert!(load("second", 2).is_ok());
            assert!(load("first", 2).is_err());
            assert!(load("second", 1).is_err());
        });
    }

    static AMPLIFY: KernelSource<'static> = KernelSource {
        name: "amplify",
        views: 1,
        workgroup: [64, 1, 1],
        granule: 4,
        // SAFETY: it touches its view where `view_byte` says, and ends.
        forms: &[Form::Wgsl(unsafe { DeviceCode::new(AMPLIFY_WGSL, "main") })],
    };
    const AMPLIFY_WGSL: &str = concat!(
        hedgerow_vulkan::wgsl_prelude!(),
        "struct Call { views: array<View, 1>, gain: f32 }
        @group(0) @binding(0) var<storage, read> call: Call;
        @group(0) @binding(1) var<storage, read_write> image: array<f32>;
        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if (id.x >= call.views[0].extent[0]) { return; }
            image[view_byte(0u, id) / 4u] *= call.gain;
        }"
    );

    /// A source that is a static, on a tree; parameters of another size leave everything as it was.
    #[test]
    fn a_static_source() {
        use hedgerow::{Shape, Tree};

        assert!(AMPLIFY_WGSL.starts_with(layout::WGSL));
        on_all(|gpu| {
            let kernel = gpu.load(&AMPLIFY).expect("loads");
            let mut image = vec![1f32; 100];
            let tree =
                Tree::over(&mut image, Shape::packed([100, 1]), gpu.gpu.clone()).expect("opens");
            let view = tree.root().crop([10..90, 0..1]).expect("is inside");
            assert!(kernel.launch((view.as_update(),), 3f64).is_err());
            assert!(kernel.launch((view.as_update(),), ()).is_err());
            kernel.launch((view.as_update(),), 3f32).expect("launches");
            drop(view);
            tree.close().expect("closes");
            let expected = |i| if (10..90).contains(&i) { 3.0 } else { 1.0 };
            assert!(image.iter().enumerate().all(|(i, value)| *value == expected(i)));
        });
    }
}
