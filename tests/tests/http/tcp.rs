//! TCP as it is, and TLS that goes through unopened.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use weir_tests::certificate::Certificates;
use weir_tests::client::Client;
use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::nginx::Nginx;
use weir_tests::port;
use weir_tests::server::{Kind, Server};
use weir_tests::stream::Address;

fn before<'a>(protocol: &'static str, origins: impl IntoIterator<Item = &'a Address>) -> Config {
    Config { protocol, ..Config::to_all(origins) }
}

/// Repeats what it reads, and ends when its client does.
fn echo() -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = Address::Tcp(listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let (mut from, mut to) = (&stream, &stream);
                // A client that is gone is no fault.
                let _ = std::io::copy(&mut from, &mut to);
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

fn connect(gateway: &Gateway) -> TcpStream {
    let stream = TcpStream::connect(gateway.address.tcp()).expect("the gateway accepts");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit can be set");
    stream
}

#[test]
fn bytes_go_both_ways_and_each_direction_ends_by_itself() {
    let origin = echo();
    let gateway = Gateway::start(before("tcp", [&origin]));
    let data: Vec<u8> = (0..20_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let stream = connect(&gateway);
    let mut writer = stream.try_clone().expect("cloned");
    let sent = data.clone();
    let sender = std::thread::spawn(move || {
        writer.write_all(&sent).expect("taken");
        writer.shutdown(Shutdown::Write).expect("open");
    });
    let mut received = Vec::new();
    (&stream).read_to_end(&mut received).expect("whole");
    sender.join().expect("sent");
    assert!(received == data, "{} of {} bytes", received.len(), data.len());
    drop(stream);
    gateway.wait_metric("weir_connections_closed_total", &[("reason", "ok")], 1.0);
    let metrics = gateway.metrics();
    assert_eq!(metrics.sum("weir_upstream_read_bytes_total"), 20_000_000.0);
    gateway.finish();
}

#[test]
fn a_client_that_does_not_read_holds_up_its_origin_and_no_memory() {
    let origin = echo();
    let gateway = Gateway::start(before("tcp", [&origin]));
    let mut stream = connect(&gateway);
    stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a time limit can be set");
    let chunk = vec![7; 1 << 20];
    let mut sent = 0;
    while sent < 256 << 20 {
        match stream.write(&chunk) {
            Ok(count) => sent += count,
            Err(_) => break,
        }
    }
    assert!(sent < 64 << 20, "{sent} bytes went somewhere");
    assert!(gateway.metric("weir_buffered_bytes") < 8e6, "{}", gateway.metric("weir_buffered_bytes"));
    drop(stream);
    gateway.finish();
}

/// Sends without end to every client.
fn flood() -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = Address::Tcp(listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // Until the client is gone.
            std::thread::spawn(move || while stream.write_all(&[7; 1 << 16]).is_ok() {});
        }
    });
    address
}

#[test]
fn clients_that_do_not_read_share_the_budget_of_memory_and_others_go_on() {
    let origin = flood();
    let gateway = Gateway::start(before("tcp", [&origin]).tables("[limits]\nbuffered_bytes = \"4MiB\""));
    let stalled: Vec<TcpStream> = (0..40).map(|_| connect(&gateway)).collect();
    until_true("the budget to be short", || gateway.metric("weir_buffered_bytes") > 3e6);
    let mut reader = connect(&gateway);
    let mut received = vec![0; 1 << 20];
    for _ in 0..16 {
        reader.read_exact(&mut received).expect("it is served");
    }
    let held = gateway.metric("weir_buffered_bytes");
    assert!(held <= f64::from(4 << 20), "{held}");
    let page = gateway.admin.get("/api/v1/connections").json();
    let rows = page["connections"].as_array().expect("a list");
    let shown: f64 = rows.iter().filter_map(|row| row["buffered_bytes"].as_f64()).sum();
    assert!((1e6..=f64::from(4 << 20)).contains(&shown), "{shown}");
    drop((stalled, reader));
    until_true("the budget to be free again", || gateway.metric("weir_buffered_bytes") == 0.0);
    gateway.finish();
}

