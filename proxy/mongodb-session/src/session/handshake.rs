//! hello: the reply of the server that the listener presents, with the first step of a login; hello that waits.

use weir_mongodb_codec::bson::Writer;
use weir_mongodb_codec::command::Command;
use weir_mongodb_codec::message::Flags;

use super::relay::write_mechanisms;
use super::{Next, Session, State};
use crate::face::Presentation;
use crate::hello::{HelloReply, HelloRequest};
use crate::io::Io;
use crate::login::LoginStep;
use crate::monitor::Awaited;
use crate::refusal::Refusal;
use crate::request::Request;

impl Session {
    pub(super) fn on_hello<I: Io>(
        &mut self,
        request: &Request<'_>,
        command: &Command<'_>,
        io: &I,
        out: &mut Vec<u8>,
    ) -> Next {
        let hello = match HelloRequest::read(command) {
            Ok(hello) => hello,
            Err(refusal) => return self.refuse(request, &refusal, out),
        };
        if hello.metadata.is_some() && std::mem::replace(&mut self.has_metadata, true) {
            return self.refuse(request, &Refusal::second_metadata(), out);
        }
        let presentation = io.presentation();
        self.face.get_or_insert(presentation.face_for(hello.is_load_balanced));
        match Awaited::new(request, &hello, presentation.topology, io.now()) {
            Ok(None) => {}
            Ok(Some(awaited)) => {
                self.state = State::Awaiting(awaited);
                self.on_time(io, out);
                return Next::Wait;
            }
            Err(refusal) => return self.refuse(request, &refusal, out),
        }
        if let Some(next) = self.relay_hello(request, &hello, io) {
            return next;
        }
        let mechanisms = hello.mechanisms_of.map(|of| self.login.mechanisms(of, io));
        let speculative = hello.speculative.and_then(|document| self.login.on_speculation(document, io));
        let compressors = presentation.common_compressors(hello.compressors.iter().copied());
        let id = self.next_id();
        let reply = self.hello_reply(presentation, &compressors, hello.is_legacy, hello.is_hello_known, io.unix_ms());
        request.asker().reply(out, id, |body| {
            reply.write(body);
            if let Some(mechanisms) = mechanisms {
                write_mechanisms(&mechanisms, body);
            }
            if let Some(step) = &speculative {
                body.document("speculativeAuthenticate", |inner| write_step(step, inner));
            }
            body.double("ok", 1.0);
        });
        Next::Replied
    }

    pub(super) fn hello_reply<'p>(
        &self,
        presentation: &'p Presentation,
        compressors: &'p [weir_mongodb_codec::compressed::Compressor],
        is_legacy: bool,
        is_hello_known: bool,
        unix_ms: i64,
    ) -> HelloReply<'p> {
        let connection_id = self.peer.connection_id;
        let face = self.face.unwrap_or(presentation.face);
        HelloReply { presentation, face, is_legacy, is_hello_known, compressors, connection_id, unix_ms }
    }

    /// The time of [`Session::deadline`] has come, or the presentation has changed: monitors learn of it at once. `true`: a reply was written.
    pub fn on_time<I: Io>(&mut self, io: &I, out: &mut Vec<u8>) -> bool {
        let State::Awaiting(awaited) = self.state else { return false };
        let (presentation, now) = (io.presentation(), io.now());
        if !awaited.is_due(presentation.topology, now) {
            return false;
        }
        let id = self.next_id();
        let next = awaited.after(id, presentation.topology, now);
        let reply = self.hello_reply(presentation, &[], awaited.is_legacy, false, io.unix_ms());
        let flags = if next.is_some() { awaited.flags() } else { Flags::empty() };
        awaited.asker.reply_with(out, id, flags, |body| {
            reply.write(body);
            body.double("ok", 1.0);
        });
        self.state = next.map_or(State::Idle, State::Awaiting);
        true
    }

    /// A hello waits. Behind [`Next::Wait`] the next request may be read as soon as this is false.
    #[must_use]
    pub fn is_awaiting(&self) -> bool {
        matches!(self.state, State::Awaiting(_))
    }
}

/// The fields of a step of a login, without `ok`.
pub(super) fn write_step(step: &LoginStep, body: &mut Writer<'_>) {
    match step {
        LoginStep::Sasl(reply) => reply.write(body),
        LoginStep::Certificate(identity) => {
            body.string("dbname", &identity.db);
            body.string("user", &identity.name);
        }
        LoginStep::Derive(_) => {}
    }
}
