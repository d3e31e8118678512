//! The flags origin over real connections: documents and their tags, deltas, streams, tokens, faults, and the ledger.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use weir_origin::flags::{DataSet, FlagsOriginSettings, Origin, start};

/// Nothing a test waits for takes longer on a healthy machine, however busy.
const DEADLINE: Duration = Duration::from_secs(30);
const TOKEN: &str = "*:development.lab-backend";

fn origin(settings: FlagsOriginSettings) -> (Origin, SocketAddr) {
    let origin = start(settings).expect("an origin");
    let address = origin.addresses()[0];
    (origin, address)
}

fn small() -> FlagsOriginSettings {
    FlagsOriginSettings { data: DataSet::Small, workers: 2, ..Default::default() }
}

/// A reply: status, header fields in small letters, body.
struct Reply {
    status: u16,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Reply {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(found, _)| found == name).map(|(_, value)| &**value)
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }
}

fn connect(address: SocketAddr) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    BufReader::new(stream)
}

/// Sends a request on a connection of its own.
fn call(address: SocketAddr, line: &str, fields: &str, body: &str) -> Reply {
    let mut client = connect(address);
    send(&mut client, line, fields, body);
    let (status, fields) = head(&mut client);
    let mut body = Vec::new();
    client.read_to_end(&mut body).expect("a body");
    Reply { status, fields, body }
}

fn send(client: &mut BufReader<TcpStream>, line: &str, fields: &str, body: &str) {
    let length = body.len();
    let text =
        format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n{fields}\r\n{body}");
    client.get_mut().write_all(text.as_bytes()).expect("send");
}

fn head(client: &mut BufReader<TcpStream>) -> (u16, Vec<(String, String)>) {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        client.read_line(&mut line).expect("a line");
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let status = lines.first().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or_default();
    let fields = lines.iter().filter_map(|line| line.split_once(": "));
    (status, fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect())
}

fn get(address: SocketAddr, path: &str, fields: &str) -> Reply {
    call(address, &format!("GET {path}"), &format!("Authorization: {TOKEN}\r\n{fields}"), "")
}

fn ledger(address: SocketAddr) -> Value {
    call(address, "GET /lab/ledger", "", "").json()
}

#[test]
fn a_document_has_its_size_and_a_tag_that_an_edit_changes() {
    let (_origin, address) = origin(FlagsOriginSettings::default());
    let first = get(address, "/api/client/features", "Unleash-Client-Spec: 6.1.0\r\n");
    assert_eq!(first.status, 200);
    assert!(first.body.len().abs_diff(100_000) <= 2_000, "{}", first.body.len());
    assert_eq!(first.json()["features"].as_array().map(Vec::len), Some(350));
    let tag = first.field("etag").expect("a tag").to_owned();
    assert!(tag.starts_with('"') && tag.ends_with(":1:v1\""), "{tag}");
    let same = get(address, "/api/client/features", &format!("If-None-Match: {tag}\r\n"));
    assert_eq!((same.status, same.body.len(), same.field("etag")), (304, 0, None));
    assert_eq!(call(address, "POST /lab/edit?count=3", "", "").json()["revision"], 4);
    let second = get(address, "/api/client/features", &format!("If-None-Match: {tag}\r\n"));
    assert_eq!((second.status, second.json()["meta"]["revisionId"].as_u64()), (200, Some(4)));
    assert_eq!(second.json()["features"].as_array().map(Vec::len), Some(351));
    assert_eq!(ledger(address)["requests"]["features"], json!({ "200": 2, "304": 1 }));
    assert_eq!(ledger(address)["last"]["features"]["if-none-match"], *tag);
}

#[test]
fn tokens_decide_who_sees_what() {
    let tokens = ["backend=shop:development.s", "frontend=*:development.f", "backend=*:production.p"];
    let tokens = tokens.iter().map(|word| word.parse().expect("a token")).collect();
    let (_origin, address) = origin(FlagsOriginSettings { tokens, ..Default::default() });
    let get =
        |token: &str, path: &str| call(address, &format!("GET {path}"), &format!("Authorization: {token}\r\n"), "");
    let features = "/api/client/features";
    assert_eq!(
        [get("shop:development.s", features), get("*:development.f", features), get("x:y.z", features)]
            .map(|reply| reply.status),
        [200, 403, 401]
    );
    let of_shop = get("shop:development.s", features).json();
    let projects = of_shop["features"].as_array().expect("flags").iter().map(|flag| &flag["project"]);
    assert!(projects.clone().count() == 50 && projects.clone().all(|project| *project == "shop"), "{of_shop}");
    let name = of_shop["features"][0]["name"].as_str().expect("a name");
    assert_eq!(get("shop:development.s", &format!("{features}/{name}")).json()["name"], *name);
    let prefix = format!("{features}?namePrefix={name}");
    assert_eq!(get("shop:development.s", &prefix).json()["features"].as_array().map(Vec::len), Some(1));
    assert_eq!(get("shop:development.s", &format!("{features}/none")).status, 404);
    let batch = json!({ "tokens": ["shop:development.s", "x:y.z"] }).to_string();
    let validated = call(address, "POST /edge/validate", "", &batch).json();
    assert_eq!(
        validated,
        json!({ "tokens": [{ "token": "shop:development.s", "type": "client",
        "environment": "development", "projects": ["shop"] }] })
    );
    assert_eq!(ledger(address)["validate"]["tokens"], 2);
    let others = json!({ "tokens": [{ "token": "x:y.z", "type": "backend" }] }).to_string();
    assert_eq!(call(address, "PUT /lab/tokens", "", &others).status, 200);
    assert_eq!([get("shop:development.s", features).status, get("x:y.z", features).status], [401, 200]);
    let malformed =
        call(address, &format!("GET {features}"), "Authorization: x:y.z\r\nUnleash-Client-Spec: six\r\n", "");
    assert_eq!(malformed.status, 400);
}

