//! Inline commands: a line of text split as Redis' `sdssplitargs` does it (`sds.c`).

use crate::args::ArgRange;
use crate::error::ProtocolError;

/// C's `isspace` in the locale Redis runs with.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// Whether `byte` ends a bare word. Narrower than `is_space`, as in Redis: a vertical tab inside a word belongs to it.
fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Splits a line without any quote; ranges are offsets in `line`.
pub(crate) fn words(line: &[u8], mut found: impl FnMut(ArgRange)) {
    let mut at = 0;
    loop {
        at += line[at..].iter().take_while(|b| is_space(**b)).count();
        if at == line.len() {
            return;
        }
        let len = line[at..].iter().take_while(|b| !ends_word(**b)).count();
        found(ArgRange { start: at as u32, len: len as u32 });
        at += len;
    }
}

/// Splits a line with quotes; the words are appended to `scratch` and ranges are offsets there.
pub(crate) fn unquote(
    line: &[u8],
    scratch: &mut Vec<u8>,
    mut found: impl FnMut(ArgRange),
) -> Result<(), ProtocolError> {
    let mut at = 0;
    loop {
        at += line[at..].iter().take_while(|b| is_space(**b)).count();
        if at == line.len() {
            return Ok(());
        }
        let start = scratch.len();
        at = word(line, at, scratch)?;
        found(ArgRange { start: start as u32, len: (scratch.len() - start) as u32 });
    }
}

/// One word from `at` on; gives the place after it.
fn word(line: &[u8], mut at: usize, scratch: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    while let Some(&byte) = line.get(at) {
        match byte {
            b'"' => return closed(line, double_quoted(line, at + 1, scratch)?),
            b'\'' => return closed(line, single_quoted(line, at + 1, scratch)?),
            _ if ends_word(byte) => break,
            _ => scratch.push(byte),
        }
        at += 1;
    }
    Ok(at)
}

/// A closing quote ends its word: only a blank or the end of the line may follow.
fn closed(line: &[u8], at: usize) -> Result<usize, ProtocolError> {
    match line.get(at) {
        Some(&byte) if !is_space(byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(at),
    }
}

fn double_quoted(line: &[u8], mut at: usize, scratch: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    loop {
        match line.get(at..).unwrap_or_default() {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                scratch.push(nibble(*high) << 4 | nibble(*low));
                at += 4;
            }
            [b'\\', escaped, ..] => {
                scratch.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                at += 2;
            }
            [b'"', ..] => return Ok(at + 1),
            [byte, ..] => {
                scratch.push(*byte);
                at += 1;
            }
        }
    }
}

fn single_quoted(line: &[u8], mut at: usize, scratch: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    loop {
        match line.get(at..).unwrap_or_default() {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\\', b'\'', ..] => {
                scratch.push(b'\'');
                at += 2;
            }
            [b'\'', ..] => return Ok(at + 1),
            [byte, ..] => {
                scratch.push(*byte);
                at += 1;
            }
        }
    }
}

/// Value of a hexadecimal digit; the caller checked that it is one.
fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
        let mut scratch = Vec::new();
        let mut ranges = Vec::new();
        unquote(line, &mut scratch, |range| ranges.push(range))?;
        Ok(ranges.iter().map(|r| scratch[r.start as usize..(r.start + r.len) as usize].to_vec()).collect())
    }

    #[test]
    fn quoting_follows_sdssplitargs() {
        let cases: &[(&[u8], &[&[u8]])] = &[
            (b"  GET\t key ", &[b"GET", b"key"]),
            (br#"set k "a b\n\r\t\b\a\x00\xfF\q""#, &[b"set", b"k", b"a b\n\r\t\x08\x07\x00\xffq"]),
            (br#"set k "\xzz""#, &[b"set", b"k", b"xzz"]),
            (br"set 'it\'s' 'a\nb'", &[b"set", b"it's", br"a\nb"]),
            (br#"fo"o b" x'y'"#, &[b"foo b", b"xy"]),
            (br#""" ''"#, &[b"", b""]),
            (b"a\x0bb \x0bc", &[b"a\x0bb", b"c"]),
            (b"\"a\"\x0bb", &[b"a", b"b"]),
            (b"   ", &[]),
        ];
        for (line, want) in cases {
            assert_eq!(split(line).unwrap(), *want, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn r17_unbalanced_quotes() {
        for line in [&br#"get "a"#[..], b"get 'a", br#"get "a"b"#, b"get 'a'b", br#"get "a\"#, br#"get "a\""#, b"'"] {
            assert_eq!(split(line), Err(ProtocolError::UnbalancedQuotes), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn words_equal_unquote_when_there_is_no_quote() {
        for line in [&b""[..], b" ", b"a", b" a  b\tc\r d ", b"a\x0bb", b"\x0ba\\x41 \xff", b"a\r\rb"] {
            let mut ranges = Vec::new();
            words(line, |range| ranges.push(range));
            let got: Vec<_> =
                ranges.iter().map(|r| line[r.start as usize..(r.start + r.len) as usize].to_vec()).collect();
            assert_eq!(got, split(line).unwrap(), "{}", line.escape_ascii());
        }
    }
}
