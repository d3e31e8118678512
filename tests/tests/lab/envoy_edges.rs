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
const FIELDS: [&str; 5] = [
    "X-Forwarded-Proto: https\r\nX-Request-ID: 01234567-89ab-4def-8123-456789abcdef\r\n",
    "X-Forwarded-Proto: http\r\nX-Request-ID: 01234567-89ab-4def-8123-456789abcdef\r\n",
    "X-Forwarded-Proto: https\r\nX-Request-ID: 01234567-89ab-4def-8123-456789abcdef\r\nX-Forwarded-For: 192.0.2.1, 192.0.2.2\r\n\
     X-Forwarded-Client-Cert: Hash=1\r\n",
    "X-Forwarded-Proto: http\r\nX-Request-ID: 01234567-89ab-4def-8123-456789abcdef\r\nX-Envoy-Internal: true\r\n\
     X-Envoy-Retry-On: 5xx\r\nX-Envoy-Decorator-Operation: a\r\n",
    "X-Forwarded-Proto: https\r\nX-Request-ID: 01234567-89ab-4def-8123-456789abcdef\r\nX-Secret: s\r\n",
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

/// Status, Location and, of the origin's responses, the text. `notes`: of the import, which name parts of the text that differ.
fn shown(response: &Response, notes: &str) -> (u16, Option<String>, String) {
    let mut text = if response.status == 200 { response.content() } else { String::new() };
    if notes.contains("`forward_client_cert_details: ") {
        // Each program names other parts of the certificate.
        text = changed(&text, "cert", |value| value.split([',', ';']).any(|part| part.trim() == "Hash=1").to_string());
    }
    if notes.contains("replaces X-Forwarded-For") {
        text = changed(&text, "before", |_| String::new());
    }
    if notes.contains("x-envoy-external-address is removed") {
        let address = |value: &str| value.split('/').nth(1).unwrap_or_default().to_owned();
        text = changed(&text, "envoy", |value| value.replacen(&address(value), "", 1));
    }
    (response.status, response.field("location"), text)
}

/// The text with another value of this name.
fn changed(text: &str, name: &str, change: impl Fn(&str) -> String) -> String {
    let Some((before, rest)) = text.split_once(&format!(" {name}=")) else { return text.to_owned() };
    // The names that stand behind those that change.
    let ends = [" scheme=", " id=", " secret="].iter().filter_map(|end| rest.find(end));
    let (value, behind) = rest.split_at(ends.min().unwrap_or(rest.len()));
    format!("{before} {name}={}{behind}", change(value))
}

/// Both programs in front of an origin.
struct Stand {
    pair: Pair,
    /// Notes of the import without the known ones.
    unknown: Vec<String>,
    _envoy: Envoy,
    _origin: Faulty,
}

/// Compares all requests. `tls`: of the listener and of its clients. `known`: the notes that the import should have.
fn compared(manager: &str, tls: Option<(&str, &Arc<ClientConfig>)>, known: &[&str]) -> Stand {
    let origin = origin("one");
    let (socket, tls) = (tls.map_or("", |(socket, _)| socket), tls.map(|(_, clients)| clients));
    let config = |port: u16| {
        let one = origin.address.tcp().port().to_string();
        let text = CONFIG.replace("$PORT", &port.to_string()).replace("$ONE", &one);
        text.replace("$MANAGER", manager).replace("$SOCKET", socket)
    };
    let envoy = Envoy::start(config);
    let pair = Pair::new("envoy", &envoy.address, config);
    let notes = &pair.imported.notes;
    for (path, fields) in PATHS.iter().flat_map(|path| FIELDS.map(|fields| (path, fields))) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{fields}Connection: close\r\n\r\n");
        let [theirs, ours] = both(&pair, tls, &request).map(|response| shown(&response, notes));
        assert_eq!(theirs, ours, "{request}\nweir.toml:\n{}", pair.imported.toml);
    }
    let counts = ["note: it is", "notes: they are"];
    let is_unknown = |note: &&str| !counts.iter().chain(known).any(|known| note.contains(known));
    let unknown = notes.lines().filter(is_unknown).map(str::to_owned).collect();
    Stand { pair, unknown, _envoy: envoy, _origin: origin }
}

