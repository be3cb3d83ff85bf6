//! What the tests of the host driver share.

#![allow(dead_code)] // each test binary uses a part

use std::time::Duration;

use hedgerow::driver::{CopyBox, DeviceDriver, Dim, Ticket};

pub(crate) const SOON: Duration = Duration::from_secs(5);

/// A device in memory that is leaked, so that tests need no feature.
pub(crate) fn host(bytes: usize) -> hedgerow_host::Host<'static> {
    let memory = vec![0xEEu8; bytes + 64].leak();
    let skip = memory.as_ptr().align_offset(64);
    hedgerow_host::Host::in_arena(&mut memory[skip..skip + bytes])
}

/// `rows` rows of `run` bytes, with a pitch on each side.
pub(crate) fn rows(
    src: u64,
    dst: u64,
    run: u64,
    rows: u32,
    src_pitch: i64,
    dst_pitch: i64,
) -> CopyBox {
    let mut copy = CopyBox::flat(src, dst, run);
    copy.push(Dim { count: rows, src_stride: src_pitch, dst_stride: dst_pitch });
    copy
}

/// Uploads boxes from a slice that holds them.
pub(crate) fn upload<D: DeviceDriver>(
    driver: &D,
    src: &[u8],
    dst: D::Memory,
    boxes: &[CopyBox],
) -> Result<Ticket, D::Error> {
    assert!(boxes.iter().all(|copy| copy.bounds().0.end <= src.len() as u64));
    // SAFETY: the boxes are inside the slice, which is borrowed for the call; the test keeps the
    // destination to itself and inside, which the driver checks.
    unsafe { driver.upload(src.as_ptr(), dst, boxes, &[]) }
}

/// Downloads boxes into a slice that holds them.
pub(crate) fn download<D: DeviceDriver>(
    driver: &D,
    src: D::Memory,
    dst: &mut [u8],
    boxes: &[CopyBox],
) -> Result<(), D::Error> {
    assert!(boxes.iter().all(|copy| copy.bounds().1.end <= dst.len() as u64));
    // SAFETY: as in `upload`.
    unsafe { driver.download(src, dst.as_mut_ptr(), boxes, &[], SOON) }
}

pub(crate) fn copy<D: DeviceDriver>(
    driver: &D,
    src: D::Memory,
    dst: D::Memory,
    boxes: &[CopyBox],
) -> Result<Ticket, D::Error> {
    // SAFETY: as in `upload`.
    unsafe { driver.copy(src, dst, boxes, &[]) }
}

pub(crate) fn fill<D: DeviceDriver>(
    driver: &D,
    dst: D::Memory,
    boxes: &[CopyBox],
    value: &[u8],
) -> Result<Ticket, D::Error> {
    // SAFETY: as in `upload`.
    unsafe { driver.fill(dst, boxes, value, &[]) }
}

/// Releases memory that the test uses no more.
pub(crate) fn release<D: DeviceDriver>(driver: &D, memory: D::Memory) {
    // SAFETY: the test allocated it from this driver and forgets it now.
    unsafe { driver.release(memory, &[]) };
}

/// All bytes of a memory.
pub(crate) fn contents<D: DeviceDriver>(driver: &D, memory: D::Memory, bytes: usize) -> Vec<u8> {
    let mut out = vec![0x77; bytes];
    download(driver, memory, &mut out, &[CopyBox::flat(0, 0, bytes as u64)]).unwrap();
    out
}
