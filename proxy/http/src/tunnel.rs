//! WebSocket through the gateway: from the handshake to the last frame.
//!
//! The handshake is an exchange like any other. Behind the origin's 101 the connection is a tunnel of two directions. Each
//! follows its frames by their headers: payloads go on as they came, in the turn in which they came, and are not read from the peer that
//! sends them while their receiver is slow. A header goes on only when it is whole and valid, so that a close frame of the
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
use weir_websocket_codec::{CloseCode, FrameValidator, Reserved, Sender, WireError, close_frame};

use crate::{
    body::BodyError,
    client::AfterExchange,
    connection::Connection,
    limits::LINGER_TIMEOUT,
    options::WebSocketSettings,
    refusal::Refusal,
    response_relay,
    tunnel_io::{Http1TunnelReader, Http1TunnelWriter, TunnelIo, TunnelReader, TunnelWriter},
    upgrade::AcceptedUpgrade,
    upstream::HttpLane,
    upstream_request::UpstreamRequest,
};

/// Time for the reply to a close frame. Default 10 s: the messages before it may have to be read first.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time over which a drain spreads its close frames: clients closed at once would all reconnect at once. Default 2 s; a drain that has
/// become firm waits no longer.
const DRAIN_SPREAD: Duration = Duration::from_secs(2);

/// State that both directions share.
struct TunnelState<'a> {
    settings: &'a WebSocketSettings,
    connection: &'a Connection,
    /// The bits that extensions use.
    reserved: Reserved,
    /// When something last moved.
    active: Cell<Time>,
    /// Directions that wait for who takes their frames: silence is not the sender's fault then.
    blocked: Cell<u32>,
}

impl TunnelState<'_> {
    /// The direction from `sender`.
    fn direction<'a, I, O>(
        &'a self,
        sender: Sender,
        tunnel_reader: I,
        tunnel_writer: &'a O,
        deadline: &'a Deadline,
        is_between_frames: &'a Cell<bool>,
    ) -> Direction<'a, I, O> {
        let validator = FrameValidator::new(sender, self.reserved, self.settings.limits);
        Direction { state: self, sender, validator, tunnel_reader, tunnel_writer, deadline, is_between_frames }
    }
}

/// One direction.
struct Direction<'a, I, O> {
    state: &'a TunnelState<'a>,
    sender: Sender,
    validator: FrameValidator,
    tunnel_reader: I,
    tunnel_writer: &'a O,
    deadline: &'a Deadline,
    is_between_frames: &'a Cell<bool>,
}

/// The reason why a direction stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopReason {
    /// Its close frame has gone on.
    Closed,
    /// Its sender is gone without one.
    SenderGone,
    /// Its sender broke a rule or a limit.
    Violated(WireError),
    /// Its sender began a frame and did not end it.
    FrameTimeout,
    /// The receiver takes nothing.
    ReceiverGone,
    /// Its receiver takes nothing, and others need the memory.
    Evicted,
    /// Nothing moved in either direction.
    Idle,
    /// The other end did not reply to its close frame.
    CloseTimeout,
    /// The gateway goes down.
    Drained,
    /// The connection has to end.
    Aborted,
}

