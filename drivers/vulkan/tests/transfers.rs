//! Uploads, downloads, copies and fills touch exactly the bytes of their boxes.

mod common;

use std::time::Duration;

use common::{
    SECONDS, SPACE, box_lists, boxed, byte, bytes_of, holding, model, noise, on_all,
    open_validated, open_with, reversed, silent,
};
use hedgerow::driver::{Contents, CopyBox, DeviceDriver, DriverError, ErrorKind, Ticket};
use hedgerow_vulkan::{LimitsOverride, Vulkan};

const LEN: usize = SPACE as usize;

#[test]
fn uploads() {
    on_all(|gpu| {
        for (seed, boxes) in box_lists().into_iter().enumerate() {
            let (host, old) = (noise(seed as u64 + 1, LEN), noise(seed as u64 + 100, LEN));
            let memory = holding(gpu, &old);
            // SAFETY: the lists lie inside both sides.
            let ticket =
                unsafe { gpu.upload(host.as_ptr(), memory, &boxes, &[]) }.expect("uploads");
            let mut expected = old.clone();
            model(&host, &mut expected, &boxes);
            assert!(bytes_of(gpu, memory, LEN, &[ticket]) == expected, "{}: {boxes:?}", gpu.name);
            // SAFETY: the download has waited for all work on it.
            unsafe { gpu.release(memory, &[ticket]) };
        }
    });
}

/// The bytes are read during the call: changing them afterwards changes nothing.
#[test]
fn uploads_take_a_snapshot() {
    on_all(|gpu| {
        let mut host = noise(3, LEN);
        let before = host.clone();
        let memory = gpu.allocate(SPACE, Contents::Undefined).expect("allocates").memory;
        let boxes = [CopyBox::flat(0, 0, SPACE)];
        // SAFETY: the box lies inside both sides.
        let ticket = unsafe { gpu.upload(host.as_ptr(), memory, &boxes, &[]) }.expect("uploads");
        host.fill(0);
        assert!(bytes_of(gpu, memory, LEN, &[ticket]) == before);
    });
}

#[test]
fn downloads() {
    on_all(|gpu| {
        for (seed, boxes) in box_lists().into_iter().enumerate() {
            let device = noise(seed as u64 + 1, LEN);
            let old = noise(seed as u64 + 200, LEN);
            let memory = holding(gpu, &device);
            let mut host = old.clone();
            // SAFETY: the lists lie inside both sides.
            unsafe { gpu.download(memory, host.as_mut_ptr(), &boxes, &[], SECONDS) }
                .expect("downloads");
            let mut expected = old;
            model(&device, &mut expected, &boxes);
            assert!(host == expected, "{}: {boxes:?}", gpu.name);
            // The reverse of a list brings the bytes back where they were.
            let boxes = reversed(&boxes);
            let fresh = gpu.allocate(SPACE, Contents::Zeroed).expect("allocates");
            // SAFETY: as above.
            let ticket = unsafe { gpu.upload(host.as_ptr(), fresh.memory, &boxes, &[fresh.ready]) }
                .expect("uploads");
            let mut expected = vec![0; LEN];
            model(&host, &mut expected, &boxes);
            let after = [fresh.ready, ticket];
            assert!(bytes_of(gpu, fresh.memory, LEN, &after) == expected);
            // SAFETY: the downloads have waited for all work on them.
            unsafe { gpu.release(memory, &[]) };
            // SAFETY: as above.
            unsafe { gpu.release(fresh.memory, &[ticket]) };
        }
    });
}

#[test]
fn copies() {
    on_all(|gpu| {
        for (seed, boxes) in box_lists().into_iter().enumerate() {
            let (a, b) = (noise(seed as u64 + 1, LEN), noise(seed as u64 + 300, LEN));
            let (src, dst) = (holding(gpu, &a), holding(gpu, &b));
            // SAFETY: the lists lie inside both sides.
            let ticket = unsafe { gpu.copy(src, dst, &boxes, &[]) }.expect("copies");
            let mut expected = b;
            model(&a, &mut expected, &boxes);
            assert!(bytes_of(gpu, dst, LEN, &[ticket]) == expected, "{}: {boxes:?}", gpu.name);
            assert!(bytes_of(gpu, src, LEN, &[]) == a);
            // SAFETY: the downloads have waited for all work on them.
            unsafe { gpu.release(src, &[ticket]) };
            // SAFETY: as above.
            unsafe { gpu.release(dst, &[ticket]) };
        }
    });
}

