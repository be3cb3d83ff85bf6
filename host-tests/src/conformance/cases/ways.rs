//! Other ways in and out: memory from outside, no host storage, read-only storage, detached trees, fills and
//! copies without a kernel, pending accesses, making room.

use std::task::Poll;
use std::time::Duration;

use hedgerow::capacity::Capacity;
use hedgerow::driver::{Contents, CopyBox, DeviceDriver, ErrorKind};
use hedgerow::{Error, Location, Mode, Shape, with_room};

use super::super::kernels;
use super::super::lab::{Hardware, Lab, Plot, Storage};
use super::start;

super::cases! {
    both:
        p07_what_was_written_can_be_read_alone,
        p10_wrapped_memory_comes_back_when_no_view_lives,
        p24_views_kept_apart_by_the_kernel,
        ways_detached_windows_write_home_when_closed,
        ways_detached_readers_share_their_halo,
        ways_fill_without_a_kernel,
        ways_copy_without_a_kernel,
        ways_copy_overlapping_parts,
        ways_prefetch_moves_once,
        ways_pending_reads_and_writes,
        ways_make_room_by_evicting_another_tree,
        ways_read_into_other_memory,
        ways_poison_changes_no_result;
    borrowed:
        p11_a_root_without_host_storage,
        ways_read_only_storage_is_never_written,
}

const SOON: Duration = Duration::from_secs(10);

fn p07_what_was_written_can_be_read_alone<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    if lab.storage == Storage::Borrowed || !lab.is_exact() {
        return; // All of it is written, or was by widening.
    }
    lab.run::<i32>(&Plot::packed(&[10, 10]), |bed| {
        let root = bed.root();
        let crop = root.crop([2..6, 3..8]);
        bed.fill(&crop, 1);
        let guard = root.view.read_written().expect("reads the rest");
        for at in root.spot.coordinates() {
            let at = [at[0], at[1]];
            let expected = crop.spot.contains(&at).then(|| kernels::code(&at, 1));
            assert_eq!(
                (guard.get(at).copied(), guard.is_written(at)),
                (expected, expected.is_some())
            );
        }
        assert_eq!(guard.get([10, 0]), None);
        drop(guard);
        bed.model().brought(&crop.spot.elements, 0);
        bed.expect_on_first(&Default::default(), 0, lab.bytes(crop.bytes()));
    });
}

/// Halide #3706.
fn p10_wrapped_memory_comes_back_when_no_view_lives<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let rig = &lab.rig;
    let outside: Vec<i32> = (0..48).map(|i| 1000 + i).collect();
    let bytes = 4 * outside.len() as u64;
    let allocation = rig.allocate(bytes, Contents::Zeroed).expect("memory");
    // SAFETY: 48 elements on both sides, of memory that nobody else uses, after it is ready.
    let filled = unsafe {
        let all = [CopyBox::flat(0, 0, bytes)];
        rig.upload(outside.as_ptr().cast(), allocation.memory, &all, &[allocation.ready])
    };
    rig.wait(filled.expect("uploads"), SOON).expect("in time");
    lab.run::<i32>(&Plot::packed(&[8, 6]), |bed| {
        // SAFETY: live memory of this driver, of that many bytes, dense as the root is.
        let small = unsafe { bed.tree.wrap_device(0, allocation.memory, bytes - 1) };
        assert!(matches!(small, Err(Error::TooSmall { .. })), "{small:?}");
        // SAFETY: as above; it is used through the tree only until it is unwrapped.
        let wrapped = unsafe { bed.tree.wrap_device(0, allocation.memory, bytes) };
        if lab.is_shared() {
            assert!(matches!(wrapped, Err(Error::Resident)), "{wrapped:?}");
            return;
        }
        wrapped.expect("wraps");
        let root = bed.root();
        let allocations = bed.rig().snapshot().allocations;
        root.view.assume_fresh(Location::Device(0)).expect("it is");
        bed.wrote(&root, 1, &outside);
        let crop = root.crop([2..6, 1..5]);
        bed.add(&crop, 7);
        assert_eq!(bed.rig().snapshot().allocations, allocations, "no memory but that");
        let refused = bed.tree.unwrap_device(0).map(drop);
        assert!(matches!(refused, Err(Error::LiveViews { views: 1, .. })), "{refused:?}");
        bed.read(&crop);
        drop((crop, root));
        let back = bed.tree.unwrap_device(0).expect("no view lives");
        assert_eq!(format!("{back:?}"), format!("{:?}", allocation.memory));
        // What only the device held came home.
        let root = bed.root();
        bed.only_values();
        bed.model().brought(&root.spot.elements, 0);
        bed.read(&root);
        assert!(matches!(bed.tree.unwrap_device(0).map(drop), Err(Error::NotWrapped)));
    });
    // SAFETY: made here, and out of the tree again.
    unsafe { rig.release(allocation.memory, &[]) };
}

