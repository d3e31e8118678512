//! `weir lab merge`: the parts of one run, sent by several machines, become one result.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use weir_load::{Gate, Named, StepRecord, merge, scenario::PHASES_MAX, threshold::with_target};
use weir_trials::together::protocol::LINE_BYTES_MAX;

use crate::{
    lab_load::{
        finish,
        show::{JsonLines, show},
        source::thresholds,
    },
    lab_page,
};

/// Merge the results of a load that was sent in parts (`weir lab load --part`).
///
/// For each phase, the command sums counts and histograms, and computes a new verdict. Results of different runs are refused.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  weir lab merge one.jsonl two.jsonl\n  \
                  weir lab merge part-*.jsonl --json whole.jsonl   # and its page, whole.html\n\n\
                  The files must belong to one run: the same scenario, target, build and start, and each part once.\n\n\
                  Exit status:\n  \
                  0    merged, and every threshold is met\n  \
                  1    refused\n  \
                  2    wrong usage\n  \
                  98   the run cannot judge the thresholds\n  \
                  99   the target missed a threshold")]
pub struct MergeArgs {
    /// The files that the parts wrote with --json.
    #[arg(value_name = "PART.jsonl", required = true)]
    files: Vec<PathBuf>,

    /// Write one JSON line per phase, with all histograms, to this file, and an HTML page beside it. `-` writes the lines to standard
    /// output, without tables and page.
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,

    /// Write the HTML page (tables and latencies) to this file, not beside the file of --json. The page needs no network.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Threshold for the exit status, such as 'p99<5ms'; may be repeated. The latency target of the scenario is an additional threshold;
    /// its other thresholds are ignored.
    #[arg(long = "threshold", value_name = "FIGURE<BOUND")]
    thresholds: Vec<String>,
}

pub fn run(args: &MergeArgs) -> Result<ExitCode, String> {
    let gates = thresholds(&args.thresholds)?;
    let mut phases: BTreeMap<u32, Vec<(String, StepRecord)>> = BTreeMap::new();
    for path in &args.files {
        for (name, record) in read(path)? {
            phases.entry(record.identity.step).or_default().push((name, record));
        }
    }
    if phases.is_empty() {
        return Err("no records in these files; did the parts end with an error?".to_owned());
    }
    let merged = phases.iter().map(|(step, parts)| {
        let named: Vec<Named<'_>> = parts.iter().map(|(name, record)| Named { name, record }).collect();
        let (mut record, _) = merge(&named).map_err(|error| format!("phase {}: {error}", step + 1))?;
        let part = parts.iter().find_map(|(_, record)| record.part.as_ref());
        let target = part.and_then(|part| part.slo_p99_us).map(Duration::from_micros);
        record.judge(&with_target(&gates, target)).map_err(|error| error.to_string())?;
        Ok((part.map_or(String::new(), |part| part.phase.clone()), record))
    });
    // Nothing is written, and no file emptied, before all is known to be right.
    let merged: Vec<(String, StepRecord)> = merged.collect::<Result<_, String>>()?;
    let page = lab_page::place(args.json.as_deref(), args.html.as_deref());
    page.as_deref().map_or(Ok(()), lab_page::check)?;
    let mut json = args.json.as_deref().map(JsonLines::create).transpose()?;
    let written = merged.iter().try_for_each(|(phase, record)| show(phase, record, json.as_mut()));
    let gate = merged.iter().map(|(_, record)| Gate::of(record)).max().unwrap_or(Gate::Met);
    let lines = merged.iter().map(|(_, record)| record.to_line()).collect::<Result<Vec<_>, _>>();
    finish(written, gate, page.as_deref(), &lines.map_err(|error| error.to_string())?, args.json.as_deref())
}

/// Every record of a file with its name for messages: file and line.
fn read(path: &Path) -> Result<Vec<(String, StepRecord)>, String> {
    let shown = path.display();
    let mut input = BufReader::new(File::open(path).map_err(|error| format!("{shown}: {error}"))?);
    let mut records = Vec::new();
    for number in 1.. {
        let (name, mut line) = (format!("{shown}:{number}"), String::new());
        let length =
            input.by_ref().take(LINE_BYTES_MAX).read_line(&mut line).map_err(|error| format!("{name}: {error}"))?;
        if length == 0 {
            break;
        }
        if records.len() == PHASES_MAX {
            return Err(format!("{shown}: more than {PHASES_MAX} records; no scenario has so many phases"));
        }
        records.push((name.clone(), StepRecord::from_line(&line).map_err(|error| format!("{name}: {error}"))?));
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_line_that_is_no_record_is_refused_with_its_number_and_nothing_is_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.jsonl");
        let refusal = |text: &str| {
            fs::write(&path, text).expect("written");
            let (files, json) = (vec![path.clone()], Some(path.clone()));
            let args = MergeArgs { files, json, html: None, thresholds: Vec::new() };
            let refusal = run(&args).expect_err("no records of parts");
            assert_eq!(fs::read_to_string(&path).expect("still there"), text);
            refusal
        };
        assert!(refusal("").starts_with("no records in these files"));
        assert!(refusal("{\"schema\":\"weir.lab.knee/1\"}\n").contains("a.jsonl:1: schema is \"weir.lab.knee/1\""));
        assert!(refusal("text\n").contains("a.jsonl:1: no record of a step"));
        let files = vec![folder.path().join("absent.jsonl")];
        let absent = MergeArgs { files, json: None, html: None, thresholds: Vec::new() };
        assert!(run(&absent).is_err_and(|error| error.contains("absent.jsonl: ")));
    }
}
