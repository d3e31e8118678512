//! From settings and PEM files to rustls configurations. Every error names the file and what to do about it.
//!
//! Built once per listener or upstream by the control thread, then shared by the workers. Session tickets and
//! caches belong to one configuration and die with it: a ticket from a listener, or from a time, with other client
//! authorities must not be good here, as resumption skips the certificates.

use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::{ClientSessionMemoryCache, Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, ResolvesServerCert, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, Error, InconsistentKeys, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use weir_base::{Names, Secret};

use super::identity::PeerIdentity;
use super::verify::AnyCertificate;
use crate::settings::{ClientAuth, NamedCertificate, PLATFORM_CA_FILES, TlsClientSettings, TlsServerSettings};

/// Bytes of one PEM file. Default 2 MiB: several times the bundle of public authorities of a distribution.
pub const PEM_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// Sessions remembered per listener, for TLS 1.2 clients without tickets. Default 1,024, oldest out first; each
/// holds a master secret and the client's certificates, if any. All other clients hold their session in a ticket.
pub const SERVER_SESSIONS_MAX: usize = 1_024;

/// Server names whose tickets are remembered per upstream. Default 256: one per endpoint of a large cluster; rustls
/// keeps at most eight tickets per name, each with the server's certificates.
pub const CLIENT_SESSIONS_MAX: usize = 256;

/// TLS 1.3 tickets sent after a handshake: one per connection that a client is likely to open next. Each carries the
/// client's certificates, if it presented any.
const TICKETS_PER_HANDSHAKE: usize = 2;

/// A PEM file that does not do. The text names the setting, the file and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfigError {
    /// The key of the configuration that names the file, such as `cert_file`.
    pub setting: &'static str,
    /// The file; `None` if the setting is no file.
    pub file: Option<PathBuf>,
    /// The problem.
    pub what: String,
    /// The suggested fix.
    pub remedy: &'static str,
}

impl fmt::Display for TlsConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{} {}: {}; {}", self.setting, file.display(), self.what, self.remedy),
            None => write!(f, "{}: {}; {}", self.setting, self.what, self.remedy),
        }
    }
}

impl std::error::Error for TlsConfigError {}

/// TLS towards one upstream: the configuration and the name to expect.
#[derive(Clone)]
pub struct TlsClient {
    /// The configuration that each [`TlsSession`](super::TlsSession) is created from.
    pub config: Arc<ClientConfig>,
    /// The `server_name` of the settings; `None`: the host of the endpoint counts, see [`server_name`].
    pub server_name: Option<ServerName<'static>>,
}

impl TlsClient {
    /// The name to verify and to send as SNI for an endpoint with this host (a DNS name or an IP address).
    ///
    /// # Errors
    /// The host is neither, and no `server_name` is set.
    pub fn name_for(&self, host: &str) -> Result<ServerName<'static>, TlsConfigError> {
        match &self.server_name {
            Some(name) => Ok(name.clone()),
            None => server_name(host),
        }
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClient").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

/// Builds the configuration of a listener: TLS 1.2 and 1.3, rotating tickets (a key lives 12 h, RFC 5077), no early
/// data.
///
/// # Errors
/// A file is missing, unreadable or holds no PEM of the right kind, the key does not belong to the certificate, or
/// client certificates are requested without authorities.
pub fn server_config(settings: &TlsServerSettings) -> Result<Arc<ServerConfig>, TlsConfigError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let resolver = ByName {
        default: certified(&settings.cert_file, &settings.key_file, &provider)?,
        named: named_certificates(&settings.certificates, &provider)?,
    };
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused("cert_file", &settings.cert_file, &error))?
        .with_client_cert_verifier(client_verifier(settings, &provider)?)
        .with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = alpn(&settings.alpn)?;
    config.session_storage = ServerSessionMemoryCache::new(SERVER_SESSIONS_MAX);
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(|error| refused("key_file", &settings.key_file, &error))?;
    config.send_tls13_tickets = TICKETS_PER_HANDSHAKE;
    Ok(Arc::new(config))
}

/// Chooses the certificate by the name that a client asks for.
#[derive(Debug)]
struct ByName {
    named: Names<Arc<CertifiedKey>>,
    default: Arc<CertifiedKey>,
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello.server_name().and_then(|name| self.named.find(name));
        let chosen = named.unwrap_or(&self.default).clone();
        CHOSEN.set(Some(chosen.clone()));
        Some(chosen)
    }
}

thread_local! {
    /// The choice of the handshake that runs on this thread. rustls does not say which certificate a connection has.
    static CHOSEN: RefCell<Option<Arc<CertifiedKey>>> = const { RefCell::new(None) };
}

/// The certificate that a handshake has chosen on this thread since the last call.
pub(super) fn take_chosen() -> Option<Arc<CertifiedKey>> {
    CHOSEN.take()
}

