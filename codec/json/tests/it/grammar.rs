//! Texts that RFC 8259 has and has not.

use weir_json_codec::limits::DEPTH_MAX;
use weir_json_codec::{Duplicates, Rule};

use crate::support::{accepts, scan, scan_at_every_cut};

const VALID: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "-0",
    "12",
    "-1.5e+10",
    "0e1",
    "0E-1",
    "1e999999",
    "\"\"",
    "[]",
    "{}",
    " [ ] ",
    "\t{\n}\r",
    "[1,2]",
    "{\"a\":1}",
    "{\"\":[{}]}",
    "[[[]],{\"a\":{}}]",
    "{\"a\":1,\"a\":2}",
    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\uFFFF\"",
    "\"\\ud83d\\ude00\"",
    "\"\\uD800\\uDC00\\uDBFF\\uDFFF\"",
    "\"\u{7f}\u{80}\u{7ff}\u{800}\u{ffff}\u{10000}\u{10ffff}\"",
    "[1.0, true , null]",
    "{ \"a\" : [ 1 , 2 ] , \"b\" : \"c\" }",
    "\"\u{2028}\"",
];

const INVALID: &[(&str, Rule)] = &[
    ("", Rule::End),
    (" ", Rule::End),
    ("[", Rule::End),
    ("{", Rule::End),
    ("{\"a\"", Rule::End),
    ("{\"a\":", Rule::End),
    ("{\"a\":1", Rule::End),
    ("{\"a\":1,", Rule::End),
    ("[1", Rule::End),
    ("[1,", Rule::End),
    ("\"", Rule::End),
    ("\"\\", Rule::End),
    ("\"\\u00", Rule::End),
    ("\"\\ud83d", Rule::End),
    ("-", Rule::End),
    ("1.", Rule::End),
    ("1e", Rule::End),
    ("1e+", Rule::End),
    ("tru", Rule::End),
    ("nul", Rule::End),
    ("]", Rule::Syntax),
    ("}", Rule::Syntax),
    (",", Rule::Syntax),
    (":", Rule::Syntax),
    ("[,", Rule::Syntax),
    ("[1,]", Rule::Syntax),
    ("[1 2]", Rule::Syntax),
    ("[1}", Rule::Syntax),
    ("{]", Rule::Syntax),
    ("{1:2}", Rule::Syntax),
    ("{\"a\" 1}", Rule::Syntax),
    ("{\"a\":}", Rule::Syntax),
    ("{\"a\":1,}", Rule::Syntax),
    ("{\"a\":1 \"b\":2}", Rule::Syntax),
    ("{\"a\"::1}", Rule::Syntax),
    ("{,}", Rule::Syntax),
    ("[1:2]", Rule::Syntax),
    ("1 1", Rule::Syntax),
    ("{}{}", Rule::Syntax),
    ("[]]", Rule::Syntax),
    ("\"a\"b", Rule::Syntax),
    ("nulL", Rule::Syntax),
    ("truefalse", Rule::Syntax),
    ("NaN", Rule::Syntax),
    ("Infinity", Rule::Syntax),
    ("'a'", Rule::Syntax),
    ("[1,//\n2]", Rule::Syntax),
    ("\u{feff}{}", Rule::Syntax),
    ("\u{a0}1", Rule::Syntax),
    ("+1", Rule::Syntax),
    (".5", Rule::Syntax),
    ("{\"a\":\"b\",\"c\"}", Rule::Syntax),
    ("\u{c}1", Rule::Syntax),
    ("[\"a\",\n4\n,1,1\n}", Rule::Syntax),
    ("01", Rule::Syntax),
    ("-01", Rule::Syntax),
    ("1x", Rule::Syntax),
    ("0x10", Rule::Syntax),
    ("[-]", Rule::Number),
    ("[1.]", Rule::Number),
    ("[1.e1]", Rule::Number),
    ("[1e]", Rule::Number),
    ("[1e+]", Rule::Number),
    ("-a", Rule::Number),
    ("[--1]", Rule::Number),
    ("\"\n\"", Rule::Control),
    ("\"\0\"", Rule::Control),
    ("\"a\tb\"", Rule::Control),
    ("\"\u{1f}\"", Rule::Control),
    ("\"\\x\"", Rule::Escape),
    ("\"\\U0041\"", Rule::Escape),
    ("\"\\u004\"", Rule::Escape),
    ("\"\\u00g0\"", Rule::Escape),
    ("\"\\'\"", Rule::Escape),
    ("\"\\\n\"", Rule::Escape),
    ("\"\\u+123\"", Rule::Escape),
    ("\"\\ud800\"", Rule::Surrogate),
    ("\"\\udc00\"", Rule::Surrogate),
    ("\"\\ud800\\n\"", Rule::Surrogate),
    ("\"\\ud800\\u0041\"", Rule::Surrogate),
    ("\"\\ud800\\ud800\"", Rule::Surrogate),
    ("\"\\ud800a\"", Rule::Surrogate),
];

