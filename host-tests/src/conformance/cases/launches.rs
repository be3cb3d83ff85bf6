//! Launches: several views, several trees, many at once, and what is refused.

use hedgerow::capacity::Capacity;
use hedgerow::driver::middleware::Counts;
use hedgerow::driver::{
    ComputeDriver, DeviceDriver, ErrorKind, Form, HostCall, KernelError, KernelSource,
};
use hedgerow::{Error, Mode};

use super::super::kernels;
use super::super::lab::{Failure, Hardware, Lab, Pair, Plot, Skip};
use super::start;

super::cases! {
    both:
        launches_in_a_chain_follow_each_other,
        launches_read_before_they_are_overwritten,
        launches_many_before_one_read,
        launches_many_on_overlapping_crops,
        launches_from_two_threads_on_disjoint_crops,
        launches_from_two_threads_on_two_trees,
        launches_of_two_trees_in_either_order,
        launches_over_several_trees,
        launches_copy_within_a_root,
        launches_stencil_with_halo,
        launches_stencil_iterated,
        launches_with_a_failing_second_tree,
        launches_of_no_groups_are_an_error,
        launches_of_groups_as_given,
        launches_with_the_wrong_number_of_views,
        launches_on_another_driver_are_refused,
        launches_of_kernels_without_a_form,
        launches_of_kernels_that_make_no_sense,
        launches_of_too_many_parameters,
        launches_on_two_devices_of_one_tree,
        launches_overwrite_on_a_second_device_moves_nothing,
        launches_plan_through_the_host_as_they_move,
        launches_read_one_view_twice,
        launches_that_refuse_change_nothing,
}

fn launches_in_a_chain_follow_each_other<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[50, 7]), |bed| {
        let root = bed.root();
        start(bed);
        let crop = root.crop([3..41, 1..6]);
        for i in 0..60 {
            bed.add(&crop, i);
        }
        bed.add(&root, 5);
        bed.expect_since(&Default::default(), lab.bytes(root.bytes()), 0);
        bed.read(&root);
    });
}

fn launches_read_before_they_are_overwritten<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[64, 4]), |bed| {
        let root = bed.root();
        let (a, b) = (root.crop([0..32, 0..4]), root.crop([32..64, 0..4]));
        bed.fill(&a, 1);
        for i in 0..20 {
            bed.copy(&a, &b, i);
            bed.fill(&a, i + 1);
            bed.copy(&b, &a, 1);
            bed.fill(&b, i);
        }
        bed.read(&a);
        bed.read(&root);
    });
}

/// Hundreds of disjoint launches: more than the table of work in flight has entries.
fn launches_many_before_one_read<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[20, 20]), |bed| {
        let root = bed.root();
        for i in 0..400 {
            let at = i * 77 % 400;
            bed.fill(&root.crop([at % 20..at % 20 + 1, at / 20..at / 20 + 1]), i);
        }
        bed.read(&root);
        if lab.is_exact() {
            bed.expect_since(&Default::default(), 0, lab.bytes(root.bytes()));
        }
        assert_eq!(bed.tree.counters().launches, 400);
    });
}

fn launches_many_on_overlapping_crops<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[30, 30]), |bed| {
        let root = bed.root();
        start(bed);
        for i in 0..100 {
            let (x, y) = (i * 7 % 20, i * 11 % 20);
            bed.add(&root.crop([x..x + 10, y..y + 10]), i);
        }
        bed.read(&root);
    });
}

fn launches_from_two_threads_on_disjoint_crops<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[40, 24]), |bed| {
        let root = bed.root();
        start(bed);
        bed.only_values();
        let adds = bed.kernels(&kernels::ADD_I32);
        let halves = [root.crop([0..40, 0..12]), root.crop([0..40, 12..24])];
        std::thread::scope(|scope| {
            for half in &halves {
                let adds = &adds;
                scope.spawn(move || {
                    for i in 0..100 {
                        let row = half.view.slice(1, half.spot.min[1] + i % 12).expect("a row");
                        // In turn on each device, for rows too: they come again after twelve rounds.
                        let add = &adds[(i / 5) as usize % adds.len()];
                        retry(|| add.launch((row.as_update(),), 1).map(drop));
                        if i % 10 == 9 {
                            retry(|| row.read().map(drop));
                        }
                    }
                });
            }
        });
        for (i, half) in halves.iter().enumerate() {
            for y in 0..12 {
                let row = half.slice(1, 12 * i as i32 + y);
                let rounds = (0..100).filter(|round| round % 12 == y).count() as i32;
                let values = bed.values(&row, |value| value + rounds);
                bed.wrote(&row, 1, &values);
            }
        }
        bed.read(&root);
    });
}

