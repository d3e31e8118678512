//! Imported listeners of Envoy with TLS, and behind other proxies: the same requests reach the origin alike.

use std::sync::Arc;

use rustls::ClientConfig;
use weir_tests::certificate::Certificates;
use weir_tests::envoy::Envoy;
use weir_tests::faulty::Faulty;
use weir_tests::http::{HttpClient, Response};
use weir_tests::import::{Pair, origin};
use weir_tests::stream::{Address, Stream};

/// `$PORT` and `$ONE` are ports: of the listener, and of the origin. `$MANAGER` and `$SOCKET` are keys of the listener.
const CONFIG: &str = include_str!("envoy-edge.yaml");

const PATHS: [&str; 5] = ["/", "/x?q=1", "/scheme/x", "/moved/x?q=1", "/left"];

/// Fields of proxies in front, or of a client that poses as one.
const FIELDS: [&str; 4] = [
    "X-Forwarded-Proto: https\r\nX-Request-ID: 01234567-89ab-4def-8123-456789abcdef\r\n",
    "X-Forwarded-Proto: http\r\nX-Request-ID: 01234567-89ab-4def-8123-456789abcdef\r\n",
    "X-Forwarded-Proto: https\r\nX-Request-ID: 01234567-89ab-4def-8123-456789abcdef\r\nX-Forwarded-For: 192.0.2.1, 192.0.2.2\r\n\
     X-Forwarded-Client-Cert: Hash=1\r\n",
    "X-Forwarded-Proto: http\r\nX-Request-ID: 01234567-89ab-4def-8123-456789abcdef\r\nX-Envoy-Internal: true\r\n\
     X-Envoy-Retry-On: 5xx\r\nX-Envoy-Decorator-Operation: a\r\n",
];

/// The responses of both programs to a request, with TLS if there is a configuration of it.
fn both(pair: &Pair, tls: Option<&Arc<ClientConfig>>, request: &str) -> [Response; 2] {
    [&pair.theirs, &pair.ours.address].map(|address: &Address| {
        let stream = match tls {
            None => Stream::connect(address),
            Some(config) => Stream::connect_tls(address.tcp(), config.clone()),
        };
        let mut client = HttpClient::over(stream.expect("a connection"));
        client.send(request);
        client.response()
    })
}

/// Status, Location and, of the origin's responses, the text.
fn shown(response: &Response) -> (u16, Option<String>, String) {
    let text = if response.status == 200 { response.content() } else { String::new() };
    (response.status, response.field("location"), text)
}

/// Both programs in front of an origin.
struct Stand {
    pair: Pair,
    /// Notes of the import without the known ones.
    unknown: Vec<String>,
    _envoy: Envoy,
    _origin: Faulty,
}

/// Compares all requests. `known`: the notes that the import should have.
fn compared(manager: &str, certificates: Option<&Certificates>, known: &[&str]) -> Stand {
    let origin = origin("one");
    let socket = certificates.map(tls_socket).unwrap_or_default();
    let config = |port: u16| {
        let one = origin.address.tcp().port().to_string();
        let text = CONFIG.replace("$PORT", &port.to_string()).replace("$ONE", &one);
        text.replace("$MANAGER", manager).replace("$SOCKET", &socket)
    };
    let envoy = Envoy::start(config);
    let pair = Pair::new("envoy", &envoy.address, config);
    let tls = certificates.map(Certificates::client_config);
    for (path, fields) in PATHS.iter().flat_map(|path| FIELDS.map(|fields| (path, fields))) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{fields}Connection: close\r\n\r\n");
        let [theirs, ours] = both(&pair, tls.as_ref(), &request).map(|response| shown(&response));
        assert_eq!(theirs, ours, "{request}\nweir.toml:\n{}", pair.imported.toml);
    }
    let is_unknown = |note: &&str| !note.contains("notes: they are") && !known.iter().any(|known| note.contains(known));
    let unknown = pair.imported.notes.lines().filter(is_unknown).map(str::to_owned).collect();
    Stand { pair, unknown, _envoy: envoy, _origin: origin }
}

/// TLS of a listener, as Envoy writes it.
fn tls_socket(files: &Certificates) -> String {
    let (cert, key) = (files.server.display(), files.server_key.display());
    let kind = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";
    let pair = format!("{{ certificate_chain: {{ filename: \"{cert}\" }}, private_key: {{ filename: \"{key}\" }} }}");
    let context = format!("\"@type\": {kind}, common_tls_context: {{ tls_certificates: [{pair}] }}");
    format!("transport_socket: {{ name: tls, typed_config: {{ {context} }} }}\n      ")
}

const AT_EDGE: [&str; 2] = [
    "`use_remote_address`: requests without X-Forwarded-Host",
    "`generate_request_id`: a client's own X-Request-ID is kept",
];

/// A request with these fields, and parts of the text of both responses.
fn assert_parts(pair: &Pair, tls: Option<&Arc<ClientConfig>>, fields: &str, parts: [&[&str]; 2]) {
    let request = format!("GET /scheme HTTP/1.1\r\nHost: a.example\r\n{fields}Connection: close\r\n\r\n");
    for (response, parts) in both(pair, tls, &request).iter().zip(parts) {
        let text = response.content() + " ";
        assert!(parts.iter().all(|part| text.contains(part)), "{parts:?}: {text}");
    }
}

#[test]
fn a_listener_with_tls_says_https_whatever_clients_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let certificates = Certificates::create(folder.path());
    let stand = compared("use_remote_address: true", Some(&certificates), &AT_EDGE);
    assert!(stand.unknown.is_empty(), "every line has a counterpart: {:#?}", stand.unknown);
    let parts: &[&str] = &[" scheme=https ", " tag=of-https "];
    let tls = certificates.client_config();
    assert_parts(&stand.pair, Some(&tls), "X-Forwarded-Proto: http\r\n", [parts, parts]);
}

#[test]
fn a_listener_behind_other_proxies_believes_them() {
    let known =
        ["`use_remote_address`: Envoy adds X-Forwarded-Proto", "`generate_request_id`: Envoy adds X-Request-ID"];
    for (manager, hops) in
        [("use_remote_address: false", 1), ("use_remote_address: false\n          xff_num_trusted_hops: 1", 2)]
    {
        let Stand { pair, unknown, .. } = &compared(manager, None, &known);
        assert!(unknown.is_empty(), "every line has a counterpart: {unknown:#?}");
        assert!(pair.imported.toml.contains(&format!("trusted_hops = {hops}\n")), "{}", pair.imported.toml);
        let parts: &[&str] = &[" scheme=https ", " id=own ", " tag=of-https "];
        assert_parts(pair, None, "X-Forwarded-Proto: https\r\nX-Request-ID: own\r\n", [parts, parts]);
        assert_parts(pair, None, "", [&[" scheme=http ", " id=made "], &[" scheme= ", " id= "]]);
    }
}
