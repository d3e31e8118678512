//! Sections 12 and 13: permessage-deflate (RFC 7692), its data and its negotiation.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::{
    Case, End, Step,
    first::{BINARY, CLOSE, LAST, MORE, PING, TEXT},
};
use crate::websocket::masked;
use End::{Any, Clean, Failed};

/// The bit of a compressed message.
const COMPRESSED: u8 = 0x40;
/// The bytes at the end of every flushed message, which are left out (RFC 7692 section 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// A message to be compressed.
#[derive(Clone, Debug)]
pub struct Message {
    /// Text or binary.
    pub first: u8,
    /// Payload of the message.
    pub data: Vec<u8>,
    /// Size of its fragments; 0: it is one frame.
    pub fragment: usize,
    /// It is compressed.
    pub is_compressed: bool,
}

/// Compresses and decompresses what two ends say to each other, by the extension that they agreed on.
pub struct Packer {
    deflate: Compress,
    inflate: Decompress,
    forgets: bool,
}

impl Packer {
    /// By the server's response; none without the extension.
    pub fn of(extensions: &str) -> Option<Self> {
        if !extensions.contains("permessage-deflate") {
            return None;
        }
        // The library has one size of window. Without compression nothing is ever looked up in it.
        let level =
            if extensions.contains("client_max_window_bits") { Compression::none() } else { Compression::fast() };
        Some(Self {
            deflate: Compress::new(level, false),
            inflate: Decompress::new(false),
            forgets: extensions.contains("client_no_context_takeover"),
        })
    }

    /// The frames of a message.
    pub fn pack(&mut self, message: &Message) -> Vec<u8> {
        if !message.is_compressed {
            return masked(message.first, &message.data);
        }
        if self.forgets {
            self.deflate.reset();
        }
        let before = self.deflate.total_in();
        let mut packed = Vec::with_capacity(message.data.len() + 64);
        loop {
            let rest = &message.data[(self.deflate.total_in() - before) as usize..];
            packed.reserve(1024);
            self.deflate.compress_vec(rest, &mut packed, FlushCompress::Sync).expect("compressible");
            if packed.len() < packed.capacity() && self.deflate.total_in() - before == message.data.len() as u64 {
                break;
            }
        }
        assert!(packed.ends_with(&TAIL), "flushed to a byte");
        packed.truncate(packed.len() - TAIL.len());
        let first = message.first | COMPRESSED;
        if message.fragment == 0 || packed.len() <= message.fragment {
            return masked(first, &packed);
        }
        let last = packed.chunks(message.fragment).count() - 1;
        let pieces = packed.chunks(message.fragment).enumerate();
        let frame = |(at, piece): (usize, &[u8])| match at {
            0 => masked(first & !0x80, piece),
            at if at == last => masked(LAST, piece),
            _ => masked(MORE, piece),
        };
        pieces.flat_map(frame).collect()
    }

    /// The text of a server's message.
    ///
    /// # Panics
    /// If it cannot be inflated.
    pub fn unpack(&mut self, packed: &[u8]) -> Vec<u8> {
        let input = [packed, &TAIL].concat();
        let (before, mut data) = (self.inflate.total_in(), Vec::new());
        loop {
            let rest = &input[(self.inflate.total_in() - before) as usize..];
            data.reserve(64 * 1024);
            let status = self.inflate.decompress_vec(rest, &mut data, FlushDecompress::Sync).expect("it inflates");
            let is_over = self.inflate.total_in() - before == input.len() as u64 && data.len() < data.capacity();
            if is_over || status == Status::StreamEnd {
                return data;
            }
        }
    }
}

const SIZES: [usize; 10] = [16, 64, 256, 1024, 4096, 8192, 16_384, 32_768, 65_536, 131_072];
const FRAGMENTS: [usize; 8] = [256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768];

/// Section 13: what a client offers.
const OFFERS: [&str; 12] = [
    "permessage-deflate",
    "permessage-deflate; server_no_context_takeover",
    "permessage-deflate; server_max_window_bits=9",
    "permessage-deflate; server_max_window_bits=15",
    "permessage-deflate; server_no_context_takeover; server_max_window_bits=9",
    "permessage-deflate; server_no_context_takeover; server_max_window_bits=15",
    "permessage-deflate; server_no_context_takeover; server_max_window_bits=9, \
     permessage-deflate; server_no_context_takeover, permessage-deflate",
    // Beyond the catalogue.
    "permessage-deflate; client_no_context_takeover",
    "permessage-deflate; client_no_context_takeover; server_no_context_takeover",
    "permessage-deflate; client_max_window_bits",
    "permessage-deflate; client_max_window_bits=10",
    "permessage-deflate; client_max_window_bits=15; server_max_window_bits=\"10\"",
];

