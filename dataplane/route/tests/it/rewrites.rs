//! Properties of every rewrite, on generated paths and replacements.

use proptest::{collection::vec, prelude::*, sample::select};
use weir_analysis::http::path::{Ambiguous, PathRules, normalise};
use weir_route::{path::PathMatch, rewrite::PathRewrite};

/// Pieces that normalisation is about.
fn text() -> impl Strategy<Value = String> {
    let pieces = select(&["/", "/", "a", "b", ".", "..", "//", "%2e", "%2F", ";", "-", "%c3"][..]);
    vec(pieces, 0..10).prop_map(|pieces| pieces.concat())
}

fn rules() -> impl Strategy<Value = PathRules> {
    (any::<bool>(), select(&[Ambiguous::Reject, Ambiguous::Keep][..]))
        .prop_map(|(merge_slashes, escaped_slash)| PathRules { merge_slashes, escaped_slash, ..PathRules::default() })
}

/// The rewrites of each kind that can be built.
fn rewrites(prefix: &str, replacement: &str, rules: &PathRules) -> Vec<PathRewrite> {
    let matched = [PathMatch::segments(prefix, rules), PathMatch::text(prefix, rules)];
    let prefixes = matched.into_iter().flatten().map(|matched| PathRewrite::prefix(&matched, replacement, rules));
    let full = PathRewrite::full(replacement, rules);
    let regexes = [("^/(.*?)-(.*)$", "$1/$2"), ("a", ""), ("(/)", "$1."), ("^(.*)b(.*)$", "$2$1")];
    let regexes =
        regexes.map(|(pattern, groups)| PathRewrite::regex(pattern, &format!("{replacement}{groups}"), rules));
    prefixes.chain([full]).chain(regexes).filter_map(Result::ok).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_rewritten_path_is_normalised_and_begins_with_one_slash(
        path in text(), prefix in text(), replacement in text(), rules in rules()
    ) {
        let path = format!("/{path}");
        let Ok(path) = normalise(path.as_bytes(), &rules) else { return Ok(()) };
        for rewrite in rewrites(&format!("/{prefix}"), &replacement, &rules) {
            let Ok(made) = rewrite.apply(&path) else { continue };
            let again = normalise(&made, &rules);
            prop_assert_eq!(again.as_deref(), Ok(made.as_ref()), "{:?} {:?}", rewrite, path);
            // A rewrite that does not match leaves the path as it came.
            prop_assert!(made == path || !made.starts_with(b"//"), "{:?} {:?} {:?}", rewrite, path, made);
        }
    }
}
