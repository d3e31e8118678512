//! Logins that a server checks: the client has a connection of its own to a server, and logs in there itself.
//!
//! The gateway has no password of the user, so it cannot make further connections for it: this one serves all of the client's commands,
//! at the primary, as long as both live. If the primary moves, or the connection breaks, the client's connection ends, and its driver logs
//! in again.

use std::{cell::RefCell, rc::Rc};

use weir_base::{
    exchange::{LossCause, Refusal as PoolRefusal},
    time::{Time, turn},
};
use weir_engine::{Stream, timeout};
use weir_listener::CloseReason;
use weir_mongodb_codec::{frame::Framer, header::Header, message::Message};
use weir_mongodb_session::{AfterRelay, ReadMode, Want, pins::ServerId, server_login::MESSAGE_BYTES_MAX};
use weir_sasl::KeyCache;
use weir_upstream::pooled::{AcquireError, OwnConnection};

use super::{
    lease::{Link, NoServer},
    life::{Life, Stage},
};
use crate::{
    preference::Preference,
    server::{log_in, process, stranger},
    upstream::MongodbUpstream,
};

/// A connection of one client to a server.
pub(super) struct OwnLine {
    pub(super) stream: Stream,
    pub(super) server: ServerId,
    /// It is of no pool, and counted by itself.
    pub(super) counted: OwnConnection,
}

/// Makes such a connection, to the primary.
async fn connect(upstream: Rc<MongodbUpstream>, deadline: Time) -> Result<Link, NoServer> {
    loop {
        let allowed = upstream.candidates(ReadMode::Primary, &Preference::default());
        let mut error = NoServer::None;
        if allowed != 0
            && let Some(opening) = upstream.openings.begin(turn::now())
        {
            let number = allowed.trailing_zeros() as usize;
            match open(&upstream, number).await {
                Ok(line) => {
                    opening.succeeded();
                    return Ok(Link::Own(Box::new(line)));
                }
                Err(refused) => {
                    opening.failed(turn::now(), |failures| upstream.servers().pause_aside(failures));
                    error = refused;
                }
            }
        }
        if turn::now() >= deadline {
            return Err(error);
        }
        weir_engine::sleep(super::lease::LOOK_PAUSE).await;
    }
}

async fn open(upstream: &Rc<MongodbUpstream>, number: usize) -> Result<OwnLine, NoServer> {
    let servers = upstream.servers();
    let refused = |refusal| NoServer::Pool(AcquireError { refusal, endpoint: Some(number), words: None });
    let (server, begun) = (servers.watch_ref(number).id(), turn::now());
    let (mut stream, target) = servers.connect_aside(number).await.map_err(refused)?;
    let keys = RefCell::new(KeyCache::new(1, [0; 32]));
    let limit = servers.settings().connect_timeout;
    match timeout(limit, log_in(&mut stream, stranger(target.has_tls()), &keys)).await {
        Ok(Ok(hello)) if !servers.watch_ref(number).is_other(process(&hello)) => {
            let counted = servers.count_own(number, &stream, turn::now().since(begun));
            Ok(OwnLine { stream, server, counted })
        }
        _ => {
            servers.watch_ref(number).suspect();
            Err(refused(PoolRefusal::Unreachable))
        }
    }
}

impl Life<'_> {
    /// Sends a message of a login on the client's own connection, which is made for the first one.
    pub(super) fn relay(&mut self, message: Vec<u8>) {
        // It holds a server from now on, be it for a hello alone.
        self.login_since.get_or_insert_with(turn::now);
        self.active = turn::now();
        self.stage = Stage::Relaying;
        self.lease.relay_reply.clear();
        self.lease.relayed_id = Header::read(&message).ok().flatten().map_or(0, |header| header.request);
        match self.lease.own.take() {
            Some(line) => {
                line.stream.output.append(&message);
                self.lease.server = Some(Link::Own(line));
            }
            None => {
                self.lease.relayed = message;
                self.lease.acquiring = Some(Box::pin(connect(self.upstream.clone(), self.login_deadline())));
            }
        }
    }

    /// The connection is there.
    pub(super) fn on_own_line(&mut self, mut server: Link) -> Result<(), CloseReason> {
        self.lease.acquiring = None;
        let message = std::mem::take(&mut self.lease.relayed);
        server.stream().output.append(&message);
        self.lease.server = Some(server);
        Ok(())
    }

    /// Bytes of the server's reply to a message of a login, which is read whole.
    pub(super) fn on_relayed_bytes(&mut self, chunk: &[u8]) -> Result<(), CloseReason> {
        self.lease.relay_reply.extend_from_slice(chunk);
        let received = std::mem::take(&mut self.lease.relay_reply);
        let piece = match Framer::default().next(&received) {
            Ok(Some(piece)) if piece.header.bytes > MESSAGE_BYTES_MAX => return self.on_relay_lost(),
            // The reply to something else.
            Ok(Some(piece)) if piece.header.response_to != self.lease.relayed_id => return self.on_relay_lost(),
            Ok(Some(piece)) if piece.is_whole() && piece.bytes == received.len() => piece,
            Ok(Some(piece)) if piece.is_whole() => return self.on_relay_lost(),
            Ok(_) => {
                self.lease.relay_reply = received;
                return Ok(());
            }
            Err(_) => return self.on_relay_lost(),
        };
        let Ok(message) = Message::read(&received[..piece.bytes]) else { return self.on_relay_lost() };
        let before = self.session.login().failures();
        let Ok(after) = self.session.on_relayed(message.body, &self.scene.io(None), &mut self.own) else {
            return self.on_relay_lost();
        };
        if let Some(Link::Own(line)) = self.lease.server.take() {
            self.lease.own = Some(line);
        }
        self.stage = Stage::Request;
        if after != AfterRelay::Replied {
            self.own.extend_from_slice(&received);
        }
        let end = (after == AfterRelay::Close).then(crate::connection::too_many_failures);
        self.answer(before, end)?;
        self.show_login();
        if matches!(self.stage, Stage::Request) { self.go_on() } else { Ok(()) }
    }

    /// The connection broke, or there is none.
    pub(super) fn on_relay_lost(&mut self) -> Result<(), CloseReason> {
        self.lease.acquiring = None;
        if let Some(server) = self.lease.server.take() {
            server.close(LossCause::Closed);
        }
        self.stage = Stage::Request;
        self.session.on_relay_lost(&mut self.own);
        self.give_own();
        // A part of a login is lost with it.
        Err(CloseReason::of_upstream("mongodb_server_lost"))
    }

    /// The client's own connection for a command, if the command may have its server.
    pub(super) fn take_own(&mut self, want: Want) -> Option<Link> {
        let fits = |line: &OwnLine| match want {
            Want::Server(server) => server == line.server,
            Want::Any(_) => self.is_at_primary(line.server),
        };
        if self.lease.own.as_deref().is_some_and(fits) {
            return self.lease.own.take().map(Link::Own);
        }
        self.lease.acquiring = Some(Box::pin(async { Err(NoServer::Gone) }));
        None
    }

    /// Without a primary the server itself refuses writes.
    fn is_at_primary(&self, server: ServerId) -> bool {
        let primary = self.upstream.candidates(ReadMode::Primary, &Preference::default());
        let is_in = |number: usize| number < 64 && primary & 1 << number != 0;
        primary == 0 || self.upstream.number_of(server).is_some_and(is_in)
    }

    /// The client is logged in at a server that is no primary any more: its driver has to log in at another one.
    pub(super) fn is_misplaced(&self) -> bool {
        self.lease.own.as_ref().is_some_and(|line| !self.is_at_primary(line.server))
    }
}
