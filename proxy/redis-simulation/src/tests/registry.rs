//! Many clients on few subscription lanes, in any order of events: each hears what it must, once, in order, and nothing is
//! left at the servers when all have gone.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use weir_base::{rng::Rng, time::Time};
use weir_redis_session::{
    lane::LaneKey,
    pubsub::{
        At, Kind, Name, Patience, Registry, RegistryIo,
        feed::FRAME_BYTES_MAX,
        frame::{ServerFrame, parse_frame},
    },
};
use weir_resp::Version;

use crate::server::{ServerConnection, Shared};

const NAMES: [&str; 5] = ["a", "b", "c", "denied", "__key"];
const SHARDS: u16 = 2;

/// A pending command of a client.
#[derive(Debug)]
enum PendingCommand {
    Subscribe(Kind, VecDeque<Name>),
    Unsubscribe(Kind, Vec<Name>),
}

#[derive(Debug, Default)]
struct Listener {
    held: BTreeSet<(Kind, Name)>,
    pending: Option<PendingCommand>,
    /// For each name, the messages still to be received. Every message is owed except those of lost lanes.
    due: BTreeMap<(Kind, Name), VecDeque<u64>>,
    /// For each name and server, the last message.
    received: BTreeMap<((Kind, Name), u64), u64>,
}

struct Line {
    server: ServerConnection,
    unsent: Vec<u8>,
    outbox: VecDeque<u8>,
}

#[derive(Default)]
struct World {
    now: Cell<u64>,
    version: Cell<bool>,
    lines: RefCell<BTreeMap<u16, Line>>,
    wanted: RefCell<BTreeSet<u16>>,
    listeners: RefCell<BTreeMap<usize, Listener>>,
    server: RefCell<Shared>,
    has_losses: Cell<bool>,
    /// Where shard channels are.
    home: Cell<u16>,
    gaps: Cell<u64>,
}

impl World {
    fn with<R>(&self, client: usize, look: impl FnOnce(&mut Listener) -> R) -> R {
        look(self.listeners.borrow_mut().get_mut(&client).expect("a client that is there"))
    }

    fn connect_one(&self, registry: &mut Registry) {
        let Some(shard) = self.wanted.borrow_mut().pop_first() else { return };
        let version = if self.version.get() { Version::Resp3 } else { Version::Resp2 };
        let server = ServerConnection::new(LaneKey::new(shard, version));
        self.lines.borrow_mut().insert(shard, Line { server, unsent: Vec::new(), outbox: VecDeque::new() });
        registry.opened(shard, self);
    }

    fn execute(&self, shard: u16) -> bool {
        let mut lines = self.lines.borrow_mut();
        let Some(line) = lines.get_mut(&shard) else { return false };
        line.server.receive(&std::mem::take(&mut line.unsent));
        let mut out = Vec::new();
        let did = line.server.execute_one(&mut self.server.borrow_mut(), &mut out);
        line.outbox.extend(out);
        did
    }

    fn deliver(&self, shard: u16, bytes: usize, registry: &mut Registry) -> bool {
        let piece: Vec<u8> = {
            let mut lines = self.lines.borrow_mut();
            let Some(line) = lines.get_mut(&shard) else { return false };
            let count = bytes.min(line.outbox.len());
            line.outbox.drain(..count).collect()
        };
        registry.receive(shard, &piece, self).expect("the model server is correct");
        !piece.is_empty()
    }

    /// A message of somebody else: every subscriber without a pending UNSUBSCRIBE must get it.
    fn publish(&self, name: &str, number: u64) {
        for (shard, line) in self.lines.borrow_mut().iter_mut() {
            // Key events are each server's own; all servers report the others, but only one is queried.
            let number = number * u64::from(SHARDS) + u64::from(*shard);
            let mut out = Vec::new();
            line.server.publish(name.as_bytes(), number.to_string().as_bytes(), &mut out);
            line.outbox.extend(out);
            for listener in self.listeners.borrow_mut().values_mut() {
                for kind in Kind::ALL {
                    let key: (Kind, Name) = (kind, name.as_bytes().into());
                    let is_leaving = matches!(&listener.pending, Some(PendingCommand::Unsubscribe(of, names)) if *of == kind && names.contains(&key.1));
                    if listener.held.contains(&key) && !is_leaving && self.place(kind, &key.1).shards().contains(shard)
                    {
                        listener.due.entry(key).or_default().push_back(number);
                    }
                }
            }
        }
    }
}