impl<I: TunnelReader, O: TunnelWriter> Direction<'_, I, O> {
    async fn run(&mut self) -> StopReason {
        let (idle, whole) = (self.state.settings.idle_timeout, self.state.settings.frame_timeout);
        // Start of the present frame, without the time in which no receiver took it.
        let mut begun: Option<Time> = None;
        loop {
            let validated = self.validator.validate(self.tunnel_reader.bytes(), turn::now());
            if validated.bytes > 0 {
                self.tunnel_writer.append(&self.tunnel_reader.bytes()[..validated.bytes]);
                self.tunnel_reader.spend(validated.bytes);
            }
            self.is_between_frames.set(self.validator.is_between_frames());
            self.state.connection.service.metrics.tunnel_frames(self.sender, validated.frames);
            if let Some(error) = validated.error {
                return StopReason::Violated(error);
            }
            let waited = match self.tunnel_writer.is_full() {
                true => match self.ready().await {
                    Ok(waited) => waited,
                    Err(stop) => return stop,
                },
                false => Duration::ZERO,
            };
            if self.validator.is_closed() {
                return StopReason::Closed;
            }
            let is_within = !self.validator.is_between_frames() || !self.tunnel_reader.bytes().is_empty();
            begun = match begun.filter(|_| validated.frames == 0) {
                _ if !is_within => None,
                Some(at) => Some(at.saturating_add(waited)),
                None => Some(turn::now()),
            };
            self.tunnel_reader.release_chunk();
            loop {
                let idle_at = self.state.active.get().saturating_add(idle);
                let whole_at = begun.map_or(idle_at, |at| at.saturating_add(whole));
                self.deadline.set(idle_at.min(whole_at));
                match self.tunnel_reader.receive(self.deadline).await {
                    Some(Ok(count)) if count > 0 => {
                        self.state.active.set(turn::now());
                        break;
                    }
                    Some(_) => return StopReason::SenderGone,
                    None => {}
                }
                let now = turn::now();
                if begun.is_some() && now >= whole_at {
                    return StopReason::FrameTimeout;
                }
                if self.state.blocked.get() > 0 {
                    self.state.active.set(now);
                } else if now >= self.state.active.get().saturating_add(idle) {
                    return StopReason::Idle;
                }
            }
        }
    }

    /// Waits until the outlet has room; gives how long that took. A sender that breaks off meanwhile is seen at once.
    async fn ready(&mut self) -> Result<Duration, StopReason> {
        let since = turn::now();
        self.state.blocked.set(self.state.blocked.get() + 1);
        let (tunnel_reader, mut ready) = (&mut self.tunnel_reader, pin!(self.tunnel_writer.ready(self.deadline)));
        let ready = poll_fn(|context| match ready.as_mut().poll(context) {
            Poll::Ready(ready) => Poll::Ready(ready.map_err(|_| StopReason::ReceiverGone)),
            Poll::Pending => tunnel_reader.poll_broken(context).map(|broken| {
                Err(if broken == BodyError::Evicted { StopReason::Evicted } else { StopReason::SenderGone })
            }),
        });
        let ready = ready.await;
        self.state.blocked.set(self.state.blocked.get() - 1);
        self.state.active.set(turn::now());
        ready.map(|()| turn::now().since(since))
    }
}

/// Passes the origin's agreement on, and then frames both ways until both have closed or one cannot go on.
pub(crate) async fn run<I: TunnelReader, O: TunnelWriter>(
    client: TunnelIo<'_, I, O>,
    upstream_request: &UpstreamRequest<'_>,
    mut lane: HttpLane,
    switched: AcceptedUpgrade,
) -> AfterExchange {
    let connection = &**upstream_request.connection;
    let service = &connection.service;
    let (http, _open) = (service.http(), service.metrics.tunnel());
    let AcceptedUpgrade { mut head, input: mut received } = switched;
    let reserved = accept_upgrade(&client.tunnel_writer, upstream_request, lane.number(), &mut head);
    let active = Cell::new(turn::now());
    let state = TunnelState { settings: &http.websocket, connection, reserved, active, blocked: Cell::new(0) };
    let (client_is_between, origin_is_between) = (Cell::new(true), Cell::new(true));
    // No upgrade is requested on a stream of HTTP/2.
    let Link::Connection(origin) = lane.link() else { return AfterExchange::Abort(CloseReason::InternalInvariant) };
    let (origin_output, to_client) = (origin.output.clone(), client.tunnel_writer);
    let to_origin = Http1TunnelWriter(&origin_output);
    let from_origin = Http1TunnelReader::new(&mut origin.reader, &mut received);
    let mut up = state.direction(Sender::Client, client.tunnel_reader, &to_origin, client.deadline, &client_is_between);
    let mut down = state.direction(Sender::Server, from_origin, &to_client, client.other_deadline, &origin_is_between);
    let is_quiet = || client_is_between.get() && origin_is_between.get();
    let (sender, stop) = relay_both(connection, &mut up, &mut down, is_quiet).await;
    // Nothing may follow a close frame (RFC 6455 section 5.5.1).
    let (can_close_client, can_close_origin) =
        (origin_is_between.get() && !down.validator.is_closed(), client_is_between.get() && !up.validator.is_closed());
    // The end at fault gets the reason; the other only that there is no more.
    if can_close_client {
        send_close(&to_client, Sender::Server, stop.close_message(sender == Sender::Client));
    }
    if can_close_origin {
        send_close(&to_origin, Sender::Client, stop.close_message(sender == Sender::Server));
    }
    to_client.finish();
    // A stream sends nothing by itself, and the origin may take a moment to go.
    let _ = timeout(LINGER_TIMEOUT, to_client.ready(client.deadline)).await;
    if stop != StopReason::Aborted
        && let Link::Connection(origin) = lane.link()
    {
        finish_origin(origin).await;
    }
    record_end(connection, lane, stop, sender);
    AfterExchange::Close(connection.handle.ending().unwrap_or(stop.close_reason(sender)))
}

