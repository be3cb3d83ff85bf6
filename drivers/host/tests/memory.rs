//! Allocation: placement, reuse, exhaustion, contents, loss.

mod common;

use common::{contents, fill, host, release, upload};
use hedgerow::driver::{
    Contents, CopyBox, DeviceDriver, DriverError, DropError, ErrorKind, Ticket,
};
use hedgerow::region::Region;
use hedgerow_host::{Host, HostError, HostMemory, POISON};

fn take(host: &Host<'_>, bytes: u64) -> HostMemory {
    host.allocate(bytes, Contents::Zeroed).unwrap().memory
}

#[test]
fn memory_is_zeroed_or_poison() {
    let host = host(1024);
    let zeroed = take(&host, 100);
    assert_eq!(contents(&host, zeroed, 100), [0; 100]);
    let undefined = host.allocate(100, Contents::Undefined).unwrap().memory;
    assert_eq!(contents(&host, undefined, 100), [POISON; 100]);
    // Also where others have been.
    fill(&host, zeroed, &[CopyBox::flat(0, 0, 100)], &[1]).unwrap();
    release(&host, zeroed);
    let again = take(&host, 100);
    assert_eq!(contents(&host, again, 100), [0; 100]);
}

#[test]
fn released_memory_is_poison() {
    let mut arena = [0u8; 512];
    let host = Host::in_arena(&mut arena);
    let memory = take(&host, 200);
    release(&host, memory);
    drop(host);
    assert_eq!(arena.iter().filter(|byte| **byte == POISON).count(), 200);
}

#[test]
fn unwritten_arenas_work() {
    let mut arena = [const { core::mem::MaybeUninit::uninit() }; 512];
    let host = Host::in_uninit(&mut arena);
    let memory = take(&host, 300);
    assert_eq!(contents(&host, memory, 300), [0; 300]);
}

#[test]
fn storage_is_host_memory() {
    let host = host(1024);
    let storage = host.storage(64).unwrap();
    assert!(!storage.shared);
    // SAFETY: the storage has 64 bytes and nobody else uses it.
    let seen = unsafe { core::slice::from_raw_parts_mut(storage.host.as_ptr(), 64) };
    assert_eq!(seen, [0; 64]);
    seen[5] = 9;
    assert_eq!(contents(&host, storage.memory, 64)[5], 9);
    release(&host, storage.memory);

    let unified = common::host(1024).unified(true);
    assert!(unified.caps().unified);
    assert!(unified.storage(64).unwrap().shared);
}

#[test]
fn holes_coalesce_and_are_reused_first_fit() {
    let host = host(1024);
    let blocks: Vec<_> = (0..4).map(|_| take(&host, 256)).collect();
    assert_eq!((host.used_bytes(), host.live_allocations()), (1024, 4));
    assert_eq!(
        host.allocate(1, Contents::Zeroed).unwrap_err(),
        HostError::OutOfMemory { bytes: 1, largest: 0 }
    );
    // Two holes apart do not make one.
    release(&host, blocks[0]);
    release(&host, blocks[2]);
    let full = host.allocate(300, Contents::Zeroed).unwrap_err();
    assert_eq!(full, HostError::OutOfMemory { bytes: 300, largest: 256 });
    assert_eq!(full.kind(), ErrorKind::OutOfMemory);
    assert_eq!(full.to_string(), "no room for 300 bytes: the largest hole has 256");
    // Side by side they do, in either order.
    release(&host, blocks[1]);
    let large = take(&host, 768);
    release(&host, large);
    release(&host, blocks[3]);
    let all = take(&host, 1024);
    release(&host, all);
    assert_eq!((host.used_bytes(), host.live_allocations(), host.peak_bytes()), (0, 0, 1024));
}

