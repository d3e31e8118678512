//! Sums of metrics, bounded in bytes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use weir_base::time::rfc3339;
use weir_flags_codec::Timestamp;
use weir_flags_codec::metrics::{
    BulkMetric, BulkMetrics, ClientApplication, ClientMetrics, ConnectVia, Counts, ImpactMetric, SdkFields,
};

use super::batch::{Batch, cut};
use super::impact::{self, ImpactSum};
use crate::limits::{METRICS_OTHERS_PART, METRICS_SKEW_HOURS};
use crate::token::Token;

/// The environment of metrics whose token has none.
const DEFAULT_ENVIRONMENT: &str = "development";

/// The instance of an application that names none.
const DEFAULT_INSTANCE: &str = "default";

/// The sums that wait for the next upload.
///
/// A sum has a key: environment, hour, application and flag. Past the bound the hour that is farthest from now goes, of all environments. A new
/// sum of the present hour does not come in then, so a flood of names cannot push out the sums of honest clients. Applications, metrics of their
/// own and tokens have a part of the bytes for themselves.
#[derive(Debug)]
pub struct Aggregates {
    environments: BTreeMap<Box<str>, Waiting>,
    /// Bytes of sums.
    bytes: usize,
    /// Bytes of all else.
    other_bytes: usize,
    bytes_max: usize,
    /// The hour of the last counts.
    present: i64,
    dropped: Dropped,
}

/// Sums of one hour, by application and flag.
type Sums = BTreeMap<(String, String), (Counts, SdkFields)>;

/// Metrics of one environment.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// By application and instance.
    pub(super) applications: BTreeMap<(String, String), ClientApplication>,
    /// By hours since 1970.
    pub(super) hours: BTreeMap<i64, Sums>,
    /// By application and name.
    pub(super) impact: BTreeMap<(String, String), ImpactSum>,
    pub(super) seen_tokens: BTreeSet<String>,
}

/// Items that have been left out since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Sums of hours that were the farthest from now when room was needed.
    pub distant: u64,
    /// Sums, applications, values of applications' own metrics and tokens that found no room, or had no way to an upstream.
    pub new: u64,
    /// Sums of an environment that is not the token's.
    pub foreign: u64,
    /// Items that are larger than a body may be.
    pub too_large: u64,
}

impl Aggregates {
    /// Without sums, bounded by so many bytes.
    pub const fn new(bytes_max: usize) -> Self {
        Self {
            environments: BTreeMap::new(),
            bytes: 0,
            other_bytes: 0,
            bytes_max,
            present: 0,
            dropped: Dropped { distant: 0, new: 0, foreign: 0, too_large: 0 },
        }
    }

    /// Other bounds hold from the next item on.
    pub const fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Bytes that all occupies, about.
    pub const fn bytes(&self) -> usize {
        self.bytes + self.other_bytes
    }

    /// Items that have been left out.
    pub const fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Environments with something to send.
    pub fn environments(&self) -> impl Iterator<Item = &str> {
        self.environments.keys().map(|name| &**name)
    }

    /// Adds the counts of a client. Its environment is that of the token, whatever it says.
    pub fn add(&mut self, token: &Token, metrics: ClientMetrics, now: Timestamp) {
        let environment = token.environment().unwrap_or(DEFAULT_ENVIRONMENT);
        let ClientMetrics { app_name, bucket, impact_metrics, sdk } = metrics;
        for metric in impact_metrics.into_iter().flatten() {
            self.add_impact(environment, &app_name, impact::through_edge(metric), false);
        }
        let Some(bucket) = bucket else { return };
        let hour = self.hour(bucket.start.as_str(), now);
        for (feature, counts) in bucket.toggles {
            self.add_counts(environment, hour, (app_name.clone(), feature), counts, Cow::Borrowed(&sdk));
        }
    }

