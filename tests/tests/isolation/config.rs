//! S10: configurations that look like protection and are none.

use std::process::Command;

use weir_tests::gateway::{Config, program};
use weir_tests::isolation::{Cell, Protocol, every};
use weir_tests::stream::Address;

/// A mistake added to a good configuration.
enum Mistake {
    /// To the listener.
    Listener(&'static str),
    /// To the upstream.
    Upstream(&'static str),
    /// Tables behind both.
    Tables(&'static str),
}

use Mistake::{Listener, Tables, Upstream};

/// A user of Redis, as a listener of Redis has it.
const USER: &str = "[[listener.user]]\nname = \"app\"\nrules = \"on ~* +@all\"\npassword = { env = \"SECRET\" }";
/// A login at servers of Redis.
const LOGIN: &str = "[upstream.redis]\nuser = \"app\"\npassword = { env = \"SECRET\" }";

const REDIS: &[Mistake] = &[
    Listener("[listener.http]\nrequest_id = true"),
    Listener("[[listener.server_name]]\nnames = [\"a.example\"]\nupstream = \"server\""),
    Listener("[listener.redis]\ncache_prefixes = [\"a:\"]"),
    Listener("[[listener.user]]\nname = \"app\"\nrules = \"on ~* +@all\""),
    Upstream("[upstream.http]\nstreams_max = 5"),
    Upstream("[upstream.tcp]\nslow_start = \"1s\""),
    Tables("[[route]]\nname = \"r\"\npath = \"/a\"\nresponse = { status = 403 }"),
];

const HTTP1: &[Mistake] = &[
    Listener(USER),
    Listener("users_file = \"users.acl\""),
    Listener("[listener.redis]\nstream_bytes = \"64KiB\""),
    Listener("[[listener.server_name]]\nnames = [\"a.example\"]\nupstream = \"server\""),
    Upstream(LOGIN),
    Upstream("[upstream.tcp]\nslow_start = \"1s\""),
    Upstream("[upstream.http]\nstreams_max = 5"),
    Tables("[[route]]\nname = \"r\"\nmethods = [\"get\"]\nresponse = { status = 403 }"),
    Tables("[[route]]\nname = \"r\"\npath_prefix = \"/x/*\"\nresponse = { status = 403 }"),
    Tables("[[route]]\nname = \"r\"\npath = \"x\"\nresponse = { status = 403 }"),
    Tables("[[route]]\nname = \"r\"\npath = \"/x?y=1\"\nresponse = { status = 403 }"),
    Tables("[[route]]\nname = \"r\"\nhosts = [\"https://a.example\"]\nresponse = { status = 403 }"),
    Tables("[[route]]\nname = \"r\"\nhosts = [\"a.example/x\"]\nresponse = { status = 403 }"),
    Tables(
        "[[route]]\nname = \"open\"\npath_prefix = \"/admin\"\nupstream = \"server\"\n\
         [[route]]\nname = \"guard\"\npath_prefix = \"/admin\"\nresponse = { status = 403 }",
    ),
];

const HTTP2: &[Mistake] = &[Upstream("health_grpc_service = \"\"\nhealth_path = \"/\""), Upstream(LOGIN)];

const WEBSOCKET: &[Mistake] = &[Tables("[[route]]\nname = \"r\"\nupgrades = [\"WebSocket\"]\nupstream = \"server\"")];

const TCP: &[Mistake] = &[
    Listener(USER),
    Listener("users_file = \"users.acl\""),
    Listener("[listener.redis]\nstream_bytes = \"64KiB\""),
    Listener("[listener.http]\nrequest_id = true"),
    Listener("[[listener.server_name]]\nnames = [\"a.example\"]\nupstream = \"server\""),
    Upstream("[upstream.http]\nbalance = \"random\""),
    Upstream(LOGIN),
    Tables("[[route]]\nname = \"r\"\npath = \"/a\"\nresponse = { status = 403 }"),
];

#[test]
fn s10_settings_that_look_like_protection_and_are_none_are_a_mistake() {
    every("S10", |protocol, _| {
        let mistakes = match protocol.name() {
            "Redis" => REDIS,
            "HTTP/1.1" => HTTP1,
            "HTTP/2" => HTTP2,
            "WebSocket" => WEBSOCKET,
            _ => TCP,
        };
        let good = checked(&config(protocol));
        let mut faults: Vec<String> =
            good.err().into_iter().map(|said| format!("a good one is refused: {said}")).collect();
        for mistake in mistakes {
            let (config, lines) = match mistake {
                Listener(lines) => (config(protocol).listener(lines), lines),
                Upstream(lines) => (config(protocol).upstream(lines), lines),
                Tables(lines) => (config(protocol).tables(lines), lines),
            };
            match checked(&config) {
                Ok(()) => faults.push(format!("called good: {lines:?}")),
                // A mistake of the test.
                Err(said) if said.contains("unknown key") => faults.push(format!("{lines:?}: {said}")),
                Err(_) => {}
            }
        }
        let name = "configurations without effect".to_owned();
        vec![(name, Cell::figure(format!("{} of {} refused", mistakes.len() - faults.len(), mistakes.len()), faults))]
    });
}

fn config(protocol: &dyn Protocol) -> Config {
    // Nothing is started.
    protocol.config(&[Address::port(1)])
}

/// `weir check`, strict if it knows that; what it says of a mistake.
fn checked(config: &Config) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    weir_tests::gateway::secret_file(folder.path(), "users.acl", "user app on nopass ~* +@all\n");
    let file = folder.path().join("weir.toml");
    std::fs::write(&file, config.text(2)).expect("written");
    let help = Command::new(program()).args(["check", "--help"]).output().expect("weir check --help");
    let mut check = Command::new(program());
    check.arg("check").arg(&file).env("SECRET", "a long and secret word");
    if String::from_utf8_lossy(&help.stdout).contains("--strict") {
        check.arg("--strict");
    }
    let output = check.output().expect("weir check");
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
