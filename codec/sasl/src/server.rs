//! The server's side: two messages in, two out. The type of each step has only the next one.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use weir_base::secret::Secret;

use crate::attributes::Attributes;
use crate::binding::{ChannelBinding, Gs2};
use crate::error::{Malformed, ServerError, printable};
use crate::keys::{Key, ScramKeys};
use crate::mechanism::Mechanism;
use crate::nonce::{Nonce, is_nonce};
use crate::verifier::ScramVerifier;

/// The first message of a client, read and checked. [`ClientFirst::challenge`] is the next step.
#[derive(Clone, Debug)]
pub struct ClientFirst {
    mechanism: Mechanism,
    user: Vec<u8>,
    nonce: Vec<u8>,
    /// The message without its GS2 header: part of what both sides sign.
    bare: Vec<u8>,
    /// The `c` attribute of the second message.
    binding_input: Vec<u8>,
}

/// An exchange that waits for the client's proof.
#[derive(Clone, Debug)]
pub struct ScramServer {
    mechanism: Mechanism,
    verifier: ScramVerifier,
    binding_input: Vec<u8>,
    nonce: Vec<u8>,
    /// `client-first-message-bare,server-first-message,`: the first two thirds of the AuthMessage.
    signed: Vec<u8>,
}

/// A client with a valid proof.
#[derive(Clone, Debug)]
pub struct Proven {
    /// The server's final message, without which the client does not trust the server.
    pub message: Vec<u8>,
    /// The keys of the client, recovered from its proof. They open a server that holds the very same verifier.
    pub keys: ScramKeys,
}

impl ClientFirst {
    /// Reads the first message of a client that has chosen `mechanism`. `binding` is what the server has offered: with one,
    /// it has offered the PLUS mechanism.
    ///
    /// # Errors
    /// Those of PostgreSQL, in its order.
    pub fn read(message: &[u8], mechanism: Mechanism, binding: &ChannelBinding) -> Result<ClientFirst, ServerError> {
        let mut rest = Attributes::new(message)?;
        let gs2 = read_gs2(&mut rest, mechanism, binding)?;
        if rest.peek() != Some(b',') {
            return Err(Malformed::NoComma(rest.peek()).into());
        }
        rest.skip();
        match rest.peek() {
            Some(b',') => rest.skip(),
            Some(b'a') => return Err(ServerError::AuthorizationIdentity),
            found => return Err(Malformed::Attribute(found).into()),
        }
        let bare = rest.rest().to_vec();
        if rest.peek() == Some(b'm') {
            return Err(ServerError::MandatoryExtension);
        }
        let user = unescape(rest.value(b'n')?);
        let nonce = rest.value(b'r')?.to_vec();
        if !is_nonce(&nonce) {
            return Err(ServerError::NonceNotPrintable);
        }
        while !rest.is_at_end() {
            rest.any()?;
        }
        Ok(ClientFirst { mechanism, user, nonce, bare, binding_input: gs2.input(binding) })
    }

    /// The user of the message. PostgreSQL ignores it and takes the one of the startup packet.
    #[must_use]
    pub fn user(&self) -> &[u8] {
        &self.user
    }

    /// The response: salt, iterations and the nonce of both sides.
    #[must_use]
    pub fn challenge(self, verifier: ScramVerifier, nonce: &Nonce) -> (ScramServer, Vec<u8>) {
        debug_assert_eq!(verifier.mechanism(), self.mechanism.unbound(), "a verifier of another mechanism");
        let nonce = [self.nonce.as_slice(), nonce.as_bytes()].concat();
        let salt = BASE64_STANDARD.encode(&verifier.challenge().salt);
        let numbers = format!(",s={salt},i={}", verifier.challenge().iterations);
        let message = [b"r=", nonce.as_slice(), numbers.as_bytes()].concat();
        let signed = [self.bare.as_slice(), b",", &message, b","].concat();
        let server =
            ScramServer { mechanism: self.mechanism, verifier, binding_input: self.binding_input, nonce, signed };
        (server, message)
    }
}