#[test]
fn blocks_never_share_bytes() {
    let host = host(8192);
    let mut live: Vec<(HostMemory, usize, u8)> = Vec::new();
    let mut random = 12345u64;
    let mut full = 0;
    for round in 0..3000u32 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let dice = (random >> 33) as usize;
        if dice.is_multiple_of(2) && !live.is_empty() {
            let (memory, bytes, mark) = live.swap_remove(dice / 2 % live.len());
            assert_eq!(contents(&host, memory, bytes), vec![mark; bytes]);
            release(&host, memory);
            continue;
        }
        let bytes = 1 + dice / 2 % 700;
        match host.allocate(bytes as u64, Contents::Zeroed) {
            Ok(fresh) => {
                assert_eq!(contents(&host, fresh.memory, bytes), vec![0; bytes]);
                let mark = round as u8;
                let all = [CopyBox::flat(0, 0, bytes as u64)];
                fill(&host, fresh.memory, &all, &[mark]).unwrap();
                live.push((fresh.memory, bytes, mark));
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::OutOfMemory);
                full += 1;
            }
        }
        assert_eq!(host.live_allocations(), live.len());
        assert_eq!(host.used_bytes(), live.iter().map(|block| block.1 as u64).sum::<u64>());
    }
    assert!(full > 0, "the arena was full at times");
}

