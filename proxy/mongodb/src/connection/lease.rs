//! The server of a request: how it is chosen, awaited and given back.

use std::{
    future::Future,
    io, mem,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use weir_base::{
    exchange::{LossCause, Refusal as PoolRefusal},
    time::{Time, turn},
};
use weir_engine::{Chunk, Stream};
use weir_listener::{CloseReason, Stage as TimedStage, Timing};
use weir_mongodb_codec::{
    bson::Document,
    compressed::Compressor,
    header::Header,
    message::Message,
    reply::{Labels, Reply},
};
use weir_mongodb_session::{ReadMode, Refusal, Want, pins::ServerId};
use weir_telemetry::access::AccessRecord;
use weir_upstream::{
    SelectionCriteria,
    pooled::{AcquireError, Condition, Patience, PooledConnection},
};

use super::{
    intake::shrink,
    life::{Life, Stage},
    passthrough::OwnLine,
    replies::Replies,
};
use crate::{own_request, preference::Preference, server::MongodbServer, upstream::MongodbUpstream};

/// The time between two looks at the pins of a connection.
pub(super) const PINS_INTERVAL: Duration = Duration::from_secs(60);
/// While no server fits, it is looked so often whether one does. Default 50 ms: an election takes seconds.
pub(super) const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// How long a command waits for a server that holds its cursor or transaction and cannot be reached. Default 2 s: one that starts again
/// has lost both.
const PINNED_WAIT: Duration = Duration::from_secs(2);

/// A connection to a server, in the hands of a client.
pub(super) enum Link {
    /// One of the pool.
    Pooled(PooledConnection<MongodbServer>),
    /// The client's own, on which it has logged in itself.
    Own(Box<OwnLine>),
}

/// Why a request gets no server.
#[derive(Debug)]
pub(super) enum NoServer {
    /// The server that has its cursor or its transaction is gone.
    Gone,
    /// No server fits, or none can be reached.
    None,
    /// The pool says so.
    Pool(AcquireError),
}

/// A server on its way.
pub(super) type Acquiring = Pin<Box<dyn Future<Output = Result<Link, NoServer>>>>;

/// The server that a client holds, or waits for, and its reply so far.
#[derive(Default)]
pub(super) struct Lease {
    pub(super) server: Option<Link>,
    pub(super) acquiring: Option<Acquiring>,
    /// The idle connection of the client's own.
    pub(super) own: Option<Box<OwnLine>>,
    /// A message for that connection, and the id that the reply to it must name.
    pub(super) relayed: Vec<u8>,
    pub(super) relayed_id: i32,
    /// When the request was here.
    pub(super) wanted: Time,
    /// When it got a server.
    got: Time,
    /// The id of the request, which its client has chosen.
    pub(super) request_id: i32,
    /// Bytes of the request.
    request_bytes: u64,
    /// Bytes that the client had been sent then.
    appended: u64,
    /// Those that the counter has.
    counted: u64,
    is_logged: bool,
    pub(super) replies: Replies,
    /// A reply to a part of a login or to the gateway's ping, as far as it is here.
    pub(super) relay_reply: Vec<u8>,
    pub(super) is_error: bool,
    /// When the pins of the connection were looked at last.
    pub(super) pins_seen: Time,
}

impl Link {
    pub(super) fn stream(&mut self) -> &mut Stream {
        match self {
            Self::Pooled(server) => server.stream(),
            Self::Own(line) => &mut line.stream,
        }
    }

    pub(super) fn server(&self) -> ServerId {
        match self {
            Self::Pooled(server) => server.pool().watch(server.number()).id(),
            Self::Own(line) => line.server,
        }
    }

    /// The number by which operators know it. 0: it is of no pool.
    fn id(&self) -> u64 {
        match self {
            Self::Pooled(server) => server.id(),
            Self::Own(_) => 0,
        }
    }

    /// The server has agreed on this compressor.
    pub(super) fn has(&self, compressor: Compressor) -> bool {
        match self {
            Self::Pooled(server) => server.state_ref().compressors.contains(&compressor),
            Self::Own(_) => false,
        }
    }

    /// The server is no primary any more, or not for long.
    pub(super) fn doubt(&self) {
        if let Self::Pooled(server) = self {
            server.pool().watch(server.number()).doubt();
        }
    }

    /// The server may be no primary any more: a look is due.
    #[cold]
    pub(super) fn suspect(&self) {
        if let Self::Pooled(server) = self {
            server.pool().watch(server.number()).suspect();
        }
    }

    pub(super) fn close(self, cause: LossCause) {
        match self {
            Self::Pooled(server) => server.close(cause),
            Self::Own(mut line) => line.counted.ends_by(cause),
        }
    }

    /// Nothing was sent on it.
    fn give_back(self) {
        match self {
            Self::Pooled(server) => server.give_back(Condition::Clean),
            Self::Own(line) => drop(line),
        }
    }
}

impl Lease {
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.request_bytes += bytes.len() as u64;
        if let Some(server) = &mut self.server {
            server.stream().output.append(bytes);
        }
    }

    /// Appends the ping behind a request that wants no reply.
    pub(super) fn append_barrier(&mut self) {
        self.relay_reply.clear();
        let id = self.barrier_id();
        if let Some(server) = &mut self.server {
            server.stream().output.with(|out| own_request::write_ping(out, id));
        }
    }

    /// The id of that ping.
    pub(super) fn barrier_id(&self) -> i32 {
        own_request::ping_id(&[self.request_id])
    }

    pub(super) fn poll_relieved(&mut self, context: &mut Context<'_>) -> bool {
        self.server.as_mut().is_none_or(|server| server.stream().output.poll_relieved(context).is_ready())
    }

    /// The server has not taken the bytes that it was sent.
    pub(super) fn is_congested(&mut self) -> bool {
        self.server.as_mut().is_some_and(|server| server.stream().output.is_congested())
    }

    pub(super) fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Chunk>>> {
        match &mut self.server {
            Some(server) => server.stream().reader.poll_receive(context),
            None => Poll::Pending,
        }
    }

    /// The idle connection of the client's own has ended, or its server speaks unasked.
    pub(super) fn poll_own_lost(&mut self, context: &mut Context<'_>) -> bool {
        self.own.as_mut().is_some_and(|own| own.stream.reader.poll_receive(context).is_ready())
    }

    /// The client has a connection of its own to a server.
    pub(super) fn has_own(&self) -> bool {
        self.own.is_some() || matches!(self.server, Some(Link::Own(_)))
    }
}

