//! Sections 1 to 5: framing, pings and pongs, reserved bits, opcodes, fragments.

use super::{
    Case, End, Step, bytes,
    first::{BINARY, BINARY_AND_MORE, LAST, MORE, PING, PONG, TEXT, TEXT_AND_MORE},
};
use crate::websocket::masked;
use End::{Clean, Failed};

pub(super) fn cases() -> Vec<Case> {
    [framing(), pings(), reserved_bits(), opcodes(), fragments()].concat()
}

fn framing() -> Vec<Case> {
    let mut cases = Vec::new();
    for (kind, first, byte) in [(1, TEXT, b'*'), (2, BINARY, 0xfe)] {
        for (number, length) in [0, 125, 126, 127, 128, 65_535, 65_536].into_iter().enumerate() {
            cases.push(Case::of(format!("1.{kind}.{}", number + 1), Clean(1), &[(first, &vec![byte; length])]));
        }
        let frame = masked(first, &vec![byte; 65_536]);
        cases.push(Case::new(format!("1.{kind}.8"), Clean(1), vec![Step::Pieces(frame, 997)]));
    }
    cases
}

fn pings() -> Vec<Case> {
    let long = [0xfe; 126];
    let binary = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff";
    let ten: Vec<Vec<u8>> = (0..10).map(|number| format!("payload-{number}").into_bytes()).collect();
    let ten: Vec<(u8, &[u8])> = ten.iter().map(|payload| (PING, &payload[..])).collect();
    vec![
        Case::of("2.1", Clean(1), &[(PING, b"")]),
        Case::of("2.2", Clean(1), &[(PING, b"Hello, world!")]),
        Case::of("2.3", Clean(1), &[(PING, binary)]),
        Case::of("2.4", Clean(1), &[(PING, &long[..125])]),
        Case::of("2.5", Failed, &[(PING, &long)]),
        Case::in_pieces("2.6", Clean(1), &[(PING, &long[..125])]),
        Case::of("2.7", Clean(0), &[(PONG, b"")]),
        Case::of("2.8", Clean(0), &[(PONG, b"unsolicited")]),
        Case::of("2.9", Clean(1), &[(PONG, b"unsolicited"), (PING, b"ping")]),
        Case::of("2.10", Clean(10), &ten),
        Case::in_pieces("2.11", Clean(10), &ten),
    ]
}

fn reserved_bits() -> Vec<Case> {
    let [one, two, three, four, five, six, seven] = [1, 2, 3, 4, 5, 6, 7].map(|bits: u8| bits << 4);
    let hello: &[u8] = b"Hello, world!";
    let one_of = [(TEXT, hello), (TEXT | two, hello), (PING, b"")];
    vec![
        Case::of("3.1", Failed, &[(TEXT | four, hello)]),
        Case::of("3.2", Failed, &one_of),
        echoed_first("3.3", &[(TEXT | three, hello), (PING, b"")], usize::MAX),
        echoed_first("3.4", &[(TEXT | four, hello), (PING, b"")], 1),
        Case::of("3.5", Failed, &[(BINARY | five, b"\0\xff")]),
        Case::of("3.6", Failed, &[(PING | six, hello)]),
        Case::of("3.7", Failed, &[(0x88 | seven, b"")]),
        echoed_first("3.8", &[(TEXT | one, hello), (PING, b"")], usize::MAX),
    ]
}

/// A text that is answered, and then these frames in writes of so many bytes.
fn echoed_first(id: impl Into<String>, frames: &[(u8, &[u8])], size: usize) -> Case {
    let before = masked(TEXT, b"Hello, world!");
    Case::new(id, Failed, vec![Step::Send(before), Step::Await(1), Step::Pieces(bytes(frames), size)])
}

fn opcodes() -> Vec<Case> {
    let mut cases = Vec::new();
    for (kind, opcode) in [(1, 3), (2, 11)] {
        let hello: &[u8] = b"Hello, world!";
        let [one, two, three, four, five] = [0, 1, 2, 3, 4].map(|more| 0x80 | (opcode + more));
        let id = |number: u32| format!("4.{kind}.{number}");
        cases.extend([
            Case::of(id(1), Failed, &[(one, b"")]),
            Case::of(id(2), Failed, &[(two, b"reserved opcode payload")]),
            echoed_first(id(3), &[(three, b""), (PING, b"")], usize::MAX),
            Case::of(id(4), Failed, &[(TEXT, hello), (four, hello), (PING, b"")]),
            echoed_first(id(5), &[(five, hello), (PING, b"")], 1),
        ]);
    }
    cases
}

fn fragments() -> Vec<Case> {
    let (one, two): (&[u8], &[u8]) = (b"fragment1", b"fragment2");
    let text: [(u8, &[u8]); 2] = [(TEXT_AND_MORE, one), (LAST, two)];
    let with_ping: [(u8, &[u8]); 3] = [(TEXT_AND_MORE, one), (PING, b"ping"), (LAST, two)];
    let stray: [(u8, &[u8]); 2] = [(LAST, b"non-continuation payload"), (TEXT, b"Hello, world!")];
    let stray_and_more: [(u8, &[u8]); 2] = [(MORE, b"non-continuation payload"), (TEXT, b"Hello, world!")];
    let five: [(u8, &[u8]); 7] = [
        (TEXT_AND_MORE, one),
        (MORE, two),
        (PING, b"pongme 1!"),
        (MORE, b"fragment3"),
        (MORE, b"fragment4"),
        (PING, b"pongme 2!"),
        (LAST, b"fragment5"),
    ];
    let paced = five.iter().map(|(first, payload)| Step::Send(masked(*first, payload)));
    let paced: Vec<Step> = paced.flat_map(|step| [step, Step::Pause(20)]).collect();
    vec![
        Case::of("5.1", Failed, &[(0x09, one), (LAST, two)]),
        Case::of("5.2", Failed, &[(0x0a, one), (LAST, two)]),
        Case::of("5.3", Clean(1), &text),
        Case::frame_by_frame("5.4", Clean(1), &text),
        Case::in_pieces("5.5", Clean(1), &text),
        Case::of("5.6", Clean(2), &with_ping),
        Case::frame_by_frame("5.7", Clean(2), &with_ping),
        Case::in_pieces("5.8", Clean(2), &with_ping),
        Case::of("5.9", Failed, &stray),
        Case::frame_by_frame("5.10", Failed, &stray),
        Case::in_pieces("5.11", Failed, &stray),
        Case::of("5.12", Failed, &stray_and_more),
        Case::frame_by_frame("5.13", Failed, &stray_and_more),
        Case::in_pieces("5.14", Failed, &stray_and_more),
        Case::of("5.15", Failed, &[text[0], text[1], (MORE, b"fragment3"), (TEXT, b"fragment4")]),
        Case::of("5.16", Failed, &[(MORE, one), (TEXT_AND_MORE, two), (LAST, b"fragment3")].repeat(2)),
        Case::of("5.17", Failed, &[(LAST, one), (TEXT_AND_MORE, two), (LAST, b"fragment3")].repeat(2)),
        Case::of("5.18", Failed, &[(TEXT_AND_MORE, one), (TEXT, two)]),
        Case::new("5.19", Clean(3), paced),
        Case::frame_by_frame("5.20", Clean(3), &five),
        // Beyond the catalogue.
        Case::of("5.21", Failed, &[(BINARY_AND_MORE, one), (BINARY, two)]),
        Case::of("5.22", Clean(1), &[(BINARY_AND_MORE, b""), (MORE, b""), (LAST, b"")]),
    ]
}
