//! JSON Web Tokens (RFC 7519, signed as RFC 7515 says), as bearer tokens (RFC 6750).
//!
//! 1. A token is at most [`TOKEN_BYTES_MAX`] long and has three parts in strict base64url.
//! 2. Its header names an algorithm that is allowed, and no extension (`crit`): none is known here.
//! 3. A key of a provider, of just that algorithm, has made its signature. At most [`TRIES_MAX`] keys are tried.
//! 4. Only then are the claims read: issuer, audience, times. No decision depends on unsigned data.
//!
//! A check costs 30 to 100 us of CPU; each worker remembers valid tokens ([`TokenCache`]) until they expire, by a hash
//! with a key that is made again with each [`Jwt`], and with the generation of the keys that are fetched: new keys
//! invalidate all.

mod claims;
mod keys;

use std::{fmt, sync::Arc};

use aws_lc_rs::{hmac, rand};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value as Json;
use weir_http_codec::{Fields, Known, RequestHead, token};

use super::{
    api_key::{KeyPlace, PLACES_MAX, is_place, key_at, strip},
    cache::{Cache, Digest},
    refusal::Refusal,
};
pub use keys::{Algorithm, JWKS_BYTES_MAX, JWKS_KEYS_MAX, KeySet, Keys, SharedKeys};

/// Bytes of a token. Default 16 KiB: as much as servers take in a header, and more than identity providers make.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Bytes of the first part of a token, which is read before the signature. Default 4 KiB; with a certificate it has 2 KiB.
const HEADER_CHARS_MAX: usize = 4 * 1024;

/// Signatures verified for one token. Default 8: a token without a key id may be of any key, and each costs up to 100 us.
pub const TRIES_MAX: usize = 8;

/// Seconds by which the clocks of issuers may differ from ours.
pub const SKEW_SECONDS: u64 = 60;

/// Issuers of one policy. Default 32.
pub const PROVIDERS_MAX: usize = 32;

/// Headers that tell claims. Default 32.
const CLAIM_HEADERS_MAX: usize = 32;

/// Bytes of one claim that is forwarded in a header, and of the subject. Default 1 KiB; a longer one is not forwarded.
pub const CACHED_CLAIM_BYTES_MAX: usize = 1_024;

/// Tokens that a worker remembers. Default 1,024. Worst case 1,024 x 33 KiB, 33 MiB, if all claims are as long as they may
/// be; in practice 200 bytes each.
pub const TOKENS_MAX: u32 = 1_024;

/// A claim that is forwarded to the origin in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimHeader {
    /// Name of the header. It is always removed from what clients send.
    pub header: String,
    /// Names from the outside in: `["realm_access", "kind"]`.
    pub claim: Vec<String>,
}

/// An issuer that is trusted.
#[derive(Debug)]
pub struct Provider {
    /// The required `iss`. `None`: anything.
    pub issuer: Option<String>,
    /// One of these must be in `aud`. Empty: anything.
    pub audiences: Vec<String>,
    /// A token without `exp` is refused. Leave it true: such a token cannot be got rid of.
    pub requires_exp: bool,
    /// Its keys.
    pub keys: Keys,
}

impl Provider {
    /// Its keys of now, if they are fetched.
    fn shared(&self) -> Option<Arc<KeySet>> {
        match &self.keys {
            Keys::Fixed(_) => None,
            Keys::Shared(keys) => keys.current(),
        }
    }

    fn keys<'a>(&'a self, shared: Option<&'a KeySet>) -> Option<&'a KeySet> {
        match &self.keys {
            Keys::Fixed(keys) => Some(keys),
            Keys::Shared(_) => shared,
        }
    }
}

/// The policy.
#[derive(Debug)]
pub struct Jwt {
    providers: Box<[Provider]>,
    places: Box<[KeyPlace]>,
    claim_headers: Box<[ClaimHeader]>,
    is_forwarded: bool,
    realm: Box<str>,
    secret: hmac::Key,
}

/// A token that was found good.
#[derive(Debug, PartialEq, Eq)]
pub struct Verified {
    subject: Option<Box<str>>,
    /// Name and value.
    headers: Box<[(Box<str>, Box<str>)]>,
}

impl Verified {
    /// The subject (`sub`): for logs, and for a rate limit.
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    /// Tells the origin the claims. [`Jwt::clean`] has to come first.
    pub fn append_to(&self, fields: &mut Fields) {
        for (name, value) in &self.headers {
            fields.push(name.as_bytes(), value.as_bytes());
        }
    }
}

/// The memory of a worker. One for each worker and policy.
#[derive(Debug)]
pub struct TokenCache(Cache<Arc<Verified>>);

impl Default for TokenCache {
    fn default() -> Self {
        Self(Cache::new(TOKENS_MAX))
    }
}

