//! The flags of a token: polls and deltas.

use std::{borrow::Cow, collections::HashMap, rc::Rc, sync::Arc, time::Duration};

use serde::Deserialize;
use weir_base::time::rfc3339;
use weir_engine::{JoinHandle, spawn};
use weir_flags_codec::{
    DeltaEvent, DocumentError, FeaturesDocument, limits::DOCUMENT_BYTES_MAX, metrics::ClientApplication,
};
use weir_flags_session::{Refused, Token};
use weir_http_codec::Known;

use super::{Desk, follow, upstream::Call};
use crate::{
    counts::PollResult,
    edge::{Watched, unix_time},
    limits::{POLL_FAILURES_MAX, POLL_REVOCATIONS_MAX, POLL_TIMEOUT, READ_AT_ONCE_MAX},
    settings::{UpstreamMode, UpstreamSource},
};

/// Keeps a task for each token that is polled, for as long as the keeper lives.
pub(super) async fn supervise(desk: Rc<Desk>, source: UpstreamSource) {
    let mut tasks: HashMap<Vec<u8>, (Arc<Token>, JoinHandle<()>)> = HashMap::new();
    loop {
        let wanted = desk.polled_tokens();
        desk.note_polled(&wanted);
        tasks.retain(|_, (token, _)| wanted.iter().any(|other| other == token));
        for token in wanted {
            let key = token.secret().expose().to_vec();
            tasks.entry(key).or_insert_with(|| {
                let task = spawn(run(desk.clone(), source.clone(), token.clone()));
                (token, task)
            });
        }
        let environments: Vec<_> = desk.state.borrow().environments.keys().cloned().collect();
        environments.iter().for_each(|name| desk.forget_unseen(name));
        desk.has_other_sources.wait().await;
    }
}

/// One token that is polled.
pub(super) struct Poller {
    pub(super) token: Arc<Token>,
    pub(super) environment: Box<str>,
    /// The entity tag of the last document that was taken.
    tag: Option<String>,
    /// Failures that lengthen the interval.
    failures: u32,
    /// Failures in a row.
    failed_in_row: u32,
    /// Polls in a row in which the server has said that it does not know the token.
    revocations: u32,
    /// The next delta is to be a whole state.
    wants_all: bool,
    /// The server has no deltas, or no stream.
    lacks_mode: bool,
    last: Option<PollResult>,
}

async fn run(desk: Rc<Desk>, source: UpstreamSource, token: Arc<Token>) {
    let environment = token.environment().unwrap_or_default().into();
    let mut poller = Poller {
        token,
        environment,
        tag: None,
        failures: 0,
        failed_in_row: 0,
        revocations: 0,
        wants_all: false,
        lacks_mode: false,
        last: None,
    };
    desk.edge.counts.begin(&poller.environment);
    // Beside the first poll, which does not wait for it.
    let registered = (desk.clone(), source.clone(), poller.token.clone());
    let _registration = spawn(async move { register(&registered.0, &registered.1, &registered.2).await });
    loop {
        let lacked_mode = poller.lacks_mode;
        let result = match source.mode {
            UpstreamMode::Polling => poller.poll(&desk, &source).await,
            _ if poller.lacks_mode => poller.poll(&desk, &source).await,
            UpstreamMode::Delta => poller.delta(&desk, &source).await,
            UpstreamMode::Streaming => follow::run(&desk, &source, &mut poller).await,
        };
        if poller.lacks_mode && !lacked_mode {
            // The server has no such endpoint, which is no failure of a poll.
            continue;
        }
        let wait = poller.note(&desk, &source, result);
        weir_engine::sleep(wait).await;
    }
}

/// Whether a response is that of Unleash to a token that it does not know (unleash-server 7.5, `api-token-middleware.ts`).
fn is_revocation(status: u16, body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Refusal<'a> {
        #[serde(borrow)]
        message: Cow<'a, str>,
    }
    let refusal = serde_json::from_slice::<Refusal<'_>>(body);
    status == 401 && refusal.is_ok_and(|refusal| refusal.message.contains("requires an API token"))
}

