//! From the first packet to the first ReadyForQuery. Every user has the one password, if there is one, and every database is
//! there.

use weir_postgres_codec::backend::{self, ErrorReport, TransactionStatus};
use weir_postgres_codec::frame::{HEAD_BYTES, head};
use weir_postgres_codec::frontend::{self, SaslInitial};
use weir_postgres_codec::limits::PREAUTH_MESSAGE_BYTES_MAX;
use weir_postgres_codec::startup::{self, Startup};
use weir_postgres_codec::{StartupError, Version, sqlstate};
use weir_sasl::limits::NONCE_RANDOM_BYTES;
use weir_sasl::{ChannelBinding, ClientFirst, Mechanism, Nonce, ScramServer, ScramVerifier, ServerError};

use super::parameters::Settings;
use super::statement::Failure;

/// The state of the login after a packet.
pub(super) enum LoginStep {
    /// The packet is not whole.
    More,
    /// So many bytes were taken; another packet follows.
    Again(usize),
    /// So many bytes were taken; messages follow.
    Done(usize, Box<Settings>),
    /// The connection ends.
    Close,
}

/// The login of one client.
#[derive(Default)]
pub(super) struct Login {
    has_asked_for_tls: bool,
    has_asked_for_gss: bool,
    user: String,
    settings: Option<Box<Settings>>,
    wants: Wants,
}

/// The packet that comes next.
#[derive(Debug, Default)]
enum Wants {
    #[default]
    Startup,
    Mechanism,
    ScramFirst,
    ScramProof(Box<ScramServer>),
}

