//! Rows that people read: one per trial while the search goes on, and the result.

use std::fmt::Write as _;

use weir_knee::command::Rate;
use weir_knee::knee::TrialSummary;
use weir_knee::trial::Trial;
use weir_knee::{Knee, Purpose, Run, Verdict, cell::short};

use crate::swept::Rung;

/// Width of the first column of the result.
const NAME_WIDTH: usize = 18;

/// A trial that begins: `verify above 52.5k/s, 30 s`.
#[must_use]
pub fn begins(run: &Run) -> String {
    let rate = match run.rate {
        Rate::Saturate => "as fast as possible".to_owned(),
        Rate::Offered(rate) => format!("{}/s", short(rate)),
    };
    let retry = if run.is_retry { format!(", again, {} shards", run.shards) } else { String::new() };
    let seconds = run.length.warmup_s + run.length.window_s;
    format!("{:<12} {rate:<22} {seconds:.0} s{retry}", self::purpose(run.purpose))
}

/// A trial that is over: what came of it, and who was how busy.
#[must_use]
pub fn ended(run: &Run, trial: &Trial, verdict: &Verdict) -> String {
    let share = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.0} %", share * 1e2));
    let parties = &trial.parties;
    let cost = parties.gateway_cpu_us_per_req.map_or(String::new(), |cost| format!(", {cost:.2} us/request"));
    format!(
        "{:<12} {:>8}/s done  p99 {:>7} us (lag {})  gateway {}{cost}  origin {}  generator {}  {verdict}",
        self::purpose(run.purpose),
        short(trial.completed_rate()),
        trial.latency.sojourn_p99_us,
        trial.latency.lag_p99_us,
        share(parties.gateway_core_busiest),
        share(parties.origin_core_busiest),
        share(Some(parties.generator_core_busiest)),
    )
}

/// A run of a comparison.
#[must_use]
pub fn ran(arm: &str, trial: &Trial, verdict: &Verdict) -> String {
    let cost = trial.parties.gateway_cpu_us_per_req.map_or(String::new(), |cost| format!("  {cost:.2} us/request"));
    let done = short(trial.completed_rate());
    // A load program may not tell it.
    let p99 = match trial.latency.sojourn_p99_us {
        0 => String::new(),
        p99 => format!("  p99 {p99:>7} us"),
    };
    format!("  {arm:<12} {done:>8}/s done{p99}{cost}  {verdict}")
}

/// A run of a sweep.
#[must_use]
pub fn rung(rung: &Rung) -> String {
    let figures = rung.figures.as_ref().map_or(String::new(), |figures| {
        let cost = figures.cpu_us_per_req.map_or(String::new(), |cost| format!("  {cost:.2} us/request"));
        format!("{:>8}/s done{cost}  limited by {}", short(figures.rate), figures.limit())
    });
    let failed = rung.failed.as_ref().map_or(String::new(), |why| format!("  {why}"));
    format!("  {:>5} under way  {:<14}{figures}{failed}", rung.under_way, rung.arm)
}

/// The result of a search.
#[must_use]
pub fn result(row: &str, knee: &Knee) -> String {
    let mut text = format!("{row}\n");
    for (name, value) in facts(knee) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {name:<NAME_WIDTH$} {value}");
    }
    text
}