#[test]
fn deltas_follow_changes_and_environments_stand_alone() {
    let (_origin, address) = origin(small());
    let first = get(address, "/api/client/delta", "");
    assert_eq!((first.field("etag"), first.json()["events"][0]["type"].as_str()), (Some("\"1\""), Some("hydration")));
    assert_eq!(get(address, "/api/client/delta", "If-None-Match: \"1\"\r\n").status, 304);
    let event = json!({ "events": [{ "eventId": 99, "type": "feature-removed", "featureName": "flag-1", "project": "default" }] });
    assert_eq!(call(address, "POST /lab/events", "", &event.to_string()).json()["revision"], 2);
    let second = get(address, "/api/client/delta", "If-None-Match: 1\r\n");
    assert_eq!(
        second.json(),
        json!({ "events": [{ "eventId": 2, "type": "feature-removed", "featureName": "flag-1",
        "project": "default" }] })
    );
    let document = json!({ "version": 2, "features": [{ "name": "only", "enabled": true, "later": [1] }] }).to_string();
    assert_eq!(call(address, "PUT /lab/features?environment=production", "", &document).status, 200);
    assert_eq!(get(address, "/api/client/features", "").json()["features"].as_array().map(Vec::len), Some(4));
    let production =
        call(address, "GET /api/client/features", "Authorization: *:production.lab-backend\r\n", "").json();
    assert_eq!(
        (&production["features"][0]["later"], &production["query"]["environment"]),
        (&json!([1]), &"production".into())
    );
    assert_eq!(call(address, "POST /lab/events", "", "{}").status, 400);
    let (_origin, address) = origin(FlagsOriginSettings { has_deltas: false, ..small() });
    assert_eq!(get(address, "/api/client/delta", "").status, 404);
}

/// The events of an open stream, without the frames of chunks.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(address: SocketAddr, fields: &str) -> Self {
        let mut client = connect(address);
        send(&mut client, "GET /api/client/streaming", &format!("Authorization: {TOKEN}\r\n{fields}"), "");
        let (status, fields) = head(&mut client);
        assert_eq!(status, 200);
        assert!(fields.contains(&("content-type".to_owned(), "text/event-stream".to_owned())), "{fields:?}");
        Self(client)
    }

    /// The next event: name, id and data. `None`: the stream ends.
    fn next(&mut self) -> Option<(String, String, Value)> {
        let (mut name, mut id) = (String::new(), String::new());
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("a line");
            if line.is_empty() || line == "0\r\n" {
                return None;
            }
            if let Some(value) = line.strip_prefix("event: ") {
                value.trim().clone_into(&mut name);
            } else if let Some(value) = line.strip_prefix("id: ") {
                value.trim().clone_into(&mut id);
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((name, id, serde_json::from_str(data).expect("JSON")));
            }
        }
    }
}

#[test]
fn a_stream_hydrates_or_goes_on_then_follows_and_ends_with_its_token() {
    let (_origin, address) = origin(FlagsOriginSettings { keep_alive: Duration::from_millis(5), ..small() });
    let mut fresh = Events::open(address, "");
    let (name, id, data) = fresh.next().expect("an event");
    assert_eq!((&*name, &*id, &data["events"][0]["type"]), ("unleash-connected", "1", &"hydration".into()));
    call(address, "POST /lab/edit", "", "");
    let (name, id, data) = fresh.next().expect("an event");
    assert_eq!((&*name, &*id, &data["events"][0]["eventId"]), ("unleash-updated", "2", &2.into()));
    let mut known = Events::open(address, "Last-Event-ID: 1\r\n");
    let (name, _, data) = known.next().expect("an event");
    assert_eq!((&*name, &data["events"][0]["type"]), ("unleash-connected", &"feature-updated".into()));
    let mut newest = Events::open(address, "Last-Event-ID: 2\r\n");
    assert_eq!(newest.next().expect("an event").2, json!({ "events": [] }));
    assert_eq!(ledger(address)["streams"], 3);
    call(address, "POST /lab/broadcast", "", "event: unleash-updated\nid: 7\ndata: {\"events\":[7]}\n\n");
    assert_eq!(fresh.next().expect("an event").1, "7");
    let tokens = json!({ "tokens": [{ "token": "*:development.other", "type": "client" }] }).to_string();
    call(address, "PUT /lab/tokens", "", &tokens);
    assert_eq!(fresh.next(), None, "its token is revoked");
}

