//! What can go wrong.

use core::fmt;

use hedgerow::driver::{DriverError, ErrorKind, KernelError};

/// Why the host driver refused or failed a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HostError {
    /// More bytes than all memory it may use.
    TooLarge {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes there are.
        limit: u64,
    },
    /// No hole is large enough now.
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes of the largest hole.
        largest: u64,
    },
    /// As many allocations as an arena keeps account of.
    TableFull {
        /// How many.
        blocks: usize,
    },
    /// The kernel has no [`Form::Host`](hedgerow::driver::Form::Host).
    NoForm,
    /// The kernel takes more views than a call can carry.
    Views {
        /// Views it takes.
        given: usize,
        /// The limit.
        limit: usize,
    },
    /// The kernel refused to run.
    Kernel(KernelError),
    /// [`Host::simulate_loss`](crate::Host::simulate_loss) was called.
    DeviceLost,
}

impl DriverError for HostError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::OutOfMemory { .. } | Self::TableFull { .. } => ErrorKind::OutOfMemory,
            Self::NoForm | Self::Views { .. } => ErrorKind::Unsupported,
            Self::Kernel(_) => ErrorKind::Other,
            Self::DeviceLost => ErrorKind::DeviceLost,
        }
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes, limit } => {
                write!(f, "{bytes} bytes never fit in the {limit} bytes there are")
            }
            Self::OutOfMemory { bytes, largest } => {
                write!(f, "no room for {bytes} bytes: the largest hole has {largest}")
            }
            Self::TableFull { blocks } => write!(f, "all {blocks} allocations are in use"),
            Self::NoForm => f.write_str("the kernel has no form that runs on the host"),
            Self::Views { given, limit } => {
                write!(f, "the kernel takes {given} views, the limit is {limit}")
            }
            Self::Kernel(error) => write!(f, "the kernel refused to run: {error}"),
            Self::DeviceLost => f.write_str("the device is lost"),
        }
    }
}

impl core::error::Error for HostError {}