/// TLS of a listener, as Envoy writes it. `demands`: each client needs a certificate.
fn tls_socket(files: &Certificates, demands: bool) -> String {
    let (cert, key) = (files.server.display(), files.server_key.display());
    let kind = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";
    let pair = format!("{{ certificate_chain: {{ filename: \"{cert}\" }}, private_key: {{ filename: \"{key}\" }} }}");
    let authority =
        format!(", validation_context: {{ trusted_ca: {{ filename: \"{}\" }} }}", files.authority.display());
    let authority = if demands { authority } else { String::new() };
    let context = format!(
        "\"@type\": {kind}, require_client_certificate: {demands}, common_tls_context: {{ tls_certificates: [{pair}]{authority} }}"
    );
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
    let tls = certificates.client_config();
    let stand = compared("use_remote_address: true", Some((&tls_socket(&certificates, false), &tls)), &AT_EDGE);
    assert!(stand.unknown.is_empty(), "every line has a counterpart: {:#?}", stand.unknown);
    let parts: &[&str] = &[" scheme=https ", " tag=of-https, all "];
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
        let parts: &[&str] = &[" scheme=https ", " id=own ", " tag=of-https, all "];
        assert_parts(pair, None, "X-Forwarded-Proto: https\r\nX-Request-ID: own\r\n", [parts, parts]);
        assert_parts(pair, None, "", [&[" scheme=http ", " id=made "], &[" scheme= ", " id= "]]);
    }
}

#[test]
fn a_scheme_that_a_file_overwrites_is_what_all_requests_say() {
    let key = "scheme_header_transformation: { scheme_to_overwrite: https }";
    let behind = ["`generate_request_id`: Envoy adds X-Request-ID"];
    for (manager, known) in [("use_remote_address: true", &AT_EDGE[..]), ("use_remote_address: false", &behind[..])] {
        let known = [known, &["`:scheme` of HTTP/2 upstreams"]].concat();
        let Stand { pair, unknown, .. } = &compared(&format!("{manager}\n          {key}"), None, &known);
        assert!(unknown.is_empty(), "every line has a counterpart: {unknown:#?}");
        let parts: &[&str] = &[" scheme=https ", " tag=of-https, all "];
        assert_parts(pair, None, "X-Forwarded-Proto: http\r\n", [parts, parts]);
        assert_parts(pair, None, "", [parts, parts]);
    }
}

#[test]
fn a_listener_at_the_edge_with_a_trusted_proxy_believes_that_one() {
    let known = [&AT_EDGE[..], &["`xff_num_trusted_hops`: x-envoy-external-address is removed"]].concat();
    let manager = "use_remote_address: true\n          xff_num_trusted_hops: 1";
    let Stand { pair, unknown, .. } = &compared(manager, None, &known);
    assert!(unknown.is_empty(), "every line has a counterpart: {unknown:#?}");
    let parts: &[&str] = &[" scheme=https ", " tag=of-https, all "];
    assert_parts(pair, None, "X-Forwarded-Proto: https\r\n", [parts, parts]);
}

#[test]
fn a_forged_certificate_in_a_header_passes_where_it_passes_through_envoy() {
    let folder = tempfile::tempdir().expect("a folder");
    let certificates = Certificates::create(folder.path());
    let (socket, clients) = (tls_socket(&certificates, true), certificates.client_config_with_certificate());
    let known = [&AT_EDGE[..], &["`forward_client_cert_details: "]].concat();
    for (mode, is_forged) in [("SANITIZE_SET", false), ("FORWARD_ONLY", true), ("APPEND_FORWARD", true)] {
        let manager = format!("use_remote_address: true\n          forward_client_cert_details: {mode}");
        let Stand { pair, unknown, .. } = &compared(&manager, Some((&socket, &clients)), &known);
        assert!(unknown.is_empty(), "every line has a counterpart: {unknown:#?}");
        let request =
            "GET / HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-Client-Cert: Hash=1\r\nConnection: close\r\n\r\n";
        for response in both(pair, Some(&clients), request) {
            let text = response.content();
            let arrives = ["cert=Hash=1 ", "cert=Hash=1,"].iter().any(|forged| text.contains(forged));
            assert_eq!(arrives, is_forged, "{mode}: {text}");
        }
    }
}
