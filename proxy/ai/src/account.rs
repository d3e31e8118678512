//! Settlement and usage record of a request that is over.

use std::{sync::Arc, time::Duration};

use weir_ai_session::{Usage, estimate::PromptSample};
use weir_analysis::ai::{Endpoint, Facts};
use weir_base::error::Culprit;
use weir_http::filter::{CompletionStatus, ExchangeTiming};
use weir_spend::{
    Amount, Tokens,
    budget::Day,
    usage::{Flags, UsageRecord},
};

use crate::{attribution::Attribution, response::Found};

/// Bytes of a whole response for which one token is counted if it broke off without a report: nothing of it was kept.
const TOKEN_BYTES: u64 = 4;

/// The texts of a usage record that are known from the beginning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) request: String,
    pub(crate) key: Option<Arc<str>>,
    pub(crate) model: Box<str>,
    pub(crate) attribution: Attribution,
}

/// The side that ended a request before its response was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// It left, or took nothing.
    Client,
    /// It closed, reset, broke a rule or paused for too long.
    Provider,
    /// A drain, an operator, the deadline of the request, a limit of memory.
    Gateway,
}

impl Side {
    /// The side of an exchange with this culprit and this reason.
    pub(crate) fn of(culprit: Option<Culprit>, reason: &str) -> Self {
        match culprit {
            Some(Culprit::Client) => Self::Client,
            Some(Culprit::Upstream) => Self::Provider,
            // The deadline is the gateway's, and the silence the provider's.
            _ if reason == "idle_timeout" => Self::Provider,
            _ => Self::Gateway,
        }
    }
}

/// A request that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending<'a> {
    pub(crate) status: u16,
    pub(crate) end: CompletionStatus,
    /// Which side ended it, if its response is not complete.
    pub(crate) side: Side,
    pub(crate) timing: ExchangeTiming,
    pub(crate) response_bytes: u64,
    /// The last one.
    pub(crate) upstream: &'a str,
    /// The name of the model there.
    pub(crate) model_served: &'a str,
    /// Attempts at providers.
    pub(crate) tries: u32,
    pub(crate) prompt: &'a PromptSample,
    /// The most output tokens that were reserved, of all choices.
    pub(crate) reserved_output: u64,
    /// The findings in the response of a model.
    pub(crate) found: Option<Found>,
}

impl Ending<'_> {
    /// A provider has begun with the request, and not refused it. Neither a client that leaves, nor a cut, nor a deadline of the gateway
    /// takes back its work so far.
    fn has_cost(&self) -> bool {
        let was_sent = !self.timing.upstream.is_zero();
        match (self.status, self.end) {
            (200..300, _) => true,
            (0, _) | (504, CompletionStatus::Refused) => was_sent,
            _ => false,
        }
    }
}

/// Tokens to charge, and the trust that they deserve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bill {
    pub(crate) tokens: Tokens,
    pub(crate) flags: Flags,
}

impl Bill {
    /// The bill of a request. `None`: it cost nothing, since no provider has begun with it, or it has responded with an error.
    pub(crate) fn of(facts: &Facts, ending: &Ending<'_>) -> Option<Self> {
        if ending.tries == 0 || !ending.has_cost() {
            return None;
        }
        let found = ending.found.unwrap_or_default();
        // Behind an error in its stream the provider has ended it, whichever side closes first.
        let ending = &if found.is_failed { Ending { side: Side::Provider, ..*ending } } else { *ending };
        let is_partial = found.is_failed || ending.end != CompletionStatus::Completed && !found.is_done;
        let mut flags = Flags { partial: is_partial, retried: ending.tries > 1, ..Flags::default() };
        let leaves_reasoning = is_partial && ending.side == Side::Client && facts.options.reasons();
        let tokens = match &found.usage {
            Some(usage) => {
                let (reported, is_cut) = self::tokens(usage);
                flags.implausible = is_cut || !usage.doubts.is_empty();
                // One that comes before the end of the output, as Anthropic's first, knows neither what followed it nor the reasoning.
                let is_early = is_partial && !found.progress.is_generated;
                flags.estimated = is_early;
                let least = match is_early {
                    true if leaves_reasoning => ending.reserved_output.max(found.progress.tokens()),
                    true => found.progress.tokens(),
                    false => 0,
                };
                Tokens { output: reported.output.max(least), ..reported }
            }
            None => {
                flags.estimated = true;
                let output = output(facts, ending, &found, (is_partial, leaves_reasoning));
                Tokens { input: ending.prompt.tokens(), output, ..Tokens::default() }
            }
        };
        Some(Self { tokens, flags })
    }
}

