//! Detached trees (I8): a tree of its own over a view, with device memory of the view's size.

mod common;

use common::{Counted, add, blur, blurred, counted, load, region, stamp, stamped};
use hedgerow::driver::ErrorKind;
use hedgerow::driver::middleware::{Counting, Fault, Reserved};
use hedgerow::error::{Busy, Holder};
use hedgerow::{Builder, CloseError, Error, Mode, Shape, Tree, View};
use hedgerow_host::{Host, HostError};

/// 16 x 16 numbers: 1,024 bytes.
const SHAPE: [u32; 2] = [16, 16];

fn host() -> Counted {
    Counting::new(Host::new())
}

fn is_held<T: std::fmt::Debug, E: std::fmt::Debug>(answer: Result<T, Error<E>>) {
    assert!(
        matches!(answer, Err(Error::Busy(Busy { holder: Holder::Access, .. }))),
        "{answer:?} instead of held"
    );
}

#[test]
fn device_memory_is_of_the_views_size() {
    let gpu = host();
    let kernel = load(&gpu, 1, add);
    let mut pixels = counted(256);
    let tree = Tree::over(&mut pixels, Shape::packed(SHAPE), &gpu).unwrap();
    let crop = tree.root().crop([4..12, 2..6]).unwrap();
    let mut allocated = 0;
    for parent_first in [false, true] {
        if parent_first {
            kernel.launch((tree.root().as_update(),), 0).unwrap();
            allocated += 1024;
        }
        let window = Builder::new(&gpu).detach(&crop, Mode::Update).unwrap();
        assert_eq!(window.root().region(), region(4..12, 2..6));
        kernel.launch((window.root().as_update(),), 1000).unwrap();
        allocated += 128;
        let up = window.counters();
        assert_eq!((up.bytes_up, up.bytes_down, up.allocations), (128, 0, 1));
        window.close().unwrap();
        let calls = if parent_first { 3 } else { 1 };
        assert_eq!(gpu.snapshot().allocations, Reserved { calls, bytes: allocated });
    }
    // Both windows are given back, the parent's memory is not.
    assert_eq!(gpu.snapshot().live(), 1);
    let moved = tree.counters();
    // The parent was whole on the device once, and its crop came home to be detached.
    assert_eq!((moved.bytes_up, moved.bytes_down), (1024, 128));
    kernel.launch((tree.root().as_update(),), 0).unwrap();
    // Only the crop is newer at home.
    assert_eq!(tree.counters().since(&moved).bytes_up, 128);
    let root = tree.root().read().unwrap();
    for (i, value) in root.as_slice().unwrap().iter().enumerate() {
        let inside = (4..12).contains(&(i % 16)) && (2..6).contains(&(i / 16));
        assert_eq!(*value, i as i32 + if inside { 2000 } else { 0 });
    }
}

#[test]
fn readers_share_and_writers_do_not() {
    let gpu = Host::new();
    let mut pixels = counted(256);
    let tree = Tree::over(&mut pixels, Shape::packed(SHAPE), &gpu).unwrap();
    let view = |x, y| tree.root().crop([x, y]).unwrap();
    let detach =
        |view: &View<'_, i32, Host<'static>>, mode| Builder::new(&gpu).detach(view, mode).map(drop);
    let left = Builder::new(&gpu).detach(&view(0..9, 0..16), Mode::Read).unwrap();
    let right = Builder::new(&gpu).detach(&view(7..16, 0..16), Mode::Read).unwrap();
    assert_eq!(tree.live_accesses(), 2);
    assert_eq!(left.root().read().unwrap()[[8, 3]], 56);
    assert_eq!(right.root().read().unwrap()[[8, 3]], 56);
    drop(tree.root().read().unwrap());
    for mode in [Mode::Overwrite, Mode::Update] {
        is_held(detach(&view(8..9, 8..9), mode));
    }
    is_held(view(0..1, 0..1).update());
    drop((left, right));

    let writer = Builder::new(&gpu).detach(&view(4..8, 4..8), Mode::Overwrite).unwrap();
    for mode in [Mode::Read, Mode::Overwrite, Mode::Update] {
        is_held(detach(&view(7..9, 7..9), mode));
        detach(&view(8..9, 7..9), mode).unwrap();
    }
    is_held(tree.root().read());
    drop(view(0..4, 0..16).update().unwrap());
    drop(writer);
    drop(tree.root().update().unwrap());
}