/// Where capacity is short, a write may have to widen into what the other thread holds: that is `Busy`.
fn retry<E: std::fmt::Display>(mut call: impl FnMut() -> Result<(), Error<E>>) {
    loop {
        match call() {
            Ok(()) => return,
            Err(Error::Busy(_)) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn launches_from_two_threads_on_two_trees<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let kernel = lab.kernel(&kernels::ADD_I32);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let kernel = &kernel;
            scope.spawn(move || {
                lab.run::<i32>(&Plot::packed(&[20, 20 + thread]), |bed| {
                    bed.only_values();
                    let root = bed.root();
                    if lab.storage == super::Storage::Owned {
                        // The counts are of both threads: not by the lab's own write.
                        root.view.overwrite().expect("a guard").fill(0);
                        bed.wrote(&root, 0, &vec![0; root.spot.elements.len()]);
                    }
                    for i in 0..50 {
                        let row = root.slice(1, i % 20);
                        kernel.launch((row.view.as_update(),), i).expect("runs");
                        let values = bed.values(&row, |value| value + i);
                        bed.wrote(&row, 1, &values);
                    }
                    bed.threaded();
                });
            });
        }
    });
}

/// Two threads launch over the same two trees in opposite orders: neither waits for the other forever.
fn launches_of_two_trees_in_either_order<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[16, 4]), |one| {
        start(one);
        lab.run::<i32>(&Plot::packed(&[16, 4]), |two| {
            start(two);
            one.only_values();
            two.only_values();
            let copy = one.kernel(&kernels::COPY_I32);
            let (a, b) = (one.root(), two.root());
            std::thread::scope(|scope| {
                for flip in [false, true] {
                    let (from, to) = if flip { (&b, &a) } else { (&a, &b) };
                    let copy = &copy;
                    scope.spawn(move || {
                        for _ in 0..50 {
                            retry(|| {
                                copy.launch((from.view.as_read(), to.view.as_overwrite()), 0)
                                    .map(drop)
                            });
                        }
                    });
                }
            });
            // Whoever was first: in the end both are one of them.
            let (first, second) = (a.view.read().expect("reads"), b.view.read().expect("reads"));
            let mut values = (vec![0; 64], vec![0; 64]);
            first.copy_to_slice(&mut values.0);
            second.copy_to_slice(&mut values.1);
            assert_eq!(values.0, values.1);
            drop((first, second));
            one.wrote(&a, 0, &values.0);
            two.wrote(&b, 0, &values.1);
        });
    });
}

fn launches_over_several_trees<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[9, 5]), |a| {
        start(a);
        lab.run::<i32>(&Plot::strided(&[9, 5], &[5, 1]).min(&[-4, 20]), |b| {
            start(b);
            lab.run::<i32>(&Plot::packed(&[20, 20]), |out| {
                a.only_values();
                b.only_values();
                out.only_values();
                let sums = a.kernels(&kernels::SUM_I32);
                let (x, y) = (a.root(), b.root());
                b.add(&y.crop([-2..3, 21..24]), 4);
                a.update(&x.crop([2..8, 1..4]), 3);
                for (round, (left, top)) in [(0, 0), (10, 12), (3, 5)].into_iter().enumerate() {
                    let target = out.root().crop([left..left + 9, top..top + 5]);
                    let (p, kernel) = (round as i32, &sums[round % sums.len()]);
                    let args = (x.view.as_read(), y.view.as_read(), target.view.as_overwrite());
                    kernel.launch(args, p).expect("runs");
                    let (x, y) = (a.values(&x, |v| v), b.values(&y, |v| v));
                    let values: Vec<_> = x.iter().zip(&y).map(|(x, y)| x + y + p).collect();
                    out.wrote(&target, 1 + round % sums.len(), &values);
                    out.read(&target);
                }
                // Back into one of the sources.
                let part = out.root().crop([10..19, 12..17]);
                let args = (part.view.as_read(), y.view.as_read(), x.view.as_overwrite());
                sums[0].launch(args, 1).expect("runs");
                let (p, y) = (out.values(&part, |v| v), b.values(&y, |v| v));
                let sums: Vec<_> = p.iter().zip(&y).map(|(x, y)| x + y + 1).collect();
                a.wrote(&x, 1, &sums);
                a.read(&x);
            });
        });
    });
}

