//! Encoders of what a client sends. Nothing here fails: callers own the size of `out`.

use super::{Kind, tag};
use crate::startup::Version;
use crate::write::{count, counted, head, message, packet, string, until_nul, value, values};

/// The packet that starts a session. `parameters` are names and values; a name is not empty.
pub fn startup<'a>(out: &mut Vec<u8>, version: Version, parameters: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) {
    packet(out, |out| {
        out.extend_from_slice(&version.code().to_be_bytes());
        for (name, value) in parameters {
            debug_assert!(!until_nul(name).is_empty(), "an empty name ends the list");
            string(out, name);
            string(out, value);
        }
        out.push(0);
    });
}

/// The packet that cancels the query of the connection with this key.
pub fn cancel_request(out: &mut Vec<u8>, pid: u32, secret: &[u8]) {
    packet(out, |out| {
        out.extend_from_slice(&Version::CANCEL.code().to_be_bytes());
        out.extend_from_slice(&pid.to_be_bytes());
        out.extend_from_slice(secret);
    });
}

/// The packet that requests TLS.
pub fn ssl_request(out: &mut Vec<u8>) {
    packet(out, |out| out.extend_from_slice(&Version::SSL.code().to_be_bytes()));
}

/// The packet that requests encryption by GSSAPI.
pub fn gss_request(out: &mut Vec<u8>) {
    packet(out, |out| out.extend_from_slice(&Version::GSS.code().to_be_bytes()));
}

/// Query.
#[inline]
pub fn query(out: &mut Vec<u8>, text: &[u8]) {
    message(out, tag::QUERY, |out| string(out, text));
}

/// Parse with the types of the first parameters; an empty name for the unnamed statement.
pub fn parse(out: &mut Vec<u8>, name: &[u8], text: &[u8], types: &[u32]) {
    message(out, tag::PARSE, |out| {
        string(out, name);
        string(out, text);
        counted(out, types, |out, oid| out.extend_from_slice(&oid.to_be_bytes()));
    });
}

/// Parse with another name: `rest` is that of the [`super::Parse`] it is made from.
pub fn parse_renamed(out: &mut Vec<u8>, name: &[u8], rest: &[u8]) {
    parse_head(out, name, rest.len());
    out.extend_from_slice(rest);
}

/// The beginning of a Parse; the caller writes `rest` more bytes: text, NUL, types.
pub fn parse_head(out: &mut Vec<u8>, name: &[u8], rest: usize) {
    let name = until_nul(name);
    head(out, tag::PARSE, name.len() + 1 + rest);
    string(out, name);
}

/// Bind with text for every parameter and every column.
pub fn bind<'a>(
    out: &mut Vec<u8>,
    portal: &[u8],
    statement: &[u8],
    parameters: impl IntoIterator<Item = Option<&'a [u8]>>,
) {
    message(out, tag::BIND, |out| {
        string(out, portal);
        string(out, statement);
        count(out, 0);
        values(out, parameters);
        count(out, 0);
    });
}

/// Bind with other names: `rest` is that of the [`super::Bind`] it is made from.
#[inline]
pub fn bind_renamed(out: &mut Vec<u8>, portal: &[u8], statement: &[u8], rest: &[u8]) {
    bind_head(out, portal, statement, rest.len());
    out.extend_from_slice(rest);
}

/// The beginning of a Bind; the caller writes `rest` more bytes: formats and values, formats of the results.
#[inline]
pub fn bind_head(out: &mut Vec<u8>, portal: &[u8], statement: &[u8], rest: usize) {
    let (portal, statement) = (until_nul(portal), until_nul(statement));
    head(out, tag::BIND, portal.len() + statement.len() + 2 + rest);
    string(out, portal);
    string(out, statement);
}

/// Describe.
#[inline]
pub fn describe(out: &mut Vec<u8>, kind: Kind, name: &[u8]) {
    target(out, tag::DESCRIBE, kind, name);
}

/// Close.
pub fn close(out: &mut Vec<u8>, kind: Kind, name: &[u8]) {
    target(out, tag::CLOSE, kind, name);
}

fn target(out: &mut Vec<u8>, tag: u8, kind: Kind, name: &[u8]) {
    message(out, tag, |out| {
        out.push(kind.byte());
        string(out, name);
    });
}

/// Execute; `rows` 0 means all.
pub fn execute(out: &mut Vec<u8>, portal: &[u8], rows: i32) {
    message(out, tag::EXECUTE, |out| {
        string(out, portal);
        out.extend_from_slice(&rows.to_be_bytes());
    });
}

/// Flush.
pub fn flush(out: &mut Vec<u8>) {
    head(out, tag::FLUSH, 0);
}

/// Sync.
#[inline]
pub fn sync(out: &mut Vec<u8>) {
    head(out, tag::SYNC, 0);
}

/// Terminate.
pub fn terminate(out: &mut Vec<u8>) {
    head(out, tag::TERMINATE, 0);
}

/// FunctionCall with binary arguments and a binary result.
pub fn function_call<'a>(out: &mut Vec<u8>, function: u32, arguments: impl IntoIterator<Item = Option<&'a [u8]>>) {
    message(out, tag::FUNCTION_CALL, |out| {
        out.extend_from_slice(&function.to_be_bytes());
        counted(out, [1_i16], |out, format| out.extend_from_slice(&format.to_be_bytes()));
        values(out, arguments);
        out.extend_from_slice(&1_i16.to_be_bytes());
    });
}

/// CopyData, which servers send too.
pub fn copy_data(out: &mut Vec<u8>, data: &[u8]) {
    head(out, tag::COPY_DATA, data.len());
    out.extend_from_slice(data);
}

/// CopyDone, which servers send too.
pub fn copy_done(out: &mut Vec<u8>) {
    head(out, tag::COPY_DONE, 0);
}

/// CopyFail with the reason.
pub fn copy_fail(out: &mut Vec<u8>, text: &[u8]) {
    message(out, tag::COPY_FAIL, |out| string(out, text));
}

/// A password in clear text, or one hashed with MD5.
pub fn password(out: &mut Vec<u8>, password: &[u8]) {
    message(out, tag::PASSWORD, |out| string(out, password));
}

/// The first message of SASL; without a response the server begins.
pub fn sasl_initial(out: &mut Vec<u8>, mechanism: &[u8], response: Option<&[u8]>) {
    message(out, tag::PASSWORD, |out| {
        string(out, mechanism);
        value(out, response);
    });
}

/// A further message of SASL.
pub fn sasl_response(out: &mut Vec<u8>, response: &[u8]) {
    head(out, tag::PASSWORD, response.len());
    out.extend_from_slice(response);
}
