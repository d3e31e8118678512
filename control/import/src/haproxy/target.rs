//! Where a request ends: a redirect, a response, a backend.

use super::acl::{self, Acls};
use super::common::{Common, Keys, holds_always};
use super::syntax::{Line, Section};
use super::{Importer, limit, timeout, unknown};
use crate::model::{PathMatch, Route, Target};
use crate::note::Mistake;
use crate::paths;
use crate::toml::{Table, Value};

/// Status of a backend without a server, as HAProxy has it.
pub(super) const UNAVAILABLE: u64 = 503;

/// Status of what cannot be said (RFC 9110 section 15.6.2).
const UNSERVED: u64 = 501;

/// Microseconds of a day.
const DAY: u64 = 86_400_000_000;

/// Whether a rule refuses requests.
pub(super) fn is_refusal(words: &[String]) -> bool {
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    word(0) == "http-request" && matches!(word(1), "deny" | "reject" | "tarpit" | "silent-drop")
}

/// Whether a rule refuses requests, or sends a response that says so.
pub(super) fn is_closing(words: &[String]) -> bool {
    let status = words.iter().position(|word| word == "status").and_then(|at| words.get(at + 1)?.parse().ok());
    is_refusal(words)
        || words.iter().take(2).eq(["http-request", "return"]) && status.is_some_and(|code: u64| code >= 400)
}

pub(super) fn is_rule(line: &Line) -> bool {
    matches!(line.word(0), "http-request" | "http-response" | "use_backend" | "redirect")
}

impl<'s> Importer<'s> {
    /// The end of a request: a redirect, a refusal, a response, a backend. `None`: the rule changes something and goes on.
    pub(super) fn terminal(
        &mut self,
        words: &[String],
        line: &Line,
        has_tls: bool,
    ) -> Result<Option<(Target, Table)>, Mistake> {
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let plain = |target| Ok(Some((target, Table::default())));
        match (word(0), word(1)) {
            ("use_backend", name) => {
                if name.contains("%[") {
                    return plain(Target::status(UNAVAILABLE));
                }
                self.backend_target(name, line, has_tls).map(Some)
            }
            _ if is_refusal(words) => {
                let default = if word(1) == "tarpit" { 500 } else { 403 };
                let given = words.iter().position(|word| matches!(word.as_str(), "deny_status" | "status"));
                let status = given.and_then(|at| words.get(at + 1)).and_then(|text| text.parse().ok());
                plain(Target::status(status.unwrap_or(default)))
            }
            ("http-request", "return") => {
                let unsaid = ["file", "lf-file", "lf-string", "errorfile", "errorfiles", "default-errorfiles", "hdr"];
                if let Some(word) = words.iter().find(|word| unsaid.contains(&word.as_str())) {
                    let why = format!("`{word}` has no counterpart: a response has a fixed text and its type");
                    self.config.notes.push(line.note(&why, "[route.response]"));
                }
                plain(Target::Response(response(words)))
            }
            ("http-request", "redirect") | ("redirect", _) => {
                self.redirect(words, line).map(|target| Some((target, Table::default())))
            }
            _ => Ok(None),
        }
    }

    /// A redirect, or 501 if it leads to an address that cannot be said, which is noted.
    fn redirect(&mut self, words: &[String], line: &Line) -> Result<Target, Mistake> {
        let Some(keys) = redirect(words) else {
            return Err(line.mistake(format!("`{}` is no redirect: write scheme, location or prefix", line.text())));
        };
        let has = |word: &str| words.iter().any(|own| own == word);
        let is_odd = |(key, value): &(String, Value)| {
            key.starts_with("path") && matches!(value, Value::Text(path) if path.contains(['?', '#']))
        };
        if keys.iter().any(is_odd) {
            let why = "the address of a redirect has no query of its own; the route responds with 501";
            self.config.notes.push(line.note(why, "[route.redirect]"));
            return Ok(Target::status(UNSERVED));
        }
        if has("location") && !has("keep-query") || has("drop-query") {
            self.config.notes.push(line.note("a redirect keeps the query of the request", "[route.redirect]"));
        }
        if ["set-cookie", "clear-cookie", "append-slash"].iter().any(|word| has(word)) {
            self.config.notes.push(line.note("a redirect sets no cookie, and adds no slash", "[route.redirect]"));
        }
        Ok(Target::Redirect(keys))
    }

