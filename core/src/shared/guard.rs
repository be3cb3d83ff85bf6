//! Host guards: scoped access to a view's elements in host memory.
//!
//! A guard's region is held in the table of accesses, so no other guard that conflicts, no transfer and no
//! launch touches it while the guard lives. Dropping a guard sets a flag, which the next call on the tree
//! reaps; it calls no driver and cannot fail. Forgetting one costs its slot until the tree goes.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Index, IndexMut};

use super::Element;
use super::erased::{Erased, Slots, locked_surely};
use crate::driver::DeviceDriver;
use crate::region::{Layout, PerAxis, Region, ViewMap};

/// A view's elements in host memory.
struct Elements<'t, T> {
    slots: &'t dyn Slots,
    /// The access that vouches for them; `None` for a view without elements.
    slot: Option<usize>,
    base: *mut u8,
    layout: Layout,
    map: ViewMap,
    elements: PhantomData<*mut T>,
}

impl<T> Drop for Elements<'_, T> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.slots.drop_access(slot);
        }
    }
}

impl<'t, T: Element> Elements<'t, T> {
    fn new<D: DeviceDriver>(
        tree: &'t dyn Erased<D>,
        slot: Option<usize>,
        map: ViewMap,
        base: *mut u8,
    ) -> Self {
        let layout = tree.setup().host;
        Self { slots: tree, slot, base, layout, map, elements: PhantomData }
    }

    /// The element at view coordinates `at`.
    fn element(&self, at: &[i32]) -> Option<*mut T> {
        let root = self.map.to_root(at)?;
        Some(self.base.wrapping_add(self.layout.offset(&root) as usize).cast())
    }

    /// The elements along axis 0 at the outer coordinates of `at`, where they are contiguous.
    fn row(&self, at: &[i32]) -> Option<(*mut T, usize)> {
        if !self.is_contiguous() {
            return None;
        }
        let extent = self.map.extent(0) as usize;
        Some((self.element(at)?, if self.map.rank() == 0 { 1 } else { extent }))
    }

    /// All elements, where they are contiguous in order.
    fn whole(&self) -> Option<(*mut T, usize)> {
        if self.map.is_empty() {
            return Some((core::ptr::NonNull::dangling().as_ptr(), 0));
        }
        let mut next = size_of::<T>() as i64;
        for axis in 0..self.map.rank() {
            let extent = self.map.extent(axis);
            let stride =
                self.layout.stride(self.map.root_axis(axis)) * i64::from(self.map.step(axis));
            if extent > 1 && stride != next {
                return None;
            }
            next *= i64::from(extent);
        }
        let first = self.min().0.get(..self.map.rank()).and_then(|at| self.element(at))?;
        Some((first, self.map.volume() as usize))
    }

    fn min(&self) -> PerAxis<i32> {
        let mut at = PerAxis::all(0);
        for axis in 0..self.map.rank() {
            at.set(axis, self.map.min(axis));
        }
        at
    }

    /// The row behind `at`, or the end. Axis 0 stays where it is.
    fn next_row(&self, at: &mut PerAxis<i32>) -> bool {
        for axis in 1..self.map.rank() {
            let next = i64::from(at.at(axis)) + 1;
            if next < i64::from(self.map.min(axis)) + i64::from(self.map.extent(axis)) {
                at.set(axis, next as i32);
                return true;
            }
            at.set(axis, self.map.min(axis));
        }
        false
    }

    /// Calls `each` with every element in order, axis 0 fastest, while it answers `true`.
    fn for_each(&self, mut each: impl FnMut(*mut T) -> bool) {
        if self.map.is_empty() {
            return;
        }
        let rank = self.map.rank();
        let mut at = self.min();
        loop {
            let first = self.map.min(0);
            for i in 0..if rank == 0 { 1 } else { i64::from(self.map.extent(0)) } {
                at.set(0, (i64::from(first) + i) as i32);
                let element = at.0.get(..rank).and_then(|at| self.element(at));
                if element.is_none_or(|element| !each(element)) {
                    return;
                }
            }
            if !self.next_row(&mut at) {
                return;
            }
        }
    }