impl RegistryIo for World {
    fn now(&self) -> Time {
        Time::from_nanos(self.now.get())
    }

    fn place(&self, kind: Kind, name: &[u8]) -> At {
        match kind {
            Kind::Shard => At::One(self.home.get()),
            _ if name.starts_with(b"__key") => At::Many((0..SHARDS).collect()),
            _ => At::One(0),
        }
    }

    fn write(&self, shard: u16, bytes: &[u8]) {
        self.lines.borrow_mut().get_mut(&shard).expect("a connection").unsent.extend_from_slice(bytes);
    }

    fn connect(&self, shard: u16) {
        if !self.lines.borrow().contains_key(&shard) {
            self.wanted.borrow_mut().insert(shard);
        }
    }

    fn close(&self, _shard: u16, _is_late: bool) {
        unreachable!("nothing is late");
    }

    fn is_redirection(&self, _shard: u16, _line: &[u8]) -> bool {
        false
    }

    fn count_gap(&self, _shard: u16, _names: usize) {
        self.gaps.set(self.gaps.get() + 1);
    }

    fn message(&self, client: usize, frame: &[u8]) {
        let ServerFrame::Message { kind, name } = parse_frame(frame) else { panic!("no message") };
        let text = String::from_utf8_lossy(frame);
        let number: u64 = text.trim_end().rsplit("\r\n").next().and_then(|text| text.parse().ok()).expect("a number");
        let has_losses = self.has_losses.get();
        self.with(client, |listener| {
            let key: (Kind, Name) = (kind, name.into());
            assert!(listener.held.contains(&key), "{client} hears {key:?} and is not subscribed");
            let before = listener.received.insert((key.clone(), number % u64::from(SHARDS)), number);
            assert!(before.is_none_or(|before| before < number), "{number} after {before:?}");
            let due = listener.due.entry(key).or_default();
            if let Some(at) = due.iter().position(|&other| other == number) {
                // Messages of one server come in order, without gaps.
                let is_first = due.iter().take(at).all(|other| other % u64::from(SHARDS) != number % u64::from(SHARDS));
                assert!(is_first || has_losses, "{number} before {due:?}");
                due.remove(at);
            }
        });
    }

    fn message_too_large(&self, _client: usize) {
        unreachable!("no message is so large");
    }

    fn subscribed(&self, client: usize) {
        self.with(client, |listener| {
            let Some(PendingCommand::Subscribe(kind, names)) = &mut listener.pending else { panic!("nobody asked") };
            let name = names.pop_front().expect("one more name");
            assert!(listener.held.insert((*kind, name)));
            if names.is_empty() {
                listener.pending = None;
            }
        });
    }

    fn unsubscribed(&self, client: usize) {
        let has_losses = self.has_losses.get();
        self.with(client, |listener| {
            let Some(PendingCommand::Unsubscribe(kind, names)) = listener.pending.take() else {
                panic!("nobody asked")
            };
            for name in names {
                let key = (kind, name);
                let due = listener.due.remove(&key).unwrap_or_default();
                assert!(due.is_empty() || has_losses, "{due:?} did not come before the end of {key:?}");
                assert!(listener.held.remove(&key));
            }
        });
    }

    fn refused(&self, client: usize, line: &[u8]) {
        assert!(line.starts_with(b"-"));
        self.with(client, |listener| assert!(matches!(listener.pending.take(), Some(PendingCommand::Subscribe(..)))));
    }

    fn published(&self, _client: usize, _reply: Option<&[u8]>) {
        unreachable!("nobody publishes here");
    }

    fn lost(&self, client: usize) {
        panic!("{client} has lost what the server allows");
    }
}

struct Run {
    rng: Rng,
    registry: Registry,
    world: World,
    messages: u64,
}

impl Run {
    fn clients(&self) -> Vec<usize> {
        self.world.listeners.borrow().keys().copied().collect()
    }

    fn client(&mut self) -> Option<usize> {
        let clients = self.clients();
        (!clients.is_empty()).then(|| clients[self.rng.below(clients.len() as u64) as usize])
    }