#[test]
fn faults_spoil_replies_and_metrics_stand_in_the_ledger() {
    let (_origin, address) = origin(small());
    let faults = json!({ "faults": [
        { "endpoint": "features", "times": 1, "status": 503, "body": "busy", "fields": { "retry-after": "2" } },
        { "endpoint": "features", "times": 1, "body": "<html>" },
        { "endpoint": "delta", "reset": true },
        { "endpoint": "bulk", "delay_ms": 40 },
    ] });
    assert_eq!(call(address, "PUT /lab/faults", "", &faults.to_string()).status, 200);
    let failed = get(address, "/api/client/features", "");
    assert_eq!((failed.status, failed.field("retry-after"), &*failed.body), (503, Some("2"), &b"busy"[..]));
    let garbage = get(address, "/api/client/features", "");
    assert_eq!((garbage.status, &*garbage.body), (200, &b"<html>"[..]));
    assert_eq!(get(address, "/api/client/features", "").json()["version"], 2, "both are spent");
    let mut lost = connect(address);
    send(&mut lost, "GET /api/client/delta", &format!("Authorization: {TOKEN}\r\n"), "");
    assert!(lost.read(&mut [0]).map_or(true, |count| count == 0), "there is no reply");
    let bulk = json!({ "applications": [{ "appName": "a", "interval": 1000, "started": "x", "strategies": [] }],
        "metrics": [{ "featureName": "f", "appName": "a", "environment": "development", "timestamp": "2026-01-01T00:00:00Z",
        "yes": 3, "no": 1, "variants": {} }] }).to_string();
    let begun = std::time::Instant::now();
    let post = |path: &str, body: &str| call(address, path, &format!("Authorization: {TOKEN}\r\n"), body).status;
    assert_eq!(post("POST /api/client/metrics/bulk", &bulk), 202);
    assert!(begun.elapsed() >= Duration::from_millis(40));
    assert_eq!(post("POST /api/client/metrics/bulk", "{}"), 400);
    assert_eq!(post("POST /api/client/metrics/edge", "{}"), 404);
    let shown = ledger(address);
    assert_eq!(shown["metrics"]["development"]["a"]["f"]["yes"], 3);
    assert_eq!((shown["applications"].as_array().map(Vec::len), &shown["bulk"]["bodies"]), (Some(1), &1.into()));
    call(address, "DELETE /lab/ledger", "", "");
    assert_eq!(ledger(address)["requests"], json!({}));
}

#[test]
fn flags_change_by_themselves_where_the_settings_say_so() {
    let (_origin, address) = origin(FlagsOriginSettings { edit_every: Some(Duration::from_millis(10)), ..small() });
    let mut events = Events::open(address, "");
    let ids: Vec<u64> = (0..4).map(|_| events.next().expect("an event").1.parse().expect("a revision")).collect();
    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
}

#[test]
fn a_frontend_gets_the_flags_of_its_context_until_they_change() {
    let (_origin, address) = origin(small());
    let token = "Authorization: *:development.lab-frontend\r\n";
    let call = |line: &str, more: &str, body: &str| call(address, line, &format!("{token}{more}"), body);
    let names = |reply: &Reply| -> Vec<String> {
        let toggles = reply.json()["toggles"].as_array().expect("toggles").clone();
        toggles.iter().map(|toggle| toggle["name"].as_str().expect("a name").to_owned()).collect()
    };
    let nothing = call("GET /api/frontend", "", "");
    assert_eq!(names(&nothing), ["flag-1", "flag-2"]);
    let of_plan = call("GET /api/frontend?properties%5Bplan%5D=team", "", "");
    assert_eq!(names(&of_plan), ["flag-1", "flag-2", "flag-5"]);
    let posted = call("POST /api/frontend", "", &json!({ "properties": { "plan": "team" } }).to_string());
    assert_eq!(posted.body, of_plan.body);
    let tag = nothing.field("etag").expect("a tag").to_owned();
    assert_eq!(call("GET /api/frontend", &format!("If-None-Match: {tag}\r\n"), "").status, 304);
    assert_eq!(call("GET /api/client/features", "", "").status, 403);
    assert_eq!(get(address, "/api/frontend", "").status, 403);
    call("POST /lab/edit", "", "");
    assert_eq!(call("GET /api/frontend", "", "").status, 501);
}
