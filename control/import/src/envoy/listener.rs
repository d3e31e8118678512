//! Listeners: the network filter of a chain says which protocol it is.

use super::{Importer, address, duration, millis};
use crate::field;
use crate::model::{Listener, Protocol};
use crate::note::Mistake;
use crate::toml::{Table, Value};
use crate::yaml::Node;

/// Milliseconds of an hour (Envoy's default for idle connections), of a day, and of 30 days.
const HOUR: u64 = 3_600_000;
const DAY: u64 = 86_400_000;
const MONTH: u64 = 30 * DAY;

/// Milliseconds that a stream may be silent in Envoy.
const STREAM_IDLE: u64 = 300_000;

/// Filters of HTTP that are read: the router is what Weir does.
const ROUTER: &str = "envoy.filters.http.router";

impl<'n> Importer<'n> {
    pub(super) fn listener(&mut self, node: &'n Node) -> Result<(), Mistake> {
        let Some(own) = node.get("address") else {
            return Err(Mistake::new(&node.place, "a listener needs an address"));
        };
        if own.text_at("socket_address.protocol") == Some("UDP") {
            self.note(own, "address", "UDP is not served", "");
            return Ok(());
        }
        let bind = address(own)?;
        self.rest(node, &["address", "filter_chains", "default_filter_chain", "listener_filters"], "listener");
        let mut listener = Listener {
            name: self.listener_names.unique(node.text_at("name").unwrap_or("listener")),
            bind,
            protocol: Protocol::Tcp,
            upstream: String::new(),
            more: Table::default(),
            notes: Vec::new(),
        };
        for filter in node.items_at("listener_filters") {
            match filter.text_at("name").unwrap_or_default() {
                "envoy.filters.listener.proxy_protocol" => listener.more.set("proxy_protocol", Value::text("any")),
                "envoy.filters.listener.tls_inspector" => {}
                other => self.note(filter, other, "a listener has no filters", ""),
            }
        }
        let chains: Vec<&Node> =
            node.items_at("filter_chains").iter().chain(node.get("default_filter_chain")).collect();
        let Some(first) = chains.first() else {
            return Err(Mistake::new(&node.place, "a listener needs a filter chain"));
        };
        let sends_by_name = chains.len() > 1 && chains.iter().all(|chain| is_passthrough(chain));
        for chain in &chains {
            self.rest(chain, &["filters", "filter_chain_match", "transport_socket"], "filter_chain");
            self.chain_match(chain, chains.len() == 1, sends_by_name);
        }
        if sends_by_name {
            self.by_name(&chains, &mut listener)?;
        } else {
            for chain in &chains[1..] {
                let why = "a listener has one filter chain; only the certificates of further chains are used";
                self.note(chain, "filter_chains", why, "a [[listener]] of its own");
            }
            self.certificates(&chains, &mut listener)?;
            self.chain(first, &mut listener)?;
        }
        self.config.listeners.push(listener);
        Ok(())
    }

    /// Notes on what a chain demands of connections: nothing here refuses those that differ.
    fn chain_match(&mut self, chain: &'n Node, is_alone: bool, is_tls: bool) {
        let Some(matched) = chain.get("filter_chain_match") else { return };
        let own = if is_tls || chain.get("transport_socket").is_some() { "tls" } else { "raw_buffer" };
        let mut read = Vec::new();
        if matched.text_at("transport_protocol") == Some(own) {
            read.push("transport_protocol");
        }
        // With several chains they are the names of the certificate, or of the upstream.
        if !is_alone {
            read.push("server_names");
        }
        self.rest(matched, &read, "filter_chain_match");
    }

