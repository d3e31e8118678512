//! Encoders of what a server sends besides rows and errors. Nothing here fails: callers own the size of `out`.

use super::{TransactionStatus, tag};
use crate::startup::Version;
use crate::write::{counted, head, message, string, value};

pub use crate::frontend::{copy_data, copy_done};

/// AuthenticationOk.
pub fn authentication_ok(out: &mut Vec<u8>) {
    authentication(out, 0, &[]);
}

/// Requests the password in clear text.
pub fn authentication_cleartext(out: &mut Vec<u8>) {
    authentication(out, 3, &[]);
}

/// Requests the password hashed with MD5.
pub fn authentication_md5(out: &mut Vec<u8>, salt: [u8; 4]) {
    authentication(out, 5, &salt);
}

/// Requests one of these mechanisms of SASL.
pub fn authentication_sasl<'a>(out: &mut Vec<u8>, mechanisms: impl IntoIterator<Item = &'a [u8]>) {
    message(out, tag::AUTHENTICATION, |out| {
        out.extend_from_slice(&10_u32.to_be_bytes());
        mechanisms.into_iter().for_each(|mechanism| string(out, mechanism));
        out.push(0);
    });
}

/// The SASL mechanism's next message.
pub fn authentication_sasl_continue(out: &mut Vec<u8>, data: &[u8]) {
    authentication(out, 11, data);
}

/// The SASL mechanism's last message.
pub fn authentication_sasl_final(out: &mut Vec<u8>, data: &[u8]) {
    authentication(out, 12, data);
}

fn authentication(out: &mut Vec<u8>, code: u32, data: &[u8]) {
    head(out, tag::AUTHENTICATION, 4 + data.len());
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(data);
}

/// ParameterStatus.
pub fn parameter_status(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    message(out, tag::PARAMETER_STATUS, |out| {
        string(out, name);
        string(out, value);
    });
}

/// BackendKeyData. A secret of other than 4 bytes is for clients of protocol 3.2.
pub fn backend_key_data(out: &mut Vec<u8>, pid: u32, secret: &[u8]) {
    head(out, tag::BACKEND_KEY_DATA, 4 + secret.len());
    out.extend_from_slice(&pid.to_be_bytes());
    out.extend_from_slice(secret);
}

/// NegotiateProtocolVersion: the newest version that is spoken here, and the client's options that are unknown.
pub fn negotiate_protocol_version<'a>(out: &mut Vec<u8>, newest: Version, options: impl Iterator<Item = &'a [u8]>) {
    message(out, tag::NEGOTIATE_PROTOCOL_VERSION, |out| {
        out.extend_from_slice(&newest.code().to_be_bytes());
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        let mut count = 0_u32;
        for option in options {
            string(out, option);
            count += 1;
        }
        out[start..start + 4].copy_from_slice(&count.to_be_bytes());
    });
}

/// ReadyForQuery.
#[inline]
pub fn ready_for_query(out: &mut Vec<u8>, status: TransactionStatus) {
    out.extend_from_slice(&[tag::READY_FOR_QUERY, 0, 0, 0, 5, status.byte()]);
}

/// CommandComplete.
pub fn command_complete(out: &mut Vec<u8>, text: &[u8]) {
    message(out, tag::COMMAND_COMPLETE, |out| string(out, text));
}

/// EmptyQueryResponse.
pub fn empty_query(out: &mut Vec<u8>) {
    head(out, tag::EMPTY_QUERY, 0);
}

/// ParseComplete.
#[inline]
pub fn parse_complete(out: &mut Vec<u8>) {
    head(out, tag::PARSE_COMPLETE, 0);
}

/// BindComplete.
pub fn bind_complete(out: &mut Vec<u8>) {
    head(out, tag::BIND_COMPLETE, 0);
}

/// CloseComplete.
pub fn close_complete(out: &mut Vec<u8>) {
    head(out, tag::CLOSE_COMPLETE, 0);
}

/// NoData: the described statement returns no rows.
pub fn no_data(out: &mut Vec<u8>) {
    head(out, tag::NO_DATA, 0);
}

/// PortalSuspended.
pub fn portal_suspended(out: &mut Vec<u8>) {
    head(out, tag::PORTAL_SUSPENDED, 0);
}

/// ParameterDescription.
pub fn parameter_description(out: &mut Vec<u8>, types: impl IntoIterator<Item = u32>) {
    message(out, tag::PARAMETER_DESCRIPTION, |out| {
        counted(out, types, |out, oid| out.extend_from_slice(&oid.to_be_bytes()));
    });
}

/// NotificationResponse.
pub fn notification(out: &mut Vec<u8>, pid: u32, channel: &[u8], payload: &[u8]) {
    message(out, tag::NOTIFICATION, |out| {
        out.extend_from_slice(&pid.to_be_bytes());
        string(out, channel);
        string(out, payload);
    });
}

/// CopyInResponse for `columns` columns of one format.
pub fn copy_in(out: &mut Vec<u8>, is_binary: bool, columns: usize) {
    copy(out, tag::COPY_IN, is_binary, columns);
}

/// CopyOutResponse for `columns` columns of one format.
pub fn copy_out(out: &mut Vec<u8>, is_binary: bool, columns: usize) {
    copy(out, tag::COPY_OUT, is_binary, columns);
}

/// CopyBothResponse for `columns` columns of one format.
pub fn copy_both(out: &mut Vec<u8>, is_binary: bool, columns: usize) {
    copy(out, tag::COPY_BOTH, is_binary, columns);
}

fn copy(out: &mut Vec<u8>, tag: u8, is_binary: bool, columns: usize) {
    message(out, tag, |out| {
        out.push(u8::from(is_binary));
        counted(out, (0..columns).map(|_| i16::from(is_binary)), |out, format| {
            out.extend_from_slice(&format.to_be_bytes());
        });
    });
}

/// FunctionCallResponse.
pub fn function_call_response(out: &mut Vec<u8>, result: Option<&[u8]>) {
    message(out, tag::FUNCTION_CALL, |out| value(out, result));
}
