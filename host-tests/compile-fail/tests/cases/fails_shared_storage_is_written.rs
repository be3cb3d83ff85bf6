//! A tree over a shared slice only borrows it shared, but for as long as the tree lives.
use hedgerow::{Builder, Shape};
use hedgerow_host::Host;

fn main() {
    let gpu = Host::new();
    let mut pixels = [0u8; 16];
    let tree = Builder::new(&gpu).over_ref(&pixels, Shape::packed([4, 4])).unwrap();
    assert_eq!(pixels[0], 0);
    pixels[0] = 1;
    tree.close().unwrap();
    assert_eq!(pixels[0], 1);
}
