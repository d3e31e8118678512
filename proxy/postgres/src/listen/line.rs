//! The connection that listens for all hubs of one server, database and user.

use std::{
    collections::{HashMap, VecDeque},
    future::poll_fn,
    io, mem,
    pin::{Pin, pin},
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
    time::Duration,
};

use weir_base::{
    exchange::LossCause,
    time::{Time, turn},
};
use weir_engine::{Chunk, Deadline, Inbox, Mailbox};
use weir_postgres_codec::{
    backend::{ErrorFields, NotificationResponse, tag},
    frame, frontend, sqlstate,
};
use weir_postgres_session::{
    Refusal,
    io::Notification,
    notify::{Listening, Registry},
};
use weir_upstream::pooled::AsideConnection;

use super::{
    FromLine, HubId, RequestNumber, ToLine,
    lines::{self, LineView},
};
use crate::{aside, server::PostgresServer, service::PostgresUpstream};

/// Channels of one line. Default 100,000; each takes about 300 bytes here and as much at each worker.
const CHANNELS_MAX: usize = 100_000;
/// Time for a reply of the server. Default 10 s, as for a cancel request: LISTEN waits for nothing.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Silence after which the server has to show that it is there: a dead connection must not look like a quiet channel.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// A line without clients is kept so long: a client that connects again finds its channels at once.
const UNUSED_MAX: Duration = Duration::from_secs(10);
/// How often the line looks whether its pool is paused.
const LOOK: Duration = Duration::from_secs(1);
/// Longest message. A notification has 8,000 bytes at the most.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Messages that wait for a worker before the server is not read. Worst case with payloads of 8,000 bytes: 32 MiB.
const MAIL_MAX: usize = 4_096;
/// The next look at a worker that has so many.
const CROWDED: Duration = Duration::from_millis(10);

/// A reply that the server owes.
enum Owed {
    /// That to a statement of the registry.
    Statement,
    /// That to the encoding.
    Encoding,
    /// That to an empty statement, for these fences; without any it shows that the server is there.
    Fence(Vec<(HubId, u64)>),
}

/// A connection that stands.
struct Up {
    connection: AsideConnection<PostgresServer>,
    input: Vec<u8>,
    owed: VecDeque<Owed>,
    /// The error of the first of them.
    error: Option<Refusal>,
    /// Since when the first of them is owed.
    since: Time,
    heard_at: Time,
}

impl Up {
    fn ask(&mut self, text: &[u8], owed: Owed) {
        if self.owed.is_empty() {
            self.since = turn::now();
        }
        self.owed.push_back(owed);
        self.connection.stream.output.with(|out| frontend::query(out, text));
    }
}

type Connecting = Pin<Box<dyn Future<Output = Result<AsideConnection<PostgresServer>, Refusal>>>>;

enum Link {
    Down { until: Time },
    Connecting(Connecting),
    Up(Box<Up>),
}

enum Event {
    Mail(VecDeque<ToLine>),
    Connected(Box<Result<AsideConnection<PostgresServer>, Refusal>>),
    Bytes(io::Result<Option<Chunk>>),
    Due,
}

/// See above.
pub(super) struct Line {
    view: Arc<LineView>,
    upstream: Rc<PostgresUpstream>,
    registry: Registry,
    hubs: HashMap<HubId, Mailbox<FromLine>>,
    /// The last request of each hub for a channel that it wants.
    requests: HashMap<(HubId, Box<[u8]>), RequestNumber>,
    fences: Vec<(HubId, u64)>,
    link: Link,
    attempt: u32,
    /// Notifications were lost, and the hubs do not know that it is over.
    has_gap: bool,
    unused_since: Time,
}

impl Line {
    pub(super) fn new(view: Arc<LineView>, upstream: Rc<PostgresUpstream>) -> Self {
        Self {
            view,
            upstream,
            registry: Registry::new(CHANNELS_MAX),
            hubs: HashMap::new(),
            requests: HashMap::new(),
            fences: Vec::new(),
            link: Link::Down { until: Time::ZERO },
            attempt: 0,
            has_gap: false,
            unused_since: turn::now(),
        }
    }

