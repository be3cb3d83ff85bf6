//! A tree that was closed is gone.
use hedgerow::{Shape, Tree};
use hedgerow_host::Host;

fn main() {
    let gpu = Host::new();
    let mut pixels = [0u8; 16];
    let tree = Tree::over(&mut pixels, Shape::packed([4, 4]), &gpu).unwrap();
    tree.close().unwrap();
    tree.sync().unwrap();
}
