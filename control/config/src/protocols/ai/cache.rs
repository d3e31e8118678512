//! The exact cache: the rule of a key or of a listener, and the bounds of the process.

use weir_ai::settings::{CacheSettings, KeyMode};
use weir_spend::policy::CacheRule;

use super::keys::{AiSection, ListenerAiSection};
use crate::checks::{Lowest, error_at};
use crate::document::At;
use crate::numbers::Period;
use crate::reader::Reader;

/// The rule of these two keys; mistakes are reported.
pub(super) fn rule(
    ttl: Option<&At<Period>>,
    sampled: &At<bool>,
    path: &str,
    reader: &mut Reader<'_>,
) -> Option<CacheRule> {
    if ttl.is_none() && sampled.value {
        let help = "add cache_ttl = \"5m\", or remove it";
        error_at(sampled, path, "cache_sampled", "has no effect without cache_ttl: nothing is cached", help, reader);
    }
    Some(CacheRule { ttl: ttl?.value.0, takes_sampled: sampled.value })
}

/// The rule of a listener without keys; mistakes are reported.
pub(super) fn of_listener(section: &ListenerAiSection, path: &str, reader: &mut Reader<'_>) -> Option<CacheRule> {
    if let Some(ttl) = section.cache_ttl.as_ref().filter(|_| section.keys.value == KeyMode::Required) {
        let help = "write it in [[listener.ai.key]], for each key that may use the cache";
        error_at(ttl, path, "cache_ttl", "has no effect: each key has its own cache_ttl", help, reader);
        return None;
    }
    rule(section.cache_ttl.as_ref(), &section.cache_sampled, path, reader)
}

/// The bounds of the process; mistakes are reported.
pub(super) fn bounds(section: &AiSection, reader: &mut Reader<'_>) -> CacheSettings {
    let (all, one) = (&section.cache_bytes_max, &section.cache_response_bytes_max);
    Lowest { path: "ai", key: "cache_response_bytes_max", other: "ai.cache_bytes_max" }.check(one, all, reader);
    CacheSettings { bytes_max: all.value.bytes(), response_bytes_max: one.value.bytes(), ..CacheSettings::default() }
}
