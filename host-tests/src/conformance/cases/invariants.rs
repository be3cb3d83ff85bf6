//! The design's invariants, each where the public interface shows it.

use hedgerow::capacity::Capacity;
use hedgerow::driver::ErrorKind;
use hedgerow::{Location, Mode, Shape};

use super::super::kernels;
use super::super::lab::{Hardware, Lab, Plot, Storage, Tight};
use super::start;

super::cases! {
    both:
        i01_one_allocation_for_the_root_whichever_view_asks_first,
        i02_what_any_view_writes_every_overlapping_view_sees,
        i03_one_cell_is_enough_to_be_right,
        i03_widening_is_counted,
        i04_exact_bytes_for_any_region,
        i04_boxes_are_split_by_source,
        i05_disjoint_dirty_regions_coexist,
        i06_state_changes_only_on_acceptance,
        i09_disjoint_guards_live_at_once,
        i10_fresh_device_memory_is_zero,
        i11_plans_say_what_then_moves,
        i11_plans_change_nothing;
    borrowed:
        i07_nothing_dies_silently,
}

fn i01_one_allocation_for_the_root_whichever_view_asks_first<H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
) {
    for first in 0..6 {
        let before = lab.rig.snapshot();
        lab.run::<i32>(&Plot::strided(&[9, 8, 5], &[1, 10, 100]), |bed| {
            let root = bed.root();
            start(bed);
            match first {
                0 => bed.fill(&root.crop([3..4, 3..4, 3..4]), 1),
                1 => bed.add(&root.slice(0, 2), 1),
                2 => bed.bring(&root.slice(2, 4).crop([1..3, 2..4])),
                3 => bed.add(&root.permute([2, 0, 1]).flip(1), 1),
                4 => bed.fill(&root.crop([0..9, 0..8, 4..5]).step_by(0, 2), 1),
                _ => bed.add(&root, 1),
            }
            bed.add(&root, 2);
            bed.fill(&root.slice(1, 1), 3);
            let since = bed.rig().since(&before).allocations;
            // Device memory is packed: without the gaps of the caller's.
            let one = if lab.is_shared() { (0, 0) } else { (1, root.bytes()) };
            assert_eq!((since.calls, since.bytes), one, "first use {first}");
        });
        let since = lab.rig.since(&before);
        assert_eq!(since.releases, since.allocations.calls + since.storages.calls, "freed once");
    }
}

fn i02_what_any_view_writes_every_overlapping_view_sees<H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
) {
    lab.run::<i32>(&Plot::packed(&[8, 8, 4]), |bed| {
        let root = bed.root();
        start(bed);
        let plane = root.slice(2, 1);
        let views = [
            root.crop([1..7, 1..7, 0..3]),
            root.slice(1, 3),
            root.crop([2..6, 0..8, 1..2]),
            root.flip(0).permute([2, 1, 0]),
        ];
        for (i, writer) in views.iter().enumerate() {
            for on_device in [false, true] {
                if on_device {
                    bed.add(writer, i as i32 + 1)
                } else {
                    bed.update(writer, 20)
                }
                bed.add(&plane, 1);
                for reader in &views {
                    bed.read(reader);
                }
                let late = root.crop([0..8, 2..5, 1..3]);
                bed.read(&late);
                bed.bring(&late);
            }
        }
        bed.read(&plane);
    });
}

/// Whatever the row's capacity: one word, two cuts.
fn i03_one_cell_is_enough_to_be_right<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run_on::<i32, Tight>(&lab.rigs(), &Plot::packed(&[24, 24]), |bed| {
        bed.inexact();
        let root = bed.root();
        start(bed);
        for i in 0..12 {
            let (x, y) = (i * 5 % 17, i * 7 % 19);
            let crop = root.crop([x..x + 5, y..y + 4]);
            match i % 4 {
                0 => bed.add(&crop, i),
                1 => bed.update(&crop, i),
                2 => bed.fill(&crop, i),
                _ => bed.write(&crop, i),
            }
            bed.read(&root.crop([x..x + 3, y..y + 2]));
        }
        bed.read(&root);
    });
}

fn i03_widening_is_counted<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run_on::<i32, Tight>(&lab.rigs(), &Plot::packed(&[24, 24]), |bed| {
        bed.inexact();
        let root = bed.root();
        start(bed);
        bed.bring(&root.crop([0..12, 0..24]));
        for i in 0..6 {
            bed.fill(&root.crop([4 * i..4 * i + 2, 3 * i..3 * i + 2]), i);
            bed.write(&root.crop([22 - 3 * i..24 - 3 * i, 2 * i..2 * i + 2]), i);
        }
        bed.read(&root);
        let counters = bed.tree.counters();
        if !lab.is_shared() {
            assert!(counters.bytes_widened > 0, "{counters}");
        }
    });
}

