//! Compression of responses for clients that accept it.

use std::io::Write;

use weir_http_codec::{BodyLength, Fields, Known, RequestHead, ResponseHead, token};

use crate::{filter::BodyAborted, taps::BodyEdit};

/// Shorter responses are not worth it. Default 1 KiB: they fit in one packet as they are.
pub const BYTES_MIN: u64 = 1024;

/// Media types that are compressed unless the file says others: text, and what is text by another name.
pub const TYPES: [&str; 8] = [
    "text/*",
    "application/json",
    "application/javascript",
    "application/xml",
    "application/wasm",
    "application/manifest+json",
    "application/ld+json",
    "image/svg+xml",
];

/// Levels that cost little more than copying: a gateway would pay in time for each byte that it saves on the line.
const GZIP_LEVEL: u32 = 4;
const BROTLI_QUALITY: u32 = 4;
const BROTLI_WINDOW_BITS: u32 = 20;
const ZSTD_LEVEL: i32 = 3;

/// A content coding (RFC 9110 section 8.4.1; RFC 7932; RFC 8878).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// `gzip`.
    Gzip,
    /// `br`.
    Brotli,
    /// `zstd`.
    Zstd,
}

impl Coding {
    /// Every one, the most wanted first.
    pub const ALL: &'static [Self] = &[Self::Zstd, Self::Brotli, Self::Gzip];

    /// The word in the file and in fields.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }
}

/// Settings of compression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compression {
    /// The most wanted first. Empty: nothing is compressed.
    pub codings: Vec<Coding>,
    /// See [`BYTES_MIN`].
    pub bytes_min: u64,
    /// Media types, in lower case; `text/*` for all that begin so.
    pub types: Vec<Box<str>>,
}

/// The coding for a client, if its response is fit: see [`accepted`].
pub(crate) fn coding(compression: &Compression, head: &RequestHead) -> Option<Coding> {
    accepted(&compression.codings, &head.fields)
}

/// The most preferred of these codings among those that a client weighs highest, by its `Accept-Encoding` (RFC 9110 section 12.5.3).
/// `None`: it accepts none.
pub fn accepted(codings: &[Coding], fields: &Fields) -> Option<Coding> {
    let weight = |coding: &&Coding| {
        let mut quality = None;
        for item in fields.all(Known::AcceptEncoding).flat_map(token::list) {
            let mut parts = item.split(|byte| *byte == b';');
            let name = parts.next().unwrap_or_default().trim_ascii();
            let own = parts.find_map(|part| part.trim_ascii().strip_prefix(b"q=")).map_or(1000, thousandths);
            if name.eq_ignore_ascii_case(coding.name().as_bytes()) {
                return own;
            }
            if name == b"*" {
                quality = Some(own);
            }
        }
        quality.unwrap_or(0)
    };
    let best = codings.iter().map(|coding| weight(&coding)).max().filter(|quality| *quality > 0)?;
    codings.iter().find(|coding| weight(coding) == best).copied()
}

/// A whole body in a coding. `None`: there is no memory for it.
pub fn compress(coding: Coding, body: &[u8]) -> Option<Vec<u8>> {
    let (mut encoder, mut out) = (encoder(coding), Vec::new());
    encoder.data(body, &mut out).ok()?;
    encoder.end(&mut out).ok()?;
    Some(out)
}

/// A weight (RFC 9110 section 12.4.2), as thousandths; 0 if it is none.
fn thousandths(weight: &[u8]) -> u32 {
    let number = std::str::from_utf8(weight).ok().and_then(|weight| weight.trim().parse::<f32>().ok());
    number.filter(|number| (0.0..=1.0).contains(number)).map_or(0, |number| (number * 1000.0) as u32)
}

/// The response may be compressed: its client would not get other bytes than it requested.
pub(crate) fn is_fit(head: &ResponseHead, length: BodyLength, compression: &Compression) -> bool {
    let is_long = match length {
        BodyLength::Exact(bytes) => bytes >= compression.bytes_min.max(1),
        BodyLength::Chunked | BodyLength::UntilClose => true,
    };
    let says = |known, word: &[u8]| {
        let mut items = head.fields.all(known).flat_map(token::list);
        items.any(|item| item.eq_ignore_ascii_case(word))
    };
    is_long
        && matches!(head.status(), 200..=203 | 205 | 207..=299 | 400..=599)
        && !head.fields.has(Known::ContentEncoding)
        && !head.fields.has(Known::ContentRange)
        && !says(Known::CacheControl, b"no-transform")
        && head.fields.get(Known::ContentType).is_some_and(|value| has_type(value, &compression.types))
}

fn has_type(value: &[u8], types: &[Box<str>]) -> bool {
    let own = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    // A stream of events goes out as it comes.
    own != b"text/event-stream"
        && types.iter().any(|wanted| match wanted.strip_suffix('*') {
            Some(start) => own.starts_with(start.as_bytes()),
            None => own == wanted.as_bytes(),
        })
}

