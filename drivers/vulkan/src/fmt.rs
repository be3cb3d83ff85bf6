//! Logging that is there only with the `log` feature.

#[allow(unused_macros, reason = "which levels are used depends on the features")]
macro_rules! warning {
    ($text:literal $(, $arg:expr)* $(,)?) => {{
        #[cfg(feature = "log")]
        ::log::warn!($text $(, $arg)*);
        #[cfg(not(feature = "log"))]
        let _ = ($(&$arg,)*);
    }};
}
