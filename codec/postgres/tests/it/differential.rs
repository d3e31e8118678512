//! The same messages, written and read by the crate `postgres-protocol`, which is a client's codec: it writes what clients send and
//! reads what servers send.

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend as theirs;
use proptest::prelude::*;
use weir_postgres_codec::frame::{HEAD_BYTES, head};
use weir_postgres_codec::frontend::{self, Kind};
use weir_postgres_codec::{Version, backend};

use crate::support::{borrowed, server_message, text, values};

/// Both encoders write the same bytes.
fn assert_same(ours: impl FnOnce(&mut Vec<u8>), other: impl FnOnce(&mut BytesMut) -> std::io::Result<()>) {
    let (mut our_bytes, mut their_bytes) = (Vec::new(), BytesMut::new());
    ours(&mut our_bytes);
    other(&mut their_bytes).expect("it can be written");
    assert_eq!(our_bytes, their_bytes);
}

/// Their encoders take text; ours take bytes.
fn utf8() -> impl Strategy<Value = String> {
    "[a-z0-9 _$'\"äß]{0,20}"
}

fn nulls(body: Result<(), theirs::BindError>) -> std::io::Result<()> {
    body.map_err(|_| std::io::ErrorKind::InvalidData.into())
}

proptest! {
    #[test]
    fn messages_of_clients_are_the_same_bytes(one in utf8(), two in utf8(), number: i32, parameters in values()) {
        let (a, b) = (one.as_bytes(), two.as_bytes());
        assert_same(|out| frontend::query(out, a), |out| theirs::query(&one, out));
        let types = [23, number as u32];
        assert_same(|out| frontend::parse(out, a, b, &types), |out| theirs::parse(&one, &two, types, out));
        for (kind, variant) in [(Kind::Statement, b'S'), (Kind::Portal, b'P')] {
            assert_same(|out| frontend::describe(out, kind, a), |out| theirs::describe(variant, &one, out));
            assert_same(|out| frontend::close(out, kind, a), |out| theirs::close(variant, &one, out));
        }
        assert_same(|out| frontend::execute(out, a, number), |out| theirs::execute(&one, number, out));
        assert_same(|out| frontend::copy_fail(out, a), |out| theirs::copy_fail(&one, out));
        assert_same(|out| frontend::password(out, a), |out| theirs::password_message(a, out));
        assert_same(|out| frontend::sasl_response(out, a), |out| theirs::sasl_response(a, out));
        assert_same(|out| frontend::sasl_initial(out, a, Some(b)), |out| theirs::sasl_initial_response(&one, b, out));
        let write = |value: Option<Vec<u8>>, out: &mut BytesMut| Ok(match value {
            None => IsNull::Yes,
            Some(bytes) => { out.extend_from_slice(&bytes); IsNull::No }
        });
        assert_same(|out| frontend::bind(out, a, b, borrowed(&parameters)),
            |out| nulls(theirs::bind(&one, &two, None::<i16>, parameters.clone(), write, None::<i16>, out)));
    }

    #[test]
    fn messages_of_servers_are_read_alike(message in server_message()) {
        let found = Message::parse(&mut BytesMut::from(&message[..]));
        // Two are not known to them.
        if matches!(message[0], backend::tag::FUNCTION_CALL | backend::tag::NEGOTIATE_PROTOCOL_VERSION) {
            return Ok(());
        }
        let found = found.expect("they read it").expect("it is whole");
        compare(message[0], &message[HEAD_BYTES..], &found);
    }

    /// Wrong bytes: what they refuse in a body is refused here too, or is a difference with a name.
    #[test]
    fn heads_are_read_alike(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
        let theirs = postgres_protocol::message::backend::Header::parse(&bytes);
        match (head(&bytes), theirs) {
            (Ok(None), Ok(None)) => {}
            (Ok(Some(ours)), Ok(Some(theirs))) => {
                prop_assert_eq!((ours.tag, ours.body as i32 + 4), (theirs.tag(), theirs.len()));
            }
            // They have no upper bound.
            (Err(error), Ok(Some(theirs))) => prop_assert!(theirs.len() > 0x3fff_ffff && error.claimed == theirs.len()),
            (Err(error), Err(_)) => prop_assert!(error.claimed < 4),
            (ours, theirs) => prop_assert!(false, "{:?} but {:?}", ours, theirs.map(|_| ())),
        }
    }

    #[test]
    fn startup_packets_are_the_same_bytes(user in "[a-z]{1,9}", value in utf8(), pid: i32, secret: i32) {
        let pairs = [("user", &user[..]), ("application_name", &value[..])];
        assert_same(
            |out| frontend::startup(out, Version::V3_0, pairs.map(|(name, value)| (name.as_bytes(), value.as_bytes()))),
            |out| theirs::startup_message(pairs, out),
        );
        assert_same(
            |out| frontend::cancel_request(out, pid as u32, &secret.to_be_bytes()),
            |out| { theirs::cancel_request(pid, secret, out); Ok(()) },
        );
    }

    #[test]
    fn texts_with_any_bytes_are_rows_to_them(row in values(), name in text()) {
        let mut message = Vec::new();
        backend::data_row(&mut message, borrowed(&row));
        backend::command_complete(&mut message, &name);
        let mut buffer = BytesMut::from(&message[..]);
        let Ok(Some(Message::DataRow(body))) = Message::parse(&mut buffer) else { panic!("a row") };
        let ranges: Vec<_> = body.ranges().collect().unwrap();
        let found: Vec<_> = ranges.into_iter().map(|range| range.map(|range| &body.buffer()[range])).collect();
        prop_assert_eq!(found, borrowed(&row).collect::<Vec<_>>());
        prop_assert!(matches!(Message::parse(&mut buffer), Ok(Some(Message::CommandComplete(_)))));
    }
}

