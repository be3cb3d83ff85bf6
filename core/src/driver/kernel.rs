//! Kernels: their sources in whichever forms the caller has, and one run of one.

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;

use bytemuck::Pod;

use super::{ComputeDriver, DriverId};
use crate::error::Error;
use crate::region::{MAX_RANK, PerAxis};
use crate::tree::Mode;

/// A kernel as its author has it: one description, and code in one or more forms.
///
/// ```
/// use hedgerow::driver::{Form, HostCall, KernelError, KernelSource};
///
/// fn fill(call: &HostCall<'_>) -> Result<(), KernelError> {
///     let out = call.view::<i32>(0)?;
///     let value: i32 = call.params()?;
///     out.for_each(|at: [i32; 2]| out.set(at, value));
///     Ok(())
/// }
/// static FILL: KernelSource<'static> = KernelSource {
///     name: "fill",
///     views: 1,
///     workgroup: [1, 1, 1],
///     granule: 1,
///     forms: &[Form::Host(fill)],
/// };
/// ```
#[derive(Clone, Copy, Debug)]
pub struct KernelSource<'a> {
    /// For messages.
    pub name: &'a str,
    /// How many views it takes.
    pub views: usize,
    /// Threads of one workgroup on each axis, as its device code states them; `[1, 1, 1]` for host
    /// functions.
    pub workgroup: [u32; 3],
    /// Bytes that its smallest write to device memory touches: 1, 2 or 4 (WGSL writes 4-byte words). What
    /// it is given to write is extended to whole granules, and ordered as if it wrote those.
    pub granule: u32,
    /// The code. A driver takes the first form that it can run.
    pub forms: &'a [Form<'a>],
}

/// One form of a kernel's code.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Form<'a> {
    /// SPIR-V words. See [`DeviceCode`] for what it is given.
    Spirv(DeviceCode<'a, [u32]>),
    /// WGSL text.
    Wgsl(DeviceCode<'a, str>),
    /// OpenCL C text.
    OpenClC(DeviceCode<'a, str>),
    /// PTX text.
    Ptx(DeviceCode<'a, str>),
    /// A Rust function, for drivers that run on the host.
    Host(HostKernel),
}

impl fmt::Debug for Form<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spirv(_) => "Spirv",
            Self::Wgsl(_) => "Wgsl",
            Self::OpenClC(_) => "OpenClC",
            Self::Ptx(_) => "Ptx",
            Self::Host(_) => "Host",
        })
    }
}

/// Code that a device runs, with the promise that makes launching it safe.
///
/// Views are bound window by window: a crop's window holds the gaps between its rows, which may belong
/// to somebody else. The kernel finds its elements through each view's [`Geometry`].
pub struct DeviceCode<'a, C: ?Sized> {
    code: &'a C,
    entry: &'a str,
}

impl<C: ?Sized> Clone for DeviceCode<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C: ?Sized> Copy for DeviceCode<'_, C> {}

impl<'a, C: ?Sized> DeviceCode<'a, C> {
    /// States code and its entry point.
    ///
    /// # Safety
    /// The code touches nothing but the elements of the views it is given, and writes only those of
    /// views it is given to write (to whole granules, as [`KernelSource::granule`] says). It ends.
    pub const unsafe fn new(code: &'a C, entry: &'a str) -> Self {
        Self { code, entry }
    }

    /// The code.
    pub fn code(&self) -> &'a C {
        self.code
    }

    /// The name of its entry point.
    pub fn entry(&self) -> &'a str {
        self.entry
    }
}

/// Where a view's elements are in its binding's window.
///
/// The element at view coordinates `c` starts at byte
/// `origin + sum over axes of (c[a] - min[a]) * stride[a]` of the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Geometry {
    /// Number of axes.
    pub rank: usize,
    /// Byte of the window where the view's first element starts.
    pub origin: u64,
    /// First coordinate on each axis.
    pub min: PerAxis<i32>,
    /// Number of coordinates on each axis; 1 beyond the last.
    pub extent: PerAxis<u32>,
    /// Bytes between neighbours on each axis; negative where the view walks down.
    pub stride: PerAxis<i64>,
}

