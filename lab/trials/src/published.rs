//! Figures that others published of their gateways, in tables of their own: they come from other machines and builds, so they
//! stand beside no row that was measured here.

use weir_knee::markdown::Table;
use weir_knee::plan::Shape;

use crate::document::{Document, Element};
use crate::result::QUICK;
use crate::swept::{Kind, Sweep};

/// In the row of a search before a server that was there.
const REAL: &str = "real back end";
/// In the rows of the workloads of [`REDIS`] and [`POSTGRES`].
const MIXED: &str = ": GET x 80 + SET x 20, 64B,";
const SELECT: &str = ": SELECT of one account,";
const TPCB: &str = ": TPC-B,";
/// The same of [`AI`].
const CHAT: &str = ": OpenAI chat, 1KiB,";
const NOTE: &str = "On other machines and with other builds: a scale, and no comparison with the figures of this page.";

/// A clean knee of one workload.
struct Knees {
    /// As the table calls the back end.
    kind: &'static str,
    /// The workload in the row of a search.
    mix: &'static str,
    /// Before a server of its own, or a synthetic origin.
    is_real: bool,
    /// With 1, 2, 4 and 8 vCPU; then first overload and peak with 8.
    cells: [&'static str; 6],
}

/// Eden, "Gateway Capacity Planning": Redis, mixed GET and SET, open loop.
const REDIS: [Knees; 2] = [
    Knees { kind: "Redis", mix: MIXED, is_real: true, cells: ["200k", "400k", "400k", "400k", "500k", "501k"] },
    Knees {
        kind: "synthetic",
        mix: MIXED,
        is_real: false,
        cells: ["below 400k", "500k", "550k", "600k", "650k", "616k"],
    },
];

/// The same page: PostgreSQL, open loop, through a gateway that authenticates no client and has no TLS.
const POSTGRES: [Knees; 2] = [
    Knees {
        kind: "PostgreSQL, TPC-B",
        mix: TPCB,
        is_real: true,
        cells: ["3.3k", "4.2k", "4.2k", "4.2k", "not reached", "4.2k"],
    },
    Knees {
        kind: "synthetic, select only",
        mix: SELECT,
        is_real: false,
        cells: ["17.4k", "35.5k", "67.2k", "120.2k", "not reached", "120.2k"],
    },
];

/// The same page: language models, open loop.
const AI: [Knees; 1] = [Knees {
    kind: "synthetic OpenAI chat",
    mix: CHAT,
    is_real: false,
    cells: ["2.0k", "3.0k", "4.0k", "5.0k", "6.0k", "5.6k"],
}];

/// ExpressGateway, `docs/guide/PERFORMANCE.md`: one shared machine of 8 vCPU, closed loop. Protocol, requests under way, CPU
/// microseconds per request, and what else was so.
const LADDER: [(&str, &str, &str, &str); 3] =
    [("HTTP/1.1", "32", "163", "clear text"), ("HTTP/2", "128", "59", "TLS"), ("WebSocket", "32", "37", "clear text")];

/// DaoCloud, load test of the DCE 5.0 cloud-native gateway (Contour and Envoy), closed loop: requests per second with 1 to 6
/// CPUs.
const CORES: [&str; 6] = ["1.2k", "2.3k", "3.6k", "4.3k", "4.7k", "5.4k"];

/// A chapter for each family, if there is a figure for one of its workloads.
pub(crate) fn of_knees<'a>(shapes: impl Iterator<Item = &'a Shape>) -> Document {
    let shapes: Vec<&Shape> = shapes.collect();
    let mut page = chapter("Published by Eden: Redis, GET and SET, req/s", knees(&REDIS, &shapes));
    page.extend(chapter("Published by Eden: PostgreSQL, transactions/s", knees(&POSTGRES, &shapes)));
    page.extend(chapter("Published by Eden: language models, req/s", knees(&AI, &shapes)));
    page
}

