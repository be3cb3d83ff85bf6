//! Nor does a read under way.
use hedgerow::{Shape, Tree};
use hedgerow_host::Host;

fn main() {
    let gpu = Host::new();
    let mut pixels = [0u8; 16];
    let tree = Tree::over(&mut pixels, Shape::packed([4, 4]), &gpu).unwrap();
    let pending = tree.root().begin_read().unwrap();
    tree.discard();
    drop(pending);
}