/// Makes this program known to the server, as SDKs do. A failure has no consequence.
async fn register(desk: &Desk, source: &UpstreamSource, token: &Token) {
    let mut other = serde_json::Map::new();
    other.insert("sdkVersion".to_owned(), concat!("weir:", env!("CARGO_PKG_VERSION")).into());
    let application = ClientApplication {
        app_name: source.app_name.to_string(),
        instance_id: Some(desk.edge.identity().instance_id.clone()),
        interval: (source.poll_interval.as_millis() as u64).into(),
        started: rfc3339(unix_time().as_secs()).into(),
        sdk_type: Some("backend".to_owned()),
        other,
        ..ClientApplication::default()
    };
    let body = serde_json::to_vec(&application).unwrap_or_default();
    let _ = desk.send(source, Call::post("/api/client/register", Some(token), body)).await;
}

impl Poller {
    /// Counts the result of a poll. Returns the wait before the next.
    fn note(&mut self, desk: &Desk, source: &UpstreamSource, result: PollResult) -> Duration {
        desk.edge.counts.polled(&self.environment, result);
        let is_good = matches!(result, PollResult::Changed | PollResult::Unchanged);
        match is_good {
            true => (self.failures, self.failed_in_row) = (self.failures.saturating_sub(1), 0),
            false => {
                self.failures = (self.failures + 1).min(POLL_FAILURES_MAX);
                self.failed_in_row += 1;
            }
        }
        if self.last.replace(result) != Some(result) && !is_good {
            tracing::error!(environment = &*self.environment, token = %self.token, ?result, "a poll of the server failed; the last flags stay");
        }
        match result {
            PollResult::Refused => self.refused(desk),
            _ => self.revocations = 0,
        }
        if is_good {
            desk.forget_unseen(&self.environment);
        }
        if !is_good && !desk.has_flags(&self.environment) {
            // Requests that wait for the first flags are to come again.
            desk.publish_to(Watched::Verdicts);
        }
        let mut rng = desk.rng.borrow_mut();
        // A gateway without flags is of no use: it does not wait for an interval.
        if !is_good && !desk.has_flags(&self.environment) {
            return rng.backoff(self.failed_in_row, Duration::from_secs(1), source.poll_interval);
        }
        rng.jitter(source.poll_interval.saturating_mul(1 + self.failures), 0.1)
    }

    /// A request with the token has been refused, by the server or by a firewall in front of it.
    fn refusal(&mut self, status: u16, body: &[u8]) -> PollResult {
        self.revocations = if is_revocation(status, body) { self.revocations + 1 } else { 0 };
        PollResult::Refused
    }

    /// The validation of a token that is refused decides, unless the server itself has said often enough that it does not know the token:
    /// unleash-server 7.5 validates tokens from a copy that has deleted ones for long.
    fn refused(&mut self, desk: &Desk) {
        if self.revocations >= POLL_REVOCATIONS_MAX {
            let changes = desk.state.borrow_mut().revoke(&self.token);
            return desk.on_changes(&changes);
        }
        desk.state.borrow_mut().tokens().doubt(self.token.secret().expose_str().unwrap_or_default());
        desk.edge.signal.notify();
    }

    /// Fetches the whole document, unless the server has no other one.
    async fn poll(&mut self, desk: &Desk, source: &UpstreamSource) -> PollResult {
        let tag = self.tag.clone();
        let fields: Vec<(&str, &str)> = tag.iter().map(|tag| ("if-none-match", &**tag)).collect();
        let call = Call {
            timeout: POLL_TIMEOUT,
            response_bytes_max: DOCUMENT_BYTES_MAX,
            ..Call::get("/api/client/features", &self.token, &fields)
        };
        let Some(Ok(response)) = desk.send(source, call).await else { return PollResult::Failed };
        match response.status {
            304 => return PollResult::Unchanged,
            200 if response.is_whole => {}
            401 | 403 => return self.refusal(response.status, &response.body),
            _ => return PollResult::Failed,
        }
        let tag = response.fields.get(Known::Etag).and_then(|tag| std::str::from_utf8(tag).ok()).map(str::to_owned);
        let document = match read(response.body, FeaturesDocument::read).await {
            Ok(document) => document,
            Err(error) => return self.garbage(&error),
        };
        match desk.take_document(&self.environment, self.token.projects(), document).await {
            Ok(Ok(is_changed)) => {
                self.tag = tag;
                if is_changed { PollResult::Changed } else { PollResult::Unchanged }
            }
            Ok(Err(refused)) => self.garbage(&refused),
            Err(error) => self.garbage(&error),
        }
    }

