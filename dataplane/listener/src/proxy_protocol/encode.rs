//! The encoder: headers for TCP upstreams, and those that a load balancer in front would send.

use std::net::{IpAddr, SocketAddr};

use super::crc32c::crc32c;
use super::v2::{
    CLIENT_CERT_CONN, CLIENT_SSL, FIXED_BYTES, SIGNATURE, TLV_AUTHORITY, TLV_CRC32C, TLV_SSL, TLV_SSL_CN,
    TLV_SSL_VERSION, UNIX_PATH_BYTES,
};
use super::{ProxyAddresses, ProxyCommand, ProxyHeader, ProxyTls, ProxyVersion};

impl ProxyHeader {
    /// A header that announces a client's TCP connection. Addresses of two families are both written as IPv6.
    pub fn tcp(version: ProxyVersion, source: SocketAddr, destination: SocketAddr) -> Self {
        let (source, destination) = match source.is_ipv4() == destination.is_ipv4() {
            true => (source, destination),
            false => (mapped(source), mapped(destination)),
        };
        let addresses = ProxyAddresses::Ip { source, destination };
        Self { version, command: ProxyCommand::Proxy, addresses, authority: None, tls: None }
    }

    /// A header that announces a client of whom nothing is known.
    pub fn unknown(version: ProxyVersion) -> Self {
        let addresses = ProxyAddresses::Unknown;
        Self { version, command: ProxyCommand::Proxy, addresses, authority: None, tls: None }
    }

    /// Appends the header in its own version. Version 1 has no room for a local connection, Unix sockets, a host name
    /// or TLS: it says `UNKNOWN`, or leaves them out. Texts are cut at 255 bytes, paths at 108.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self.version {
            ProxyVersion::V1 => self.encode_v1(out),
            ProxyVersion::V2 => self.encode_v2(out, false),
        }
    }

    /// As [`encode`](Self::encode) in version 2, with a checksum.
    pub fn encode_with_checksum(&self, out: &mut Vec<u8>) {
        self.encode_v2(out, true);
    }

    fn encode_v1(&self, out: &mut Vec<u8>) {
        let line = match (self.command, &self.addresses) {
            (ProxyCommand::Proxy, ProxyAddresses::Ip { source, destination }) => {
                let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
                let (from, to) = (source.ip(), destination.ip());
                format!("PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port())
            }
            _ => "PROXY UNKNOWN\r\n".to_owned(),
        };
        out.extend_from_slice(line.as_bytes());
    }

    fn encode_v2(&self, out: &mut Vec<u8>, checksum: bool) {
        let start = out.len();
        out.extend_from_slice(SIGNATURE);
        out.push(match self.command {
            ProxyCommand::Local => 0x20,
            ProxyCommand::Proxy => 0x21,
        });
        out.extend_from_slice(&[0, 0, 0]);
        out[start + 13] = encode_addresses(&self.addresses, out);
        if let Some(authority) = &self.authority {
            tlv(out, TLV_AUTHORITY, text(authority));
        }
        if let Some(tls) = &self.tls {
            encode_ssl(tls, out);
        }
        if checksum {
            tlv(out, TLV_CRC32C, &[0; 4]);
        }
        // At most 216 of addresses, and three texts of 255 with their heads: far below 65,535.
        let rest = (out.len() - start - FIXED_BYTES) as u16;
        out[start + 14..start + 16].copy_from_slice(&rest.to_be_bytes());
        if checksum {
            let sum = crc32c(&[&out[start..]]);
            let at = out.len() - 4;
            out[at..].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

/// Appends the addresses; gives the byte of family and transport.
fn encode_addresses(addresses: &ProxyAddresses, out: &mut Vec<u8>) -> u8 {
    match addresses {
        ProxyAddresses::Unknown => 0x00,
        ProxyAddresses::Ip { source, destination } => {
            for ip in [source.ip(), destination.ip()] {
                match ip {
                    IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
                    IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
                }
            }
            out.extend_from_slice(&source.port().to_be_bytes());
            out.extend_from_slice(&destination.port().to_be_bytes());
            if source.is_ipv4() { 0x11 } else { 0x21 }
        }
        ProxyAddresses::Unix { source, destination } => {
            for path in [source, destination] {
                let bytes = path.len().min(UNIX_PATH_BYTES);
                out.extend_from_slice(&path[..bytes]);
                out.resize(out.len() + UNIX_PATH_BYTES - bytes, 0);
            }
            0x31
        }
    }
}

fn encode_ssl(tls: &ProxyTls, out: &mut Vec<u8>) {
    let mut value = vec![CLIENT_SSL, 0, 0, 0, 0];
    if tls.client_verified {
        value[0] |= CLIENT_CERT_CONN;
    }
    for (kind, content) in [(TLV_SSL_VERSION, &tls.version), (TLV_SSL_CN, &tls.common_name)] {
        if let Some(content) = content {
            tlv(&mut value, kind, text(content));
        }
    }
    tlv(out, TLV_SSL, &value);
}

/// `value` is at most 775 bytes (an SSL TLV with two texts).
fn tlv(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
    out.push(kind);
    out.extend_from_slice(&(value.len() as u16).to_be_bytes());
    out.extend_from_slice(value);
}

fn text(text: &str) -> &[u8] {
    &text.as_bytes()[..text.len().min(255)]
}

fn mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(IpAddr::V6(ip.to_ipv6_mapped()), address.port()),
        IpAddr::V6(_) => address,
    }
}
