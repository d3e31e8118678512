//! One client, one server, step by step.

use std::rc::Rc;
use std::time::Duration;

use weir_base::Time;
use weir_postgres_session::{
    Cleanliness, Next, Recovered, Recovery, Refusal, ServerState, ServerStep, Session, SessionSettings, WorkerShare,
};

use crate::io::SimulatedIo;
use crate::server::ModelServer;

/// A client, and the server that it gets.
pub(super) struct Scene {
    pub(super) io: SimulatedIo,
    pub(super) share: Rc<WorkerShare>,
    pub(super) settings: Rc<SessionSettings>,
    pub(super) session: Session,
    pub(super) model: ModelServer,
    pub(super) state: ServerState,
    pub(super) is_attached: bool,
    /// How the server was left, each time.
    pub(super) releases: Vec<Cleanliness>,
    held: Vec<u8>,
}

impl Scene {
    pub(super) fn new(settings: SessionSettings, parameters: &[(&[u8], &[u8])]) -> Self {
        let share = Rc::new(WorkerShare::new());
        let settings = Rc::new(settings);
        Self {
            io: SimulatedIo::default(),
            session: Session::new(parameters.iter().copied(), settings.clone(), share.clone(), Time::ZERO)
                .with_pool("pool"),
            model: ModelServer::new(),
            state: ServerState::new(ModelServer::reports(), None, &share),
            is_attached: false,
            releases: Vec::new(),
            held: Vec::new(),
            share,
            settings,
        }
    }

    /// Another client takes the place of the first, which is returned. The server stays as it is.
    pub(super) fn next_client(&mut self, parameters: &[(&[u8], &[u8])]) -> Session {
        assert!(!self.is_attached, "the first still has the server");
        self.held.clear();
        let next =
            Session::new(parameters.iter().copied(), self.settings.clone(), self.share.clone(), self.io.now.get());
        std::mem::replace(&mut self.session, next.with_pool("pool"))
    }

    /// The pool has another server for the next message.
    pub(super) fn exchange_server(&mut self) {
        assert!(!self.is_attached, "a client has the server");
        self.model = ModelServer::new();
        self.state = ServerState::new(ModelServer::reports(), None, &self.share);
    }

    /// The server moves to another worker, which has nothing of this one.
    pub(super) fn move_to_worker(&mut self) {
        assert!(!self.is_attached, "a client has the server");
        self.share = Rc::new(WorkerShare::new());
        let there = ServerState::new(ModelServer::reports(), None, &self.share);
        let parcel = std::mem::replace(&mut self.state, there).pack().expect("it is clean");
        self.state = parcel.unpack(&self.share);
    }

    /// The client sends bytes; the server processes nothing yet.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Next {
        self.held.extend_from_slice(bytes);
        self.pump()
    }

    pub(super) fn pump(&mut self) -> Next {
        loop {
            let state = self.is_attached.then_some(&mut self.state);
            let taken = self.session.on_client(&self.held, state, &self.io);
            self.held.drain(..taken.consumed);
            match taken.next {
                Next::NeedServer(_) if !self.is_attached => self.is_attached = true,
                Next::Release(cleanliness) => self.release(cleanliness),
                next => return next,
            }
        }
    }

    /// The client sends bytes without a server at hand.
    pub(super) fn send_unserved(&mut self, bytes: &[u8]) -> Next {
        self.held.extend_from_slice(bytes);
        let taken = self.session.on_client(&self.held, None, &self.io);
        self.held.drain(..taken.consumed);
        taken.next
    }

    pub(super) fn refuse(&mut self, refusal: Refusal) -> Next {
        let next = self.session.on_acquire_failed(refusal, &self.io);
        if next == Next::More {
            return self.send_unserved(b"");
        }
        next
    }

    /// Bytes that wait for the server.
    pub(super) fn to_server(&self) -> Vec<u8> {
        self.io.to_server.borrow().clone()
    }

    /// The server processes everything, and its replies come back in pieces of `piece` bytes.
    pub(super) fn turn(&mut self, piece: usize) -> Vec<u8> {
        for _ in 0..100 {
            let input = self.io.to_server.take();
            if input.is_empty() {
                break;
            }
            self.model.receive(&input);
            self.model.run();
            for piece in self.model.take_output().chunks(piece) {
                self.reply(piece);
            }
        }
        self.io.to_client.take()
    }

    /// The server processes what has been sent, and its replies come back at once; what they make the gateway send waits.
    pub(super) fn serve(&mut self) {
        self.model.receive(&self.io.to_server.take());
        self.model.run();
        let output = self.model.take_output();
        self.reply(&output);
    }

    pub(super) fn reply(&mut self, bytes: &[u8]) {
        match self.session.on_server(bytes, &mut self.state, &self.io).expect("the model keeps to the protocol") {
            ServerStep::Continue => {}
            ServerStep::Release(cleanliness) => self.release(cleanliness),
            ServerStep::Close(end) => panic!("{end:?}"),
        }
        self.pump();
    }

    fn release(&mut self, cleanliness: Cleanliness) {
        self.is_attached = false;
        self.releases.push(cleanliness);
        if cleanliness == Cleanliness::Dirty {
            self.recover(Recovery::new(None));
        }
    }

    /// Runs a recovery to its end.
    pub(super) fn recover(&mut self, mut recovery: Recovery) -> Recovered {
        self.is_attached = false;
        let mut recovered = recovery.begin(&mut self.state, &self.share, &self.io);
        for _ in 0..100 {
            if recovered != Recovered::NotYet {
                return recovered;
            }
            self.model.receive(&self.io.to_server.take());
            self.model.run();
            let output = self.model.take_output();
            recovered = recovery.on_server(&output, &mut self.state, &self.share, &self.io);
        }
        panic!("the recovery does not end: {recovery:?}, {:?}", self.state);
    }

    /// Sends, and returns what the client gets.
    pub(super) fn ask(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.send(bytes);
        self.turn(usize::MAX)
    }

    pub(super) fn advance(&self, time: Duration) {
        self.io.now.set(self.io.now.get().saturating_add(time));
    }
}

/// The type bytes of messages.
pub(super) fn tags(mut bytes: &[u8]) -> String {
    let mut tags = String::new();
    while let Some(head) = weir_postgres_codec::frame::head(bytes).expect("lengths are right") {
        tags.push(char::from(head.tag));
        bytes = &bytes[head.whole()..];
    }
    assert!(bytes.is_empty(), "half a message at the end");
    tags
}
