//! The words of a command, as the regular expressions of PgBouncer divide it: `verb`, `verb argument`, `SET key = value`, each with a
//! semicolon behind it or none.

/// A command in words, without quotes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Words {
    None,
    Command { verb: String, argument: Option<String> },
    Set { key: String, value: String },
}

/// A word, or what divides words.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    /// Text, and whether it was quoted.
    Word(String, bool),
    Equals,
    Semicolon,
}

/// Divides `text`. `None`: it has no such form.
pub(super) fn split(text: &str) -> Option<Words> {
    let mut tokens = tokens(text)?;
    if tokens.last() == Some(&Token::Semicolon) {
        tokens.pop();
    }
    let mut words = Vec::new();
    let mut equals = None;
    for token in tokens {
        match token {
            Token::Word(word, is_quoted) => words.push((word, is_quoted)),
            Token::Equals if equals.is_none() => equals = Some(words.len()),
            Token::Equals | Token::Semicolon => return None,
        }
    }
    let is = |at: usize, word: &str| {
        words.get(at).is_some_and(|(own, is_quoted)| !is_quoted && own.eq_ignore_ascii_case(word))
    };
    if is(0, "set") {
        return match (words.len(), equals) {
            (3, Some(2)) => set(&words, 2),
            (4, None) if is(2, "to") => set(&words, 3),
            _ => None,
        };
    }
    let mut words = words.into_iter().map(|(word, _)| word);
    match (words.next(), words.next(), words.next(), equals) {
        (None, _, _, None) => Some(Words::None),
        (Some(verb), argument, None, None) => Some(Words::Command { verb, argument }),
        _ => None,
    }
}

fn set(words: &[(String, bool)], value: usize) -> Option<Words> {
    let (key, value) = (words[1].0.clone(), words[value].0.clone());
    (!key.is_empty()).then_some(Words::Set { key, value })
}

fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        // The health check of pgx is a comment.
        if rest.starts_with("--") {
            rest = rest.split_once('\n').map_or("", |(_, after)| after).trim_start();
            continue;
        }
        let (token, after) = match first {
            ';' => (Token::Semicolon, &rest[1..]),
            '=' => (Token::Equals, &rest[1..]),
            '"' | '\'' => quoted(rest, first)?,
            _ => {
                let end = rest.find(|c: char| c.is_whitespace() || matches!(c, ';' | '=' | '"' | '\''));
                let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
                (Token::Word(word.to_owned(), false), after)
            }
        };
        tokens.push(token);
        rest = after.trim_start();
    }
    Some(tokens)
}

/// A quoted word at the front of `text`, in which a doubled quote stands for one.
fn quoted(text: &str, quote: char) -> Option<(Token, &str)> {
    let mut word = String::new();
    let mut rest = &text[1..];
    loop {
        let end = rest.find(quote)?;
        word.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        if !rest.starts_with(quote) {
            return Some((Token::Word(word, true), rest));
        }
        word.push(quote);
        rest = &rest[1..];
    }
}
