//! The tree and its builder.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use super::erased::{Erased, HostSide, Inner, Slots, Wait, locked, locked_surely};
use super::lock::{Locking, Spin};
use super::view::View;
use super::{Element, ops};
use crate::capacity::{Array, Capacity, Standard};
use crate::coherence::Cursor;
use crate::driver::{Contents, CopyBox, Device, DeviceDriver, DropError};
use crate::error::{Busy, Error, Holder};
use crate::region::{Layout, Region, Shape, ViewMap};
use crate::tree::{
    Access, Counters, DeviceState, Drawing, Header, Location, MAX_DEVICES, Node, Residency, Setup,
    State, Work,
};

type Memory<H> = <<H as Device>::Driver as DeviceDriver>::Memory;
type Failure<H> = Error<<<H as Device>::Driver as DeviceDriver>::Error>;

/// One root buffer of elements `T`, with every view of it, kept coherent between host memory and the
/// devices of `H`.
///
/// `C` sizes its tables ([`Standard`] needs no thought), `L` is its lock. A tree can be shared by threads
/// and be a `static` (behind a once-cell); views and guards borrow it.
///
/// Dropping a tree writes back to borrowed host memory what only a device holds, waiting at most for the
/// timeout; an error of that goes to the log and to the driver's [`DropLog`](crate::driver::DropLog). To
/// see the error, [`close`](Self::close) it.
pub struct Tree<'m, T: Element, H: Device, C: Capacity = Standard, L: Locking = Spin> {
    shared: Shared<H, C, L>,
    root: ViewMap,
    discard: bool,
    elements: PhantomData<&'m mut [T]>,
}

/// What is behind the lock.
struct Tables<C: Capacity, M: Send + Sync> {
    header: Header,
    nodes: C::Nodes,
    accesses: C::Accesses,
    work: C::Work,
    cuts: C::Cuts,
    words: C::Words,
    devices: C::Devices<DeviceState>,
    memory: C::Devices<Option<M>>,
    used_devices: usize,
}

impl<C: Capacity, M: Send + Sync> Tables<C, M> {
    fn inner(&mut self) -> Inner<'_, M> {
        let planes = 2 + self.used_devices;
        // With fewer devices than there is room for, the bitmaps are longer.
        let words = self.words.as_mut_slice();
        let each = words.len() / planes;
        Inner {
            state: State {
                header: &mut self.header,
                nodes: self.nodes.as_mut_slice(),
                accesses: self.accesses.as_mut_slice(),
                work: self.work.as_mut_slice(),
                cuts: self.cuts.as_mut_slice(),
                bits: words.get_mut(..each * planes).unwrap_or_default(),
                devices: self
                    .devices
                    .as_mut_slice()
                    .get_mut(..self.used_devices)
                    .unwrap_or_default(),
            },
            memory: self.memory.as_mut_slice(),
        }
    }
}

struct Shared<H: Device, C: Capacity, L: Locking> {
    tables: L::Cell<Tables<C, Memory<H>>>,
    devices: C::Devices<Option<H>>,
    host: HostSide<Memory<H>>,
    setup: Setup,
    timeout: Duration,
    contents: Contents,
    poison: bool,
    /// Set by dropped views and guards, reaped by the next call. Plain loads and stores, so that cores
    /// without compare-and-swap can do it.
    dropped_nodes: C::NodeFlags,
    dropped_accesses: C::AccessFlags,
    any_dropped: AtomicBool,
}

