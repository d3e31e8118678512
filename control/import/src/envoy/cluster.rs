//! Clusters become upstreams.

use super::{Importer, address, duration, millis};
use crate::model::Upstream;
use crate::note::{Mistake, Note};
use crate::toml::Value;
use crate::yaml::Node;

/// Milliseconds of an hour.
const HOUR: u64 = 3_600_000;

impl<'n> Importer<'n> {
    /// The name of the upstream of a cluster, which is made when a listener of this protocol first names it. `table` is `http`,
    /// `tcp` or `redis`; `at` names the cluster.
    pub(super) fn cluster(&mut self, name: &str, table: &'static str, at: &Node) -> Result<String, Mistake> {
        let key = (name.to_owned(), table);
        if let Some(made) = self.made.get(&key) {
            return Ok(made.clone());
        }
        let Some(&node) = self.clusters.get(name) else {
            return Err(Mistake::new(&at.place, format!("there is no cluster `{name}`")));
        };
        let read = [
            "name",
            "type",
            "connect_timeout",
            "lb_policy",
            "load_assignment",
            "health_checks",
            "circuit_breakers",
            "outlier_detection",
            "transport_socket",
            "typed_extension_protocol_options",
            "http2_protocol_options",
            "cluster_type",
        ];
        self.rest(node, &read, "cluster");
        let mut made = Upstream::new(self.upstream_names.unique(name), &node.place);
        // Envoy's default is 5 s.
        let connect = millis(node, "connect_timeout")?.unwrap_or(5_000);
        made.more.set("connect_timeout", duration(connect, HOUR));
        endpoints(node, table, &mut made)?;
        match table {
            "redis" => sharding(node, &mut made),
            _ => balance(node, table, &mut made),
        }
        if table != "redis" {
            breakers(node, table, &mut made)?;
        }
        if table == "http" {
            http(node, &mut made)?;
        }
        health(node, table, &mut made)?;
        self.cluster_tls(node, &mut made)?;
        let name = made.name.clone();
        self.config.upstreams.push(made);
        self.made.insert(key, name.clone());
        Ok(name)
    }
}

fn endpoints(node: &Node, table: &str, made: &mut Upstream) -> Result<(), Mistake> {
    let mut weights = Vec::new();
    let groups = node.items_at("load_assignment.endpoints");
    for one in groups.iter().flat_map(|group| group.items_at("lb_endpoints")) {
        let Some(own) = one.at("endpoint.address") else {
            return Err(Mistake::new(&one.place, "an endpoint needs an address"));
        };
        made.endpoints.push(crate::address::endpoint(&address(own)?, &own.place)?);
        weights.push(one.get("load_balancing_weight").map_or(Ok(1), |node| node.number("load_balancing_weight"))?);
    }
    if made.endpoints.is_empty() {
        return Err(Mistake::new(&node.place, format!("the cluster `{}` has no endpoints in the file", made.name)));
    }
    if weights.iter().any(|weight| *weight != weights[0]) {
        match table {
            "redis" => made.notes.push(Note::new(&node.place, "load_balancing_weight", "shards have no weights", "")),
            _ => made
                .more
                .set(&format!("{table}.weights"), Value::List(weights.into_iter().map(Value::Number).collect())),
        }
    }
    let later = groups.iter().filter_map(|group| group.get("priority")).find(|node| node.text() != "0");
    if let Some(priority) = later {
        made.notes.push(Note::new(
            &priority.place,
            "priority",
            "Weir has no backup endpoints: all are used alike",
            "weights",
        ));
    }
    Ok(())
}

/// Which endpoint holds a key: Envoy's ring and its Maglev are Weir's.
fn sharding(node: &Node, made: &mut Upstream) {
    let policy = node.text_at("lb_policy").unwrap_or("ROUND_ROBIN");
    if node.text_at("cluster_type.name").is_some_and(|name| name.contains("redis")) {
        made.more.set("topology", Value::text("cluster"));
        return;
    }
    if made.endpoints.len() < 2 {
        return;
    }
    let word = match policy {
        "RING_HASH" => "ring_hash",
        "MAGLEV" => "maglev",
        _ => {
            let why = "a key has one server; with this policy any server may have the key";
            made.notes.push(Note::new(&node.place, format!("lb_policy: {policy}"), why, "distribution = \"maglev\""));
            "maglev"
        }
    };
    made.more.set("sharding.distribution", Value::text(word));
}

