//! The requirements of an HTTP listener or route for a request before it is forwarded.
//!
//! | file | question | the response if not |
//! |---|---|---|
//! | `address` | does it come from where it may? Also: whose request is it, behind trusted proxies | 403 |
//! | `cors` | is it a browser that asks first, and which fields do its responses carry (Fetch standard) | 204, without leave |
//! | `basic`, `password` | is it somebody with a password (RFC 7617) | 401, 503 |
//! | `api_key` | is it a program with a key | 401 |
//! | `jwt` | is it somebody with a token of an issuer that is trusted (RFC 7519) | 401 |
//! | `rate` | is it within what this client, or all, may ask | 429 |
//!
//! They are checked in this order, and authentication before the rate limit, so that a limit can count by who it is. All are
//! pure: bytes and the time in, a response out. The settings of a policy are checked when it is built, on the control thread.
//! Built, it does not change and is shared by all workers.
//!
//! A [`Refusal`] has a reason that is a word of this crate and never of the client, so it may be a metric label.

mod address;
mod api_key;
mod basic;
mod cache;
mod cors;
mod jwt;
mod password;
mod rate;
mod refusal;

pub use address::{AddressError, AddressRules, Effect, ForwardedFor, HOPS_MAX, NETS_MAX, Source};
pub use api_key::{
    ApiKey, ApiKeyError, ApiKeys, KEY_BYTES_MAX, KEY_NAME_BYTES_MAX, KEYS_MAX, KeyHash, KeyPlace, PLACES_MAX,
    is_same_name,
};
pub use basic::{
    Basic, BasicCheck, BasicError, BasicUser, CHECKS_MAX, HtpasswdError, PASSWORD_BYTES_MAX, REALM_BYTES_MAX, SEEN_FOR,
    SEEN_MAX, SeenCredentials, SlowCheck, SlowOutcome, USER_BYTES_MAX, USERS_MAX, WRONG_FOR, parse_htpasswd,
};
pub use cors::{Cors, CorsError, CorsSettings, LIST_ENTRIES_MAX, ORIGINS_MAX, OriginRule, Preflight, is_preflight};
pub use jwt::{
    Algorithm, CACHED_CLAIM_BYTES_MAX, ClaimHeader, JWKS_BYTES_MAX, JWKS_KEYS_MAX, Jwt, JwtError, KeySet, Keys,
    PROVIDERS_MAX, Provider, SKEW_SECONDS, SharedKeys, TOKEN_BYTES_MAX, TOKENS_MAX, TRIES_MAX, TokenCache, Verified,
};
pub use password::{BCRYPT_COST_MAX, PBKDF2_ROUNDS_MAX, PasswordError, StoredPassword};
pub use rate::{
    ENTRIES, ENTRIES_MAX, IPV6_PREFIX, MissingKey, PERIOD_MAX, RATE_NAME_BYTES_MAX, RateError, RateFields, RateKey,
    RateLimit, RateOutcome, RateSettings, WAYS,
};
pub use refusal::Refusal;

/// A request for tests.
#[cfg(test)]
fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> weir_http_codec::RequestHead {
    use weir_http_codec::{Fields, HeadLimits, RequestHead, Version};
    let mut own = Fields::new();
    fields.iter().for_each(|(name, value)| own.push(name.as_bytes(), value.as_bytes()));
    let line = (method.as_bytes(), target.as_bytes(), &b"a.example"[..]);
    RequestHead::from_parts(Version::Http11, line, own, true, &HeadLimits::default()).expect("a request")
}
