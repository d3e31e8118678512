//! Publish and subscribe, in RESP2: every connection of a scenario is subscribed to one channel, and one further connection of
//! each shard publishes to its channels in turn. A subscriber expects every message of its channel, whole, once and in order.

use weir_engine::Stream;
use weir_resp::encode;

use super::check::take_bulk;
use super::wire::Replies;
use super::{Common, Family, OwnKey, Protocol, REMEDY, Seat, Work};
use crate::protocols::messages::name_of;
use crate::requests::{Expectation, Integrity, PlanPosition, Planner};
use crate::scenario::Scenario;
use crate::scenario::table::Table;
use crate::shard::Shard;
use crate::values::{Generation, ReplyValue, Values};
use crate::wire::{GoAway, OnReply, Pending, StreamError, Wire, receive_chunk};

/// Channels of a scenario. Default 100,000: with one subscriber each more than one address has ports for.
const CHANNELS_MAX: u32 = 100_000;
/// Digits of the number in the name of a channel. It is fixed, so that all frames have the same length.
const DIGITS: usize = 6;

/// See the module.
pub(crate) struct PubSub;

impl Protocol for PubSub {
    fn word(&self) -> &'static str {
        "redis-pubsub"
    }

    fn title(&self) -> &'static str {
        "Redis, publish and subscribe"
    }

    fn family(&self) -> &'static Family {
        &Family {
            own_keys: &[OwnKey { name: "channels", why: "is only for protocol = \"redis-pubsub\"" }],
            remedy: REMEDY,
            origin: "redis",
            has_workers: false,
            usual_peers: &["haproxy"],
        }
    }

    fn read(&self, root: &Table<'_>, common: &Common<'_>) -> Option<Work> {
        if common.integrity == Some(false) {
            root.refuse("integrity", "is off, and only its content says which message it is", "remove it");
        }
        let channels = root.need("channels", "100").and_then(|node| node.whole(1..=CHANNELS_MAX))?;
        let is_even = |whole: Option<u32>, part: u32| whole.is_none_or(|whole| whole.is_multiple_of(part));
        if !is_even(common.connections, channels) {
            let remedy = "every channel has as many subscribers: make `connections` a multiple of `channels`";
            root.refuse("channels", "do not divide `connections` evenly", remedy);
        }
        if common.shards.is_some_and(|shards| !is_even(Some(channels), shards)) {
            root.refuse("channels", "cannot be shared evenly by `shards`", "make them a multiple of `shards`");
        }
        Some(Work { channels, ..Work::default() })
    }

    fn planner<'a>(&self, scenario: &'a Scenario, shard: Shard) -> Box<dyn Planner + 'a> {
        let values = Values::new(scenario.seed, &scenario.payload);
        let channels = (0..channels_of(scenario, shard)).map(|at| name_of_channel(shard, at)).collect();
        Box::new(Messages { planned: 0, expected: Published { shard, channels, values } })
    }

    fn wire(&self, scenario: &Scenario, Seat { shard, at }: Seat) -> Box<dyn Wire> {
        let replies = Replies::new(Replies::bytes_max(scenario));
        let is_subscriber = at < shard.part(scenario.connections) as usize;
        match is_subscriber {
            true => {
                Box::new(Subscriber { replies, channel: name_of_channel(shard, at % channels_of(scenario, shard)) })
            }
            false => Box::new(replies),
        }
    }

    fn mix(&self, scenario: &Scenario) -> String {
        format!("messages to {} channels, {} subscribers each", scenario.channels, scenario.copies())
    }
}

fn channels_of(scenario: &Scenario, shard: Shard) -> usize {
    shard.part(scenario.channels) as usize
}

/// The name of a shard's channel, which no other shard uses.
fn name_of_channel(shard: Shard, channel: usize) -> String {
    let number = channel * shard.of() as usize + shard.index() as usize;
    format!("channel:{number:0DIGITS$}")
}

struct Messages {
    planned: usize,
    expected: Published,
}

impl Planner for Messages {
    fn plan(&mut self, arena: &mut Vec<u8>) {
        let Published { shard, channels, values } = &self.expected;
        let mut message = Vec::new();
        values.write(name_of(*shard, self.planned), Generation::PRELOADED, &mut message);
        let channel = &channels[self.planned % channels.len()];
        encode::command(arena, [b"PUBLISH", channel.as_bytes(), &message]);
        self.planned += 1;
    }

    fn finish(self: Box<Self>) -> Box<dyn Expectation> {
        Box::new(self.expected)
    }
}

#[derive(Debug)]
struct Published {
    shard: Shard,
    /// Names of those of this shard.
    channels: Vec<String>,
    values: Values,
}

impl Published {
    /// The message in a frame of its channel.
    fn message<'a>(&self, at: usize, frame: &'a [u8]) -> Option<&'a [u8]> {
        let (kind, rest) = take_bulk(frame.strip_prefix(b"*3\r\n")?)?;
        let (channel, rest) = take_bulk(rest)?;
        let is_right = kind == Some(b"message") && channel? == self.channels[at % self.channels.len()].as_bytes();
        let (message, rest) = take_bulk(rest)?;
        message.filter(|_| is_right && rest.is_empty())
    }
}

