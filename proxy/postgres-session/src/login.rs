//! The login of a client, from its first byte to AuthenticationOk.
//!
//! Order of PostgreSQL: encryption, startup packet, rules, proof. The shell calls [`ClientLogin::on_bytes`] with all bytes that
//! it holds, takes the consumed ones away, sends what was appended to `out`, and does what the [`Step`] says. The deadline of
//! a login is the shell's, and so is the delay after a wrong password: the refusal is in `out` and may be sent later.
//!
//! | file | concept |
//! |---|---|
//! | `policy` | decisions of a listener, and facts of a connection that the shell knows |
//! | `startup` | packets before the first message: encryption, cancel, version, parameters |
//! | `options` | the parameter `options`: switches of a command line |
//! | `proof` | passwords: clear text, MD5, SCRAM |
//! | `refusal` | every way to refuse, in PostgreSQL's words |
//! | `greeting` | the messages behind AuthenticationOk |

mod greeting;
mod options;
mod policy;
mod proof;
mod refusal;
mod startup;

use std::sync::Arc;

use weir_postgres_codec::limits::PREAUTH_MESSAGE_BYTES_MAX;
use weir_postgres_codec::{Version, backend, frame, frontend, startup as packet};
use weir_sasl::{Derivation, ScramKeys};

pub use greeting::greeting;
pub use options::{OptionsError, Setting, settings};
pub use policy::{Entropy, LoginPolicy, Peer, TlsFacts};
pub use refusal::{Refusal, RefusalKind};

use crate::hba::{self, Method};
use crate::users::{Credential, User};
use proof::Proof;
use startup::Encryption;

/// A client that is not logged in yet.
#[derive(Debug)]
pub struct ClientLogin {
    policy: Arc<LoginPolicy>,
    peer: Peer,
    entropy: Entropy,
    encryption: Encryption,
    phase: Phase,
}

/// The place in the login.
#[derive(Debug)]
enum Phase {
    /// No whole packet yet, or only requests for encryption.
    Startup,
    /// The shell runs the TLS handshake.
    Tls { is_direct: bool },
    /// The shell looks for the user.
    User { start: Start, method: Method },
    /// The client must prove its password.
    Proof { start: Start, user: Option<Arc<User>>, proof: Proof },
    /// The shell derives keys from the password in clear text.
    Keys { start: Start, user: Option<Arc<User>>, password: Credential, is_right: bool },
    /// It is over.
    End,
}

/// The content of a startup packet, each parameter with its last value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// User.
    pub user: Vec<u8>,
    /// Database: the user's name if the client names none.
    pub database: Vec<u8>,
    /// Settings for the session, those of `options` first. Names are as the client wrote them; the last of a name counts.
    pub settings: Vec<Setting>,
    /// The version of the session.
    pub version: Version,
}

/// A client that has logged in. AuthenticationOk has been written; the shell sends [`greeting`] next.
#[derive(Clone, Debug)]
pub struct LoggedIn {
    /// The startup packet.
    pub start: Start,
    /// The method that let it in.
    pub method: Method,
    /// The user of the lookup; `None` if there is none, which only `trust` and `cert` let in.
    pub user: Option<Arc<User>>,
    /// The part of the password that the login has shown: enough for a server with the same one.
    pub credential: Credential,
}

/// The next task of the shell.
#[derive(Debug)]
pub enum Step {
    /// Read more bytes.
    More,
    /// Run the TLS handshake as a server, then call [`ClientLogin::on_tls`]. Unconsumed bytes belong to it.
    StartTls,
    /// Find the user, then call [`ClientLogin::on_user`].
    LookUp {
        /// Its name.
        user: Vec<u8>,
        /// Its password decides. Otherwise it is for the server alone.
        is_password_needed: bool,
    },
    /// Find the keys in a cache or derive them, then call [`ClientLogin::on_keys`].
    Derive(Derivation),
    /// Cancel the query of another client if the key is right, then close. The client expects no response.
    Cancel {
        /// Process id of the key.
        pid: u32,
        /// Secret of the key; compare it with [`crate::cancel_key::CancelKey::matches`].
        secret: Vec<u8>,
    },
    /// The client is logged in.
    Done(Box<LoggedIn>),
    /// Send what was written, count the refusal, close.
    Refuse(Refusal),
}