#[test]
fn the_parents_bytes_are_held_until_it_is_closed() {
    let gpu = Host::new();
    let kernel = load(&gpu, 1, add);
    let mut pixels = counted(256);
    let tree = Tree::over(&mut pixels, Shape::packed(SHAPE), &gpu).unwrap();
    let crop = tree.root().crop([4..12, 2..6]).unwrap();
    for close in [true, false] {
        let window = Builder::new(&gpu).detach(&crop, Mode::Update).unwrap();
        is_held(kernel.launch((tree.root().as_update(),), 1));
        is_held(crop.read());
        is_held(crop.prefetch(0));
        // Beside it, all goes on.
        kernel.launch((tree.root().crop([0..16, 6..16]).unwrap().as_update(),), 1).unwrap();
        match close {
            true => window.close().unwrap(),
            false => drop(window),
        }
        kernel.launch((tree.root().as_update(),), 1).unwrap();
    }
    assert_eq!(tree.root().read().unwrap()[[0, 15]], 240 + 4);
}

/// I5: what was written comes home exactly, by `close` and by drop, and the gaps between its rows stay.
#[test]
fn results_come_home() {
    let gpu = Host::new();
    let kernel = load(&gpu, 1, stamp);
    for close in [true, false] {
        let mut pixels = counted(256);
        let tree = Tree::over(&mut pixels, Shape::packed(SHAPE), &gpu).unwrap();
        let crop = tree.root().crop([4..12, 2..6]).unwrap();
        let window = Builder::new(&gpu).detach(&crop, Mode::Overwrite).unwrap();
        // Nobody has written it yet.
        assert!(matches!(window.root().read(), Err(Error::Undefined { lost: false, .. })));
        kernel.launch((window.root().as_overwrite(),), 1).unwrap();
        assert_eq!(window.counters().bytes_up, 0);
        match close {
            true => window.close().unwrap(),
            false => drop(window),
        }
        assert!(gpu.take_drop_error().is_none());
        let root = tree.root().read().unwrap();
        for (i, value) in root.as_slice().unwrap().iter().enumerate() {
            let (x, y) = (i as i32 % 16, i as i32 / 16);
            let inside = (4..12).contains(&x) && (2..6).contains(&y);
            assert_eq!(*value, if inside { stamped(x, y, 1) } else { i as i32 }, "at {x}, {y}");
        }
        drop((root, crop));
        tree.close().unwrap();
    }
    assert_eq!(gpu.live_allocations(), 0);
}

/// What only the parent's device holds is brought home for a window, that and no more.
#[test]
fn a_window_takes_what_the_parents_device_holds() {
    let gpu = host();
    let (write, change) = (load(&gpu, 1, stamp), load(&gpu, 1, add));
    let mut pixels = counted(256);
    let tree = Tree::over(&mut pixels, Shape::packed(SHAPE), &gpu).unwrap();
    write.launch((tree.root().crop([0..16, 0..4]).unwrap().as_overwrite(),), 1).unwrap();
    let crop = tree.root().crop([4..12, 2..6]).unwrap();
    let window = Builder::new(&gpu).detach(&crop, Mode::Update).unwrap();
    assert_eq!(tree.counters().bytes_down, 8 * 2 * 4);
    change.launch((window.root().as_update(),), 7).unwrap();
    window.close().unwrap();
    let home = tree.root().read().unwrap();
    assert_eq!((home[[4, 2]], home[[4, 4]]), (stamped(4, 2, 1) + 7, 68 + 7));
    assert_eq!(tree.counters().bytes_down, 16 * 4 * 4);
    // An overwrite takes nothing.
    drop(home);
    write.launch((tree.root().as_overwrite(),), 2).unwrap();
    let before = tree.counters();
    let window = Builder::new(&gpu).detach(&crop, Mode::Overwrite).unwrap();
    assert_eq!(tree.counters().since(&before).bytes_down, 0);
    drop(window.root().overwrite().unwrap());
}

