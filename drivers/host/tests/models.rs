//! Trees shared by threads, under a model checker: the lock, guards, reservations, tickets and drop flags, in
//! every interleaving with a bounded number of preemptions.
//!
//! Built with `--cfg hedgerow_loom` (`cargo xtask test --only models`); empty otherwise. The checker is loom and
//! not shuttle, since it enumerates instead of sampling, and since it knows what an ordering too weak lets
//! another thread see: the drop flags live by their orderings alone.
//!
//! What the checker sees: the tree's lock ([`Modelled`]), its drop flags (the core takes loom's atomic under
//! that cfg), every call of the driver ([`Later`]), and every use of host bytes, by guards and by transfers:
//! two uses of one byte, one of them a write, must be ordered by what the core itself does, or the model fails.
//! A wait that never ends shows as a model with too many branches.
//!
//! `LOOM_MAX_PREEMPTIONS` explores further than a test's own bound.
#![cfg(hedgerow_loom)]

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use hedgerow::capacity::Capacity;
use hedgerow::driver::{
    Allocation, Caps, Contents, CopyBox, Device, DeviceDriver, DriverError, DriverId, DropError,
    ErrorKind, MAX_LANES, Storage, Ticket,
};
use hedgerow::{
    Builder, Error, Location, Locked, Locking, OwnedTree, Region, Shape, View, WriteGuard,
};
use hedgerow_host::{Host, HostError, HostMemory};
use loom::cell::UnsafeCell;
use loom::thread::{self, JoinHandle};

hedgerow::capacity! {
    struct Few { words: 2, cuts: 6, nodes: 3, guards: 3, devices: 1, list: 2 }
}
hedgerow::capacity! {
    /// One guard at a time: a slot given back is the next one's.
    struct One { words: 2, cuts: 6, nodes: 2, guards: 1, devices: 1, list: 2 }
}

/// Words of a model thread's stack. A tree is built on one.
const STACK: usize = 0x8000;

/// The tree's lock, as the checker knows it.
struct Modelled;

impl Locking for Modelled {
    type Cell<S: Send> = loom::sync::Mutex<S>;

    fn new<S: Send>(value: S) -> Self::Cell<S> {
        loom::sync::Mutex::new(value)
    }

    fn with<S: Send, R>(cell: &Self::Cell<S>, f: impl FnOnce(&mut S) -> R) -> Result<R, Locked> {
        Ok(f(&mut cell.lock().unwrap()))
    }

    fn try_with<S: Send, R>(
        cell: &Self::Cell<S>,
        f: impl FnOnce(&mut S) -> R,
    ) -> Result<R, Locked> {
        cell.try_lock().map(|mut value| f(&mut value)).map_err(|_| Locked)
    }

    fn relax() {
        thread::yield_now();
    }
}

/// The checker's account of host bytes: who used which, and in what order that was.
struct Home {
    base: usize,
    bytes: Vec<UnsafeCell<()>>,
}

// SAFETY: there is nothing in the cells; that their uses are ordered is what the checker checks.
unsafe impl Sync for Home {}

impl Home {
    fn touch(&self, bytes: core::ops::Range<usize>, write: bool) {
        for byte in &self.bytes[bytes] {
            if write { byte.with_mut(|_| ()) } else { byte.with(|_| ()) }
        }
    }
}

/// Work that was accepted and has not run.
struct Op {
    ticket: Ticket,
    after: Vec<Ticket>,
    memory: [HostMemory; 2],
    run: Box<dyn FnOnce(&Host<'static>) + Send>,
}

#[derive(Default)]
struct Queue {
    count: u64,
    waiting: VecDeque<Op>,
    /// How many of the next pieces of work are refused.
    refuse: u32,
}

/// The host driver, whose fills and copies run no sooner than somebody must wait for them, each in the next
/// lane: so what is not waited for, or not named in `after`, is not there.
struct Later {
    inner: Host<'static>,
    queue: Mutex<Queue>,
    homes: Vec<Home>,
    /// Makes each call visible to the checker. Relaxed, so that it orders nothing between threads.
    calls: loom::sync::atomic::AtomicUsize,
}

impl Later {
    fn called(&self) {
        self.calls.fetch_add(1, Relaxed);
    }

