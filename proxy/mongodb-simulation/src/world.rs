//! Drivers, sessions, connections to servers, and random events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use weir_base::{Rng, Time};
use weir_mongodb_codec::header::Header;
use weir_mongodb_codec::message::{self, Flags, Ids};
use weir_mongodb_codec::reply::{Labels, ReplyFollower};
use weir_mongodb_session::login::{LoginPolicy, Peer};
use weir_mongodb_session::pins::{Cleanup, PinLimits, ServerId};
use weir_mongodb_session::{AfterReply, Leave, Lost, Next, Refusal, Request, Session, Want};

use crate::driver::{Driver, Sent};
use crate::io::SimulatedIo;
use crate::server::ModelServer;

/// Connections of a driver.
const CONNECTIONS: usize = 3;

/// Counts of a run: one that compares nothing proves nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Batches whose tag was compared.
    pub compared: u64,
    /// Transactions that were committed.
    pub committed: u64,
    /// Clients that vanished.
    pub vanished: u64,
    /// Server connections that broke, and servers that started again.
    pub lost: u64,
    /// Cursors and transactions that the gateway has given back.
    pub cleaned: u64,
}

/// A client connection, from both ends.
#[derive(Debug)]
struct Connection {
    session: Session,
    driver: usize,
    /// Its number at the driver.
    number: usize,
    /// The request that has no reply, and its bytes until a server has them.
    sent: Option<Sent>,
    request: Vec<u8>,
    want: Option<Want>,
    /// A part of a reply has gone to the client.
    is_reply_begun: bool,
    is_gone: bool,
}

/// A server connection.
#[derive(Debug)]
struct Lane {
    server: usize,
    /// The client connection that has it.
    user: Option<usize>,
    /// Replies on their way.
    replies: VecDeque<Vec<u8>>,
}

/// All together.
#[derive(Debug)]
pub struct World {
    rng: Rng,
    io: SimulatedIo,
    servers: Vec<ModelServer>,
    last_server: u32,
    drivers: Vec<Driver>,
    connections: Vec<Connection>,
    lanes: Vec<Lane>,
    cleanups: VecDeque<Cleanup>,
    /// Nothing is ever lost, and time stands still.
    is_calm: bool,
    counts: Counts,
}

impl World {
    /// So many drivers and servers. In a calm world nothing may fail.
    #[must_use]
    pub fn new(seed: u64, drivers: u8, servers: u32, is_calm: bool) -> World {
        let mut world = World {
            rng: Rng::new(seed),
            io: SimulatedIo::new(),
            servers: (0..servers).map(|id| ModelServer::new(ServerId(id))).collect(),
            last_server: servers,
            drivers: (0..drivers).map(Driver::new).collect(),
            connections: Vec::new(),
            lanes: Vec::new(),
            cleanups: VecDeque::new(),
            is_calm,
            counts: Counts::default(),
        };
        for driver in 0..usize::from(drivers) {
            for number in 0..CONNECTIONS {
                let connection = world.connect(driver, number);
                world.connections.push(connection);
            }
        }
        world
    }

    fn connect(&mut self, driver: usize, number: usize) -> Connection {
        let peer = Peer { connection_id: 1, address: "".into(), tls: None };
        let mut session = Session::new(peer, Arc::new(LoginPolicy::open()), PinLimits::CONNECTION);
        let (mut hello, mut out) = (Vec::new(), Vec::new());
        message::write(&mut hello, Ids { request: 1, response_to: 0 }, Flags::empty(), |body| {
            body.int32("hello", 1);
            body.bool("loadBalanced", self.drivers[driver].is_balanced);
            body.string("$db", "admin");
        });
        let next = session.on_request(&Request::read(&hello).expect("a request"), &self.io, &mut out);
        assert!(matches!(next, Next::Replied) && !out.is_empty());
        Connection {
            session,
            driver,
            number,
            sent: None,
            request: Vec::new(),
            want: None,
            is_reply_begun: false,
            is_gone: false,
        }
    }

    /// Random events, then everybody leaves.
    pub fn run(&mut self, events: u32) -> Counts {
        for _ in 0..events {
            self.event();
        }
        self.end();
        for driver in &self.drivers {
            self.counts.compared += driver.compared;
            self.counts.committed += driver.committed;
        }
        self.counts
    }

