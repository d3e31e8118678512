//! The choice among targets by latency and by price, and the abilities of providers.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use weir_ai::settings::{Abilities, AiListenerSettings, Balance, Model, Provider, ProviderDialect, Target};
use weir_spend::{
    Glob,
    policy::{OutputAction, OutputCap, Policy},
    prices::{Price, PriceRow, PriceTable},
};

use crate::{
    gateway::{CHAT, ok, post, provider, read, respond, settings, start, with_key},
    support::Gateway,
    translation::{CHATS, MESSAGE, MESSAGES, parts},
};

/// A provider that responds to each request after so long, on a thread that ends with the test program. A status of 200 names it.
fn server(id: &'static str, status: u16, delay: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
            while !request.ends_with(b"}") {
                match stream.read(&mut buffer) {
                    Ok(0) | Err(_) => break,
                    Ok(bytes) => request.extend_from_slice(&buffer[..bytes]),
                }
            }
            std::thread::sleep(delay);
            let response = ok(&format!("{{\"id\":\"{id}\"}}")).replacen("200", &status.to_string(), 1);
            let _ = stream.write_all(response.as_bytes());
        }
    });
    address
}

/// A model at two such providers, which serve it as `first` and `second`.
fn gateway(balance: Balance, prices: Vec<PriceRow>, servers: [SocketAddr; 2]) -> Gateway {
    let target = |(upstream, name): (usize, &str)| Target { upstream, model: Some(name.into()), weight: 1 };
    let targets = [(1, "first"), (2, "second")].map(target).to_vec();
    let models =
        Arc::new([Model { name: Glob::new("m").expect("a name"), balance, sticky_prefix_bytes: None, targets }]);
    let prices = Arc::new(PriceTable::new(1, prices, None).expect("a table"));
    let upstreams = ["a", "b", "c"].map(Into::into).to_vec();
    let providers = [ProviderDialect::OpenAi; 3].map(provider).to_vec();
    start(AiListenerSettings { models, prices, upstreams, ..settings() }, providers, |setup| {
        setup.upstreams = vec![Vec::new(), vec![servers[0]], vec![servers[1]]];
    })
}

/// The provider that serves a chat.
fn served(gateway: &Gateway, body: &str) -> String {
    let mut client = gateway.client();
    client.send(&post(CHATS, body));
    let (head, body) = read(&mut client);
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    body["id"].as_str().expect("an id").to_owned()
}

#[test]
fn the_target_that_responds_sooner_is_used_and_a_cache_that_is_warm_is_worth_more() {
    let servers = [server("slow", 200, Duration::from_millis(500)), server("fast", 200, Duration::ZERO)];
    let gateway = gateway(Balance::Latency, Vec::new(), servers);
    // Keys of caches lead to both targets, which are measured so.
    let cached = |key: u32| served(&gateway, &CHAT.replace("]}", &format!("],\"prompt_cache_key\":\"{key}\"}}")));
    let keys: Vec<String> = (0..8).map(cached).collect();
    let slow = keys.iter().position(|id| id == "slow").expect("one of eight");
    assert!(keys.iter().any(|id| id == "fast"), "{keys:?}");
    // The slow one needs no probe so soon.
    let all: Vec<String> = (0..30).map(|_| served(&gateway, CHAT)).collect();
    assert!(all.iter().all(|id| id == "fast"), "{all:?}");
    assert_eq!(cached(slow as u32), "slow");
}

