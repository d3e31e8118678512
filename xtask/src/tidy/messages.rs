//! The texts that a source file's program shows: messages for operators and clients, and help.

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// Words of a message. A literal with fewer is a name.
const WORDS_MIN: usize = 3;

/// The string literals of a source file with words for people, with the lines that they begin on. The rest of a sentence begins
/// with a blank. Items for tests alone, documentation and the words of assertions are left out: developers read them.
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
    // The tokens before a group that name what the group belongs to: `name`, `.method` or `macro!`.
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
            TokenTree::Punct(mark) if mark.as_char() == '!' => called.push('!'),
            TokenTree::Punct(mark) if mark.as_char() == '.' => called = ".".to_owned(),
            TokenTree::Ident(name) if called == "." => called.push_str(&name.to_string()),
            TokenTree::Ident(name) => called = name.to_string(),
            TokenTree::Group(group) => {
                if !is_check(&called, group.delimiter()) {
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

/// Takes the rest of an item, a field or a case: up to its block, its semicolon or its comma.
fn skip_item(tokens: &mut impl Iterator<Item = TokenTree>) {
    let is_block = |group: &Group| group.delimiter() == Delimiter::Brace;
    // These have commas before their end: `fn of<A, B>()`.
    let mut has_commas = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) if is_block(&group) => return,
            TokenTree::Punct(mark) if mark.as_char() == ';' => return,
            TokenTree::Punct(mark) if mark.as_char() == ',' && !has_commas => return,
            TokenTree::Ident(word) => {
                has_commas |= ["const", "fn", "impl", "let", "static", "trait"].iter().any(|item| word == item);
            }
            _ => {}
        }
    }
}

/// Whether the group behind `called` has words for developers.
fn is_check(called: &str, delimiter: Delimiter) -> bool {
    match called.strip_suffix('!') {
        Some(name) => name.contains("assert") || matches!(name, "panic" | "unreachable"),
        None => delimiter == Delimiter::Parenthesis && matches!(called, ".expect" | ".expect_err"),
    }
}

/// The text of a literal as it stands in the source, if it is a string with words for people.
fn text_of(literal: &str) -> Option<String> {
    let (_, quoted) = literal.split_once('"')?;
    let (text, _) = quoted.rsplit_once('"')?;
    let start = if text.starts_with(' ') { " " } else { "" };
    // A gap in the text is one blank for every reader of this.
    let text = text.replace("\\\n", " ").replace("\\n", " ").replace("\\\"", "\"");
    let words: Vec<&str> = text.split_whitespace().collect();
    (words.len() >= WORDS_MIN).then(|| format!("{start}{}", words.join(" ")))
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

    #[test]
    fn words_of_items_with_the_name_of_a_check_are_found() {
        let text = "\"the server was asked\"";
        for source in [
            format!("fn expect() {{ {text} }}"),
            format!("expect({text});"),
            format!("panic({text});"),
            format!("Expect {{ assert: {text} }}"),
            format!("self.expect[{text}];"),
            format!("x != assert && !(y, {text});"),
        ] {
            assert_eq!(found(&source).len(), 1, "{source}");
        }
        for source in [
            format!("x.expect_err({text});"),
            format!("debug_assert_eq!(x, y, {text});"),
            format!("std::panic!({text});"),
            format!("unreachable! {{ {text} }}"),
        ] {
            assert_eq!(found(&source), [], "{source}");
        }
    }

    #[test]
    fn a_field_or_case_for_tests_ends_with_its_comma() {
        let text = "\"the server was asked\"";
        assert_eq!(found(&format!("A {{ #[cfg(test)] b: 1, c: {text} }}")).len(), 1);
        assert_eq!(found(&format!("match x {{ #[cfg(test)] A => {text}, B => {text} }}")).len(), 1);
        let test = format!("#[cfg(test)] fn f<A, B>() where A: C, B: C {{ {text} }}");
        assert_eq!(found(&format!("{test} const D: &str = {text};")).len(), 1);
    }

    #[test]
    fn a_literal_that_goes_on_begins_with_a_blank() {
        assert_eq!(found("write!(f, \" of the same server\")"), [(1, " of the same server".to_owned())]);
    }

    #[test]
    fn a_file_that_is_no_rust_is_an_error() {
        assert!(messages("fn f( {").is_err());
    }
}
