//! A worker with one HTTP listener between scripted clients and scripted origins: the real exchange in one process.
//!
//! The worker has its own clock, so limits under test are set short and waits have a deadline. When a [`Gateway`] is dropped its worker must
//! hold nothing any more: no exchange in flight, no byte of a body, no session.

use std::{
    cell::Cell,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    rc::Rc,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use weir_analysis::http::path::PathRules;
use weir_base::{
    Budget, ByteLease,
    permit::LocalBudget,
    time::{Time, turn},
};
use weir_engine::{
    Mailbox, Stream, StreamOptions, Watermarks, Worker, mailbox,
    settings::{Address, RuntimeSettings},
};
use weir_http::{
    Http2Multiplexer, Http2OriginSettings, HttpProbe, HttpUpstream,
    routes::{Action, Routes, Target},
    settings::{HttpListenerSettings, WindowSettings},
};
use weir_listener::{Arrival, ConnectionTable, CoreShare, Security, Service, StageSample, settings::ListenerSettings};
use weir_route::{Route, RouteTable, host::HostMatch, path::PathMatch, split::Split};
use weir_telemetry::{
    EventLog, Registry, catalog,
    log::{Peer, log_ring},
};
use weir_upstream::{
    Balance, EndpointShare, UpstreamMetrics,
    settings::{ExclusiveSettings, UpstreamSettings},
};

/// How long a script waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Messages of the test to the worker.
enum Message {
    /// All connections end.
    Cut,
    /// With its number, which makes its address.
    Client(UnixStream, u32),
    /// Requests the number of exchanges in flight, of buffered bytes and of open sessions.
    Rest(mpsc::Sender<(u64, u64, usize)>),
    CompletionStatus,
}

/// The choices of a test.
pub struct Setup {
    /// The routes, in front of the upstreams `a`, `b`, ... by their numbers.
    pub routes: Vec<Route<Action>>,
    /// A change of the settings of the listener.
    pub change: Box<dyn FnOnce(&mut HttpListenerSettings) + Send>,
    /// Endpoints of each upstream; those of `origin` are added to the first.
    pub upstreams: Vec<Vec<SocketAddr>>,
    /// Exchanges at once.
    pub in_flight: u64,
    /// Bytes of all bodies.
    pub buffered_bytes: u64,
    /// Exchanges that end in a panic.
    pub panics: u64,
    /// Origins speak HTTP/2.
    pub is_multiplexed: bool,
    /// Connections to each endpoint; `None`: as many as usual.
    pub connections_max: Option<u32>,
    /// Makes the listener, if it is another one.
    pub make: Option<MakeService>,
}

/// Makes a listener in front of these upstreams.
pub type MakeService = Box<
    dyn FnOnce(&CoreShare, ListenerSettings, HttpListenerSettings, Vec<Rc<HttpUpstream>>) -> Rc<dyn Service> + Send,
>;

impl Setup {
    /// Everything goes to the first upstream.
    pub fn plain(action: impl FnOnce(&mut Action)) -> Self {
        Self::of(vec![route("/", upstream(0), action)])
    }

    /// These routes.
    pub fn of(routes: Vec<Route<Action>>) -> Self {
        let (change, upstreams) = (Box::new(|_: &mut HttpListenerSettings| {}), Vec::new());
        let (in_flight, buffered_bytes) = (64, 64 << 20);
        let (panics, is_multiplexed, connections_max, make) = (0, false, None, None);
        Self { routes, change, upstreams, in_flight, buffered_bytes, panics, is_multiplexed, connections_max, make }
    }
}

/// The route of all paths below `prefix`.
pub fn route(prefix: &str, target: Target, change: impl FnOnce(&mut Action)) -> Route<Action> {
    let path = PathMatch::segments(prefix, &PathRules::default()).expect("a prefix");
    let mut action = Action::plain(target);
    change(&mut action);
    Route::new(&format!("of {prefix}"), HostMatch::Any, path, action)
}

/// An upstream by its number.
pub fn upstream(number: usize) -> Target {
    Target::Upstream(Split::new(vec![(number, None)]).expect("one target"))
}

/// A running worker.
pub struct Gateway {
    worker: Option<Worker>,
    messages: Mailbox<Message>,
    registry: Registry,
    clients: Cell<u32>,
    panics: u64,
    /// The first endpoint of the first upstream.
    pub origin: Origin,
}

impl Gateway {
    /// Starts it. Its first upstream has a scripted origin as its first endpoint.
    pub fn start(mut setup: Setup) -> Self {
        let origin = Origin::new();
        match setup.upstreams.first_mut() {
            Some(endpoints) => endpoints.insert(0, origin.address),
            None => setup.upstreams.push(vec![origin.address]),
        }
        let (messages, inbox) = mailbox::<Message>();
        let registry = Registry::new();
        let (metrics, panics) = (registry.clone(), setup.panics);
        let settings = RuntimeSettings { pin: false, ..RuntimeSettings::default() };
        let worker = Worker::start(0, None, &settings, Arc::default(), move || async move {
            let core = core(&metrics, &setup);
            let service = service(&core, setup);
            loop {
                for message in inbox.receive().await {
                    match message {
                        Message::Client(socket, number) => {
                            weir_engine::spawn(service.clone().serve(arrival(&core, socket, number))).detach();
                        }
                        Message::Rest(sender) => {
                            let open = service.sessions().open_count();
                            let _ = sender.send((core.flight.in_use(), core.bytes.in_use(), open));
                        }
                        Message::Cut => drop(service.sessions().cut()),
                        Message::CompletionStatus => return,
                    }
                }
            }
        });
        Self { worker: Some(worker.expect("a worker")), messages, registry, clients: Cell::new(0), panics, origin }
    }

    /// A client that has just connected.
    pub fn client(&self) -> Client {
        self.client_behind(128 << 10)
    }

    /// The same; the gateway's socket has a buffer of about `send_buffer` bytes for it.
    pub fn client_behind(&self, send_buffer: usize) -> Client {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // The kernel holds next to nothing for a client that does not read.
        socket2::SockRef::from(&theirs).set_send_buffer_size(send_buffer).expect("a size");
        let number = self.clients.get() + 1;
        self.clients.set(number);
        self.messages.send(Message::Client(theirs, number));
        Client(Talk { stream: ours, received: Vec::new() }, address(number))
    }

    /// One request on a connection of its own that closes; the origin gives `response`. Returns what the client has got.
    pub fn exchange(&self, request: &str, response: &str) -> String {
        let mut client = self.client();
        client.send(request);
        let mut origin = self.origin.accept();
        origin.request();
        origin.send(response);
        client.response()
    }

    /// The values of the histogram of that name and these labels.
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.registry.read().histogram(name, labels).map_or(0, |histogram| histogram.count())
    }

    /// The value of the counter of that name and these labels.
    pub fn counter(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.registry.read().counter(name, labels).unwrap_or(0)
    }

    /// Ends all connections, as at the end of a drain.
    pub fn cut(&self) {
        self.messages.send(Message::Cut);
    }

    /// Exchanges in flight, buffered bytes and open sessions.
    pub fn held(&self) -> (u64, u64, usize) {
        let (sender, receiver) = mpsc::channel();
        self.messages.send(Message::Rest(sender));
        receiver.recv_timeout(PATIENCE).expect("the worker responds")
    }

    /// Waits until the worker holds nothing of any exchange, and no more of them have panicked than were to.
    pub fn rests(&self) {
        let begun = Instant::now();
        loop {
            let held = self.held();
            if held == (0, 0, 0) {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "in flight, bytes, sessions: {held:?}");
            std::thread::yield_now();
        }
        let panics = [("listener", "test"), ("reason", "internal_invariant"), ("culprit", "gateway")];
        assert_eq!(self.counter(catalog::VIOLATIONS.name, &panics), self.panics, "panics");
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.rests();
        }
        self.messages.send(Message::CompletionStatus);
        let joined = self.worker.take().map(Worker::join);
        assert!(std::thread::panicking() || joined.is_some_and(|joined| joined.is_ok()), "the worker panicked");
    }
}