impl<H: Device, C: Capacity, L: Locking> Shared<H, C, L> {
    fn reap(&self, tables: &mut Tables<C, Memory<H>>) {
        // Cleared before the flags are read: a drop during the scan sets it again.
        if !self.any_dropped.load(Ordering::Acquire) {
            return;
        }
        self.any_dropped.store(false, Ordering::SeqCst);
        let mut state = tables.inner().state;
        let mut left = false;
        // SeqCst stores above and in `flag` make one order: a flag missed here finds `any_dropped` set.
        for (slot, flag) in self.dropped_accesses.as_slice().iter().enumerate() {
            if flag.load(Ordering::SeqCst) {
                if state.end(slot) {
                    flag.store(false, Ordering::Relaxed);
                } else {
                    left = true;
                }
            }
        }
        for (slot, flag) in self.dropped_nodes.as_slice().iter().enumerate() {
            if flag.load(Ordering::SeqCst) {
                flag.store(false, Ordering::Relaxed);
                state.free_node(slot);
            }
        }
        if left {
            self.any_dropped.store(true, Ordering::SeqCst);
        }
    }

    fn flag(&self, flags: &[AtomicBool], slot: usize) {
        if let Some(flag) = flags.get(slot) {
            flag.store(true, Ordering::SeqCst);
            self.any_dropped.store(true, Ordering::SeqCst);
        }
    }
}

impl<H: Device, C: Capacity, L: Locking> Slots for Shared<H, C, L> {
    fn drop_node(&self, slot: usize) {
        self.flag(self.dropped_nodes.as_slice(), slot);
    }

    fn drop_access(&self, slot: usize) {
        self.flag(self.dropped_accesses.as_slice(), slot);
    }
}