#[test]
fn another_protocol_goes_through_and_endpoints_that_are_away_cost_nothing() {
    let server = Server::start(Kind::Redis);
    let away: Vec<Address> = (0..5).map(|_| Address::port(port::free())).collect();
    let quiet = "[upstream.health]\nunhealthy_after = 1000\n[upstream.breaker]\nfailures = 1000";
    let gateway = Gateway::start(before("tcp", away.iter().chain([&server.address])).upstream(quiet));
    for number in 0..10 {
        let mut client = Client::connect(&gateway.address);
        let value = number.to_string();
        client.expect(&["SET", "k", &value], b"+OK\r\n");
        client.expect(&["GET", "k"], format!("$1\r\n{value}\r\n").as_bytes());
    }
    assert!(gateway.metric("weir_retries_total") >= 5.0);
    gateway.finish();
}

#[test]
fn silence_ends_a_connection() {
    let origin = echo();
    let lines = "idle_timeout = \"900ms\"\nhalf_close_timeout = \"200ms\"";
    let gateway = Gateway::start(before("tcp", [&origin]).listener(lines));
    let mut stream = connect(&gateway);
    let begun = Instant::now();
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(150));
        stream.write_all(b"x").expect("open");
        stream.read_exact(&mut [0]).expect("repeated");
    }
    assert!(begun.elapsed() > Duration::from_millis(1_400), "bytes keep it open");
    // An end or a reset: both sides are silent from here on.
    assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    gateway.wait_metric("weir_connections_closed_total", &[("reason", "idle_timeout")], 1.0);
    gateway.finish();
}

/// One direction has ended, and the origin keeps the other open: the shorter of the two limits holds.
#[test]
fn half_of_a_connection_ends_sooner_than_a_whole_one() {
    let listener = TcpListener::bind(("127.0.0.1", port::free())).expect("a free port");
    let origin = Address::Tcp(listener.local_addr().expect("bound"));
    std::thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    let lines = "idle_timeout = \"60s\"\nhalf_close_timeout = \"200ms\"";
    let gateway = Gateway::start(before("tcp", [&origin]).listener(lines));
    let mut stream = connect(&gateway);
    stream.write_all(b"x").expect("open");
    stream.shutdown(Shutdown::Write).expect("open");
    assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    gateway.wait_metric("weir_connections_closed_total", &[("reason", "half_close_timeout")], 1.0);
    gateway.finish();
}

#[test]
fn a_drain_lets_connections_be_and_then_cuts_them() {
    let origin = echo();
    let mut config = before("tcp", [&origin]);
    config.drain = "settle = \"0s\"\ntimeout = \"1s\"\n".to_owned();
    let mut gateway = Gateway::start(config);
    let mut stream = connect(&gateway);
    stream.write_all(b"a").expect("open");
    stream.read_exact(&mut [0]).expect("repeated");
    gateway.process().signal("TERM");
    let begun = Instant::now();
    let mut last = begun.elapsed();
    while stream.write_all(b"b").is_ok() && matches!(stream.read(&mut [0]), Ok(1)) {
        last = begun.elapsed();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!((Duration::from_millis(700)..Duration::from_secs(5)).contains(&last), "{last:?}");
    let status = gateway.process().wait(Duration::from_secs(10));
    assert!(status.success(), "{status}");
    gateway.ended();
}

#[test]
fn tls_goes_through_to_the_upstream_of_its_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create(folder.path());
    let secure = |body: &str| {
        let (certificate, key) = (files.server.display(), files.server_key.display());
        Nginx::start(
            "ssl",
            &format!(
                "ssl_certificate {certificate}; ssl_certificate_key {key}; location / {{ return 200 \"{body}\"; }}"
            ),
        )
    };
    let (other, exact, wild) = (secure("other"), secure("exact"), secure("wild"));
    let names = "[[listener.server_name]]\nnames = [\"localhost\"]\nupstream = \"exact\"\n\
                 [[listener.server_name]]\nnames = [\"*.shop.test\"]\nupstream = \"wild\"\n";
    let upstreams = format!(
        "[[upstream]]\nname = \"exact\"\nendpoints = [\"{}\"]\n[[upstream]]\nname = \"wild\"\nendpoints = [\"{}\"]\n\
         [telemetry]\nstage_sample = 1.0\n",
        exact.address.text(),
        wild.address.text()
    );
    let gateway = Gateway::start(before("tls", [&other.address]).listener(names).tables(&upstreams));
    let port = gateway.address.tcp().port();
    let curl = |name: &str, verify: &[&str]| {
        let resolve = format!("{name}:{port}:127.0.0.1");
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "20", "--resolve", &resolve])
            .args(verify)
            .arg(format!("https://{name}:{port}/"));
        let output = curl.output().expect("curl runs");
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // The certificate that curl verifies is the origin's: the gateway has none.
    let authority = files.authority.display().to_string();
    assert_eq!(curl("localhost", &["--cacert", &authority]), "exact");
    assert_eq!(curl("a.b.shop.test", &["-k"]), "wild");
    assert_eq!(curl("shop.test", &["-k"]), "other");
    assert_eq!(curl("127.0.0.1", &["-k"]), "other", "no name");
    let metrics = gateway.metrics();
    for stage in ["parse", "lane_wait"] {
        let count = metrics.sum_where("weir_request_stage_duration_seconds_count", &[("stage", stage)]);
        assert_eq!(count, 4.0, "{stage}");
    }
    // A connection without TLS is closed, and counted.
    let mut stream = connect(&gateway);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("open");
    assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    gateway.wait_metric("weir_defensive_closes_total", &[("reason", "tls_hello")], 1.0);
    gateway.finish();
}

