//! One client after its login: what it sent, what it may send next, and the server that it holds.

use std::rc::Rc;

use weir_base::{time::Time, violation::Violation};
use weir_postgres_codec::{TransactionStatus, backend, frontend};

use crate::facts::Facts;
use crate::feed::Feed;
use crate::io::Io;
use crate::judge::Judge;
use crate::outstanding::{Expected, Note, Request};
use crate::pin::{Pin, PinReasons};
use crate::refusal::Refusal;
use crate::route::Access;
use crate::server::ServerState;
use crate::settings::{PoolMode, SessionSettings};
use crate::share::WorkerShare;
use crate::statements::{Names, Statement};
use crate::variables::Variables;

/// The shell's next action for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Give it more bytes of the client, behind those that it left.
    More,
    /// Acquire a server; then call [`Session::on_client`] with it and the bytes that were left, or [`Session::on_acquire_failed`].
    NeedServer(Want),
    /// Call [`Session::on_client`] again after the next reply of the server, or when its output has room.
    Wait,
    /// The client needs its server no longer, although no reply came: take it back, then call [`Session::on_client`] without it and with
    /// the bytes that were left.
    Release(Cleanliness),
    /// Send what is buffered, then close. If it holds a server, call [`Session::on_client_gone`].
    Close(End),
}

/// Preferences of a client for its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Want {
    /// The next statement writes nothing, as far as its text shows, and begins no block.
    pub is_read_only: bool,
    /// The servers that serve the next unit.
    pub access: Access,
}

/// Why a session is over. The client has its error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The client sent Terminate.
    Terminated,
    /// The client broke the protocol.
    Violation(Violation),
    /// The gateway refused to go on, with this SQLSTATE.
    Refused(&'static str),
    /// A time limit passed, with this SQLSTATE.
    TimedOut(&'static str),
    /// The server is lost, and with it what the client had there.
    ServerLost,
    /// A server refused the parameters of the client.
    ParametersRefused,
}

impl End {
    /// A stable snake_case word for the close reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Terminated => "client_terminated",
            Self::Violation(violation) => violation.reason,
            Self::Refused(_) => "refused",
            Self::TimedOut(weir_postgres_codec::sqlstate::IDLE_IN_TRANSACTION_TIMEOUT) => "idle_transaction_timeout",
            Self::TimedOut(weir_postgres_codec::sqlstate::IDLE_SESSION_TIMEOUT) => "idle_timeout",
            Self::TimedOut(_) => "query_timeout",
            Self::ServerLost => "server_lost",
            Self::ParametersRefused => "parameters_refused",
        }
    }
}

/// The result of [`Session::on_client`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Taken {
    /// Bytes at the front of the input that are done with. The shell keeps the rest.
    pub consumed: usize,
    /// The next action.
    pub next: Next,
}

/// The consequence of replies of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerStep {
    /// The client keeps the server.
    Continue,
    /// The client needs the server no longer.
    Release(Cleanliness),
    /// The session is over; see [`Next::Close`].
    Close(End),
}

/// How a server is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleanliness {
    /// Any client may have it.
    Clean,
    /// A [`Recovery`](crate::Recovery) has to reset it first.
    Dirty,
    /// No client may have it: close it.
    Unusable,
}

/// The relation to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attachment {
    /// It holds none.
    None,
    /// It holds one, which is being made as the client wants it: nothing of the client goes there yet.
    Preparing,
    /// It holds one that does not become as the client wants it, because of what others have left there.
    Spoiled,
    /// It holds one whose parameters are being reset before it is made as the client wants it.
    Clearing,
    /// It holds one, and nothing of the client has gone there.
    Fresh,
    /// It holds one.
    Used,
}

/// The destination of the rest of a message that passes in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the server.
    Pass,
    /// Nowhere.
    Drop,
}

