//! One connection: the hello, the upstream, and bytes both ways.

use std::{
    cell::Cell, future::poll_fn, net::SocketAddr, panic::AssertUnwindSafe, pin::pin, rc::Rc, sync::Arc, task::Poll,
    time::Duration,
};

use futures_util::FutureExt as _;
use weir_base::{
    error::Culprit,
    limits,
    time::{Time, turn},
    violation::Violation,
};
use weir_engine::{Deadline, Output, Reader, Stream, timeout, tls::ClientHello};
use weir_listener::{
    Arrival, CloseReason, ConnectionHandle, Session as ListedSession, Stage,
    proxy_protocol::{ProxyHeader, ProxyVersion},
};
use weir_telemetry::{access::AccessRecord, log::Peer};
use weir_upstream::{
    ExclusiveLane, LossCause, NoMultiplexer, Refusal, SelectionCriteria, TriedEndpoints, affinity_hash,
    settings::Affinity,
};

use crate::{
    service::{Routing, Service, TcpUpstream},
    settings::IDLE_TIMEOUT,
};

/// Attempts to connect for one connection, if there are fewer endpoints.
const ATTEMPTS: u32 = 3;
/// Bytes of a client hello. Those of browsers have about 2,000, and rustls takes no longer ones.
const HELLO_BYTES_MAX: usize = 16 * 1024;
/// Time of a closed connection for the peer to read the last bytes.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// Both directions have ended.
const DONE: CloseReason = CloseReason::Ended("ok");
/// The origin broke the connection.
const ORIGIN_CLOSED: CloseReason = CloseReason::of_upstream("origin_closed");

/// One client connection, as its listener sees it.
pub(crate) struct Connection {
    service: Rc<Service>,
    handle: ConnectionHandle,
    /// The address that the client connected to, if there is one.
    local: Option<SocketAddr>,
}

impl ListedSession for Connection {
    fn handle(&self) -> &ConnectionHandle {
        &self.handle
    }
}

impl Connection {
    /// The client, for an endpoint that trusts us.
    fn proxy_header(&self, version: ProxyVersion) -> Vec<u8> {
        let header = match (self.handle.peer(), self.local) {
            (Peer::Ip(client), Some(local)) => ProxyHeader::tcp(version, client, local),
            // Nothing is known of it but that it is somebody's.
            _ => ProxyHeader::unknown(version),
        };
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        bytes
    }

    fn violated(&self, reason: &'static str, text: &'static str) -> CloseReason {
        self.service.sessions.violated(&self.handle, &Violation::rule(reason, Culprit::Client, text))
    }
}

/// Serves one admitted connection until it ends.
pub(crate) async fn serve(service: Rc<Service>, arrival: Arrival) {
    let Arrival { mut stream, guard, peer, local, .. } = arrival;
    let transport = Box::new(stream.cutter());
    let handle = ConnectionHandle::new(guard, peer, Some(transport), &service.sessions.core().bytes);
    stream.output.charge_to(Some(handle.account().clone()));
    stream.count_into(service.sessions.traffic());
    let local = local.or_else(|| handle.local_address());
    let connection = Rc::new(Connection { service, handle, local });
    let sessions = &connection.service.sessions;
    let opened = sessions.open(connection.clone());
    let is_named = connection.service.routing().settings.names.is_some();
    connection.handle.entry().details().version = if is_named { "TLS" } else { "TCP" };
    connection.handle.begins();
    let mut session = Session { connection: &connection, read: 0, upstream: None, connected: None };
    let life = AssertUnwindSafe(session.run(&mut stream)).catch_unwind();
    let reason = match life.await {
        Ok(reason) => connection.handle.ending().unwrap_or(reason),
        Err(_) => sessions.panicked(&connection.handle, "the session of a connection panicked"),
    };
    connection.handle.ends();
    opened.close(reason);
    if sessions.samples_access() {
        let now = turn::now();
        sessions.log_access(&AccessRecord {
            listener: sessions.name(),
            peer,
            connection: connection.handle.id(),
            command: "connection",
            upstream: session.upstream.as_deref(),
            duration_nanos: now.nanos_since(opened.begun()),
            upstream_nanos: session.connected.map_or(0, |connected| now.nanos_since(connected)),
            request_bytes: session.read,
            reply_bytes: stream.output.appended(),
            outcome: reason.name(),
            http: None,
        });
    }
    if reason == DONE {
        stream.close(LINGER_TIMEOUT).await;
    }
}

