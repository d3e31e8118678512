//! Tokens of a text by estimate, for providers that report none.
//!
//! The classes of characters decide: words of ASCII letters, groups of three digits, punctuation, white space, ideographs, other
//! letters. No vocabulary is embedded, for two reasons. Providers without a report are servers with models of their own, whose
//! vocabularies differ: for the Chinese text below, the three vocabularies need 7,651, 7,971 and 9,919 tokens. The exact count of one is off
//! by up to 30 % at the others. And a vocabulary has a cost for all: 200,000 entries and 3.6 MB for `o200k_base` alone.
//!
//! The weights are a least-squares fit to the mean of three vocabularies, counted by tiktoken 0.14.0: `cl100k_base`, `o200k_base`, and
//! `voyage3_base`, which has as many entries as that of Qwen 2. The fit took 20 KiB of English, 20 KiB of code, 27 KB of Chinese, 40 KB of
//! JSON, and tutorials in six other languages. Estimate divided by that mean, for each text of about 4 KB:
//!
//! | text | four bytes a token | estimate, texts of the fit | estimate, other texts |
//! |---|---|---|---|
//! | English | 0.83 to 1.23 | 0.94 to 1.07 | 0.94 to 1.05 |
//! | code in Rust, Python, Go, JavaScript | 0.44 to 1.18 | 0.94 to 1.08 | 0.83 to 1.09 |
//! | Chinese | 0.73 to 0.88 | 0.83 to 1.06 | 0.97 |
//! | JSON, indented and compact | 0.64 to 0.90 | 0.94 to 1.08 | 0.97 to 1.00 |
//! | Russian, Japanese, Korean | 0.87 to 1.15 | 0.91 to 1.16 | |
//! | Spanish, Italian, Dutch, French, German, Ukrainian | 0.77 to 0.97 | 0.84 to 0.90 | 0.82 to 0.98 |
//!
//! Letters of Central Europe, Turkish, Greek, Hebrew and Arabic have weights that were set afterwards, by the interface texts of Django 5.2
//! (13 to 33 KB each) and `cl100k_base`, `o200k_base` and the vocabulary of Qwen: Polish 0.86, Czech 0.78, Slovak 0.74, Turkish 0.93,
//! Romanian 0.88, Latvian 0.81, Lithuanian 0.73, Greek 0.99, Hebrew 0.87, Arabic 1.08, Persian 0.94. There the languages whose words look
//! like English ones and weigh more stay low: Finnish 0.62, Danish 0.70, Hungarian 0.70, Dutch 0.73. For Russian it is 1.32, and for
//! Vietnamese 1.19. The vocabularies themselves lie apart: Greek costs 0.52 of the mean in `o200k_base` and 1.25 in `cl100k_base`.
//!
//! Escapes of JSON count as the characters that they stand for: a Chinese text in `\u` escapes has twice the bytes and the same tokens.
//!
//! In a text beyond 2 KiB, one byte in sixteen is counted: to count all of a stream costs several times what it costs to pass it on.

mod class;

use memchr::memchr;
use weir_analysis::ai::{Endpoint, Facts};

use self::class::{Class, Run};

/// Bytes of a text that are all counted. Default 2 KiB: most turns of a conversation. A longer one is known by samples from there on.
const COUNTED_BYTES: u64 = 2 * 1_024;

/// From there on, the first bytes of each stretch are counted. Default 64 of 1,024.
const STRETCH_BYTES: u64 = 1_024;
const STRETCH_SAMPLE_BYTES: u64 = 64;

/// Bytes of a prompt that are looked at. Default 1 KiB, so that no prompt delays its request; a longer one is known by samples.
const SAMPLE_BYTES: u64 = 1_024;

/// Samples of a longer prompt, evenly from its begin to its end.
const SAMPLES: u64 = 8;

/// Bytes of base64 for which one token is counted, as for images and files in a prompt. Their true cost is less, and known to the
/// provider alone.
const DATA_TOKEN_BYTES: u64 = 4;

