//! Users that a server knows: `auth_query`, run as `auth_user`.
//!
//! The query runs on connections that no client ever has, with a `search_path` of their own: nothing that a client sends reaches
//! them but its name, which is a parameter. Results are kept for a short time. One query looks for a user at a time, and all
//! clients that log in as that user wait for it.

use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc, time::Duration};

use futures_util::future::{FutureExt as _, LocalBoxFuture, Shared, WeakShared};
use weir_base::{
    error::Culprit,
    exchange::{LossCause, Refusal},
    time::{Time, turn},
    violation::Violation,
};
use weir_engine::{Stream, timeout};
use weir_postgres_codec::{
    TransactionStatus,
    backend::{self, DataRow, ErrorFields, ReadyForQuery},
    frame, frontend,
};
use weir_postgres_session::{
    ServerState, WorkerShare,
    users::{AuthQueryError, User, auth_query_row},
};
use weir_upstream::{
    SelectionCriteria,
    pooled::{Condition, Patience},
};

use crate::{
    server::PoolKey,
    service::PostgresUpstream,
    settings::{AuthQuerySettings, user},
};

/// How long a result counts. Default 10 s: a storm of logins costs one query for each user, and a password that was changed, or has
/// expired, opens no longer than that.
const RESULT_LIFETIME: Duration = Duration::from_secs(10);
/// A wrong password within this time after the query does not lead to another one. Default 1 s: the password may have been
/// changed meanwhile, and guesses must cost no query each.
const DOUBT_AFTER: Duration = Duration::from_secs(1);
/// Users whose results are kept per listener and worker. Default 1,024, about 600 KiB; beyond it all are forgotten.
const RESULTS_MAX: usize = 1_024;
/// Bytes of a name that is looked for. Default 255; PostgreSQL cuts names at 63, and a query of the operator's own may have longer
/// ones.
const NAME_BYTES_MAX: usize = 255;
/// Bytes of the reply to a query. A row has about 200.
const REPLY_BYTES_MAX: usize = 64 * 1024;

/// Why a user cannot be looked for. Says nothing about the user.
#[derive(Clone, Debug)]
pub(crate) enum LookupFailure {
    /// No connection for the query.
    NoServer(Refusal),
    /// It took too long.
    Timeout,
    /// The server refused it, broke the protocol, or returned something else than a user.
    Query(Arc<Violation>),
}

impl LookupFailure {
    fn query(text: impl Into<String>) -> Self {
        let text = format!("auth_query: {}", text.into());
        Self::Query(Arc::new(Violation::rule("postgres_auth_query", Culprit::Upstream, text)))
    }
}

type Found = Result<Option<Arc<User>>, LookupFailure>;
type Query = LocalBoxFuture<'static, Found>;

/// Knowledge of a user.
enum Entry {
    /// The result of a query.
    Known { user: Option<Arc<User>>, since: Time },
    /// A query that runs as long as a client waits for it.
    Running(WeakShared<Query>),
}

/// The users of one listener on one worker that were looked for.
#[derive(Default)]
pub(crate) struct Lookups(RefCell<HashMap<Box<[u8]>, Entry>>);

impl Lookups {
    /// The user of this name; `None`: there is none.
    pub(crate) async fn find(
        &self,
        name: &[u8],
        settings: &Arc<AuthQuerySettings>,
        upstream: &Rc<PostgresUpstream>,
        share: &Rc<WorkerShare>,
    ) -> Found {
        if name.len() > NAME_BYTES_MAX {
            return Ok(None);
        }
        let running = match self.known(name) {
            Ok(user) => return Ok(user),
            Err(Some(running)) => running,
            Err(None) => {
                let limit = settings.timeout;
                let query = look_up(name.into(), settings.clone(), upstream.clone(), share.clone());
                let query = async move { timeout(limit, query).await.unwrap_or(Err(LookupFailure::Timeout)) };
                let running = query.boxed_local().shared();
                self.begin(name, &running);
                running
            }
        };
        let found = running.clone().await;
        self.keep(name, &running, &found);
        found
    }

    /// A query of which the next clients take part. The entry does not keep it alive.
    fn begin(&self, name: &[u8], running: &Shared<Query>) {
        let mut entries = self.0.borrow_mut();
        if entries.len() >= RESULTS_MAX {
            entries.clear();
        }
        if let Some(weak) = running.downgrade() {
            entries.insert(name.into(), Entry::Running(weak));
        }
    }

