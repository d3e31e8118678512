//! Floods of frames that cost their sender nothing (RFC 9113 section 10.5).

use weir_base::time::Time;

use crate::error::ProtocolError;

/// Kinds of frames that are counted, each with its burst, and as many a second.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counted {
    Reset,
    Ping,
    Settings,
    EmptyData,
    WindowUpdate,
    Priority,
}

impl Counted {
    const KINDS: usize = 6;

    const fn limit(self) -> (f64, ProtocolError) {
        match self {
            Self::Reset => (100.0, ProtocolError::ResetFlood),
            Self::Ping => (100.0, ProtocolError::PingFlood),
            Self::Settings => (50.0, ProtocolError::SettingsFlood),
            Self::EmptyData => (100.0, ProtocolError::EmptyDataFlood),
            Self::WindowUpdate => (1_000.0, ProtocolError::WindowUpdateFlood),
            Self::Priority => (200.0, ProtocolError::PriorityFlood),
        }
    }
}

/// The part of its budget that a peer has used of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    used: f64,
    at: Time,
}

/// The budgets of one peer.
#[derive(Debug, Default)]
pub(crate) struct FrameBudget([Level; Counted::KINDS]);

impl FrameBudget {
    /// Counts a frame.
    ///
    /// # Errors
    /// The budget of the kind is used up.
    pub(crate) fn count(&mut self, kind: Counted, now: Time) -> Result<(), ProtocolError> {
        let (per_second, flood) = kind.limit();
        let level = &mut self.0[kind as usize];
        let elapsed = now.since(std::mem::replace(&mut level.at, now));
        level.used = (level.used - elapsed.as_secs_f64() * per_second).max(0.0) + 1.0;
        if level.used > per_second { Err(flood) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        ];
        for kind in kinds {
            let (limit, flood) = kind.limit();
            let mut now = Time::from_nanos(1_000_000_000);
            let mut budget = FrameBudget::default();
            (0..limit as usize).for_each(|_| assert_eq!(budget.count(kind, now), Ok(())));
            assert_eq!(budget.count(kind, now), Err(flood));
            // A little fewer than the limit, for a minute.
            let mut budget = FrameBudget::default();
            for _ in 0..60 * limit as usize {
                now = now.saturating_add(Duration::from_secs_f64(1.01 / limit));
                assert_eq!(budget.count(kind, now), Ok(()));
            }
        }
    }
}
