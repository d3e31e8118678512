//! WebSocket cases after the catalogue of Autobahn's test suite, whose sections give them their numbers: each is what a client
//! sends, byte for byte, from RFC 6455 and RFC 7692. The origin decides how each case ends (see `talk`).

mod bulk;
mod close;
mod deflate;
mod frames;
pub mod talk;
mod text;

use crate::websocket::masked;

/// First bytes of frames.
mod first {
    pub const MORE: u8 = 0x00;
    pub const LAST: u8 = 0x80;
    pub const TEXT: u8 = 0x81;
    pub const TEXT_AND_MORE: u8 = 0x01;
    pub const BINARY: u8 = 0x82;
    pub const BINARY_AND_MORE: u8 = 0x02;
    pub const CLOSE: u8 = 0x88;
    pub const PING: u8 = 0x89;
    pub const PONG: u8 = 0x8a;
}

/// An action of a client.
#[derive(Clone, Debug)]
pub enum Step {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends them in writes of so many bytes.
    Pieces(Vec<u8>, usize),
    /// Waits until so many messages have come, or the end has.
    Await(usize),
    /// Does nothing for so many milliseconds: the pace of a slow sender.
    Pause(u64),
}

/// How a case should end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client closes with 1000 when it has so many messages and pongs, and the origin agrees.
    Clean(usize),
    /// The bytes sent bring about the end, a clean one.
    Closed,
    /// The bytes sent break a rule: the origin fails the connection.
    Failed,
    /// The RFC does not prescribe how the connection ends after these bytes.
    Any,
}

/// A case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Number in the catalogue.
    pub id: String,
    /// Extensions that the client offers.
    pub offer: String,
    /// Compresses messages; frames of `steps` are made by it.
    pub messages: Vec<deflate::Message>,
    /// Otherwise: what the client does.
    pub steps: Vec<Step>,
    /// How it should end.
    pub end: End,
}

pub use deflate::{Message, Packer};

impl Case {
    fn new(id: impl Into<String>, end: End, steps: Vec<Step>) -> Self {
        Self { id: id.into(), offer: String::new(), messages: Vec::new(), steps, end }
    }

    /// Frames in one write.
    fn of(id: impl Into<String>, end: End, frames: &[(u8, &[u8])]) -> Self {
        Self::new(id, end, vec![Step::Send(bytes(frames))])
    }

    /// Each frame in a write of its own.
    fn frame_by_frame(id: impl Into<String>, end: End, frames: &[(u8, &[u8])]) -> Self {
        Self::new(id, end, frames.iter().map(|(first, payload)| Step::Send(masked(*first, payload))).collect())
    }

    /// Byte by byte.
    fn in_pieces(id: impl Into<String>, end: End, frames: &[(u8, &[u8])]) -> Self {
        Self::new(id, end, vec![Step::Pieces(bytes(frames), 1)])
    }
}

fn bytes(frames: &[(u8, &[u8])]) -> Vec<u8> {
    frames.iter().flat_map(|(first, payload)| masked(*first, payload)).collect()
}

/// All of them.
pub fn cases() -> Vec<Case> {
    [frames::cases(), text::cases(), close::cases(), bulk::cases(), deflate::cases()].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn every_section_is_there_and_every_number_once() {
        let cases = cases();
        let ids: BTreeSet<&str> = cases.iter().map(|case| &case.id[..]).collect();
        assert_eq!(ids.len(), cases.len());
        let mut sections: BTreeMap<u32, usize> = BTreeMap::new();
        for case in &cases {
            *sections
                .entry(case.id.split('.').next().and_then(|part| part.parse().ok()).expect("a number"))
                .or_default() += 1;
        }
        let at_least =
            [(1, 16), (2, 11), (3, 7), (4, 10), (5, 20), (6, 100), (7, 37), (9, 40), (10, 1), (12, 60), (13, 60)];
        for (section, count) in at_least {
            assert!(sections[&section] >= count, "section {section} has {} cases", sections[&section]);
        }
    }
}
