//! Trees, views, guards, arguments and kernels can be used by other threads.
use hedgerow::driver::Kernel;
use hedgerow::{Arg, DeviceAccess, PendingRead, ReadGuard, Tree, View, WriteGuard};
use hedgerow_host::Host;

type Gpu = Host<'static>;

fn for_threads<T: Send + Sync>() {}

fn main() {
    for_threads::<Gpu>();
    for_threads::<Tree<'_, u8, &Gpu>>();
    for_threads::<View<'_, u8, Gpu>>();
    for_threads::<ReadGuard<'_, u8>>();
    for_threads::<WriteGuard<'_, u8>>();
    for_threads::<PendingRead<'_, u8, Gpu>>();
    for_threads::<DeviceAccess<'_, Gpu>>();
    for_threads::<Arg<'_, Gpu>>();
    for_threads::<Kernel<Gpu>>();
}
