//! TLS towards the clients of a listener.

use std::{io, rc::Rc, sync::Arc, time::Duration};

use weir_base::{permit::LocalBudget, time::turn};
use weir_engine::{
    Stream, timeout,
    tls::{FirstMessage, ServerConfig, TlsSession, UNEXPECTED_MESSAGE_ALERT, first_message},
};
use weir_telemetry::{CoreMetrics, catalog};

use crate::{settings::ListenerSettings, share::CoreShare};

/// The security of a connection when its session begins.
#[derive(Clone)]
pub enum Security {
    /// Clear text, and no TLS.
    Plain,
    /// TLS, with its handshake behind it.
    Tls,
    /// Clear text, and TLS when the client asks for it within its protocol. See
    /// [`Service::starts_tls`](crate::Service::starts_tls).
    Offer(Rc<TlsAcceptor>),
}

/// The time that a client has for the handshake itself, however long it has waited for its turn. 1 s: two round trips on a slow link fit.
/// Worst case: 256 clients per worker and second that stop in the middle of theirs take all turns.
const HANDSHAKE_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Bytes of a client hello that are read before its turn; a client with a longer one has its turn with so many. Hellos have 200 to 3,000
/// bytes; a session reads the rest. Worst case 16 KiB x 16,384 connections = 256 MiB until the handshakes are over.
const HELLO_BYTES_MAX: usize = 16 * 1024;

/// Why a connection did not get TLS. Either was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTls {
    /// The handshake failed. The alert, if there is one, is in the output.
    Failed,
    /// The client speaks its protocol in clear text. Nothing is in the output.
    ClearText {
        /// Bytes of the client that were read.
        received: usize,
    },
}

/// Makes the handshakes of the clients of one listener on one worker, and counts them.
pub struct TlsAcceptor {
    config: Arc<ServerConfig>,
    /// Look whether the client speaks in clear text: the protocol has words for it.
    notices_clear_text: bool,
    timeout: Duration,
    permits: LocalBudget,
    listener: Arc<str>,
    metrics: CoreMetrics,
}

impl TlsAcceptor {
    /// The acceptor of a listener with these settings. `notices_clear_text`: clear text is reported as [`NoTls::ClearText`]
    /// instead of as a failed handshake.
    pub fn new(
        core: &CoreShare,
        settings: &ListenerSettings,
        config: Arc<ServerConfig>,
        notices_clear_text: bool,
    ) -> Rc<Self> {
        Rc::new(Self {
            config,
            notices_clear_text,
            timeout: settings.tls.as_ref().map_or(Duration::ZERO, |tls| tls.handshake_timeout),
            permits: core.handshakes.clone(),
            listener: settings.name.clone(),
            metrics: core.metrics.clone(),
        })
    }

    /// Makes the handshake; `received` are bytes of the client that were read before.
    ///
    /// # Errors
    /// See [`NoTls`].
    pub async fn accept(&self, stream: &mut Stream, received: &[u8]) -> Result<(), NoTls> {
        let (metrics, name) = (&self.metrics, &*self.listener);
        let count = |reason: &str| metrics.counter(&catalog::TLS_HANDSHAKE_FAILURES, &[name, reason]).inc();
        let failed = |reason: &str| {
            count(reason);
            Err(NoTls::Failed)
        };
        let came = turn::now();
        let left = || self.timeout.saturating_sub(turn::now().since(came));
        let received = match timeout(self.timeout, hello(stream, received)).await {
            Ok(Some(received)) => received,
            Ok(None) => return failed("closed"),
            Err(_) => return failed("timeout"),
        };
        if self.notices_clear_text && is_clear_text(&received) {
            count("clear_text");
            return Err(NoTls::ClearText { received: received.len() });
        }
        if first_message(&received) == FirstMessage::NoHandshake {
            // A session would wait for the end of some of these records, with a permit.
            stream.output.append(&UNEXPECTED_MESSAGE_ALERT);
            return failed("tls");
        }
        let least = HANDSHAKE_TIMEOUT_MIN.min(left());
        // Each waits its turn: a wave of clients is served in slices that the core can bear, not turned away.
        let Ok(_permit) = timeout(left(), self.permits.acquire()).await else {
            return failed("handshakes_in_flight");
        };
        let _in_flight = metrics.gauge(&catalog::TLS_HANDSHAKES_IN_FLIGHT, &[name]).guard();
        let begun = turn::now();
        let Ok(session) = TlsSession::server(&self.config) else { return failed("settings") };
        // A permit is of no use to a client that has waited for nearly all of its time.
        match timeout(left().max(least), stream.start_tls(session, &received)).await {
            Ok(Ok(())) => {
                metrics.counter(&catalog::TLS_HANDSHAKES, &[name]).inc();
                metrics.histogram(&catalog::TLS_HANDSHAKE_DURATION, &[name]).record(turn::now().nanos_since(begun));
                Ok(())
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => failed("tls"),
            Ok(Err(_)) => failed("closed"),
            Err(_) => failed("timeout"),
        }
    }
}

/// The first message of a client, behind what was `received` of it before, or what cannot become one. A client without a whole one has cost
/// nothing, so it waits for no turn and takes none. `None`: it has left.
async fn hello(stream: &mut Stream, received: &[u8]) -> Option<Vec<u8>> {
    let mut hello = received.to_vec();
    while first_message(&hello) == FirstMessage::Partial && hello.len() < HELLO_BYTES_MAX {
        let chunk = stream.reader.receive_at_most(HELLO_BYTES_MAX - hello.len()).await.ok()??;
        // Twice the bytes of the last one would be beyond the bound.
        hello.reserve_exact(chunk.len());
        hello.extend_from_slice(&chunk);
    }
    Some(hello)
}

/// A message that begins with a letter, as each of HTTP does. A record of TLS begins with its type, which is a control
/// character (RFC 8446 section 5.1), and the hello of SSL 2 with a byte from 0x80 on.
fn is_clear_text(first: &[u8]) -> bool {
    first.first().is_some_and(u8::is_ascii_alphabetic)
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        net::{TcpListener, TcpStream},
    };

