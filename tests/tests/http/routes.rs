//! Routes of a configuration file, end to end: who answers what, and what the origin gets.

use std::process::Command;

use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway, program};
use weir_tests::http::{HttpClient, Response};

/// An origin that says its name and repeats the head it got.
fn origin(name: &'static str) -> Faulty {
    Faulty::http(move |request| {
        let body = format!("{name}\n{}", String::from_utf8_lossy(&request[0]));
        Act::Reply(
            format!("HTTP/1.1 200 OK\r\nServer: {name}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes(),
        )
    })
}

/// Two origins, `one` behind the listener and `two` as an upstream of routes.
struct Scene {
    _origins: [Faulty; 2],
    gateway: Gateway,
}

impl Scene {
    fn new(routes: &str) -> Self {
        let origins = [origin("one"), origin("two")];
        let second = format!("[[upstream]]\nname = \"two\"\nendpoints = [\"{}\"]\n", origins[1].address.text());
        let config = Config::http(&origins[0].address).tables(&second).tables(routes);
        Self { gateway: Gateway::start(config), _origins: origins }
    }

    fn ask(&self, words: &str, lines: &str) -> Response {
        let mut client = HttpClient::connect(&self.gateway.address);
        client.send(format!("{words} HTTP/1.1\r\n{lines}\r\n"));
        client.response()
    }

    /// The upstream that responds to a GET.
    fn upstream_of(&self, host: &str, path: &str) -> String {
        let response = self.ask(&format!("GET {path}"), &format!("Host: {host}\r\n"));
        match response.status {
            200 => response.text().lines().next().unwrap_or_default().to_owned(),
            status => status.to_string(),
        }
    }
}

#[test]
fn hosts_and_paths_decide_in_the_documented_order() {
    let scene = Scene::new(
        r#"
[[route]]
name = "blog"
hosts = ["www.example.com", "*.example.org"]
path_prefix = "/blog"
upstream = "two"
[[route]]
name = "exact"
hosts = ["www.example.com"]
path = "/blog/news"
response = { status = 203, body = "news" }
[[route]]
name = "gone"
path_prefix = "/gone"
response = { status = 410 }
[[route]]
name = "asleep"
path_prefix = "/asleep"
state = "offline"
response = { status = 418 }
"#,
    );
    for (host, path, who) in [
        ("www.example.com", "/blog", "two"),
        ("WWW.Example.com:8080", "/blog/x?y", "two"),
        ("www.example.com.", "/blog/", "two"),
        ("www.example.com", "/a/../blog//x", "two"),
        ("www.example.com", "/blogger", "404"),
        ("www.example.com", "/gone", "404"),
        ("a.example.org", "/blog", "two"),
        ("a.b.example.org", "/blog", "one"),
        ("elsewhere", "/blog", "one"),
        ("elsewhere", "/gone/x", "410"),
        ("elsewhere", "/asleep", "one"),
        ("www.example.com", "/blog/news", "203"),
    ] {
        assert_eq!(scene.upstream_of(host, path), who, "{host}{path}");
    }
    scene.gateway.finish();
}

#[test]
fn h1_16_paths_that_could_be_read_in_two_ways_are_refused() {
    let scene = Scene::new("");
    for path in ["/a/..;/b", "/%2e%2e/b", "/a%00b", "/a%2fb", "/a\\b", "/a%5cb", "/..", "/%zz", "/a%"] {
        let response = scene.ask(&format!("GET {path}"), "Host: a\r\n");
        assert_eq!(response.status, 400, "{path}");
    }
    let response = scene.ask("GET //a/./b/../%7euser?q=//", "Host: a\r\n");
    assert!(response.text().contains("GET /a/~user?q=// HTTP/1.1"), "what routes see goes on: {}", response.text());
    scene.gateway.finish();
}

#[test]
fn ambiguous_paths_are_forwarded_unchanged_where_the_listener_keeps_them() {
    let origin = origin("one");
    let kept = "[listener.http]\npath_escaped_slash = \"keep\"\npath_backslash = \"keep\"\npath_merge_slashes = false";
    let route = "[[route]]\nname = \"npm\"\npath_prefix = \"/npm\"\nrewrite = { path_prefix = \"/registry\" }\nupstream = \"server\"";
    let gateway = Gateway::start(Config::http(&origin.address).listener(kept).tables(route));
    let mut client = HttpClient::connect(&gateway.address);
    for (asked, goes_on) in [
        ("/@scope%2fname", "/@scope%2Fname"),
        ("/a//b/../c", "/a//c"),
        ("/a%5Cb", "/a%5Cb"),
        ("/npm/@scope%2Fname", "/registry/@scope%2Fname"),
    ] {
        let text = client.get(asked).text();
        assert!(text.contains(&format!("GET {goes_on} HTTP/1.1\r\n")), "{asked}: {text}");
    }
    assert_eq!(client.get("/a%00b").status, 400, "nobody needs that");
    drop(client);
    gateway.finish();
}

#[test]
fn methods_headers_and_queries_are_conditions() {
    let scene = Scene::new(
        r#"
[[route]]
name = "writes"
path_prefix = "/api"
methods = ["POST", "PUT"]
upstream = "two"
[[route]]
name = "beta"
path_prefix = "/api"
header = [{ name = "X-Version", value = "^2\\.", kind = "regex", negate = true }, { name = "x-beta", kind = "present" }]
query = [{ name = "debug", value = "1" }]
response = { status = 299, body = "beta" }
"#,
    );
    let status = |words: &str, lines: &str| scene.ask(words, &format!("Host: a\r\n{lines}")).status;
    assert!(scene.ask("POST /api/x", "Host: a\r\nContent-Length: 0\r\n").text().starts_with("two"));
    assert!(scene.ask("GET /api/x", "Host: a\r\n").text().starts_with("one"));
    assert_eq!(status("GET /api?debug=1", "X-Beta: yes\r\nX-Version: 1.0\r\n"), 299);
    assert_eq!(status("GET /api?debug=1&debug=2", "X-Beta: yes\r\nX-Version: 1.0\r\n"), 299);
    for (words, lines) in [
        ("GET /api?debug=2", "X-Beta: yes\r\nX-Version: 1.0\r\n"),
        ("GET /api?Debug=1", "X-Beta: yes\r\nX-Version: 1.0\r\n"),
        ("GET /api?debug=1", "X-Version: 1.0\r\n"),
    ] {
        assert_eq!(status(words, lines), 200, "{words} {lines}");
    }
}

#[test]
fn targets_and_fields_are_rewritten() {
    let scene = Scene::new(
        r#"
[[route]]
name = "rewritten"
path_prefix = "/old"
upstream = "two"
rewrite = { path_prefix = "/new", host = "inner.example" }
request_header = [
    { name = "X-Client", value = "ip=%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% route=%ROUTE_NAME%" },
    { name = "X-Copy", value = "%REQ(x-secret)%" },
    { name = "X-Missing", value = "%REQ(x-nothing)%" },
    { name = "x-secret", change = "remove" },
]
response_header = [{ name = "Server", value = "weir" }, { name = "X-Up", change = "add", value = "%UPSTREAM_CLUSTER%" }]
[[route]]
name = "regex"
path_regex = "/u/[0-9]+/.*"
upstream = "two"
rewrite = { path_regex = "^/u/([0-9]+)/", path_replacement = "/users/$1/" }
[[route]]
name = "moved"
path_prefix = "/moved"
redirect = { status = 308, scheme = "https", host = "new.example", path_prefix = "/there" }
response_header = [{ name = "Strict-Transport-Security", value = "max-age=60" }]
"#,
    );
    let response = scene.ask("GET /old/a?b=c", "Host: outer.example\r\nX-Secret: s3\r\n");
    let text = response.text();
    for line in [
        "two\n",
        "GET /new/a?b=c HTTP/1.1\r\n",
        "Host: inner.example\r\n",
        "X-Client: ip=127.0.0.1 route=rewritten\r\n",
        "X-Copy: s3\r\n",
        "x-forwarded-host: outer.example\r\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
    assert!(!text.contains("X-Missing") && !text.to_lowercase().contains("x-secret:"), "{text}");
    assert_eq!((response.field("server").as_deref(), response.field("x-up").as_deref()), (Some("weir"), Some("two")));
    assert!(scene.ask("GET /u/42/x", "Host: a\r\n").text().contains("GET /users/42/x "));
    let moved = scene.ask("GET /moved/a?b", "Host: a\r\n");
    assert_eq!((moved.status, moved.field("location").as_deref()), (308, Some("https://new.example/there/a?b")));
    assert_eq!(moved.field("strict-transport-security").as_deref(), Some("max-age=60"));
    scene.gateway.finish();
}

#[test]
fn a_split_gives_each_upstream_its_share() {
    let scene = Scene::new(
        r#"
[[route]]
name = "canary"
split = [{ upstream = "server", weight = 9 }, { upstream = "two", weight = 1 }]
"#,
    );
    let mut client = HttpClient::connect(&scene.gateway.address);
    let second = (0..2_000).filter(|_| client.get("/").text().starts_with("two")).count();
    // Six standard deviations of a share of 200.
    assert!((120..280).contains(&second), "{second} of 2,000");
}

#[test]
fn a_wrong_route_is_refused_with_its_line_and_a_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = |routes: &str| {
        let file = folder.path().join("weir.toml");
        let head = "[[listener]]\nname = \"web\"\nprotocol = \"http\"\nbind = \"127.0.0.1:0\"\nupstream = \"app\"\n\
                    [[upstream]]\nname = \"app\"\nendpoints = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n";
        std::fs::write(&file, format!("{head}{routes}")).expect("written");
        let output = std::process::Command::new(weir_tests::gateway::program()).arg("check").arg(&file).output();
        let output = output.expect("weir runs");
        (
            output.status.success(),
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat(),
        )
    };
    assert!(check("[[route]]\nname = \"a\"\npath_prefix = \"/x\"\nupstream = \"app\"\n").0);
    for (routes, words) in [
        ("[[route]]\nname = \"a\"\n", "exactly one of"),
        ("[[route]]\nname = \"a\"\nupstream = \"ap\"\n", "did you mean \"app\"?"),
        ("[[route]]\nname = \"a\"\nupstream = \"app\"\npath_regex = \"(\"\n", "is no regex"),
        ("[[route]]\nname = \"a\"\nupstream = \"app\"\npath = \"/a/../b\"\n", "write `/b`"),
        ("[[route]]\nname = \"a\"\nupstream = \"app\"\nhosts = [\"a:80\"]\n", "has a port"),
        (
            "[[route]]\nname = \"a\"\nupstream = \"app\"\nrequest_header = [{ name = \"X\", value = \"%NOPE%\" }]\n",
            "NOPE",
        ),
        (
            "[[route]]\nname = \"a\"\nupstream = \"app\"\nrequest_header = [{ name = \"Host\", value = \"b\" }]\n",
            "rewrite.host",
        ),
        ("[[route]]\nname = \"a\"\nupstream = \"app\"\nlisteners = [\"wep\"]\n", "did you mean \"web\"?"),
        ("[[route]]\nname = \"a\"\nupstream = \"app\"\nprefix = \"/x\"\n", "prefix"),
    ] {
        let (is_fine, told) = check(routes);
        assert!(!is_fine && told.contains(words) && told.contains("weir.toml:"), "{routes}: {told}");
    }
}

#[test]
fn a_route_with_a_mistake_is_left_out_and_the_rest_serves_if_the_file_says_so() {
    let origin = Faulty::http(|_| Act::Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec()));
    let tables = r#"
[[route]]
name = "broken"
path_prefix = "/broken"
upstream = "server"
ip_filter = { deny = ["10.0.0.0/8"] }
ext_auth = { upstream = "server", response_headers = ["X-Remote-User"] }
[[route]]
name = "good"
path_prefix = "/good"
upstream = "server"
[[route]]
name = "aside"
path_prefix = "/aside"
state = "offline"
upstream = "server"
"#;
    let gateway = Gateway::start(Config::http(&origin.address).tables(tables));
    let mut client = HttpClient::connect(&gateway.address);
    assert_eq!(client.get("/broken").status, 200);
    let good = std::fs::read_to_string(&gateway.file).expect("its file");
    let bad = good.replacen("deny = [\"10.0.0.0/8\"]", "deny = [\"10.0.0.0/33\"]", 1);
    assert_ne!(good, bad);
    let reload = |text: &str| {
        std::fs::write(&gateway.file, text).expect("written");
        gateway.admin.request("POST", "/api/v1/reload", &[], "").expect("a response")
    };
    assert_eq!(reload(&bad).status, 422, "as long as nobody says otherwise the file is refused");
    assert_eq!(client.get("/broken").status, 200, "and the last good one serves");
    assert_eq!(reload(&format!("invalid_routes = \"unavailable\"\n{bad}")).status, 200);
    let refused = client.get("/broken/x");
    assert_eq!((refused.status, refused.field("retry-after").is_some()), (503, true));
    assert_eq!((client.get("/good").status, client.get("/").status), (200, 200));
    client.send("GET /good HTTP/1.1\r\nHost: a\r\nX-Remote-User: root\r\n\r\n");
    assert_eq!(client.response().status, 200);
    let last = origin.seen().pop().expect("a request");
    assert!(!String::from_utf8_lossy(&last[0]).contains("root"), "who asks cannot be forged meanwhile");
    let listed = gateway.admin.get("/api/v1/routes").json();
    let told = |name: &str| {
        let routes = listed["routes"].as_array().expect("a list");
        let route = routes.iter().find(|route| route["name"] == name).expect("it is listed");
        (route["validity"].as_str().map(str::to_owned), route["online"].as_bool(), route["mistakes"].to_string())
    };
    let (validity, online, mistakes) = told("broken");
    assert_eq!((validity.as_deref(), online), (Some("invalid"), Some(true)));
    assert!(mistakes.contains("ip_filter.deny"), "{mistakes}");
    assert_eq!(told("good"), (Some("valid".to_owned()), Some(true), "[]".to_owned()));
    assert_eq!(told("aside").1, Some(false));
    let weir = |words: &[&str]| {
        let output = Command::new(program()).args(words).arg(&gateway.file).output().expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let (is_good, text) = weir(&["check"]);
    assert!(!is_good && text.contains("ip_filter.deny") && text.contains("without 1 of its routes"), "{text}");
    let (is_good, text) = weir(&["routes"]);
    assert!(is_good && text.contains("route broken: invalid") && text.contains("route aside: offline"), "{text}");
    // A claim header of an invalid route is not removed from the requests of other routes.
    let claim = "jwt = { provider = [{ algorithms = [\"EdDSA\"], jwks_upstream = \"server\", jwks_path = \"/\" }], \
                 claim_header = [{ header = \"Authorization\", claim = [\"sub\"] }] }";
    let told = good.replacen("ip_filter = { deny = [\"10.0.0.0/8\"] }", claim, 1);
    assert_eq!(reload(&format!("invalid_routes = \"unavailable\"\n{told}")).status, 200);
    assert_eq!(client.get("/broken").status, 503);
    client.send("GET /good HTTP/1.1\r\nHost: a\r\nAuthorization: Mine\r\n\r\n");
    assert_eq!(client.response().status, 200);
    assert!(String::from_utf8_lossy(&origin.seen().pop().expect("a request")[0]).contains("Authorization: Mine"));
    // A mistake in which requests it takes concerns all of them.
    let wild = bad.replacen("path_prefix = \"/broken\"", "path_regex = \"(\"", 1);
    assert_eq!(reload(&format!("invalid_routes = \"unavailable\"\n{wild}")).status, 422);
    assert_eq!(reload(&format!("invalid_routes = \"unavailable\"\n{good}")).status, 200);
    assert_eq!(client.get("/broken").status, 200);
    drop(client);
    gateway.finish();
}

#[test]
fn routes_inherit_unwritten_keys_from_their_domain() {
    let origin = origin("server");
    let tables = r#"
[[domain]]
name = "shop"
hosts = ["shop.example", "*.shop.example"]
request_body_bytes_max = "1KiB"
request_header = [{ name = "x-domain", value = "shop" }]
response_header = [{ name = "x-domain", value = "shop" }]
rate_limit = [{ name = "shop", requests = 7, per = "1h", key = "all" }]
[[route]]
name = "cart"
domain = "shop"
path_prefix = "/cart"
upstream = "server"
[[route]]
name = "upload"
domain = "shop"
hosts = ["upload.example"]
request_body_bytes_max = 0
response_header = [{ name = "x-route", value = "upload" }]
upstream = "server"
"#;
    let gateway = Gateway::start(Config::http(&origin.address).tables(tables));
    let mut client = HttpClient::connect(&gateway.address);
    client.send("POST /cart HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 1025\r\n\r\n");
    assert_eq!(client.response().status, 413);
    let mut client = HttpClient::connect(&gateway.address);
    let mut ask = |host: &str, path: &str, length: usize| {
        let body = "a".repeat(length);
        client.send(format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}"));
        client.response()
    };
    let of_domain = |response: &Response| response.field("x-domain");
    let of_route = |response: &Response| response.field("x-route");
    let cart = ask("a.shop.example", "/cart", 1_024);
    assert_eq!((cart.status, of_domain(&cart), of_route(&cart)), (200, Some("shop".to_owned()), None));
    assert_eq!(ask("shop.example", "/other", 0).status, 404, "the domain's hosts are those of its routes alone");
    assert_eq!(of_domain(&ask("a.b.shop.example", "/cart", 0)), None, "a star is one label");
    let upload = ask("upload.example", "/", 4_096);
    assert_eq!((upload.status, of_domain(&upload), of_route(&upload)), (200, None, Some("upload".to_owned())));
    let last = origin.seen().pop().expect("a request");
    assert!(String::from_utf8_lossy(&last[0]).to_ascii_lowercase().contains("x-domain: shop\r\n"));
    for path in ["/cart", "/cart/1"] {
        assert_eq!(ask("shop.example", path, 0).status, 200);
        assert_eq!(ask("upload.example", path, 0).status, 200);
    }
    let limited = ask("shop.example", "/cart", 0).status;
    assert_eq!((limited, ask("upload.example", "/", 0).status), (429, 429), "one limit counts the requests of both");
    drop(client);
    let listed = gateway.admin.get("/api/v1/routes").json();
    assert_eq!((&listed["routes"][0]["domain"], &listed["routes"][0]["online"]), (&"shop".into(), &true.into()));
    let good = std::fs::read_to_string(&gateway.file).expect("its file");
    let reload = |text: &str| {
        std::fs::write(&gateway.file, text).expect("written");
        gateway.admin.request("POST", "/api/v1/reload", &[], "").expect("a response")
    };
    let status_of = |host: &str| {
        let mut client = HttpClient::connect(&gateway.address);
        client.send(format!("GET /cart HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.response().status
    };
    // Offline, its hosts are as any other; a mistake in it affects its own routes only.
    assert_eq!(reload(&good.replacen("name = \"shop\"", "name = \"shop\"\nstate = \"offline\"", 1)).status, 200);
    assert_eq!(gateway.admin.get("/api/v1/routes").json()["routes"][1]["online"], false);
    assert_eq!((status_of("shop.example"), status_of("upload.example")), (200, 200));
    let bad = good.replacen("key = \"all\"", "key = \"header\"", 1);
    assert_eq!(reload(&bad).status, 422);
    assert_eq!(reload(&format!("invalid_routes = \"unavailable\"\n{bad}")).status, 200);
    assert_eq!((status_of("shop.example"), status_of("upload.example"), status_of("a")), (503, 503, 200));
    assert_eq!(reload(&good.replacen("domain = \"shop\"", "domain = \"shp\"", 1)).status, 422);
    gateway.finish();
}

#[test]
fn an_operator_sees_which_route_takes_a_request_and_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("weir.toml");
    let text = r#"
[[listener]]
name = "web"
protocol = "http"
bind = "127.0.0.1:8080"
upstream = "app"
[[upstream]]
name = "app"
endpoints = ["127.0.0.1:8081"]
[[route]]
name = "beta"
hosts = ["shop.example"]
path_prefix = "/cart"
header = [{ name = "x-beta", value = "yes" }]
upstream = "app"
[[route]]
name = "cart"
hosts = ["shop.example"]
path_prefix = "/cart"
methods = ["GET"]
upstream = "app"
"#;
    std::fs::write(&file, text).expect("written");
    let routes = |words: &[&str]| {
        let output = Command::new(program()).arg("routes").arg(&file).args(words).output().expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let (is_good, table) = routes(&[]);
    let at = |name: &str| table.find(name).unwrap_or_else(|| panic!("{name} is not in\n{table}"));
    assert!(is_good && at("cart") < at("default"), "{table}");
    let (_, told) = routes(&["http://shop.example/cart?x=1"]);
    assert!(told.contains("yes  cart"), "{told}");
    let (_, told) = routes(&["http://shop.example/cart", "-X", "POST", "-H", "X-Beta: yes"]);
    assert!(told.contains("yes  beta") && told.contains("no   cart"), "{told}");
    let (_, told) = routes(&["http://other.example/cart"]);
    assert!(told.contains("yes  default"), "{told}");
    let (_, told) = routes(&["http://shop.example/a%2Fb"]);
    assert!(told.contains("refused with 400"), "{told}");
    assert!(!routes(&["-l", "nobody"]).0);
}
