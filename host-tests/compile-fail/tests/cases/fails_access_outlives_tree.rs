//! Nor does an access on a device.
use hedgerow::{Shape, Tree};
use hedgerow_host::Host;

fn main() {
    let gpu = Host::new();
    let mut pixels = [0u8; 16];
    let tree = Tree::over(&mut pixels, Shape::packed([4, 4]), &gpu).unwrap();
    let access = tree.root().on_device(0, hedgerow::Mode::Read).unwrap();
    tree.close().unwrap();
    drop(access);
}
