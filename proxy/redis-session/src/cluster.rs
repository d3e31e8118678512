//! A cluster as its clients see it: one node, this listener, which has all slots. A client that knows clusters asks who has what
//! and then sends everything here; one that does not never notices.

use std::fmt::Write as _;

use weir_analysis::redis::Command;
use weir_placement::{HashTag, SLOTS, slot};
use weir_resp::{Version, encode};

use crate::{
    io::Io,
    request::Request,
    state::{CommandStatus, State},
};

/// The id of the one node. Clients compare ids and nothing else.
const NODE_ID: &str = "77656972000000000000000000000000000000aa";

/// Whether the listener answers for itself, as the only node. The other subcommands concern the state of one real node.
pub(crate) fn is_local(command: &Command) -> bool {
    matches!(command.subcommand_name(), Some("slots" | "shards" | "nodes" | "myid" | "info" | "keyslot"))
}

impl State {
    /// CLUSTER subcommands that only read.
    pub(crate) fn cluster(&mut self, command: &'static Command, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        let (host, port) = io.advertised();
        let mut reply = Vec::new();
        let out = &mut reply;
        match command.subcommand_name() {
            Some("slots") => write_slots(out, &host, port),
            Some("shards") => write_shards(out, &host, port, self.version),
            Some("nodes") => encode::bulk(out, nodes(&host, port).as_bytes()),
            Some("myid") => encode::bulk(out, NODE_ID.as_bytes()),
            Some("info") => encode::bulk(out, info().as_bytes()),
            Some("keyslot") => encode::integer(out, slot(HashTag::CLUSTER.of(request.text(2))).into()),
            _ => return self.forward(command, request, io),
        }
        io.count(Some(command), 1);
        self.local(io, |out| out.extend_from_slice(&reply));
        CommandStatus::Done
    }
}

/// Redis 7.0 `cluster.c`, `clusterReplyMultiBulkSlots`.
fn write_slots(out: &mut Vec<u8>, host: &str, port: u16) {
    encode::array(out, 1);
    encode::array(out, 3);
    encode::integer(out, 0);
    encode::integer(out, i64::from(SLOTS) - 1);
    encode::array(out, 4);
    encode::bulk(out, host.as_bytes());
    encode::integer(out, port.into());
    encode::bulk(out, NODE_ID.as_bytes());
    encode::array(out, 0);
}

/// Redis 7.0 `cluster.c`, `clusterReplyShards`.
fn write_shards(out: &mut Vec<u8>, host: &str, port: u16, version: Version) {
    encode::array(out, 1);
    encode::map(out, 2, version);
    encode::bulk(out, b"slots");
    encode::array(out, 2);
    encode::integer(out, 0);
    encode::integer(out, i64::from(SLOTS) - 1);
    encode::bulk(out, b"nodes");
    encode::array(out, 1);
    encode::map(out, 7, version);
    let mut text = |name: &str, value: &str| {
        encode::bulk(out, name.as_bytes());
        encode::bulk(out, value.as_bytes());
    };
    text("id", NODE_ID);
    text("ip", host);
    text("endpoint", host);
    text("role", "master");
    text("health", "online");
    encode::bulk(out, b"port");
    encode::integer(out, port.into());
    encode::bulk(out, b"replication-offset");
    encode::integer(out, 0);
}

/// Redis 7.0 `cluster.c`, `clusterGenNodeDescription`. The bus port is that of a real node; nothing listens there.
fn nodes(host: &str, port: u16) -> String {
    let bus = u32::from(port) + 10_000;
    format!("{NODE_ID} {host}:{port}@{bus} myself,master - 0 0 1 connected 0-{}\n", SLOTS - 1)
}

/// Redis 7.0 `cluster.c`, CLUSTER INFO: the fields that clients look at.
fn info() -> String {
    let mut text = String::from("cluster_enabled:1\r\ncluster_state:ok\r\n");
    for (name, value) in [
        ("cluster_slots_assigned", SLOTS),
        ("cluster_slots_ok", SLOTS),
        ("cluster_slots_pfail", 0),
        ("cluster_slots_fail", 0),
        ("cluster_known_nodes", 1),
        ("cluster_size", 1),
        ("cluster_current_epoch", 1),
        ("cluster_my_epoch", 1),
    ] {
        let _ = write!(text, "{name}:{value}\r\n");
    }
    text
}
