//! Threads that all do everything to one tree: guards, polled guards, launches, transfers, evictions, on boxes of
//! their own and on boxes that overlap everybody's.
//!
//! What each element must hold is kept beside it, in relaxed atomics that order nothing: they are written by
//! whoever holds the element (a guard, or a kernel while it runs), and so are right only if the tree lets
//! nobody else in, and orders one holder after the other. A thread sanitizer sees the same of the elements
//! themselves.
//!
//! Not libtest's: the sanitizer takes uninstrumented threads for races, so `main` is our own.
//! `HEDGEROW_STRESS_SECONDS` says how long (3). `HEDGEROW_PLANTED=race|overflow|leak` makes one mistake
//! instead, on purpose: what runs this under a sanitizer sees so that it is not blind.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::{Duration, Instant};

use hedgerow::driver::{
    ComputeDriver, Contents, CopyBox, DeviceDriver, Form, HostCall, HostKernel, Kernel,
    KernelError, KernelSource,
};
use hedgerow::{Builder, Error, Locked, Locking, ReadGuard, Shape, Tree, View, WriteGuard};
use hedgerow_host::Host;

hedgerow::capacity! {
    struct Roomy { words: 128, cuts: 40, nodes: 64, guards: 32, devices: 2, list: 4 }
}
hedgerow::capacity! {
    /// Nearly every write widens, and slots run out.
    struct Tight { words: 2, cuts: 4, nodes: 20, guards: 12, devices: 2, list: 1 }
}

const THREADS: usize = 8;
const WIDE: i32 = 20;
const HIGH: i32 = 16;

/// A thread that stands still for so long hangs.
const STUCK: Duration = Duration::from_secs(20);

type Root<C> = Tree<'static, u32, &'static Host<'static>, C, Yielding>;
type Part<'t> = View<'t, u32, Host<'static>>;

/// What the elements must hold.
static WANTED: [AtomicU32; (WIDE * HIGH) as usize] = [const { AtomicU32::new(0) }; _];

fn wanted(at: [i32; 2]) -> &'static AtomicU32 {
    &WANTED[(at[1] * WIDE + at[0]) as usize]
}

/// A lock for threads that are more than the cores: who waits lets others go on.
struct Yielding;

impl Locking for Yielding {
    type Cell<S: Send> = spin::Mutex<S>;

    fn new<S: Send>(value: S) -> Self::Cell<S> {
        spin::Mutex::new(value)
    }

    fn with<S: Send, R>(cell: &Self::Cell<S>, f: impl FnOnce(&mut S) -> R) -> Result<R, Locked> {
        loop {
            if let Some(mut value) = cell.try_lock() {
                return Ok(f(&mut value));
            }
            std::thread::yield_now();
        }
    }

    fn try_with<S: Send, R>(
        cell: &Self::Cell<S>,
        f: impl FnOnce(&mut S) -> R,
    ) -> Result<R, Locked> {
        cell.try_lock().map(|mut value| f(&mut value)).ok_or(Locked)
    }

    fn relax() {
        std::thread::yield_now();
    }
}

/// `out = stamp`, everywhere.
fn stamp(call: &HostCall<'_>) -> Result<(), KernelError> {
    let (out, stamp) = (call.view::<u32>(0)?, call.params::<u32>()?);
    out.for_each(|at| {
        out.set(at, stamp);
        wanted(at).store(stamp, Relaxed);
    });
    Ok(())
}

/// `io += 1`, everywhere.
fn count(call: &HostCall<'_>) -> Result<(), KernelError> {
    let io = call.view::<u32>(0)?;
    io.for_each(|at| {
        let value = io.get(at).expect("inside");
        assert_eq!(value, wanted(at).load(Relaxed), "in a kernel, at {at:?}");
        io.set(at, value.wrapping_add(1));
        wanted(at).store(value.wrapping_add(1), Relaxed);
    });
    Ok(())
}

/// Compares, everywhere.
fn look(call: &HostCall<'_>) -> Result<(), KernelError> {
    let view = call.view::<u32>(0)?;
    view.for_each(|at| {
        let value = view.get(at).expect("inside");
        assert_eq!(value, wanted(at).load(Relaxed), "in a kernel, at {at:?}");
    });
    Ok(())
}

fn load(gpu: &'static Host<'static>, kernel: HostKernel) -> Kernel<Host<'static>> {
    let forms = [Form::Host(kernel)];
    let source =
        KernelSource { name: "stress", views: 1, workgroup: [1; 3], granule: 1, forms: &forms };
    gpu.load(&source).expect("a host form")
}

fn each(guard_region: hedgerow::Region, mut f: impl FnMut([i32; 2])) {
    for y in guard_region.range(1) {
        for x in guard_region.range(0) {
            f([x, y]);
        }
    }
}

fn write_all(guard: &mut WriteGuard<'_, u32>, stamp: u32) {
    each(guard.region(), |at| {
        guard[at] = stamp;
        wanted(at).store(stamp, Relaxed);
    });
}

