//! TLS of servers that tests write themselves, and files that drivers want.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificate::Certificates;

/// A server with the certificate of an authority, whose clients may have to show another one of it.
///
/// # Panics
/// If the files are not what [`Certificates::create`] wrote.
#[must_use]
pub fn server_config(files: &Certificates, needs_certificate: bool) -> Arc<ServerConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&files.authority).expect("an authority")).expect("it is well formed");
    let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    if !needs_certificate {
        verifier = verifier.allow_unauthenticated();
    }
    let chain = vec![CertificateDer::from_pem_file(&files.server).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_file(&files.server_key).expect("a key");
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider supports the default versions")
        .with_client_cert_verifier(verifier.build().expect("an authority"))
        .with_single_cert(chain, key)
        .expect("key and certificate belong together");
    Arc::new(config)
}

/// Certificate and key of the client in one file, as drivers want them. It is beside the others.
///
/// # Panics
/// If the folder cannot be written.
#[must_use]
pub fn certificate_and_key(files: &Certificates) -> PathBuf {
    let read = |path| std::fs::read(path).expect("a file of the authority");
    let both = files.client.with_file_name("client-both.pem");
    std::fs::write(&both, [read(&files.client), read(&files.client_key)].concat()).expect("a file");
    both
}
