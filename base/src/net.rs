//! Networks: addresses that begin with the same bits.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network in CIDR form, for example `10.0.0.0/8` or `fd00::/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Net {
    address: IpAddr,
    prefix: u8,
}

/// The text is no network; the display text says what is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetError;

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a network is an IP address, or one with a prefix length and no bits after it: 10.0.0.0/8, fd00::/8",
        )
    }
}

impl std::error::Error for NetError {}

impl Net {
    /// The first address, and how many bits of it all addresses of the network share.
    pub fn parts(&self) -> (IpAddr, u8) {
        (self.address, self.prefix)
    }

    /// True when `address` lies inside. An IPv4 address that arrives mapped into IPv6 (a dual-stack socket) counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let prefix = u32::from(self.prefix);
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
                (u32::from(net) ^ u32::from(other)) & mask == 0
            }
            (IpAddr::V6(net), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
                (u128::from(net) ^ u128::from(other)) & mask == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Net {
    type Err = NetError;

    fn from_str(text: &str) -> Result<Self, NetError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NetError)?;
        let width: u8 = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => width,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().map_err(|_| NetError)?,
            Some(_) => return Err(NetError),
        };
        if prefix > width || !host_bits_are_zero(address, prefix) {
            return Err(NetError);
        }
        Ok(Self { address, prefix })
    }
}

/// `10.1.2.3/8` is a mistake more often than a shorthand, so it is refused.
fn host_bits_are_zero(address: IpAddr, prefix: u8) -> bool {
    match address {
        IpAddr::V4(v4) => u32::from(v4).checked_shl(u32::from(prefix)).unwrap_or(0) == 0,
        IpAddr::V6(v6) => u128::from(v6).checked_shl(u32::from(prefix)).unwrap_or(0) == 0,
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_hold_their_own_and_nothing_else() {
        let inside = |net: &str, ip: &str| net.parse::<Net>().expect(net).contains(ip.parse().expect(ip));
        assert!(inside("10.0.0.0/8", "10.255.0.1"));
        assert!(!inside("10.0.0.0/8", "11.0.0.0"));
        assert!(inside("0.0.0.0/0", "203.0.113.9"));
        assert!(!inside("0.0.0.0/0", "::1"));
        assert!(inside("::/0", "2001:db8::1"));
        assert!(inside("192.0.2.7", "192.0.2.7") && !inside("192.0.2.7", "192.0.2.8"));
        assert!(inside("10.0.0.0/8", "::ffff:10.1.1.1"), "a dual-stack socket shows IPv4 peers as mapped");
    }

    #[test]
    fn a_network_with_host_bits_or_a_bad_prefix_is_refused() {
        for text in ["", "10.0.0.0/33", "10.1.2.3/8", "fd00::1/8", "10.0.0.0/", "10.0.0.0/+8", "x/8", "::/129"] {
            assert_eq!(text.parse::<Net>(), Err(NetError), "{text}");
        }
    }
}
