//! Policies of listeners and routes, end to end: admission, the fields for the origin, and the responses to the client.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::SystemTime;

use rcgen::{KeyPair, PKCS_ED25519, SigningKey as _};
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::{HttpClient, Response};

/// bcrypt of `secret`, made with the crypt of glibc.
const BCRYPT: &str = "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";
/// PBKDF2 of `secret` with as many rounds as are taken, made with Python's hashlib: about a second.
const SLOW: &str = "$pbkdf2-sha256$2000000$AAECAwQFBgcICQoLDA0ODw$Uss5.3BY0OagIROau0gOroTsrB54c.81XI1AAGmdUOU";

/// A gateway before an origin that repeats the head it got, and files that only this user can read.
pub(crate) struct Scene {
    pub(crate) gateway: Gateway,
    pub(crate) origin: Faulty,
    folder: TempDir,
}

impl Scene {
    /// `{folder}` in the lines stands for the folder of `files`.
    pub(crate) fn new(files: &[(&str, &str)], listener: &str, tables: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        files.iter().for_each(|(name, text)| write(&folder, name, text));
        let origin = Faulty::http(|request| {
            let body = String::from_utf8_lossy(&request[0]).into_owned();
            let cors = "Access-Control-Allow-Origin: *\r\nX-Total: 3\r\n";
            Act::Reply(format!("HTTP/1.1 200 OK\r\n{cors}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
        });
        let own = |lines: &str| lines.replace("{folder}", &folder.path().display().to_string());
        // Two workers, so that shared state is shared between them.
        let config = Config::http(&origin.address).workers(2).listener(&own(listener)).tables(&own(tables));
        Self { gateway: Gateway::start(config), origin, folder }
    }

    pub(crate) fn client(&self) -> HttpClient {
        HttpClient::connect(&self.gateway.address)
    }

    pub(crate) fn ask(&self, words: &str, lines: &str) -> Response {
        let mut client = self.client();
        client.send(format!("{words} HTTP/1.1\r\nHost: test.example\r\n{lines}\r\n"));
        client.response()
    }

    pub(crate) fn status(&self, words: &str, lines: &str) -> u16 {
        self.ask(words, lines).status
    }

    pub(crate) fn denied(&self, reason: &str) -> f64 {
        self.gateway.metrics().sum_where("weir_http_denied_total", &[("reason", reason)])
    }

    pub(crate) fn reload(&self) {
        assert_eq!(self.gateway.admin.request("POST", "/api/v1/reload", &[], "").expect("a response").status, 200);
    }
}

fn write(folder: &TempDir, name: &str, text: &str) {
    let path = folder.path().join(name);
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path).expect("a file");
    file.write_all(text.as_bytes()).expect("written");
}

fn base64(bytes: &[u8], alphabet: &[u8; 2], pads: bool) -> String {
    let letter = |bits: u32| match bits & 63 {
        bits @ 0..=25 => b'A' + bits as u8,
        bits @ 26..=51 => b'a' + bits as u8 - 26,
        bits @ 52..=61 => b'0' + bits as u8 - 52,
        bits => alphabet[bits as usize - 62],
    };
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        (0..=three.len()).for_each(|at| text.push(char::from(letter(bits >> (18 - 6 * at)))));
        (three.len()..3).filter(|_| pads).for_each(|_| text.push('='));
    }
    text
}

fn basic(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", base64(format!("{user}:{password}").as_bytes(), b"+/", true))
}

#[test]
fn addresses_are_judged_behind_the_trusted_proxies_and_nowhere_else() {
    let scene = Scene::new(
        &[],
        "[listener.http]\nforwarded = \"append\"\ntrusted_hops = 1\nip_filter = { allow = [\"10.0.0.0/8\", \"2001:db8::/32\"] }",
        r#"
[[route]]
name = "open"
path_prefix = "/open"
ip_filter = { enabled = false }
response = { status = 200 }
[[route]]
name = "peers"
path_prefix = "/peers"
ip_filter = { deny = ["127.0.0.0/8"], source = "peer" }
response = { status = 200 }
"#,
    );
    for (path, forwarded, status) in [
        ("/", "10.1.2.3", 200),
        ("/", "203.0.113.9, 10.1.2.3", 200),
        ("/", "10.1.2.3, 203.0.113.9", 403),
        ("/", "[2001:db8::1]:443", 200),
        ("/", "unknown", 403),
        ("/open", "203.0.113.9", 200),
        ("/peers", "10.1.2.3", 403),
    ] {
        let got = scene.status(&format!("GET {path}"), &format!("X-Forwarded-For: {forwarded}\r\n"));
        assert_eq!(got, status, "{path} {forwarded}");
    }
    assert_eq!(scene.status("GET /", ""), 403, "without the field the proxy itself is the client");
    assert_eq!(scene.denied("address_denied"), 4.0);
    scene.gateway.finish();
}

