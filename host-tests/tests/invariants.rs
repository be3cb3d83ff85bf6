//! Invariants that a device which works at once cannot show: what must be ordered, what must be waited
//! for, and what must not be.
//!
//! [`Strict`] stands between the core and the host driver and knows which bytes every operation reads and
//! writes. Nothing counts as done before somebody has waited for it, and whatever conflicts with work that is
//! not done must be ordered after it: by the tickets given, by the order of a lane, or by a wait.

mod common;

use core::fmt::Write as _;
use core::time::Duration;
use std::sync::Mutex;

use common::{Random, Three, add, counted, load, relay, stamp, stamped};
use hedgerow::capacity::{Capacity, Standard};
use hedgerow::driver::middleware::Fault;
use hedgerow::driver::{
    Allocation, Binding, Caps, ComputeDriver, Contents, CopyBox, DeviceDriver, Dispatch, DriverId,
    DropError, ErrorKind, HostKernel, KernelSource, Storage, Ticket,
};
use hedgerow::{Builder, Location, Mode, Shape, Tree, View};
use hedgerow_host::{Host, HostError, HostMemory};

/// Work goes round over so many lanes.
const LANES: u64 = 3;

/// Bytes of one memory, one flag each.
type Bytes = Vec<bool>;

/// An operation on device memory.
struct Op {
    what: &'static str,
    ticket: Ticket,
    /// Memory, the bytes used there, and whether they are written.
    uses: Vec<(HostMemory, Bytes, bool)>,
    /// Which operations before this one are over when it starts.
    follows: Vec<bool>,
    done: bool,
}

#[derive(Default)]
struct Log {
    ops: Vec<Op>,
    /// What [`Strict::storage`] gave first: the root of a tree that is the driver's own.
    storage: Option<HostMemory>,
    released: Vec<HostMemory>,
    /// Addresses and lengths of host bytes under live guards.
    held: Vec<(usize, usize)>,
    complaints: String,
}

/// The host driver, with the order of all work checked. It has a name for its work in several lanes.
struct Strict {
    inner: Host<'static>,
    log: Mutex<Log>,
}

fn overlap(a: &[bool], b: &[bool]) -> bool {
    a.iter().zip(b).any(|(a, b)| *a && *b)
}

impl Log {
    fn complain(&mut self, message: core::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.complaints, "{message}");
    }

    /// Which operations are over once all of `after` is: those of the lanes, and what they followed.
    fn over(&self, after: &[Ticket]) -> Vec<bool> {
        let mut over: Vec<bool> = self.ops.iter().map(|op| op.done).collect();
        for (i, op) in self.ops.iter().enumerate() {
            if after.iter().any(|t| t.lane == op.ticket.lane && op.ticket.value <= t.value) {
                over[i] = true;
                for (over, follows) in over.iter_mut().zip(&op.follows) {
                    *over |= follows;
                }
            }
        }
        over
    }

    /// Checks something about to start, which only what is `over` comes before.
    fn check(&mut self, what: &str, uses: &[(HostMemory, Bytes, bool)], over: &[bool]) {
        let mut complaints = Vec::new();
        for (memory, bytes, write) in uses {
            if self.released.contains(memory) {
                complaints.push(format!("{what} uses memory that was released"));
            }
            for (op, _) in self.ops.iter().zip(over).filter(|(_, over)| !**over) {
                let conflicts = op.uses.iter().any(|(other, theirs, wrote)| {
                    other == memory && (*write || *wrote) && overlap(bytes, theirs)
                });
                if conflicts {
                    complaints.push(format!("{what} does not follow {} {}", op.what, op.ticket));
                }
            }
        }
        complaints.iter().for_each(|complaint| self.complain(format_args!("{complaint}")));
    }

    fn finish(&mut self, over: &[bool]) {
        for (op, over) in self.ops.iter_mut().zip(over) {
            op.done |= over;
        }
    }
}

impl Strict {
    fn new(unified: bool) -> Self {
        Self { inner: Host::new().unified(unified), log: Mutex::default() }
    }

    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Notes an operation and names it.
    fn op(
        &self,
        what: &'static str,
        uses: Vec<(HostMemory, Bytes, bool)>,
        after: &[Ticket],
    ) -> Ticket {
        let mut log = self.log();
        let over = log.over(after);
        log.check(what, &uses, &over);
        let count = log.ops.len() as u64;
        let ticket = Ticket { lane: (count % LANES) as u8, value: 1 + count / LANES };
        // Of one lane, each is over before the next is; but they may run side by side.
        log.ops.push(Op { what, ticket, uses, follows: over, done: false });
        ticket
    }

