//! Algorithms and the keys that go with them (RFC 7517, RFC 7518, RFC 8037).
//!
//! An entry of a [`KeySet`] is a key *for one algorithm*, made from the kind of key that the algorithm asks for. A token
//! names an algorithm and is verified with entries of just that one: a public RSA key can never become the secret of an HMAC.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire},
    },
};

use aws_lc_rs::{
    hmac,
    rsa::PublicKeyComponents,
    signature::{self, ParsedPublicKey, RsaParameters},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value as Json;

use super::JwtError;

/// Bytes of a JWKS document. Default 256 KiB; 100 RSA keys with certificates have about that.
pub const JWKS_BYTES_MAX: usize = 256 * 1024;

/// Keys of a document. Default 100; identity providers have two to five.
pub const JWKS_KEYS_MAX: usize = 100;

/// Bits of an RSA modulus. Below 2,048 it is not safe (RFC 7518 3.3); above 8,192 a check takes milliseconds.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=8_192;

/// Bytes of an HMAC secret at least, for HS256 (RFC 7518 3.2).
const HMAC_BYTES_MIN: usize = 32;

/// A signature algorithm. There is no `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are the names of RFC 7518 3.1")]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    /// Ed25519 (RFC 8037).
    EdDsa,
    /// Alone only: see [`KeySet::from_jwks`].
    Hs256,
}

impl Algorithm {
    /// Every one.
    pub const ALL: &'static [Self] = &[
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::EdDsa,
        Self::Hs256,
    ];

    /// As in the `alg` of a token.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
            Self::Hs256 => "HS256",
        }
    }

    /// The one with this name; case matters.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|algorithm| algorithm.name() == name)
    }

    fn rsa(self) -> Option<&'static RsaParameters> {
        match self {
            Self::Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
            Self::Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
            Self::Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
            Self::Ps256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
            Self::Ps384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
            Self::Ps512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
            _ => None,
        }
    }
}

enum Verifier {
    Public(ParsedPublicKey),
    Hmac(Box<hmac::Key>),
}

struct Entry {
    kid: Option<Box<str>>,
    algorithm: Algorithm,
    verifier: Verifier,
}

/// The keys of an issuer, for the algorithms that are allowed.
pub struct KeySet(Box<[Entry]>);

impl std::fmt::Debug for KeySet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

impl KeySet {
    /// Reads a JWKS document (RFC 7517 5), on the control thread. Keys that are not for signatures, of another kind than
    /// `allowed` asks for, or not usable are left out, as the RFC says.
    ///
    /// # Errors
    /// No document, or over the limits; no key is left; nothing is allowed, or HS256 beside others: who can verify with an
    /// HMAC secret can sign with it, so it does not belong among public keys.
    pub fn from_jwks(text: &str, allowed: &[Algorithm]) -> Result<Self, JwtError> {
        check_allowed(allowed)?;
        if text.len() > JWKS_BYTES_MAX {
            return Err(JwtError::JwksTooLarge(text.len()));
        }
        let document: Json = serde_json::from_str(text).map_err(|_| JwtError::Jwks)?;
        let keys = document.get("keys").and_then(Json::as_array).ok_or(JwtError::Jwks)?;
        if keys.len() > JWKS_KEYS_MAX {
            return Err(JwtError::TooManyKeys(keys.len()));
        }
        let entries: Vec<Entry> = keys.iter().flat_map(|key| entries_of(key, allowed)).collect();
        if entries.is_empty() { Err(JwtError::NoKeys) } else { Ok(Self(entries.into())) }
    }

    /// The keys that may have made a signature: of this algorithm, and with this id if the token has one.
    pub(super) fn candidates<'a>(
        &'a self,
        algorithm: Algorithm,
        kid: Option<&'a str>,
    ) -> impl Iterator<Item = Candidate<'a>> {
        let fits = move |entry: &&Entry| {
            entry.algorithm == algorithm && (kid.is_none() || entry.kid.is_none() || entry.kid.as_deref() == kid)
        };
        self.0.iter().filter(fits).map(|entry| Candidate(&entry.verifier))
    }
}

/// Keys that come and change while the gateway runs; one for all workers.
pub struct SharedKeys {
    allowed: Box<[Algorithm]>,
    current: Mutex<Option<Arc<KeySet>>>,
    generation: AtomicU64,
}

impl std::fmt::Debug for SharedKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "generation {}: {:?}", self.generation.load(Acquire), self.current())
    }
}

impl SharedKeys {
    /// None yet, for these algorithms.
    ///
    /// # Errors
    /// No document could have keys for them: see [`KeySet::from_jwks`].
    pub fn new(allowed: &[Algorithm]) -> Result<Self, JwtError> {
        check_allowed(allowed)?;
        Ok(Self { allowed: allowed.into(), current: Mutex::default(), generation: AtomicU64::new(0) })
    }

