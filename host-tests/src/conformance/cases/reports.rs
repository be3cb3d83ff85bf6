//! The scenarios of `scenarios.md`: what users of other libraries reported, and what is right instead.

use hedgerow::capacity::Capacity;
use hedgerow::driver::middleware::Counts;
use hedgerow::driver::{DeviceDriver, ErrorKind};
use hedgerow::error::{Busy, Holder};
use hedgerow::{Error, GeometryError, Mode, Shape};

use super::super::kernels;
use super::super::lab::{Bed, Hardware, Lab, Plot, Storage};
use super::start;

super::cases! {
    both:
        s0_kernels_on_two_crops_change_forty_cells,
        s0_whole_program_without_a_first_write,
        s0b_planes_by_two_kernels_then_the_whole_image,
        p01_two_crops_before_any_allocation,
        p02_a_slice_written_on_the_device_and_the_root_on_the_host,
        p03_the_second_crop_is_still_copied,
        p04_what_is_there_already_is_left_out,
        p05_gaps_on_the_host_are_untouched,
        p06_the_last_row_and_column,
        p07_a_crop_of_a_root_never_written,
        p08_a_tile_on_the_device_of_a_root_newer_on_the_host,
        p09_every_call_fails_once,
        p12_unit_axes_fold_into_one_copy,
        p13_a_crop_from_element_one_of_floats,
        p13_a_crop_from_element_one_of_bytes,
        p14_disjoint_crops_then_their_union_then_the_root,
        p15_a_crop_of_a_root_written_on_the_device,
        p16_an_overwrite_uploads_nothing,
        p17_guards_by_region_across_locations,
        p18_row_strips_read_by_column_strips,
        p19_read_after_write_on_the_host,
        p20_views_of_no_elements,
        p21_slices_of_a_batch_share_the_allocation,
        p22_flipped_permuted_and_stepped_views,
        p22_strides_that_overlap_are_refused,
        p23_four_levels_of_views,
        p24_two_reading_views_of_one_root,
        p24_a_written_view_with_its_root_is_refused;
    borrowed:
        s0_on_memory_with_guard_bytes,
        p05_gaps_of_a_padded_root_survive;
}

/// halide/Halide #8395, as first reported.
fn s0_kernels_on_two_crops_change_forty_cells<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[20, 20]), |bed| {
        let root = bed.root();
        start(bed);
        let before = bed.values(&root, |value| value);
        let counters = bed.tree.counters();
        bed.fill(&root.crop([2..10, 4..8]), 1);
        bed.fill(&root.crop([0..1, 2..10]), 2);
        bed.expect_since(&counters, 0, 0);
        bed.read(&root);
        bed.expect_since(&counters, 0, lab.bytes(160));
        let image = root.view.read().expect("reads");
        let mut now = vec![0; 400];
        image.copy_to_slice(&mut now);
        let changed = before.iter().zip(&now).filter(|(a, b)| a != b).count();
        assert_eq!((changed, now.len() - changed), (40, 360));
        assert_eq!(image[[3, 5]], 3 * 100 + 5 + 10_000);
        assert_eq!(image[[0, 9]], 9 + 20_000);
    });
}

/// The same with nothing set before: owned storage then holds the forty cells alone.
fn s0_whole_program_without_a_first_write<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[20, 20]), |bed| {
        let root = bed.root();
        let (a, b) = (root.crop([2..10, 4..8]), root.crop([0..1, 2..10]));
        bed.fill(&a, 1);
        bed.fill(&b, 2);
        bed.read(&a);
        bed.read(&b);
        bed.expect_since(&Default::default(), 0, lab.bytes(160));
    });
}

