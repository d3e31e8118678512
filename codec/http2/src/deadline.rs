//! Deadlines of a machine that has no clock.

use std::time::Duration;

use weir_base::time::Time;

/// A deadline. Its time begins with the next look at the clock: few calls of the machine carry one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    No,
    /// So long after the next look.
    After(Duration),
    At(Time),
}

impl Deadline {
    pub(crate) fn after(time: Duration) -> Self {
        Self::After(time)
    }

    /// When to look at it: at once, so that its time begins, or when it is due.
    pub(crate) fn next_look(self) -> Option<Time> {
        match self {
            Self::No => None,
            Self::After(_) => Some(Time::ZERO),
            Self::At(at) => Some(at),
        }
    }

    /// Looks at it. True, once: it is due.
    pub(crate) fn is_due(&mut self, now: Time) -> bool {
        match *self {
            Self::After(time) => *self = Self::At(now.saturating_add(time)),
            Self::At(at) if at <= now => {
                *self = Self::No;
                return true;
            }
            Self::No | Self::At(_) => {}
        }
        false
    }
}