/// Halide #3060.
fn p11_a_root_without_host_storage<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let (fill, add) = (lab.kernel(&kernels::FILL_I32), lab.kernel(&kernels::ADD_I32));
    let before = lab.rig.snapshot();
    let tree = lab.builder().device_only::<i32>(Shape::packed([9, 7])).expect("a tree");
    assert_eq!(lab.rig.since(&before), Default::default(), "nothing until asked");
    let root = lab.see(tree.root());
    fill.launch((root.as_overwrite(),), 1).expect("runs");
    add.launch((root.slice(1, 3).expect("a row").as_update(),), 2).expect("runs");
    assert_eq!(lab.rig.since(&before).bytes_moved(), 0);
    assert_eq!(lab.rig.since(&before).allocations.calls, 1);
    for answer in [
        root.read().map(drop),
        root.update().map(drop),
        root.overwrite().map(drop),
        root.plan(Location::Host, Mode::Read).map(drop),
    ] {
        assert!(matches!(answer, Err(Error::NoHostStorage)), "{answer:?}");
    }
    // The storage given at this moment is filled.
    let crop = lab.see(root.crop([2..8, 2..5]).expect("a crop"));
    let mut out = [0; 18];
    assert_eq!(crop.read_into(&mut out).expect("copies out"), 18);
    for (i, value) in out.iter().enumerate() {
        let at = [2 + i as i32 % 6, 2 + i as i32 / 6];
        assert_eq!(*value, kernels::code(&at, 1) + if at[1] == 3 { 2 } else { 0 });
    }
    let short = crop.read_into(&mut [0; 17]);
    assert!(matches!(short, Err(Error::Geometry(_))), "{short:?}");
    assert!(tree.evict(0).is_err(), "there is no home to bring it to");
    drop((root, crop));
    tree.discard();
}

fn p24_views_kept_apart_by_the_kernel<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[16, 4]), |bed| {
        start(bed);
        bed.only_values();
        let root = bed.root();
        // Even columns to odd ones: one box over both, and no element in common.
        let (even, odd) = (root.step_by(0, 2), root.crop([1..16, 0..4]).step_by(0, 2));
        let copy = bed.kernel(&kernels::COPY_I32);
        let refused = copy.launch((even.view.as_read(), odd.view.as_overwrite()), 3);
        assert!(matches!(refused, Err(Error::Overlap { .. })), "{refused:?}");
        // SAFETY: the kernel touches elements of even columns in one view, of odd ones in the other.
        let taken =
            unsafe { copy.launch_kept_apart((even.view.as_read(), odd.view.as_overwrite()), 3) };
        taken.expect("the caller's word is taken");
        let values = bed.values(&even, |value| value + 3);
        bed.model().brought(&root.spot.elements, 1);
        bed.wrote(&odd, 1, &values);
        bed.read(&root);
    });
}

