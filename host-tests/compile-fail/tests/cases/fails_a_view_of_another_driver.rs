//! A kernel takes views of trees on its own kind of driver.
use hedgerow::Arg;
use hedgerow::driver::Kernel;
use hedgerow::driver::null::Null;
use hedgerow_host::Host;

fn launch(kernel: &Kernel<Host<'static>>, arg: Arg<'_, Null>) {
    let _ = kernel.launch(arg, ());
}

fn main() {
    let _ = launch;
}
