//! What these tests share: kernels as host functions, capacities, a small random generator.

#![allow(dead_code)] // each test binary uses a part

use std::ops::Range;

use hedgerow::Region;
use hedgerow::driver::middleware::Counting;
use hedgerow::driver::{
    ComputeDriver, Form, HostCall, HostKernel, Kernel, KernelError, KernelSource,
};
use hedgerow_host::Host;

/// A device that counts.
pub(crate) type Counted = Counting<Host<'static>>;

hedgerow::capacity! {
    /// Up to three devices, and cuts for every coordinate of these tests.
    pub(crate) struct Three {
        words: 512, cuts: 64, nodes: 32, guards: 16, devices: 3, list: 8
    }
}

/// Loads a host function that takes `views` views.
pub(crate) fn load<D: ComputeDriver>(gpu: &D, views: usize, kernel: HostKernel) -> Kernel<D> {
    let forms = [Form::Host(kernel)];
    let source = KernelSource { name: "test", views, workgroup: [1; 3], granule: 1, forms: &forms };
    gpu.load(&source).expect("a host form")
}

/// `out[x, y] = x * 100 + y + p * 10_000`.
pub(crate) fn stamp(call: &HostCall<'_>) -> Result<(), KernelError> {
    let out = call.view::<i32>(0)?;
    let p: i32 = call.params()?;
    out.for_each(|[x, y]| out.set([x, y], stamped(x, y, p)));
    Ok(())
}

/// What [`stamp`] writes.
pub(crate) fn stamped(x: i32, y: i32, p: i32) -> i32 {
    x * 100 + y + p * 10_000
}

/// `io[x, y] += p`.
pub(crate) fn add(call: &HostCall<'_>) -> Result<(), KernelError> {
    let io = call.view::<i32>(0)?;
    let p: i32 = call.params()?;
    io.for_each(|at: [i32; 2]| {
        let value = io.get(at).unwrap_or_default();
        io.set(at, value.wrapping_add(p));
    });
    Ok(())
}

/// `out[i] = source[i] + p`, both counted from their own corners.
pub(crate) fn relay(call: &HostCall<'_>) -> Result<(), KernelError> {
    let (source, out) = (call.view::<i32>(0)?, call.view::<i32>(1)?);
    let p: i32 = call.params()?;
    out.for_each(|[x, y]: [i32; 2]| {
        let at = [x - out.min(0) + source.min(0), y - out.min(1) + source.min(1)];
        out.set([x, y], source.get(at).unwrap_or_default().wrapping_add(p));
    });
    Ok(())
}

/// The sums of 3x3 neighbours, in the source's coordinates; beyond its edges it goes on with the values there.
pub(crate) fn blur(call: &HostCall<'_>) -> Result<(), KernelError> {
    let (source, out) = (call.view::<i32>(0)?, call.view::<i32>(1)?);
    let inside = |axis, c: i32| c.clamp(source.min(axis), source.end(axis) - 1);
    out.for_each(|[x, y]: [i32; 2]| {
        let mut sum = 0;
        for (dx, dy) in (-1..=1).flat_map(|dx| (-1..=1).map(move |dy| (dx, dy))) {
            sum += source.get([inside(0, x + dx), inside(1, y + dy)]).unwrap_or_default();
        }
        out.set([x, y], sum);
    });
    Ok(())
}

/// What [`blur`] makes of a packed image, on the host.
pub(crate) fn blurred(image: &[i32], width: i32, height: i32) -> Vec<i32> {
    let at =
        |x: i32, y: i32| image[(y.clamp(0, height - 1) * width + x.clamp(0, width - 1)) as usize];
    let sum = |x: i32, y: i32| -> i32 {
        (y - 1..=y + 1)
            .flat_map(|y| (x - 1..=x + 1).map(move |x| (x, y)))
            .map(|(x, y)| at(x, y))
            .sum()
    };
    (0..height).flat_map(|y| (0..width).map(move |x| sum(x, y))).collect()
}

/// A box of two axes.
pub(crate) fn region(x: Range<i32>, y: Range<i32>) -> Region {
    Region::new(&[x, y]).expect("two axes")
}

/// 0, 1, 2, ...
pub(crate) fn counted(elements: i32) -> Vec<i32> {
    (0..elements).collect()
}

/// A small generator (xorshift), so that tests repeat.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
