//! Views and guards borrow the tree: a guard outlives the view that it came from, and an argument of a launch too.
use hedgerow::{Shape, Tree};
use hedgerow_host::Host;

fn main() {
    let gpu = Host::new();
    let mut pixels = [0u8; 16];
    let tree = Tree::over(&mut pixels, Shape::packed([4, 4]), &gpu).unwrap();
    let mut guard = tree.root().crop([0..2, 0..2]).unwrap().update().unwrap();
    let argument = tree.root().crop([2..4, 0..4]).unwrap().as_overwrite();
    guard[[1, 1]] = 7;
    drop((guard, argument));
    tree.close().unwrap();
    assert_eq!(pixels[5], 7);
}
