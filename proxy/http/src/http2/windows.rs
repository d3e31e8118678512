//! Flow control windows of one connection: pure arithmetic, without a socket and without a clock.
//!
//! HTTP/2 has a window per stream and one for the connection (RFC 9113 section 5.2). Two things must hold:
//!
//! - **A stream that is not read costs its own window.** The connection's window is what streams hold and a credit for those
//!   that are read, so the streams that hold something never use it up.
//! - **A window carries what its reader takes.** It begins small, and grows while a stream takes half of it or more within a
//!   round trip: at once to what the body needs, if its length is known and most of the budget is free. Round trips are measured
//!   with PING, and the shortest of a connection counts: queues before the peer only look like distance. A stream that takes nothing
//!   makes nothing grow.
//!
//! All streams of a connection share one window, SETTINGS_INITIAL_WINDOW_SIZE: the more they hold, the smaller it becomes. It is
//! at most the allowance of the connection less what is held, so that any number of streams share the allowance in equal parts
//! (the dynamic thresholds of Choudhury and Hahne, 1998), and never less than [`FLOOR_BYTES`].
//!
//! Bytes that the peer may send beyond [`CREDIT_BYTES`] are charged to `limits.buffered_bytes` before they are granted.

use std::time::Duration;

use weir_base::permit::{ByteLease, BytesPermit};

use crate::limits::{HTTP2_STREAM_WINDOW_BYTES, HTTP2_STREAM_WINDOW_BYTES_MAX};

/// Credit of a connection that is not charged: bytes that a peer may send ahead on it at any time. Default 1 MiB: four initial windows.
/// Worst case with 16,384 connections 16 GiB, as it was when this was the whole window.
pub(super) const CREDIT_BYTES: u64 = 1 << 20;

/// Steps in which the connection's window follows what is held: four in a credit, so that it never falls below half of one.
const STEP_BYTES: u64 = CREDIT_BYTES / 4;

/// The least that windows shrink to while much is held: as they begin by the protocol (RFC 9113 section 6.9.2), about.
const FLOOR_BYTES: u32 = 64 * 1024;

/// Windows that were shrunk below the initial one are restored when no more than this is held: the cause of the shrinking is over.
const RESTORED_BYTES: u64 = CREDIT_BYTES / 2;

/// A window becomes so many times larger at once, if the length of the body is not known: from 256 KiB to 32 MiB in two round trips.
const GROWTH: u32 = 16;

/// Round trips below this are none that windows grow for: to a peer that is nearer, 256 KiB carry 500 MB a second.
const NEAR: Duration = Duration::from_micros(500);

/// The most that a window can be (RFC 9113 section 6.9.1).
const WINDOW_MAX: u64 = (1 << 31) - 1;

/// Windows of streams, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSettings {
    /// See [`crate::settings::HTTP2_STREAM_WINDOW_BYTES`].
    pub initial: u32,
    /// See [`crate::settings::HTTP2_STREAM_WINDOW_BYTES_MAX`].
    pub max: u32,
}

impl Default for WindowSettings {
    fn default() -> Self {
        Self { initial: HTTP2_STREAM_WINDOW_BYTES, max: HTTP2_STREAM_WINDOW_BYTES_MAX }
    }
}

impl WindowSettings {
    /// Bytes that the streams of a connection may hold together before their windows shrink to the initial one: twice the largest, so
    /// that one reader over a great distance has its whole window.
    fn allowance(self) -> u64 {
        2 * u64::from(self.max)
    }

    /// Windows that may not grow do not shrink either.
    fn floor(self) -> u32 {
        if self.initial == self.max { self.initial } else { self.initial.min(FLOOR_BYTES) }
    }
}

/// Bytes that let a window grow, if a stream passes them on within a round trip.
pub(super) fn evidence(stream: u32) -> u64 {
    u64::from(stream) / 2
}

/// The window that a body of `length` needs which has used one of `stream` bytes.
pub(super) fn needed(stream: u32, length: Option<u64>) -> u64 {
    match length {
        Some(length) => length.checked_next_power_of_two().unwrap_or(WINDOW_MAX),
        None => u64::from(stream) * u64::from(GROWTH),
    }
}

/// Room for larger windows in the budget of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BudgetRoom {
    /// Half of it is used: nothing.
    None,
    /// Something for streams that use what they have: a length that was only announced counts for nothing.
    Some,
    /// Most of it is free.
    Much,
}