impl<H: Device, C: Capacity, L: Locking> Erased<H::Driver> for Shared<H, C, L> {
    fn with(&self, f: &mut dyn FnMut(Inner<'_, Memory<H>>)) -> bool {
        let run = |tables: &mut Tables<C, Memory<H>>| {
            self.reap(tables);
            f(tables.inner());
        };
        L::with(&self.tables, run).is_ok()
    }

    fn try_with(&self, f: &mut dyn FnMut(Inner<'_, Memory<H>>)) -> bool {
        let run = |tables: &mut Tables<C, Memory<H>>| {
            self.reap(tables);
            f(tables.inner());
        };
        L::try_with(&self.tables, run).is_ok()
    }

    fn device(&self, index: usize) -> Option<&H::Driver> {
        self.devices.as_slice().get(index)?.as_ref().map(H::driver)
    }

    fn devices(&self) -> usize {
        self.setup.devices
    }

    fn host(&self) -> &HostSide<Memory<H>> {
        &self.host
    }

    fn setup(&self) -> &Setup {
        &self.setup
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn contents(&self) -> Contents {
        self.contents
    }

    fn poisons(&self) -> bool {
        self.poison
    }

    fn with_list(&self, f: &mut dyn FnMut(&mut [CopyBox])) {
        f(C::List::build(|_| CopyBox::default()).as_mut_slice());
    }

    fn relax(&self) {
        L::relax();
    }
}

/// How long calls wait for a device, unless the builder says otherwise.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Builds a tree: devices, capacity, lock, timeout; then the storage.
///
/// ```
/// # use hedgerow::{Builder, Shape, capacity::Small};
/// # use hedgerow::driver::null::Null;
/// # let gpu = Null::new();
/// let mut pixels = [0u8; 64];
/// let tree = Builder::new(&gpu).capacity::<Small>().over(&mut pixels, Shape::packed([8, 8]))?;
/// # Ok::<(), hedgerow::Error<hedgerow::driver::null::NullError>>(())
/// ```
pub struct Builder<H: Device, C: Capacity = Standard, L: Locking = Spin> {
    devices: [Option<H>; MAX_DEVICES],
    count: usize,
    timeout: Duration,
    contents: Contents,
    poison: bool,
    sizes: PhantomData<fn() -> (C, L)>,
}

impl<H: Device> Builder<H> {
    /// A tree on one device, with the default capacity and lock.
    pub fn new(device: H) -> Self {
        let mut devices = [const { None }; MAX_DEVICES];
        if let Some(slot) = devices.first_mut() {
            *slot = Some(device);
        }
        let (timeout, contents) = (TIMEOUT, Contents::Zeroed);
        Self { devices, count: 1, timeout, contents, poison: false, sizes: PhantomData }
    }
}

impl<H: Device, C: Capacity, L: Locking> Builder<H, C, L> {
    /// Adds a device. More than the capacity has room for are refused when the tree is made.
    #[must_use]
    pub fn device(mut self, device: H) -> Self {
        if let Some(slot) = self.devices.get_mut(self.count) {
            *slot = Some(device);
        }
        self.count += 1;
        self
    }

    /// Sizes the tables.
    #[must_use]
    pub fn capacity<C2: Capacity>(self) -> Builder<H, C2, L> {
        let Self { devices, count, timeout, contents, poison, .. } = self;
        Builder { devices, count, timeout, contents, poison, sizes: PhantomData }
    }

    /// Chooses the lock.
    #[must_use]
    pub fn lock<L2: Locking>(self) -> Builder<H, C, L2> {
        let Self { devices, count, timeout, contents, poison, .. } = self;
        Builder { devices, count, timeout, contents, poison, sizes: PhantomData }
    }

    /// How long one wait for a device may take: 30 seconds unless said here.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Leaves device memory as it comes instead of zeroing it. Kernels that overwrite less than they
    /// declare then show whatever was there before, of whatever program.
    #[must_use]
    pub fn undefined_contents(mut self) -> Self {
        self.contents = Contents::Undefined;
        self
    }

    /// Fills bytes with `0xa5` wherever they become stale, and before they are overwritten: for tests, which
    /// then see whoever reads what is old, and elements that a writer missed.
    #[must_use]
    pub fn poison(mut self, on: bool) -> Self {
        self.poison = on;
        self
    }

    /// A tree over the caller's memory, which is fresh.
    ///
    /// # Errors
    /// [`Error::Geometry`] for a shape that makes no sense or spans more than `storage`,
    /// [`Error::NoDevice`] for more devices than the capacity has.
    pub fn over<T: Element>(
        self,
        storage: &mut [T],
        shape: Shape,
    ) -> Result<Tree<'_, T, H, C, L>, Failure<H>> {
        let layout = Layout::new(&shape, size_of::<T>())?;
        let (needed, given) = (layout.span().div_ceil(size_of::<T>() as u64), storage.len() as u64);
        if given < needed {
            return Err(crate::region::GeometryError::TooShort { needed, given }.into());
        }
        let host = HostSide { base: storage.as_mut_ptr().cast(), owned: None };
        self.build(layout, host, Setup { host_fresh: true, ..Self::setup(layout) }, None)
    }

    /// A tree over host memory that the first device's driver owns: zeroed, but never written. Where host
    /// and device share memory, nothing is ever copied.
    ///
    /// # Errors
    /// As [`over`](Self::over), and what the driver says; [`Error::Misaligned`] if its memory does not
    /// fit `T`.
    pub fn owned<T: Element>(self, shape: Shape) -> Result<Tree<'static, T, H, C, L>, Failure<H>> {
        let layout = Layout::new(&shape, size_of::<T>())?;
        let none = HostSide { base: NonNull::<T>::dangling().as_ptr().cast(), owned: None };
        if layout.span() == 0 {
            return self.build(layout, none, Self::setup(layout), None);
        }
        self.check_count()?;
        let Some(first) = self.devices.first().and_then(Option::as_ref) else {
            return Err(Error::NoDevice { device: 0, devices: 0 });
        };
        let driver = first.driver();
        let storage = driver.storage(layout.span()).map_err(Error::Driver)?;
        if !storage.host.cast::<T>().is_aligned() {
            // SAFETY: just made, used by nothing.
            unsafe { driver.release(storage.memory, &[]) };
            return Err(Error::Misaligned { align: align_of::<T>() });
        }
        let setup = Setup {
            host_owned: true,
            shared: storage.shared,
            host_survives_loss: driver.caps().storage_survives_loss,
            ..Self::setup(layout)
        };
        let host = HostSide { base: storage.host.as_ptr(), owned: Some(storage.memory) };
        self.build(layout, host, setup, storage.shared.then_some(storage.memory))
    }

    fn setup(layout: Layout) -> Setup {
        Setup {
            host: layout,
            device: layout,
            devices: 0,
            has_host: true,
            host_fresh: false,
            host_readonly: false,
            host_owned: false,
            shared: false,
            host_survives_loss: false,
        }
    }

    fn check_count(&self) -> Result<(), Failure<H>> {
        // Built for its length only.
        let room = C::Devices::<Option<()>>::build(|_| None).as_slice().len();
        if self.count > room {
            Err(Error::NoDevice { device: room, devices: room })
        } else {
            Ok(())
        }
    }

    fn build<'m, T: Element>(
        mut self,
        layout: Layout,
        host: HostSide<Memory<H>>,
        setup: Setup,
        shared_memory: Option<Memory<H>>,
    ) -> Result<Tree<'m, T, H, C, L>, Failure<H>> {
        self.check_count()?;
        let root = *layout.region();
        let device = layout.packed_like(&root)?;
        let setup = Setup { device, devices: self.count, ..setup };
        let mut tables = Tables::<C, Memory<H>> {
            header: Header::new(setup),
            nodes: C::Nodes::build(|_| Node::default()),
            accesses: C::Accesses::build(|_| Access::default()),
            work: C::Work::build(|_| Work::default()),
            cuts: C::Cuts::build(|_| 0),
            words: C::Words::build(|_| 0),
            devices: C::Devices::build(|device| {
                let mut state = DeviceState::default();
                if device == 0 && shared_memory.is_some() {
                    state.residency = Residency::Present;
                }
                state
            }),
            memory: C::Devices::build(|device| shared_memory.filter(|_| device == 0)),
            used_devices: self.count,
        };
        tables.inner().state.start();
        Ok(Tree {
            shared: Shared {
                tables: L::new(tables),
                devices: C::Devices::build(|device| {
                    self.devices.get_mut(device).and_then(Option::take)
                }),
                host,
                setup,
                timeout: self.timeout,
                contents: self.contents,
                poison: self.poison,
                dropped_nodes: C::NodeFlags::build(|_| AtomicBool::new(false)),
                dropped_accesses: C::AccessFlags::build(|_| AtomicBool::new(false)),
                any_dropped: AtomicBool::new(false),
            },
            root: ViewMap::identity(&root),
            discard: false,
            elements: PhantomData,
        })
    }
}