/// The program as the README has it, on memory whose surroundings are watched.
fn s0_on_memory_with_guard_bytes<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let mut memory = vec![-1i32; 420];
    let tree = lab.builder().over(&mut memory[10..410], Shape::packed([20, 20])).expect("a tree");
    let fills = lab.kernels(&kernels::FILL_I32);
    let root = lab.see(tree.root());
    fills[0].launch((root.crop([2..10, 4..8]).expect("a crop").as_overwrite(),), 1).expect("runs");
    let last = &fills[fills.len() - 1];
    last.launch((root.crop([0..1, 2..10]).expect("a crop").as_overwrite(),), 2).expect("runs");
    assert_eq!(root.read().expect("reads")[[2, 4]], 10_204);
    if lab.is_exact() && !lab.trouble.is_any() {
        assert_eq!(lab.count(|counts| counts.downloads.bytes), 160);
        assert_eq!(lab.count(|counts| counts.uploads.bytes), 0);
    }
    assert_eq!(lab.count(|counts| counts.allocations.calls), fills.len() as u64, "one for each");
    drop(root);
    lab.close_at_last(tree);
    let inside = |i: usize| {
        let (x, y) = ((i - 10) % 20, (i - 10) / 20);
        ((2..10).contains(&x) && (4..8).contains(&y)) || (x == 0 && (2..10).contains(&y))
    };
    for (i, value) in memory.iter().enumerate() {
        let written = (10..410).contains(&i) && inside(i);
        assert_eq!(*value != -1, written, "element {i}");
    }
}

/// Halide #8395, the reporter's use: a planar image, denoised channel by channel.
fn s0b_planes_by_two_kernels_then_the_whole_image<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<f32>(&Plot::packed(&[24, 16, 3]), |bed| {
        let root = bed.root();
        start(bed);
        let counters = bed.tree.counters();
        let luma = root.crop([0..24, 0..16, 0..1]);
        let chroma = root.crop([0..24, 0..16, 1..3]);
        bed.fill(&luma, 1);
        bed.fill(&chroma, 2);
        // Nothing is uploaded for the overwritten planes, nor for the whole image after.
        bed.add(&root, 3);
        bed.expect_since(&counters, 0, 0);
        bed.read(&root);
        bed.expect_since(&counters, 0, lab.bytes(24 * 16 * 3 * 4));
    });
}

/// Halide #8395: crops taken before the device allocation exists.
fn p01_two_crops_before_any_allocation<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[8, 6, 3]), |bed| {
        let root = bed.root();
        let first = root.crop([0..8, 0..6, 0..1]);
        let rest = root.crop([0..8, 0..6, 1..3]);
        bed.fill(&first, 1);
        bed.fill(&rest, 2);
        let allocations = bed.rig().snapshot().allocations;
        let expected = if lab.is_shared() { (0, 0) } else { (1, root.bytes()) };
        assert_eq!((allocations.calls, allocations.bytes), expected);
        bed.read(&root);
        bed.expect_since(&Default::default(), 0, lab.bytes(root.bytes()));
    });
}

/// Halide #8395 and #7004.
fn p02_a_slice_written_on_the_device_and_the_root_on_the_host<H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
) {
    lab.run::<i32>(&Plot::packed(&[16, 8]), |bed| {
        let root = bed.root();
        start(bed);
        bed.bring(&root);
        let slice = root.slice(1, 3);
        let counters = bed.tree.counters();
        bed.add(&slice, 5);
        bed.read(&root);
        bed.expect_since(&counters, 0, lab.bytes(slice.bytes()));
        bed.update(&root, 7);
        let counters = bed.tree.counters();
        bed.add(&slice, 1);
        bed.expect_since(&counters, lab.bytes(slice.bytes()), 0);
        bed.read(&slice);
    });
}

/// kokkos #2563: the sibling's copy must not be taken for done.
fn p03_the_second_crop_is_still_copied<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[12, 10]), |bed| {
        let root = bed.root();
        start(bed);
        bed.bring(&root);
        let (a, b) = (root.crop([1..5, 1..4]), root.crop([6..11, 5..9]));
        bed.write(&a, 3);
        bed.write(&b, 4);
        let counters = bed.tree.counters();
        bed.bring(&a);
        bed.expect_since(&counters, lab.bytes(a.bytes()), 0);
        bed.bring(&b);
        bed.expect_since(&counters, lab.bytes(a.bytes() + b.bytes()), 0);
        bed.add(&root, 1);
        bed.read(&root);
    });
}

