//! WebSocket through the gateway: from the wish to upgrade to the last frame.
//!
//! The handshake is an exchange like any other. Behind the origin's 101 the connection is a tunnel of two directions. Each
//! follows its frames by their headers: payloads go on as they came, in the turn in which they came, and are not read from who
//! sends them while who takes them is slow. A header goes on only when it is whole and judged, so that a close frame of the
//! gateway's own always has a place between two frames.

use std::{cell::Cell, future::poll_fn, pin::pin, task::Poll, time::Duration};

use weir_base::{
    error::Culprit,
    time::{Time, turn},
};
use weir_engine::{Deadline, Stream, timeout};
use weir_http_codec::{Known, ResponseHead, strip_hop_by_hop};
use weir_listener::{CloseReason, Drain};
use weir_upstream::{Link, LossCause};
use weir_websocket_codec::{CloseCode, Reserved, Sender, Watch, WireError, close_frame};

use crate::{
    answer,
    body::Broken,
    client::After,
    connection::Connection,
    ends::{Inlet, Outlet, TunnelEnd, WireInlet, WireOutlet},
    limits::LINGER_TIMEOUT,
    options::WebSocketSettings,
    passage::Passage,
    refusal::Refusal,
    upgrade::Switched,
    upstream::HttpLane,
};

/// How long the answer to a close frame may take. Default 10 s: the messages before it may have to be read first.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Over how long a drain spreads its close frames: clients that were all told at once would all come again at once. Default
/// 2 s; a drain that has become firm waits no longer.
const DRAIN_SPREAD: Duration = Duration::from_secs(2);

/// What both directions know of each other.
struct Shared<'a> {
    settings: &'a WebSocketSettings,
    connection: &'a Connection,
    /// The bits that extensions use.
    reserved: Reserved,
    /// When something last moved.
    active: Cell<Time>,
    /// Directions that wait for who takes their frames: silence is not the sender's fault then.
    blocked: Cell<u32>,
}

impl Shared<'_> {
    /// What comes from `sender`.
    fn direction<'a, I, O>(
        &'a self,
        sender: Sender,
        inlet: I,
        outlet: &'a O,
        deadline: &'a Deadline,
        is_between_frames: &'a Cell<bool>,
    ) -> Direction<'a, I, O> {
        let watch = Watch::new(sender, self.reserved, self.settings.limits);
        Direction { shared: self, sender, watch, inlet, outlet, deadline, is_between_frames }
    }
}

/// One direction.
struct Direction<'a, I, O> {
    shared: &'a Shared<'a>,
    sender: Sender,
    watch: Watch,
    inlet: I,
    outlet: &'a O,
    deadline: &'a Deadline,
    is_between_frames: &'a Cell<bool>,
}

/// Why a direction stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// Its close frame has gone on.
    Closed,
    /// Its sender is gone without one.
    Gone,
    /// Its sender broke a rule or a limit.
    Broken(WireError),
    /// Its sender began a frame and did not end it.
    Unfinished,
    /// Who takes it takes nothing.
    Untaken,
    /// Its receiver takes nothing, and others need the memory.
    GivenUp,
    /// Nothing moved in either direction.
    Idle,
    /// The other end did not answer its close frame.
    Unanswered,
    /// The gateway goes down.
    Drained,
    /// The connection was told to end.
    Cut,
}

