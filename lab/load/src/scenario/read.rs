//! From TOML text to a checked scenario.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::commands::{self, WEIGHT_MAX};
use super::mistake::{Mistakes, Problems, Span};
use super::table::{Node, Table};
use super::{
    CONNECTIONS_MAX, Command, CommandKind, KEYS_MAX, KeySpace, LATENCY_MAX, Mode, PAYLOAD_BYTES_MAX, PIPELINE_MAX,
    Payload, PayloadSize, Phase, Protocol, REPLY_BYTES_MAX, Request, Scenario, request,
};
use crate::arrivals::{Arrival, Rate};
use crate::keys::Distribution;
use crate::shard::SHARDS_MAX;

/// Bytes of a scenario file. Default 256 KiB: hundreds of phases; what is larger is no scenario.
pub const FILE_BYTES_MAX: usize = 256 * 1024;

/// Phases of one scenario. Default 1,000: days of load.
pub const PHASES_MAX: usize = 1_000;

/// Bytes of a name or a key prefix.
const NAME_BYTES_MAX: usize = 64;
const PREFIX_BYTES_MAX: usize = 256;

/// Zipf exponents. At 10 nearly all requests name one key; beyond it there is nothing to measure.
const EXPONENTS: RangeInclusive<f64> = 0.01..=10.0;
/// Burstiness of gamma gaps. At 1,000 nearly all gaps are zero.
const BURSTINESS: RangeInclusive<f64> = 1.0..=1_000.0;
const BURST_MAX: u32 = 1_000_000;
const WINDOWS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(7 * 86_400);
const WARMUPS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3_600);
const LIMITS: RangeInclusive<Duration> = Duration::from_micros(10)..=LATENCY_MAX;

/// The warm-up unless told otherwise.
const WARMUP: Duration = Duration::from_secs(5);

/// Reads and checks the text of a scenario. `file` stands in messages.
///
/// # Errors
/// All mistakes of the text at once, each with its place and its remedy.
pub fn parse(file: &str, source: &str) -> Result<Scenario, Mistakes> {
    let problems = Problems::new(file, source);
    let scenario = read(source, &problems);
    match scenario {
        Some(scenario) if problems.is_empty() => Ok(scenario),
        _ => Err(problems.finish()),
    }
}

fn read(source: &str, problems: &Problems<'_>) -> Option<Scenario> {
    if source.len() > FILE_BYTES_MAX {
        let what = format!("the scenario has more than {FILE_BYTES_MAX} bytes");
        problems.add(&(0..0), what, "is it the right file?");
        return None;
    }
    let (document, errors) = DeTable::parse_recoverable(source);
    for error in &errors {
        let span = error.span().unwrap_or(0..0);
        problems.add(&span, format!("not TOML: {}", error.message()), "see https://toml.io for the syntax");
    }
    if !errors.is_empty() {
        // What the parser guessed while it recovered would only give mistakes that nobody made.
        return None;
    }
    let root = Table::root(document.get_ref(), problems);
    let scenario = read_root(&root, problems);
    root.finish();
    scenario
}

fn read_root(root: &Table<'_>, problems: &Problems<'_>) -> Option<Scenario> {
    let name = root.need("name", "\"redis-get-64b\"").and_then(|node| name(&node));
    let protocol = root.need("protocol", "\"redis\"").and_then(|node| node.choice(&Protocol::ALL));
    let mode = read_mode(root);
    let seed = or_default(root.get("seed"), 1, |node| node.whole(0..=i64::MAX as u64));
    let connections = or_default(root.get("connections"), 50, |node| node.whole(1..=CONNECTIONS_MAX));
    let shards = or_default(root.get("shards"), 1, |node| node.whole(1..=SHARDS_MAX));
    if let (Some(shards), Some(connections)) = (shards, connections)
        && shards > connections
    {
        let what = format!("{shards} `shards` cannot share {connections} `connections`");
        problems.add(&root.span_of("shards"), what, "each shard needs a connection: raise one or lower the other");
    }
    let pipeline = read_depth(root, protocol);
    let (slo_p99, late_limit) = read_limits(root);
    let payload = read_payload(root);
    let integrity = or_default(root.get("integrity"), true, |node| node.boolean());
    let work = match protocol {
        Some(protocol) if protocol.is_http() => read_http(root, payload.as_ref()),
        // What is wrong is told as if it were Redis, whose keys are the most.
        _ => read_redis(root, payload.as_ref(), integrity, problems),
    };
    let phases = read_phases(root, mode, problems);
    Some(Scenario {
        name: name?,
        protocol: protocol?,
        mode: mode?,
        seed: seed?,
        shards: shards?,
        connections: connections?,
        pipeline: pipeline?,
        slo_p99: slo_p99?,
        late_limit: late_limit?,
        integrity: integrity?,
        keys: work.as_ref()?.keys.clone(),
        payload: payload?,
        commands: work.as_ref()?.commands.clone(),
        request: work?.request,
        phases,
    })
}

