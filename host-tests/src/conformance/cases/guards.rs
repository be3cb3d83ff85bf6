//! Guards: borrow-checked by region, over all locations, on any thread.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hedgerow::capacity::Capacity;
use hedgerow::error::{Busy, Holder, Table};
use hedgerow::{Error, Mode};

use super::super::kernels;
use super::super::lab::{Failure, Hardware, Lab, Pair, Plot};
use super::start;

super::cases! {
    both:
        guards_many_readers_or_one_writer,
        guards_conflict_with_launches_by_region,
        guards_that_read_let_launches_read,
        guards_on_two_threads_write_disjoint_rows,
        guards_on_threads_count_to_the_sum,
        guards_full_table_and_back,
        guards_full_table_of_views_and_back,
        guards_that_try_never_wait,
        guards_forgotten_cost_a_slot,
        guards_outside_their_view,
        guards_of_rows_that_are_not_contiguous,
        guards_in_a_word_with_a_launch,
        guards_conflict_with_sync_and_release,
        guards_survive_their_view,
}

/// Whether a live guard or device access was in the way.
fn is_held<X, H: Hardware>(answer: Result<X, Failure<H>>) -> bool {
    matches!(answer, Err(Error::Busy(Busy { holder: Holder::Access, .. })))
}

fn guards_many_readers_or_one_writer<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[10, 10]), |bed| {
        let root = bed.root();
        start(bed);
        let (a, b, c) =
            (root.crop([0..6, 0..6]), root.crop([4..10, 4..10]), root.crop([6..10, 0..4]));
        {
            let one = a.view.read().expect("a reader");
            let two = b.view.read().expect("another over the same bytes");
            assert_eq!(one.get([5, 5]), two.get([5, 5]));
            assert!(is_held::<_, H>(b.view.update()));
            assert!(is_held::<_, H>(root.view.overwrite()));
            if lab.is_exact() {
                let three = c.view.update().expect("a writer beside them");
                assert!(is_held::<_, H>(c.view.read()));
                drop(three);
            }
            assert_eq!(bed.tree.live_accesses(), 2);
        }
        let writer = b.view.update().expect("the readers are gone");
        assert!(is_held::<_, H>(a.view.read()));
        assert!(is_held::<_, H>(root.view.plan(hedgerow::Location::Host, Mode::Read)));
        drop(writer);
        assert!(a.view.read().is_ok());
        bed.update(&b, 1);
        bed.read(&root);
    });
}

fn guards_conflict_with_launches_by_region<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[12, 12]), |bed| {
        let root = bed.root();
        start(bed);
        let (left, right) = (root.crop([0..6, 0..12]), root.crop([6..12, 0..12]));
        let (fill, add) = (bed.kernel(&kernels::FILL_I32), bed.kernel(&kernels::ADD_I32));
        bed.fill(&right, 1);
        bed.write(&left, 2);
        let before = bed.rig().snapshot();
        let guard = left.view.update().expect("a guard");
        assert!(is_held::<_, H>(fill.launch((root.view.as_overwrite(),), 1)));
        assert!(is_held::<_, H>(add.launch((left.view.as_update(),), 1)));
        assert!(is_held::<_, H>(left.view.on_device(0, Mode::Read)));
        assert_eq!(bed.rig().since(&before).bytes_moved(), 0);
        // Beside the guard is free. (A capacity of one cell may have to widen into it.)
        if lab.is_exact() {
            bed.add(&right, 3);
            bed.read(&right);
        }
        drop(guard);
        bed.add(&root, 4);
        bed.read(&root);
    });
}

fn guards_that_read_let_launches_read<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[12, 8]), |bed| {
        let root = bed.root();
        start(bed);
        bed.add(&root, 1);
        bed.read(&root);
        let (a, b) = (root.crop([0..4, 0..8]), root.crop([8..12, 0..8]));
        let guard = a.view.read().expect("a reader");
        let seen = *guard.get([3, 3]).expect("inside");
        if lab.is_exact() {
            bed.copy(&a, &b, 1);
        }
        bed.bring(&a);
        assert!(is_held::<_, H>(bed.kernel(&kernels::ADD_I32).launch((a.view.as_update(),), 1)));
        assert_eq!(guard.get([3, 3]), Some(&seen));
        drop(guard);
        bed.add(&a, 1);
        bed.read(&root);
    });
}

