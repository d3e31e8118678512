//! `--html` of the commands of the lab: the page of one result.

use std::{fs, path::Path};

use weir_trials::Report;

/// Writes the page of a result, JSON text or lines of it.
pub fn write(path: &Path, result: &str) -> Result<(), String> {
    let mut report = Report::default();
    report.add("this run", result);
    if let Some((_, why)) = report.unread().first() {
        return Err(format!("--html: {why}"));
    }
    fs::write(path, report.render().html).map_err(|error| format!("{}: {error}", path.display()))
}

/// The same of a result that is not text yet; its path is the last line of the command.
pub fn of(path: Option<&Path>, result: &impl serde::Serialize) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    write(path, &serde_json::to_string(result).map_err(|error| error.to_string())?)?;
    println!("{}", path.display());
    Ok(())
}
