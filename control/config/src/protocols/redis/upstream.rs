//! Upstreams: from keys to settings.

use weir_engine::settings::Address;
use weir_redis_session::settings::{RedisTopology, RedisUpstreamSettings, SentinelSettings};
use weir_upstream::placement::{Distribution, KeyHash, PlacementSettings};
use weir_upstream::settings::{PINNED_LANES_IDLE_MAX, ReadFrom, ReconnectSettings, Topology, UpstreamSettings};

use super::keys::{ReconnectSection, SentinelSection, ShardingSection, TopologyChoice, UpstreamKeys};
use crate::checks::{Lowest, error_at, is_public, table_header, warn_at};
use crate::protocols::UpstreamContext;
use crate::reader::Reader;

/// Settings of an upstream, and those of its own among what every upstream has.
pub(super) fn settings(of: &mut UpstreamContext<'_>, reader: &mut Reader<'_>) -> RedisUpstreamSettings {
    let (keys, path) = (&of.section.own.redis, of.path);
    check_endpoints(of, reader);
    let topology = topology(keys, of.endpoints.len(), path, reader);
    warn_clear_password(of, reader);
    let lanes_idle_max = lanes_idle_max(keys, path, reader);
    let reconnect = reconnect(&keys.reconnect, &format!("{path}.reconnect"), reader);
    if let Some(settings) = of.settings.take() {
        of.settings = Some(UpstreamSettings {
            placement: keys.sharding.as_ref().and_then(placement),
            topology: match keys.topology.value {
                TopologyChoice::Fixed => Topology::Fixed,
                TopologyChoice::Cluster => Topology::Slots,
                TopologyChoice::Replicated => Topology::Primary,
                TopologyChoice::Sentinel => Topology::Watched,
            },
            read_from: keys.read_from.value,
            zone: keys.zone.as_ref().map(|zone| zone.value.0.clone()),
            request_timeout: keys.request_timeout.value.0,
            shared_lanes: keys.shared_lanes.value,
            pinned_lanes_max: keys.pinned_lanes_max.value,
            pinned_lanes_idle_max: lanes_idle_max,
            lane_in_flight_max: keys.lane_in_flight_max.value,
            reconnect,
            ..settings
        });
    }
    let section = &keys.redis;
    let path = format!("{path}.redis");
    if let Some(user) = section.user.as_ref().filter(|_| reader.lacks(section.password.as_ref(), &path, "password")) {
        error_at(user, &path, "user", "has no effect without password", "add password = { env = \"NAME\" }", reader);
    }
    RedisUpstreamSettings {
        user: section.user.as_ref().map(|user| user.value.0.clone()),
        password: section.password.as_ref().map(|password| password.value.secret.clone()),
        client_name: section.client_name.value.0.clone(),
        topology,
        // Those of the listeners' users are put in once all listeners are made.
        logins: Vec::new(),
    }
}

fn placement(section: &ShardingSection) -> Option<PlacementSettings> {
    let distribution = section.distribution.as_ref()?.value;
    Some(PlacementSettings {
        distribution,
        hash: section.hash.as_ref().map_or(distribution.default_hash(), |hash| hash.value),
        hash_tag: section.hash_tag.as_ref().map(|tag| tag.value.0),
    })
}

fn lanes_idle_max(keys: &UpstreamKeys, path: &str, reader: &mut Reader<'_>) -> u32 {
    let lanes_max = &keys.pinned_lanes_max;
    let Some(idle) = &keys.pinned_lanes_idle_max else { return PINNED_LANES_IDLE_MAX.min(lanes_max.value) };
    let other = format!("{path}.pinned_lanes_max");
    Lowest { path, key: "pinned_lanes_idle_max", other: &other }.check(idle, lanes_max, reader);
    idle.value
}

fn reconnect(section: &ReconnectSection, path: &str, reader: &mut Reader<'_>) -> ReconnectSettings {
    let other = format!("{path}.max");
    Lowest { path, key: "base", other: &other }.check(&section.base, &section.max, reader);
    ReconnectSettings { base: section.base.value.0, max: section.max.value.0 }
}

/// Which endpoint holds a key, or who says so.
fn check_endpoints(of: &UpstreamContext<'_>, reader: &mut Reader<'_>) {
    let (list, keys, path) = (of.endpoints, &of.section.own.redis, of.path);
    let is_fixed = keys.topology.value == TopologyChoice::Fixed;
    let header = table_header(&format!("{path}.sharding"));
    if !is_fixed && keys.sharding.is_some() {
        let help = format!("remove {header}: the servers know where the keys are");
        error_at(&keys.topology, path, "topology", "conflicts with sharding", &help, reader);
    }
    let socket = list.iter().find(|endpoint| matches!(endpoint.value.0, Address::Unix(_)));
    if let (Some(socket), false) = (socket, is_fixed) {
        let help = "name a server by host and port, as the servers name each other";
        error_at(socket, path, "endpoints", "is a Unix socket, which needs topology = \"fixed\"", help, reader);
    }
    if list.len() > 1 && keys.sharding.is_none() && is_fixed {
        let what =
            format!("has {} entries, but neither sharding nor topology defines which entry has a key", list.len());
        let help = format!(
            "add {header} with distribution = \"ketama\", for example; or, if they are a primary and its replicas, \
             topology = \"replicated\"; or keep one endpoint",
        );
        error_at(&list[1], path, "endpoints", &what, &help, reader);
    }
    if let (1, Some(sharding)) = (list.len(), keys.sharding.as_ref().and_then(|table| table.distribution.as_ref())) {
        let message = format!("`{path}.sharding` does nothing with one endpoint");
        let help = "name the other shards in endpoints, or remove the table".to_owned();
        reader.problems.warning(&sharding.span, &format!("{path}.sharding"), message, help);
    }
    if let Some(sharding) = keys.sharding.as_ref().filter(|_| list.len() > 1) {
        warn_uneven(sharding, path, reader);
    }
}