    /// Adds the sums of another edge. Those of another environment than the token's are left out.
    pub fn add_bulk(&mut self, token: &Token, via: &ConnectVia, bulk: BulkMetrics, now: Timestamp) {
        let environment = token.environment().unwrap_or(DEFAULT_ENVIRONMENT);
        for mut application in bulk.applications {
            application.environment.get_or_insert_with(|| environment.to_owned());
            self.add_application(environment, through(application, via), false);
        }
        for metric in bulk.metrics {
            if metric.environment != environment {
                self.dropped.foreign += 1;
                continue;
            }
            let hour = self.hour(Some(&metric.timestamp), now);
            let key = (metric.app_name, metric.feature_name);
            self.add_counts(environment, hour, key, metric.counts, Cow::Owned(metric.sdk));
        }
        for metric in bulk.impact_metrics.into_iter().flatten() {
            self.add_impact(environment, "", impact::through_edge(metric), false);
        }
        for seen in bulk.seen_tokens.into_iter().flatten() {
            self.add_seen_token(environment, seen);
        }
    }

    /// Adds an application. Its environment and projects are those of the token, its SDK counts as one of a backend, and `via` is the last edge
    /// that it came through.
    pub fn register(&mut self, token: &Token, via: &ConnectVia, mut application: ClientApplication) {
        let environment = token.environment().unwrap_or(DEFAULT_ENVIRONMENT);
        application.environment = token.environment().map(str::to_owned);
        application.projects = Some(token.projects().names().map(str::to_owned).collect());
        application.sdk_type = Some("backend".to_owned());
        self.add_application(environment, through(application, via), false);
    }

    /// Adds an application that has sent metrics with a frontend token and does not register otherwise.
    pub fn register_frontend(&mut self, token: &Token, via: &ConnectVia, mut application: ClientApplication) {
        let environment = token.environment().unwrap_or(DEFAULT_ENVIRONMENT);
        application.environment = token.environment().map(str::to_owned);
        application.projects = Some(token.projects().names().map(str::to_owned).collect());
        application.sdk_type = Some("frontend".to_owned());
        self.add_application(environment, through(application, via), false);
    }

    /// Takes all that an environment has to send, as bodies that its upstream takes, in the order in which they must arrive.
    pub fn take(&mut self, environment: &str) -> Vec<Batch> {
        let Some((name, waiting)) = self.environments.remove_entry(environment) else { return Vec::new() };
        self.bytes -= waiting.bytes();
        self.other_bytes -= waiting.other_bytes();
        let (batches, too_large) = cut(name, waiting);
        self.dropped.too_large += too_large;
        batches
    }

    /// Adds a body that the upstream has not taken again. Newer values stay.
    pub fn put_back(&mut self, batch: Batch) {
        let (environment, metrics) = batch.into_parts();
        for application in metrics.applications {
            self.add_application(&environment, application, true);
        }
        for metric in metrics.metrics {
            let hour = hour_of(Timestamp::parse(&metric.timestamp).unwrap_or_default());
            let key = (metric.app_name, metric.feature_name);
            self.add_counts(&environment, hour, key, metric.counts, Cow::Owned(metric.sdk));
        }
        for metric in metrics.impact_metrics.into_iter().flatten() {
            self.add_impact(&environment, "", metric, true);
        }
        for seen in metrics.seen_tokens.into_iter().flatten() {
            self.add_seen_token(&environment, seen);
        }
    }

    /// Forgets everything: an offline gateway has nowhere to send it. The items count as dropped.
    pub fn discard(&mut self) {
        let items: usize = self.environments.values().map(Waiting::items).sum();
        self.dropped.new += items as u64;
        self.environments.clear();
        (self.bytes, self.other_bytes) = (0, 0);
    }

    /// Forgets an environment that no token of the upstream has any more: nothing can send its items, and they would keep their bytes for ever. They
    /// count as dropped. Returns their number.
    pub fn discard_environment(&mut self, environment: &str) -> usize {
        let Some(waiting) = self.environments.remove(environment) else { return 0 };
        self.bytes -= waiting.bytes();
        self.other_bytes -= waiting.other_bytes();
        let items = waiting.items();
        self.dropped.new += items as u64;
        items
    }

    /// The applications and sums that wait, for `/internal-backstage/metricsbatch`.
    pub fn waiting(&self) -> BulkMetrics {
        let all = self.environments.iter();
        BulkMetrics {
            applications: all.clone().flat_map(|(_, it)| it.applications.values().cloned()).collect(),
            metrics: all.flat_map(|(name, it)| it.metrics(name)).collect(),
            ..BulkMetrics::default()
        }
    }

