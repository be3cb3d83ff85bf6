//! Making room: evicting trees when a device has none left.

use super::Element;
use super::lock::Locking;
use super::tree::Tree;
use crate::capacity::Capacity;
use crate::driver::{Device, DriverError, ErrorKind};
use crate::error::Error;
use crate::tree::MAX_DEVICES;

/// Something that can give device memory back.
pub trait Evict {
    /// Gives back the memory of one device that is not in use, after bringing home what only that device
    /// holds; returns whether any memory came free.
    fn evict_one(&self) -> bool;
}

impl<T: Element, H: Device, C: Capacity, L: Locking> Evict for Tree<'_, T, H, C, L> {
    fn evict_one(&self) -> bool {
        (0..self.devices()).any(|device| matches!(self.evict(device), Ok(bytes) if bytes > 0))
    }
}

/// Runs `call`; when it fails for want of device memory ([`ErrorKind::OutOfMemory`] or
/// [`ErrorKind::Budget`]), evicts the next of `trees`, in order, and runs it again, until it works or all are
/// evicted.
///
/// ```
/// # use hedgerow::{Error, Shape, Tree, driver::null::Null, with_room};
/// # fn launch() -> Result<(), Error<hedgerow::driver::null::NullError>> { Ok(()) }
/// # let gpu = Null::new();
/// # let (mut a, mut b) = ([0u8; 4], [0u8; 4]);
/// # let old = Tree::over(&mut a, Shape::packed([4]), &gpu)?;
/// # let older = Tree::over(&mut b, Shape::packed([4]), &gpu)?;
/// with_room(&[&older, &old], || launch())?;
/// # Ok::<(), Error<hedgerow::driver::null::NullError>>(())
/// ```
///
/// # Errors
/// What the last call answered.
pub fn with_room<R, E: DriverError>(
    trees: &[&dyn Evict],
    mut call: impl FnMut() -> Result<R, Error<E>>,
) -> Result<R, Error<E>> {
    let (mut left, mut given) = (trees, 0);
    loop {
        let result = call();
        let wants_room = matches!(&result, Err(error) if matches!(
            error.kind(),
            Some(ErrorKind::OutOfMemory | ErrorKind::Budget)
        ));
        if !wants_room {
            return result;
        }
        // A tree on several devices has several memories to give, one at a time; but one that `call` itself
        // allocates again has some for ever.
        loop {
            let Some((tree, rest)) = left.split_first() else { return result };
            if given < MAX_DEVICES && tree.evict_one() {
                given += 1;
                break;
            }
            (left, given) = (rest, 0);
        }
    }
}
