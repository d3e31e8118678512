//! `weir lab report`: a folder of results as one page.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use weir_trials::Report;

/// Bytes of a result file that is read. 64 MiB: hundreds of trials with whole histograms.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Write one report from the results of a folder: report.md, and report.html with charts, which needs no network.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir lab knee scenario.toml --json results/synthetic.json\n  weir lab compare scenario.toml --json results/compared.json\n  weir lab ladder scenario.toml --json results/ladder.json\n  weir lab cores scenario.toml --json results/cores.json\n  weir lab report results\n\nIt reads the files that end in .json; what is no result of the lab is named. Exit: 0 written, 1 there is no result, 2 the command line is wrong."
)]
pub struct ReportArgs {
    /// The folder with results.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Where the report goes, if not into the folder itself.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(args: &ReportArgs) -> Result<(), String> {
    let shown = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let mut report = Report::default();
    for path in json_files(&args.folder).map_err(|error| shown(&args.folder, error))? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match text_of(&path) {
            Ok(text) => report.add(&name, &text),
            Err(why) => report.add_unread(&name, why),
        }
    }
    for (name, why) in report.unread() {
        eprintln!("not read: {name}: {why}");
    }
    if report.is_empty() {
        return Err(format!(
            "no result in {}; `weir lab knee`, `compare`, `ladder` and `cores` write one with --json",
            args.folder.display()
        ));
    }
    let rendered = report.render();
    let out = args.out.as_deref().unwrap_or(&args.folder);
    fs::create_dir_all(out).map_err(|error| shown(out, error))?;
    for (name, text) in [("report.md", &rendered.markdown), ("report.html", &rendered.html)] {
        let path = out.join(name);
        fs::write(&path, text).map_err(|error| shown(&path, error))?;
        println!("{}", path.display());
    }
    Ok(())
}

fn text_of(path: &Path) -> Result<String, String> {
    let length = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if length > FILE_BYTES_MAX {
        return Err(format!("more than {FILE_BYTES_MAX} bytes; no result of the lab is so large"));
    }
    fs::read_to_string(path).map_err(|error| error.to_string())
}

fn json_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