/// What is sent, by protocol.
struct Work {
    keys: KeySpace,
    commands: Vec<Command>,
    request: Request,
}

fn read_redis(
    root: &Table<'_>,
    payload: Option<&Payload>,
    integrity: Option<bool>,
    problems: &Problems<'_>,
) -> Option<Work> {
    root.refuse("request", "is only for HTTP and WebSocket", "remove it, or change the protocol");
    let keys = root.table("keys").and_then(read_keys);
    let commands = commands::read(root, problems);
    check_reply_size(&commands, payload, &root.span_of("command"), problems);
    if integrity == Some(true) && !commands.is_empty() && !commands.iter().any(|one| one.kind.is_checked()) {
        let what = "`integrity` is on, but no command of the mix can be checked";
        problems.add(&root.span_of("integrity"), what, "add a GET, or write integrity = false");
    }
    Some(Work { keys: keys?, commands, request: Request::default() })
}

/// HTTP and WebSocket.
fn read_http(root: &Table<'_>, payload: Option<&Payload>) -> Option<Work> {
    root.refuse("keys", "is only for protocol = \"redis\"", "remove it; [request] says what HTTP asks for");
    root.refuse("command", "is only for protocol = \"redis\"", "remove it; [request] says what HTTP asks for");
    let request = root.table("request").and_then(request::read)?;
    let sizes = payload.map_or(1, |payload| payload.sizes().len());
    if request.path.is_some() && sizes > 1 && root.get("protocol").is_some_and(|node| !is_echo(&node)) {
        root.refuse("payload", "has several sizes, and `request.path` asks for one answer", "keep one of both");
    }
    // Nothing is stored, so nothing is written first.
    let keys = KeySpace { count: 1, prefix: String::new(), distribution: Distribution::Uniform, preload: false };
    Some(Work { keys, commands: Vec::new(), request })
}

/// Of a WebSocket every message may have its own size, whatever the path.
fn is_echo(protocol: &Node<'_>) -> bool {
    protocol.value.as_str() == Some("websocket")
}

/// Requests under way per connection: streams of HTTP/2, which have no order, and the pipeline of all others.
fn read_depth(root: &Table<'_>, protocol: Option<Protocol>) -> Option<u32> {
    let (key, other, why, remedy) = match protocol {
        Some(Protocol::Http2) => ("streams", "pipeline", "is not for HTTP/2", "write `streams`"),
        _ => ("pipeline", "streams", "is only for protocol = \"http2\"", "write `pipeline`, or remove it"),
    };
    root.refuse(other, why, remedy);
    or_default(root.get(key), 1, |node| node.whole(1..=PIPELINE_MAX))
}

/// The default if the key is absent; `None` if its value is wrong.
fn or_default<'a, T>(node: Option<Node<'a>>, default: T, read: impl FnOnce(&Node<'a>) -> Option<T>) -> Option<T> {
    match node {
        Some(node) => read(&node),
        None => Some(default),
    }
}

fn name(node: &Node<'_>) -> Option<String> {
    let text = node.text()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.bytes().all(is_plain) {
        let remedy = format!("use 1 to {NAME_BYTES_MAX} of the letters a-z, A-Z, 0-9, -, _ and .");
        node.wrong(format!("is \"{text}\""), remedy);
        return None;
    }
    Some(text.to_owned())
}

