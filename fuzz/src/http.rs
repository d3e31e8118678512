//! Any bytes as messages of HTTP/1: what a client sends, what an origin sends back, and a chunked body alone.

use weir_http_codec::{
    BodyDecoder, BodyLength, BodyLimits, Fields, HeadLimits, Known, RequestHead, RequestParser, ResponseHead,
    ResponseParser, Version, WireError, encode, strip_hop_by_hop,
};

/// Small enough for inputs of a few hundred bytes to reach them.
const BODY: BodyLimits = BodyLimits { extension_bytes: 64, trailer_bytes: 256, trailer_fields: 4 };
/// For forwarded heads, which have a field or two more than received ones.
const ANY: HeadLimits = HeadLimits { bytes: usize::MAX, fields: usize::MAX, target_bytes: usize::MAX };

/// Sizes of reads.
const PIECES: [usize; 4] = [1, 2, 7, 64];

/// The bytes of a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    /// Each message: its head as it goes on, its body, its trailers.
    messages: Vec<(Vec<u8>, Vec<u8>, Vec<u8>)>,
    /// Where the reader stopped for good. Which rule was broken may depend on how much of a line was there.
    has_failed: bool,
}

/// A reader of heads.
trait Heads: Default {
    /// The next head, as it goes on: its bytes, how long it was, and the body behind it.
    fn next(&mut self, input: &[u8]) -> Result<Option<(Vec<u8>, usize, BodyLength)>, WireError>;
}

impl Heads for RequestParser {
    fn next(&mut self, input: &[u8]) -> Result<Option<(Vec<u8>, usize, BodyLength)>, WireError> {
        let Some(used) = self.parse(input, &HeadLimits::default())? else { return Ok(None) };
        let mut head = self.take();
        let length = head.body();
        let forwarded = forwarded_request(&mut head);
        self.reuse(head);
        Ok(Some((forwarded, used, length)))
    }
}

impl Heads for ResponseParser {
    fn next(&mut self, input: &[u8]) -> Result<Option<(Vec<u8>, usize, BodyLength)>, WireError> {
        let Some(used) = self.parse(input, &HeadLimits::default())? else { return Ok(None) };
        let mut head = self.take();
        let length = head.body(false);
        let forwarded = forwarded_response(&mut head);
        self.reuse(head);
        Ok(Some((forwarded, used, length)))
    }
}

/// A client's bytes: where a read ends changes nothing, and a forwarded head has the same meaning for the next reader.
pub fn http_request(data: &[u8]) {
    pieces_change_nothing(read::<RequestParser>, data);
}

/// An origin's bytes, in the same way. The responses are to anything but HEAD.
pub fn http_response(data: &[u8]) {
    pieces_change_nothing(read::<ResponseParser>, data);
}

/// A chunked body: where a read ends changes nothing, and what goes on of it is the same body.
pub fn http_chunks(data: &[u8]) {
    let whole = body_of(std::iter::once(data), &BODY);
    for size in PIECES {
        assert_eq!(body_of(data.chunks(size), &BODY), whole, "pieces of {size}");
    }
    let Some((content, Some(trailers), taken)) = whole else { return };
    assert!(content.len() < taken && taken <= data.len());
    let mut again = Vec::new();
    encode::chunk(&content, &mut again);
    encode::last_chunk(None, &mut again);
    assert_eq!(again.pop(), Some(b'\n'));
    assert_eq!(again.pop(), Some(b'\r'));
    again.extend_from_slice(&trailers);
    again.extend_from_slice(b"\r\n");
    let length = again.len();
    // A blank behind each colon is more than there may have been.
    let read = body_of(std::iter::once(&again[..]), &BodyLimits::default());
    assert_eq!(read, Some((content, Some(trailers), length)));
}

/// Content, trailers if it has come to its end, and how many bytes it had; none if a rule was broken.
fn body_of<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    limits: &BodyLimits,
) -> Option<(Vec<u8>, Option<Vec<u8>>, usize)> {
    let mut decoder = BodyDecoder::new(BodyLength::Chunked);
    let (mut content, mut taken) = (Vec::new(), 0);
    for mut piece in pieces {
        while !piece.is_empty() && !decoder.is_done() {
            let decoded = decoder.decode(piece, limits).ok()?;
            assert!(decoded.taken > 0, "each call makes progress");
            assert_eq!(decoded.is_last, decoder.is_done());
            content.extend_from_slice(decoded.data);
            taken += decoded.taken;
            piece = &piece[decoded.taken..];
        }
    }
    let trailers = decoder.is_done().then(|| written(decoder.trailers()));
    Some((content, trailers, taken))
}

