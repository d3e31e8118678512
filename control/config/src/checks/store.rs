//! The login at a Redis server that keeps data of the gateway's own.

use std::net::IpAddr;
use std::time::Duration;

use weir_engine::settings::Address;

use super::{error_at, table_header, warn_at};
use crate::document::At;
use crate::reader::Reader;
use crate::secret::SecretRef;
use crate::sections::UpstreamTlsSection;
use crate::texts::{Endpoint, Word};

/// The keys of a login.
pub(crate) struct Login<'a> {
    pub(crate) user: Option<&'a At<Word>>,
    pub(crate) password: Option<&'a At<SecretRef>>,
    pub(crate) endpoints: Option<&'a At<Vec<At<Endpoint>>>>,
    pub(crate) tls: Option<&'a UpstreamTlsSection>,
}

impl Login<'_> {
    /// Reports a user without a password, a password that others can read on its way, and a handshake that may take longer than the whole
    /// connection.
    pub(crate) fn check(&self, limit: Duration, path: &str, reader: &mut Reader<'_>) {
        if let (Some(user), true) = (self.user, reader.lacks(self.password, path, "password")) {
            let help = "add password = \"env:NAME\", or remove it";
            error_at(user, path, "user", "has no effect without a password: there is no login", help, reader);
        }
        let far = self.endpoints.into_iter().flat_map(|list| &list.value).find(|endpoint| is_far(&endpoint.value.0));
        if let (Some(password), Some(endpoint), None) = (self.password, far, self.tls) {
            let what = format!("goes to {} in clear text", endpoint.value.0);
            warn_at(password, path, "password", &what, format!("add {}", table_header(&format!("{path}.tls"))), reader);
        }
        let Some(handshake) = self.tls.map(|tls| &tls.handshake_timeout) else { return };
        if handshake.is_given && handshake.value.0 > limit {
            let limit = limit.as_secs();
            let what =
                format!("has no effect beyond {limit} s: connecting, handshake and login together may take {limit} s");
            let help = format!("write at most \"{limit}s\"");
            error_at(handshake, &format!("{path}.tls"), "handshake_timeout", &what, help, reader);
        }
    }
}

/// Whether an endpoint may be outside of this machine and of a private network. A name without a dot is one of a local network, and so are
/// those that no public registry gives out.
pub(crate) fn is_far(endpoint: &Address) -> bool {
    const LOCAL: [&str; 4] = [".localhost", ".local", ".internal", ".home.arpa"];
    match endpoint {
        Address::Unix(_) => false,
        Address::Socket(address) => match address.ip().to_canonical() {
            IpAddr::V4(ip) => !(ip.is_private() || ip.is_loopback() || ip.is_link_local()),
            IpAddr::V6(ip) => !(ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()),
        },
        Address::Host { name, .. } => name.contains('.') && !LOCAL.iter().any(|end| name.ends_with(end)),
    }
}