/// More runs than one command takes.
#[test]
fn many_runs() {
    on_all(|gpu| runs(gpu, 4_501));
}

/// More runs than one piece takes. Not validated: the layer takes minutes.
#[test]
fn very_many_runs() {
    if let Some(gpu) = open_validated(LimitsOverride::default(), None, false) {
        runs(&gpu, 100_001);
    }
}

fn runs(gpu: &Vulkan, count: u32) {
    let len = 1_000_003;
    let (host, old) = (noise(5, len), noise(6, len));
    let boxes = [boxed(1, 2, 1, &[(count, 7, 9)])];
    let memory = holding(gpu, &old);
    // SAFETY: the box lies inside both sides.
    let ticket = unsafe { gpu.upload(host.as_ptr(), memory, &boxes, &[]) }.expect("uploads");
    let mut expected = old.clone();
    model(&host, &mut expected, &boxes);
    assert!(bytes_of(gpu, memory, len, &[ticket]) == expected);
    let mut back = old.clone();
    let boxes = reversed(&boxes);
    // SAFETY: as above.
    unsafe { gpu.download(memory, back.as_mut_ptr(), &boxes, &[], SECONDS) }.expect("downloads");
    let mut expected_back = old;
    model(&expected, &mut expected_back, &boxes);
    assert!(back == expected_back);
}

