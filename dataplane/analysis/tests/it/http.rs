//! Properties of the one form of paths and hosts, on generated inputs.

use std::time::Instant;

use proptest::{collection::vec, prelude::*};
use weir_analysis::http::{
    cookie, host,
    path::{Ambiguous, PathError, PathRules, normalise},
    query,
};

/// Pieces that normalisation is about, so that random paths are seldom dull.
fn paths() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop_oneof![
        4 => Just("/"),
        2 => Just("."),
        2 => Just(".."),
        1 => Just("//"),
        1 => Just("%2e"),
        1 => Just("%2F"),
        1 => Just("%5c"),
        1 => Just("\\"),
        1 => Just("%00"),
        1 => Just(";"),
        1 => Just("%3b"),
        1 => Just("%61"),
        1 => Just("%c3"),
        1 => Just("%25"),
        1 => Just("2e"),
        3 => Just("a"),
        1 => Just("%"),
    ];
    vec(pieces, 0..24).prop_map(|pieces| format!("/{}", pieces.concat()).into_bytes())
}

fn rules() -> impl Strategy<Value = PathRules> {
    let policy = || prop_oneof![Just(Ambiguous::Reject), Just(Ambiguous::Keep)];
    (any::<bool>(), policy(), policy(), policy(), policy()).prop_map(
        |(merge_slashes, escaped_nul, escaped_slash, backslash, parameters)| PathRules {
            merge_slashes,
            escaped_nul,
            escaped_slash,
            backslash,
            parameters,
        },
    )
}

fn has(path: &[u8], part: &[u8]) -> bool {
    path.windows(part.len()).any(|window| window == part)
}

proptest! {
    #[test]
    fn the_form_of_a_form_is_itself(path in paths(), rules in rules()) {
        if let Ok(form) = normalise(&path, &rules) {
            let again = normalise(&form, &rules);
            prop_assert_eq!(again.as_deref(), Ok(form.as_ref()));
        }
    }

    #[test]
    fn a_form_has_no_dot_segment_and_no_empty_one(path in paths(), rules in rules()) {
        if let Ok(form) = normalise(&path, &rules) {
            prop_assert_eq!(form.first(), Some(&b'/'));
            prop_assert!(form.len() <= path.len());
            prop_assert!(!has(&form, b"/./") && !has(&form, b"/../"), "{:?}", form);
            prop_assert!(!form.ends_with(b"/.") && !form.ends_with(b"/.."), "{:?}", form);
            prop_assert!(!has(&form, b"/..;") && !has(&form, b"/.;"), "{:?}", form);
            prop_assert!(!rules.merge_slashes || !has(&form, b"//"), "{:?}", form);
        }
    }

    #[test]
    fn refused_parts_are_never_in_a_form(path in paths()) {
        if let Ok(form) = normalise(&path, &PathRules::default()) {
            for part in [&b"%00"[..], b"%2F", b"%2f", b"%5C", b"%5c", b"\\"] {
                prop_assert!(!has(&form, part), "{:?}", form);
            }
        }
    }

    #[test]
    fn any_bytes_are_answered(bytes in vec(any::<u8>(), 0..64), rules in rules()) {
        let _ = normalise(&bytes, &rules);
        let _ = cookie::value(&bytes, b"a");
        let decoded: usize = query::pairs(&bytes).map(|(name, value)| name.decoded().len() + value.decoded().len()).sum();
        prop_assert!(decoded <= bytes.len());
        for strip_trailing_dot in [false, true] {
            let rules = host::HostRules { strip_trailing_dot };
            if let Ok(authority) = host::canonical(&bytes, &rules) {
                let again = host::canonical(&authority.host, &rules).expect("a form is a host");
                prop_assert_eq!(again.host.as_ref(), authority.host.as_ref());
                prop_assert_eq!(again.port, None);
            }
        }
    }

    #[test]
    fn a_value_equals_its_decoded_form(bytes in "[a+%2b=& ]{0,24}") {
        for (name, value) in query::pairs(bytes.as_bytes()) {
            prop_assert!(name.is(&name.decoded()) && value.is(&value.decoded()));
            prop_assert!(query::first(bytes.as_bytes(), &name.decoded()).is_some());
        }
    }
}

/// A quadratic reader would need minutes for these, a linear one needs milliseconds.
#[test]
fn hostile_inputs_are_read_in_linear_time() {
    let rules = PathRules { escaped_slash: Ambiguous::Keep, ..PathRules::default() };
    let start = Instant::now();
    let deep = "/a".repeat(500_000) + &"/..".repeat(500_000);
    assert_eq!(normalise(deep.as_bytes(), &rules).as_deref(), Ok(&b"/"[..]));
    let above = "/a".repeat(500_000) + &"/..".repeat(500_001);
    assert_eq!(normalise(above.as_bytes(), &rules), Err(PathError::AboveRoot));
    let percent = "/".to_owned() + &"%".repeat(1_000_000);
    assert_eq!(normalise(percent.as_bytes(), &rules), Err(PathError::BadEscape));
    for path in ["/a%2f".repeat(200_000), "/".to_owned() + &"...%2f".repeat(200_000), "/%61.;".repeat(200_000)] {
        assert!(normalise(path.as_bytes(), &rules).is_ok());
    }
    assert!(host::canonical("a.".repeat(500_000).as_bytes(), &host::HostRules::default()).is_err());
    assert!(query::first("&%61".repeat(300_000).as_bytes(), b"b").is_none());
    assert!(cookie::value(" ;\t=".repeat(300_000).as_bytes(), b"b").is_none());
    assert!(start.elapsed().as_secs() < 20, "took {:?}", start.elapsed());
}