    fn rows(&self) -> Option<RowCursor> {
        let cursor = RowCursor { at: self.min(), done: self.map.is_empty() };
        self.is_contiguous().then_some(cursor)
    }

    /// Whether the elements along axis 0 are.
    fn is_contiguous(&self) -> bool {
        let stride = self.layout.stride(self.map.root_axis(0)) * i64::from(self.map.step(0));
        self.map.rank() == 0 || self.map.extent(0) <= 1 || stride == size_of::<T>() as i64
    }
}

/// Where an iteration over rows is.
#[derive(Clone, Debug)]
struct RowCursor {
    at: PerAxis<i32>,
    done: bool,
}

impl RowCursor {
    fn next<T: Element>(&mut self, elements: &Elements<'_, T>) -> Option<(*mut T, usize)> {
        if self.done {
            return None;
        }
        let row = self.at.0.get(..elements.map.rank()).and_then(|at| elements.row(at));
        self.done = row.is_none() || !elements.next_row(&mut self.at);
        row
    }
}

/// A view's elements on the host, to read.
#[must_use = "the elements are held only while the guard lives"]
pub struct ReadGuard<'t, T: Element>(Elements<'t, T>);

/// A view's elements on the host, to write (and to read: for an overwrite, whatever was there).
#[must_use = "the elements are held only while the guard lives"]
pub struct WriteGuard<'t, T: Element>(Elements<'t, T>);

// SAFETY: a guard is a shared or exclusive borrow of its elements, enforced by the table of accesses (I9);
// `T` is `Send` and `Sync`, and dropping only sets an atomic flag.
unsafe impl<T: Element> Send for ReadGuard<'_, T> {}
// SAFETY: as above; a shared guard only hands out shared borrows.
unsafe impl<T: Element> Sync for ReadGuard<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Element> Send for WriteGuard<'_, T> {}
// SAFETY: as above; mutable borrows need `&mut` of the guard.
unsafe impl<T: Element> Sync for WriteGuard<'_, T> {}

macro_rules! shared_reads {
    ($guard:ident) => {
        impl<'t, T: Element> $guard<'t, T> {
            pub(crate) fn new<D: DeviceDriver>(
                tree: &'t dyn Erased<D>,
                slot: Option<usize>,
                map: ViewMap,
                base: *mut u8,
            ) -> Self {
                Self(Elements::new(tree, slot, map, base))
            }

            /// The view's coordinates.
            pub fn region(&self) -> Region {
                self.0.map.region()
            }

            /// The element at `at`, in the view's coordinates; `None` when it is outside.
            pub fn get<const N: usize>(&self, at: [i32; N]) -> Option<&T> {
                let element = self.0.element(&at)?;
                // SAFETY: the element is inside the region that this guard holds: initialised, aligned (the
                // storage is a slice of `T` or checked), and written by nobody else while it lives (I9).
                Some(unsafe { &*element })
            }

            /// The elements along axis 0 at the outer coordinates of `at` (`at[0]` is ignored). `None`
            /// when outside, or when they are not contiguous in memory (a step, a flip, a permutation, or a
            /// root whose axis 0 is not the innermost).
            pub fn row<const N: usize>(&self, mut at: [i32; N]) -> Option<&[T]> {
                if let Some(first) = at.first_mut() {
                    *first = self.0.map.min(0);
                }
                let (first, len) = self.0.row(&at)?;
                // SAFETY: as in `get`, for `len` contiguous elements of the region.
                Some(unsafe { core::slice::from_raw_parts(first, len) })
            }

            /// All elements, axis 0 fastest, where they lie in memory in that order without gaps.
            pub fn as_slice(&self) -> Option<&[T]> {
                let (first, len) = self.0.whole()?;
                // SAFETY: as in `get`, for `len` contiguous elements of the region.
                Some(unsafe { core::slice::from_raw_parts(first, len) })
            }

            /// The rows along axis 0, axis 1 fastest; `None` where elements are not contiguous along axis 0.
            /// Permute the view so that the innermost axis in memory comes first: of an interleaved image
            /// `[x, y, c]`, `view.permute([2, 0, 1])` has rows of channels, and [`as_slice`](Self::as_slice)
            /// of one line has it whole.
            pub fn rows(&self) -> Option<Rows<'_, T>> {
                Some(Rows { cursor: self.0.rows()?, elements: &self.0 })
            }

            /// Copies all elements out, axis 0 fastest; returns how many: as many as both hold.
            pub fn copy_to_slice(&self, out: &mut [T]) -> usize {
                if let Some(all) = self.as_slice() {
                    let len = all.len().min(out.len());
                    if let (Some(out), Some(all)) = (out.get_mut(..len), all.get(..len)) {
                        out.copy_from_slice(all);
                    }
                    return len;
                }
                let mut left = out.iter_mut();
                let mut copied = 0;
                self.0.for_each(|element| match left.next() {
                    Some(slot) => {
                        // SAFETY: as in `get`.
                        *slot = unsafe { element.read() };
                        copied += 1;
                        true
                    }
                    None => false,
                });
                copied
            }
        }

        impl<T: Element, const N: usize> Index<[i32; N]> for $guard<'_, T> {
            type Output = T;

            /// The element at `at`.
            ///
            /// # Panics
            /// When `at` is outside the view. [`get`](Self::get) does not panic.
            #[allow(clippy::panic)] // the one documented panic: `Index` has no other way to answer
            fn index(&self, at: [i32; N]) -> &T {
                match self.get(at) {
                    Some(element) => element,
                    None => panic!("{at:?} is outside the view {}", self.region()),
                }
            }
        }

        impl<T: Element> fmt::Debug for $guard<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($guard), " {}"), self.region())
            }
        }
    };
}

