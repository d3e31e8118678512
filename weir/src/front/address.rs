//! The short forms of addresses on the command line.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};

use weir_engine::settings::Address;

/// Where to listen. `:PORT` and `PORT` are on 127.0.0.1: a listener is open to a network only if the user says so. A host name
/// is resolved here, for a listener binds an IP address.
///
/// # Errors
/// In words: no address, or a name without one.
pub fn listen(text: &str) -> Result<Address, String> {
    match upstream(text)? {
        Address::Host { name, port } => resolved(&name, port).map(Address::Socket),
        address => Ok(address),
    }
}

/// Where to connect. `:PORT` and `PORT` are on 127.0.0.1. A host name stays one: the gateway resolves it, and again at a connect if the
/// last result is over 5 s old.
///
/// # Errors
/// In words: no address.
pub fn upstream(text: &str) -> Result<Address, String> {
    if let Some(port) = port(text) {
        return Ok(Address::Socket((Ipv4Addr::LOCALHOST, port).into()));
    }
    if let Some((scheme, rest)) = text.split_once("://")
        && scheme != "unix"
    {
        let tls = if matches!(scheme, "https" | "rediss") { " --tls-upstream" } else { "" };
        return Err(format!("this is a URL; write {}{tls}", rest.split(['/', '?']).next().unwrap_or(rest)));
    }
    text.parse().map_err(|error| format!("{error}"))
}

/// Where the admin server listens: TCP only.
///
/// # Errors
/// In words: no address with a port.
pub fn admin(text: &str) -> Result<SocketAddr, String> {
    match listen(text)? {
        Address::Socket(address) => Ok(address),
        _ => Err("the admin server has no Unix socket; write :PORT or HOST:PORT".to_owned()),
    }
}

/// `:PORT` or `PORT`.
fn port(text: &str) -> Option<u16> {
    let digits = text.strip_prefix(':').unwrap_or(text);
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// The first address of a name; of IPv4 if there is one, as with `:PORT`.
fn resolved(name: &str, port: u16) -> Result<SocketAddr, String> {
    let addresses = (name, port).to_socket_addrs().map_err(|error| format!("cannot resolve {name}: {error}"))?;
    let mut addresses: Vec<SocketAddr> = addresses.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses.first().copied().ok_or_else(|| format!("{name} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_loopback_and_never_on_every_interface() {
        for text in [":6380", "6380"] {
            assert_eq!(listen(text).expect(text).to_string(), "127.0.0.1:6380");
            assert_eq!(upstream(text).expect(text).to_string(), "127.0.0.1:6380");
            assert_eq!(admin(text).expect(text).to_string(), "127.0.0.1:6380");
        }
        assert_eq!(listen("0.0.0.0:6380").expect("written out").to_string(), "0.0.0.0:6380");
    }

    #[test]
    fn a_name_is_resolved_for_a_listener_and_kept_for_an_upstream() {
        assert_eq!(listen("localhost:80").expect("resolved").to_string(), "127.0.0.1:80");
        assert_eq!(upstream("localhost:80").expect("kept").to_string(), "localhost:80");
        assert_eq!(upstream("unix:/run/redis.sock").expect("a path").to_string(), "unix:/run/redis.sock");
    }

    #[test]
    fn a_mistake_names_the_right_form() {
        for (text, words) in [
            ("localhost", "write host:port"),
            ("http://localhost:3000/x", "write localhost:3000"),
            ("https://app:443", "write app:443 --tls-upstream"),
            (":99999", "host"),
            ("", "empty"),
        ] {
            let mistake = upstream(text).expect_err(text);
            assert!(mistake.contains(words), "{text}: {mistake}");
        }
        assert!(admin("unix:/run/admin.sock").is_err());
    }
}
