//! The gateway's own login at a server, from its first byte to the first ReadyForQuery.
//!
//! The shell calls [`ServerLogin::start`], then [`ServerLogin::on_bytes`] with all bytes that it holds, takes the consumed ones
//! away, sends what was appended to `out`, and does what the [`Step`] says. The deadline is the shell's.
//!
//! A server may be hostile: it sends what no server sends, or too much of it. All that it sends in a login has a bound, and
//! a server that is given a proof must prove itself.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | the identity of a login, and what it demands of the server |
//! | `failure` | why a login fails, and the server's own error for the client |

mod failure;
mod settings;

use weir_postgres_codec::backend::{
    self, Authentication, BackendKeyData, ErrorFields, Mechanisms, NegotiateProtocolVersion, ParameterStatus,
    ReadyForQuery,
};
use weir_postgres_codec::{MessageError, TransactionStatus, Version, frame, frontend};
use weir_sasl::{
    ChannelBinding, ClientProven, Derivation, Mechanism, Nonce, ScramClient, ScramKeys, Waiting,
    limits::NONCE_RANDOM_BYTES, md5,
};

pub use failure::{Failure, ServerError};
pub use settings::{BindingMode, ServerIdentity, TlsMode};

use crate::users::Credential;

/// Bytes of the body of one message of a server during a login. PostgreSQL's own client takes 30,000 of an error.
pub const MESSAGE_BYTES_MAX: usize = 32 * 1024;

/// Bytes that a server may send in a login, notices included. A login of PostgreSQL has about 500, and an error or a notice
/// of a login trigger a few thousand.
pub const LOGIN_BYTES_MAX: usize = 256 * 1024;

/// Settings that a server may report in a login. PostgreSQL 15 reports 13, and forks some more.
pub const PARAMETERS_MAX: usize = 256;

const _: () = assert!(MESSAGE_BYTES_MAX + frame::HEAD_BYTES <= LOGIN_BYTES_MAX);

/// A login at a server.
#[derive(Debug)]
pub struct ServerLogin {
    identity: ServerIdentity,
    nonce: Nonce,
    /// Hash of the server's certificate; nothing without TLS.
    binding: ChannelBinding,
    is_tls: bool,
    phase: Phase,
    facts: ServerFacts,
    /// Bytes of the server so far.
    received: usize,
}

/// The place in the login.
#[derive(Debug)]
enum Phase {
    New,
    /// A byte that accepts or refuses TLS.
    TlsResponse,
    /// The shell runs the handshake.
    Tls,
    /// A request for authentication.
    Authentication,
    /// SCRAM: the server's challenge.
    Challenge(ScramClient),
    /// The shell derives keys.
    Keys(Waiting),
    /// SCRAM: the server's own proof.
    Signature(ClientProven),
    /// AuthenticationOk, without which no proof of the client counts.
    Accepted,
    /// Settings, key and ReadyForQuery.
    Greeting,
    End,
}

/// The greeting of a server.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ServerFacts {
    /// Settings that the server reports, in its order.
    pub parameters: Vec<(Vec<u8>, Vec<u8>)>,
    /// Process id of its cancel key; 0: it has sent none, and queries cannot be cancelled.
    pub pid: u32,
    /// Secret of its cancel key.
    pub secret: Vec<u8>,
    /// Version of the session.
    pub version: Option<Version>,
}

impl std::fmt::Debug for ServerFacts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerFacts").field("pid", &self.pid).field("version", &self.version).finish_non_exhaustive()
    }
}

/// The next task of the shell.
#[derive(Debug)]
pub enum Step {
    /// Read more bytes.
    More,
    /// Run the TLS handshake as a client, then call [`ServerLogin::on_tls`].
    StartTls,
    /// Find the keys in a cache or derive them, then call [`ServerLogin::on_keys`].
    Derive(Derivation),
    /// The connection is ready for queries.
    Done(Box<ServerFacts>),
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
    /// A new connection. `random` comes from the system's source.
    #[must_use]
    pub fn new(identity: ServerIdentity, random: &[u8; NONCE_RANDOM_BYTES]) -> ServerLogin {
        ServerLogin {
            identity,
            nonce: Nonce::from_random(random),
            binding: ChannelBinding::None,
            is_tls: false,
            phase: Phase::New,
            facts: ServerFacts::default(),
            received: 0,
        }
    }

