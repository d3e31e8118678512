//! Fields of messages: the rules for those that arrive (RFC 9113 section 8), and the form of those that are sent.

use weir_http_codec::{
    Fields, HeadLimits, Known, RequestHead, ResponseHead, Version, WireError, token::is_field_value,
};

use crate::{
    error::ProtocolError,
    event::Request,
    hpack::{Encoder, HeaderField},
};

/// Room for the fields that a gateway adds to most heads: the client, and its protocol.
const ADDED_FIELDS: usize = 6;
const ADDED_BYTES: usize = 192;

/// The next head is not thought to have more fields than this, however many the last one had.
const FIELDS_GUESSED_MAX: usize = 32;

/// Scratch memory above this many bytes is given back.
const SCRATCH_KEPT_BYTES: usize = 1024;

/// Bytes of the names of fields in lower case: `tchar` without upper case (RFC 9110 section 5.6.2).
const NAME_BYTES: [bool; 256] = name_bytes();

const fn name_bytes() -> [bool; 256] {
    let mut bytes = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        bytes[byte] = matches!(byte as u8, b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~');
        byte += 1;
    }
    bytes
}

/// Which name of the gateway's each name of HPACK's static table is, from its first index on.
const STATIC_NAMES: [Known; 62] = static_names();

const fn static_names() -> [Known; 62] {
    let mut names = [Known::Other; 62];
    let known = [
        (16, Known::AcceptEncoding),
        (19, Known::Accept),
        (21, Known::Age),
        (22, Known::Allow),
        (23, Known::Authorization),
        (24, Known::CacheControl),
        (26, Known::ContentEncoding),
        (28, Known::ContentLength),
        (30, Known::ContentRange),
        (31, Known::ContentType),
        (32, Known::Cookie),
        (33, Known::Date),
        (34, Known::Etag),
        (35, Known::Expect),
        (38, Known::Host),
        (46, Known::Location),
        (49, Known::ProxyAuthorization),
        (50, Known::Range),
        (51, Known::Referer),
        (53, Known::RetryAfter),
        (54, Known::Server),
        (55, Known::SetCookie),
        (57, Known::TransferEncoding),
        (58, Known::UserAgent),
        (59, Known::Vary),
        (60, Known::Via),
        (61, Known::WwwAuthenticate),
    ];
    let mut at = 0;
    while at < known.len() {
        names[known[at].0] = known[at].1;
        at += 1;
    }
    names
}

/// The part of a message that a header block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Request,
    Response,
    Trailers,
}

/// A pseudo-field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pseudo {
    Method,
    Scheme,
    Authority,
    Path,
    Protocol,
    Status,
}

impl Pseudo {
    const COUNT: usize = 6;

    #[inline]
    fn of(field: &HeaderField<'_>) -> Option<Self> {
        Some(match field.static_name {
            1 => Self::Authority,
            2 => Self::Method,
            4 => Self::Path,
            6 => Self::Scheme,
            8 => Self::Status,
            _ => return Self::of_name(field.name),
        })
    }

    /// A sender may write the name out.
    #[cold]
    fn of_name(name: &[u8]) -> Option<Self> {
        Some(match name {
            b":authority" => Self::Authority,
            b":method" => Self::Method,
            b":path" => Self::Path,
            b":scheme" => Self::Scheme,
            b":status" => Self::Status,
            b":protocol" => Self::Protocol,
            _ => return None,
        })
    }

    fn belongs_to(self, part: Part) -> bool {
        match part {
            Part::Request => self != Self::Status,
            Part::Response => self == Self::Status,
            Part::Trailers => false,
        }
    }
}

/// Memory that a connection uses for one block after the other.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Values of pseudo-fields.
    line: Vec<u8>,
    /// Several cookies together. They come one by one, so that they compress well; elsewhere they are one field (section 8.2.3).
    cookies: Vec<u8>,
    /// Fields of the last head, and their bytes: a good guess for the next one.
    fields: usize,
    bytes: usize,
}

/// Collects and judges the fields of one header block.
pub(crate) struct FieldCollector<'a> {
    part: Part,
    scratch: &'a mut Scratch,
    /// The pseudo-fields that came, as bits, and where their values stand.
    seen: u8,
    pseudo: [(u32, u32); Pseudo::COUNT],
    fields: Fields,
    bytes: usize,
    /// A cookie is one that no table may hold.
    is_cookie_secret: bool,
    error: Option<ProtocolError>,
}

