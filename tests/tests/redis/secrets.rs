//! A secret shows nowhere: not in the log, the metrics, the API, the command line or error texts.

use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::server::{Kind, Options, Server};

const CANARIES: [&str; 3] = ["canary-listener-4711", "canary-upstream-4712", "canary-environment-4713"];

#[test]
fn secrets_are_redacted_everywhere() {
    let options = Options { password: Some(CANARIES[1].to_owned()), ..Options::default() };
    let server = Server::start_with(Kind::Redis, options);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut config = Config::to(&server.address)
        .listener_password(folder.path(), CANARIES[0])
        .upstream_password(folder.path(), None, CANARIES[1])
        .tables("[telemetry]\nlog_level = \"debug\"");
    let second = weir_tests::port::free();
    config = config.tables(&format!(
        "[[listener]]\nname = \"by-environment\"\nprotocol = \"redis\"\nbind = \"127.0.0.1:{second}\"\n\
         upstream = \"server\"\n[listener.redis]\npassword = {{ env = \"WEIR_TEST_PASSWORD\" }}"
    ));
    config.environment.push(("WEIR_TEST_PASSWORD".to_owned(), CANARIES[2].to_owned()));
    let mut gateway = Gateway::start(config);
    let mut client = gateway.connect();
    client.call(&["AUTH", "canary-wrong-guess-4714"]);
    client.expect(&["AUTH", CANARIES[0]], b"+OK\r\n");
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
    client.call(&["HELLO", "3", "AUTH", "default", CANARIES[0]]);
    // A protocol error right behind a password must not carry it into the log.
    let mut hostile = gateway.connect();
    hostile.send(format!("*2\r\n$4\r\nAUTH\r\n${}\r\n{}XX", CANARIES[0].len(), CANARIES[0]).as_bytes());
    hostile.read_to_end(weir_tests::deadline::WAIT);
    let mut by_environment = weir_tests::client::Client::connect(&weir_tests::stream::Address::port(second));
    by_environment.expect(&["AUTH", CANARIES[2]], b"+OK\r\n");
    let mut outputs = vec![("log".to_owned(), gateway.process().log())];
    for path in [
        "/metrics",
        "/readyz?verbose",
        "/api/v1/config",
        "/api/v1/connections",
        "/api/v1/listeners",
        "/api/v1/upstreams",
        "/api/v1/openapi.json",
    ] {
        outputs.push((path.to_owned(), gateway.admin.get(path).body));
    }
    // A mistake beside a secret: the diagnostics show the line, not the secret's value.
    let text = std::fs::read_to_string(&gateway.file).expect("the configuration");
    std::fs::write(&gateway.file, text + "\n[nonsense]\n").expect("the configuration");
    outputs.push(("diagnostics".to_owned(), gateway.admin.post("/api/v1/reload", "").body));
    let arguments = std::fs::read(format!("/proc/{}/cmdline", gateway.process().id()));
    outputs
        .push(("command line".to_owned(), String::from_utf8_lossy(&arguments.expect("a command line")).into_owned()));
    outputs.push(("log at the end".to_owned(), gateway.process().log()));
    for (name, text) in &outputs {
        for canary in CANARIES.iter().chain(&["canary-wrong-guess-4714"]) {
            assert!(!text.contains(canary), "{canary} shows in {name}:\n{text}");
        }
    }
}

#[test]
fn a_literal_secret_in_the_file_is_refused_without_showing_it() {
    let server = Server::start(Kind::Redis);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("weir.toml");
    let config = Config::to(&server.address).listener("[listener.redis]\npassword = \"canary-literal-4715\"");
    std::fs::write(&file, config.text(weir_tests::port::free())).expect("a file");
    let output = std::process::Command::new(weir_tests::gateway::program())
        .arg("check")
        .arg(&file)
        .output()
        .expect("the gateway can be started");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("password"), "{said}");
    assert!(!said.contains("canary-literal-4715"), "{said}");
}

#[test]
fn a_secret_file_that_others_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = Server::start(Kind::Redis);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = secret_file(folder.path(), "open", "secret-word");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("permissions");
    let file = folder.path().join("weir.toml");
    let lines = format!("[listener.redis]\npassword = {{ file = \"{path}\" }}");
    let config = Config::to(&server.address).listener(&lines);
    std::fs::write(&file, config.text(weir_tests::port::free())).expect("a file");
    let output = std::process::Command::new(weir_tests::gateway::program())
        .arg("check")
        .arg(&file)
        .output()
        .expect("the gateway can be started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("other users can read"), "{said}");
}