fn count_all(guard: &mut WriteGuard<'_, u32>) {
    each(guard.region(), |at| {
        assert_eq!(guard[at], wanted(at).load(Relaxed), "under a write guard, at {at:?}");
        guard[at] = guard[at].wrapping_add(1);
        wanted(at).store(guard[at], Relaxed);
    });
}

fn look_at_all(guard: &ReadGuard<'_, u32>) {
    each(guard.region(), |at| {
        assert_eq!(guard[at], wanted(at).load(Relaxed), "under a read guard, at {at:?}");
    });
}

/// Whether a call went through; `false` for what may be refused at any time here.
fn went<R>(result: Result<R, Error<hedgerow_host::HostError>>) -> Option<R> {
    match result {
        Ok(value) => Some(value),
        Err(Error::Busy(_) | Error::Full { .. }) => None,
        Err(error) => panic!("{error:?}"),
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: i32) -> i32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 33) % n as u64) as i32
    }

    /// A range of `0..n` that is not empty.
    fn range(&mut self, n: i32) -> core::ops::Range<i32> {
        let from = self.below(n);
        from..from + 1 + self.below(n - from)
    }
}

const OPS: usize = 12;

/// How often each kind of step went through.
type Done = [AtomicU64; OPS];

/// One step of one thread; `stamp` is nobody else's.
fn step<C: hedgerow::capacity::Capacity>(
    tree: &Root<C>,
    view: &Part<'_>,
    random: &mut Random,
    stamp: u32,
    kernels: &[[Kernel<Host<'static>>; 3]],
) -> (usize, bool) {
    let op = random.below(OPS as i32) as usize;
    let device = random.below(kernels.len() as i32) as usize;
    let [stamping, counting, looking] = &kernels[device];
    let done = match op {
        0 => went(view.read()).map(|guard| look_at_all(&guard)),
        1 => went(view.update()).map(|mut guard| count_all(&mut guard)),
        2 => went(view.overwrite()).map(|mut guard| write_all(&mut guard, stamp)),
        3 => went(stamping.launch(view.as_overwrite(), stamp)).map(drop_ticket),
        4 => went(counting.launch(view.as_update(), ())).map(drop_ticket),
        5 => went(looking.launch(view.as_read(), ())).map(drop_ticket),
        6 => went(counting.try_launch(view.as_update(), ())).map(drop_ticket),
        7 => went(view.try_update()).map(|mut guard| count_all(&mut guard)),
        8 => went(view.begin_update()).map(|mut pending| {
            loop {
                match pending.poll() {
                    Ok(Poll::Ready(mut guard)) => break count_all(&mut guard),
                    Ok(Poll::Pending) => std::thread::yield_now(),
                    Err(error) => panic!("{error:?}"),
                }
            }
        }),
        9 => went(view.prefetch(device)).map(drop_ticket),
        10 => went(tree.evict(device)).map(|_| ()),
        _ => went(tree.sync()),
    };
    (op, done.is_some())
}

fn drop_ticket(_: hedgerow::driver::Ticket) {}

fn hammer<C: hedgerow::capacity::Capacity>(
    tree: &Root<C>,
    gpus: &[&'static Host<'static>],
    time: Duration,
    done: &Done,
) {
    let stop = AtomicBool::new(false);
    let stamps = AtomicU32::new(1);
    let steps: [AtomicU64; THREADS] = [const { AtomicU64::new(0) }; THREADS];
    let kernels: Vec<_> =
        gpus.iter().map(|gpu| [stamp, count, look].map(|kernel| load(gpu, kernel))).collect();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (thread, own) in steps.iter().enumerate() {
            let (stop, stamps, kernels) = (&stop, &stamps, &kernels);
            threads.push(scope.spawn(move || {
                let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (thread as u64 + 1));
                let rows = HIGH / THREADS as i32;
                while !stop.load(Relaxed) {
                    // Half of the time in rows of its own, which only large boxes of others overlap.
                    let y = if random.below(2) == 0 {
                        let first = thread as i32 * rows;
                        first..first + 1 + random.below(rows)
                    } else {
                        random.range(HIGH)
                    };
                    let x = random.range(WIDE);
                    let Some(view) = went(tree.root().crop([x, y])) else { continue };
                    let stamp = stamps.fetch_add(1, Relaxed) << 8;
                    let (op, went) = step(tree, &view, &mut random, stamp, kernels);
                    done[op].fetch_add(u64::from(went), Relaxed);
                    own.fetch_add(1, Relaxed);
                }
            }));
        }
        let end = Instant::now() + time;
        let mut seen = [(0, Instant::now()); THREADS];
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
            for (thread, (steps, (before, since))) in steps.iter().zip(&mut seen).enumerate() {
                let now = steps.load(Relaxed);
                if now != *before {
                    (*before, *since) = (now, Instant::now());
                }
                if since.elapsed() > STUCK {
                    eprintln!("thread {thread} stands still after {now} steps\n{tree}");
                    std::process::abort();
                }
            }
        }
        stop.store(true, Relaxed);
        // A sanitizer knows of joins, and nothing of how a scope ends.
        for thread in threads {
            thread.join().expect("no thread failed");
        }
    });
    tree.check().expect("in order");
    assert_eq!((tree.live_accesses(), tree.live_views()), (0, 0));
    look_at_all(&tree.root().read().expect("nobody else is there"));
}

