//! An image larger than the device's memory, smoothed window by window: each window a detached tree, with a
//! halo around what it reads.
//!
//! ```text
//! cargo run -p hedgerow-tests --example window -- [--driver host|vulkan] [--device SELECTOR]
//! ```
//!
//! The device is given a budget that the image does not fit in, so the whole image cannot be worked on at once;
//! the windows must give what the whole image would. Without `--driver` it runs on the host. The exit status is
//! 0 only if all was right.

use std::error::Error;
use std::process::ExitCode;

use hedgerow::driver::middleware::Counting;
use hedgerow::driver::{
    ComputeDriver, DeviceCode, Form, HostCall, Kernel, KernelError, KernelSource,
};
use hedgerow::{Builder, Counters, Mode, Shape, Tree};
use hedgerow_host::Host;
use hedgerow_vulkan::{LimitsOverride, Vulkan};
use lexopt::ValueExt;

/// The image: 1.5 MiB, and its result as much again.
const WIDTH: i32 = 768;
const HEIGHT: i32 = 512;

/// Device memory, for both images together.
const BUDGET: u64 = 256 << 10;

/// Elements of a window on each axis, and how far around it the filter looks.
const WINDOW: i32 = 128;
const RADIUS: i32 = 3;

/// Writes the mean of the values around each element, nearer ones counting more, in integers. Beyond the edges of
/// the view that it reads, values go on.
fn smooth(call: &HostCall<'_>) -> Result<(), KernelError> {
    let (image, out) = (call.view::<i32>(0)?, call.view::<i32>(1)?);
    let radius: i32 = call.params()?;
    out.for_each(|[x, y]: [i32; 2]| {
        let near = |x: i32, y: i32| {
            let at =
                [x.clamp(image.min(0), image.end(0) - 1), y.clamp(image.min(1), image.end(1) - 1)];
            image.get(at).unwrap_or_default()
        };
        out.set([x, y], weighted(radius, |dx, dy| near(x + dx, y + dy)));
    });
    Ok(())
}

fn weighted(radius: i32, value: impl Fn(i32, i32) -> i32) -> i32 {
    let (mut sum, mut weights) = (0, 0);
    for dy in -radius..=radius {
        for dx in -radius..=radius {
            let weight = 1 + 2 * radius - dx.abs() - dy.abs();
            sum += weight * value(dx, dy);
            weights += weight;
        }
    }
    sum / weights
}

/// The same on devices that take WGSL. Coordinates are the views' own: crops keep their parent's, and detached
/// trees their views'.
const SMOOTH: &str = "
struct Call { views: array<View, 2>, radius: i32 }
@group(0) @binding(0) var<storage, read> call: Call;
@group(0) @binding(1) var<storage, read> image: array<i32>;
@group(0) @binding(2) var<storage, read_write> result: array<i32>;

fn near(x: i32, y: i32) -> i32 {
    let view = &call.views[0];
    let column = clamp(x - (*view).first[0], 0, i32((*view).extent[0]) - 1);
    let row = clamp(y - (*view).first[1], 0, i32((*view).extent[1]) - 1);
    return image[view_byte(0u, vec3<u32>(u32(column), u32(row), 0u)) / 4u];
}

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let view = &call.views[1];
    if (id.x >= (*view).extent[0] || id.y >= (*view).extent[1] || id.z >= (*view).extent[2]) {
        return;
    }
    let x = (*view).first[0] + i32(id.x);
    let y = (*view).first[1] + i32(id.y);
    let radius = call.radius;
    var sum = 0;
    var weights = 0;
    for (var dy = -radius; dy <= radius; dy++) {
        for (var dx = -radius; dx <= radius; dx++) {
            let weight = 1 + 2 * radius - abs(dx) - abs(dy);
            sum += weight * near(x + dx, y + dy);
            weights += weight;
        }
    }
    result[view_byte(1u, id) / 4u] = sum / weights;
}
";

fn load<D: ComputeDriver>(gpu: &D) -> Result<Kernel<D>, hedgerow::Error<D::Error>> {
    let text = [hedgerow_vulkan::layout::WGSL, SMOOTH].concat();
    // SAFETY: it returns outside the extents of the view that it writes, and clamps to those of the view that it
    // reads. Its loops are bounded.
    let wgsl = unsafe { DeviceCode::new(text.as_str(), "main") };
    gpu.load(&KernelSource {
        name: "smooth",
        views: 2,
        workgroup: [8, 8, 1],
        granule: 4,
        forms: &[Form::Host(smooth), Form::Wgsl(wgsl)],
    })
}

