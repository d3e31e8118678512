//! Any bytes as the first packet of a PostgreSQL client, and as the messages of either side.

use weir_postgres_codec::frame::{Framer, HEAD_BYTES};
use weir_postgres_codec::startup::{self, Startup};
use weir_postgres_codec::{FrameError, backend, frontend};

use crate::pieces::{Followed, follow};

/// A packet is read as soon as its last byte is there and not before, bytes behind it change nothing, and it is written as it was read.
pub fn postgres_startup(data: &[u8]) {
    let longer = [data, b"\0more"].concat();
    match startup::read(data) {
        Ok(None) => assert!(data.len() < 10_004),
        Err(error) => {
            assert_eq!(startup::read(&longer), Err(error));
            assert_eq!(error.is_silent(), error.sqlstate().is_none());
            assert!(!error.text().is_empty() && !error.reason().is_empty());
        }
        Ok(Some((packet, bytes))) => {
            assert!((8..=10_004).contains(&bytes) && bytes <= data.len());
            assert_eq!(startup::read(&longer), Ok(Some((packet, bytes))));
            for cut in 0..bytes {
                assert_eq!(startup::read(&data[..cut]), Ok(None), "cut at {cut}");
            }
            assert_eq!(written(packet), &data[..bytes]);
        }
    }
}

/// The packet as the encoders write it.
fn written(packet: Startup<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    match packet {
        Startup::Ssl => frontend::ssl_request(&mut out),
        Startup::Gss => frontend::gss_request(&mut out),
        Startup::Cancel { pid, secret } => frontend::cancel_request(&mut out, pid, secret),
        Startup::Session { version, parameters } => {
            frontend::startup(&mut out, version, parameters.iter());
            for name in [&b"user"[..], b"database"] {
                let last = parameters.iter().filter(|(known, _)| *known == name).last();
                assert_eq!(parameters.get(name), last.map(|(_, value)| value));
            }
        }
    }
    out
}

/// The messages of a stream do not depend on where it is cut, only the beginning of one head is held back, and each body is read by
/// every view without harm; what a view reads is written as it was.
pub fn postgres_messages(data: &[u8]) {
    let [choice, stream @ ..] = data else { return };
    let whole = followed(stream, stream.len().max(1));
    for piece in [1, 2, 7, 1 + usize::from(*choice)] {
        assert_eq!(followed(stream, piece), whole, "pieces of {piece}");
    }
    let mut at = 0;
    for end in whole.ends {
        let message = &stream[at..end];
        client(message);
        server(message);
        at = end;
    }
}

fn followed(stream: &[u8], piece: usize) -> Followed<FrameError> {
    let mut framer = Framer::default();
    let next = |input: &[u8]| Ok(framer.next(input)?.map(|piece| (piece.bytes, piece.is_end)));
    follow(stream, piece, HEAD_BYTES, next)
}

/// A message that `write` produces is this one.
fn assert_written(message: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
    let mut out = Vec::new();
    write(&mut out);
    assert_eq!(out, message);
}

