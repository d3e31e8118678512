//! Clients that leave: before a response, in the middle of one, and in the middle of what they send. Their origin's work ends with
//! them, the log and the counters say so, and no origin is blamed.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use serde_json::Value as Json;
use tempfile::TempDir;
use weir_tests::certificate::Certificates;
use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::HttpClient;
use weir_tests::http2::{Http2Origin, Http2Peer, code, frame, get, kind};
use weir_tests::stream::{Address, Stream};
use weir_tests::websocket::handshake;

use crate::access::{lines, logged_to};

/// How soon a client that left must be noticed: within a second, with room for a machine that does much else.
const SOON: Duration = Duration::from_secs(3);

const EVENTS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nevent\n\r\n";

/// An origin that responds to `/events` with a first event and to everything else with nothing, and notes which requests came and
/// which were cancelled.
struct Origin {
    address: Address,
    came: Arc<Mutex<Vec<String>>>,
    cancelled: Arc<Mutex<Vec<String>>>,
    /// It goes on reading behind the head of `/unread`.
    reads: Arc<AtomicBool>,
}

impl Origin {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = Address::Tcp(listener.local_addr().expect("an address"));
        let origin = Self { address, came: Arc::default(), cancelled: Arc::default(), reads: Arc::default() };
        let (came, cancelled, reads) = (origin.came.clone(), origin.cancelled.clone(), origin.reads.clone());
        // It ends with the process of the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (came, cancelled, reads) = (came.clone(), cancelled.clone(), reads.clone());
                std::thread::spawn(move || serve(stream, &came, &cancelled, &reads));
            }
        });
        origin
    }

    fn has_come(&self, path: &str) {
        until_true(format!("the origin to see {path}"), || {
            self.came.lock().expect("whole").iter().any(|one| one == path)
        });
    }

    fn has_cancelled(&self, path: &str) -> bool {
        self.cancelled.lock().expect("whole").iter().any(|one| one == path)
    }
}

fn serve(mut stream: TcpStream, came: &Mutex<Vec<String>>, cancelled: &Mutex<Vec<String>>, reads: &AtomicBool) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            // A health check, or a connection that is not used any more.
            _ => return,
        }
    }
    let path = String::from_utf8_lossy(&head).split(' ').nth(1).unwrap_or_default().to_owned();
    if path == "/events" {
        stream.write_all(EVENTS.as_bytes()).expect("the gateway listens");
    }
    came.lock().expect("whole").push(path.clone());
    while path == "/unread" && !reads.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut rest = [0; 64 * 1024];
    while matches!(stream.read(&mut rest), Ok(1..)) {}
    cancelled.lock().expect("whole").push(path);
}

struct Scene {
    folder: TempDir,
    origin: Origin,
    gateway: Gateway,
}

impl Scene {
    fn new(listener: &str) -> Self {
        Self::with(|config, _| config.listener(listener))
    }

    fn with(change: impl FnOnce(Config, &TempDir) -> Config) -> Self {
        let (folder, origin) = (tempfile::tempdir().expect("a folder"), Origin::start());
        let log = logged_to(&folder.path().join("access.log"), "json");
        let gateway = Gateway::start(change(Config::http(&origin.address).tables(&log), &folder));
        Self { folder, origin, gateway }
    }

    fn client(&self, path: &str) -> HttpClient {
        let mut client = HttpClient::connect(&self.gateway.address);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        self.origin.has_come(path);
        client
    }

    /// The line of the only request, which ends soon after `since`.
    fn line(&self, since: Instant) -> Json {
        let line = lines(&self.folder.path().join("access.log"), 1).remove(0);
        assert!(since.elapsed() < SOON, "noticed after {:?}: {line}", since.elapsed());
        serde_json::from_str(&line).expect("JSON")
    }

    /// The client of the only request has just disconnected: the gateway notices, cancels the request, and blames no endpoint.
    fn expect_departure(self, path: &str, status: u16) {
        self.has_seen(path, status);
        self.nobody_is_blamed();
    }

    /// It is seen, and its request is cancelled.
    fn has_seen(&self, path: &str, status: u16) {
        let since = Instant::now();
        let line = self.line(since);
        assert_eq!((&line["outcome"], &line["status"]), (&Json::from("client_reset"), &Json::from(status)), "{line}");
        self.origin.reads.store(true, Ordering::SeqCst);
        until_true("the origin's request to be cancelled", || self.origin.has_cancelled(path));
    }

    fn nobody_is_blamed(self) {
        let metrics = self.gateway.metrics();
        assert_eq!(metrics.sum_where("weir_http_responses_total", &[("code", "200")]), 0.0, "nothing was served");
        for blamed in ["weir_endpoint_ejections_total", "weir_lane_connect_failures_total", "weir_retries_total"] {
            assert_eq!(metrics.sum(blamed), 0.0, "{blamed}");
        }
        self.gateway.finish();
    }
}

