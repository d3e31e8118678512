//! Rules: `http-request`, `redirect`, `use_backend` and `default_backend`, in the order in which HAProxy looks at them.

use super::Importer;
use super::acl::{self, Acls, Condition, Test};
use super::common::Common;
use super::syntax::{Line, Section};
use super::target::{UNAVAILABLE, is_closing, is_refusal, is_rule, with_prefix};
use crate::hosts::spread_hosts;
use crate::model::{NOWHERE, Route, Target};
use crate::note::{Mistake, Note};
use crate::order::{Rule, first_match};
use crate::toml::{Table, Value};

/// Server names of TLS, and the upstream of each list.
type ByName = Vec<(Vec<String>, String)>;

impl<'s> Importer<'s> {
    /// The routes of an HTTP frontend on these listeners.
    pub(super) fn routes(&mut self, section: &'s Section, listeners: &[String], has_tls: bool) -> Result<(), Mistake> {
        let acls = Acls::of(section);
        let mut common = Common::default();
        let mut rules: Vec<Rule> = Vec::new();
        for line in section.lines.iter().filter(|line| is_rule(line)) {
            let (words, condition) = acl::split_condition(line);
            let read = if is_closing(words) { Acls::partial_condition } else { Acls::condition };
            let condition = match condition {
                None => vec![Vec::new()],
                Some((keyword, tests)) => match read(&acls, keyword, tests) {
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
            match self.terminal(words, line, has_tls)? {
                Some(target) if is_refusal(words) => {
                    let comes_first = rules.iter().all(|rule| order_of(&rule.text) > 0);
                    let is_exact = comes_first && target.0 == Target::status(403);
                    let others = match by_source(&condition) {
                        Some((listed, others)) => {
                            self.refuse_by_source(listed, line, listeners, is_exact, &mut common);
                            others
                        }
                        None => condition,
                    };
                    self.rule(line, &others, target, has_tls, &mut rules, &mut common);
                }
                Some(target) => self.rule(line, &condition, target, has_tls, &mut rules, &mut common),
                None => common.read(words, line, &condition, has_tls),
            }
        }
        rules.sort_by_key(|rule| order_of(&rule.text));
        rules.push(self.last(section, has_tls)?);
        spread_hosts(&mut rules).map_err(|why| Mistake::new(&section.place, why))?;
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

    /// A refusal by address alone is a filter of the listeners, which comes before all routes and answers 403. One of the two
    /// lists can be said.
    fn refuse_by_source(
        &mut self,
        (key, networks): (&'static str, Vec<String>),
        line: &Line,
        listeners: &[String],
        is_exact: bool,
        common: &mut Common,
    ) {
        if !is_exact {
            let why = "addresses are refused with 403, before all rules of the listener";
            common.notes.push(line.note(why, "ip_filter of a [[route]]"));
        }
        for listener in self.config.listeners.iter_mut().filter(|one| listeners.contains(&one.name)) {
            let filter = listener.more.table("http").table("ip_filter");
            let known = match filter.get(key) {
                Some(Value::List(known)) if key == "deny" => known.clone(),
                _ if !filter.is_empty() => {
                    common.notes.push(line.note("a listener has one list of addresses", "ip_filter of a [[route]]"));
                    continue;
                }
                _ => Vec::new(),
            };
            let own = networks.iter().map(Value::text).filter(|network| !known.contains(network));
            filter.set(key, Value::List(known.iter().cloned().chain(own).collect()));
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
                Ok(routes) => {
                    for mut route in routes {
                        match with_prefix(&mut route) {
                            Ok(()) => rules.push(Rule { route, place: line.place.clone(), text: line.text() }),
                            Err(why) => {
                                let why = format!("is left out: {why}");
                                common.notes.push(Note::new(&line.place, line.text(), why, "[route.redirect]"));
                            }
                        }
                    }
                }
                Err(why) => {
                    let closed = closed(&base, tests, line, has_tls);
                    let why = match closed.is_empty() {
                        true => format!("is left out: {why}"),
                        false => format!("{why}: requests that it refuses to some clients are refused to all"),
                    };
                    rules.extend(closed.into_iter().map(|route| Rule {
                        route,
                        place: line.place.clone(),
                        text: line.text(),
                    }));
                    common.notes.push(Note::new(&line.place, line.text(), why, "conditions of a [[route]], ip_filter"));
                }
            }
        }
    }

    /// The rule behind all others.
    fn last(&mut self, section: &'s Section, has_tls: bool) -> Result<Rule, Mistake> {
        let default = section.find("default_backend").cloned();
        let ((target, more), place, text) = match default {
            Some(line) => (self.backend_target(line.word(1), &line, has_tls)?, line.place.clone(), line.text()),
            None if section.kind == "listen" => {
                let line =
                    Line { words: vec!["listen".to_owned(), section.name.clone()], place: section.place.clone() };
                (self.backend_target(&section.name, &line, has_tls)?, line.place.clone(), line.text())
            }
            None => ((Target::status(UNAVAILABLE), Table::default()), section.place.clone(), section.name.clone()),
        };
        let mut route = Route::new(String::new(), target);
        route.more = more;
        Ok(Rule { route, place, text })
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
                    names.push((list, self.backend(backend, false)?.unwrap_or_else(|| NOWHERE.to_owned())));
                }
                None => {
                    let note =
                        line.note("connections are routed only by the server name of TLS", "[[listener.server_name]]");
                    self.config.notes.push(note);
                }
            }
        }
        let rest = match section.find("default_backend").cloned() {
            Some(line) => {
                let backend = self.find_backend(line.word(1), &line)?;
                Some(self.backend(backend, false)?.unwrap_or_default())
            }
            None if section.kind == "listen" => Some(self.backend(section, false)?.unwrap_or_default()),
            None => None,
        };
        Ok((names, rest))
    }