impl<I: Inlet, O: Outlet> Direction<'_, I, O> {
    async fn run(&mut self) -> Stop {
        let (idle, whole) = (self.shared.settings.idle_timeout, self.shared.settings.frame_timeout);
        // When the frame under way began, without the time in which nobody took it.
        let mut begun: Option<Time> = None;
        loop {
            let followed = self.watch.follow(self.inlet.bytes(), turn::now());
            if followed.passes > 0 {
                self.outlet.append(&self.inlet.bytes()[..followed.passes]);
                self.inlet.spend(followed.passes);
            }
            self.is_between_frames.set(self.watch.is_between_frames());
            self.shared.connection.service.metrics.tunnel_frames(self.sender, followed.frames);
            if let Some(error) = followed.broken {
                return Stop::Broken(error);
            }
            let waited = match self.outlet.is_full() {
                true => match self.relieved().await {
                    Ok(waited) => waited,
                    Err(stop) => return stop,
                },
                false => Duration::ZERO,
            };
            if self.watch.is_closed() {
                return Stop::Closed;
            }
            let is_within = !self.watch.is_between_frames() || !self.inlet.bytes().is_empty();
            begun = match begun.filter(|_| followed.frames == 0) {
                _ if !is_within => None,
                Some(at) => Some(at.saturating_add(waited)),
                None => Some(turn::now()),
            };
            self.inlet.keep();
            loop {
                let idle_at = self.shared.active.get().saturating_add(idle);
                let whole_at = begun.map_or(idle_at, |at| at.saturating_add(whole));
                self.deadline.set(idle_at.min(whole_at));
                match self.inlet.receive(self.deadline).await {
                    Some(Ok(count)) if count > 0 => {
                        self.shared.active.set(turn::now());
                        break;
                    }
                    Some(_) => return Stop::Gone,
                    None => {}
                }
                let now = turn::now();
                if begun.is_some() && now >= whole_at {
                    return Stop::Unfinished;
                }
                if self.shared.blocked.get() > 0 {
                    self.shared.active.set(now);
                } else if now >= self.shared.active.get().saturating_add(idle) {
                    return Stop::Idle;
                }
            }
        }
    }

    /// Waits until the outlet has room; gives how long that took. A sender that breaks off meanwhile is seen at once.
    async fn relieved(&mut self) -> Result<Duration, Stop> {
        let since = turn::now();
        self.shared.blocked.set(self.shared.blocked.get() + 1);
        let (inlet, mut relieved) = (&mut self.inlet, pin!(self.outlet.relieved(self.deadline)));
        let outcome = poll_fn(|context| match relieved.as_mut().poll(context) {
            Poll::Ready(relieved) => Poll::Ready(relieved.map_err(|_| Stop::Untaken)),
            Poll::Pending => inlet
                .poll_broken(context)
                .map(|broken| Err(if broken == Broken::GivenUp { Stop::GivenUp } else { Stop::Gone })),
        });
        let outcome = outcome.await;
        self.shared.blocked.set(self.shared.blocked.get() - 1);
        self.shared.active.set(turn::now());
        outcome.map(|()| turn::now().since(since))
    }
}

/// Passes the origin's agreement on, and then frames both ways until both have closed or one cannot go on.
pub(crate) async fn run<I: Inlet, O: Outlet>(
    client: TunnelEnd<'_, I, O>,
    passage: &Passage<'_>,
    mut lane: HttpLane,
    switched: Switched,
) -> After {
    let connection = &**passage.connection;
    let service = &connection.service;
    let (http, _open) = (service.http(), service.metrics.tunnel());
    let Switched { mut head, input: mut answered } = switched;
    let reserved = agree(&client.outlet, passage, lane.number(), &mut head);
    let active = Cell::new(turn::now());
    let shared = Shared { settings: &http.websocket, connection, reserved, active, blocked: Cell::new(0) };
    let (client_is_between, origin_is_between) = (Cell::new(true), Cell::new(true));
    // A stream of HTTP/2 is asked for no upgrade.
    let Link::Connection(origin) = lane.link() else { return After::Broken(CloseReason::InternalInvariant) };
    let (origin_output, to_client) = (origin.output.clone(), client.outlet);
    let to_origin = WireOutlet(&origin_output);
    let from_origin = WireInlet::new(&mut origin.reader, &mut answered);
    let mut up = shared.direction(Sender::Client, client.inlet, &to_origin, client.deadline, &client_is_between);
    let mut down = shared.direction(Sender::Server, from_origin, &to_client, client.other_deadline, &origin_is_between);
    let is_quiet = || client_is_between.get() && origin_is_between.get();
    let (sender, stop) = both(connection, &mut up, &mut down, is_quiet).await;
    // Nothing may follow a close frame (RFC 6455 section 5.5.1).
    let (client_may_hear, origin_may_hear) =
        (origin_is_between.get() && !down.watch.is_closed(), client_is_between.get() && !up.watch.is_closed());
    // Who is at fault hears of it; the other only that there is no more.
    if client_may_hear {
        tell(&to_client, Sender::Server, stop.told(sender == Sender::Client));
    }
    if origin_may_hear {
        tell(&to_origin, Sender::Client, stop.told(sender == Sender::Server));
    }
    to_client.finish();
    // A stream sends nothing by itself, and the origin may take a moment to go.
    let _ = timeout(LINGER_TIMEOUT, to_client.relieved(client.deadline)).await;
    if stop != Stop::Cut
        && let Link::Connection(origin) = lane.link()
    {
        farewell(origin).await;
    }
    over(connection, lane, stop, sender);
    After::Close(connection.handle.ending().unwrap_or(stop.close_reason(sender)))
}

