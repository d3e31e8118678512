//! Requests of HTTP and messages of WebSocket, and the check of what comes back.
//!
//! An answer of the lab's origin begins with the word that its target named, a keyed hash of who asked: the answer to another
//! stream or connection is seen, as is one of another length. A message of WebSocket is a value as a key would hold it.

use weir_base::Rng;

use super::{Integrity, Plan, Planner};
use crate::scenario::{Protocol, Scenario};
use crate::shard::Shard;
use crate::values::{Generation, Seen, Values};

/// Digits of a word.
const WORD_BYTES: usize = 16;
/// What the origin fills bodies with.
const FILLING: u8 = b'x';

/// Static table of HPACK: `:method: GET` and `:scheme: http` whole, the names of `:path` and `:authority` (RFC 7541
/// appendix A).
const METHOD_GET: u8 = 0x82;
const SCHEME_HTTP: u8 = 0x86;
const PATH: u8 = 0x04;
const AUTHORITY: u8 = 0x01;

/// First byte of a message that is whole and not text, and what says that a mask follows (RFC 6455 section 5.2).
const FINAL_BINARY: u8 = 0x82;
const MASKED: u8 = 0x80;

/// A name for request `at` of a shard that no other shard gives.
fn name_of(shard: Shard, at: usize) -> u64 {
    (u64::from(shard.index()) << 32) | at as u64
}

impl Planner<'_> {
    /// Writes the next request into the arena.
    pub(super) fn plan_http(&mut self) -> Plan {
        let Scenario { protocol, request, .. } = self.scenario;
        let name = name_of(self.shard, self.plans.len());
        if *protocol == Protocol::WebSocket {
            let mut message = Vec::new();
            self.values.write(name, Generation::PRELOADED, &mut message);
            write_masked(&message, &mut self.rng, &mut self.arena);
            return Plan::Message;
        }
        let size = self.values.size(name, Generation::PRELOADED);
        let own;
        let path = match &request.path {
            Some(path) => path,
            None => {
                let word = digits(self.values.word(name));
                own = format!("/{size}/{}", String::from_utf8_lossy(&word));
                &own
            }
        };
        match protocol {
            Protocol::Http2 => write_header_block(path, &request.host, &mut self.arena),
            _ => {
                let text = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", request.host);
                self.arena.extend_from_slice(text.as_bytes());
            }
        }
        // Sizes end at a mebibyte.
        Plan::Body { size: size as u32, has_word: request.path.is_none() }
    }
}

/// Whether `body` is what request `at` asked for.
pub(super) fn check_body(values: &Values, shard: Shard, at: usize, plan: (u32, bool), body: &[u8]) -> Integrity {
    let (size, has_word) = plan;
    if body.len() != size as usize {
        return if body.is_empty() { Integrity::Missing } else { Integrity::Mismatch };
    }
    if !has_word {
        return Integrity::Ok;
    }
    let word = digits(values.word(name_of(shard, at)));
    let (begin, rest) = body.split_at(body.len().min(WORD_BYTES));
    match begin == &word[..begin.len()] && rest.iter().all(|byte| *byte == FILLING) {
        true => Integrity::Ok,
        false => Integrity::Mismatch,
    }
}

/// Whether `message` is the one that request `at` was.
pub(super) fn check_message(values: &Values, shard: Shard, at: usize, message: &[u8]) -> Integrity {
    match values.recognise(name_of(shard, at), message) {
        Seen::Value(Generation::PRELOADED) | Seen::Short => Integrity::Ok,
        Seen::Value(_) | Seen::Foreign => Integrity::Mismatch,
    }
}

fn digits(word: u64) -> [u8; WORD_BYTES] {
    std::array::from_fn(|at| b"0123456789abcdef"[(word >> (60 - 4 * at)) as usize & 15])
}

/// A header block that needs no state of the connection: nothing in it goes into the table of the server.
fn write_header_block(path: &str, host: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&[METHOD_GET, SCHEME_HTTP]);
    for (name, value) in [(PATH, path), (AUTHORITY, host)] {
        out.push(name);
        write_length(value.len(), out);
        out.extend_from_slice(value.as_bytes());
    }
}

/// An integer of HPACK behind one bit that says that no Huffman code follows (RFC 7541 section 5.1).
fn write_length(length: usize, out: &mut Vec<u8>) {
    const PREFIX: usize = 127;
    if length < PREFIX {
        return out.push(length as u8);
    }
    out.push(PREFIX as u8);
    let mut left = length - PREFIX;
    while left >= 128 {
        out.push(0x80 | (left & 127) as u8);
        left >>= 7;
    }
    out.push(left as u8);
}