#[test]
fn preflight_requests_are_answered_here_and_leave_is_only_that_of_the_policy() {
    let scene = Scene::new(
        &[],
        r#"[listener.http]
cors = { allow_origins = ["https://app.example"], allow_origin_regexes = ["https://[a-z]+\\.dev\\.example"], allow_methods = ["PUT"], allow_headers = ["X-Token"], expose_headers = ["X-Total"], max_age = "10m", allow_credentials = true }
rate_limit = [{ name = "few", requests = 1, per = "1h", key = "header", header = "x-tenant", missing = "pass" }]"#,
        "[[route]]\nname = \"own\"\npath_prefix = \"/own\"\ncors = { enabled = false }\nupstream = \"server\"",
    );
    let preflight =
        |origin: &str| scene.ask("OPTIONS /x", &format!("Origin: {origin}\r\nAccess-Control-Request-Method: PUT\r\n"));
    let allowed = |response: &Response| response.field("access-control-allow-origin");
    for origin in ["https://app.example", "https://two.dev.example"] {
        let response = preflight(origin);
        assert_eq!((response.status, allowed(&response).as_deref()), (204, Some(origin)));
        assert_eq!(response.field("access-control-allow-methods").as_deref(), Some("PUT"));
        assert_eq!(response.field("access-control-max-age").as_deref(), Some("600"));
        assert!(response.field("vary").is_some_and(|vary| vary.contains("Origin")));
    }
    let response = preflight("https://evil.example");
    assert_eq!((response.status, allowed(&response)), (204, None));
    assert_eq!(scene.origin.seen().len(), 0, "no preflight reached the origin");
    assert_eq!(scene.denied("cors_origin_denied"), 1.0);
    let response = scene.ask("GET /", "Origin: https://app.example\r\n");
    assert_eq!(allowed(&response).as_deref(), Some("https://app.example"), "the origin's own leave is replaced");
    assert_eq!(response.field("access-control-expose-headers").as_deref(), Some("X-Total"));
    assert_eq!(response.field("access-control-allow-credentials").as_deref(), Some("true"));
    assert_eq!(allowed(&scene.ask("GET /", "Origin: https://evil.example\r\n")), None);
    assert_eq!(allowed(&scene.ask("GET /own", "Origin: https://evil.example\r\n")).as_deref(), Some("*"));
    let tenant = "Origin: https://app.example\r\nX-Tenant: a\r\n";
    assert_eq!(scene.status("GET /", tenant), 200);
    let limited = scene.ask("GET /", tenant);
    assert_eq!(
        (limited.status, allowed(&limited).as_deref()),
        (429, Some("https://app.example")),
        "a page may read why"
    );
    scene.gateway.finish();
}

