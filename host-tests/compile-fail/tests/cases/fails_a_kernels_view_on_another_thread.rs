//! What a kernel on the host is given stays on its thread: its elements are cells.
use hedgerow::driver::HostView;

fn for_threads<T: Send>() {}

fn main() {
    for_threads::<HostView<'_, u8>>();
}