impl BudgetRoom {
    pub(super) fn of(lease: &ByteLease) -> Self {
        match (lease.is_mostly_free(), lease.is_half_free()) {
            (true, _) => Self::Much,
            (false, true) => Self::Some,
            (false, false) => Self::None,
        }
    }
}

/// The windows of one connection.
pub(super) struct Windows {
    settings: WindowSettings,
    /// Window of each stream.
    stream: u32,
    /// Window of the connection, with the held bytes.
    connection: u64,
    /// Limit of the held bytes and the bytes that the peer may still send, together: a granted window is not taken back.
    ceiling: u64,
    released: u64,
    permit: BytesPermit,
    shortest: Option<Duration>,
}

impl Windows {
    /// The windows of a new connection.
    pub(super) fn new(settings: WindowSettings, permit: BytesPermit) -> Self {
        Self {
            settings,
            stream: settings.initial,
            connection: CREDIT_BYTES,
            ceiling: CREDIT_BYTES,
            released: 0,
            permit,
            shortest: None,
        }
    }

    /// Window of each stream.
    pub(super) fn stream(&self) -> u32 {
        self.stream
    }

    /// Window of the connection.
    pub(super) fn connection(&self) -> u32 {
        self.connection.min(WINDOW_MAX) as u32
    }

    /// Something is charged for it, or its streams have larger windows than the initial one.
    pub(super) fn is_grown(&self) -> bool {
        self.permit.bytes() > 0 || self.stream > self.settings.initial
    }

    /// Windows may grow.
    pub(super) fn may_grow(&self) -> bool {
        self.stream < self.settings.max
    }

    /// A round trip took that long.
    pub(super) fn measured(&mut self, took: Duration) {
        self.shortest = Some(self.shortest.map_or(took, |shortest| shortest.min(took)));
    }

