//! hello in its forms, faces and logins.

use std::time::{Duration, Instant};

use weir_base::secret::Secret;
use weir_mongodb_codec::bson::{Value, Writer};
use weir_mongodb_codec::legacy;
use weir_mongodb_codec::message::Flags;
use weir_origin::mongodb::{Compressor, Face, Member, MongodbOriginSettings};
use weir_sasl::limits::NONCE_RANDOM_BYTES;
use weir_sasl::{ChannelBinding, ClientProven, Derivation, Mechanism, Nonce, ScramClient, mongodb};

use super::client::{Answer, Client, origin};

fn with_face(face: Face) -> MongodbOriginSettings {
    MongodbOriginSettings { face, ..Default::default() }
}

fn member(me: &str) -> Member {
    let hosts = vec!["a:1".to_owned(), "b:2".to_owned()];
    Member { set: "rs".into(), hosts, me: me.into(), primary: Some("a:1".into()), ..Member::default() }
}

#[test]
fn hello_states_the_face() {
    for (face, message, set) in [
        (Face::Standalone, None, None),
        (Face::Mongos, Some("isdbgrid"), None),
        (Face::Member(member("b:2")), None, Some("rs")),
    ] {
        let origin = origin(with_face(face.clone()));
        let hello = Client::to(&origin).ask("hello");
        assert_eq!((hello.text("msg").as_deref(), hello.text("setName").as_deref()), (message, set));
        let is_writable = hello.find("isWritablePrimary").and_then(Value::as_bool);
        assert_eq!((is_writable, hello.number("maxWireVersion")), (Some(face.is_writable()), Some(25)));
        assert!(hello.find("serviceId").is_none() && hello.find("topologyVersion.processId").is_some());
        assert_eq!(hello.find("$clusterTime").is_some(), face != Face::Standalone);
    }
}

#[test]
fn a_load_balancer_has_a_service_id_for_clients_that_ask() {
    let origin = origin(with_face(Face::LoadBalancer));
    let mut client = Client::to(&origin);
    assert!(client.ask("hello").find("serviceId").is_none());
    let hello = client.run("admin", |body| {
        body.int32("hello", 1);
        body.bool("loadBalanced", true);
    });
    assert!(hello.find("serviceId").and_then(Value::as_object_id).is_some());
    assert_eq!(hello.text("msg").as_deref(), Some("isdbgrid"));
}

#[test]
fn an_old_driver_says_hello_in_op_query() {
    let origin = origin(MongodbOriginSettings::default());
    let mut client = Client::to(&origin);
    let mut out = Vec::new();
    legacy::write_query(&mut out, 7, "admin", |body| {
        body.int32("isMaster", 1);
        body.bool("helloOk", true);
    });
    legacy::write_query(&mut out, 8, "lab", |body| body.string("find", "c"));
    client.send(&out);
    let hello = client.answer();
    assert_eq!((hello.header.response_to, hello.header.op_code.number()), (7, 1));
    assert!(hello.is_ok() && hello.find("ismaster").is_some_and(Value::is_true));
    assert!(hello.find("helloOk").is_some_and(Value::is_true));
    let refused = client.answer();
    assert_eq!((refused.header.response_to, refused.code()), (8, Some(352)));
}

/// A hello that waits for another version than that of `seen`.
fn awaiting(body: &mut Writer<'_>, seen: &Answer, await_ms: i32) {
    body.int32("hello", 1);
    body.value("topologyVersion", seen.find("topologyVersion").expect("a version"));
    body.int32("maxAwaitTimeMS", await_ms);
    body.string("$db", "admin");
}