/// Output tokens by estimate, where there is no report.
///
/// A client that leaves a model at its reasoning has used it, and sees nothing of it. A provider that breaks off has delivered what was
/// seen, and the client is not at fault.
fn output(facts: &Facts, ending: &Ending<'_>, found: &Found, (is_partial, leaves_reasoning): (bool, bool)) -> u64 {
    if facts.endpoint == Endpoint::Embeddings {
        return 0;
    }
    if !(200..300).contains(&ending.status) {
        return if leaves_reasoning { ending.reserved_output } else { 0 };
    }
    let is_stream = found.progress.events > 0;
    let seen = match found.progress.tokens() {
        0 if !is_stream => ending.response_bytes.div_ceil(TOKEN_BYTES),
        tokens => tokens,
    };
    // The provider had generated everything when the response ended early: hidden reasoning, too.
    let was_generated = if is_stream { found.progress.is_generated } else { !facts.options.is_stream() };
    let pays_all = is_partial && ending.side != Side::Provider && (was_generated || leaves_reasoning);
    if pays_all { seen.max(ending.reserved_output) } else { seen }
}

/// The tokens of a report, with parts that together are no more than their whole: each token has one price. Whether the report had more.
fn tokens(usage: &Usage) -> (Tokens, bool) {
    let reported = Tokens {
        input: usage.input,
        cached_input: usage.cached,
        cache_write: usage.cache_write,
        audio_input: usage.input_audio,
        output: usage.output,
        reasoning: usage.reasoning,
        audio_output: usage.output_audio,
    };
    // The session has compared it with the output that passed.
    reported.plausible(0)
}

/// From the head of a request to the first event of its response, or to its head.
pub(crate) fn first_token(timing: &ExchangeTiming) -> Duration {
    timing.policy + timing.request + timing.queue + timing.upstream
}

/// From the first bytes of a stream, a comment included, to its end, for each output token behind the first. `None`: it is no stream that
/// came whole, or has no second token.
///
/// Source: `gen_ai.server.time_per_output_token` of OpenTelemetry, for successful responses. Tokens of hidden reasoning count, too.
pub(crate) fn per_output_token(ending: &Ending<'_>, bill: &Bill) -> Option<Duration> {
    let is_stream = ending.found.is_some_and(|found| found.progress.events > 0);
    let is_whole = (200..300).contains(&ending.status) && !bill.flags.partial;
    let behind = u32::try_from(bill.tokens.output.saturating_sub(1)).ok()?;
    ending.timing.response.checked_div(behind).filter(|_| is_stream && is_whole)
}

impl Identity {
    /// Appends the usage record of a request that is over.
    pub(crate) fn write(
        &self,
        ending: &Ending<'_>,
        bill: &Bill,
        (charged, price_version): (Amount, u32),
        (time, day): (Duration, Day),
        out: &mut Vec<u8>,
    ) {
        UsageRecord {
            time,
            day,
            model_served: Some(ending.model_served),
            provider: Some(ending.upstream).filter(|name| !name.is_empty()),
            tokens: bill.tokens,
            charged,
            price_version,
            status: ending.status,
            tries: ending.tries,
            queue: ending.timing.queue,
            first_token: (ending.status != 0).then(|| first_token(&ending.timing)),
            total: ending.timing.total,
            flags: bill.flags,
            ..self.record()
        }
        .write(out);
    }

    /// Appends the record of a request that is open, in the short form.
    pub(crate) fn write_open(&self, price_version: u32, time: Duration, out: &mut Vec<u8>) {
        UsageRecord { time, price_version, ..self.record() }.write_open(out);
    }

    /// Appends the usage record of a request that was served from the cache. `saved`: the tokens of the response when it was stored.
    pub(crate) fn write_cached(
        &self,
        ending: &Ending<'_>,
        saved: u64,
        price_version: u32,
        (time, day): (Duration, Day),
        out: &mut Vec<u8>,
    ) {
        UsageRecord {
            time,
            day,
            model_served: Some(ending.model_served),
            provider: Some(ending.upstream),
            price_version,
            saved_tokens: saved,
            status: ending.status,
            queue: ending.timing.queue,
            first_token: (ending.status != 0).then(|| first_token(&ending.timing)),
            total: ending.timing.total,
            flags: Flags { cached: true, ..Flags::default() },
            ..self.record()
        }
        .write(out);
    }

    pub(crate) fn record(&self) -> UsageRecord<'_> {
        let common = self.attribution.record();
        UsageRecord { request: &self.request, key: self.key.as_deref(), model: &self.model, ..common }
    }
}

