//! The parties of a benchmark or a soak: Weir, and the server behind it.

pub(crate) mod origin;
pub(crate) mod weir;

use std::path::PathBuf;

/// Where a run goes.
#[derive(Clone, Debug)]
pub(crate) struct Goal {
    /// Port on loopback.
    pub(crate) port: u16,
    /// The authority that signed the peer's certificate, if it speaks TLS.
    pub(crate) tls_ca: Option<PathBuf>,
}
