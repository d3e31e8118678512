//! Another program and Weir with the imported configuration, in front of the same origins.

use super::{Imported, import};
use crate::faulty::{Act, Faulty};
use crate::gateway::Gateway;
use crate::http::{HttpClient, Response};
use crate::port;
use crate::stream::Address;

/// Fields that Envoy takes for its own.
const ENVOY_FIELDS: [&str; 4] =
    ["x-envoy-internal", "x-envoy-external-address", "x-envoy-retry-on", "x-envoy-decorator-operation"];

/// An origin whose response has its name and parts of the request: the request line, the host, and some fields. Requests for a path
/// that begins with `/silent` get no response, and those for `/unavailable` a 503.
pub fn origin(name: &'static str) -> Faulty {
    Faulty::http(move |request| {
        let head = String::from_utf8_lossy(&request[0]).into_owned();
        let words: Vec<&str> = head.lines().next().unwrap_or_default().split(' ').collect();
        if words[1].starts_with("/silent") {
            return Act::Silence;
        }
        let status = if words[1].starts_with("/unavailable") { "503 Service Unavailable" } else { "200 OK" };
        let value = |name: &str| values(&head, name);
        let hops = value("x-forwarded-for");
        // The last one is the peer, which programs name in different ways.
        let before = hops.rsplit_once(',').map_or("", |(before, _)| before);
        let body = format!(
            "{name} {} {} host={} client={} before={before} scheme={} cert={} id={} envoy={} secret={} tag={}",
            words[0],
            words[1],
            value("host"),
            value("x-real-ip"),
            value("x-forwarded-proto"),
            value("x-forwarded-client-cert"),
            id(&value("x-request-id")),
            ENVOY_FIELDS.map(value).join("/"),
            value("x-secret"),
            value("x-tag")
        );
        let head = format!("HTTP/1.1 {status}\r\nX-Origin: {name}\r\nContent-Length: {}\r\n\r\n", body.len());
        Act::Reply((head + &body).into_bytes())
    })
}

/// The id of a request; those that programs make differ in each request.
fn id(value: &str) -> &str {
    let is_made = value.len() == 36 && value.matches('-').count() == 4;
    if is_made { "made" } else { value }
}

/// The values of all fields of this name, joined.
fn values(head: &str, name: &str) -> String {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let values = fields.filter(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim());
    values.collect::<Vec<_>>().join(", ")
}

/// The program with its configuration, and Weir with the imported one.
pub struct Pair {
    /// Where the program listens.
    pub theirs: Address,
    /// Weir.
    pub ours: Gateway,
    /// The import.
    pub imported: Imported,
}

impl Pair {
    /// Imports `config` with another port. A result must be good by Weir's own check, or it does not start.
    pub fn new(format: &str, theirs: &Address, config: impl FnOnce(u16) -> String) -> Self {
        let port = port::free();
        let imported = import(format, &config(port));
        // Each worker counts its own turns: with one of them shares are exact.
        let text = format!("{}\n[runtime]\nworkers = 1\n", imported.toml);
        let ours = Gateway::with_text(&text, Address::port(port));
        Self { theirs: theirs.clone(), ours, imported }
    }

    /// The responses of the program and of Weir to a request.
    pub fn both(&self, request: &str) -> [Response; 2] {
        [&self.theirs, &self.ours.address].map(|address| {
            let mut client = HttpClient::connect(address);
            client.send(request);
            client.response()
        })
    }

    /// Sends a request to both. The response of the program, and the difference that a client sees, if there is one.
    pub fn compared(&self, line: &str, fields: &str) -> (Response, Option<String>) {
        let [theirs, ours] = self.both(&format!("{line} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n"));
        let shown = [&theirs, &ours].map(|response| {
            let is_text = response.status == 200 || response.field("x-origin").is_some();
            // Beside a refusal it is that of each program's own text.
            let kind = response.field("content-type").filter(|_| is_text);
            (
                response.status,
                response.field("x-origin"),
                response.field("location").map(|location| absolute(&location, fields)),
                response.field("x-added"),
                kind,
                // The text of a refusal is each program's own.
                is_text.then(|| response.content()),
            )
        });
        let difference = (shown[0] != shown[1]).then(|| format!("{line} {fields:?}\n{:?}\n{:?}", shown[0], shown[1]));
        (theirs, difference)
    }

    /// Sends a request to both, and returns the response of the program.
    ///
    /// # Panics
    /// If a client sees a difference.
    pub fn same(&self, line: &str, fields: &str) -> Response {
        let (theirs, difference) = self.compared(line, fields);
        assert!(difference.is_none(), "{}\nweir.toml:\n{}", difference.unwrap_or_default(), self.imported.toml);
        theirs
    }
}

/// A Location without the scheme, host and port that the request had: nginx and HAProxy leave them out, or name their port.
fn absolute(location: &str, fields: &str) -> String {
    let host = fields.lines().find_map(|line| line.strip_prefix("Host: ")).unwrap_or_default();
    let rest =
        location.strip_prefix("http://").filter(|rest| rest.len() >= host.len() && rest.is_char_boundary(host.len()));
    match rest.and_then(|rest| rest[..host.len()].eq_ignore_ascii_case(host).then(|| &rest[host.len()..])) {
        Some(rest) => rest.trim_start_matches(|c: char| c == ':' || c.is_ascii_digit()).to_owned(),
        // Weir writes hosts in lower case.
        None => match location.split_once("://") {
            Some((scheme, rest)) => {
                let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                format!("{scheme}://{}{path}", host.to_ascii_lowercase())
            }
            None => location.to_owned(),
        },
    }
}

/// The numbers of requests, among so many, that went to the origins `one` and `two`.
pub fn shares(address: &Address, path: &str, requests: usize) -> [usize; 2] {
    let mut counts = [0; 2];
    for _ in 0..requests {
        let mut client = HttpClient::connect(address);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"));
        counts[usize::from(client.response().field("x-origin").as_deref() == Some("two"))] += 1;
    }
    counts
}