impl Login {
    /// Responds to the packet that `input` begins with. Without a verifier no client needs a password.
    pub(super) fn respond(
        &mut self,
        pid: u32,
        verifier: Option<&ScramVerifier>,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> LoginStep {
        let step = match self.wants {
            Wants::Startup => return self.startup(pid, verifier, input, out),
            _ => self.password(pid, verifier, input, out),
        };
        step.unwrap_or_else(|failure| {
            backend::error(out, &ErrorReport::fatal(failure.sqlstate, &failure.text));
            LoginStep::Close
        })
    }

    fn startup(&mut self, pid: u32, verifier: Option<&ScramVerifier>, input: &[u8], out: &mut Vec<u8>) -> LoginStep {
        match startup::read(input) {
            Ok(None) => LoginStep::More,
            Ok(Some((Startup::Ssl, bytes))) if !self.has_asked_for_tls => {
                self.has_asked_for_tls = true;
                out.push(b'N');
                LoginStep::Again(bytes)
            }
            Ok(Some((Startup::Gss, bytes))) if !self.has_asked_for_gss => {
                self.has_asked_for_gss = true;
                out.push(b'N');
                LoginStep::Again(bytes)
            }
            Ok(Some((Startup::Ssl, _))) => refuse(StartupError::Version(Version::SSL), out),
            Ok(Some((Startup::Gss, _))) => refuse(StartupError::Version(Version::GSS), out),
            // No statement runs long enough to be cancelled.
            Ok(Some((Startup::Cancel { .. }, _))) => LoginStep::Close,
            Ok(Some((Startup::Session { version, parameters }, bytes))) => {
                if version > Version::V3_0 || parameters.protocol_options().next().is_some() {
                    backend::negotiate_protocol_version(out, Version::V3_0, parameters.protocol_options());
                }
                let Some(user) = parameters.user() else {
                    let text = "no PostgreSQL user name specified in startup packet";
                    backend::error(out, &ErrorReport::fatal(sqlstate::INVALID_AUTHORIZATION, text));
                    return LoginStep::Close;
                };
                let settings = Box::new(Settings::new(user, parameters));
                if verifier.is_none() {
                    welcome(pid, &settings, out);
                    return LoginStep::Done(bytes, settings);
                }
                self.user = String::from_utf8_lossy(user).into_owned();
                self.settings = Some(settings);
                self.wants = Wants::Mechanism;
                backend::authentication_sasl(out, [Mechanism::ScramSha256.name().as_bytes()]);
                LoginStep::Again(bytes)
            }
            Err(error) => refuse(error, out),
        }
    }

    /// Responds to a message of SASL.
    fn password(
        &mut self,
        pid: u32,
        verifier: Option<&ScramVerifier>,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<LoginStep, Failure> {
        let Ok(head) = head(input) else { return Ok(LoginStep::Close) };
        let Some(head) = head else { return Ok(LoginStep::More) };
        if head.tag != frontend::tag::PASSWORD {
            let text = format!("expected SASL response, got message type {}", head.tag);
            return Err(Failure::new(sqlstate::PROTOCOL_VIOLATION, text));
        }
        if head.body > PREAUTH_MESSAGE_BYTES_MAX {
            return Ok(LoginStep::Close);
        }
        let Some(body) = input.get(HEAD_BYTES..head.whole()) else { return Ok(LoginStep::More) };
        let taken = LoginStep::Again(head.whole());
        match (std::mem::take(&mut self.wants), verifier) {
            (Wants::Mechanism, Some(verifier)) => {
                let SaslInitial { mechanism, response } = SaslInitial::read(body)?;
                if mechanism != Mechanism::ScramSha256.name().as_bytes() {
                    let text = "client selected an invalid SASL authentication mechanism";
                    return Err(Failure::new(sqlstate::PROTOCOL_VIOLATION, text));
                }
                let Some(first) = response else {
                    backend::authentication_sasl_continue(out, b"");
                    self.wants = Wants::ScramFirst;
                    return Ok(taken);
                };
                self.challenge(first, verifier, out)?;
                Ok(taken)
            }
            (Wants::ScramFirst, Some(verifier)) => {
                self.challenge(body, verifier, out)?;
                Ok(taken)
            }
            (Wants::ScramProof(server), _) => {
                let proven = server.finish(body).map_err(|error| self.refusal(&error))?;
                backend::authentication_sasl_final(out, &proven.message);
                let Some(settings) = self.settings.take() else { return Ok(LoginStep::Close) };
                welcome(pid, &settings, out);
                Ok(LoginStep::Done(head.whole(), settings))
            }
            _ => Ok(LoginStep::Close),
        }
    }

    fn challenge(&mut self, first: &[u8], verifier: &ScramVerifier, out: &mut Vec<u8>) -> Result<(), Failure> {
        let first = ClientFirst::read(first, Mechanism::ScramSha256, &ChannelBinding::None);
        let first = first.map_err(|error| self.refusal(&error))?;
        let mut random = [0; NONCE_RANDOM_BYTES];
        aws_lc_rs::rand::fill(&mut random)
            .map_err(|_| Failure::new(sqlstate::INTERNAL_ERROR, "could not generate random nonce"))?;
        let (server, challenge) = first.challenge(verifier.clone(), &Nonce::from_random(&random));
        backend::authentication_sasl_continue(out, &challenge);
        self.wants = Wants::ScramProof(Box::new(server));
        Ok(())
    }

    fn refusal(&self, error: &ServerError) -> Failure {
        match error {
            ServerError::WrongProof => {
                let text = format!("password authentication failed for user \"{}\"", self.user);
                Failure::new(sqlstate::INVALID_PASSWORD, text)
            }
            ServerError::AuthorizationIdentity | ServerError::MandatoryExtension => {
                Failure::new(sqlstate::FEATURE_NOT_SUPPORTED, error.to_string())
            }
            _ => Failure::new(sqlstate::PROTOCOL_VIOLATION, error.to_string()),
        }
    }
}

fn refuse(error: StartupError, out: &mut Vec<u8>) -> LoginStep {
    if let Some(sqlstate) = error.sqlstate() {
        backend::error(out, &ErrorReport::fatal(sqlstate, &*error.text()));
    }
    LoginStep::Close
}

/// Everything from AuthenticationOk to the first ReadyForQuery.
fn welcome(pid: u32, settings: &Settings, out: &mut Vec<u8>) {
    backend::authentication_ok(out);
    settings.report_all(out);
    backend::backend_key_data(out, pid, &pid.wrapping_mul(0x9e37_79b1).to_be_bytes());
    backend::ready_for_query(out, TransactionStatus::Idle);
}