struct Session<'a> {
    connection: &'a Connection,
    /// Bytes of the client.
    read: u64,
    upstream: Option<Arc<str>>,
    connected: Option<Time>,
}

impl Session<'_> {
    async fn run(&mut self, stream: &mut Stream) -> CloseReason {
        let (service, routing) = (&self.connection.service, self.connection.service.routing());
        let is_timed = service.stages.samples();
        let (number, first) = match &routing.settings.names {
            None => (routing.settings.default_upstream, Vec::new()),
            Some(_) => match Box::pin(self.read_client_hello(stream, &routing)).await {
                Ok(chosen) => chosen,
                Err(reason) => return reason,
            },
        };
        let begun = Time::now();
        if is_timed && !first.is_empty() {
            service.stages.record(Stage::Parse, turn::now(), begun);
        }
        let upstream = &routing.upstreams[number];
        self.upstream = Some(upstream.settings().name.clone());
        let mut lane = match self.connect(upstream).await {
            Ok(lane) => lane,
            Err(refusal) => return CloseReason::of_upstream(refusal.name()),
        };
        lane.charge_to(self.connection.handle.account().clone());
        self.connected = Some(turn::now());
        if is_timed {
            service.stages.record(Stage::LaneWait, begun, Time::now());
        }
        let origin = lane.stream();
        if let Some(version) = routing.settings.proxy_headers.get(number).copied().flatten() {
            origin.output.append(&self.connection.proxy_header(version));
        }
        origin.output.append(&first);
        let ended = self.relay(stream, origin).await;
        let reason = self.connection.handle.ending().unwrap_or(ended);
        if reason == DONE {
            // The last bytes are on their way.
            origin.output.drained(limits::WRITE_IDLE_TIMEOUT).await;
            stream.output.drained(limits::WRITE_IDLE_TIMEOUT).await;
        }
        match reason {
            ORIGIN_CLOSED => lane.failed(LossCause::Closed),
            _ => lane.ends(),
        }
        reason
    }

    /// Passes bytes both ways until both directions have ended, or the connection has to. Returns the reason of the end.
    async fn relay(&mut self, client: &mut Stream, origin: &mut Stream) -> CloseReason {
        let listener = self.connection.service.sessions.settings();
        let idle = listener.idle_timeout.unwrap_or(IDLE_TIMEOUT);
        let half_close = listener.half_close_timeout.min(idle);
        let (active, sent) = (Cell::new(turn::now()), origin.output.appended());
        let deadline = weir_engine::deadline();
        let peer = client.reader.peer_watch();
        let mut upload = pin!(relay_direction(&mut client.reader, &origin.output, &active));
        let mut download = pin!(relay_direction(&mut origin.reader, &client.output, &active));
        let (mut is_uploaded, mut is_downloaded) = (false, false);
        let ended = poll_fn(|context| {
            if let Some(reason) = self.connection.handle.poll_ending(context) {
                return Poll::Ready(reason);
            }
            if !is_uploaded && let Poll::Ready(ended) = upload.as_mut().poll(context) {
                match ended {
                    Ok(()) => is_uploaded = true,
                    Err(RelayError::Source) => return Poll::Ready(CloseReason::ClientReset),
                    Err(RelayError::Sink) => return Poll::Ready(ORIGIN_CLOSED),
                }
            }
            if !is_downloaded && let Poll::Ready(ended) = download.as_mut().poll(context) {
                match ended {
                    Ok(()) => is_downloaded = true,
                    Err(RelayError::Source) => return Poll::Ready(ORIGIN_CLOSED),
                    Err(RelayError::Sink) => return Poll::Ready(CloseReason::ClientReset),
                }
            }
            if is_uploaded && is_downloaded {
                return Poll::Ready(DONE);
            }
            // A client that is not read, because the origin takes nothing, is not seen to reset. Both directions closed look like it.
            if !is_downloaded && peer.poll_broken(context).is_ready() {
                return Poll::Ready(CloseReason::ClientReset);
            }
            let is_half = is_uploaded || is_downloaded;
            deadline.set(active.get().saturating_add(if is_half { half_close } else { idle }));
            let late = if is_half { CloseReason::HalfCloseTimeout } else { CloseReason::IdleTimeout };
            deadline.poll_expired(context).map(|()| late)
        });
        let ended = ended.await;
        self.read += origin.output.appended() - sent;
        ended
    }

    /// Reads the client hello without replying to it. Returns the upstream of its server name, and the read bytes.
    async fn read_client_hello(
        &mut self,
        stream: &mut Stream,
        routing: &Routing,
    ) -> Result<(usize, Vec<u8>), CloseReason> {
        let names = routing.settings.names.as_ref().ok_or(CloseReason::InternalInvariant)?;
        let limit = self.connection.service.sessions.settings().head_timeout;
        let mut received = Vec::new();
        let read = async {
            let mut hello = ClientHello::default();
            loop {
                match stream.reader.receive().await {
                    Ok(Some(chunk)) => {
                        received.extend_from_slice(&chunk);
                        match hello.read(&chunk) {
                            Ok(Some(name)) => return Ok(name),
                            Ok(None) if received.len() < HELLO_BYTES_MAX => {}
                            Ok(None) | Err(_) => return Err(None),
                        }
                    }
                    Ok(None) => return Err(Some(CloseReason::ClientClosed)),
                    Err(_) => return Err(Some(CloseReason::ClientReset)),
                }
            }
        };
        let name = match timeout(limit, read).await {
            Ok(Ok(name)) => name,
            Ok(Err(Some(reason))) => return Err(reason),
            Ok(Err(None)) => {
                return Err(self.connection.violated("tls_hello", "the connection does not begin with a TLS hello"));
            }
            Err(_) => return Err(self.connection.violated("head_timeout", "the TLS hello took too long to arrive")),
        };
        self.read += received.len() as u64;
        let named = name.as_deref().and_then(|name| names.find(name)).copied();
        Ok((named.unwrap_or(routing.settings.default_upstream), received))
    }

    /// A connection to one of the endpoints.
    async fn connect(&self, upstream: &Rc<TcpUpstream>) -> Result<ExclusiveLane<NoMultiplexer>, Refusal> {
        let hash = match (upstream.affinity(), self.connection.handle.peer()) {
            (Affinity::Address, Peer::Ip(address)) => {
                Some(affinity_hash(address.ip().to_canonical().to_string().as_bytes()))
            }
            _ => None,
        };
        let (mut tried, mut attempts) = (TriedEndpoints::default(), 1);
        loop {
            let wanted =
                SelectionCriteria { avoid: tried.last(), tried: tried.clone(), hash, ..SelectionCriteria::default() };
            match upstream.acquire(wanted).await {
                Ok(lane) => return Ok(lane),
                Err((refusal, number)) => {
                    let Some(number) = number.filter(|_| refusal == Refusal::Unreachable) else { return Err(refusal) };
                    let is_another = tried.failed(number, upstream.settings().endpoints.len());
                    if !is_another && (attempts >= ATTEMPTS || !upstream.may_retry()) {
                        return Err(refusal);
                    }
                    attempts += 1;
                    upstream.goes_elsewhere(number, "connect_failure");
                }
            }
        }
    }
}

