//! hedgerow
#![no_std]

#[macro_use]
mod fmt;

pub mod driver;
pub mod error;
pub mod region;
pub mod tree;
pub use region::Shape;
pub mod coherence;
