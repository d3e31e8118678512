//! Certificates that listeners show.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a certificate by its expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CertificateState {
    /// More than 14 days are left.
    Valid,
    /// At most 14 days are left.
    Warning,
    /// At most 3 days are left.
    Critical,
    /// The certificate has expired.
    Expired,
}

/// One certificate that a listener presents to clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CertificateStatus {
    /// First host name of the certificate, or its subject if it has no host name.
    pub name: String,
    /// Expiry of the certificate, or of a certificate in its chain that expires earlier, in seconds since 1970.
    pub expires_at: u64,
    /// Whole days until the expiry; negative after it.
    pub days_left: i64,
    /// State by the days that are left.
    pub state: CertificateState,
}
