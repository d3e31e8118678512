//! One client: its connection, its lives, and the model of its session.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use weir_base::rng::Rng;

use super::acts::ACTS;
use super::wire::{Reply, Wire};
use super::{DATABASE, Finding, Kind, TortureReport, USERS};

/// Settings that clients change, with their value in a new session.
pub const SETTINGS: [(&str, &str); 5] = [
    ("weir.mark", ""),
    ("work_mem", "4MB"),
    ("search_path", "\"$user\", public"),
    ("lock_timeout", "0"),
    ("intervalstyle", "postgres"),
];

/// A late signal of a cancel may still hit the next queries of the same session.
const CANCEL_LATE: Duration = Duration::from_secs(5);

/// Why an act broke off; the life ends with it.
pub type Broken = (Kind, String);

/// State that the session must have, and no other.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Settings that differ from those of a new session.
    pub settings: BTreeMap<&'static str, String>,
    /// Named statements of the protocol, by number.
    pub statements: BTreeSet<u64>,
    /// The statement of SQL's PREPARE.
    pub is_prepared: bool,
    /// Rows of the temporary table, if it exists.
    pub scratch: Option<u64>,
    /// It listens on the channel of its mark.
    pub is_listening: bool,
    /// Holds of its own advisory lock.
    pub locks: u32,
    /// A cursor WITH HOLD, and the rows left in it.
    pub held: Option<u64>,
}

/// A client and its present life.
pub struct TortureClient<'a> {
    port: u16,
    pub number: u32,
    life: u32,
    run: u32,
    pub rng: Rng,
    report: &'a Mutex<TortureReport>,
    pub model: Model,
    /// Client, life and run, which are in every row and setting.
    pub mark: String,
    /// Numbers the marked rows.
    pub sequence: u64,
    /// Until then a cancelled query may be an effect of an own cancel.
    cancelled_until: Option<Instant>,
}

impl<'a> TortureClient<'a> {
    /// A client that has not connected yet.
    /// `run` differs between runs on the same tables.
    pub fn new(port: u16, run: u32, number: u32, rng: Rng, report: &'a Mutex<TortureReport>) -> Self {
        let (model, mark) = (Model::default(), String::new());
        Self { port, number, life: 0, run, rng, report, model, mark, sequence: 0, cancelled_until: None }
    }

