//! Version 2: a binary header with addresses and type-length-values (spec 2.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use weir_base::limits::PROXY_HEADER_BYTES_MAX;
use weir_base::{Culprit, Violation};

use super::crc32c::crc32c;
use super::{ProxyAddresses, ProxyCommand, ProxyHeader, ProxyTls, ProxyVersion, malformed, too_long};

/// First twelve bytes of every header.
pub(super) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Signature, version and command, family and transport, length.
pub(super) const FIXED_BYTES: usize = 16;

/// Bytes of one Unix socket path (`sun_path`), padded with zeros.
pub(super) const UNIX_PATH_BYTES: usize = 108;

/// Bytes kept of a host name, a certificate name or a version.
const TEXT_BYTES_MAX: usize = 255;

/// TLV types (spec 2.2.1 to 2.2.6).
pub(super) const TLV_AUTHORITY: u8 = 0x02;
pub(super) const TLV_CRC32C: u8 = 0x03;
pub(super) const TLV_SSL: u8 = 0x20;
pub(super) const TLV_SSL_VERSION: u8 = 0x21;
pub(super) const TLV_SSL_CN: u8 = 0x22;

/// Bits of the first byte of the SSL TLV: the client used TLS; it showed a certificate over this connection.
pub(super) const CLIENT_SSL: u8 = 0x01;
pub(super) const CLIENT_CERT_CONN: u8 = 0x02;

pub(super) fn decode(input: &[u8]) -> Result<Option<(ProxyHeader, usize)>, Violation> {
    // Judged byte by byte as they come, so that a peer that is wrong early is refused early.
    let command = match input.get(12) {
        None => return Ok(None),
        Some(0x20) => ProxyCommand::Local,
        Some(0x21) => ProxyCommand::Proxy,
        Some(other) if other >> 4 != 2 => {
            return Err(malformed("the PROXY signature is followed by an unknown version"));
        }
        Some(_) => return Err(malformed("the PROXY header has an unknown command")),
    };
    let Some((fixed, _)) = input.split_first_chunk::<FIXED_BYTES>() else {
        return Ok(None);
    };
    let rest_bytes = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    let total = FIXED_BYTES + rest_bytes;
    let total_max = PROXY_HEADER_BYTES_MAX as usize;
    if total > total_max {
        return Err(too_long("the PROXY header claims too many bytes", total, total_max));
    }
    let Some(whole) = input.get(..total) else {
        return Ok(None);
    };
    let mut header = ProxyHeader {
        version: ProxyVersion::V2,
        command,
        addresses: ProxyAddresses::Unknown,
        authority: None,
        tls: None,
    };
    // For a local connection the rest of the header must be discarded, the family included (spec 2.2).
    if command == ProxyCommand::Proxy {
        decode_proxied(whole, fixed[13], &mut header)?;
    }
    Ok(Some((header, total)))
}

fn decode_proxied(whole: &[u8], family: u8, header: &mut ProxyHeader) -> Result<(), Violation> {
    let mut rest = Cursor(&whole[FIXED_BYTES..]);
    if family & 0x0f > 2 {
        return Err(malformed("the PROXY header has an unknown transport"));
    }
    let addresses = match family >> 4 {
        // Without a family the end of the addresses is unknown: all the rest is skipped.
        0 => return Ok(()),
        1 => rest.ip_pair::<4>(|octets| IpAddr::V4(Ipv4Addr::from(octets))),
        2 => rest.ip_pair::<16>(|octets| IpAddr::V6(Ipv6Addr::from(octets))),
        3 => rest.unix_pair(),
        _ => return Err(malformed("the PROXY header has an unknown address family")),
    };
    let addresses = addresses.ok_or_else(|| malformed("the PROXY header is too short for its addresses"))?;
    // A datagram's addresses say nothing about the client of this stream; HAProxy keeps the connection's own as well.
    if family & 0x0f == 1 {
        header.addresses = addresses;
    }
    decode_tlvs(whole, rest, header)
}

