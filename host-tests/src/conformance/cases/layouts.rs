//! Memory layouts and element sizes: padded, planar, interleaved, permuted, flipped, unaligned.

use hedgerow::capacity::Capacity;
use hedgerow::region::MAX_RANK;

use super::super::lab::{Hardware, Lab, Plot, Value};
use super::start;

super::cases! {
    both:
        layout_padded_rows,
        layout_padded_rows_and_planes,
        layout_interleaved_channels,
        layout_every_order_of_axes,
        layout_flipped_axes,
        layout_unit_axes_of_any_stride,
        layout_gaps_between_elements,
        layout_roots_of_every_rank,
        layout_empty_root,
        layout_one_element,
        layout_bytes_share_words,
        layout_shorts_share_words,
        layout_three_byte_elements_share_words,
        layout_eight_byte_elements,
        layout_twelve_byte_elements,
        layout_odd_pitches_of_bytes,
        layout_neighbours_in_a_word_on_host_and_device,
        layout_long_thin_roots,
}

/// Crops on all sides, written here and there.
fn exercise<T: Value, H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>, plot: &Plot) {
    lab.run::<T>(plot, |bed| {
        let root = bed.root();
        start(bed);
        let ranges = |from: i32, cut: i32| -> Vec<_> {
            plot.min
                .iter()
                .zip(&plot.extent)
                .map(|(min, n)| {
                    let n = *n as i32;
                    let lo = from.min(n - 1).max(0);
                    min + lo..min + (n - cut).max(lo + 1).min(n)
                })
                .collect()
        };
        bed.add(&root.crop_to(&ranges(1, 1)), 1);
        bed.update(&root.crop_to(&ranges(0, 2)), 2);
        bed.read(&root.crop_to(&ranges(2, 0)));
        bed.fill(&root.crop_to(&ranges(3, 1)), 3);
        bed.write(&root.crop_to(&ranges(2, 2)), 4);
        bed.add(&root, 5);
        bed.read(&root);
        bed.fill(&root, 6);
        bed.read(&root.crop_to(&ranges(1, 3)));
        bed.update(&root, 7);
    });
}

fn layout_padded_rows<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    exercise::<i32, H, C>(lab, &Plot::strided(&[13, 9], &[1, 16]));
    exercise::<f32, H, C>(lab, &Plot::strided(&[13, 9], &[1, 31]).min(&[-6, 4]));
}

fn layout_padded_rows_and_planes<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    exercise::<i32, H, C>(lab, &Plot::strided(&[7, 6, 3], &[1, 9, 77]));
    exercise::<i32, H, C>(lab, &Plot::strided(&[7, 6, 3], &[30, 4, 1]));
}

fn layout_interleaved_channels<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let plot = Plot::ordered(&[10, 7, 3], &[2, 0, 1]);
    exercise::<f32, H, C>(lab, &plot);
    exercise::<u8, H, C>(lab, &plot);
    lab.run::<i32>(&plot, |bed| {
        let root = bed.root();
        start(bed);
        for channel in 0..3 {
            bed.add(&root.slice(2, channel), channel + 1);
        }
        bed.update(&root.slice(2, 1), 9);
        bed.fill(&root.crop([2..8, 1..6, 1..2]), 3);
        bed.read(&root);
    });
}

fn layout_every_order_of_axes<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        exercise::<i32, H, C>(lab, &Plot::ordered(&[6, 5, 4], &order).min(&[0, -2, 3]));
    }
}

fn layout_flipped_axes<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    for strides in [[-1, 8], [1, -8], [-1, -8], [-9, 1], [10, -1]] {
        exercise::<i32, H, C>(lab, &Plot::strided(&[8, 7], &strides));
        exercise::<u8, H, C>(lab, &Plot::strided(&[8, 7], &strides));
    }
}

fn layout_unit_axes_of_any_stride<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    exercise::<i32, H, C>(lab, &Plot::strided(&[1, 9, 5], &[0, 1, 9]));
    exercise::<i32, H, C>(lab, &Plot::strided(&[9, 1, 5], &[1, 0, 9]));
    exercise::<i32, H, C>(lab, &Plot::strided(&[9, 5, 1], &[1, 9, -4]).min(&[0, 0, 7]));
    exercise::<i32, H, C>(lab, &Plot::strided(&[1, 1, 1], &[0, 0, 0]));
}

