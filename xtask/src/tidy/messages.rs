//! The texts that a source file's program shows: messages for operators and clients, and help.

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// Words of a message. A literal with fewer is a name.
const WORDS_MIN: usize = 3;

/// The string literals of a source file with words for people, with the lines that they begin on. Items for tests alone, documentation
/// and the words of assertions are left out: developers read them.
///
/// # Errors
/// `text` is not Rust.
pub(super) fn messages(text: &str) -> Result<Vec<(usize, String)>> {
    let tokens: TokenStream = text.parse().map_err(|error| anyhow!("{error}"))?;
    let mut found = Vec::new();
    collect(tokens, &mut found);
    Ok(found)
}

fn collect(tokens: TokenStream, found: &mut Vec<(usize, String)>) {
    let mut tokens = tokens.into_iter().peekable();
    // The word before a group names the macro or the method that the group belongs to.
    let mut called = String::new();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                // `#![…]`, such as the documentation of a file.
                tokens.next_if(|next| matches!(next, TokenTree::Punct(mark) if mark.as_char() == '!'));
                let attribute = tokens.next_if(|next| matches!(next, TokenTree::Group(_)));
                if attribute.is_some_and(|attribute| is_for_tests(&attribute)) {
                    skip_item(&mut tokens);
                }
            }
            TokenTree::Punct(mark) if mark.as_char() == '!' => {}
            TokenTree::Ident(name) => called = name.to_string(),
            TokenTree::Group(group) => {
                if !is_check(&called) {
                    collect(group.stream(), found);
                }
                called.clear();
            }
            TokenTree::Literal(literal) => {
                let line = literal.span().start().line;
                found.extend(text_of(&literal.to_string()).map(|text| (line, text)));
            }
            TokenTree::Punct(_) => called.clear(),
        }
    }
}

/// Whether an attribute is `[cfg(test)]`.
fn is_for_tests(attribute: &TokenTree) -> bool {
    let words: String = attribute.to_string().chars().filter(|letter| !letter.is_whitespace()).collect();
    words == "[cfg(test)]"
}

/// Takes the rest of an item: up to its block, or its semicolon.
fn skip_item(tokens: &mut impl Iterator<Item = TokenTree>) {
    let is_block = |group: &Group| group.delimiter() == Delimiter::Brace;
    for token in tokens {
        match token {
            TokenTree::Group(group) if is_block(&group) => return,
            TokenTree::Punct(mark) if mark.as_char() == ';' => return,
            _ => {}
        }
    }
}

/// Whether a macro or method of this name has words for developers.
fn is_check(called: &str) -> bool {
    called.contains("assert") || matches!(called, "expect" | "expect_err" | "panic" | "unreachable")
}

/// The text of a literal as it stands in the source, if it is a string with words for people.
fn text_of(literal: &str) -> Option<String> {
    let (_, quoted) = literal.split_once('"')?;
    let (text, _) = quoted.rsplit_once('"')?;
    // A gap in the text is one blank for every reader of this.
    let text = text.replace("\\\n", " ").replace("\\n", " ").replace("\\\"", "\"");
    let words: Vec<&str> = text.split_whitespace().collect();
    (words.len() >= WORDS_MIN).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        messages(text).expect("Rust")
    }

    #[test]
    fn literals_are_found_whole_with_their_first_line() {
        let one = (2, "the server was asked".to_owned());
        assert_eq!(found("\nlet it = \"the server was asked\";"), std::slice::from_ref(&one));
        assert_eq!(found("\nlet it = \"the server \\\n    was asked\";"), std::slice::from_ref(&one));
        assert_eq!(found("\nlet it = (r#\"the server was asked\"#, b'\"', '\"');"), [one]);
        assert_eq!(found("fn f() { g(h!(\"in two groups\")) } // \"not a word here\"").len(), 1);
        assert_eq!(found("\"two words\"; /* \"a comment of words\" */ // \"one more of them\"").len(), 0);
    }

    #[test]
    fn words_for_developers_are_left_out() {
        assert_eq!(found("assert!(x, \"the server was asked\"); x.expect(\"the server was asked\");"), []);
        assert_eq!(found("//! It has \"words of documents\".\n"), []);
        assert_eq!(found("/// It has \"words of documents\".\nstruct A;"), []);
        let test = "#[cfg(test)]\nfn x() {\n    y(\"the server was asked\")\n}\n";
        assert_eq!(found(test), []);
        assert_eq!(found(&format!("{test}const A: &str = \"the server was asked\";")).len(), 1);
        assert_eq!(found("#[cfg(test)]\nmod tests;\nconst A: &str = \"the server was asked\";").len(), 1);
    }
}
