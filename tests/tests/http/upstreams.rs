//! Several endpoints: choice, exclusion, and retries elsewhere.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weir_tests::deadline::until_true;
use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::{HttpClient, field, unchunked};
use weir_tests::http2::{Http2Peer, flag, frame, get, kind};
use weir_tests::port;
use weir_tests::stream::Address;

/// Neither health checks nor the breaker decide: what is tested does.
const NO_OTHER_HELP: &str = "[upstream.health]\nunhealthy_after = 1000\n[upstream.breaker]\nfailures = 1000\n";

fn reply(status: &str, body: &str) -> Act {
    Act::Reply(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

/// An origin that responds to everything so.
fn origin(status: &'static str, body: &'static str) -> Faulty {
    Faulty::http(move |_| reply(status, body))
}

fn before<'a>(origins: impl IntoIterator<Item = &'a Address>) -> Config {
    Config { protocol: "http", ..Config::to_all(origins) }
}

/// An origin that responds so as soon as it has a head, and reads on. Its threads end with the connections.
fn hasty(response: &'static str) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = Address::Tcp(listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let (mut seen, mut bytes) = (Vec::new(), [0; 16 * 1024]);
                while !seen.windows(4).any(|four| four == b"\r\n\r\n") {
                    match stream.read(&mut bytes) {
                        Ok(count @ 1..) => seen.extend_from_slice(&bytes[..count]),
                        _ => return,
                    }
                }
                let _ = stream.write_all(response.as_bytes());
                while matches!(stream.read(&mut bytes), Ok(1..)) {}
            });
        }
    });
    address
}

fn post(client: &mut HttpClient) -> u16 {
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    client.response().status
}

#[test]
fn an_endpoint_that_cannot_be_reached_costs_no_request_of_any_method() {
    let (away, there) = (Address::port(port::free()), origin("200 OK", "there"));
    let gateway = Gateway::start(before([&away, &there.address]).upstream(NO_OTHER_HELP));
    let mut client = HttpClient::connect(&gateway.address);
    for _ in 0..10 {
        assert_eq!(client.get("/").text(), "there");
        assert_eq!(post(&mut client), 200);
    }
    let retries = gateway.metrics().sum_where("weir_retries_total", &[("outcome", "connect_failure")]);
    assert!(retries >= 5.0, "{retries}");
    drop(client);
    gateway.finish();
    let none = before([&away, &there.address]).upstream(NO_OTHER_HELP).listener("[listener.http.retry]\nattempts = 0");
    let gateway = Gateway::start(none);
    let mut client = HttpClient::connect(&gateway.address);
    let statuses: BTreeSet<u16> = (0..10).map(|_| client.get("/").status).collect();
    assert_eq!(statuses, BTreeSet::from([200, 502]));
    drop(client);
    gateway.finish();
}

#[test]
fn failures_are_retried_only_where_that_is_safe_and_configured() {
    let (bad, good) = (origin("503 Service Unavailable", "no"), origin("200 OK", "yes"));
    let off = "[upstream.http.ejection]\nfailures = 0\n";
    let config = before([&bad.address, &good.address]).upstream(NO_OTHER_HELP).upstream(off);
    let gateway = Gateway::start(config.listener("[listener.http.retry]\non = [\"gateway_error\"]"));
    let mut client = HttpClient::connect(&gateway.address);
    (0..20).for_each(|_| assert_eq!(client.get("/").text(), "yes"));
    let statuses: BTreeSet<u16> = (0..10).map(|_| post(&mut client)).collect();
    assert_eq!(statuses, BTreeSet::from([200, 503]), "the origin may have acted on a POST");
    drop(client);
    gateway.finish();
    // All fail: the client has the last response, not one of the gateway's own.
    let gateway = Gateway::start(
        before([&bad.address])
            .upstream(NO_OTHER_HELP)
            .listener("[listener.http.retry]\nattempts = 3\nstatuses = [503]"),
    );
    let mut client = HttpClient::connect(&gateway.address);
    let asked = bad.seen().len();
    assert_eq!(client.get("/").text(), "no");
    assert_eq!(bad.seen().len() - asked, 4);
    drop(client);
    gateway.finish();
}

