//! How near each listener is to its knee: the load that is offered, and what follows from it.
//!
//! All of it happens on the watch thread, from a counter that the workers keep anyway; a gateway without a knee pays nothing.
//! Shedding must happen request by request, so the workers do it themselves (`weir_base::rate`).

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use weir_admin::status::{self, Check, KneeStatus};
use weir_base::time::Time;
use weir_config::{Knee, KneeAction, Snapshot};
use weir_telemetry::{Registry, catalog};

use super::threshold::{Crossing, Threshold};

/// The interval over which the load is reported. Default 2 s: eight looks, so that one late look or one burst is no load.
const WINDOW: Duration = Duration::from_secs(2);
/// After less than this nothing is reported: the first quarter of a second of a process is not its load.
const WINDOW_MIN: Duration = Duration::from_secs(1);
/// Current load of one listener.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Requests per second; `None` in the first second.
    pub offered: Option<f64>,
    /// It is, or was within [`HOLD`](super::threshold::HOLD), near `knee_warn`.
    pub is_warned: bool,
    /// It is, or was within [`HOLD`](super::threshold::HOLD), near the knee.
    pub is_at_knee: bool,
}

/// The loads of the listeners that have a knee.
pub type Loads = BTreeMap<Arc<str>, Load>;

/// Requests per second from a total that is looked at now and then.
#[derive(Default)]
struct Offered(VecDeque<(Time, u64)>);

impl Offered {
    fn look(&mut self, now: Time, total: u64) -> Option<f64> {
        if self.0.back().is_some_and(|(_, last)| total < *last) {
            // The listener was removed and came back: another count.
            self.0.clear();
        }
        // The oldest look that is kept is the youngest that is at least a window ago.
        while self.0.get(1).is_some_and(|(at, _)| now.since(*at) >= WINDOW) {
            self.0.pop_front();
        }
        self.0.push_back((now, total));
        let (begin, before) = *self.0.front()?;
        let span = now.since(begin);
        (span >= WINDOW_MIN).then(|| (total - before) as f64 / span.as_secs_f64())
    }
}

/// One listener.
#[derive(Default)]
struct ListenerWatch {
    offered: Offered,
    warn: Threshold,
    knee: Threshold,
}

impl ListenerWatch {
    fn look(&mut self, name: &str, knee: &Knee, total: u64, now: Time) -> Load {
        let offered = self.offered.look(now, total);
        if let Some(offered) = offered {
            let load = offered / knee.requests_per_second;
            if let Some(crossed) = self.warn.look(now, load, knee.warn_ratio) {
                log_crossing(
                    name,
                    knee,
                    offered,
                    crossed,
                    ("load is near the knee", "load is no longer near the knee"),
                );
            }
            if let Some(crossed) = self.knee.look(now, load, 1.0) {
                log_crossing(name, knee, offered, crossed, ("load is at the knee", "load is below the knee again"));
            }
        }
        Load { offered, is_warned: self.warn.is_over(), is_at_knee: self.knee.is_over() }
    }
}

fn log_crossing(name: &str, knee: &Knee, offered: f64, crossed: Crossing, (up, down): (&str, &str)) {
    let (rate, percent) = (offered.round(), percent(offered / knee.requests_per_second));
    let (most, action) = (knee.requests_per_second, knee.action.name());
    match crossed {
        Crossing::Up => tracing::warn!(listener = name, offered = rate, knee = most, percent, action, "{up}"),
        Crossing::Down => tracing::info!(listener = name, offered = rate, knee = most, percent, action, "{down}"),
    }
}

fn percent(share: f64) -> f64 {
    (share * 100.0).round()
}

/// Looks at the load of all listeners that have a knee.
#[derive(Default)]
pub struct KneeWatch(HashMap<Arc<str>, ListenerWatch>);

impl KneeWatch {
    /// Publishes the metrics; what is known now.
    pub fn look(&mut self, registry: &Registry, snapshot: &Snapshot, now: Time) -> Loads {
        self.forget(registry, snapshot);
        let mut loads = Loads::new();
        for listener in &snapshot.listeners {
            let Some(knee) = &listener.knee else { continue };
            let name = &listener.settings.name;
            let total = registry.sum(&catalog::REQUESTS_TOTAL, "listener", name).unwrap_or(0);
            let load = self.0.entry(name.clone()).or_default().look(name, knee, total, now);
            publish(registry, name, knee, load);
            loads.insert(name.clone(), load);
        }
        loads
    }

    /// A knee that a reload took away leaves no figure behind.
    fn forget(&mut self, registry: &Registry, snapshot: &Snapshot) {
        self.0.retain(|name, _| {
            let stays = snapshot.listener(name).is_some_and(|listener| listener.knee.is_some());
            if !stays {
                for family in [&catalog::LISTENER_OFFERED, &catalog::LISTENER_KNEE, &catalog::LISTENER_KNEE_LOAD] {
                    registry.retire_series(family, &[name]);
                }
            }
            stays
        });
    }
}

fn publish(registry: &Registry, name: &str, knee: &Knee, load: Load) {
    let shared = registry.shared();
    shared.gauge(&catalog::LISTENER_KNEE, &[name]).set(knee.requests_per_second.round() as i64);
    if let Some(offered) = load.offered {
        shared.gauge(&catalog::LISTENER_OFFERED, &[name]).set(offered.round() as i64);
        let load = offered / knee.requests_per_second;
        shared.gauge(&catalog::LISTENER_KNEE_LOAD, &[name]).set((load * 1e6).round() as i64);
    }
}

