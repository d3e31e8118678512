//! K5: texts in an encoding in which a byte of ASCII can be the second of a character.

use weir_tests::gateway::Gateway;
use weir_tests::postgres::torture::wire::{SYNC, V3_0, Wire, message, query};
use weir_tests::postgres::{Major, Postgres, USER};

use super::pins;
use crate::gateway::before;
use crate::hostile::{login, value};

/// The bytes 0x83 0x5C are one character in SJIS, BIG5 (as 0xA7 0x5C), GBK and GB18030. `statement` runs behind it.
fn two_readings(first: u8, statement: &str) -> Vec<u8> {
    let text = [b"select E'", &[first, b'\\'][..], b"'; ", statement.as_bytes(), b"; --'\0"].concat();
    message(b'Q', &text)
}

fn client(gateway: &Gateway, user: &str, encoding: &str) -> Wire {
    let words = ["user", user, "database", USER, "client_encoding", encoding];
    Wire::connect_with(gateway.address.tcp().port(), V3_0, &words).expect("a login")
}

#[test]
fn k5_a_text_that_the_server_reads_in_another_way_leaves_nothing_behind() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 1"));
    let fresh = value(&mut login(&gateway), "show search_path");
    for (encoding, first) in [("SJIS", 0x83), ("BIG5", 0xa7), ("GBK", 0x83), ("GB18030", 0x83)] {
        for is_set in [false, true] {
            let mut attacker = client(&gateway, USER, if is_set { "UTF8" } else { encoding });
            let set = if is_set { query(&format!("set client_encoding = '{encoding}'")) } else { query("select 1") };
            // Both at once: the second is there before the reply to the first.
            attacker.send(&[set, two_readings(first, "set search_path = evil")].concat()).expect("sent");
            attacker.reply().expect("a reply");
            let reply = attacker.reply().expect("a reply");
            assert_eq!(
                reply.tags,
                ["SELECT 1", "SET"],
                "{encoding}: the server reads two statements, {:?}",
                reply.errors
            );
            assert!(pins(&gateway).iter().any(|reason| reason.contains("opaque")), "{encoding}");
            assert_eq!(value(&mut attacker, "show search_path"), "evil", "its own client keeps it");
            attacker.leave(0);
            assert_eq!(value(&mut login(&gateway), "show search_path"), fresh, "{encoding}, by SET: {is_set}");
        }
    }
    // A client of such an encoding shares servers as long as it writes ASCII.
    let mut honest = client(&gateway, USER, "SJIS");
    assert_eq!(value(&mut honest, "select E'a\\\\b'"), "a\\b");
    assert_eq!(value(&mut login(&gateway), "select 7"), "7");
}

#[test]
fn rules_refuse_a_text_that_they_cannot_read() {
    const RULES: &str = "read_only_users = [\"reader\"]\n[[listener.postgres.rule]]\nname = \"secret\"\naction = \"deny\"\n\
        tables = [\"secret\"]\n";
    let server = Postgres::start(Major::Fifteen);
    server.sql_in(USER, "create table secret (n int); create table notes (n int); grant all on secret, notes to app");
    server.sql_in(USER, "insert into secret values (7)");
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), RULES, "pool_size = 1"));
    for (user, statement) in [(USER, "select n from secret"), ("reader", "insert into notes values (1)")] {
        for encoding in ["SJIS", "UTF8"] {
            let mut client = client(&gateway, user, encoding);
            if encoding == "UTF8" {
                client.send(&query("set client_encoding = 'SJIS'")).expect("sent");
            }
            client.send(&two_readings(0x83, statement)).expect("sent");
            if encoding == "UTF8" {
                client.reply().expect("a reply");
            }
            let reply = client.reply().expect("a reply");
            assert_eq!((reply.state(), reply.rows.len()), ("42501", 0), "{user} {encoding}: {:?}", reply.errors);
            // The same by Parse.
            let text = [b"s\0select E'", &[0x83, b'\\'][..], b"', n from secret --'\0\0\0"].concat();
            client.send(&[message(b'P', &text), SYNC.to_vec()].concat()).expect("sent");
            assert_eq!(client.reply().expect("a reply").state(), "42501", "{user} {encoding}");
            assert_eq!(value(&mut client, "select 'ascii'"), "ascii");
        }
    }
    assert_eq!(server.sql_in(USER, "select count(*) from notes"), "0");
}

/// A statement that was prepared in another encoding, and values of parameters.
#[test]
fn k5_what_a_client_keeps_in_one_encoding_is_not_read_in_another() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 1"));
    let mut sjis = client(&gateway, USER, "SJIS");
    let mut utf8 = client(&gateway, USER, "UTF8");
    assert_eq!(value(&mut utf8, "set weir.mark = 'é\u{3083}'"), "");
    for _ in 0..3 {
        assert_eq!(value(&mut sjis, "show client_encoding"), "SJIS");
        assert_eq!(value(&mut utf8, "select current_setting('weir.mark') || 'ß'"), "é\u{3083}ß");
    }
}
