//! Copies of strided boxes: exactly their bytes, also with several threads at work.

mod common;

use common::{contents, copy, download, fill, host, rows, upload};
use hedgerow::driver::{Contents, CopyBox, DeviceDriver, Dim};
use hedgerow_host::HostMemory;

const PITCH: usize = 40;
const ROWS: usize = 16;

fn take(host: &impl DeviceDriver<Memory = HostMemory>, bytes: usize) -> HostMemory {
    host.allocate(bytes as u64, Contents::Undefined).unwrap().memory
}

/// Different bytes everywhere nearby.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 256) as u8).collect()
}

#[test]
fn uploads_write_their_rows_and_no_gap() {
    let host = host(4096);
    let memory = take(&host, PITCH * ROWS);
    let before = contents(&host, memory, PITCH * ROWS);
    let src = pattern(PITCH * ROWS);
    // 7 bytes of 5 rows, between pitches of 23 and 40: nothing is aligned.
    upload(&host, &src, memory, &[rows(3, 81, 7, 5, 23, 40)]).unwrap();
    let mut expected = before;
    for row in 0..5 {
        expected[81 + 40 * row..][..7].copy_from_slice(&src[3 + 23 * row..][..7]);
    }
    assert_eq!(contents(&host, memory, PITCH * ROWS), expected);
}

#[test]
fn downloads_write_their_rows_and_no_gap() {
    let host = host(4096);
    let memory = take(&host, PITCH * ROWS);
    let inside = pattern(PITCH * ROWS);
    let all = [CopyBox::flat(0, 0, inside.len() as u64)];
    upload(&host, &inside, memory, &all).unwrap();
    let mut out = vec![0xCC; 400];
    download(&host, memory, &mut out, &[rows(41, 11, 5, 9, 40, 33), rows(0, 390, 10, 1, 0, 0)])
        .unwrap();
    let mut expected = vec![0xCC; 400];
    for row in 0..9 {
        expected[11 + 33 * row..][..5].copy_from_slice(&inside[41 + 40 * row..][..5]);
    }
    expected[390..].copy_from_slice(&inside[..10]);
    assert_eq!(out, expected);
}

#[test]
fn three_axes_in_both_directions() {
    let host = host(4096);
    let memory = take(&host, 512);
    let src = pattern(512);
    // Planes forwards to planes backwards, columns spread out.
    let mut spread = CopyBox::flat(5, 300, 2);
    spread.push(Dim { count: 4, src_stride: 2, dst_stride: 6 });
    spread.push(Dim { count: 3, src_stride: 31, dst_stride: 25 });
    spread.push(Dim { count: 2, src_stride: 101, dst_stride: -150 });
    let mut expected = contents(&host, memory, 512);
    upload(&host, &src, memory, &[spread]).unwrap();
    for (z, y, x, byte) in (0..2).flat_map(|z| {
        (0..3).flat_map(move |y| (0..4).flat_map(move |x| (0..2).map(move |b| (z, y, x, b))))
    }) {
        let from = 5 + 2 * x + 31 * y + 101 * z + byte;
        let to = 300 + 6 * x + 25 * y + byte - 150 * z;
        expected[to] = src[from];
    }
    assert_eq!(contents(&host, memory, 512), expected);
}

#[test]
fn copies_stay_on_the_device() {
    let host = host(4096);
    let (a, b) = (take(&host, 256), host.storage(256).unwrap().memory);
    upload(&host, &pattern(256), a, &[CopyBox::flat(0, 0, 256)]).unwrap();
    copy(&host, a, b, &[rows(10, 20, 3, 6, 16, 32)]).unwrap();
    // And within one memory.
    copy(&host, b, b, &[CopyBox::flat(20, 200, 50)]).unwrap();
    let mut expected = vec![0; 256];
    for row in 0..6 {
        expected[20 + 32 * row..][..3].copy_from_slice(&pattern(256)[10 + 16 * row..][..3]);
    }
    expected.copy_within(20..70, 200);
    assert_eq!(contents(&host, b, 256), expected);
}

#[test]
fn fills_repeat_values_of_all_sizes() {
    let host = host(4096);
    for size in [1, 2, 4, 8, 16] {
        let memory = take(&host, PITCH * ROWS);
        let value = &pattern(64)[1..][..size];
        let mut expected = contents(&host, memory, PITCH * ROWS);
        fill(&host, memory, &[rows(0, 3, 32, 4, 0, 40), rows(0, 400, 16, 1, 0, 0)], value).unwrap();
        for start in [3, 43, 83, 123].into_iter().flat_map(|row| [row, row + 16]).chain([400]) {
            for (at, byte) in expected[start..][..16].iter_mut().enumerate() {
                *byte = value[at % size];
            }
        }
        assert_eq!(contents(&host, memory, PITCH * ROWS), expected, "{size}");
        common::release(&host, memory);
    }
}

#[test]
fn empty_lists_are_fine() {
    let host = host(64);
    let memory = take(&host, 64);
    assert!(upload(&host, &[], memory, &[]).is_ok());
    assert!(fill(&host, memory, &[], &[1]).is_ok());
    assert!(copy(&host, memory, memory, &[CopyBox::flat(64, 64, 0)]).is_ok());
}

#[test]
fn threads_work_on_disjoint_boxes() {
    const COLUMNS: usize = 8;
    const LENGTH: usize = if cfg!(miri) { 50 } else { 1000 };
    let host = &host(64 << 10);
    let memory = take(host, COLUMNS * LENGTH);
    // Each thread owns one byte column: neighbours in the same words.
    std::thread::scope(|scope| {
        for column in 0..COLUMNS {
            scope.spawn(move || {
                let mine = rows(0, column as u64, 1, LENGTH as u32, 1, COLUMNS as i64);
                let back = rows(column as u64, 0, 1, LENGTH as u32, COLUMNS as i64, 1);
                for round in 0..20u8 {
                    let src = vec![round.wrapping_mul(8) + column as u8; LENGTH];
                    upload(host, &src, memory, &[mine]).unwrap();
                    let mut out = vec![0; LENGTH];
                    download(host, memory, &mut out, &[back]).unwrap();
                    assert_eq!(out, src);
                    let own = take(host, 100 + column);
                    fill(host, own, &[CopyBox::flat(0, 0, 100)], &[column as u8]).unwrap();
                    assert_eq!(contents(host, own, 100), [column as u8; 100]);
                    common::release(host, own);
                }
            });
        }
    });
    let all = contents(host, memory, COLUMNS * LENGTH);
    assert!(all.iter().enumerate().all(|(at, byte)| *byte == 152 + (at % COLUMNS) as u8));
    assert_eq!(host.live_allocations(), 1);
}
