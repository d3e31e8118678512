use super::*;
use crate::bson::{self, Writer};
use crate::error::BsonError;

fn read(body: impl FnOnce(&mut Writer<'_>), check: impl FnOnce(Command<'_>)) {
    let mut out = Vec::new();
    bson::document(&mut out, body);
    check(Command::read(Document::read(&out).unwrap()).expect("a command"));
}

fn error(body: impl FnOnce(&mut Writer<'_>)) -> CommandError {
    let mut out = Vec::new();
    bson::document(&mut out, body);
    Command::read(Document::read(&out).unwrap()).expect_err("no command")
}

fn lsid(writer: &mut Writer<'_>) {
    writer.document("lsid", |lsid| lsid.binary("id", 4, &[7; 16]));
}

#[test]
fn a_find_is_read_with_its_fields() {
    read(
        |body| {
            body.string("find", "orders");
            body.document("filter", |filter| filter.int32("$db", 1));
            lsid(body);
            body.string("$db", "shop");
            body.document("$readPreference", |preference| preference.string("mode", "secondary"));
            body.int32("maxTimeMS", 50);
        },
        |command| {
            assert_eq!((command.name, command.db), (&b"find"[..], &b"shop"[..]));
            assert_eq!(command.collection(), Some(&b"orders"[..]));
            assert_eq!((command.session, command.txn_number), (Some(&[7; 16]), None));
            assert_eq!((command.read_mode(), command.max_time_ms), (&b"secondary"[..], Some(50)));
            assert!(!command.is_in_transaction && command.cursor().is_none());
        },
    );
}

#[test]
fn a_part_of_a_transaction_is_one() {
    let body = |is_start: bool| {
        move |body: &mut Writer<'_>| {
            body.string("insert", "orders");
            body.string("$db", "shop");
            lsid(body);
            body.int64("txnNumber", 3);
            if is_start {
                body.bool("startTransaction", true);
            }
            body.bool("autocommit", false);
        }
    };
    for is_start in [false, true] {
        read(body(is_start), |command| {
            assert_eq!((command.is_in_transaction, command.is_transaction_start), (true, is_start));
            assert_eq!(command.txn_number, Some(3));
        });
    }
}

#[test]
fn the_collection_of_a_get_more_is_a_field() {
    read(
        |body| {
            body.int64("getMore", 99);
            body.string("collection", "$cmd.listCollections");
            body.string("$db", "shop");
        },
        |command| {
            assert_eq!((command.cursor(), command.collection()), (Some(99), Some(&b"$cmd.listCollections"[..])));
            assert_eq!(command.read_mode(), b"primary");
        },
    );
}

#[test]
fn m11_fields_that_decide_are_there_once() {
    let twice = |name: &'static str, value: fn(&mut Writer<'_>, &str)| {
        error(move |body| {
            body.string("find", "a");
            if name != "$db" {
                body.string("$db", "b");
            }
            value(body, name);
            value(body, name);
        })
    };
    for name in ["$db", "find", "collection"] {
        assert_eq!(twice(name, |body, name| body.string(name, "a")), CommandError::Duplicate, "{name}");
    }
    for name in ["startTransaction", "autocommit"] {
        assert_eq!(twice(name, |body, name| body.bool(name, false)), CommandError::Duplicate, "{name}");
    }
    for name in ["$readPreference", "readConcern", "writeConcern"] {
        assert_eq!(twice(name, |body, name| body.document(name, |_| {})), CommandError::Duplicate, "{name}");
    }
    for name in ["pipeline", "cursors"] {
        assert_eq!(twice(name, |body, name| body.array(name, [0; 0], |_, _, _| {})), CommandError::Duplicate, "{name}");
    }
    assert_eq!(twice("lsid", |body, _| lsid(body)), CommandError::Duplicate);
    assert_eq!(twice("txnNumber", |body, name| body.int64(name, 1)), CommandError::Duplicate);
    // A field that decides nothing is the server's.
    read(
        |body| {
            body.string("find", "a");
            body.string("$db", "b");
            body.int32("limit", 1);
            body.int32("limit", 2);
        },
        |_| {},
    );
}

#[test]
fn m18_names_that_cannot_be_are_refused() {
    let db = |name: &str| {
        let name = name.to_owned();
        error(move |body| {
            body.int32("ping", 1);
            body.string("$db", name);
        })
    };
    for name in ["", "a\0b", "a.b", "a b", "$cmd", &"a".repeat(64), &"a".repeat(1 << 20)] {
        assert_eq!(db(name), CommandError::Namespace, "{name:.10}");
    }
    for name in ["a\0b", "$a", "a.$cmd", &"a".repeat(256)] {
        let name = name.to_owned();
        let found = error(move |body| {
            body.string("find", name);
            body.string("$db", "a");
        });
        assert_eq!(found, CommandError::Namespace);
    }
    assert_eq!(error(|body| body.int32("ping", 1)), CommandError::NoDatabase);
    assert_eq!(error(|_| {}), CommandError::Empty);
    read(
        |body| {
            body.int32("saslStart", 1);
            body.string("$db", "$external");
        },
        |command| assert_eq!(command.db, b"$external"),
    );
}

#[test]
fn fields_of_a_wrong_type_are_refused() {
    for name in ["$readPreference", "readConcern", "writeConcern", "lsid", "txnNumber", "autocommit", "cursors"] {
        let found = error(|body| {
            body.int32("ping", 1);
            body.string("$db", "a");
            body.string(name, "text");
        });
        assert_eq!(found, CommandError::Type, "{name}");
    }
    for id in [&[7; 15][..], &[7; 17], &[]] {
        let found = error(|body| {
            body.int32("ping", 1);
            body.string("$db", "a");
            body.document("lsid", |lsid| lsid.binary("id", 4, id));
        });
        assert_eq!(found, CommandError::Type);
    }
    let broken = Document::read(b"\x0c\0\0\0\x10a\0\x01\0\0\x20\0").unwrap();
    assert!(Command::read(broken).is_err());
    let short = Document::read(b"\x0b\0\0\0\x10a\0\x01\0\0\0").unwrap();
    assert_eq!(Command::read(short).err(), Some(CommandError::Bson(BsonError::Short)));
}
