//! A member of the outermost object, found from the end of a text of which only the end is known.

use memchr::memmem;

use crate::path::Node;
use crate::scanner::{Scanner, Sink};

/// Places of the key that are tried, from the last. More are texts made to cost time.
const CANDIDATES_MAX: usize = 16;

/// Reads the watched members of the outermost object from its last member `key` on. Offsets count from there.
/// `None`: `tail` has no such member.
///
/// `tail` is the end of a valid text. Within its strings a quote has a backslash in front, so the key in quotes without
/// one is a key of some object. It is one of the outermost if the rest of the text closes exactly that object. Escaped
/// spellings of `key`, which is written without escapes, are not found.
pub fn scan_member<P: Copy, S: Sink<P> + Default>(tail: &[u8], key: &str, root: &'static Node<P>) -> Option<S> {
    let needle = [b"\"", key.as_bytes(), b"\""].concat();
    // A search from the front is vectorised; the last places are kept.
    let (mut places, mut found) = ([0; CANDIDATES_MAX], 0);
    for at in memmem::find_iter(tail, &needle) {
        places[found % CANDIDATES_MAX] = at;
        found += 1;
    }
    let candidates = (found.saturating_sub(CANDIDATES_MAX)..found).rev().map(|number| places[number % CANDIDATES_MAX]);
    candidates.filter(|&at| is_key(tail, at)).find_map(|at| {
        let (mut scanner, mut sink) = (Scanner::within_object(root), S::default());
        let is_whole = scanner.push(&tail[at..], &mut sink).is_ok() && scanner.is_done();
        is_whole.then_some(sink)
    })
}

/// A key may stand there: behind its object's beginning or a comma.
fn is_key(tail: &[u8], at: usize) -> bool {
    at > 0 && matches!(tail[at - 1], b'{' | b',' | b' ' | b'\t' | b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scanner::Value;

    static ROOT: Node<u8> =
        Node::NEW.members(&[("usage", Node::NEW.members(&[("a", Node::value(1))])), ("b", Node::value(2))]);

    #[derive(Default)]
    struct Seen(Vec<(u8, Vec<u8>)>);

    impl Sink<u8> for Seen {
        fn value(&mut self, value: Value<'_, u8>) {
            self.0.push((value.path, value.text.unwrap_or_default().to_vec()));
        }
    }

    fn seen(tail: &str) -> Option<Vec<(u8, Vec<u8>)>> {
        scan_member(tail.as_bytes(), "usage", &ROOT).map(|seen: Seen| seen.0)
    }

    #[test]
    fn a_member_of_the_outermost_object_is_found_behind_any_beginning() {
        let wanted = Some(vec![(1, b"5".to_vec()), (2, b"7".to_vec())]);
        assert_eq!(seen(r#"t "}}], "usage" : {"x":[{}],"a":5},"b":7}"#), wanted);
        assert_eq!(seen("{\"usage\":{\"a\":5},\n\"b\":7}\n"), wanted);
        assert_eq!(seen(r#","usage":{"a":4},"usage":{"a":5},"b":7}"#), wanted, "the last one counts");
    }

    #[test]
    fn a13_a_member_of_another_object_or_a_text_is_not_taken_for_it() {
        for tail in [
            r#","metadata":{"usage":{"a":5}}}"#,
            r#","items":[{"usage":{"a":5}}],"b":7}"#,
            r#","text":"\"usage\":{\"a\":5}}"}"#,
            r#","text":"usage"}"#,
            r#","usage":{"a":5},"b":7"#,
            r#","usage":{"a":5}},"#,
            r#""usage":{"a":5}}"#,
        ] {
            assert_eq!(seen(tail), None, "{tail}");
        }
        let schema = r#","usage":{"a":5},"schema":{"usage":{"a":1},"b":7}}"#;
        assert_eq!(
            seen(schema),
            Some(vec![(1, b"5".to_vec())]),
            "the nested one is passed over, and so is its neighbour"
        );
    }
}
