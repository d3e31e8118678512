//! S8: a refusal in the middle of a sequence leaves nothing behind, and who tries again succeeds.

use std::io::ErrorKind;

use weir_tests::cluster::Cluster;
use weir_tests::gateway::Gateway;
use weir_tests::http::HttpClient;
use weir_tests::isolation::{Ask, Cell, Stand, every};
use weir_tests::server::Kind;
use weir_tests::websocket::handshake;
use weir_tests::wire::shown;

/// As often as a driver tries again.
const TRIES: usize = 3;

#[test]
fn s8_a_refusal_leaves_no_state_behind() {
    every("S8", |protocol, _| {
        let name = "refused within a sequence, then tried again".to_owned();
        let faults = match protocol.name() {
            "Redis" => cluster(),
            "WebSocket" => websocket(&Stand::start(protocol)),
            "TCP" => return vec![(name, Cell::None("TCP has no refusal but its end"))],
            _ => http(&Stand::start(protocol)),
        };
        let text = if faults.is_empty() { "succeeds" } else { "does not succeed" };
        vec![(name, Cell::figure(text, faults))]
    });
}

/// Refused requests, with and without an upload, between others on one connection.
fn http(stand: &Stand) -> Vec<String> {
    let mut caller = stand.victim()().expect("a connection");
    let mut faults = Vec::new();
    for round in 0..5 {
        match caller.exchange(&[(Ask::Busy, Vec::new())]) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {}
            other => faults.push(format!("round {round}: {other:?} in place of the refusal")),
        }
        let upload = vec![b'u'; 70_000 * round];
        match caller.exchange(&[(Ask::Small, Vec::new()), (Ask::Echo(upload.len()), upload.clone())]) {
            Ok(responses) if responses[0] == b"ok" && responses[1] == upload => {}
            Ok(_) => faults.push(format!("round {round}: another response behind the refusal")),
            Err(error) => faults.push(format!("round {round}: {error} behind the refusal")),
        }
    }
    faults
}

/// A handshake that is refused, and another one on the same connection.
fn websocket(stand: &Stand) -> Vec<String> {
    let mut client = HttpClient::connect(&stand.gateway.address);
    let mut statuses = Vec::new();
    for path in ["/busy", "/busy", "/chat"] {
        client.send(handshake(path, ""));
        statuses.push(client.response().status);
    }
    let is_right = statuses == [503, 503, 101];
    (!is_right).then(|| format!("responses {statuses:?}")).into_iter().collect()
}

/// Connections that knew where a slot was, and begin something when it has moved.
fn cluster() -> Vec<String> {
    /// A slot of its own for each sequence: `CLUSTER KEYSLOT`.
    const SEQUENCES: [(&str, &str); 3] = [("watch", "{wa}"), ("large", "{la}"), ("blocking", "{bl}")];
    let cluster = Cluster::start(Kind::Redis, 2, 0);
    let gateway = Gateway::before_cluster(&cluster);
    let mut faults = Vec::new();
    for (sequence, tag) in SEQUENCES {
        let (key, list) = (format!("{tag}:key"), format!("{tag}:list"));
        let mut client = gateway.connect();
        client.expect(&["SET", &key, "before"], b"+OK\r\n");
        let slot = cluster.nodes[0].connect().call(&["CLUSTER", "KEYSLOT", tag]);
        let slot: u16 = shown(&slot[1..slot.len() - 2]).parse().expect("a slot");
        let to = 1 - cluster.owner(slot);
        let from = cluster.begin_move(slot, to);
        while cluster.move_keys(slot, from, to, 10) > 0 {}
        cluster.end_move(slot, to);
        let large = "v".repeat(300_000);
        let mut said = Vec::new();
        let is_done = (0..TRIES).any(|_| {
            let replies = match sequence {
                "watch" => vec![
                    client.call(&["WATCH", &key]),
                    client.call(&["GET", &key]),
                    client.call(&["MULTI"]),
                    client.call(&["SET", &key, "after"]),
                    client.call(&["EXEC"]),
                ],
                "large" => vec![client.call(&["SET", &key, &large])],
                _ => {
                    gateway.connect().call(&["RPUSH", &list, "element"]);
                    vec![client.call(&["BLPOP", &list, "1"])]
                }
            };
            let is_done = replies.iter().all(|reply| !reply.starts_with(b"-") && reply.as_slice() != b"*-1\r\n");
            said.push(replies.iter().map(|reply| shown(&reply[..reply.len().min(80)])).collect::<Vec<_>>());
            is_done
        });
        if !is_done {
            faults.push(format!("{sequence} of a moved slot, {TRIES} tries: {said:?}"));
        }
    }
    faults
}
