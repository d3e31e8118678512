//! Topology as reported by servers and sentinels.

use weir_resp::Value;
use weir_upstream::{Node, Range, View};

/// Reads CLUSTER SLOTS (Redis 7.0 `cluster.c`, `clusterReplyMultiBulkSlots`): first and last slot, the primary, its replicas.
/// Malformed entries are left out, and so are nodes whose address the server does not know.
pub(crate) fn ranges(slots: &Value) -> Vec<Range> {
    let range = |range: &Value| {
        let fields = range.as_elements()?;
        let number = |at: usize| u16::try_from(fields.get(at)?.as_integer()?).ok();
        let replicas = fields.get(3..).unwrap_or_default().iter().filter_map(address).collect();
        Some(Range { first: number(0)?, last: number(1)?, primary: address(fields.get(2)?)?, replicas })
    };
    slots.as_elements().unwrap_or_default().iter().filter_map(range).collect()
}

/// Reads CLUSTER NODES (Redis 7.0 `cluster.c`, `clusterGenNodeDescription`): id, `host:port@bus,name`, flags, … Nodes that
/// cannot be reached are left out, and so is the one that speaks: it is known.
pub(crate) fn nodes(text: &[u8]) -> Vec<Node> {
    let node = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (address, flags) = (words.next()?, words.next()?);
        let is_gone =
            ["noaddr", "handshake", "fail", "myself"].iter().any(|flag| flags.split(',').any(|one| one == *flag));
        let (host, port) = address.split(['@', ',']).next()?.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (!is_gone && !host.is_empty()).then_some(Node { host: Some(host.to_owned()), port: port.parse().ok()? })
    };
    String::from_utf8_lossy(text).lines().filter_map(node).collect()
}

/// Reads ROLE (Redis 7.0 `replication.c`, `roleCommand`): `master`, an offset, the replicas; or `slave`, the host and the port of
/// its primary, the state of the link.
pub(crate) fn role(role: &Value) -> View {
    let fields = role.as_elements().unwrap_or_default();
    match fields.first().and_then(Value::as_bytes) {
        Some(b"master") => {
            let replicas = fields.get(2).and_then(Value::as_elements).unwrap_or_default();
            View {
                ranges: vec![Range::all(Node::ASKED, replicas.iter().filter_map(address).collect())],
                nodes: Vec::new(),
            }
        }
        Some(b"slave") => View { ranges: Vec::new(), nodes: address_in(&fields[1..]).into_iter().collect() },
        _ => View::default(),
    }
}

/// Reads SENTINEL REPLICAS (Redis 7.0 `sentinel.c`, `addReplySentinelRedisInstance`): a map of texts for each. Those that the
/// sentinel takes for dead are left out, and those that have lost their primary.
pub(crate) fn replicas(replicas: &Value) -> Vec<Node> {
    let replica = |one: &Value| {
        let text = |name: &[u8]| one.field(name).and_then(Value::as_bytes).map(String::from_utf8_lossy);
        let flags = text(b"flags")?;
        let is_gone = ["s_down", "o_down", "disconnected"].iter().any(|flag| flags.split(',').any(|one| one == *flag));
        let is_linked = text(b"master-link-status").is_none_or(|status| status == "ok");
        let node = Node { host: Some(text(b"ip")?.into_owned()), port: text(b"port")?.parse().ok()? };
        (!is_gone && is_linked).then_some(node)
    };
    replicas.as_elements().unwrap_or_default().iter().filter_map(replica).collect()
}

/// Reads the zone in INFO (Valkey 8.0 `server.c`, `availability_zone`). Redis knows none.
pub(crate) fn zone(info: &[u8]) -> Option<String> {
    let info = String::from_utf8_lossy(info);
    let zone = info.lines().find_map(|line| line.strip_prefix("availability_zone:"))?.trim();
    (!zone.is_empty()).then(|| zone.to_owned())
}

/// A host and a port, as an integer or as text. An empty host is that of the queried server.
pub(crate) fn address(value: &Value) -> Option<Node> {
    address_in(value.as_elements()?)
}

fn address_in(fields: &[Value]) -> Option<Node> {
    let host = match fields.first()? {
        Value::Null => None,
        host => Some(String::from_utf8(host.as_bytes()?.to_vec()).ok()?).filter(|host| !host.is_empty()),
    };
    let port = u16::try_from(fields.get(1)?.as_integer()?).ok()?;
    (host.as_deref() != Some("?")).then_some(Node { host, port })
}

