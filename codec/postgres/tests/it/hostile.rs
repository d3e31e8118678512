//! Bodies that do not have the form of their type.

use proptest::prelude::*;
use weir_base::error::Culprit;
use weir_postgres_codec::backend::{self, Authentication, ErrorFields};
use weir_postgres_codec::{MessageError, frontend, startup};

use crate::support::{follow, message};

/// Reads a body as every type there is. Nothing may panic, and what reads reads to its end.
fn read_as_everything(body: &[u8]) {
    let _ = frontend::Query::read(body).map(|query| assert_eq!(query.text.len() + 1, body.len()));
    let _ = frontend::Parse::read(body).map(|parse| parse.types.iter().count());
    if let Ok(bind) = frontend::Bind::read(body) {
        assert_eq!(bind.portal.len() + bind.statement.len() + 2 + bind.rest.len(), body.len());
        if let Ok(arguments) = bind.arguments() {
            assert_eq!(arguments.values.iter().count(), arguments.values.len());
            let read: usize = arguments.values.iter().map(|value| 4 + value.map_or(0, <[u8]>::len)).sum();
            assert_eq!(read + 6 + 2 * (arguments.formats.len() + arguments.results.len()), bind.rest.len());
        }
    }
    let _ = frontend::Describe::read(body).map(|describe| assert_eq!(describe.name.len() + 2, body.len()));
    let _ = frontend::Close::read(body).map(|close| assert_eq!(close.name.len() + 2, body.len()));
    let _ = frontend::Execute::read(body).map(|execute| assert_eq!(execute.portal.len() + 5, body.len()));
    let _ = frontend::FunctionCall::read(body).map(|call| assert_eq!(call.values.iter().count(), call.values.len()));
    let _ = frontend::CopyFail::read(body);
    let _ = frontend::Password::read(body);
    let _ = frontend::SaslInitial::read(body);
    let _ = backend::ReadyForQuery::read(body);
    let _ = backend::ParameterStatus::read(body);
    let _ = backend::BackendKeyData::read(body);
    let _ = backend::CommandComplete::read(body).map(|complete| complete.rows());
    let _ = backend::NotificationResponse::read(body);
    let _ = backend::NegotiateProtocolVersion::read(body).map(|negotiate| negotiate.options().count());
    let _ = backend::ParameterDescription::read(body);
    let _ = backend::FunctionCallResponse::read(body);
    let _ = backend::CopyResponse::read(body).map(|copy| assert_eq!(copy.columns.len() * 2 + 3, body.len()));
    let _ = backend::DataRow::read(body).map(|row| assert_eq!(row.iter().count(), row.len()));
    let _ = backend::RowDescription::read(body).map(|rows| assert_eq!(rows.iter().count(), rows.len()));
    let _ = ErrorFields::read(body).map(|fields| (fields.iter().count(), fields.sqlstate(), fields.is_fatal()));
    let _ = Authentication::read(body).map(|request| match request {
        Authentication::Sasl(mechanisms) => mechanisms.iter().count(),
        _ => 0,
    });
}

proptest! {
    #[test]
    fn any_bytes_are_harmless(body in prop::collection::vec(any::<u8>(), 0..64)) {
        read_as_everything(&body);
        let _ = startup::read(&body);
        let _ = follow([&body[..]]);
    }

    /// A message of one type read as another, cut, and with a wrong byte.
    #[test]
    fn any_message_is_harmless_as_any_type(message in message(), cut: prop::sample::Index, at: prop::sample::Index, byte: u8) {
        let body = &message[5..];
        read_as_everything(body);
        if !body.is_empty() {
            read_as_everything(&body[..cut.index(body.len())]);
            let mut wrong = body.to_vec();
            wrong[at.index(body.len())] = byte;
            read_as_everything(&wrong);
        }
    }
}

#[test]
fn p19_a_server_without_a_sqlstate_is_seen() {
    for body in [&b"SERROR\0MHi\0\0"[..], b"\0", b"C\0\0", b"C123\0\0", b"C12\xff45\0\0"] {
        assert_eq!(ErrorFields::read(body).map(ErrorFields::sqlstate), Ok(None), "{body:?}");
    }
    for (body, error) in [
        (&b"SERROR\0"[..], MessageError::Short),
        (b"SERROR", MessageError::String),
        (b"", MessageError::Short),
        (b"\0\0", MessageError::Trailing),
    ] {
        assert_eq!(ErrorFields::read(body).map(|_| ()), Err(error));
    }
}

#[test]
fn p19_unknown_requests_for_authentication_are_named() {
    for code in [1_u32, 4, 6, 13, u32::MAX] {
        assert_eq!(Authentication::read(&code.to_be_bytes()), Err(MessageError::AuthenticationCode(code)));
    }
    assert_eq!(Authentication::read(b"\0\0\0\0x"), Err(MessageError::Trailing));
    assert_eq!(Authentication::read(b"\0\0\0\x05abc"), Err(MessageError::Short));
    assert_eq!(Authentication::read(b"\0\0\0\x0aSCRAM-SHA-256\0"), Err(MessageError::String), "no end of the list");
}

/// The texts are PostgreSQL's own (reference, sections 2.2 and 2.4).
#[test]
fn broken_bodies_of_clients_have_postgresqls_texts() {
    let texts = [
        (frontend::Query::read(b"select 1").unwrap_err(), "invalid string in message"),
        (frontend::Query::read(b"select 1\0x").unwrap_err(), "invalid message format"),
        (frontend::Parse::read(b"a\0select 1").unwrap_err(), "invalid string in message"),
        (frontend::Parse::read(b"a\0select 1\0\0\x02\0\0\0\0").unwrap_err(), "insufficient data left in message"),
        (frontend::Describe::read(b"Xa\0").unwrap_err(), "invalid DESCRIBE message subtype 88"),
        (frontend::Close::read(b"Xa\0").unwrap_err(), "invalid CLOSE message subtype 88"),
        (frontend::Execute::read(b"a\0\0\0").unwrap_err(), "insufficient data left in message"),
        (frontend::Password::read(b"a\0b\0").unwrap_err(), "invalid password packet size"),
        (frontend::SaslInitial::read(b"M\0\0\0\0\x05ab").unwrap_err(), "insufficient data left in message"),
    ];
    for (error, text) in texts {
        assert_eq!((error.text(), error.sqlstate()), (text.into(), "08P01"));
        let violation = error.violation(Culprit::Client);
        assert!(violation.reason.starts_with("postgres_") && !violation.text.is_empty());
    }
}

/// P7: a length is compared with the bytes that are there; nothing is added to it.
#[test]
fn p7_lengths_that_lie_are_short() {
    for length in [5_i32, i32::MAX, -2, i32::MIN] {
        let mut body = b"\0\x01".to_vec();
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(b"abcd");
        assert_eq!(backend::DataRow::read(&body).map(|_| ()), Err(MessageError::Short), "{length}");
    }
    assert_eq!(backend::DataRow::read(b"\xff\xff").map(|_| ()), Err(MessageError::Short));
    assert_eq!(frontend::Bind::read(b"\0\0\xff\xff\0\0").unwrap().arguments().map(|_| ()), Err(MessageError::Short));
}