fn certified(
    cert_file: &Path,
    key_file: &Path,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, TlsConfigError> {
    let (chain, key) = identity(cert_file, key_file)?;
    let certified = CertifiedKey::from_der(chain, key, provider);
    certified.map(Arc::new).map_err(|error| key_error(cert_file, key_file, &error))
}

fn named_certificates(
    certificates: &[NamedCertificate],
    provider: &CryptoProvider,
) -> Result<Names<Arc<CertifiedKey>>, TlsConfigError> {
    let mut all = Names::default();
    for NamedCertificate { names, cert_file, key_file } in certificates {
        let certified = certified(cert_file, key_file, provider)?;
        let wrong = |what| TlsConfigError {
            setting: "cert_file",
            file: Some(cert_file.clone()),
            what,
            remedy: "write the names that clients request: names = [\"shop.example\", \"*.shop.example\"]",
        };
        let own = certified.cert.first().map(|leaf| PeerIdentity::from_der(leaf)).unwrap_or_default();
        // Addresses and the like are no names that a client can ask for.
        let from_certificate = own.alt_names.into_iter().filter(|_| names.is_empty());
        let mut found = false;
        for name in from_certificate {
            found |= all.add(&name.to_string(), certified.clone()).is_ok();
        }
        for name in names {
            all.add(name, certified.clone()).map_err(|error| wrong(format!("the name `{name}` {error}")))?;
            found = true;
        }
        if !found {
            return Err(wrong("no name in it that another certificate does not have".to_owned()));
        }
    }
    Ok(all)
}

/// Builds the configuration of an upstream: TLS 1.2 and 1.3, resumption, our certificate if the settings have one.
///
/// # Errors
/// As [`server_config`]; also if `server_name` is neither a DNS name nor an IP address.
pub fn client_config(settings: &TlsClientSettings) -> Result<TlsClient, TlsConfigError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let name = settings.server_name.as_deref().map(server_name).transpose()?;
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsConfigError {
            setting: "tls",
            file: None,
            what: error.to_string(),
            remedy: "this is a bug of the gateway, please report it",
        })?;
    let builder = if settings.insecure_skip_verify {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
    } else {
        let file = authorities_file(settings.ca_file.as_deref())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(authorities("ca_file", file)?), provider)
            .build()
            .map_err(|error| TlsConfigError {
                setting: "ca_file",
                file: Some(file.to_owned()),
                what: error.to_string(),
                remedy: "it must hold the PEM certificates of the authorities to trust",
            })?;
        builder.with_webpki_verifier(verifier)
    };
    let mut config = match (&settings.cert_file, &settings.key_file) {
        (Some(cert_file), Some(key_file)) => {
            let (chain, key) = identity(cert_file, key_file)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| key_error(cert_file, key_file, &error))?
        }
        (None, None) => builder.with_no_client_auth(),
        (Some(file), None) => {
            return Err(incomplete("cert_file", file, "set key_file, the private key of it, as well"));
        }
        (None, Some(file)) => {
            return Err(incomplete("key_file", file, "set cert_file, the certificate of it, as well"));
        }
    };
    config.alpn_protocols = alpn(&settings.alpn)?;
    config.resumption = Resumption::store(Arc::new(ClientSessionMemoryCache::new(CLIENT_SESSIONS_MAX)));
    Ok(TlsClient { config: Arc::new(config), server_name: name })
}

/// The name that an upstream's certificate must carry: a DNS name (also sent as SNI) or an IP address, with or without
/// brackets (never sent, RFC 6066 section 3).
///
/// # Errors
/// The text is neither.
pub fn server_name(host: &str) -> Result<ServerName<'static>, TlsConfigError> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(ServerName::IpAddress(address.into()));
    }
    ServerName::try_from(bare.to_owned()).map_err(|_| TlsConfigError {
        setting: "server_name",
        file: None,
        what: format!("{host:?} is neither a DNS name nor an IP address"),
        remedy: "write the name that the upstream's certificate carries, without a port",
    })
}

