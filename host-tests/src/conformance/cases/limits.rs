//! Bad input and limits: a clear error, and nothing changed.

use hedgerow::capacity::Capacity;
use hedgerow::driver::middleware::Counts;
use hedgerow::driver::{DeviceDriver, ErrorKind};
use hedgerow::region::MAX_RANK;
use hedgerow::{Error, GeometryError, Location, Mode, Shape};

use super::super::kernels;
use super::super::lab::{Failure, Hardware, Lab, Plot, Skip, Storage};
use super::start;

super::cases! {
    both:
        limits_views_that_make_no_sense,
        limits_shapes_that_make_no_sense,
        limits_devices_that_are_not_there,
        limits_a_view_larger_than_a_binding,
        limits_a_root_larger_than_an_allocation;
    borrowed:
        limits_a_slice_too_short_for_its_shape,
        limits_a_slice_that_just_fits,
}

fn geometry<X, H: Hardware>(answer: Result<X, Failure<H>>) -> GeometryError {
    match answer {
        Err(Error::Geometry(error)) => error,
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("it was taken"),
    }
}

fn limits_views_that_make_no_sense<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[8, 6]).min(&[-3, 10]), |bed| {
        let root = bed.root();
        start(bed);
        let before = bed.rig().snapshot();
        let view = &root.view;
        for ranges in
            [[-4..5, 10..16], [-3..6, 10..16], [-3..5, 9..16], [-3..5, 10..17], [6..9, 20..22]]
        {
            let error = geometry::<_, H>(view.crop(ranges));
            assert!(matches!(error, GeometryError::OutOfBounds { .. }), "{error}");
        }
        let backwards = geometry::<_, H>(view.crop([std::ops::Range { start: 3, end: 1 }, 10..16]));
        assert!(matches!(backwards, GeometryError::OutOfBounds { axis: 0, .. }), "{backwards}");
        let huge = geometry::<_, H>(view.crop([i32::MIN..i32::MAX, 10..16]));
        assert!(matches!(huge, GeometryError::OutOfBounds { .. }), "{huge}");
        let few = geometry::<_, H>(view.crop([-3..5]));
        assert_eq!(few, GeometryError::Rank { given: 1, expected: 2 });
        let many = geometry::<_, H>(view.crop([-3..5, 10..16, 0..1]));
        assert_eq!(many, GeometryError::Rank { given: 3, expected: 2 });
        assert_eq!(geometry::<_, H>(view.slice(2, 0)), GeometryError::NoAxis { axis: 2, rank: 2 });
        for at in [9, 16, i32::MIN, i32::MAX] {
            let error = geometry::<_, H>(view.slice(1, at));
            assert!(matches!(error, GeometryError::OutOfBounds { axis: 1, .. }), "{error}");
        }
        assert_eq!(geometry::<_, H>(view.permute([0, 0])), GeometryError::BadPermutation);
        assert_eq!(
            geometry::<_, H>(view.permute([0, 2])),
            GeometryError::NoAxis { axis: 2, rank: 2 }
        );
        assert_eq!(
            geometry::<_, H>(view.permute([0])),
            GeometryError::Rank { given: 1, expected: 2 }
        );
        for step in [0, -1, i32::MIN] {
            assert_eq!(geometry::<_, H>(view.step_by(0, step)), GeometryError::BadStep { step });
        }
        assert!(matches!(geometry::<_, H>(view.step_by(9, 1)), GeometryError::NoAxis { .. }));
        assert!(matches!(geometry::<_, H>(view.flip(2)), GeometryError::NoAxis { .. }));
        let far = geometry::<_, H>(view.translate([0, i32::MAX]));
        assert_eq!(far, GeometryError::Overflow { axis: 1 });
        let inner = root.crop([0..3, 11..13]);
        assert!(inner.view.crop([-1..3, 11..13]).is_err(), "inside the root, outside its parent");
        assert_eq!(bed.rig().since(&before), Counts::default());
        drop(inner);
        assert_eq!(bed.tree.live_views(), 0, "refused views take no node");
        bed.read(&root);
    });
}

