//! The share of errors among the responses of each HTTP listener, and the warning that follows from it.
//!
//! As with knees ([`super::knee`]) all of it happens on the watch thread, from counters that the workers keep anyway.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use weir_admin::status::{ErrorStatus, ResponseClasses};
use weir_base::time::Time;
use weir_config::{Listener, ListenerProtocol, Snapshot};
use weir_telemetry::{Registry, catalog};

use super::threshold::{Crossing, Threshold};

/// The time that the share covers. Default 10 s: one failed deploy is seen in time.
const WINDOW: Duration = Duration::from_secs(10);
/// Fewer responses than this cause no warning; the window grows until it has as many. Default 5: one 500 of two responses at
/// night is no outage.
const RESPONSES_MIN: u64 = 5;
/// The widest window. Default 60 s: a listener with a request every 15 s is warned about, and one without requests is not for long.
/// Worst case 240 looks of 24 bytes per listener.
const WINDOW_MAX: Duration = Duration::from_secs(60);

/// Current share of errors of one listener.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ErrorShare {
    /// Errors as a share of all responses in the window; `None`: there were none.
    ratio: Option<f64>,
    /// It is, or was within [`HOLD`](super::threshold::HOLD), near `error_warn`.
    is_warned: bool,
}

/// The shares of HTTP listeners.
pub type ErrorShares = BTreeMap<Arc<str>, ErrorShare>;

/// Responses so far, without those that clients left. Those that broke off are errors as a 5xx is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    all: u64,
    errors: u64,
}

impl Counts {
    fn of(registry: &Registry, listener: &str) -> Self {
        let mut classes = ResponseClasses::default();
        for class in catalog::RESPONSE_CLASSES {
            classes.add(class, registry.count(&catalog::HTTP_LISTENER_RESPONSES, &[listener, class]).unwrap_or(0));
        }
        Self { all: classes.judged(), errors: classes.errors() }
    }

    /// Responses counted since `before`. A class may be read in one look and a moment too late for the other.
    fn since(self, before: Self) -> Self {
        Self { all: self.all.saturating_sub(before.all), errors: self.errors.saturating_sub(before.errors) }
    }
}

/// One listener.
#[derive(Default)]
struct ListenerWatch {
    /// Looks of the widest window and the one before, oldest first.
    looks: VecDeque<(Time, Counts)>,
    warn: Threshold,
}

impl ListenerWatch {
    fn look(&mut self, name: &str, warn: f64, counts: Counts, now: Time) -> ErrorShare {
        let recent = self.recent(counts, now);
        let ratio = (recent.all > 0).then(|| recent.errors as f64 / recent.all as f64);
        let share = ratio.filter(|_| recent.all >= RESPONSES_MIN).unwrap_or_default();
        match self.warn.look(now, share, warn) {
            Some(Crossing::Up) => {
                let (percent, from) = (percent(share), percent(warn));
                tracing::warn!(listener = name, percent, from, "many responses are errors (5xx or broken off)");
            }
            Some(Crossing::Down) => {
                let (percent, from) = (percent(share), percent(warn));
                tracing::info!(listener = name, percent, from, "responses are no longer errors");
            }
            None => {}
        }
        ErrorShare { ratio, is_warned: self.warn.is_over() }
    }

    /// The responses of the window: the shortest that has enough of them.
    fn recent(&mut self, counts: Counts, now: Time) -> Counts {
        if self.looks.back().is_some_and(|(_, last)| counts.all < last.all) {
            // The listener was removed and came back: another count.
            self.looks.clear();
        }
        // The oldest look that is kept is the youngest that is at least the widest window ago.
        while self.looks.get(1).is_some_and(|(at, _)| now.since(*at) >= WINDOW_MAX) {
            self.looks.pop_front();
        }
        self.looks.push_back((now, counts));
        let befores = self.looks.iter().rev().filter(|(at, _)| now.since(*at) >= WINDOW);
        let mut windows = befores.map(|(_, before)| counts.since(*before));
        let oldest = self.looks.front().map_or(counts, |(_, before)| *before);
        windows.find(|window| window.all >= RESPONSES_MIN).unwrap_or_else(|| counts.since(oldest))
    }
}

fn percent(share: f64) -> f64 {
    (share * 100.0).round()
}

/// Looks at the responses of all HTTP listeners.
#[derive(Default)]
pub struct ErrorWatch(HashMap<Arc<str>, ListenerWatch>);

impl ErrorWatch {
    /// The current shares. Begins and ends warnings, and logs them.
    pub fn look(&mut self, registry: &Registry, snapshot: &Snapshot, now: Time) -> ErrorShares {
        self.0.retain(|name, _| snapshot.listener(name).is_some());
        let mut shares = ErrorShares::new();
        for listener in &snapshot.listeners {
            let Some(warn) = warn_ratio(listener) else { continue };
            let name = &listener.settings.name;
            let share = self.0.entry(name.clone()).or_default().look(name, warn, Counts::of(registry, name), now);
            shares.insert(name.clone(), share);
        }
        shares
    }
}

/// From which share on a listener is warned about; `None`: it has no responses of HTTP.
pub fn warn_ratio(listener: &Listener) -> Option<f64> {
    match &listener.protocol {
        ListenerProtocol::Http(http) => Some(http.error_warn),
        _ => None,
    }
}

