//! The upgrade as a step in the life of the gateway: one at a time, and nothing changes unless the new process serves.

use std::{
    net::{SocketAddr, TcpListener},
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use socket2::Socket;
use weir_admin::AdminStopper;
use weir_engine::{handover::Channel, net};
use weir_listener::Source;
use weir_postgres::UpgradeRelay;
use weir_telemetry::{Registry, catalog};

use super::{
    Gateway, Phase, Sockets,
    ai_keys::KeyOrders,
    ai_listeners,
    departures::{DepartureQueue, Departures},
    listening::ListenerSockets,
    lock,
    plan::{Mail, Moved},
    protocols,
    standing::GateGuard,
};
use crate::{
    systemd,
    upgrade::{
        Inheritance,
        connection::MovedConnection,
        message::{Message, PROTOCOL, SocketOf},
        orders::Order,
        predecessor,
        program::Program,
        successor::Successor,
    },
};

/// How long an upgrade waits for the end of the process before: an operator who saw it end may request the next upgrade
/// a little before it is noticed here.
const END_NOTICED: Duration = Duration::from_secs(1);

/// The result of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpgradeEnd {
    /// The new process serves; this one drains.
    Done {
        /// Its process id.
        pid: u32,
        /// How many upgrades led to it.
        restart_epoch: u64,
    },
    /// The new process does not serve; this one goes on.
    Failed(String),
    /// Nothing was tried.
    Refused(String),
}

/// Where the process stands among its upgrades.
pub struct Upgrading {
    /// How many led to it.
    restart_epoch: u64,
    /// The process before.
    predecessor: Option<u32>,
    is_predecessor_gone: AtomicBool,
    /// The program to start; `None` until the gateway serves.
    program: OnceLock<Program>,
    admin: OnceLock<Admin>,
    is_under_way: AtomicBool,
    is_cancelled: AtomicBool,
    is_handed_over: AtomicBool,
    /// To the new process, which learns from its end that this one has ended.
    successor: Mutex<Option<Arc<Channel>>>,
    /// The link to the process before: cancel requests and orders.
    pub(super) relay: UpgradeRelay,
    /// The process before takes orders for its clients.
    pub(super) takes_orders: bool,
    /// Closed once another process reads the issued keys.
    pub(super) key_orders: KeyOrders,
}

/// The admin server's socket, and the way to stop it for another process.
struct Admin {
    bind: String,
    /// A copy, until another process has it.
    socket: Mutex<Option<TcpListener>>,
    stopper: AdminStopper,
}

impl Upgrading {
    pub(super) fn new(inheritance: &Inheritance, registry: &Registry, relay: UpgradeRelay) -> Self {
        if inheritance.predecessor.is_some() {
            // Until orders can reach the process before.
            relay.close_gate(|| {});
        }
        let shared = registry.shared();
        shared.gauge(&catalog::RESTART_EPOCH, &[]).set(inheritance.restart_epoch as i64);
        // Each was done by a process that is gone, and its counter with it.
        shared.counter(&catalog::UPGRADES, &["done"]).add(inheritance.restart_epoch);
        Self {
            restart_epoch: inheritance.restart_epoch,
            predecessor: inheritance.predecessor,
            is_predecessor_gone: AtomicBool::new(false),
            program: OnceLock::new(),
            admin: OnceLock::new(),
            is_under_way: AtomicBool::new(false),
            is_cancelled: AtomicBool::new(false),
            is_handed_over: AtomicBool::new(false),
            successor: Mutex::new(None),
            relay,
            takes_orders: inheritance.takes_orders,
            key_orders: KeyOrders::default(),
        }
    }

    /// The process before, while it has not ended.
    fn draining_predecessor(&self) -> Option<u32> {
        self.predecessor.filter(|_| !self.is_predecessor_gone.load(Ordering::Relaxed))
    }
}

/// Ends being under way.
struct UpgradeGuard<'a>(&'a AtomicBool);

impl Drop for UpgradeGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Gateway {
    /// Says what an upgrade starts, and gives it the admin server to hand over. Without it upgrades are refused.
    pub fn allow_upgrades(&self, program: Program, bind: String, socket: TcpListener, stopper: AdminStopper) {
        let _ = self.upgrading.program.set(program);
        let _ = self.upgrading.admin.set(Admin { bind, socket: Mutex::new(Some(socket)), stopper });
    }