    /// Bytes of the host at an address are used.
    fn touch(&self, address: usize, bytes: usize, write: bool) {
        let is_it = |home: &&Home| (home.base..home.base + home.bytes.len()).contains(&address);
        let home = self.homes.iter().find(is_it).unwrap();
        let at = address - home.base;
        home.touch(at..at + bytes, write);
    }

    fn touch_boxes(&self, base: usize, boxes: &[CopyBox], write: bool) {
        for copy in boxes {
            copy.for_each_run(|src, dst| {
                let at = if write { dst } else { src } as usize;
                self.touch(base + at, copy.run as usize, write);
            });
        }
    }

    fn name(queue: &mut Queue) -> Ticket {
        let n = queue.count;
        queue.count += 1;
        Ticket { lane: (n % MAX_LANES as u64) as u8, value: 1 + n / MAX_LANES as u64 }
    }

    fn accept(
        &self,
        after: &[Ticket],
        memory: [HostMemory; 2],
        run: impl FnOnce(&Host<'static>) + Send + 'static,
    ) -> Result<Ticket, HostError> {
        self.called();
        let mut queue = self.queue.lock().unwrap();
        // Whether the device is there.
        self.inner.flush()?;
        if queue.refuse > 0 {
            queue.refuse -= 1;
            return Err(HostError::OutOfMemory { bytes: 1, largest: 0 });
        }
        let ticket = Self::name(&mut queue);
        queue.waiting.push_back(Op { ticket, after: after.to_vec(), memory, run: Box::new(run) });
        Ok(ticket)
    }

    /// Runs what the tickets name, and what that follows.
    fn run_all(&self, queue: &mut Queue, tickets: &[Ticket]) {
        for ticket in tickets {
            let named = |op: &Op| op.ticket.lane == ticket.lane && op.ticket.value <= ticket.value;
            while let Some(at) = queue.waiting.iter().position(named) {
                let op = queue.waiting.remove(at).unwrap();
                self.run_all(queue, &op.after);
                (op.run)(&self.inner);
            }
        }
    }

    fn run(&self, tickets: &[Ticket]) {
        self.called();
        self.run_all(&mut self.queue.lock().unwrap(), tickets);
    }

    /// Loses the device, with the work that has not run.
    fn lose(&self) {
        self.called();
        let mut queue = self.queue.lock().unwrap();
        self.inner.simulate_loss();
        queue.waiting.clear();
    }

    fn unfinished(&self) -> usize {
        self.queue.lock().unwrap().waiting.len()
    }
}

// SAFETY: every call is handed on to a driver that keeps the promises, at once or when its ticket is waited
// for; what is still to run when memory is released would fail the model.
unsafe impl DeviceDriver for Later {
    type Error = HostError;
    type Memory = HostMemory;

    fn id(&self) -> DriverId {
        self.inner.id()
    }

    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn allocate(
        &self,
        bytes: u64,
        contents: Contents,
    ) -> Result<Allocation<HostMemory>, HostError> {
        self.called();
        let Allocation { memory, .. } = self.inner.allocate(bytes, contents)?;
        Ok(Allocation { memory, ready: Ticket::DONE })
    }

    fn storage(&self, bytes: u64) -> Result<Storage<HostMemory>, HostError> {
        self.called();
        self.inner.storage(bytes)
    }

    unsafe fn release(&self, memory: HostMemory, after: &[Ticket]) {
        self.run(after);
        let used = self.queue.lock().unwrap().waiting.iter().any(|op| op.memory.contains(&memory));
        assert!(!used, "memory is released before work on it");
        // SAFETY: handed on.
        unsafe { self.inner.release(memory, &[]) }
    }