#[test]
fn a_failing_close_keeps_everything() {
    let host = Host::new();
    let gpu = Fault::new(&host);
    let kernel = load(&gpu, 1, stamp);
    let mut pixels = counted(256);
    let tree = Tree::over(&mut pixels, Shape::packed(SHAPE), &gpu).unwrap();
    let crop = tree.root().crop([4..12, 2..6]).unwrap();
    let window = Builder::new(&gpu).detach(&crop, Mode::Overwrite).unwrap();
    kernel.launch((window.root().as_overwrite(),), 1).unwrap();
    gpu.arm(1, ErrorKind::Timeout);
    let CloseError { tree: window, error } = window.close().unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Timeout));
    is_held(crop.read());
    gpu.disarm();
    // It goes on as it was.
    assert_eq!(window.root().read().unwrap()[[5, 3]], stamped(5, 3, 1));
    kernel.launch((window.root().as_overwrite(),), 2).unwrap();
    window.close().unwrap();
    assert_eq!(crop.read().unwrap()[[5, 3]], stamped(5, 3, 2));

    // In a drop there is nobody to tell but the driver; the parent gets its bytes back all the same.
    let window = Builder::new(&gpu).detach(&crop, Mode::Update).unwrap();
    kernel.launch((window.root().as_overwrite(),), 3).unwrap();
    gpu.arm(1, ErrorKind::Timeout);
    drop(window);
    gpu.disarm();
    let told = host.take_drop_error().expect("an error");
    assert_eq!(
        (told.kind, told.region, told.bytes),
        (ErrorKind::Timeout, region(4..12, 2..6), 128)
    );
    assert_eq!(crop.read().unwrap()[[5, 3]], stamped(5, 3, 2));

    // Discarding says that it is meant.
    let window = Builder::new(&gpu).detach(&crop, Mode::Update).unwrap();
    kernel.launch((window.root().as_overwrite(),), 4).unwrap();
    window.discard();
    assert!(host.take_drop_error().is_none());
    assert_eq!(crop.read().unwrap()[[5, 3]], stamped(5, 3, 2));
    drop(crop);
    drop(tree);
    assert_eq!(host.live_allocations(), 0);
}

/// A refused detach leaves the parent as it was.
#[test]
fn a_refused_detach_changes_nothing() {
    let gpu = Host::new();
    let kernel = load(&gpu, 1, stamp);
    let mut pixels = counted(256);
    let tree = Tree::over(&mut pixels, Shape::packed(SHAPE), &gpu).unwrap();
    kernel.launch((tree.root().as_overwrite(),), 1).unwrap();
    let crop = tree.root().crop([4..12, 2..6]).unwrap();
    // The standard capacity has room for one device.
    for mode in [Mode::Overwrite, Mode::Update, Mode::Read] {
        let refused = Builder::new(&gpu).device(&gpu).detach(&crop, mode);
        assert!(matches!(refused, Err(Error::NoDevice { .. })), "{refused:?}");
    }
    assert_eq!(tree.live_accesses(), 0);
    assert_eq!(crop.read().unwrap()[[4, 2]], stamped(4, 2, 1));

    let hidden = Builder::new(&gpu).device_only::<i32>(Shape::packed(SHAPE)).unwrap();
    let refused = Builder::new(&gpu).detach(&hidden.root(), Mode::Overwrite);
    assert!(matches!(refused, Err(Error::NoHostStorage)), "{refused:?}");
    let unwritten = Tree::<i32, _>::owned(Shape::packed(SHAPE), &gpu).unwrap();
    let refused = Builder::new(&gpu).detach(&unwritten.root(), Mode::Read);
    assert!(matches!(refused, Err(Error::Undefined { lost: false, .. })), "{refused:?}");
}

