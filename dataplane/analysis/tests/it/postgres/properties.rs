//! Properties of every text: other white space, literals and case change nothing, and the quick pass agrees.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use weir_analysis::postgres::{Analysis, Flaw, Limits, Reading, analyse, analyse_as, normal_form, quick};

use super::golden::texts;

fn of(text: &str) -> Analysis {
    analyse(text.as_bytes(), &Limits::default())
}

fn form(text: &str) -> String {
    String::from_utf8(normal_form(text.as_bytes(), &Limits::default()).expect("whole")).expect("UTF-8")
}

#[test]
fn the_normal_form_of_a_text() {
    for (text, expected) in [
        ("SELECT  a FROM \"T\" -- c\nWHERE b='x' AND c != -1.5;", "select a from \"T\" where b = ? and c <> ?"),
        ("select * from t where a in (1, 2, $3)", "select * from t where a in ( ? )"),
        ("select * from t where a in (1, b, b, 2, 2)", "select * from t where a in ( ? , b , ? )"),
        ("select * from t where (a, b) in ((1, 2), (3, 4))", "select * from t where ( a , b ) in ( ( ? , ? ) )"),
        ("select a = any (array[1, 2, 3]), f(1, 1)", "select a = any ( array [ ? ] ) , f ( ? , ? )"),
        ("select * from t where a in (select b, b from u)", "select * from t where a in ( select b , b from u )"),
        ("insert into t values (1, NULL), (-2, 'x'), (3, now())", "insert into t values ( ? , ? ) , ( ? , now ( ) )"),
        ("insert into t values (1), (2) on conflict do nothing", "insert into t values ( ? ) on conflict do nothing"),
        ("select a - 1, -1, (a) - 1, a[1] - 1", "select a - ? , ? , ( a ) - ? , a [ ? ] - ?"),
        ("select x is null, y is not true, not false, null", "select x is null , y is not true , not false , ?"),
        ("select E'a\\'b', $$c$$, U&'d' UESCAPE '!', B'1', date '2020-01-01'", "select ? , ? , ? , ? , date ?"),
        ("select 1; ; set x = 'y';", "select ? ; set x = ?"),
        ("select a || -1, a @- 1", "select a || ? , a @- ?"),
        ("select x in (t.values, (1))", "select x in ( t . values , ( ? ) )"),
        ("select x in (t.values[1], t.values[1])", "select x in ( t . values [ ? ] )"),
        ("select t.values, (1), (1)", "select t . values , ( ? ) , ( ? )"),
        ("select array[x.values, (1), (1)]", "select array [ x . values , ( ? ) ]"),
        // No statement: rows in a list end two elements in one place.
        ("select x in (a values (long_name), 1)", "select x in ( a values ( long_name ) , ? )"),
    ] {
        assert_eq!(form(text), expected, "{text}");
    }
}

/// The form is a promise: these numbers must not change without a note in CHANGELOG.md.
#[test]
fn fingerprints_are_the_same_in_every_process() {
    assert_eq!(of("SELECT abalance FROM pgbench_accounts WHERE aid = 1;").fingerprint, 12_111_060_373_020_668_253);
    assert_eq!(of("").fingerprint, 0);
    assert_eq!(of("SELECT 'never ends").fingerprint, 0);
}

#[test]
fn budgets_hold() {
    let flaw = |text: &str, limits: Limits| {
        let analysis = analyse(text.as_bytes(), &limits);
        assert!(analysis.is_whole == analysis.flaw.is_none());
        assert!(analysis.is_whole || analysis.statements.is_empty() && analysis.fingerprint == 0);
        assert!(analysis.is_whole || !analysis.is_plain() && !analysis.is_read_only());
        analysis.flaw
    };
    let limits = Limits { bytes_max: 100, tokens_max: 10, statements_max: 3, depth_max: 2 };
    assert_eq!(flaw(&"x".repeat(101), limits), Some(Flaw::Bytes));
    assert_eq!(flaw(&"x".repeat(100), limits), None);
    assert_eq!(flaw(&"x ".repeat(11), limits), Some(Flaw::Tokens));
    assert_eq!(flaw(&"x ".repeat(10), limits), None);
    assert_eq!(flaw("a;b;c;d", limits), Some(Flaw::Statements));
    assert_eq!(flaw("a;b;c;;", limits), None);
    assert_eq!(flaw("a((())", limits), Some(Flaw::Depth));
    assert_eq!(flaw("a([]())", limits), None);
    assert_eq!(flaw("a\0b", limits), Some(Flaw::Nul));
    // P18: bombs end at the budget or at the end of the text, in linear time.
    for bomb in
        ["(", "/*", "SELECT ", "((SELECT ", "$a", "'", "\"", "a.", "E'\\", "WITH a AS (", "IN (1,", "::", "--\n"]
    {
        let text = bomb.repeat(2 * 1024 * 1024 / bomb.len());
        assert!(!of(&text).is_whole, "{bomb}");
        let text = bomb.repeat(128 * 1024 / bomb.len());
        of(&text);
        quick(text.as_bytes(), &Limits::default());
    }
}