fn ways_detached_windows_write_home_when_closed<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::strided(&[20, 12], &[1, 24]).min(&[-3, 5]), |bed| {
        let root = bed.root();
        start(bed);
        bed.add(&root.crop([0..9, 6..14]), 1);
        let window = root.crop([4..12, 7..11]);
        let before = bed.rig().snapshot();
        let tree = lab
            .trouble
            .insist(|| lab.builder().detach(&window.view, Mode::Update))
            .expect("detaches");
        assert!(matches!(window.view.read().map(drop), Err(Error::Busy(_))), "held like a guard");
        if lab.is_exact() {
            drop(root.crop([12..17, 5..17]).view.read().expect("beside it is free"));
        }
        bed.kernel(&kernels::ADD_I32).launch((tree.root().as_update(),), 6).expect("runs");
        let made = bed.rig().since(&before).allocations;
        assert_eq!((made.calls, made.bytes), (1, window.bytes()), "of the window's size");
        assert_eq!(tree.root().region(), window.view.region());
        lab.close_at_last(tree);
        bed.only_values();
        let values = bed.values(&window, |value| value + 6);
        bed.wrote(&window, 0, &values);
        bed.read(&root);
        bed.add(&root, 1);
    });
}

fn ways_detached_readers_share_their_halo<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[24, 10]), |bed| {
        let root = bed.root();
        start(bed);
        bed.read(&root);
        let (left, right) = (root.crop([0..14, 0..10]), root.crop([10..24, 0..10]));
        let one =
            lab.trouble.insist(|| lab.builder().detach(&left.view, Mode::Read)).expect("detaches");
        let two = lab
            .trouble
            .insist(|| lab.builder().detach(&right.view, Mode::Read))
            .expect("shares the halo");
        lab.run::<i32>(&Plot::packed(&[24, 10]), |out| {
            let stencils = out.kernels(&kernels::STENCIL_I32);
            let last = stencils.len() - 1;
            for (tree, part, kernel) in
                [(&one, 0..12, &stencils[0]), (&two, 12..24, &stencils[last])]
            {
                let target = out.root().crop([part.clone(), 0..10]);
                kernel
                    .launch((tree.root().as_read(), target.view.as_overwrite()), 0)
                    .expect("runs");
            }
            // As if it had been done in one piece.
            let input = bed.values(&root, |value| value);
            let at = |x: i32, y: i32| input[root.spot.index(&[x.clamp(0, 23), y.clamp(0, 9)])];
            let values: Vec<i32> = root
                .spot
                .coordinates()
                .iter()
                .map(|c| {
                    let (x, y) = (c[0], c[1]);
                    4 * at(x, y) + at(x - 1, y) + at(x + 1, y) + at(x, y - 1) + at(x, y + 1)
                })
                .collect();
            out.only_values();
            out.wrote(&out.root(), 1, &values);
            out.read(&out.root());
        });
        assert!(root.view.update().is_err(), "they are read");
        lab.close_at_last(one);
        lab.close_at_last(two);
        bed.update(&root, 1);
    });
}

fn ways_fill_without_a_kernel<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[14, 9]), |bed| {
        let root = bed.root();
        start(bed);
        bed.set(&root.crop([2..9, 1..7]), 77);
        bed.set(&root.slice(0, 11), -5);
        bed.set(&root.step_by(0, 3).flip(0), 8);
        bed.set(&root.crop([3..3, 0..9]), 9);
        bed.read(&root);
    });
    lab.run::<[u8; 3]>(&Plot::packed(&[14, 9]), |bed| {
        let root = bed.root();
        start(bed);
        bed.set(&root.crop([3..10, 2..8]), [1, 2, 3]);
        bed.read(&root);
    });
    lab.run::<u8>(&Plot::packed(&[14, 9]), |bed| {
        let root = bed.root();
        start(bed);
        for x in 0..13 {
            bed.set(&root.crop([x..x + 1, 0..9]), x as u8);
            bed.write(&root.crop([x + 1..x + 2, 2..5]), x);
        }
        bed.read(&root);
    });
}

fn ways_copy_without_a_kernel<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<u8>(&Plot::packed(&[21, 10]), |bed| {
        let root = bed.root();
        start(bed);
        let counters = bed.tree.counters();
        let from = root.crop([1..8, 2..7]);
        bed.transfer(&from, &root.crop([11..18, 5..10]));
        bed.expect_since(&counters, lab.bytes(from.bytes()), 0);
        bed.transfer(&root.crop([0..3, 0..4]).flip(0), &root.crop([8..11, 1..5]));
        bed.transfer(&root.crop([0..4, 0..3]).permute([1, 0]), &root.crop([18..21, 0..4]));
        bed.transfer(&root.slice(1, 8), &root.slice(1, 0));
        bed.read(&root);
        let other = root.crop([0..3, 0..3]).view.copy_from(&root.crop([0..4, 0..3]).view, 0);
        assert!(matches!(other, Err(Error::Mismatch)), "{other:?}");
    });
}

