//! Rules: `http-request`, `redirect`, `use_backend` and `default_backend`, in the order in which HAProxy looks at them.

use super::acl::{self, Acls, Condition, Test};
use super::syntax::{Line, Section};
use super::{Importer, headers, timeout, unknown};
use crate::model::{PathMatch, Route, Target};
use crate::note::{Mistake, Note};
use crate::order::{Rule, first_match, spread_hosts};
use crate::toml::{Table, Value};

/// What a backend answers without a server: HAProxy's status.
const UNAVAILABLE: u64 = 503;

/// Microseconds of a day.
const DAY: u64 = 86_400_000_000;

/// Server names of TLS, and the upstream of each list.
type ByName = Vec<(Vec<String>, String)>;

/// Keys of an inline table.
type Keys = Vec<(String, Value)>;

/// What all routes of a frontend have, on listeners with or without TLS.
#[derive(Default)]
struct Common {
    request: Vec<Value>,
    response: Vec<Value>,
    rewrite: Keys,
    notes: Vec<Note>,
}

impl<'s> Importer<'s> {
    /// The routes of an HTTP frontend on these listeners.
    pub(super) fn routes(&mut self, section: &'s Section, listeners: &[String], has_tls: bool) -> Result<(), Mistake> {
        let acls = Acls::of(section);
        let mut common = Common::default();
        let mut rules: Vec<Rule> = Vec::new();
        for line in section.lines.iter().filter(|line| is_rule(line)) {
            let (words, condition) = acl::split_condition(line);
            let condition = match condition {
                None => vec![Vec::new()],
                Some((keyword, words)) => match acls.condition(keyword, words) {
                    Ok(condition) => condition,
                    Err(why) => {
                        common.notes.push(Note::new(
                            &line.place,
                            line.text(),
                            format!("is left out: {why}"),
                            "conditions of a [[route]]",
                        ));
                        continue;
                    }
                },
            };
            match self.terminal(words, line, section)? {
                Some((Target::Response(_), _)) if by_source(&condition).is_some() => {
                    self.refuse_by_source(&condition, line, listeners, &mut common);
                }
                Some(target) => self.rule(line, &condition, target, has_tls, &mut rules, &mut common),
                None => common.read(words, line, &condition, has_tls),
            }
        }
        // Wherever they stand, `redirect` comes after all of `http-request`, and `use_backend` behind both.
        rules.sort_by_key(|rule| match rule.text.split(' ').next() {
            Some("use_backend") => 2,
            Some("redirect") => 1,
            _ => 0,
        });
        rules.push(self.last(section)?);
        spread_hosts(&mut rules);
        let mut routes = first_match(rules);
        for route in &mut routes {
            common.give(route);
            route.listeners = listeners.to_vec();
            route.name = self.route_names.unique(&name_of(section, route, has_tls));
        }
        if let Some(first) = routes.first_mut() {
            first.notes.append(&mut common.notes);
        }
        self.config.routes.append(&mut routes);
        Ok(())
    }

    /// A refusal by address alone is a filter of the listeners. One of the two lists can be said.
    fn refuse_by_source(&mut self, condition: &Condition, line: &Line, listeners: &[String], common: &mut Common) {
        let Some((key, networks)) = by_source(condition) else { return };
        for listener in self.config.listeners.iter_mut().filter(|one| listeners.contains(&one.name)) {
            let filter = listener.more.table("http").table("ip_filter");
            match filter.is_empty() {
                true => filter.set(key, Value::texts(networks)),
                false => {
                    common.notes.push(line.note("a listener has one list of addresses", "ip_filter of a [[route]]"))
                }
            }
        }
    }

    /// The end of a request: a redirect, a refusal, a response, a backend. `None`: the rule changes something and goes on.
    fn terminal(
        &mut self,
        words: &[String],
        line: &Line,
        section: &'s Section,
    ) -> Result<Option<(Target, Table)>, Mistake> {
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let plain = |target| Ok(Some((target, Table::default())));
        match (word(0), word(1)) {
            ("use_backend", name) => {
                if name.contains("%[") {
                    return plain(Target::status(UNAVAILABLE));
                }
                self.backend_target(name, line, section).map(Some)
            }
            ("http-request", "deny" | "reject" | "tarpit" | "silent-drop") => {
                let default = if word(1) == "tarpit" { 500 } else { 403 };
                let given = words.iter().position(|word| matches!(word.as_str(), "deny_status" | "status"));
                let status = given.and_then(|at| words.get(at + 1)).and_then(|text| text.parse().ok());
                plain(Target::status(status.unwrap_or(default)))
            }
            ("http-request", "return") => plain(Target::Response(response(words))),
            ("http-request", "redirect") | ("redirect", _) => match redirect(words) {
                Some(keys) => plain(Target::Redirect(keys)),
                None => {
                    let message = format!("`{}` is no redirect: write scheme, location or prefix", line.text());
                    Err(line.mistake(message))
                }
            },
            _ => Ok(None),
        }
    }

