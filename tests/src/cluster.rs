//! A Redis Cluster on loopback.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::deadline::until;
use crate::port;
use crate::server::{Kind, Options, Server};
use crate::stream::Address;
use crate::wire::{bulk, shown};

/// For the cluster to agree on itself; a failover takes a second or two.
const AGREE: Duration = Duration::from_secs(30);
/// After this a silent node is taken for dead (`cluster-node-timeout`). On a busy machine a node may be silent for a while, and a
/// test that ends none must not see it replaced. Not Redis's 15 s: an election that failed is tried again after four times this.
const NODE_TIMEOUT_MS: u32 = 5_000;
/// The same where a test ends a node and waits for its replica.
const NODE_TIMEOUT_SHORT_MS: u32 = 1_000;
/// A little more than Redis gives an ordered failover.
const MANUAL_FAILOVER: Duration = Duration::from_secs(6);
const SLOTS: u32 = 16_384;

/// Nodes of one cluster: the primaries first, as they were at its start.
pub struct Cluster {
    /// All nodes.
    pub nodes: Vec<Server>,
}

/// A node as `CLUSTER NODES` tells.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its id.
    pub id: String,
    /// Its port.
    pub port: u16,
    /// `master`, `slave`, `fail` and so on.
    pub flags: String,
    /// Its configuration epoch. If two nodes claim a slot, the higher epoch wins.
    pub epoch: u64,
    /// Ranges of slots.
    pub slots: Vec<String>,
}

impl Cluster {
    /// Starts `primaries` nodes with all slots and `replicas` more of each.
    ///
    /// # Panics
    /// If the cluster does not come up.
    pub fn start(kind: Kind, primaries: usize, replicas: usize) -> Self {
        Self::start_with(kind, primaries, replicas, NODE_TIMEOUT_MS)
    }

    /// The same for a test that ends a node: the others soon notice.
    ///
    /// # Panics
    /// If the cluster does not come up.
    pub fn start_to_lose_a_node(kind: Kind, primaries: usize, replicas: usize) -> Self {
        Self::start_with(kind, primaries, replicas, NODE_TIMEOUT_SHORT_MS)
    }

    fn start_with(kind: Kind, primaries: usize, replicas: usize, node_timeout_ms: u32) -> Self {
        let node = |_| {
            let flags = [
                "--cluster-enabled yes".to_owned(),
                format!("--cluster-node-timeout {node_timeout_ms}"),
                format!("--cluster-port {}", port::free()),
                "--cluster-replica-validity-factor 0".to_owned(),
                "--repl-diskless-sync-delay 0".to_owned(),
            ];
            let flags = flags.iter().flat_map(|flag| flag.split(' ')).map(str::to_owned).collect();
            Server::start_with(kind, Options { flags, in_memory: true, ..Options::default() })
        };
        let cluster = Self { nodes: (0..primaries * (replicas + 1)).map(node).collect() };
        cluster.join();
        for (at, node) in cluster.nodes[..primaries].iter().enumerate() {
            let bounds = |at: usize| SLOTS as usize * at / primaries;
            let (first, last) = (bounds(at).to_string(), (bounds(at + 1) - 1).to_string());
            node.connect().expect(&["CLUSTER", "ADDSLOTSRANGE", &first, &last], b"+OK\r\n");
        }
        let ids: Vec<String> = cluster.nodes[..primaries].iter().map(id).collect();
        for (at, replica) in cluster.nodes[primaries..].iter().enumerate() {
            until("a node to know its primary", AGREE, || {
                let reply = replica.connect().call(&["CLUSTER", "REPLICATE", &ids[at % primaries]]);
                (reply == b"+OK\r\n").then_some(())
            });
        }
        cluster.wait_well();
        cluster
    }

