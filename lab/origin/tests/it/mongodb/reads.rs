//! Documents that follow from the request, cursors and streams.

use std::time::{Duration, Instant};

use weir_mongodb_codec::bson::{Value, Writer};
use weir_mongodb_codec::message::Flags;
use weir_origin::mongodb::{Face, MongodbOriginSettings, filler};

use super::client::{Client, lsid, origin};

fn find(body: &mut Writer<'_>, id: i64, comment: i32) {
    body.string("find", "documents");
    body.document("filter", |filter| filter.int64("_id", id));
    body.int32("limit", 1);
    body.bool("singleBatch", true);
    body.int32("comment", comment);
}

#[test]
fn every_document_follows_from_its_request_whichever_worker_answers() {
    let origin = origin(MongodbOriginSettings { workers: 2, ..Default::default() });
    for number in 1..=8 {
        let found = Client::to(&origin).run("lab", |body| find(body, number, 70 + number as i32));
        assert_eq!((found.ids(), found.number("cursor.id")), (vec![number], Some(0)));
        assert_eq!(found.text("cursor.firstBatch.0.ns").as_deref(), Some("lab.documents"));
        assert_eq!(found.number("cursor.firstBatch.0.request"), Some(70 + number));
        assert_eq!(found.number("request"), Some(70 + number));
        let document = found.find("cursor.firstBatch.0").expect("a document").bytes;
        assert_eq!(document.len(), 1024);
        let text = found.text("cursor.firstBatch.0.filler").expect("a filler");
        let mut wanted = Vec::new();
        filler(number, text.len(), &mut wanted);
        assert_eq!(text.as_bytes(), wanted);
    }
    let beyond = Client::to(&origin).run("lab", |body| find(body, 100_001, 1));
    assert_eq!(beyond.ids(), [0; 0]);
    assert_eq!((origin.stats().accepted, origin.stats().requests), (9, 9));
}

