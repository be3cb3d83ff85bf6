//! A tree that is borrowed stays where it is.
use hedgerow::{Shape, Tree};
use hedgerow_host::Host;

fn main() {
    let gpu = Host::new();
    let mut pixels = [0u8; 16];
    let tree = Tree::over(&mut pixels, Shape::packed([4, 4]), &gpu).unwrap();
    let guard = tree.root().read().unwrap();
    let row = guard.row([0, 0]).unwrap();
    let moved = tree;
    assert_eq!(row, [0; 4]);
    drop(moved);
}
