//! Events on an open connection: all flags or those that have changed, then each change.

use std::{future::poll_fn, task::Poll, time::Duration};

use weir_engine::{Stream, sleep};
use weir_flags_codec::DeltaEvent;
use weir_http_codec::encode;

use super::{
    document,
    environment::Delta,
    scope::Scope,
    server::Shared,
    state::{State, World},
    token::Token,
};

/// A comment that keeps connections open.
const COMMENT: &[u8] = b":\n\n";

/// How far a stream has come.
#[derive(Debug)]
pub struct Place {
    token: Token,
    scope: Scope,
    /// The client has everything up to this revision. `None`: it has nothing.
    revision: Option<u64>,
    /// The first event has another name than the others.
    is_connected: bool,
    broadcast: u64,
    generation: u64,
}

impl Place {
    /// The place of a client that has this revision.
    pub fn new(world: &World, token: &Token, scope: Scope, revision: Option<u64>) -> Self {
        let (broadcast, generation) = (world.last_broadcast(), world.generation);
        Self { token: token.clone(), scope, revision, is_connected: false, broadcast, generation }
    }

    /// The bytes that the client lacks, which it then has. `None`: the stream ends.
    fn advance(&mut self, world: &mut World) -> Option<Vec<u8>> {
        if self.generation != world.generation || world.token(&self.token.text) != Some(&self.token) {
            return None;
        }
        let mut out = Vec::new();
        let environment = world.environment(&self.token.environment);
        let revision = environment.revision();
        if self.revision != Some(revision) || !self.is_connected {
            let events = match environment.delta(&self.scope, self.revision) {
                Delta::Unchanged => Vec::new(),
                Delta::Events(events) => events,
            };
            if !events.is_empty() || !self.is_connected {
                self.write(revision, &events, &mut out);
            }
            (self.revision, self.is_connected) = (Some(revision), true);
        }
        world.broadcasts_behind(self.broadcast).for_each(|text| out.extend_from_slice(text));
        self.broadcast = world.last_broadcast();
        Some(out)
    }

    fn write(&self, revision: u64, events: &[DeltaEvent], out: &mut Vec<u8>) {
        let name = if self.is_connected { "unleash-updated" } else { "unleash-connected" };
        out.extend_from_slice(format!("event: {name}\nid: {revision}\ndata: ").as_bytes());
        out.extend_from_slice(&document::events(events));
        out.extend_from_slice(b"\n\n");
    }
}

/// Counts an open stream for as long as it is open.
struct Counted<'a>(&'a State);

impl<'a> Counted<'a> {
    fn new(state: &'a State) -> Self {
        state.lock().streams += 1;
        Self(state)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.lock().streams -= 1;
    }
}

/// Sends events until the client leaves or the stream ends. The connection ends with it.
pub async fn run(shared: &Shared, stream: &mut Stream, mut place: Place, fields: &str) {
    let _counted = Counted::new(&shared.state);
    stream.output.with(|out| {
        encode::status_line(200, b"", out);
        out.extend_from_slice(b"Server: weir-origin\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n");
        out.extend_from_slice(fields.as_bytes());
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        encode::end_of_head(out);
    });
    loop {
        let seen = shared.epoch.get();
        let advanced = place.advance(&mut shared.state.lock());
        let Some(text) = advanced else {
            stream.output.with(|out| encode::last_chunk(None, out));
            return;
        };
        if !text.is_empty() {
            stream.output.with(|out| encode::chunk(&text, out));
        }
        while stream.output.is_congested() && !stream.output.is_closed() {
            stream.output.relieved().await;
        }
        match wait(shared, stream, seen).await {
            Wake::Changed => {}
            Wake::Quiet => stream.output.with(|out| encode::chunk(COMMENT, out)),
            Wake::Gone => return,
        }
    }
}

/// Why a stream goes on.
enum Wake {
    /// Something has changed.
    Changed,
    /// Nothing has for a while.
    Quiet,
    /// The client has left.
    Gone,
}

async fn wait(shared: &Shared, stream: &Stream, seen: u64) -> Wake {
    let watch = stream.reader.peer_watch();
    let keep_alive: Duration = shared.keep_alive;
    let mut waiting = Box::pin(sleep(keep_alive));
    poll_fn(|context| {
        if watch.poll_ended(context).is_ready() {
            return Poll::Ready(Wake::Gone);
        }
        if shared.epoch.get() != seen {
            return Poll::Ready(Wake::Changed);
        }
        shared.streams.borrow_mut().push(context.waker().clone());
        waiting.as_mut().poll(context).map(|()| Wake::Quiet)
    })
    .await
}
