//! The fate of a body after a response, and the wait until the next upload.

use std::time::Duration;

use weir_base::Rng;

/// The end of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upload {
    /// The upstream has responded with this status.
    Status(u16),
    /// There was no response.
    Lost,
}

/// The fate of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The upstream has it.
    Done,
    /// It is dropped: another try would end in the same way.
    Drop,
    /// It goes back to the sums, for the next upload.
    PutBack,
}

/// The pace of the uploads of one environment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacing {
    failures: u32,
}

/// Failures that count.
const FAILURES_MAX: u32 = 10;

/// Tries of one body whose response is lost.
const TRIES_MAX: u32 = 5;

/// The wait before the second try. Each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(50);

impl Pacing {
    /// Notes the end of an upload.
    pub fn on(&mut self, upload: Upload) -> Fate {
        let (failures, fate) = match upload {
            Upload::Status(200..=299) => (0, Fate::Done),
            // The body is at fault, and the next one may be better.
            Upload::Status(400 | 413 | 415 | 422) => (self.failures, Fate::Drop),
            Upload::Status(408 | 425 | 429 | 500..) | Upload::Lost => (self.failures + 1, Fate::PutBack),
            // The token or the path is wrong, and stays so for a while.
            Upload::Status(_) => (FAILURES_MAX, Fate::Drop),
        };
        self.failures = failures.min(FAILURES_MAX);
        fate
    }

    /// The time until the next upload, for the configured one.
    pub const fn interval(&self, configured: Duration) -> Duration {
        configured.saturating_mul(1 + self.failures)
    }

    /// The wait before the next try of a body whose response was lost so many times. `None`: no further try; the body goes back.
    pub fn retry_after(losses: u32, rng: &mut Rng) -> Option<Duration> {
        let wait = FIRST_WAIT.saturating_mul(1_u32.checked_shl(losses.saturating_sub(1))?);
        (losses < TRIES_MAX).then(|| rng.jitter(wait, 0.5))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_decides_about_the_body_and_the_pace() {
        let minute = Duration::from_secs(60);
        let mut pacing = Pacing::default();
        let mut next = |upload| (pacing.on(upload), pacing.interval(minute).as_secs() / 60);
        assert_eq!(next(Upload::Status(202)), (Fate::Done, 1));
        assert_eq!(next(Upload::Status(503)), (Fate::PutBack, 2));
        assert_eq!(next(Upload::Lost), (Fate::PutBack, 3));
        assert_eq!(next(Upload::Status(400)), (Fate::Drop, 3));
        assert_eq!(next(Upload::Status(413)), (Fate::Drop, 3));
        assert_eq!(next(Upload::Status(429)), (Fate::PutBack, 4));
        for status in [401, 403, 404] {
            assert_eq!(next(Upload::Status(status)), (Fate::Drop, 11));
        }
        assert_eq!(next(Upload::Status(500)), (Fate::PutBack, 11), "no more than that");
        assert_eq!(next(Upload::Status(200)), (Fate::Done, 1));
    }

    #[test]
    fn a_lost_response_has_five_tries() {
        let mut rng = Rng::new(1);
        let waits: Vec<Option<Duration>> = (1..=5).map(|losses| Pacing::retry_after(losses, &mut rng)).collect();
        assert_eq!(waits.iter().flatten().count(), 4);
        for (wait, millis) in waits.into_iter().flatten().zip([50, 100, 200, 400]) {
            let middle = Duration::from_millis(millis);
            assert!(wait >= middle / 2 && wait <= middle * 3 / 2, "{wait:?}");
        }
    }
}
