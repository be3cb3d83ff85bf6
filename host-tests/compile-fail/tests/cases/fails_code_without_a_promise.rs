//! Code for a device is trusted to write only what it was given: whoever hands it over promises that.
use hedgerow::driver::DeviceCode;

fn main() {
    let _ = DeviceCode::new("@compute fn main() {}", "main");
}