/// kokkos #2514.
fn p04_what_is_there_already_is_left_out<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[12, 10]), |bed| {
        let root = bed.root();
        let a = root.crop([3..7, 2..6]);
        bed.write(&a, 3);
        for (x, y) in [(0..12, 0..2), (0..12, 6..10), (0..3, 2..6), (7..12, 2..6)] {
            bed.write(&root.crop([x, y]), 6);
        }
        let counters = bed.tree.counters();
        bed.bring(&a);
        bed.expect_since(&counters, lab.bytes(a.bytes()), 0);
        bed.bring(&root);
        bed.expect_since(&counters, lab.bytes(root.bytes()), 0);
        bed.add(&root, 1);
        bed.read(&root);
    });
}

/// Halide #318, numba #3553: rows of a crop have gaps between them, which are somebody else's.
fn p05_gaps_on_the_host_are_untouched<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[16, 12]), |bed| {
        let root = bed.root();
        start(bed);
        let crop = root.crop([5..9, 2..11]);
        bed.fill(&crop, 1);
        for x in [0..5, 9..16] {
            bed.write(&root.crop([x, 0..12]), 3);
        }
        let counters = bed.tree.counters();
        bed.read(&crop);
        bed.expect_since(&counters, 0, lab.bytes(crop.bytes()));
        bed.read(&root);
        bed.expect_since(&counters, 0, lab.bytes(crop.bytes()));
    });
}

/// The same where the gaps belong to nobody in the tree: the padding of the caller's rows.
fn p05_gaps_of_a_padded_root_survive<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<u8>(&Plot::strided(&[5, 7, 2], &[1, 8, 61]), |bed| {
        let root = bed.root();
        bed.fill(&root.crop([1..4, 2..7, 0..2]), 1);
        bed.add(&root.crop([0..5, 0..3, 1..2]), 9);
        bed.read(&root);
    });
}

/// opencv #5172: the storage ends at the crop's last element. What is behind is watched by the lab.
fn p06_the_last_row_and_column<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    for plot in
        [Plot::packed(&[7, 5]), Plot::strided(&[7, 5], &[1, 11]), Plot::strided(&[7, 5], &[2, 14])]
    {
        lab.run::<i32>(&plot, |bed| {
            let root = bed.root();
            start(bed);
            let corner = root.crop([4..7, 3..5]);
            bed.add(&corner, 2);
            bed.read(&corner);
            bed.fill(&root.crop([6..7, 4..5]), 8);
            bed.read(&root);
        });
        lab.run::<u8>(&plot, |bed| {
            let corner = bed.root().crop([6..7, 1..5]);
            bed.fill(&corner, 2);
            bed.read(&corner);
        });
    }
}

/// Halide #4664.
fn p07_a_crop_of_a_root_never_written<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[10, 10]), |bed| {
        let root = bed.root();
        let crop = root.crop([2..6, 3..8]);
        bed.fill(&crop, 1);
        if lab.storage == Storage::Owned && lab.is_exact() {
            let answer = root.view.read().map(drop);
            assert!(matches!(answer, Err(Error::Undefined { lost: false, .. })), "{answer:?}");
            bed.expect_since(&Default::default(), 0, 0);
        }
        bed.read(&root);
        bed.read(&crop);
        bed.expect_since(&Default::default(), 0, lab.bytes(crop.bytes()));
    });
}

