//! One MongoDB listener on one worker, which its sessions share.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use weir_base::time::{Time, turn};
use weir_listener::{
    Arrival, ConnectionFuture, CoreShare, Drain, Sessions,
    login::{Penalties, entropy},
    settings::ListenerSettings,
};
use weir_mongodb_session::{
    face::Presentation,
    login::{LoginPolicy, Methods},
    pins::Cleanup,
};
use weir_sasl::{KeyCache, Mechanism};

use crate::{
    cleanup::{self, Cleaner},
    connection,
    metrics::ListenerMetrics,
    settings::{Auth, MongodbListenerSettings},
    shared::ListenerShared,
    upstream::MongodbUpstream,
    users::Users,
};

/// Keys of passwords in clear text that are remembered. Default 1,024.
const DERIVED_KEYS_MAX: usize = 1_024;
/// The time between two looks for cursors and transactions whose time is over. Default 5 s: it looks at each of them.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(5);

/// Settings, and the values that are made of them.
struct Made {
    settings: Rc<MongodbListenerSettings>,
    policy: Arc<LoginPolicy>,
    upstream: Rc<MongodbUpstream>,
}

impl Made {
    fn new(settings: MongodbListenerSettings, upstream: Rc<MongodbUpstream>) -> Self {
        let policy = Arc::new(login_policy(&settings));
        Self { settings: Rc::new(settings), policy, upstream }
    }
}

const fn method(mechanism: Mechanism) -> Methods {
    match mechanism.unbound() {
        Mechanism::ScramSha1 => Methods::SCRAM_SHA_1,
        _ => Methods::SCRAM_SHA_256,
    }
}

fn login_policy(settings: &MongodbListenerSettings) -> LoginPolicy {
    let methods = match settings.auth {
        Auth::None => Methods::default(),
        Auth::Scram => settings.mechanisms.iter().fold(Methods::default(), |all, one| all.and(method(*one))),
        Auth::X509 => Methods::X509,
        Auth::Plain => Methods::PLAIN,
        Auth::Passthrough => Methods::RELAYED,
    };
    let bytes = |text: &String| Box::from(text.as_bytes());
    LoginPolicy {
        methods,
        mock_secret: entropy::process_secret(),
        failures_max: settings.login_failures_max.max(1),
        subjects: settings.subjects.as_ref().map(|subjects| subjects.iter().map(bytes).collect()),
    }
}

/// Makes the verifiers of passwords one after the other, before logins need them: the time of a first login would show its user.
fn derive(users: &Users) {
    let unmade: Vec<_> = users.unmade().map(Arc::downgrade).collect();
    if unmade.is_empty() {
        return;
    }
    let all = async move {
        for user in unmade {
            // A reload has other ones.
            let Some(user) = user.upgrade() else { return };
            let _ = weir_engine::run_blocking(move || drop(user.user())).await;
        }
    };
    weir_engine::spawn(all).detach();
}

/// One listener on one worker.
pub struct Service {
    pub(crate) sessions: Sessions,
    pub(crate) metrics: ListenerMetrics,
    /// The share of all workers.
    pub(crate) shared: Arc<ListenerShared>,
    /// Keys that passwords of clients have led to.
    pub(crate) keys: RefCell<KeyCache>,
    pub(crate) penalties: Penalties,
    pub(crate) cleaner: Cleaner,
    made: RefCell<Made>,
    /// The server that clients see, and its version.
    presented: RefCell<(u64, Option<Arc<Presentation>>)>,
    /// When cursors and transactions are looked at next.
    expiry: Cell<Time>,
    me: Weak<Self>,
}

impl Service {
    /// A listener with its settings and its upstream.
    pub fn new(
        (core, shared): (CoreShare, Arc<ListenerShared>),
        listener: ListenerSettings,
        settings: MongodbListenerSettings,
        upstream: Rc<MongodbUpstream>,
    ) -> Rc<Self> {
        shared.enter(|limits| upstream.pins_of_process(limits));
        if core.worker == 0 {
            derive(&settings.users);
            shared.with_pins(|pins| pins.set_limits(settings.shared_pins));
        }
        Rc::new_cyclic(|me| Self {
            metrics: ListenerMetrics::new(&core, &listener.name),
            keys: RefCell::new(KeyCache::new(DERIVED_KEYS_MAX, *entropy::process_bytes())),
            penalties: Penalties::default(),
            cleaner: Cleaner::default(),
            made: RefCell::new(Made::new(settings, upstream)),
            presented: RefCell::new((0, shared.presentation())),
            expiry: Cell::new(Time::ZERO),
            shared,
            sessions: Sessions::new(core, listener),
            me: me.clone(),
        })
    }

