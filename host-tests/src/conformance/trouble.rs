//! One driver call that fails in the run of a case: how, and what the case does about it.
//!
//! A case runs unchanged: the lab's operations, its kernels and its views call through [`Trouble::insist`],
//! which takes note of the injected error and calls again, as a user would. A device that is lost does not
//! come back, so a loss ends the case there: it unwinds to the trees, which are looked at and go on without
//! the device (see `Bed::survive`).

use std::ops::Deref;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytemuck::Pod;
use hedgerow::driver::middleware::FaultError;
use hedgerow::driver::{DriverError, ErrorKind, Kernel, Ticket};
use hedgerow::{Args, Error, View};

use super::lab::{Failure, Hardware, Rig, Value};

/// How a call fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mishap {
    pub kind: ErrorKind,
    /// After a part of the call's work, where it may do a part.
    pub partial: bool,
}

impl Mishap {
    pub const fn whole(kind: ErrorKind) -> Self {
        Self { kind, partial: false }
    }

    pub const fn partial(kind: ErrorKind) -> Self {
        Self { kind, partial: true }
    }

    /// Everything that a driver may answer and live.
    pub const ERRORS: &'static [Self] = &[
        Self::whole(ErrorKind::OutOfMemory),
        Self::whole(ErrorKind::TooLarge),
        Self::whole(ErrorKind::Budget),
        Self::whole(ErrorKind::Timeout),
        Self::whole(ErrorKind::Unsupported),
        Self::whole(ErrorKind::Misaligned),
        Self::whole(ErrorKind::Other),
        Self::partial(ErrorKind::Timeout),
        Self::partial(ErrorKind::Other),
    ];

    /// The end of a device.
    pub const LOSSES: &'static [Self] =
        &[Self::whole(ErrorKind::DeviceLost), Self::partial(ErrorKind::DeviceLost)];

    pub fn is_loss(&self) -> bool {
        self.kind == ErrorKind::DeviceLost
    }
}

/// What unwinds from the call that met a loss.
#[derive(Clone, Copy, Debug)]
pub struct Over;

/// The failing call of a run, or that there is none.
#[derive(Debug, Default)]
pub struct Trouble {
    mishap: Option<Mishap>,
    /// How often an injected error came back from a call of the library.
    errors: AtomicU32,
}

impl Trouble {
    pub fn of(mishap: Option<Mishap>) -> Arc<Self> {
        Arc::new(Self { mishap, errors: AtomicU32::new(0) })
    }

    /// Whether a call of this run fails.
    pub fn is_any(&self) -> bool {
        self.mishap.is_some()
    }

    pub fn mishap(&self) -> Option<Mishap> {
        self.mishap
    }

    pub fn errors(&self) -> u32 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Whether this is the injected error, typed as the driver gave it. A loss does not return.
    pub fn met<E: DriverError>(&self, error: &Error<FaultError<E>>) -> bool {
        let Some(Mishap { kind, .. }) = self.mishap else { return false };
        match error {
            Error::Driver(FaultError::Injected { kind: told, .. }) if *told == kind => {}
            Error::Lost { .. } if kind == ErrorKind::DeviceLost => {}
            _ => return false,
        }
        self.errors.fetch_add(1, Ordering::Relaxed);
        if kind == ErrorKind::DeviceLost {
            resume_unwind(Box::new(Over));
        }
        true
    }

    /// Calls again where the call met the injected error.
    pub fn insist<R, E: DriverError>(
        &self,
        mut call: impl FnMut() -> Result<R, Error<FaultError<E>>>,
    ) -> Result<R, Error<FaultError<E>>> {
        loop {
            match call() {
                Err(error) if self.met(&error) => {}
                other => return other,
            }
        }
    }
}

/// A shared, loaded kernel, whose launches insist.
pub struct Loaded<H: Hardware> {
    pub(super) kernel: Arc<Kernel<Rig<H>>>,
    pub(super) trouble: Arc<Trouble>,
}

impl<H: Hardware> Deref for Loaded<H> {
    type Target = Kernel<Rig<H>>;

    fn deref(&self) -> &Self::Target {
        &self.kernel
    }
}

impl<H: Hardware> Loaded<H> {
    /// As [`Kernel::launch`].
    pub fn launch<'t, P: Pod>(
        &self,
        args: impl Args<'t, Rig<H>> + Copy,
        params: P,
    ) -> Result<Ticket, Failure<H>> {
        self.trouble.insist(|| self.kernel.launch(args, params))
    }

    /// As [`Kernel::launch_groups`].
    pub fn launch_groups<'t, P: Pod>(
        &self,
        args: impl Args<'t, Rig<H>> + Copy,
        params: P,
        groups: [u32; 3],
    ) -> Result<Ticket, Failure<H>> {
        self.trouble.insist(|| self.kernel.launch_groups(args, params, groups))
    }

    /// As [`Kernel::launch_kept_apart`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn launch_kept_apart<'t, P: Pod>(
        &self,
        args: impl Args<'t, Rig<H>> + Copy,
        params: P,
    ) -> Result<Ticket, Failure<H>> {
        // SAFETY: the caller's promise.
        self.trouble.insist(|| unsafe { self.kernel.launch_kept_apart(args, params) })
    }
}

/// A view, whose accesses insist.
pub struct Sight<'t, T: Value, H: Hardware> {
    pub(super) view: View<'t, T, Rig<H>>,
    pub(super) trouble: Arc<Trouble>,
}

impl<'t, T: Value, H: Hardware> Deref for Sight<'t, T, H> {
    type Target = View<'t, T, Rig<H>>;

    fn deref(&self) -> &Self::Target {
        &self.view
    }
}

impl<T: Value, H: Hardware> std::fmt::Debug for Sight<'_, T, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.view.fmt(f)
    }
}

/// The accesses that cases use by themselves, each as in [`View`].
macro_rules! insisting {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)+) => {
        impl<'t, T: Value, H: Hardware> Sight<'t, T, H> {
            $(pub fn $name(&self, $($arg: $type),*) -> Result<$out, Failure<H>> {
                self.trouble.insist(|| self.view.$name($($arg),*))
            })+

            pub fn read_into(&self, out: &mut [T]) -> Result<usize, Failure<H>> {
                self.trouble.insist(|| self.view.read_into(out))
            }

            pub fn copy_from(
                &self,
                from: &Sight<'_, T, H>,
                device: usize,
            ) -> Result<Ticket, Failure<H>> {
                self.trouble.insist(|| self.view.copy_from(&from.view, device))
            }
        }
    };
}

insisting! {
    read() -> hedgerow::ReadGuard<'t, T>;
    read_written() -> hedgerow::WrittenGuard<'t, T, Rig<H>>;
    overwrite() -> hedgerow::WriteGuard<'t, T>;
    update() -> hedgerow::WriteGuard<'t, T>;
    on_device(device: usize, mode: hedgerow::Mode) -> hedgerow::DeviceAccess<'t, Rig<H>>;
    prefetch(device: usize) -> Ticket;
    fill_on(device: usize, value: T) -> Ticket;
}
