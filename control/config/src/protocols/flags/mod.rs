//! Feature flags.
//!
//! | file | concept |
//! |---|---|
//! | `keys` | the declarations |
//! | `source` | the source of the flags: a server, or a file |
//! | `backup` | the store of their copies |

mod backup;
mod keys;
mod source;

use std::sync::Arc;

use weir_flags::settings::Backstage;
pub(crate) use weir_flags::settings::FlagsListenerSettings as ListenerSettings;
use weir_http_codec::token;
use weir_policy::http::{AddressRules, Cors, CorsSettings, Effect, ForwardedFor, OriginRule, Source};

use self::keys::ListenerFlagsSection;
use crate::checks::error_at;
use crate::document::At;
pub(crate) use crate::protocols::http::HttpUpstreamSettings as UpstreamSettings;
use crate::protocols::http::{Http, cors_settings, is_framing};
use crate::protocols::{ListenerContext, NoKeys, Protocol, ProtocolName, Unfit, UpstreamContext};
use crate::reader::Reader;
use crate::sections::FileSection;
use crate::snapshot::{Listener, Upstream};
use crate::texts::{LongWord, Name};

/// Endpoints of a listener that names none.
const BACKSTAGE: [Backstage; 2] = [Backstage::Health, Backstage::Ready];

/// Seconds for which a browser may keep the response to a preflight: two days, as Unleash Edge.
const PREFLIGHT_SECONDS: u32 = 172_800;

/// Its listeners share nothing.
pub(crate) type ProcessSettings = ();

/// See [`Protocol`].
pub(crate) struct Flags;

impl Protocol for Flags {
    type ListenerKeys = keys::ListenerKeys;
    type UpstreamKeys = keys::UpstreamKeys;
    type FileKeys = NoKeys;
    type TelemetryKeys = NoKeys;
    type Listener = ListenerSettings;
    type Upstream = UpstreamSettings;
    type Process = ProcessSettings;
    type File<'f> = ();