/// The servers of a request, a bit for each.
fn allowed(upstream: &Rc<MongodbUpstream>, want: Want, preference: &[u8]) -> Result<u64, NoServer> {
    match want {
        Want::Any(ReadMode::Primary) => Ok(upstream.candidates(ReadMode::Primary, &Preference::default())),
        Want::Any(mode) => {
            let preference = Preference::read(Document::read(preference).ok());
            Ok(upstream.candidates(mode, &preference))
        }
        Want::Server(server) => upstream
            .number_of(server)
            .filter(|number| *number < 64)
            .map_or(Err(NoServer::Gone), |number| Ok(1 << number)),
    }
}

fn criteria(allowed: u64) -> SelectionCriteria {
    SelectionCriteria { barred: !allowed, is_optional: true, ..SelectionCriteria::default() }
}

/// Waits for a server. Which ones fit is looked at again and again: the wait may begin before an election and end behind it.
/// `chosen`: the one that the balancer has chosen already, which counts each choice.
async fn wait(
    upstream: Rc<MongodbUpstream>,
    (want, preference): (Want, Vec<u8>),
    mut chosen: Option<usize>,
    (since, timeout): (Time, Duration),
) -> Result<Link, NoServer> {
    let pinned = matches!(want, Want::Server(_)).then_some(PINNED_WAIT);
    let deadline = since.saturating_add(timeout);
    let unreachable_at = since.saturating_add(pinned.map_or(timeout, |pinned| pinned.min(timeout)));
    loop {
        let allowed = allowed(&upstream, want, &preference)?;
        let mut error = NoServer::None;
        if allowed != 0 {
            let mut patience = Patience { since, deadline, notify_at: None };
            let chosen = chosen.take().filter(|number| *number < 64 && allowed & 1 << number != 0);
            let wanted = SelectionCriteria { chosen, ..criteria(allowed) };
            match upstream.pool().wait(wanted, &mut patience, || {}).await {
                Ok(server) => return Ok(Link::Pooled(server)),
                Err(refused) => {
                    let is_passing = matches!(refused.refusal, PoolRefusal::Unreachable | PoolRefusal::BreakerOpen);
                    error = NoServer::Pool(refused);
                    if !is_passing {
                        return Err(error);
                    }
                }
            }
        }
        if turn::now() >= unreachable_at {
            return Err(error);
        }
        weir_engine::sleep(LOOK_PAUSE).await;
    }
}