/// Tells the client that the origin has agreed. Returns the reserved bits that the extensions of both use.
fn agree(outlet: &impl Outlet, passage: &Passage<'_>, endpoint: usize, head: &mut ResponseHead) -> Reserved {
    let chosen = head.fields.all(Known::SecWebsocketExtensions);
    let reserved = chosen.fold(Reserved::None, |known, extensions| known.with(extensions));
    strip_hop_by_hop(&mut head.fields);
    // It would be that of the frames.
    head.fields.remove(Known::ContentLength);
    answer::change(&mut head.fields, passage, endpoint);
    outlet.agree(head);
    reserved
}

/// Counts the end of a tunnel, and what was wrong with it.
fn over(connection: &Connection, mut lane: HttpLane, stop: Stop, sender: Sender) {
    let (metrics, reason) = (&connection.service.metrics, stop.reason(sender));
    match (stop, sender) {
        (Stop::Broken(error), Sender::Client) => {
            connection.violated(reason, error.text());
        }
        (Stop::Unfinished, Sender::Client) | (Stop::Untaken, Sender::Server) => {
            connection.violated(reason, "the client of a WebSocket stood still");
        }
        (Stop::Broken(error), Sender::Server) => metrics.violation(&error.violation(Culprit::Upstream)),
        _ => {}
    }
    match (stop, sender) {
        (Stop::Broken(_) | Stop::Unfinished, Sender::Server) => lane.failed(LossCause::Violation),
        _ => lane.ends(),
    }
    metrics.tunnel_closed(reason);
}

/// Both directions until the tunnel is over; whose doing that was, and what.
async fn both(
    connection: &Connection,
    up: &mut Direction<'_, impl Inlet, impl Outlet>,
    down: &mut Direction<'_, impl Inlet, impl Outlet>,
    is_quiet: impl Fn() -> bool,
) -> (Sender, Stop) {
    let (mut up, mut down) = (pin!(up.run()), pin!(down.run()));
    let (mut up_closed, mut down_closed) = (false, false);
    // Of the answer to a close frame, or of the drain.
    let ending = weir_engine::deadline();
    let mut is_leaving = false;
    let (listening, _listed) = connection.listening();
    poll_fn(|context| {
        if listening.poll_ended(connection, context) {
            return Poll::Ready((Sender::Client, Stop::Cut));
        }
        let was_closed = up_closed || down_closed;
        if !up_closed && let Poll::Ready(stop) = up.as_mut().poll(context) {
            match stop {
                Stop::Closed => up_closed = true,
                stop => return Poll::Ready((Sender::Client, stop)),
            }
        }
        if !down_closed && let Poll::Ready(stop) = down.as_mut().poll(context) {
            match stop {
                Stop::Closed => down_closed = true,
                stop => return Poll::Ready((Sender::Server, stop)),
            }
        }
        match (up_closed, down_closed) {
            (true, true) => return Poll::Ready((Sender::Client, Stop::Closed)),
            (false, false) => match connection.service.sessions.drain_state() {
                Drain::Off => return Poll::Pending,
                Drain::Firm => return Poll::Ready((Sender::Client, Stop::Drained)),
                Drain::Gentle if !is_leaving => {
                    is_leaving = true;
                    let chance = connection.service.sessions.chance() % DRAIN_SPREAD.as_nanos() as u64;
                    ending.set(turn::now().saturating_add(Duration::from_nanos(chance)));
                }
                Drain::Gentle => {}
            },
            _ if !was_closed => ending.set(turn::now().saturating_add(CLOSE_TIMEOUT)),
            _ => {}
        }
        match ending.poll_expired(context) {
            Poll::Pending => Poll::Pending,
            // Who has to answer is the one that has not closed.
            Poll::Ready(()) if up_closed => Poll::Ready((Sender::Server, Stop::Unanswered)),
            Poll::Ready(()) if down_closed => Poll::Ready((Sender::Client, Stop::Unanswered)),
            // In the middle of a frame it could not be told: the end of the frame wakes this task.
            Poll::Ready(()) if is_quiet() => Poll::Ready((Sender::Client, Stop::Drained)),
            Poll::Ready(()) => Poll::Pending,
        }
    })
    .await
}

