//! The suite's kernels, each as a host function and in WGSL.
//!
//! The WGSL forms expect the binding layout that `hedgerow-vulkan` documents: binding 0 holds one record of
//! 32 words for each view, then the parameters; bindings 1 to N are the views' windows.

use bytemuck::Pod;
use hedgerow::driver::{
    DeviceCode, Form, HostCall, HostKernel, HostView, KernelError, KernelSource,
};

/// What one step along each axis adds to an element that is filled with its coordinates.
pub const WEIGHTS: [i32; 8] = [100, 1, 7, 13, 17, 19, 23, 29];

/// What one step of the parameter adds there.
pub const STRIDE: i32 = 10_000;

/// The number that a filling kernel makes of a coordinate.
pub fn code(at: &[i32], p: i32) -> i32 {
    let sum =
        at.iter().zip(WEIGHTS).fold(0, |sum: i32, (c, w)| sum.wrapping_add(c.wrapping_mul(w)));
    sum.wrapping_add(p.wrapping_mul(STRIDE))
}

/// Byte `index` of an element that a byte kernel fills with `code`.
pub fn code_byte(code: i32, index: usize) -> u8 {
    code.wrapping_add(11 * index as i32) as u8
}

// ---- Host forms ----

macro_rules! by_rank {
    ($rank:expr, $n:ident => $call:expr, else $other:expr) => {
        match $rank {
            0 => by_rank!(@ 0, $n, $call),
            1 => by_rank!(@ 1, $n, $call),
            2 => by_rank!(@ 2, $n, $call),
            3 => by_rank!(@ 3, $n, $call),
            4 => by_rank!(@ 4, $n, $call),
            5 => by_rank!(@ 5, $n, $call),
            6 => by_rank!(@ 6, $n, $call),
            7 => by_rank!(@ 7, $n, $call),
            8 => by_rank!(@ 8, $n, $call),
            _ => $other,
        }
    };
    (@ $value:literal, $n:ident, $call:expr) => {{
        const $n: usize = $value;
        $call
    }};
}
pub(super) use by_rank;

/// As [`HostView::for_each`], for any rank.
fn each<T: Pod>(view: &HostView<'_, T>, mut f: impl FnMut(&[i32])) {
    by_rank!(view.rank(), N => view.for_each(|at: [i32; N]| f(&at)), else {});
}

fn get<T: Pod>(view: &HostView<'_, T>, at: &[i32]) -> Result<T, KernelError> {
    let value = by_rank!(at.len(), N => <[i32; N]>::try_from(at).ok().and_then(|at| view.get(at)), else None);
    value.ok_or(KernelError::Refused("an element outside its view"))
}

fn set<T: Pod>(view: &HostView<'_, T>, at: &[i32], value: T) {
    by_rank!(at.len(), N => if let Ok(at) = <[i32; N]>::try_from(at) { view.set(at, value) }, else {});
}

/// Where the element of `to` is that is as far from the start as `at` in `from`.
fn same<A: Pod, B: Pod>(from: &HostView<'_, A>, to: &HostView<'_, B>, at: &[i32]) -> Vec<i32> {
    at.iter().enumerate().map(|(axis, c)| c - from.min(axis) + to.min(axis)).collect()
}

/// What every kernel that reads other views than it writes checks before it writes.
fn check_extents<A: Pod, B: Pod>(
    a: &HostView<'_, A>,
    b: &HostView<'_, B>,
) -> Result<(), KernelError> {
    let alike = a.rank() == b.rank() && (0..a.rank()).all(|axis| a.extent(axis) == b.extent(axis));
    if alike { Ok(()) } else { Err(KernelError::Refused("views of different extents")) }
}

fn fill_i32(call: &HostCall<'_>) -> Result<(), KernelError> {
    let (out, p) = (call.view::<i32>(0)?, call.params::<i32>()?);
    each(&out, |at| set(&out, at, code(at, p)));
    Ok(())
}

fn add_i32(call: &HostCall<'_>) -> Result<(), KernelError> {
    let (out, p) = (call.view::<i32>(0)?, call.params::<i32>()?);
    each(&out, |at| set(&out, at, get(&out, at).unwrap_or(0).wrapping_add(p)));
    Ok(())
}

