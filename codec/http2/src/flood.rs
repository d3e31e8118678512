//! Floods of frames that cost their sender nothing (RFC 9113 section 10.5).

use std::time::Duration;

use weir_base::time::Time;

use crate::error::ProtocolError;

/// Kinds of frames that are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counted {
    Reset,
    Ping,
    Settings,
    EmptyData,
    WindowUpdate,
    Priority,
    /// Header blocks of streams that are over, and of those behind the last one of a drain.
    LateHeaders,
}

impl Counted {
    const KINDS: usize = 7;

    /// Frames a second.
    const fn limit(self) -> (u32, ProtocolError) {
        match self {
            Self::Reset => (100, ProtocolError::ResetFlood),
            Self::Ping => (100, ProtocolError::PingFlood),
            Self::Settings => (50, ProtocolError::SettingsFlood),
            Self::EmptyData => (100, ProtocolError::EmptyDataFlood),
            Self::WindowUpdate => (1_000, ProtocolError::WindowUpdateFlood),
            Self::Priority => (200, ProtocolError::PriorityFlood),
            Self::LateHeaders => (200, ProtocolError::StreamFlood),
        }
    }

    /// Frames at once: as many as a second. An honest client may cancel all its streams, of which each may have had trailers in flight, and as
    /// many new ones behind it.
    fn burst(self, streams_max: u32) -> u32 {
        let (per_second, _) = self.limit();
        match self {
            Self::Reset => per_second.max(streams_max),
            Self::LateHeaders => per_second.max(streams_max.saturating_mul(2)),
            _ => per_second,
        }
    }
}

/// The budgets of one peer: for each kind, when all of it is free again.
#[derive(Debug, Default)]
pub(crate) struct FrameBudget([Time; Counted::KINDS]);

impl FrameBudget {
    /// Counts a frame; `streams_max`: streams that the peer may have.
    ///
    /// # Errors
    /// The budget of the kind is used up.
    pub(crate) fn count(&mut self, kind: Counted, streams_max: u32, now: Time) -> Result<(), ProtocolError> {
        let (per_second, flood) = kind.limit();
        let of_one = Duration::from_secs(1) / per_second;
        let free_at = &mut self.0[kind as usize];
        *free_at = now.max(*free_at).saturating_add(of_one);
        if free_at.since(now) > of_one * kind.burst(streams_max) { Err(flood) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_taken_and_as_many_a_second_and_no_more() {
        let kinds = [
            Counted::Reset,
            Counted::Ping,
            Counted::Settings,
            Counted::EmptyData,
            Counted::WindowUpdate,
            Counted::Priority,
            Counted::LateHeaders,
        ];
        for kind in kinds {
            let (limit, flood) = kind.limit();
            let mut now = Time::from_nanos(1_000_000_000);
            let mut budget = FrameBudget::default();
            (0..limit).for_each(|_| assert_eq!(budget.count(kind, 1, now), Ok(())));
            assert_eq!(budget.count(kind, 1, now), Err(flood));
            // A little fewer than the limit, for a minute.
            let mut budget = FrameBudget::default();
            for _ in 0..60 * limit {
                now = now.saturating_add(Duration::from_secs_f64(1.01 / f64::from(limit)));
                assert_eq!(budget.count(kind, 1, now), Ok(()));
            }
        }
    }
}