/// A close frame in `sender`'s name, if there is something to tell.
fn tell(end: &impl Outlet, sender: Sender, told: Option<(CloseCode, &'static str)>) {
    if let Some((code, text)) = told {
        let mut frame = Vec::new();
        close_frame(sender, code, text, &mut frame);
        end.append(&frame);
    }
}

/// Sends what is left for the origin, and gives it a moment to close: dropping its lane at once would lose the last frames.
async fn farewell(origin: &mut Stream) {
    origin.finish();
    let rest = async { while let Ok(Some(_)) = origin.reader.receive().await {} };
    // An origin that does not close in time has had its chance.
    let _ = timeout(LINGER_TIMEOUT, rest).await;
}

impl Stop {
    /// What an end is told; `is_at_fault`: it was its doing.
    fn told(self, is_at_fault: bool) -> Option<(CloseCode, &'static str)> {
        Some(match self {
            Self::Broken(error) if is_at_fault => (error.close_code(), error.text()),
            Self::Unfinished if is_at_fault => (CloseCode::POLICY_VIOLATION, "frame not finished in time"),
            Self::GivenUp if is_at_fault => (CloseCode::TRY_AGAIN_LATER, "no room"),
            Self::Idle => (CloseCode::GOING_AWAY, "idle"),
            Self::Drained => (CloseCode::GOING_AWAY, "going down"),
            Self::Broken(_) | Self::Unfinished | Self::GivenUp => (CloseCode::GOING_AWAY, "the other end broke off"),
            // Without a close frame of the one, the other sees what it would see without a gateway: an end without a word.
            Self::Closed | Self::Gone | Self::Untaken | Self::Unanswered | Self::Cut => return None,
        })
    }

    /// The reason of the end of an HTTP/1.1 connection that was this tunnel.
    const fn close_reason(self, sender: Sender) -> CloseReason {
        match (self, sender) {
            (Self::Gone, Sender::Client) => CloseReason::ClientClosed,
            (Self::Drained, _) => CloseReason::Drained,
            (Self::Cut, _) => CloseReason::ClientReset,
            _ => CloseReason::Ended(self.reason(sender)),
        }
    }

    /// The word for counters and logs.
    const fn reason(self, sender: Sender) -> &'static str {
        match (self, sender) {
            (Self::Closed, _) => "websocket_closed",
            (Self::Gone, Sender::Client) => "client_closed",
            (Self::Gone, Sender::Server) => "origin_closed",
            (Self::Broken(error), _) => error.reason(),
            (Self::Unfinished, _) => "websocket_frame_timeout",
            (Self::Untaken, Sender::Client) => "origin_stalled",
            (Self::Untaken, Sender::Server) => "client_stalled",
            (Self::GivenUp, _) => Refusal::UPLOAD_GIVEN_UP.reason,
            (Self::Idle, _) => "websocket_idle",
            (Self::Unanswered, _) => "websocket_close_timeout",
            (Self::Drained, _) => "drained",
            (Self::Cut, _) => "client_reset",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_whose_frames_had_to_make_room_may_come_again() {
        assert_eq!(Stop::GivenUp.told(true), Some((CloseCode(1013), "no room")));
        assert_eq!(Stop::GivenUp.told(false).map(|told| told.0), Some(CloseCode::GOING_AWAY));
    }
}
