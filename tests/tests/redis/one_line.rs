//! The first minutes with Redis: `weir redis` without a file, `weir init`, and the file that both mean.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use weir_tests::admin::Admin;
use weir_tests::client::Client;
use weir_tests::gateway::{Config, Gateway, program};
use weir_tests::port;
use weir_tests::process::{Process, take_in_orphans};
use weir_tests::server::{Kind, Options, Server};
use weir_tests::stream::Address;

/// From SIGTERM to the end: the default `drain.settle`, and nobody is connected.
const END_WAIT: Duration = Duration::from_secs(15);

/// A gateway that was started without a file.
struct OneLine {
    process: Process,
    listener: Address,
    admin: Admin,
    _folder: TempDir,
}

impl OneLine {
    /// Runs `weir redis :PORT UPSTREAM`.
    fn start(upstream: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (listener, admin) = (port::free(), port::free());
        let words = ["redis", &format!(":{listener}"), upstream, "--admin", &format!(":{admin}"), "--workers", "1"];
        let words: Vec<String> =
            [program().to_str().expect("a path")].iter().chain(&words).map(|word| (*word).to_owned()).collect();
        take_in_orphans();
        let mut process = Process::start("weir", &words, &folder.path().join("log"), &[]);
        let admin = Admin { address: Address::port(admin).tcp() };
        // Its last line comes once clients can connect.
        process.wait_ready(|| fs::read_to_string(folder.path().join("log")).is_ok_and(|log| log.contains("Ctrl-C")));
        Self { process, listener: Address::port(listener), admin, _folder: folder }
    }

    fn end(mut self) {
        self.process.signal("TERM");
        let status = self.process.wait(END_WAIT);
        assert!(status.success(), "{status}\n{}", self.process.log());
    }
}

