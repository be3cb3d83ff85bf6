//! Trees that own their host storage, to live in a struct beside it.

use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;

use super::Element;
use super::lock::{Locking, Spin};
use super::tree::{Builder, CloseError, Tree};
use crate::capacity::{Capacity, Standard};
use crate::driver::{Device, DeviceDriver};
use crate::error::Error;
use crate::region::Shape;

/// Storage taken apart: its first element, how many there are, and how many there is room for.
#[derive(Debug)]
pub struct RawStorage<T> {
    /// The first element.
    pub first: *mut T,
    /// Elements.
    pub len: usize,
    /// Elements that there is room for.
    pub capacity: usize,
}

/// Storage that can be given to a tree by value.
///
/// `Vec` and boxed slices are with the feature `alloc`.
///
/// # Safety
/// `into_raw` gives exclusive use of `len` initialised elements at `first`, valid until `from_raw` gets
/// the same parts back.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not storage that a tree can own",
    note = "`Vec` and boxed slices are with hedgerow's feature `alloc`"
)]
pub unsafe trait OwnedStorage: Sized {
    /// Its elements.
    type Element: Element;

    /// Takes it apart.
    fn into_raw(self) -> RawStorage<Self::Element>;

    /// Puts it together again.
    ///
    /// # Safety
    /// `raw` came from `into_raw`, and nothing uses its elements any more.
    unsafe fn from_raw(raw: RawStorage<Self::Element>) -> Self;
}

// SAFETY: a static slice is its elements, for ever.
unsafe impl<T: Element> OwnedStorage for &'static mut [T] {
    type Element = T;

    fn into_raw(self) -> RawStorage<T> {
        RawStorage { first: self.as_mut_ptr(), len: self.len(), capacity: self.len() }
    }

    unsafe fn from_raw(raw: RawStorage<T>) -> Self {
        // SAFETY: the parts of a static slice, whose use was given back.
        unsafe { core::slice::from_raw_parts_mut(raw.first, raw.len) }
    }
}

#[cfg(feature = "alloc")]
mod heap {
    extern crate alloc;
    use alloc::boxed::Box;
    use alloc::vec::Vec;
    use core::mem::ManuallyDrop;

    use super::{Element, OwnedStorage, RawStorage};

    // SAFETY: a vector's elements stay where they are until it is put together again.
    unsafe impl<T: Element> OwnedStorage for Vec<T> {
        type Element = T;

        fn into_raw(self) -> RawStorage<T> {
            let mut parts = ManuallyDrop::new(self);
            let (len, capacity) = (parts.len(), parts.capacity());
            RawStorage { first: parts.as_mut_ptr(), len, capacity }
        }

        unsafe fn from_raw(raw: RawStorage<T>) -> Self {
            // SAFETY: the parts of a vector of the same allocator.
            unsafe { Self::from_raw_parts(raw.first, raw.len, raw.capacity) }
        }
    }

    // SAFETY: a box's elements stay where they are until it is put together again.
    unsafe impl<T: Element> OwnedStorage for Box<[T]> {
        type Element = T;

        fn into_raw(self) -> RawStorage<T> {
            let len = self.len();
            RawStorage { first: Self::into_raw(self).cast(), len, capacity: len }
        }

        unsafe fn from_raw(raw: RawStorage<T>) -> Self {
            let all = core::ptr::slice_from_raw_parts_mut(raw.first, raw.len);
            // SAFETY: the parts of a box of the same allocator.
            unsafe { Self::from_raw(all) }
        }
    }
}

/// A tree together with the host storage it is over. It is used as the [`Tree`] that it derefs to.
///
/// Dropping it writes back and then drops the storage; [`into_storage`](Self::into_storage) returns it.
pub struct OwnedTree<S: OwnedStorage, H: Device, C: Capacity = Standard, L: Locking = Spin> {
    tree: ManuallyDrop<Tree<'static, S::Element, H, C, L>>,
    raw: RawStorage<S::Element>,
    storage: PhantomData<S>,
}

