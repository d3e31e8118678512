//! A sweep as a page: the ladder per protocol, or cores to throughput, and under which conditions.

use weir_knee::markdown::{Table, number};
use weir_knee::{Backend, cell};
use weir_load::recorder::{Percentile, Tail};
use weir_parties::peer::DIRECT;

use crate::chart::{Axis, Chart, Field, Series};
use crate::document::{Document, Element};
use crate::swept::{Figures, Group, Kind, Rung, Sweep};
use crate::{published, side_by_side};

const MIB: f64 = 1024.0 * 1024.0;
const NONE: &str = "-";
const NOT_RUN: &str = "not run";

/// A sweep as Markdown.
#[must_use]
pub(crate) fn markdown(sweep: &Sweep) -> String {
    let mut page = document(sweep);
    page.extend(published::of_sweeps(&[sweep]));
    page.markdown()
}

/// A sweep: its tables, then who took part and where.
pub(crate) fn document(sweep: &Sweep) -> Document {
    let mut page = Document::default();
    let title = match sweep.kind {
        Kind::Ladder => "Ladder: requests under way, per protocol",
        Kind::Cores => "Cores to throughput",
    };
    page.add(Element::Heading(1, title.to_owned()));
    caveats(sweep).into_iter().for_each(|caveat| page.add(Element::Caveat(caveat)));
    match sweep.kind {
        Kind::Ladder => {
            for group in &sweep.groups {
                page.add(Element::Heading(2, heading(group)));
                page.add(Element::Table(ladder(group)));
                charts(group).into_iter().filter(|chart| !chart.is_empty()).for_each(|it| page.add(Element::Chart(it)));
            }
        }
        Kind::Cores => {
            let mut names: Vec<&str> = sweep.groups.iter().map(|group| &*group.name).collect();
            names.dedup();
            for name in names {
                let groups: Vec<&Group> = sweep.groups.iter().filter(|group| group.name == name).collect();
                page.add(Element::Heading(2, groups.first().map_or(String::new(), |group| heading(group))));
                page.add(Element::Table(cores(&groups)));
                let chart = cores_chart(&groups);
                if !chart.is_empty() {
                    page.add(Element::Chart(chart));
                }
            }
        }
    }
    page.add(Element::Heading(2, "Conditions".to_owned()));
    page.add(Element::List(conditions(sweep)));
    for group in &sweep.groups {
        let of = format!("{}, {} vCPU", group.name, group.budget_vcpu);
        if group.rungs.is_empty() {
            continue;
        }
        page.add(Element::Code(format!("Scenario {}", group.name), group.scenario.clone()));
        for arm in group.server.iter().chain(&group.arms).filter(|arm| !arm.config.is_empty()) {
            page.add(Element::Code(format!("Configuration of {} ({of})", arm.name), arm.config.clone()));
        }
    }
    page
}

fn heading(group: &Group) -> String {
    format!("{}, {}", group.protocol, group.payload)
}

fn caveats(sweep: &Sweep) -> Vec<String> {
    let mut caveats = vec![
        "Closed loop: the next request leaves after the reply, so a stall hides. For latency at a given load see the knees."
            .to_owned(),
    ];
    let placements = || sweep.groups.iter().filter_map(|group| group.placement.as_ref());
    if sweep.backend == Backend::Synthetic && placements().any(|placement| placement.is_shared()) {
        caveats.push("Origin and generator share a CPU.".to_owned());
    } else if placements().any(|placement| placement.is_shared()) {
        caveats.push("The server behind the gateways shares a CPU with the generator.".to_owned());
    }
    let mut told: Vec<String> = Vec::new();
    for group in &sweep.groups {
        let missing = group.missing.iter();
        told.extend(missing.map(|missing| format!("Not compared: {}. {}", missing.name, missing.reason)));
        told.extend(group.not_run.iter().map(|why| format!("{why}.")));
        let failed = group.rungs.iter().filter_map(|rung| Some((rung, rung.failed.as_ref()?)));
        told.extend(
            failed.map(|(rung, why)| format!("{}, {} with {} under way: {why}", group.name, rung.arm, rung.under_way)),
        );
    }
    for caveat in told {
        if !caveats.contains(&caveat) {
            caveats.push(caveat);
        }
    }
    caveats
}

/// Milliseconds, or that there were too few.
fn millis(figures: &Figures, tail: Tail) -> String {
    match figures.percentile(tail) {
        Some(Percentile::Micros(micros)) => format!("{:.3}", micros as f64 / 1e3),
        Some(few) => few.to_string(),
        None => NONE.to_owned(),
    }
}

