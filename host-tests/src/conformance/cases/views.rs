//! Views: whatever a view was made through and whenever, it is the same bytes.

use hedgerow::capacity::Capacity;
use hedgerow::region::MAX_RANK;

use super::super::lab::{Hardware, Lab, Patch, Plot};
use super::start;

super::cases! {
    both:
        views_made_before_and_after_the_allocation_alias,
        views_outlive_their_parents,
        views_of_every_rank,
        views_of_rank_zero,
        views_translated_show_their_own_coordinates_to_kernels,
        views_with_negative_mins,
        views_far_from_the_origin,
        views_stepped_share_their_box,
        views_stepped_overwrite_keeps_what_is_between,
        views_of_single_columns,
        views_crop_of_slice_of_crop_of_slice,
        views_all_orders_of_three_axes,
        views_flipped_twice_are_themselves,
        views_many_levels_deep,
        views_come_and_go_without_filling_the_table,
}

fn views_made_before_and_after_the_allocation_alias<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[14, 11]), |bed| {
        let root = bed.root();
        let early = root.crop([3..9, 2..8]);
        start(bed);
        bed.add(&root.crop([0..5, 0..5]), 1);
        let late = root.crop([3..9, 2..8]);
        bed.add(&late, 2);
        bed.read(&early);
        bed.add(&early, 3);
        bed.read(&late);
        bed.update(&early.slice(1, 4), 4);
        bed.add(&late.slice(0, 5), 5);
        bed.read(&root);
    });
}

fn views_outlive_their_parents<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[10, 10, 4]), |bed| {
        start(bed);
        let inner = {
            let crop = bed.root().crop([1..9, 2..9, 1..4]);
            let slice = crop.slice(2, 3);
            drop(crop);
            bed.add(&slice, 1);
            slice.crop([2..7, 3..6])
        };
        assert_eq!(bed.tree.live_views(), 1);
        bed.add(&inner, 2);
        assert_eq!(bed.tree.check(), Ok(()));
        bed.read(&inner);
        bed.read(&bed.root());
    });
}

fn views_of_every_rank<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    for rank in 1..=MAX_RANK {
        let extent: Vec<u32> = (0..rank as u32).map(|axis| 6 - axis.min(4)).collect();
        let min: Vec<i32> = (0..rank as i32).map(|axis| 2 * axis - 3).collect();
        lab.run::<i32>(&Plot::packed(&extent).min(&min), |bed| {
            let root = bed.root();
            start(bed);
            let inner: Vec<_> =
                min.iter().zip(&extent).map(|(m, n)| m + 1..m + *n as i32).collect();
            let inner = root.crop_to(&inner);
            bed.add(&inner, 1);
            bed.update(&root.slice(rank - 1, min[rank - 1]), 2);
            bed.fill(&root.slice(0, min[0] + 2), 3);
            bed.read(&inner);
            bed.read(&root);
        });
    }
}

fn views_of_rank_zero<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[5, 4]), |bed| {
        let point = bed.root().slice(0, 3).slice(0, 2);
        assert_eq!(point.view.rank(), 0);
        bed.fill(&point, 1);
        bed.read(&point);
        bed.update(&point, 2);
        bed.add(&point, 3);
        bed.read(&point);
        bed.expect_since(&Default::default(), lab.bytes(4), lab.bytes(8));
    });
    lab.run::<i32>(&Plot::packed(&[]), |bed| {
        let root = bed.root();
        bed.fill(&root, 4);
        bed.add(&root, 1);
        bed.read(&root);
    });
}

fn views_translated_show_their_own_coordinates_to_kernels<H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
) {
    lab.run::<i32>(&Plot::packed(&[9, 9]), |bed| {
        let root = bed.root();
        start(bed);
        let moved = root.translate([100, -50]);
        let crop = moved.crop([103..107, -48..-43]);
        bed.fill(&crop, 1);
        bed.read(&root.crop([3..7, 2..7]));
        bed.write(&crop.translate([-200, 7]), 2);
        bed.read(&root);
    });
}

fn views_with_negative_mins<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[9, 7]).min(&[-4, -100]), |bed| {
        let root = bed.root();
        start(bed);
        bed.fill(&root.crop([-4..-1, -98..-95]), 1);
        bed.add(&root.crop([-2..4, -97..-93]), 2);
        bed.update(&root.crop([-1..2, -100..-96]), 3);
        bed.read(&root.slice(1, -97));
        bed.read(&root);
    });
}

