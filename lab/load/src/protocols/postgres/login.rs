//! From the startup packet to the first ReadyForQuery.

use weir_engine::Stream;
use weir_postgres_codec::backend::{Authentication, ErrorFields, tag};
use weir_postgres_codec::frame::{HEAD_BYTES, head};
use weir_postgres_codec::{Version, frontend};
use weir_sasl::{ChannelBinding, ClientProven, Derivation, Mechanism, ScramClient, Waiting, md5};

use super::{PREPARED, STATEMENT, tpcb};
use crate::protocols::scram::{keys_of, nonce};
use crate::scenario::{Postgres, QueryForm, Script};
use crate::wire::receive_chunk;

/// Bytes of one message of a login. Default 64 KiB: no list of parameters or mechanisms comes near it.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Logs in, and prepares the statement if the requests need it.
///
/// # Errors
/// The server refuses, or does not speak the protocol; a sentence for people.
pub(super) async fn begin(stream: &mut Stream, settings: &Postgres) -> Result<(), String> {
    let mut messages = Messages::new(stream);
    messages.send(|out| {
        let parameters = [
            (&b"user"[..], settings.user.as_bytes()),
            (b"database", settings.database.as_bytes()),
            (b"application_name", b"weir-load"),
            (b"client_encoding", b"UTF8"),
        ];
        frontend::startup(out, Version::V3_0, parameters);
    });
    let mut proof = Proof { settings, state: ScramState::None };
    loop {
        let (tag, body) = messages.next().await?;
        match tag {
            tag::AUTHENTICATION => {
                let request =
                    Authentication::read(&body).map_err(|error| format!("its login is not PostgreSQL's: {error}"))?;
                let mut response = Vec::new();
                proof.respond(request, &mut response)?;
                messages.send(|out| out.extend_from_slice(&response));
            }
            tag::READY_FOR_QUERY => break,
            _ => {}
        }
    }
    if settings.query == QueryForm::Prepared {
        messages.send(|out| {
            match settings.script {
                Script::SelectOnly => frontend::parse(out, STATEMENT, PREPARED, &[]),
                Script::TpcbLike => tpcb::prepared().for_each(|(name, text)| frontend::parse(out, name, text, &[])),
            }
            frontend::sync(out);
        });
        while messages.next().await?.0 != tag::READY_FOR_QUERY {}
    }
    if messages.received.is_empty() { Ok(()) } else { Err("it sent a reply without a request".to_owned()) }
}

/// Whole messages of a stream.
pub(super) struct Messages<'a> {
    stream: &'a mut Stream,
    received: Vec<u8>,
}

impl<'a> Messages<'a> {
    pub(super) fn new(stream: &'a mut Stream) -> Self {
        Self { stream, received: Vec::new() }
    }

    pub(super) fn send(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.stream.output.with(write);
    }

    /// The next message; an error of the server as an error.
    pub(super) async fn next(&mut self) -> Result<(u8, Vec<u8>), String> {
        loop {
            let head = head(&self.received).map_err(|_| "its reply is not PostgreSQL's".to_owned())?;
            if let Some(head) = head.filter(|head| head.whole() <= self.received.len()) {
                let message: Vec<u8> = self.received.drain(..head.whole()).collect();
                let body = &message[HEAD_BYTES..];
                return match head.tag {
                    tag::ERROR => Err(refusal(body)),
                    tag => Ok((tag, body.to_vec())),
                };
            }
            if self.received.len() > MESSAGE_BYTES_MAX {
                return Err(format!("a message of its login has more than {MESSAGE_BYTES_MAX} bytes"));
            }
            self.received.extend_from_slice(&receive_chunk(self.stream).await?);
        }
    }
}

fn refusal(body: &[u8]) -> String {
    match ErrorFields::read(body) {
        Ok(fields) => {
            let text = String::from_utf8_lossy(fields.message().unwrap_or_default()).into_owned();
            format!("it refused with SQLSTATE {}: {text}", fields.sqlstate().unwrap_or("none"))
        }
        Err(error) => format!("its error is not PostgreSQL's: {error}"),
    }
}

/// The proof of the password.
struct Proof<'a> {
    settings: &'a Postgres,
    state: ScramState,
}

enum ScramState {
    None,
    First(ScramClient),
    Proven(ClientProven),
}

impl Proof<'_> {
    fn respond(&mut self, request: Authentication<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        if matches!(request, Authentication::Ok) {
            return Ok(());
        }
        let Some(password) = &self.settings.password else {
            return Err("it wants a password; write postgres.password, for example \"env:PGPASSWORD\"".to_owned());
        };
        let failed = |error: weir_sasl::ClientError| format!("its SCRAM is wrong: {error}");
        match (request, std::mem::replace(&mut self.state, ScramState::None)) {
            (Authentication::CleartextPassword, _) => frontend::password(out, password.expose()),
            (Authentication::Md5Password { salt }, _) => {
                frontend::password(out, &md5::password(self.settings.user.as_bytes(), password, salt));
            }
            (Authentication::Sasl(mechanisms), _) => {
                let name = Mechanism::ScramSha256.name().as_bytes();
                if !mechanisms.iter().any(|offered| offered == name) {
                    return Err("it offers no SCRAM-SHA-256".to_owned());
                }
                // The name of the user is that of the startup packet.
                let client = ScramClient::new(Mechanism::ScramSha256, b"", ChannelBinding::None, nonce()?);
                frontend::sasl_initial(out, name, Some(client.first_message()));
                self.state = ScramState::First(client);
            }
            (Authentication::SaslContinue(data), ScramState::First(client)) => {
                let (waiting, challenge): (Waiting, _) = client.on_challenge(data).map_err(failed)?;
                let keys = keys_of(&Derivation::new(Mechanism::ScramSha256, password, challenge));
                let (proven, message) = waiting.prove(&keys);
                frontend::sasl_response(out, &message);
                self.state = ScramState::Proven(proven);
            }
            (Authentication::SaslFinal(data), ScramState::Proven(proven)) => proven.finish(data).map_err(failed)?,
            (request, _) => return Err(format!("it requests a login that the lab does not know: {request:?}")),
        }
        Ok(())
    }
}
