//! One PostgreSQL listener on one worker: what its sessions share.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use weir_base::time::turn;
use weir_listener::{
    Arrival, ConnectionFuture, CoreShare, Sessions, is_among,
    login::{Penalties, entropy},
    settings::ListenerSettings,
};
use weir_postgres_session::{WorkerShare, login::LoginPolicy, users::Users};
use weir_sasl::KeyCache;
use weir_upstream::pooled::PooledUpstream;

use crate::{
    cancel::{CancelKeys, CancelMessage},
    cancelling::Cancelling,
    connection,
    console::set::SetRequest,
    inventory::InventoryRequest,
    lookup::Lookups,
    metrics::{CancelOutcome, ListenerMetrics},
    pauses::{self, PauseNotice},
    relay::{PauseOrder, UpgradeRelay},
    route::Routes,
    rules::Judges,
    server::{DERIVED_KEYS_MAX, PostgresServer},
    settings::PostgresListenerSettings,
    shared::ListenerShared,
};

/// An upstream of PostgreSQL on one worker.
pub type PostgresUpstream = PooledUpstream<PostgresServer>;

/// FATAL with SQLSTATE 53300, as PostgreSQL beyond `max_connections`.
const TOO_MANY_CLIENTS: &[u8] = b"E\0\0\0;SFATAL\0VFATAL\0C53300\0Msorry, too many clients already\0\0";

/// Settings, and what follows from them.
struct Made {
    settings: Rc<PostgresListenerSettings>,
    /// Those of the file, without what the console has changed.
    file: Rc<PostgresListenerSettings>,
    routes: Rc<Routes>,
    policy: Arc<LoginPolicy>,
}

impl Made {
    fn new(
        listener: &ListenerSettings,
        settings: PostgresListenerSettings,
        upstreams: Vec<Rc<PostgresUpstream>>,
    ) -> Self {
        let tls = listener.tls.is_some();
        let mock_forms = settings.users.forms();
        let policy =
            LoginPolicy { tls, mock_forms, ..LoginPolicy::new(settings.rules.clone(), entropy::process_secret()) };
        let routes = Rc::new(Routes::new(&settings, upstreams));
        let settings = Rc::new(settings);
        Self { routes, file: settings.clone(), settings, policy: Arc::new(policy) }
    }

    /// A change of the console's.
    fn set(&mut self, request: &SetRequest) {
        let settings = request.apply(&self.settings, &self.file);
        self.routes = Rc::new(Routes::new(&settings, self.routes.upstreams().to_vec()));
        self.settings = Rc::new(settings);
    }

    /// Takes over the changes that SET has made in the process before.
    fn set_as_before(&mut self, shared: &ListenerShared) {
        let changes = shared.standing_orders().settings.into_iter();
        let requests = changes.filter_map(|(name, value)| SetRequest::of_process_before(&name, value));
        requests.for_each(|request| self.set(&request));
    }
}

/// Makes the verifiers of plain passwords one after the other, before logins need them: the time of a first login would show its user.
fn derive(users: &Users) {
    let underived: Vec<_> = users.underived().map(Arc::downgrade).collect();
    if underived.is_empty() {
        return;
    }
    let all = async move {
        for user in underived {
            // A reload has other ones.
            let Some(user) = user.upgrade() else { return };
            let _ = weir_engine::run_blocking(move || user.verifier().is_some()).await;
        }
    };
    weir_engine::spawn(all).detach();
}

/// One listener on one worker.
pub struct Service {
    pub(crate) sessions: Sessions,
    pub(crate) metrics: ListenerMetrics,
    pub(crate) cancels: CancelKeys,
    pub(crate) cancelling: Cancelling,
    /// The share of all workers.
    pub(crate) shared: Arc<ListenerShared>,
    /// The share of all sessions of the worker.
    pub(crate) share: Rc<WorkerShare>,
    /// Keys that passwords of clients have led to.
    pub(crate) keys: RefCell<KeyCache>,
    pub(crate) penalties: Penalties,
    pub(crate) relay: UpgradeRelay,
    pub(crate) judges: Judges,
    /// Users that the server knows.
    pub(crate) lookups: Lookups,
    made: RefCell<Made>,
    /// Servers that others have replaced, as the sessions know.
    replaced: Cell<usize>,
}

impl Service {
    /// A listener with its settings and the upstreams that they name, in the same order.
    pub fn new(
        (core, share, shared, relay): (CoreShare, Rc<WorkerShare>, Arc<ListenerShared>, UpgradeRelay),
        listener: ListenerSettings,
        settings: PostgresListenerSettings,
        upstreams: Vec<Rc<PostgresUpstream>>,
    ) -> Rc<Self> {
        if core.worker == 0 {
            derive(&settings.users);
        }
        let mut made = Made::new(&listener, settings, upstreams);
        made.set_as_before(&shared);
        Rc::new(Self {
            share,
            metrics: ListenerMetrics::new(&core, &listener.name),
            cancels: CancelKeys::new(relay.process(), core.worker),
            relay,
            cancelling: Cancelling::default(),
            shared,
            judges: Judges::default(),
            keys: RefCell::new(KeyCache::new(DERIVED_KEYS_MAX, *entropy::process_bytes())),
            penalties: Penalties::default(),
            lookups: Lookups::default(),
            made: RefCell::new(made),
            replaced: Cell::new(0),
            sessions: Sessions::new(core, listener),
        })
    }

