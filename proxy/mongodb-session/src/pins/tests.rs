use std::sync::Arc;

use weir_mongodb_codec::command::Command;
use weir_mongodb_codec::message::Message;

use super::*;
use crate::users::{Identity, Owner};

fn owner(name: &str) -> Owner {
    Some(Arc::new(Identity::new(b"admin", name.as_bytes())))
}

fn cursor(name: &str, session: u8, id: i64) -> CursorKey {
    CursorKey { owner: owner(name), session: Some([session; 16]), id }
}

fn session(name: &str, session: u8) -> SessionKey {
    SessionKey { owner: owner(name), session: [session; 16] }
}

fn place(server: u32) -> CursorPlace {
    CursorPlace { server: ServerId(server), db: b"shop"[..].into(), collection: b"orders"[..].into() }
}

fn at(seconds: u64) -> Time {
    Time::ZERO.saturating_add(Duration::from_secs(seconds))
}

#[test]
fn l3_a_cursor_is_found_by_its_owner_in_its_session_alone() {
    let mut pins = Pins::new(PinLimits::SHARED);
    assert_eq!(pins.note_cursor(cursor("ann", 1, 7), place(3), at(0)), []);
    assert_eq!(pins.cursor(&cursor("ann", 1, 7)), Some(ServerId(3)));
    for other in [cursor("bob", 1, 7), cursor("ann", 2, 7), cursor("ann", 1, 8)] {
        assert_eq!(pins.cursor(&other), None);
    }
    let without = CursorKey { session: None, ..cursor("ann", 1, 7) };
    assert_eq!(pins.cursor(&without), None, "a session of its own");
    pins.end_cursor(&cursor("ann", 1, 7), ServerId(3));
    assert!(pins.is_empty());
}

#[test]
fn cursors_of_two_servers_with_one_key_are_both_given_back() {
    let mut pins = Pins::new(PinLimits::SHARED);
    pins.note_cursor(cursor("ann", 1, 7), place(3), at(0));
    let both = pins.note_cursor(cursor("ann", 1, 7), place(4), at(0));
    assert_eq!(both.iter().map(Cleanup::server).collect::<Vec<_>>(), [ServerId(3), ServerId(4)]);
    assert_eq!(pins.cursor(&cursor("ann", 1, 7)), None);
    assert_eq!(pins.note_cursor(cursor("ann", 1, 7), place(4), at(0)).len(), 1, "a third one as well");
    // A getMore that was under way ends one of them: the other's client must not get a third one.
    pins.end_cursor(&cursor("ann", 1, 7), ServerId(3));
    assert_eq!(pins.note_cursor(cursor("ann", 1, 7), place(5), at(0)), [place(5).kill(7)]);
    assert_eq!(pins.expire(at(600)), []);
    assert!(pins.is_empty());
}

#[test]
fn m9_cursors_and_transactions_end_with_their_time() {
    let mut pins = Pins::new(PinLimits::SHARED);
    pins.note_cursor(cursor("ann", 1, 7), place(3), at(0));
    pins.begin_transaction(session("ann", 1), 5, ServerId(3), at(0));
    assert_eq!(pins.expire(at(59)), []);
    pins.touch_transaction(&session("ann", 1), 5, at(50));
    assert_eq!(pins.expire(at(100)), []);
    let abort = Cleanup::AbortTransaction { server: ServerId(3), session: [1; 16], number: 5 };
    assert_eq!(pins.expire(at(110)), [abort]);
    assert_eq!(pins.expire(at(600)).len(), 1, "the cursor");
    assert!(pins.is_empty());
}

#[test]
fn a_transaction_is_where_it_began_until_its_commit_cannot_be_repeated() {
    let (mut pins, key) = (Pins::new(PinLimits::SHARED), session("ann", 1));
    assert_eq!(pins.transaction(&key, 5), TransactionRoute::Unknown);
    assert_eq!(pins.begin_transaction(key.clone(), 5, ServerId(3), at(0)), None);
    assert_eq!(pins.transaction(&key, 5), TransactionRoute::Server(ServerId(3)));
    assert_eq!(pins.transaction(&key, 4), TransactionRoute::Unknown);
    assert_eq!(pins.transaction(&session("bob", 1), 5), TransactionRoute::Foreign, "M20");
    pins.commit_transaction(&key, 5, at(10));
    assert_eq!(pins.transaction(&key, 5), TransactionRoute::Server(ServerId(3)));
    assert_eq!(pins.expire(at(70)), [], "nothing is under way");
    assert_eq!(pins.transaction(&key, 5), TransactionRoute::Unknown);
}

