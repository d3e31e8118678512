//! Upstream blocks, and servers that `proxy_pass` names itself.

use super::Importer;
use super::scope::Scope;
use super::settings::millis;
use super::syntax::Directive;
use crate::address;
use crate::model::Upstream;
use crate::note::{Mistake, Note, SourceLine};
use crate::quantity::nginx_time;
use crate::toml::{Table, Value};

/// How requests get to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamUse {
    Http,
    Https,
    Grpc,
    Grpcs,
    Tcp,
}

impl UpstreamUse {
    const fn table(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            _ => "http",
        }
    }

    const fn has_tls(self) -> bool {
        matches!(self, Self::Https | Self::Grpcs)
    }

    const fn port(self) -> u16 {
        if self.has_tls() { 443 } else { 80 }
    }
}

/// Milliseconds that nginx waits for a connection. Weir's default is shorter, so it is always written.
const CONNECT_MILLIS: u64 = 60_000;

/// Milliseconds for which nginx leaves a server out that has failed.
const FAIL_MILLIS: u64 = 10_000;

impl<'c> Importer<'c> {
    /// The name of the upstream for `server`, which is an upstream block or an address. It is made when it is first named.
    pub(super) fn upstream(
        &mut self,
        server: &str,
        way: UpstreamUse,
        scope: &Scope<'c>,
        place: &SourceLine,
    ) -> Result<String, Mistake> {
        let has_tls = way.has_tls() || way == UpstreamUse::Tcp && scope.is_on("proxy_ssl");
        let tls = has_tls.then(|| tls(scope, way, server));
        let name = if matches!(way, UpstreamUse::Grpc | UpstreamUse::Grpcs) {
            "grpc_connect_timeout"
        } else {
            "proxy_connect_timeout"
        };
        let connect = scope.find(name).map(millis).transpose()?.unwrap_or(CONNECT_MILLIS).clamp(1, 3_600_000);
        let has_proxy_header = way == UpstreamUse::Tcp && scope.is_on("proxy_protocol") && !has_tls;
        if let Some(of) =
            scope.find("proxy_protocol").filter(|of| way == UpstreamUse::Tcp && has_tls && of.first() == "on")
        {
            self.note(of, "there is no PROXY header in front of TLS", "tcp.proxy_header");
        }
        let key = format!("{server} {way:?} {connect} {has_proxy_header} {tls:?}");
        if let Some(name) = self.made.get(&key) {
            return Ok(name.clone());
        }
        let at = self.blocks.get(server).map_or(place, |block| &block.place);
        let mut made = Upstream::new(self.upstream_names.unique(server.trim_start_matches("unix:")), at);
        made.more.set("connect_timeout", Value::millis(connect));
        if has_proxy_header {
            made.more.set("tcp.proxy_header", Value::text("v1"));
        }
        if matches!(way, UpstreamUse::Grpc | UpstreamUse::Grpcs) {
            made.more.set("http.version", Value::text("2"));
        }
        match self.blocks.get(server) {
            Some(block) => read_block(block, way, &mut made)?,
            None => made.endpoints.push(address::endpoint(&with_port(server, way.port()), place)?),
        }
        if made.endpoints.is_empty() {
            return Err(Mistake::new(place, format!("upstream `{server}` has no server that is in use")));
        }
        if let Some(tls) = tls {
            *made.more.table("tls") = tls;
        }
        let name = made.name.clone();
        self.config.upstreams.push(made);
        self.made.insert(key, name.clone());
        Ok(name)
    }
}

/// An address with its port.
pub(super) fn with_port(server: &str, port: u16) -> String {
    if server.starts_with("unix:") || server.starts_with('/') {
        return format!("unix:{}", server.trim_start_matches("unix:").trim_end_matches(':'));
    }
    let host_end = server.rfind(']').map_or(0, |end| end + 1);
    match server[host_end..].contains(':') {
        true => server.to_owned(),
        false => format!("{server}:{port}"),
    }
}