#[test]
fn names_of_with_and_tables_cost_no_square_of_their_number() {
    let names: Vec<_> = (0..2_300).map(|at| format!("a{at} AS (SELECT 1)")).collect();
    let (names, tables) = (names.join(", "), "x, ".repeat(8_000));
    let begun = Instant::now();
    let found = of(&format!("WITH {names} SELECT * FROM {tables}a7"));
    // Each name beside each table took more than this in an optimized build.
    assert!(found.is_whole && begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let shadowed =
        of("WITH a AS (WITH a AS (SELECT 1) SELECT * FROM a), a AS (SELECT 1) SELECT * FROM a, (SELECT * FROM a) s");
    assert!(shadowed.statements[0].tables.is_empty(), "{shadowed:?}");
    let inner = of("WITH b AS (WITH a AS (SELECT 1) SELECT * FROM a) SELECT * FROM a, b");
    assert_eq!(inner.statements[0].tables.len(), 1, "a is over there: {inner:?}");
}

#[test]
fn the_two_readings_of_a_backslash() {
    let text = br"SELECT 'a\'; SET x = 'b'; --'";
    let limits = Limits::default();
    let statements = |reading| analyse_as(text, reading, &limits).statements.len();
    assert_eq!((statements(Reading::Conforming), statements(Reading::Escaping)), (2, 1));
    assert_eq!(analyse(text, &limits).flaw, Some(Flaw::Ambiguous));
    assert_eq!(quick(text, &limits), None);
}

/// The quick pass says nothing that the analysis does not say.
fn agrees(text: &[u8]) {
    let limits = Limits::default();
    let Some(quick) = quick(text, &limits) else { return };
    for reading in [Reading::Unknown, Reading::Conforming, Reading::Escaping] {
        let whole = analyse_as(text, reading, &limits);
        let shown = String::from_utf8_lossy(text);
        assert!(whole.is_plain(), "{shown}: {whole:?}");
        let [only] = &whole.statements[..] else { panic!("{shown}: {whole:?}") };
        assert_eq!(
            (quick.class, quick.verb, quick.is_read_only),
            (only.class, only.verb, only.is_read_only),
            "{shown}"
        );
    }
}

#[test]
fn the_quick_pass_agrees_and_proves_most_plain_texts() {
    let texts = texts();
    texts.iter().for_each(|text| agrees(text.as_bytes()));
    let limits = Limits::default();
    let proven = texts.iter().filter(|text| quick(text.as_bytes(), &limits).is_some()).count();
    assert!(proven > 30, "{proven} of {}", texts.len());
}

/// Pieces of texts: a word, and what it may be replaced by without another fingerprint.
const PIECES: &[&[&str]] = &[
    &["SELECT", "select", "Select"],
    &["a", "A"],
    &["from", "FROM"],
    &["t", "T"],
    &["\"Q\""],
    &["(", "( "],
    &[")"],
    &[","],
    // With a comma: two strings on two lines would be one.
    &["1,", "2.5,", "'x',", "'it''s',", "$1,", "$$b$$,", "E'\\'',", "x'ff',", "1e10,"],
    &["= 1,", "= -2.5,", "= 'x',", "= NULL,"],
    &["="],
    &["WHERE", "where"],
    &["IN", "in"],
    &["||"],
    &["<>", "!="],
    &["update", "UPDATE"],
    &["set", "SET"],
    &["insert into", "INSERT INTO"],
    &["values", "VALUES"],
    &["with", "WITH"],
    &["as", "AS"],
    &["delete from", "DELETE FROM"],
    &["f(", "F("],
    &["nextval(", "NEXTVAL("],
    &["for update", "FOR UPDATE"],
    &["join", "JOIN"],
    &[";"],
    &["is null", "IS NULL"],
];

const BLANKS: &[&str] = &[" ", "\n", "\t ", " /* c /* d */ */ ", " -- e\n", "\r\n"];

/// A text in one of its forms. A literal behind an operator or another could become part of it, so blanks are everywhere.
fn spelled(pieces: &[usize], choices: &[usize]) -> String {
    let mut text = String::new();
    for (at, &piece) in pieces.iter().enumerate() {
        let choice = choices[at % choices.len()] + at;
        let forms = PIECES[piece % PIECES.len()];
        text.push_str(BLANKS[choice % BLANKS.len()]);
        text.push_str(forms[choice % forms.len()]);
    }
    text
}

/// Facts without their places.
fn facts(text: &str) -> Vec<String> {
    let analysis = of(text);
    assert!(analysis.is_whole, "{text}");
    let of = |statement: &weir_analysis::postgres::Statement| {
        let names = |ranges: &[weir_analysis::postgres::Range]| {
            let name = |range| weir_analysis::postgres::name(text.as_bytes(), range).object.to_vec();
            ranges.iter().map(|&range| name(range)).collect::<Vec<_>>()
        };
        let kinds: Vec<_> = statement.effects.iter().map(std::mem::discriminant).collect();
        let names = (names(&statement.tables), names(&statement.functions));
        format!("{:?}", (statement.class, statement.verb, statement.is_read_only, names, kinds))
    };
    analysis.statements.iter().map(of).collect()
}

proptest! {
    #[test]
    fn literals_blanks_comments_and_case_change_nothing(
        pieces in prop::collection::vec(0..PIECES.len(), 1..40),
        one in prop::collection::vec(0..60_usize, 1..8),
        other in prop::collection::vec(0..60_usize, 1..8),
    ) {
        let (one, other) = (spelled(&pieces, &one), spelled(&pieces, &other));
        prop_assert_eq!(form(&one), form(&other));
        prop_assert_eq!(of(&one).fingerprint, of(&other).fingerprint);
        prop_assert_eq!(facts(&one), facts(&other));
        agrees(one.as_bytes());
    }

    #[test]
    fn any_bytes_are_analysed_within_the_text(text in prop::collection::vec(any::<u8>(), 0..200)) {
        for reading in [Reading::Unknown, Reading::Conforming, Reading::Escaping] {
            let analysis = analyse_as(&text, reading, &Limits::default());
            for statement in &analysis.statements {
                let all = statement.tables.iter().chain(&statement.functions).chain([&statement.range]);
                for range in all {
                    prop_assert!(range.start < range.end && range.end as usize <= text.len());
                }
            }
        }
        agrees(&text);
    }
}
