//! Logins: at the gateway, and through it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use weir_base::Secret;
use weir_mongodb::settings::{Auth, Users};
use weir_mongodb_codec::{
    compressed::{self, Compressor},
    message::{self, Flags, Ids, Message},
};
use weir_sasl::{ChannelBinding, Derivation, Mechanism, Nonce, ScramClient, mongodb};

use crate::support::{
    Client, Gateway, Setup, command, greeted, inner, integer, is_ok,
    server::{Act, Server},
    until,
};

const MECHANISM: Mechanism = Mechanism::ScramSha256;

fn payload(reply: &[u8]) -> Vec<u8> {
    let body = Message::read(reply).unwrap().body;
    let payload = body.get(b"payload").unwrap().expect("a payload");
    payload.as_binary().expect("bytes").1.to_vec()
}

/// Logs in with this password; false: it was refused.
fn log_in(client: &mut Client, password: &str) -> bool {
    let nonce = Nonce::from_random(&[3; 18]);
    let scram = ScramClient::new(MECHANISM, b"app", ChannelBinding::None, nonce);
    let first = scram.first_message().to_vec();
    let challenge = client.ask(|body| {
        body.int32("saslStart", 1);
        body.string("mechanism", MECHANISM.name());
        body.binary("payload", 0, &first);
        body.document("options", |options| options.bool("skipEmptyExchange", true));
        body.string("$db", "admin");
    });
    assert!(is_ok(&challenge));
    let (waiting, wanted) = scram.on_challenge(&payload(&challenge)).expect("a challenge");
    let secret = mongodb::password(MECHANISM, b"app", &Secret::from(password));
    let (proven, proof) = waiting.prove(&Derivation::new(MECHANISM, &secret, wanted).run());
    let conversation = integer(&challenge, "conversationId").expect("a number") as i32;
    let last = client.ask(|body| {
        body.int32("saslContinue", 1);
        body.int32("conversationId", conversation);
        body.binary("payload", 0, &proof);
        body.string("$db", "admin");
    });
    is_ok(&last) && proven.finish(&payload(&last)).is_ok()
}

fn setup(server: &Server) -> Setup {
    let mut setup = Setup::new(&[server.address]);
    setup.listener.auth = Auth::Scram;
    setup.listener.users = Arc::new(Users::new("admin", &[MECHANISM], [("app", &Secret::from("pencil"))]));
    setup
}

#[test]
fn a_client_logs_in_and_one_that_does_not_gets_nothing() {
    let server = Server::standalone(|_| Act::ok());
    let gateway = Gateway::start(setup(&server));
    let mut client = greeted(&gateway);
    assert_eq!(integer(&client.find(), "code"), Some(13));
    assert!(log_in(&mut client, "pencil"));
    assert!(is_ok(&client.find()));
    assert_eq!(server.count("find"), 1);
    assert_eq!(gateway.counter("weir_mongodb_logins_total", &[("listener", "test")]), 1);
}

#[test]
fn m12_a_client_that_has_not_logged_in_has_little_room() {
    let server = Server::standalone(|_| Act::ok());
    let gateway = Gateway::start(setup(&server));
    for (behind, is_closed) in [(0, false), (5, true)] {
        let mut client = gateway.client();
        let first = client.hello(false);
        let version = |name| inner(&first, "topologyVersion", name).expect("a version");
        let (process, counter) = (version("processId").as_object_id(), version("counter").as_integer());
        let hello = |comment: usize, waits: bool| {
            command(7, Flags::empty(), |body| {
                body.int32("hello", 1);
                body.string("comment", "x".repeat(comment));
                if waits {
                    body.document("topologyVersion", |version| {
                        version.object_id("processId", process.expect("an id"));
                        version.int64("counter", counter.expect("a number"));
                    });
                    body.int64("maxAwaitTimeMS", 400);
                }
                body.string("$db", "admin");
            })
        };
        // The first two are read as they come, and all behind the one that waits has to wait as well.
        let mut all = [hello(15_000, false), hello(15_000, false), hello(0, true)].concat();
        all.extend((0..behind).flat_map(|_| hello(15_000, false)));
        client.send(&all);
        let replies = std::iter::from_fn(|| client.message()).take(3).count();
        assert_eq!(replies < 3, is_closed, "{replies} replies");
        let labels = [("listener", "test"), ("reason", "mongodb_preauth_bytes"), ("culprit", "client")];
        assert_eq!(gateway.counter("weir_violations_total", &labels), u64::from(is_closed));
    }
    until("nothing is charged", || gateway.held() == (0, 0));
}