fn weir(folder: &Path, words: &[&str], input: &str) -> Output {
    let mut command = Command::new(program());
    command.args(words).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("weir starts");
    // One that does not read its input ends first.
    let _ = child.stdin.take().expect("its input").write_all(input.as_bytes());
    child.wait_with_output().expect("weir ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_gateway_without_a_file_names_its_server_and_serves() {
    let server = Server::start(Kind::Redis);
    let version = server.info("server", "redis_version");
    let upstream = server.address.tcp();
    let gateway = OneLine::start(&upstream.to_string());
    let log = gateway.process.log();
    let finding = format!("{upstream}: Redis {version}, primary, responded in ");
    assert!(log.contains(&finding), "{finding} is not in\n{log}");
    let listener = gateway.listener.tcp();
    for line in [
        format!("try: redis-cli -p {} info server", listener.port()),
        format!("http://{}", gateway.admin.address),
        format!("127.0.0.1:{}", listener.port()),
    ] {
        assert!(log.contains(&line), "{line} is not in\n{log}");
    }
    Client::connect(&gateway.listener).expect(&["SET", "hello", "world"], b"+OK\r\n");
    server.connect().expect(&["GET", "hello"], b"$5\r\nworld\r\n");
    gateway.end();
}

#[test]
fn a_server_that_is_away_is_named_and_served_once_it_is_there() {
    let mut server = Server::start(Kind::Redis);
    server.kill();
    let gateway = OneLine::start(&server.address.tcp().to_string());
    let log = gateway.process.log();
    assert!(log.contains("connection refused: nothing listens there. Weir serves nevertheless"), "{log}");
    server.restart();
    weir_tests::deadline::until_true("a value through the gateway", || {
        Client::connect(&gateway.listener).call(&["SET", "hello", "world"]) == b"+OK\r\n"
    });
    gateway.end();
}

#[test]
fn a_password_and_another_protocol_are_findings() {
    let options = Options { password: Some("secret".to_owned()), ..Options::default() };
    let closed = Server::start_with(Kind::Redis, options);
    let gateway = OneLine::start(&closed.address.tcp().to_string());
    assert!(gateway.process.log().contains("Redis wants a password. Write the file"), "{}", gateway.process.log());
    // The admin server of a gateway speaks HTTP.
    let other = OneLine::start(&gateway.admin.address.to_string());
    assert!(other.process.log().contains("something listens there that is not Redis"), "{}", other.process.log());
    other.end();
    gateway.end();
}

#[test]
fn a_gateway_without_a_file_can_be_upgraded() {
    let server = Server::start(Kind::Redis);
    let mut gateway = OneLine::start(&server.address.tcp().to_string());
    let mut client = Client::connect(&gateway.listener);
    client.expect(&["SET", "hello", "world"], b"+OK\r\n");
    let url = format!("http://{}", gateway.admin.address);
    let upgraded = weir(Path::new("/"), &["upgrade", "--admin", &url], "");
    assert!(upgraded.status.success(), "{}\n{}", text(&upgraded.stderr), gateway.process.log());
    let pid = gateway.admin.get("/api/v1/version").json()["pid"].as_u64().expect("a process id");
    let new = Process::adopt(pid as u32, &gateway.process);
    let mut old = std::mem::replace(&mut gateway.process, new);
    assert!(old.wait(END_WAIT).success(), "{}", old.log());
    client.expect(&["GET", "hello"], b"$5\r\nworld\r\n");
    drop(client);
    // The new process has the same command line, and its user has seen the lines.
    assert_eq!(old.log().matches("Ctrl-C drains").count(), 1, "{}", old.log());
    gateway.end();
}

#[test]
fn the_written_file_is_the_one_that_the_command_means() {
    let server = Server::start(Kind::Redis);
    let (listener, admin) = (port::free(), port::free());
    let words = ["redis", &listener.to_string(), &server.address.text(), "--admin", &format!(":{admin}")];
    let folder = tempfile::tempdir().expect("a folder");
    let written = weir(folder.path(), &[&words[..], &["--write", "weir.toml"]].concat(), "");
    assert!(text(&written.stdout).contains("next: weir run --config weir.toml"), "{}", text(&written.stderr));
    let printed = weir(folder.path(), &[&words[..], &["--write", "-"]].concat(), "");
    let file = folder.path().join("weir.toml");
    assert_eq!(text(&printed.stdout), fs::read_to_string(&file).expect("the file"));
    let again = weir(folder.path(), &[&words[..], &["--write", "weir.toml"]].concat(), "");
    assert!(!again.status.success() && text(&again.stderr).contains("--force"), "{}", text(&again.stderr));
    let forced = weir(folder.path(), &[&words[..], &["--write", "weir.toml", "--force"]].concat(), "");
    assert!(forced.status.success(), "{}", text(&forced.stderr));
    let checked = weir(folder.path(), &["check", "--strict", "weir.toml"], "");
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    // The file and the command run the same configuration.
    let config = |words: &[&str]| {
        let words = [&[program().to_str().expect("a path")], words].concat();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut process = Process::start("weir", &words, &folder.path().join("log"), &[]);
        let admin = Admin { address: Address::port(admin).tcp() };
        process.wait_ready(|| admin.request("GET", "/livez", &[], "").is_ok());
        let config = admin.get("/api/v1/config").json();
        process.signal("TERM");
        assert!(process.wait(END_WAIT).success(), "{}", process.log());
        config
    };
    let of_file = config(&["run", "--config", file.to_str().expect("a path")]);
    assert_eq!(config(&words), of_file);
    assert_eq!(of_file["listener"][0]["bind"], format!("127.0.0.1:{listener}"));
}

#[test]
fn init_asks_three_questions_and_writes_a_file_that_runs() {
    let server = Server::start(Kind::Redis);
    let folder = tempfile::tempdir().expect("a folder");
    let listener = port::free();
    let answers = format!("redis\n:{listener}\n{}\n", server.address.text());
    let output = weir(folder.path(), &["init"], &answers);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));
    for words in ["Protocol (", "Listen address", "Upstream", "Redis ", "wrote weir.toml; next: weir run"] {
        assert!(printed.contains(words), "{words} is not in\n{printed}");
    }
    let again = weir(folder.path(), &["init"], &answers);
    assert!(text(&again.stderr).contains("weir.toml exists; --force overwrites it"), "{}", text(&again.stderr));
    let admin = port::free();
    let file = folder.path().join("weir.toml");
    let whole = format!("[admin]\nbind = \"127.0.0.1:{admin}\"\n{}", fs::read_to_string(&file).expect("the file"));
    fs::write(&file, whole).expect("written");
    let words = [program().to_str().expect("a path"), "run", "--config", file.to_str().expect("a path")];
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let mut process = Process::start("weir", &words, &folder.path().join("log"), &[]);
    let admin = Admin { address: Address::port(admin).tcp() };
    process.wait_ready(|| admin.request("GET", "/livez", &[], "").is_ok());
    Client::connect(&Address::port(listener)).expect(&["SET", "hello", "world"], b"+OK\r\n");
    process.signal("TERM");
    assert!(process.wait(END_WAIT).success(), "{}", process.log());
}

