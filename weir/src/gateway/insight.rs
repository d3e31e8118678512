//! What the workers remember of their requests, asked of them by mail and merged for the admin server.

use std::time::{Duration, UNIX_EPOCH};

use tokio::sync::mpsc;
use weir_admin::{
    BoxFuture,
    status::{BigKeyStatus, HotKeyStatus, InsightAnswer, KeyDirection, KeyNames, SlowLogReset, SlowRequestStatus},
};
use weir_base::time::Time;
use weir_config::Snapshot;
use weir_redis::{
    InsightReport,
    insight::{
        BigKey, Direction, HotKey, SlowRequest, merge_big_keys, merge_hot_keys, merge_slow_requests,
        settings::{InsightSettings, KeyNames as Names},
    },
};
use weir_telemetry::Level;

use super::{Gateway, plan::Mail};

/// How long the workers may take to answer; one that does not is in a turn that has lasted as long.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// What the workers shall remember: nothing where telemetry is off.
pub(super) fn insight_settings(snapshot: &Snapshot) -> InsightSettings {
    match snapshot.telemetry.level {
        Level::Off => InsightSettings::off(),
        Level::Counters | Level::Full => snapshot.protocols.redis,
    }
}

impl Gateway {
    /// What all workers remember.
    pub(super) fn ask_insight(&self) -> BoxFuture<'_, InsightAnswer> {
        Box::pin(async {
            let (reports, workers_silent) = self.ask(Mail::Tell, |report: &InsightReport| report.worker).await;
            // Settings of telemetry hold from the start of the process to its end.
            let settings = insight_settings(&self.first);
            let now = Time::now();
            let hot_keys = merge_hot_keys(reports.iter().map(|report| report.hot_keys.clone()));
            let big_keys = merge_big_keys(reports.iter().map(|report| report.big_keys.clone()));
            let slow = merge_slow_requests(reports.iter().map(|report| report.slow.clone()));
            InsightAnswer {
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
    pub(super) fn ask_slow_log_reset(&self) -> BoxFuture<'_, SlowLogReset> {
        Box::pin(async {
            let (answers, workers_silent) = self.ask(Mail::ResetSlowLog, |answer: &(usize, usize)| answer.0).await;
            SlowLogReset { removed: answers.iter().map(|(_, removed)| *removed as u64).sum(), workers_silent }
        })
    }

    /// Asks every worker; the answers, and who gave none in time.
    async fn ask<T>(
        &self,
        mail: fn(mpsc::UnboundedSender<T>) -> Mail,
        worker_of: fn(&T) -> usize,
    ) -> (Vec<T>, Vec<u32>) {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        self.tell(|| mail(sender.clone()));
        // The channel ends when the last worker has answered, or thrown its mail away.
        drop(sender);
        let mut answers = Vec::new();
        let all = async {
            while let Some(answer) = receiver.recv().await {
                answers.push(answer);
            }
        };
        let _ = tokio::time::timeout(ANSWER_TIME, all).await;
        let has_answered = |id: &usize| answers.iter().any(|answer| worker_of(answer) == *id);
        let silent = (0..self.states.len()).filter(|id| !has_answered(id)).map(|id| id as u32).collect();
        (answers, silent)
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
