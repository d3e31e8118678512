//! Certificates in a temporary folder, and a client and a server session that talk in memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls::crypto::{CipherSuiteCommon, aws_lc_rs};
use rustls::{ClientConfig, ServerConfig, SupportedCipherSuite, Tls13CipherSuite};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivateKeyDer, ServerName};
use tempfile::TempDir;

use super::{TlsError, TlsSession, TlsState, client_config, server_config, server_name};
use crate::settings::{ClientAuth, TLS_HANDSHAKE_TIMEOUT, TlsClientSettings, TlsServerSettings};

/// An authority, a server certificate for `cache.test` and 127.0.0.1, and a client certificate for `app-1`.
pub(super) struct Files {
    folder: TempDir,
}

impl Files {
    pub(super) fn new() -> Self {
        let files = Self { folder: tempfile::tempdir().unwrap() };
        let authority = authority("weir test authority");
        files.write("ca.pem", authority.pem().as_bytes());
        files.write("other-ca.pem", self::authority("another authority").pem().as_bytes());
        files.issue(&authority, "server", "cache", &["cache.test", "127.0.0.1"]);
        files.issue(&authority, "client", "app-1", &["app-1.test"]);
        files.issue(&self::authority("weir test authority"), "stranger", "app-2", &["app-2.test"]);
        files
    }

    fn issue(&self, authority: &CertifiedIssuer<'_, KeyPair>, file: &str, common_name: &str, names: &[&str]) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names.iter().map(|name| name.to_string()).collect::<Vec<_>>()).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.subject_alt_names.push(SanType::URI(format!("spiffe://test/{file}").try_into().unwrap()));
        let certificate = params.signed_by(&key, authority).unwrap();
        self.write(&format!("{file}.pem"), certificate.pem().as_bytes());
        self.write(&format!("{file}.key"), key.serialize_pem().as_bytes());
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(super) fn server(&self, client_auth: ClientAuth) -> TlsServerSettings {
        TlsServerSettings {
            cert_file: self.path("server.pem"),
            key_file: self.path("server.key"),
            client_ca_file: (client_auth != ClientAuth::Off).then(|| self.path("ca.pem")),
            client_auth,
            handshake_timeout: TLS_HANDSHAKE_TIMEOUT,
            certificates: Vec::new(),
            alpn: Vec::new(),
            files_digest: 0,
        }
    }

    pub(super) fn client(&self, identity: Option<&str>) -> TlsClientSettings {
        TlsClientSettings {
            ca_file: Some(self.path("ca.pem")),
            cert_file: identity.map(|name| self.path(&format!("{name}.pem"))),
            key_file: identity.map(|name| self.path(&format!("{name}.key"))),
            server_name: Some("cache.test".to_owned()),
            ..TlsClientSettings::default()
        }
    }

    pub(super) fn pair(&self, client_auth: ClientAuth, identity: Option<&str>) -> Pair {
        let server = server_config(&self.server(client_auth)).unwrap();
        let client = client_config(&self.client(identity)).unwrap();
        Pair::new(&client.config, client.server_name.unwrap(), &server)
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A client that knows TLS 1.2 only, with a session cache of its own.
pub(super) fn tls12_only(config: &ClientConfig, files: &Files) -> Arc<ClientConfig> {
    let authorities = super::config::authorities("ca_file", &files.path("ca.pem")).unwrap();
    let tls12 = ClientConfig::builder_with_provider(Arc::clone(config.crypto_provider()))
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(authorities)
        .with_no_client_auth();
    Arc::new(tls12)
}

/// A server whose keys are good for `records` records, one of AES-128-GCM's 2^24.
pub(super) fn small_key_limit(records: u64, files: &Files) -> Arc<ServerConfig> {
    let mut provider = aws_lc_rs::default_provider();
    let suite = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().unwrap();
    let common = CipherSuiteCommon {
        suite: suite.common.suite,
        hash_provider: suite.common.hash_provider,
        confidentiality_limit: records,
    };
    let limited = Tls13CipherSuite { common, hkdf_provider: suite.hkdf_provider, aead_alg: suite.aead_alg, quic: None };
    provider.cipher_suites = vec![SupportedCipherSuite::Tls13(Box::leak(Box::new(limited)))];
    let chain = super::config::certificates("cert_file", &files.path("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(files.path("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    Arc::new(config)
}

/// One end and what it has received and not yet sent.
pub(super) struct End {
    pub(super) session: TlsSession,
    pub(super) plain: Vec<u8>,
    pub(super) wire: Vec<u8>,
}

impl End {
    fn new(session: TlsSession) -> Self {
        Self { session, plain: Vec::new(), wire: Vec::new() }
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<TlsState, TlsError> {
        self.session.on_wire(&mut bytes.to_vec(), &mut self.plain, &mut self.wire)
    }

    pub(super) fn seal(&mut self, plain: &[u8]) {
        self.session.seal(plain, &mut self.wire).unwrap();
    }

    pub(super) fn take_wire(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.wire)
    }
}

pub(super) struct Pair {
    pub(super) client: End,
    pub(super) server: End,
}

impl Pair {
    pub(super) fn new(client: &Arc<ClientConfig>, name: ServerName<'static>, server: &Arc<ServerConfig>) -> Self {
        let mut client = End::new(TlsSession::client(client, name).unwrap());
        client.session.start(&mut client.wire).unwrap();
        Self { client, server: End::new(TlsSession::server(server).unwrap()) }
    }

    /// Carries bytes both ways in pieces of at most `piece` until nothing is left; gives the results of both ends.
    pub(super) fn settle(&mut self, piece: usize) -> (Result<(), TlsError>, Result<(), TlsError>) {
        let (mut at_client, mut at_server) = (Ok(()), Ok(()));
        while !self.client.wire.is_empty() || !self.server.wire.is_empty() {
            carry(self.client.take_wire(), &mut self.server, piece, &mut at_server);
            carry(self.server.take_wire(), &mut self.client, piece, &mut at_client);
        }
        (at_client, at_server)
    }

    pub(super) fn handshake(&mut self) {
        let (at_client, at_server) = self.settle(usize::MAX);
        at_client.unwrap();
        at_server.unwrap();
        assert_eq!(self.client.session.state(), TlsState::Open);
        assert_eq!(self.server.session.state(), TlsState::Open);
    }
}

fn carry(wire: Vec<u8>, to: &mut End, piece: usize, result: &mut Result<(), TlsError>) {
    for chunk in wire.chunks(piece.min(wire.len()).max(1)) {
        if let Err(error) = to.receive(chunk)
            && result.is_ok()
        {
            *result = Err(error);
        }
    }
}

pub(super) fn cache_test() -> ServerName<'static> {
    server_name("cache.test").unwrap()
}
