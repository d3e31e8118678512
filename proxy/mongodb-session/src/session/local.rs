//! Commands that the gateway answers itself: logins, and those about the connection.

use weir_base::error::Culprit;
use weir_base::violation::Violation;
use weir_mongodb_codec::bson::Writer;
use weir_mongodb_codec::command::Command;
use weir_sasl::ScramKeys;

use super::handshake::write_step;
use super::{Next, Session, State};
use crate::io::Io;
use crate::login::LoginStep;
use crate::pins::{CursorKey, ServerId};
use crate::refusal::Refusal;
use crate::request::{Asker, Request};

impl Session {
    /// `None`: the command is for a server.
    pub(super) fn on_local<I: Io>(
        &mut self,
        request: &Request<'_>,
        command: &Command<'_>,
        io: &I,
        out: &mut Vec<u8>,
    ) -> Option<Next> {
        let asker = request.asker();
        let is_logged_in = self.login.is_done();
        match command.name {
            b"saslStart" | b"saslContinue" if self.login.is_relayed() => {
                return Some(self.relay(request, command, out));
            }
            b"saslStart" => {
                let step = self.login.on_start(command, io);
                return Some(self.on_step(asker, step, out));
            }
            b"saslContinue" => {
                let step = self.login.on_continue(command);
                return Some(self.on_step(asker, step, out));
            }
            b"authenticate" => {
                let step = self.login.on_authenticate(command);
                return Some(self.on_step(asker, step, out));
            }
            b"logout" => {
                self.login.on_logout();
                self.reply(request, out, |_| {});
            }
            b"getnonce" => return Some(self.refuse(request, &Refusal::unknown_command("getnonce"), out)),
            // The replies of a server would be about the gateway's connection.
            b"whatsmyuri" if is_logged_in => {
                let address = self.peer.address.clone();
                self.reply(request, out, |body| body.string("you", &*address));
            }
            b"connectionStatus" if is_logged_in => {
                let user = self.login.user().cloned();
                self.reply(request, out, |body| {
                    body.document("authInfo", |info| {
                        info.array("authenticatedUsers", user, |writer, name, user| {
                            writer.document(name, |one| {
                                one.string("user", &user.name);
                                one.string("db", &user.db);
                            });
                        });
                        info.array("authenticatedUserRoles", [0; 0], |_, _, _| {});
                    });
                });
            }
            b"ping" if !is_logged_in => self.reply(request, out, |_| {}),
            b"buildInfo" | b"buildinfo" if !is_logged_in => {
                let version = io.presentation().wire.server_version();
                let text = version[..3].iter().map(i32::to_string).collect::<Vec<_>>().join(".");
                self.reply(request, out, |body| {
                    body.string("version", text);
                    body.array("versionArray", version, |writer, name, part| writer.int32(name, part));
                });
            }
            _ => return None,
        }
        Some(Next::Replied)
    }

    /// Replies with success, unless the request wants no reply (L2).
    pub(super) fn reply(&mut self, request: &Request<'_>, out: &mut Vec<u8>, fields: impl FnOnce(&mut Writer<'_>)) {
        let id = self.next_id();
        request.asker().reply(out, id, |body| {
            fields(body);
            body.double("ok", 1.0);
        });
    }

    fn on_step(&mut self, asker: Asker, step: Result<LoginStep, Refusal>, out: &mut Vec<u8>) -> Next {
        match step {
            Ok(LoginStep::Derive(derivation)) => {
                self.state = State::Deriving(asker);
                Next::Derive(derivation)
            }
            Ok(step) => {
                let id = self.next_id();
                asker.reply(out, id, |body| {
                    write_step(&step, body);
                    body.double("ok", 1.0);
                });
                Next::Replied
            }
            Err(refusal) => {
                let id = self.next_id();
                asker.refuse(out, id, &refusal);
                if self.login.has_failed_too_often() {
                    self.state = State::End;
                    let text = "the client has failed to log in too often";
                    return Next::Close(Violation::rule("mongodb_login_failures", Culprit::Client, text));
                }
                Next::Replied
            }
        }
    }

    /// The keys of [`Next::Derive`].
    pub fn on_keys(&mut self, keys: &ScramKeys, out: &mut Vec<u8>) -> Next {
        let State::Deriving(asker) = self.state else {
            debug_assert!(false, "no keys were due");
            return Next::Replied;
        };
        self.state = State::Idle;
        let step = self.login.on_keys(keys);
        self.on_step(asker, step, out)
    }

    /// The gateway kills cursors of several servers itself. The client gets its reply at once: drivers wait for no effect.
    pub(super) fn kill<I: Io>(
        &mut self,
        request: &Request<'_>,
        found: Vec<(CursorKey, ServerId)>,
        unknown: &[i64],
        io: &I,
        out: &mut Vec<u8>,
    ) -> Next {
        let killed: Vec<i64> = found.iter().map(|(key, _)| key.id).collect();
        let cleanups = self.with_pins(io, |pins| {
            let taken = found.iter().filter_map(|(key, server)| pins.take_cursor(key, *server));
            taken.collect::<Vec<_>>()
        });
        self.cleanups.extend(cleanups);
        self.reply(request, out, |body| {
            let lists = [
                ("cursorsKilled", &killed[..]),
                ("cursorsNotFound", unknown),
                ("cursorsAlive", &[]),
                ("cursorsUnknown", &[]),
            ];
            for (name, ids) in lists {
                body.array(name, ids, |writer, name, id| writer.int64(name, *id));
            }
        });
        Next::Replied
    }
}