/// Halide #4431: "both dirty" is no error.
fn p08_a_tile_on_the_device_of_a_root_newer_on_the_host<H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
) {
    lab.run::<i32>(&Plot::packed(&[33, 17]), |bed| {
        let root = bed.root();
        start(bed);
        bed.bring(&root);
        bed.write(&root, 1);
        let tile = root.crop([5..18, 3..14]);
        let counters = bed.tree.counters();
        bed.add(&tile, 4);
        bed.expect_since(&counters, lab.bytes(tile.bytes()), 0);
        bed.update(&root.crop([0..33, 0..3]), 2);
        bed.read(&root);
        bed.expect_since(&counters, lab.bytes(tile.bytes()), lab.bytes(tile.bytes()));
        bed.add(&root, 1);
        bed.expect_since(&counters, lab.bytes(root.bytes()), lab.bytes(tile.bytes()));
    });
}

/// Halide #6403, with a program of every kind of call. Other failures are in `faults`.
fn p09_every_call_fails_once<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    super::faults::fail_every_call(lab, ErrorKind::Other, false);
}

/// Halide #8956: three million copies for want of folding.
fn p12_unit_axes_fold_into_one_copy<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let shape = Shape::with_order([1024, 1024, 3, 1], [3, 2, 0, 1]);
    let mut memory = match lab.storage {
        Storage::Borrowed => vec![0.5f32; 1024 * 1024 * 3],
        Storage::Owned => Vec::new(),
    };
    let tree = match lab.storage {
        Storage::Borrowed => lab.builder().over(&mut memory, shape),
        Storage::Owned => lab.trouble.insist(|| lab.builder().owned::<f32>(shape)),
    };
    let tree = tree.expect("a tree");
    let root = lab.see(tree.root());
    // Owned storage is zeroed: taking it over as written is enough here.
    drop(root.overwrite().expect("a guard"));
    let mut boxes = 0;
    let plan = root.plan_each(hedgerow::Location::Device(0), Mode::Read, |_, _, copy| {
        assert_eq!((copy.runs(), copy.dims().len()), (1, 0));
        boxes += 1;
    });
    let up = lab.bytes(1024 * 1024 * 3 * 4);
    assert_eq!(plan.expect("a plan").bytes_up, up);
    let before = lab.rig.snapshot();
    let access = root.on_device(0, Mode::Read).expect("on the device");
    let moved = lab.rig.since(&before);
    let one = u64::from(!lab.is_shared());
    assert_eq!(boxes, one);
    let both = (moved.uploads.boxes + moved.copies.boxes, moved.uploads.runs + moved.copies.runs);
    assert_eq!(both, (one, one));
    assert_eq!(moved.bytes_moved(), up);
    drop(access);
    drop(root);
    tree.discard();
}

/// Halide #8944, floats.
fn p13_a_crop_from_element_one_of_floats<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<f32>(&Plot::packed(&[300]), |bed| {
        let root = bed.root();
        start(bed);
        for first in [1, 2, 3, 15, 17, 63, 64, 65, 255] {
            let crop = root.crop([first..300]);
            bed.bring_on(0, &crop);
            let access = crop.view.on_device(0, Mode::Read).expect("on the device");
            let binding = access.binding().expect("not empty");
            let align = u64::from(bed.rig().caps().bind_align);
            assert_eq!(binding.offset % align, 0, "alignment from element {first}");
            assert_eq!(binding.offset + binding.geometry.origin, 4 * first as u64);
            assert_eq!(binding.bytes, binding.geometry.origin + crop.bytes());
            drop(access);
            bed.add(&root.crop([first..first + 40]), first);
        }
        bed.read(&root);
    });
}

/// Halide #8944, bytes: the crop's first word is shared with its neighbour.
fn p13_a_crop_from_element_one_of_bytes<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<u8>(&Plot::packed(&[300]), |bed| {
        let root = bed.root();
        start(bed);
        for first in [1, 2, 3, 15, 17, 63, 64, 65, 255] {
            bed.add(&root.crop([first..first + 21]), first);
            bed.fill(&root.crop([first + 30..first + 33]), first);
        }
        bed.read(&root);
    });
}

