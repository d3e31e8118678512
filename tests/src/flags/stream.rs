//! A stream of changes, read by hand.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::deadline::WAIT;
use crate::stream::{Address, Stream};
use std::io::{ErrorKind, Read as _, Write as _};

/// An event of a stream.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: String,
    /// The wait before the client connects again, in milliseconds, if it says one.
    pub retry: Option<u64>,
    /// Its data.
    pub data: Value,
}

/// A stream of `/api/client/streaming`.
pub struct Events {
    stream: Stream,
    text: String,
    /// The status.
    pub status: u16,
    /// The head.
    pub head: String,
}

impl Events {
    /// Opens a stream, and reads its head.
    ///
    /// # Panics
    /// If no head comes.
    #[must_use]
    pub fn open(address: &Address, path: &str, token: &str, last_event_id: Option<&str>) -> Self {
        let mut stream = Stream::connect(address).expect("the gateway accepts");
        let last = last_event_id.map_or_else(String::new, |id| format!("Last-Event-ID: {id}\r\n"));
        let head = format!("GET {path} HTTP/1.1\r\nHost: flags.example\r\nAuthorization: {token}\r\n{last}\r\n");
        stream.write_all(head.as_bytes()).expect("the gateway takes the request");
        let mut events = Self { stream, text: String::new(), status: 0, head: String::new() };
        let begun = Instant::now();
        let end = loop {
            if let Some(end) = events.text.find("\r\n\r\n") {
                break end;
            }
            assert!(begun.elapsed() < WAIT, "no head: {}", events.text);
            assert!(events.receive(WAIT), "the connection ended within a head: {}", events.text);
        };
        events.head = events.text.drain(..end + 4).collect();
        events.status = events.head[9..12].parse().expect("a status");
        events
    }

    /// The next event.
    ///
    /// # Panics
    /// If none comes.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "an iterator would end in silence where a test must fail")]
    pub fn next(&mut self) -> Event {
        self.next_within(WAIT).expect("an event")
    }

    /// The next event; `None`: none came within this time, or the stream ended.
    pub fn next_within(&mut self, limit: Duration) -> Option<Event> {
        let begun = Instant::now();
        loop {
            // Sizes of chunks stand on lines of their own, and no event has such a line.
            if let Some(event) = self.take() {
                return Some(event);
            }
            let left = limit.checked_sub(begun.elapsed())?;
            if !self.receive(left) {
                return None;
            }
        }
    }

    /// Waits for the end of the stream.
    ///
    /// # Panics
    /// If it does not end in time.
    pub fn wait_end(&mut self, limit: Duration) {
        let begun = Instant::now();
        loop {
            if self.text.ends_with("0\r\n\r\n") {
                return;
            }
            let left = limit.saturating_sub(begun.elapsed());
            assert!(!left.is_zero(), "the stream is still open");
            if !self.receive(left) {
                return;
            }
        }
    }

    /// The text behind the last event.
    #[must_use]
    pub fn seen(&self) -> &str {
        &self.text
    }

    fn take(&mut self) -> Option<Event> {
        let begins = self.text.find("event: ")?;
        let begins = self.text[..begins].rfind("retry: ").unwrap_or(begins);
        let end = self.text[begins..].find("\n\n")? + begins;
        let text: String = self.text.drain(..end + 2).collect::<String>().split_off(begins);
        let text = joined(&text);
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        let data = field("data: ").expect("data");
        Some(Event {
            name: field("event: ").expect("a name"),
            id: field("id: ").expect("an id"),
            retry: field("retry: ").and_then(|text| text.trim().parse().ok()),
            data: serde_json::from_str(&data).unwrap_or_else(|error| panic!("{error}: {data}")),
        })
    }

    /// False: the connection has ended.
    fn receive(&mut self, limit: Duration) -> bool {
        self.stream.set_read_timeout(limit.max(Duration::from_millis(1))).expect("a limit");
        let mut chunk = [0; 64 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => false,
            Ok(count) => {
                self.text.push_str(&String::from_utf8_lossy(&chunk[..count]));
                true
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }
}

/// The text without the frames of chunks: a line with a size, between line ends of HTTP.
fn joined(text: &str) -> String {
    let mut parts = text.split("\r\n");
    let mut out = parts.next().unwrap_or_default().to_owned();
    if out.chars().all(|digit| digit.is_ascii_hexdigit()) {
        out.clear();
    }
    for part in parts {
        if part.is_empty() || part.chars().all(|digit| digit.is_ascii_hexdigit()) {
            continue;
        }
        out.push_str(part);
    }
    out
}