    pub(super) fn find_backend(&self, name: &str, line: &Line) -> Result<&'s Section, Mistake> {
        let is_backend =
            |section: &&Section| matches!(section.kind.as_str(), "backend" | "listen") && section.name == name;
        self.sections.iter().find(is_backend).ok_or_else(|| line.mistake(format!("there is no backend `{name}`")))
    }
}

/// The addresses that alone decide, which are those to refuse or the only ones to let in, and the alternatives beside them.
fn by_source(condition: &Condition) -> Option<((&'static str, Vec<String>), Condition)> {
    let is_source = |tests: &&Vec<(bool, Test)>| matches!(tests.as_slice(), [(_, Test::Source(_))]);
    let (by_source, others): (Vec<_>, Vec<_>) = condition.iter().partition(is_source);
    let all: Vec<(bool, &[String])> = by_source
        .into_iter()
        .flatten()
        .filter_map(|(is_negated, test)| match test {
            Test::Source(networks) => Some((*is_negated, networks.as_slice())),
            _ => None,
        })
        .collect();
    let listed = match all.as_slice() {
        [(true, networks)] => ("allow", networks.to_vec()),
        several if !several.is_empty() && several.iter().all(|(is_negated, _)| !is_negated) => {
            ("deny", several.iter().flat_map(|(_, networks)| networks.to_vec()).collect())
        }
        _ => return None,
    };
    Some((listed, others.into_iter().cloned().collect()))
}

/// The routes of a refusal without the tests that no route has: what is closed to some must not be open to all. Empty: no test of
/// the request is left, or it refuses nothing.
fn closed(base: &Route, tests: &[(bool, Test)], line: &Line, has_tls: bool) -> Vec<Route> {
    let mut kept = Vec::new();
    let mut routes = Vec::new();
    for test in tests.iter().filter(|_| is_closing(&line.words)) {
        kept.push(test.clone());
        match acl::routes(base, &kept, has_tls) {
            Ok(found) => routes = found,
            Err(_) => drop(kept.pop()),
        }
    }
    // Every request of the listener meets these: with no other test the whole listener would be closed.
    if kept.iter().all(|(_, test)| matches!(test, Test::Tls | Test::Always(_))) {
        routes.clear();
    }
    routes
}

/// Wherever they stand, `redirect` comes after all of `http-request`, and `use_backend` behind both.
fn order_of(text: &str) -> u8 {
    match text.split(' ').next() {
        Some("use_backend") => 2,
        Some("redirect") => 1,
        _ => 0,
    }
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
