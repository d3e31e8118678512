//! TCP with nothing above it: a message of so many bytes, and the same back. Nothing marks where one ends, so all have one
//! size.

use super::messages::Messages;
use super::{Common, Family, Protocol, REMEDY, Seat, Work};
use crate::reply::Reply;
use crate::requests::Planner;
use crate::scenario::Scenario;
use crate::scenario::table::Table;
use crate::shard::Shard;
use crate::url::Scheme;
use crate::wire::{GoAway, OnReply, ReplyTo, StreamError, Wire};

/// See the module.
pub(super) struct Tcp;

impl Protocol for Tcp {
    fn word(&self) -> &'static str {
        "tcp"
    }

    fn title(&self) -> &'static str {
        "TCP"
    }

    fn scheme(&self) -> Option<Scheme> {
        Some(Scheme { name: "tcp", port: None, has_path: false })
    }

    fn family(&self) -> &'static Family {
        &Family { own_keys: &[], remedy: REMEDY, origin: "tcp", has_workers: true, usual_peers: &["haproxy", "envoy"] }
    }

    fn read(&self, root: &Table<'_>, common: &Common<'_>) -> Option<Work> {
        if common.has_sizes() {
            root.refuse(
                "payload",
                "has several sizes, and nothing marks the end of a message of TCP",
                "keep one of them",
            );
        }
        Some(Work::default())
    }

    fn planner<'a>(&self, scenario: &'a Scenario, shard: Shard) -> Box<dyn Planner + 'a> {
        Box::new(Messages::new(scenario, shard, |message: &[u8], arena: &mut Vec<u8>| arena.extend_from_slice(message)))
    }

    fn wire(&self, scenario: &Scenario, _seat: Seat) -> Box<dyn Wire> {
        Box::new(EchoReader { bytes: scenario.payload.bytes_max(), partial: Vec::new() })
    }

    fn mix(&self, _scenario: &Scenario) -> String {
        "TCP echo".to_owned()
    }
}

/// Collects messages of one size. One that lies whole in a chunk is never copied.
struct EchoReader {
    bytes: usize,
    partial: Vec<u8>,
}

impl Wire for EchoReader {
    fn take(&mut self, mut chunk: &[u8], _out: &mut Vec<u8>, each: OnReply<'_>) -> Result<GoAway, StreamError> {
        if !self.partial.is_empty() {
            let lacking = self.bytes - self.partial.len();
            let (head, rest) = chunk.split_at(lacking.min(chunk.len()));
            self.partial.extend_from_slice(head);
            if self.partial.len() < self.bytes {
                return Ok(GoAway::No);
            }
            each(ReplyTo::Oldest, Reply::value(&self.partial))?;
            self.partial.clear();
            chunk = rest;
        }
        let mut messages = chunk.chunks_exact(self.bytes);
        for message in &mut messages {
            each(ReplyTo::Oldest, Reply::value(message))?;
        }
        self.partial.extend_from_slice(messages.remainder());
        Ok(GoAway::No)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::{Integrity, Requests};
    use crate::scenario;

    fn collect(wire: &mut EchoReader, chunk: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        let mut each = |of, reply: Reply<'_>| {
            assert_eq!(of, ReplyTo::Oldest);
            found.push(String::from_utf8_lossy(reply.body.expect("a message")).into_owned());
            Ok(())
        };
        assert_eq!(wire.take(chunk, &mut Vec::new(), &mut each), Ok(GoAway::No));
        found
    }

    #[test]
    fn messages_are_the_same_however_they_are_cut() {
        let stream = b"abcdefghijkl";
        for first in 0..stream.len() {
            for second in first..stream.len() {
                let mut wire = EchoReader { bytes: 4, partial: Vec::new() };
                let pieces = [&stream[..first], &stream[first..second], &stream[second..]];
                let found: Vec<String> = pieces.into_iter().flat_map(|piece| collect(&mut wire, piece)).collect();
                assert_eq!(found, ["abcd", "efgh", "ijkl"], "cut at {first} and {second}");
                assert!(wire.partial.is_empty());
            }
        }
    }

    #[test]
    fn a_message_that_nobody_sent_ends_the_connection() {
        let mut wire = EchoReader { bytes: 2, partial: Vec::new() };
        assert_eq!(wire.take(b"ab", &mut Vec::new(), &mut crate::wire::refuse_early_reply), Err(StreamError));
    }

    fn source(payload: &str) -> String {
        format!("name = \"s\"\nprotocol = \"tcp\"\n{payload}\n[[phase]]\nrate = 10\nduration = \"1s\"\n")
    }

    #[test]
    fn a_message_goes_as_it_is_and_is_recognised_when_it_comes_back() {
        for size in [8, 300] {
            let scenario = scenario::parse("s.toml", &source(&format!("payload.size = {size}"))).expect("right");
            let requests = Requests::build(&scenario, Shard::new(1, 2).expect("a shard"), 50);
            for index in 0..50 {
                let message = requests.bytes(index);
                assert_eq!(message.len(), size);
                assert_eq!(requests.check(index, message), Some(Integrity::Ok));
                assert_eq!(requests.check(index + 50, message), Some(Integrity::Ok), "the next round");
                assert_eq!(requests.check((index + 1) % 50, message), Some(Integrity::Mismatch));
            }
        }
    }

    #[test]
    fn messages_have_one_size_and_neither_keys_nor_a_request() {
        for (more, mistake) in [
            ("payload = [{ size = 1 }, { size = 2 }]", "`payload` has several sizes"),
            ("keys.count = 1", "`keys` is only for protocol = \"redis\""),
            ("command = [{ name = \"GET\" }]", "`command` is only for protocol = \"redis\""),
            ("request.path = \"/\"", "`request` is only for HTTP and WebSocket"),
            ("streams = 2", "`streams` is only for protocol = \"http2\""),
        ] {
            let mistakes = scenario::parse("s.toml", &source(more)).expect_err(more);
            assert!(mistakes.list().len() == 1 && mistakes.to_string().contains(mistake), "{mistakes}");
        }
    }
}
