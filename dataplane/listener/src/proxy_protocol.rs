//! PROXY protocol, versions 1 and 2: the addresses of the real client, from a load balancer in front of us.
//!
//! Source: HAProxy's `doc/proxy-protocol.txt` (revision of 2025); sections are cited as "spec 2.1". Sans-IO and
//! incremental: [`decode`] wants the bytes from the start of the connection again with more of them, until it gives a
//! header and its length. A listener expects a header only from a peer that is trusted to send one: any client that
//! sends one may claim any address.
//!
//! Limits: version 1 is at most [`V1_BYTES_MAX`], version 2 at most
//! [`PROXY_HEADER_BYTES_MAX`](weir_base::limits::PROXY_HEADER_BYTES_MAX). The deadline for the whole header belongs to
//! the listener.

use std::net::SocketAddr;

use weir_base::{Culprit, Violation};

use crate::settings::ProxyProtocol;

mod crc32c;
mod encode;
#[cfg(test)]
mod tests;
mod v1;
mod v2;

pub use v1::V1_BYTES_MAX;

/// A decoded header. The client of a [`Local`](ProxyCommand::Local) header or of [`ProxyAddresses::Unknown`] is
/// the peer of the connection itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Version that the header was written in.
    pub version: ProxyVersion,
    /// Whose connection it is.
    pub command: ProxyCommand,
    /// Both ends of the client's connection.
    pub addresses: ProxyAddresses,
    /// Host name that the client requested (SNI or `Host`), from TLV 0x02; at most 255 bytes, printable.
    pub authority: Option<String>,
    /// How the client's connection was encrypted, from TLV 0x20; `None` if it was not or the header does not say.
    pub tls: Option<ProxyTls>,
}

impl ProxyHeader {
    /// The client's IP address and port, where the header has one.
    pub fn client(&self) -> Option<SocketAddr> {
        match self.addresses {
            ProxyAddresses::Ip { source, .. } => Some(source),
            ProxyAddresses::Unix { .. } | ProxyAddresses::Unknown => None,
        }
    }
}

/// Version of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyVersion {
    /// Text, spec 2.1.
    V1,
    /// Binary, spec 2.2.
    V2,
}

/// Whose connection a header announces (spec 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyCommand {
    /// The load balancer's own, mostly a health check. Its header carries nothing else.
    Local,
    /// A client's.
    Proxy,
}

/// Both ends of the client's connection.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum ProxyAddresses {
    /// Not given, not of a kind that this protocol knows, or not of a stream.
    #[default]
    Unknown,
    /// IPv4 or IPv6, both ends of one family.
    Ip {
        /// The client.
        source: SocketAddr,
        /// The address that the client connected to.
        destination: SocketAddr,
    },
    /// Unix sockets: raw paths without the padding, empty if unnamed, starting with a zero byte if abstract.
    Unix {
        /// The client.
        source: Vec<u8>,
        /// The path that the client connected to.
        destination: Vec<u8>,
    },
}

/// The client's TLS connection as the load balancer saw it (spec 2.2.6).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ProxyTls {
    /// The client showed a certificate over this connection, and it was verified without an error.
    pub client_verified: bool,
    /// Protocol version, such as `TLSv1.3`; at most 255 bytes, printable.
    pub version: Option<String>,
    /// Common name in the client's certificate; at most 255 bytes, printable.
    pub common_name: Option<String>,
}

/// Decodes a header from the first bytes of a connection. `None`: more bytes are needed, and the same ones are to be
/// passed again. Else the header and its length; the protocol proper begins right after it. Not to be called where
/// `accept` is [`ProxyProtocol::Off`]: it takes no header at all.
///
/// # Errors
/// The peer sent no header, one of a version that `accept` excludes, one past the limits, or a malformed one: the
/// connection is to be closed without a response (spec 4, "must be rejected").
pub fn decode(input: &[u8], accept: ProxyProtocol) -> Result<Option<(ProxyHeader, usize)>, Violation> {
    if input.is_empty() {
        Ok(None)
    } else if starts_like(input, v1::PREFIX) {
        accepted(matches!(accept, ProxyProtocol::V1 | ProxyProtocol::Any), "version 1")?;
        v1::decode(input)
    } else if starts_like(input, v2::SIGNATURE) {
        accepted(matches!(accept, ProxyProtocol::V2 | ProxyProtocol::Any), "version 2")?;
        v2::decode(input)
    } else {
        Err(Violation::rule(
            "proxy_header_missing",
            Culprit::Client,
            "the connection does not start with a PROXY header; make the load balancer send one, or remove \
             proxy_protocol from the listener",
        ))
    }
}

/// True as long as `input` may still become something that starts with `prefix`.
fn starts_like(input: &[u8], prefix: &[u8]) -> bool {
    let common = input.len().min(prefix.len());
    input[..common] == prefix[..common]
}

fn accepted(accepted: bool, version: &str) -> Result<(), Violation> {
    if accepted {
        return Ok(());
    }
    let text = format!("the PROXY header is {version}, which this listener does not take; see proxy_protocol");
    Err(Violation::rule("proxy_version_not_accepted", Culprit::Client, text))
}

fn malformed(what: &'static str) -> Violation {
    Violation::rule("proxy_header_malformed", Culprit::Client, what)
}

fn too_long(what: &'static str, bytes: usize, bytes_max: usize) -> Violation {
    Violation::limit("proxy_header_too_long", Culprit::Client, what, bytes as u64, bytes_max as u64)
}
