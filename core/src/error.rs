//! What a call on a tree can answer instead of doing its work.

use core::convert::Infallible;
use core::fmt;

use crate::driver::ErrorKind;
use crate::region::{GeometryError, Region};

/// Why a call was refused or failed. `E` is the driver's own error.
///
/// Bad input is refused before anything changes. A failed call leaves the coherence map as it was, so a
/// retry is always right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error<E = Infallible> {
    /// A shape, crop or map that makes no sense.
    Geometry(GeometryError),
    /// Somebody holds bytes of the region in a way that conflicts, or (for `try_` calls) waiting would
    /// be needed.
    Busy(Busy),
    /// A fixed-capacity table is full of what the caller holds.
    Full {
        /// Which table.
        table: Table,
        /// How many entries it has.
        capacity: usize,
    },
    /// Nobody holds a value for a part of the region: it was never written, or lost with its device.
    Undefined {
        /// One box of such bytes.
        region: Region,
        /// Whether a device took it along (else it was never written).
        lost: bool,
    },
    /// A handle whose node or access is gone.
    StaleHandle,
    /// The memory handed in is not aligned for its elements.
    Misaligned {
        /// Bytes that the address must be a multiple of.
        align: usize,
    },
    /// Views of trees on different drivers in one launch, or a kernel of another driver.
    WrongDriver,
    /// A device that the tree does not have.
    NoDevice {
        /// Its index.
        device: usize,
        /// How many the tree has.
        devices: usize,
    },
    /// A device that the tree already has.
    SameDevice {
        /// The index of the second.
        device: usize,
    },
    /// The tree has no host storage.
    NoHostStorage,
    /// The host storage is read-only, and this would write to it.
    ReadOnly {
        /// The bytes.
        region: Region,
    },
    /// The device's memory is the caller's: unwrap it first.
    Wrapped,
    /// The device's memory is not the caller's.
    NotWrapped,
    /// The device already has memory for this tree.
    Resident,
    /// Views are alive that would lose the memory below them.
    LiveViews {
        /// How many.
        views: usize,
        /// The smallest box of the root that holds them.
        region: Region,
    },
    /// Memory to wrap that does not hold the root.
    TooSmall {
        /// Bytes that the root takes.
        needed: u64,
        /// Bytes given.
        given: u64,
    },
    /// A view's window is larger than the device can bind.
    TooLarge {
        /// Bytes from the window's aligned start to its end.
        span: u64,
        /// The device's limit.
        limit: u64,
    },
    /// A kernel source that states a workgroup with a zero, or a granule that is not 1, 2 or 4.
    BadKernel,
    /// A launch with another number of views than the kernel takes, or more than one launch can carry.
    Views {
        /// Views given.
        given: usize,
        /// Views taken.
        expected: usize,
    },
    /// More parameters than the device can take.
    Params {
        /// Bytes given.
        given: usize,
        /// The limit.
        limit: usize,
    },
    /// An explicit dispatch of no workgroups.
    ZeroGroups,
    /// More workgroups than the device can run.
    Groups {
        /// The axis.
        axis: usize,
        /// Workgroups asked for.
        given: u64,
        /// The limit.
        limit: u32,
    },
    /// Two views of one launch share elements, and one of them is written.
    Overlap {
        /// The elements shared.
        region: Region,
    },
    /// The source and destination of a copy have different extents.
    Mismatch,
    /// The driver failed. The map is as it was.
    Driver(E),
    /// The device is lost. What only it held is nobody's now.
    Lost {
        /// The first box that was lost with it, if this call met the loss first and there was any.
        region: Option<Region>,
        /// How many such boxes; `take_lost` lists them all.
        boxes: u32,
        /// What the driver said, where it said something.
        cause: Option<E>,
    },
}

/// Who is in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Busy {
    /// The bytes that conflict.
    pub region: Region,
    /// What holds them.
    pub holder: Holder,
}

/// What holds bytes that a call wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Holder {
    /// A guard or a device access that is alive, or a pending one.
    Access,
    /// A call on another thread that has not finished.
    Call,
    /// Device work that is not done, met by a call that must not wait.
    Work,
    /// The tree's lock, met by a call that must not wait.
    Lock,
}

/// A fixed-capacity table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Table {
    /// Nodes: one for each view alive.
    Nodes,
    /// Accesses: one for each guard alive.
    Guards,
}

impl<E> Error<E> {
    /// What a driver's error means, where this is one.
    pub fn kind(&self) -> Option<ErrorKind>
    where
        E: crate::driver::DriverError,
    {
        match self {
            Self::Driver(error) => Some(error.kind()),
            Self::Lost { .. } => Some(ErrorKind::DeviceLost),
            Self::ReadOnly { .. } => Some(ErrorKind::Unsupported),
            _ => None,
        }
    }
}

