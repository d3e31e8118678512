//! Words of a rule text, and what can be wrong with them, in the words of Redis 7.0 (`ACLSetUserStringError`).

use std::fmt;

/// Why a rule was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// No such command, subcommand or category.
    UnknownName,
    /// No rule looks like this.
    Syntax,
    /// A pattern of keys although all keys are allowed.
    KeysAfterAll,
    /// A pattern of channels although all channels are allowed.
    ChannelsAfterAll,
    /// A password to be removed that is not there.
    NoSuchPassword,
    /// Not 64 lower-case hexadecimal characters.
    BadHash,
    /// `+config|get|x`.
    FirstArgOfSubcommand,
    /// A selector without its closing parenthesis.
    Unmatched,
}

impl RuleError {
    /// The error text of the server.
    pub fn text(self) -> &'static str {
        match self {
            Self::UnknownName => "Unknown command or category name in ACL",
            Self::Syntax => "Syntax error",
            Self::KeysAfterAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Self::ChannelsAfterAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels"
            }
            Self::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            Self::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            Self::FirstArgOfSubcommand => "Allowing first-arg of a subcommand is not supported",
            Self::Unmatched => "Unmatched parenthesis in acl selector starting",
        }
    }
}

/// A rule that cannot be applied. Prints as the server would reply ACL SETUSER, without passwords and their hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRule {
    /// The word, or the whole selector.
    pub rule: String,
    /// The error.
    pub error: RuleError,
}

impl fmt::Display for BadRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, error } = self;
        let rule = shown(rule);
        match error {
            RuleError::Unmatched => write!(f, "{} at '{rule}'.", error.text()),
            _ => write!(f, "Error in ACL SETUSER modifier '{rule}': {}", error.text()),
        }
    }
}

/// The rule as it may be printed: what follows `>`, `<`, `#` or `!` is a secret, control characters could be anything.
fn shown(rule: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 128;
    if let Some(sign @ ('>' | '<' | '#' | '!')) = rule.chars().next() {
        return format!("{sign}...");
    }
    let mut text: String = rule.chars().take(SHOWN_CHARS_MAX).map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.len() < rule.len() {
        text.push_str("...");
    }
    text
}

/// The words of a rule text; a selector, parentheses and all, is one word (`ACLMergeSelectorArguments`).
///
/// # Errors
/// A selector is not closed.
pub fn words(text: &str) -> Result<Vec<String>, BadRule> {
    let mut words = Vec::new();
    let mut open: Option<(String, &str)> = None;
    for word in text.split_ascii_whitespace() {
        if word.starts_with('(') && !word.ends_with(')') {
            open = Some((word.to_owned(), word));
        } else if let Some((mut selector, start)) = open.take() {
            selector.push(' ');
            selector.push_str(word);
            match word.ends_with(')') {
                true => words.push(selector),
                false => open = Some((selector, start)),
            }
        } else {
            words.push(word.to_owned());
        }
    }
    match open {
        Some((_, start)) => Err(BadRule { rule: start.to_owned(), error: RuleError::Unmatched }),
        None => Ok(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_one_word() {
        let words = words("on  (+get ~a) +set\t(+del)").expect("closed");
        assert_eq!(words, ["on", "(+get ~a)", "+set", "(+del)"]);
    }

    #[test]
    fn an_open_selector_is_named() {
        let error = words("on (+get ~a").expect_err("open").to_string();
        assert_eq!(error, "Unmatched parenthesis in acl selector starting at '(+get'.");
    }

    #[test]
    fn a_message_shows_the_rule_but_no_secret() {
        let shown = |rule: &str| BadRule { rule: rule.to_owned(), error: RuleError::Syntax }.to_string();
        assert_eq!(shown("+get\u{1b}"), "Error in ACL SETUSER modifier '+get?': Syntax error");
        for secret in [">canary", "<canary", "#canary", "!canary"] {
            assert!(!shown(secret).contains("canary"), "{secret}");
        }
    }
}
