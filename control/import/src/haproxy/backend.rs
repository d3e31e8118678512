//! Backends: their servers become endpoints.

use super::syntax::{Line, Section};
use super::{Importer, limit, timeout, unknown};
use crate::address;
use crate::model::Upstream;
use crate::note::{Mistake, Note};
use crate::quantity::haproxy_time;
use crate::toml::{Table, Value};

/// HAProxy's defaults of a check: every 2 s, down after 3 failures, up after 2.
const CHECK_MICROS: u64 = 2_000_000;

/// Microseconds of an hour.
const HOUR: u64 = 3_600_000_000;

/// A `server`, with what `default-server` says.
#[derive(Clone, Default)]
struct Server {
    weight: Option<u64>,
    has_check: bool,
    connections_max: Option<u64>,
    interval: Option<u64>,
    fall: Option<u64>,
    rise: Option<u64>,
    slow_start: Option<u64>,
    error_limit: Option<u64>,
    proxy_header: Option<&'static str>,
    tls: Option<Table>,
    is_http2: bool,
    is_left_out: bool,
}

impl<'s> Importer<'s> {
    /// The name of the upstream of a backend, which is made when it is first named. `None`: it has no server in use.
    pub(super) fn backend(&mut self, section: &'s Section, is_http: bool) -> Result<Option<String>, Mistake> {
        self.named.insert(&section.name);
        if let Some(name) = self.made.get(section.name.as_str()) {
            return Ok(name.clone());
        }
        if section.kind == "backend" {
            let notes = section.lines.iter().filter_map(|line| unknown::note(line, unknown::Context::Backend));
            self.config.notes.extend(notes);
        }
        let mut made = Upstream::new(self.upstream_names.unique(&section.name), &section.place);
        let table = if is_http { "http" } else { "tcp" };
        let mut base = Server::default();
        for lines in [&section.defaults, &section.lines] {
            for line in lines.iter().filter(|line| line.word(0) == "default-server") {
                options(&line.words[1..], line, &mut base, &mut made.notes)?;
            }
        }
        let mut servers = Vec::new();
        for line in section.all("server") {
            let mut server = base.clone();
            options(line.words.get(3..).unwrap_or_default(), line, &mut server, &mut made.notes)?;
            let address = endpoint(line, &server, &mut made.notes)?;
            if !server.is_left_out {
                made.endpoints.push(address);
                servers.push(server);
            }
        }
        let Some(first) = servers.first() else {
            self.config.notes.append(&mut made.notes);
            // A backend without any says so itself.
            if section.lines.iter().any(|line| line.word(0).starts_with("server")) {
                let why = "it has no server that is in use: its requests get 503";
                self.config.notes.push(Note::new(
                    &section.place,
                    format!("{} {}", section.kind, section.name),
                    why,
                    "",
                ));
            }
            self.made.insert(&section.name, None);
            return Ok(None);
        };
        let is_alike = |server: &Server| {
            (server.connections_max, server.slow_start, server.interval, server.has_check)
                == (first.connections_max, first.slow_start, first.interval, first.has_check)
        };
        if !servers.iter().all(is_alike) {
            let why = "maxconn, slowstart and checks apply to all endpoints; the first server gives the values";
            made.notes.push(Note::new(&section.place, format!("backend {}", section.name), why, "[upstream.http]"));
        }
        timeouts(section, &mut made.more)?;
        balance(section, table, &mut made);
        // HAProxy's default is 1.
        if servers.iter().any(|server| server.weight.unwrap_or(1) != first.weight.unwrap_or(1)) {
            let weights = servers.iter().map(|server| Value::Number(server.weight.unwrap_or(1))).collect();
            made.more.set(&format!("{table}.weights"), Value::List(weights));
        }
        server_keys(section, first, is_http, &mut made)?;
        let name = Some(made.name.clone());
        self.config.upstreams.push(made);
        self.made.insert(&section.name, name.clone());
        Ok(name)
    }
}

fn timeouts(section: &Section, more: &mut Table) -> Result<(), Mistake> {
    let connect = timeout(section, "connect")?;
    more.set("connect_timeout", limit(connect, 1_000, HOUR));
    // Without `timeout queue` HAProxy takes that of the connect.
    more.set("lane_wait_timeout", limit(timeout(section, "queue")?.or(connect), 0, HOUR / 6));
    Ok(())
}

