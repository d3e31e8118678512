//! One request and its answer.

use std::{
    cell::{Cell, OnceCell},
    future::poll_fn,
    net::IpAddr,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use weir_base::time::{Time, turn};
use weir_http_codec::{BodyLength, Known, RequestHead, Version, encode, token};
use weir_listener::CloseReason;
use weir_upstream::{Link, LossCause, Refusal as LaneRefusal, Wanted};

use crate::{
    access::{Notes, Outcome, RouteMetrics},
    affinity,
    attempt::{Attempt, Ended, Failure, call_timeout, expired},
    buffering::{self, Passing},
    client::Client,
    compression::{self, Coding, Compression},
    connection::Connection,
    grpc,
    metrics::Timing,
    mirror::Copying,
    origin::WireOrigin,
    policies::AnswerFields,
    refusal::Refusal,
    relay::Broken,
    retry::{Class, Retries},
    routing::{Local, Routed, route},
    service::HttpLane,
    settings::HttpListenerSettings,
    tunnel::{self, Wish},
};

/// What happens to the connection after an exchange.
pub(crate) enum After {
    /// It may bring another request.
    Another,
    /// It ends, for this reason.
    Close(CloseReason),
    /// So it does, with an answer that must not look complete.
    Broken(CloseReason),
}

/// What of a request decides on how it is answered, once its head has been made ready to go on.
pub(crate) struct Asked {
    pub(crate) arrived: Time,
    pub(crate) method: &'static str,
    pub(crate) is_head: bool,
    pub(crate) is_idempotent: bool,
    pub(crate) version: Version,
    pub(crate) is_persistent: bool,
    pub(crate) expects_continue: bool,
    pub(crate) wants_trailers: bool,
    /// It is to be answered in gRPC's words.
    pub(crate) is_grpc: bool,
    /// It goes on as a call of gRPC, which may be silent for long.
    pub(crate) is_call: bool,
    /// The status that the origin gave the call.
    pub(crate) grpc_status: Cell<Option<u8>>,
    pub(crate) body: BodyLength,
    /// What policies put into its answer. Empty without policies.
    pub(crate) answer_fields: OnceCell<Box<AnswerFields>>,
    /// If it was chosen for the access log.
    pub(crate) notes: Option<Box<Notes>>,
    /// How long its body may pause.
    pub(crate) body_idle_timeout: Duration,
    /// How long the body of its answer may pause.
    pub(crate) answer_idle_timeout: Duration,
    /// How long all of it may take, as the client says.
    pub(crate) call_timeout: Option<Duration>,
    /// Cells of its route, if routes are counted.
    pub(crate) route: OnceCell<Rc<RouteMetrics>>,
    pub(crate) wish: Wish,
    /// How its answer is compressed, if that is fit for it and the client takes it.
    pub(crate) coding: Option<(Option<Coding>, Arc<Compression>)>,
    /// Its client, as trusted proxies tell of it, if its upstream keeps the requests of an address together.
    pub(crate) client: OnceCell<IpAddr>,
    /// A cookie that the client is given, so that it is known again.
    pub(crate) affinity_cookie: OnceCell<Box<[u8]>>,
}

impl Asked {
    fn of(head: &RequestHead, wish: Wish, settings: &HttpListenerSettings) -> Self {
        let is_grpc = head.fields.get(Known::ContentType).is_some_and(grpc::is_grpc);
        let wants_trailers = |value| token::list(value).any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
        Self {
            arrived: turn::now(),
            method: method_name(head.method()),
            is_head: head.method() == b"HEAD",
            // RFC 9110 section 9.2.2.
            is_idempotent: matches!(head.method(), b"GET" | b"HEAD" | b"OPTIONS" | b"PUT" | b"DELETE"),
            version: head.version(),
            is_persistent: head.is_persistent(),
            expects_continue: head.expects_continue(),
            wants_trailers: head.fields.all(Known::Te).any(wants_trailers),
            is_grpc,
            is_call: false,
            grpc_status: Cell::new(None),
            body_idle_timeout: settings.body_idle_timeout,
            answer_idle_timeout: settings.answer_idle_timeout,
            call_timeout: if is_grpc { grpc::timeout(&head.fields) } else { None },
            body: head.body(),
            answer_fields: OnceCell::new(),
            notes: None,
            route: OnceCell::new(),
            wish,
            coding: None,
            client: OnceCell::new(),
            affinity_cookie: OnceCell::new(),
        }
    }
}

fn method_name(method: &[u8]) -> &'static str {
    match method {
        b"GET" => "GET",
        b"HEAD" => "HEAD",
        b"POST" => "POST",
        b"PUT" => "PUT",
        b"DELETE" => "DELETE",
        b"PATCH" => "PATCH",
        b"OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

/// Has one request answered.
pub(crate) async fn run(client: &mut impl Client, head: &mut RequestHead) -> After {
    let connection = client.connection().clone();
    let service = &connection.service;
    service.metrics.requested(head.method());
    let (settings, routing) = (service.http(), service.routing());
    let mut asked = Asked::of(head, client.wish(head), &settings);
    asked.notes = Notes::of_sampled(&connection, head, || client.sent_bytes());
    let Some(_permit) = service.sessions.core().flight.try_acquire() else {
        service.metrics.shed(Refusal::IN_FLIGHT.reason);
        return refuse(client, &asked, Refusal::IN_FLIGHT);
    };
    let _in_flight = service.metrics.in_flight.guard();
    if asked.is_grpc && asked.version != Version::Http2 {
        return refuse(client, &asked, Refusal::GRPC_NEEDS_HTTP2);
    }
    let chosen = while_wanted(client, None, route(&connection, &routing, head, &asked, &settings)).await;
    let routed = match chosen {
        Err(cut) => return cut_short(client, &asked, cut),
        Ok(Ok(routed)) => routed,
        Ok(Err(Local::Refused(refusal))) => return refuse(client, &asked, refusal),
        // A 2xx would mean that the WebSocket stands (RFC 8441 section 5).
        Ok(Err(Local::Direct(response, _)))
            if asked.version == Version::Http2 && asked.wish != Wish::None && (200..300).contains(&response.status) =>
        {
            return refuse(client, &asked, Refusal::CONNECT_PROTOCOL);
        }
        Ok(Err(Local::Direct(response, fields))) => {
            let after = client.reply(&asked, &response.answer(&fields), false, "answered");
            connection.answered(&asked, response.status, None, "", "ok");
            return after;
        }
        Ok(Err(Local::Slow(_) | Local::Keys(_) | Local::Ask(_))) => {
            return refuse(client, &asked, Refusal::POLICY_FAILED);
        }
    };
    let may_tunnel = routed.upgrades(&settings).websocket && !routed.upstream.is_multiplexed();
    let is_tunnel = may_tunnel && asked.wish != Wish::Malformed;
    if asked.version == Version::Http2 && asked.wish != Wish::None && !is_tunnel {
        return refuse(client, &asked, Refusal::CONNECT_PROTOCOL);
    }
    if routed.upstream.is_multiplexed() {
        // What a connection may become, a stream cannot.
        asked.wish = Wish::None;
        // A client's word alone that this is gRPC lifts no limit: the origin must be able to speak it.
        asked.is_call = asked.is_grpc;
        if asked.is_call {
            asked.body_idle_timeout = settings.grpc_idle_timeout;
            asked.answer_idle_timeout = settings.grpc_idle_timeout;
        }
    }
    asked.body_idle_timeout = routed.action.body_idle_timeout.unwrap_or(asked.body_idle_timeout);
    asked.answer_idle_timeout = routed.action.answer_idle_timeout.unwrap_or(asked.answer_idle_timeout);
    match asked.wish {
        Wish::Malformed if routed.upgrades(&settings).websocket => {
            return refuse(client, &asked, Refusal::WEBSOCKET_HANDSHAKE);
        }
        Wish::WebSocket(_) if routed.upgrades(&settings).websocket => asked.wish.ask(head),
        _ => asked.wish = Wish::None,
    }
    if !asked.is_head && asked.version != Version::Http10 {
        let compression = routed.action.compression.as_ref().or(settings.compression.as_ref());
        let compression = compression.filter(|compression| !compression.codings.is_empty());
        asked.coding = compression.map(|one| (compression::coding(one, head), one.clone()));
    }
    let buffer = buffering::wanted(&asked, &routed, &settings);
    let waits = buffer > 0 && !client.has_whole_body();
    if buffer > 0 {
        buffering::expect_here(&mut asked, head, waits);
    }
    // What becomes a tunnel is no request that could be copied.
    let mirror = routed.action.mirror.as_ref().filter(|_| asked.wish == Wish::None);
    let mut copying = mirror.and_then(|mirror| {
        let host = routed.host.as_deref().unwrap_or(head.authority());
        Copying::of(&connection, mirror, &routing.upstreams[mirror.upstream], head, host)
    });
    if asked.body == BodyLength::Exact(0)
        && let Some(copying) = copying.take()
    {
        copying.send(&connection, &asked, &routed);
    }
    let affinity = affinity::of(&connection, routed.upstream.affinity(), head, &asked);
    let retry = routed.action.retry.as_deref().unwrap_or(&settings.retry);
    let identity_fields = &routing.routes.identity_fields;
    let kept = buffering::kept(client, &asked, retry, routed.upstream.is_multiplexed(), (buffer, waits));
    if let Some(kept) = kept.as_ref().filter(|_| waits) {
        let (routed, settings, copying) = (&routed, &settings, copying.as_ref());
        let passing = Passing { routed, settings, identity_fields, copying };
        // Every connection pays for the size of this future, and requests without a body do not need it.
        match Box::pin(buffering::run(client, &mut asked, kept, passing)).await {
            Ok(()) => {}
            Err(Failure::Client(refusal)) => {
                connection.at_fault(&refusal);
                return refuse(client, &asked, refusal);
            }
            Err(Failure::Unwilling(refusal)) => return refuse(client, &asked, refusal),
            Err(_) => {
                connection.abandoned(&asked, None, &routed.upstream.settings().name);
                return After::Close(CloseReason::ClientReset);
            }
        }
    }
    let retries = Retries::new(retry, routed.upstream, &asked, service, kept.as_ref());
    let ends = call_timeout(&asked, &routed, &settings).map(|timeout| asked.arrived.saturating_add(timeout));
    let (mut is_repeated, mut wants_fresh) = (false, false);
    loop {
        let is_fresh = std::mem::take(&mut wants_fresh);
        let wanted = Wanted { avoid: retries.avoided(), tried: retries.tried(), is_fresh, hash: affinity };
        let mut lane = match acquire(client, &routed, &retries, wanted, ends).await {
            Ok(lane) => lane,
            Err(none) => return without_lane(client, &asked, &routed, none),
        };
        let host = routed.host.as_deref().unwrap_or(head.authority());
        if let Some(notes) = &asked.notes {
            notes.note_try(routed.upstream.settings(), lane.number());
        }
        let mut attempt = Attempt::new(&connection, &asked, &settings, &routed, &retries, lane.number())
            .passing(identity_fields, copying.clone());
        let is_reused = lane.is_reused();
        let ended = match lane.link() {
            Link::Connection(stream) => {
                let output = stream.output.clone();
                let before = output.appended();
                output.with(|into| encode::request(head, host, asked.body, into));
                let ended = attempt.run(client, WireOrigin::new(stream)).await;
                lane.count_bytes(attempt.received as usize, (output.appended() - before) as usize);
                ended
            }
            Link::Carrier(carrier) => match carrier.ask(head, host, asked.body == BodyLength::Exact(0)) {
                // Every connection pays for the size of this future, and few for this branch.
                Ok(origin) => Box::pin(attempt.run(client, origin)).await,
                Err(failure) => Ended::Failed(failure),
            },
        };
        if matches!(ended, Ended::Failed(Failure::Silent)) && asked.is_idempotent && retries.is_repeatable() {
            let number = lane.number();
            // The origin has probably closed the idle connection when the request was on its way. Not for ever: it may be this
            // request that ends it. If the origin is restarting, its other idle connections are closed too.
            if is_reused && !is_repeated {
                routed.upstream.look_again(number);
                (is_repeated, wants_fresh) = (true, true);
                continue;
            }
            // The kernel may have taken the connection for an origin that was about to end.
            if retries.moves(number) {
                attempt.note(&ended, lane.open_since());
                lane.failed(LossCause::Closed);
                continue;
            }
        }
        if attempt.is_uploaded()
            && let Some(copying) = copying.take()
        {
            copying.send(&connection, &asked, &routed);
        }
        let number = lane.number();
        attempt.note(&ended, lane.open_since());
        if let Some(class) = attempt.class(&ended)
            && retries.again(number, class).await
        {
            if let Ended::Failed(Failure::Origin(_, cause)) = ended {
                lane.failed(cause);
            } else {
                lane.ends();
            }
            continue;
        }
        if let Some(switched) = attempt.switched.take() {
            let upstream = &routed.upstream.settings().name;
            connection.answered(&asked, 101, Some(attempt.sent), upstream, "ok");
            return Box::pin(tunnel::run(client.tunnel_end(), &connection, &asked, &routed, lane, *switched)).await;
        }
        return match attempt.after(lane, ended) {
            Ok(after) => after,
            Err(refusal) => refuse_for(client, &asked, refusal, Some(attempt.sent), &routed.upstream.settings().name),
        };
    }
}

/// Why there is no lane for a request.
enum NoLane {
    /// Nobody waits for the answer any more.
    Unwanted,
    /// The request has taken as long as it may; the endpoint that was waited for.
    Expired(Option<usize>),
    /// What came of its body had to make room.
    Failed(Failure),
    /// The upstream has none; the endpoint that was tried last.
    Refused(LaneRefusal, Option<usize>),
}

/// A lane for a request. An endpoint that cannot be reached is followed by another, until the request `ends`.
async fn acquire(
    client: &mut impl Client,
    routed: &Routed<'_>,
    retries: &Retries<'_>,
    mut wanted: Wanted,
    ends: Option<Time>,
) -> Result<HttpLane, NoLane> {
    loop {
        let mut acquiring = routed.upstream.acquire(wanted.clone());
        let (refusal, number) = match while_wanted(client, ends, &mut acquiring).await {
            Ok(Ok(lane)) => return Ok(lane),
            Ok(Err(refused)) => refused,
            Err(cut) => {
                let number = acquiring.number();
                acquiring.leave();
                return Err(cut.no_lane(client.connection(), number));
            }
        };
        let Some(unreachable) = number.filter(|_| refusal == LaneRefusal::Unreachable) else {
            return Err(NoLane::Refused(refusal, number));
        };
        match while_wanted(client, ends, retries.again(unreachable, Class::ConnectFailure)).await {
            Ok(true) => {}
            Ok(false) => return Err(NoLane::Refused(refusal, number)),
            Err(cut) => return Err(cut.no_lane(client.connection(), number)),
        }
        wanted = Wanted { avoid: retries.avoided(), tried: retries.tried(), is_fresh: false, ..wanted };
    }
}

/// Ends a request that got no lane.
fn without_lane(client: &mut impl Client, asked: &Asked, routed: &Routed<'_>, none: NoLane) -> After {
    let connection = client.connection().clone();
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

/// Ends a request whose route was not found out.
fn cut_short(client: &mut impl Client, asked: &Asked, cut: Cut) -> After {
    let connection = client.connection().clone();
    match cut {
        Cut::Broken(broken) => match connection.unread(broken) {
            Failure::Unwilling(refusal) => return refuse(client, asked, refusal),
            Failure::Client(refusal) => {
                connection.at_fault(&refusal);
                return refuse(client, asked, refusal);
            }
            _ => {}
        },
        Cut::Gone | Cut::Late => {}
    }
    connection.abandoned(asked, None, "");
    After::Close(CloseReason::ClientReset)
}

/// Why a wait was cut short.
enum Cut {
    /// Nobody waits for the answer any more.
    Gone,
    /// The request's body did not come to its end.
    Broken(Broken),
    /// It took too long.
    Late,
}

impl Cut {
    fn no_lane(self, connection: &Connection, number: Option<usize>) -> NoLane {
        match self {
            Self::Gone => NoLane::Unwanted,
            Self::Broken(broken) => NoLane::Failed(connection.unread(broken)),
            Self::Late => NoLane::Expired(number),
        }
    }
}

/// Waits for `future`, while somebody waits for the answer, and until the request `ends`.
async fn while_wanted<T>(
    client: &mut impl Client,
    ends: Option<Time>,
    future: impl Future<Output = T>,
) -> Result<T, Cut> {
    let mut future = pin!(future);
    let mut deadline = None;
    poll_fn(|context| {
        if let Poll::Ready(done) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(done));
        }
        if client.poll_gone(context).is_ready() {
            return Poll::Ready(Err(Cut::Gone));
        }
        if let Poll::Ready(broken) = client.poll_arrived(context) {
            return Poll::Ready(Err(Cut::Broken(broken)));
        }
        let Some(ends) = ends else { return Poll::Pending };
        let deadline = deadline.get_or_insert_with(|| {
            let deadline = weir_engine::deadline();
            deadline.set(ends);
            deadline
        });
        deadline.poll_expired(context).map(|()| Err(Cut::Late))
    })
    .await
}

/// Answers in the gateway's own name, without an upstream.
fn refuse(client: &mut impl Client, asked: &Asked, refusal: Refusal) -> After {
    refuse_for(client, asked, refusal, None, "")
}

/// Answers in the gateway's own name, in place of this upstream, which had the request at `sent`.
fn refuse_for(client: &mut impl Client, asked: &Asked, refusal: Refusal, sent: Option<Time>, upstream: &str) -> After {
    let connection = client.connection().clone();
    let own = asked.answer_fields.get().map(|answer| answer.own());
    let answer = refusal.answer(own, connection.service.sessions.chance());
    let after = client.reply(asked, &answer, refusal.closes, refusal.reason);
    connection.answered(asked, refusal.status, sent, upstream, refusal.reason);
    after
}

impl Connection {
    /// Counts an answer, and logs it if it was chosen.
    pub(crate) fn answered(
        &self,
        asked: &Asked,
        status: u16,
        sent: Option<Time>,
        upstream: &str,
        outcome: &'static str,
    ) {
        self.ended(asked, status, sent, Outcome { status, upstream, reason: outcome });
    }

    /// Counts and logs an answer that did not come to its end; its head had this status.
    pub(crate) fn broke_off(&self, asked: &Asked, status: u16, sent: Time, upstream: &str, reason: &'static str) {
        self.ended(asked, 0, Some(sent), Outcome { status, upstream, reason });
    }

    /// `counted`: the status that it is counted under.
    fn ended(&self, asked: &Asked, counted: u16, sent: Option<Time>, outcome: Outcome<'_>) {
        let flushed = Time::now();
        let timing = Timing { arrived: asked.arrived, sent, replied: turn::now() };
        self.service.metrics.answered(counted, &timing, flushed);
        if asked.is_grpc {
            self.service.metrics.called(asked.grpc_status.get().unwrap_or(grpc::status_of(counted)));
        }
        if let Some(route) = asked.route.get() {
            route.answered(counted, flushed.nanos_since(asked.arrived));
        }
        self.log_request(asked, &timing, flushed, &outcome);
    }

    /// Why the body of a request did not come to its end; counts one that had to make room.
    pub(crate) fn unread(&self, broken: Broken) -> Failure {
        if broken == Broken::GivenUp {
            self.service.metrics.shed(Refusal::UPLOAD_GIVEN_UP.reason);
        }
        Failure::of_client(broken)
    }

    /// Counts and logs what the client did wrong with its request's body.
    pub(crate) fn at_fault(&self, refusal: &Refusal) {
        if refusal.reason == Refusal::BODY_TOO_LONG.reason {
            self.service.metrics.denied(refusal.reason);
        }
        self.violated(refusal.reason, refusal.text);
    }

    /// Nobody waits for the answer any more, and there was nothing of it yet.
    pub(crate) fn abandoned(&self, asked: &Asked, sent: Option<Time>, upstream: &str) {
        let timing = Timing { arrived: asked.arrived, sent, replied: turn::now() };
        self.log_request(
            asked,
            &timing,
            Time::now(),
            &Outcome { status: 0, upstream, reason: CloseReason::ClientReset.name() },
        );
    }
}