    fn names(&mut self) -> Vec<Name> {
        let count = 1 + self.rng.below(3);
        let names: BTreeSet<&str> = (0..count).map(|_| NAMES[self.rng.below(NAMES.len() as u64) as usize]).collect();
        names.into_iter().map(|name| name.as_bytes().into()).collect()
    }

    fn step(&mut self) {
        let kind = Kind::ALL[self.rng.below(3) as usize];
        let shard = self.rng.below(SHARDS.into()) as u16;
        match self.rng.below(20) {
            0 => {
                let client = self.registry.join();
                assert!(self.world.listeners.borrow_mut().insert(client, Listener::default()).is_none());
            }
            1 if self.clients().len() > 3 => self.leave(),
            2..=4 => self.subscribe(kind),
            5 | 6 => self.unsubscribe(kind),
            7..=9 => {
                self.messages += 1;
                let name = NAMES[self.rng.below(NAMES.len() as u64) as usize];
                self.world.publish(name, self.messages);
            }
            10..=12 => drop(self.world.execute(shard)),
            13..=16 => {
                let bytes = [1, 7, 40, 10_000][self.rng.below(4) as usize];
                self.world.deliver(shard, bytes, &mut self.registry);
            }
            17 => self.world.connect_one(&mut self.registry),
            18 if self.world.has_losses.get() => match self.rng.below(3) {
                0 => {
                    self.world.home.set(shard);
                    self.registry.replace_all(&self.world);
                }
                1 => self.registry.refuse_waiting(shard, Duration::ZERO, b"-ERR weir: late\r\n", &self.world),
                _ if self.world.lines.borrow_mut().remove(&shard).is_some() => {
                    self.registry.closed(shard, &self.world);
                }
                _ => {}
            },
            _ => {}
        }
    }

    fn leave(&mut self) {
        if let Some(client) = self.client() {
            self.registry.leave(client, &self.world);
            self.world.listeners.borrow_mut().remove(&client);
        }
    }

    fn subscribe(&mut self, kind: Kind) {
        let (Some(client), names) = (self.client(), self.names()) else { return };
        let names: Option<Vec<Name>> = self.world.with(client, |listener| {
            let fresh: Vec<Name> =
                names.into_iter().filter(|name| !listener.held.contains(&(kind, name.clone()))).collect();
            let asks = listener.pending.is_none() && !fresh.is_empty();
            asks.then(|| {
                listener.pending = Some(PendingCommand::Subscribe(kind, fresh.iter().cloned().collect()));
                fresh
            })
        });
        if let Some(names) = names {
            self.registry.subscribe(client, kind, &names, &self.world);
        }
    }

    fn unsubscribe(&mut self, kind: Kind) {
        let (Some(client), names) = (self.client(), self.names()) else { return };
        let names: Option<Vec<Name>> = self.world.with(client, |listener| {
            let held: Vec<Name> =
                names.into_iter().filter(|name| listener.held.contains(&(kind, name.clone()))).collect();
            let asks = listener.pending.is_none() && !held.is_empty();
            asks.then(|| {
                listener.pending = Some(PendingCommand::Unsubscribe(kind, held.clone()));
                held
            })
        });
        if let Some(names) = names
            && self.registry.unsubscribe(client, kind, &names, &self.world)
        {
            self.world.unsubscribed(client);
        }
    }

    fn settle(&mut self) {
        for _ in 0..200 {
            self.world.connect_one(&mut self.registry);
            for shard in 0..SHARDS {
                while self.world.execute(shard) {}
                self.world.deliver(shard, usize::MAX, &mut self.registry);
            }
        }
    }