fn ways_copy_overlapping_parts<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[20, 10]), |bed| {
        let root = bed.root();
        start(bed);
        bed.only_values();
        bed.transfer(&root.crop([0..12, 0..8]), &root.crop([3..15, 2..10]));
        bed.read(&root);
        bed.transfer(&root.crop([3..15, 2..10]), &root.crop([2..14, 2..10]));
        bed.transfer(&root.flip(0), &root);
        bed.read(&root);
    });
}

fn ways_prefetch_moves_once<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[16, 16]), |bed| {
        let root = bed.root();
        start(bed);
        let crop = root.crop([3..12, 2..9]);
        let ticket = crop.view.prefetch(0).expect("accepted");
        let wait = || bed.rig().wait(ticket, SOON).map_err(Error::Driver);
        lab.trouble.insist(wait).expect("in time");
        bed.expect_on_first(&Default::default(), lab.bytes(crop.bytes()), 0);
        let place = if lab.is_shared() { 0 } else { 1 };
        bed.model().brought(&crop.spot.elements, place);
        bed.add(&crop, 1);
        bed.expect_on_first(&Default::default(), lab.bytes(crop.bytes()), 0);
        bed.read(&root);
    });
}

fn ways_pending_reads_and_writes<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[16, 16]), |bed| {
        let root = bed.root();
        start(bed);
        bed.add(&root, 3);
        let crop = root.crop([3..12, 2..9]);
        let mut reading = lab.trouble.insist(|| crop.view.begin_read()).expect("begins");
        let guard = loop {
            match reading.poll() {
                Ok(Poll::Ready(guard)) => break guard,
                Ok(Poll::Pending) => {}
                Err(error) => {
                    // It has let go of its region.
                    assert!(lab.trouble.met(&error), "{error}");
                    reading = lab.trouble.insist(|| crop.view.begin_read()).expect("begins");
                }
            }
            std::thread::yield_now();
        };
        assert!(reading.poll().is_err(), "once");
        let mut values = vec![0; crop.spot.elements.len()];
        guard.copy_to_slice(&mut values);
        assert_eq!(values, bed.values(&crop, |value| value));
        drop((guard, reading));
        bed.model().brought(&crop.spot.elements, 0);
        bed.expect_on_first(&Default::default(), lab.bytes(root.bytes()), lab.bytes(crop.bytes()));

        let mut writing = lab.trouble.insist(|| root.view.begin_update()).expect("begins");
        assert!(root.view.try_read().is_err(), "it holds its region");
        let mut guard = loop {
            match writing.poll() {
                Ok(Poll::Ready(guard)) => break guard,
                Ok(Poll::Pending) => {}
                Err(error) => {
                    assert!(lab.trouble.met(&error), "{error}");
                    writing = lab.trouble.insist(|| root.view.begin_update()).expect("begins");
                }
            }
            std::thread::yield_now();
        };
        for row in guard.rows_mut().expect("rows") {
            row.iter_mut().for_each(|value| *value += 1);
        }
        drop((guard, writing));
        let values = bed.values(&root, |value| value + 1);
        bed.wrote(&root, 0, &values);
        // One that is given up before it is done changes nothing.
        bed.add(&crop, 1);
        drop(lab.trouble.insist(|| root.view.begin_overwrite()).expect("begins"));
        bed.read(&root);
    });
}

