//! The values at watched places.

use weir_json_codec::limits::VALUE_BYTES_MAX;
use weir_json_codec::{Duplicates, Kind, Rule};

use crate::support::{Path, Seen, scan, scan_at_every_cut};

/// Each value as its path and its bytes, wherever the text is cut.
fn values(text: &str) -> Vec<(Path, String)> {
    let seen = scan_at_every_cut(text.as_bytes(), Duplicates::Refuse).expect(text);
    for value in &seen {
        let bytes = &text.as_bytes()[value.start..value.end];
        match value.kind {
            Kind::String { has_escapes } => {
                assert_eq!((value.text.as_deref(), has_escapes), (Some(bytes), bytes.contains(&b'\\')));
            }
            Kind::Number => assert_eq!(value.text.as_deref(), Some(bytes)),
            _ => assert_eq!(value.text, None),
        }
    }
    seen.iter().map(|value| (value.path, text[value.start..value.end].to_owned())).collect()
}

fn wanted(values: &[(Path, &str)]) -> Vec<(Path, String)> {
    values.iter().map(|(path, text)| (*path, (*text).to_owned())).collect()
}

#[test]
fn members_of_the_outermost_object_are_found_with_their_bytes() {
    let text = r#" { "x" : {"model":"no"}, "model" : "gpt\n-x" , "input":-12.5e3,"y":["model"],"tools" : null } "#;
    let whole = text.trim();
    assert_eq!(
        values(text),
        wanted(&[(Path::Model, "\"gpt\\n-x\""), (Path::Input, "-12.5e3"), (Path::Tools, "null"), (Path::Root, whole)])
    );
}

#[test]
fn nested_members_and_items_are_found_and_others_passed_over() {
    let text = r#"{"tools":[{"name":"a"},[{"name":"no"}],{"function":{"x":{"name":"no"},"name":"b"}},7],
        "stream_options":{"include_usage":true,"model":1}}"#;
    assert_eq!(
        values(text)[..4],
        wanted(&[
            (Path::Name, "\"a\""),
            (Path::Name, "\"b\""),
            (Path::Tools, r#"[{"name":"a"},[{"name":"no"}],{"function":{"x":{"name":"no"},"name":"b"}},7]"#),
            (Path::Include, "true"),
        ])
    );
}

#[test]
fn a_place_may_be_a_scalar_or_a_container() {
    assert_eq!(values(r#"{"input":"a"}"#)[0], (Path::Input, "\"a\"".into()));
    let found = values(r#"{"input":["a",{"text":"b"},{"other":1}]}"#);
    let paths: Vec<Path> = found.iter().map(|(path, _)| *path).collect();
    assert_eq!(paths, [Path::Part, Path::Text, Path::Part, Path::Part, Path::Input, Path::Root]);
    let count = |text: &str| scan(text.as_bytes(), &[], Duplicates::Refuse).expect("valid")[0].count;
    assert_eq!(count(r#"{"tools":[]}"#), 0);
    assert_eq!(count(r#"{"tools":[1,[2,3],{"a":4}]}"#), 3);
    assert_eq!(count(r#"{"tools":{"a":[1,2],"b":1}}"#), 2);
}

#[test]
fn a8_an_escaped_spelling_of_a_key_is_that_key() {
    let text =
        r#"{"\u006dodel":1,"stre\u0061m_options":{"include\u005fusage":false},"tools\u0000":1,"\ud83d\ude00":2}"#;
    let paths: Vec<Path> = values(text).iter().map(|(path, _)| *path).collect();
    assert_eq!(paths, [Path::Model, Path::Include, Path::Options, Path::Root]);
    let every_letter: String = "model".bytes().map(|byte| format!("\\u{byte:04X}")).collect();
    assert_eq!(values(&format!("{{\"{every_letter}\":1}}"))[0], (Path::Model, "1".into()));
}

#[test]
fn a8_a_watched_member_that_occurs_twice_is_refused_however_it_is_spelt() {
    for (text, offset) in [
        (r#"{"model":1,"model":1}"#, 11),
        (r#"{"model":1,"x":{},"mo\u0064el":1}"#, 18),
        (r#"{"stream_options":{},"a":1,"stream_options":null}"#, 27),
        (r#"{"stream_options":{"include_usage":1,"include_usage":2}}"#, 37),
        (r#"{"tools":[{"name":1},{"name":1,"name":2}]}"#, 31),
    ] {
        let error = scan_at_every_cut(text.as_bytes(), Duplicates::Refuse).expect_err(text);
        assert_eq!((error.rule, error.offset), (Rule::Duplicate, offset), "{text}");
        assert!(scan_at_every_cut(text.as_bytes(), Duplicates::Report).is_ok());
    }
    let others =
        r#"{"a":1,"a":2,"A":3,"tools":[{"name":1},{"name":2}],"b":{"model":1,"Model":2},"models":1,"model":2}"#;
    assert!(scan_at_every_cut(others.as_bytes(), Duplicates::Refuse).is_ok());
}

#[test]
fn a8_a_key_that_some_readers_take_for_a_watched_one_is_refused() {
    for key in
        ["Model", "MODEL", "mOdel", "\\u004dodel", "tool\u{17f}", "\u{17f}tream_option\u{17f}", "\\u017ftream_options"]
    {
        let text = format!("{{\"model\":1,\"{key}\":2}}");
        let error = scan_at_every_cut(text.as_bytes(), Duplicates::Refuse).expect_err(key);
        assert_eq!((error.rule, error.offset), (Rule::Case, 11), "{key}");
        assert!(scan_at_every_cut(text.as_bytes(), Duplicates::Report).is_ok(), "{key}");
    }
}

#[test]
fn the_text_of_a_long_value_is_not_held_and_its_place_is_known() {
    for (inside, is_held) in [(VALUE_BYTES_MAX - 2, true), (VALUE_BYTES_MAX - 1, false), (3 * VALUE_BYTES_MAX, false)] {
        let text = format!("{{\"model\":\"{}\",\"{}\":1}}", "x".repeat(inside), "k".repeat(inside));
        for cut in [0, 1, 9, 10, 11, 100, inside, inside + 10, inside + 11, text.len()] {
            for more in [cut, cut + 1, cut + 500] {
                let seen = scan(text.as_bytes(), &[cut, more], Duplicates::Refuse).expect("valid");
                let Seen { path, start, end, ref text, .. } = seen[0];
                assert_eq!((path, start, end, text.is_some()), (Path::Model, 9, 9 + inside + 2, is_held));
            }
        }
    }
}
