//! Limits, timeouts, compression and policies: what a listener has for all its routes, and what a route has in its place.

use super::Importer;
use super::scope::Scope;
use super::syntax::Directive;
use crate::note::{Mistake, Note};
use crate::quantity::{nginx_size, nginx_time};
use crate::toml::Value;

/// nginx's own limit of a request body. Weir's is 1 GiB, so it is always written, and so is the longer pause of 60 s in one.
const BODY_BYTES_MAX: u64 = 1 << 20;

/// Milliseconds that Weir accepts for a timeout of a request: up to a day.
const TIMEOUT_MILLIS_MAX: u64 = 86_400_000;

/// Keys with their values, as they hold at a place. The keys are the same in `[listener.http]` and in a route.
pub(super) type Settings = Vec<(&'static str, Value)>;

/// The keys of a route that differ from its listener.
pub(super) fn difference(own: &Settings, base: &Settings) -> Settings {
    let is_new = |entry: &&(&'static str, Value)| !base.contains(entry);
    let mut keys: Settings = own.iter().filter(is_new).cloned().collect();
    for (key, _) in base.iter().filter(|(key, _)| !own.iter().any(|(other, _)| other == key)) {
        keys.push((key, absent(key)));
    }
    keys
}

/// The value of a key on a route for which nginx has no setting, if the listener has one.
fn absent(key: &str) -> Value {
    let off = Value::inline([("enabled", Value::Flag(false))]);
    match key {
        "upgrades" => Value::List(Vec::new()),
        "rate_limit" => {
            Value::List(vec![Value::inline([("name", Value::text("off")), ("enabled", Value::Flag(false))])])
        }
        "compression" | "ip_filter" | "basic_auth" => off,
        "retry" => Value::inline([("attempts", Value::Number(2))]),
        // The timeouts: 60 s is nginx's default of each.
        _ => Value::text("60s"),
    }
}

/// A time of nginx in milliseconds.
///
/// # Errors
/// It is none.
pub(super) fn millis(of: &Directive) -> Result<u64, Mistake> {
    let wrong = || Mistake::new(&of.place, format!("`{}` is no time: write it as 30s or 500ms", of.text()));
    nginx_time(of.first()).ok_or_else(wrong)
}

fn timeout(of: &Directive) -> Result<Value, Mistake> {
    Ok(Value::millis(millis(of)?.clamp(1, TIMEOUT_MILLIS_MAX)))
}

impl<'c> Importer<'c> {
    /// The settings in force at a place. Notes go to `notes`.
    pub(super) fn settings(&self, scope: &Scope<'c>, notes: &mut Vec<Note>) -> Result<Settings, Mistake> {
        let mut keys: Settings = Vec::new();
        let body = match scope.find("client_max_body_size") {
            None => BODY_BYTES_MAX,
            Some(of) => nginx_size(of.first())
                .ok_or_else(|| Mistake::new(&of.place, format!("`{}` is no size: write it as 10m", of.text())))?,
        };
        keys.push(("request_body_bytes_max", Value::bytes(body)));
        let pause = scope.find("client_body_timeout").map(timeout).transpose()?;
        keys.push(("body_idle_timeout", pause.unwrap_or_else(|| Value::text("60s"))));
        if let Some(of) = scope.find("proxy_read_timeout") {
            keys.push(("response_timeout", timeout(of)?));
            keys.push(("response_idle_timeout", timeout(of)?));
        }
        let headers = scope.all("proxy_set_header");
        if headers.iter().any(|of| of.first().eq_ignore_ascii_case("upgrade") && of.args.len() > 1) {
            keys.push(("upgrades", Value::texts(["websocket"])));
        }
        keys.extend(compression(scope, notes)?.map(|value| ("compression", value)));
        keys.extend(retry(scope, notes)?.map(|value| ("retry", value)));
        keys.extend(ip_filter(scope, notes).map(|value| ("ip_filter", value)));
        keys.extend(basic_auth(scope, notes).map(|value| ("basic_auth", value)));
        keys.extend(self.rate_limits(scope, notes)?.map(|value| ("rate_limit", value)));
        Ok(keys)
    }

    fn rate_limits(&self, scope: &Scope<'c>, notes: &mut Vec<Note>) -> Result<Option<Value>, Mistake> {
        let status = scope.first("limit_req_status").and_then(|text| text.parse().ok()).unwrap_or(503);
        let mut limits = Vec::new();
        for of in scope.all("limit_req") {
            let option = |name: &str| of.args.iter().find_map(|arg| arg.strip_prefix(name));
            let Some(zone) = option("zone=") else { return Err(Mistake::new(&of.place, "limit_req needs zone=")) };
            let Some(known) = self.zones.get(zone) else {
                return Err(Mistake::new(&of.place, format!("limit_req_zone does not name a zone `{zone}`")));
            };
            let rate = known.args.iter().find_map(|arg| arg.strip_prefix("rate="));
            let Some((requests, per)) = rate.and_then(rate_of) else {
                return Err(Mistake::new(&known.place, "limit_req_zone needs a rate: rate=10r/s or rate=30r/m"));
            };
            let burst = option("burst=").map_or(Some(0), |text| text.parse::<u64>().ok());
            let Some(burst) = burst else { return Err(Mistake::new(&of.place, "burst is no number")) };
            let mut entries = vec![
                ("name".to_owned(), Value::text(zone)),
                ("requests".to_owned(), Value::Number(requests)),
                ("per".to_owned(), Value::text(per)),
                // nginx serves one request and so many more at once.
                ("burst".to_owned(), Value::Number(burst + 1)),
                ("status".to_owned(), Value::Number(status)),
            ];
            match key_of(known.first()) {
                Some(key) => entries.extend(key),
                None => {
                    let why = "requests are counted by client address, header, or all together; here by client";
                    notes.push(Note::new(&known.place, known.text(), why, "rate_limit key = \"header\""));
                }
            }
            if burst > 0 && !of.args.iter().any(|arg| arg == "nodelay") {
                let why = "requests beyond the rate are served at once up to the burst, not delayed";
                notes.push(Note::new(&of.place, of.text(), why, "nodelay"));
            }
            limits.push(Value::Inline(entries));
        }
        Ok((!limits.is_empty()).then_some(Value::List(limits)))
    }
}

/// Requests and the time in which they may come: `10r/s`.
fn rate_of(text: &str) -> Option<(u64, &'static str)> {
    let (count, unit) = text.split_once("r/")?;
    let per = match unit {
        "s" => "1s",
        "m" => "1m",
        _ => return None,
    };
    Some((count.parse().ok().filter(|count| *count > 0)?, per))
}

/// The property by which a rate limit groups requests.
fn key_of(variable: &str) -> Option<Vec<(String, Value)>> {
    let key = |word: &str| vec![("key".to_owned(), Value::text(word))];
    match variable {
        // The default.
        "$binary_remote_addr" | "$remote_addr" => Some(Vec::new()),
        "$server_name" | "$server_port" => Some(key("all")),
        _ => {
            let header = variable.strip_prefix("$http_")?.replace('_', "-");
            let mut keys = key("header");
            keys.push(("header".to_owned(), Value::text(header)));
            // nginx does not count requests whose key is empty.
            keys.push(("missing".to_owned(), Value::text("pass")));
            Some(keys)
        }
    }
}

fn compression(scope: &Scope<'_>, notes: &mut Vec<Note>) -> Result<Option<Value>, Mistake> {
    if !scope.is_on("gzip") {
        return Ok(None);
    }
    let least = match scope.find("gzip_min_length") {
        None => 20,
        Some(of) => {
            nginx_size(of.first()).ok_or_else(|| Mistake::new(&of.place, "gzip_min_length is no number of bytes"))?
        }
    };
    let mut types = vec!["text/html".to_owned()];
    let written = scope.find("gzip_types");
    for (word, of) in written.iter().flat_map(|of| of.args.iter().map(move |word| (word, of))) {
        let word = if word == "*" { "text/*" } else { word };
        if word == "text/*" {
            let why = "all types of media are more than the types of a listener can name; here all text";
            notes.push(Note::new(&of.place, of.text(), why, "compression types"));
        }
        if !word.contains('/') {
            return Err(Mistake::new(&of.place, format!("`{word}` is no media type")));
        }
        if !types.iter().any(|known| known == word) {
            types.push(word.to_owned());
        }
    }
    Ok(Some(Value::inline([
        ("codings", Value::texts(["gzip"])),
        ("bytes_min", Value::bytes(least)),
        ("types", Value::texts(types)),
    ])))
}

fn retry(scope: &Scope<'_>, notes: &mut Vec<Note>) -> Result<Option<Value>, Mistake> {
    let tries = scope.first("proxy_next_upstream_tries").and_then(|text| text.parse::<u64>().ok());
    let none = || Ok(Some(Value::inline([("attempts", Value::Number(0))])));
    let attempts = match tries {
        Some(1) => return none(),
        Some(tries) if tries > 1 => Some(("attempts".to_owned(), Value::Number((tries - 1).min(10)))),
        _ => None,
    };
    let Some(of) = scope.find("proxy_next_upstream") else {
        return Ok(attempts.map(|entry| Value::Inline(vec![entry])));
    };
    if of.first() == "off" {
        return none();
    }
    let (mut on, mut statuses, mut others) = (vec!["connect_failure"], Vec::new(), false);
    for word in &of.args {
        match word.as_str() {
            "error" => on.push("reset"),
            "timeout" => on.push("timeout"),
            "non_idempotent" => others = true,
            "invalid_header" => {
                let why = "a response that is no HTTP is always a failure of the origin";
                notes.push(Note::new(&of.place, of.text(), why, "retry on = [\"reset\"]"));
            }
            word => match word.strip_prefix("http_").and_then(|code| code.parse().ok()) {
                Some(code) => statuses.push(Value::Number(code)),
                None => return Err(Mistake::new(&of.place, format!("`{word}` is no case of proxy_next_upstream"))),
            },
        }
    }
    let mut entries = vec![("on".to_owned(), Value::texts(on))];
    if !statuses.is_empty() {
        entries.push(("statuses".to_owned(), Value::List(statuses)));
    }
    if others {
        entries.push(("non_idempotent".to_owned(), Value::Flag(true)));
    }
    entries.extend(attempts);
    Ok(Some(Value::Inline(entries)))
}

/// `allow` and `deny` are read in order by nginx; one of the two lists can be said here.
fn ip_filter(scope: &Scope<'_>, notes: &mut Vec<Note>) -> Option<Value> {
    let mut rules = scope.any_of(&["allow", "deny"]);
    // nginx takes the first rule that matches: behind one for all it reaches no other.
    let end = rules.iter().position(|rule| rule.first() == "all").map_or(rules.len(), |at| at + 1);
    rules.truncate(end);
    let (last, first) = rules.split_last()?;
    let kind = match last.name.as_str() {
        "deny" if last.first() == "all" => "allow",
        _ => "deny",
    };
    let listed: Vec<&&Directive> = match kind {
        "allow" => first.iter().collect(),
        _ => rules.iter().filter(|rule| rule.first() != "all").collect(),
    };
    if listed.iter().any(|rule| rule.name != kind || rule.first().starts_with("unix")) {
        let why = "a list of networks either allows or denies; the mixed list was reduced to one of these kinds";
        notes.push(Note::new(&last.place, last.text(), why, "ip_filter"));
    }
    let own = listed.iter().filter(|rule| rule.name == kind && !rule.first().starts_with("unix"));
    let networks: Vec<String> = own.map(|rule| rule.first().to_owned()).collect();
    match (kind, networks.is_empty()) {
        // No client is allowed: the network is reserved for documentation, so no client has such an address.
        ("allow", true) => Some(Value::inline([("allow", Value::texts(["192.0.2.0/32"]))])),
        (_, true) => None,
        _ => Some(Value::Inline(vec![(kind.to_owned(), Value::texts(networks))])),
    }
}

fn basic_auth(scope: &Scope<'_>, notes: &mut Vec<Note>) -> Option<Value> {
    let realm = scope.find("auth_basic").filter(|of| of.first() != "off")?;
    let file = scope.find("auth_basic_user_file")?;
    let why = "passwords must be hashed with bcrypt (htpasswd -B), PBKDF2 or SHA; MD5 and crypt are refused";
    notes.push(Note::new(&file.place, file.text(), why, "basic_auth.users_file"));
    Some(Value::inline([("users_file", Value::text(file.first())), ("realm", Value::text(realm.first()))]))
}
