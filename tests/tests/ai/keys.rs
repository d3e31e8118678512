//! Keys that the admin API and `weir keys` issue, over the real program: each order is in force at once on all workers, survives the
//! process, and leaves no text of a key behind. The last requests and the connections have their keys by name.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use weir_tests::ai::{AiOrigin, KEY, PROVIDER_KEY, Sdk, usage};
use weir_tests::gateway::{Gateway, program};
use weir_tests::http::HttpClient;
use weir_tests::stream::Address;

use crate::sdks::holds;
use crate::through::{chat, sums_agree, url};

const KEYS: &str = "/api/v1/ai/keys";

/// Connections that are spread over both workers.
const CONNECTIONS: usize = 6;

fn send(gateway: &Gateway, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let response =
        gateway.admin.request(method, path, &[("Content-Type", "application/json")], &text).expect("a response");
    (response.status, response.json())
}

/// Issues a key. Its text.
fn issue(gateway: &Gateway, body: &Value) -> String {
    let (status, response) = send(gateway, "POST", KEYS, body);
    assert_eq!(status, 201, "{response}");
    response["text"].as_str().expect("a text").to_owned()
}

/// A client whose connection stays, unless the gateway closes it with a refusal.
struct Chats {
    address: Address,
    connection: HttpClient,
}

impl Chats {
    fn new(gateway: &Gateway) -> Self {
        Self { address: gateway.address.clone(), connection: HttpClient::connect(&gateway.address) }
    }

    /// The status of a chat with this key.
    fn status(&mut self, key: &str) -> u16 {
        self.connection.send(chat("bytes=20", "").replace(KEY, key));
        let response = self.connection.response();
        if response.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
            self.connection = HttpClient::connect(&self.address);
        }
        response.status
    }
}

/// Connections to both workers.
fn connections(gateway: &Gateway) -> Vec<Chats> {
    (0..CONNECTIONS).map(|_| Chats::new(gateway)).collect()
}

/// All connections get this status. The order is in force when it is answered, so the first try has to do.
fn all_get(clients: &mut [Chats], key: &str, wanted: u16) {
    for client in clients {
        assert_eq!(client.status(key), wanted);
    }
}

/// No file of the state, and no line of the log, has this text.
fn is_nowhere(text: &str, state: &Path, log: &str) {
    assert!(!log.contains(text), "in the log");
    for entry in
        std::fs::read_dir(state).expect("the state").chain(std::fs::read_dir(state.join("journal")).expect("it"))
    {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            let bytes = std::fs::read(&path).expect("a file");
            assert!(!bytes.windows(text.len()).any(|part| part == text.as_bytes()), "in {}", path.display());
        }
    }
}

#[test]
fn a_key_that_was_issued_serves_an_sdk_and_its_orders_are_in_force_at_once() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = self::gateway(&origin, state.path());
    let mut clients = connections(&gateway);
    all_get(&mut clients, &format!("sk-weir-{}", "b".repeat(43)), 401);
    let text = issue(&gateway, &json!({ "name": "ci", "policy": { "month_tokens": 1_000_000_000 } }));
    all_get(&mut clients, &text, 200);
    holds(&Sdk::OpenAi.run(&url(&gateway), &text), 22);
    // On a busy machine the SDK takes longer than a connection may be idle.
    clients = connections(&gateway);
    let one = format!("{KEYS}/ci");
    assert_eq!(send(&gateway, "PATCH", &one, &json!({ "enabled": false })).1["state"], "disabled");
    all_get(&mut clients, &text, 401);
    assert_eq!(send(&gateway, "PATCH", &one, &json!({ "enabled": true, "policy": { "models": ["x"] } })).0, 200);
    all_get(&mut clients, &text, 403);
    let (_, changed) = send(&gateway, "PATCH", &one, &json!({ "policy": { "models": null } }));
    assert_eq!(changed["policy"], json!({ "month_tokens": 1_000_000_000 }), "the rest stays");
    all_get(&mut clients, &text, 200);
    let (_, shown) = send(&gateway, "GET", &one, &Value::Null);
    let used = shown["keys"][0]["usage"]["month_tokens"]["used"].as_u64().expect("tokens");
    assert!(used > 0 && shown["keys"][0]["usage"]["month_tokens"]["limit"] == 1_000_000_000, "{shown}");
    assert_eq!(send(&gateway, "PATCH", &one, &json!({ "expires": "2020-01-01T00:00:00Z" })).1["state"], "expired");
    all_get(&mut clients, &text, 401);
    assert_eq!(send(&gateway, "DELETE", &one, &Value::Null).0, 200);
    all_get(&mut clients, &text, 401);
    all_get(&mut clients, KEY, 200);
    assert_eq!(send(&gateway, "GET", &one, &Value::Null).0, 404);
    drop(clients);
    is_nowhere(&text, state.path(), &gateway.log());
    sums_agree(&origin, gateway, state.path());
}

