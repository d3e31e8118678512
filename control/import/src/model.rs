//! The common form of all formats: listeners, routes and upstreams. It is printed here and nowhere else.

use std::collections::HashSet;
use std::fmt::Write as _;

use crate::note::{Note, SourceLine};
use crate::toml::{Table, Value};
use crate::{Imported, paths};

/// Bytes of a name in `weir.toml`.
const NAME_BYTES_MAX: usize = 64;

/// Columns of a comment.
const COMMENT_COLUMNS: usize = 120;

/// The upstream of a listener whose routes leave nothing to it, and of server names that have no server.
pub(crate) const NOWHERE: &str = "nowhere";

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Redis,
    Postgres,
    Http,
    Tcp,
    /// TLS that is passed on unopened, by its server name.
    Tls,
    Flags,
}

impl Protocol {
    const fn word(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::Http => "http",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Flags => "flags",
        }
    }
}

/// A bound address.
#[derive(Clone, Debug)]
pub(crate) struct Listener {
    pub(crate) name: String,
    pub(crate) bind: String,
    pub(crate) protocol: Protocol,
    /// Empty: its routes take every request, or its flags come from a file.
    pub(crate) upstream: String,
    /// Further keys and tables.
    pub(crate) more: Table,
    pub(crate) notes: Vec<Note>,
}

/// A server, or several that do the same.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    pub(crate) name: String,
    pub(crate) endpoints: Vec<String>,
    pub(crate) more: Table,
    pub(crate) notes: Vec<Note>,
    /// Where it is defined, or first named.
    pub(crate) place: SourceLine,
}

impl Upstream {
    /// An upstream without endpoints.
    pub(crate) fn new(name: String, place: &SourceLine) -> Self {
        Self { name, endpoints: Vec::new(), more: Table::default(), notes: Vec::new(), place: place.clone() }
    }
}

/// The paths of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathMatch {
    Any,
    Exact(String),
    /// By whole segments.
    Segments(String),
    /// As text.
    Prefix(String),
    Regex(String),
}

impl PathMatch {
    /// The key of the route and its value; `None` for all paths.
    fn key(&self) -> Option<(&'static str, String)> {
        Some(match self {
            Self::Any => return None,
            Self::Exact(path) => ("path", paths::encoded(path)),
            Self::Segments(path) => ("path_prefix", paths::encoded(path)),
            Self::Prefix(path) => ("path_string_prefix", paths::encoded(path)),
            Self::Regex(regex) => ("path_regex", regex.clone()),
        })
    }
}

/// Where the requests of a route go.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    Upstream(String),
    Split(Vec<(String, u64)>),
    /// The keys of a redirect.
    Redirect(Vec<(String, Value)>),
    /// The keys of a response.
    Response(Vec<(String, Value)>),
}

impl Target {
    /// A response with this status and no body.
    pub(crate) fn status(status: u64) -> Self {
        Self::Response(vec![("status".to_owned(), Value::Number(status))])
    }
}

/// A rule of HTTP listeners.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Route {
    pub(crate) name: String,
    pub(crate) listeners: Vec<String>,
    /// Empty: all.
    pub(crate) hosts: Vec<String>,
    pub(crate) path: PathMatch,
    /// Empty: all.
    pub(crate) methods: Vec<String>,
    /// Conditions on headers and on the query: `header`, `query`.
    pub(crate) conditions: Vec<(&'static str, Value)>,
    pub(crate) target: Target,
    /// Further keys.
    pub(crate) more: Table,
    pub(crate) notes: Vec<Note>,
}

impl Route {
    /// A route for all requests.
    pub(crate) fn new(name: String, target: Target) -> Self {
        Self {
            name,
            listeners: Vec::new(),
            hosts: Vec::new(),
            path: PathMatch::Any,
            methods: Vec::new(),
            conditions: Vec::new(),
            target,
            more: Table::default(),
            notes: Vec::new(),
        }
    }

    fn table(&self) -> Table {
        let mut table = Table::default();
        table.set("name", Value::text(&self.name));
        if !self.listeners.is_empty() {
            table.set("listeners", Value::texts(&self.listeners));
        }
        if !self.hosts.is_empty() {
            table.set("hosts", Value::texts(&self.hosts));
        }
        if self.hosts.iter().any(|host| host.starts_with("*.")) {
            // The stars of all four programs stand for any number of labels.
            table.set("wildcard", Value::text("many"));
        }
        if let Some((key, value)) = self.path.key() {
            table.set(key, Value::Text(value));
        }
        if !self.methods.is_empty() {
            table.set("methods", Value::texts(&self.methods));
        }
        for kind in ["header", "query"] {
            let own = self.conditions.iter().filter(|(of, _)| *of == kind);
            let list: Vec<Value> = own.map(|(_, value)| value.clone()).collect();
            if !list.is_empty() {
                table.set(kind, Value::List(list));
            }
        }
        match &self.target {
            Target::Upstream(name) => table.set("upstream", Value::text(name)),
            Target::Split(shares) => {
                let share = |(name, weight): &(String, u64)| {
                    Value::inline([("upstream", Value::text(name)), ("weight", Value::Number(*weight))])
                };
                table.set("split", Value::List(shares.iter().map(share).collect()));
            }
            Target::Redirect(keys) => table.set("redirect", Value::Inline(keys.clone())),
            Target::Response(keys) => table.set("response", Value::Inline(keys.clone())),
        }
        table
    }
}