/// Works through the image, and checks the result and every byte that moved.
fn run<D: ComputeDriver>(gpu: &D) -> Result<bool, Box<dyn Error>> {
    let gpu = Counting::new(gpu);
    let kernel = load(&gpu)?;
    let image: Vec<i32> = (0..HEIGHT)
        .flat_map(|y| {
            (0..WIDTH).map(move |x| (x * x / 90 + y * 3 + (x * 7 + y * 13) % 97 * 40) % 4096)
        })
        .collect();
    let (mut before, mut after) = (image.clone(), vec![0; image.len()]);
    let shape = Shape::packed([WIDTH as u32, HEIGHT as u32]);
    let source = Tree::over(&mut before, shape, &gpu)?;
    let result = Tree::over(&mut after, shape, &gpu)?;

    let whole = kernel.launch((source.root().as_read(), result.root().as_overwrite()), RADIUS);
    let Err(refused) = whole else {
        println!("the whole image fits in the device's memory: nothing is shown");
        return Ok(false);
    };
    println!("  the whole image at once: {refused}");

    let mut moved = Counters::default();
    let (mut windows, mut halos, mut most) = (0u64, 0u64, 0);
    for top in (0..HEIGHT).step_by(WINDOW as usize) {
        for left in (0..WIDTH).step_by(WINDOW as usize) {
            let (right, bottom) = ((left + WINDOW).min(WIDTH), (top + WINDOW).min(HEIGHT));
            let halo = source.root().crop([
                (left - RADIUS).max(0)..(right + RADIUS).min(WIDTH),
                (top - RADIUS).max(0)..(bottom + RADIUS).min(HEIGHT),
            ])?;
            let window = result.root().crop([left..right, top..bottom])?;
            // Neighbours may share a halo, since they only read it; nobody shares a window.
            let from = Builder::new(&gpu).detach(&halo, Mode::Read)?;
            let to = Builder::new(&gpu).detach(&window, Mode::Overwrite)?;
            kernel.launch((from.root().as_read(), to.root().as_overwrite()), RADIUS)?;
            to.sync()?;
            most = most.max(from.device_layout().span() + to.device_layout().span());
            moved = moved + from.counters() + to.counters();
            (windows, halos) = (windows + 1, halos + halo.region().volume() * 4);
            from.close().map_err(|error| error.error)?;
            to.close().map_err(|error| error.error)?;
        }
    }
    drop((source, result));

    let bytes = 4 * u64::from(WIDTH.unsigned_abs()) * u64::from(HEIGHT.unsigned_abs());
    println!("  {windows} windows of at most {most} bytes with their halos, of {BUDGET} allowed");
    println!("  {moved}");
    println!("  the image is {bytes} bytes; the halos come to {} more", halos - bytes);

    let at =
        |x: i32, y: i32| image[(y.clamp(0, HEIGHT - 1) * WIDTH + x.clamp(0, WIDTH - 1)) as usize];
    let wrong = (0..HEIGHT)
        .flat_map(|y| (0..WIDTH).map(move |x| (x, y)))
        .zip(&after)
        .filter(|((x, y), got)| weighted(RADIUS, |dx, dy| at(x + dx, y + dy)) != **got)
        .count();
    println!("  {wrong} of {} elements differ from the whole image's", after.len());
    let exact = (moved.bytes_up, moved.bytes_down, moved.bytes_widened) == (halos, bytes, 0);
    let counts = gpu.snapshot();
    println!("  the driver was called for: {counts}");
    let freed = counts.live() == 0;
    Ok(wrong == 0 && exact && freed && most <= BUDGET && before == image)
}

fn vulkan(selector: &str) -> Result<bool, Box<dyn Error>> {
    // Pretends that the whole image can never be allocated, and allows no more than the budget at a time.
    let mut limits = LimitsOverride::default();
    limits.max_allocation = Some(BUDGET);
    let gpu = Vulkan::builder().device(selector).limits(limits).budget(BUDGET).open()?;
    println!("vulkan: {}", hedgerow::driver::DeviceDriver::caps(&gpu).name);
    run(&gpu)
}

fn main() -> ExitCode {
    let (mut driver, mut selector) = (String::from("host"), String::new());
    let mut args = lexopt::Parser::from_env();
    let parsed = (|| -> Result<(), lexopt::Error> {
        while let Some(arg) = args.next()? {
            match arg {
                lexopt::Arg::Long("driver") => driver = args.value()?.string()?,
                lexopt::Arg::Long("device") => selector = args.value()?.string()?,
                other => return Err(other.unexpected()),
            }
        }
        Ok(())
    })();
    let result = match (parsed, driver.as_str()) {
        (Err(error), _) => Err(error.into()),
        (_, "host") => {
            println!("host: an arena of {BUDGET} bytes");
            run(&Host::with_capacity(BUDGET as usize))
        }
        (_, "vulkan") => vulkan(&selector),
        (_, other) => Err(format!("no driver `{other}`; there are host and vulkan").into()),
    };
    match result {
        Ok(true) => {
            println!("right");
            ExitCode::SUCCESS
        }
        Ok(false) => {
            println!("WRONG");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
