//! One client, a primary and its standby: what only reads may go to the standby, and nothing else does.

use std::rc::Rc;

use weir_base::{Rng, Time};
use weir_postgres_codec::{frame, frontend, frontend::tag};
use weir_postgres_session::position::{Positions, may_serve};
use weir_postgres_session::{
    Access, Cleanliness, End, Next, ServerState, ServerStep, Session, SessionSettings, WorkerShare,
};

use super::scene::tags;
use crate::io::SimulatedIo;
use crate::server::ModelServer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Primary,
    Standby,
}

struct Server {
    model: ModelServer,
    state: ServerState,
    /// Texts that it has got.
    texts: Vec<String>,
}

/// The client with what it sees, and the position of each server.
struct Split {
    io: SimulatedIo,
    session: Session,
    servers: [Server; 2],
    place: Option<Place>,
    held: Vec<u8>,
    /// Writes at the primary, at the standby, and those that the client has made.
    written: u64,
    replayed: u64,
    own: u64,
    wrote_at: Option<Time>,
    positions: Positions,
    /// A look at the primary that is under way.
    look: Option<Time>,
    accesses: Vec<Access>,
    reads: [u32; 2],
    has_standby: bool,
}

fn is_write(text: &str) -> bool {
    text.contains("INSERT") || text.contains("write_it")
}

impl Split {
    fn new() -> Self {
        let share = Rc::new(WorkerShare::new());
        let settings = Rc::new(SessionSettings { splits_reads: true, ..SessionSettings::default() });
        let server = || Server {
            model: ModelServer::new(),
            state: ServerState::new(ModelServer::reports(), None, &share),
            texts: Vec::new(),
        };
        Self {
            io: SimulatedIo::default(),
            session: Session::new([], settings, share.clone(), Time::ZERO),
            servers: [server(), server()],
            place: None,
            held: Vec::new(),
            written: 0,
            replayed: 0,
            own: 0,
            wrote_at: None,
            positions: Positions::default(),
            look: None,
            accesses: Vec::new(),
            reads: [0; 2],
            has_standby: true,
        }
    }

    fn tick(&self) -> Time {
        let now = Time::from_nanos(self.io.now.get().as_nanos() + 1);
        self.io.now.set(now);
        now
    }

    fn choose(&mut self, access: Access) -> Place {
        self.accesses.push(access);
        let seen = self.positions.seen_by(self.replayed);
        let place = match access {
            Access::Write | Access::Neutral => Place::Primary,
            Access::Read if may_serve(seen, self.wrote_at, None, self.tick()) => Place::Standby,
            Access::Read => Place::Primary,
            Access::ReadStandby if self.has_standby => Place::Standby,
            Access::ReadStandby => Place::Primary,
            Access::Standby => Place::Standby,
        };
        if access == Access::Read {
            self.reads[place as usize] += 1;
            let is_behind = place == Place::Standby && self.replayed < self.own;
            assert!(!is_behind, "the client reads at {}, and wrote at {}", self.replayed, self.own);
        }
        place
    }

    fn send(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        self.pump();
    }

    fn pump(&mut self) {
        loop {
            let state = self.place.map(|place| &mut self.servers[place as usize].state);
            let taken = self.session.on_client(&self.held, state, &self.io);
            self.held.drain(..taken.consumed);
            match taken.next {
                Next::NeedServer(want) => {
                    assert!(self.place.is_none(), "it has a server");
                    self.place = Some(self.choose(want.access));
                }
                Next::Release(cleanliness) => self.release(cleanliness),
                Next::More | Next::Wait => return,
                Next::Close(end) => panic!("{end:?}"),
            }
        }
    }

    fn release(&mut self, cleanliness: Cleanliness) {
        assert_eq!(cleanliness, Cleanliness::Clean);
        self.place = None;
        if self.session.has_written() {
            self.wrote_at = Some(self.tick());
        }
    }

    /// The server that the client has gets what was sent; true: something was.
    fn serve(&mut self) -> bool {
        let input = self.io.to_server.take();
        let Some(place) = self.place.filter(|_| !input.is_empty()) else { return false };
        let server = &mut self.servers[place as usize];
        for text in texts(&input) {
            if place == Place::Primary && is_write(&text) {
                self.written += 1;
                self.own = self.written;
            }
            server.texts.push(text);
        }
        server.model.receive(&input);
        server.model.run();
        let output = server.model.take_output();
        self.tick();
        let step = self.session.on_server(&output, &mut self.servers[place as usize].state, &self.io);
        match step.expect("the model keeps to the protocol") {
            ServerStep::Continue => {}
            ServerStep::Release(cleanliness) => self.release(cleanliness),
            ServerStep::Close(end) => panic!("{end:?}"),
        }
        self.pump();
        true
    }

    /// Everything sent gets its replies.
    fn turn(&mut self) -> Vec<u8> {
        while self.serve() {}
        self.io.to_client.take()
    }

    fn ask(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.send(bytes);
        self.turn()
    }

