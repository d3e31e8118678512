//! Which completion driver runs, and the ladder that finds it.
//!
//! compio falls back from io_uring to polling when building the ring fails for *any* reason, so one flag that an older
//! kernel lacks would silently cost io_uring altogether. Weir therefore walks a ladder of flags itself.

use std::{cell::Cell, collections::HashSet, io};

use compio::{
    driver::{DriverType, ProactorBuilder},
    runtime::{Runtime, RuntimeBuilder},
};

use crate::settings::{DriverChoice, RuntimeSettings};

/// Entries of the submission queue. Only connects go through the ring, and data sockets do not.
const SUBMISSION_ENTRIES: u32 = 256;
/// Entries of the completion queue.
const COMPLETION_ENTRIES: u32 = 1_024;

thread_local! {
    /// The driver may hold operations that the kernel does not know yet.
    static HAS_TO_BE_FLUSHED: Cell<bool> = const { Cell::new(true) };
}

/// Whether the worker has to flush its driver before it sleeps.
pub(crate) fn has_to_be_flushed() -> bool {
    HAS_TO_BE_FLUSHED.get()
}

/// Notes a flush of the driver, and whether the kernel refused it for now.
pub(crate) fn flushed(is_refused: bool) {
    HAS_TO_BE_FLUSHED.set(is_refused);
}

/// An operation of the driver, from before it is given to it until it is over. Its begin and its end, which may cancel it, come to the
/// kernel with the next flush.
pub(crate) struct Operation(());

impl Operation {
    pub(crate) fn begin() -> Self {
        HAS_TO_BE_FLUSHED.set(true);
        Self(())
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        HAS_TO_BE_FLUSHED.set(true);
    }
}

/// The driver a worker runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// io_uring with all flags of the ladder's first rung.
    IoUring,
    /// io_uring, but on a lower rung: some flag was refused.
    IoUringReduced,
    /// epoll readiness and direct calls: a fallback for availability, not for speed.
    Polling,
}

impl Driver {
    /// The name in logs, `/readyz` and the metric label.
    pub fn name(self) -> &'static str {
        match self {
            Driver::IoUring => "io_uring",
            Driver::IoUringReduced => "io_uring_reduced",
            Driver::Polling => "polling",
        }
    }
}

/// Flags of a ring, with the version of Linux that brought them.
#[derive(Clone, Copy)]
struct Rung {
    /// 6.0.
    single_issuer: bool,
    /// 5.19.
    coop_taskrun: bool,
}

/// `IORING_SETUP_DEFER_TASKRUN` is on no rung: the worker sleeps at its sockets, and work that a ring keeps for the next call on it
/// wakes no such sleeper. An eventfd registered with the ring is no remedy: a wake from another thread comes by an eventfd too, and
/// Linux 6.18 loses the signal of one eventfd to another.
const LADDER: [Rung; 3] = [
    Rung { single_issuer: true, coop_taskrun: true },
    Rung { single_issuer: false, coop_taskrun: true },
    Rung { single_issuer: false, coop_taskrun: false },
];

/// Builds the runtime of the calling thread. `cpu` pins it; a pin that the kernel refuses is not an error.
///
/// # Errors
/// `driver = "io_uring"` on a kernel that refuses it, or no descriptors left.
pub(crate) fn build(settings: &RuntimeSettings, cpu: Option<usize>) -> io::Result<(Runtime, Driver)> {
    let mut refusal = None;
    if settings.driver != DriverChoice::Polling {
        for (index, rung) in LADDER.into_iter().enumerate() {
            match build_one(cpu, DriverType::IoUring, rung) {
                Ok(runtime) if index == 0 => return Ok((runtime, Driver::IoUring)),
                Ok(runtime) => return Ok((runtime, Driver::IoUringReduced)),
                Err(error) => refusal = Some(error),
            }
        }
    }
    match (settings.driver, refusal) {
        (DriverChoice::IoUring, Some(error)) => Err(error),
        _ => Ok((build_one(cpu, DriverType::Poll, LADDER[2])?, Driver::Polling)),
    }
}

fn build_one(cpu: Option<usize>, kind: DriverType, rung: Rung) -> io::Result<Runtime> {
    let mut proactor = ProactorBuilder::new();
    proactor.capacity(SUBMISSION_ENTRIES).cqsize(COMPLETION_ENTRIES).driver_type(kind);
    if kind == DriverType::IoUring {
        proactor.single_issuer(rung.single_issuer).coop_taskrun(rung.coop_taskrun).taskrun_flag(rung.coop_taskrun);
    }
    let mut builder = RuntimeBuilder::new();
    builder.with_proactor(proactor);
    if let Some(cpu) = cpu {
        builder.thread_affinity(HashSet::from([cpu]));
    }
    let runtime = builder.build()?;
    if runtime.driver_type() != kind {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel refused io_uring"));
    }
    Ok(runtime)
}