    /// Writes the first packet.
    pub fn start(&mut self, out: &mut Vec<u8>) {
        debug_assert!(matches!(self.phase, Phase::New), "a login starts once");
        if self.identity.tls == TlsMode::Disable {
            self.startup(out);
        } else {
            frontend::ssl_request(out);
            self.phase = Phase::TlsResponse;
        }
    }

    /// Bytes of the server: all that are not consumed. Messages for it are appended to `out`.
    pub fn on_bytes(&mut self, input: &[u8], out: &mut Vec<u8>) -> Progress {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            let found = match self.phase {
                Phase::TlsResponse => self.on_tls_response(rest, out),
                // The shell has something else to do first. A server that sends bytes meanwhile breaks the order.
                Phase::New | Phase::Tls | Phase::Keys(_) | Phase::End => Ok((0, Step::More)),
                _ => self.on_message(rest, out),
            };
            let (bytes, step) = found.unwrap_or_else(|failure| (rest.len(), self.fail(failure)));
            consumed += bytes;
            if bytes == 0 || !matches!(step, Step::More) {
                return Progress { consumed, step };
            }
        }
    }

    /// The TLS handshake has succeeded. `binding` is the hash of the server's certificate.
    pub fn on_tls(&mut self, binding: ChannelBinding, out: &mut Vec<u8>) -> Step {
        if !matches!(self.phase, Phase::Tls) {
            debug_assert!(false, "no handshake was due");
            return self.fail(Failure::rule("postgres_login_order"));
        }
        self.binding = binding;
        self.is_tls = true;
        self.startup(out);
        Step::More
    }

    /// The keys of a derivation.
    pub fn on_keys(&mut self, keys: &ScramKeys, out: &mut Vec<u8>) -> Step {
        match std::mem::replace(&mut self.phase, Phase::End) {
            Phase::Keys(waiting) => {
                self.prove(&waiting, keys, out);
                Step::More
            }
            _ => {
                debug_assert!(false, "no keys were due");
                self.fail(Failure::rule("postgres_login_order"))
            }
        }
    }

    /// The server has closed the connection.
    pub fn on_closed(&mut self) -> Failure {
        self.phase = Phase::End;
        Failure::Closed
    }

    fn startup(&mut self, out: &mut Vec<u8>) {
        frontend::startup(out, self.identity.version, self.identity.startup_parameters());
        self.facts.version = Some(self.identity.version);
        self.phase = Phase::Authentication;
    }

    /// One byte. Anything behind `S` was sent in clear text and would count as encrypted (CVE-2021-23222).
    fn on_tls_response(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, Step), Failure> {
        match (input, self.identity.tls) {
            ([], _) => Ok((0, Step::More)),
            ([b'S'], _) => {
                self.phase = Phase::Tls;
                Ok((1, Step::StartTls))
            }
            ([b'S', ..], _) => Err(Failure::rule("postgres_bytes_behind_tls_response")),
            ([b'N'], TlsMode::Prefer) => {
                self.startup(out);
                Ok((1, Step::More))
            }
            ([b'N', ..], TlsMode::Require) => Err(Failure::NoTls),
            // An error of a server that nothing has authenticated is for no client's eyes.
            _ => Err(Failure::rule("postgres_tls_response")),
        }
    }

    /// The message at the front of the input.
    fn on_message(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, Step), Failure> {
        let Some(head) = frame::head(input).map_err(|_| Failure::rule("postgres_message_length"))? else {
            return Ok((0, Step::More));
        };
        if head.body > MESSAGE_BYTES_MAX || self.received + head.whole() > LOGIN_BYTES_MAX {
            return Err(Failure::rule("postgres_login_bytes"));
        }
        let Some(message) = input.get(..head.whole()) else { return Ok((0, Step::More)) };
        self.received += message.len();
        let body = &message[frame::HEAD_BYTES..];
        let step = match head.tag {
            backend::tag::ERROR => return Err(self.refused(message, body)?),
            backend::tag::NOTICE => {
                ErrorFields::read(body)?;
                Step::More
            }
            backend::tag::NEGOTIATE_PROTOCOL_VERSION if matches!(self.phase, Phase::Authentication) => {
                self.on_version(&NegotiateProtocolVersion::read(body)?)?
            }
            backend::tag::AUTHENTICATION if !matches!(self.phase, Phase::Greeting) => {
                self.on_authentication(Authentication::read(body)?, out)?
            }
            backend::tag::PARAMETER_STATUS if matches!(self.phase, Phase::Greeting) => {
                let ParameterStatus { name, value } = ParameterStatus::read(body)?;
                self.facts.parameters.retain(|(known, _)| known != name);
                if self.facts.parameters.len() >= PARAMETERS_MAX {
                    return Err(Failure::rule("postgres_login_parameters"));
                }
                self.facts.parameters.push((name.to_vec(), value.to_vec()));
                Step::More
            }
            backend::tag::BACKEND_KEY_DATA if matches!(self.phase, Phase::Greeting) => {
                let BackendKeyData { pid, secret } = BackendKeyData::read(body)?;
                (self.facts.pid, self.facts.secret) = (pid, secret.to_vec());
                Step::More
            }
            backend::tag::READY_FOR_QUERY if matches!(self.phase, Phase::Greeting) => {
                if ReadyForQuery::read(body)?.0 != TransactionStatus::Idle {
                    return Err(Failure::rule("postgres_login_order"));
                }
                self.phase = Phase::End;
                Step::Done(Box::new(std::mem::take(&mut self.facts)))
            }
            _ => return Err(Failure::rule("postgres_login_order")),
        };
        Ok((head.whole(), step))
    }

    /// The server's error, whole. It must have the form of one: a client will read it.
    fn refused(&self, message: &[u8], body: &[u8]) -> Result<Failure, MessageError> {
        let fields = ErrorFields::read(body)?;
        let sqlstate = fields.sqlstate().map(str::to_owned);
        let is_authenticated = matches!(self.phase, Phase::Greeting);
        let text = String::from_utf8_lossy(fields.message().unwrap_or_default()).into_owned();
        Ok(Failure::Refused(ServerError { message: message.to_vec(), sqlstate, text, is_authenticated }))
    }

    /// An older server. It may not choose a version beyond the one that was requested.
    fn on_version(&mut self, found: &NegotiateProtocolVersion<'_>) -> Result<Step, Failure> {
        let requested = self.identity.version;
        if found.version.major != requested.major || found.version > requested || found.options().next().is_some() {
            return Err(Failure::rule("postgres_protocol_version"));
        }
        self.facts.version = Some(found.version);
        Ok(Step::More)
    }

    fn on_authentication(&mut self, request: Authentication<'_>, out: &mut Vec<u8>) -> Result<Step, Failure> {
        let phase = std::mem::replace(&mut self.phase, Phase::End);
        match (phase, request) {
            // The server trusts the gateway, or its certificate.
            (Phase::Authentication, Authentication::Ok) if self.identity.binding == BindingMode::Require => {
                Err(Failure::NO_BINDING)
            }
            (Phase::Authentication | Phase::Accepted, Authentication::Ok) => {
                self.phase = Phase::Greeting;
                Ok(Step::More)
            }
            (Phase::Authentication, Authentication::CleartextPassword) => self.clear_text(out),
            (Phase::Authentication, Authentication::Md5Password { salt }) => self.md5(salt, out),
            (Phase::Authentication, Authentication::Sasl(mechanisms)) => self.sasl(mechanisms, out),
            (Phase::Challenge(client), Authentication::SaslContinue(message)) => self.challenge(&client, message, out),
            (Phase::Signature(proven), Authentication::SaslFinal(message)) => {
                proven.finish(message)?;
                self.phase = Phase::Accepted;
                Ok(Step::More)
            }
            (
                Phase::Authentication,
                Authentication::KerberosV5
                | Authentication::Gss
                | Authentication::GssContinue(_)
                | Authentication::Sspi,
            ) => Err(Failure::Unsupported("the server requests Kerberos, GSSAPI or SSPI")),
            // Also AuthenticationOk in place of the server's proof: it does not know the password.
            _ => Err(Failure::rule("postgres_login_order")),
        }
    }

    fn clear_text(&mut self, out: &mut Vec<u8>) -> Result<Step, Failure> {
        if !self.is_tls {
            return Err(Failure::Unsupported("the server requests the password in clear text without TLS"));
        }
        self.check_binding()?;
        let Credential::Password(password) = &self.identity.credential else { return Err(self.no_credential()) };
        frontend::password(out, password.expose());
        self.phase = Phase::Accepted;
        Ok(Step::More)
    }

    fn md5(&mut self, salt: [u8; 4], out: &mut Vec<u8>) -> Result<Step, Failure> {
        self.check_binding()?;
        let response = match &self.identity.credential {
            Credential::Password(password) => md5::password(&self.identity.user, password, salt),
            Credential::Md5(stored) => md5::response(stored, salt),
            _ => return Err(self.no_credential()),
        };
        frontend::password(out, &response);
        self.phase = Phase::Accepted;
        Ok(Step::More)
    }

    fn sasl(&mut self, offered: Mechanisms<'_>, out: &mut Vec<u8>) -> Result<Step, Failure> {
        if !matches!(self.identity.credential, Credential::Password(_) | Credential::Keys(_)) {
            return Err(self.no_credential());
        }
        let is_offered = |mechanism: Mechanism| offered.iter().any(|name| name == mechanism.name().as_bytes());
        let may_bind = self.binding.is_available() && self.identity.binding != BindingMode::Disable;
        let mechanism = if may_bind && is_offered(Mechanism::ScramSha256Plus) {
            Mechanism::ScramSha256Plus
        } else if is_offered(Mechanism::ScramSha256) {
            self.check_binding()?;
            Mechanism::ScramSha256
        } else {
            return Err(Failure::Unsupported("the server offers no mechanism of SASL that the gateway has"));
        };
        let binding = if may_bind { self.binding.clone() } else { ChannelBinding::None };
        // The server takes the user from the startup packet.
        let client = ScramClient::new(mechanism, b"", binding, self.nonce.clone());
        frontend::sasl_initial(out, mechanism.name().as_bytes(), Some(client.first_message()));
        self.phase = Phase::Challenge(client);
        Ok(Step::More)
    }

    fn challenge(&mut self, client: &ScramClient, message: &[u8], out: &mut Vec<u8>) -> Result<Step, Failure> {
        let (waiting, wanted) = client.on_challenge(message)?;
        match &self.identity.credential {
            Credential::Password(password) => {
                let derivation = Derivation::new(Mechanism::ScramSha256, password, wanted);
                self.phase = Phase::Keys(waiting);
                Ok(Step::Derive(derivation))
            }
            Credential::Keys(proven) if proven.challenge == wanted => {
                let keys = proven.keys.clone();
                self.prove(&waiting, &keys, out);
                Ok(Step::More)
            }
            Credential::Keys(_) => Err(Failure::OtherVerifier),
            Credential::None | Credential::Md5(_) => Err(self.no_credential()),
        }
    }

    fn prove(&mut self, waiting: &Waiting, keys: &ScramKeys, out: &mut Vec<u8>) {
        let (proven, proof) = waiting.prove(keys);
        frontend::sasl_response(out, &proof);
        self.phase = Phase::Signature(proven);
    }

    /// Another method than SCRAM with PLUS, although that is demanded.
    fn check_binding(&self) -> Result<(), Failure> {
        match self.identity.binding {
            BindingMode::Require => Err(Failure::NO_BINDING),
            BindingMode::Prefer | BindingMode::Disable => Ok(()),
        }
    }

    fn no_credential(&self) -> Failure {
        Failure::NoCredential { has_keys: matches!(self.identity.credential, Credential::Keys(_)) }
    }

    fn fail(&mut self, failure: Failure) -> Step {
        self.phase = Phase::End;
        Step::Failed(Box::new(failure))
    }
}
