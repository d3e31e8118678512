//! Words by which a request chooses its reply.
//!
//! `key=value` pairs with blanks between them, in one of three places; a later one wins over an earlier one:
//!
//! 1. `[weir ...]` anywhere in the prompt, the last one in the body. Gateways forward prompts, so it always arrives.
//! 2. `metadata.weir`, a string with the pairs, and `metadata.weir_fault`, the name of a fault alone.
//! 3. The header `x-weir-lab`.
//!
//! | key | value | default |
//! |---|---|---|
//! | `bytes` | bytes of the text | that of the origin |
//! | `events` | events with text, or pieces of each call's arguments | that of the origin |
//! | `word` | eight hexadecimal digits of the text, see [`super::text`] | a hash of the body |
//! | `text` | `plain`, `mixed` | `plain` |
//! | `prompt`, `cached`, `written`, `reasoning`, `audio` | tokens that are billed; all but the last two are input | the prompt by its bytes; 0 |
//! | `first`, `gap` | waits before the first and each further event: `250ms` | those of the origin |
//! | `gaps` | a script of waits, gone through again and again: `0ms,10ms,500ms` | none |
//! | `rate` | events per second in place of `gap` | none |
//! | `calls` | tool calls in place of the text | 1 where `tool_choice` demands one |
//! | `interleave` | `1`: pieces of several calls of chat come in turn; SDKs that follow a stream do not expect it | 0 |
//! | `refusal` | `1`: a refusal in place of the text | 0 |
//! | `finish` | `stop`, `length`, `content_filter` | `stop` |
//! | `usage` | how usage is reported, see `UsageShape` | `exact` |
//! | `lines` | ends of lines: `lf`, `crlf`, `cr`, `mixed` | `lf` |
//! | `split` | chunks of the body: `events`, `utf8` (within each character), `bytes` | `events` |
//! | `comments` | `1`: a comment line before each event | 0 |
//! | `fault`, `at` | a fault, see `Fault`, after so many events with text | none, 1 |
//! | `status`, `code`, `type` | an error in place of the reply | 200 |
//! | `retry_after`, `retry_after_ms` | those headers of an error | none |
//! | `should_retry` | `true`, `false`: the header `x-should-retry` of an error | none |
//! | `fails` | only the first so many tries of this word get the error or the fault | every one |
//!
//! An unknown key or a wrong value is an error 400 that names it: a test with a slip of the pen must not pass.

use std::time::Duration;

use memchr::memmem;

use super::{
    fault::Fault,
    framing::{LineEnds, Split},
    text::{TEXT_BYTES_MAX, Word},
    usage::UsageShape,
};

/// Events with text of one stream. 1,000,000: hours of tokens.
pub const EVENTS_MAX: usize = 1_000_000;

/// Waits of a script. 1,024: a recorded stream of some length.
const GAPS_MAX: usize = 1_024;

/// Longest wait. A day: longer than any deadline that is tested.
const WAIT_MAX: Duration = Duration::from_secs(86_400);

/// Calls of one reply.
const CALLS_MAX: usize = 128;

/// Tokens that a request may have billed. 2^40: its sums stay far within 64 bits.
const TOKENS_MAX: u64 = 1 << 40;

const BEGIN: &[u8] = b"[weir ";