    /// Serves the hubs until there is none for a while.
    pub(super) async fn run(mut self, inbox: Inbox<ToLine>) {
        let due = weir_engine::deadline();
        loop {
            self.proceed();
            if self.is_unused() && lines::leave(&self.view) {
                if let Link::Up(up) = self.link {
                    up.connection.close(LossCause::Retired);
                }
                return;
            }
            due.set(self.next_look());
            match poll_fn(|context| self.poll_event(context, &inbox, &due)).await {
                Event::Mail(mail) => mail.into_iter().for_each(|mail| self.on_mail(mail)),
                Event::Connected(connected) => match *connected {
                    Ok(connection) => self.on_connected(connection),
                    Err(refusal) => self.on_unavailable(&refusal),
                },
                Event::Bytes(Ok(Some(chunk))) => self.on_bytes(&chunk),
                Event::Bytes(Ok(None) | Err(_)) => self.lose(LossCause::Closed),
                Event::Due => self.on_due(),
            }
        }
    }

    fn poll_event(&mut self, context: &mut Context<'_>, inbox: &Inbox<ToLine>, due: &Deadline) -> Poll<Event> {
        if let Poll::Ready(mail) = pin!(inbox.receive()).poll(context) {
            return Poll::Ready(Event::Mail(mail));
        }
        let is_crowded = self.is_crowded();
        match &mut self.link {
            Link::Connecting(connecting) => {
                if let Poll::Ready(connected) = connecting.as_mut().poll(context) {
                    return Poll::Ready(Event::Connected(Box::new(connected)));
                }
            }
            Link::Up(up) if !is_crowded => {
                if let Poll::Ready(received) = up.connection.stream.reader.poll_receive(context) {
                    return Poll::Ready(Event::Bytes(received));
                }
            }
            Link::Up(_) | Link::Down { .. } => {}
        }
        due.poll_expired(context).map(|_| Event::Due)
    }

    /// A worker does not keep up.
    fn is_crowded(&self) -> bool {
        self.hubs.values().any(|hub| hub.depth() > MAIL_MAX)
    }

    fn is_unused(&self) -> bool {
        self.hubs.is_empty() && turn::now().since(self.unused_since) >= UNUSED_MAX
    }

    fn next_look(&self) -> Time {
        let look = if self.is_crowded() { CROWDED } else { LOOK };
        let mut next = turn::now().saturating_add(look);
        if let Link::Down { until } = self.link
            && self.registry.channels() > 0
            && until > turn::now()
        {
            next = next.min(until);
        }
        next
    }

    /// Does what is due: connects, sends statements and fences.
    fn proceed(&mut self) {
        let is_paused = || self.upstream.is_paused(&self.view.key.pool);
        match &mut self.link {
            Link::Down { until } if self.registry.channels() > 0 && turn::now() >= *until && !is_paused() => {
                self.link = Link::Connecting(Box::pin(connect(self.upstream.clone(), self.view.clone())));
            }
            Link::Up(up) => {
                while let Some(text) = self.registry.statement() {
                    up.ask(&text, Owed::Statement);
                }
                let fences = mem::take(&mut self.fences);
                if !fences.is_empty() {
                    up.ask(b"", Owed::Fence(fences));
                }
            }
            Link::Down { .. } | Link::Connecting(_) => {}
        }
        if !matches!(self.link, Link::Up(_)) {
            // Nothing is on its way.
            let fences = mem::take(&mut self.fences);
            self.pass(fences);
        }
        self.view.channels.store(self.registry.channels() as u32, Relaxed);
        self.view.is_up.store(matches!(self.link, Link::Up(_)), Relaxed);
    }

