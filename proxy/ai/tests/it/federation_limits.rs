//! Several servers under one name: what each of them gets, and how much of it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_ai::settings::{AiListenerSettings, ProviderDialect};
use weir_spend::policy::Policy;

use crate::{
    federation::{
        INITIALIZE, LIST, gateway, got, left_out, message, names, offer, request, result, session, settings, tools,
    },
    gateway::{EVENTS, chunk, provider, start},
    support::{Gateway, Origin, PATIENCE, Setup},
};

/// A gateway with other limits.
fn limited(
    files: &Origin,
    limits: impl FnOnce(AiListenerSettings) -> AiListenerSettings,
    change: impl FnOnce(&mut Setup),
) -> Gateway {
    let providers = vec![provider(ProviderDialect::OpenAi); 2];
    start(limits(settings(Policy::default())), providers, |setup| {
        setup.upstreams = vec![Vec::new(), vec![files.address]];
        change(setup);
    })
}

fn pages(gateway: &Gateway, files: &Origin, git: &Value, of_files: &Value) -> (u16, Value) {
    let id = session(gateway, files);
    let mut client = gateway.client();
    client.send(&request("POST", &id, LIST));
    result(&mut gateway.origin.accept(), git, "");
    result(&mut files.accept(), of_files, "");
    got(&mut client)
}

/// A list with one tool of about this length.
fn long(name: &str, bytes: usize) -> Value {
    json!({"tools": [{"name": name, "description": "d".repeat(bytes)}]})
}

#[test]
fn a_server_with_slow_pages_has_ten_seconds_for_all_of_them() {
    const PAUSE: Duration = Duration::from_millis(2_600);
    let files = Origin::new();
    let gateway = gateway(Policy::default(), &files, None);
    let id = session(&gateway, &files);
    let mut client = gateway.client();
    client.0.stream.set_read_timeout(Some(2 * PATIENCE)).expect("a timeout");
    let begun = Instant::now();
    client.send(&request("POST", &id, LIST));
    result(&mut files.accept(), &tools(&["read"]), "");
    let mut page = tools(&["add"]);
    page["nextCursor"] = json!("again");
    for _ in 0..3 {
        let mut end = gateway.origin.accept();
        std::thread::sleep(PAUSE);
        result(&mut end, &page, "");
    }
    let mut last = gateway.origin.accept();
    last.request();
    let (status, body) = got(&mut client);
    let took = begun.elapsed();
    assert_eq!((status, names(&body)), (200, vec!["files__read"]));
    assert!((Duration::from_secs(9)..Duration::from_secs(15)).contains(&took), "{took:?}");
    assert_eq!(left_out(&gateway, "git", "failed"), 1);
}

#[test]
fn a_long_list_is_the_fault_of_its_server_alone() {
    let files = Origin::new();
    let gateway = limited(&files, |settings| settings, |_| {});
    // Each as long as it may be.
    let (status, body) = pages(&gateway, &files, &long("add", 2_090_000), &long("read", 2_090_000));
    assert_eq!((status, names(&body)), (200, vec!["git__add", "files__read"]));
    // One page is too long, or two are.
    let (_, body) = pages(&gateway, &files, &long("add", 2 << 20), &long("read", 2_090_000));
    assert_eq!((names(&body), left_out(&gateway, "git", "too_long")), (vec!["files__read"], 1));
    let id = session(&gateway, &files);
    let mut client = gateway.client();
    client.send(&request("POST", &id, LIST));
    let mut page = long("add", 1_200_000);
    page["nextCursor"] = json!("c");
    result(&mut gateway.origin.accept(), &page, "");
    result(&mut files.accept(), &tools(&["read"]), "");
    result(&mut gateway.origin.accept(), &page, "");
    assert_eq!(names(&got(&mut client).1), ["files__read"]);
    assert_eq!((left_out(&gateway, "git", "too_long"), left_out(&gateway, "files", "too_long")), (2, 0));
    // As one event.
    client.send(&request("POST", &id, LIST));
    let mut end = gateway.origin.accept();
    let own_id = &message(&end.request())["id"];
    let list = json!({"jsonrpc": "2.0", "id": own_id, "result": long("add", 2_090_000)});
    end.send(EVENTS);
    end.send(&chunk(&format!("data: {list}\n\n")));
    end.send("0\r\n\r\n");
    result(&mut files.accept(), &tools(&["read"]), "");
    assert_eq!(names(&got(&mut client).1), ["git__add", "files__read"]);
}

#[test]
fn a_list_without_room_is_no_shorter_list() {
    let files = Origin::new();
    let gateway = limited(&files, |settings| settings, |setup| setup.buffered_bytes = 200 << 10);
    let (status, body) = pages(&gateway, &files, &long("add", 150_000), &long("read", 150_000));
    assert_eq!((status, &body["error"]["data"]["reason"]), (503, &json!("overloaded")));
    assert_eq!((left_out(&gateway, "git", "no_room"), left_out(&gateway, "files", "no_room")), (0, 0));
    // So is a handshake.
    let mut client = gateway.client();
    client.send(&request("POST", "", INITIALIZE));
    let mut long = offer("2025-11-25");
    long["instructions"] = json!("i".repeat(210_000));
    result(&mut gateway.origin.accept(), &offer("2025-11-25"), "Mcp-Session-Id: own-git\r\n");
    result(&mut files.accept(), &long, "");
    assert_eq!(got(&mut client).0, 503);
}
