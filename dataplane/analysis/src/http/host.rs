//! The one form of an authority: Host of HTTP/1.1 (RFC 9110 7.2), `:authority` of HTTP/2 and HTTP/3.

use std::{borrow::Cow, fmt, net::Ipv6Addr};

/// Bytes of a host. Default 255, the most that a name of the DNS has (RFC 1035 2.3.4).
pub const HOST_BYTES_MAX: usize = 255;

/// How authorities are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostRules {
    /// `example.com.` becomes `example.com`. Default `false`: to TLS and most servers they are two names.
    pub strip_trailing_dot: bool,
}

/// A host in its one form, and the port beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority<'a> {
    /// Lower case. An IPv6 address has its brackets and the spelling of RFC 5952.
    pub host: Cow<'a, [u8]>,
    /// 1 or more, if there is one.
    pub port: Option<u16>,
}

/// Why an authority is refused. The client is to blame: 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostError {
    /// No host.
    Empty,
    /// Over [`HOST_BYTES_MAX`].
    TooLong,
    /// `user@`: RFC 9110 4.2.4 has none in HTTP, and who reads it differently sees another host.
    Userinfo,
    /// A byte that no name has. `%` is one although RFC 3986 allows it: a name of the DNS needs no escapes, and they would
    /// be a second spelling. So is `,`, which makes a list.
    Character,
    /// `a..b` or `.a`.
    EmptyLabel,
    /// Brackets that do not close, or without an IPv6 address in them. Zones are refused, too: they mean something on the
    /// client's machine only.
    Address,
    /// Not 1 to 65535, or not in its shortest form.
    Port,
}

impl HostError {
    /// The stable snake_case word for metric labels and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "host_empty",
            Self::TooLong => "host_too_long",
            Self::Userinfo => "host_userinfo",
            Self::Character => "host_character",
            Self::EmptyLabel => "host_empty_label",
            Self::Address => "host_address",
            Self::Port => "host_port",
        }
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the host is empty"),
            Self::TooLong => write!(f, "the host has more than {HOST_BYTES_MAX} bytes"),
            Self::Userinfo => f.write_str("the host has a user before it"),
            Self::Character => f.write_str("the host has a character that no name has"),
            Self::EmptyLabel => f.write_str("the host has an empty label"),
            Self::Address => f.write_str("the host has brackets without an IPv6 address in them"),
            Self::Port => f.write_str("the port is not a number from 1 to 65535"),
        }
    }
}

impl std::error::Error for HostError {}

/// The one form of `authority`. Allocates only for upper case and odd spellings of IPv6 addresses.
///
/// # Errors
/// See [`HostError`].
pub fn canonical<'a>(authority: &'a [u8], rules: &HostRules) -> Result<Authority<'a>, HostError> {
    // Six more for the port, two for brackets: longer ones need no look.
    if authority.len() > HOST_BYTES_MAX + 8 {
        return Err(HostError::TooLong);
    }
    // A user makes any form wrong.
    form(authority, rules).map_err(|error| if authority.contains(&b'@') { HostError::Userinfo } else { error })
}

fn form<'a>(authority: &'a [u8], rules: &HostRules) -> Result<Authority<'a>, HostError> {
    if let Some(rest) = authority.strip_prefix(b"[") {
        let end = rest.iter().position(|&byte| byte == b']').ok_or(HostError::Address)?;
        let port = match &rest[end + 1..] {
            [] => None,
            [b':', digits @ ..] => Some(port(digits)?),
            _ => return Err(HostError::Character),
        };
        return Ok(Authority { host: address(&authority[..end + 2])?, port });
    }
    let (host, port) = match authority.iter().position(|&byte| byte == b':') {
        Some(at) => (&authority[..at], Some(port(&authority[at + 1..])?)),
        None => (authority, None),
    };
    Ok(Authority { host: name(host, rules)?, port })
}

/// `bracketed` begins and ends with its brackets.
fn address(bracketed: &[u8]) -> Result<Cow<'_, [u8]>, HostError> {
    let text = std::str::from_utf8(&bracketed[1..bracketed.len() - 1]).map_err(|_| HostError::Address)?;
    let address: Ipv6Addr = text.parse().map_err(|_| HostError::Address)?;
    let form = format!("[{address}]").into_bytes();
    Ok(if form == bracketed { Cow::Borrowed(bracketed) } else { Cow::Owned(form) })
}

fn name<'a>(host: &'a [u8], rules: &HostRules) -> Result<Cow<'a, [u8]>, HostError> {
    let (labels, has_dot) = match host.strip_suffix(b".") {
        Some(labels) => (labels, true),
        None => (host, false),
    };
    if labels.is_empty() {
        return Err(if has_dot { HostError::EmptyLabel } else { HostError::Empty });
    }
    if labels.len() > HOST_BYTES_MAX {
        return Err(HostError::TooLong);
    }
    let (mut seen, mut before) = (0, DOT);
    for &byte in labels {
        let class = CLASSES[usize::from(byte)];
        if class == 0 {
            return Err(HostError::Character);
        }
        if class & before & DOT != 0 {
            return Err(HostError::EmptyLabel);
        }
        seen |= class;
        before = class;
    }
    if before == DOT {
        return Err(HostError::EmptyLabel);
    }
    let is_lower = seen & UPPER == 0;
    let host = if rules.strip_trailing_dot { labels } else { host };
    Ok(if is_lower { Cow::Borrowed(host) } else { Cow::Owned(host.to_ascii_lowercase()) })
}

