//! Metrics on their way to the server.

use std::{
    collections::{HashMap, VecDeque},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use weir_base::time::{Time, turn};
use weir_flags_session::{
    Token,
    metrics::{Batch, Fate, Pacing, Upload},
};

use super::{Desk, upstream::Call};
use crate::{edge::Edge, environment::lock, settings::UpstreamSource};

/// The longest wait between two looks at what is due.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The pace of an environment, and the time of its next upload.
#[derive(Default)]
struct Due {
    pacing: Pacing,
    at: Time,
}

/// Uploads for as long as the keeper lives.
pub(super) async fn run(desk: Rc<Desk>, source: UpstreamSource) {
    let mut dues: HashMap<String, Due> = HashMap::new();
    let mut fallback = turn::now().saturating_add(source.metrics_interval);
    loop {
        weir_engine::sleep(LOOK_INTERVAL.min(source.metrics_interval)).await;
        let now = turn::now();
        let waiting: Vec<String> = lock(&desk.edge.aggregates).environments().map(str::to_owned).collect();
        for environment in waiting {
            let due = dues.entry(environment.clone()).or_insert(Due { pacing: Pacing::default(), at: fallback });
            if now < due.at {
                continue;
            }
            upload(&desk, &source, &environment, &mut due.pacing, true).await;
            let interval = due.pacing.interval(source.metrics_interval);
            due.at = turn::now().saturating_add(desk.rng.borrow_mut().jitter(interval, 0.1));
        }
        if fallback <= now {
            fallback = now.saturating_add(source.metrics_interval);
        }
    }
}

/// Sends everything once, at the end of the process.
pub(super) async fn last(desk: &Desk, source: &UpstreamSource) {
    let waiting: Vec<String> = lock(&desk.edge.aggregates).environments().map(str::to_owned).collect();
    for environment in waiting {
        upload(desk, source, &environment, &mut Pacing::default(), false).await;
    }
}

/// Sends the sums of an environment. Applications come before their metrics, so one body follows the other.
async fn upload(desk: &Desk, source: &UpstreamSource, environment: &str, pacing: &mut Pacing, may_retry: bool) {
    let view = desk.edge.view();
    let Some(token) = view.sources.iter().find(|token| token.environment() == Some(environment)).cloned() else {
        // A token that is not validated yet may be one of it.
        if !view.awaits_sources {
            discard(desk, environment);
        }
        return;
    };
    let mut underway = Underway { edge: &desk.edge, batches: lock(&desk.edge.aggregates).take(environment).into() };
    while let Some(batch) = underway.batches.front() {
        let (upload, losses) = send(desk, source, &token, batch, may_retry).await;
        let items = batch.items();
        match pacing.on(upload) {
            Fate::Done => drop(underway.batches.pop_front()),
            Fate::Drop => {
                underway.batches.pop_front();
                tracing::error!(environment, ?upload, items, "the server does not take metrics; they are dropped");
            }
            Fate::PutBack => {
                tracing::warn!(
                    environment,
                    ?upload,
                    losses,
                    "the server does not take metrics now; they are sent later"
                );
                return;
            }
        }
    }
}

/// Forgets the sums of an environment without a token: they would take the room of others for ever.
fn discard(desk: &Desk, environment: &str) {
    let items = lock(&desk.edge.aggregates).discard_environment(environment);
    tracing::warn!(environment, items, "no token of `tokens` is of this environment any more; its metrics are dropped");
}

/// Bodies that the server has not taken. They go back among the sums, also if a reload or the end of the process stops the upload.
struct Underway<'a> {
    edge: &'a Edge,
    batches: VecDeque<Batch>,
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        let mut sums = lock(&self.edge.aggregates);
        self.batches.drain(..).for_each(|batch| sums.put_back(batch));
    }
}

/// Sends one body, again after a loss. Returns its end, and the number of losses.
async fn send(
    desk: &Desk,
    source: &UpstreamSource,
    token: &Arc<Token>,
    batch: &Batch,
    may_retry: bool,
) -> (Upload, u32) {
    let mut losses = 0;
    loop {
        let call = Call::post("/api/client/metrics/bulk", Some(token), batch.to_json());
        match desk.send(source, call).await {
            Some(Ok(response)) => return (Upload::Status(response.status), losses),
            Some(Err(_)) | None => losses += 1,
        }
        let wait = Pacing::retry_after(losses, &mut desk.rng.borrow_mut()).filter(|_| may_retry);
        match wait {
            Some(wait) => weir_engine::sleep(wait).await,
            None => return (Upload::Lost, losses),
        }
    }
}
