//! The source of the flags of a listener: a server, or a file.

use std::sync::Arc;

use weir_base::Secret;
use weir_flags::settings::{FileSource, FlagSource, UpstreamSource};
use weir_flags_session::{Token, TokenError, TokenType};
use weir_http_codec::token;

use super::backup;
use super::keys::{ListenerFlagsSection, UpstreamHeaderSection};
use crate::checks::{authority, error_at};
use crate::document::At;
use crate::protocols::ListenerContext;
use crate::protocols::http::is_framing;
use crate::reader::Reader;
use crate::secret::SecretRef;
use crate::section::{GivenKey, Section as _};

/// Keys of `[listener.flags]` that have an effect only with an upstream.
const OF_UPSTREAM: &[&str] = &[
    "tokens",
    "pretrusted_tokens",
    "dynamic",
    "upstream_mode",
    "poll_interval",
    "metrics_interval",
    "metrics_bytes_max",
    "validation_timeout",
    "revalidation_interval",
    "app_name",
    "upstream_header",
    "backup_dir",
    "backup_redis",
    "backup_s3",
];

/// Keys that have an effect only without one.
const OF_FILE: &[&str] = &["bootstrap_file", "client_tokens", "frontend_tokens", "reload_interval"];

/// The source; `None`: something of it is wrong, and was reported.
pub(super) fn source(of: &ListenerContext<'_>, path: &str, reader: &mut Reader<'_>) -> Option<FlagSource> {
    let section = &of.section.own.flags.flags;
    match &of.section.upstream {
        Some(name) => {
            refuse(section, OF_FILE, path, "the listener has an upstream", "remove it, or upstream", reader);
            upstream(of, section, name.value.0.clone(), path, reader).map(FlagSource::Upstream)
        }
        None => {
            refuse(section, OF_UPSTREAM, path, "the listener has no upstream", "remove it, or add upstream", reader);
            file(of, section, path, reader).map(FlagSource::File)
        }
    }
}

/// Reports keys without effect.
fn refuse(section: &ListenerFlagsSection, keys: &[&str], path: &str, why: &str, help: &str, reader: &mut Reader<'_>) {
    let mut given = Vec::new();
    section.given("", &mut given);
    for GivenKey { path: own, span } in given {
        if keys.contains(&own.split('.').next().unwrap_or_default()) {
            let key = format!("{path}.{own}");
            let message = format!("`{key}` has no effect: {why}");
            reader.problems.error(&span, &key, message, help);
        }
    }
}

fn upstream(
    of: &ListenerContext<'_>,
    section: &ListenerFlagsSection,
    name: Arc<str>,
    path: &str,
    reader: &mut Reader<'_>,
) -> Option<UpstreamSource> {
    let tokens = tokens(&section.tokens, path, "tokens", reader, Token::parse);
    let pretrusted = self::tokens(&section.pretrusted_tokens, path, "pretrusted_tokens", reader, Token::parse_trusted);
    if !section.dynamic.value && reader.lacks(section.tokens.as_ref(), path, "tokens") {
        let key = format!("{path}.tokens");
        let message = format!("`{key}` is missing: without a backend token no flags can be fetched");
        reader.problems.error(&of.section.place.0, &key, message, "add tokens = [\"env:UNLEASH_TOKEN\"]");
    }
    let own = of.upstream?;
    let first = own.endpoints.as_ref().and_then(|list| list.value.first());
    let host = first.map(|endpoint| authority(&endpoint.value.0, own.tls.is_some())).unwrap_or_default();
    let endpoints: Vec<Box<str>> =
        own.endpoints.iter().flat_map(|list| &list.value).map(|endpoint| endpoint.value.0.to_string().into()).collect();
    let base_path = own.own.flags.flags.base_path.as_ref().map_or("", |path| path.value.0.trim_end_matches('/'));
    Some(UpstreamSource {
        upstream: name,
        base_path: base_path.into(),
        host: host.into(),
        endpoints: endpoints.into(),
        tokens: tokens.into(),
        pretrusted: pretrusted.into(),
        is_dynamic: section.dynamic.value,
        mode: section.upstream_mode.value,
        poll_interval: section.poll_interval.value.0,
        metrics_interval: section.metrics_interval.value.0,
        validation_timeout: section.validation_timeout.value.0,
        revalidation_interval: section.revalidation_interval.value.0,
        app_name: section.app_name.value.0.as_str().into(),
        fields: fields(&section.upstream_header, path, reader).into(),
        backup: backup::store(of, section, path, reader).map(Arc::new),
    })
}