    /// How many upgrades led to this process.
    pub fn restart_epoch(&self) -> u64 {
        self.upgrading.restart_epoch
    }

    /// The process before this one, while it drains.
    pub fn draining_predecessor(&self) -> Option<u32> {
        self.upgrading.draining_predecessor()
    }

    /// Goes on with the connections that come through `channel` from the process before, until that one has ended.
    pub fn watch_predecessor(self: &Arc<Self>, channel: Channel) {
        let (gateway, channel) = (self.clone(), Arc::new(channel));
        // Not joined: it may wait as long as the process lives.
        let watch = thread::Builder::new().name("predecessor".into()).spawn(move || {
            let cancels = gateway.send_to_predecessor(channel.clone());
            predecessor::take_messages(
                &channel,
                |connection, socket| gateway.adopt(connection, socket),
                |number| cancels.over(number),
            );
            gateway.upgrading.relay.connect(None);
            cancels.end();
            gateway.upgrading.is_predecessor_gone.store(true, Ordering::Relaxed);
            tracing::info!(pid = gateway.upgrading.predecessor, "the process before this one has ended");
        });
        if let Err(error) = watch {
            tracing::error!(%error, "cannot watch the process before this one; the gateway assumes that it has ended");
            self.upgrading.relay.open_gate();
            self.upgrading.is_predecessor_gone.store(true, Ordering::Relaxed);
        }
    }

    /// True if another process serves in place of this one.
    pub fn is_handed_over(&self) -> bool {
        self.upgrading.is_handed_over.load(Ordering::Relaxed)
    }

    /// Calls off an upgrade under way, unless the new process is about to serve.
    pub fn cancel_upgrade(&self) {
        self.upgrading.is_cancelled.store(true, Ordering::SeqCst);
    }

    /// True from its start until its outcome is known and said.
    pub(super) fn is_upgrade_under_way(&self) -> bool {
        self.upgrading.is_under_way.load(Ordering::SeqCst)
    }

    /// Starts the program again, hands it the listening sockets, and begins to drain once it serves. Blocks for up to
    /// `upgrade.timeout`.
    pub fn upgrade(&self) -> UpgradeEnd {
        // Under way until all is said: a drain that waits for its end then speaks last.
        let begun = self.begin_upgrade();
        let outcome = match &begun {
            Err(reason) => UpgradeEnd::Refused(reason.clone()),
            Ok((program, _under_way)) => self.try_upgrade(program).unwrap_or_else(UpgradeEnd::Failed),
        };
        let shared = self.registry().shared();
        match &outcome {
            UpgradeEnd::Done { pid, restart_epoch } => {
                shared.counter(&catalog::UPGRADES, &["done"]).inc();
                tracing::info!(pid, restart_epoch, "upgraded: the new process serves");
                if self.upgrading.is_cancelled.load(Ordering::SeqCst) {
                    tracing::warn!(pid, "a stop order came when the new process began to serve: stop the new process");
                }
                self.request_drain();
            }
            UpgradeEnd::Failed(reason) => {
                shared.counter(&catalog::UPGRADES, &["failed"]).inc();
                tracing::error!("upgrade failed, this process continues to serve: {reason}");
                self.notify_ready();
            }
            UpgradeEnd::Refused(reason) => {
                shared.counter(&catalog::UPGRADES, &["refused"]).inc();
                tracing::warn!("upgrade refused: {reason}");
            }
        }
        outcome
    }

    fn begin_upgrade(&self) -> Result<(&Program, UpgradeGuard<'_>), String> {
        let _no_reload = lock(&self.reloading);
        let Some(program) = self.upgrading.program.get() else {
            return Err("this process has not finished its start".to_owned());
        };
        if self.phase() != Phase::Serving || self.is_handed_over() {
            return Err("this process does not serve, or no longer".to_owned());
        }
        if std::process::id() == 1 {
            return Err("this is process 1 of its container, whose end would end the new one too; replace the container, or run \
                        an init process in it that outlives its first child"
                .to_owned());
        }
        let begun = Instant::now();
        while self.draining_predecessor().is_some() && begun.elapsed() < END_NOTICED {
            thread::sleep(Duration::from_millis(5));
        }
        if let Some(pid) = self.draining_predecessor() {
            return Err(format!(
                "the last upgrade is not over: process {pid} still drains; try again when it has ended"
            ));
        }
        if self.upgrading.is_under_way.swap(true, Ordering::SeqCst) {
            return Err("an upgrade is under way".to_owned());
        }
        Ok((program, UpgradeGuard(&self.upgrading.is_under_way)))
    }

