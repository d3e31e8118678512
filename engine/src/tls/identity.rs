//! Who the peer says it is: the names in its certificate, for logs and policy.
//!
//! A reader of the few DER fields that hold names (X.509: RFC 5280 sections 4.1 and 4.2.1.6). It judges nothing: rustls
//! has parsed and verified the certificate before. It is iterative, borrows the input, and gives up on anything odd.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use aws_lc_rs::digest::{SHA256, digest};

/// Names kept from one certificate. Default 32: a workload certificate has one to five; a certificate that
/// serves hundreds of sites still identifies by its first ones.
const NAMES_MAX: usize = 32;

/// Bytes of one name. Default 255: the longest DNS name; SPIFFE allows 2,048 for an id, in practice below 200.
const NAME_BYTES_MAX: usize = 255;

const TAG_BOOLEAN: u8 = 0x01;
const TAG_OCTET_STRING: u8 = 0x04;
const TAG_OBJECT_ID: u8 = 0x06;
const TAG_UTF8_STRING: u8 = 0x0c;
const TAG_PRINTABLE_STRING: u8 = 0x13;
const TAG_IA5_STRING: u8 = 0x16;
const TAG_SEQUENCE: u8 = 0x30;
const TAG_SET: u8 = 0x31;
/// `[0]` in TBSCertificate: the version.
const TAG_VERSION: u8 = 0xa0;
/// `[3]` in TBSCertificate: the extensions.
const TAG_EXTENSIONS: u8 = 0xa3;
/// GeneralName: rfc822Name `[1]`, dNSName `[2]`, uniformResourceIdentifier `[6]`, iPAddress `[7]`.
const TAG_NAME_EMAIL: u8 = 0x81;
const TAG_NAME_DNS: u8 = 0x82;
const TAG_NAME_URI: u8 = 0x86;
const TAG_NAME_IP: u8 = 0x87;

/// id-at-commonName, 2.5.4.3.
const OID_COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// id-ce-subjectAltName, 2.5.29.17.
const OID_SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// Names from a verified certificate. Only names made of visible ASCII or other letters are kept (no control
/// characters), so they are safe in a log line.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PeerIdentity {
    /// The subject's common name (the last one, which is the most specific).
    pub common_name: Option<String>,
    /// Subject alternative names: DNS names, URIs (SPIFFE ids), email addresses and IP addresses, at most 32.
    pub alt_names: Vec<String>,
    /// SHA-256 of the certificate in DER.
    pub sha256: [u8; 32],
}

impl PeerIdentity {
    /// Reads the names of a DER certificate; whatever cannot be read is left out.
    pub(super) fn from_der(certificate: &[u8]) -> Self {
        let mut identity = Self::default();
        let _ = read_certificate(certificate, &mut identity);
        identity.sha256.copy_from_slice(digest(&SHA256, certificate).as_ref());
        identity
    }

    /// True if `name` is the common name or one of the alternative names, compared byte by byte.
    pub fn has_name(&self, name: &str) -> bool {
        self.common_name.as_deref() == Some(name) || self.alt_names.iter().any(|alt| alt == name)
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.common_name, self.alt_names.first()) {
            (Some(name), _) => write!(f, "CN={name}"),
            (None, Some(name)) => write!(f, "SAN={name}"),
            (None, None) => f.write_str("unnamed"),
        }
    }
}

/// Certificate ::= SEQUENCE { tbsCertificate, .. }; TBSCertificate ::= SEQUENCE { [0] version OPTIONAL, serialNumber,
/// signature, issuer, validity, subject, subjectPublicKeyInfo, .., [3] extensions OPTIONAL }
fn read_certificate(certificate: &[u8], identity: &mut PeerIdentity) -> Option<()> {
    let mut outer = Der(Der(certificate).expect(TAG_SEQUENCE)?);
    let mut fields = Der(outer.expect(TAG_SEQUENCE)?);
    if fields.peek() == Some(TAG_VERSION) {
        fields.next()?;
    }
    for _ in ["serialNumber", "signature", "issuer", "validity"] {
        fields.next()?;
    }
    read_subject(fields.expect(TAG_SEQUENCE)?, identity);
    while let Some((tag, content)) = fields.next() {
        if tag == TAG_EXTENSIONS {
            read_extensions(Der(content).expect(TAG_SEQUENCE)?, identity);
        }
    }
    Some(())
}

