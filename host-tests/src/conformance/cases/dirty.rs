//! Interleavings of writes on host and device: both are dirty somewhere, and everybody sees the newest.

use hedgerow::capacity::Capacity;
use hedgerow::{Location, Mode};

use super::super::lab::{Hardware, Lab, Plot, Storage};
use super::start;

super::cases! {
    both:
        dirty_checkerboard_of_host_and_device,
        dirty_tiles_in_scattered_order,
        dirty_rows_alternate,
        dirty_update_over_partly_stale_bytes,
        dirty_overwrite_over_partly_stale_bytes,
        dirty_whole_root_overwritten_again_and_again,
        dirty_ping_pong_of_one_crop,
        dirty_nested_frames,
        dirty_crops_that_overlap_in_turn,
        dirty_host_write_under_a_device_crop,
        dirty_reads_leave_writers_where_they_are,
        dirty_read_twice_moves_once,
        dirty_sync_brings_home_only_what_is_stale,
        dirty_sync_twice_moves_once,
        dirty_release_and_go_on,
        dirty_never_written_regions_stay_so,
        dirty_single_elements,
        dirty_planes_rows_and_columns,
        dirty_l_shape_is_not_its_box,
}

fn dirty_checkerboard_of_host_and_device<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[24, 24]), |bed| {
        let root = bed.root();
        start(bed);
        bed.bring(&root);
        for y in 0..6 {
            for x in 0..6 {
                let tile = root.crop([4 * x..4 * x + 4, 4 * y..4 * y + 4]);
                if (x + y) % 2 == 0 { bed.fill(&tile, x + y) } else { bed.write(&tile, x * y) }
            }
        }
        let half = root.bytes() / 2;
        let counters = bed.tree.counters();
        bed.add(&root.crop([0..24, 0..12]), 1);
        bed.expect_since(&counters, lab.bytes(half / 2), 0);
        bed.read(&root);
        bed.expect_since(&counters, lab.bytes(half / 2), lab.bytes(half + half / 2));
    });
}

fn dirty_tiles_in_scattered_order<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[32, 32]), |bed| {
        let root = bed.root();
        for i in 0..64 {
            let tile = i * 37 % 64;
            let (x, y) = (tile % 8 * 4, tile / 8 * 4);
            bed.fill(&root.crop([x..x + 4, y..y + 4]), i);
        }
        bed.read(&root);
        bed.expect_since(&Default::default(), 0, lab.bytes(root.bytes()));
    });
}

fn dirty_rows_alternate<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[16, 12]), |bed| {
        let root = bed.root();
        start(bed);
        bed.bring(&root);
        for y in 0..12 {
            let row = root.slice(1, y);
            if y % 2 == 0 { bed.add(&row, y) } else { bed.update(&row, y) }
        }
        let columns = root.crop([3..9, 0..12]);
        let counters = bed.tree.counters();
        bed.read(&columns);
        bed.expect_since(&counters, 0, lab.bytes(columns.bytes() / 2));
        bed.add(&columns, 1);
        bed.expect_since(&counters, lab.bytes(columns.bytes() / 2), lab.bytes(columns.bytes() / 2));
        bed.read(&root);
    });
}

fn dirty_update_over_partly_stale_bytes<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[20, 10]), |bed| {
        let root = bed.root();
        start(bed);
        bed.bring(&root.crop([0..7, 0..10]));
        bed.fill(&root.crop([5..12, 3..6]), 1);
        let counters = bed.tree.counters();
        let middle = root.crop([4..15, 2..8]);
        bed.add(&middle, 2);
        let here = 3 * 6 + (12 - 7) * 3;
        bed.expect_since(&counters, lab.bytes(middle.bytes() - 4 * here), 0);
        bed.update(&root.crop([10..20, 0..4]), 3);
        bed.read(&root);
    });
}

