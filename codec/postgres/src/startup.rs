//! The packets of a client before its first message: a length that counts itself, a code, and what belongs to the code.

use std::fmt;

use crate::error::StartupError;
use crate::limits::{CANCEL_SECRET_BYTES, STARTUP_BYTES_MAX};

/// The first byte of a client that starts TLS without a request for it (PostgreSQL 17). Such a client must offer ALPN `postgresql`.
pub const DIRECT_TLS_BYTE: u8 = 0x16;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The upper half.
    pub major: u16,
    /// The lower half.
    pub minor: u16,
}

impl Version {
    /// 3.0, which everybody speaks.
    pub const V3_0: Self = Self { major: 3, minor: 0 };
    /// 3.2: cancel keys of up to 256 bytes.
    pub const V3_2: Self = Self { major: 3, minor: 2 };
    /// The newest that this codec knows.
    pub const LATEST: Self = Self::V3_2;
    /// The code of a cancel request, as a version.
    pub const CANCEL: Self = Self { major: 1234, minor: 5678 };
    /// The code of a request for TLS, as a version.
    pub const SSL: Self = Self { major: 1234, minor: 5679 };
    /// The code of a request for encryption by GSSAPI, as a version.
    pub const GSS: Self = Self { major: 1234, minor: 5680 };

    /// From its number on the wire.
    pub const fn of(code: u32) -> Self {
        Self { major: (code >> 16) as u16, minor: code as u16 }
    }

    /// Its number on the wire.
    pub const fn code(self) -> u32 {
        ((self.major as u32) << 16) | self.minor as u32
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A packet of a client before its first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Startup<'a> {
    /// Cancels the query of another connection. The server closes without a response.
    Cancel {
        /// The process that BackendKeyData named.
        pid: u32,
        /// Its secret, of 4 to 256 bytes. Compare it in constant time.
        secret: &'a [u8],
    },
    /// Requires `S` or `N` as the response. Bytes behind it belong to the TLS handshake: after `S` no byte may have come before the
    /// response.
    Ssl,
    /// Requires `G` or `N` as a response.
    Gss,
    /// Starts a session.
    Session {
        /// The version that the client wants. The major one is 3; a newer minor one than the server's is negotiated.
        version: Version,
        /// User, database, settings.
        parameters: Parameters<'a>,
    },
}

/// The packet that `input` begins with, and its bytes; `None`: it is not whole. A wrong length is found with its four bytes.
///
/// # Errors
/// The packet cannot be used; see [`StartupError`].
pub fn read(input: &[u8]) -> Result<Option<(Startup<'_>, usize)>, StartupError> {
    let Some((length, rest)) = input.split_first_chunk() else { return Ok(None) };
    let claimed = u32::from_be_bytes(*length);
    let body = claimed.wrapping_sub(4) as usize;
    if !(4..=STARTUP_BYTES_MAX).contains(&body) {
        return Err(if is_foreign(*length) { StartupError::CrossProtocol } else { StartupError::Length { claimed } });
    }
    let Some((code, packet)) = rest.get(..body).and_then(<[u8]>::split_first_chunk) else { return Ok(None) };
    let version = Version::of(u32::from_be_bytes(*code));
    let startup = match version {
        Version::CANCEL => cancel(packet, claimed)?,
        Version::SSL | Version::GSS if !packet.is_empty() => return Err(StartupError::Length { claimed }),
        Version::SSL => Startup::Ssl,
        Version::GSS => Startup::Gss,
        Version { major: 3, .. } => Startup::Session { version, parameters: Parameters::read(packet)? },
        _ => return Err(StartupError::Version(version)),
    };
    Ok(Some((startup, 4 + body)))
}

fn cancel(packet: &[u8], claimed: u32) -> Result<Startup<'_>, StartupError> {
    let Some((pid, secret)) = packet.split_first_chunk() else { return Err(StartupError::Length { claimed }) };
    if !CANCEL_SECRET_BYTES.contains(&secret.len()) {
        return Err(StartupError::CancelSecret { bytes: secret.len() });
    }
    Ok(Startup::Cancel { pid: u32::from_be_bytes(*pid), secret })
}

