//! State that the workers of one listener share: who may log in, the databases that have figures, and the figures of the last period.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use weir_base::time::Time;
use weir_postgres_codec::sqlstate;

use crate::console::set::SetRequest;

/// Databases of a listener without an entry of the configuration that have figures of their own. Default 64; those of all further ones
/// are of `other`. Clients choose the names, and every name costs a series of each metric per worker. Those of entries do not count.
const DATABASES_MAX: usize = 64;
/// The figures of all further databases.
const OTHER: &str = "other";
/// The period of averages. Default 60 s, as PgBouncer's `stats_period`.
const PERIOD: Duration = Duration::from_secs(60);

/// Counts of one database, in the order of the columns of SHOW STATS.
pub(crate) type Totals = [u64; 12];
/// Counts of all databases.
pub(crate) type AllTotals = BTreeMap<Arc<str>, Totals>;

/// See above.
#[derive(Default)]
pub struct ListenerShared {
    disabled: Mutex<BTreeSet<Box<[u8]>>>,
    /// The last orders of PAUSE and RESUME. `None`: all databases.
    paused: Mutex<BTreeSet<Option<Box<[u8]>>>>,
    /// Settings that SET has changed since the last reload.
    set: Mutex<BTreeMap<Box<str>, Option<Duration>>>,
    is_closed: AtomicBool,
    labels: Mutex<Labels>,
    periods: Mutex<Periods>,
}

/// Orders of the console for one listener that an upgrade carries to the new process. Pauses are those of upstreams: see
/// [`crate::PausedDatabases`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandingOrders {
    /// Databases that DISABLE has closed, as clients name them.
    pub disabled: Vec<Box<[u8]>>,
    /// Settings that SET has changed, and their values; `None`: no limit.
    pub settings: Vec<(Box<str>, Option<Duration>)>,
}

/// The names under which figures of databases are.
#[derive(Default)]
struct Labels {
    all: BTreeSet<Arc<str>>,
    /// Those that clients have chosen.
    chosen: usize,
}

/// The counts at the ends of the last period.
#[derive(Clone, Default)]
struct Periods {
    older: (Time, AllTotals),
    newer: (Time, AllTotals),
    /// The first period has ended.
    is_whole: bool,
}

impl ListenerShared {
    /// No client of that database logs in from now on.
    pub(crate) fn disable(&self, database: &[u8]) {
        lock(&self.disabled).insert(database.into());
    }

    /// Clients of that database log in again.
    pub(crate) fn enable(&self, database: &[u8]) {
        lock(&self.disabled).remove(database);
    }

    /// See [`ListenerShared::disable`].
    pub(crate) fn is_disabled(&self, database: &[u8]) -> bool {
        lock(&self.disabled).contains(database)
    }

    /// Notes an order of PAUSE or RESUME; `None`: for all databases. RESUME of all ends every pause.
    pub(crate) fn set_paused(&self, database: Option<&[u8]>, is_paused: bool) {
        let mut paused = lock(&self.paused);
        match (database, is_paused) {
            (_, true) => drop(paused.insert(database.map(Into::into))),
            (Some(name), false) => paused.retain(|own| own.as_deref() != Some(name)),
            (None, false) => paused.clear(),
        }
    }

    /// The last order for that database, or for all, is a PAUSE.
    pub(crate) fn is_paused(&self, database: Option<&[u8]>) -> bool {
        lock(&self.paused).iter().any(|own| own.as_deref() == database)
    }

    /// SET has changed a setting; `None`: no limit.
    pub(crate) fn note_set(&self, name: &str, value: Option<Duration>) {
        lock(&self.set).insert(name.into(), value);
    }

    /// The settings of the file hold again.
    pub(crate) fn forget_set(&self) {
        lock(&self.set).clear();
    }

    /// The orders of the console for this listener that hold, for the process after this one.
    #[must_use]
    pub fn standing_orders(&self) -> StandingOrders {
        StandingOrders {
            disabled: lock(&self.disabled).iter().cloned().collect(),
            settings: lock(&self.set).iter().map(|(name, value)| (name.clone(), *value)).collect(),
        }
    }

    /// Goes on with orders of the process before. To be called before the listener is made. Returns the names of the settings that SET
    /// does not change here, or not so far.
    pub fn go_on_with(&self, orders: StandingOrders) -> Vec<Box<str>> {
        lock(&self.disabled).extend(orders.disabled);
        let is_taken =
            |(name, value): &(Box<str>, Option<Duration>)| SetRequest::of_process_before(name, *value).is_some();
        let (taken, refused): (Vec<_>, Vec<_>) = orders.settings.into_iter().partition(is_taken);
        lock(&self.set).extend(taken);
        refused.into_iter().map(|(name, _)| name).collect()
    }

    /// Why no client of that database logs in now: SQLSTATE and text.
    pub(crate) fn refusal(&self, database: &[u8]) -> Option<(&'static str, String)> {
        if self.is_closed() {
            return Some((sqlstate::CANNOT_CONNECT_NOW, "the gateway shuts down".to_owned()));
        }
        let name = String::from_utf8_lossy(database);
        let text = format!("database \"{name}\" is disabled: ENABLE lets clients in");
        self.is_disabled(database).then_some((sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, text))
    }