    /// Chains for server names of TLS that goes through unopened.
    fn by_name(&mut self, chains: &[&'n Node], listener: &mut Listener) -> Result<(), Mistake> {
        listener.protocol = Protocol::Tls;
        let (mut idles, mut longest) = (Vec::new(), 0);
        for chain in chains {
            let names: Vec<&str> = chain.items_at("filter_chain_match.server_names").iter().map(Node::text).collect();
            self.further_filters(chain);
            let (upstream, idle) = self.tcp_proxy(chain)?;
            longest = longest.max(idle);
            idles.push((idle, *chain));
            // Envoy ends connections that no chain is for: without a chain for all they go nowhere.
            if names.is_empty() {
                listener.upstream.clone_from(&upstream);
            }
            if !names.is_empty() {
                let mut table = Table::default();
                table.set("names", Value::texts(names));
                table.set("upstream", Value::text(upstream));
                listener.more.push("server_name", table);
            }
        }
        for (_, chain) in idles.iter().filter(|(idle, _)| *idle != longest) {
            self.note(chain, "tcp_proxy.idle_timeout", "a listener has one timeout: the longest value", "idle_timeout");
        }
        set_idle_timeout(listener, longest);
        Ok(())
    }

    /// Notes on the filters of a chain in front of the one that says its protocol.
    fn further_filters(&mut self, chain: &'n Node) {
        for filter in chain.items_at("filters") {
            let name = filter.text_at("name").unwrap_or_default();
            let is_last =
                ["http_connection_manager", "redis_proxy", "tcp_proxy"].iter().any(|known| is_called(filter, known));
            if !is_last {
                self.note(filter, name, "a listener has no further filters", "policies of a [[route]]");
            }
        }
    }

    fn chain(&mut self, chain: &'n Node, listener: &mut Listener) -> Result<(), Mistake> {
        self.further_filters(chain);
        if let Some((_, config)) = filter_of(chain, "http_connection_manager") {
            listener.protocol = Protocol::Http;
            return self.http(config, listener);
        }
        if let Some((_, config)) = filter_of(chain, "redis_proxy") {
            listener.protocol = Protocol::Redis;
            return self.redis(config, listener);
        }
        let (upstream, idle) = self.tcp_proxy(chain)?;
        listener.upstream = upstream;
        set_idle_timeout(listener, idle);
        Ok(())
    }

    /// The upstream of a chain with `tcp_proxy`, and the milliseconds that a connection may be idle; `u64::MAX`: no limit.
    fn tcp_proxy(&mut self, chain: &'n Node) -> Result<(String, u64), Mistake> {
        let Some((filter, config)) = filter_of(chain, "tcp_proxy") else {
            return Err(Mistake::new(
                &chain.place,
                "no filter of the chain is http_connection_manager, redis_proxy or tcp_proxy",
            ));
        };
        self.rest(config, &["cluster", "idle_timeout"], "tcp_proxy");
        let Some(cluster) = config.get("cluster") else {
            return Err(Mistake::new(&filter.place, "tcp_proxy needs a cluster"));
        };
        let upstream = self.cluster(cluster.text(), "tcp", cluster)?;
        let idle = match millis(config, "idle_timeout")?.unwrap_or(HOUR) {
            0 => u64::MAX,
            time => time,
        };
        Ok((upstream, idle))
    }

    fn http(&mut self, config: &'n Node, listener: &mut Listener) -> Result<(), Mistake> {
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
            "normalize_path",
            "merge_slashes",
            "path_with_escaped_slashes_action",
            "forward_client_cert_details",
            // Hosts are compared without their port.
            "strip_any_host_port",
            "strip_matching_host_port",
        ];
        self.rest(config, &read, "http_connection_manager");
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
        self.forwarded(config, listener)?;
        self.paths(config, listener);
        let has_websocket =
            config.items_at("upgrade_configs").iter().any(|one| one.text_at("upgrade_type") == Some("websocket"));
        if has_websocket {
            listener.more.set("http.upgrades", Value::texts(["websocket"]));
        }
        if config.get("generate_request_id").is_none_or(Node::is_true) {
            listener.more.set("http.request_id", Value::Flag(true));
        }
        http_timeouts(config, listener)?;
        let Some(routes) = config.get("route_config") else {
            return Err(Mistake::new(
                &config.place,
                "http_connection_manager has no route_config; routes from xDS cannot be imported",
            ));
        };
        self.routes(routes, &listener.name)
    }

