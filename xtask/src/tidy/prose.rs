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

/// Words that a message or a help does without too.
const AVOIDED_IN_MESSAGES: [(&str, &str); 4] = [
    ("ask", "request, need or require"),
    ("asks", "requests, needs or requires"),
    ("tell", "name the response, the message or the log line"),
    ("tells", "name the response, the message or the log line"),
];

/// Words that no sentence begins with, unless it is a question.
const BAD_BEGINNINGS: [&str; 3] = ["of", "what", "who"];

/// Files whose comments are the help of keys.
const HELP: [&str; 3] =
    ["control/config/src/protocols/", "control/config/src/sections.rs", "control/config/src/access_log.rs"];

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
        let mut mistakes = mistakes_of_comments(text, HELP.iter().any(|help| name.starts_with(help)));
        // The table of avoided words has them.
        if !is_test_code(name) && name != file!() {
            match messages(text) {
                Ok(messages) => {
                    mistakes.extend(messages.into_iter().flat_map(|(line, text)| mistakes_of_message(&text, line)));
                }
                Err(error) => mistakes.push((1, format!("the file cannot be read as Rust: {error}"))),
            }
        }
        found.extend(mistakes.into_iter().map(|(line, what)| format!("{name}:{line}: {what}")));
    }
    Ok(found)
}

/// Mistakes in the comments of a source file, with their lines. A comment may have a long sentence: a list of cases is often one.
/// `is_help`: operators read them as they read messages.
fn mistakes_of_comments(text: &str, is_help: bool) -> Vec<(usize, String)> {
    let comments = comments(text);
    if is_help {
        return sentences(&comments).iter().flat_map(|(line, sentence)| mistakes_of_message(sentence, *line)).collect();
    }
    mistakes(&comments).into_iter().filter(|(_, mistake)| !mistake.starts_with("a sentence of")).collect()
}

/// Mistakes in a message, help or another text that the program shows, which begins on `line`. A clause behind a semicolon
/// counts as a sentence. The rest of a sentence, with a blank before it, does not. A help may have a long sentence.
fn mistakes_of_message(text: &str, line: usize) -> Vec<(usize, String)> {
    let text = without_code(text);
    let mut is_rest = text.starts_with(' ');
    let mut found = Vec::new();
    for clause in text.split_inclusive("; ").flat_map(sentences_of_line) {
        let words = words(&clause);
        found.extend(avoided(&words, &AVOIDED, line));
        found.extend(avoided(&words, &AVOIDED_IN_MESSAGES, line));
        if !std::mem::take(&mut is_rest) {
            found.extend(begins_badly(&clause, &words).map(|mistake| (line, mistake)));
        }
    }
    found
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
        found.extend(avoided(&words, &AVOIDED, line));
    }
    found
}

/// The words of a sentence.
fn words(sentence: &str) -> Vec<String> {
    without_code(sentence).split_whitespace().map(bare).filter(|word| !word.is_empty()).collect()
}

/// A text with the place of a value, `{}`, for each piece of code. One that is not closed stays.
fn without_code(text: &str) -> String {
    let mut parts = text.split('`');
    let mut found = parts.next().unwrap_or_default().to_owned();
    while let Some(code) = parts.next() {
        let (mark, rest) = parts.next().map_or(("`", code), |rest| ("{}", rest));
        found.push_str(mark);
        found.push_str(rest);
    }
    found
}

/// The mistake of a `sentence` that begins with a word that none begins with.
fn begins_badly(sentence: &str, words: &[String]) -> Option<String> {
    let first = words.first().filter(|first| BAD_BEGINNINGS.contains(&first.as_str()))?;
    let is_question = sentence.trim_end().ends_with('?');
    (!is_question).then(|| format!("a sentence begins with \"{first}\": begin with its subject"))
}

/// The words of `table` among `words`.
fn avoided(
    words: &[String],
    table: &'static [(&'static str, &'static str)],
    line: usize,
) -> impl Iterator<Item = (usize, String)> + use<> {
    let all = format!(" {} ", words.join(" "));
    let is_there = move |(word, _): &&(&str, &str)| all.contains(&format!(" {word} "));
    table.iter().filter(is_there).map(move |(word, instead)| (line, format!("\"{word}\": {instead}")))
}

/// A word in lower case, without the marks around it. Code is no word of the language, and neither is the place of a value. A word
/// in capitals is a name, such as `ASK` of Redis, and stays.
fn bare(word: &str) -> String {
    if word.contains(['`', '{']) {
        return "`".to_owned();
    }
    let word = word.trim_matches(|letter: char| !letter.is_alphanumeric() && letter != '%');
    if word.chars().any(char::is_lowercase) { word.to_lowercase() } else { word.to_owned() }
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
        assert_eq!(count("the client asks for it; tell the server"), 2);
        assert_eq!(count(" of the server; of the client"), 1, "the first goes on with a sentence");
        assert_eq!(count("the key `a; of b` is written"), 0);
        assert_eq!(count("ASK {group} node:{target}"), 0);
    }

    #[test]
    fn a_help_is_judged_clause_by_clause() {
        let count = |text: &str, is_help| mistakes_of_comments(text, is_help).len();
        let help = "/// Time of a request;\n/// of the client. The client\n/// asks.\n";
        assert_eq!(count(help, true), 2);
        assert_eq!(count(help, false), 0);
        assert_eq!(count("/// Of it.\n/// The server is asked.\n", true), 2);
        assert_eq!(count(&format!("/// {}.\n", "word ".repeat(41)), true), 0);
    }

    #[test]
    fn code_is_one_word() {
        assert_eq!(words("The `a b c d`, (`e f`) and `g"), ["the", "`", "`", "and", "`"]);
        assert_eq!(found("The command `is not told of` it."), []);
        assert_eq!(found("`of` it, and `told x` it is asked.").len(), 1);
    }

    #[test]
    fn a_question_may_begin_with_what() {
        assert_eq!(found("What is it?"), []);
        assert_eq!(found("Good. What it is, is known."), [(1, "a sentence begins with \"what\"".to_owned())]);
    }
}