fn decode_tlvs(whole: &[u8], mut rest: Cursor<'_>, header: &mut ProxyHeader) -> Result<(), Violation> {
    let mut checksum_seen = false;
    while !rest.0.is_empty() {
        let offset = whole.len() - rest.0.len();
        let (kind, value) = rest.tlv()?;
        match kind {
            TLV_AUTHORITY => header.authority = printable(value),
            TLV_CRC32C if checksum_seen => return Err(malformed("the PROXY header has two checksums")),
            TLV_CRC32C => {
                checksum_seen = true;
                check_crc32c(whole, offset + 3, value)?;
            }
            TLV_SSL => header.tls = decode_ssl(value)?,
            _ => {}
        }
    }
    Ok(())
}

/// The checksum covers the whole header with its own four bytes as zeros (spec 2.2.3).
fn check_crc32c(whole: &[u8], offset: usize, value: &[u8]) -> Result<(), Violation> {
    let claimed =
        <[u8; 4]>::try_from(value).map_err(|_| malformed("the PROXY header's checksum has not four bytes"))?;
    let parts = [&whole[..offset], &[0; 4], &whole[offset + 4..]];
    if crc32c(&parts) == u32::from_be_bytes(claimed) {
        return Ok(());
    }
    Err(Violation::rule(
        "proxy_checksum_wrong",
        Culprit::Client,
        "the checksum of the PROXY header does not fit: it was altered on the way",
    ))
}

/// A byte of flags, the result of verification (zero: good), and TLVs of their own (spec 2.2.6).
fn decode_ssl(value: &[u8]) -> Result<Option<ProxyTls>, Violation> {
    let short = || malformed("the PROXY header's TLS part is too short");
    let (flags, rest) = value.split_first().ok_or_else(short)?;
    let (verify, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let certificate_shown = flags & CLIENT_CERT_CONN != 0;
    let mut tls = ProxyTls { client_verified: certificate_shown && *verify == [0; 4], ..ProxyTls::default() };
    let mut rest = Cursor(rest);
    while !rest.0.is_empty() {
        match rest.tlv()? {
            (TLV_SSL_VERSION, value) => tls.version = printable(value),
            (TLV_SSL_CN, value) => tls.common_name = printable(value),
            _ => {}
        }
    }
    Ok((flags & CLIENT_SSL != 0).then_some(tls))
}

/// Text that is safe in a log line, or nothing.
fn printable(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let fits = !text.is_empty() && text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control);
    fits.then(|| text.to_owned())
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*array)
    }

    fn port(&mut self) -> Option<u16> {
        self.array::<2>().map(u16::from_be_bytes)
    }

    /// Source and destination address, then source and destination port.
    fn ip_pair<const N: usize>(&mut self, ip: fn([u8; N]) -> IpAddr) -> Option<ProxyAddresses> {
        let (source, destination) = (ip(self.array()?), ip(self.array()?));
        Some(ProxyAddresses::Ip {
            source: SocketAddr::new(source, self.port()?),
            destination: SocketAddr::new(destination, self.port()?),
        })
    }

    fn unix_pair(&mut self) -> Option<ProxyAddresses> {
        let (source, destination) = (self.array()?, self.array()?);
        Some(ProxyAddresses::Unix { source: unpadded(source), destination: unpadded(destination) })
    }

    fn tlv(&mut self) -> Result<(u8, &'a [u8]), Violation> {
        let cut = || malformed("the PROXY header has a field that runs past its end");
        let [kind, high, low] = self.array().ok_or_else(cut)?;
        let bytes = usize::from(u16::from_be_bytes([high, low]));
        let (value, rest) = self.0.split_at_checked(bytes).ok_or_else(cut)?;
        self.0 = rest;
        Ok((kind, value))
    }
}

fn unpadded(path: [u8; UNIX_PATH_BYTES]) -> Vec<u8> {
    let bytes = path.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    path[..bytes].to_vec()
}
