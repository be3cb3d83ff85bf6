//! A tree in a `static`, made once and used by threads: each works on its own rows, on the host and on the device.
//!
//! ```text
//! cargo run -p hedgerow-tests --example static_tree
//! ```
//!
//! A `static` is never dropped: what only the device holds is brought home by `sync`, and its memory given back by
//! `release`. The exit status is 0 only if all was right.

use std::process::ExitCode;
use std::sync::OnceLock;
use std::thread;

use hedgerow::driver::{ComputeDriver, Form, HostCall, Kernel, KernelError, KernelSource};
use hedgerow::{Builder, Error, OwnedTree, Shape};
use hedgerow_host::{Host, HostError};

type Failure = Error<HostError>;

const WIDTH: i32 = 256;
const ROWS: i32 = 8;
const THREADS: i32 = 4;
const PASSES: u32 = 50;

/// The device and its kernel, for the whole program.
struct Device {
    gpu: Host<'static>,
    add: Kernel<Host<'static>>,
}

static DEVICE: OnceLock<Device> = OnceLock::new();

/// The tree, with the vector that it is over.
static IMAGE: OnceLock<OwnedTree<Vec<u32>, &'static Host<'static>>> = OnceLock::new();

/// `io[x, y] += p`.
fn add(call: &HostCall<'_>) -> Result<(), KernelError> {
    let io = call.view::<u32>(0)?;
    let p: u32 = call.params()?;
    io.for_each(|at: [i32; 2]| io.set(at, io.get(at).unwrap_or_default().wrapping_add(p)));
    Ok(())
}

fn device() -> &'static Device {
    DEVICE.get_or_init(|| {
        let gpu = Host::new();
        let forms = [Form::Host(add)];
        let source =
            KernelSource { name: "add", views: 1, workgroup: [1; 3], granule: 1, forms: &forms };
        let add = gpu.load(&source).expect("the host runs host functions");
        Device { gpu, add }
    })
}

fn image() -> &'static OwnedTree<Vec<u32>, &'static Host<'static>> {
    IMAGE.get_or_init(|| {
        let shape = Shape::packed([WIDTH as u32, (ROWS * THREADS) as u32]);
        let storage = vec![1u32; (WIDTH * ROWS * THREADS) as usize];
        Builder::new(&device().gpu).over_owned(storage, shape).expect("the vector fits the shape")
    })
}

/// What each thread does with its rows: the host and the device in turn.
fn work(thread: i32) -> Result<(), Failure> {
    let rows = image().root().crop([0..WIDTH, thread * ROWS..(thread + 1) * ROWS])?;
    for pass in 0..PASSES {
        if (pass + thread as u32).is_multiple_of(2) {
            device().add.launch((rows.as_update(),), 1)?;
        } else {
            for row in rows.update()?.rows_mut().expect("rows") {
                row.iter_mut().for_each(|value| *value += 1);
            }
        }
    }
    Ok(())
}

fn run() -> Result<bool, Failure> {
    let threads: Vec<_> = (0..THREADS).map(|i| thread::spawn(move || work(i))).collect();
    for thread in threads {
        match thread.join() {
            Ok(result) => result?,
            Err(_) => return Ok(false),
        }
    }
    let tree = image();
    println!("  after {THREADS} threads: {}", tree.counters());
    // Threads whose last pass was on the device: their rows are newest there.
    let before = tree.counters();
    tree.sync()?;
    let home = tree.counters().since(&before).bytes_down;
    println!("  brought home at the end: {home} bytes");
    tree.release()?;
    println!("  device memory still in use: {} bytes", device().gpu.used_bytes());

    let all = tree.root().read()?;
    let wrong = all.rows().expect("rows").flatten().filter(|value| **value != 1 + PASSES).count();
    println!("  {wrong} of {} elements are wrong", WIDTH * ROWS * THREADS);
    let half = (WIDTH * ROWS * THREADS) as u64 / 2 * 4;
    Ok(wrong == 0 && home == half && device().gpu.used_bytes() == 0)
}

fn main() -> ExitCode {
    match run() {
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