#[test]
fn a_hello_waits_for_a_change_or_for_its_time() {
    let origin = origin(with_face(Face::Member(member("a:1"))));
    let (mut monitor, mut other) = (Client::to(&origin), Client::to(&origin));
    let seen = monitor.ask("hello");
    let begun = Instant::now();
    monitor.command(Flags::empty(), |body| awaiting(body, &seen, 50));
    assert_eq!(monitor.answer().find("topologyVersion"), seen.find("topologyVersion"));
    assert!(begun.elapsed() >= Duration::from_millis(50));
    monitor.command(Flags::empty(), |body| awaiting(body, &seen, 60_000));
    assert!(other.ask("replSetStepDown").is_ok());
    let changed = monitor.answer();
    assert!(changed.find("isWritablePrimary").is_some_and(|value| !value.is_true()));
    assert_ne!(changed.find("topologyVersion"), seen.find("topologyVersion"));
    assert_eq!(changed.find("primary"), None);
    let half = monitor.run("admin", |body| {
        body.int32("hello", 1);
        body.int32("maxAwaitTimeMS", 5);
    });
    assert_eq!(half.code(), Some(31_368));
}

#[test]
fn a_stream_of_hellos_names_the_reply_before() {
    let origin = origin(with_face(Face::Member(member("a:1"))));
    let mut monitor = Client::to(&origin);
    let seen = monitor.ask("hello");
    let mut before = monitor.command(Flags::EXHAUST_ALLOWED, |body| awaiting(body, &seen, 20));
    for _ in 0..3 {
        let hello = monitor.answer();
        assert_eq!((hello.header.response_to, hello.flags), (before, Flags::MORE_TO_COME));
        before = hello.header.request;
    }
}

#[test]
fn tests_set_the_face_by_a_command() {
    let origin = origin(MongodbOriginSettings { workers: 2, ..Default::default() });
    let mut client = Client::to(&origin);
    let set = |body: &mut Writer<'_>, primary: &str| {
        body.int32("weirOrigin", 1);
        body.document("face", |face| {
            face.string("kind", "member");
            face.string("set", "rs");
            face.array("hosts", ["a:1", "b:2"], |array, name, host| array.string(name, host));
            face.string("me", "a:1");
            face.string("primary", primary);
            face.document("tags", |tags| tags.string("dc", "east"));
        });
    };
    assert_eq!(client.run("admin", |body| set(body, "a:1")).text("face").as_deref(), Some("member"));
    assert!(client.run("lab", |body| body.string("find", "c")).is_ok());
    client.run("admin", |body| set(body, "b:2"));
    let hello = Client::to(&origin).ask("hello");
    assert_eq!((hello.text("primary").as_deref(), hello.text("tags.dc").as_deref()), (Some("b:2"), Some("east")));
    let find = |client: &mut Client, mode: &str| {
        let answer = client.run("lab", |body| {
            body.string("find", "c");
            body.document("$readPreference", |preference| preference.string("mode", mode));
        });
        answer.code()
    };
    assert_eq!((find(&mut client, "primary"), find(&mut client, "secondary")), (Some(13_435), None));
    assert_eq!(client.run("lab", |body| body.string("create", "c")).code(), Some(10_107));
    let wrong = client.run("admin", |body| {
        body.int32("weirOrigin", 1);
        body.document("face", |face| face.string("kind", "arbiter"));
    });
    assert_eq!(wrong.code(), Some(2));
}

fn first(mechanism: Mechanism) -> ScramClient {
    ScramClient::new(mechanism, b"app", ChannelBinding::None, Nonce::from_random(&[9; NONCE_RANDOM_BYTES]))
}

fn start(body: &mut Writer<'_>, mechanism: Mechanism, client: &ScramClient, skips: bool) {
    body.int32("saslStart", 1);
    body.string("mechanism", mechanism.name());
    body.binary("payload", 0, client.first_message());
    body.document("options", |options| options.bool("skipEmptyExchange", skips));
}

fn payload(answer: &Answer, path: &str) -> Vec<u8> {
    answer.find(path).and_then(Value::as_binary).map(|(_, data)| data.to_vec()).expect("a payload")
}

fn proof(mechanism: Mechanism, password: &str, client: ScramClient, challenge: &[u8]) -> (ClientProven, Vec<u8>) {
    let (waiting, challenge) = client.on_challenge(challenge).expect("a challenge");
    assert!(challenge.iterations >= mongodb::ITERATIONS_MIN);
    let password = mongodb::password(mechanism, b"app", &Secret::from(password));
    let keys = Derivation::new(mechanism, &password, challenge).run();
    waiting.prove(&keys)
}

