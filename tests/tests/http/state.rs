//! The operator's view of a gateway whose origins fail: classes of statuses, the warning of the share of errors, warnings of
//! probes, and `weir top`; and of certificates that end soon.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_tests::certificate::Certificates;
use weir_tests::deadline::until_true;
use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway, program};
use weir_tests::http::HttpClient;
use weir_tests::port;
use weir_tests::stream::Address;

const ROUTES: &str = "[[route]]\nname = \"bad\"\nlisteners = [\"test\"]\npath_prefix = \"/bad\"\nupstream = \"server\"";

/// Responds with 500 to `/bad`, 404 to `/none`, and 200 to everything else.
fn origin() -> Faulty {
    Faulty::http(|request| {
        let has = |path: &[u8]| request[0].windows(path.len()).any(|window| window == path);
        let status = if has(b" /bad") {
            "500 Internal Server Error"
        } else if has(b" /none") {
            "404 Not Found"
        } else {
            "200 OK"
        };
        Act::Reply(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nhi").into_bytes())
    })
}

pub(crate) fn listener(gateway: &Gateway) -> Value {
    gateway.admin.get("/api/v1/listeners").json()["listeners"][0].clone()
}

/// A route by its name.
pub(crate) fn route(gateway: &Gateway, name: &str) -> Value {
    let all = gateway.admin.get("/api/v1/routes").json();
    all["routes"].as_array().expect("routes").iter().find(|route| route["name"] == name).expect("it").clone()
}

/// A class of the responses of something, such as `2xx`.
pub(crate) fn class(of: &Value, class: &str) -> u64 {
    of["responses_total"][class].as_u64().unwrap_or_else(|| panic!("no {class} in {of}"))
}

/// A frame of `weir top` at 80 columns.
pub(crate) fn top(gateway: &Gateway) -> String {
    let url = format!("http://{}", gateway.admin.address);
    let mut top = Command::new(program());
    top.args(["top", "--once", "--columns", "80", "--admin", &url]).env_remove("WEIR_ADMIN_TOKEN");
    String::from_utf8_lossy(&top.output().expect("weir top runs").stdout).into_owned()
}

/// The words of the line of `weir top` that begins with this one.
pub(crate) fn line<'a>(frame: &'a str, first: &str) -> Vec<&'a str> {
    let mut lines = frame.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find(|words| words.first() == Some(&first)).unwrap_or_else(|| panic!("no line {first} in:\n{frame}"))
}

#[test]
fn responses_are_counted_by_class_of_listener_route_and_endpoint() {
    let origin = origin();
    let gateway = Gateway::start(Config::http(&origin.address).tables(ROUTES));
    let mut client = HttpClient::connect(&gateway.address);
    let statuses = ["/", "/", "/", "/none", "/bad", "/bad"].map(|path| client.get(path).status);
    assert_eq!(statuses, [200, 200, 200, 404, 500, 500]);
    until_true("all responses to be counted", || {
        let listener = listener(&gateway);
        (class(&listener, "2xx"), class(&listener, "4xx"), class(&listener, "5xx")) == (3, 1, 2)
    });
    let bad = route(&gateway, "bad");
    assert_eq!((class(&bad, "2xx"), class(&bad, "5xx")), (0, 2), "{bad}");
    let upstreams = gateway.admin.get("/api/v1/upstreams").json();
    let endpoint = &upstreams["upstreams"][0]["endpoints"][0];
    assert_eq!((class(endpoint, "2xx"), class(endpoint, "4xx"), class(endpoint, "5xx")), (3, 1, 2));
    drop(client);
    gateway.finish();
}

#[test]
fn a_listener_whose_responses_are_errors_is_warned_about_in_the_api_the_log_and_top() {
    let origin = origin();
    let gateway = Gateway::start(Config::http(&origin.address).tables(ROUTES));
    let mut client = HttpClient::connect(&gateway.address);
    assert_eq!(listener(&gateway)["errors"]["warned"], false);
    assert_eq!(listener(&gateway)["errors"]["warn_ratio"], 0.05);
    until_true("a warning", || {
        assert_eq!(client.get("/bad").status, 500);
        listener(&gateway)["errors"]["warned"] == true
    });
    gateway.wait_log("many responses are errors (5xx or broken off)");
    // While errors go on, and by word: a terminal may have no colours.
    std::thread::scope(|scope| {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                assert_eq!(client.get("/bad").status, 500);
            }
        });
        let frame = top(&gateway);
        drop(stop);
        assert!(
            frame.lines().nth(2).is_some_and(|alert| alert.contains("of the responses are errors (5xx or broken off)")),
            "{frame}"
        );
        assert!(line(&frame, "LISTENER").contains(&"5XX/S"), "{frame}");
        assert_eq!(line(&frame, "test")[1], "ERRORS", "{frame}");
        assert_eq!(line(&frame, "bad")[1], "ERRORS", "{frame}");
        assert!(line(&frame, "server").contains(&"ERRORS"), "{frame}");
    });
    gateway.finish();
}

