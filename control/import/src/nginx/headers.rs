//! `proxy_set_header` and `add_header`.

use super::Importer;
use super::action::Keys;
use super::location::Location;
use super::site::Site;
use super::syntax::Directive;
use crate::field;
use crate::model::Route;
use crate::note::Note;
use crate::toml::Value;

/// Variables that Weir knows too.
const VARIABLES: &[(&str, &str)] = &[
    ("remote_addr", "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"),
    ("remote_port", "%DOWNSTREAM_REMOTE_PORT%"),
    ("server_addr", "%DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT%"),
    ("server_port", "%DOWNSTREAM_LOCAL_PORT%"),
    ("server_protocol", "%PROTOCOL%"),
    ("ssl_protocol", "%DOWNSTREAM_TLS_VERSION%"),
    ("ssl_cipher", "%DOWNSTREAM_TLS_CIPHER%"),
    ("ssl_client_s_dn", "%DOWNSTREAM_PEER_SUBJECT%"),
    ("ssl_client_i_dn", "%DOWNSTREAM_PEER_ISSUER%"),
    ("ssl_client_serial", "%DOWNSTREAM_PEER_SERIAL%"),
    ("hostname", "%HOSTNAME%"),
    ("http_host", "%REQ(host)%"),
    ("upstream_addr", "%UPSTREAM_REMOTE_ADDRESS%"),
];

/// The key that says what origins learn of clients.
const FORWARDED: &str = "http.forwarded";

impl<'c> Importer<'c> {
    /// Headers towards the origin. `host` is what nginx sends if nothing else is said.
    pub(super) fn request_headers(
        &mut self,
        one: &Location<'c>,
        site: &Site<'c>,
        host: String,
        rewrite: &mut Keys,
        route: &mut Route,
        notes: &mut Vec<Note>,
    ) {
        let mut changes = Vec::new();
        let mut sent_host = Some(host);
        for of in one.scope.all("proxy_set_header") {
            let [name, value] = of.args.as_slice() else { continue };
            match (name.to_ascii_lowercase().as_str(), value.as_str()) {
                ("host", "$host" | "$http_host" | "$host:$server_port") => sent_host = None,
                ("host", "$proxy_host") => {}
                ("host", "$server_name") => sent_host = site.server_name().map(str::to_owned),
                ("host", value) if !value.contains('$') => sent_host = Some(value.to_owned()),
                // Those of the connection are Weir's own; WebSockets are a setting.
                ("connection" | "upgrade", _) => {}
                ("x-forwarded-for", "$proxy_add_x_forwarded_for") => self.forwarded("append", of, site, notes),
                ("x-forwarded-for", "$remote_addr") => self.forwarded("replace", of, site, notes),
                ("x-request-id", "$request_id") => self.listener_key(site, "http.request_id", Value::Flag(true)),
                (_, value) => match request_change(name, value, site) {
                    Ok(all) => changes.extend(all),
                    Err(why) => notes.push(Note::new(&of.place, of.text(), why, "[[route.request_header]]")),
                },
            }
        }
        if let Some(host) = sent_host {
            rewrite.push(("host".to_owned(), Value::Text(host)));
        }
        if !changes.is_empty() {
            route.more.set("request_header", Value::List(changes));
        }
    }

    /// Headers towards the client.
    pub(super) fn response_headers(
        &mut self,
        one: &Location<'c>,
        is_proxy: bool,
        route: &mut Route,
        notes: &mut Vec<Note>,
    ) {
        let mut changes = Vec::new();
        for of in one.scope.all("add_header") {
            let [name, value, ..] = of.args.as_slice() else { continue };
            if !is_proxy {
                let why = "responses of the gateway's own have no further headers";
                notes.push(Note::new(
                    &of.place,
                    of.text(),
                    why,
                    "[[route.response_header]] of a route with an upstream",
                ));
                continue;
            }
            match (value.as_str(), value.contains('$')) {
                ("", _) => {}
                (value, false) => {
                    if of.args.get(2).is_none_or(|word| word != "always") {
                        let why = "is added to responses of every status, as with `always`";
                        notes.push(Note::new(&of.place, of.text(), why, "[[route.response_header]]"));
                    }
                    match field::change("add", name, Some(value.replace('%', "%%"))) {
                        Ok(one) => changes.push(one),
                        Err(why) => notes.push(Note::new(&of.place, of.text(), why, "[[route.response_header]]")),
                    }
                }
                (_, true) => {
                    let why = "its value has a variable that Weir does not know";
                    notes.push(Note::new(&of.place, of.text(), why, "[[route.response_header]]"));
                }
            }
        }
        if !changes.is_empty() {
            route.more.set("response_header", Value::List(changes));
        }
    }

    /// Sets what origins learn of clients, for all routes of the listeners of a site.
    fn forwarded(&mut self, word: &str, of: &Directive, site: &Site<'c>, notes: &mut Vec<Note>) {
        for listener in self.config.listeners.iter_mut().filter(|one| site.listeners.contains(&one.name)) {
            match listener.more.get(FORWARDED) {
                Some(Value::Text(known)) if known != word => {
                    let why = format!("applies to all routes of {}: \"{known}\"", listener.name);
                    notes.push(Note::new(&of.place, of.text(), why, "listener.http.forwarded"));
                }
                _ => listener.more.set(FORWARDED, Value::text(word)),
            }
        }
    }

    fn listener_key(&mut self, site: &Site<'c>, key: &str, value: Value) {
        for listener in self.config.listeners.iter_mut().filter(|one| site.listeners.contains(&one.name)) {
            listener.more.set(key, value.clone());
        }
    }

    /// Listeners of which no route says what origins learn of clients: nginx adds nothing then.
    pub(super) fn set_forwarded(&mut self) {
        for listener in &mut self.config.listeners {
            if listener.more.get(FORWARDED).is_none() {
                listener.more.set(FORWARDED, Value::text("keep"));
            }
        }
    }
}

/// The changes that `proxy_set_header` makes. An empty value removes the header. So a value with a header of the request does so first:
/// Weir makes no change with an empty variable, and the client's own header would pass.
fn request_change(name: &str, value: &str, site: &Site<'_>) -> Result<Vec<Value>, String> {
    if value.is_empty() {
        return Ok(vec![field::change("remove", name, None)?]);
    }
    let text = translated(value, site).ok_or("its value has a variable that Weir does not know")?;
    let removal = if text.contains("%REQ(") { Some(field::change("remove", name, None)?) } else { None };
    Ok(removal.into_iter().chain([field::change("set", name, Some(text))?]).collect())
}

/// A value with Weir's variables in place of nginx's; `None`: one of them is not known.
fn translated(value: &str, site: &Site<'_>) -> Option<String> {
    let mut out = String::new();
    let mut rest = value;
    while let Some((before, behind)) = rest.split_once('$') {
        out.push_str(&before.replace('%', "%%"));
        let (name, after) = match behind.strip_prefix('{') {
            Some(inner) => inner.split_once('}')?,
            None => {
                let end = behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(behind.len());
                behind.split_at(end)
            }
        };
        match name {
            "scheme" => out.push_str(site.scheme()),
            "host" => out.push_str("%REQ(host)%"),
            _ => match VARIABLES.iter().find(|(known, _)| *known == name) {
                Some((_, word)) => out.push_str(word),
                None => out.push_str(&format!("%REQ({})%", name.strip_prefix("http_")?.replace('_', "-"))),
            },
        }
        rest = after;
    }
    out.push_str(&rest.replace('%', "%%"));
    Some(out)
}
