//! Time limits, and the client that is gone.

use weir_base::time::Time;
use weir_postgres_codec::{TransactionStatus, frontend};

use crate::io::Io;
use crate::recovery::Recovery;
use crate::refusal::Refusal;
use crate::server::ServerState;
use crate::session::{Attachment, End, Session};

/// A time limit of a session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// The time of a request.
    Query,
    /// The silence of a client within its transaction.
    IdleTransaction,
    /// Its silence outside of one.
    ClientIdle,
}

impl Limit {
    /// How the client learns of it.
    fn refusal(self) -> Refusal {
        match self {
            Self::Query => Refusal::QUERY_TIMEOUT,
            Self::IdleTransaction => Refusal::IDLE_TRANSACTION,
            Self::ClientIdle => Refusal::CLIENT_IDLE,
        }
    }
}

impl Session {
    /// When [`Session::on_deadline`] has to be called; [`Time::NEVER`]: not at all. `server` is the one that the client holds.
    pub fn deadline(&self, server: Option<&ServerState>) -> Time {
        self.limit(server).map_or(Time::NEVER, |(at, _)| at)
    }

    /// The limit that passes first, and when.
    fn limit(&self, server: Option<&ServerState>) -> Option<(Time, Limit)> {
        let held = server.filter(|_| self.attachment != Attachment::None);
        if let Some(since) = self.busy_since {
            let whole = self.settings.query_timeout.map(|limit| (since.saturating_add(limit), Limit::Query));
            let may_await = |server: &ServerState| server.awaits_client() || server.queue.is_unflushed();
            let is_awaited = self.is_listening && held.is_some_and(may_await);
            let silent = self.settings.idle_transaction_timeout.filter(|_| is_awaited);
            let silent = silent.map(|limit| (self.heard_at.saturating_add(limit), Limit::IdleTransaction));
            return match (whole, silent) {
                (Some(whole), Some(silent)) => Some(if silent.0 < whole.0 { silent } else { whole }),
                (whole, silent) => whole.or(silent),
            };
        }
        if held.is_some_and(|server| server.status != TransactionStatus::Idle) {
            let limit = self.settings.idle_transaction_timeout?;
            return Some((self.idle_since.saturating_add(limit), Limit::IdleTransaction));
        }
        if !self.is_listening {
            // It waits for a server, and is bounded by that wait.
            return None;
        }
        let limit = self.settings.client_idle_timeout?;
        Some((self.idle_since.saturating_add(limit), Limit::ClientIdle))
    }

    /// The time of [`Session::deadline`] may have come. `Some`: it has, and the session is over; the client has its error if no message of the
    /// server is half sent to it.
    ///
    /// A batch without its Sync that executes something may be running, or wait for the client: a Flush makes the server say which. While it
    /// runs, only `query_timeout` bounds it; behind its replies the time has come.
    pub fn on_deadline(&mut self, mut server: Option<&mut ServerState>, io: &impl Io) -> Option<End> {
        let (at, limit) = self.limit(server.as_deref())?;
        if io.now() < at || self.end.is_some() {
            return None;
        }
        if let Some(server) = server.as_deref_mut().filter(|server| limit != Limit::Query && !server.awaits_client())
            && server.queue.is_unflushed()
            && server.queue.flush_due()
        {
            io.encode_to_server(frontend::flush);
            return None;
        }
        let refusal = limit.refusal();
        let end = End::TimedOut(refusal.sqlstate);
        if Self::is_between_replies(server.as_deref()) {
            self.end_with(refusal, io);
        }
        self.end = Some(Box::new(end.clone()));
        Some(end)
    }

    /// The client is gone, or its session is over, while it holds a server. The shell runs the result in the background.
    pub fn on_client_gone(&mut self, server: &mut ServerState, reset_query: Option<&[u8]>) -> Recovery {
        if self.pin.is_held() {
            server.dirt |= self.pin.reasons;
        }
        self.abandon_made(server);
        self.detach(server);
        Recovery::new(reset_query)
    }
}