/// nginx does not check certificates of upstreams unless `proxy_ssl_verify` or `grpc_ssl_verify` is on.
fn tls(scope: &Scope<'_>, way: UpstreamUse, server: &str) -> Table {
    let module = if matches!(way, UpstreamUse::Grpc | UpstreamUse::Grpcs) { "grpc_ssl" } else { "proxy_ssl" };
    let first = |name: &str| scope.first(&format!("{module}_{name}"));
    let mut table = Table::default();
    if first("verify") == Some("on") {
        if let Some(file) = first("trusted_certificate") {
            table.set("ca_file", Value::text(file));
        }
    } else {
        table.set("insecure_skip_verify", Value::Flag(true));
    }
    for (name, key) in [("certificate", "cert_file"), ("certificate_key", "key_file")] {
        if let Some(file) = first(name) {
            table.set(key, Value::text(file));
        }
    }
    let own = first("name").filter(|name| !name.contains('$'));
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
    let is_address = host.parse::<std::net::IpAddr>().is_ok();
    // The name in the certificate is that of proxy_pass, also where an upstream block has other hosts.
    if let Some(name) = own.or((!is_address && !server.starts_with("unix:")).then_some(host)) {
        table.set("server_name", Value::text(name));
    }
    table
}

/// A `server` of a block.
struct Member {
    address: String,
    weight: u64,
    slow_start: Option<u64>,
    connections_max: Option<u64>,
    failures: Option<u64>,
    fail_time: Option<u64>,
}

fn read_block(block: &Directive, way: UpstreamUse, made: &mut Upstream) -> Result<(), Mistake> {
    let mut members: Vec<Member> = Vec::new();
    let mut balance = Balance::default();
    for of in block.body() {
        match of.name.as_str() {
            "server" => members.extend(member(of, way, &mut made.notes)?),
            "keepalive" => match of.first().parse() {
                Ok(count) if way != UpstreamUse::Tcp => {
                    made.more.set("http.idle_connections_max", Value::Number(count))
                }
                _ => return Err(Mistake::new(&of.place, "keepalive needs a number of connections")),
            },
            "keepalive_timeout" => made.more.set("http.idle_timeout", Value::millis(millis(of)?.clamp(10, 86_400_000))),
            "zone" => {}
            _ => balance.read(of, &mut made.notes),
        }
    }
    for member in &members {
        if made.endpoints.contains(&member.address) {
            let why = "an address stands once in an upstream; the second one is left out";
            made.notes.push(Note::new(&block.place, &member.address, why, "weights"));
            continue;
        }
        made.endpoints.push(member.address.clone());
    }
    balance.set(way, made);
    let table = way.table();
    if members.len() == made.endpoints.len() && members.iter().any(|member| member.weight != 1) {
        let weights = members.iter().map(|member| Value::Number(member.weight)).collect();
        made.more.set(&format!("{table}.weights"), Value::List(weights));
    }
    set_limits(block, way, &members, made);
    Ok(())
}

/// Sets the keys that Weir has once for all endpoints of an upstream: the first server decides.
fn set_limits(block: &Directive, way: UpstreamUse, members: &[Member], made: &mut Upstream) {
    let Some(first) = members.first() else { return };
    let table = way.table();
    let all_alike = members.iter().all(|other| {
        (other.slow_start, other.connections_max, other.failures, other.fail_time)
            == (first.slow_start, first.connections_max, first.failures, first.fail_time)
    });
    if !all_alike {
        let why =
            "max_conns, slow_start, max_fails and fail_timeout apply to all endpoints; the first gives the values";
        made.notes.push(Note::new(&block.place, block.text(), why, "[upstream.http]"));
    }
    if let Some(time) = first.slow_start {
        made.more.set(&format!("{table}.slow_start"), Value::millis(time.min(3_600_000)));
    }
    if let Some(count) = first.connections_max.filter(|count| *count > 0) {
        made.more.set(&format!("{table}.connections_max"), Value::Number(count));
    }
    if way == UpstreamUse::Tcp {
        return;
    }
    if let Some(failures) = first.failures {
        made.more.set("http.ejection.failures", Value::Number(failures));
    }
    // nginx never leaves out the only server.
    if first.failures != Some(0) && (members.len() > 1 || first.fail_time.is_some()) {
        let time = first.fail_time.unwrap_or(FAIL_MILLIS).clamp(10, 86_400_000);
        made.more.set("http.ejection.duration", Value::millis(time));
        if time > 300_000 {
            made.more.set("http.ejection.duration_max", Value::millis(time));
        }
    }
}

