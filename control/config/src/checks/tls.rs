//! TLS tables. After the relations, the engine builds each context once: what it cannot use is a mistake in the file.

use weir_engine::settings::{
    Address, ClientAuth, NamedCertificate, PLATFORM_CA_FILES, TlsClientSettings, TlsServerSettings,
};
use weir_engine::tls::TlsConfigError;

use crate::checks::{certificates, error_at};
use crate::diagnostic::Span;
use crate::document::At;
use crate::pem::combined;
use crate::reader::Reader;
use crate::sections::{ListenerTlsSection, UpstreamTlsSection};
use crate::texts::Endpoint;

/// TLS towards clients, with the application protocols of the listener if the file names none; `None` if it cannot be used
/// (and that was reported).
pub(super) fn server(
    section: &ListenerTlsSection,
    protocols: &[&str],
    path: &str,
    reader: &mut Reader<'_>,
) -> Option<TlsServerSettings> {
    let auth = &section.client_auth;
    match (auth.value, &section.client_ca_file) {
        (ClientAuth::Off, Some(ca)) => {
            let help = "set client_auth = \"required\" or \"optional\", or remove client_ca_file";
            error_at(ca, path, "client_ca_file", "has no effect while client_auth is \"off\"", help, reader);
        }
        (ClientAuth::Optional | ClientAuth::Required, None) => {
            if !reader.lacks(section.client_ca_file.as_ref(), path, "client_ca_file") {
                return None;
            }
            let help = "add client_ca_file = \"/path/to/ca.crt\", the authority that signs client certificates";
            error_at(auth, path, "client_auth", "needs client_ca_file", help, reader);
            return None;
        }
        _ => (),
    }
    certificates::validity(section.cert_file.as_ref(), path, "cert_file", reader);
    certificates::validity(section.client_ca_file.as_ref(), path, "client_ca_file", reader);
    for (index, one) in section.certificate.iter().enumerate() {
        let path = format!("{path}.certificate[{index}]");
        certificates::validity(one.cert_file.as_ref(), &path, "cert_file", reader);
        certificates::names(one, &path, reader);
    }
    let (cert, key) = (section.cert_file.as_ref()?, section.key_file.as_ref()?);
    let client_ca = section.client_ca_file.as_ref().map(|ca| &ca.value);
    let alpn = match &section.alpn {
        Some(list) => list.value.iter().map(|name| name.value.0.clone()).collect(),
        None => protocols.iter().map(|&name| name.to_owned()).collect(),
    };
    let mut digests = vec![cert.value.digest, key.value.digest, client_ca.map_or(0, |ca| ca.digest)];
    let mut certificates = Vec::new();
    for one in &section.certificate {
        let (Some(cert), Some(key)) = (&one.cert_file, &one.key_file) else { continue };
        digests.extend([cert.value.digest, key.value.digest]);
        certificates.push(NamedCertificate {
            names: one.names.iter().flat_map(|list| &list.value).map(|name| name.value.0.clone()).collect(),
            cert_file: cert.value.path.clone(),
            key_file: key.value.path.clone(),
        });
    }
    let settings = TlsServerSettings {
        certificates,
        cert_file: cert.value.path.clone(),
        key_file: key.value.path.clone(),
        client_ca_file: client_ca.map(|ca| ca.path.clone()),
        client_auth: auth.value,
        handshake_timeout: section.handshake_timeout.value.0,
        alpn,
        files_digest: combined(&digests),
    };
    if let Err(error) = reader.surroundings.tls_server(&settings) {
        let places: [(&str, Option<&Span>); 4] = [
            ("cert_file", Some(&cert.span)),
            ("key_file", Some(&key.span)),
            ("client_ca_file", section.client_ca_file.as_ref().map(|ca| &ca.span)),
            ("alpn", section.alpn.as_ref().map(|alpn| &alpn.span)),
        ];
        engine_error(&error, &places, &section.place.0, path, reader);
    }
    Some(settings)
}

