//! RESP as the tests see it: encoding of commands, and the *end* of a reply found without
//! interpreting it, so that replies are compared byte for byte. Deliberately not the codec under
//! test.

/// `*n $len ...`.
pub fn encode<T: AsRef<[u8]>>(words: &[T]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Several commands in one piece.
pub fn encode_all(commands: &[&[&str]]) -> Vec<u8> {
    commands.iter().flat_map(|words| encode(words)).collect()
}

/// Finds the end of one reply in bytes that arrive piece by piece, each byte looked at once.
#[derive(Debug)]
pub struct ReplyScan {
    /// Values still to come at all open levels together; no recursion, the input may be hostile.
    open: u64,
    /// Where the next value starts.
    at: usize,
}

impl Default for ReplyScan {
    fn default() -> Self {
        Self { open: 1, at: 0 }
    }
}

impl ReplyScan {
    /// Length of the reply at the start of `bytes`, once it is complete. `bytes` holds what was
    /// there at the last call, and more behind it.
    ///
    /// # Panics
    /// On bytes that are no RESP2 or RESP3 reply: the test that reads them must fail.
    pub fn advance(&mut self, bytes: &[u8]) -> Option<usize> {
        while self.open > 0 {
            let line_end = find_line_end(bytes, self.at)?;
            let kind = bytes[self.at];
            let line = &bytes[self.at + 1..line_end];
            self.at = line_end + 2;
            self.open -= 1;
            match kind {
                b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => {}
                b'$' | b'=' | b'!' => {
                    let length = number(line);
                    if length >= 0 {
                        self.at += length as usize + 2;
                    }
                }
                b'*' | b'~' | b'>' => self.open += number(line).max(0) as u64,
                b'%' => self.open += 2 * number(line).max(0) as u64,
                // An attribute stands before the value it describes.
                b'|' => self.open += 2 * number(line).max(0) as u64 + 1,
                other => panic!("`{}` starts no reply: {}", char::from(other), shown(&bytes[..bytes.len().min(200)])),
            }
        }
        (self.at <= bytes.len()).then_some(self.at)
    }
}

/// Length of the first complete reply (or push) in `bytes`; `None`: more is needed.
///
/// # Panics
/// On bytes that are no reply.
pub fn reply_length(bytes: &[u8]) -> Option<usize> {
    ReplyScan::default().advance(bytes)
}

fn find_line_end(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    (end > 0).then_some(from + end)
}

fn number(line: &[u8]) -> i64 {
    std::str::from_utf8(line)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("`{}` is no length", shown(line)))
}

/// Words of the elements of a flat array of bulk strings, in order. Nulls become empty.
///
/// # Panics
/// If the reply is not such an array.
pub fn bulk_array(reply: &[u8]) -> Vec<Vec<u8>> {
    assert!(matches!(reply.first(), Some(b'*' | b'~' | b'>')), "not an array: {}", shown(reply));
    let mut at = find_line_end(reply, 0).expect("a complete reply") + 2;
    let mut words = Vec::new();
    while at < reply.len() {
        let length = reply_length(&reply[at..]).expect("a complete element");
        words.push(bulk(&reply[at..at + length]));
        at += length;
    }
    words
}

/// Contents of a bulk string, a simple string or an integer; empty for null.
///
/// # Panics
/// For other kinds.
pub fn bulk(reply: &[u8]) -> Vec<u8> {
    let line_end = find_line_end(reply, 0).expect("a complete reply");
    match reply[0] {
        b'+' | b':' | b',' => reply[1..line_end].to_vec(),
        b'$' | b'=' if reply[1] != b'-' => reply[line_end + 2..reply.len() - 2].to_vec(),
        b'$' | b'_' => Vec::new(),
        other => panic!("`{}` is no string: {}", char::from(other), shown(reply)),
    }
}

/// Bytes as text that shows every one of them.
pub fn shown(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 400;
    let text: String =
        bytes.iter().take(SHOWN_MAX).flat_map(|byte| std::ascii::escape_default(*byte)).map(char::from).collect();
    if bytes.len() > SHOWN_MAX { format!("{text}… ({} bytes)", bytes.len()) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_every_kind_of_reply_is_found() {
        let replies: &[&[u8]] = &[
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":-12\r\n",
            b"$-1\r\n",
            b"$0\r\n\r\n",
            b"$4\r\na\r\nb\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n",
            b"_\r\n",
            b"#t\r\n",
            b",1.5\r\n",
            b"%1\r\n+a\r\n*0\r\n",
            b"~2\r\n:1\r\n:2\r\n",
            b"=7\r\ntxt:abc\r\n",
            b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
            b"|1\r\n+ttl\r\n:3\r\n$1\r\nv\r\n",
        ];
        for reply in replies {
            let mut followed = reply.to_vec();
            followed.extend_from_slice(b"+NEXT\r\n");
            assert_eq!(reply_length(&followed), Some(reply.len()), "{}", shown(reply));
            for cut in 0..reply.len() {
                assert_eq!(reply_length(&reply[..cut]), None, "{} cut at {cut}", shown(reply));
            }
        }
    }

    #[test]
    fn commands_and_arrays_go_both_ways() {
        let words = ["SET", "k", ""];
        assert_eq!(encode(&words), b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n");
        assert_eq!(bulk_array(&encode(&words)), [b"SET".to_vec(), b"k".to_vec(), Vec::new()]);
    }
}
