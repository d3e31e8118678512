//! State that the workers of one listener share: cursors and transactions, the server that it presents, and names of figures.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, Once, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use weir_listener::login::entropy;
use weir_mongodb_session::{
    face::{Face, Presentation, TopologyVersion},
    pins::{PinLimits, Pins, ServerId},
};

use crate::{
    settings::{FaceChoice, MongodbListenerSettings},
    topology::Promise,
};

/// Databases of a listener that have figures of their own. Default 64; those of all further ones are of `other`. Clients choose the
/// names, and every name costs a series of each metric per worker.
const DATABASES_MAX: usize = 64;
/// The figures of all further databases.
const OTHER: &str = "other";

/// See above.
pub struct ListenerShared {
    /// Those of clients that see a mongos. A plain command does not come here: only getMore, killCursors, transactions, and replies with
    /// a cursor take the lock, for well under a microsecond.
    pins: Mutex<Pins>,
    /// An owner has as many cursors as it may have.
    has_full_owner: AtomicBool,
    /// They are beside those of the other listeners.
    entered: Once,
    presented: Mutex<Presented>,
    /// Grows with each change of the presentation.
    version: AtomicU64,
    /// See [`ListenerShared::note_state_change`]. The next look at the presentation takes it.
    has_state_changed: AtomicBool,
    labels: Mutex<BTreeSet<Arc<str>>>,
}

/// The server that the listener presents.
struct Presented {
    /// Random: this run of the listener, and its service in load-balanced mode.
    run: [u8; 12],
    /// `None`: no server has been found since the start.
    presentation: Option<Arc<Presentation>>,
    servers: Vec<ServerId>,
}

impl Default for ListenerShared {
    fn default() -> Self {
        let mut run = [0; 12];
        // Without randomness two runs may look alike to a monitor, which then learns of a change with its next poll.
        entropy::fill(&mut run);
        Self {
            pins: Mutex::new(Pins::new(PinLimits::SHARED)),
            has_full_owner: AtomicBool::new(false),
            entered: Once::new(),
            presented: Mutex::new(Presented { run, presentation: None, servers: Vec::new() }),
            version: AtomicU64::new(0),
            has_state_changed: AtomicBool::new(false),
            labels: Mutex::default(),
        }
    }
}

impl ListenerShared {
    /// The first worker puts the pins beside those of the other listeners of the process. Call it before there is a client.
    pub(crate) fn enter(&self, beside: impl FnOnce(PinLimits) -> Pins) {
        self.entered.call_once(|| *lock(&self.pins) = beside(PinLimits::SHARED));
    }

    /// Works on the cursors and transactions.
    pub(crate) fn with_pins<R>(&self, act: impl FnOnce(&mut Pins) -> R) -> R {
        let mut pins = lock(&self.pins);
        let result = act(&mut pins);
        self.has_full_owner.store(pins.has_full_owner(), Relaxed);
        result
    }

    /// See [`SharedPins::has_full_owner`](weir_mongodb_session::io::SharedPins::has_full_owner).
    #[inline]
    pub(crate) fn has_full_owner(&self) -> bool {
        self.has_full_owner.load(Relaxed)
    }

    /// A number that grows with each change of the presentation.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    /// The server that the listener presents; `None`: no server has been found yet.
    pub(crate) fn presentation(&self) -> Option<Arc<Presentation>> {
        lock(&self.presented).presentation.clone()
    }

    /// Presents the promise of the servers. While none is of use, clients see the promise of before. A drain is another service in
    /// load-balanced mode, whose drivers clear their pools then.
    pub(crate) fn present(&self, promise: Option<&Promise>, settings: &MongodbListenerSettings, is_draining: bool) {
        let mut presented = lock(&self.presented);
        let before = presented.presentation.clone();
        let known = before.as_deref().map(|before| Promise {
            wire: before.wire,
            session_timeout_minutes: before.session_timeout_minutes,
            is_standalone: before.face == Face::Standalone,
        });
        let Some(promise) = promise.cloned().or(known) else { return };
        let face = match settings.face {
            FaceChoice::Auto if promise.is_standalone => Face::Standalone,
            FaceChoice::Standalone => Face::Standalone,
            FaceChoice::Auto | FaceChoice::Mongos => Face::Mongos,
        };
        let mut service_id = presented.run;
        service_id[11] ^= u8::from(is_draining);
        let counter = before.as_deref().and_then(|before| before.topology).map_or(0, |topology| topology.counter);
        let topology = |counter| TopologyVersion { process_id: presented.run, counter };
        let mut now = Presentation {
            face,
            service_id,
            wire: promise.wire,
            compressors: settings.compressors.clone(),
            session_timeout_minutes: promise.session_timeout_minutes,
            topology: settings.streams_hello.then(|| topology(counter)),
        };
        let has_state_changed = self.has_state_changed.swap(false, Relaxed) && settings.streams_hello;
        if before.as_deref() == Some(&now) && !has_state_changed {
            return;
        }
        if settings.streams_hello {
            now.topology = Some(topology(counter + 1));
        }
        presented.presentation = Some(Arc::new(now));
        self.version.fetch_add(1, Relaxed);
    }

    /// A client has got an error by which its driver takes the server for another one. Its monitor gets a reply at once, and the driver
    /// tries again: it would wait for the next reply of the stream otherwise.
    pub(crate) fn note_state_change(&self) {
        self.has_state_changed.store(true, Relaxed);
    }

    /// The servers of now: cursors and transactions at others are gone with them.
    pub(crate) fn note_servers(&self, servers: Vec<ServerId>) {
        let mut presented = lock(&self.presented);
        if presented.servers == servers {
            return;
        }
        let before = std::mem::replace(&mut presented.servers, servers);
        let lost: Vec<_> = before.into_iter().filter(|server| !presented.servers.contains(server)).collect();
        drop(presented);
        self.with_pins(|pins| lost.into_iter().for_each(|server| pins.on_server_lost(server)));
    }