/// TLS towards an upstream.
pub(crate) fn client(
    section: &UpstreamTlsSection,
    endpoints: &[At<Endpoint>],
    path: &str,
    reader: &mut Reader<'_>,
) -> TlsClientSettings {
    let both_or_none = check_pair(section, path, reader);
    certificates::validity(section.ca_file.as_ref(), path, "ca_file", reader);
    certificates::validity(section.cert_file.as_ref(), path, "cert_file", reader);
    check_verification(section, path, reader);
    let unix = endpoints.iter().find(|endpoint| matches!(endpoint.value.0, Address::Unix(_)));
    if let (Some(_), None, false) = (unix, &section.server_name, section.insecure_skip_verify.value) {
        let message = format!("`{path}`: a Unix socket has no host name to verify");
        reader.problems.error(&section.place.0, path, message, "add server_name, the name in the server's certificate");
    }
    let files = [
        section.ca_file.as_ref().map(|file| &file.value.digest),
        section.cert_file.as_ref().map(|file| &file.value.digest),
        section.key_file.as_ref().map(|file| &file.value.digest),
    ];
    let settings = TlsClientSettings {
        ca_file: section.ca_file.as_ref().map(|file| file.value.path.clone()),
        cert_file: section.cert_file.as_ref().map(|file| file.value.path.clone()),
        key_file: section.key_file.as_ref().map(|file| file.value.path.clone()),
        server_name: section.server_name.as_ref().map(|name| name.value.0.clone()),
        insecure_skip_verify: section.insecure_skip_verify.value,
        handshake_timeout: section.handshake_timeout.value.0,
        // The protocol of the upstream says.
        alpn: Vec::new(),
        files_digest: combined(&files.map(|digest| digest.copied().unwrap_or(0))),
    };
    if both_or_none && let Err(error) = reader.surroundings.tls_client(&settings) {
        let places: [(&str, Option<&Span>); 4] = [
            ("ca_file", section.ca_file.as_ref().map(|file| &file.span)),
            ("cert_file", section.cert_file.as_ref().map(|file| &file.span)),
            ("key_file", section.key_file.as_ref().map(|file| &file.span)),
            ("server_name", section.server_name.as_ref().map(|name| &name.span)),
        ];
        engine_error(&error, &places, &section.place.0, path, reader);
    }
    settings
}

/// A certificate without its key, or the other way round.
fn check_pair(section: &UpstreamTlsSection, path: &str, reader: &mut Reader<'_>) -> bool {
    match (&section.cert_file, &section.key_file) {
        (Some(_), None) if !reader.lacks(section.key_file.as_ref(), path, "key_file") => false,
        (None, Some(_)) if !reader.lacks(section.cert_file.as_ref(), path, "cert_file") => false,
        (Some(cert), None) => {
            error_at(cert, path, "cert_file", "needs key_file", "add key_file with the private key", reader);
            false
        }
        (None, Some(key)) => {
            error_at(key, path, "key_file", "needs cert_file", "add cert_file with the certificate", reader);
            false
        }
        _ => true,
    }
}

/// Verification that is requested and switched off at once, or switched off at all.
fn check_verification(section: &UpstreamTlsSection, path: &str, reader: &mut Reader<'_>) {
    let skip = &section.insecure_skip_verify;
    if !skip.value {
        return;
    }
    if let Some(ca) = &section.ca_file {
        let help = "remove insecure_skip_verify; with ca_file it is not needed";
        error_at(ca, path, "ca_file", "has no effect while insecure_skip_verify is true", help, reader);
        return;
    }
    let path = format!("{path}.insecure_skip_verify");
    let message = "the upstream's certificate is not verified: anyone on the path can read the traffic".to_owned();
    let help = format!("set ca_file instead (without it, the platform's bundle applies: {})", PLATFORM_CA_FILES[0]);
    reader.problems.warning(&skip.span, &path, message, help);
}

/// Puts what the engine says at the key that it names.
fn engine_error(
    error: &TlsConfigError,
    places: &[(&str, Option<&Span>)],
    table: &Span,
    path: &str,
    reader: &mut Reader<'_>,
) {
    let place = places.iter().find(|(setting, _)| *setting == error.setting).and_then(|(_, span)| *span);
    let path = format!("{path}.{}", error.setting);
    let message = match &error.file {
        Some(file) => format!("`{path}`: {}: {}", file.display(), error.what),
        None => format!("`{path}`: {}", error.what),
    };
    reader.problems.error(place.unwrap_or(table), &path, message, error.remedy);
}
