//! The admin console: a session with the database `pgbouncer`, whose statements are commands to the gateway.
//!
//! | file | concept |
//! |---|---|
//! | `command` / `words` | the commands; their words |
//! | `databases` | SHOW DATABASES |
//! | `extended` | commands as prepared statements |
//! | `listeners` | SHOW LISTENERS |
//! | `orders` | commands that change something |
//! | `set` | SET: what can change while the process runs |
//! | `show` | the tables of SHOW: `sockets` of clients and servers, `stats` |
//! | `table` | columns, rows and their form on the wire |

mod command;
mod databases;
mod extended;
mod listeners;
mod orders;
pub(crate) mod set;
mod show;
mod sockets;
mod stats;
mod table;
mod words;

use std::{borrow::Cow, future::poll_fn, rc::Rc, task::Poll};

use weir_base::error::Culprit;
use weir_engine::Stream;
use weir_listener::{CloseReason, Drain, Session as _};
use weir_postgres_codec::{
    MessageError, TransactionStatus,
    backend::{self, ErrorReport, Severity},
    frame, frontend, sqlstate,
};
use weir_postgres_session::io::Event;

use self::{
    command::{Command, Show},
    extended::Prepared,
    table::Forms,
};
use crate::{
    connection::{Connection, shutdown},
    metrics::DatabaseMetrics,
    route::Routes,
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

/// Why a command does nothing: SQLSTATE and text.
#[derive(Debug)]
struct Failure(&'static str, Cow<'static, str>);

impl Failure {
    fn new(code: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        Self(code, text.into())
    }
}

impl From<MessageError> for Failure {
    fn from(error: MessageError) -> Self {
        Self::new(error.sqlstate(), error.text())
    }
}

/// A session with the console.
pub(crate) struct Console<'a> {
    service: &'a Service,
    connection: &'a Rc<Connection>,
    prepared: Prepared,
    /// Those of its own database.
    metrics: Rc<DatabaseMetrics>,
}

impl<'a> Console<'a> {
    pub(crate) fn new(connection: &'a Rc<Connection>) -> Self {
        let service = &connection.service;
        let metrics = service.metrics.database(&service.shared.label(&String::from_utf8_lossy(DATABASE), true));
        metrics.logins.inc();
        Self { service, connection, prepared: Prepared::default(), metrics }
    }

    /// The rights of the user now: a reload may have changed them.
    fn rights(&self) -> Option<Rights> {
        let user = self.connection.handle().entry().details().user.clone();
        Rights::of(user.as_bytes(), &self.settings())
    }

    /// The settings of now: a reload may have changed them.
    fn settings(&self) -> Rc<PostgresListenerSettings> {
        self.service.settings()
    }

    /// The databases of now.
    fn routes(&self) -> Rc<Routes> {
        self.service.routes()
    }

    /// The upstreams of the listener.
    fn upstreams(&self) -> Vec<Rc<PostgresUpstream>> {
        self.routes().upstreams().to_vec()
    }

    /// Serves the session until it ends; `input` are bytes of the client that were read before.
    pub(crate) async fn run(mut self, stream: &mut Stream, mut input: Vec<u8>) -> CloseReason {
        loop {
            let head = match frame::head(&input) {
                Ok(head) => head,
                Err(error) => return self.violated(&error.violation(Culprit::Client)),
            };
            match head {
                Some(head) if head.whole() > COMMAND_BYTES_MAX => {
                    let failure = Failure::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "the command is too long");
                    fatal(stream, &failure);
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
        let received = poll_fn(|context| {
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
        .await;
        if let Err(CloseReason::Drained | CloseReason::DrainCut | CloseReason::Killed) = received {
            let text = "terminating connection due to administrator command";
            fatal(stream, &Failure::new(sqlstate::ADMIN_SHUTDOWN, text));
        }
        received
    }

    async fn on_message(&mut self, stream: &mut Stream, tag: u8, body: &[u8]) -> Option<CloseReason> {
        match tag {
            frontend::tag::TERMINATE => return Some(CloseReason::ClientClosed),
            frontend::tag::QUERY => {
                let ended = match frontend::Query::read(body) {
                    Ok(query) => self.on_query(stream, query.text).await,
                    Err(error) => Err(error.into()),
                };
                if let Err(failure) = ended {
                    error(stream, &failure);
                }
                stream.output.with(|out| backend::ready_for_query(out, TransactionStatus::Idle));
            }
            _ if frontend::body_bytes_max(tag).is_some() => self.on_extended(stream, tag, body).await,
            _ => {
                let text = format!("invalid frontend message type {tag}");
                fatal(stream, &Failure::new(sqlstate::PROTOCOL_VIOLATION, text));
                return Some(CloseReason::Ended("refused"));
            }
        }
        None
    }

    async fn on_query(&self, stream: &Stream, text: &[u8]) -> Result<(), Failure> {
        self.execute(stream, &read(text)?, None).await
    }

    /// Carries a command out. The client gets rows, and the command's tag. `forms` are those of a portal, whose rows it has had described.
    async fn execute(&self, stream: &Stream, command: &Command, forms: Option<&Forms>) -> Result<(), Failure> {
        self.metrics.count(Event::Query);
        match self.rights() {
            Some(Rights::Admin) => {}
            Some(Rights::Stats) if command.only_looks() => {}
            Some(Rights::Stats) => return Err(Failure::new(sqlstate::INSUFFICIENT_PRIVILEGE, "admin access needed")),
            None => return Err(Failure::new(sqlstate::INSUFFICIENT_PRIVILEGE, "not allowed")),
        }
        match command {
            Command::Empty => {
                stream.output.with(backend::empty_query);
                return Ok(());
            }
            Command::Show(Show::Help) => notice(stream, "Console usage", &command::help()),
            Command::Show(show) => {
                if let Some(table) = self.table(*show).await {
                    stream.output.with(|out| match forms {
                        Some(forms) => table.encode(forms, out),
                        None => {
                            table.describe(&Forms::default(), out);
                            table.encode(&Forms::default(), out);
                        }
                    });
                }
            }
            Command::Set(key, value) => self.set(stream, key, value)?,
            _ => self.carry_out(stream, command).await?,
        }
        stream.output.with(|out| backend::command_complete(out, command.tag()));
        Ok(())
    }

    fn violated(&self, violation: &weir_base::violation::Violation) -> CloseReason {
        self.service.sessions.violated(self.connection.handle(), violation)
    }
}

fn read(text: &[u8]) -> Result<Command, Failure> {
    Command::read(text).map_err(|text| Failure::new(sqlstate::SYNTAX_ERROR, text))
}

fn error(stream: &Stream, Failure(code, text): &Failure) {
    stream.output.with(|out| backend::error(out, &ErrorReport::error(code, &**text)));
}

fn fatal(stream: &Stream, Failure(code, text): &Failure) {
    stream.output.with(|out| backend::error(out, &ErrorReport::fatal(code, &**text)));
}

fn notice(stream: &Stream, text: &str, detail: &str) {
    let report = ErrorReport::new(Severity::Notice, sqlstate::SUCCESSFUL_COMPLETION, text).with_detail(detail);
    stream.output.with(|out| backend::notice(out, &report));
}
