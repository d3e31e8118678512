//! h2spec, the judge of HTTP/2 servers, against the gateway in front of a real nginx. What fails is what the list says, no more
//! and no less.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use weir_tests::certificate::Certificates;
use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::stream::Address;

/// Cases of the generic, http2 and hpack sections.
const CASES: usize = 146;

/// What fails on a plain listener, and why.
const FAILS_IN_THE_CLEAR: &[&str] = &[
    // The port takes HTTP/1.1 as well: what is no preface is a malformed request of that, and gets its 400 before the close.
    "http2/3.5: Sends invalid connection preface",
];

/// After ALPN there is no doubt about the protocol.
const FAILS_OVER_TLS: &[&str] = &[];

/// An nginx that serves one page.
struct Origin {
    child: Child,
    address: Address,
    _folder: tempfile::TempDir,
}

impl Origin {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = weir_tests::port::free();
        let text = format!(
            "daemon off; worker_processes 1; pid {0}/pid; error_log stderr crit; events {{}}\n\
             http {{ access_log off; client_body_temp_path {0}/body;\n\
             server {{ listen 127.0.0.1:{port}; location / {{ return 200 \"hello\"; }} }} }}",
            folder.path().display()
        );
        let config = folder.path().join("nginx.conf");
        std::fs::write(&config, text).expect("written");
        // Debian keeps servers where only root's PATH may lead.
        let program = PathBuf::from("/usr/sbin/nginx");
        let mut nginx = Command::new(if program.is_file() { program.as_os_str() } else { "nginx".as_ref() });
        nginx.arg("-c").arg(&config).arg("-p").arg(folder.path()).stderr(Stdio::null());
        let child = nginx.spawn().expect("nginx starts: `cargo xtask setup peers` installs it");
        let socket = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        until_true("nginx to listen", || std::net::TcpStream::connect(socket).is_ok());
        Self { child, address: Address::Tcp(socket), _folder: folder }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // Its master would leave the worker behind if it were killed.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

/// Where `cargo xtask setup http2` puts it.
fn h2spec() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let found = test.ancestors().map(|folder| folder.join("tools/go/h2spec")).find(|file| file.is_file());
    found.expect("no h2spec: run `cargo xtask setup http2`")
}

/// Runs every case; the names of those that failed.
fn failures(gateway: &Gateway, words: &[&str]) -> Vec<String> {
    let report = gateway.folder().join("report.xml");
    let port = gateway.address.tcp().port().to_string();
    let mut command = Command::new(h2spec());
    command.args(["-S", "-h", "127.0.0.1", "-p", &port, "-j"]).arg(&report).args(words);
    let output = command.output().expect("h2spec runs");
    let text = std::fs::read_to_string(&report)
        .unwrap_or_else(|_| panic!("no report: {}", String::from_utf8_lossy(&output.stderr)));
    let cases: Vec<&str> = text.split("<testcase ").skip(1).collect();
    assert_eq!(cases.len(), CASES, "{}", String::from_utf8_lossy(&output.stdout));
    let attribute = |case: &str, name: &str| {
        let value = case.split_once(&format!("{name}=\"")).and_then(|(_, rest)| rest.split_once('"'));
        value.map(|(value, _)| value.to_owned()).unwrap_or_default()
    };
    let failed = cases.iter().filter(|case| case.contains("<error>") || case.contains("<failure"));
    failed.map(|case| format!("{}: {}", attribute(case, "package"), attribute(case, "classname"))).collect()
}

#[test]
fn h2spec_in_the_clear() {
    let origin = Origin::start();
    let gateway = Gateway::start(Config::http(&origin.address));
    assert_eq!(failures(&gateway, &[]), FAILS_IN_THE_CLEAR);
    gateway.finish();
}

#[test]
fn h2spec_over_tls() {
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create(folder.path());
    let (certificate, key) = (files.server.display(), files.server_key.display());
    let lines = format!("[listener.tls]\ncert_file = \"{certificate}\"\nkey_file = \"{key}\"");
    let gateway = Gateway::start(Config::http(&origin.address).listener(&lines));
    assert_eq!(failures(&gateway, &["-t", "-k"]), FAILS_OVER_TLS);
    let curl = |words: &[&str]| {
        let url = format!("https://127.0.0.1:{}/", gateway.address.tcp().port());
        let mut curl = Command::new("curl");
        let output = curl.args(["-sSk", "--max-time", "20", "-w", " %{http_version}"]).args(words).arg(url).output();
        String::from_utf8(output.expect("curl runs").stdout).expect("text")
    };
    assert_eq!((curl(&["--http2"]), curl(&["--http1.1"])), ("hello 2".to_owned(), "hello 1.1".to_owned()));
    gateway.finish();
}
