//! JSON as bytes, where its form matters: a reply is written once, in one buffer, without a tree.

/// Appends the inside of a JSON string (RFC 8259 section 7).
pub fn escape(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..=0x1f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
}

/// Appends a whole JSON string.
pub fn string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    escape(text, out);
    out.push(b'"');
}

/// Appends a decimal number.
pub fn number(number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let (mut at, mut left) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends parts one after the other: literal bytes, and `"strings"` or numbers between them.
pub fn parts(parts: &[Part<'_>], out: &mut Vec<u8>) {
    for part in parts {
        match part {
            Part::Raw(raw) => out.extend_from_slice(raw.as_bytes()),
            Part::Text(text) => string(text, out),
            Part::Number(value) => number(*value, out),
        }
    }
}

/// A part of a JSON text.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// As it is.
    Raw(&'a str),
    /// As a string.
    Text(&'a str),
    /// As a number.
    Number(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_reads_back_as_itself() {
        let text: String = (0..0x250).filter_map(char::from_u32).chain("\u{20ac}\u{1f600}".chars()).collect();
        let mut out = Vec::new();
        string(&text, &mut out);
        assert_eq!(serde_json::from_slice::<String>(&out).expect("a string"), text);
    }

    #[test]
    fn numbers_and_parts_are_json() {
        let mut out = Vec::new();
        let all = [Part::Raw("{\"a\":"), Part::Number(u64::MAX), Part::Raw(",\"b\":"), Part::Text("c\"")];
        parts(&all, &mut out);
        parts(&[Part::Raw(",\"d\":"), Part::Number(0), Part::Raw("}")], &mut out);
        assert_eq!(String::from_utf8(out).expect("text"), r#"{"a":18446744073709551615,"b":"c\"","d":0}"#);
    }
}
