//! Section 6: UTF-8, whole, in fragments and cut. The sequences are those of Markus Kuhn's stress test.

use super::{
    Case, End, Step, bytes,
    first::{LAST, MORE, TEXT, TEXT_AND_MORE},
};
use crate::websocket::masked;
use End::{Clean, Failed};

/// Valid: "κόσμε" and others.
const GREETING: &[u8] = "Hello-µ@ßöäüàá-UTF-8!!".as_bytes();
const KOSME: &[u8] = "κόσμε".as_bytes();
const SURROGATE: &[u8] = b"\xed\xa0\x80";
/// Valid, then a surrogate, then valid.
const BROKEN: &[u8] = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80\x65\x64\x69\x74\x65\x64";

/// Bytes, and whether they are valid.
type Sequence = (&'static [u8], bool);

/// Sections 6.7 to 6.23.
const SEQUENCES: &[(u32, &[Sequence])] = &[
    (7, &[(b"\x00", true), (b"\xc2\x80", true), (b"\xe0\xa0\x80", true), (b"\xf0\x90\x80\x80", true)]),
    (8, &[(b"\xf8\x88\x80\x80\x80", false), (b"\xfc\x84\x80\x80\x80\x80", false)]),
    (9, &[(b"\x7f", true), (b"\xdf\xbf", true), (b"\xef\xbf\xbf", true), (b"\xf4\x8f\xbf\xbf", true)]),
    (10, &[(b"\xf7\xbf\xbf\xbf", false), (b"\xfb\xbf\xbf\xbf\xbf", false), (b"\xfd\xbf\xbf\xbf\xbf\xbf", false)]),
    (11, &[(b"\xed\x9f\xbf", true), (b"\xee\x80\x80", true), (b"\xef\xbf\xbd", true), (b"\xf4\x8f\xbf\xbf", true), (b"\xf4\x90\x80\x80", false)]),
    (12, &[
        (b"\x80", false),
        (b"\xbf", false),
        (b"\x80\xbf", false),
        (b"\x80\xbf\x80", false),
        (b"\x80\xbf\x80\xbf", false),
        (b"\x80\xbf\x80\xbf\x80", false),
        (b"\x80\xbf\x80\xbf\x80\xbf", false),
        (b"\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98\x99\x9a\x9b", false),
    ]),
    (13, &[
        (b"\xc0 \xc1 \xc2 \xc3 \xc4 \xc5 \xc6 \xc7 \xc8 \xc9 ", false),
        (b"\xe0 \xe1 \xe2 \xe3 \xe4 \xe5 \xe6 \xe7 ", false),
        (b"\xf0 \xf1 \xf2 \xf3 \xf4 \xf5 \xf6 ", false),
        (b"\xf8 \xf9 \xfa ", false),
        (b"\xfc ", false),
    ]),
    (14, &[
        (b"\xc0", false),
        (b"\xe0\x80", false),
        (b"\xf0\x80\x80", false),
        (b"\xf8\x80\x80\x80", false),
        (b"\xfc\x80\x80\x80\x80", false),
        (b"\xdf", false),
        (b"\xef\xbf", false),
        (b"\xf7\xbf\xbf", false),
        (b"\xfb\xbf\xbf\xbf", false),
        (b"\xfd\xbf\xbf\xbf\xbf", false),
    ]),
    (15, &[(b"\xc0\xe0\x80\xf0\x80\x80\xf8\x80\x80\x80\xfc\x80\x80\x80\x80\xdf\xef\xbf\xf7\xbf\xbf\xfb\xbf\xbf\xbf\xfd\xbf\xbf\xbf\xbf", false)]),
    (16, &[(b"\xfe", false), (b"\xff", false), (b"\xfe\xfe\xff\xff", false)]),
    (17, &[
        (b"\xc0\xaf", false),
        (b"\xe0\x80\xaf", false),
        (b"\xf0\x80\x80\xaf", false),
        (b"\xf8\x80\x80\x80\xaf", false),
        (b"\xfc\x80\x80\x80\x80\xaf", false),
    ]),
    (18, &[
        (b"\xc1\xbf", false),
        (b"\xe0\x9f\xbf", false),
        (b"\xf0\x8f\xbf\xbf", false),
        (b"\xf8\x87\xbf\xbf\xbf", false),
        (b"\xfc\x83\xbf\xbf\xbf\xbf", false),
    ]),
    (19, &[
        (b"\xc0\x80", false),
        (b"\xe0\x80\x80", false),
        (b"\xf0\x80\x80\x80", false),
        (b"\xf8\x80\x80\x80\x80", false),
        (b"\xfc\x80\x80\x80\x80\x80", false),
    ]),
    (20, &[
        (b"\xed\xa0\x80", false),
        (b"\xed\xad\xbf", false),
        (b"\xed\xae\x80", false),
        (b"\xed\xaf\xbf", false),
        (b"\xed\xb0\x80", false),
        (b"\xed\xbe\x80", false),
        (b"\xed\xbf\xbf", false),
    ]),
    (21, &[
        (b"\xed\xa0\x80\xed\xb0\x80", false),
        (b"\xed\xa0\x80\xed\xbf\xbf", false),
        (b"\xed\xad\xbf\xed\xb0\x80", false),
        (b"\xed\xad\xbf\xed\xbf\xbf", false),
        (b"\xed\xae\x80\xed\xb0\x80", false),
        (b"\xed\xae\x80\xed\xbf\xbf", false),
        (b"\xed\xaf\xbf\xed\xb0\x80", false),
        (b"\xed\xaf\xbf\xed\xbf\xbf", false),
    ]),
    (23, &[(b"\xef\xbf\xbe", true), (b"\xef\xbf\xbf", true), (b"\xef\xbf\xb9", true), (b"\xef\xbf\xba", true), (b"\xef\xbf\xbb", true), (b"\xef\xbf\xbc", true), (b"\xef\xbf\xbd", true)]),
];

pub(super) fn cases() -> Vec<Case> {
    let end = |is_valid: bool| if is_valid { Clean(1) } else { Failed };
    let mut cases = vec![
        Case::of("6.1.1", Clean(1), &[(TEXT, b"")]),
        Case::of("6.1.2", Clean(1), &[(TEXT_AND_MORE, b""), (MORE, b""), (LAST, b"")]),
        Case::of("6.1.3", Clean(1), &[(TEXT_AND_MORE, b""), (MORE, b"middle frame payload"), (LAST, b"")]),
        Case::of("6.2.1", Clean(1), &[(TEXT, GREETING)]),
        Case::of("6.2.2", Clean(1), &[(TEXT_AND_MORE, &GREETING[..8]), (LAST, &GREETING[8..])]),
        Case::of("6.2.3", Clean(1), &byte_fragments(GREETING)),
        Case::of("6.2.4", Clean(1), &byte_fragments(KOSME)),
        Case::of("6.3.1", Failed, &[(TEXT, BROKEN)]),
        Case::of("6.3.2", Failed, &byte_fragments(BROKEN)),
        // Failing early: the rest of the message never comes.
        slow("6.4.1", &[(TEXT_AND_MORE, KOSME), (MORE, b"\xf4\x90\x80\x80"), (LAST, b"edited")]),
        slow("6.4.2", &[(TEXT_AND_MORE, KOSME), (MORE, b"\xf4"), (MORE, b"\x90"), (LAST, b"\x80\x80edited")]),
        slow_bytes("6.4.3", &[KOSME, b"\xf4\x90\x80\x80", b"edited"].concat(), KOSME.len() + 4),
        slow_bytes("6.4.4", &[KOSME, b"\xf4\x90\x80\x80", b"edited"].concat(), KOSME.len() + 1),
        Case::of("6.5.1", Clean(1), &[(TEXT, KOSME)]),
        Case::of("6.5.2", Clean(1), &[(TEXT_AND_MORE, &KOSME[..5]), (LAST, &KOSME[5..])]),
        Case::of("6.5.3", Clean(1), &[(TEXT_AND_MORE, &KOSME[..1]), (LAST, &KOSME[1..])]),
        Case::in_pieces("6.5.4", Clean(1), &[(TEXT, KOSME)]),
        Case::in_pieces("6.5.5", Clean(1), &byte_fragments(KOSME)),
    ];
    for length in 1..=KOSME.len() {
        let is_valid = std::str::from_utf8(&KOSME[..length]).is_ok();
        cases.push(Case::of(format!("6.6.{length}"), end(is_valid), &[(TEXT, &KOSME[..length])]));
    }
    for (section, sequences) in SEQUENCES {
        for (number, (sequence, is_valid)) in sequences.iter().enumerate() {
            let id = format!("6.{section}.{}", number + 1);
            cases.push(Case::of(&id, end(*is_valid), &[(TEXT, sequence)]));
            if sequence.len() > 1 {
                cases.push(Case::of(format!("{id}.1"), end(*is_valid), &byte_fragments(sequence)));
            }
        }
    }
    // 6.22: noncharacters, the last two of each plane; they are valid.
    for (number, plane) in (0_u32..=16).flat_map(|plane| [plane << 16 | 0xfffe, plane << 16 | 0xffff]).enumerate() {
        let text = char::from_u32(plane).expect("a scalar value").to_string();
        cases.push(Case::of(format!("6.22.{}", number + 1), Clean(1), &[(TEXT, text.as_bytes())]));
    }
    // A surrogate whose halves are in two fragments, and one between two valid texts.
    cases.push(Case::of("6.24.1", Failed, &[(TEXT_AND_MORE, &SURROGATE[..1]), (LAST, &SURROGATE[1..])]));
    cases.push(Case::of("6.24.2", Failed, &[(TEXT, KOSME), (TEXT, SURROGATE), (TEXT, KOSME)]));
    cases
}

/// Each byte in a fragment of its own.
fn byte_fragments(text: &[u8]) -> Vec<(u8, &[u8])> {
    let last = text.len() - 1;
    let first = |at: usize| match at {
        0 => TEXT_AND_MORE,
        at if at == last => LAST,
        _ => MORE,
    };
    text.chunks(1).enumerate().map(|(at, byte)| (first(at), byte)).collect()
}

/// Frames with pauses between them.
fn slow(id: &str, frames: &[(u8, &[u8])]) -> Case {
    let steps = frames.iter().flat_map(|(first, payload)| [Step::Send(masked(*first, payload)), Step::Pause(20)]);
    Case::new(id, Failed, steps.collect())
}

/// One frame with a pause behind so many bytes of its payload, and one behind the next byte.
fn slow_bytes(id: &str, text: &[u8], at: usize) -> Case {
    let frame = bytes(&[(TEXT, text)]);
    let at = frame.len() - text.len() + at;
    let parts = [&frame[..at], &frame[at..=at], &frame[at + 1..]];
    let steps = parts.iter().flat_map(|part| [Step::Send(part.to_vec()), Step::Pause(20)]);
    Case::new(id, Failed, steps.collect())
}
