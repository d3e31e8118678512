//! One listener on one worker: from the accepted socket to the session.

use std::{
    cell::{Cell, RefCell},
    io,
    net::SocketAddr,
    os::fd::AsRawFd,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use socket2::Socket;
use weir_base::{error::Culprit, time::turn, violation::Violation};
use weir_engine::{
    JoinHandle, Stream, StreamOptions, Watermarks,
    accept::{AcceptedConnection, HandedOverFlag, accept_loop, accept_one},
    net, timeout,
};
use weir_listener::{
    Arrival, ConnectionFuture, ConnectionPermit, Linger, ListenerAdmission, NoTls, Security, Service, Source,
    Succession, SuccessionTicket, TlsAcceptor,
    proxy_protocol::{ProxyAddresses, ProxyHeader, decode},
    settings::{ListenerSettings, ProxyProtocol},
};
use weir_telemetry::{catalog, log::Peer};

use super::{
    core::Core,
    listening::Queues,
    plan::{AdmittedConnection, ListenerPlan, Mail, Moved},
};

/// A refused client gets an error; the socket closes after this, even if it does not listen.
const REFUSAL_TIME: Duration = Duration::from_millis(100);
/// Refused clients that get an error at a time; more are closed without a word.
const REFUSALS_MAX: u32 = 256;
/// The patience with a client that gets a hint to use TLS: the rest of its request is read, so that the words arrive.
const CLEAR_TEXT_LINGER: Linger =
    Linger { stalled: Duration::ZERO, limit: Duration::from_secs(1), bytes_max: 64 * 1024 };
/// Connections taken in at a time, from the queues of all workers. In a storm of more their order is not known.
const ACCEPTED_MAX: usize = 32;

/// The accept loop of one socket.
struct AcceptLoop {
    task: JoinHandle<()>,
    socket: Arc<Socket>,
    handed_over: HandedOverFlag,
}

/// One listener on one worker.
pub struct ListenerAcceptor {
    pub service: Rc<dyn Service>,
    admission: RefCell<ListenerAdmission>,
    /// Succession of the listener's connections on all workers; `None`: one worker, or a protocol without order between
    /// connections.
    succession: Option<Arc<Succession>>,
    /// Those of all workers, the own ones included.
    queues: RefCell<Vec<Arc<Socket>>>,
    tls: RefCell<Option<Rc<TlsAcceptor>>>,
    settings: RefCell<Arc<ListenerSettings>>,
    acceptors: RefCell<Vec<AcceptLoop>>,
    refusals: Cell<u32>,
}

impl ListenerAcceptor {
    pub fn new(service: Rc<dyn Service>, plan: &ListenerPlan, settings: Arc<ListenerSettings>, workers: usize) -> Self {
        let has_order = workers > 1 && service.keeps_order();
        let tls = acceptor(&*service, plan, &settings);
        Self {
            service,
            admission: RefCell::new(plan.admission.clone()),
            succession: has_order.then(|| plan.succession.clone()),
            queues: RefCell::default(),
            tls: RefCell::new(tls),
            settings: RefCell::new(settings),
            acceptors: RefCell::default(),
            refusals: Cell::new(0),
        }
    }

    /// The name of the listener.
    pub fn name(&self) -> &Arc<str> {
        self.service.sessions().name()
    }

    /// New settings; open connections keep theirs.
    pub fn update(&self, plan: &ListenerPlan, settings: Arc<ListenerSettings>) {
        *self.admission.borrow_mut() = plan.admission.clone();
        *self.tls.borrow_mut() = acceptor(&*self.service, plan, &settings);
        *self.settings.borrow_mut() = settings;
    }

    /// Accepts on the own ones of `queues` from now on, and no longer on those before.
    pub fn accept_on(self: &Rc<Self>, core: &Rc<Core>, queues: Queues) {
        self.stop_accepting(core, true);
        *self.queues.borrow_mut() = queues.own.iter().cloned().chain(queues.others).collect();
        let acceptors = queues.own.into_iter().map(|socket| self.acceptor(core, socket)).collect();
        *self.acceptors.borrow_mut() = acceptors;
    }

    fn acceptor(self: &Rc<Self>, core: &Rc<Core>, socket: Arc<Socket>) -> AcceptLoop {
        let handed_over = HandedOverFlag::default();
        let (acceptor, core, listener, handed) = (self.clone(), core.clone(), socket.clone(), handed_over.clone());
        let task = weir_engine::spawn(async move {
            let name = acceptor.name().clone();
            let fail = |class: weir_engine::accept::AcceptError, error: &io::Error| {
                core.share.metrics.counter(&catalog::ACCEPT_ERRORS, &[&name, class.name()]).inc();
                tracing::debug!(listener = %name, %error, "accept failed");
            };
            let accepted = accept_loop(&listener, handed, || acceptor.accept_next(&core, &listener), fail).await;
            if let Err(error) = accepted {
                tracing::error!(listener = %name, %error, "the listening socket is unusable; restart needed");
            }
        });
        AcceptLoop { task, socket, handed_over }
    }

    /// Accepts no more. `finishes` first takes in what the kernel has already accepted for us: those clients believe that
    /// they are connected.
    pub fn stop_accepting(self: &Rc<Self>, core: &Rc<Core>, finishes: bool) {
        self.queues.take();
        for AcceptLoop { task, socket, .. } in self.acceptors.take() {
            if finishes {
                self.finish_accepting(core, &socket);
            }
            drop(task);
        }
    }

    /// Accepts no more, for another process does: what waits in the queues is for that one.
    pub fn hand_over(&self) {
        self.queues.take();
        for AcceptLoop { task, handed_over, .. } in self.acceptors.take() {
            handed_over.set();
            drop(task);
        }
    }

    fn finish_accepting(self: &Rc<Self>, core: &Rc<Core>, queue: &Socket) {
        loop {
            // Another worker may be at it: it is done in some microseconds, and if it has lost its processor it gets this one.
            let _turn = self.succession.as_ref().map(|succession| succession.accepting());
            if self.take_in(core, queue).is_err() {
                break;
            }
        }
    }

    /// Takes in the next connection of `queue`; where there is an order between connections, all that wait with it. How many:
    /// none while another worker is at it.
    fn accept_next(self: &Rc<Self>, core: &Rc<Core>, queue: &Socket) -> io::Result<usize> {
        let turn = self.succession.as_ref().map(|succession| succession.try_accepting());
        if matches!(turn, Some(None)) {
            return Ok(0);
        }
        self.take_in(core, queue)
    }

    /// As [`ListenerAcceptor::accept_next`], with the turn to accept.
    fn take_in(self: &Rc<Self>, core: &Rc<Core>, queue: &Socket) -> io::Result<usize> {
        if self.succession.is_none() {
            self.accepted(core, accept_one(queue)?);
            return Ok(1);
        }
        let mut all = self.accept_all(accept_one(queue)?);
        let taken = all.len();
        let sockets: Vec<_> = all.iter().map(|one| one.socket.as_raw_fd()).collect();
        let mut hung_up = net::hung_up(&sockets).into_iter();
        // Which came first is not known, but a client that has left did so before it came back.
        let left = all.extract_if(.., |_| hung_up.next().unwrap_or(false)).collect::<Vec<_>>();
        left.into_iter().chain(all).for_each(|accepted| self.accepted(core, accepted));
        Ok(taken)
    }

    /// `first` and what waits in the queues of all workers. They are looked at until all are empty at once: then a client that
    /// was there before one of these is among them, or was accepted before.
    fn accept_all(&self, first: AcceptedConnection) -> Vec<AcceptedConnection> {
        let queues = self.queues.borrow();
        let sockets: Vec<_> = queues.iter().map(|socket| socket.as_raw_fd()).collect();
        let mut all = vec![first];
        while all.len() < ACCEPTED_MAX {
            let before = all.len();
            let waiting = queues.iter().zip(net::has_waiting(&sockets)).filter(|(_, has_waiting)| *has_waiting);
            all.extend(waiting.filter_map(|(socket, _)| accept_one(socket).ok()));
            if all.len() == before {
                break;
            }
        }
        all
    }

    /// Admits a connection and gives it to the least-loaded worker.
    fn accepted(self: &Rc<Self>, core: &Rc<Core>, accepted: AcceptedConnection) {
        let name = self.name();
        let admitted = self.admission.borrow().admit(accepted.source);
        let permit = match admitted {
            Ok(permit) => permit,
            Err(reason) => {
                core.share.metrics.counter(&catalog::CONNECTIONS_REFUSED, &[name, reason.name()]).inc();
                return self.refuse(accepted.socket);
            }
        };
        let is_behind_proxy = self.settings.borrow().proxy_protocol != ProxyProtocol::Off;
        let source = || match accepted.source {
            source if is_behind_proxy => Some(Source::Proxy(source)),
            Some(address) => Some(Source::Address(address)),
            None => net::peer_process(&accepted.socket).map(Source::Process),
        };
        let place = self.succession.as_ref().map(|succession| succession.enter(source(), &accepted.socket));
        let admitted = AdmittedConnection { accepted, permit, place };
        let own = core.share.worker;
        match core.balancer.choose(own) {
            chosen if chosen == own => self.enter(core, admitted),
            other => {
                core.share.metrics.counter(&catalog::HANDOFFS, &[name]).inc();
                core.mailboxes[other].send(Mail::Connection { listener: name.clone(), admitted });
            }
        }
    }

    /// Says no in the protocol's own words, then closes.
    fn refuse(self: &Rc<Self>, socket: Socket) {
        if self.tls.borrow().is_some() || self.refusals.get() >= REFUSALS_MAX {
            return;
        }
        self.refusals.set(self.refusals.get() + 1);
        let acceptor = self.clone();
        let words = self.service.refusal();
        weir_engine::spawn(async move {
            if let Ok(stream) = Stream::new(socket, StreamOptions { marks: Watermarks { high: 1024, low: 0 } }) {
                stream.output.append(words);
                weir_engine::sleep(REFUSAL_TIME).await;
                stream.close(REFUSAL_TIME).await;
            }
            acceptor.refusals.set(acceptor.refusals.get() - 1);
        })
        .detach();
    }

    /// Serves an admitted connection on this worker, which has been charged with it.
    pub fn enter(self: &Rc<Self>, core: &Rc<Core>, admitted: AdmittedConnection) {
        let AdmittedConnection { accepted, permit, place } = admitted;
        let charged = (BalanceGuard(core.clone()), permit);
        // In a box of its own: it is over before the session begins, and every idle connection pays for the size of the task.
        let arriving = weir_engine::recycled(|| self.clone().arrive(core.clone(), accepted, place));
        weir_engine::spawn(async move {
            if let Some(life) = arriving.await {
                life.await;
            }
            // The task has it from the beginning. In a variable it would take up its room twice.
            drop(charged);
        })
        .detach();
    }

    /// Goes on with a connection of the process before on this worker, which has been charged with it.
    pub fn adopt(self: &Rc<Self>, core: &Rc<Core>, moved: Moved, permit: ConnectionPermit) {
        if !self.service.takes(&*moved.session) {
            tracing::error!(listener = %self.name(), connection = moved.id, "a moved connection is of another protocol and ends");
            return core.connection_left();
        }
        let charged = (BalanceGuard(core.clone()), permit);
        core.share.metrics.counter(&catalog::CONNECTIONS_MOVED, &[self.name()]).inc();
        let (acceptor, core) = (self.clone(), core.clone());
        // As in `enter`; and what panics here is the task of this connection.
        let arriving = Box::pin(async move { acceptor.arrive_moved(&core, moved) });
        weir_engine::spawn(async move {
            if let Some(life) = arriving.await {
                life.await;
            }
            drop(charged);
        })
        .detach();
    }

    fn arrive_moved(&self, core: &Core, moved: Moved) -> Option<ConnectionFuture> {
        let Moved { place, socket, id, peer, session } = moved;
        let place = self.succession.as_ref().map(|_| place);
        let settings = self.settings.borrow().clone();
        let marks = marks(&settings);
        let stream = Box::new(Stream::new(socket.into(), StreamOptions { marks }).ok()?);
        let address = address_of(&peer);
        let guard = core.share.table.enter_as(id, settings.name.clone(), core.share.worker, peer, turn::now());
        // A session with TLS does not move.
        let (security, moved) = (Security::Plain, Some(session));
        let arrival = Arrival { stream, security, guard, peer: address, local: None, place, moved };
        Some(self.service.clone().serve(arrival))
    }

    /// Makes the stream of a connection, with its PROXY header read and its TLS handshake made. `None`: it is over.
    async fn arrive(
        self: Rc<Self>,
        core: Rc<Core>,
        accepted: AcceptedConnection,
        mut place: Option<SuccessionTicket>,
    ) -> Option<ConnectionFuture> {
        let settings = self.settings.borrow().clone();
        let marks = marks(&settings);
        let mut local = None;
        let stream = Stream::new(accepted.socket, StreamOptions { marks }).ok()?;
        let mut stream = Box::new(stream);
        let mut peer = accepted.peer;
        let header = match self.read_proxy_header(&settings, &mut stream, accepted.source).await {
            Ok((header, rest)) => (header, rest),
            Err(reason) => {
                self.count_proxy_header(&core, reason);
                return None;
            }
        };
        if let Some(header) = &header.0 {
            self.count_proxy_header(&core, "ok");
            peer = header.client().map_or(peer, |client| client.to_string());
            if let ProxyAddresses::Ip { destination, .. } = header.addresses {
                local = Some(destination);
            }
        }
        if settings.proxy_protocol != ProxyProtocol::Off
            && let Some(place) = &mut place
        {
            let client = header.0.as_ref().and_then(ProxyHeader::client);
            place.identify(client.map(|client| Source::Address(client.ip()))).await;
        }
        let tls = self.tls.borrow().clone();
        let security = match tls {
            Some(acceptor) if self.service.starts_tls() => Security::Offer(acceptor),
            Some(acceptor) => match acceptor.accept(&mut stream, &header.1).await {
                Ok(()) => Security::Tls,
                Err(NoTls::ClearText { received }) => {
                    self.refuse_clear_text(*stream, received, address_of(&peer)).await;
                    return None;
                }
                Err(NoTls::Failed) => {
                    // The alert, if there is one, is on its way.
                    stream.close(REFUSAL_TIME).await;
                    return None;
                }
            },
            None => Security::Plain,
        };
        if !matches!(security, Security::Tls) && stream.reader.unread(&header.1).is_err() {
            return None;
        }
        let address = address_of(&peer);
        let guard = core.share.table.enter(settings.name.clone(), core.share.worker, peer, turn::now());
        let arrival = Arrival { stream, security, guard, peer: address, local, place, moved: None };
        Some(self.service.clone().serve(arrival))
    }

    /// Says in the protocol's words that TLS is spoken here, then closes. `received`: bytes of the client that were read.
    async fn refuse_clear_text(&self, stream: Stream, received: usize, peer: Peer) {
        let sessions = self.service.sessions();
        sessions.read(received as u64);
        stream.count_into(sessions.traffic());
        let text = "the client speaks in clear text to a listener with TLS";
        let violation = Violation::rule("clear_text", Culprit::Client, text);
        sessions.violated_early(peer, &violation);
        self.service.count_clear_text_refusal();
        stream.output.append(self.service.clear_text_refusal().unwrap_or_default());
        CLEAR_TEXT_LINGER.close(stream).await;
    }

    /// The PROXY header, if this listener has one in front, and the bytes behind it.
    async fn read_proxy_header(
        &self,
        settings: &ListenerSettings,
        stream: &mut Stream,
        source: Option<std::net::IpAddr>,
    ) -> Result<(Option<ProxyHeader>, Vec<u8>), &'static str> {
        if settings.proxy_protocol == ProxyProtocol::Off {
            return Ok((None, Vec::new()));
        }
        let is_trusted = settings.proxy_trusted.is_empty()
            || source.is_none_or(|source| settings.proxy_trusted.iter().any(|net| net.contains(source)));
        if !is_trusted {
            return Err("untrusted_source");
        }
        let read = async {
            let mut received = Vec::new();
            loop {
                match stream.reader.receive().await {
                    Ok(Some(chunk)) => received.extend_from_slice(&chunk),
                    Ok(None) | Err(_) => return Err("closed"),
                }
                match decode(&received, settings.proxy_protocol) {
                    Ok(None) => {}
                    Ok(Some((header, used))) => return Ok((Some(header), received.split_off(used))),
                    Err(violation) => return Err(violation.reason),
                }
            }
        };
        timeout(settings.head_timeout, read).await.unwrap_or(Err("timeout"))
    }

    fn count_proxy_header(&self, core: &Core, outcome: &str) {
        core.share.metrics.counter(&catalog::PROXY_HEADERS, &[self.name(), outcome]).inc();
    }
}

/// TLS towards the clients, if the listener has it.
fn acceptor(service: &dyn Service, plan: &ListenerPlan, settings: &ListenerSettings) -> Option<Rc<TlsAcceptor>> {
    let config = plan.tls.clone()?;
    let notices_clear_text = service.clear_text_refusal().is_some();
    Some(TlsAcceptor::new(service.sessions().core(), settings, config, notices_clear_text))
}

fn marks(settings: &ListenerSettings) -> Watermarks {
    Watermarks { high: settings.output_high_water as usize, low: settings.output_low_water as usize }
}

fn address_of(peer: &str) -> Peer {
    peer.parse::<SocketAddr>().map_or(Peer::Unix, Peer::Ip)
}

/// Gives the balancer's charge back when the connection ends, however it ends.
struct BalanceGuard(Rc<Core>);

impl Drop for BalanceGuard {
    fn drop(&mut self) {
        self.0.connection_left();
    }
}