#[test]
fn a_wrong_password_costs_time_and_at_last_the_connection() {
    let server = Server::standalone(|_| Act::ok());
    let gateway = Gateway::start(setup(&server));
    let mut client = greeted(&gateway);
    let begun = Instant::now();
    for _ in 0..2 {
        assert!(!log_in(&mut client, "pencils"));
    }
    assert!(begun.elapsed().as_millis() >= 100, "the first delay");
    assert!(!log_in(&mut client, "pencils"), "the third failure is answered");
    assert!(client.message().is_none(), "and ends the connection");
    assert_eq!(server.seen().len(), 0);
}

#[test]
fn a_login_that_the_server_checks_passes_and_the_connection_is_the_clients_own() {
    let server = Server::standalone(|seen| match &*seen.name {
        "saslStart" => Act::reply(|body| {
            body.int32("conversationId", 5);
            body.bool("done", false);
            body.binary("payload", 0, b"r=x,s=y,i=4096");
            body.double("ok", 1.0);
        }),
        "saslContinue" => Act::reply(|body| {
            body.int32("conversationId", 5);
            body.bool("done", true);
            body.binary("payload", 0, b"v=z");
            body.double("ok", 1.0);
        }),
        _ => Act::ok(),
    });
    let mut setup = Setup::new(&[server.address]);
    setup.listener.auth = Auth::Passthrough;
    let gateway = Gateway::start(setup);
    let mut client = greeted(&gateway);
    let challenge = client.ask(|body| {
        body.int32("saslStart", 1);
        body.string("mechanism", "SCRAM-SHA-256");
        body.binary("payload", 0, b"n,,n=app,r=abc");
        body.string("$db", "admin");
    });
    assert_eq!(payload(&challenge), b"r=x,s=y,i=4096", "the server's own words");
    let last = client.ask(|body| {
        body.int32("saslContinue", 1);
        body.int32("conversationId", 5);
        body.binary("payload", 0, b"c=biws,r=x,p=proof");
        body.string("$db", "admin");
    });
    assert!(is_ok(&last) && is_ok(&client.find()));
    let own = [("upstream", "servers"), ("kind", "pinned")];
    assert_eq!(gateway.gauge("weir_lanes_open", &own), 1, "operators see its connection");
    let mut stranger = greeted(&gateway);
    assert_eq!(integer(&stranger.find(), "code"), Some(13), "another client has not logged in");
    drop(client);
    until("it ends with the client", || gateway.gauge("weir_lanes_open", &own) == 0);
}

#[test]
fn a_login_that_stops_ends_at_its_time_and_a_monitor_stays() {
    let server = Server::standalone(|_| {
        Act::reply(|body| {
            body.int32("conversationId", 5);
            body.bool("done", false);
            body.binary("payload", 0, b"r=x,s=y,i=4096");
            body.double("ok", 1.0);
        })
    });
    let mut relayed = Setup::new(&[server.address]);
    relayed.listener.auth = Auth::Passthrough;
    for mut setup in [relayed, setup(&server)] {
        setup.listener.client_login_timeout = Duration::from_millis(200);
        let gateway = Gateway::start(setup);
        let (mut monitor, mut client) = (greeted(&gateway), greeted(&gateway));
        let challenge = client.ask(|body| {
            body.int32("saslStart", 1);
            body.string("mechanism", "SCRAM-SHA-256");
            body.binary("payload", 0, b"n,,n=app,r=abcdefghijklmnopqrstuvwx");
            body.string("$db", "admin");
        });
        assert!(is_ok(&challenge));
        assert!(client.message().is_none(), "it says no more");
        let labels = [("listener", "test"), ("reason", "login_timeout"), ("culprit", "client")];
        assert_eq!(gateway.counter("weir_violations_total", &labels), 1);
        let again = monitor.ask(|body| {
            body.int32("hello", 1);
            body.string("$db", "admin");
        });
        assert!(is_ok(&again));
    }
}

