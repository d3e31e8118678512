//! The summary of a phase on one screen of 80 columns: verdict, thresholds, rates, outcomes, and a histogram of latency.

use std::fmt::Write as _;

use weir_load::{
    Recorder, StepRecord,
    outcome::Counts,
    record::Verdict,
    recorder::{HistogramError, Percentile, Summary, Tail},
    threshold::Judged,
};

/// Lines of a terminal, of which the path of the page and the prompt need one each.
const LINES_MAX: usize = 24 - 2;
/// Columns of a terminal.
const COLUMNS: usize = 80;
/// Columns before the values.
const NAMES: usize = 16;
/// Rows of the histogram: fewer where thresholds need the lines.
const ROWS: std::ops::RangeInclusive<usize> = 5..=10;
/// Lines of the histogram around its rows.
const HEADING: usize = 2;
/// Characters of its longest bar.
const BAR: usize = 40;
/// Percentiles of the row of latencies.
const TAILS: [(&str, Tail); 5] =
    [("p50", Tail::P50), ("p90", Tail::P90), ("p95", Tail::P95), ("p99", Tail::P99), ("p99.9", Tail::P999)];

/// The result of a phase, for people. `is_ascii`: bars of plain characters, for files and pipes.
pub fn summary(phase: &str, record: &StepRecord, is_ascii: bool) -> Result<String, HistogramError> {
    let StepRecord { counts, load, latency, verdict, thresholds, .. } = record;
    let per_second = |count: u64| format!("{:.0}/s", count as f64 / load.window_s);
    let sojourn = Recorder::from_summary(&latency.sojourn)?;
    let mut rows = vec![("verdict", worth(verdict))];
    rows.extend(advice(verdict).map(|words| ("", words.to_owned())));
    let judged = thresholds.iter().map(|one| judged(one, counts));
    rows.extend(judged.enumerate().map(|(at, text)| (if at == 0 { "thresholds" } else { "" }, text)));
    let offered = load.offered.map_or("as fast as possible".to_owned(), |rate| format!("offered {rate}/s"));
    let (completed, sent, late) = (counts.completed, counts.sent, counts.late);
    rows.extend([
        ("target", format!("{}, {} connections, {offered}", record.identity.arm, load.connections)),
        (
            "completed",
            format!("{completed} of {sent} sent ({}), {late} late, {}", per_second(completed), checked(record)),
        ),
        ("errors", errors(record)),
    ]);
    if counts.shed_total() > 0 {
        rows.push(("refused", refused(record)));
    }
    if counts.skipped() > 0 {
        let (target, generator) = (counts.skipped_backlog, counts.skipped_generator);
        rows.push(("not sent", format!("{target} for the target, {generator} for the generator")));
    }
    rows.extend(["latency", ""].into_iter().zip(percentiles(&sojourn)).filter(|(_, text)| !text.is_empty()));
    rows.extend(["events", ""].into_iter().zip(events(record)?));
    rows.push(("parts", parts(record)?));
    let mut text =
        wrapped("", &format!("{} / {phase}: {} loop, {:.1} s", record.identity.row, load.mode, load.window_s));
    rows.iter().for_each(|(name, value)| text.push_str(&wrapped(&format!("  {name:<13} "), value)));
    let left = LINES_MAX.saturating_sub(text.lines().count() + HEADING);
    text.push_str(&histogram(&sojourn, left.clamp(*ROWS.start(), *ROWS.end()) as u32, is_ascii));
    Ok(text)
}

/// `value` behind `name`, in lines that fit, broken between words and within those that are longer than a line.
fn wrapped(name: &str, value: &str) -> String {
    let mut text = name.to_owned();
    let mut column = name.len();
    for (at, word) in value.split(' ').enumerate() {
        let letters: Vec<char> = word.chars().collect();
        if at > 0 && column + 1 + letters.len().min(COLUMNS - NAMES) <= COLUMNS {
            text.push(' ');
            column += 1;
        } else if at > 0 {
            column = COLUMNS;
        }
        for part in letters.chunks(COLUMNS - NAMES) {
            if column + part.len() > COLUMNS {
                let _ = write!(text, "\n{:NAMES$}", "");
                column = NAMES;
            }
            text.extend(part);
            column += part.len();
        }
    }
    text.push('\n');
    text
}

/// Replies with right contents.
fn checked(record: &StepRecord) -> String {
    let integrity = &record.counts.integrity;
    match (record.load.is_status_only, integrity.race_suspect) {
        (true, _) => "checked: status only".to_owned(),
        (false, 0) => format!("{} checked", integrity.checked),
        (false, suspect) => format!("{} checked ({suspect} race-suspect)", integrity.checked),
    }
}