    fn rule(
        &mut self,
        line: &Line,
        condition: &Condition,
        (target, more): (Target, Table),
        has_tls: bool,
        rules: &mut Vec<Rule>,
        common: &mut Common,
    ) {
        if line.text().contains("%[") {
            let why = "a backend or an address is not computed from the request";
            common.notes.push(Note::new(&line.place, line.text(), why, "a [[route]] for each"));
            return;
        }
        let mut base = Route::new(String::new(), target);
        base.more = more;
        for tests in condition {
            match acl::routes(&base, tests, has_tls) {
                Ok(routes) => rules.extend(routes.into_iter().map(|mut route| {
                    with_prefix(&mut route);
                    Rule { route, place: line.place.clone(), text: line.text() }
                })),
                Err(why) => {
                    let why = format!("is left out: {why}");
                    common.notes.push(Note::new(&line.place, line.text(), why, "conditions of a [[route]], ip_filter"));
                }
            }
        }
    }

    /// The rule behind all others.
    fn last(&mut self, section: &'s Section) -> Result<Rule, Mistake> {
        let default = section.find("default_backend").cloned();
        let ((target, more), place, text) = match default {
            Some(line) => (self.backend_target(line.word(1), &line, section)?, line.place.clone(), line.text()),
            None if section.kind == "listen" => {
                let line =
                    Line { words: vec!["listen".to_owned(), section.name.clone()], place: section.place.clone() };
                (self.backend_target(&section.name, &line, section)?, line.place.clone(), line.text())
            }
            None => ((Target::status(UNAVAILABLE), Table::default()), section.place.clone(), section.name.clone()),
        };
        let mut route = Route::new(String::new(), target);
        route.more = more;
        Ok(Rule { route, place, text })
    }

    /// A backend as the target of a route, with the keys that the route has from it.
    fn backend_target(&mut self, name: &str, line: &Line, _from: &'s Section) -> Result<(Target, Table), Mistake> {
        let is_backend =
            |section: &&Section| matches!(section.kind.as_str(), "backend" | "listen") && section.name == name;
        let Some(backend) = self.sections.iter().find(is_backend) else {
            return Err(line.mistake(format!("there is no backend `{name}`")));
        };
        self.named.insert(&backend.name);
        let mut more = Table::default();
        let has_server = backend.lines.iter().any(|line| line.word(0) == "server");
        if !has_server {
            return Ok((Target::status(UNAVAILABLE), more));
        }
        let upstream = self.backend(backend, true)?;
        if let Some(time) = timeout(backend, "server")? {
            let time = Value::micros(time.clamp(1_000, DAY));
            more.set("response_timeout", time.clone());
            more.set("answer_idle_timeout", time);
        }
        self.backend_rules(backend, &mut more);
        Ok((Target::Upstream(upstream), more))
    }

    /// What the rules of a backend change in requests that go there.
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

    /// Where a TCP frontend sends connections: by server name, and all others.
    pub(super) fn tcp_targets(&mut self, section: &'s Section) -> Result<(ByName, Option<String>), Mistake> {
        let acls = Acls::of(section);
        let mut names = Vec::new();
        for line in section.all("use_backend") {
            let (_, condition) = acl::split_condition(line);
            let tests = condition.map(|(keyword, words)| acls.condition(keyword, words));
            let list = match tests {
                Some(Ok(condition)) => server_names(&condition),
                _ => None,
            };
            match list {
                Some(list) => {
                    let backend = self.find_backend(line.word(1), line)?;
                    names.push((list, self.backend(backend, false)?));
                }
                None => {
                    let note = line
                        .note("connections are sent on by the server name of TLS alone", "[[listener.server_name]]");
                    self.config.notes.push(note);
                }
            }
        }
        let rest = match section.find("default_backend").cloned() {
            Some(line) => {
                let backend = self.find_backend(line.word(1), &line)?;
                Some(self.backend(backend, false)?)
            }
            None if section.kind == "listen" => Some(self.backend(section, false)?),
            None => None,
        };
        Ok((names, rest))
    }

    fn find_backend(&self, name: &str, line: &Line) -> Result<&'s Section, Mistake> {
        let is_backend =
            |section: &&Section| matches!(section.kind.as_str(), "backend" | "listen") && section.name == name;
        self.sections.iter().find(is_backend).ok_or_else(|| line.mistake(format!("there is no backend `{name}`")))
    }
}

