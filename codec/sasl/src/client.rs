//! The client's side: three messages, of which the first needs nothing but a nonce.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use weir_base::secret::Secret;

use crate::attributes::Attributes;
use crate::binding::{ChannelBinding, Gs2};
use crate::derivation::Challenge;
use crate::error::{ClientError, Malformed, printable};
use crate::keys::{Key, ScramKeys};
use crate::limits::{ITERATIONS_MAX, MESSAGE_BYTES_MAX};
use crate::mechanism::Mechanism;
use crate::nonce::{Nonce, is_nonce};
use crate::verifier::number;

/// An exchange that has sent nothing, or its first message.
#[derive(Clone, Debug)]
pub struct ScramClient {
    mechanism: Mechanism,
    binding_input: Vec<u8>,
    nonce: Nonce,
    message: Vec<u8>,
    header_bytes: usize,
}

/// An exchange that has the server's challenge and lacks the keys.
#[derive(Clone, Debug)]
pub struct Waiting {
    mechanism: Mechanism,
    /// `client-first-message-bare,server-first-message,`
    signed: Vec<u8>,
    /// The second message without the proof.
    without_proof: Vec<u8>,
}

/// An exchange that has sent its proof and waits for the server's.
#[derive(Clone, Debug)]
pub struct Proven {
    signature: Key,
}

impl ScramClient {
    /// A new exchange. `user` is empty for PostgreSQL, which takes it from the startup packet. `binding` is that of the TLS
    /// connection; one that stays unused because the server offers no PLUS is announced to it (`y`), which lets the server
    /// find an attacker who has removed the offer.
    #[must_use]
    pub fn new(mechanism: Mechanism, user: &[u8], binding: ChannelBinding, nonce: Nonce) -> ScramClient {
        let gs2 = match (mechanism.is_bound(), binding.is_available()) {
            (true, _) => Gs2::Bound,
            (false, true) => Gs2::NotOffered,
            (false, false) => Gs2::Unsupported,
        };
        let header = gs2.header();
        let message = [header, b"n=", &escape(user), b",r=", nonce.as_bytes()].concat();
        ScramClient { mechanism, binding_input: gs2.input(&binding), nonce, message, header_bytes: header.len() }
    }

    /// The first message.
    #[must_use]
    pub fn first_message(&self) -> &[u8] {
        &self.message
    }

    /// Reads the server's first message. The challenge is what the password must be salted with.
    ///
    /// # Errors
    /// The message is not one of RFC 5802, has another nonce, or demands more work than a server may.
    pub fn on_challenge(&self, message: &[u8]) -> Result<(Waiting, Challenge), ClientError> {
        let mut rest = attributes(message)?;
        match rest.peek() {
            Some(b'm') => return Err(ClientError::MandatoryExtension),
            Some(b'e') => return Err(refused(&mut rest)),
            _ => {}
        }
        let nonce = rest.value(b'r').map_err(|_| ClientError::Malformed("nonce"))?;
        let ours = self.nonce.as_bytes();
        if !nonce.starts_with(ours) || nonce.len() == ours.len() || !is_nonce(nonce) {
            return Err(ClientError::NonceMismatch);
        }
        let salt = rest.value(b's').ok().and_then(|salt| BASE64_STANDARD.decode(salt).ok());
        let salt = salt.filter(|salt| !salt.is_empty()).ok_or(ClientError::Malformed("salt"))?;
        let iterations = rest.value(b'i').map_err(|_| ClientError::Malformed("iterations"))?;
        let iterations = match number(iterations) {
            Some(count) if (1..=ITERATIONS_MAX).contains(&count) => count,
            Some(claimed) => return Err(ClientError::Iterations { claimed }),
            None if iterations.iter().all(u8::is_ascii_digit) && !iterations.is_empty() => {
                return Err(ClientError::Iterations { claimed: u32::MAX });
            }
            None => return Err(ClientError::Malformed("iterations")),
        };
        while !rest.is_at_end() {
            rest.any().map_err(|_| ClientError::Malformed("end of server-first-message"))?;
        }
        let bare = &self.message[self.header_bytes..];
        let binding = BASE64_STANDARD.encode(&self.binding_input);
        let waiting = Waiting {
            mechanism: self.mechanism,
            signed: [bare, b",", message, b","].concat(),
            without_proof: [b"c=", binding.as_bytes(), b",r=", nonce].concat(),
        };
        Ok((waiting, Challenge { salt, iterations }))
    }
}

impl Waiting {
    /// The second message, with the proof that the client has `keys`.
    #[must_use]
    pub fn prove(&self, keys: &ScramKeys) -> (Proven, Vec<u8>) {
        let hash = self.mechanism.hash();
        let message: [&[u8]; 2] = [&self.signed, &self.without_proof];
        let stored = keys.stored(self.mechanism);
        let proof = keys.client.xor(&hash.hmac(stored.expose(), &message));
        let proven = Proven { signature: hash.hmac(keys.server.expose(), &message) };
        let proof = BASE64_STANDARD.encode(proof.expose());
        (proven, [&self.without_proof, &b",p="[..], proof.as_bytes()].concat())
    }
}

impl Proven {
    /// Checks the server's final message: only a server with the verifier of this user can make it.
    ///
    /// # Errors
    /// The server refuses, or is not the one that it claims to be.
    pub fn finish(&self, message: &[u8]) -> Result<(), ClientError> {
        let mut rest = attributes(message)?;
        if rest.peek() == Some(b'e') {
            return Err(refused(&mut rest));
        }
        let value = rest.value(b'v').map_err(|_| ClientError::Malformed("server signature"))?;
        let signature = Secret::new(BASE64_STANDARD.decode(value).unwrap_or_default());
        if signature.expose().len() != self.signature.expose().len() {
            return Err(ClientError::Malformed("server signature"));
        }
        while !rest.is_at_end() {
            rest.any().map_err(|_| ClientError::Malformed("end of server-final-message"))?;
        }
        if Key::new(signature.expose()) != self.signature {
            return Err(ClientError::WrongSignature);
        }
        Ok(())
    }
}

/// The attributes of a server's message.
fn attributes(message: &[u8]) -> Result<Attributes<'_>, ClientError> {
    Attributes::new(message).map_err(|malformed| match malformed {
        Malformed::TooLong => ClientError::TooLong,
        _ => ClientError::Malformed(if message.is_empty() { "empty" } else { "zero byte" }),
    })
}

fn refused(rest: &mut Attributes<'_>) -> ClientError {
    ClientError::Refused { reason: printable(rest.value(b'e').unwrap_or_default()) }
}

/// A saslname of RFC 5802.
fn escape(name: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b',' => escaped.extend_from_slice(b"=2C"),
            b'=' => escaped.extend_from_slice(b"=3D"),
            other => escaped.push(*other),
        }
    }
    escaped
}

const _: () = assert!(MESSAGE_BYTES_MAX >= 1024, "PostgreSQL accepts 1,024 bytes");