    /// The shortest round trip, once one was measured.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.shortest
    }

    /// Streams have taken [`evidence`] within a round trip, and the one of them that needs most needs a window of `needed`; `held`
    /// is what all hold. True: the window is larger now.
    pub(super) fn grow(&mut self, held: u64, needed: u64, room: BudgetRoom) -> bool {
        let is_far = self.shortest.is_some_and(|shortest| shortest >= NEAR);
        let most = if room == BudgetRoom::Much { self.settings.max } else { self.stream.saturating_mul(GROWTH) };
        let larger = self.allowed(held).min(most).min(needed.min(WINDOW_MAX) as u32);
        let grows = is_far && room != BudgetRoom::None && larger > self.stream;
        if grows {
            self.stream = larger;
        }
        grows
    }

    /// No stream has taken as much as a window for long.
    pub(super) fn unused(&mut self) {
        self.stream = (self.stream / GROWTH).max(self.settings.initial.min(self.stream));
    }

    /// The streams hold `held` bytes; `released` were passed on in the life of the connection, and the peer does not know of
    /// those that came since the last time. False: the budget of the process does not let the connection have more, and what
    /// its streams hold is at the cost of the others. Without streams nothing can be sent, and nothing is charged.
    pub(super) fn update(&mut self, held: u64, released: u64, has_streams: bool) -> bool {
        let ceiling = self.ceiling.saturating_sub(released - std::mem::replace(&mut self.released, released));
        let allowed = self.allowed(held);
        self.stream = match self.stream {
            stream if stream < self.settings.initial && held <= RESTORED_BYTES => self.settings.initial,
            stream => stream.min(allowed),
        };
        let wanted = self.wanted(held);
        // Down by two steps at least, so that it does not swing.
        let has_moved = wanted > self.connection || wanted + STEP_BYTES < self.connection;
        let connection = if has_moved { wanted } else { self.connection };
        let charge = if has_streams { ceiling.max(connection) - CREDIT_BYTES } else { 0 };
        if self.permit.resize(charge) {
            (self.connection, self.ceiling) = (connection, ceiling.max(connection));
            return true;
        }
        self.ceiling = ceiling.max(self.connection);
        self.stream = self.settings.floor();
        self.connection.saturating_sub(held) >= CREDIT_BYTES / 2
    }

    /// The held bytes, and a credit of at least a stream's whole window.
    fn wanted(&self, held: u64) -> u64 {
        let held = held / STEP_BYTES * STEP_BYTES;
        (held + CREDIT_BYTES.max(u64::from(self.stream))).min(WINDOW_MAX)
    }

    /// The largest window that a stream may have while that is held.
    fn allowed(&self, held: u64) -> u32 {
        let left = self.settings.allowance().saturating_sub(held).min(u64::from(self.settings.max));
        // In steps of two, so that it does not change with every byte.
        let floor = self.settings.floor();
        let step = left / u64::from(floor);
        match step {
            0 => floor,
            _ if left == u64::from(self.settings.max) => self.settings.max,
            _ => floor.saturating_mul(1 << step.ilog2()).clamp(floor, self.settings.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_base::permit::Budget;

    use super::*;

    const KIB: u64 = 1024;
    const MIB: u64 = 1024 * KIB;
    const SETTINGS: WindowSettings = WindowSettings { initial: 64 * 1024, max: 16 << 20 };
    const FAR: Duration = Duration::from_millis(100);

    fn windows(budget: u64) -> Windows {
        Windows::new(SETTINGS, ByteLease::with_step(Budget::new(budget), 1).empty())
    }

    /// A stream has taken evidence of a body of `length`.
    fn grow(windows: &mut Windows, length: Option<u64>, room: BudgetRoom) -> bool {
        windows.grow(0, needed(windows.stream(), length), room)
    }

    #[test]
    fn streams_that_hold_their_windows_leave_the_others_a_credit() {
        let mut windows = windows(1 << 30);
        for streams in 1..=1_000_u64 {
            let held = streams * 64 * KIB;
            assert!(windows.update(held, 0, true));
            let credit = u64::from(windows.connection()) - held;
            assert!((CREDIT_BYTES - STEP_BYTES..=CREDIT_BYTES).contains(&credit), "{streams}: {credit}");
            assert_eq!(windows.permit.bytes(), u64::from(windows.connection()) - CREDIT_BYTES);
        }
        // All is passed on, and the charge with it.
        assert!(windows.update(0, 1_000 * 64 * KIB, true));
        assert_eq!((windows.connection(), windows.permit.bytes()), (CREDIT_BYTES as u32, 0));
    }

    #[test]
    fn a_window_grows_over_a_distance_and_shrinks_when_nobody_uses_it() {
        let mut windows = windows(1 << 30);
        assert!(!grow(&mut windows, None, BudgetRoom::Much), "nothing was measured");
        windows.measured(FAR);
        for larger in [MIB, 16 * MIB] {
            assert!(windows.may_grow() && grow(&mut windows, None, BudgetRoom::Much));
            assert_eq!((u64::from(windows.stream()), evidence(windows.stream())), (larger, larger / 2));
        }
        assert!(!windows.may_grow() && !grow(&mut windows, None, BudgetRoom::Much));
        for smaller in [MIB, 64 * KIB, 64 * KIB] {
            windows.unused();
            assert_eq!(u64::from(windows.stream()), smaller);
        }
        assert!(!grow(&mut windows, None, BudgetRoom::None), "half of the budget is used");
    }

    #[test]
    fn the_shortest_round_trip_counts_and_a_near_peer_needs_no_larger_window() {
        let mut windows = windows(1 << 30);
        for took in [FAR, NEAR / 2, FAR] {
            windows.measured(took);
        }
        assert_eq!(windows.round_trip(), Some(NEAR / 2));
        assert!(!grow(&mut windows, None, BudgetRoom::Much));
    }

    #[test]
    fn a_body_whose_length_is_known_has_all_the_window_that_it_needs_at_once_and_no_more() {
        for (length, window) in [(300 * KIB, 512 * KIB), (20_000_000, 16 * MIB), (u64::MAX, 16 * MIB)] {
            let mut windows = windows(1 << 30);
            windows.measured(FAR);
            assert!(grow(&mut windows, Some(length), BudgetRoom::Much));
            assert_eq!(u64::from(windows.stream()), window);
            assert!(!grow(&mut windows, Some(length), BudgetRoom::Much), "{length}");
        }
        let mut windows = windows(1 << 30);
        windows.measured(FAR);
        assert!(!grow(&mut windows, Some(60 * KIB), BudgetRoom::Much), "the first one is enough");
    }

    #[test]
    fn a_length_that_is_only_announced_gives_no_more_than_use_does_once_some_of_the_budget_is_used() {
        let budget = Budget::new(1 << 30);
        let settings = WindowSettings::default();
        let mut charged = 0;
        let connections: Vec<_> = (0..16)
            .map(|_| {
                let lease = ByteLease::with_step(budget.clone(), 1);
                let mut windows = Windows::new(settings, lease.empty());
                windows.measured(FAR);
                grow(&mut windows, Some(1 << 40), BudgetRoom::of(&lease));
                assert!(windows.update(0, 0, true));
                charged += windows.permit.bytes();
                windows
            })
            .collect();
        assert_eq!(u64::from(connections[0].stream()), 32 * MIB, "most is free");
        assert_eq!(u64::from(connections[15].stream()), 4 * MIB);
        assert!(charged < (1 << 30) / 4, "{charged}");
    }

    #[test]
    fn a_window_that_was_shrunk_below_the_first_one_has_that_again_when_less_is_held() {
        let settings = WindowSettings { initial: 256 * 1024, max: MIB as u32 };
        let mut windows = Windows::new(settings, ByteLease::with_step(Budget::new(1 << 30), 1).empty());
        for (held, window) in [(0, 256), (1_800, 128), (2_000, 64), (1_700, 64), (600, 64), (500, 256)] {
            assert!(windows.update(held * KIB, 0, true));
            assert_eq!(u64::from(windows.stream()), window * KIB, "{held} KiB held");
        }
    }

    #[test]
    fn buffered_bytes_shrink_windows_and_any_number_of_streams_share_the_allowance() {
        for streams in [1, 3, 10, 100, 400] {
            let mut windows = windows(1 << 30);
            windows.stream = SETTINGS.max;
            // All stall at once, and take what their windows let them, a little at a time.
            let mut held = 0;
            loop {
                assert!(windows.update(held * streams, 0, true));
                if u64::from(windows.stream()) <= held {
                    break;
                }
                held += 16 * KIB;
            }
            assert!(held * streams <= SETTINGS.allowance() + streams * 16 * KIB, "{streams} hold {held} each");
            assert!(windows.stream() >= SETTINGS.initial);
        }
    }

    #[test]
    fn a_budget_that_is_used_up_gives_nothing_more_and_says_so() {
        let mut windows = windows(2 * MIB);
        assert!(windows.update(2 * MIB, 0, true));
        assert_eq!(windows.permit.bytes(), 2 * MIB);
        windows.measured(FAR);
        grow(&mut windows, None, BudgetRoom::Much);
        assert!(!windows.update(3 * MIB, 0, true), "the credit is gone");
        assert_eq!((windows.permit.bytes(), windows.stream()), (2 * MIB, SETTINGS.initial));
    }

    #[test]
    fn a_credit_that_was_granted_is_charged_until_it_is_used() {
        let mut windows = windows(1 << 30);
        windows.stream = SETTINGS.max;
        assert!(windows.update(0, 0, true));
        assert_eq!((u64::from(windows.connection()), windows.permit.bytes()), (16 * MIB, 15 * MIB));
        windows.stream = SETTINGS.initial;
        assert!(windows.update(0, 0, true));
        assert_eq!(
            (u64::from(windows.connection()), windows.permit.bytes()),
            (MIB, 15 * MIB),
            "the peer may still send it"
        );
        assert!(windows.update(0, 5 * MIB, true));
        assert_eq!(windows.permit.bytes(), 10 * MIB);
        assert!(windows.update(0, 5 * MIB, false));
        assert_eq!(windows.permit.bytes(), 0, "without streams nothing can be sent");
        assert!(windows.update(0, 5 * MIB, true));
        assert_eq!(windows.permit.bytes(), 10 * MIB);
        assert!(windows.update(0, 50 * MIB, true));
        assert_eq!(windows.permit.bytes(), 0);
    }

    #[test]
    fn windows_that_may_not_grow_stay_and_the_largest_ones_fit_the_protocol() {
        for window in [1, 64 * 1024, WINDOW_MAX as u32] {
            let settings = WindowSettings { initial: window, max: window };
            let budget = Budget::new(1 << 40);
            let mut windows = Windows::new(settings, ByteLease::with_step(budget, 1).empty());
            windows.measured(FAR);
            assert!(!grow(&mut windows, None, BudgetRoom::Much));
            for held in [0, MIB, WINDOW_MAX, 1 << 40] {
                windows.update(held, 0, true);
                assert_eq!(windows.stream(), window);
                assert!(u64::from(windows.connection()) <= WINDOW_MAX);
            }
        }
    }
}
