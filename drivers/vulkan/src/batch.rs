//! Recording and submitting: one batch open at a time, tickets as values of one timeline, and barriers only
//! where an operation follows one that no barrier separates it from.
//!
//! # Tickets and barriers
//!
//! Each operation gets the next value when it is recorded. A batch signals the value of its last operation,
//! so an operation is done when its batch is. **Invariant:** `completed <= submitted <= recorded`, and
//! `ordered <= recorded`, where everything of value `ordered` or less is separated by a barrier from
//! whatever is recorded next. Only an operation that follows a ticket above `ordered` needs a barrier, which
//! then covers all that was recorded so far: operations between two barriers run at once.
//!
//! Submission order alone gives no memory dependency, so this holds across batches too. A batch that opens
//! while the device is idle begins with a barrier, which costs nothing then.
//!
//! An operation that follows a ticket of an imported timeline makes its batch wait for that, and with it all
//! batches after. So the open batch is sealed first: what was recorded earlier is not delayed.
//!
//! # Size
//!
//! A batch that grows large submits itself, so that recording without end takes no memory without end; if
//! that fails, it stays as any other.
//!
//! # Failure
//!
//! A batch is sealed (ended) and then submitted; a sealed one whose submission fails stays, and is submitted
//! by the next flush. When a command buffer cannot be *ended*, accepted work is gone, and the only sound
//! answer is a lost device.

use std::collections::VecDeque;
use std::time::Duration;

use ash::vk;
use hedgerow::driver::Ticket;

use crate::error::{Result, VulkanError};
use crate::lanes::Lanes;
use crate::raw::{Raw, Wait, Window};

/// A batch with so many operations submits itself.
pub(crate) const FULL: u32 = 1024;

/// With so many batches on their way, recording waits for the oldest.
const CROWD: usize = 256;

/// Sets and storage buffers of one descriptor pool.
const POOL: (u32, u32) = (64, 1024);

/// One command buffer's worth of work.
struct Batch {
    pool: vk::CommandPool,
    commands: vk::CommandBuffer,
    /// Value of its last operation.
    last: u64,
    /// How many operations it has.
    operations: u32,
    /// Bytes of each belt that it uses.
    bytes: [u64; 2],
    /// What it waits for, at most one for each imported timeline.
    waits: Vec<Wait>,
    /// Its descriptor pools; those from `current` on are empty.
    sets: Vec<vk::DescriptorPool>,
    current: usize,
}

impl Batch {
    fn new(raw: &Raw) -> Result<Self> {
        let pool = raw.create_command_pool()?;
        let commands =
            raw.allocate_commands(pool).inspect_err(|_| raw.destroy_command_pool(pool))?;
        Ok(Self {
            pool,
            commands,
            last: 0,
            operations: 0,
            bytes: [0; 2],
            waits: Vec::new(),
            sets: Vec::new(),
            current: 0,
        })
    }

    /// Makes it as new. Its work is done.
    fn reset(&mut self, raw: &Raw) -> Result<()> {
        raw.reset_command_pool(self.pool)?;
        for pool in &self.sets {
            raw.reset_descriptor_pool(*pool)?;
        }
        self.current = 0;
        self.operations = 0;
        self.bytes = [0; 2];
        self.waits.clear();
        Ok(())
    }

    /// Follows these as well.
    fn follow(&mut self, waits: impl Iterator<Item = Wait>) {
        for (semaphore, value) in waits {
            match self.waits.iter_mut().find(|(held, _)| *held == semaphore) {
                Some((_, held)) => *held = value.max(*held),
                None => self.waits.push((semaphore, value)),
            }
        }
    }

    fn set(
        &mut self,
        raw: &Raw,
        layout: vk::DescriptorSetLayout,
        buffers: u32,
    ) -> Result<vk::DescriptorSet> {
        loop {
            let fresh = self.current == self.sets.len();
            if fresh {
                let pool = raw.create_descriptor_pool(POOL.0, POOL.1.max(buffers))?;
                self.sets.push(pool);
            }
            if let Some(set) = raw.allocate_set(self.sets[self.current], layout)? {
                return Ok(set);
            }
            if fresh {
                return Err(VulkanError::Call {
                    call: "vkAllocateDescriptorSets",
                    result: vk::Result::ERROR_OUT_OF_POOL_MEMORY,
                });
            }
            self.current += 1;
        }
    }

