//! Errors planted on purpose: the validation layer's checks are on, and see them.

mod common;

use common::{SECONDS, required};
use hedgerow::driver::{Contents, CopyBox, DeviceDriver};
use hedgerow_vulkan::{Vulkan, VulkanBuilder};

/// A validated device; `None`, said aloud, where there is none.
fn open(how: fn(VulkanBuilder) -> VulkanBuilder) -> Option<Vulkan> {
    match how(Vulkan::builder()).open() {
        Ok(gpu) => Some(gpu),
        Err(error) if required() => panic!("required: {error}"),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// Two copies that share bytes, the second with and without the first one's ticket to follow.
fn copies(gpu: &Vulkan, ordered: bool) {
    let make = || gpu.allocate(256, Contents::Zeroed).expect("allocates");
    let [a, b, c] = [make(), make(), make()];
    let ready = [a.ready, b.ready, c.ready];
    ready.iter().for_each(|ticket| gpu.wait(*ticket, SECONDS).expect("is done"));
    let all = [CopyBox::flat(0, 0, 256)];
    // SAFETY: the boxes lie inside; nobody else uses the memories.
    let first = unsafe { gpu.copy(a.memory, b.memory, &all, &ready) }.expect("copies");
    let after: &[_] = if ordered { &[first] } else { &[] };
    // SAFETY: as above. Without the ticket, a promise is broken for what the last copy reads: bytes, of
    // which any will do.
    let second = unsafe { gpu.copy(b.memory, c.memory, &all, after) }.expect("copies");
    gpu.wait(second, SECONDS).expect("is done");
    for memory in [a, b, c] {
        // SAFETY: all work on it is done.
        unsafe { gpu.release(memory.memory, &[]) };
    }
}

/// Without the barrier between them, the layer sees a read after a write that may come first.
#[test]
fn synchronization_validation_sees_a_missing_barrier() {
    let Some(gpu) = open(|builder| builder.synchronization_validation(true)) else { return };
    copies(&gpu, true);
    assert_eq!(gpu.validation_messages(), Vec::<String>::new());
    copies(&gpu, false);
    let messages = gpu.validation_messages();
    assert!(messages.iter().any(|m| m.contains("SYNC-HAZARD-READ-AFTER-WRITE")), "{messages:?}");
}

/// It is that check which sees it, and no other; the layer's own variable turns it on as well.
#[test]
fn plain_validation_sees_it_where_the_environment_says_so() {
    let Some(gpu) = open(|builder| builder.validation(true)) else { return };
    let enables = std::env::var("VK_LAYER_ENABLES").unwrap_or_default();
    copies(&gpu, false);
    let messages = gpu.validation_messages();
    let seen = messages.iter().any(|m| m.contains("SYNC-HAZARD-READ-AFTER-WRITE"));
    assert_eq!(seen, enables.contains("SYNCHRONIZATION"), "{enables:?}: {messages:?}");
}