fn i04_exact_bytes_for_any_region<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[20, 20]), |bed| {
        let root = bed.root();
        start(bed);
        bed.fill(&root.crop([3..9, 4..11]), 1);
        bed.fill(&root.crop([12..17, 8..15]), 2);
        // A box over parts of both and of neither.
        let counters = bed.tree.counters();
        bed.read(&root.crop([5..14, 9..13]));
        bed.expect_since(&counters, 0, lab.bytes(4 * (4 * 2 + 2 * 4)));
        bed.bring(&root.crop([0..20, 0..9]));
        let there = 6 * 5 + 5;
        bed.expect_since(&counters, lab.bytes(4 * (20 * 9 - there)), lab.bytes(4 * 16));
        bed.read(&root);
    });
}

fn i04_boxes_are_split_by_source<H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
) -> Result<(), super::Skip> {
    let second = lab.second()?;
    lab.run_on::<i32, super::super::lab::Pair>(
        &[&lab.rig, &second],
        &Plot::packed(&[12, 12]),
        |bed| {
            let root = bed.root();
            start(bed);
            bed.fill_on(0, &root.crop([0..4, 0..12]), 1);
            bed.fill_on(1, &root.crop([4..8, 0..12]), 2);
            let mut from = Vec::new();
            root.view
                .plan_each(Location::Host, Mode::Read, |source, to, copy| {
                    assert_eq!(to, Location::Host);
                    from.push((source, copy.bytes()));
                })
                .expect("a plan");
            let shared = lab.is_shared();
            let first = if shared { 0 } else { 4 * 48 };
            let sum = |d| {
                from.iter().filter(|(s, _)| *s == Location::Device(d)).map(|(_, b)| b).sum::<u64>()
            };
            assert_eq!((sum(0), sum(1)), (first, 4 * 48));
            bed.read(&root);
            bed.expect_since(&Default::default(), 0, first + 4 * 48);
        },
    );
    assert_eq!(second.snapshot().live(), 0);
    Ok(())
}

fn i05_disjoint_dirty_regions_coexist<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[16, 16]), |bed| {
        let root = bed.root();
        start(bed);
        bed.bring(&root);
        let (device, host) = (root.crop([2..6, 1..15]), root.crop([6..13, 3..12]));
        bed.add(&device, 1);
        bed.update(&host, 2);
        let counters = bed.tree.counters();
        bed.read(&device);
        bed.expect_since(&counters, 0, lab.bytes(device.bytes()));
        bed.bring(&host);
        bed.expect_since(&counters, lab.bytes(host.bytes()), lab.bytes(device.bytes()));
        bed.read(&root);
        bed.bring(&root);
        bed.expect_since(&counters, lab.bytes(host.bytes()), lab.bytes(device.bytes()));
        // Of several that are dirty on one side, syncing one leaves the others so.
        let parts = [root.crop([0..3, 0..3]), root.crop([5..9, 0..3]), root.crop([9..12, 8..16])];
        parts.iter().for_each(|part| bed.add(part, 3));
        parts.iter().for_each(|part| bed.read(part));
        parts.iter().for_each(|part| bed.update(part, 4));
        parts.iter().for_each(|part| bed.bring(part));
    });
}

fn i06_state_changes_only_on_acceptance<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[10, 10]), |bed| {
        let root = bed.root();
        start(bed);
        let crop = root.crop([2..8, 2..8]);
        bed.bring(&root.crop([0..5, 0..10]));
        let fill = bed.kernel(&kernels::FILL_I32);
        // The dispatch fails: the crop is as it was, on both sides.
        lab.rig.inner().arm(1, ErrorKind::Other);
        assert!(fill.launch((crop.view.as_overwrite(),), 1).is_err());
        bed.read(&crop);
        bed.bring(&crop);
        // A guard that could not be opened wrote nothing.
        bed.fill(&crop, 2);
        if !lab.is_shared() {
            lab.rig.inner().arm(1, ErrorKind::Timeout);
            assert!(crop.view.update().is_err());
        }
        lab.rig.inner().disarm();
        bed.update(&crop, 3);
        bed.read(&root);
    });
}

fn i07_nothing_dies_silently<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let fill = lab.kernel(&kernels::FILL_I32);
    // By going out of scope, with views long gone.
    let mut memory = vec![0i32; 64];
    {
        let tree = lab.builder().over(&mut memory, Shape::packed([8, 8])).expect("a tree");
        let crop = tree.root().crop([1..4, 2..5]).expect("a crop");
        fill.launch((crop.as_overwrite(),), 1).expect("runs");
        drop(crop);
    }
    assert_eq!(memory[3 * 8 + 2], kernels::code(&[2, 3], 1));
    assert_eq!(memory.iter().filter(|value| **value != 0).count(), 9);
    // By a close, and with a guard forgotten.
    let mut memory = vec![0i32; 64];
    let tree = lab.builder().over(&mut memory, Shape::packed([8, 8])).expect("a tree");
    std::mem::forget(tree.root().slice(1, 7).expect("a row").read().expect("a guard"));
    fill.launch((tree.root().slice(1, 2).expect("a row").as_overwrite(),), 2).expect("runs");
    tree.close().expect("closes");
    assert_eq!(memory[2 * 8 + 5], kernels::code(&[5], 2));
}

