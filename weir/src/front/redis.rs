//! Redis: PING, and what INFO says of the server.

use weir_engine::settings::Address;

use super::{
    Protocol,
    probe::{ProbeConnection, excerpt, millis},
};

/// The row.
pub const PROTOCOL: Protocol = Protocol {
    word: "redis",
    about: "Run the gateway in front of a Redis or Valkey server, without a configuration file",
    listen_port: 6380,
    server_port: 6379,
    listener_table: "",
    tls_request: None,
    ask,
    try_it,
};

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
const INFO: &[u8] = b"*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n*2\r\n$4\r\nINFO\r\n$11\r\nreplication\r\n";

fn ask(contact: &mut ProbeConnection<'_>) -> Result<String, String> {
    let (pong, took) = contact.exchange(PING, |bytes| bytes.ends_with(b"\r\n"))?;
    let text = String::from_utf8_lossy(&pong).trim_end().to_owned();
    if text.starts_with("-NOAUTH") {
        return Err(
            "Redis wants a password. Write the file with --write and add it: [upstream.redis] password = { env = \
                    \"NAME\" }"
                .to_owned(),
        );
    }
    if text.starts_with('-') {
        return Err(format!("Redis responds to PING with {}", excerpt(text.as_bytes())));
    }
    if text != "+PONG" {
        return Err(format!("something listens there that is not Redis: it responds to PING with {}", excerpt(&pong)));
    }
    // A user without the right to INFO, or a proxy that does not know it, has an error in its place.
    let info = contact.exchange(INFO, has_two_replies).map(|(info, _)| info).unwrap_or_default();
    Ok(format!("{}, responded in {}", server(&String::from_utf8_lossy(&info)), millis(took)))
}

/// Two replies, each a bulk string or an error line.
fn has_two_replies(bytes: &[u8]) -> bool {
    after_reply(bytes).and_then(after_reply).is_some()
}

fn after_reply(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let length = match bytes.strip_prefix(b"$") {
        Some(_) => std::str::from_utf8(&bytes[1..end - 2]).ok()?.parse::<usize>().ok()?.checked_add(2)?,
        None => 0,
    };
    bytes.get(end.checked_add(length)?..)
}

/// `Redis 7.0.15, primary`, as far as INFO says it.
fn server(info: &str) -> String {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let mut words = match (field("valkey_version"), field("redis_version")) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, Some(version)) => format!("Redis {version}"),
        (None, None) => return "a server that speaks the Redis protocol".to_owned(),
    };
    match field("role") {
        Some("master") => words.push_str(", primary"),
        Some("slave") => words.push_str(", replica"),
        _ => {}
    }
    match field("redis_mode") {
        Some("cluster") => {
            words.push_str(", one node of a cluster (topology = \"cluster\" in the file serves all of it)")
        }
        Some("sentinel") => words.push_str(", a Sentinel (topology = \"sentinel\" in the file follows its primary)"),
        _ => {}
    }
    words
}

fn try_it(address: &Address) -> String {
    let place = match address {
        Address::Unix(path) => format!("-s {}", path.display()),
        other => {
            let host = other.host().filter(|host| host != "127.0.0.1").map(|host| format!("-h {host} "));
            format!("{}-p {}", host.unwrap_or_default(), other.port().unwrap_or_default())
        }
    };
    // The gateway itself responds to PING: INFO goes to the server.
    format!("redis-cli {place} info server")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_named_as_info_has_it() {
        let info = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n# Replication\r\nrole:master\r\n";
        assert_eq!(server(info), "Redis 7.0.15, primary");
        let valkey = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\nrole:slave\r\n";
        assert_eq!(server(valkey), "Valkey 8.0.1, replica");
        assert!(server("redis_version:7.0.15\r\nredis_mode:cluster\r\nrole:master").contains("topology = \"cluster\""));
        assert_eq!(server("-NOPERM no\r\n"), "a server that speaks the Redis protocol");
    }

    #[test]
    fn two_replies_are_whole_at_their_last_byte() {
        for whole in [&b"$3\r\nabc\r\n$2\r\nab\r\n"[..], b"-NOPERM no\r\n$0\r\n\r\n", b"-ERR a\r\n-ERR b\r\n"] {
            assert!(has_two_replies(whole));
            assert!((0..whole.len()).all(|end| !has_two_replies(&whole[..end])));
        }
    }

    #[test]
    fn the_line_to_try_reaches_the_server_and_not_only_the_gateway() {
        for (address, line) in [
            ("127.0.0.1:6380", "redis-cli -p 6380 info server"),
            ("10.0.0.1:6380", "redis-cli -h 10.0.0.1 -p 6380 info server"),
            ("unix:/run/weir.sock", "redis-cli -s /run/weir.sock info server"),
        ] {
            assert_eq!(try_it(&address.parse().expect("an address")), line);
        }
    }
}