    /// A backend as the target of a route, with the keys that the route has from it.
    pub(super) fn backend_target(
        &mut self,
        name: &str,
        line: &Line,
        has_tls: bool,
    ) -> Result<(Target, Table), Mistake> {
        let backend = self.find_backend(name, line)?;
        self.named.insert(&backend.name);
        let mut more = Table::default();
        if let Some(target) = self.own_end(backend, has_tls)? {
            return Ok((target, more));
        }
        let upstream = self.backend(backend, true)?;
        let time = limit(timeout(backend, "server")?, 1_000, DAY);
        more.set("response_timeout", time.clone());
        more.set("response_idle_timeout", time);
        self.backend_rules(backend, &mut more);
        Ok(match upstream {
            Some(upstream) => (Target::Upstream(upstream), more),
            None => (Target::status(UNAVAILABLE), Table::default()),
        })
    }

    /// The response or redirect of a backend for all of its requests, which then do not get to its servers.
    fn own_end(&mut self, backend: &'s Section, has_tls: bool) -> Result<Option<Target>, Mistake> {
        if backend.kind != "backend" {
            return Ok(None);
        }
        let acls = Acls::of(backend);
        // `redirect` comes after all of `http-request`.
        for kind in ["http-request", "redirect"] {
            for line in backend.all(kind) {
                let (words, condition) = acl::split_condition(line);
                let always = match condition {
                    None => Some(true),
                    Some((keyword, words)) => {
                        acls.condition(keyword, words).ok().and_then(|condition| holds_always(&condition, has_tls))
                    }
                };
                if always != Some(true) {
                    continue;
                }
                let Some((mut target, _)) = self.terminal(words, line, has_tls)? else { continue };
                if line.text().contains("%[") {
                    let why = "an address is not computed from the request; the route responds with 501";
                    self.config.notes.push(line.note(why, "[route.redirect]"));
                    target = Target::status(UNSERVED);
                }
                let others = backend.lines.iter().filter(|other| other.place != line.place);
                let note = |other: &Line| match is_rule(other) && acl::split_condition(other).1.is_some() {
                    true => Some(other.note("rules of a backend have no condition here", "a [[route]]")),
                    false => unknown::note(other, unknown::Context::Backend),
                };
                self.config.notes.extend(others.filter_map(note));
                return Ok(Some(target));
            }
        }
        Ok(None)
    }

    /// Changes by the rules of a backend to requests that go there.
    fn backend_rules(&mut self, backend: &'s Section, more: &mut Table) {
        let mut common = Common::default();
        if backend.kind == "backend" {
            for line in backend.lines.iter().filter(|line| is_rule(line)) {
                let (words, condition) = acl::split_condition(line);
                match condition {
                    None => common.read(words, line, &vec![Vec::new()], false),
                    Some(_) => common.notes.push(line.note("rules of a backend have no condition here", "a [[route]]")),
                }
            }
        }
        for note in common.notes.drain(..) {
            if !self.config.notes.contains(&note) {
                self.config.notes.push(note);
            }
        }
        let mut route = Route::new(String::new(), Target::status(UNAVAILABLE));
        route.target = Target::Upstream(String::new());
        common.give(&mut route);
        for key in ["request_header", "response_header", "rewrite"] {
            if let Some(value) = route.more.get(key) {
                more.set(key, value.clone());
            }
        }
        if let Some(retry) = retry(backend) {
            more.set("retry", retry);
        }
    }
}

/// The keys of `http-request return status 200 content-type X string Y`.
fn response(words: &[String]) -> Keys {
    let option = |name: &str| words.iter().position(|word| word == name).and_then(|at| words.get(at + 1));
    let status = option("status").and_then(|text| text.parse().ok()).unwrap_or(200);
    let mut keys = vec![("status".to_owned(), Value::Number(status))];
    if let Some(body) = option("string").or_else(|| option("lf-string")) {
        keys.push(("body".to_owned(), Value::text(body)));
    }
    if let Some(kind) = option("content-type") {
        keys.push(("content_type".to_owned(), Value::text(kind)));
    }
    keys
}

