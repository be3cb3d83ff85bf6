//! What an engine needs to work on hedgerow's memory with command buffers of its own, and hedgerow after it.

use std::time::Duration;

use ash::vk;
use hedgerow::driver::Ticket;

use crate::device::{Deadline, Vulkan};
use crate::error::{Result, VulkanError};
use crate::lanes::Lane;
use crate::memory::{Block, Memory};
use crate::script::Scripted;

/// # For engines that share the device
///
/// How work of both sides is ordered, and on what memory; see also [`from_raw`](Self::from_raw).
impl Vulkan {
    /// The timeline that hedgerow signals. A ticket of lane 0 is done when it reaches the ticket's value or
    /// more, once the ticket's work is submitted ([`flush`](hedgerow::driver::DeviceDriver::flush)).
    ///
    /// It is hedgerow's: do not signal it, and do not wait for it when the last handle is gone.
    pub fn timeline(&self) -> vk::Semaphore {
        self.shared.raw.timeline()
    }

    /// What a submission that follows `ticket` waits for: a timeline semaphore and its value.
    ///
    /// Submits what the ticket needs, so that the wait ends. A batch signals only its last value, and that is
    /// the one returned here: any in between would do by the specification, but validation layers before
    /// 1.3.296 stall on a value that nothing signals exactly.
    ///
    /// # Errors
    /// [`VulkanError::UnknownTicket`]; what a failed submission says; loss.
    pub fn semaphore_wait(&self, ticket: Ticket) -> Result<(vk::Semaphore, u64)> {
        let mut state = self.shared.enter()?;
        let (raw, timeline) = (&self.shared.raw, self.timeline());
        if ticket.lane != 0 {
            // Of a timeline that is gone: done, and hedgerow's own timeline covers it.
            let done = (timeline, raw.completed());
            return Ok(state.recorder.lanes.wait(ticket)?.unwrap_or(done));
        }
        let Ticket { lane, value } = ticket;
        let last = state.recorder.recorded();
        if value > last {
            return Err(VulkanError::UnknownTicket { lane, value, last });
        }
        if value > state.recorder.submitted() {
            state.recorder.submit(raw, value)?;
        }
        // Without a batch on its way it is done, and what is known to be done was signalled.
        Ok((timeline, state.recorder.signal(value).unwrap_or(raw.completed())))
    }

    /// Registers a timeline of the caller's, so that [`ticket`](Self::ticket)s can name work which others
    /// submit: what follows such a ticket waits for the timeline, on the device or, in `wait` and `poll`, on
    /// the host. Memory that is released after it is kept until then.
    ///
    /// A batch whose operation follows a ticket waits when it is submitted, and so does all that hedgerow
    /// submits later; what was recorded before does not.
    ///
    /// # Errors
    /// [`VulkanError::NoLane`] when there are [`MAX_LANES`](hedgerow::driver::MAX_LANES) - 1 of them already;
    /// [`VulkanError::Null`]; loss.
    ///
    /// # Safety
    /// Until [`remove_timeline`](Self::remove_timeline) has returned success, or the last handle is gone:
    /// * `semaphore` is a timeline semaphore of this device, and is not destroyed.
    /// * When it reaches the value of a ticket, the work that the ticket stands for is done, and so is that of
    ///   all lower values of it. Its memory accesses are covered by the signal (a signal of `vkQueueSubmit`
    ///   covers all of its batch and before); those to [storage](hedgerow::driver::DeviceDriver::storage) end
    ///   with a barrier to the host.
    /// * When a ticket is passed to hedgerow (or to [`DeviceAccess`](hedgerow::DeviceAccess)), whatever
    ///   signals its value is submitted already, or is no submission to hedgerow's own queue.
    pub unsafe fn import_timeline(&self, semaphore: vk::Semaphore) -> Result<Lane> {
        if semaphore == vk::Semaphore::null() {
            return Err(VulkanError::Null { what: "semaphore" });
        }
        self.shared.enter()?.recorder.lanes.import(semaphore)
    }

    /// The ticket that is done when an imported timeline reaches `value`. Make tickets by nothing else: within
    /// a lane they have to rise, also when its timeline is another one by now.
    ///
    /// From here on, removing the timeline and closing the device wait for `value`.
    ///
    /// # Errors
    /// [`VulkanError::StaleLane`] when the timeline was removed.
    pub fn ticket(&self, lane: Lane, value: u64) -> Result<Ticket> {
        self.shared.lock().recorder.lanes.ticket(lane, value)
    }