fn core(registry: &Registry, setup: &Setup) -> CoreShare {
    let log = log_ring(64, None).0;
    CoreShare {
        worker: 0,
        workers: 1,
        flight: LocalBudget::new(setup.in_flight),
        bytes: ByteLease::new(Budget::new(setup.buffered_bytes)),
        metrics: registry.core(0),
        events: EventLog::new(log.clone()),
        log,
        table: ConnectionTable::new(1),
        stage_sample: StageSample::new(1.0),
        handshakes: LocalBudget::new(0),
        post: Rc::new(|_, _, _| false),
        orders: Arc::default(),
    }
}

fn service(core: &CoreShare, setup: Setup) -> Rc<dyn Service> {
    let mut lanes = ExclusiveSettings::default();
    lanes.balancing.balance = Balance::RoundRobin;
    // No endpoint is left out: tests choose what fails.
    lanes.balancing.ejection.failures = 0;
    lanes.pool.connections_max = setup.connections_max.unwrap_or(lanes.pool.connections_max);
    let names = (b'a'..).map(|letter| Arc::<str>::from(char::from(letter).to_string()));
    let named: Vec<_> = names.zip(setup.upstreams).collect();
    let made = named.iter().map(|(name, endpoints)| {
        let addresses = endpoints.iter().map(|address| Address::Socket(*address)).collect();
        let mut settings = UpstreamSettings::new(name.clone(), addresses);
        settings.health = None;
        let shares: Vec<_> = endpoints.iter().map(|_| Arc::<EndpointShare>::default()).collect();
        let metrics = UpstreamMetrics::new(&core.metrics, core.events.clone(), name.clone());
        let http2 = Http2OriginSettings { streams_max: 100, windows: WindowSettings::default() };
        let multiplexer = setup.is_multiplexed.then(|| Http2Multiplexer::new(http2, core.bytes.clone()));
        HttpUpstream::new(settings, lanes.clone(), multiplexer, &shares, metrics, None::<HttpProbe>)
    });
    let made = made.collect::<io::Result<_>>().expect("upstreams");
    let upstreams = named.iter().map(|(name, _)| name.clone()).collect();
    let names = setup.routes.iter().map(|route| route.name.clone()).collect();
    let routes = Routes { table: RouteTable::new(setup.routes), upstreams, identity_fields: Vec::new(), names };
    let mut http = HttpListenerSettings::new(Arc::new(routes));
    (setup.change)(&mut http);
    let bind = Address::Socket(SocketAddr::from(([127, 0, 0, 1], 0)));
    let listener = ListenerSettings::new("test", bind);
    match setup.make {
        Some(make) => make(core, listener, http, made),
        None => weir_http::Service::new(core.clone(), listener, http, made),
    }
}

