//! The TLS connection below an exchange.

use std::fmt;

use aws_lc_rs::digest;

/// The TLS connection below an exchange, as far as an exchange can be bound to it.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum ChannelBinding {
    /// Nothing: no TLS, or a certificate without a hash (RFC 5929 leaves some undefined).
    #[default]
    None,
    /// `tls-server-end-point` of RFC 5929: the hash of the server's certificate.
    TlsServerEndPoint(Vec<u8>),
}

impl ChannelBinding {
    /// The binding of a server's certificate in DER (RFC 5929, section 4.1): its hash with the algorithm of its signature, or
    /// with SHA-256 if that is MD5 or SHA-1. Nothing for a signature with another hash, or none (Ed25519): PLUS is not offered
    /// then.
    #[must_use]
    pub fn of_certificate(der: &[u8]) -> ChannelBinding {
        let hash = signature_algorithm(der).and_then(|algorithm| {
            let (_, hash) = SIGNATURES.iter().find(|(known, _)| *known == algorithm)?;
            Some(digest::digest(hash, der).as_ref().to_vec())
        });
        hash.map_or(ChannelBinding::None, ChannelBinding::TlsServerEndPoint)
    }

    /// Whether there is something to bind to.
    #[must_use]
    pub const fn is_available(&self) -> bool {
        matches!(self, ChannelBinding::TlsServerEndPoint(_))
    }

    /// The hash of the certificate, or nothing.
    pub(crate) fn data(&self) -> &[u8] {
        match self {
            ChannelBinding::None => b"",
            ChannelBinding::TlsServerEndPoint(hash) => hash,
        }
    }
}

impl fmt::Debug for ChannelBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_available() { "TlsServerEndPoint" } else { "None" })
    }
}

/// Object identifiers of signatures, as they are in DER, with the hash of the binding.
const SIGNATURES: [(&[u8], &digest::Algorithm); 10] = [
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x04", &digest::SHA256), // md5WithRSAEncryption
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05", &digest::SHA256), // sha1WithRSAEncryption
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b", &digest::SHA256), // sha256WithRSAEncryption
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c", &digest::SHA384), // sha384WithRSAEncryption
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d", &digest::SHA512), // sha512WithRSAEncryption
    (b"\x2a\x86\x48\xce\x3d\x04\x01", &digest::SHA256),         // ecdsa-with-SHA1
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x01", &digest::SHA224),     // ecdsa-with-SHA224
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x02", &digest::SHA256),     // ecdsa-with-SHA256
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x03", &digest::SHA384),     // ecdsa-with-SHA384
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x04", &digest::SHA512),     // ecdsa-with-SHA512
];

/// The object identifier of a certificate's signature: `SEQUENCE { tbsCertificate, SEQUENCE { identifier, .. }, .. }`.
fn signature_algorithm(der: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    const IDENTIFIER: u8 = 0x06;
    let (certificate, _) = element(der, SEQUENCE)?;
    let (_, behind) = element(certificate, SEQUENCE)?;
    let (algorithm, _) = element(behind, SEQUENCE)?;
    element(algorithm, IDENTIFIER).map(|(identifier, _)| identifier)
}

/// The content of the element of DER at the front, and the bytes behind it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    (found == tag).then(|| rest.split_at_checked(length)).flatten()
}

/// The channel binding that a client announces in its first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gs2 {
    /// `n`: the client has none.
    Unsupported,
    /// `y`: the client has it, but the server offered none.
    NotOffered,
    /// `p=tls-server-end-point`: the exchange is bound.
    Bound,
}

impl Gs2 {
    /// The header at the beginning of a client's first message, and of the input of its `c` attribute.
    pub(crate) const fn header(self) -> &'static [u8] {
        match self {
            Gs2::Unsupported => b"n,,",
            Gs2::NotOffered => b"y,,",
            Gs2::Bound => b"p=tls-server-end-point,,",
        }
    }

    /// The value of the `c` attribute before base64.
    pub(crate) fn input(self, binding: &ChannelBinding) -> Vec<u8> {
        let data = if matches!(self, Gs2::Bound) { binding.data() } else { b"" };
        [self.header(), data].concat()
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::digest::{Algorithm, SHA256, SHA384, SHA512, digest};
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, SignatureAlgorithm};

    use super::*;

    fn certificate(algorithm: &'static SignatureAlgorithm) -> Vec<u8> {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.self_signed(&key).expect("a certificate").der().to_vec()
    }

    #[test]
    fn the_hash_is_that_of_the_signature() {
        let cases: [(&SignatureAlgorithm, Option<&Algorithm>); 4] = [
            (&rcgen::PKCS_ECDSA_P256_SHA256, Some(&SHA256)),
            (&rcgen::PKCS_ECDSA_P384_SHA384, Some(&SHA384)),
            (&rcgen::PKCS_ECDSA_P521_SHA512, Some(&SHA512)),
            (&rcgen::PKCS_ED25519, None),
        ];
        for (algorithm, hash) in cases {
            let der = certificate(algorithm);
            let expected = hash.map(|hash| ChannelBinding::TlsServerEndPoint(digest(hash, &der).as_ref().to_vec()));
            assert_eq!(ChannelBinding::of_certificate(&der), expected.unwrap_or_default());
        }
    }

    proptest! {
        #[test]
        fn bytes_that_are_no_certificate_have_no_hash(bytes: Vec<u8>, cut in 0_usize..100) {
            prop_assert_eq!(ChannelBinding::of_certificate(&bytes), ChannelBinding::None);
            let der = certificate(&rcgen::PKCS_ECDSA_P256_SHA256);
            prop_assert_eq!(ChannelBinding::of_certificate(&der[..der.len() - 1 - cut]), ChannelBinding::None);
        }
    }
}