#[test]
fn what_never_fits_is_too_large() {
    let host = host(1024);
    for bytes in [1025, u64::from(u32::MAX) + 2, u64::MAX] {
        let error = host.allocate(bytes, Contents::Zeroed).unwrap_err();
        assert_eq!(error, HostError::TooLarge { bytes, limit: 1024 });
        assert_eq!(host.storage(bytes).unwrap_err().kind(), ErrorKind::TooLarge);
    }
    let strict = common::host(1024).max_allocation(100);
    assert_eq!(strict.caps().max_allocation, 100);
    assert_eq!(
        strict.allocate(101, Contents::Zeroed).unwrap_err(),
        HostError::TooLarge { bytes: 101, limit: 100 }
    );
    assert_eq!(strict.used_bytes(), 0);
    let none = Host::in_arena(&mut []);
    assert_eq!(none.storage(1).unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn an_unaligned_arena_loses_what_alignment_takes() {
    let mut memory = [0u8; 256];
    let skip = memory.as_ptr().align_offset(64) + 1;
    let host = Host::in_arena(&mut memory[skip..skip + 127]);
    let memory = take(&host, 64);
    assert_eq!(contents(&host, memory, 64), [0; 64]);
    assert_eq!(
        host.allocate(65, Contents::Zeroed).unwrap_err(),
        HostError::TooLarge { bytes: 65, limit: 64 }
    );
}

#[test]
fn the_table_can_be_full_too() {
    let host = host(64 * 40);
    let blocks: Vec<_> = (0..32).map(|_| take(&host, 1)).collect();
    let full = host.allocate(1, Contents::Zeroed).unwrap_err();
    assert_eq!(full, HostError::TableFull { blocks: 32 });
    assert_eq!(full.kind(), ErrorKind::OutOfMemory);
    release(&host, blocks[7]);
    take(&host, 1);
}

#[test]
fn loss_is_one_way() {
    let host = host(1024);
    let memory = take(&host, 64);
    let done = upload(&host, &[1; 64], memory, &[CopyBox::flat(0, 0, 64)]).unwrap();
    host.simulate_loss();
    let lost = HostError::DeviceLost;
    assert_eq!(host.allocate(1, Contents::Zeroed).unwrap_err(), lost);
    assert_eq!(host.storage(1).unwrap_err(), lost);
    let all = [CopyBox::flat(0, 0, 64)];
    assert_eq!(upload(&host, &[0; 64], memory, &all), Err(lost));
    assert_eq!(common::download(&host, memory, &mut [0; 64], &all), Err(lost));
    assert_eq!(fill(&host, memory, &all, &[0]), Err(lost));
    assert_eq!(common::copy(&host, memory, memory, &[]), Err(lost));
    assert_eq!(host.flush(), Err(lost));
    assert_eq!(host.poll(done), Err(lost));
    assert_eq!(host.wait(done, common::SOON), Err(lost));
    assert_eq!(lost.kind(), ErrorKind::DeviceLost);
    // Memory is still given back.
    release(&host, memory);
    assert_eq!(host.live_allocations(), 0);
}

#[test]
fn tickets_count_up_and_are_done() {
    let host = host(1024);
    let first = host.allocate(64, Contents::Zeroed).unwrap();
    let all = [CopyBox::flat(0, 0, 64)];
    let second = fill(&host, first.memory, &all, &[1]).unwrap();
    assert_eq!((first.ready, second), (Ticket { lane: 0, value: 1 }, Ticket { lane: 0, value: 2 }));
    assert_eq!(host.poll(second), Ok(true));
    assert_eq!(host.wait(second, core::time::Duration::ZERO), Ok(()));
    assert_eq!(host.poll(Ticket::DONE), Ok(true));
}

#[test]
fn drop_errors_are_kept() {
    let host = host(64);
    let error = |bytes| DropError {
        kind: ErrorKind::Timeout,
        region: Region::new(&[0..4, 1..2]).unwrap(),
        bytes,
    };
    for bytes in 1..=6 {
        host.report_drop(error(bytes));
    }
    assert_eq!(host.take_drop_error(), Some(error(3)));
    let rest: Vec<_> = host.drop_errors().collect();
    assert_eq!(rest, [error(4), error(5), error(6)]);
    assert_eq!(host.take_drop_error(), None);
}

#[test]
fn options_show_in_caps() {
    let host =
        host(64).name("strict").copy_align(4).bind_align(256).max_binding(512).unified(false);
    let caps = host.caps();
    assert_eq!(caps.name, "strict");
    assert_eq!((caps.copy_align, caps.bind_align, caps.max_binding), (4, 256, 512));
    assert_eq!((caps.max_allocation, caps.max_views, caps.unified), (64, 8, false));
    assert!(caps.storage_survives_loss);
    assert!(!common::host(64).storage_survives_loss(false).caps().storage_survives_loss);
    assert_ne!(host.id(), common::host(64).id());
}

#[cfg(debug_assertions)]
mod checks {
    use super::*;

    #[test]
    #[should_panic(expected = "is not live on this device")]
    fn released_handles_are_caught() {
        let host = host(1024);
        let memory = take(&host, 64);
        release(&host, memory);
        // The same place again: another handle.
        let _again = take(&host, 64);
        let _ = fill(&host, memory, &[CopyBox::flat(0, 0, 64)], &[0]);
    }

    #[test]
    #[should_panic(expected = "bytes 60..68 are not inside")]
    fn boxes_outside_are_caught() {
        let host = host(1024);
        let memory = take(&host, 64);
        let _ = fill(&host, memory, &[CopyBox::flat(0, 60, 8)], &[0]);
    }
}

#[cfg(feature = "std")]
mod heap {
    use super::*;

    #[test]
    fn memory_comes_from_the_allocator() {
        let host = Host::new();
        let memory = take(&host, 3 << 20);
        assert_eq!(contents(&host, memory, 3 << 20), vec![0; 3 << 20]);
        let undefined = host.allocate(64, Contents::Undefined).unwrap().memory;
        assert_eq!(contents(&host, undefined, 64), [POISON; 64]);
        // More allocations than an arena keeps account of.
        let many: Vec<_> = (0..100).map(|_| take(&host, 100)).collect();
        assert_eq!(host.live_allocations(), 102);
        for memory in many {
            release(&host, memory);
        }
        release(&host, memory);
        assert_eq!((host.live_allocations(), host.used_bytes()), (1, 64));
        // The rest goes with the driver.
    }

    #[test]
    fn capacity_is_a_limit() {
        let host = Host::with_capacity(1000);
        assert_eq!(host.caps().max_allocation, 1000);
        let memory = take(&host, 900);
        assert_eq!(
            host.allocate(101, Contents::Zeroed).unwrap_err(),
            HostError::OutOfMemory { bytes: 101, largest: 100 }
        );
        assert_eq!(
            host.allocate(1001, Contents::Zeroed).unwrap_err(),
            HostError::TooLarge { bytes: 1001, limit: 1000 }
        );
        release(&host, memory);
        take(&host, 1000);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri stops where an allocator would answer null")]
    fn sizes_that_no_allocator_has_are_refused() {
        let host = Host::default();
        for bytes in [isize::MAX as u64, isize::MAX as u64 - 63, u64::MAX] {
            assert!(host.allocate(bytes, Contents::Zeroed).is_err());
        }
        assert_eq!(host.used_bytes(), 0);
    }
}