    /// A whole look at the primary, and all of its writes at the standby.
    fn catch_up(&mut self) {
        let at = self.tick();
        self.positions.note(at, self.written);
        self.replayed = self.written;
    }

    fn standby(&self) -> &[String] {
        &self.servers[Place::Standby as usize].texts
    }
}

/// Texts of Query and Parse.
fn texts(mut bytes: &[u8]) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(head) = frame::head(bytes).expect("lengths are right") {
        let body = &bytes[frame::HEAD_BYTES..head.whole()];
        let text = match head.tag {
            tag::QUERY => frontend::Query::read(body).expect("a query").text,
            tag::PARSE => frontend::Parse::read(body).expect("a parse").text,
            _ => b"",
        };
        texts.extend((!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned()));
        bytes = &bytes[head.whole()..];
    }
    texts
}

fn query(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::query(&mut out, text.as_bytes());
    out
}

/// A batch that prepares and runs each of these texts.
fn batch(all: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    for text in all {
        frontend::parse(&mut out, b"", text.as_bytes(), &[]);
        frontend::bind(&mut out, b"", b"", []);
        frontend::execute(&mut out, b"", 0);
    }
    frontend::sync(&mut out);
    out
}

#[test]
fn a_read_goes_to_the_standby_and_a_write_to_the_primary() {
    let mut split = Split::new();
    split.catch_up();
    assert_eq!(tags(&split.ask(&query("SELECT 'a'"))), "TDCZ");
    split.ask(&query("INSERT INTO t VALUES (1)"));
    split.ask(&batch(&["SELECT 'b'"]));
    assert_eq!(split.accesses, [Access::Read, Access::Write, Access::Read]);
    assert_eq!(split.standby(), ["SELECT 'a'"], "the standby lacks the write");
    split.catch_up();
    split.ask(&batch(&["SELECT 'c'"]));
    assert_eq!(split.standby(), ["SELECT 'a'", "SELECT 'c'"]);
}

#[test]
fn only_what_provably_reads_goes_to_the_standby() {
    for (text, access) in [
        ("SELECT count(*), lower(name), now() FROM t", Access::Read),
        ("WITH a AS (SELECT 1) SELECT * FROM a", Access::Read),
        ("VALUES (1)", Access::Read),
        ("BEGIN READ ONLY", Access::Read),
        ("START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", Access::Read),
        ("SELECT 1; SELECT 2", Access::Read),
        ("COPY t TO STDOUT", Access::Read),
        ("/* weir: role=primary */ SELECT 1", Access::Neutral),
        ("SELECT 1 /* weir: role=primary */", Access::Neutral),
        ("/* weir: role=replica */ SELECT my_function()", Access::Standby),
        ("SHOW search_path", Access::Neutral),
        ("SET app.x = '1'", Access::Neutral),
        ("BEGIN", Access::Write),
        ("SELECT my_function()", Access::Write),
        ("SELECT public.lower('A')", Access::Write),
        ("SELECT nextval('s')", Access::Write),
        ("SELECT * FROM t FOR UPDATE", Access::Write),
        ("SELECT 1 INTO t2", Access::Write),
        ("SELECT 1; INSERT INTO t VALUES (1)", Access::Write),
        ("WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a", Access::Write),
        ("EXPLAIN ANALYZE INSERT INTO t VALUES (1)", Access::Write),
        ("COPY t FROM STDIN", Access::Write),
        ("SELECT pg_advisory_lock(1)", Access::Write),
        ("DO $$ begin end $$", Access::Write),
        ("SELECT 'a", Access::Write),
    ] {
        for bytes in [query(text), batch(&[text])] {
            let mut split = Split::new();
            split.send(&bytes);
            assert_eq!(split.accesses, [access], "{text}");
        }
    }
}

#[test]
fn a_setting_of_the_session_chooses() {
    for (setting, text, access) in [
        ("SET weir.role = 'primary'", "SELECT 'a'", Access::Neutral),
        ("SET weir.role = 'replica'", "SELECT my_function()", Access::Standby),
        ("SET weir.role = 'replica'", "SELECT 'a'", Access::ReadStandby),
        ("SET weir.role = 'replica'", "SET weir.role = 'auto'", Access::ReadStandby),
        ("SET weir.role = 'replica'", "SHOW search_path", Access::ReadStandby),
        ("SET weir.role = 'replica'", "DELETE FROM t", Access::Standby),
        ("SET weir.role = 'replica'", "BEGIN", Access::Standby),
        ("SET weir.role = 'replica'", "BEGIN READ ONLY", Access::Standby),
        ("SET weir.role = 'replica'", "DECLARE c CURSOR WITH HOLD FOR SELECT 1", Access::Standby),
        ("SET weir.role = 'replica'", "SELECT pg_advisory_lock(1)", Access::Standby),
        ("SET weir.role TO auto", "SELECT 'a'", Access::Read),
    ] {
        let mut split = Split::new();
        split.ask(&query(setting));
        split.send(&query(text));
        assert_eq!(split.accesses.last(), Some(&access), "{setting}");
    }
}

