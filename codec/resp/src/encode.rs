//! Commands and replies as bytes, appended to a `Vec<u8>`. Nothing here fails: callers own the size of `out`.

/// The protocol version one connection speaks, as negotiated by HELLO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Version {
    /// The default of every connection.
    #[default]
    Resp2,
    /// After `HELLO 3`.
    Resp3,
}

impl Version {
    /// `RESP2` or `RESP3`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Resp2 => "RESP2",
            Self::Resp3 => "RESP3",
        }
    }

    /// The number in HELLO.
    pub fn number(self) -> u8 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }

    /// The version HELLO asks for with `number`.
    pub fn from_number(number: i64) -> Option<Self> {
        match number {
            2 => Some(Self::Resp2),
            3 => Some(Self::Resp3),
            _ => None,
        }
    }
}

/// A command as an array of bulk strings; the name is the first argument.
pub fn command<I>(out: &mut Vec<u8>, args: I)
where
    I: IntoIterator<Item: AsRef<[u8]>, IntoIter: ExactSizeIterator>,
{
    let args = args.into_iter();
    header(out, b'*', args.len() as u64);
    for arg in args {
        bulk(out, arg.as_ref());
    }
}

/// `+text`. CR and LF become blanks, as in every single-line reply.
pub fn simple(out: &mut Vec<u8>, text: &str) {
    line(out, b'+', text.as_bytes());
}

/// Like [`simple`], for text that came from the wire.
pub fn simple_bytes(out: &mut Vec<u8>, text: &[u8]) {
    line(out, b'+', text);
}

/// `-text`, where `text` starts with its code (`ERR …`). CR and LF become blanks, as Redis does it.
pub fn error(out: &mut Vec<u8>, text: &[u8]) {
    line(out, b'-', text);
}

