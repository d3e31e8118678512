//! The origin of HTTP, WebSocket and TCP: it does what the word says, and knows which exchanges are under way. A thread for
//! each connection, or one for all.

mod serve;

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::Ask;
use crate::nginx::Nginx;
use crate::stream::Address;

/// The operations that the cases need from any origin.
pub trait Origin: Send + Sync {
    /// Where it listens.
    fn address(&self) -> Address;

    /// Makes ready what such a request needs.
    fn prepare(&self, _ask: &Ask) {}

    /// Exchanges of that kind that have begun and not ended, or why their number is unknown.
    ///
    /// # Errors
    /// The reason.
    fn under_way(&self, ask: &Ask) -> Result<usize, &'static str>;

    /// The value that was put last.
    fn value(&self) -> u64;
}

/// Protocol of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// HTTP/1.1, and WebSocket on request.
    Http,
    /// A line with a word and the length of what follows it.
    Lines,
}

struct Shared {
    speech: Speech,
    is_lone: bool,
    stop: AtomicBool,
    under_way: Mutex<BTreeMap<&'static str, usize>>,
    value: AtomicU64,
}

/// An exchange; it has ended when this is dropped.
struct Call<'a>(&'a Shared, &'static str);

impl Shared {
    fn begin(&self, kind: &'static str) -> Call<'_> {
        *lock(&self.under_way).entry(kind).or_default() += 1;
        Call(self, kind)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        *lock(&self.0.under_way).entry(self.1).or_default() -= 1;
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A running origin. Its threads end when it is dropped, or with their connections.
pub struct Scripted {
    address: Address,
    /// The one that HTTP/2 is spoken with.
    front: Option<Nginx>,
    shared: Arc<Shared>,
}

impl Scripted {
    /// One that serves everybody at once.
    pub fn start(speech: Speech) -> Self {
        Self::with(speech, false)
    }

    /// One that serves a connection to its end before it takes the next; of HTTP a connection is one exchange.
    pub fn lone(speech: Speech) -> Self {
        Self::with(speech, true)
    }

    fn with(speech: Speech, is_lone: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", crate::port::free())).expect("a free port");
        let address = Address::Tcp(listener.local_addr().expect("an address"));
        let shared = Arc::new(Shared {
            speech,
            is_lone,
            stop: AtomicBool::new(false),
            under_way: Mutex::default(),
            value: AtomicU64::new(0),
        });
        let served = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if served.stop.load(Ordering::Relaxed) {
                    return;
                }
                if served.is_lone {
                    // A client that disconnects gets no response.
                    let _ = serve::connection(stream, &served);
                } else {
                    let served = served.clone();
                    std::thread::spawn(move || serve::connection(stream, &served));
                }
            }
        });
        Self { address, front: None, shared }
    }

    /// With nginx in front of it, which speaks HTTP/2 and holds nothing back: a response that is not read and an upload that is
    /// not taken stop the stream.
    #[must_use]
    pub fn behind_http2(mut self) -> Self {
        let server = format!(
            "keepalive_requests 1000000; keepalive_timeout 120s; http2_max_concurrent_streams 1000; \
             proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_read_timeout 300s; \
             proxy_buffering off; proxy_request_buffering off; \
             location / {{ proxy_pass http://{0}; client_body_buffer_size 32m; }} \
             location /unread {{ proxy_pass http://{0}; client_body_buffer_size 64k; }}",
            self.address.text()
        );
        self.front = Some(Nginx::start("http2", &server));
        self
    }
}

impl Origin for Scripted {
    fn address(&self) -> Address {
        self.front.as_ref().map_or_else(|| self.address.clone(), |front| front.address.clone())
    }

    fn under_way(&self, ask: &Ask) -> Result<usize, &'static str> {
        Ok(lock(&self.shared.under_way).get(ask.kind()).copied().unwrap_or(0))
    }

    fn value(&self) -> u64 {
        self.shared.value.load(Ordering::SeqCst)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Wakes the acceptor.
        if let Ok(stream) = TcpStream::connect_timeout(&self.address.tcp(), Duration::from_secs(1)) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