    fn event(&mut self) {
        let connection = self.rng.below(self.connections.len() as u64) as usize;
        match self.rng.below(1_000) {
            0..=3 => self.vanish(connection),
            4..=6 if !self.is_calm => self.break_lane(),
            7 if !self.is_calm => self.restart(),
            8..=20 if !self.is_calm => self.pass_time(),
            21..=200 => self.clean(),
            201..=400 => self.reply(),
            _ if self.connections[connection].want.is_some() => self.attach(connection),
            _ if self.connections[connection].sent.is_none() => self.send(connection),
            _ => self.reply(),
        }
        self.take_cleanups(connection);
    }

    fn take_cleanups(&mut self, connection: usize) {
        let cleanups = self.connections[connection].session.cleanups();
        self.cleanups.extend(cleanups);
    }

    fn send(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        if connection.is_gone {
            return;
        }
        let driver = &mut self.drivers[connection.driver];
        let (bytes, sent) = driver.next(connection.number, &mut self.rng);
        let mut out = Vec::new();
        let request = Request::read(&bytes).expect("a request");
        match connection.session.on_request(&request, &self.io, &mut out) {
            Next::Replied if request.is_unacknowledged() => assert!(out.is_empty(), "L2"),
            Next::Replied => driver.on_reply(sent, &out, connection.number, self.is_calm),
            Next::Take(want) => {
                assert!(out.is_empty());
                connection.sent = Some(sent);
                connection.want = Some(want);
                connection.request = bytes;
                connection.is_reply_begun = false;
            }
            next => panic!("{next:?}"),
        }
        self.take_cleanups(at);
    }

    /// A server for a client that wants one.
    fn attach(&mut self, at: usize) {
        let Some(want) = self.connections[at].want.take() else { return };
        let server = match want {
            Want::Any(_) => self.rng.below(self.servers.len() as u64) as usize,
            Want::Server(id) => match self.servers.iter().position(|server| server.id == id) {
                Some(server) => server,
                None => return self.refuse(at),
            },
        };
        let lane = match self.lanes.iter().position(|lane| lane.user.is_none() && lane.server == server) {
            Some(lane) => lane,
            None => {
                self.lanes.push(Lane { server, user: None, replies: VecDeque::new() });
                self.lanes.len() - 1
            }
        };
        assert!(self.lanes[lane].replies.is_empty(), "a connection that is given back owes nothing");
        let connection = &mut self.connections[at];
        connection.session.on_server(self.servers[server].id, &self.io);
        let request = std::mem::take(&mut connection.request);
        let replies = self.servers[server].on_request(&request);
        if connection.session.on_sent() {
            assert!(replies.is_empty());
            connection.sent = None;
        } else {
            self.lanes[lane].user = Some(at);
            self.lanes[lane].replies = replies.into();
        }
        self.take_cleanups(at);
    }

    fn refuse(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        let mut out = Vec::new();
        connection.session.on_no_server(&Refusal::host_unreachable(Labels::empty()), &self.io, &mut out);
        let sent = connection.sent.take().expect("a request");
        match sent {
            Sent::Unacknowledged => assert!(out.is_empty()),
            _ => self.drivers[connection.driver].on_reply(sent, &out, connection.number, self.is_calm),
        }
        self.take_cleanups(at);
    }

    /// The next reply of a server, in pieces.
    fn reply(&mut self) {
        let busy: Vec<usize> = (0..self.lanes.len()).filter(|lane| !self.lanes[*lane].replies.is_empty()).collect();
        if busy.is_empty() {
            return;
        }
        let lane = busy[self.rng.below(busy.len() as u64) as usize];
        let bytes = self.lanes[lane].replies.pop_front().expect("a reply");
        let at = self.lanes[lane].user.expect("a client");
        let header = Header::read(&bytes).expect("a header").expect("whole");
        let mut follower = ReplyFollower::new(&header);
        let piece = 1 + self.rng.below(40) as usize;
        bytes.chunks(piece).for_each(|piece| follower.take(piece).expect("a reply"));
        let (flags, reply) = follower.reply().expect("whole");

        let connection = &mut self.connections[at];
        connection.session.on_reply_head(&header).expect("the reply to its request");
        let after = connection.session.on_reply(&header, flags, &reply, &self.io).expect("a reply");
        let sent = connection.sent.expect("a request");
        if !connection.is_gone {
            self.drivers[connection.driver].on_reply(sent, &bytes, connection.number, self.is_calm);
        }
        match after {
            AfterReply::Stay => connection.is_reply_begun = true,
            AfterReply::Return => {
                assert!(self.lanes[lane].replies.is_empty(), "a stream goes on");
                self.lanes[lane].user = None;
                connection.sent = None;
                if connection.is_gone {
                    self.replace(at);
                }
            }
        }
        self.take_cleanups(at);
    }