#[test]
fn after_a_rotation_the_old_text_is_good_until_its_time() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = self::gateway(&origin, state.path());
    let mut clients = connections(&gateway);
    let first = issue(&gateway, &json!({ "name": "ci" }));
    let rotate = format!("{KEYS}/ci/rotate");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_secs();
    let until = weir_base::time::rfc3339(now + 3);
    let (status, response) = send(&gateway, "POST", &rotate, &json!({ "old_until": until }));
    let second = response["text"].as_str().expect("a text").to_owned();
    assert_eq!((status, response["key"]["texts"].as_array().map(Vec::len)), (200, Some(2)), "{response}");
    all_get(&mut clients, &second, 200);
    assert_eq!(clients[0].status(&first), 200, "it has three seconds");
    weir_tests::deadline::until_true("the time of the old text to be over", || clients[0].status(&first) == 401);
    all_get(&mut clients, &first, 401);
    let (_, response) = send(&gateway, "POST", &rotate, &Value::Null);
    let third = response["text"].as_str().expect("a text").to_owned();
    all_get(&mut clients, &second, 401);
    all_get(&mut clients, &third, 200);
    drop(clients);
    let log = gateway.log();
    for text in [&first, &second, &third] {
        is_nowhere(text, state.path(), &log);
    }
    gateway.finish();
}

#[test]
fn issued_keys_survive_a_reload_a_restart_and_a_kill_behind_the_response() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = self::gateway(&origin, state.path());
    let text = issue(&gateway, &json!({ "name": "ci", "policy": { "day_tokens": 1_000_000 } }));
    gateway.rewrite(|file| file.replace("keys = \"required\"\n", "keys = \"required\"\nreserved_output_tokens = 10\n"));
    assert_eq!(gateway.admin.post("/api/v1/reload", "").json()["outcome"], "applied");
    let mut clients = connections(&gateway);
    all_get(&mut clients, &text, 200);
    drop(clients);
    let used = |gateway: &Gateway| {
        let (_, shown) = send(gateway, "GET", &format!("{KEYS}/ci"), &Value::Null);
        shown["keys"][0]["usage"]["day_tokens"]["used"].as_u64().expect("tokens")
    };
    gateway.wait_at_rest();
    let before = used(&gateway);
    gateway.finish();
    let mut gateway = self::gateway(&origin, state.path());
    assert!(before > 0 && used(&gateway) == before, "its budget goes on");
    all_get(&mut connections(&gateway), &text, 200);
    let last = issue(&gateway, &json!({ "name": "last" }));
    gateway.process().kill();
    gateway.ended();
    let gateway = self::gateway(&origin, state.path());
    let mut clients = connections(&gateway);
    all_get(&mut clients, &last, 200);
    all_get(&mut clients, &text, 200);
    drop(clients);
    gateway.finish();
}

fn gateway(origin: &AiOrigin, state: &Path) -> Gateway {
    weir_tests::ai::gateway(origin, "openai", state, "")
}