    const ALPN: &'static [&'static str] = Http::ALPN;
    const SHARED_UPSTREAM_KEYS: &'static [&'static str] = &["http"];
    const NEEDS_UPSTREAM: bool = false;

    fn unfit_at_listener(_: ProtocolName) -> &'static [Unfit] {
        &[
            Unfit(&["output_hard_cap"], "remove it: a client that reads slowly delays only itself"),
            Unfit(&["users_file", "user", "redis"], "write tokens in [listener.flags]"),
            Unfit(&["http"], "write [listener.flags]"),
            Unfit(&["server_name"], "remove it: a flags listener has one upstream"),
            Unfit(&["half_close_timeout"], "remove it: a client that closes its direction is disconnected"),
        ]
    }

    fn unfit_at_upstream(name: ProtocolName) -> &'static [Unfit] {
        Http::unfit_at_upstream(name)
    }

    fn upstreams_of_listener(keys: &keys::ListenerKeys) -> Vec<&At<Name>> {
        keys.flags.backup_s3.iter().filter_map(|bucket| bucket.upstream.as_ref()).collect()
    }

    fn file(_: &FileSection, _: &mut Reader<'_>) {}

    fn listener((): &(), of: &mut ListenerContext<'_>, reader: &mut Reader<'_>) -> Option<ListenerSettings> {
        let (section, path) = (&of.section.own.flags.flags, format!("{}.flags", of.path));
        let source = source::source(of, &path, reader);
        let base_path = base_path(section.base_path.as_ref(), &path, reader);
        if section.redirect_https.value && of.section.tls.is_some() {
            let what = "has no effect: the listener has TLS";
            error_at(&section.redirect_https, &path, "redirect_https", what, "remove it", reader);
        }
        check_token_header(section, &path, reader);
        if section.streams_max.is_given && !section.streaming.value {
            let what = "has no effect: the listener has no streams";
            error_at(&section.streams_max, &path, "streams_max", what, "remove it, or streaming = false", reader);
        }
        let addresses = addresses(section, &path, reader);
        let cors = cors(section, &path, reader);
        let backstage = section
            .backstage
            .as_ref()
            .map_or_else(|| BACKSTAGE.into(), |list| list.value.iter().map(|one| one.value).collect());
        Some(ListenerSettings {
            source: source?,
            token_header: section.token_header.value.0.to_ascii_lowercase().into(),
            base_path,
            unknown_query_fields: section.unknown_query_fields.value,
            all_endpoint: section.all_endpoint.value,
            ofrep: section.ofrep.value,
            streaming: section.streaming.value,
            streams_max: section.streams_max.value as usize,
            backstage,
            metrics_bytes_max: section.metrics_bytes_max.value.bytes() as usize,
            forwarded_for: ForwardedFor::new(section.trusted_hops.value as u8).unwrap_or_default(),
            addresses,
            cors,
            redirect_https: section.redirect_https.value,
        })
    }

    fn upstream(of: &mut UpstreamContext<'_>, reader: &mut Reader<'_>) -> UpstreamSettings {
        let path = format!("{}.flags", of.path);
        base_path(of.section.own.flags.flags.base_path.as_ref(), &path, reader);
        Http::upstream(of, reader)
    }

    fn process(_: &FileSection, (): (), _: &[Listener], _: &mut [Upstream], _: &mut Reader<'_>) {}
}

/// Reports a field for tokens that no request can have.
fn check_token_header(section: &ListenerFlagsSection, path: &str, reader: &mut Reader<'_>) {
    let name = &section.token_header;
    if !token::is_token(name.value.0.as_bytes()) {
        error_at(name, path, "token_header", "is not a field name", "use letters, digits and hyphens", reader);
    } else if is_framing(&name.value.0) {
        let what = "is a field with another meaning";
        error_at(name, path, "token_header", what, "choose another name, such as \"X-Unleash-Token\"", reader);
    }
}

/// A prefix of paths, without the slash at its end. A mistake is reported.
fn base_path(written: Option<&At<LongWord>>, path: &str, reader: &mut Reader<'_>) -> Box<str> {
    let Some(written) = written else { return Box::default() };
    let text = &*written.value.0;
    if !text.starts_with('/') || text.contains(['?', '#', '%']) || text.contains("//") {
        error_at(written, path, "base_path", "is not a path", "write it as in \"/unleash\"", reader);
    }
    text.trim_end_matches('/').into()
}

fn addresses(section: &ListenerFlagsSection, path: &str, reader: &mut Reader<'_>) -> Option<Arc<AddressRules>> {
    let (effect, nets, key) = match (&section.allow, &section.deny) {
        (None, None) => return None,
        (Some(allow), None) => (Effect::Allow, allow, "allow"),
        (None, Some(deny)) => (Effect::Deny, deny, "deny"),
        (Some(_), Some(deny)) => {
            error_at(deny, path, "deny", "conflicts with allow", "keep one of them", reader);
            return None;
        }
    };
    let all: Vec<_> = nets.value.iter().map(|net| net.value).collect();
    match AddressRules::new(effect, Source::Peer, &all) {
        Ok(rules) => Some(Arc::new(rules)),
        Err(error) => {
            error_at(
                nets,
                path,
                key,
                &format!("cannot be used: {error}"),
                "write networks as in \"10.0.0.0/8\"",
                reader,
            );
            None
        }
    }
}

/// The pages that may read responses: all, unless the file says others.
fn cors(section: &ListenerFlagsSection, path: &str, reader: &mut Reader<'_>) -> Option<Cors> {
    let settings = match &section.cors {
        Some(own) if !own.enabled.value => return None,
        Some(own) => cors_settings(own),
        None => CorsSettings {
            origins: vec![OriginRule::Any],
            methods: ["PUT", "PATCH", "DELETE", "OPTIONS"].map(str::to_owned).to_vec(),
            // A star does not stand for this one (Fetch standard, "CORS non-wildcard request-header name").
            headers: vec!["*".to_owned(), "authorization".to_owned()],
            expose: vec!["*".to_owned()],
            max_age: Some(PREFLIGHT_SECONDS),
            ..CorsSettings::default()
        },
    };
    match Cors::new(&settings) {
        Ok(cors) => Some(cors),
        Err(error) => {
            let path = format!("{path}.cors");
            let message = format!("`{path}` cannot be used: {error}");
            let place = section.cors.as_ref().map_or(&section.place.0, |own| &own.place.0);
            reader.problems.error(place, &path, message, "see [listener.flags.cors] in docs/CONFIG.md");
            None
        }
    }
}