#[test]
fn a_session_that_wishes_for_a_standby_writes_nothing_at_the_primary_while_there_is_none() {
    let units = [
        query("SELECT 'a'"),
        query("SET app.x = '1'"),
        query("INSERT INTO t VALUES (1)"),
        batch(&["SELECT 'b'"]),
        batch(&["INSERT INTO t VALUES (2)"]),
        batch(&["SELECT 'c'", "SELECT write_it()"]),
        [query("BEGIN"), query("INSERT INTO t VALUES (3)"), query("ROLLBACK")].concat(),
    ];
    for seed in 0..64 {
        let (mut rng, mut split) = (Rng::new(seed), Split::new());
        split.ask(&query("SET weir.role = 'replica'"));
        split.has_standby = false;
        for _ in 0..100 {
            match rng.below(3) {
                0 => split.send(&units[rng.below(units.len() as u64) as usize]),
                _ => drop(split.serve()),
            }
        }
        split.turn();
        assert_eq!(split.written, 0, "seed {seed}");
    }
}

#[test]
fn a_session_leaves_a_server_that_was_replaced_between_two_transactions_alone() {
    let mut split = Split::new();
    let leave = |split: &mut Split| {
        let state = &split.servers[Place::Primary as usize].state;
        split.session.on_replaced(state, &split.io)
    };
    split.ask(&query("DECLARE c CURSOR WITH HOLD FOR SELECT 1"));
    assert_eq!(split.place, Some(Place::Primary), "the cursor keeps it");
    split.ask(&query("BEGIN"));
    assert_eq!(leave(&mut split), None, "within a transaction");
    split.send(&query("COMMIT"));
    assert_eq!(leave(&mut split), None, "a reply is due");
    split.turn();
    split.send(&batch(&["SELECT 'a'"])[..10]);
    split.turn();
    let end = leave(&mut split);
    assert_eq!((end, tags(&split.io.to_client.take())), (Some(End::Refused("57P01")), "E".to_owned()));
}

#[test]
fn a_batch_counts_as_one_and_one_that_is_not_there_as_a_whole_goes_to_the_primary() {
    let mut split = Split::new();
    split.send(&batch(&["SELECT 'a'", "INSERT INTO t VALUES (1)"]));
    let whole = batch(&["SELECT 'a'"]);
    let mut halved = Split::new();
    halved.send(&whole[..whole.len() - 1]);
    assert_eq!((&split.accesses[..], &halved.accesses[..]), (&[Access::Write][..], &[Access::Write][..]));
}

#[test]
fn whatever_a_client_pipelines_no_write_reaches_a_standby_and_it_reads_its_own() {
    let units: [(Vec<u8>, usize); 11] = [
        (query("SELECT 'a'"), 1),
        (query("SELECT 'b'; SELECT 'c'"), 1),
        (query("INSERT INTO t VALUES (1)"), 1),
        (query("SELECT write_it()"), 1),
        ([query("BEGIN"), query("SELECT 'd'"), query("INSERT INTO t VALUES (2)"), query("ROLLBACK")].concat(), 4),
        ([query("BEGIN READ ONLY"), query("SELECT 'e'"), query("COMMIT")].concat(), 3),
        (query("SET app.x = '1'"), 1),
        (batch(&["SELECT 'f'"]), 1),
        (batch(&["INSERT INTO t VALUES (3)"]), 1),
        (batch(&["SELECT 'g'", "SELECT write_it()"]), 1),
        (batch(&["SELECT 'h'", "SELECT 'i'"]), 1),
    ];
    let mut reads = [0; 2];
    for seed in 0..256 {
        let (mut rng, mut split) = (Rng::new(seed), Split::new());
        let (mut expected, mut received) = (0, 0);
        for _ in 0..400 {
            match rng.below(14) {
                0..=2 => {
                    let (bytes, replies) = &units[rng.below(units.len() as u64) as usize];
                    expected += replies;
                    split.send(bytes);
                }
                3..=6 => drop(split.serve()),
                7 | 8 => split.look = Some(split.look.unwrap_or_else(|| split.tick())),
                9 | 10 => {
                    if let Some(at) = split.look.take() {
                        split.positions.note(at, split.written);
                    }
                }
                11 => split.replayed += rng.below(split.written - split.replayed + 1),
                _ => split.replayed = split.written,
            }
            received += tags(&split.io.to_client.take()).matches('Z').count();
        }
        received += tags(&split.turn()).matches('Z').count();
        assert_eq!(received, expected, "seed {seed}");
        let wrong = split.standby().iter().find(|text| is_write(text) || *text == "BEGIN");
        assert_eq!(wrong, None, "seed {seed}");
        reads = [reads[0] + split.reads[0], reads[1] + split.reads[1]];
    }
    assert!(reads.iter().all(|count| *count > 500), "both serve reads: {reads:?}");
}
