//! The last requests of a worker, for the admin API. They have what the usage log says of them: no key text, and no prompt and no response
//! unless a listener keeps bodies (`bodies`), without their secrets (`redact`).

mod bodies;
mod redact;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, VecDeque},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use weir_spend::usage::{LINE_BYTES_MAX, TEXT_BYTES_MAX};

pub(crate) use self::bodies::BodyCapture;
use self::bodies::BodyRoom;
pub use self::bodies::{RecentBodies, RecentBody};
use crate::settings::ProviderDialect;

/// Bytes of the lines of a worker, for each request that it may remember. Default 1 KiB, twice the usual line.
const BYTES_EACH: usize = 1 << 10;

/// A request that is over.
#[derive(Clone, Debug)]
pub struct RecentRequest {
    /// Unix time of its end.
    pub ended: Duration,
    /// The listener.
    pub listener: Arc<str>,
    /// The kind of its endpoint, in the words of OpenTelemetry.
    pub operation: &'static str,
    /// The API of the provider of the last attempt, in the words of OpenTelemetry.
    pub provider: Option<&'static str>,
    /// The client has requested a stream.
    pub is_stream: bool,
    /// The reason of the gateway's refusal, as metrics have it.
    pub refusal: Option<&'static str>,
    /// Its message, if it is one of MCP or A2A.
    pub message: Option<RecentMessage>,
    /// The members of its line in the usage log, as one object of JSON.
    pub line: Arc<[u8]>,
    /// Its bodies. `None`: they are not kept, or have made room for later ones.
    pub bodies: Option<Arc<RecentBodies>>,
}

/// A message of MCP or A2A, or a request without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentMessage {
    /// `mcp` or `a2a`.
    pub protocol: &'static str,
    /// Its method, cut as texts of the usage log are; without a message the word of the metrics.
    pub method: Box<str>,
}

impl RecentMessage {
    pub(crate) fn new(protocol: &'static str, method: &str) -> Self {
        Self { protocol, method: method[..method.floor_char_boundary(TEXT_BYTES_MAX)].into() }
    }
}

/// A ring of them on one worker.
#[derive(Debug)]
pub struct RecentRequests {
    requests_max: usize,
    ring: RefCell<Ring>,
    bodies_bytes_max: usize,
    /// Memory for bodies of exchanges that are under way.
    reserved: Cell<usize>,
    /// Listeners that keep no bodies any more, while exchanges from before may be under way.
    without_bodies: RefCell<BTreeSet<Box<str>>>,
}

#[derive(Debug, Default)]
struct Ring {
    requests: VecDeque<RecentRequest>,
    bytes: usize,
    body_bytes: usize,
}

impl RecentRequests {
    /// A ring of so many requests, whose lines have 1 KiB each on average at most, and of so many bytes of bodies, those of exchanges under
    /// way included. 0: it remembers none.
    pub fn new(requests_max: usize, bodies_bytes_max: usize) -> Self {
        Self {
            requests_max,
            ring: RefCell::default(),
            bodies_bytes_max,
            reserved: Cell::default(),
            without_bodies: RefCell::default(),
        }
    }

    /// All, the oldest first.
    pub fn all(&self) -> Vec<RecentRequest> {
        self.ring.borrow().requests.iter().cloned().collect()
    }

    /// It remembers none.
    pub(crate) fn is_off(&self) -> bool {
        self.requests_max == 0
    }

    pub(crate) fn push(&self, mut request: RecentRequest) {
        if self.without_bodies.borrow().contains(&*request.listener) {
            request.bodies = None;
        }
        debug_assert!(request.line.len() <= LINE_BYTES_MAX);
        let ring = &mut *self.ring.borrow_mut();
        ring.bytes += request.bytes();
        ring.body_bytes += request.body_bytes();
        ring.requests.push_back(request);
        while ring.requests.len() > self.requests_max || ring.bytes > self.requests_max * BYTES_EACH {
            let Some(oldest) = ring.requests.pop_front() else { return };
            ring.bytes -= oldest.bytes();
            ring.body_bytes -= oldest.body_bytes();
        }
        ring.limit_bodies(self.bodies_bytes_max.saturating_sub(self.reserved.get()));
    }

    /// Whether a listener keeps bodies from now on. If not, its bodies are dropped, and those of its exchanges under way are not kept.
    pub(crate) fn keep_bodies(&self, listener: &str, are_kept: bool) {
        if are_kept {
            self.without_bodies.borrow_mut().remove(listener);
            return;
        }
        self.without_bodies.borrow_mut().insert(listener.into());
        let ring = &mut *self.ring.borrow_mut();
        for request in ring.requests.iter_mut().filter(|request| *request.listener == *listener) {
            ring.body_bytes -= request.body_bytes();
            request.bodies = None;
        }
    }

