//! The first minutes with HTTP and TCP: `weir http` and `weir tcp` without a file.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use weir_tests::deadline::until_true;
use weir_tests::gateway::program;
use weir_tests::http::HttpClient;
use weir_tests::nginx::Nginx;
use weir_tests::port;
use weir_tests::process::Process;
use weir_tests::stream::Address;

/// From SIGTERM to the end: the default `drain.settle`, and clients have left.
const END_WAIT: Duration = Duration::from_secs(15);

/// Runs `weir PROTOCOL :PORT UPSTREAMS`, hands it over once it serves, and ends it. Its output.
fn with(protocol: &str, upstreams: &[&str], use_it: impl FnOnce(&Address)) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = port::free();
    let (bind, admin) = (format!(":{listener}"), format!(":{}", port::free()));
    let words = [&[program().to_str().expect("a path"), protocol, &bind], upstreams, &["--admin", &admin]].concat();
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let log = folder.path().join("log");
    let mut process = Process::start("weir", &words, &log, &[]);
    // Its last line comes once clients can connect.
    process.wait_ready(|| fs::read_to_string(&log).is_ok_and(|log| log.contains("Ctrl-C")));
    use_it(&Address::port(listener));
    // The servers are probed beside the gateway.
    let finding = format!("{}: ", upstreams[0].trim_start_matches(':'));
    until_true("the finding", || fs::read_to_string(&log).is_ok_and(|log| log.contains(&finding)));
    process.signal("TERM");
    assert!(process.wait(END_WAIT).success(), "{}", process.log());
    process.log()
}

#[test]
fn http_without_a_file_names_status_and_server_and_serves() {
    let nginx = Nginx::start("", "location / { return 404 nothing; }\nlocation /hello { return 200 world; }");
    let upstream = nginx.address.text();
    let log = with("http", &[&upstream], |listener| {
        assert_eq!(HttpClient::connect(listener).get("/hello").text(), "world");
    });
    let finding = format!("{upstream}: HTTP/1.1 404 Not Found (nginx/");
    assert!(log.contains(&finding) && log.contains("responded to GET / in "), "{finding} is not in\n{log}");
    assert!(log.contains("try: curl http://127.0.0.1:"), "{log}");
}

#[test]
fn several_http_servers_share_the_requests() {
    let one = Nginx::start("", "location / { return 200 one; }");
    let two = Nginx::start("", "location / { return 200 two; }");
    with("http", &[&one.address.text(), &two.address.text()], |listener| {
        let mut client = HttpClient::connect(listener);
        let mut bodies: Vec<String> = (0..8).map(|_| client.get("/").text()).collect();
        bodies.sort();
        bodies.dedup();
        assert_eq!(bodies, ["one", "two"]);
    });
    let nobody = Address::port(port::free()).text();
    let log = with("http", &[&one.address.text(), &nobody], |_| {});
    let finding = format!("1 of 2 endpoints responded; {}: HTTP/1.1 200 OK", one.address.text());
    assert!(log.contains(&finding) && log.contains(&format!("; {nobody}: connection refused")), "{finding}\n{log}");
}

/// Each takes connections and never responds, which is found out after two seconds. One by one, and before clients are served, that
/// would be longer than a start may take.
#[test]
fn servers_that_are_slow_to_respond_delay_neither_the_gateway_nor_each_other() {
    let silent = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let upstreams: Vec<String> = (1..=12).map(|host| format!("127.0.0.{host}:{port}")).collect();
    let finding = format!("0 of 12 endpoints responded; {}: no response within 2 s", upstreams[0]);
    let upstreams: Vec<&str> = upstreams.iter().map(String::as_str).collect();
    let log = with("http", &upstreams, |listener| {
        TcpStream::connect(listener.tcp()).expect("it serves");
    });
    let (last_line, probed) = (log.find("Ctrl-C"), log.find(&finding));
    assert!(probed.is_some() && last_line < probed, "{finding}\n{log}");
}

#[test]
fn a_server_that_speaks_tls_is_recognised() {
    // A TLS server sends a fatal alert to a client that does not begin with a handshake.
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let upstream = server.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for mut stream in server.incoming().map_while(Result::ok) {
            // Unread bytes would cause a reset, which may overtake the alert.
            let read = stream.read(&mut [0; 1024]);
            let _ = read.and_then(|_| stream.write_all(&[21, 3, 1, 0, 2, 2, 22]));
        }
    });
    let log = with("http", &[&upstream], |_| {});
    assert!(log.contains("the server speaks TLS: add --tls-upstream"), "{log}");
}

#[test]
fn tcp_without_a_file_passes_bytes_both_ways() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let upstream = server.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in server.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut bytes = [0; 5];
                // The connection of the probe says nothing.
                if stream.read_exact(&mut bytes).is_ok() {
                    stream.write_all(&bytes).expect("echoed");
                }
            });
        }
    });
    let log = with("tcp", &[&format!(":{upstream}")], |listener| {
        let mut client = TcpStream::connect(listener.tcp()).expect("connected");
        client.write_all(b"hello").expect("sent");
        let mut bytes = [0; 5];
        client.read_exact(&mut bytes).expect("the echo");
        assert_eq!(&bytes, b"hello");
    });
    assert!(log.contains(&format!("127.0.0.1:{upstream}: takes connections, connected in ")), "{log}");
}
