//! Asynchronous use without a runtime: a hand-written executor, futures over pending accesses and tickets, two
//! tasks on disjoint crops of one tree.
//!
//! ```text
//! cargo run -p hedgerow-tests --example executor
//! ```
//!
//! Drivers do not wake tasks, so a future that is not ready asks to be polled again, and the executor goes round.
//! A program with a frame loop or an interrupt would poll from there. The exit status is 0 only if all was
//! right.

use core::cell::{Cell, RefCell};
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};
use std::process::ExitCode;

use hedgerow::driver::{
    ComputeDriver, DeviceDriver, Form, HostCall, Kernel, KernelError, KernelSource, Ticket,
};
use hedgerow::{Error, ReadGuard, Shape, Tree, View, WriteGuard};
use hedgerow_host::Host;

/// A read as a future: it holds its bytes until it is done or dropped.
async fn read<'t, D: DeviceDriver>(
    view: &View<'t, u32, D>,
) -> Result<ReadGuard<'t, u32>, Error<D::Error>> {
    let mut pending = view.begin_read()?;
    poll_fn(|_| flat(pending.poll())).await
}

/// An overwrite as a future.
async fn overwrite<'t, D: DeviceDriver>(
    view: &View<'t, u32, D>,
) -> Result<WriteGuard<'t, u32>, Error<D::Error>> {
    let mut pending = view.begin_overwrite()?;
    poll_fn(|_| flat(pending.poll())).await
}

/// Device work as a future. Polling does not submit, so this does first.
async fn done<D: DeviceDriver>(
    tree: &Tree<'_, u32, &D>,
    ticket: Ticket,
) -> Result<(), Error<D::Error>> {
    tree.flush(0)?;
    poll_fn(|_| match tree.poll(0, ticket) {
        Ok(true) => Poll::Ready(Ok(())),
        Ok(false) => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
    })
    .await
}

fn flat<T, E>(answer: Result<Poll<T>, E>) -> Poll<Result<T, E>> {
    match answer {
        Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
    }
}

/// Gives the others a turn.
async fn turn() {
    let mut waited = false;
    poll_fn(|_| match core::mem::replace(&mut waited, true) {
        false => Poll::Pending,
        true => Poll::Ready(()),
    })
    .await;
}

/// The executor: polls every task in turn until all are done, and returns how many rounds it took.
fn run_all(tasks: &mut [Pin<&mut dyn Future<Output = ()>>]) -> usize {
    let mut context = Context::from_waker(Waker::noop());
    let mut left = vec![true; tasks.len()];
    let mut rounds = 0;
    while left.contains(&true) {
        rounds += 1;
        for (task, left) in tasks.iter_mut().zip(&mut left) {
            *left = *left && task.as_mut().poll(&mut context).is_pending();
        }
        core::hint::spin_loop();
    }
    rounds
}

/// `io[x, y] = io[x, y] * p + x`.
fn step(call: &HostCall<'_>) -> Result<(), KernelError> {
    let io = call.view::<u32>(0)?;
    let p: u32 = call.params()?;
    io.for_each(|at: [i32; 2]| {
        let value = io.get(at).unwrap_or_default();
        io.set(at, value.wrapping_mul(p).wrapping_add(at[0].unsigned_abs()));
    });
    Ok(())
}

const STEP: KernelSource<'static> = KernelSource {
    name: "step",
    views: 1,
    workgroup: [1; 3],
    granule: 1,
    forms: &[Form::Host(step)],
};

/// What one task does: writes its crop, has the device work on it, and reads what came of it, four times.
async fn work<D: ComputeDriver>(
    name: &str,
    tree: &Tree<'_, u32, &D>,
    view: &View<'_, u32, D>,
    kernel: &Kernel<D>,
    say: &dyn Fn(&str, &str),
) -> Result<bool, Error<D::Error>> {
    let mut right = true;
    for p in 1..=4 {
        let mut guard = overwrite(view).await?;
        guard.fill(p);
        say(name, "has written");
        // Held across a turn of the others: their crop is not this one.
        turn().await;
        drop(guard);
        let ticket = kernel.launch((view.as_update(),), 10)?;
        say(name, "has launched");
        done(tree, ticket).await?;
        let guard = read(view).await?;
        turn().await;
        let x = view.min(0);
        right &= guard.get([x, 0]) == Some(&(p * 10 + x.unsigned_abs()));
        say(name, "has read");
    }
    Ok(right)
}

fn main() -> ExitCode {
    let gpu = Host::new();
    let mut pixels = vec![0u32; 64 * 16];
    match run(&gpu, &mut pixels) {
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

fn run<D: ComputeDriver>(gpu: &D, pixels: &mut [u32]) -> Result<bool, Error<D::Error>> {
    let kernel = gpu.load(&STEP)?;
    let tree = Tree::over(pixels, Shape::packed([64, 16]), gpu)?;
    let (left, right) = (tree.root().crop([0..32, 0..16])?, tree.root().crop([32..64, 0..16])?);
    let order = RefCell::new(Vec::new());
    let say = |name: &str, what: &str| {
        println!("  {name} {what}");
        order.borrow_mut().push(name.to_owned());
    };
    let results = Cell::new([None, None]);
    let keep = |i: usize, result| {
        let mut all = results.take();
        all[i] = Some(result);
        results.set(all);
    };
    let mut one = pin!(async { keep(0, work("left", &tree, &left, &kernel, &say).await) });
    let mut two = pin!(async { keep(1, work("right", &tree, &right, &kernel, &say).await) });
    let rounds = run_all(&mut [one.as_mut(), two.as_mut()]);

    // They took turns: neither was done before the other had begun.
    let order = order.take();
    let changes = order.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let counters = tree.counters();
    println!("  {rounds} rounds, {changes} changes of turn; {counters}");
    let [Some(first), Some(second)] = results.take() else { return Ok(false) };
    let half = 32 * 16 * 4;
    let exact = (counters.bytes_up, counters.bytes_down) == (8 * half, 8 * half);
    Ok(first? && second? && changes > 4 && exact)
}
