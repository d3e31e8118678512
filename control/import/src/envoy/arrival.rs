//! Headers that Envoy rewrites before it selects a route. Weir selects the route first, and rewrites them on the way to the upstream.

use super::Importer;
use crate::field;
use crate::model::Listener;
use crate::note::Mistake;
use crate::toml::Value;
use crate::yaml::Node;

/// Trusted proxies of a listener of Weir.
const HOPS_MAX: u64 = 16;

/// Headers that Envoy 1.40 removes from the requests of clients (`mutateRequestHeaders` in `conn_manager_utility.cc`). Without
/// `internal_address_config`, it counts no client as internal.
const REMOVED: [&str; 16] = [
    "x-envoy-expected-rq-timeout-ms",
    "x-envoy-force-trace",
    "x-envoy-hedge-on-per-try-timeout",
    "x-envoy-internal",
    "x-envoy-ip-tags",
    "x-envoy-max-retries",
    "x-envoy-original-url",
    "x-envoy-retriable-header-names",
    "x-envoy-retriable-status-codes",
    "x-envoy-retry-grpc-on",
    "x-envoy-retry-on",
    "x-envoy-upstream-alt-stat-name",
    "x-envoy-upstream-rq-per-try-timeout-ms",
    "x-envoy-upstream-rq-timeout-alt-response",
    "x-envoy-upstream-rq-timeout-ms",
    "x-envoy-upstream-stream-duration-ms",
];

/// Further headers that it removes with `use_remote_address`.
const REMOVED_AT_EDGE: [&str; 5] = [
    "x-envoy-decorator-operation",
    "x-envoy-downstream-service-cluster",
    "x-envoy-downstream-service-node",
    "x-envoy-original-host",
    "x-envoy-original-path",
];

const EXTERNAL_ADDRESS: &str = "x-envoy-external-address";
const CLIENT_CERT: &str = "x-forwarded-client-cert";
const PROTO: &str = "x-forwarded-proto";

/// The address of the peer, as values of headers have it.
pub(super) const PEER: &str = "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%";

/// The treatment of X-Forwarded-Client-Cert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ClientCert {
    #[default]
    Removed,
    /// As the client sent it.
    Kept,
    /// Written for a client with a certificate. `is_always`: every client has one.
    Written { is_always: bool },
}