#[test]
fn users_need_a_password_and_the_origin_gets_their_name() {
    let scene = Scene::new(
        &[("users", &format!("# staff\nalice:{BCRYPT}\nbob:{{SHA}}5en6G6MezRroT3XKqkdPOmY/BfQ=\n"))],
        "[listener.http]\nbasic_auth = { users_file = \"{folder}/users\", realm = \"staff\", user_header = \"X-Remote-User\" }",
        "[[route]]\nname = \"open\"\npath_prefix = \"/open\"\nbasic_auth = { enabled = false }\nupstream = \"server\"",
    );
    let asked = scene.ask("GET /", "");
    assert_eq!(asked.status, 401);
    assert_eq!(asked.field("www-authenticate").as_deref(), Some("Basic realm=\"staff\", charset=\"UTF-8\""));
    for (user, password, status) in
        [("alice", "secret", 200), ("alice", "Secret", 401), ("bob", "secret", 200), ("carol", "secret", 401)]
    {
        // The second time it is remembered.
        for _ in 0..2 {
            assert_eq!(scene.status("GET /", &basic(user, password)), status, "{user}:{password}");
        }
    }
    let lines = format!(
        "{}X-Remote-User: root\r\nx_remote_user: root\r\nConnection: X-Remote-User\r\n",
        basic("alice", "secret")
    );
    let seen = scene.ask("GET /", &lines).text();
    assert!(seen.contains("X-Remote-User: alice\r\n"), "{seen}");
    assert!(!seen.contains("root") && !seen.to_lowercase().contains("authorization"), "{seen}");
    let seen = scene.ask("GET /open", "X-Remote-User: root\r\n");
    assert!(seen.status == 200 && !seen.text().contains("root"), "also where nobody is asked: {}", seen.text());
    assert_eq!((scene.denied("basic_missing"), scene.denied("basic_wrong")), (1.0, 4.0));
    assert_eq!(scene.gateway.metrics().sum("weir_auth_failures_total"), 4.0);
    write(&scene.folder, "users", &format!("carol:{BCRYPT}\n"));
    scene.reload();
    assert_eq!(scene.status("GET /", &basic("alice", "secret")), 401, "a reload reads the file again");
    assert_eq!(scene.status("GET /", &basic("carol", "secret")), 200);
    scene.gateway.finish();
}

