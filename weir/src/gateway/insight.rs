//! The memory of the workers of their Redis requests, merged for the admin server.

use std::time::{Duration, UNIX_EPOCH};

use tokio::sync::mpsc;
use weir_admin::{
    BoxFuture,
    status::{BigKeyStatus, HotKeyStatus, InsightResponse, KeyDirection, KeyNames, SlowLogReset, SlowRequestStatus},
};
use weir_base::time::{Time, turn};
use weir_config::Snapshot;
use weir_redis::insight::{
    BigKey, Direction, HotKey, SlowRequest, merge_big_keys, merge_hot_keys, merge_slow_requests,
    settings::{InsightSettings, KeyNames as Names},
};
use weir_telemetry::Level;

use super::{Gateway, plan::Mail, protocols::WorkerProtocols};

/// How long the workers may take to respond; one that does not is in a turn that has lasted as long.
const RESPONSE_TIME: Duration = Duration::from_secs(1);

/// Settings of the workers' records: none where telemetry is off.
pub(super) fn insight_settings(snapshot: &Snapshot) -> InsightSettings {
    match snapshot.telemetry.level {
        Level::Off => InsightSettings::off(),
        Level::Counters | Level::Full => snapshot.protocols.redis,
    }
}

impl Gateway {
    /// The memory of all workers.
    pub(super) fn collect_insight(&self) -> BoxFuture<'_, InsightResponse> {
        Box::pin(async {
            let (reports, workers_silent) = self.visit(|protocols| protocols.redis.insight.report(turn::now())).await;
            // Settings of telemetry hold from the start of the process to its end.
            let settings = insight_settings(&self.first);
            let now = Time::now();
            let hot_keys = merge_hot_keys(reports.iter().map(|report| report.hot_keys.clone()));
            let big_keys = merge_big_keys(reports.iter().map(|report| report.big_keys.clone()));
            let slow = merge_slow_requests(reports.iter().map(|report| report.slow.clone()));
            InsightResponse {
                names: match settings.names {
                    Names::Full => KeyNames::Full,
                    Names::Hashed => KeyNames::Hashed,
                    Names::Off => KeyNames::Off,
                },
                sample: settings.sample,
                hot_keys: hot_keys.iter().map(hot_key).collect(),
                big_keys: big_keys.iter().map(|key| big_key(key, now)).collect(),
                slower_than_seconds: (settings.slow_entries > 0).then_some(settings.slower_than.as_secs_f64()),
                slow_requests: slow.iter().map(slow_request).collect(),
                workers_silent,
            }
        })
    }

    /// Empties all slow logs.
    pub(super) fn reset_slow_logs(&self) -> BoxFuture<'_, SlowLogReset> {
        Box::pin(async {
            let (removed, workers_silent) = self.visit(|protocols| protocols.redis.insight.reset_slow() as u64).await;
            SlowLogReset { removed: removed.iter().sum(), workers_silent }
        })
    }

    /// Runs `look` on every worker. Returns the results, and the workers that gave none in [`RESPONSE_TIME`].
    pub(super) async fn visit<T: Send + 'static>(&self, look: fn(&WorkerProtocols) -> T) -> (Vec<T>, Vec<u32>) {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        self.send_to_workers(|| {
            let sender = sender.clone();
            // The receiver may have stopped waiting for the result.
            Mail::Visit(Box::new(move |protocols| drop(sender.send((protocols.worker, look(protocols))))))
        });
        // The channel ends when the last worker has looked, or thrown its mail away.
        drop(sender);
        let (mut results, mut silent) = (Vec::new(), (0..self.states.len()).collect::<Vec<_>>());
        let all = async {
            while let Some((worker, result)) = receiver.recv().await {
                results.push(result);
                silent.retain(|id| *id != worker);
            }
        };
        let _ = tokio::time::timeout(RESPONSE_TIME, all).await;
        (results, silent.into_iter().map(|id| id as u32).collect())
    }
}

fn hot_key(hot: &HotKey) -> HotKeyStatus {
    HotKeyStatus {
        key: hot.key.shown(),
        key_bytes: hot.key.bytes as u64,
        hash: format!("{:016x}", hot.key.hash),
        upstream: hot.key.keyspace.upstream.to_string(),
        db: hot.key.keyspace.db,
        command: hot.command.to_owned(),
        per_second: hot.per_second,
        samples: hot.samples.into(),
    }
}

fn big_key(big: &BigKey, now: Time) -> BigKeyStatus {
    BigKeyStatus {
        key: big.key.shown(),
        key_bytes: big.key.bytes as u64,
        hash: format!("{:016x}", big.key.hash),
        upstream: big.key.keyspace.upstream.to_string(),
        db: big.key.keyspace.db,
        bytes: big.bytes,
        direction: match big.direction {
            Direction::Request => KeyDirection::Request,
            Direction::Reply => KeyDirection::Reply,
        },
        command: big.command.to_owned(),
        age_seconds: now.since(big.at).as_secs_f64(),
    }
}

fn slow_request(slow: &SlowRequest) -> SlowRequestStatus {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let client = &slow.client;
    SlowRequestStatus {
        id: slow.id,
        ended_at: slow.ended.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
        duration_seconds: slow.duration.as_secs_f64(),
        gateway_seconds: slow.gateway.as_secs_f64(),
        upstream_seconds: slow.upstream.as_secs_f64(),
        command: slow.command.clone(),
        requests: slow.requests,
        outcome: slow.outcome.to_owned(),
        connection: client.id,
        peer: client.peer.clone(),
        client_name: some(&client.name),
        user: some(&client.user),
        listener: client.listener.to_string(),
        worker: client.worker as u32,
        upstream: slow.upstream_name.to_string(),
        endpoint: slow.endpoint.clone(),
    }
}