    /// Gives an imported timeline back, when all of its tickets are done and nothing waits for it. The caller
    /// may destroy it then. Its tickets stay what they are: done.
    ///
    /// # Errors
    /// Nothing has changed, and the call can be made again: a timeout, when that takes longer than `timeout`;
    /// [`VulkanError::StaleLane`] when it was removed before; what a failed submission says; loss, after
    /// which a timeline can be destroyed with its device.
    pub fn remove_timeline(&self, lane: Lane, timeout: Duration) -> Result<()> {
        let (shared, deadline) = (&self.shared, Deadline::new(timeout));
        loop {
            let mut state = shared.enter()?;
            let last = state.recorder.lanes.last(lane)?;
            // An operation that does nothing: when it is done, so is all that waits for the timeline, and
            // what comes later sees the effects of its work.
            let ticket = state.recorder.record(&shared.raw, &[last], |_| {})?;
            drop(state);
            shared.wait_value(ticket.value, deadline)?;
            let mut state = shared.enter()?;
            state.recorder.lanes.reached(last);
            if state.recorder.lanes.remove(lane, last)? {
                return Ok(());
            }
            shared.pause(state, deadline)?;
        }
    }

    /// The buffer behind memory, and its bytes: for recording into one's own command buffer what a
    /// [`DeviceAccess`](hedgerow::DeviceAccess) allows. `None` when the memory was released, or is another
    /// device's.
    ///
    /// It is a storage buffer, and a source and destination of transfers, of hedgerow's queue family alone
    /// (`VK_SHARING_MODE_EXCLUSIVE`): work on a queue of another family takes and returns its ownership.
    pub fn buffer(&self, memory: Memory) -> Option<(vk::Buffer, u64)> {
        let state = self.shared.lock();
        state.table.get(memory).ok().map(|block| (block.buffer, block.bytes))
    }

    /// Makes a handle for a buffer of the caller's. Releasing the handle only forgets the buffer, as does
    /// closing the device.
    ///
    /// Its bytes count towards no budget. Kernels read and write whole elements: with `bytes` that are no
    /// multiple of 16, a kernel's last binding ends earlier than elsewhere, at `bytes`.
    ///
    /// # Errors
    /// [`VulkanError::Null`]; [`VulkanError::TooSmall`] when `bytes` is zero, or more than the buffer's memory;
    /// loss.
    ///
    /// # Safety
    /// Until the handle is released, and the work on it done, or the last handle of the device is gone:
    /// * `buffer` is a buffer of this device with at least `bytes` bytes, with memory bound to all of them, and
    ///   is not destroyed.
    /// * Its usage has `STORAGE_BUFFER`, `TRANSFER_SRC` and `TRANSFER_DST`, and its owner is hedgerow's queue
    ///   family, if it is not shared by families.
    /// * The caller's own work on the bytes keeps to the same order as for memory of hedgerow: by accesses and
    ///   tickets. What others wrote before this call is visible to hedgerow's queue.
    pub unsafe fn wrap_buffer(&self, buffer: vk::Buffer, bytes: u64) -> Result<Memory> {
        if buffer == vk::Buffer::null() {
            return Err(VulkanError::Null { what: "buffer" });
        }
        let mut state = self.shared.enter()?;
        let has = self.shared.raw.requirements(buffer).size;
        if bytes == 0 || bytes > has {
            return Err(VulkanError::TooSmall { bytes, has });
        }
        Ok(state.table.insert(Block::wrapped(buffer, bytes), 0))
    }

    /// For tests: notes the raw Vulkan calls from now on that can fail. The one at `fails.0` (from 0) answers
    /// `fails.1` and is not made; but a submission is made all the same if `fails.2`, so that the device does
    /// the work of a call that failed.
    pub fn script(&self, fails: Option<(usize, vk::Result, bool)>) {
        let fails = fails.map(|(at, answer, made)| {
            (at, if made { Scripted::Made(answer) } else { Scripted::NotMade(answer) })
        });
        self.shared.raw.script().start(fails);
    }

    /// For tests: ends [`script`](Self::script), and names the calls that it saw.
    pub fn scripted(&self) -> Vec<&'static str> {
        self.shared.raw.script().stop()
    }

    /// For tests: the next `count` submissions fail, as if the host were out of memory.
    pub fn simulate_failed_submits(&self, count: u32) {
        self.shared.raw.fail_submissions(count);
    }
}
