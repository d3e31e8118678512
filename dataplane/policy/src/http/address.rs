//! Whose request it is, and whether requests from there are served.

use std::{fmt, net::IpAddr};

use weir_base::Net;
use weir_http_codec::{Fields, Known, token};

use super::refusal::Refusal;

/// Networks of one list. Default 65,536: all networks of a large country fit. Worst case 32 bytes each, 2 MiB.
pub const NETS_MAX: usize = 65_536;

/// Proxies in front that may be trusted. Default 16; real chains are shorter, an index without a bound invites mistakes.
pub const HOPS_MAX: u8 = 16;

/// Bytes of an entry of X-Forwarded-For that is looked at: `[` IPv6 with a mapped IPv4 and a zone `]:65535` has fewer.
const ENTRY_BYTES_MAX: usize = 64;

/// Finds the client of a request that came through proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardedFor {
    hops: u8,
}

impl ForwardedFor {
    /// `hops` proxies stand in front, all trusted: each appends the address of its own peer to X-Forwarded-For, so the
    /// last `hops` entries are theirs and the first of these is the client. 0: none is trusted, the peer is the client.
    ///
    /// # Errors
    /// More than [`HOPS_MAX`].
    pub fn new(hops: u8) -> Result<Self, AddressError> {
        if hops > HOPS_MAX { Err(AddressError::Hops(hops)) } else { Ok(Self { hops }) }
    }

    /// The address of the client. All lines of X-Forwarded-For count, in order, as one list.
    ///
    /// It is the peer if the field has fewer entries than there are trusted proxies (the request did not come through all
    /// of them, so what is there may be the client's own words), or if one of the entries that count is no address.
    pub fn client(self, peer: IpAddr, fields: &Fields) -> IpAddr {
        let peer = peer.to_canonical();
        let hops = usize::from(self.hops);
        if hops == 0 {
            return peer;
        }
        let mut last: [&[u8]; HOPS_MAX as usize] = [&[]; HOPS_MAX as usize];
        let mut count = 0;
        for entry in fields.all(Known::XForwardedFor).flat_map(token::list) {
            last[count % hops] = entry;
            count += 1;
        }
        if count < hops {
            return peer;
        }
        // The ring is full; its oldest entry stands where the next one would.
        let oldest = last[count % hops];
        let all_are_addresses = last[..hops].iter().all(|entry| entry_address(entry).is_some());
        match entry_address(oldest) {
            Some(client) if all_are_addresses => client,
            _ => peer,
        }
    }
}

/// An entry: an address, with a port as some proxies write it, and IPv6 with or without brackets.
fn entry_address(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok().filter(|text| text.len() <= ENTRY_BYTES_MAX)?;
    let bare = || text.parse::<IpAddr>().ok();
    let with_port = || text.parse::<std::net::SocketAddr>().ok().map(|address| address.ip());
    let in_brackets = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    bare().or_else(with_port).or_else(in_brackets).map(|address| address.to_canonical())
}

/// The form of a list of networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Only requests from these are served.
    Allow,
    /// Requests from these are not served.
    Deny,
}

/// The address that the rule checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The other end of the connection (or of the PROXY header).
    Peer,
    /// The client as [`ForwardedFor`] finds it.
    #[default]
    Client,
}

/// A list of networks. Rules of a route stand in place of those of its host, not beside them.
#[derive(Clone, Debug)]
pub struct AddressRules {
    effect: Effect,
    source: Source,
    /// First and last address, in order, without overlap.
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
}

impl AddressRules {
    /// A lookup costs a binary search, whatever the number of networks.
    ///
    /// # Errors
    /// An empty list, which would silently allow or deny no client at all; more than [`NETS_MAX`].
    pub fn new(effect: Effect, source: Source, nets: &[Net]) -> Result<Self, AddressError> {
        if nets.is_empty() {
            return Err(AddressError::NoNets);
        }
        if nets.len() > NETS_MAX {
            return Err(AddressError::TooManyNets(nets.len()));
        }
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (address, prefix) in nets.iter().map(Net::parts) {
            let prefix = u32::from(prefix);
            match address {
                IpAddr::V4(first) => {
                    let first = u32::from(first);
                    v4.push((first, first | u32::MAX.checked_shr(prefix).unwrap_or(0)));
                }
                IpAddr::V6(first) => {
                    let first = u128::from(first);
                    v6.push((first, first | u128::MAX.checked_shr(prefix).unwrap_or(0)));
                }
            }
        }
        Ok(Self { effect, source, v4: merged(v4), v6: merged(v6) })
    }