#[test]
fn a_body_is_sent_again_as_it_was_if_it_was_kept() {
    // Responds as soon as it has the head, or only when all of the body is there.
    for responds_early in [false, true] {
        let bad = origin("503 Service Unavailable", "no");
        let good = Faulty::http(|request| {
            let body = match field(&request[0], "transfer-encoding") {
                Some(_) => unchunked(&request[1]),
                None => request[1].clone(),
            };
            reply("200 OK", &String::from_utf8_lossy(&body))
        });
        let first = if responds_early {
            hasty("HTTP/1.1 503 X\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        } else {
            bad.address.clone()
        };
        let off = "[upstream.http.ejection]\nfailures = 0\n";
        let retry = "[listener.http]\nrequest_buffer_bytes = 0\n[listener.http.retry]\non = [\"gateway_error\", \"reset\"]\nbody_bytes_max = \"20KiB\"\nattempts = 5";
        let config = before([&first, &good.address]).upstream(NO_OTHER_HELP).upstream(off).listener(retry);
        let gateway = Gateway::start(config);
        let body: String = (0..10_000).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
        let mut client = HttpClient::connect(&gateway.address);
        for _ in 0..6 {
            client.send(format!(
                "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{}",
                body.len(),
                &body[..4_000]
            ));
            std::thread::sleep(Duration::from_millis(30));
            client.send(&body[4_000..]);
            let response = client.response();
            assert!(response.status == 200 && response.text() == body, "{} {}", response.status, response.body.len());
        }
        for _ in 0..6 {
            client.send("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
            for piece in body.as_bytes().chunks(3_000) {
                client.send(format!("{:x}\r\n{}\r\n", piece.len(), String::from_utf8_lossy(piece)));
                std::thread::sleep(Duration::from_millis(5));
            }
            client.send("0\r\n\r\n");
            let response = client.response();
            assert!(response.status == 200 && response.text() == body, "{} {}", response.status, response.body.len());
        }
        drop(client);
        // A longer request is sent once, and its response goes to the client. An origin that responds early may close.
        let long = "x".repeat(30_000);
        let statuses: BTreeSet<u16> = (0..10)
            .map(|_| {
                let mut client = HttpClient::connect(&gateway.address);
                client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{long}", long.len()));
                client.response().status
            })
            .collect();
        assert_eq!(statuses, BTreeSet::from([200, 503]));
        gateway.finish();
    }
}

#[test]
fn a_response_that_says_when_to_come_again_is_the_clients() {
    let bad = Faulty::http(|_| {
        Act::Reply(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n".to_vec())
    });
    let gateway = Gateway::start(before([&bad.address]).listener("[listener.http.retry]\non = [\"5xx\"]"));
    let mut client = HttpClient::connect(&gateway.address);
    assert_eq!(client.get("/").field("retry-after").as_deref(), Some("7"));
    assert_eq!(bad.seen().len(), 1);
    drop(client);
    gateway.finish();
}

#[test]
fn an_attempt_that_takes_too_long_is_made_elsewhere() {
    let (silent, good) = (Faulty::http(|_| Act::Silence), origin("200 OK", "yes"));
    let retry = "[listener.http.retry]\non = [\"timeout\"]\ntry_timeout = \"100ms\"";
    let config = before([&silent.address, &good.address]).upstream(NO_OTHER_HELP).listener(retry);
    let gateway = Gateway::start(config);
    let mut client = HttpClient::connect(&gateway.address);
    let begun = Instant::now();
    (0..6).for_each(|_| assert_eq!(client.get("/").text(), "yes"));
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    drop(client);
    gateway.finish();
}

#[test]
fn an_endpoint_that_answers_badly_is_left_out_for_a_while() {
    let is_bad = Arc::new(AtomicBool::new(true));
    let bad = is_bad.clone();
    let first = Faulty::http(move |_| match bad.load(Ordering::SeqCst) {
        true => reply("500 Internal Server Error", "bad"),
        false => reply("200 OK", "first"),
    });
    let second = origin("200 OK", "second");
    let ejection = "[upstream.http.ejection]\nfailures = 3\nany_5xx = true\nduration = \"1s\"\n";
    let gateway = Gateway::start(before([&first.address, &second.address]).upstream(ejection));
    let mut client = HttpClient::connect(&gateway.address);
    let failed = (0..40).filter(|_| client.get("/").status == 500).count();
    assert_eq!(failed, 3, "the third in a row was the last");
    gateway.wait_metric("weir_endpoint_ejections_total", &[], 1.0);
    gateway.wait_log("ejected");
    is_bad.store(false, Ordering::SeqCst);
    until_true("the endpoint to be asked again", || client.get("/").text() == "first");
    drop(client);
    gateway.finish();
}

#[test]
fn an_endpoint_that_ends_every_connection_without_a_response_is_left_out_after_as_many_as_configured() {
    let first = Faulty::http(|_| Act::ReplyThenClose(Vec::new()));
    let second = origin("200 OK", "second");
    let ejection = "[upstream.http.ejection]\nfailures = 5\n";
    let gateway = Gateway::start(before([&first.address, &second.address]).upstream(NO_OTHER_HELP).upstream(ejection));
    let mut client = HttpClient::connect(&gateway.address);
    let failed = (0..60).filter(|_| post(&mut client) == 502).count();
    assert_eq!(failed, 5, "the fifth in a row was the last");
    drop(client);
    gateway.finish();
}

#[test]
fn the_requests_under_way_at_a_restart_are_one_failure() {
    // It keeps all requests of a round, and ends them together.
    let (waiting, ends) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let (held, over) = (waiting.clone(), ends.clone());
    let first = Faulty::http(move |_| {
        held.fetch_add(1, Ordering::SeqCst);
        while !over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Act::ReplyThenClose(Vec::new())
    });
    let second = origin("200 OK", "second");
    let gateway = Gateway::start(before([&first.address, &second.address]).upstream(NO_OTHER_HELP));
    let clients: Vec<_> = (0..40)
        .map(|_| {
            let address = gateway.address.clone();
            std::thread::spawn(move || post(&mut HttpClient::connect(&address)))
        })
        .collect();
    // Half of them, as they come in turns.
    until_true("requests to be under way there", || waiting.load(Ordering::SeqCst) == 20);
    ends.store(true, Ordering::SeqCst);
    let failed = clients.into_iter().map(|client| client.join().expect("a response"));
    assert_eq!(failed.filter(|status| *status == 502).count(), 20);
    assert_eq!(gateway.metrics().sum("weir_endpoint_ejections_total"), 0.0);
    gateway.finish();
}

#[test]
fn requests_that_time_out_together_are_one_failure() {
    let (silent, good) = (Faulty::http(|_| Act::Silence), origin("200 OK", "yes"));
    let config = before([&silent.address, &good.address]).upstream(NO_OTHER_HELP);
    let gateway = Gateway::start(config.listener("[listener.http]\nresponse_timeout = \"500ms\""));
    // One client, at once.
    let mut client = Http2Peer::connect(&gateway.address);
    let asked: Vec<u8> = (0..40)
        .flat_map(|number| frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 2 * number + 1, &get("/")))
        .collect();
    client.send(asked);
    let statuses: Vec<_> = (0..40).map(|_| client.next_of(kind::HEADERS).status()).collect();
    assert!(statuses.iter().filter(|status| **status != Some(200)).count() >= 10, "{statuses:?}");
    assert_eq!(gateway.metrics().sum("weir_endpoint_ejections_total"), 0.0);
    drop(client);
    gateway.finish();
}

#[test]
fn an_application_that_answers_500_is_well() {
    let (first, second) = (origin("500 Internal Server Error", "first"), origin("200 OK", "second"));
    let ejection = "[upstream.http.ejection]\nfailures = 1\n";
    let gateway = Gateway::start(before([&first.address, &second.address]).upstream(ejection));
    let mut client = HttpClient::connect(&gateway.address);
    assert_eq!((0..20).filter(|_| client.get("/").status == 500).count(), 10);
    drop(client);
    gateway.finish();
}

#[test]
fn the_last_endpoint_is_never_left_out() {
    let only = origin("503 Service Unavailable", "bad");
    let gateway = Gateway::start(before([&only.address]).upstream("[upstream.http.ejection]\nfailures = 1\n"));
    let mut client = HttpClient::connect(&gateway.address);
    (0..20).for_each(|_| assert_eq!(client.get("/").text(), "bad"));
    drop(client);
    gateway.finish();
}

#[test]
fn a_cookie_keeps_a_client_at_its_endpoint_while_that_is_well() {
    let mut origins: Vec<Option<Faulty>> =
        ["one", "two", "three"].map(|name| Some(origin("200 OK", name))).into_iter().collect();
    let lines = "[upstream.http]\nbalance = \"maglev\"\naffinity = { cookie = \"stay\", cookie_max_age = \"1h\" }\n\
                 [upstream.health]\ninterval = \"50ms\"\ntimeout = \"50ms\"";
    let gateway = Gateway::start(before(origins.iter().flatten().map(|origin| &origin.address)).upstream(lines));
    let ask = |cookie: &str| {
        let mut client = HttpClient::connect(&gateway.address);
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: x=1; {cookie}\r\n\r\n"));
        client.response()
    };
    let first = ask("y=2");
    let given = first.field("set-cookie").expect("a cookie");
    assert!(given.ends_with("; Path=/; HttpOnly; SameSite=Lax; Max-Age=3600"), "{given}");
    let cookie = given.split(';').next().expect("a pair");
    for _ in 0..10 {
        let again = ask(cookie);
        assert_eq!((again.text(), again.field("set-cookie")), (first.text(), None));
    }
    let places: BTreeSet<String> = (0..60).map(|_| ask("").text()).collect();
    assert_eq!(places.len(), 3, "new clients go everywhere");
    let at = ["one", "two", "three"].iter().position(|name| *name == first.text()).expect("one of them");
    origins[at] = None;
    until_true("the client to be served elsewhere", || ask(cookie).status == 200);
    let elsewhere = ask(cookie).text();
    assert!(elsewhere != first.text());
    (0..10).for_each(|_| assert_eq!(ask(cookie).text(), elsewhere, "and stays there"));
    gateway.finish();
}

#[test]
fn a_header_or_the_address_keeps_requests_together() {
    let origins = ["one", "two", "three"].map(|name| origin("200 OK", name));
    let addresses = || origins.iter().map(|origin| &origin.address);
    let ring = "[upstream.http]\nbalance = \"ring_hash\"\n";
    let gateway =
        Gateway::start(before(addresses()).upstream(&format!("{ring}affinity = {{ header = \"X-Tenant\" }}")));
    let mut client = HttpClient::connect(&gateway.address);
    let mut ask = |tenant: usize| {
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX-Tenant: t{tenant}\r\n\r\n"));
        client.response().text()
    };
    let places: Vec<String> = (0..30).map(&mut ask).collect();
    assert_eq!(places, (0..30).map(&mut ask).collect::<Vec<_>>());
    assert_eq!(places.into_iter().collect::<BTreeSet<_>>().len(), 3);
    drop(client);
    gateway.finish();
    let gateway = Gateway::start(before(addresses()).upstream(&format!("{ring}affinity = {{ address = true }}")));
    let places: BTreeSet<String> = (0..20).map(|_| HttpClient::connect(&gateway.address).get("/").text()).collect();
    assert_eq!(places.len(), 1);
    gateway.finish();
}

#[test]
fn an_endpoint_that_comes_back_begins_with_little() {
    let back = port::free();
    let count = Arc::<AtomicUsize>::default();
    let steady = origin("200 OK", "steady");
    let lines = "[upstream.http]\nslow_start = \"10m\"\n\
                 [upstream.health]\ninterval = \"50ms\"\ntimeout = \"50ms\"\nunhealthy_after = 1\nhealthy_after = 1";
    let gateway = Gateway::start(before([&steady.address, &Address::port(back)]).upstream(lines));
    gateway.wait_log("down");
    let listener = std::net::TcpListener::bind(("127.0.0.1", back)).expect("it was free");
    let counted = count.clone();
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for mut stream in listener.incoming().flatten() {
            let counted = counted.clone();
            std::thread::spawn(move || {
                let mut chunk = [0; 4096];
                while let Ok(1..) = stream.read(&mut chunk) {
                    counted.fetch_add(1, Ordering::SeqCst);
                    if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nback").is_err() {
                        return;
                    }
                }
            });
        }
    });
    until_true("both to be up", || gateway.metric("weir_endpoint_up") == 2.0);
    let mut client = HttpClient::connect(&gateway.address);
    (0..110).for_each(|_| assert_eq!(client.get("/").status, 200));
    let own = count.load(Ordering::SeqCst);
    assert!((8..=14).contains(&own), "a tenth of the other's: {own} of 110");
    drop(client);
    gateway.finish();
}

