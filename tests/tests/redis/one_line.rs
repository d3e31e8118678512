//! The first minutes with Redis: `weir redis` without a file, `weir init`, and the file that both mean.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use weir_tests::admin::Admin;
use weir_tests::client::Client;
use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway, program};
use weir_tests::port;
use weir_tests::process::{Process, take_in_orphans};
use weir_tests::server::{Kind, Options, Server};
use weir_tests::stream::Address;

/// From SIGTERM to the end: the default `drain.settle`, and no client is connected.
const END_WAIT: Duration = Duration::from_secs(15);

/// A gateway that was started without a file.
struct OneLine {
    process: Process,
    listener: Address,
    admin: Admin,
    _folder: TempDir,
}

impl OneLine {
    /// Runs `weir redis :PORT UPSTREAM`, with an admin server of its own.
    fn start(upstream: &str) -> Self {
        Self::start_with(upstream, &["--admin", &format!(":{}", port::free())])
    }

    fn start_with(upstream: &str, flags: &[&str]) -> Self {
        Self::start_at(port::free(), upstream, flags)
    }

    fn start_at(listener: u16, upstream: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let words = ["redis", &format!(":{listener}"), upstream, "--workers", "1"];
        let words = [&[program().to_str().expect("a path")], &words[..], flags].concat();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        take_in_orphans();
        let mut process = Process::start("weir", &words, &folder.path().join("log"), &[]);
        let log = || fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        // Its last line comes once clients can connect.
        process.wait_ready(|| log().contains("Ctrl-C"));
        let log = process.log();
        let address = log.split_once("--admin http://").and_then(|(_, rest)| rest.lines().next()?.parse().ok());
        let admin = Admin { address: address.expect("the address of the admin server") };
        Self { process, listener: Address::port(listener), admin, _folder: folder }
    }

    /// Waits until the log has these words: the server is probed beside the gateway.
    fn wait_log(&self, words: &str) {
        until_true(format!("{words:?} in\n{}", self.process.log()), || self.process.log().contains(words));
    }

    /// Upgrades it, and returns the process before, which has ended.
    fn upgrade(&mut self) -> Process {
        let url = format!("http://{}", self.admin.address);
        let upgraded = weir(Path::new("/"), &["upgrade", "--admin", &url], "");
        assert!(upgraded.status.success(), "{}\n{}", text(&upgraded.stderr), self.process.log());
        let pid = self.admin.get("/api/v1/version").json()["pid"].as_u64().expect("a process id");
        let new = Process::adopt(pid as u32, &self.process);
        let mut old = std::mem::replace(&mut self.process, new);
        assert!(old.wait(END_WAIT).success(), "{}", old.log());
        old
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
    gateway.wait_log(&format!("{upstream}: Redis {version}, primary, responded in "));
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
    gateway.wait_log("connection refused: nothing listens there. Weir serves nevertheless");
    server.restart();
    until_true("a value through the gateway", || {
        Client::connect(&gateway.listener).call(&["SET", "hello", "world"]) == b"+OK\r\n"
    });
    gateway.end();
}

#[test]
fn a_password_and_another_protocol_are_findings() {
    let options = Options { password: Some("secret".to_owned()), ..Options::default() };
    let closed = Server::start_with(Kind::Redis, options);
    let gateway = OneLine::start(&closed.address.tcp().to_string());
    gateway.wait_log("Redis wants a password. Write the file");
    // The admin server of a gateway speaks HTTP.
    let other = OneLine::start(&gateway.admin.address.to_string());
    other.wait_log("something listens there that is not Redis");
    other.end();
    gateway.end();
}

#[test]
fn a_second_gateway_without_a_file_takes_the_next_free_admin_port_and_keeps_it() {
    let server = Server::start(Kind::Redis);
    let upstream = server.address.tcp().to_string();
    let first = OneLine::start_with(&upstream, &[]);
    let mut second = OneLine::start_with(&upstream, &[]);
    assert_ne!(first.admin.address, second.admin.address);
    let log = second.process.log();
    assert!(log.contains("127.0.0.1:9900 is taken: this gateway has the next free port"), "{log}");
    Client::connect(&first.listener).expect(&["PING"], b"+PONG\r\n");
    let pid = |gateway: &OneLine| gateway.admin.get("/api/v1/version").json()["pid"].as_u64().expect("a process id");
    assert_ne!(pid(&first), pid(&second));
    // The listener of the third one has the port that would be the next.
    let next = (9901..=9999).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port");
    let third = OneLine::start_at(next, &upstream, &[]);
    assert_ne!(third.admin.address.port(), next);
    Client::connect(&third.listener).expect(&["PING"], b"+PONG\r\n");
    third.end();
    // Its successor finds the default port free by then, and has the socket of the second one nevertheless.
    first.end();
    second.upgrade();
    assert_eq!(pid(&second), u64::from(second.process.id()));
    second.end();
}

#[test]
fn a_gateway_without_a_file_can_be_upgraded() {
    let server = Server::start(Kind::Redis);
    let mut gateway = OneLine::start(&server.address.tcp().to_string());
    let mut client = Client::connect(&gateway.listener);
    client.expect(&["SET", "hello", "world"], b"+OK\r\n");
    let old = gateway.upgrade();
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
    let mut config = Config::to(&server.address);
    // The gateway has a secret, and who compares has none.
    config.environment.push(("CACHE_PASSWORD".to_owned(), "correct horse".to_owned()));
    let tables = "[[listener]]\nname = \"closed\"\nprotocol = \"redis\"\nbind = \"127.0.0.1:0\"\nupstream = \"server\"\n\
                  [listener.redis]\npassword = { env = \"CACHE_PASSWORD\" }";
    let gateway = Gateway::start(config.tables(tables));
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
    assert!(!printed.contains("password"), "{printed}");
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
    let example = format!("{example}\n[upstream.redis]\npassword = {{ env = \"NOT_SET_HERE\" }}\n");
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
