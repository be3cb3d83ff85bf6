//! Nor is anything read while rows are written.
use hedgerow::{Shape, Tree};
use hedgerow_host::Host;

fn main() {
    let gpu = Host::new();
    let mut pixels = [0u8; 16];
    let tree = Tree::over(&mut pixels, Shape::packed([4, 4]), &gpu).unwrap();
    let mut guard = tree.root().update().unwrap();
    let row = guard.row_mut([0, 0]).unwrap();
    let first = guard[[0, 0]];
    row[1] = first;
}
