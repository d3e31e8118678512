//! The configuration of another proxy becomes a `weir.toml`, and a list of what has no counterpart.
//!
//! Text in, text out: no I/O. Files that a configuration includes come through [`Files`].
//!
//! ```text
//! nginx.conf ─┐
//! haproxy.cfg ┼─▶ Config (listeners, routes, upstreams, notes) ─▶ TOML and notes
//! envoy.yaml ─┤      one model                                      printed in one place
//! nutcracker ─┤
//! unleash-edge┤
//! pgbouncer ──┘
//! ```
//!
//! | module | concept |
//! |---|---|
//! | `note` | a place in a file, a note, a mistake |
//! | `toml` | values and tables, and their text |
//! | `model` | listeners, domains, routes, upstreams; names; the printed file |
//! | `address` | addresses of servers |
//! | `field` | changes of header fields |
//! | `quantity` | durations and sizes in the notations of the other programs |
//! | `hosts` | the hosts for which a rule must be looked at |
//! | `order` | rules of which the first match counts, as routes of which the most specific one counts |
//! | `overlap` | whether one of two routes takes requests of the other, and which is tried first |
//! | `paths` | paths and regular expressions as a route can have them |
//! | `yaml` | YAML and JSON as a tree with lines |
//! | `nginx`, `haproxy`, `envoy`, `twemproxy`, `pgbouncer`, `unleash_edge` | one format each |
//!
//! A directive without a counterpart becomes a note, and is never dropped silently. A mistake in the input is an error with its
//! file and line.
#![forbid(unsafe_code)]

mod address;
mod envoy;
mod field;
mod haproxy;
mod hosts;
mod model;
mod nginx;
mod note;
mod order;
mod overlap;
mod paths;
mod pgbouncer;
mod quantity;
mod toml;
mod twemproxy;
mod unleash_edge;
mod yaml;

pub use note::{Mistake, Note, SourceLine};

/// A program whose configuration can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `nginx.conf`, or a file with `server` blocks alone.
    Nginx,
    /// `haproxy.cfg`.
    Haproxy,
    /// A bootstrap in YAML or JSON, with static resources.
    Envoy,
    /// `nutcracker.yml`.
    Twemproxy,
    /// `pgbouncer.ini`, with its `auth_file`.
    Pgbouncer,
    /// A command line of Unleash Edge, a word in each line, behind its environment as `NAME=value`.
    UnleashEdge,
}

impl Format {
    /// The name of the program.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Envoy => "envoy",
            Self::Twemproxy => "twemproxy",
            Self::Pgbouncer => "pgbouncer",
            Self::UnleashEdge => "unleash-edge",
        }
    }
}

/// The files that a configuration includes or names.
pub trait Files {
    /// The files that `pattern` names, in the order of their names, each as its name and its text. A relative pattern starts at the
    /// directory of the imported file, or at the one above if nothing is there. A pattern without `*`, `?` and `[` names one file, which must be there.
    ///
    /// # Errors
    /// Why they cannot be read, or that all files together are too many or too large.
    fn matching(&self, pattern: &str) -> Result<Vec<(String, String)>, String>;
}

/// The result of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The text of a `weir.toml`.
    pub toml: String,
    /// Input without a counterpart, in its order.
    pub notes: Vec<Note>,
}

/// Reads `text`, the contents of the file called `name`.
///
/// # Errors
/// The first mistake in the input, with its file and line.
pub fn import(format: Format, name: &str, text: &str, files: &dyn Files) -> Result<Imported, Mistake> {
    let config = match format {
        Format::Nginx => nginx::read(name, text, files)?,
        Format::Haproxy => haproxy::read(name, text)?,
        Format::Envoy => envoy::read(name, text)?,
        Format::Twemproxy => twemproxy::read(name, text)?,
        Format::Pgbouncer => pgbouncer::read(name, text, files)?,
        Format::UnleashEdge => unleash_edge::read(name, text)?,
    };
    Ok(config.finish(format.name(), name))
}
