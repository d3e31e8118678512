//! One connection: chunks in, replies out.

use std::{
    cell::Cell,
    io,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use socket2::Socket;
use weir_base::{Time, limits};
use weir_engine::{Stream, StreamOptions, Watermarks, spawn};
use weir_postgres_codec::backend::{self, ErrorReport};
use weir_postgres_codec::sqlstate;
use weir_sasl::{Mechanism, ScramVerifier};

use super::{select::RowTerms, session::Session, settings::PostgresOriginSettings};
use crate::{
    delayed_replies::{DelayedReplies, Event},
    server::{Open, WorkerStats, add},
};

/// Unsent bytes of replies at which a client stops being read.
const HIGH_WATER_BYTES: usize = limits::WRITE_HIGH_WATER_BYTES as usize;

/// How long the last replies may take to leave a connection that ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Numbers of processes that each worker gives to its connections before it starts again.
const PIDS_PER_WORKER: u32 = 1 << 22;

/// Salt of the verifier, the same for all users, who have one password.
const SALT: &[u8] = b"weir lab origin.";
/// Iterations of its hash, as in PostgreSQL.
const ITERATIONS: u32 = 4_096;

/// Terms of all connections of one worker.
pub(super) struct Terms {
    pub(super) settings: PostgresOriginSettings,
    pub(super) stats: Arc<WorkerStats>,
    /// Made from the password that every user has; `None`: no user needs one.
    pub(super) verifier: Option<ScramVerifier>,
    worker: u32,
    next: Cell<u32>,
}

impl Terms {
    pub(super) fn new(settings: PostgresOriginSettings, worker: usize, stats: Arc<WorkerStats>) -> Self {
        let made = |password| ScramVerifier::from_password(Mechanism::ScramSha256, password, SALT, ITERATIONS);
        let verifier = settings.password.as_ref().map(made);
        Self { settings, stats, verifier, worker: worker as u32, next: Cell::new(0) }
    }

    pub(super) fn of_rows(&self) -> RowTerms {
        RowTerms { payload: self.settings.payload, requests: self.stats.requests.load(Ordering::Relaxed) }
    }

    /// The number of the process that a connection has in PostgreSQL.
    pub(super) fn next_pid(&self) -> u32 {
        let number = self.next.replace((self.next.get() + 1) % PIDS_PER_WORKER);
        self.worker * PIDS_PER_WORKER + number + 1
    }
}

/// Serves an accepted socket on this worker.
pub(super) fn admit(terms: &Rc<Terms>, socket: Socket) {
    let marks = Watermarks { high: HIGH_WATER_BYTES, low: limits::WRITE_LOW_WATER_BYTES as usize };
    // A socket that refuses its options has lost its peer.
    let Ok(stream) = Stream::new(socket, StreamOptions { marks }) else { return };
    add(&terms.stats.accepted, 1);
    spawn(serve(terms.clone(), stream)).detach();
}

async fn serve(terms: Rc<Terms>, mut stream: Stream) {
    let Some(_open) = Open::new(&terms.stats, terms.settings.connections_max) else {
        let report = ErrorReport::fatal(sqlstate::TOO_MANY_CONNECTIONS, "sorry, too many clients already");
        stream.output.with(|out| backend::error(out, &report));
        return stream.close(CLOSE_TIMEOUT).await;
    };
    let mut input = Input { session: Session::new(terms.next_pid()), kept: Vec::new() };
    // An error means that the client is gone: no one is left to report it to.
    drop(match terms.settings.delay.is_zero() {
        true => exchange(&terms, &mut input, &mut stream).await,
        false => delayed(&terms, &mut input, &mut stream).await,
    });
    stream.close(CLOSE_TIMEOUT).await;
}

/// The bytes of a client that are not answered yet.
struct Input {
    session: Session,
    /// The beginning of a message.
    kept: Vec<u8>,
}

impl Input {
    /// Responds to every message that `chunk` completes.
    fn respond(&mut self, terms: &Terms, chunk: &[u8], out: &mut Vec<u8>) {
        if self.kept.is_empty() {
            let used = self.session.respond(terms, chunk, out);
            self.kept.extend_from_slice(&chunk[used..]);
        } else {
            self.kept.extend_from_slice(chunk);
            let used = self.session.respond(terms, &self.kept, out);
            self.kept.drain(..used);
        }
    }
}

/// Responds until either side ends the connection.
async fn exchange(terms: &Terms, input: &mut Input, stream: &mut Stream) -> io::Result<()> {
    while !input.session.is_closing() {
        let Some(chunk) = stream.reader.receive().await? else { return Ok(()) };
        stream.output.with(|out| input.respond(terms, &chunk, out));
        // Back to the pool before anything is waited for.
        drop(chunk);
        while stream.output.is_congested() {
            stream.output.relieved().await;
            if stream.output.is_closed() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The same, where each reply leaves after the delay.
async fn delayed(terms: &Terms, input: &mut Input, stream: &mut Stream) -> io::Result<()> {
    let (mut held, mut has_input) = (DelayedReplies::default(), true);
    while !stream.output.is_closed() {
        if stream.output.is_congested() {
            stream.output.relieved().await;
            continue;
        }
        let reads = has_input && !input.session.is_closing() && held.bytes < HIGH_WATER_BYTES;
        if !reads && held.is_empty() {
            return Ok(());
        }
        match held.next(&mut stream.reader, reads).await {
            Event::Due => {
                while let Some(bytes) = held.pop(Time::now()) {
                    stream.output.append(&bytes);
                }
            }
            Event::Input(chunk) => match chunk? {
                None => has_input = false,
                Some(chunk) => {
                    let mut reply = Vec::new();
                    input.respond(terms, &chunk, &mut reply);
                    held.push(Time::now().saturating_add(terms.settings.delay), reply);
                }
            },
        }
    }
    Ok(())
}