/// The first bytes of a request of HTTP, or of a command of Redis.
const fn is_foreign(first: [u8; 4]) -> bool {
    matches!(
        &first,
        b"GET " | b"HEAD" | b"POST" | b"PUT " | b"DELE" | b"CONN" | b"OPTI" | b"TRAC" | b"PATC" | b"PRI " | b"PING"
    ) || matches!(first, [b'*', b'0'..=b'9', ..])
}

/// Parameters of a session: names and values in the order of the client, already checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters<'a>(&'a [u8]);

impl<'a> Parameters<'a> {
    /// Names and values, each with its NUL, and one more NUL as the last byte.
    ///
    /// # Errors
    /// [`StartupError::Layout`]: the terminator is missing or is not the last byte.
    pub fn read(packet: &'a [u8]) -> Result<Self, StartupError> {
        let [pairs @ .., 0] = packet else { return Err(StartupError::Layout) };
        let mut rest = pairs;
        while let Some((name, _, after)) = split_pair(rest) {
            if name.is_empty() {
                return Err(StartupError::Layout);
            }
            rest = after;
        }
        if rest.is_empty() { Ok(Self(pairs)) } else { Err(StartupError::Layout) }
    }

    /// All, in order; a name may be repeated.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (name, value, after) = split_pair(rest)?;
            rest = after;
            Some((name, value))
        })
    }

    /// The value of `name`. The last one wins, as in PostgreSQL: authenticate, authorise and forward this one.
    pub fn get(self, name: &[u8]) -> Option<&'a [u8]> {
        self.iter().filter(|(known, _)| *known == name).last().map(|(_, value)| value)
    }

    /// The user; `None` also if it is empty, which PostgreSQL refuses with SQLSTATE 28000.
    pub fn user(self) -> Option<&'a [u8]> {
        self.get(b"user").filter(|user| !user.is_empty())
    }

    /// The database; the user's name if there is none.
    pub fn database(self) -> Option<&'a [u8]> {
        self.get(b"database").filter(|database| !database.is_empty()).or(self.user())
    }

    /// Names of the protocol's own options (`_pq_.`). NegotiateProtocolVersion lists the unknown ones.
    pub fn protocol_options(self) -> impl Iterator<Item = &'a [u8]> {
        self.iter().map(|(name, _)| name).filter(|name| name.starts_with(b"_pq_."))
    }
}

