//! The claims of a token, once its signature is known to be good (RFC 7519 4.1).

use serde_json::Value as Json;
use weir_http_codec::token;

use super::{ClaimHeader, Provider, SKEW_SECONDS};

/// Why the claims of a token are not enough: the reason, and the description for the client.
pub(super) type ClaimsError = (&'static str, &'static str);

/// Until when the token holds, in seconds of Unix time, the skew included.
pub(super) fn check(claims: &Json, provider: &Provider, now: u64) -> Result<u64, ClaimsError> {
    let is = |name: &str, wanted: &str| claims.get(name).and_then(Json::as_str) == Some(wanted);
    if provider.issuer.as_deref().is_some_and(|issuer| !is("iss", issuer)) {
        return Err(("jwt_issuer", "The issuer is not known"));
    }
    let is_audience = |wanted: &String| match claims.get("aud") {
        Some(Json::Array(all)) => all.iter().any(|one| one == wanted.as_str()),
        _ => is("aud", wanted),
    };
    if !provider.audiences.is_empty() && !provider.audiences.iter().any(is_audience) {
        return Err(("jwt_audience", "The token is for somebody else"));
    }
    let malformed = ("jwt_malformed", "The token is malformed");
    let seconds = |name: &str| match claims.get(name) {
        None => Ok(None),
        Some(value) => value.as_f64().filter(|it| *it >= 0.0).map(|it| Some(it as u64)).ok_or(malformed),
    };
    let latest = now.saturating_add(SKEW_SECONDS);
    if seconds("nbf")?.is_some_and(|from| from > latest) || seconds("iat")?.is_some_and(|made| made > latest) {
        return Err(("jwt_not_yet", "The token is not valid yet"));
    }
    match seconds("exp")? {
        None if provider.requires_exp => Err(("jwt_no_exp", "The token has no end")),
        None => Ok(u64::MAX),
        Some(end) if end.saturating_add(SKEW_SECONDS) <= now => Err(("jwt_expired", "The token has expired")),
        Some(end) => Ok(end.saturating_add(SKEW_SECONDS)),
    }
}

/// The value of a claim as that of a header: a string, number or boolean that has no byte a header may not have.
pub(super) fn render(claims: &Json, header: &ClaimHeader) -> Option<String> {
    let claim = header.claim.iter().try_fold(claims, |inside, name| inside.get(name))?;
    let text = match claim {
        Json::String(text) => text.clone(),
        Json::Number(number) => number.to_string(),
        Json::Bool(is) => is.to_string(),
        Json::Null | Json::Array(_) | Json::Object(_) => return None,
    };
    let fits = text.len() <= super::CACHED_CLAIM_BYTES_MAX && token::is_field_value(text.as_bytes());
    fits.then_some(text)
}