#[cfg(test)]
mod tests {
    use weir_ai_session::{Doubts, Progress, estimate::TokenEstimate};
    use weir_analysis::ai::{Endpoint, Wanted, read};

    use super::*;

    const BODY: &[u8] = br#"{"model":"m","messages":[{"content":"1234"}]}"#;

    fn bill(ending: Ending<'_>) -> Option<Bill> {
        Bill::of(&read(Endpoint::Chat, BODY, Wanted::default()).expect("valid"), &ending)
    }

    fn ending(status: u16, end: CompletionStatus, found: Option<Found>) -> Ending<'static> {
        let timing = ExchangeTiming { upstream: Duration::from_secs(1), ..ExchangeTiming::default() };
        let (response_bytes, reserved_output) = (400, 900);
        Ending {
            status,
            end,
            side: if end == CompletionStatus::ClientGone { Side::Client } else { Side::Gateway },
            timing,
            response_bytes,
            upstream: "u",
            model_served: "m",
            tries: 1,
            prompt: Box::leak(Box::new(PromptSample::of_tokens(5))),
            reserved_output,
            found,
        }
    }

    fn seen(output_bytes: u64, is_done: bool, usage: Option<Usage>) -> Option<Found> {
        let estimate = TokenEstimate::of_tokens(output_bytes.div_ceil(4));
        let progress = Progress { events: 3, output_events: 2, output_bytes, estimate, is_generated: false };
        Some(Found { usage, progress, is_done, is_failed: false })
    }

    #[test]
    fn the_report_of_the_provider_counts() {
        let usage = Usage { input: 9, cached: 4, output: 5, reasoning: 1, ..Usage::default() };
        let found = bill(ending(200, CompletionStatus::Completed, seen(40, true, Some(usage)))).expect("a bill");
        assert_eq!((found.tokens.total(), found.tokens.cached_input, found.tokens.reasoning), (14, 4, 1));
        assert_eq!(found.flags, Flags::default());
        let lying = Usage { doubts: Doubts::PART, ..usage };
        let found = bill(ending(200, CompletionStatus::Completed, seen(40, true, Some(lying)))).expect("a bill");
        assert!(found.flags.implausible);
    }

    #[test]
    fn the_time_per_output_token_is_that_behind_the_first_of_whole_streams() {
        let timing = ExchangeTiming { response: Duration::from_millis(90), ..ExchangeTiming::default() };
        let usage = |output| Some(Usage { input: 9, output, ..Usage::default() });
        let of = |ending: Ending<'_>| {
            let ending = Ending { timing: ExchangeTiming { upstream: Duration::from_secs(1), ..timing }, ..ending };
            per_output_token(&ending, &bill(ending).unwrap_or_default())
        };
        let completed = CompletionStatus::Completed;
        assert_eq!(of(ending(200, completed, seen(4, true, usage(10)))), Some(Duration::from_millis(10)));
        assert_eq!(of(ending(200, completed, seen(4, true, usage(1)))), None, "there is no second token");
        assert_eq!(of(ending(200, CompletionStatus::ClientGone, seen(40, false, None))), None, "it is no whole one");
        assert_eq!(of(ending(429, completed, None)), None);
        let whole = Some(Found { usage: usage(10), is_done: true, ..Found::default() });
        assert_eq!(of(ending(200, completed, whole)), None, "it is no stream");
    }

    #[test]
    fn a5_a_client_that_leaves_pays_for_the_prompt_and_for_what_it_has_received() {
        let gone = CompletionStatus::ClientGone;
        let found = bill(ending(200, gone, seen(10, false, None))).expect("a bill");
        assert_eq!((found.tokens.input, found.tokens.output), (5, 3));
        assert!(found.flags.partial && found.flags.estimated);
        let before = bill(ending(0, gone, None)).expect("a bill");
        assert!(before.flags.partial && before.tokens.input == 5);
        let usage = Usage { input: 1, output: 2, ..Usage::default() };
        let done = bill(ending(200, gone, seen(10, true, Some(usage)))).expect("a bill");
        assert!(!done.flags.partial && !done.flags.estimated, "it left behind the end");
    }

    #[test]
    fn a_client_that_leaves_between_the_end_of_the_output_and_its_report_pays_the_reservation() {
        let gone = CompletionStatus::ClientGone;
        let estimate = TokenEstimate::of_tokens(3);
        let progress = Progress { events: 3, output_events: 2, output_bytes: 10, estimate, is_generated: true };
        let found = Some(Found { usage: None, progress, is_done: false, is_failed: false });
        assert_eq!(bill(ending(200, gone, found)).expect("a bill").tokens.output, 900);
        assert_eq!(bill(ending(200, CompletionStatus::Aborted, found)).expect("a bill").tokens.output, 900);
        // More than was reserved has been seen.
        let small = Ending { reserved_output: 2, ..ending(200, gone, found) };
        assert_eq!(bill(small).expect("a bill").tokens.output, 3);
        // A whole response is generated when its head comes.
        assert_eq!(bill(ending(200, gone, Some(Found::default()))).expect("a bill").tokens.output, 900);
        let usage = Usage { input: 1, output: 2, ..Usage::default() };
        let reported = Some(Found { usage: Some(usage), progress, is_done: false, is_failed: false });
        assert_eq!(bill(ending(200, gone, reported)).expect("a bill").tokens.output, 2, "the report counts");
    }

    #[test]
    fn a_provider_that_breaks_off_is_paid_for_its_part() {
        let broken = |found| Ending { side: Side::Provider, ..ending(200, CompletionStatus::Aborted, found) };
        let whole = bill(broken(Some(Found::default()))).expect("a bill");
        assert_eq!((whole.tokens.input, whole.tokens.output), (5, 100), "400 bytes of a response that is no stream");
        assert!(whole.flags.partial && whole.flags.estimated);
        let estimate = TokenEstimate::of_tokens(3);
        let progress = Progress { events: 3, output_events: 2, output_bytes: 10, estimate, is_generated: true };
        let stream = Some(Found { usage: None, progress, is_done: false, is_failed: false });
        assert_eq!(bill(broken(stream)).expect("a bill").tokens.output, 3, "behind the reason to finish");
        for side in [Side::Client, Side::Gateway] {
            let other = Ending { side, ..broken(stream) };
            assert_eq!(bill(other).expect("a bill").tokens.output, 900, "{side:?}");
        }
    }

    #[test]
    fn each_token_of_a_report_has_one_class() {
        let overlapping = Usage {
            input: 100,
            cached: 80,
            input_audio: 70,
            output: 50,
            reasoning: 40,
            output_audio: 30,
            ..Usage::default()
        };
        let found = bill(ending(200, CompletionStatus::Completed, seen(40, true, Some(overlapping)))).expect("a bill");
        let Tokens { cached_input, audio_input, reasoning, audio_output, .. } = found.tokens;
        assert_eq!((found.tokens.total(), cached_input, audio_input, reasoning, audio_output), (150, 80, 20, 40, 10));
        assert!(found.flags.implausible);
    }

    #[test]
    fn an_error_in_a_stream_is_the_end_of_the_provider() {
        let reasoning = br#"{"model":"m","stream":true,"reasoning_effort":"high","messages":[]}"#;
        let facts = read(Endpoint::Chat, reasoning, Wanted::default()).expect("valid");
        for end in [CompletionStatus::Completed, CompletionStatus::ClientGone] {
            let found = seen(40, false, None).map(|found| Found { is_failed: true, ..found });
            let found = Bill::of(&facts, &ending(200, end, found)).expect("a bill");
            assert_eq!((found.tokens.output, found.flags.partial), (10, true), "{end:?}");
        }
    }

    #[test]
    fn an_early_report_does_not_hide_the_output_that_followed_it() {
        // Anthropic's first event says one token, and the number of events that followed says two.
        let early = Some(Usage { input: 7, output: 2, ..Usage::default() });
        for (side, end) in [
            (Side::Client, CompletionStatus::ClientGone),
            (Side::Provider, CompletionStatus::Aborted),
            (Side::Gateway, CompletionStatus::Aborted),
        ] {
            let broken = Ending { side, ..ending(200, end, seen(400, false, early)) };
            let found = bill(broken).expect("a bill");
            assert_eq!((found.tokens.input, found.tokens.output), (7, 100), "{side:?}");
            assert!(found.flags.partial && found.flags.estimated, "{side:?}");
        }
        let whole = bill(ending(200, CompletionStatus::Completed, seen(400, true, early))).expect("a bill");
        assert_eq!((whole.tokens.output, whole.flags.estimated), (2, false), "the last report counts");
    }

    #[test]
    fn the_side_of_an_end_is_that_of_its_culprit() {
        for (culprit, reason, wanted) in [
            (Some(Culprit::Client), "client_stalled", Side::Client),
            (Some(Culprit::Upstream), "origin_closed", Side::Provider),
            (Some(Culprit::Gateway), "idle_timeout", Side::Provider),
            (Some(Culprit::Gateway), "call_expired", Side::Gateway),
            (None, "drain_cut", Side::Gateway),
        ] {
            assert_eq!(Side::of(culprit, reason), wanted, "{reason}");
        }
    }

    #[test]
    fn a_client_that_leaves_a_model_at_its_reasoning_pays_the_reservation() {
        let gone = CompletionStatus::ClientGone;
        let early = Usage { input: 7, output: 1, ..Usage::default() };
        for (mode, wanted) in [
            (r#""reasoning_effort":"high""#, [900, 900, 900]),
            (r#""reasoning_effort":"none""#, [0, 3, 1]),
            (r#""thinking":{"type":"enabled","budget_tokens":99}"#, [900, 900, 900]),
            (r#""n":1"#, [0, 3, 1]),
        ] {
            let body = format!(r#"{{"model":"m","stream":true,{mode},"messages":[{{"content":"1234"}}]}}"#);
            let facts = read(Endpoint::Chat, body.as_bytes(), Wanted::default()).expect("valid");
            let bill = |ending: &Ending<'_>| Bill::of(&facts, ending).expect("a bill");
            let all = [
                ending(0, gone, None),
                ending(200, gone, seen(10, false, None)),
                ending(200, gone, seen(4, false, Some(early))),
            ];
            assert_eq!(all.map(|ending| bill(&ending).tokens.output), wanted, "{mode}");
            let report = Usage { input: 7, output: 50, reasoning: 40, ..Usage::default() };
            assert_eq!(
                bill(&ending(200, gone, seen(10, true, Some(report)))).tokens.output,
                50,
                "the report counts: {mode}"
            );
            // Neither a break of the provider nor one of the gateway is the client's choice.
            let deadline = bill(&ending(504, CompletionStatus::Refused, None));
            assert_eq!((deadline.tokens.input, deadline.tokens.output), (5, 0), "{mode}");
        }
    }

    #[test]
    fn a_cut_or_a_deadline_before_the_response_does_not_take_the_prompt_back() {
        let ends =
            [(0, CompletionStatus::Aborted), (0, CompletionStatus::ClientGone), (504, CompletionStatus::Refused)];
        for (status, end) in ends {
            let found = bill(ending(status, end, None)).expect("a bill");
            assert_eq!((found.tokens.input, found.tokens.output), (5, 0), "{status} {end:?}");
            assert!(found.flags.partial && found.flags.estimated);
            let unsent = Ending { timing: ExchangeTiming::default(), ..ending(status, end, None) };
            assert_eq!(bill(unsent), None, "it waited for a connection: {status} {end:?}");
        }
        assert_eq!(bill(ending(504, CompletionStatus::Completed, None)), None, "the provider's own");
    }

    #[test]
    fn embeddings_without_a_report_cost_their_input() {
        let facts = read(Endpoint::Embeddings, br#"{"model":"m","input":["12345678"]}"#, Wanted::default());
        let found = Bill::of(&facts.expect("valid"), &ending(200, CompletionStatus::Completed, None)).expect("a bill");
        assert_eq!((found.tokens.input, found.tokens.output), (5, 0));
    }

    #[test]
    fn a_whole_response_without_a_report_is_estimated_by_its_text() {
        let progress = Progress { estimate: TokenEstimate::of_tokens(70), ..Progress::default() };
        let found = Some(Found { progress, is_done: true, ..Found::default() });
        let found = bill(ending(200, CompletionStatus::Completed, found)).expect("a bill");
        assert_eq!((found.tokens.output, found.flags.estimated), (70, true));
    }

    #[test]
    fn a_response_without_a_report_is_estimated_and_an_error_is_free() {
        let completed = CompletionStatus::Completed;
        let whole = bill(ending(200, completed, Some(Found { is_done: true, ..Found::default() }))).expect("a bill");
        assert_eq!((whole.tokens.output, whole.flags.estimated, whole.flags.partial), (100, true, false));
        let unreadable = bill(ending(200, completed, None)).expect("a bill");
        assert!(unreadable.flags.estimated);
        assert_eq!(bill(ending(429, completed, None)), None);
        assert_eq!(bill(ending(502, CompletionStatus::Refused, None)), None);
        assert_eq!(bill(Ending { tries: 0, ..ending(0, CompletionStatus::ClientGone, None) }), None);
        let retried = bill(Ending { tries: 2, ..ending(200, completed, None) }).expect("a bill");
        assert!(retried.flags.retried);
    }
}