    /// Fetches the changes since the last revision.
    async fn delta(&mut self, desk: &Desk, source: &UpstreamSource) -> PollResult {
        let revision = desk.upstream_revision(&self.environment, self.token.projects()).filter(|_| !self.wants_all);
        let revision = revision.map(|revision| format!("\"{revision}\""));
        let fields: Vec<(&str, &str)> = revision.iter().map(|revision| ("if-none-match", &**revision)).collect();
        let call = Call {
            timeout: POLL_TIMEOUT,
            response_bytes_max: DOCUMENT_BYTES_MAX,
            ..Call::get("/api/client/delta", &self.token, &fields)
        };
        let Some(Ok(response)) = desk.send(source, call).await else { return PollResult::Failed };
        match response.status {
            304 => return PollResult::Unchanged,
            200 if response.is_whole => {}
            401 | 403 => return self.refusal(response.status, &response.body),
            404 | 405 | 501 => return self.lack("deltas"),
            _ => return PollResult::Failed,
        }
        match read(response.body, DeltaEvent::read_all).await {
            Ok(events) => self.take(desk, events).await,
            Err(error) => self.garbage(&error),
        }
    }

    /// Takes events of the server. A gap leads to the whole state.
    async fn take(&mut self, desk: &Desk, events: Vec<DeltaEvent>) -> PollResult {
        match desk.take_events(&self.environment, self.token.projects(), events).await {
            Ok(taken) => self.taken(taken),
            Err(error) => self.garbage(&error),
        }
    }

    /// Takes events with little in them at once.
    pub(super) fn take_few(&mut self, desk: &Desk, events: Vec<DeltaEvent>) -> PollResult {
        let taken = desk.take_few_events(&self.environment, self.token.projects(), events);
        self.taken(taken)
    }

    /// The result of events that were taken or refused.
    pub(super) fn taken(&mut self, taken: Result<bool, Refused>) -> PollResult {
        match taken {
            Ok(is_changed) => {
                self.wants_all = false;
                if is_changed { PollResult::Changed } else { PollResult::Unchanged }
            }
            Err(refused @ (Refused::NoState | Refused::OutOfOrder | Refused::SuddenlyEmpty)) => {
                self.wants_all = true;
                self.garbage(&refused)
            }
        }
    }

    /// The revision that the next stream begins behind.
    pub(super) fn revision(&self, desk: &Desk) -> Option<u64> {
        desk.upstream_revision(&self.environment, self.token.projects()).filter(|_| !self.wants_all)
    }

    /// The server does not have the mode: it is polled instead.
    pub(super) fn lack(&mut self, mode: &str) -> PollResult {
        tracing::warn!(environment = &*self.environment, "the server has no {mode}: it is polled instead");
        self.lacks_mode = true;
        PollResult::Failed
    }

    /// A response that is refused whole.
    pub(super) fn garbage(&self, error: &dyn std::fmt::Display) -> PollResult {
        tracing::error!(environment = &*self.environment, %error, "the server's response is refused; the last flags stay");
        PollResult::Garbage
    }
}

/// Reads a document; a large one on another thread.
pub(super) async fn read<T: Send + 'static>(
    body: Vec<u8>,
    read: fn(&[u8]) -> Result<T, DocumentError>,
) -> Result<T, DocumentError> {
    if body.len() <= READ_AT_ONCE_MAX {
        return read(&body);
    }
    let none = DocumentError { place: (0, 0), is_json: false };
    weir_engine::run_blocking(move || read(&body)).await.unwrap_or(Err(none))
}
