//! Words in braces that become values: of peers and of load programs.
//!
//! `{each origin}...{end}` stands once for each of what stands behind; within it `{origin}` and its parts are those of that one.
//! `{each route}...{end}` does the same with `{route}` and `{number}`.

use anyhow::{Context, Result, bail};

/// Values of the words. A value may contain words that were added later.
#[derive(Clone, Default)]
pub(crate) struct Words {
    words: Vec<(&'static str, String)>,
    lists: Vec<(&'static str, Vec<Words>)>,
}

impl Words {
    pub(crate) fn add(&mut self, word: &'static str, value: impl Into<String>) {
        self.words.push((word, value.into()));
    }

    /// Adds the list that `{each name}...{end}` iterates over.
    pub(crate) fn add_list(&mut self, name: &'static str, list: Vec<Self>) {
        self.lists.push((name, list));
    }

    /// `host:port` as the words `{origin}`, `{origin_host}` and `{origin_port}`; a Unix socket has no parts.
    pub(crate) fn of_origin(origin: &str) -> Self {
        let mut words = Self::default();
        words.add("{origin}", origin);
        if let Some((host, port)) = origin.rsplit_once(':').filter(|(scheme, _)| *scheme != "unix") {
            words.add("{origin_host}", host.trim_start_matches('[').trim_end_matches(']'));
            words.add("{origin_port}", port);
        }
        words
    }

    /// The text with all of them filled in.
    ///
    /// # Errors
    /// One of `known` has no value, or `{each ...}` has no end.
    pub(crate) fn fill(&self, text: &str, known: &[&str]) -> Result<String> {
        let mut text = text.to_owned();
        for (name, list) in &self.lists {
            text = repeated(&text, name, list)?;
        }
        let filled = self.once(&text);
        match known.iter().find(|word| filled.contains(**word)) {
            Some(word) => bail!("{word} has no value here: is the server behind the gateway at a Unix socket?"),
            None => Ok(filled),
        }
    }

    fn once(&self, text: &str) -> String {
        self.words.iter().fold(text.to_owned(), |text, (word, value)| text.replace(word, value))
    }
}

/// Each `{each name}...{end}` once for every entry of `list`.
fn repeated(text: &str, name: &str, list: &[Words]) -> Result<String> {
    const END: &str = "{end}";
    let begin = format!("{{each {name}}}");
    let (mut done, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once(&*begin) {
        let (block, behind) = behind.split_once(END).with_context(|| format!("{begin} has no {END}"))?;
        done.push_str(before);
        list.iter().for_each(|words| done.push_str(&words.once(block)));
        rest = behind;
    }
    Ok(done + rest)
}

/// Parts that look like words to be filled in: `{name}`.
pub(crate) fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('{').filter_map(move |(at, _)| {
        let length = text[at..].find('}')?;
        let is_word = text[at + 1..at + length].bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        is_word.then(|| &text[at..=at + length])
    })
}

/// An error that names the first word of `arguments` that is none of `known`.
pub(crate) fn check_known(file: &str, arguments: &[String], known: &[&str]) -> Result<()> {
    for argument in arguments {
        if let Some(word) = words_of(argument).find(|word| !known.contains(word)) {
            bail!("{file}: `arguments` has {word}, which is not filled in; there are {}", known.join(" "));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_filled_in_and_braces_of_the_format_stay() {
        let mut words = Words::of_origin("[::1]:6379");
        words.add("{port}", "7000");
        let text = words.fill("{ port: {port} } {origin_host} {origin_port} {origin}", &["{port}"]);
        assert_eq!(text.expect("all known"), "{ port: 7000 } ::1 6379 [::1]:6379");
        let unix = Words::of_origin("unix:/run/x");
        assert_eq!(unix.fill("{origin}", &["{origin_port}"]).expect("known"), "unix:/run/x");
        assert!(unix.fill("{origin_port}", &["{origin_port}"]).is_err());
    }

    #[test]
    fn a_block_is_repeated_for_each_of_its_list() {
        let mut words = Words::of_origin("a:1");
        words.add_list("origin", ["a:1", "b:2"].map(Words::of_origin).to_vec());
        let filled = words.fill("[{each origin}<{origin_host} {origin_port}>{end}] {origin}", &[]);
        assert_eq!(filled.expect("whole"), "[<a 1><b 2>] a:1");
        let refusal = words.fill("{each origin} x", &[]).expect_err("no end");
        assert_eq!(refusal.to_string(), "{each origin} has no {end}");
    }

    #[test]
    fn text_that_looks_like_a_word_is_one() {
        assert_eq!(words_of("{ a } {port} {each origin} {Port} {x_y").collect::<Vec<_>>(), ["{port}"]);
    }
}
