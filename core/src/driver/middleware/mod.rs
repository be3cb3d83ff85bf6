//! Middlewares: drivers that wrap any driver, to count, to break or to log what passes through.
//!
//! Each takes a [`Device`](super::Device), so it owns its driver or borrows it, and is a driver itself:
//! they nest, and a tree takes `&middleware` or the middleware by value.
//!
//! | middleware | what it is for |
//! |---|---|
//! | [`Counting`] | asserting what was called and how many bytes moved |
//! | [`Fault`] | failing the n-th call, to see that state and retries are right |
//! | [`Trace`] | a line in the log for each call: what, boxes, bytes, tickets, answer |

mod counting;
mod fault;
mod trace;

pub use counting::{Counting, Counts, Moved, Reserved};
pub use fault::{Fault, FaultError};
pub use trace::Trace;