shared_reads!(ReadGuard);
shared_reads!(WriteGuard);

impl<T: Element> WriteGuard<'_, T> {
    /// The element at `at`, in the view's coordinates; `None` when it is outside.
    pub fn get_mut<const N: usize>(&mut self, at: [i32; N]) -> Option<&mut T> {
        let element = self.0.element(&at)?;
        // SAFETY: the element is inside the region that this guard alone holds (I9), and `&mut self`
        // keeps this guard from handing it out twice.
        Some(unsafe { &mut *element })
    }

    /// The elements along axis 0 at the outer coordinates of `at`, as [`row`](Self::row).
    pub fn row_mut<const N: usize>(&mut self, mut at: [i32; N]) -> Option<&mut [T]> {
        if let Some(first) = at.first_mut() {
            *first = self.0.map.min(0);
        }
        let (first, len) = self.0.row(&at)?;
        // SAFETY: as in `get_mut`, for `len` contiguous elements of the region.
        Some(unsafe { core::slice::from_raw_parts_mut(first, len) })
    }

    /// All elements, as [`as_slice`](Self::as_slice).
    pub fn as_mut_slice(&mut self) -> Option<&mut [T]> {
        let (first, len) = self.0.whole()?;
        // SAFETY: as in `get_mut`, for `len` contiguous elements of the region.
        Some(unsafe { core::slice::from_raw_parts_mut(first, len) })
    }

    /// The rows along axis 0, as [`rows`](Self::rows), to write. No two overlap.
    pub fn rows_mut(&mut self) -> Option<RowsMut<'_, T>> {
        Some(RowsMut { cursor: self.0.rows()?, elements: &mut self.0 })
    }

    /// Writes `value` to every element.
    pub fn fill(&mut self, value: T) {
        self.0.for_each(|element| {
            // SAFETY: as in `get_mut`.
            unsafe { element.write(value) };
            true
        });
    }

    /// Writes elements in order, axis 0 fastest; returns how many: as many as both hold.
    pub fn copy_from_slice(&mut self, from: &[T]) -> usize {
        if let Some(all) = self.as_mut_slice() {
            let len = all.len().min(from.len());
            if let (Some(all), Some(from)) = (all.get_mut(..len), from.get(..len)) {
                all.copy_from_slice(from);
            }
            return len;
        }
        let mut left = from.iter();
        let mut copied = 0;
        self.0.for_each(|element| match left.next() {
            Some(value) => {
                // SAFETY: as in `get_mut`.
                unsafe { element.write(*value) };
                copied += 1;
                true
            }
            None => false,
        });
        copied
    }

    /// Writes to every element what `each` gives for its coordinates.
    ///
    /// Returns how many it wrote: all, or none where `N` is not the view's rank.
    pub fn fill_with<const N: usize>(&mut self, mut each: impl FnMut([i32; N]) -> T) -> u64 {
        if N != self.0.map.rank() {
            return 0;
        }
        let map = self.0.map;
        let mut at = [0i32; N];
        for (axis, c) in at.iter_mut().enumerate() {
            *c = map.min(axis);
        }
        self.0.for_each(|element| {
            // SAFETY: as in `get_mut`.
            unsafe { element.write(each(at)) };
            for (axis, c) in at.iter_mut().enumerate() {
                *c = c.wrapping_add(1);
                if *c != map.min(axis).wrapping_add_unsigned(map.extent(axis)) {
                    break;
                }
                *c = map.min(axis);
            }
            true
        });
        map.volume()
    }
}

