//! Scripted faults as a client sees them.

use std::time::{Duration, Instant};

use crate::support::Client;
use weir_origin::redis::{Faults, Mode, Origin, OriginSettings, Stall, start};

fn origin(faults: Faults) -> Origin {
    let mode = Mode::Fixed { payload: 8 };
    start(OriginSettings { mode, faults, ..Default::default() }).expect("an origin")
}

#[test]
fn a_delay_holds_every_reply_back_without_lowering_the_rate() {
    let delay = Duration::from_millis(50);
    let origin = origin(Faults { delay, ..Default::default() });
    let mut client = Client::to(&origin);
    let begun = Instant::now();
    // One by one, so that an origin that slept for each request would take 2 s.
    for _ in 0..40 {
        client.send(b"GET k\r\n");
        std::thread::sleep(Duration::from_millis(2));
    }
    for number in 0..40 {
        assert_eq!(client.reply(), b"$8\r\nxxxxxxxx\r\n");
        assert!(number > 0 || begun.elapsed() >= delay, "{:?}", begun.elapsed());
    }
    assert!(begun.elapsed() < Duration::from_millis(1_500), "{:?}", begun.elapsed());
    client.send(b"GET k\r\nQUIT\r\n");
    assert_eq!(client.rest(), b"$8\r\nxxxxxxxx\r\n+OK\r\n", "held replies leave before the end");
}

#[test]
fn a_delayed_origin_bounds_its_delayed_replies_and_loses_nothing() {
    let origin = origin(Faults { delay: Duration::from_millis(5), ..Default::default() });
    let mut client = Client::to(&origin);
    client.send(&b"GET k\r\n".repeat(100_000));
    client.finish();
    assert_eq!(client.rest().len(), 100_000 * b"$8\r\nxxxxxxxx\r\n".len());
}

#[test]
fn a_stall_shows_as_one_long_wait_per_period() {
    let stall = Some(Stall { every: Duration::from_millis(600), lasting: Duration::from_millis(200) });
    let origin = origin(Faults { stall, ..Default::default() });
    let mut client = Client::to(&origin);
    let (begun, mut longest) = (Instant::now(), Duration::ZERO);
    while begun.elapsed() < Duration::from_millis(1_000) {
        let sent = Instant::now();
        client.ask("GET k");
        longest = longest.max(sent.elapsed());
    }
    assert!(longest >= Duration::from_millis(150), "{longest:?}");
}

#[test]
fn errors_come_in_their_ratio_and_spare_the_set_up_of_connections() {
    let origin = origin(Faults { error_ratio: 0.25, ..Default::default() });
    let mut client = Client::to(&origin);
    (0..200).for_each(|_| client.expect("PING", "+PONG"));
    assert!(client.ask("HELLO 3").starts_with("%7"));
    let errors = (0..2_000).filter(|_| client.ask("GET k") == "-ERR weir: scripted error\r\n").count();
    assert!((400..600).contains(&errors), "{errors}");
}

#[test]
fn half_replies_and_disconnects_come_after_whole_replies() {
    for (faults, last) in [
        (Faults { half_reply_ratio: 1.0, ..Default::default() }, &b"$8\r\nxxx"[..]),
        (Faults { disconnect_ratio: 1.0, ..Default::default() }, b""),
    ] {
        let origin = origin(faults);
        let mut client = Client::to(&origin);
        client.send(b"PING\r\nGET k\r\nPING\r\n");
        assert_eq!(client.rest(), [b"+PONG\r\n", last].concat());
    }
    let origin = origin(Faults { extra_reply_ratio: 1.0, ..Default::default() });
    let mut client = Client::to(&origin);
    client.send(b"GET k\r\nPING\r\nQUIT\r\n");
    assert_eq!(client.rest(), b"$8\r\nxxxxxxxx\r\n$8\r\nxxxxxxxx\r\n+PONG\r\n+OK\r\n");
}