    fn on_mail(&mut self, mail: ToLine) {
        match mail {
            ToLine::Join(hub, news) => drop(self.hubs.insert(hub, news)),
            ToLine::Leave(hub) => {
                self.registry.unlisten_all(hub);
                self.requests.retain(|(of, _), _| *of != hub);
                if let Some(news) = self.hubs.remove(&hub) {
                    news.send(FromLine::Over);
                }
                self.unused_since = turn::now();
            }
            ToLine::Listen(hub, channel, request) => {
                let listening = self.registry.listen(hub, &channel);
                self.requests.insert((hub, channel.clone()), request);
                match listening {
                    Listening::Already => self.notify(hub, channel, None),
                    Listening::Later => {}
                    Listening::TooMany => {
                        let text = format!("clients of one database listen to {CHANNELS_MAX} channels at most");
                        self.notify(hub, channel, Some(Refusal::error(sqlstate::PROGRAM_LIMIT_EXCEEDED, text)));
                    }
                }
            }
            ToLine::Unlisten(hub, channel) => {
                self.registry.unlisten(hub, &channel);
                self.requests.remove(&(hub, channel));
            }
            ToLine::Fence(hub, number) => self.fences.push((hub, number)),
        }
    }

    fn send(&self, hub: HubId, mail: FromLine) {
        if let Some(news) = self.hubs.get(&hub) {
            news.send(mail);
        }
    }

    /// The hub has the channel, or a refusal; not if it has withdrawn its request.
    fn notify(&self, hub: HubId, channel: Box<[u8]>, refusal: Option<Refusal>) {
        let requested = (hub, channel);
        let Some(&request) = self.requests.get(&requested) else { return };
        let (_, channel) = requested;
        self.send(
            hub,
            match refusal {
                None => FromLine::There(channel, request),
                Some(refusal) => FromLine::Refused(channel, request, refusal),
            },
        );
    }

    fn broadcast(&self, mail: impl Fn() -> FromLine) {
        self.hubs.values().for_each(|news| news.send(mail()));
    }

    /// These fences are passed.
    fn pass(&self, fences: Vec<(HubId, u64)>) {
        for (hub, number) in fences {
            self.send(hub, FromLine::Fenced(number));
        }
    }

    fn on_connected(&mut self, connection: AsideConnection<PostgresServer>) {
        let now = turn::now();
        let up = Up { connection, input: Vec::new(), owed: VecDeque::new(), error: None, since: now, heard_at: now };
        let mut up = Box::new(up);
        if let Some(encoding) = &self.view.key.encoding {
            // Letters and digits alone.
            let text = [b"SET client_encoding = '", &**encoding, b"'"].concat();
            up.ask(&text, Owed::Encoding);
        }
        self.link = Link::Up(up);
        self.registry.on_connected();
    }

    fn on_unavailable(&mut self, refusal: &Refusal) {
        let until = turn::now().saturating_add(self.upstream.pause_aside(self.attempt));
        self.attempt += 1;
        self.link = Link::Down { until };
        self.broadcast(|| FromLine::Unavailable(refusal.clone()));
    }

    /// The connection ends.
    fn lose(&mut self, cause: LossCause) {
        let until = match self.attempt {
            0 => turn::now(),
            attempt => turn::now().saturating_add(self.upstream.pause_aside(attempt)),
        };
        let Link::Up(up) = mem::replace(&mut self.link, Link::Down { until }) else { return };
        self.attempt += 1;
        let channels = self.registry.channels();
        if !self.registry.on_lost().is_empty() {
            up.connection.count_gap(channels);
            self.view.gaps.fetch_add(1, Relaxed);
            self.has_gap = true;
        }
        self.broadcast(|| FromLine::Lost);
        for owed in up.owed {
            if let Owed::Fence(fences) = owed {
                self.pass(fences);
            }
        }
        up.connection.close(cause);
    }

    fn on_due(&mut self) {
        let now = turn::now();
        let (is_paused, is_crowded) = (self.upstream.is_paused(&self.view.key.pool), self.is_crowded());
        let Link::Up(up) = &mut self.link else { return };
        if is_crowded {
            // The replies of the server are not read: it is not the one that is late.
            (up.since, up.heard_at) = (now, now);
        }
        if is_paused || self.upstream.watch_ref(up.connection.number).is_replaced() {
            self.lose(LossCause::Retired);
        } else if !up.owed.is_empty() && now.since(up.since) >= REPLY_TIMEOUT {
            self.lose(LossCause::Timeout);
        } else if up.owed.is_empty() && now.since(up.heard_at) >= SILENCE_MAX {
            up.ask(b"", Owed::Fence(Vec::new()));
        }
    }