/// The figures of a rung, or why it has none.
fn rate(rung: &Rung) -> String {
    match (&rung.failed, &rung.figures) {
        (None, Some(figures)) => cell::short(figures.rate),
        (Some(why), _) => {
            why.split(':').next().map_or("failed", |word| if word == "invalid" { why } else { "failed" }).to_owned()
        }
        (None, None) => NOT_RUN.to_owned(),
    }
}

fn of(rung: &Rung, figure: impl Fn(&Figures) -> String) -> String {
    rung.counted().map_or(NONE.to_owned(), figure)
}

/// Bytes to clients that were no response.
fn failures(figures: &Figures) -> String {
    (figures.errors + figures.refused).to_string()
}

fn ladder(group: &Group) -> Table {
    let mut table = Table::new(&[
        "c",
        "connections",
        "mode",
        "arm",
        "rps",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "gateway CPU %",
        "CPU us/request",
        "RSS MiB",
        "fds",
        "threads",
        "failed",
        "limited by",
    ]);
    if let Some(why) = &group.not_run {
        let mut cells = vec![NONE.to_owned(); 15];
        cells[4] = why.split(':').next().unwrap_or(NOT_RUN).to_owned();
        table.row(cells);
    }
    for rung in &group.rungs {
        let whole = |count: Option<u64>| count.map_or(NONE.to_owned(), |count| count.to_string());
        table.row(vec![
            rung.under_way.to_string(),
            rung.connections.to_string(),
            rung.mode.clone(),
            rung.arm.clone(),
            rate(rung),
            of(rung, |figures| millis(figures, Tail::P50)),
            of(rung, |figures| millis(figures, Tail::P99)),
            of(rung, |figures| millis(figures, Tail::P999)),
            of(rung, |figures| number(figures.cpu_percent(), 0)),
            of(rung, |figures| number(figures.cpu_us_per_req, 1)),
            of(rung, |figures| number(figures.rss_max.map(|bytes| bytes as f64 / MIB), 1)),
            of(rung, |figures| whole(figures.fds_max)),
            of(rung, |figures| whole(figures.threads.map(u64::from))),
            of(rung, failures),
            of(rung, |figures| figures.limit().to_owned()),
        ]);
    }
    table
}

fn cores(groups: &[&Group]) -> Table {
    let mut table = Table::new(&[
        "cores",
        "users",
        "mode",
        "arm",
        "RPS",
        "CPU %",
        "CPU us/request",
        "% of direct",
        "p50 ms",
        "p99 ms",
        "failed",
        "limited by",
    ]);
    for group in groups {
        let budget = group.budget_vcpu.to_string();
        if group.rungs.is_empty() {
            let mut cells = vec![NONE.to_owned(); 12];
            cells[0] = budget.clone();
            cells[4] = NOT_RUN.to_owned();
            table.row(cells);
        }
        for rung in &group.rungs {
            let direct = group.direct_rate(rung.under_way).filter(|_| rung.arm != DIRECT);
            table.row(vec![
                budget.clone(),
                rung.under_way.to_string(),
                rung.mode.clone(),
                rung.arm.clone(),
                rate(rung),
                of(rung, |figures| number(figures.cpu_percent(), 0)),
                of(rung, |figures| number(figures.cpu_us_per_req, 1)),
                of(rung, |figures| number(direct.map(|direct| 100.0 * figures.rate / direct), 1)),
                of(rung, |figures| millis(figures, Tail::P50)),
                of(rung, |figures| millis(figures, Tail::P99)),
                of(rung, failures),
                of(rung, |figures| figures.limit().to_owned()),
            ]);
        }
    }
    table
}

/// One line for each arm.
fn series(arms: &[&str], points: impl Fn(&str) -> Vec<(f64, f64)>) -> Vec<Series> {
    let one = |arm: &&str| Series { name: (*arm).to_owned(), points: points(arm), is_joined: true, look: None };
    arms.iter().map(one).filter(|series| !series.points.is_empty()).collect()
}

fn charts(group: &Group) -> Vec<Chart> {
    let arms: Vec<&str> = group.arms.iter().map(|arm| &*arm.name).collect();
    let chart = |what: &str, label, is_log, figure: fn(&Figures) -> Option<f64>| {
        let points = |arm: &str| {
            let rungs = group.rungs.iter().filter(|rung| rung.arm == arm);
            rungs.filter_map(|rung| Some((rung.under_way.into(), figure(rung.counted()?)?))).collect()
        };
        Chart::Field(Field {
            title: format!("{}: {what}", heading(group)),
            x: Axis { label: "requests under way", is_log: true },
            y: Axis { label, is_log },
            series: series(&arms, points),
            marks: Vec::new(),
        })
    };
    vec![
        chart("completed against requests under way", "completed per second", false, |figures| Some(figures.rate)),
        chart("latency against requests under way", "p99 sojourn, ms", true, |figures| {
            Some(figures.percentile(Tail::P99)?.micros()? as f64 / 1e3)
        }),
        chart("CPU per request against requests under way", "gateway CPU, us", false, |figures| figures.cpu_us_per_req),
    ]
}

