//! An AI listener in front of scripted providers, and the requests of its clients.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use weir_ai::{
    AiUpstream, Service, Spend,
    settings::{AiListenerSettings, Balance, KeyMode, Model, Provider, ProviderDialect, SpendSettings, Target},
};
use weir_ai_session::estimate::TokenEstimate;
use weir_base::Secret;
use weir_spend::{
    Glob,
    keys::{KeyHash, KeySecret, KeySettings},
    policy::Policy,
    prices::PriceTable,
};

use crate::support::{Client, Gateway, OriginEnd, PATIENCE, Setup};

/// A key that the listener knows.
pub const KEY: &str = "sk-weir-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// A chat without a stream.
pub const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;

/// The same as a stream.
pub const STREAM: &str = r#"{"model":"m","stream":true,"messages":[]}"#;

/// Settings without keys, models and prices.
pub fn settings() -> AiListenerSettings {
    AiListenerSettings {
        key_mode: KeyMode::None,
        keys: Arc::new([]),
        models: Arc::new([]),
        agents: Arc::new([]),
        federations: Arc::new([]),
        prices: Arc::default(),
        upstreams: vec!["a".into()],
        first_token_timeout: Duration::from_secs(5),
        token_gap_timeout: Duration::from_secs(5),
        request_timeout: Duration::from_secs(20),
        drain_on_disconnect: Duration::ZERO,
        body_bytes_max: 1 << 20,
        reserved_output_tokens: 100,
        attribution: Default::default(),
        recent_body_bytes_max: 0,
        refuses_web_pages: false,
        cache: None,
        ring: Default::default(),
    }
}

/// The same with [`KEY`], which has this policy.
pub fn with_key(policy: Policy) -> AiListenerSettings {
    let key = KeySettings {
        name: "team".into(),
        secrets: vec![KeySecret { hash: KeyHash::of(KEY.as_bytes()), shown: "k".into(), until: None }],
        is_enabled: true,
        expires: None,
        policy: Arc::new(policy),
        team: None,
        organization: None,
    };
    AiListenerSettings { key_mode: KeyMode::Required, keys: Arc::new([key]), ..settings() }
}

/// A model at these upstreams, by their numbers, with these names there.
pub fn model(name: &str, targets: &[(usize, Option<&str>)]) -> Model {
    let target = |(upstream, model): &(usize, Option<&str>)| Target {
        upstream: *upstream,
        model: model.map(Into::into),
        weight: u32::from(*upstream == 0),
    };
    let targets = targets.iter().map(target).collect();
    Model { name: Glob::new(name).expect("a pattern"), balance: Balance::Weight, sticky_prefix_bytes: None, targets }
}

/// A provider with a key.
pub fn provider(dialect: ProviderDialect) -> Provider {
    let api_key = Some(Secret::new(b"provider-key".to_vec()));
    Provider { api_key, base_path: "/v1".into(), ..Provider::new(dialect, "api.example") }
}

/// The gateway in front of an origin that it makes, and of further ones.
pub fn start(settings: AiListenerSettings, providers: Vec<Provider>, change: impl FnOnce(&mut Setup)) -> Gateway {
    start_with(settings, providers, None, change)
}

/// The same with a journal in this folder.
pub fn start_with(
    settings: AiListenerSettings,
    providers: Vec<Provider>,
    state: Option<&Path>,
    change: impl FnOnce(&mut Setup),
) -> Gateway {
    let process = SpendSettings { state: state.map(Into::into), ..SpendSettings::default() };
    start_in(&process, settings, providers, change)
}

/// The same with these settings of the process.
pub fn start_in(
    process: &SpendSettings,
    settings: AiListenerSettings,
    providers: Vec<Provider>,
    change: impl FnOnce(&mut Setup),
) -> Gateway {
    let spend = Spend::open(process, 1).expect("a journal");
    let mut setup = Setup::of(Vec::new());
    setup.make = Some(Box::new(move |core, listener, _, upstreams| {
        let providers = providers.into_iter().map(Arc::new);
        let upstreams = upstreams.into_iter().zip(providers).map(|(http, provider)| AiUpstream { http, provider });
        let share = spend.share(0).expect("open budgets");
        // The journal lives as long as the worker.
        std::mem::forget(spend);
        Service::new(core.clone(), listener, settings, upstreams.collect(), share)
    }));
    change(&mut setup);
    Gateway::start(setup)
}

/// One provider of OpenAI's API.
pub fn plain(settings: AiListenerSettings) -> Gateway {
    start(settings, vec![provider(ProviderDialect::OpenAi)], |_| {})
}

/// A POST with a key.
pub fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A whole response, behind which the provider closes.
pub fn ok(body: &str) -> String {
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json";
    format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// The head of a stream.
pub const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A chunk.
pub fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// The next request of a provider, which responds with this.
pub fn respond(end: &mut OriginEnd, response: &str) -> String {
    let request = end.request();
    end.send(response);
    request
}

/// Head and JSON body of the next response.
pub fn read(client: &mut Client) -> (String, Value) {
    let response = client.response();
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    (head.to_ascii_lowercase(), serde_json::from_str(body).unwrap_or_default())
}

/// The error of the next response, whose status is this.
pub fn refused(client: &mut Client, status: u16) -> (String, Value) {
    let (head, body) = read(client);
    assert!(head.starts_with(&format!("http/1.1 {status} ")), "{head}\n{body}");
    assert!(head.contains("content-type: application/json"), "{head}");
    (head, body["error"].clone())
}

/// A price of one millionth per token of the prompt, and two per token of the output.
pub fn prices(models: &str) -> Arc<PriceTable> {
    let price = weir_spend::prices::Price { input: 1_000_000, output: 2_000_000, ..Default::default() };
    let row = weir_spend::prices::PriceRow { models: Glob::new(models).expect("a pattern"), tier: None, price };
    Arc::new(PriceTable::new(7, vec![row], None).expect("a table"))
}

/// Tokens of a text by estimate.
pub fn estimate(text: &str) -> u64 {
    let mut estimate = TokenEstimate::default();
    estimate.push(text.as_bytes());
    estimate.tokens()
}

/// The lines of the usage log, once there are so many.
pub fn usage(folder: &Path, count: usize) -> Vec<Value> {
    let begun = Instant::now();
    loop {
        let text = std::fs::read_to_string(folder.join("usage.log")).unwrap_or_default();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        if lines.len() >= count {
            return lines;
        }
        assert!(begun.elapsed() < PATIENCE, "{text}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
