//! Values of the variables of header values, in one request.

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use weir_base::time::{Time, rfc3339_millis};
use weir_engine::{
    host,
    settings::Address,
    tls::{AltName, PeerIdentity},
};
use weir_http_codec::{Fields, RequestHead};
use weir_route::variables::{Rendered, Variable};
use weir_telemetry::log::Peer;

use crate::{
    connection::{Connection, Tls},
    destination::UpstreamRoute,
    request_context::RequestContext,
    routes::FieldChange,
};

/// Digits in a line of PEM (RFC 7468 section 2).
const PEM_LINE: usize = 64;

/// Sources of the values of variables.
pub(crate) struct Variables<'a> {
    connection: &'a Connection,
    head: Option<&'a RequestHead>,
    protocol: &'static str,
    arrived: Time,
    route: &'a str,
    upstream: &'a str,
    /// The endpoint of the response.
    endpoint: Option<&'a Address>,
}

impl<'a> Variables<'a> {
    /// For a request that a route has taken. `head` is the original one.
    pub(crate) fn of_route(
        connection: &'a Connection,
        route: &'a str,
        head: Option<&'a RequestHead>,
        request: &RequestContext,
    ) -> Self {
        let (protocol, arrived) = (request.version.name(), request.arrived);
        Self { connection, head, protocol, arrived, route, upstream: "", endpoint: None }
    }

    /// For a request that goes on.
    pub(crate) fn of_routed(
        connection: &'a Connection,
        routed: &'a UpstreamRoute<'a>,
        head: Option<&'a RequestHead>,
        request: &RequestContext,
    ) -> Self {
        let upstream = &routed.upstream.settings().name;
        Self { upstream, ..Self::of_route(connection, routed.name, head, request) }
    }

    /// For a response of endpoint number `endpoint`.
    pub(crate) fn of_response(
        connection: &'a Connection,
        routed: &'a UpstreamRoute<'a>,
        endpoint: usize,
        request: &RequestContext,
    ) -> Self {
        let endpoint = routed.upstream.settings().endpoints.get(endpoint);
        Self { endpoint, ..Self::of_routed(connection, routed, None, request) }
    }

    /// Appends what `variable` stands for; nothing if that is not known here.
    pub(crate) fn resolve(&self, variable: &Variable, into: &mut Vec<u8>) {
        match variable {
            Variable::RequestHeader(name) => {
                let value = self.head.and_then(|head| head.fields.all_named(name.as_bytes()).next());
                into.extend_from_slice(value.unwrap_or_default());
            }
            variable => into.extend_from_slice(self.text(variable).unwrap_or_default().as_bytes()),
        }
    }

    /// Makes the changes. A change whose value has an empty variable is not made: a header of that name stays.
    pub(crate) fn change(&self, fields: &mut Fields, changes: &[FieldChange]) {
        for change in changes {
            let (name, template, replaces) = match change {
                FieldChange::Remove(name) => {
                    fields.remove_named(name.as_bytes());
                    continue;
                }
                FieldChange::Set(name, template) => (name, template, true),
                FieldChange::Add(name, template) => (name, template, false),
            };
            let mut value = Vec::new();
            if template.render(&mut value, |variable, into| self.resolve(variable, into)) == Rendered::Value {
                if replaces {
                    fields.remove_named(name.as_bytes());
                }
                fields.push(name.as_bytes(), &value);
            }
        }
    }

    fn text(&self, variable: &Variable) -> Option<String> {
        let client = || match self.connection.handle.peer() {
            Peer::Ip(address) => Some(canonical(address)),
            Peer::Unix => None,
        };
        let local = || self.connection.local_address().map(canonical);
        let tls = self.connection.tls.as_deref();
        let identity = tls.and_then(|tls| tls.identity.as_ref());
        let validity = || identity?.validity.as_ref();
        match variable {
            Variable::ClientAddress => client().map(|address| address.to_string()),
            Variable::ClientIp => client().map(|address| address.ip().to_string()),
            Variable::ClientPort => client().map(|address| address.port().to_string()),
            Variable::LocalAddress => local().map(|address| address.to_string()),
            Variable::LocalIp => local().map(|address| address.ip().to_string()),
            Variable::LocalPort => local().map(|address| address.port().to_string()),
            Variable::Protocol => Some(self.protocol.to_owned()),
            Variable::TlsVersion => tls.and_then(Tls::version).map(|version| format!("TLSv{version}")),
            Variable::TlsCipher => tls.and_then(Tls::cipher).map(str::to_owned),
            Variable::PeerSubject => identity?.subject.clone(),
            Variable::PeerIssuer => identity?.issuer.clone(),
            Variable::PeerSerial => Some(identity?.serial.clone()),
            Variable::PeerFingerprint => Some(identity?.fingerprint()),
            Variable::PeerUriSan => Some(uris(identity?)),
            Variable::PeerCertificate => Some(pem(&identity?.certificate)),
            Variable::PeerValidFrom => validity().map(|(from, _)| from.clone()),
            Variable::PeerValidTo => validity().map(|(_, to)| to.clone()),
            Variable::StartTime => {
                Some(String::from_utf8_lossy(&rfc3339_millis(wall_clock(self.arrived))).into_owned())
            }
            Variable::Hostname => host::name().map(str::to_owned),
            Variable::RouteName => Some(self.route.to_owned()),
            Variable::UpstreamName => Some(self.upstream.to_owned()),
            Variable::UpstreamAddress => self.endpoint.map(ToString::to_string),
            Variable::RequestHeader(_) => None,
        }
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Wall-clock time of `at`, since 1970.
fn wall_clock(at: Time) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Time::now().since(at))
}

fn uris(identity: &PeerIdentity) -> String {
    let uris = identity.alt_names.iter().filter_map(|name| match name {
        AltName::Uri(uri) => Some(uri.as_str()),
        AltName::Dns(_) | AltName::Email(_) | AltName::Ip(_) => None,
    });
    uris.collect::<Vec<_>>().join(",")
}

/// A certificate in PEM (RFC 7468), with `%` escapes for what a field or a list may not hold, as Envoy and nginx
/// (`$ssl_client_escaped_cert`) have it.
fn pem(certificate: &[u8]) -> String {
    let digits = STANDARD.encode(certificate);
    let mut text = String::from("-----BEGIN%20CERTIFICATE-----%0A");
    for line in digits.as_bytes().chunks(PEM_LINE) {
        for digit in line {
            match digit {
                b'+' => text.push_str("%2B"),
                b'/' => text.push_str("%2F"),
                b'=' => text.push_str("%3D"),
                digit => text.push(char::from(*digit)),
            }
        }
        text.push_str("%0A");
    }
    text.push_str("-----END%20CERTIFICATE-----%0A");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_in_a_field_has_no_byte_that_a_field_or_a_list_could_misread() {
        let text = pem(&[0xff; 49]);
        assert!(text.starts_with("-----BEGIN%20CERTIFICATE-----%0A%2F%2F"));
        assert!(text.ends_with("w%3D%3D%0A-----END%20CERTIFICATE-----%0A"));
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'%')));
        assert_eq!(text.matches("%0A").count(), 4);
    }
}
