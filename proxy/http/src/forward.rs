//! Changes of a request head on its way to the origin.

use weir_engine::tls::{AltName, PeerIdentity};
use weir_http_codec::{Field, Fields, Known, RequestHead, Version, strip_hop_by_hop};
use weir_policy::http::is_same_name;
use weir_telemetry::log::Peer;

use crate::options::ForwardedFields;

/// Makes the fields of a request ready for the origin: removes those of the client's connection, and adds the client. Returns the number
/// of protected fields that the client tried to remove.
pub(crate) fn request(head: &mut RequestHead, forwarded: ForwardedFields, client: &Forwarded<'_>) -> usize {
    let Forwarded { peer, is_tls, client_cert, via } = *client;
    let refused = strip_hop_by_hop(&mut head.fields);
    let version = head.version();
    let (host, fields) = head.authority_and_fields();
    // The encoder writes length and host as the gateway understood them. An expectation means nothing in HTTP/1.0, and the gateway
    // sends HTTP/1.1.
    let replaced = [Known::ContentLength, Known::Host, Known::Expect];
    fields.remove_all(if version == Version::Http10 { &replaced } else { &replaced[..2] }, &[]);
    let proto: &[u8] = if is_tls { b"https" } else { b"http" };
    if forwarded == ForwardedFields::Replace {
        let is_one = |field: Field<'_>| is_forwarding_field(field.name);
        // Few clients send one, and each pass makes the list of names again.
        if fields.iter().any(is_one) {
            fields.retain(|field| !is_one(field));
        }
    }
    if forwarded != ForwardedFields::Keep {
        forwarded_for(fields, forwarded, peer);
        forwarded_client_cert(fields, forwarded, client_cert);
        let keeps = forwarded == ForwardedFields::Append;
        if !(keeps && fields.has(Known::XForwardedProto)) {
            fields.set(Known::XForwardedProto, proto);
        }
        let is_kept = keeps && fields.has(Known::XForwardedHost);
        if !host.is_empty() && !is_kept {
            fields.set(Known::XForwardedHost, host);
        }
    }
    if let Some(name) = via {
        self::via(fields, version, name);
    }
    refused
}

/// All lines become one, in their order, before the peer is added: a second line would hide from who reads only the first.
fn forwarded_for(fields: &mut Fields, forwarded: ForwardedFields, peer: &str) {
    if forwarded == ForwardedFields::Replace || !fields.has(Known::XForwardedFor) {
        return fields.set(Known::XForwardedFor, peer.as_bytes());
    }
    let mut value = Vec::new();
    for line in fields.all(Known::XForwardedFor).filter(|line| !line.is_empty()) {
        value.extend_from_slice(line);
        value.extend_from_slice(b", ");
    }
    value.extend_from_slice(peer.as_bytes());
    fields.set(Known::XForwardedFor, &value);
}

/// One more step of the way (RFC 9110 section 7.6.3). Not of those who hide what `forwarded` hides: loops must show.
fn via(fields: &mut Fields, version: Version, name: &str) {
    let mut value = Vec::new();
    for line in fields.all(Known::Via).filter(|line| !line.is_empty()) {
        value.extend_from_slice(line);
        value.extend_from_slice(b", ");
    }
    let version = match version {
        Version::Http10 => "1.0",
        Version::Http11 => "1.1",
        Version::Http2 => "2.0",
    };
    value.extend_from_slice(format!("{version} {name}").as_bytes());
    fields.set(Known::Via, &value);
}

/// A field in which proxies describe clients to origins and which the gateway does not set. Also spelled with underscores, which many
/// origins take for hyphens.
fn is_forwarding_field(name: &[u8]) -> bool {
    const OURS: [&[u8]; 4] =
        [b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-client-cert"];
    if !matches!(name.first(), Some(b'x' | b'X' | b'f' | b'F')) {
        return false;
    }
    let folded: Vec<u8> =
        name.iter().map(|byte| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }).collect();
    let is_known = folded.starts_with(b"x-forwarded-") || matches!(&*folded, b"forwarded" | b"x-real-ip");
    is_known && (name.contains(&b'_') || !OURS.contains(&&*folded))
}

/// The client in the forwarding fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forwarded<'a> {
    pub(crate) peer: &'a str,
    pub(crate) is_tls: bool,
    /// See [`client_cert`].
    pub(crate) client_cert: Option<&'a str>,
    /// The gateway's name in Via; `None`: it adds no Via.
    pub(crate) via: Option<&'a str>,
}

/// A client's own statement about its certificate is worth nothing. Those of trusted proxies stay, and ours comes behind them.
fn forwarded_client_cert(fields: &mut Fields, forwarded: ForwardedFields, client_cert: Option<&str>) {
    let mut value = Vec::new();
    if forwarded == ForwardedFields::Append {
        for line in fields.all(Known::XForwardedClientCert).filter(|line| !line.is_empty()) {
            value.extend_from_slice(line);
            value.push(b',');
        }
    }
    value.extend_from_slice(client_cert.unwrap_or_default().as_bytes());
    let value = value.strip_suffix(b",").unwrap_or(&value);
    if value.is_empty() {
        fields.remove(Known::XForwardedClientCert);
    } else {
        fields.set(Known::XForwardedClientCert, value);
    }
}

