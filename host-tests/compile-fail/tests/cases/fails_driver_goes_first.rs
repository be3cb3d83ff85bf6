//! A tree that borrows its driver goes before it.
use hedgerow::{Shape, Tree};
use hedgerow_host::Host;

fn main() {
    let gpu = Host::new();
    let mut pixels = [0u8; 16];
    let tree = Tree::over(&mut pixels, Shape::packed([4, 4]), &gpu).unwrap();
    drop(gpu);
    tree.close().unwrap();
}