fn dirty_overwrite_over_partly_stale_bytes<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[20, 10]), |bed| {
        let root = bed.root();
        start(bed);
        bed.add(&root.crop([3..9, 2..7]), 1);
        let counters = bed.tree.counters();
        bed.write(&root.crop([5..14, 4..9]), 2);
        bed.fill(&root.crop([0..4, 0..3]), 3);
        bed.expect_since(&counters, 0, 0);
        bed.read(&root);
    });
}

fn dirty_whole_root_overwritten_again_and_again<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[15, 15]), |bed| {
        let root = bed.root();
        for round in 0..4 {
            bed.fill(&root, round);
            bed.add(&root.crop([1..4, 2..9]), 1);
            bed.write(&root.crop([2..13, 5..6]), round);
            if round % 2 == 0 { bed.write(&root, round + 7) } else { bed.fill(&root, round + 7) }
        }
        bed.expect_since(&Default::default(), 0, 0);
        bed.read(&root);
    });
}

fn dirty_ping_pong_of_one_crop<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[18, 18]), |bed| {
        let root = bed.root();
        start(bed);
        let crop = root.crop([3..14, 5..11]);
        for round in 0..6 {
            bed.add(&crop, round);
            bed.update(&crop, round);
        }
        bed.expect_since(
            &Default::default(),
            lab.bytes(6 * crop.bytes()),
            lab.bytes(6 * crop.bytes()),
        );
        bed.read(&root);
    });
}

fn dirty_nested_frames<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[24, 24]), |bed| {
        let root = bed.root();
        start(bed);
        for i in 0..10 {
            let frame = root.crop([i..24 - i, i..24 - i]);
            if i % 2 == 0 { bed.add(&frame, i) } else { bed.update(&frame, i) }
        }
        bed.read(&root);
    });
}

fn dirty_crops_that_overlap_in_turn<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[40, 6]), |bed| {
        let root = bed.root();
        start(bed);
        for i in 0..8 {
            let crop = root.crop([4 * i..4 * i + 8, i % 3..i % 3 + 3]);
            match i % 4 {
                0 => bed.add(&crop, i),
                1 => bed.update(&crop, i),
                2 => bed.fill(&crop, i),
                _ => bed.write(&crop, i),
            }
            bed.read(&root.crop([4 * i..4 * i + 4, 0..6]));
        }
    });
}

fn dirty_host_write_under_a_device_crop<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[16, 16]), |bed| {
        let root = bed.root();
        start(bed);
        let outer = root.crop([2..14, 2..14]);
        let inner = root.crop([5..9, 6..11]);
        bed.fill(&outer, 1);
        let counters = bed.tree.counters();
        bed.write(&inner, 2);
        bed.expect_since(&counters, 0, 0);
        bed.read(&inner);
        bed.expect_since(&counters, 0, 0);
        bed.add(&outer, 3);
        bed.expect_since(&counters, lab.bytes(inner.bytes()), 0);
        bed.read(&root);
    });
}

fn dirty_reads_leave_writers_where_they_are<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[10, 10]), |bed| {
        let root = bed.root();
        start(bed);
        bed.fill(&root, 1);
        bed.read(&root);
        // Fresh on both: neither side fetches.
        let counters = bed.tree.counters();
        bed.bring(&root);
        bed.add(&root.crop([0..5, 0..5]), 1);
        bed.update(&root.crop([5..10, 5..10]), 1);
        bed.expect_since(&counters, 0, 0);
        bed.read(&root);
    });
}

fn dirty_read_twice_moves_once<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[10, 10]), |bed| {
        let root = bed.root();
        bed.fill(&root, 1);
        let (a, b) = (root.crop([1..7, 1..7]), root.crop([4..9, 4..9]));
        bed.read(&a);
        bed.read(&b);
        bed.read(&a);
        let union = a.bytes() + b.bytes() - 4 * 9;
        bed.expect_since(&Default::default(), 0, lab.bytes(union));
    });
}

