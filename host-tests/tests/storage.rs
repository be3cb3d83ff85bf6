//! Storage of every kind: read-only, absent, owned by the tree, and device memory of the caller's.

mod common;

use common::{Counted, add, counted, load, region, stamp, stamped};
use hedgerow::driver::middleware::{Counting, Counts, Reserved};
use hedgerow::driver::{Contents, CopyBox, DeviceDriver, ErrorKind};
use hedgerow::error::{Busy, Holder};
use hedgerow::{Builder, CloseError, Error, Location, Mode, Shape, Tree};
use hedgerow_host::{Host, HostMemory};

/// 8 x 4 numbers: 128 bytes.
const SHAPE: [u32; 2] = [8, 4];

fn shape() -> Shape {
    Shape::packed(SHAPE)
}

fn host() -> Counted {
    Counting::new(Host::new())
}

fn read_all<H: hedgerow::driver::Device, C, L>(tree: &Tree<'_, i32, H, C, L>) -> Vec<i32>
where
    C: hedgerow::capacity::Capacity,
    L: hedgerow::Locking,
{
    let mut out = vec![0; 32];
    assert_eq!(tree.root().read_into(&mut out).expect("all of it"), 32);
    out
}

fn stamped_all(p: i32) -> Vec<i32> {
    (0..32).map(|i| stamped(i % 8, i / 8, p)).collect()
}

#[test]
fn read_only_slices_are_read() {
    let gpu = host();
    let pixels = counted(32);
    let tree = Builder::new(&gpu).over_ref(&pixels, shape()).unwrap();
    assert_eq!(tree.root().read().unwrap()[[3, 2]], 19);
    assert_eq!(read_all(&tree), pixels);
    for mode in [Mode::Overwrite, Mode::Update] {
        let refused = tree.root().plan(Location::Host, mode);
        assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
    }
    let crop = tree.root().crop([1..3, 1..2]).unwrap();
    let refused = crop.update().unwrap_err();
    assert_eq!(refused, Error::ReadOnly { region: region(1..3, 1..2) });
    assert_eq!(refused.kind(), Some(ErrorKind::Unsupported));
    assert!(matches!(crop.overwrite(), Err(Error::ReadOnly { .. })));
    assert!(matches!(crop.try_update(), Err(Error::ReadOnly { .. })));
    assert!(matches!(crop.begin_overwrite(), Err(Error::ReadOnly { .. })));
    assert!(matches!(crop.assume_fresh(Location::Host), Err(Error::ReadOnly { .. })));
    drop(crop);
    tree.close().unwrap();
    assert_eq!(gpu.snapshot(), Counts::default());
}

#[test]
fn results_of_a_read_only_slice_stay_on_the_device() {
    let gpu = host();
    let kernel = load(&gpu, 1, add);
    let pixels = counted(32);
    let tree = Builder::new(&gpu).over_ref(&pixels, shape()).unwrap();
    let crop = tree.root().crop([1..3, 1..3]).unwrap();
    kernel.launch((crop.as_update(),), 1000).unwrap();
    assert_eq!(tree.counters().bytes_up, 16);

    // What is newer on the device cannot be read at home; the rest can.
    let refused = tree.root().read().unwrap_err();
    assert!(matches!(refused, Error::ReadOnly { region: r } if r == region(1..3, 1..3)));
    assert!(matches!(crop.begin_read(), Err(Error::ReadOnly { .. })));
    assert_eq!(tree.root().crop([3..8, 0..4]).unwrap().read().unwrap()[[3, 1]], 11);
    // But copied out: the rest goes up for it.
    let mut expected = pixels.clone();
    [9, 10, 17, 18].iter().for_each(|i| expected[*i] += 1000);
    assert_eq!(read_all(&tree), expected);
    assert_eq!((tree.counters().bytes_up, tree.counters().bytes_down), (128, 0));

    assert!(matches!(tree.sync(), Err(Error::ReadOnly { .. })));
    assert!(matches!(tree.evict(0), Err(Error::ReadOnly { .. })));
    assert!(matches!(tree.release(), Err(Error::ReadOnly { .. })));
    drop(crop);
    let CloseError { tree, error } = tree.close().unwrap_err();
    assert!(matches!(error, Error::ReadOnly { .. }));
    assert_eq!(read_all(&tree), expected);
    tree.discard();
    assert_eq!(gpu.snapshot().live(), 0);
    assert!(gpu.inner().take_drop_error().is_none());

    // A drop says what it could not do.
    let tree = Builder::new(&gpu).over_ref(&pixels, shape()).unwrap();
    kernel.launch((tree.root().crop([1..3, 1..3]).unwrap().as_update(),), 1000).unwrap();
    drop(tree);
    let told = gpu.inner().take_drop_error().expect("an error");
    assert_eq!((told.region, told.bytes), (region(1..3, 1..3), 16));
    assert_eq!(told.kind, ErrorKind::Unsupported);
    assert_eq!(pixels, counted(32));
}

/// P11: nothing is allocated or copied until asked for; at home there is a typed error.
#[test]
fn no_host_storage() {
    let gpu = host();
    let kernel = load(&gpu, 1, stamp);
    let tree = Builder::new(&gpu).device_only::<i32>(shape()).unwrap();
    let root = tree.root();
    let loaded = gpu.snapshot();
    drop(root.crop([0..4, 0..4]).unwrap());
    assert!(matches!(root.read(), Err(Error::NoHostStorage)));
    assert!(matches!(root.overwrite(), Err(Error::NoHostStorage)));
    assert!(matches!(root.try_read(), Err(Error::NoHostStorage)));
    assert!(matches!(root.begin_update(), Err(Error::NoHostStorage)));
    assert!(matches!(root.plan(Location::Host, Mode::Read), Err(Error::NoHostStorage)));
    assert!(matches!(root.assume_fresh(Location::Host), Err(Error::NoHostStorage)));
    assert!(matches!(root.read_into(&mut [0; 32]), Err(Error::Undefined { lost: false, .. })));
    assert_eq!(gpu.since(&loaded), Counts::default());

    kernel.launch((root.as_overwrite(),), 1).unwrap();
    assert_eq!(gpu.since(&loaded).allocations, Reserved { calls: 1, bytes: 128 });
    assert_eq!(gpu.since(&loaded).bytes_moved(), 0);
    assert!(matches!(root.read(), Err(Error::NoHostStorage)));
    assert_eq!(read_all(&tree), stamped_all(1));
    let moved = gpu.since(&loaded);
    assert_eq!((moved.uploads.bytes, moved.downloads.bytes), (0, 128));
    // A part, in its own order, and too little room.
    let part = root.crop([2..6, 1..3]).unwrap().permute([1, 0]).unwrap().flip(1).unwrap();
    let mut out = [0; 8];
    assert!(matches!(part.read_into(&mut out[..7]), Err(Error::Geometry(_))));
    part.read_into(&mut out).unwrap();
    let expected: Vec<i32> =
        (2..6).rev().flat_map(|x| (1..3).map(move |y| stamped(x, y, 1))).collect();
    assert_eq!(out[..], expected);
    assert_eq!(gpu.since(&loaded).downloads.bytes, 128 + 32);

    // There is no home to bring it to.
    assert!(matches!(tree.evict(0), Err(Error::NoHostStorage)));
    assert_eq!(read_all(&tree), stamped_all(1));
    drop(part);
    drop(root);
    tree.close().unwrap();
    assert_eq!(gpu.snapshot().live(), 0);
}

/// P11: host storage given later is a tree of its own, filled on the device side of both.
#[test]
fn storage_given_later() {
    let gpu = host();
    let kernel = load(&gpu, 1, stamp);
    let hidden = Builder::new(&gpu).device_only::<i32>(shape()).unwrap();
    kernel.launch((hidden.root().as_overwrite(),), 1).unwrap();
    let mut pixels = vec![0; 32];
    let given = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    let before = gpu.snapshot();
    given.root().copy_from(&hidden.root(), 0).unwrap();
    assert_eq!((gpu.since(&before).uploads.bytes, gpu.since(&before).copies.bytes), (0, 128));
    given.close().unwrap();
    assert_eq!(pixels, stamped_all(1));
}

fn owns<S>(storage: S, gpu: &Counted) -> S
where
    S: hedgerow::OwnedStorage<Element = i32> + AsRef<[i32]>,
{
    let kernel = load(gpu, 1, stamp);
    let tree = Builder::new(gpu).over_owned(storage, shape()).unwrap();
    assert_eq!(tree.root().read().unwrap()[[1, 1]], 9);
    kernel.launch((tree.root().crop([0..8, 1..2]).unwrap().as_overwrite(),), 1).unwrap();
    assert_eq!(tree.counters().bytes_up, 0);
    let storage = tree.into_storage().unwrap();
    let mut expected = counted(32);
    expected[8..16].copy_from_slice(&stamped_all(1)[8..16]);
    assert_eq!(storage.as_ref(), expected);
    storage
}

#[test]
fn trees_that_own_their_storage() {
    let gpu = host();
    let mut vec = counted(32);
    vec.reserve(100);
    let (capacity, at) = (vec.capacity(), vec.as_ptr());
    let vec = owns(vec, &gpu);
    assert_eq!((vec.len(), vec.capacity(), vec.as_ptr()), (32, capacity, at));
    owns(counted(32).into_boxed_slice(), &gpu);
    owns::<&'static mut [i32]>(counted(32).leak(), &gpu);
    assert_eq!(gpu.snapshot().live(), 0);

    // Storage that is longer than the shape is kept whole, and one that is too short is refused.
    let tree = Builder::new(&gpu).over_owned(counted(40), shape()).unwrap();
    assert_eq!(tree.into_storage().unwrap().len(), 40);
    let refused = Builder::new(&gpu).over_owned(counted(31), shape());
    assert!(matches!(refused, Err(Error::Geometry(_))));
}

/// In a struct beside its device, moved, sent to a thread, dropped.
#[test]
fn an_owned_tree_moves() {
    struct Engine {
        tree: hedgerow::OwnedTree<Vec<i32>, Counted>,
        frames: u32,
    }
    let engine =
        Engine { tree: Builder::new(host()).over_owned(counted(32), shape()).unwrap(), frames: 0 };
    let engine = std::thread::spawn(move || {
        let mut engine = engine;
        engine.tree.root().fill_on(0, 7).unwrap();
        engine.frames += 1;
        engine
    });
    let Engine { tree, frames } = engine.join().unwrap();
    assert_eq!(frames, 1);
    assert_eq!(tree.root().crop([2..3, 2..3]).unwrap().read().unwrap()[[2, 2]], 7);
    drop(tree);
}

/// An owned tree that cannot be closed comes back with its storage in it.
#[test]
fn an_owned_tree_that_cannot_close() {
    let host = Host::new();
    let gpu = hedgerow::driver::middleware::Fault::new(&host);
    let kernel = load(&gpu, 1, stamp);
    let tree = Builder::new(&gpu).over_owned(counted(32), shape()).unwrap();
    kernel.launch((tree.root().as_overwrite(),), 1).unwrap();
    gpu.arm(1, ErrorKind::Other);
    let CloseError { tree, error } = tree.into_storage().unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Other));
    gpu.disarm();
    assert_eq!(tree.into_storage().unwrap(), stamped_all(1));
    assert_eq!(host.live_allocations(), 0);
}

