//! Kernels of the random programs, for any rank: for any element as host functions, for words in WGSL.

use hedgerow::Element;
use hedgerow::driver::{DeviceCode, Form, HostCall, HostView, KernelError, KernelSource};

/// An element with a value that programs can predict.
pub trait Value: Element + PartialEq + std::fmt::Debug {
    /// Whether the kernels' WGSL forms, which know words, can have it.
    const IS_WORD: bool = false;

    /// The element for a number. Different numbers give different elements, as far as there are enough.
    fn of(number: u64) -> Self;
    /// The element after this one.
    fn next(self) -> Self;
}

macro_rules! int_value {
    ($($t:ty),*) => {$(
        impl Value for $t {
            fn of(number: u64) -> Self {
                number as Self
            }
            fn next(self) -> Self {
                self.wrapping_add(1)
            }
        }
    )*};
}
int_value!(u8, u16, u64, u128);

impl Value for u32 {
    const IS_WORD: bool = true;

    fn of(number: u64) -> Self {
        number as Self
    }
    fn next(self) -> Self {
        self.wrapping_add(1)
    }
}

impl Value for [u8; 3] {
    fn of(number: u64) -> Self {
        [number as u8, (number >> 8) as u8, (number >> 16) as u8]
    }
    fn next(self) -> Self {
        let [a, b, c] = self;
        Self::of(u64::from(a) + (u64::from(b) << 8) + (u64::from(c) << 16) + 1)
    }
}

impl Value for [u16; 5] {
    fn of(number: u64) -> Self {
        let part = |shift: u32| (number >> shift) as u16;
        [part(0), part(16), part(32), part(48), 0]
    }
    fn next(self) -> Self {
        let [a, b, c, d, _] = self;
        let number = u64::from(a) | u64::from(b) << 16 | u64::from(c) << 32 | u64::from(d) << 48;
        Self::of(number.wrapping_add(1))
    }
}

fn for_each<T: Value>(view: &HostView<'_, T>, mut each: impl FnMut(u64, &dyn Spot<T>)) {
    let mut i = 0;
    macro_rules! ranks {
        ($($n:literal),*) => {
            match view.rank() {
                $($n => view.for_each::<$n>(|at| {
                    each(i, &(view, at));
                    i += 1;
                }),)*
                _ => {}
            }
        };
    }
    ranks!(0, 1, 2, 3, 4, 5, 6, 7, 8);
}

/// One element of a view, whatever its rank.
trait Spot<T> {
    fn get(&self) -> T;
    fn set(&self, value: T);
}

impl<T: Value, const N: usize> Spot<T> for (&HostView<'_, T>, [i32; N]) {
    fn get(&self) -> T {
        self.0.get(self.1).expect("inside")
    }
    fn set(&self, value: T) {
        self.0.set(self.1, value);
    }
}

/// `out[i] = of(params + i)`, `i` counting in the view's order.
fn stamp<T: Value>(call: &HostCall<'_>) -> Result<(), KernelError> {
    let out = call.view::<T>(0)?;
    let first: u64 = call.params()?;
    for_each(&out, |i, spot| spot.set(T::of(first + i)));
    Ok(())
}

/// `io[i] = next(io[i])`.
fn bump<T: Value>(call: &HostCall<'_>) -> Result<(), KernelError> {
    let io = call.view::<T>(0)?;
    for_each(&io, |_, spot| spot.set(spot.get().next()));
    Ok(())
}

/// `out[i] = next(source[i])`, both in their own order; the shorter one ends it.
fn relay<T: Value>(call: &HostCall<'_>) -> Result<(), KernelError> {
    let (source, out) = (call.view::<T>(0)?, call.view::<T>(1)?);
    let mut values = Vec::new();
    for_each(&source, |_, spot| values.push(spot.get().next()));
    for_each(&out, |i, spot| {
        if let Some(value) = values.get(i as usize) {
            spot.set(*value);
        }
    });
    Ok(())
}

/// What the WGSL forms share: the element of a view that is the `i`-th in its order, as a word of its window.
const WGSL: &str = "
fn words(view: View) -> u32 {
    var n = 1u;
    for (var a = 0u; a < 8u; a++) { n *= view.extent[a]; }
    return n;
}
fn word(view: View, i: u32) -> u32 {
    var n = i;
    var byte = view.origin;
    for (var a = 0u; a < view.rank; a++) {
        byte += (n % view.extent[a]) * bitcast<u32>(view.stride[a]);
        n /= view.extent[a];
    }
    return byte / 4u;
}
fn number(view: View, id: vec3<u32>) -> u32 {
    return id.x + view.extent[0] * (id.y + view.extent[1] * id.z);
}
fn outside(view: View, id: vec3<u32>) -> bool {
    return id.x >= view.extent[0] || id.y >= view.extent[1] || number(view, id) >= words(view);
}
";

const STAMP: &str = "
struct Call { views: array<View, 1>, first: u32, high: u32 }
@group(0) @binding(0) var<storage, read> call: Call;
@group(0) @binding(1) var<storage, read_write> result: array<u32>;
@compute @workgroup_size(4, 4, 1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let view = call.views[0];
    if (outside(view, id)) { return; }
    let i = number(view, id);
    result[word(view, i)] = call.first + i;
}
";

const BUMP: &str = "
struct Call { views: array<View, 1> }
@group(0) @binding(0) var<storage, read> call: Call;
@group(0) @binding(1) var<storage, read_write> result: array<u32>;
@compute @workgroup_size(4, 4, 1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let view = call.views[0];
    if (outside(view, id)) { return; }
    result[word(view, number(view, id))] += 1u;
}
";

const RELAY: &str = "
struct Call { views: array<View, 2> }
@group(0) @binding(0) var<storage, read> call: Call;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read_write> result: array<u32>;
@compute @workgroup_size(4, 4, 1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let view = call.views[1];
    if (outside(view, id)) { return; }
    let i = number(view, id);
    if (i < words(call.views[0])) {
        result[word(view, i)] = source[word(call.views[0], i)] + 1u;
    }
}
";

/// The three kernels for elements `T`, loaded on `driver`.
pub(crate) fn load<T: Value, D: hedgerow::driver::ComputeDriver>(
    driver: &D,
    granule: u32,
) -> [hedgerow::driver::Kernel<D>; 3] {
    let load = |name, views, f, wgsl: &str| {
        let text = [hedgerow_vulkan::layout::WGSL, WGSL, wgsl].concat();
        // SAFETY: each writes `result` at words of the view it was given to write, inside its extents,
        // and reads words of its views alone.
        let code = unsafe { DeviceCode::new(text.as_str(), "main") };
        let forms = [Form::Host(f), Form::Wgsl(code)];
        let forms = if T::IS_WORD { &forms[..] } else { &forms[..1] };
        let source = KernelSource { name, views, workgroup: [4, 4, 1], granule, forms };
        driver.load(&source).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    [
        load("stamp", 1, stamp::<T>, STAMP),
        load("bump", 1, bump::<T>, BUMP),
        load("relay", 2, relay::<T>, RELAY),
    ]
}
