//! Tokens and money.

use crate::budget::Measure;

/// The most tokens that one request may report. 2^40: a thousand times the largest context of 2026, and the sum of a
/// million such requests still fits into 64 bits. A larger report is a lie or a mistake, and is cut here.
pub const TOKENS_MAX: u64 = 1 << 40;

/// Tokens and money of a request, a budget or an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Amount {
    /// Tokens, input and output together.
    pub tokens: u64,
    /// Money in millionths of the currency of the price table.
    pub money: u64,
}

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self { tokens: 0, money: 0 };

    /// Both sums, at most `u64::MAX`.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { tokens: self.tokens.saturating_add(other.tokens), money: self.money.saturating_add(other.money) }
    }

    /// Both differences, at least zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self { tokens: self.tokens.saturating_sub(other.tokens), money: self.money.saturating_sub(other.money) }
    }

    /// The part of it that a measure is about.
    #[must_use]
    pub fn of(self, measure: Measure) -> u64 {
        match measure {
            Measure::DayTokens | Measure::MonthTokens => self.tokens,
            Measure::DayMoney | Measure::MonthMoney => self.money,
        }
    }

    /// The larger of both, each for itself.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { tokens: self.tokens.max(other.tokens), money: self.money.max(other.money) }
    }
}

/// Tokens of a request by class.
///
/// Normalised as OpenAI counts them: `input` includes `cached_input`, `cache_write` and `audio_input`; `output` includes
/// `reasoning` and `audio_output`. Anthropic's input excludes what its cache read and wrote: add these first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// All tokens of the prompt.
    pub input: u64,
    /// Those of `input` that the cache of the provider held.
    pub cached_input: u64,
    /// Those of `input` that the provider wrote to its cache.
    pub cache_write: u64,
    /// Those of `input` that are audio.
    pub audio_input: u64,
    /// All tokens of the output.
    pub output: u64,
    /// Those of `output` that the model spent on reasoning.
    pub reasoning: u64,
    /// Those of `output` that are audio.
    pub audio_output: u64,
}

impl Tokens {
    /// Input and output.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// The same without impossible values, and whether there were any: a class above [`TOKENS_MAX`], parts larger than their
    /// whole, or an output below `output_seen`, the tokens that the gateway has seen pass.
    ///
    /// A part that does not fit is cut to the rest of its whole, in the order of the fields.
    #[must_use]
    pub fn plausible(&self, output_seen: u64) -> (Self, bool) {
        let input = self.input.min(TOKENS_MAX);
        let output = self.output.max(output_seen).min(TOKENS_MAX);
        let mut rest = input;
        let mut part = |tokens: u64| {
            let part = tokens.min(rest);
            rest -= part;
            part
        };
        let (cached_input, cache_write, audio_input) =
            (part(self.cached_input), part(self.cache_write), part(self.audio_input));
        let mut rest = output;
        let mut part = |tokens: u64| {
            let part = tokens.min(rest);
            rest -= part;
            part
        };
        let (reasoning, audio_output) = (part(self.reasoning), part(self.audio_output));
        let plausible = Self { input, cached_input, cache_write, audio_input, output, reasoning, audio_output };
        (plausible, plausible != *self)
    }
}

/// The tokens that a request is reserved with: its prompt at three bytes a token, and for each choice the most output that it may have.
///
/// Three bytes a token is above the usual density of English and of code (about four), and below that of some scripts. The
/// settlement corrects it; see the crate's text about overshoot.
#[must_use]
pub fn estimate(prompt_bytes: u64, output_max: u64, choices: u64) -> Tokens {
    let output = output_max.saturating_mul(choices.max(1)).min(TOKENS_MAX);
    Tokens { input: prompt_bytes.div_ceil(3).min(TOKENS_MAX), output, ..Tokens::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_report_that_cannot_be_is_cut_and_marked() {
        let honest = Tokens { input: 10, cached_input: 4, output: 6, reasoning: 5, ..Tokens::default() };
        assert_eq!(honest.plausible(6), (honest, false));
        let (cut, is_cut) = honest.plausible(9);
        assert!(is_cut && cut.output == 9, "more has been seen than was reported");
        let liar =
            Tokens { input: u64::MAX, cached_input: u64::MAX, cache_write: 1, output: 3, reasoning: 9, ..honest };
        let (cut, is_cut) = liar.plausible(0);
        assert!(is_cut);
        assert_eq!((cut.input, cut.cached_input, cut.cache_write), (TOKENS_MAX, TOKENS_MAX, 0));
        assert_eq!((cut.output, cut.reasoning), (3, 3));
    }

    #[test]
    fn an_estimate_counts_the_prompt_and_every_choice() {
        assert_eq!(estimate(301, 100, 2).total(), 101 + 200);
        assert_eq!(estimate(0, 5, 0).total(), 5, "no choice is one choice");
        assert_eq!(estimate(u64::MAX, u64::MAX, u64::MAX).total(), 2 * TOKENS_MAX);
    }

    proptest! {
        #[test]
        fn parts_never_exceed_their_whole(words in proptest::array::uniform8(any::<u64>())) {
            let [input, cached_input, cache_write, audio_input, output, reasoning, audio_output, seen] = words;
            let claimed = Tokens { input, cached_input, cache_write, audio_input, output, reasoning, audio_output };
            let (cut, _) = claimed.plausible(seen);
            prop_assert!(cut.cached_input + cut.cache_write + cut.audio_input <= cut.input);
            prop_assert!(cut.reasoning + cut.audio_output <= cut.output);
            prop_assert!(cut.total() <= 2 * TOKENS_MAX);
            prop_assert_eq!(cut.plausible(seen.min(TOKENS_MAX)), (cut, false), "cutting twice changes nothing");
        }
    }
}