    fn end(&mut self) {
        self.settle();
        for (client, listener) in &*self.world.listeners.borrow() {
            assert!(listener.pending.is_none(), "{client} waits for {:?}", listener.pending);
            let owed: usize = listener.due.values().map(VecDeque::len).sum();
            assert!(owed == 0 || self.world.has_losses.get(), "{client} did not hear {:?}", listener.due);
        }
        // Whatever was lost: who is subscribed hears what is said now.
        self.world.listeners.borrow_mut().values_mut().for_each(|listener| listener.due.clear());
        for name in NAMES {
            self.messages += 1;
            self.world.publish(name, self.messages);
        }
        self.settle();
        for (client, listener) in &*self.world.listeners.borrow() {
            let owed: usize = listener.due.values().map(VecDeque::len).sum();
            assert_eq!(owed, 0, "{client} does not hear {:?}", listener.due);
        }
        let total: usize = self.world.listeners.borrow().values().map(|listener| listener.held.len()).sum();
        assert_eq!(self.registry.subscriptions(), total);
        while !self.clients().is_empty() {
            self.leave();
        }
        self.settle();
        let lines = self.world.lines.borrow();
        assert!(lines.values().all(|line| line.server.dirt().is_none()), "nothing is subscribed for nobody");
        assert_eq!((self.registry.subscriptions(), self.registry.clients()), (0, 0));
        assert_eq!(self.registry.entries().count(), 0, "no name is left");
        assert!((0..SHARDS).all(|shard| self.registry.names_at(shard) == 0));
    }
}

#[test]
fn each_client_gets_its_messages_in_any_order_of_events() {
    let one = std::env::var("WEIR_SEED").ok().and_then(|text| text.parse().ok());
    let seeds = std::env::var("WEIR_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    for seed in one.map_or(0..seeds, |seed| seed..seed + 1) {
        let _told = ReportSeed(seed);
        let mut run = Run { rng: Rng::new(seed), registry: Registry::default(), world: World::default(), messages: 0 };
        run.world.version.set(seed % 2 == 0);
        run.world.has_losses.set(seed % 3 == 0);
        for _ in 0..300 {
            run.step();
        }
        run.end();
    }
}

/// Says which seed has failed.
struct ReportSeed(u64);

impl Drop for ReportSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("run it again: WEIR_SEED={} cargo test -p weir-redis pubsub", self.0);
        }
    }
}

fn one_client(kind: Kind, names: &[&str]) -> Run {
    let mut run = Run { rng: Rng::new(1), registry: Registry::default(), world: World::default(), messages: 0 };
    run.world.version.set(true);
    let client = run.registry.join();
    run.world.listeners.borrow_mut().insert(client, Listener::default());
    let names: Vec<Name> = names.iter().map(|name| name.as_bytes().into()).collect();
    run.world.with(client, |listener| {
        listener.pending = Some(PendingCommand::Subscribe(kind, names.iter().cloned().collect()))
    });
    run.registry.subscribe(client, kind, &names, &run.world);
    run.settle();
    run
}

#[test]
fn resubscriptions_go_in_pieces() {
    let names: Vec<String> = (0..3_000).map(|number| format!("channel:{number}")).collect();
    let mut run = one_client(Kind::Channel, &names.iter().map(String::as_str).collect::<Vec<_>>());
    run.world.lines.borrow_mut().remove(&0);
    run.registry.closed(0, &run.world);
    assert_eq!(run.world.gaps.get(), 1);
    run.world.connect_one(&mut run.registry);
    let unsent = run.world.lines.borrow()[&0].unsent.len();
    assert!(unsent < 1024 * 40, "{unsent} bytes at once");
    run.settle();
    for number in [0, 255, 256, 2_999] {
        assert!(run.world.lines.borrow()[&0].server.hears(names[number].as_bytes()), "{number}");
    }
}

