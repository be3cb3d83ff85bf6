//! A launch is told what the kernel does with each view, and how.
use hedgerow::driver::Kernel;
use hedgerow::View;
use hedgerow_host::Host;

fn launch(kernel: &Kernel<Host<'static>>, view: View<'_, u8, Host<'static>>) {
    let _ = kernel.launch(view, ());
}

fn main() {
    let _ = launch;
}