/// The verifier of client certificates that `client_auth` asks for.
fn client_verifier(
    settings: &TlsServerSettings,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsConfigError> {
    if settings.client_auth == ClientAuth::Off {
        return Ok(Arc::new(NoClientAuth));
    }
    let Some(file) = &settings.client_ca_file else {
        return Err(TlsConfigError {
            setting: "client_ca_file",
            file: None,
            what: "client certificates are requested, but no authority is named".to_owned(),
            remedy: "set client_ca_file, or set client_auth to \"off\"",
        });
    };
    let roots = Arc::new(authorities("client_ca_file", file)?);
    let mut builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
    if settings.client_auth == ClientAuth::Optional {
        builder = builder.allow_unauthenticated();
    }
    builder.build().map_err(|error| TlsConfigError {
        setting: "client_ca_file",
        file: Some(file.clone()),
        what: error.to_string(),
        remedy: "it must hold the PEM certificates of the authorities that sign client certificates",
    })
}

/// The chain and the private key of one end.
fn identity(
    cert_file: &Path,
    key_file: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsConfigError> {
    let chain = certificates("cert_file", cert_file)?;
    let pem = Secret::new(read_bounded("key_file", key_file)?);
    // The error is not quoted: a parser's message may hold a piece of the key.
    let key = PrivateKeyDer::from_pem_slice(pem.expose()).map_err(|_| TlsConfigError {
        setting: "key_file",
        file: Some(key_file.to_owned()),
        what: "no usable private key in it".to_owned(),
        remedy: "it must hold an unencrypted PEM key (PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY)",
    })?;
    Ok((chain, key))
}

/// Every certificate of a PEM file, in order; at least one.
pub(super) fn certificates(setting: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let remedy = "it must hold PEM certificates (BEGIN CERTIFICATE)";
    let pem = read_bounded(setting, file)?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().map_err(|error| {
        TlsConfigError { setting, file: Some(file.to_owned()), what: format!("damaged PEM ({error})"), remedy }
    })?;
    if chain.is_empty() {
        let what = "no certificate in it".to_owned();
        return Err(TlsConfigError { setting, file: Some(file.to_owned()), what, remedy });
    }
    Ok(chain)
}

/// The authorities in a PEM file. A bundle may hold a few that webpki cannot read (the platform's does); none at
/// all is an error.
pub(super) fn authorities(setting: &'static str, file: &Path) -> Result<RootCertStore, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    let (added, ignored) = roots.add_parsable_certificates(certificates(setting, file)?);
    if added == 0 {
        return Err(TlsConfigError {
            setting,
            file: Some(file.to_owned()),
            what: format!("none of its {ignored} certificates can be read as an authority"),
            remedy: "it must hold the X.509 certificates of the authorities to trust",
        });
    }
    Ok(roots)
}

/// The file of authorities that the settings or the platform name.
fn authorities_file(ca_file: Option<&Path>) -> Result<&Path, TlsConfigError> {
    ca_file.or_else(|| PLATFORM_CA_FILES.iter().map(Path::new).find(|file| file.is_file())).ok_or_else(|| {
        TlsConfigError {
            setting: "ca_file",
            file: None,
            what: format!("not set, and this machine has none of {}", PLATFORM_CA_FILES.join(", ")),
            remedy: "install the package ca-certificates, or set ca_file to the authority of the upstream",
        }
    })
}

fn alpn(names: &[String]) -> Result<Vec<Vec<u8>>, TlsConfigError> {
    match names.iter().find(|name| name.is_empty() || name.len() > usize::from(u8::MAX)) {
        None => Ok(names.iter().map(|name| name.as_bytes().to_vec()).collect()),
        Some(_) => Err(TlsConfigError {
            setting: "alpn",
            file: None,
            what: "a protocol name is empty or longer than 255 bytes".to_owned(),
            remedy: "write names as registered with IANA, such as \"h2\" or \"http/1.1\"",
        }),
    }
}

/// Reads a whole file, up to [`PEM_BYTES_MAX`].
fn read_bounded(setting: &'static str, file: &Path) -> Result<Vec<u8>, TlsConfigError> {
    let fail = |what: String, remedy| TlsConfigError { setting, file: Some(file.to_owned()), what, remedy };
    let opened = File::open(file).map_err(|error| {
        fail(format!("cannot be opened ({error})"), "check the path, and that this process may read it")
    })?;
    let mut pem = Vec::new();
    opened
        .take(PEM_BYTES_MAX + 1)
        .read_to_end(&mut pem)
        .map_err(|error| fail(format!("cannot be read ({error})"), "name a file that this process may read"))?;
    if pem.len() as u64 > PEM_BYTES_MAX {
        return Err(fail(format!("longer than {PEM_BYTES_MAX} bytes"), "name the PEM file itself, not an archive"));
    }
    Ok(pem)
}

fn key_error(cert_file: &Path, key_file: &Path, error: &Error) -> TlsConfigError {
    match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsConfigError {
            setting: "key_file",
            file: Some(key_file.to_owned()),
            what: format!("does not belong to the certificate in {}", cert_file.display()),
            remedy: "name the key made for that certificate; the certificate comes first in its file, then its chain",
        },
        Error::InvalidCertificate(_) => TlsConfigError {
            setting: "cert_file",
            file: Some(cert_file.to_owned()),
            what: format!("its first certificate cannot be used ({error})"),
            remedy: "it must hold an X.509 version 3 certificate",
        },
        error => refused("key_file", key_file, error),
    }
}

fn refused(setting: &'static str, file: &Path, error: &Error) -> TlsConfigError {
    TlsConfigError {
        setting,
        file: Some(file.to_owned()),
        what: error.to_string(),
        remedy: "use an RSA key of 2,048 bits or more, ECDSA P-256, P-384 or P-521, or Ed25519",
    }
}

fn incomplete(setting: &'static str, file: &Path, remedy: &'static str) -> TlsConfigError {
    TlsConfigError { setting, file: Some(file.to_owned()), what: "only one of the two files is set".to_owned(), remedy }
}
