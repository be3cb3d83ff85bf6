//! Middlewares: drivers that wrap any driver, to count or to break what passes through.
//!
//! Each takes a [`Device`](super::Device), so it owns its driver or borrows it, and is a driver itself:
//! they nest, and a tree takes `&middleware` or the middleware by value.
//!
//! | middleware | what it is for |
//! |---|---|
//! | [`Counting`] | asserting what was called and how many bytes moved |
//! | [`Fault`] | failing the n-th call, to see that state and retries are right |

mod counting;
mod fault;

pub use counting::{Counting, Counts, Moved, Reserved};
pub use fault::{Fault, FaultError};
