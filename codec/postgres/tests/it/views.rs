//! Views read back what encoders wrote.

use proptest::prelude::*;
use weir_postgres_codec::TransactionStatus;
use weir_postgres_codec::backend::{self, Authentication, Column, ErrorFields, ErrorReport};
use weir_postgres_codec::frame::HEAD_BYTES;
use weir_postgres_codec::frontend::{self, Kind};

use crate::support::{borrowed, text, values};

fn encoded(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn body(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    encoded(write).split_off(HEAD_BYTES)
}

proptest! {
    #[test]
    fn statements_read_back_as_sent(name in text(), query in text(), types in prop::collection::vec(any::<u32>(), 0..5)) {
        let sent = encoded(|out| frontend::parse(out, &name, &query, &types));
        let parse = frontend::Parse::read(&sent[HEAD_BYTES..]).unwrap();
        prop_assert_eq!((parse.name, parse.text), (&name[..], &query[..]));
        prop_assert_eq!(parse.types.iter().collect::<Vec<_>>(), types);
        let renamed = encoded(|out| frontend::parse_renamed(out, b"weir_1", parse.rest));
        let again = frontend::Parse::read(&renamed[HEAD_BYTES..]).unwrap();
        prop_assert_eq!((again.name, again.text, again.rest), (&b"weir_1"[..], parse.text, parse.rest));
        prop_assert_eq!(encoded(|out| frontend::parse_renamed(out, &name, parse.rest)), sent);
    }

    #[test]
    fn parameters_read_back_as_sent(portal in text(), statement in text(), parameters in values()) {
        let sent = encoded(|out| frontend::bind(out, &portal, &statement, borrowed(&parameters)));
        let bind = frontend::Bind::read(&sent[HEAD_BYTES..]).unwrap();
        prop_assert_eq!((bind.portal, bind.statement), (&portal[..], &statement[..]));
        let arguments = bind.arguments().unwrap();
        prop_assert!(arguments.formats.is_empty() && arguments.results.is_empty());
        prop_assert_eq!(arguments.values.len(), parameters.len());
        prop_assert_eq!(arguments.values.iter().collect::<Vec<_>>(), borrowed(&parameters).collect::<Vec<_>>());
        let renamed = encoded(|out| frontend::bind_renamed(out, &portal, b"weir_1", bind.rest));
        let again = frontend::Bind::read(&renamed[HEAD_BYTES..]).unwrap();
        prop_assert_eq!((again.portal, again.statement, again.rest), (bind.portal, &b"weir_1"[..], bind.rest));
    }

    #[test]
    fn rows_read_back_as_sent(row in values(), name in text(), oid: u32) {
        let sent = body(|out| backend::data_row(out, borrowed(&row)));
        let found = backend::DataRow::read(&sent).unwrap();
        prop_assert_eq!(found.len(), row.len());
        prop_assert_eq!(found.iter().collect::<Vec<_>>(), borrowed(&row).collect::<Vec<_>>());
        let columns = [Column::text(&name, oid, -1), Column { format: 1, attribute: -2, ..Column::text(b"b", 23, 4) }];
        let sent = body(|out| backend::row_description(out, columns));
        let found = backend::RowDescription::read(&sent).unwrap();
        prop_assert_eq!((found.len(), found.iter().collect::<Vec<_>>()), (2, columns.to_vec()));
    }

    #[test]
    fn errors_read_back_as_sent(message in text(), detail in text(), hint in text()) {
        let report = ErrorReport::fatal("57P01", &message).with_detail(&detail).with_hint(&hint);
        let sent = body(|out| backend::error(out, &report));
        let fields = ErrorFields::read(&sent).unwrap();
        prop_assert_eq!((fields.sqlstate(), fields.severity()), (Some("57P01"), Some(&b"FATAL"[..])));
        prop_assert_eq!((fields.message(), fields.get(b'D'), fields.get(b'H')), (Some(&message[..]), Some(&detail[..]), Some(&hint[..])));
        prop_assert!(fields.is_fatal());
        prop_assert_eq!(fields.iter().count(), 6);
    }
}

#[test]
fn small_messages_of_clients_read_back_as_sent() {
    let sent = body(|out| frontend::describe(out, Kind::Portal, b"p"));
    assert_eq!(frontend::Describe::read(&sent), Ok(frontend::Describe { kind: Kind::Portal, name: b"p" }));
    let sent = body(|out| frontend::close(out, Kind::Statement, b""));
    assert_eq!(frontend::Close::read(&sent), Ok(frontend::Close { kind: Kind::Statement, name: b"" }));
    let sent = body(|out| frontend::execute(out, b"c", 50));
    assert_eq!(frontend::Execute::read(&sent), Ok(frontend::Execute { portal: b"c", rows: 50 }));
    let sent = body(|out| frontend::copy_fail(out, b"no"));
    assert_eq!(frontend::CopyFail::read(&sent), Ok(frontend::CopyFail { text: b"no" }));
    let sent = body(|out| frontend::function_call(out, 952, [Some(&b"\0\0\0\x07"[..]), None]));
    let call = frontend::FunctionCall::read(&sent).unwrap();
    assert_eq!((call.function, call.formats.of(1), call.result), (952, 1, 1));
    assert_eq!(call.values.iter().collect::<Vec<_>>(), [Some(&b"\0\0\0\x07"[..]), None]);
    for response in [None, Some(&b""[..]), Some(b"n,,n=,r=x")] {
        let sent = body(|out| frontend::sasl_initial(out, b"SCRAM-SHA-256", response));
        assert_eq!(
            frontend::SaslInitial::read(&sent),
            Ok(frontend::SaslInitial { mechanism: b"SCRAM-SHA-256", response })
        );
    }
    let sent = body(|out| frontend::password(out, b"secret"));
    let password = frontend::Password::read(&sent).unwrap();
    assert_eq!((password.0, format!("{password:?}")), (&b"secret"[..], "Password(..)".to_owned()));
}

#[test]
fn small_messages_of_servers_read_back_as_sent() {
    for status in [TransactionStatus::Idle, TransactionStatus::InBlock, TransactionStatus::Failed] {
        let sent = body(|out| backend::ready_for_query(out, status));
        assert_eq!(backend::ReadyForQuery::read(&sent), Ok(backend::ReadyForQuery(status)));
    }
    let sent = body(|out| backend::parameter_status(out, b"TimeZone", b"UTC"));
    let status = backend::ParameterStatus { name: b"TimeZone", value: b"UTC" };
    assert_eq!(backend::ParameterStatus::read(&sent), Ok(status));
    let sent = body(|out| backend::backend_key_data(out, 7, &[9; 32]));
    assert_eq!(backend::BackendKeyData::read(&sent), Ok(backend::BackendKeyData { pid: 7, secret: &[9; 32] }));
    for (tag, rows) in [(&b"INSERT 0 12"[..], Some(12)), (b"SELECT 3", Some(3)), (b"BEGIN", None), (b"", None)] {
        let sent = body(|out| backend::command_complete(out, tag));
        let complete = backend::CommandComplete::read(&sent).unwrap();
        assert_eq!((complete.tag, complete.rows()), (tag, rows));
    }
    let sent = body(|out| backend::notification(out, 7, b"channel", b"text"));
    let notification = backend::NotificationResponse { pid: 7, channel: b"channel", payload: b"text" };
    assert_eq!(backend::NotificationResponse::read(&sent), Ok(notification));
    let sent = body(|out| {
        backend::negotiate_protocol_version(
            out,
            weir_postgres_codec::Version::V3_0,
            [&b"_pq_.a"[..], b"_pq_.b"].into_iter(),
        )
    });
    let negotiate = backend::NegotiateProtocolVersion::read(&sent).unwrap();
    assert_eq!(negotiate.version, weir_postgres_codec::Version::V3_0);
    assert_eq!(negotiate.options().collect::<Vec<_>>(), [b"_pq_.a", b"_pq_.b"]);
    let sent = body(|out| backend::parameter_description(out, [23, 25]));
    assert_eq!(backend::ParameterDescription::read(&sent).unwrap().types.iter().collect::<Vec<_>>(), [23, 25]);
    let sent = body(|out| backend::function_call_response(out, Some(b"x")));
    assert_eq!(backend::FunctionCallResponse::read(&sent).unwrap().value, Some(&b"x"[..]));
    let sent = body(|out| backend::copy_in(out, true, 2));
    let copy = backend::CopyResponse::read(&sent).unwrap();
    assert_eq!((copy.is_binary, copy.columns.iter().collect::<Vec<_>>()), (true, vec![1, 1]));
}

#[test]
fn requests_for_authentication_read_back_as_sent() {
    let read = |write: fn(&mut Vec<u8>), expected: Authentication<'_>| {
        assert_eq!(Authentication::read(&body(write)), Ok(expected));
    };
    read(backend::authentication_ok, Authentication::Ok);
    read(backend::authentication_cleartext, Authentication::CleartextPassword);
    read(|out| backend::authentication_md5(out, *b"salt"), Authentication::Md5Password { salt: *b"salt" });
    read(|out| backend::authentication_sasl_continue(out, b"r=1"), Authentication::SaslContinue(b"r=1"));
    read(|out| backend::authentication_sasl_final(out, b"v=1"), Authentication::SaslFinal(b"v=1"));
    let sent = body(|out| backend::authentication_sasl(out, [&b"SCRAM-SHA-256-PLUS"[..], b"SCRAM-SHA-256"]));
    let Ok(Authentication::Sasl(mechanisms)) = Authentication::read(&sent) else { panic!("SASL") };
    assert_eq!(mechanisms.iter().collect::<Vec<_>>(), [&b"SCRAM-SHA-256-PLUS"[..], b"SCRAM-SHA-256"]);
}

/// Text of a client inside a message of ours cannot start another field or another message.
#[test]
fn a_nul_ends_a_text() {
    let sent = body(|out| backend::error(out, &ErrorReport::error("28P01", b"user \"a\0CXX000\"")));
    let fields = ErrorFields::read(&sent).unwrap();
    assert_eq!((fields.sqlstate(), fields.message()), (Some("28P01"), Some(&b"user \"a"[..])));
    let sent = body(|out| frontend::query(out, b"select 1\0drop"));
    assert_eq!(frontend::Query::read(&sent).unwrap().text, b"select 1");
    let sent = encoded(|out| frontend::bind_renamed(out, b"", b"a\0b", b"\0\0\0\0\0\0"));
    assert_eq!(frontend::Bind::read(&sent[HEAD_BYTES..]).unwrap().statement, b"a");
}
