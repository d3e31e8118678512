//! An origin that stores documents.

use weir_mongodb_codec::bson::{Value, Writer};
use weir_mongodb_codec::message::Flags;
use weir_origin::mongodb::{Face, MongodbOriginSettings, Origin};

use super::client::{Answer, Client, origin, part};

fn storing() -> Origin {
    origin(MongodbOriginSettings { stores: true, face: Face::Mongos, workers: 2, ..Default::default() })
}

fn insert(body: &mut Writer<'_>, numbers: impl IntoIterator<Item = i32>) {
    body.string("insert", "c");
    body.array("documents", numbers, |array, name, number| {
        array.document(name, |document| {
            document.int32("_id", number);
            document.int32("half", number / 2);
        });
    });
}

fn find(client: &mut Client, filter: impl FnOnce(&mut Writer<'_>)) -> Vec<i64> {
    let found = client.run("lab", |body| {
        body.string("find", "c");
        body.document("filter", filter);
        body.document("sort", |sort| sort.int32("_id", 1));
    });
    found.ids()
}

#[test]
fn documents_are_found_as_they_were_written() {
    let origin = storing();
    let (mut client, mut other) = (Client::to(&origin), Client::to(&origin));
    assert_eq!(client.run("lab", |body| insert(body, 1..=5)).number("n"), Some(5));
    assert_eq!(find(&mut other, |_| {}), [1, 2, 3, 4, 5]);
    assert_eq!(find(&mut other, |filter| filter.int32("half", 2)), [4, 5]);
    assert_eq!(find(&mut other, |filter| filter.double("_id", 3.0)), [3]);
    let again = client.run("lab", |body| insert(body, [6, 1, 7]));
    assert_eq!((again.number("n"), again.number("writeErrors.0.index")), (Some(1), Some(1)));
    assert_eq!((again.number("writeErrors.0.code"), again.is_ok()), (Some(11_000), true));
    let updated = client.run("lab", |body| {
        body.string("update", "c");
        body.array("updates", [1, 9], |array, name, number| {
            array.document(name, |one| {
                one.document("q", |filter| filter.int32("_id", number));
                one.document("u", |update| update.document("$inc", |inc| inc.int32("half", 100)));
                one.bool("upsert", true);
            });
        });
    });
    let numbers = ["n", "nModified", "upserted.0._id"].map(|name| updated.number(name));
    assert_eq!(numbers, [Some(2), Some(1), Some(9)]);
    assert_eq!(find(&mut other, |filter| filter.document("half", |half| half.int32("$gte", 100))), [1, 9]);
    let deleted = client.run("lab", |body| {
        body.string("delete", "c");
        body.array("deletes", [()], |array, name, ()| {
            array.document(name, |one| {
                one.document("q", |filter| filter.document("_id", |id| id.int32("$lt", 4)));
                one.int32("limit", 0);
            });
        });
    });
    assert_eq!((deleted.number("n"), find(&mut other, |_| {})), (Some(3), vec![4, 5, 6, 9]));
    assert!(client.run("lab", |body| body.string("drop", "c")).is_ok());
    assert_eq!(find(&mut other, |_| {}), [0; 0]);
}

#[test]
fn stored_documents_come_in_batches() {
    let origin = storing();
    let mut client = Client::to(&origin);
    client.run("lab", |body| insert(body, 1..=250));
    let first = client.run("lab", |body| {
        body.string("find", "c");
        body.int32("batchSize", 100);
    });
    let id = first.number("cursor.id").expect("an id");
    let mut ids = first.ids();
    client.command(Flags::EXHAUST_ALLOWED, |body| {
        body.int64("getMore", id);
        body.string("collection", "c");
        body.int32("batchSize", 100);
        body.string("$db", "lab");
    });
    let (second, last) = (client.answer(), client.answer());
    ids.extend(second.ids().into_iter().chain(last.ids()));
    assert_eq!((ids, last.flags), ((1..=250).collect::<Vec<i64>>(), Flags::empty()));
}

#[test]
fn writes_of_a_transaction_are_seen_by_others_once_it_is_committed() {
    let origin = storing();
    let (mut client, mut other) = (Client::to(&origin), Client::to(&origin));
    for (number, end, seen) in [(1, "abortTransaction", Vec::new()), (2, "commitTransaction", vec![1, 2])] {
        let inserted = client.run("lab", |body| {
            insert(body, [1, 2]);
            part(body, 1, number, true);
        });
        assert_eq!(inserted.number("n"), Some(2));
        let own = client.run("lab", |body| {
            body.string("find", "c");
            part(body, 1, number, false);
        });
        assert_eq!((own.ids(), find(&mut other, |_| {})), (vec![1, 2], Vec::new()));
        let ended = client.run("admin", |body| {
            body.int32(end, 1);
            part(body, 1, number, false);
        });
        assert!(ended.is_ok());
        assert_eq!(find(&mut other, |_| {}), seen);
    }
}

#[test]
fn a_tailable_cursor_waits_for_the_next_document() {
    let origin = storing();
    let (mut client, mut other) = (Client::to(&origin), Client::to(&origin));
    other.run("lab", |body| insert(body, [1]));
    let first = client.run("lab", |body| {
        body.string("find", "c");
        body.bool("tailable", true);
        body.bool("awaitData", true);
    });
    let id = first.number("cursor.id").expect("an id");
    client.command(Flags::empty(), |body| {
        body.int64("getMore", id);
        body.string("collection", "c");
        body.int32("maxTimeMS", 60_000);
        body.string("$db", "lab");
    });
    other.run("lab", |body| insert(body, [2]));
    let next: Answer = client.answer();
    assert_eq!((first.ids(), next.ids(), next.number("cursor.id")), (vec![1], vec![2], Some(id)));
}

#[test]
fn a_change_has_its_whole_document() {
    let origin = storing();
    let (mut client, mut other) = (Client::to(&origin), Client::to(&origin));
    let opened = client.run("lab", |body| {
        body.string("aggregate", "c");
        body.array("pipeline", [()], |stages, name, ()| {
            stages.document(name, |stage| stage.document("$changeStream", |_| {}));
        });
    });
    let id = opened.number("cursor.id").expect("an id");
    other.run("lab", |body| insert(body, [8]));
    let events = client.run("lab", |body| {
        body.int64("getMore", id);
        body.string("collection", "c");
    });
    assert_eq!(events.number("cursor.nextBatch.0.fullDocument.half"), Some(4));
}

#[test]
fn a_document_without_an_id_gets_one() {
    let origin = storing();
    let mut client = Client::to(&origin);
    client.run("lab", |body| {
        body.string("insert", "c");
        body.array("documents", [1, 2], |array, name, number| {
            array.document(name, |document| document.int32("n", number));
        });
    });
    let found = client.run("lab", |body| body.string("find", "c"));
    let id = |index: usize| found.find(&format!("cursor.firstBatch.{index}._id")).and_then(Value::as_object_id);
    assert!(id(0).is_some() && id(1).is_some() && id(0) != id(1));
    let counted = client.run("lab", |body| body.string("count", "c"));
    assert_eq!(counted.number("n"), Some(2));
}