    unsafe fn upload(
        &self,
        src: *const u8,
        dst: HostMemory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Result<Ticket, HostError> {
        self.run(after);
        self.touch_boxes(src.addr(), boxes, false);
        // SAFETY: handed on.
        unsafe { self.inner.upload(src, dst, boxes, &[]) }?;
        Ok(Self::name(&mut self.queue.lock().unwrap()))
    }

    unsafe fn download(
        &self,
        src: HostMemory,
        dst: *mut u8,
        boxes: &[CopyBox],
        after: &[Ticket],
        timeout: Duration,
    ) -> Result<(), HostError> {
        self.run(after);
        self.touch_boxes(dst.addr(), boxes, true);
        // SAFETY: handed on.
        unsafe { self.inner.download(src, dst, boxes, &[], timeout) }
    }

    unsafe fn copy(
        &self,
        src: HostMemory,
        dst: HostMemory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Result<Ticket, HostError> {
        let boxes = boxes.to_vec();
        self.accept(after, [src, dst], move |inner| {
            // SAFETY: handed on; nothing conflicts until the ticket is done.
            let _ = unsafe { inner.copy(src, dst, &boxes, &[]) };
        })
    }

    unsafe fn fill(
        &self,
        dst: HostMemory,
        boxes: &[CopyBox],
        value: &[u8],
        after: &[Ticket],
    ) -> Result<Ticket, HostError> {
        let (boxes, value) = (boxes.to_vec(), value.to_vec());
        self.accept(after, [dst, dst], move |inner| {
            // SAFETY: as above.
            let _ = unsafe { inner.fill(dst, &boxes, &value, &[]) };
        })
    }

    /// What is submitted runs: all of it, now.
    fn flush(&self) -> Result<(), HostError> {
        self.called();
        self.inner.flush()?;
        let mut queue = self.queue.lock().unwrap();
        let all: Vec<_> = queue.waiting.iter().map(|op| op.ticket).collect();
        self.run_all(&mut queue, &all);
        Ok(())
    }

    fn poll(&self, ticket: Ticket) -> Result<bool, HostError> {
        self.called();
        self.inner.flush()?;
        let queue = self.queue.lock().unwrap();
        let is_it = |op: &Op| op.ticket.lane == ticket.lane && op.ticket.value <= ticket.value;
        Ok(!queue.waiting.iter().any(is_it))
    }

    fn wait(&self, ticket: Ticket, _: Duration) -> Result<(), HostError> {
        self.inner.flush()?;
        self.run(&[ticket]);
        Ok(())
    }

    fn report_drop(&self, error: DropError) {
        self.inner.report_drop(error);
    }
}

struct Gpu(Arc<Later>);

impl Device for Gpu {
    type Driver = Later;

    fn driver(&self) -> &Later {
        &self.0
    }
}

type Tree<C> = OwnedTree<Box<[u8]>, Gpu, C, Modelled>;
type Outcome = Result<(), Error<HostError>>;

/// Trees of one axis over `contents`, on one device. They lie in this order: what is ordered by address is so
/// in every run of a model.
fn trees<C: Capacity, const N: usize>(contents: [&[u8]; N]) -> (Arc<Later>, Arc<[Tree<C>; N]>) {
    let storage = contents.map(Box::<[u8]>::from);
    let home = |bytes: &[u8]| Home {
        base: bytes.as_ptr().addr(),
        bytes: bytes.iter().map(|_| UnsafeCell::new(())).collect(),
    };
    let gpu = Arc::new(Later {
        inner: Host::new(),
        queue: Mutex::default(),
        homes: storage.iter().map(|bytes| home(bytes)).collect(),
        calls: loom::sync::atomic::AtomicUsize::new(0),
    });
    let trees = storage.map(|storage| {
        let shape = Shape::packed([storage.len() as u32]);
        let builder = Builder::new(Gpu(gpu.clone())).capacity::<C>().lock::<Modelled>();
        builder.over_owned(storage, shape).unwrap()
    });
    (gpu, Arc::new(trees))
}

/// One of them.
fn tree<C: Capacity>(contents: &[u8]) -> (Arc<Later>, Arc<Tree<C>>) {
    let (gpu, trees) = trees([contents]);
    let [tree] = Arc::into_inner(trees).unwrap();
    (gpu, Arc::new(tree))
}

fn part<'t>(view: &View<'t, u8, Later>, range: core::ops::Range<i32>) -> View<'t, u8, Later> {
    view.crop_axis(0, range).unwrap()
}

fn span(region: Region) -> core::ops::Range<usize> {
    region.lo(0) as usize..region.hi(0) as usize
}

/// Adds one to every element under a guard.
fn increment(gpu: &Later, guard: &mut WriteGuard<'_, u8>) {
    let elements = guard.as_mut_slice().unwrap();
    gpu.touch(elements.as_ptr().addr(), elements.len(), true);
    elements.iter_mut().for_each(|element| *element += 1);
}

/// Reads all elements under a guard.
fn read(gpu: &Later, view: &View<'_, u8, Later>) -> Result<Vec<u8>, Error<HostError>> {
    let guard = view.read()?;
    let elements = guard.as_slice().unwrap();
    gpu.touch(elements.as_ptr().addr(), elements.len(), false);
    Ok(elements.to_vec())
}

/// Increments what a view holds, if nobody else has it.
fn try_to_increment(gpu: &Later, view: &View<'_, u8, Later>) -> bool {
    match view.update() {
        Ok(mut guard) => {
            increment(gpu, &mut guard);
            true
        }
        Err(Error::Busy(_) | Error::Full { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

fn is_busy(outcome: &Outcome) -> bool {
    match outcome {
        Ok(()) => false,
        Err(Error::Busy(_) | Error::Full { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

fn spawn<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
    thread::Builder::new().stack_size(STACK).spawn(f).unwrap()
}

/// Runs a model in every interleaving with up to `preemptions` switches that no thread asked for.
fn explore(name: &str, preemptions: usize, model: impl Fn() + Copy + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 20_000;
    let count = Arc::new(core::sync::atomic::AtomicUsize::new(0));
    let (counted, start) = (count.clone(), std::time::Instant::now());
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        // The model's own stack, which loom makes, is a small one.
        spawn(model).join().unwrap();
    });
    let count = count.load(Relaxed);
    println!("{name}: {count} interleavings in {:.1} s", start.elapsed().as_secs_f64());
    assert!(count > 20, "the checker is blind: it saw {count} interleavings");
}

/// Nothing is held any more, and everything can be.
fn assert_all_free<C: Capacity>(tree: &Tree<C>) {
    assert_eq!((tree.live_accesses(), tree.live_views()), (0, 0));
    tree.check().unwrap();
    drop(tree.root().update().unwrap());
}

/// I9: two writers of one byte are never at it at once; who comes second hears so, and who comes alone gets in.
#[test]
fn two_writers() {
    explore("two writers", 3, || {
        let (gpu, tree) = tree::<Few>(&[0; 3]);
        let writers = [0..2, 1..3].map(|range| {
            let (gpu, tree) = (gpu.clone(), tree.clone());
            spawn(move || {
                let view = part(&tree.root(), range);
                try_to_increment(&gpu, &view)
            })
        });
        let wrote = writers.map(|writer| writer.join().unwrap());
        assert!(wrote.contains(&true), "both were refused");
        assert_all_free(&tree);
        let [a, b] = wrote.map(u8::from);
        assert_eq!(read(&gpu, &tree.root()).unwrap(), [a, a + b, b]);
    });
}

/// I9: a reader sees all of a write or nothing of it, and two readers are never in each other's way.
#[test]
fn readers_and_a_writer() {
    explore("readers and a writer", 1, || {
        let (gpu, tree) = tree::<Few>(&[0; 2]);
        let readers = [(); 2].map(|()| {
            let (gpu, tree) = (gpu.clone(), tree.clone());
            spawn(move || {
                let seen = read(&gpu, &tree.root());
                if let Ok(seen) = &seen {
                    assert!(seen[..] == [0, 0] || seen[..] == [1, 1], "{seen:?}");
                }
                is_busy(&seen.map(drop))
            })
        });
        let wrote = try_to_increment(&gpu, &tree.root());
        let refused = readers.map(|reader| reader.join().unwrap());
        assert!(wrote || refused.contains(&false), "all were refused");
        assert_eq!(read(&gpu, &tree.root()).unwrap(), [u8::from(wrote); 2]);
    });
}

/// Rule 10: a dropped guard's slot comes free, and only once: freed again, it would be another's.
#[test]
fn a_slot_comes_free_once() {
    explore("a slot comes free once", 3, || {
        let (gpu, tree) = tree::<One>(&[0]);
        let other = {
            let (gpu, tree) = (gpu.clone(), tree.clone());
            spawn(move || u8::from(try_to_increment(&gpu, &tree.root())))
        };
        let mut wrote = 0;
        for _ in 0..2 {
            // A dropped view has the next call look at all flags.
            drop(tree.root().crop_axis(0, 0..1));
            wrote += u8::from(try_to_increment(&gpu, &tree.root()));
        }
        wrote += other.join().unwrap();
        assert!(wrote > 0);
        assert_all_free(&tree);
        assert_eq!(read(&gpu, &tree.root()).unwrap(), [wrote]);
    });
}

/// Rule 10: a guard that is dropped while a call reaps others is reaped by the next.
#[test]
fn drops_beside_a_reaping() {
    explore("drops beside a reaping", 4, || {
        let (gpu, tree) = tree::<Few>(&[0; 2]);
        let other = {
            let (gpu, tree) = (gpu.clone(), tree.clone());
            spawn(move || drop(read(&gpu, &tree.root()).unwrap()))
        };
        drop(read(&gpu, &tree.root()).unwrap());
        assert!(tree.live_accesses() <= 1);
        other.join().unwrap();
        assert_all_free(&tree);
    });
}

/// Rule 10, for views: the node of a dropped view comes free, and only once.
#[test]
fn a_node_comes_free_once() {
    explore("a node comes free once", 6, || {
        let (_, tree) = tree::<One>(&[0; 2]);
        let other = {
            let tree = tree.clone();
            spawn(move || {
                let made = tree.root().crop_axis(0, 0..1);
                // There is one node: while this view has it, nobody else gets it.
                let second = tree.root().crop_axis(0, 1..2);
                assert!(made.is_err() || second.is_err());
                made.is_ok()
            })
        };
        let mine = tree.root().crop_axis(0, 0..1).is_ok();
        let again = tree.root().crop_axis(0, 1..2).is_ok();
        let theirs = other.join().unwrap();
        assert!(mine || again || theirs);
        assert_all_free(&tree);
        drop(part(&tree.root(), 0..1));
    });
}

/// I9: a guard waits for the device work on its bytes, and for no other.
#[test]
fn a_guard_waits_for_its_own_bytes() {
    explore("a guard waits for its own bytes", 2, || {
        let (gpu, tree) = tree::<Few>(&[0; 3]);
        part(&tree.root(), 0..1).fill_on(0, 7).unwrap();
        part(&tree.root(), 2..3).fill_on(0, 9).unwrap();
        let (gpu2, tree2) = (gpu.clone(), tree.clone());
        let other = spawn(move || {
            let view = part(&tree2.root(), 0..1);
            read(&gpu2, &view).unwrap()
        });
        assert_eq!(read(&gpu, &part(&tree.root(), 1..2)).unwrap(), [0]);
        assert_eq!(other.join().unwrap(), [7]);
        assert_eq!(gpu.unfinished(), 1, "the work on other bytes was waited for");
        assert_eq!(tree.counters().bytes_down, 1);
        assert_eq!(read(&gpu, &tree.root()).unwrap(), [7, 0, 9]);
    });
}

/// Rule 1: a launch and a guard on the same bytes: one after the other, whichever way round.
#[test]
fn a_launch_beside_a_guard() {
    explore("a launch beside a guard", 3, || {
        let (gpu, tree) = tree::<Few>(&[1; 2]);
        let launch = {
            let tree = tree.clone();
            spawn(move || is_busy(&tree.root().fill_on(0, 7).map(drop)))
        };
        let wrote = try_to_increment(&gpu, &part(&tree.root(), 1..2));
        let refused = launch.join().unwrap();
        assert!(wrote, "a launch that runs is no reason to refuse");
        let seen = read(&gpu, &tree.root()).unwrap();
        let expected: &[[u8; 2]] = if refused { &[[1, 2]] } else { &[[7, 8], [7, 7]] };
        assert!(expected.contains(&[seen[0], seen[1]]), "{seen:?}, refused: {refused}");
        assert_all_free(&tree);
    });
}

/// A guard that is opened by polling has its bytes from the start: others are refused, and do not wait for one who
/// polls when he likes.
#[test]
fn a_polled_guard_beside_a_writer() {
    explore("a polled guard beside a writer", 3, || {
        let (gpu, tree) = tree::<Few>(&[0; 2]);
        tree.root().fill_on(0, 7).unwrap();
        let other = {
            let (gpu, tree) = (gpu.clone(), tree.clone());
            spawn(move || try_to_increment(&gpu, &tree.root()))
        };
        let begun = tree.root().begin_update();
        let polled = u8::from(!is_busy(&begun.as_ref().map(drop).map_err(Clone::clone)));
        if let Ok(mut pending) = begun {
            loop {
                match pending.poll().unwrap() {
                    Poll::Ready(mut guard) => break increment(&gpu, &mut guard),
                    Poll::Pending => thread::yield_now(),
                }
            }
        }
        let wrote = u8::from(other.join().unwrap());
        assert!(polled + wrote > 0, "both were refused");
        assert_eq!(read(&gpu, &tree.root()).unwrap(), [7 + polled + wrote; 2]);
        assert_all_free(&tree);
    });
}

/// Rule 1: launches over the same two trees in opposite order neither lock each other out for ever, nor mix.
#[test]
fn launches_in_opposite_order() {
    explore("launches in opposite order", 5, || {
        let (gpu, pair) = trees::<Few, 2>([&[1], &[2]]);
        let other = {
            let pair = pair.clone();
            spawn(move || {
                let [a, b] = &*pair;
                b.root().copy_from(&a.root(), 0).unwrap()
            })
        };
        let [a, b] = &*pair;
        a.root().copy_from(&b.root(), 0).unwrap();
        other.join().unwrap();
        let (in_a, in_b) = (a.root().read().unwrap()[[0]], b.root().read().unwrap()[[0]]);
        assert!(in_a == in_b && (in_a == 1 || in_a == 2), "{in_a} and {in_b}");
        assert_eq!(gpu.unfinished(), 0);
        pair.iter().for_each(assert_all_free);
    });
}

/// Rule 1: a launch takes all of its trees or none, whatever comes and goes beside it.
#[test]
fn a_launch_takes_all_or_none() {
    explore("a launch takes all or none", 5, || {
        let (gpu, pair) = trees::<Few, 2>([&[1], &[2]]);
        let other = {
            let (gpu, pair) = (gpu.clone(), pair.clone());
            // On the tree that a launch takes last.
            spawn(move || try_to_increment(&gpu, &pair[1].root()))
        };
        let [a, b] = &*pair;
        let refused = is_busy(&a.root().copy_from(&b.root(), 0).map(drop));
        assert!(other.join().unwrap(), "a launch that runs is no reason to refuse");
        pair.iter().for_each(assert_all_free);
        let (in_a, in_b) = (a.root().read().unwrap()[[0]], b.root().read().unwrap()[[0]]);
        let expected: &[u8] = if refused { &[1] } else { &[2, 3] };
        assert!(expected.contains(&in_a) && in_b == 3, "{in_a} and {in_b}, refused: {refused}");
    });
}

/// I4: what two readers want at once is moved once, and is there for both.
#[test]
fn two_readers_of_what_is_stale() {
    explore("two readers of what is stale", 3, || {
        let (gpu, tree) = tree::<Few>(&[0; 2]);
        tree.root().fill_on(0, 7).unwrap();
        let other = {
            let (gpu, tree) = (gpu.clone(), tree.clone());
            spawn(move || read(&gpu, &part(&tree.root(), 0..1)).unwrap())
        };
        assert_eq!(read(&gpu, &tree.root()).unwrap(), [7; 2]);
        assert_eq!(other.join().unwrap(), [7]);
        assert_eq!(tree.counters().bytes_down, 2);
    });
}

/// I1: two launches that both find no device memory allocate it once.
#[test]
fn the_first_use_allocates_once() {
    explore("the first use allocates once", 3, || {
        let (gpu, tree) = tree::<Few>(&[0; 2]);
        let other = {
            let tree = tree.clone();
            spawn(move || part(&tree.root(), 0..1).fill_on(0, 7).unwrap())
        };
        part(&tree.root(), 1..2).fill_on(0, 9).unwrap();
        other.join().unwrap();
        assert_eq!((tree.counters().allocations, gpu.inner.live_allocations()), (1, 1));
        assert_eq!(read(&gpu, &tree.root()).unwrap(), [7, 9]);
        drop(tree);
        assert_eq!(gpu.inner.live_allocations(), 0);
    });
}

/// Memory is given back when nothing uses it, with what only it held brought home, and a launch beside that is
/// not lost.
#[test]
fn an_eviction_beside_a_launch() {
    explore("an eviction beside a launch", 3, || {
        let (gpu, tree) = tree::<Few>(&[1; 2]);
        part(&tree.root(), 1..2).fill_on(0, 5).unwrap();
        let launch = {
            let tree = tree.clone();
            spawn(move || is_busy(&part(&tree.root(), 0..1).fill_on(0, 7).map(drop)))
        };
        let refused = is_busy(&tree.evict(0).map(drop));
        assert!(!launch.join().unwrap(), "no guard is alive");
        let evictions = tree.counters().evictions;
        assert_eq!(evictions, u32::from(!refused));
        let allocated = tree.counters().allocations - evictions;
        assert_eq!(gpu.inner.live_allocations() as u32, allocated);
        assert_eq!(read(&gpu, &tree.root()).unwrap(), [7, 5]);
        drop(tree);
        assert_eq!((gpu.inner.live_allocations(), gpu.unfinished()), (0, 0));
    });
}

/// I6: work that a driver refuses leaves everything as it was, for those too who waited for it.
#[test]
fn refused_work_beside_a_guard() {
    explore("refused work beside a guard", 6, || {
        let (gpu, tree) = tree::<Few>(&[1; 2]);
        gpu.queue.lock().unwrap().refuse = 1;
        let launch = {
            let tree = tree.clone();
            spawn(move || match tree.root().fill_on(0, 7) {
                Err(Error::Driver(error)) if error.kind() == ErrorKind::OutOfMemory => {}
                Err(Error::Busy(_)) => {}
                other => panic!("{other:?}"),
            })
        };
        assert!(try_to_increment(&gpu, &tree.root()), "waited for, and then not had");
        launch.join().unwrap();
        assert_eq!(read(&gpu, &tree.root()).unwrap(), [2; 2]);
        assert_all_free(&tree);
    });
}

/// I6: a device that is lost while a launch is under way takes the launch along, or finds it refused: never
/// neither. What else only it held is told of once; the host's is left.
#[test]
fn a_loss_beside_a_launch() {
    explore("a loss beside a launch", 6, || {
        let (gpu, tree) = tree::<Few>(&[1; 3]);
        part(&tree.root(), 1..2).fill_on(0, 5).unwrap();
        let launch = {
            let tree = tree.clone();
            spawn(move || match part(&tree.root(), 0..1).fill_on(0, 7) {
                Ok(_) => true,
                Err(Error::Lost { .. }) => false,
                Err(error) => panic!("{error}"),
            })
        };
        gpu.lose();
        assert!(matches!(tree.flush(0), Err(Error::Lost { .. })));
        let launched = launch.join().unwrap();
        let mut lost = Vec::new();
        tree.take_lost(|region| lost.push(span(region)));
        assert_eq!(lost.iter().map(|part| part.len()).sum::<usize>(), 1 + usize::from(launched));
        assert!(lost.iter().all(|part| part.end <= 2), "{lost:?}");
        let first = read(&gpu, &part(&tree.root(), 0..1));
        assert_eq!(first.ok(), (!launched).then_some(vec![1]));
        assert_eq!(read(&gpu, &part(&tree.root(), 2..3)).unwrap(), [1]);
        tree.root().for_each_fresh(Location::Device(0), |region| panic!("{region} is fresh there"));
        assert_all_free_but_lost(&tree);
    });
}

fn assert_all_free_but_lost<C: Capacity>(tree: &Tree<C>) {
    assert_eq!(tree.live_accesses(), 0);
    tree.check().unwrap();
    drop(tree.root().overwrite().unwrap());
}