/// The response may differ by the client's Accept-Encoding: caches must know (RFC 9110 section 12.5.5).
pub(crate) fn vary(fields: &mut Fields) {
    let is_said = |name: &[u8]| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding");
    if !fields.all(Known::Vary).flat_map(token::list).any(is_said) {
        fields.add(Known::Vary, b"Accept-Encoding");
    }
}

/// Changes a head to that of the compressed response.
pub(crate) fn announce(fields: &mut Fields, coding: Coding) {
    forget_bytes(fields);
    fields.set(Known::ContentEncoding, coding.name().as_bytes());
}

/// Takes from a head what it says of the very bytes of its body: others go on.
pub(crate) fn forget_bytes(fields: &mut Fields) {
    fields.remove(Known::ContentLength);
    for name in [&b"Accept-Ranges"[..], b"Content-MD5", b"Digest", b"Content-Digest", b"Repr-Digest"] {
        fields.remove_named(name);
    }
    if let Some(tag) = fields.get(Known::Etag).filter(|tag| !tag.starts_with(b"W/")) {
        // Other bytes of the same content (RFC 9110 section 8.8.1).
        let weak = [b"W/", tag].concat();
        fields.set(Known::Etag, &weak);
    }
}

/// Compresses into memory.
enum Encoder {
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

/// An edit that compresses. Each flush sends everything: no byte waits for more to come.
struct Compressing(Option<Encoder>);

/// An edit that compresses so.
pub(crate) fn encoder(coding: Coding) -> Box<dyn BodyEdit> {
    let encoder = match coding {
        Coding::Gzip => {
            Some(Encoder::Gzip(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(GZIP_LEVEL))))
        }
        Coding::Brotli => {
            let writer = brotli::CompressorWriter::new(Vec::new(), 4096, BROTLI_QUALITY, BROTLI_WINDOW_BITS);
            Some(Encoder::Brotli(Box::new(writer)))
        }
        // It fails only without memory; the response breaks off then.
        Coding::Zstd => zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL).ok().map(Encoder::Zstd),
    };
    Box::new(Compressing(encoder))
}

impl Compressing {
    /// Writes, and gives on what has come out.
    fn step(
        &mut self,
        out: &mut Vec<u8>,
        step: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<(), BodyAborted> {
        let (written, compressed) = match &mut self.0 {
            None => return Err(BodyAborted),
            Some(Encoder::Gzip(encoder)) => (step(encoder), encoder.get_mut()),
            Some(Encoder::Brotli(encoder)) => (step(encoder), encoder.get_mut()),
            Some(Encoder::Zstd(encoder)) => (step(encoder), encoder.get_mut()),
        };
        match out.is_empty() {
            true => std::mem::swap(out, compressed),
            false => out.append(compressed),
        }
        written.map_err(|_| BodyAborted)
    }
}

impl BodyEdit for Compressing {
    fn data(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        self.step(out, |encoder| encoder.write_all(piece))
    }

    fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        self.step(out, |encoder| encoder.flush())
    }

    fn end(&mut self, out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        let rest = match self.0.take().ok_or(BodyAborted)? {
            Encoder::Gzip(encoder) => encoder.finish().ok(),
            Encoder::Brotli(encoder) => Some(encoder.into_inner()),
            Encoder::Zstd(encoder) => encoder.finish().ok(),
        };
        out.append(&mut rest.ok_or(BodyAborted)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use weir_http_codec::{HeadLimits, RequestParser};

    use super::*;

    fn chosen(accept: &str) -> Option<Coding> {
        let mut parser = RequestParser::new();
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {accept}\r\n\r\n");
        parser.parse(text.as_bytes(), &HeadLimits::default()).expect("valid").expect("whole");
        let compression = Compression { codings: Coding::ALL.to_vec(), bytes_min: 1, types: vec!["text/*".into()] };
        coding(&compression, &parser.take())
    }

    #[test]
    fn the_client_decides_and_then_the_order() {
        assert_eq!(chosen("gzip, deflate, br, zstd"), Some(Coding::Zstd));
        assert_eq!(chosen("gzip;q=1.0, br;q=0.5"), Some(Coding::Gzip));
        assert_eq!(chosen("GZIP"), Some(Coding::Gzip));
        assert_eq!(chosen("br;q=0, *;q=0.1"), Some(Coding::Zstd));
        assert_eq!((chosen("identity"), chosen(""), chosen("gzip;q=0"), chosen("gzip;q=x")), (None, None, None, None));
    }

    #[test]
    fn types_are_matched_without_their_parameters() {
        let types: Vec<Box<str>> = TYPES.map(Into::into).to_vec();
        assert!(has_type(b"Text/HTML; charset=utf-8", &types) && has_type(b"application/json", &types));
        assert!(!has_type(b"image/png", &types) && !has_type(b"text/event-stream", &types));
    }
}
