//! A guard does not outlive its tree: nothing would hold the elements.
use hedgerow::{Shape, Tree};
use hedgerow_host::Host;

fn main() {
    let gpu = Host::new();
    let mut pixels = [0u8; 16];
    let tree = Tree::over(&mut pixels, Shape::packed([4, 4]), &gpu).unwrap();
    let guard = tree.root().read().unwrap();
    drop(tree);
    drop(guard);
}