    /// The fields by which proxies describe clients. Those of a client that no trusted proxy stands in front of are worth nothing.
    fn forwarded(&mut self, config: &'n Node, listener: &mut Listener) -> Result<(), Mistake> {
        let hops = config.get("xff_num_trusted_hops").map_or(Ok(0), |node| node.number("xff_num_trusted_hops"))?;
        let is_edge = config.get("use_remote_address").is_some_and(Node::is_true);
        // With use_remote_address Envoy appends the address of the peer; without it leaves the field as it came.
        listener.more.set("http.forwarded", Value::text(if is_edge { "append" } else { "keep" }));
        if hops > 0 {
            listener.more.set("http.trusted_hops", Value::Number(hops.min(16)));
        }
        if !is_edge {
            let why = "Envoy adds X-Forwarded-Proto to requests without it; here none is added";
            let nearest = "listener.http.forwarded = \"append\"";
            self.note(config.get("use_remote_address").unwrap_or(config), "use_remote_address", why, nearest);
        }
        self.every_request.clear();
        if is_edge && hops == 0 {
            let scheme = if listener.more.get("tls.cert_file").is_some() { "https" } else { "http" };
            self.every_request.extend(field::change("set", "x-forwarded-proto", Some(scheme.to_owned())));
        }
        let details = config.text_at("forward_client_cert_details").unwrap_or("SANITIZE");
        if let Some(node) = config.get("forward_client_cert_details").filter(|_| details != "SANITIZE") {
            let why = "the field is not written; a client's own is removed, or kept as it is";
            self.note(node, "forward_client_cert_details", why, "listener.http.forwarded_client_cert");
        }
        // Two of them forward the field of clients with a certificate, and remove that of others.
        let has_certificates = listener.more.get("tls.client_auth") == Some(&Value::text("required"));
        let is_kept = match details {
            "ALWAYS_FORWARD_ONLY" => true,
            "FORWARD_ONLY" | "APPEND_FORWARD" => has_certificates,
            _ => false,
        };
        if !is_kept {
            self.every_request.extend(field::change("remove", "x-forwarded-client-cert", None));
        }
        Ok(())
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
                listener.more.set("http.path_backslash", Value::text("keep"));
            }
            "REJECT_REQUEST" | "IMPLEMENTATION_SPECIFIC_DEFAULT" => {}
            other => {
                let directive = format!("path_with_escaped_slashes_action: {other}");
                self.note(node, &directive, "requests with %2F or %5C get 400", "path_escaped_slash");
            }
        }
    }

    fn redis(&mut self, config: &'n Node, listener: &mut Listener) -> Result<(), Mistake> {
        self.rest(
            config,
            &["settings", "prefix_routes", "downstream_auth_password", "downstream_auth_passwords"],
            "redis_proxy",
        );
        let settings = config.get("settings");
        if let Some(settings) = settings {
            self.rest(settings, &["op_timeout", "enable_hashtagging"], "settings");
        }
        for route in config.items_at("prefix_routes.routes") {
            self.note(
                route,
                "prefix_routes.routes",
                "keys of one listener go to one upstream",
                "a [[listener]] of its own",
            );
        }
        let Some(cluster) = config.at("prefix_routes.catch_all_route.cluster") else {
            return Err(Mistake::new(&config.place, "redis_proxy needs prefix_routes.catch_all_route.cluster"));
        };
        let passwords =
            ["downstream_auth_password", "downstream_auth_passwords"].iter().find_map(|key| config.get(key));
        if let Some(node) = passwords {
            listener.more.set("redis.password", Value::secret("REDIS_PASSWORD"));
            let why = "passwords are not written to the file: set REDIS_PASSWORD in the environment of Weir";
            self.note(node, "downstream_auth_password", why, "password = { file = \"/path\" }");
        }
        listener.upstream = self.cluster(cluster.text(), "redis", cluster)?;
        let name = listener.upstream.clone();
        let Some(upstream) = self.config.upstreams.iter_mut().find(|upstream| upstream.name == name) else {
            return Ok(());
        };
        if let Some(time) = millis(config, "settings.op_timeout")?.filter(|time| *time > 0) {
            upstream.more.set("request_timeout", duration(time, 3_600_000));
        }
        let has_tags = settings.and_then(|settings| settings.get("enable_hashtagging")).is_some_and(Node::is_true);
        if has_tags && upstream.endpoints.len() > 1 {
            upstream.more.set("sharding.hash_tag", Value::text("{}"));
        }
        Ok(())
    }
}

/// Always written: without the key, listeners of TCP and TLS end a connection that is silent for 10 minutes.
fn set_idle_timeout(listener: &mut Listener, millis: u64) {
    listener.more.set("idle_timeout", duration(millis.max(100), MONTH));
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

fn is_passthrough(chain: &Node) -> bool {
    chain.get("transport_socket").is_none() && filter_of(chain, "tcp_proxy").is_some()
}

/// A filter is known by the type of its configuration, for its name is free.
fn is_called(filter: &Node, name: &str) -> bool {
    let kind = filter.text_at("typed_config.@type").unwrap_or_default();
    kind.contains(&format!(".{name}."))
        || filter.text_at("name").is_some_and(|own| own == format!("envoy.filters.network.{name}"))
}

fn filter_of<'n>(chain: &'n Node, name: &str) -> Option<(&'n Node, &'n Node)> {
    let filter = chain.items_at("filters").iter().find(|filter| is_called(filter, name))?;
    Some((filter, filter.get("typed_config")?))
}
