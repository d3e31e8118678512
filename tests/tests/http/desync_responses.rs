//! Responses that could be read in two ways (`weir_tests::desync`): the client gets the part without doubt, and
//! the next client gets the response to its own request, whatever the origin left on its connection.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use weir_tests::deadline::until_true;
use weir_tests::desync::view;
use weir_tests::desync::{ExpectedResponse, OriginResponse, responses};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::HttpClient;
use weir_tests::stream::Address;

/// Says what the corpus has for `/response/NAME`, and repeats other paths.
struct Speaker {
    address: Address,
    /// How often something late was said.
    late: Arc<AtomicUsize>,
}

impl Speaker {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = Address::Tcp(listener.local_addr().expect("an address"));
        let late = Arc::<AtomicUsize>::default();
        let all: Arc<HashMap<&str, OriginResponse>> =
            Arc::new(responses().into_iter().map(|one| (one.name, one)).collect());
        let counted = late.clone();
        // It ends with the process of the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (all, counted) = (all.clone(), counted.clone());
                std::thread::spawn(move || speak(stream, &all, &counted));
            }
        });
        Self { address, late }
    }
}

/// Serves a connection. Requests here are heads: none has a body.
fn speak(mut stream: TcpStream, all: &HashMap<&str, OriginResponse>, late: &AtomicUsize) -> Option<()> {
    let _ = stream.set_nodelay(true);
    let mut head = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8_lossy(&std::mem::take(&mut head)).into_owned();
        let path = text.split(' ').nth(1)?.to_owned();
        let Some(response) = path.strip_prefix("/response/").map(|name| &all[name]) else {
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len());
            stream.write_all(response.as_bytes()).ok()?;
            continue;
        };
        stream.write_all(&response.bytes).ok()?;
        if response.closes {
            let _ = stream.shutdown(Shutdown::Write);
        }
        if !response.late.is_empty() {
            // A pause that is no wait: the response is to be taken for all there is.
            std::thread::sleep(Duration::from_millis(20));
            let _ = stream.write_all(response.late);
            late.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[test]
fn the_rest_of_a_response_reaches_nobody() {
    let speaker = Speaker::start();
    let gateway = Gateway::start(Config::http(&speaker.address).listener("[listener.http]\nhalf_close = true"));
    let ask = |target: &str| HttpClient::connect(&gateway.address).get(target);
    assert_eq!(ask("/first").text(), "/first");
    let mut late = 0;
    for OriginResponse { name, method, late: said_late, expected, .. } in responses() {
        let mut client = HttpClient::connect(&gateway.address);
        client.send(format!("{method} /response/{name} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let _ = client.stream().half_close();
        let bytes = client.rest();
        let text = String::from_utf8_lossy(&bytes);
        let got = match view::responses(&bytes, [method]).as_deref() {
            Ok([response]) if response.status == 502 => ExpectedResponse::Refused,
            Ok([response]) => match expected {
                ExpectedResponse::Relayed(status, body) if (status, body) == (response.status, &response.body[..]) => {
                    expected
                }
                _ => panic!("{name}: {response:?} and not {expected:?}"),
            },
            Err(_) if text.starts_with("HTTP/1.1 200 ") => ExpectedResponse::BrokenOff,
            other => panic!("{name}: {other:?}: {text}"),
        };
        assert_eq!(got, expected, "{name}: {text}");
        assert!(!text.contains("poison"), "{name}: {text}");
        if !said_late.is_empty() {
            late += 1;
            until_true(format!("{name}: the rest to be said"), || speaker.late.load(Ordering::SeqCst) == late);
        }
        for canary in ["one", "two", "three"] {
            let target = format!("/canary/{name}/{canary}");
            let response = ask(&target);
            assert_eq!((response.status, response.text()), (200, target), "{name}: the response to something else");
        }
    }
    gateway.finish();
}
