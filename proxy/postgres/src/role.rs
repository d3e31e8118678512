//! Primary or standby: the roles of the servers of an upstream, and which of them take sessions.
//!
//! One worker looks at each server by a connection of its own, and all workers read the result. A server that gives no reply keeps the
//! role that it had: a primary that is too busy for a login is no reason to have none. A promoted standby is on a later timeline, and so
//! comes before a primary that it replaces.

mod look;

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
use weir_engine::{timeout, wake_elsewhere};
use weir_postgres_session::position::Positions;
use weir_upstream::pooled::Fitness;

use self::look::{Look, Looked};
use crate::{service::PostgresUpstream, settings::TargetSessionAttrs};

/// The time of one look. Default 5 s: beyond, a server is as good as gone for those that read from it.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// The least time between two looks, however often sessions have a reason for one. Default 100 ms.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// The role of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Unknown,
    /// [`UNKNOWN_TIMELINE`] is before all others.
    Primary {
        timeline: u32,
    },
    Standby,
}

/// Facts of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) role: Role,
    /// It replied to the last look.
    pub(crate) is_reachable: bool,
    /// The first look at it is over.
    pub(crate) is_looked_at: bool,
}

/// The standbys of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standbys {
    /// None replies, but a server has not been looked at yet.
    Unknown,
    /// None replies.
    Absent,
    /// One replies.
    Present,
}