#[test]
fn a_silent_server_is_pinged_and_a_late_one_is_closed() {
    struct Closing(World, Cell<Option<(u16, bool)>>);
    impl RegistryIo for Closing {
        fn now(&self) -> Time {
            self.0.now()
        }
        fn place(&self, kind: Kind, name: &[u8]) -> At {
            self.0.place(kind, name)
        }
        fn write(&self, shard: u16, bytes: &[u8]) {
            self.0.write(shard, bytes);
        }
        fn connect(&self, shard: u16) {
            self.0.connect(shard);
        }
        fn close(&self, shard: u16, is_late: bool) {
            self.1.set(Some((shard, is_late)));
        }
        fn is_redirection(&self, _: u16, _: &[u8]) -> bool {
            false
        }
        fn count_gap(&self, _: u16, _: usize) {}
        fn message(&self, _: usize, _: &[u8]) {}
        fn message_too_large(&self, _: usize) {}
        fn subscribed(&self, _: usize) {}
        fn unsubscribed(&self, _: usize) {}
        fn refused(&self, _: usize, _: &[u8]) {}
        fn published(&self, _: usize, _: Option<&[u8]>) {}
        fn lost(&self, _: usize) {}
    }
    let Run { mut registry, world, .. } = one_client(Kind::Channel, &["a"]);
    let io = Closing(world, Cell::new(None));
    let seconds = Duration::from_secs;
    let patience = Patience { connection: seconds(1), reply: seconds(5), silence: seconds(5), unused: seconds(10) };
    let look = |registry: &mut Registry, at: u64| {
        io.0.now.set(at * 1_000_000_000);
        registry.look(patience, b"-ERR late\r\n", &io);
        io.1.take()
    };
    assert_eq!(look(&mut registry, 5), None);
    assert!(io.0.lines.borrow()[&0].unsent.is_empty());
    assert_eq!(look(&mut registry, 6), None);
    assert!(io.0.lines.borrow()[&0].unsent.ends_with(b"PING\r\n"), "is it there?");
    assert_eq!(look(&mut registry, 10), None);
    assert_eq!(look(&mut registry, 12), Some((0, true)), "it is not");
    // A lane that replies, and that no client needs any more.
    io.0.execute(0);
    let reply: Vec<u8> =
        io.0.lines.borrow_mut().get_mut(&0).map(|line| line.outbox.drain(..).collect()).unwrap_or_default();
    registry.receive(0, &reply, &io).expect("PONG");
    registry.leave(0, &io);
    io.0.execute(0);
    let reply: Vec<u8> =
        io.0.lines.borrow_mut().get_mut(&0).map(|line| line.outbox.drain(..).collect()).unwrap_or_default();
    registry.receive(0, &reply, &io).expect("a confirmation");
    assert_eq!(look(&mut registry, 13), None);
    assert_eq!(look(&mut registry, 24), Some((0, false)));
}

#[test]
fn an_unexpected_reply_ends_the_lane() {
    for wrong in ["+OK\r\n", "-ERR no\r\n", ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n", ":1\r\n"] {
        let mut run = one_client(Kind::Channel, &["a"]);
        let violation = run.registry.receive(0, wrong.as_bytes(), &run.world).expect_err(wrong);
        assert_eq!(violation.reason, "unsolicited_reply");
    }
    // Bytes that are no reply do no harm.
    let mut run = one_client(Kind::Channel, &["a"]);
    for fine in [">2\r\n$10\r\ninvalidate\r\n*0\r\n", ">3\r\n$7\r\nmessage\r\n$1\r\nz\r\n$1\r\n1\r\n"] {
        run.registry.receive(0, fine.as_bytes(), &run.world).expect(fine);
    }
}

#[test]
fn a_frame_is_held_up_to_its_limit() {
    struct Counting(Cell<u64>);
    impl RegistryIo for Counting {
        fn now(&self) -> Time {
            Time::ZERO
        }
        fn place(&self, _: Kind, _: &[u8]) -> At {
            At::One(0)
        }
        fn write(&self, _: u16, _: &[u8]) {}
        fn connect(&self, _: u16) {}
        fn close(&self, _: u16, _: bool) {}
        fn is_redirection(&self, _: u16, _: &[u8]) -> bool {
            false
        }
        fn count_gap(&self, _: u16, _: usize) {}
        fn message(&self, _: usize, _: &[u8]) {
            panic!("it is too large");
        }
        fn message_too_large(&self, _: usize) {
            self.0.set(self.0.get() + 1);
        }
        fn subscribed(&self, _: usize) {}
        fn unsubscribed(&self, _: usize) {}
        fn refused(&self, _: usize, _: &[u8]) {}
        fn published(&self, _: usize, _: Option<&[u8]>) {}
        fn lost(&self, _: usize) {}
    }
    let Run { mut registry, .. } = one_client(Kind::Channel, &["a"]);
    let io = Counting(Cell::new(0));
    let length = FRAME_BYTES_MAX + (1 << 20);
    registry.receive(0, format!(">3\r\n$7\r\nmessage\r\n$1\r\na\r\n${length}\r\n").as_bytes(), &io).expect("a head");
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..length >> 20 {
        registry.receive(0, &piece, &io).expect("a piece");
    }
    registry.receive(0, b"\r\n>3\r\n$7\r\nmessage\r\n$1\r\nz\r\n$1\r\n1\r\n", &io).expect("the next frame");
    assert_eq!(io.0.get(), 1, "its subscriber is told once");
}
