//! What raw Vulkan calls answer, where a test says so: no device that tests run on fails by itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use ash::vk;

/// What a call answers that the script is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scripted {
    /// This, and it is not made.
    NotMade(vk::Result),
    /// This, though it is made: the device may have done all of it.
    Made(vk::Result),
}

/// Notes calls by name, and has one of them fail. Off, it costs a look at a flag.
#[derive(Default)]
pub(crate) struct Script {
    on: AtomicBool,
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    calls: Vec<&'static str>,
    fails: Option<(usize, Scripted)>,
}

impl Script {
    /// Starts to note calls. The one at `fails` (from 0) fails, once.
    pub(crate) fn start(&self, fails: Option<(usize, Scripted)>) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        *lines = Lines { calls: Vec::new(), fails };
        self.on.store(true, Ordering::Release);
    }

    /// Ends it: the calls since it was started.
    pub(crate) fn stop(&self) -> Vec<&'static str> {
        self.on.store(false, Ordering::Release);
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *lines).calls
    }

    /// Notes a call. What it answers, if the script says so.
    pub(crate) fn next(&self, call: &'static str) -> Option<Scripted> {
        if !self.on.load(Ordering::Acquire) {
            return None;
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let at = lines.calls.len();
        lines.calls.push(call);
        lines.fails.filter(|(fails, _)| *fails == at).map(|(_, how)| how)
    }

    /// Makes a call that makes something, unless the script says what it answers: then it makes nothing, which
    /// nobody could destroy. Waits change nothing: whether one is made makes no difference.
    pub(crate) fn call<T>(
        &self,
        call: &'static str,
        make: impl FnOnce() -> Result<T, vk::Result>,
    ) -> Result<T, vk::Result> {
        match self.next(call) {
            None => make(),
            Some(Scripted::NotMade(answer) | Scripted::Made(answer)) => Err(answer),
        }
    }
}
