//! A string as JSON.

/// Appends `text` as a string, with its quotes. Only characters that need an escape have one.
pub fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let end = rest.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\').unwrap_or(rest.len());
        out.extend_from_slice(&rest[..end]);
        let [byte, behind @ ..] = &rest[end..] else { break };
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0') as u8;
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
            }
        }
        rest = behind;
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a11_a_written_string_is_read_as_it_was_and_holds_no_line_break() {
        let text: String = ('\0'..='\u{ff}').chain(['\u{2028}', '\u{1f600}']).collect();
        let mut out = Vec::new();
        string(&mut out, &text);
        assert!(!out.contains(&b'\n') && !out.contains(&b'\r'));
        assert_eq!(serde_json::from_slice::<String>(&out).expect("a string"), text);
    }
}
