//! `--json` and `--html` of the commands of the lab: where a result goes, and its page beside it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use weir_trials::{Report, file};

/// Arguments of the commands with one result at their end.
#[derive(Debug, Default, Args)]
pub struct ResultArgs {
    /// Write the result with all its runs to this file, and an HTML page beside it, such as results/a.html beside results/a.json.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write the HTML page (charts and tables) to this file, not beside the file of --json. The page needs no network.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl ResultArgs {
    /// Before any load, so that no result is lost for want of a place.
    pub fn check(&self) -> Result<(), String> {
        if let Some(json) = &self.json {
            if json == Path::new("-") {
                return Err("--json -: the tables of this command are on standard output; name a file".to_owned());
            }
            check(json)?;
        }
        self.page().as_deref().map_or(Ok(()), check)
    }

    /// The result, then its page, whose path is the last line of the command.
    pub fn store(&self, result: &impl serde::Serialize) -> Result<(), String> {
        if let Some(json) = &self.json {
            file::write(json, result).map_err(|error| format!("{}: {error}", json.display()))?;
        }
        let Some(page) = self.page() else { return Ok(()) };
        write(&page, &serde_json::to_string(result).map_err(|error| error.to_string())?)?;
        println!("{}", page.display());
        Ok(())
    }

    fn page(&self) -> Option<PathBuf> {
        place(self.json.as_deref(), self.html.as_deref())
    }
}

/// Where the page of a result goes: where `--html` says, or beside the file of `--json`. Standard output and devices have
/// nothing beside them, and a page takes the place of no result.
pub fn place(json: Option<&Path>, html: Option<&Path>) -> Option<PathBuf> {
    html.map(Path::to_owned).or_else(|| {
        let page = json.filter(|json| *json != Path::new("-"))?.with_extension("html");
        let is_file = fs::metadata(json?).map_or(true, |found| found.is_file());
        (is_file && Some(&*page) != json).then_some(page)
    })
}

/// Whether a file can be written to `path`.
pub fn check(path: &Path) -> Result<(), String> {
    file::try_write(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes the page of a result, JSON text or lines of it.
pub fn write(path: &Path, result: &str) -> Result<(), String> {
    let mut report = Report::default();
    report.add("this run", result);
    if let Some((_, why)) = report.unread().first() {
        return Err(format!("the page of the result: {why}"));
    }
    fs::write(path, report.render().html).map_err(|error| format!("{}: {error}", path.display()))
}

/// Joins the result of a command and the result of storing it: neither error hides the other.
pub fn both(found: Result<(), String>, stored: Result<(), String>) -> Result<(), String> {
    match (found, stored) {
        (Err(found), Err(stored)) => Err(format!("{found}; and {stored}")),
        (found, stored) => found.and(stored),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_stands_beside_its_result_and_never_in_its_place() {
        let place = |json: Option<&str>, html: Option<&str>| {
            super::place(json.map(Path::new), html.map(Path::new)).map(|page| page.display().to_string())
        };
        assert_eq!(place(Some("no/such/a.json"), None).as_deref(), Some("no/such/a.html"));
        assert_eq!(place(Some("a.jsonl"), Some("b.html")).as_deref(), Some("b.html"));
        assert_eq!(place(None, Some("b.html")).as_deref(), Some("b.html"));
        for json in [None, Some("-"), Some("/dev/null"), Some("a.html")] {
            assert_eq!(place(json, None), None, "{json:?}");
        }
    }

    #[test]
    fn a_place_that_is_none_is_refused_before_the_load_and_no_error_hides_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let absent = folder.path().join("absent/a.json");
        let args = |json: Option<PathBuf>, html: Option<PathBuf>| ResultArgs { json, html };
        for wrong in [args(Some(absent.clone()), None), args(None, Some(absent)), args(Some("-".into()), None)] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        let right = args(Some(folder.path().join("a.json")), None);
        right.check().expect("a place");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing is left there");
        let error = |text: &str| Err::<(), String>(text.to_owned());
        assert_eq!(both(error("no size"), error("full")), error("no size; and full"));
        assert_eq!(both(error("no size"), Ok(())), error("no size"));
        assert_eq!(both(Ok(()), error("full")), error("full"));
    }
}
