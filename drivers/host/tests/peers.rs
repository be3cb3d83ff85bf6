//! Copies from one device to another, by themselves and through the core's middlewares.

mod common;

use common::{contents, host, release, rows, upload};
use hedgerow::driver::middleware::{Counting, Counts, Fault, FaultError, Moved, Trace};
use hedgerow::driver::{Contents, CopyBox, DeviceDriver, ErrorKind, Ticket};
use hedgerow_host::{Host, HostError, HostMemory};

fn peer(bytes: usize) -> Host<'static> {
    host(bytes).peer_copies(true)
}

/// Memory that holds 0, 1, 2, ...
fn counted(driver: &impl DeviceDriver<Memory = HostMemory>, bytes: u8) -> HostMemory {
    let memory = driver.allocate(u64::from(bytes), Contents::Zeroed).unwrap().memory;
    let values: Vec<u8> = (0..bytes).collect();
    upload(driver, &values, memory, &[CopyBox::flat(0, 0, u64::from(bytes))]).unwrap();
    memory
}

fn copy_from<D: DeviceDriver>(
    to: &D,
    from: &D,
    src: D::Memory,
    dst: D::Memory,
    boxes: &[CopyBox],
) -> Option<Result<Ticket, D::Error>> {
    // SAFETY: the test keeps both memories to itself and the boxes inside, which the driver checks.
    unsafe { to.copy_from(from, src, dst, boxes, &[]) }
}

/// Four runs of two bytes, from every fourth byte to every eighth, and one more.
fn some_boxes() -> [CopyBox; 2] {
    [rows(1, 0, 2, 4, 4, 8), CopyBox::flat(20, 40, 3)]
}

fn expected() -> Vec<u8> {
    let mut out = vec![0; 64];
    for row in 0..4 {
        out[8 * row..][..2].copy_from_slice(&[1 + 4 * row as u8, 2 + 4 * row as u8]);
    }
    out[40..43].copy_from_slice(&[20, 21, 22]);
    out
}

#[test]
fn they_move_their_rows_and_no_gap() {
    let (from, to) = (peer(256), peer(256));
    assert!(to.caps().peer_copies && !host(64).caps().peer_copies);
    let (src, dst) = (counted(&from, 32), to.allocate(64, Contents::Zeroed).unwrap().memory);
    let ticket = copy_from(&to, &from, src, dst, &some_boxes()).unwrap().unwrap();
    assert!(to.poll(ticket).unwrap());
    assert_eq!(contents(&to, dst, 64), expected());
    assert_eq!(contents(&from, src, 32), (0..32).collect::<Vec<u8>>());
}

#[test]
fn who_cannot_says_so() {
    let (from, to) = (peer(256), host(256));
    let (src, dst) = (counted(&from, 32), to.allocate(64, Contents::Zeroed).unwrap().memory);
    assert_eq!(copy_from(&to, &from, src, dst, &some_boxes()), None);
    assert_eq!(contents(&to, dst, 64), [0; 64]);
}

/// The device that executes answers for itself; a lost peer is left for the core to ask.
#[test]
fn losses_are_told_apart() {
    let (from, to) = (peer(256), peer(256));
    let (src, dst) = (counted(&from, 32), to.allocate(64, Contents::Zeroed).unwrap().memory);
    from.simulate_loss();
    assert_eq!(copy_from(&to, &from, src, dst, &some_boxes()), None);
    let other = peer(256);
    let src = counted(&other, 32);
    to.simulate_loss();
    let answer = copy_from(&to, &other, src, dst, &some_boxes());
    assert_eq!(answer, Some(Err(HostError::DeviceLost)));
}

#[test]
fn middlewares_hand_them_on() {
    let (from, to) = (Counting::new(peer(256)), Counting::new(peer(256)));
    let (src, dst) = (counted(&from, 32), to.allocate(64, Contents::Zeroed).unwrap().memory);
    let before = (from.snapshot(), to.snapshot());
    copy_from(&to, &from, src, dst, &some_boxes()).unwrap().unwrap();
    let mut counts = Counts::default();
    counts.copies = Moved { calls: 1, boxes: 2, runs: 5, bytes: 11 };
    assert_eq!((from.since(&before.0), to.since(&before.1)), (Counts::default(), counts));
    assert_eq!(contents(&to, dst, 64), expected());

    // What is refused does not count.
    let (from, to) = (Counting::new(peer(256)), Counting::new(host(256)));
    let (src, dst) = (counted(&from, 32), to.allocate(64, Contents::Zeroed).unwrap().memory);
    let before = to.snapshot();
    assert_eq!(copy_from(&to, &from, src, dst, &some_boxes()), None);
    assert_eq!(to.since(&before), Counts::default());

    let (from, to) = (Trace::new(peer(256)), Trace::new(peer(256)));
    let (src, dst) = (counted(&from, 32), to.allocate(64, Contents::Zeroed).unwrap().memory);
    copy_from(&to, &from, src, dst, &some_boxes()).unwrap().unwrap();
    assert_eq!(contents(&to, dst, 64), expected());
}

#[test]
fn they_can_fail() {
    let (from, to) = (Fault::new(peer(256)), Fault::new(peer(256)));
    let (src, dst) = (counted(&from, 32), to.allocate(64, Contents::Zeroed).unwrap().memory);
    let injected = |kind| Some(Err(FaultError::Injected { call: 1, kind }));

    to.arm(1, ErrorKind::Timeout);
    let answer = copy_from(&to, &from, src, dst, &some_boxes());
    assert_eq!((answer, to.calls(), to.fired()), (injected(ErrorKind::Timeout), 1, true));
    assert_eq!(contents(&to, dst, 64), [0; 64]);

    // The first of two boxes.
    to.arm_partial(1, ErrorKind::Other);
    assert_eq!(copy_from(&to, &from, src, dst, &some_boxes()), injected(ErrorKind::Other));
    let mut half = expected();
    half[40..43].fill(0);
    assert_eq!(contents(&to, dst, 64), half);
    to.disarm();
    assert!(matches!(copy_from(&to, &from, src, dst, &some_boxes()), Some(Ok(_))));
    assert_eq!(contents(&to, dst, 64), expected());

    // A lost peer is not this device's loss.
    from.arm(1, ErrorKind::DeviceLost);
    assert!(from.flush().is_err() && from.lost());
    to.disarm();
    assert_eq!(copy_from(&to, &from, src, dst, &some_boxes()), None);
    assert_eq!(to.calls(), 0);
    from.revive();
    to.arm(1, ErrorKind::DeviceLost);
    assert_eq!(copy_from(&to, &from, src, dst, &some_boxes()), injected(ErrorKind::DeviceLost));
    assert!(to.lost() && !from.lost());
    release(&to, dst);
    release(&from, src);
}

/// A driver that says it can and then does not: a failure that was asked for is still one.
#[test]
fn a_refusal_can_fail_too() {
    let (from, to) = (Fault::new(peer(256)), Fault::new(peer(256)));
    let (src, dst) = (counted(&from, 32), to.allocate(64, Contents::Zeroed).unwrap().memory);
    from.inner().simulate_loss();
    to.disarm();
    assert_eq!(copy_from(&to, &from, src, dst, &some_boxes()), None);
    to.arm(1, ErrorKind::OutOfMemory);
    let answer = copy_from(&to, &from, src, dst, &some_boxes());
    let kind = ErrorKind::OutOfMemory;
    assert_eq!(answer, Some(Err(FaultError::Injected { call: 1, kind })));
}
