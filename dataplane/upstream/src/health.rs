//! The active probe: does the endpoint respond?

use std::{
    future::Future,
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use weir_base::time::Time;
use weir_engine::{Stream, timeout};

use crate::{connect::ConnectError, endpoint::Endpoint, settings::HealthSettings};

/// Result of the health probe of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointState {
    /// No probe has finished yet, or probing is off.
    Unknown,
    /// It responds.
    Up,
    /// It does not.
    Down,
}

impl EndpointState {
    /// The word in the admin API and the metric label.
    pub fn name(self) -> &'static str {
        match self {
            EndpointState::Unknown => "unknown",
            EndpointState::Up => "up",
            EndpointState::Down => "down",
        }
    }
}

/// The health of one endpoint: written by the one worker that probes, read by all.
#[derive(Debug, Default)]
pub struct Health {
    state: AtomicU8,
    /// Since when it is up again after it was down, in ns; 0: it never was.
    up_since: AtomicU64,
    /// When a probe was good last, in ns; 0: none was.
    good_at: AtomicU64,
    last_error: Mutex<Option<(String, Time)>>,
}

impl Health {
    /// The state now.
    pub fn state(&self) -> EndpointState {
        match self.state.load(Ordering::Relaxed) {
            0 => EndpointState::Unknown,
            1 => EndpointState::Up,
            _ => EndpointState::Down,
        }
    }

    /// Since when it is up again, if it was down before.
    pub(crate) fn up_since(&self) -> Option<Time> {
        Some(self.up_since.load(Ordering::Relaxed)).filter(|&nanos| nanos > 0).map(Time::from_nanos)
    }

    /// A probe was good later than that.
    pub(crate) fn was_good_after(&self, at: Time) -> bool {
        self.good_at.load(Ordering::Relaxed) > at.as_nanos()
    }

    /// Message and time of the last failed probe; a later success does not erase it.
    pub fn last_error(&self) -> Option<(String, Time)> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, state: EndpointState, error: Option<String>) {
        let before = self.state();
        self.state.store(state as u8, Ordering::Relaxed);
        if (before, state) == (EndpointState::Down, EndpointState::Up) {
            self.up_since.store(Time::now().as_nanos(), Ordering::Relaxed);
        }
        match error {
            None => self.good_at.store(Time::now().as_nanos(), Ordering::Relaxed),
            Some(error) => {
                *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some((error, Time::now()));
            }
        }
    }
}

/// Counts probe results in a row.
#[derive(Debug)]
struct Streak {
    settings: HealthSettings,
    good: u32,
    bad: u32,
}

impl Streak {
    /// The new state that this result decides, if any. The first result decides at once.
    fn note(&mut self, is_good: bool, state: EndpointState) -> Option<EndpointState> {
        (self.good, self.bad) = if is_good { (self.good + 1, 0) } else { (0, self.bad + 1) };
        let is_first = state == EndpointState::Unknown;
        match state {
            EndpointState::Up => (self.bad >= self.settings.unhealthy_after).then_some(EndpointState::Down),
            _ if self.good > 0 && (is_first || self.good >= self.settings.healthy_after) => Some(EndpointState::Up),
            EndpointState::Unknown if self.bad >= self.settings.unhealthy_after => Some(EndpointState::Down),
            _ => None,
        }
    }
}

/// How to find out whether a server responds.
pub trait Probe {
    /// Asks once; gives the connection back if it may carry another probe.
    ///
    /// # Errors
    /// It does not respond, or not well; its words are shown to the operator.
    fn check(&self, stream: Stream) -> impl Future<Output = io::Result<Option<Stream>>>;
}

/// That a server takes a connection is enough.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionProbe;

impl Probe for ConnectionProbe {
    async fn check(&self, _: Stream) -> io::Result<Option<Stream>> {
        Ok(None)
    }
}

/// Probes `endpoint` until the task is dropped, on a connection of its own that `open` makes.
pub(crate) async fn probe_loop(
    endpoint: &Endpoint,
    settings: HealthSettings,
    open: impl AsyncFn() -> Result<Stream, ConnectError>,
    probe: &impl Probe,
) {
    let mut streak = Streak { settings: settings.clone(), good: 0, bad: 0 };
    let mut stream = None;
    loop {
        let outcome = probe_once(&settings, &open, probe, &mut stream).await;
        let health = endpoint.health();
        endpoint.metrics().probed(outcome.is_ok());
        let before = health.state();
        let decided = streak.note(outcome.is_ok(), before);
        let error = outcome.err().map(|error| error.to_string());
        if let Some(error) = error.as_ref().filter(|_| before == EndpointState::Unknown && streak.bad == 1) {
            endpoint.metrics().unreachable(error);
        }
        if let Some(state) = decided.filter(|&state| state != before) {
            endpoint.metrics().health_changed(state, error.as_deref());
        }
        health.set(decided.unwrap_or(before), error);
        weir_engine::sleep(settings.interval).await;
    }
}

async fn probe_once(
    settings: &HealthSettings,
    open: &impl AsyncFn() -> Result<Stream, ConnectError>,
    probe: &impl Probe,
    kept: &mut Option<Stream>,
) -> io::Result<()> {
    let ask = async {
        if let Some(stream) = kept.take() {
            match probe.check(stream).await {
                // A server may close a connection that was idle since the last probe: that says nothing of its health.
                Err(error) if is_end(error.kind()) => {}
                checked => {
                    *kept = checked?;
                    return Ok(());
                }
            }
        }
        let stream = open().await.map_err(|error| io::Error::other(error.text))?;
        *kept = probe.check(stream).await?;
        Ok(())
    };
    let result = timeout(settings.timeout, ask).await;
    result.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no response to the probe")))
}

fn is_end(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn streak() -> Streak {
        let settings = HealthSettings {
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            unhealthy_after: 3,
            healthy_after: 2,
        };
        Streak { settings, good: 0, bad: 0 }
    }

    #[test]
    fn the_first_good_probe_decides_and_later_ones_need_a_streak() {
        let mut streak = streak();
        assert_eq!(streak.note(true, EndpointState::Unknown), Some(EndpointState::Up));
        assert_eq!(streak.note(false, EndpointState::Up), None);
        assert_eq!(streak.note(true, EndpointState::Up), None, "one failure in between is forgiven");
        assert_eq!(streak.note(false, EndpointState::Up), None);
        assert_eq!(streak.note(false, EndpointState::Up), None);
        assert_eq!(streak.note(false, EndpointState::Up), Some(EndpointState::Down));
        assert_eq!(streak.note(true, EndpointState::Down), None);
        assert_eq!(streak.note(true, EndpointState::Down), Some(EndpointState::Up));
    }
}
