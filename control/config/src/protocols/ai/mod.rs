//! AI.
//!
//! | file | concept |
//! |---|---|
//! | `keys` | the declarations |
//! | `agents` | servers of MCP and agents of A2A |
//! | `attribution` | header fields by which clients attribute requests |
//! | `clients` | the keys of clients and their policies |
//! | `cache` | the exact cache |
//! | `models` | models and their targets |
//! | `prices` | prices of tokens |
//! | `provider` | the provider behind an upstream |
//! | `store` | the store of budgets that several gateways share |

mod agents;
mod attribution;
mod cache;
mod clients;
mod keys;
mod models;
mod prices;
mod provider;
mod store;

use std::path::PathBuf;

pub(crate) use weir_ai::settings::{AiListenerSettings as ListenerSettings, SpendSettings as ProcessSettings};
use weir_ai::settings::{KeyMode, Provider};
use weir_engine::settings::Address;

pub(crate) use self::AiUpstreamSettings as UpstreamSettings;
use crate::checks::{error_at, is_local, warn_at, workers};
use crate::document::At;
use crate::protocols::http::{Http, HttpUpstreamSettings};
use crate::protocols::{ListenerContext, ListenerProtocol, NoKeys, Protocol, ProtocolName, Unfit, UpstreamContext};
use crate::reader::Reader;
use crate::sections::FileSection;
use crate::snapshot::{Listener, Upstream};
use crate::texts::Name;

/// Settings of an upstream of AI listeners.
#[derive(Clone, Debug, PartialEq)]
pub struct AiUpstreamSettings {
    /// Its connections.
    pub http: HttpUpstreamSettings,
    /// The provider.
    pub provider: std::sync::Arc<Provider>,
}

/// See [`Protocol`].
pub(crate) struct Ai;

impl Protocol for Ai {
    type ListenerKeys = keys::ListenerKeys;
    type UpstreamKeys = keys::UpstreamKeys;
    type FileKeys = keys::FileKeys;
    type TelemetryKeys = NoKeys;
    type Listener = ListenerSettings;
    type Upstream = UpstreamSettings;
    type Process = ProcessSettings;
    type File<'f> = ();

    const ALPN: &'static [&'static str] = Http::ALPN;
    const SHARED_UPSTREAM_KEYS: &'static [&'static str] = &["http"];

    fn unfit_at_listener(_: ProtocolName) -> &'static [Unfit] {
        &[
            Unfit(&["output_hard_cap"], "remove it: a client that reads slowly delays only itself"),
            Unfit(&["users_file", "user", "redis"], "write [[listener.ai.key]] with name and sha256"),
            Unfit(&["http"], "write [listener.ai]"),
            Unfit(&["server_name"], "write [[listener.ai.model]]"),
            Unfit(&["half_close_timeout"], "remove it: a client that closes its direction is disconnected"),
        ]
    }

    fn unfit_at_upstream(name: ProtocolName) -> &'static [Unfit] {
        Http::unfit_at_upstream(name)
    }

    fn upstreams_of_listener(keys: &keys::ListenerKeys) -> Vec<&At<Name>> {
        let targets = keys.ai.model.iter().flat_map(|model| &model.target);
        let servers = keys.ai.mcp.iter().map(|server| &server.upstream);
        let agents = keys.ai.a2a.iter().map(|agent| &agent.upstream);
        targets.map(|target| &target.upstream).chain(servers).chain(agents).flatten().collect()
    }

    fn file(_: &FileSection, _: &mut Reader<'_>) {}

    fn listener((): &(), of: &mut ListenerContext<'_>, reader: &mut Reader<'_>) -> Option<ListenerSettings> {
        check_open(of, reader);
        let (section, path) = (&of.section.own.ai.ai, format!("{}.ai", of.path));
        let keys = clients::keys(of, &path, reader);
        let (mut upstreams, models) = models::models(of, &path, reader);
        let agents = agents::agents(of, &path, &mut upstreams, reader);
        let federations = agents::federations(of, &path, &agents, reader);
        let prices = prices::table(section, &path, reader);
        models::check_balances(of, &prices, &path, reader);
        Some(ListenerSettings {
            key_mode: section.keys.value,
            keys: keys.into(),
            models: models.into(),
            agents: agents.into(),
            federations: federations.into(),
            prices: prices.into(),
            upstreams,
            first_token_timeout: section.first_token_timeout.value.0,
            token_gap_timeout: section.token_gap_timeout.value.0,
            request_timeout: section.request_timeout.value.0,
            drain_on_disconnect: section.drain_on_disconnect.value.0,
            body_bytes_max: section.body_bytes_max.value.bytes(),
            reserved_output_tokens: section.reserved_output_tokens.value.into(),
            recent_body_bytes_max: section.recent_body_bytes_max.value.bytes() as usize,
            attribution: attribution::fields(&section.attribution, &path, reader),
            refuses_web_pages: is_for_this_machine(of),
            cache: cache::of_listener(section, &path, reader),
            ring: Default::default(),
        })
    }

    fn upstream(of: &mut UpstreamContext<'_>, reader: &mut Reader<'_>) -> UpstreamSettings {
        let (mut http, provider) = (Http::upstream(of, reader), provider::provider(of, reader));
        provider::check_health(of, &provider, &mut http.probe, reader);
        AiUpstreamSettings { http, provider: provider.into() }
    }

    fn process(
        file: &FileSection,
        (): (),
        listeners: &[Listener],
        _: &mut [Upstream],
        reader: &mut Reader<'_>,
    ) -> ProcessSettings {
        let section = &file.own.ai.ai;
        let cache = cache::bounds(section, reader);
        let recent_requests = section.recent_requests.value as usize;
        let recent_bodies_bytes_max = section.recent_bodies_bytes_max.value.bytes() as usize;
        let is_idle =
            !listeners.is_empty() && !listeners.iter().any(|listener| listener.protocol_name == ProtocolName::Ai);
        let (what, help) =
            ("has no effect: there is no AI listener", "add a [[listener]] with protocol = \"ai\", or remove it");
        if is_idle && section.recent_requests.is_given {
            warn_at(&section.recent_requests, "ai", "recent_requests", what, help, reader);
        }
        check_bodies(file, listeners, reader);
        let store = store::settings(section, listeners, reader);
        let Some(state) = &section.state else {
            return ProcessSettings { state: None, cache, recent_requests, recent_bodies_bytes_max, store: None };
        };
        if !state.value.0.starts_with('/') {
            error_at(
                state,
                "ai",
                "state",
                "is not an absolute path",
                "begin it with a slash: \"/var/lib/weir/ai\"",
                reader,
            );
        }
        if is_idle {
            warn_at(state, "ai", "state", what, help, reader);
        }
        let state = Some(PathBuf::from(&state.value.0));
        ProcessSettings { state, cache, recent_requests, recent_bodies_bytes_max, store }
    }
}

