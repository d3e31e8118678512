//! A gateway's worth of keys, and helpers around a journal.

use std::{path::Path, sync::Arc, time::Duration};

use weir_base::Time;
use weir_spend::{
    Amount,
    budget::{AccountId, AccountKind, Budgets, Day, Ledger, Totals},
    journal::{Journal, JournalSettings, Recovery},
    keys::{KeyRing, KeySecret, KeySettings, NewKey, Scope},
    meter::{Clock, Meter, Reservation},
    policy::Policy,
    usage::{Flags, LogSum, UsageRecord, UsageSettings, reconcile},
};

/// 2026-11-26 12:00:00 UTC.
pub const NOON: u64 = 1_795_694_400;

/// A clock at noon.
pub fn noon() -> Clock {
    Clock { now: Time::from_nanos(1), unix_seconds: NOON }
}

pub fn amount(tokens: u64) -> Amount {
    Amount { tokens, money: tokens * 3 }
}

/// Keys by name, with the texts that clients send.
pub struct Keys {
    pub ring: KeyRing,
    texts: Vec<(String, NewKey)>,
}

impl Keys {
    /// Keys of the team `team` with these policies; the team has a policy of its own.
    pub fn new(ledger: &Ledger, policies: &[(&str, Policy)], team: Policy) -> Self {
        let mut texts = Vec::new();
        let mut settings = Vec::new();
        for (name, policy) in policies {
            let key = NewKey::generate().unwrap();
            let secret = KeySecret { hash: key.hash, shown: key.shown.as_str().into(), until: None };
            settings.push(KeySettings {
                name: (*name).into(),
                secrets: vec![secret],
                is_enabled: true,
                expires: None,
                policy: Arc::new(policy.clone()),
                team: Some("team".into()),
                organization: None,
            });
            texts.push(((*name).to_owned(), key));
        }
        let team = Scope { kind: AccountKind::Team, name: "team".into(), policy: Arc::new(team) };
        Self { ring: KeyRing::new(&settings, &[team], ledger).unwrap(), texts }
    }

    pub fn get(&self, name: &str) -> &Arc<weir_spend::keys::Key> {
        let (_, key) = self.texts.iter().find(|(other, _)| other == name).unwrap();
        self.ring.find(key.text.expose(), NOON).unwrap()
    }
}

/// A policy with so many tokens per day.
pub fn day_tokens(tokens: u64) -> Policy {
    Policy { budgets: Budgets { day_tokens: Some(tokens), ..Budgets::default() }, ..Policy::default() }
}

/// Settings in a folder: the journal, and a usage log beside it.
pub fn settings(folder: &Path) -> JournalSettings {
    let usage =
        Some(UsageSettings { rotate_bytes: Some(256 << 10), rotate_keep: 10_000, path: folder.join("usage.log") });
    JournalSettings { usage, ..JournalSettings::new(folder.join("journal")) }
}

pub fn open(folder: &Path) -> (Journal, Recovery) {
    Journal::open(settings(folder), NOON).unwrap()
}

/// A usage record.
pub fn line(request: &str, key: &str, charged: Amount, crash: bool) -> impl FnOnce(Day, &mut Vec<u8>) {
    let (request, key) = (request.to_owned(), key.to_owned());
    move |day, into| {
        UsageRecord {
            time: Duration::from_secs(NOON),
            request: &request,
            day,
            key: Some(&key),
            team: Some("team"),
            model: "gpt-4o-mini",
            model_served: Some("gpt-4o-mini-2024-07-18"),
            provider: Some("openai"),
            charged,
            status: if crash { 0 } else { 200 },
            flags: Flags { crash, ..Flags::default() },
            ..UsageRecord::default()
        }
        .write(into);
    }
}

/// A request of this key.
pub fn reserve(
    meter: &Meter,
    keys: &Keys,
    key: &str,
    request: &str,
    tokens: u64,
) -> Result<Reservation, weir_spend::Denial> {
    meter.reserve(Some(keys.get(key)), amount(tokens), noon(), line(request, key, amount(tokens), true))
}

pub fn settle(reservation: Reservation, key: &str, request: &str, tokens: u64) {
    reservation.settle(amount(tokens), Time::from_nanos(2), line(request, key, amount(tokens), false));
}

/// The totals of an account according to a ledger.
pub fn used(ledger: &Ledger, kind: AccountKind, name: &str) -> Totals {
    ledger.account(AccountId::new(kind, name)).position().settled
}

/// The whole usage log, with the files that were put aside.
pub fn usage_log(folder: &Path) -> (LogSum, String) {
    let mut sum = LogSum::default();
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("usage.log") {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            sum.add(&text);
            all.push_str(&text);
        }
    }
    (sum, all)
}

/// The usage log adds up to the budgets, each request once.
pub fn assert_reconciled(folder: &Path, ledger: &Ledger) {
    let (log, _) = usage_log(folder);
    assert_eq!(log.unreadable, 0);
    assert_eq!(log.duplicates().collect::<Vec<_>>(), Vec::<&str>::new());
    assert_eq!(reconcile(&log, |id| ledger.account(id).position().settled), []);
}