    /// New settings: upstreams and rules about statements for all clients, the others for those that log in from now on.
    pub fn update(
        &self,
        listener: ListenerSettings,
        mut settings: PostgresListenerSettings,
        upstreams: Vec<Rc<PostgresUpstream>>,
    ) {
        let rules = self.settings().statement_rules.clone();
        // Rules that stay as they are keep their verdicts, and no client is judged by others.
        if rules == settings.statement_rules {
            settings.statement_rules = rules;
        } else {
            self.judges.forget();
        }
        settings.users.adopt(&self.settings().users);
        if self.sessions.core().worker == 0 {
            derive(&settings.users);
            self.shared.forget_set();
        }
        let before = self.routes();
        *self.made.borrow_mut() = Made::new(&listener, settings, upstreams);
        pauses::keep(&before, &self.routes());
        self.lookups.clear();
        self.sessions.update(listener);
        self.sessions.wake_all();
    }

    pub(crate) fn settings(&self) -> Rc<PostgresListenerSettings> {
        self.made.borrow().settings.clone()
    }

    pub(crate) fn policy(&self) -> Arc<LoginPolicy> {
        self.made.borrow().policy.clone()
    }

    /// The upstream of the listener itself.
    pub(crate) fn upstream(&self) -> Rc<PostgresUpstream> {
        self.made.borrow().routes.upstreams()[0].clone()
    }

    pub(crate) fn routes(&self) -> Rc<Routes> {
        self.made.borrow().routes.clone()
    }

    /// Sends a cancel request to the worker or the process that owns its client, and waits until it is over.
    pub(crate) async fn cancel(&self, pid: u32, secret: &[u8]) {
        let (core, name) = (self.sessions.core(), self.sessions.name());
        let post = |worker, message: CancelMessage| match worker == core.worker {
            true => {
                self.deliver_cancel(&message);
                true
            }
            false => (core.post)(worker, name, Box::new(message)),
        };
        if !self.cancels.route((pid, secret), (&self.relay, name), post).await {
            self.metrics.cancelled(CancelOutcome::Unknown);
        }
    }

    /// Wakes the sessions when another server has replaced one of theirs: they may keep it without a word.
    fn note_replaced(&self) {
        let replaced = |upstream: &Rc<PostgresUpstream>| {
            (0..upstream.settings().endpoints.len()).filter(|number| upstream.watch_ref(*number).is_replaced()).count()
        };
        let replaced: usize = self.routes().upstreams().iter().map(replaced).sum();
        if self.replaced.replace(replaced) < replaced {
            self.sessions.wake_all();
        }
    }

    fn deliver_cancel(&self, message: &CancelMessage) {
        if !self.cancels.deliver(message) {
            self.metrics.cancelled(CancelOutcome::Unknown);
        }
    }
}

impl weir_listener::Service for Service {
    fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    fn serve(self: Rc<Self>, arrival: Arrival) -> ConnectionFuture {
        connection::serve(self, arrival)
    }

    fn refusal(&self) -> &'static [u8] {
        TOO_MANY_CLIENTS
    }

    fn starts_tls(&self) -> bool {
        true
    }

    fn uses(&self, upstream: &dyn Any) -> bool {
        is_among(upstream, self.routes().upstreams()) || connection::uses(&self.sessions, upstream)
    }

    fn deliver(&self, message: &dyn Any) {
        if let Some(message) = message.downcast_ref::<CancelMessage>() {
            self.deliver_cancel(message);
        } else if let Some(request) = message.downcast_ref::<InventoryRequest>() {
            request.report(self);
        } else if let Some(request) = message.downcast_ref::<SetRequest>() {
            self.made.borrow_mut().set(request);
        } else if let Some(notice) = message.downcast_ref::<PauseNotice>() {
            notice.follow(self);
        } else if let Some(order) = message.downcast_ref::<PauseOrder>() {
            order.carry_out(self);
        }
    }

    fn tick(&self) {
        self.note_replaced();
        if self.sessions.core().worker == 0 {
            self.shared.roll(turn::now(), || self.totals());
            self.metrics.paused.set(pauses::count(&self.routes()) as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_postgres_codec::{backend::ErrorFields, frame};

    use super::*;

    #[test]
    fn the_refusal_is_a_whole_error_message() {
        let head = frame::head(TOO_MANY_CLIENTS).expect("a length").expect("a head");
        assert_eq!((head.tag, head.whole()), (b'E', TOO_MANY_CLIENTS.len()));
        let fields = ErrorFields::read(&TOO_MANY_CLIENTS[frame::HEAD_BYTES..]).expect("fields");
        assert_eq!(fields.sqlstate(), Some("53300"));
        assert_eq!(fields.message(), Some(&b"sorry, too many clients already"[..]));
    }
}
