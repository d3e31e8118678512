//! The facts of one server connection. It travels with the connection: from its login, from client to client, and to another
//! worker if a client there has waited longer.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use weir_base::{error::Culprit, violation::Violation};
use weir_postgres_codec::{TransactionStatus, backend, backend::tag, frame};

use crate::checkin::ServerFacts;
use crate::outstanding::{Note, Outstanding, Request};
use crate::pin::PinReasons;
use crate::share::WorkerShare;
use crate::statements::{PackedStatements, ServerStatements, Statement};
use crate::variables::{ServerVariables, Value, Variables};

/// The key by which a server accepts cancel requests for a connection.
#[derive(Clone, PartialEq, Eq)]
pub struct CancelTarget {
    /// The server's process.
    pub pid: u32,
    /// The secret, of 4 to 256 bytes.
    pub secret: Box<[u8]>,
}

impl std::fmt::Debug for CancelTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CancelTarget").field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// COPY from the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CopyIn {
    /// None.
    #[default]
    No,
    /// The server reads data until the client ends them.
    Reads {
        /// Some have been sent.
        has_data: bool,
    },
}

/// One server connection after its login.
#[derive(Debug)]
pub struct ServerState {
    pub(crate) queue: Outstanding,
    pub(crate) status: TransactionStatus,
    pub(crate) copy: CopyIn,
    /// Syncs of the client among the data of a COPY. If it fails, it is unknown to how many of them the server replies.
    pub(crate) late_syncs: u32,
    /// A request of the client that stands where the data of a COPY have to begin, and that the server does not get.
    pub(crate) broken_by: Option<Request>,
    /// An error has come since the last ReadyForQuery.
    pub(crate) has_failed: bool,
    /// The first part of a message of the server that is read whole.
    pub(crate) partial: Vec<u8>,
    /// Bytes to come of a message of the server that is passed on in pieces.
    pub(crate) body_left: usize,
    pub(crate) body_passes: bool,
    /// The client's message is not whole at the server.
    pub(crate) is_half_sent: bool,
    pub(crate) variables: ServerVariables,
    pub(crate) statements: ServerStatements,
    /// The unnamed statement that the server has.
    pub(crate) unnamed: Option<Rc<Statement>>,
    /// The batch that gave or ended it last.
    pub(crate) unnamed_since: Option<u64>,
    /// Names of SQL's PREPARE at the server, with its text.
    pub(crate) sql_names: HashMap<Box<[u8]>, Rc<[u8]>>,
    /// State that must not reach another client.
    pub(crate) dirt: PinReasons,
    pub(crate) is_doomed: bool,
    /// Numbers of statements that have to be closed: their plans are outdated.
    pub(crate) stale: Vec<u64>,
    key: Option<CancelTarget>,
}