/// Offset, elements in a run, rows around it: in elements but for the offset.
type Shape = (u64, u64, &'static [(u32, i64)]);

#[test]
fn fills() {
    on_all(|gpu| {
        let old = noise(7, LEN);
        let values: [&[u8]; 9] = [
            &[7],
            &[1, 2],
            &[1, 2, 3, 4],
            &[9, 9, 9, 9],
            &[1, 2, 3, 4, 5, 6, 7, 8],
            &[1, 2, 3, 4, 1, 2, 3, 4],
            &[0; 8],
            &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
            &[0; 16],
        ];
        let shapes: [Shape; 7] = [
            (0, 4096, &[]),
            (1, 333, &[]),
            (2, 1, &[(100, 3)]),
            (3, 5, &[(7, 9), (3, 100)]),
            (1023, 4001, &[]),
            (5, 1, &[]),
            (7, 600, &[(5, 700)]),
        ];
        for value in values {
            for (offset, elements, rows) in shapes {
                let size = value.len() as u64;
                let dims: Vec<_> =
                    rows.iter().map(|(count, step)| (*count, 0, step * size as i64)).collect();
                let mut one = boxed(0, offset, elements * size, &[]);
                for (count, src_stride, dst_stride) in dims {
                    one.push(hedgerow::driver::Dim { count, src_stride, dst_stride });
                }
                if one.bounds().1.end > SPACE {
                    continue;
                }
                let memory = holding(gpu, &old);
                // SAFETY: the box lies inside.
                let ticket = unsafe { gpu.fill(memory, &[one], value, &[]) }.expect("fills");
                let mut expected = old.clone();
                one.for_each_run(|_, at| {
                    for i in 0..one.run {
                        expected[(at + i) as usize] = value[(i % size) as usize];
                    }
                });
                let got = bytes_of(gpu, memory, LEN, &[ticket]);
                assert!(got == expected, "{}: {value:?} into {one:?}", gpu.name);
                // SAFETY: the download has waited for all work on it.
                unsafe { gpu.release(memory, &[ticket]) };
            }
        }
    });
}

/// A pattern longer than any staging chunk, and many rows that are too short for a command each.
#[test]
fn long_and_many_fills() {
    on_all(|gpu| {
        let len = 3_000_000;
        let value: Vec<u8> = (1..=16).collect();
        let memory = holding(gpu, &vec![0; len]);
        let one = boxed(0, 3, 2_000_000, &[]);
        let rows = boxed(0, 2_000_101, 16, &[(5_000, 0, 33)]);
        // SAFETY: the boxes lie inside.
        let ticket = unsafe { gpu.fill(memory, &[one, rows], &value, &[]) }.expect("fills");
        let mut expected = vec![0; len];
        for i in 0..2_000_000 {
            expected[3 + i] = value[i % 16];
        }
        for row in 0..5_000 {
            expected[2_000_101 + row * 33..][..16].copy_from_slice(&value);
        }
        assert!(bytes_of(gpu, memory, len, &[ticket]) == expected);
    });
}

/// Memory that was used before is zeroed when it is handed out again.
#[test]
fn zeroed() {
    on_all(|gpu| {
        for len in [1, 3, 4, 17, 4096, LEN] {
            for _ in 0..3 {
                let fresh = gpu.allocate(len as u64, Contents::Zeroed).expect("allocates");
                let got = bytes_of(gpu, fresh.memory, len, &[fresh.ready]);
                assert!(got.iter().all(|byte| *byte == 0), "{}: {len} bytes", gpu.name);
                let all = [CopyBox::flat(0, 0, len as u64)];
                // SAFETY: the box lies inside.
                let ticket = unsafe { gpu.fill(fresh.memory, &all, &[0xee], &[]) }.expect("fills");
                gpu.wait(ticket, SECONDS).expect("is done");
                // SAFETY: its work is done.
                unsafe { gpu.release(fresh.memory, &[]) };
            }
        }
    });
}

/// Storage is zeroed, mapped, coherent, and a side of copies.
#[test]
fn storage() {
    on_all(|gpu| {
        let len = 10_007;
        for round in 0..2 {
            let storage = gpu.storage(len as u64).expect("allocates");
            assert_eq!(storage.shared, gpu.caps().unified);
            for i in 0..len {
                // SAFETY: the storage is that long, and only this thread uses it.
                assert_eq!(unsafe { byte(storage.host, i) }, 0, "byte {i} of round {round}");
            }
            let host = noise(11, len);
            // SAFETY: as above.
            unsafe { storage.host.as_ptr().copy_from_nonoverlapping(host.as_ptr(), len) };
            let device = gpu.allocate(len as u64, Contents::Zeroed).expect("allocates");
            let up = [boxed(1, 2, 101, &[(90, 111, 107)])];
            // SAFETY: the boxes lie inside both sides; the host leaves the bytes alone until the wait.
            let ticket = unsafe { gpu.copy(storage.memory, device.memory, &up, &[device.ready]) }
                .expect("copies");
            let mut expected = vec![0; len];
            model(&host, &mut expected, &up);
            assert!(bytes_of(gpu, device.memory, len, &[ticket]) == expected);
            let all = [CopyBox::flat(0, 0, len as u64)];
            // SAFETY: as above.
            let ticket = unsafe { gpu.copy(device.memory, storage.memory, &all, &[ticket]) }
                .expect("copies");
            gpu.wait(ticket, SECONDS).expect("is done");
            for (i, value) in expected.iter().enumerate() {
                // SAFETY: as above.
                assert_eq!(unsafe { byte(storage.host, i) }, *value);
            }
            // SAFETY: all work is done.
            unsafe { gpu.release(storage.memory, &[ticket]) };
            // SAFETY: as above.
            unsafe { gpu.release(device.memory, &[ticket]) };
        }
    });
}

/// Operations that follow one another by tickets, in one batch and across batches.
#[test]
fn order() {
    on_all(|gpu| {
        let len = 64 * 1024;
        let all = [CopyBox::flat(0, 0, len as u64)];
        let memory: Vec<_> = (0..4)
            .map(|_| gpu.allocate(len as u64, Contents::Zeroed).expect("allocates"))
            .collect();
        let mut last = memory.iter().map(|m| m.ready).max_by_key(|t| t.value).expect("four");
        for round in 0..60u8 {
            let at = usize::from(round) % 4;
            let (from, to) = (memory[at].memory, memory[(at + 1) % 4].memory);
            // SAFETY: the boxes lie inside.
            let ticket = unsafe { gpu.fill(from, &all, &[round, round ^ 0xff], &[last]) };
            let ticket = ticket.expect("fills");
            // SAFETY: as above.
            last = unsafe { gpu.copy(from, to, &all, &[ticket]) }.expect("copies");
            if round % 7 == 0 {
                gpu.flush().expect("submits");
            }
        }
        assert!(bytes_of(gpu, memory[0].memory, len, &[last]) == [59, 59 ^ 0xff].repeat(len / 2));
    });
}

/// Recorded work is accepted, not submitted; a poll does not submit it, a wait does.
#[test]
fn tickets() {
    on_all(|gpu| {
        let fresh = gpu.allocate(64, Contents::Zeroed).expect("allocates");
        assert!(!gpu.poll(fresh.ready).expect("polls"));
        let late = gpu.wait(Ticket { lane: 0, value: 999 }, SECONDS).expect_err("no such ticket");
        assert_eq!(late.kind(), ErrorKind::Other);
        assert!(!gpu.poll(fresh.ready).expect("polls"));
        gpu.wait(fresh.ready, SECONDS).expect("is done");
        assert!(gpu.poll(fresh.ready).expect("polls"));
        assert!(gpu.poll(Ticket::DONE).expect("polls"));
        gpu.wait(Ticket::DONE, Duration::ZERO).expect("is done");
        gpu.flush().expect("nothing to submit");
        // SAFETY: the box lies inside.
        let ticket = unsafe { gpu.fill(fresh.memory, &[CopyBox::flat(0, 0, 64)], &[1], &[]) };
        let ticket = ticket.expect("fills");
        gpu.flush().expect("submits");
        while !gpu.poll(ticket).expect("polls") {
            std::thread::yield_now();
        }
    });
}

/// A download that has no time leaves the host bytes alone, or brings all; a retry is right.
#[test]
fn timeouts() {
    on_all(|gpu| {
        let len = 4 << 20;
        let bytes = noise(13, len);
        let memory = holding(gpu, &bytes);
        let all = [CopyBox::flat(0, 0, len as u64)];
        for _ in 0..5 {
            let mut host = vec![0; len];
            // SAFETY: the box lies inside both sides.
            let got = unsafe { gpu.download(memory, host.as_mut_ptr(), &all, &[], Duration::ZERO) };
            if let Err(error) = got {
                assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            }
            // SAFETY: as above.
            unsafe { gpu.download(memory, host.as_mut_ptr(), &all, &[], SECONDS) }
                .expect("downloads");
            assert!(host == bytes);
        }
    });
}

/// Several threads at once, more of them than there are staging chunks.
#[test]
fn threads() {
    on_all(|gpu| {
        std::thread::scope(|scope| {
            for thread in 0..6u64 {
                let gpu = &gpu.gpu;
                scope.spawn(move || {
                    for round in 0..8 {
                        let len = 10_000 + 20_001 * (thread as usize % 3);
                        let bytes = noise(thread * 100 + round, len);
                        let memory = holding(gpu, &bytes);
                        assert!(bytes_of(gpu, memory, len, &[]) == bytes);
                        // SAFETY: the download has waited for all work on it.
                        unsafe { gpu.release(memory, &[]) };
                    }
                });
            }
        });
    });
}

/// Released memory is freed after its last work, and waited for when there is no room without it.
#[test]
fn release_is_deferred() {
    let Some(gpu) = open_with(LimitsOverride::strict(), Some(1 << 20)) else { return };
    let log = gpu.validation_log();
    let first = gpu.allocate(600_000, Contents::Zeroed).expect("allocates");
    let over = gpu.allocate(600_000, Contents::Zeroed).expect_err("over the budget");
    assert_eq!(over.kind(), ErrorKind::Budget);
    assert_eq!(
        over.to_string(),
        "600000 bytes asked for with 600000 of a budget of 1048576 in use"
    );
    let all = [CopyBox::flat(0, 0, 600_000)];
    // SAFETY: the box lies inside.
    let ticket = unsafe { gpu.fill(first.memory, &all, &[3; 16], &[first.ready]) }.expect("fills");
    // SAFETY: the fill is the last work on it.
    unsafe { gpu.release(first.memory, &[ticket]) };
    // SAFETY: not sound, but for the driver's own check of handles, which is what is tested.
    let stale = unsafe { gpu.fill(first.memory, &all, &[3], &[]) }.expect_err("released");
    assert_eq!(stale.kind(), ErrorKind::Other);
    let second = gpu.allocate(600_000, Contents::Zeroed).expect("waits for the first");
    assert!(bytes_of(&gpu, second.memory, 600_000, &[second.ready]).iter().all(|b| *b == 0));
    drop(gpu);
    silent(&log);
}