/// The address of a client; that of the first is 192.0.2.1.
fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0xC000_0200 + number % (1 << 24))
}

fn arrival(core: &CoreShare, socket: UnixStream, number: u32) -> Arrival {
    let options = StreamOptions { marks: Watermarks { high: 64 << 10, low: 16 << 10 } };
    let peer = SocketAddr::from((address(number), 1));
    Arrival {
        stream: Box::new(Stream::new(socket.into(), options).expect("a fresh socket")),
        security: Security::Plain,
        guard: core.table.enter("test".into(), 0, peer.to_string(), turn::now().max(Time::ZERO)),
        peer: Peer::Ip(peer),
        local: None,
        place: None,
        moved: None,
    }
}

/// A listening origin.
pub struct Origin {
    listener: TcpListener,
    pub address: SocketAddr,
}

impl Origin {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        socket2::SockRef::from(&listener).set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let address = listener.local_addr().expect("bound");
        Self { listener, address }
    }

    /// The next connection of the gateway.
    pub fn accept(&self) -> OriginEnd {
        let (stream, _) = self.listener.accept().expect("the gateway connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        OriginEnd(Talk { stream, received: Vec::new() })
    }

    /// The connection that waits to be accepted, if one does.
    pub fn waiting(&self) -> Option<OriginEnd> {
        self.listener.set_nonblocking(true).expect("a mode");
        let waiting = self.listener.accept();
        self.listener.set_nonblocking(false).expect("a mode");
        let (stream, _) = waiting.ok()?;
        stream.set_nonblocking(false).expect("a mode");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Some(OriginEnd(Talk { stream, received: Vec::new() }))
    }

    /// No connection waits to be accepted.
    pub fn is_untouched(&self) -> bool {
        self.waiting().is_none()
    }
}