/// The head of a response.
pub(crate) struct Response {
    pub(crate) head: ResponseHead,
    /// Its body has no bytes by its content-length, which is left out: HTTP/1.1 needs chunks for the trailers behind it.
    pub(crate) is_empty: bool,
}

impl<'a> FieldCollector<'a> {
    pub(crate) fn new(part: Part, scratch: &'a mut Scratch) -> Self {
        scratch.line.clear();
        scratch.cookies.clear();
        let fields = match part {
            Part::Trailers => Fields::new(),
            _ => Fields::with_room(scratch.fields + ADDED_FIELDS, scratch.bytes + ADDED_BYTES),
        };
        Self {
            part,
            scratch,
            seen: 0,
            pseudo: Default::default(),
            fields,
            bytes: 0,
            is_cookie_secret: false,
            error: None,
        }
    }

    /// Takes the next field.
    #[inline]
    pub(crate) fn add(&mut self, field: &HeaderField<'_>) {
        if self.error.is_none() {
            let added = match field.name {
                [b':', ..] => self.pseudo(field),
                _ => self.regular(field),
            };
            self.error = added.err();
        }
    }

    fn pseudo(&mut self, field: &HeaderField<'_>) -> Result<(), ProtocolError> {
        if self.part == Part::Trailers {
            return Err(ProtocolError::PseudoFieldInTrailers);
        }
        if !self.fields.is_empty() {
            return Err(ProtocolError::PseudoFieldLate);
        }
        let known = Pseudo::of(field).filter(|known| known.belongs_to(self.part));
        let known = known.ok_or(ProtocolError::PseudoFieldUnknown)?;
        // The others are judged with the head.
        match known {
            Pseudo::Scheme if !is_scheme(field.value) => return Err(ProtocolError::Scheme),
            Pseudo::Protocol => check_value(field.value)?,
            _ => {}
        }
        let bit = 1 << known as u8;
        if self.seen & bit != 0 {
            return Err(ProtocolError::PseudoFieldRepeated);
        }
        self.seen |= bit;
        let start = self.scratch.line.len() as u32;
        self.scratch.line.extend_from_slice(field.value);
        self.pseudo[known as usize] = (start, self.scratch.line.len() as u32);
        Ok(())
    }

    fn regular(&mut self, field: &HeaderField<'_>) -> Result<(), ProtocolError> {
        let (name, value) = (field.name, field.value);
        let known = match STATIC_NAMES.get(usize::from(field.static_name)) {
            Some(known) if field.static_name > 0 => *known,
            _ if name.is_empty() || !name.iter().all(|byte| NAME_BYTES[usize::from(*byte)]) => {
                return Err(ProtocolError::FieldName);
            }
            _ => Known::of(name),
        };
        check_value(value)?;
        if is_of_connection(known) {
            return Err(ProtocolError::ConnectionField);
        }
        match known {
            Known::Te if value != b"trailers" => return Err(ProtocolError::Te),
            Known::Cookie if self.fields.has(Known::Cookie) => {
                self.join(field);
                return Ok(());
            }
            _ => {}
        }
        self.bytes += name.len() + value.len();
        self.fields.push_known(known, name, value);
        if field.is_never_indexed {
            self.never_index(known);
        }
        Ok(())
    }

    /// One more cookie.
    #[cold]
    fn join(&mut self, cookie: &HeaderField<'_>) {
        self.is_cookie_secret |= cookie.is_never_indexed;
        let cookies = &mut self.scratch.cookies;
        if cookies.is_empty() {
            cookies.extend_from_slice(self.fields.get(Known::Cookie).unwrap_or_default());
        }
        cookies.extend_from_slice(b"; ");
        cookies.extend_from_slice(cookie.value);
    }

    /// The sender has forbidden tables for the field that was added last.
    #[cold]
    fn never_index(&mut self, known: Known) {
        self.is_cookie_secret |= known == Known::Cookie;
        self.fields.never_index_last();
    }