    /// The hour of a text, no further from now than clocks may be wrong. Another text is of now.
    fn hour(&mut self, text: Option<&str>, now: Timestamp) -> i64 {
        self.present = hour_of(now);
        let named = text.and_then(Timestamp::parse).map_or(self.present, hour_of);
        named.clamp(self.present - METRICS_SKEW_HOURS, self.present + METRICS_SKEW_HOURS)
    }

    /// The SDK is copied into a new sum alone, and only behind the search for room: a body has one SDK for thousands of sums.
    fn add_counts(
        &mut self,
        environment: &str,
        hour: i64,
        key: (String, String),
        counts: Counts,
        sdk: Cow<'_, SdkFields>,
    ) {
        if counts.is_zero() {
            return;
        }
        let waiting = self.environments.get(environment);
        let known = waiting.and_then(|it| it.hours.get(&hour)?.get(&key)).map(|(counts, _)| counts);
        let bytes = match known {
            None => bytes_of_key(&key) + bytes_of_sdk(&sdk) + bytes_of_variants(counts.variants.keys()),
            Some(known) => bytes_of_variants(counts.variants.keys().filter(|name| !known.variants.contains_key(*name))),
        };
        if !self.make_room(bytes, hour) {
            return;
        }
        let waiting = self.environments.entry(environment.into()).or_default();
        let sums = waiting.hours.entry(hour).or_default();
        let sum = sums.entry(key).or_insert_with(|| (Counts::default(), sdk.into_owned()));
        sum.0.add(&counts);
    }

    fn add_application(&mut self, environment: &str, application: ClientApplication, is_older: bool) {
        let instance = application.instance_id.clone().unwrap_or_else(|| DEFAULT_INSTANCE.to_owned());
        let key = (application.app_name.clone(), instance);
        let before = self.environments.get(environment).and_then(|it| it.applications.get(&key));
        if before.is_some() && is_older {
            return;
        }
        let bytes_before = before.map_or(0, |it| bytes_of_key(&key) + bytes_of_application(it));
        let bytes = bytes_of_key(&key) + bytes_of_application(&application);
        if !self.find_room(bytes.saturating_sub(bytes_before)) {
            return;
        }
        self.other_bytes -= bytes_before.saturating_sub(bytes);
        self.environments.entry(environment.into()).or_default().applications.insert(key, application);
    }

    fn add_impact(&mut self, environment: &str, application: &str, metric: ImpactMetric, is_older: bool) {
        let key = (application.to_owned(), metric.name.clone());
        let is_known = self.environments.get(environment).is_some_and(|it| it.impact.contains_key(&key));
        if !is_known && !self.find_room(bytes_of_key(&key) + ImpactSum::bytes_of(&metric.help)) {
            return;
        }
        let room = (self.bytes_max / METRICS_OTHERS_PART).saturating_sub(self.other_bytes);
        let waiting = self.environments.entry(environment.into()).or_default();
        let sum = waiting.impact.entry(key).or_insert_with(|| ImpactSum::new(&metric.help, metric.kind));
        let before = sum.bytes();
        self.dropped.new += sum.add(metric, is_older, room);
        self.other_bytes = self.other_bytes + sum.bytes() - before;
    }

    fn add_seen_token(&mut self, environment: &str, token: String) {
        let is_known = self.environments.get(environment).is_some_and(|it| it.seen_tokens.contains(&token));
        if !is_known && self.find_room(bytes_of_text(&token)) {
            self.environments.entry(environment.into()).or_default().seen_tokens.insert(token);
        }
    }

    /// Takes room for an item that is no sum. False: there is none, and the item counts as dropped.
    fn find_room(&mut self, bytes: usize) -> bool {
        let has_room = bytes == 0 || self.other_bytes + bytes <= self.bytes_max / METRICS_OTHERS_PART;
        match has_room {
            true => self.other_bytes += bytes,
            false => self.dropped.new += 1,
        }
        has_room
    }

