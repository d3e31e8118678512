//! The container file: no engine builds it here. hadolint reads it, each file that it copies is there, and the program takes the
//! words that it is started with.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::LANE_DEADLINE;
use crate::command::{command, output, run_counted};
use crate::lane::{Report, Run};
use crate::setup;
use crate::totals::Runner;

/// From the root of the workspace.
const FILE: &str = "packaging/container/Containerfile";

/// Where rustls looks for the authorities of the platform.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Checks the container file.
pub fn check(run: &Run<'_>) -> Result<Report> {
    let root = &run.workspace.root;
    let text = std::fs::read_to_string(root.join(FILE)).context(FILE)?;
    let hadolint = setup::environment(run.workspace).join("bin/hadolint");
    let linted = run_counted(&mut command(root, &[&hadolint.to_string_lossy(), FILE]), Runner::None, LANE_DEADLINE)?;
    let mut report = Report::of_program("hadolint", linted, false);
    for source in copied(&text).filter(|source| !root.join(source).exists()) {
        report.problems.push(format!("package: {FILE} copies {source}, which is missing"));
    }
    if !has_authorities(&text) {
        report
            .problems
            .push(format!("package: {FILE} copies no {AUTHORITIES} into the image: no upstream with TLS is verified"));
    }
    let program = run.programs()?.binary("weir")?;
    for words in started(&text)? {
        if let Err(error) = accepts(program, &words) {
            report.problems.push(format!("package: {FILE} starts `weir {}`: {error:#}", words.join(" ")));
        }
    }
    Ok(report)
}

/// The image, which is the last stage, gets the bundle of authorities.
fn has_authorities(text: &str) -> bool {
    let image = text.rsplit("\nFROM ").next().unwrap_or_default();
    image.lines().any(|line| line.starts_with("COPY ") && line.ends_with(&format!(" {AUTHORITIES}")))
}

/// Files of the tree that go into the image; the context itself is one.
fn copied(text: &str) -> impl Iterator<Item = &str> {
    let copies = text.lines().filter_map(|line| line.strip_prefix("COPY ")).filter(|line| !line.starts_with("--from"));
    copies.flat_map(|line| {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        words.pop();
        words
    })
}

/// The words behind `weir` of each command of the image.
fn started(text: &str) -> Result<Vec<Vec<String>>> {
    let lists = text.lines().filter_map(|line| Some(line.split_once("CMD [")?.1.split_once(']')?.0));
    let words = lists.map(|list| list.split(',').map(|word| word.trim().trim_matches('"').to_owned()));
    let mut commands: Vec<Vec<String>> = words.map(Iterator::collect).collect();
    // The entry point puts the program before the words of a plain CMD.
    commands.iter_mut().for_each(|words| words.retain(|word| word != "weir"));
    ensure!(commands.len() == 2, "{FILE}: a health check and a command in the form of a list, not {}", commands.len());
    Ok(commands)
}

/// The subcommand exists and has each option: its help names them.
fn accepts(program: &Path, words: &[String]) -> Result<()> {
    let subcommand = words.first().context("no subcommand")?;
    let help = output(&mut command(Path::new("/"), &[&program.to_string_lossy(), subcommand, "--help"]))?;
    for option in words.iter().filter(|word| word.starts_with("--")) {
        ensure!(
            help.split_whitespace().any(|word| word.trim_end_matches(',') == option),
            "there is no option {option}"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "COPY . .\nCOPY --from=build /a /b\nCOPY packaging/x y z/\nHEALTHCHECK --timeout=5s CMD [\"weir\", \"top\"]\n\
                        CMD [\"run\", \"--config\", \"/f\"]\n";

    #[test]
    fn copied_files_and_commands_are_found() {
        assert_eq!(copied(TEXT).collect::<Vec<_>>(), [".", "packaging/x", "y"]);
        assert_eq!(started(TEXT).expect("two"), [vec!["top"], vec!["run", "--config", "/f"]]);
        assert!(started("CMD weir run\n").is_err());
        assert!(!has_authorities(TEXT));
        let with = |stage: &str| format!("FROM a\nUSER 1\nFROM b\n{stage}COPY --from=c {AUTHORITIES} {AUTHORITIES}\n");
        assert!(has_authorities(&with("")) && !has_authorities(&(with("") + "FROM d\n")));
    }

    #[test]
    fn an_option_that_the_help_does_not_name_is_found() {
        let cat = Path::new("/bin/cat");
        let accepted = |words: &[&str]| accepts(cat, &words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert!(accepted(&["--", "--show-all"]).is_err(), "cat takes `--` for the end of its options");
        assert!(accepted(&["-n", "--show-all"]).is_ok());
        assert!(accepted(&["-n", "--colour"]).is_err());
    }
}
