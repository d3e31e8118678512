//! Everything changes under load: certificates, routes, endpoints, and the program itself. `WEIR_SOAK_SECONDS=120` makes a soak of
//! it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weir_tests::certificate::Certificates;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::nginx::Nginx;
use weir_tests::soak;

/// How long the load lasts.
fn seconds() -> u64 {
    soak::requested_duration().map_or(6, |wanted| wanted.as_secs())
}

/// A load that is running; it ends by itself.
struct Load(Child, &'static str);

impl Load {
    fn h2load(url: &str, seconds: u64) -> Self {
        let mut h2load = Command::new("h2load");
        h2load.args(["-c", "10", "-m", "10", "-D", &seconds.to_string(), url]);
        Self(h2load.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("h2load runs"), "h2load")
    }

    fn wrk(url: &str, seconds: u64) -> Self {
        let mut wrk = Command::new("wrk");
        wrk.args(["-t", "1", "-c", "16", "-d", &seconds.to_string(), url]);
        Self(wrk.stdout(Stdio::piped()).spawn().expect("wrk runs: `cargo xtask setup peers` installs it"), "wrk")
    }

    /// Every request was answered, and with 200; how many there were.
    fn judge(self) -> u64 {
        let output = self.0.wait_with_output().expect("it ends");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = |line: &str, word: &str| {
            let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
            let at = words.iter().position(|own| own.starts_with(word))?;
            words.get(at.checked_sub(1)?)?.parse().ok()
        };
        let line = |start: &str| told.lines().map(str::trim).find(|line| line.contains(start));
        match self.1 {
            "wrk" => {
                assert!(line("Socket errors").is_none() && line("Non-2xx").is_none(), "{told}");
                line("requests in").and_then(|line| number(line, "requests")).unwrap_or_else(|| panic!("{told}"))
            }
            _ => {
                let requests = line("requests:").unwrap_or_else(|| panic!("{told}"));
                for word in ["failed", "errored", "timeout"] {
                    assert_eq!(number(requests, word), Some(0), "{told}");
                }
                let codes = line("status codes:").unwrap_or_else(|| panic!("{told}"));
                let good: u64 = number(codes, "2xx").unwrap_or_else(|| panic!("{told}"));
                assert_eq!(number(requests, "done"), Some(good), "{told}");
                good
            }
        }
    }
}

fn replace(from: &Path, to: &Path) {
    // A key must not be readable for others at any moment, and a file is there whole or not at all.
    let new = to.with_extension("new");
    std::fs::copy(from, &new).expect("copied");
    std::fs::rename(&new, to).expect("renamed");
}

#[test]
fn reloads_that_change_certificates_routes_and_endpoints_fail_no_request() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let all = ["first", "second", "third"].map(|name| Certificates::create(&folder.path().join(name)));
    let current = Certificates::create(&folder.path().join("current"));
    let origins = ["a", "b", "c"].map(|name| {
        Nginx::start("backlog=1024", &format!("keepalive_requests 1000000; location / {{ return 200 \"{name}\"; }}"))
    });
    let lines = format!(
        "[listener.tls]\ncert_file = \"{}\"\nkey_file = \"{}\"",
        current.server.display(),
        current.server_key.display()
    );
    let mut config = Config::http(&origins[0].address).listener(&lines);
    config.endpoints.push(origins[1].address.text());
    let gateway = Gateway::start(config);
    let text = std::fs::read_to_string(&gateway.file).expect("its file");
    let url = format!("https://{}/x", gateway.address.text());
    let seconds = seconds();
    let loads = [Load::h2load(&url, seconds), Load::wrk(&url, seconds)];
    let begun = Instant::now();
    let mut reloads = 0;
    while begun.elapsed() + Duration::from_secs(1) < Duration::from_secs(seconds) {
        std::thread::sleep(Duration::from_millis(700));
        reloads += 1;
        let (one, two) = (&origins[reloads % 3].address, &origins[(reloads + 1) % 3].address);
        replace(&all[reloads % 3].server_key, &current.server_key);
        replace(&all[reloads % 3].server, &current.server);
        let mut changed = text.replace(&origins[0].address.text(), &one.text());
        let second = format!("\"{}\"", origins[1].address.text());
        let at = changed.rfind(&second).expect("the second endpoint");
        changed.replace_range(at..at + second.len(), &format!("\"{}\"", two.text()));
        for route in 0..reloads % 4 {
            let path = format!("/x{}", "/y".repeat(route));
            changed += &format!(
                "\n[[route]]\nname = \"r{route}\"\npath_prefix = \"{path}\"\nupstream = \"server\"\npriority = {route}\n"
            );
        }
        std::fs::write(&gateway.file, changed).expect("written");
        let response = gateway.admin.request("POST", "/api/v1/reload", &[], "").expect("a response");
        assert_eq!(response.status, 200, "{}", response.body);
    }
    let requests: Vec<u64> = loads.into_iter().map(Load::judge).collect();
    println!("{reloads} reloads, {requests:?} requests");
    assert!(reloads > 3 && requests.iter().all(|count| *count > 100), "{reloads} reloads, {requests:?} requests");
    gateway.finish();
}

#[test]
fn upgrades_of_the_program_fail_no_request() {
    let origin = Nginx::start("backlog=1024", "keepalive_requests 1000000; location / { return 200 \"a\"; }");
    let mut config = Config::http(&origin.address);
    config.drain = "settle = \"0s\"\ntimeout = \"20s\"\n".to_owned();
    let mut gateway = Gateway::start(config);
    let seconds = seconds();
    let load = Load::wrk(&format!("http://{}/", gateway.address.text()), seconds);
    let begun = Instant::now();
    let mut upgrades = 0;
    while begun.elapsed() + Duration::from_secs(3) < Duration::from_secs(seconds) {
        std::thread::sleep(Duration::from_secs(1));
        let mut old = gateway.upgrade();
        let status = old.wait(Duration::from_secs(25));
        assert!(status.success(), "{status}");
        upgrades += 1;
    }
    let requests = load.judge();
    println!("{upgrades} upgrades, {requests} requests");
    assert!(upgrades > 0 && requests > 100, "{upgrades} upgrades, {requests} requests");
    gateway.finish();
}