    /// Takes room for a sum of an hour. False: there is none, and the sum counts as dropped.
    fn make_room(&mut self, bytes: usize, hour: i64) -> bool {
        let distance = |hour: i64| hour.abs_diff(self.present);
        let own = distance(hour);
        while self.bytes + bytes > self.bytes_max - self.bytes_max / METRICS_OTHERS_PART {
            let hours = self.environments.values().flat_map(|it| it.hours.keys().copied());
            // A sum pushes out neither nearer ones nor those of its own hour.
            let Some(farthest) = hours.max_by_key(|hour| distance(*hour)).filter(|hour| distance(*hour) > own) else {
                self.dropped.new += 1;
                return false;
            };
            for waiting in self.environments.values_mut() {
                let Some(sums) = waiting.hours.remove(&farthest) else { continue };
                self.dropped.distant += sums.len() as u64;
                self.bytes -= bytes_of_sums(&sums);
            }
        }
        self.bytes += bytes;
        true
    }
}

impl Waiting {
    /// The sums as an upstream takes them.
    pub(super) fn metrics(&self, environment: &str) -> impl Iterator<Item = BulkMetric> {
        self.hours.iter().flat_map(move |(hour, sums)| {
            let timestamp = rfc3339(u64::try_from(hour.saturating_mul(3_600)).unwrap_or_default());
            sums.iter().map(move |((application, feature), (counts, sdk))| BulkMetric {
                feature_name: feature.clone(),
                app_name: application.clone(),
                environment: environment.to_owned(),
                timestamp: timestamp.clone(),
                counts: counts.clone(),
                sdk: sdk.clone(),
            })
        })
    }

    fn items(&self) -> usize {
        let sums: usize = self.hours.values().map(BTreeMap::len).sum();
        sums + self.applications.len() + self.impact.len() + self.seen_tokens.len()
    }

    fn bytes(&self) -> usize {
        self.hours.values().map(bytes_of_sums).sum()
    }

    fn other_bytes(&self) -> usize {
        let applications = self.applications.iter().map(|(key, it)| bytes_of_key(key) + bytes_of_application(it));
        let impact = self.impact.iter().map(|(key, it)| bytes_of_key(key) + it.bytes());
        applications.chain(impact).sum::<usize>() + self.seen_tokens.iter().map(|it| bytes_of_text(it)).sum::<usize>()
    }
}

fn hour_of(time: Timestamp) -> i64 {
    time.unix_seconds().div_euclid(3_600)
}

fn through(mut application: ClientApplication, via: &ConnectVia) -> ClientApplication {
    application.connect_via.get_or_insert_default().push(via.clone());
    application
}

/// A text in a map: its letters, its head, its place and a node's share.
fn bytes_of_text(text: &str) -> usize {
    text.len() + 64
}

fn bytes_of_key((application, other): &(String, String)) -> usize {
    bytes_of_text(application) + bytes_of_text(other)
}

fn bytes_of_variants<'a>(names: impl Iterator<Item = &'a String>) -> usize {
    names.map(|name| bytes_of_text(name)).sum()
}

/// The texts of an SDK, which each of its sums has.
pub fn sdk_texts(sdk: &SdkFields) -> impl Iterator<Item = &str> {
    // All by name: another field is to be bounded and counted as well.
    let SdkFields {
        sdk_version,
        sdk_type,
        yggdrasil_version,
        platform_name,
        platform_version,
        sdk_flavor,
        sdk_flavor_version,
    } = sdk;
    let texts =
        [sdk_version, sdk_type, yggdrasil_version, platform_name, platform_version, sdk_flavor, sdk_flavor_version];
    texts.into_iter().flatten().map(String::as_str)
}

fn bytes_of_sdk(sdk: &SdkFields) -> usize {
    size_of::<SdkFields>() + sdk_texts(sdk).map(str::len).sum::<usize>()
}

fn bytes_of_sums(sums: &Sums) -> usize {
    let bytes = sums
        .iter()
        .map(|(key, (counts, sdk))| bytes_of_key(key) + bytes_of_sdk(sdk) + bytes_of_variants(counts.variants.keys()));
    bytes.sum()
}

/// Twice the length of its JSON: a tree of values takes about as much.
fn bytes_of_application(application: &ClientApplication) -> usize {
    2 * serde_json::to_string(application).map_or(0, |text| text.len())
}
