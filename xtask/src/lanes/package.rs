//! The Debian package on a throw-away machine (`tests/package`), and the container file.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{LANE_DEADLINE, container};
use crate::command::{command, run_counted};
use crate::lane::{Report, Run};
use crate::package::{self, Request, control};
use crate::totals::Runner;

/// Files for the throw-away machine besides the packages, relative to the root of the workspace.
const FILES: [&str; 2] = ["tests/package/checks.sh", "packaging/container/init"];

/// Makes two versions of the package of the program that the lanes test, and runs `checks.sh` with them.
pub fn run(run: &Run<'_>) -> Result<Report> {
    let folder = tempfile::tempdir().context("a folder for the packages")?;
    let own = control::version(run.workspace, None)?;
    for (name, version) in [("one.deb", own.clone()), ("two.deb", format!("{own}+next"))] {
        let request = Request {
            binary: Some(run.programs()?.binary("weir")?.to_owned()),
            version: Some(version),
            folder: Some(folder.path().to_owned()),
            is_quick: true,
        };
        fs::rename(package::make(run.workspace, &request)?, folder.path().join(name))?;
    }
    for file in FILES {
        let file = run.workspace.root.join(file);
        fs::copy(&file, folder.path().join(file.file_name().context("a file")?))?;
    }
    let mut report = on_throw_away_machine(run, folder.path())?;
    report.join(container::check(run)?);
    Ok(report)
}

fn on_throw_away_machine(run: &Run<'_>, folder: &Path) -> Result<Report> {
    let machine = run.workspace.root.join("tests/package/machine.sh");
    ensure!(machine.is_file(), "{} is missing", machine.display());
    let words = [&*machine.to_string_lossy(), &*folder.to_string_lossy()].map(str::to_owned);
    let mut command = command(folder, &words.each_ref().map(String::as_str));
    let finished = run_counted(&mut command, Runner::Node, LANE_DEADLINE)?;
    Ok(Report::of_tests("package", finished, false))
}
