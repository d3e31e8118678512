use weir_mongodb_codec::bson::Writer;
use weir_mongodb_codec::message::{self, Flags, Ids, Message};

use super::*;

/// A command of a session.
#[derive(Clone, Copy)]
struct Sent {
    name: &'static str,
    number: i64,
    is_start: bool,
    is_in_transaction: bool,
}

const FIND: Sent = Sent { name: "find", number: 1, is_start: false, is_in_transaction: true };
const START: Sent = Sent { is_start: true, ..FIND };
const COMMIT: Sent = Sent { name: "commitTransaction", ..FIND };
const WRITE: Sent = Sent { name: "insert", is_in_transaction: false, ..FIND };

const HERE: Place = Place { has_cluster: true, connection: None, now: Time::ZERO };

fn body(sent: Sent, body: &mut Writer<'_>) {
    body.string(sent.name, "c");
    body.document("lsid", |lsid| lsid.binary("id", 4, &[7; 16]));
    body.int64("txnNumber", sent.number);
    if sent.is_start {
        body.bool("startTransaction", true);
    }
    if sent.is_in_transaction {
        body.bool("autocommit", false);
    }
    body.string("$db", "d");
}

fn admit_raw(all: &mut Transactions, place: Place, write: impl FnOnce(&mut Writer<'_>)) -> Result<bool, i32> {
    let mut out = Vec::new();
    message::write(&mut out, Ids { request: 1, response_to: 0 }, Flags::empty(), write);
    let request = Request::of_message(Message::read(&out).expect("a message")).expect("a command");
    all.admit(&request, place).map_err(|failure| failure.code)
}

fn admit(all: &mut Transactions, sent: Sent) -> Result<bool, i32> {
    admit_raw(all, HERE, |out| body(sent, out))
}

#[test]
fn a_transaction_begins_once_and_ends_once() {
    let mut all = Transactions::default();
    assert_eq!(admit(&mut all, FIND), Err(code::NO_SUCH_TRANSACTION));
    assert_eq!(admit(&mut all, START), Ok(false));
    assert_eq!(admit(&mut all, START), Err(code::TRANSACTION_NUMBER_USED));
    assert_eq!((admit(&mut all, FIND), all.open()), (Ok(false), 1));
    assert_eq!(admit(&mut all, COMMIT), Ok(false));
    all.end(&[7; 16], true);
    assert_eq!(admit(&mut all, COMMIT), Ok(false), "a commit may be tried again");
    assert_eq!(admit(&mut all, FIND), Err(code::TRANSACTION_COMMITTED));
    assert_eq!((all.open(), all.started, all.committed, all.aborted), (0, 1, 1, 0));
}

#[test]
fn a_newer_transaction_ends_the_one_before() {
    let mut all = Transactions::default();
    admit(&mut all, START).expect("a start");
    admit(&mut all, Sent { number: 2, ..START }).expect("another");
    assert_eq!((all.open(), all.aborted), (1, 1));
    assert_eq!(admit(&mut all, FIND), Err(code::TRANSACTION_TOO_OLD));
    all.fail(&[7; 16], 2);
    assert_eq!(admit(&mut all, Sent { number: 2, ..FIND }), Err(code::NO_SUCH_TRANSACTION));
}

#[test]
fn a_write_that_comes_again_is_known() {
    let mut all = Transactions::default();
    assert_eq!((admit(&mut all, WRITE), admit(&mut all, WRITE)), (Ok(false), Ok(true)));
    assert_eq!(admit(&mut all, Sent { number: 0, ..WRITE }), Err(code::TRANSACTION_TOO_OLD));
    assert_eq!(admit(&mut all, START), Err(code::TRANSACTION_NUMBER_USED));
    assert_eq!((all.open(), all.started), (0, 0));
}

#[test]
fn fields_that_belong_together_must_be_together() {
    let mut all = Transactions::default();
    let alone = Place { has_cluster: false, ..HERE };
    assert_eq!(admit_raw(&mut all, alone, |out| body(WRITE, out)), Err(code::ILLEGAL_OPERATION));
    let without = |names: &'static [&'static str]| {
        move |out: &mut Writer<'_>| {
            out.string("find", "c");
            if !names.contains(&"lsid") {
                out.document("lsid", |lsid| lsid.binary("id", 4, &[7; 16]));
            }
            if !names.contains(&"txnNumber") {
                out.int64("txnNumber", 1);
            }
            out.bool("startTransaction", true);
            if !names.contains(&"autocommit") {
                out.bool("autocommit", false);
            }
            out.string("$db", "d");
        }
    };
    for names in [&["lsid"][..], &["txnNumber"], &["autocommit"], &["txnNumber", "autocommit"]] {
        assert_eq!(admit_raw(&mut all, HERE, without(names)), Err(code::INVALID_OPTIONS), "{names:?}");
    }
}

#[test]
fn a_transaction_lives_a_minute_and_may_be_bound_to_its_connection() {
    let mut all = Transactions::default();
    let bound = Place { connection: Some(1), ..HERE };
    admit_raw(&mut all, bound, |out| body(START, out)).expect("a start");
    assert_eq!(admit(&mut all, FIND), Err(code::NO_SUCH_TRANSACTION));
    assert_eq!(admit_raw(&mut all, bound, |out| body(FIND, out)), Ok(false));
    all.leave(1);
    assert_eq!(admit_raw(&mut all, bound, |out| body(FIND, out)), Err(code::NO_SUCH_TRANSACTION));
    admit(&mut all, Sent { number: 2, ..START }).expect("a start");
    let later = Place { now: Time::ZERO.saturating_add(LIFETIME), ..HERE };
    let late = admit_raw(&mut all, later, |out| body(Sent { number: 2, ..FIND }, out));
    assert_eq!(late, Err(code::NO_SUCH_TRANSACTION));
    assert_eq!((all.started, all.aborted), (2, 2));
}