    /// Whether a request from there is served.
    ///
    /// # Errors
    /// 403.
    pub fn judge(&self, peer: IpAddr, client: IpAddr) -> Result<(), Refusal> {
        let address = match self.source {
            Source::Peer => peer,
            Source::Client => client,
        };
        if self.contains(address) == (self.effect == Effect::Allow) {
            return Ok(());
        }
        Err(Refusal::new(403, "address_denied"))
    }

    fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => is_in(&self.v4, u32::from(address)),
            IpAddr::V6(address) => is_in(&self.v6, u128::from(address)),
        }
    }
}

/// In order, those that overlap as one.
fn merged<T: Ord + Copy>(mut ranges: Vec<(T, T)>) -> Box<[(T, T)]> {
    ranges.sort_unstable();
    let mut kept: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match kept.last_mut() {
            Some(before) if first <= before.1 => before.1 = before.1.max(last),
            _ => kept.push((first, last)),
        }
    }
    kept.into()
}

fn is_in<T: Ord + Copy>(ranges: &[(T, T)], address: T) -> bool {
    let behind = ranges.partition_point(|(first, _)| *first <= address);
    behind > 0 && address <= ranges[behind - 1].1
}

/// Why rules cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// An empty list.
    NoNets,
    /// So many.
    TooManyNets(usize),
    /// So many trusted proxies.
    Hops(u8),
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNets => f.write_str("a list of networks is empty: name one, or leave the list out"),
            Self::TooManyNets(count) => write!(f, "{count} networks in a list; the most is {NETS_MAX}"),
            Self::Hops(hops) => write!(f, "{hops} trusted proxies; the most is {HOPS_MAX}"),
        }
    }
}

