//! From TOML text to a checked scenario.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::mistake::{Mistakes, Problems};
use super::table::{Node, Table};
use super::{
    CONNECTIONS_MAX, LATENCY_MAX, Mode, PAYLOAD_BYTES_MAX, PIPELINE_MAX, Payload, PayloadSize, Phase, Scenario,
};
use crate::arrivals::{Arrival, Rate};
use crate::protocols::{self, Common, OwnKey, Protocol};
use crate::shard::SHARDS_MAX;
use crate::threshold::{THRESHOLDS_MAX, Threshold};

/// Bytes of a scenario file. Default 256 KiB: hundreds of phases; what is larger is no scenario.
pub const FILE_BYTES_MAX: usize = 256 * 1024;

/// Phases of one scenario. Default 1,000: days of load.
pub const PHASES_MAX: usize = 1_000;

/// Largest weight of a command or a size. Default 1,000,000: parts per million.
pub(crate) const WEIGHT_MAX: u32 = 1_000_000;

/// Bytes of a name.
const NAME_BYTES_MAX: usize = 64;

/// Burstiness of gamma gaps. At 1,000 nearly all gaps are zero.
const BURSTINESS: RangeInclusive<f64> = 1.0..=1_000.0;
const BURST_MAX: u32 = 1_000_000;
const WINDOWS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(7 * 86_400);
const WARMUPS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3_600);
const LIMITS: RangeInclusive<Duration> = Duration::from_micros(10)..=LATENCY_MAX;

/// The warm-up by default.
const WARMUP: Duration = Duration::from_secs(5);

/// Reads and checks the text of a scenario. `file` stands in messages.
///
/// # Errors
/// All mistakes of the text at once, each with its place and its remedy.
pub fn parse(file: &str, source: &str) -> Result<Scenario, Mistakes> {
    parse_with(file, source, &[])
}

/// As [`parse`], with further thresholds, which mean the same as those of the text.
///
/// # Errors
/// As [`parse`].
pub fn parse_with(file: &str, source: &str, more: &[Threshold]) -> Result<Scenario, Mistakes> {
    let problems = Problems::new(file, source);
    let scenario = read(source, more, &problems);
    match scenario {
        Some(scenario) if problems.is_empty() => Ok(scenario),
        _ => Err(problems.finish()),
    }
}

fn read(source: &str, more: &[Threshold], problems: &Problems<'_>) -> Option<Scenario> {
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
        // After a syntax error the parser guesses; mistakes found in its guesses would be none of the author's.
        return None;
    }
    let root = Table::root(document.get_ref(), problems);
    let scenario = read_root(&root, more, problems);
    root.finish();
    scenario
}

fn read_root(root: &Table<'_>, more: &[Threshold], problems: &Problems<'_>) -> Option<Scenario> {
    let name = root.need("name", "\"redis-get-64b\"").and_then(|node| name(&node));
    let words: Vec<_> = protocols::ALL.iter().map(|protocol| (protocol.word(), *protocol)).collect();
    let protocol = root.need("protocol", "\"redis\"").and_then(|node| node.choice(&words));
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
    let thresholds = read_thresholds(root).map(|own| [&own, more].concat());
    let (slo_p99, late_limit) = read_limits(root, thresholds.as_deref().unwrap_or_default());
    let payload = read_payload(root);
    let integrity = or_default(root.get("integrity"), true, |node| node.boolean());
    let spoken = protocol.unwrap_or(protocols::ALL[0]);
    let churn = or_default(root.get("churn"), false, |node| node.boolean());
    refuse_keys_of_others(root, spoken);
    let work = spoken.read(root, &Common { connections, shards, payload: payload.as_ref(), integrity, problems });
    let phases = read_phases(
        root,
        &Shape {
            mode,
            depth: depth_key(protocol),
            shards: shards.unwrap_or(1),
            channels: work.as_ref().map_or(0, |work| work.channels),
        },
        problems,
    );
    let work = work?;
    let is_plain = pipeline == Some(1) && work.channels == 0 && !spoken.is_multiplexed();
    if churn == Some(true) && !is_plain {
        let remedy = "leave out `pipeline`, `streams` and `channels`, or `churn`";
        problems.add(&root.span_of("churn"), "`churn` has one request on each connection, in order", remedy);
    }
    Some(Scenario {
        name: name?,
        protocol: protocol?,
        mode: mode?,
        seed: seed?,
        shards: shards?,
        connections: connections?,
        pipeline: pipeline?,
        slo_p99: slo_p99?,
        thresholds: thresholds?,
        late_limit: late_limit?,
        integrity: integrity?,
        churn: churn?,
        keys: work.keys,
        payload: payload?,
        commands: work.commands,
        request: work.request,
        postgres: work.postgres,
        mongodb: work.mongodb,
        ai: work.ai,
        flags: work.flags,
        channels: work.channels,
        phases,
    })
}

/// Keys that only other protocols have.
fn refuse_keys_of_others(root: &Table<'_>, protocol: &dyn Protocol) {
    let own = protocol.family();
    let mut others: Vec<&OwnKey> = Vec::new();
    for key in protocols::ALL.iter().flat_map(|other| other.family().own_keys) {
        if !own.own_keys.contains(key) && !others.contains(&key) {
            others.push(key);
            root.refuse(key.name, key.why, own.remedy);
        }
    }
}

