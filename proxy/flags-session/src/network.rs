//! Networks of the operator `IN_CIDR` and of the strategy `remoteAddress`.

use std::net::IpAddr;

/// Addresses that begin with the same bits. Unlike `weir_base::Net`, which reads configuration, it takes an address with bits behind the
/// prefix, as the peer does: `10.1.2.3/8` is `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// An address, or one with the length of its prefix. `None`: the text is neither, and matches no address.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().ok()?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Some(width), |digits| digits.parse().ok())?;
        (prefix <= width).then_some(Self { address, prefix })
    }

    /// Whether the address lies inside.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        let prefix = u32::from(self.prefix);
        match (self.address, address) {
            (IpAddr::V4(net), IpAddr::V4(other)) => {
                ((u32::from(net) ^ u32::from(other)) & u32::MAX.checked_shl(32 - prefix).unwrap_or(0)) == 0
            }
            (IpAddr::V6(net), IpAddr::V6(other)) => {
                ((u128::from(net) ^ u128::from(other)) & u128::MAX.checked_shl(128 - prefix).unwrap_or(0)) == 0
            }
            _ => false,
        }
    }

    /// Whether the text is an address in one of the networks.
    pub(crate) fn any_has(networks: &[Self], text: &str) -> bool {
        text.parse().is_ok_and(|address| networks.iter().any(|network| network.has(address)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_their_own_addresses_and_no_others() {
        let has = |network: &str, address: &str| Network::any_has(&[Network::parse(network).expect(network)], address);
        assert!(has("10.1.2.3/8", "10.9.9.9") && !has("10.1.2.3/8", "11.1.2.3"));
        assert!(has("10.1.2.3", "10.1.2.3") && !has("10.1.2.3", "10.1.2.4"));
        assert!(has("0.0.0.0/0", "192.0.2.1") && !has("0.0.0.0/0", "::1"));
        assert!(has("2001:db8::/32", "2001:db8:1::2") && !has("2001:db8::/32", "2001:db9::"));
        assert!(has("::/0", "::1") && !has("10.0.0.0/8", "no address"));
    }

    #[test]
    fn other_texts_are_no_network() {
        for text in ["", "127.invalid", "bad::cidr", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/x"]
        {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }
}
