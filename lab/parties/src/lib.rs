//! The parties of a measurement: programs as child processes with CPUs and ports of their own, and what CPU time they used.
//!
//! | file | concept |
//! |---|---|
//! | [`process`] | a child that never outlives this process |
//! | [`peer`] | gateways that can be measured, each described by a small TOML file |
//! | [`load`] | load programs of others, each described by a small TOML file, and how its output is read |
//! | [`certificate`] | a certificate for a measurement in TLS |
//! | `words` | the values that replace the words of these files |
//! | [`place`] | CPUs that may be used, free ports |
//! | [`cpu`] | CPU time of processes, threads and the machine, from procfs |
//! | [`counters`] | cycles and instructions, where the machine counts them |
//! | [`cgroup`] | control groups: CPU time of all that a party ever started, and a share of one CPU |
//! | [`limits`] | descriptors, ports, swap and dropped connections: what must not run out during a measurement |
//! | [`interrupt`] | Ctrl-C as an error, so that every child is ended on the way out |
#![forbid(unsafe_code)]

pub mod certificate;
pub mod cgroup;
pub mod counters;
pub mod cpu;
pub mod interrupt;
pub mod limits;
pub mod load;
pub mod peer;
pub mod place;
pub mod process;
mod words;

pub use cgroup::Group;
pub use counters::{Counted, Counters, Reading};
pub use cpu::{BoxTime, BoxUse, CpuTime, CpuUse, ThreadTimes};
pub use load::Load;
pub use peer::Peer;
pub use process::{Launch, Pipes, Process};

/// Whether a program of that name is on the PATH.
#[must_use]
pub fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