fn read_mode(root: &Table<'_>) -> Option<Mode> {
    let is_open = or_default(root.get("mode"), true, |node| node.choice(&[("open", true), ("closed", false)]))?;
    if !is_open {
        for key in ["arrival", "burstiness", "burst"] {
            root.refuse(
                key,
                "has no meaning in a closed loop, where replies decide",
                "remove it, or write mode = \"open\"",
            );
        }
        return Some(Mode::Closed);
    }
    let words = [("deterministic", 'd'), ("poisson", 'p'), ("gamma", 'g'), ("on_off", 'o')];
    let process = or_default(root.get("arrival"), 'p', |node| node.choice(&words));
    if process != Some('g') && process.is_some() {
        root.refuse("burstiness", "is only for arrival = \"gamma\"", "remove it, or change the arrival");
    }
    if process != Some('o') && process.is_some() {
        root.refuse("burst", "is only for arrival = \"on_off\"", "remove it, or change the arrival");
    }
    // Known, whatever the arrival.
    let (burstiness, burst) = (root.get("burstiness"), root.get("burst"));
    Some(Mode::Open(match process? {
        'd' => Arrival::Deterministic,
        'p' => Arrival::Poisson,
        'g' => {
            let node = burstiness.or_else(|| root.need("burstiness", "4.0"))?;
            Arrival::Gamma { burstiness: node.number(BURSTINESS)? }
        }
        _ => Arrival::OnOff { burst: burst.or_else(|| root.need("burst", "100"))?.whole(1..=BURST_MAX)? },
    }))
}

/// The objective, if there is one, and the late limit.
fn read_limits(root: &Table<'_>) -> (Option<Option<Duration>>, Option<Duration>) {
    let slo_p99 = or_default(root.get("slo_p99"), None, |node| node.duration(LIMITS).map(Some));
    let default = Scenario::late_limit_for(slo_p99.flatten());
    let late_limit = or_default(root.get("late_limit"), default, |node| {
        let limit = node.duration(LIMITS)?;
        match slo_p99.flatten() {
            Some(slo) if limit < slo => {
                let remedy = "what is skipped must have missed the objective: raise it, or leave it out";
                node.wrong(format!("is {limit:?}, below the objective of {slo:?}"), remedy);
                None
            }
            _ => Some(limit),
        }
    });
    (slo_p99, late_limit)
}

fn read_keys(table: Table<'_>) -> Option<KeySpace> {
    let count = or_default(table.get("count"), 100_000, |node| node.whole(1..=KEYS_MAX));
    let prefix = or_default(table.get("prefix"), "key:", |node| {
        let text = node.text()?;
        if text.len() > PREFIX_BYTES_MAX {
            node.wrong("is too long", format!("use at most {PREFIX_BYTES_MAX} bytes"));
            return None;
        }
        Some(text)
    });
    let is_zipf =
        or_default(table.get("distribution"), false, |node| node.choice(&[("uniform", false), ("zipf", true)]));
    let distribution = match is_zipf {
        Some(true) => table
            .need("exponent", "0.99")
            .and_then(|node| node.number(EXPONENTS))
            .map(|exponent| Distribution::Zipf { exponent }),
        Some(false) => {
            table.refuse("exponent", "is only for distribution = \"zipf\"", "remove it, or change the distribution");
            Some(Distribution::Uniform)
        }
        None => None,
    };
    // Known, whatever the distribution.
    table.get("exponent");
    let preload = or_default(table.get("preload"), true, |node| node.boolean());
    table.finish();
    Some(KeySpace { count: count?, prefix: prefix?.to_owned(), distribution: distribution?, preload: preload? })
}

