//! Common ground of the versions of HTTP, and of WebSocket behind an upgrade.
//!
//! A response of the lab's origin begins with the word in its target, a keyed hash of the requester: the check detects the
//! response to another stream or connection, and one of another length.

use super::messages::name_of;
use super::{Common, Count, Family, OwnKey, Work};
use crate::reply::{Reply, ReplyKind};
use crate::requests::{Expectation, Integrity, PlanPosition, Planner};
use crate::scenario::table::Table;
use crate::scenario::{Request, Scenario};
use crate::shard::Shard;
use crate::url::{Url, quoted};
use crate::values::{Generation, Values};

mod request;

pub(super) const FAMILY: Family = Family {
    own_keys: &[OwnKey { name: "request", why: "is only for HTTP and WebSocket" }],
    remedy: "remove it; [request] describes the HTTP request",
    origin: "http",
    has_workers: true,
    usual_peers: &["nginx", "haproxy", "envoy"],
};

/// Digits of a word.
const WORD_BYTES: usize = 16;
/// The byte that the origin fills bodies with.
const FILLING: u8 = b'x';

/// `[request]`. Nothing is stored, so nothing is written first.
pub(super) fn read(root: &Table<'_>) -> Option<Work> {
    Some(Work { request: root.table("request").and_then(request::read)?, ..Work::default() })
}

/// The same for a GET, which has one response.
pub(super) fn read_get(root: &Table<'_>, common: &Common<'_>) -> Option<Work> {
    let mut work = read(root)?;
    work.request.has_any_length = work.request.path.is_some() && root.get("payload").is_none();
    if work.request.path.is_some() && common.has_sizes() {
        root.refuse("payload", "has several sizes, and `request.path` has one response", "keep one of the two");
    }
    Some(work)
}

/// `[request]` of the scenario of a URL: its path as it stands, so the responses of any server are right.
pub(super) fn lines_of(url: &Url) -> String {
    format!("\n[request]\npath = {}\nhost = {}\n", quoted(url.path()), quoted(url.authority()))
}

/// The requests in words, with the path if the scenario names one.
pub(super) fn mix(what: &str, scenario: &Scenario) -> String {
    let path = scenario.request.path.as_deref().map_or(String::new(), |path| format!(" of {path}"));
    format!("{what}{path}")
}

/// The lab's origin tells it at a path of its own, if it has one core.
pub(super) const COUNT: Count =
    Count { question: b"GET /requests HTTP/1.0\r\nHost: lab\r\n\r\n", read: requests_served };

fn requests_served(response: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(response).to_ascii_lowercase();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let (_, length) = head.split_once("\r\ncontent-length:")?;
    let length: usize = length.lines().next()?.trim().parse().ok()?;
    let is_whole = head.split(' ').nth(1) == Some("200") && body.len() == length;
    body.trim().parse().ok().filter(|_| is_whole)
}

/// A whole response of any version.
pub(super) fn reply(status: u16, body: &[u8]) -> Reply<'_> {
    let kind = match status {
        200..=299 => ReplyKind::Value,
        // Gateways and servers refuse load with these two. A 503 may have another reason; it is no value either way.
        429 => ReplyKind::Shed("status_429"),
        503 => ReplyKind::Shed("status_503"),
        _ => ReplyKind::Error(body),
    };
    Reply { kind, body: Some(body) }
}

/// Writes a GET for a path and a host.
type Write = fn(&str, &str, &mut Vec<u8>);

/// Plans a GET for each request.
pub(super) struct GetPlanner<'a> {
    scenario: &'a Scenario,
    write: Write,
    expected: Bodies,
    planned: usize,
}

impl<'a> GetPlanner<'a> {
    pub(super) fn new(scenario: &'a Scenario, shard: Shard, write: Write) -> Self {
        let values = Values::new(scenario.seed, &scenario.payload);
        let Request { path, has_any_length, .. } = &scenario.request;
        let expected = Bodies { shard, values, has_word: path.is_none(), has_any_length: *has_any_length };
        Self { scenario, write, expected, planned: 0 }
    }
}

impl Planner for GetPlanner<'_> {
    fn plan(&mut self, arena: &mut Vec<u8>) {
        let request = &self.scenario.request;
        let own;
        let path = match &request.path {
            Some(path) => path,
            None => {
                let (size, word) = self.expected.of(self.planned);
                own = format!("/{size}/{}", String::from_utf8_lossy(&word));
                &own
            }
        };
        (self.write)(path, &request.host, arena);
        self.planned += 1;
    }

    fn finish(self: Box<Self>) -> Box<dyn Expectation> {
        Box::new(self.expected)
    }
}

/// The bodies of the responses.
#[derive(Debug)]
struct Bodies {
    shard: Shard,
    values: Values,
    /// Whether they begin with the word of their target.
    has_word: bool,
    /// Status and framing are all that is known of them.
    has_any_length: bool,
}

impl Bodies {
    /// Size and word of the response to request `at`.
    fn of(&self, at: usize) -> (usize, [u8; WORD_BYTES]) {
        let name = name_of(self.shard, at);
        (self.values.size(name, Generation::PRELOADED), digits(self.values.word(name)))
    }
}

