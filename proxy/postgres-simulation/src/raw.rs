//! A client that sends any bytes.

use std::rc::Rc;

use weir_base::Time;
use weir_postgres_session::{
    Cleanliness, Next, Recovered, Recovery, ServerState, ServerStep, Session, SessionSettings, WorkerShare,
};

use crate::io::SimulatedIo;
use crate::server::ModelServer;

/// Rounds after which a recovery has ended.
const ROUNDS_MAX: u32 = 100;

/// One client, its server, and the bytes between them.
struct Raw {
    io: SimulatedIo,
    share: Rc<WorkerShare>,
    session: Session,
    state: ServerState,
    model: ModelServer,
    is_attached: bool,
    held: Vec<u8>,
}

/// The first byte chooses the size of pieces in both directions; the others are the client's. Whatever they are, nothing panics, and a server
/// that may serve others has nothing of this client.
pub fn run_raw(data: &[u8]) {
    let Some((&first, input)) = data.split_first() else { return };
    let share = Rc::new(WorkerShare::new());
    let settings = SessionSettings { message_bytes: 256, server_statements_max: 3, ..SessionSettings::default() };
    let mut raw = Raw {
        io: SimulatedIo::default(),
        session: Session::new([], Rc::new(settings), share.clone(), Time::ZERO),
        state: ServerState::new(ModelServer::reports(), None, &share),
        model: ModelServer::new(),
        share,
        is_attached: false,
        held: Vec::new(),
    };
    let piece = 1 + usize::from(first);
    let goes_on = input.chunks(piece).all(|bytes| {
        raw.held.extend_from_slice(bytes);
        raw.pump() && raw.turn(piece)
    });
    if raw.is_attached && goes_on {
        let recovery = raw.session.on_client_gone(&mut raw.state, None);
        raw.recover(recovery);
    }
}

impl Raw {
    /// False: the session is over.
    fn pump(&mut self) -> bool {
        loop {
            let state = self.is_attached.then_some(&mut self.state);
            let taken = self.session.on_client(&self.held, state, &self.io);
            assert!(taken.consumed <= self.held.len());
            self.held.drain(..taken.consumed);
            match taken.next {
                Next::More | Next::Wait => return true,
                Next::NeedServer(_) => {
                    assert!(!std::mem::replace(&mut self.is_attached, true), "it has a server");
                }
                Next::Release(cleanliness) => {
                    if !self.release(cleanliness) {
                        return false;
                    }
                }
                Next::Close(_) => return false,
            }
        }
    }

    /// The server processes what has come, and its replies go back. False: the session is over.
    fn turn(&mut self, piece: usize) -> bool {
        self.model.receive(&self.io.to_server.take());
        self.model.run();
        let output = self.model.take_output();
        for bytes in output.chunks(piece) {
            match self.session.on_server(bytes, &mut self.state, &self.io) {
                // A client that breaks the rules of COPY gets replies that belong to nothing: the server is closed.
                Err(_) | Ok(ServerStep::Close(_)) => return false,
                Ok(ServerStep::Continue) => {}
                Ok(ServerStep::Release(cleanliness)) => {
                    if !self.release(cleanliness) {
                        return false;
                    }
                    if cleanliness == Cleanliness::Dirty {
                        return self.pump();
                    }
                }
            }
            if !self.pump() {
                return false;
            }
        }
        true
    }

    /// False: the server is not used again.
    fn release(&mut self, cleanliness: Cleanliness) -> bool {
        self.is_attached = false;
        match cleanliness {
            // The model gets what it ignores before it is looked at.
            Cleanliness::Clean => {
                self.model.receive(&self.io.to_server.take());
                self.model.run();
                assert!(self.model.state().is_pristine(), "{:?}", self.model);
                true
            }
            Cleanliness::Dirty => self.recover(Recovery::new(None)),
            Cleanliness::Unusable => false,
        }
    }

    /// True: the server is clean.
    fn recover(&mut self, mut recovery: Recovery) -> bool {
        self.is_attached = false;
        let mut recovered = recovery.begin(&mut self.state, &self.share, &self.io);
        for _ in 0..ROUNDS_MAX {
            match recovered {
                Recovered::Clean => {
                    assert!(self.model.state().is_pristine(), "{:?}", self.model);
                    return true;
                }
                Recovered::Unusable => return false,
                Recovered::NotYet => {}
            }
            self.model.receive(&self.io.to_server.take());
            self.model.run();
            let output = self.model.take_output();
            recovered = recovery.on_server(&output, &mut self.state, &self.share, &self.io);
        }
        // The shell closes a server that says nothing any more.
        false
    }
}
