//! Clients, a pool, and bytes that arrive in pieces and in any order.

use std::collections::VecDeque;
use std::rc::Rc;

use weir_base::{Rng, Time};
use weir_postgres_codec::frontend;
use weir_postgres_session::checkin::Verdict;
use weir_postgres_session::{
    Cleanliness, End, Next, PoolMode, Recovered, Recovery, ServerState, ServerStep, Session, SessionSettings, Value,
    WorkerShare,
};

use crate::client;
use crate::io::SimulatedIo;
use crate::server::ModelServer;

/// The user of a server.
enum Use {
    Idle,
    Client(usize),
    Recovery(Recovery),
}

/// A connection of the pool.
struct Pooled {
    model: ModelServer,
    state: ServerState,
    used: Use,
    /// Bytes on their way.
    to_model: Vec<u8>,
    from_model: Vec<u8>,
}

/// A client and the server that only it uses.
struct Client {
    session: Session,
    direct: ModelServer,
    mark: String,
    /// Bytes on their way to the gateway.
    sent: Vec<u8>,
    /// Bytes that the session has left.
    held: Vec<u8>,
    expected: Vec<u8>,
    received: usize,
    server: Option<usize>,
    is_waiting: bool,
    /// Units that it will yet send.
    left: u32,
    /// Its events, for the message of a failure.
    log: Vec<String>,
}

/// The world.
pub struct World {
    rng: Rng,
    /// The reset of the configuration, if it has one.
    reset_query: Option<&'static [u8]>,
    share: Rc<WorkerShare>,
    settings: Rc<SessionSettings>,
    io: SimulatedIo,
    clients: Vec<Client>,
    servers: Vec<Pooled>,
    waiters: VecDeque<usize>,
    names: u64,
    last_log: Vec<String>,
    /// Servers that were checked in, clean or after a recovery.
    pub checked_in: u64,
    /// Clients that vanished while they held a server.
    pub vanished: u64,
    /// Bytes that were compared.
    pub compared: u64,
    /// Clients with channels that were compared.
    pub listening: u64,
}

impl World {
    /// Servers are reset by `query` of the configuration from now on.
    #[must_use]
    pub fn with_reset_query(mut self, query: &'static [u8]) -> Self {
        self.reset_query = Some(query);
        self
    }

    /// A world of so many clients and servers.
    pub fn new(seed: u64, clients: usize, servers: usize, settings: SessionSettings) -> Self {
        let share = Rc::new(WorkerShare::new());
        let mut world = Self {
            rng: Rng::new(seed),
            reset_query: None,
            settings: Rc::new(settings),
            io: SimulatedIo::default(),
            clients: Vec::new(),
            servers: (0..servers).map(|_| Pooled::new(&share)).collect(),
            share,
            waiters: VecDeque::new(),
            names: 0,
            last_log: Vec::new(),
            checked_in: 0,
            vanished: 0,
            compared: 0,
            listening: 0,
        };
        for _ in 0..clients {
            let client = world.new_client();
            world.clients.push(client);
        }
        world
    }

    fn new_client(&mut self) -> Client {
        self.names += 1;
        let mark = format!("m{}", self.names);
        Client {
            session: Session::new([], self.settings.clone(), self.share.clone(), Time::ZERO).with_pool("pool"),
            direct: ModelServer::new(),
            mark,
            sent: Vec::new(),
            held: Vec::new(),
            expected: Vec::new(),
            received: 0,
            server: None,
            is_waiting: false,
            left: 4 + self.rng.below(12) as u32,
            log: Vec::new(),
        }
    }

    /// Runs so many random events, then until nothing moves, and checks that everybody has everything.
    pub fn run(&mut self, events: u64) {
        for _ in 0..events {
            self.event(true);
            self.check_leases();
        }
        for client in &mut self.clients {
            client.left = 0;
        }
        let mut quiet = 0;
        for _ in 0..DRAINS_MAX {
            if quiet == 2 {
                break;
            }
            quiet = if self.drain() { 0 } else { quiet + 1 };
            self.check_leases();
        }
        for at in 0..self.clients.len() {
            self.finish(at);
        }
        let ends = (0..DRAINS_MAX).any(|_| !self.drain());
        assert!(ends, "bytes go round for ever\n{}", self.picture());
        for (at, client) in self.clients.iter().enumerate() {
            assert!(!client.is_waiting, "client {at} waits for ever:\n{}", self.picture());
            let missing = &client.expected[client.received..];
            let text = String::from_utf8_lossy(missing);
            assert!(missing.is_empty(), "client {at} lacks {text:?}\n{}\n{}", client.log.join("\n"), self.picture());
        }
    }

