//! A server with a tiny protocol, and workers with a pool to it.

use std::{
    collections::{HashMap, HashSet},
    io::{BufRead, BufReader, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Mutex, atomic::AtomicU32, mpsc},
    thread,
};

use weir_engine::{
    Mailbox, Worker, mailbox,
    settings::{Address, DriverChoice, RuntimeSettings},
};
use weir_telemetry::{EventLog, Level, Registry, log::log_ring};

use super::super::{ledger::Tally, *};
use crate::health::ConnectionProbe;

/// Longest wait of a test.
pub(super) const WAIT: Duration = Duration::from_secs(20);

/// Database, user.
pub(super) type Key = (&'static str, &'static str);

/// The counts of the server, and its behaviour.
#[derive(Default)]
pub(super) struct Behaviour {
    pub(super) refuses: HashSet<String>,
    /// It refuses logins, as it has too many connections.
    pub(super) is_full: bool,
    /// It accepts and closes.
    pub(super) is_down: bool,
    pub(super) fails_resets: bool,
    /// Checks get no response.
    pub(super) ignores_checks: bool,
    /// Connections so far.
    pub(super) accepted: u32,
    pub(super) logins: u32,
    pub(super) checks: u32,
    pub(super) farewells: u32,
    /// Those that are open, by their number.
    open: HashMap<u32, TcpStream>,
}

/// A server in threads: `L key` logs in, `P` is a check, `R` a reset, `X` a farewell; each line has a response but the last.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) behaviour: Arc<Mutex<Behaviour>>,
}

impl Server {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let behaviour = Arc::<Mutex<Behaviour>>::default();
        let all = behaviour.clone();
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let mut now = all.lock().expect("no panic");
                now.accepted += 1;
                if now.is_down {
                    continue;
                }
                let number = now.accepted;
                now.open.insert(number, stream.try_clone().expect("a descriptor"));
                drop(now);
                let all = all.clone();
                thread::spawn(move || {
                    let _ = serve(&stream, &all);
                    all.lock().expect("no panic").open.remove(&number);
                });
            }
        });
        Self { address, behaviour }
    }

    pub(super) fn with<T>(&self, with: impl FnOnce(&mut Behaviour) -> T) -> T {
        with(&mut self.behaviour.lock().expect("no panic"))
    }

    /// Sends `bytes` on each connection.
    pub(super) fn say(&self, bytes: &str) {
        self.with(|now| {
            for mut stream in now.open.values() {
                stream.write_all(bytes.as_bytes()).expect("open");
            }
        });
    }

    /// Ends each connection.
    pub(super) fn hang_up(&self) {
        self.with(|now| now.open.values().for_each(|stream| drop(stream.shutdown(Shutdown::Both))));
    }
}

fn serve(stream: &TcpStream, behaviour: &Mutex<Behaviour>) -> io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let mut stream = stream;
    while let Some(line) = lines.next().transpose()? {
        let mut now = behaviour.lock().expect("no panic");
        let response = match line.split_at(1) {
            ("L", key) => {
                now.logins += 1;
                match now.is_full {
                    true => "full\n",
                    false if now.refuses.contains(key) => "refused\n",
                    false => "ok\n",
                }
            }
            ("P", _) => {
                now.checks += 1;
                if now.ignores_checks {
                    continue;
                }
                "pong\n"
            }
            ("R", _) if now.fails_resets => "no\n",
            ("R", _) => "reset\n",
            _ => {
                now.farewells += 1;
                return Ok(());
            }
        };
        drop(now);
        stream.write_all(response.as_bytes())?;
    }
    Ok(())
}

/// The connections of the test that exist, from the begin of the login on, and the most that there were at once.
#[derive(Default)]
pub(super) struct Census {
    pub(super) now: AtomicU32,
    pub(super) most: AtomicU32,
}

/// One of them.
pub(super) struct Counted(Arc<Census>);

