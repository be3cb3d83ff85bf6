//! The tree and its builder.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use core::time::Duration;

use super::erased::{Erased, HostSide, Inner, Slots, Wait, locked, locked_surely};
use super::lock::{Locking, Spin};
use super::view::View;
use super::{Element, ops};
use crate::capacity::{Array, Capacity, Flag, Standard, fence};
use crate::driver::{
    After, Contents, CopyBox, Device, DeviceDriver, DriverId, DropError, ErrorKind, Ticket,
};
use crate::error::{Busy, Error, Holder};
use crate::region::{Layout, Region, Shape, ViewMap};
use crate::tree::{
    Access, Counters, DeviceState, Drawing, Header, Location, MAX_DEVICES, Mode, Node, Residency,
    Setup, State, Work,
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
    /// The access of the parent's that a detached tree lives under. Dropped after the tree has written back.
    held: Option<Held<'m>>,
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
    /// Which drivers the handles named at first: memory is only ever handed to these.
    ids: C::Devices<Option<DriverId>>,
    host: HostSide<Memory<H>>,
    setup: Setup,
    timeout: Duration,
    contents: Contents,
    poison: bool,
    /// Set by dropped views and guards, reaped by the next call. Plain loads and stores, so that cores
    /// without compare-and-swap can do it.
    dropped_nodes: C::NodeFlags,
    dropped_accesses: C::AccessFlags,
    any_dropped: Flag,
}

impl<H: Device, C: Capacity, L: Locking> Shared<H, C, L> {
    fn reap(&self, tables: &mut Tables<C, Memory<H>>) {
        // Cleared before the flags are read: a drop during the scan sets it again.
        if !self.any_dropped.load(Ordering::Acquire) {
            return;
        }
        self.any_dropped.store(false, Ordering::Relaxed);
        // This fence and the one in `flag` have an order: a flag missed here finds `any_dropped` set.
        fence(Ordering::SeqCst);
        let mut state = tables.inner().state;
        let mut left = false;
        for (slot, flag) in self.dropped_accesses.as_slice().iter().enumerate() {
            if flag.load(Ordering::Acquire) {
                if state.end(slot) {
                    flag.store(false, Ordering::Relaxed);
                } else {
                    left = true;
                }
            }
        }
        for (slot, flag) in self.dropped_nodes.as_slice().iter().enumerate() {
            if flag.load(Ordering::Acquire) {
                flag.store(false, Ordering::Relaxed);
                state.free_node(slot);
            }
        }
        if left {
            self.any_dropped.store(true, Ordering::Relaxed);
        }
    }

    fn flag(&self, flags: &[Flag], slot: usize) {
        if let Some(flag) = flags.get(slot) {
            flag.store(true, Ordering::Release);
            fence(Ordering::SeqCst);
            self.any_dropped.store(true, Ordering::Release);
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
        let driver = self.devices.as_slice().get(index)?.as_ref().map(H::driver)?;
        let id = self.ids.as_slice().get(index).copied()?;
        (Some(driver.id()) == id).then_some(driver)
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
    /// Adds a device, numbered in the order of adding. [`Standard`] has room for one, [`Large`](crate::capacity::Large)
    /// for four; more than there is room for, or the same device twice, are refused when the tree is made.
    /// A launch runs on the device that its kernel was loaded on.
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
        let layout = Self::layout_for::<T>(&shape, storage.len())?;
        let host = HostSide { base: storage.as_mut_ptr().cast(), owned: None };
        self.build(layout, host, Setup { host_fresh: true, ..Self::setup(layout) }, Owned::NONE)
    }

    /// A tree over the caller's memory, which is fresh and never written: what only devices hold stays there,
    /// and reading it on the host answers [`Error::ReadOnly`] (but [`View::read_into`] some other memory
    /// works).
    ///
    /// # Errors
    /// As [`over`](Self::over).
    pub fn over_ref<T: Element>(
        self,
        storage: &[T],
        shape: Shape,
    ) -> Result<Tree<'_, T, H, C, L>, Failure<H>> {
        let layout = Self::layout_for::<T>(&shape, storage.len())?;
        // Never written through: the setup says so, and reservations keep to it.
        let host = HostSide { base: storage.as_ptr().cast_mut().cast(), owned: None };
        let setup = Setup { host_fresh: true, host_readonly: true, ..Self::setup(layout) };
        self.build(layout, host, setup, Owned::NONE)
    }

