//! A device that an engine owns: what is refused, the queue's lock, imported timelines, wrapped buffers.

mod common;
#[cfg(feature = "wgsl")]
#[allow(dead_code, reason = "the example's own main")]
#[path = "../examples/engine/main.rs"]
mod example;
#[cfg(feature = "wgsl")]
use example::own;
#[cfg(not(feature = "wgsl"))]
#[allow(dead_code, reason = "the example uses the rest")]
#[path = "../examples/engine/own.rs"]
mod own;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{SECONDS, bytes_of, holding, noise};
use hedgerow::driver::{
    Contents, CopyBox, DeviceDriver, DriverError, ErrorKind, MAX_LANES, Ticket,
};
use hedgerow_vulkan::ash::vk;
use hedgerow_vulkan::{LimitsOverride, Memory, QueueLock, Vulkan, VulkanError};
use own::Own;

/// Long enough for what should not happen to happen.
const MOMENT: Duration = Duration::from_millis(100);

/// Runs a test with an engine, and expects the validation layer to be silent to the end.
fn with_engine(test: impl FnOnce(&mut Own)) {
    let how = std::env::var("HEDGEROW_VULKAN_VALIDATION").unwrap_or_default();
    let validated = if how == "off" { None } else { Own::new(true).expect("opens") };
    let own = match validated {
        Some(own) => Some(own),
        None => Own::new(false).expect("opens"),
    };
    let Some(mut own) = own else {
        let wanted = std::env::var("HEDGEROW_REQUIRE").unwrap_or_default();
        let required = wanted.split([',', ' ']).any(|word| matches!(word, "vulkan" | "all"));
        assert!(!required, "vulkan is required");
        eprintln!("skipped: no vulkan");
        return;
    };
    test(&mut own);
    assert_eq!(own.close().expect("closes"), 0, "the validation layer complained");
}

/// hedgerow on the engine's device.
fn open(own: &Own) -> Vulkan {
    // SAFETY: tests drop all handles before `with_engine` closes the engine, whose queue is used under its
    // lock; the device is as `raw` says.
    unsafe { Vulkan::from_raw(own.raw(), own.lock.clone()) }.expect("opens")
}

/// A timeline that the test signals from the host.
struct Hand<'a> {
    device: &'a ash::Device,
    semaphore: vk::Semaphore,
}

impl<'a> Hand<'a> {
    fn new(device: &'a ash::Device) -> Self {
        let semaphore = own::timeline(device).expect("makes a semaphore");
        Self { device, semaphore }
    }

    fn signal(&self, value: u64) {
        let info = vk::SemaphoreSignalInfo::default().semaphore(self.semaphore).value(value);
        // SAFETY: it is alive, and values rise.
        unsafe { self.device.signal_semaphore(&info) }.expect("signals");
    }

    /// For when hedgerow is done with it.
    fn destroy(self) {
        // SAFETY: tests call this when the timeline is removed, or hedgerow gone.
        unsafe { self.device.destroy_semaphore(self.semaphore, None) };
    }
}

/// Fills all of the memory with a byte.
fn fill(gpu: &Vulkan, memory: Memory, len: u64, byte: u8, after: &[Ticket]) -> Ticket {
    // SAFETY: the box lies inside, and the tests order what conflicts.
    unsafe { gpu.fill(memory, &[CopyBox::flat(0, 0, len)], &[byte], after) }.expect("fills")
}

#[track_caller]
fn times_out<T: std::fmt::Debug>(result: Result<T, VulkanError>) {
    let error = result.expect_err("is not done");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
}

#[cfg(feature = "wgsl")]
#[test]
fn the_example() {
    with_engine(|own| {
        let validated = own.validated();
        assert!(example::run(validated).expect("runs"), "the validation layer complained");
    });
}

