//! The cost of a small exchange for a connection, in instructions: run it under callgrind and divide by the rounds.
//!
//! ```sh
//! cargo build --release -p weir-http2-codec --example exchange_cost
//! valgrind --tool=callgrind --toggle-collect='*::serve' target/release/examples/exchange_cost server
//! ```
//!
//! `server`: the request of a browser is received, and its response of 100 bytes sent. `client`: the other side of it. `tiny`: as `server`,
//! with a request of a load generator. `upload`: 16 KiB of a request body in
//! one frame. `download`: 16 KiB of a response.

use std::hint::black_box;

use weir_base::time::Time;
use weir_http_codec::{BodyLength, Fields, HeadLimits, RequestHead, ResponseHead, Version};
use weir_http2_codec::{Connection, ConnectionConfig, Event, RequestTarget};

const ROUNDS: usize = 10_000;
const TARGET: RequestTarget<'static> =
    RequestTarget { scheme: b"https", authority: b"shop.example.com", protocol: None };

fn fields(pairs: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::new();
    pairs.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
    fields
}

fn request(path: &str, is_whole: bool, is_tiny: bool) -> RequestHead {
    let fields = fields(&[
        ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
        ("accept", "application/json"),
        ("accept-encoding", "gzip, deflate, br"),
        ("cookie", "session=0123456789abcdef0123456789abcdef"),
    ]);
    let fields = if is_tiny { Fields::new() } else { fields };
    let line = (&b"GET"[..], path.as_bytes(), TARGET.authority);
    RequestHead::from_parts(Version::Http2, line, fields, is_whole, &HeadLimits::default()).expect("legal")
}

fn response() -> ResponseHead {
    let mut head = ResponseHead::from_parts(Version::Http2, 200, BodyLength::Exact(100));
    head.fields = fields(&[
        ("server", "weir"),
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("content-type", "application/json"),
        ("cache-control", "no-store"),
    ]);
    head
}

/// One exchange of a client, as far as the response; gives its output.
fn ask(client: &mut Connection, head: &RequestHead, body: &[u8], output: &mut Vec<u8>) {
    let stream = client.send_request(head, TARGET, body.is_empty()).expect("room");
    if !body.is_empty() {
        client.send_data(stream, body).expect("open");
        client.send_end(stream, None).expect("open");
    }
    while client.take_output(output) {}
}

/// A server takes one piece of input, and responds to the request that is whole.
fn respond(server: &mut Connection, input: &[u8], head: &ResponseHead, body: &[u8], output: &mut Vec<u8>) {
    server.receive(input, Time::from_nanos(1));
    let mut data = Vec::new();
    while let Some(event) = server.next_event() {
        let (Event::Request(stream, _) | Event::Readable(stream)) = event else { continue };
        data.clear();
        let count = server.take_data(stream, &mut data, usize::MAX);
        server.release(stream, count);
        if server.received(stream).is_end {
            server.send_response(stream, head, Some(body.len() as u64), false).expect("open");
            server.send_data(stream, body).expect("open");
            server.send_end(stream, None).expect("open");
            server.forget(stream);
        }
    }
    while server.take_output(output) {}
}

/// A client takes one piece of input.
fn take(client: &mut Connection, input: &[u8], output: &mut Vec<u8>) {
    client.receive(input, Time::from_nanos(1));
    let mut data = Vec::new();
    while let Some(event) = client.next_event() {
        let (Event::Response { stream, .. } | Event::Readable(stream)) = event else { continue };
        data.clear();
        let count = client.take_data(stream, &mut data, usize::MAX);
        client.release(stream, count);
        if client.received(stream).is_end {
            client.forget(stream);
        }
    }
    while client.take_output(output) {}
}

/// The measured part.
#[inline(never)]
fn serve(mut part: impl FnMut()) {
    part();
}

fn main() {
    let part = std::env::args().nth(1).unwrap_or_else(|| "server".to_owned());
    let mut client = Connection::client(ConnectionConfig::default());
    let mut server = Connection::server(ConnectionConfig::default());
    let upload = if part == "upload" { vec![7; 16_384] } else { Vec::new() };
    let download = vec![7; if part == "download" { 16_384 } else { 100 }];
    let is_tiny = part == "tiny";
    let (is_server, response) = (part == "server" || part == "upload" || is_tiny, response());
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let heads: Vec<_> = (0..ROUNDS)
        .map(|round| if is_tiny { "/".to_owned() } else { format!("/items/{round:05}?page=2") })
        .map(|path| request(&path, upload.is_empty(), is_tiny))
        .collect();
    for head in &heads {
        let mut asked = || ask(&mut client, head, &upload, &mut to_server);
        if is_server {
            asked()
        } else {
            serve(asked)
        }
        let mut serve_one = || respond(&mut server, &to_server, &response, &download, &mut to_client);
        if is_server {
            serve(serve_one)
        } else {
            serve_one()
        }
        to_server.clear();
        let mut taken = || take(&mut client, &to_client, &mut to_server);
        if is_server {
            taken()
        } else {
            serve(taken)
        }
        to_client.clear();
    }
    assert_eq!((client.open_streams(), server.open_streams()), (0, 0));
    println!("{ROUNDS} rounds of {part}: {:?}", black_box((client.held(), server.held())));
}
