//! Requests that a web page of a foreign site makes a browser send to a listener of this machine.
//!
//! A browser sends a POST of another site without a question, and follows a name of that site that suddenly means 127.0.0.1 (DNS
//! rebinding). A page cannot change `Origin`, `Sec-Fetch-Site` (Fetch standard, section 4.6 of Fetch Metadata) and `Host`.

use std::net::IpAddr;

use weir_http_codec::{Known, RequestHead};

/// Whether only a page of a foreign site can have sent a request. Clients that are no browsers send neither field.
pub(crate) fn is_foreign(head: &RequestHead) -> bool {
    let site = || head.fields.all_named(b"sec-fetch-site").any(|site| site.eq_ignore_ascii_case(b"cross-site"));
    let mut origins = head.fields.all(Known::Origin).peekable();
    // A page of this machine has another origin by its port alone.
    let is_elsewhere = if origins.peek().is_none() { site() } else { !origins.all(is_local_origin) };
    is_elsewhere || !(is_local_name(host(head.authority())) || is_address(host(head.authority())))
}

/// `http://localhost:3000`, or the origin of a program with pages of its own, such as `vscode-webview://…`. A page of a file or of a sandbox
/// has `null`.
fn is_local_origin(origin: &[u8]) -> bool {
    let Some(at) = origin.windows(3).position(|three| three == b"://") else { return false };
    if !matches!(&*origin[..at].to_ascii_lowercase(), b"http" | b"https") {
        return true;
    }
    let host = host(&origin[at + 3..]);
    is_local_name(host) || address(host).is_some_and(|address| address.to_canonical().is_loopback())
}

/// An authority without its port.
fn host(authority: &[u8]) -> &[u8] {
    match authority.iter().rposition(|byte| *byte == b':') {
        Some(at) if authority[at + 1..].iter().all(u8::is_ascii_digit) && !authority[..at].ends_with(b":") => {
            &authority[..at]
        }
        _ => authority,
    }
}

/// Names that no server of names may resolve (RFC 6761 section 6.3), that of the machine in a container of Docker, and none at all, as in
/// HTTP/1.0.
fn is_local_name(host: &[u8]) -> bool {
    let lower = host.to_ascii_lowercase();
    let name = lower.strip_suffix(b".").unwrap_or(&lower);
    name.is_empty() || name == b"localhost" || name.ends_with(b".localhost") || name == b"host.docker.internal"
}

/// No page can rebind an address.
fn is_address(host: &[u8]) -> bool {
    address(host).is_some()
}

fn address(host: &[u8]) -> Option<IpAddr> {
    let bare = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")).unwrap_or(host);
    std::str::from_utf8(bare).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_authority_has_no_port() {
        for (authority, wanted) in [
            ("localhost:8000", "localhost"),
            ("localhost", "localhost"),
            ("[::1]:8000", "[::1]"),
            ("[::1]", "[::1]"),
            ("a.example:", "a.example"),
            ("", ""),
        ] {
            assert_eq!(host(authority.as_bytes()), wanted.as_bytes(), "{authority}");
        }
    }

    #[test]
    fn an_origin_of_this_machine_is_local_and_no_other_is() {
        for origin in [
            "http://localhost:3000",
            "https://app.LOCALHOST",
            "http://127.0.0.1",
            "http://[::1]:3000",
            "app://notes.example",
        ] {
            assert!(is_local_origin(origin.as_bytes()), "{origin}");
        }
        for origin in ["null", "", "https://evil.example", "http://203.0.113.1", "http://localhost.evil.example", "x"] {
            assert!(!is_local_origin(origin.as_bytes()), "{origin}");
        }
    }
}
