//! Workers with one listener, servers that follow a script, and clients that are plain sockets.

pub mod server;

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    os::unix::net::UnixStream,
    rc::Rc,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use weir_base::{
    Budget, ByteLease,
    permit::LocalBudget,
    time::{Time, turn},
};
use weir_engine::{
    Mailbox, Stream, StreamOptions, Watermarks, Worker, mailbox,
    settings::{Address, RuntimeSettings},
};
use weir_listener::{
    Arrival, ConnectionTable, CoreShare, Drain, Security, Service as _, StageSample, settings::ListenerSettings,
};
use weir_mongodb::{
    ListenerShared, MongodbUpstream, ProcessShare, Service,
    settings::{Auth, MongodbListenerSettings, MongodbUpstreamSettings},
};
use weir_mongodb_codec::{
    bson::{Document, Writer},
    frame::Framer,
    message::{self, Flags, Ids, Message},
};
use weir_telemetry::{
    EventLog, Registry,
    access::{AccessForm, AccessFormat},
    log::{LogReader, LogWriter, Peer, log_ring},
};
use weir_upstream::{EndpointShare, settings::UpstreamSettings};

/// How long a script waits.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a client that waits for its output to be read.
pub const MARKS: Watermarks = Watermarks { high: 64 << 10, low: 16 << 10 };

/// Messages of the test to the worker.
enum Order {
    Client(UnixStream),
    /// Bytes that are charged, and open sessions.
    Rest(mpsc::Sender<(u64, usize)>),
    Drain(Drain),
    /// The listener gets another upstream, with these servers.
    Move(Vec<SocketAddr>),
    /// A task of the worker holds it, and nothing else runs.
    Stall(Held),
    /// The same, at once when the order is heard.
    Pause(Held),
    End,
}

/// A worker that does nothing until this is dropped.
pub struct Hold {
    begun: mpsc::Receiver<()>,
    _release: mpsc::Sender<()>,
}

/// The worker's side of it.
struct Held {
    begun: mpsc::Sender<()>,
    release: mpsc::Receiver<()>,
}

impl Hold {
    fn new() -> (Self, Held) {
        let ((begin, begun), (_release, release)) = (mpsc::channel(), mpsc::channel());
        (Self { begun, _release }, Held { begun: begin, release })
    }

    /// Waits until the worker does nothing.
    pub fn has_begun(&self) {
        self.begun.recv_timeout(PATIENCE).expect("the worker stops");
    }
}

impl Held {
    fn hold(self) {
        let _ = self.begun.send(());
        let _ = self.release.recv_timeout(PATIENCE);
    }
}

/// The choices of a test.
pub struct Setup {
    pub listener: MongodbListenerSettings,
    pub upstream: MongodbUpstreamSettings,
    /// The endpoints.
    pub servers: Vec<SocketAddr>,
    pub buffered_bytes: u64,
    pub workers: usize,
}

impl Setup {
    /// No logins, quick looks at these servers.
    pub fn new(servers: &[SocketAddr]) -> Self {
        let listener = MongodbListenerSettings { auth: Auth::None, ..MongodbListenerSettings::default() };
        let heartbeat_interval = Duration::from_millis(100);
        let upstream = MongodbUpstreamSettings { heartbeat_interval, ..MongodbUpstreamSettings::default() };
        Self { listener, upstream, servers: servers.to_vec(), buffered_bytes: 256 << 20, workers: 1 }
    }
}

/// Running workers.
pub struct Gateway {
    workers: Vec<(Mailbox<Order>, Option<Worker>)>,
    pub registry: Registry,
    /// The log of each worker.
    logs: Vec<LogReader>,
}

/// The state that the workers share.
#[derive(Clone)]
struct Shared {
    setup: Arc<Setup>,
    shares: Vec<Arc<EndpointShare>>,
    process: ProcessShare,
    listener: Arc<ListenerShared>,
    bytes: Budget,
    table: Arc<ConnectionTable>,
    registry: Registry,
}

impl Gateway {
    pub fn start(setup: Setup) -> Self {
        let registry = Registry::new();
        let shared = Shared {
            shares: setup.servers.iter().map(|_| Arc::default()).collect(),
            process: ProcessShare::default(),
            listener: Arc::default(),
            bytes: Budget::new(setup.buffered_bytes),
            table: ConnectionTable::new(setup.workers),
            registry: registry.clone(),
            setup: Arc::new(setup),
        };
        let form = AccessForm { format: AccessFormat::Text, fields: None };
        let rings = (0..shared.setup.workers).map(|_| log_ring(64, Some(form.clone())));
        let (writers, logs): (Vec<_>, Vec<_>) = rings.unzip();
        let begin = |(number, log)| start(number, shared.clone(), log);
        Self { workers: writers.into_iter().enumerate().map(begin).collect(), registry, logs }
    }