/// The first name and value, and the bytes behind them.
fn split_pair(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let name = memchr::memchr(0, bytes)?;
    let value = memchr::memchr(0, &bytes[name + 1..])?;
    Some((&bytes[..name], &bytes[name + 1..name + 1 + value], &bytes[name + value + 2..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(code: u32, body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32 + 8).to_be_bytes()[..], &code.to_be_bytes(), body].concat()
    }

    /// The packet is read as whole with its last byte, and more bytes behind it change nothing.
    fn read_whole(packet: &[u8]) -> Result<Startup<'_>, StartupError> {
        let whole = read(packet).map(|found| found.expect("whole"));
        for cut in 0..packet.len() {
            assert!(matches!(read(&packet[..cut]), Ok(None)) || whole.is_err(), "cut at {cut}");
        }
        let longer = [packet, b"more"].concat();
        assert_eq!(read(&longer).map(|found| found.expect("whole")).map(|(_, bytes)| bytes), whole.map(|(_, b)| b));
        whole.map(|(startup, bytes)| {
            assert_eq!(bytes, packet.len());
            startup
        })
    }

    #[test]
    fn each_code_is_its_packet() {
        assert_eq!(read_whole(&packet(80_877_103, b"")), Ok(Startup::Ssl));
        assert_eq!(read_whole(&packet(80_877_104, b"")), Ok(Startup::Gss));
        let cancel = packet(80_877_102, b"\0\0\0\x07abcd");
        assert_eq!(read_whole(&cancel), Ok(Startup::Cancel { pid: 7, secret: b"abcd" }));
        for (code, version) in
            [(196_608, Version::V3_0), (196_610, Version::V3_2), (0x0003_270f, Version::of(0x0003_270f))]
        {
            let session = packet(code, b"user\0a\0\0");
            let Ok(Startup::Session { version: found, parameters }) = read_whole(&session) else { panic!("{code}") };
            assert_eq!((found, parameters.user()), (version, Some(&b"a"[..])));
        }
    }

    #[test]
    fn p1_lengths_out_of_range_are_refused_with_their_four_bytes() {
        for claimed in [0_u32, 4, 7, 10_005, 0x7fff_ffff, u32::MAX] {
            let error = read(&claimed.to_be_bytes()).expect_err("no length");
            assert_eq!((error, error.is_silent()), (StartupError::Length { claimed }, true));
        }
        let mut longest = packet(196_608, &[b"user\0", &[b'a'; 9_989][..], b"\0\0"].concat());
        assert_eq!(longest.len(), 10_004);
        assert!(read_whole(&longest).is_ok());
        longest[..4].copy_from_slice(&8_u32.to_be_bytes());
        assert_eq!(read(&longest), Err(StartupError::Layout), "no terminator");
    }

    #[test]
    fn p2_secrets_of_cancel_requests_have_4_to_256_bytes() {
        for (bytes, is_valid) in [(0, false), (3, false), (4, true), (32, true), (256, true), (257, false)] {
            let cancel = packet(80_877_102, &[&[0, 0, 0, 1][..], &vec![b's'; bytes]].concat());
            let found = read(&cancel);
            assert_eq!(found.is_ok(), is_valid, "{bytes}");
            assert!(is_valid || found == Err(StartupError::CancelSecret { bytes }));
        }
        assert_eq!(read(&packet(80_877_102, b"\0\0\0")), Err(StartupError::Length { claimed: 11 }));
    }

    #[test]
    fn p5_the_last_of_repeated_names_wins_everywhere() {
        let packet = packet(196_608, b"user\0a\0database\0x\0user\0b\0_pq_.x\x001\0options\0-c a=b\0\0");
        let Ok(Startup::Session { parameters, .. }) = read_whole(&packet) else { panic!("a session") };
        assert_eq!(parameters.user(), Some(&b"b"[..]));
        assert_eq!(parameters.database(), Some(&b"x"[..]));
        assert_eq!(parameters.get(b"options"), Some(&b"-c a=b"[..]));
        assert_eq!(parameters.get(b"USER"), None);
        assert_eq!(parameters.iter().count(), 5);
        assert_eq!(parameters.protocol_options().collect::<Vec<_>>(), [b"_pq_.x"]);
    }

    #[test]
    fn p5_a_list_without_its_terminator_as_the_last_byte_is_refused() {
        for body in
            [&b""[..], b"user\0a\0", b"user\0a", b"user\0", b"user\0a\0\0x", b"user\0a\0\0\0", b"\0\0", b"user\0\0"]
        {
            let error = read(&packet(196_608, body)).expect_err("no list");
            assert_eq!((error, error.sqlstate()), (StartupError::Layout, Some("08P01")), "{body:?}");
        }
        let empty = packet(196_608, b"\0");
        let Ok(Startup::Session { parameters, .. }) = read_whole(&empty) else { panic!("a session") };
        assert_eq!((parameters.user(), parameters.database()), (None, None));
        let unnamed = packet(196_608, b"user\0\0database\0\0\0");
        let Ok(Startup::Session { parameters, .. }) = read_whole(&unnamed) else { panic!("a session") };
        assert_eq!((parameters.user(), parameters.database()), (None, None));
    }

    #[test]
    fn p20_other_major_versions_are_named_in_the_refusal() {
        for (code, text) in [(0x0002_0000, "2.0"), (0x0004_0000, "4.0"), (80_877_105, "1234.5681")] {
            let error = read(&packet(code, b"user\0a\0\0")).expect_err("unsupported");
            assert_eq!(error.text(), format!("unsupported frontend protocol {text}: server supports 3.0 to 3.2"));
            assert_eq!(error.sqlstate(), Some("0A000"));
        }
    }

    #[test]
    fn p21_requests_of_http_and_redis_are_recognised() {
        for input in
            [&b"GET / HTTP/1.1\r\n"[..], b"PRI * HTTP/2.0\r\n", b"POST /", b"*1\r\n$4\r\nPING\r\n", b"PING\r\n"]
        {
            let error = read(input).expect_err("foreign");
            assert_eq!((error, error.is_silent()), (StartupError::CrossProtocol, true));
        }
        assert_eq!(read(b"\x16\x03\x01\x02\0"), Err(StartupError::Length { claimed: 0x1603_0102 }));
    }
}