// SAFETY: the raw parts are only the address of what the tree borrows; the storage goes where the tree goes.
unsafe impl<S: OwnedStorage + Send, H: Device, C: Capacity, L: Locking> Send
    for OwnedTree<S, H, C, L>
where
    Tree<'static, S::Element, H, C, L>: Send,
{
}
// SAFETY: as above; a shared `OwnedTree` only gives out a shared tree.
unsafe impl<S: OwnedStorage + Sync, H: Device, C: Capacity, L: Locking> Sync
    for OwnedTree<S, H, C, L>
where
    Tree<'static, S::Element, H, C, L>: Sync,
{
}

impl<H: Device, C: Capacity, L: Locking> Builder<H, C, L> {
    /// A tree over storage that it owns: a static slice, or with the feature `alloc` a `Vec` or a boxed
    /// slice. It is fresh.
    ///
    /// # Errors
    /// As [`over`](Self::over). The storage is dropped then.
    #[allow(clippy::type_complexity)] // the driver's error, by way of the handle
    pub fn over_owned<S: OwnedStorage>(
        self,
        storage: S,
        shape: Shape,
    ) -> Result<OwnedTree<S, H, C, L>, Error<<H::Driver as DeviceDriver>::Error>> {
        let raw = storage.into_raw();
        // SAFETY: exclusive use of initialised elements, valid until the parts are put together again,
        // which happens after the tree is gone.
        let elements: &'static mut [S::Element] =
            unsafe { core::slice::from_raw_parts_mut(raw.first, raw.len) };
        match self.over(elements, shape) {
            Ok(tree) => Ok(OwnedTree { tree: ManuallyDrop::new(tree), raw, storage: PhantomData }),
            Err(error) => {
                // SAFETY: no tree was made of the elements.
                drop(unsafe { S::from_raw(raw) });
                Err(error)
            }
        }
    }
}

impl<S: OwnedStorage, H: Device, C: Capacity, L: Locking> OwnedTree<S, H, C, L> {
    /// Closes the tree and returns its storage, with everything in it.
    ///
    /// # Errors
    /// As [`Tree::close`]: the tree comes back with the error.
    #[allow(clippy::type_complexity, clippy::result_large_err)] // it carries the tree
    pub fn into_storage(
        mut self,
    ) -> Result<S, CloseError<Self, <H::Driver as DeviceDriver>::Error>> {
        if let Err(error) = self.tree.settle() {
            return Err(CloseError { tree: self, error });
        }
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, so the tree is dropped once, here.
        unsafe { ManuallyDrop::drop(&mut this.tree) };
        let RawStorage { first, len, capacity } = this.raw;
        // SAFETY: the tree is gone, and with it every use of the elements.
        Ok(unsafe { S::from_raw(RawStorage { first, len, capacity }) })
    }
}

impl<S: OwnedStorage, H: Device, C: Capacity, L: Locking> Deref for OwnedTree<S, H, C, L> {
    type Target = Tree<'static, S::Element, H, C, L>;

    fn deref(&self) -> &Self::Target {
        &self.tree
    }
}

impl<S: OwnedStorage, H: Device, C: Capacity, L: Locking> Drop for OwnedTree<S, H, C, L> {
    fn drop(&mut self) {
        // SAFETY: dropped once, here, before the storage that it is over.
        unsafe { ManuallyDrop::drop(&mut self.tree) };
        let RawStorage { first, len, capacity } = self.raw;
        // SAFETY: the tree is gone, and with it every use of the elements.
        drop(unsafe { S::from_raw(RawStorage { first, len, capacity }) });
    }
}

impl<S: OwnedStorage, H: Device, C: Capacity, L: Locking> fmt::Debug for OwnedTree<S, H, C, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedTree").field(&*self.tree).finish()
    }
}
