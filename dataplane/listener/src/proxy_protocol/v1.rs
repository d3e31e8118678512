//! Version 1: one line of text (spec 2.1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use weir_base::Violation;

use super::{ProxyAddresses, ProxyCommand, ProxyHeader, ProxyVersion, malformed, too_long};

/// Bytes of the longest header, line end included: `PROXY UNKNOWN` with two full IPv6 addresses and ports (spec 2.1).
pub const V1_BYTES_MAX: usize = 107;

/// First bytes of every header, in capitals.
pub(super) const PREFIX: &[u8] = b"PROXY ";

pub(super) fn decode(input: &[u8]) -> Result<Option<(ProxyHeader, usize)>, Violation> {
    let window = &input[..input.len().min(V1_BYTES_MAX)];
    let Some(end) = window.windows(2).position(|pair| pair == b"\r\n") else {
        return match input.len() < V1_BYTES_MAX {
            true => Ok(None),
            false => Err(too_long("the PROXY line does not end", input.len(), V1_BYTES_MAX)),
        };
    };
    let Some(fields) = window[..end].strip_prefix(PREFIX) else {
        // The line ended inside the prefix.
        return Err(malformed("the PROXY line is cut short"));
    };
    let header = ProxyHeader {
        version: ProxyVersion::V1,
        command: ProxyCommand::Proxy,
        addresses: addresses(fields)?,
        authority: None,
        tls: None,
    };
    Ok(Some((header, end + 2)))
}

/// `TCP4 <source> <destination> <source port> <destination port>`, the same with `TCP6`, or `UNKNOWN` and anything.
fn addresses(fields: &[u8]) -> Result<ProxyAddresses, Violation> {
    if fields == b"UNKNOWN" || fields.starts_with(b"UNKNOWN ") {
        return Ok(ProxyAddresses::Unknown);
    }
    let text = std::str::from_utf8(fields).map_err(|_| malformed("the PROXY line is not ASCII"))?;
    let mut fields = text.split(' ');
    // Five fields exactly, one space between: an array of them, and then no sixth.
    let [Some(family), Some(source), Some(destination), Some(source_port), Some(destination_port), None] =
        std::array::from_fn(|_| fields.next())
    else {
        return Err(malformed("the PROXY line has not six fields separated by one space each"));
    };
    let ip: fn(&str) -> Option<IpAddr> = match family {
        "TCP4" => |text| text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        "TCP6" => |text| text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        _ => return Err(malformed("the PROXY line is neither TCP4 nor TCP6 nor UNKNOWN")),
    };
    let address = |ip_text, port_text| {
        let ip = ip(ip_text).ok_or_else(|| malformed("the PROXY line has an address that is not of its family"))?;
        let port =
            port(port_text).ok_or_else(|| malformed("the PROXY line has a port that is no number up to 65535"))?;
        Ok(SocketAddr::new(ip, port))
    };
    Ok(ProxyAddresses::Ip {
        source: address(source, source_port)?,
        destination: address(destination, destination_port)?,
    })
}

/// Digits only, without leading zeros. (Octets with leading zeros are refused by the standard library already.)
fn port(text: &str) -> Option<u16> {
    let canonical = text == "0" || !text.starts_with('0');
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    (canonical && digits).then(|| text.parse().ok()).flatten()
}
