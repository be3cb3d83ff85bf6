//! The demo's kernels, each in two forms of the same arithmetic: a Rust function and WGSL.
//!
//! Weights are polynomials: `exp` would differ from device to device.

use bytemuck::{Pod, Zeroable};
use hedgerow::Error;
use hedgerow::driver::{
    ComputeDriver, DeviceCode, Form, HostCall, HostKernel, HostView, Kernel, KernelError,
    KernelSource,
};

/// A kernel of the demo, before a driver has loaded it.
pub(super) struct Source {
    name: &'static str,
    views: usize,
    host: HostKernel,
    wgsl: &'static str,
}

/// Writes `x * 100 + y + p * 10000` to a view of `i32`, at its own coordinates; the parameter is `p`.
pub(super) const FILL: Source =
    Source { name: "fill", views: 1, host: fill, wgsl: include_str!("fill.wgsl") };

/// Maps three planes to three planes; the parameter is a matrix, a row for each plane written.
pub(super) const MIX: Source =
    Source { name: "mix", views: 2, host: mix, wgsl: include_str!("mix.wgsl") };

/// Non-local means of a plane; the parameter is [`Nlm`].
pub(super) const NLM: Source =
    Source { name: "nlm", views: 2, host: nlm, wgsl: include_str!("nlm.wgsl") };

/// A bilateral filter of two planes at once; the parameter is [`Bilateral`].
pub(super) const BILATERAL: Source =
    Source { name: "bilateral", views: 2, host: bilateral, wgsl: include_str!("bilateral.wgsl") };

impl Source {
    pub(super) fn load<D: ComputeDriver>(&self, gpu: &D) -> Result<Kernel<D>, Error<D::Error>> {
        let text = [hedgerow_vulkan::layout::WGSL, self.wgsl].concat();
        // SAFETY: each of the four texts returns outside the extents of the one view that it writes, its
        // last. It finds elements by `view_byte`, at coordinates clamped to the view's extents, or at the
        // invocation's own in views of the demo's that have equal extents on axes 0 and 1 and three planes.
        // Its loops are bounded.
        let wgsl = unsafe { DeviceCode::new(text.as_str(), "main") };
        gpu.load(&KernelSource {
            name: self.name,
            views: self.views,
            workgroup: [8, 8, 1],
            granule: 4,
            forms: &[Form::Host(self.host), Form::Wgsl(wgsl)],
        })
    }
}

fn fill(call: &HostCall<'_>) -> Result<(), KernelError> {
    let grid = call.view::<i32>(0)?;
    let p: i32 = call.params()?;
    grid.for_each(|[x, y]| grid.set([x, y], x * 100 + y + p * 10000));
    Ok(())
}

fn mix(call: &HostCall<'_>) -> Result<(), KernelError> {
    let (from, to) = (call.view::<f32>(0)?, call.view::<f32>(1)?);
    let matrix: [[f32; 3]; 3] = call.params()?;
    let from = Planes::of::<3>(&from);
    to.for_each(|at: [i32; 3]| {
        let [x, y, z] = index(&to, at);
        let row = matrix[z as usize % 3];
        let plane = |z| from.get(x, y, z);
        to.set(at, row[0] * plane(0) + row[1] * plane(1) + row[2] * plane(2));
    });
    Ok(())
}

/// How [`NLM`] filters.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Nlm {
    /// How far away alike pixels are looked for.
    pub(super) search: i32,
    /// How far the surroundings go that are compared.
    pub(super) patch: i32,
    /// The sum of squares that two equal surroundings differ by, for their noise.
    pub(super) noise: f32,
    /// One over the sum of squares beyond that where the weight becomes zero.
    pub(super) scale: f32,
}

fn nlm(call: &HostCall<'_>) -> Result<(), KernelError> {
    let (noisy, clean) = (call.view::<f32>(0)?, call.view::<f32>(1)?);
    let Nlm { search, patch, noise, scale } = call.params()?;
    let noisy = Planes::of::<2>(&noisy);
    clean.for_each(|at: [i32; 2]| {
        let [x, y] = index(&clean, at);
        let (mut sum, mut weights) = (0.0, 0.0);
        for there_y in y - search..=y + search {
            for there_x in x - search..=x + search {
                let mut distance = 0.0;
                for j in -patch..=patch {
                    for i in -patch..=patch {
                        let there = noisy.get(there_x + i, there_y + j, 0);
                        let d = there - noisy.get(x + i, y + j, 0);
                        distance += d * d;
                    }
                }
                let t = (1.0 - (distance - noise) * scale).clamp(0.0, 1.0);
                let weight = t * t;
                sum += weight * noisy.get(there_x, there_y, 0);
                weights += weight;
            }
        }
        clean.set(at, sum / weights);
    });
    Ok(())
}

/// How [`BILATERAL`] filters.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Bilateral {
    /// How far away pixels count.
    pub(super) radius: i32,
    /// One over the squared distance where the weight becomes zero.
    pub(super) reach: f32,
    /// One over the squared difference of colour where it does.
    pub(super) scale: f32,
}

fn bilateral(call: &HostCall<'_>) -> Result<(), KernelError> {
    let (noisy, clean) = (call.view::<f32>(0)?, call.view::<f32>(1)?);
    let Bilateral { radius, reach, scale } = call.params()?;
    let noisy = Planes::of::<3>(&noisy);
    clean.for_each(|at: [i32; 3]| {
        let [x, y, z] = index(&clean, at);
        let colour = |x, y| [noisy.get(x, y, 0), noisy.get(x, y, 1)];
        let centre = colour(x, y);
        let (mut sum, mut weights) = (0.0, 0.0);
        for dy in -radius..=radius {
            for dx in -radius..=radius {
                let there = colour(x + dx, y + dy);
                let d = [there[0] - centre[0], there[1] - centre[1]];
                let near = (1.0 - (dx * dx + dy * dy) as f32 * reach).max(0.0);
                let alike = (1.0 - (d[0] * d[0] + d[1] * d[1]) * scale).max(0.0);
                let weight = near * alike * alike;
                sum += weight * there[z as usize % 2];
                weights += weight;
            }
        }
        clean.set(at, sum / weights);
    });
    Ok(())
}

/// `at` counted from the view's first coordinates.
fn index<const N: usize>(view: &HostView<'_, f32>, mut at: [i32; N]) -> [i32; N] {
    for (axis, c) in at.iter_mut().enumerate() {
        *c -= view.min(axis);
    }
    at
}

/// The values of a view in a row, since filters read each of them many times.
struct Planes {
    extent: [i32; 3],
    values: Vec<f32>,
}

impl Planes {
    fn of<const N: usize>(view: &HostView<'_, f32>) -> Self {
        let mut values = Vec::new();
        view.for_each(|at: [i32; N]| values.extend(view.get(at)));
        Self { extent: [0, 1, 2].map(|axis| view.extent(axis) as i32), values }
    }

    /// The value there. Beyond their edges, planes go on with the values there.
    #[inline]
    fn get(&self, x: i32, y: i32, z: i32) -> f32 {
        let [width, height, depth] = self.extent;
        let (x, y, z) = (x.clamp(0, width - 1), y.clamp(0, height - 1), z.clamp(0, depth - 1));
        self.values[((z * height + y) * width + x) as usize]
    }
}
