//! S4: clients that leave, in every way and at every moment.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use weir_tests::deadline::{WAIT, until};
use weir_tests::isolation::{Ask, Cell, Leaving, Protocol, Stand, every};

/// 1 s is what must hold; the rest is for a busy machine.
const NOTICED_WITHIN: Duration = Duration::from_millis(1_500);
/// The time after which the wait is given up.
const GIVEN_UP: Duration = Duration::from_secs(3);

/// When the client leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    Before,
    During,
    After,
    Uploading,
}

impl Moment {
    const ALL: [Self; 4] = [Self::Before, Self::During, Self::After, Self::Uploading];

    fn name(self) -> &'static str {
        match self {
            Self::Uploading => "within an upload that the origin does not take",
            Self::Before => "before the response",
            Self::During => "within the response",
            Self::After => "after the response",
        }
    }

    fn ask(self) -> Ask {
        match self {
            Self::Uploading => Ask::Unread(12 << 20),
            Self::Before => Ask::Hold,
            Self::During => Ask::Bytes(32 << 20),
            Self::After => Ask::Small,
        }
    }
}

/// Why a client that leaves so is not gone.
fn stays(protocol: &dyn Protocol, moment: Moment, how: Leaving) -> Option<&'static str> {
    match (protocol.name(), moment, how) {
        ("Redis", Moment::During, Leaving::HalfClose) => Some("it may read what it is due, for `half_close_timeout`"),
        ("WebSocket", Moment::During, Leaving::HalfClose) => Some("it has a second to read what was sent"),
        ("TCP", Moment::Uploading, _) => Some("what was sent is still to be delivered, as by TCP itself"),
        ("HTTP/1.1" | "WebSocket", Moment::Uploading, Leaving::Fin | Leaving::HalfClose) => {
            Some("its end stands behind what it sent, which nobody takes")
        }
        ("TCP", Moment::During, Leaving::HalfClose) => Some("each direction ends by itself"),
        _ => None,
    }
}

#[test]
fn s4_a_client_that_leaves_is_noticed_and_nobody_is_blamed() {
    every("S4", |protocol, _| {
        let mut rows = Vec::new();
        for is_tls in [false, true] {
            let folder = tempfile::tempdir().expect("a folder");
            let log = folder.path().join("access.log");
            let lines = format!("[telemetry.access_log]\ntarget = \"file:{}\"\nsample = 1.0\n", log.display());
            let stand = match is_tls {
                true => Stand::with_tls(protocol, |config| config.tables(&lines)),
                false => Stand::with(protocol, protocol.origin(), |config| config.tables(&lines)),
            };
            stand.origin.prepare(&Moment::During.ask());
            let mut logged = 0;
            for moment in Moment::ALL {
                let name = format!("{}, {}", if is_tls { "TLS" } else { "plain" }, moment.name());
                rows.push((name, left(&stand, moment, &log, &mut logged)));
            }
            let blamed = blamed(&stand);
            let text = if blamed.is_empty() { "nobody" } else { "the origin" };
            rows.push((format!("{}, who is blamed", if is_tls { "TLS" } else { "plain" }), Cell::figure(text, blamed)));
            let Stand { gateway, origin, .. } = stand;
            // Dropped first, so that bytes which the origin did not read keep nothing open.
            drop(origin);
            drop(gateway);
        }
        rows
    });
}