/// Header fields for each request to the upstream. A secret must be one line of visible characters.
fn fields(tables: &[UpstreamHeaderSection], path: &str, reader: &mut Reader<'_>) -> Vec<(Box<str>, Secret)> {
    let mut fields = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        let path = format!("{path}.upstream_header[{index}]");
        let (Some(name), Some(value)) = (&table.name, &table.value) else { continue };
        if !token::is_token(name.value.0.as_bytes()) {
            error_at(
                name,
                &path,
                "name",
                "is not the name of a header field",
                "write letters, digits and hyphens",
                reader,
            );
        }
        if is_framing(&name.value.0) {
            let what = "is a field that only the gateway itself may set";
            error_at(name, &path, "name", what, "remove it", reader);
        }
        if !value.value.secret.expose().iter().all(|byte| matches!(byte, b' '..=b'~')) {
            let what = "has characters that are not allowed in a header field";
            error_at(value, &path, "value", what, "look for line ends in the secret", reader);
        }
        fields.push((name.value.0.to_ascii_lowercase().into(), value.value.secret.clone()));
    }
    fields
}

fn file(
    of: &ListenerContext<'_>,
    section: &ListenerFlagsSection,
    path: &str,
    reader: &mut Reader<'_>,
) -> Option<FileSource> {
    let kinds = [
        (&section.client_tokens, "client_tokens", TokenType::Backend),
        (&section.frontend_tokens, "frontend_tokens", TokenType::Frontend),
    ];
    let mut all: Vec<Token> = Vec::new();
    for (list, key, kind) in kinds {
        for token in tokens(list, path, key, reader, |text| Token::parse_offline(text, Some(kind))) {
            // A token of both lists is one of both APIs.
            match all.iter_mut().find(|known| known.secret() == token.secret()) {
                Some(known) if known.kind() != token.kind() => *known = known.clone().without_type(),
                Some(_) => {}
                None => all.push(token),
            }
        }
    }
    if section.bootstrap_file.is_none() {
        if reader.lacks(section.bootstrap_file.as_ref(), path, "bootstrap_file") {
            let message = format!("`{}` has neither an upstream nor a file: there are no flags", of.path);
            let help = "add upstream = \"unleash\", or bootstrap_file = \"features.json\" in [listener.flags]";
            reader.problems.error(&of.section.place.0, of.path, message, help);
        }
        return None;
    }
    let lists = [(&section.client_tokens, "client_tokens"), (&section.frontend_tokens, "frontend_tokens")];
    if lists.iter().all(|(list, key)| reader.lacks(list.as_ref(), path, key)) {
        let message = format!("`{path}` has no tokens: every request would get 403");
        let help = "add client_tokens = [\"env:CLIENT_TOKEN\"] or frontend_tokens";
        reader.problems.error(&of.section.place.0, path, message, help);
    }
    let written = section.bootstrap_file.as_ref()?;
    Some(FileSource {
        path: reader.directory.join(&written.value.0),
        tokens: all.into(),
        reload_interval: section.reload_interval.value.0,
    })
}

/// The tokens of a list of secrets, each of which may have several. A text that is no token is reported, without a part of it.
fn tokens(
    list: &Option<At<Vec<At<SecretRef>>>>,
    path: &str,
    key: &str,
    reader: &mut Reader<'_>,
    read: impl Fn(&str) -> Result<Token, TokenError>,
) -> Vec<Token> {
    let mut tokens = Vec::new();
    for one in list.iter().flat_map(|list| &list.value) {
        let text = one.value.secret.expose_str().unwrap_or_default();
        for text in text.split(',').map(str::trim).filter(|text| !text.is_empty()) {
            match read(text) {
                Ok(token) => tokens.push(token),
                Err(error) => {
                    let help = "write the token that the server shows, or several separated by commas, into the secret";
                    error_at(one, path, key, &format!("cannot be used: {error}"), help, reader);
                }
            }
        }
    }
    tokens
}
