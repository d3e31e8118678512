//! What comes back from an origin: interim answers, the head, the body.

use std::cell::Cell;

use weir_base::error::Culprit;
use weir_engine::{Deadline, Output, Reader};
use weir_http_codec::{
    BodyDecoder, BodyLength, HeadLimits, ResponseHead, ResponseParser, Version, encode, strip_hop_by_hop,
};
use weir_upstream::LossCause;

use crate::{
    connection::Connection,
    exchange::{Asked, Ended, Failure},
    input::Input,
    refusal::Refusal,
    relay::{Flow, Framing, framing_of, receive},
    routes,
    routing::Routed,
    settings::{HttpListenerSettings, INTERIM_RESPONSES_MAX},
};

/// What comes back.
pub(crate) struct Answer<'a> {
    pub(crate) asked: &'a Asked,
    pub(crate) connection: &'a Connection,
    pub(crate) settings: &'a HttpListenerSettings,
    pub(crate) routed: &'a Routed<'a>,
    pub(crate) client: &'a Output,
    pub(crate) parser: &'a mut ResponseParser,
    /// Of the origin's side.
    pub(crate) deadline: &'a Deadline,
    /// The request has been sent to its end.
    pub(crate) is_uploaded: &'a Cell<bool>,
    /// The client has something of the final answer.
    pub(crate) is_begun: bool,
    /// Bytes that the origin sent.
    pub(crate) received: u64,
}

impl Answer<'_> {
    /// Passes the answer on to its end.
    pub(crate) async fn run(&mut self, reader: &mut Reader) -> Ended {
        // The last origin may have failed in the middle of a head.
        self.parser.reset();
        let mut input = Input::default();
        let mut interim = 0;
        let mut head = loop {
            let head = match self.head(reader, &mut input).await {
                Ok(head) => head,
                Err(failure) => return Ended::Failed(failure),
            };
            if !head.is_interim() {
                break head;
            }
            interim += 1;
            // It has nothing to switch to that it was asked for.
            if interim > INTERIM_RESPONSES_MAX || head.status() == 101 {
                return Ended::Failed(Failure::Origin(Refusal::ORIGIN_MALFORMED, LossCause::Violation));
            }
            self.pass_interim(head);
        };
        let length = head.body(self.asked.is_head);
        let is_persistent = head.is_persistent();
        let framing = self.pass_head(&mut head, length);
        let mut decoder = BodyDecoder::new(length);
        let mut flow = Flow {
            reader,
            input: &mut input,
            output: self.client,
            decoder: &mut decoder,
            framing: framing.body,
            deadline: self.deadline,
            idle_timeout: self.settings.body_idle_timeout,
            received: 0,
            room: u64::MAX,
        };
        let passed = flow.run().await;
        self.received += flow.received;
        if let Err(broken) = passed {
            return Ended::Failed(Failure::of_origin(broken));
        }
        // Bytes behind the answer belong to nobody: on this connection nothing can be trusted any more.
        let is_clean = input.bytes().is_empty() && !input.is_ended() && length != BodyLength::UntilClose;
        let status = head.status();
        self.parser.reuse(head);
        Ended::Answered { status, keeps_client: framing.keeps, keeps_lane: is_persistent && is_clean }
    }

    async fn head(&mut self, reader: &mut Reader, input: &mut Input) -> Result<ResponseHead, Failure> {
        let malformed = Failure::Origin(Refusal::ORIGIN_MALFORMED, LossCause::Violation);
        loop {
            match self.parser.parse(input.bytes(), &HeadLimits::default()) {
                Ok(Some(used)) => {
                    input.spend(used);
                    return Ok(self.parser.take());
                }
                Ok(None) => {}
                Err(error) => {
                    self.connection.service.metrics.violation(&error.violation(Culprit::Upstream));
                    return Err(malformed);
                }
            }
            let has_some = !input.bytes().is_empty();
            input.keep();
            match receive(reader, input, self.deadline).await {
                Some(Ok(count)) if count > 0 => self.received += count as u64,
                Some(_) if has_some || self.received > 0 => {
                    return Err(Failure::Origin(Refusal::ORIGIN_CLOSED, LossCause::Closed));
                }
                Some(_) => return Err(Failure::Silent),
                None => return Err(Failure::Origin(Refusal::RESPONSE_TIMEOUT, LossCause::Timeout)),
            }
        }
    }

    fn pass_interim(&self, mut head: ResponseHead) {
        if self.asked.version == Version::Http10 {
            return;
        }
        strip_hop_by_hop(&mut head.fields);
        self.client.with(|into| {
            encode::response(&head, into);
            encode::end_of_head(into);
        });
    }

    /// Appends the final head.
    fn pass_head(&mut self, head: &mut ResponseHead, length: BodyLength) -> Passed {
        self.is_begun = true;
        strip_hop_by_hop(&mut head.fields);
        if let Some(answer) = self.asked.answer_fields.get() {
            answer.apply(self.routed.action.policies.as_deref(), &mut head.fields);
        }
        let changes = &self.routed.action.response_fields;
        if !changes.is_empty() {
            routes::change(&mut head.fields, changes, &self.connection.known(self.routed, None, self.asked));
        }
        let has_chunks = self.asked.version.has_chunks();
        let body = framing_of(length, has_chunks, self.asked.wants_trailers);
        let is_framed = matches!(length, BodyLength::Exact(_)) || body != Framing::Plain;
        // Who was not told to go on may or may not send the body now: what comes next could be either (RFC 9110 section 10.1.1).
        let is_certain = self.is_uploaded.get() || !self.asked.expects_continue;
        let keeps = is_framed && is_certain && self.asked.is_persistent && !self.connection.is_draining();
        self.client.with(|into| {
            encode::response(head, into);
            if body != Framing::Plain {
                encode::framing(BodyLength::Chunked, into);
            }
            match (keeps, self.asked.version) {
                (false, _) => encode::field(b"Connection", b"close", into),
                (true, Version::Http10) => encode::field(b"Connection", b"keep-alive", into),
                (true, _) => {}
            }
            encode::end_of_head(into);
        });
        Passed { body, keeps }
    }
}

/// How an answer goes on behind its head.
struct Passed {
    body: Framing,
    /// The connection may bring another request.
    keeps: bool,
}