/// All of a configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    /// Keys of the process: `limits.connections`, `telemetry.access_log.target`.
    pub(crate) process: Table,
    pub(crate) listeners: Vec<Listener>,
    /// The keys that some routes share.
    pub(crate) domains: Vec<Table>,
    pub(crate) routes: Vec<Route>,
    pub(crate) upstreams: Vec<Upstream>,
    /// Notes on what belongs to no listener, route or upstream.
    pub(crate) notes: Vec<Note>,
}

impl Config {
    /// The file, and all notes in the order of the input.
    pub(crate) fn finish(mut self, program: &str, source: &str) -> Imported {
        self.give_upstreams(source);
        self.remove_unused();
        let mut out = format!("# Imported from {source} ({program}) by `weir import {program}`.\n");
        out.push_str("# Lines with `note:` say what has no counterpart. Next: weir check weir.toml\n");
        comments(&self.notes, &mut out);
        let mut process = String::new();
        self.process.print("", &mut process);
        if !process.is_empty() {
            out.push('\n');
            out.push_str(process.trim_start_matches('\n'));
        }
        for listener in &self.listeners {
            out.push('\n');
            comments(&listener.notes, &mut out);
            let _ = writeln!(out, "[[listener]]");
            let mut table = Table::default();
            table.set("name", Value::text(&listener.name));
            table.set("protocol", Value::text(listener.protocol.word()));
            table.set("bind", Value::text(&listener.bind));
            if !listener.upstream.is_empty() {
                table.set("upstream", Value::text(&listener.upstream));
            }
            table.print("listener", &mut out);
            listener.more.print("listener", &mut out);
        }
        for domain in &self.domains {
            let _ = writeln!(out, "\n[[domain]]");
            domain.print("domain", &mut out);
        }
        for route in &self.routes {
            out.push('\n');
            comments(&route.notes, &mut out);
            let _ = writeln!(out, "[[route]]");
            route.table().print("route", &mut out);
            route.more.print("route", &mut out);
        }
        for upstream in &self.upstreams {
            out.push('\n');
            comments(&upstream.notes, &mut out);
            let _ = writeln!(out, "[[upstream]]");
            let mut table = Table::default();
            table.set("name", Value::text(&upstream.name));
            table.set("endpoints", Value::texts(&upstream.endpoints));
            table.print("upstream", &mut out);
            upstream.more.print("upstream", &mut out);
        }
        Imported { toml: out, notes: self.all_notes() }
    }

    /// A listener needs an upstream, also if its routes take all requests.
    fn give_upstreams(&mut self, source: &str) {
        let names_it =
            |listener: &Listener| listener.more.texts_of("server_name", "upstream").iter().any(|to| to == NOWHERE);
        let mut is_needed = self.listeners.iter().any(names_it);
        let lacks_one = |listener: &&mut Listener| listener.upstream.is_empty() && listener.protocol != Protocol::Flags;
        for listener in self.listeners.iter_mut().filter(lacks_one) {
            let target = |route: &Route| match &route.target {
                Target::Upstream(name) => Some(name.clone()),
                _ => None,
            };
            let own = || self.routes.iter().filter(|route| route.listeners.contains(&listener.name));
            let is_for_all = |route: &&Route| {
                route.path == PathMatch::Any && (route.hosts.is_empty() || route.hosts.iter().any(|host| host == "*"))
            };
            let of_all = own().filter(is_for_all).find_map(target);
            listener.upstream = of_all.or_else(|| own().find_map(target)).unwrap_or_else(|| {
                is_needed = true;
                NOWHERE.to_owned()
            });
        }
        if is_needed {
            let mut nowhere = Upstream::new(NOWHERE.to_owned(), &SourceLine { file: source.into(), line: 1 });
            nowhere.more.set("health.enabled", Value::Flag(false));
            // Port 9 is that of the discard service: nothing is there.
            nowhere.endpoints.push("127.0.0.1:9".to_owned());
            self.upstreams.push(nowhere);
        }
    }