#[test]
fn a_new_transaction_of_a_session_aborts_the_one_before_at_another_server() {
    let (mut pins, key) = (Pins::new(PinLimits::SHARED), session("ann", 1));
    pins.begin_transaction(key.clone(), 5, ServerId(3), at(0));
    assert_eq!(pins.begin_transaction(key.clone(), 6, ServerId(3), at(0)), None, "the server knows");
    let abort = Cleanup::AbortTransaction { server: ServerId(3), session: [1; 16], number: 6 };
    assert_eq!(pins.begin_transaction(key.clone(), 7, ServerId(4), at(0)), Some(abort));
    pins.commit_transaction(&key, 7, at(0));
    assert_eq!(pins.begin_transaction(key, 8, ServerId(3), at(0)), None, "it was committed");
}

#[test]
fn a_lost_server_takes_its_cursors_and_leaves_a_mark_of_its_transactions() {
    let (mut pins, key) = (Pins::new(PinLimits::SHARED), session("ann", 1));
    pins.note_cursor(cursor("ann", 1, 7), place(3), at(0));
    pins.note_cursor(cursor("ann", 1, 8), place(4), at(0));
    pins.begin_transaction(key.clone(), 5, ServerId(3), at(0));
    pins.on_server_lost(ServerId(3));
    assert_eq!((pins.cursor(&cursor("ann", 1, 7)), pins.cursor(&cursor("ann", 1, 8))), (None, Some(ServerId(4))));
    assert_eq!(pins.transaction(&key, 5), TransactionRoute::Lost);
    assert_eq!(pins.drain().len(), 1, "the other cursor: nothing can be aborted");
}

#[test]
fn a_server_that_its_clients_leave_is_cleaned_up() {
    let (mut pins, key) = (Pins::new(PinLimits::SHARED), session("ann", 1));
    let without = CursorKey { session: None, ..cursor("ann", 1, 9) };
    for (key, server) in [(cursor("ann", 1, 7), 3), (cursor("ann", 1, 8), 4), (without.clone(), 3)] {
        pins.note_cursor(key, place(server), at(0));
    }
    pins.begin_transaction(key.clone(), 5, ServerId(3), at(0));
    pins.begin_transaction(session("bob", 2), 6, ServerId(3), at(0));
    pins.commit_transaction(&session("bob", 2), 6, at(0));
    let cleanups = pins.take_server(ServerId(3));
    assert_eq!(cleanups.len(), 3, "two cursors, and the transaction that is under way: {cleanups:?}");
    assert!(cleanups.iter().all(|cleanup| cleanup.server() == ServerId(3)));
    assert_eq!(pins.take_server(ServerId(3)), []);
    assert_eq!((pins.cursor(&cursor("ann", 1, 7)), pins.cursor(&cursor("ann", 1, 8))), (None, Some(ServerId(4))));
    assert_eq!((pins.cursor(&without), pins.transaction(&key, 5)), (None, TransactionRoute::Lost));
}

#[test]
fn a_cursor_without_a_session_is_no_other_one_after_a_restart() {
    let mut pins = Pins::new(PinLimits::SHARED);
    let key = CursorKey { session: None, ..cursor("ann", 1, 7) };
    pins.note_cursor(key.clone(), place(3), at(0));
    pins.on_server_lost(ServerId(3));
    assert_eq!(pins.note_cursor(key.clone(), place(4), at(0)), [place(4).kill(7)]);
    assert_eq!(pins.cursor(&key), None);
}