fn limits_shapes_that_make_no_sense<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let make = |shape: Shape| {
        let mut memory = [0i32; 64];
        match lab.storage {
            Storage::Borrowed => geometry::<_, H>(lab.builder().over(&mut memory, shape).map(drop)),
            Storage::Owned => geometry::<_, H>(lab.builder().owned::<i32>(shape).map(drop)),
        }
    };
    let rank = make(Shape::packed([1; MAX_RANK + 1]));
    assert_eq!(rank, GeometryError::Rank { given: MAX_RANK + 1, expected: MAX_RANK });
    let mins = make(Shape::packed([2, 2]).min([1]));
    assert_eq!(mins, GeometryError::Rank { given: 1, expected: 2 });
    for shape in [
        Shape::packed([4, 4]).min([i32::MAX - 2, 0]),
        Shape::packed([u32::MAX, 1]),
        Shape::strided([4, 4], [1, i64::MAX / 2]),
        Shape::strided([4, 4], [i64::MIN, 1]),
        Shape::packed([1 << 30, 1 << 30, 1 << 4]),
    ] {
        let error = make(shape);
        assert!(matches!(error, GeometryError::Overflow { .. }), "{shape:?}: {error}");
    }
    assert_eq!(lab.rig.snapshot(), Counts::default());
}

fn limits_a_slice_too_short_for_its_shape<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    for (shape, needed) in [
        (Shape::packed([8, 8]), 64),
        (Shape::strided([8, 8], [1, 10]), 78),
        (Shape::strided([8, 8], [-1, 10]), 78),
        (Shape::strided([8, 8], [2, -20]), 155),
    ] {
        let mut memory = vec![7i32; needed - 1];
        let error = geometry::<_, H>(lab.builder().over(&mut memory, shape).map(drop));
        let given = needed as u64 - 1;
        assert_eq!(error, GeometryError::TooShort { needed: needed as u64, given });
    }
    assert_eq!(lab.rig.snapshot(), Counts::default());
}

fn limits_a_slice_that_just_fits<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let mut memory = vec![7i32; 155];
    let tree = lab.builder().over(&mut memory, Shape::strided([8, 8], [2, -20])).expect("fits");
    let fill = lab.kernel(&kernels::FILL_I32);
    fill.launch((tree.root().as_overwrite(),), 1).expect("runs");
    lab.close_at_last(tree);
    for (slot, value) in memory.iter().enumerate() {
        // Row y starts at 140 - 20 y.
        let (y, rest) = (7 - slot as i32 / 20, slot as i32 % 20);
        let is_element = rest < 16 && rest % 2 == 0;
        let expected = if is_element { kernels::code(&[rest / 2, y], 1) } else { 7 };
        assert_eq!(*value, expected, "slot {slot}");
    }
}

fn limits_devices_that_are_not_there<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    lab.run::<i32>(&Plot::packed(&[8, 6]), |bed| {
        let root = bed.root();
        start(bed);
        let before = bed.rig().snapshot();
        let there = lab.rigs().len();
        for device in [there, 7, 255] {
            let access = root.view.on_device(device, Mode::Read).map(drop);
            assert!(
                matches!(access, Err(Error::NoDevice { devices, .. }) if devices == there),
                "{access:?}"
            );
            let plan = root.view.plan(Location::Device(device as u8), Mode::Read);
            assert!(
                matches!(plan, Err(Error::NoDevice { devices, .. }) if devices == there),
                "{plan:?}"
            );
        }
        assert!(bed.tree.device(there - 1).is_some());
        assert!(bed.tree.device(there).is_none());
        assert_eq!(bed.rig().since(&before), Counts::default());
    });
    let mut memory = [0i32; 64];
    let mut builder = lab.builder();
    for _ in 0..10 {
        builder = builder.device(&lab.rig);
    }
    let answer = match lab.storage {
        Storage::Borrowed => builder.over(&mut memory, Shape::packed([8])).map(drop),
        Storage::Owned => builder.owned::<i32>(Shape::packed([8])).map(drop),
    };
    assert!(matches!(answer, Err(Error::NoDevice { .. })), "{answer:?}");
}