impl Common {
    /// A rule that changes something in all requests or responses.
    fn read(&mut self, words: &[String], line: &Line, condition: &Condition, has_tls: bool) {
        match holds_always(condition, has_tls) {
            Some(true) => {}
            // Never on these listeners.
            Some(false) => return,
            None => {
                self.notes.push(line.note(
                    "a change holds for a route, not for a condition of its own",
                    "a [[route]] with these conditions",
                ));
                return;
            }
        }
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let list = if word(0) == "http-request" { &mut self.request } else { &mut self.response };
        let text = |key: &str, value: &str| (key.to_owned(), Value::text(value));
        match (word(0), word(1)) {
            (_, "set-header" | "add-header" | "del-header") => match headers::change(words) {
                Ok(change) => list.push(change),
                Err(why) => self.notes.push(Note::new(&line.place, line.text(), why, "[[route.request_header]]")),
            },
            ("http-request", "set-path") if !word(2).contains('%') => self.rewrite = vec![text("path", word(2))],
            ("http-request", "replace-path") if !word(2).is_empty() => {
                match crate::paths::whole_regex(word(2), false) {
                    Ok(whole) => {
                        // `\1` is `$1` here.
                        let replacement: Vec<String> = word(3)
                            .split('\\')
                            .enumerate()
                            .map(|(at, part)| {
                                let group = part.chars().next().filter(|c| at > 0 && c.is_ascii_digit());
                                group.map_or_else(
                                    || part.replace('$', "$$"),
                                    |digit| format!("${{{digit}}}{}", &part[1..]),
                                )
                            })
                            .collect();
                        self.rewrite = vec![
                            text("path_regex", &format!("^{whole}$")),
                            ("path_replacement".to_owned(), Value::Text(replacement.concat())),
                        ];
                    }
                    Err(why) => self.notes.push(Note::new(&line.place, line.text(), why, "[route.rewrite]")),
                }
            }
            ("http-request", "allow") => {
                self.notes.push(line.note("requests are allowed unless a rule refuses them", "ip_filter"))
            }
            _ => self.notes.push(unknown::reason(line)),
        }
    }

    /// Gives a route what all have. Responses of the gateway's own have no headers to change.
    fn give(&self, route: &mut Route) {
        if !matches!(route.target, Target::Upstream(_)) {
            return;
        }
        for (key, list) in [("request_header", &self.request), ("response_header", &self.response)] {
            let mut all = list.clone();
            if let Some(Value::List(own)) = route.more.get(key) {
                all.extend(own.iter().cloned());
            }
            if !all.is_empty() {
                route.more.set(key, Value::List(all));
            }
        }
        if !self.rewrite.is_empty() && route.more.get("rewrite").is_none() {
            route.more.set("rewrite", Value::Inline(self.rewrite.clone()));
        }
    }
}

/// The addresses that alone decide: those to refuse, or the only ones to let in.
fn by_source(condition: &Condition) -> Option<(&'static str, &[String])> {
    match condition.as_slice() {
        [tests] => match tests.as_slice() {
            [(is_negated, Test::Source(networks))] => Some((if *is_negated { "allow" } else { "deny" }, networks)),
            _ => None,
        },
        _ => None,
    }
}

fn is_rule(line: &Line) -> bool {
    matches!(line.word(0), "http-request" | "http-response" | "use_backend" | "redirect")
}

/// Whether a condition holds for all requests of listeners with or without TLS, or for none; `None`: for some.
fn holds_always(condition: &Condition, has_tls: bool) -> Option<bool> {
    let value = |(is_negated, test): &(bool, Test)| match test {
        Test::Tls => Some(has_tls != *is_negated),
        Test::Always(holds) => Some(*holds != *is_negated),
        _ => None,
    };
    let mut any_unknown = false;
    for tests in condition {
        let values: Vec<Option<bool>> = tests.iter().map(value).collect();
        if values.iter().all(|value| *value == Some(true)) {
            return Some(true);
        }
        any_unknown |= !values.contains(&Some(false));
    }
    (!any_unknown).then_some(false)
}

fn server_names(condition: &Condition) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for tests in condition {
        match tests.as_slice() {
            [(false, Test::ServerName(list))] => names.extend(list.iter().cloned()),
            _ => return None,
        }
    }
    Some(names)
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
        (path, false) => set("path", Value::text(crate::paths::encoded(path))),
    }
    Some(keys)
}

/// A redirect with another prefix needs one that it is in place of.
fn with_prefix(route: &mut Route) {
    let has_prefix =
        matches!(&route.target, Target::Redirect(keys) if keys.iter().any(|(key, _)| key == "path_prefix"));
    if has_prefix && route.path == PathMatch::Any {
        route.path = PathMatch::Prefix("/".to_owned());
    }
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

/// A name for a route: the frontend, and what it is for.
fn name_of(section: &Section, route: &Route, has_tls: bool) -> String {
    let scheme = if has_tls { "-tls" } else { "" };
    let end = match &route.target {
        Target::Upstream(name) => name.as_str(),
        Target::Redirect(_) => "redirect",
        Target::Response(_) => "response",
        Target::Split(_) => "split",
    };
    format!("{}{scheme}-{end}", section.name)
}
