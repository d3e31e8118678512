//! `cargo xtask bench postgres`: the results of `docs/results/postgres`, measured by `weir lab compare` in front of a PostgreSQL that
//! this command starts.
//!
//! | file | concept |
//! |---|---|
//! | [`server`] | the PostgreSQL behind the gateways, with pgbench's tables |

pub mod server;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use weir_parties::place::allowed_cpus;

use self::server::Server;
use crate::command::{output, run, run_within};
use crate::package::PROFILE;
use crate::programs::cargo;
use crate::workspace::Workspace;

/// A comparison of the bench.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Name of its result, and the word of `--only`.
    name: &'static str,
    /// File of `examples/lab`.
    scenario: &'static str,
    /// Further words of `weir lab compare`; peers first.
    words: &'static [&'static str],
}

const PARTS: &[Part] = &[
    Part {
        name: "simple",
        scenario: "postgres-closed",
        words: &["--peers", "pgbouncer,floor,direct", "--load", "pgbench"],
    },
    Part {
        name: "extended",
        scenario: "postgres-closed-extended",
        words: &["--peers", "pgbouncer,floor,direct", "--load", "pgbench"],
    },
    Part {
        name: "prepared",
        scenario: "postgres-closed-prepared",
        words: &["--peers", "pgbouncer,pgbouncer-session,floor,direct", "--load", "pgbench"],
    },
    Part {
        name: "tpcb",
        scenario: "postgres-closed-tpcb",
        words: &["--peers", "pgbouncer,floor,direct", "--load", "pgbench"],
    },
    Part {
        name: "logins",
        scenario: "postgres-closed-logins",
        words: &["--peers", "pgbouncer,floor,direct", "--load", "pgbench"],
    },
    Part { name: "storm", scenario: "postgres-logins", words: &["--peers", "pgbouncer,floor,direct"] },
    Part { name: "tls", scenario: "postgres-closed", words: &["--peers", "pgbouncer", "--load", "pgbench", "--tls"] },
    Part {
        name: "telemetry",
        scenario: "postgres-closed",
        words: &["--peers", "weir-telemetry-off,weir-capture-all", "--load", "pgbench"],
    },
    Part { name: "pgpool", scenario: "postgres-closed", words: &["--peers", "pgpool", "--load", "pgbench"] },
    Part { name: "idle", scenario: "postgres-idle", words: &["--peers", "pgbouncer"] },
    Part {
        name: "servers",
        scenario: "postgres-servers",
        words: &[
            "--peers",
            "examples/lab/peers/weir-pool-220.toml,pgbouncer,examples/lab/peers/pgbouncer-pool-220.toml",
            "--load",
            "pgbench",
        ],
    },
];

/// A part ends within this time, or is stopped: many blocks take long.
const PART_DEADLINE: Duration = Duration::from_secs(2 * 3_600);
/// The introduction of the page; `{analysis}` is filled in.
const ABOUT: &str = include_str!("bench/about.md");
/// The row of the page in the list of pages.
const ROW: &str = "| [postgres](postgres.md) | PostgreSQL beside PgBouncer, a relay and no gateway: CPU per transaction, latency, logins, \
TLS, memory of clients and of server connections | `cargo xtask bench postgres` |";
/// Seconds of a run, where the command line does not say.
const SECONDS: &str = "2";

/// The words behind `bench postgres`.
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
    /// Where results go; absent: `docs/results/postgres`, or with `is_quick` the folder of build output.
    folder: Option<PathBuf>,
}

impl Request {
    /// Reads the words behind `bench postgres`.
    ///
    /// # Errors
    /// A word is no option, lacks its value, or names no part.
    pub fn parse(words: &[&str]) -> Result<Self> {
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
                _ => bail!("`{word}` is no option of `bench postgres`; `cargo xtask help` shows them"),
            }
        }
        let has_length = request.blocks.is_some() || request.seconds.is_some();
        ensure!(!(request.is_quick && has_length), "--quick has blocks and seconds of its own");
        for name in &request.only {
            let known: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
            ensure!(known.contains(&&**name), "no part `{name}`; there are {}", known.join(", "));
        }
        Ok(request)
    }

    fn parts(&self) -> impl Iterator<Item = &'static Part> {
        PARTS.iter().filter(|part| self.only.is_empty() || self.only.iter().any(|name| name == part.name))
    }

    /// Words of one comparison.
    fn words(&self, part: &Part, behind: &str, folder: &Path) -> Vec<String> {
        let scenario = format!("examples/lab/{}.toml", part.scenario);
        let mut words = ["lab", "compare", &scenario, "--behind", behind].map(str::to_owned).to_vec();
        words.extend(part.words.iter().map(|word| (*word).to_owned()));
        if self.is_quick {
            words.push("--quick".to_owned());
        } else {
            words.extend(["--seconds".to_owned(), self.seconds.clone().unwrap_or_else(|| SECONDS.to_owned())]);
        }
        words.extend(self.blocks.iter().flat_map(|blocks| ["--blocks".to_owned(), blocks.clone()]));
        let file = folder.join(format!("{}.json", part.name));
        // A path of the tree stays as it is in the result, which says how it was made.
        words.extend(["--json".to_owned(), file.to_string_lossy().into_owned()]);
        words
    }
}

