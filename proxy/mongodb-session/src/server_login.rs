//! The gateway's own login at a server, from its first byte to the first command of a client.
//!
//! The shell calls [`ServerLogin::start`], then [`ServerLogin::on_bytes`] with all bytes that it holds, takes the consumed ones away,
//! sends what was appended to `out`, and does what the [`Step`] says. The deadline is the shell's, and so is TLS, which comes first.
//!
//! A server may be hostile: all that it sends in a login has a bound, and a server that is given a proof must prove itself.
//!
//! | file | concept |
//! |---|---|
//! | `identity` | the identity of a login |
//! | `failure` | why a login fails |
//! | `exchange` | the messages of SCRAM, PLAIN and certificates |

mod exchange;
mod failure;
mod identity;

use weir_mongodb_codec::bson::{Document, Writer};
use weir_mongodb_codec::compressed::Compressor;
use weir_mongodb_codec::frame::Framer;
use weir_mongodb_codec::message::{self, Flags, Ids, Message};
use weir_mongodb_codec::reply::{self, Reply};
use weir_sasl::{Derivation, Nonce, ScramKeys};

pub use failure::Failure;
pub use identity::{Credential, ServerIdentity};

use crate::server_hello::{ServerHello, ServerKind};
use exchange::{Exchange, Sent};

/// Bytes of one message of a server during a login. A reply to hello has about 1 KiB, one of a set with 50 members about 5 KiB.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Code of a server that does not have the command.
const COMMAND_NOT_FOUND: i32 = 59;

/// A login at a server.
#[derive(Debug)]
pub struct ServerLogin {
    identity: ServerIdentity,
    nonce: Nonce,
    /// Compressors that the connection may use, the best one first.
    compressors: Vec<Compressor>,
    /// The id of the last message of ours.
    request: i32,
    phase: Phase,
    hello: ServerHello,
}

/// The place in the login.
#[derive(Debug)]
enum Phase {
    New,
    /// The reply to hello, or to isMaster.
    Hello {
        is_legacy: bool,
        speculation: Option<Exchange>,
    },
    /// A reply of the exchange.
    Exchange(Exchange),
    /// The shell derives keys.
    Keys(Exchange),
    End,
}

/// The next task of the shell.
#[derive(Debug)]
pub enum Step {
    /// Read more bytes.
    More,
    /// Find the keys in a cache or derive them, then call [`ServerLogin::on_keys`].
    Derive(Box<Derivation>),
    /// The connection is ready for commands.
    Done(Box<ServerHello>),
    /// Close the connection.
    Failed(Box<Failure>),
}

/// The result of [`ServerLogin::on_bytes`].
#[derive(Debug)]
pub struct Progress {
    /// Bytes of the input that the machine is done with.
    pub consumed: usize,
    /// The next task of the shell.
    pub step: Step,
}

impl ServerLogin {
    /// A new connection. The nonce was never used.
    #[must_use]
    pub fn new(identity: ServerIdentity, nonce: Nonce) -> ServerLogin {
        let (compressors, hello) = (Vec::new(), ServerHello::default());
        ServerLogin { identity, nonce, compressors, request: 0, phase: Phase::New, hello }
    }

    /// Offers these compressors. Those that the server has as well are in [`ServerHello::compressors`].
    #[must_use]
    pub fn with_compressors(self, compressors: Vec<Compressor>) -> ServerLogin {
        ServerLogin { compressors, ..self }
    }

    /// Writes the first message.
    pub fn start(&mut self, out: &mut Vec<u8>) {
        debug_assert!(matches!(self.phase, Phase::New), "a login starts once");
        self.say_hello(false, out);
    }

    /// Bytes of the server: all that are not consumed. Messages for it are appended to `out`.
    pub fn on_bytes(&mut self, input: &[u8], out: &mut Vec<u8>) -> Progress {
        if !matches!(self.phase, Phase::Hello { .. } | Phase::Exchange(_)) {
            return Progress { consumed: 0, step: Step::More };
        }
        let whole = match Framer::default().next(input) {
            Ok(Some(piece)) if piece.header.bytes > MESSAGE_BYTES_MAX => {
                Err(Failure::rule("mongodb_login_message_size"))
            }
            Ok(Some(piece)) if piece.is_end() => Ok(Some(piece.bytes)),
            Ok(_) => Ok(None),
            Err(error) => Err(error.into()),
        };
        match whole {
            Ok(None) => Progress { consumed: 0, step: Step::More },
            Ok(Some(bytes)) => {
                let step = self.on_message(&input[..bytes], out).unwrap_or_else(|failure| self.fail(failure));
                // A server says nothing unprompted: bytes behind a reply are none of this login.
                Progress { consumed: bytes, step }
            }
            Err(failure) => Progress { consumed: input.len(), step: self.fail(failure) },
        }
    }

    /// The keys of a derivation.
    pub fn on_keys(&mut self, keys: &ScramKeys, out: &mut Vec<u8>) -> Step {
        match std::mem::replace(&mut self.phase, Phase::End) {
            Phase::Keys(exchange) => {
                let exchange = exchange.prove(keys);
                self.send_exchange(exchange, out);
                Step::More
            }
            _ => {
                debug_assert!(false, "no keys were due");
                self.fail(Failure::rule("mongodb_login_order"))
            }
        }
    }