/// A byte that a name has.
const NAME: u8 = 1;
/// A letter in upper case, besides [`NAME`].
const UPPER: u8 = 2;
/// The byte between labels.
const DOT: u8 = 4;

/// The class of each byte of a `reg-name` (RFC 3986 3.2.2), except `%` and `,`. Every other byte has class 0.
const CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut at = 0;
    while at < classes.len() {
        let byte = at as u8;
        classes[at] = match byte {
            b'.' => DOT,
            b'A'..=b'Z' => NAME | UPPER,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b';' | b'=' => NAME,
            _ if super::percent::is_unreserved(byte) => NAME,
            _ => 0,
        };
        at += 1;
    }
    classes
}

fn port(digits: &[u8]) -> Result<u16, HostError> {
    let is_shortest = matches!(digits, [b'1'..=b'9', ..]) && digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit);
    if !is_shortest {
        return Err(HostError::Port);
    }
    let value = digits.iter().fold(0_u32, |value, digit| value * 10 + u32::from(digit - b'0'));
    u16::try_from(value).map_err(|_| HostError::Port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(authority: &str) -> Result<(String, Option<u16>), HostError> {
        let authority = canonical(authority.as_bytes(), &HostRules::default())?;
        Ok((String::from_utf8(authority.host.into_owned()).expect("ASCII"), authority.port))
    }

    #[test]
    fn a_host_is_lower_case_without_its_port() {
        for (authority, host, port) in [
            ("example.com", "example.com", None),
            ("EXAMPLE.com:8080", "example.com", Some(8080)),
            ("localhost:1", "localhost", Some(1)),
            ("a_b.c-d:65535", "a_b.c-d", Some(65535)),
            ("127.0.0.1:80", "127.0.0.1", Some(80)),
            ("[::1]", "[::1]", None),
            ("[::1]:443", "[::1]", Some(443)),
            ("[0:0:0::1]:443", "[::1]", Some(443)),
            ("[2001:DB8::A]", "[2001:db8::a]", None),
            ("example.com.", "example.com.", None),
        ] {
            assert_eq!(form(authority), Ok((host.to_owned(), port)), "{authority}");
        }
    }

    #[test]
    fn invalid_hosts_are_refused() {
        for (authority, error) in [
            ("", HostError::Empty),
            (":80", HostError::Empty),
            (".", HostError::EmptyLabel),
            (".com", HostError::EmptyLabel),
            ("a..b", HostError::EmptyLabel),
            ("a..", HostError::EmptyLabel),
            ("user@example.com", HostError::Userinfo),
            ("user:pass@[::1]", HostError::Userinfo),
            ("a,b", HostError::Character),
            ("a b", HostError::Character),
            ("a/b", HostError::Character),
            ("a?b", HostError::Character),
            ("a\\b", HostError::Character),
            ("%65xample.com", HostError::Character),
            ("\u{e9}.com", HostError::Character),
            ("a\0", HostError::Character),
            ("::1", HostError::Port),
            ("a:", HostError::Port),
            ("a:0", HostError::Port),
            ("a:080", HostError::Port),
            ("a:65536", HostError::Port),
            ("a:+80", HostError::Port),
            ("a:80:80", HostError::Port),
            ("a:99999999999999999999", HostError::Port),
            ("[::1", HostError::Address),
            ("[]", HostError::Address),
            ("[::1%25eth0]", HostError::Address),
            ("[v1.x]", HostError::Address),
            ("[127.0.0.1]", HostError::Address),
            ("[::1]x", HostError::Character),
            ("[::1]:", HostError::Port),
        ] {
            assert_eq!(form(authority), Err(error), "{authority}");
        }
    }

    #[test]
    fn the_trailing_dot_goes_only_where_configured() {
        let rules = HostRules { strip_trailing_dot: true };
        let authority = canonical(b"Example.com.:81", &rules).expect("a host");
        assert_eq!((authority.host.as_ref(), authority.port), (&b"example.com"[..], Some(81)));
        assert!(matches!(canonical(b"example.com.", &rules), Ok(Authority { host: Cow::Borrowed(_), .. })));
        assert_eq!(canonical(b"a..", &rules), Err(HostError::EmptyLabel));
    }

    #[test]
    fn a_long_host_is_refused_without_a_look_at_it() {
        assert_eq!(form(&"a".repeat(1 << 20)), Err(HostError::TooLong));
        assert_eq!(form(&"a".repeat(256)), Err(HostError::TooLong));
        assert!(form(&"a".repeat(255)).is_ok());
    }
}