    /// A result that counts, or else a query that runs.
    fn known(&self, name: &[u8]) -> Result<Option<Arc<User>>, Option<Shared<Query>>> {
        match self.0.borrow().get(name) {
            Some(Entry::Known { user, since }) if turn::now().since(*since) < RESULT_LIFETIME => Ok(user.clone()),
            Some(Entry::Running(weak)) => Err(weak.upgrade()),
            _ => Err(None),
        }
    }

    /// The first client that sees a result keeps it for the others. A failure is none, nor is a result that was forgotten
    /// while the query ran.
    fn keep(&self, name: &[u8], running: &Shared<Query>, found: &Found) {
        let mut entries = self.0.borrow_mut();
        let Some(Entry::Running(current)) = entries.get(name) else { return };
        if !current.upgrade().is_some_and(|current| current.ptr_eq(running)) {
            return;
        }
        match found {
            Ok(user) => entries.insert(name.into(), Entry::Known { user: user.clone(), since: turn::now() }),
            Err(_) => entries.remove(name),
        };
    }

    /// A client's password is wrong: perhaps the result is out of date.
    pub(crate) fn doubt(&self, name: &[u8]) {
        let is_old = |since: Time| turn::now().since(since) >= DOUBT_AFTER;
        let mut entries = self.0.borrow_mut();
        if matches!(entries.get(name), Some(Entry::Known { since, .. }) if is_old(*since)) {
            entries.remove(name);
        }
    }

    /// The server does not accept what is known of a user.
    pub(crate) fn forget(&self, name: &[u8]) {
        self.0.borrow_mut().remove(name);
    }