    fn try_upgrade(&self, program: &Program) -> Result<UpgradeEnd, String> {
        let limit = self.snapshot().upgrade.timeout;
        let restart_epoch = self.restart_epoch() + 1;
        tracing::info!(program = %program.path().display(), ?limit, "upgrading: starting the new process");
        systemd::mention("STATUS=upgrading: the new process starts");
        let listening = lock(&self.listening).clone();
        let sockets =
            self.sockets_to_hand_over(&listening).map_err(|error| format!("cannot copy a socket: {error}"))?;
        let cancelled = &self.upgrading.is_cancelled;
        let hello = Message::Hello {
            protocol: PROTOCOL,
            pid: std::process::id(),
            restart_epoch: self.restart_epoch(),
            next_connection_id: self.table.next_id(),
            takes_orders: true,
        };
        let mut successor = Successor::start(program, hello, &sockets, limit, cancelled)?;
        drop(sockets);
        let wants = successor.wait_ready()?;
        // An order of operators in this time would hold in this process alone.
        let gate = GateGuard::close(&self.upgrading.relay, || self.standing_orders());
        let (pid, channel) = self.let_serve(successor, wants.state.as_deref(), gate.orders.clone())?;
        gate.stay_closed();
        // From here on there is no way back, and nothing left that can fail.
        *lock(&self.upgrading.successor) = Some(channel.clone());
        self.upgrading.is_handed_over.store(true, Ordering::Relaxed);
        let names = |binds: &[String]| -> Arc<[Arc<str>]> {
            let is_at = |(_, sockets): &(&Arc<str>, &ListenerSockets)| binds.contains(&bind_text(sockets));
            listening.iter().filter(is_at).map(|(name, _)| name.clone()).collect()
        };
        let (untaken, movable) = (names(&wants.untaken), names(&wants.movable));
        self.receive_from_successor(&channel, &listening);
        let departures = self.send_departures(channel, &listening);
        self.send_to_workers(|| Mail::HandOver {
            untaken: untaken.clone(),
            movable: movable.clone(),
            departures: departures.clone(),
        });
        if let Some(admin) = self.upgrading.admin.get() {
            admin.stopper.stop();
        }
        systemd::notify(&format!("MAINPID={pid}"));
        Ok(UpgradeEnd::Done { pid, restart_epoch })
    }

    /// Lets the new process serve, and hands it the journal of budgets if it has the same. If it does not serve, it has ended when this
    /// returns, and the journal comes back.
    fn let_serve(
        &self,
        successor: Successor<'_>,
        state: Option<&str>,
        orders: Vec<Order>,
    ) -> Result<(u32, Arc<Channel>), String> {
        let is_handed_over = state.is_some_and(|state| self.spend.state().is_some_and(|own| own == Path::new(state)));
        if is_handed_over {
            // An order that has begun is in the file that the new process reads.
            self.upgrading.key_orders.close();
            self.spend.cede().inspect_err(|_| self.upgrading.key_orders.open())?;
        }
        let served = successor.serves(orders);
        match &served {
            Ok(_) if is_handed_over => self.spend.end_lease(),
            Err(_) if is_handed_over => {
                self.spend.reclaim();
                self.renew_issued_keys();
                self.upgrading.key_orders.open();
            }
            _ => {}
        }
        served
    }

    /// Opens the budgets, which the process before has handed over.
    ///
    /// # Errors
    /// In words.
    pub fn take_budgets(&self) -> Result<(), String> {
        self.spend.take().map_err(|error| error.to_string())?;
        self.spend.claim_first(ai_listeners(&self.snapshot()));
        Ok(())
    }

    /// The directory of the budgets, for the process before.
    pub fn budget_state(&self) -> Option<String> {
        self.spend.state().map(|state| state.display().to_string())
    }