impl<'m, T: Element, H: Device> Tree<'m, T, H> {
    /// A tree over the caller's memory, which is fresh, on one device, with the default capacity.
    ///
    /// # Errors
    /// As [`Builder::over`].
    pub fn over(storage: &'m mut [T], shape: Shape, device: H) -> Result<Self, Failure<H>> {
        Builder::new(device).over(storage, shape)
    }
}

impl<T: Element, H: Device> Tree<'static, T, H> {
    /// A tree over host memory that the driver owns, zeroed but never written, with the default capacity.
    ///
    /// # Errors
    /// As [`Builder::owned`].
    pub fn owned(shape: Shape, device: H) -> Result<Self, Failure<H>> {
        Builder::new(device).owned(shape)
    }
}

impl<T: Element, H: Device, C: Capacity, L: Locking> Tree<'_, T, H, C, L> {
    fn erased(&self) -> &dyn Erased<H::Driver> {
        &self.shared
    }

    fn root_region(&self) -> Region {
        *self.shared.setup.host.region()
    }

    /// The view of the whole root. It takes no node of its own.
    pub fn root(&self) -> View<'_, T, H::Driver> {
        View::root(self.erased(), self.root)
    }

    /// A device of the tree.
    pub fn device(&self, index: usize) -> Option<&H::Driver> {
        self.shared.device(index)
    }

    /// Brings home what only devices hold, and waits for it. Bytes that nobody ever wrote are left out.
    ///
    /// # Errors
    /// [`Error::Busy`] when a device access that writes is alive; what the driver says.
    pub fn sync(&self) -> Result<(), Failure<H>> {
        ops::sync(self.erased(), self.root_region())
    }

    /// Brings home what only devices hold, then gives their memory back. The tree goes on: the next use of
    /// a device allocates again.
    ///
    /// # Errors
    /// [`Error::Busy`] when a guard, a device access or a call holds device memory; what the driver says. Nothing
    /// is given back then.
    pub fn release(&self) -> Result<(), Failure<H>> {
        for device in 0..self.shared.setup.devices {
            if device == 0 && self.shared.setup.shared {
                continue;
            }
            let location = Location::Device(device as u8);
            loop {
                self.sync()?;
                let taken = locked(self.erased(), Wait::Yes, |inner| {
                    if let Some(busy) = inner.state.is_in_use(location) {
                        return Err(Error::Busy(busy));
                    }
                    let mut only_there = false;
                    inner.state.only_on_device(device, &mut |_| {
                        only_there = true;
                        false
                    });
                    let changing = inner
                        .state
                        .device(device)
                        .is_some_and(|state| state.residency == Residency::Changing);
                    if changing {
                        let region = *inner.state.root();
                        return Err(Error::Busy(Busy { region, holder: Holder::Call }));
                    }
                    if only_there {
                        return Ok(None);
                    }
                    let after = inner.state.all_work(device);
                    inner.state.forget_device(device);
                    let memory = inner.memory.get_mut(device).and_then(Option::take);
                    Ok(Some((memory, after)))
                })??;
                // Written between the sync and the look: once more.
                let Some((memory, after)) = taken else { continue };
                if let (Some(memory), Some(driver)) = (memory, self.shared.device(device)) {
                    // SAFETY: taken out of the table, so released once; `after` is all work on it, and no
                    // access can start more: the table has no memory any more.
                    unsafe { driver.release(memory, after.as_slice()) };
                }
                break;
            }
        }
        Ok(())
    }

    /// Writes back what only devices hold and gives all memory back.
    ///
    /// # Errors
    /// The error, with the tree in it: nothing is lost, and closing can be tried again.
    #[allow(clippy::result_large_err)] // it carries the tree
    pub fn close(self) -> Result<(), CloseError<Self, <H::Driver as DeviceDriver>::Error>> {
        locked_surely(self.erased(), |inner| inner.state.forget_accesses());
        // Storage of the driver's own dies with the tree: nobody could read what was written back.
        if self.shared.setup.host_owned {
            return Ok(());
        }
        match self.sync() {
            Ok(()) => Ok(()),
            Err(error) => Err(CloseError { tree: self, error }),
        }
    }

    /// Gives all memory back without writing anything home: what only a device holds is meant to be lost.
    pub fn discard(mut self) {
        self.discard = true;
    }

    /// What was moved so far, and why.
    pub fn counters(&self) -> Counters {
        locked_surely(self.erased(), |inner| *inner.state.counters())
    }

    /// How many views are alive, the root's not counted.
    pub fn live_views(&self) -> usize {
        locked_surely(self.erased(), |inner| inner.state.live_nodes())
    }

    /// How many guards and device accesses are alive.
    pub fn live_accesses(&self) -> usize {
        locked_surely(self.erased(), |inner| inner.state.live_accesses())
    }

    /// Calls `each` with every box of the root that a lost device took along, and forgets them.
    pub fn take_lost(&self, mut each: impl FnMut(Region)) {
        let mut cursor = Cursor::default();
        while let Some(region) =
            locked_surely(self.erased(), |inner| inner.state.next_lost(&mut cursor))
        {
            each(region);
        }
        locked_surely(self.erased(), |inner| inner.state.forget_lost());
    }

    /// Verifies the tree's own invariants.
    ///
    /// # Errors
    /// Says what is wrong; that would be a bug in this crate.
    pub fn check(&self) -> Result<(), &'static str> {
        locked_surely(self.erased(), |inner| inner.state.check())
    }
}

