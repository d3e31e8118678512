//! HTTP/2 frames as they arrive. Floods of frames that cost their sender nothing are detected before any work is done for them (RFC 9113
//! section 10.5).
//!
//! Only frame heads are read here, and of WINDOW_UPDATE its number. Whether a frame is legal is for others to judge.

use std::time::Duration;

use weir_base::time::Time;

/// The connection preface of an HTTP/2 client (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// CONTINUATION frames of one header block. 20 of 16 KiB hold five times the largest header list (CVE-2024-27316).
pub const CONTINUATIONS_MAX: u32 = 20;

/// Window updates below this many bytes count as too small: Go's client, the eagerest one, sends one per 4 KiB.
pub const WINDOW_UPDATE_SMALL_BYTES: u32 = 1024;

const HEAD_BYTES: usize = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;

/// Kinds of frames that can flood a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// RST_STREAM: streams that are opened and reset at once cost the gateway and its origins, and the client nothing
    /// (CVE-2023-44487).
    Reset,
    /// PING that requires an acknowledgement (CVE-2019-9512).
    Ping,
    /// SETTINGS, each of which requires an acknowledgement (CVE-2019-9515).
    Settings,
    /// DATA without a byte or an end (CVE-2019-9518).
    EmptyData,
    /// Window updates of a few bytes.
    WindowUpdate,
    /// PRIORITY and unknown frames (CVE-2019-9513).
    Idle,
    /// A header block that does not end.
    Continuation,
}

impl Flood {
    const COUNTED: [(Self, f64); 6] = [
        (Self::Reset, 100.0),
        (Self::Ping, 100.0),
        (Self::Settings, 50.0),
        (Self::EmptyData, 100.0),
        (Self::WindowUpdate, 1_000.0),
        (Self::Idle, 200.0),
    ];

    /// Stable word for counters and logs.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Reset => "http2_reset_flood",
            Self::Ping => "http2_ping_flood",
            Self::Settings => "http2_settings_flood",
            Self::EmptyData => "http2_empty_data_flood",
            Self::WindowUpdate => "http2_window_update_flood",
            Self::Idle => "http2_priority_flood",
            Self::Continuation => "http2_continuation_flood",
        }
    }
}

/// The part of its frame budget that a connection has used: a burst, and as many a second.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    used: f64,
    at: Option<Time>,
}

impl Level {
    /// One more; whether it is too many.
    fn spend(&mut self, per_second: f64, now: Time) -> bool {
        let elapsed = self.at.map_or(Duration::ZERO, |at| now.since(at));
        self.at = Some(now);
        self.used = (self.used - elapsed.as_secs_f64() * per_second).max(0.0) + 1.0;
        self.used > per_second
    }
}

/// Follows what one client sends, from its preface on.
#[derive(Debug)]
pub struct FrameBudget {
    preface_left: usize,
    head: [u8; HEAD_BYTES + 4],
    filled: usize,
    /// Bytes of the head, and of the part of the payload that is inspected.
    wanted: usize,
    payload_left: usize,
    continuations: u32,
    levels: [Level; Flood::COUNTED.len()],
}

impl Default for FrameBudget {
    fn default() -> Self {
        Self {
            preface_left: PREFACE.len(),
            head: [0; HEAD_BYTES + 4],
            filled: 0,
            wanted: HEAD_BYTES,
            payload_left: 0,
            continuations: 0,
            levels: Default::default(),
        }
    }
}

impl FrameBudget {
    /// Goes on with what arrived.
    ///
    /// # Errors
    /// The budget of one kind of frame is used up.
    pub fn observe(&mut self, mut bytes: &[u8], now: Time) -> Result<(), Flood> {
        skip(&mut bytes, &mut self.preface_left);
        loop {
            skip(&mut bytes, &mut self.payload_left);
            if bytes.is_empty() {
                return Ok(());
            }
            let count = bytes.len().min(self.wanted - self.filled);
            self.head[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
            self.filled += count;
            bytes = &bytes[count..];
            if self.filled < self.wanted {
                return Ok(());
            }
            self.frame(now)?;
        }
    }

    /// A head is whole, and what belongs to it.
    fn frame(&mut self, now: Time) -> Result<(), Flood> {
        let [high, middle, low, kind, flags, ..] = self.head;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        let is_window_update = kind == 8 && length == 4;
        if is_window_update && self.wanted == HEAD_BYTES {
            self.wanted += 4;
            return Ok(());
        }
        let increment = u32::from_be_bytes([self.head[9], self.head[10], self.head[11], self.head[12]]);
        self.payload_left = length + HEAD_BYTES - self.wanted;
        (self.filled, self.wanted) = (0, HEAD_BYTES);
        self.continuations = if kind == 9 { self.continuations + 1 } else { 0 };
        let counted = match kind {
            0 if length == 0 && flags & END_STREAM == 0 => Flood::EmptyData,
            3 => Flood::Reset,
            4 if flags & ACK == 0 => Flood::Settings,
            6 if flags & ACK == 0 => Flood::Ping,
            8 if is_window_update && increment < WINDOW_UPDATE_SMALL_BYTES => Flood::WindowUpdate,
            9 if self.continuations > CONTINUATIONS_MAX => return Err(Flood::Continuation),
            2 | 10.. => Flood::Idle,
            _ => return Ok(()),
        };
        let mut budgets = Flood::COUNTED.iter().zip(&mut self.levels);
        let is_spent = budgets.any(|((kind, per_second), level)| *kind == counted && level.spend(*per_second, now));
        if is_spent { Err(counted) } else { Ok(()) }
    }
}

/// Skips up to `left` bytes of `bytes`.
fn skip(bytes: &mut &[u8], left: &mut usize) {
    let count = bytes.len().min(*left);
    *bytes = &bytes[count..];
    *left -= count;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        frame.extend_from_slice(payload);
        frame
    }