/// The choices of one request; `None`: the origin's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Directives {
    /// Bytes of the text.
    pub bytes: Option<usize>,
    /// Events with text.
    pub events: Option<usize>,
    /// Word of the text.
    pub word: Option<Word>,
    /// The text has characters of several bytes.
    pub is_mixed: bool,
    /// Input tokens, cached and written ones among them.
    pub prompt: Option<u64>,
    /// Input tokens that a cache had.
    pub cached: u64,
    /// Input tokens that went into a cache.
    pub written: u64,
    /// Output tokens that no text shows.
    pub reasoning: u64,
    /// Output tokens of sound.
    pub audio: u64,
    /// Wait before the first event.
    pub first: Option<Duration>,
    /// Wait before each further event.
    pub gap: Option<Duration>,
    /// Waits in turn.
    pub gaps: Vec<Duration>,
    /// Tool calls.
    pub calls: Option<usize>,
    /// Pieces of several calls come in turn.
    pub has_interleaved_calls: bool,
    /// A refusal in place of the text.
    pub is_refusal: bool,
    /// Reason of the end.
    pub finish: Option<Finish>,
    /// How usage is reported.
    pub usage: UsageShape,
    /// Ends of lines.
    pub lines: LineEnds,
    /// Chunks of the body.
    pub split: Split,
    /// A comment line before each event.
    pub has_comments: bool,
    /// The fault.
    pub fault: Option<Fault>,
    /// Events with text before the fault.
    pub at: Option<usize>,
    /// Status of an error.
    pub status: Option<u16>,
    /// `code` of an error.
    pub code: Option<String>,
    /// `type` of an error.
    pub kind: Option<String>,
    /// Seconds.
    pub retry_after: Option<u64>,
    /// Milliseconds.
    pub retry_after_ms: Option<u64>,
    /// `x-should-retry`.
    pub should_retry: Option<bool>,
    /// Tries that fail.
    pub fails: Option<u32>,
}

/// Why a reply ends; see `finish_reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It is complete.
    Stop,
    /// It reached the limit of tokens.
    Length,
    /// A filter stopped it.
    ContentFilter,
}

impl Directives {
    /// Reads the pairs of the prompt in `body`.
    ///
    /// # Errors
    /// The pair that is wrong.
    pub fn read_body(&mut self, body: &[u8]) -> Result<(), WrongPair> {
        let Some(at) = memmem::rfind(body, BEGIN) else { return Ok(()) };
        let rest = &body[at + BEGIN.len()..];
        let Some(end) = memchr::memchr(b']', rest) else { return Ok(()) };
        let text = std::str::from_utf8(&rest[..end]).map_err(|_| WrongPair("[weir ...]".to_owned()))?;
        self.read(text)
    }

    /// Reads pairs with blanks between them.
    ///
    /// # Errors
    /// The pair that is wrong.
    pub fn read(&mut self, text: &str) -> Result<(), WrongPair> {
        for pair in text.split_ascii_whitespace() {
            let read = pair.split_once('=').and_then(|(key, value)| self.set(key, value));
            read.ok_or_else(|| WrongPair(pair.chars().take(80).collect()))?;
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "bytes" => self.bytes = Some(within(value, TEXT_BYTES_MAX)?),
            "events" => self.events = Some(within(value, EVENTS_MAX)?.max(1)),
            "word" => self.word = Some(Word::parse(value)?),
            "text" => self.is_mixed = one_of(value, &[("plain", false), ("mixed", true)])?,
            "prompt" => self.prompt = Some(tokens(value)?),
            "cached" => self.cached = tokens(value)?,
            "written" => self.written = tokens(value)?,
            "reasoning" => self.reasoning = tokens(value)?,
            "audio" => self.audio = tokens(value)?,
            "first" => self.first = Some(wait(value)?),
            "gap" => self.gap = Some(wait(value)?),
            "gaps" => self.gaps = value.split(',').take(GAPS_MAX).map(wait).collect::<Option<_>>()?,
            "rate" => self.gap = Some(Duration::from_nanos(1_000_000_000 / value.parse::<u32>().ok()?.max(1) as u64)),
            "calls" => self.calls = Some(within(value, CALLS_MAX)?),
            "interleave" => self.has_interleaved_calls = flag(value)?,
            "refusal" => self.is_refusal = flag(value)?,
            "finish" => self.finish = Some(finish(value)?),
            _ => return self.set_form(key, value),
        }
        Some(())
    }