/// The errors as the API shows them.
pub fn status(warn_ratio: f64, share: ErrorShare) -> ErrorStatus {
    ErrorStatus { ratio: share.ratio, warn_ratio, warned: share.is_warned }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listener with so many good and bad responses in each quarter of a second.
    struct Played {
        watched: ListenerWatch,
        counts: Counts,
        millis: u64,
    }

    impl Played {
        fn new() -> Self {
            Self { watched: ListenerWatch::default(), counts: Counts::default(), millis: 0 }
        }

        fn look(&mut self, good: u64, bad: u64, looks: u64) -> ErrorShare {
            let mut last = ErrorShare::default();
            for _ in 0..looks {
                self.counts = Counts { all: self.counts.all + good + bad, errors: self.counts.errors + bad };
                self.millis += 250;
                last = self.watched.look("web", 0.05, self.counts, Time::from_nanos(self.millis * 1_000_000));
            }
            last
        }
    }

    #[test]
    fn a_listener_whose_responses_are_all_errors_is_warned_about_and_recovers() {
        let mut played = Played::new();
        assert_eq!(played.look(0, 0, 4), ErrorShare { ratio: None, is_warned: false });
        assert_eq!(played.look(10, 0, 40), ErrorShare { ratio: Some(0.0), is_warned: false });
        let failed = played.look(0, 10, 40);
        assert_eq!(failed, ErrorShare { ratio: Some(1.0), is_warned: true });
        // Ten seconds until the window has no error, and ten more below the threshold.
        assert!(played.look(10, 0, 60).is_warned);
        assert_eq!(played.look(10, 0, 24), ErrorShare { ratio: Some(0.0), is_warned: false });
    }

    #[test]
    fn a_share_around_the_threshold_warns_once() {
        let mut played = Played::new();
        let mut changes = 0;
        let mut was_warned = false;
        for look in 0..400 {
            // 4 % and 6 % in turn, for ten seconds each.
            let bad = if look / 40 % 2 == 0 { 4 } else { 6 };
            let is_warned = played.look(100 - bad, bad, 1).is_warned;
            changes += u32::from(is_warned != was_warned);
            was_warned = is_warned;
        }
        assert!(changes <= 2, "{changes} changes in 100 s");
        assert!(changes >= 1);
    }

    #[test]
    fn a_few_responses_warn_nobody_and_show_their_share() {
        let mut played = Played::new();
        played.look(0, 0, 1);
        assert_eq!(played.look(1, 1, 1), ErrorShare { ratio: Some(0.5), is_warned: false });
        assert_eq!(played.look(1, 2, 1), ErrorShare { ratio: Some(0.6), is_warned: true });
    }

    #[test]
    fn a_listener_with_a_request_every_five_seconds_is_warned_about_and_recovers() {
        let mut played = Played::new();
        played.look(0, 0, 1);
        let mut every_five_seconds = |good, bad| {
            played.look(good, bad, 1);
            played.look(0, 0, 19)
        };
        for _ in 0..4 {
            assert_eq!(every_five_seconds(0, 1), ErrorShare { ratio: Some(1.0), is_warned: false }, "fewer than five");
        }
        assert_eq!(every_five_seconds(0, 1), ErrorShare { ratio: Some(1.0), is_warned: true });
        // With the fifth good response the last five are good, and ten seconds later it is believed.
        for _ in 0..5 {
            assert!(every_five_seconds(1, 0).is_warned);
        }
        every_five_seconds(1, 0);
        assert_eq!(every_five_seconds(1, 0), ErrorShare { ratio: Some(0.0), is_warned: false });
    }

    #[test]
    fn fewer_than_five_responses_in_a_minute_warn_nobody() {
        let mut played = Played::new();
        played.look(0, 0, 1);
        for _ in 0..8 {
            played.look(0, 1, 1);
            // One every 20 s.
            assert_eq!(played.look(0, 0, 79), ErrorShare { ratio: Some(1.0), is_warned: false });
        }
    }

    #[test]
    fn a_busy_listener_is_judged_by_ten_seconds_alone() {
        let mut played = Played::new();
        played.look(0, 1, 40);
        assert_eq!(played.look(1, 0, 40).ratio, Some(0.0), "the errors of the ten seconds before are none of them");
    }

    #[test]
    fn a_warning_ends_when_there_are_no_responses_any_more() {
        let mut played = Played::new();
        assert!(played.look(0, 10, 8).is_warned);
        assert!(played.look(0, 0, 240).is_warned);
        assert_eq!(played.look(0, 0, 50), ErrorShare { ratio: None, is_warned: false });
    }

    #[test]
    fn responses_that_the_origin_breaks_off_are_errors_and_those_that_clients_leave_do_not_count() {
        let registry = Registry::new();
        let core = registry.core(0);
        for (class, count) in [("2xx", 10), ("4xx", 4), ("5xx", 3), ("broken", 2), ("aborted", 500)] {
            core.counter(&catalog::HTTP_LISTENER_RESPONSES, &["web", class]).add(count);
            core.counter(&catalog::HTTP_LISTENER_RESPONSES, &["other", class]).add(1_000);
        }
        assert_eq!(Counts::of(&registry, "web"), Counts { all: 19, errors: 5 });
    }

    #[test]
    fn a_listener_is_seen_among_so_many_that_other_families_are_full() {
        let registry = Registry::new();
        let core = registry.core(0);
        for listener in 0..300 {
            for code in ["200", "404", "500", "502", "503"] {
                core.counter(&catalog::HTTP_RESPONSES, &[&format!("web-{listener}"), code]).inc();
            }
            for class in catalog::RESPONSE_CLASSES {
                core.counter(&catalog::HTTP_LISTENER_RESPONSES, &[&format!("web-{listener}"), class]).inc();
            }
        }
        assert_eq!(Counts::of(&registry, "web-299"), Counts { all: 6, errors: 2 });
    }

    #[test]
    fn a_count_that_begins_again_gives_no_false_share() {
        let mut played = Played::new();
        played.look(10, 10, 8);
        played.counts = Counts::default();
        assert_eq!(played.look(0, 0, 1).ratio, None);
        assert_eq!(played.look(10, 0, 2).ratio, Some(0.0));
    }
}
