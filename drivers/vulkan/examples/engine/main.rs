//! A tiny engine that owns its Vulkan device and shares it with hedgerow: each frame, the engine's own command
//! buffer writes a crop of a picture, a kernel of hedgerow works on an overlapping one, and the host reads a
//! third. Nobody copies, flags or waits by hand.
//!
//! `cargo run -p hedgerow-vulkan --features wgsl --example engine`; with `HEDGEROW_VALIDATION=1` under the
//! validation layer, and then any message from it makes this exit with 1.

pub(crate) mod own;

use std::process::ExitCode;
use std::time::Duration;

use hedgerow::driver::{Binding, ComputeDriver, DeviceCode, Form, KernelSource};
use hedgerow::{DeviceAccess, Mode, Shape, Tree};
use hedgerow_vulkan::ash::{self, vk};
use hedgerow_vulkan::{Memory, Vulkan, layout};

use self::own::{Failure, Own};

const FRAMES: i32 = 8;
const WIDTH: i32 = 64;
const HEIGHT: i32 = 48;

/// Doubles a view, and adds the frame's number.
const DOUBLE: &str = "
struct Call { views: array<View, 1>, frame: i32 }
@group(0) @binding(0) var<storage, read> call: Call;
@group(0) @binding(1) var<storage, read_write> image: array<i32>;
@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let extent = call.views[0].extent;
    if (id.x >= extent[0] || id.y >= extent[1] || id.z >= extent[2]) { return; }
    let at = view_byte(0u, id) / 4u;
    image[at] = (image[at] & 0xffff) * 2 + call.frame;
}";

/// What the engine draws: rows of its own in even frames, and in odd ones a line down the crop's left side.
fn draw(device: &ash::Device, commands: vk::CommandBuffer, frame: i32, target: &Target) {
    let geometry = &target.binding.geometry;
    let (x, y) = (geometry.min.at(0), geometry.min.at(1));
    for row in 0..geometry.extent.at(1) {
        let first = target.binding.offset + geometry.origin;
        let offset = first.wrapping_add_signed(i64::from(row) * geometry.stride.at(1));
        if frame % 2 == 0 {
            let pixels = (0..geometry.extent.at(0))
                .flat_map(|column| pixel(frame, x + column as i32, y + row as i32).to_ne_bytes());
            let pixels: Vec<u8> = pixels.collect();
            // SAFETY: the row lies inside the access, whose bytes nobody else touches; it is in whole words.
            unsafe { device.cmd_update_buffer(commands, target.buffer, offset, &pixels) };
        } else {
            let word = pixel(frame, x, y + row as i32) as u32;
            // SAFETY: as above.
            unsafe { device.cmd_fill_buffer(commands, target.buffer, offset, 4, word) };
        }
    }
}

/// Where the engine draws.
struct Target<'a> {
    buffer: vk::Buffer,
    binding: &'a Binding<Memory>,
}

fn pixel(frame: i32, x: i32, y: i32) -> i32 {
    1000 * frame + 50 * y + x
}

/// Hands an access's bytes to the engine, and the access back with the value of the engine's submission.
fn engine_draws(
    own: &mut Own,
    gpu: &Vulkan,
    lane: hedgerow_vulkan::Lane,
    frame: i32,
    access: DeviceAccess<'_, Vulkan>,
) -> Result<u64, Failure> {
    let binding = access.binding().ok_or("an empty crop")?;
    let (buffer, _) = gpu.buffer(binding.memory).ok_or("no such memory")?;
    let waits = access.after().iter().map(|ticket| gpu.semaphore_wait(*ticket));
    let waits: Vec<_> = waits.collect::<Result<_, _>>()?;
    let target = Target { buffer, binding };
    let value = own.submit(&waits, |device, commands| draw(device, commands, frame, &target))?;
    access.end_with(gpu.ticket(lane, value)?);
    Ok(value)
}

fn frames(own: &mut Own) -> Result<(), Failure> {
    // SAFETY: `main` closes the engine after this returns, when all handles are gone. The device was created
    // as `raw` says, and every use of its queue is under this lock.
    let gpu = unsafe { Vulkan::from_raw(own.raw(), own.lock.clone()) }?;
    // SAFETY: the engine signals it by `vkQueueSubmit` after its work, in order, and destroys it when it
    // closes; tickets are made of submitted values.
    let lane = unsafe { gpu.import_timeline(own.timeline) }?;

    let text = [layout::WGSL, DOUBLE].concat();
    // SAFETY: it returns outside the extents, touches its one view where `view_byte` says, and ends.
    let code = unsafe { DeviceCode::new(text.as_str(), "main") };
    let forms = [Form::Wgsl(code)];
    let workgroup = [8, 8, 1];
    let double =
        gpu.load(&KernelSource { name: "double", views: 1, workgroup, granule: 4, forms: &forms })?;

    let mut pixels = vec![7; (WIDTH * HEIGHT) as usize];
    let mut model = pixels.clone();
    let tree = Tree::over(&mut pixels, Shape::packed([WIDTH as u32, HEIGHT as u32]), gpu.clone())?;
    let root = tree.root();
    for frame in 0..FRAMES {
        let drawn = root.crop([4 + frame..28 + frame, 6..30])?;
        let mode = if frame % 2 == 0 { Mode::Overwrite } else { Mode::Update };
        let access = drawn.on_device(0, mode)?;
        let value = engine_draws(own, &gpu, lane, frame, access)?;
        double.launch((root.crop([16..48, 10 + frame..40])?.as_update(),), frame)?;

        for y in 6..30 {
            let end = if frame % 2 == 0 { 28 } else { 5 };
            for x in 4 + frame..end + frame {
                model[(y * WIDTH + x) as usize] = pixel(frame, x, y);
            }
        }
        for y in 10 + frame..40 {
            for x in 16..48 {
                let at = &mut model[(y * WIDTH + x) as usize];
                *at = (*at & 0xffff) * 2 + frame;
            }
        }
        let before = tree.counters().bytes_down;
        let seen = root.crop([0..40, 8..24])?.read()?;
        for y in 8..24 {
            for x in 0..40 {
                let (seen, expected) = (seen.get([x, y]), &model[(y * WIDTH + x) as usize]);
                assert_eq!(seen, Some(expected), "frame {frame}, pixel {x}, {y}");
            }
        }
        let brought = tree.counters().bytes_down - before;
        println!("frame {frame}: drew by submission {value}, read back {brought} bytes");
    }
    drop(root);
    tree.close().map_err(|error| error.to_string())?;
    assert_eq!(pixels, model);

    // Not needed before closing; it is when the timeline goes first.
    gpu.remove_timeline(lane, Duration::from_secs(10))?;
    println!("hedgerow submitted {} times", own.lock.passed());
    Ok(())
}

/// Whether all went well, without a word of the validation layer.
pub(crate) fn run(validation: bool) -> Result<bool, Failure> {
    let own = Own::new(validation)?;
    let mut own = own.ok_or("no Vulkan 1.2 device, or no validation layer")?;
    println!("{}, validation {}", own.name, if own.validated() { "on" } else { "off" });
    frames(&mut own)?;
    Ok(own.close()? == 0)
}

fn main() -> ExitCode {
    let validation = std::env::var("HEDGEROW_VALIDATION").is_ok_and(|on| on == "1");
    match run(validation) {
        Ok(true) => println!("ok"),
        Ok(false) => {
            eprintln!("the validation layer complained");
            return ExitCode::FAILURE;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