/// A message in one frame.
fn write_masked(message: &[u8], rng: &mut Rng, out: &mut Vec<u8>) {
    out.push(FINAL_BINARY);
    match message.len() {
        length @ 0..126 => out.push(MASKED | length as u8),
        length @ 126..65_536 => {
            out.push(MASKED | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(MASKED | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    let mask = (rng.next_u64() as u32).to_be_bytes();
    out.extend_from_slice(&mask);
    out.extend(message.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::Requests;
    use crate::scenario;

    fn requests(protocol: &str, more: &str) -> Requests {
        let source = format!(
            "name = \"s\"\nprotocol = \"{protocol}\"\npayload = [{{ size = 8 }}, {{ size = 300 }}]\n{more}\
             [[phase]]\nrate = 10\nduration = \"1s\"\n"
        );
        let scenario = scenario::parse("s.toml", &source).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        Requests::build(&scenario, Shard::new(1, 2).expect("a shard"), 50)
    }

    /// The size and the word that request `index` asks for.
    fn target(requests: &Requests, index: u64) -> (usize, String) {
        let text = String::from_utf8_lossy(requests.bytes(index)).into_owned();
        let path = text.split(' ').nth(1).expect("a path");
        let (size, word) = path[1..].split_once('/').expect("two parts");
        (size.parse().expect("a number"), word.to_owned())
    }

    #[test]
    fn the_answer_to_another_request_is_seen_by_its_word_and_its_length() {
        let requests = requests("http1", "");
        assert_eq!(requests.len(), 50);
        let mut sizes = [0, 0];
        for index in 0..50 {
            let (size, word) = target(&requests, index);
            sizes[usize::from(size == 300)] += 1;
            let mut body = word.into_bytes();
            body.resize(size.max(16), b'x');
            body.truncate(size);
            assert_eq!(requests.check_body(index, &body), Some(Integrity::Ok));
            assert_eq!(requests.check_body(index + 50, &body), Some(Integrity::Ok), "the next round");
            assert_eq!(requests.check_body((index + 1) % 50, &body), Some(Integrity::Mismatch));
            *body.last_mut().expect("a byte") ^= 1;
            assert_eq!(requests.check_body(index, &body), Some(Integrity::Mismatch));
            assert_eq!(requests.check_body(index, &body[1..]), Some(Integrity::Mismatch));
            assert_eq!(requests.check_body(index, b""), Some(Integrity::Missing));
        }
        assert!(sizes[0] > 10 && sizes[1] > 10, "{sizes:?}");
    }

    #[test]
    fn a_path_of_ones_own_is_asked_for_as_it_stands_and_only_its_length_is_checked() {
        let single = "name = \"s\"\nprotocol = \"http1\"\npayload.size = 3\n[request]\npath = \"/a?b\"\nhost = \"h:1\"\n\
                      [[phase]]\nrate = 10\nduration = \"1s\"\n";
        let scenario = scenario::parse("s.toml", single).expect("right");
        let requests = Requests::build(&scenario, Shard::ONLY, 5);
        assert_eq!(requests.bytes(3), b"GET /a?b HTTP/1.1\r\nHost: h:1\r\n\r\n");
        assert_eq!(requests.check_body(3, b"any"), Some(Integrity::Ok));
        assert_eq!(requests.check_body(3, b"more"), Some(Integrity::Mismatch));
    }

    #[test]
    fn a_header_block_is_plain_hpack() {
        let block = requests("http2", "request.host = \"h\"\n").bytes(0).to_vec();
        assert_eq!(block[..3], [0x82, 0x86, 0x04]);
        let path = usize::from(block[3]);
        assert_eq!(block[4], b'/');
        assert_eq!(&block[4 + path..], b"\x01\x01h");
        let mut long = Vec::new();
        write_length(127 + 128 + 5, &mut long);
        assert_eq!(long, [127, 0x85, 1]);
    }

    #[test]
    fn a_message_is_masked_and_recognised_when_it_comes_back() {
        let requests = requests("websocket", "");
        for index in 0..50 {
            let frame = requests.bytes(index);
            let header = weir_websocket_codec::FrameHeader::read(frame).expect("valid").expect("whole");
            let mask = header.mask.expect("a client's");
            let masked = &frame[header.bytes..];
            assert_eq!(masked.len() as u64, header.payload);
            let message: Vec<u8> = masked.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
            assert_eq!(requests.check_message(index, &message), Some(Integrity::Ok));
            assert_eq!(requests.check_message((index + 1) % 50, &message), Some(Integrity::Mismatch));
        }
    }
}