    fn on_bytes(&mut self, chunk: &[u8]) {
        let Link::Up(up) = &mut self.link else { return };
        up.heard_at = turn::now();
        let mut input = mem::take(&mut up.input);
        input.extend_from_slice(chunk);
        let mut at = 0;
        loop {
            let head = match frame::head(&input[at..]) {
                Ok(Some(head)) if head.body <= MESSAGE_BYTES_MAX => head,
                Ok(None) => break,
                Ok(Some(_)) | Err(_) => return self.lose(LossCause::Violation),
            };
            let Some(body) = input.get(at + frame::HEAD_BYTES..at + head.whole()) else { break };
            at += head.whole();
            if !self.on_message(head.tag, body) {
                return self.lose(LossCause::Violation);
            }
            if !matches!(self.link, Link::Up(_)) {
                return;
            }
        }
        input.drain(..at);
        if let Link::Up(up) = &mut self.link {
            up.input = input;
        }
    }

    /// False: it has no place here.
    fn on_message(&mut self, tag: u8, body: &[u8]) -> bool {
        let Link::Up(up) = &mut self.link else { return false };
        match tag {
            tag::NOTIFICATION => match NotificationResponse::read(body) {
                Ok(response) => self.deliver(response),
                Err(_) => return false,
            },
            tag::ERROR => {
                let Ok(fields) = ErrorFields::read(body) else { return false };
                up.error = Some(aside::refusal_by(&fields));
            }
            tag::READY_FOR_QUERY => {
                let Some(owed) = up.owed.pop_front() else { return false };
                up.since = turn::now();
                let error = up.error.take();
                self.on_ready(owed, error);
            }
            tag::PARAMETER_STATUS | tag::NOTICE | tag::COMMAND_COMPLETE | tag::EMPTY_QUERY => {}
            _ => return false,
        }
        true
    }

    fn deliver(&self, response: NotificationResponse<'_>) {
        let NotificationResponse { pid, channel, payload } = response;
        let notification = Arc::new(Notification { pid, channel: channel.into(), payload: payload.into() });
        for hub in self.registry.listeners(channel) {
            self.send(hub, FromLine::Notification(notification.clone()));
        }
    }

    fn on_ready(&mut self, owed: Owed, error: Option<Refusal>) {
        match (owed, error) {
            (Owed::Fence(fences), _) => self.pass(fences),
            (Owed::Encoding, None) => {}
            (Owed::Encoding, Some(refusal)) => {
                self.lose(LossCause::Closed);
                self.on_unavailable(&refusal);
            }
            (Owed::Statement, error) => self.on_statement(error),
        }
        if self.registry.is_complete() {
            self.attempt = 0;
            if mem::take(&mut self.has_gap) {
                self.broadcast(|| FromLine::Restored);
            }
        }
    }

    fn on_statement(&mut self, error: Option<Refusal>) {
        let Some(done) = self.registry.on_done(error.is_none()) else { return };
        let refusal = error.unwrap_or_else(|| Refusal::error(sqlstate::INTERNAL_ERROR, "LISTEN failed"));
        for hub in &done.listeners {
            self.notify(*hub, done.channel.clone(), (!done.has_it).then(|| refusal.clone()));
        }
        if !done.has_it && self.registry.listeners(&done.channel).next().is_some() {
            // It was there before a loss: another try, on another connection and after a pause.
            self.lose(LossCause::Closed);
        }
    }
}

/// Makes the connection.
async fn connect(
    upstream: Rc<PostgresUpstream>,
    view: Arc<LineView>,
) -> Result<AsideConnection<PostgresServer>, Refusal> {
    let key = &view.key.pool;
    upstream.log_in_aside(key).await.map_err(|error| {
        let (code, text) = aside::login_failed(&error, key);
        Refusal::error(code, text)
    })
}
