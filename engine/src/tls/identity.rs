//! Identity of the peer: the names in its certificate, for logs and policy.
//!
//! A reader of the few DER fields that hold names (X.509: RFC 5280 sections 4.1 and 4.2.1.6). It judges nothing: rustls
//! has parsed and verified the certificate before. It is iterative, borrows the input, and gives up on anything odd.

use std::fmt;
use std::net::IpAddr;

use aws_lc_rs::digest::{SHA256, digest};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};

/// Names kept from one certificate. Default 32: a workload certificate has one to five; a certificate that
/// serves hundreds of sites still identifies by its first ones.
pub const ALT_NAMES_MAX: usize = 32;

/// Bytes of one name. Default 255: the longest DNS name; SPIFFE allows 2,048 for an id, in practice below 200.
const NAME_BYTES_MAX: usize = 255;

const TAG_BOOLEAN: u8 = 0x01;
const TAG_OCTET_STRING: u8 = 0x04;
const TAG_INTEGER: u8 = 0x02;
const TAG_OBJECT_ID: u8 = 0x06;
const TAG_UTF8_STRING: u8 = 0x0c;
const TAG_PRINTABLE_STRING: u8 = 0x13;
const TAG_IA5_STRING: u8 = 0x16;
const TAG_UTC_TIME: u8 = 0x17;
const TAG_GENERALIZED_TIME: u8 = 0x18;
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

/// Attributes of a name by their short words (RFC 4514 section 3, and emailAddress as RFC 2253 users write it).
const ATTRIBUTES: &[(&[u8], &str)] = &[
    (OID_COMMON_NAME, "CN"),
    (&[0x55, 0x04, 0x05], "serialNumber"),
    (&[0x55, 0x04, 0x06], "C"),
    (&[0x55, 0x04, 0x07], "L"),
    (&[0x55, 0x04, 0x08], "ST"),
    (&[0x55, 0x04, 0x09], "street"),
    (&[0x55, 0x04, 0x0a], "O"),
    (&[0x55, 0x04, 0x0b], "OU"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x01], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x19], "DC"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x01], "emailAddress"),
];

/// One of the subject's alternative names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AltName {
    /// A host name.
    Dns(String),
    /// A URI, such as a SPIFFE id.
    Uri(String),
    /// An email address.
    Email(String),
    /// An address of the Internet protocol.
    Ip(IpAddr),
}

impl fmt::Display for AltName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) | Self::Uri(name) | Self::Email(name) => f.write_str(name),
            Self::Ip(address) => address.fmt(f),
        }
    }
}

/// Names in a verified certificate. Only texts made of visible ASCII or other letters are kept (no control
/// characters), so they are safe in a log line.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PeerIdentity {
    /// The subject's common name (the last one, which is the most specific).
    pub common_name: Option<String>,
    /// The subject as RFC 2253 writes it, the most specific part first; `None` if a part of it cannot be written.
    pub subject: Option<String>,
    /// The issuer likewise.
    pub issuer: Option<String>,
    /// The serial number, in hexadecimal.
    pub serial: String,
    /// When it begins and ends to be valid (RFC 3339, UTC).
    pub validity: Option<(String, String)>,
    /// Subject alternative names, at most 32.
    pub alt_names: Vec<AltName>,
    /// SHA-256 of the certificate in DER.
    pub sha256: [u8; 32],
    /// The certificate in DER.
    pub certificate: Box<[u8]>,
}

impl PeerIdentity {
    /// Reads a DER certificate; whatever cannot be read is left out.
    pub(super) fn from_der(certificate: &[u8]) -> Self {
        let mut identity = Self { certificate: certificate.into(), ..Self::default() };
        let _ = read_certificate(certificate, &mut identity);
        identity.sha256.copy_from_slice(digest(&SHA256, certificate).as_ref());
        identity
    }

    /// [`PeerIdentity::sha256`] in hexadecimal, as proxies and openssl name certificates.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        hexadecimal(&self.sha256)
    }
}

