//! Accesses that never wait, on a device whose work is done only when the test says so.

mod common;

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::task::Poll;
use core::time::Duration;

use common::{counted, load, region, stamp, stamped};
use hedgerow::driver::middleware::{Counting, Fault};
use hedgerow::driver::{
    Allocation, Caps, ComputeDriver, Contents, CopyBox, Device, DeviceDriver, Dispatch,
    DriverError, DriverId, ErrorKind, KernelSource, Storage, Ticket,
};
use hedgerow::error::{Busy, Holder};
use hedgerow::{Builder, Error, ReadGuard, Shape, Tree};
use hedgerow_host::Host;

/// Says that work is not done until it is told so, and counts who waits. Of one lane.
#[derive(Debug)]
struct Lagging<H> {
    inner: H,
    done: AtomicU64,
    waits: AtomicU32,
    /// What it says of its memory.
    alignment: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LagError<E> {
    Late,
    Inner(E),
}

impl<E: fmt::Display> fmt::Display for LagError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late => f.write_str("not done yet"),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

impl<E: core::error::Error> core::error::Error for LagError<E> {}

impl<E: DriverError> DriverError for LagError<E> {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Late => ErrorKind::Timeout,
            Self::Inner(error) => error.kind(),
        }
    }
}

type Lag<H> = LagError<<<H as Device>::Driver as DeviceDriver>::Error>;

impl<H: Device> Lagging<H> {
    fn new(inner: H) -> Self {
        Self {
            inner,
            done: AtomicU64::new(0),
            waits: AtomicU32::new(0),
            alignment: AtomicU64::new(64),
        }
    }

    /// All work up to the ticket is done.
    fn finish(&self, ticket: Ticket) {
        self.done.fetch_max(ticket.value, Ordering::Relaxed);
    }

    fn finish_all(&self) {
        self.done.store(u64::MAX, Ordering::Relaxed);
    }

    /// From here on, new work is not done.
    fn lag_behind(&self, ticket: Ticket) {
        self.done.store(ticket.value, Ordering::Relaxed);
    }

    fn waits(&self) -> u32 {
        self.waits.load(Ordering::Relaxed)
    }

    fn is_done(&self, ticket: &Ticket) -> bool {
        ticket.value <= self.done.load(Ordering::Relaxed)
    }

    /// A call that would have to wait.
    fn must_be_done(&self, tickets: &[Ticket]) -> Result<(), Lag<H>> {
        if tickets.iter().all(|ticket| self.is_done(ticket)) {
            return Ok(());
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        Err(LagError::Late)
    }
}

// SAFETY: every call is handed on as it is, or refused; saying later that work is done breaks no promise.
unsafe impl<H: Device> DeviceDriver for Lagging<H> {
    type Error = Lag<H>;
    type Memory = <H::Driver as DeviceDriver>::Memory;

    fn id(&self) -> DriverId {
        self.inner.driver().id()
    }

    fn caps(&self) -> &Caps {
        self.inner.driver().caps()
    }

    fn alignment(&self, _: Self::Memory) -> u64 {
        self.alignment.load(Ordering::Relaxed)
    }

    fn allocate(
        &self,
        bytes: u64,
        contents: Contents,
    ) -> Result<Allocation<Self::Memory>, Self::Error> {
        self.inner.driver().allocate(bytes, contents).map_err(LagError::Inner)
    }

    fn storage(&self, bytes: u64) -> Result<Storage<Self::Memory>, Self::Error> {
        self.inner.driver().storage(bytes).map_err(LagError::Inner)
    }

    unsafe fn release(&self, memory: Self::Memory, after: &[Ticket]) {
        // SAFETY: the caller's promises.
        unsafe { self.inner.driver().release(memory, after) };
    }

