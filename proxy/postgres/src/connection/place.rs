//! The pool that serves the next unit of a client: that of the primary, or that of its standbys.

use std::{cell::RefCell, rc::Rc, time::Duration};

use weir_base::time::{Time, turn};
use weir_postgres_session::{Access, Want, position::may_serve};
use weir_upstream::{SelectionCriteria, pooled::Pool};

use super::life::Life;
use crate::{
    role::{Role, is_same_log, primary_of},
    server::PostgresServer,
    service::PostgresUpstream,
};

/// The standbys of a client.
pub(super) struct Standbys {
    pub(super) pool: Rc<Pool<PostgresServer>>,
    pub(super) upstream: Rc<PostgresUpstream>,
    pub(super) lag_max: Option<Duration>,
    pub(super) seen: Rc<SeenBy>,
    /// When the client had last written, if it has.
    pub(super) wrote_at: Option<Time>,
}

/// Up to which time each standby has what was written at the primary, as one worker has last looked.
#[derive(Default)]
pub(crate) struct SeenBy(RefCell<(u64, Vec<Option<Time>>)>);

impl SeenBy {
    /// Looks again if a look at a server has come since. `writes` are the servers of the primary, `reads` those of the standbys.
    fn update(&self, writes: &PostgresUpstream, reads: &PostgresUpstream) {
        let all = |upstream: &PostgresUpstream| (0..upstream.settings().endpoints.len()).collect::<Vec<_>>();
        let looks = |upstream: &PostgresUpstream| -> u64 {
            (0..upstream.settings().endpoints.len()).map(|number| upstream.watch_ref(number).looks()).sum()
        };
        let stamp = looks(writes) + looks(reads);
        let mut seen = self.0.borrow_mut();
        if seen.0 == stamp && !seen.1.is_empty() {
            return;
        }
        let standings: Vec<_> = all(writes).into_iter().map(|number| writes.watch_ref(number).standing()).collect();
        let primary = primary_of(&standings).map(|number| writes.watch_ref(number));
        let of = |number: usize| {
            let (watch, primary) = (reads.watch_ref(number), primary?);
            let follows = watch.standing().role == Role::Standby && is_same_log(watch.timeline(), primary.timeline());
            primary.positions().seen_by(follows.then(|| watch.replayed())?)
        };
        *seen = (stamp, all(reads).into_iter().map(of).collect());
    }
}

impl Standbys {
    /// The endpoints that are too far behind for a unit, a bit for each. `wrote_at`: what the client has written then must be there.
    fn barred(&self, writes: &PostgresUpstream, wrote_at: Option<Time>) -> u64 {
        if wrote_at.is_none() && self.lag_max.is_none() {
            return 0;
        }
        self.seen.update(writes, &self.upstream);
        let (now, seen) = (turn::now(), self.seen.0.borrow());
        let is_barred = |seen: &Option<Time>| !may_serve(*seen, wrote_at, self.lag_max, now);
        seen.1.iter().enumerate().fold(0, |bits, (number, seen)| bits | u64::from(is_barred(seen)) << number)
    }
}

impl Life<'_> {
    /// The pool for the next unit of the client, and what its endpoint has to be. A choice among shards has its place here: the access is
    /// all that it knows of the unit.
    pub(super) fn place(&self, want: Want) -> (Rc<Pool<PostgresServer>>, SelectionCriteria) {
        let primary = || (self.client.pool.clone(), SelectionCriteria::default());
        let Some(standbys) = &self.client.standbys else { return primary() };
        let (wrote_at, is_optional) = match want.access {
            Access::Write | Access::Neutral => return primary(),
            Access::Read => (standbys.wrote_at, true),
            Access::ReadStandby => (None, true),
            Access::Standby => (None, false),
        };
        let barred = standbys.barred(&self.client.upstream, wrote_at);
        if is_optional && !standbys.upstream.has_fit(barred) {
            return primary();
        }
        // With `prefer-standby` the primary is a spare one.
        let wanted =
            SelectionCriteria { barred, is_optional, bars_spare: !is_optional, ..SelectionCriteria::default() };
        (standbys.pool.clone(), wanted)
    }

    /// The client's server is given up: what it wrote there must be in what it reads next.
    pub(super) fn note_writes(&mut self) {
        let has_written = self.client.session.has_written();
        if let Some(standbys) = self.client.standbys.as_mut().filter(|_| has_written) {
            // Not the time of the turn, which may be earlier than the end of the write.
            standbys.wrote_at = Some(Time::now());
        }
    }

    /// A pool of the client is that of its standbys.
    pub(super) fn is_read_pool(&self, pool: &Rc<Pool<PostgresServer>>) -> bool {
        self.client.standbys.as_ref().is_some_and(|standbys| Rc::ptr_eq(&standbys.pool, pool))
    }

    /// The upstream of a pool of the client.
    pub(super) fn upstream_of(&self, pool: &Rc<Pool<PostgresServer>>) -> &Rc<PostgresUpstream> {
        let standbys = self.client.standbys.as_ref().filter(|standbys| Rc::ptr_eq(&standbys.pool, pool));
        standbys.map_or(&self.client.upstream, |standbys| &standbys.upstream)
    }
}