/// Names in the certificates of a PEM file, in their order; unreadable ones are left out. Nothing is verified.
#[must_use]
pub fn identities(pem: &[u8]) -> Vec<PeerIdentity> {
    let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
    certificates.map(|certificate| PeerIdentity::from_der(&certificate)).collect()
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
    let serial = fields.expect(TAG_INTEGER)?;
    // A zero in front says that the number is positive (X.690 section 8.3).
    let serial = serial.strip_prefix(&[0]).filter(|rest| !rest.is_empty()).unwrap_or(serial);
    identity.serial = hexadecimal(serial);
    let _signature = fields.next()?;
    identity.issuer = distinguished_name(fields.expect(TAG_SEQUENCE)?);
    let mut validity = Der(fields.expect(TAG_SEQUENCE)?);
    identity.validity = validity.time().zip(validity.time());
    let subject = fields.expect(TAG_SEQUENCE)?;
    identity.subject = distinguished_name(subject);
    identity.common_name = common_name(subject);
    while let Some((tag, content)) = fields.next() {
        if tag == TAG_EXTENSIONS {
            read_extensions(Der(content).expect(TAG_SEQUENCE)?, identity);
        }
    }
    Some(())
}

/// One attribute of a name.
struct Attribute<'a> {
    kind: &'a [u8],
    /// `None`: it is no text, or none that can be shown.
    value: Option<String>,
    /// The value in DER.
    der: &'a [u8],
    is_first_of_set: bool,
}

/// Name ::= SEQUENCE OF SET OF SEQUENCE { type OBJECT IDENTIFIER, value ANY }
fn attributes(name: &[u8]) -> Option<Vec<Attribute<'_>>> {
    let mut sets = Der(name);
    let mut found = Vec::new();
    while let Some((TAG_SET, set)) = sets.next() {
        let mut attributes = Der(set);
        let mut is_first_of_set = true;
        while let Some((TAG_SEQUENCE, attribute)) = attributes.next() {
            let mut attribute = Der(attribute);
            let kind = attribute.expect(TAG_OBJECT_ID)?;
            let before = attribute.0;
            let (tag, value) = attribute.next()?;
            let der = &before[..before.len() - attribute.0.len()];
            let is_text = matches!(tag, TAG_UTF8_STRING | TAG_PRINTABLE_STRING | TAG_IA5_STRING);
            found.push(Attribute { kind, value: if is_text { printable(value) } else { None }, der, is_first_of_set });
            is_first_of_set = false;
            if found.len() > ALT_NAMES_MAX {
                return None;
            }
        }
    }
    Some(found)
}

fn common_name(name: &[u8]) -> Option<String> {
    let attributes = attributes(name)?;
    attributes.into_iter().rfind(|attribute| attribute.kind == OID_COMMON_NAME)?.value
}

/// A name in the words of RFC 2253 section 2; `None` if a part of it has none.
fn distinguished_name(name: &[u8]) -> Option<String> {
    let mut sets: Vec<String> = Vec::new();
    for Attribute { kind, value, der, is_first_of_set } in attributes(name)? {
        let known = ATTRIBUTES.iter().find(|(known, _)| *known == kind);
        let attribute = match (known, value) {
            (Some((_, word)), Some(value)) => format!("{word}={}", escaped(&value)),
            _ if der.len() > NAME_BYTES_MAX => return None,
            (Some((_, word)), None) => format!("{word}=#{}", hexadecimal(der)),
            (None, _) => format!("{}=#{}", dotted(kind), hexadecimal(der)),
        };
        match sets.last_mut() {
            Some(set) if !is_first_of_set => *set = format!("{set}+{attribute}"),
            _ => sets.push(attribute),
        }
    }
    sets.reverse();
    (!sets.is_empty()).then(|| sets.join(","))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An object identifier in digits and points (X.690 section 8.19).
fn dotted(identifier: &[u8]) -> String {
    let (mut text, mut number, mut is_first) = (String::new(), 0_u64, true);
    for byte in identifier {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if std::mem::take(&mut is_first) {
            let root = (number / 40).min(2);
            text = format!("{root}.{}", number - 40 * root);
        } else {
            text.push_str(&format!(".{number}"));
        }
        number = 0;
    }
    text
}

/// RFC 2253 section 2.4.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let last = value.chars().count() - 1;
    for (at, letter) in value.chars().enumerate() {
        let is_special = matches!(letter, ',' | '+' | '"' | '\\' | '<' | '>' | ';');
        if is_special || (at == 0 && matches!(letter, '#' | ' ')) || (at == last && letter == ' ') {
            text.push('\\');
        }
        text.push(letter);
    }
    text
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
            if identity.alt_names.len() == ALT_NAMES_MAX {
                return Some(());
            }
            identity.alt_names.extend(general_name(tag, value));
        }
    }
    Some(())
}