impl Expectation for Bodies {
    fn check(&self, place: PlanPosition, body: &[u8]) -> Option<Integrity> {
        if self.has_any_length {
            return None;
        }
        let (size, word) = self.of(place.at);
        if body.len() != size {
            return Some(if body.is_empty() { Integrity::Missing } else { Integrity::Mismatch });
        }
        let (begin, rest) = body.split_at(body.len().min(WORD_BYTES));
        let is_own = || begin == &word[..begin.len()] && rest.iter().all(|byte| *byte == FILLING);
        Some(if !self.has_word || is_own() { Integrity::Ok } else { Integrity::Mismatch })
    }
}

fn digits(word: u64) -> [u8; WORD_BYTES] {
    std::array::from_fn(|at| b"0123456789abcdef"[(word >> (60 - 4 * at)) as usize & 15])
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::requests::Requests;
    use crate::scenario;

    pub(in crate::protocols) fn requests(protocol: &str, more: &str) -> Requests {
        let source = format!(
            "name = \"s\"\nprotocol = \"{protocol}\"\npayload = [{{ size = 8 }}, {{ size = 300 }}]\n{more}\
             [[phase]]\nrate = 10\nduration = \"1s\"\n"
        );
        let scenario = scenario::parse("s.toml", &source).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        Requests::build(&scenario, Shard::new(1, 2).expect("a shard"), 50)
    }

    /// The size and the word that request `index` asks for.
    fn target(requests: &Requests, index: u64) -> (usize, String) {
        let text = String::from_utf8_lossy(requests.bytes(index)).into_owned();
        let path = text.split(' ').nth(1).expect("a path");
        let (size, word) = path[1..].split_once('/').expect("two parts");
        (size.parse().expect("a number"), word.to_owned())
    }

    #[test]
    fn the_response_to_another_request_is_seen_by_its_word_and_its_length() {
        let requests = requests("http1", "");
        assert_eq!(requests.len(), 50);
        let mut sizes = [0, 0];
        for index in 0..50 {
            let (size, word) = target(&requests, index);
            sizes[usize::from(size == 300)] += 1;
            let mut body = word.into_bytes();
            body.resize(size.max(16), b'x');
            body.truncate(size);
            assert_eq!(requests.check(index, &body), Some(Integrity::Ok));
            assert_eq!(requests.check(index + 50, &body), Some(Integrity::Ok), "the next round");
            assert_eq!(requests.check((index + 1) % 50, &body), Some(Integrity::Mismatch));
            *body.last_mut().expect("a byte") ^= 1;
            assert_eq!(requests.check(index, &body), Some(Integrity::Mismatch));
            assert_eq!(requests.check(index, &body[1..]), Some(Integrity::Mismatch));
            assert_eq!(requests.check(index, b""), Some(Integrity::Missing));
        }
        assert!(sizes[0] > 10 && sizes[1] > 10, "{sizes:?}");
    }

    #[test]
    fn a_custom_path_is_requested_as_written_and_only_its_length_is_checked() {
        let single = "name = \"s\"\nprotocol = \"http1\"\npayload.size = 3\n[request]\npath = \"/a?b\"\nhost = \"h:1\"\n\
                      [[phase]]\nrate = 10\nduration = \"1s\"\n";
        let scenario = scenario::parse("s.toml", single).expect("right");
        let requests = Requests::build(&scenario, Shard::ONLY, 5);
        assert_eq!(requests.bytes(3), b"GET /a?b HTTP/1.1\r\nHost: h:1\r\n\r\n");
        assert_eq!(requests.check(3, b"any"), Some(Integrity::Ok));
        assert_eq!(requests.check(3, b"more"), Some(Integrity::Mismatch));
    }

    #[test]
    fn a_path_without_a_size_takes_a_body_of_any_length_and_counts_none_as_checked() {
        let source =
            "name = \"s\"\nprotocol = \"http1\"\nrequest.path = \"/a\"\n[[phase]]\nrate = 10\nduration = \"1s\"\n";
        let scenario = scenario::parse("s.toml", source).expect("right");
        let requests = Requests::build(&scenario, Shard::ONLY, 5);
        for body in [&b""[..], b"any", &[b'x'; 100_000]] {
            assert_eq!(requests.check(3, body), None);
        }
        let load = crate::record::Load::of(&scenario, &scenario.phases[0]);
        assert_eq!((load.is_status_only, &*load.payload), (true, "any length"));
    }

    #[test]
    fn a_count_is_read_once_it_is_whole() {
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n1234";
        assert_eq!((requests_served(response), requests_served(&response[..response.len() - 1])), (Some(1_234), None));
        assert_eq!(requests_served(b"HTTP/1.1 404 No\r\nContent-Length: 1\r\n\r\n1"), None);
    }

    #[test]
    fn a_status_is_a_value_a_refusal_or_a_failure() {
        let kind = |status| reply(status, b"x").kind;
        assert_eq!((kind(200), kind(204)), (ReplyKind::Value, ReplyKind::Value));
        assert_eq!((kind(503), kind(429)), (ReplyKind::Shed("status_503"), ReplyKind::Shed("status_429")));
        for status in [301, 404, 500, 502, 504] {
            assert_eq!(kind(status), ReplyKind::Error(b"x"), "{status}");
        }
        assert_eq!(Reply::refused("refused_stream").kind, ReplyKind::Shed("refused_stream"));
        assert_eq!((Reply::lost().kind, Reply::value(b"").kind), (ReplyKind::Lost, ReplyKind::Value));
    }
}
