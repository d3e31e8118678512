//! Primary or standby: the roles of the servers of an upstream, and which of them take sessions.
//!
//! One worker looks at each server by a connection of its own, and all workers read the result. A server that gives no reply keeps the
//! role that it had: a primary that is too busy for a login is no reason to have none. A promoted standby is on a later timeline, and so
//! comes before a primary that it replaces.

use std::{
    future::poll_fn,
    rc::{Rc, Weak},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    task::{Poll, Waker},
    time::Duration,
};

use weir_base::time::Time;
use weir_engine::{Stream, timeout, wake_elsewhere};
use weir_postgres_codec::{
    backend::{self, DataRow},
    frame, frontend,
};
use weir_postgres_session::position::Positions;
use weir_upstream::pooled::{Fitness, LoginError};

use crate::{server::PostgresServer, service::PostgresUpstream, settings::TargetSessionAttrs};

/// The time of one look. Default 5 s: beyond, a server is as good as gone for those that read from it.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// The least time between two looks, however often sessions have a reason for one. Default 100 ms.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// Longest reply to a look: three short columns.
const REPLY_BYTES_MAX: usize = 16 * 1024;

/// Whether the server is in recovery, how far it has written or replayed, and the file of a primary, whose name begins with the timeline.
const QUERY: &[u8] = b"SELECT pg_catalog.pg_is_in_recovery(), \
    CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn() \
    ELSE pg_catalog.pg_current_wal_insert_lsn() END, \
    CASE WHEN pg_catalog.pg_is_in_recovery() THEN NULL \
    ELSE pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()) END";
/// For servers without these functions: their positions stay unknown.
const SHORT_QUERY: &[u8] = b"SELECT pg_catalog.pg_is_in_recovery()";

/// The role of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Unknown,
    Primary { timeline: u32 },
    Standby,
}

/// Facts of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) role: Role,
    /// It replied to the last look.
    pub(crate) is_reachable: bool,
}

/// The same for all workers: written by the one that looks.
#[derive(Default)]
pub struct RoleWatch {
    /// See [`fitness_of`].
    fitness: AtomicU8,
    role: AtomicU8,
    timeline: AtomicU32,
    is_reachable: AtomicBool,
    /// The position up to which a standby has replayed.
    replayed: AtomicU64,
    /// Changes with each look.
    looks: AtomicU64,
    /// Positions of a primary.
    positions: Mutex<Positions>,
    call: Mutex<Call>,
}

/// A session has seen something that a look may explain.
#[derive(Default)]
struct Call {
    is_due: bool,
    waker: Option<Waker>,
}

impl RoleWatch {
    /// A session has lost the server, or seen it in another role: a look is due at once.
    pub(crate) fn suspect(&self) {
        let waker = {
            let mut call = lock(&self.call);
            call.is_due = true;
            call.waker.take()
        };
        waker.into_iter().for_each(wake_elsewhere);
    }