    /// The host touches a view's bytes in the driver's own storage.
    fn host_touches(&self, view: &View<'_, i32, Self>, write: bool) {
        let mut log = self.log();
        let Some(storage) = log.storage else { return };
        let (width, height) = (SIDE as i32, SIDE as i32);
        let region = view.root_region();
        let bytes = (0..width * height)
            .flat_map(|i| [region.contains_point(&[i % width, i / width]); 4])
            .collect();
        let over = log.over(&[]);
        log.check("the host", &[(storage, bytes, write)], &over);
    }

    fn is_done(&self, ticket: Ticket) -> bool {
        self.log().ops.iter().any(|op| op.ticket == ticket && op.done)
    }

    #[track_caller]
    fn assert_in_order(&self) {
        let complaints = core::mem::take(&mut self.log().complaints);
        assert!(complaints.is_empty(), "{complaints}");
    }
}

/// The bytes of one side of a list.
fn listed(boxes: &[CopyBox], side: impl Fn(u64, u64) -> u64) -> Bytes {
    let mut bytes = Bytes::new();
    for copy in boxes {
        copy.for_each_run(|src, dst| {
            let (at, run) = (side(src, dst) as usize, copy.run as usize);
            bytes.resize(bytes.len().max(at + run), false);
            bytes[at..at + run].fill(true);
        });
    }
    bytes
}

fn sources(boxes: &[CopyBox]) -> Bytes {
    listed(boxes, |src, _| src)
}

fn destinations(boxes: &[CopyBox]) -> Bytes {
    listed(boxes, |_, dst| dst)
}

/// The bytes of a view's elements.
fn bound(binding: &Binding<HostMemory>) -> Bytes {
    let (geometry, element) = (&binding.geometry, binding.element as usize);
    let mut bytes = vec![false; (binding.offset + binding.bytes) as usize];
    for mut i in 0..geometry.volume() {
        let mut at = (binding.offset + geometry.origin) as i64;
        for axis in 0..geometry.rank {
            let extent = u64::from(geometry.extent.at(axis));
            at += (i % extent) as i64 * geometry.stride.at(axis);
            i /= extent;
        }
        bytes[at as usize..at as usize + element].fill(true);
    }
    bytes
}

