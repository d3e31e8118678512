//! The life of a client connection, in the version of HTTP that its client speaks.

use std::{any::Any, panic::AssertUnwindSafe, rc::Rc};

use futures_util::FutureExt as _;
use weir_base::limits::WRITE_IDLE_TIMEOUT;
use weir_engine::Stream;
use weir_listener::{Arrival, CloseReason, ConnectionFuture, Linger, Sessions, is_among};

use crate::{
    connection::Connection,
    http1::{self, RequestsEnd},
    http2,
    limits::{DISCARD_BYTES_MAX, LINGER_TIMEOUT},
    response_class::ResponseClass,
    service::Service,
};

/// The patience with a client that has its last response.
const LINGER: Linger = Linger { stalled: WRITE_IDLE_TIMEOUT, limit: LINGER_TIMEOUT, bytes_max: DISCARD_BYTES_MAX };

const CLEAR_TEXT_STATUS: u16 = 400;
/// The response to a request in clear text where TLS is spoken. Browsers and curl show its text.
const CLEAR_TEXT: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 65\r\n\
    Connection: close\r\n\r\nthe client sent a plain HTTP request to a TLS port; use https://\n";

impl weir_listener::Service for Service {
    fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    fn serve(self: Rc<Self>, arrival: Arrival) -> ConnectionFuture {
        Box::pin(serve(self, arrival))
    }

    fn refusal(&self) -> &'static [u8] {
        b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    }

    fn clear_text_refusal(&self) -> Option<&'static [u8]> {
        Some(CLEAR_TEXT)
    }

    fn count_clear_text_refusal(&self) {
        self.metrics.responded(CLEAR_TEXT_STATUS, ResponseClass::of_status(CLEAR_TEXT_STATUS));
    }

    fn uses(&self, upstream: &dyn Any) -> bool {
        is_among(upstream, &self.routing().upstreams)
    }
}

/// Serves one admitted connection until it ends.
///
/// The stream comes in a box and rare work goes into one: an idle connection pays for the size of this future.
pub(crate) async fn serve(service: Rc<Service>, arrival: Arrival) {
    let is_http2 = arrival.stream.has_agreed_on(b"h2");
    let (connection, stream) = Connection::new(service, arrival);
    let opened = connection.service.sessions.open(connection.clone());
    let life = AssertUnwindSafe(run(&connection, stream, is_http2)).catch_unwind();
    let (reason, stream) = match life.await {
        Ok(ended) => ended,
        Err(_) => {
            (connection.service.sessions.panicked(&connection.handle, "the session of a connection panicked"), None)
        }
    };
    opened.close(reason);
    if let Some(stream) = stream
        && connection.handle.ending().is_none()
        && reason != CloseReason::ClientReset
    {
        Box::pin(LINGER.close(stream)).await;
    }
}

/// Serves the connection in the version that the client speaks; why it ended, and what is left of it.
async fn run(connection: &Rc<Connection>, mut stream: Box<Stream>, is_http2: bool) -> (CloseReason, Option<Stream>) {
    let received = match is_http2 {
        true => Vec::new(),
        false => match http1::run(connection, &mut stream).await {
            RequestsEnd::Http2(received) => received,
            RequestsEnd::Close(reason) => return (reason, Some(*stream)),
            RequestsEnd::Reset(reason) => {
                stream.reset();
                return (reason, None);
            }
            RequestsEnd::Refused(refusal) => return (CloseReason::of_client(refusal.reason), Some(*stream)),
        },
    };
    Box::pin(http2::run(connection, *stream, &received)).await
}