/// Name ::= SEQUENCE OF SET OF SEQUENCE { type OBJECT IDENTIFIER, value ANY }
fn read_subject(subject: &[u8], identity: &mut PeerIdentity) -> Option<()> {
    let mut sets = Der(subject);
    while let Some((TAG_SET, set)) = sets.next() {
        let mut attributes = Der(set);
        while let Some((TAG_SEQUENCE, attribute)) = attributes.next() {
            let mut attribute = Der(attribute);
            let is_common_name = attribute.expect(TAG_OBJECT_ID)? == OID_COMMON_NAME;
            let (tag, value) = attribute.next()?;
            if is_common_name && matches!(tag, TAG_UTF8_STRING | TAG_PRINTABLE_STRING | TAG_IA5_STRING) {
                identity.common_name = printable(value);
            }
        }
    }
    Some(())
}

/// Extensions ::= SEQUENCE OF SEQUENCE { id OBJECT IDENTIFIER, critical BOOLEAN DEFAULT FALSE, value OCTET STRING }
fn read_extensions(extensions: &[u8], identity: &mut PeerIdentity) -> Option<()> {
    let mut extensions = Der(extensions);
    while let Some((TAG_SEQUENCE, extension)) = extensions.next() {
        let mut extension = Der(extension);
        if extension.expect(TAG_OBJECT_ID)? != OID_SUBJECT_ALT_NAME {
            continue;
        }
        if extension.peek() == Some(TAG_BOOLEAN) {
            extension.next()?;
        }
        let mut names = Der(Der(extension.expect(TAG_OCTET_STRING)?).expect(TAG_SEQUENCE)?);
        while let Some((tag, value)) = names.next() {
            if identity.alt_names.len() == NAMES_MAX {
                return Some(());
            }
            identity.alt_names.extend(general_name(tag, value));
        }
    }
    Some(())
}

fn general_name(tag: u8, value: &[u8]) -> Option<String> {
    match tag {
        TAG_NAME_DNS | TAG_NAME_URI | TAG_NAME_EMAIL => printable(value),
        TAG_NAME_IP => match value.len() {
            4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?).to_string()),
            16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).to_string()),
            _ => None,
        },
        _ => None,
    }
}

fn printable(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let fits = !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control);
    fits.then(|| text.to_owned())
}

/// A cursor over DER elements (X.690 section 8.1): one-byte tags and definite lengths, all that X.509 uses.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x83 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    fn certificate(names: Vec<SanType>, common_name: &str) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names;
        params.distinguished_name.push(DnType::OrganizationName, "Weir");
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn names_of_every_kind_are_read() {
        let names = vec![
            SanType::DnsName("a.example".try_into().unwrap()),
            SanType::URI("spiffe://prod/ns/cache/sa/app".try_into().unwrap()),
            SanType::Rfc822Name("ops@example.org".try_into().unwrap()),
            SanType::IpAddress("10.1.2.3".parse().unwrap()),
            SanType::IpAddress("fd00::1".parse().unwrap()),
        ];
        let identity = PeerIdentity::from_der(&certificate(names, "app-1"));
        assert_eq!(identity.common_name.as_deref(), Some("app-1"));
        let expected = ["a.example", "spiffe://prod/ns/cache/sa/app", "ops@example.org", "10.1.2.3", "fd00::1"];
        assert_eq!(identity.alt_names, expected);
        assert!(identity.has_name("app-1") && identity.has_name("fd00::1") && !identity.has_name("app"));
        assert_eq!(identity.to_string(), "CN=app-1");
    }

    #[test]
    fn a_name_with_control_characters_is_left_out() {
        let identity = PeerIdentity::from_der(&certificate(vec![], "app\nlevel=error"));
        assert_eq!(identity, PeerIdentity { sha256: identity.sha256, ..PeerIdentity::default() });
        assert_eq!(identity.to_string(), "unnamed");
    }

    #[test]
    fn names_are_bounded_in_number() {
        let names = (0..100).map(|i| SanType::DnsName(format!("h{i}.example").try_into().unwrap())).collect();
        assert_eq!(PeerIdentity::from_der(&certificate(names, "many")).alt_names.len(), NAMES_MAX);
    }

    #[test]
    fn a_damaged_certificate_never_panics() {
        let names = vec![SanType::DnsName("a.example".try_into().unwrap())];
        let good = certificate(names, "app-1");
        for cut in 0..good.len() {
            PeerIdentity::from_der(&good[..cut]);
            let mut bad = good.clone();
            for value in [0x00, 0x7f, 0x80, 0x84, 0xff] {
                bad[cut] = value;
                PeerIdentity::from_der(&bad);
            }
        }
    }
}
