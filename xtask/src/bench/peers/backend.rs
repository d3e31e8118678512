//! What stands behind the gateways of a comparison: one server, several with a part of the keys each, or a cluster.

use std::time::Duration;

use anyhow::{Result, bail};

use super::name;
use super::origin::{Counters, Origin, counters};
use crate::bench::place::Place;
use crate::bench::redis::row::RedisRow;
use crate::bench::resp::{Connection, Reply};
use weir_parties::interrupt;
use weir_parties::place::free_port;

/// Servers, if there are several.
const SERVERS: usize = 3;
/// Slots of a Redis Cluster.
const SLOTS: usize = 16_384;
/// Until the nodes of a cluster agree.
const AGREE_LIMIT: Duration = Duration::from_secs(30);

/// What stands behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// One server.
    One,
    /// Several, and the gateway places the keys.
    Shards,
    /// Several that place the keys themselves.
    Cluster,
}

impl Behind {
    /// By its word on the command line.
    pub(crate) fn named(word: &str) -> Result<Self> {
        match word {
            "one" => Ok(Self::One),
            "shards" => Ok(Self::Shards),
            "cluster" => Ok(Self::Cluster),
            _ => bail!("--behind takes one, shards or cluster, not `{word}`"),
        }
    }

    /// Every row that makes sense in front of it.
    pub(crate) fn rows(self) -> Vec<RedisRow> {
        if self == Self::One { RedisRow::all() } else { RedisRow::all_over_shards() }
    }

    /// The gateways that can stand in front of it, in the order of a block.
    pub(crate) fn arms(self) -> &'static [&'static str] {
        match self {
            Self::One => &name::REDIS,
            Self::Shards => &[name::WEIR, name::ENVOY, name::TWEMPROXY],
            Self::Cluster => &[name::WEIR, name::ENVOY],
        }
    }
}

/// The servers, running.
pub(crate) struct Backend {
    /// What they are to each other.
    pub(crate) behind: Behind,
    /// At least one.
    pub(crate) servers: Vec<Origin>,
}

impl Backend {
    /// Starts them.
    pub(crate) fn start(place: &Place, behind: Behind) -> Result<Self> {
        let count = if behind == Behind::One { 1 } else { SERVERS };
        let servers = (0..count).map(|_| start_one(place, behind)).collect::<Result<Vec<_>>>()?;
        let backend = Self { behind, servers };
        if behind == Behind::Cluster {
            backend.join()?;
        }
        Ok(backend)
    }

    /// The ports of all.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(|server| server.port).collect()
    }

    /// A connection to each beside the load.
    pub(crate) fn connect(&self) -> Result<Vec<Connection>> {
        self.servers.iter().map(Origin::connect).collect()
    }

    /// Makes one cluster of them, each with its part of the slots.
    fn join(&self) -> Result<()> {
        let mut nodes = self.connect()?;
        let (port, bus) = (self.servers[0].port.to_string(), bus_port(&self.servers[0])?.to_string());
        for (at, node) in nodes.iter_mut().enumerate() {
            let bound = |at: usize| SLOTS * at / SERVERS;
            let (first, last) = (bound(at).to_string(), (bound(at + 1) - 1).to_string());
            order(node, &["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
            if at > 0 {
                order(node, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
            }
        }
        interrupt::wait_until("the cluster to be well", AGREE_LIMIT, || {
            nodes.iter_mut().map(is_well).try_fold(true, |all, one| Ok(all && one?))
        })
    }
}

/// What all servers together have counted.
pub(crate) fn counters_of_all(controls: &mut [Connection]) -> Result<Counters> {
    let mut sum = Counters { commands: 0, misses: 0 };
    for control in controls {
        let Counters { commands, misses } = counters(control)?;
        sum = Counters { commands: sum.commands + commands, misses: sum.misses + misses };
    }
    Ok(sum)
}

fn start_one(place: &Place, behind: Behind) -> Result<Origin> {
    let port = free_port()?;
    if behind != Behind::Cluster {
        return Origin::start_on(place, port, &[]);
    }
    let (bus, file) = (free_port()?.to_string(), format!("nodes-{port}.conf"));
    let folder = place.path().to_string_lossy();
    let flags = ["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-config-file", &file, "--dir", &folder];
    Origin::start_on(place, port, &flags)
}

fn bus_port(server: &Origin) -> Result<u16> {
    let Reply::Bulk(Some(text)) = server.connect()?.ask(&[b"CLUSTER", b"NODES"])? else {
        bail!("CLUSTER NODES gave no text")
    };
    // `<id> <ip>:<port>@<bus port> myself,...`
    let text = String::from_utf8_lossy(&text).into_owned();
    let port = text.split_once('@').and_then(|(_, rest)| rest.split([' ', ',']).next()?.parse().ok());
    port.ok_or_else(|| anyhow::anyhow!("CLUSTER NODES names no bus port: {text}"))
}

fn order(node: &mut Connection, words: &[&str]) -> Result<()> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    match node.ask(&words)? {
        Reply::Simple(_) => Ok(()),
        other => bail!("{}: {other:?}", String::from_utf8_lossy(&words.join(&b' '))),
    }
}

fn is_well(node: &mut Connection) -> Result<bool> {
    let Reply::Bulk(Some(text)) = node.ask(&[b"CLUSTER", b"INFO"])? else { return Ok(false) };
    let text = String::from_utf8_lossy(&text);
    Ok(text.contains("cluster_state:ok") && text.contains(&format!("cluster_known_nodes:{SERVERS}")))
}
