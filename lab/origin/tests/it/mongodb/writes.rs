//! Inserts, updates and deletes; sessions and transactions.

use weir_mongodb_codec::bson::{Document, Writer, document};
use weir_mongodb_codec::message::{self, Flags, Ids};
use weir_origin::mongodb::{Face, MongodbOriginSettings};

use super::client::{Client, lsid, origin, part};

fn insert(body: &mut Writer<'_>, count: i32) {
    body.string("insert", "documents");
    body.array("documents", 0..count, |array, name, number| {
        array.document(name, |document| document.int32("_id", number));
    });
    body.int32("comment", 5);
}

#[test]
fn writes_are_confirmed_by_what_they_say() {
    let origin = origin(MongodbOriginSettings { documents: 10, ..Default::default() });
    let mut client = Client::to(&origin);
    let inserted = client.run("lab", |body| insert(body, 3));
    assert_eq!((inserted.number("n"), inserted.number("request")), (Some(3), Some(5)));
    let statement = |body: &mut Writer<'_>, id: i32, more: fn(&mut Writer<'_>)| {
        body.document("q", |filter| filter.int32("_id", id));
        more(body);
    };
    let updated = client.run("lab", |body| {
        body.string("update", "documents");
        body.array("updates", [7, 99, 98], |array, name, id| {
            array.document(name, |one| {
                statement(one, id, |one| one.document("u", |_| {}));
                one.bool("upsert", id == 98);
            });
        });
    });
    let numbers =
        ["n", "nModified", "upserted.0.index", "upserted.0._id", "upserted.1"].map(|name| updated.number(name));
    assert_eq!(numbers, [Some(2), Some(1), Some(2), Some(98), None]);
    let deleted = client.run("lab", |body| {
        body.string("delete", "documents");
        body.array("deletes", [7, 99], |array, name, id| {
            array.document(name, |one| statement(one, id, |one| one.int32("limit", 1)));
        });
    });
    assert_eq!(deleted.number("n"), Some(1));
    let modified = client.run("lab", |body| {
        body.string("findAndModify", "documents");
        body.document("query", |filter| filter.int32("_id", 4));
        body.bool("remove", true);
    });
    assert_eq!((modified.number("value._id"), modified.number("lastErrorObject.n")), (Some(4), Some(1)));
    assert_eq!(client.run("lab", |body| insert(body, 0)).code(), Some(16));
    assert_eq!(client.ask("weirOrigin").number("inserted"), Some(3));
}

#[test]
fn documents_come_in_a_sequence_beside_the_body() {
    let origin = origin(MongodbOriginSettings::default());
    let mut client = Client::to(&origin);
    let documents: Vec<Vec<u8>> = (0..100)
        .map(|number| {
            let mut out = Vec::new();
            document(&mut out, |body| body.int32("_id", number));
            out
        })
        .collect();
    let body = |body: &mut Writer<'_>| {
        body.string("insert", "documents");
        body.string("$db", "lab");
    };
    let sequence = documents.iter().map(|bytes| Document::read(bytes).expect("a document"));
    let mut out = Vec::new();
    let ids = Ids { request: 7, response_to: 0 };
    message::write_with_sequence(&mut out, ids, Flags::empty(), body, "documents", sequence);
    client.send(&out);
    let inserted = client.answer();
    assert_eq!((inserted.header.response_to, inserted.number("n")), (7, Some(100)));
}

#[test]
fn a_write_without_acknowledgement_has_no_reply() {
    let origin = origin(MongodbOriginSettings::default());
    let mut client = Client::to(&origin);
    client.command(Flags::MORE_TO_COME, |body| {
        insert(body, 4);
        body.document("writeConcern", |concern| concern.int32("w", 0));
        body.string("$db", "lab");
    });
    client.command(Flags::MORE_TO_COME, |body| {
        body.string("noSuchCommand", "x");
        body.string("$db", "lab");
    });
    assert_eq!(client.ask("weirOrigin").number("inserted"), Some(4));
}

#[test]
fn writes_of_many_collections_come_in_one_command() {
    let origin = origin(MongodbOriginSettings { documents: 10, ..Default::default() });
    let written = Client::to(&origin).run("admin", |body| {
        body.int32("bulkWrite", 1);
        body.array("ops", ["insert", "update", "delete"], |array, name, operation| {
            array.document(name, |one| {
                one.int32(operation, 0);
                match operation {
                    "insert" => one.document("document", |document| document.int32("_id", 1)),
                    _ => one.document("filter", |filter| filter.int32("_id", 3)),
                }
            });
        });
        body.array("nsInfo", ["lab.documents"], |array, name, namespace| {
            array.document(name, |one| one.string("ns", namespace));
        });
    });
    let counts = ["nInserted", "nMatched", "nModified", "nDeleted", "nErrors"].map(|name| written.number(name));
    assert_eq!(counts, [Some(1), Some(1), Some(1), Some(1), Some(0)]);
    assert_eq!(written.number("cursor.firstBatch.2.idx"), Some(2));
}

