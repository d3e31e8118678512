//! The words behind a subcommand: options, and their values.

use std::str::FromStr;

use anyhow::{Context, Result, anyhow};

/// Words in their order.
pub(crate) struct Words<'a> {
    rest: std::iter::Copied<std::slice::Iter<'a, &'a str>>,
    option: &'a str,
    usage: &'static str,
}

impl<'a> Words<'a> {
    /// `usage` is shown with every mistake.
    pub(crate) fn new(words: &'a [&'a str], usage: &'static str) -> Self {
        Self { rest: words.iter().copied(), option: "", usage }
    }

    /// The next option.
    pub(crate) fn option(&mut self) -> Option<&'a str> {
        self.option = self.rest.next()?;
        Some(self.option)
    }

    /// What stands behind it.
    pub(crate) fn value(&mut self) -> Result<&'a str> {
        self.rest.next().with_context(|| format!("{} needs a value\n\n{}", self.option, self.usage))
    }

    /// The same as a number.
    pub(crate) fn number<T: FromStr>(&mut self) -> Result<T> {
        self.value()?.parse().map_err(|_| anyhow!("{} needs a number\n\n{}", self.option, self.usage))
    }

    /// The last option is none.
    pub(crate) fn unknown(&self) -> anyhow::Error {
        anyhow!("unknown option `{}`\n\n{}", self.option, self.usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_names_the_option() {
        let mut words = Words::new(&["--rate", "fast", "--last"], "usage");
        assert_eq!(words.option(), Some("--rate"));
        assert!(words.number::<u64>().unwrap_err().to_string().starts_with("--rate needs a number"));
        assert_eq!(words.option(), Some("--last"));
        assert!(words.value().unwrap_err().to_string().starts_with("--last needs a value"));
        assert!(words.unknown().to_string().contains("`--last`"));
        assert_eq!(words.option(), None);
    }
}
