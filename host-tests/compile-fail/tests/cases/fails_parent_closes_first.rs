//! A detached tree holds its parent.
use hedgerow::{Builder, Mode, Shape, Tree};
use hedgerow_host::Host;

fn main() {
    let gpu = Host::new();
    let mut pixels = [0u8; 16];
    let tree = Tree::over(&mut pixels, Shape::packed([4, 4]), &gpu).unwrap();
    let own = Builder::new(&gpu).detach(&tree.root(), Mode::Update).unwrap();
    tree.close().unwrap();
    own.close().unwrap();
}