    /// Upstreams whose rules take no request, because others do.
    fn remove_unused(&mut self) {
        let mut used: HashSet<String> = self.listeners.iter().map(|listener| listener.upstream.clone()).collect();
        used.extend(self.listeners.iter().flat_map(|listener| listener.more.texts_of("server_name", "upstream")));
        let of_databases = |listener: &Listener| match listener.more.get_table("postgres") {
            Some(table) => table.texts_of("database", "upstream"),
            None => Vec::new(),
        };
        used.extend(self.listeners.iter().flat_map(of_databases));
        let of_backups = |listener: &Listener| match listener.more.get("flags.backup_s3.upstream") {
            Some(Value::Text(name)) => Some(name.clone()),
            _ => None,
        };
        used.extend(self.listeners.iter().filter_map(of_backups));
        for route in &self.routes {
            match &route.target {
                Target::Upstream(name) => used.extend([name.clone()]),
                Target::Split(shares) => used.extend(shares.iter().map(|(name, _)| name.clone())),
                Target::Redirect(_) | Target::Response(_) => {}
            }
        }
        let (kept, unused) = std::mem::take(&mut self.upstreams).into_iter().partition(|one| used.contains(&one.name));
        self.upstreams = kept;
        for one in unused {
            let why = "nothing that was imported sends requests to it; it is left out";
            self.notes.push(Note::new(&one.place, one.name, why, ""));
        }
    }

    fn all_notes(self) -> Vec<Note> {
        let mut notes = self.notes;
        notes.extend(self.listeners.into_iter().flat_map(|listener| listener.notes));
        notes.extend(self.routes.into_iter().flat_map(|route| route.notes));
        notes.extend(self.upstreams.into_iter().flat_map(|upstream| upstream.notes));
        notes.sort_by(|one, other| one.place.cmp(&other.place));
        notes.dedup();
        notes
    }
}

/// Notes as comments, in lines of a bounded length.
fn comments(notes: &[Note], out: &mut String) {
    for note in notes {
        let text = format!("note: {note}");
        let mut line = String::from("#");
        // Control characters of the input would end the comment.
        for word in text.split_whitespace() {
            if line.len() > 1 && line.len() + word.len() + 1 > COMMENT_COLUMNS {
                let _ = writeln!(out, "{}", line);
                line = String::from("#  ");
            }
            line.push(' ');
            line.extend(word.chars().filter(|c| !c.is_control()));
        }
        let _ = writeln!(out, "{line}");
    }
}

/// Names that are in use, of one kind.
#[derive(Debug, Default)]
pub(crate) struct Names(HashSet<String>);

impl Names {
    /// A name like `wanted` that is allowed and not in use.
    pub(crate) fn unique(&mut self, wanted: &str) -> String {
        let mut base = String::new();
        for c in wanted.chars() {
            let is_allowed = c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            match is_allowed {
                true => base.push(c),
                false if base.is_empty() || base.ends_with('-') => {}
                false => base.push('-'),
            }
        }
        // Room for a number behind it.
        base.truncate(NAME_BYTES_MAX - 6);
        let base = match base.trim_end_matches('-') {
            "" => "unnamed",
            text => text,
        };
        let numbered = (2..).map(|number| format!("{base}-{number}"));
        let mut candidates = std::iter::once(base.to_owned()).chain(numbered);
        let name =
            candidates.find(|name| *name != NOWHERE && !self.0.contains(name)).unwrap_or_else(|| base.to_owned());
        self.0.insert(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_allowed_and_unique() {
        let mut names = Names::default();
        assert_eq!(names.unique("shop.example.com/cart (new)"), "shop.example.com-cart-new");
        assert_eq!(names.unique("a b"), "a-b");
        assert_eq!(names.unique("a/b"), "a-b-2");
        assert_eq!(names.unique("///"), "unnamed");
        assert_eq!(names.unique(NOWHERE), "nowhere-2");
        assert!(names.unique(&"x".repeat(200)).len() <= NAME_BYTES_MAX);
    }

    #[test]
    fn a_listener_without_an_upstream_gets_one_and_the_comment_of_a_note_is_wrapped() {
        let place = crate::SourceLine { file: "a.conf".into(), line: 3 };
        let note = Note::new(&place, "x y", "word ".repeat(40), "nothing\nelse");
        let listener = Listener {
            name: "web".into(),
            bind: "127.0.0.1:80".into(),
            protocol: Protocol::Http,
            upstream: String::new(),
            more: Table::default(),
            notes: vec![note],
        };
        let imported = Config { listeners: vec![listener], ..Config::default() }.finish("nginx", "a.conf");
        assert!(imported.toml.contains("upstream = \"nowhere\"") && imported.toml.contains("\"127.0.0.1:9\""));
        assert!(imported.toml.lines().all(|line| line.len() <= COMMENT_COLUMNS + 3), "{}", imported.toml);
        assert!(imported.toml.contains("nothing else\n"), "{}", imported.toml);
        assert_eq!(imported.notes.len(), 1);
    }
}