/// One end of a connection, with what it has received and not looked at.
pub struct Talk<S> {
    pub stream: S,
    received: Vec<u8>,
}

impl<S: Read + Write> Talk<S> {
    pub fn send(&mut self, text: &str) {
        self.send_bytes(text.as_bytes());
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the gateway takes it");
    }

    /// Waits for more; false at the end of the connection.
    fn more(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.received.extend_from_slice(&buffer[..count]);
                true
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error}, behind {:?}", String::from_utf8_lossy(&self.received)),
        }
    }

    /// Reads up to and including `end`.
    pub fn until(&mut self, end: &str) -> String {
        loop {
            let at = self.received.windows(end.len()).position(|window| window == end.as_bytes());
            if let Some(at) = at {
                return String::from_utf8_lossy(&self.received.drain(..at + end.len()).collect::<Vec<_>>())
                    .into_owned();
            }
            assert!(self.more(), "the end of {:?} before {end:?}", String::from_utf8_lossy(&self.received));
        }
    }

    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.received.len() < count {
            assert!(self.more(), "the end before {count} bytes");
        }
        self.received.drain(..count).collect()
    }

    /// All that comes to the end of the connection.
    pub fn rest(&mut self) -> String {
        String::from_utf8_lossy(&self.rest_bytes()).into_owned()
    }

    /// The same, as it came.
    pub fn rest_bytes(&mut self) -> Vec<u8> {
        while self.more() {}
        std::mem::take(&mut self.received)
    }

    /// The content of the next chunk; `None`: the last one.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let length = usize::from_str_radix(self.until("\r\n").trim(), 16).expect("a length");
        let mut chunk = self.bytes(length + 2);
        chunk.truncate(length);
        (length > 0).then_some(chunk)
    }

    /// The same, where trailers may follow the last one.
    pub fn chunk_or_last(&mut self) -> Option<Vec<u8>> {
        let length = usize::from_str_radix(self.until("\r\n").trim(), 16).expect("a length");
        if length == 0 {
            return None;
        }
        let mut chunk = self.bytes(length + 2);
        chunk.truncate(length);
        Some(chunk)
    }

    /// A head and the body that it announces, as they came.
    fn message(&mut self, has_body: bool) -> String {
        let mut message = self.until("\r\n\r\n");
        let head = message.to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
        match length {
            _ if !has_body => {}
            _ if head.contains("transfer-encoding: chunked") => message.push_str(&self.until("0\r\n\r\n")),
            Some(length) => message.push_str(&String::from_utf8_lossy(&self.bytes(length))),
            None if head.starts_with("http/") && !head.contains(" 204 ") => message.push_str(&self.rest()),
            None => {}
        }
        message
    }
}

/// A client, and the address that the gateway sees.
pub struct Client(pub Talk<UnixStream>, pub Ipv4Addr);

impl Client {
    pub fn send(&mut self, text: &str) {
        self.0.send(text);
    }

    /// The next response, with its body.
    pub fn response(&mut self) -> String {
        self.0.message(true)
    }

    /// The next response, without a body.
    pub fn head(&mut self) -> String {
        self.0.message(false)
    }
}

/// A connection of the gateway to an origin.
pub struct OriginEnd(pub Talk<TcpStream>);

impl OriginEnd {
    pub fn send(&mut self, text: &str) {
        self.0.send(text);
    }

    /// The next request, with its body.
    pub fn request(&mut self) -> String {
        self.0.message(true)
    }

    /// The next head.
    pub fn head(&mut self) -> String {
        self.0.message(false)
    }
}