fn guards_on_two_threads_write_disjoint_rows<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    // With room to cut: short of it, one row's write may have to widen into the other's.
    lab.run_on::<i32, Pair>(&lab.rigs(), &Plot::packed(&[64, 16]), |bed| {
        let root = bed.root();
        bed.fill(&root, 1);
        bed.read(&root);
        bed.only_values();
        let barrier = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for parity in 0..2 {
                let (root, barrier) = (&root, &barrier);
                scope.spawn(move || {
                    for round in 0..8 {
                        let row = 2 * round + parity;
                        let view = root.view.slice(1, row).expect("a row");
                        let mut guard = view.overwrite().expect("a row of one's own");
                        // Both guards are open here, and both write.
                        barrier.wait();
                        guard.fill_with(|[x]| x + 1000 * row);
                        barrier.wait();
                    }
                });
            }
        });
        let values: Vec<i32> =
            root.spot.coordinates().iter().map(|at| at[0] + 1000 * at[1]).collect();
        bed.wrote(&root, 0, &values);
        bed.read(&root);
        bed.add(&root, 1);
        bed.read(&root);
    });
}

/// Host and device updates of the same bytes from several threads: none is lost.
fn guards_on_threads_count_to_the_sum<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[16, 16]), |bed| {
        let root = bed.root();
        start(bed);
        bed.only_values();
        let adds = bed.kernels(&kernels::ADD_I32);
        let crops =
            [root.crop([0..10, 0..10]), root.crop([4..16, 6..16]), root.crop([2..8, 3..12])];
        const ROUNDS: i32 = 25;
        std::thread::scope(|scope| {
            for (i, crop) in crops.iter().enumerate() {
                let adds = &adds;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let mut done = false;
                        while !done {
                            let at = round as usize + i;
                            let answer = if at.is_multiple_of(2) {
                                let add = &adds[at / 2 % adds.len()];
                                add.launch((crop.view.as_update(),), 1).map(drop)
                            } else {
                                crop.view.update().map(|mut guard| {
                                    for row in guard.rows_mut().expect("rows") {
                                        row.iter_mut().for_each(|value| *value += 1);
                                    }
                                })
                            };
                            done = match answer {
                                Ok(()) => true,
                                Err(Error::Busy(_)) => {
                                    std::thread::yield_now();
                                    false
                                }
                                Err(error) => panic!("{error}"),
                            };
                        }
                    }
                });
            }
        });
        for crop in &crops {
            let values = bed.values(crop, |value| value + ROUNDS);
            bed.wrote(crop, 0, &values);
        }
        // The model does not know where they are.
        bed.read(&root);
        assert_eq!(bed.tree.check(), Ok(()));
    });
}

fn guards_full_table_and_back<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[100]), |bed| {
        let root = bed.root();
        start(bed);
        let mut guards = Vec::new();
        let capacity = loop {
            match root.view.read() {
                Ok(guard) => guards.push(guard),
                Err(Error::Full { table: Table::Guards, capacity }) => break capacity,
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(guards.len(), capacity);
        assert_eq!(bed.tree.live_accesses(), capacity);
        let launch = bed.kernel(&kernels::FILL_I32).launch((root.view.as_overwrite(),), 1);
        assert!(launch.is_err(), "no slot for a launch either");
        let _ = guards.pop();
        let last = root.view.read().expect("a slot is free again");
        assert!(root.view.read().is_err());
        drop(last);
        drop(guards);
        bed.update(&root, 1);
        bed.add(&root, 1);
    });
}

fn guards_full_table_of_views_and_back<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[100]), |bed| {
        let root = bed.root();
        start(bed);
        let mut views = Vec::new();
        let capacity = loop {
            match root.view.crop([1..50]) {
                Ok(view) => views.push(view),
                Err(Error::Full { table: Table::Nodes, capacity }) => break capacity,
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(views.len() + 1, capacity, "the root has a node");
        assert_eq!(bed.tree.live_views(), views.len());
        assert!(root.view.slice(0, 3).is_err());
        drop(views[5].read().expect("those there are go on"));
        drop(views.remove(3));
        let again = root.view.slice(0, 3).expect("a node is free again");
        assert!(root.view.flip(0).is_err());
        drop(again);
        drop(views);
        assert_eq!(bed.tree.live_views(), 0);
        bed.add(&root.crop([3..70]), 1);
    });
}

fn guards_that_try_never_wait<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[20, 5]), |bed| {
        let root = bed.root();
        start(bed);
        bed.add(&root, 1);
        if !lab.is_shared() {
            let before = bed.rig().snapshot();
            let answer = root.view.try_read().map(drop);
            let work = matches!(answer, Err(Error::Busy(Busy { holder: Holder::Work, .. })));
            assert!(work, "bytes would have to move: {answer:?}");
            let since = bed.rig().since(&before);
            assert_eq!((since.bytes_moved(), since.waits), (0, 0));
        }
        bed.read(&root);
        assert!(root.view.try_read().is_ok());
        assert!(root.view.try_update().is_ok());
        bed.update(&root, 1);
        let held = root.view.try_overwrite().expect("all is home");
        assert!(is_held::<_, H>(root.view.try_read()));
        drop(held);
        let values = bed.values(&root, |value| value);
        bed.wrote(&root, 0, &values);
        assert!(root.view.try_read().is_ok());
    });
}

