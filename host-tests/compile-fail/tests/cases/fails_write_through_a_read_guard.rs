//! A read guard gives nothing to write to.
use hedgerow::{Shape, Tree};
use hedgerow_host::Host;

fn main() {
    let gpu = Host::new();
    let mut pixels = [0u8; 16];
    let tree = Tree::over(&mut pixels, Shape::packed([4, 4]), &gpu).unwrap();
    let guard = tree.root().read().unwrap();
    guard[[0, 0]] = 1;
}
