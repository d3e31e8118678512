//! `weir check` as users and their CI run it: with no secrets, in front of a pipe, and beside what a start needs.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use weir_tests::deadline::WAIT;
use weir_tests::gateway::{Config, Gateway, program};
use weir_tests::port;
use weir_tests::process::Process;
use weir_tests::server::{Kind, Server};
use weir_tests::stream::Address;

/// Exit status, and what was said.
struct CheckOutput {
    status: Option<i32>,
    text: String,
}

/// Runs the program with nothing in its environment, in `folder`.
fn weir(folder: &Path, words: &[&str], variables: &[(&str, &str)]) -> CheckOutput {
    let mut command = Command::new(program());
    command.args(words).env_clear().envs(variables.iter().copied()).current_dir(folder).stdin(Stdio::null());
    let output = command.output().expect("weir runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    CheckOutput { status: output.status.code(), text }
}

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").canonicalize().expect("the examples");
    let all = std::fs::read_dir(folder).expect("the examples").map(|entry| entry.expect("an entry").path());
    all.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect()
}

#[test]
fn every_example_is_good_offline_on_a_bare_machine() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut seen, mut notes) = (0, 0);
    for example in examples() {
        let path = example.display().to_string();
        let said = weir(folder.path(), &["check", "--offline", "--strict", &path], &[]);
        assert!(said.status == Some(0) && said.text.contains("good ("), "{path}: {}", said.text);
        assert!(!said.text.contains("error") && !said.text.contains("warning"), "{path}: {}", said.text);
        notes += said.text.matches("so it was not checked").count();
        seen += 1;
    }
    assert!(seen >= 10 && notes >= 20, "{seen} examples, {notes} notes");
    // The same file is refused where it would be run: once for each thing that is missing.
    let full = examples().into_iter().find(|path| path.ends_with("redis-full.toml")).expect("the full one");
    let full = full.display().to_string();
    let noted = weir(folder.path(), &["check", "--offline", "--json", &full], &[]).text;
    let said = weir(folder.path(), &["check", "--json", &full], &[]);
    let missing = |text: &str, word: &str| text.matches(&format!("\"severity\": \"{word}\"")).count();
    assert!(said.status == Some(1) && missing(&noted, "note") > 5, "{noted}");
    // Besides them the directory of its access log.
    let more = usize::from(!Path::new("/var/log/weir").is_dir());
    assert_eq!(missing(&said.text, "error"), missing(&noted, "note") + more, "{}\n{noted}", said.text);
}

#[test]
fn without_a_file_it_takes_the_one_that_run_would_take() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = weir(folder.path(), &["check"], &[]);
    assert!(missing.status == Some(1) && missing.text.contains("weir.toml"), "{}", missing.text);
    let text = Config::to(&Address::port(1)).text(port::free());
    std::fs::write(folder.path().join("weir.toml"), &text).expect("written");
    let said = weir(folder.path(), &["check"], &[]);
    assert!(said.status == Some(0) && said.text.contains("weir.toml: good"), "{}", said.text);
    std::fs::write(folder.path().join("other.toml"), text.replace("[runtime]", "[runtime]\nwrokers = 1"))
        .expect("written");
    let said = weir(folder.path(), &["check"], &[("WEIR_CONFIG", "other.toml")]);
    assert!(said.status == Some(1) && said.text.contains("other.toml:2"), "{}", said.text);
}

#[test]
fn a_log_that_a_start_could_not_open_is_found_before_and_by_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let written = |target: &Path| {
        let table = format!("[telemetry.access_log]\ntarget = \"file:{}\"", target.display());
        let text = Config::to(&Address::port(1)).tables(&table).text(port::free());
        std::fs::write(folder.path().join("weir.toml"), text).expect("written");
    };
    let (log, none) = (folder.path().join("access.log"), folder.path().join("none/access.log"));
    written(&log);
    let folder_changed = || std::fs::metadata(folder.path()).and_then(|metadata| metadata.modified()).expect("a time");
    let before = folder_changed();
    let said = weir(folder.path(), &["check"], &[]);
    let is_untouched = !log.exists() && folder_changed() == before;
    assert!(said.status == Some(0) && is_untouched, "no file comes or goes: {}", said.text);
    written(&none);
    let said = weir(folder.path(), &["check"], &[]);
    assert!(said.status == Some(1) && said.text.contains("create the directory"), "{}", said.text);
    assert!(said.text.contains(&none.display().to_string()) && said.text.contains("weir.toml:"), "{}", said.text);
    assert_eq!(weir(folder.path(), &["check", "--offline"], &[]).status, Some(0), "nothing is tried");
    let file = folder.path().join("weir.toml").display().to_string();
    let words = [program().display().to_string(), "run".to_owned(), "--config".to_owned(), file];
    let mut process = Process::start("weir", &words, &folder.path().join("log"), &[]);
    let status = process.wait(WAIT);
    let said = process.log();
    assert!(!status.success() && said.contains("cannot open the access log"), "{said}");
    assert!(said.contains(&none.display().to_string()) && !said.contains("ready"), "{said}");
}

#[test]
fn an_address_that_is_taken_is_found_unless_a_gateway_has_it() {
    let server = Server::start(Kind::Redis);
    let mut gateway = Gateway::before(&server);
    let file = gateway.file.display().to_string();
    let said = weir(gateway.folder(), &["check", &file], &[]);
    let holder = format!("was not tried: process {} (weir) listens there", gateway.process().id());
    assert!(said.status == Some(0) && said.text.matches(&holder).count() == 2, "{}", said.text);
    gateway.connect().expect(&["PING"], b"+PONG\r\n");
    // The rings of a killed process may hold its listeners for a moment: the unit checks the file before it starts the next one.
    for _ in 0..3 {
        let mut killed = Gateway::before(&server);
        let file = killed.file.display().to_string();
        killed.process().kill();
        let said = weir(killed.folder(), &["check", &file], &[]);
        assert_eq!(said.status, Some(0), "{}", said.text);
    }
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let theirs = taken.local_addr().expect("bound").to_string();
    let text = std::fs::read_to_string(&file).expect("readable").replace(&gateway.address.text(), &theirs);
    let other = gateway.folder().join("other.toml").display().to_string();
    std::fs::write(&other, text).expect("written");
    let said = weir(gateway.folder(), &["check", &other], &[]);
    let holder = format!("process {} (", std::process::id());
    assert!(said.status == Some(1) && said.text.contains(&theirs) && said.text.contains(&holder), "{}", said.text);
    gateway.finish();
}

/// `weir check --reference | head -1`, with a reader that is gone before the first byte.
#[test]
fn a_command_whose_output_nobody_reads_ends_without_a_word() {
    let example = examples().into_iter().find(|path| path.ends_with("http-api.toml")).expect("an example");
    let example = example.display().to_string();
    for words in [&["check", "--schema"][..], &["check", "--reference"], &["routes", &example]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output =
            Command::new(program()).args(words).stdout(writer).stderr(Stdio::piped()).output().expect("weir runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), &*said), (Some(141), ""), "{words:?}");
    }
    let shown = Command::new("sh").arg("-c").arg("\"$0\" check --reference | head -1").arg(program()).output();
    let shown = shown.expect("a shell");
    assert_eq!((&*shown.stdout, &*shown.stderr), (&b"# weir.toml\n"[..], &b""[..]));
}
