//! Changes of headers by a route, its virtual host and the whole `route_config`.

use std::collections::HashSet;

use super::Importer;
use super::arrival::{PEER, Seen};
use super::route::Levels;
use super::target::content_type;
use crate::field;
use crate::model::{Route, Target};
use crate::toml::Value;
use crate::yaml::Node;

/// Variables that both programs have with the same value, as docs/guide/migration.md lists them. The empty name is a percent sign.
const KNOWN: [&str; 13] = [
    "",
    "DOWNSTREAM_REMOTE_ADDRESS",
    "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_REMOTE_PORT",
    "DOWNSTREAM_LOCAL_ADDRESS",
    "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_LOCAL_PORT",
    "PROTOCOL",
    "DOWNSTREAM_TLS_VERSION",
    "DOWNSTREAM_TLS_CIPHER",
    "START_TIME",
    "HOSTNAME",
    "UPSTREAM_CLUSTER",
];

/// The message whose headers change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Message {
    Request,
    /// The response of an upstream.
    Response,
    /// A response of the gateway itself. `has_type`: `target` has written the type of its body.
    Own {
        has_type: bool,
    },
}

impl Message {
    /// In Envoy's keys, and Weir's key.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Request => ("request", "request_header"),
            Self::Response | Self::Own { .. } => ("response", "response_header"),
        }
    }
}

/// The changes of a request before the value of a header is made, which `%REQ(name)%` sees in Envoy.
#[derive(Default)]
struct Before {
    removed: HashSet<String>,
    written: HashSet<String>,
}

/// The changes of a level. Envoy replaces headers before it adds others.
#[derive(Default)]
struct Made {
    replaced: Vec<Value>,
    added: Vec<Value>,
}

impl<'n> Importer<'n> {
    /// The changes of all requests, then those of the route, its virtual host and the `route_config`. Each removes before it adds.
    pub(super) fn headers(&mut self, levels: Levels<'n>, route: &mut Route) {
        let mut before = Before::default();
        let requests = self.changes(levels, Message::Request, &mut before);
        // The list of a route stands in place of that of its domain.
        if !requests.is_empty() {
            let all = self.every_request.iter().cloned().chain(requests).collect();
            route.more.set("request_header", Value::List(all));
        }
        let responses = self.changes(levels, Message::Response, &mut before);
        if !responses.is_empty() {
            route.more.set("response_header", Value::List(responses));
        }
    }

    /// Headers of responses that no upstream sends.
    pub(super) fn own_response_headers(&mut self, levels: Levels<'n>, route: &mut Route) {
        let is_type = |(key, _): &(String, Value)| key == "content_type";
        let has_type = matches!(&route.target, Target::Response(keys) if keys.iter().any(is_type));
        let changes = self.changes(levels, Message::Own { has_type }, &mut Before::default());
        if !changes.is_empty() {
            route.more.set("response_header", Value::List(changes));
        }
    }

    /// The changes of `levels`, in Envoy's order: without its key, a virtual host can undo those of a route.
    fn changes(&mut self, mut levels: Levels<'n>, message: Message, before: &mut Before) -> Vec<Value> {
        // Envoy's name of the route, for Weir's routes have other names.
        let route = levels[0].text_at("name").unwrap_or_default().replace('%', "%%");
        if levels[2].get("most_specific_header_mutations_wins").is_some_and(Node::is_true) {
            levels.reverse();
        }
        let (kind, key) = message.words();
        let mut changes = Vec::new();
        for level in levels {
            let removed = level.items_at(&format!("{kind}_headers_to_remove"));
            for one in removed {
                match field::change("remove", one.text(), None) {
                    Ok(one) => changes.push(one),
                    Err(why) => self.note(one, &format!("{kind}_headers_to_remove"), &why, key),
                }
            }
            if message == Message::Request {
                let names = removed.iter().map(|one| one.text().to_ascii_lowercase());
                names.for_each(|name| before.remove(name));
            }
            let added = level.items_at(&format!("{kind}_headers_to_add"));
            let is_written = |one: &&Node| message == (Message::Own { has_type: true }) && content_type(one).is_some();
            let mut made = Made::default();
            for one in added.iter().filter(|one| !is_written(one)) {
                self.added(one, message, &route, before, &mut made);
            }
            changes.extend(made.replaced.into_iter().chain(made.added));
            if message == Message::Request {
                let names = added.iter().filter_map(|one| one.text_at("header.key"));
                names.for_each(|name| before.write(name.to_ascii_lowercase()));
            }
        }
        changes
    }