fn launches_copy_within_a_root<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[24, 10]), |bed| {
        let root = bed.root();
        start(bed);
        let counters = bed.tree.counters();
        let from = root.crop([1..9, 2..7]);
        bed.copy(&from, &root.crop([11..19, 4..9]), 1);
        bed.expect_since(&counters, lab.bytes(from.bytes()), 0);
        bed.copy(&root.crop([12..14, 0..10]).flip(1), &root.crop([20..22, 0..10]), 2);
        bed.copy(&root.crop([0..5, 0..3]).permute([1, 0]), &root.crop([15..18, 5..10]), 3);
        bed.read(&root);
    });
}

fn launches_stencil_with_halo<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[30, 20]), |bed| {
        let root = bed.root();
        start(bed);
        let counters = bed.tree.counters();
        // Only the source's halo is fetched for the second; the first's is there.
        let (tile, target) = (root.crop([2..12, 2..9]), root.crop([3..11, 10..16]));
        bed.stencil(&tile, &target);
        bed.expect_since(&counters, lab.bytes(tile.bytes()), 0);
        let wider = root.crop([2..14, 2..9]);
        bed.stencil(&wider, &root.crop([14..25, 10..20]));
        bed.expect_since(&counters, lab.bytes(wider.bytes()), 0);
        bed.read(&root);
    });
}

fn launches_stencil_iterated<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[16, 32]), |bed| {
        let root = bed.root();
        start(bed);
        let (a, b) = (root.crop([0..16, 0..16]), root.crop([0..16, 16..32]));
        for _ in 0..4 {
            bed.stencil(&a, &b);
            bed.stencil(&b, &a);
        }
        bed.read(&root);
    });
}

/// A launch over two trees commits all or none.
fn launches_with_a_failing_second_tree<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[8, 8]), |one| {
        start(one);
        lab.run::<i32>(&Plot::packed(&[8, 8]), |two| {
            start(two);
            let copy = one.kernel(&kernels::COPY_I32);
            let (a, b) = (one.root(), two.root());
            for k in 1.. {
                lab.rig.inner().arm(k, ErrorKind::Other);
                let answer = copy.launch((a.view.as_read(), b.view.as_overwrite()), 1);
                let fired = lab.rig.inner().fired();
                lab.rig.inner().disarm();
                if !fired {
                    answer.expect("runs");
                    break;
                }
                assert_eq!(answer.err().and_then(|error| error.kind()), Some(ErrorKind::Other));
                one.read(&a);
                two.read(&b);
                assert_eq!((one.tree.check(), two.tree.check()), (Ok(()), Ok(())));
                assert_eq!(one.tree.counters().launches + two.tree.counters().launches, 0);
            }
            one.only_values();
            two.only_values();
            two.wrote(&b, 1, &one.values(&a, |value| value + 1));
            two.read(&b);
        });
    });
}

fn launches_of_no_groups_are_an_error<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[8, 8]), |bed| {
        let root = bed.root();
        start(bed);
        let fill = bed.kernel(&kernels::FILL_I32);
        let before = bed.rig().snapshot();
        for groups in [[0, 1, 1], [1, 0, 1], [1, 1, 0], [0, 0, 0]] {
            let answer = fill.launch_groups((root.view.as_overwrite(),), 1, groups);
            assert!(matches!(answer, Err(Error::ZeroGroups)), "{answer:?}");
        }
        let empty = root.crop([3..3, 0..8]);
        assert!(fill.launch((empty.view.as_overwrite(),), 1).is_ok(), "derived from no elements");
        let answer = fill.launch_groups((empty.view.as_overwrite(),), 1, [0, 1, 1]);
        assert!(matches!(answer, Err(Error::ZeroGroups)), "{answer:?}");
        assert_eq!(bed.rig().since(&before), Counts::default());
    });
}

