//! One client in a closed loop: a few numbered writes in a row, a read, and a check of every reply. It notices closed
//! connections, connects again and goes on, as client libraries with a pool do.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::tally::Tally;
use super::value::{key, number, value};
use crate::bench::resp::{Connection, NoReply, Quiet, Reply};
use weir_base::rng::Rng;

/// A reply has to come within this time. Above every time-out that the gateway has for one exchange.
const REPLY_LIMIT: Duration = Duration::from_secs(15);
/// Most writes in a row before the first reply is read.
const WRITES_MAX: u64 = 6;
/// Pause after an error reply or a refused connection.
const BACK_OFF: Duration = Duration::from_millis(2);
/// Pause before a client asks whether an unanswered write was executed: it may still be on its way to the server.
const SETTLE: Duration = Duration::from_millis(50);

/// What a client is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// Where it connects to.
    pub(crate) port: u16,
    /// Longest pause between two rounds.
    pub(crate) think: Duration,
    /// The server may forget everything in between, as one without persistence does when it is killed.
    pub(crate) forgets: bool,
}

/// When a client last saw what, in nanoseconds since the start of the load. Read by the phase while it runs.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// Last right reply.
    pub(crate) good: AtomicU64,
    /// Last failure of any kind.
    pub(crate) bad: AtomicU64,
}

/// A client.
pub(crate) struct Client<'a> {
    index: usize,
    habits: Habits,
    pulse: &'a Pulse,
    started: Instant,
    connection: Option<Connection>,
    rng: Rng,
    /// Number of the last write that was sent.
    sent: u64,
    /// What the server holds, as far as known.
    held: Held,
    tally: Tally,
}

/// What the server holds under the client's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// Exactly this write.
    Is(u64),
    /// This one, or any later one up to the last that was sent: their replies never came.
    AtLeast(u64),
    /// Anything that the client ever wrote, or nothing: a write was answered with an error.
    Unknown,
}

impl<'a> Client<'a> {
    /// A client that has done nothing yet.
    pub(crate) fn new(index: usize, habits: Habits, pulse: &'a Pulse, started: Instant) -> Self {
        let rng = Rng::new(index as u64 + 1);
        let (connection, held, tally) = (None, Held::Unknown, Tally::default());
        Self { index, habits, pulse, started, connection, rng, sent: 0, held, tally }
    }