fn wrap<H: hedgerow::driver::Device<Driver = Counted>>(
    tree: &Tree<'_, i32, H>,
    memory: HostMemory,
    bytes: u64,
) -> Result<(), Error<hedgerow_host::HostError>> {
    // SAFETY: the tests allocate memory of at least `bytes` bytes on the tree's device, and leave it alone until
    // it is unwrapped.
    unsafe { tree.wrap_device(0, memory, bytes) }
}

fn memory(gpu: &Counted, values: &[i32]) -> HostMemory {
    let bytes = size_of_val(values) as u64;
    let memory = gpu.allocate(bytes, Contents::Undefined).unwrap().memory;
    // SAFETY: the box is inside both, and the memory is ours.
    unsafe { gpu.upload(values.as_ptr().cast(), memory, &[CopyBox::flat(0, 0, bytes)], &[]) }
        .unwrap();
    memory
}

fn contents(gpu: &Counted, memory: HostMemory) -> Vec<i32> {
    let mut out = vec![0i32; 32];
    let boxed = [CopyBox::flat(0, 0, 128)];
    let soon = std::time::Duration::from_secs(5);
    // SAFETY: the box is inside both, and the memory is unwrapped.
    unsafe { gpu.download(memory, out.as_mut_ptr().cast(), &boxed, &[], soon) }.unwrap();
    out
}

