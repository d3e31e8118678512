//! Request heads.

use std::ops::Range;

use weir_base::error::Culprit;
use weir_base::violation::Violation;

use crate::{
    body::{BodyLength, content_length, length_of_request},
    connection::ConnectionOptions,
    error::WireError,
    fields::Fields,
    known::Known,
    limits::HeadLimits,
    line,
    token::{host_bytes, is_target, is_token},
};

/// A version of HTTP, as the peer speaks it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
    /// HTTP/2.
    Http2,
}

impl Version {
    /// The version as in a request line, or in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        }
    }

    /// Messages are streams that share a connection: each ends on its own, and none becomes the connection of a tunnel.
    pub const fn is_multiplexed(self) -> bool {
        matches!(self, Self::Http2)
    }
}

/// The head of a request, whatever version it came in.
#[derive(Clone, Debug, Default)]
pub struct RequestHead {
    /// Method, target and authority, one after the other.
    line: Vec<u8>,
    method: Range<usize>,
    target: Range<usize>,
    authority: Range<usize>,
    version: Version,
    body: BodyLength,
    options: ConnectionOptions,
    /// The header fields. Host is among them if it came.
    pub fields: Fields,
}

impl RequestHead {
    /// A head that came as fields and pseudo-header fields (RFC 9113 section 8.3.1), judged like one on the wire.
    /// `is_whole`: no body follows.
    ///
    /// # Errors
    /// The request is refused.
    pub fn from_parts(
        version: Version,
        (method, target, authority): (&[u8], &[u8], &[u8]),
        fields: Fields,
        is_whole: bool,
        limits: &HeadLimits,
    ) -> Result<Self, WireError> {
        let mut head = Self { version, fields, ..Self::default() };
        check_method(method)?;
        if target.len() > limits.target_bytes {
            return Err(WireError::TargetTooLong);
        }
        let is_path = matches!(target, [b'/', ..]) || (target == b"*" && method == b"OPTIONS");
        if !is_path || !is_target(target) {
            return Err(WireError::Target);
        }
        if head.fields.len() > limits.fields {
            return Err(WireError::FieldsTooMany);
        }
        head.set_line(method, target, authority);
        if authority.is_empty() || head.fields.has(Known::Host) {
            check_host(&mut head)?;
        } else if !is_authority(authority) {
            return Err(WireError::Host);
        }
        head.body = match content_length(&head.fields)? {
            _ if is_whole => BodyLength::Exact(0),
            Some(length) => BodyLength::Exact(length),
            None => BodyLength::Chunked,
        };
        check_expectation(&head)?;
        Ok(head)
    }

    fn set_line(&mut self, method: &[u8], target: &[u8], authority: &[u8]) {
        self.line.clear();
        self.line.reserve(method.len() + target.len() + authority.len());
        let mut add = |part: &[u8]| {
            let start = self.line.len();
            self.line.extend_from_slice(part);
            start..self.line.len()
        };
        (self.method, self.target, self.authority) = (add(method), add(target), add(authority));
    }

    /// The method, in the case it came in: methods are case-sensitive.
    pub fn method(&self) -> &[u8] {
        &self.line[self.method.clone()]
    }

    /// Path and query, or `*`. An absolute target is reduced to these.
    pub fn target(&self) -> &[u8] {
        &self.line[self.target.clone()]
    }

    /// The authority of the target or else the Host field; empty if neither was sent.
    pub fn authority(&self) -> &[u8] {
        &self.line[self.authority.clone()]
    }

    /// The authority, and the fields to be changed.
    pub fn authority_and_fields(&mut self) -> (&[u8], &mut Fields) {
        (&self.line[self.authority.clone()], &mut self.fields)
    }

    /// Puts another target in place.
    pub fn set_target(&mut self, target: &[u8]) {
        let start = self.line.len();
        self.line.extend_from_slice(target);
        self.target = start..self.line.len();
    }

    /// The version it came in.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Length of its body.
    pub fn body(&self) -> BodyLength {
        self.body
    }

    /// Options of its Connection fields.
    pub fn options(&self) -> ConnectionOptions {
        self.options
    }

    /// The client may send another request on the connection.
    pub fn is_persistent(&self) -> bool {
        match self.version {
            Version::Http10 => self.options.keep_alive && !self.options.close,
            Version::Http11 | Version::Http2 => !self.options.close,
        }
    }