/// One setting: how many devices, and what they can do.
fn setting<C: hedgerow::capacity::Capacity>(
    [devices, peers, unified, poison]: [u8; 4],
    time: Duration,
    done: &Done,
) {
    let host = || Host::new().peer_copies(peers == 1).unified(unified == 1);
    // Leaked for as long as the threads need them; taken back below.
    let gpus: Vec<&'static Host<'static>> =
        (0..devices).map(|_| &*Box::leak(Box::new(host()))).collect();
    let builder = Builder::new(gpus[0]).capacity::<C>().lock::<Yielding>().poison(poison == 1);
    let builder = gpus[1..].iter().fold(builder, |builder, gpu| builder.device(*gpu));
    let tree = builder.owned::<u32>(Shape::packed([WIDE as u32, HIGH as u32])).expect("a tree");
    write_all(&mut tree.root().overwrite().expect("nobody else is there"), 0);
    hammer(&tree, &gpus, time, done);
    drop(tree);
    for gpu in gpus {
        assert_eq!(gpu.live_allocations(), 0);
        // SAFETY: leaked above, and no longer used: tree, kernels and threads are gone.
        drop(unsafe { Box::from_raw(core::ptr::from_ref(gpu).cast_mut()) });
    }
}

fn main() -> ExitCode {
    if let Ok(mistake) = std::env::var("HEDGEROW_PLANTED") {
        return planted::make(&mistake);
    }
    let seconds = std::env::var("HEDGEROW_STRESS_SECONDS").ok().and_then(|s| s.parse().ok());
    let settings: [[u8; 4]; 4] = [[1, 0, 0, 0], [2, 0, 0, 1], [2, 1, 0, 0], [2, 0, 1, 0]];
    let time = Duration::from_secs(seconds.unwrap_or(3)) / (2 * settings.len() as u32);
    let done: Done = [const { AtomicU64::new(0) }; OPS];
    for which in settings {
        setting::<Roomy>(which, time, &done);
        setting::<Tight>(which, time, &done);
    }
    // That everything was refused all the time would prove nothing.
    println!("steps that went through, by kind: {done:?}");
    assert!(done.iter().all(|done| done.load(Relaxed) > 0), "some never went through");
    println!("test result: ok. {} passed; 0 failed; 0 ignored", 2 * settings.len());
    ExitCode::SUCCESS
}

/// Mistakes on purpose, each through the tree or the driver: whoever does not see these sees nothing. Not inlined,
/// so that reports have their names.
mod planted {
    use super::*;

    pub(super) fn make(mistake: &str) -> ExitCode {
        match mistake {
            "race" => race(),
            "overflow" => overflow(),
            "leak" => leak(),
            _ => return ExitCode::from(2),
        }
        println!("nothing was seen of: {mistake}");
        ExitCode::SUCCESS
    }

    /// Writes elements behind the back of whoever holds their guard.
    #[inline(never)]
    fn race() {
        let gpu = Host::new();
        let mut storage = vec![0u32; 64];
        let base = storage.as_mut_ptr().expose_provenance();
        let tree = Tree::over(&mut storage, Shape::packed([64]), &gpu).expect("a tree");
        std::thread::scope(|scope| {
            let holder = scope.spawn(|| tree.root().update().expect("alone").fill(1));
            let other = scope.spawn(move || {
                let element = core::ptr::with_exposed_provenance_mut::<u32>(base);
                // SAFETY: none, on purpose: another thread writes there. The memory outlives the scope.
                unsafe { element.write_volatile(2) }
            });
            holder.join().expect("joined");
            other.join().expect("joined");
        });
    }

    /// Uploads a byte more than there are.
    #[inline(never)]
    fn overflow() {
        let gpu = Host::new();
        let memory = gpu.allocate(64, Contents::Zeroed).expect("memory").memory;
        let bytes: Box<[u8]> = Box::new([1; 32]);
        // SAFETY: none, on purpose: the source ends a byte before the box does.
        let uploaded =
            unsafe { gpu.upload(bytes.as_ptr(), memory, &[CopyBox::flat(0, 0, 33)], &[]) };
        assert!(uploaded.is_ok());
    }

    /// Forgets a device with memory allocated.
    fn leak() {
        // On a stack of its own, on which no pointer is left.
        std::thread::spawn(forget).join().expect("joined");
    }

    fn forget() {
        let gpu = Host::new();
        gpu.allocate(64, Contents::Zeroed).expect("memory");
        std::mem::forget(gpu);
    }
}