impl Error<Infallible> {
    /// The same error where a driver could have failed too.
    pub fn lift<E>(self) -> Error<E> {
        match self {
            Self::Geometry(error) => Error::Geometry(error),
            Self::Busy(busy) => Error::Busy(busy),
            Self::Full { table, capacity } => Error::Full { table, capacity },
            Self::Undefined { region, lost } => Error::Undefined { region, lost },
            Self::StaleHandle => Error::StaleHandle,
            Self::Misaligned { align } => Error::Misaligned { align },
            Self::WrongDriver => Error::WrongDriver,
            Self::NoDevice { device, devices } => Error::NoDevice { device, devices },
            Self::SameDevice { device } => Error::SameDevice { device },
            Self::NoHostStorage => Error::NoHostStorage,
            Self::ReadOnly { region } => Error::ReadOnly { region },
            Self::Wrapped => Error::Wrapped,
            Self::NotWrapped => Error::NotWrapped,
            Self::Resident => Error::Resident,
            Self::LiveViews { views, region } => Error::LiveViews { views, region },
            Self::TooSmall { needed, given } => Error::TooSmall { needed, given },
            Self::TooLarge { span, limit } => Error::TooLarge { span, limit },
            Self::BadKernel => Error::BadKernel,
            Self::Views { given, expected } => Error::Views { given, expected },
            Self::Params { given, limit } => Error::Params { given, limit },
            Self::ZeroGroups => Error::ZeroGroups,
            Self::Groups { axis, given, limit } => Error::Groups { axis, given, limit },
            Self::Overlap { region } => Error::Overlap { region },
            Self::Mismatch => Error::Mismatch,
            Self::Lost { region, boxes, cause: _ } => Error::Lost { region, boxes, cause: None },
            Self::Driver(never) => match never {},
        }
    }
}

impl<E> From<GeometryError> for Error<E> {
    fn from(error: GeometryError) -> Self {
        Self::Geometry(error)
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match self.holder {
            Holder::Access => "a live guard or device access",
            Holder::Call => "a call in progress",
            Holder::Work => "unfinished device work",
            Holder::Lock => "the tree's lock",
        };
        write!(f, "{} is held by {who}", self.region)
    }
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Geometry(error) => error.fmt(f),
            Self::Busy(busy) => busy.fmt(f),
            Self::Full { table: Table::Nodes, capacity } => {
                write!(f, "live views hold all {capacity} nodes of the tree's capacity (the root's is one)")
            }
            Self::Full { table: Table::Guards, capacity } => {
                write!(f, "live guards hold all {capacity} accesses of the tree's capacity")
            }
            Self::Undefined { region, lost: false } => write!(f, "{region} was never written"),
            Self::Undefined { region, lost: true } => {
                write!(f, "{region} was lost with its device")
            }
            Self::StaleHandle => f.write_str("the handle's node or access is gone"),
            Self::Misaligned { align } => write!(f, "the storage is not aligned to {align} bytes"),
            Self::WrongDriver => f.write_str(
                "views or kernel belong to different drivers (or to one device opened twice: clone its handle)",
            ),
            Self::NoDevice { device, devices } => {
                write!(f, "device {device} asked for, where there is room for or are {devices}")
            }
            Self::SameDevice { device } => {
                write!(f, "device {device} is one that the tree already has")
            }
            Self::NoHostStorage => f.write_str("the tree has no host storage"),
            Self::ReadOnly { region } => {
                write!(f, "{region} would be written to read-only host storage")
            }
            Self::Wrapped => f.write_str("the device's memory is the caller's"),
            Self::NotWrapped => f.write_str("the device's memory is not the caller's"),
            Self::Resident => f.write_str("the device already has memory for this tree"),
            Self::LiveViews { views, region } => write!(f, "{views} views are alive in {region}"),
            Self::TooSmall { needed, given } => {
                write!(f, "the root takes {needed} bytes, the memory has {given}")
            }
            Self::TooLarge { span, limit } => {
                write!(f, "a window of {span} bytes is over the device's limit of {limit}")
            }
            Self::BadKernel => {
                f.write_str("a kernel needs a workgroup without zeroes and a granule of 1, 2 or 4")
            }
            Self::Views { given, expected } => {
                write!(f, "{given} views given, {expected} expected")
            }
            Self::Params { given, limit } => {
                write!(f, "{given} bytes of parameters are over the limit of {limit}")
            }
            Self::ZeroGroups => f.write_str("a dispatch of no workgroups"),
            Self::Groups { axis, given, limit } => {
                write!(f, "{given} workgroups on axis {axis} are over the limit of {limit}")
            }
            Self::Overlap { region } => {
                write!(f, "two views of the launch share {region}, and one is written")
            }
            Self::Mismatch => f.write_str("source and destination have different extents"),
            Self::Driver(error) => error.fmt(f),
            Self::Lost { region, boxes, cause } => {
                match cause {
                    Some(cause) => cause.fmt(f)?,
                    None => f.write_str("the device is lost")?,
                }
                match region {
                    Some(first) => {
                        write!(f, "; {boxes} boxes only it held are lost, first {first}")
                    }
                    None => Ok(()),
                }
            }
        }
    }
}

impl<E: core::error::Error> core::error::Error for Error<E> {}

defmt_as_display! { impl Busy; }

#[cfg(feature = "defmt")]
impl<E: fmt::Display> defmt::Format for Error<E> {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "{}", defmt::Display2Format(self));
    }
}

#[cfg(test)]
mod tests;
