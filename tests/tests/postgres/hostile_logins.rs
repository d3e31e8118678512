//! Clients that mean harm before they are logged in: cases P1 to P5, P7, P9, P10, P20 and P21. Each is refused as PostgreSQL refuses it,
//! counted once, and costs nothing that stays: a gateway that holds something back fails at its end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use weir_tests::certificate::Certificates;
use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::port;
use weir_tests::postgres::torture::wire::{Wire, message};
use weir_tests::postgres::{Major, PASSWORD, Postgres, USER};
use weir_tests::stream::Address;

use crate::gateway::before;

const PATIENCE: Duration = Duration::from_secs(20);
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
const GSS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 48];
/// Memory that a refused login may cost, bytes: far below the lengths that clients claim.
const GROWTH_MAX: u64 = 32 << 20;

/// A startup packet of that version with these words.
fn startup(version: u32, words: &[&str]) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    for word in words {
        body.extend_from_slice(word.as_bytes());
        body.push(0);
    }
    body.push(0);
    [&(body.len() as u32 + 4).to_be_bytes()[..], &body].concat()
}

fn connect(gateway: &Gateway) -> TcpStream {
    let stream = TcpStream::connect(gateway.address.tcp()).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    stream
}

/// Everything until the connection ends. A reset is an end too.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let (mut all, mut piece, begun) = (Vec::new(), [0; 4096], Instant::now());
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return all,
            Ok(count) => all.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return all,
            Err(error) => panic!("the connection stays open after {:?}: {error}", begun.elapsed()),
        }
    }
}

fn closes(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metrics().sum_where("weir_defensive_closes_total", &[("reason", reason)])
}

/// Packets of which each but the last gets one byte; the last is refused, with this SQLSTATE or silently.
fn is_refused(gateway: &Gateway, what: &str, packets: &[&[u8]], reason: &str, state: Option<&str>) {
    let (before, all) = (closes(gateway, reason), gateway.metric("weir_defensive_closes_total"));
    let mut stream = connect(gateway);
    let (last, first) = packets.split_last().expect("packets");
    for packet in first {
        stream.write_all(packet).expect("sent");
        let mut response = [0];
        stream.read_exact(&mut response).expect("a response");
        assert_eq!(&response, b"N", "{what}");
    }
    // The gateway may close before it has read everything.
    let _ = stream.write_all(last);
    let reply = rest(&mut stream);
    match state {
        None => assert!(reply.is_empty(), "{what}: {:?}", String::from_utf8_lossy(&reply)),
        Some(state) => {
            let text = String::from_utf8_lossy(&reply);
            assert!(text.starts_with('E') && text.contains(&format!("\0C{state}\0")), "{what}: {text:?}");
        }
    }
    gateway.wait_metric("weir_defensive_closes_total", &[("reason", reason)], before + 1.0);
    assert_eq!(gateway.metric("weir_defensive_closes_total"), all + 1.0, "{what}: counted once");
}

fn is_served(gateway: &Gateway) {
    let mut wire = Wire::connect(gateway.address.tcp().port(), USER, USER, "after").expect("a login");
    assert_eq!(wire.query("select 7").expect("a reply").rows, [["7"]]);
}