/// aomp #177, llvm-project #61636.
fn p14_disjoint_crops_then_their_union_then_the_root<H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
) {
    lab.run::<i32>(&Plot::packed(&[32, 8]), |bed| {
        let root = bed.root();
        start(bed);
        let views = [
            root.crop([2..8, 1..3]),
            root.crop([20..30, 5..7]),
            root.crop([2..30, 1..7]),
            root.crop([0..32, 0..8]),
        ];
        let mut memories = Vec::new();
        for (i, view) in views.iter().enumerate() {
            bed.add(view, i as i32 + 1);
            bed.bring_on(0, view);
            let access = view.view.on_device(0, Mode::Read).expect("on the device");
            let binding = access.binding().expect("not empty");
            let address = (view.spot.min[0] + 32 * view.spot.min[1]) * 4;
            assert_eq!(binding.offset + binding.geometry.origin, address as u64);
            memories.push(format!("{:?}", binding.memory));
        }
        memories.dedup();
        assert_eq!(memories.len(), 1, "one memory: {memories:?}");
        assert_eq!(bed.rig().snapshot().allocations.calls, u64::from(!lab.is_shared()));
        bed.read(&root);
    });
}

/// intel/llvm #2328.
fn p15_a_crop_of_a_root_written_on_the_device<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[10_000]), |bed| {
        let root = bed.root();
        bed.fill(&root, 1);
        bed.read(&root.crop([4_000..6_000]));
        bed.expect_since(&Default::default(), 0, lab.bytes(8_000));
        // The rest stays stale at the host.
        let plan = root.view.plan(hedgerow::Location::Host, Mode::Read).expect("a plan");
        if lab.is_exact() {
            assert_eq!(plan.bytes_down, lab.bytes(32_000));
        }
        bed.read(&root);
    });
}

/// intel/llvm #1992.
fn p16_an_overwrite_uploads_nothing<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[40, 30]), |bed| {
        let root = bed.root();
        start(bed);
        bed.fill(&root, 1);
        assert_eq!(bed.moved(), 0);
        let plan = root.view.plan(hedgerow::Location::Host, Mode::Read).expect("a plan");
        assert_eq!(plan.bytes_down, lab.bytes(root.bytes()), "the host is stale");
        bed.read(&root);
    });
}

/// vulkano #1070.
fn p17_guards_by_region_across_locations<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[72]), |bed| {
        let root = bed.root();
        start(bed);
        bed.add(&root, 1);
        bed.read(&root);
        let device = root.crop([36..72]).view.on_device(0, Mode::Read).expect("on the device");
        let guard = root.crop([0..36]).view.overwrite();
        if lab.is_exact() {
            let mut guard = guard.expect("no whole-root lock");
            let across = root.crop([30..40]);
            let busy = across.view.overwrite().map(drop);
            let by_access = |answer: &Result<(), _>| {
                matches!(answer, Err(Error::Busy(Busy { holder: Holder::Access, .. })))
            };
            assert!(by_access(&busy), "{busy:?}");
            let only_device = root.crop([40..50]).view.overwrite().map(drop);
            assert!(by_access(&only_device), "{only_device:?}");
            let only_host = root.crop([3..5]).view.read().map(drop);
            assert!(by_access(&only_host), "{only_host:?}");
            guard.copy_from_slice(&[7; 36]);
            drop(guard);
            bed.wrote(&root.crop([0..36]), 0, &[7; 36]);
        }
        drop(device);
    });
}

/// legion #1148.
fn p18_row_strips_read_by_column_strips<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[30, 30]), |bed| {
        let root = bed.root();
        for strip in 0..3 {
            bed.fill(&root.crop([0..30, 10 * strip..10 * strip + 10]), strip);
        }
        for strip in 0..3 {
            bed.read(&root.crop([10 * strip..10 * strip + 10, 0..30]));
        }
        bed.expect_since(&Default::default(), 0, lab.bytes(root.bytes()));
        bed.read(&root);
        bed.expect_since(&Default::default(), 0, lab.bytes(root.bytes()));
    });
}

