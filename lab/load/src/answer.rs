//! What kind of answer a reply is: a value, the overload answer of a gateway, or an error.

/// A whole reply of any protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// RESP, as it came.
    Resp(&'a [u8]),
    /// HTTP of any version.
    Http {
        /// The final status.
        status: u16,
        /// The body, without its framing.
        body: &'a [u8],
    },
    /// A message of WebSocket.
    Message(&'a [u8]),
    /// A stream of HTTP/2 that was provably not worked on; why, as a stable label (RFC 9113 section 8.7).
    Refused(&'static str),
    /// A stream of HTTP/2 that was ended without an answer.
    Reset,
}

impl<'a> Reply<'a> {
    /// What kind of answer it is.
    #[must_use]
    pub fn answer(&self) -> Answer<'a> {
        match *self {
            Self::Resp(bytes) => classify(bytes),
            Self::Message(_) | Self::Http { status: 200, .. } => Answer::Value,
            // What gateways and servers say of too much load. A 503 may have another reason; it is no answer either way.
            Self::Http { status: 429, .. } => Answer::Shed("status_429"),
            Self::Http { status: 503, .. } => Answer::Shed("status_503"),
            Self::Http { body, .. } => Answer::Error(body),
            Self::Refused(reason) => Answer::Shed(reason),
            Self::Reset => Answer::Lost,
        }
    }
}

/// A reply by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// Anything but an error; whether it is the right value is for [`Requests::check`](crate::Requests::check).
    Value,
    /// Refused before any work was done; the reason as a stable label.
    Shed(&'static str),
    /// Any other error reply: its text, code included.
    Error(&'a [u8]),
    /// None: the exchange was broken off.
    Lost,
}

/// Words of gateways and servers that refuse a request because of load, and the label of each. What fails for another
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
#[must_use]
pub fn classify(reply: &[u8]) -> Answer<'_> {
    let text = match reply {
        [b'-', line @ ..] => until_line_end(line),
        // A bulk error of RESP3: its length stands in a line of its own.
        [b'!', rest @ ..] => {
            let length_line = until_line_end(rest).len() + 2;
            until_line_end(rest.get(length_line..).unwrap_or_default())
        }
        _ => return Answer::Value,
    };
    match OVERLOAD_WORDS.iter().find(|(words, _)| text.starts_with(words.as_bytes())) {
        Some((_, reason)) => Answer::Shed(reason),
        None => Answer::Error(text),
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
    fn overload_answers_are_told_from_failures_and_values() {
        assert_eq!(classify(b"-ERR weir: too many requests in flight\r\n"), Answer::Shed("in_flight"));
        assert_eq!(classify(b"-ERR weir: upstream queue full\r\n"), Answer::Shed("queue_full"));
        assert_eq!(classify(b"!33\r\nERR max number of clients reached\r\n"), Answer::Shed("clients_max"));
        assert_eq!(
            classify(b"-ERR weir: upstream connection lost\r\n"),
            Answer::Error(b"ERR weir: upstream connection lost")
        );
        assert_eq!(classify(b"-WRONGTYPE x\r\n"), Answer::Error(b"WRONGTYPE x"));
        for value in [&b"+OK\r\n"[..], b"$-1\r\n", b"*0\r\n", b":1\r\n", b"_\r\n"] {
            assert_eq!(classify(value), Answer::Value);
        }
    }

    #[test]
    fn a_status_is_an_answer_a_refusal_or_a_failure() {
        let answer = |status| Reply::Http { status, body: b"x" }.answer();
        assert_eq!(answer(200), Answer::Value);
        assert_eq!((answer(503), answer(429)), (Answer::Shed("status_503"), Answer::Shed("status_429")));
        for status in [204, 301, 404, 500, 502, 504] {
            assert_eq!(answer(status), Answer::Error(b"x"), "{status}");
        }
        assert_eq!(Reply::Refused("refused_stream").answer(), Answer::Shed("refused_stream"));
        assert_eq!((Reply::Reset.answer(), Reply::Message(b"").answer()), (Answer::Lost, Answer::Value));
    }

    #[test]
    fn cut_replies_do_not_harm() {
        for reply in [&b""[..], b"-", b"!", b"!9", b"!9\r", b"!9\r\n"] {
            let _ = classify(reply);
        }
        assert_eq!(classify(b"-"), Answer::Error(b""));
    }
}