impl Geometry {
    /// Number of elements.
    pub fn volume(&self) -> u64 {
        (0..self.rank).fold(1u64, |n, axis| n.saturating_mul(u64::from(self.extent.at(axis))))
    }

    /// Byte of the window where the element at `at` starts; `None` when it is outside the view.
    pub fn byte_of(&self, at: &[i32]) -> Option<u64> {
        if at.len() != self.rank {
            return None;
        }
        let mut byte = self.origin;
        for (axis, c) in at.iter().enumerate() {
            let steps = i64::from(*c) - i64::from(self.min.at(axis));
            if steps < 0 || steps >= i64::from(self.extent.at(axis)) {
                return None;
            }
            byte = byte.wrapping_add_signed(steps.wrapping_mul(self.stride.at(axis)));
        }
        Some(byte)
    }
}

/// A view bound to a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Binding<M> {
    /// The memory that holds the view's root on this device.
    pub memory: M,
    /// Where the window starts there: a multiple of [`Caps::bind_align`](super::Caps::bind_align).
    pub offset: u64,
    /// Bytes of the window, up to the end of the view's last element.
    pub bytes: u64,
    /// Where the view's elements are in the window.
    pub geometry: Geometry,
    /// Bytes of one element.
    pub element: u32,
    /// What the kernel may do with it.
    pub mode: Mode,
}

impl<M> Binding<M> {
    /// The same view, bound to memory by another name: a driver's own, or an address for [`HostCall`].
    pub fn with_memory<N>(self, memory: N) -> Binding<N> {
        let Self { memory: _, offset, bytes, geometry, element, mode } = self;
        Binding { memory, offset, bytes, geometry, element, mode }
    }
}

/// One run of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Dispatch<'a, M> {
    /// The views, in the order of the launch.
    pub views: &'a [Binding<M>],
    /// The parameters' bytes.
    pub params: &'a [u8],
    /// Workgroups on each axis; none is zero.
    pub groups: [u32; 3],
}