/// wgpu #1269.
fn p19_read_after_write_on_the_host<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[9, 9]), |bed| {
        let root = bed.root();
        let before = bed.rig().snapshot();
        bed.write(&root, 1);
        bed.read(&root);
        bed.update(&root.crop([2..5, 1..9]), 1);
        bed.read(&root);
        assert_eq!(bed.rig().since(&before), Counts::default(), "no driver call");
    });
}

/// kokkos #2981, mfem #1693.
fn p20_views_of_no_elements<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[8, 6, 4]), |bed| {
        let root = bed.root();
        bed.fill(&root.crop([0..1, 0..1, 0..1]), 1);
        for kernel in [&kernels::ADD_I32, &kernels::COPY_I32] {
            bed.kernel(kernel);
        }
        let before = bed.rig().snapshot();
        for (x, y, z) in [
            (0..0, 0..6, 0..4),
            (4..4, 1..3, 2..3),
            (8..8, 0..6, 0..4),
            (0..8, 0..0, 0..4),
            (0..8, 6..6, 0..4),
            (2..7, 3..4, 0..0),
            (0..8, 0..6, 4..4),
            (8..8, 6..6, 4..4),
        ] {
            let none = root.crop([x, y, z]);
            bed.read(&none);
            bed.write(&none, 1);
            bed.update(&none, 1);
            bed.fill(&none, 1);
            bed.add(&none, 1);
            bed.bring(&none);
            bed.read(&none.flip(0).step_by(1, 3).permute([2, 0, 1]));
            bed.copy(&none, &none, 1);
        }
        assert_eq!(bed.rig().since(&before), Counts::default(), "no driver call");
        let beyond = root.view.crop([0..8, 0..7, 0..4]).map(drop);
        let expected = GeometryError::OutOfBounds {
            axis: 1,
            start: 0,
            end: 7,
            parent_start: 0,
            parent_end: 6,
        };
        assert!(matches!(beyond, Err(Error::Geometry(error)) if error == expected), "{beyond:?}");
        assert!(root.view.crop([9..9, 0..6, 0..4]).is_err());
    });
}

/// Halide #2869.
fn p21_slices_of_a_batch_share_the_allocation<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[6, 5, 3, 4]), |bed| {
        let root = bed.root();
        for image in 0..4 {
            bed.fill(&root.slice(3, image), image);
        }
        assert_eq!(bed.rig().snapshot().allocations.calls, u64::from(!lab.is_shared()));
        bed.read(&root);
        bed.expect_since(&Default::default(), 0, lab.bytes(root.bytes()));
    });
}

/// numba #3705.
fn p22_flipped_permuted_and_stepped_views<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[12, 9]), |bed| {
        let root = bed.root();
        start(bed);
        bed.fill(&root.flip(0), 1);
        bed.read(&root);
        bed.add(&root.permute([1, 0]), 2);
        bed.read(&root.permute([1, 0]));
        bed.add(&root.step_by(0, 2), 3);
        bed.read(&root.step_by(0, 2));
        bed.fill(&root.step_by(1, 2).flip(1), 4);
        bed.update(&root.step_by(0, 3).permute([1, 0]).flip(0), 5);
        bed.add(&root.crop([1..10, 2..9]).flip(1).step_by(1, 3).permute([1, 0]), 6);
        bed.read(&root.flip(0).flip(1));
        bed.read(&root);
    });
}

fn p22_strides_that_overlap_are_refused<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    for strides in [[1, 3], [0, 4], [1, 0], [2, 6], [1, -3], [-1, 3]] {
        let shape = Shape::strided([4, 4], strides);
        let mut memory = vec![0i32; 64];
        let answer = match lab.storage {
            Storage::Borrowed => lab.builder().over(&mut memory, shape).map(drop),
            Storage::Owned => lab.builder().owned::<i32>(shape).map(drop),
        };
        let refused = Error::Geometry(GeometryError::OverlappingStrides {
            axis: 0,
            stride: 0,
            inner_span: 0,
        });
        let kind = |error: &super::super::lab::Failure<H>| match error {
            Error::Geometry(error) => Some(std::mem::discriminant(error)),
            _ => None,
        };
        assert_eq!(answer.as_ref().err().and_then(kind), kind(&refused), "{strides:?}: {answer:?}");
    }
}

