//! The core's middlewares, around a driver that moves bytes.

mod common;

use std::error::Error as _;

use common::{contents, copy, download, fill, host, release, rows, upload};
use hedgerow::driver::middleware::{Counting, Counts, Fault, FaultError, Moved, Reserved};
use hedgerow::driver::{
    ComputeDriver, Contents, CopyBox, Device, DeviceDriver, Dispatch, DriverError, ErrorKind, Form,
    HostCall, KernelError, KernelSource, Ticket,
};
use hedgerow_host::{HostError, HostMemory, POISON};

fn nothing(_: &HostCall<'_>) -> Result<(), KernelError> {
    Ok(())
}

const NOTHING: KernelSource<'static> = KernelSource {
    name: "nothing",
    views: 0,
    workgroup: [1, 1, 1],
    granule: 1,
    forms: &[Form::Host(nothing)],
};

/// One call of each kind; `[0]` is what all uploads after an error would see.
fn all_calls<D: ComputeDriver<Memory = HostMemory>>(driver: &D) -> Result<(), D::Error> {
    let memory = driver.allocate(256, Contents::Undefined)?.memory;
    let storage = driver.storage(128)?.memory;
    upload(driver, &[1; 256], memory, &[rows(0, 0, 8, 4, 16, 32), CopyBox::flat(0, 200, 5)])?;
    let mut out = [0; 64];
    download(driver, memory, &mut out, &[rows(0, 0, 8, 4, 32, 10)])?;
    copy(driver, memory, storage, &[CopyBox::flat(0, 0, 100)])?;
    let filled = fill(driver, storage, &[rows(0, 0, 4, 3, 0, 8)], &[1, 2])?;
    let kernel = driver.load_kernel(&NOTHING)?;
    // SAFETY: it is given no memory.
    let ran = unsafe {
        driver.dispatch(&kernel, &Dispatch { views: &[], params: &[], groups: [1; 3] }, &[filled])
    }?;
    driver.flush()?;
    assert!(driver.poll(ran)?);
    driver.wait(ran, common::SOON)?;
    release(driver, memory);
    release(driver, storage);
    Ok(())
}

/// Fallible calls in `all_calls`.
const CALLS: u32 = 11;

fn one_of_each() -> Counts {
    let mut counts = Counts::default();
    counts.allocations = Reserved { calls: 1, bytes: 256 };
    counts.storages = Reserved { calls: 1, bytes: 128 };
    counts.releases = 2;
    counts.uploads = Moved { calls: 1, boxes: 2, runs: 5, bytes: 37 };
    counts.downloads = Moved { calls: 1, boxes: 1, runs: 4, bytes: 32 };
    counts.copies = Moved { calls: 1, boxes: 1, runs: 1, bytes: 100 };
    counts.fills = Moved { calls: 1, boxes: 1, runs: 3, bytes: 12 };
    (counts.loads, counts.dispatches) = (1, 1);
    (counts.flushes, counts.polls, counts.waits) = (1, 1, 1);
    counts
}

#[test]
fn counting_counts() {
    let host = host(1024);
    let counting = Counting::new(&host);
    assert_eq!((counting.id(), counting.caps().max_allocation), (host.id(), 1024));
    assert_eq!(counting.snapshot().to_string(), "nothing");
    all_calls(&counting).unwrap();
    let first = counting.snapshot();
    assert_eq!(first, one_of_each());
    assert_eq!((first.bytes_moved(), first.live()), (169, 0));
    assert_eq!(
        first.to_string(),
        "allocate 1 (256 B), storage 1 (128 B), upload 1 (2 boxes, 5 runs, 37 B), \
         download 1 (1 boxes, 4 runs, 32 B), copy 1 (1 boxes, 1 runs, 100 B), \
         fill 1 (1 boxes, 3 runs, 12 B), release 2, load 1, dispatch 1, flush 1, poll 1, wait 1"
    );
    all_calls(&counting).unwrap();
    assert_eq!(counting.since(&first), one_of_each());

    // A refused call is a failure and nothing else.
    let before = counting.snapshot();
    assert!(counting.allocate(4096, Contents::Zeroed).is_err());
    assert_eq!(counting.since(&before).to_string(), "failure 1");

    let all = counting.reset();
    assert_eq!(all.uploads.calls, 2);
    assert_eq!(counting.snapshot(), Counts::default());
    assert_eq!(counting.since(&all), Counts::default());
}

#[test]
fn middlewares_own_or_borrow_and_nest() {
    fn takes<H: Device<Driver = D>, D: ComputeDriver<Memory = HostMemory>>(device: H) {
        all_calls(device.driver()).unwrap();
    }
    let host = host(1024);
    let counting = Counting::new(Fault::new(&host));
    takes(&counting);
    takes(counting);
    let owned = Fault::new(Counting::new(common::host(1024)));
    all_calls(&owned).unwrap();
    assert_eq!(owned.inner().snapshot(), one_of_each());
    assert_eq!(owned.into_inner().into_inner().used_bytes(), 0);
    takes(Counting::new(host));
}

