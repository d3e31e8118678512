//! Several targets of one model.

use weir_ai::settings::{AiListenerSettings, Model, ProviderDialect, Target};

use crate::{
    gateway::{CHAT, EVENTS, STREAM, chunk, model, ok, post, provider, read, respond, settings, start},
    support::{Gateway, Origin},
};

const BUSY: &str = "HTTP/1.1 429 Busy\r\nConnection: close\r\nRetry-After: 7\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

/// A model whose second target is at `other`, under another name.
fn pair(other: &Origin) -> Gateway {
    let models = vec![model("m", &[(0, None), (1, Some("spare"))])].into();
    let settings = AiListenerSettings { models, upstreams: vec!["a".into(), "b".into()], ..settings() };
    let providers = vec![provider(ProviderDialect::OpenAi), provider(ProviderDialect::Azure)];
    start(settings, providers, |setup| setup.upstreams = vec![Vec::new(), vec![other.address]])
}

#[test]
fn after_a_failure_the_next_target_gets_the_request_with_its_own_key_and_name() {
    let other = Origin::new();
    let gateway = pair(&other);
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", CHAT));
    let first = respond(&mut gateway.origin.accept(), BUSY).to_ascii_lowercase();
    assert!(first.contains("authorization: bearer provider-key") && first.ends_with(CHAT), "{first}");
    let second = respond(&mut other.accept(), &ok("{\"id\":\"b\"}"));
    assert!(second.contains("api-key: provider-key\r\n") && !second.contains("Bearer"), "{second}");
    assert!(second.ends_with(&CHAT.replace("\"m\"", "\"spare\"")), "{second}");
    assert_eq!(read(&mut client).1["id"], "b");
}

#[test]
fn the_last_failure_is_that_of_the_client_and_errors_of_the_request_go_nowhere_else() {
    let other = Origin::new();
    let gateway = pair(&other);
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", CHAT));
    respond(&mut gateway.origin.accept(), BUSY);
    respond(&mut other.accept(), BUSY);
    let (head, _) = read(&mut client);
    assert!(head.starts_with("http/1.1 429 ") && head.contains("retry-after: 7"), "{head}");
    // Both want a pause now: the order stays.
    let bad = "HTTP/1.1 400 Bad\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    client.send(&post("/v1/chat/completions", CHAT));
    respond(&mut gateway.origin.accept(), bad);
    assert!(read(&mut client).0.starts_with("http/1.1 400 "));
    assert!(other.is_untouched());
}

#[test]
fn a_provider_that_wants_a_pause_is_left_alone_for_it() {
    let other = Origin::new();
    let gateway = pair(&other);
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", CHAT));
    respond(&mut gateway.origin.accept(), BUSY);
    respond(&mut other.accept(), &ok("{}"));
    client.response();
    client.send(&post("/v1/chat/completions", CHAT));
    respond(&mut other.accept(), &ok("{\"id\":\"b\"}"));
    assert_eq!(read(&mut client).1["id"], "b");
    assert!(gateway.origin.is_untouched());
}

#[test]
fn a10_nothing_is_tried_again_once_the_client_has_a_part() {
    let other = Origin::new();
    let gateway = pair(&other);
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", STREAM));
    let mut end = gateway.origin.accept();
    respond(&mut end, &format!("{EVENTS}{}", chunk("data: {\"choices\":[]}\n\n")));
    client.head();
    client.0.until("choices");
    drop(end);
    client.0.until("upstream_bad_response");
    assert!(other.is_untouched());
}

#[test]
fn prompts_with_the_same_beginning_stay_at_one_target_and_short_ones_do_not() {
    let target = |upstream| Target { upstream, model: None, weight: 1 };
    let sticky = Model {
        sticky_prefix_bytes: Some(100),
        targets: vec![target(0), target(1)],
        ..model("m", &[(0, None), (1, None)])
    };
    let other = Origin::new();
    let settings =
        AiListenerSettings { models: [sticky].into(), upstreams: vec!["a".into(), "b".into()], ..settings() };
    let providers = [ProviderDialect::OpenAi; 2].map(provider).to_vec();
    let gateway = start(settings, providers, |setup| setup.upstreams = vec![Vec::new(), vec![other.address]]);
    // The origin that gets a chat with this system prompt and question.
    let served = |system: &str, question: usize| {
        let mut client = gateway.client();
        let system = format!(r#"{{"role":"system","content":"{system}"}},"#);
        client.send(&post(
            "/v1/chat/completions",
            &CHAT.replace("[{", &format!("[{system}{{")).replace("hi", &question.to_string()),
        ));
        loop {
            for (number, origin) in [&gateway.origin, &other].into_iter().enumerate() {
                if let Some(mut end) = origin.waiting() {
                    respond(&mut end, &ok("{}"));
                    client.response();
                    return number;
                }
            }
            std::thread::yield_now();
        }
    };
    let prompts: Vec<String> = (0..8).map(|number| format!("prompt {number} ").repeat(12)).collect();
    let first: Vec<usize> = prompts.iter().map(|prompt| served(prompt, 0)).collect();
    assert!(first.contains(&0) && first.contains(&1), "prompts are spread: {first:?}");
    for question in 1..4 {
        let again: Vec<usize> = prompts.iter().map(|prompt| served(prompt, question)).collect();
        assert_eq!(again, first, "each stays");
    }
    let short: Vec<usize> = (0..24).map(|_| served("short", 0)).collect();
    assert!(short.contains(&0) && short.contains(&1), "chance decides: {short:?}");
}
