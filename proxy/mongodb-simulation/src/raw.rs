//! A client that sends any bytes, and a server that replies with any.

use std::sync::Arc;

use weir_base::secret::Secret;
use weir_mongodb_codec::frame::Framer;
use weir_mongodb_codec::message::Message;
use weir_mongodb_codec::reply::Reply;
use weir_mongodb_session::login::{LoginPolicy, Methods, Peer, TlsFacts};
use weir_mongodb_session::pins::{PinLimits, ServerId};
use weir_mongodb_session::{AfterRelay, AfterReply, Leave, Lost, Next, Refusal, Request, Session};

use crate::io::SimulatedIo;

/// The next message is that of the client, a reply of its server, or a server's reply to its login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Client,
    Reply,
    Relay,
}

/// One client and its server.
struct Raw {
    io: SimulatedIo,
    session: Session,
    turn: Turn,
    choice: u8,
}

/// The first byte chooses the logins of the listener. The messages of the input are those of the client while it may speak, and those of its
/// server while a reply is due. Whatever they are, nothing panics, a reply is a message, only a login opens the way to a server,
/// and nothing is pinned at the end.
pub fn run_raw(data: &[u8]) {
    let Some((&choice, mut input)) = data.split_first() else { return };
    let methods = match choice >> 1 & 3 {
        0 => Methods::default(),
        1 => Methods::RELAYED,
        _ => Methods::SCRAM_SHA_256.and(Methods::SCRAM_SHA_1).and(Methods::PLAIN).and(Methods::X509),
    };
    let policy = LoginPolicy { methods, mock_secret: Secret::from("secret"), ..LoginPolicy::open() };
    let tls = TlsFacts { subject: Some(b"CN=a"[..].into()) };
    let peer = Peer { connection_id: 1, address: "".into(), tls: Some(tls) };
    let session = Session::new(peer, Arc::new(policy), PinLimits::CONNECTION);
    let mut raw = Raw { io: SimulatedIo::new(), session, turn: Turn::Client, choice };
    let mut framer = Framer::default();
    while let Ok(Some(piece)) = framer.next(input) {
        if !piece.is_whole() {
            break;
        }
        let (message, rest) = input.split_at(piece.bytes);
        input = rest;
        let goes_on = match raw.turn {
            Turn::Client => raw.on_request(message),
            Turn::Reply => raw.on_reply(message),
            Turn::Relay => raw.on_relayed(message),
        };
        if !goes_on {
            break;
        }
        let _ = raw.session.cleanups();
    }
    if raw.session.on_gone(true, &raw.io) == Leave::Drain {
        raw.session.on_server_lost(false, &raw.io, &mut Vec::new());
    }
    raw.io.pins.borrow_mut().drain();
    assert!(raw.io.pins.borrow().is_empty());
}

impl Raw {
    /// False: the connection ends.
    fn on_request(&mut self, message: &[u8]) -> bool {
        let Ok(request) = Request::read(message) else { return false };
        let mut out = Vec::new();
        let next = self.session.on_request(&request, &self.io, &mut out);
        match next {
            Next::Replied => {}
            Next::Take(_) if self.choice & 1 == 1 => {
                self.session.on_no_server(&Refusal::overloaded("full"), &self.io, &mut out);
            }
            Next::Take(_) => {
                assert!(out.is_empty() && self.session.login().is_done());
                self.session.on_server(ServerId(u32::from(self.choice) % 3), &self.io);
                self.turn = if self.session.on_sent() { Turn::Client } else { Turn::Reply };
                return true;
            }
            Next::Relay(_) => {
                assert!(out.is_empty());
                self.turn = Turn::Relay;
                return true;
            }
            Next::Wait | Next::Derive(_) | Next::Close(_) => return false,
        }
        assert!(out.is_empty() == request.is_unacknowledged(), "one reply, if one is wanted");
        let reply = Framer::default().next(&out).expect("a message");
        assert!(reply.is_none_or(|piece| piece.is_whole() && piece.header.response_to == request.id));
        true
    }

    fn on_reply(&mut self, message: &[u8]) -> bool {
        let read = Message::read(message).ok().and_then(|found| Some((found, Reply::read(found.body).ok()?)));
        let accepted = read.filter(|(found, _)| self.session.on_reply_head(&found.header).is_ok());
        let Some((found, reply)) = accepted else {
            self.turn = Turn::Client;
            return self.session.on_server_lost(false, &self.io, &mut Vec::new()) == Lost::Replied;
        };
        match self.session.on_reply(&found.header, found.flags, &reply, &self.io) {
            Ok(after) => {
                self.turn = if after == AfterReply::Stay { Turn::Reply } else { Turn::Client };
                true
            }
            Err(_) => false,
        }
    }

    fn on_relayed(&mut self, message: &[u8]) -> bool {
        self.turn = Turn::Client;
        let mut out = Vec::new();
        let read = Message::read(message).ok();
        let after = read.and_then(|found| self.session.on_relayed(found.body, &self.io, &mut out).ok());
        match after {
            Some(AfterRelay::LoggedIn) => assert!(self.session.login().is_done()),
            Some(AfterRelay::Pass) => assert!(!self.session.login().is_done()),
            Some(AfterRelay::Replied) => {}
            Some(AfterRelay::Close) => return false,
            None => self.session.on_relay_lost(&mut out),
        }
        true
    }
}