impl Expectation for Published {
    fn check(&self, place: PlanPosition, frame: &[u8]) -> Option<Integrity> {
        let message = self.message(place.at, frame);
        let seen = message.map(|message| self.values.recognise(name_of(self.shard, place.at), message));
        Some(match seen {
            Some(ReplyValue::Value(Generation::PRELOADED) | ReplyValue::Short) => Integrity::Ok,
            _ => Integrity::Mismatch,
        })
    }
}

/// Hears one channel.
struct Subscriber {
    replies: Replies,
    channel: String,
}

impl Subscriber {
    async fn subscribe(&mut self, stream: &mut Stream) -> Result<(), String> {
        let name = self.channel.as_bytes();
        stream.output.with(|out| encode::command(out, [&b"SUBSCRIBE"[..], name]));
        let wanted = format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{}\r\n:1\r\n", name.len(), self.channel);
        let mut replies = Vec::new();
        while replies.is_empty() {
            let chunk = receive_chunk(stream).await?;
            let each = |reply: &[u8]| {
                replies.push(String::from_utf8_lossy(reply).into_owned());
                Ok(())
            };
            self.replies.each(&chunk, each).map_err(|StreamError| "its reply is not RESP".to_owned())?;
        }
        // Messages that were published meanwhile came too early to be expected.
        if replies[0] == wanted { Ok(()) } else { Err(format!("it replied {:?} to SUBSCRIBE", replies[0].trim_end())) }
    }
}

impl Wire for Subscriber {
    fn begin<'a>(&'a mut self, stream: &'a mut Stream, _scenario: &'a Scenario) -> Pending<'a> {
        Box::pin(self.subscribe(stream))
    }

    fn take(&mut self, chunk: &[u8], out: &mut Vec<u8>, each: OnReply<'_>) -> Result<GoAway, StreamError> {
        self.replies.take(chunk, out, each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::Requests;
    use crate::scenario;

    fn source(lines: &str) -> String {
        format!(
            "name = \"s\"\nprotocol = \"redis-pubsub\"\n{lines}\n[[phase]]\nrate = 1000\nduration = \"1s\"\n\
             [payload]\nsize = \"32B\"\n"
        )
    }

    #[test]
    fn a_phase_has_no_connections_of_its_own() {
        let text = source("connections = 12\nchannels = 4").replace("rate = 1000", "rate = 1000\nconnections = 24");
        let refused = scenario::parse("s.toml", &text).expect_err("it cannot").to_string();
        assert!(refused.contains("subscribers of channels"), "{refused}");
    }

    #[test]
    fn channels_take_turns_and_only_their_own_next_message_is_right() {
        let text = source("connections = 12\nchannels = 4\nshards = 2");
        let scenario = scenario::parse("s.toml", &text).expect("right");
        assert_eq!((scenario.copies(), scenario.channels), (3, 4));
        let requests = Requests::build(&scenario, Shard::new(1, 2).expect("a shard"), 50);
        for index in 0..50 {
            let published = requests.bytes(index);
            let channel = ["channel:000001", "channel:000003"][index as usize % 2];
            let head = format!("*3\r\n$7\r\nPUBLISH\r\n$14\r\n{channel}\r\n$32\r\n");
            let message = published.strip_prefix(head.as_bytes()).expect("a message to the channel");
            let frame = [format!("*3\r\n$7\r\nmessage\r\n$14\r\n{channel}\r\n$32\r\n").as_bytes(), message].concat();
            assert_eq!(requests.check(index, &frame), Some(Integrity::Ok));
            assert_eq!(requests.check(index + 50, &frame), Some(Integrity::Ok), "the next round");
            for other in [(index + 2) % 50, (index + 1) % 50] {
                assert_eq!(requests.check(other, &frame), Some(Integrity::Mismatch));
            }
            let elsewhere = frame.iter().map(|byte| if *byte == b'0' { b'9' } else { *byte }).collect::<Vec<u8>>();
            assert_eq!(requests.check(index, &elsewhere), Some(Integrity::Mismatch), "another channel");
            assert_eq!(requests.check(index, &frame[..frame.len() - 1]), Some(Integrity::Mismatch));
        }
    }

    #[test]
    fn channels_are_shared_evenly_and_everything_is_checked() {
        for (lines, mistake) in [
            ("", "`channels` is missing"),
            ("channels = 0", "`channels` is 0"),
            ("connections = 10\nchannels = 4", "`channels` do not divide `connections` evenly"),
            ("connections = 12\nchannels = 4\nshards = 3", "`channels` cannot be shared evenly by `shards`"),
            ("connections = 4\nchannels = 4\nintegrity = false", "`integrity` is off"),
            ("connections = 4\nchannels = 4\nkeys.count = 1", "`keys` is only for protocol = \"redis\""),
        ] {
            let mistakes = scenario::parse("s.toml", &source(lines)).expect_err(lines);
            assert!(mistakes.list().len() == 1 && mistakes.to_string().contains(mistake), "{mistakes}");
        }
        let redis = source("channels = 4").replace("redis-pubsub", "redis") + "[[command]]\nname = \"GET\"\n";
        let mistakes = scenario::parse("s.toml", &redis).expect_err("no channels");
        assert!(mistakes.to_string().contains("`channels` is only for protocol = \"redis-pubsub\""), "{mistakes}");
    }
}
