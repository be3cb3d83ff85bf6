//! Random programs against the model, on the host driver.

use hedgerow::capacity::Standard;
use hedgerow_host::Host;
use hedgerow_tests::oracle::{Setup, run};

hedgerow::capacity! {
    /// Next to nothing: nearly every write widens.
    struct Tiny { words: 1, cuts: 2, nodes: 9, guards: 4, devices: 1, list: 1 }
}

hedgerow::capacity! {
    /// Cuts for every coordinate of the programs' roots.
    struct Ample { words: 4096, cuts: 64, nodes: 32, guards: 16, devices: 1, list: 3 }
}

fn setup(seed: u64) -> Setup {
    Setup { seed, steps: 60, ample: true, owned: seed % 3 == 0, granule: 1 }
}

fn seeds() -> std::ops::Range<u64> {
    let from = std::env::var("HEDGEROW_SEED").ok().and_then(|s| s.parse().ok());
    from.map_or(0..400, |seed| seed..seed + 1)
}

macro_rules! each_element {
    ($seed:expr, $capacity:ty, $setup:expr, $gpu:expr) => {
        match $seed % 7 {
            0 => run::<u8, _, $capacity>($setup, $gpu),
            1 => run::<u16, _, $capacity>($setup, $gpu),
            2 => run::<u32, _, $capacity>($setup, $gpu),
            3 => run::<u64, _, $capacity>($setup, $gpu),
            4 => run::<u128, _, $capacity>($setup, $gpu),
            5 => run::<[u8; 3], _, $capacity>($setup, $gpu),
            _ => run::<[u16; 5], _, $capacity>($setup, $gpu),
        }
    };
}

#[test]
fn ample_capacity() {
    for seed in seeds() {
        let gpu = Host::new();
        each_element!(seed, Ample, setup(seed), &[&gpu]);
        assert_eq!(gpu.live_allocations(), 0);
    }
}

#[test]
fn scarce_capacity() {
    for seed in seeds() {
        let gpu = Host::new().unified(seed % 5 == 0);
        let setup = Setup { ample: false, ..setup(seed) };
        each_element!(seed, Tiny, setup, &[&gpu]);
        assert_eq!(gpu.live_allocations(), 0);
    }
}

#[test]
fn granules() {
    for seed in seeds() {
        let gpu = Host::new();
        let setup = Setup { granule: 4, ..setup(seed) };
        match seed % 3 {
            0 => run::<u8, _, Standard>(setup, &[&gpu]),
            1 => run::<u16, _, Standard>(setup, &[&gpu]),
            _ => run::<[u8; 3], _, Standard>(setup, &[&gpu]),
        };
    }
}
