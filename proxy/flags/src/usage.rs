//! Counts of evaluations by application and flag, for `feature_toggle_usage_total` of `/internal-backstage/metrics`.

use std::collections::BTreeMap;

use weir_flags_codec::metrics::{ClientMetrics, Counts};

use crate::limits::{USAGE_BYTES_MAX, USAGE_SERIES_MAX};

/// The application and the flag of counts beyond the bounds.
const OTHERS: &str = "other";

/// Bytes of a place in a map, besides its text.
const PLACE_BYTES: usize = 64;

/// Evaluations that were on, and off.
type OnAndOff = (u64, u64);

/// Evaluations that were on and off, by application and flag. The first pairs have series of their own; those that come when the bounds are reached
/// count for one series together, since the process cannot know which of them matter.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    by_application: BTreeMap<Box<str>, BTreeMap<Box<str>, OnAndOff>>,
    series: usize,
    bytes: usize,
    /// `None`: there was none. A client's own application and flag of these names count here, too: a series has one line.
    others: Option<OnAndOff>,
    without_series: u64,
}

impl Usage {
    /// Adds the counts of a client.
    pub(crate) fn add(&mut self, metrics: &ClientMetrics) {
        for (flag, counts) in metrics.bucket.iter().flat_map(|bucket| &bucket.toggles) {
            self.add_one(&metrics.app_name, flag, counts);
        }
    }

    fn add_one(&mut self, application: &str, flag: &str, counts: &Counts) {
        if (application, flag) == (OTHERS, OTHERS) {
            return add_to(self.others.get_or_insert_default(), counts);
        }
        let flags = self.by_application.get_mut(application);
        let application_bytes = if flags.is_some() { 0 } else { application.len() + PLACE_BYTES };
        if let Some(sum) = flags.and_then(|flags| flags.get_mut(flag)) {
            return add_to(sum, counts);
        }
        let bytes = self.bytes + application_bytes + flag.len() + PLACE_BYTES;
        if self.series >= USAGE_SERIES_MAX || bytes > USAGE_BYTES_MAX {
            if self.without_series == 0 {
                tracing::warn!(
                    "feature_toggle_usage_total has no room for further applications and flags: they count as `{OTHERS}`"
                );
            }
            self.without_series += 1;
            return add_to(self.others.get_or_insert_default(), counts);
        }
        self.series += 1;
        self.bytes = bytes;
        let flags = self.by_application.entry(application.into()).or_default();
        add_to(flags.entry(flag.into()).or_default(), counts);
    }

    /// Counts of a client for a flag that found no room for a series of their own, since the start.
    pub(crate) const fn without_series(&self) -> u64 {
        self.without_series
    }

    /// Application, flag, evaluations that were on, and off.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str, u64, u64)> {
        let own = self.by_application.iter().flat_map(|(application, flags)| {
            flags.iter().map(|(flag, (yes, no))| (&**application, &**flag, *yes, *no))
        });
        let others = self.others.map(|(yes, no)| (OTHERS, OTHERS, yes, no));
        own.chain(others)
    }
}

fn add_to(sum: &mut OnAndOff, counts: &Counts) {
    *sum = (sum.0.saturating_add(counts.yes), sum.1.saturating_add(counts.no));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(application: &str, flag: &str) -> ClientMetrics {
        let text = format!(
            r#"{{"appName":"{application}","bucket":{{"start":"a","stop":"b","toggles":{{"{flag}":{{"yes":2,"no":1}}}}}}}}"#
        );
        ClientMetrics::read(text.as_bytes()).expect("metrics")
    }

    #[test]
    fn f6_names_have_a_bound_in_bytes_and_known_ones_go_on() {
        let mut usage = Usage::default();
        usage.add(&counts("honest", "f"));
        let long = "n".repeat(1_000);
        (0..USAGE_SERIES_MAX).for_each(|number| usage.add(&counts(&format!("{number}-{long}"), &long)));
        let texts: usize = usage.iter().map(|(application, flag, ..)| application.len() + flag.len()).sum();
        assert!(texts <= USAGE_BYTES_MAX && texts > USAGE_BYTES_MAX / 2, "{texts}");
        usage.add(&counts("honest", "f"));
        let own: Vec<_> = usage.iter().filter(|(application, ..)| *application == "honest").collect();
        assert_eq!(own, [("honest", "f", 4, 2)]);
        let others = usage.without_series();
        assert!(others > 7_000, "{others}");
        assert_eq!(usage.iter().last(), Some((OTHERS, OTHERS, 2 * others, others)), "no evaluation is lost");
    }

    #[test]
    fn f6_short_names_have_a_bound_in_number() {
        let mut usage = Usage::default();
        (0..USAGE_SERIES_MAX + 5).for_each(|number| usage.add(&counts("a", &number.to_string())));
        assert_eq!((usage.iter().count(), usage.without_series()), (USAGE_SERIES_MAX + 1, 5));
    }

    #[test]
    fn a_client_with_the_names_of_the_others_shares_their_series() {
        let mut usage = Usage::default();
        usage.add(&counts(OTHERS, OTHERS));
        assert_eq!(usage.iter().collect::<Vec<_>>(), [(OTHERS, OTHERS, 2, 1)]);
        usage.add(&counts(OTHERS, "f"));
        (1..USAGE_SERIES_MAX + 5).for_each(|number| usage.add(&counts("a", &number.to_string())));
        let own: Vec<_> =
            usage.iter().filter(|(application, flag, ..)| (*application, *flag) == (OTHERS, OTHERS)).collect();
        assert_eq!((own, usage.without_series()), (vec![(OTHERS, OTHERS, 2 * 6, 6)], 5));
    }
}