const NO_UTF8: &[&[u8]] = &[
    b"\"\x80\"",
    b"\"\xc0\x80\"",
    b"\"\xc1\xbf\"",
    b"\"\xc3\"",
    b"\"\xe0\x80\x80\"",
    b"\"\xe0\x9f\xbf\"",
    b"\"\xed\xa0\x80\"",
    b"\"\xe2\x82\"",
    b"\"\xf0\x80\x80\x80\"",
    b"\"\xf0\x8f\xbf\xbf\"",
    b"\"\xf4\x90\x80\x80\"",
    b"\"\xf5\x80\x80\x80\"",
    b"\"\xff\"",
    b"\"\xfe\"",
    b"\"\xf0\x9f\x98\"",
    b"\"\xe2(\xa1\"",
    b"{\"\xff\":1}",
];

#[test]
fn valid_texts_are_accepted() {
    for text in VALID {
        assert_eq!(accepts(text.as_bytes()), Some(true), "{text}: the other reader");
        let verdict = scan_at_every_cut(text.as_bytes(), Duplicates::Refuse);
        assert!(verdict.is_ok(), "{text}: {verdict:?}");
    }
}

#[test]
fn invalid_texts_are_refused_by_the_rule_that_they_break() {
    for (text, rule) in INVALID {
        assert_eq!(accepts(text.as_bytes()), Some(false), "{text}: the other reader");
        let error = scan_at_every_cut(text.as_bytes(), Duplicates::Refuse).expect_err(text);
        assert_eq!(error.rule, *rule, "{text}: {error}");
    }
}

#[test]
fn a_string_that_is_not_utf8_is_refused() {
    for text in NO_UTF8 {
        assert_eq!(accepts(text), Some(false), "{text:x?}: the other reader");
        let error = scan_at_every_cut(text, Duplicates::Refuse).expect_err("no UTF-8");
        assert_eq!(error.rule, Rule::Utf8, "{text:x?}: {error}");
    }
}

#[test]
fn an_error_has_the_place_of_the_first_byte_that_cannot_stand_there() {
    for (text, offset) in
        [("[1,]", 3), ("{\"a\":1 2}", 7), ("\"ab\n\"", 3), ("\"\\ud800x\"", 7), ("nulx", 3), ("[1", 2), ("[1.x]", 3)]
    {
        assert_eq!(scan(text.as_bytes(), &[], Duplicates::Refuse).expect_err(text).offset, offset, "{text}");
    }
}

#[test]
fn a8_depth_has_a_limit_that_costs_no_stack() {
    let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
    assert!(scan_at_every_cut(&nested(DEPTH_MAX), Duplicates::Refuse).is_ok());
    for depth in [DEPTH_MAX + 1, 10_000] {
        let error = scan(&nested(depth), &[], Duplicates::Refuse).expect_err("too deep");
        assert_eq!((error.rule, error.offset), (Rule::Depth, DEPTH_MAX as u64));
    }
    let objects = ["{\"a\":".repeat(DEPTH_MAX - 1), "{}".into(), "}".repeat(DEPTH_MAX - 1)].concat();
    assert!(scan(objects.as_bytes(), &[], Duplicates::Refuse).is_ok());
    assert_eq!(
        scan("{\"a\":".repeat(200).as_bytes(), &[], Duplicates::Refuse).expect_err("too deep").rule,
        Rule::Depth
    );
}
