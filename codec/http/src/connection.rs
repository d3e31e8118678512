//! Fields that concern only the connection of a message (RFC 9110 section 7.6.1).

use crate::{
    fields::Fields,
    known::{Known, KnownSet},
    token::list,
};

/// Options in the Connection fields of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// No further message on this connection.
    pub close: bool,
    /// Further ones, also on HTTP/1.0.
    pub keep_alive: bool,
    /// The connection may go on in another protocol.
    pub upgrade: bool,
    /// Fields besides these are named.
    pub names_fields: bool,
}

impl ConnectionOptions {
    /// Options in `fields`.
    pub fn of(fields: &Fields) -> Self {
        let mut options = Self::default();
        for option in fields.all(Known::Connection).flat_map(list) {
            if option.eq_ignore_ascii_case(b"close") {
                options.close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                options.keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"upgrade") {
                options.upgrade = true;
            } else {
                options.names_fields = true;
            }
        }
        options
    }
}

/// Fields that a Connection field cannot remove: by naming them a client would hide its identity, or the limits of its message, from the
/// servers behind the gateway.
fn is_protected(name: &[u8]) -> bool {
    let known = Known::of(name);
    let is_known = matches!(
        known,
        Known::Host
            | Known::Authorization
            | Known::Cookie
            | Known::ContentLength
            | Known::Forwarded
            | Known::XForwardedFor
            | Known::XForwardedHost
            | Known::XForwardedPort
            | Known::XForwardedProto
            | Known::XForwardedClientCert
            | Known::XRequestId
            | Known::Traceparent
            | Known::Tracestate
            | Known::Via
    );
    is_known || name.get(..12).is_some_and(|start| start.eq_ignore_ascii_case(b"x-forwarded-"))
}

/// Fields that no message is forwarded with.
const HOP_BY_HOP: KnownSet = KnownSet::of(&[
    Known::Te,
    Known::Connection,
    Known::KeepAlive,
    Known::ProxyConnection,
    Known::TransferEncoding,
    Known::Upgrade,
    Known::HttpTwoSettings,
    Known::ProxyAuthorization,
]);

/// Removes fields that must not be forwarded: Connection and the fields it names, Keep-Alive, Proxy-Connection, Transfer-Encoding,
/// Upgrade, HTTP2-Settings, Proxy-Authorization, and TE except `trailers`. Returns the number of protected fields that Connection named;
/// they stay.
pub fn strip_hop_by_hop(fields: &mut Fields) -> usize {
    if !fields.has_any(HOP_BY_HOP) {
        return 0;
    }
    let options = ConnectionOptions::of(fields);
    let mut refused = 0;
    if options.names_fields {
        let named: Vec<Vec<u8>> = fields.all(Known::Connection).flat_map(list).map(<[u8]>::to_vec).collect();
        for name in named {
            if is_protected(&name) {
                refused += usize::from(fields.all_named(&name).next().is_some());
            } else if !name.eq_ignore_ascii_case(b"te") {
                fields.remove_named(&name);
            }
        }
    }
    let mut wants_trailers = false;
    fields.retain(|field| {
        // A weight makes no sense for it.
        wants_trailers |=
            field.known == Known::Te && list(field.value).any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
        !HOP_BY_HOP.has(field.known)
    });
    if wants_trailers {
        fields.add(Known::Te, b"trailers");
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(lines: &[(&str, &str)]) -> (Vec<String>, usize) {
        let mut fields = Fields::new();
        lines.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
        let refused = strip_hop_by_hop(&mut fields);
        let names = fields.iter().map(|field| String::from_utf8_lossy(field.name).to_lowercase()).collect();
        (names, refused)
    }

    #[test]
    fn fields_of_the_connection_go_and_those_that_it_names() {
        let (names, refused) = stripped(&[
            ("Host", "a"),
            ("Connection", "close, X-Own"),
            ("connection", "keep-alive"),
            ("X-Own", "1"),
            ("Keep-Alive", "timeout=5"),
            ("Proxy-Connection", "keep-alive"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "h2c"),
            ("HTTP2-Settings", "x"),
            ("Proxy-Authorization", "x"),
            ("TE", "gzip, trailers"),
            ("Trailer", "x"),
        ]);
        assert_eq!((names, refused), (vec!["host".to_owned(), "trailer".to_owned(), "te".to_owned()], 0));
    }

    #[test]
    fn h1_15_protected_fields_stay_whatever_connection_names() {
        let (names, refused) = stripped(&[
            ("Connection", "X-Forwarded-For, Authorization, X-Forwarded-Whatever, host, te"),
            ("X-Forwarded-For", "1.2.3.4"),
            ("Authorization", "x"),
            ("TE", "trailers"),
        ]);
        assert_eq!(names, ["x-forwarded-for", "authorization", "te"]);
        assert_eq!(refused, 2);
    }
}