    /// Servers and their users, for the message of a failure.
    fn picture(&self) -> String {
        let mut text = String::new();
        for server in &self.servers {
            let used = match &server.used {
                Use::Idle => "idle".to_owned(),
                Use::Client(client) => format!("client {client}: {:?}", self.clients[*client].session.pin().reasons),
                Use::Recovery(recovery) => format!("{recovery:?}"),
            };
            text += &format!("{used} {:?} {:?} {:?}\n", server.state.facts(false), server.model, server.state);
        }
        text
    }

    /// Ends what keeps a client's replies from coming, or its server from others: a COPY, a batch without its Sync, a pin.
    fn finish(&mut self, at: usize) {
        let mut end = Vec::new();
        if self.clients[at].direct.is_copying() {
            frontend::copy_fail(&mut end, b"over");
            frontend::copy_fail(&mut end, b"over");
        }
        frontend::sync(&mut end);
        frontend::query(&mut end, b"ROLLBACK");
        frontend::query(&mut end, b"DISCARD ALL");
        frontend::query(&mut end, b"SHOW app.x");
        self.send(at, &end);
    }

    /// Delivers everything; true if something moved.
    fn drain(&mut self) -> bool {
        let mut moved = false;
        for at in 0..self.clients.len() {
            let bytes = self.clients[at].sent.len();
            moved |= bytes > 0;
            self.deliver(at, bytes);
        }
        for at in 0..self.servers.len() {
            let bytes = self.servers[at].to_model.len();
            moved |= bytes > 0;
            self.deliver_to_model(at, bytes);
            let bytes = self.servers[at].from_model.len();
            moved |= bytes > 0;
            self.deliver_from_model(at, bytes);
        }
        moved
    }

    fn event(&mut self, may_vanish: bool) {
        let client = self.rng.below(self.clients.len() as u64) as usize;
        let server = self.rng.below(self.servers.len() as u64) as usize;
        match self.rng.below(10) {
            0..=2 => self.send_random(client),
            3..=4 => {
                let bytes = self.some(self.clients[client].sent.len());
                self.deliver(client, bytes);
            }
            5..=6 => {
                let bytes = self.some(self.servers[server].to_model.len());
                self.deliver_to_model(server, bytes);
            }
            7..=8 => {
                let bytes = self.some(self.servers[server].from_model.len());
                self.deliver_from_model(server, bytes);
            }
            _ if may_vanish && self.rng.below(12) == 0 => self.vanish(client),
            _ => {}
        }
    }

    /// Few bytes, or all.
    fn some(&mut self, bytes: usize) -> usize {
        if bytes == 0 || self.rng.below(3) == 0 { bytes } else { 1 + self.rng.below(bytes as u64) as usize }
    }

    fn send_random(&mut self, at: usize) {
        let client = &mut self.clients[at];
        if client.left == 0 {
            return;
        }
        client.left -= 1;
        let bytes = client::messages(&mut self.rng, &client.mark, &client.direct);
        self.send(at, &bytes);
    }

    fn send(&mut self, at: usize, bytes: &[u8]) {
        let client = &mut self.clients[at];
        client.sent.extend_from_slice(bytes);
        client.direct.receive(bytes);
        client.direct.run();
        let output = client.direct.take_output();
        client.log.push(format!("sends {:?}", String::from_utf8_lossy(bytes)));
        client.expected.extend_from_slice(&output);
    }

    fn deliver(&mut self, at: usize, bytes: usize) {
        let client = &mut self.clients[at];
        client.held.extend(client.sent.drain(..bytes));
        if !client.is_waiting {
            self.pump(at);
        }
    }

    /// Gives a session its input until it takes no more.
    fn pump(&mut self, at: usize) {
        loop {
            let client = &mut self.clients[at];
            let server = client.server.map(|server| &mut self.servers[server].state);
            let taken = client.session.on_client(&client.held, server, &self.io);
            client.held.drain(..taken.consumed);
            self.flush(at);
            match taken.next {
                Next::More | Next::Wait => return,
                Next::Release(cleanliness) => {
                    let server = self.clients[at].server.take().expect("it releases the server that it holds");
                    self.release(server, at, cleanliness);
                    if self.clients[at].is_waiting {
                        return;
                    }
                }
                Next::NeedServer(_) => {
                    assert!(self.clients[at].server.is_none(), "it has one");
                    let Some(idle) = self.servers.iter().position(|server| matches!(server.used, Use::Idle)) else {
                        self.clients[at].is_waiting = true;
                        self.waiters.push_back(at);
                        return;
                    };
                    self.servers[idle].used = Use::Client(at);
                    self.clients[at].server = Some(idle);
                }
                Next::Close(end) => return self.end(at, &end),
            }
        }
    }