/// The view's own coordinates and order, whatever it was made through, on host and device.
#[test]
fn views_of_every_kind() {
    let gpu = Host::new();
    let kernel = load(&gpu, 1, stamp);
    type V<'t> = View<'t, i32, Host<'static>>;
    type Make = for<'t> fn(&V<'t>) -> V<'t>;
    let makes: [(&str, Make); 6] = [
        ("crop", |r| r.crop([1..5, 2..4, 3..4]).unwrap().slice(2, 3).unwrap()),
        ("slice", |r| r.slice(0, 2).unwrap()),
        ("step", |r| r.slice(2, 1).unwrap().step_by(0, 2).unwrap().step_by(1, 3).unwrap()),
        ("flip", |r| r.slice(1, 1).unwrap().flip(0).unwrap()),
        ("permute", |r| r.permute([2, 0, 1]).unwrap().slice(1, 4).unwrap()),
        ("all", |r| {
            let v = r.permute([1, 2, 0]).unwrap().slice(2, 5).unwrap().flip(1).unwrap();
            v.step_by(1, 2).unwrap().translate([-7, 9]).unwrap()
        }),
    ];
    for (name, make) in makes {
        for mode in [Mode::Overwrite, Mode::Update] {
            let mut pixels = counted(8 * 5 * 6);
            let tree = Tree::over(&mut pixels, Shape::packed([8, 5, 6]), &gpu).unwrap();
            let view = make(&tree.root());
            let before: Vec<i32> = {
                let guard = view.read().unwrap();
                let mut out = vec![0; view.region().volume() as usize];
                guard.copy_to_slice(&mut out);
                out
            };
            let window = Builder::new(&gpu).detach(&view, mode).unwrap();
            let root = window.root();
            assert_eq!(root.region(), view.region(), "{name}");
            if mode == Mode::Update {
                let mut same = vec![0; before.len()];
                root.read().unwrap().copy_to_slice(&mut same);
                assert_eq!(same, before, "{name}");
            }
            kernel.launch((root.as_overwrite(),), 1).unwrap();
            let span = window.counters();
            assert_eq!((span.bytes_up, span.bytes_widened), (0, 0), "{name}");
            drop(root);
            window.close().unwrap();
            let guard = view.read().unwrap();
            let mut seen = 0;
            let at = view.region();
            for (y, x) in at.range(1).flat_map(|y| at.range(0).map(move |x| (y, x))) {
                assert_eq!(guard[[x, y]], stamped(x, y, 1), "{name} at {x}, {y}");
                seen += 1;
            }
            drop(guard);
            // And nothing else.
            let all = tree.root().read().unwrap();
            let kept = all.as_slice().unwrap().iter().enumerate();
            let kept = kept.filter(|(i, value)| **value == *i as i32).count();
            let coincide =
                before.iter().filter(|old| all.as_slice().unwrap()[**old as usize] == **old);
            assert_eq!(kept, 240 - seen + coincide.count(), "{name}");
        }
    }
}

#[test]
fn a_detach_of_a_detach() {
    let gpu = host();
    let kernel = load(&gpu, 1, add);
    let mut pixels = counted(256);
    let tree = Tree::over(&mut pixels, Shape::packed(SHAPE), &gpu).unwrap();
    let crop = tree.root().crop([4..12, 2..10]).unwrap();
    let outer = Builder::new(&gpu).detach(&crop, Mode::Update).unwrap();
    kernel.launch((outer.root().as_update(),), 1000).unwrap();
    let part = outer.root().crop([6..8, 4..5]).unwrap();
    let inner = Builder::new(&gpu).detach(&part, Mode::Update).unwrap();
    // Only the part came home for it.
    assert_eq!(outer.counters().bytes_down, 8);
    kernel.launch((inner.root().as_update(),), 5).unwrap();
    let sizes = gpu.snapshot().allocations;
    assert_eq!(sizes, Reserved { calls: 2, bytes: 8 * 8 * 4 + 2 * 4 });
    is_held(outer.root().read());
    is_held(crop.read());
    inner.close().unwrap();
    assert_eq!(outer.root().read().unwrap()[[6, 4]], 70 + 1005);
    drop(part);
    outer.close().unwrap();
    let home = crop.read().unwrap();
    assert_eq!((home[[6, 4]], home[[8, 4]], home[[4, 2]]), (1075, 1072, 1036));
}

/// A read-only window: what its device makes of it cannot go home, and says so.
#[test]
fn a_readers_results_stay_on_the_device() {
    let gpu = Host::new();
    let kernel = load(&gpu, 1, add);
    let mut pixels = counted(256);
    let tree = Tree::over(&mut pixels, Shape::packed(SHAPE), &gpu).unwrap();
    let crop = tree.root().crop([4..6, 2..4]).unwrap();
    let window = Builder::new(&gpu).detach(&crop, Mode::Read).unwrap();
    kernel.launch((window.root().as_update(),), 1000).unwrap();
    assert!(matches!(window.root().read(), Err(Error::ReadOnly { .. })));
    let mut out = [0; 4];
    assert_eq!(window.root().read_into(&mut out), Ok(4));
    assert_eq!(out, [1036, 1037, 1052, 1053]);
    let refused = window.close().unwrap_err();
    assert!(matches!(refused.error, Error::ReadOnly { region: r } if r == region(4..6, 2..4)));
    refused.tree.discard();
    assert_eq!(crop.read().unwrap()[[4, 2]], 36);
}