    /// Pairs about the form of a reply, and about its faults.
    fn set_form(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "usage" => self.usage = UsageShape::of(value)?,
            "lines" => self.lines = LineEnds::of(value)?,
            "split" => self.split = Split::of(value)?,
            "comments" => self.has_comments = flag(value)?,
            "fault" => self.fault = Some(Fault::of(value)?),
            "at" => self.at = Some(within(value, EVENTS_MAX)?),
            "status" => self.status = Some(value.parse().ok().filter(|status| (400..=599).contains(status))?),
            "code" => self.code = Some(value.to_owned()),
            "type" => self.kind = Some(value.to_owned()),
            "retry_after" => self.retry_after = Some(value.parse().ok()?),
            "retry_after_ms" => self.retry_after_ms = Some(value.parse().ok()?),
            "should_retry" => self.should_retry = Some(one_of(value, &[("true", true), ("false", false)])?),
            "fails" => self.fails = Some(value.parse().ok()?),
            _ => return None,
        }
        Some(())
    }
}

/// A pair that means nothing, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongPair(pub String);

fn within(value: &str, most: usize) -> Option<usize> {
    value.parse().ok().filter(|number| *number <= most)
}

fn tokens(value: &str) -> Option<u64> {
    value.parse().ok().filter(|number| *number <= TOKENS_MAX)
}

fn flag(value: &str) -> Option<bool> {
    one_of(value, &[("0", false), ("1", true)])
}

fn finish(value: &str) -> Option<Finish> {
    let all = [("stop", Finish::Stop), ("length", Finish::Length), ("content_filter", Finish::ContentFilter)];
    one_of(value, &all)
}

/// A whole number and `us`, `ms` or `s`.
fn wait(value: &str) -> Option<Duration> {
    let split = value.find(|letter: char| !letter.is_ascii_digit())?;
    let number: u64 = value[..split].parse().ok()?;
    let wait = match &value[split..] {
        "us" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        _ => return None,
    };
    (wait <= WAIT_MAX).then_some(wait)
}

/// The value of a word.
pub(super) fn one_of<T: Copy>(word: &str, all: &[(&str, T)]) -> Option<T> {
    all.iter().find(|(name, _)| *name == word).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Directives, WrongPair> {
        let mut directives = Directives::default();
        directives.read(text).map(|()| directives)
    }

    #[test]
    fn pairs_choose_and_the_last_in_the_body_counts() {
        let mut found = Directives::default();
        let body = br#"{"messages":[{"content":"[weir bytes=1] hi [weir bytes=9 events=3 gap=5ms]"}]}"#;
        found.read_body(body).expect("right");
        assert_eq!((found.bytes, found.events, found.gap), (Some(9), Some(3), Some(Duration::from_millis(5))));
        found.read("bytes=2 fault=cut at=4 gaps=1ms,2s rate=200").expect("right");
        assert_eq!((found.bytes, found.fault, found.at), (Some(2), Some(Fault::Cut), Some(4)));
        assert_eq!((found.gaps.len(), found.gap), (2, Some(Duration::from_millis(5))));
        assert_eq!(found.events, Some(3), "an earlier place stays where a later one is silent");
    }

    #[test]
    fn a_slip_of_the_pen_is_named() {
        for wrong in [
            "byte=1",
            "bytes",
            "bytes=",
            "bytes=x",
            "bytes=99999999999",
            "gap=5",
            "gap=5m",
            "gap=99999999s",
            "fault=oops",
            "status=200",
            "refusal=yes",
            "word=5EED0001",
            "usage=odd",
            "lines=lfcr",
        ] {
            assert_eq!(read(&format!("events=2 {wrong}")), Err(WrongPair(wrong.to_owned())), "{wrong}");
        }
        assert!(read("").is_ok());
        let mut found = Directives::default();
        assert!(found.read_body(b"[weir bytes=1").is_ok() && found.bytes.is_none(), "without an end it is prose");
    }
}
