//! `weir lab report`: results of the lab as one page.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use weir_trials::Report;

/// Bytes of a result file that is read. 64 MiB: hundreds of trials with whole histograms.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Write one report from the results in a folder: report.md, and report.html with charts. The HTML page needs no network.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  weir lab load http://127.0.0.1:8080/ --rate 2000 --json results/load.jsonl\n  \
                  weir lab knee scenario.toml --json results/synthetic.json\n  \
                  weir lab compare scenario.toml --json results/compared.json\n  \
                  weir lab ladder scenario.toml --json results/ladder.json\n  \
                  weir lab cores scenario.toml --json results/cores.json\n  \
                  weir lab report results\n  \
                  weir lab report load.jsonl before.jsonl --out page\n\n\
                  In a folder, the command reads the files that end in .json and .jsonl.\n\
                  If a file is not a result of the lab, standard error and the report name it, and the command fails after writing \
                  the report.\n\n\
                  Exit status: 0, report written; 1, a file is not a result, or there is no result; 2, wrong usage.")]
pub struct ReportArgs {
    /// Folders with results, or result files.
    #[arg(value_name = "DIR|FILE", required = true)]
    sources: Vec<PathBuf>,

    /// Folder for the report [default: the first folder, or the folder of the first file].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(args: &ReportArgs) -> Result<(), String> {
    let shown = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let mut report = Report::default();
    for source in &args.sources {
        let files = if source.is_dir() { results_of(source) } else { Ok(vec![source.clone()]) };
        for path in files.map_err(|error| shown(source, error))? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match text_of(&path) {
                Ok(text) if is_lines(&path) => report.add_lines(&name, &text),
                Ok(text) => report.add(&name, &text),
                Err(why) => report.add_unread(&name, why),
            }
        }
    }
    let unread = report.unread().to_vec();
    for (name, why) in &unread {
        eprintln!("not read: {name}: {why}");
    }
    if report.is_empty() {
        let names: Vec<String> = args.sources.iter().map(|source| source.display().to_string()).collect();
        return Err(format!(
            "no result in {}; `weir lab load`, `knee`, `compare`, `ladder` and `cores` write one with --json",
            names.join(", ")
        ));
    }
    let rendered = report.render();
    let out = args.out.clone().unwrap_or_else(|| place_of(&args.sources));
    fs::create_dir_all(&out).map_err(|error| shown(&out, error))?;
    // The page comes last: it is the one to open.
    for (name, text) in [("report.md", &rendered.markdown), ("report.html", &rendered.html)] {
        let path = out.join(name);
        fs::write(&path, text).map_err(|error| shown(&path, error))?;
        println!("{}", path.display());
    }
    match unread.len() {
        0 => Ok(()),
        1 => Err("1 file is no result of the lab; it is named above".to_owned()),
        count => Err(format!("{count} files are no results of the lab; they are named above")),
    }
}

/// The first folder, or that of the first file.
fn place_of(sources: &[PathBuf]) -> PathBuf {
    let first = sources.first().map_or(Path::new("."), PathBuf::as_path);
    if first.is_dir() {
        return first.to_owned();
    }
    // The folder of a bare name has no name.
    first.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

fn is_lines(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "jsonl")
}

fn text_of(path: &Path) -> Result<String, String> {
    let length = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if length > FILE_BYTES_MAX {
        return Err(format!("more than {FILE_BYTES_MAX} bytes; no result of the lab is so large"));
    }
    fs::read_to_string(path).map_err(|error| error.to_string())
}

fn results_of(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_result = path.extension().is_some_and(|extension| extension == "json" || extension == "jsonl");
        if is_result && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