/// Clean or not, by the reason's own name.
fn worth(verdict: &Verdict) -> String {
    match (&verdict.invalid_reason, &verdict.not_clean_reason) {
        (Some(reason), _) => format!("INVALID: {reason}"),
        (None, Some(reason)) => format!("not clean: {reason}"),
        (None, None) => "clean: every request completed in time".to_owned(),
    }
}

/// The reason in words, with the remedy if there is one.
fn advice(verdict: &Verdict) -> Option<&'static str> {
    let reason = verdict.invalid_reason.as_deref().or(verdict.not_clean_reason.as_deref())?;
    Some(match reason {
        "generator-lag" => "the generator sent late: lower the rate, or give it more CPU",
        "generator-cpu" => "a core of the generator was full: raise shards or processes",
        "connections" => "the target dropped connections during the run",
        "unchecked" => "too few replies were checked",
        "samples" => "too few requests completed for a p99: send for longer",
        "mix-up" => "a reply of another connection came back",
        "integrity" => "replies had wrong contents",
        "errors" => "requests failed",
        "shed" => "the target refused requests",
        "skipped" => "the target was behind: requests passed late_limit unsent",
        "completed" => "less than 99.9 % of the requests completed",
        "slo" => "p99 is above the latency target",
        _ => return None,
    })
}

/// `met     p99<5ms           1.20 ms`
fn judged(judged: &Judged, counts: &Counts) -> String {
    let value = judged.value.map_or_else(
        || "too few completed for a figure".to_owned(),
        |value| {
            if judged.threshold.starts_with("errors") {
                // The counts too: one of a million is no 0.000 %.
                let (failed, all) = (counts.failed_by_target(), counts.meant_for_target());
                format!("{:.3} % ({failed} of {all})", value * 1e2)
            } else if judged.threshold.starts_with("rate") {
                format!("{value:.1}/s")
            } else {
                Percentile::Micros(value as u64).to_string()
            }
        },
    );
    format!("{:<7} {:<18} {value}", judged.word(), judged.threshold)
}

/// By reason.
fn refused(record: &StepRecord) -> String {
    let counts = &record.counts;
    let reasons: Vec<String> = counts.shed.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    format!("{} ({})", counts.shed_total(), reasons.join(", "))
}

/// By class.
fn errors(record: &StepRecord) -> String {
    let errors = &record.counts.errors;
    let classes = [
        ("connection", errors.transport),
        ("protocol", errors.protocol),
        ("status", errors.status),
        ("timeout", errors.timeout),
        ("wrong content", errors.payload),
    ];
    let named = classes.iter().filter(|(_, count)| *count > 0).map(|(class, count)| format!("{class} {count}"));
    let named: Vec<String> = named.collect();
    match named.is_empty() {
        true => "0".to_owned(),
        false => format!("{} ({})", errors.total(), named.join(", ")),
    }
}

fn percentile(summary: &weir_load::recorder::Summary) -> Result<Percentile, HistogramError> {
    Ok(Recorder::from_summary(summary)?.percentile(Tail::P99))
}

/// Two lines: the middle, and the tail. Percentiles that too few samples stand behind are left out.
fn percentiles(sojourn: &Recorder) -> [String; 2] {
    let known = |tails: &[(&str, Tail)]| -> Vec<String> {
        let enough = tails.iter().filter(|(_, tail)| sojourn.percentile(*tail).micros().is_some());
        enough.map(|(name, tail)| format!("{name} {}", sojourn.percentile(*tail))).collect()
    };
    let (middle, tail) = TAILS.split_at(3);
    let mut middle = known(middle);
    if middle.is_empty() {
        middle.push(sojourn.percentile(Tail::P50).to_string());
    }
    let longest = (sojourn.n() > 0).then(|| format!("max {}", Percentile::Micros(sojourn.max_micros())));
    [middle.join(", "), known(tail).into_iter().chain(longest).collect::<Vec<_>>().join(", ")]
}

/// The first event of streamed replies, and the gaps behind it; nothing if none is streamed.
fn events(record: &StepRecord) -> Result<Vec<String>, HistogramError> {
    let latency = &record.latency;
    let parts = [("first", &latency.first_event), ("between", &latency.between_events)];
    let figures = |(name, summary): (&str, &Summary)| {
        let all = Recorder::from_summary(summary)?;
        // The median says how it is, the tail how bad; of few events at least the first of both is known.
        let tail = all.percentile(Tail::P99).micros().map(|micros| format!(", p99 {}", Percentile::Micros(micros)));
        Ok(format!("{name} p50 {}{}", all.percentile(Tail::P50), tail.unwrap_or_default()))
    };
    parts.into_iter().filter_map(|(name, summary)| Some((name, summary.as_ref()?))).map(figures).collect()
}

