//! The prose of documents and comments: short sentences, and words that a reader knows at first sight.

use anyhow::{Context, Result};

use crate::tidy::functions::is_test_code;
use crate::tidy::links::prose;
use crate::tidy::messages::messages;
use crate::tidy::sources::{SourceFile, collect};
use crate::workspace::Workspace;

/// Words of a sentence. A longer one needs two readings.
const SENTENCE_WORDS_MAX: usize = 40;

/// Words that a document does without, with what to write. Lower case; a blank stands for any gap.
const AVOIDED: [(&str, &str); 6] = [
    ("anew", "again"),
    ("asked", "name the request, the check or the setting"),
    ("but for", "except"),
    ("nobody", "name the part that does not"),
    ("told", "name the response, the message or the log line"),
    ("whoever", "name the client, the server or the operator"),
];

/// Words that no sentence begins with, unless it is a question.
const BAD_BEGINNINGS: [&str; 3] = ["of", "what", "who"];

/// Documents that a command writes, of results or of declarations.
const EXEMPT: [&str; 4] = ["docs/results/", "docs/CONFIG.md", "docs/METRICS.md", "lab/trials/src/testdata/"];

/// Sentences of documents that are too long, and words that a document, or a comment or message in `files`, does without.
///
/// # Errors
/// A document cannot be read.
pub fn violations(workspace: &Workspace, files: &[SourceFile]) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    collect(&workspace.root, &workspace.target, &["md"], &mut paths)?;
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let name = workspace.relative(&path);
        if EXEMPT.iter().any(|exempt| name.starts_with(exempt)) {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("{name} is not readable"))?;
        found.extend(mistakes(&text).into_iter().map(|(line, what)| format!("{name}:{line}: {what}")));
    }
    for SourceFile { name, text, .. } in files.iter().filter(|file| file.name.ends_with(".rs") && !file.is_generated())
    {
        let mut mistakes = mistakes_of_comments(text);
        // The table of avoided words has them.
        if !is_test_code(name) && name != file!() {
            let messages = messages(text).with_context(|| format!("{name} is not Rust"))?;
            mistakes.extend(messages.into_iter().flat_map(|(line, text)| mistakes_of_message(&text, line)));
        }
        found.extend(mistakes.into_iter().map(|(line, what)| format!("{name}:{line}: {what}")));
    }
    Ok(found)
}

/// Mistakes in the comments of a source file, with their lines. A comment may have a long sentence: a list of cases is often one.
fn mistakes_of_comments(text: &str) -> Vec<(usize, String)> {
    mistakes(&comments(text)).into_iter().filter(|(_, mistake)| !mistake.starts_with("a sentence of")).collect()
}

/// Mistakes in a message, help or another text that the program shows, whose literal begins on `line`. A clause behind a semicolon
/// counts as a sentence. A help may have a long sentence.
fn mistakes_of_message(text: &str, line: usize) -> Vec<(usize, String)> {
    let clauses = text.split_inclusive("; ").flat_map(sentences_of_line);
    let found = clauses.flat_map(|clause| {
        let words = words(&clause);
        let mut found: Vec<_> = avoided(&words, line).collect();
        found.extend(begins_badly(&clause, &words).map(|mistake| (line, mistake)));
        found
    });
    found.collect()
}

/// The sentences of a text without lists and tables.
fn sentences_of_line(text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for word in text.split_whitespace() {
        if let Some(last) = found.last_mut() {
            last.push_str(word);
            last.push(' ');
        }
        if ends_sentence(word) {
            found.push(String::new());
        }
    }
    found
}

/// The text of the comments of a source file, each on its own line of the file, and nothing else.
fn comments(text: &str) -> String {
    let comment = |line: &str| {
        let text = line.trim_start().strip_prefix("//").map(|text| text.trim_start_matches(['/', '!']));
        format!("{}\n", text.unwrap_or_default())
    };
    text.lines().map(comment).collect()
}

/// Mistakes in the sentences of a document, with their lines.
fn mistakes(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, sentence) in sentences(text) {
        let words = words(&sentence);
        if words.len() > SENTENCE_WORDS_MAX {
            let count = words.len();
            found.push((line, format!("a sentence of {count} words; the most is {SENTENCE_WORDS_MAX}: make two")));
        }
        found.extend(begins_badly(&sentence, &words).map(|mistake| (line, mistake)));
        found.extend(avoided(&words, line));
    }
    found
}

/// The words of a sentence.
fn words(sentence: &str) -> Vec<String> {
    sentence.split_whitespace().map(bare).filter(|word| !word.is_empty()).collect()
}

/// The mistake of a `sentence` that begins with a word that none begins with.
fn begins_badly(sentence: &str, words: &[String]) -> Option<String> {
    let first = words.first().filter(|first| BAD_BEGINNINGS.contains(&first.as_str()))?;
    let is_question = sentence.trim_end().ends_with('?');
    (!is_question).then(|| format!("a sentence begins with \"{first}\": begin with its subject"))
}

/// The avoided words among `words`.
fn avoided(words: &[String], line: usize) -> impl Iterator<Item = (usize, String)> + use<> {
    let all = format!(" {} ", words.join(" "));
    let is_there = move |(word, _): &&(&str, &str)| all.contains(&format!(" {word} "));
    AVOIDED.iter().filter(is_there).map(move |(word, instead)| (line, format!("\"{word}\": {instead}")))
}

