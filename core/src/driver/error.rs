//! What a driver's errors tell the core to do.

use core::fmt;

use crate::region::Region;

/// What an error means to the caller, whatever the driver calls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No room now: retry after memory was given back.
    OutOfMemory,
    /// Never fits: a limit of the device.
    TooLarge,
    /// Over a limit that was set on purpose.
    Budget,
    /// The device is gone for good, with what only it held.
    DeviceLost,
    /// Not done in time. Nothing changed; retry.
    Timeout,
    /// The driver cannot do this at all.
    Unsupported,
    /// An address or size that the device cannot use.
    Misaligned,
    /// Anything else.
    Other,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfMemory => "out of memory",
            Self::TooLarge => "too large",
            Self::Budget => "over budget",
            Self::DeviceLost => "device lost",
            Self::Timeout => "timed out",
            Self::Unsupported => "unsupported",
            Self::Misaligned => "misaligned",
            Self::Other => "failed",
        })
    }
}

defmt_as_display! { impl ErrorKind; }

/// A driver's error.
pub trait DriverError: core::error::Error + Send + Sync + 'static {
    /// What it means to the caller.
    fn kind(&self) -> ErrorKind;
}

/// What went wrong in a tree's `Drop`, where nobody could be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DropError {
    /// What the driver answered.
    pub kind: ErrorKind,
    /// The smallest box of the root that holds everything not written back.
    pub region: Region,
    /// Bytes of it.
    pub bytes: u64,
}

impl DropError {
    /// Writes it to the log.
    pub fn log(&self) {
        warn!(
            "a dropped tree could not write back {} bytes of {}: {}",
            self.bytes, self.region, self.kind
        );
    }
}

impl fmt::Display for DropError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, region, bytes } = self;
        write!(f, "a dropped tree could not write back {bytes} bytes of {region}: {kind}")
    }
}

defmt_as_display! { impl DropError; }

/// How many drop errors a [`DropLog`] keeps.
const KEPT: usize = 4;

/// A driver's ring of the last errors that trees met in `Drop`; the oldest make way for new ones.
#[derive(Debug, Default)]
pub struct DropLog {
    ring: spin::Mutex<heapless::Deque<DropError, KEPT>>,
}

impl DropLog {
    /// An empty log.
    pub const fn new() -> Self {
        Self { ring: spin::Mutex::new(heapless::Deque::new()) }
    }

    /// Adds an error and logs it.
    pub fn push(&self, error: DropError) {
        error.log();
        let mut ring = self.ring.lock();
        if ring.is_full() {
            ring.pop_front();
        }
        // There is room now.
        let _ = ring.push_back(error);
    }

    /// Takes the oldest error out.
    pub fn take(&self) -> Option<DropError> {
        self.ring.lock().pop_front()
    }
}
