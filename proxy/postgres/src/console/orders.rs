//! Commands that change something: databases, clients, the process.

use std::{future::poll_fn, task::Poll, time::Duration};

use futures_util::future::{Either, select};
use weir_engine::{Stream, mailbox, sleep, timeout};
use weir_listener::Session as _;
use weir_postgres_codec::sqlstate;
use weir_upstream::pooled::Scope;

use super::{
    Console, DATABASE, Failure,
    command::{Command, Shutdown},
};
use crate::{
    inventory,
    pauses::{self, PauseFailure},
    relay::PauseOrder,
    server::PoolKey,
};

/// Between two looks at what has to end by itself.
const LOOK: Duration = Duration::from_millis(50);
/// For a reload. Name servers may take long.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// SQLSTATE `config_file_error`.
const CONFIG_FILE_ERROR: &str = "F0000";

impl From<PauseFailure> for Failure {
    fn from(failure: PauseFailure) -> Self {
        let text = match failure {
            PauseFailure::UpgradeUnderWay => {
                "an upgrade is under way, and the new process would not know of the command: give it again in a moment"
            }
            PauseFailure::NotForwarded => {
                "done here, but the process from before the upgrade takes no command now: give it again in a moment"
            }
        };
        Self::new(sqlstate::CANNOT_CONNECT_NOW, text)
    }
}