fn general_name(tag: u8, value: &[u8]) -> Option<AltName> {
    match tag {
        TAG_NAME_DNS => printable(value).map(AltName::Dns),
        TAG_NAME_URI => printable(value).map(AltName::Uri),
        TAG_NAME_EMAIL => printable(value).map(AltName::Email),
        TAG_NAME_IP => match value.len() {
            4 => Some(AltName::Ip(<[u8; 4]>::try_from(value).ok()?.into())),
            16 => Some(AltName::Ip(<[u8; 16]>::try_from(value).ok()?.into())),
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

    /// A Time (RFC 5280 section 4.1.2.5), in RFC 3339's form.
    fn time(&mut self) -> Option<String> {
        let (tag, digits) = self.next()?;
        let text = std::str::from_utf8(digits).ok()?.strip_suffix('Z')?;
        let text = match tag {
            TAG_UTC_TIME if text < "5" => format!("20{text}"),
            TAG_UTC_TIME => format!("19{text}"),
            TAG_GENERALIZED_TIME => text.to_owned(),
            _ => return None,
        };
        let is_whole = text.len() == 14 && text.bytes().all(|byte| byte.is_ascii_digit());
        let part = |from, to| is_whole.then(|| &text[from..to]);
        Some(format!(
            "{}-{}-{}T{}:{}:{}Z",
            part(0, 4)?,
            part(4, 6)?,
            part(6, 8)?,
            part(8, 10)?,
            part(10, 12)?,
            part(12, 14)?
        ))
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
        let expected = [
            AltName::Dns("a.example".into()),
            AltName::Uri("spiffe://prod/ns/cache/sa/app".into()),
            AltName::Email("ops@example.org".into()),
            AltName::Ip("10.1.2.3".parse().unwrap()),
            AltName::Ip("fd00::1".parse().unwrap()),
        ];
        assert_eq!(identity.alt_names, expected);
        assert_eq!(identity.to_string(), "CN=app-1");
    }

    #[test]
    fn subject_issuer_serial_and_validity_are_written_as_rfc_2253_and_3339_have_them() {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CountryName, "NL");
        params.distinguished_name.push(DnType::OrganizationName, "Sluice, \"Weir\" + Sons ");
        params.distinguished_name.push(DnType::CommonName, "#1");
        params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 97]), "NL-1");
        params.serial_number = Some(vec![0x0a, 0xff].into());
        params.not_before = rcgen::date_time_ymd(2024, 2, 29);
        params.not_after = rcgen::date_time_ymd(2051, 1, 2);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let identity = PeerIdentity::from_der(certificate.der());
        let name = r##"2.5.4.97=#0c044e4c2d31,CN=\#1,O=Sluice\, \"Weir\" \+ Sons\ ,C=NL"##;
        assert_eq!(identity.subject.as_deref(), Some(name));
        assert_eq!(identity.issuer.as_deref(), Some(name));
        assert_eq!(identity.serial, "0aff");
        let validity = identity.validity.as_ref().map(|(from, to)| (&**from, &**to));
        assert_eq!(validity, Some(("2024-02-29T00:00:00Z", "2051-01-02T00:00:00Z")));
        assert_eq!(&*identity.certificate, &**certificate.der());
    }

    #[test]
    fn a_name_with_control_characters_is_left_out() {
        let identity = PeerIdentity::from_der(&certificate(vec![], "app\nlevel=error"));
        assert_eq!(identity.common_name, None);
        let subject = identity.subject.as_deref().expect("what cannot be shown as text is shown in hexadecimal");
        assert!(subject.contains("CN=#0c0f6170700a6c65"), "{subject}");
        assert_eq!(identity.to_string(), "unnamed");
    }

    #[test]
    fn names_are_bounded_in_number() {
        let names = (0..100).map(|i| SanType::DnsName(format!("h{i}.example").try_into().unwrap())).collect();
        assert_eq!(PeerIdentity::from_der(&certificate(names, "many")).alt_names.len(), ALT_NAMES_MAX);
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