/// Bodies that listeners keep need memory on each worker, and requests to which they belong.
fn check_bodies(file: &FileSection, listeners: &[Listener], reader: &mut Reader<'_>) {
    let section = &file.own.ai.ai;
    let bytes_max = |listener: &Listener| match &listener.protocol {
        ListenerProtocol::Ai(own) => Some(own.recent_body_bytes_max),
        _ => None,
    };
    let most = listeners.iter().filter_map(bytes_max).max().unwrap_or(0);
    let all = &section.recent_bodies_bytes_max;
    // A worker has its share, as `SpendState::share` divides them.
    let share = (all.value.bytes() as usize).div_ceil(workers(file, reader).unwrap_or(1).max(1));
    if 2 * most > share {
        let help = "raise it, or lower recent_body_bytes_max of the listeners";
        error_at(all, "ai", "recent_bodies_bytes_max", "has no room for one exchange on each worker", help, reader);
    }
    if most > 0 && section.recent_requests.value == 0 {
        let help = "raise it, or remove recent_body_bytes_max of the listeners";
        warn_at(&section.recent_requests, "ai", "recent_requests", "is 0, so no bodies are kept", help, reader);
    }
}

/// Everybody who reaches a listener without keys spends the operator's money.
fn check_open(of: &ListenerContext<'_>, reader: &mut Reader<'_>) {
    let (section, path) = (&of.section.own.ai.ai, format!("{}.ai", of.path));
    let is_open = section.keys.value == KeyMode::None && !is_local(of.section);
    if is_open && !section.allow_open.value {
        let bind = of.section.bind.as_ref().map(|bind| bind.value.0.to_string()).unwrap_or_default();
        let what = format!("lets all clients that reach {bind} spend money");
        let help = "write keys = \"required\" with [[listener.ai.key]], or allow_open = true";
        error_at(&section.keys, &path, "keys", &what, help, reader);
    }
    if section.allow_open.value && (section.keys.value == KeyMode::Required || is_unix(of)) {
        let what = "changes nothing here: it permits keys = \"none\" where other machines or browsers connect";
        warn_at(&section.allow_open, &path, "allow_open", what, "remove it", reader);
    }
}

/// Whether a listener has no keys, and an address that browsers of this machine reach. Pages of other sites must not use them.
fn is_for_this_machine(of: &ListenerContext<'_>) -> bool {
    let section = &of.section.own.ai.ai;
    section.keys.value == KeyMode::None && !section.allow_open.value && !is_unix(of)
}

/// Whether a listener is bound to a Unix socket, which no browser reaches.
fn is_unix(of: &ListenerContext<'_>) -> bool {
    matches!(of.section.bind.as_ref().map(|bind| &bind.value.0), Some(Address::Unix(_)))
}
