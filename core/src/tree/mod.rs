//! tmp
/// What an access may do with the bytes of its region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Read them.
    #[default]
    Read,
    /// Write every one, without reading any: nothing is moved.
    Overwrite,
    /// Read and write them.
    Update,
}

impl Mode {
    /// Whether the bytes must be fresh before.
    pub fn reads(self) -> bool {
        !matches!(self, Self::Overwrite)
    }

    /// Whether the bytes are new after.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }
}
