//! The end of the gateway: in order and within a limit, or now.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use weir_listener::Drain;

use super::{Gateway, Phase, listening::ListenerSockets, lock, plan::Mail};
use crate::systemd;

/// How long the background threads may take to end: a log that takes no more lines must not hold the process.
const BACKGROUND_END: Duration = Duration::from_secs(1);
/// How long after the limit of the drain workers may take to end: one that is stuck must not hold the process.
const WORKERS_END: Duration = Duration::from_secs(5);
/// Between two looks at what is left.
const LOOK: Duration = Duration::from_millis(10);

/// Mail on its way to all workers.
pub struct DeliveryMark(Arc<()>);

impl DeliveryMark {
    /// Every worker has handled all earlier mail.
    pub fn is_all(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl Gateway {
    /// Requests a drain: the waiter for [`Gateway::drain_requested`] then runs [`Gateway::drain`].
    pub fn request_drain(&self) {
        self.is_drain_requested.store(true, Ordering::Relaxed);
        self.drain_requested.notify_one();
    }

    /// Waits for the request to drain.
    pub async fn drain_requested(&self) {
        self.drain_requested.notified().await;
    }

    /// Ends the gateway in order: readiness false, settle, stop accepting, let exchanges finish within the limit, cut the
    /// rest. How many connections were cut. After an upgrade another process accepts already.
    pub async fn drain(&self) -> usize {
        let settings = self.snapshot().drain.clone();
        *lock(&self.drain_begun) = Some(Instant::now());
        self.set_phase(Phase::Settling);
        // An upgrade that is past its last step cannot be called off, and whose the sockets are is known when it is over.
        while self.is_upgrade_under_way() {
            tokio::time::sleep(LOOK).await;
        }
        if self.is_handed_over() {
            tracing::info!(timeout = ?settings.timeout, "handed over, draining");
        } else {
            systemd::stopping();
            tracing::info!(settle = ?settings.settle, timeout = ?settings.timeout, "draining");
            tokio::time::sleep(settings.settle).await;
            self.send_to_workers(|| Mail::StopAccepting);
        }
        self.set_phase(Phase::Draining);
        self.send_to_workers(|| Mail::Drain(Drain::Gentle));
        let begun = Instant::now();
        self.sessions_end(begun, settings.timeout).await;
        self.set_phase(Phase::Drained);
        let took = begun.elapsed();
        self.end(begun + settings.timeout);
        // Counted by the workers as they cut: a connection that only lingers after its last reply is not among them.
        let counted = self.registry.read().counter("weir_drain_cut_total", &[("cut", "connection")]);
        let cut = counted.unwrap_or(0) as usize;
        tracing::info!(cut, ?took, "drained");
        cut
    }

    /// Waits until no connection is left, here or on its way to the new process, for `limit` at most. Half of it is for
    /// those that may still get what they wait for.
    async fn sessions_end(&self, begun: Instant, limit: Duration) {
        let reached = self.mark_delivery();
        let (mut is_reached, mut is_firm) = (false, false);
        while begun.elapsed() < limit {
            if !is_reached && reached.is_all() {
                is_reached = true;
                self.leave_sockets();
            }
            // Until each worker has stopped accepting, that there is no connection does not mean that none comes.
            if is_reached && self.connections() == 0 && self.departing() == 0 {
                return;
            }
            if !is_firm && begun.elapsed() > limit / 2 {
                is_firm = true;
                self.send_to_workers(|| Mail::Drain(Drain::Firm));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends the workers, then what they left to be done until `deadline`.
    fn end(&self, deadline: Instant) {
        self.send_to_workers(|| Mail::Stop);
        let workers_end = deadline.max(Instant::now()) + WORKERS_END;
        for worker in lock(&self.workers).drain(..) {
            while !worker.is_finished() && Instant::now() < workers_end {
                std::thread::sleep(Duration::from_millis(1));
            }
            if !worker.is_finished() {
                tracing::error!(worker = worker.id, "a worker does not end and is left behind");
            } else if let Err(error) = worker.join() {
                tracing::error!(%error, "worker");
            }
        }
        self.spend.finish();
        if let Some(departures) = lock(&self.departures).take() {
            departures.finish(deadline);
        }
        if !self.is_handed_over() {
            lock(&self.listening).values().for_each(ListenerSockets::remove_file);
        }
        self.stopping.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + BACKGROUND_END;
        for thread in lock(&self.background).drain(..) {
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// Connections that the workers have let go and the new process has not got.
    fn departing(&self) -> usize {
        lock(&self.departures).as_ref().map_or(0, |departures| departures.waiting())
    }

    /// A mark that shows when every worker has handled all earlier mail.
    pub fn mark_delivery(&self) -> DeliveryMark {
        let mark = Arc::new(());
        self.send_to_workers(|| Mail::Reached(mark.clone()));
        DeliveryMark(mark)
    }
}
