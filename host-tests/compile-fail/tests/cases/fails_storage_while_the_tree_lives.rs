//! While a tree lives, its storage is the tree's.
use hedgerow::{Shape, Tree};
use hedgerow_host::Host;

fn main() {
    let gpu = Host::new();
    let mut pixels = [0u8; 16];
    let tree = Tree::over(&mut pixels, Shape::packed([4, 4]), &gpu).unwrap();
    pixels[0] = 1;
    tree.close().unwrap();
    assert_eq!(pixels[0], 1);
}