    unsafe fn upload(
        &self,
        src: *const u8,
        dst: Self::Memory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Result<Ticket, Self::Error> {
        // SAFETY: as in `release`.
        unsafe { self.inner.driver().upload(src, dst, boxes, after) }.map_err(LagError::Inner)
    }

    unsafe fn download(
        &self,
        src: Self::Memory,
        dst: *mut u8,
        boxes: &[CopyBox],
        after: &[Ticket],
        timeout: Duration,
    ) -> Result<(), Self::Error> {
        self.must_be_done(after)?;
        // SAFETY: as in `release`.
        let result = unsafe { self.inner.driver().download(src, dst, boxes, after, timeout) };
        result.map_err(LagError::Inner)
    }

    unsafe fn copy(
        &self,
        src: Self::Memory,
        dst: Self::Memory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Result<Ticket, Self::Error> {
        // SAFETY: as in `release`.
        unsafe { self.inner.driver().copy(src, dst, boxes, after) }.map_err(LagError::Inner)
    }

    unsafe fn fill(
        &self,
        dst: Self::Memory,
        boxes: &[CopyBox],
        value: &[u8],
        after: &[Ticket],
    ) -> Result<Ticket, Self::Error> {
        // SAFETY: as in `release`.
        unsafe { self.inner.driver().fill(dst, boxes, value, after) }.map_err(LagError::Inner)
    }

    fn flush(&self) -> Result<(), Self::Error> {
        self.inner.driver().flush().map_err(LagError::Inner)
    }

    fn poll(&self, ticket: Ticket) -> Result<bool, Self::Error> {
        let done = self.inner.driver().poll(ticket).map_err(LagError::Inner)?;
        Ok(done && self.is_done(&ticket))
    }

    fn wait(&self, ticket: Ticket, timeout: Duration) -> Result<(), Self::Error> {
        self.must_be_done(&[ticket])?;
        self.inner.driver().wait(ticket, timeout).map_err(LagError::Inner)
    }
}

// SAFETY: as above.
unsafe impl<H: Device> ComputeDriver for Lagging<H>
where
    H::Driver: ComputeDriver,
{
    type Kernel = <H::Driver as ComputeDriver>::Kernel;

    fn load_kernel(&self, source: &KernelSource<'_>) -> Result<Self::Kernel, Self::Error> {
        self.inner.driver().load_kernel(source).map_err(LagError::Inner)
    }

    unsafe fn dispatch(
        &self,
        kernel: &Self::Kernel,
        dispatch: &Dispatch<'_, Self::Memory>,
        after: &[Ticket],
    ) -> Result<Ticket, Self::Error> {
        // SAFETY: as in `release`.
        unsafe { self.inner.driver().dispatch(kernel, dispatch, after) }.map_err(LagError::Inner)
    }
}

/// 8 x 4 numbers: 128 bytes.
fn shape() -> Shape {
    Shape::packed([8, 4])
}

fn ready<T, E: fmt::Debug>(answer: Result<Poll<T>, E>) -> T {
    match answer.expect("no error") {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("still pending"),
    }
}

fn is_held_by<T: fmt::Debug, E: fmt::Debug>(answer: Result<T, Error<E>>, by: Holder) {
    let busy = matches!(&answer, Err(Error::Busy(Busy { holder, .. })) if *holder == by);
    assert!(busy, "{answer:?} instead of {by:?}");
}

#[test]
fn a_read_is_ready_when_the_work_is_done() {
    let host = Host::new();
    let gpu = Lagging::new(Counting::new(&host));
    let kernel = load(&gpu, 1, stamp);
    let mut pixels = counted(32);
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    let (left, right) =
        (tree.root().crop([0..4, 0..4]).unwrap(), tree.root().crop([4..8, 0..4]).unwrap());
    let first = kernel.launch((left.as_overwrite(),), 1).unwrap();
    let second = kernel.launch((right.as_overwrite(),), 2).unwrap();
    assert_eq!((tree.poll(0, first), tree.poll(0, second)), (Ok(false), Ok(false)));

    let mut pending = left.begin_read().unwrap();
    for _ in 0..3 {
        assert!(pending.poll().unwrap().is_pending());
    }
    // It submits once, moves nothing, and holds its bytes.
    let counts = gpu.inner.snapshot();
    assert_eq!((counts.flushes, counts.downloads.calls), (1, 0));
    is_held_by(left.try_read(), Holder::Access);
    is_held_by(left.begin_update(), Holder::Access);
    is_held_by(tree.root().try_overwrite(), Holder::Access);
    // Nobody waits for what this thread itself has to poll.
    is_held_by(left.read(), Holder::Access);
    is_held_by(left.prefetch(0), Holder::Access);
    is_held_by(kernel.launch((tree.root().as_overwrite(),), 1), Holder::Access);
    is_held_by(tree.sync(), Holder::Access);
    // What is beside it goes on; a call that must not wait says what it would wait for.
    is_held_by(right.try_read(), Holder::Work);

    // The first work alone is enough.
    gpu.finish(first);
    assert_eq!((tree.poll(0, first), tree.poll(0, second)), (Ok(true), Ok(false)));
    let guard = ready(pending.poll());
    assert_eq!((guard[[0, 0]], guard[[3, 3]]), (stamped(0, 0, 1), stamped(3, 3, 1)));
    assert_eq!((tree.counters().bytes_down, gpu.waits()), (64, 0));
    assert!(matches!(pending.poll(), Err(Error::StaleHandle)));
    drop(pending);
    // It is a guard like any other.
    is_held_by(left.begin_update(), Holder::Access);
    drop(guard);
    drop(left.try_update().unwrap());
    is_held_by(right.try_read(), Holder::Work);
    // What waits all the same is told in time.
    assert_eq!(right.read().unwrap_err().kind(), Some(ErrorKind::Timeout));
    assert_eq!(gpu.waits(), 1);
    gpu.finish_all();
    assert_eq!(right.read().unwrap()[[4, 0]], stamped(4, 0, 2));
}

#[test]
fn writes_in_both_modes() {
    let gpu = Lagging::new(Counting::new(Host::new()));
    let kernel = load(&gpu, 1, stamp);
    let mut pixels = counted(32);
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    kernel.launch((tree.root().as_overwrite(),), 1).unwrap();
    let (top, rest) =
        (tree.root().crop([0..8, 0..1]).unwrap(), tree.root().crop([0..8, 1..4]).unwrap());
    // Nothing of an overwrite comes home: at once.
    let mut guard = ready(top.begin_overwrite().unwrap().poll());
    guard.fill(5);
    drop(guard);
    let mut pending = rest.begin_update().unwrap();
    assert!(pending.poll().unwrap().is_pending());
    gpu.finish_all();
    let mut guard = ready(pending.poll());
    guard[[0, 1]] += 1;
    drop(guard);
    assert!(matches!(pending.poll(), Err(Error::StaleHandle)));
    drop(pending);
    assert_eq!((tree.counters().bytes_down, gpu.waits()), (96, 0));
    drop((top, rest));
    tree.close().unwrap();
    let mut expected: Vec<i32> = (0..32).map(|i| stamped(i % 8, i / 8, 1)).collect();
    expected[..8].fill(5);
    expected[8] += 1;
    assert_eq!(pixels, expected);
}

/// Storage of the driver's: the copy home runs on its own, and host writes wait for copies that read it.
#[test]
fn storage_of_the_drivers() {
    let gpu = Lagging::new(Counting::new(Host::new()));
    let kernel = load(&gpu, 1, stamp);
    let tree = Tree::<i32, _>::owned(shape(), &gpu).unwrap();
    let root = tree.root();
    ready(root.begin_overwrite().unwrap().poll()).fill(3);
    // The way up reads the storage.
    let up = root.prefetch(0).unwrap();
    let mut pending = root.begin_overwrite().unwrap();
    assert!(pending.poll().unwrap().is_pending());
    // Others may read meanwhile, once this has given up.
    drop(pending);
    assert_eq!(ready(root.begin_read().unwrap().poll())[[7, 3]], 3);
    gpu.finish(up);
    drop(ready(root.begin_overwrite().unwrap().poll()));

    let work = kernel.launch((root.as_overwrite(),), 1).unwrap();
    let mut pending = root.begin_read().unwrap();
    assert!(pending.poll().unwrap().is_pending());
    assert_eq!(gpu.inner.snapshot().copies.calls, 1);
    gpu.finish(work);
    // Now the copy is under way.
    assert!(pending.poll().unwrap().is_pending());
    assert!(pending.poll().unwrap().is_pending());
    assert_eq!(gpu.inner.snapshot().copies.calls, 2);
    gpu.finish(Ticket { value: work.value + 1, ..work });
    let guard = ready(pending.poll());
    assert_eq!(guard[[7, 3]], stamped(7, 3, 1));
    assert_eq!((tree.counters().bytes_down, gpu.waits()), (128, 0));
    drop((pending, guard));
    gpu.finish_all();
}

#[test]
fn a_dropped_one_gives_its_bytes_back() {
    let gpu = Lagging::new(Counting::new(Host::new()));
    let kernel = load(&gpu, 1, stamp);
    let mut pixels = counted(32);
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    let first = kernel.launch((tree.root().as_overwrite(),), 1).unwrap();
    let picture = tree.to_string();
    let mut pending = tree.root().begin_update().unwrap();
    assert!(pending.poll().unwrap().is_pending());
    is_held_by(tree.root().try_read(), Holder::Access);
    drop(pending);
    // Also one that was never polled.
    drop(tree.root().begin_overwrite().unwrap());
    assert_eq!((tree.to_string(), tree.live_accesses()), (picture, 0));
    kernel.launch((tree.root().as_overwrite(),), 2).unwrap();
    gpu.finish(first);
    let mut pending = tree.root().begin_read().unwrap();
    assert!(pending.poll().unwrap().is_pending());
    gpu.finish_all();
    assert_eq!(ready(pending.poll())[[1, 1]], stamped(1, 1, 2));
    assert_eq!(gpu.waits(), 0);
    tree.check().unwrap();
}

/// A copy into the driver's storage that goes on after its access was given up: the next one follows it.
#[test]
fn a_dropped_one_leaves_its_copy_to_the_next() {
    let gpu = Lagging::new(Counting::new(Host::new()));
    let kernel = load(&gpu, 1, stamp);
    let tree = Tree::<i32, _>::owned(shape(), &gpu).unwrap();
    let work = kernel.launch((tree.root().as_overwrite(),), 1).unwrap();
    gpu.finish(work);
    let mut pending = tree.root().begin_read().unwrap();
    assert!(pending.poll().unwrap().is_pending());
    drop(pending);
    // The host would overwrite what the copy still writes.
    let mut pending = tree.root().begin_overwrite().unwrap();
    assert!(pending.poll().unwrap().is_pending());
    is_held_by(tree.root().crop([0..1, 0..1]).unwrap().try_overwrite(), Holder::Access);
    gpu.finish_all();
    drop(ready(pending.poll()));
    assert_eq!(gpu.waits(), 0);
}

#[test]
fn errors_come_from_the_poll_and_end_it() {
    let host = Host::new();
    let fault = Fault::new(&host);
    let gpu = Lagging::new(&fault);
    let kernel = load(&gpu, 1, stamp);
    let mut pixels = counted(32);
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    kernel.launch((tree.root().as_overwrite(),), 1).unwrap();
    gpu.finish_all();
    let mut failed = 0;
    loop {
        let mut pending = tree.root().begin_read().unwrap();
        fault.arm(failed + 1, ErrorKind::Other);
        let answer = pending.poll();
        if !fault.fired() {
            drop(ready(answer));
            break;
        }
        assert_eq!(answer.unwrap_err().kind(), Some(ErrorKind::Other));
        fault.disarm();
        assert!(matches!(pending.poll(), Err(Error::StaleHandle)));
        // Given up with the error, not only with the handle.
        assert_eq!(tree.live_accesses(), 0);
        drop(tree.root().begin_read().unwrap());
        failed += 1;
    }
    fault.disarm();
    assert!(failed >= 2, "at least a poll and the download");
    assert_eq!(ready(tree.root().begin_read().unwrap().poll())[[2, 1]], stamped(2, 1, 1));

    // A loss takes along what only the device had.
    let crop = tree.root().crop([0..4, 0..2]).unwrap();
    kernel.launch((crop.as_overwrite(),), 2).unwrap();
    let mut pending = crop.begin_read().unwrap();
    host.simulate_loss();
    let lost = pending.poll().unwrap_err();
    assert!(
        matches!(lost, Error::Lost { region: Some(r), boxes: 1, .. } if r == region(0..4, 0..2))
    );
    let undefined = crop.begin_read().unwrap_err();
    assert!(matches!(undefined, Error::Undefined { lost: true, .. }));
    // Beside it, all is at home.
    let rest = tree.root().crop([4..8, 0..4]).unwrap();
    assert_eq!(ready(rest.begin_read().unwrap().poll())[[4, 0]], stamped(4, 0, 1));
}

#[test]
fn refused_before_it_begins() {
    let gpu = Lagging::new(Host::new());
    let tree = Tree::<i32, _>::owned(shape(), &gpu).unwrap();
    assert!(matches!(tree.root().begin_read(), Err(Error::Undefined { lost: false, .. })));
    assert!(matches!(tree.root().begin_update(), Err(Error::Undefined { lost: false, .. })));
    let hidden = Builder::new(&gpu).device_only::<i32>(shape()).unwrap();
    assert!(matches!(hidden.root().begin_overwrite(), Err(Error::NoHostStorage)));
    let guard = ready(tree.root().begin_overwrite().unwrap().poll());
    is_held_by(tree.root().begin_read(), Holder::Access);
    drop(guard);
    // Nothing is ready at once, once.
    let nothing = tree.root().crop([3..3, 0..4]).unwrap();
    let mut pending = nothing.begin_read().unwrap();
    assert!(ready(pending.poll()).as_slice().is_some_and(<[i32]>::is_empty));
    assert!(matches!(pending.poll(), Err(Error::StaleHandle)));
}

/// Two at once on disjoint crops, each ready with its own work.
#[test]
fn several_at_once() {
    let gpu = Lagging::new(Host::new());
    let kernel = load(&gpu, 1, stamp);
    let mut pixels = counted(32);
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    let rows = [0, 1, 2, 3].map(|y| tree.root().crop([0..8, y..y + 1]).unwrap());
    let tickets = rows.each_ref().map(|row| kernel.launch((row.as_overwrite(),), 1).unwrap());
    let mut pending = rows.each_ref().map(|row| Some(row.begin_read().unwrap()));
    let mut guards: [Option<ReadGuard<'_, i32>>; 4] = [const { None }; 4];
    for done in 0..=4usize {
        if let Some(ticket) = done.checked_sub(1).map(|i| tickets[i]) {
            gpu.finish(ticket);
        }
        for (slot, guard) in pending.iter_mut().zip(&mut guards) {
            if let Some(Ok(Poll::Ready(got))) = slot.as_mut().map(|pending| pending.poll()) {
                *guard = Some(got);
                *slot = None;
            }
        }
        assert_eq!(guards.iter().flatten().count(), done);
    }
    for (y, guard) in guards.iter().flatten().enumerate() {
        assert_eq!(guard[[2, y as i32]], stamped(2, y as i32, 1));
    }
    assert_eq!(gpu.waits(), 0);
}

/// Work that is launched while an access is pending elsewhere does not hold that up.
#[test]
fn later_work_holds_nobody_up() {
    let gpu = Lagging::new(Host::new());
    let kernel = load(&gpu, 1, stamp);
    let mut pixels = counted(32);
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    let (left, right) =
        (tree.root().crop([0..4, 0..4]).unwrap(), tree.root().crop([4..8, 0..4]).unwrap());
    let mine = kernel.launch((left.as_overwrite(),), 1).unwrap();
    let mut pending = left.begin_read().unwrap();
    assert!(pending.poll().unwrap().is_pending());
    kernel.launch((right.as_overwrite(),), 1).unwrap();
    gpu.lag_behind(mine);
    drop(ready(pending.poll()));
    assert_eq!(gpu.waits(), 0);
    gpu.finish_all();
}

/// Memory to wrap must suit the elements, as far as its driver can say.
#[test]
fn wrapped_memory_is_aligned() {
    let gpu = Lagging::new(Host::new());
    let memory = gpu.allocate(256, Contents::Zeroed).unwrap().memory;
    let mut pixels = [0u64; 32];
    let tree = Tree::over(&mut pixels, Shape::packed([32]), &gpu).unwrap();
    gpu.alignment.store(4, Ordering::Relaxed);
    // SAFETY: the memory is the device's, of 256 bytes, and used by nobody else.
    let refused = unsafe { tree.wrap_device(0, memory, 256) };
    assert_eq!(refused, Err(Error::Misaligned { align: 8 }));
    gpu.alignment.store(8, Ordering::Relaxed);
    // SAFETY: as above.
    unsafe { tree.wrap_device(0, memory, 256) }.unwrap();
    assert_eq!(tree.unwrap_device(0).unwrap(), memory);
    drop(tree);
    // SAFETY: allocated here, used by nothing any more.
    unsafe { gpu.release(memory, &[]) };
}