/// A header as a route of Envoy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// As the client sent it.
    Sent,
    Absent,
    Text(&'static str),
    /// As the client sent it; this text in requests without it.
    SentOr(&'static str),
    /// The address of the peer.
    Peer,
    /// Written by both programs. `is_always`: in every request.
    Written {
        is_always: bool,
    },
    /// Written by Envoy alone.
    Unknown,
    /// Part of the framing, which is not forwarded as it came.
    Framing,
}

/// The treatment of requests by a listener before a route is selected.
#[derive(Debug, Default)]
pub(super) struct Arrival {
    /// `use_remote_address`: no other proxy has written the forwarding headers, unless it is among the trusted ones.
    is_edge: bool,
    /// Trusted proxies in front.
    hops: u64,
    has_tls: bool,
    /// `scheme_to_overwrite`: the scheme of all requests.
    overwritten: Option<&'static str>,
    /// `forward_proto_config`: the scheme depends on the port of the connection, also on one that a proxy in front reports.
    is_scheme_of_port: bool,
    /// `internal_address_config`: Envoy counts some clients as internal.
    pub(super) has_internal: bool,
    makes_id: bool,
    client_cert: ClientCert,
    /// `internal_only_headers`, in lower case: no client counts as internal.
    internal_only: Vec<String>,
}

impl Arrival {
    /// The scheme of the connection.
    pub(super) fn scheme(&self) -> &'static str {
        if self.has_tls { "https" } else { "http" }
    }

    /// The scheme of all requests; `None`: a proxy in front may say another one, or a port decides.
    pub(super) fn fixed_scheme(&self) -> Option<&'static str> {
        let is_known = self.is_client_the_peer() && !self.is_scheme_of_port;
        self.overwritten.or_else(|| is_known.then(|| self.scheme()))
    }

    /// Envoy takes the peer of the connection for the client, as variables of Weir do.
    pub(super) fn is_client_the_peer(&self) -> bool {
        self.is_edge && self.hops == 0
    }

    fn is_internal_only(&self, name: &str) -> bool {
        self.internal_only.iter().any(|own| own == name)
    }

    /// The header called `name`, in lower case.
    pub(super) fn seen(&self, name: &str) -> Seen {
        match name {
            PROTO => match self.fixed_scheme() {
                Some(scheme) => Seen::Text(scheme),
                None if self.is_scheme_of_port => Seen::Unknown,
                None => Seen::SentOr(self.scheme()),
            },
            CLIENT_CERT => match self.client_cert {
                ClientCert::Removed => Seen::Absent,
                ClientCert::Kept if self.is_internal_only(name) => Seen::Absent,
                ClientCert::Kept => Seen::Sent,
                ClientCert::Written { is_always } => Seen::Written { is_always },
            },
            "x-forwarded-for" if self.is_edge => Seen::Written { is_always: true },
            // Envoy makes another id instead, and Weir makes none.
            "x-request-id" if self.makes_id && self.is_internal_only(name) => Seen::Unknown,
            "x-request-id" if self.makes_id => Seen::Written { is_always: true },
            EXTERNAL_ADDRESS if self.is_client_the_peer() => Seen::Peer,
            EXTERNAL_ADDRESS if self.is_edge => Seen::Unknown,
            "keep-alive" | "proxy-connection" | "transfer-encoding" => Seen::Absent,
            "connection" | "content-length" | "expect" | "host" | "te" | "trailer" | "upgrade" => Seen::Framing,
            name if self.is_internal_only(name) => Seen::Absent,
            name if REMOVED.contains(&name) || self.is_edge && REMOVED_AT_EDGE.contains(&name) => Seen::Absent,
            _ => Seen::Sent,
        }
    }

    /// Whether each request meets a condition on a header (`Some(true)`), none does (`Some(false)`), or its header decides (`None`).
    ///
    /// # Errors
    /// Weir would compare another value than Envoy.
    pub(super) fn decided(&self, condition: &Condition<'_>) -> Result<Option<bool>, String> {
        let Condition { name, kind, is_negated, .. } = *condition;
        let is_present = kind == "present";
        match self.seen(&name.to_ascii_lowercase()) {
            Seen::Sent | Seen::Framing => Ok(None),
            // A missing header meets no condition on its value, negated or not.
            Seen::Absent => Ok(Some(is_present && is_negated)),
            Seen::Text(text) => Ok(Some(condition.holds(text)?)),
            Seen::SentOr(_) | Seen::Peer | Seen::Written { is_always: true } if is_present => Ok(Some(!is_negated)),
            Seen::SentOr(text) if !condition.holds(text)? => Ok(None),
            Seen::SentOr(_) | Seen::Peer | Seen::Written { .. } | Seen::Unknown => Err(format!(
                "Envoy writes `{name}` before it selects a route, and Weir compares the header of the client"
            )),
        }
    }

    /// The changes of headers in every request.
    fn changes(&self) -> Vec<Value> {
        let mut changes = Vec::new();
        match self.fixed_scheme() {
            Some(scheme) => changes.push(("set", PROTO, Some(scheme))),
            // Envoy replaces that of a client.
            None if self.is_client_the_peer() => changes.push(("remove", PROTO, None)),
            None => {}
        }
        if self.client_cert == ClientCert::Removed {
            changes.push(("remove", CLIENT_CERT, None));
        }
        if self.is_edge {
            // Also in front of `set`, which changes nothing for a client at a Unix socket.
            changes.push(("remove", EXTERNAL_ADDRESS, None));
            changes.extend(self.is_client_the_peer().then_some(("set", EXTERNAL_ADDRESS, Some(PEER))));
            changes.extend(REMOVED_AT_EDGE.map(|name| ("remove", name, None)));
        }
        changes.extend(REMOVED.map(|name| ("remove", name, None)));
        changes.extend(self.internal_only.iter().map(|name| ("remove", name.as_str(), None)));
        let change =
            |(kind, name, value): (&str, &str, Option<&str>)| field::change(kind, name, value.map(str::to_owned));
        changes.into_iter().filter_map(|one| change(one).ok()).collect()
    }
}