/// Keys that hold for all endpoints, from the first server.
fn server_keys(section: &Section, first: &Server, is_http: bool, made: &mut Upstream) -> Result<(), Mistake> {
    let table = if is_http { "http" } else { "tcp" };
    if let Some(count) = first.connections_max.filter(|count| *count > 0) {
        made.more.set(&format!("{table}.connections_max"), Value::Number(count));
    }
    if let Some(time) = first.slow_start {
        made.more.set(&format!("{table}.slow_start"), Value::micros(time.min(HOUR)));
    }
    match (first.proxy_header, is_http) {
        (Some(word), false) => made.more.set("tcp.proxy_header", Value::text(word)),
        (Some(_), true) => {
            let why = "a PROXY header goes to origins of TCP only";
            made.notes.push(Note::new(&section.place, "send-proxy", why, "forwarded = \"append\""));
        }
        (None, _) => {}
    }
    if is_http && first.is_http2 {
        made.more.set("http.version", Value::text("2"));
    }
    if let Some(count) = first.error_limit.filter(|_| is_http) {
        made.more.set("http.ejection.failures", Value::Number(count));
    }
    if let Some(tls) = &first.tls {
        *made.more.table("tls") = tls.clone();
    }
    if !first.has_check {
        made.more.set("health.enabled", Value::Flag(false));
        return Ok(());
    }
    if is_http {
        check(section, made);
    }
    let interval = first.interval.unwrap_or(CHECK_MICROS).clamp(10_000, HOUR);
    made.more.set("health.interval", Value::micros(interval));
    let limit = timeout(section, "check")?.filter(|time| *time > 0).unwrap_or(interval).clamp(1_000, interval);
    made.more.set("health.timeout", Value::micros(limit));
    if let Some(count) = first.fall {
        made.more.set("health.unhealthy_after", Value::Number(count.clamp(1, 1000)));
    }
    if let Some(count) = first.rise {
        made.more.set("health.healthy_after", Value::Number(count.clamp(1, 1000)));
    }
    Ok(())
}

/// `option httpchk` and `http-check`.
fn check(section: &Section, made: &mut Upstream) {
    let Some(option) = section.find("option httpchk") else { return };
    let (mut method, mut path, mut host) = ("OPTIONS".to_owned(), "/".to_owned(), None);
    match option.words.get(2..) {
        Some([uri]) => path.clone_from(uri),
        Some([own, uri, version @ ..]) => {
            (method, path) = (own.clone(), uri.clone());
            let text = version.join(" ");
            host = text.split_once("Host:").map(|(_, host)| host.split('\r').next().unwrap_or(host).trim().to_owned());
        }
        _ => {}
    }
    let lines: Vec<&Line> =
        section.defaults.iter().chain(&section.lines).filter(|line| line.word(0) == "http-check").collect();
    for line in &lines {
        if line.word(1) == "expect"
            && !matches!((line.word(2), line.word(3)), ("status", "200" | "200-399") | ("rstatus", _))
        {
            made.notes.push(line.note("a check is good with a status from 200 to 399", "health_path"));
        }
        if line.word(1) != "send" {
            continue;
        }
        let after = |name: &str| line.words.iter().position(|word| word == name).and_then(|at| line.words.get(at + 1));
        if let Some(own) = after("meth") {
            method.clone_from(own);
        }
        if let Some(uri) = after("uri") {
            path.clone_from(uri);
        }
        let header = line.words.windows(3).find(|words| words[0] == "hdr" && words[1].eq_ignore_ascii_case("host"));
        if let Some(words) = header {
            host = Some(words[2].clone());
        }
    }
    if method != "GET" {
        made.notes.push(option.note("a check is a GET", "health_path"));
    }
    made.more.set("http.health_path", Value::text(path));
    if let Some(host) = host.filter(|host| !host.is_empty()) {
        made.more.set("http.health_host", Value::text(host));
    }
}

fn balance(section: &Section, table: &str, made: &mut Upstream) {
    let is_http = table == "http";
    if let Some(cookie) = section.find("cookie").filter(|_| is_http) {
        made.more.set("http.balance", Value::text("ring_hash"));
        made.more.set("http.affinity.cookie", Value::text(cookie.word(1)));
        made.notes.push(
            cookie.note("the cookie has a value of its own, not the name of a server", "[upstream.http.affinity]"),
        );
        return;
    }
    let Some(line) = section.find("balance") else { return };
    let mut affinity = None;
    let word = match line.word(1).split('(').next().unwrap_or_default() {
        "roundrobin" | "static-rr" => None,
        "leastconn" => Some("least_request"),
        "first" => {
            made.notes
                .push(line.note("servers are used in turn, not filled one by one", "balance = \"least_request\""));
            None
        }
        "random" => Some("power_of_two"),
        "source" => {
            affinity = Some(("address", Value::Flag(true)));
            Some("ring_hash")
        }
        "hdr" => {
            let name = line.word(1).trim_start_matches("hdr(").trim_end_matches(')').to_owned();
            affinity = Some(("header", Value::text(name)));
            Some("ring_hash")
        }
        _ => {
            made.notes.push(line.note(
                "endpoints are chosen by address, header or cookie; here they are used in turn",
                "[upstream.http.affinity]",
            ));
            None
        }
    };
    if let Some(word) = word {
        made.more.set(&format!("{table}.balance"), Value::text(word));
    }
    if let Some((key, value)) = affinity.filter(|_| is_http) {
        made.more.set(&format!("http.affinity.{key}"), value);
    }
}