impl Jwt {
    /// A policy. Without `places` tokens are bearer tokens in Authorization; the first place that has something decides.
    ///
    /// # Errors
    /// Settings that cannot work.
    pub fn new(
        providers: Vec<Provider>,
        places: Vec<KeyPlace>,
        claim_headers: Vec<ClaimHeader>,
        is_forwarded: bool,
        realm: &str,
    ) -> Result<Self, JwtError> {
        if !(1..=PROVIDERS_MAX).contains(&providers.len()) {
            return Err(JwtError::Providers(providers.len()));
        }
        let bearer = || vec![KeyPlace::Header { name: "authorization".into(), scheme: "Bearer".into() }];
        let places = if places.is_empty() { bearer() } else { places };
        if places.len() > PLACES_MAX || !places.iter().all(is_place) {
            return Err(JwtError::Places);
        }
        let is_header = |header: &ClaimHeader| {
            let known = Known::of(header.header.as_bytes());
            token::is_token(header.header.as_bytes()) && known == Known::Other && !header.claim.is_empty()
        };
        if claim_headers.len() > CLAIM_HEADERS_MAX {
            return Err(JwtError::TooManyHeaders(claim_headers.len()));
        }
        if let Some(bad) = claim_headers.iter().find(|header| !is_header(header)) {
            return Err(JwtError::Header(bad.header.clone()));
        }
        let is_text = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
        if realm.is_empty() || realm.len() > 256 || !realm.bytes().all(is_text) {
            return Err(JwtError::Realm);
        }
        let mut secret = [0; 32];
        rand::fill(&mut secret).map_err(|_| JwtError::NoRandomness)?;
        Ok(Self {
            providers: providers.into(),
            places: places.into(),
            claim_headers: claim_headers.into(),
            is_forwarded,
            realm: realm.into(),
            secret: hmac::Key::new(hmac::HMAC_SHA256, &secret),
        })
    }

    /// The token of a request, if it is good. `now` is the time of day, in seconds of Unix time.
    ///
    /// # Errors
    /// 401 with a challenge. The reason `jwt_unknown_key` may mean that the issuer has new keys.
    pub fn check(&self, head: &RequestHead, cache: &mut TokenCache, now: u64) -> Result<Arc<Verified>, Refusal> {
        let mut found = self.places.iter().filter_map(|place| key_at(place, head));
        let Some(token) = found.next() else {
            let challenge = format!("Bearer realm=\"{}\"", self.realm);
            return Err(Refusal::new(401, "jwt_missing").with(Known::WwwAuthenticate.name(), challenge.as_bytes()));
        };
        if token.len() > TOKEN_BYTES_MAX {
            return Err(self.invalid(("jwt_too_long", "The token is too long")));
        }
        let mut digest: Digest = [0; 32];
        let mut context = hmac::Context::with_key(&self.secret);
        context.update(&token);
        for provider in &self.providers {
            if let Keys::Shared(keys) = &provider.keys {
                context.update(&keys.generation().to_ne_bytes());
            }
        }
        digest.copy_from_slice(context.sign().as_ref());
        if let Some(verified) = cache.0.get(&digest, now) {
            return Ok(Arc::clone(verified));
        }
        let (verified, until) = self.verify(&token, now).map_err(|why| self.invalid(why))?;
        let verified = Arc::new(verified);
        cache.0.insert(digest, Arc::clone(&verified), until, now);
        Ok(verified)
    }

    /// Removes the claim headers that a client sent. For every request of the route, also where no token is
    /// required.
    pub fn clean(&self, fields: &mut Fields) {
        for header in &self.claim_headers {
            fields.remove_named(header.header.as_bytes());
        }
    }

    /// Takes the token away before the request is forwarded, unless the policy says otherwise.
    pub fn strip(&self, head: &mut RequestHead) {
        if !self.is_forwarded {
            strip(&self.places, head);
        }
    }