    /// New settings: upstream and rules for all clients, the others for those that connect from now on.
    pub fn update(&self, listener: ListenerSettings, settings: MongodbListenerSettings, upstream: Rc<MongodbUpstream>) {
        settings.users.adopt(&self.settings().users);
        if self.sessions.core().worker == 0 {
            derive(&settings.users);
            self.shared.with_pins(|pins| pins.set_limits(settings.shared_pins));
        }
        let before = self.upstream();
        *self.made.borrow_mut() = Made::new(settings, upstream);
        // On each worker: clients of one that has not heard of it yet open further ones.
        self.leave(&before);
        self.sessions.update(listener);
        self.sessions.wake_all();
    }

    /// The listener may have left servers of this upstream: the cursors and transactions of its clients there are given back. Call it again
    /// behind each exchange at that upstream. Clients with logins of their own at the server stay there, so their pins stay too.
    pub(crate) fn leave(&self, before: &Rc<MongodbUpstream>) {
        let left = before.left_for(&self.upstream());
        if left.is_empty() || self.settings().auth == Auth::Passthrough {
            return;
        }
        self.shared.leave_servers(&left);
        let cleanups: Vec<_> =
            self.shared.with_pins(|pins| left.into_iter().flat_map(|server| pins.take_server(server)).collect());
        self.clean(before, cleanups);
    }

    pub(crate) fn settings(&self) -> Rc<MongodbListenerSettings> {
        self.made.borrow().settings.clone()
    }

    pub(crate) fn policy(&self) -> Arc<LoginPolicy> {
        self.made.borrow().policy.clone()
    }

    pub(crate) fn upstream(&self) -> Rc<MongodbUpstream> {
        self.made.borrow().upstream.clone()
    }

    /// The server that clients see now; `None`: no server has been found since the start.
    pub(crate) fn presentation(&self) -> Option<Arc<Presentation>> {
        self.presented.borrow().1.clone()
    }

    /// Sends commands for cursors and transactions that have lost their client.
    pub(crate) fn clean(&self, upstream: &Rc<MongodbUpstream>, cleanups: Vec<Cleanup>) {
        // Without passwords the gateway has no login of its own that could send them.
        let is_possible = self.settings().auth != Auth::Passthrough;
        if let Some(me) = self.me.upgrade().filter(|_| is_possible && !cleanups.is_empty()) {
            cleanup::clean(&me, upstream, cleanups);
        }
    }

    /// The work that one worker does for all.
    fn lead(&self) {
        let (upstream, settings) = (self.upstream(), self.settings());
        let is_draining = self.sessions.drain_state() != Drain::Off;
        let topology = upstream.topology();
        self.shared.present(topology.promise().as_ref(), &settings, is_draining);
        self.shared.note_servers(upstream.server_ids());
        let now = turn::now();
        if now < self.expiry.get() {
            return;
        }
        self.expiry.set(now.saturating_add(EXPIRY_INTERVAL));
        let (cleanups, (cursors, transactions)) = self.shared.with_pins(|pins| (pins.expire(now), pins.len()));
        self.metrics.cursors.set(cursors as i64);
        self.metrics.transactions.set(transactions as i64);
        self.clean(&upstream, cleanups);
    }

    /// Lets clients know of another presentation.
    fn follow(&self) {
        let version = self.shared.version();
        if self.presented.borrow().0 == version {
            return;
        }
        *self.presented.borrow_mut() = (version, self.shared.presentation());
        self.sessions.wake_all();
    }
}

/// The reply of a listener that takes no more connections has no request to answer: it closes without a word, as a server does.
const TOO_MANY_CLIENTS: &[u8] = b"";

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

    fn uses(&self, upstream: &dyn Any) -> bool {
        let is_own = |own: &MongodbUpstream| upstream.downcast_ref().is_some_and(|other| std::ptr::eq(own, other));
        is_own(&self.upstream()) || connection::uses(&self.sessions, upstream)
    }

    fn tick(&self) {
        // Members of a set that are new.
        drop(self.upstream().servers());
        if self.sessions.core().worker == 0 {
            self.lead();
        }
        self.follow();
    }
}