fn views_far_from_the_origin<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    for min in [i32::MIN, i32::MAX - 6] {
        lab.run::<i32>(&Plot::packed(&[6, 5]).min(&[min, 0]), |bed| {
            let root = bed.root();
            start(bed);
            bed.add(&root.crop([min + 1..min + 5, 1..4]), 1);
            bed.update(&root.slice(0, min + 2), 2);
            bed.read(&root);
        });
    }
}

fn views_stepped_share_their_box<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[20, 8]), |bed| {
        let root = bed.root();
        start(bed);
        let even = root.step_by(0, 2);
        let odd = root.crop([1..20, 0..8]).step_by(0, 2);
        bed.add(&even, 1);
        bed.add(&odd, 2);
        bed.read(&even);
        bed.update(&odd, 3);
        bed.read(&root);
    });
}

fn views_stepped_overwrite_keeps_what_is_between<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[21, 6]), |bed| {
        let root = bed.root();
        start(bed);
        bed.fill(&root.step_by(0, 4), 1);
        bed.write(&root.step_by(1, 3), 2);
        bed.fill(&root.crop([3..19, 1..5]).step_by(0, 5).step_by(1, 2), 3);
        bed.read(&root);
    });
}

fn views_of_single_columns<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[9, 12]), |bed| {
        let root = bed.root();
        start(bed);
        for x in [0, 4, 8] {
            bed.add(&root.slice(0, x), x + 1);
        }
        bed.update(&root.slice(0, 5), 1);
        let counters = bed.tree.counters();
        bed.read(&root);
        bed.expect_since(&counters, 0, lab.bytes(3 * 12 * 4));
    });
}

fn views_crop_of_slice_of_crop_of_slice<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[7, 8, 5, 4]), |bed| {
        let root = bed.root();
        start(bed);
        let a = root.slice(2, 3);
        let b = a.crop([1..6, 2..7, 1..3]);
        let c = b.slice(0, 4);
        let d = c.crop([3..6, 2..3]);
        bed.fill(&d, 1);
        bed.add(&c, 2);
        bed.update(&d, 3);
        bed.add(&b, 4);
        for view in [&d, &c, &b, &a] {
            bed.read(view);
        }
        bed.read(&root);
    });
}

fn views_all_orders_of_three_axes<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[5, 4, 3]), |bed| {
        let root = bed.root();
        start(bed);
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        for (i, order) in orders.into_iter().enumerate() {
            let view = root.permute(order);
            bed.fill(&view, i as i32);
            bed.read(&root);
            bed.write(&view, i as i32 + 10);
            bed.add(&view.crop_to(&[1..3, 0..2, 1..3]), 1);
            bed.read(&view);
        }
    });
}

fn views_flipped_twice_are_themselves<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[6, 5]).min(&[-3, 2]), |bed| {
        let root = bed.root();
        let same = root.flip(0).flip(1).flip(0).flip(1);
        assert_eq!(same.spot, root.spot);
        bed.fill(&same, 1);
        bed.read(&root);
        bed.add(&root.flip(1).crop([-2..1, 3..6]), 2);
        bed.read(&same);
    });
}

fn views_many_levels_deep<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[40, 40]), |bed| {
        start(bed);
        let mut chain: Vec<Patch<'_, i32, H>> = vec![bed.root()];
        for level in 1..12 {
            let last = &chain[level - 1];
            let next =
                last.crop([level as i32..40 - level as i32, level as i32..40 - level as i32]);
            bed.add(&next, level as i32);
            chain.push(next);
        }
        // The deepest goes on while its ancestors go.
        let deepest = chain.pop().expect("eleven levels");
        drop(chain);
        bed.add(&deepest, 50);
        bed.read(&deepest);
        bed.read(&bed.root());
    });
}

fn views_come_and_go_without_filling_the_table<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[16, 16]), |bed| {
        let root = bed.root();
        start(bed);
        for i in 0..300 {
            let view = root.crop([i % 16..16, 0..16]).slice(1, i % 16);
            if i % 50 == 0 {
                bed.add(&view, 1);
            }
        }
        assert_eq!(bed.tree.live_views(), 0);
    });
}