/// The findings of a search, by name.
pub(crate) fn facts(knee: &Knee) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let mut line = |name, value| facts.push((name, value));
    let between = match (&knee.clean, &knee.not_clean) {
        (Some(clean), Some(above)) => format!(
            "  ({} of {} trials clean; at {} {} of {})",
            clean.clean,
            clean.repeats,
            short(above.rate),
            above.clean,
            above.repeats
        ),
        (Some(clean), None) => {
            format!("  ({} of {} trials clean; no higher load could be verified)", clean.clean, clean.repeats)
        }
        _ => String::new(),
    };
    line("clean knee", format!("{}{between}", knee.clean_cell("req/s")));
    if let Some(bracket) = knee.bracket() {
        line("bracket", format!("{bracket}; not verified, do not size from it"));
    }
    line("first overload", knee.overload_cell("req/s").to_string());
    let spread = knee.peak.and_then(|peak| peak.completed.interval());
    let spread = spread.map_or(String::new(), |(low, high)| format!("  (95 % {} to {})", short(low), short(high)));
    line("peak completed", format!("{}{spread}", knee.peak_cell("req/s")));
    if let Some(bytes) = knee.clean.and_then(|clean| throughput(knee, clean.rate)) {
        line("throughput", bytes);
    }
    line("planning read", knee.planning_read());
    if let Some(stop) = &knee.stop {
        let evidence: Vec<String> = stop
            .evidence
            .iter()
            .map(|found| match found.limit {
                Some(limit) => format!("{} {:.3} (limit {limit:.3})", found.what, found.value),
                None => format!("{} {:.3}", found.what, found.value),
            })
            .collect();
        line("stop reason", format!("{}: {}", stop.reason, evidence.join(", ")));
    }
    if let Some(base) = &knee.base {
        let cost = base.gateway_cpu_us_per_req.map_or(String::new(), |cost| format!(", gateway {cost:.2} us/request"));
        let (p50, p99) = (base.sojourn_p50_us, base.sojourn_p99_us);
        line("low load", format!("{}/s: p50 {p50} us, p99 {p99} us{cost}", short(base.rate)));
    }
    let ceilings = &knee.ceilings;
    let (sink, direct) = (short(ceilings.null_sink), short(ceilings.direct));
    line("ceilings", format!("generator {sink}/s, direct {direct}/s, offered at most {}/s", short(knee.ceiling)));
    line("trials", knee.seen.len().to_string());
    if knee.is_quota_shaped {
        line("mind", "quota-shaped: latency has steps of the length of a period".to_owned());
    }
    facts
}

/// Bytes of requests and replies at the knee, `clean_rate` requests per second, and at most, and what a mebibyte costs;
/// `None` if bytes were not counted, as in files of earlier builds.
fn throughput(knee: &Knee, clean_rate: f64) -> Option<String> {
    let counted = |seen: &&TrialSummary| seen.verdict.is_valid() && seen.run.rate.offered() > 0.0;
    let through = || knee.seen.iter().filter(counted);
    let most = |found: Option<&TrialSummary>| found.map_or(0.0, |seen| seen.wire_gigabits);
    let by_bytes = |a: &&TrialSummary, b: &&TrialSummary| a.wire_gigabits.total_cmp(&b.wire_gigabits);
    let at_knee = through().filter(|seen| seen.run.rate.offered() == clean_rate).max_by(by_bytes);
    let cost = at_knee.and_then(cpu_us_per_mib).map_or(String::new(), |cost| format!(", gateway {cost:.0} us per MiB"));
    let (here, peak) = (most(at_knee), most(through().max_by(by_bytes)));
    let text =
        format!("{here:.3} Gb/s at the knee{cost}; {peak:.3} Gb/s at most (requests and replies, at the clients)");
    (peak > 0.0).then_some(text)
}

/// CPU of the gateway per mebibyte of requests and replies, microseconds.
fn cpu_us_per_mib(seen: &TrialSummary) -> Option<f64> {
    let mebibytes_per_s = seen.wire_gigabits * 1e9 / 8.0 / f64::from(1 << 20);
    let cost = seen.gateway_cpu_us_per_req.filter(|_| mebibytes_per_s > 0.0)?;
    Some(cost * seen.completed_rate / mebibytes_per_s)
}

pub(crate) fn purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::NullSink => "generator",
        Purpose::Direct => "direct",
        Purpose::LowLoad => "low load",
        Purpose::Ramp => "ramp",
        Purpose::Bisect => "bisect",
        Purpose::Recheck => "recheck",
        Purpose::VerifyKnee => "verify",
        Purpose::VerifyAbove => "verify above",
        Purpose::StepDown => "step down",
        Purpose::Overload => "overload",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KneeResult;

    #[test]
    fn bytes_are_shown_with_their_cost_or_not_at_all() {
        let mut knee = KneeResult::from_json(include_str!("testdata/knee.json")).expect("a result").knee;
        let clean = knee.clean.expect("clean").rate;
        assert_eq!(throughput(&knee, clean), None, "an earlier build did not count them");
        for seen in &mut knee.seen {
            // 100 MiB a second for 1,000 requests of 50 us each.
            let mebibytes_per_s = if seen.run.rate.offered() == clean { 100.0 } else { 50.0 };
            seen.wire_gigabits = mebibytes_per_s * f64::from(1 << 20) * 8.0 / 1e9;
            (seen.completed_rate, seen.gateway_cpu_us_per_req) = (1_000.0, Some(50.0));
        }
        let text = throughput(&knee, clean).expect("counted");
        assert!(text.starts_with("0.839 Gb/s at the knee, gateway 500 us per MiB; 0.839 Gb/s at most"), "{text}");
    }
}