fn go_on(body: &mut Writer<'_>, payload: &[u8]) {
    body.int32("saslContinue", 1);
    body.int32("conversationId", 1);
    body.binary("payload", 0, payload);
}

#[test]
fn a_password_is_proven_by_either_mechanism() {
    let origin = origin(MongodbOriginSettings { password: Some(Secret::from("pw")), ..Default::default() });
    for mechanism in [Mechanism::ScramSha256, Mechanism::ScramSha1] {
        for (password, skips) in [("pw", true), ("pw", false), ("other", true)] {
            let mut client = Client::to(&origin);
            assert_eq!(client.run("lab", |body| body.string("find", "c")).code(), Some(13));
            let scram = first(mechanism);
            let challenge = client.run("admin", |body| start(body, mechanism, &scram, skips));
            let (proven, message) = proof(mechanism, password, scram, &payload(&challenge, "payload"));
            let end = client.run("admin", |body| go_on(body, &message));
            if password == "other" {
                assert_eq!((end.code(), client.ask("ping").code()), (Some(18), None));
                assert_eq!(client.run("lab", |body| body.string("find", "c")).code(), Some(13));
                continue;
            }
            proven.finish(&payload(&end, "payload")).expect("the signature of the server");
            assert_eq!(end.find("done").and_then(Value::as_bool), Some(skips));
            if !skips {
                let end = client.run("admin", |body| go_on(body, b""));
                assert!(end.find("done").is_some_and(Value::is_true));
            }
            assert!(client.run("lab", |body| body.string("find", "c")).is_ok());
            assert!(client.ask("logout").is_ok());
            assert_eq!(client.run("lab", |body| body.string("find", "c")).code(), Some(13));
        }
    }
}

#[test]
fn a_hello_begins_the_login() {
    let origin = origin(MongodbOriginSettings { password: Some(Secret::from("pw")), ..Default::default() });
    let mut client = Client::to(&origin);
    let scram = first(Mechanism::ScramSha256);
    let hello = client.run("admin", |body| {
        body.int32("hello", 1);
        body.string("saslSupportedMechs", "admin.app");
        body.array("compression", ["snappy", "lz4", "zstd"], |body, name, one| body.string(name, one));
        body.document("speculativeAuthenticate", |body| {
            start(body, Mechanism::ScramSha256, &scram, true);
            body.string("db", "admin");
        });
    });
    let listed = |answer: &Answer, index: usize| answer.text(&format!("saslSupportedMechs.{index}"));
    assert_eq!(listed(&hello, 0).as_deref(), Some("SCRAM-SHA-256"));
    assert_eq!(listed(&hello, 1).as_deref(), Some("SCRAM-SHA-1"));
    assert_eq!(
        (hello.text("compression.0"), hello.text("compression.1")),
        (Some("snappy".into()), Some("zstd".into()))
    );
    let (proven, message) =
        proof(Mechanism::ScramSha256, "pw", scram, &payload(&hello, "speculativeAuthenticate.payload"));
    let end = client.run("admin", |body| go_on(body, &message));
    proven.finish(&payload(&end, "payload")).expect("the signature of the server");
    assert_eq!(client.ask("connectionStatus").text("authInfo.authenticatedUsers.0.user").as_deref(), Some("app"));
    assert_eq!(client.run("admin", |body| go_on(body, &message)).code(), Some(17), "nothing is left to go on with");
}

#[test]
fn compressors_are_those_of_both_sides() {
    let compressors = vec![Compressor::Zlib];
    let origin = origin(MongodbOriginSettings { compressors, ..Default::default() });
    let hello = Client::to(&origin).run("admin", |body| {
        body.int32("hello", 1);
        body.array("compression", ["zstd", "zlib"], |body, name, one| body.string(name, one));
    });
    assert_eq!((hello.text("compression.0"), hello.text("compression.1")), (Some("zlib".into()), None));
}