    /// The server has closed the connection.
    pub fn on_closed(&mut self) -> Failure {
        self.phase = Phase::End;
        Failure::Closed
    }

    fn on_message(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Step, Failure> {
        let message = Message::read(bytes)?;
        if message.header.response_to != self.request || message.flags.contains(Flags::MORE_TO_COME) {
            return Err(Failure::rule("mongodb_login_order"));
        }
        let reply = Reply::read(message.body)?;
        match std::mem::replace(&mut self.phase, Phase::End) {
            Phase::Hello { is_legacy, speculation } => self.on_hello(message.body, &reply, is_legacy, speculation, out),
            Phase::Exchange(exchange) if reply.is_ok => self.on_exchange(exchange, message.body, out),
            Phase::Exchange(_) => Err(refused(message.body, &reply)),
            Phase::New | Phase::Keys(_) | Phase::End => Err(Failure::rule("mongodb_login_order")),
        }
    }

    fn on_hello(
        &mut self,
        body: Document<'_>,
        reply: &Reply,
        is_legacy: bool,
        speculation: Option<Exchange>,
        out: &mut Vec<u8>,
    ) -> Result<Step, Failure> {
        // Servers before 4.4.2 know the old name alone.
        if !reply.is_ok && reply.code == Some(COMMAND_NOT_FOUND) && !is_legacy {
            self.say_hello(true, out);
            return Ok(Step::More);
        }
        if !reply.is_ok {
            return Err(refused(body, reply));
        }
        self.hello = ServerHello::read(body)?;
        let wire = self.hello.wire.ok_or_else(|| Failure::rule("mongodb_login_versions"))?;
        let fits = wire.max >= crate::face::WIRE_VERSION_MIN && wire.min <= crate::face::WIRE_VERSION_MAX;
        if !fits {
            return Err(Failure::Version { wire });
        }
        // An arbiter has no users.
        if self.hello.kind == ServerKind::Arbiter || matches!(self.identity.credential, Credential::None) {
            return Ok(self.done());
        }
        if matches!(self.identity.credential, Credential::Plain(_)) && !self.identity.is_encrypted {
            return Err(Failure::ClearText);
        }
        let first = body.get(b"speculativeAuthenticate")?.map(|value| value.as_document()).transpose()?.flatten();
        if let (Some(exchange), Some(reply)) = (speculation, first) {
            return self.on_exchange(exchange, reply, out);
        }
        let exchange = Exchange::new(&self.identity, self.hello.mechanisms.as_deref(), self.nonce.clone());
        self.send_exchange(exchange, out);
        Ok(Step::More)
    }

    fn on_exchange(&mut self, exchange: Exchange, reply: Document<'_>, out: &mut Vec<u8>) -> Result<Step, Failure> {
        match exchange.on_reply(reply, &self.identity)? {
            Sent::Derive(exchange, derivation) => {
                self.phase = Phase::Keys(exchange);
                Ok(Step::Derive(derivation))
            }
            Sent::More(exchange) => {
                self.send_exchange(exchange, out);
                Ok(Step::More)
            }
            Sent::Done => Ok(self.done()),
        }
    }

    fn say_hello(&mut self, is_legacy: bool, out: &mut Vec<u8>) {
        // A proof of SHA-256 is worth the attempt: newer servers answer it at once.
        let speculation = Exchange::speculative(&self.identity, self.nonce.clone());
        let (identity, compressors) = (self.identity.clone(), self.compressors.clone());
        self.send(out, |body| {
            body.int32(if is_legacy { "isMaster" } else { "hello" }, 1);
            if is_legacy {
                body.bool("helloOk", true);
            }
            identity.write_metadata(body);
            if !compressors.is_empty() {
                let names = compressors.iter().map(|compressor| compressor.name());
                body.array("compression", names, |writer, name, compressor| writer.string(name, compressor));
            }
            if let Some(user) = identity.mechanisms_of() {
                body.string("saslSupportedMechs", user);
            }
            if let Some(exchange) = &speculation {
                body.document("speculativeAuthenticate", |inner| {
                    exchange.write(inner);
                    inner.string("db", identity.source());
                });
            }
            body.string("$db", "admin");
        });
        self.phase = Phase::Hello { is_legacy, speculation };
    }

    fn send_exchange(&mut self, exchange: Exchange, out: &mut Vec<u8>) {
        let source = self.identity.source().to_owned();
        self.send(out, |body| {
            exchange.write(body);
            body.string("$db", source);
        });
        self.phase = Phase::Exchange(exchange);
    }

    fn send(&mut self, out: &mut Vec<u8>, body: impl FnOnce(&mut Writer<'_>)) {
        self.request += 1;
        message::write(out, Ids { request: self.request, response_to: 0 }, Flags::empty(), body);
    }

    fn done(&mut self) -> Step {
        self.phase = Phase::End;
        Step::Done(Box::new(std::mem::take(&mut self.hello)))
    }

    fn fail(&mut self, failure: Failure) -> Step {
        self.phase = Phase::End;
        Step::Failed(Box::new(failure))
    }
}

fn refused(body: Document<'_>, reply: &Reply) -> Failure {
    let text = reply::error_text(body).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[..text.len().min(256)]).into_owned();
    Failure::Refused { code: reply.code.unwrap_or(0), text }
}