#[test]
fn a_view_of_nothing() {
    let gpu = host();
    let mut pixels = counted(256);
    let tree = Tree::over(&mut pixels, Shape::packed(SHAPE), &gpu).unwrap();
    let nothing = tree.root().crop([4..4, 2..6]).unwrap();
    let all = tree.root().overwrite().unwrap();
    let window = Builder::new(&gpu).detach(&nothing, Mode::Update).unwrap();
    window.root().prefetch(0).unwrap();
    window.close().unwrap();
    drop(all);
    assert_eq!(gpu.snapshot().allocations.calls, 0);
}

/// An image larger than the device's memory, window by window with halos, is the whole image's result.
#[test]
fn an_image_larger_than_the_devices_memory() {
    const BUDGET: usize = 4096;
    let (width, height) = (50, 37);
    let gpu = Counting::new(Host::with_capacity(BUDGET));
    let kernel = load(&gpu, 2, blur);
    let image: Vec<i32> = (0..width * height).map(|i| (i * 7919) % 1009).collect();
    let (mut from, mut to) = (image.clone(), vec![-1; image.len()]);
    let shape = Shape::packed([width as u32, height as u32]);
    let source = Tree::over(&mut from, shape, &gpu).unwrap();
    let result = Tree::over(&mut to, shape, &gpu).unwrap();
    let refused = kernel.launch((source.root().as_read(), result.root().as_overwrite()), ());
    assert!(matches!(refused, Err(Error::Driver(HostError::TooLarge { bytes: 7400, .. }))));

    let (mut up, mut down) = (0, 0);
    for y in (0..height).step_by(13) {
        for x in (0..width).step_by(16) {
            let (right, bottom) = ((x + 16).min(width), (y + 13).min(height));
            let halo =
                [(x - 1).max(0)..(right + 1).min(width), (y - 1).max(0)..(bottom + 1).min(height)];
            let (halo, window) = (
                source.root().crop(halo).unwrap(),
                result.root().crop([x..right, y..bottom]).unwrap(),
            );
            let from = Builder::new(&gpu).detach(&halo, Mode::Read).unwrap();
            let to = Builder::new(&gpu).detach(&window, Mode::Overwrite).unwrap();
            kernel.launch((from.root().as_read(), to.root().as_overwrite()), ()).unwrap();
            from.close().unwrap();
            let moved = to.counters();
            assert_eq!(moved.bytes_up, 0);
            to.close().unwrap();
            up += halo.region().volume() * 4;
            down += window.region().volume() * 4;
        }
    }
    let counts = gpu.snapshot();
    assert_eq!((counts.uploads.bytes, counts.downloads.bytes), (up, down));
    assert_eq!(down, 4 * (width * height) as u64);
    assert!(gpu.inner().peak_bytes() <= BUDGET as u64);
    assert_eq!(counts.live(), 0);
    drop((source, result));
    assert_eq!(from, image);
    assert_eq!(to, blurred(&image, width, height));
}

/// Neighbouring windows at once, on threads, each with its halo.
#[test]
fn windows_at_once() {
    let gpu = Host::new();
    let kernel = load(&gpu, 2, blur);
    let (width, height) = (32, 24);
    let image = counted(width * height);
    let (mut from, mut to) = (image.clone(), vec![-1; image.len()]);
    let shape = Shape::packed([width as u32, height as u32]);
    let source = Tree::over(&mut from, shape, &gpu).unwrap();
    let result = Tree::over(&mut to, shape, &gpu).unwrap();
    std::thread::scope(|scope| {
        for y in (0..height).step_by(8) {
            let (source, result, kernel, gpu) = (&source, &result, &kernel, &gpu);
            scope.spawn(move || {
                let halo = source.root().crop_axis(1, (y - 1).max(0)..(y + 9).min(height)).unwrap();
                let rows = result.root().crop_axis(1, y..y + 8).unwrap();
                let from = Builder::new(gpu).detach(&halo, Mode::Read).unwrap();
                let to = Builder::new(gpu).detach(&rows, Mode::Overwrite).unwrap();
                kernel.launch((from.root().as_read(), to.root().as_overwrite()), ()).unwrap();
                to.close().unwrap();
            });
        }
    });
    drop((source, result));
    assert_eq!(to, blurred(&image, width, height));
}
