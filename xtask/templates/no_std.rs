//! A program's worth of code where there is no `std` and no allocator: it builds only if no crate
//! it links needs one.

#![no_std]

pub use hedgerow;

/// With `std` anywhere among the dependencies there would be two of these, which is an error.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