    /// The first of `count` frames that is too many, counted from 1, if they come `gap` apart and in pieces of `piece` bytes.
    fn tripped_at(one: &[u8], count: usize, gap: Duration, piece: usize) -> Option<(usize, Flood)> {
        let mut budget = FrameBudget::default();
        let mut now = Time::from_nanos(1_000_000_000);
        budget.observe(PREFACE, now).expect("no frame");
        for number in 1..=count {
            now = now.saturating_add(gap);
            for piece in one.chunks(piece) {
                if let Err(flood) = budget.observe(piece, now) {
                    return Some((number, flood));
                }
            }
        }
        None
    }

    #[test]
    fn each_flood_is_named_when_its_budget_is_used_up_however_it_is_cut() {
        let floods = [
            (frame(3, 0, &[0; 4]), 101, Flood::Reset),
            (frame(6, 0, &[0; 8]), 101, Flood::Ping),
            (frame(4, 0, &[]), 51, Flood::Settings),
            (frame(0, 0, &[]), 101, Flood::EmptyData),
            (frame(8, 0, &[0, 0, 0, 1]), 1_001, Flood::WindowUpdate),
            (frame(2, 0, &[0; 5]), 201, Flood::Idle),
            (frame(0x42, 0, &[0; 100]), 201, Flood::Idle),
            (frame(9, 0, &[0; 3]), 21, Flood::Continuation),
        ];
        for (one, at, flood) in floods {
            for piece in 1..=one.len() {
                assert_eq!(tripped_at(&one, 2_000, Duration::ZERO, piece), Some((at, flood)), "{flood:?} in {piece}");
            }
        }
    }

    #[test]
    fn traffic_of_well_behaved_clients_is_no_flood() {
        let honest = [
            frame(0, 0, &[7; 10]),
            frame(0, END_STREAM, &[]),
            frame(4, ACK, &[]),
            frame(6, ACK, &[0; 8]),
            frame(8, 0, &[0, 0, 16, 0]),
            frame(1, 4, &[0; 20]),
        ];
        for one in honest {
            assert_eq!(tripped_at(&one, 5_000, Duration::ZERO, 7), None, "{one:?}");
        }
        // Someone who cancels 90 requests a second, for a minute.
        assert_eq!(tripped_at(&frame(3, 0, &[0; 4]), 5_400, Duration::from_millis(11), 13), None);
    }

    #[test]
    fn a_header_block_of_20_continuations_is_taken_and_counting_begins_anew_behind_it() {
        let mut budget = FrameBudget::default();
        let now = Time::from_nanos(1);
        let mut block = PREFACE.to_vec();
        for _ in 0..5 {
            block.extend(frame(1, 0, &[1]));
            (0..20).for_each(|_| block.extend(frame(9, 0, &[1])));
        }
        assert_eq!(budget.observe(&block, now), Ok(()));
    }

    #[test]
    fn nothing_that_arrives_makes_it_panic() {
        let mut rng = weir_base::rng::Rng::new(5);
        for _ in 0..2_000 {
            let bytes: Vec<u8> = (0..64).map(|_| rng.next_u64() as u8).collect();
            let mut budget = FrameBudget::default();
            let _ = budget.observe(PREFACE, Time::from_nanos(1));
            for piece in bytes.chunks(5) {
                // Whether random bytes are a flood does not matter here.
                let _ = budget.observe(piece, Time::from_nanos(1));
            }
        }
    }
}
