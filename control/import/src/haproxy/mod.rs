//! HAProxy: frontends, backends and what holds for all.
//!
//! | file | concept |
//! |---|---|
//! | `syntax` | lines, sections, and what they inherit |
//! | `acl` | conditions |
//! | `frontend` | binds become listeners |
//! | `rules` | `use_backend`, `http-request` and `redirect` become routes |
//! | `target` | where a request ends: a redirect, a response, a backend |
//! | `common` | changes that a section makes to all of its requests |
//! | `headers` | changes of headers, and their values |
//! | `backend` | servers become upstreams |
//! | `unknown` | why a line has no counterpart |

mod acl;
mod backend;
mod common;
mod frontend;
mod headers;
mod rules;
mod syntax;
mod target;
mod unknown;

use std::collections::{HashMap, HashSet};

use self::syntax::{Line, Section};
use crate::model::{Config, Names};
use crate::note::{Mistake, SourceLine};
use crate::quantity::haproxy_time;
use crate::toml::Value;

/// A conversion under way.
struct Importer<'s> {
    sections: &'s [Section],
    config: Config,
    listener_names: Names,
    route_names: Names,
    upstream_names: Names,
    /// Upstreams that have been made, by backend; `None`: it has no server in use.
    made: HashMap<&'s str, Option<String>>,
    /// Backends that a rule names.
    named: HashSet<&'s str>,
}

/// Reads a configuration.
pub(crate) fn read(name: &str, text: &str) -> Result<Config, Mistake> {
    let sections = syntax::parse(name, text)?;
    let mut importer = Importer {
        sections: &sections,
        config: Config::default(),
        listener_names: Names::default(),
        route_names: Names::default(),
        upstream_names: Names::default(),
        made: HashMap::new(),
        named: HashSet::new(),
    };
    for section in &sections {
        match section.kind.as_str() {
            "global" => section.lines.iter().try_for_each(|line| importer.global(line))?,
            "frontend" | "listen" => importer.frontend(section)?,
            "defaults" | "backend" => {}
            _ => {
                let text = format!("{} {}", section.kind, section.name);
                let note = crate::Note::new(&section.place, text.trim_end(), "the section has no counterpart", "");
                importer.config.notes.push(note);
            }
        }
    }
    importer.note_the_rest();
    if importer.config.listeners.is_empty() {
        let place = SourceLine { file: name.into(), line: 1 };
        return Err(Mistake::new(&place, "there is no frontend or listen with an address that could be imported"));
    }
    Ok(importer.config)
}

impl<'s> Importer<'s> {
    fn global(&mut self, line: &Line) -> Result<(), Mistake> {
        let number =
            || line.word(1).parse::<u64>().map_err(|_| line.mistake(format!("`{}` needs a number", line.text())));
        match line.word(0) {
            "maxconn" => self.config.process.set("limits.connections", Value::Number(number()?)),
            "nbthread" => self.config.process.set("runtime.workers", Value::Number(number()?)),
            _ => self.config.notes.extend(unknown::note(line, unknown::Context::Global)),
        }
        Ok(())
    }

    /// Lines of defaults, and of backends that nothing names.
    fn note_the_rest(&mut self) {
        for section in self.sections {
            match section.kind.as_str() {
                "defaults" => {
                    let notes = section.lines.iter().filter_map(|line| unknown::note(line, unknown::Context::Defaults));
                    self.config.notes.extend(notes);
                }
                "backend" if !self.named.contains(section.name.as_str()) => {
                    let text = format!("backend {}", section.name);
                    self.config.notes.push(crate::Note::new(&section.place, text, "no rule sends requests to it", ""));
                }
                _ => {}
            }
        }
    }
}

/// The microseconds of `timeout NAME` as it holds in a section.
fn timeout(section: &Section, name: &str) -> Result<Option<u64>, Mistake> {
    let Some(line) = section.find(&format!("timeout {name}")) else { return Ok(None) };
    let wrong = || line.mistake(format!("`{}` is no time: write it as 30s or 500ms", line.text()));
    haproxy_time(line.word(2)).ok_or_else(wrong).map(Some)
}

/// A limit of time in microseconds. HAProxy has none where it is 0 or not written: then it is the longest.
fn limit(time: Option<u64>, least: u64, most: u64) -> Value {
    Value::micros(time.filter(|time| *time > 0).map_or(most, |time| time.clamp(least, most)))
}
