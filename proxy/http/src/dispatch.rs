//! The attempts of a request: a lane for each, until one is answered or none may follow.

use weir_http_codec::{BodyLength, RequestHead, encode};
use weir_listener::CloseReason;
use weir_upstream::{Link, LossCause, Refusal as LaneRefusal, Wanted};

use crate::{
    attempt::{Attempt, expired},
    client::{After, Client},
    doors::Whole,
    failure::{Ended, Failure, INSPECTED},
    options::Class,
    origin::WireOrigin,
    passage::Passage,
    refusal::Refusal,
    respond::{refuse_for, whole},
    tunnel,
    upstream::HttpLane,
    waiting::{Cut, while_wanted},
};

/// The reason why there is no lane for a request.
enum NoLane {
    /// The client does not wait for the response any more.
    Unwanted,
    /// The request has taken as long as it may; the endpoint that was waited for.
    Expired(Option<usize>),
    /// The body of the request had to make room.
    Failed(Failure),
    /// The upstream has none; the endpoint that was tried last.
    Refused(LaneRefusal, Option<usize>),
}

impl Passage<'_> {
    /// Has the request answered by an origin, or refuses it.
    pub(crate) async fn run(&self, client: &mut impl Client, head: &RequestHead) -> After {
        let (mut is_repeated, mut wants_fresh) = (false, false);
        loop {
            let is_fresh = std::mem::take(&mut wants_fresh);
            let mut lane = match self.acquire(client, is_fresh).await {
                Ok(lane) => lane,
                Err(none) => return self.without_lane(client, none),
            };
            if let Some(notes) = &self.asked.notes {
                notes.note_try(self.routed.upstream.settings(), lane.number());
            }
            let mut attempt = Attempt::new(self, lane.number());
            let is_reused = lane.is_reused();
            let ended = ask(&mut attempt, client, &mut lane, head).await;
            if matches!(ended, Ended::Failed(Failure::Silent)) && self.may_repeat() {
                // The origin has probably closed the idle connection when the request was on its way. Not for ever: it may be this
                // request that ends it. If the origin is restarting, its other idle connections are closed too.
                if is_reused && !is_repeated {
                    self.routed.upstream.look_again(lane.number());
                    (is_repeated, wants_fresh) = (true, true);
                    continue;
                }
                // The kernel may have taken the connection for an origin that was about to end.
                if self.retries.moves(lane.number()) {
                    attempt.note(&ended, lane.open_since());
                    lane.failed(LossCause::Closed);
                    continue;
                }
            }
            if attempt.is_uploaded()
                && let Some(copying) = self.copying.take()
            {
                copying.send(self.connection, self.asked, self.routed);
            }
            attempt.note(&ended, lane.open_since());
            if let Some(class) = attempt.class(&ended)
                && self.retries.again(lane.number(), class).await
            {
                match ended {
                    Ended::Failed(Failure::Origin(_, cause)) => lane.failed(cause),
                    _ => lane.ends(),
                }
                continue;
            }
            let upstream = &self.routed.upstream.settings().name;
            if let Some(refused) = self.refused(&ended) {
                lane.ends();
                return whole(client, self.asked, refused, INSPECTED);
            }
            if let Some(switched) = attempt.switched.take() {
                self.connection.answered(self.asked, 101, Some(attempt.sent), upstream, "ok");
                return Box::pin(tunnel::run(client.tunnel_end(), self, lane, *switched)).await;
            }
            return match attempt.after(lane, ended) {
                Ok(after) => after,
                Err(refusal) => refuse_for(client, self.asked, refusal, Some(attempt.sent), upstream),
            };
        }
    }

    /// The request may be sent again on another connection after one that said nothing.
    fn may_repeat(&self) -> bool {
        self.asked.is_idempotent && self.retries.is_repeatable()
    }

    /// The response that an inspection refuses the request with, if the client has nothing yet.
    fn refused(&self, ended: &Ended) -> Option<Whole> {
        let inspecting = self.inspecting.filter(|_| matches!(ended, Ended::Failed(Failure::Inspected)))?;
        inspecting.borrow_mut().refused()
    }

    /// A lane for the request. An endpoint that cannot be reached is followed by another, until the request ends.
    async fn acquire(&self, client: &mut impl Client, mut is_fresh: bool) -> Result<HttpLane, NoLane> {
        loop {
            let (avoid, tried) = (self.retries.avoided(), self.retries.tried());
            let is_fresh = std::mem::take(&mut is_fresh);
            let mut acquiring = self.routed.upstream.acquire(Wanted { avoid, tried, is_fresh, hash: self.affinity });
            let (refusal, number) = match while_wanted(client, self.ends, &mut acquiring).await {
                Ok(Ok(lane)) => {
                    lane.charge_to(self.connection.handle.account().clone());
                    return Ok(lane);
                }
                Ok(Err(refused)) => refused,
                Err(cut) => {
                    let number = acquiring.number();
                    acquiring.leave();
                    return Err(self.cut_short(cut, number));
                }
            };
            let Some(unreachable) = number.filter(|_| refusal == LaneRefusal::Unreachable) else {
                return Err(NoLane::Refused(refusal, number));
            };
            match while_wanted(client, self.ends, self.retries.again(unreachable, Class::ConnectFailure)).await {
                Ok(true) => {}
                Ok(false) => return Err(NoLane::Refused(refusal, number)),
                Err(cut) => return Err(self.cut_short(cut, number)),
            }
        }
    }

    fn cut_short(&self, cut: Cut, number: Option<usize>) -> NoLane {
        match cut {
            Cut::Gone => NoLane::Unwanted,
            Cut::Broken(broken) => NoLane::Failed(self.connection.unread(broken)),
            Cut::Late => NoLane::Expired(number),
        }
    }

    /// Ends a request that got no lane.
    fn without_lane(&self, client: &mut impl Client, none: NoLane) -> After {
        let Self { asked, routed, connection, .. } = *self;
        let settings = routed.upstream.settings();
        let (refusal, number) = match none {
            NoLane::Failed(Failure::Unwilling(refusal)) => (refusal, None),
            NoLane::Failed(_) | NoLane::Unwanted => {
                connection.abandoned(asked, None, &settings.name);
                return After::Close(CloseReason::ClientReset);
            }
            NoLane::Expired(number) => (expired(asked), number),
            NoLane::Refused(refusal, number) => {
                let refusal = Refusal::no_lane(refusal);
                if refusal.status == 503 {
                    connection.service.metrics.shed(refusal.reason);
                }
                (refusal, number)
            }
        };
        if let (Some(notes), Some(number)) = (&asked.notes, number) {
            notes.note_endpoint(settings, number);
        }
        refuse_for(client, asked, refusal, None, &settings.name)
    }
}

/// Sends the request on a lane, and passes on what comes back.
async fn ask<C: Client>(attempt: &mut Attempt<'_>, client: &mut C, lane: &mut HttpLane, head: &RequestHead) -> Ended {
    let Passage { asked, routed, .. } = attempt.passage;
    let host = routed.host.as_deref().unwrap_or(head.authority());
    match lane.link() {
        Link::Connection(stream) => {
            stream.output.with(|into| encode::request(head, host, asked.body, into));
            // Lent: an argument of a future is kept twice, once as it was given.
            let mut origin = WireOrigin::new(stream);
            attempt.run(client, &mut origin).await
        }
        Link::Carrier(carrier) => match carrier.ask(head, host, asked.body == BodyLength::Exact(0)) {
            // Every connection pays for the size of this future, and few for this branch.
            Ok(mut origin) => Box::pin(async move { attempt.run(client, &mut origin).await }).await,
            Err(failure) => Ended::Failed(failure),
        },
    }
}