/// `:value`.
pub fn integer(out: &mut Vec<u8>, value: i64) {
    out.push(b':');
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// `$len`, the bytes, CRLF.
#[inline]
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    header(out, b'$', bytes.len() as u64);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Nothing where a string is expected: `$-1` or `_`.
pub fn null_bulk(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(match version {
        Version::Resp2 => b"$-1\r\n",
        Version::Resp3 => b"_\r\n",
    });
}

/// Nothing where an array is expected: `*-1` or `_`.
pub fn null_array(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(match version {
        Version::Resp2 => b"*-1\r\n",
        Version::Resp3 => b"_\r\n",
    });
}

/// Header of an array; `elements` values must follow.
pub fn array(out: &mut Vec<u8>, elements: usize) {
    header(out, b'*', elements as u64);
}

/// Header of a map; `2 * pairs` values must follow. A flat array in RESP2.
pub fn map(out: &mut Vec<u8>, pairs: usize, version: Version) {
    match version {
        Version::Resp2 => header(out, b'*', pairs as u64 * 2),
        Version::Resp3 => header(out, b'%', pairs as u64),
    }
}

/// Header of a set; `elements` values must follow. An array in RESP2.
pub fn set(out: &mut Vec<u8>, elements: usize, version: Version) {
    match version {
        Version::Resp2 => header(out, b'*', elements as u64),
        Version::Resp3 => header(out, b'~', elements as u64),
    }
}

/// Header of a push message; `elements` values must follow. An array in RESP2, as for subscribers.
pub fn push(out: &mut Vec<u8>, elements: usize, version: Version) {
    match version {
        Version::Resp2 => header(out, b'*', elements as u64),
        Version::Resp3 => header(out, b'>', elements as u64),
    }
}

/// A floating point number: `,1.5`, or a bulk string in RESP2. Shortest text that reads back as the same number.
pub fn double(out: &mut Vec<u8>, value: f64, version: Version) {
    let text = double_text(value);
    match version {
        Version::Resp2 => bulk(out, text.as_bytes()),
        Version::Resp3 => line(out, b',', text.as_bytes()),
    }
}

/// `#t` or `#f`; `:1` or `:0` in RESP2.
pub fn boolean(out: &mut Vec<u8>, value: bool, version: Version) {
    out.extend_from_slice(match (version, value) {
        (Version::Resp2, true) => b":1\r\n",
        (Version::Resp2, false) => b":0\r\n",
        (Version::Resp3, true) => b"#t\r\n",
        (Version::Resp3, false) => b"#f\r\n",
    });
}

/// A number of any size: `(digits`, or a bulk string in RESP2. `digits` is decimal with an optional sign.
pub fn big_number(out: &mut Vec<u8>, digits: &[u8], version: Version) {
    match version {
        Version::Resp2 => bulk(out, digits),
        Version::Resp3 => line(out, b'(', digits),
    }
}

/// Text with a three-letter format such as `txt`; a bulk string without the format in RESP2.
pub fn verbatim(out: &mut Vec<u8>, format: [u8; 3], text: &[u8], version: Version) {
    match version {
        Version::Resp2 => bulk(out, text),
        Version::Resp3 => {
            header(out, b'=', text.len() as u64 + 4);
            out.extend_from_slice(&format);
            out.push(b':');
            out.extend_from_slice(text);
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[inline]
fn header(out: &mut Vec<u8>, kind: u8, len: u64) {
    out.push(kind);
    match u8::try_from(len) {
        Ok(digit @ 0..=9) => out.push(b'0' + digit),
        _ => out.extend_from_slice(itoa::Buffer::new().format(len).as_bytes()),
    }
    out.extend_from_slice(b"\r\n");
}

fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    let start = out.len();
    out.extend_from_slice(text);
    for byte in &mut out[start..] {
        if matches!(*byte, b'\r' | b'\n') {
            *byte = b' ';
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn double_text(value: f64) -> String {
    let size = value.abs();
    if value.is_nan() {
        "nan".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "inf" } else { "-inf" }.to_owned()
    } else if size != 0.0 && !(1e-5..1e17).contains(&size) {
        // Plain notation would print up to 300 zeros.
        format!("{value:e}")
    } else {
        format!("{value}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn commands_and_scalars() {
        assert_eq!(encoded(|o| command(o, ["GET", "key"])), "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
        assert_eq!(encoded(|o| command(o, [&b"SET"[..], b"k", b"0123456789"])).len(), 4 + 9 + 7 + 17);
        assert_eq!(encoded(|o| simple(o, "OK")), "+OK\r\n");
        assert_eq!(encoded(|o| integer(o, i64::MIN)), ":-9223372036854775808\r\n");
        assert_eq!(encoded(|o| bulk(o, b"")), "$0\r\n\r\n");
        assert_eq!(encoded(|o| bulk(o, &[b'x'; 12])), "$12\r\nxxxxxxxxxxxx\r\n");
    }

    /// R19: user text inside an error cannot start a second reply.
    #[test]
    fn r19_line_ends_in_errors_become_blanks() {
        assert_eq!(encoded(|o| error(o, b"ERR bad 'a\r\n+OK\r\n'")), "-ERR bad 'a  +OK  '\r\n");
        assert_eq!(encoded(|o| simple(o, "a\nb")), "+a b\r\n");
    }

    #[test]
    fn each_type_has_a_form_in_both_versions() {
        use Version::{Resp2, Resp3};
        for (version, want) in [
            (Resp2, "$-1\r\n*-1\r\n*4\r\n*2\r\n*3\r\n:1\r\n:0\r\n$3\r\n1.5\r\n$2\r\nhi\r\n"),
            (Resp3, "_\r\n_\r\n%2\r\n~2\r\n>3\r\n#t\r\n#f\r\n,1.5\r\n=6\r\ntxt:hi\r\n"),
        ] {
            let got = encoded(|o| {
                null_bulk(o, version);
                null_array(o, version);
                map(o, 2, version);
                set(o, 2, version);
                push(o, 3, version);
                boolean(o, true, version);
                boolean(o, false, version);
                double(o, 1.5, version);
                verbatim(o, *b"txt", b"hi", version);
            });
            assert_eq!(got, want);
        }
    }

    #[test]
    fn doubles_read_back_as_themselves() {
        for value in [0.0, -0.0, 1.0, -2.5, 0.1, 1e16, 1e17, 1e300, 5e-324, f64::MAX, 1e-5, 9e-6] {
            let text = double_text(value);
            assert!(text.len() < 25, "{text}");
            assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits());
        }
        assert_eq!(double_text(f64::INFINITY), "inf");
        assert_eq!(double_text(f64::NEG_INFINITY), "-inf");
        assert_eq!(double_text(f64::NAN), "nan");
    }
}
