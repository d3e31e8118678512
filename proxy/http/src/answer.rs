//! What comes back from an origin: interim answers, the head, the body.

use std::cell::Cell;

use weir_base::error::Culprit;
use weir_engine::{Deadline, Reader};
use weir_http_codec::{BodyDecoder, BodyLength, HeadLimits, ResponseHead, ResponseParser, strip_hop_by_hop};
use weir_upstream::LossCause;

use crate::{
    client::Replies,
    connection::Connection,
    exchange::{Asked, Ended, Failure},
    input::Input,
    refusal::Refusal,
    relay::relay,
    routes,
    routing::Routed,
    settings::{HttpListenerSettings, INTERIM_RESPONSES_MAX},
    tunnel::Switched,
    wire::{WireSource, receive},
};

/// What comes back.
pub(crate) struct Answer<'a, R> {
    pub(crate) asked: &'a Asked,
    pub(crate) connection: &'a Connection,
    pub(crate) settings: &'a HttpListenerSettings,
    pub(crate) routed: &'a Routed<'a>,
    pub(crate) replies: R,
    pub(crate) parser: &'a mut ResponseParser,
    /// Of the origin's side.
    pub(crate) deadline: &'a Deadline,
    /// The request has been sent to its end.
    pub(crate) is_uploaded: &'a Cell<bool>,
    /// The client has something of the final answer.
    pub(crate) is_begun: bool,
    /// Bytes that the origin sent.
    pub(crate) received: u64,
    /// The connection is a tunnel from here on, and the client has nothing of it yet.
    pub(crate) switched: Option<Box<Switched>>,
}

impl<R: Replies> Answer<'_, R> {
    /// Passes the answer on to its end.
    pub(crate) async fn run(&mut self, reader: &mut Reader) -> Ended {
        // The last origin may have failed in the middle of a head.
        self.parser.reset();
        let mut input = Input::default();
        let mut interim = 0;
        let mut head = loop {
            let mut head = match self.head(reader, &mut input).await {
                Ok(head) => head,
                Err(failure) => return Ended::Failed(failure),
            };
            if !head.is_interim() {
                break head;
            }
            if head.status() == 101 && self.asked.wish.is_granted(&head) {
                self.switched = Some(Box::new(Switched { head, input }));
                return Ended::Answered { status: 101, keeps_client: false, keeps_lane: false };
            }
            interim += 1;
            // It has nothing to switch to that it was asked for.
            if interim > INTERIM_RESPONSES_MAX || head.status() == 101 {
                return Ended::Failed(Failure::Origin(Refusal::ORIGIN_MALFORMED, LossCause::Violation));
            }
            strip_hop_by_hop(&mut head.fields);
            self.replies.interim(&head);
        };
        let length = head.body(self.asked.is_head);
        let is_persistent = head.is_persistent();
        let keeps_client = self.pass_head(&mut head, length);
        let mut decoder = BodyDecoder::new(length);
        let mut body = WireSource {
            reader,
            input: &mut input,
            decoder: &mut decoder,
            deadline: self.deadline,
            idle_timeout: self.settings.body_idle_timeout,
            received: 0,
            is_ended: false,
        };
        let passed = relay(&mut body, &mut self.replies).await;
        self.received += body.received;
        if let Err(broken) = passed {
            return Ended::Failed(Failure::of_origin(broken));
        }
        // Bytes behind the answer belong to nobody: on this connection nothing can be trusted any more.
        let is_clean = input.bytes().is_empty() && !input.is_ended() && length != BodyLength::UntilClose;
        let status = head.status();
        self.parser.reuse(head);
        Ended::Answered { status, keeps_client, keeps_lane: is_persistent && is_clean }
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

    /// Passes the final head on; whether the connection of the client may bring another request.
    fn pass_head(&mut self, head: &mut ResponseHead, length: BodyLength) -> bool {
        self.is_begun = true;
        strip_hop_by_hop(&mut head.fields);
        if let Some(answer) = self.asked.answer_fields.get() {
            answer.apply(self.routed.action.policies.as_deref(), &mut head.fields);
        }
        let changes = &self.routed.action.response_fields;
        if !changes.is_empty() {
            routes::change(&mut head.fields, changes, &self.connection.known(self.routed, None, self.asked));
        }
        self.replies.head(head, length, self.is_uploaded.get())
    }
}