    /// The client sends the body after a 100 (RFC 9110 section 10.1.1). Has no meaning on HTTP/1.0.
    pub fn expects_continue(&self) -> bool {
        self.version != Version::Http10 && self.body != BodyLength::Exact(0) && self.fields.has(Known::Expect)
    }

    fn clear(&mut self) {
        self.line.clear();
        (self.method, self.target, self.authority) = (0..0, 0..0, 0..0);
        (self.version, self.body, self.options) = Default::default();
        self.fields.clear();
    }
}

/// Reads request heads, line by line as they come.
#[derive(Debug, Default)]
pub struct RequestParser {
    head: RequestHead,
    /// Bytes of `input` that are already in `head`.
    taken: usize,
    has_line: bool,
    /// A client sent an empty line before the request: some do after a body (RFC 9112 section 2.2).
    skipped_empty: bool,
}

impl RequestParser {
    /// At the beginning of a request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Continues with `input`, which begins at the start of the request: bytes of earlier calls stand there again. Returns the number of
    /// bytes of the head once it is whole; [`RequestParser::take`] returns it then.
    ///
    /// # Errors
    /// The request is refused; the parser is of no more use.
    pub fn parse(&mut self, input: &[u8], limits: &HeadLimits) -> Result<Option<usize>, WireError> {
        loop {
            let rest = &input[self.taken..];
            let Some(line) = line::next(rest)? else {
                return self.check_unfinished(rest, limits).map(|()| None);
            };
            self.taken += line.len() + 2;
            if self.taken > limits.bytes {
                return Err(self.too_long(line, limits));
            }
            if !self.has_line {
                if line.is_empty() && !self.skipped_empty {
                    self.skipped_empty = true;
                    continue;
                }
                self.request_line(line, limits)?;
                self.has_line = true;
            } else if line.is_empty() {
                self.finish()?;
                return Ok(Some(std::mem::take(&mut self.taken)));
            } else {
                if self.head.fields.len() >= limits.fields {
                    return Err(WireError::FieldsTooMany);
                }
                line::push_field(line, &mut self.head.fields)?;
            }
        }
    }

    /// The head that [`RequestParser::parse`] has found; the parser is ready for the next one.
    pub fn take(&mut self) -> RequestHead {
        self.has_line = false;
        self.skipped_empty = false;
        std::mem::take(&mut self.head)
    }

    /// Gives the memory of a head back for the next one.
    pub fn reuse(&mut self, mut head: RequestHead) {
        if !self.has_line {
            head.clear();
            self.head = head;
        }
    }

    /// At the beginning of a request again, wherever the last one ended.
    pub fn reset(&mut self) {
        self.head.clear();
        (self.taken, self.has_line, self.skipped_empty) = (0, false, false);
    }

    /// Bytes of memory that the parser has for a head.
    pub fn room(&self) -> usize {
        self.head.line.capacity() + self.head.fields.room()
    }

    /// Nothing of a request was seen yet.
    pub fn is_idle(&self) -> bool {
        self.taken == 0
    }

    /// An unfinished line may already be too long, or not of this protocol.
    fn check_unfinished(&self, rest: &[u8], limits: &HeadLimits) -> Result<(), WireError> {
        if self.taken + rest.len() > limits.bytes || (!self.has_line && rest.len() > limits.target_bytes + 64) {
            return Err(self.too_long(rest, limits));
        }
        // Input that cannot become a request should not wait for its deadline: the first byte of TLS, of a PROXY header.
        match rest.first() {
            Some(&byte) if !self.has_line && byte != b'\r' && !is_token(&[byte]) => Err(WireError::Method),
            _ => Ok(()),
        }
    }

    fn too_long(&self, line: &[u8], limits: &HeadLimits) -> WireError {
        match !self.has_line && line.len() > limits.target_bytes {
            true => WireError::TargetTooLong,
            false => WireError::HeadTooLong,
        }
    }