    /// Other settings.
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

/// Runs the query.
async fn look_up(
    name: Box<[u8]>,
    settings: Arc<AuthQuerySettings>,
    upstream: Rc<PostgresUpstream>,
    share: Rc<WorkerShare>,
) -> Found {
    let pool = upstream.pool(&PoolKey::of_lookups(&settings, upstream.protocol().settings().channel_binding));
    let since = turn::now();
    let patience = Patience { since, deadline: since.saturating_add(settings.timeout), notify_at: None };
    let acquired = pool.acquire(SelectionCriteria::default(), patience, || {}).await;
    let mut server = acquired.map_err(|error| LookupFailure::NoServer(error.refusal))?;
    let (stream, state) = server.parts();
    stream.output.with(|out| {
        frontend::parse(out, b"", settings.query.as_bytes(), &[]);
        frontend::bind(out, b"", b"", [Some(&name[..])]);
        frontend::execute(out, b"", 2);
        frontend::sync(out);
    });
    let reply = match reply(stream, state, &share).await {
        Ok(reply) => reply,
        Err(failure) => {
            server.close(LossCause::Violation);
            return Err(failure);
        }
    };
    server.give_back(Condition::Clean);
    let rows = match reply {
        Ok(rows) => rows,
        // The name is no text in the encoding of the database.
        Err(refused) if refused.sqlstate.starts_with("22") => return Ok(None),
        // Its statement_timeout, which is ours.
        Err(refused) if refused.sqlstate == "57014" => return Err(LookupFailure::Timeout),
        Err(Refused { sqlstate, text }) => return Err(LookupFailure::query(format!("{text} ({sqlstate})"))),
    };
    match auth_query_row(&name, &rows) {
        Ok(None) => Ok(None),
        Ok(Some(Some(stored))) => Ok(Some(Arc::new(user(&name, &stored)))),
        Ok(Some(None)) => Ok(Some(Arc::new(User::without_password(&name)))),
        // A longer name than the server has was cut there: it has no such user.
        Err(AuthQueryError::OtherUser) => Ok(None),
        Err(error) => Err(LookupFailure::query(error.to_string())),
    }
}

/// Rows, each with its columns.
type Rows = Vec<Vec<Option<Vec<u8>>>>;

/// An error of the server that ends the query and not the connection.
struct Refused {
    sqlstate: String,
    text: String,
}

/// The reply to a query, up to ReadyForQuery.
async fn reply(
    stream: &mut Stream,
    state: &mut ServerState,
    share: &WorkerShare,
) -> Result<Result<Rows, Refused>, LookupFailure> {
    let broken = || LookupFailure::query("the server broke the protocol");
    let (mut input, mut received, mut reply) = (Vec::new(), 0, Ok(Rows::new()));
    loop {
        let Ok(Some(chunk)) = stream.reader.receive().await else {
            return Err(LookupFailure::query("the server was lost"));
        };
        received += chunk.len();
        if received > REPLY_BYTES_MAX {
            return Err(LookupFailure::query("the reply is too long"));
        }
        input.extend_from_slice(&chunk);
        let mut at = 0;
        while let Some(head) = frame::head(&input[at..]).map_err(|_| broken())? {
            let Some(message) = input.get(at..at + head.whole()) else { break };
            let body = &message[frame::HEAD_BYTES..];
            at += message.len();
            match head.tag {
                backend::tag::DATA_ROW => {
                    let row = DataRow::read(body).map_err(|_| broken())?;
                    if let Ok(rows) = &mut reply {
                        rows.push(row.iter().map(|value| value.map(<[u8]>::to_vec)).collect());
                    }
                }
                backend::tag::ERROR => {
                    let fields = ErrorFields::read(body).map_err(|_| broken())?;
                    let text = String::from_utf8_lossy(fields.message().unwrap_or_default()).into_owned();
                    reply = Err(Refused { sqlstate: fields.sqlstate().unwrap_or_default().to_owned(), text });
                }
                backend::tag::READY_FOR_QUERY => {
                    let status = ReadyForQuery::read(body).map_err(|_| broken())?.0;
                    let is_last = at == input.len() && status == TransactionStatus::Idle;
                    return if is_last { Ok(reply) } else { Err(broken()) };
                }
                backend::tag::PARAMETER_STATUS | backend::tag::NOTICE | backend::tag::NOTIFICATION => {
                    state.on_idle_bytes(message, share).map_err(|_| broken())?;
                }
                backend::tag::PARSE_COMPLETE
                | backend::tag::BIND_COMPLETE
                | backend::tag::COMMAND_COMPLETE
                | backend::tag::EMPTY_QUERY
                | backend::tag::PORTAL_SUSPENDED => {}
                _ => return Err(broken()),
            }
        }
        input.drain(..at);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::{pending, ready};

    use super::*;

    fn query(found: Found) -> Shared<Query> {
        ready(found).boxed_local().shared()
    }

    #[test]
    fn clients_of_one_user_share_a_query_and_its_result() {
        let lookups = Lookups::default();
        assert!(matches!(lookups.known(b"app"), Err(None)), "the first one has to begin");
        let running = query(Ok(None));
        lookups.begin(b"app", &running);
        assert!(matches!(lookups.known(b"app"), Err(Some(shared)) if shared.ptr_eq(&running)));
        assert!(matches!(lookups.known(b"other"), Err(None)));
        lookups.keep(b"app", &running, &Ok(None));
        assert!(matches!(lookups.known(b"app"), Ok(None)));
        // A wrong password at once says nothing about the result.
        lookups.doubt(b"app");
        assert!(matches!(lookups.known(b"app"), Ok(None)));
        lookups.forget(b"app");
        assert!(matches!(lookups.known(b"app"), Err(None)));
    }

    #[test]
    fn a_failure_and_a_result_that_was_forgotten_meanwhile_are_not_kept() {
        let lookups = Lookups::default();
        let failed = query(Err(LookupFailure::Timeout));
        lookups.begin(b"app", &failed);
        lookups.keep(b"app", &failed, &Err(LookupFailure::Timeout));
        assert!(matches!(lookups.known(b"app"), Err(None)));
        let (old, new) = (query(Ok(None)), query(Ok(None)));
        lookups.begin(b"app", &old);
        lookups.clear();
        lookups.begin(b"app", &new);
        lookups.keep(b"app", &old, &Ok(None));
        assert!(matches!(lookups.known(b"app"), Err(Some(running)) if running.ptr_eq(&new)));
    }

    #[test]
    fn a_query_that_no_client_waits_for_is_gone_and_names_are_bounded() {
        let lookups = Lookups::default();
        let running = pending().boxed_local().shared();
        lookups.begin(b"app", &running);
        drop(running);
        assert!(matches!(lookups.known(b"app"), Err(None)), "its connection is closed with it");
        for number in 0..3 * RESULTS_MAX {
            lookups.begin(format!("user {number}").as_bytes(), &query(Ok(None)));
            assert!(lookups.0.borrow().len() <= RESULTS_MAX);
        }
    }
}
