//! A member of the outermost object, found while the text passes: nothing in front of it is scanned.

use memchr::memmem::Finder;

use crate::path::Node;
use crate::scanner::{Scanner, Sink};

/// Bytes of a key with its quotes that is looked for. Default 16: the end of a piece that may hold a part of it is kept in place.
pub const WANTED_KEY_BYTES_MAX: usize = 16;

/// Follows one text, and reads the watched members of the outermost object from a member on. Offsets count from there.
///
/// In a valid text a quote within a string has a backslash in front, so the key in quotes without one is a key of some object, or a string
/// among others. The text from there on is scanned. It was a member of the outermost object if the text ends with exactly that object.
/// Otherwise the scan meets a mistake at the end of the inner object, and the search goes on there. Escaped spellings of the key are not
/// found.
#[derive(Clone, Debug)]
pub struct MemberScan<P: 'static, S> {
    root: &'static Node<P>,
    key: &'static Finder<'static>,
    /// The end of the text so far, in front of which no key is open.
    before: [u8; WANTED_KEY_BYTES_MAX],
    before_bytes: usize,
    /// The scan from a key on, and its findings.
    open: Option<(Scanner<P>, S)>,
}

impl<P: Copy, S: Sink<P> + Default> MemberScan<P, S> {
    /// In front of a text. `key`: with its quotes and without escapes, at most [`WANTED_KEY_BYTES_MAX`] bytes.
    pub fn new(root: &'static Node<P>, key: &'static Finder<'static>) -> Self {
        debug_assert!(key.needle().len() <= WANTED_KEY_BYTES_MAX, "the key is too long");
        Self { root, key, before: [0; WANTED_KEY_BYTES_MAX], before_bytes: 0, open: None }
    }

    /// Takes the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        if self.open.is_none() {
            self.begin_at_cut(piece);
        }
        let (mut at, mut ended) = (0, None);
        loop {
            if self.open.is_none() {
                // A scan of earlier pieces may end at byte 0 of this piece, where a key may begin.
                let before = |found: usize| match found {
                    0 => self.before[..self.before_bytes].last(),
                    _ => Some(&piece[found - 1]),
                };
                let Some(found) = self
                    .key
                    .find_iter(&piece[at..])
                    .map(|found| at + found)
                    .find(|&found| before(found).is_some_and(|&byte| may_precede_key(byte)))
                else {
                    break;
                };
                (self.open, at) = (Some((Scanner::within_object(self.root), S::default())), found);
            }
            let Some((scanner, sink)) = &mut self.open else { break };
            let taken = scanner.offset();
            let Err(error) = scanner.push(&piece[at..], sink) else { break };
            at += usize::try_from(error.offset.saturating_sub(taken)).unwrap_or(usize::MAX).min(piece.len() - at);
            (self.open, ended) = (None, Some(at));
        }
        self.keep(piece, ended);
    }

    /// The findings, if the text ends here and has the member.
    pub fn found(&self) -> Option<&S> {
        self.open.as_ref().filter(|(scanner, _)| scanner.is_done()).map(|(_, sink)| sink)
    }

    /// Looks for a key that begins in front of the piece, or with it.
    fn begin_at_cut(&mut self, piece: &[u8]) {
        let (key_bytes, before_bytes) = (self.key.needle().len(), self.before_bytes);
        let mut joint = [0; 2 * WANTED_KEY_BYTES_MAX];
        let here = piece.len().min(key_bytes);
        joint[..before_bytes].copy_from_slice(&self.before[..before_bytes]);
        joint[before_bytes..before_bytes + here].copy_from_slice(&piece[..here]);
        let joint = &joint[..before_bytes + here];
        let is_open = |at: usize| {
            (1..=before_bytes).contains(&at) && at + key_bytes > before_bytes && may_precede_key(joint[at - 1])
        };
        if let Some(at) = self.key.find_iter(joint).find(|&at| is_open(at)) {
            let (mut scanner, mut sink) = (Scanner::within_object(self.root), S::default());
            // A part of a key breaks no rule.
            let is_begun = scanner.push(&joint[at..before_bytes], &mut sink).is_ok();
            self.open = is_begun.then_some((scanner, sink));
        }
    }

    /// Keeps the end of the text: the byte in front of a key and all but the last of its own. `ended`: where the last scan has ended in the
    /// piece, for no key begins in front of that.
    fn keep(&mut self, piece: &[u8], ended: Option<usize>) {
        let piece = match ended {
            None => piece,
            Some(0) => {
                let last = self.before_bytes.saturating_sub(1);
                self.before.copy_within(last..self.before_bytes, 0);
                self.before_bytes -= last;
                piece
            }
            Some(at) => {
                self.before_bytes = 0;
                &piece[at - 1..]
            }
        };
        let most = self.key.needle().len();
        let here = piece.len().min(most);
        let kept = self.before_bytes.min(most - here);
        self.before.copy_within(self.before_bytes - kept..self.before_bytes, 0);
        self.before[kept..kept + here].copy_from_slice(&piece[piece.len() - here..]);
        self.before_bytes = kept + here;
    }
}

