//! `cargo xtask bench NAME`: the results of a folder of `docs/results`, measured by `weir lab compare` and `weir lab knee`.
//!
//! | file | concept |
//! |---|---|
//! | [`postgres`] | pgbench's tables in a PostgreSQL, beside PgBouncer |
//! | [`mongodb`] | the lab's own origin of MongoDB, beside Envoy and HAProxy |
//! | [`ai`] | the lab's own origin of language models, beside Envoy, LiteLLM and Portkey |
//! | [`flags`] | the lab's own origin of feature flags, beside Unleash Edge |
//! | [`server`] | the PostgreSQL behind the gateways, with pgbench's tables |

pub mod ai;
pub mod flags;
pub mod mongodb;
pub mod postgres;
pub mod server;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::command::run;
use crate::package::PROFILE;
use crate::programs::cargo;
use crate::workspace::Workspace;

/// The measurement of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Gateways side by side, in front of the server of the bench, or of the lab's own origin if it has none.
    Compare,
    /// The clean knee in front of the same.
    Knee,
    /// The clean knee in front of the lab's own origin.
    KneeOfOrigin,
}

/// A result of a bench.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Name of its result, and the word of `--only`.
    name: &'static str,
    kind: Kind,
    /// File of `examples/lab`.
    scenario: &'static str,
    /// Further words of its command; peers first.
    words: &'static [&'static str],
}

/// A page of results and its parts.
#[derive(Clone, Copy, Debug)]
pub struct Bench {
    /// The word of the command line, the folder of its results, and the name of its page.
    name: &'static str,
    parts: &'static [Part],
    /// The introduction of the page.
    about: &'static str,
    /// The row of the page in the list of pages.
    row: &'static str,
}

/// A part ends within this time, or is stopped: many blocks take long.
const PART_DEADLINE: Duration = Duration::from_secs(2 * 3_600);
/// Seconds of a run, where the command line does not say.
const SECONDS: &str = "3";

/// The words behind the name of a bench.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Names of the parts; empty: all.
    only: Vec<String>,
    /// Two blocks of two seconds: shows that everything works.
    is_quick: bool,
    blocks: Option<String>,
    seconds: Option<String>,
    /// The program; absent: it is built.
    binary: Option<PathBuf>,
    /// Where results go; absent: the folder of the page, or with `is_quick` the folder of build output.
    folder: Option<PathBuf>,
}

impl Request {
    /// Reads the words behind `bench NAME`.
    ///
    /// # Errors
    /// A word is no option, lacks its value, or names no part.
    pub fn parse(bench: &Bench, words: &[&str]) -> Result<Self> {
        let mut request = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match *word {
                "--only" => request.only = value()?.split(',').map(str::to_owned).collect(),
                "--quick" => request.is_quick = true,
                "--blocks" => request.blocks = Some((*value()?).to_owned()),
                "--seconds" => request.seconds = Some((*value()?).to_owned()),
                "--binary" => request.binary = Some((*value()?).into()),
                "--folder" => request.folder = Some((*value()?).into()),
                _ => bail!("`{word}` is no option of `bench {}`; `cargo xtask help` shows them", bench.name),
            }
        }
        let has_length = request.blocks.is_some() || request.seconds.is_some();
        ensure!(!(request.is_quick && has_length), "--quick has blocks and seconds of its own");
        for name in &request.only {
            let known: Vec<&str> = bench.parts.iter().map(|part| part.name).collect();
            ensure!(known.contains(&&**name), "no part `{name}`; there are {}", known.join(", "));
        }
        Ok(request)
    }

    /// Whether the results are those of the page.
    fn is_published(&self) -> bool {
        !self.is_quick && self.folder.is_none()
    }

    fn parts(&self, bench: &Bench) -> impl Iterator<Item = &'static Part> {
        bench.parts.iter().filter(|part| self.only.is_empty() || self.only.iter().any(|name| name == part.name))
    }

    /// Words of the command of a part. `behind`: the server, if it is not the lab's own origin.
    fn words(&self, part: &Part, behind: Option<&str>, folder: &Path) -> Vec<String> {
        let command = if part.kind == Kind::Compare { "compare" } else { "knee" };
        let scenario = format!("examples/lab/{}.toml", part.scenario);
        let mut words = ["lab", command, &scenario].map(str::to_owned).to_vec();
        if let Some(behind) = behind
            && part.kind != Kind::KneeOfOrigin
        {
            words.extend(["--behind", behind].map(str::to_owned));
        }
        words.extend(part.words.iter().map(|word| (*word).to_owned()));
        if self.is_quick {
            words.push("--quick".to_owned());
        } else if part.kind == Kind::Compare {
            words.extend(["--seconds".to_owned(), self.seconds.clone().unwrap_or_else(|| SECONDS.to_owned())]);
            words.extend(self.blocks.iter().flat_map(|blocks| ["--blocks".to_owned(), blocks.clone()]));
        }
        // A path of the tree stays as it is in the result, which says how it was made.
        let file = folder.join(format!("{}.json", part.name));
        words.extend(["--json".to_owned(), file.to_string_lossy().into_owned()]);
        words
    }
}

