//! The server of a client: how it is acquired, and how it goes back.

use std::{
    pin::Pin,
    rc::{Rc, Weak},
};

use weir_base::{
    exchange::LossCause,
    time::{Time, turn},
};
use weir_listener::{Stage, Timing};
use weir_postgres_codec::{
    TransactionStatus,
    backend::{self, ErrorReport, Severity},
    sqlstate,
};
use weir_postgres_session::{Access, Cleanliness, Refusal, ServerState, Want};
use weir_telemetry::access::AccessRecord;
use weir_upstream::{
    Refusal as PoolRefusal, SelectionCriteria,
    pooled::{AcquireError, Condition, Patience, Pool, PooledConnection},
};

use super::{
    identity::{Place, name_of},
    life::Life,
    place::Standbys,
};
use crate::{
    aside, cancel::CancelSlot, metrics::CancelOutcome, route::Routes, server::PostgresServer, service::Service,
};

/// A server on its way.
pub(super) type Acquiring = Pin<Box<dyn Future<Output = Result<PooledConnection<PostgresServer>, AcquireError>>>>;

/// The server that a client holds, or waits for.
#[derive(Default)]
pub(super) struct Lease {
    pub(super) server: Option<PooledConnection<PostgresServer>>,
    pub(super) acquiring: Option<Acquiring>,
    /// The output of the server was congested when the session last looked.
    pub(super) was_congested: bool,
    /// The session gave a server back while it took bytes of its client.
    pub(super) was_released: bool,
    /// When the client wanted a server.
    wanted: Time,
    /// When it got one.
    pub(super) got: Time,
    /// When its transaction began. `None`: it keeps the server, and is between transactions.
    begun: Option<Time>,
    /// Bytes that the client had been sent then.
    appended: u64,
    /// Those that the counter has.
    counted: u64,
    is_logged: bool,
    /// The request of the session that waits.
    want: Want,
    /// The listener has other pools for the client, which moves there when it holds no server.
    is_outdated: bool,
    /// The routes that the client has followed.
    followed: Weak<Routes>,
}

impl Lease {
    /// The client holds a server, or waits for one.
    pub(super) fn is_taken(&self) -> bool {
        self.server.is_some() || self.acquiring.is_some()
    }

    /// The state of the server.
    pub(super) fn state(&self) -> Option<&ServerState> {
        self.server.as_ref().map(PooledConnection::state_ref)
    }
}

