//! Texts and what is known of them: `statements.txt`. Between two blank lines stand a text and, behind `> `, a line for each
//! of its statements. `WEIR_WRITE_GOLDEN=1` writes the lines again; read the difference before it is committed.

use std::fmt::Write as _;
use std::{env, fs, path::Path};

use weir_analysis::postgres::{Analysis, Effect, Limits, Range, Statement, Value, analyse};

fn words(text: &[u8], ranges: &[Range]) -> String {
    let words: Vec<_> = ranges.iter().map(|range| String::from_utf8_lossy(range.of(text))).collect();
    words.join(",")
}

/// Bytes as text in quotes.
fn shown(bytes: &[u8]) -> String {
    format!("<{}>", String::from_utf8_lossy(bytes))
}

fn value(value: &Value) -> String {
    match value {
        Value::Sql(text) => shown(text),
        Value::Config(text) => format!("config{}", shown(text)),
        Value::Default => "default".to_owned(),
        Value::Unknown => "unknown".to_owned(),
    }
}

fn effect(text: &[u8], effect: &Effect) -> String {
    let of = |range: Range| shown(range.of(text));
    match effect {
        Effect::Savepoint(name) => format!("savepoint{}", shown(name)),
        Effect::Release(name) => format!("release{}", shown(name)),
        Effect::RollbackTo(name) => format!("rollback-to{}", shown(name)),
        Effect::Set { scope, name, value: new } => format!("set-{scope:?}{}={}", shown(name), value(new)),
        Effect::SetRole { scope, value: new } => format!("role-{scope:?}={}", value(new)),
        Effect::SetSessionAuthorization { scope, value: new } => format!("authorization-{scope:?}={}", value(new)),
        Effect::SetConfig { name, is_local } => {
            format!("set-config{}:{is_local:?}", name.as_deref().map_or_else(String::new, shown))
        }
        Effect::Reset(name) => format!("reset{}", shown(name)),
        Effect::Prepare { name, types, body } => format!("prepare{}({})as{}", shown(name), of(*types), of(*body)),
        Effect::Execute { name, at } => format!("execute{}at{}", shown(name), of(*at)),
        Effect::Deallocate(name) => format!("deallocate{}", shown(name)),
        Effect::DeclareCursor { name, hold } => format!("cursor{}{}", shown(name), if *hold { "hold" } else { "" }),
        Effect::CloseCursor(name) => format!("close{}", shown(name)),
        Effect::Listen(name) => format!("listen{}", shown(name)),
        Effect::Unlisten(name) => format!("unlisten{}", shown(name)),
        other => format!("{other:?}"),
    }
}

fn line(text: &[u8], statement: &Statement) -> String {
    let mut line = format!("{} {}", statement.class.word(), statement.verb.word());
    let mut add = |word: &str, list: String| {
        if !list.is_empty() {
            let _ = write!(line, " | {word} {list}");
        }
    };
    add("", if statement.is_read_only { "read-only".to_owned() } else { String::new() });
    add("tables", words(text, &statement.tables));
    add("functions", words(text, &statement.functions));
    let effects: Vec<_> = statement.effects.iter().map(|found| effect(text, found)).collect();
    add("effects", effects.join("; "));
    add("copy", statement.copy.map_or_else(String::new, |copy| format!("{copy:?}")));
    line.replace(" |  ", " | ")
}

/// The lines of an analysis.
pub fn lines(text: &[u8], analysis: &Analysis) -> Vec<String> {
    if let Some(flaw) = analysis.flaw {
        return vec![format!("> not whole: {flaw:?}")];
    }
    let comment = |word: &str, range: Option<Range>| range.map(|range| format!("> {word} {}", shown(range.of(text))));
    let statements = analysis.statements.iter().map(|statement| format!("> {}", line(text, statement)));
    let mut lines: Vec<_> = statements.collect();
    lines.extend(comment("leading", analysis.leading_comment));
    lines.extend(comment("trailing", analysis.trailing_comment));
    if lines.is_empty() { vec!["> nothing".to_owned()] } else { lines }
}

/// Each text of the file with the lines behind it.
fn cases(file: &str) -> Vec<(String, Vec<String>)> {
    let blocks = file.split("\n\n").map(|block| block.trim_matches('\n'));
    let of = |block: &str| {
        let (expected, text): (Vec<&str>, Vec<&str>) = block.lines().partition(|line| line.starts_with("> "));
        (text.join("\n"), expected.into_iter().map(str::to_owned).collect())
    };
    blocks.filter(|block| !block.is_empty()).map(of).collect()
}

/// All texts of the file.
pub fn texts() -> Vec<String> {
    cases(include_str!("statements.txt")).into_iter().map(|case| case.0).collect()
}

#[test]
fn statements_have_these_facts() {
    let found: Vec<_> = cases(include_str!("statements.txt"))
        .into_iter()
        .map(|(text, expected)| {
            let analysis = analyse(text.as_bytes(), &Limits::default());
            (lines(text.as_bytes(), &analysis), text, expected)
        })
        .collect();
    assert!(found.len() > 250, "{} texts", found.len());
    if env::var_os("WEIR_WRITE_GOLDEN").is_some() {
        let blocks: Vec<_> = found.iter().map(|(lines, text, _)| format!("{text}\n{}\n", lines.join("\n"))).collect();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/postgres/statements.txt");
        fs::write(file, blocks.join("\n")).expect("written");
        return;
    }
    let wrong: Vec<_> = found.iter().filter(|(lines, _, expected)| lines != expected).collect();
    for (lines, text, expected) in &wrong {
        eprintln!("{text}\nexpected {expected:#?}\nfound {lines:#?}");
    }
    assert!(wrong.is_empty(), "{} texts differ", wrong.len());
}
