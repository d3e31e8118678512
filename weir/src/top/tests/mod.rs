//! The view as a user sees it: keys and samples in, text out; and once over a real admin server.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use weir_admin::status::{
    Breaker, CheckResult, EndpointStatus, Health, KneeAction, KneeStatus, ListenerState, ListenerStatus, ProbeResponse,
    Quantiles, UpstreamStatus, Verdict, VersionStatus, WorkerStatus,
};

use super::client::Sample;
use super::exposition::Exposition;
use super::render;
use super::state::State;

mod frames;
mod insight;
mod keys;
mod server;

/// A listener that has served this many requests.
fn listener(name: &str, requests: u64) -> ListenerStatus {
    ListenerStatus {
        name: name.to_owned(),
        protocol: "redis".to_owned(),
        bind: "127.0.0.1:6380".to_owned(),
        tls: false,
        certificates: Vec::new(),
        upstream: "redis-main".to_owned(),
        state: ListenerState::Accepting,
        connections_open: requests / 100,
        connections_max: None,
        accepted_total: 10,
        refused_total: BTreeMap::new(),
        closed_total: 0,
        requests_total: requests,
        requests_in_flight: 3,
        responses_total: None,
        errors: None,
        shed_total: BTreeMap::new(),
        received_bytes_total: requests * 30,
        sent_bytes_total: requests * 70,
        request_seconds: Quantiles { count: requests, p50: Some(0.0005), p99: Some(0.0025), p999: Some(0.0125) },
        overhead_seconds: Quantiles::default(),
        knee: None,
    }
}

/// A knee of 10,000 requests per second.
fn knee(offered: Option<f64>, warned: bool, reached: bool) -> KneeStatus {
    KneeStatus {
        requests_per_second: 10_000.0,
        offered_requests_per_second: offered,
        load_ratio: offered.map(|offered| offered / 10_000.0),
        warn_ratio: 0.8,
        warned,
        reached,
        action: KneeAction::Observe,
        file: "knee.json".to_owned(),
        run_id: "r1".to_owned(),
        measured_at: 1,
        caveats: Vec::new(),
    }
}

fn upstream(name: &str) -> UpstreamStatus {
    UpstreamStatus {
        name: name.to_owned(),
        tls: false,
        endpoints: vec![EndpointStatus {
            address: "10.0.0.1:6379".to_owned(),
            health: Health::Healthy,
            breaker: Breaker::Closed,
            lanes_shared: 2,
            lanes_pinned: 5,
            waiters: 0,
            requests_in_flight: 3,
            requests_total: 0,
            responses_total: None,
            failures_total: 0,
            connects_total: 2,
            connect_failures_total: 0,
            last_error: None,
            last_error_age_seconds: None,
        }],
        acquire_wait_seconds: Quantiles::default(),
        response_seconds: Quantiles::default(),
    }
}

fn worker(id: u32, cpu_seconds: f64) -> WorkerStatus {
    WorkerStatus {
        id,
        cpu: Some(id),
        driver: "io_uring".to_owned(),
        connections: 7,
        cpu_seconds,
        turns: 0,
        stalled: false,
        generation: 1,
    }
}

/// A sample this many seconds after `start`.
fn sample(start: Instant, seconds: f64, listeners: Vec<ListenerStatus>) -> Sample {
    Sample {
        at: start + Duration::from_secs_f64(seconds),
        version: VersionStatus {
            version: "0.1.0".to_owned(),
            commit: "abc1234".to_owned(),
            target: "x86_64-linux".to_owned(),
            debug: false,
            pid: 7,
            uptime_seconds: 3600.0 + seconds,
            generation: 2,
            restart_epoch: 0,
            draining_predecessor: None,
        },
        readiness: ProbeResponse {
            status: Verdict::Pass,
            checks: vec![CheckResult {
                name: "not_draining".to_owned(),
                status: Verdict::Pass,
                detail: Some("asked to drain".to_owned()),
            }],
        },
        listeners,
        routes: Vec::new(),
        upstreams: vec![upstream("redis-main")],
        workers: vec![worker(0, seconds * 0.5), worker(1, seconds * 0.25)],
        metrics: Exposition::default(),
        remembered: None,
    }
}

/// A state that has seen these samples.
fn state_of(samples: impl IntoIterator<Item = Sample>) -> State {
    let mut state = State::new("http://127.0.0.1:9900");
    for sample in samples {
        state.accept(Ok(sample));
    }
    state
}

/// The lines of the screen.
fn screen(state: &mut State, width: u16, height: u16, now: Instant) -> Vec<String> {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(completed) = terminal.draw(|frame| render::draw(frame, state, now));
    let cells = completed.buffer.content();
    let lines = cells.chunks(usize::from(width)).map(|line| {
        let line: String = line.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned()
    });
    lines.collect()
}

/// The words of the first line that begins with this one.
fn words<'a>(lines: &'a [String], first: &str) -> Vec<&'a str> {
    lines
        .iter()
        .map(|line| line.split_whitespace().collect::<Vec<&str>>())
        .find(|words| words.first() == Some(&first))
        .unwrap_or_else(|| panic!("no line begins with {first}:\n{}", lines.join("\n")))
}
