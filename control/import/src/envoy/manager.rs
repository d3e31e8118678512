//! The filter `http_connection_manager` of a listener.

use super::{Importer, duration, millis};
use crate::model::Listener;
use crate::note::Mistake;
use crate::toml::{Table, Value};
use crate::yaml::Node;

/// Milliseconds of an hour (Envoy's default for idle connections), and of a day.
const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

/// Milliseconds that a stream may be silent in Envoy.
const STREAM_IDLE: u64 = 300_000;

/// The filter that needs no counterpart: Weir itself is the router.
const ROUTER: &str = "envoy.filters.http.router";

impl<'n> Importer<'n> {
    pub(super) fn http(&mut self, config: &'n Node, listener: &mut Listener) -> Result<(), Mistake> {
        let read = [
            "route_config",
            "http_filters",
            "use_remote_address",
            "xff_num_trusted_hops",
            "upgrade_configs",
            "stream_idle_timeout",
            "request_headers_timeout",
            "common_http_protocol_options",
            "generate_request_id",
            "preserve_external_request_id",
            "normalize_path",
            "merge_slashes",
            "path_with_escaped_slashes_action",
            "forward_client_cert_details",
            "strip_any_host_port",
            "strip_matching_host_port",
            "scheme_header_transformation",
        ];
        self.rest(config, &read, "http_connection_manager");
        if let Some(scheme) = config.get("scheme_header_transformation") {
            self.rest(scheme, &["scheme_to_overwrite"], "scheme_header_transformation");
            if let Some(node) = scheme.get("scheme_to_overwrite") {
                let why = "`:scheme` of HTTP/2 upstreams stays that of their connection";
                self.note(node, "scheme_to_overwrite", why, "");
            }
        }
        if let Some(options) = config.get("common_http_protocol_options") {
            self.rest(options, &["idle_timeout"], "common_http_protocol_options");
        }
        for filter in config.items_at("http_filters") {
            let name = filter.text_at("name").unwrap_or_default();
            if name != ROUTER {
                self.note(
                    filter,
                    name,
                    "filters are policies of a listener or a route",
                    "ip_filter, jwt, rate_limit, cors, ext_auth, compression",
                );
            }
        }
        self.arrival(config, listener)?;
        self.paths(config, listener);
        for key in ["strip_any_host_port", "strip_matching_host_port"] {
            if let Some(node) = config.get(key).filter(|node| node.is_true()) {
                let why = "hosts are compared without their port, but the upstream gets the Host with its port";
                self.note(node, key, why, "[route.rewrite] host");
            }
        }
        let has_websocket =
            config.items_at("upgrade_configs").iter().any(|one| one.text_at("upgrade_type") == Some("websocket"));
        if has_websocket {
            listener.more.set("http.upgrades", Value::texts(["websocket"]));
        }
        http_timeouts(config, listener)?;
        let Some(routes) = config.get("route_config") else {
            return Err(Mistake::new(
                &config.place,
                "http_connection_manager has no route_config; routes from xDS cannot be imported",
            ));
        };
        self.domain = listener.name.clone();
        self.routes(routes, &listener.name)?;
        self.push_domain();
        Ok(())
    }

    /// The settings that the routes with an upstream share: the headers that Envoy rewrites in every request, and no retries.
    fn push_domain(&mut self) {
        let name = Value::text(&self.domain);
        if !self.config.routes.iter().any(|route| route.more.get("domain") == Some(&name)) {
            return;
        }
        let mut table = Table::default();
        table.set("name", name);
        // Envoy retries nothing unless a route says so.
        table.set("retry", Value::inline([("attempts", Value::Number(0))]));
        table.set("request_header", Value::List(self.every_request.clone()));
        self.config.domains.push(table);
    }

    /// The normalisation of paths before routes see them. Without a key it is Weir's.
    fn paths(&mut self, config: &'n Node, listener: &mut Listener) {
        if config.get("merge_slashes").is_some_and(|node| !node.is_true()) {
            listener.more.set("http.path_merge_slashes", Value::Flag(false));
        }
        if let Some(node) = config.get("normalize_path").filter(|node| !node.is_true()) {
            self.note(node, "normalize_path", "dot segments are always resolved", "");
        }
        let Some(node) = config.get("path_with_escaped_slashes_action") else { return };
        match node.text() {
            "KEEP_UNCHANGED" => {
                listener.more.set("http.path_escaped_slash", Value::text("keep"));
                match config.get("normalize_path").is_some_and(Node::is_true) {
                    false => listener.more.set("http.path_backslash", Value::text("keep")),
                    // A server that reads it as a slash would see another path than the routes.
                    true => {
                        let why =
                            "requests with a backslash or %5C get 400; Envoy makes a backslash a slash, and keeps %5C";
                        self.note(node, "path_with_escaped_slashes_action: KEEP_UNCHANGED", why, "path_backslash");
                    }
                }
            }
            "REJECT_REQUEST" | "IMPLEMENTATION_SPECIFIC_DEFAULT" => {}
            other => {
                let directive = format!("path_with_escaped_slashes_action: {other}");
                self.note(node, &directive, "requests with %2F or %5C get 400", "path_escaped_slash");
            }
        }
    }
}

/// Limits of time, 0 of which is none in Envoy. Its defaults are written where Weir's are shorter.
fn http_timeouts(config: &Node, listener: &mut Listener) -> Result<(), Mistake> {
    let no_limit = |time: u64, max: u64| duration(if time == 0 { max } else { time }, max);
    let idle = no_limit(millis(config, "stream_idle_timeout")?.unwrap_or(STREAM_IDLE), DAY);
    for key in ["body_idle_timeout", "response_idle_timeout", "grpc_idle_timeout"] {
        listener.more.set(&format!("http.{key}"), idle.clone());
    }
    // Envoy has no limit unless one is written. Weir's stays then: a head that never ends would hold its connection.
    if let Some(time) = millis(config, "request_headers_timeout")? {
        listener.more.set("head_timeout", no_limit(time, HOUR));
    }
    let kept = millis(config, "common_http_protocol_options.idle_timeout")?.unwrap_or(HOUR);
    listener.more.set("http.keep_alive_timeout", no_limit(kept, DAY));
    Ok(())
}
