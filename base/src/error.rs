//! The two questions every error of the tree answers: whose fault, and is it safe to try again.
//!
//! Each crate has its own error kinds; they carry these two values so that one place can decide on the retry, the
//! log level and the metric without knowing the protocol.

use std::fmt;

/// Who has to change something for the error to go away.
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

/// Whether the exchange that failed may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// It may have been executed, or it would fail again.
    Never,
    /// It was provably not executed: not one byte of it reached a server.
    Safe,
    /// Safe only if the connection had served before: a pooled connection that the server closed while it was idle.
    OnlyIfReused,
}

impl Retry {
    /// The stable snake_case word used in metric labels, logs and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Retry::Never => "never",
            Retry::Safe => "safe",
            Retry::OnlyIfReused => "only_if_reused",
        }
    }

    /// The decision, given whether the connection had served an exchange before.
    #[must_use]
    pub const fn is_allowed(self, connection_reused: bool) -> bool {
        match self {
            Retry::Never => false,
            Retry::Safe => true,
            Retry::OnlyIfReused => connection_reused,
        }
    }
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_is_allowed_only_where_nothing_was_executed() {
        assert!(!Retry::Never.is_allowed(true));
        assert!(Retry::Safe.is_allowed(false));
        assert!(Retry::OnlyIfReused.is_allowed(true));
        assert!(!Retry::OnlyIfReused.is_allowed(false));
    }

    #[test]
    fn label_words_are_distinct_and_snake_case() {
        let words: Vec<_> = Culprit::ALL.iter().map(|c| c.as_str()).collect();
        for (i, word) in words.iter().enumerate() {
            assert!(word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
            assert!(!words[i + 1..].contains(word));
        }
    }
}