/// A key may stand behind this byte: the beginning of its object, a comma, or white space.
fn may_precede_key(byte: u8) -> bool {
    matches!(byte, b'{' | b',' | b' ' | b'\t' | b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::scanner::Value;

    static KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"usage\""));
    static ROOT: Node<u8> =
        Node::NEW.members(&[("usage", Node::NEW.members(&[("a", Node::value(1))])), ("b", Node::value(2))]);

    #[derive(Clone, Default, Debug, PartialEq)]
    struct Seen(Vec<(u8, Vec<u8>)>);

    impl Sink<u8> for Seen {
        fn value(&mut self, value: Value<'_, u8>) {
            self.0.push((value.path, value.text.unwrap_or_default().to_vec()));
        }
    }

    /// The findings, which are the same wherever the text is cut.
    fn seen(text: &str) -> Option<Vec<(u8, Vec<u8>)>> {
        let follow = |cuts: &[usize]| {
            let (mut scan, mut at) = (MemberScan::<u8, Seen>::new(&ROOT, &KEY), 0);
            for end in cuts.iter().copied().chain([text.len()]) {
                scan.push(&text.as_bytes()[at..end]);
                at = end;
            }
            scan.found().map(|seen| seen.0.clone())
        };
        let whole = follow(&[]);
        (0..text.len()).for_each(|cut| assert_eq!(follow(&[cut]), whole, "{text} cut at {cut}"));
        (3..text.len()).for_each(|cut| assert_eq!(follow(&[cut - 3, cut]), whole, "{text} cut twice at {cut}"));
        assert_eq!(follow(&(0..text.len()).collect::<Vec<_>>()), whole, "{text} byte by byte");
        whole
    }

    #[test]
    fn a_member_of_the_outermost_object_is_found_behind_any_beginning() {
        let wanted = Some(vec![(1, b"5".to_vec()), (2, b"7".to_vec())]);
        assert_eq!(seen(r#"t "}}], "usage" : {"x":[{}],"a":5},"b":7}"#), wanted);
        assert_eq!(seen("{\"usage\":{\"a\":5},\n\"b\":7}\n"), wanted);
        let both = Some([4, 5, 7].map(|figure| (1 + u8::from(figure == 7), figure.to_string().into_bytes())).to_vec());
        assert_eq!(seen(r#"{"usage":{"a":4},"usage":{"a":5},"b":7}"#), both, "the caller takes the last");
    }

    #[test]
    fn a13_a_member_of_another_object_or_a_text_is_not_taken_for_it() {
        for text in [
            r#","metadata":{"usage":{"a":5}}}"#,
            r#","items":[{"usage":{"a":5}}],"b":7}"#,
            r#","items":["usage", "usage"],"b":7}"#,
            r#","text":"\"usage\":{\"a\":5}}"}"#,
            r#","text":"usage"}"#,
            r#","usage":{"a":5},"b":7"#,
            r#","usage":{"a":5}},"#,
            r#""usage":{"a":5}}"#,
        ] {
            assert_eq!(seen(text), None, "{text}");
        }
    }

    #[test]
    fn a_quote_in_front_of_a_mistake_begins_no_key_wherever_the_text_is_cut() {
        assert_eq!(seen(r#"{"usage":","usage":{"a":6}}"#), None);
        assert_eq!(seen(r#"{"usage":{"usage"{"usage":{"a":6}}"#), Some(vec![(1, b"6".to_vec())]));
    }

    #[test]
    fn a_mistake_in_any_token_leads_to_the_same_search_wherever_the_text_is_cut() {
        let tokens = [r#""usage""#, ":", ",", " ", "{", "}", "4", "4e", "tr", r#""b""#, r#""\ud8"#];
        for number in 0..tokens.len().pow(3) {
            let between: String = (0..3).map(|place| tokens[number / tokens.len().pow(place) % tokens.len()]).collect();
            seen(&format!(r#"{{"usage":{between}"usage":{{"a":6}}}}"#));
        }
    }

    #[test]
    fn members_of_inner_objects_hide_none_of_the_outermost() {
        let wanted = Some(vec![(1, b"5".to_vec())]);
        for text in [
            r#"{"usage":{"a":5},"schema":{"usage":{"a":1},"b":7}}"#,
            r#"{"schema":{"usage":{"a":1},"b":7},"usage":{"a":5}}"#,
            r#"{"x":[{"usage":{"a":1}},{"y": {"usage":[{"usage":2}] , "usage":null}}],"z":"usage","usage":{"a":5}}"#,
            r#"{"x":["usage","usage"],"usage":{"a":5},"y":["usage"]}"#,
        ] {
            assert_eq!(seen(text), wanted, "{text}");
        }
    }
}