impl Counted {
    fn new(census: &Arc<Census>) -> Self {
        let now = census.now.fetch_add(1, Ordering::SeqCst) + 1;
        census.most.fetch_max(now, Ordering::SeqCst);
        Self(census.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The facts about a connection.
pub(super) struct TinyState {
    /// Lines that the server sent of its own accord.
    pub(super) notices: String,
    /// Connections of it do not move.
    pub(super) is_fixed: bool,
    counted: Counted,
}

/// The protocol.
pub(super) struct Tiny {
    census: Arc<Census>,
    is_fixed: bool,
}

async fn exchange(stream: &mut Stream, request: &str) -> io::Result<String> {
    stream.output.append(request.as_bytes());
    let mut response = Vec::new();
    while !response.ends_with(b"\n") {
        let bytes = stream.reader.receive().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        response.extend_from_slice(&bytes);
    }
    Ok(String::from_utf8(response).expect("text"))
}

impl PooledProtocol for Tiny {
    type Key = Key;
    type State = TinyState;
    type Moved = (String, Counted);
    type Watch = ();

    const FAREWELL: &'static [u8] = b"X\n";

    fn database(key: &Key) -> &[u8] {
        key.0.as_bytes()
    }

    fn user(key: &Key) -> &[u8] {
        key.1.as_bytes()
    }

    async fn login(&self, stream: &mut Stream, _: &LoginTarget, key: &Key) -> Result<TinyState, LoginError> {
        let counted = Counted::new(&self.census);
        let response = exchange(stream, &format!("L{}/{}\n", key.0, key.1)).await?;
        if response == "full\n" {
            return Err(LoginError::Busy { text: response });
        }
        if response != "ok\n" {
            return Err(LoginError::Refused { words: response.into_bytes(), text: "refused".into() });
        }
        Ok(TinyState { notices: String::new(), is_fixed: self.is_fixed, counted })
    }

    fn on_idle_bytes(&self, state: &mut TinyState, bytes: &[u8]) -> IdleVerdict {
        state.notices.push_str(std::str::from_utf8(bytes).expect("text"));
        match state.notices.as_bytes() {
            [.., b'!'] => IdleVerdict::Close,
            [.., b'\n'] => IdleVerdict::Keep,
            _ => IdleVerdict::Incomplete,
        }
    }

    async fn reset(&self, stream: &mut Stream, _: &mut TinyState) -> bool {
        exchange(stream, "R\n").await.is_ok_and(|response| response == "reset\n")
    }

    async fn check(&self, stream: &mut Stream, _: &mut TinyState) -> bool {
        exchange(stream, "P\n").await.is_ok()
    }

    fn is_movable(&self, state: &TinyState) -> bool {
        !state.is_fixed
    }

    fn pack(&self, state: TinyState) -> (String, Counted) {
        (state.notices, state.counted)
    }

    fn unpack(&self, (notices, counted): (String, Counted)) -> TinyState {
        TinyState { notices, is_fixed: self.is_fixed, counted }
    }
}

pub(super) type Upstream = Rc<PooledUpstream<Tiny>>;
pub(super) type Lease = PooledConnection<Tiny>;

type Job = Box<dyn FnOnce(Upstream) + Send>;

/// Workers with one upstream each, to one server.
pub(super) struct Crew {
    pub(super) server: Server,
    pub(super) census: Arc<Census>,
    mailboxes: Vec<Mailbox<Option<Job>>>,
    workers: Vec<Worker>,
}

impl Crew {
    pub(super) fn new(workers: usize, settings: PooledSettings) -> Self {
        Self::with(workers, settings, |_| {}, false)
    }

    /// `is_fixed`: connections do not move.
    pub(super) fn with(
        workers: usize,
        pooled: PooledSettings,
        change: impl Fn(&mut UpstreamSettings),
        is_fixed: bool,
    ) -> Self {
        let (server, census) = (Server::start(), Arc::<Census>::default());
        let registry = Registry::with_level(Level::Full);
        let mut settings = UpstreamSettings::new("one", vec![Address::Socket(server.address)]);
        settings.health = None;
        settings.connect_timeout = WAIT;
        change(&mut settings);
        let shares: Vec<Arc<EndpointShare>> = settings.endpoints.iter().map(|_| Arc::default()).collect();
        let mut crew = Self { server, census, mailboxes: Vec::new(), workers: Vec::new() };
        for id in 0..workers {
            let (sender, inbox) = mailbox::<Option<Job>>();
            let (settings, pooled, shares, registry) =
                (settings.clone(), pooled.clone(), shares.clone(), registry.clone());
            let protocol = Tiny { census: crew.census.clone(), is_fixed };
            let runtime = RuntimeSettings { driver: DriverChoice::Polling, ..RuntimeSettings::default() };
            let main = move || async move {
                let metrics =
                    UpstreamMetrics::new(&registry.core(id as u32), EventLog::new(log_ring(8, None).0), "one".into());
                let probe = None::<ConnectionProbe>;
                let upstream = PooledUpstream::new(settings, pooled, protocol, &shares, metrics, probe);
                let upstream = upstream.expect("an upstream");
                loop {
                    for job in inbox.receive().await {
                        let Some(job) = job else { return };
                        job(upstream.clone());
                    }
                }
            };
            crew.workers.push(Worker::start(id, None, &runtime, Arc::default(), main).expect("a worker"));
            crew.mailboxes.push(sender);
        }
        crew
    }

    /// Runs `job` on a worker; its result comes.
    pub(super) fn on<T: Send + 'static>(
        &self,
        worker: usize,
        job: impl AsyncFnOnce(Upstream) -> T + Send + 'static,
    ) -> mpsc::Receiver<T> {
        let (sender, receiver) = mpsc::channel();
        self.mailboxes[worker].send(Some(Box::new(move |upstream| {
            weir_engine::spawn(async move {
                let _ = sender.send(job(upstream).await);
            })
            .detach();
        })));
        receiver
    }

    /// The same, and waits for it.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        worker: usize,
        job: impl AsyncFnOnce(Upstream) -> T + Send + 'static,
    ) -> T {
        self.on(worker, job).recv_timeout(WAIT).expect("the job ends")
    }

    /// A client on a worker that takes a connection and keeps it.
    pub(super) fn hold(&self, worker: usize, key: Key) -> Held {
        let (release, released) = mailbox::<Option<Condition>>();
        let (sender, acquired) = mpsc::channel();
        drop(self.on(worker, async move |upstream| {
            let lease = acquire(&upstream, key, WAIT).await;
            let _ = sender.send(lease.as_ref().map(Lease::id).map_err(Clone::clone));
            let Ok(lease) = lease else { return };
            if let Some(Some(condition)) = released.receive().await.pop_front() {
                lease.give_back(condition);
            }
        }));
        Held { release, acquired }
    }

    /// The counts of a key; a pool without connections and clients is forgotten.
    pub(super) fn counts(&self, key: Key) -> PoolCounts<Key> {
        let counts = self.ask(0, async move |upstream| upstream.counts());
        let nothing = Tally { open: 0, logins: 0, waiting: 0, maxwait: Duration::ZERO };
        let none = || PoolCounts::new(key, 0, &nothing, std::iter::empty());
        counts.into_iter().find(|counts| counts.key == key).unwrap_or_else(none)
    }

    /// Waits until the counts of `key` are as they must become.
    pub(super) fn until(&self, key: Key, is: impl Fn(&PoolCounts<Key>) -> bool) {
        let begun = std::time::Instant::now();
        loop {
            let counts = self.counts(key);
            if is(&counts) {
                return;
            }
            assert!(begun.elapsed() < WAIT, "{counts:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    pub(super) fn logins(&self) -> u32 {
        self.server.with(|now| now.logins)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.send(None));
        for worker in self.workers.drain(..) {
            let ended = worker.join();
            assert!(thread::panicking() || ended.is_ok(), "a worker panicked");
        }
    }
}

/// A client with a connection.
pub(super) struct Held {
    release: Mailbox<Option<Condition>>,
    acquired: mpsc::Receiver<Result<u64, AcquireError>>,
}

impl Held {
    /// The number of the connection that it has by now.
    pub(super) fn id(&self) -> u64 {
        self.acquired.recv_timeout(WAIT).expect("it is forgotten").expect("a connection")
    }

    pub(super) fn error(&self) -> AcquireError {
        self.acquired.recv_timeout(WAIT).expect("it is forgotten").expect_err("no connection")
    }

    /// It has its connection now; true once.
    pub(super) fn is_served(&self) -> bool {
        matches!(self.acquired.try_recv(), Ok(Ok(_)))
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.acquired.try_recv(), Err(mpsc::TryRecvError::Empty))
    }

    pub(super) fn give_back(&self, condition: Condition) {
        self.release.send(Some(condition));
    }

    /// Its connection is lost.
    pub(super) fn lose(&self) {
        self.release.send(None);
    }
}

/// A connection within `limit`.
pub(super) async fn acquire(upstream: &Upstream, key: Key, limit: Duration) -> Result<Lease, AcquireError> {
    let now = turn::now();
    let patience = Patience { since: now, deadline: now.saturating_add(limit), notify_at: None };
    upstream.pool(&key).acquire(Default::default(), patience, || {}).await
}