/// Tokens by which the estimate of a message's JSON (`{"role":"user","content":""},` is eight) exceeds the four that providers count for
/// it.
const MESSAGE_EXCESS: u64 = 4;

/// The count of a text that comes in pieces: strings of JSON without their quotes, or JSON itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenEstimate {
    /// The weight of the counted bytes.
    thousandths: u64,
    /// Bytes so far, and those that were counted.
    bytes: u64,
    counted: u64,
    run: Run,
}

impl TokenEstimate {
    /// One that is known.
    pub const fn of_tokens(tokens: u64) -> Self {
        Self { thousandths: tokens.saturating_mul(1_000), bytes: 0, counted: 0, run: Run::None }
    }

    /// The tokens so far, rounded up.
    pub const fn tokens(&self) -> u64 {
        if self.bytes == self.counted {
            return self.thousandths.div_ceil(1_000);
        }
        let all = self.thousandths as u128 * self.bytes as u128 / self.counted as u128;
        // Within the range: a byte weighs less than two tokens.
        all.div_ceil(1_000) as u64
    }

    /// Takes the next piece. A character that is cut counts once.
    pub fn push(&mut self, mut raw: &[u8]) {
        while !raw.is_empty() {
            let (bytes, is_counted) = self.stretch();
            let (here, rest) = raw.split_at(usize::try_from(bytes).unwrap_or(usize::MAX).min(raw.len()));
            if is_counted {
                self.count(here);
                self.counted += here.len() as u64;
            }
            self.bytes += here.len() as u64;
            raw = rest;
        }
    }

    /// Bytes from here on that are all counted, or all passed over.
    fn stretch(&mut self) -> (u64, bool) {
        let Some(behind) = self.bytes.checked_sub(COUNTED_BYTES) else { return (COUNTED_BYTES - self.bytes, true) };
        let at = behind % STRETCH_BYTES;
        if at == 0 {
            // More likely than not it begins within a word.
            self.run = Run::Letters;
        }
        match STRETCH_SAMPLE_BYTES.checked_sub(at) {
            None | Some(0) => (STRETCH_BYTES - at, false),
            Some(bytes) => (bytes, true),
        }
    }

    fn count(&mut self, mut raw: &[u8]) {
        let (mut run, mut thousandths) = (self.run, 0);
        loop {
            let (plain, escape) = raw.split_at(memchr(b'\\', raw).unwrap_or(raw.len()));
            thousandths += run.take(plain);
            let [_, escaped @ ..] = escape else { break };
            let (class, bytes) = Class::of_escape(escaped);
            thousandths += run.step(class);
            raw = &escaped[bytes..];
        }
        (self.run, self.thousandths) = (run, self.thousandths.saturating_add(thousandths));
    }
}

/// The tokens of a prompt by estimate, from samples of its text. They are counted when the number is needed: most providers report it.
#[derive(Clone, Debug, Default)]
pub struct PromptSample {
    /// The samples, one behind the other.
    text: Box<[u8]>,
    /// The bytes of each.
    sizes: [u16; SAMPLES as usize],
    /// Bytes of all texts of the prompt.
    length: u64,
    /// Tokens by which the text exceeds the prompt.
    excess: u64,
    /// Tokens that are there by number, or were counted.
    known: u64,
}

impl PromptSample {
    /// The sample of the prompt in `body`, which has these facts: 1 KiB at most.
    pub fn of(facts: &Facts, body: &[u8]) -> Self {
        let parts =
            [facts.messages, facts.instructions, facts.tools.span, facts.tools.more_span].map(|span| span.of(body));
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let mut pieces: [&[u8]; SAMPLES as usize] = Default::default();
        if length <= SAMPLE_BYTES {
            pieces[..parts.len()].copy_from_slice(&parts);
        } else {
            let size = SAMPLE_BYTES / SAMPLES;
            for (number, piece) in (0..).zip(&mut pieces) {
                *piece = self::piece(&parts, number * (length - size) / (SAMPLES - 1), size);
            }
        }
        let messages = match facts.endpoint {
            Endpoint::Chat | Endpoint::Responses | Endpoint::Messages => facts.messages_count,
            Endpoint::Completions | Endpoint::Embeddings => 0,
        };
        Self {
            text: pieces.concat().into(),
            sizes: pieces.map(|piece| piece.len() as u16),
            length,
            excess: messages.saturating_mul(MESSAGE_EXCESS),
            known: facts.items.tokens,
        }
    }