fn fill_f32(call: &HostCall<'_>) -> Result<(), KernelError> {
    let (out, p) = (call.view::<f32>(0)?, call.params::<i32>()?);
    each(&out, |at| set(&out, at, code(at, p) as f32));
    Ok(())
}

fn add_f32(call: &HostCall<'_>) -> Result<(), KernelError> {
    let (out, p) = (call.view::<f32>(0)?, call.params::<i32>()?);
    each(&out, |at| set(&out, at, get(&out, at).unwrap_or(0.0) + p as f32));
    Ok(())
}

fn copy_i32(call: &HostCall<'_>) -> Result<(), KernelError> {
    let (from, to, p) = (call.view::<i32>(0)?, call.view::<i32>(1)?, call.params::<i32>()?);
    check_extents(&from, &to)?;
    each(&to, |at| {
        set(&to, at, get(&from, &same(&to, &from, at)).unwrap_or(0).wrapping_add(p));
    });
    Ok(())
}

fn sum_i32(call: &HostCall<'_>) -> Result<(), KernelError> {
    let (a, b, out) = (call.view::<i32>(0)?, call.view::<i32>(1)?, call.view::<i32>(2)?);
    let p = call.params::<i32>()?;
    check_extents(&a, &out)?;
    check_extents(&b, &out)?;
    each(&out, |at| {
        let a = get(&a, &same(&out, &a, at)).unwrap_or(0);
        let b = get(&b, &same(&out, &b, at)).unwrap_or(0);
        set(&out, at, a.wrapping_add(b).wrapping_add(p));
    });
    Ok(())
}

fn stencil_i32(call: &HostCall<'_>) -> Result<(), KernelError> {
    let (from, to) = (call.view::<i32>(0)?, call.view::<i32>(1)?);
    if from.rank() != 2 || to.rank() != 2 {
        return Err(KernelError::Refused("a stencil of two axes"));
    }
    let clamp = |axis, c: i32| c.clamp(from.min(axis), from.end(axis) - 1);
    let read = |x, y| from.get([clamp(0, x), clamp(1, y)]).unwrap_or(0);
    to.for_each(|[x, y]| {
        let around = read(x - 1, y).wrapping_add(read(x + 1, y));
        let around = around.wrapping_add(read(x, y - 1)).wrapping_add(read(x, y + 1));
        to.set([x, y], read(x, y).wrapping_mul(4).wrapping_add(around));
    });
    Ok(())
}

fn skip_i32(call: &HostCall<'_>) -> Result<(), KernelError> {
    call.view::<i32>(0).map(drop)
}

/// Calls `byte` for every byte, whichever size the elements have.
fn bytes(
    call: &HostCall<'_>,
    mut byte: impl FnMut(&[i32], usize, u8) -> u8,
) -> Result<(), KernelError> {
    fn of<const B: usize>(
        call: &HostCall<'_>,
        byte: &mut dyn FnMut(&[i32], usize, u8) -> u8,
    ) -> Result<(), KernelError>
    where
        [u8; B]: Pod,
    {
        let out = call.view::<[u8; B]>(0)?;
        each(&out, |at| {
            let mut value = get(&out, at).unwrap_or([0; B]);
            for (index, b) in value.iter_mut().enumerate() {
                *b = byte(at, index, *b);
            }
            set(&out, at, value);
        });
        Ok(())
    }
    of::<1>(call, &mut byte)
        .or_else(|_| of::<2>(call, &mut byte))
        .or_else(|_| of::<3>(call, &mut byte))
        .or_else(|_| of::<8>(call, &mut byte))
        .or_else(|_| of::<12>(call, &mut byte))
}

fn fill_bytes(call: &HostCall<'_>) -> Result<(), KernelError> {
    let p = call.params::<i32>()?;
    bytes(call, |at, index, _| code_byte(code(at, p), index))
}

fn add_bytes(call: &HostCall<'_>) -> Result<(), KernelError> {
    let p = call.params::<i32>()?;
    bytes(call, |_, _, was| was.wrapping_add(p as u8))
}

// ---- WGSL forms ----

