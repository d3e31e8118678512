//! The provider behind an upstream.

use weir_ai::settings::{Abilities, Provider, ProviderDialect};
use weir_http::{HttpProbe, ProbeKind};

use super::keys::UpstreamAiSection;
use crate::checks::store::is_far;
use crate::checks::{authority, error_at, table_header, warn_at};
use crate::document::At;
use crate::protocols::UpstreamContext;
use crate::reader::Reader;

/// The provider of an upstream; mistakes are reported.
pub(super) fn provider(of: &UpstreamContext<'_>, reader: &mut Reader<'_>) -> Provider {
    let (section, path) = (&of.section.own.ai.ai, format!("{}.ai", of.path));
    let dialect = section.dialect.value;
    if let Some(key) = &section.api_key
        && !key.value.secret.expose().iter().all(u8::is_ascii_graphic)
    {
        let what = "has characters that are not allowed in a header field";
        error_at(key, &path, "api_key", what, "look for blanks and line ends in the secret", reader);
    }
    warn_clear_text(of, &path, reader);
    if !section.include_usage.value && dialect == ProviderDialect::Anthropic {
        let what = "has no effect: this API always reports the usage of streams";
        warn_at(&section.include_usage, &path, "include_usage", what, "remove it", reader);
    }
    warn_abilities(section, &path, reader);
    let base_path = match &section.base_path {
        None => dialect.base_path(),
        Some(written) => {
            let text = &*written.value.0;
            if !text.starts_with('/') || text.contains(['?', '#']) || text.contains("//") {
                let help = "write it as in \"/v1\" or \"/api/v1\"";
                error_at(written, &path, "base_path", "is not a path", help, reader);
            }
            text.trim_end_matches('/')
        }
    };
    let host = of.endpoints.first().map(|endpoint| authority(&endpoint.value.0, of.section.tls.is_some()));
    Provider {
        dialect,
        api_key: section.api_key.as_ref().map(|key| key.value.secret.clone()),
        base_path: base_path.into(),
        host: host.unwrap_or_default().into(),
        include_usage: section.include_usage.value,
        abilities: Abilities {
            default_max_tokens: section.default_max_tokens.value.into(),
            max_completion_tokens: section.max_completion_tokens.value,
            reasoning_effort: section.reasoning_effort.value,
        },
    }
}

/// Abilities that the dialect has no use for.
fn warn_abilities(section: &UpstreamAiSection, path: &str, reader: &mut Reader<'_>) {
    let is_anthropic = section.dialect.value == ProviderDialect::Anthropic;
    let of_messages = "has no effect: chats are translated only for dialect = \"anthropic\"";
    warn_given(&section.default_max_tokens, is_anthropic, path, "default_max_tokens", of_messages, reader);
    warn_given(&section.reasoning_effort, is_anthropic, path, "reasoning_effort", of_messages, reader);
    let of_chats = "has no effect: this API has only max_tokens";
    warn_given(&section.max_completion_tokens, !is_anthropic, path, "max_completion_tokens", of_chats, reader);
}

/// Reports a key that is written and of no use.
fn warn_given<T>(at: &At<T>, is_used: bool, path: &str, key: &str, what: &str, reader: &mut Reader<'_>) {
    if at.is_given && !is_used {
        warn_at(at, path, key, what, "remove it", reader);
    }
}

/// Makes the health check a request for the models of the provider, if the file wants so.
pub(super) fn check_health(
    of: &UpstreamContext<'_>,
    provider: &Provider,
    probe: &mut HttpProbe,
    reader: &mut Reader<'_>,
) {
    let (wanted, http) = (&of.section.own.ai.ai.health_models, &of.section.own.http.http);
    let path = format!("{}.ai", of.path);
    if !wanted.value {
        return;
    }
    if http.health_path.is_some() || http.health_grpc_service.is_some() {
        let help = "remove it, or health_path and health_grpc_service of [upstream.http]";
        error_at(wanted, &path, "health_models", "conflicts with another health check", help, reader);
    }
    if !of.section.health.enabled.value {
        let help = "remove it, or write enabled = true in [upstream.health]";
        warn_at(wanted, &path, "health_models", "has no effect: health.enabled is false", help, reader);
    }
    let (models, fields) = provider.models_request();
    probe.kind = ProbeKind::Path(models);
    probe.fields = fields.into_iter().map(|(name, value)| (name.into(), value)).collect();
    if http.health_host.is_none() {
        probe.host = provider.host.to_string();
    }
}

/// A key that networks between here and the provider can read.
fn warn_clear_text(of: &UpstreamContext<'_>, path: &str, reader: &mut Reader<'_>) {
    let Some(key) = &of.section.own.ai.ai.api_key else { return };
    let far = of.endpoints.iter().find(|endpoint| is_far(&endpoint.value.0));
    if let (Some(endpoint), None) = (far, &of.section.tls) {
        let what = format!("goes to {} in clear text", endpoint.value.0);
        let help = format!("add {} below the upstream", table_header(&path.replace(".ai", ".tls")));
        warn_at(key, path, "api_key", &what, help, reader);
    }
}