/// Measures the parts, one after the other; `one` runs the command of each. A part that fails does not keep the others from running.
fn measure(
    workspace: &Workspace,
    bench: &Bench,
    request: &Request,
    behind: Option<&str>,
    mut one: impl FnMut(Command) -> Result<()>,
) -> Result<()> {
    let binary = match &request.binary {
        Some(binary) => binary.canonicalize().with_context(|| binary.display().to_string())?,
        None => {
            run(&mut cargo(workspace, &["build", "--locked", "--profile", PROFILE, "--package", "weir"]))?;
            workspace.target.join(PROFILE).join("weir")
        }
    };
    let folder = match &request.folder {
        Some(folder) => folder.clone(),
        None if request.is_quick => workspace.target.join(format!("bench-{}", bench.name)),
        None => Path::new("docs/results").join(bench.name),
    };
    std::fs::create_dir_all(workspace.root.join(&folder))?;
    let mut failed = Vec::new();
    for part in request.parts(bench) {
        let mut command = Command::new(&binary);
        command.args(request.words(part, behind, &folder)).current_dir(&workspace.root);
        if let Err(error) = one(command) {
            eprintln!("xtask: {}: {error:#}", part.name);
            failed.push(part.name);
        }
    }
    println!("Results are in {}.", folder.display());
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Writes the introduction of the page with `fillings` in it, and says what is left to do.
fn introduce(workspace: &Workspace, bench: &Bench, fillings: &[(&str, String)]) -> Result<()> {
    let name = bench.name;
    let results = workspace.root.join("docs/results");
    let about = fillings.iter().fold(bench.about.to_owned(), |about, (mark, text)| about.replace(mark, text));
    std::fs::write(results.join(format!("{name}.about.md")), about)?;
    println!("`cargo xtask generate results` makes the page docs/results/{name}.md of them.");
    if !std::fs::read_to_string(results.join("README.md"))?.contains(&format!("]({name}.md)")) {
        println!("docs/results/README.md lacks its row:\n{}", bench.row);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BENCHES: [Bench; 4] = [postgres::BENCH, mongodb::BENCH, ai::BENCH, flags::BENCH];

    #[test]
    fn words_are_read_and_unknown_ones_are_refused() {
        let bench = &postgres::BENCH;
        let parse = |words: &[&str]| Request::parse(bench, words);
        let request = parse(&["--only", "simple,tls", "--blocks", "9", "--binary", "w"]).expect("good");
        assert_eq!(request.parts(bench).map(|part| part.name).collect::<Vec<_>>(), ["simple", "tls"]);
        assert_eq!((request.blocks.as_deref(), &request.binary), (Some("9"), &Some(PathBuf::from("w"))));
        assert_eq!(parse(&[]).expect("good").parts(bench).count(), bench.parts.len());
        for words in [&["--only", "fast"][..], &["--only"], &["--quick", "--blocks", "9"], &["now"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn every_part_has_its_scenario_and_a_result_of_its_own() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for bench in BENCHES {
            assert!(bench.row.contains(&format!("]({}.md)", bench.name)), "{}", bench.name);
            for (at, part) in bench.parts.iter().enumerate() {
                assert!(root.join(format!("examples/lab/{}.toml", part.scenario)).is_file(), "{}", part.scenario);
                assert!(bench.parts[..at].iter().all(|other| other.name != part.name), "{} twice", part.name);
                assert!(bench.about.contains(part.name), "{} is not on the page", part.name);
            }
        }
    }

    #[test]
    fn the_command_of_a_part_names_the_server_if_there_is_one() {
        let request = Request::parse(&postgres::BENCH, &["--blocks", "9"]).expect("good");
        let folder = Path::new("docs/results/postgres");
        let words = request.words(&postgres::BENCH.parts[0], Some("127.0.0.1:5"), folder).join(" ");
        let wanted = "lab compare examples/lab/postgres-closed.toml --behind 127.0.0.1:5 --peers pgbouncer,floor,direct \
                      --load pgbench --seconds 3 --blocks 9 --json docs/results/postgres/simple.json";
        assert_eq!(words, wanted);
        let words = request.words(&ai::BENCH.parts[0], None, Path::new("docs/results/ai")).join(" ");
        assert!(!words.contains("--behind") && words.ends_with("--json docs/results/ai/chat.json"), "{words}");
    }
}