impl<T: Element, const N: usize> IndexMut<[i32; N]> for WriteGuard<'_, T> {
    /// The element at `at`.
    ///
    /// # Panics
    /// When `at` is outside the view. [`get_mut`](WriteGuard::get_mut) does not panic.
    #[allow(clippy::panic)] // as for `Index`
    fn index_mut(&mut self, at: [i32; N]) -> &mut T {
        let region = self.region();
        match self.get_mut(at) {
            Some(element) => element,
            None => panic!("{at:?} is outside the view {region}"),
        }
    }
}

/// A view's elements on the host, to read, some of which nobody has ever written (or went with a device).
/// See [`View::read_written`](crate::View::read_written).
#[must_use = "the elements are held only while the guard lives"]
pub struct WrittenGuard<'t, T: Element, D: DeviceDriver> {
    guard: ReadGuard<'t, T>,
    tree: &'t dyn Erased<D>,
}

impl<'t, T: Element, D: DeviceDriver> WrittenGuard<'t, T, D> {
    pub(crate) fn new(tree: &'t dyn Erased<D>, slot: Option<usize>, map: ViewMap) -> Self {
        Self { guard: ReadGuard::new(tree, slot, map, tree.host().base), tree }
    }

    /// Whether somebody holds a value for the element at `at`; `false` outside the view.
    pub fn is_written<const N: usize>(&self, at: [i32; N]) -> bool {
        self.guard
            .0
            .map
            .to_root(&at)
            .is_some_and(|root| locked_surely(self.tree, |inner| inner.state.is_defined(&root)))
    }

    /// The element at `at`, in the view's coordinates; `None` when it is outside, or nobody holds a value
    /// for it.
    pub fn get<const N: usize>(&self, at: [i32; N]) -> Option<&T> {
        if self.is_written(at) { self.guard.get(at) } else { None }
    }
}

impl<T: Element, D: DeviceDriver> fmt::Debug for WrittenGuard<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WrittenGuard {}", self.guard.region())
    }
}

/// Rows of a guard, to read.
pub struct Rows<'a, T> {
    elements: &'a Elements<'a, T>,
    cursor: RowCursor,
}

impl<'a, T: Element> Iterator for Rows<'a, T> {
    type Item = &'a [T];

    fn next(&mut self) -> Option<&'a [T]> {
        let (first, len) = self.cursor.next(self.elements)?;
        // SAFETY: as in `row`; the guard is borrowed for as long as the rows live.
        Some(unsafe { core::slice::from_raw_parts(first, len) })
    }
}

/// Rows of a guard, to write.
pub struct RowsMut<'a, T> {
    /// From an exclusive borrow of the guard, which lasts as long.
    elements: &'a Elements<'a, T>,
    cursor: RowCursor,
}

impl<'a, T: Element> Iterator for RowsMut<'a, T> {
    type Item = &'a mut [T];

    fn next(&mut self) -> Option<&'a mut [T]> {
        let (first, len) = self.cursor.next(self.elements)?;
        // SAFETY: as in `row_mut`; the guard is borrowed exclusively, and each row is given out once.
        Some(unsafe { core::slice::from_raw_parts_mut(first, len) })
    }
}