/// Sends the handshake response to the client. Returns the reserved bits that the extensions of both use.
fn accept_upgrade(
    tunnel_writer: &impl TunnelWriter,
    upstream_request: &UpstreamRequest<'_>,
    endpoint: usize,
    head: &mut ResponseHead,
) -> Reserved {
    let chosen = head.fields.all(Known::SecWebsocketExtensions);
    let reserved = chosen.fold(Reserved::None, |known, extensions| known.with(extensions));
    strip_hop_by_hop(&mut head.fields);
    // It would be that of the frames.
    head.fields.remove(Known::ContentLength);
    response_relay::change(&mut head.fields, upstream_request, endpoint);
    tunnel_writer.accept_upgrade(head);
    reserved
}

/// Counts the end of a tunnel, and what was wrong with it.
fn record_end(connection: &Connection, mut lane: HttpLane, stop: StopReason, sender: Sender) {
    let (metrics, reason) = (&connection.service.metrics, stop.reason(sender));
    match (stop, sender) {
        (StopReason::Violated(error), Sender::Client) => {
            connection.violated(reason, error.text());
        }
        (StopReason::FrameTimeout, Sender::Client) | (StopReason::ReceiverGone, Sender::Server) => {
            connection.violated(reason, "the client of a WebSocket stood still");
        }
        (StopReason::Violated(error), Sender::Server) => metrics.violation(&error.violation(Culprit::Upstream)),
        _ => {}
    }
    match (stop, sender) {
        (StopReason::Violated(_) | StopReason::FrameTimeout, Sender::Server) => lane.failed(LossCause::Violation),
        _ => lane.ends(),
    }
    metrics.tunnel_closed(reason);
}