/// Ends both directions at once; what is on its way is lost.
fn reset(client: &mut HttpClient) {
    let Stream::Tcp(stream) = client.stream() else { panic!("it is plain") };
    socket2::SockRef::from(&*stream).set_linger(Some(Duration::ZERO)).expect("a socket takes it");
}

#[test]
fn a_client_that_leaves_while_it_waits_for_a_response_is_noticed() {
    let scene = Scene::new("");
    drop(scene.client("/wait"));
    scene.expect_departure("/wait", 0);
}

#[test]
fn the_end_of_a_clients_direction_counts_as_its_departure() {
    let scene = Scene::new("");
    let mut client = scene.client("/wait");
    client.stream().half_close().expect("half closed");
    assert_eq!(client.rest(), b"", "it gets no response");
    scene.expect_departure("/wait", 0);
}

#[test]
fn a_reset_is_noticed_while_a_response_is_waited_for() {
    let scene = Scene::new("");
    let mut client = scene.client("/wait");
    reset(&mut client);
    drop(client);
    scene.expect_departure("/wait", 0);
}

#[test]
fn a_client_that_leaves_an_event_stream_is_noticed_between_two_events() {
    let scene = Scene::new("");
    let mut client = scene.client("/events");
    client.exactly(EVENTS.len());
    drop(client);
    scene.expect_departure("/events", 200);
}

