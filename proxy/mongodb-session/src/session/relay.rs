//! Logins that a server checks: the way of their messages.

use weir_mongodb_codec::BsonError;
use weir_mongodb_codec::bson;
use weir_mongodb_codec::bson::Document;
use weir_mongodb_codec::command::Command;
use weir_mongodb_codec::compressed::Compressor;
use weir_mongodb_codec::message::{self, Flags, Ids};
use weir_mongodb_codec::reply::{Labels, Reply};

use super::{Next, Session, State};
use crate::hello::HelloRequest;
use crate::io::Io;
use crate::refusal::Refusal;
use crate::request::{Asker, Request};
use crate::server_hello::ServerHello;

/// A request whose reply comes from the client's own connection to a server.
#[derive(Debug)]
pub(super) struct Relayed {
    asker: Asker,
    /// The fields of a hello that waits for the mechanisms of its user.
    hello: Option<Hello>,
}

#[derive(Debug)]
struct Hello {
    is_legacy: bool,
    is_hello_known: bool,
    compressors: Vec<Compressor>,
}

/// The fate of a server's reply to a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRelay {
    /// It goes to the client as it is.
    Pass,
    /// The same, and the client is logged in: the connection is one of [`Login::user`](crate::login::Login::user) from now on.
    LoggedIn,
    /// The reply to the client is written. The server's is for the gateway.
    Replied,
    /// It goes to the client, whose connection ends behind it: the login has failed too often.
    Close,
}

impl Session {
    /// saslStart or saslContinue of a client whose server checks its login.
    pub(super) fn relay(&mut self, request: &Request<'_>, command: &Command<'_>, out: &mut Vec<u8>) -> Next {
        // Without a reply the gateway would not learn how the login has ended, and a part of a message is none.
        if request.is_unacknowledged() || !request.is_whole() {
            return self.refuse(request, &Refusal::login_failed(), out);
        }
        match self.login.relay(command) {
            Ok(()) => {
                self.state = State::Relaying(Relayed { asker: request.asker(), hello: None });
                Next::Relay(None)
            }
            Err(refusal) => self.refuse(request, &refusal, out),
        }
    }

    /// A hello whose client wants to know the mechanisms of its user: the server knows them.
    pub(super) fn relay_hello(
        &mut self,
        request: &Request<'_>,
        hello: &HelloRequest<'_>,
        io: &impl Io,
    ) -> Option<Next> {
        let user = hello.mechanisms_of.filter(|_| self.login.is_relayed() && !request.is_unacknowledged())?;
        let mut own = Vec::new();
        message::write(&mut own, Ids { request: 1, response_to: 0 }, Flags::empty(), |body| {
            body.int32("hello", 1);
            body.string("saslSupportedMechs", user);
            body.string("$db", "admin");
        });
        let HelloRequest { is_legacy, is_hello_known, .. } = *hello;
        let compressors = io.presentation().common_compressors(hello.compressors.iter().copied());
        let hello = Some(Hello { is_legacy, is_hello_known, compressors });
        self.state = State::Relaying(Relayed { asker: request.asker(), hello });
        Some(Next::Relay(Some(own)))
    }

    /// The body of the server's reply to [`Next::Relay`].
    ///
    /// # Errors
    /// The reply is broken. Call [`Session::on_relay_lost`].
    pub fn on_relayed<I: Io>(
        &mut self,
        body: Document<'_>,
        io: &I,
        out: &mut Vec<u8>,
    ) -> Result<AfterRelay, BsonError> {
        let State::Relaying(relayed) = &self.state else {
            debug_assert!(false, "nothing was relayed");
            return Ok(AfterRelay::Close);
        };
        let asker = relayed.asker;
        let reply = Reply::read(body)?;
        if relayed.hello.is_none() {
            self.state = State::Idle;
            return Ok(match self.login.on_relayed(reply.is_ok, body) {
                Ok(true) => AfterRelay::LoggedIn,
                Err(()) if self.login.has_failed_too_often() => AfterRelay::Close,
                Ok(false) | Err(()) => AfterRelay::Pass,
            });
        }
        let mechanisms = ServerHello::read(body)?.mechanisms.unwrap_or_default();
        let State::Relaying(Relayed { hello: Some(hello), .. }) = std::mem::replace(&mut self.state, State::Idle)
        else {
            return Ok(AfterRelay::Close);
        };
        let id = self.next_id();
        let (presentation, known) = (io.presentation(), hello.is_hello_known);
        let hello_reply = self.hello_reply(presentation, &hello.compressors, hello.is_legacy, known, io.unix_ms());
        asker.reply(out, id, |writer| {
            hello_reply.write(writer);
            write_mechanisms(&mechanisms, writer);
            writer.double("ok", 1.0);
        });
        Ok(AfterRelay::Replied)
    }

    /// The client's own connection to a server broke, or there is none.
    pub fn on_relay_lost(&mut self, out: &mut Vec<u8>) {
        if let State::Relaying(relayed) = &self.state {
            let asker = relayed.asker;
            self.state = State::Idle;
            let id = self.next_id();
            asker.refuse(out, id, &Refusal::host_unreachable(Labels::empty()));
        }
    }
}

/// `saslSupportedMechs` of a reply.
pub(super) fn write_mechanisms(mechanisms: &[weir_sasl::Mechanism], body: &mut bson::Writer<'_>) {
    let names = mechanisms.iter().map(|mechanism| mechanism.name());
    body.array("saslSupportedMechs", names, |writer, name, mechanism| writer.string(name, mechanism));
}
