//! How kernels see their views: the one binding layout of this driver.
//!
//! # Bindings
//!
//! A kernel that takes N views has N + 1 storage buffers, all in set 0:
//!
//! | binding | what | access |
//! |---|---|---|
//! | 0 | N view records of 128 bytes, then the parameters' bytes at 128 N | read |
//! | 1 to N | the window of view 0 to N - 1, rounded up to whole 16 bytes | as its mode says |
//!
//! # View record
//!
//! Thirty-two words, 128 bytes:
//!
//! | word | type | what |
//! |---|---|---|
//! | 0 | u32 | rank: number of axes |
//! | 1 | u32 | origin: byte of the window where the view's first element starts |
//! | 2 | u32 | bytes of one element |
//! | 3 | u32 | mode: 0 read, 1 overwrite, 2 update |
//! | 4 to 7 | u32 | zero |
//! | 8 to 15 | i32 | first coordinate on each axis; 0 beyond the last |
//! | 16 to 23 | u32 | number of coordinates on each axis; 1 beyond the last |
//! | 24 to 31 | i32 | bytes between neighbours on each axis; 0 beyond the last |
//!
//! The element at view coordinates `c` starts at byte
//! `origin + sum over axes of (c[a] - min[a]) * stride[a]` of the window, in wrapping 32-bit arithmetic:
//! the sum is right even where a stride is negative, or does not fit an `i32`.
//!
//! # Invocations
//!
//! Invocation `(x, y, z)` is for the element at `min[0] + x`, `min[1] + y`; axes from 2 on are flattened
//! into z, axis 2 fastest. Groups are whole, so **a kernel must return where an invocation is outside the
//! extents**.
//!
//! # In WGSL
//!
//! [`WGSL`] is the text of `View`, to put in front of a kernel:
//!
//! ```wgsl
//! struct Call { views: array<View, 1>, value: i32 }
//! @group(0) @binding(0) var<storage, read> call: Call;
//! @group(0) @binding(1) var<storage, read_write> image: array<i32>;
//!
//! @compute @workgroup_size(8, 8)
//! fn main(@builtin(global_invocation_id) id: vec3<u32>) {
//!     let extent = call.views[0].extent;
//!     if (id.x >= extent[0] || id.y >= extent[1] || id.z >= extent[2]) { return; }
//!     image[view_byte(0u, id) / 4u] = call.value;
//! }
//! ```
//!
//! What the text says is checked. Loading refuses it where it binds another number of views than
//! [`KernelSource::views`], or where binding 0 is no struct that starts with `views: array<View, N>`. A
//! launch is refused, and nothing runs, where
//!
//! * the parameters have another size than the struct has behind `views` (with or without the padding at its
//!   end; at least that size where it ends with an array without a length);
//! * a binding consists of floats, and the view's elements are not whole floats;
//! * the kernel writes words, the view's elements are not whole words, and
//!   [`KernelSource::granule`] is smaller than a word.
//!
//! Of SPIR-V none of this is known: there it is the author's promise.
//!
//! [`KernelSource::views`]: hedgerow::driver::KernelSource::views
//! [`KernelSource::granule`]: hedgerow::driver::KernelSource::granule
//!
//! # In GLSL
//!
//! ```glsl
//! struct View {
//!     uint rank, origin, element, mode;
//!     uint reserved[4];
//!     int first[8];
//!     uint extent[8];
//!     int stride[8];
//! };
//! layout(set = 0, binding = 0, std430) readonly buffer Call { View views[1]; int value; } call;
//! layout(set = 0, binding = 1, std430) buffer Image { int image[]; };
//! ```

use hedgerow::driver::{Binding, Dispatch};
use hedgerow::region::MAX_RANK;
use hedgerow::tree::Mode;

/// [`layout::WGSL`](crate::layout::WGSL) as a literal, for `concat!`: it makes sources that are constants.
///
/// ```
/// const FILL: &str = concat!(
///     hedgerow_vulkan::wgsl_prelude!(),
///     "struct Call { views: array<View, 1>, value: f32 }"
/// );
/// ```
#[macro_export]
macro_rules! wgsl_prelude {
    () => {
        "
struct View {
    rank: u32,
    origin: u32,
    element: u32,
    mode: u32,
    reserved: array<u32, 4>,
    first: array<i32, 8>,
    extent: array<u32, 8>,
    stride: array<i32, 8>,
}
fn view_byte(view: u32, id: vec3<u32>) -> u32 {
    return call.views[view].origin
        + id.x * bitcast<u32>(call.views[view].stride[0])
        + id.y * bitcast<u32>(call.views[view].stride[1])
        + id.z * bitcast<u32>(call.views[view].stride[2]);
}
"
    };
}

/// The WGSL text of `View`, and of `view_byte(view, id)`: the byte of the view's window where the element
/// for an invocation starts (up to three axes). It expects binding 0 to be named `call`. As a literal, it is
/// [`wgsl_prelude!`](crate::wgsl_prelude).
pub const WGSL: &str = wgsl_prelude!();

/// Bytes of one view record.
pub const RECORD: usize = 128;

/// Axes that a record has room for.
const AXES: usize = 8;
const _: () = assert!(MAX_RANK <= AXES);

/// Bytes of binding 0 for this dispatch.
pub(crate) fn block_bytes<M>(dispatch: &Dispatch<'_, M>) -> usize {
    dispatch.views.len() * RECORD + dispatch.params.len().next_multiple_of(16)
}

/// Appends binding 0 for this dispatch to `out`.
pub(crate) fn encode<M>(dispatch: &Dispatch<'_, M>, out: &mut Vec<u8>) {
    for view in dispatch.views {
        for word in record(view) {
            out.extend_from_slice(&word.to_ne_bytes());
        }
    }
    out.extend_from_slice(dispatch.params);
}

/// The record of one view.
fn record<M>(view: &Binding<M>) -> [u32; RECORD / 4] {
    let geometry = &view.geometry;
    let mut words = [0; RECORD / 4];
    words[0] = geometry.rank as u32;
    // Below `max_binding`, which fits.
    words[1] = geometry.origin as u32;
    words[2] = view.element;
    words[3] = match view.mode {
        Mode::Read => 0,
        Mode::Overwrite => 1,
        Mode::Update => 2,
    };
    for axis in 0..AXES {
        let inside = axis < geometry.rank && axis < MAX_RANK;
        words[8 + axis] = if inside { geometry.min.at(axis) as u32 } else { 0 };
        words[16 + axis] = if inside { geometry.extent.at(axis) } else { 1 };
        // Modulo 2^32, as the kernel's own arithmetic.
        words[24 + axis] = if inside { geometry.stride.at(axis) as u32 } else { 0 };
    }
    words
}
