//! Distance: what HTTP/2's windows cost a transfer whose ends are far from each other, in round trips.

use std::time::Duration;

use weir_tests::gateway::{Config, Gateway};
use weir_tests::haproxy::Haproxy;
use weir_tests::isolation::http1::HTTP1;
use weir_tests::isolation::http2::Http2;
use weir_tests::isolation::origin::{Scripted, Speech};
use weir_tests::isolation::{Ask, Link, Origin as _, Protocol, transferred};
use weir_tests::nginx::Nginx;
use weir_tests::stream::Address;

fn plain() -> Scripted {
    Scripted::start(Speech::Http)
}

fn before(origin: &Address, is_http2: bool) -> Gateway {
    let config = Config::http(origin);
    Gateway::start(if is_http2 { config.upstream("[upstream.http]\nversion = \"2\"") } else { config })
}

#[test]
fn an_upload_over_a_distance_takes_two_round_trips_more_than_over_http1() {
    let (origin, round_trip) = (plain(), Duration::from_millis(400));
    let gateway = before(&origin.address(), false);
    let link = Link::before(&gateway.address, round_trip);
    let took = transferred(&Http2, &link.address, &Ask::Sink(6_000_000)).expect("taken");
    // Round trips: a half until the settings are known, one for a first window, one for the rest, a half for the response.
    assert!(took < round_trip * 4, "{took:?}");
    drop(link);
    gateway.finish();
}

#[test]
fn a_download_over_a_distance_takes_one_round_trip_more_than_over_http1() {
    let (origin, round_trip) = (plain().behind_http2(), Duration::from_millis(400));
    let link = Link::before(&origin.address(), round_trip);
    let gateway = before(&link.address, true);
    let took = transferred(&Http2, &gateway.address, &Ask::Bytes(6_000_000)).expect("taken");
    // A first window, one; all the rest, one.
    assert!(took < round_trip * 11 / 4, "{took:?}");
    gateway.finish();
    drop(link);
}

/// The proxy between a client and an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    Weir(&'static str),
    Nginx,
    Haproxy,
}

impl Between {
    const ALL: [Self; 4] = [Self::Weir("h2"), Self::Weir("h1"), Self::Nginx, Self::Haproxy];

    fn name(self) -> String {
        match self {
            Self::Weir(version) => format!("Weir {version}"),
            Self::Nginx => "nginx h2".to_owned(),
            Self::Haproxy => "HAProxy h2".to_owned(),
        }
    }

    fn is_http2(self) -> bool {
        self != Self::Weir("h1")
    }

    fn client(self) -> &'static dyn Protocol {
        if self.is_http2() { &Http2 } else { &HTTP1 }
    }

    /// A client that is far from a gateway, which is near to an origin of HTTP/1.1.
    fn front(self, ask: &Ask, round_trip: Duration) -> Option<Duration> {
        let origin = plain();
        let over = |address: &Address| {
            let link = Link::before(address, round_trip);
            transferred(self.client(), &link.address, ask).ok()
        };
        match self {
            Self::Weir(_) => {
                let gateway = before(&origin.address(), false);
                let took = over(&gateway.address);
                gateway.finish();
                took
            }
            Self::Nginx => {
                let to = format!(
                    "location / {{ proxy_pass http://{}; proxy_http_version 1.1; proxy_request_buffering off; }}",
                    origin.address().text()
                );
                over(&Nginx::start("http2", &to).address)
            }
            Self::Haproxy => over(&Haproxy::before(&origin.address(), "proto h2", "").address),
        }
    }

    /// A gateway that is far from its origin, and has no connection to it yet. `None`: it speaks no HTTP/2 to origins.
    fn back(self, ask: &Ask, round_trip: Duration) -> Option<Duration> {
        let origin = if self.is_http2() { plain().behind_http2() } else { plain() };
        let link = Link::before(&origin.address(), round_trip);
        match self {
            Self::Weir(_) => {
                let gateway = before(&link.address, self.is_http2());
                let took = transferred(self.client(), &gateway.address, ask).ok();
                gateway.finish();
                took
            }
            Self::Nginx => None,
            Self::Haproxy => {
                let haproxy = Haproxy::before(&link.address, "proto h2", "proto h2");
                transferred(self.client(), &haproxy.address, ask).ok()
            }
        }
    }
}

/// The middle one of so many, in seconds.
fn middle(count: usize, run: impl Fn() -> Option<Duration>) -> Option<f64> {
    let mut all: Vec<Duration> = (0..count).filter_map(|_| run()).collect();
    all.sort();
    (all.len() == count).then(|| all[count / 2].as_secs_f64())
}

/// Prints the table of docs/results/http-distance.md. On a quiet machine, with a release build in `WEIR_BIN`. It takes about five
/// minutes: windows of 64 KiB, which do not grow, carry 20 MB over 100 ms in half a minute.
///
/// The relay takes a connection at once, so the round trip of a TCP handshake is in no figure. Round trips through Weir: up, half
/// a round trip to the gateway, one for the first window, one for all the rest, and half back; down, one for the request and the
/// first window, and one for the rest. HTTP/1.1 takes one.
#[test]
#[ignore = "a measurement of some minutes, which tells nothing on a busy machine"]
fn proof_of_distance() {
    let heads: Vec<String> = Between::ALL.iter().map(|one| one.name()).collect();
    println!("| 20 MB | round trip | {} |", heads.join(" | "));
    println!("|---|---|{}", "---|".repeat(heads.len()));
    for (way, ask) in [("up", Ask::Sink(20_000_000)), ("down", Ask::Bytes(20_000_000))] {
        for side in ["front", "back"] {
            for millis in [0, 20, 50, 100] {
                let round_trip = Duration::from_millis(millis);
                let took = Between::ALL.map(|one| {
                    // The peers' figures hardly vary, and are long.
                    let count = if matches!(one, Between::Weir(_)) { 5 } else { 1 };
                    middle(count, || match side {
                        "front" => one.front(&ask, round_trip),
                        _ => one.back(&ask, round_trip),
                    })
                });
                let http1 = took[1].unwrap_or(f64::NAN);
                let cells = took.map(|took| match took {
                    Some(took) => format!("{took:.3} s ({:.1}x)", took / http1),
                    None => "-".to_owned(),
                });
                println!("| {side} {way} | {millis} ms | {} |", cells.join(" | "));
            }
        }
    }
}