#[test]
fn two_admins_at_once_each_get_what_they_were_answered() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = self::gateway(&origin, state.path());
    let issued: Vec<(String, u16, Value)> = std::thread::scope(|scope| {
        let both = ["one", "other"].map(|admin| {
            let gateway = &gateway;
            scope.spawn(move || {
                let names = (0..10).flat_map(|n| [format!("{admin}-{n}"), format!("both-{n}")]);
                let issue = |name: String| {
                    let (status, response) = send(gateway, "POST", KEYS, &json!({ "name": name }));
                    (name, status, response)
                };
                names.map(issue).collect::<Vec<_>>()
            })
        });
        both.into_iter().flat_map(|one| one.join().expect("an admin")).collect()
    });
    let good: Vec<_> = issued.iter().filter(|(_, status, _)| *status == 201).collect();
    assert_eq!((good.len(), issued.len()), (30, 40), "one of both has each common name");
    assert!(
        issued.iter().all(|(_, status, response)| *status == 201 || (*status == 409 && response["remedy"].is_string()))
    );
    let mut client = Chats::new(&gateway);
    for (name, _, response) in good {
        assert_eq!(client.status(response["text"].as_str().expect("a text")), 200, "{name}");
    }
    let (_, page) = send(&gateway, "GET", &format!("{KEYS}?limit=20"), &Value::Null);
    let after = page["next_after"].as_str().expect("another page");
    let (_, rest) = send(&gateway, "GET", &format!("{KEYS}?limit=20&after={after}"), &Value::Null);
    let count = |page: &Value| page["keys"].as_array().map_or(0, Vec::len);
    assert_eq!((count(&page), count(&rest), &rest["next_after"]), (20, 11, &Value::Null), "30, and that of the file");
    drop(client);
    gateway.finish();
}

#[test]
fn orders_that_cannot_be_say_so_and_change_nothing() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = self::gateway(&origin, state.path());
    let of_file = format!("{KEYS}/sdk");
    for (method, path, body, status, words) in [
        ("POST", KEYS, json!({ "name": "sdk" }), 409, "[[listener.ai.key]]"),
        ("PATCH", &of_file, json!({ "enabled": false }), 409, "[[listener.ai.key]]"),
        ("DELETE", &of_file, Value::Null, 409, "[[listener.ai.key]]"),
        ("POST", KEYS, json!({ "name": "a", "sha256": "0" }), 400, "sha256"),
        ("POST", KEYS, json!({ "name": "a", "policy": { "rpm": 1 } }), 400, "rpm"),
        ("POST", KEYS, json!({ "name": "a", "policy": { "models": [] } }), 400, "models"),
        ("POST", KEYS, json!({ "name": "a", "expires": "soon" }), 400, "expires"),
        ("POST", KEYS, json!({ "name": "a", "listener": "other" }), 400, "listener"),
        ("POST", KEYS, json!({ "name": "a/b" }), 400, "letters"),
        ("PATCH", "/api/v1/ai/keys/unknown", json!({ "enabled": true }), 404, "unknown"),
        ("POST", "/api/v1/ai/keys/unknown/rotate", Value::Null, 404, "unknown"),
    ] {
        let (found, response) = send(&gateway, method, path, &body);
        assert_eq!(found, status, "{method} {path} {body}: {response}");
        assert!(response.to_string().contains(words), "{words}: {response}");
    }
    let (_, all) = send(&gateway, "GET", KEYS, &Value::Null);
    let keys = all["keys"].as_array().expect("keys");
    assert_eq!((keys.len(), &keys[0]["source"], &keys[0]["listener"]), (1, &"config".into(), &"ai".into()));
    assert!(!all.to_string().contains("100d9230"), "a part of its hash: {all}");
    let foreign = [("Content-Type", "application/json"), ("Origin", "https://evil.example")];
    let response = gateway.admin.request("POST", KEYS, &foreign, "{\"name\":\"a\"}").expect("a response");
    assert_eq!(response.status, 403, "{}", response.body);
    gateway.finish();
}

#[test]
fn without_a_state_the_response_says_what_is_missing() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = without_state(&origin, state.path());
    let (status, response) = send(&gateway, "POST", KEYS, &json!({ "name": "a" }));
    assert_eq!((status, &response["type"]), (409, &"urn:weir:problem:ai_state".into()));
    assert!(response["remedy"].as_str().is_some_and(|remedy| remedy.contains("[ai] with state")), "{response}");
    let (_, all) = send(&gateway, "GET", KEYS, &Value::Null);
    assert_eq!((&all["can_issue"], &all["keys"][0]["name"]), (&false.into(), &"sdk".into()));
    let mut client = Chats::new(&gateway);
    assert_eq!(client.status(KEY), 200);
    drop(client);
    gateway.finish();
}