    async fn called(&self) {
        poll_fn(|context| {
            let mut call = lock(&self.call);
            if std::mem::take(&mut call.is_due) {
                return Poll::Ready(());
            }
            call.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    pub(crate) fn fitness(&self) -> Fitness {
        match self.fitness.load(Relaxed) {
            FIT => Fitness::Fit,
            SPARE => Fitness::Spare,
            _ => Fitness::Unfit,
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        let role = match self.role.load(Relaxed) {
            PRIMARY => Role::Primary { timeline: self.timeline.load(Relaxed) },
            STANDBY => Role::Standby,
            _ => Role::Unknown,
        };
        Standing { role, is_reachable: self.is_reachable.load(Relaxed) }
    }

    /// A number that changes with each look.
    pub(crate) fn looks(&self) -> u64 {
        self.looks.load(Relaxed)
    }

    /// The position up to which a standby has replayed.
    pub(crate) fn replayed(&self) -> u64 {
        self.replayed.load(Relaxed)
    }

    /// The positions of a primary.
    pub(crate) fn positions(&self) -> MutexGuard<'_, Positions> {
        lock(&self.positions)
    }

    fn note(&self, looked: Looked, at: Time) {
        match looked {
            Looked::Primary { timeline, position } => {
                self.timeline.store(timeline, Relaxed);
                self.role.store(PRIMARY, Relaxed);
                if let Some(position) = position {
                    self.positions().note(at, position);
                }
            }
            Looked::Standby { replayed } => {
                self.role.store(STANDBY, Relaxed);
                self.replayed.store(replayed.unwrap_or(0), Relaxed);
                self.positions().clear();
            }
            Looked::Silent => {}
        }
        self.is_reachable.store(looked != Looked::Silent, Relaxed);
        self.looks.fetch_add(1, Relaxed);
    }
}

const PRIMARY: u8 = 1;
const STANDBY: u8 = 2;

const FIT: u8 = 1;
const SPARE: u8 = 2;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which of these servers take sessions, in their order.
pub(crate) fn judge(wanted: TargetSessionAttrs, servers: &[Standing]) -> Vec<Fitness> {
    let timeline = |server: &Standing| match server.role {
        Role::Primary { timeline } => Some(timeline),
        _ => None,
    };
    let latest = servers.iter().filter_map(timeline).max();
    let has_standby = servers.iter().any(|server| server.role == Role::Standby && server.is_reachable);
    servers.iter().map(|server| fitness_of(wanted, server, timeline(server) == latest, has_standby)).collect()
}

/// `is_latest`: no primary is on a later timeline. `has_standby`: one of the servers is a standby that replies.
fn fitness_of(wanted: TargetSessionAttrs, server: &Standing, is_latest: bool, has_standby: bool) -> Fitness {
    match (wanted, server.role) {
        (TargetSessionAttrs::Any, _) => Fitness::Fit,
        (TargetSessionAttrs::Primary, Role::Primary { .. }) if is_latest => Fitness::Fit,
        (TargetSessionAttrs::PreferStandby, Role::Primary { .. }) if is_latest => Fitness::Spare,
        (TargetSessionAttrs::PreferStandby, Role::Standby) if server.is_reachable => Fitness::Fit,
        // One that gives no reply is the last resort.
        (TargetSessionAttrs::Standby, Role::Standby) if server.is_reachable || !has_standby => Fitness::Fit,
        _ => Fitness::Unfit,
    }
}

/// The result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    Primary { timeline: u32, position: Option<u64> },
    Standby { replayed: Option<u64> },
    Silent,
}

/// Looks at all servers of an upstream until it is retired. Call it on one worker.
pub fn watch(upstream: &Rc<PostgresUpstream>) {
    if upstream.protocol().settings().target_session_attrs == TargetSessionAttrs::Any {
        return;
    }
    for number in 0..upstream.settings().endpoints.len() {
        weir_engine::spawn(watch_one(Rc::downgrade(upstream), number)).detach();
    }
}

async fn watch_one(upstream: Weak<PostgresUpstream>, number: usize) {
    let mut look = Look::default();
    loop {
        let Some(held) = upstream.upgrade().filter(|upstream| !upstream.is_retired()) else { return };
        let (watch, interval) = (held.watch(number), held.protocol().settings().role_interval);
        // Before the query leaves: what is written later is not in its reply.
        let at = Time::now();
        let looked = match timeout(LOOK_TIMEOUT, look.at(&held, number)).await {
            Ok(Ok(looked)) => looked,
            Ok(Err(_)) | Err(_) => {
                look.kept = None;
                Looked::Silent
            }
        };
        let before = watch.standing();
        watch.note(looked, at);
        report(&held, number, before, watch.standing());
        settle(&held);
        drop(held);
        weir_engine::sleep(LOOK_PAUSE.min(interval)).await;
        let _ = timeout(interval.saturating_sub(LOOK_PAUSE), watch.called()).await;
    }
}

fn report(upstream: &PostgresUpstream, number: usize, before: Standing, now: Standing) {
    let is_other = std::mem::discriminant(&before.role) != std::mem::discriminant(&now.role);
    if before.role != Role::Unknown && is_other {
        upstream.role_changed(number, matches!(now.role, Role::Primary { .. }));
    }
}

/// Judges all servers, and lets sessions know of changes.
fn settle(upstream: &PostgresUpstream) {
    let watches: Vec<_> = (0..upstream.settings().endpoints.len()).map(|number| upstream.watch(number)).collect();
    let standings: Vec<_> = watches.iter().map(|watch| watch.standing()).collect();
    let judged = judge(upstream.protocol().settings().target_session_attrs, &standings);
    for (number, (watch, fitness)) in watches.iter().zip(judged).enumerate() {
        let byte = match fitness {
            Fitness::Fit => FIT,
            Fitness::Spare => SPARE,
            Fitness::Unfit => 0,
        };
        if watch.fitness.swap(byte, Relaxed) != byte {
            upstream.reconsider(number, fitness == Fitness::Unfit);
        }
    }
}

/// A connection for looks.
#[derive(Default)]
struct Look {
    kept: Option<Stream>,
    /// The server lacks functions for positions.
    is_short: bool,
}

impl Look {
    async fn at(&mut self, upstream: &PostgresUpstream, number: usize) -> Result<Looked, LoginError> {
        // A connection that was idle may be gone for reasons of its own.
        if let Some(mut stream) = self.kept.take()
            && let Ok(looked) = self.query(&mut stream).await
        {
            self.kept = Some(stream);
            return Ok(looked);
        }
        let opened = upstream.connect_aside(number).await;
        let (mut stream, target) = opened.map_err(|refusal| std::io::Error::other(refusal.name()))?;
        upstream.protocol().log_in_aside(&mut stream, &target).await?;
        let looked = self.query(&mut stream).await?;
        self.kept = Some(stream);
        Ok(looked)
    }

    async fn query(&mut self, stream: &mut Stream) -> std::io::Result<Looked> {
        if !self.is_short {
            match ask(stream, QUERY).await? {
                Some(looked) => return Ok(looked),
                None => self.is_short = true,
            }
        }
        let looked = ask(stream, SHORT_QUERY).await?;
        looked.ok_or_else(|| std::io::Error::other("the server does not say whether it is in recovery"))
    }
}

/// The reply to a query; `None`: an error.
async fn ask(stream: &mut Stream, query: &[u8]) -> std::io::Result<Option<Looked>> {
    let broken = || std::io::Error::other("the server breaks the protocol");
    stream.output.with(|out| frontend::query(out, query));
    let (mut input, mut looked) = (Vec::new(), None);
    loop {
        while let Some(head) = frame::head(&input).map_err(|_| broken())? {
            if input.len() < head.whole() {
                break;
            }
            let body = &input[frame::HEAD_BYTES..head.whole()];
            match head.tag {
                backend::tag::DATA_ROW => looked = read(DataRow::read(body).map_err(|_| broken())?),
                backend::tag::READY_FOR_QUERY => return Ok(looked),
                _ => {}
            }
            input.drain(..head.whole());
        }
        match stream.reader.receive().await? {
            Some(chunk) if input.len() + chunk.len() <= REPLY_BYTES_MAX => input.extend_from_slice(&chunk),
            _ => return Err(broken()),
        }
    }
}

fn read(row: DataRow<'_>) -> Option<Looked> {
    let mut values = row.iter();
    let is_standby = values.next()?? == b"t";
    let position = values.next().flatten().and_then(position);
    let file = values.next().flatten().and_then(|name| std::str::from_utf8(name.get(..8)?).ok());
    Some(match is_standby {
        true => Looked::Standby { replayed: position },
        false => {
            let position = position.map(end_of_last_record);
            let timeline = file.and_then(|text| u32::from_str_radix(text, 16).ok()).unwrap_or(0);
            Looked::Primary { timeline, position }
        }
    })
}

/// The position up to which a standby replays when `insert` is the next position to be written. At the begin of a page that is behind
/// the head of the page (24 bytes, 40 in the first page of a segment), which belongs to no record (`XLogBytePosToRecPtr`,
/// `SizeOfXLogShortPHD`, `SizeOfXLogLongPHD`). An idle primary would be ahead of its standbys for ever.
fn end_of_last_record(insert: u64) -> u64 {
    const PAGE_BYTES: u64 = 8 * 1024;
    const SEGMENT_BYTES_MIN: u64 = 1024 * 1024;
    match (insert % PAGE_BYTES, insert % SEGMENT_BYTES_MIN) {
        (24, _) => insert - 24,
        (40, 40) => insert - 40,
        _ => insert,
    }
}

/// The number of a position as PostgreSQL prints it: `16/B374D848`.
fn position(text: &[u8]) -> Option<u64> {
    let (high, low) = std::str::from_utf8(text).ok()?.split_once('/')?;
    Some(u64::from_str_radix(high, 16).ok()? << 32 | u64::from(u32::from_str_radix(low, 16).ok()?))
}

impl PostgresServer {
    /// Logs a connection for looks in.
    async fn log_in_aside(
        &self,
        stream: &mut Stream,
        target: &weir_upstream::pooled::LoginTarget,
    ) -> Result<(), LoginError> {
        crate::server::log_in(stream, target, self.own_identity(), self.keys()).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Fitness::{Fit, Spare, Unfit};
    use TargetSessionAttrs::{Any, PreferStandby, Primary, Standby};

    const STANDBY: Standing = Standing { role: Role::Standby, is_reachable: true };
    const SILENT: Standing = Standing { is_reachable: false, ..STANDBY };
    const UNKNOWN: Standing = Standing { role: Role::Unknown, is_reachable: false };

    fn primary(timeline: u32) -> Standing {
        Standing { role: Role::Primary { timeline }, is_reachable: true }
    }

    #[test]
    fn each_choice_takes_the_servers_that_libpq_takes() {
        let servers = [primary(1), STANDBY, UNKNOWN];
        assert_eq!(judge(Any, &servers), [Fit, Fit, Fit]);
        assert_eq!(judge(Primary, &servers), [Fit, Unfit, Unfit]);
        assert_eq!(judge(Standby, &servers), [Unfit, Fit, Unfit]);
        assert_eq!(judge(PreferStandby, &servers), [Spare, Fit, Unfit]);
    }

    #[test]
    fn a_primary_that_a_promoted_standby_has_replaced_takes_no_sessions() {
        let gone = Standing { is_reachable: false, ..primary(1) };
        assert_eq!(judge(Primary, &[gone, STANDBY]), [Fit, Unfit], "none has replaced it yet");
        assert_eq!(judge(Primary, &[gone, primary(2)]), [Unfit, Fit]);
        assert_eq!(judge(Primary, &[primary(1), primary(2)]), [Unfit, Fit], "it is back, and does not know");
    }

    #[test]
    fn a_standby_that_gives_no_reply_is_the_last_resort() {
        assert_eq!(judge(Standby, &[SILENT, STANDBY]), [Unfit, Fit]);
        assert_eq!(judge(Standby, &[SILENT, SILENT]), [Fit, Fit]);
        assert_eq!(judge(PreferStandby, &[primary(1), SILENT]), [Spare, Unfit]);
    }

    #[test]
    fn the_head_of_a_page_is_no_record() {
        assert_eq!(end_of_last_record(0x0300_0028), 0x0300_0000);
        assert_eq!(end_of_last_record(0x0300_2018), 0x0300_2000);
        assert_eq!(end_of_last_record(0x0300_2028), 0x0300_2028, "only the first page of a segment has the long head");
        assert_eq!(end_of_last_record(0x0300_0148), 0x0300_0148);
    }

    #[test]
    fn positions_and_timelines_are_read() {
        assert_eq!(position(b"16/B374D848"), Some(0x16_B374_D848));
        assert_eq!((position(b"16"), position(b"x/1"), position(b"1/100000000")), (None, None, None));
        let row = |values: [Option<&[u8]>; 3]| {
            let mut bytes = Vec::new();
            backend::data_row(&mut bytes, values);
            read(DataRow::read(&bytes[frame::HEAD_BYTES..]).expect("a row"))
        };
        let primary = row([Some(b"f"), Some(b"0/10"), Some(b"0000000A0000000000000001")]);
        assert_eq!(primary, Some(Looked::Primary { timeline: 10, position: Some(16) }));
        assert_eq!(row([Some(b"t"), None, None]), Some(Looked::Standby { replayed: None }));
    }
}
