//! The provider behind an upstream.

use weir_ai::settings::Provider;
use weir_engine::settings::Address;

use crate::checks::error_at;
use crate::protocols::UpstreamContext;
use crate::reader::Reader;

/// The ports that a Host does not name, in clear text and with TLS.
const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// The provider of an upstream; mistakes are reported.
pub(super) fn provider(of: &UpstreamContext<'_>, reader: &mut Reader<'_>) -> Provider {
    let (section, path) = (&of.section.own.ai.ai, format!("{}.ai", of.path));
    let dialect = section.dialect.value;
    if let Some(key) = &section.api_key
        && !key.value.secret.expose().iter().all(u8::is_ascii_graphic)
    {
        let what = "has characters that no header field can have";
        error_at(key, &path, "api_key", what, "look for blanks and line ends in the secret", reader);
    }
    let base_path = match &section.base_path {
        None => dialect.base_path(),
        Some(written) => {
            let text = &*written.value.0;
            if !text.starts_with('/') || text.contains(['?', '#']) || text.contains("//") {
                let help = "write it as in \"/v1\" or \"/api/v1\"";
                error_at(written, &path, "base_path", "is no path", help, reader);
            }
            text.trim_end_matches('/')
        }
    };
    let host = of.endpoints.first().map(|endpoint| host(&endpoint.value.0, of.section.tls.is_some()));
    Provider {
        dialect,
        api_key: section.api_key.as_ref().map(|key| key.value.secret.clone()),
        base_path: base_path.into(),
        host: host.unwrap_or_default().into(),
    }
}

/// The Host of requests to an endpoint.
fn host(endpoint: &Address, is_tls: bool) -> String {
    let text = endpoint.to_string();
    match endpoint {
        Address::Unix(_) => "localhost".to_owned(),
        other => match other.port() {
            Some(port) if port == DEFAULT_PORTS[usize::from(is_tls)] => {
                text.strip_suffix(&format!(":{port}")).map(str::to_owned).unwrap_or(text)
            }
            _ => text,
        },
    }
}