    fn vanish(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        if connection.is_gone {
            return;
        }
        self.counts.vanished += 1;
        connection.is_gone = true;
        connection.want = None;
        self.drivers[connection.driver].on_closed(connection.number);
        let leave = connection.session.on_gone(true, &self.io);
        let lane = self.lanes.iter().position(|lane| lane.user == Some(at));
        match leave {
            Leave::Nothing => assert!(lane.is_none()),
            Leave::Drain => assert!(lane.is_some()),
            Leave::Close => drop(self.lanes.swap_remove(lane.expect("a connection"))),
        }
        if leave != Leave::Drain {
            self.replace(at);
        }
    }

    /// The driver connects again.
    fn replace(&mut self, at: usize) {
        self.take_cleanups(at);
        assert!(self.connections[at].session.cleanups().is_empty());
        let (driver, number) = (self.connections[at].driver, self.connections[at].number);
        self.connections[at] = self.connect(driver, number);
    }

    fn break_lane(&mut self) {
        let busy: Vec<usize> = (0..self.lanes.len()).filter(|lane| self.lanes[*lane].user.is_some()).collect();
        if !busy.is_empty() {
            let lane = busy[self.rng.below(busy.len() as u64) as usize];
            self.lose(lane);
        }
    }

    fn lose(&mut self, lane: usize) {
        self.counts.lost += 1;
        let Lane { server, user, replies } = self.lanes.swap_remove(lane);
        replies.iter().for_each(|reply| self.servers[server].reap(reply));
        let Some(at) = user else { return };
        let connection = &mut self.connections[at];
        let mut out = Vec::new();
        let lost = connection.session.on_server_lost(connection.is_reply_begun, &self.io, &mut out);
        let sent = connection.sent.take().expect("a request");
        match lost {
            _ if connection.is_gone => self.replace(at),
            Lost::Replied => self.drivers[connection.driver].on_reply(sent, &out, connection.number, self.is_calm),
            Lost::Close => self.vanish(at),
        }
        self.take_cleanups(at);
    }

    /// A server starts again, and has lost everything.
    fn restart(&mut self) {
        let server = self.rng.below(self.servers.len() as u64) as usize;
        while let Some(lane) = self.lanes.iter().position(|lane| lane.server == server) {
            self.lose(lane);
        }
        let old = self.servers[server].id;
        self.servers[server] = ModelServer::new(ServerId(self.last_server));
        self.last_server += 1;
        self.io.pins.borrow_mut().on_server_lost(old);
        self.connections.iter_mut().for_each(|connection| connection.session.on_server_gone(old));
    }

    fn pass_time(&mut self) {
        let now = self.io.now.get().saturating_add(Duration::from_secs(1 + self.rng.below(4)));
        self.expire(now);
    }

    fn expire(&mut self, now: Time) {
        self.io.now.set(now);
        let cleanups = self.io.pins.borrow_mut().expire(now);
        self.cleanups.extend(cleanups);
        for at in 0..self.connections.len() {
            self.connections[at].session.expire_pins(now);
            self.take_cleanups(at);
        }
    }

    /// The gateway's own commands, whenever a connection is free.
    fn clean(&mut self) {
        let Some(cleanup) = self.cleanups.pop_front() else { return };
        self.counts.cleaned += 1;
        // Otherwise the server is gone with everything.
        if let Some(server) = self.servers.iter_mut().find(|server| server.id == cleanup.server()) {
            let mut bytes = Vec::new();
            cleanup.write(&mut bytes, 1);
            assert_eq!(server.on_request(&bytes).len(), 1);
        }
    }

    /// Everybody leaves, and every time is over: nothing is left anywhere.
    fn end(&mut self) {
        for at in 0..self.connections.len() {
            if !self.connections[at].is_gone {
                self.vanish(at);
            }
        }
        while self.lanes.iter().any(|lane| !lane.replies.is_empty()) {
            self.reply();
        }
        self.expire(self.io.now.get().saturating_add(Duration::from_secs(3_600)));
        while !self.cleanups.is_empty() {
            self.clean();
        }
        assert!(self.io.pins.borrow().is_empty());
        for server in &self.servers {
            assert_eq!(server.held(), (0, 0), "cursors and transactions without a client");
        }
    }
}