/// One client's session. The shell gives it the client's bytes with [`Session::on_client`] and the server's with
/// [`Session::on_server`]; after each it does what the result says, and arms a timer for [`Session::deadline`].
pub struct Session {
    pub(crate) settings: Rc<SessionSettings>,
    pub(crate) share: Rc<WorkerShare>,
    /// The parameters that the client wants while it holds no server. Then they are those of its server.
    pub(crate) variables: Rc<Variables>,
    /// A server has accepted them.
    pub(crate) is_proven: bool,
    pub(crate) names: Names,
    pub(crate) unnamed: Option<Rc<Statement>>,
    /// Portals whose statements have effects, up to the end of their transaction.
    pub(crate) portals: Vec<(Box<[u8]>, Rc<Facts>)>,
    pub(crate) pin: Pin,
    /// An advisory lock may have been given back: the server has to say whether one is left.
    pub(crate) has_unlocked: bool,
    /// Channels of LISTEN, without a shared listener.
    pub(crate) channels: Vec<Box<[u8]>>,
    /// Open cursors WITH HOLD.
    pub(crate) cursors: Vec<Box<[u8]>>,
    pub(crate) uncommitted: crate::uncommitted::Uncommitted,
    pub(crate) attachment: Attachment,
    /// Bytes to come of a message that passes in pieces.
    pub(crate) body_left: usize,
    pub(crate) way: Way,
    /// The gateway refused a message of a batch: nothing counts up to the Sync.
    pub(crate) is_skipping: bool,
    /// No server could be had for the message at this place among all bytes of the client.
    pub(crate) refusal: Option<Box<(u64, Refusal)>>,
    /// The facts of the Query for which a server is wanted: it is the next message.
    pub(crate) awaiting_server: Option<crate::facts::Known>,
    /// Its channels; `None`: it has never listened.
    pub(crate) listening: Option<Box<crate::listening::Listening>>,
    /// Since when a reply is due.
    pub(crate) busy_since: Option<Time>,
    /// Since when none is due.
    pub(crate) idle_since: Time,
    /// The place of the message for which servers were lost that had not taken it, and how many in a row.
    pub(crate) lost_unused: (u64, u8),
    /// When the client last sent something.
    pub(crate) heard_at: Time,
    /// More bytes of the client would be taken: it is silent if none come.
    pub(crate) is_listening: bool,
    /// A message has been looked at that waits for replies.
    pub(crate) is_waiting: bool,
    /// The batch that last gave or ended a name, while its replies are due: an error there may yet undo that.
    pub(crate) names_since: Option<u64>,
    /// An outstanding request may drop names of statements, or parameters of the startup packet.
    pub(crate) has_barrier: bool,
    pub(crate) end: Option<Box<End>>,
    pub(crate) retry: crate::retry::Retry,
    pub(crate) startup: crate::startup::Startup,
    /// The process number that the client knows as its own.
    pub(crate) process: Option<u32>,
    pub(crate) route: crate::route::Route,
    pub(crate) encoding: crate::encoding::Encoding,
    /// Rules for its statements.
    pub(crate) judge: Option<Rc<dyn Judge>>,
    /// How often the rules have changed since the login, and the unnamed statement that was prepared before the last time.
    pub(crate) rules_generation: u32,
    pub(crate) old_unnamed: Option<Rc<Statement>>,
    /// Bytes of the client that are done with, and the place of the message among them that was judged last.
    pub(crate) taken_bytes: u64,
    pub(crate) judged_at: Option<u64>,
    /// The place of the Bind for which a statement was prepared again and described last; see `row_type.rs`.
    pub(crate) described_at: Option<u64>,
    /// The last Bind, if the client does not know the row type of its statement.
    pub(crate) last_bound: Option<crate::row_type::LastBound>,
    /// The pool of its servers.
    pub(crate) pool: Option<Rc<str>>,
    /// `None`: nothing is too slow.
    pub(crate) slow: Option<Box<crate::slow::SlowLog>>,
}

