//! The fields that the gateway adds to the head of a response.

use std::time::Duration;

use weir_http::filter::ExchangeTiming;
use weir_http_codec::Fields;
use weir_spend::{
    meter::Rates,
    rate::{RateState, duration_text},
};

/// The fields of a rate: its limit, the rest of it, and the time until all of it is there again.
type Names = [&'static str; 3];

const REQUESTS: Names = ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"];
const TOKENS: Names = ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"];

/// Room for the times of one response.
const TIMING_BYTES: usize = 64;

/// Shows the rates of a key, if it has any. They take the place of those of the provider, which are those of all keys.
pub(crate) fn show_rates(rates: &Rates, fields: &mut Fields) {
    for (names, state) in [(REQUESTS, rates.requests), (TOKENS, rates.tokens)] {
        let Some(RateState { limit, remaining, reset, .. }) = state else { continue };
        fields.retain(|field| !names.iter().any(|name| field.name.eq_ignore_ascii_case(name.as_bytes())));
        let [limit_name, remaining_name, reset_name] = names.map(str::as_bytes);
        fields.push(limit_name, itoa::Buffer::new().format(limit).as_bytes());
        fields.push(remaining_name, itoa::Buffer::new().format(remaining).as_bytes());
        fields.push(reset_name, duration_text(reset).as_bytes());
    }
}

/// Shows the gateway's own share of the time until the head, beside that of the provider, in milliseconds (Server-Timing).
pub(crate) fn show_timing(timing: &ExchangeTiming, fields: &mut Fields) {
    let mut text = Vec::with_capacity(TIMING_BYTES);
    let parts = [
        ("policy;dur=", timing.policy + timing.request),
        (", queue;dur=", timing.queue),
        (", upstream;dur=", timing.upstream),
    ];
    for (name, span) in parts {
        text.extend_from_slice(name.as_bytes());
        millis(span, &mut text);
    }
    fields.push(b"server-timing", &text);
}

/// Appends a span in milliseconds with three digits behind the point.
fn millis(span: Duration, into: &mut Vec<u8>) {
    let micros = u64::try_from(span.as_nanos().saturating_add(500) / 1_000).unwrap_or(u64::MAX);
    into.extend_from_slice(itoa::Buffer::new().format(micros / 1_000).as_bytes());
    let rest = (micros % 1_000) as u16;
    into.extend_from_slice(&[b'.', digit(rest / 100), digit(rest / 10), digit(rest)]);
}

fn digit(number: u16) -> u8 {
    b'0' + (number % 10) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_written_in_milliseconds() {
        let rows = [(0, "0.000"), (499, "0.000"), (500, "0.001"), (1_234_567, "1.235"), (60_000_000_000, "60000.000")];
        for (nanos, expected) in rows {
            let mut text = Vec::new();
            millis(Duration::from_nanos(nanos), &mut text);
            assert_eq!(String::from_utf8_lossy(&text), expected);
        }
    }

    #[test]
    fn rates_of_the_key_replace_those_of_the_provider() {
        let mut fields = Fields::new();
        fields.push(b"X-RateLimit-Limit-Requests", b"7");
        fields.push(b"x-ratelimit-limit-tokens", b"8");
        let state = RateState { limit: 60, remaining: 59, reset: Duration::from_secs(1), next: Duration::ZERO };
        show_rates(&Rates { requests: Some(state), tokens: None }, &mut fields);
        let found: Vec<_> = fields
            .iter()
            .map(|field| [field.name, field.value].map(|text| String::from_utf8_lossy(text).into_owned()))
            .collect();
        let expected = [
            ["x-ratelimit-limit-tokens", "8"],
            ["x-ratelimit-limit-requests", "60"],
            ["x-ratelimit-remaining-requests", "59"],
            ["x-ratelimit-reset-requests", "1s"],
        ];
        assert_eq!(found, expected.map(|line| line.map(str::to_owned)));
    }
}