/// A kernel that runs on the host: it reads and writes through the accessors of [`HostCall`].
///
/// It must return an error only before it has written anything.
pub type HostKernel = fn(&HostCall<'_>) -> Result<(), KernelError>;

/// Why a host kernel refused to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum KernelError {
    /// It asked for a view that it was not given.
    NoView {
        /// The index asked for.
        index: usize,
        /// How many there are.
        given: usize,
    },
    /// It asked for a view with elements of another size, or memory that does not fit their alignment.
    Element {
        /// The view.
        index: usize,
        /// Bytes of the type asked for.
        asked: usize,
        /// Bytes of the view's elements.
        given: usize,
    },
    /// It asked for parameters of another size.
    Params {
        /// Bytes of the type asked for.
        asked: usize,
        /// Bytes given.
        given: usize,
    },
    /// It went through a view with coordinates of another rank.
    Rank {
        /// Axes of its coordinates.
        asked: usize,
        /// Axes of the view.
        given: usize,
    },
    /// A reason of its own.
    Refused(&'static str),
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoView { index, given } => {
                write!(f, "it takes a view {index}, and the launch gave {given} views")
            }
            Self::Rank { asked, given } => {
                write!(f, "it goes through a view of {given} axes with coordinates of {asked}")
            }
            Self::Element { index, asked, given } => {
                write!(
                    f,
                    "view {index}: it takes elements of {asked} bytes, aligned, and the view's have {given}"
                )
            }
            Self::Params { asked, given } => {
                write!(f, "it takes {asked} bytes of parameters, and the launch gave {given}")
            }
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl core::error::Error for KernelError {}

defmt_as_display! { impl KernelError; }

/// What a host kernel is called with.
#[derive(Clone, Copy, Debug)]
pub struct HostCall<'a> {
    views: &'a [Binding<*mut u8>],
    params: &'a [u8],
    /// The first mistake that an accessor met, where it had no way to answer.
    mistake: &'a Cell<Option<KernelError>>,
}

impl<'a> HostCall<'a> {
    /// For drivers: runs a kernel on views whose `memory` points at the window's first byte (`offset` is not
    /// added again). A kernel that went through a view with coordinates of another rank is an error, too.
    ///
    /// # Errors
    /// What the kernel says, or [`KernelError::Rank`].
    ///
    /// # Safety
    /// During the call, every window is valid for reads, and for writes where its mode writes, and nothing
    /// else on another thread writes what the kernel reads or touches what it writes. A view that is only
    /// read shares no element with one that is written.
    pub unsafe fn run(
        kernel: HostKernel,
        views: &[Binding<*mut u8>],
        params: &[u8],
    ) -> Result<(), KernelError> {
        let mistake = Cell::new(None);
        kernel(&HostCall { views, params, mistake: &mistake })?;
        mistake.take().map_or(Ok(()), Err)
    }

    /// How many views there are.
    pub fn views(&self) -> usize {
        self.views.len()
    }

    /// The view of that index, as elements of type `T`.
    ///
    /// # Errors
    /// [`KernelError::NoView`], or [`KernelError::Element`] when size or alignment differ.
    pub fn view<T: Pod>(&self, index: usize) -> Result<HostView<'a, T>, KernelError> {
        let binding =
            self.views.get(index).ok_or(KernelError::NoView { index, given: self.views.len() })?;
        let mismatch =
            KernelError::Element { index, asked: size_of::<T>(), given: binding.element as usize };
        let first = (binding.memory as usize).wrapping_add(binding.geometry.origin as usize);
        let aligned = first.is_multiple_of(align_of::<T>())
            && (0..binding.geometry.rank).all(|axis| {
                binding
                    .geometry
                    .stride
                    .at(axis)
                    .unsigned_abs()
                    .is_multiple_of(align_of::<T>() as u64)
            });
        if size_of::<T>() != binding.element as usize || !aligned {
            return Err(mismatch);
        }
        Ok(HostView {
            base: binding.memory,
            geometry: binding.geometry,
            mode: binding.mode,
            mistake: self.mistake,
            elements: PhantomData,
        })
    }

    /// The parameters.
    ///
    /// # Errors
    /// [`KernelError::Params`] when `P` has another size.
    pub fn params<P: Pod>(&self) -> Result<P, KernelError> {
        bytemuck::try_pod_read_unaligned(self.params)
            .map_err(|_| KernelError::Params { asked: size_of::<P>(), given: self.params.len() })
    }
}

/// A bound view inside a host kernel. Coordinates are the view's own.
///
/// Views of one launch may overlap where the caller said so, so elements are read and written by value,
/// and rows are slices of [`Cell`]s.
#[derive(Clone, Copy, Debug)]
pub struct HostView<'a, T> {
    base: *mut u8,
    geometry: Geometry,
    mode: Mode,
    mistake: &'a Cell<Option<KernelError>>,
    elements: PhantomData<&'a [Cell<T>]>,
}

