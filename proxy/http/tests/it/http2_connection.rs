//! Connections of HTTP/2 as a whole: their memory, their windows, their end.

use std::{
    io::{ErrorKind, Write as _},
    thread,
    time::Duration,
};

use weir_http::{routes::Target, settings::HttpListenerSettings};
use weir_route::redirect::{Redirect, Status};
use weir_telemetry::catalog;

use crate::{
    http2::{
        ACK, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, Http2Client, Http2Origin, PING, RESET, SETTINGS,
        WINDOW_UPDATE, frame, head,
    },
    support::{Gateway, Setup, route, upstream},
};

/// Identifiers of settings.
const STREAMS_MAX: u8 = 3;
const INITIAL_WINDOW: u8 = 4;
/// The window that a stream has at first.
const WINDOW_BYTES: u32 = 256 << 10;

/// Requests are redirected by the gateway.
fn redirecting() -> Setup {
    Setup::of(vec![route("/", Target::Redirect(Redirect::new(Status::Found)), |_| {})])
}

fn setting(identifier: u8, value: u32) -> Vec<u8> {
    [&[0, identifier][..], &value.to_be_bytes()].concat()
}

/// The value of a setting in a frame.
fn value(frame: &Frame, identifier: u8) -> Option<u32> {
    let mut settings = frame.payload.as_chunks::<6>().0.iter().filter(|_| frame.is(SETTINGS));
    settings.find_map(|[_, id, a, b, c, d]| (*id == identifier).then(|| u32::from_be_bytes([*a, *b, *c, *d])))
}

/// A client that reads 64 KiB at a time, with long pauses, gives the stream of its origin no larger window.
#[test]
fn a_window_does_not_grow_for_a_slow_reader() {
    let gateway = Gateway::start(Setup { is_multiplexed: true, ..Setup::plain(|_| {}) });
    let mut client = gateway.client_behind(4 << 10);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let reading = thread::spawn(move || {
        client.head();
        for _ in 0..6 {
            client.0.bytes(64 << 10);
            thread::sleep(Duration::from_millis(200));
        }
    });
    let mut origin = Http2Origin::new(gateway.origin.accept(), b"");
    let mut is_measured = false;
    while !is_measured {
        let frame = Frame::read(&mut origin.0.0);
        if frame.is(PING) {
            // So far away that its windows may grow.
            thread::sleep(Duration::from_millis(2));
            origin.send(PING, ACK, 0, &frame.payload);
            is_measured = true;
        } else if frame.is(SETTINGS) {
            origin.send(SETTINGS, ACK, 0, b"");
        }
    }
    origin.send(HEADERS, END_HEADERS, 1, &[0x88]);
    let mut room = WINDOW_BYTES;
    let largest = loop {
        while room > 0 {
            let piece = room.min(16 << 10);
            origin.send(DATA, 0, 1, &vec![b'x'; piece as usize]);
            room -= piece;
        }
        let frame = origin.until(|frame| [SETTINGS, RESET, WINDOW_UPDATE].iter().any(|kind| frame.is(*kind)));
        match frame.kind {
            WINDOW_UPDATE if frame.stream == 1 => {
                room += u32::from_be_bytes(frame.payload[..].try_into().expect("four bytes"));
            }
            RESET => break WINDOW_BYTES,
            _ => {}
        }
        if let Some(window) = value(&frame, INITIAL_WINDOW) {
            break window;
        }
    };
    assert_eq!(largest, WINDOW_BYTES);
    reading.join().expect("the client reads");
}

