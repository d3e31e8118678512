//! What comes back from an origin: interim answers, the head, the body.

use std::cell::Cell;

use weir_base::time::turn;
use weir_http_codec::{BodyLength, Fields, Known, ResponseHead, strip_hop_by_hop};
use weir_upstream::LossCause;

use crate::{
    body::relay,
    client::Replies,
    compression, cookies,
    doors::Tap,
    failure::{Begun, Ended, Failure},
    grpc,
    limits::INTERIM_RESPONSES_MAX,
    origin::Download,
    passage::Passage,
    refusal::Refusal,
    tapped::{Tapped, Taps},
    upgrade::{Switched, Wish},
    variables::Variables,
};

/// What comes back.
pub(crate) struct Answer<'a, R, D> {
    pub(crate) passage: &'a Passage<'a>,
    /// The number of the endpoint that is asked.
    pub(crate) endpoint: usize,
    pub(crate) replies: R,
    pub(crate) origin: D,
    /// The request has been sent to its end.
    pub(crate) is_uploaded: &'a Cell<bool>,
    /// When the client had something of the final answer.
    pub(crate) begun: &'a Cell<Option<Begun>>,
    /// It is an answer in gRPC's words.
    pub(crate) is_grpc: &'a Cell<bool>,
    /// The connection is a tunnel from here on, and the client has nothing of it yet.
    pub(crate) switched: Option<Box<Switched>>,
}

impl<R: Replies, D: Download> Answer<'_, R, D> {
    /// Passes the answer on to its end.
    pub(crate) async fn run(&mut self) -> Ended {
        let mut interim = 0;
        let mut head = loop {
            let mut head = match self.origin.head().await {
                Ok(head) => head,
                Err(failure) => return Ended::Failed(failure),
            };
            if !head.is_interim() {
                break head;
            }
            if head.status() == 101 && self.passage.asked.wish.is_granted(&head) {
                self.switched = Some(Box::new(Switched { head, input: self.origin.rest() }));
                return Ended::Answered { status: 101, keeps_client: false, remains: None };
            }
            interim += 1;
            // It has nothing to switch to that it was asked for.
            if interim > INTERIM_RESPONSES_MAX || head.status() == 101 {
                return Ended::Failed(Failure::Origin(Refusal::ORIGIN_MALFORMED, LossCause::Violation));
            }
            strip_hop_by_hop(&mut head.fields);
            head.fields.remove(Known::ContentLength);
            self.replies.interim(&head);
        };
        if self.passage.retries.wants(head.status(), &head.fields) {
            return Ended::Failed(Failure::Status(head.status()));
        }
        let is_misleading = self.passage.asked.version.is_multiplexed() && self.passage.asked.wish != Wish::None;
        if is_misleading && (200..300).contains(&head.status()) {
            return Ended::Failed(Failure::Unwilling(Refusal::ORIGIN_NO_WEBSOCKET));
        }
        let length = self.origin.begin(&head, self.passage.asked.is_head);
        let taps = self.taps(&mut head, length);
        let is_persistent = head.is_persistent();
        let is_edited = taps.as_ref().is_some_and(|taps| !taps.edits.is_empty());
        let keeps_client = self.pass_head(&mut head, if is_edited { BodyLength::Chunked } else { length });
        // What comes although nothing may is nobody's: it would be taken for the next answer.
        if length != BodyLength::Exact(0) {
            let passed = match taps {
                None => relay(&mut self.origin, &mut self.replies).await,
                // Every connection pays for the size of this future.
                Some(taps) => Box::pin(relay(&mut self.origin, &mut Tapped::new(*taps, &mut self.replies))).await,
            };
            if let Err(broken) = passed {
                return Ended::Failed(Failure::of_origin(broken));
            }
        }
        if self.is_grpc.get() {
            let status = self.origin.trailers().and_then(grpc::status);
            self.passage.asked.grpc_status.set(status.or_else(|| grpc::status(&head.fields)));
        }
        let status = head.status();
        self.origin.reuse(head);
        Ended::Answered { status, keeps_client, remains: self.origin.remains().filter(|_| is_persistent) }
    }

    /// The taps of the body; the head says so then.
    fn taps(&self, head: &mut ResponseHead, length: BodyLength) -> Option<Box<Taps>> {
        if length == BodyLength::Exact(0) {
            return None;
        }
        let (asked, mut taps) = (self.passage.asked, Taps::default());
        if let Some(company) = asked.company.get() {
            let said = head.fields.get(Known::ContentLength).map(Box::<[u8]>::from);
            let tap = company.with(|companion| companion.tap(head.status(), &mut head.fields));
            if !head.fields.all(Known::ContentLength).eq(said.as_deref()) {
                // The framing is not the companion's.
                head.fields.remove(Known::ContentLength);
                said.iter().for_each(|length| head.fields.add(Known::ContentLength, length));
            }
            match tap {
                Tap::No => {}
                Tap::Follow => taps.follower = Some(company.clone()),
                Tap::Edit => {
                    compression::forget_bytes(&mut head.fields);
                    taps.edits.push(Box::new(company.clone()));
                }
            }
        }
        if let Some((coding, compression)) = &asked.coding
            && compression::is_fit(head, length, compression)
        {
            compression::vary(&mut head.fields);
            if let Some(coding) = *coding {
                compression::announce(&mut head.fields, coding);
                taps.edits.push(compression::encoder(coding));
            }
        }
        (!taps.is_empty()).then(|| Box::new(taps))
    }

    /// Passes the final head on; whether the connection of the client may bring another request.
    fn pass_head(&mut self, head: &mut ResponseHead, length: BodyLength) -> bool {
        self.begun.set(Some(Begun { at: turn::now(), status: head.status() }));
        self.is_grpc.set(self.passage.asked.is_call && head.fields.get(Known::ContentType).is_some_and(grpc::is_grpc));
        self.passage.retries.forget();
        strip_hop_by_hop(&mut head.fields);
        if head.status() == 204 {
            // RFC 9110 section 8.6.
            head.fields.remove(Known::ContentLength);
        }
        change(&mut head.fields, self.passage, self.endpoint);
        self.replies.head(head, length, self.is_uploaded.get())
    }
}

/// What policies, the route and affinity change in the head of an origin's final answer.
pub(crate) fn change(fields: &mut Fields, passage: &Passage<'_>, endpoint: usize) {
    let Passage { connection, routed, asked, .. } = *passage;
    if let Some(answer) = asked.answer_fields.get() {
        answer.apply(routed.action.policies.as_deref(), fields);
    }
    let changes = &routed.action.response_fields;
    if !changes.is_empty() {
        Variables::of_answered(connection, routed, endpoint, asked).change(fields, changes);
    }
    if !routed.action.cookies.is_empty() {
        cookies::change(fields, &routed.action.cookies);
    }
    if let Some(cookie) = asked.affinity_cookie.get() {
        fields.push(b"Set-Cookie", cookie);
    }
}