    /// Moves what a session has written.
    fn flush(&mut self, at: usize) {
        let to_server = self.io.to_server.take();
        if !to_server.is_empty() {
            let server = self.clients[at].server.expect("a session writes to the server that it holds");
            let text = format!("server {server} gets {:?}", String::from_utf8_lossy(&to_server));
            self.clients[at].log.push(text);
            self.servers[server].to_model.extend(to_server);
        }
        let to_client = self.io.to_client.take();
        let client = &mut self.clients[at];
        let expected = &client.expected[client.received..];
        assert!(
            expected.starts_with(&to_client),
            "client {at} gets {:?}\nin place of {:?}\n{}",
            String::from_utf8_lossy(&to_client),
            String::from_utf8_lossy(expected),
            client.log.join("\n")
        );
        if !to_client.is_empty() {
            client.log.push(format!("gets {:?}", String::from_utf8_lossy(&to_client)));
        }
        client.received += to_client.len();
        self.compared += to_client.len() as u64;
    }

    fn deliver_to_model(&mut self, at: usize, bytes: usize) {
        let server = &mut self.servers[at];
        let input: Vec<u8> = server.to_model.drain(..bytes).collect();
        server.model.receive(&input);
        server.model.run();
        server.from_model.extend(server.model.take_output());
    }

    fn deliver_from_model(&mut self, at: usize, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let server = &mut self.servers[at];
        let input: Vec<u8> = server.from_model.drain(..bytes).collect();
        match &mut server.used {
            Use::Idle => panic!("an idle server says {:?}", String::from_utf8_lossy(&input)),
            Use::Client(client) => {
                let client = *client;
                self.reply(at, client, &input);
            }
            Use::Recovery(recovery) => {
                let recovered = recovery.on_server(&input, &mut server.state, &self.share, &self.io);
                self.recovered(at, recovered);
            }
        }
    }

    fn reply(&mut self, at: usize, client: usize, input: &[u8]) {
        let session = &mut self.clients[client].session;
        let step = session.on_server(input, &mut self.servers[at].state, &self.io);
        self.flush(client);
        let step = step
            .unwrap_or_else(|error| panic!("{error} for client {client}:\n{}", self.clients[client].log.join("\n")));
        match step {
            ServerStep::Continue => {}
            ServerStep::Release(cleanliness) => {
                self.clients[client].server = None;
                self.release(at, client, cleanliness);
            }
            ServerStep::Close(end) => return self.end(client, &end),
        }
        self.compare_channels(client);
        if !self.clients[client].is_waiting {
            self.pump(client);
        }
    }

    /// A client gives its server back.
    fn release(&mut self, at: usize, client: usize, cleanliness: Cleanliness) {
        self.last_log = self.clients[client].log.clone();
        match cleanliness {
            Cleanliness::Clean => self.check_in(at),
            Cleanliness::Dirty => self.recover(at, Recovery::new(self.reset_query)),
            Cleanliness::Unusable => self.replace(at),
        }
    }

    /// No client keeps a server that it could give back: nothing more may come that would make it do so.
    fn check_leases(&self) {
        for (at, client) in self.clients.iter().enumerate() {
            let Some(server) = client.server else { continue };
            let facts = self.servers[server].state.facts(client.session.pin().is_held());
            assert!(
                facts.after_reply() == Verdict::Keep,
                "client {at} keeps a server without a use for it: {facts:?}\n{}",
                client.log.join("\n")
            );
        }
    }

    /// A client with all its replies listens to what a server of its own would have.
    fn compare_channels(&mut self, at: usize) {
        let client = &self.clients[at];
        let is_settled = client.sent.is_empty() && client.held.is_empty() && client.received == client.expected.len();
        // A LISTEN that has not committed is no channel yet; neither is that of a batch without its Sync.
        if is_settled && client.direct.state().is_outside() && self.settings.pool_mode != PoolMode::Session {
            let direct = client.direct.state().objects.channels.len();
            assert_eq!(client.session.channels(), direct, "client {at}:\n{}", client.log.join("\n"));
            self.listening += u64::from(direct > 0);
        }
    }