// SAFETY: every call is handed on as it is to a driver whose work is done when the call returns; the names
// given to it instead say so later, as waits do.
unsafe impl DeviceDriver for Strict {
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
        let memory = self.inner.allocate(bytes, contents)?.memory;
        let ready = self.op("allocate", vec![(memory, vec![true; bytes as usize], true)], &[]);
        Ok(Allocation { memory, ready })
    }

    fn storage(&self, bytes: u64) -> Result<Storage<HostMemory>, HostError> {
        let storage = self.inner.storage(bytes)?;
        self.log().storage.get_or_insert(storage.memory);
        Ok(storage)
    }

    unsafe fn release(&self, memory: HostMemory, after: &[Ticket]) {
        let mut log = self.log();
        let over = log.over(after);
        log.check("release", &[(memory, vec![true; 4 * SIDE * SIDE], true)], &over);
        log.released.push(memory);
        // SAFETY: the caller's promises.
        unsafe { self.inner.release(memory, &[]) };
    }

    unsafe fn upload(
        &self,
        src: *const u8,
        dst: HostMemory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Result<Ticket, HostError> {
        // SAFETY: as in `release`.
        unsafe { self.inner.upload(src, dst, boxes, &[]) }?;
        Ok(self.op("upload", vec![(dst, destinations(boxes), true)], after))
    }

    unsafe fn download(
        &self,
        src: HostMemory,
        dst: *mut u8,
        boxes: &[CopyBox],
        after: &[Ticket],
        timeout: Duration,
    ) -> Result<(), HostError> {
        // SAFETY: as in `release`.
        unsafe { self.inner.download(src, dst, boxes, &[], timeout) }?;
        let mut log = self.log();
        let over = log.over(after);
        log.check("download", &[(src, sources(boxes), false)], &over);
        log.finish(&over);
        for copy in boxes {
            copy.for_each_run(|_, at| {
                let (from, to) = (dst.addr() + at as usize, dst.addr() + (at + copy.run) as usize);
                if log.held.iter().any(|(held, len)| from < held + len && *held < to) {
                    log.complain(format_args!("a download of {} bytes under a guard", copy.run));
                }
            });
        }
        Ok(())
    }

    unsafe fn copy(
        &self,
        src: HostMemory,
        dst: HostMemory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Result<Ticket, HostError> {
        // SAFETY: as in `release`.
        unsafe { self.inner.copy(src, dst, boxes, &[]) }?;
        let uses = vec![(src, sources(boxes), false), (dst, destinations(boxes), true)];
        Ok(self.op("copy", uses, after))
    }

    unsafe fn fill(
        &self,
        dst: HostMemory,
        boxes: &[CopyBox],
        value: &[u8],
        after: &[Ticket],
    ) -> Result<Ticket, HostError> {
        // SAFETY: as in `release`.
        unsafe { self.inner.fill(dst, boxes, value, &[]) }?;
        Ok(self.op("fill", vec![(dst, destinations(boxes), true)], after))
    }

    fn flush(&self) -> Result<(), HostError> {
        self.inner.flush()
    }

    fn poll(&self, ticket: Ticket) -> Result<bool, HostError> {
        Ok(ticket.is_done_from_start() || self.is_done(ticket))
    }

    fn wait(&self, ticket: Ticket, _: Duration) -> Result<(), HostError> {
        let mut log = self.log();
        let over = log.over(&[ticket]);
        log.finish(&over);
        Ok(())
    }

    fn report_drop(&self, error: DropError) {
        self.log().complain(format_args!("{error:?}"));
    }
}

// SAFETY: as above.
unsafe impl ComputeDriver for Strict {
    type Kernel = HostKernel;

    fn load_kernel(&self, source: &KernelSource<'_>) -> Result<HostKernel, HostError> {
        self.inner.load_kernel(source)
    }

    unsafe fn dispatch(
        &self,
        kernel: &HostKernel,
        dispatch: &Dispatch<'_, HostMemory>,
        after: &[Ticket],
    ) -> Result<Ticket, HostError> {
        // SAFETY: as in `release`.
        unsafe { self.inner.dispatch(kernel, dispatch, &[]) }?;
        let uses = dispatch.views.iter().map(|view| (view.memory, bound(view), view.mode.writes()));
        Ok(self.op("dispatch", uses.collect(), after))
    }
}

/// Trees are of 12 x 12 numbers.
const SIDE: usize = 12;

fn shape() -> Shape {
    Shape::packed([SIDE as u32; 2])
}

/// I6, I9: what a guard shows is there, and nothing still runs on what it lets write.
#[test]
fn host_bytes_are_waited_for() {
    for unified in [false, true] {
        let gpu = Strict::new(unified);
        let (stamp, add) = (load(&gpu, 1, stamp), load(&gpu, 1, add));
        let tree = Tree::<i32, _>::owned(shape(), &gpu).unwrap();
        let crop = tree.root().crop([2..9, 3..7]).unwrap();
        stamp.launch((crop.as_overwrite(),), 1).unwrap();
        let guard = crop.read().unwrap();
        gpu.host_touches(&crop, false);
        assert_eq!(guard[[4, 5]], stamped(4, 5, 1));
        drop(guard);
        // The device may still be fetching what the host is about to write.
        drop(crop.overwrite().unwrap());
        add.launch((crop.as_update(),), 1).unwrap();
        drop(crop.overwrite().unwrap());
        gpu.host_touches(&crop, true);
        crop.prefetch(0).unwrap();
        drop(crop.update().unwrap());
        gpu.host_touches(&crop, true);
        gpu.assert_in_order();
    }
}

/// I9: a guard waits for the device work that touches its region, and only for that.
#[test]
fn a_guard_waits_for_nothing_else() {
    for unified in [false, true] {
        let gpu = Strict::new(unified);
        let stamp = load(&gpu, 1, stamp);
        let tree = Tree::<i32, _>::owned(shape(), &gpu).unwrap();
        let (mine, other) =
            (tree.root().crop([0..5, 0..12]).unwrap(), tree.root().crop([5..9, 0..12]).unwrap());
        let first = stamp.launch((mine.as_overwrite(),), 1).unwrap();
        let second = stamp.launch((other.as_overwrite(),), 2).unwrap();
        assert_ne!(first.lane, second.lane);
        drop(mine.read().unwrap());
        gpu.host_touches(&mine, false);
        drop(mine.overwrite().unwrap());
        gpu.host_touches(&mine, true);
        assert!(gpu.is_done(first) && !gpu.is_done(second));
        gpu.assert_in_order();
    }
}

fn crop<'t>(
    tree: &'t Tree<'_, i32, &Strict, impl Capacity>,
    random: &mut Random,
) -> View<'t, i32, Strict> {
    let mut range = || {
        let from = random.below(SIDE as u64 - 1) as i32;
        from..from + 1 + random.below((SIDE as i32 - from) as u64) as i32
    };
    let (x, y) = (range(), range());
    tree.root().crop([x, y]).unwrap()
}

