//! Keys that programs send along.
//!
//! A key is known by its SHA-256 only. Each [`ApiKeys`] keeps these under a keyed hash with a key of its own, in order, so
//! a lookup is a binary search whose steps say nothing about the stored keys, with a comparison in constant time at its
//! end. Keys are long and random, so one fast hash is enough; for passwords there is `basic`.

use std::{borrow::Cow, fmt, sync::Arc};

use aws_lc_rs::{
    digest::{SHA256, digest},
    hmac, rand,
};
use subtle::ConstantTimeEq;
use weir_analysis::http::{cookie, query};
use weir_http_codec::{Fields, Known, RequestHead, token};

use super::{cache::Digest, refusal::Refusal};

/// Keys of one policy. Default 65,536. Worst case about 100 bytes each, 7 MB.
pub const KEYS_MAX: usize = 65_536;

/// Bytes of a key that a client sends. Default 1,024; longer ones are no key.
pub const KEY_BYTES_MAX: usize = 1_024;

/// Bytes of the name of a key's owner, which is in logs. Default 256.
pub const KEY_NAME_BYTES_MAX: usize = 256;

/// Places where a key may be. Default 8.
pub const PLACES_MAX: usize = 8;

/// Where a key may be in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// The value of this header. If the name is `authorization`, the scheme in front of the key (`Bearer`, `ApiKey`) is
    /// given too.
    Header {
        /// Any case.
        name: String,
        /// A word before the key, and a space; any case. Empty: the value is the key.
        scheme: String,
    },
    /// The first pair with this name in the query. Keys in a query end up in logs of others: for clients that cannot do
    /// better.
    Query(String),
    /// The first cookie with this name.
    Cookie(String),
}

/// The SHA-256 of a key. Printed it shows nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyHash(Digest);

impl KeyHash {
    /// Hash of a key in clear.
    pub fn of(key: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, key).as_ref());
        Self(hash)
    }

    /// From 64 hexadecimal characters, as `sha256sum` prints them.
    pub fn from_hex(text: &str) -> Option<Self> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let mut hash = [0; 32];
        if pairs.len() != hash.len() || !rest.is_empty() {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        for (byte, pair) in hash.iter_mut().zip(pairs) {
            *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
        }
        Some(Self(hash))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// A key and whose it is.
#[derive(Clone, Debug)]
pub struct ApiKey {
    /// Name of its client: for logs, and for a rate limit. Several keys may have one name, as when a key is changed.
    pub name: Arc<str>,
    /// The key.
    pub hash: KeyHash,
}

/// The policy: keys and where to look for them.
#[derive(Debug)]
pub struct ApiKeys {
    /// By the keyed hash.
    keys: Box<[(Digest, Arc<str>)]>,
    places: Box<[KeyPlace]>,
    secret: hmac::Key,
    is_stripped: bool,
}

impl ApiKeys {
    /// A policy for these keys. The first place where a request has something decides; `is_stripped`: keys are not
    /// forwarded, see [`ApiKeys::strip`].
    ///
    /// # Errors
    /// No keys or places, too many, a key or name that is none; no randomness.
    pub fn new(keys: &[ApiKey], places: Vec<KeyPlace>, is_stripped: bool) -> Result<Self, ApiKeyError> {
        if keys.is_empty() {
            return Err(ApiKeyError::NoKeys);
        }
        if keys.len() > KEYS_MAX {
            return Err(ApiKeyError::TooManyKeys(keys.len()));
        }
        if places.is_empty() || places.len() > PLACES_MAX {
            return Err(ApiKeyError::Places(places.len()));
        }
        if let Some(place) = places.iter().find(|place| !is_place(place)) {
            return Err(ApiKeyError::Place(place.clone()));
        }
        let is_name = |name: &str| {
            (1..=KEY_NAME_BYTES_MAX).contains(&name.len()) && !name.bytes().any(|byte| byte.is_ascii_control())
        };
        if let Some(bad) = keys.iter().find(|key| !is_name(&key.name)) {
            return Err(ApiKeyError::Name(bad.name.chars().take(KEY_NAME_BYTES_MAX).collect()));
        }
        let mut secret = [0; 32];
        rand::fill(&mut secret).map_err(|_| ApiKeyError::NoRandomness)?;
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        let mut keys: Vec<_> = keys.iter().map(|key| (keyed(&secret, key.hash), Arc::clone(&key.name))).collect();
        keys.sort();
        if let Some(twice) = keys.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(ApiKeyError::Twice(twice[0].1.to_string()));
        }
        Ok(Self { keys: keys.into(), places: places.into(), secret, is_stripped })
    }

    /// Whose key the request has.
    ///
    /// # Errors
    /// 401: none, or one that is not known.
    pub fn check(&self, head: &RequestHead) -> Result<&Arc<str>, Refusal> {
        let mut found = self.places.iter().filter_map(|place| key_at(place, head));
        let Some(key) = found.next() else { return Err(self.unauthorized("api_key_missing")) };
        let known = (key.len() <= KEY_BYTES_MAX).then(|| self.find(&key)).flatten();
        known.ok_or_else(|| self.unauthorized("api_key_unknown"))
    }

    /// Takes what stands in the places of keys away before the request is forwarded, if the policy says so: all of it,
    /// for what the gateway has not looked at must not pass for looked at.
    pub fn strip(&self, head: &mut RequestHead) {
        if self.is_stripped {
            strip(&self.places, head);
        }
    }

    fn find(&self, key: &[u8]) -> Option<&Arc<str>> {
        let wanted = keyed(&self.secret, KeyHash::of(key));
        let at = self.keys.partition_point(|(known, _)| *known < wanted);
        let (known, name) = self.keys.get(at)?;
        bool::from(known.ct_eq(&wanted)).then_some(name)
    }

    /// A 401 has a challenge (RFC 9110 15.5.2); its scheme is not registered, but others send it too. It reveals nothing else.
    fn unauthorized(&self, reason: &'static str) -> Refusal {
        Refusal::new(401, reason).with(Known::WwwAuthenticate.name(), b"ApiKey")
    }
}