    /// A tree without host storage: its bytes live on devices only. Guards answer
    /// [`Error::NoHostStorage`]; [`View::read_into`] copies out.
    ///
    /// # Errors
    /// As [`over`](Self::over).
    pub fn device_only<T: Element>(
        self,
        shape: Shape,
    ) -> Result<Tree<'static, T, H, C, L>, Failure<H>> {
        let layout = Layout::new(&shape, size_of::<T>())?;
        let none = HostSide { base: NonNull::<T>::dangling().as_ptr().cast(), owned: None };
        self.build(layout, none, Setup { has_host: false, ..Self::setup(layout) }, Owned::NONE)
    }

    fn layout_for<T: Element>(shape: &Shape, given: usize) -> Result<Layout, Failure<H>> {
        let layout = Layout::new(shape, size_of::<T>())?;
        let (needed, given) = (layout.span().div_ceil(size_of::<T>() as u64), given as u64);
        if given < needed {
            return Err(crate::region::GeometryError::TooShort { needed, given }.into());
        }
        Ok(layout)
    }

    /// A tree of its own over a view's elements, with device memory of the view's size, whether or not the
    /// parent has any. Its coordinates are the view's, its devices are the builder's: the parent's, or others
    /// of the same driver. So an image larger than a device's memory is worked through window by window.
    ///
    /// ```
    /// use hedgerow::{Builder, Mode, Shape, Tree, driver::null::Null};
    ///
    /// let mut image = [0u8; 100 * 100];
    /// let gpu = Null::new();
    /// let tree = Tree::over(&mut image, Shape::packed([100, 100]), &gpu)?;
    /// for top in (0..100).step_by(20) {
    ///     let window = tree.root().crop([0..100, top..top + 20])?;
    ///     let own = Builder::new(&gpu).detach(&window, Mode::Update)?;
    ///     // ... launch on `own.root()`, whose device memory is 2,000 bytes ...
    ///     own.close().map_err(|failed| failed.error)?;
    /// }
    /// # Ok::<(), hedgerow::Error<hedgerow::driver::null::NullError>>(())
    /// ```
    ///
    /// The way is by the parent's host storage: what only a device of the parent's has comes home first (which
    /// the parent counts), and with a mode that writes, all its devices are stale there from then on.
    ///
    /// Like a host guard of `mode`, it holds the view's bytes until it is closed or dropped; closing brings its
    /// results home into the parent's host storage. With [`Mode::Read`] several may share bytes, and
    /// none of them writes at home: what kernels write in such a tree stays on its device, for
    /// [`View::read_into`], and goes with [`discard`](Tree::discard) (`sync` and `close` answer
    /// [`Error::ReadOnly`]). With [`Mode::Overwrite`] it starts out as never written, and the parent sees, where
    /// nothing is written, whatever the host memory held.
    ///
    /// # Errors
    /// As opening a host guard of `mode`; [`Error::NoDevice`], [`Error::SameDevice`].
    pub fn detach<'t, T: Element, D: DeviceDriver>(
        self,
        view: &View<'t, T, D>,
        mode: Mode,
    ) -> Result<Tree<'t, T, H, C, L>, Failure<H>>
    where
        H: Device<Driver = D>,
    {
        let (layout, base) = view.host_layout()?;
        // Holding the view may count it as written: nothing can fail after that.
        self.check_devices()?;
        let held = view.hold(mode)?;
        let setup = Setup {
            host_fresh: mode.reads(),
            host_readonly: !mode.writes(),
            ..Self::setup(layout)
        };
        let mut tree = self.build(layout, HostSide { base, owned: None }, setup, Owned::NONE)?;
        tree.held = held;
        Ok(tree)
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
            return self.build(layout, none, Self::setup(layout), Owned::NONE);
        }
        self.check_devices()?;
        let Some(first) = self.devices.first().and_then(Option::as_ref) else {
            return Err(Error::NoDevice { device: 0, devices: 0 });
        };
        // Asked once: a handle that named another driver later would not be believed.
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
        let shared = storage.shared.then_some(storage.memory);
        let by = Some(driver.id());
        self.build(layout, host, setup, Owned { shared, by })
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

    /// Refuses more devices than there is room for, and one that is there already.
    fn check_devices(&self) -> Result<(), Failure<H>> {
        // Built for its length only.
        let room = C::Devices::<Option<()>>::build(|_| None).as_slice().len().min(MAX_DEVICES);
        if self.count > room {
            return Err(Error::NoDevice { device: room, devices: room });
        }
        let ids = || self.devices.iter().flatten().map(|device| device.driver().id());
        match ids().enumerate().find(|(device, id)| ids().take(*device).any(|other| other == *id)) {
            Some((device, _)) => Err(Error::SameDevice { device }),
            None => Ok(()),
        }
    }

    fn build<'m, T: Element>(
        mut self,
        layout: Layout,
        host: HostSide<Memory<H>>,
        setup: Setup,
        storage: Owned<Memory<H>>,
    ) -> Result<Tree<'m, T, H, C, L>, Failure<H>> {
        self.check_devices()?;
        let shared_memory = storage.shared;
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
                ids: C::Devices::build(|device| {
                    let handle = self.devices.get(device)?.as_ref()?;
                    storage.by.filter(|_| device == 0).or_else(|| Some(handle.driver().id()))
                }),
                devices: C::Devices::build(|device| {
                    self.devices.get_mut(device).and_then(Option::take)
                }),
                host,
                setup,
                timeout: self.timeout,
                contents: self.contents,
                poison: self.poison,
                dropped_nodes: C::NodeFlags::build(|_| Flag::new(false)),
                dropped_accesses: C::AccessFlags::build(|_| Flag::new(false)),
                any_dropped: Flag::new(false),
            },
            root: ViewMap::identity(&root),
            discard: false,
            held: None,
            elements: PhantomData,
        })
    }
}