fn balance(node: &Node, table: &str, made: &mut Upstream) {
    let policy = node.text_at("lb_policy").unwrap_or("ROUND_ROBIN");
    let word = match policy {
        "ROUND_ROBIN" => return,
        // Envoy's compares two random endpoints.
        "LEAST_REQUEST" => "power_of_two",
        "RANDOM" => "random",
        "RING_HASH" | "MAGLEV" if table == "http" => {
            let why = "the upstream, not the route, selects the hashed value: here the client address";
            made.notes.push(Note::new(&node.place, format!("lb_policy: {policy}"), why, "[upstream.http.affinity]"));
            made.more.set("http.affinity.address", Value::Flag(true));
            if policy == "MAGLEV" { "maglev" } else { "ring_hash" }
        }
        "RING_HASH" => "ring_hash",
        "MAGLEV" => "maglev",
        _ => {
            made.notes.push(Note::new(
                &node.place,
                format!("lb_policy: {policy}"),
                "has no counterpart; endpoints are used in turn",
                "balance",
            ));
            return;
        }
    };
    made.more.set(&format!("{table}.balance"), Value::text(word));
}

fn breakers(node: &Node, table: &str, made: &mut Upstream) -> Result<(), Mistake> {
    for threshold in node.items_at("circuit_breakers.thresholds") {
        if threshold.text_at("priority").is_some_and(|word| word != "DEFAULT") {
            made.notes.push(Note::new(&threshold.place, "circuit_breakers", "requests have one priority", ""));
            continue;
        }
        for (key, value) in threshold.entries() {
            let count = || value.number(key);
            match key.as_str() {
                "priority" => {}
                "max_connections" => {
                    // Envoy's is for the cluster; Weir's for each endpoint.
                    let each = count()?.div_ceil(made.endpoints.len() as u64).max(1);
                    made.more.set(&format!("{table}.connections_max"), Value::Number(each));
                }
                "max_pending_requests" => made.more.set("lane_waiters_max", Value::Number(count()?)),
                _ => {
                    let why = "is no limit of one upstream";
                    let nearest = "limits.in_flight_per_core, retry_budget_percent";
                    made.notes.push(Note::new(&value.place, format!("circuit_breakers.{key}"), why, nearest));
                }
            }
        }
    }
    Ok(())
}

/// HTTP/2, and passive health.
fn http(node: &Node, made: &mut Upstream) -> Result<(), Mistake> {
    let options = node.at("typed_extension_protocol_options").map_or(&[][..], Node::entries);
    let is_explicit = options.iter().any(|(_, one)| one.at("explicit_http_config.http2_protocol_options").is_some());
    if is_explicit || node.get("http2_protocol_options").is_some() {
        made.more.set("http.version", Value::text("2"));
    }
    let Some(outlier) = node.get("outlier_detection") else {
        // Without the table Envoy leaves no endpoint out.
        made.more.set("http.ejection.failures", Value::Number(0));
        return Ok(());
    };
    for (key, value) in outlier.entries() {
        match key.as_str() {
            "consecutive_5xx" => {
                made.more.set("http.ejection.failures", Value::Number(value.number(key)?));
                made.more.set("http.ejection.any_5xx", Value::Flag(true));
            }
            "consecutive_gateway_failure" => made.more.set("http.ejection.failures", Value::Number(value.number(key)?)),
            "max_ejection_percent" => {
                made.more.set("http.ejection.percent_max", Value::Number(value.number(key)?.min(100)))
            }
            "base_ejection_time" | "max_ejection_time" => {
                let own = if key.starts_with("base") { "duration" } else { "duration_max" };
                let time = millis(outlier, key)?.unwrap_or(30_000).max(10);
                made.more.set(&format!("http.ejection.{own}"), duration(time, 86_400_000));
            }
            _ => made.notes.push(Note::new(
                &value.place,
                format!("outlier_detection.{key}"),
                "has no counterpart",
                "[upstream.http.ejection]",
            )),
        }
    }
    Ok(())
}

fn health(node: &Node, table: &str, made: &mut Upstream) -> Result<(), Mistake> {
    let checks = node.items_at("health_checks");
    let Some(check) = checks.first() else {
        made.more.set("health.enabled", Value::Flag(false));
        return Ok(());
    };
    let interval = millis(check, "interval")?.unwrap_or(1_000).clamp(10, HOUR);
    made.more.set("health.interval", Value::millis(interval));
    let limit = millis(check, "timeout")?.unwrap_or(interval).clamp(1, interval);
    made.more.set("health.timeout", Value::millis(limit));
    for (from, key) in [("unhealthy_threshold", "unhealthy_after"), ("healthy_threshold", "healthy_after")] {
        if let Some(count) = check.get(from) {
            made.more.set(&format!("health.{key}"), Value::Number(count.number(from)?.clamp(1, 1_000)));
        }
    }
    if let Some(own) = check.get("http_health_check").filter(|_| table == "http") {
        made.more.set("http.health_path", Value::text(own.text_at("path").unwrap_or("/")));
        if let Some(host) = own.text_at("host") {
            made.more.set("http.health_host", Value::text(host));
        }
        if let Some(codes) = own.get("expected_statuses") {
            made.notes.push(Note::new(
                &codes.place,
                "expected_statuses",
                "a check is good with a status from 200 to 399",
                "health_path",
            ));
        }
    }
    for further in &checks[1..] {
        made.notes.push(Note::new(&further.place, "health_checks", "an upstream has one check", "[upstream.health]"));
    }
    Ok(())
}