    /// The port that it connects to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its user.
    pub fn user(&self) -> &'static str {
        USERS[self.number as usize % USERS.len()]
    }

    /// Lives one life after the other.
    pub fn live_until(mut self, end: Instant) {
        while Instant::now() < end {
            self.life += 1;
            self.mark = format!("m{}x{}r{}", self.number, self.life, self.run);
            self.model = Model::default();
            self.cancelled_until = None;
            let lived = self.live(end);
            if let Err((act, (kind, text))) = lived {
                self.find(kind, act, text);
                // A gateway that is down must not be flooded with connects.
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// One connection, until it leaves or breaks.
    fn live(&mut self, end: Instant) -> Result<(), (&'static str, Broken)> {
        let stuck = |text| ("connect", (Kind::Stuck, text));
        let mut wire = Wire::connect(self.port, self.user(), DATABASE, &self.mark).map_err(stuck)?;
        self.report.lock().expect("the report").lives += 1;
        self.probe(&mut wire).map_err(|broken| ("first probe", broken))?;
        let total: u64 = ACTS.iter().map(|act| act.weight).sum();
        while Instant::now() < end {
            let mut ticket = self.rng.below(total);
            let chosen = ACTS.iter().find(|act| {
                let is_chosen = ticket < act.weight;
                ticket = ticket.saturating_sub(act.weight);
                is_chosen
            });
            let act = chosen.expect("the weights sum up");
            if act.is_last {
                (act.body)(self, &mut wire).map_err(|broken| (act.name, broken))?;
                wire.leave(self.rng.below(3));
                self.done(act.name);
                return Ok(());
            }
            (act.body)(self, &mut wire).map_err(|broken| (act.name, broken))?;
            self.heard(&mut wire, act.name).map_err(|broken| (act.name, broken))?;
            self.done(act.name);
        }
        wire.leave(2);
        Ok(())
    }

    fn done(&self, act: &'static str) {
        *self.report.lock().expect("the report").acts.entry(act).or_default() += 1;
    }

    fn find(&self, kind: Kind, act: &'static str, text: String) {
        self.report.lock().expect("the report").add(Finding { kind, mark: self.mark.clone(), act, text });
    }

    /// Notifications that arrived are its own, and nothing else came.
    fn heard(&mut self, wire: &mut Wire, act: &'static str) -> Result<(), Broken> {
        wire.idle_messages().map_err(|text| (Kind::WrongCount, text))?;
        for (channel, payload) in wire.heard.drain(..) {
            if channel != self.mark || !payload.starts_with(&format!("{}:", self.mark)) {
                self.find(Kind::ForeignRow, act, format!("notification {channel} {payload}"));
            }
        }
        Ok(())
    }

    /// An own cancel may hit from now on.
    pub fn cancels(&mut self) {
        self.cancelled_until = Some(Instant::now() + CANCEL_LATE);
    }

    /// The next number, in the form of a row.
    pub fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// A simple query without an expected error, repeated if an own late cancel hits it.
    pub fn ask(&mut self, wire: &mut Wire, text: &str) -> Result<Reply, Broken> {
        loop {
            let status = wire.status;
            let reply = wire.query(text).map_err(|text| (Kind::Stuck, text))?;
            if reply.state() == "57014" && status == b'I' {
                self.may_be_cancelled()?;
                continue;
            }
            if let Some((state, message)) = reply.errors.first() {
                return Err((kind_of(state), format!("{text}: {state} {message}")));
            }
            return Ok(reply);
        }
    }

    /// An error 57014 is an effect of an own cancel.
    pub fn may_be_cancelled(&self) -> Result<(), Broken> {
        match self.cancelled_until {
            Some(until) if Instant::now() < until => Ok(()),
            _ => Err((Kind::ForeignCancel, "a query was cancelled, and not by this client".to_owned())),
        }
    }

    /// A query that must end with that SQLSTATE.
    pub fn fails(&mut self, wire: &mut Wire, text: &str, state: &str) -> Result<(), Broken> {
        let reply = wire.query(text).map_err(|text| (Kind::Stuck, text))?;
        if reply.state() == "57014" && state != "57014" {
            return self.may_be_cancelled();
        }
        let kind = if reply.errors.is_empty() { Kind::ForeignState } else { kind_of(reply.state()) };
        is(kind, text, reply.state(), state)
    }

    /// Reads the whole state of the session and compares it with the model.
    pub fn probe(&mut self, wire: &mut Wire) -> Result<(), Broken> {
        let settings = SETTINGS.map(|(name, _)| format!("coalesce(current_setting('{name}', true), '')")).join(", ");
        let query = format!(
            "select {settings}, current_setting('application_name'), current_user, session_user, \
             to_regclass('pg_temp.scratch') is not null, \
             (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()), \
             (select coalesce(string_agg(channel, ' '), '') from pg_listening_channels() channel), \
             (select count(*) from pg_cursors where is_holdable)"
        );
        let reply = self.ask(wire, &query)?;
        let row = reply.rows.first().filter(|row| row.len() == SETTINGS.len() + 7);
        let row = row.ok_or_else(|| (Kind::WrongCount, format!("{:?} instead of a row", reply.rows)))?;
        is(Kind::WrongStatus, "status", char::from(wire.status), 'I')?;
        for ((name, initial), got) in SETTINGS.iter().zip(row) {
            let own = self.model.settings.get(name).map_or(*initial, String::as_str);
            // Its own value is gone, or another's is there.
            let kind = if got == initial { Kind::LostState } else { Kind::ForeignState };
            is(kind, name, got.as_str(), own)?;
        }
        let [application, current, session, has_scratch, locks, channels, cursors] = &row[SETTINGS.len()..] else {
            return Err((Kind::WrongCount, format!("{row:?}")));
        };
        let kind = if application.is_empty() { Kind::LostState } else { Kind::ForeignState };
        is(kind, "application_name", application.as_str(), &self.mark)?;
        is(Kind::WrongUser, "current_user", current.as_str(), self.user())?;
        is(Kind::WrongUser, "session_user", session.as_str(), self.user())?;
        let own = if self.model.scratch.is_some() { "t" } else { "f" };
        let kind = if own == "t" { Kind::LostState } else { Kind::ForeignState };
        is(kind, "temporary table", has_scratch.as_str(), own)?;
        // One lock however often it is held.
        let own = u32::from(self.model.locks > 0).to_string();
        let kind = if own == "1" { Kind::LostState } else { Kind::ForeignState };
        is(kind, "advisory locks", locks.as_str(), &own)?;
        // A gateway may listen by another connection.
        let is_own = channels.is_empty() || (*channels == self.mark && self.model.is_listening);
        is(Kind::ForeignState, &format!("channels `{channels}`"), is_own, true)?;
        let own = u32::from(self.model.held.is_some()).to_string();
        let kind = if own == "1" { Kind::LostState } else { Kind::ForeignState };
        is(kind, "held cursors", cursors.as_str(), &own)
    }

    /// Every row has this client's mark and the expected number.
    pub fn are_own(&self, rows: &[Vec<String>], numbers: &[u64]) -> Result<(), Broken> {
        let own: Vec<Vec<String>> = numbers.iter().map(|number| vec![self.mark.clone(), number.to_string()]).collect();
        if rows == own {
            return Ok(());
        }
        let is_foreign = rows.iter().any(|row| row.first() != Some(&self.mark));
        let kind = if is_foreign || rows.len() == own.len() { Kind::ForeignRow } else { Kind::WrongCount };
        Err((kind, format!("{rows:?} instead of {own:?}")))
    }
}

/// Errors that only the state of another session explains.
fn kind_of(state: &str) -> Kind {
    match state {
        // A statement, a table, a cursor that exists already; a bind to another's statement; an open or failed transaction.
        "42P05" | "42P07" | "42P03" | "08P01" | "25001" | "25P02" | "42P18" | "42703" => Kind::ForeignState,
        "26000" | "34000" | "42P01" => Kind::LostState,
        "57014" => Kind::ForeignCancel,
        _ => Kind::Unexpected,
    }
}

/// Compares; another value is a finding of that class.
pub fn is<T: PartialEq + std::fmt::Debug>(kind: Kind, what: &str, got: T, own: T) -> Result<(), Broken> {
    if got == own { Ok(()) } else { Err((kind, format!("{what}: {got:?} instead of {own:?}"))) }
}
