//! Changes that a section makes to all of its requests and responses.

use super::acl::{Condition, Test};
use super::syntax::Line;
use super::{headers, unknown};
use crate::model::{Route, Target};
use crate::note::Note;
use crate::toml::Value;

/// Keys of an inline table.
pub(super) type Keys = Vec<(String, Value)>;

/// Settings of all routes of a frontend, on listeners with or without TLS.
#[derive(Default)]
pub(super) struct Common {
    request: Vec<Value>,
    response: Vec<Value>,
    rewrite: Keys,
    pub(super) notes: Vec<Note>,
}

impl Common {
    /// A rule that changes something in all requests or responses.
    pub(super) fn read(&mut self, words: &[String], line: &Line, condition: &Condition, has_tls: bool) {
        match holds_always(condition, has_tls) {
            Some(true) => {}
            // Never on these listeners.
            Some(false) => return,
            None => {
                self.notes.push(line.note(
                    "a change applies to a route and has no condition of its own",
                    "a [[route]] with these conditions",
                ));
                return;
            }
        }
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let list = if word(0) == "http-request" { &mut self.request } else { &mut self.response };
        let text = |key: &str, value: &str| (key.to_owned(), Value::text(value));
        match (word(0), word(1)) {
            ("http-request", "set-header") if word(2).eq_ignore_ascii_case("host") && !word(3).contains('%') => {
                self.rewrite("host", vec![text("host", word(3))]);
            }
            (_, "set-header" | "add-header" | "del-header") => match headers::change(words) {
                Ok(change) => list.push(change),
                Err(why) => self.notes.push(Note::new(&line.place, line.text(), why, "[[route.request_header]]")),
            },
            ("http-request", "set-path") if !word(2).contains('%') => {
                self.rewrite("path", vec![text("path", word(2))]);
            }
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
                        let replacement = ("path_replacement".to_owned(), Value::Text(replacement.concat()));
                        self.rewrite("path", vec![text("path_regex", &format!("^{whole}$")), replacement]);
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
    pub(super) fn give(&self, route: &mut Route) {
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
        let mut rewrite = match route.more.get("rewrite") {
            Some(Value::Inline(own)) => own.clone(),
            _ => Vec::new(),
        };
        let is_of = |key: &str| key == "host";
        let own: Vec<bool> = rewrite.iter().map(|(key, _)| is_of(key)).collect();
        rewrite.extend(self.rewrite.iter().filter(|(key, _)| !own.contains(&is_of(key))).cloned());
        if !rewrite.is_empty() {
            route.more.set("rewrite", Value::Inline(rewrite));
        }
    }

    /// The last rewrite of the host and that of the path hold.
    fn rewrite(&mut self, kind: &str, keys: Keys) {
        self.rewrite.retain(|(key, _)| (key == "host") != (kind == "host"));
        self.rewrite.extend(keys);
    }
}

/// Whether a condition holds for all requests of listeners with or without TLS, or for none; `None`: for some.
pub(super) fn holds_always(condition: &Condition, has_tls: bool) -> Option<bool> {
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