fn member(of: &Directive, way: UpstreamUse, notes: &mut Vec<Note>) -> Result<Option<Member>, Mistake> {
    if of.first().is_empty() {
        return Err(Mistake::new(&of.place, "server needs an address"));
    }
    let mut member = Member {
        address: address::endpoint(&with_port(of.first(), way.port()), &of.place)?,
        weight: 1,
        slow_start: None,
        connections_max: None,
        failures: None,
        fail_time: None,
    };
    let mut is_used = true;
    for option in of.args.iter().skip(1) {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let wrong = || Mistake::new(&of.place, format!("`{option}` has no value that can be used"));
        let number = || value.parse::<u64>().map_err(|_| wrong());
        let time = || nginx_time(value).ok_or_else(wrong);
        match key {
            "weight" => member.weight = number()?,
            "max_fails" => member.failures = Some(number()?),
            "fail_timeout" => member.fail_time = Some(time()?),
            "max_conns" => member.connections_max = Some(number()?),
            "slow_start" => member.slow_start = Some(time()?),
            "backup" => {
                is_used = false;
                let why = "Weir has no backup endpoints; it is left out";
                notes.push(Note::new(&of.place, of.text(), why, "an endpoint like the others"));
            }
            "down" => {
                is_used = false;
                notes.push(Note::new(&of.place, of.text(), "it is down, and left out", "weight 0 in weights"));
            }
            "resolve" => {}
            _ => notes.push(Note::new(&of.place, of.text(), format!("`{option}` has no counterpart"), "")),
        }
    }
    Ok(is_used.then_some(member))
}

/// How an endpoint is chosen.
#[derive(Default)]
struct Balance {
    word: Option<&'static str>,
    affinity: Option<(&'static str, Value)>,
}

impl Balance {
    fn read(&mut self, of: &Directive, notes: &mut Vec<Note>) {
        match of.name.as_str() {
            "least_conn" => self.word = Some("least_request"),
            "least_time" => self.word = Some("peak_ewma"),
            "random" if of.first() == "two" => self.word = Some("power_of_two"),
            "random" => self.word = Some("random"),
            "ip_hash" => self.hash("$remote_addr", of, notes),
            "hash" => {
                if !of.args.iter().any(|arg| arg == "consistent") {
                    let why = "hashes are consistent: other keys belong to other endpoints than before";
                    notes.push(Note::new(&of.place, of.text(), why, "balance = \"ring_hash\""));
                }
                self.hash(of.first(), of, notes);
            }
            "sticky" if of.first() == "cookie" && of.args.len() > 1 => {
                self.word = Some("ring_hash");
                self.affinity = Some(("cookie", Value::text(&of.args[1])));
            }
            _ => notes.push(Note::new(&of.place, of.text(), "has no counterpart", "")),
        }
    }

    fn hash(&mut self, variable: &str, of: &Directive, notes: &mut Vec<Note>) {
        let affinity = match variable {
            "$remote_addr" | "$binary_remote_addr" => Some(("address", Value::Flag(true))),
            _ => variable.strip_prefix("$http_").map(|name| ("header", Value::text(name.replace('_', "-")))),
        };
        match affinity {
            Some(affinity) => {
                self.word = Some("ring_hash");
                self.affinity = Some(affinity);
            }
            None => {
                let why = "endpoints are chosen by address, header or cookie; here they are used in turn";
                notes.push(Note::new(&of.place, of.text(), why, "[upstream.http.affinity]"));
            }
        }
    }

    fn set(self, way: UpstreamUse, made: &mut Upstream) {
        let table = way.table();
        if let Some(word) = self.word {
            made.more.set(&format!("{table}.balance"), Value::text(word));
        }
        // A TCP connection has an address only, which its hash is of anyway.
        if let Some((key, value)) = self.affinity.filter(|_| way != UpstreamUse::Tcp) {
            made.more.set(&format!("http.affinity.{key}"), value);
        }
    }
}