/// Rule 9: every operation is given what it must follow, whatever came before; and memory is given back
/// only after its last use (I1).
fn program<C: Capacity>(seed: u64, owned: bool, unified: bool) {
    let gpu = Strict::new(unified);
    let (stamp, add, relay) = (load(&gpu, 1, stamp), load(&gpu, 1, add), load(&gpu, 2, relay));
    let mut random = Random::new(seed);
    let mut pixels = counted((SIDE * SIDE) as i32);
    let builder = Builder::new(&gpu).capacity::<C>();
    let tree = match owned {
        true => builder.owned(shape()).unwrap(),
        false => builder.over(&mut pixels, shape()).unwrap(),
    };
    tree.root().overwrite().unwrap().fill(7);
    for step in 0..40 {
        let view = crop(&tree, &mut random);
        match random.below(8) {
            0 => drop(stamp.launch((view.as_overwrite(),), step).unwrap()),
            1 => drop(add.launch((view.as_update(),), step).unwrap()),
            2 | 3 => {
                let from = crop(&tree, &mut random);
                // Refused where the two overlap.
                let _ = relay.launch((from.as_read(), view.as_overwrite()), step);
            }
            4 => {
                let guard = view.read().unwrap();
                gpu.host_touches(&view, false);
                drop(guard);
            }
            5 => {
                let mut guard = view.overwrite().unwrap();
                gpu.host_touches(&view, true);
                guard.fill(step);
            }
            6 => drop(view.prefetch(0).unwrap()),
            _ if step % 4 == 0 && !owned => drop(tree.evict(0).unwrap()),
            _ => {
                let mut guard = view.update().unwrap();
                gpu.host_touches(&view, true);
                guard.fill(step);
            }
        }
    }
    assert_eq!(tree.check(), Ok(()));
    drop(tree);
    assert_eq!(gpu.inner.live_allocations(), 0);
    gpu.assert_in_order();
}

hedgerow::capacity! {
    /// So little that writes widen and the table of work in flight is full at once.
    struct Scarce { words: 1, cuts: 2, nodes: 4, guards: 3, devices: 1, list: 1 }
}

#[test]
fn all_work_is_in_order() {
    for seed in 0..48 {
        let (owned, unified) = (seed % 3 > 0, seed % 3 > 1);
        program::<Standard>(seed, owned, unified);
        program::<Scarce>(seed, owned, unified);
    }
}

/// I4: what several places hold is fetched from one of them.
#[test]
fn one_source_is_enough() {
    for peers in [false, true] {
        let gpus = [(); 3].map(|()| Host::new().peer_copies(peers));
        let stamps: [_; 3] = core::array::from_fn(|i| load(&gpus[i], 1, stamp));
        let mut pixels = counted((SIDE * SIDE) as i32);
        let builder = Builder::new(&gpus[0]).device(&gpus[1]).device(&gpus[2]);
        let tree = builder.capacity::<Three>().over(&mut pixels, shape()).unwrap();
        let root = tree.root();
        let whole = 4 * (SIDE * SIDE) as u64;
        // On the host and on two devices, then on the third.
        let moved = |location, mode| {
            let plan = root.plan(location, mode).unwrap();
            plan.bytes_up + plan.bytes_down + plan.bytes_across
        };
        drop(root.on_device(0, Mode::Read).unwrap());
        drop(root.on_device(1, Mode::Read).unwrap());
        assert_eq!(moved(Location::Device(2), Mode::Read), whole);
        let before = tree.counters();
        drop(root.on_device(2, Mode::Read).unwrap());
        let since = tree.counters().since(&before);
        assert_eq!((since.bytes_up, since.bytes_down, since.bytes_across), (whole, 0, 0));
        // On two devices, then on the host.
        stamps[0].launch((root.as_overwrite(),), 5).unwrap();
        drop(root.on_device(1, Mode::Read).unwrap());
        let before = tree.counters();
        drop(root.read().unwrap());
        let down = if peers { whole } else { 0 };
        assert_eq!(tree.counters().since(&before).bytes_down, down);
    }
}