/// Readiness check of a listener with a knee.
pub fn check(name: &str, knee: &Knee, load: Load) -> Check {
    let passes = knee.action != KneeAction::Unready || !load.is_at_knee;
    let most = knee.requests_per_second;
    let detail = match load.offered {
        Some(offered) => {
            format!(
                "listener {name}: {offered:.0} req/s, {:.0} % of its knee of {most:.0} req/s",
                offered / most * 100.0
            )
        }
        None => format!("listener {name}: load not known yet, its knee is {most:.0} req/s"),
    };
    Check::new(format!("knee_{name}"), passes, detail)
}

/// The knee as the API shows it.
pub fn status(knee: &Knee, load: Load) -> KneeStatus {
    KneeStatus {
        requests_per_second: knee.requests_per_second,
        offered_requests_per_second: load.offered,
        load_ratio: load.offered.map(|offered| offered / knee.requests_per_second),
        warn_ratio: knee.warn_ratio,
        warned: load.is_warned,
        reached: load.is_at_knee,
        action: match knee.action {
            KneeAction::Observe => status::KneeAction::Observe,
            KneeAction::Unready => status::KneeAction::Unready,
            KneeAction::Shed => status::KneeAction::Shed,
        },
        file: knee.file.display().to_string(),
        run_id: knee.run_id.clone(),
        measured_at: knee.measured_at,
        caveats: knee.caveats.clone(),
    }
}

#[cfg(test)]
mod tests {
    use weir_admin::status::Verdict;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn knee(action: KneeAction) -> Knee {
        Knee {
            requests_per_second: 200.0,
            warn_ratio: 0.8,
            action,
            file: "knee.json".into(),
            run_id: "r1".to_owned(),
            measured_at: 1,
            caveats: Vec::new(),
        }
    }

    /// Looks every 250 ms at a load of so many requests per second for so many looks; the last.
    fn loaded(watched: &mut ListenerWatch, clock: &mut (u64, u64), rate: u64, looks: u64) -> Load {
        let mut last = Load::default();
        for _ in 0..looks {
            *clock = (clock.0 + 250, clock.1 + rate / 4);
            last = watched.look("cache", &knee(KneeAction::Unready), clock.1, at(clock.0));
        }
        last
    }

    #[test]
    fn the_load_is_the_mean_of_the_last_two_seconds() {
        let mut offered = Offered::default();
        let mut total = 1_000_000;
        let mut told = Vec::new();
        for look in 0..40 {
            total += if look < 20 { 50 } else { 0 };
            told.push(offered.look(at(5_000 + look * 250), total));
        }
        assert_eq!(told[..4], [None; 4], "less than a second tells nothing");
        assert!(told[4..20].iter().all(|rate| *rate == Some(200.0)), "{told:?}");
        assert_eq!((told[23], told[27]), (Some(100.0), Some(0.0)), "{told:?}");
        assert!(offered.0.len() <= 10, "{} looks are kept", offered.0.len());
    }

    #[test]
    fn a_late_look_and_a_reset_count_give_no_false_load() {
        let mut offered = Offered::default();
        for look in 0..10 {
            offered.look(at(look * 250), look * 50);
        }
        assert_eq!(offered.look(at(12_250), 2_450), Some(200.0), "ten seconds late");
        assert_eq!(offered.look(at(12_500), 3), None, "it came back");
        offered.look(at(13_000), 100);
        assert_eq!(offered.look(at(13_500), 203), Some(200.0));
    }

    #[test]
    fn readiness_falls_at_the_knee_and_comes_back_ten_seconds_after() {
        let (mut watched, mut clock) = (ListenerWatch::default(), (0, 0));
        let (unready, observe) = (knee(KneeAction::Unready), knee(KneeAction::Observe));
        let load = loaded(&mut watched, &mut clock, 100, 20);
        assert_eq!(load, Load { offered: Some(100.0), is_warned: false, is_at_knee: false });
        let load = loaded(&mut watched, &mut clock, 168, 20);
        assert!(load.is_warned && !load.is_at_knee, "{load:?}");
        assert_eq!(check("cache", &unready, load).verdict, Verdict::Pass);
        let load = loaded(&mut watched, &mut clock, 220, 20);
        assert!(load.is_at_knee);
        let failed = check("cache", &unready, load);
        assert_eq!((failed.verdict, &*failed.name), (Verdict::Fail, "knee_cache"));
        assert_eq!(failed.detail, "listener cache: 220 req/s, 110 % of its knee of 200 req/s");
        for other in [observe, knee(KneeAction::Shed)] {
            assert_eq!(check("cache", &other, load).verdict, Verdict::Pass);
        }
        assert!(loaded(&mut watched, &mut clock, 0, 40).is_at_knee, "not yet ten seconds below");
        let load = loaded(&mut watched, &mut clock, 0, 12);
        assert_eq!(load, Load { offered: Some(0.0), is_warned: false, is_at_knee: false });
    }

    #[test]
    fn the_api_shows_the_share() {
        let load = Load { offered: Some(170.0), is_warned: true, is_at_knee: false };
        let status = status(&knee(KneeAction::Shed), load);
        assert_eq!((status.load_ratio, status.warned, status.reached), (Some(0.85), true, false));
        assert_eq!(super::status(&knee(KneeAction::Shed), Load::default()).load_ratio, None);
    }
}
