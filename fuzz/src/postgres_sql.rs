//! Any bytes as the text of a query.

use weir_analysis::postgres::{
    Analysis, Cache, Limits, Range, Reading, Statement, analyse_as, name, normal_form, quick, side_effect,
};

/// Small enough for inputs of a few bytes to reach them.
const SMALL: Limits = Limits { bytes_max: 512, tokens_max: 64, statements_max: 4, depth_max: 8 };

/// No panic; ranges are in the text and in order; the budgets hold; the quick pass and the cache agree with the analysis; other
/// white space and comments change no fact.
pub fn postgres_sql(data: &[u8]) {
    for limits in [SMALL, Limits::default()] {
        let mut cache = Cache::new(limits, 4096, 1);
        for reading in [Reading::Conforming, Reading::Escaping, Reading::Unknown] {
            let analysis = analyse_as(data, reading, &limits);
            check(data, &analysis, &limits);
            for _ in 0..2 {
                assert_eq!(*cache.analyse(data, reading), analysis);
                assert!(cache.bytes() <= 4096);
            }
        }
        quick_agrees(data, &limits);
    }
    other_blanks(data);
}

fn check(text: &[u8], analysis: &Analysis, limits: &Limits) {
    assert_eq!(analysis.is_whole, analysis.flaw.is_none());
    if !analysis.is_whole {
        assert!(analysis.statements.is_empty() && analysis.fingerprint == 0);
        assert!(!analysis.is_plain() && !analysis.is_read_only());
        return;
    }
    assert!(text.len() <= limits.bytes_max && analysis.statements.len() <= limits.statements_max);
    let mut end = 0;
    for statement in &analysis.statements {
        assert!(statement.range.start >= end && !statement.range.is_empty());
        end = statement.range.end;
        for &range in statement.tables.iter().chain(&statement.functions) {
            assert!(range.start >= statement.range.start && range.end <= end && !range.is_empty());
            let named = name(text, range);
            assert!(named.object.len() <= 63);
            side_effect(&named.object);
        }
    }
    assert!(end as usize <= text.len());
    for comment in [analysis.leading_comment, analysis.trailing_comment].into_iter().flatten() {
        let end = comment.end as usize;
        assert!(text[..comment.start as usize].ends_with(b"/*") && text[end..].starts_with(b"*/"));
    }
}

fn quick_agrees(text: &[u8], limits: &Limits) {
    let Some(quick) = quick(text, limits) else { return };
    for reading in [Reading::Conforming, Reading::Escaping, Reading::Unknown] {
        let analysis = analyse_as(text, reading, limits);
        assert!(analysis.is_plain());
        let [only] = &analysis.statements[..] else { panic!("{} statements", analysis.statements.len()) };
        assert_eq!((quick.class, quick.verb, quick.is_read_only), (only.class, only.verb, only.is_read_only));
    }
}

/// Comments and white space around the statements change nothing.
fn other_blanks(text: &[u8]) {
    let limits = Limits::default();
    let analysis = analyse_as(text, Reading::Unknown, &limits);
    let Some(form) = normal_form(text, &limits) else { return assert!(!analysis.is_whole) };
    assert!(analysis.is_whole);
    let mut spread = Vec::with_capacity(text.len() + 64);
    let mut at = 0;
    for statement in &analysis.statements {
        // Between statements and around them.
        spread.extend_from_slice(b"/* /* */ */ ");
        spread.extend_from_slice(&text[at..statement.range.end as usize]);
        spread.extend_from_slice(b"\n--\n");
        at = statement.range.end as usize;
    }
    spread.extend_from_slice(&text[at..]);
    let other = analyse_as(&spread, Reading::Unknown, &limits);
    if spread.len() > limits.bytes_max {
        return;
    }
    assert_eq!(other.fingerprint, analysis.fingerprint);
    assert_eq!(normal_form(&spread, &limits), Some(form));
    let facts = |text: &[u8], all: &[Statement]| {
        let names = |ranges: &[Range]| ranges.iter().map(|range| range.of(text).to_vec()).collect::<Vec<_>>();
        let of = |one: &Statement| (one.class, one.verb, one.is_read_only, names(&one.tables), names(&one.functions));
        all.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(facts(&spread, &other.statements), facts(text, &analysis.statements));
}
