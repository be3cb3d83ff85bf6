//! Random programs on the real thing and on a dense model of it: every readable byte, every answer, and
//! with ample capacity every byte moved, must be the same.

mod kernels;
mod model;
mod program;

pub use program::{Calm, Disturb, Report, Setup, run};