/// The keys of a redirect; `None`: it is none.
fn redirect(words: &[String]) -> Option<Keys> {
    let option = |name: &str| words.iter().position(|word| word == name).and_then(|at| words.get(at + 1));
    let status = option("code").and_then(|text| text.parse().ok()).unwrap_or(302);
    let mut keys = vec![("status".to_owned(), Value::Number(status))];
    let mut set = |key: &str, value: Value| keys.push((key.to_owned(), value));
    if let Some(scheme) = option("scheme") {
        set("scheme", Value::text(scheme));
        return Some(keys);
    }
    let (url, is_prefix) = match option("location") {
        Some(url) => (url, false),
        None => (option("prefix")?, true),
    };
    let path = match url.split_once("://") {
        None => url.as_str(),
        Some((scheme, rest)) => {
            let at = rest.find('/').unwrap_or(rest.len());
            set("scheme", Value::text(scheme));
            match rest[..at].rsplit_once(':') {
                Some((host, port)) => {
                    set("host", Value::text(host));
                    set("port", Value::Number(port.parse().ok()?));
                }
                None => set("host", Value::text(&rest[..at])),
            }
            &rest[at..]
        }
    };
    match (path, is_prefix) {
        ("" | "/", true) => {}
        ("", false) => set("path", Value::text("/")),
        // A prefix stands in front of the whole path.
        (path, true) => set("path_prefix", Value::text(format!("{}/", path.trim_end_matches('/')))),
        (path, false) => set("path", Value::text(paths::encoded(path))),
    }
    Some(keys)
}

/// Turns a redirect that puts text in front of the whole path into one that replaces the prefix of the route: by the text
/// and that prefix.
///
/// # Errors
/// Why there is no such prefix.
pub(super) fn with_prefix(route: &mut Route) -> Result<(), &'static str> {
    let Target::Redirect(keys) = &mut route.target else { return Ok(()) };
    let Some((key, Value::Text(front))) = keys.iter_mut().find(|(key, _)| key == "path_prefix") else { return Ok(()) };
    let path = match &route.path {
        PathMatch::Any => "/",
        PathMatch::Prefix(path) | PathMatch::Segments(path) => path,
        PathMatch::Exact(path) => {
            "path".clone_into(key);
            path
        }
        PathMatch::Regex(_) => return Err("the prefix that a regex matches is not known"),
    };
    *front = format!("{}{}", front.trim_end_matches('/'), paths::encoded(path));
    if route.path == PathMatch::Any {
        route.path = PathMatch::Prefix("/".to_owned());
    }
    Ok(())
}

/// `retry-on` and `retries`.
fn retry(backend: &Section) -> Option<Value> {
    let on = backend.find("retry-on");
    let retries = backend.find("retries").and_then(|line| line.word(1).parse::<u64>().ok());
    let mut entries: Keys = Vec::new();
    if let Some(count) = retries {
        entries.push(("attempts".to_owned(), Value::Number(count.min(10))));
    }
    if let Some(line) = on.filter(|_| retries != Some(0)) {
        let (mut words, mut statuses) = (Vec::new(), Vec::new());
        for word in line.words.iter().skip(1) {
            match word.as_str() {
                "conn-failure" => words.push("connect_failure"),
                "empty-response" | "junk-response" => words.push("reset"),
                "response-timeout" => words.push("timeout"),
                "0rtt-rejected" => {}
                "all-retryable-errors" => words.extend(["connect_failure", "reset", "timeout", "gateway_error"]),
                code => statuses.extend(code.parse().map(Value::Number)),
            }
        }
        words.sort_unstable();
        words.dedup();
        entries.push(("on".to_owned(), Value::texts(words)));
        if !statuses.is_empty() {
            entries.push(("statuses".to_owned(), Value::List(statuses)));
        }
    }
    (!entries.is_empty()).then_some(Value::Inline(entries))
}