#[test]
fn a_listener_with_another_threshold_is_not_warned_about_below_it() {
    let origin = origin();
    let usual = Address::port(port::free());
    let second = format!(
        "[[listener]]\nname = \"usual\"\nprotocol = \"http\"\nbind = \"{}\"\nupstream = \"server\"",
        usual.text()
    );
    let config = Config::http(&origin.address).listener("[listener.http]\nerror_warn = 0.9").tables(&second);
    let gateway = Gateway::start(config);
    let [mut lenient, mut strict] = [&gateway.address, &usual].map(HttpClient::connect);
    let mut round = || {
        for client in [&mut lenient, &mut strict] {
            assert_eq!(client.get("/bad").status, 500);
            assert_eq!(client.get("/").status, 200);
        }
    };
    let warned = |name: &str| {
        let all = gateway.admin.get("/api/v1/listeners").json()["listeners"].clone();
        let own = all.as_array().expect("listeners").iter().find(|one| one["name"] == name).expect("it").clone();
        assert!(own["errors"]["ratio"].as_f64().is_none_or(|ratio| (0.3..0.7).contains(&ratio)), "{own}");
        own["errors"]["warned"] == true
    };
    until_true("a warning of the listener with the usual threshold", || {
        round();
        warned("usual")
    });
    // The same responses, for as long again as several looks take: what differs is the threshold.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        round();
        assert!(!warned("test"));
    }
    assert!(warned("usual"));
    drop((lenient, strict));
    gateway.finish();
}

/// A check of `/readyz?verbose`, behind the status of the whole.
fn check(gateway: &Gateway, name: &str) -> (u16, String, Value) {
    let response = gateway.admin.get("/readyz?verbose");
    let all = response.json();
    let own = all["checks"].as_array().expect("checks").iter().find(|check| check["name"] == name).expect("it").clone();
    (response.status, all["status"].as_str().expect("a status").to_owned(), own)
}

#[test]
fn an_upstream_that_cannot_be_reached_is_a_warning_from_the_start_on() {
    let nobody = port::free();
    let gateway = Gateway::start(Config::http(&Address::port(nobody)));
    until_true("the first probe to fail", || check(&gateway, "upstream_server").2["status"] == "warn");
    let (status, whole, own) = check(&gateway, "upstream_server");
    assert_eq!((status, whole.as_str()), (200, "pass"), "a gateway with a dead server is ready");
    assert!(own["detail"].as_str().is_some_and(|detail| detail.contains("refused")), "{own}");
    let line = "upstream cannot be reached upstream=server";
    gateway.wait_log(line);
    let origin = origin_at(nobody);
    until_true("the upstream to be well", || check(&gateway, "upstream_server").2["status"] == "pass");
    drop(origin);
    gateway.finish();
}

/// Takes connections there, as health checks make them.
fn origin_at(port: u16) -> std::net::TcpListener {
    let listener = std::net::TcpListener::bind(("127.0.0.1", port)).expect("the port is still free");
    let accepting = listener.try_clone().expect("cloned");
    std::thread::spawn(move || accepting.incoming().flatten().for_each(drop));
    listener
}

#[test]
fn the_days_that_a_certificate_has_left_are_a_metric_and_an_alert() {
    const EXPIRY: &str = "weir_tls_certificate_expiry_timestamp_seconds";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let soon = Certificates::create_ending_in(&folder.path().join("soon"), 10);
    let late = Certificates::create_ending_in(&folder.path().join("late"), 90);
    let origin = origin();
    let tls = |files: &Certificates| {
        format!(
            "[listener.tls]\ncert_file = \"{}\"\nkey_file = \"{}\"",
            files.server.display(),
            files.server_key.display()
        )
    };
    let gateway = Gateway::start(Config::http(&origin.address).listener(&tls(&soon)));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_secs_f64();
    let days = || {
        let of = [("listener", "test"), ("certificate", "localhost")];
        (gateway.metrics().sum_where(EXPIRY, &of) - now) / 86_400.0
    };
    until_true("the metric", || (8.9..10.1).contains(&days()));
    let certificate = listener(&gateway)["certificates"][0].clone();
    assert_eq!((certificate["name"].as_str(), certificate["state"].as_str()), (Some("localhost"), Some("warning")));
    assert!(certificate["days_left"].as_i64().is_some_and(|days| (8..=10).contains(&days)), "{certificate}");
    gateway.wait_log("a certificate expires soon");
    let frame = top(&gateway);
    assert!(frame.contains("! test: the certificate localhost expires in "), "{frame}");
    // It is renewed, and there is nothing left to tell.
    gateway.rewrite(|text| text.replace("/soon/", "/late/"));
    assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 200);
    until_true("the metric of the new one", || (88.9..90.1).contains(&days()));
    assert_eq!(listener(&gateway)["certificates"][0]["state"], "valid");
    assert_eq!(late.server.file_name(), soon.server.file_name());
    // One with a weekend left is urgent.
    let last = Certificates::create_ending_in(&folder.path().join("last"), 2);
    gateway.rewrite(|text| text.replace("/late/", "/last/"));
    assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 200);
    gateway.wait_log("a certificate expires very soon");
    assert_eq!(listener(&gateway)["certificates"][0]["state"], "critical");
    assert!(last.server.is_file());
    gateway.finish();
}