/// Malformed offers, and offers that a server may decline. The response is up to the server.
const ODD_OFFERS: [&str; 13] = [
    "permessage-deflate; unknown",
    "permessage-deflate; server_max_window_bits",
    "permessage-deflate; server_max_window_bits=7",
    "permessage-deflate; server_max_window_bits=16",
    "permessage-deflate; server_max_window_bits=09",
    "permessage-deflate; client_max_window_bits=x",
    "permessage-deflate; server_no_context_takeover=1",
    "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
    "permessage-deflate; server_max_window_bits=7, permessage-deflate",
    "x-webkit-deflate-frame, permessage-deflate",
    "permessage-bzip2",
    "permessage-deflate;",
    "permessage-deflate; ;",
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in 1..=5 {
        for (number, size) in SIZES.into_iter().enumerate() {
            cases.push(compressed(format!("12.{kind}.{}", number + 1), OFFERS[0], kind, size, 0));
        }
        for (number, fragment) in FRAGMENTS.into_iter().enumerate() {
            cases.push(compressed(format!("12.{kind}.{}", number + 11), OFFERS[0], kind, 131_072, fragment));
        }
    }
    for (offer, text) in OFFERS.into_iter().enumerate() {
        for (number, size) in SIZES.into_iter().enumerate() {
            let fragment = [0, size / 4 + 1][number % 2];
            cases.push(compressed(format!("13.{}.{}", offer + 1, number + 1), text, 1, size, fragment));
        }
    }
    for (number, offer) in ODD_OFFERS.into_iter().enumerate() {
        let one = compressed(format!("13.20.{}", number + 1), offer, 1, 1024, 0);
        cases.push(Case { end: Any, ..one });
    }
    let raw = |number: u32, end, frames: &[(u8, &[u8])]| {
        let steps = vec![Step::Send(frames.iter().flat_map(|(first, payload)| masked(*first, payload)).collect())];
        Case { offer: OFFERS[0].into(), ..Case::new(format!("13.21.{number}"), end, steps) }
    };
    // "Hello" of RFC 7692 section 7.2.3.1.
    let hello: &[u8] = &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    cases.extend([
        raw(1, Clean(1), &[(TEXT | COMPRESSED, hello)]),
        raw(2, Clean(1), &[(TEXT & !0x80 | COMPRESSED, &hello[..3]), (LAST, &hello[3..])]),
        raw(3, Clean(2), &[(TEXT & !0x80 | COMPRESSED, &hello[..3]), (PING, b"between"), (LAST, &hello[3..])]),
        raw(4, Clean(1), &[(TEXT, b"not compressed")]),
        raw(5, Clean(1), &[(TEXT | COMPRESSED, &[0])]),
        raw(6, Failed, &[(TEXT & !0x80 | COMPRESSED, &hello[..3]), (LAST | COMPRESSED, &hello[3..])]),
        raw(7, Failed, &[(TEXT & !0x80, &hello[..3]), (LAST | COMPRESSED, &hello[3..])]),
        raw(8, Failed, &[(PING | COMPRESSED, b"ping")]),
        raw(9, Failed, &[(CLOSE | COMPRESSED, &[0x03, 0xe8])]),
        raw(10, Failed, &[(TEXT | 0x20, hello)]),
        raw(11, Failed, &[(TEXT | COMPRESSED | 0x10, hello)]),
        raw(12, Failed, &[(TEXT | COMPRESSED, b"\xff\xff\xff\xff this is not deflate")]),
        raw(13, Failed, &[(LAST | COMPRESSED, hello)]),
    ]);
    // Not UTF-8 once it is inflated.
    let broken = Message { first: TEXT, data: b"\xce\xba\xed\xa0\x80".to_vec(), fragment: 0, is_compressed: true };
    let case = Case { offer: OFFERS[0].into(), messages: vec![broken], ..Case::new("13.21.14", Failed, Vec::new()) };
    cases.push(case);
    // Without the extension the bit means nothing.
    cases.push(Case::of("13.21.15", Failed, &[(TEXT | COMPRESSED, hello)]));
    cases
}

/// Messages of one kind of data: some compressed, one not.
fn compressed(id: String, offer: &str, kind: u32, size: usize, fragment: usize) -> Case {
    let count = if size > 16_384 { 2 } else { 8 };
    let first = if kind == 5 { BINARY } else { TEXT };
    let messages: Vec<Message> = (0..count)
        .map(|number| Message { first, data: data(kind, size, number), fragment, is_compressed: number != 1 })
        .collect();
    Case { offer: offer.into(), messages, ..Case::new(id, Clean(count), Vec::new()) }
}

/// The catalogue's five: JSON, plain text, source code, markup, and what cannot be compressed.
fn data(kind: u32, size: usize, number: usize) -> Vec<u8> {
    let line = |at: usize| match kind {
        1 => format!("{{\"id\":{at},\"name\":\"entry-{}\",\"tags\":[\"a\",\"b\"]}},", at * 31 % 97),
        2 => format!("Zwölf Boxkämpfer jagten {at} große Viktor quer über den Sylter Deich. ")
            .replace(|letter: char| !letter.is_ascii(), "?"),
        3 => format!("fn function_{at}(value: u32) -> u32 {{\n    value.wrapping_mul({})\n}}\n", at * 17),
        _ => format!("<tr class=\"row\"><td>{at}</td><td>{}</td></tr>\n", at * at),
    };
    let mut state = (number as u32 + 1).wrapping_mul(2_654_435_761);
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let mut data: Vec<u8> = match kind {
        5 => (0..size).map(|_| random()).collect(),
        _ => (number * 7..).flat_map(|at| line(at).into_bytes()).take(size).collect(),
    };
    data.truncate(size);
    data
}