impl Console<'_> {
    /// Carries an order out.
    pub(super) async fn carry_out(&self, stream: &Stream, command: &Command) -> Result<(), Failure> {
        if let Some(name) = database(command) {
            check(name)?;
            if self.routes().find(name.as_bytes()).is_none() {
                return Err(Failure::new(sqlstate::INVALID_CATALOG_NAME, format!("no such database: {name}")));
            }
        }
        match command {
            Command::Pause(database) => self.pause(database.as_deref(), stream).await?,
            Command::Resume(database) => self.order_pause(database.as_deref(), false)?,
            Command::Reconnect(database) => {
                self.each(database.as_deref(), |upstream, scope| upstream.reconnect(scope));
            }
            Command::WaitClose(database) => {
                let closed = async {
                    while self.has_outdated(database.as_deref()).await {
                        sleep(LOOK).await
                    }
                };
                self.unless_gone(closed, stream).await;
            }
            Command::Kill(database) => {
                self.order_pause(database.as_deref(), true)?;
                self.kill_clients(database.as_deref());
            }
            Command::Disable(database) => self.lasting(|| self.service.shared.disable(database.as_bytes()))?,
            Command::Enable(database) => self.lasting(|| self.service.shared.enable(database.as_bytes()))?,
            Command::KillClient(id) => self.kill_client(*id)?,
            Command::Reload => self.reload(stream).await?,
            Command::Shutdown(Shutdown::Servers) => self.drain()?,
            Command::Shutdown(Shutdown::Clients) => self.drain_without_clients()?,
            Command::Suspend => {
                let text = "SUSPEND is not supported: `weir upgrade` passes the sockets to a new process";
                return Err(Failure::new(sqlstate::FEATURE_NOT_SUPPORTED, text));
            }
            Command::Show(_) | Command::Set(..) | Command::Empty => {}
        }
        Ok(())
    }

    fn each(&self, database: Option<&str>, act: impl Fn(&crate::service::PostgresUpstream, &Scope<PoolKey>)) {
        let scope = scope(database);
        self.upstreams().iter().for_each(|upstream| act(upstream, &scope));
    }

    /// Gives an order that outlives the process.
    ///
    /// # Errors
    /// An upgrade is under way: the new process would not know of the order.
    pub(super) fn lasting<T>(&self, order: impl FnOnce() -> T) -> Result<T, Failure> {
        self.service.relay.while_open(order).ok_or_else(|| PauseFailure::UpgradeUnderWay.into())
    }

    fn order_pause(&self, database: Option<&str>, is_paused: bool) -> Result<(), Failure> {
        let database = database.map(|name| name.as_bytes().into());
        pauses::order(self.service, PauseOrder { database, is_paused }).map_err(Failure::from)
    }

    /// Ready once no server of the scope is in use.
    async fn pause(&self, database: Option<&str>, stream: &Stream) -> Result<(), Failure> {
        let scope = scope(database);
        self.order_pause(database, true)?;
        let drained = async {
            for upstream in self.upstreams() {
                upstream.drained(&scope).await;
            }
        };
        self.unless_gone(drained, stream).await;
        Ok(())
    }

    /// Waits for `end`, or until the client is gone.
    async fn unless_gone(&self, end: impl Future<Output = ()>, stream: &Stream) {
        let watch = stream.reader.peer_watch();
        let gone = poll_fn(|context| {
            let is_over = self.connection.handle().poll_ending(context).is_some();
            if is_over { Poll::Ready(()) } else { watch.poll_ended(context) }
        });
        let (Either::Left(_) | Either::Right(_)) = select(std::pin::pin!(end), gone).await;
    }

    /// Some server is left that RECONNECT or a reload has to close.
    async fn has_outdated(&self, database: Option<&str>) -> bool {
        let servers = inventory::collect(self.service).await.servers;
        servers.iter().any(|server| server.is_outdated && database.is_none_or(|name| server.database == name))
    }

    fn kill_clients(&self, database: Option<&str>) {
        let table = self.connection.handle().table();
        for entry in table.entries() {
            let details = entry.details().clone();
            let is_in = database.is_none_or(|name| details.database == name) && !details.pool.is_empty();
            if is_in && entry.listener == *self.service.sessions.name() {
                table.kill(&entry);
            }
        }
    }

    fn kill_client(&self, id: u64) -> Result<(), Failure> {
        let table = self.connection.handle().table();
        let is_it = |entry: &std::sync::Arc<weir_listener::ConnectionEntry>| {
            entry.id == id && entry.listener == *self.service.sessions.name()
        };
        let found = table.entries().into_iter().find(is_it);
        let entry = found.ok_or_else(|| Failure::new(sqlstate::UNDEFINED_OBJECT, "no such client"))?;
        table.kill(&entry);
        Ok(())
    }

    async fn reload(&self, stream: &Stream) -> Result<(), Failure> {
        let (sender, result) = mailbox();
        self.orders()?.reload(Box::new(move |reloaded| sender.send(reloaded)));
        let mut ended = None;
        let received = async { ended = timeout(RELOAD_TIMEOUT, result.receive()).await.ok() };
        self.unless_gone(received, stream).await;
        let reloaded = ended.and_then(|mut results| results.pop_front());
        let reason = match reloaded {
            Some(Ok(())) => return self.restore(),
            Some(Err(reason)) => reason,
            None => format!("no end after {RELOAD_TIMEOUT:?}"),
        };
        Err(Failure::new(CONFIG_FILE_ERROR, format!("RELOAD failed: {reason}; the log says more")))
    }

    fn orders(&self) -> Result<&std::sync::Arc<dyn weir_listener::ProcessOrders>, Failure> {
        let orders = self.service.sessions.core().orders.get();
        orders.ok_or_else(|| Failure::new(sqlstate::CANNOT_CONNECT_NOW, "the process starts"))
    }

    fn drain(&self) -> Result<(), Failure> {
        self.orders()?.drain();
        Ok(())
    }

    /// Lets no client in any more, and ends the process when the clients of the listener have left.
    fn drain_without_clients(&self) -> Result<(), Failure> {
        let orders = self.orders()?.clone();
        self.service.shared.close();
        let (table, name) = (self.connection.handle().table().clone(), self.service.sessions.name().clone());
        weir_engine::spawn(async move {
            let is_client = |entry: &std::sync::Arc<weir_listener::ConnectionEntry>| {
                entry.listener == name && !entry.details().pool.is_empty()
            };
            while table.entries().iter().any(is_client) {
                sleep(LOOK).await;
            }
            orders.drain();
        })
        .detach();
        Ok(())
    }
}

fn scope(database: Option<&str>) -> Scope<PoolKey> {
    database.map_or(Scope::All, |name| Scope::Database(name.as_bytes().into()))
}

/// The database that a command names.
fn database(command: &Command) -> Option<&str> {
    match command {
        Command::Pause(name)
        | Command::Resume(name)
        | Command::Reconnect(name)
        | Command::WaitClose(name)
        | Command::Kill(name) => name.as_deref(),
        Command::Disable(name) | Command::Enable(name) => Some(name),
        _ => None,
    }
}

fn check(name: &str) -> Result<(), Failure> {
    if name.as_bytes() == DATABASE {
        return Err(Failure::new(sqlstate::INVALID_CATALOG_NAME, format!("{name} is the database of this console")));
    }
    Ok(())
}