    /// A session ends only where a server of its own would end it, with the same words.
    fn end(&mut self, at: usize, end: &End) {
        let client = &self.clients[at];
        let is_due = client.direct.has_ended && client.received == client.expected.len();
        assert!(is_due, "client {at} ends: {end:?}\n{}", client.log.join("\n"));
        self.vanish(at);
    }

    fn vanish(&mut self, at: usize) {
        let fresh = self.new_client();
        let mut gone = std::mem::replace(&mut self.clients[at], fresh);
        self.waiters.retain(|waiter| *waiter != at);
        if let Some(server) = gone.server {
            self.vanished += 1;
            let recovery = gone.session.on_client_gone(&mut self.servers[server].state, self.reset_query);
            self.recover(server, recovery);
        }
    }

    fn recover(&mut self, at: usize, mut recovery: Recovery) {
        let server = &mut self.servers[at];
        let runs_query = server.state.is_busy() && !server.state.facts(false).is_copying;
        let recovered = recovery.begin(&mut server.state, &self.share, &self.io);
        if runs_query && self.rng.below(2) == 0 && recovered == Recovered::NotYet {
            server.model.cancel();
        }
        server.used = Use::Recovery(recovery);
        self.recovered(at, recovered);
    }

    fn recovered(&mut self, at: usize, recovered: Recovered) {
        let to_server = self.io.to_server.take();
        self.servers[at].to_model.extend(to_server);
        match recovered {
            Recovered::NotYet => {}
            Recovered::Clean => {
                self.servers[at].model.forget_cancel();
                self.check_in(at);
            }
            Recovered::Unusable => self.replace(at),
        }
    }

    /// K5: what the next client gets is what is known.
    fn check_in(&mut self, at: usize) {
        // Messages that a server ignores may be on their way.
        let bytes = self.servers[at].to_model.len();
        self.deliver_to_model(at, bytes);
        let server = &mut self.servers[at];
        let on_the_way = (String::from_utf8_lossy(&server.to_model), String::from_utf8_lossy(&server.from_model));
        assert!(on_the_way.0.is_empty() && on_the_way.1.is_empty(), "on their way: {on_the_way:?}");
        assert!(server.model.is_idle(), "the server is in the middle of something");
        let left = server.model.state();
        assert!(left.is_pristine(), "a client left {left:?}; {:?}", self.last_log);
        let known = server.state.variables();
        let has = &server.model.state().objects.settings;
        let differs =
            has.iter().filter(|(name, value)| known.get(name.as_bytes()).map(text) != Some(value.to_string()));
        assert_eq!(differs.collect::<Vec<_>>(), [], "known are {known:?}");
        assert_eq!(
            known.iter().count(),
            has.len(),
            "known are {known:?}, set are {has:?}\n{}",
            self.last_log.join("\n")
        );
        let kept = self.settings.server_statements_max + 4;
        assert!(server.model.statements() <= kept, "{} statements", server.model.statements());
        self.checked_in += 1;
        if self.rng.below(4) == 0 {
            self.move_to_worker(at);
        }
        self.serve(at);
    }

    /// Another worker gets the server: only what it packs is known of it there.
    fn move_to_worker(&mut self, at: usize) {
        let there = ServerState::new(ModelServer::reports(), None, &self.share);
        let parcel = std::mem::replace(&mut self.servers[at].state, there).pack().expect("it is clean");
        self.servers[at].state = parcel.unpack(&self.share);
    }

    fn replace(&mut self, at: usize) {
        self.servers[at] = Pooled::new(&self.share);
        self.serve(at);
    }

    /// The client that has waited longest gets the server.
    fn serve(&mut self, at: usize) {
        self.servers[at].used = Use::Idle;
        if let Some(client) = self.waiters.pop_front() {
            self.servers[at].used = Use::Client(client);
            self.clients[client].server = Some(at);
            self.clients[client].is_waiting = false;
            self.pump(client);
        }
    }
}

/// A value without the quotes of its statement.
fn text(value: &Value) -> String {
    let (Value::Literal(text) | Value::Expression(text) | Value::Config(text)) = value;
    String::from_utf8_lossy(text).trim_matches('\'').to_owned()
}

impl Pooled {
    fn new(share: &WorkerShare) -> Self {
        Self {
            model: ModelServer::new(),
            state: ServerState::new(ModelServer::reports(), None, share),
            used: Use::Idle,
            to_model: Vec::new(),
            from_model: Vec::new(),
        }
    }
}

/// Rounds after which everything has arrived.
const DRAINS_MAX: u32 = 10_000;