/// A word in lower case, without the marks around it. Code is no word of the language, and neither is the place of a value.
fn bare(word: &str) -> String {
    if word.contains(['`', '{']) {
        return "`".to_owned();
    }
    word.trim_matches(|letter: char| !letter.is_alphanumeric() && letter != '%').to_lowercase()
}

/// The sentences of a document with the lines that they begin on. An item of a list, a heading and a cell of a table end a sentence, whether
/// it has a full stop or not.
fn sentences(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let (mut begun, mut present) = (0, String::new());
    let mut last = 0;
    for (number, line) in prose(text) {
        let line = line.trim();
        let is_table = line.starts_with('|');
        let begins_block = line.is_empty() || line.starts_with(['#', '>', '|']) || is_item(line) || number != last + 1;
        last = number;
        if begins_block {
            finish(&mut present, begun, &mut found);
        }
        // A bar within code is none of the table.
        for part in if is_table { cells(line) } else { vec![line] } {
            if is_table {
                finish(&mut present, begun, &mut found);
            }
            for word in part.split_whitespace() {
                if present.is_empty() {
                    begun = number;
                }
                present.push_str(word);
                present.push(' ');
                if ends_sentence(word) {
                    finish(&mut present, begun, &mut found);
                }
            }
        }
        if is_table || line.starts_with('#') {
            finish(&mut present, begun, &mut found);
        }
    }
    finish(&mut present, begun, &mut found);
    found
}

fn finish(present: &mut String, begun: usize, found: &mut Vec<(usize, String)>) {
    let sentence = std::mem::take(present);
    if !sentence.trim().is_empty() {
        found.push((begun, sentence));
    }
}

/// Cells of a row of a table.
fn cells(row: &str) -> Vec<&str> {
    let (mut found, mut start, mut is_code, mut before) = (Vec::new(), 0, false, ' ');
    for (at, letter) in row.char_indices() {
        is_code ^= letter == '`';
        if letter == '|' && !is_code && before != '\\' {
            found.push(&row[start..at]);
            start = at + 1;
        }
        before = letter;
    }
    found.push(&row[start..]);
    found
}

/// `- `, `* ` or `1. `.
fn is_item(line: &str) -> bool {
    let digits = line.trim_start_matches(|letter: char| letter.is_ascii_digit());
    line.starts_with("- ") || line.starts_with("* ") || (digits.len() < line.len() && digits.starts_with(". "))
}

fn ends_sentence(word: &str) -> bool {
    let end = word.trim_end_matches(['*', '_', ')', '"', '\u{201d}']);
    let is_short = matches!(end.to_lowercase().as_str(), "e.g." | "i.e." | "etc." | "vs." | "no." | "cf.");
    // The number of an item.
    let is_number = end.strip_suffix('.').is_some_and(|it| !it.is_empty() && it.chars().all(|it| it.is_ascii_digit()));
    end.ends_with(['.', '?', '!']) && !is_short && !is_number
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        mistakes(text).into_iter().map(|(line, what)| (line, what.split(':').next().unwrap_or("").to_owned())).collect()
    }

    #[test]
    fn a_long_sentence_is_found_on_its_first_line() {
        let long = "word ".repeat(37);
        let text = format!("# A heading\n\nShort one. {long}\nend of it. Short.\n\n- {long}end\n");
        assert!(found(&text).is_empty(), "40 words, and 38");
        let text = format!("Short one. {long}\nand the end of it.\n");
        assert_eq!(found(&text), [(1, "a sentence of 42 words; the most is 40".to_owned())]);
    }

    #[test]
    fn items_cells_and_headings_are_sentences_of_their_own() {
        let twenty = "word ".repeat(20);
        let text = format!(
            "| {twenty} | {twenty} |\n|---|---|\n| {twenty} | `a | b` {twenty} |\n\n1. {twenty}\n2. {twenty}\n"
        );
        assert!(found(&text).is_empty(), "{:?}", found(&text));
    }

    #[test]
    fn words_that_documents_do_without_are_found_outside_of_code() {
        assert_eq!(found("The server is asked.\nIt was `told` nothing,\nbut for this.").len(), 2);
        assert_eq!(found("```\nasked\n```\n    told\n"), []);
        assert_eq!(found("Nobody knows."), [(1, "\"nobody\"".to_owned())]);
    }

    #[test]
    fn a_message_is_judged_clause_by_clause() {
        let count = |text: &str| mistakes_of_message(text, 1).len();
        assert_eq!(count("the server was asked twice"), 1);
        assert_eq!(count("what the server says"), 1);
        assert_eq!(count("the server says no; what it means is known. Of course"), 2);
        assert_eq!(count("what is the name of the server?"), 0);
        assert_eq!(count("the reason is what it says"), 0);
        assert_eq!(count("{what} of {which} server"), 0);
    }

    #[test]
    fn a_question_may_begin_with_what() {
        assert_eq!(found("What is it?"), []);
        assert_eq!(found("Good. What it is, is known."), [(1, "a sentence begins with \"what\"".to_owned())]);
    }
}