fn limits_a_view_larger_than_a_binding<H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
) -> Result<(), Skip> {
    let caps = lab.rig.caps();
    let (limit, room) = (caps.max_binding, caps.max_allocation);
    let bytes = limit.saturating_add(2 << 20);
    if limit > 32 << 20 || room < bytes {
        return Err(Skip(format!("bindings of up to {limit} bytes, allocations of up to {room}")));
    }
    // Rows of 1 KiB, one MiB or two over the limit.
    let rows = (bytes / 1024) as u32;
    let shape = Shape::packed([256, rows]);
    let mut memory = match lab.storage {
        Storage::Borrowed => vec![1i32; bytes as usize / 4],
        Storage::Owned => Vec::new(),
    };
    let tree = match lab.storage {
        Storage::Borrowed => lab.builder().over(&mut memory, shape),
        Storage::Owned => lab.trouble.insist(|| lab.builder().owned::<i32>(shape)),
    };
    let tree = tree.expect("a root may be larger than a binding");
    let root = lab.see(tree.root());
    let add = lab.kernel(&kernels::ADD_I32);
    drop(root.crop([0..256, 0..rows as i32]).expect("a crop").overwrite().expect("a guard"));
    let before = lab.rig.snapshot();
    for answer in [
        add.launch((root.as_update(),), 1).map(drop),
        // A column is small, and its window is not.
        add.launch((root.slice(0, 3).expect("a slice").as_update(),), 1).map(drop),
        root.on_device(0, Mode::Read).map(drop),
    ] {
        match answer {
            Err(Error::TooLarge { span, limit: told }) => {
                assert!(span > limit && told == limit, "{span} {told}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(lab.rig.since(&before), Counts::default(), "refused before any call");
    // Near the end of the root, beyond what one binding reaches from its start.
    let last = rows as i32 - 1;
    let row = lab.see(root.slice(1, last).expect("a slice"));
    let was = row.read().expect("reads").get([7]).copied();
    add.launch((row.as_update(),), 5).expect("a row fits");
    assert_eq!(row.read().expect("reads").get([7]).copied(), was.map(|value| value + 5));
    if lab.is_exact() && !lab.trouble.is_any() {
        assert_eq!(lab.rig.since(&before).bytes_moved(), lab.bytes(2 * 1024));
    }
    drop((root, row));
    tree.discard();
    Ok(())
}

fn limits_a_root_larger_than_an_allocation<H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
) -> Result<(), Skip> {
    let limit = lab.rig.caps().max_allocation;
    if limit > 128 << 20 {
        return Err(Skip(format!("allocations of up to {limit} bytes")));
    }
    let rows = (limit / 1024) as u32 + 1;
    let shape = Shape::packed([256, rows]);
    if lab.storage == Storage::Owned {
        let answer = lab.builder().owned::<i32>(shape).map(drop);
        assert_eq!(answer.err().and_then(|error| error.kind()), Some(ErrorKind::TooLarge));
        return Ok(());
    }
    let mut memory = vec![3i32; 256 * rows as usize];
    let tree = lab.builder().over(&mut memory, shape).expect("the host has it");
    let row = tree.root().slice(1, 2).expect("a row");
    let answer = lab.kernel(&kernels::ADD_I32).launch((row.as_update(),), 1);
    assert_eq!(answer.err().and_then(|error| error.kind()), Some(ErrorKind::TooLarge));
    assert_eq!(row.read().expect("nothing is lost").get([9]), Some(&3));
    assert_eq!(lab.rig.snapshot().live(), 0);
    drop(row);
    tree.close().expect("closes");
    Ok(())
}
