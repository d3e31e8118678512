//! Keys that only some protocols use. A key without effect is worse than none: a user relies on it.

use crate::protocols::{KeyNames, ProtocolName, Row, Unfit, UnfitKeys};
use crate::reader::Reader;
use crate::section::Section;
use crate::sections::{ListenerSection, UpstreamSection};

/// Keys of a listener that say how much it carries. They have no effect where the lab measures nothing.
const KNEE: [&str; 3] = ["knee", "knee_warn", "knee_action"];

/// Checks a listener.
pub(super) fn listener(section: &ListenerSection, path: &str, reader: &mut Reader<'_>) {
    if let Some(protocol) = &section.protocol {
        let table = Table {
            keys: |row| row.listener_keys,
            unfit: |row| row.unfit_at_listener,
            shared: |row| row.shared_listener_keys,
            has_knee: true,
        };
        table.refuse(section, protocol.value, path, reader);
    }
}

/// Checks an upstream whose listeners and routes speak `protocol`.
pub(super) fn upstream(section: &UpstreamSection, protocol: ProtocolName, path: &str, reader: &mut Reader<'_>) {
    let table = Table {
        keys: |row| row.upstream_keys,
        unfit: |row| row.unfit_at_upstream,
        shared: |row| row.shared_upstream_keys,
        has_knee: false,
    };
    table.refuse(section, protocol, path, reader);
}

/// One of the tables that every protocol has, and some keys of which only one has.
struct Table {
    keys: fn(&Row) -> KeyNames,
    unfit: fn(&Row) -> UnfitKeys,
    /// Keys of other protocols that have an effect.
    shared: fn(&Row) -> &'static [&'static str],
    has_knee: bool,
}

impl Table {
    /// Reports what is written and has no effect, each table once.
    fn refuse(&self, section: &impl Section, protocol: ProtocolName, path: &str, reader: &mut Reader<'_>) {
        let mut given = Vec::new();
        section.given("", &mut given);
        let mut refused = "";
        for key in &given {
            let (top, _) = key.path.split_once('.').unwrap_or((&key.path, ""));
            let Some(help) = self.remedy(top, protocol).filter(|_| top != refused) else { continue };
            refused = top;
            let path = format!("{path}.{}", key.path);
            let names = ProtocolName::ALL.iter().filter(|other| self.remedy(top, **other).is_none());
            let owners = titles(names.copied());
            let have = if owners.contains(" and ") { "use" } else { "uses" };
            let message = format!("`{path}` has no effect: only {owners} {have} it");
            reader.problems.error(&key.span, &path, message, help);
        }
    }

    /// The remedy for a key that has no effect for `protocol`; `None`: the key has an effect.
    fn remedy(&self, key: &str, protocol: ProtocolName) -> Option<String> {
        let row = protocol.row();
        if let Some(Unfit(_, help)) = (self.unfit)(&row)(protocol).iter().find(|Unfit(keys, _)| keys.contains(&key)) {
            return Some((*help).to_owned());
        }
        if (self.shared)(&row).contains(&key) {
            return None;
        }
        if self.has_knee && row.scenarios.is_empty() && KNEE.contains(&key) {
            return Some("remove it; connections_max limits the connections of the listener".to_owned());
        }
        let has = |row: &Row| {
            let mut names = Vec::new();
            (self.keys)(row)(&mut names);
            names.contains(&key)
        };
        let owner = ProtocolName::ALL.iter().find(|other| has(&other.row()))?;
        (owner.row().names != row.names).then(|| format!("remove it, or write protocol = \"{owner}\""))
    }
}

/// Protocols in words: `Redis, HTTP and TCP`.
pub(super) fn titles(names: impl Iterator<Item = ProtocolName>) -> String {
    let titles: Vec<&str> = names.map(ProtocolName::title).collect();
    match titles.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}
