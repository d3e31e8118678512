//! Events of a stream that differ in their text alone, as most do: what was found around the text of one holds for the others.

use crate::progress::string_bytes;

/// Bytes of an event besides its text that are kept. Default 1 KiB; events of known providers have 100 to 400.
const AROUND_BYTES_MAX: usize = 1_024;

/// The last event that had one text of output and nothing else to note, without that text.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextEvent {
    /// Its name, its data in front of the text with the first quote, and its data from the last quote on.
    bytes: Vec<u8>,
    /// Where the second and the third of these parts begin. Without an event nothing is in front of the text.
    before: usize,
    behind: usize,
}

impl TextEvent {
    /// Keeps an event.
    pub(crate) fn keep(&mut self, name: &[u8], [before, behind]: [&[u8]; 2]) {
        self.bytes.clear();
        (self.before, self.behind) = (0, 0);
        if name.len() + before.len() + behind.len() <= AROUND_BYTES_MAX {
            [name, before, behind].iter().for_each(|part| self.bytes.extend_from_slice(part));
            (self.before, self.behind) = (name.len(), name.len() + before.len());
        }
    }

    /// The text of another event, if that differs in nothing else. A quote within it would have a backslash, so what stands around it has
    /// the same meaning.
    pub(crate) fn text_of<'a>(&self, name: &[u8], data: &'a [u8]) -> Option<&'a [u8]> {
        let (before, behind) = (&self.bytes[self.before..self.behind], &self.bytes[self.behind..]);
        if before.is_empty() || name != &self.bytes[..self.before] {
            return None;
        }
        let rest = data.strip_prefix(before)?;
        let text = rest.strip_suffix(behind)?;
        (string_bytes(rest) == text.len()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_may_differ() {
        let mut event = TextEvent::default();
        assert_eq!(event.text_of(b"", b"{}"), None);
        event.keep(b"n", [b"{\"delta\":\"", b"\",\"usage\":null}"]);
        for (name, data, text) in [
            ("n", r#"{"delta":"abc","usage":null}"#, Some("abc")),
            ("n", r#"{"delta":"","usage":null}"#, Some("")),
            ("n", r#"{"delta":"a\"b\\","usage":null}"#, Some(r#"a\"b\\"#)),
            ("n", r#"{"delta":"a\","usage":null}"#, None),
            ("n", r#"{"delta":"a","usage":{},"delta":"b","usage":null}"#, None),
            ("n", r#"{"delta":"a","usage":null} "#, None),
            ("n", r#"{"delta": "a","usage":null}"#, None),
            ("n", r#"{"delta":"#, None),
            ("m", r#"{"delta":"abc","usage":null}"#, None),
        ] {
            assert_eq!(event.text_of(name.as_bytes(), data.as_bytes()), text.map(str::as_bytes), "{name} {data}");
        }
        event.keep(b"", [&[b' '; AROUND_BYTES_MAX], b"\""]);
        assert_eq!(event.text_of(b"", &[b' '; AROUND_BYTES_MAX + 1]), None, "it is too large");
    }
}
