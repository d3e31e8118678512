//! The results of the cases: one table, a row for each case, a column for each protocol.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use super::{Extent, PROTOCOLS, Protocol, Waits};

/// The time that other clients may wait longer than without the attack. 100 ms are what must hold (a release build, a quiet
/// machine); a debug build on two busy cores gets more room, which is still far below any of the faults that the cases are about.
pub const ROOM: Duration = Duration::from_millis(800);

/// Limit for the wait of other clients as a multiple of their wait without a gateway, where that is more.
const FACTOR_MAX: u32 = 3;

/// Result of one case with one protocol.
#[derive(Clone, Debug)]
pub enum Cell {
    /// The victim's waits.
    Waits {
        /// Through the gateway, with the attack.
        with: Waits,
        /// Through the gateway, without it.
        without: Waits,
        /// Without a gateway, with the attack. Only in the whole table.
        direct: Option<Waits>,
        /// The result of the attack, in a word; empty if it went on to the end.
        attack: &'static str,
    },
    /// Another figure, and what of it must not be.
    Figure {
        /// As the table has it.
        text: String,
        /// Empty if the case holds.
        faults: Vec<String>,
    },
    /// The case does not apply, because of this.
    None(&'static str),
}

impl Cell {
    /// A figure without a fault so far.
    pub fn figure(text: impl Into<String>, faults: Vec<String>) -> Self {
        Self::Figure { text: text.into(), faults }
    }

    /// The failed condition.
    pub fn faults(&self) -> Vec<String> {
        match self {
            Self::None(_) => Vec::new(),
            Self::Figure { faults, .. } => faults.clone(),
            Self::Waits { with, without, direct, .. } => {
                let mut faults = Vec::new();
                // A reply of 400 MiB keeps its server busy for half a second, and the gateway takes as long again.
                let served = direct.as_ref().filter(|direct| direct.failed == 0);
                let costs_at_server = served.map_or(Duration::ZERO, |direct| direct.worst);
                let allowed = (without.worst + ROOM).max(costs_at_server * FACTOR_MAX);
                if with.worst > allowed {
                    faults.push(format!("others wait {}, and {} without it", shown(with), shown(without)));
                }
                if with.failed > 0 || with.served == 0 {
                    faults.push(format!("{} served, {} failed: {:?}", with.served, with.failed, with.errors));
                }
                if without.failed > 0 {
                    faults.push(format!("{} failed without the attack: {:?}", without.failed, without.errors));
                }
                faults
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Self::None(why) => format!("-: {why}"),
            Self::Figure { text, .. } => text.clone(),
            Self::Waits { with, without, direct, attack } => {
                let direct = direct.as_ref().map_or_else(|| "-".to_owned(), shown);
                format!("{} / {} / {direct}{attack}", shown(with), shown(without))
            }
        }
    }
}

/// The worst wait in milliseconds, and errors if there are any.
fn shown(waits: &Waits) -> String {
    let worst = waits.worst.as_secs_f64() * 1_000.0;
    let worst = if worst < 10.0 { format!("{worst:.1}") } else { format!("{worst:.0}") };
    match waits.failed {
        0 => format!("{worst} ms"),
        1 => format!("{worst} ms, 1 error"),
        failed => format!("{worst} ms, {failed} errors"),
    }
}

/// A row: its case, what of it was played, and a cell for each column.
struct Row {
    case: String,
    what: String,
    cells: BTreeMap<&'static str, String>,
}

static TABLE: Mutex<Vec<Row>> = Mutex::new(Vec::new());

/// Plays a case with every protocol; `row` begins with its id (`S1`).
///
/// # Panics
/// If it does not hold with one of them, when all have been played.
pub fn every(case: &str, play: impl Fn(&'static dyn Protocol, Extent) -> Vec<(String, Cell)>) {
    let extent = Extent::of_environment();
    let mut faults = Vec::new();
    for protocol in PROTOCOLS {
        for (row, cell) in play(protocol, extent) {
            record(case, &row, protocol.name(), &cell);
            let named = cell.faults();
            faults.extend(named.into_iter().map(|fault| format!("{case}, {row}, {}: {fault}", protocol.name())));
        }
    }
    if extent.is_whole {
        write();
    }
    assert!(faults.is_empty(), "{} of the case's claims do not hold:\n{}", faults.len(), faults.join("\n"));
}

/// Puts a cell into the table, and says it.
fn record(case: &str, row: &str, column: &'static str, cell: &Cell) {
    println!("{case} | {row} | {column} | {}", cell.text());
    let mut table = TABLE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let found = table.iter_mut().find(|known| known.case == case && known.what == row);
    match found {
        Some(known) => drop(known.cells.insert(column, cell.text())),
        None => {
            let cells = BTreeMap::from([(column, cell.text())]);
            table.push(Row { case: case.to_owned(), what: row.to_owned(), cells });
        }
    }
}

/// Writes what there is so far: the last case to end leaves the whole table.
fn write() {
    let mut table = TABLE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // By the number of the case; its rows stay in order.
    table.sort_by_key(|row| row.case.trim_start_matches('S').parse::<u32>().unwrap_or(u32::MAX));
    let columns = PROTOCOLS.map(Protocol::name);
    let mut text = format!("| case | {} |\n|---|{}\n", columns.join(" | "), "---|".repeat(columns.len()));
    for row in &*table {
        let cells = columns.map(|column| row.cells.get(column).cloned().unwrap_or_default());
        let _ = writeln!(text, "| {}: {} | {} |", row.case, row.what, cells.join(" | "));
    }
    let file = file();
    std::fs::write(&file, &text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    println!("{text}\nin {}", file.display());
}

/// Beside the folder of the build.
fn file() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let target = test.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
    target.map_or_else(std::env::temp_dir, std::path::Path::to_path_buf).join("isolation.md")
}
