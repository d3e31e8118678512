//! HTTP.
//!
//! | file | concept |
//! |---|---|
//! | `listener`, `upstream` | `[listener.http]`, `[upstream.http]`: the keys, and the step to settings |
//! | `handling` | keys that a domain or a route overrides |
//! | `policy` | the tables of policies, and the files that they name |
//! | `domain`, `route` | `[[domain]]`, `[[route]]`: the keys |
//! | `checks` | relations between these keys, and the step to the routes of a listener |

mod checks;
mod domain;
mod handling;
mod listener;
mod policy;
mod route;
mod upstream;

pub(crate) use weir_http::settings::HttpListenerSettings as ListenerSettings;

pub use self::checks::RouteObject;
pub(crate) use self::checks::cors_settings;
pub(crate) use self::handling::is_framing;
pub(crate) use self::policy::CorsSection;
pub use self::upstream::HttpUpstreamSettings;

pub(crate) use self::upstream::HttpUpstreamSettings as UpstreamSettings;

/// The routes of the file, in its order.
pub(crate) type ProcessSettings = Vec<RouteObject>;

use self::route::InvalidRoutes;
use crate::checks::{error_at, find_upstream};
use crate::document::At;
use crate::protocols::{ListenerContext, NoKeys, Protocol, ProtocolName, Unfit, UpstreamContext};
use crate::reader::Reader;
use crate::section::section;
use crate::sections::FileSection;
use crate::snapshot::{Listener, Upstream};
use crate::texts::Name;

section! {
    /// Keys of a listener.
    pub(crate) struct ListenerKeys {
        /// Settings of HTTP listeners only.
        table http: listener::ListenerHttpSection;
    }
}

section! {
    /// Keys of an upstream.
    pub(crate) struct UpstreamKeys {
        /// Settings of HTTP upstreams only.
        table http: upstream::UpstreamHttpSection;
    }
}

section! {
    /// Keys of the file.
    pub(crate) struct FileKeys {
        /// Treatment of a `[[route]]` or `[[domain]]` with a mistake in its actions (upstreams, policies, rewrites). `refuse`
        /// rejects the whole file. `unavailable` responds with 503 to the requests of the affected routes, and serves all other
        /// routes. A mistake in the conditions of a route or domain always rejects the file. `weir check` reports all mistakes.
        default invalid_routes: InvalidRoutes = InvalidRoutes::Refuse;
        /// Settings shared by the routes of certain hosts.
        tables domain: domain::DomainSection;
        /// Routes of HTTP listeners, which decide where requests go.
        tables route: route::RouteSection;
    }
}

/// See [`Protocol`].
pub(crate) struct Http;

impl Protocol for Http {
    type ListenerKeys = ListenerKeys;
    type UpstreamKeys = UpstreamKeys;
    type FileKeys = FileKeys;
    type TelemetryKeys = NoKeys;
    type Listener = ListenerSettings;
    type Upstream = UpstreamSettings;
    type Process = ProcessSettings;
    type File<'f> = Vec<checks::CheckedRoute>;

    const ALPN: &'static [&'static str] = &["h2", "http/1.1"];
    // Messages of a WebSocket are no requests, and are not counted.
    const SCENARIOS: &'static [&'static str] = &["http1", "http2"];

    fn unfit_at_listener(_: ProtocolName) -> &'static [Unfit] {
        const USERS: &str = "write [listener.http.basic_auth] with users_file = \"users.htpasswd\"";
        const REDIS: &str = "remove it, or write [listener.http]; for HTTP clients, see basic_auth, api_key and jwt";
        &[
            Unfit(&["output_hard_cap"], "remove it: a client that reads slowly delays only itself"),
            Unfit(&["users_file", "user"], USERS),
            Unfit(&["redis"], REDIS),
            Unfit(&["server_name"], "write [[route]] with hosts"),
        ]
    }

    fn unfit_at_upstream(_: ProtocolName) -> &'static [Unfit] {
        const LANES: &[&str] = &["shared_lanes", "pinned_lanes_max", "pinned_lanes_idle_max", "lane_in_flight_max"];
        const ENDPOINTS: &[&str] = &["topology", "read_from", "zone", "sentinel"];
        const TIMEOUT: &str = "see response_timeout and request_timeout of [listener.http] and [[route]]";
        &[
            Unfit(&["request_timeout"], TIMEOUT),
            Unfit(LANES, "see connections_max of [upstream.http]"),
            Unfit(ENDPOINTS, "list the endpoints, and set balance"),
            Unfit(&["sharding"], "see balance: ring_hash and maglev"),
            Unfit(&["reconnect"], "remove it: connections are made when they are needed"),
            Unfit(&["redis"], "remove it: the gateway logs in at Redis servers only"),
            Unfit(&["tcp"], "remove it, or write [upstream.http]"),
        ]
    }

    fn upstreams_of_listener(keys: &ListenerKeys) -> Vec<&At<Name>> {
        keys.http.policies.upstreams().map(|(_, upstream)| upstream).collect()
    }

    fn upstreams_of_file(keys: &FileKeys) -> Vec<&At<Name>> {
        let of_domains = keys.domain.iter().flat_map(|domain| domain.policies.upstreams());
        let of_routes = keys.route.iter().flat_map(|route| route.upstreams());
        of_routes.chain(of_domains.map(|(_, upstream)| upstream)).collect()
    }

    fn file(file: &FileSection, reader: &mut Reader<'_>) -> Vec<checks::CheckedRoute> {
        checks::routes(file, reader)
    }

    fn listener(
        routes: &Vec<checks::CheckedRoute>,
        of: &mut ListenerContext<'_>,
        reader: &mut Reader<'_>,
    ) -> Option<ListenerSettings> {
        let (section, path) = (&of.section.own.http.http, format!("{}.http", of.path));
        listener::check(of, &path, reader);
        checks::idle::listener(of, reader);
        for (key, upstream) in section.policies.upstreams() {
            find_upstream(of.file, upstream, &path, key, reader);
        }
        let rules = checks::rules(&section.policies, &path, reader);
        let name = of.section.name.as_ref()?;
        if rules.wants_authorization_twice() {
            let what = "requires two kinds of credentials in one Authorization header";
            error_at(name, of.path, "name", what, "set another header for one of them", reader);
        }
        let upstream = of.section.upstream.as_ref()?.value.0.clone();
        let routes = checks::of_listener(routes, &name.value.0, upstream, &rules, reader);
        Some(listener::settings(section, routes, &path, reader))
    }

    fn upstream(of: &mut UpstreamContext<'_>, reader: &mut Reader<'_>) -> UpstreamSettings {
        let (section, path) = (&of.section.own.http.http, format!("{}.http", of.path));
        checks::idle::upstream(of, reader);
        listener::check_windows(
            &section.stream_window,
            &section.stream_window_max,
            &path,
            ("stream_window", "stream_window_max"),
            reader,
        );
        if let Some(tls) = of.settings.as_mut().and_then(|settings| settings.tls.as_mut()) {
            tls.alpn = upstream::alpn(section);
        }
        upstream::settings(section, of.endpoints, &path, reader)
    }

    fn process(
        file: &FileSection,
        routes: Vec<checks::CheckedRoute>,
        listeners: &[Listener],
        _: &mut [Upstream],
        reader: &mut Reader<'_>,
    ) -> ProcessSettings {
        checks::shadow::check(listeners, &routes, reader);
        checks::objects(file, &routes)
    }
}