/// Measures the parts, one after the other. A part that fails does not keep the others from running.
///
/// # Errors
/// A program is missing or does not build, the server does not start, a part fails, or TPC-B has left balances that disagree.
pub fn postgres(workspace: &Workspace, request: &Request) -> Result<()> {
    let binary = match &request.binary {
        Some(binary) => binary.canonicalize().with_context(|| binary.display().to_string())?,
        None => {
            run(&mut cargo(workspace, &["build", "--locked", "--profile", PROFILE, "--package", "weir"]))?;
            workspace.target.join(PROFILE).join("weir")
        }
    };
    let folder = match &request.folder {
        Some(folder) => folder.clone(),
        None if request.is_quick => workspace.target.join("bench-postgres"),
        None => PathBuf::from("docs/results/postgres"),
    };
    std::fs::create_dir_all(workspace.root.join(&folder))?;
    // The lab gives the gateways the first CPU, and the load those behind it.
    let cpus: Vec<String> = allowed_cpus()?.iter().skip(1).map(u32::to_string).collect();
    ensure!(!cpus.is_empty(), "gateway and server need a CPU each, and this process may use one");
    let server = Server::start(&cpus.join(","))?;
    let behind = format!("127.0.0.1:{}", server.port());
    let mut failed = Vec::new();
    for part in request.parts() {
        let mut command = Command::new(&binary);
        command.args(request.words(part, &behind, &folder)).current_dir(&workspace.root);
        let outcome = run_within(&mut command, PART_DEADLINE).and_then(|()| server.audit());
        if let Err(error) = outcome {
            eprintln!("xtask: {}: {error:#}", part.name);
            failed.push(part.name);
        }
    }
    if !request.is_quick && request.folder.is_none() {
        introduce(workspace)?;
    }
    println!("Results are in {}.", folder.display());
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Writes the introduction of the page, with the cost of the analysis measured now, and says what is left to do.
fn introduce(workspace: &Workspace) -> Result<()> {
    let words = ["run", "--quiet", "--release", "--package", "weir-analysis", "--example", "postgres_cost"];
    let cost = output(&mut cargo(workspace, &words))?;
    let indented: Vec<String> = cost.lines().map(|line| format!("    {line}")).collect();
    let results = workspace.root.join("docs/results");
    std::fs::write(results.join("postgres.about.md"), ABOUT.replace("{analysis}", &indented.join("\n")))?;
    println!("`cargo xtask generate results` makes the page docs/results/postgres.md of them.");
    if !std::fs::read_to_string(results.join("README.md"))?.contains("](postgres.md)") {
        println!("docs/results/README.md lacks its row:\n{ROW}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_unknown_ones_are_refused() {
        let request = Request::parse(&["--only", "simple,tls", "--blocks", "9", "--binary", "w"]).expect("good");
        assert_eq!(request.parts().map(|part| part.name).collect::<Vec<_>>(), ["simple", "tls"]);
        assert_eq!((request.blocks.as_deref(), request.binary), (Some("9"), Some(PathBuf::from("w"))));
        assert_eq!(Request::parse(&[]).expect("good").parts().count(), PARTS.len());
        for words in [&["--only", "fast"][..], &["--only"], &["--quick", "--blocks", "9"], &["now"]] {
            assert!(Request::parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn every_part_has_its_scenario_and_a_result_of_its_own() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (at, part) in PARTS.iter().enumerate() {
            assert!(root.join(format!("examples/lab/{}.toml", part.scenario)).is_file(), "{}", part.scenario);
            assert!(PARTS[..at].iter().all(|other| other.name != part.name), "{} twice", part.name);
        }
        let request = Request::parse(&["--blocks", "9"]).expect("good");
        let words = request.words(&PARTS[0], "127.0.0.1:5", Path::new("docs/results/postgres")).join(" ");
        let wanted = "lab compare examples/lab/postgres-closed.toml --behind 127.0.0.1:5 --peers pgbouncer,floor,direct \
                      --load pgbench --seconds 2 --blocks 9 --json docs/results/postgres/simple.json";
        assert_eq!(words, wanted);
    }
}