    /// A header that is added or replaced. If it cannot be said, a note says what is made instead.
    fn added(&mut self, one: &'n Node, message: Message, route: &str, before: &Before, made: &mut Made) {
        self.rest(one, &["header", "append", "append_action", "keep_empty_value"], "headers_to_add");
        let Some(name) = one.text_at("header.key") else { return };
        let text = one.text_at("header.value").unwrap_or_default();
        let (directive, key) = (format!("{name}: {text}"), message.words().1);
        let action = append_action(one);
        let replaces = action.starts_with("OVERWRITE_");
        // A response needs its own header more than a request, which must not have that of a client.
        let needs_old = action == "ADD_IF_ABSENT" || action == "OVERWRITE_IF_EXISTS" && message == Message::Request;
        let keeps_empty = one.get("keep_empty_value").is_some_and(Node::is_true);
        let value = match self.value(&text.replace("%ROUTE_NAME%", route), message, before) {
            // Envoy changes nothing.
            Ok(value) if value.is_empty() && !keeps_empty => return,
            Ok(_) if needs_old => Err(format!("{action} depends on the value that is there already")),
            value => value,
        };
        let value = match value {
            Ok(value) => value,
            Err(why) => {
                let effect = if replaces { "the header is removed" } else { "the change is left out" };
                self.note(one, &directive, &format!("{why}; {effect}"), key);
                // A header of the sender must not stand in place of the value.
                made.replaced.extend(field::change("remove", name, None).ok().filter(|_| replaces));
                return;
            }
        };
        if keeps_empty && value.contains("%REQ(") {
            self.note(one, &directive, "is not sent if the request lacks the header in its value", key);
        }
        if action == "OVERWRITE_IF_EXISTS" {
            self.note(one, &directive, "is also sent if the response lacks it", key);
        }
        // Weir changes nothing if a variable is empty, and the header of the sender would stay.
        let is_removed = replaces && has_variable(&value) && (keeps_empty || !self.is_missing_alike(&value));
        let kind = if replaces { "set" } else { "add" };
        match (field::change(kind, name, Some(value)), replaces) {
            (Ok(change), true) => {
                made.replaced.extend(field::change("remove", name, None).ok().filter(|_| is_removed));
                made.replaced.push(change);
            }
            (Ok(change), false) => made.added.push(change),
            (Err(why), _) => {
                self.note(one, &directive, &format!("{why}; the change is left out"), "[route.rewrite] host");
            }
        }
    }

    /// The value of a header, with Weir's variables.
    ///
    /// # Errors
    /// Weir has no such variable, or it has another value.
    fn value(&self, text: &str, message: Message, before: &Before) -> Result<String, String> {
        let mut value = String::new();
        for (at, part) in text.split('%').enumerate() {
            match at % 2 {
                0 => value.push_str(part),
                _ => value.push_str(&self.variable(part, message, before)?),
            }
        }
        Ok(value)
    }

    fn variable(&self, name: &str, message: Message, before: &Before) -> Result<String, String> {
        let header = name.strip_prefix("REQ(").and_then(|rest| rest.strip_suffix(')'));
        if let Some(header) = header.filter(|header| !header.contains(['?', ':'])) {
            return self.request_header(header, message, before);
        }
        if !KNOWN.contains(&name) {
            return Err("its value has a variable that Weir does not know".to_owned());
        }
        if name.starts_with("DOWNSTREAM_REMOTE_") && !self.arrival.is_client_the_peer() {
            return Err(format!("in Weir, `{name}` is the proxy in front, not the client"));
        }
        // Empty in Envoy, which adds the rest of the value.
        if name.starts_with("DOWNSTREAM_TLS_") && self.arrival.scheme() == "http" {
            return Ok(String::new());
        }
        Ok(format!("%{name}%"))
    }

    /// A copy of a header of the request that both programs lack in the same requests. Envoy changes nothing then either.
    fn is_missing_alike(&self, value: &str) -> bool {
        let inner = value.strip_prefix("%REQ(").and_then(|rest| rest.strip_suffix(")%"));
        inner.filter(|name| !name.contains('%')).is_some_and(|name| {
            let seen = self.arrival.seen(&name.to_ascii_lowercase());
            !matches!(seen, Seen::SentOr(_) | Seen::Written { is_always: true })
        })
    }

    /// A header of the request in the value of a header. Weir reads the header as it is before all changes of the route.
    fn request_header(&self, name: &str, message: Message, before: &Before) -> Result<String, String> {
        let known = name.to_ascii_lowercase();
        if before.written.contains(&known) {
            return Err(format!("Envoy reads {name} as another change writes it, and Weir as the client sent it"));
        }
        if before.removed.contains(&known) {
            return Ok(String::new());
        }
        let seen = self.arrival.seen(&known);
        match (seen, message) {
            (Seen::Absent, _) => Ok(String::new()),
            (Seen::Text(text), _) => Ok(text.to_owned()),
            (Seen::Peer, _) => Ok(PEER.to_owned()),
            (Seen::Unknown | Seen::Framing, _) => Err(format!("Weir writes {name} itself, or does not forward it")),
            (_, Message::Response) => Err("a response cannot have a header of its request".to_owned()),
            (Seen::SentOr(_) | Seen::Written { .. }, Message::Own { .. }) => {
                Err(format!("Weir reads {name} as the client sent it, and Envoy writes it first"))
            }
            _ => Ok(format!("%REQ({name})%")),
        }
    }
}

impl Before {
    fn remove(&mut self, name: String) {
        self.written.remove(&name);
        self.removed.insert(name);
    }

    fn write(&mut self, name: String) {
        self.removed.remove(&name);
        self.written.insert(name);
    }
}

/// The action of a header that is added or replaced.
pub(super) fn append_action(one: &Node) -> &str {
    match (one.text_at("append_action"), one.get("append")) {
        (Some(action), _) => action,
        // The older spelling.
        (None, Some(append)) if !append.is_true() => "OVERWRITE_IF_EXISTS_OR_ADD",
        (None, _) => "APPEND_IF_EXISTS_OR_ADD",
    }
}

/// Whether the value has a variable; `%%` is a percent sign.
fn has_variable(value: &str) -> bool {
    value.split('%').skip(1).step_by(2).any(|name| !name.is_empty())
}