#[test]
fn every_call_can_fail_before_it_reaches_the_driver() {
    for n in 1..=CALLS + 1 {
        let host = host(1024);
        let fault = Fault::new(Counting::new(&host));
        fault.arm(n, ErrorKind::OutOfMemory);
        let answer = all_calls(&fault);
        assert_eq!(fault.fired(), n <= CALLS);
        assert_eq!(fault.calls(), n.min(CALLS));
        let counts = fault.inner().snapshot();
        assert_eq!(counts.failures, 0);
        if n > CALLS {
            assert_eq!(answer, Ok(()));
            assert_eq!(counts, one_of_each());
            continue;
        }
        let error = answer.unwrap_err();
        assert_eq!(error, FaultError::Injected { call: n, kind: ErrorKind::OutOfMemory });
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert_eq!(error.to_string(), format!("injected at call {n}: out of memory"));
        // Once: the next time all goes well.
        fault.disarm();
        all_calls(&fault).unwrap();
        assert_eq!((fault.calls(), fault.fired()), (CALLS, false));
    }
}

#[test]
fn the_drivers_own_errors_pass() {
    let fault = Fault::new(host(1024));
    let error = fault.allocate(4096, Contents::Zeroed).unwrap_err();
    let inner = HostError::TooLarge { bytes: 4096, limit: 1024 };
    assert_eq!(error, FaultError::Driver(inner));
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::TooLarge, inner.to_string()));
    assert!(error.source().is_none());
}

#[test]
fn an_injected_loss_is_one_way() {
    let host = host(1024);
    let fault = Fault::new(Counting::new(&host));
    let memory = fault.allocate(64, Contents::Zeroed).unwrap().memory;
    fault.arm(2, ErrorKind::DeviceLost);
    let done = fill(&fault, memory, &[CopyBox::flat(0, 0, 64)], &[1]).unwrap();
    assert!(!fault.lost());
    let lost = FaultError::Injected { call: 2, kind: ErrorKind::DeviceLost };
    let before = fault.inner().snapshot();
    assert_eq!(fault.flush(), Err(lost));
    // What was accepted has ended before the loss was told.
    assert_eq!(fault.inner().since(&before).to_string(), "wait 1");
    let before = fault.inner().snapshot();
    assert!(fault.lost() && fault.fired());
    assert_eq!(fault.poll(done), Err(lost));
    assert_eq!(all_calls(&fault), Err(lost));
    fault.disarm();
    assert_eq!(fault.wait(Ticket::DONE, common::SOON), Err(lost));
    assert_eq!(fault.inner().since(&before), Counts::default());
    // Memory is given back all the same.
    release(&fault, memory);
    assert_eq!(host.live_allocations(), 0);
    fault.revive();
    all_calls(&fault).unwrap();
}

/// Bytes of a fresh memory that a call changed.
fn changed(driver: &impl DeviceDriver<Memory = HostMemory>, memory: HostMemory) -> Vec<usize> {
    let bytes = contents(driver, memory, 64);
    (0..64).filter(|at| bytes[*at] != POISON).collect()
}

#[test]
fn a_part_of_a_list_can_be_done() {
    let host = host(4096);
    let fault = Fault::new(&host);
    let fresh = || host.allocate(64, Contents::Undefined).unwrap().memory;
    let partial = |kind| fault.arm_partial(1, kind);
    let timeout = Err(FaultError::Injected { call: 1, kind: ErrorKind::Timeout });

    // Two boxes: one. One box: half of its rows, or of its run. Three: one and a half.
    let memory = fresh();
    partial(ErrorKind::Timeout);
    let two = [CopyBox::flat(0, 0, 4), CopyBox::flat(0, 10, 4)];
    assert_eq!(upload(&fault, &[0; 64], memory, &two).map(drop), timeout);
    assert_eq!(changed(&host, memory), [0, 1, 2, 3]);

    let memory = fresh();
    partial(ErrorKind::Timeout);
    assert_eq!(upload(&fault, &[0; 64], memory, &[rows(0, 0, 2, 5, 2, 8)]).map(drop), timeout);
    assert_eq!(changed(&host, memory), [0, 1, 8, 9]);

    let memory = fresh();
    partial(ErrorKind::Timeout);
    let three = [CopyBox::flat(0, 0, 1), CopyBox::flat(0, 10, 5), CopyBox::flat(0, 20, 9)];
    assert_eq!(upload(&fault, &[0; 64], memory, &three).map(drop), timeout);
    assert_eq!(changed(&host, memory), [0, 10, 11]);

    // A copy that fails has done nothing: what it writes may be the only newest value.
    let (from, memory) = (host.storage(64).unwrap().memory, fresh());
    partial(ErrorKind::Timeout);
    assert_eq!(copy(&fault, from, memory, &three).map(drop), timeout);
    assert_eq!(changed(&host, memory), []);

    let mut out = [0xCC; 8];
    partial(ErrorKind::Timeout);
    assert_eq!(download(&fault, from, &mut out, &[CopyBox::flat(0, 0, 8)]), timeout);
    assert_eq!(out, [0, 0, 0, 0, 0xCC, 0xCC, 0xCC, 0xCC]);

    // Nor has a fill ...
    let memory = fresh();
    partial(ErrorKind::Timeout);
    let long = [CopyBox::flat(0, 0, 24)];
    assert_eq!(fill(&fault, memory, &long, &[0; 8]).map(drop), timeout);
    assert_eq!(changed(&host, memory), []);
    // ... but in a loss, which leaves whole values.
    partial(ErrorKind::DeviceLost);
    let lost = FaultError::Injected { call: 1, kind: ErrorKind::DeviceLost };
    assert_eq!(fill(&fault, memory, &long, &[0; 8]), Err(lost));
    assert_eq!(changed(&host, memory), (0..8).collect::<Vec<_>>());

    fault.revive();
    partial(ErrorKind::Other);
    assert!(fault.flush().is_err());
}