/// I11: the counters say what was moved, not what somebody tried to move.
#[test]
fn what_failed_is_not_counted() {
    let gpu = Fault::new(Host::new());
    let (stamp, mut pixels) = (load(&gpu, 1, stamp), counted((SIDE * SIDE) as i32));
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    let whole = 4 * (SIDE * SIDE) as u64;
    for n in [1, 2] {
        // First the allocation fails, then the upload.
        gpu.arm(n, ErrorKind::Other);
        assert!(tree.root().on_device(0, Mode::Read).is_err());
        assert_eq!(tree.counters().bytes_up, 0);
        tree.release().unwrap();
    }
    drop(tree.root().on_device(0, Mode::Read).unwrap());
    assert_eq!(tree.counters().bytes_up, whole);
    stamp.launch((tree.root().as_overwrite(),), 1).unwrap();
    gpu.arm(1, ErrorKind::Timeout);
    assert!(tree.root().read().is_err());
    assert_eq!(tree.counters().bytes_down, 0);
    drop(tree.root().read().unwrap());
    assert_eq!(tree.counters().bytes_down, whole);
}

/// I9: while a guard lives, no transfer writes its bytes; also where the map has no room to say that they
/// are there.
#[test]
fn nothing_moves_under_a_guard() {
    let mut unrecorded = 0;
    for seed in 0..48 {
        let gpu = Strict::new(false);
        let stamp = load(&gpu, 1, stamp);
        let mut random = Random::new(seed);
        let mut pixels = counted((SIDE * SIDE) as i32);
        let tree = Builder::new(&gpu).capacity::<Scarce>().over(&mut pixels, shape()).unwrap();
        stamp.launch((tree.root().as_overwrite(),), 1).unwrap();
        let held = crop(&tree, &mut random);
        // Cuts for this one, and none for the next.
        drop(crop(&tree, &mut random).read().unwrap());
        let guard = held.read().unwrap();
        let mut fresh = 0;
        held.for_each_fresh(Location::Host, |region| fresh += region.volume());
        unrecorded += u32::from(fresh < held.root_region().volume());
        // With the same base, the guard's bytes are those of the view.
        let rows = held.root_region().range(1);
        gpu.log().held = rows
            .filter_map(|y| guard.row([0, y]))
            .map(|row| (row.as_ptr().addr(), size_of_val(row)))
            .collect();
        drop(tree.root().read().unwrap());
        drop(crop(&tree, &mut random).read().unwrap());
        tree.sync().unwrap();
        gpu.log().held.clear();
        drop(guard);
        gpu.assert_in_order();
    }
    assert!(unrecorded > 8, "only {unrecorded} reads had no room in the map");
}

/// Rule 1: a launch has all of its views or none, also where the last of them would have to widen into a guard.
#[test]
fn a_refused_launch_reserves_nothing() {
    let (mut refused, mut ran) = (0, 0);
    for seed in 0..200 {
        let gpu = Host::new();
        let (stamp, relay) = (load(&gpu, 1, stamp), load(&gpu, 2, relay));
        let mut random = Random::new(seed);
        let mut pixels = counted((SIDE * SIDE) as i32);
        let tree = Builder::new(&gpu).capacity::<Scarce>().over(&mut pixels, shape()).unwrap();
        let tile = |x, y| tree.root().crop([x..x + 2, y..y + 2]).unwrap();
        let at = |random: &mut Random| random.below(SIDE as u64 - 1) as i32;
        stamp.launch((tile(at(&mut random), at(&mut random)).as_overwrite(),), 1).unwrap();
        let Ok(guard) = tile(at(&mut random), at(&mut random)).update() else { continue };
        let from = tile(at(&mut random), at(&mut random));
        let to = tile(at(&mut random), at(&mut random));
        match relay.launch((from.as_read(), to.as_overwrite()), 2) {
            Ok(_) => ran += 1,
            Err(_) => refused += 1,
        }
        drop((guard, from, to));
        // What is still reserved would be somebody else's call.
        drop(tree.root().try_overwrite().unwrap());
    }
    assert!(refused > 20 && ran > 20, "{refused} launches were refused, {ran} ran");
}

/// I7, rule 2: accesses that were forgotten keep no bytes from coming home when the tree goes.
#[test]
fn forgotten_accesses_keep_nothing_away() {
    for close in [false, true] {
        let gpu = Host::new();
        let stamp = load(&gpu, 1, stamp);
        let mut pixels = vec![0; SIDE * SIDE];
        let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
        stamp.launch((tree.root().as_overwrite(),), 3).unwrap();
        let crop = tree.root().crop([2..5, 4..6]).unwrap();
        core::mem::forget(crop.on_device(0, Mode::Update).unwrap());
        assert!(tree.sync().is_err(), "the device may be writing");
        drop(crop);
        match close {
            true => tree.close().unwrap(),
            false => drop(tree),
        }
        assert_eq!(gpu.take_drop_error(), None);
        for (i, pixel) in (0..).zip(&pixels) {
            assert_eq!(*pixel, stamped(i % SIDE as i32, i / SIDE as i32, 3));
        }
    }
}
