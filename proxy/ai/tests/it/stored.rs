//! Responses that a provider keeps, and requests that go on from them.

use std::time::{Duration, Instant};

use weir_ai::settings::{AiListenerSettings, Balance, Model, ProviderDialect, Target};
use weir_spend::{Glob, policy::Policy};

use crate::{
    gateway::{EVENTS, chunk, ok, post, provider, start, with_key},
    support::{Client, Gateway, Origin, OriginEnd, PATIENCE},
};

const PATH: &str = "/v1/responses";
const BUSY: &str = "HTTP/1.1 429 Busy\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}";
const MISSING: &str = "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}";

/// A model with two targets of the same weight, one of them at `other`.
fn pair(other: &Origin) -> Gateway {
    let target = |upstream| Target { upstream, model: None, weight: 1 };
    let (name, targets) = (Glob::new("m").expect("a name"), vec![target(0), target(1)]);
    let model = Model { name, balance: Balance::Weight, sticky_prefix_bytes: None, targets };
    let own = AiListenerSettings {
        models: vec![model].into(),
        upstreams: vec!["a".into(), "b".into()],
        ..with_key(Policy::default())
    };
    start(own, vec![provider(ProviderDialect::OpenAi); 2], |setup| {
        setup.upstreams = vec![Vec::new(), vec![other.address]];
    })
}

/// The provider that the gateway connects to, and its number.
fn chosen(gateway: &Gateway, other: &Origin) -> (usize, OriginEnd) {
    let begun = Instant::now();
    loop {
        for (number, origin) in [&gateway.origin, other].into_iter().enumerate() {
            if let Some(end) = origin.waiting() {
                return (number, end);
            }
        }
        assert!(begun.elapsed() < PATIENCE, "the gateway does not connect");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One request: the numbers of the providers that get it, in their order, for these responses; and the status for the client.
fn turn(gateway: &Gateway, other: &Origin, members: &str, responses: &[&str]) -> (Vec<usize>, String) {
    let mut client = gateway.client();
    client.send(&post(PATH, &format!("{{\"model\":\"m\",\"input\":\"hi\"{members}}}")));
    let providers = responses.iter().map(|response| {
        let (number, mut end) = chosen(gateway, other);
        end.request();
        end.send(response);
        number
    });
    let providers = providers.collect();
    (providers, status(&mut client))
}

fn status(client: &mut Client) -> String {
    let head = client.head().to_ascii_lowercase();
    head.split(' ').nth(1).expect("a status").to_owned()
}

fn made(id: &str) -> String {
    ok(&format!("{{\"id\":\"{id}\",\"object\":\"response\",\"usage\":{{\"input_tokens\":1,\"output_tokens\":1}}}}"))
}

#[test]
fn responses_of_a_key_are_spread_by_weight_and_each_is_gone_on_from_where_it_was_made() {
    let other = Origin::new();
    let gateway = pair(&other);
    let mut counts = [0; 2];
    for number in 0..24 {
        let id = format!("resp_{number}");
        let (first, _) = turn(&gateway, &other, "", &[&made(&id)]);
        counts[first[0]] += 1;
        let more = format!(",\"previous_response_id\":\"{id}\"");
        let next = turn(&gateway, &other, &more, &[&made(&format!("{id}_b"))]);
        assert_eq!(next, (first.clone(), "200".to_owned()), "{id}");
        let more = format!(",\"previous_response_id\":\"{id}_b\"");
        assert_eq!(turn(&gateway, &other, &more, &[&made("x")]).0, first, "the next turn of {id}");
    }
    assert!(counts.iter().all(|count| *count > 2), "{counts:?}");
}

#[test]
fn a_response_that_a_fallback_made_is_gone_on_from_there_and_nowhere_else() {
    let other = Origin::new();
    let gateway = pair(&other);
    let events = format!(
        "{}{}0\r\n\r\n",
        EVENTS.replacen("Transfer-Encoding", "Connection: close\r\nTransfer-Encoding", 1),
        chunk("event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_s\"}}\n\n")
    );
    let whole = made("resp_w");
    for (stream, response, id) in [("", whole.as_str(), "resp_w"), (",\"stream\":true", &events, "resp_s")] {
        for _ in 0..4 {
            let (tried, _) = turn(&gateway, &other, stream, &[BUSY, response]);
            assert_ne!(tried[0], tried[1]);
            let more = format!(",\"previous_response_id\":\"{id}\"");
            assert_eq!(turn(&gateway, &other, &more, &[BUSY]), (vec![tried[1]], "429".to_owned()), "{id}");
        }
    }
    assert!(gateway.origin.is_untouched() && other.is_untouched());
}

#[test]
fn a_response_that_is_not_known_is_looked_for_at_each_target() {
    let other = Origin::new();
    let gateway = pair(&other);
    let more = ",\"previous_response_id\":\"resp_of_another_process\"";
    let (first, _) = turn(&gateway, &other, more, &[&made("resp_1")]);
    let (again, status) = turn(&gateway, &other, more, &[MISSING, &made("resp_2")]);
    assert_eq!((again[0], again[1], &*status), (first[0], 1 - first[0], "200"), "that of the key comes first");
    assert_eq!(turn(&gateway, &other, more, &[MISSING, MISSING]).1, "404");
    // Any other failure says nothing about who has it.
    assert_eq!(turn(&gateway, &other, more, &[BUSY]).1, "429");
    assert!(gateway.origin.is_untouched() && other.is_untouched());
}

#[test]
fn a_response_that_is_not_kept_is_not_remembered() {
    let other = Origin::new();
    let gateway = pair(&other);
    turn(&gateway, &other, ",\"store\":false", &[&made("resp_1")]);
    let more = ",\"previous_response_id\":\"resp_1\"";
    let (tried, _) = turn(&gateway, &other, more, &[MISSING, &made("resp_2")]);
    assert_eq!(tried.len(), 2, "it is looked for");
}