fn release(gpu: &Counted, memory: HostMemory) {
    // SAFETY: the test allocated it and forgets it now.
    unsafe { gpu.release(memory, &[]) };
}

/// P10: memory from outside, live views, and who frees it.
#[test]
fn wrapped_memory() {
    let gpu = host();
    let kernel = load(&gpu, 1, add);
    let memory = memory(&gpu, &counted(32));
    let mut pixels = vec![-1; 32];
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    assert_eq!(tree.device_layout().span(), 128);
    assert!(matches!(tree.unwrap_device(0), Err(Error::NotWrapped)));
    assert!(matches!(wrap(&tree, memory, 127), Err(Error::TooSmall { needed: 128, given: 127 })));
    // SAFETY: refused.
    let refused = unsafe { tree.wrap_device(1, memory, 128) };
    assert!(matches!(refused, Err(Error::NoDevice { device: 1, devices: 1 })));
    wrap(&tree, memory, 128).unwrap();
    assert!(matches!(wrap(&tree, memory, 128), Err(Error::Resident)));
    assert!(matches!(tree.evict(0), Err(Error::Wrapped)));
    tree.release().unwrap();

    // What is in it counts only when that is said.
    let crop = tree.root().crop([0..8, 1..3]).unwrap();
    crop.assume_fresh(Location::Device(0)).unwrap();
    let before = gpu.snapshot();
    let home = tree.root().read().unwrap();
    assert_eq!((home[[0, 0]], home[[0, 1]], home[[7, 2]], home[[0, 3]]), (-1, 8, 23, -1));
    assert_eq!(gpu.since(&before).downloads.bytes, 64);
    drop(home);

    // Kernels work in it; no memory is allocated.
    kernel.launch((crop.as_update(),), 100).unwrap();
    assert_eq!(tree.counters().allocations, 0);
    let refused = tree.unwrap_device(0).unwrap_err();
    assert_eq!(refused, Error::LiveViews { views: 1, region: region(0..8, 1..3) });
    drop(crop);
    let held = tree.root().on_device(0, Mode::Read).unwrap();
    assert!(matches!(tree.unwrap_device(0), Err(Error::Busy(Busy { holder: Holder::Access, .. }))));
    drop(held);
    let before = gpu.snapshot();
    let back = tree.unwrap_device(0).unwrap();
    assert_eq!(back, memory);
    // What only it held is home, and it is not freed.
    let since = gpu.since(&before);
    assert_eq!((since.downloads.bytes, since.releases), (64, 0));
    assert!(matches!(tree.unwrap_device(0), Err(Error::NotWrapped)));
    assert_eq!(tree.root().read().unwrap()[[7, 2]], 123);
    // The caller's memory holds what the kernel made, and its own where nothing went up.
    assert_eq!(contents(&gpu, memory)[8..24], (108..124).collect::<Vec<_>>());
    // The device has nothing of the tree any more: the next use allocates and uploads.
    kernel.launch((tree.root().as_update(),), 0).unwrap();
    assert_eq!((tree.counters().allocations, tree.counters().bytes_up), (1, 128 + 64));
    assert!(matches!(wrap(&tree, memory, 128), Err(Error::Resident)));
    drop(tree);
    release(&gpu, memory);
    assert_eq!(gpu.snapshot().live(), 0);
}