impl ServerState {
    /// A server after its login, which reported these parameters.
    pub fn new<'a>(
        reported: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        key: Option<CancelTarget>,
        share: &WorkerShare,
    ) -> Self {
        let mut defaults = Variables::default();
        for (name, value) in reported {
            defaults.set(name, Value::Literal(value.into()));
        }
        let none = share.variables.borrow_mut().intern(Variables::default());
        Self::with(ServerVariables::new(defaults, none), key)
    }

    fn with(variables: ServerVariables, key: Option<CancelTarget>) -> Self {
        Self {
            queue: Outstanding::default(),
            status: TransactionStatus::Idle,
            copy: CopyIn::No,
            late_syncs: 0,
            broken_by: None,
            has_failed: false,
            partial: Vec::new(),
            body_left: 0,
            body_passes: false,
            is_half_sent: false,
            variables,
            statements: ServerStatements::default(),
            unnamed: None,
            unnamed_since: None,
            sql_names: HashMap::new(),
            dirt: PinReasons::empty(),
            is_doomed: false,
            stale: Vec::new(),
            key,
        }
    }

    /// The key for cancel requests; `None`: the server gave none.
    pub fn cancel_target(&self) -> Option<&CancelTarget> {
        self.key.as_ref()
    }

    /// The byte of the last ReadyForQuery.
    pub fn status(&self) -> TransactionStatus {
        self.status
    }

    /// Prepared statements that the gateway keeps at the server.
    pub fn statements(&self) -> usize {
        self.statements.len()
    }

    /// Some reply is to come: a cancel request has something to cancel.
    pub fn is_busy(&self) -> bool {
        !self.queue.is_empty()
    }

    /// A cancel request would hit a request of the client, and not what the gateway sends before or behind it.
    pub fn runs_request(&self) -> bool {
        let is_own = |note: &Note| {
            matches!(note, Note::Replayed { .. } | Note::Cleared | Note::Aligned(..) | Note::LocksCounted)
        };
        self.queue.front().is_some_and(|front| !is_own(&front.note))
    }

    /// It can do nothing before the client sends more: the data of a COPY, the rest of a message, or of a batch that executes nothing yet.
    pub(crate) fn awaits_client(&self) -> bool {
        self.copy != CopyIn::No || (self.is_half_sent && self.queue.len() <= 1) || self.queue.awaits_client()
    }

    /// The values of the parameters that the server reports, by lower-case name, as they are after a reset.
    pub fn defaults(&self) -> &Variables {
        self.variables.defaults()
    }

    /// The parameters that the server has, as far as they differ from [`ServerState::defaults`].
    pub fn variables(&self) -> &Variables {
        self.variables.now()
    }

    /// The facts that decide about its next client. Bytes that wait in its output are none of them: a quiet server ignores what it has not
    /// read yet, as the data of a COPY that failed, and reads it before what the next client sends. It moves to no other worker with them.
    pub fn facts(&self, is_pinned: bool) -> ServerFacts {
        ServerFacts {
            is_quiet: self.queue.is_quiet(),
            status: self.status,
            is_copying: self.copy != CopyIn::No,
            is_half_sent: self.is_half_sent,
            is_half_received: self.body_left > 0 || !self.partial.is_empty(),
            is_pinned,
            is_dirty: !self.dirt.is_empty(),
            is_doomed: self.is_doomed,
        }
    }

    /// Bytes of an idle server: reports, notices and notifications are in order.
    ///
    /// # Errors
    /// Anything else, such as the error with which a server announces its end: the connection has to be closed.
    pub fn on_idle_bytes(&mut self, bytes: &[u8], share: &WorkerShare) -> Result<(), Violation> {
        let held = std::mem::take(&mut self.partial);
        let joined;
        let input = if held.is_empty() {
            bytes
        } else {
            joined = [&held[..], bytes].concat();
            &joined
        };
        let mut at = 0;
        while let Some(head) = frame::head(&input[at..]).map_err(|error| error.violation(Culprit::Upstream))? {
            if head.body > IDLE_MESSAGE_BYTES_MAX {
                return Err(unexpected(head.tag));
            }
            let Some(body) = input.get(at + frame::HEAD_BYTES..at + head.whole()) else { break };
            match head.tag {
                tag::PARAMETER_STATUS => {
                    let report =
                        backend::ParameterStatus::read(body).map_err(|error| error.violation(Culprit::Upstream))?;
                    if !self.variables.on_report(report.name, report.value, &mut share.variables.borrow_mut()) {
                        return Err(unexpected(head.tag));
                    }
                }
                tag::NOTICE | tag::NOTIFICATION => {}
                tag => return Err(unexpected(tag)),
            }
            at += head.whole();
        }
        self.partial.extend_from_slice(&input[at..]);
        Ok(())
    }

    /// The form in which it goes to another worker. `None`: it is not idle and clean.
    pub fn pack(self) -> Option<ServerParcel> {
        if self.facts(false).after_reply() != crate::checkin::Verdict::Clean {
            return None;
        }
        Some(ServerParcel {
            defaults: self.variables.defaults().clone(),
            now: (**self.variables.now()).clone(),
            statements: self.statements.pack(),
            unnamed: self.unnamed.map(|statement| statement.shared_rest()),
            sql_names: self.sql_names.iter().map(|(name, text)| (name.clone(), text[..].into())).collect(),
            stale: self.stale,
            key: self.key,
        })
    }
}

/// Longest message of an idle server. Longer ones than a report or a notice have no place there.
const IDLE_MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// A message that has no place where it came.
#[cold]
pub(crate) fn unexpected(tag: u8) -> Violation {
    let text = format!("the server sent a message of type {tag} that replies to nothing");
    Violation::rule("postgres_unexpected_reply", Culprit::Upstream, text)
}

/// A name of SQL's PREPARE, and its text.
type PackedName = (Box<[u8]>, Box<[u8]>);

/// An idle server on its way to another worker.
#[derive(Debug)]
pub struct ServerParcel {
    defaults: Variables,
    now: Variables,
    statements: PackedStatements,
    unnamed: Option<Arc<[u8]>>,
    sql_names: Vec<PackedName>,
    stale: Vec<u64>,
    key: Option<CancelTarget>,
}

impl ServerParcel {
    /// The state at its new worker.
    pub fn unpack(self, share: &WorkerShare) -> ServerState {
        let now = share.variables.borrow_mut().intern(self.now);
        let mut state = ServerState::with(ServerVariables::new(self.defaults, now), self.key);
        let texts = &mut share.texts.borrow_mut();
        let adopted = |rest: Arc<[u8]>| texts.adopt(rest.clone(), || share.facts_of_statement(&rest));
        state.unnamed = self.unnamed.map(adopted);
        state.statements = self.statements.unpack(texts, |rest| share.facts_of_statement(rest));
        state.stale = self.stale;
        state.sql_names = self.sql_names.into_iter().map(|(name, text)| (name, text[..].into())).collect();
        state
    }
}

const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<ServerParcel>();
};