/// A ring on which keys that differ in few characters stand close together.
fn warn_uneven(section: &ShardingSection, path: &str, reader: &mut Reader<'_>) {
    let Some(distribution) = &section.distribution else { return };
    let hash = section.hash.as_ref().map_or(distribution.value.default_hash(), |hash| hash.value);
    let (what, help) = match (distribution.value, hash) {
        (Distribution::Ketama, KeyHash::Crc16) => (
            "has 65,536 hashes for a ring of 4,294,967,296: nearly all keys are on one endpoint",
            "write hash = \"murmur2\"",
        ),
        (Distribution::Ketama, KeyHash::Fnv1a64) if section.hash.is_none() => (
            "uses fnv1a_64, as twemproxy does: keys that differ in their last characters are spread unevenly",
            "write hash = \"murmur2\", or distribution = \"maglev\"; or, for data that twemproxy has placed, \
             hash = \"fnv1a_64\"",
        ),
        _ => return,
    };
    let path = format!("{path}.sharding");
    match &section.hash {
        Some(hash) => warn_at(hash, &path, "hash", what, help, reader),
        None => warn_at(distribution, &path, "distribution", what, help, reader),
    }
}

fn topology(section: &UpstreamKeys, count: usize, path: &str, reader: &mut Reader<'_>) -> RedisTopology {
    let choice = section.topology.value;
    if section.read_from.value != ReadFrom::Primary && choice == TopologyChoice::Fixed {
        let help = "write topology = \"replicated\", \"sentinel\" or \"cluster\", which find the replicas";
        error_at(&section.read_from, path, "read_from", "needs replicas, and a fixed topology has none", help, reader);
    }
    if let (Some(zone), ReadFrom::Primary | ReadFrom::PreferPrimary) = (&section.zone, section.read_from.value) {
        let message = format!("`{path}.zone` does nothing while reads go to the primary");
        let help = "write read_from = \"prefer_replica\", \"replica\" or \"any\", or remove it".to_owned();
        reader.problems.warning(&zone.span, &format!("{path}.zone"), message, help);
    }
    let header = table_header(&format!("{path}.sentinel"));
    match (choice, &section.sentinel) {
        (TopologyChoice::Fixed, None) => RedisTopology::Fixed,
        (TopologyChoice::Cluster, None) => RedisTopology::Cluster,
        (TopologyChoice::Replicated, None) => RedisTopology::Replicated,
        (TopologyChoice::Sentinel, Some(sentinel)) => sentinel_topology(sentinel, count, path, reader),
        (TopologyChoice::Sentinel, None) => {
            let help = format!("add {header} with service = \"mymaster\", the name that the sentinels know");
            error_at(&section.topology, path, "topology", "needs the name of the primary", &help, reader);
            RedisTopology::Fixed
        }
        (_, Some(_)) => {
            let help = format!("write topology = \"sentinel\", or remove {header}");
            error_at(&section.topology, path, "topology", "conflicts with sentinel", &help, reader);
            RedisTopology::Fixed
        }
    }
}

fn sentinel_topology(section: &SentinelSection, count: usize, path: &str, reader: &mut Reader<'_>) -> RedisTopology {
    let path = format!("{path}.sentinel");
    if let Some(user) = section.user.as_ref().filter(|_| reader.lacks(section.password.as_ref(), &path, "password")) {
        error_at(user, &path, "user", "has no effect without password", "add password = { env = \"NAME\" }", reader);
    }
    RedisTopology::Sentinel(SentinelSettings {
        // One without a name was reported.
        service: section.service.as_ref().map(|service| service.value.0.clone()).unwrap_or_default(),
        count: u16::try_from(count).unwrap_or(u16::MAX),
        user: section.user.as_ref().map(|user| user.value.0.clone()),
        password: section.password.as_ref().map(|password| password.value.secret.clone()),
    })
}

/// As for listeners: the gateway's own password, in clear text across the internet.
fn warn_clear_password(of: &UpstreamContext<'_>, reader: &mut Reader<'_>) {
    let (Some(password), None) = (&of.section.own.redis.redis.password, &of.section.tls) else { return };
    if let Some(endpoint) = of.endpoints.iter().find(|endpoint| is_public(&endpoint.value.0)) {
        let path = of.path;
        let message = format!("`{path}`: the password is sent in clear text to {}", endpoint.value.0);
        let help = format!("add {}", table_header(&format!("{path}.tls")));
        reader.problems.warning(&password.span, &format!("{path}.redis.password"), message, help);
    }
}
