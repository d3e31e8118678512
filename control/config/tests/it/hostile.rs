//! Whatever stands in the file, the result is a snapshot or a report: no panic, no secret shown, no unbounded report.

use std::path::Path;

use crate::support::Memory;
use proptest::prelude::*;
use weir_config::{Diagnostics, Snapshot, check, redacted};

const FULL: &str = include_str!("../../../../examples/redis-full.toml");

fn judged(source: &str) -> Result<Snapshot, Diagnostics> {
    let mut surroundings = Memory::furnished();
    for name in ["REDIS_CLIENT_PASSWORD", "REDIS_USER_PASSWORD", "WEIR_ADMIN_TOKEN"] {
        surroundings.variables.insert(name, "canary-0123456789abcdef".to_owned());
    }
    for (from, to) in
        [("server.crt", "certs/server.crt"), ("server.key", "certs/server.key"), ("ca.crt", "certs/ca.crt")]
    {
        surroundings.files.insert(to, surroundings.files[from].clone());
    }
    surroundings.files.insert("results/redis-real.json", surroundings.files["knee.json"].clone());
    surroundings.files.insert("certs/client.crt", surroundings.files["server.crt"].clone());
    for name in ["certs/client.key", "certs/redis-password"] {
        surroundings.files.insert(name, surroundings.files["server.key"].clone());
    }
    check(source, "weir.toml", Path::new(""), &surroundings)
}

/// Renders everything there is to render, and looks for what must not be in it.
fn survive(source: &str) {
    let told = match judged(source) {
        Ok(snapshot) => format!("{snapshot:?} {} {}", redacted(&snapshot), snapshot.warnings),
        Err(diagnostics) => {
            assert!(diagnostics.errors() > 0);
            assert!(diagnostics.iter().count() <= 100);
            format!("{diagnostics} {}", diagnostics.to_json())
        }
    };
    assert!(!told.contains("canary"), "{told}");
}

/// One random edit of a text.
#[derive(Clone, Debug)]
enum Edit {
    Remove { at: usize, length: usize },
    Insert { at: usize, text: String },
    SwapLines { a: usize, b: usize },
    RepeatLine { at: usize },
}

const SNIPPETS: [&str; 28] = [
    "=",
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    "\"",
    "'''",
    "\"\"\"",
    "\n",
    ".",
    ",",
    "#",
    "-",
    "\\u0000",
    "\u{0}",
    "\u{fffd}",
    "é",
    "inf",
    "nan",
    "0x",
    "9999999999999999999999",
    "1979-05-27",
    "[listener]\n",
    "[[upstream]]\n",
    "a.b.c.d.e = 1\n",
    "\r",
];

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (any::<usize>(), 1usize..40).prop_map(|(at, length)| Edit::Remove { at, length }),
        (any::<usize>(), prop::sample::select(&SNIPPETS[..]))
            .prop_map(|(at, text)| Edit::Insert { at, text: text.to_owned() }),
        (any::<usize>(), "\\PC{0,12}").prop_map(|(at, text)| Edit::Insert { at, text }),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Edit::SwapLines { a, b }),
        any::<usize>().prop_map(|at| Edit::RepeatLine { at }),
    ]
}

fn apply(text: &mut String, edit: &Edit) {
    let boundary = |text: &str, at: usize| {
        let mut at = at % (text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    match edit {
        Edit::Remove { at, length } => {
            let start = boundary(text, *at);
            let mut end = (start + length).min(text.len());
            while !text.is_char_boundary(end) {
                end += 1;
            }
            text.replace_range(start..end, "");
        }
        Edit::Insert { at, text: inserted } => {
            let at = boundary(text, *at);
            text.insert_str(at, inserted);
        }
        Edit::SwapLines { a, b } => {
            let mut all = lines(text);
            let count = all.len().max(1);
            if !all.is_empty() {
                all.swap(a % count, b % count);
            }
            *text = all.join("\n");
        }
        Edit::RepeatLine { at } => {
            let mut all = lines(text);
            if !all.is_empty() {
                let at = at % all.len();
                all.insert(at, all[at].clone());
            }
            *text = all.join("\n");
        }
    }
}

#[test]
fn the_unchanged_file_is_good() {
    if let Err(diagnostics) = judged(FULL) {
        panic!("{diagnostics}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn random_edits_of_a_good_file_are_survived(edits in prop::collection::vec(edit(), 1..8)) {
        let mut text = FULL.to_owned();
        for edit in &edits {
            apply(&mut text, edit);
        }
        survive(&text);
    }

    #[test]
    fn random_text_is_survived(text in "[\\[\\]{}=\"'a-z0-9_.,# \n-]{0,300}") {
        survive(&text);
    }

    #[test]
    fn a_secret_in_the_file_is_never_shown(edits in prop::collection::vec(edit(), 0..3), form in 0usize..6) {
        let line = [
            "password = \"canary\"",
            "password = 'canary'",
            "passwd = \"canary\"",
            "password = { value = \"canary\" }",
            "password = [\"canary\"]",
            "redis_token = \"canary\"",
        ][form];
        let mut text = FULL.replace("password = { env = \"REDIS_CLIENT_PASSWORD\" }", line);
        for edit in &edits {
            apply(&mut text, edit);
        }
        // An edit may cut the word itself or mask the line as a comment; the rest of it must not be shown, unless
        // the edit tore the value from its key and so made it unrecognisable.
        let is_whole = text.lines().any(|whole| whole.starts_with(line));
        if is_whole {
            survive(&text);
        }
    }
}

#[test]
fn deep_and_wide_files_are_survived() {
    survive(&format!("a = {}", "[".repeat(200_000)));
    survive(&format!("a = {}", "{a=".repeat(100_000)));
    survive(&format!("[{}]", "a.".repeat(100_000)));
    survive(&"x = 1\n".repeat(100_000));
    survive(&(0..50_000).map(|number| format!("k{number} = 1\n")).collect::<String>());
    survive(&"[[listener]]\n".repeat(50_000));
    survive(&format!("{FULL}\nendpoints = [{}]", "\"a:1\",".repeat(50_000)));
    let wide = FULL.replace("[\"10.0.0.0/8\"]", &format!("[{}]", "\"10.0.0.0/8\",".repeat(5_000)));
    survive(&wide);
    survive(&"#".repeat(2 << 20));
}