#[test]
fn a_client_that_does_not_read_its_responses_is_not_read() {
    let change = Box::new(|http: &mut HttpListenerSettings| http.http2_streams_max = 1_000);
    let gateway = Gateway::start(Setup { change, ..redirecting() });
    let mut client = Http2Client::new(gateway.client_behind(4 << 10));
    client.0.0.stream.set_write_timeout(Some(Duration::from_secs(2))).expect("a timeout");
    let path = format!("/{}", "x".repeat(100));
    let mut sent = 0;
    for number in (1..).step_by(2) {
        let mut request = head(0, &[(":method", "HEAD"), (":path", &path), ("x", &"y".repeat(100))], true);
        request[5..9].copy_from_slice(&u32::to_be_bytes(number));
        match client.0.0.stream.write_all(&request) {
            Ok(()) => sent += request.len(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("behind {sent} bytes: {error}"),
        }
        assert!(sent < 8 << 20, "the gateway reads without end");
    }
    gateway.cut();
}

/// The last piece waits in the codec, with the end of the stream, when the stream's task is over.
#[test]
fn a_slow_reader_gets_the_end_of_its_response_on_a_connection_without_a_stream() {
    let change = Box::new(|http: &mut HttpListenerSettings| http.keep_alive_timeout = Duration::from_millis(10));
    let gateway = Gateway::start(Setup { change, ..Setup::plain(|_| {}) });
    let (streams, connection) = (setting(INITIAL_WINDOW, 1 << 20), u32::to_be_bytes(1 << 20));
    let windows = [frame(SETTINGS, 0, 0, &streams), frame(WINDOW_UPDATE, 0, 0, &connection)].concat();
    const LENGTH: usize = 300_000;
    let ask = |rest| {
        let mut client = Http2Client::new(gateway.client_behind(4 << 10));
        client.0.0.send_bytes(&windows);
        client.request(1, &[(":method", "GET"), (":path", "/")]);
        let mut origin = gateway.origin.accept();
        origin.request();
        let body = "x".repeat(LENGTH);
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\nConnection: close\r\n\r\n{body}");
        let sending = thread::spawn(move || origin.send(&response));
        let read = read_body(&mut client, LENGTH - rest);
        sending.join().expect("the gateway reads");
        (client, read)
    };
    // Where the end waits then is a matter of the buffers before it.
    let clients: Vec<_> = (60_000..160_000).step_by(10_000).map(ask).collect();
    // Longer than the gateway waits for the end of an idle client.
    thread::sleep(Duration::from_millis(1_500));
    for (mut client, read) in clients {
        assert_eq!(read + read_body(&mut client, LENGTH - read), LENGTH);
    }
}

/// Reads at least so many bytes of the body of the first stream, but no more than to its end.
fn read_body(client: &mut Http2Client, least: usize) -> usize {
    let (mut read, mut is_end) = (0, false);
    while read < least && !is_end {
        let frame = client.frame();
        if frame.is(DATA) {
            read += frame.payload.len();
            is_end = frame.flags & END_STREAM != 0;
        }
    }
    read
}

#[test]
fn the_time_without_a_stream_begins_behind_each_response() {
    let keep_alive = Duration::from_millis(1_000);
    let change = Box::new(move |http: &mut HttpListenerSettings| http.keep_alive_timeout = keep_alive);
    let gateway = Gateway::start(Setup { change, ..Setup::of(Vec::new()) });
    let mut client = Http2Client::new(gateway.client());
    for stream in [1, 3, 5, 7, 9] {
        client.request(stream, &[(":method", "GET"), (":path", "/")]);
        assert_eq!(client.response(stream).status, 404, "{stream}");
        thread::sleep(keep_alive / 2);
    }
}

#[test]
fn a_client_that_closes_behind_a_goaway_does_not_change_the_reason() {
    let change = Box::new(|http: &mut HttpListenerSettings| http.keep_alive_timeout = Duration::from_millis(10));
    let gateway = Gateway::start(Setup { change, ..redirecting() });
    let mut client = Http2Client::new(gateway.client());
    while !client.frame().is(GOAWAY) {}
    drop(client);
    gateway.rests();
    let closed =
        |reason| gateway.counter(catalog::CONNECTIONS_CLOSED.name, &[("listener", "test"), ("reason", reason)]);
    assert_eq!((closed("idle_timeout"), closed("client_closed")), (1, 0));
}

/// An origin may allow no stream for a while (RFC 9113 section 5.1.2).
#[test]
fn a_request_waits_for_an_origin_that_takes_none_just_now() {
    let setup = Setup::of(vec![route("/", upstream(0), |_| {})]);
    let gateway = Gateway::start(Setup { is_multiplexed: true, connections_max: Some(1), ..setup });
    let mut client = Http2Client::new(gateway.client());
    client.request(1, &[(":method", "GET"), (":path", "/")]);
    let mut origin = Http2Origin::new(gateway.origin.accept(), b"");
    origin.until(|frame| frame.is(HEADERS));
    origin.send(SETTINGS, 0, 0, &setting(STREAMS_MAX, 0));
    origin.send(PING, 0, 0, b"settings");
    origin.until(|frame| frame.kind == PING && frame.payload == b"settings");
    origin.respond(1);
    assert_eq!(client.response(1).status, 200);
    client.request(3, &[(":method", "GET"), (":path", "/")]);
    // Its failure would be here by then.
    thread::sleep(Duration::from_millis(100));
    origin.send(SETTINGS, 0, 0, &setting(STREAMS_MAX, 10));
    origin.until(|frame| frame.is(HEADERS) && frame.stream == 3);
    origin.respond(3);
    assert_eq!(client.response(3).status, 200);
}