fn guards_forgotten_cost_a_slot<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[40, 6]), |bed| {
        let root = bed.root();
        start(bed);
        let held = root.crop([0..10, 0..6]);
        bed.update(&held, 1);
        std::mem::forget(held.view.read().expect("a guard"));
        assert_eq!(bed.tree.live_accesses(), 1);
        assert!(is_held::<_, H>(held.view.update()));
        bed.read(&root);
        if lab.is_exact() {
            bed.add(&root.crop([10..40, 0..6]), 2);
        }
        assert_eq!(bed.tree.live_accesses(), 1);
        // The lab closes the tree over it, and looks at every byte.
    });
}

fn guards_outside_their_view<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[10, 10]), |bed| {
        let root = bed.root();
        start(bed);
        let crop = root.crop([3..6, 4..9]);
        let mut guard = crop.view.update().expect("a guard");
        for at in [[2, 4], [6, 4], [3, 3], [3, 9], [i32::MIN, 4], [3, i32::MAX]] {
            assert_eq!(guard.get(at), None);
            assert!(guard.get_mut(at).is_none());
        }
        assert!(guard.get([3]).is_none(), "another rank");
        assert!(guard.row([0, 10]).is_none());
        assert_eq!(guard.row([-7, 4]).map(<[i32]>::len), Some(3));
        assert_eq!(guard.rows().expect("rows").count(), 5);
        let mut few = [0; 4];
        assert_eq!(guard.copy_to_slice(&mut few), 4);
        let mut many = [0; 40];
        assert_eq!(guard.copy_to_slice(&mut many), 15);
        let outside = catch_unwind(AssertUnwindSafe(|| guard[[6, 4]]));
        assert!(outside.is_err(), "the one documented panic");
        guard[[5, 8]] = 7;
        drop(guard);
        let mut values = bed.values(&crop, |value| value);
        values[14] = 7;
        bed.wrote(&crop, 0, &values);
    });
}

fn guards_of_rows_that_are_not_contiguous<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[10, 10]), |bed| {
        let root = bed.root();
        start(bed);
        for view in [root.flip(0), root.permute([1, 0]), root.step_by(0, 2)] {
            let mut guard = view.view.update().expect("a guard");
            assert!(guard.rows().is_none() && guard.rows_mut().is_none());
            assert!(guard.row([0, 0]).is_none());
            drop(guard);
            bed.update(&view, 1);
        }
        let guard = root.flip(1).view.read().expect("a guard");
        assert_eq!(guard.rows().expect("rows").count(), 10, "rows in the opposite order");
    });
}

/// Rule 8: a kernel that writes words is kept from a guard's bytes in the same word.
fn guards_in_a_word_with_a_launch<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<u8>(&Plot::packed(&[32]), |bed| {
        let root = bed.root();
        start(bed);
        let add = bed.kernel(&kernels::ADD_BYTES);
        let guard = root.crop([0..5]).view.update().expect("a guard");
        let beside = root.crop([6..8]);
        assert!(is_held::<_, H>(add.launch((beside.view.as_update(),), 1)), "they share a word");
        if lab.is_exact() {
            bed.add(&root.crop([8..12]), 1);
        }
        drop(guard);
        bed.add(&beside, 1);
        bed.read(&root);
    });
}

fn guards_conflict_with_sync_and_release<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[12, 4]), |bed| {
        let root = bed.root();
        start(bed);
        bed.add(&root, 1);
        let access = root.view.on_device(0, Mode::Update).expect("on the device");
        assert!(lab.is_shared() || is_held::<_, H>(lab.trouble.insist(|| bed.tree.sync())));
        assert!(lab.is_shared() || is_held::<_, H>(lab.trouble.insist(|| bed.tree.release())));
        drop(access);
        let reading = root.view.on_device(0, Mode::Read).expect("on the device");
        assert!(lab.is_shared() || is_held::<_, H>(lab.trouble.insist(|| bed.tree.release())));
        lab.trouble.insist(|| bed.tree.sync()).expect("readers on the device are no matter");
        drop(reading);
        bed.only_values();
        lab.trouble.insist(|| bed.tree.release()).expect("nobody holds it");
        bed.model().brought(&root.spot.elements, 0);
        bed.read(&root);
    });
}

fn guards_survive_their_view<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[12, 4]), |bed| {
        let root = bed.root();
        start(bed);
        let guard = {
            let view = root.crop([2..5, 1..3]);
            view.view.read().expect("a guard")
        };
        assert_eq!(bed.tree.live_views(), 0);
        assert!(is_held::<_, H>(root.view.update()));
        assert!(guard.get([4, 2]).is_some());
        drop(guard);
        bed.update(&root, 1);
    });
}
