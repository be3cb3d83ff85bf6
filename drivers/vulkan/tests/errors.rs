//! Choosing devices, limits, and loss.

mod common;

use common::{SECONDS, boxed, noise, open_with, silent};
use hedgerow::driver::{Contents, CopyBox, DeviceDriver, DriverError, ErrorKind, Ticket};
use hedgerow_vulkan::{DEVICE_VARIABLE, LimitsOverride, Vulkan, VulkanError};

#[test]
fn selects() {
    let Some(gpu) = open_with(LimitsOverride::default(), None) else { return };
    let list = Vulkan::list().expect("lists");
    let info = gpu.info();
    assert!(list.iter().any(|d| d.index == info.index && d.name == info.name));
    assert!(info.api_version >= (1, 2, 0));
    let part = &info.name.to_uppercase()[..4];
    for selector in [info.index.to_string().as_str(), info.name.as_str(), part] {
        let again = Vulkan::open(selector).expect("opens");
        assert!(again.info().name.to_uppercase().contains(part));
        assert_ne!(again.id(), gpu.id());
        assert_eq!(again.clone().id(), again.id());
    }
    for selector in ["no such device", "99"] {
        let error = Vulkan::open(selector).expect_err("no such device");
        assert!(matches!(&error, VulkanError::NoMatch { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(
            error.to_string().contains(&format!("; available: [0] {}", list[0].name)),
            "{error}"
        );
    }
}

/// The environment chooses where the program does not. A process of its own: the environment is everybody's.
#[test]
fn the_environment_selects() {
    const CHILD: &str = "HEDGEROW_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        match Vulkan::open("") {
            Ok(gpu) => println!("opened {}", gpu.info().index),
            Err(error) => println!("failed: {error}"),
        }
        // What the program says goes first.
        println!("by index: {}", Vulkan::open("0").is_ok());
        return;
    }
    let Some(gpu) = open_with(LimitsOverride::default(), None) else { return };
    let index = gpu.info().index.to_string();
    let name = gpu.info().name.clone();
    let program = std::env::current_exe().expect("has a path");
    let says = |selector: &str| {
        let output = std::process::Command::new(&program)
            .args(["--exact", "the_environment_selects", "--nocapture"])
            .env(CHILD, "1")
            .env(DEVICE_VARIABLE, selector)
            .output()
            .expect("runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for selector in [index.as_str(), name.as_str(), &format!(" {index} ")] {
        let said = says(selector);
        assert!(said.contains(&format!("opened {index}")), "{selector}: {said}");
    }
    let said = says("no such device");
    assert!(said.contains("failed: no vulkan device matches \"no such device\""), "{said}");
    assert!(said.contains("by index: true"), "{said}");
}

#[test]
fn overrides_make_stricter() {
    let Some(plain) = open_with(LimitsOverride::default(), None) else { return };
    let Some(strict) = open_with(LimitsOverride::strict(), None) else { return };
    let (a, b) = (plain.caps(), strict.caps());
    assert!(b.bind_align >= 256 && b.bind_align >= a.bind_align && a.bind_align >= 16);
    assert!(b.flush_align >= 256 && b.flush_align >= a.flush_align);
    assert!(b.max_binding <= a.max_binding && b.max_allocation <= a.max_allocation);
    assert!(!b.unified && !b.storage_survives_loss);
    let mut lenient = LimitsOverride::default();
    lenient.bind_align = Some(1);
    lenient.max_binding = Some(u64::MAX);
    let Some(lenient) = open_with(lenient, None) else { return };
    assert_eq!(lenient.caps().bind_align, a.bind_align);
    assert_eq!(lenient.caps().max_binding, a.max_binding);
}

#[test]
fn too_large() {
    let Some(gpu) = open_with(LimitsOverride::strict(), None) else { return };
    let log = gpu.validation_log();
    let limit = gpu.caps().max_allocation;
    for bytes in [limit + 1, u64::MAX] {
        let error = gpu.allocate(bytes, Contents::Zeroed).expect_err("too large");
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        assert_eq!(gpu.storage(bytes).expect_err("too large").kind(), ErrorKind::TooLarge);
    }
    gpu.allocate(limit, Contents::Zeroed).expect("fits");
    drop(gpu);
    silent(&log);
}

/// gpu-allocator counts nothing: the driver must.
#[test]
fn too_many() {
    let Some(gpu) = open_with(LimitsOverride::strict(), None) else { return };
    let log = gpu.validation_log();
    // Each more than half of a block, so that none shares one.
    let bytes = 40 << 20;
    let mut held = Vec::new();
    let error = loop {
        match gpu.allocate(bytes, Contents::Undefined) {
            Ok(memory) => held.push(memory.memory),
            Err(error) => break error,
        }
        assert!(held.len() <= 16);
    };
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("16 memory objects"), "{error}");
    let one = held.pop().expect("some were allocated");
    // SAFETY: nothing uses it.
    unsafe { gpu.release(one, &[]) };
    gpu.allocate(bytes, Contents::Undefined).expect("there is room again");
    drop(gpu);
    silent(&log);
}

/// After a loss every call says so, for good, and closing does not hang.
#[test]
fn loss() {
    for limits in [LimitsOverride::default(), LimitsOverride::strict()] {
        let Some(gpu) = open_with(limits, None) else { return };
        let log = gpu.validation_log();
        let memory = gpu.allocate(4096, Contents::Zeroed).expect("allocates");
        let storage = gpu.storage(4096).expect("allocates");
        gpu.wait(memory.ready, SECONDS).expect("is done");
        let mut host = noise(1, 4096);
        let all = [CopyBox::flat(0, 0, 4096)];
        let clone = gpu.clone();
        clone.simulate_loss();
        for _ in 0..2 {
            let lost = |error: VulkanError| assert_eq!(error.kind(), ErrorKind::DeviceLost);
            lost(gpu.allocate(16, Contents::Zeroed).expect_err("lost"));
            lost(gpu.storage(16).expect_err("lost"));
            lost(gpu.flush().expect_err("lost"));
            lost(gpu.poll(memory.ready).expect_err("lost"));
            lost(gpu.poll(Ticket::DONE).expect_err("lost"));
            lost(gpu.wait(memory.ready, SECONDS).expect_err("lost"));
            let m = memory.memory;
            // SAFETY: all boxes here lie inside.
            lost(unsafe { gpu.upload(host.as_ptr(), m, &all, &[]) }.expect_err("lost"));
            // SAFETY: as above.
            lost(unsafe { gpu.copy(m, storage.memory, &all, &[]) }.expect_err("lost"));
            // SAFETY: as above.
            lost(unsafe { gpu.fill(m, &all, &[1], &[]) }.expect_err("lost"));
            let before = host.clone();
            // SAFETY: as above.
            let got = unsafe { gpu.download(m, host.as_mut_ptr(), &all, &[], SECONDS) };
            lost(got.expect_err("lost"));
            assert!(host == before);
        }
        // Storage stays mapped until it is released.
        // SAFETY: the storage is live.
        assert_eq!(unsafe { storage.host.read() }, 0);
        // SAFETY: nothing uses it later.
        unsafe { gpu.release(memory.memory, &[]) };
        drop((gpu, clone));
        silent(&log);
    }
}

/// Closing with work on its way, and with work that was never submitted.
#[test]
fn closes_with_work() {
    for flush in [false, true] {
        let Some(gpu) = open_with(LimitsOverride::default(), None) else { return };
        let log = gpu.validation_log();
        let len = 32 << 20;
        let memory = gpu.allocate(len, Contents::Zeroed).expect("allocates");
        let boxes = [boxed(0, 3, 1000, &[(1000, 0, 1001)])];
        // SAFETY: the boxes lie inside.
        unsafe { gpu.fill(memory.memory, &boxes, &[1, 2], &[memory.ready]) }.expect("fills");
        if flush {
            gpu.flush().expect("submits");
        }
        drop(gpu);
        silent(&log);
    }
}
