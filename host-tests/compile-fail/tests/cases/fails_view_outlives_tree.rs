//! A view does not outlive its tree.
use hedgerow::{Shape, Tree};
use hedgerow_host::Host;

fn main() {
    let gpu = Host::new();
    let mut pixels = [0u8; 16];
    let tree = Tree::over(&mut pixels, Shape::packed([4, 4]), &gpu).unwrap();
    let view = tree.root();
    drop(tree);
    drop(view);
}
