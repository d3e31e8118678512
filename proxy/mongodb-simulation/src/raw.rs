//! A client that sends any bytes, and a server that answers with any.

use std::sync::Arc;

use weir_mongodb_codec::frame::Framer;
use weir_mongodb_codec::message::Message;
use weir_mongodb_codec::reply::Reply;
use weir_mongodb_session::login::{LoginPolicy, Peer};
use weir_mongodb_session::pins::{PinLimits, ServerId};
use weir_mongodb_session::{AfterReply, Leave, Lost, Next, Refusal, Request, Session};

use crate::io::SimulatedIo;

/// The messages of the input are those of the client while it may speak, and those of its server while a reply is due. Whatever they are,
/// nothing panics, an answer is a message, a server that goes on to others owes nothing, and nothing is pinned at the end.
pub fn run_raw(data: &[u8]) {
    let Some((&first, mut input)) = data.split_first() else { return };
    let io = SimulatedIo::new();
    let peer = Peer { connection_id: 1, address: "".into(), tls: None };
    let mut session = Session::new(peer, Arc::new(LoginPolicy::open()), PinLimits::CONNECTION);
    let (mut framer, mut is_waiting) = (Framer::default(), false);
    while let Ok(Some(piece)) = framer.next(input) {
        if !piece.is_whole() {
            break;
        }
        let (message, rest) = input.split_at(piece.bytes);
        input = rest;
        let goes_on = if is_waiting {
            on_reply(&mut session, &io, message, &mut is_waiting)
        } else {
            on_request(&mut session, &io, message, first, &mut is_waiting)
        };
        if !goes_on {
            break;
        }
        let _ = session.cleanups();
    }
    if session.on_gone(true, &io) == Leave::Drain {
        session.on_server_lost(false, &io, &mut Vec::new());
    }
    io.pins.borrow_mut().drain();
    assert!(io.pins.borrow().is_empty());
}

/// False: the connection ends.
fn on_request(session: &mut Session, io: &SimulatedIo, message: &[u8], choice: u8, is_waiting: &mut bool) -> bool {
    let Ok(request) = Request::read(message) else { return false };
    let mut out = Vec::new();
    let next = session.on_request(&request, io, &mut out);
    match next {
        Next::Answered => {}
        Next::Take(_) if choice & 1 == 1 => session.on_no_server(&Refusal::overloaded("full"), io, &mut out),
        Next::Take(_) => {
            assert!(out.is_empty());
            session.on_server(ServerId(u32::from(choice) % 3), io);
            *is_waiting = !session.on_sent();
            return true;
        }
        Next::Wait | Next::Derive(_) | Next::Relay(_) | Next::Close(_) => return false,
    }
    assert!(out.is_empty() == request.is_unacknowledged(), "one answer, if one is wanted");
    let answer = Framer::default().next(&out).expect("a message");
    assert!(answer.is_none_or(|piece| piece.is_whole() && piece.header.response_to == request.id));
    true
}

fn on_reply(session: &mut Session, io: &SimulatedIo, message: &[u8], is_waiting: &mut bool) -> bool {
    let read = Message::read(message).ok().and_then(|found| Some((found, Reply::read(found.body).ok()?)));
    let accepted = read.filter(|(found, _)| session.on_reply_head(&found.header).is_ok());
    let Some((found, reply)) = accepted else {
        let mut out = Vec::new();
        *is_waiting = false;
        return session.on_server_lost(false, io, &mut out) == Lost::Answered;
    };
    match session.on_reply(&found.header, found.flags, &reply, io) {
        Ok(after) => {
            *is_waiting = after == AfterReply::Stay;
            true
        }
        Err(_) => false,
    }
}