/// The same gateway, whose file has no `[ai]`.
fn without_state(origin: &AiOrigin, state: &Path) -> Gateway {
    let with = self::gateway(origin, state);
    let state_line = format!("[ai]\nstate = \"{}\"\n", state.display());
    let text = std::fs::read_to_string(&with.file).expect("the file").replace(&state_line, "");
    let (text, _tables_of_each_start) = text.split_once("\n[admin]").expect("the admin address");
    let address = with.address.clone();
    with.finish();
    let provider = ("PROVIDER_KEY".to_owned(), PROVIDER_KEY.to_owned());
    Gateway::with_environment(text, address, &[provider])
}

/// Runs `weir keys` against a gateway.
fn weir_keys(gateway: &Gateway, words: &[&str]) -> Output {
    let admin = format!("http://{}", gateway.admin.address);
    let mut command = Command::new(program());
    command.arg("keys").args(words).args(["--admin", &admin]).env_remove("WEIR_ADMIN_TOKEN");
    command.output().expect("weir runs")
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[test]
fn weir_keys_does_what_the_admin_api_does() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = self::gateway(&origin, state.path());
    let words = ["new", "ci", "--models", "m,x*", "--rpm-limit", "600", "--month-money", "20", "--duration", "30d"];
    let text = printed(&weir_keys(&gateway, &words)).lines().nth(1).expect("a text").to_owned();
    let mut client = Chats::new(&gateway);
    assert_eq!(client.status(&text), 200);
    let shown: Value = serde_json::from_str(&printed(&weir_keys(&gateway, &["show", "ci", "--json"]))).expect("JSON");
    let key = &shown["keys"][0];
    assert_eq!(
        key["policy"],
        json!({ "models": ["m", "x*"], "requests_per_minute": 600, "month_money": "20" }),
        "{key}"
    );
    assert!(key["expires"].is_string() && !shown.to_string().contains(&text), "{key}");
    let table = printed(&weir_keys(&gateway, &["list"]));
    assert!(table.lines().any(|line| line.starts_with("ci ")) && table.contains("sdk"), "{table}");
    printed(&weir_keys(&gateway, &["update", "ci", "--day-tokens", "1"]));
    assert_eq!(client.status(&text), 429, "its budget");
    printed(&weir_keys(&gateway, &["update", "ci", "--day-tokens", "1000000"]));
    printed(&weir_keys(&gateway, &["disable", "ci"]));
    assert_eq!(client.status(&text), 401);
    printed(&weir_keys(&gateway, &["unblock", "ci"]));
    assert_eq!(client.status(&text), 200);
    let rotated = printed(&weir_keys(&gateway, &["rotate", "ci", "--grace-period", "1h"]));
    let second = rotated.lines().nth(1).expect("a text").to_owned();
    assert_eq!((client.status(&text), client.status(&second)), (200, 200));
    printed(&weir_keys(&gateway, &["delete", "ci"]));
    assert_eq!(client.status(&second), 401);
    let refused = weir_keys(&gateway, &["disable", "sdk"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("configuration file"));
    drop(client);
    is_nowhere(&text, state.path(), &gateway.log());
    gateway.finish();
}

#[test]
fn weir_keys_new_prints_a_table_where_no_gateway_is() {
    let output = Command::new(program()).args(["keys", "new", "a", "--offline"]).output().expect("weir runs");
    let text = printed(&output);
    assert!(text.contains("[[listener.ai.key]]\nname = \"a\"\nsha256 = \"") && text.contains("\nsk-weir-"), "{text}");
    let nowhere = format!("http://127.0.0.1:{}", weir_tests::port::free());
    let output = Command::new(program()).args(["keys", "new", "a", "--admin", &nowhere]).output().expect("weir runs");
    assert_eq!(output.status.code(), Some(1), "the address was given");
}

#[test]
fn the_last_requests_and_the_connections_have_keys_and_models() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = self::gateway(&origin, state.path());
    let text = issue(&gateway, &json!({ "name": "ci", "policy": { "requests_per_minute": 2 } }));
    let mut client = Chats::new(&gateway);
    assert_eq!([(); 3].map(|()| client.status(&text)), [200, 200, 429]);
    assert_eq!(client.status("sk-weir-of-a-stranger"), 401);
    let mut streaming = HttpClient::connect(&gateway.address);
    streaming.send(chat("events=30 gap=100ms", ",\"stream\":true"));
    weir_tests::deadline::until_true("the stream to begin", || streaming.has_response());
    let (_, page) = send(&gateway, "GET", "/api/v1/connections", &Value::Null);
    let of = |key: &str| page["connections"].as_array().expect("connections").iter().find(|one| one["key"] == key);
    let busy = of("sdk").expect("the stream");
    assert_eq!((&busy["protocol"], &busy["model"], &busy["stream"]), (&"ai".into(), &"m".into(), &true.into()));
    assert_eq!((&busy["in_flight"], &busy["user"]), (&1.into(), &Value::Null), "{busy}");
    let idle = of("ci").expect("the other");
    assert_eq!((&idle["stream"], &idle["in_flight"]), (&false.into(), &0.into()), "{idle}");
    let admin = format!("http://{}", gateway.admin.address);
    let top = Command::new(program()).args(["top", "--once", "--view", "ai", "--admin", &admin]).output();
    let top = printed(&top.expect("weir runs"));
    assert!(top.lines().any(|line| line.contains("sdk") && line.contains(" yes ") && line.contains(" m")), "{top}");
    streaming.response();
    drop((client, streaming));
    gateway.wait_at_rest();
    let search = |query: &str| {
        let (status, found) = send(&gateway, "GET", &format!("/api/v1/ai/requests?{query}"), &Value::Null);
        assert_eq!(status, 200, "{found}");
        found
    };
    let all = search("");
    assert!(
        all["schema_url"].as_str().is_some_and(|url| url.starts_with("https://opentelemetry.io/schemas/")),
        "{all}"
    );
    let requests = |found: &Value| found["requests"].as_array().expect("requests").clone();
    assert_eq!(requests(&all).len(), 4, "strangers are left out: {all}");
    assert_eq!((requests(&search("key=ci")).len(), requests(&search("status=4xx")).len()), (3, 1));
    let refused = &requests(&search("key=ci&status=429"))[0];
    assert_eq!((&refused["error.type"], &refused["key"]), (&"requests_per_minute".into(), &"ci".into()), "{refused}");
    assert_eq!(requests(&search("since=2099-01-01T00:00:00Z")).len(), 0);
    assert_eq!(requests(&search("model=m&limit=1")).len(), 1);
    let streamed = &requests(&search("key=sdk"))[0];
    let of_sdk = || usage(state.path()).into_iter().find(|line| line["key"] == "sdk");
    weir_tests::deadline::until_true("its line to be in the log", || of_sdk().is_some());
    let line = of_sdk().expect("its line");
    for (attribute, member) in [
        ("gen_ai.request.model", "model"),
        ("gen_ai.response.model", "model_served"),
        ("gen_ai.usage.input_tokens", "input_tokens"),
        ("gen_ai.usage.output_tokens", "output_tokens"),
        ("gen_ai.usage.reasoning.output_tokens", "reasoning_tokens"),
        ("request", "request"),
        ("cost_micro", "cost_micro"),
        ("first_token_us", "first_token_us"),
        ("total_us", "total_us"),
    ] {
        assert_eq!(streamed[attribute], line[member], "{attribute}: {streamed}");
    }
    assert_eq!(
        (&streamed["gen_ai.operation.name"], &streamed["gen_ai.provider.name"]),
        (&"chat".into(), &"openai".into())
    );
    assert_eq!(streamed["gen_ai.request.stream"], true);
    assert!(!all.to_string().contains("[weir ") && !all.to_string().contains(&text), "a prompt or a text");
    gateway.finish();
}