    /// A client that has just connected.
    pub fn client(&self) -> Client {
        self.client_on(0)
    }

    /// The same at that worker.
    pub fn client_on(&self, worker: usize) -> Client {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket2::SockRef::from(&theirs).set_send_buffer_size(32 << 10).expect("a size");
        self.workers[worker].0.send(Order::Client(theirs));
        Client { stream: ours, received: Vec::new(), last_id: 0 }
    }

    /// Bytes that are charged, and open sessions.
    pub fn held(&self) -> (u64, usize) {
        let (sender, receiver) = mpsc::channel();
        self.workers[0].0.send(Order::Rest(sender));
        receiver.recv_timeout(PATIENCE).expect("the worker responds")
    }

    /// Lets the listener of the one worker lead to other servers.
    pub fn move_to(&self, servers: &[SocketAddr]) {
        self.workers[0].0.send(Order::Move(servers.to_vec()));
    }

    /// The first worker does nothing from now on: before it next looks at its sockets.
    pub fn stall(&self) -> Hold {
        let (hold, held) = Hold::new();
        self.workers[0].0.send(Order::Stall(held));
        hold
    }

    /// The same, right behind its next look at its sockets.
    pub fn pause(&self) -> Hold {
        let (hold, held) = Hold::new();
        self.workers[0].0.send(Order::Pause(held));
        hold
    }

    /// Begins a drain.
    pub fn drain(&self, drain: Drain) {
        self.workers.iter().for_each(|(orders, _)| orders.send(Order::Drain(drain)));
    }

    /// The lines of the access log since the last call.
    pub fn access_lines(&self) -> String {
        let mut all = Vec::new();
        for log in &self.logs {
            log.take_lines(|lines| {
                all.extend_from_slice(lines);
                0
            });
        }
        String::from_utf8(all).expect("text")
    }

    /// The value of the counter of that name and these labels.
    pub fn counter(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.registry.read().counter(name, labels).unwrap_or(0)
    }

    /// The value of the gauge of that name and these labels.
    pub fn gauge(&self, name: &str, labels: &[(&str, &str)]) -> i64 {
        self.registry.read().gauge(name, labels).unwrap_or(0)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        for (orders, worker) in &mut self.workers {
            orders.send(Order::End);
            let joined = worker.take().map(Worker::join);
            assert!(std::thread::panicking() || joined.is_some_and(|joined| joined.is_ok()), "a worker panicked");
        }
    }
}

fn start(number: usize, shared: Shared, log: LogWriter) -> (Mailbox<Order>, Option<Worker>) {
    let (orders, inbox) = mailbox::<Order>();
    let settings = RuntimeSettings { pin: false, ..RuntimeSettings::default() };
    let worker = Worker::start(number, None, &settings, Arc::default(), move || async move {
        let core = core(number, &shared, log);
        let service = service(&core, &shared);
        let ticking = service.clone();
        weir_engine::spawn(async move {
            loop {
                weir_engine::sleep(Duration::from_millis(10)).await;
                ticking.tick();
            }
        })
        .detach();
        loop {
            for order in inbox.receive().await {
                match order {
                    Order::Client(socket) => {
                        weir_engine::spawn(service.clone().serve(arrival(&core, socket))).detach();
                    }
                    Order::Rest(sender) => {
                        let _ = sender.send((core.bytes.in_use(), service.sessions().open_count()));
                    }
                    Order::Drain(drain) => service.sessions().drain(drain),
                    Order::Move(servers) => {
                        let shares: Vec<Arc<EndpointShare>> = servers.iter().map(|_| Arc::default()).collect();
                        let upstream = upstream(&core, &shared, "others", (&servers, &shares));
                        service.update(listener(), shared.setup.listener.clone(), upstream);
                    }
                    Order::Stall(held) => weir_engine::spawn(async move { held.hold() }).detach(),
                    Order::Pause(held) => held.hold(),
                    Order::End => return,
                }
            }
        }
    });
    (orders, Some(worker.expect("a worker")))
}

/// Waits until `is_so`.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn core(worker: usize, shared: &Shared, log: LogWriter) -> CoreShare {
    CoreShare {
        worker,
        workers: shared.setup.workers,
        flight: LocalBudget::new(1_024),
        bytes: ByteLease::new(shared.bytes.clone()),
        metrics: shared.registry.core(worker as u32),
        events: EventLog::new(log.clone()),
        log,
        table: shared.table.clone(),
        stage_sample: StageSample::new(1.0),
        handshakes: LocalBudget::new(0),
        post: Rc::new(|_, _, _| false),
        orders: Arc::default(),
    }
}