/// Leaves in each way; how long it takes to be noticed.
fn left(stand: &Stand, moment: Moment, log: &Path, logged: &mut usize) -> Cell {
    let (mut texts, mut faults) = (Vec::new(), Vec::new());
    for how in Leaving::ALL {
        if let Some(why) = stays(stand.protocol, moment, how) {
            texts.push(format!("{} -: {why}", how.name()));
            continue;
        }
        match leave(stand, moment, how) {
            Some(took) if took <= NOTICED_WITHIN => texts.push(format!("{} {} ms", how.name(), took.as_millis())),
            None if moment == Moment::Uploading => {
                // The rest of it would count for the next.
                texts.push(format!("{} not", how.name()));
                faults.push(format!("{}: not noticed", how.name()));
                break;
            }
            other => {
                let took = other.map_or_else(|| "not".to_owned(), |took| format!("after {} ms", took.as_millis()));
                texts.push(format!("{} {took}", how.name()));
                faults.push(format!("{}: noticed {took}", how.name()));
            }
        }
        let outcome = outcome(log, logged);
        let is_right = match (moment, stand.protocol.name()) {
            // A connection of TCP is one exchange, and this is how it ended.
            (Moment::After, "TCP") if how == Leaving::Reset => outcome.as_deref() == Some("client_reset"),
            (Moment::After, _) => outcome.as_deref() == Some("ok"),
            // The line of a WebSocket is its handshake's, and a connection of TCP is one exchange, which both sides have ended.
            (_, "WebSocket" | "TCP") => true,
            // A whole reply may be here before its client leaves: it is logged when the server has sent it.
            (Moment::During, "Redis") => true,
            // The access log of Redis has a line for each command with a whole reply.
            (_, "Redis") => outcome.as_deref() != Some("ok"),
            _ => outcome.as_deref().is_some_and(|outcome| outcome != "ok"),
        };
        if !is_right {
            faults.push(format!("{}: logged as {outcome:?}", how.name()));
        }
    }
    Cell::figure(texts.join(", "), faults)
}

/// How long until gateway and origin have noticed; `None`: they have not.
fn leave(stand: &Stand, moment: Moment, how: Leaving) -> Option<Duration> {
    let ask = moment.ask();
    let mut client = stand.begin(&ask);
    match moment {
        Moment::Uploading => {
            // As much as is taken; then it would have to wait.
            let chunk = vec![b'x'; 256 * 1024];
            for _ in 0..32 {
                if client.write_some(&chunk).is_err() {
                    break;
                }
            }
        }
        Moment::Before => {
            until("the request to be at the origin", WAIT, || (stand.origin.under_way(&ask) == Ok(1)).then_some(()))
        }
        Moment::During | Moment::After => {
            let due = if moment == Moment::After { 2 } else { 100_000 };
            let mut taken = 0;
            until("the response to have begun", WAIT, || {
                taken += client.read(due - taken).expect("a response");
                (taken >= due).then_some(())
            });
            let is_exchange = !matches!(stand.protocol.name(), "WebSocket" | "TCP");
            if moment == Moment::After && is_exchange {
                until("the exchange to have ended", WAIT, || {
                    (stand.gateway.metric("weir_requests_in_flight") == 0.0).then_some(())
                });
            }
        }
    }
    let begun = Instant::now();
    let half = client.leave(how);
    let noticed = loop {
        let metrics = stand.gateway.metrics();
        let held = metrics.sum("weir_connections_open") + metrics.sum("weir_requests_in_flight");
        if held == 0.0 && (moment == Moment::Uploading || matches!(stand.origin.under_way(&ask), Ok(0) | Err(_))) {
            break Some(begun.elapsed());
        }
        if begun.elapsed() > GIVEN_UP {
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    drop(half);
    if noticed.is_none() && moment != Moment::Uploading {
        // The rest of it must not count for the next.
        until("what is left to be given back", Duration::from_secs(70), || {
            let metrics = stand.gateway.metrics();
            (metrics.sum("weir_connections_open") + metrics.sum("weir_requests_in_flight") == 0.0).then_some(())
        });
    }
    noticed
}

/// How the log says that the last exchange ended; one that is not logged within a moment has no line.
fn outcome(log: &Path, logged: &mut usize) -> Option<String> {
    let begun = Instant::now();
    loop {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() > *logged && text.ends_with('\n') {
            *logged = lines.len();
            let line: Json = serde_json::from_str(lines.last()?).expect("JSON");
            return line["outcome"].as_str().map(str::to_owned);
        }
        if begun.elapsed() > Duration::from_secs(2) {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Metrics that blame an endpoint, which has done nothing.
fn blamed(stand: &Stand) -> Vec<String> {
    let metrics = stand.gateway.metrics();
    let names = [
        "weir_upstream_errors_total",
        "weir_breaker_opened_total",
        "weir_endpoint_ejections_total",
        "weir_lane_connect_failures_total",
    ];
    // A lane that the gateway itself gave up is `retired`, and counts for no breaker.
    let own = |name: &str| metrics.sum_where(name, &[("reason", "retired")]);
    let blamed = names.into_iter().filter(|name| metrics.sum(name) > own(name));
    blamed.map(|name| format!("{name} {:?}", metrics.by(name, "reason"))).collect()
}