/// A tree that goes brings home what wrapped memory holds, and leaves the memory alone.
#[test]
fn wrapped_memory_outlives_the_tree() {
    let gpu = host();
    let memory = memory(&gpu, &counted(32));
    let mut pixels = vec![-1; 32];
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    wrap(&tree, memory, 128).unwrap();
    tree.root().assume_fresh(Location::Device(0)).unwrap();
    let before = gpu.snapshot();
    drop(tree);
    assert_eq!(gpu.since(&before).releases, 0);
    assert_eq!(pixels, counted(32));
    assert_eq!(contents(&gpu, memory), counted(32));
    release(&gpu, memory);
}

/// Without a home, what is in wrapped memory goes with it.
#[test]
fn wrapped_memory_without_host_storage() {
    let gpu = host();
    let kernel = load(&gpu, 1, add);
    let memory = memory(&gpu, &counted(32));
    let tree = Builder::new(&gpu).device_only::<i32>(shape()).unwrap();
    wrap(&tree, memory, 128).unwrap();
    tree.root().assume_fresh(Location::Device(0)).unwrap();
    kernel.launch((tree.root().as_update(),), 5).unwrap();
    assert_eq!(tree.unwrap_device(0).unwrap(), memory);
    assert_eq!(contents(&gpu, memory), (5..37).collect::<Vec<_>>());
    let gone = tree.root().read_into(&mut [0; 32]);
    assert!(matches!(gone, Err(Error::Undefined { .. })), "{gone:?}");
    release(&gpu, memory);
}