/// As a message of a client. Its type may be any: only the body is read.
fn client(message: &[u8]) {
    let (head, body) = message.split_at(HEAD_BYTES);
    let as_type = |tag: u8| [&[tag], &head[1..], body].concat();
    if let Ok(query) = frontend::Query::read(body) {
        assert_written(&as_type(b'Q'), |out| frontend::query(out, query.text));
    }
    if let Ok(parse) = frontend::Parse::read(body) {
        let types: Vec<u32> = parse.types.iter().collect();
        assert_written(&as_type(b'P'), |out| frontend::parse(out, parse.name, parse.text, &types));
        assert_written(&as_type(b'P'), |out| frontend::parse_renamed(out, parse.name, parse.rest));
    }
    if let Ok(bind) = frontend::Bind::read(body) {
        assert_written(&as_type(b'B'), |out| frontend::bind_renamed(out, bind.portal, bind.statement, bind.rest));
        if let Ok(arguments) = bind.arguments() {
            assert_eq!(arguments.values.iter().count(), arguments.values.len());
        }
    }
    if let Ok(describe) = frontend::Describe::read(body) {
        assert_written(&as_type(b'D'), |out| frontend::describe(out, describe.kind, describe.name));
        assert_eq!(frontend::Close::read(body).map(|close| close.name), Ok(describe.name));
    }
    if let Ok(execute) = frontend::Execute::read(body) {
        assert_written(&as_type(b'E'), |out| frontend::execute(out, execute.portal, execute.rows));
    }
    if let Ok(call) = frontend::FunctionCall::read(body) {
        assert_eq!(call.values.iter().count(), call.values.len());
    }
    if let Ok(fail) = frontend::CopyFail::read(body) {
        assert_written(&as_type(b'f'), |out| frontend::copy_fail(out, fail.text));
    }
    if let Ok(password) = frontend::Password::read(body) {
        assert_written(&as_type(b'p'), |out| frontend::password(out, password.0));
    }
    if let Ok(initial) = frontend::SaslInitial::read(body) {
        assert_written(&as_type(b'p'), |out| frontend::sasl_initial(out, initial.mechanism, initial.response));
    }
}

/// As a message of a server.
fn server(message: &[u8]) {
    let (head, body) = message.split_at(HEAD_BYTES);
    let as_type = |tag: u8| [&[tag], &head[1..], body].concat();
    if let Ok(row) = backend::DataRow::read(body) {
        assert_eq!(row.iter().count(), row.len());
        assert_written(&as_type(b'D'), |out| backend::data_row(out, row.iter()));
    }
    if let Ok(columns) = backend::RowDescription::read(body) {
        assert_written(&as_type(b'T'), |out| backend::row_description(out, columns.iter()));
    }
    if let Ok(fields) = backend::ErrorFields::read(body) {
        let read: usize = fields.iter().map(|(_, text)| 2 + text.len()).sum();
        assert_eq!(read + 1, body.len());
        assert!(fields.sqlstate().is_none_or(|code| code.len() == 5));
    }
    if let Ok(ready) = backend::ReadyForQuery::read(body) {
        assert_written(&as_type(b'Z'), |out| backend::ready_for_query(out, ready.0));
    }
    if let Ok(status) = backend::ParameterStatus::read(body) {
        assert_written(&as_type(b'S'), |out| backend::parameter_status(out, status.name, status.value));
    }
    if let Ok(key) = backend::BackendKeyData::read(body) {
        assert_written(&as_type(b'K'), |out| backend::backend_key_data(out, key.pid, key.secret));
    }
    if let Ok(complete) = backend::CommandComplete::read(body) {
        assert_written(&as_type(b'C'), |out| backend::command_complete(out, complete.tag));
        complete.rows();
    }
    if let Ok(found) = backend::NotificationResponse::read(body) {
        assert_written(&as_type(b'A'), |out| backend::notification(out, found.pid, found.channel, found.payload));
    }
    if let Ok(negotiate) = backend::NegotiateProtocolVersion::read(body) {
        assert_written(&as_type(b'v'), |out| {
            backend::negotiate_protocol_version(out, negotiate.version, negotiate.options());
        });
    }
    if let Ok(types) = backend::ParameterDescription::read(body) {
        assert_written(&as_type(b't'), |out| backend::parameter_description(out, types.types.iter()));
    }
    if let Ok(response) = backend::FunctionCallResponse::read(body) {
        assert_written(&as_type(b'V'), |out| backend::function_call_response(out, response.value));
    }
    let _ = backend::CopyResponse::read(body).map(|copy| assert_eq!(3 + 2 * copy.columns.len(), body.len()));
    if let Ok(backend::Authentication::Sasl(mechanisms)) = backend::Authentication::read(body) {
        assert_written(&as_type(b'R'), |out| backend::authentication_sasl(out, mechanisms.iter()));
    }
}