/// The reason why a direction broke.
enum RelayError {
    /// The sender is gone.
    Source,
    /// The receiver is gone, or takes nothing for too long.
    Sink,
}

/// Passes bytes on until their sender ends its direction, and ends it at the other side too.
async fn relay_direction(reader: &mut Reader, output: &Output, active: &Cell<Time>) -> Result<(), RelayError> {
    let deadline = weir_engine::deadline();
    loop {
        let Some(chunk) = reader.receive().await.map_err(|_| RelayError::Source)? else {
            output.finish();
            return Ok(());
        };
        active.set(turn::now());
        output.append(&chunk);
        drop(chunk);
        output_ready(output, &deadline, active).await?;
        if output.is_closed() {
            return Err(RelayError::Sink);
        }
    }
}

/// Waits until the output has room. Gives up a peer that takes nothing for [`limits::WRITE_IDLE_TIMEOUT`].
async fn output_ready(output: &Output, deadline: &Deadline, active: &Cell<Time>) -> Result<(), RelayError> {
    while output.is_congested() && !output.is_closed() {
        let progress = output.progress();
        deadline.set(turn::now().saturating_add(limits::WRITE_IDLE_TIMEOUT));
        let is_ready = poll_fn(|context| match output.poll_relieved(context) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => deadline.poll_expired(context).map(|()| false),
        });
        if !is_ready.await && output.progress() == progress {
            return Err(RelayError::Sink);
        }
        active.set(turn::now());
    }
    Ok(())
}