/// A certificate in X-Forwarded-Client-Cert, in Envoy's form: its hash, its subject, and the DNS names and URIs in it.
pub(crate) fn client_cert(identity: &PeerIdentity) -> Box<str> {
    let mut value = format!("Hash={}", identity.fingerprint());
    if let Some(subject) = &identity.subject {
        value.push_str(&format!(";Subject=\"{}\"", quoted(subject)));
    }
    for name in &identity.alt_names {
        let (kind, name) = match name {
            AltName::Uri(name) => ("URI", name),
            AltName::Dns(name) => ("DNS", name),
            AltName::Email(_) | AltName::Ip(_) => continue,
        };
        match name.contains([',', ';', '=', '"']) {
            true => value.push_str(&format!(";{kind}=\"{}\"", quoted(name))),
            false => value.push_str(&format!(";{kind}={name}")),
        }
    }
    // A field holds visible ASCII only.
    value.retain(|letter| letter == ' ' || letter.is_ascii_graphic());
    value.into()
}

/// Removes fields of a client under names that carry identities to origins. `_` counts as `-`: many origins take them for one.
pub(crate) fn remove_fields(names: &[Box<str>], fields: &mut Fields) {
    fields.retain(|field| !names.iter().any(|name| is_same_name(name, field.name)));
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// A client as X-Forwarded-For names it.
pub(crate) fn peer_name(peer: Peer) -> Box<str> {
    match peer {
        Peer::Ip(address) => address.ip().to_canonical().to_string().into(),
        Peer::Unix => "unix".into(),
    }
}

#[cfg(test)]
mod tests {
    use weir_http_codec::{HeadLimits, RequestParser};

    use super::*;

    #[test]
    fn names_of_identity_fields_are_taken_whatever_their_case_and_their_hyphens() {
        let mut fields = Fields::new();
        for name in ["X-User", "x_user", "X-USER", "X-Users", "x-other"] {
            fields.push(name.as_bytes(), b"root");
        }
        remove_fields(&["x-user".into()], &mut fields);
        let left: Vec<String> = fields.iter().map(|field| String::from_utf8_lossy(field.name).into_owned()).collect();
        assert_eq!(left, ["X-Users", "x-other"]);
    }

    fn forwarded(lines: &str, how: ForwardedFields) -> String {
        let mut parser = RequestParser::new();
        let input = format!("GET / HTTP/1.1\r\nHost: a.example\r\n{lines}\r\n");
        parser.parse(input.as_bytes(), &HeadLimits::default()).expect("valid").expect("whole");
        let mut head = parser.take();
        let peer = peer_name(Peer::Ip("[::ffff:192.0.2.1]:5".parse().expect("an address")));
        request(&mut head, how, &Forwarded { peer: &peer, is_tls: true, client_cert: Some("Hash=1"), via: None });
        let mut bytes = Vec::new();
        head.fields.write(&mut bytes);
        String::from_utf8(bytes).expect("ASCII")
    }

    #[test]
    fn at_the_edge_forwarding_fields_of_the_client_are_replaced() {
        let lines = "X-Forwarded-Client-Cert: Hash=2\r\nX-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Proto: gopher\r\nX-Forwarded-Host: evil\r\nX: y\r\nX_Forwarded_For: 7\r\n\
                     Forwarded: for=1\r\nX-Real-IP: 1\r\nX-Forwarded-Prefix: /a\r\nX-Foo: z\r\n";
        assert_eq!(
            forwarded(lines, ForwardedFields::Replace),
            "X: y\r\nX-Foo: z\r\nx-forwarded-for: 192.0.2.1\r\nx-forwarded-client-cert: Hash=1\r\nx-forwarded-proto: https\r\nx-forwarded-host: a.example\r\n"
        );
    }

    #[test]
    fn behind_trusted_proxies_all_lines_are_kept_in_their_order() {
        let lines = "X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Proto: http\r\nx-forwarded-for: 10.0.0.2, 10.0.0.3\r\n";
        assert_eq!(
            forwarded(lines, ForwardedFields::Append),
            "X-Forwarded-Proto: http\r\nx-forwarded-for: 10.0.0.1, 10.0.0.2, 10.0.0.3, 192.0.2.1\r\nx-forwarded-client-cert: Hash=1\r\nx-forwarded-host: a.example\r\n"
        );
        assert_eq!(forwarded("X-Forwarded-For: z\r\n", ForwardedFields::Keep), "X-Forwarded-For: z\r\n");
    }

    #[test]
    fn a_step_of_the_way_stands_behind_those_before() {
        let mut fields = Fields::new();
        via(&mut fields, Version::Http2, "edge");
        assert_eq!(fields.get(Known::Via), Some(&b"2.0 edge"[..]));
        fields.push(b"via", b"1.0 other (comment)");
        via(&mut fields, Version::Http11, "edge");
        assert_eq!(fields.get(Known::Via), Some(&b"2.0 edge, 1.0 other (comment), 1.1 edge"[..]));
        assert_eq!(fields.all(Known::Via).count(), 1);
    }
}
