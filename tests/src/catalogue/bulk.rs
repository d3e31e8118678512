//! Sections 9 and 10: large messages, many fragments, many writes, many messages. The catalogue's sizes go up to 16 MiB; these
//! stay where a debug build takes no time.

use super::{
    Case, End, Step,
    first::{BINARY, BINARY_AND_MORE, LAST, MORE, TEXT, TEXT_AND_MORE},
};
use crate::websocket::masked;
use End::Clean;

const KIB: usize = 1024;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    // The odd section of each pair has texts, the even one the same in binary.
    for (more, first, first_of_many) in [(0, TEXT, TEXT_AND_MORE), (1, BINARY, BINARY_AND_MORE)] {
        let content = |length: usize| (0..length).map(|at| b'!' + (at * 7919 % 89) as u8).collect::<Vec<u8>>();
        for (number, size) in [64 * KIB, 256 * KIB, 1024 * KIB, 2048 * KIB].into_iter().enumerate() {
            cases.push(Case::of(format!("9.{}.{}", 1 + more, number + 1), Clean(1), &[(first, &content(size))]));
        }
        for (number, size) in [64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB].into_iter().enumerate() {
            let frames = fragments(first_of_many, &content(512 * KIB), size);
            cases.push(Case::new(format!("9.{}.{}", 3 + more, number + 1), Clean(1), vec![Step::Send(frames)]));
        }
        for (number, size) in [64, 128, 256, 512, KIB, 2 * KIB].into_iter().enumerate() {
            let frame = masked(first, &content(64 * KIB));
            cases.push(Case::new(format!("9.{}.{}", 5 + more, number + 1), Clean(1), vec![Step::Pieces(frame, size)]));
        }
        for (number, size) in [0, 16, 64, 256, KIB, 4 * KIB].into_iter().enumerate() {
            let frame = masked(first, &content(size));
            let steps = (1..=50).flat_map(|count| [Step::Send(frame.clone()), Step::Await(count)]);
            cases.push(Case::new(format!("9.{}.{}", 7 + more, number + 1), Clean(50), steps.collect()));
        }
        // Beyond the catalogue: the same without waiting.
        let frame = masked(first, &content(KIB)).repeat(200);
        cases.push(Case::new(format!("9.{}.7", 7 + more), Clean(200), vec![Step::Send(frame)]));
    }
    let message = fragments(TEXT_AND_MORE, &vec![b'*'; 65_536], 1300);
    cases.push(Case::new("10.1.1", Clean(1), vec![Step::Send(message)]));
    cases
}

fn fragments(first: u8, content: &[u8], size: usize) -> Vec<u8> {
    let count = content.len().div_ceil(size);
    let first_byte = |at: usize| match at {
        0 => first,
        at if at + 1 == count => LAST,
        _ => MORE,
    };
    content.chunks(size).enumerate().flat_map(|(at, piece)| masked(first_byte(at), piece)).collect()
}
