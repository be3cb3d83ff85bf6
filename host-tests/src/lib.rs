//! hedgerow's conformance suite, for any driver, and the demo.

pub mod conformance;
pub mod demo;
pub mod oracle;

/// The README's examples, as doc tests.
#[doc = include_str!("../../README.md")]
#[cfg(doctest)]
pub struct Readme;