fn cores_chart(groups: &[&Group]) -> Chart {
    // In the order of the other charts, so that an arm looks the same in all of them.
    let mut arms: Vec<&str> = Vec::new();
    for arm in groups.iter().flat_map(|group| &group.arms) {
        if !arms.contains(&&*arm.name) {
            arms.push(&arm.name);
        }
    }
    let points = |arm: &str| {
        let best = |group: &&Group| {
            let rungs = group.rungs.iter().filter(|rung| rung.arm == arm);
            let rates = rungs.filter_map(|rung| Some(rung.counted()?.rate));
            Some((group.budget_vcpu, rates.max_by(f64::total_cmp)?))
        };
        groups.iter().filter_map(best).collect()
    };
    Chart::Field(Field {
        title: "throughput against cores of the gateway, with the number of users that completes most".to_owned(),
        x: Axis { label: "CPUs of the gateway", is_log: false },
        y: Axis { label: "completed per second", is_log: false },
        series: series(&arms, points),
        marks: Vec::new(),
    })
}

fn conditions(sweep: &Sweep) -> Vec<String> {
    let mut points = vec![format!("made by `{}`, weir {}", sweep.command, sweep.build)];
    let mut told: Vec<String> = Vec::new();
    for group in &sweep.groups {
        if let Some(placement) = &group.placement {
            told.push(format!("{} vCPU: {placement}; behind the gateways {}", group.budget_vcpu, sweep.behind));
        }
        let programs = group.server.iter().chain(&group.arms).filter(|arm| !arm.command.is_empty());
        told.extend(programs.map(|arm| format!("{}: {}, `{}`", arm.name, arm.version, arm.command)));
    }
    for point in told {
        if !points.contains(&point) {
            points.push(point);
        }
    }
    points.push(side_by_side::host(&sweep.host));
    points.push(format!(
        "each run {} s behind {} s of warm-up; one run each, all arms of a rung one after the other",
        sweep.window_s, sweep.warmup_s
    ));
    points.extend(
        [
            "c, users: requests under way, connections times streams (HTTP/2) or pipeline; every response was checked",
            "CPU: accumulated run time of all threads of the gateway over the window, 100 % is one CPU",
            "limited by: the part at 95 % of a CPU or more: the busiest thread of the gateway; or the lab, which is the back end's \
             thread, or the CPU of the generator with everything on it. The rate is the gateway's own only if the gateway is \
             the limit; without a full part, the next request waits for the one before",
            "failed: responses with another status, length or content, lost and refused requests",
        ]
        .map(str::to_owned),
    );
    points
}

#[cfg(test)]
mod tests {
    use weir_knee::Rules;
    use weir_load::Recorder;
    use weir_load::record::Host;

    use super::*;
    use crate::comparison::Arm;
    use crate::placement::Placement;
    use crate::swept::SCHEMA;

    fn figures(rate: f64, cpu_us_per_req: Option<f64>) -> Figures {
        let mut sojourn = Recorder::new();
        (0..2_000).for_each(|at| sojourn.record_nanos(1_000_000 + at * 500));
        Figures {
            rate,
            refused: 0,
            errors: 3,
            sojourn: sojourn.summary(),
            cpu_us_per_req,
            kernel_share: Some(0.5),
            rss_max: Some(16 << 20),
            fds_max: Some(40),
            threads: Some(6),
            gateway_busiest: cpu_us_per_req.map(|_| 0.99),
            origin_busiest: Some(0.3),
            generator_cpu: Some(0.6),
            box_us: Some(80.0),
            steal: 0.0,
        }
    }

    fn rung(arm: &str, under_way: u32, figures: Option<Figures>, failed: Option<&str>) -> Rung {
        let mode = "closed".to_owned();
        let failed = failed.map(str::to_owned);
        Rung { arm: arm.to_owned(), under_way, connections: under_way, mode, figures, failed }
    }

    fn group(budget: f64, rungs: Vec<Rung>, not_run: Option<&str>) -> Group {
        let arm = |name: &str| Arm {
            name: name.to_owned(),
            version: "1".to_owned(),
            command: if name == DIRECT { String::new() } else { format!("{name} --run") },
            config: String::new(),
        };
        let is_run = not_run.is_none();
        Group {
            name: "http1-128b".to_owned(),
            protocol: "HTTP/1.1".to_owned(),
            scenario: "name = \"http1-128b\"".to_owned(),
            payload: "128B".to_owned(),
            budget_vcpu: budget,
            placement: is_run.then(|| Placement { gateway: vec![0], origin: vec![1], generator: vec![1] }),
            not_run: not_run.map(str::to_owned),
            server: is_run.then(|| arm("nginx-origin")),
            arms: if is_run { vec![arm("weir"), arm(DIRECT)] } else { Vec::new() },
            missing: Vec::new(),
            rungs,
        }
    }