/// The result of [`ClientLogin::on_bytes`].
#[derive(Debug)]
pub struct Progress {
    /// Bytes of the input that the machine is done with.
    pub consumed: usize,
    /// The next task of the shell.
    pub step: Step,
}

impl ClientLogin {
    /// A new connection.
    #[must_use]
    pub fn new(policy: Arc<LoginPolicy>, peer: Peer, entropy: Entropy) -> ClientLogin {
        ClientLogin { policy, peer, entropy, encryption: Encryption::default(), phase: Phase::Startup }
    }

    /// Bytes of the client: all that are not consumed. Responses are appended to `out`.
    pub fn on_bytes(&mut self, input: &[u8], out: &mut Vec<u8>) -> Progress {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            let found = match &self.phase {
                Phase::Startup => self.on_startup(rest, out),
                Phase::Proof { .. } => self.on_message(rest, out),
                // The shell has something else to do first.
                Phase::Tls { .. } | Phase::User { .. } | Phase::Keys { .. } | Phase::End => Ok((0, Step::More)),
            };
            let (bytes, step) = found.unwrap_or_else(|refusal| (rest.len(), self.refuse(refusal, out)));
            consumed += bytes;
            if bytes == 0 || !matches!(step, Step::More) {
                return Progress { consumed, step };
            }
        }
    }

    /// The TLS handshake has succeeded.
    pub fn on_tls(&mut self, facts: TlsFacts, out: &mut Vec<u8>) -> Step {
        let Phase::Tls { is_direct } = self.phase else { return self.out_of_turn(out) };
        if is_direct && !facts.has_alpn {
            return self.refuse(Refusal::direct_tls_without_alpn(), out);
        }
        // Inside of TLS there is nothing left to request.
        self.encryption = Encryption::all();
        self.peer.tls = Some(facts);
        self.phase = Phase::Startup;
        Step::More
    }

    /// The result of a lookup: `None` if there is no such user.
    pub fn on_user(&mut self, user: Option<Arc<User>>, out: &mut Vec<u8>) -> Step {
        match std::mem::replace(&mut self.phase, Phase::End) {
            Phase::User { start, method } => {
                debug_assert!(user.as_ref().is_none_or(|user| user.name == start.user), "another user");
                if matches!(method, Method::Trust | Method::Cert) {
                    let credential = user.as_ref().map(|user| user.credential()).unwrap_or_default();
                    return self.done(start, method, user, credential, out);
                }
                let name = &start.user;
                let proof = Proof::new(method, name, user.as_deref(), &self.policy, &self.peer, &self.entropy, out);
                self.phase = Phase::Proof { start, user, proof };
                Step::More
            }
            _ => self.out_of_turn(out),
        }
    }

    /// The keys of a derivation.
    pub fn on_keys(&mut self, keys: &ScramKeys, out: &mut Vec<u8>) -> Step {
        match std::mem::replace(&mut self.phase, Phase::End) {
            Phase::Keys { start, user, password, is_right } => {
                let is_right =
                    is_right || user.as_ref().and_then(|user| user.verifier()).is_some_and(|known| known.accepts(keys));
                if is_right {
                    self.done(start, Method::Password, user, password, out)
                } else {
                    self.refuse(Refusal::wrong_password(&start.user), out)
                }
            }
            _ => self.out_of_turn(out),
        }
    }

    /// The packet at the front of the input.
    fn on_startup(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, Step), Refusal> {
        if input.first() == Some(&packet::DIRECT_TLS_BYTE) && self.may_be_direct_tls() {
            self.phase = Phase::Tls { is_direct: true };
            return Ok((0, Step::StartTls));
        }
        let Some((startup, bytes)) = packet::read(input)? else { return Ok((0, Step::More)) };
        let step = match startup {
            packet::Startup::Cancel { pid, secret } => {
                self.phase = Phase::End;
                Step::Cancel { pid, secret: secret.to_vec() }
            }
            packet::Startup::Ssl => {
                let is_offered = self.policy.tls && self.peer.address.is_some() && self.peer.tls.is_none();
                self.encryption.ssl(input.len() > bytes)?;
                out.push(if is_offered { b'S' } else { b'N' });
                if !is_offered {
                    return Ok((bytes, Step::More));
                }
                self.phase = Phase::Tls { is_direct: false };
                Step::StartTls
            }
            packet::Startup::Gss => {
                self.encryption.gss(input.len() > bytes)?;
                out.push(b'N');
                Step::More
            }
            packet::Startup::Session { version, parameters } => {
                let start = startup::read(version, parameters, out)?;
                self.begin(start)?
            }
        };
        Ok((bytes, step))
    }

    /// Direct TLS is the very first thing that a client may send.
    fn may_be_direct_tls(&self) -> bool {
        self.policy.tls && self.peer.address.is_some() && self.peer.tls.is_none() && self.encryption.is_new()
    }

    /// The rules choose the method.
    fn begin(&mut self, start: Start) -> Result<Step, Refusal> {
        let is_tls = self.peer.tls.is_some();
        let client = hba::Client { address: self.peer.address, is_tls, user: &start.user, database: &start.database };
        let method = self.policy.rules.method(&client);
        let method = match method {
            None | Some(Method::Reject) => return Err(Refusal::rules(&client, method.is_some())),
            Some(Method::Password) if self.peer.address.is_some() && !is_tls => {
                return Err(Refusal::clear_text_without_tls());
            }
            Some(method) => method,
        };
        if method == Method::Cert {
            self.check_certificate(&start.user)?;
        }
        // Also for a client that needs no password: the server may want one.
        let is_password_needed = !matches!(method, Method::Trust | Method::Cert);
        let step = Step::LookUp { user: start.user.clone(), is_password_needed };
        self.phase = Phase::User { start, method };
        Ok(step)
    }

    fn check_certificate(&self, user: &[u8]) -> Result<(), Refusal> {
        let names = self.peer.tls.as_ref().map(|tls| tls.client_names.as_slice()).unwrap_or_default();
        match names {
            [] => Err(Refusal::no_certificate()),
            names if names.iter().any(|name| name == user) => Ok(()),
            _ => Err(Refusal::wrong_certificate(user)),
        }
    }

    /// A message of a client that must prove its password.
    fn on_message(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, Step), Refusal> {
        let Phase::Proof { start, user, proof } = &mut self.phase else { return Ok((0, Step::More)) };
        // PostgreSQL looks at the type before the length.
        if let Some(tag) = input.first().filter(|tag| **tag != frontend::tag::PASSWORD) {
            return Err(Refusal::wrong_type(proof.is_sasl(), *tag));
        }
        let Some(head) = frame::head(input)? else { return Ok((0, Step::More)) };
        if head.body > PREAUTH_MESSAGE_BYTES_MAX {
            return Err(Refusal::message_too_long(head.body));
        }
        let Some(body) = input.get(frame::HEAD_BYTES..head.whole()) else { return Ok((0, Step::More)) };
        let verdict = proof.on_message(body, &start.user, user.as_deref(), out)?;
        if matches!(verdict, proof::Verdict::More) {
            return Ok((head.whole(), Step::More));
        }
        let Phase::Proof { start, user, proof } = std::mem::replace(&mut self.phase, Phase::End) else {
            return Err(Refusal::internal());
        };
        let step = match verdict {
            proof::Verdict::More => Step::More,
            proof::Verdict::Right(credential) => self.done(start, proof.method(), user, credential, out),
            proof::Verdict::Derive { derivation, password, is_right } => {
                self.phase = Phase::Keys { start, user, password, is_right };
                Step::Derive(derivation)
            }
        };
        Ok((head.whole(), step))
    }

    fn done(
        &mut self,
        start: Start,
        method: Method,
        user: Option<Arc<User>>,
        credential: Credential,
        out: &mut Vec<u8>,
    ) -> Step {
        self.phase = Phase::End;
        backend::authentication_ok(out);
        Step::Done(Box::new(LoggedIn { start, method, user, credential }))
    }

    fn refuse(&mut self, refusal: Refusal, out: &mut Vec<u8>) -> Step {
        self.phase = Phase::End;
        refusal.write(out);
        Step::Refuse(refusal)
    }

    /// The shell called out of turn. It is our mistake; the client only sees its end.
    fn out_of_turn(&mut self, out: &mut Vec<u8>) -> Step {
        debug_assert!(false, "the machine waits for something else");
        self.refuse(Refusal::internal(), out)
    }
}
