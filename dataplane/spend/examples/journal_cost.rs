//! Cost of admission on a worker, with and without the journal: `cargo run --release -p weir-spend --example journal_cost -- FOLDER`.
//!
//! Each request reserves with a key and its team and is settled with a usage record.
#![forbid(unsafe_code)]

use std::{
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use weir_base::Time;
use weir_spend::{
    Amount,
    budget::{AccountKind, Budgets, Day, Ledger},
    journal::{Journal, JournalSettings, JournalWriter},
    keys::{Key, KeyRing, KeySecret, KeySettings, NewKey, Scope},
    meter::{Clock, Meter},
    policy::Policy,
    rate::Pace,
    usage::{UsageRecord, UsageSettings},
};

const REQUESTS: usize = 200_000;

/// Between requests, as on a worker with some 20,000 requests a second.
const PACE: Duration = Duration::from_micros(50);

fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).expect("a folder for the journal"));
    let policy = Policy {
        budgets: Budgets { day_tokens: Some(u64::MAX), month_money: Some(u64::MAX), ..Budgets::default() },
        requests: Some(Pace::per_minute(u64::from(u32::MAX))),
        tokens: Some(Pace::per_minute(1 << 50)),
        ..Policy::default()
    };
    let none = Ledger::default();
    show("no journal", &run(&none, &policy, &[None], Duration::ZERO));
    for (name, workers, pace) in [
        ("journal", 1, Duration::ZERO),
        ("journal, 2 workers", 2, Duration::ZERO),
        ("journal, paced", 1, PACE),
        ("journal, 2 workers paced", 2, PACE),
    ] {
        let _ = std::fs::remove_dir_all(&folder);
        let usage = Some(UsageSettings::new(folder.join("usage.log")));
        std::fs::create_dir_all(&folder).expect("a folder");
        let settings = JournalSettings { usage, ..JournalSettings::new(folder.join("journal")) };
        let (journal, recovery) = Journal::open(settings, 1_795_694_400).expect("a journal");
        let writers: Vec<_> = (0..workers).map(|worker| Some(journal.writer(worker).expect("a file"))).collect();
        show(name, &run(&recovery.ledger, &policy, &writers, pace));
        println!("  {:?}", journal.health());
    }
}

/// Nanoseconds of each reservation and each settlement, sorted.
fn run(ledger: &Ledger, policy: &Policy, writers: &[Option<Arc<JournalWriter>>], pace: Duration) -> Vec<u64> {
    let key = NewKey::generate().expect("randomness");
    let secret = KeySecret { hash: key.hash, shown: key.shown.as_str().into(), until: None };
    let settings = KeySettings {
        name: "ci".into(),
        secrets: vec![secret],
        is_enabled: true,
        expires: None,
        policy: Arc::new(policy.clone()),
        team: Some("search".into()),
        organization: None,
    };
    let team = Scope { kind: AccountKind::Team, name: "search".into(), policy: Arc::new(policy.clone()) };
    let ring = KeyRing::new(&[settings], &[team], ledger).expect("a ring");
    let text = key.text.expose().to_vec();
    let mut all: Vec<u64> = thread::scope(|scope| {
        let workers: Vec<_> = writers
            .iter()
            .map(|writer| {
                let meter = Meter::new(ledger.clone(), writer.clone());
                let (ring, text) = (&ring, &text);
                scope.spawn(move || work(&meter, ring, text, pace))
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    });
    all.sort_unstable();
    all
}

fn work(meter: &Meter, ring: &KeyRing, text: &[u8], pace: Duration) -> Vec<u64> {
    let mut times = Vec::with_capacity(REQUESTS);
    let begin = Instant::now();
    let requests = if pace.is_zero() { REQUESTS } else { REQUESTS / 4 };
    for number in 0..requests {
        while begin.elapsed() < pace * u32::try_from(number).expect("few") {
            std::hint::spin_loop();
        }
        let from = Instant::now();
        let key = ring.find(text, 1_795_694_400).expect("the key");
        request(meter, key, number);
        times.push(u64::try_from(from.elapsed().as_nanos()).expect("short"));
    }
    times
}

fn request(meter: &Meter, key: &Key, number: usize) {
    let (amount, used) = (Amount { tokens: 2_000, money: 900 }, Amount { tokens: 600, money: 300 });
    let clock = Clock { now: Time::now(), unix_seconds: 1_795_694_400 };
    let id = format!("req_{number:016x}");
    let line = |charged: Amount, id: &str, day: Day, into: &mut Vec<u8>| {
        UsageRecord {
            time: Duration::from_secs(1_795_694_400),
            request: id,
            day,
            key: Some("ci"),
            team: Some("search"),
            model: "gpt-4o-mini",
            model_served: Some("gpt-4o-mini-2024-07-18"),
            provider: Some("openai"),
            charged,
            status: 200,
            ..UsageRecord::default()
        }
        .write(into);
    };
    let reservation =
        meter.reserve(Some(key), amount, clock, |day, into| line(amount, &id, day, into)).expect("admitted");
    reservation.settle(used, clock.now, |day, into| line(used, &id, day, into));
}

fn show(name: &str, times: &[u64]) {
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    let mean = times.iter().sum::<u64>() as f64 / times.len() as f64 / 1e3;
    println!(
        "{name}: {} requests, mean {mean:.2} us, p50 {:.2}, p99 {:.2}, p99.9 {:.2}, max {:.1}",
        times.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}