fn written(fields: Option<&Fields>) -> Vec<u8> {
    let mut bytes = Vec::new();
    fields.iter().for_each(|fields| fields.write(&mut bytes));
    bytes
}

fn pieces_change_nothing(read: fn(&[u8], usize) -> Said, data: &[u8]) {
    let whole = read(data, data.len().max(1));
    for size in PIECES {
        assert_eq!(read(data, size), whole, "pieces of {size}");
    }
}

/// Reads message after message, as a session does.
fn read<P: Heads>(data: &[u8], size: usize) -> Said {
    let (mut parser, mut said) = (P::default(), Said::default());
    let (mut waiting, mut body): (Vec<u8>, Option<BodyDecoder>) = (Vec::new(), None);
    for piece in data.chunks(size) {
        waiting.extend_from_slice(piece);
        loop {
            if body.is_none() {
                match parser.next(&waiting) {
                    Ok(None) => break,
                    Ok(Some((head, used, length))) => {
                        waiting.drain(..used);
                        said.messages.push((head, Vec::new(), Vec::new()));
                        body = Some(BodyDecoder::new(length));
                    }
                    Err(_) => return Said { has_failed: true, ..said },
                }
            }
            let Some(decoder) = &mut body else { break };
            let Some((_, content, trailers)) = said.messages.last_mut() else { break };
            while !waiting.is_empty() && !decoder.is_done() {
                let Ok(decoded) = decoder.decode(&waiting, &BODY) else { return Said { has_failed: true, ..said } };
                content.extend_from_slice(decoded.data);
                let taken = decoded.taken;
                assert!(taken > 0, "each call makes progress");
                waiting.drain(..taken);
            }
            if !decoder.is_done() {
                break;
            }
            *trailers = written(decoder.trailers());
            body = None;
        }
    }
    said
}

/// Encodes the forwarded request. Every reader of it must see the same request and the same body length.
fn forwarded_request(head: &mut RequestHead) -> Vec<u8> {
    strip_hop_by_hop(&mut head.fields);
    head.fields.remove(Known::ContentLength);
    head.fields.remove(Known::Host);
    if head.version() == Version::Http10 {
        // It means nothing there, whatever it says.
        head.fields.remove(Known::Expect);
    }
    let mut bytes = Vec::new();
    encode::request(head, head.authority(), head.body(), &mut bytes);
    // A client of HTTP/1.0 need not name a host, and an empty one is refused here.
    if head.authority().is_empty() {
        return bytes;
    }
    let mut parser = RequestParser::new();
    assert_eq!(parser.parse(&bytes, &ANY), Ok(Some(bytes.len())), "{}", String::from_utf8_lossy(&bytes));
    let mut again = parser.take();
    assert_eq!((again.method(), again.target(), again.authority()), (head.method(), head.target(), head.authority()));
    assert_eq!(again.body(), head.body());
    again.fields.retain(|field| !matches!(field.known, Known::Host | Known::ContentLength | Known::TransferEncoding));
    assert_eq!(written(Some(&again.fields)), written(Some(&head.fields)));
    bytes
}

/// The same of a response.
fn forwarded_response(head: &mut ResponseHead) -> Vec<u8> {
    strip_hop_by_hop(&mut head.fields);
    let length = head.body(false);
    let mut bytes = Vec::new();
    encode::response(head, &mut bytes);
    if length == BodyLength::Chunked {
        encode::framing(length, &mut bytes);
    }
    encode::end_of_head(&mut bytes);
    let mut parser = ResponseParser::new();
    assert_eq!(parser.parse(&bytes, &ANY), Ok(Some(bytes.len())), "{}", String::from_utf8_lossy(&bytes));
    let again = parser.take();
    assert_eq!((again.status(), again.body(false)), (head.status(), length));
    bytes
}