/// The key of the requests under way per connection.
fn depth_key(protocol: Option<&dyn Protocol>) -> &'static str {
    if protocol.is_some_and(|protocol| protocol.is_multiplexed()) { "streams" } else { "pipeline" }
}

/// Requests under way per connection: streams, which have no order, or the pipeline.
fn read_depth(root: &Table<'_>, protocol: Option<&dyn Protocol>) -> Option<u32> {
    match protocol.filter(|protocol| protocol.is_multiplexed()) {
        Some(protocol) => {
            root.refuse("pipeline", &format!("is not for {}", protocol.title()), "write `streams`");
        }
        None => {
            let multiplexed = protocols::ALL.iter().filter(|protocol| protocol.is_multiplexed());
            let words: Vec<String> = multiplexed.map(|protocol| format!("\"{protocol}\"")).collect();
            let why = format!("is only for protocol = {}", words.join(" or "));
            root.refuse("streams", &why, "write `pipeline`, or remove it");
        }
    }
    or_default(root.get(depth_key(protocol)), 1, |node| node.whole(1..=PIPELINE_MAX))
}

/// The default if the key is absent; `None` if its value is wrong.
pub(crate) fn or_default<'a, T>(
    node: Option<Node<'a>>,
    default: T,
    read: impl FnOnce(&Node<'a>) -> Option<T>,
) -> Option<T> {
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

/// `threshold`: a list of texts.
fn read_thresholds(root: &Table<'_>) -> Option<Vec<Threshold>> {
    or_default(root.get("threshold"), Vec::new(), |node| {
        let list = node.list()?;
        if list.len() > THRESHOLDS_MAX {
            node.wrong(format!("has {} entries", list.len()), format!("a scenario has at most {THRESHOLDS_MAX}"));
        }
        let read = |node: &Node<'_>| {
            let parsed = node.text()?.parse::<Threshold>();
            let remedy = "write a figure, a comparison and a bound: \"p99<5ms\", \"errors<0.1%\", \"rate>1990\"";
            parsed.map_err(|error| node.wrong(format!("is no threshold: {error}"), remedy)).ok()
        };
        // All are read before the first that is wrong ends it.
        list.iter().map(read).collect::<Vec<_>>().into_iter().collect()
    })
}

/// The objective, if there is one, and the late limit. The lowest bound that a threshold sets to the p99 is the objective of a
/// scenario that names no other, so that verdict and thresholds agree.
fn read_limits(root: &Table<'_>, thresholds: &[Threshold]) -> (Option<Option<Duration>>, Option<Duration>) {
    let implied = thresholds.iter().filter_map(Threshold::p99_max).min().filter(|slo| LIMITS.contains(slo));
    let slo_p99 = or_default(root.get("slo_p99"), implied, |node| node.duration(LIMITS).map(Some));
    let default = Scenario::late_limit_for(slo_p99.flatten());
    let late_limit = or_default(root.get("late_limit"), default, |node| {
        let limit = node.duration(LIMITS)?;
        match slo_p99.flatten() {
            Some(slo) if limit < slo => {
                let remedy = "a skipped request must have missed the objective: raise late_limit, or leave it out";
                node.wrong(format!("is {limit:?}, below the objective of {slo:?}"), remedy);
                None
            }
            _ => Some(limit),
        }
    });
    (slo_p99, late_limit)
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

/// Properties of the scenario that its phases must fit.
struct Shape {
    mode: Option<Mode>,
    depth: &'static str,
    shards: u32,
    /// 0: the protocol has none.
    channels: u32,
}

fn read_phases(root: &Table<'_>, shape: &Shape, problems: &Problems<'_>) -> Vec<Phase> {
    let node = root.need("phase", "[{ rate = 10_000, duration = \"10s\" }]");
    let Some(list) = node.as_ref().and_then(Node::list) else {
        return Vec::new();
    };
    if let (Some(node), true) = (&node, list.is_empty() || list.len() > PHASES_MAX) {
        node.wrong(format!("has {} entries", list.len()), format!("a scenario has 1 to {PHASES_MAX} phases"));
    }
    let phases = list.into_iter().take(PHASES_MAX).enumerate();
    phases.filter_map(|(at, node)| read_phase(at + 1, node.into_table()?, shape, problems)).collect()
}

fn read_phase(number: usize, table: Table<'_>, shape: &Shape, problems: &Problems<'_>) -> Option<Phase> {
    let mode = shape.mode;
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
        // The mode is wrong, so it is unknown whether a rate belongs here.
        None => table.get("rate").map(|_| None),
    };
    if let (Some(Some(rate)), Some(duration)) = (rate, duration) {
        check_count(&table, rate, duration, mode, problems);
    }
    if shape.channels > 0 {
        table.refuse("connections", "has no meaning where connections are subscribers of channels", "remove it");
    }
    let connections = or_default(table.get("connections"), None, |node| {
        // Each shard needs one.
        node.whole(shape.shards..=CONNECTIONS_MAX).map(Some)
    });
    let pipeline = or_default(table.get(shape.depth), None, |node| node.whole(1..=PIPELINE_MAX).map(Some));
    table.finish();
    Some(Phase {
        name: name?,
        rate: rate?,
        warmup: warmup?,
        duration: duration?,
        connections: connections?,
        pipeline: pipeline?,
    })
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