#[test]
fn a_file_is_compared_with_the_running_gateway() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::start(Config::to(&server.address));
    let url = format!("http://{}", gateway.admin.address);
    let diff = || {
        let output = weir(gateway.folder(), &["config", "diff", "weir.toml", "--admin", &url], "");
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    };
    let (is_same, printed) = diff();
    assert!(is_same && printed.starts_with("no difference"), "{printed}");
    let running = fs::read_to_string(&gateway.file).expect("the file");
    let changed = running.replacen("[[upstream]]", "idle_timeout = \"7m\"\n\n[[upstream]]", 1);
    let changed = format!("{changed}\n[[upstream]]\nname = \"spare\"\nendpoints = [\"127.0.0.1:1\"]\n");
    fs::write(&gateway.file, changed.replacen("workers = 1", "workers = 2", 1)).expect("written");
    let (is_same, printed) = diff();
    assert!(!is_same, "{printed}");
    for line in
        [".idle_timeout   \"7m\"\n", "+ upstream.spare   (table)\n", "runtime.workers   1 -> 2   needs a restart\n"]
    {
        assert!(printed.contains(line), "{line} is not in\n{printed}");
    }
    assert!(
        printed.contains("a reload applies 2, a restart 1 more\n") && printed.contains("3 differences"),
        "{printed}"
    );
    gateway.finish();
}

#[test]
fn the_shares_of_shards_are_shown_and_uneven_ones_warned_about() {
    let folder = tempfile::tempdir().expect("a folder");
    let example = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/redis-sharded.toml"));
    let example = example.expect("the example");
    let shards = |text: &str, words: &[&str], input: &str| {
        fs::write(folder.path().join("weir.toml"), text).expect("written");
        let output = weir(folder.path(), &[&["shards", "weir.toml"], words].concat(), input);
        (output.status.success(), text_of(&output))
    };
    let (is_good, printed) = shards(&example, &["--keys", "600"], "");
    assert!(is_good && printed.contains("even: the largest share"), "{printed}");
    let skewed = example.replace("distribution = \"maglev\"\n", "distribution = \"ketama\"\nhash = \"fnv1a_64\"\n");
    let (is_good, printed) = shards(&skewed, &["--keys", "600"], "");
    assert!(is_good && printed.contains("warning: the largest share is 1.75 times"), "{printed}");
    let keys: String = (0..600).map(|number| format!("user:{number}\n")).collect();
    let (_, from_input) = shards(&skewed, &["--keys-from", "-"], &keys);
    assert_eq!(from_input.lines().skip(1).collect::<Vec<_>>(), printed.lines().skip(1).collect::<Vec<_>>());
    let one = "[[listener]]\nname = \"a\"\nprotocol = \"redis\"\nbind = \"127.0.0.1:1\"\nupstream = \"b\"\n\
               [[upstream]]\nname = \"b\"\nendpoints = [\"127.0.0.1:2\"]\n";
    let (is_good, printed) = shards(one, &[], "");
    assert!(!is_good && printed.contains("no upstream with [upstream.sharding]"), "{printed}");
}

fn text_of(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}