#[cfg(test)]
mod tests {
    use weir_resp::ValueLimits;

    use super::*;

    fn decoded(text: &str) -> Value {
        Value::decode(text.as_bytes(), &ValueLimits::default()).expect("well-formed").expect("whole").0
    }

    fn node(host: Option<&str>, port: u16) -> Node {
        Node { host: host.map(str::to_owned), port }
    }

    #[test]
    fn ranges_are_read_and_invalid_ones_are_left_out() {
        let good = "*4\r\n:0\r\n:99\r\n*3\r\n$9\r\n127.0.0.1\r\n:7000\r\n$2\r\nid\r\n*3\r\n$9\r\n127.0.0.1\r\n:7003\r\n$2\r\nir\r\n";
        let same_host = "*3\r\n:100\r\n:16383\r\n*2\r\n$-1\r\n:7001\r\n";
        let unknown_host = "*3\r\n:1\r\n:2\r\n*2\r\n$1\r\n?\r\n:7001\r\n";
        let too_far = "*3\r\n:1\r\n:70000\r\n*2\r\n$1\r\na\r\n:7001\r\n";
        let reply = format!("*6\r\n{good}{same_host}{unknown_host}{too_far}:7\r\n*0\r\n");
        let wanted = [
            Range {
                first: 0,
                last: 99,
                primary: node(Some("127.0.0.1"), 7000),
                replicas: vec![node(Some("127.0.0.1"), 7003)],
            },
            Range { first: 100, last: 16_383, primary: node(None, 7001), replicas: Vec::new() },
        ];
        assert_eq!(ranges(&decoded(&reply)), wanted);
        assert_eq!(ranges(&decoded("+OK\r\n")), []);
    }

    #[test]
    fn nodes_that_can_be_reached_are_read() {
        let text = "a 127.0.0.1:7000@17000,host myself,master - 0 0 1 connected 0-99\n\
                    b 127.0.0.1:7001@17001 master - 0 1 2 connected\n\
                    c [::1]:7002@17002 slave b 0 1 2 connected\n\
                    d :0@0 master,noaddr - 0 1 2 disconnected\n\
                    e 127.0.0.1:7004@17004 master,fail - 0 1 2 disconnected\nnonsense\n";
        assert_eq!(nodes(text.as_bytes()), [node(Some("127.0.0.1"), 7001), node(Some("::1"), 7002)]);
    }

    #[test]
    fn a_primary_names_its_replicas_and_a_replica_its_primary() {
        let primary = "*3\r\n$6\r\nmaster\r\n:42\r\n*1\r\n*3\r\n$3\r\n::1\r\n$4\r\n6380\r\n$2\r\n42\r\n";
        let view = role(&decoded(primary));
        assert_eq!(view.ranges, [Range::all(Node::ASKED, vec![node(Some("::1"), 6380)])]);
        let replica = "*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:6379\r\n$9\r\nconnected\r\n:42\r\n";
        let view = role(&decoded(replica));
        assert_eq!((view.ranges, view.nodes), (vec![], vec![node(Some("127.0.0.1"), 6379)]));
        assert_eq!(role(&decoded("*2\r\n$8\r\nsentinel\r\n*0\r\n")), View::default());
        assert_eq!(role(&decoded("*0\r\n")), View::default());
    }

    #[test]
    fn a_zone_is_read_where_one_is_named() {
        assert_eq!(zone(b"# Server\r\nhz:10\r\navailability_zone:eu-1a\r\nio:1\r\n").as_deref(), Some("eu-1a"));
        assert_eq!(zone(b"availability_zone:\r\n"), None);
        assert_eq!(zone(b"# Server\r\nredis_version:7.0.15\r\n"), None);
    }

    #[test]
    fn a_sentinel_leaves_out_servers_that_cannot_serve() {
        let one = |port: &str, flags: &str, link: &str| {
            let fields = ["ip", "127.0.0.1", "port", port, "flags", flags, "master-link-status", link];
            let texts: String = fields.iter().map(|text| format!("${}\r\n{text}\r\n", text.len())).collect();
            format!("*{}\r\n{texts}", fields.len())
        };
        let all = [one("1", "slave", "ok"), one("2", "slave,s_down", "ok"), one("3", "slave", "err")].concat();
        assert_eq!(replicas(&decoded(&format!("*3\r\n{all}"))), [node(Some("127.0.0.1"), 1)]);
    }
}
