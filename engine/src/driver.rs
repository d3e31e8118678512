//! Which completion driver runs, and the ladder that finds it.
//!
//! compio falls back from io_uring to polling when building the ring fails for *any* reason, so one flag that an older
//! kernel lacks would silently cost io_uring altogether. Weir therefore walks a ladder of flags itself.

use std::{collections::HashSet, io};

use compio::{
    driver::{DriverType, ProactorBuilder},
    runtime::{Runtime, RuntimeBuilder},
};

use crate::settings::{DriverChoice, RuntimeSettings};

/// Entries of the submission queue. Data sockets do not go through the ring: it connects, watches and wakes.
const SUBMISSION_ENTRIES: u32 = 256;
/// Entries of the completion queue.
const COMPLETION_ENTRIES: u32 = 1_024;
/// Tasks run between two looks at the clock, which ends the turn when it has been long enough. A new connection or an HTTP request
/// takes tens of microseconds: with 64 of them a flood made turns of 2 ms.
const TASKS_PER_ROUND_MAX: usize = 16;
/// Wakes from other threads that fit without spinning.
const CROSS_THREAD_WAKES: usize = 1_024;
/// Helper threads for the rare blocking operation (name resolution).
pub(crate) const BLOCKING_THREADS: usize = 4;

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

#[derive(Clone, Copy)]
struct Rung {
    single_issuer: bool,
    defer_taskrun: bool,
}

const LADDER: [Rung; 3] = [
    Rung { single_issuer: true, defer_taskrun: true },
    Rung { single_issuer: true, defer_taskrun: false },
    Rung { single_issuer: false, defer_taskrun: false },
];

/// Builds the runtime of the calling thread. `cpu` pins it; a pin that the kernel refuses is not an error.
///
/// # Errors
/// `driver = "io_uring"` on a kernel that refuses it, or no descriptors left.
pub fn build(settings: &RuntimeSettings, cpu: Option<usize>) -> io::Result<(Runtime, Driver)> {
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
        _ => {
            let runtime = build_one(cpu, DriverType::Poll, LADDER[2])?;
            Ok((runtime, Driver::Polling))
        }
    }
}

fn build_one(cpu: Option<usize>, kind: DriverType, rung: Rung) -> io::Result<Runtime> {
    let mut proactor = ProactorBuilder::new();
    proactor
        .capacity(SUBMISSION_ENTRIES)
        .cqsize(COMPLETION_ENTRIES)
        .thread_pool_limit(BLOCKING_THREADS)
        .driver_type(kind);
    if kind == DriverType::IoUring {
        proactor
            .single_issuer(rung.single_issuer)
            .defer_taskrun(rung.defer_taskrun)
            .coop_taskrun(true)
            .taskrun_flag(true);
    }
    let mut builder = RuntimeBuilder::new();
    builder.with_proactor(proactor).event_interval(TASKS_PER_ROUND_MAX).sync_queue_size(CROSS_THREAD_WAKES);
    if let Some(cpu) = cpu {
        builder.thread_affinity(HashSet::from([cpu]));
    }
    let runtime = builder.build()?;
    if runtime.driver_type() != kind {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel refused io_uring"));
    }
    Ok(runtime)
}
