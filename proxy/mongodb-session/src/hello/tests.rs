use weir_mongodb_codec::bson;

use super::*;
use crate::face::WireVersions;

fn read(body: impl FnOnce(&mut Writer<'_>), check: impl FnOnce(Result<HelloRequest<'_>, Refusal>)) {
    let mut out = Vec::new();
    bson::document(&mut out, body);
    let command = Command::read_in(Document::read(&out).unwrap(), Some(b"admin")).expect("a command");
    check(HelloRequest::read(&command));
}

fn presentation() -> Presentation {
    Presentation {
        face: Face::Mongos,
        service_id: [5; 12],
        wire: WireVersions { min: 0, max: 21 },
        compressors: vec![Compressor::Zstd, Compressor::Snappy],
        session_timeout_minutes: Some(30),
        topology: None,
    }
}

fn names(face: Face, is_legacy: bool) -> Vec<String> {
    let presentation = presentation();
    let reply = HelloReply {
        presentation: &presentation,
        face,
        is_legacy,
        is_hello_known: is_legacy,
        compressors: &[],
        connection_id: 7,
        unix_ms: 1_700_000_000_000,
    };
    let mut out = Vec::new();
    bson::document(&mut out, |body| reply.write(body));
    let document = Document::read(&out).unwrap();
    assert_eq!(document.get(b"maxWireVersion").unwrap().and_then(Value::as_integer), Some(21));
    document.elements().map(|element| String::from_utf8(element.unwrap().name.to_vec()).unwrap()).collect()
}

#[test]
fn nothing_of_a_topology_is_in_a_reply() {
    for face in [Face::Mongos, Face::LoadBalancer, Face::Standalone] {
        let names = names(face, true);
        for leak in ["hosts", "setName", "primary", "me", "electionId", "setVersion", "topologyVersion", "lastWrite"] {
            assert!(!names.iter().any(|name| name == leak), "{leak}");
        }
        assert_eq!(names.contains(&"msg".to_owned()), face != Face::Standalone);
        assert_eq!(names.contains(&"serviceId".to_owned()), face == Face::LoadBalancer);
        assert!(names.contains(&"ismaster".to_owned()) && names.contains(&"helloOk".to_owned()));
    }
    assert!(!names_of_hello().contains(&"ismaster".to_owned()));
}

fn names_of_hello() -> Vec<String> {
    names(Face::Mongos, false)
}

#[test]
fn a_hello_is_read_with_its_fields_and_unknown_ones_are_ignored() {
    read(
        |body| {
            body.int32("ismaster", 1);
            body.bool("helloOk", true);
            body.bool("loadBalanced", true);
            body.string("backpressure", "2");
            body.array("compression", ["snappy", "lz4", "zstd"], |writer, name, it| writer.string(name, it));
            body.string("saslSupportedMechs", "admin.app");
            body.document("client", |client| client.string("driver", "x"));
        },
        |hello| {
            let hello = hello.expect("a hello");
            assert!(hello.is_legacy && hello.is_hello_known && hello.is_load_balanced && hello.metadata.is_some());
            assert_eq!(hello.compressors, [Compressor::Snappy, Compressor::Zstd]);
            assert_eq!((hello.mechanisms_of, hello.awaited), (Some(&b"admin.app"[..]), None));
            let common = presentation().common_compressors(hello.compressors.iter().copied());
            assert_eq!(common, [Compressor::Snappy, Compressor::Zstd], "the client's order");
        },
    );
}

#[test]
fn awaiting_needs_both_fields() {
    let version = |body: &mut Writer<'_>, counter: i64| {
        body.document("topologyVersion", |version| {
            version.object_id("processId", [1; 12]);
            version.int64("counter", counter);
        });
    };
    let both = |body: &mut Writer<'_>| {
        body.int32("hello", 1);
        version(body, 4);
        body.int32("maxAwaitTimeMS", 10_000);
    };
    let wanted = Some((TopologyVersion { process_id: [1; 12], counter: 4 }, 10_000));
    read(both, |hello| assert_eq!(hello.expect("a hello").awaited, wanted));
    read(
        |body| {
            body.int32("hello", 1);
            version(body, 4);
        },
        |hello| assert_eq!(hello.expect_err("one of two").code, 31368),
    );
    read(
        |body| {
            body.int32("hello", 1);
            body.int32("maxAwaitTimeMS", 5);
        },
        |hello| assert!(hello.is_err()),
    );
    read(
        |body| {
            body.int32("hello", 1);
            version(body, -1);
            body.int32("maxAwaitTimeMS", 5);
        },
        |hello| assert!(hello.is_err()),
    );
}

#[test]
fn a_client_that_describes_itself_at_length_is_refused() {
    let of = |bytes: usize| {
        move |body: &mut Writer<'_>| {
            body.int32("hello", 1);
            body.document("client", |client| client.string("a", "x".repeat(bytes)));
        }
    };
    read(of(400), |hello| assert!(hello.is_ok()));
    read(of(600), |hello| assert_eq!(hello.expect_err("too long").code, 185));
}