    fn request_line(&mut self, line: &[u8], limits: &HeadLimits) -> Result<(), WireError> {
        let mut parts = line.split(|&byte| byte == b' ');
        let (method, target, version) = (parts.next(), parts.next(), parts.next());
        let (Some(method), Some(target), Some(version), None) = (method, target, version, parts.next()) else {
            return Err(WireError::RequestLine);
        };
        check_method(method)?;
        self.head.version = version_of(version)?;
        if target.len() > limits.target_bytes {
            return Err(WireError::TargetTooLong);
        }
        if !is_target(target) {
            return Err(WireError::Target);
        }
        let (authority, target) = split_target(method, target)?;
        self.head.set_line(method, target, authority);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), WireError> {
        let head = &mut self.head;
        check_host(head)?;
        head.options = ConnectionOptions::of(&head.fields);
        head.body = length_of_request(head.version, &head.fields)?;
        check_expectation(head)
    }
}

fn check_method(method: &[u8]) -> Result<(), WireError> {
    match method {
        b"CONNECT" | b"TRACE" => Err(WireError::MethodRefused),
        // The preface of HTTP/2 is no request (RFC 9113 section 3.4).
        b"PRI" => Err(WireError::Method),
        method if !is_token(method) => Err(WireError::Method),
        _ => Ok(()),
    }
}

fn check_expectation(head: &RequestHead) -> Result<(), WireError> {
    let is_known = |value: &[u8]| value.eq_ignore_ascii_case(b"100-continue");
    match head.version == Version::Http10 || head.fields.all(Known::Expect).all(is_known) {
        true => Ok(()),
        false => Err(WireError::Expectation),
    }
}

fn version_of(version: &[u8]) -> Result<Version, WireError> {
    match version {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', b'2'..=b'9', b'.', minor] if minor.is_ascii_digit() => {
            Err(WireError::VersionUnsupported)
        }
        _ => Err(WireError::Version),
    }
}

/// Splits a target into authority, and path with query (RFC 9112 section 3.2).
fn split_target<'a>(method: &[u8], target: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), WireError> {
    match target {
        [b'/', ..] => return Ok((b"", target)),
        b"*" if method == b"OPTIONS" => return Ok((b"", target)),
        _ => {}
    }
    let after_scheme = |scheme: &[u8]| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let rest = after_scheme(b"http://").or_else(|| after_scheme(b"https://")).ok_or(WireError::Target)?;
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    match rest.split_at(end) {
        (b"", _) => Err(WireError::Target),
        (authority, b"") => Ok((authority, b"/")),
        // `http://host?query` has an empty path, which means `/`. The form is too rare for an allocation.
        (_, [b'?', ..]) => Err(WireError::Target),
        split => Ok(split),
    }
}

/// Exactly one Host on HTTP/1.1, and it equals the authority of the target (RFC 9112 section 3.2).
fn check_host(head: &mut RequestHead) -> Result<(), WireError> {
    let mut hosts = head.fields.all(Known::Host);
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host,
        (None, _) if head.version == Version::Http10 => {
            // The target is the only place that can name a host there.
            let names_host = head.authority.is_empty() || is_authority(head.authority());
            return if names_host { Ok(()) } else { Err(WireError::Host) };
        }
        _ => return Err(WireError::Host),
    };
    if !is_authority(host) {
        return Err(WireError::Host);
    }
    if !head.authority.is_empty() {
        return if head.authority().eq_ignore_ascii_case(host) { Ok(()) } else { Err(WireError::HostMismatch) };
    }
    let start = head.line.len();
    head.line.extend_from_slice(host);
    head.authority = start..head.line.len();
    Ok(())
}

/// `host[:port]` with a port from 1 to 65535 (RFC 9110 section 7.2); no list, no user.
pub fn is_authority(authority: &[u8]) -> bool {
    let (host, port) = match authority {
        [b'[', rest @ ..] => {
            let Some(end) = memchr::memchr(b']', rest) else { return false };
            let is_address = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
            if end == 0 || !rest[..end].iter().all(is_address) {
                return false;
            }
            (&rest[..end], &rest[end + 1..])
        }
        // Only the colon of a port may stand behind it.
        _ => authority.split_at(host_bytes(authority)),
    };
    let is_port = match port {
        [] => true,
        [b':', digits @ ..] => {
            let is_number = (1..=5).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
            // With more digits the sum would overflow, which ends the task of the connection.
            let number = || digits.iter().fold(0_u32, |number, digit| number * 10 + u32::from(digit & 15));
            is_number && (1..=65_535).contains(&number())
        }
        _ => false,
    };
    !host.is_empty() && is_port
}

impl From<WireError> for Violation {
    /// A violation of a client.
    fn from(error: WireError) -> Self {
        error.violation(Culprit::Client)
    }
}