/// Host storage of a driver's own.
struct Owned<M> {
    /// The memory, where device 0 runs on it.
    shared: Option<M>,
    /// Whose it is: device 0's.
    by: Option<DriverId>,
}

impl<M> Owned<M> {
    const NONE: Self = Self { shared: None, by: None };
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

    /// How many devices the tree has.
    pub fn devices(&self) -> usize {
        self.shared.setup.devices
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

    /// Brings home what only devices hold, then gives the memory of all of them back. The tree goes on: the
    /// next use of a device allocates again.
    ///
    /// # Errors
    /// As [`evict`](Self::evict), for the first device that cannot.
    pub fn release(&self) -> Result<(), Failure<H>> {
        for device in 0..self.shared.setup.devices {
            match self.evict(device) {
                // Not ours to give back.
                Ok(_) | Err(Error::Wrapped) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Brings home what only a device holds, then gives its memory back; returns how many bytes that freed. The
    /// tree goes on: the next use of the device allocates again. Memory that the host shares is kept.
    ///
    /// # Errors
    /// [`Error::Busy`] when a device access or a call holds the memory; [`Error::NoHostStorage`] when
    /// there is no home to bring bytes to; [`Error::Wrapped`]; what the driver says. Nothing is given
    /// back then.
    pub fn evict(&self, device: usize) -> Result<u64, Failure<H>> {
        let setup = &self.shared.setup;
        if device >= setup.devices {
            return Err(Error::NoDevice { device, devices: setup.devices });
        }
        if device == 0 && setup.shared {
            return Ok(0);
        }
        let Some((memory, after)) = self.take_memory(device, false)? else { return Ok(0) };
        if let Some(driver) = self.shared.device(device) {
            // SAFETY: taken out of the table, so released once; `after` is all work on it, and no access
            // can start more: the table has no memory any more.
            unsafe { driver.release(memory, after.as_slice()) };
        }
        locked_surely(self.erased(), |inner| inner.state.counters().evictions += 1);
        Ok(setup.device.span())
    }

    /// Takes a device's memory out of the tree, once the host has all that only it held; the caller's own once
    /// all work on it is done.
    fn take_memory(
        &self,
        device: usize,
        wrapped: bool,
    ) -> Result<Option<(Memory<H>, After)>, Failure<H>> {
        let has_host = self.shared.setup.has_host;
        loop {
            // Nothing moves for what will be refused.
            let look = locked(self.erased(), Wait::Yes, |inner| {
                self.look_at_memory(&mut inner.state, device, wrapped)
            })?
            .map_err(Error::lift)?;
            match look {
                Look::Absent => return Ok(None),
                Look::Needed => {
                    self.shared.relax();
                    continue;
                }
                Look::Ready => {}
            }
            if has_host || !wrapped {
                self.bring_home(device)?;
            }
            if wrapped {
                let work = locked(self.erased(), Wait::Yes, |inner| inner.state.all_work(device))?;
                ops::wait_for(self.erased(), device, &work)?;
            }
            let taken = locked(self.erased(), Wait::Yes, |inner| -> Result<_, Error> {
                match self.look_at_memory(&mut inner.state, device, wrapped)? {
                    Look::Absent => return Ok(Some(None)),
                    Look::Needed => return Ok(None),
                    Look::Ready => {}
                }
                let mut only_there = false;
                inner.state.only_on_device(device, &mut |_| {
                    only_there = true;
                    false
                });
                let after = inner.state.all_work(device);
                let busy = wrapped && !after.as_slice().is_empty();
                if busy || only_there && (has_host || !wrapped) {
                    return Ok(None);
                }
                inner.state.forget_device(device);
                let memory = inner.memory.get_mut(device).and_then(Option::take);
                Ok(Some(memory.map(|memory| (memory, after))))
            })?
            .map_err(Error::lift)?;
            // Written or used between the first look and the second: once more.
            if let Some(taken) = taken {
                return Ok(taken);
            }
        }
    }

    /// Brings home what only this device holds, where there is a home; refuses where something would be lost.
    fn bring_home(&self, device: usize) -> Result<(), Failure<H>> {
        loop {
            let mut first = None;
            locked(self.erased(), Wait::Yes, |inner| {
                inner.state.only_on_device(device, &mut |region| {
                    first = Some(region);
                    false
                });
            })?;
            let Some(region) = first else { return Ok(()) };
            if !self.shared.setup.has_host {
                return Err(Error::NoHostStorage);
            }
            if !ops::bring_home(self.erased(), region)? {
                // Without room to record a part at home, all of it comes.
                return self.sync();
            }
        }
    }

    /// Makes memory of the caller's the root's memory on a device. Nothing in it counts as fresh until
    /// [`View::assume_fresh`] says so, or a kernel writes it. The tree never gives it back;
    /// [`unwrap_device`](Self::unwrap_device) does.
    ///
    /// # Errors
    /// [`Error::TooSmall`] when `bytes` do not hold the root, [`Error::Misaligned`] when they do not suit `T`, [`Error::Resident`] when the device has memory
    /// for this tree already.
    ///
    /// # Safety
    /// * `memory` is a live handle of this device's driver for `bytes` bytes, laid out as
    ///   [`device_layout`](Self::device_layout) says.
    /// * Until it is unwrapped, or the tree is gone, it is used through this tree only, but for bytes held by a
    ///   [`DeviceAccess`](crate::DeviceAccess).
    pub unsafe fn wrap_device(
        &self,
        device: usize,
        memory: Memory<H>,
        bytes: u64,
    ) -> Result<(), Failure<H>> {
        let setup = &self.shared.setup;
        if device >= setup.devices {
            return Err(Error::NoDevice { device, devices: setup.devices });
        }
        let needed = setup.device.span();
        if bytes < needed {
            return Err(Error::TooSmall { needed, given: bytes });
        }
        let alignment = self.shared.device(device).map_or(1, |driver| driver.alignment(memory));
        if alignment < align_of::<T>() as u64 {
            return Err(Error::Misaligned { align: align_of::<T>() });
        }
        locked(self.erased(), Wait::Yes, |inner| {
            let Some(state) = inner.state.device(device) else { return Err(Error::Resident) };
            if state.residency != Residency::Absent || state.lost {
                return Err(Error::Resident);
            }
            state.residency = Residency::Present;
            state.wrapped = true;
            if let Some(slot) = inner.memory.get_mut(device) {
                *slot = Some(memory);
            }
            Ok(())
        })?
    }

    /// Takes wrapped memory out of the tree again and returns it, when all work on it is done. With host
    /// storage, what only the device held is brought home first; without, it goes with the memory.
    ///
    /// # Errors
    /// [`Error::LiveViews`] while views are alive, [`Error::NotWrapped`], [`Error::Busy`]; what the driver
    /// says. The memory stays wrapped then.
    pub fn unwrap_device(&self, device: usize) -> Result<Memory<H>, Failure<H>> {
        let (views, region) = locked(self.erased(), Wait::Yes, |inner| {
            let (mut views, mut hull) = (0, None::<Region>);
            inner.state.for_each_node(&mut |_, region| {
                views += 1;
                hull = Some(hull.map_or(*region, |hull| hull.hull(region)));
            });
            (views, hull.unwrap_or_default())
        })?;
        if views > 0 {
            return Err(Error::LiveViews { views, region });
        }
        let taken = self.take_memory(device, true)?;
        taken.map(|(memory, _)| memory).ok_or(Error::NotWrapped)
    }

    /// How the root lies in device memory.
    pub fn device_layout(&self) -> &Layout {
        &self.shared.setup.device
    }

    /// Whether a ticket of a launch or a prefetch on a device is done. Never waits, and does not submit:
    /// [`flush`](Self::flush) does.
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::Lost`].
    pub fn poll(&self, device: usize, ticket: Ticket) -> Result<bool, Failure<H>> {
        let devices = self.shared.setup.devices;
        let driver = self.shared.device(device).ok_or(Error::NoDevice { device, devices })?;
        let done = driver.poll(ticket);
        done.map_err(|error| ops::failed(self.erased(), device, error))
    }

    /// Waits for a ticket of a launch or a prefetch on a device, at most for the tree's timeout. Reading a view
    /// waits by itself.
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::Driver`] of kind [`ErrorKind::Timeout`], [`Error::Lost`].
    pub fn wait(&self, device: usize, ticket: Ticket) -> Result<(), Failure<H>> {
        ops::wait_for(self.erased(), device, &After::of(&[ticket]))
    }

    /// Submits what was launched so far on a device, without waiting. Reads and waits do it by themselves.
    ///
    /// # Errors
    /// [`Error::NoDevice`]; what the driver says.
    pub fn flush(&self, device: usize) -> Result<(), Failure<H>> {
        let devices = self.shared.setup.devices;
        let driver = self.shared.device(device).ok_or(Error::NoDevice { device, devices })?;
        driver.flush().map_err(|error| ops::failed(self.erased(), device, error))
    }

    /// Calls `each` with the box of the root that every live view holds, and its depth below the root.
    pub fn for_each_live_view(&self, mut each: impl FnMut(usize, &Region)) {
        // A copy, so that `each` runs without the lock.
        let mut nodes = C::Nodes::build(|_| Node::default());
        locked_surely(self.erased(), |inner| {
            for (to, from) in nodes.as_mut_slice().iter_mut().zip(inner.state.nodes.iter()) {
                *to = *from;
            }
        });
        crate::tree::visit(nodes.as_slice(), &mut each);
    }

    /// Writes back what only devices hold and gives all memory back. Views and guards borrow the tree, so they
    /// must be gone: a view in a variable lives to the end of its block, also when it was shadowed. What this
    /// moves is in the counters of this tree; to see them, [`sync`](Self::sync) first.
    ///
    /// # Errors
    /// The error, with the tree in it: nothing is lost, and closing can be tried again.
    ///
    /// ```compile_fail
    /// # use hedgerow::{Builder, Mode, Shape, Tree, driver::null::Null};
    /// # let (gpu, mut image) = (Null::new(), [0u8; 4]);
    /// let tree = Tree::over(&mut image, Shape::packed([4]), &gpu).unwrap();
    /// let own = Builder::new(&gpu).detach(&tree.root(), Mode::Update).unwrap();
    /// let _ = tree.close(); // the detached tree still borrows it
    /// let _ = own.close();
    /// ```
    ///
    /// `tree.close().map_err(|failed| failed.error)?` lets the tree go, with a drop's attempt to write back.
    #[allow(clippy::result_large_err)] // it carries the tree
    pub fn close(mut self) -> Result<(), CloseError<Self, <H::Driver as DeviceDriver>::Error>> {
        match self.settle() {
            Ok(()) => Ok(()),
            Err(error) => Err(CloseError { tree: self, error }),
        }
    }

    /// Brings everything home before the tree goes.
    pub(super) fn settle(&mut self) -> Result<(), Failure<H>> {
        // Nobody borrows the tree, so guards still in the table were forgotten.
        locked_surely(self.erased(), |inner| inner.state.forget_accesses());
        // Storage of the driver's own dies with the tree: nobody could read what was written back.
        if self.shared.setup.host_owned { Ok(()) } else { self.sync() }
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
        // Each is forgotten as it is told of: one that is lost meanwhile is not forgotten untold.
        while let Some(region) = locked_surely(self.erased(), |inner| inner.state.take_lost()) {
            each(region);
        }
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

/// Drawn under the tree's lock: what it is written to must not call into the tree.
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
        if !self.discard {
            self.write_back_or_report();
        }
        for device in 0..self.shared.setup.devices {
            let (memory, after) = locked_surely(self.erased(), |inner| {
                let after = inner.state.all_work(device);
                (inner.memory.get_mut(device).and_then(Option::take), after)
            });
            let wrapped = locked_surely(self.erased(), |inner| {
                inner.state.device(device).is_some_and(|state| state.wrapped)
            });
            if wrapped {
                // The caller's memory: he may free it once the tree is gone, so nothing may still use it.
                if let Err(error) = ops::wait_for(self.erased(), device, &after) {
                    self.report(device, error.kind(), Region::default(), 0);
                }
                continue;
            }
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
    fn report(&self, device: usize, kind: Option<ErrorKind>, region: Region, elements: u64) {
        if let Some(driver) = self.shared.device(device) {
            let bytes = elements * size_of::<T>() as u64;
            driver.report_drop(DropError { kind: kind.unwrap_or(ErrorKind::Other), region, bytes });
        }
    }

    fn write_back_or_report(&mut self) {
        locked_surely(self.erased(), |inner| {
            inner.state.forget_accesses();
            // Losses of before were told when they were met.
            inner.state.forget_lost();
        });
        let setup = self.shared.setup;
        // As in `settle`; and without host storage there is no home.
        if setup.host_owned || !setup.has_host {
            return;
        }
        for device in 0..setup.devices {
            // Device by device where there are several: what one cannot give back does not keep the others'
            // from coming home.
            let result = if setup.devices == 1 { self.sync() } else { self.bring_home(device) };
            let Err(error) = result else { continue };
            let (mut region, mut elements) = (Region::default(), 0u64);
            locked_surely(self.erased(), |inner| {
                inner.state.only_on_device(device, &mut |piece| {
                    region = if elements == 0 { piece } else { region.hull(&piece) };
                    elements += piece.volume();
                    true
                });
            });
            if elements > 0 {
                self.report(device, error.kind(), region, elements);
            }
            // A loss met just now left nothing on the device to count.
            if let Error::Lost { region: Some(region), .. } = error {
                let (mut hull, mut elements) = (region, 0u64);
                self.take_lost(|piece| {
                    hull = hull.hull(&piece);
                    elements = elements.saturating_add(piece.volume());
                });
                self.report(device, error.kind(), hull, elements);
            }
        }
    }
}

/// What becomes of a device's memory when somebody wants to take it out of the tree.
enum Look {
    /// There is none.
    Absent,
    /// A call for another place is about to copy from it (or to poison it), and will be through soon.
    Needed,
    /// It can be taken.
    Ready,
}

impl<T: Element, H: Device, C: Capacity, L: Locking> Tree<'_, T, H, C, L> {
    /// Whether a device has memory that can be taken out of the tree now: `wrapped`, or its own.
    fn look_at_memory(
        &self,
        state: &mut State<'_>,
        device: usize,
        wrapped: bool,
    ) -> Result<Look, Error> {
        if let Some(busy) = state.is_in_use(Location::Device(device as u8)) {
            return Err(Error::Busy(busy));
        }
        let region = *state.root();
        let found = state.device(device).copied().unwrap_or_default();
        match found.residency {
            Residency::Changing => Err(Error::Busy(Busy { region, holder: Holder::Call })),
            Residency::Absent => Ok(Look::Absent),
            Residency::Present if found.wrapped && !wrapped => Err(Error::Wrapped),
            Residency::Present if wrapped && !found.wrapped => Err(Error::NotWrapped),
            Residency::Present => match state.is_needed(device, self.shared.poison) {
                None => Ok(Look::Ready),
                Some(Busy { holder: Holder::Call, .. }) => Ok(Look::Needed),
                Some(busy) => Err(Error::Busy(busy)),
            },
        }
    }
}

/// An access of another tree, held until this is dropped.
pub(crate) struct Held<'t> {
    pub(crate) slots: &'t dyn Slots,
    pub(crate) slot: usize,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.slots.drop_access(self.slot);
    }
}