/// A condition of a route on a header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition<'a> {
    pub(super) name: &'a str,
    /// As in `[[route.header]]`.
    pub(super) kind: &'a str,
    pub(super) value: Option<&'a str>,
    pub(super) ignores_case: bool,
    pub(super) is_negated: bool,
}

impl Condition<'_> {
    /// Whether it holds for this text.
    ///
    /// # Errors
    /// Its regex is not valid.
    fn holds(&self, text: &str) -> Result<bool, String> {
        let folded = |text: &str| if self.ignores_case { text.to_ascii_lowercase() } else { text.to_owned() };
        let (own, value) = (folded(text), folded(self.value.unwrap_or_default()));
        let is_met = match self.kind {
            "exact" => own == value,
            "prefix" => own.starts_with(&value),
            "suffix" => own.ends_with(&value),
            "contains" => own.contains(&value),
            "regex" => {
                let regex = self.value.unwrap_or_default();
                let whole = regex::Regex::new(&format!("^(?:{regex})$"))
                    .map_err(|_| format!("`{regex}` is not a valid regex"))?;
                whole.is_match(text)
            }
            _ => true,
        };
        Ok(is_met != self.is_negated)
    }
}

impl<'n> Importer<'n> {
    /// The headers in which proxies describe clients. Those of a client without a trusted proxy in front of it are worth nothing.
    pub(super) fn arrival(&mut self, config: &'n Node, listener: &mut Listener) -> Result<(), Mistake> {
        let hops = config.get("xff_num_trusted_hops").map_or(Ok(0), |node| node.number("xff_num_trusted_hops"))?;
        let is_edge = config.get("use_remote_address").is_some_and(Node::is_true);
        // A TLS context without a certificate in a file is a mistake.
        let has_tls = listener.more.get("tls.cert_file").is_some();
        let overwritten = match config.at("scheme_header_transformation.scheme_to_overwrite").map(Node::text) {
            Some("https") => Some("https"),
            Some("http") => Some("http"),
            _ => None,
        };
        let makes_id = config.get("generate_request_id").is_none_or(Node::is_true);
        let is_scheme_of_port = overwritten.is_none() && config.get("forward_proto_config").is_some();
        let has_internal = config.get("internal_address_config").is_some();
        let own = Arrival { is_edge, hops, has_tls, overwritten, makes_id, ..Arrival::default() };
        self.arrival = Arrival { is_scheme_of_port, has_internal, ..own };
        let replaces = self.client_cert(config, listener);
        self.internal_only_headers(config);
        // With use_remote_address, Envoy appends the address of the peer. Without it, the field stays as it came.
        let forwarded = match (is_edge, replaces) {
            (true, true) => "replace",
            (true, false) => "append",
            (false, _) => "keep",
        };
        listener.more.set("http.forwarded", Value::text(forwarded));
        self.trusted_hops(config, listener);
        self.request_id(config, listener, replaces);
        let at = config.get("use_remote_address").unwrap_or(config);
        if !is_edge && overwritten.is_none() {
            let why = "Envoy adds X-Forwarded-Proto to requests without it; here none is added";
            self.note(at, "use_remote_address", why, "listener.http.forwarded = \"append\"");
        } else if is_edge && !replaces {
            let why = "requests without X-Forwarded-Host get it, with their host";
            self.note(at, "use_remote_address", why, "change = \"remove\" of [[route.request_header]]");
        }
        self.every_request = self.arrival.changes();
        Ok(())
    }

    /// Headers that Envoy removes before it selects a route.
    fn internal_only_headers(&mut self, config: &'n Node) {
        for node in config.get("route_config").map_or(&[][..], |routes| routes.items_at("internal_only_headers")) {
            let name = node.text().to_ascii_lowercase();
            match self.arrival.seen(&name) {
                Seen::Sent => self.arrival.internal_only.push(name),
                // A listener of Weir that makes no ids forwards that of the client.
                Seen::Written { .. } if name == "x-request-id" && !self.arrival.is_edge => {
                    self.arrival.internal_only.push(name);
                }
                Seen::Absent => {}
                _ => {
                    let why = "Weir does not remove the client's own";
                    self.note(node, &format!("internal_only_headers: {name}"), why, "listener.http.forwarded");
                }
            }
        }
    }

