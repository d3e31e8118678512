//! `cargo xtask <command>`: see [`USAGE`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::Result;
use xtask::workspace::Workspace;
use xtask::{bench, generate, lanes, package, setup, tidy};

const USAGE: &str = "\
Developer commands of Weir.

  cargo xtask test                         in full what the change can reach, and a core of the rest; the change is
                                           what came since the newest commit that is over 24 hours old
  cargo xtask test --since REVISION [lane] the same for what came since that revision (of it only the named lanes)
  cargo xtask test --full                  every lane in full
  cargo xtask test lane ...                the named lanes in full (a prefix names a family:
                                           `clients` is clients:python, clients:node ...)
  cargo xtask test --list                  the lanes, a line each
  cargo xtask test --plan [...]            what each of these would run, and why
  cargo xtask setup [part ...]             install what the tests need; an unknown part lists them
  cargo xtask tidy                         the rules of the tree: crate arrows, length of files and functions, ...
  cargo xtask package [option ...]         make the Debian package, with a program of the profile `dist`;
                                           --binary FILE: package that program; --version VERSION, --folder FOLDER:
                                           of the package; --quick: do not compress it
  cargo xtask bench postgres [option ...]  measure the rows of docs/results/postgres.md, with a program of the profile `dist`
                                           (two hours); --quick: two blocks of each, into the folder of build
                                           output; --only PART,...: of it only these; --blocks N, --seconds N, --binary
                                           FILE, --folder FOLDER: of the results
  cargo xtask bench mongodb [option ...]   the same of docs/results/mongodb.md
  cargo xtask bench ai [option ...]        the same of docs/results/ai.md
  cargo xtask bench flags [option ...]     the same of docs/results/flags.md
  cargo xtask generate reference [--check] write docs/METRICS.md, docs/CONFIG.md (--check: compare)
  cargo xtask generate results [--check]   write the pages of docs/results from the results beside them
  cargo xtask generate redis-commands ...  write the command table from running servers; its options
                                           stand in xtask/src/generate_commands.rs

Environment of `test`:
  WEIR_FUZZ_SECONDS=N   seconds per fuzz target (default 10)
  WEIR_SOAK_SECONDS=N   length of the tests of changes under load (default: a few seconds)
  WEIR_TEST_SEED=N      seed of the randomised tests (default 1)

Example: cargo xtask test unit clients:go
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn run(words: &[&str]) -> Result<ExitCode> {
    match words {
        ["test", "--list"] => {
            lanes::print_list();
            Ok(ExitCode::SUCCESS)
        }
        ["test", words @ ..] => lanes::run(&Workspace::load()?, words),
        ["setup", parts @ ..] => {
            setup::run(&Workspace::load()?, &setup::Part::parse_all(parts)?)?;
            Ok(ExitCode::SUCCESS)
        }
        ["package", rest @ ..] => {
            let made = package::make(&Workspace::load()?, &package::Request::parse(rest)?)?;
            println!("{}", made.display());
            Ok(ExitCode::SUCCESS)
        }
        ["tidy"] => Ok(tidy::run(&Workspace::load()?)?.print()),
        ["bench", "postgres", rest @ ..] => {
            bench::postgres::run(&Workspace::load()?, &bench::Request::parse(&bench::postgres::BENCH, rest)?)?;
            Ok(ExitCode::SUCCESS)
        }
        ["bench", "mongodb", rest @ ..] => {
            bench::mongodb::run(&Workspace::load()?, &bench::Request::parse(&bench::mongodb::BENCH, rest)?)?;
            Ok(ExitCode::SUCCESS)
        }
        ["bench", "ai", rest @ ..] => {
            bench::ai::run(&Workspace::load()?, &bench::Request::parse(&bench::ai::BENCH, rest)?)?;
            Ok(ExitCode::SUCCESS)
        }
        ["bench", "flags", rest @ ..] => {
            bench::flags::run(&Workspace::load()?, &bench::Request::parse(&bench::flags::BENCH, rest)?)?;
            Ok(ExitCode::SUCCESS)
        }
        ["generate", rest @ ..] => {
            generate::run(rest)?;
            Ok(ExitCode::SUCCESS)
        }
        [] | ["help" | "--help" | "-h", ..] => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            eprint!("xtask: unknown command `{}`\n\n{USAGE}", words.join(" "));
            Ok(ExitCode::from(2))
        }
    }
}