#[test]
fn a_password_that_takes_long_to_check_holds_up_nobody_else() {
    let scene = Scene::new(
        &[("users", &format!("alice:{SLOW}\n"))],
        "",
        "[[route]]\nname = \"slow\"\npath_prefix = \"/slow\"\nbasic_auth = { users_file = \"{folder}/users\" }\nupstream = \"server\"",
    );
    let mut others = scene.client();
    assert_eq!(others.get("/").status, 200);
    let mut clients: Vec<HttpClient> = (0..6).map(|_| scene.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let lines = basic("alice", &format!("wrong {number}"));
        client.send(format!("GET /slow HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
    }
    let mut meanwhile = 0;
    for _ in 0..50 {
        assert_eq!(others.get("/").status, 200);
        meanwhile += usize::from(!clients.iter_mut().all(HttpClient::has_response));
    }
    assert!(meanwhile > 0, "nobody was served while passwords were checked");
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.response().status).collect();
    let count = |wanted| statuses.iter().filter(|status| **status == wanted).count();
    // Four checks at a time, and the others are refused; where the tests are starved one may begin when another has ended.
    assert!(count(401) >= 4 && count(401) + count(503) == 6, "{statuses:?}");
    assert_eq!(scene.status("GET /slow", &basic("alice", "secret")), 200);
    drop((others, clients));
    scene.gateway.finish();
}

#[test]
fn api_keys_are_taken_from_where_they_may_be_and_not_passed_on() {
    let scene = Scene::new(
        &[("key", "k2")],
        r#"[listener.http.api_key]
header = "x-api-key"
query = "key"
cookie = "key"
user_header = "X-Consumer"
key = [
    { name = "one", sha256 = "6ab9f1eb8f7d3388f4f9d586f66e99fd54080df2c446f0e58668b09c08a16dd0" },
    { name = "two", key = { file = "{folder}/key" } },
]"#,
        "",
    );
    let denied = scene.ask("GET /", "");
    assert_eq!((denied.status, denied.field("www-authenticate").as_deref()), (401, Some("ApiKey")));
    assert_eq!(scene.status("GET /", "X-Api-Key: k3\r\n"), 401);
    for (target, lines) in [
        ("/?a=b", "X-Api-Key: k1\r\n"),
        ("/?a=b", "X-Api-Key: k2\r\n"),
        ("/?key=k2&a=b", ""),
        ("/?a=b", "Cookie: x=y; key=k2\r\n"),
    ] {
        let seen = scene.ask(&format!("GET {target}"), lines);
        let text = seen.text();
        let owner = if lines.contains("k1") { "one" } else { "two" };
        assert!(seen.status == 200 && text.contains(&format!("X-Consumer: {owner}\r\n")), "{target} {lines}: {text}");
        assert!(
            text.starts_with("GET /?a=b HTTP") && !text.contains("k1") && !text.contains("k2"),
            "{target} {lines}: {text}"
        );
    }
    assert_eq!((scene.denied("api_key_missing"), scene.denied("api_key_unknown")), (1.0, 1.0));
    scene.gateway.finish();
}

/// Signs tokens.
pub(crate) struct Issuer(KeyPair);

impl Issuer {
    pub(crate) fn new() -> Self {
        Self(KeyPair::generate_for(&PKCS_ED25519).expect("a key"))
    }

    pub(crate) fn jwks(&self) -> String {
        let x = base64(self.0.public_key_raw(), b"-_", false);
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": x}]}).to_string()
    }

    pub(crate) fn token(&self, claims: &Json) -> String {
        self.token_of("one", claims)
    }

    /// A token that names this key.
    pub(crate) fn token_of(&self, kid: &str, claims: &Json) -> String {
        let part = |part: &Json| base64(part.to_string().as_bytes(), b"-_", false);
        let message = format!("{}.{}", part(&json!({"alg": "EdDSA", "kid": kid})), part(claims));
        let signature = self.0.sign(message.as_bytes()).expect("signed");
        format!("Authorization: Bearer {message}.{}\r\n", base64(&signature, b"-_", false))
    }
}

#[test]
fn tokens_are_verified_and_their_claims_forwarded() {
    let issuer = Issuer::new();
    let scene = Scene::new(
        &[("jwks", &issuer.jwks())],
        r#"[listener.http.jwt]
provider = [{ issuer = "https://id.example", audiences = ["api"], algorithms = ["EdDSA"], jwks_file = "{folder}/jwks" }]
claim_header = [{ header = "X-Claim-Sub", claim = ["sub"] }, { header = "X-Claim-Kind", claim = ["org", "kind"] }]"#,
        "[[route]]\nname = \"open\"\npath_prefix = \"/open\"\njwt = { enabled = false }\nupstream = \"server\"",
    );
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    let claims =
        |exp: u64| json!({"iss": "https://id.example", "aud": "api", "sub": "alice", "exp": exp, "org": {"kind": 7}});
    let missing = scene.ask("GET /", "");
    let challenge = missing.field("www-authenticate");
    assert_eq!((missing.status, challenge.as_deref()), (401, Some("Bearer realm=\"restricted\"")));
    let good = issuer.token(&claims(now + 60));
    let seen = scene.ask("GET /", &format!("{good}X-Claim-Sub: root\r\n"));
    let text = seen.text();
    assert!(text.contains("X-Claim-Sub: alice\r\n") && text.contains("X-Claim-Kind: 7\r\n"), "{text}");
    assert!(!text.contains("root") && !text.contains("Bearer"), "{text}");
    assert!(!scene.ask("GET /open", "X-Claim-Sub: root\r\n").text().contains("root"));
    for (token, reason) in [
        (issuer.token(&claims(now - 61)), "jwt_expired"),
        (Issuer::new().token(&claims(now + 60)), "jwt_signature"),
        (issuer.token(&json!({"iss": "https://id.example", "aud": "web", "exp": now + 60})), "jwt_audience"),
    ] {
        let refused = scene.ask("GET /", &token);
        assert_eq!((refused.status, scene.denied(reason)), (401, 1.0), "{reason}");
        assert!(refused.field("www-authenticate").is_some_and(|text| text.contains("error=\"invalid_token\"")));
    }
    let next = Issuer::new();
    write(&scene.folder, "jwks", &next.jwks());
    scene.reload();
    assert_eq!(scene.status("GET /", &good), 401, "a token that was remembered ends with its key");
    assert_eq!(scene.status("GET /", &next.token(&claims(now + 60))), 200);
    scene.gateway.finish();
}

#[test]
fn the_authorization_field_is_not_forwarded_when_the_token_came_in_a_cookie() {
    let issuer = Issuer::new();
    let scene = Scene::new(
        &[("jwks", &issuer.jwks())],
        r#"[listener.http.jwt]
header = "authorization"
cookie = "token"
provider = [{ algorithms = ["EdDSA"], jwks_file = "{folder}/jwks", require_exp = false }]"#,
        "",
    );
    let token = issuer.token(&json!({"sub": "alice"}));
    let token = token.trim_end().rsplit_once(' ').expect("a token").1;
    for other in ["Bearer\tcanary", "Basic Y2FuYXJ5", "bearer", "Bearercanary", "canary"] {
        let lines = format!("Cookie: token={token}\r\nAuthorization: {other}\r\n");
        let seen = scene.ask("GET /", &lines);
        let text = seen.text();
        assert_eq!(seen.status, 200, "{other:?}: {text}");
        assert!(!text.to_lowercase().contains("authorization"), "{other:?} went on: {text}");
    }
    scene.gateway.finish();
}

#[test]
fn rate_limits_count_by_client_and_route_and_outlive_a_reload() {
    let scene = Scene::new(
        &[],
        r#"[listener.http]
forwarded = "append"
trusted_hops = 1
rate_limit = [{ name = "client", requests = 3, per = "1h", fields = "both" }]"#,
        r#"
[[route]]
name = "login"
path_prefix = "/login"
rate_limit = [{ name = "login", requests = 1, per = "1m", status = 503 }]
response = { status = 200 }
[[route]]
name = "free"
path_prefix = "/free"
rate_limit = [{ name = "off", enabled = false }]
response = { status = 200 }
"#,
    );
    let from =
        |path: &str, address: &str| scene.ask(&format!("GET {path}"), &format!("X-Forwarded-For: {address}\r\n"));
    for left in (0..3).rev() {
        let response = from("/", "192.0.2.1");
        assert_eq!(response.status, 200);
        assert!(response.field("ratelimit").is_some_and(|told| told.starts_with(&format!("\"client\";r={left};t="))));
        assert_eq!(response.field("ratelimit-policy").as_deref(), Some("\"client\";q=3;w=3600"));
        assert_eq!(response.field("x-ratelimit-remaining"), Some(left.to_string()));
    }
    let refused = from("/", "192.0.2.1");
    assert_eq!(refused.status, 429);
    let wait: u64 = refused.field("retry-after").expect("when to come again").parse().expect("seconds");
    assert!((1_000..=1_200).contains(&wait), "a third of an hour, not {wait} s");
    assert_eq!(from("/", "192.0.2.2").status, 200, "another client has a bucket of its own");
    assert_eq!(from("/login", "192.0.2.1").status, 200, "a route with its own limit has only that");
    assert_eq!(from("/login", "192.0.2.1").status, 503);
    (0..5).for_each(|_| assert_eq!(from("/free", "192.0.2.1").status, 200));
    let text = std::fs::read_to_string(&scene.gateway.file).expect("its file");
    let more = "[[route]]\nname = \"more\"\npath_prefix = \"/more\"\nupstream = \"server\"\n";
    std::fs::write(&scene.gateway.file, format!("{text}{more}")).expect("written");
    scene.reload();
    assert_eq!(from("/", "192.0.2.1").status, 429, "a reload gives nobody a full bucket");
    assert_eq!(from("/more", "192.0.2.1").status, 429, "a new route shares the limit of its listener");
    assert_eq!(scene.denied("rate_limited"), 4.0);
    scene.gateway.finish();
}

#[test]
fn a_body_longer_than_its_route_takes_is_refused_with_or_without_a_length() {
    let scene = Scene::new(
        &[],
        "[listener.http]\nrequest_body_bytes_max = 10",
        "[[route]]\nname = \"large\"\npath_prefix = \"/large\"\nrequest_body_bytes_max = 0\nupstream = \"server\"",
    );
    let ask = |path: &str, lines: &str, body: &str| {
        let mut client = scene.client();
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n{body}"));
        client.response()
    };
    assert_eq!(ask("/", "Content-Length: 10\r\n", "0123456789").status, 200);
    assert_eq!(ask("/large", "Content-Length: 11\r\n", "0123456789a").status, 200);
    let before = scene.origin.seen().len();
    assert_eq!(ask("/", "Content-Length: 11\r\n", "0123456789a").status, 413);
    assert_eq!(scene.origin.seen().len(), before, "the origin sees nothing of it");
    let chunked = "Transfer-Encoding: chunked\r\n";
    assert_eq!(ask("/", chunked, "5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n").status, 200);
    let refused = ask("/", chunked, "5\r\n01234\r\n6\r\n56789a\r\n0\r\n\r\n");
    assert_eq!((refused.status, refused.field("connection").as_deref()), (413, Some("close")));
    assert_eq!(scene.denied("body_too_long"), 2.0);
    scene.gateway.finish();
}