/// mlir-aie #3430: offsets of four levels, in different axes.
fn p23_four_levels_of_views<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[10, 9, 8, 3]).min(&[-2, 5, 0, 1]), |bed| {
        let root = bed.root();
        start(bed);
        let one = root.crop([0..7, 6..13, 1..7, 1..3]);
        let two = one.slice(3, 2);
        let three = two.crop([1..6, 8..13, 2..6]);
        let four = three.slice(1, 9);
        for (level, view) in [&one, &two, &three, &four].into_iter().enumerate() {
            bed.add(view, level as i32 + 1);
            bed.bring_on(0, view);
            let access = view.view.on_device(0, Mode::Read).expect("on the device");
            let binding = access.binding().expect("not empty");
            let first = 4 * view.spot.elements[0] as u64;
            assert_eq!(binding.offset + binding.geometry.origin, first, "level {level}");
            drop(access);
            bed.read(view);
        }
        // Back up, written at the deepest level.
        bed.fill(&four, 9);
        for view in [&four, &three, &two, &one] {
            let counters = bed.tree.counters();
            bed.read(view);
            let all = if view.spot == four.spot { four.bytes() } else { 0 };
            bed.expect_since(&counters, 0, lab.bytes(all));
        }
    });
}

/// executorch #22956.
fn p24_two_reading_views_of_one_root<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[16, 4]), |bed| {
        start(bed);
        let root = bed.root();
        let (a, b) = (root.crop([0..8, 0..3]), root.crop([4..12, 1..4]));
        lab.run::<i32>(&Plot::packed(&[8, 3]), |out| {
            sum(bed, &[&a, &b], out);
            sum(bed, &[&a, &a], out);
        });
        assert_eq!(bed.rig().snapshot().allocations.calls, 2 * u64::from(!lab.is_shared()));
    });
}

/// Sums two views of one tree into another tree.
fn sum<H: Hardware, C: Capacity>(
    from: &Bed<'_, '_, i32, H, C>,
    views: &[&super::super::lab::Patch<'_, i32, H>; 2],
    out: &Bed<'_, '_, i32, H, C>,
) {
    let kernel = from.kernel(&kernels::SUM_I32);
    let target = out.root();
    let [a, b] = views.map(|view| from.values(view, |value| value));
    kernel
        .launch((views[0].view.as_read(), views[1].view.as_read(), target.view.as_overwrite()), 5)
        .expect("runs");
    // Both trees moved on their own account: from here on values alone are compared.
    from.only_values();
    out.only_values();
    let values: Vec<_> = a.iter().zip(&b).map(|(a, b)| a + b + 5).collect();
    out.wrote(&target, 1, &values);
    out.read(&target);
}

fn p24_a_written_view_with_its_root_is_refused<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[16, 4]), |bed| {
        start(bed);
        let root = bed.root();
        let (a, b) = (root.crop([0..8, 0..4]), root.crop([4..12, 0..4]));
        let kernel = bed.kernel(&kernels::COPY_I32);
        let before = bed.rig().snapshot();
        for (from, to) in [(&a, &b), (&b, &a), (&a, &a)] {
            let answer = kernel.launch((from.view.as_read(), to.view.as_overwrite()), 0);
            assert!(matches!(answer, Err(Error::Overlap { .. })), "{answer:?}");
        }
        assert_eq!(bed.rig().since(&before), Counts::default(), "refused before any call");
        // Side by side is fine.
        bed.copy(&root.crop([0..8, 0..4]), &root.crop([8..16, 0..4]), 1);
        bed.read(&root);
    });
}