/// A tree that could not be closed, and why. [`close`](Tree::close) it again, or
/// [`discard`](Tree::discard) it.
pub struct CloseError<Tr, E> {
    /// The tree, as it was.
    pub tree: Tr,
    /// What was in the way.
    pub error: Error<E>,
}

impl<Tr, E: fmt::Debug> fmt::Debug for CloseError<Tr, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloseError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<Tr, E: fmt::Display> fmt::Display for CloseError<Tr, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the tree could not be closed: {}", self.error)
    }
}

impl<Tr, E: core::error::Error> core::error::Error for CloseError<Tr, E> {}

impl<T: Element, H: Device, C: Capacity, L: Locking> fmt::Display for Tree<'_, T, H, C, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        locked_surely(self.erased(), |inner| Drawing::of(&mut inner.state).fmt(f))
    }
}

impl<T: Element, H: Device, C: Capacity, L: Locking> fmt::Debug for Tree<'_, T, H, C, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").field("root", &self.root_region()).finish_non_exhaustive()
    }
}

impl<T: Element, H: Device, C: Capacity, L: Locking> Drop for Tree<'_, T, H, C, L> {
    fn drop(&mut self) {
        // Nobody borrows the tree, so guards still in the table were forgotten.
        locked_surely(self.erased(), |inner| inner.state.forget_accesses());
        // As in `close`.
        if !self.discard && !self.shared.setup.host_owned {
            self.write_back_or_report();
        }
        for device in 0..self.shared.setup.devices {
            let (memory, after) = locked_surely(self.erased(), |inner| {
                let after = inner.state.all_work(device);
                (inner.memory.get_mut(device).and_then(Option::take), after)
            });
            let shares_storage = device == 0 && self.shared.setup.shared;
            let Some(driver) = self.shared.device(device) else { continue };
            if let Some(memory) = memory.filter(|_| !shares_storage) {
                // SAFETY: taken out of the table, so released once; `after` is all work on it, and the tree
                // is ours alone.
                unsafe { driver.release(memory, after.as_slice()) };
            }
            if let Some(storage) = self.shared.host.owned.filter(|_| device == 0) {
                // SAFETY: no view or guard can reach the storage any more; work on it is on device 0.
                unsafe { driver.release(storage, after.as_slice()) };
            }
        }
    }
}

impl<T: Element, H: Device, C: Capacity, L: Locking> Tree<'_, T, H, C, L> {
    fn write_back_or_report(&self) {
        let Err(error) = self.sync() else { return };
        let kind = error.kind().unwrap_or(crate::driver::ErrorKind::Other);
        for device in 0..self.shared.setup.devices {
            let (mut region, mut elements) = (Region::default(), 0u64);
            locked_surely(self.erased(), |inner| {
                inner.state.only_on_device(device, &mut |piece| {
                    region = if elements == 0 { piece } else { region.hull(&piece) };
                    elements += piece.volume();
                    true
                });
            });
            if let (true, Some(driver)) = (elements > 0, self.shared.device(device)) {
                let bytes = elements * size_of::<T>() as u64;
                driver.report_drop(DropError { kind, region, bytes });
            }
        }
        // A loss met just now left nothing on the device to count: what it took is in the error.
        if let (Error::Lost { region: Some(region), .. }, Some(driver)) =
            (error, self.shared.device(0))
        {
            let bytes = region.volume() * size_of::<T>() as u64;
            driver.report_drop(DropError { kind, region, bytes });
        }
    }
}