impl Life<'_> {
    /// A server that is at hand. `None`: one is on its way, or the reason why none is.
    pub(super) fn acquire(&mut self, want: Want) -> Option<Link> {
        if self.session.login().is_relayed() {
            return self.take_own(want);
        }
        let mut chosen = None;
        if let Ok(allowed @ 1..) = allowed(&self.upstream, want, &self.scene.tally.borrow().preference) {
            let mut wanted = criteria(allowed);
            if let Some(server) = self.upstream.pool().try_acquire(&mut wanted) {
                return Some(Link::Pooled(server));
            }
            chosen = wanted.chosen;
        }
        self.await_server(want, chosen);
        None
    }

    /// Waits for a server of the upstream of now. The time of a request that has waited for one of another upstream goes on.
    pub(super) fn await_server(&mut self, want: Want, chosen: Option<usize>) {
        let times = (self.lease.wanted, self.scene.settings.queue_wait_timeout);
        self.connection.handle.entry().wait(Some(times.0));
        let wanted = (want, self.scene.tally.borrow().preference.clone());
        self.lease.acquiring = Some(Box::pin(wait(self.upstream.clone(), wanted, chosen, times)));
    }

    /// Counts a command that is for a server.
    pub(super) fn note_command(&mut self, header: &Header) {
        let tally = self.scene.tally.borrow();
        if let Some(metrics) = &tally.metrics {
            metrics.class(tally.class).commands.inc();
            metrics.read.add(header.bytes as u64);
        }
        self.lease.request_id = header.request;
        (self.lease.request_bytes, self.lease.appended) = (0, self.output.appended());
        self.lease.counted = self.lease.appended;
        self.lease.is_logged = self.scene.service.sessions.samples_access();
    }

    /// The client holds `server` from now on.
    pub(super) fn attach(&mut self, mut server: Link) {
        let now = turn::now();
        self.lease.replies.begin(None);
        (self.lease.got, self.lease.is_error) = (now, false);
        if self.lease.acquiring.take().is_some()
            && let Some(metrics) = &self.scene.tally.borrow().metrics
        {
            metrics.wait_time.add(now.nanos_since(self.lease.wanted));
        }
        self.connection.handle.entry().hold(server.id(), now);
        self.session.on_server(server.server(), &self.scene.io(None));
        server.stream().output.charge_to(Some(self.connection.handle.account().clone()));
        self.lease.server = Some(server);
    }

    /// A server has come for the request that waits.
    pub(super) fn on_acquired(&mut self, server: Link) -> Result<(), CloseReason> {
        if matches!(self.stage, Stage::Relaying) {
            return self.on_own_line(server);
        }
        let Stage::Routed(routed) = std::mem::replace(&mut self.stage, Stage::Request) else {
            server.close(LossCause::Retired);
            return Ok(());
        };
        // Its next connection may be faster than this request, which has waited: the client must not see an old write behind a new one.
        if !self.is_unacknowledged && self.has_left() {
            self.stage = Stage::Routed(routed);
            server.give_back();
            return Err(CloseReason::ClientClosed);
        }
        self.attach(server);
        if let Some(compressor) = routed.packed {
            let (inflated, packed) = (std::mem::take(&mut self.inflated), std::mem::take(&mut self.packed));
            self.send_packed(&inflated, (&packed, compressor));
        } else {
            let mut input = std::mem::take(&mut self.input);
            let here = input.len().min(routed.header.bytes);
            self.send(&input[..here], &routed.header)?;
            input.drain(..here);
            shrink(&mut input);
            self.input = input;
        }
        if matches!(self.stage, Stage::Replying) { Ok(()) } else { self.go_on() }
    }

    /// There is no server for the request that waits.
    #[cold]
    pub(super) fn on_acquire_failed(&mut self, error: &NoServer) -> Result<(), CloseReason> {
        self.lease.acquiring = None;
        self.connection.handle.entry().wait(None);
        if matches!(self.stage, Stage::Relaying) {
            return self.on_relay_lost();
        }
        let Stage::Routed(routed) = std::mem::replace(&mut self.stage, Stage::Request) else { return Ok(()) };
        let refusal = self.refusal(error);
        self.session.on_no_server(&refusal, &self.scene.io(None), &mut self.own);
        self.log_refusal("no_server", routed.header.bytes as u64);
        self.give_own();
        if self.is_unacknowledged {
            // The end of the connection is all that its client can see of it, and its next write must not overtake one that was left out.
            return Err(CloseReason::of_upstream("mongodb_write_dropped"));
        }
        if self.is_misplaced() {
            return Err(CloseReason::of_upstream("mongodb_primary_moved"));
        }
        if routed.packed.is_some() {
            (self.inflated, self.packed) = (Vec::new(), Vec::new());
        } else {
            let here = self.input.len().min(routed.header.bytes);
            self.input.drain(..here);
            shrink(&mut self.input);
            if here < routed.header.bytes {
                self.skip(routed.header.bytes - here);
            }
        }
        self.active = turn::now();
        self.go_on()
    }

    /// The refusal of a plain command. The request has not left: any command may be tried again.
    fn refusal(&self, error: &NoServer) -> Refusal {
        let metrics = &self.scene.service.metrics;
        let reason = match error {
            NoServer::Gone | NoServer::None => PoolRefusal::Unreachable,
            NoServer::Pool(error) => error.refusal,
        };
        metrics.shed(reason.name());
        match reason {
            PoolRefusal::QueueFull | PoolRefusal::QueueTimeout => Refusal::overloaded(reason.name()),
            PoolRefusal::Unreachable | PoolRefusal::BreakerOpen | PoolRefusal::Greeting => {
                let is_in_transaction = self.scene.tally.borrow().is_in_transaction;
                let label = if is_in_transaction { Labels::TRANSIENT_TRANSACTION } else { Labels::RETRYABLE_WRITE };
                Refusal::host_unreachable(label)
            }
        }
    }

    /// The exchange is over, and nothing of it is left on the connection.
    #[inline]
    pub(super) fn release(&mut self) {
        let Some(server) = self.lease.server.take() else { return };
        let outcome = if self.lease.is_error { "error" } else { "ok" };
        self.done(outcome);
        self.active = turn::now();
        match server {
            Link::Pooled(server) => server.give_back(Condition::Clean),
            Link::Own(line) => self.lease.own = Some(line),
        }
    }

    /// Counts the bytes for the client since the count before, so that the counter moves while a long reply is on its way.
    #[inline]
    pub(super) fn count_written(&mut self) {
        let appended = self.output.appended();
        let bytes = appended - mem::replace(&mut self.lease.counted, appended);
        if let Some(metrics) = &self.scene.tally.borrow().metrics {
            metrics.written.add(bytes);
        }
    }

    /// Records the exchange.
    pub(super) fn done(&mut self, outcome: &'static str) {
        self.count_written();
        let (service, handle) = (&self.connection.service, &self.connection.handle);
        let now = turn::now();
        handle.entry().let_go();
        let Lease { wanted: arrived, got, appended, is_logged, request_bytes, .. } = self.lease;
        let timing = Timing { arrived, sent: Some(got), replied: now, flushed: now };
        service.metrics.durations.record(&timing, 1, None);
        if service.metrics.stages.samples() {
            service.metrics.stages.record(TimedStage::LaneWait, arrived, got);
        }
        let tally = self.scene.tally.borrow();
        let reply_bytes = self.output.appended() - appended;
        if let Some(metrics) = &tally.metrics {
            metrics.class(tally.class).time.add(now.nanos_since(arrived));
        }
        if is_logged {
            service.sessions.log_access(&AccessRecord {
                upstream: Some(self.upstream.name()),
                duration_nanos: now.nanos_since(arrived),
                upstream_nanos: now.nanos_since(got),
                request_bytes,
                reply_bytes,
                ..self.record(tally.name, outcome)
            });
        }
    }

    /// Records a command that gets no server, with its reply in `own`. One that the gateway has done itself is not of them, nor is one of a
    /// handshake or a login.
    pub(super) fn log_refusal(&self, outcome: &'static str, request_bytes: u64) {
        let tally = self.scene.tally.borrow();
        let is_done =
            Message::read(&self.own).is_ok_and(|reply| Reply::read(reply.body).is_ok_and(|reply| reply.is_ok));
        if !tally.is_judged || is_done || !self.scene.service.sessions.samples_access() {
            return;
        }
        self.scene.service.sessions.log_access(&AccessRecord {
            duration_nanos: turn::now().nanos_since(self.lease.wanted),
            request_bytes,
            reply_bytes: self.own.len() as u64,
            ..self.record(tally.name, outcome)
        });
    }

    fn record(&self, command: &'static str, outcome: &'static str) -> AccessRecord<'_> {
        let (sessions, handle) = (&self.connection.service.sessions, &self.connection.handle);
        AccessRecord {
            listener: sessions.name(),
            peer: handle.peer(),
            connection: handle.id(),
            command,
            upstream: None,
            duration_nanos: 0,
            upstream_nanos: 0,
            request_bytes: 0,
            reply_bytes: 0,
            outcome,
            http: None,
        }
    }
}
