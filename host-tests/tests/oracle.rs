//! Random programs against the model, on the host driver.

use hedgerow::capacity::Standard;
use hedgerow::driver::ErrorKind;
use hedgerow::driver::middleware::Fault;
use hedgerow_host::Host;
use hedgerow_tests::oracle::{Calm, Disturb, Setup, run};
use hedgerow_vulkan::{LimitsOverride, Vulkan};

hedgerow::capacity! {
    /// Next to nothing: nearly every write widens.
    struct Tiny { words: 1, cuts: 2, nodes: 9, guards: 4, devices: 1, list: 1 }
}

hedgerow::capacity! {
    /// Cuts for every coordinate of the programs' roots.
    struct Ample { words: 128, cuts: 40, nodes: 32, guards: 16, devices: 1, list: 3 }
}

hedgerow::capacity! {
    /// As `Ample`, for three devices.
    struct Ample3 { words: 128, cuts: 40, nodes: 32, guards: 16, devices: 3, list: 3 }
}

hedgerow::capacity! {
    /// As `Tiny`, for three devices.
    struct Tiny3 { words: 1, cuts: 3, nodes: 9, guards: 4, devices: 3, list: 1 }
}

fn setup(seed: u64) -> Setup {
    Setup {
        seed,
        steps: 60,
        ample: true,
        owned: seed.is_multiple_of(3),
        disturbed: false,
        poison: seed.is_multiple_of(2),
        granule: 1,
    }
}

/// All, one by its number, or fewer where each takes long.
fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|s| s.parse().ok());
    let count = number("HEDGEROW_SEEDS").unwrap_or(400);
    number("HEDGEROW_SEED").map_or(0..count, |seed| seed..seed + 1)
}

macro_rules! each_element {
    ($seed:expr, $capacity:ty, $setup:expr, $gpu:expr, $disturb:expr) => {
        match $seed % 7 {
            0 => run::<u8, _, $capacity>($setup, $gpu, $disturb),
            1 => run::<u16, _, $capacity>($setup, $gpu, $disturb),
            2 => run::<u32, _, $capacity>($setup, $gpu, $disturb),
            3 => run::<u64, _, $capacity>($setup, $gpu, $disturb),
            4 => run::<u128, _, $capacity>($setup, $gpu, $disturb),
            5 => run::<[u8; 3], _, $capacity>($setup, $gpu, $disturb),
            _ => run::<[u16; 5], _, $capacity>($setup, $gpu, $disturb),
        }
    };
}

#[test]
fn ample_capacity() {
    for seed in seeds() {
        let gpu = Host::new();
        each_element!(seed, Ample, setup(seed), &[&gpu], &Calm);
        assert_eq!(gpu.live_allocations(), 0);
    }
}

#[test]
fn scarce_capacity() {
    for seed in seeds() {
        let gpu = Host::new().unified(seed.is_multiple_of(5));
        let setup = Setup { ample: false, ..setup(seed) };
        each_element!(seed, Tiny, setup, &[&gpu], &Calm);
        assert_eq!(gpu.live_allocations(), 0);
    }
}

/// Several devices: every part comes from where it is fresh, and what only another device has goes home first.
#[test]
fn several_devices() {
    for seed in seeds() {
        let hosts = [Host::new(), Host::new(), Host::new()];
        let gpus: Vec<_> = hosts.iter().take(2 + (seed % 2) as usize).collect();
        each_element!(seed, Ample3, setup(seed), &gpus, &Calm);
        let setup = Setup { ample: false, ..setup(seed) };
        each_element!(seed, Tiny3, setup, &gpus, &Calm);
        assert!(hosts.iter().all(|host| host.live_allocations() == 0));
    }
}

#[test]
fn granules() {
    for seed in seeds() {
        let gpu = Host::new();
        let setup = Setup { granule: 4, ..setup(seed) };
        match seed % 3 {
            0 => run::<u8, _, Standard>(setup, &[&gpu], &Calm),
            1 => run::<u16, _, Standard>(setup, &[&gpu], &Calm),
            _ => run::<[u8; 3], _, Standard>(setup, &[&gpu], &Calm),
        };
    }
}

/// Makes calls of one device fail at random.
struct Faults<'a> {
    gpu: &'a Fault<&'a Host<'static>>,
    may_lose: bool,
}

impl Disturb for Faults<'_> {
    fn before(&self, random: u64) {
        let kinds = [ErrorKind::OutOfMemory, ErrorKind::Timeout, ErrorKind::Other];
        let call = (random >> 8) as u32 % 5;
        match random % 16 {
            0..4 => self.gpu.arm(call, kinds[(random >> 16) as usize % 3]),
            4..6 => self.gpu.arm_partial(call, kinds[(random >> 16) as usize % 3]),
            6 if self.may_lose && (random >> 24).is_multiple_of(4) => {
                self.gpu.arm(call, ErrorKind::DeviceLost);
            }
            _ => self.gpu.disarm(),
        }
    }

    fn calm(&self) {
        self.gpu.disarm();
    }

    fn is_lost(&self, _: usize) -> bool {
        self.gpu.lost()
    }
}

/// I6: a call that fails leaves the map as it was, and a device that goes takes along only what it alone held.
#[test]
fn failing_calls() {
    let mut failed = 0;
    for seed in seeds() {
        let host = Host::new().storage_survives_loss(true);
        let gpu = Fault::new(&host);
        // Losses and scarce capacity together would need the model to know what was not recorded.
        let may_lose = seed.is_multiple_of(2);
        let faults = Faults { gpu: &gpu, may_lose };
        let setup = Setup { disturbed: true, ..setup(seed) };
        let report = if may_lose || seed % 4 == 1 {
            each_element!(seed, Ample, setup, &[&gpu], &faults)
        } else {
            let setup = Setup { ample: false, ..setup };
            each_element!(seed, Tiny, setup, &[&gpu], &faults)
        };
        failed += report.failed;
        assert_eq!(host.live_allocations(), 0);
    }
    assert!(failed > 100 || seeds().count() < 400, "only {failed} calls failed");
}

/// The same programs on Vulkan, as it is and as a stricter device. Words only: what the kernels' WGSL knows.
#[test]
fn vulkan() {
    let wanted = std::env::var("HEDGEROW_REQUIRE").unwrap_or_default();
    let required = wanted.split([',', ' ']).any(|word| matches!(word, "vulkan" | "all"));
    let validate = std::env::var("HEDGEROW_VALIDATION").is_ok_and(|on| on == "1");
    for limits in [LimitsOverride::default(), LimitsOverride::strict()] {
        let open = Vulkan::builder().validation(validate).limits(limits).open();
        let gpu = match open {
            Ok(gpu) => gpu,
            Err(error) if !required => {
                println!("skipped: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        for seed in seeds().step_by(10) {
            run::<u32, _, Ample>(setup(seed), std::slice::from_ref(&gpu), &Calm);
            let scarce = Setup { ample: false, ..setup(seed + 1) };
            run::<u32, _, Tiny>(scarce, std::slice::from_ref(&gpu), &Calm);
        }
        assert_eq!(gpu.validation_messages(), Vec::<String>::new());
    }
}
