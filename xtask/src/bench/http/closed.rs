//! The load of HTTP/2 and WebSocket: the lab's own generator in a closed loop.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_parties::process::{Launch, Process};

use super::front::Front;
use super::row::HttpRow;
use crate::bench::measure::Outcome;
use crate::bench::peers::Goal;
use crate::bench::place::Place;

/// Beyond the length of a run.
const PATIENCE: Duration = Duration::from_secs(20);
/// Until connections stand. What comes in it costs CPU time and is not counted, for every arm alike.
const WARM_UP: &str = "100ms";

/// Asks for `seconds` over and over. Every answer is checked; any error fails the run.
pub(crate) fn run(program: &str, row: &HttpRow, goal: &Goal, seconds: u64, place: &Place) -> Result<Outcome> {
    let (scenario, json) = (place.path().join("scenario.toml"), place.path().join("record.jsonl"));
    std::fs::write(&scenario, text(row, seconds))?;
    let (scenario, record) = (scenario.to_string_lossy().into_owned(), json.to_string_lossy().into_owned());
    let target = format!("127.0.0.1:{}", goal.port);
    let words = [program, "lab", "load", &scenario, "--target", &target, "--quiet", "--json", &record];
    let mut process = Process::start(Launch::new("lab", Some(&place.load_cpu), words), place.path())?;
    let status = process.wait(Duration::from_secs(seconds) + PATIENCE)?;
    ensure!(status.success(), "the lab ended with {status}; {}", process.tail());
    let record: Value = serde_json::from_str(&std::fs::read_to_string(json)?)?;
    let errors = record.pointer("/counts/errors").and_then(Value::as_object).context("no count of errors")?;
    ensure!(errors.values().all(|count| count.as_u64() == Some(0)), "the lab saw errors: {errors:?}");
    let completed = record.pointer("/counts/completed").and_then(Value::as_u64).context("no count of answers")?;
    ensure!(completed > 0, "nothing was answered");
    let latency = |name: &str| {
        let micros = record.pointer(&format!("/latency/sojourn/{name}")).and_then(Value::as_f64);
        micros.map(|micros| micros / 1e3)
    };
    Ok(Outcome {
        completed,
        rate: completed as f64 / seconds as f64,
        p50: latency("p50").context("no p50")?,
        p99: latency("p99").context("no p99")?,
        p999: latency("p999"),
    })
}

fn text(row: &HttpRow, seconds: u64) -> String {
    let (protocol, under_way) = match row.front {
        Front::Http2 => ("http2", "streams"),
        Front::WebSocket => ("websocket", "pipeline"),
        Front::Plain | Front::Routes | Front::Tls => ("http1", "pipeline"),
    };
    let HttpRow { bytes, connections, streams, .. } = row;
    format!(
        "name = \"bench\"\nprotocol = \"{protocol}\"\nmode = \"closed\"\nconnections = {connections}\n{under_way} = {streams}\n\
         integrity = true\npayload = {{ size = \"{bytes}B\" }}\nphase = [{{ warmup = \"{WARM_UP}\", duration = \"{seconds}s\" }}]\n"
    )
}