    fn verify(&self, token: &[u8], now: u64) -> Result<(Verified, u64), claims::ClaimsError> {
        let malformed = ("jwt_malformed", "The token is malformed");
        let mut parts = token.split(|&byte| byte == b'.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed);
        };
        if header.len() > HEADER_CHARS_MAX {
            return Err(malformed);
        }
        let message = &token[..header.len() + 1 + payload.len()];
        let (algorithm, kid) = read_header(header)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| malformed)?;
        let shared: Vec<Option<Arc<KeySet>>> = self.providers.iter().map(Provider::shared).collect();
        let all = self.providers.iter().zip(&shared).filter_map(|(it, shared)| Some((it, it.keys(shared.as_deref())?)));
        let candidates =
            all.flat_map(|(it, keys)| keys.candidates(algorithm, kid.as_deref()).map(move |key| (it, key)));
        let mut why = ("jwt_unknown_key", "No known key made the signature");
        for (provider, key) in candidates.take(TRIES_MAX) {
            if !key.verifies(message, &signature) {
                if why.0 == "jwt_unknown_key" {
                    why = ("jwt_signature", "The signature is wrong");
                }
                continue;
            }
            let claims: Json = object(payload).ok_or(malformed)?;
            match claims::check(&claims, provider, now) {
                Ok(until) => return Ok((self.verified(&claims), until)),
                // Two providers may share keys and differ in what they ask.
                Err(claim) => why = claim,
            }
        }
        Err(why)
    }

    fn verified(&self, claims: &Json) -> Verified {
        let subject = claims.get("sub").and_then(Json::as_str);
        let subject = subject.filter(|it| it.len() <= CACHED_CLAIM_BYTES_MAX && !it.chars().any(char::is_control));
        let header = |header: &ClaimHeader| {
            Some((header.header.as_str().into(), claims::render(claims, header)?.into_boxed_str()))
        };
        let headers = self.claim_headers.iter().filter_map(header).collect();
        Verified { subject: subject.map(Box::from), headers }
    }

    fn invalid(&self, (reason, description): claims::ClaimsError) -> Refusal {
        let realm = &self.realm;
        let challenge =
            format!("Bearer realm=\"{realm}\", error=\"invalid_token\", error_description=\"{description}\"");
        Refusal::new(401, reason).with(Known::WwwAuthenticate.name(), challenge.as_bytes())
    }
}

/// Algorithm and key id.
fn read_header(part: &[u8]) -> Result<(Algorithm, Option<String>), claims::ClaimsError> {
    let malformed = ("jwt_malformed", "The token is malformed");
    let header = object(part).ok_or(malformed)?;
    if header.get("crit").is_some() {
        return Err(("jwt_critical", "The token requires an extension that is not known"));
    }
    let name = header.get("alg").and_then(Json::as_str).ok_or(malformed)?;
    let algorithm = Algorithm::of(name).ok_or(("jwt_algorithm", "The algorithm is not allowed"))?;
    let kid = match header.get("kid") {
        None => None,
        Some(kid) => Some(kid.as_str().ok_or(malformed)?.to_owned()),
    };
    Ok((algorithm, kid))
}

/// A JSON object in base64url. Its depth is bounded by the parser (128), its size by that of the token.
fn object(part: &[u8]) -> Option<Json> {
    let bytes = URL_SAFE_NO_PAD.decode(part).ok()?;
    serde_json::from_slice::<Json>(&bytes).ok().filter(Json::is_object)
}

/// Why a policy cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JwtError {
    /// None, or so many.
    Providers(usize),
    /// No algorithm is allowed.
    NoAlgorithm,
    /// HS256 beside others.
    MixedAlgorithms,
    /// No JWKS document.
    Jwks,
    /// So many bytes.
    JwksTooLarge(usize),
    /// So many keys.
    TooManyKeys(usize),
    /// No key that is usable.
    NoKeys,
    /// Too many places of tokens, or one that no request has.
    Places,
    /// So many claim headers.
    TooManyHeaders(usize),
    /// No name for a claim header, one that HTTP needs itself, or no claim.
    Header(String),
    /// A realm that is empty, too long, or has a quote.
    Realm,
    /// The system gives no randomness.
    NoRandomness,
}

impl fmt::Display for JwtError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Providers(count) => write!(f, "{count} issuers of tokens; it must be 1 to {PROVIDERS_MAX}"),
            Self::NoAlgorithm => f.write_str("no algorithm is allowed, so no token would be good: name RS256 or ES256"),
            Self::MixedAlgorithms => {
                f.write_str("HS256 stands alone: its secret does not belong among public keys; make two issuers of it")
            }
            Self::Jwks => f.write_str("this is no JWKS document: an object with a list `keys` (RFC 7517)"),
            Self::JwksTooLarge(bytes) => write!(f, "a JWKS document of {bytes} bytes; the most is {JWKS_BYTES_MAX}"),
            Self::TooManyKeys(count) => write!(f, "a JWKS document of {count} keys; the most is {JWKS_KEYS_MAX}"),
            Self::NoKeys => f.write_str(
                "the JWKS document has no key for an allowed algorithm: RSA of 2048 to 8192 bits, P-256, P-384, Ed25519, \
                 or for HS256 a secret of 32 bytes",
            ),
            Self::Places => write!(f, "tokens are looked for in at most {PLACES_MAX} places, each with a name"),
            Self::TooManyHeaders(count) => write!(f, "{count} claim headers; the most is {CLAIM_HEADERS_MAX}"),
            Self::Header(name) => write!(f, "`{name}` cannot be a claim header: choose one such as `X-Claim-Sub`"),
            Self::Realm => f.write_str("a realm has 1 to 256 printable ASCII characters and no quotes"),
            Self::NoRandomness => f.write_str("the system gives no randomness"),
        }
    }
}

impl std::error::Error for JwtError {}

#[cfg(test)]
mod tests;