    /// Algorithms that tokens may be signed with.
    pub fn allowed(&self) -> &[Algorithm] {
        &self.allowed
    }

    /// Those of now.
    pub fn current(&self) -> Option<Arc<KeySet>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes whenever the keys do, so that nothing is remembered that other keys have decided.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    /// These from now on.
    pub fn set(&self, keys: Arc<KeySet>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(keys);
        self.generation.fetch_add(1, AcqRel);
    }
}

/// Where the keys of an issuer are.
#[derive(Debug)]
pub enum Keys {
    /// These, until the configuration is read again.
    Fixed(KeySet),
    /// Fetched from the issuer.
    Shared(Arc<SharedKeys>),
}

fn check_allowed(allowed: &[Algorithm]) -> Result<(), JwtError> {
    if allowed.is_empty() {
        return Err(JwtError::NoAlgorithm);
    }
    if allowed.contains(&Algorithm::Hs256) && allowed.iter().any(|algorithm| *algorithm != Algorithm::Hs256) {
        return Err(JwtError::MixedAlgorithms);
    }
    Ok(())
}

/// A key that may have made a signature.
pub(super) struct Candidate<'a>(&'a Verifier);

impl Candidate<'_> {
    /// Whether it has. The comparison of an HMAC takes the same time whatever differs.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self.0 {
            Verifier::Public(key) => key.verify_sig(message, signature).is_ok(),
            Verifier::Hmac(key) => hmac::verify(key, message, signature).is_ok(),
        }
    }
}

/// An entry for each allowed algorithm that this key is for.
fn entries_of(key: &Json, allowed: &[Algorithm]) -> Vec<Entry> {
    let text = |name: &str| key.get(name).and_then(Json::as_str);
    let is_for_signatures = text("use").is_none_or(|usage| usage == "sig");
    let may_verify = key
        .get("key_ops")
        .and_then(Json::as_array)
        .is_none_or(|operations| operations.iter().any(|operation| operation == "verify"));
    if !is_for_signatures || !may_verify {
        return Vec::new();
    }
    let of_key = allowed.iter().filter(|algorithm| text("alg").is_none_or(|name| name == algorithm.name()));
    let entry = |algorithm: &Algorithm| {
        let verifier = verifier(key, *algorithm)?;
        Some(Entry { kid: text("kid").map(Box::from), algorithm: *algorithm, verifier })
    };
    of_key.filter_map(entry).collect()
}

/// The verifier of this algorithm with this key, if the key is of the kind that the algorithm needs.
fn verifier(key: &Json, algorithm: Algorithm) -> Option<Verifier> {
    let text = |name: &str| key.get(name).and_then(Json::as_str);
    let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
    let curve = |wanted: &str, size: usize, parameters| {
        if text("kty")? != "EC" || text("crv")? != wanted {
            return None;
        }
        let (x, y) = (bytes("x")?, bytes("y")?);
        let point = [&[4][..], &x, &y].concat();
        (x.len() == size && y.len() == size).then(|| ParsedPublicKey::new(parameters, point).ok()).flatten()
    };
    match algorithm {
        Algorithm::Hs256 if text("kty")? == "oct" => {
            let secret = weir_base::Secret::new(bytes("k")?);
            let is_long_enough = secret.expose().len() >= HMAC_BYTES_MIN;
            is_long_enough.then(|| Verifier::Hmac(Box::new(hmac::Key::new(hmac::HMAC_SHA256, secret.expose()))))
        }
        Algorithm::Hs256 => None,
        Algorithm::Es256 => curve("P-256", 32, &signature::ECDSA_P256_SHA256_FIXED).map(Verifier::Public),
        Algorithm::Es384 => curve("P-384", 48, &signature::ECDSA_P384_SHA384_FIXED).map(Verifier::Public),
        Algorithm::EdDsa if text("kty")? == "OKP" && text("crv")? == "Ed25519" => {
            ParsedPublicKey::new(&signature::ED25519, bytes("x")?).ok().map(Verifier::Public)
        }
        Algorithm::EdDsa => None,
        _ if text("kty")? == "RSA" => {
            let (n, e) = (bytes("n")?, bytes("e")?);
            let n = &n[n.iter().position(|byte| *byte != 0)?..];
            if !RSA_BITS.contains(&(n.len() * 8)) {
                return None;
            }
            let components = PublicKeyComponents { n, e: &e[..] };
            components.to_parsed_public_key(algorithm.rsa()?).ok().map(Verifier::Public)
        }
        _ => None,
    }
}