fn launches_of_groups_as_given<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[9, 9]), |bed| {
        let root = bed.root();
        let fill = bed.kernel(&kernels::FILL_I32);
        // More than needed: the surplus returns at once.
        fill.launch_groups((root.view.as_overwrite(),), 1, [4, 5, 2]).expect("runs");
        let values: Vec<_> =
            root.spot.coordinates().iter().map(|at| kernels::code(at, 1)).collect();
        bed.wrote(&root, 1, &values);
        bed.read(&root);
        let limit = bed.rig().caps().max_groups[2];
        if let Some(over) = limit.checked_add(1) {
            let answer = fill.launch_groups((root.view.as_overwrite(),), 1, [1, 1, over]);
            assert!(matches!(answer, Err(Error::Groups { axis: 2, .. })), "{answer:?}");
        }
    });
}

fn launches_with_the_wrong_number_of_views<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[8, 8]), |bed| {
        start(bed);
        let (a, b) = (bed.root().crop([0..4, 0..8]), bed.root().crop([4..8, 0..8]));
        let fill = bed.kernel(&kernels::FILL_I32);
        let copy = bed.kernel(&kernels::COPY_I32);
        let before = bed.rig().snapshot();
        let answers = [
            fill.launch((a.view.as_overwrite(), b.view.as_overwrite()), 1),
            copy.launch((a.view.as_overwrite(),), 1),
            copy.launch([], 1),
            copy.launch([a.arg(Mode::Read); 9], 1),
        ];
        for answer in answers {
            assert!(matches!(answer, Err(Error::Views { .. })), "{answer:?}");
        }
        assert_eq!(bed.rig().since(&before), Counts::default());
    });
}

fn launches_on_another_driver_are_refused<H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
) -> Result<(), Skip> {
    let second = lab.second()?;
    lab.run_on::<i32, C>(&[&second], &Plot::packed(&[8, 8]), |there| {
        start(there);
        lab.run::<i32>(&Plot::packed(&[8, 8]), |here| {
            start(here);
            let (a, b) = (here.root(), there.root());
            let fill = here.kernel(&kernels::FILL_I32);
            let copy = here.kernel(&kernels::COPY_I32);
            let before = (here.rig().snapshot(), second.snapshot());
            let answers = [
                fill.launch((b.view.as_overwrite(),), 1),
                copy.launch((a.view.as_read(), b.view.as_overwrite()), 1),
                copy.launch((b.view.as_read(), a.view.as_overwrite()), 1),
            ];
            for answer in answers {
                assert!(matches!(answer, Err(Error::WrongDriver)), "{answer:?}");
            }
            assert_eq!(here.rig().since(&before.0), Counts::default());
            assert_eq!(second.since(&before.1), Counts::default());
        });
    });
    assert_eq!(second.snapshot().live(), 0);
    Ok(())
}

fn launches_of_kernels_without_a_form<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let source = KernelSource { forms: &[], ..kernels::FILL_I32 };
    let answer = lab.rig.load(&source).map(drop);
    assert_eq!(answer.err().and_then(|error| error.kind()), Some(ErrorKind::Unsupported));
}

fn launches_of_kernels_that_make_no_sense<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let before = lab.rig.snapshot();
    for source in [
        KernelSource { workgroup: [8, 0, 1], ..kernels::FILL_I32 },
        KernelSource { granule: 3, ..kernels::FILL_I32 },
        KernelSource { granule: 0, ..kernels::FILL_I32 },
        KernelSource { granule: 8, ..kernels::FILL_I32 },
    ] {
        let answer = lab.rig.load(&source).map(drop);
        assert!(matches!(answer, Err(Error::BadKernel)), "{source:?}: {answer:?}");
    }
    assert_eq!(lab.rig.since(&before), Counts::default());
}

fn launches_of_too_many_parameters<H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
) -> Result<(), Skip> {
    const MOST: usize = 1 << 17;
    let limit = lab.rig.caps().max_params as usize;
    if limit >= MOST {
        return Err(Skip(format!("the driver takes {limit} bytes of parameters")));
    }
    lab.run::<i32>(&Plot::packed(&[8, 8]), |bed| {
        start(bed);
        let root = bed.root();
        let before = bed.rig().snapshot();
        let params = [[0u8; 4096]; MOST / 4096];
        let answer = bed.kernel(&kernels::FILL_I32).launch((root.view.as_overwrite(),), params);
        assert!(matches!(answer, Err(Error::Params { given: MOST, .. })), "{answer:?}");
        assert_eq!(bed.rig().since(&before).dispatches, 0);
    });
    Ok(())
}

