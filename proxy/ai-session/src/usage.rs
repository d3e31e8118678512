//! The tokens that a provider reports, in one form.

use bitflags::bitflags;

mod buffered;
mod event;
mod figures;
mod paths;

pub use buffered::{BufferedUsage, TAIL_BYTES_MAX};
pub(crate) use event::event_facts;
pub(crate) use figures::Figures;

/// Tokens of one class that a response can have. Default 2^32: a larger report is a lie or a mistake, and would
/// overflow a price.
pub const TOKENS_MAX: u64 = 1 << 32;

/// Tokens of one response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Input, with the cached part and the part written to the cache. OpenAI reports it so; Anthropic reports the three
    /// apart.
    pub input: u64,
    /// The part of the input that came from the provider's cache.
    pub cached: u64,
    /// The part of the input that was written to the provider's cache.
    pub cache_write: u64,
    /// The part of the input that was audio.
    pub input_audio: u64,
    /// The part of the input that was images.
    pub input_image: u64,
    /// Output, with the reasoning.
    pub output: u64,
    /// The part of the output that was reasoning.
    pub reasoning: u64,
    /// The part of the output that was audio.
    pub output_audio: u64,
    /// Reasons to doubt the report. The figures above are already mended.
    pub doubts: Doubts,
}

bitflags! {
    /// Reasons to doubt a report (case A13). A figure in doubt is cut to a bound, so that it refunds nothing and
    /// overflows nothing.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Doubts: u8 {
        /// A figure below zero: it counts as zero.
        const NEGATIVE = 1;
        /// A figure above [`TOKENS_MAX`]: it counts as that.
        const TOO_LARGE = 1 << 1;
        /// A figure that is no plain integer: its fraction is cut, or it does not count.
        const FORM = 1 << 2;
        /// A part larger than its whole: it counts as the whole.
        const PART = 1 << 3;
        /// Less output than the stream had: what was streamed counts.
        const BELOW_STREAM = 1 << 4;
        /// A later report of the stream is smaller than an earlier one: the later counts.
        const SHRUNK = 1 << 5;
    }
}

impl Doubts {
    /// The stable words for logs, joined by a comma.
    pub fn words(self) -> String {
        let words = [
            (Self::NEGATIVE, "negative"),
            (Self::TOO_LARGE, "too_large"),
            (Self::FORM, "form"),
            (Self::PART, "part"),
            (Self::BELOW_STREAM, "below_stream"),
            (Self::SHRUNK, "shrunk"),
        ];
        let words: Vec<&str> = words.iter().filter(|(doubt, _)| self.contains(*doubt)).map(|(_, word)| *word).collect();
        words.join(",")
    }
}