    fn destroy(self, raw: &Raw) {
        raw.destroy_command_pool(self.pool);
        for pool in self.sets {
            raw.destroy_descriptor_pool(pool);
        }
    }
}

/// The open batch, those on their way, and the values that say how far things are.
#[derive(Default)]
pub(crate) struct Recorder {
    open: Option<Batch>,
    /// Ended, not submitted yet.
    sealed: VecDeque<Batch>,
    /// Submitted.
    flying: VecDeque<Batch>,
    /// Ready to be opened.
    spare: Vec<Batch>,
    /// Imported timelines.
    pub(crate) lanes: Lanes,
    recorded: u64,
    submitted: u64,
    ordered: u64,
    /// Whether the next operation follows everything, whatever its tickets say.
    fenced: bool,
}

impl Recorder {
    /// Value of the last operation recorded.
    pub(crate) fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Value of the last operation submitted.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted
    }

    /// The value to wait for where `value` is: that of its batch, if it is submitted and not known to be done.
    ///
    /// Any value in between would do by the specification, but validation layers before 1.3.296 stall for
    /// ten seconds on a value that nothing signals exactly (fixed in their pull request 8519).
    pub(crate) fn signal(&self, value: u64) -> Option<u64> {
        self.flying.iter().map(|batch| batch.last).find(|last| *last >= value)
    }

    /// The value to wait for where so many batches are on their way that there should be no more.
    pub(crate) fn crowd(&self) -> Option<u64> {
        self.flying.front().filter(|_| self.flying.len() >= CROWD).map(|batch| batch.last)
    }

    /// Makes the open batch one that follows the imported timelines' tickets in `after`. The one part of
    /// recording that can fail.
    pub(crate) fn prepare(&mut self, raw: &Raw, after: &[Ticket]) -> Result<()> {
        let waits = self.lanes.waits(after)?;
        if waits.pending {
            self.seal(raw)?;
        }
        self.open(raw)?;
        if let Some(batch) = self.open.as_mut() {
            batch.follow(waits.iter());
            self.lanes.queued(&waits);
        }
        Ok(())
    }

    /// Opens a batch where none is open.
    fn open(&mut self, raw: &Raw) -> Result<()> {
        if self.open.is_some() {
            return Ok(());
        }
        let mut batch = match self.spare.pop() {
            Some(batch) => batch,
            None => Batch::new(raw)?,
        };
        let ready = batch.reset(raw).and_then(|()| raw.begin(batch.commands));
        if let Err(error) = ready {
            batch.destroy(raw);
            return Err(error);
        }
        batch.last = self.recorded;
        let idle = self.sealed.is_empty() && raw.completed() >= self.submitted;
        if idle && self.ordered < self.recorded {
            raw.cmd_order(batch.commands);
            self.ordered = self.recorded;
        }
        self.open = Some(batch);
        Ok(())
    }

    /// A descriptor set that lives as long as the open batch, pointed at these windows. For an operation
    /// with tickets to follow, [`prepare`](Self::prepare) comes first, as it may change what batch is open.
    pub(crate) fn set(
        &mut self,
        raw: &Raw,
        layout: vk::DescriptorSetLayout,
        windows: &[Window],
    ) -> Result<vk::DescriptorSet> {
        self.open(raw)?;
        let Some(batch) = self.open.as_mut() else { return Err(VulkanError::Lost) };
        let set = batch.set(raw, layout, windows.len() as u32)?;
        raw.write_set(set, windows);
        Ok(set)
    }

    /// Makes the next operation follow all before it. For work that nobody has a ticket of.
    pub(crate) fn fence(&mut self) {
        self.fenced = true;
    }

    /// Records one operation that follows the tickets in `after`, and names it.
    ///
    /// Fails only where [`prepare`](Self::prepare) does; nothing is recorded then.
    pub(crate) fn record(
        &mut self,
        raw: &Raw,
        after: &[Ticket],
        commands: impl FnOnce(vk::CommandBuffer),
    ) -> Result<Ticket> {
        self.prepare(raw, after)?;
        let Some(batch) = self.open.as_mut() else { return Err(VulkanError::Lost) };
        let own = after.iter().filter(|ticket| ticket.lane == 0);
        let follows = own.map(|ticket| ticket.value).max().unwrap_or(0);
        if follows > self.ordered || self.fenced {
            raw.cmd_order(batch.commands);
            self.ordered = self.recorded;
            self.fenced = false;
        }
        commands(batch.commands);
        self.recorded += 1;
        batch.last = self.recorded;
        batch.operations += 1;
        if batch.operations >= FULL {
            self.submit_itself(raw);
        }
        Ok(Ticket { lane: 0, value: self.recorded })
    }

    /// Notes that the last operation uses so many bytes of a belt. A batch that uses `most` submits itself.
    pub(crate) fn weigh(&mut self, raw: &Raw, belt: usize, bytes: u64, most: u64) {
        // None, where the operation was the one that filled its batch.
        let Some(batch) = self.open.as_mut().filter(|batch| batch.operations > 0) else { return };
        batch.bytes[belt] += bytes;
        if batch.bytes[belt] >= most {
            self.submit_itself(raw);
        }
    }

    fn submit_itself(&mut self, raw: &Raw) {
        if let Err(error) = self.submit(raw, self.recorded) {
            // What was accepted stays so. The next flush or wait tries again, and says so if it fails.
            warning!("a batch that is full could not be submitted yet: {}", error);
        }
    }

    /// Ends the open batch, if there is anything in it.
    fn seal(&mut self, raw: &Raw) -> Result<()> {
        let Some(batch) = self.open.take_if(|batch| batch.operations > 0) else { return Ok(()) };
        raw.cmd_show_host(batch.commands);
        if let Err(error) = raw.end(batch.commands) {
            warning!("accepted work could not be ended: {}", error);
            raw.lose();
            self.spare.push(batch);
            return Err(VulkanError::Lost);
        }
        self.sealed.push_back(batch);
        Ok(())
    }

    /// Submits what is recorded up to `value`, and the rest of its batch. What fails to be submitted is kept.
    pub(crate) fn submit(&mut self, raw: &Raw, value: u64) -> Result<()> {
        if value > self.sealed.back().map_or(self.submitted, |sealed| sealed.last) {
            self.seal(raw)?;
        }
        while let Some(batch) = self.sealed.pop_front_if(|_| self.submitted < value) {
            if let Err(error) = raw.submit(batch.commands, &batch.waits, batch.last) {
                self.sealed.push_front(batch);
                return Err(error);
            }
            self.submitted = batch.last;
            self.flying.push_back(batch);
        }
        Ok(())
    }

    /// Takes back the batches that are done. Looks, and does not wait.
    ///
    /// Asks for each batch's value rather than for the counter: only a wait makes effects visible to the
    /// host.
    pub(crate) fn retire(&mut self, raw: &Raw) -> Result<()> {
        while let Some(batch) = self.flying.pop_front() {
            let done = if batch.last <= raw.completed() {
                Ok(true)
            } else {
                raw.wait_once(batch.last, Duration::ZERO)
            };
            if let Ok(true) = done {
                self.spare.push(batch);
            } else {
                self.flying.push_front(batch);
                return done.map(|_| ());
            }
        }
        Ok(())
    }

    /// Destroys all batches. None is in flight.
    pub(crate) fn destroy(&mut self, raw: &Raw) {
        let open = self.open.take().into_iter();
        for batch in open
            .chain(self.sealed.drain(..))
            .chain(self.flying.drain(..))
            .chain(self.spare.drain(..))
        {
            batch.destroy(raw);
        }
    }
}