    use weir_engine::{
        StreamOptions, Watermarks, Worker,
        settings::{DriverChoice, RuntimeSettings},
    };

    use super::*;

    /// The hello as the peer of a client has it, the capacity of its buffer, and the bytes that it receives next. `received` was read
    /// before, `sent` comes.
    fn read_hello(received: Vec<u8>, sent: &[u8]) -> (Vec<u8>, usize, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(sent).unwrap();
        drop(client);
        let (socket, _) = listener.accept().unwrap();
        let settings = RuntimeSettings { driver: DriverChoice::Polling, ..RuntimeSettings::default() };
        let (done, is_done) = std::sync::mpsc::channel();
        let worker = Worker::start(0, None, &settings, Arc::default(), move || async move {
            let marks = Watermarks { high: 256 << 10, low: 64 << 10 };
            let mut stream = Stream::new(socket.into(), StreamOptions { marks }).unwrap();
            let hello = hello(&mut stream, &received).await.unwrap();
            let mut rest = Vec::new();
            while let Some(chunk) = stream.reader.receive().await.unwrap() {
                rest.extend_from_slice(&chunk);
            }
            done.send((hello.clone(), hello.capacity(), rest)).unwrap();
        });
        let read = is_done.recv_timeout(Duration::from_secs(20)).expect("the hello is read");
        worker.unwrap().join().unwrap();
        read
    }

    #[test]
    fn no_more_than_the_bound_is_held_of_a_hello_and_the_rest_stays_to_be_received() {
        // A message of 60,000 bytes in records of 16 KiB.
        let mut bytes = vec![22, 3, 1, 64, 0, 1, 0, 0xea, 0x60];
        bytes.resize(5 + HELLO_BYTES_MAX, 0);
        bytes.extend([22, 3, 1, 64, 0]);
        bytes.resize(3 * HELLO_BYTES_MAX, 0);
        for at in [0, 1, HELLO_BYTES_MAX - 1, HELLO_BYTES_MAX] {
            let (hello, capacity, rest) = read_hello(bytes[..at].to_vec(), &bytes[at..]);
            assert_eq!((hello.len(), capacity), (HELLO_BYTES_MAX, HELLO_BYTES_MAX), "{at} were read before");
            assert!([hello, rest].concat() == bytes, "{at}: no byte is lost");
        }
    }

    #[test]
    fn bytes_that_are_no_hello_are_not_waited_for() {
        for bytes in [&[0x15][..], &[0x17, 3, 3, 64, 0], &[22, 3, 1, 0, 1, 1, 0x15]] {
            let (hello, ..) = read_hello(Vec::new(), bytes);
            assert_eq!((&hello[..], first_message(&hello)), (bytes, FirstMessage::NoHandshake));
        }
    }

    #[test]
    fn a_hello_is_no_clear_text_and_a_request_is() {
        let hello = [0x16, 3, 1, 2, 0];
        assert!(!is_clear_text(&hello) && !is_clear_text(&[0x80, 0x2e, 1]) && !is_clear_text(&[]));
        assert!(is_clear_text(b"GET / HTTP/1.1") && is_clear_text(b"PRI * HTTP/2.0") && is_clear_text(b"g"));
    }
}
