//! Whether a regex matches any path that a request can have.
//!
//! The automaton of the regex and the one of normalised paths are walked side by side: if no pair of states that accept is
//! reached, there is no such path.

use std::collections::HashSet;

use regex_automata::{
    nfa::thompson::{Config, NFA, State},
    util::{look::Look, primitives::StateID, syntax},
};
use weir_analysis::http::path::{Ambiguous, PathRules};

use crate::limits::REGEX_PROGRAM_BYTES_MAX;

/// Pairs of states that are looked at. Default 262,144, some milliseconds; beyond them the regex counts as one that matches.
const PAIRS_MAX: usize = 262_144;

/// How far a path has come.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum PathState {
    Start,
    /// Behind a slash.
    Slash,
    /// Behind one dot, and two dots, that began a segment.
    Dot,
    DotDot,
    /// In a segment that is no dot segment.
    Segment,
    /// Behind `%`, and its first digit.
    Percent,
    Digit,
}

impl PathState {
    fn step(self, byte: u8, rules: &PathRules) -> Option<Self> {
        let is_digit = byte.is_ascii_digit() || matches!(byte, b'A'..=b'F');
        match (self, byte) {
            (Self::Start, b'/') => Some(Self::Slash),
            (Self::Start, _) => None,
            (Self::Percent, _) => is_digit.then_some(Self::Digit),
            (Self::Digit, _) => is_digit.then_some(Self::Segment),
            (Self::Slash, b'/') => (!rules.merge_slashes).then_some(Self::Slash),
            (Self::Dot | Self::DotDot, b'/') => None,
            (Self::Segment, b'/') => Some(Self::Slash),
            (_, b'%') => Some(Self::Percent),
            (_, b'\\') => (rules.backslash == Ambiguous::Keep).then_some(Self::Segment),
            (_, b';') => (rules.parameters == Ambiguous::Keep).then_some(Self::Segment),
            (_, b'?' | b'#') => None,
            (Self::Slash, b'.') => Some(Self::Dot),
            (Self::Dot, b'.') => Some(Self::DotDot),
            (_, 0x21..=0x7e) => Some(Self::Segment),
            _ => None,
        }
    }

    fn may_end(self) -> bool {
        matches!(self, Self::Slash | Self::Segment)
    }
}

/// Whether there is a normalised path that `text` matches as a whole. An undecidable case is true.
pub(crate) fn has_path(text: &str, rules: &PathRules) -> bool {
    let config = Config::new().utf8(false).nfa_size_limit(Some(REGEX_PROGRAM_BYTES_MAX));
    let syntax = syntax::Config::new().unicode(false).utf8(false);
    let Ok(nfa) = NFA::compiler().configure(config).syntax(syntax).build(text) else { return true };
    let mut seen: HashSet<(StateID, PathState, bool)> = HashSet::new();
    let mut open = vec![(nfa.start_anchored(), PathState::Start, false)];
    while let Some(pair) = open.pop() {
        if !seen.insert(pair) {
            continue;
        }
        if seen.len() > PAIRS_MAX {
            return true;
        }
        // `is_over`: the regex wants the path to end here.
        let (state, place, is_over) = pair;
        let mut step = |low: u8, high: u8, next: StateID| {
            if !is_over {
                let places = (low..=high).filter_map(|byte| place.step(byte, rules));
                let new: HashSet<PathState> = places.collect();
                open.extend(new.into_iter().map(|place| (next, place, false)));
            }
        };
        match nfa.state(state) {
            State::ByteRange { trans } => step(trans.start, trans.end, trans.next),
            State::Sparse(sparse) => {
                sparse.transitions.iter().for_each(|trans| step(trans.start, trans.end, trans.next));
            }
            State::Dense(dense) => {
                let reached = (0..=u8::MAX).filter_map(|byte| Some((byte, dense.matches_byte(byte)?)));
                reached.for_each(|(byte, next)| step(byte, byte, next));
            }
            State::Look { look, next } => match look {
                Look::Start | Look::StartLF | Look::StartCRLF if place != PathState::Start => {}
                Look::End | Look::EndLF | Look::EndCRLF => open.push((*next, place, true)),
                // Word boundaries are not evaluated: they count as present.
                _ => open.push((*next, place, is_over)),
            },
            State::Union { alternates } => open.extend(alternates.iter().map(|next| (*next, place, is_over))),
            State::BinaryUnion { alt1, alt2 } => open.extend([(*alt1, place, is_over), (*alt2, place, is_over)]),
            State::Capture { next, .. } => open.push((*next, place, is_over)),
            State::Fail => {}
            State::Match { .. } => {
                if place.may_end() {
                    return true;
                }
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regex_that_no_path_can_match_is_found() {
        let rules = PathRules::default();
        for text in [
            "admin/.*",
            "^admin",
            "/a//b",
            "/a?",
            "/a/\\.\\./b",
            "/%c3%a9",
            "/x\\?y=1",
            "/a b",
            "$/x",
            "/x^y",
            "",
            "/a\\\\b",
            "https?://a\\.example/.*",
            "/x#y",
            "/\u{e9}",
            "/a/\\.",
        ] {
            let expected = text == "/a?";
            assert_eq!(has_path(text, &rules), expected, "{text}");
        }
        for text in [
            "/",
            ".*",
            "/v[0-9]+/(a|ab)",
            "^/x$",
            "/x/\\*",
            "/%C3%A9",
            "(?i)/ADMIN",
            "/.git",
            "/a;b",
            "\\b/x",
            "(?m)^/x$",
        ] {
            assert!(has_path(text, &rules), "{text}");
        }
        let kept = PathRules { merge_slashes: false, backslash: Ambiguous::Keep, ..PathRules::default() };
        assert!(has_path("/a//b", &kept) && has_path("/a\\\\b", &kept));
        let strict = PathRules { parameters: Ambiguous::Reject, ..PathRules::default() };
        assert!(!has_path("/a;b", &strict));
    }
}