/// Takes away what stands in these places.
pub(super) fn strip(places: &[KeyPlace], head: &mut RequestHead) {
    for place in places {
        match place {
            // Whatever its scheme and its spelling: what was not looked at must not pass for looked at.
            KeyPlace::Header { name, .. } => {
                head.fields.retain(|field| !is_same_name(name, field.name));
            }
            KeyPlace::Query(name) => {
                if let Some(target) = without_query(head.target(), name.as_bytes()) {
                    head.set_target(&target);
                }
            }
            KeyPlace::Cookie(name) => strip_cookie(&mut head.fields, name.as_bytes()),
        }
    }
}

/// Whether origins may take two field names for one: in any case, and `_` for `-`, as CGI and its heirs do.
pub fn is_same_name(name: &str, own: &[u8]) -> bool {
    let folded = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.len() == own.len() && name.bytes().map(folded).eq(own.iter().copied().map(folded))
}

fn keyed(secret: &hmac::Key, hash: KeyHash) -> Digest {
    let mut digest = [0; 32];
    digest.copy_from_slice(hmac::sign(secret, &hash.0).as_ref());
    digest
}

pub(super) fn is_place(place: &KeyPlace) -> bool {
    match place {
        KeyPlace::Header { name, scheme } => {
            token::is_token(name.as_bytes()) && (scheme.is_empty() || token::is_token(scheme.as_bytes()))
        }
        KeyPlace::Query(name) => !name.is_empty(),
        KeyPlace::Cookie(name) => token::is_token(name.as_bytes()),
    }
}

/// The key in this place; none if it is empty. A header must be there just once: of two, the origin might take the other.
pub(super) fn key_at<'a>(place: &'a KeyPlace, head: &'a RequestHead) -> Option<Cow<'a, [u8]>> {
    let key = match place {
        KeyPlace::Header { name, scheme } => {
            let mut lines = head.fields.all_named(name.as_bytes());
            let line = lines.next().filter(|_| lines.next().is_none())?;
            Cow::Borrowed(behind_scheme(line, scheme.as_bytes())?)
        }
        KeyPlace::Query(name) => {
            let (_, query) = split_target(head.target())?;
            query::first(query, name.as_bytes())?.decoded()
        }
        KeyPlace::Cookie(name) => Cow::Borrowed(cookie::value_in(head.fields.all(Known::Cookie), name.as_bytes())?),
    };
    (!key.is_empty()).then_some(key)
}

