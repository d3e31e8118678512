//! The figures of a report, before they have one form.

use weir_json_codec::{IntegerError, Kind, Value, integer};

use super::paths::Place;
use super::{Doubts, TOKENS_MAX, Usage};
use crate::dialect::Dialect;
use crate::progress::Progress;

/// Figures as a provider reports them. `None`: it does not report that one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    input: Option<u64>,
    output: Option<u64>,
    cached: Option<u64>,
    cache_write: Option<u64>,
    reasoning: Option<u64>,
    input_audio: Option<u64>,
    input_image: Option<u64>,
    output_audio: Option<u64>,
    doubts: Doubts,
}

impl Figures {
    /// Neither input nor output is reported.
    pub(crate) fn is_empty(&self) -> bool {
        self.input.is_none() && self.output.is_none()
    }

    /// Takes a figure. One that is `null` is not reported.
    pub(super) fn take(&mut self, value: &Value<'_, Place>) {
        let place = match value.path {
            Place::Input => &mut self.input,
            Place::Output => &mut self.output,
            Place::Cached => &mut self.cached,
            Place::CacheWrite => &mut self.cache_write,
            Place::Reasoning => &mut self.reasoning,
            Place::InputAudio => &mut self.input_audio,
            Place::InputImage => &mut self.input_image,
            Place::OutputAudio => &mut self.output_audio,
            Place::Report | Place::ChoiceReport | Place::Choices => return,
        };
        match value.kind {
            Kind::Null => {}
            Kind::Number => {
                let (tokens, doubts) = tokens(value.number().unwrap_or_default());
                *place = tokens.or(*place);
                self.doubts |= doubts;
            }
            _ => self.doubts |= Doubts::FORM,
        }
    }

    /// A later report of the same response. In chats and responses it replaces the earlier one. Anthropic reports
    /// figures at different times, and each replaces its own. Nothing is ever added up: reports are cumulative.
    pub(crate) fn replace(&mut self, later: Self, dialect: Dialect) {
        let shrunk = |earlier: Option<u64>, later: Option<u64>| later.is_some() && later < earlier;
        let mut doubts = self.doubts | later.doubts;
        doubts.set(
            Doubts::SHRUNK,
            doubts.contains(Doubts::SHRUNK) || shrunk(self.output, later.output) || shrunk(self.input, later.input),
        );
        let earlier = if dialect == Dialect::Anthropic { *self } else { Self::default() };
        *self = Self {
            input: later.input.or(earlier.input),
            output: later.output.or(earlier.output),
            cached: later.cached.or(earlier.cached),
            cache_write: later.cache_write.or(earlier.cache_write),
            reasoning: later.reasoning.or(earlier.reasoning),
            input_audio: later.input_audio.or(earlier.input_audio),
            input_image: later.input_image.or(earlier.input_image),
            output_audio: later.output_audio.or(earlier.output_audio),
            doubts,
        };
    }

    /// The figures in one form, with parts cut to their whole, and output at least what was streamed.
    pub(crate) fn usage(&self, dialect: Dialect, streamed: &Progress) -> Usage {
        let mut doubts = self.doubts;
        let (cached, cache_write) = (self.cached.unwrap_or(0), self.cache_write.unwrap_or(0));
        let mut input = self.input.unwrap_or(0);
        if dialect == Dialect::Anthropic {
            // Each is at most 2^32, so the sum fits.
            input += cached + cache_write;
        }
        let mut output = self.output.unwrap_or(0);
        if output < streamed.tokens_min() {
            output = streamed.tokens_min();
            doubts |= Doubts::BELOW_STREAM;
        }
        let mut part = |part: u64, whole: u64| {
            doubts.set(Doubts::PART, doubts.contains(Doubts::PART) || part > whole);
            part.min(whole)
        };
        let cached = part(cached, input);
        Usage {
            input,
            cached,
            cache_write: part(cache_write, input - cached),
            input_audio: part(self.input_audio.unwrap_or(0), input),
            input_image: part(self.input_image.unwrap_or(0), input),
            output,
            reasoning: part(self.reasoning.unwrap_or(0), output),
            output_audio: part(self.output_audio.unwrap_or(0), output),
            doubts,
        }
    }
}

/// The tokens that a number stands for, if it does, and the doubts about it.
fn tokens(text: &[u8]) -> (Option<u64>, Doubts) {
    match integer(text, TOKENS_MAX) {
        Ok(tokens) => (Some(tokens), Doubts::empty()),
        Err(IntegerError::Negative) => (Some(0), Doubts::NEGATIVE),
        Err(IntegerError::TooLarge) => (Some(TOKENS_MAX), Doubts::TOO_LARGE),
        Err(IntegerError::Form) => {
            let whole = text.split(|&byte| byte == b'.').next().unwrap_or_default();
            let is_fraction = whole.len() < text.len() && !text.iter().any(|byte| matches!(byte, b'e' | b'E'));
            match is_fraction {
                true => {
                    let (tokens, doubts) = tokens(whole);
                    (tokens, doubts | Doubts::FORM)
                }
                false => (None, Doubts::FORM),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a13_a_figure_that_lies_is_cut_to_a_bound() {
        for (text, wanted, doubts) in [
            ("12", Some(12), Doubts::empty()),
            ("-5", Some(0), Doubts::NEGATIVE),
            ("9223372036854775808", Some(TOKENS_MAX), Doubts::TOO_LARGE),
            ("4294967297", Some(TOKENS_MAX), Doubts::TOO_LARGE),
            ("12.75", Some(12), Doubts::FORM),
            ("-0.5", Some(0), Doubts::FORM),
            ("-7.5", Some(0), Doubts::FORM.union(Doubts::NEGATIVE)),
            ("1e999999", None, Doubts::FORM),
            ("1.5e3", None, Doubts::FORM),
        ] {
            assert_eq!(tokens(text.as_bytes()), (wanted, doubts), "{text}");
        }
    }
}