    fn join(&self) {
        let Address::Tcp(first) = &self.nodes[0].address else { panic!("a node has a port") };
        let info = self.nodes[0].connect().call(&["CONFIG", "GET", "cluster-port"]);
        let bus = String::from_utf8(crate::wire::bulk_array(&info)[1].clone()).expect("a port");
        let (host, port) = (first.ip().to_string(), first.port().to_string());
        for node in &self.nodes[1..] {
            node.connect().expect(&["CLUSTER", "MEET", &host, &port, &bus], b"+OK\r\n");
        }
    }

    /// Waits until every living node holds the cluster for well and agrees on who has what.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn wait_well(&self) {
        until("the cluster to be well", AGREE, || {
            let is_well = self.alive().all(|node| {
                let info = text(&node.connect().call(&["CLUSTER", "INFO"]));
                info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
            });
            (is_well && self.agrees()).then_some(())
        });
        until("the replicas to be in step", AGREE, || {
            let is_linked = |node: &Server| {
                let info = text(&node.connect().call(&["INFO", "replication"]));
                info.contains("role:master") || info.contains("master_link_status:up")
            };
            self.alive().all(is_linked).then_some(())
        });
    }

    /// The living nodes say the same of who has what, and since which epoch; no two primaries have the same one.
    fn agrees(&self) -> bool {
        let views: Vec<_> = self.alive().map(|node| owners(&nodes(node))).collect();
        let epochs = |view: &Owners| view.values().map(|(epoch, _)| *epoch).collect::<BTreeSet<_>>().len();
        views.iter().all(|view| *view == views[0] && epochs(view) == view.len())
    }

    fn alive(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().filter(|node| crate::stream::Stream::connect(&node.address).is_ok())
    }

    /// The addresses of all nodes.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.nodes.iter().map(|node| &node.address)
    }

    /// The node that has `slot`, as a living one tells.
    ///
    /// # Panics
    /// If no node has it.
    pub fn owner(&self, slot: u16) -> usize {
        let view = nodes(self.alive().next().expect("a living node"));
        let has = |range: &String| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            (first.parse::<u16>().expect("a slot")..=last.parse().expect("a slot")).contains(&slot)
        };
        let port = view.iter().find(|node| node.slots.iter().any(has)).expect("an owner").port;
        self.nodes.iter().position(|node| node.address.tcp().port() == port).expect("one of ours")
    }

    /// A living replica of node number `primary`.
    ///
    /// # Panics
    /// If it has none.
    pub fn replica_of(&self, primary: usize) -> usize {
        let port = self.nodes[primary].address.tcp().port().to_string();
        let follows = |node: &Server| {
            let info = text(&node.connect().call(&["INFO", "replication"]));
            info.contains(&format!("master_port:{port}\r\n"))
        };
        let alive: Vec<&Server> = self.alive().collect();
        let found = alive.into_iter().find(|node| follows(node)).expect("a replica");
        self.nodes.iter().position(|node| std::ptr::eq(node, found)).expect("one of ours")
    }

    /// Makes a replica the primary of `slot`, though the one there is well. An order that comes to nothing, because the replica
    /// does not catch up with writes or gets no votes in 5 s (Redis 7.0 `cluster.c`, `CLUSTER_MF_TIMEOUT`), is given again.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn fail_over(&self, slot: u16, replica: usize) {
        let mut ordered: Option<Instant> = None;
        until("the replica to take over", 2 * AGREE, || {
            if self.owner(slot) == replica {
                return Some(());
            }
            if ordered.is_none_or(|at| at.elapsed() > MANUAL_FAILOVER) {
                ordered = Some(Instant::now());
                // It may have taken over this instant, and then refuses.
                self.nodes[replica].connect().call(&["CLUSTER", "FAILOVER"]);
            }
            None
        });
    }

    /// Begins to move a slot: afterwards its keys can be moved one by one.
    pub fn begin_move(&self, slot: u16, to: usize) -> usize {
        let from = self.owner(slot);
        let (source, target) = (id(&self.nodes[from]), id(&self.nodes[to]));
        let slot = slot.to_string();
        self.nodes[to].connect().expect(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source], b"+OK\r\n");
        self.nodes[from].connect().expect(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target], b"+OK\r\n");
        from
    }

    /// Moves whole slots in one step, with all their keys (Valkey 9.0, `CLUSTER MIGRATESLOTS`), and waits until it is done. All
    /// of them are at one node.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn migrate(&self, slots: std::ops::RangeInclusive<u16>, to: usize) {
        let (first, last) = (slots.start().to_string(), slots.end().to_string());
        let source = &self.nodes[self.owner(*slots.start())];
        let target = id(&self.nodes[to]);
        source.connect().expect(&["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &first, &last, "NODE", &target], b"+OK\r\n");
        until("the slots to have moved", AGREE, || (self.owner(*slots.start()) == to).then_some(()));
    }

    /// Moves up to `count` keys of a slot on its way; how many there were.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize, count: usize) -> usize {
        let mut client = self.nodes[from].connect();
        let keys =
            crate::wire::bulk_array(&client.call(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), &count.to_string()]));
        let Address::Tcp(address) = &self.nodes[to].address else { panic!("a node has a port") };
        for key in &keys {
            let key = String::from_utf8(key.clone()).expect("text");
            let (host, port) = (address.ip().to_string(), address.port().to_string());
            let reply = client.call(&["MIGRATE", &host, &port, &key, "0", "5000"]);
            assert!(reply == b"+OK\r\n" || reply == b"+NOKEY\r\n", "{key}: {}", shown(&reply));
        }
        keys.len()
    }

    /// Ends the move of a slot. Its new owner hears first, as `redis-cli --cluster` has it, and takes an epoch above all that it
    /// knows. Until the others know that epoch, the next move may give the slot's claim to a node with an older one: it then loses
    /// the slot again to what the node before it said last, and deletes the keys (Redis 7.0 `cluster.c`,
    /// `clusterUpdateSlotsConfigWith`). So the move is over when all agree.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn end_move(&self, slot: u16, to: usize) {
        let target = id(&self.nodes[to]);
        let slot = slot.to_string();
        self.nodes[to].connect().expect(&["CLUSTER", "SETSLOT", &slot, "NODE", &target], b"+OK\r\n");
        let is_primary = |node: &&Server| text(&node.connect().call(&["INFO", "replication"])).contains("role:master");
        for node in self.alive().filter(is_primary) {
            node.connect().expect(&["CLUSTER", "SETSLOT", &slot, "NODE", &target], b"+OK\r\n");
        }
        until("the nodes to agree on a moved slot", AGREE, || self.agrees().then_some(()));
    }
}

fn id(node: &Server) -> String {
    text(&node.connect().call(&["CLUSTER", "MYID"]))
}

fn text(reply: &[u8]) -> String {
    String::from_utf8(bulk(reply)).expect("text")
}

fn nodes(of: &Server) -> Vec<Node> {
    let mut client: Client = of.connect();
    let lines = text(&client.call(&["CLUSTER", "NODES"]));
    let node = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let address = words[1].split('@').next().unwrap_or_default();
        Node {
            id: words[0].to_owned(),
            port: address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0),
            flags: words[2].to_owned(),
            epoch: words[6].parse().unwrap_or(0),
            slots: words[8..].iter().filter(|word| !word.starts_with('[')).map(|word| (*word).to_owned()).collect(),
        }
    };
    lines.lines().map(node).collect()
}

/// The configuration epoch and the slots of each node, by its id.
type Owners = BTreeMap<String, (u64, Vec<String>)>;

fn owners(view: &[Node]) -> Owners {
    let owners = view.iter().filter(|node| !node.slots.is_empty() && !node.flags.contains("fail"));
    owners.map(|node| (node.id.clone(), (node.epoch, node.slots.clone()))).collect()
}
