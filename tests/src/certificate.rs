//! Throw-away certificates: an authority, a server certificate for `localhost`, a client
//! certificate, and the rustls configurations that use them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use weir_base::time::rfc3339;

/// Files of one authority.
pub struct Certificates {
    /// The authority's certificate.
    pub authority: PathBuf,
    /// Certificate for `localhost` and 127.0.0.1.
    pub server: PathBuf,
    /// Its key.
    pub server_key: PathBuf,
    /// Certificate of a client named `tester`.
    pub client: PathBuf,
    /// Its key.
    pub client_key: PathBuf,
}

impl Certificates {
    /// Writes a fresh set into `folder`.
    ///
    /// # Panics
    /// If the folder cannot be written.
    pub fn create(folder: &Path) -> Self {
        Self::create_with(folder, None)
    }

    /// The same; the server's certificate ends so many days after the last midnight (UTC).
    ///
    /// # Panics
    /// If the folder cannot be written.
    pub fn create_ending_in(folder: &Path, days: u64) -> Self {
        Self::create_with(folder, Some(days))
    }

    fn create_with(folder: &Path, days: Option<u64>) -> Self {
        std::fs::create_dir_all(folder).expect("the certificate folder can be created");
        let key = KeyPair::generate().expect("a key can be generated");
        let mut params = CertificateParams::new(Vec::new()).expect("no names are no error");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Weir test authority");
        let authority = params.self_signed(&key).expect("an authority signs itself");
        let issuer = Issuer::new(params, key);
        let paths = Self {
            authority: folder.join("authority.pem"),
            server: folder.join("server.pem"),
            server_key: folder.join("server.key"),
            client: folder.join("client.pem"),
            client_key: folder.join("client.key"),
        };
        write(&paths.authority, &authority.pem());
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        issue(&issuer, (names.to_vec(), "server"), days, &paths.server, &paths.server_key);
        issue(&issuer, (Vec::new(), "tester"), None, &paths.client, &paths.client_key);
        paths
    }

    /// A client that trusts this authority and shows no certificate.
    pub fn client_config(&self) -> Arc<ClientConfig> {
        Arc::new(self.builder().with_no_client_auth())
    }

    /// A client that trusts this authority and shows its own certificate.
    ///
    /// # Panics
    /// If the files are not what [`Certificates::create`] wrote.
    pub fn client_config_with_certificate(&self) -> Arc<ClientConfig> {
        let chain = vec![CertificateDer::from_pem_file(&self.client).expect("a client certificate")];
        let key = PrivateKeyDer::from_pem_file(&self.client_key).expect("a client key");
        let config = self.builder().with_client_auth_cert(chain, key).expect("key and certificate belong together");
        Arc::new(config)
    }

    /// The first message of a client that trusts this authority.
    ///
    /// # Panics
    /// If the files are not what [`Certificates::create`] wrote.
    pub fn client_hello(&self) -> Vec<u8> {
        let name = ServerName::try_from("localhost").expect("localhost is a server name");
        let mut client = ClientConnection::new(self.client_config(), name).expect("the name fits");
        let mut hello = Vec::new();
        client.write_tls(&mut hello).expect("memory takes it");
        hello
    }

    fn builder(&self) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(&self.authority).expect("an authority");
        roots.add(authority).expect("the authority is well formed");
        ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider supports the default versions")
            .with_root_certificates(roots)
    }
}

fn issue(
    issuer: &Issuer<'_, KeyPair>,
    (names, common_name): (Vec<String>, &str),
    days: Option<u64>,
    certificate_path: &Path,
    key_path: &Path,
) {
    let key = KeyPair::generate().expect("a key can be generated");
    let mut params = CertificateParams::new(names).expect("the names are well formed");
    params.distinguished_name.push(DnType::CommonName, common_name);
    if let Some(days) = days {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is right").as_secs();
        let end = rfc3339(now + days * 86_400);
        let part = |from, to| end[from..to].parse::<u8>().expect("digits");
        params.not_after = rcgen::date_time_ymd(end[..4].parse().expect("a year"), part(5, 7), part(8, 10));
    }
    let certificate = params.signed_by(&key, issuer).expect("the authority signs");
    write(certificate_path, &certificate.pem());
    write(key_path, &key.serialize_pem());
}

fn write(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).expect("a certificate file can be written");
    let owner_only = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, owner_only).expect("permissions can be set");
}