    /// Sends connections to the new process: where the workers put them.
    fn send_departures(&self, channel: Arc<Channel>, listening: &Sockets) -> DepartureQueue {
        let binds = listening.iter().map(|(name, sockets)| (name.clone(), bind_text(sockets))).collect();
        let departures = Departures::start(channel, binds, self.registry().clone());
        let queue = departures.queue();
        *lock(&self.departures) = Some(departures);
        queue
    }

    /// Closes the listening sockets that the new process has. If that process died, this one's descriptors alone would keep the
    /// queues open, and clients would wait there unaccepted. To be called when no worker accepts any more.
    pub(super) fn leave_sockets(&self) {
        if self.is_handed_over() {
            lock(&self.listening).clear();
            if let Some(admin) = self.upgrading.admin.get() {
                *lock(&admin.socket) = None;
            }
        }
    }

    /// The addresses of listeners at which connections of the process before can go on: what they began without TLS must
    /// not go on where the configuration asks for it, and nothing may go on in another protocol.
    pub fn movable(&self) -> Vec<String> {
        let snapshot = self.snapshot();
        let fits = |listener: &&weir_config::Listener| {
            listener.settings.tls.is_none() && protocols::moves_sessions(&listener.protocol)
        };
        snapshot.listeners.iter().filter(fits).map(|listener| listener.settings.bind.to_string()).collect()
    }

    /// Takes in a connection of the process before.
    fn adopt(&self, connection: MovedConnection, socket: OwnedFd) {
        let plan = self.plan.load();
        let at = |listener: &&weir_config::Listener| listener.settings.bind.to_string() == connection.bind;
        let listener = plan.snapshot.listeners.iter().find(at);
        let Some((listener, own)) = listener.and_then(|at| Some((at, plan.listeners.get(&at.settings.name)?))) else {
            return tracing::warn!(bind = connection.bind, "a moved connection has no listener here any more and ends");
        };
        let copy = Socket::from(socket);
        let source = copy.peer_addr().ok().and_then(|peer| peer.as_socket()).map(|peer| peer.ip());
        // It was let in already: newcomers wait for room, not those who are there, as at a reload that lowers a limit.
        let permit = own.admission.admit_moved(source);
        let MovedConnection { id, peer, session, .. } = connection;
        let Some(session) = protocols::decode_session(&listener.protocol, session) else {
            return tracing::error!(connection = id, "a moved connection cannot be understood and ends");
        };
        // A Unix socket has no such address.
        let client = match peer.parse::<SocketAddr>() {
            Ok(address) => Some(Source::Address(address.ip())),
            Err(_) => net::peer_process(&copy).map(Source::Process),
        };
        // Before the worker has it: a connection that its client makes later comes after it.
        let place = own.succession.enter(client, &copy);
        let moved = Box::new(Moved { place, socket: copy.into(), id, peer, session });
        let worker = self.balancer.choose(0);
        self.mailboxes[worker].send(Mail::Adopt { listener: listener.settings.name.clone(), moved, permit });
    }

    /// Copies, so that a reload cannot close one on its way.
    fn sockets_to_hand_over(&self, listening: &Sockets) -> std::io::Result<Vec<(SocketOf, OwnedFd)>> {
        let mut all = Vec::new();
        for sockets in listening.values() {
            for socket in &sockets.sockets {
                let copy = socket.as_fd().try_clone_to_owned()?;
                all.push((SocketOf::Listener(bind_text(sockets)), copy));
            }
        }
        if let Some(admin) = self.upgrading.admin.get()
            && let Some(socket) = &*lock(&admin.socket)
        {
            all.push((SocketOf::Admin(admin.bind.clone()), socket.as_fd().try_clone_to_owned()?));
        }
        Ok(all)
    }

    /// Tells the service manager that this process serves, and how; nothing if it does not, or no longer.
    pub fn notify_ready(&self) {
        if !self.is_the_service() {
            return;
        }
        let generation = self.snapshot().generation;
        systemd::notify(&format!(
            "READY=1\nSTATUS=serving: configuration generation {generation}, restart epoch {}",
            self.restart_epoch()
        ));
    }
}

pub(super) fn bind_text(sockets: &ListenerSockets) -> String {
    sockets.bind.to_string()
}
