//! Certificates that listeners show.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How near the end of a certificate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CertificateState {
    /// More than 14 days are left.
    Valid,
    /// At most 14 days are left.
    Warning,
    /// At most 3 days are left.
    Critical,
    /// It has expired.
    Expired,
}

/// One certificate that a listener shows to clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CertificateStatus {
    /// Its first host name; without one, its subject.
    pub name: String,
    /// The end of its validity, or of an earlier one in its chain: seconds since 1970.
    pub expires_at: u64,
    /// Whole days until then; negative afterwards.
    pub days_left: i64,
    /// How near that is.
    pub state: CertificateState,
}