#[test]
fn the_pins_of_an_owner_are_bounded_and_counted() {
    let limits = PinLimits { cursors_max: 2, transactions_max: 1, ..PinLimits::CONNECTION };
    let mut pins = Pins::new(limits);
    for id in 1..=2 {
        assert!(pins.has_room_for_cursor(&owner("ann")));
        pins.note_cursor(cursor("ann", 1, id), place(3), at(0));
    }
    assert!(!pins.has_room_for_cursor(&owner("ann")) && pins.has_room_for_cursor(&owner("bob")));
    // Those of commands that were under way then have room, and not without end.
    let last = 2 + UNDER_WAY_MAX as i64;
    for id in 3..=last {
        assert_eq!(pins.note_cursor(cursor("ann", 1, id), place(3), at(0)), []);
    }
    assert_eq!(pins.note_cursor(cursor("ann", 1, last + 1), place(3), at(0)), [place(3).kill(last + 1)], "no room");
    assert_eq!(pins.note_cursor(cursor("ann", 1, 2), place(3), at(0)), [], "one that is there");
    for id in 3..=last {
        assert!(pins.has_full_owner() && !pins.has_room_for_cursor(&owner("ann")));
        pins.end_cursor(&cursor("ann", 1, id), ServerId(3));
    }
    assert!(pins.has_full_owner());
    pins.set_limits(PinLimits { cursors_max: 3, ..limits });
    assert!(!pins.has_full_owner());
    pins.set_limits(limits);
    assert!(pins.has_full_owner());
    pins.end_cursor(&cursor("ann", 1, 1), ServerId(3));
    pins.end_cursor(&cursor("ann", 1, 1), ServerId(3));
    assert!(pins.has_room_for_cursor(&owner("ann")) && !pins.has_full_owner());
    pins.begin_transaction(session("ann", 1), 1, ServerId(3), at(0));
    assert!(pins.has_room_for_transaction(&session("ann", 1)) && !pins.has_room_for_transaction(&session("ann", 2)));
    assert_eq!(pins.end_sessions(&owner("ann"), &[session("ann", 1).session]).len(), 2);
    assert!(pins.is_empty() && pins.has_room_for_transaction(&session("ann", 2)));
}

#[test]
fn a_use_without_an_end_does_not_keep_a_pin_for_ever() {
    let mut pins = Pins::new(PinLimits::SHARED);
    pins.note_cursor(cursor("ann", 1, 7), place(3), at(0));
    assert!(pins.use_cursor(&cursor("ann", 1, 7)));
    pins.begin_transaction(session("ann", 1), 5, ServerId(3), at(0));
    assert!(pins.use_transaction(&session("ann", 1), 5));
    assert_eq!(pins.expire(at(24 * 3_600)), []);
    assert_eq!(pins.expire(at(24 * 3_600 + 600)).len(), 2);
    assert!(pins.is_empty() && pins.holders.is_empty());
}

#[test]
fn nothing_is_left_in_the_index_of_sessions() {
    let shared = Pins::new(PinLimits::SHARED);
    let mut pins = shared.beside(PinLimits::CONNECTION);
    let key = session("ann", 1);
    for id in 1..=3 {
        pins.note_cursor(cursor("ann", 1, id), place(id as u32), at(0));
    }
    pins.begin_transaction(key.clone(), 5, ServerId(3), at(0));
    pins.begin_transaction(key.clone(), 6, ServerId(3), at(0));
    let mut others = shared.beside(PinLimits::CONNECTION);
    others.begin_transaction(key.clone(), 6, ServerId(3), at(0));
    assert!(shared.has_foreign_transaction(&session("bob", 1)) && !shared.has_foreign_transaction(&key));
    assert!(!shared.claim(&session("bob", 1)) && shared.claim(&key));
    shared.release_claim(&key);
    pins.end_cursor(&cursor("ann", 1, 1), ServerId(1));
    pins.on_server_lost(ServerId(2));
    pins.end_transaction(&key, 6);
    assert!(shared.has_foreign_transaction(&session("bob", 1)), "another connection has one");
    drop(others);
    assert!(!shared.has_foreign_transaction(&session("bob", 1)));
    assert!(shared.has_foreign(&owner("bob"), &[[1; 16]]), "a cursor");
    assert_eq!(pins.end_sessions(&owner("ann"), &[[1; 16]]).len(), 1);
    assert!(pins.is_empty() && shared.holders.is_empty());
}

#[test]
fn cleanups_are_commands_of_the_server() {
    let read = |cleanup: &Cleanup, check: &dyn Fn(Command<'_>)| {
        let mut out = Vec::new();
        cleanup.write(&mut out, 9);
        let message = Message::read(&out).expect("a message");
        assert_eq!(message.header.request, 9);
        check(Command::read(message.body).expect("a command"));
    };
    let kill = Cleanup::KillCursor { server: ServerId(1), db: b"a"[..].into(), collection: b"b"[..].into(), id: -7 };
    read(&kill, &|command| {
        assert_eq!((command.name, command.db, command.collection()), (&b"killCursors"[..], &b"a"[..], Some(&b"b"[..])));
        let ids: Vec<_> = command.cursors.unwrap().elements().map(|id| id.unwrap().value.as_integer()).collect();
        assert_eq!(ids, [Some(-7)]);
    });
    read(&Cleanup::AbortTransaction { server: ServerId(1), session: [4; 16], number: 5 }, &|command| {
        assert_eq!(
            (command.name, command.db, command.session),
            (&b"abortTransaction"[..], &b"admin"[..], Some(&[4; 16]))
        );
        assert!(command.is_in_transaction && command.txn_number == Some(5));
    });
}