    /// The listener has left these servers, which are there still: [`ListenerShared::note_servers`] takes none of them for lost.
    pub(crate) fn leave_servers(&self, left: &[ServerId]) {
        lock(&self.presented).servers.retain(|server| !left.contains(server));
    }

    /// The name under which the figures of a database are.
    pub(crate) fn label(&self, database: &str) -> Arc<str> {
        let mut labels = lock(&self.labels);
        if let Some(known) = labels.get(database) {
            return known.clone();
        }
        if labels.len() >= DATABASES_MAX {
            return OTHER.into();
        }
        let label: Arc<str> = database.into();
        labels.insert(label.clone());
        label
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use weir_base::time::Time;
    use weir_mongodb_session::{
        face::WireVersions,
        pins::{SessionKey, TransactionRoute},
        users::{Identity, Owner},
    };

    use super::*;
    use crate::upstream::ProcessShare;

    /// Two listeners of one process may lead to one server with one login.
    #[test]
    fn m20_a_transaction_of_another_listeners_user_is_out_of_reach() {
        let (process, one, other) = (ProcessShare::default(), ListenerShared::default(), ListenerShared::default());
        let owner = |name: &str| -> Owner { Some(Arc::new(Identity::new(b"admin", name.as_bytes()))) };
        let key = |name: &str| SessionKey { owner: owner(name), session: [7; 16] };
        for shared in [&one, &other, &one] {
            shared.enter(|limits| process.pins_beside(limits));
        }
        one.with_pins(|pins| pins.begin_transaction(key("ann"), 1, ServerId(3), Time::ZERO));
        one.enter(|limits| process.pins_beside(limits));
        let route = |shared: &ListenerShared, name: &str| shared.with_pins(|pins| pins.transaction(&key(name), 1));
        assert_eq!(route(&one, "ann"), TransactionRoute::Server(ServerId(3)), "the first call counts");
        assert_eq!(route(&other, "ben"), TransactionRoute::Foreign);
        assert_eq!(route(&other, "ann"), TransactionRoute::Unknown);
    }

    /// Clients of several workers have cursors there until each has heard of the move, and all of them are given back.
    #[test]
    fn a_server_that_its_listener_has_left_is_not_lost() {
        let (shared, key) = (ListenerShared::default(), SessionKey { owner: None, session: [7; 16] });
        let route = || shared.with_pins(|pins| pins.transaction(&key, 1));
        shared.note_servers(vec![ServerId(3)]);
        shared.with_pins(|pins| pins.begin_transaction(key.clone(), 1, ServerId(3), Time::ZERO));
        shared.leave_servers(&[ServerId(3)]);
        shared.note_servers(vec![ServerId(4)]);
        assert_eq!(route(), TransactionRoute::Server(ServerId(3)));
        assert_eq!(shared.with_pins(|pins| pins.take_server(ServerId(3))).len(), 1);
        shared.with_pins(|pins| pins.begin_transaction(key.clone(), 1, ServerId(4), Time::ZERO));
        shared.note_servers(vec![ServerId(5)]);
        assert_eq!(route(), TransactionRoute::Lost);
    }

    fn promise(max: i32) -> Promise {
        Promise { wire: WireVersions { min: 0, max }, session_timeout_minutes: Some(30), is_standalone: false }
    }

    #[test]
    fn each_change_of_what_is_presented_has_a_higher_version() {
        let (shared, settings) = (ListenerShared::default(), MongodbListenerSettings::default());
        shared.present(None, &settings, false);
        assert!(shared.presentation().is_none() && shared.version() == 0);
        let counter = || shared.presentation().unwrap().topology.unwrap().counter;
        shared.present(Some(&promise(21)), &settings, false);
        shared.present(Some(&promise(21)), &settings, false);
        assert_eq!((shared.version(), counter()), (1, 1));
        shared.present(None, &settings, false);
        assert_eq!(shared.version(), 1, "servers that are gone change nothing");
        shared.present(Some(&promise(17)), &settings, false);
        assert_eq!((shared.version(), counter(), shared.presentation().unwrap().wire.max), (2, 2, 17));
    }

    #[test]
    fn a_drain_is_another_service() {
        let (shared, settings) = (ListenerShared::default(), MongodbListenerSettings::default());
        shared.present(Some(&promise(21)), &settings, false);
        let before = shared.presentation().unwrap();
        shared.present(Some(&promise(21)), &settings, true);
        let now = shared.presentation().unwrap();
        assert_ne!(before.service_id, now.service_id);
        assert_eq!(now.topology.unwrap().process_id, before.topology.unwrap().process_id);
    }

    #[test]
    fn a_lone_standalone_server_is_shown_as_one() {
        let shared = ListenerShared::default();
        let of = |face| MongodbListenerSettings { face, ..MongodbListenerSettings::default() };
        let standalone = Promise { is_standalone: true, ..promise(21) };
        for (choice, face) in [
            (FaceChoice::Auto, Face::Standalone),
            (FaceChoice::Mongos, Face::Mongos),
            (FaceChoice::Standalone, Face::Standalone),
        ] {
            shared.present(Some(&standalone), &of(choice), false);
            assert_eq!(shared.presentation().unwrap().face, face);
        }
    }

    #[test]
    fn names_of_databases_are_bounded() {
        let shared = ListenerShared::default();
        for number in 0..DATABASES_MAX {
            let name = format!("d{number}");
            assert_eq!(*shared.label(&name), name);
        }
        assert_eq!((&*shared.label("one more"), &*shared.label("d3")), (OTHER, "d3"));
    }
}
