//! What a kernel's WGSL text says of what it must be given. SPIR-V says too little: it demands nothing.

use hedgerow::driver::Dispatch;

use crate::error::{Result, VulkanError};

/// What to check before each dispatch.
#[derive(Debug, Default)]
pub(crate) struct Demands {
    pub(crate) params: Option<Params>,
    /// By view; may be shorter than there are views.
    pub(crate) views: Vec<Words>,
    /// What the source states.
    pub(crate) granule: u32,
}

/// The parameters in the struct at binding 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Params {
    /// Bytes up to the end of the last one, or to the start of an array without a length.
    pub(crate) end: usize,
    /// The same with the struct's padding.
    pub(crate) padded: usize,
    /// Whether the last one is an array without a length.
    pub(crate) open: bool,
}

/// What a binding consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Words {
    /// Bytes of its widest float; 0 without floats.
    pub(crate) float: u32,
    /// Bytes that one write touches at least, up to 4; 0 where it is only read.
    pub(crate) written: u32,
}

impl Demands {
    /// Refuses a dispatch that would read or write what it was not given.
    pub(crate) fn check<M>(&self, name: &str, dispatch: &Dispatch<'_, M>) -> Result<()> {
        let given = dispatch.params.len();
        if let Some(Params { end, padded, open }) = self.params {
            let right = if open { given >= end } else { given == end || given == padded };
            if !right {
                let (name, expected) = (name.to_owned(), end);
                return Err(VulkanError::Params { name, expected, at_least: open, given });
            }
        }
        for (view, (words, binding)) in self.views.iter().zip(dispatch.views).enumerate() {
            let (element, granule) = (binding.element, self.granule);
            if words.float != 0 && !element.is_multiple_of(words.float) {
                let (name, width) = (name.to_owned(), words.float);
                return Err(VulkanError::Element { name, view, element, width });
            }
            let width = if binding.mode.writes() { words.written } else { 0 };
            if granule < width && !element.is_multiple_of(width) {
                return Err(VulkanError::Granule {
                    name: name.to_owned(),
                    view,
                    element,
                    granule,
                    width,
                });
            }
        }
        Ok(())
    }
}
