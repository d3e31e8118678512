//! The side that causes an error. Each crate has its own kinds of errors; they carry this value, so that one place can decide on
//! the log level and the metric without knowing the protocol.

use std::fmt;

/// The party that has to change something to remove the cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Culprit {
    /// The client sent something wrong or too much.
    Client,
    /// The upstream failed, stalled or answered nonsense.
    Upstream,
    /// Weir itself: a limit of its own, or a bug.
    Gateway,
    /// The operator's configuration asks for what cannot be done.
    Config,
}

impl Culprit {
    /// Every culprit, in declaration order.
    pub const ALL: [Culprit; 4] = [Culprit::Client, Culprit::Upstream, Culprit::Gateway, Culprit::Config];

    /// The stable snake_case word used in metric labels, logs and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Culprit::Client => "client",
            Culprit::Upstream => "upstream",
            Culprit::Gateway => "gateway",
            Culprit::Config => "config",
        }
    }
}

impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_words_are_distinct_and_snake_case() {
        let words: Vec<_> = Culprit::ALL.iter().map(|c| c.as_str()).collect();
        for (i, word) in words.iter().enumerate() {
            assert!(word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
            assert!(!words[i + 1..].contains(word));
        }
    }
}
