//! The kind of a reply of RESP.

use crate::reply::ReplyKind;

/// Words of gateways and servers that refuse a request because of load, and the label of each. A failure for another
/// reason (a lost upstream, a command that is not allowed) is an error and not in here.
const OVERLOAD_WORDS: [(&str, &str); 9] = [
    ("ERR weir: too many requests in flight", "in_flight"),
    ("ERR weir: buffered bytes limit reached", "buffered_bytes"),
    ("ERR weir: too many blocked clients", "blocked_clients"),
    ("ERR weir: upstream queue full", "queue_full"),
    ("ERR weir: timed out waiting for an upstream lane", "queue_timeout"),
    ("ERR weir: upstream unavailable, breaker open", "breaker_open"),
    // Redis and everything that speaks like it.
    ("ERR max number of clients reached", "clients_max"),
    // Envoy, redis_proxy: no connection of the pool may take the request.
    ("no upstream host", "no_upstream_host"),
    ("rate limited", "rate_limited"),
];

/// Classifies one whole reply.
pub(super) fn classify(reply: &[u8]) -> ReplyKind<'_> {
    let text = match reply {
        [b'-', line @ ..] => until_line_end(line),
        // A bulk error of RESP3: its length stands in a line of its own.
        [b'!', rest @ ..] => {
            let length_line = until_line_end(rest).len() + 2;
            until_line_end(rest.get(length_line..).unwrap_or_default())
        }
        _ => return ReplyKind::Value,
    };
    match OVERLOAD_WORDS.iter().find(|(words, _)| text.starts_with(words.as_bytes())) {
        Some((_, reason)) => ReplyKind::Shed(reason),
        None => ReplyKind::Error(text),
    }
}

fn until_line_end(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    &bytes[..end.unwrap_or(bytes.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overload_replies_are_distinguished_from_failures_and_values() {
        assert_eq!(classify(b"-ERR weir: too many requests in flight\r\n"), ReplyKind::Shed("in_flight"));
        assert_eq!(classify(b"-ERR weir: upstream queue full\r\n"), ReplyKind::Shed("queue_full"));
        assert_eq!(classify(b"!33\r\nERR max number of clients reached\r\n"), ReplyKind::Shed("clients_max"));
        assert_eq!(
            classify(b"-ERR weir: upstream connection lost\r\n"),
            ReplyKind::Error(b"ERR weir: upstream connection lost")
        );
        assert_eq!(classify(b"-WRONGTYPE x\r\n"), ReplyKind::Error(b"WRONGTYPE x"));
        for value in [&b"+OK\r\n"[..], b"$-1\r\n", b"*0\r\n", b":1\r\n", b"_\r\n"] {
            assert_eq!(classify(value), ReplyKind::Value);
        }
    }

    #[test]
    fn cut_replies_do_not_harm() {
        for reply in [&b""[..], b"-", b"!", b"!9", b"!9\r", b"!9\r\n"] {
            let _ = classify(reply);
        }
        assert_eq!(classify(b"-"), ReplyKind::Error(b""));
    }
}