#[test]
fn messages_without_a_body_are_the_same_bytes() {
    assert_same(frontend::sync, |out| {
        theirs::sync(out);
        Ok(())
    });
    assert_same(frontend::flush, |out| {
        theirs::flush(out);
        Ok(())
    });
    assert_same(frontend::terminate, |out| {
        theirs::terminate(out);
        Ok(())
    });
    assert_same(frontend::copy_done, |out| {
        theirs::copy_done(out);
        Ok(())
    });
    assert_same(frontend::ssl_request, |out| {
        theirs::ssl_request(out);
        Ok(())
    });
}

/// The view finds the same values in a body as they do.
fn compare(tag: u8, body: &[u8], found: &Message) {
    match found {
        Message::AuthenticationOk => assert_eq!(authentication(body), backend::Authentication::Ok),
        Message::AuthenticationMd5Password(theirs) => {
            assert_eq!(authentication(body), backend::Authentication::Md5Password { salt: theirs.salt() });
        }
        Message::AuthenticationSasl(theirs) => {
            let backend::Authentication::Sasl(ours) = authentication(body) else { panic!("SASL") };
            let names: Vec<_> = theirs.mechanisms().map(|name| Ok(name.as_bytes())).collect().unwrap();
            assert_eq!(ours.iter().collect::<Vec<_>>(), names);
        }
        Message::AuthenticationSaslContinue(theirs) => {
            assert_eq!(authentication(body), backend::Authentication::SaslContinue(theirs.data()));
        }
        Message::BackendKeyData(theirs) => {
            let ours = backend::BackendKeyData::read(body).unwrap();
            assert_eq!((ours.pid as i32, ours.secret), (theirs.process_id(), &theirs.secret_key().to_be_bytes()[..]));
        }
        Message::ReadyForQuery(theirs) => {
            assert_eq!(backend::ReadyForQuery::read(body).unwrap().0.byte(), theirs.status());
        }
        Message::ParameterDescription(theirs) => {
            let ours = backend::ParameterDescription::read(body).unwrap();
            assert_eq!(ours.types.iter().collect::<Vec<_>>(), theirs.parameters().collect::<Vec<_>>().unwrap());
        }
        Message::DataRow(theirs) => {
            let ours = backend::DataRow::read(body).unwrap();
            let ranges: Vec<_> = theirs.ranges().collect().unwrap();
            let values: Vec<_> = ranges.into_iter().map(|range| range.map(|range| &theirs.buffer()[range])).collect();
            assert_eq!(ours.iter().collect::<Vec<_>>(), values);
        }
        Message::CopyOutResponse(theirs) => {
            let ours = backend::CopyResponse::read(body).unwrap();
            assert_eq!(u8::from(ours.is_binary), theirs.format());
            let formats: Vec<_> = theirs.column_formats().map(|format| Ok(format as i16)).collect().unwrap();
            assert_eq!(ours.columns.iter().collect::<Vec<_>>(), formats);
        }
        Message::CopyData(theirs) => assert_eq!(body, theirs.data()),
        Message::RowDescription(theirs) => compare_columns(body, theirs),
        Message::ErrorResponse(theirs) => compare_fields(body, theirs.fields()),
        Message::NoticeResponse(theirs) => compare_fields(body, theirs.fields()),
        Message::CommandComplete(theirs) => {
            let ours = backend::CommandComplete::read(body).unwrap();
            assert!(theirs.tag().is_ok_and(|tag| tag.as_bytes() == ours.tag) || std::str::from_utf8(ours.tag).is_err());
        }
        // Their names must be UTF-8, or the body has nothing to compare.
        Message::ParameterStatus(theirs) => {
            let ours = backend::ParameterStatus::read(body).unwrap();
            assert!(
                theirs.name().is_ok_and(|name| name.as_bytes() == ours.name) || std::str::from_utf8(ours.name).is_err()
            );
        }
        Message::NotificationResponse(theirs) => {
            let ours = backend::NotificationResponse::read(body).unwrap();
            assert_eq!(ours.pid as i32, theirs.process_id());
        }
        Message::EmptyQueryResponse | Message::ParseComplete | Message::NoData => assert!(body.is_empty()),
        _ => panic!("no comparison for {:?}", char::from(tag)),
    }
}

fn authentication(body: &[u8]) -> backend::Authentication<'_> {
    backend::Authentication::read(body).expect("they read it")
}

fn compare_columns(body: &[u8], theirs: &postgres_protocol::message::backend::RowDescriptionBody) {
    let ours = backend::RowDescription::read(body).unwrap();
    let mut fields = theirs.fields();
    for column in ours.iter() {
        // A name that is not UTF-8 ends their list.
        let Ok(Some(field)) = fields.next() else {
            assert!(std::str::from_utf8(column.name).is_err());
            return;
        };
        assert_eq!((column.name, column.table_oid), (field.name().as_bytes(), field.table_oid()));
        assert_eq!((column.attribute, column.type_oid), (field.column_id(), field.type_oid()));
        assert_eq!((column.type_size, column.type_modifier), (field.type_size(), field.type_modifier()));
        assert_eq!(column.format, field.format());
    }
}

fn compare_fields(body: &[u8], theirs: postgres_protocol::message::backend::ErrorFields<'_>) {
    let ours = backend::ErrorFields::read(body).unwrap();
    let theirs: Vec<_> = theirs.map(|field| Ok((field.type_(), field.value_bytes().to_vec()))).collect().unwrap();
    assert_eq!(ours.iter().map(|(letter, text)| (letter, text.to_vec())).collect::<Vec<_>>(), theirs);
}