#[test]
fn the_cheapest_target_is_used_while_it_serves() {
    let row = |models: &str, input: u64, output: u64| PriceRow {
        models: Glob::new(models).expect("a name"),
        tier: None,
        price: Price { input, output, ..Price::default() },
    };
    // By the prompt alone the first one is cheaper; with the output that is reserved it is not.
    let prices = || vec![row("first", 1_000_000, 900_000_000), row("second", 2_000_000, 3_000_000)];
    let both = [server("first", 200, Duration::ZERO), server("second", 200, Duration::ZERO)];
    let gateway = self::gateway(Balance::Price, prices(), both);
    assert!((0..5).all(|_| served(&gateway, CHAT) == "second"));
    let short = CHAT.replace("]}", "],\"max_tokens\":0}");
    let long = format!("{}{}", "a".repeat(4_000), "\"}]");
    assert_eq!(served(&gateway, &short.replace("hi\"}]", &long)), "first", "a long prompt and no output");
    drop(gateway);
    let broken = [server("first", 200, Duration::ZERO), server("second", 503, Duration::ZERO)];
    let gateway = self::gateway(Balance::Price, prices(), broken);
    assert!((0..5).all(|_| served(&gateway, CHAT) == "first"));
    drop(gateway);
}

/// The request that a provider with these abilities gets, and the head of the response.
fn request(of: Provider, own: AiListenerSettings, path: &str, body: &str) -> (String, String) {
    let gateway = start(own, vec![of], |_| {});
    let mut client = gateway.client();
    client.send(&post(path, body));
    let response = ok("{}").replacen("200", "429", 1);
    let request = respond(&mut gateway.origin.accept(), &response);
    (request, read(&mut client).0)
}

#[test]
fn a_limit_of_output_is_that_of_the_provider_if_the_client_has_none() {
    let abilities = Abilities { default_max_tokens: 77, ..Abilities::default() };
    let of = || Provider { abilities, ..provider(ProviderDialect::Anthropic) };
    let (_, body) = parts(&request(of(), settings(), CHATS, CHAT).0);
    assert_eq!(body["max_tokens"], 77);
    let own = CHAT.replace("]}", "],\"max_tokens\":500}");
    let (_, body) = parts(&request(of(), settings(), CHATS, &own).0);
    assert_eq!(body["max_tokens"], 500, "the client's own");
}

#[test]
fn effort_is_left_out_for_a_provider_that_refuses_it() {
    let chat = CHAT.replace("]}", "],\"reasoning_effort\":\"low\"}");
    let lossless = Abilities::default();
    for abilities in [lossless, Abilities { reasoning_effort: false, ..lossless }] {
        let of = Provider { abilities, ..provider(ProviderDialect::Anthropic) };
        let (request, head) = request(of, settings(), CHATS, &chat);
        assert_eq!(request.contains("\"effort\":\"low\""), abilities.reasoning_effort, "{request}");
        assert_eq!(head.contains("translation-loss: reasoning_effort"), !abilities.reasoning_effort, "{head}");
    }
}

#[test]
fn an_older_server_gets_its_limit_under_the_older_name() {
    let abilities = Abilities { max_completion_tokens: false, ..Abilities::default() };
    let of = || Provider { abilities, ..provider(ProviderDialect::OpenAi) };
    let (_, body) = parts(&request(of(), settings(), MESSAGES, MESSAGE).0);
    assert_eq!((&body["max_tokens"], body.get("max_completion_tokens")), (&50.into(), None), "by translation");
    let cap = Some(OutputCap { tokens: 7, action: OutputAction::Clamp });
    let (request, _) = request(of(), with_key(Policy { output: cap, ..Policy::default() }), CHATS, CHAT);
    assert!(request.ends_with(&CHAT.replace("]}", "],\"max_tokens\":7}")), "by the key: {request}");
    // The newer name satisfies the key, and the server does not obey it.
    for own in [settings(), with_key(Policy { output: cap, ..Policy::default() })] {
        let chat = CHAT.replace("]}", "],\"max_completion_tokens\":7}");
        let (request, _) = self::request(of(), own, CHATS, &chat);
        assert!(request.ends_with(&chat.replace(":7}", ":7,\"max_tokens\":7}")), "by the client: {request}");
    }
    let chat = CHAT.replace("]}", "],\"max_completion_tokens\":7,\"max_tokens\":9}");
    assert!(self::request(of(), settings(), CHATS, &chat).0.ends_with(&chat), "it has its own");
}
