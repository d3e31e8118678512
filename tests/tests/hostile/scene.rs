//! A server, a gateway in front of it, and a victim flow beside the attack.

use std::time::Duration;

use weir_tests::client::End;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Server};
use weir_tests::victim::Victim;
use weir_tests::wire::shown;

/// Resident memory may grow by this much during an attack of a few connections: buffers of the
/// allocator and the pool, never the size that the attacker claims.
pub const GROWTH_MAX: u64 = 24 << 20;

/// Everything that an attack happens in.
pub struct Scene {
    /// The victim flow; first, so that it ends first.
    victim: Option<Victim>,
    /// The gateway under attack.
    pub gateway: Gateway,
    /// The server behind the gateway.
    pub server: Server,
    resident: u64,
}

impl Scene {
    /// With default settings.
    pub fn set() -> Self {
        Self::set_with(|config| config)
    }

    /// With settings of the case.
    pub fn set_with(change: impl FnOnce(Config) -> Config) -> Self {
        let server = Server::start(Kind::Redis);
        let mut gateway = Gateway::start(change(Config::to(&server.address)));
        let victim = Victim::start(&gateway.address);
        gateway.wait_metric("weir_requests_total", &[], 20.0);
        let resident = gateway.process().resident();
        Self { victim: Some(victim), gateway, server, resident }
    }

    /// Sends `bytes`, expects exactly `refusal` and a close in order, and the counters to move by
    /// one under `reason`.
    pub fn refused(&self, bytes: &[u8], refusal: &[u8], reason: &str) {
        let before = self.closes(reason);
        let mut client = self.gateway.connect();
        client.send(bytes);
        let (reply, end) = client.read_to_end(Duration::from_secs(8));
        assert!(reply == refusal, "{}: answered {}, wanted {}", shown(bytes), shown(&reply), shown(refusal));
        assert_ne!(end, End::Silent, "{}: not closed", shown(bytes));
        assert_eq!(end, End::Closed, "{}: reset while a refusal was queued", shown(bytes));
        self.closed_once_more(before, reason);
    }

    /// `(defensive closes, violations)` under a reason so far.
    pub fn closes(&self, reason: &str) -> (f64, f64) {
        let metrics = self.gateway.metrics();
        (
            metrics.sum_where("weir_defensive_closes_total", &[("reason", reason)]),
            metrics.sum_where("weir_violations_total", &[("reason", reason)]),
        )
    }

    /// The counters moved by exactly one since `before`.
    pub fn closed_once_more(&self, before: (f64, f64), reason: &str) {
        weir_tests::deadline::until_true(format!("one close counted as {reason}"), || {
            self.closes(reason) == (before.0 + 1.0, before.1 + 1.0)
        });
    }

    /// The victim saw nothing, and memory stayed flat.
    pub fn unharmed(&mut self) {
        if let Some(victim) = self.victim.take() {
            victim.stop_unharmed();
        }
        let peak = self.gateway.process().resident_peak();
        let growth = peak.saturating_sub(self.resident);
        assert!(growth < GROWTH_MAX, "resident memory grew by {} MiB", growth >> 20);
    }

    /// The victim saw nothing; memory is the case's own business.
    pub fn victim_unharmed(&mut self) {
        if let Some(victim) = self.victim.take() {
            victim.stop_unharmed();
        }
    }
}