    /// The block is over.
    fn finish(&mut self) -> Result<(), ProtocolError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let scratch = &mut *self.scratch;
        if !scratch.cookies.is_empty() {
            self.fields.set(Known::Cookie, &scratch.cookies);
            if self.is_cookie_secret {
                self.fields.never_index_last();
            }
            self.bytes += scratch.cookies.len();
        }
        if self.part != Part::Trailers {
            (scratch.fields, scratch.bytes) =
                (self.fields.len().min(FIELDS_GUESSED_MAX), self.bytes.min(SCRATCH_KEPT_BYTES));
        }
        if scratch.cookies.capacity() > SCRATCH_KEPT_BYTES {
            scratch.cookies = Vec::new();
        }
        if scratch.line.capacity() > SCRATCH_KEPT_BYTES {
            scratch.line.shrink_to(SCRATCH_KEPT_BYTES);
        }
        Ok(())
    }

    fn value(&self, pseudo: Pseudo) -> Option<&[u8]> {
        let (start, end) = self.pseudo[pseudo as usize];
        (self.seen & (1 << pseudo as u8) != 0).then(|| &self.scratch.line[start as usize..end as usize])
    }

    /// The request; `is_over`: fields were left out, because the list is too long.
    pub(crate) fn into_request(
        mut self,
        is_end: bool,
        is_over: bool,
        limits: &HeadLimits,
        offers_connect: bool,
    ) -> Result<Result<Request, WireError>, ProtocolError> {
        self.finish()?;
        let fields = std::mem::take(&mut self.fields);
        let method = self.value(Pseudo::Method).ok_or(ProtocolError::PseudoFieldMissing)?;
        let (scheme, path) = (self.value(Pseudo::Scheme), self.value(Pseudo::Path));
        let authority = self.value(Pseudo::Authority);
        let protocol = self.value(Pseudo::Protocol);
        if protocol.is_some() && (method != b"CONNECT" || !offers_connect || authority.is_none()) {
            return Err(ProtocolError::Connect);
        }
        if method == b"CONNECT" && protocol.is_none() {
            let is_legal = authority.is_some() && scheme.is_none() && path.is_none();
            return if is_legal { Ok(Err(WireError::MethodRefused)) } else { Err(ProtocolError::Connect) };
        }
        let (Some([_, ..]), Some(path @ [_, ..])) = (scheme, path) else {
            return Err(ProtocolError::PseudoFieldMissing);
        };
        if is_over {
            return Ok(Err(WireError::HeadTooLong));
        }
        let (method, is_whole) = if protocol.is_some() { (&b"GET"[..], true) } else { (method, is_end) };
        if is_end && declares_body(&fields) {
            return Err(ProtocolError::ContentLength);
        }
        let line = (method, path, authority.unwrap_or_default());
        let head = RequestHead::from_parts(Version::Http2, line, fields, is_whole, limits);
        Ok(head.map(|head| Request { head, protocol: protocol.map(Into::into), is_end }))
    }

    /// The head of a response; `is_head`: to HEAD.
    pub(crate) fn into_response(
        mut self,
        is_end: bool,
        is_head: bool,
        limits: &HeadLimits,
    ) -> Result<Response, ProtocolError> {
        self.finish()?;
        let mut fields = std::mem::take(&mut self.fields);
        if fields.len() > limits.fields {
            return Err(ProtocolError::HeadTooLong);
        }
        let status = match self.value(Pseudo::Status).ok_or(ProtocolError::PseudoFieldMissing)? {
            digits @ [b'1'..=b'5', b'0'..=b'9', b'0'..=b'9'] => {
                digits.iter().fold(0, |status, digit| status * 10 + u16::from(digit & 15))
            }
            _ => return Err(ProtocolError::Status),
        };
        match status {
            101 => return Err(ProtocolError::Status),
            100..=199 if is_end => return Err(ProtocolError::InterimEnd),
            _ => {}
        }
        if is_end && !is_head && status != 304 && declares_body(&fields) {
            return Err(ProtocolError::ContentLength);
        }
        let is_empty = !is_end && fields.get(Known::ContentLength) == Some(b"0");
        if is_empty {
            fields.remove(Known::ContentLength);
        }
        let head = ResponseHead::from_message(Version::Http2, status, fields, is_end);
        Ok(Response { head: head.map_err(|_| ProtocolError::Head)?, is_empty })
    }

    /// The trailers, without the fields that none may be.
    pub(crate) fn into_trailers(mut self, limits: &HeadLimits) -> Result<Fields, ProtocolError> {
        self.finish()?;
        let mut fields = std::mem::take(&mut self.fields);
        if fields.len() > limits.fields {
            return Err(ProtocolError::TrailersTooLong);
        }
        fields.retain(weir_http_codec::is_trailer);
        Ok(fields)
    }
}

