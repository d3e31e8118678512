//! The admin console: a session with the database `pgbouncer`, whose statements are commands to the gateway.
//!
//! | file | concept |
//! |---|---|
//! | `command` | the commands |
//! | `show` | the tables of SHOW |
//! | `table` | columns, rows and their form on the wire |

mod command;
mod show;
mod table;

use std::{future::poll_fn, rc::Rc, task::Poll};

use futures_util::future::{Either, select};
use weir_base::error::Culprit;
use weir_engine::Stream;
use weir_listener::{CloseReason, Drain, Session as _};
use weir_postgres_codec::{
    TransactionStatus,
    backend::{self, ErrorReport},
    frame, frontend, sqlstate,
};
use weir_upstream::pooled::Scope;

use self::command::Command;
use crate::{
    connection::{Connection, shutdown},
    server::PoolKey,
    service::{PostgresUpstream, Service},
    settings::PostgresListenerSettings,
};

/// The database of the console.
pub(crate) const DATABASE: &[u8] = b"pgbouncer";
/// Longest command. Default 4 KiB: longer ones than a name and some words do not exist.
const COMMAND_BYTES_MAX: usize = 4 * 1024;

/// The rights of a user here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Everything.
    Admin,
    /// SHOW alone.
    Stats,
}

impl Rights {
    /// The rights of a user. `None`: it has no place here.
    pub(crate) fn of(user: &[u8], settings: &PostgresListenerSettings) -> Option<Self> {
        let is_among = |list: &[String]| list.iter().any(|name| name.as_bytes() == user);
        match () {
            () if is_among(&settings.admin_users) => Some(Self::Admin),
            () if is_among(&settings.stats_users) => Some(Self::Stats),
            () => None,
        }
    }
}

/// A session with the console.
pub(crate) struct Console<'a> {
    service: &'a Service,
    connection: &'a Rc<Connection>,
    upstream: Rc<PostgresUpstream>,
    settings: Rc<PostgresListenerSettings>,
    rights: Rights,
}

impl<'a> Console<'a> {
    pub(crate) fn new(connection: &'a Rc<Connection>, rights: Rights) -> Self {
        let service = &connection.service;
        Self { service, connection, upstream: service.upstream(), settings: service.settings(), rights }
    }

    fn user_names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.settings.admin_users.iter().chain(&self.settings.stats_users).cloned().collect();
        names.sort_unstable();
        names
    }

    /// Serves the session until it ends; `input` are bytes of the client that were read before.
    pub(crate) async fn run(self, stream: &mut Stream, mut input: Vec<u8>) -> CloseReason {
        loop {
            let head = match frame::head(&input) {
                Ok(head) => head,
                Err(error) => return self.violated(&error.violation(Culprit::Client)),
            };
            match head {
                Some(head) if head.whole() > COMMAND_BYTES_MAX => {
                    self.error(stream, sqlstate::PROGRAM_LIMIT_EXCEEDED, "the command is too long", true);
                    return CloseReason::Ended("refused");
                }
                Some(head) if input.len() >= head.whole() => {
                    let message: Vec<u8> = input.drain(..head.whole()).collect();
                    if let Some(reason) = self.on_message(stream, head.tag, &message[frame::HEAD_BYTES..]).await {
                        return reason;
                    }
                }
                _ => match self.receive(stream).await {
                    Ok(bytes) => input.extend_from_slice(&bytes),
                    Err(reason) => return reason,
                },
            }
        }
    }

    /// More bytes of the client.
    async fn receive(&self, stream: &mut Stream) -> Result<Vec<u8>, CloseReason> {
        poll_fn(|context| {
            if let Some(reason) = self.connection.handle().poll_ending(context) {
                return Poll::Ready(Err(reason));
            }
            if self.service.sessions.drain_state() != Drain::Off {
                shutdown(&stream.output);
                return Poll::Ready(Err(CloseReason::Drained));
            }
            match stream.reader.poll_receive(context) {
                Poll::Ready(Ok(Some(chunk))) => Poll::Ready(Ok(chunk.to_vec())),
                Poll::Ready(Ok(None)) => Poll::Ready(Err(CloseReason::ClientClosed)),
                Poll::Ready(Err(_)) => Poll::Ready(Err(CloseReason::ClientReset)),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    async fn on_message(&self, stream: &mut Stream, tag: u8, body: &[u8]) -> Option<CloseReason> {
        match tag {
            frontend::tag::TERMINATE => return Some(CloseReason::ClientClosed),
            frontend::tag::QUERY => match frontend::Query::read(body) {
                Ok(query) => self.on_query(stream, query.text).await,
                Err(error) => self.error(stream, error.sqlstate(), &error.text(), false),
            },
            frontend::tag::SYNC => {}
            _ => {
                let text = "extended query protocol not supported by admin console";
                self.error(stream, sqlstate::PROTOCOL_VIOLATION, text, true);
                return Some(CloseReason::Ended("refused"));
            }
        }
        stream.output.with(|out| backend::ready_for_query(out, TransactionStatus::Idle));
        None
    }

    async fn on_query(&self, stream: &mut Stream, text: &[u8]) {
        let command = match Command::read(text) {
            Ok(command) => command,
            Err(text) => return self.error(stream, sqlstate::SYNTAX_ERROR, &text, false),
        };
        if self.rights != Rights::Admin && !command.only_looks() {
            return self.error(stream, sqlstate::INSUFFICIENT_PRIVILEGE, "admin access needed", false);
        }
        match &command {
            Command::Empty => return stream.output.with(backend::empty_query),
            Command::Set => {}
            Command::Show(show) => {
                let table = self.table(*show);
                stream.output.with(|out| table.encode(out));
            }
            Command::Pause(database) => {
                let scope = scope(database.as_deref());
                self.upstream.pause(&scope);
                self.drained(&scope, stream).await;
            }
            Command::Resume(database) => self.upstream.resume(&scope(database.as_deref())),
            Command::Reconnect(database) => self.upstream.reconnect(&scope(database.as_deref())),
            Command::KillClient(id) => {
                let table = self.connection.handle().table();
                let found = table
                    .entries()
                    .into_iter()
                    .find(|entry| entry.id == *id && entry.listener == *self.service.sessions.name());
                match found {
                    Some(entry) => table.kill(&entry),
                    None => return self.error(stream, sqlstate::UNDEFINED_OBJECT, "no such client", false),
                }
            }
        }
        stream.output.with(|out| backend::command_complete(out, command.tag()));
    }

    /// Waits until no server of `scope` is in use, or the client is gone.
    async fn drained(&self, scope: &Scope<PoolKey>, stream: &Stream) {
        let watch = stream.reader.peer_watch();
        let left = poll_fn(|context| {
            let is_over = self.connection.handle().poll_ending(context).is_some();
            if is_over { Poll::Ready(()) } else { watch.poll_ended(context) }
        });
        let drained = std::pin::pin!(self.upstream.drained(scope));
        let (Either::Left(_) | Either::Right(_)) = select(drained, left).await;
    }

    fn error(&self, stream: &Stream, code: &str, text: &str, is_fatal: bool) {
        let report = if is_fatal { ErrorReport::fatal(code, text) } else { ErrorReport::error(code, text) };
        stream.output.with(|out| backend::error(out, &report));
    }

    fn violated(&self, violation: &weir_base::violation::Violation) -> CloseReason {
        self.service.sessions.violated(self.connection.handle(), violation)
    }
}

fn scope(database: Option<&str>) -> Scope<PoolKey> {
    database.map_or(Scope::All, |name| Scope::Database(name.as_bytes().into()))
}