    /// One whose tokens are known.
    pub fn of_tokens(tokens: u64) -> Self {
        Self { known: tokens, ..Self::default() }
    }

    /// Counts now, and frees the text: for a request that lasts.
    #[must_use]
    pub fn counted(self) -> Self {
        Self::of_tokens(self.tokens())
    }

    /// The tokens. Those by number are counted.
    pub fn tokens(&self) -> u64 {
        let mut rest = &*self.text;
        let samples = self.sizes.map(|size| {
            let (piece, behind) = rest.split_at(usize::from(size).min(rest.len()));
            rest = behind;
            sampled(piece)
        });
        let by_text = match self.length {
            0..=SAMPLE_BYTES => samples.iter().map(TokenEstimate::tokens).sum(),
            length => {
                let thousandths: u64 = samples.iter().map(|sample| sample.thousandths).sum();
                let scaled = u128::from(thousandths) * u128::from(length) / (self.text.len() as u128).max(1);
                u64::try_from(scaled.div_ceil(1_000)).unwrap_or(u64::MAX)
            }
        };
        by_text.saturating_sub(self.excess).max(self.known)
    }
}

/// Up to `size` bytes from `at` on in the parts, which count as one text. They end with their part.
fn piece<'a>(parts: &[&'a [u8]], at: u64, size: u64) -> &'a [u8] {
    let (mut at, size) = (at as usize, size as usize);
    for part in parts {
        if at < part.len() {
            return &part[at..part.len().min(at + size)];
        }
        at -= part.len();
    }
    &[]
}

/// The count of a sample.
fn sampled(piece: &[u8]) -> TokenEstimate {
    let is_data = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    if piece.len() as u64 == SAMPLE_BYTES / SAMPLES && piece.iter().all(is_data) {
        return TokenEstimate::of_tokens(piece.len() as u64 / DATA_TOKEN_BYTES);
    }
    let mut estimate = TokenEstimate::default();
    estimate.push(piece);
    estimate
}

#[cfg(test)]
mod tests {
    use weir_analysis::ai::{Wanted, read};

    use super::*;

    fn tokens(text: &str) -> u64 {
        let mut estimate = TokenEstimate::default();
        estimate.push(text.as_bytes());
        estimate.tokens()
    }

    #[test]
    fn classes_have_their_weights() {
        for (text, wanted) in [
            ("", 0),
            ("word", 1),
            ("one two three", 3),
            ("1234567", 5),
            ("a\\nb", 3),
            ("a    b", 3),
            ("{\"a\":[]}", 3),
            ("\u{4f60}\u{597d}\u{4e16}\u{754c}\u{4f60}", 4),
            ("\u{1f600}", 2),
            ("\u{142}\u{105}\u{10d}\u{219}", 6),
            ("\u{3b1}\u{3bb}\u{3c6}\u{3b1}", 4),
            ("\u{5d0}\u{5d1}\u{5d2}\u{62f}\u{575}\u{5d0}\u{5d1}\u{5d2}\u{62f}\u{575}", 6),
            ("\u{e4}\u{e9}\u{434}\u{456}", 2),
        ] {
            assert_eq!(tokens(text), wanted, "{text}");
        }
    }