#[test]
fn a_mongod_without_a_set_has_no_transactions() {
    let origin = origin(MongodbOriginSettings::default());
    let refused = Client::to(&origin).run("lab", |body| {
        insert(body, 1);
        part(body, 1, 1, true);
    });
    assert_eq!(refused.code(), Some(20));
}

#[test]
fn a_transaction_goes_on_from_any_connection_to_its_end() {
    let origin = origin(MongodbOriginSettings { workers: 2, face: Face::Mongos, ..Default::default() });
    let (mut client, mut other) = (Client::to(&origin), Client::to(&origin));
    let begun = client.run("lab", |body| {
        insert(body, 1);
        part(body, 1, 1, true);
    });
    assert!(begun.is_ok() && begun.find("recoveryToken.recoveryShardId").is_some());
    let find = |client: &mut Client, number: i64| {
        client.run("lab", |body| {
            body.string("find", "documents");
            body.int32("limit", 1);
            part(body, 1, number, false);
        })
    };
    assert!(find(&mut other, 1).is_ok());
    assert_eq!(find(&mut other, 2).labels(), ["TransientTransactionError"]);
    let token = begun.find("recoveryToken").expect("a token");
    for _ in 0..2 {
        let committed = other.run("admin", |body| {
            body.int32("commitTransaction", 1);
            part(body, 1, 1, false);
            body.value("recoveryToken", token);
        });
        assert!(committed.is_ok(), "a commit may be tried again");
    }
    assert_eq!(find(&mut client, 1).code(), Some(256));
    let counts = client.ask("weirOrigin");
    let count = |name: &str| counts.number(&format!("transactions.{name}"));
    assert_eq!((count("open"), count("committed"), count("aborted")), (Some(0), Some(1), Some(0)));
}

#[test]
fn a_statement_that_fails_ends_its_transaction() {
    let origin = origin(MongodbOriginSettings { face: Face::Mongos, ..Default::default() });
    let mut client = Client::to(&origin);
    client.run("lab", |body| {
        insert(body, 1);
        part(body, 1, 1, true);
    });
    let failed = client.run("lab", |body| {
        insert(body, 0);
        part(body, 1, 1, false);
    });
    assert_eq!(failed.code(), Some(16));
    let aborted = client.run("admin", |body| {
        body.int32("abortTransaction", 1);
        part(body, 1, 1, false);
    });
    assert_eq!((aborted.code(), aborted.labels()), (Some(251), vec!["TransientTransactionError".to_owned()]));
    assert_eq!(client.ask("weirOrigin").number("transactions.aborted"), Some(1));
}

#[test]
fn a_command_that_needs_no_transaction_is_refused_in_one() {
    let origin = origin(MongodbOriginSettings { face: Face::Mongos, ..Default::default() });
    let mut client = Client::to(&origin);
    let refused = client.run("lab", |body| {
        body.string("listIndexes", "documents");
        part(body, 1, 1, true);
    });
    assert_eq!(refused.code(), Some(263));
    let elsewhere = client.run("lab", |body| {
        body.int32("commitTransaction", 1);
        part(body, 1, 1, false);
    });
    assert_eq!(elsewhere.code(), Some(13));
}

#[test]
fn a_write_with_a_number_is_carried_out_once() {
    for stores in [false, true] {
        let origin = origin(MongodbOriginSettings { face: Face::Mongos, stores, ..Default::default() });
        let mut client = Client::to(&origin);
        for _ in 0..2 {
            let inserted = client.run("lab", |body| {
                insert(body, 2);
                lsid(body, 1);
                body.int64("txnNumber", 7);
            });
            assert_eq!(inserted.number("n"), Some(2));
        }
        assert_eq!(client.ask("weirOrigin").number("inserted"), Some(2));
    }
}

#[test]
fn behind_a_load_balancer_a_transaction_ends_with_its_connection() {
    let origin = origin(MongodbOriginSettings { face: Face::LoadBalancer, ..Default::default() });
    let mut client = Client::to(&origin);
    client.run("admin", |body| {
        body.int32("hello", 1);
        body.bool("loadBalanced", true);
    });
    client.run("lab", |body| {
        insert(body, 1);
        part(body, 1, 1, true);
    });
    let mut other = Client::to(&origin);
    assert_eq!(other.ask("weirOrigin").number("transactions.open"), Some(1));
    drop(client);
    let begun = std::time::Instant::now();
    while other.ask("weirOrigin").number("transactions.aborted") != Some(1) {
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "the transaction outlives its connection");
    }
}
