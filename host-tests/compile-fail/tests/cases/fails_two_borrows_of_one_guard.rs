//! A guard hands out one exclusive borrow at a time: rows and elements overlap.
use hedgerow::{Shape, Tree};
use hedgerow_host::Host;

fn main() {
    let gpu = Host::new();
    let mut pixels = [0u8; 16];
    let tree = Tree::over(&mut pixels, Shape::packed([4, 4]), &gpu).unwrap();
    let mut guard = tree.root().update().unwrap();
    let mut rows = guard.rows_mut().unwrap();
    let element = guard.get_mut([0, 0]).unwrap();
    *element = 1;
    rows.next();
}