    /// Goes on until told to stop.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> Tally {
        while !stop.load(Ordering::Relaxed) {
            let Some(mut connection) = self.take_connection() else {
                std::thread::sleep(BACK_OFF);
                continue;
            };
            if self.is_still_open(&mut connection) && self.round(&mut connection) {
                self.connection = Some(connection);
            } else {
                self.tally.closed += 1;
            }
        }
        self.tally
    }

    fn take_connection(&mut self) -> Option<Connection> {
        if self.connection.is_some() {
            return self.connection.take();
        }
        if matches!(self.held, Held::AtLeast(_)) {
            std::thread::sleep(SETTLE);
        }
        match Connection::open(self.habits.port, REPLY_LIMIT) {
            Ok(connection) => Some(connection),
            Err(error) => {
                Tally::count(&mut self.tally.not_connected, error.kind().to_string());
                self.note_bad();
                None
            }
        }
    }

    /// Pauses, and looks at the connection meanwhile.
    fn is_still_open(&mut self, connection: &mut Connection) -> bool {
        let think = self.habits.think.as_micros() as u64;
        if think == 0 {
            return true;
        }
        let pause = Duration::from_micros(self.rng.next_u64() % think);
        match connection.watch(pause) {
            Ok(Quiet::Open) => true,
            Ok(Quiet::Closed) | Err(_) => {
                self.tally.closed_between += 1;
                false
            }
            Ok(Quiet::Spoke) => {
                Tally::count(&mut self.tally.wrong, "bytes that nobody asked for");
                self.note_bad();
                false
            }
        }
    }

    /// One round; `false` if the connection is of no further use.
    fn round(&mut self, connection: &mut Connection) -> bool {
        if matches!(self.held, Held::AtLeast(_)) {
            return self.read(connection);
        }
        let writes = 1 + self.rng.next_u64() % WRITES_MAX;
        self.write(connection, writes) && self.read(connection)
    }

    fn write(&mut self, connection: &mut Connection, writes: u64) -> bool {
        let first = self.sent + 1;
        // Before the first reply anything up to `sent` may have been executed.
        let mut confirmed = match self.held {
            Held::Is(number) => Some(number),
            _ => None,
        };
        for number in first..first + writes {
            self.sent = number;
            if connection.send(&[b"SET", &key(self.index), &value(self.index, number)]).is_err() {
                // What was sent before may have been answered; the replies below tell.
                break;
            }
        }
        for number in first..=self.sent {
            match connection.reply() {
                Ok(Reply::Simple(text)) if text == "OK" => {
                    confirmed = Some(number);
                    self.note_good();
                }
                Ok(Reply::Error(text)) => {
                    self.note_error(text);
                    confirmed = None;
                }
                Ok(other) => {
                    self.note_wrong(&format!("SET gave {}", short(&other)));
                    self.held = Held::Unknown;
                    return false;
                }
                Err(failure) => {
                    self.held = confirmed.map_or(Held::Unknown, Held::AtLeast);
                    self.note_failure(&failure, self.sent + 1 - number, confirmed.is_some());
                    return false;
                }
            }
        }
        self.held = confirmed.map_or(Held::Unknown, Held::Is);
        true
    }

    fn read(&mut self, connection: &mut Connection) -> bool {
        let reply = match connection.send(&[b"GET", &key(self.index)]) {
            Ok(()) => connection.reply(),
            Err(error) => Err(NoReply::ClosedBefore(error.kind())),
        };
        match reply {
            Ok(Reply::Bulk(bytes)) => self.judge(bytes.as_deref()),
            Ok(Reply::Error(text)) => {
                self.note_error(text);
                true
            }
            Ok(other) => {
                self.note_wrong(&format!("GET gave {}", short(&other)));
                false
            }
            Err(failure) => {
                self.note_failure(&failure, 1, false);
                false
            }
        }
    }

    /// Compares what was read with what must be there; `false` if the stream cannot be trusted any more.
    fn judge(&mut self, bytes: Option<&[u8]>) -> bool {
        let Some(bytes) = bytes else {
            if self.habits.forgets || self.held == Held::Unknown {
                self.held = Held::Unknown;
                self.note_good();
                return true;
            }
            self.note_wrong("a value that was written is gone");
            self.held = Held::Unknown;
            return true;
        };
        let Some(number) = number(self.index, bytes) else {
            self.note_wrong("a value of another client, or a damaged one");
            return false;
        };
        match self.held {
            Held::Is(wanted) if number != wanted => {
                self.note_wrong(if number < wanted { "an old value" } else { "a value not yet confirmed" });
            }
            Held::AtLeast(least) if number < least || number > self.sent => self.note_wrong("an old value"),
            Held::AtLeast(least) => {
                // The writes were counted as crossed when their replies failed to come.
                let executed = number - least;
                self.tally.lost += executed;
                self.tally.crossed = self.tally.crossed.saturating_sub(executed);
                self.note_good();
            }
            _ => self.note_good(),
        }
        self.held = Held::Is(number);
        true
    }

    /// No reply came for `unanswered` requests. `settled_later`: a read will show which of them were executed.
    fn note_failure(&mut self, failure: &NoReply, unanswered: u64, settled_later: bool) {
        self.note_bad();
        match failure {
            NoReply::ClosedBefore(_) => self.tally.crossed += unanswered,
            NoReply::ClosedInside(_) => {
                self.tally.cut += 1;
                self.tally.crossed += unanswered - 1;
                // The cut one is counted already, and the read that follows would count it again as lost.
                if settled_later {
                    self.held = Held::Unknown;
                }
            }
            NoReply::TimedOut => {
                self.tally.late += unanswered;
                self.held = Held::Unknown;
            }
            NoReply::Malformed(text) => {
                Tally::count(&mut self.tally.wrong, format!("malformed: {}", text.escape_default()));
                self.held = Held::Unknown;
            }
        }
    }

    fn note_error(&mut self, text: String) {
        Tally::count(&mut self.tally.errors, text);
        self.held = Held::Unknown;
        self.note_bad();
        std::thread::sleep(BACK_OFF);
    }

    fn note_wrong(&mut self, text: &str) {
        Tally::count(&mut self.tally.wrong, text);
        self.note_bad();
    }

    fn note_good(&mut self) {
        self.tally.right += 1;
        self.pulse.good.store(self.now(), Ordering::Relaxed);
    }

    fn note_bad(&mut self) {
        self.pulse.bad.store(self.now(), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }
}

/// A reply for a message: its kind, and not a whole value.
fn short(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(Some(bytes)) => format!("a bulk of {} bytes", bytes.len()),
        other => format!("{other:?}"),
    }
}
