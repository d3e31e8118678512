//! Messages as bytes, appended to a `Vec<u8>`.

use crate::{
    body::BodyLength,
    fields::Fields,
    request::{RequestHead, Version},
    response::ResponseHead,
};

/// A request head in HTTP/1.1, with the framing of `body`; the fields must have no framing of their own. Host comes first
/// (RFC 9110 section 7.2).
pub fn request(head: &RequestHead, host: &[u8], body: BodyLength, into: &mut Vec<u8>) {
    into.extend_from_slice(head.method());
    into.push(b' ');
    into.extend_from_slice(head.target());
    into.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    into.extend_from_slice(host);
    into.extend_from_slice(b"\r\n");
    head.fields.write(into);
    let takes_a_body = !matches!(head.method(), b"GET" | b"HEAD" | b"DELETE" | b"OPTIONS");
    match body {
        // Only methods that give a body a meaning say that there is none (RFC 9110 section 8.6).
        BodyLength::Exact(0) if !takes_a_body => {}
        body => framing(body, into),
    }
    into.extend_from_slice(b"\r\n");
}

/// The first line of a response. Always HTTP/1.1, as the gateway speaks that whatever its peer does (RFC 9110 section 2.5).
pub fn status_line(status: u16, reason: &[u8], into: &mut Vec<u8>) {
    into.extend_from_slice(b"HTTP/1.1 ");
    number(u64::from(status), into);
    into.push(b' ');
    into.extend_from_slice(if reason.is_empty() { reason_of(status).as_bytes() } else { reason });
    into.extend_from_slice(b"\r\n");
}

/// A response head without the empty line at its end. A caller adds `Connection` before [`end_of_head`].
pub fn response(head: &ResponseHead, into: &mut Vec<u8>) {
    status_line(head.status(), head.reason(), into);
    head.fields.write(into);
}

/// Framing of a body as a field line; nothing for a body until the end of the connection.
pub fn framing(body: BodyLength, into: &mut Vec<u8>) {
    match body {
        BodyLength::Exact(length) => {
            into.extend_from_slice(b"Content-Length: ");
            number(length, into);
            into.extend_from_slice(b"\r\n");
        }
        BodyLength::Chunked => into.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        BodyLength::UntilClose => {}
    }
}

/// One field line.
pub fn field(name: &[u8], value: &[u8], into: &mut Vec<u8>) {
    into.extend_from_slice(name);
    into.extend_from_slice(b": ");
    into.extend_from_slice(value);
    into.extend_from_slice(b"\r\n");
}

/// The empty line.
pub fn end_of_head(into: &mut Vec<u8>) {
    into.extend_from_slice(b"\r\n");
}

/// One chunk; nothing for no data, which would be the last chunk.
pub fn chunk(data: &[u8], into: &mut Vec<u8>) {
    if data.is_empty() {
        return;
    }
    let mut digits = [0; 16];
    let mut at = digits.len();
    let mut left = data.len();
    while left > 0 {
        at -= 1;
        digits[at] = b"0123456789abcdef"[left & 15];
        left >>= 4;
    }
    into.extend_from_slice(&digits[at..]);
    into.extend_from_slice(b"\r\n");
    into.extend_from_slice(data);
    into.extend_from_slice(b"\r\n");
}

/// The last chunk, and the trailers.
pub fn last_chunk(trailers: Option<&Fields>, into: &mut Vec<u8>) {
    into.extend_from_slice(b"0\r\n");
    if let Some(trailers) = trailers {
        trailers.write(into);
    }
    into.extend_from_slice(b"\r\n");
}

fn number(number: u64, into: &mut Vec<u8>) {
    into.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// The words of a status code (RFC 9110 section 15, RFC 6585).
pub const fn reason_of(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        414 => "URI Too Long",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        425 => "Too Early",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

impl Version {
    /// Bodies may be chunked towards a peer that speaks it.
    pub const fn has_chunks(self) -> bool {
        matches!(self, Self::Http11)
    }
}
