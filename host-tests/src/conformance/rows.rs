//! The rows of the test matrix that are conformance: which driver, how it is made, with which capacities.

use std::sync::Mutex;

use hedgerow_host::Host;
use hedgerow_vulkan::{LimitsOverride, Vulkan};
use libtest_mimic::Trial;

use super::Suite;
use super::lab::{Double, Tight, lock};
use super::trouble::Mishap;

/// A row.
pub struct Row {
    pub name: &'static str,
    pub about: &'static str,
    /// Its trials, or why there are none here.
    pub trials: fn(name: &str) -> Result<Vec<Trial>, String>,
}

/// All rows.
pub static ROWS: &[Row] = &[
    Row { name: "host", about: "the host driver", trials: |name| Ok(host(name).trials()) },
    Row {
        name: "host-tiny",
        about: "the host driver with one word of cells and two cuts an axis, so that writes widen",
        trials: host_tiny,
    },
    Row {
        name: "host-poison",
        about: "the host driver, with every tree poisoned",
        trials: |name| Ok(host(name).poison().trials()),
    },
    Row {
        name: "host-two",
        about: "the host driver, with every tree on two devices that take turns",
        trials: |name| Ok(host(name).capacity::<Double>(true).two_devices().trials()),
    },
    Row {
        name: "host-faults",
        about: "the host driver, with every call of every case failing in turn, in every way",
        trials: |name| Ok(host(name).failing(Mishap::ERRORS).trials()),
    },
    Row {
        name: "host-two-faults",
        about: "the same on two devices that take turns",
        trials: |name| {
            let two = host(name).capacity::<Double>(true).two_devices();
            Ok(two.failing(Mishap::ERRORS).trials())
        },
    },
    Row {
        name: "host-losses",
        about: "the host driver, lost at every call of every case",
        trials: |name| Ok(host(name).failing(Mishap::LOSSES).trials()),
    },
    Row {
        name: "host-two-losses",
        about: "one of two devices lost at every call of every case, and the other goes on",
        trials: |name| {
            let two = host(name).capacity::<Double>(true).two_devices();
            Ok(two.failing(Mishap::LOSSES).trials())
        },
    },
    Row {
        name: "vulkan",
        about: "the Vulkan driver on the device that HEDGEROW_VULKAN_DEVICE says, or the best",
        trials: |name| Ok(vulkan(name, "", LimitsOverride::default())?.trials()),
    },
    Row {
        name: "vulkan-strict",
        about: "the Vulkan driver, pretending a discrete device with strict limits",
        trials: |name| Ok(vulkan(name, "", LimitsOverride::strict())?.trials()),
    },
    Row {
        name: "vulkan-poison",
        about: "the Vulkan driver, with every tree poisoned",
        trials: |name| Ok(vulkan(name, "", LimitsOverride::default())?.poison().trials()),
    },
    Row {
        name: "vulkan-two",
        about: "the Vulkan driver, with every tree on two devices (two handles) that take turns",
        trials: |name| {
            let suite = vulkan(name, "", LimitsOverride::default())?;
            Ok(suite.capacity::<Double>(true).two_devices().trials())
        },
    },
    Row {
        name: "vulkan-sync",
        about: "the Vulkan driver with strict limits, its barriers checked",
        trials: |name| Ok(vulkan_on(name, "", LimitsOverride::strict(), true)?.trials()),
    },
    Row {
        name: "nvidia",
        about: "the Vulkan driver on an NVIDIA GPU",
        trials: |name| Ok(vulkan(name, "NVIDIA", LimitsOverride::default())?.trials()),
    },
];

/// The host driver's own ends: nothing allocated, nothing left to report.
fn watched(suite: Suite<Host<'static>>) -> Suite<Host<'static>> {
    suite
        .finish(|host| match (host.live_allocations(), host.take_drop_error()) {
            (0, None) => Ok(()),
            (live, error) => Err(format!("{live} live allocations, drop error {error:?}")),
        })
        .drop_error(Host::take_drop_error)
}

/// A discrete device without alignment, and with limits that trials can reach.
fn host(name: &str) -> Suite<Host<'static>> {
    let open = |_| Ok(Host::new().max_binding(16 << 20).max_allocation(24 << 20));
    watched(Suite::new(name, open))
}

/// Unified, aligned, and in need of room at every turn.
fn host_tiny(name: &str) -> Result<Vec<Trial>, String> {
    let open = |_| {
        let host = Host::new().bind_align(64).max_binding(16 << 20).max_allocation(24 << 20);
        Ok(host)
    };
    Ok(watched(Suite::new(name, open)).capacity::<Tight>(false).trials())
}

/// Two devices for all trials, so that kernels are compiled once for each.
fn vulkan(name: &str, device: &str, limits: LimitsOverride) -> Result<Suite<Vulkan>, String> {
    vulkan_on(name, device, limits, false)
}

fn vulkan_on(
    name: &str,
    device: &str,
    limits: LimitsOverride,
    barriers: bool,
) -> Result<Suite<Vulkan>, String> {
    let validation = std::env::var_os("HEDGEROW_VALIDATION").is_some_and(|on| on == "1");
    let device = device.to_owned();
    let open = move || {
        let builder = Vulkan::builder().device(&device).limits(limits).validation(validation);
        let builder = builder.synchronization_validation(barriers);
        builder.open().map_err(|error| error.to_string())
    };
    // Looked for now, so that a row without its device is one skip.
    let first = open()?;
    let opened = Mutex::new([Some(first), None]);
    let hand_out = move |index: usize| {
        let mut opened = lock(&opened);
        let slot = opened.get_mut(index).ok_or("no more than two")?;
        match slot {
            Some(device) => Ok(device.clone()),
            None => Ok(slot.insert(open()?).clone()),
        }
    };
    let suite = Suite::new(name, hand_out)
        .finish(move |vulkan: &Vulkan| {
            let log = vulkan.validation_log();
            let mut messages = log.messages();
            if messages.len() < log.count() {
                return Err(format!("{} messages are too many to keep", log.count()));
            }
            messages.retain(|message| !(barriers && is_of_a_window(message)));
            if messages.is_empty() { Ok(()) } else { Err(messages.join("; ")) }
        })
        .drop_error(|vulkan| vulkan.drop_errors().take());
    Ok(suite)
}

/// Whether the layer tells of a hazard between a kernel and something else. It takes a kernel to touch its
/// whole window, which the core never says: boxes between the rows of a view are free, and hedgerow runs work
/// on them beside the kernel on purpose. So of kernels these messages say nothing, and the rest is exact: copies
/// and fills name the bytes that they touch. That kernels follow what they must, the driver's own tests show,
/// whose kernels fill their windows.
fn is_of_a_window(message: &str) -> bool {
    message.contains("SYNC-HAZARD") && message.contains("SYNC_COMPUTE_SHADER")
}
