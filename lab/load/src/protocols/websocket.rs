//! WebSocket: a message there and the same back, behind an upgrade of HTTP/1.1.

use weir_base::Rng;

use super::messages::Messages;
use super::{Common, Family, Protocol, Seat, Work, http};
use crate::requests::Planner;
use crate::scenario::Scenario;
use crate::scenario::table::Table;
use crate::shard::{Purpose, Shard};
use crate::url::{Scheme, Url};
use crate::wire::Wire;

mod wire;

/// First byte of a message that is whole and not text, and what says that a mask follows (RFC 6455 section 5.2).
const FINAL_BINARY: u8 = 0x82;
const MASKED: u8 = 0x80;

/// See the module.
pub(super) struct WebSocket;

impl Protocol for WebSocket {
    fn word(&self) -> &'static str {
        "websocket"
    }

    fn title(&self) -> &'static str {
        "WebSocket"
    }

    fn scheme(&self) -> Option<Scheme> {
        Some(Scheme { name: "ws", port: Some(80), has_path: true })
    }

    fn lines_of(&self, url: &Url) -> String {
        http::lines_of(url)
    }

    fn family(&self) -> &'static Family {
        &http::FAMILY
    }

    fn read(&self, root: &Table<'_>, _common: &Common<'_>) -> Option<Work> {
        // Every message may have its own size, whatever the path.
        http::read(root)
    }

    fn planner<'a>(&self, scenario: &'a Scenario, shard: Shard) -> Box<dyn Planner + 'a> {
        let mut rng = shard.stream(scenario.seed, Purpose::Requests, 0);
        Box::new(Messages::new(scenario, shard, move |message: &[u8], arena: &mut Vec<u8>| {
            write_masked(message, &mut rng, arena);
        }))
    }

    fn wire(&self, scenario: &Scenario, _seat: Seat) -> Box<dyn Wire> {
        Box::new(wire::Messages::new(scenario.payload.bytes_max()))
    }

    fn mix(&self, scenario: &Scenario) -> String {
        http::mix("WebSocket echo", scenario)
    }
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
    use crate::requests::Integrity;

    #[test]
    fn a_message_is_masked_and_recognised_when_it_comes_back() {
        let requests = http::tests::requests("websocket", "");
        for index in 0..50 {
            let frame = requests.bytes(index);
            let header = weir_websocket_codec::FrameHeader::read(frame).expect("valid").expect("whole");
            let mask = header.mask.expect("a client's");
            let masked = &frame[header.bytes..];
            assert_eq!(masked.len() as u64, header.payload);
            let message: Vec<u8> = masked.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
            assert_eq!(requests.check(index, &message), Some(Integrity::Ok));
            assert_eq!(requests.check((index + 1) % 50, &message), Some(Integrity::Mismatch));
        }
    }
}