/// Opens a cursor over `documents` of the size `batch`.
fn open(client: &mut Client, batch: i32, more: impl FnOnce(&mut Writer<'_>)) -> (i64, Vec<i64>) {
    let first = client.run("lab", |body| {
        body.string("find", "documents");
        body.int32("batchSize", batch);
        body.string("comment", "mark");
        more(body);
    });
    (first.number("cursor.id").expect("an id"), first.ids())
}

fn get_more(body: &mut Writer<'_>, id: i64, batch: i32) {
    body.int64("getMore", id);
    body.string("collection", "documents");
    body.int32("batchSize", batch);
}

#[test]
fn a_cursor_goes_on_from_any_connection_and_ends_with_the_documents() {
    let origin = origin(MongodbOriginSettings { workers: 2, documents: 250, ..Default::default() });
    let mut client = Client::to(&origin);
    let (id, mut ids) = open(&mut client, 100, |_| {});
    assert!(id != 0 && ids.len() == 100);
    let second = Client::to(&origin).run("lab", |body| get_more(body, id, 100));
    assert_eq!(second.text("cursor.nextBatch.0.request").as_deref(), Some("mark"), "that of the command before");
    ids.extend(second.ids());
    let last = client.run("lab", |body| get_more(body, id, 100));
    ids.extend(last.ids());
    assert_eq!((ids, last.number("cursor.id")), ((1..=250).collect(), Some(0)));
    assert_eq!(client.run("lab", |body| get_more(body, id, 100)).code(), Some(43));
}

#[test]
fn a_batch_stays_within_the_bytes_of_a_document() {
    let settings = MongodbOriginSettings { documents: 100, document_bytes: 1 << 20, ..Default::default() };
    let origin = origin(settings);
    let (id, ids) = open(&mut Client::to(&origin), 100, |_| {});
    assert!(id != 0 && ids.len() == 15, "{} documents", ids.len());
}

#[test]
fn a_cursor_belongs_to_its_session_and_its_collection() {
    let origin = origin(MongodbOriginSettings::default());
    let mut client = Client::to(&origin);
    let (plain, _) = open(&mut client, 2, |_| {});
    let (bound, _) = open(&mut client, 2, |body| lsid(body, 1));
    let mut code = |id: i64, session: Option<u8>| {
        let answer = client.run("lab", |body| {
            get_more(body, id, 2);
            if let Some(number) = session {
                lsid(body, number);
            }
        });
        answer.code()
    };
    assert_eq!(
        (code(plain, Some(1)), code(bound, None), code(bound, Some(2))),
        (Some(50_736), Some(50_737), Some(50_738))
    );
    assert_eq!((code(plain, None), code(bound, Some(1))), (None, None));
    let foreign = client.run("other", |body| get_more(body, plain, 2));
    assert_eq!(foreign.code(), Some(13));
    client.run("admin", |body| {
        body.array("endSessions", [1_u8], |array, name, number| {
            array.document(name, |session| session.binary("id", 4, &[number; 16]));
        });
    });
    let gone = client.run("lab", |body| {
        get_more(body, bound, 2);
        lsid(body, 1);
    });
    assert_eq!(gone.code(), Some(43));
}

#[test]
fn killed_cursors_are_gone() {
    let origin = origin(MongodbOriginSettings::default());
    let mut client = Client::to(&origin);
    let (id, _) = open(&mut client, 2, |_| {});
    let killed = client.run("lab", |body| {
        body.string("killCursors", "documents");
        body.array("cursors", [id, 5], |array, name, id| array.int64(name, id));
    });
    assert_eq!((killed.number("cursorsKilled.0"), killed.number("cursorsNotFound.0")), (Some(id), Some(5)));
    assert_eq!(client.run("lab", |body| get_more(body, id, 2)).code(), Some(43));
    let counts = client.ask("weirOrigin");
    let count = |name: &str| counts.number(&format!("cursors.{name}"));
    assert_eq!((count("open"), count("opened"), count("killed")), (Some(0), Some(1), Some(1)));
}

#[test]
fn behind_a_load_balancer_a_cursor_stays_on_its_connection() {
    let origin = origin(MongodbOriginSettings { face: Face::LoadBalancer, ..Default::default() });
    let connect = || {
        let mut client = Client::to(&origin);
        client.run("admin", |body| {
            body.int32("hello", 1);
            body.bool("loadBalanced", true);
        });
        client
    };
    let (mut client, mut other) = (connect(), connect());
    let (id, _) = open(&mut client, 2, |_| {});
    assert_eq!(other.run("lab", |body| get_more(body, id, 2)).code(), Some(43));
    assert!(client.run("lab", |body| get_more(body, id, 2)).is_ok());
    drop(client);
    let begun = Instant::now();
    while other.ask("weirOrigin").number("cursors.open") != Some(0) {
        assert!(begun.elapsed() < Duration::from_secs(30), "the cursor outlives its connection");
    }
}

#[test]
fn an_exhaust_stream_sends_every_batch_and_names_the_reply_before() {
    let origin = origin(MongodbOriginSettings { documents: 1_000, ..Default::default() });
    let mut client = Client::to(&origin);
    let (id, mut ids) = open(&mut client, 100, |_| {});
    let mut before = client.command(Flags::EXHAUST_ALLOWED, |body| {
        get_more(body, id, 100);
        body.string("$db", "lab");
    });
    loop {
        let batch = client.answer();
        assert_eq!(batch.header.response_to, before);
        before = batch.header.request;
        ids.extend(batch.ids());
        let is_last = batch.number("cursor.id") == Some(0);
        assert_eq!(batch.flags.contains(Flags::MORE_TO_COME), !is_last);
        if is_last {
            break;
        }
    }
    assert_eq!(ids, (1..=1_000).collect::<Vec<_>>());
    assert!(client.ask("ping").is_ok());
}

#[test]
fn a_client_that_does_not_read_a_stream_is_not_written_to_without_end() {
    let origin = origin(MongodbOriginSettings { documents: 1 << 40, ..Default::default() });
    let mut client = Client::to(&origin);
    let (id, _) = open(&mut client, 1_000, |_| {});
    client.command(Flags::EXHAUST_ALLOWED, |body| {
        get_more(body, id, 1_000);
        body.string("$db", "lab");
    });
    // The stream has no end; another client is served meanwhile, and the origin answers on.
    for _ in 0..3 {
        assert_eq!(client.answer().ids().len(), 1_000);
    }
    assert!(Client::to(&origin).ask("ping").is_ok());
}

#[test]
fn a_tailable_cursor_waits_at_its_end() {
    let origin = origin(MongodbOriginSettings { documents: 3, ..Default::default() });
    let mut client = Client::to(&origin);
    let (id, ids) = open(&mut client, 10, |body| {
        body.bool("tailable", true);
        body.bool("awaitData", true);
    });
    assert_eq!(ids, [1, 2, 3]);
    let begun = Instant::now();
    let empty = client.run("lab", |body| {
        get_more(body, id, 10);
        body.int32("maxTimeMS", 50);
    });
    assert!(begun.elapsed() >= Duration::from_millis(50));
    assert_eq!((empty.ids(), empty.number("cursor.id")), (Vec::new(), Some(id)));
}

#[test]
fn a_change_stream_sees_writes_of_others_in_order() {
    let origin = origin(MongodbOriginSettings { workers: 2, face: Face::Mongos, ..Default::default() });
    let mut client = Client::to(&origin);
    let opened = client.run("lab", |body| {
        body.string("aggregate", "documents");
        body.array("pipeline", [()], |stages, name, ()| {
            stages.document(name, |stage| stage.document("$changeStream", |_| {}));
        });
        body.document("cursor", |_| {});
    });
    let id = opened.number("cursor.id").expect("an id");
    client.command(Flags::empty(), |body| {
        get_more(body, id, 0);
        body.int32("maxTimeMS", 60_000);
        body.string("$db", "lab");
    });
    let mut writer = Client::to(&origin);
    for (collection, number) in [("other", 1), ("documents", 2), ("documents", 3)] {
        let inserted = writer.run("lab", |body| {
            body.string("insert", collection);
            body.array("documents", [number], |array, name, number| {
                array.document(name, |document| document.int32("_id", number));
            });
        });
        assert!(inserted.is_ok());
    }
    let mut seen = Vec::new();
    let mut token = None;
    loop {
        let events = client.answer();
        for index in 0.. {
            let Some(number) = events.number(&format!("cursor.nextBatch.{index}.documentKey._id")) else { break };
            let kind = events.text(&format!("cursor.nextBatch.{index}.operationType"));
            seen.push((kind.expect("a kind"), number));
        }
        let first = events.text("cursor.nextBatch.0._id._data");
        token = token.or(first);
        if seen.len() >= 2 {
            break;
        }
        client.command(Flags::empty(), |body| {
            get_more(body, id, 0);
            body.int32("maxTimeMS", 60_000);
            body.string("$db", "lab");
        });
    }
    assert_eq!(seen, [("insert".to_owned(), 2), ("insert".to_owned(), 3)]);
    // Another stream resumes behind the first event.
    let resumed = client.run("lab", |body| {
        body.string("aggregate", "documents");
        body.array("pipeline", [token.expect("a token")], |stages, name, token| {
            stages.document(name, |stage| {
                stage.document("$changeStream", |options| {
                    options.document("resumeAfter", |body| body.string("_data", token));
                });
            });
        });
    });
    let id = resumed.number("cursor.id").expect("an id");
    let events = client.run("lab", |body| get_more(body, id, 0));
    assert_eq!(events.number("cursor.nextBatch.0.documentKey._id"), Some(3));
}

#[test]
fn an_aggregation_selects_and_counts() {
    let origin = origin(MongodbOriginSettings { documents: 50, ..Default::default() });
    let mut client = Client::to(&origin);
    let mut run = |last: fn(&mut Writer<'_>)| {
        client.run("lab", |body| {
            body.string("aggregate", "documents");
            body.array("pipeline", [0, 1], |stages, name, at| {
                stages.document(name, |stage| match at {
                    0 => stage.document("$match", |all| all.document("_id", |id| id.int32("$gt", 40))),
                    _ => last(stage),
                });
            });
            body.document("cursor", |_| {});
        })
    };
    assert_eq!(run(|stage| stage.int32("$limit", 3)).ids(), [41, 42, 43]);
    let counted = run(|stage| stage.document("$group", |group| group.int32("_id", 1)));
    assert_eq!(counted.number("cursor.firstBatch.0.n"), Some(10));
    let count = client.run("lab", |body| body.string("count", "documents"));
    assert_eq!(count.find("n").and_then(Value::as_integer), Some(50));
}