/// Those of `all` whose workload has a search among `shapes`.
fn knees(all: &[Knees], shapes: &[&Shape]) -> Table {
    let mut table = Table::new(&["back end", "1 vCPU", "2 vCPU", "4 vCPU", "8 vCPU", "first overload", "peak"]);
    for known in all {
        let is_theirs = |shape: &&Shape| {
            let row = &shape.row;
            row.contains(known.mix)
                && shape.telemetry == "on"
                && !row.ends_with(QUICK)
                && row.contains(REAL) == known.is_real
        };
        if shapes.iter().any(is_theirs) {
            table.row([known.kind].into_iter().chain(known.cells).map(str::to_owned).collect());
        }
    }
    table
}

/// Chapters, if there are figures for what these sweeps varied.
pub(crate) fn of_sweeps(sweeps: &[&Sweep]) -> Document {
    let has = |kind: Kind, protocol: &str| {
        let groups = sweeps.iter().filter(|sweep| sweep.kind == kind).flat_map(|sweep| &sweep.groups);
        groups.into_iter().any(|group| group.protocol == protocol && !group.rungs.is_empty())
    };
    let mut ladder = Table::new(&["protocol", "c", "CPU us/request", "with"]);
    for (protocol, under_way, micros, with) in LADDER {
        if has(Kind::Ladder, protocol) {
            ladder.row([protocol, under_way, micros, with].map(str::to_owned).to_vec());
        }
    }
    let mut cores = Table::new(&["cores", "RPS"]);
    if has(Kind::Cores, "HTTP/1.1") {
        (1..).zip(CORES).for_each(|(count, rate): (u32, _)| cores.row(vec![count.to_string(), rate.to_owned()]));
    }
    let mut page = chapter("Published by ExpressGateway, closed loop", ladder);
    page.extend(chapter("Published by DaoCloud for DCE 5.0, closed loop", cores));
    page
}

fn chapter(title: &str, table: Table) -> Document {
    let mut page = Document::default();
    if !table.is_empty() {
        page.add(Element::Heading(2, title.to_owned()));
        page.add(Element::Text(NOTE.to_owned()));
        page.add(Element::Table(table));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_others_stand_in_a_chapter_of_their_own_and_only_for_their_workload() {
        let shape = |row: &str| Shape {
            row: row.to_owned(),
            budget_vcpu: 1.0,
            budget_kind: "cpuset".to_owned(),
            driver: "auto".to_owned(),
            tls: "off".to_owned(),
            telemetry: "on".to_owned(),
        };
        let text = |row: &str| of_knees([shape(row)].iter()).markdown();
        let synthetic = text("a: GET x 80 + SET x 20, 64B, 50 connections, synthetic back end");
        assert!(synthetic.contains("| synthetic") && synthetic.contains("below 400k"), "{synthetic}");
        let observed = Shape { telemetry: "off".to_owned(), ..shape("a: GET x 80 + SET x 20, 64B, real back end") };
        assert_eq!(of_knees([observed].iter()).markdown().trim(), "", "theirs observe themselves");
        let real = text("a: GET x 80 + SET x 20, 64B, 50 connections, real back end");
        assert!(real.starts_with("## Published by Eden") && real.contains("| Redis") && !real.contains("synthetic"));
        assert!(real.contains("no comparison"), "{real}");
        let select = text("a: SELECT of one account, simple, one row, 16 connections, synthetic back end");
        assert!(select.contains("17.4k") && select.contains("120.2k") && !select.contains("TPC-B"), "{select}");
        let tpcb = text("a: TPC-B, simple, one row, 16 connections, real back end");
        assert!(tpcb.contains("| PostgreSQL, TPC-B") && !tpcb.contains("120.2k"), "{tpcb}");
        let chat = text("a: OpenAI chat, 1KiB, 64 connections, prompts of 512 bytes, synthetic back end");
        assert!(chat.contains("synthetic OpenAI chat") && chat.contains("6.0k") && chat.contains("5.6k"), "{chat}");
        let stream = text("a: OpenAI chat as a stream of 64 events, 1KiB, 64 connections, synthetic back end");
        assert_eq!(stream.trim(), "", "theirs is of whole replies");
        let others = ["a: GET x 80 + INCR x 20, 64B, real back end", "a: GET x 80 + SET x 20, 1KiB, real back end"];
        for other in others.map(str::to_owned).into_iter().chain([format!("a{MIXED} real back end{QUICK}")]) {
            assert_eq!(text(&other).trim(), "", "{other}");
        }
    }
}