    /// Memory for bodies of an exchange. The oldest bodies make room for them. `None`: those of exchanges under way have all of it.
    fn room(self: &Rc<Self>, bytes: usize) -> Option<BodyRoom> {
        let reserved = self.reserved.get() + bytes;
        let left = self.bodies_bytes_max.checked_sub(reserved)?;
        self.reserved.set(reserved);
        self.ring.borrow_mut().limit_bodies(left);
        Some(BodyRoom { recent: self.clone(), bytes })
    }

    fn give_back(&self, bytes: usize) {
        self.reserved.set(self.reserved.get() - bytes);
    }
}

impl Ring {
    /// The oldest bodies leave until the others have no more than so many bytes. Their requests stay.
    fn limit_bodies(&mut self, bytes_max: usize) {
        let mut requests = self.requests.iter_mut();
        while self.body_bytes > bytes_max {
            let Some(request) = requests.next() else { return };
            self.body_bytes -= request.body_bytes();
            request.bodies = None;
        }
    }
}

impl RecentRequest {
    /// Bytes of its texts, apart from bodies.
    fn bytes(&self) -> usize {
        self.line.len() + self.message.as_ref().map_or(0, |message| message.method.len())
    }

    fn body_bytes(&self) -> usize {
        self.bodies.as_ref().map_or(0, |bodies| bodies.bytes())
    }
}

/// The value of `gen_ai.provider.name`: of a server that speaks OpenAI's API, that of OpenAI.
pub(crate) fn provider_name(dialect: ProviderDialect) -> &'static str {
    match dialect {
        ProviderDialect::OpenAi => "openai",
        ProviderDialect::Azure => "azure.ai.openai",
        ProviderDialect::Anthropic => "anthropic",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request_of(bytes: usize) -> RecentRequest {
        RecentRequest {
            ended: Duration::from_secs(bytes as u64),
            listener: "ai".into(),
            operation: "chat",
            provider: None,
            is_stream: false,
            refusal: None,
            message: None,
            line: vec![b' '; bytes].into(),
            bodies: None,
        }
    }

    fn with_body(bytes: usize) -> RecentRequest {
        let request = RecentBody { text: vec![b'x'; bytes].into(), length: bytes as u64 };
        RecentRequest { bodies: Some(Arc::new(RecentBodies { request, ..RecentBodies::default() })), ..request_of(7) }
    }

    fn body_sizes(ring: &RecentRequests) -> Vec<usize> {
        ring.all().iter().map(RecentRequest::body_bytes).collect()
    }

    #[test]
    fn bodies_have_a_bound_of_their_own_and_the_oldest_make_room() {
        let ring = Rc::new(RecentRequests::new(3, 100));
        [40, 50, 30].into_iter().for_each(|bytes| ring.push(with_body(bytes)));
        assert_eq!(body_sizes(&ring), [0, 50, 30], "the request stays without its body");
        let room = ring.room(40).expect("room");
        assert_eq!(body_sizes(&ring), [0, 0, 30], "it is for an exchange under way");
        assert!(ring.room(61).is_none(), "more than all");
        ring.push(with_body(61));
        assert_eq!(body_sizes(&ring), [0, 0, 0]);
        drop(room);
        ring.push(with_body(100));
        assert_eq!(body_sizes(&ring), [0, 0, 100]);
        (0..3).for_each(|_| ring.push(request_of(1)));
        assert_eq!(ring.ring.borrow().body_bytes, 0, "they have left with their requests");
        ring.push(with_body(5));
        ring.keep_bodies("other", false);
        assert_eq!(body_sizes(&ring), [0, 0, 5]);
        ring.keep_bodies("ai", false);
        assert_eq!((body_sizes(&ring), ring.ring.borrow().body_bytes), (vec![0, 0, 0], 0));
        ring.push(with_body(5));
        assert_eq!(body_sizes(&ring), [0, 0, 0], "an exchange that was under way");
        ring.keep_bodies("ai", true);
        ring.push(with_body(5));
        assert_eq!(body_sizes(&ring), [0, 0, 5]);
        assert!(Rc::new(RecentRequests::new(3, 0)).room(1).is_none());
    }

    fn sizes(ring: &RecentRequests) -> Vec<usize> {
        ring.all().iter().map(|request| request.line.len()).collect()
    }

    #[test]
    fn the_oldest_make_room_by_count_and_by_bytes() {
        let ring = RecentRequests::new(3, 0);
        (1..=5).for_each(|bytes| ring.push(request_of(bytes)));
        assert_eq!(sizes(&ring), [3, 4, 5]);
        ring.push(request_of(3_066));
        assert_eq!(sizes(&ring), [5, 3_066], "3 KiB in all");
        ring.push(request_of(4_000));
        assert_eq!(sizes(&ring), [] as [usize; 0], "longer than all may be");
        ring.push(request_of(7));
        assert_eq!(sizes(&ring), [7]);
        let none = RecentRequests::new(0, 0);
        none.push(request_of(1));
        assert!(none.all().is_empty());
    }
}