/// Both directions until the tunnel is over; whose doing that was, and what.
async fn relay_both(
    connection: &Connection,
    up: &mut Direction<'_, impl TunnelReader, impl TunnelWriter>,
    down: &mut Direction<'_, impl TunnelReader, impl TunnelWriter>,
    is_quiet: impl Fn() -> bool,
) -> (Sender, StopReason) {
    let (mut up, mut down) = (pin!(up.run()), pin!(down.run()));
    let (mut up_closed, mut down_closed) = (false, false);
    // Deadline of the reply to a close frame, or of the drain.
    let ending = weir_engine::deadline();
    let mut is_leaving = false;
    let (end_waker, _listed) = connection.end_waker();
    poll_fn(|context| {
        if end_waker.poll_ended(connection, context) {
            return Poll::Ready((Sender::Client, StopReason::Aborted));
        }
        let was_closed = up_closed || down_closed;
        if !up_closed && let Poll::Ready(stop) = up.as_mut().poll(context) {
            match stop {
                StopReason::Closed => up_closed = true,
                stop => return Poll::Ready((Sender::Client, stop)),
            }
        }
        if !down_closed && let Poll::Ready(stop) = down.as_mut().poll(context) {
            match stop {
                StopReason::Closed => down_closed = true,
                stop => return Poll::Ready((Sender::Server, stop)),
            }
        }
        match (up_closed, down_closed) {
            (true, true) => return Poll::Ready((Sender::Client, StopReason::Closed)),
            (false, false) => match connection.service.sessions.drain_state() {
                Drain::Off => return Poll::Pending,
                Drain::Firm => return Poll::Ready((Sender::Client, StopReason::Drained)),
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
            // The end that has not closed has to reply.
            Poll::Ready(()) if up_closed => Poll::Ready((Sender::Server, StopReason::CloseTimeout)),
            Poll::Ready(()) if down_closed => Poll::Ready((Sender::Client, StopReason::CloseTimeout)),
            // A close frame cannot stand in the middle of a frame: the end of that frame wakes this task.
            Poll::Ready(()) if is_quiet() => Poll::Ready((Sender::Client, StopReason::Drained)),
            Poll::Ready(()) => Poll::Pending,
        }
    })
    .await
}

/// Sends a close frame in `sender`'s name, if there is a message.
fn send_close(end: &impl TunnelWriter, sender: Sender, message: Option<(CloseCode, &'static str)>) {
    if let Some((code, text)) = message {
        let mut frame = Vec::new();
        close_frame(sender, code, text, &mut frame);
        end.append(&frame);
    }
}

/// Sends what is left for the origin, and gives it a moment to close: dropping its lane at once would lose the last frames.
async fn finish_origin(origin: &mut Stream) {
    origin.finish();
    let rest = async { while let Ok(Some(_)) = origin.reader.receive().await {} };
    // An origin that does not close in time loses the rest.
    let _ = timeout(LINGER_TIMEOUT, rest).await;
}

impl StopReason {
    /// The close code and the text for one end; `is_at_fault`: it caused the end.
    fn close_message(self, is_at_fault: bool) -> Option<(CloseCode, &'static str)> {
        Some(match self {
            Self::Violated(error) if is_at_fault => (error.close_code(), error.text()),
            Self::FrameTimeout if is_at_fault => (CloseCode::POLICY_VIOLATION, "frame not finished in time"),
            Self::Evicted if is_at_fault => (CloseCode::TRY_AGAIN_LATER, "no room"),
            Self::Idle => (CloseCode::GOING_AWAY, "idle"),
            Self::Drained => (CloseCode::GOING_AWAY, "going down"),
            Self::Violated(_) | Self::FrameTimeout | Self::Evicted => {
                (CloseCode::GOING_AWAY, "the other end broke off")
            }
            // Without a close frame of the one, the other sees what it would see without a gateway: an end without a word.
            Self::Closed | Self::SenderGone | Self::ReceiverGone | Self::CloseTimeout | Self::Aborted => return None,
        })
    }

    /// The reason of the end of an HTTP/1.1 connection that was this tunnel.
    const fn close_reason(self, sender: Sender) -> CloseReason {
        match (self, sender) {
            (Self::SenderGone, Sender::Client) => CloseReason::ClientClosed,
            (Self::Drained, _) => CloseReason::Drained,
            (Self::Aborted, _) => CloseReason::ClientReset,
            _ => CloseReason::Ended(self.reason(sender)),
        }
    }

    /// The word for counters and logs.
    const fn reason(self, sender: Sender) -> &'static str {
        match (self, sender) {
            (Self::Closed, _) => "websocket_closed",
            (Self::SenderGone, Sender::Client) => "client_closed",
            (Self::SenderGone, Sender::Server) => "origin_closed",
            (Self::Violated(error), _) => error.reason(),
            (Self::FrameTimeout, _) => "websocket_frame_timeout",
            (Self::ReceiverGone, Sender::Client) => "origin_stalled",
            (Self::ReceiverGone, Sender::Server) => "client_stalled",
            (Self::Evicted, _) => Refusal::UPLOAD_GIVEN_UP.reason,
            (Self::Idle, _) => "websocket_idle",
            (Self::CloseTimeout, _) => "websocket_close_timeout",
            (Self::Drained, _) => "drained",
            (Self::Aborted, _) => "client_reset",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_whose_frames_were_dropped_for_memory_gets_try_again_later() {
        assert_eq!(StopReason::Evicted.close_message(true), Some((CloseCode(1013), "no room")));
        assert_eq!(StopReason::Evicted.close_message(false).map(|message| message.0), Some(CloseCode::GOING_AWAY));
    }
}
