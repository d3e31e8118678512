//! The scanner and serde_json on random and broken texts: the same verdict, and the same values.

use proptest::prelude::*;
use serde_json::Value;
use weir_json_codec::{Duplicates, Kind, Rule, decode, integer};

use crate::support::{Path, Seen, accepts, scan};

/// Texts that are valid JSON more often than not.
fn value() -> impl Strategy<Value = String> {
    let scalars = prop::sample::select(vec![
        "null",
        "true",
        "false",
        "0",
        "-0",
        "7",
        "-12.5e3",
        "1e999",
        "18446744073709551616",
        "\"\"",
        "\"a\\n\"",
        "\"\\u00e9\"",
        "\"\\ud83d\\ude00\"",
        "\"\u{e9}\u{1f600}\"",
        "\"include_usage\"",
        "\" long enough for a vector or two, and some more of it\"",
    ]);
    let leaf = scalars.prop_map(str::to_owned);
    leaf.prop_recursive(4, 32, 5, |inner| {
        let key = prop::sample::select(vec![
            "model",
            "mo\\u0064el",
            "stream_options",
            "include_usage",
            "tools",
            "name",
            "function",
            "input",
            "text",
            "a",
            "\\n",
            "",
        ]);
        let blank = prop::sample::select(vec!["", "", "", " ", "\n\t\r "]);
        prop_oneof![
            (prop::collection::vec(inner.clone(), 0..5), blank.clone())
                .prop_map(|(items, blank)| format!("[{blank}{}{blank}]", items.join(&format!("{blank},{blank}")))),
            (prop::collection::vec((key, inner), 0..6), blank).prop_map(|(members, blank)| {
                let members: Vec<String> =
                    members.iter().map(|(key, value)| format!("\"{key}\"{blank}:{blank}{value}")).collect();
                format!("{{{blank}{}{blank}}}", members.join(&format!("{blank},{blank}")))
            }),
        ]
    })
}

/// A text and some damage.
fn broken() -> impl Strategy<Value = Vec<u8>> {
    let byte =
        prop_oneof![any::<u8>(), prop::sample::select(b"{}[],:\"\\ue0-.19tfn \n\xe2\x82\xac\xf0\xed\xa0\x80".to_vec())];
    (value(), prop::collection::vec((any::<prop::sample::Index>(), byte, 0..3_u8), 0..4)).prop_map(|(text, damage)| {
        let mut text = text.into_bytes();
        for (place, byte, kind) in damage {
            let at = place.index(text.len() + 1);
            match kind {
                0 => text.insert(at, byte),
                1 if at < text.len() => text[at] = byte,
                _ if at < text.len() => drop(text.remove(at)),
                _ => {}
            }
        }
        text
    })
}

/// The value at a path of the tree that serde_json makes, in which the last of equal members counts.
fn expected(tree: &Value, path: Path) -> Option<&Value> {
    match path {
        Path::Root => Some(tree),
        Path::Model => tree.get("model"),
        Path::Options => tree.get("stream_options"),
        Path::Include => tree.get("stream_options")?.get("include_usage"),
        Path::Tools => tree.get("tools"),
        Path::Input => tree.get("input"),
        _ => None,
    }
}

/// Every value reads as the bytes at its place do, and is the one that the tree has.
fn compare(text: &[u8], seen: &[Seen], tree: &Value) {
    for value in seen {
        let bytes = &text[value.start..value.end];
        let read: Value = serde_json::from_slice(bytes).expect("the place of a value is a value");
        let kind_fits = match (value.kind, &read) {
            (Kind::Object, Value::Object(_)) | (Kind::Number, Value::Number(_)) | (Kind::Null, Value::Null) => true,
            (Kind::True, Value::Bool(true)) | (Kind::False, Value::Bool(false)) => true,
            (Kind::Array, Value::Array(items)) => items.len() as u64 == value.count,
            (Kind::String { .. }, Value::String(wanted)) => {
                decode::text(&bytes[1..bytes.len() - 1], bytes.len()).as_deref() == Ok(wanted)
            }
            _ => false,
        };
        assert!(kind_fits, "{value:?} is {read}");
        if let (Kind::Number, Some(text)) = (value.kind, &value.text) {
            let plain = !text.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
            assert_eq!(integer(text, u64::MAX).ok(), read.as_u64().or((text == b"-0").then_some(0)).filter(|_| plain));
        }
    }
    for path in [Path::Root, Path::Model, Path::Options, Path::Include, Path::Tools, Path::Input] {
        let last = seen.iter().rev().find(|value| value.path == path);
        let Some(wanted) = expected(tree, path) else { continue };
        let last = last.unwrap_or_else(|| panic!("{path:?} is missing"));
        assert_eq!(&serde_json::from_slice::<Value>(&text[last.start..last.end]).expect("a value"), wanted, "{path:?}");
    }
}

fn check(text: &[u8], cuts: &[usize]) {
    let reported = scan(text, cuts, Duplicates::Report);
    if let Some(verdict) = accepts(text) {
        assert_eq!(reported.is_ok(), verdict, "{:?}: {reported:?}", String::from_utf8_lossy(text));
    }
    assert_eq!(reported, scan(text, &[], Duplicates::Report), "cuts change the values");
    let refused = scan(text, cuts, Duplicates::Refuse);
    match &refused {
        Err(error) if matches!(error.rule, Rule::Duplicate | Rule::Case) => {}
        other => assert_eq!(other, &reported),
    }
    if let (Ok(seen), Ok(tree)) = (refused, serde_json::from_slice::<Value>(text)) {
        compare(text, &seen, &tree);
    }
}

fn sorted(mut cuts: Vec<usize>) -> Vec<usize> {
    cuts.sort_unstable();
    cuts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn both_readers_agree_on_valid_texts(text in value(), cuts in prop::collection::vec(0..300_usize, 0..8)) {
        check(text.as_bytes(), &sorted(cuts));
    }

    #[test]
    fn both_readers_agree_on_broken_texts(text in broken(), cuts in prop::collection::vec(0..300_usize, 0..8)) {
        check(&text, &sorted(cuts));
    }

    #[test]
    fn both_readers_agree_on_strings(inside in prop::collection::vec(any::<u8>(), 0..70), cut in 0..80_usize) {
        check(&[b"\"", &inside[..], b"\""].concat(), &[cut]);
    }

    #[test]
    fn both_readers_agree_on_numbers(text in "-?[0-9.eE+-]{0,8}", cut in 0..8_usize) {
        check(text.as_bytes(), &[cut]);
        check(format!("[{text}]").as_bytes(), &[cut]);
    }
}