#[test]
fn a_body_that_comes_too_slowly_is_refused() {
    let origin = origin("200 OK", "taken");
    let gateway = Gateway::start(before([&origin.address]).listener("[listener.http]\nbody_rate_min = 100"));
    let mut client = HttpClient::connect(&gateway.address);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    let begun = Instant::now();
    while !client.has_response() && client.try_send("x") {
        assert!(begun.elapsed() < Duration::from_secs(20), "it was never refused");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(client.response().status, 408);
    assert!(begun.elapsed() >= Duration::from_secs(9), "{:?}", begun.elapsed());
    drop(client);
    gateway.finish();
}

#[test]
fn a_request_may_take_only_so_long_in_all() {
    let silent = Faulty::http(|_| Act::Silence);
    let gateway = Gateway::start(before([&silent.address]).listener("[listener.http]\nrequest_timeout = \"300ms\""));
    let mut client = HttpClient::connect(&gateway.address);
    let begun = Instant::now();
    assert_eq!(client.get("/").status, 504);
    assert!((Duration::from_millis(290)..Duration::from_secs(5)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    drop(client);
    gateway.finish();
}

/// Whether one of the requests that an origin has seen holds these words.
fn has_seen(origin: &Faulty, words: &str) -> bool {
    let holds = |part: &Vec<u8>| part.windows(words.len()).any(|window| window == words.as_bytes());
    origin.seen().iter().any(|request| request.iter().any(holds))
}

#[test]
fn a_mirror_gets_copies_and_nobody_waits_for_it() {
    let (first, second) = (origin("200 OK", "first"), Faulty::http(|_| Act::Silence));
    let tables = format!(
        "[[route]]\nname = \"all\"\nupstream = \"server\"\nmirror = {{ upstream = \"copies\", body_bytes_max = \"1KiB\" }}\n\
         [[upstream]]\nname = \"copies\"\nendpoints = [\"{}\"]\n",
        second.address.text()
    );
    let gateway =
        Gateway::start(before([&first.address]).tables(&tables).listener("[listener.http]\nresponse_timeout = \"3s\""));
    let mut client = HttpClient::connect(&gateway.address);
    let begun = Instant::now();
    client.send("GET /plain HTTP/1.1\r\nHost: a.example:80\r\n\r\n");
    assert_eq!(client.response().text(), "first");
    client.send("POST /short HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n");
    assert_eq!(client.response().text(), "first");
    let long = "x".repeat(2_000);
    client.send(format!("POST /long HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2000\r\n\r\n{long}"));
    assert_eq!(client.response().text(), "first");
    assert!(begun.elapsed() < Duration::from_millis(2_500), "{:?}", begun.elapsed());
    let outcome = |outcome| gateway.metrics().sum_where("weir_http_mirrored_total", &[("outcome", outcome)]);
    until_true("the copies to fail", || outcome("failed") == 2.0);
    assert_eq!(outcome("body_too_long"), 1.0);
    for words in
        ["GET /plain HTTP/1.1\r\nHost: a.example-shadow:80\r\n", "POST /short ", "Host: a.example-shadow\r\n", "abcdef"]
    {
        assert!(has_seen(&second, words), "{words}");
    }
    assert!(!has_seen(&second, "/long") && has_seen(&first, "/long"));
    drop(client);
    gateway.finish();
}

#[test]
fn a_mirror_that_answers_keeps_its_connection_and_a_share_of_nothing_copies_nothing() {
    for (share, copies) in [("1.0", 20), ("0.0", 0)] {
        let (first, second) = (origin("200 OK", "first"), origin("200 OK", "second"));
        let tables = format!(
            "[[route]]\nname = \"all\"\nupstream = \"server\"\nmirror = {{ upstream = \"copies\", share = {share} }}\n\
             [[upstream]]\nname = \"copies\"\nendpoints = [\"{}\"]\nhealth = {{ interval = \"1h\" }}\n",
            second.address.text()
        );
        let gateway = Gateway::start(before([&first.address]).tables(&tables));
        let mut client = HttpClient::connect(&gateway.address);
        for number in 1..=20 {
            assert_eq!(client.get("/").text(), "first");
            until_true("the copy to be answered", || {
                gateway.metric("weir_http_mirrored_total") >= f64::from(number.min(copies))
            });
        }
        assert_eq!(second.seen().len(), copies as usize);
        assert!(second.connections() <= 2, "one for the health check, one for the copies: {}", second.connections());
        drop(client);
        gateway.finish();
    }
}

#[test]
fn cookies_of_an_origin_are_changed() {
    let origin = Faulty::http(|_| {
        Act::Reply(
            b"HTTP/1.1 200 OK\r\nSet-Cookie: id=1; Path=/app; Domain=inner.example\r\nSet-Cookie: other=2; Path=/\r\nContent-Length: 0\r\n\r\n"
                .to_vec(),
        )
    });
    let tables = "[[route]]\nname = \"all\"\nupstream = \"server\"\n[[route.cookie]]\nname = \"id\"\npath = \"/\"\ndomain = \"\"\n\
                  secure = true\nsame_site = \"strict\"\n";
    let gateway = Gateway::start(before([&origin.address]).tables(tables));
    let mut client = HttpClient::connect(&gateway.address);
    let head = String::from_utf8_lossy(&client.get("/").head).into_owned();
    let cookies: Vec<&str> = head.lines().filter_map(|line| line.strip_prefix("Set-Cookie: ")).collect();
    assert_eq!(cookies, ["id=1; Path=/; Secure; SameSite=Strict", "other=2; Path=/"]);
    drop(client);
    gateway.finish();
}

#[test]
fn one_path_that_fails_shuts_nobody_out_of_the_others() {
    let origin = Faulty::http(|request| match request[0].starts_with(b"GET /slow") {
        true => Act::Silence,
        false => reply("200 OK", "well"),
    });
    let slow =
        "[[route]]\nname = \"slow\"\npath_prefix = \"/slow\"\nupstream = \"server\"\nresponse_timeout = \"20ms\"";
    let gateway = Gateway::start(before([&origin.address]).tables(slow));
    let mut client = HttpClient::connect(&gateway.address);
    for _ in 0..20 {
        assert_eq!(client.get("/slow").status, 504);
    }
    assert_eq!(client.get("/").status, 200, "connections can be made: the breaker has nothing to say");
    assert_eq!(gateway.metrics().sum("weir_breaker_opened_total"), 0.0);
    drop(client);
    gateway.finish();
}

#[test]
fn an_origin_that_closes_between_two_health_checks_is_well() {
    // It answers, keeps the connection as it says, and closes it at once, as one with a short keep-alive does.
    let origin = Faulty::http(|_| Act::ReplyThenClose(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()));
    let gateway = Gateway::start(before([&origin.address]).upstream(
        "[upstream.http]\nhealth_path = \"/healthz\"\n[upstream.health]\ninterval = \"500ms\"\ntimeout = \"500ms\"\nunhealthy_after = 1\n",
    ));
    until_true("five health checks", || gateway.metrics().sum("weir_health_checks_total") >= 5.0);
    let bad = gateway.metrics().sum_where("weir_health_checks_total", &[("outcome", "failed")]);
    assert_eq!(bad, 0.0);
    gateway.finish();
}

#[test]
fn responses_are_counted_by_upstream_and_refusals_of_overload_by_reason() {
    let origin = Faulty::http(|request| match &request[0] {
        head if head.starts_with(b"GET /bad") => reply("500 Oh", ""),
        head if head.starts_with(b"GET /hang") => Act::Silence,
        _ => reply("200 OK", ""),
    });
    let few = "lane_wait_timeout = \"50ms\"\n[upstream.http]\nconnections_max = 1\n";
    let timeout = "[listener.http]\nresponse_timeout = \"2s\"";
    let gateway = Gateway::start(before([&origin.address]).upstream(few).listener(timeout));
    let mut client = HttpClient::connect(&gateway.address);
    assert_eq!([client.get("/").status, client.get("/bad").status], [200, 500]);
    let count = |class| gateway.metrics().sum_where("weir_http_upstream_responses_total", &[("class", class)]);
    assert_eq!([count("2xx"), count("5xx")], [1.0, 1.0]);
    assert_eq!(gateway.metrics().sum("weir_http_upstream_first_byte_duration_seconds_count"), 2.0);
    let mut waits = HttpClient::connect(&gateway.address);
    waits.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n");
    until_true("the only connection is taken", || origin.seen().len() == 3);
    let refused = client.get("/");
    assert_eq!((refused.status, refused.field("retry-after").is_some()), (503, true));
    assert_eq!(gateway.metrics().sum_where("weir_shed_total", &[("reason", "queue_timeout")]), 1.0);
    drop((client, waits));
    gateway.finish();
}

#[test]
fn a_response_may_pause_for_longer_than_a_request_and_as_long_as_its_route_says() {
    let origin = hasty("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab");
    let timeouts = "[listener.http]\nhalf_close = true\nbody_idle_timeout = \"50ms\"\nresponse_idle_timeout = \"30s\"";
    let half_closed = "half_close_timeout = \"200ms\"";
    let route = "[[route]]\nname = \"short\"\npath_prefix = \"/short\"\nupstream = \"server\"\nresponse_idle_timeout = \"100ms\"";
    let gateway = Gateway::start(Config::http(&origin).listener(half_closed).listener(timeouts).tables(route));
    let mut client = HttpClient::connect(&gateway.address);
    client.send("GET /short HTTP/1.1\r\nHost: a\r\n\r\n");
    let cut = String::from_utf8_lossy(&client.rest()).into_owned();
    assert!(cut.ends_with("\r\n\r\nab"), "{cut}");
    let mut client = HttpClient::connect(&gateway.address);
    client.send("GET /long HTTP/1.1\r\nHost: a\r\n\r\n");
    let begun = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab";
    assert_eq!(String::from_utf8_lossy(&client.exactly(begun.len())), begun);
    client.expect_silence(Duration::from_millis(500));
    // A half-closed client may still wait, but not as long as one that is open.
    client.stream().half_close().expect("half closed");
    assert_eq!(client.rest(), b"", "it ends without the rest");
    gateway.finish();
}