    /// The proxies whose entries in X-Forwarded-For count. Without `use_remote_address`, the peer is one more of them.
    fn trusted_hops(&mut self, config: &'n Node, listener: &mut Listener) {
        let Arrival { hops, is_edge, .. } = self.arrival;
        let all = hops.saturating_add(u64::from(!is_edge));
        if all > 0 {
            listener.more.set("http.trusted_hops", Value::Number(all.min(HOPS_MAX)));
        }
        let Some(node) = config.get("xff_num_trusted_hops").filter(|_| hops > 0) else { return };
        if all > HOPS_MAX {
            self.note(
                node,
                &format!("xff_num_trusted_hops: {hops}"),
                "is at most 16 here",
                "listener.http.trusted_hops",
            );
        }
        if is_edge {
            let why = "x-envoy-external-address is removed; Envoy writes the client's address";
            self.note(node, "xff_num_trusted_hops", why, "");
        }
    }

    /// `replaces`: Weir replaces the forwarding headers of clients, and their ids.
    fn request_id(&mut self, config: &'n Node, listener: &mut Listener, replaces: bool) {
        let at = config.get("generate_request_id").unwrap_or(config);
        let keeps = config.get("preserve_external_request_id").is_some_and(Node::is_true);
        if !self.arrival.makes_id {
            return;
        }
        if !self.arrival.is_edge {
            // With it, and with forwarded = "keep", the id of a proxy in front would be replaced.
            let why = "Envoy adds X-Request-ID to requests without it; here none is added";
            return self.note(at, "generate_request_id", why, "listener.http.request_id");
        }
        listener.more.set("http.request_id", Value::Flag(true));
        if keeps == replaces {
            let why = match keeps {
                true => "a client's own X-Request-ID is replaced",
                false => {
                    "a client's own X-Request-ID is kept, if it is valid; Envoy replaces it, and Weir has no setting for this header alone"
                }
            };
            self.note(at, "generate_request_id", why, "listener.http.forwarded");
        }
    }

    /// X-Forwarded-Client-Cert. True: the listener must replace the forwarding headers of clients.
    fn client_cert(&mut self, config: &'n Node, listener: &mut Listener) -> bool {
        let Some(node) = config.get("forward_client_cert_details") else { return false };
        let auth = listener.more.get("tls.client_auth");
        let (has_some, has_all) = (auth.is_some(), auth == Some(&Value::text("required")));
        let (is_edge, is_first) = (self.arrival.is_edge, self.arrival.is_client_the_peer());
        let parts = "the header has the certificate's hash, subject, DNS names and URIs";
        let key = "listener.http.forwarded_client_cert";
        let (client_cert, why) = match node.text() {
            "ALWAYS_FORWARD_ONLY" => (ClientCert::Kept, None),
            // Only the header of a client with a certificate is forwarded.
            "FORWARD_ONLY" if has_all => (ClientCert::Kept, None),
            "APPEND_FORWARD" if has_all && is_edge => (ClientCert::Written { is_always: true }, Some(parts)),
            "APPEND_FORWARD" if has_all => (ClientCert::Kept, Some("the certificate of the peer is not appended")),
            "SANITIZE_SET" if has_some && is_first => (
                ClientCert::Written { is_always: has_all },
                Some(
                    "forwarded = \"replace\" replaces X-Forwarded-For and all other forwarding headers of clients too; \
                     the header has the certificate's hash, subject, DNS names and URIs",
                ),
            ),
            "SANITIZE" => (ClientCert::Removed, None),
            "FORWARD_ONLY" | "APPEND_FORWARD" | "SANITIZE_SET" if !has_some => (ClientCert::Removed, None),
            _ => (ClientCert::Removed, Some("the routes remove the header, for it could be a client's own")),
        };
        self.arrival.client_cert = client_cert;
        if let Some(why) = why {
            self.note(node, &format!("forward_client_cert_details: {}", node.text()), why, key);
        }
        let is_written = matches!(client_cert, ClientCert::Written { .. });
        if is_written {
            listener.more.set("http.forwarded_client_cert", Value::Flag(true));
        }
        is_written && node.text() == "SANITIZE_SET"
    }
}