fn ways_make_room_by_evicting_another_tree<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    if lab.is_shared() {
        return; // Its memory is the host's: there is nothing to give back.
    }
    lab.run::<i32>(&Plot::packed(&[16, 16]), |old| {
        start(old);
        old.add(&old.root().crop([3..9, 3..9]), 1);
        lab.run::<i32>(&Plot::packed(&[10, 10]), |new| {
            let root = new.root();
            let fill = new.kernel(&kernels::FILL_I32);
            lab.rig.inner().arm(1, ErrorKind::OutOfMemory);
            with_room(&[old.tree], || fill.launch((root.view.as_overwrite(),), 1).map(drop))
                .expect("there is room now");
            lab.rig.inner().disarm();
            let values: Vec<_> =
                root.spot.coordinates().iter().map(|at| kernels::code(at, 1)).collect();
            new.wrote(&root, 1, &values);
            new.read(&root);
        });
        assert_eq!(old.tree.counters().evictions, 1);
        old.only_values();
        old.read(&old.root());
        old.add(&old.root(), 1);
    });
}

fn ways_read_into_other_memory<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::strided(&[12, 9], &[1, 16]), |bed| {
        let root = bed.root();
        start(bed);
        bed.add(&root.crop([3..9, 2..7]), 1);
        bed.only_values();
        for view in
            [root.crop([1..11, 1..8]), root.flip(0), root.permute([1, 0]), root.step_by(0, 5)]
        {
            let mut out = vec![0; view.spot.elements.len() + 3];
            let copied = view.view.read_into(&mut out).expect("copies out");
            assert_eq!(copied, view.spot.elements.len());
            assert_eq!(out[..copied], bed.values(&view, |value| value));
            assert_eq!(out[copied..], [0; 3]);
        }
        bed.read(&root);
    });
}

fn ways_read_only_storage_is_never_written<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let memory: Vec<i32> = (0..80).collect();
    let tree = lab.builder().over_ref(&memory, Shape::packed([10, 8])).expect("a tree");
    let root = lab.see(tree.root());
    let add = lab.kernel(&kernels::ADD_I32);
    let half = lab.see(root.crop([0..10, 0..4]).expect("a crop"));
    add.launch((half.as_update(),), 5).expect("runs");
    for answer in [root.overwrite().map(drop), root.update().map(drop), half.read().map(drop)] {
        assert!(matches!(answer, Err(Error::ReadOnly { .. })), "{answer:?}");
    }
    let mut out = [0; 40];
    half.read_into(&mut out).expect("into other memory");
    assert!((0..40).all(|i| out[i] == i as i32 + 5));
    if lab.is_exact() {
        let rest = root.crop([0..10, 4..8]).expect("a crop");
        assert_eq!(rest.read().expect("fresh at home").get([3, 5]), Some(&53));
    }
    drop((root, half));
    tree.discard();
    assert!(memory.iter().copied().eq(0..80));
}

fn ways_poison_changes_no_result<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let mut memory = vec![3i32; 400];
    let shape = Shape::packed([20, 20]);
    let tree = match lab.storage {
        Storage::Borrowed => lab.builder().poison(true).over(&mut memory, shape),
        Storage::Owned => lab.trouble.insist(|| lab.builder().poison(true).owned(shape)),
    };
    let tree = tree.expect("a tree");
    let root = lab.see(tree.root());
    root.overwrite().expect("a guard").fill(3);
    let (fill, add) = (lab.kernel(&kernels::FILL_I32), lab.kernel(&kernels::ADD_I32));
    let crop = root.crop([2..10, 4..8]).expect("a crop");
    fill.launch((crop.as_overwrite(),), 1).expect("runs");
    add.launch((root.crop([0..6, 0..20]).expect("a crop").as_update(),), 1).expect("runs");
    {
        let row = lab.see(root.slice(1, 6).expect("a row"));
        let mut row = row.update().expect("a guard");
        row[[4]] += 1;
    }
    let image = root.read().expect("reads");
    for (x, y) in (0..20).flat_map(|y| (0..20).map(move |x| (x, y))) {
        let inside = (2..10).contains(&x) && (4..8).contains(&y);
        let first = if inside { kernels::code(&[x, y], 1) } else { 3 };
        let expected = first + i32::from(x < 6) + i32::from((x, y) == (4, 6));
        assert_eq!(image[[x, y]], expected, "at {x}, {y}");
    }
    drop(image);
    drop((root, crop));
    tree.discard();
}