    #[test]
    fn escapes_count_as_their_characters() {
        let chinese = "\u{4f60}\u{597d}\u{4e16}\u{754c}";
        assert_eq!(tokens(r"\u4f60\u597d\u4e16\u754c"), tokens(chinese));
        assert_eq!(tokens(r"\ud83d\ude00"), tokens("\u{1f600}"));
        assert_eq!(tokens(r"a\u0020\u0020b"), tokens("a  b"));
        assert_eq!(
            tokens(r"\u0142\u0142\u03b1\u03b1\u05d0\u05d0"),
            tokens("\u{142}\u{142}\u{3b1}\u{3b1}\u{5d0}\u{5d0}")
        );
        for cut in [r"\", r"\u", r"\u4f", r"\u4f6x", "\u{4f60}\\"] {
            tokens(cut);
        }
    }

    /// Counted by tiktoken 0.14.0 with `cl100k_base`, `o200k_base` and `voyage3_base`.
    #[test]
    fn the_estimate_is_near_the_counts_of_vocabularies() {
        for (text, counts) in [
            (include_str!("../tests/it/texts/english.txt"), [598, 602, 598]),
            (include_str!("../tests/it/texts/code.txt"), [424, 423, 425]),
            (include_str!("../tests/it/texts/chinese.txt"), [428, 302, 253]),
            (include_str!("../tests/it/texts/json.txt"), [332, 340, 344]),
        ] {
            let mean = counts.iter().sum::<u64>() / 3;
            let estimate = tokens(text);
            assert!(estimate.abs_diff(mean) * 100 <= mean * 12, "{estimate} for {counts:?}: {text}");
        }
    }

    #[test]
    fn a_long_text_is_known_by_samples_wherever_it_is_cut() {
        for text in [
            include_str!("../tests/it/texts/english.txt"),
            include_str!("../tests/it/texts/code.txt"),
            include_str!("../tests/it/texts/chinese.txt"),
            include_str!("../tests/it/texts/json.txt"),
        ] {
            // Its length is odd, so that samples come from all over the text.
            let once = format!("{text}, ");
            let long = once.repeat((256 << 10) / once.len());
            let (counted, all) = (tokens(&long), tokens(&once) * (long.len() / once.len()) as u64);
            assert!(counted.abs_diff(all) * 20 < all, "{counted} of {all}: {text}");
            let mut in_pieces = TokenEstimate::default();
            long.as_bytes().chunks(7).for_each(|piece| in_pieces.push(piece));
            assert!(in_pieces.tokens().abs_diff(counted) * 50 < counted, "{} of {counted}", in_pieces.tokens());
        }
    }

    #[test]
    fn pieces_of_a_word_are_one_word() {
        let mut estimate = TokenEstimate::default();
        "internationally".bytes().for_each(|byte| estimate.push(&[byte]));
        assert_eq!(estimate.tokens(), tokens("internationally"));
    }

    #[test]
    fn a_long_prompt_is_known_by_samples_and_an_image_by_its_bytes() {
        let prompt = |text: &str| {
            let body = format!("{{\"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}]}}");
            let facts = read(Endpoint::Chat, body.as_bytes(), Wanted::default()).expect("valid");
            let sample = PromptSample::of(&facts, body.as_bytes());
            assert!(sample.text.len() as u64 <= SAMPLE_BYTES);
            assert_eq!(sample.clone().counted().tokens(), sample.tokens());
            sample.tokens()
        };
        let once = "The gateway reads a request once, and forwards the bytes as they came. ";
        let (hundred, all) = (prompt(&once.repeat(100)), tokens(&once.repeat(100)));
        assert!(hundred.abs_diff(all) * 10 < all, "{hundred} of {all}");
        let image = prompt(&"iVBORw0KGgoAAAANSUhEUgAAAAUA".repeat(1_000));
        assert!((6_000..8_000).contains(&image), "{image}");
        assert_eq!(prompt(""), 5, "the frame of a message");
    }

    #[test]
    fn tokens_by_number_are_counted() {
        let body = br#"{"model":"m","input":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}"#;
        let facts = read(Endpoint::Embeddings, body, Wanted::default()).expect("valid");
        assert!(PromptSample::of(&facts, body).tokens() >= 20);
    }
}