fn dirty_sync_brings_home_only_what_is_stale<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[20, 20]), |bed| {
        let root = bed.root();
        let (a, b) = (root.crop([1..5, 1..9]), root.crop([11..19, 12..14]));
        bed.fill(&a, 1);
        bed.fill(&b, 2);
        bed.read(&root.crop([1..3, 1..9]));
        let counters = bed.tree.counters();
        bed.sync();
        bed.expect_since(&counters, 0, lab.bytes(a.bytes() / 2 + b.bytes()));
        let plan = a.view.plan(Location::Host, Mode::Read).expect("a plan");
        assert_eq!(plan.bytes_down, 0);
        let elements: Vec<_> = a.spot.elements.iter().chain(&b.spot.elements).copied().collect();
        bed.model().brought(&elements, 0);
        bed.read(&a);
        bed.read(&b);
    });
}

fn dirty_sync_twice_moves_once<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[20, 20]), |bed| {
        let root = bed.root();
        start(bed);
        bed.add(&root.crop([3..8, 2..19]), 1);
        bed.sync();
        let moved = bed.moved();
        bed.sync();
        if lab.is_exact() {
            assert_eq!(bed.moved(), moved);
        }
        bed.model().brought(&root.spot.elements, 0);
        bed.read(&root);
    });
}

fn dirty_release_and_go_on<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[12, 12]), |bed| {
        let root = bed.root();
        start(bed);
        bed.add(&root.crop([2..9, 3..7]), 1);
        lab.trouble.insist(|| bed.tree.release()).expect("gives the memory back");
        let live = bed.rig().snapshot().live();
        assert_eq!(live, u64::from(lab.storage == Storage::Owned), "only owned storage is left");
        bed.only_values();
        bed.model().brought(&root.spot.elements, 0);
        bed.read(&root);
        bed.add(&root.crop([0..5, 0..5]), 2);
        bed.read(&root);
        lab.trouble.insist(|| bed.tree.release()).expect("gives the memory back");
        lab.trouble.insist(|| bed.tree.release()).expect("which is nothing, now");
        bed.read(&root);
    });
}

fn dirty_never_written_regions_stay_so<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[12, 12]), |bed| {
        let root = bed.root();
        bed.fill(&root.crop([1..4, 1..4]), 1);
        bed.write(&root.crop([6..9, 2..5]), 2);
        // Each refused where it meets nobody's bytes (the lab knows), else done.
        bed.read(&root.crop([0..4, 1..4]));
        bed.add(&root.crop([2..7, 2..4]), 1);
        bed.update(&root.crop([6..9, 2..6]), 1);
        bed.add(&root.crop([6..9, 2..5]), 3);
        bed.read(&root.crop([4..6, 2..4]));
        bed.read(&root.crop([1..4, 1..4]));
    });
}

fn dirty_single_elements<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[9, 9]), |bed| {
        let root = bed.root();
        start(bed);
        let mut at = 0;
        for i in 0..20 {
            at = (at * 5 + 17) % 81;
            let (x, y) = (at % 9, at / 9);
            let one = root.crop([x..x + 1, y..y + 1]);
            if i % 3 == 0 { bed.update(&one, i) } else { bed.add(&one, i) }
        }
        bed.read(&root);
    });
}

fn dirty_planes_rows_and_columns<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[8, 7, 6]), |bed| {
        let root = bed.root();
        start(bed);
        for i in 0..5 {
            bed.add(&root.slice(2, i), 1);
            bed.update(&root.slice(1, i), 2);
            bed.fill(&root.slice(0, i), 3);
            bed.write(&root.slice(2, i).slice(0, 6), i);
        }
        bed.read(&root.slice(1, 3));
        bed.read(&root);
    });
}

/// Two crops that make an L: their box has a corner that is neither's.
fn dirty_l_shape_is_not_its_box<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[16, 16]), |bed| {
        let root = bed.root();
        start(bed);
        let (upright, flat) = (root.crop([2..5, 2..14]), root.crop([5..14, 11..14]));
        bed.fill(&upright, 1);
        bed.fill(&flat, 2);
        bed.write(&root.crop([6..14, 2..10]), 3);
        let counters = bed.tree.counters();
        bed.read(&root.crop([2..14, 2..14]));
        bed.expect_since(&counters, 0, lab.bytes(upright.bytes() + flat.bytes()));
    });
}
