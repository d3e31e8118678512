//! Fail points, delays and limits.

use std::time::{Duration, Instant};

use weir_mongodb_codec::bson::Writer;
use weir_mongodb_codec::message::Flags;
use weir_origin::mongodb::{Face, MongodbOriginSettings};

use super::client::{Client, lsid, origin, part};

fn fail(client: &mut Client, times: i32, command: &str, data: impl FnOnce(&mut Writer<'_>)) {
    let set = client.run("admin", |body| {
        body.string("configureFailPoint", "failCommand");
        body.document("mode", |mode| mode.int32("times", times));
        body.document("data", |body| {
            body.array("failCommands", [command], |body, name, command| body.string(name, command));
            data(body);
        });
    });
    assert!(set.is_ok(), "{set:?}");
}

fn insert(body: &mut Writer<'_>) {
    body.string("insert", "documents");
    body.array("documents", [()], |array, name, ()| array.document(name, |_| {}));
    lsid(body, 1);
}

#[test]
fn a_fail_point_replies_with_its_error_and_the_labels_of_the_place() {
    let origin = origin(MongodbOriginSettings { workers: 2, face: Face::Mongos, ..Default::default() });
    let (mut client, mut other) = (Client::to(&origin), Client::to(&origin));
    let error = |body: &mut Writer<'_>| body.int32("errorCode", 91);
    fail(&mut client, 2, "insert", error);
    let plain = other.run("lab", insert);
    assert_eq!((plain.code(), plain.text("codeName").as_deref()), (Some(91), Some("ShutdownInProgress")));
    assert!(plain.labels().is_empty());
    let numbered = other.run("lab", |body| {
        insert(body);
        body.int64("txnNumber", 1);
    });
    assert_eq!(numbered.labels(), ["RetryableWriteError"]);
    assert!(other.run("lab", insert).is_ok(), "it has struck as often as it says");
    fail(&mut client, 1, "insert", error);
    let in_transaction = other.run("lab", |body| {
        body.string("insert", "documents");
        body.array("documents", [()], |array, name, ()| array.document(name, |_| {}));
        part(body, 1, 2, true);
    });
    assert_eq!(in_transaction.labels(), ["TransientTransactionError"]);
    fail(&mut client, 1, "ping", |body| {
        body.int32("errorCode", 462);
        let labels = ["SystemOverloadedError", "RetryableError"];
        body.array("errorLabels", labels, |body, name, label| body.string(name, label));
    });
    let shed = other.ask("ping");
    assert_eq!((shed.code(), shed.labels().len()), (Some(462), 2));
}

#[test]
fn an_error_about_the_state_of_the_server_ends_the_wait_of_a_hello() {
    let origin = origin(MongodbOriginSettings { face: Face::Mongos, ..Default::default() });
    let (mut monitor, mut client) = (Client::to(&origin), Client::to(&origin));
    let seen = monitor.ask("hello");
    monitor.command(Flags::empty(), |body| {
        body.int32("hello", 1);
        body.value("topologyVersion", seen.find("topologyVersion").expect("a version"));
        body.int32("maxAwaitTimeMS", 60_000);
        body.string("$db", "admin");
    });
    fail(&mut client, 1, "insert", |body| body.int32("errorCode", 11_600));
    let failed = client.run("lab", insert);
    let version = failed.find("topologyVersion").expect("a version");
    assert_ne!(Some(version), seen.find("topologyVersion"));
    assert_eq!(monitor.answer().find("topologyVersion"), Some(version));
}

#[test]
fn a_fail_point_closes_the_connection_or_blocks_the_command() {
    let origin = origin(MongodbOriginSettings::default());
    let (mut client, mut other) = (Client::to(&origin), Client::to(&origin));
    fail(&mut client, 1, "ping", |body| body.bool("closeConnection", true));
    other.command(Flags::empty(), |body| {
        body.int32("ping", 1);
        body.string("$db", "admin");
    });
    other.expect_end();
    fail(&mut client, 1, "ping", |body| {
        body.bool("blockConnection", true);
        body.int32("blockTimeMS", 50);
    });
    let begun = Instant::now();
    assert!(client.ask("ping").is_ok());
    assert!(begun.elapsed() >= Duration::from_millis(50));
}

#[test]
fn a_fail_point_puts_an_error_of_the_write_concern_beside_the_result() {
    let origin = origin(MongodbOriginSettings { face: Face::Mongos, ..Default::default() });
    let mut client = Client::to(&origin);
    fail(&mut client, 1, "insert", |body| {
        body.document("writeConcernError", |error| {
            error.int32("code", 91);
            error.string("errmsg", "on its way down");
        });
    });
    let inserted = client.run("lab", |body| {
        insert(body);
        body.int64("txnNumber", 1);
    });
    assert_eq!((inserted.number("ok"), inserted.number("n")), (Some(1), Some(1)));
    assert_eq!(inserted.number("writeConcernError.code"), Some(91));
    assert_eq!(inserted.labels(), ["RetryableWriteError"]);
}

#[test]
fn a_delay_holds_back_each_reply() {
    let delay = Duration::from_millis(50);
    let origin = origin(MongodbOriginSettings { delay, ..Default::default() });
    let mut client = Client::to(&origin);
    let begun = Instant::now();
    let bytes: Vec<u8> = (0..3)
        .flat_map(|_| {
            client.bytes(Flags::empty(), |body| {
                body.int32("ping", 1);
                body.string("$db", "admin");
            })
        })
        .collect();
    client.send(&bytes);
    (0..3).for_each(|_| assert!(client.answer().is_ok()));
    assert!(begun.elapsed() >= delay);
}

#[test]
fn a_client_beyond_the_limit_is_closed() {
    let origin = origin(MongodbOriginSettings { connections_max: 1, ..Default::default() });
    let mut first = Client::to(&origin);
    assert!(first.ask("ping").is_ok());
    Client::to(&origin).expect_end();
}