fn behind_scheme<'a>(line: &'a [u8], scheme: &[u8]) -> Option<&'a [u8]> {
    if scheme.is_empty() {
        return Some(line);
    }
    let (word, rest) = line.split_at_checked(scheme.len())?;
    let is_scheme = word.eq_ignore_ascii_case(scheme) && rest.first() == Some(&b' ');
    is_scheme.then(|| token::trim(rest))
}

fn split_target(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = target.iter().position(|&byte| byte == b'?')?;
    Some((&target[..at], &target[at + 1..]))
}

/// The target without the pairs of this name, all else as it came; `None` if there are none.
fn without_query(target: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let (path, query) = split_target(target)?;
    let is_key = |piece: &[u8]| query::pairs(piece).any(|(candidate, _)| candidate.is(name));
    if !query.split(|&byte| byte == b'&').any(is_key) {
        return None;
    }
    let mut kept = path.to_vec();
    for (index, piece) in query.split(|&byte| byte == b'&').filter(|piece| !is_key(piece)).enumerate() {
        kept.push(if index == 0 { b'?' } else { b'&' });
        kept.extend_from_slice(piece);
    }
    Some(kept)
}

/// Takes all cookies of this name out of all lines; a line without a cookie goes.
fn strip_cookie(fields: &mut Fields, name: &[u8]) {
    let is_key = |piece: &&[u8]| cookie::pairs(piece).any(|(candidate, _)| candidate == name);
    let pieces = |line: &[u8]| line.split(|&byte| byte == b';').any(|piece| is_key(&piece));
    if !fields.all(Known::Cookie).any(pieces) {
        return;
    }
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for line in fields.all(Known::Cookie) {
        let kept = line.split(|&byte| byte == b';').filter(|piece| !is_key(piece)).map(token::trim);
        let kept: Vec<&[u8]> = kept.filter(|piece| !piece.is_empty()).collect();
        if !kept.is_empty() {
            lines.push(kept.join(&b"; "[..]));
        }
    }
    fields.remove(Known::Cookie);
    for line in &lines {
        fields.add(Known::Cookie, line);
    }
}

/// Why a policy cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiKeyError {
    /// No key.
    NoKeys,
    /// So many.
    TooManyKeys(usize),
    /// No place, or so many.
    Places(usize),
    /// A place that no request has.
    Place(KeyPlace),
    /// A name that is empty, too long, or has a control character.
    Name(String),
    /// One key twice; the name of one of them.
    Twice(String),
    /// The system gives no randomness.
    NoRandomness,
}

impl fmt::Display for ApiKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKeys => f.write_str("there is no API key, so no client would be served: name one"),
            Self::TooManyKeys(count) => write!(f, "{count} API keys; the most is {KEYS_MAX}"),
            Self::Places(count) => write!(f, "API keys are looked for in {count} places; it must be 1 to {PLACES_MAX}"),
            Self::Place(KeyPlace::Header { name, scheme }) => {
                write!(
                    f,
                    "header `{name}`, scheme `{scheme}`: both are words without spaces, and the scheme may be empty"
                )
            }
            Self::Place(KeyPlace::Query(_)) => f.write_str("the name of a query parameter is empty"),
            Self::Place(KeyPlace::Cookie(name)) => write!(f, "`{name}` is no name of a cookie"),
            Self::Name(name) => {
                write!(f, "API key `{name}`: a name has 1 to {KEY_NAME_BYTES_MAX} bytes and no control character")
            }
            Self::Twice(name) => write!(f, "the API key of `{name}` is there twice"),
            Self::NoRandomness => f.write_str("the system gives no randomness"),
        }
    }
}

impl std::error::Error for ApiKeyError {}

#[cfg(test)]
mod tests;
