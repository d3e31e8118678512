//! Settlement and usage record of a request that is over.

use std::{sync::Arc, time::Duration};

use weir_ai_session::Usage;
use weir_analysis::ai::{Endpoint, Facts};
use weir_http::filter::{CompletionStatus, ExchangeTiming};
use weir_spend::{
    Amount, Tokens,
    budget::Day,
    usage::{Flags, UsageRecord},
};

use crate::response::Found;

/// Bytes of a text for which one token is counted where a provider reports none. The usual average of vocabularies.
const TOKEN_BYTES: u64 = 4;

/// The texts of a usage record that are known from the beginning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) request: String,
    pub(crate) key: Option<Arc<str>>,
    pub(crate) model: Box<str>,
    pub(crate) user: Option<Box<str>>,
    pub(crate) conversation: Option<Box<str>>,
}

/// A request that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending<'a> {
    pub(crate) status: u16,
    pub(crate) end: CompletionStatus,
    pub(crate) timing: ExchangeTiming,
    pub(crate) response_bytes: u64,
    /// The last one.
    pub(crate) upstream: &'a str,
    /// The name of the model there.
    pub(crate) model_served: &'a str,
    /// Attempts at providers.
    pub(crate) tries: u32,
    /// The most output tokens that were reserved, of all answers.
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
        let is_partial = ending.end != CompletionStatus::Completed && !found.is_done;
        let mut flags = Flags { partial: is_partial, retried: ending.tries > 1, ..Flags::default() };
        let tokens = match &found.usage {
            Some(usage) => {
                flags.implausible = !usage.doubts.is_empty();
                self::tokens(usage)
            }
            None => {
                flags.estimated = true;
                let output = output(facts, ending, &found, is_partial);
                Tokens { input: facts.prompt_tokens(TOKEN_BYTES), output, ..Tokens::default() }
            }
        };
        Some(Self { tokens, flags })
    }
}

/// Output tokens by estimate, where there is no report.
fn output(facts: &Facts, ending: &Ending<'_>, found: &Found, is_partial: bool) -> u64 {
    if facts.endpoint == Endpoint::Embeddings || !(200..300).contains(&ending.status) {
        return 0;
    }
    let is_stream = found.progress.events > 0;
    // A whole response is known by its size alone.
    let bytes = if is_stream { found.progress.output_bytes } else { ending.response_bytes };
    let seen = bytes.div_ceil(TOKEN_BYTES);
    // The provider had generated everything when the response ended early: hidden reasoning, too.
    let was_generated = if is_stream { found.progress.is_generated } else { !facts.options.is_stream() };
    if is_partial && was_generated { seen.max(ending.reserved_output) } else { seen }
}

fn tokens(usage: &Usage) -> Tokens {
    Tokens {
        input: usage.input,
        cached_input: usage.cached,
        cache_write: usage.cache_write,
        audio_input: usage.input_audio,
        output: usage.output,
        reasoning: usage.reasoning,
        audio_output: usage.output_audio,
    }
}

/// From the head of a request to the first event of its response, or to its head.
pub(crate) fn first_token(timing: &ExchangeTiming) -> Duration {
    timing.policy + timing.request + timing.queue + timing.upstream
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

    /// Appends the usage record of a request that the process does not survive.
    pub(crate) fn write_crash(&self, charged: Amount, price_version: u32, time: Duration, day: Day, out: &mut Vec<u8>) {
        let flags = Flags { crash: true, ..Flags::default() };
        UsageRecord { time, day, charged, price_version, flags, ..self.record() }.write(out);
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
        UsageRecord {
            request: &self.request,
            key: self.key.as_deref(),
            model: &self.model,
            user: self.user.as_deref(),
            conversation: self.conversation.as_deref(),
            ..UsageRecord::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_ai_session::{Doubts, Progress};
    use weir_analysis::ai::{Endpoint, Wanted, read};

    use super::*;

    /// 20 bytes of a prompt.
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
            timing,
            response_bytes,
            upstream: "u",
            model_served: "m",
            tries: 1,
            reserved_output,
            found,
        }
    }

    fn seen(output_bytes: u64, is_done: bool, usage: Option<Usage>) -> Option<Found> {
        let progress = Progress { events: 3, output_events: 2, output_bytes, is_generated: false };
        Some(Found { usage, progress, is_done })
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
    fn a_client_that_leaves_between_the_end_of_the_answer_and_its_report_pays_the_reservation() {
        let gone = CompletionStatus::ClientGone;
        let progress = Progress { events: 3, output_events: 2, output_bytes: 10, is_generated: true };
        let found = Some(Found { usage: None, progress, is_done: false });
        assert_eq!(bill(ending(200, gone, found)).expect("a bill").tokens.output, 900);
        assert_eq!(bill(ending(200, CompletionStatus::Aborted, found)).expect("a bill").tokens.output, 900);
        // More than was reserved has been seen.
        let small = Ending { reserved_output: 2, ..ending(200, gone, found) };
        assert_eq!(bill(small).expect("a bill").tokens.output, 3);
        // A whole response is generated when its head comes.
        assert_eq!(bill(ending(200, gone, Some(Found::default()))).expect("a bill").tokens.output, 900);
        let usage = Usage { input: 1, output: 2, ..Usage::default() };
        let reported = Some(Found { usage: Some(usage), progress, is_done: false });
        assert_eq!(bill(ending(200, gone, reported)).expect("a bill").tokens.output, 2, "the report counts");
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
        let facts = |body: &[u8]| read(Endpoint::Embeddings, body, Wanted::default()).expect("valid");
        let texts = facts(br#"{"model":"m","input":["12345678"]}"#);
        let found = Bill::of(&texts, &ending(200, CompletionStatus::Completed, None)).expect("a bill");
        assert_eq!((found.tokens.input, found.tokens.output), (3, 0));
        let tokens = facts(br#"{"model":"m","input":[1,1,1,1,1,1,1,1,1,1]}"#);
        let found = Bill::of(&tokens, &ending(200, CompletionStatus::Completed, None)).expect("a bill");
        assert_eq!((found.tokens.input, found.tokens.output), (10, 0), "tokens are counted");
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