#[test]
fn p1_to_p5_and_p21_packets_that_no_client_sends_are_refused_and_counted() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let mut gateway = Gateway::start(before(&server, folder.path(), "", ""));
    is_served(&gateway);
    let resident = gateway.process().resident();
    for claimed in [0x7fff_ffff_u32, 4, 7, u32::MAX, 10_005] {
        is_refused(&gateway, &format!("P1 {claimed}"), &[&claimed.to_be_bytes()], "postgres_startup_length", None);
    }
    let cancel = |length: u32, secret: usize| {
        [&length.to_be_bytes()[..], &80_877_102_u32.to_be_bytes(), &7_u32.to_be_bytes(), &vec![9; secret]].concat()
    };
    is_refused(&gateway, "P2 2 GiB", &[&cancel(0x7fff_ffff, 4)], "postgres_startup_length", None);
    for secret in [3, 257] {
        let packet = cancel(12 + secret as u32, secret);
        is_refused(&gateway, &format!("P2 {secret}"), &[&packet], "postgres_cancel_secret", None);
    }
    let second = "postgres_second_encryption_request";
    is_refused(&gateway, "P3 SSL", &[&SSL_REQUEST, &SSL_REQUEST], second, Some("08P01"));
    is_refused(&gateway, "P3 GSS", &[&GSS_REQUEST, &SSL_REQUEST, &GSS_REQUEST], second, Some("08P01"));
    let legal = startup(196_608, &["user", USER]);
    let behind = [&SSL_REQUEST[..], &legal].concat();
    is_refused(&gateway, "P4", &[&behind], "postgres_bytes_behind_request", Some("08P01"));
    let many: Vec<String> = (0..10_000).map(|index| format!("p{index}")).collect();
    let words: Vec<&str> = many.iter().map(String::as_str).collect();
    is_refused(&gateway, "P5 10,000 words", &[&startup(196_608, &words)], "postgres_startup_length", None);
    let mut open = startup(196_608, &["user", USER]);
    open.pop();
    open[3] -= 1;
    is_refused(&gateway, "P5 no terminator", &[&open], "postgres_startup_layout", Some("08P01"));
    for bytes in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"*1\r\n$4\r\nPING\r\n"] {
        is_refused(&gateway, "P21", &[bytes], "cross_protocol", None);
    }
    let grown = gateway.process().resident().saturating_sub(resident);
    assert!(grown < GROWTH_MAX, "{grown} bytes more");
    is_served(&gateway);
}

#[test]
fn p5_of_a_repeated_parameter_the_last_counts_and_unknown_options_are_negotiated() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", ""));
    let words = ["user", USER, "DateStyle", "German", "_pq_.x", "1", "datestyle", "SQL", "database", USER];
    let mut stream = connect(&gateway);
    stream.write_all(&startup(196_608, &words)).expect("sent");
    stream.write_all(&message(b'Q', b"show datestyle\0")).expect("sent");
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    while !all.windows(5).any(|part| part == b"SHOW\0") {
        let count = stream.read(&mut piece).expect("a reply");
        assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&all));
        all.extend_from_slice(&piece[..count]);
    }
    let text = String::from_utf8_lossy(&all);
    assert!(all.starts_with(b"v") && text.contains("_pq_.x"), "{text:?}");
    assert!(text.contains("SQL, ") && !text.contains("German"), "{text:?}");
}

#[test]
fn p7_a_proof_of_a_gibibyte_is_not_waited_for() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let password = secret_file(folder.path(), "client-password", PASSWORD);
    let user = format!("[[listener.user]]\nname = \"{USER}\"\npassword = {{ file = \"{password}\" }}");
    let config = Config { protocol: "postgres", ..Config::to(&server.address) }.listener(&user);
    let mut gateway = Gateway::start(config);
    let resident = gateway.process().resident();
    for (claimed, reason) in [
        (0x4000_0000_u32, "postgres_preauth_message"),
        (16 * 1024 + 5, "postgres_preauth_message"),
        (u32::MAX, "postgres_message_length"),
        (3, "postgres_message_length"),
    ] {
        let before = closes(&gateway, reason);
        let mut stream = connect(&gateway);
        stream.write_all(&startup(196_608, &["user", USER])).expect("sent");
        let mut head = [0; 5];
        stream.read_exact(&mut head).expect("a request for a proof");
        assert_eq!(head[0], b'R');
        let _ = stream.write_all(&[&b"p"[..], &claimed.to_be_bytes()].concat());
        let behind = rest(&mut stream);
        assert!(!behind.windows(4).any(|bytes| bytes == b"\0C08" || bytes == b"SFAT"), "{claimed}: silently");
        gateway.wait_metric("weir_defensive_closes_total", &[("reason", reason)], before + 1.0);
    }
    let grown = gateway.process().resident().saturating_sub(resident);
    assert!(grown < GROWTH_MAX, "{grown} bytes more");
}