fn launches_on_two_devices_of_one_tree<H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
) -> Result<(), Skip> {
    let second = lab.second()?;
    lab.run_on::<i32, Pair>(&[&lab.rig, &second], &Plot::packed(&[16, 16]), |bed| {
        let root = bed.root();
        start(bed);
        bed.add_on(0, &root.crop([0..8, 0..16]), 1);
        bed.add_on(1, &root.crop([8..16, 0..16]), 2);
        bed.read(&root);
        bed.add_on(1, &root.crop([4..12, 4..12]), 3);
        bed.update(&root.crop([2..6, 2..6]), 4);
        bed.add_on(0, &root, 5);
        bed.read(&root.crop([0..16, 3..9]));
        bed.add_on(1, &root, 6);
        bed.read(&root);
    });
    assert_eq!(second.snapshot().live(), 0);
    Ok(())
}

fn launches_overwrite_on_a_second_device_moves_nothing<H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
) -> Result<(), Skip> {
    let second = lab.second()?;
    lab.run_on::<i32, Pair>(&[&lab.rig, &second], &Plot::packed(&[16, 16]), |bed| {
        let root = bed.root();
        bed.fill_on(0, &root, 1);
        bed.fill_on(1, &root.crop([2..9, 3..12]), 2);
        bed.fill_on(1, &root, 3);
        bed.expect_since(&Default::default(), 0, 0);
        bed.fill_on(0, &root.crop([2..9, 3..12]), 4);
        bed.expect_since(&Default::default(), 0, 0);
        bed.read(&root);
    });
    assert_eq!(second.snapshot().live(), 0);
    Ok(())
}

/// I11 with two devices: what is planned for a device that must fetch from the other is what moves.
fn launches_plan_through_the_host_as_they_move<H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
) -> Result<(), Skip> {
    let second = lab.second()?;
    lab.run_on::<i32, Pair>(&[&lab.rig, &second], &Plot::packed(&[16, 16]), |bed| {
        let root = bed.root();
        bed.fill_on(0, &root, 1);
        let crop = root.crop([2..9, 3..12]);
        bed.fill_on(1, &root.crop([4..6, 4..6]), 2);
        let plan = crop.view.plan(hedgerow::Location::Device(1), Mode::Update).expect("a plan");
        let before = bed.tree.counters();
        bed.add_on(1, &crop, 3);
        let moved = bed.tree.counters().since(&before);
        assert_eq!(
            (plan.bytes_up, plan.bytes_down, plan.bytes_across),
            (moved.bytes_up, moved.bytes_down, moved.bytes_across),
            "planned and moved"
        );
        bed.read(&root);
    });
    assert_eq!(second.snapshot().live(), 0);
    Ok(())
}

fn launches_read_one_view_twice<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[8, 8]), |bed| {
        start(bed);
        let root = bed.root();
        let (a, out) = (root.crop([0..4, 0..8]), root.crop([4..8, 0..8]));
        let sum = bed.kernel(&kernels::SUM_I32);
        let counters = bed.tree.counters();
        sum.launch((a.view.as_read(), a.view.as_read(), out.view.as_overwrite()), 0).expect("runs");
        // The same bytes are fetched once.
        bed.expect_since(&counters, lab.bytes(a.bytes()), 0);
        let place = if lab.is_shared() { 0 } else { 1 };
        bed.model().brought(&a.spot.elements, place);
        let values = bed.values(&a, |value| value * 2);
        bed.wrote(&out, 1, &values);
        bed.read(&root);
    });
}

fn refuses(call: &HostCall<'_>) -> Result<(), KernelError> {
    call.view::<[u8; 5]>(0).map(drop)
}

/// A host kernel that refuses: nothing ran, and the map is as it was. Drivers without host kernels have no
/// kernel that can.
fn launches_that_refuse_change_nothing<H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
) -> Result<(), Skip> {
    let source = KernelSource {
        name: "refuses",
        views: 1,
        workgroup: [1, 1, 1],
        granule: 1,
        forms: &[Form::Host(refuses)],
    };
    let kernel = match lab.rig.load(&source) {
        Ok(kernel) => kernel,
        Err(error) => return Err(Skip(format!("no host kernels: {error}"))),
    };
    lab.run::<i32>(&Plot::packed(&[8, 8]), |bed| {
        start(bed);
        let root = bed.root();
        let answer: Result<_, Failure<H>> = kernel.launch((root.view.as_overwrite(),), ());
        assert!(matches!(answer, Err(Error::Driver(_))), "{answer:?}");
        bed.read(&root);
        assert_eq!(bed.moved(), 0);
    });
    Ok(())
}