#[test]
fn a_client_that_the_server_has_logged_in_leaves_no_cursor_there() {
    let server = Server::standalone(|seen| match &*seen.name {
        "saslStart" => Act::reply(|body| {
            body.int32("conversationId", 5);
            body.bool("done", true);
            body.binary("payload", 0, b"v=z");
            body.double("ok", 1.0);
        }),
        "find" => Act::batch("firstBatch", 77),
        _ => Act::ok(),
    });
    let mut setup = Setup::new(&[server.address]);
    setup.listener.auth = Auth::Passthrough;
    let gateway = Gateway::start(setup);
    let mut client = gateway.client();
    client.hello(true);
    let login = client.ask(|body| {
        body.int32("saslStart", 1);
        body.string("mechanism", "SCRAM-SHA-256");
        body.binary("payload", 0, b"n,,n=app,r=abc");
        body.string("$db", "admin");
    });
    assert!(is_ok(&login) && is_ok(&client.find()));
    drop(client);
    until("the cursor is killed", || server.count("killCursors") == 1);
}

#[test]
fn m8_a_reply_to_nothing_is_no_part_of_a_login() {
    let server = Server::standalone(|_| {
        let ids = Ids { request: 1, response_to: 4_711 };
        let mut reply = Vec::new();
        message::write(&mut reply, ids, Flags::empty(), |body| {
            body.int32("conversationId", 5);
            body.bool("done", true);
            body.binary("payload", 0, b"v=z");
            body.double("ok", 1.0);
        });
        Act::Exact(reply)
    });
    let mut setup = Setup::new(&[server.address]);
    setup.listener.auth = Auth::Passthrough;
    let gateway = Gateway::start(setup);
    let mut client = greeted(&gateway);
    let reply = client.ask(|body| {
        body.int32("saslStart", 1);
        body.string("mechanism", "SCRAM-SHA-256");
        body.binary("payload", 0, b"n,,n=app,r=abc");
        body.string("$db", "admin");
    });
    assert_eq!(integer(&reply, "code"), Some(6));
    assert!(client.message().is_none());
}

#[test]
fn m16_a_client_without_a_login_makes_the_gateway_inflate_little() {
    let server = Server::standalone(|_| Act::ok());
    let mut setup = setup(&server);
    setup.listener.compressors = vec![Compressor::Snappy];
    let gateway = Gateway::start(setup);
    let mut client = greeted(&gateway);
    let plain = command(9, Flags::empty(), |body| {
        body.string("find", "orders");
        body.string("comment", "x".repeat(200_000));
        body.string("$db", "shop");
    });
    let mut packed = Vec::new();
    compressed::write(&mut packed, &plain, Compressor::Snappy).expect("a message");
    assert!(packed.len() < 16_000, "it may come");
    client.send(&packed);
    assert!(client.message().is_none());
    let labels = [("listener", "test"), ("compressor", "snappy")];
    assert_eq!(gateway.counter("weir_mongodb_inflated_bytes_total", &labels), 0);
}

#[test]
fn a_server_that_speaks_behind_its_login_gets_nothing() {
    let server = Server::standalone(|_| Act::ok());
    let mut setup = Setup::new(&[server.address]);
    setup.upstream.heartbeat_interval = Duration::from_secs(60);
    setup.listener.queue_wait_timeout = Duration::from_millis(200);
    let gateway = Gateway::start(setup);
    let mut client = greeted(&gateway);
    // The beginning of a message, which would be in front of the next reply.
    server.change(|says| says.behind = &[40, 0, 0, 0]);
    assert_eq!(integer(&client.find(), "code"), Some(6));
    assert_eq!(server.count("find"), 0);
}