fn layout_gaps_between_elements<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    exercise::<i32, H, C>(lab, &Plot::strided(&[6, 5], &[2, 12]));
    exercise::<u8, H, C>(lab, &Plot::strided(&[6, 5], &[3, 19]));
}

fn layout_roots_of_every_rank<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    for rank in 1..=MAX_RANK {
        let extent: Vec<u32> =
            (0..rank as u32).map(|axis| [5, 4, 3, 3, 2, 2, 2, 2][axis as usize]).collect();
        exercise::<i32, H, C>(lab, &Plot::packed(&extent));
        exercise::<u8, H, C>(lab, &Plot::packed(&extent));
        let order: Vec<_> = (0..rank).rev().collect();
        exercise::<i32, H, C>(lab, &Plot::ordered(&extent, &order));
    }
}

fn layout_empty_root<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    for extent in [[0, 5], [5, 0], [0, 0]] {
        lab.run::<i32>(&Plot::packed(&extent), |bed| {
            let root = bed.root();
            bed.read(&root);
            bed.write(&root, 1);
            bed.fill(&root, 1);
            bed.add(&root, 1);
            bed.bring(&root);
            bed.tree.sync().expect("nothing to sync");
            bed.tree.release().expect("nothing to release");
            assert_eq!(bed.rig().snapshot().dispatches, 0);
        });
    }
}

fn layout_one_element<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    exercise::<i32, H, C>(lab, &Plot::packed(&[1]));
    exercise::<u8, H, C>(lab, &Plot::packed(&[1]));
    exercise::<[u8; 3], H, C>(lab, &Plot::packed(&[1, 1]));
}

/// Every start and length in the first words.
fn words<T: Value, H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<T>(&Plot::packed(&[23, 5]), |bed| {
        let root = bed.root();
        start(bed);
        let mut p = 0;
        for start in 0..6 {
            for len in 1..5 {
                p += 1;
                let crop = root.crop([start..start + len, p % 5..p % 5 + 1]);
                if p % 3 == 0 {
                    bed.update(&crop, p)
                } else {
                    bed.add(&crop, p)
                }
                bed.read(&root.crop([0..12, p % 5..p % 5 + 1]));
            }
        }
        bed.fill(&root.crop([1..22, 0..5]), 3);
        bed.read(&root);
    });
}

fn layout_bytes_share_words<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    words::<u8, H, C>(lab);
}

fn layout_shorts_share_words<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    words::<u16, H, C>(lab);
}

fn layout_three_byte_elements_share_words<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    words::<[u8; 3], H, C>(lab);
}

fn layout_eight_byte_elements<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    exercise::<u64, H, C>(lab, &Plot::packed(&[9, 6]));
}

fn layout_twelve_byte_elements<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    exercise::<[u8; 12], H, C>(lab, &Plot::strided(&[9, 6], &[1, 10]));
}

fn layout_odd_pitches_of_bytes<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    for pitch in [7, 9, 11, 13] {
        exercise::<u8, H, C>(lab, &Plot::strided(&[7, 6], &[1, pitch]));
        exercise::<u16, H, C>(lab, &Plot::strided(&[7, 6], &[1, pitch]));
    }
}

/// A word whose bytes were written in turn by the host and the device.
fn layout_neighbours_in_a_word_on_host_and_device<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<u8>(&Plot::packed(&[64]), |bed| {
        let root = bed.root();
        start(bed);
        for i in 0..64 {
            let one = root.crop([i..i + 1]);
            if i % 2 == 0 { bed.fill(&one, i) } else { bed.write(&one, i) }
        }
        bed.read(&root);
        for i in (0..64).step_by(3) {
            bed.update(&root.crop([i..i + 1]), i);
            bed.add(&root.crop([63 - i..64 - i]), i);
        }
        bed.read(&root);
    });
}

fn layout_long_thin_roots<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    exercise::<i32, H, C>(lab, &Plot::packed(&[2000, 2]));
    exercise::<i32, H, C>(lab, &Plot::packed(&[2, 2000]));
    exercise::<u8, H, C>(lab, &Plot::packed(&[3, 1000]));
}