#[test]
fn assumed_under_a_live_access() {
    let gpu = host();
    let mut pixels = counted(32);
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    let (left, right) =
        (tree.root().crop([0..4, 0..4]).unwrap(), tree.root().crop([4..8, 0..4]).unwrap());
    let guard = left.read().unwrap();
    for location in [Location::Host, Location::Device(0)] {
        let refused = tree.root().assume_fresh(location);
        assert!(matches!(refused, Err(Error::Busy(Busy { holder: Holder::Access, .. }))));
        right.assume_fresh(location).unwrap();
    }
    drop(guard);
    let access = left.on_device(0, Mode::Read).unwrap();
    assert!(matches!(tree.root().assume_fresh(Location::Device(0)), Err(Error::Busy(_))));
    drop(access);
    let nothing = tree.root().crop([3..3, 0..4]).unwrap();
    nothing.assume_fresh(Location::Device(0)).unwrap();
    nothing.assume_fresh(Location::Host).unwrap();
    assert!(matches!(
        left.assume_fresh(Location::Device(1)),
        Err(Error::NoDevice { device: 1, devices: 1 })
    ));
}

/// Host memory filled from outside: a tree's storage written by whoever else may.
#[test]
fn assumed_at_home() {
    let gpu = host();
    let kernel = load(&gpu, 1, stamp);
    let mut pixels = counted(32);
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    kernel.launch((tree.root().as_overwrite(),), 1).unwrap();
    tree.root().crop([0..8, 0..1]).unwrap().assume_fresh(Location::Host).unwrap();
    tree.close().unwrap();
    let mut expected = stamped_all(1);
    expected[..8].copy_from_slice(&counted(8));
    assert_eq!(pixels, expected);
}

/// Poison is for what writers miss; what somebody else has filled is not missed.
#[test]
fn assumed_memory_is_not_poisoned() {
    let gpu = host();
    let memory = memory(&gpu, &counted(32));
    let mut pixels = vec![-1; 32];
    let tree = Builder::new(&gpu).poison(true).over(&mut pixels, shape()).unwrap();
    wrap(&tree, memory, 128).unwrap();
    tree.root().assume_fresh(Location::Device(0)).unwrap();
    assert_eq!(tree.root().read().unwrap().as_slice().unwrap(), counted(32));
    // And at home.
    tree.root().fill_on(0, 5).unwrap();
    let poisoned = i32::from_ne_bytes([0xa5; 4]);
    tree.root().crop([0..1, 0..1]).unwrap().assume_fresh(Location::Host).unwrap();
    assert_eq!(tree.root().read().unwrap()[[0, 0]], poisoned);
    assert_eq!(tree.root().read().unwrap()[[1, 0]], 5);
    tree.unwrap_device(0).unwrap();
    release(&gpu, memory);
}

/// A view with gaps: what lies between its elements is not filled, and cannot be brought without them.
#[test]
fn assumed_with_gaps() {
    let gpu = host();
    let memory = memory(&gpu, &counted(32));
    let mut pixels = vec![-1; 32];
    let tree = Tree::over(&mut pixels, shape(), &gpu).unwrap();
    wrap(&tree, memory, 128).unwrap();
    let before = gpu.snapshot();
    let even = tree.root().step_by(0, 2).unwrap();
    for location in [Location::Host, Location::Device(0)] {
        let refused = even.assume_fresh(location);
        let step = hedgerow::GeometryError::BadStep { step: 2 };
        assert_eq!(refused, Err(Error::Geometry(step)));
    }
    assert_eq!(gpu.since(&before), Counts::default());
    drop(even);
    // One step of it has none.
    tree.root()
        .crop([0..8, 1..2])
        .unwrap()
        .step_by(1, 2)
        .unwrap()
        .assume_fresh(Location::Device(0))
        .unwrap();
    let home = tree.root().read().unwrap();
    assert_eq!((home[[3, 0]], home[[3, 1]], home[[3, 2]]), (-1, 11, -1));
    drop(home);
    tree.unwrap_device(0).unwrap();
    release(&gpu, memory);
}
