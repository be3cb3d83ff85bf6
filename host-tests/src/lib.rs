//! hedgerow's conformance suite, for any driver, and the demo.

pub mod conformance;
pub mod demo;