#[test]
fn p9_direct_tls_without_its_application_protocol_is_refused() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let files = Certificates::create(folder.path());
    let tls = format!(
        "[listener.tls]\ncert_file = \"{}\"\nkey_file = \"{}\"\n",
        files.server.display(),
        files.server_key.display()
    );
    let gateway = Gateway::start(before(&server, folder.path(), &tls, ""));
    for (protocols, is_served) in [(&[][..], false), (&["http/1.1"], false), (&["postgresql"], true)] {
        let port = gateway.address.tcp().port().to_string();
        let mut openssl = std::process::Command::new("openssl");
        openssl.args(["s_client", "-quiet", "-verify_quiet", "-connect", &format!("127.0.0.1:{port}")]);
        if let Some(protocol) = protocols.first() {
            openssl.args(["-alpn", protocol]);
        }
        openssl.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut client = openssl.stderr(std::process::Stdio::null()).spawn().expect("openssl starts");
        let mut input = client.stdin.take().expect("its input");
        let _ = input.write_all(&startup(196_608, &["user", USER]));
        let _ = input.write_all(&message(b'X', b""));
        let output = client.wait_with_output().expect("it ends");
        drop(input);
        let is_welcome = output.stdout.starts_with(b"R\0\0\0\x08\0\0\0\0");
        assert_eq!(is_welcome, is_served, "{protocols:?}: {:?}\n{}", output.stdout, gateway.log());
    }
}

#[test]
fn p10_a_login_of_one_byte_at_a_time_ends_at_its_deadline() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "client_login_timeout = \"500ms\"", ""));
    let mut stream = connect(&gateway);
    let begun = Instant::now();
    // 40 bytes last four seconds.
    for byte in startup(196_608, &["user", USER, "database", USER]) {
        if stream.write_all(&[byte]).is_err() || begun.elapsed() > Duration::from_secs(3) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(rest(&mut stream).is_empty(), "PostgreSQL writes nothing");
    assert!(begun.elapsed() >= Duration::from_millis(500));
    assert_eq!(gateway.metric("weir_defensive_closes_total"), 1.0, "{}", gateway.log());
    assert_eq!(gateway.metric("weir_postgres_logins_total"), 0.0);
}

#[test]
fn p20_other_versions_and_replication_are_negotiated_or_refused() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", ""));
    let reply = |packet: &[u8]| {
        let mut stream = connect(&gateway);
        stream.write_all(packet).expect("sent");
        let _ = stream.write_all(&message(b'X', b""));
        rest(&mut stream)
    };
    for kind in ["database", "true"] {
        let refused = reply(&startup(196_608, &["user", USER, "replication", kind]));
        let text = String::from_utf8_lossy(&refused);
        assert!(text.starts_with('E') && text.contains("\0C0A000\0"), "{kind}: {text:?}");
    }
    let old = reply(&startup(2 << 16, &["user", USER]));
    let text = String::from_utf8_lossy(&old);
    assert!(text.starts_with('E') && text.contains("\0C0A000\0"), "{text:?}");
    let spoken = reply(&startup((3 << 16) + 2, &["user", USER]));
    assert!(spoken.starts_with(b"R\0\0\0\x08\0\0\0\0"), "{spoken:?}");
    let newer = reply(&startup((3 << 16) + 9_999, &["user", USER]));
    assert!(newer.starts_with(b"v\0\0\0\x0c\0\x03\0\x02\0\0\0\0R"), "3.2 is the newest: {newer:?}");
}

/// A gateway in front of a port without a listener refuses a login with 57P03, or the first query.
#[test]
fn a_gateway_without_a_server_says_so() {
    let nowhere = Address::port(port::free());
    let listener = "[listener.postgres]\nauth = \"trust\"";
    let config = Config { protocol: "postgres", ..Config::to(&nowhere) }.listener(listener);
    let gateway = Gateway::start_unready(config);
    let error = match Wire::connect(gateway.address.tcp().port(), USER, USER, "early") {
        Err(error) => error,
        Ok(mut wire) => wire.query("select 1").map_or_else(|error| error, |reply| reply.state().to_owned()),
    };
    assert!(error.contains("57P03"), "{error}");
}
