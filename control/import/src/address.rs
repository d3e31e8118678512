//! Addresses of servers, as endpoints of an upstream.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::note::{Mistake, SourceLine};

/// Reads `host:port`, `[v6]:port` or `unix:/path`.
///
/// # Errors
/// It is none of them.
pub(crate) fn endpoint(text: &str, place: &SourceLine) -> Result<String, Mistake> {
    match is_endpoint(text) {
        true => Ok(text.to_owned()),
        false => Err(Mistake::new(place, format!("`{text}` is no address of a server: write host:port"))),
    }
}

fn is_endpoint(text: &str) -> bool {
    if let Some(path) = text.strip_prefix("unix:") {
        return path.starts_with('/') && path.len() > 1;
    }
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_port = port.parse::<u16>().is_ok_and(|port| port != 0);
    let inner = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
    is_port && inner.map_or_else(|| is_host(host), |inner| inner.parse::<Ipv6Addr>().is_ok())
}

/// An IPv4 address, or a name whose last label is no number: else it would be an address with a mistake.
fn is_host(host: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() < 64
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let is_name = host.trim_end_matches('.').split('.').all(is_label);
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    host.parse::<Ipv4Addr>().is_ok() || is_name && host.len() < 254 && !last.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_an_address_is_none() {
        for text in ["10.0.0.1:80", "[::1]:80", "app.internal:80", "localhost:8080", "unix:/run/app.sock", "a_b:1"] {
            assert!(is_endpoint(text), "{text}");
        }
        for text in [
            "10.0.0.1",
            "10.0.0.1:",
            "10.:80",
            "10:80",
            "a..b:80",
            ":80",
            "a:0",
            "a:65536",
            "unix:",
            "[::1:80",
            "a b:80",
        ] {
            assert!(!is_endpoint(text), "{text}");
        }
    }
}