#[test]
fn works_on_a_device_of_others() {
    with_engine(|own| {
        let gpu = open(own);
        assert_eq!(gpu.info().name, own.name);
        assert!(gpu.validation_messages().is_empty());
        let bytes = noise(5, 100_003);
        let memory = holding(&gpu, &bytes);
        let passed = own.lock.passed();
        assert!(passed > 0);
        let clone = gpu.clone();
        drop(gpu);
        assert!(bytes_of(&clone, memory, bytes.len(), &[]) == bytes);
        assert_eq!(own.lock.passed(), passed + 1, "one download is one submission");
        let (buffer, size) = clone.buffer(memory).expect("is live");
        assert!(size >= 100_003 && buffer != vk::Buffer::null());
        // SAFETY: nothing uses it.
        unsafe { clone.release(memory, &[]) };
        assert!(clone.buffer(memory).is_none());
        drop(clone);
        // The engine's device is as it was.
        let value = own.submit(&[], |_, _| {}).expect("submits");
        assert!(own.wait(value, SECONDS).expect("waits"));
        // And can be shared again.
        let gpu = open(own);
        assert!(bytes_of(&gpu, holding(&gpu, &bytes), bytes.len(), &[]) == bytes);
    });
}

#[test]
fn refuses() {
    with_engine(|own| {
        // SAFETY: as in `open`; what is wrong is found before it is used.
        let refused =
            |raw| unsafe { Vulkan::from_raw(raw, own.lock.clone()) }.expect_err("refused");
        let mut raw = own.raw();
        raw.physical_device = vk::PhysicalDevice::null();
        assert!(matches!(refused(raw), VulkanError::ForeignDevice));
        let mut raw = own.raw();
        raw.api_version = vk::API_VERSION_1_1;
        let error = refused(raw);
        assert!(error.to_string().contains("its instance is for vulkan 1.1.0"), "{error}");
        let mut raw = own.raw();
        raw.queue_family_index = 99;
        let error = refused(raw);
        assert!(matches!(error, VulkanError::NoFamily { given: 99, families: 1.. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let mut raw = own.raw();
        raw.queue = vk::Queue::null();
        assert!(matches!(refused(raw), VulkanError::Null { what: "queue" }));
        assert_eq!(own.lock.passed(), 0);
    });
}

/// A lock that sometimes lets nobody in.
#[derive(Default)]
struct Moody {
    closed: AtomicBool,
}

impl QueueLock for Moody {
    fn with(&self, submit: &mut dyn FnMut()) {
        if !self.closed.load(Ordering::Relaxed) {
            submit();
            // Has no effect.
            submit();
        }
    }
}

#[test]
fn a_lock_that_does_not_submit() {
    with_engine(|own| {
        let lock = Arc::new(Moody::default());
        // SAFETY: as in `open`; nobody else uses the queue here.
        let gpu = unsafe { Vulkan::from_raw(own.raw(), lock.clone()) }.expect("opens");
        let memory = gpu.allocate(64, Contents::Zeroed).expect("allocates");
        let ticket = fill(&gpu, memory.memory, 64, 3, &[memory.ready]);
        lock.closed.store(true, Ordering::Relaxed);
        for _ in 0..2 {
            assert!(matches!(gpu.flush(), Err(VulkanError::QueueLock)));
            assert!(matches!(gpu.wait(ticket, SECONDS), Err(VulkanError::QueueLock)));
        }
        lock.closed.store(false, Ordering::Relaxed);
        gpu.wait(ticket, SECONDS).expect("is done");
        assert_eq!(bytes_of(&gpu, memory.memory, 64, &[ticket]), [3; 64]);
    });
}

/// An upload of several pieces that fails between two of them, and is made again.
#[test]
fn a_failed_upload_is_made_again() {
    with_engine(|own| {
        let lock = Arc::new(Moody::default());
        let mut limits = LimitsOverride::default();
        limits.staging_chunk = Some(4096);
        limits.staging_chunks = Some(1);
        // SAFETY: as in `open`; nobody else uses the queue here.
        let gpu = unsafe { Vulkan::builder().limits(limits).from_raw(own.raw(), lock.clone()) };
        let gpu = gpu.expect("opens");
        let len = 64 << 10;
        let memory = gpu.allocate(len, Contents::Undefined).expect("allocates").memory;
        let all = [CopyBox::flat(0, 0, len)];
        let (first, second) = (noise(1, len as usize), noise(2, len as usize));
        lock.closed.store(true, Ordering::Relaxed);
        // SAFETY: the box lies inside both.
        let failed = unsafe { gpu.upload(first.as_ptr(), memory, &all, &[]) };
        assert!(matches!(failed, Err(VulkanError::QueueLock)));
        lock.closed.store(false, Ordering::Relaxed);
        // SAFETY: as above; what the failed call began is over before.
        let ticket = unsafe { gpu.upload(second.as_ptr(), memory, &all, &[]) }.expect("uploads");
        assert!(bytes_of(&gpu, memory, second.len(), &[ticket]) == second);
    });
}

/// hedgerow follows the engine: only what must, and until the value is signalled.
#[test]
fn follows_an_imported_timeline() {
    with_engine(|own| {
        let hand = Hand::new(&own.device);
        let gpu = open(own);
        // SAFETY: it is a timeline of this device, destroyed below when hedgerow is gone.
        let lane = unsafe { gpu.import_timeline(hand.semaphore) }.expect("a lane");
        let a = gpu.allocate(4096, Contents::Zeroed).expect("allocates");
        let b = gpu.allocate(4096, Contents::Zeroed).expect("allocates");
        let theirs = gpu.ticket(lane, 5).expect("a ticket");
        assert_eq!((theirs.lane, lane.index()), (1, 1));

        let before = fill(&gpu, a.memory, 4096, 1, &[a.ready]);
        let after = fill(&gpu, a.memory, 4096, 2, &[before, theirs]);
        let later = fill(&gpu, b.memory, 4096, 3, &[b.ready]);
        gpu.flush().expect("submits");
        gpu.wait(before, SECONDS).expect("does not wait for the timeline");
        for _ in 0..2 {
            assert!(!gpu.poll(theirs).expect("polls"));
            assert!(!gpu.poll(after).expect("polls"));
            times_out(gpu.wait(theirs, MOMENT));
            times_out(gpu.wait(after, MOMENT));
            let mut host = [7; 64];
            let all = [CopyBox::flat(0, 0, 64)];
            // SAFETY: the box lies inside both.
            let got = unsafe { gpu.download(a.memory, host.as_mut_ptr(), &all, &[after], MOMENT) };
            times_out(got);
            assert_eq!(host, [7; 64]);
        }
        hand.signal(4);
        times_out(gpu.wait(theirs, MOMENT));
        hand.signal(6);
        gpu.wait(theirs, SECONDS).expect("is reached");
        assert!(gpu.poll(theirs).expect("polls"));
        gpu.wait(later, SECONDS).expect("is done");
        assert_eq!(bytes_of(&gpu, a.memory, 4096, &[after]), [2; 4096]);
        assert_eq!(bytes_of(&gpu, b.memory, 4096, &[later]), [3; 4096]);
        drop(gpu);
        hand.destroy();
    });
}

/// The engine follows hedgerow, and hedgerow the engine.
#[test]
fn follows_each_other() {
    with_engine(|own| {
        let gpu = open(own);
        // SAFETY: the engine signals it after its work, and destroys it when hedgerow is gone.
        let lane = unsafe { gpu.import_timeline(own.timeline) }.expect("a lane");
        let len = 1 << 20;
        let a = gpu.allocate(len, Contents::Zeroed).expect("allocates");
        let b = gpu.allocate(len, Contents::Zeroed).expect("allocates");
        let buffer = |memory| gpu.buffer(memory).expect("is live").0;
        let (from, to) = (buffer(a.memory), buffer(b.memory));
        let mut theirs = Ticket::DONE;
        for round in 1..=20 {
            let ours = fill(&gpu, a.memory, len, round, &[a.ready, theirs]);
            // In the same batch, so that the value of `ours` is not signalled itself.
            fill(&gpu, b.memory, len, 0xff, &[b.ready, theirs]);
            let wait = gpu.semaphore_wait(ours).expect("submits");
            assert_eq!(wait, (gpu.timeline(), ours.value + 1));
            let copied = own.submit(&[wait], |device, commands| {
                let all = [vk::BufferCopy::default().size(len)];
                // SAFETY: both are of that size, and hedgerow uses neither before the signal.
                unsafe { device.cmd_copy_buffer(commands, from, to, &all) };
            });
            theirs = gpu.ticket(lane, copied.expect("submits")).expect("a ticket");
            assert_eq!(gpu.semaphore_wait(theirs).expect("known"), (own.timeline, theirs.value));
            if round % 4 == 0 {
                let all = bytes_of(&gpu, b.memory, len as usize, &[theirs]);
                assert!(all.iter().all(|byte| *byte == round));
            }
        }
        let error = gpu.semaphore_wait(Ticket { lane: 0, value: 1 << 40 }).expect_err("unknown");
        assert!(matches!(error, VulkanError::UnknownTicket { .. }));
        gpu.wait(theirs, SECONDS).expect("is done");
        assert_eq!(gpu.semaphore_wait(Ticket::DONE).expect("is done").0, gpu.timeline());
    });
}

#[test]
fn timelines_come_and_go() {
    with_engine(|own| {
        let (hand, other) = (Hand::new(&own.device), Hand::new(&own.device));
        let gpu = open(own);
        // SAFETY: they are timelines of this device, destroyed when they are removed or hedgerow is gone.
        let import = |semaphore| unsafe { gpu.import_timeline(semaphore) };
        let lane = import(hand.semaphore).expect("a lane");
        for _ in 2..MAX_LANES {
            import(other.semaphore).expect("a lane");
        }
        assert!(matches!(import(other.semaphore), Err(VulkanError::NoLane { most: 3 })));
        assert!(matches!(import(vk::Semaphore::null()), Err(VulkanError::Null { .. })));
        let never = Ticket { lane: 7, value: 1 };
        assert!(matches!(gpu.wait(never, SECONDS), Err(VulkanError::UnknownTicket { .. })));
        assert!(matches!(gpu.poll(never), Err(VulkanError::UnknownTicket { .. })));

        let memory = gpu.allocate(64, Contents::Zeroed).expect("allocates");
        let old = gpu.ticket(lane, 9).expect("a ticket");
        let ours = fill(&gpu, memory.memory, 64, 1, &[memory.ready, old]);
        for _ in 0..2 {
            times_out(gpu.remove_timeline(lane, MOMENT));
            assert!(!gpu.poll(old).expect("is there still"));
        }
        hand.signal(9);
        gpu.remove_timeline(lane, SECONDS).expect("is removed");
        assert!(gpu.poll(ours).expect("polls"));
        assert!(matches!(
            gpu.remove_timeline(lane, SECONDS),
            Err(VulkanError::StaleLane { lane: 1 })
        ));
        assert!(matches!(gpu.ticket(lane, 10), Err(VulkanError::StaleLane { lane: 1 })));
        hand.destroy();

        // Another one in its lane: its tickets are later ones, and the old stay done.
        let next = Hand::new(&own.device);
        let lane = import(next.semaphore).expect("a lane");
        let new = gpu.ticket(lane, 1).expect("a ticket");
        assert_eq!(new, Ticket { lane: 1, value: 10 });
        assert!(gpu.poll(old).expect("polls"));
        assert_eq!(gpu.semaphore_wait(old).expect("is done").0, gpu.timeline());
        assert_eq!(gpu.semaphore_wait(new).expect("is known"), (next.semaphore, 1));
        let ours = fill(&gpu, memory.memory, 64, 2, &[ours, old, new]);
        gpu.flush().expect("submits");
        times_out(gpu.wait(ours, MOMENT));
        next.signal(1);
        assert_eq!(bytes_of(&gpu, memory.memory, 64, &[ours]), [2; 64]);
        gpu.simulate_loss();
        let lost = gpu.remove_timeline(lane, SECONDS).expect_err("lost");
        assert_eq!(lost.kind(), ErrorKind::DeviceLost);
        drop(gpu);
        next.destroy();
        other.destroy();
    });
}

/// Released memory is kept, and closing waits, until the engine is done.
#[test]
fn keeps_memory_until_the_engine_is_done() {
    with_engine(|own| {
        let hand = Hand::new(&own.device);
        let len = 64 << 10;
        // SAFETY: as in `open`.
        let gpu = unsafe { Vulkan::builder().budget(len).from_raw(own.raw(), own.lock.clone()) };
        let gpu = gpu.expect("opens");
        // SAFETY: it is a timeline of this device, destroyed below when hedgerow is gone.
        let lane = unsafe { gpu.import_timeline(hand.semaphore) }.expect("a lane");
        let ticket = |value| gpu.ticket(lane, value).expect("a ticket");
        let first = gpu.allocate(len, Contents::Zeroed).expect("allocates");
        gpu.wait(first.ready, SECONDS).expect("is done");
        // SAFETY: nothing uses it after the ticket.
        unsafe { gpu.release(first.memory, &[ticket(1)]) };
        let signal_late = |value| {
            let hand = &hand;
            move || {
                thread::sleep(MOMENT);
                hand.signal(value);
            }
        };
        thread::scope(|scope| {
            let start = Instant::now();
            scope.spawn(signal_late(1));
            gpu.allocate(len, Contents::Undefined).expect("waits for the engine");
            assert!(start.elapsed() >= MOMENT);
        });
        ticket(2);
        thread::scope(|scope| {
            let start = Instant::now();
            scope.spawn(signal_late(2));
            drop(gpu);
            assert!(start.elapsed() >= MOMENT);
        });
        hand.destroy();
    });
}

/// A buffer of the engine's: used as any memory, and left alone when it is released.
#[test]
fn wraps_buffers() {
    with_engine(|own| {
        let bytes = 10_000;
        let info = vk::BufferCreateInfo::default().size(bytes).usage(
            vk::BufferUsageFlags::STORAGE_BUFFER
                | vk::BufferUsageFlags::TRANSFER_SRC
                | vk::BufferUsageFlags::TRANSFER_DST,
        );
        // SAFETY: the size is not zero.
        let buffer = unsafe { own.device.create_buffer(&info, None) }.expect("makes a buffer");
        // SAFETY: it is alive.
        let needs = unsafe { own.device.get_buffer_memory_requirements(buffer) };
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(needs.size)
            .memory_type_index(needs.memory_type_bits.trailing_zeros());
        // SAFETY: the type is one that the buffer allows.
        let memory = unsafe { own.device.allocate_memory(&info, None) }.expect("allocates");
        // SAFETY: both are alive, and the buffer is not bound.
        unsafe { own.device.bind_buffer_memory(buffer, memory, 0) }.expect("binds");

        // SAFETY: as in `open`.
        let gpu = unsafe { Vulkan::builder().budget(16).from_raw(own.raw(), own.lock.clone()) };
        let gpu = gpu.expect("opens");
        // SAFETY: a buffer of this device with these usages and bytes, destroyed when hedgerow is gone.
        let wrap = |buffer, bytes| unsafe { gpu.wrap_buffer(buffer, bytes) };
        assert!(matches!(wrap(vk::Buffer::null(), 16), Err(VulkanError::Null { what: "buffer" })));
        for wrong in [0, needs.size + 1] {
            let error = wrap(buffer, wrong).expect_err("too small");
            assert!(matches!(error, VulkanError::TooSmall { .. }), "{error}");
        }
        for round in 0..3 {
            let wrapped = wrap(buffer, bytes).expect("wraps");
            assert_eq!(gpu.buffer(wrapped), Some((buffer, bytes)));
            let host = noise(round + 1, bytes as usize);
            let all = [CopyBox::flat(0, 0, bytes)];
            // SAFETY: the box lies inside both.
            let ticket = unsafe { gpu.upload(host.as_ptr(), wrapped, &all, &[]) };
            let ticket = ticket.expect("uploads");
            assert!(bytes_of(&gpu, wrapped, host.len(), &[ticket]) == host);
            // SAFETY: the download has waited.
            unsafe { gpu.release(wrapped, &[ticket]) };
            assert!(gpu.buffer(wrapped).is_none());
        }
        // One that is never released is left alone, too.
        wrap(buffer, bytes).expect("wraps");
        drop(gpu);
        // SAFETY: hedgerow is gone, and nobody else uses it.
        unsafe { own.device.destroy_buffer(buffer, None) };
        // SAFETY: as above.
        unsafe { own.device.free_memory(memory, None) };
    });
}

/// Polls until done: never submits.
fn done_by_itself(gpu: &Vulkan, ticket: Ticket) -> bool {
    let start = Instant::now();
    while start.elapsed() < SECONDS {
        if gpu.poll(ticket).expect("polls") {
            return true;
        }
        thread::sleep(Duration::from_millis(1));
    }
    false
}

#[test]
fn a_large_batch_submits_itself() {
    with_engine(|own| {
        let gpu = open(own);
        let memory = gpu.allocate(64, Contents::Zeroed).expect("allocates");
        let mut ticket = memory.ready;
        // With the one that zeroed the memory, one less than enough.
        for _ in 0..1022 {
            ticket = fill(&gpu, memory.memory, 64, 1, &[ticket]);
        }
        assert_eq!(own.lock.passed(), 0);
        ticket = fill(&gpu, memory.memory, 64, 2, &[ticket]);
        assert_eq!(own.lock.passed(), 1);
        assert!(done_by_itself(&gpu, ticket));
        // By bytes of staging.
        let len = 20 << 20;
        let large = gpu.allocate(len, Contents::Undefined).expect("allocates");
        let host = noise(1, len as usize);
        // SAFETY: the box lies inside both.
        let ticket =
            unsafe { gpu.upload(host.as_ptr(), large.memory, &[CopyBox::flat(0, 0, len)], &[]) };
        assert_eq!(own.lock.passed(), 2);
        assert!(bytes_of(&gpu, large.memory, host.len(), &[ticket.expect("uploads")]) == host);
    });
}

/// What was accepted stays so when the batch cannot be submitted, by itself or by a flush.
#[test]
fn failed_submissions_are_retried() {
    with_engine(|own| {
        let gpu = open(own);
        let memory = gpu.allocate(1 << 20, Contents::Zeroed).expect("allocates");
        gpu.wait(memory.ready, SECONDS).expect("is done");
        let passed = own.lock.passed();
        let mut ticket = memory.ready;
        gpu.simulate_failed_submits(3);
        for at in 0..2100u64 {
            let one = [CopyBox::flat(0, at * 4, 4)];
            // SAFETY: the box lies inside.
            let filled = unsafe { gpu.fill(memory.memory, &one, &[at as u8], &[]) };
            ticket = filled.expect("is accepted");
        }
        assert_eq!(own.lock.passed(), passed, "two batches failed to submit themselves");
        let error = gpu.flush().expect_err("the third");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        assert!(!gpu.poll(ticket).expect("polls"));
        gpu.wait(ticket, SECONDS).expect("submits all");
        assert_eq!(own.lock.passed(), passed + 3);
        let all = bytes_of(&gpu, memory.memory, 2100 * 4, &[ticket]);
        assert!(all.iter().enumerate().all(|(at, byte)| *byte == (at / 4) as u8));
    });
}

/// Flushing without end does not grow without end.
#[test]
fn a_crowd_of_batches() {
    with_engine(|own| {
        let gpu = open(own);
        let memory = gpu.allocate(4 << 20, Contents::Zeroed).expect("allocates");
        let mut ticket = memory.ready;
        for round in 0..600 {
            ticket = fill(&gpu, memory.memory, 4 << 20, round as u8, &[ticket]);
            gpu.flush().expect("submits");
        }
        let first = bytes_of(&gpu, memory.memory, 64, &[ticket]);
        assert_eq!(first, [599u32 as u8; 64]);
    });
}