/// `[payload]` with one size, or `[[payload]]` with several.
fn read_payload(root: &Table<'_>) -> Option<Payload> {
    let Some(node) = root.get("payload") else {
        return Payload::new(vec![PayloadSize { bytes: 64, weight: 1 }]);
    };
    let entries = match node.value {
        DeValue::Array(_) => node.list()?,
        _ => vec![node],
    };
    if entries.is_empty() {
        root.refuse("payload", "is empty", "name at least one size");
    }
    // All are read before the first that is wrong ends it.
    let sizes: Vec<Option<PayloadSize>> = entries
        .into_iter()
        .map(|node| {
            let table = node.into_table()?;
            let bytes = table.need("size", "\"64B\"").and_then(|node| node.size(PAYLOAD_BYTES_MAX));
            let weight = or_default(table.get("weight"), 1, |node| node.whole(1..=WEIGHT_MAX));
            table.finish();
            Some(PayloadSize { bytes: bytes?, weight: weight? })
        })
        .collect();
    Payload::new(sizes.into_iter().collect::<Option<_>>()?)
}

fn check_reply_size(commands: &[Command], payload: Option<&Payload>, span: &Span, problems: &Problems<'_>) {
    let keys_max = commands.iter().map(|one| if let CommandKind::Mget { keys } = one.kind { keys } else { 1 }).max();
    let bytes = u64::from(keys_max.unwrap_or(1)) * payload.map_or(0, Payload::bytes_max) as u64;
    if bytes > REPLY_BYTES_MAX {
        let what = format!("one reply of `command` MGET could have {bytes} bytes");
        problems.add(span, what, format!("lower keys or payload: the limit is {REPLY_BYTES_MAX}"));
    }
}

fn read_phases(root: &Table<'_>, mode: Option<Mode>, problems: &Problems<'_>) -> Vec<Phase> {
    let node = root.need("phase", "[{ rate = 10_000, duration = \"10s\" }]");
    let Some(list) = node.as_ref().and_then(Node::list) else {
        return Vec::new();
    };
    if let (Some(node), true) = (&node, list.is_empty() || list.len() > PHASES_MAX) {
        node.wrong(format!("has {} entries", list.len()), format!("a scenario has 1 to {PHASES_MAX} phases"));
    }
    let phases = list.into_iter().take(PHASES_MAX).enumerate();
    phases.filter_map(|(at, node)| read_phase(at + 1, node.into_table()?, mode, problems)).collect()
}

fn read_phase(number: usize, table: Table<'_>, mode: Option<Mode>, problems: &Problems<'_>) -> Option<Phase> {
    let name = or_default(table.get("name"), format!("phase-{number}"), name);
    let warmup = or_default(table.get("warmup"), WARMUP, |node| node.duration(WARMUPS));
    let duration = table.need("duration", "\"10s\"").and_then(|node| node.duration(WINDOWS));
    let rate = match mode {
        Some(Mode::Closed) => {
            table.refuse("rate", "has no meaning in a closed loop, where replies decide", "remove it");
            Some(None)
        }
        Some(Mode::Open(_)) => table
            .need("rate", "10_000")
            .and_then(|node| node.number(Rate::PER_SECOND_MIN..=Rate::PER_SECOND_MAX))
            .map(Rate::per_second),
        // The mode is wrong, so nobody knows whether a rate belongs here.
        None => table.get("rate").map(|_| None),
    };
    if let (Some(Some(rate)), Some(duration)) = (rate, duration) {
        check_count(&table, rate, duration, mode, problems);
    }
    table.finish();
    Some(Phase { name: name?, rate: rate?, warmup: warmup?, duration: duration? })
}

/// A window in which nothing, or only a part of a burst cycle, would happen does not have the rate that it claims.
fn check_count(table: &Table<'_>, rate: Rate, duration: Duration, mode: Option<Mode>, problems: &Problems<'_>) {
    let count = rate.mean_count(duration);
    let needed = match mode {
        Some(Mode::Open(Arrival::OnOff { burst })) => f64::from(burst),
        _ => 1.0,
    };
    if count < needed {
        let what = format!(
            "`{}` of {} per second gives {count} requests in {duration:?}, but one cycle needs {needed}",
            table.path("rate"),
            rate.as_per_second()
        );
        problems.add(&table.span_of("rate"), what, "raise the rate or the duration");
    }
}
