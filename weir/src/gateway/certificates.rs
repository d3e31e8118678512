//! When the certificates of the listeners expire: a metric, the API, and a line in the log while there is time to renew them.
//!
//! As with knees ([`super::knee`]) all of it happens on the watch thread.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use weir_admin::status::{CertificateState, CertificateStatus};
use weir_config::{Listener, ServedCertificate, Snapshot};
use weir_telemetry::{Registry, catalog};

const DAY_SECONDS: u64 = 86_400;
/// The log warns at so many days before the end. Default 14: ACME clients renew a month before it, so this is late already.
const WARN_DAYS: u64 = 14;
/// The log reports an error at so many days before the end. Default 3: a weekend, and a day to act.
const CRITICAL_DAYS: u64 = 3;

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn state(certificate: &ServedCertificate, now: u64) -> CertificateState {
    let Some(left) = certificate.expires_at.checked_sub(now).filter(|left| *left > 0) else {
        return CertificateState::Expired;
    };
    match left {
        left if left <= CRITICAL_DAYS * DAY_SECONDS => CertificateState::Critical,
        left if left <= WARN_DAYS * DAY_SECONDS => CertificateState::Warning,
        _ => CertificateState::Valid,
    }
}

fn days_left(certificate: &ServedCertificate, now: u64) -> i64 {
    let left = certificate.expires_at.saturating_sub(now) as i64 - now.saturating_sub(certificate.expires_at) as i64;
    left.div_euclid(DAY_SECONDS as i64)
}

/// The certificates of a listener as the API shows them.
pub fn statuses(listener: &Listener, now: u64) -> Vec<CertificateStatus> {
    let status = |certificate: &ServedCertificate| CertificateStatus {
        name: certificate.name.to_string(),
        expires_at: certificate.expires_at,
        days_left: days_left(certificate, now),
        state: state(certificate, now),
    };
    listener.certificates.iter().map(status).collect()
}

/// A certificate by its listener and its name.
type Key = (Arc<str>, Arc<str>);

/// Looks at the certificates of all listeners.
#[derive(Default)]
pub struct CertificateWatch {
    /// The configuration whose certificates are published.
    generation: Option<u64>,
    /// Certificates with a series of the metric.
    published: BTreeSet<Key>,
    /// The state that the log has of each certificate.
    logged: BTreeMap<Key, CertificateState>,
}

impl CertificateWatch {
    /// Publishes the metric after a start or a reload, and logs each certificate whose end comes near.
    pub fn look(&mut self, registry: &Registry, snapshot: &Snapshot, now: u64) {
        if self.generation.replace(snapshot.generation) != Some(snapshot.generation) {
            self.publish(registry, snapshot);
        }
        let mut current = BTreeMap::new();
        for listener in &snapshot.listeners {
            for certificate in &listener.certificates {
                let key = (listener.settings.name.clone(), certificate.name.clone());
                let state = state(certificate, now);
                // The first to expire of several certificates with one name counts.
                if current.get(&key).is_none_or(|known| *known < state) {
                    if self.logged.get(&key).copied().unwrap_or(CertificateState::Valid) < state {
                        log(&key, state, days_left(certificate, now));
                    }
                    current.insert(key, state);
                }
            }
        }
        self.logged = current;
    }

    /// A scrape at any moment finds each certificate that stays: its series is changed in place.
    fn publish(&mut self, registry: &Registry, snapshot: &Snapshot) {
        // The first to expire of several certificates with one name counts.
        let mut earliest: BTreeMap<Key, u64> = BTreeMap::new();
        for listener in &snapshot.listeners {
            for ServedCertificate { name, expires_at } in &listener.certificates {
                let key = (listener.settings.name.clone(), name.clone());
                earliest.entry(key).and_modify(|known| *known = (*known).min(*expires_at)).or_insert(*expires_at);
            }
        }
        self.set(registry, &earliest);
    }

    fn set(&mut self, registry: &Registry, earliest: &BTreeMap<Key, u64>) {
        let family = &catalog::TLS_CERTIFICATE_EXPIRY;
        for ((listener, certificate), expires_at) in earliest {
            registry.shared().gauge(family, &[listener, certificate]).set_duration(Duration::from_secs(*expires_at));
        }
        let before = std::mem::replace(&mut self.published, earliest.keys().cloned().collect());
        for (listener, certificate) in before.difference(&self.published) {
            registry.retire_series(family, &[listener, certificate]);
        }
    }
}

fn log((listener, certificate): &Key, state: CertificateState, days: i64) {
    match state {
        CertificateState::Valid => {}
        CertificateState::Warning => tracing::warn!(%listener, %certificate, days, "a certificate expires soon"),
        CertificateState::Critical => tracing::error!(%listener, %certificate, days, "a certificate expires very soon"),
        CertificateState::Expired => tracing::error!(%listener, %certificate, days, "a certificate has expired"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alerts_begin_at_14_days_and_at_3() {
        let certificate = ServedCertificate { name: "a.test".into(), expires_at: 100 * DAY_SECONDS };
        let at = |now| (state(&certificate, now), days_left(&certificate, now));
        assert_eq!(at(0), (CertificateState::Valid, 100));
        assert_eq!(at(86 * DAY_SECONDS - 1), (CertificateState::Valid, 14));
        assert_eq!(at(86 * DAY_SECONDS), (CertificateState::Warning, 14));
        assert_eq!(at(97 * DAY_SECONDS - 1), (CertificateState::Warning, 3));
        assert_eq!(at(97 * DAY_SECONDS), (CertificateState::Critical, 3));
        assert_eq!(at(100 * DAY_SECONDS - 1), (CertificateState::Critical, 0));
        assert_eq!(at(100 * DAY_SECONDS), (CertificateState::Expired, 0));
        assert_eq!(at(101 * DAY_SECONDS + 1), (CertificateState::Expired, -2));
    }

    #[test]
    fn a_reload_changes_the_series_in_place_and_retires_only_those_that_are_gone() {
        let (registry, mut watch) = (Registry::new(), CertificateWatch::default());
        let key = |name: &str| (Arc::<str>::from("web"), Arc::<str>::from(name));
        let expiry = |name: &str| registry.read().gauge(EXPIRY, &[("certificate", name)]);
        watch.set(&registry, &BTreeMap::from([(key("a.test"), 1), (key("b.test"), 2)]));
        let own = registry.shared().gauge(&catalog::TLS_CERTIFICATE_EXPIRY, &["web", "a.test"]);
        watch.set(&registry, &BTreeMap::from([(key("a.test"), 7)]));
        assert_eq!(own.value(), 7_000_000_000, "the same cell: it was there all along");
        assert_eq!((expiry("a.test"), expiry("b.test")), (Some(7_000_000_000), None));
    }

    const EXPIRY: &str = "weir_tls_certificate_expiry_timestamp_seconds";
}
