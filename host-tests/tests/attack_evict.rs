//! A device's memory taken away while another call reads it: the call is in the way.

#![allow(clippy::single_range_in_vec_init)] // a crop of one axis

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use hedgerow::driver::{
    Allocation, Caps, Contents, CopyBox, DeviceDriver, DriverId, Storage, Ticket,
};
use hedgerow::{Builder, Location, Mode, Shape};
use hedgerow_host::{Host, HostError, HostMemory};

hedgerow::capacity! {
    struct Two { words: 64, cuts: 16, nodes: 16, guards: 8, devices: 2, list: 8 }
}

/// A host that stops in its next download until it is told to go on, or a while has passed.
struct Slow {
    host: Host<'static>,
    gate: Mutex<Option<(Sender<()>, Receiver<()>)>>,
    downloading: AtomicBool,
    released_meanwhile: AtomicBool,
}

impl Slow {
    fn new() -> Self {
        Self {
            host: Host::new().peer_copies(true),
            gate: Mutex::new(None),
            downloading: AtomicBool::new(false),
            released_meanwhile: AtomicBool::new(false),
        }
    }
}

// SAFETY: every call is handed on as it is; a download only takes longer.
unsafe impl DeviceDriver for Slow {
    type Error = HostError;
    type Memory = HostMemory;

    fn id(&self) -> DriverId {
        self.host.id()
    }

    fn caps(&self) -> &Caps {
        self.host.caps()
    }

    fn allocate(
        &self,
        bytes: u64,
        contents: Contents,
    ) -> Result<Allocation<HostMemory>, HostError> {
        self.host.allocate(bytes, contents)
    }

    fn storage(&self, bytes: u64) -> Result<Storage<HostMemory>, HostError> {
        self.host.storage(bytes)
    }

    unsafe fn release(&self, memory: HostMemory, after: &[Ticket]) {
        if self.downloading.load(Ordering::SeqCst) {
            self.released_meanwhile.store(true, Ordering::SeqCst);
        }
        // SAFETY: the caller's promise.
        unsafe { self.host.release(memory, after) };
    }

    unsafe fn upload(
        &self,
        src: *const u8,
        dst: HostMemory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Result<Ticket, HostError> {
        // SAFETY: the caller's promise.
        unsafe { self.host.upload(src, dst, boxes, after) }
    }

    unsafe fn download(
        &self,
        src: HostMemory,
        dst: *mut u8,
        boxes: &[CopyBox],
        after: &[Ticket],
        timeout: Duration,
    ) -> Result<(), HostError> {
        let gate = self.gate.lock().unwrap().take();
        if let Some((here, go)) = gate {
            self.downloading.store(true, Ordering::SeqCst);
            here.send(()).unwrap();
            let _ = go.recv_timeout(Duration::from_millis(300));
            self.downloading.store(false, Ordering::SeqCst);
            if self.released_meanwhile.load(Ordering::SeqCst) {
                // What would be read is gone.
                return Ok(());
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.host.download(src, dst, boxes, after, timeout) }
    }

    unsafe fn copy(
        &self,
        src: HostMemory,
        dst: HostMemory,
        boxes: &[CopyBox],
        after: &[Ticket],
    ) -> Result<Ticket, HostError> {
        // SAFETY: the caller's promise.
        unsafe { self.host.copy(src, dst, boxes, after) }
    }

    unsafe fn fill(
        &self,
        dst: HostMemory,
        boxes: &[CopyBox],
        value: &[u8],
        after: &[Ticket],
    ) -> Result<Ticket, HostError> {
        // SAFETY: the caller's promise.
        unsafe { self.host.fill(dst, boxes, value, after) }
    }

    fn flush(&self) -> Result<(), HostError> {
        self.host.flush()
    }

    fn poll(&self, ticket: Ticket) -> Result<bool, HostError> {
        self.host.poll(ticket)
    }

    fn wait(&self, ticket: Ticket, timeout: Duration) -> Result<(), HostError> {
        self.host.wait(ticket, timeout)
    }
}

/// The bytes that a read brings home lie on two devices, so evicting one loses nothing; but the read is copying
/// from that one just now.
#[test]
fn evict_waits_for_a_read_from_the_device() {
    let (a, b) = (Slow::new(), Slow::new());
    let mut pixels = vec![0u8; 64];
    let tree = Builder::new(&a)
        .device(&b)
        .capacity::<Two>()
        .over(&mut pixels, Shape::packed([8, 8]))
        .unwrap();
    let root = tree.root();
    root.fill_on(1, 7).unwrap();
    // Now on both devices, and stale at home.
    let half = root.crop([0..8, 0..4]).unwrap();
    drop(half.on_device(0, Mode::Read).unwrap());
    tree.check().unwrap();
    let mut at_home = false;
    half.for_each_fresh(Location::Host, |_| at_home = true);
    assert!(!at_home);
    let (here, arrived) = channel();
    let (go, wait) = channel();
    *a.gate.lock().unwrap() = Some((here, wait));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let half = tree.root().crop([0..8, 0..4]).unwrap();
            let guard = half.read().unwrap();
            (0..4).all(|y| (0..8).all(|x| guard[[x, y]] == 7))
        });
        arrived.recv().unwrap();
        let evicted = tree.evict(0);
        let _ = go.send(());
        assert!(reader.join().unwrap(), "read what was evicted");
        assert!(
            !a.released_meanwhile.load(Ordering::SeqCst),
            "released while it was read: {evicted:?}"
        );
    });
    tree.evict(0).unwrap();
}

/// A launch does not touch the memory of a tree that it is only given an empty view of: nothing would keep it.
#[test]
fn an_empty_view_needs_no_memory() {
    use hedgerow::driver::{ComputeDriver, Form, HostCall, KernelError, KernelSource};
    fn check(call: &HostCall<'_>) -> Result<(), KernelError> {
        let (out, none) = (call.view::<u8>(0)?, call.view::<u64>(1)?);
        assert_eq!(none.extent(0), 0);
        out.for_each(|at: [i32; 1]| out.set(at, 9));
        Ok(())
    }
    let gpu = Host::new();
    let forms = [Form::Host(check)];
    let source =
        KernelSource { name: "check", views: 2, workgroup: [1; 3], granule: 1, forms: &forms };
    let kernel = gpu.load(&source).unwrap();
    let (mut a, mut b) = ([0u8; 1], [0u64; 4]);
    let a = hedgerow::Tree::over(&mut a, Shape::packed([1]), &gpu).unwrap();
    let b = hedgerow::Tree::over(&mut b, Shape::packed([4]), &gpu).unwrap();
    let empty = b.root().crop([4..4]).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            for _ in 0..2000 {
                b.root().prefetch(0).unwrap();
                b.evict(0).unwrap();
            }
        });
        while !other.is_finished() {
            kernel.launch((a.root().as_overwrite(), empty.as_read()), 0).unwrap();
        }
    });
    let allocations = b.counters().allocations;
    kernel.launch((a.root().as_overwrite(), empty.as_read()), 0).unwrap();
    assert_eq!(b.counters().allocations, allocations);
    assert_eq!(a.root().read().unwrap()[[0]], 9);
}
