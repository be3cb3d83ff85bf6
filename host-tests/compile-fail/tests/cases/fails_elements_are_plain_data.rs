//! Elements are plain data, of which any bytes are a value.

fn element<T: hedgerow::Element>() {}

fn main() {
    element::<bool>();
}