/// Latency without the wait for a connection, and the lateness and cost of the generator.
fn parts(record: &StepRecord) -> Result<String, HistogramError> {
    let party = record.resources.parties.get("generator");
    let cpu = party.and_then(|party| party.cpu_us_per_req);
    let cpu = cpu.map_or("CPU n/a".to_owned(), |micros| format!("CPU {micros:.2} us/req"));
    let (service, lag) = (percentile(&record.latency.service)?, percentile(&record.latency.generator_lag)?);
    Ok(format!("service p99 {service}, generator lag p99 {lag}, {cpu}"))
}

/// A line per bucket: its upper bound, a bar, the count and the share.
fn histogram(sojourn: &Recorder, rows: u32, is_ascii: bool) -> String {
    let buckets = sojourn.buckets(rows);
    let Some(most) = buckets.iter().map(|bucket| bucket.count).max() else { return String::new() };
    let sign = if is_ascii { "#" } else { "■" };
    let mut text = "\n  latency up to\n".to_owned();
    for bucket in buckets {
        let share = bucket.count as f64 / sojourn.n() as f64;
        let length = (bucket.count as f64 / most as f64 * BAR as f64).ceil() as usize;
        let bound = Percentile::Micros(bucket.micros_max).to_string();
        // Padded by hand: a bar of wide characters has more bytes than columns.
        let bar = format!("{}{}", sign.repeat(length), " ".repeat(BAR.saturating_sub(length)));
        let _ = writeln!(text, "  {bound:>10}  {bar}  {:>10} {:>6.2} %", bucket.count, share * 1e2);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_load::{ErrorClass, Integrity, Stamps, Threshold, WindowResult};

    use super::*;

    /// A record as a file has it; its figures come from each test.
    const RECORD: &str = r#"{"schema":"weir.lab.step/1","run_id":"r1","step":0,"repeat":0,"row":"http1-127.0.0.1-8080",
        "arm":"127.0.0.1:8080","commit":null,"build":"0.1.0","seed":1,"started":"2026-01-02T03:04:05Z","host":{},
        "placement":{"pins":{}},"load":{"mode":"open","arrival":"poisson","offered":2000.0,"connections":50,"pipeline":1,
        "streams":null,"payload":"64B","window_s":10.0,"warmup_s":2.0,"late_limit_us":1000000},
        "counts":{"intended":0,"sent":0,"completed":0,"late":0,"skipped_backlog":0,"skipped_generator":0,"shed":{},
        "errors":{"transport":0,"protocol":0,"status":0,"timeout":0,"payload":0},
        "integrity":{"checked":0,"failed":0,"race_suspect":0}},
        "latency":{"sojourn":{"n":0,"hist":""},"service":{"n":0,"hist":""},"backlog":{"n":0,"hist":""},
        "generator_lag":{"n":0,"hist":""},"error_service":{"n":0,"hist":""}},
        "resources":{"parties":{"generator":{"cpu_us_per_req":4.2}}},"wire":{"tx_bytes":0,"rx_bytes":0},
        "verdict":{"valid":true,"evidence":{}}}"#;

    /// A record as a run leaves it, of `count` requests that took from 100 us to 100 ms.
    fn record(count: u64) -> StepRecord {
        let mut record = StepRecord::from_line(RECORD).expect("a record");
        let mut outcome = WindowResult::new(Duration::from_secs(1));
        for at in 0..count {
            outcome.intended();
            outcome.sent();
            let micros = 100.0 * 1_000_f64.powf(at as f64 / count.max(2) as f64);
            let stamps = Stamps { intended: 0, ready: 0, sent: 0, completed: (micros * 1e3) as u64 };
            outcome.completed(&stamps, Some(Integrity::Ok));
        }
        record.counts = outcome.counts.clone();
        record.latency = weir_load::record::Latency::of(&outcome.latencies);
        record
    }

    fn text(record: &StepRecord, is_ascii: bool) -> String {
        summary("load", record, is_ascii).expect("whole histograms")
    }

    /// `count` more requests that failed, so that the counts of a record still add up.
    fn fail(record: &mut StepRecord, class: ErrorClass, count: u64) {
        let mut outcome = record.outcome().expect("whole histograms");
        (0..count).for_each(|_| {
            outcome.intended();
            outcome.sent();
            outcome.failed(class, None);
        });
        record.counts = outcome.counts;
        assert_eq!(record.counts.ended(), record.counts.intended);
    }

    fn gates(record: &mut StepRecord, texts: &[&str]) {
        let gates: Vec<Threshold> = texts.iter().map(|one| one.parse().expect("right")).collect();
        record.judge(&gates).expect("whole histograms");
    }

    #[test]
    fn a_summary_fits_a_terminal_of_80_by_24_and_its_bars_are_ascii_where_no_terminal_is() {
        let mut record = record(20_000);
        let plain = record.clone();
        record.identity.arm = format!("{}.example:8080", "a".repeat(52));
        for class in [ErrorClass::Transport, ErrorClass::Protocol, ErrorClass::Payload] {
            fail(&mut record, class, 1_111);
        }
        fail(&mut record, ErrorClass::Status, 12_345);
        fail(&mut record, ErrorClass::Timeout, 1_234);
        record.verdict.not_clean_reason = Some("errors".to_owned());
        gates(&mut record, &["p99<5ms", "errors<0.1%", "rate>10"]);
        for is_ascii in [true, false] {
            for record in [&record, &plain] {
                let text = text(record, is_ascii);
                assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
                assert!(text.lines().count() <= 22, "{text}");
                assert_eq!(text.is_ascii(), is_ascii, "{text}");
            }
        }
        let text = text(&record, true);
        for row in [
            "MISSED  p99<5ms",
            "MISSED  errors<0.1%        45.817 % (16912 of 36912)",
            "met     rate>10",
            "errors        16912 (connection 1111, protocol 1111, status 12345, timeout\n                1234, wrong content 1111)",
            "completed     20000 of 36912 sent (2000/s), 0 late, 20000 checked",
            "latency       p50 3.16 ms",
        ] {
            assert!(text.contains(row), "{row} is not in\n{text}");
        }
    }

    #[test]
    fn a_share_stands_beside_its_counts_and_a_status_is_no_checked_body() {
        let mut record = record(200_000);
        record.load.is_status_only = true;
        record.counts.integrity.checked = 0;
        fail(&mut record, ErrorClass::Status, 1);
        (record.counts.skipped_backlog, record.counts.intended) = (2, record.counts.intended + 2);
        record.counts.shed.insert("status_503".to_owned(), 3);
        record.counts.intended += 3;
        gates(&mut record, &["errors==0"]);
        let text = text(&record, true);
        assert!(text.contains("MISSED  errors==0          0.003 % (6 of 200006)"), "{text}");
        assert!(text.contains("not sent      2 for the target, 0 for the generator"), "{text}");
        assert!(text.contains("refused       3 (status_503 3)"), "{text}");
        assert!(text.contains("checked: status only"), "{text}");
    }

    #[test]
    fn a_target_that_completes_nothing_misses_and_says_why() {
        let mut record = record(0);
        fail(&mut record, ErrorClass::Status, 2_000);
        record.verdict.not_clean_reason = Some("errors".to_owned());
        gates(&mut record, &["p99<5ms"]);
        let text = text(&record, true);
        assert!(text.contains("MISSED  p99<5ms            too few completed for a figure"), "{text}");
    }

    #[test]
    fn every_bucket_has_its_share_and_no_samples_have_no_histogram() {
        let text = text(&record(20_000), true);
        let bars: Vec<&str> = text.lines().filter(|line| line.contains(" %") && line.contains('#')).collect();
        assert_eq!(bars.len(), 10, "{text}");
        assert!(bars.iter().all(|line| line.contains("10.0") || line.contains("9.9")), "even on a log scale: {text}");
        assert!(!super::summary("load", &record(0), true).expect("whole").to_string().contains("latency up to"));
    }

    #[test]
    fn streamed_replies_have_a_row_of_their_own() {
        let mut outcome = WindowResult::new(Duration::from_secs(1));
        for _ in 0..1_000 {
            outcome.event(40_000_000, None);
            (0..4).for_each(|_| outcome.event(0, Some(2_000_000)));
        }
        let mut record = record(20_000);
        assert!(!text(&record, true).contains("events"));
        let latency = weir_load::record::Latency::of(&outcome.latencies);
        record.latency.first_event = latency.first_event;
        record.latency.between_events = latency.between_events;
        let text = text(&record, true);
        let rows =
            "  events        first p50 40.03 ms, p99 40.03 ms\n                between p50 2.00 ms, p99 2.00 ms\n";
        assert!(text.contains(rows), "{text}");
        assert!(text.lines().count() <= 22, "{text}");
    }

    #[test]
    fn a_verdict_is_a_reason_and_words() {
        let mut record = record(100);
        record.verdict.invalid_reason = Some("generator-lag".to_owned());
        let text = text(&record, true);
        assert!(text.contains("INVALID: generator-lag\n                the generator sent late"), "{text}");
    }
}
