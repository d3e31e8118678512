//! Listeners: the network filter of a chain says which protocol it is.

use super::{Importer, address, duration, millis};
use crate::model::{Listener, Protocol};
use crate::note::Mistake;
use crate::toml::{Table, Value};
use crate::yaml::Node;

/// Milliseconds of an hour (Envoy's default for idle connections), and of 30 days.
const HOUR: u64 = 3_600_000;
const MONTH: u64 = 30 * 24 * HOUR;

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