impl<'a, T: Pod> HostView<'a, T> {
    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.geometry.rank
    }

    /// First coordinate on `axis`.
    pub fn min(&self, axis: usize) -> i32 {
        self.geometry.min.at(axis)
    }

    /// Number of coordinates on `axis`; 1 beyond the last.
    pub fn extent(&self, axis: usize) -> u32 {
        if axis < self.geometry.rank { self.geometry.extent.at(axis) } else { 1 }
    }

    /// One past the last coordinate on `axis`.
    pub fn end(&self, axis: usize) -> i32 {
        self.min(axis).wrapping_add_unsigned(self.extent(axis))
    }

    fn element(&self, at: &[i32]) -> Option<*mut T> {
        if at.len() != self.geometry.rank {
            self.wrong_rank(at.len());
        }
        let byte = self.geometry.byte_of(at)?;
        Some(self.base.wrapping_add(byte as usize).cast())
    }

    fn wrong_rank(&self, asked: usize) {
        self.mistake.set(Some(KernelError::Rank { asked, given: self.geometry.rank }));
    }

    /// The element at `at`; `None` when it is outside the view.
    pub fn get<const N: usize>(&self, at: [i32; N]) -> Option<T> {
        let element = self.element(&at)?;
        // SAFETY: the element is inside the window, which `HostCall::run` promises is readable and
        // written by no other thread; `HostCall::view` checked size and alignment.
        Some(unsafe { element.read() })
    }

    /// Writes the element at `at`. Outside the view, or in a view that is only read, nothing happens.
    pub fn set<const N: usize>(&self, at: [i32; N], value: T) {
        if let (Some(element), true) = (self.element(&at), self.mode.writes()) {
            // SAFETY: as in `get`; the mode writes, so the window is writable and ours alone.
            unsafe { element.write(value) };
        }
    }

    /// The elements along axis 0 from the first, at the outer coordinates of `at` (`at[0]` is ignored);
    /// `None` when outside, when the elements are not contiguous, or when the view is only read (then
    /// [`read_row`](Self::read_row) has them).
    pub fn row<const N: usize>(&self, mut at: [i32; N]) -> Option<&'a [Cell<T>]> {
        let first = at.first_mut()?;
        *first = self.min(0);
        let contiguous = self.extent(0) <= 1 || self.geometry.stride.at(0) == size_of::<T>() as i64;
        if !contiguous || !self.mode.writes() {
            return None;
        }
        let first: *mut Cell<T> = self.element(&at)?.cast();
        // SAFETY: the row's elements are contiguous, inside the window, writable, and touched by no other
        // thread (`HostCall::run`); cells make overlap with other views of this call sound.
        Some(unsafe { core::slice::from_raw_parts(first, self.extent(0) as usize) })
    }

    /// The elements along axis 0 from the first, at the outer coordinates of `at`, in a view that is only
    /// read; `None` as for [`row`](Self::row), and when the view is written.
    pub fn read_row<const N: usize>(&self, mut at: [i32; N]) -> Option<&'a [T]> {
        let first = at.first_mut()?;
        *first = self.min(0);
        let contiguous = self.extent(0) <= 1 || self.geometry.stride.at(0) == size_of::<T>() as i64;
        if !contiguous || self.mode.writes() {
            return None;
        }
        let first: *const T = self.element(&at)?;
        // SAFETY: the row's elements are contiguous, inside the window, readable, and written by nobody
        // while the call lives: not by another thread, nor through another view (`HostCall::run`).
        Some(unsafe { core::slice::from_raw_parts(first, self.extent(0) as usize) })
    }

    /// Calls `each` with every coordinate, axis 0 fastest.
    ///
    /// `N` must be the view's rank; otherwise nothing is called, and the launch answers
    /// [`KernelError::Rank`].
    pub fn for_each<const N: usize>(&self, mut each: impl FnMut([i32; N])) {
        if N != self.geometry.rank || N > MAX_RANK {
            self.wrong_rank(N);
            return;
        }
        let mut at = [0i32; N];
        for (axis, c) in at.iter_mut().enumerate() {
            *c = self.min(axis);
        }
        for _ in 0..self.geometry.volume() {
            each(at);
            for (axis, c) in at.iter_mut().enumerate() {
                *c = c.wrapping_add(1);
                if *c != self.end(axis) {
                    break;
                }
                *c = self.min(axis);
            }
        }
    }
}

/// A loaded kernel, to launch on views of trees on its driver.
#[derive(Debug)]
pub struct Kernel<D: ComputeDriver> {
    pub(crate) code: D::Kernel,
    pub(crate) driver: DriverId,
    pub(crate) views: usize,
    pub(crate) workgroup: [u32; 3],
    pub(crate) granule: u32,
}

impl<D: ComputeDriver> Kernel<D> {
    pub(super) fn load(driver: &D, source: &KernelSource<'_>) -> Result<Self, Error<D::Error>> {
        if source.workgroup.contains(&0) || !matches!(source.granule, 1 | 2 | 4) {
            return Err(Error::BadKernel);
        }
        Ok(Self {
            code: driver.load_kernel(source).map_err(Error::Driver)?,
            driver: driver.id(),
            views: source.views,
            workgroup: source.workgroup,
            granule: source.granule,
        })
    }
}