impl Life<'_> {
    /// A server that is at hand. `None`: one is on its way.
    pub(super) fn acquire(&mut self, want: Want) -> Option<PooledConnection<PostgresServer>> {
        (self.lease.wanted, self.lease.want) = (turn::now(), want);
        let (pool, mut wanted) = self.place(want);
        if let Some(server) = pool.try_acquire(&mut wanted) {
            return Some(server);
        }
        let notify = self.client.settings.query_wait_notify;
        self.wait_for_server(pool, wanted, notify.map(|notify| self.lease.wanted.saturating_add(notify)));
        None
    }

    fn wait_for_server(&mut self, pool: Rc<Pool<PostgresServer>>, wanted: SelectionCriteria, notify_at: Option<Time>) {
        let (since, entry) = (self.lease.wanted, self.connection.handle.entry().clone());
        match self.is_read_pool(&pool) {
            true => entry.wait_to_read(since),
            false => entry.wait(Some(since)),
        }
        let timeout = self.client.settings.query_wait_timeout;
        // One that moves after a longer wait was kept by a PAUSE, and has its whole time after that.
        let deadline = Some(since.saturating_add(timeout)).filter(|deadline| turn::now() < *deadline);
        let deadline = deadline.unwrap_or_else(|| turn::now().saturating_add(timeout));
        let mut patience = Patience { since, deadline, notify_at };
        let (primary, output) = (self.client.pool.clone(), self.output.clone());
        let note = move || {
            let text = "no server connection available in postgres backend, client being queued";
            let report = ErrorReport::new(Severity::Notice, sqlstate::SUCCESSFUL_COMPLETION, text);
            output.with(|out| backend::notice(out, &report));
        };
        self.lease.acquiring = Some(match wanted.is_optional {
            false => Box::pin(async move { pool.wait(wanted, &mut patience, note).await }),
            // The primary serves what no standby does.
            true => Box::pin(async move {
                match pool.wait(wanted, &mut patience, note.clone()).await {
                    Err(error) if error.refusal == PoolRefusal::Unreachable => {
                        entry.wait(Some(since));
                        primary.acquire(SelectionCriteria::default(), patience, note).await
                    }
                    acquired => acquired,
                }
            }),
        });
    }

    /// A reload may have given the client's database other pools: another upstream, database or login. The client moves there, with its place
    /// in the line if it waits. One that holds a server moves when it has given it back. If the database is gone, the client stays where it
    /// is.
    pub(super) fn follow_upstream(&mut self) {
        let routes = self.connection.service.routes();
        let followed = Rc::downgrade(&routes);
        if self.lease.followed.ptr_eq(&followed) && !self.lease.is_outdated {
            return;
        }
        self.lease.followed = followed;
        let Some(route) = routes.find(&self.client.identity.database) else { return };
        let place = self.client.identity.place(route);
        let has_same_standbys = match (self.client.standbys.as_mut(), place.standbys.as_ref()) {
            (Some(own), Some(now)) => {
                (own.lag_max, own.seen) = (now.lag_max, now.seen.clone());
                Rc::ptr_eq(&own.pool, &now.pool)
            }
            (own, now) => own.is_none() && now.is_none(),
        };
        self.lease.is_outdated = !Rc::ptr_eq(&self.client.pool, &place.pool) || !has_same_standbys;
        if !self.lease.is_outdated || self.lease.server.is_some() {
            return;
        }
        place.show(self.connection.handle.entry());
        let Place { upstream, pool, standbys } = place;
        let wrote_at = self.client.standbys.as_ref().and_then(|standbys| standbys.wrote_at);
        let standbys = standbys.map(|standbys| Standbys { wrote_at, ..standbys });
        *self.connection.upstreams.borrow_mut() = route.upstreams();
        if !Rc::ptr_eq(&self.client.pool, &pool) {
            self.client.feed.follow(&upstream, &pool);
        }
        self.client.session.set_pool(&name_of(&upstream, &pool));
        (self.client.upstream, self.client.pool, self.client.standbys) = (upstream, pool, standbys);
        self.lease.is_outdated = false;
        if self.lease.acquiring.take().is_some() {
            let notify = self.client.settings.query_wait_notify;
            let notify_at = notify.map(|notify| self.lease.wanted.saturating_add(notify));
            let (pool, wanted) = self.place(self.lease.want);
            self.wait_for_server(pool, wanted, notify_at.filter(|at| turn::now() < *at));
        }
    }

    /// The client holds `server` from now on.
    pub(super) fn attach(&mut self, mut server: PooledConnection<PostgresServer>) {
        self.lease.got = turn::now();
        self.lease.begun = Some(self.lease.got);
        self.client.metrics.assignments.inc();
        if self.lease.acquiring.take().is_some() {
            self.client.metrics.wait_time.add(self.lease.got.nanos_since(self.lease.wanted));
        }
        self.connection.handle.entry().hold(server.id(), self.lease.got);
        (self.lease.appended, self.lease.counted) = (self.output.appended(), self.output.appended());
        self.lease.is_logged = self.connection.service.sessions.samples_access();
        server.stream().output.charge_to(Some(self.connection.handle.account().clone()));
        self.lease.server = Some(server);
    }

    /// The client needs its server no longer.
    pub(super) fn release(&mut self, cleanliness: Cleanliness) {
        let Some(server) = self.lease.server.take() else { return };
        self.done(&server, "ok");
        if self.client.session.has_seen_read_only() {
            // The server may be a standby by now.
            server.pool().suspect(server.number());
        }
        give_back(server, cleanliness, &self.client.cancel, &self.connection.service);
        self.follow_if_outdated();
    }

    /// The server is gone.
    pub(super) fn lose(&mut self, server: PooledConnection<PostgresServer>) {
        self.done(&server, "server_lost");
        server.close(LossCause::Closed);
        self.follow_if_outdated();
    }

    #[inline]
    fn follow_if_outdated(&mut self) {
        if self.lease.is_outdated {
            self.follow_upstream();
        }
    }

    /// The client begins or ends to wait for a reply: a transaction may have begun or ended at a server that it keeps.
    #[inline]
    pub(super) fn note_transaction(&mut self, is_busy: bool) {
        let Some(server) = &self.lease.server else { return };
        match self.lease.begun {
            None if is_busy => self.lease.begun = Some(turn::now()),
            Some(begun) if !is_busy && server.state_ref().status() == TransactionStatus::Idle => {
                self.lease.begun = None;
                self.client.metrics.transaction_time.add(turn::now().nanos_since(begun));
            }
            _ => {}
        }
    }

    /// Counts the bytes for the client since the count before, so that the counter moves while a long result is on its way.
    #[inline]
    pub(super) fn count_written(&mut self) {
        let appended = self.output.appended();
        self.client.metrics.written.add(appended - self.lease.counted);
        self.lease.counted = appended;
    }

    /// Records the time that the client had `server`.
    fn done(&mut self, server: &PooledConnection<PostgresServer>, outcome: &'static str) {
        let (service, handle) = (&self.connection.service, &self.connection.handle);
        self.note_writes();
        self.count_written();
        let now = turn::now();
        handle.entry().let_go();
        let Lease { wanted: arrived, got, appended, is_logged, .. } = self.lease;
        let counts = &self.client.metrics;
        if let Some(begun) = self.lease.begun.take() {
            counts.transaction_time.add(now.nanos_since(begun));
        }
        let timing = Timing { arrived, sent: Some(got), replied: now, flushed: now };
        service.metrics.durations.record(&timing, 1, None);
        if service.metrics.stages.samples() {
            service.metrics.stages.record(Stage::LaneWait, arrived, got);
        }
        if is_logged {
            service.sessions.log_access(&AccessRecord {
                listener: service.sessions.name(),
                peer: handle.peer(),
                connection: handle.id(),
                command: "transaction",
                upstream: Some(&self.upstream_of(server.pool()).settings().name),
                duration_nanos: now.nanos_since(arrived),
                upstream_nanos: now.nanos_since(got),
                request_bytes: 0,
                reply_bytes: self.output.appended() - appended,
                outcome,
                http: None,
            });
        }
    }

    /// The refusal of a client that gets no server.
    pub(super) fn refusal(&mut self, error: AcquireError) -> Refusal {
        self.lease.acquiring = None;
        let entry = self.connection.handle.entry();
        let standbys = self.client.standbys.as_ref().filter(|_| entry.waits_to_read());
        let awaited = standbys.map_or(&self.client.pool, |standbys| &standbys.pool);
        entry.wait(None);
        self.connection.service.metrics.shed(error.refusal.name());
        let pool = awaited.key().to_string();
        match error.refusal {
            PoolRefusal::QueueTimeout | PoolRefusal::QueueFull => {
                Refusal::wait_timeout(&pool, awaited.waiting(), turn::now().since(self.lease.wanted))
            }
            PoolRefusal::Unreachable | PoolRefusal::BreakerOpen if self.lease.want.access == Access::Standby => {
                Refusal::no_standby(&pool)
            }
            PoolRefusal::Unreachable | PoolRefusal::BreakerOpen => Refusal::unreachable(&pool),
            PoolRefusal::Greeting => aside::refusal_of(error.words.as_deref(), &pool),
        }
    }

    /// Shows operators why the client keeps its server.
    pub(super) fn show_pin(&mut self) {
        let reasons = self.client.session.pin().reasons;
        if reasons != self.shown_pin {
            let begun = reasons - self.shown_pin;
            self.shown_pin = reasons;
            if let Some(server) = &self.lease.server {
                let settings = self.upstream_of(server.pool()).settings();
                let endpoint = settings.endpoints.get(server.number()).map(ToString::to_string).unwrap_or_default();
                self.connection.service.metrics.pinned([&settings.name, &endpoint], begun);
            }
            let mut details = self.connection.handle.entry().details();
            details.pinned = reasons.names().replace('+', ", ");
            let since = details.pinned_since.unwrap_or_else(turn::now);
            details.pinned_since = (!reasons.is_empty()).then_some(since);
        }
    }

    /// Forwards the cancel requests that have come, if the client waits for a server's reply.
    pub(super) fn forward_cancel(&mut self) {
        let slot = &self.client.cancel;
        let requests = slot.take();
        if requests.is_empty() {
            return;
        }
        let hold = slot.hold(requests);
        let metrics = &self.connection.service.metrics;
        let Some(server) = self.lease.server.as_ref().filter(|server| server.state_ref().runs_request()) else {
            return metrics.cancelled(CancelOutcome::Idle);
        };
        let (number, target) = (server.number(), server.state_ref().cancel_target().cloned());
        let (upstream, service) = (self.upstream_of(server.pool()).clone(), self.connection.service.clone());
        let (slot, id) = (slot.clone(), server.id());
        let underway = service.cancelling.request(server.pool().key().to_string());
        weir_engine::spawn(async move {
            let outcome = match target {
                Some(target) => aside::cancel(&upstream, number, &target, underway).await,
                None => CancelOutcome::Failed,
            };
            service.metrics.cancelled(outcome);
            if outcome == CancelOutcome::Unconfirmed {
                slot.spoil(id);
            }
            drop(hold);
        })
        .detach();
    }

    /// The session is over: its server goes where it can be made clean.
    pub(super) fn leave(&mut self) {
        self.lease.acquiring = None;
        self.connection.handle.entry().wait(None);
        self.note_busy(false);
        self.show_channels(0);
        let slot = self.client.cancel.clone();
        self.connection.service.cancels.leave(&slot);
        // No task looks at them any more.
        drop(slot.hold(slot.take()));
        let Some(mut server) = self.lease.server.take() else { return };
        self.done(&server, "client_gone");
        let (number, state) = (server.number(), server.state());
        // The pool makes its own: what it has to do is in the state.
        drop(self.client.session.on_client_gone(state, None));
        // Without its client a COPY ends by itself: the pool ends its data.
        let runs_query = state.is_busy() && !state.facts(false).is_copying;
        let Some(target) = state.cancel_target().filter(|_| runs_query).cloned() else {
            return give_back(server, Cleanliness::Dirty, &slot, &self.connection.service);
        };
        let (upstream, service) = (self.upstream_of(server.pool()).clone(), self.connection.service.clone());
        let pool = server.pool().key().to_string();
        let (underway, held) = (service.cancelling.request(pool.clone()), service.cancelling.held(pool));
        weir_engine::spawn(async move {
            let outcome = aside::cancel(&upstream, number, &target, underway).await;
            service.metrics.cancelled(outcome);
            drop(held);
            match outcome {
                CancelOutcome::Unconfirmed => server.close(LossCause::Retired),
                _ => give_back(server, Cleanliness::Dirty, &slot, &service),
            }
        })
        .detach();
    }
}

/// Gives a server back as it is left. One whose query is being cancelled waits until that is over, and is closed if that cannot be
/// known: a late signal would end the query of the next client.
fn give_back(
    server: PooledConnection<PostgresServer>,
    cleanliness: Cleanliness,
    slot: &Rc<CancelSlot>,
    service: &Service,
) {
    let condition = match cleanliness {
        Cleanliness::Clean => Condition::Clean,
        Cleanliness::Dirty => Condition::Dirty,
        Cleanliness::Unusable => return server.close(LossCause::Retired),
    };
    let give_back =
        move |server: PooledConnection<PostgresServer>, slot: &CancelSlot| match slot.forget_spoiled(server.id()) {
            true => server.close(LossCause::Retired),
            false => server.give_back(condition),
        };
    if !slot.is_held() {
        return give_back(server, slot);
    }
    let (slot, held) = (slot.clone(), service.cancelling.held(server.pool().key().to_string()));
    weir_engine::spawn(async move {
        slot.released().await;
        drop(held);
        give_back(server, &slot);
    })
    .detach();
}
