//! The last requests of a worker, for the admin API. They have what the usage log says of them: no prompt, no response, no key text.

use std::{cell::RefCell, collections::VecDeque, sync::Arc, time::Duration};

use weir_spend::usage::LINE_BYTES_MAX;

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
    /// The members of its line in the usage log, as one object of JSON.
    pub line: Arc<[u8]>,
}

/// A ring of them on one worker.
#[derive(Debug)]
pub struct RecentRequests {
    requests_max: usize,
    ring: RefCell<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    requests: VecDeque<RecentRequest>,
    bytes: usize,
}

impl RecentRequests {
    /// A ring of so many requests, whose lines have 1 KiB each on average at most. 0: it remembers none.
    pub fn new(requests_max: usize) -> Self {
        Self { requests_max, ring: RefCell::default() }
    }

    /// All, the oldest first.
    pub fn all(&self) -> Vec<RecentRequest> {
        self.ring.borrow().requests.iter().cloned().collect()
    }

    /// It remembers none.
    pub(crate) fn is_off(&self) -> bool {
        self.requests_max == 0
    }

    pub(crate) fn push(&self, request: RecentRequest) {
        debug_assert!(request.line.len() <= LINE_BYTES_MAX);
        let ring = &mut *self.ring.borrow_mut();
        ring.bytes += request.line.len();
        ring.requests.push_back(request);
        while ring.requests.len() > self.requests_max || ring.bytes > self.requests_max * BYTES_EACH {
            let Some(oldest) = ring.requests.pop_front() else { return };
            ring.bytes -= oldest.line.len();
        }
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

    fn request(bytes: usize) -> RecentRequest {
        RecentRequest {
            ended: Duration::from_secs(bytes as u64),
            listener: "ai".into(),
            operation: "chat",
            provider: None,
            is_stream: false,
            refusal: None,
            line: vec![b' '; bytes].into(),
        }
    }

    fn sizes(ring: &RecentRequests) -> Vec<usize> {
        ring.all().iter().map(|request| request.line.len()).collect()
    }

    #[test]
    fn the_oldest_make_room_by_count_and_by_bytes() {
        let ring = RecentRequests::new(3);
        (1..=5).for_each(|bytes| ring.push(request(bytes)));
        assert_eq!(sizes(&ring), [3, 4, 5]);
        ring.push(request(3_066));
        assert_eq!(sizes(&ring), [5, 3_066], "3 KiB in all");
        ring.push(request(4_000));
        assert_eq!(sizes(&ring), [] as [usize; 0], "longer than all may be");
        ring.push(request(7));
        assert_eq!(sizes(&ring), [7]);
        let none = RecentRequests::new(0);
        none.push(request(1));
        assert!(none.all().is_empty());
    }
}