impl ScramServer {
    /// Checks the proof.
    ///
    /// # Errors
    /// Those of PostgreSQL; [`ServerError::WrongProof`] is a wrong password.
    pub fn finish(&self, message: &[u8]) -> Result<Proven, ServerError> {
        let mut rest = Attributes::new(message)?;
        self.check_binding(rest.value(b'c')?)?;
        let nonce = rest.value(b'r')?;
        let (without_proof, proof) = loop {
            // The comma in front of the proof is not a part of what is signed.
            let end = (message.len() - rest.rest().len()).saturating_sub(1);
            let (name, value) = rest.any()?;
            if name == b'p' {
                break (&message[..end], value);
            }
        };
        let proof = Secret::new(BASE64_STANDARD.decode(proof).unwrap_or_default());
        if proof.expose().len() != self.mechanism.hash().bytes() {
            return Err(Malformed::Proof.into());
        }
        if !rest.is_at_end() {
            return Err(Malformed::Garbage.into());
        }
        if nonce != self.nonce {
            return Err(ServerError::NonceMismatch);
        }
        self.check_proof(&Key::new(proof.expose()), without_proof)
    }

    fn check_binding(&self, value: &[u8]) -> Result<(), ServerError> {
        if value == BASE64_STANDARD.encode(&self.binding_input).as_bytes() {
            return Ok(());
        }
        Err(if self.mechanism.is_bound() { ServerError::BindingMismatch } else { ServerError::BindingAttribute })
    }

    fn check_proof(&self, proof: &Key, without_proof: &[u8]) -> Result<Proven, ServerError> {
        let hash = self.mechanism.hash();
        let message: [&[u8]; 2] = [&self.signed, without_proof];
        let client = proof.xor(&hash.hmac(self.verifier.stored().expose(), &message));
        // Made for wrong proofs too: the time shows nothing.
        let signature = hash.hmac(self.verifier.server().expose(), &message);
        if !self.verifier.accepts_stored(&hash.digest(client.expose())) {
            return Err(ServerError::WrongProof);
        }
        let message = format!("v={}", BASE64_STANDARD.encode(signature.expose())).into_bytes();
        Ok(Proven { message, keys: ScramKeys { client, server: self.verifier.server().clone() } })
    }
}

/// The flag in front of the first message.
fn read_gs2(rest: &mut Attributes<'_>, mechanism: Mechanism, binding: &ChannelBinding) -> Result<Gs2, ServerError> {
    let flag = rest.peek().ok_or(Malformed::Empty)?;
    match flag {
        b'n' | b'y' if mechanism.is_bound() => return Err(Malformed::BindingMissing.into()),
        b'y' if binding.is_available() => return Err(ServerError::Downgrade),
        b'p' if !mechanism.is_bound() => return Err(Malformed::BindingUnexpected.into()),
        b'n' | b'y' => {
            rest.skip();
            return Ok(if flag == b'n' { Gs2::Unsupported } else { Gs2::NotOffered });
        }
        b'p' => {}
        other => return Err(Malformed::BindingFlag(other).into()),
    }
    // The comma behind the name stays: the grammar has one behind each flag.
    let mut name = *rest;
    let kind = name.value(b'p')?;
    if kind != b"tls-server-end-point" {
        return Err(ServerError::BindingType { name: printable(kind) });
    }
    (0.."p=".len() + kind.len()).for_each(|_| rest.skip());
    Ok(Gs2::Bound)
}

/// A saslname of RFC 5802: `=2C` is a comma, `=3D` an equals sign. Anything else stays as it is: PostgreSQL ignores the name.
fn unescape(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, tail)) = rest.split_first() {
        let (byte, tail) = match rest.get(..3) {
            Some(b"=2C") => (b',', &rest[3..]),
            Some(b"=3D") => (b'=', &rest[3..]),
            _ => (*first, tail),
        };
        plain.push(byte);
        rest = tail;
    }
    plain
}