#[test]
fn a_hello_that_drips_in_is_given_up() {
    let origin = echo();
    let gateway = Gateway::start(before("tls", [&origin]).listener("head_timeout = \"500ms\""));
    let mut stream = connect(&gateway);
    let begun = Instant::now();
    stream.write_all(&[22, 3, 1, 2, 0]).expect("open");
    while stream.write_all(&[1]).is_ok() && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(100));
    }
    gateway.wait_metric("weir_defensive_closes_total", &[], 1.0);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    gateway.finish();
}

#[test]
fn tls_may_end_here_in_front_of_plain_tcp() {
    let origin = echo();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create(folder.path());
    let tls = format!(
        "[listener.tls]\ncert_file = \"{}\"\nkey_file = \"{}\"",
        files.server.display(),
        files.server_key.display()
    );
    let gateway = Gateway::start(before("tcp", [&origin]).listener(&tls));
    let mut stream =
        weir_tests::stream::Stream::connect_tls(gateway.address.tcp(), files.client_config()).expect("TLS");
    stream.write_all(b"hello").expect("open");
    let mut response = [0; 5];
    stream.read_exact(&mut response).expect("repeated");
    assert_eq!(&response, b"hello");
    drop(stream);
    gateway.finish();
}

#[test]
fn an_endpoint_that_wants_it_gets_the_address_of_the_client() {
    let told = "default_type text/plain; return 200 \"$proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_port\";";
    let nginx = Nginx::start("proxy_protocol", told);
    let ask = |stream: &mut TcpStream| {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("open");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("whole");
        response.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
    };
    for version in ["v1", "v2"] {
        let upstream = format!("[upstream.tcp]\nproxy_header = \"{version}\"");
        let gateway = Gateway::start(before("tcp", [&nginx.address]).upstream(&upstream));
        let mut stream = connect(&gateway);
        let port = stream.local_addr().expect("an address").port();
        assert_eq!(ask(&mut stream), format!("127.0.0.1 {port} {}", gateway.address.tcp().port()), "{version}");
        drop(stream);
        gateway.finish();
        // The header of a balancer in front is forwarded.
        let trusting = "proxy_protocol = \"any\"\nproxy_trusted = [\"127.0.0.1\"]";
        let gateway = Gateway::start(before("tcp", [&nginx.address]).upstream(&upstream).listener(trusting));
        let mut stream = connect(&gateway);
        stream.write_all(b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 443\r\n").expect("open");
        assert_eq!(ask(&mut stream), "2001:db8::7 40000 443", "{version}");
        drop(stream);
        gateway.finish();
    }
}

#[test]
fn a_client_that_resets_its_connection_is_noticed_while_nobody_reads_its_bytes() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let origin = Address::Tcp(listener.local_addr().expect("an address"));
    let gateway = Gateway::start(before("tcp", [&origin]));
    let mut client = connect(&gateway);
    client.set_write_timeout(Some(Duration::from_millis(500))).expect("a time limit can be set");
    while client.write(&[7; 1 << 16]).is_ok() {}
    let since = Instant::now();
    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).expect("a socket takes it");
    drop(client);
    gateway.wait_metric("weir_connections_closed_total", &[("reason", "client_reset")], 1.0);
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
    gateway.finish();
}