impl std::error::Error for AddressError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    fn client(hops: u8, lines: &[&str]) -> String {
        let mut fields = Fields::new();
        for line in lines {
            fields.push(b"X-Forwarded-For", line.as_bytes());
        }
        ForwardedFor::new(hops).expect("few").client(ip("10.0.0.1"), &fields).to_string()
    }

    #[test]
    fn the_client_is_counted_from_the_right_over_all_lines() {
        for (hops, lines, expected) in [
            (0, &["203.0.113.9"][..], "10.0.0.1"),
            (1, &["203.0.113.9"], "203.0.113.9"),
            (1, &["198.51.100.1, 203.0.113.9"], "203.0.113.9"),
            (2, &["198.51.100.1, 203.0.113.9"], "198.51.100.1"),
            (2, &["1.1.1.1", "198.51.100.1", "203.0.113.9"], "198.51.100.1"),
            (3, &["1.1.1.1,198.51.100.1", "203.0.113.9"], "1.1.1.1"),
            (1, &["203.0.113.9:4711"], "203.0.113.9"),
            (1, &["[2001:db8::1]:443"], "2001:db8::1"),
            (1, &["[2001:db8::1]"], "2001:db8::1"),
            (1, &["2001:db8::1"], "2001:db8::1"),
            (1, &["::ffff:203.0.113.9"], "203.0.113.9"),
            (2, &["198.51.100.1,, ,203.0.113.9,"], "198.51.100.1"),
        ] {
            assert_eq!(client(hops, lines), expected, "{hops} {lines:?}");
        }
    }

    #[test]
    fn fields_that_cannot_be_from_a_trusted_proxy_leave_the_peer() {
        for (hops, lines) in [
            (1, &[][..]),
            (1, &[""]),
            (2, &["203.0.113.9"]),
            (1, &["unknown"]),
            (1, &["203.0.113.9x"]),
            (1, &["203.0.113.9:99999"]),
            (1, &["[203.0.113.9]"]),
            (1, &["\"203.0.113.9\""]),
            (2, &["198.51.100.1, _hidden"]),
            (2, &["_hidden, 198.51.100.1"]),
        ] {
            assert_eq!(client(hops, lines), "10.0.0.1", "{hops} {lines:?}");
        }
        assert_eq!(client(1, &[&format!("{}1", " ".repeat(9_000))]), "10.0.0.1");
        assert_eq!(client(1, &["_hidden, 198.51.100.1"]), "198.51.100.1", "left of the trusted ones all may stand");
    }

    fn rules(effect: Effect, nets: &[&str]) -> AddressRules {
        let nets: Vec<Net> = nets.iter().map(|net| net.parse().expect(net)).collect();
        AddressRules::new(effect, Source::Client, &nets).expect("rules")
    }

    #[test]
    fn allow_and_deny_are_each_others_contrary() {
        let nets = ["10.0.0.0/8", "10.1.0.0/16", "192.0.2.7", "2001:db8::/32"];
        let (allow, deny) = (rules(Effect::Allow, &nets), rules(Effect::Deny, &nets));
        for (address, is_inside) in [
            ("10.255.255.255", true),
            ("11.0.0.0", false),
            ("9.255.255.255", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::", false),
            ("::ffff:10.0.0.1", true),
        ] {
            let peer = ip("127.0.0.1");
            assert_eq!(allow.judge(peer, ip(address)).is_ok(), is_inside, "{address}");
            assert_eq!(deny.judge(peer, ip(address)).is_ok(), !is_inside, "{address}");
        }
        let refusal = deny.judge(ip("127.0.0.1"), ip("10.0.0.1")).expect_err("denied");
        assert_eq!((refusal.status, refusal.reason, refusal.fields.len()), (403, "address_denied", 0));
    }

    #[test]
    fn the_peer_counts_where_the_rule_says_so() {
        let nets = ["10.0.0.0/8".parse().expect("a network")];
        let rules = AddressRules::new(Effect::Allow, Source::Peer, &nets).expect("rules");
        assert!(rules.judge(ip("10.0.0.1"), ip("203.0.113.9")).is_ok());
        assert!(rules.judge(ip("203.0.113.9"), ip("10.0.0.1")).is_err());
    }

    #[test]
    fn lists_and_hops_have_bounds() {
        assert_eq!(AddressRules::new(Effect::Deny, Source::Peer, &[]).err(), Some(AddressError::NoNets));
        let many = vec!["10.0.0.0/8".parse().expect("a network"); NETS_MAX + 1];
        assert!(AddressRules::new(Effect::Deny, Source::Peer, &many).is_err());
        assert!(ForwardedFor::new(HOPS_MAX).is_ok() && ForwardedFor::new(HOPS_MAX + 1).is_err());
        assert!(rules(Effect::Allow, &["0.0.0.0/0"]).contains(ip("255.255.255.255")));
        assert!(rules(Effect::Allow, &["::/0"]).contains(ip("ffff::1")));
    }

    proptest! {
        #[test]
        fn a_search_agrees_with_a_scan(nets in prop::collection::vec((any::<u32>(), 0u8..=32), 1..20), at: u32) {
            let nets: Vec<Net> = nets.into_iter().map(|(address, prefix)| {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                format!("{}/{prefix}", std::net::Ipv4Addr::from(address & mask)).parse().expect("a network")
            }).collect();
            let rules = AddressRules::new(Effect::Allow, Source::Client, &nets).expect("rules");
            let mut probes = vec![IpAddr::V4(at.into())];
            probes.extend(nets.iter().map(|net| net.parts().0));
            for address in probes {
                prop_assert_eq!(rules.contains(address), nets.iter().any(|net| net.contains(address)));
            }
        }

        #[test]
        fn no_field_makes_it_fail(lines in prop::collection::vec("[ -~]{0,80}", 0..5), hops in 0..=HOPS_MAX) {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            client(hops, &lines);
        }
    }
}
