//! Lines that come back: a message of so many bytes in hexadecimal digits and `\n`, and the same back.

use super::messages::Messages;
use super::{Common, Family, Protocol, REMEDY, Seat, Work};
use crate::answer::{Answer, Reply};
use crate::requests::Planner;
use crate::scenario::Scenario;
use crate::scenario::table::Table;
use crate::shard::Shard;
use crate::wire::{Broken, Each, Leaving, Of, Wire};

/// See the module.
pub(super) struct Echo;

impl Protocol for Echo {
    fn word(&self) -> &'static str {
        "echo"
    }

    fn title(&self) -> &'static str {
        "Echo"
    }

    fn family(&self) -> &'static Family {
        &Family { own_keys: &[], remedy: REMEDY, origin: "tcp", has_workers: true, usual_peers: &["haproxy"] }
    }

    fn read(&self, _root: &Table<'_>, _common: &Common<'_>) -> Option<Work> {
        Some(Work::default())
    }

    fn planner<'a>(&self, scenario: &'a Scenario, shard: Shard) -> Box<dyn Planner + 'a> {
        Box::new(Messages::new(scenario, shard, frame))
    }

    fn wire(&self, scenario: &Scenario, _seat: Seat) -> Box<dyn Wire> {
        Box::new(Echoed { digits_max: 2 * scenario.payload.bytes_max(), line: Vec::new() })
    }

    fn mix(&self, _scenario: &Scenario) -> String {
        "line echo".to_owned()
    }
}

/// A message as a line: its bytes are any, and those of a line are not.
fn frame(message: &[u8], arena: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    arena.extend(message.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| DIGITS[usize::from(digit)]));
    arena.push(b'\n');
}

/// The message of a line; `None`: it is none.
fn unframe(line: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |pair: &[u8]| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8);
    line.chunks(2).map(byte).collect()
}

/// Collects lines, each no longer than one that was sent, or a refusal: `!` and a word.
struct Echoed {
    digits_max: usize,
    line: Vec<u8>,
}

/// Bytes of a refusal: longer ones are no answer of a gateway.
const REFUSAL_BYTES_MAX: usize = 64;

impl Wire for Echoed {
    fn take(&mut self, chunk: &[u8], _out: &mut Vec<u8>, each: Each<'_>) -> Result<Leaving, Broken> {
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.len() > self.digits_max.max(REFUSAL_BYTES_MAX) + 1 {
                return Err(Broken);
            }
            let Some(line) = self.line.strip_suffix(b"\n") else { break };
            match line.strip_prefix(b"!") {
                Some(word) => each(Of::Oldest, Reply { answer: Answer::Error(word), body: Some(word) })?,
                None => each(Of::Oldest, Reply::value(&unframe(line).ok_or(Broken)?))?,
            }
            self.line.clear();
        }
        Ok(Leaving::No)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(wire: &mut Echoed, chunk: &[u8], found: &mut Vec<Vec<u8>>) -> Result<Leaving, Broken> {
        wire.take(chunk, &mut Vec::new(), &mut |of, reply: Reply<'_>| {
            assert_eq!(of, Of::Oldest);
            found.push(reply.body.expect("a message").to_vec());
            Ok(())
        })
    }

    #[test]
    fn any_message_comes_back_however_its_line_is_cut() {
        let message: Vec<u8> = (0..=255).collect();
        let mut lines = Vec::new();
        frame(&message, &mut lines);
        frame(b"\n", &mut lines);
        lines.extend_from_slice(b"!timeout\n");
        for cut in 0..lines.len() {
            let (mut wire, mut found) = (Echoed { digits_max: 512, line: Vec::new() }, Vec::new());
            for part in [&lines[..cut], &lines[cut..]] {
                assert_eq!(collect(&mut wire, part, &mut found), Ok(Leaving::No));
            }
            assert_eq!(found, [&message[..], b"\n", b"timeout"], "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_line_of_digits_breaks_the_connection() {
        for line in [&b"xy\n"[..], b"abc\n", &[b'a'; 100]] {
            let mut wire = Echoed { digits_max: 8, line: Vec::new() };
            assert_eq!(collect(&mut wire, line, &mut Vec::new()), Err(Broken), "{line:?}");
        }
    }
}
