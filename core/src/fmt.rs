//! The logging shim: `defmt` where it is on, else `log` where that is on, else nothing.
//!
//! Each crate of the workspace has its own copy, because the choice is made by the features of the
//! crate that expands the macro.

#![allow(unused_macros)] // which levels are used depends on the features

macro_rules! trace {
    ($s:literal $(, $x:expr)* $(,)?) => {{
        #[cfg(feature = "defmt")]
        ::defmt::trace!($s $(, $x)*);
        #[cfg(all(feature = "log", not(feature = "defmt")))]
        ::log::trace!($s $(, $x)*);
        #[cfg(not(any(feature = "defmt", feature = "log")))]
        let _ = ($( & $x ),*);
    }};
}

macro_rules! warn {
    ($s:literal $(, $x:expr)* $(,)?) => {{
        #[cfg(feature = "defmt")]
        ::defmt::warn!($s $(, $x)*);
        #[cfg(all(feature = "log", not(feature = "defmt")))]
        ::log::warn!($s $(, $x)*);
        #[cfg(not(any(feature = "defmt", feature = "log")))]
        let _ = ($( & $x ),*);
    }};
}

/// Implements `defmt::Format` by printing what `Display` prints, so that the two never differ.
macro_rules! defmt_as_display {
    ($(impl $t:ty;)*) => {$(
        #[cfg(feature = "defmt")]
        impl ::defmt::Format for $t {
            fn format(&self, f: ::defmt::Formatter<'_>) {
                ::defmt::write!(f, "{}", ::defmt::Display2Format(self));
            }
        }
    )*};
}