/// Content-Length is a number other than 0. What is none is judged with the head.
fn declares_body(fields: &Fields) -> bool {
    let is_body = |value: &[u8]| value.iter().all(u8::is_ascii_digit) && value.iter().any(|digit| *digit != b'0');
    fields.get(Known::ContentLength).is_some_and(is_body)
}

/// A byte may be a control character; false: none is. Words of 8 bytes at a time.
#[inline]
fn may_have_control(value: &[u8]) -> bool {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let of_word = |word: &[u8; 8]| {
        let word = u64::from_ne_bytes(*word);
        let below_blank = word.wrapping_sub(ONES * 0x20) & !word;
        let not_delete = word ^ (ONES * 0x7f);
        let is_delete = not_delete.wrapping_sub(ONES) & !not_delete;
        (below_blank | is_delete) & HIGH
    };
    let Some(last) = value.last_chunk() else { return true };
    value.as_chunks().0.iter().fold(of_word(last), |found, word| found | of_word(word)) != 0
}

/// A letter, then letters, digits and three signs (RFC 3986 section 3.1). An empty one is missing, which is judged with the head.
fn is_scheme(value: &[u8]) -> bool {
    let is_of_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    value.first().is_none_or(u8::is_ascii_alphabetic) && value.iter().all(is_of_scheme)
}

/// A value without control characters, and without blanks at its ends (section 8.2.1).
#[inline]
fn check_value(value: &[u8]) -> Result<(), ProtocolError> {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if (may_have_control(value) && !is_field_value(value)) || is_blank(value.first()) || is_blank(value.last()) {
        return Err(ProtocolError::FieldValue);
    }
    Ok(())
}

/// Fields of a connection of HTTP/1.1, which no message has here (section 8.2.2).
#[inline]
fn is_of_connection(known: Known) -> bool {
    matches!(
        known,
        Known::Connection | Known::KeepAlive | Known::ProxyConnection | Known::TransferEncoding | Known::Upgrade
    )
}

/// Appends fields to a header block, except those of a connection, `host` of a request, and the length if the caller has another.
pub(crate) fn encode(encoder: &mut Encoder, fields: &Fields, part: Part, has_length: bool, into: &mut Vec<u8>) {
    for field in fields.iter() {
        let name = match field.known {
            Known::Other if field.name.iter().any(u8::is_ascii_uppercase) => &field.name.to_ascii_lowercase(),
            Known::Other => field.name,
            Known::Te if field.value != b"trailers" => continue,
            Known::Host if part == Part::Request => continue,
            Known::ContentLength if has_length => continue,
            known if is_of_connection(known) => continue,
            known => known.name().as_bytes(),
        };
        match field.is_never_indexed {
            true => encoder.field_never_indexed(into, name, field.value),
            false => encoder.field(into, name, field.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_tokens_in_lower_case() {
        for byte in 0..=u8::MAX {
            let is_name = weir_http_codec::token::is_token(&[byte]) && !byte.is_ascii_uppercase();
            assert_eq!(NAME_BYTES[usize::from(byte)], is_name, "{byte:#x}");
        }
    }

    #[test]
    fn names_of_the_static_table_are_known_by_their_index() {
        // Each index alone is a field of the table.
        let mut decoder = crate::hpack::Decoder::new(4096);
        for index in 1..=61_u8 {
            let decoded = decoder.decode(&[0x80 | index], usize::MAX, |field| {
                let known = Known::of(field.name);
                assert_eq!(STATIC_NAMES[usize::from(field.static_name)], known, "{index}");
            });
            assert_eq!(decoded.map(|block| block.fields), Ok(1));
        }
    }

    #[test]
    fn control_characters_are_found_wherever_they_stand() {
        for length in 8..40 {
            for byte in 0..=u8::MAX {
                for at in 0..length {
                    let mut value = vec![b'~'; length];
                    value[at] = byte;
                    let is_control = byte < b' ' || byte == 0x7f;
                    assert_eq!(may_have_control(&value), is_control, "{byte:#x} at {at} of {length}");
                }
            }
        }
    }

    #[test]
    fn values_have_no_control_characters_and_no_blanks_at_their_ends() {
        for value in [&b""[..], b"a", b"a b", b"a\tb", b"\xff"] {
            assert_eq!(check_value(value), Ok(()));
        }
        for value in [&b" a"[..], b"a ", b"\ta", b"a\t", b" ", b"a\0", b"a\rb", b"\n", b"\x7f"] {
            assert_eq!(check_value(value), Err(ProtocolError::FieldValue), "{value:?}");
        }
    }
}