/// The address of a server.
fn endpoint(line: &Line, server: &Server, notes: &mut Vec<Note>) -> Result<String, Mistake> {
    let text = line.word(2);
    if text.is_empty() {
        return Err(line.mistake("server needs a name and an address"));
    }
    let text = ["ipv4@", "ipv6@", "unix@"].iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text);
    if text.starts_with('/') {
        return Ok(format!("unix:{text}"));
    }
    let host_end = text.rfind(']').map_or(0, |end| end + 1);
    if text[host_end..].contains(':') {
        return address::endpoint(text, &line.place);
    }
    let port = if server.tls.is_some() { 443 } else { 80 };
    notes.push(Note::new(&line.place, line.text(), format!("an endpoint has a port; here {port}"), "endpoints"));
    address::endpoint(&format!("{text}:{port}"), &line.place)
}

/// Options of a `server` or of `default-server`.
fn options(words: &[String], line: &Line, server: &mut Server, notes: &mut Vec<Note>) -> Result<(), Mistake> {
    let mut words = words.iter();
    let mut tls = ServerTls { table: Table::default(), is_on: server.tls.is_some(), skips: false };
    while let Some(word) = words.next() {
        let mut value = || words.next().map_or("", String::as_str);
        let number = |text: &str| text.parse::<u64>().map_err(|_| line.mistake(format!("{word} needs a number")));
        let time = |text: &str| haproxy_time(text).ok_or_else(|| line.mistake(format!("{word} needs a time")));
        match word.as_str() {
            "check" => server.has_check = true,
            "no-check" => server.has_check = false,
            "weight" => server.weight = Some(number(value())?),
            "maxconn" => server.connections_max = Some(number(value())?),
            "inter" => server.interval = Some(time(value())?),
            "fall" => server.fall = Some(number(value())?),
            "rise" => server.rise = Some(number(value())?),
            "slowstart" => server.slow_start = Some(time(value())?),
            "error-limit" => server.error_limit = Some(number(value())?),
            "send-proxy" => server.proxy_header = Some("v1"),
            "send-proxy-v2" => server.proxy_header = Some("v2"),
            "proto" => server.is_http2 = value() == "h2",
            "alpn" => server.is_http2 = value().starts_with("h2"),
            "backup" | "disabled" => {
                server.is_left_out = true;
                let why = match word.as_str() {
                    "backup" => "Weir has no backup endpoints; it is left out",
                    _ => "it is disabled, and left out",
                };
                notes.push(line.note(why, "an endpoint like the others"));
            }
            // They only name it, or say when traffic counts as a check: it always does.
            "observe" | "cookie" | "id" => {
                value();
            }
            word if NOTED.contains(&word) => {
                let text = format!("`{word} {}` has no counterpart", value());
                notes.push(Note::new(&line.place, line.text(), text, "[upstream.health]"));
            }
            word if tls.read(word, &mut value, line, notes) => {}
            other => notes.push(Note::new(&line.place, line.text(), format!("`{other}` has no counterpart"), "")),
        }
    }
    tls.give(server);
    Ok(())
}

/// Options of a server with a value, of which Weir knows nothing.
const NOTED: [&str; 20] = [
    "on-error",
    "on-marked-down",
    "on-marked-up",
    "fastinter",
    "downinter",
    "init-addr",
    "resolvers",
    "resolve-prefer",
    "port",
    "addr",
    "maxqueue",
    "minconn",
    "pool-max-conn",
    "ssl-min-ver",
    "ssl-max-ver",
    "ciphers",
    "check-sni",
    "check-alpn",
    "source",
    "crl-file",
];

/// TLS towards a server.
struct ServerTls {
    table: Table,
    is_on: bool,
    skips: bool,
}

impl ServerTls {
    /// Reads an option. False: it is none of TLS.
    fn read<'w>(
        &mut self,
        word: &str,
        value: &mut impl FnMut() -> &'w str,
        line: &Line,
        notes: &mut Vec<Note>,
    ) -> bool {
        match word {
            "ssl" => self.is_on = true,
            "verify" => self.skips = value() == "none",
            "ca-file" => self.table.set("ca_file", Value::text(value())),
            "crt" => {
                let file = value();
                self.table.set("cert_file", Value::text(file));
                self.table.set("key_file", Value::text(file));
            }
            "verifyhost" => self.table.set("server_name", Value::text(value())),
            "sni" => match value().strip_prefix("str(").and_then(|rest| rest.strip_suffix(')')) {
                Some(name) => self.table.set("server_name", Value::text(name)),
                None => {
                    let why = "the server name is a fixed text, or the host of the endpoint";
                    notes.push(line.note(why, "[upstream.tls] server_name"));
                }
            },
            _ => return false,
        }
        true
    }

    /// The TLS words of a line stand in place of what `default-server` says.
    fn give(mut self, server: &mut Server) {
        if !self.is_on {
            return;
        }
        if self.skips {
            self.table.remove_key("ca_file");
            self.table.set("insecure_skip_verify", Value::Flag(true));
        }
        if !self.table.is_empty() || server.tls.is_none() {
            server.tls = Some(self.table);
        }
    }
}