fn i09_disjoint_guards_live_at_once<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    if !lab.is_exact() {
        return;
    }
    lab.run::<i32>(&Plot::packed(&[12, 12]), |bed| {
        let root = bed.root();
        start(bed);
        bed.add(&root.crop([3..9, 3..9]), 1);
        let parts = [
            root.crop([0..6, 0..6]),
            root.crop([6..12, 0..6]),
            root.crop([0..6, 6..12]),
            root.crop([6..12, 6..12]),
        ];
        // Each opening brings its own part home under the guards of the others.
        let mut guards: Vec<_> =
            parts.iter().map(|part| part.view.update().expect("a guard")).collect();
        for guard in &mut guards {
            for row in guard.rows_mut().expect("rows") {
                row.iter_mut().for_each(|value| *value += 5);
            }
        }
        assert_eq!(bed.tree.live_accesses(), 4);
        assert_eq!(bed.tree.check(), Ok(()));
        drop(guards);
        for part in &parts {
            let values = bed.values(part, |value| value + 5);
            bed.wrote(part, 0, &values);
        }
        bed.expect_on_first(&Default::default(), lab.bytes(4 * 36), lab.bytes(4 * 36));
        bed.read(&root);
    });
}

/// Shown by a kernel that breaks its word and writes nothing: what it leaves is never somebody's.
fn i10_fresh_device_memory_is_zero<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let (fill, skip) = (lab.kernel(&kernels::FILL_I32), lab.kernel(&kernels::SKIP_I32));
    for round in 0..4 {
        // Memory that was full of values goes back to the driver each time.
        let mut memory = vec![9i32; 40 * 40];
        let tree = match lab.storage {
            Storage::Borrowed => lab.builder().over(&mut memory, Shape::packed([40, 40])),
            Storage::Owned => lab.trouble.insist(|| lab.builder().owned(Shape::packed([40, 40]))),
        };
        let tree = tree.expect("a tree");
        let root = lab.see(tree.root());
        skip.launch((root.as_overwrite(),), 1).expect("runs");
        let mut values = vec![1; 40 * 40];
        root.read().expect("reads").copy_to_slice(&mut values);
        // Poison fills what an overwrite is about to cover: what the kernel missed shows.
        let left = if lab.poisons() { i32::from_ne_bytes([0xa5; 4]) } else { 0 };
        assert!(values.iter().all(|value| *value == left), "round {round}: {:x?}", values[0]);
        fill.launch((root.as_overwrite(),), 7).expect("runs");
        drop(root.read().expect("reads"));
        drop(root);
        tree.discard();
    }
}

/// Every operation of the lab compares its plan with what moved. Here, box by box.
fn i11_plans_say_what_then_moves<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::strided(&[16, 12], &[1, 20]), |bed| {
        let root = bed.root();
        start(bed);
        bed.fill(&root.crop([3..7, 2..9]), 1);
        bed.fill(&root.crop([9..15, 5..11]), 2);
        let view = root.crop([1..14, 3..10]);
        for (location, mode) in [
            (Location::Host, Mode::Read),
            (Location::Device(0), Mode::Read),
            (Location::Host, Mode::Update),
            (Location::Device(0), Mode::Update),
        ] {
            let (mut boxes, mut bytes) = (0, 0);
            let plan = view.view.plan_each(location, mode, |_, to, copy| {
                assert_eq!(to, location);
                boxes += 1;
                bytes += copy.bytes();
            });
            let plan = plan.expect("a plan");
            let before = bed.rig().snapshot();
            match (location, mode) {
                (Location::Host, Mode::Read) => bed.read(&view),
                (Location::Host, _) => bed.update(&view, 3),
                (_, Mode::Read) => bed.bring(&view),
                (_, _) => bed.add(&view, 4),
            }
            let since = bed.rig().since(&before);
            let moved = since.uploads.boxes + since.downloads.boxes + since.copies.boxes;
            assert_eq!((plan.boxes, boxes), (moved, moved), "{mode:?} at {location}");
            assert_eq!(bytes, since.bytes_moved());
        }
        bed.read(&root);
    });
}

fn i11_plans_change_nothing<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[16, 12]), |bed| {
        let root = bed.root();
        start(bed);
        bed.fill(&root.crop([3..7, 2..9]), 1);
        let before = (bed.rig().snapshot(), bed.tree.counters());
        let view = root.crop([1..14, 3..10]);
        for location in [Location::Host, Location::Device(0)] {
            for mode in [Mode::Read, Mode::Overwrite, Mode::Update] {
                let first = view.view.plan(location, mode).expect("a plan");
                assert_eq!(view.view.plan(location, mode).expect("a plan"), first);
                if mode == Mode::Overwrite && lab.is_exact() {
                    assert_eq!(first, hedgerow::Plan::default());
                }
            }
        }
        assert_eq!(bed.rig().since(&before.0), Default::default());
        assert_eq!(bed.tree.counters(), before.1);
        assert_eq!(bed.tree.live_accesses(), 0);
    });
}