/// Threads of a workgroup, as the WGSL states them. Few of the suite's extents are multiples.
const WORKGROUP: [u32; 3] = [8, 4, 1];

macro_rules! wgsl {
    ($views:literal, $windows:literal, $body:literal) => {
        concat!(
            "
struct View {
    rank: u32, origin: u32, element: u32, mode: u32,
    reserved: array<u32, 4>,
    first: array<i32, 8>,
    extent: array<u32, 8>,
    stride: array<i32, 8>,
}
struct Call { views: array<View, ",
            $views,
            ">, p: i32 }
@group(0) @binding(0) var<storage, read> call: Call;
",
            $windows,
            "
fn inside(v: u32, id: vec3<u32>) -> bool {
    var deep = 1u;
    for (var a = 2u; a < 8u; a++) { deep *= call.views[v].extent[a]; }
    return id.x < call.views[v].extent[0] && id.y < call.views[v].extent[1] && id.z < deep;
}
fn byte_of(v: u32, id: vec3<u32>) -> u32 {
    var at = call.views[v].origin
        + id.x * bitcast<u32>(call.views[v].stride[0])
        + id.y * bitcast<u32>(call.views[v].stride[1]);
    var rest = id.z;
    for (var a = 2u; a < 8u; a++) {
        let n = max(call.views[v].extent[a], 1u);
        at += (rest % n) * bitcast<u32>(call.views[v].stride[a]);
        rest /= n;
    }
    return at;
}
fn code(v: u32, id: vec3<u32>) -> i32 {
    var weights = array<i32, 8>(100, 1, 7, 13, 17, 19, 23, 29);
    var sum = call.p * 10000;
    var rest = id.z;
    for (var a = 0u; a < call.views[v].rank; a++) {
        var c = 0u;
        if (a == 0u) { c = id.x; } else if (a == 1u) { c = id.y; } else {
            let n = max(call.views[v].extent[a], 1u);
            c = rest % n;
            rest /= n;
        }
        sum += (call.views[v].first[a] + bitcast<i32>(c)) * weights[a];
    }
    return sum;
}
@compute @workgroup_size(8, 4, 1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
",
            $body,
            "
}
"
        )
    };
}

macro_rules! kernel {
    ($(#[$doc:meta])* $name:ident, $views:literal, $host:ident, $wgsl:expr) => {
        $(#[$doc])*
        pub static $name: KernelSource<'static> = KernelSource {
            name: stringify!($name),
            views: $views,
            workgroup: WORKGROUP,
            granule: 4,
            forms: &[
                Form::Host($host as HostKernel),
                // SAFETY: an invocation outside the extents returns at once, and the others touch the one
                // element of each view that the geometry gives (the stencil: the neighbours, clamped to
                // the view); only the last view is written, in whole words, or by bytes with atomics that
                // leave the rest of their word alone. No loop is longer than eight rounds or an element.
                Form::Wgsl(unsafe { DeviceCode::new($wgsl, "main") }),
            ],
        };
    };
}

kernel!(
    /// Overwrites with [`code`].
    FILL_I32, 1, fill_i32,
    wgsl!("1", "@group(0) @binding(1) var<storage, read_write> out: array<i32>;",
        "if (!inside(0u, id)) { return; }
        out[byte_of(0u, id) / 4u] = code(0u, id);")
);
kernel!(
    /// Updates by adding the parameter.
    ADD_I32, 1, add_i32,
    wgsl!("1", "@group(0) @binding(1) var<storage, read_write> out: array<i32>;",
        "if (!inside(0u, id)) { return; }
        out[byte_of(0u, id) / 4u] += call.p;")
);
kernel!(
    /// Overwrites with [`code`], as a float.
    FILL_F32, 1, fill_f32,
    wgsl!("1", "@group(0) @binding(1) var<storage, read_write> out: array<f32>;",
        "if (!inside(0u, id)) { return; }
        out[byte_of(0u, id) / 4u] = f32(code(0u, id));")
);
kernel!(
    /// Updates by adding the parameter, as a float.
    ADD_F32, 1, add_f32,
    wgsl!("1", "@group(0) @binding(1) var<storage, read_write> out: array<f32>;",
        "if (!inside(0u, id)) { return; }
        out[byte_of(0u, id) / 4u] += f32(call.p);")
);
kernel!(
    /// Overwrites the second view with the first plus the parameter.
    COPY_I32, 2, copy_i32,
    wgsl!("2", "@group(0) @binding(1) var<storage, read> src: array<i32>;
@group(0) @binding(2) var<storage, read_write> out: array<i32>;",
        "if (!inside(1u, id)) { return; }
        out[byte_of(1u, id) / 4u] = src[byte_of(0u, id) / 4u] + call.p;")
);
kernel!(
    /// Overwrites the third view with the sum of the first two and the parameter.
    SUM_I32, 3, sum_i32,
    wgsl!("3", "@group(0) @binding(1) var<storage, read> a: array<i32>;
@group(0) @binding(2) var<storage, read> b: array<i32>;
@group(0) @binding(3) var<storage, read_write> out: array<i32>;",
        "if (!inside(2u, id)) { return; }
        out[byte_of(2u, id) / 4u] = a[byte_of(0u, id) / 4u] + b[byte_of(1u, id) / 4u] + call.p;")
);
kernel!(
    /// Overwrites the second view with four times the first plus its four neighbours, clamped at the first
    /// view's edges. The coordinates of both are the same.
    STENCIL_I32, 2, stencil_i32,
    wgsl!("2", "@group(0) @binding(1) var<storage, read> src: array<i32>;
@group(0) @binding(2) var<storage, read_write> out: array<i32>;
fn near(x: i32, y: i32) -> i32 {
    let cx = bitcast<u32>(clamp(x - call.views[0].first[0], 0, i32(call.views[0].extent[0]) - 1));
    let cy = bitcast<u32>(clamp(y - call.views[0].first[1], 0, i32(call.views[0].extent[1]) - 1));
    return src[byte_of(0u, vec3<u32>(cx, cy, 0u)) / 4u];
}",
        "if (!inside(1u, id)) { return; }
        let x = call.views[1].first[0] + bitcast<i32>(id.x);
        let y = call.views[1].first[1] + bitcast<i32>(id.y);
        let around = near(x - 1, y) + near(x + 1, y) + near(x, y - 1) + near(x, y + 1);
        out[byte_of(1u, id) / 4u] = 4 * near(x, y) + around;")
);
kernel!(
    /// Writes nothing, whatever it was given to write.
    SKIP_I32, 1, skip_i32,
    wgsl!("1", "@group(0) @binding(1) var<storage, read_write> out: array<i32>;",
        "if (!inside(0u, id) || code(0u, id) != 123456789) { return; }
        out[byte_of(0u, id) / 4u] = 0;")
);
kernel!(
    /// Overwrites elements of any size, byte by byte, with [`code_byte`].
    FILL_BYTES, 1, fill_bytes,
    wgsl!("1", "@group(0) @binding(1) var<storage, read_write> out: array<atomic<u32>>;",
        "if (!inside(0u, id)) { return; }
        let first = byte_of(0u, id);
        for (var i = 0u; i < call.views[0].element; i++) {
            let at = first + i;
            let shift = (at % 4u) * 8u;
            let value = bitcast<u32>(code(0u, id) + 11 * bitcast<i32>(i)) & 255u;
            atomicAnd(&out[at / 4u], ~(255u << shift));
            atomicOr(&out[at / 4u], value << shift);
        }")
);
kernel!(
    /// Updates elements of any size by adding the parameter to every byte.
    ADD_BYTES, 1, add_bytes,
    wgsl!("1", "@group(0) @binding(1) var<storage, read_write> out: array<atomic<u32>>;",
        "if (!inside(0u, id)) { return; }
        let first = byte_of(0u, id);
        for (var i = 0u; i < call.views[0].element; i++) {
            let at = first + i;
            let shift = (at % 4u) * 8u;
            let was = (atomicLoad(&out[at / 4u]) >> shift) & 255u;
            let value = (was + bitcast<u32>(call.p)) & 255u;
            atomicAnd(&out[at / 4u], ~(255u << shift));
            atomicOr(&out[at / 4u], value << shift);
        }")
);
