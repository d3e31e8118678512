//! gRPC through the gateway: the interoperability cases of grpc-go, the libraries of Go and Python, health checks in gRPC's own
//! words, and what the gateway itself says.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http2::{Http2Origin, Http2Peer, block, flag, frame, kind};
use weir_tests::port;
use weir_tests::stream::Address;
use weir_tests::tools::{self, python};

/// Those of grpc-go's client that need neither TLS nor an account (grpc/doc/interop-test-descriptions.md).
const CASES: [&str; 14] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
];

/// A process that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn before(origin: &Address) -> Config {
    Config::http(origin).upstream("[upstream.http]\nversion = \"2\"")
}

/// One run of grpc-go's client: its output if it failed.
fn interop_error(case: &str, address: &Address) -> Option<String> {
    let mut client = Command::new(tools::go("grpc/client"));
    client.args(["--server_host", "127.0.0.1", "--server_port", &address.tcp().port().to_string()]);
    let output = client.args(["--test_case", case]).output().expect("the client runs");
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn the_interoperability_cases_pass_as_they_do_without_a_gateway() {
    let port = port::free();
    let mut server = Command::new(tools::go("grpc/server"));
    server.args(["--port", &port.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Running(server.spawn().expect("the server starts"));
    let address = Address::port(port);
    until_true("the server to listen", || std::net::TcpStream::connect(address.tcp()).is_ok());
    let gateway = Gateway::start(before(&address));
    for (way, address) in [("directly", &address), ("through the gateway", &gateway.address)] {
        for case in CASES {
            // The client itself may take an OK for its own cancellation, also without a gateway.
            let runs = if case == "cancel_after_begin" { 3 } else { 1 };
            let errors: Vec<String> = (0..runs).map_while(|_| interop_error(case, address)).collect();
            assert!(errors.len() < runs, "{case} {way}: {errors:?}");
        }
    }
    // OK, UNKNOWN (the status that is requested, alone and in a stream, and the special one), UNIMPLEMENTED.
    let by = gateway.metrics().by("weir_grpc_responses_total", "status");
    let count = |status| by.get(status).copied().unwrap_or_default();
    assert!(count("0") >= 8.0 && count("2") >= 3.0 && count("12") >= 2.0, "{by:?}");
    gateway.finish();
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/python/grpc_peer.py")
}

/// A server made with grpcio; it echoes, and has the standard health service.
fn python_server() -> (Running, Address) {
    let mut server = Command::new(python());
    let mut child = server.arg(script()).arg("server").stdout(Stdio::piped()).spawn().expect("the server starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
    let port = line.trim().parse().unwrap_or_else(|_| panic!("the server did not say its port: {line:?}"));
    (Running(child), Address::port(port))
}

fn python_client(words: &[&str]) {
    let output = Command::new(python()).arg(script()).args(words).output().expect("the client runs");
    assert!(
        output.status.success() && output.stdout == b"ok\n",
        "{words:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn grpcio_calls_in_all_four_ways() {
    let (_server, address) = python_server();
    let gateway = Gateway::start(before(&address));
    python_client(&["client", &address.text()]);
    python_client(&["client", &gateway.address.text()]);
    gateway.finish();
}

#[test]
fn an_endpoint_that_does_not_serve_is_left_out_until_it_does() {
    let (_first, first) = python_server();
    let (_second, second) = python_server();
    let mut config = before(&first).upstream("health_grpc_service = \"shop\"");
    config.endpoints.push(second.text());
    let config = config.upstream("[upstream.health]\ninterval = \"100ms\"\ntimeout = \"90ms\"");
    let gateway = Gateway::start(config);
    let up = |count: f64| gateway.wait_metric("weir_endpoint_up", &[], count);
    up(2.0);
    python_client(&["serving", &first.text(), "shop", "no"]);
    until_true("the endpoint to be left out", || gateway.metric("weir_endpoint_up") < 2.0);
    python_client(&["who", &gateway.address.text(), &second.text()]);
    python_client(&["serving", &first.text(), "shop", "yes"]);
    up(2.0);
    gateway.finish();
}

#[test]
fn the_gateways_own_responses_are_grpc_statuses() {
    let nobody = Address::port(port::free());
    let gateway = Gateway::start_unready(before(&nobody));
    // UNAVAILABLE.
    python_client(&["status", &gateway.address.text(), "14"]);
    gateway.finish();
    let silent = Http2Origin::start(|_, peer| while peer.next_frame().is_some() {});
    let gateway = Gateway::start(before(&silent.address));
    // DEADLINE_EXCEEDED, also if the client does not count the time itself.
    let mut client = Http2Peer::connect(&gateway.address);
    let head = block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/echo.Echo/Unary"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("grpc-timeout", "200m"),
    ]);
    let begun = Instant::now();
    client.send(frame(kind::HEADERS, flag::END_HEADERS, 1, &head));
    let response = client.next_of(kind::HEADERS);
    assert!((Duration::from_millis(190)..Duration::from_secs(3)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!(response.status(), Some(200));
    assert!(response.flags & flag::END_STREAM != 0, "trailers only");
    drop(client);
    gateway.finish();
}