    /// No client logs in from now on.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// See [`ListenerShared::close`].
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// The name under which the figures of a database are. `is_listed`: the configuration has its name, so clients have not chosen it.
    pub(crate) fn label(&self, database: &str, is_listed: bool) -> Arc<str> {
        let mut labels = lock(&self.labels);
        if let Some(known) = labels.all.get(database) {
            return known.clone();
        }
        let label: Arc<str> = match is_listed || labels.chosen < DATABASES_MAX {
            true => database.into(),
            false => OTHER.into(),
        };
        labels.chosen += usize::from(!is_listed && *label != *OTHER);
        labels.all.insert(label.clone());
        label
    }

    /// All names of [`ListenerShared::label`].
    pub(crate) fn labels(&self) -> Vec<Arc<str>> {
        lock(&self.labels).all.iter().cloned().collect()
    }

    /// Notes the counts at the end of a period; `count` is called if it has ended.
    pub(crate) fn roll(&self, now: Time, count: impl FnOnce() -> AllTotals) {
        let is_over = now.since(lock(&self.periods).newer.0) >= PERIOD;
        if is_over {
            let counts = count();
            let mut periods = lock(&self.periods);
            periods.is_whole = periods.newer.0 > Time::ZERO;
            let newer = std::mem::replace(&mut periods.newer, (now, counts));
            periods.older = newer;
        }
    }

    /// The counts of the last period, and its length. Within the first one: those since its beginning.
    pub(crate) fn last_period(&self, now: Time, count: &AllTotals) -> (AllTotals, Duration) {
        let periods = lock(&self.periods).clone();
        let ((begin, older), (end, newer)) = match periods.is_whole {
            true => (&periods.older, (periods.newer.0, &periods.newer.1)),
            false => (&periods.newer, (now, count)),
        };
        let none = [0; 12];
        let of = |(name, totals): (&Arc<str>, &Totals)| {
            let before = older.get(name).unwrap_or(&none);
            let grown = std::array::from_fn(|place| totals[place].saturating_sub(before[place]));
            (name.clone(), grown)
        };
        (newer.iter().map(of).collect(), end.since(*begin))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(transactions: u64) -> AllTotals {
        let mut totals = [0; 12];
        totals[1] = transactions;
        BTreeMap::from([("shop".into(), totals)])
    }

    #[test]
    fn averages_are_of_the_last_whole_period() {
        let shared = ListenerShared::default();
        let at = |seconds: u64| Time::from_nanos((1_000 + seconds) * 1_000_000_000);
        shared.roll(at(0), AllTotals::new);
        let (counts, length) = shared.last_period(at(10), &totals(50));
        assert_eq!((counts["shop"][1], length), (50, Duration::from_secs(10)), "within the first period");
        shared.roll(at(59), || unreachable!("the period is not over"));
        shared.roll(at(60), || totals(600));
        shared.roll(at(120), || totals(1_800));
        let (counts, length) = shared.last_period(at(150), &totals(9_000));
        assert_eq!((counts["shop"][1], length), (1_200, Duration::from_secs(60)));
    }

    #[test]
    fn names_of_databases_are_bounded() {
        let shared = ListenerShared::default();
        assert_eq!(&*shared.label("early", true), "early");
        for number in 0..DATABASES_MAX {
            let name = format!("d{number}");
            assert_eq!(*shared.label(&name, false), name);
        }
        assert_eq!(&*shared.label("one more", false), OTHER);
        assert_eq!(&*shared.label("d3", false), "d3");
        assert_eq!(&*shared.label("shop", true), "shop", "a name of the configuration has its figures always");
        assert_eq!(&*shared.label("shop", false), "shop");
        assert_eq!(shared.labels().len(), DATABASES_MAX + 3);
    }

    #[test]
    fn resume_of_all_ends_every_pause() {
        let shared = ListenerShared::default();
        shared.set_paused(Some(b"shop"), true);
        shared.set_paused(None, true);
        assert!(shared.is_paused(None) && shared.is_paused(Some(b"shop")) && !shared.is_paused(Some(b"other")));
        shared.set_paused(Some(b"shop"), false);
        assert!(shared.is_paused(None) && !shared.is_paused(Some(b"shop")));
        shared.set_paused(Some(b"shop"), true);
        shared.set_paused(None, false);
        assert!(!shared.is_paused(None) && !shared.is_paused(Some(b"shop")));
    }

    #[test]
    fn a_disabled_database_is_one_by_name() {
        let shared = ListenerShared::default();
        shared.disable(b"shop");
        assert!(shared.is_disabled(b"shop") && !shared.is_disabled(b"other"));
        shared.enable(b"shop");
        assert!(!shared.is_disabled(b"shop"));
    }

    #[test]
    fn the_process_after_goes_on_with_what_is_disabled_and_set() {
        let (old, new) = (ListenerShared::default(), ListenerShared::default());
        old.disable(b"shop");
        old.note_set("query_timeout", None);
        old.note_set("query_wait_timeout", Some(Duration::from_secs(3)));
        let mut orders = old.standing_orders();
        orders.settings.push(("of_another_program".into(), None));
        assert_eq!(new.go_on_with(orders), [Box::<str>::from("of_another_program")]);
        assert!(new.is_disabled(b"shop"));
        assert_eq!(new.standing_orders(), old.standing_orders());
        old.enable(b"shop");
        old.forget_set();
        assert_eq!(old.standing_orders(), StandingOrders::default());
    }
}