    fn sweep(kind: Kind, groups: Vec<Group>) -> Sweep {
        Sweep {
            schema: SCHEMA.to_owned(),
            run_id: "1-1".to_owned(),
            ended: 1,
            command: "weir lab sweep".to_owned(),
            build: "0".to_owned(),
            kind,
            behind: "nginx with a file".to_owned(),
            backend: Backend::Real,
            host: Host::default(),
            rules: Rules::default(),
            warmup_s: 1.0,
            window_s: 3.0,
            groups,
        }
    }

    #[test]
    fn a_ladder_has_a_row_for_each_arm_and_rung_and_published_figures_stand_apart() {
        let rungs = vec![
            rung("weir", 1, Some(figures(1_000.0, Some(50.0))), None),
            rung(DIRECT, 1, Some(figures(2_000.0, None)), None),
            rung("weir", 32, Some(figures(20_000.0, Some(45.0))), Some("invalid: steal")),
            rung(DIRECT, 32, None, Some("failed: it ended")),
        ];
        let sweep = sweep(Kind::Ladder, vec![group(1.0, rungs, None)]);
        let page = markdown(&sweep);
        let rows: Vec<Vec<&str>> = page
            .lines()
            .filter(|line| line.contains("| closed"))
            .map(|line| line.split('|').map(str::trim).collect())
            .collect();
        assert_eq!(rows.len(), 4, "{page}");
        assert_eq!(rows[0][1..6], ["1", "1", "closed", "weir", "1.0k"]);
        // 50 us for each of 1,000 requests a second are 5 % of a CPU.
        assert_eq!(rows[0][9..16], ["5", "50.0", "16.0", "40", "6", "3", "gateway"]);
        assert_eq!(rows[0][8], "n/a (n = 2000)", "too few for a p99.9");
        assert_eq!((rows[1][9], rows[1][15]), ("-", "concurrency"));
        assert_eq!((rows[2][5], rows[2][6]), ("invalid: steal", "-"), "what does not count has no figure");
        assert_eq!(rows[3][5], "failed");
        let (_, published) = page.split_once("## Published by ExpressGateway").expect("a chapter");
        assert!(published.contains("| HTTP/1.1 |") && published.contains("163"), "{page}");
        assert!(!published.contains("## "), "at the end: {page}");
        let mut report = crate::Report::default();
        let text = serde_json::to_string(&sweep).expect("JSON");
        ["a.json", "b.json"].iter().for_each(|name| report.add(name, &text));
        let (chapters, published) = {
            let page = report.render().markdown;
            let (chapters, published) = page.split_once("## Published by ExpressGateway").expect("a chapter");
            (chapters.to_owned(), published.to_owned())
        };
        assert!(chapters.contains("b.json") && !published.contains("## "), "once, and at the end: {published}");
        assert!(page.contains("> http1-128b, direct with 32 under way: failed: it ended"), "{page}");
        let read = Sweep::from_json(&serde_json::to_string(&sweep).expect("JSON")).expect("the same schema");
        assert_eq!(read, sweep);
    }

    #[test]
    fn cores_that_the_host_does_not_have_are_not_run_and_the_share_is_of_direct() {
        let rungs = vec![
            rung("weir", 64, Some(figures(20_000.0, Some(48.0))), None),
            rung(DIRECT, 64, Some(figures(25_000.0, None)), None),
        ];
        let groups = vec![group(1.0, rungs, None), group(2.0, Vec::new(), Some("not run: too few CPUs"))];
        assert!(!cores_chart(&groups.iter().collect::<Vec<_>>()).is_empty(), "what counts is drawn");
        let page = markdown(&sweep(Kind::Cores, groups));
        let row = |start: &str| {
            let line =
                page.lines().find(|line| line.split_whitespace().collect::<Vec<_>>().join(" ").starts_with(start));
            line.unwrap_or_else(|| panic!("{start} is not in\n{page}")).split('|').map(str::trim).collect::<Vec<_>>()
        };
        assert_eq!(row("| 1 | 64 | closed | weir")[5..9], ["20.0k", "96", "48.0", "80.0"]);
        assert_eq!(row("| 1 | 64 | closed | direct")[8], "-");
        assert_eq!(row("| 2 | - | - | - |")[5], "not run");
        let (_, published) = page.split_once("## Published by DaoCloud").expect("a chapter");
        assert!(published.contains("2.3k") && published.contains("no comparison"), "{page}");
        assert!(page.contains("> not run: too few CPUs."), "{page}");
        assert!(page.contains("- nginx-origin: 1, `nginx-origin --run`"), "{page}");
    }
}