impl Session {
    /// A session after the client's login. `parameters` are those of its startup packet.
    pub fn new<'a>(
        parameters: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        settings: Rc<SessionSettings>,
        share: Rc<WorkerShare>,
        now: Time,
    ) -> Self {
        let variables = Variables::from_startup(parameters);
        let is_proven = variables.iter().next().is_none();
        let variables = share.variables(variables);
        let mut session = Self {
            startup: crate::startup::Startup::new(variables.clone()),
            variables,
            slow: settings.log_min_duration.map(crate::slow::SlowLog::new),
            settings,
            share,
            is_proven,
            names: Names::default(),
            unnamed: None,
            portals: Vec::new(),
            pin: Pin::default(),
            has_unlocked: false,
            channels: Vec::new(),
            cursors: Vec::new(),
            uncommitted: crate::uncommitted::Uncommitted::default(),
            attachment: Attachment::None,
            body_left: 0,
            way: Way::Drop,
            is_skipping: false,
            refusal: None,
            awaiting_server: None,
            listening: None,
            busy_since: None,
            idle_since: now,
            lost_unused: (0, 0),
            heard_at: now,
            is_listening: true,
            is_waiting: false,
            names_since: None,
            has_barrier: false,
            end: None,
            retry: crate::retry::Retry::default(),
            process: None,
            route: crate::route::Route::default(),
            encoding: crate::encoding::Encoding::default(),
            judge: None,
            rules_generation: 0,
            old_unnamed: None,
            taken_bytes: 0,
            judged_at: None,
            described_at: None,
            last_bound: None,
            pool: None,
        };
        session.note_first_encoding();
        session
    }

    /// All its servers are of this pool: a statement that one of them has taken needs no server to be prepared.
    pub fn with_pool(self, pool: &str) -> Self {
        Self { pool: Some(pool.into()), ..self }
    }

    /// Its next servers are of another pool.
    pub fn set_pool(&mut self, pool: &str) {
        self.pool = Some(pool.into());
    }

    /// The client knows its session by this process number, that of its BackendKeyData: its own notifications come with it.
    pub fn with_process(self, pid: u32) -> Self {
        Self { process: Some(pid), ..self }
    }

    /// Its statements run as far as `judge` lets them.
    pub fn with_judge(self, judge: Option<Rc<dyn Judge>>) -> Self {
        Self { judge, ..self }
    }

    /// Takes bytes of the client. `server` is the server that it holds.
    pub fn on_client(&mut self, input: &[u8], mut server: Option<&mut ServerState>, io: &impl Io) -> Taken {
        let mut feed = Feed::new(input);
        self.is_waiting = false;
        if let Some(server) = server.as_deref_mut()
            && self.attachment == Attachment::None
        {
            self.attach(server, io);
        }
        self.forget_early_news(server.as_deref(), io);
        let next = loop {
            if let Some(next) = self.obstacle(server.as_deref(), io) {
                break next;
            }
            if let Some(next) = self.take(&mut feed, server.as_deref_mut(), io) {
                break next;
            }
        };
        feed.flush(&mut self.retry, io);
        if !input.is_empty() {
            self.heard_at = io.now();
        }
        self.is_listening = next == Next::More;
        self.taken_bytes += feed.consumed() as u64;
        let next = match server {
            // Behind what the gateway answers itself no reply comes that would release the server.
            Some(server) if self.is_listening && server.queue.is_quiet() => match self.settle(server, io) {
                ServerStep::Continue => next,
                ServerStep::Release(cleanliness) => Next::Release(cleanliness),
                ServerStep::Close(end) => Next::Close(end),
            },
            _ => next,
        };
        Taken { consumed: feed.consumed(), next }
    }

    /// Why no message can be taken just now.
    #[inline]
    fn obstacle(&self, server: Option<&ServerState>, io: &impl Io) -> Option<Next> {
        if let Some(end) = &self.end {
            return Some(Next::Close((**end).clone()));
        }
        if self.listening.as_ref().is_some_and(|listening| listening.waits_for_fence()) {
            return Some(Next::Wait);
        }
        let server = server?;
        let must_wait = matches!(self.attachment, Attachment::Preparing | Attachment::Spoiled | Attachment::Clearing)
            || self.retry.is_repeating()
            || server.queue.len() >= OUTSTANDING_MAX
            || io.is_server_congested();
        must_wait.then_some(Next::Wait)
    }

    /// Takes bytes of the server that the client holds.
    ///
    /// # Errors
    /// The server broke the protocol: close it, and call [`Session::on_server_lost`].
    pub fn on_server(&mut self, input: &[u8], server: &mut ServerState, io: &impl Io) -> Result<ServerStep, Violation> {
        server.scan(input, &mut crate::replies::Delivery { session: self, io })?;
        if let Some(request) = server.broken_by.take() {
            drop(self.breaks_copy(request.tag(), io));
        }
        if let Some(end) = &self.end {
            return Ok(ServerStep::Close((**end).clone()));
        }
        if !server.queue.is_quiet() {
            return Ok(ServerStep::Continue);
        }
        Ok(self.settle(server, io))
    }

    /// Everything sent has its reply.
    fn settle(&mut self, server: &mut ServerState, io: &impl Io) -> ServerStep {
        self.settle_encoding(server);
        // Until then, notifications of the server's process are the client's.
        if self.listening.as_ref().is_some_and(|listening| listening.waits_for_fence()) {
            return ServerStep::Continue;
        }
        let was_busy = self.busy_since.take().is_some();
        if was_busy {
            self.idle_since = io.now();
        }
        if server.status == TransactionStatus::Idle {
            // The server has dropped them with their transaction.
            self.portals.clear();
        }
        match self.attachment {
            // It has said that it ends.
            Attachment::Preparing | Attachment::Clearing | Attachment::Spoiled if server.is_doomed => {
                self.attachment = Attachment::None;
                self.lose_unused();
                return ServerStep::Release(Cleanliness::Unusable);
            }
            Attachment::Preparing => {
                self.attachment = Attachment::Fresh;
                return ServerStep::Continue;
            }
            Attachment::Clearing => {
                self.attach(server, io);
                return ServerStep::Continue;
            }
            Attachment::Spoiled if server.dirt.is_empty() => {
                self.clear_parameters(server, io);
                return ServerStep::Continue;
            }
            Attachment::Spoiled => {
                self.attachment = Attachment::None;
                return ServerStep::Release(Cleanliness::Dirty);
            }
            // The message that wants it is still to be taken.
            Attachment::Fresh if !self.is_listening => return ServerStep::Continue,
            Attachment::None => return ServerStep::Continue,
            Attachment::Fresh => {}
            Attachment::Used => {
                self.restore_startup(server, io);
                // Once behind requests of the client: if that fails, again behind its next ones.
                if was_busy {
                    self.count_locks(server, io);
                }
            }
        }
        // The message that waits for these replies needs this server.
        if self.is_waiting || !server.queue.is_quiet() {
            return ServerStep::Continue;
        }
        if self.settings.pool_mode == PoolMode::Statement && server.status != TransactionStatus::Idle {
            return ServerStep::Close(self.end_with(Refusal::BLOCK_IN_STATEMENT_POOLING, io));
        }
        if server.variables.has_temporary_path() && self.is_multiplexed() {
            self.add_pin(PinReasons::TEMPORARY_TABLE, server, io);
        }
        use crate::checkin::Verdict;
        let cleanliness = match server.facts(self.pin.is_held()).after_reply() {
            Verdict::Clean => Cleanliness::Clean,
            Verdict::Reset => Cleanliness::Dirty,
            Verdict::Close => Cleanliness::Unusable,
            Verdict::Keep | Verdict::Drain | Verdict::Rollback => return ServerStep::Continue,
        };
        self.detach(server);
        ServerStep::Release(cleanliness)
    }

    /// Has the server count the advisory locks that are left behind an unlock. Its reply may be false, of several rows, or never
    /// have been computed: the text does not show it.
    fn count_locks(&mut self, server: &mut ServerState, io: &impl Io) {
        if !self.has_unlocked || server.status != TransactionStatus::Idle {
            return;
        }
        self.has_unlocked = false;
        io.encode_to_server(|out| frontend::query(out, LOCKS));
        server.queue.push(Expected::swallow(Request::Query, Note::LocksCounted));
        server.unnamed = None;
    }

    /// The client wants what its server has.
    pub(crate) fn detach(&mut self, server: &mut ServerState) {
        self.variables = server.variables.now().clone();
        self.portals.clear();
        if let Some(spare) = self.retry.release() {
            self.share.keep_batch(spare);
        }
        self.names_since = None;
        self.has_barrier = false;
        self.last_bound = None;
        server.unnamed_since = None;
        self.end_own_news();
        self.attachment = Attachment::None;
    }

    /// No server could be had; the bytes that were left are still there.
    pub fn on_acquire_failed(&mut self, refusal: Refusal, io: &impl Io) -> Next {
        self.lose_transaction(io);
        if refusal.is_fatal {
            return Next::Close(self.end_with(refusal, io));
        }
        self.refuse_next(refusal);
        Next::More
    }

    /// The message at the front of what is left gets this error if it still needs a server when it is looked at again.
    #[cold]
    pub(crate) fn refuse_next(&mut self, refusal: Refusal) {
        self.refusal = Some(Box::new((self.taken_bytes, refusal)));
    }

    /// Tells the client why its session ends.
    #[cold]
    pub(crate) fn end_with(&mut self, refusal: Refusal, io: &impl Io) -> End {
        io.count(crate::io::Event::Refusal);
        io.encode_to_client(|out| backend::error(out, &refusal.fatal()));
        let end = End::Refused(refusal.sqlstate);
        self.end = Some(Box::new(end.clone()));
        end
    }

    /// The gateway drains: ends the session if nothing of it is under way; then the client has its error.
    pub fn on_drain(&mut self, io: &impl Io) -> Option<End> {
        let is_quiet = self.attachment == Attachment::None && self.body_left == 0 && !self.is_skipping;
        is_quiet.then(|| self.end_with(Refusal::SHUTDOWN, io))
    }

    /// Another server has replaced the one that it keeps: ends the session if it is between two transactions; then the client has its error.
    pub fn on_replaced(&mut self, server: &ServerState, io: &impl Io) -> Option<End> {
        let is_quiet = self.attachment == Attachment::Used && self.body_left == 0 && self.busy_since.is_none();
        let is_idle = server.status == TransactionStatus::Idle && server.queue.is_quiet() && !server.is_half_sent;
        (is_quiet && is_idle).then(|| self.end_with(Refusal::SERVER_REPLACED, io))
    }

    /// Why the client keeps its server beyond the transaction, and since when.
    pub fn pin(&self) -> Pin {
        self.pin
    }

    /// Since when a reply is due; `None`: none is.
    pub fn busy_since(&self) -> Option<Time> {
        self.busy_since
    }

    /// Names of prepared statements that the client has.
    pub fn statements(&self) -> usize {
        self.names.len()
    }

    /// The parameters that the client wants while it holds no server.
    pub fn variables(&self) -> &Variables {
        &self.variables
    }

    pub(crate) fn add_pin(&mut self, reasons: PinReasons, server: &mut ServerState, io: &impl Io) {
        server.dirt |= reasons;
        if self.pin.add(reasons, io.now()) {
            io.count(crate::io::Event::Pin);
        }
    }

    /// Statements and parameters stay with the client, not with its server.
    #[inline]
    pub(crate) fn is_multiplexed(&self) -> bool {
        self.settings.pool_mode != PoolMode::Session
    }
}

/// One row for each advisory lock of the session, whatever its `search_path` is.
const LOCKS: &[u8] = b"SELECT FROM pg_catalog.pg_locks WHERE locktype OPERATOR(pg_catalog.=) 'advisory' \
                       AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()";

/// Requests of one client without a reply. Beyond, it is not read: a pipeline holds this many entries of some 40 bytes.
const OUTSTANDING_MAX: usize = 16 * 1024;
