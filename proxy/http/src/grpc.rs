//! gRPC over HTTP/2: calls end with a status of their own.

use std::time::Duration;

use weir_http_codec::{BodyLength, Fields, Known, ResponseHead, Version};
use weir_listener::CloseReason;

use crate::local_response::LocalResponse;

/// The media type of gRPC, with or without the form of its messages.
pub(crate) fn is_grpc(content_type: &[u8]) -> bool {
    // Not gRPC-Web, which is plain HTTP to all but its ends.
    content_type.get(..16).is_some_and(|start| start.eq_ignore_ascii_case(b"application/grpc"))
        && matches!(content_type.get(16), None | Some(b'+' | b';' | b' ' | b'\t'))
}

/// The client's timeout of the whole call, if it has one in at most eight digits and a unit (gRPC over HTTP/2,
/// "Timeout").
pub(crate) fn timeout(fields: &Fields) -> Option<Duration> {
    let (unit, digits) = fields.all_named(b"grpc-timeout").next()?.split_last()?;
    let is_number = (1..=8).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let count = digits.iter().filter(|_| is_number).fold(0, |count: u64, digit| count * 10 + u64::from(digit & 15));
    Some(match unit {
        _ if !is_number => return None,
        b'H' => Duration::from_secs(count * 3_600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

/// A response of the gateway's own as gRPC's Trailers-Only: one head with the status that belongs to HTTP's (gRPC over HTTP/2, "HTTP to
/// gRPC status code mapping").
pub(crate) fn trailers_only(response: &LocalResponse) -> ResponseHead {
    let mut head = ResponseHead::from_parts(Version::Http2, 200, BodyLength::Exact(0));
    if let Some(date) = response.head.fields.get(Known::Date) {
        head.fields.push(b"date", date);
    }
    head.fields.push(b"content-type", b"application/grpc");
    head.fields.push(b"grpc-status", itoa::Buffer::new().format(status_of(response.head.status())).as_bytes());
    head.fields.push(b"grpc-message", message(response.body.trim_ascii_end()).as_bytes());
    head
}

/// A call whose client does not wait any more.
pub(crate) const CANCELLED: u8 = 1;
/// A call that broke off.
pub(crate) const INTERNAL: u8 = 13;
/// A call that took longer than it may.
pub(crate) const DEADLINE_EXCEEDED: u8 = 4;
/// A call that no server took, or whose connection was ended.
pub(crate) const UNAVAILABLE: u8 = 14;

/// The reason of a response that breaks off after its start: its call took longer than the client would wait.
pub(crate) const EXPIRED: CloseReason = CloseReason::Ended("deadline_exceeded");

/// The trailers of such a response: a reset would mean INTERNAL, or CANCELLED.
pub(crate) fn deadline_exceeded() -> Fields {
    let mut trailers = Fields::new();
    trailers.push(b"grpc-status", itoa::Buffer::new().format(DEADLINE_EXCEEDED).as_bytes());
    trailers
}

pub(crate) const fn status_of(http: u16) -> u8 {
    match http {
        400 => INTERNAL,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502 | 503 => UNAVAILABLE,
        504 => DEADLINE_EXCEEDED,
        _ => 2,
    }
}

/// The status of HTTP with the same meaning for the origin's health, as in Envoy's outlier detection.
pub(crate) const fn http_status(status: u8) -> u16 {
    match status {
        0 => 200,
        DEADLINE_EXCEEDED => 504,
        12 => 501,
        UNAVAILABLE => 503,
        // Statuses of the client's own doing: 1 CANCELLED, 5 NOT_FOUND, 8 RESOURCE_EXHAUSTED, ...
        1 | 3 | 5..=11 | 16 => 400,
        // Clients take a status that gRPC does not have for UNKNOWN.
        _ => 500,
    }
}

/// The status of a call, if its trailers, or a Trailers-Only head, have one.
pub(crate) fn status(fields: &Fields) -> Option<u8> {
    std::str::from_utf8(fields.all_named(b"grpc-status").next()?).ok()?.parse().ok()
}

/// Percent-encoded as `grpc-message` wants it.
fn message(text: &[u8]) -> String {
    let mut encoded = String::with_capacity(text.len());
    for &byte in text {
        match byte {
            b'%' | ..b' ' | 0x7F.. => encoded.push_str(&format!("%{byte:02X}")),
            byte => encoded.push(char::from(byte)),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_beyond_those_of_grpc_is_an_error_of_the_server() {
        let of_client = (0..=u8::MAX).filter(|status| http_status(*status) == 400);
        assert_eq!(of_client.collect::<Vec<_>>(), [1, 3, 5, 6, 7, 8, 9, 10, 11, 16]);
        assert_eq!([0, 4, 12, 14, 17, 99].map(http_status), [200, 504, 501, 503, 500, 500]);
    }

    #[test]
    fn a_local_response_becomes_a_grpc_status_with_its_message() {
        let response = LocalResponse::new(503, b"text/plain", b"100% full\n".to_vec());
        let mut bytes = Vec::new();
        trailers_only(&response).fields.write(&mut bytes);
        let text = String::from_utf8(bytes).expect("text");
        let lines = "content-type: application/grpc\r\ngrpc-status: 14\r\ngrpc-message: 100%25 full\r\n";
        assert!(text.starts_with("date: ") && text.ends_with(&format!(" GMT\r\n{lines}")), "{text}");
    }
}