/// The same for all workers: written by the one that looks.
#[derive(Default)]
pub struct RoleWatch {
    /// See [`fitness_of`].
    fitness: AtomicU8,
    role: AtomicU8,
    timeline: AtomicU32,
    is_reachable: AtomicBool,
    is_replaced: AtomicBool,
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
        Standing { role, is_reachable: self.is_reachable.load(Relaxed), is_looked_at: self.looks() > 0 }
    }

    /// It is a primary, and another one is on a later timeline: writes there are lost, or divide the data.
    pub(crate) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Relaxed)
    }

    /// The timeline, also that of a standby.
    pub(crate) fn timeline(&self) -> u32 {
        self.timeline.load(Relaxed)
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
                // A primary stays on its timeline: a look that does not show it changes nothing.
                let was_primary = self.role.swap(PRIMARY, Relaxed) == PRIMARY;
                if timeline.is_some() || !was_primary {
                    self.timeline.store(timeline.unwrap_or(UNKNOWN_TIMELINE), Relaxed);
                }
                if let Some(position) = position {
                    self.positions().note(at, position);
                }
            }
            Looked::Standby { timeline, replayed } => {
                // The same holds for a standby, whose timeline and position only rise.
                let was_standby = self.role.swap(STANDBY, Relaxed) == STANDBY;
                if timeline.is_some() || !was_standby {
                    self.timeline.store(timeline.unwrap_or(UNKNOWN_TIMELINE), Relaxed);
                }
                if replayed.is_some() || !was_standby {
                    self.replayed.store(replayed.unwrap_or(0), Relaxed);
                }
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

/// Timelines begin with 1.
const UNKNOWN_TIMELINE: u32 = 0;

const FIT: u8 = 1;
const SPARE: u8 = 2;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which of these servers take sessions, in their order.
pub(crate) fn judge(wanted: TargetSessionAttrs, servers: &[Standing]) -> Vec<Fitness> {
    let latest = latest(servers);
    let is_standby = |server: &Standing| server.role == Role::Standby && server.is_reachable;
    let standbys = if servers.iter().any(is_standby) {
        Standbys::Present
    } else if servers.iter().all(|server| server.is_looked_at) {
        Standbys::Absent
    } else {
        Standbys::Unknown
    };
    let is_latest = |server: &Standing| timeline(server).is_some() && timeline(server) == latest;
    servers.iter().map(|server| fitness_of(wanted, server, is_latest(server), standbys)).collect()
}

fn timeline(server: &Standing) -> Option<u32> {
    match server.role {
        Role::Primary { timeline } => Some(timeline),
        _ => None,
    }
}

/// The timeline of the primary that counts. One that does not show its timeline counts if no other one replies: a promoted standby whose
/// looks fail must not lose to the primary that it replaces, which is gone.
fn latest(servers: &[Standing]) -> Option<u32> {
    let replying = servers.iter().filter(|server| server.is_reachable).filter_map(timeline);
    let is_only_unknown = replying.clone().next().is_some() && replying.clone().all(|of| of == UNKNOWN_TIMELINE);
    match is_only_unknown {
        true => Some(UNKNOWN_TIMELINE),
        false => servers.iter().filter_map(timeline).max(),
    }
}

/// It is a primary before the timeline `latest`.
fn is_replaced(server: &Standing, latest: Option<u32>) -> bool {
    timeline(server).is_some_and(|own| own != UNKNOWN_TIMELINE && latest.is_some_and(|latest| own < latest))
}

/// The number of the primary that counts.
pub(crate) fn primary_of(servers: &[Standing]) -> Option<usize> {
    let latest = latest(servers)?;
    let is_latest = |(_, server): &(usize, &Standing)| timeline(server) == Some(latest);
    servers.iter().enumerate().filter(is_latest).max_by_key(|(_, server)| server.is_reachable).map(|(number, _)| number)
}

/// Positions of these two timelines are of one log. A standby that has not followed a promotion may be at a higher position than the new
/// primary, and has none of its writes.
pub(crate) fn is_same_log(standby: u32, primary: u32) -> bool {
    standby == primary || standby == UNKNOWN_TIMELINE || primary == UNKNOWN_TIMELINE
}

/// `is_latest`: no primary is on a later timeline.
fn fitness_of(wanted: TargetSessionAttrs, server: &Standing, is_latest: bool, standbys: Standbys) -> Fitness {
    match (wanted, server.role) {
        (TargetSessionAttrs::Any, _) => Fitness::Fit,
        (TargetSessionAttrs::Primary, Role::Primary { .. }) if is_latest => Fitness::Fit,
        // As libpq, it takes a primary once no server is left that may be a standby.
        (TargetSessionAttrs::PreferStandby, Role::Primary { .. }) if is_latest && standbys != Standbys::Unknown => {
            Fitness::Spare
        }
        (TargetSessionAttrs::PreferStandby, Role::Standby) if server.is_reachable => Fitness::Fit,
        // One that gives no reply is the last resort.
        (TargetSessionAttrs::Standby, Role::Standby) if server.is_reachable || standbys != Standbys::Present => {
            Fitness::Fit
        }
        _ => Fitness::Unfit,
    }
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
    let latest = latest(&standings);
    for (watch, standing) in watches.iter().zip(&standings) {
        watch.is_replaced.store(is_replaced(standing, latest), Relaxed);
    }
    for (number, (watch, fitness)) in watches.iter().zip(judged).enumerate() {
        let byte = match fitness {
            Fitness::Fit => FIT,
            Fitness::Spare => SPARE,
            Fitness::Unfit => 0,
        };
        if watch.fitness.swap(byte, Relaxed) != byte {
            // At one that is only a spare, those that wait choose again: some take no spare.
            upstream.reconsider(number, fitness != Fitness::Fit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Fitness::{Fit, Spare, Unfit};
    use TargetSessionAttrs::{Any, PreferStandby, Primary, Standby};

    const STANDBY: Standing = Standing { role: Role::Standby, is_reachable: true, is_looked_at: true };
    const SILENT: Standing = Standing { is_reachable: false, ..STANDBY };
    const UNKNOWN: Standing = Standing { role: Role::Unknown, is_reachable: false, is_looked_at: false };

    fn primary(timeline: u32) -> Standing {
        Standing { role: Role::Primary { timeline }, is_reachable: true, is_looked_at: true }
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
    fn a_preferred_standby_is_awaited_until_each_server_has_been_looked_at() {
        let silent = Standing { is_looked_at: true, ..UNKNOWN };
        assert_eq!(judge(PreferStandby, &[primary(1), UNKNOWN]), [Unfit, Unfit]);
        assert_eq!(judge(PreferStandby, &[primary(1), silent]), [Spare, Unfit]);
        assert_eq!(judge(PreferStandby, &[primary(1), STANDBY, UNKNOWN]), [Spare, Fit, Unfit]);
    }

    #[test]
    fn a_primary_that_a_promoted_standby_has_replaced_takes_no_sessions() {
        let gone = Standing { is_reachable: false, ..primary(1) };
        assert_eq!(judge(Primary, &[gone, STANDBY]), [Fit, Unfit], "none has replaced it yet");
        assert_eq!(judge(Primary, &[gone, primary(2)]), [Unfit, Fit]);
        assert_eq!(judge(Primary, &[primary(1), primary(2)]), [Unfit, Fit], "it is back, and does not know");
    }

    #[test]
    fn a_primary_is_replaced_by_one_on_a_later_timeline_alone() {
        let of = |servers: &[Standing]| -> Vec<bool> {
            servers.iter().map(|server| is_replaced(server, latest(servers))).collect()
        };
        assert_eq!(of(&[primary(1), primary(2), STANDBY]), [true, false, false]);
        assert_eq!(of(&[primary(1), STANDBY]), [false, false]);
        assert_eq!(of(&[primary(2), primary(UNKNOWN_TIMELINE)]), [false, false], "nothing says so");
    }

    #[test]
    fn a_standby_that_gives_no_reply_is_the_last_resort() {
        assert_eq!(judge(Standby, &[SILENT, STANDBY]), [Unfit, Fit]);
        assert_eq!(judge(Standby, &[SILENT, SILENT]), [Fit, Fit]);
        assert_eq!(judge(PreferStandby, &[primary(1), SILENT]), [Spare, Unfit]);
    }

    #[test]
    fn a_primary_of_an_unknown_timeline_counts_while_no_other_one_replies() {
        let gone = Standing { is_reachable: false, ..primary(1) };
        assert_eq!(judge(Primary, &[gone, primary(UNKNOWN_TIMELINE)]), [Unfit, Fit]);
        assert_eq!(judge(Primary, &[primary(1), primary(UNKNOWN_TIMELINE)]), [Fit, Unfit]);
        assert_eq!(judge(PreferStandby, &[gone, primary(UNKNOWN_TIMELINE)]), [Unfit, Spare]);
    }

    #[test]
    fn a_look_without_a_timeline_leaves_that_of_a_primary() {
        let (watch, at) = (RoleWatch::default(), Time::ZERO);
        let look = |timeline| watch.note(Looked::Primary { timeline, position: None }, at);
        look(None);
        assert_eq!(watch.standing().role, Role::Primary { timeline: UNKNOWN_TIMELINE });
        look(Some(2));
        look(None);
        assert_eq!(watch.standing().role, Role::Primary { timeline: 2 });
        // A standby that is promoted is on another one.
        watch.note(Looked::Standby { timeline: Some(2), replayed: Some(7) }, at);
        watch.note(Looked::Standby { timeline: None, replayed: None }, at);
        assert_eq!((watch.timeline(), watch.replayed()), (2, 7));
        look(None);
        assert_eq!(watch.standing().role, Role::Primary { timeline: UNKNOWN_TIMELINE });
    }

    #[test]
    fn positions_of_a_standby_count_on_the_timeline_of_the_primary_alone() {
        let gone = Standing { is_reachable: false, ..primary(1) };
        assert_eq!(primary_of(&[STANDBY, gone, primary(2)]), Some(2));
        assert_eq!(primary_of(&[gone, primary(UNKNOWN_TIMELINE)]), Some(1));
        assert_eq!(primary_of(&[gone, primary(1)]), Some(1), "of two on one timeline the one that replies");
        assert_eq!(primary_of(&[STANDBY, UNKNOWN]), None);
        assert!(is_same_log(2, 2) && !is_same_log(1, 2) && !is_same_log(2, 1));
        assert!(is_same_log(UNKNOWN_TIMELINE, 2) && is_same_log(2, UNKNOWN_TIMELINE), "as far as it is known");
    }
}