#[test]
fn a_client_that_leaves_is_noticed_behind_requests_that_it_has_pipelined() {
    let scene = Scene::new("");
    let mut client = scene.client("/wait");
    // More than is read ahead.
    client.send("GET /next HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1_000));
    drop(client);
    scene.expect_departure("/wait", 0);
}

/// TLS in front of the gateway, and a client that trusts it.
fn tls(change: impl FnOnce(Config) -> Config) -> (Scene, Arc<ClientConfig>) {
    let mut client = None;
    let scene = Scene::with(|config, folder| {
        let files = Certificates::create(folder.path());
        client = Some(files.client_config());
        let (certificate, key) = (files.server.display(), files.server_key.display());
        let lines = format!("[listener.tls]\ncert_file = \"{certificate}\"\nkey_file = \"{key}\"");
        change(config.listener(&lines))
    });
    (scene, client.expect("made above"))
}

fn tls_client(scene: &Scene, config: &Arc<ClientConfig>, path: &str) -> HttpClient {
    let stream = Stream::connect_tls(scene.gateway.address.tcp(), config.clone()).expect("a handshake");
    let mut client = HttpClient::over(stream);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    scene.origin.has_come(path);
    client
}

#[test]
fn a_client_that_leaves_its_tls_connection_is_noticed_by_close_notify_and_by_a_bare_fin() {
    let (scene, config) = tls(|config| config);
    let mut client = tls_client(&scene, &config, "/wait");
    client.stream().half_close().expect("said");
    // It has said goodbye, and the connection of TCP stands.
    scene.expect_departure("/wait", 0);
    let (scene, config) = tls(|config| config);
    let mut client = tls_client(&scene, &config, "/events");
    client.exactly(EVENTS.len());
    client.send("GET /next HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1_000));
    let Stream::Tls(stream) = client.stream() else { panic!("it is TLS") };
    stream.sock.shutdown(std::net::Shutdown::Write).expect("open");
    scene.expect_departure("/events", 200);
}

#[test]
fn a_client_that_leaves_while_nobody_reads_its_upload_is_noticed() {
    let scene = Scene::new("[listener.http]\nbody_idle_timeout = \"50s\"");
    let mut client = HttpClient::connect(&scene.gateway.address);
    client.stream().set_write_timeout(Duration::from_millis(500)).expect("a time limit can be set");
    client.send("POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n");
    let piece = vec![b'x'; 1 << 20];
    while client.try_send(&piece) {}
    scene.origin.has_come("/unread");
    reset(&mut client);
    drop(client);
    scene.expect_departure("/unread", 0);
}

#[test]
fn a_stream_of_http_2_that_is_reset_while_nobody_reads_its_upload_is_noticed() {
    let scene = Scene::new("");
    let mut client = Http2Peer::connect(&scene.gateway.address);
    let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/unread")];
    client.send(frame(kind::HEADERS, 4, 1, &weir_tests::http2::block(&fields)));
    let mut credit = 65_535_i64;
    let mut sent = 0;
    // It sends as much as is taken.
    while sent < 64 << 20 {
        while credit >= 16_384 && client.send(frame(kind::DATA, 0, 1, &[b'x'; 16_384])) {
            (credit, sent) = (credit - 16_384, sent + 16_384);
        }
        match client.next_within(Duration::from_millis(500)) {
            Some(received) if received.kind == kind::WINDOW_UPDATE && received.stream == 1 => {
                credit += i64::from(u32::from_be_bytes(received.payload[..4].try_into().expect("four bytes")));
            }
            Some(_) => {}
            None => break,
        }
    }
    scene.origin.has_come("/unread");
    client.send(frame(kind::RST_STREAM, 0, 1, &8_u32.to_be_bytes()));
    scene.has_seen("/unread", 0);
    drop(client);
    scene.nobody_is_blamed();
}

#[test]
fn a_client_of_http_2_that_leaves_is_noticed() {
    let scene = Scene::new("");
    let mut client = Http2Peer::connect(&scene.gateway.address);
    client.request(1, &get("/wait"));
    scene.origin.has_come("/wait");
    drop(client);
    scene.expect_departure("/wait", 0);
}

#[test]
fn an_http_2_origin_gets_a_reset_when_nobody_waits_any_more() {
    let told = Arc::<Mutex<Vec<u32>>>::default();
    let seen = told.clone();
    let origin = Http2Origin::start(move |_, peer| {
        while let Some(received) = peer.next_frame() {
            match received.kind {
                kind::RST_STREAM => seen.lock().expect("whole").push(received.code()),
                kind::SETTINGS if received.flags & 1 == 0 => drop(peer.send(frame(kind::SETTINGS, 1, 0, b""))),
                kind::HEADERS => seen.lock().expect("whole").push(u32::MAX),
                _ => {}
            }
        }
    });
    let gateway = Gateway::start(Config::http(&origin.address).upstream("[upstream.http]\nversion = \"2\""));
    let mut client = HttpClient::connect(&gateway.address);
    client.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    until_true("the request to be there", || told.lock().expect("whole").contains(&u32::MAX));
    let since = Instant::now();
    drop(client);
    until_true("the stream to be reset", || told.lock().expect("whole").contains(&code::CANCEL));
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    gateway.finish();
}

#[test]
fn a_client_that_leaves_while_it_waits_for_a_lane_is_noticed() {
    let few = "lane_wait_timeout = \"50s\"\n[upstream.http]\nconnections_max = 1\n";
    let scene = Scene::with(|config, _| config.upstream(few));
    let first = scene.client("/wait");
    let mut second = HttpClient::connect(&scene.gateway.address);
    second.send("GET /second HTTP/1.1\r\nHost: a\r\n\r\n");
    scene.gateway.wait_metric("gateway_lane_pool_waiters", &[], 1.0);
    drop(second);
    let line = scene.line(Instant::now());
    assert_eq!((&line["outcome"], &line["path"]), (&Json::from("client_reset"), &Json::from("/second")), "{line}");
    drop(first);
    until_true("the origin's request to be cancelled", || scene.origin.has_cancelled("/wait"));
    scene.nobody_is_blamed();
}

#[test]
fn a_client_that_leaves_during_a_policy_request_is_noticed() {
    let asked = Origin::start();
    let service = format!("[[upstream]]\nname = \"guard\"\nendpoints = [\"{}\"]\n", asked.address.text());
    let ext_auth = "[listener.http.ext_auth]\nupstream = \"guard\"\npath = \"/asked\"\ntimeout = \"50s\"";
    let scene = Scene::with(|config, _| config.listener(ext_auth).tables(&service));
    let mut client = HttpClient::connect(&scene.gateway.address);
    client.send("GET /guarded HTTP/1.1\r\nHost: a\r\n\r\n");
    asked.has_come("/asked");
    drop(client);
    let line = scene.line(Instant::now());
    assert_eq!((&line["outcome"], &line["status"]), (&Json::from("client_reset"), &Json::from(0)), "{line}");
    until_true("the question to be taken back", || asked.has_cancelled("/asked"));
    scene.nobody_is_blamed();
}

#[test]
fn a_client_that_leaves_its_websocket_handshake_is_noticed() {
    let scene = Scene::new("[listener.http]\nupgrades = [\"websocket\"]");
    let mut client = HttpClient::connect(&scene.gateway.address);
    client.send(handshake("/chat", ""));
    scene.origin.has_come("/chat");
    drop(client);
    scene.expect_departure("/chat", 0);
}

#[test]
fn a_listener_may_serve_clients_that_have_closed_their_direction() {
    let scene = Scene::new("half_close_timeout = \"50s\"\n[listener.http]\nhalf_close = true");
    let mut client = scene.client("/events");
    client.exactly(EVENTS.len());
    client.stream().half_close().expect("half closed");
    client.expect_silence(Duration::from_millis(1_500));
    assert!(!scene.origin.has_cancelled("/events"), "it is still served");
    reset(&mut client);
    drop(client);
    scene.expect_departure("/events", 200);
}