fn service(core: &CoreShare, shared: &Shared) -> Rc<Service> {
    let setup = &shared.setup;
    let upstream = upstream(core, shared, "servers", (&setup.servers, &shared.shares));
    let parts = (core.clone(), shared.listener.clone());
    Service::new(parts, listener(), setup.listener.clone(), upstream)
}

fn listener() -> ListenerSettings {
    ListenerSettings::new("test", Address::Socket(SocketAddr::from(([127, 0, 0, 1], 0))))
}

/// An upstream of that name with these servers.
fn upstream(
    core: &CoreShare,
    shared: &Shared,
    name: &str,
    (servers, shares): (&[SocketAddr], &[Arc<EndpointShare>]),
) -> Rc<MongodbUpstream> {
    let addresses = servers.iter().map(|address| Address::Socket(*address)).collect();
    let mut settings = UpstreamSettings::new(name, addresses);
    settings.health = None;
    let (process, own) = (&shared.process, shared.setup.upstream.clone());
    let upstream = MongodbUpstream::new((core, process), settings, own, shares, core.worker == 0);
    upstream.expect("an upstream")
}

fn arrival(core: &CoreShare, socket: UnixStream) -> Arrival {
    let peer = SocketAddr::from(([192, 0, 2, 1], 1));
    Arrival {
        stream: Box::new(Stream::new(socket.into(), StreamOptions { marks: MARKS }).expect("a fresh socket")),
        security: Security::Plain,
        guard: core.table.enter("test".into(), core.worker, peer.to_string(), turn::now().max(Time::ZERO)),
        peer: Peer::Ip(peer),
        local: None,
        place: None,
        moved: None,
    }
}

/// A client.
pub struct Client {
    pub stream: UnixStream,
    received: Vec<u8>,
    last_id: i32,
}

/// A command as a message.
pub fn command(id: i32, flags: Flags, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    message::write(&mut out, Ids { request: id, response_to: 0 }, flags, body);
    out
}

/// A field of a reply.
pub fn integer(reply: &[u8], name: &str) -> Option<i64> {
    let body = Message::read(reply).expect("a message").body;
    body.get(name.as_bytes()).expect("a field").and_then(|value| value.as_integer())
}

/// `ok` of a reply.
pub fn is_ok(reply: &[u8]) -> bool {
    let body = Message::read(reply).expect("a message").body;
    body.get(b"ok").expect("a field").is_some_and(|value| value.is_true())
}

/// The field within another one.
pub fn inner<'a>(reply: &'a [u8], outer: &str, name: &str) -> Option<weir_mongodb_codec::bson::Value<'a>> {
    let body: Document<'a> = Message::read(reply).expect("a message").body;
    let outer = body.get(outer.as_bytes()).expect("a field")?.as_document().expect("a document")?;
    outer.get(name.as_bytes()).expect("a field")
}

impl Client {
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the gateway takes it");
    }

    /// The next message; `None`: the end of the connection.
    pub fn message(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Ok(Some(piece)) = Framer::default().next(&self.received)
                && piece.is_whole()
            {
                return Some(self.received.drain(..piece.bytes).collect());
            }
            let mut buffer = vec![0; 64 << 10];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The number of the next request.
    pub fn next_id(&mut self) -> i32 {
        self.last_id += 1;
        self.last_id
    }

    /// The reply to a command.
    pub fn ask(&mut self, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let id = self.next_id();
        self.send(&command(id, Flags::empty(), body));
        let reply = self.message().expect("a reply");
        assert_eq!(Message::read(&reply).expect("a message").header.response_to, id);
        reply
    }

    /// Says hello as a driver does. `is_load_balanced`: the face of a load balancer.
    pub fn hello(&mut self, is_load_balanced: bool) -> Vec<u8> {
        let reply = self.ask(|body| {
            body.int32("hello", 1);
            body.bool("helloOk", true);
            if is_load_balanced {
                body.bool("loadBalanced", true);
            }
            body.document("client", |client| {
                client.document("driver", |driver| {
                    driver.string("name", "test");
                    driver.string("version", "1");
                });
            });
            body.string("$db", "admin");
        });
        assert!(is_ok(&reply));
        reply
    }

    /// A find in `shop.orders`.
    pub fn find(&mut self) -> Vec<u8> {
        self.ask(|body| {
            body.string("find", "orders");
            body.string("$db", "shop");
        })
    }
}

/// A client that has said hello.
pub fn greeted(gateway: &Gateway) -> Client {
    let mut client = gateway.client();
    client.hello(false);
    client
}
