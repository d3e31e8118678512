//! AI listeners: mistakes have a place and a remedy, and the example becomes the settings that it describes.

use std::path::Path;
use std::time::Duration;

use crate::support::Memory;
use weir_ai::settings::{AgentProtocol, Balance, CacheSettings, KeyMode, ProviderDialect};
use weir_config::{Diagnostics, ListenerProtocol, UpstreamProtocol, check};
use weir_http::ProbeKind;
use weir_spend::{
    budget::Budgets,
    policy::{CacheRule, Mode},
    rate::Pace,
};

const HASH: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The findings about a listener at `bind` with these lines behind `[listener.ai]`, and these behind `[upstream.ai]`.
fn findings(bind: &str, listener: &str, upstream: &str) -> Diagnostics {
    let file = format!(
        "[[listener]]\nname = \"ai\"\nprotocol = \"ai\"\nbind = \"{bind}\"\nupstream = \"u\"\n[listener.ai]\n{listener}\n\
         [[upstream]]\nname = \"u\"\nendpoints = [\"127.0.0.1:8001\"]\n[upstream.ai]\n{upstream}\n"
    );
    match check(&file, "weir.toml", Path::new(""), &Memory::furnished()) {
        Ok(snapshot) => snapshot.warnings,
        Err(found) => found,
    }
}

/// Checks that there is one finding, with these words, a line and a remedy.
fn finds_one(bind: &str, listener: &str, upstream: &str, words: &str) {
    let found = findings(bind, listener, upstream);
    let one = found.iter().find(|one| one.message.contains(words) || one.help.iter().any(|help| help.contains(words)));
    let one = one.unwrap_or_else(|| panic!("{words}: {found}"));
    assert!(one.line > 0 && one.help.is_some(), "{found}");
    assert_eq!(found.iter().count(), 1, "{words}: {found}");
}

#[test]
fn bodies_that_are_kept_need_room_for_an_exchange_on_each_worker() {
    // The machine has two cores, so that a worker has a half.
    let upstream = |kept: &str, runtime: &str| {
        format!("dialect = \"openai\"\n[ai]\nrecent_bodies_bytes_max = \"{kept}\"\n{runtime}")
    };
    let listener = "keys = \"none\"\nrecent_body_bytes_max = \"64KiB\"";
    let found = |kept: &str, runtime: &str| findings("127.0.0.1:1", listener, &upstream(kept, runtime)).to_string();
    assert_eq!(found("256KiB", ""), "");
    assert!(found("255KiB", "").contains("has no room for one exchange on each worker"));
    assert_eq!(found("128KiB", "[runtime]\nworkers = 1"), "");
    assert!(found("256KiB", "[runtime]\nworkers = 3").contains("has no room for one exchange on each worker"));
}

#[test]
fn each_mistake_of_an_attribution_has_a_line_and_a_remedy() {
    for (fields, words) in [
        ("user = \"authorization\"", "is not a field name"),
        ("tags = \"x(tags)\"", "is not a field name"),
        ("agent = \"X-Weir-User\"", "has the field of another key"),
    ] {
        finds_one("127.0.0.1:8000", &format!("[listener.ai.attribution]\n{fields}\n"), "", words);
    }
}

#[test]
fn each_mistake_of_a_federation_has_a_line_and_a_remedy() {
    let mcp = |name: &str| format!("[[listener.ai.mcp]]\nname = \"{name}\"\nupstream = \"u\"\n");
    let joint = |name: &str, servers: &str| {
        format!("[[listener.ai.mcp_federation]]\nname = \"{name}\"\nservers = [{servers}]\n")
    };
    let rows = [
        (mcp("m") + &joint("m", "\"m\""), "is used twice"),
        (mcp("m") + &joint("all", "\"m\"").repeat(2), "is used twice"),
        (mcp("m") + &joint("all", ""), "has 0 servers"),
        (mcp("m") + &joint("all", "\"x\""), "names no [[listener.ai.mcp]]"),
        (mcp("m").replace("mcp]", "a2a]") + &joint("all", "\"m\""), "names no [[listener.ai.mcp]]"),
        (mcp("m") + &joint("all", "\"m\", \"m\""), "names a server twice"),
        (mcp("m_") + &joint("all", "\"m_\""), "names a server with `__`"),
        (mcp("m__n") + &joint("all", "\"m__n\""), "names a server with `__`"),
    ];
    for (listener, words) in rows {
        finds_one("127.0.0.1:8000", &listener, "", words);
    }
}

#[test]
fn each_mistake_has_a_line_and_a_remedy() {
    let here = "127.0.0.1:8000";
    let key =
        |lines: &str| format!("keys = \"required\"\n[[listener.ai.key]]\nname = \"k\"\nsha256 = \"{HASH}\"\n{lines}");
    let target = "[[listener.ai.model.target]]\nupstream = \"u\"\n";
    let model = |name: &str| format!("[[listener.ai.model]]\nname = \"{name}\"\n{target}");
    let mcp = |name: &str| format!("[[listener.ai.mcp]]\nname = \"{name}\"\nupstream = \"u\"\n");
    let price = "[[listener.ai.price]]\nmodels = \"m\"\ninput = \"1\"\noutput = \"2\"\n";
    let two = |lines: &str, second: &str| {
        format!("{}\n{lines}\n{target}{target}{second}", "[[listener.ai.model]]\nname = \"m\"")
    };
    let cheapest = "balance = \"price\"";
    let many = format!("[[listener.ai.model]]\nname = \"m\"\n{}", target.repeat(9));
    let rows: &[(&str, String, &str, &str)] = &[
        ("0.0.0.0:8000", String::new(), "", "spend money"),
        (here, key("").replacen("keys", "allow_open = true\nkeys", 1), "", "changes nothing here"),
        (here, "keys = \"required\"".to_owned(), "", "refuses every request"),
        (here, key("").replace("required", "none"), "", "clients need no key"),
        (here, key("").replace(HASH, "abc"), "", "is not a SHA-256"),
        (here, key("models = []"), "", "would permit all"),
        (here, key("sources = []"), "", "would permit all"),
        (here, key("old_until = \"2030-01-01T00:00:00Z\""), "", "needs old_sha256"),
        (here, key("expires = \"tomorrow\""), "", "is not a time in UTC"),
        (here, key("day_money = \"ten\""), "", "is not an amount of money"),
        (here, key("day_tokens = 1000"), "", "begins again with each start"),
        (here, key("cache_sampled = true"), "", "without cache_ttl"),
        (here, "cache_sampled = true".to_owned(), "", "without cache_ttl"),
        (here, key("").replacen("keys", "cache_ttl = \"5m\"\nkeys", 1), "", "each key has its own"),
        (here, key("cache_ttl = \"0s\""), "", "cache_ttl"),
        (here, key("") + &key("").replace("keys = \"required\"\n", ""), "", "is there twice"),
        (here, key("models = [\"gpt-4\", \"x\"]\n") + &model("gpt-4o"), "", "permits no model of the listener"),
        (here, key("models = [\"gpt-4o\", \"clade-*\"]\n") + &model("gpt-*"), "", "has \"clade-*\", which matches no"),
        (here, "[[listener.ai.model]]\nname = \"m\"".to_owned(), "", "has 0 targets"),
        (here, many, "", "has 9 targets"),
        (here, model("gpt-*") + &model("gpt-x"), "", "is never reached"),
        (here, model("m").replace("\"u\"", "\"w\""), "", "does not exist"),
        (here, price.repeat(2), "", "two prices for the same tier"),
        (here, two("balance = \"fastest\"", ""), "", "has no such value"),
        (here, two(cheapest, "model = \"x\"\n") + price, "", "has no price for `x`"),
        (here, two("balance = \"latency\"", "weight = 3\n"), "", "sets no share"),
        (here, model("m").replace("\"m\"", "\"m\"\nbalance = \"latency\""), "", "has no effect with one target"),
        (here, model("m").replace("\"m\"", "\"m\"\nsticky_prefix_bytes = 64"), "", "has no effect with one target"),
        (here, String::new(), "default_max_tokens = 4096", "has no effect"),
        (here, String::new(), "reasoning_effort = false", "has no effect"),
        (here, String::new(), "dialect = \"anthropic\"\nmax_completion_tokens = false", "has no effect"),
        (here, String::new(), "health_models = true\n[upstream.http]\nhealth_path = \"/\"", "another health check"),
        (here, String::new(), "health_models = true\n[upstream.health]\nenabled = false", "health.enabled is false"),
        (here, mcp("m").repeat(2), "", "is used twice"),
        (here, mcp("m").replace("\"u\"", "\"w\""), "", "does not exist"),
        (here, mcp("m") + "path = \"mcp\"", "", "is not a path"),
        (here, mcp("m").replace("mcp]", "a2a]") + "path = \"/a?b\"", "", "is not a path"),
        (here, key("mcp_tools = [\"m\"]\n") + &mcp("m"), "", "is not of the form server/tool"),
        (here, key("mcp_tools = [\"m/\"]\n") + &mcp("m"), "", "is not of the form server/tool"),
        (here, key("mcp_tools = [\"x*/a\"]\n") + &mcp("m"), "", "fits no [[listener.ai.mcp]]"),
        (here, key("a2a_agents = [\"m\"]\n") + &mcp("m"), "", "fits no [[listener.ai.a2a]]"),
        (here, String::new(), "base_path = \"v1\"", "is not a path"),
        (here, String::new(), "base_path = \"/v1 x\"", "is not a word"),
        (here, String::new(), "base_path = \"/v1\\r\\nx\"", "is not a word"),
        (here, String::new(), "dialect = \"anthropic\"\ninclude_usage = false", "has no effect"),
        (here, String::new(), "api_key = { env = \"REDIS_PASSWORD\" }", "not allowed in a header field"),
    ];
    for (bind, listener, upstream, words) in rows {
        finds_one(bind, listener, upstream, words);
    }
    assert!(findings(here, &(key("") + &model("m") + price), "base_path = \"/\"").is_empty());
}

#[test]
fn a_balance_by_price_finds_the_price_of_each_target() {
    let here = "127.0.0.1:8000";
    let model = |name: &str| {
        let target = "[[listener.ai.model.target]]\nupstream = \"u\"\n";
        format!("[[listener.ai.model]]\nname = \"{name}\"\nbalance = \"price\"\n{target}{target}model = \"other\"\n")
    };
    let price = |models: &str| format!("[[listener.ai.price]]\nmodels = \"{models}\"\ninput = \"1\"\noutput = \"2\"\n");
    for (name, models) in [("m", ["m", "other"]), ("gpt-*", ["gpt-*", "o*"])] {
        let found = findings(here, &(model(name) + &models.map(price).concat()), "");
        assert!(found.is_empty(), "{found}");
        let found = findings(here, &(model(name) + &price(models[1])), "");
        assert!(found.errors() == 1, "{found}");
    }
}

#[test]
fn the_health_of_a_provider_is_checked_with_its_own_key() {
    let probe = |dialect: &str| {
        let file = format!(
            "[[listener]]\nname = \"ai\"\nprotocol = \"ai\"\nbind = \"127.0.0.1:8000\"\nupstream = \"u\"\n\
             [[upstream]]\nname = \"u\"\nendpoints = [\"127.0.0.1:8001\"]\n[upstream.ai]\ndialect = \"{dialect}\"\n\
             api_key = {{ env = \"ADMIN_TOKEN\" }}\nhealth_models = true\n"
        );
        let snapshot = check(&file, "weir.toml", Path::new(""), &Memory::furnished()).expect("valid");
        match &snapshot.upstream("u").expect("an upstream").protocol {
            UpstreamProtocol::Ai(upstream) => upstream.http.probe.clone(),
            other => panic!("{other:?}"),
        }
    };
    for (dialect, path, names) in [
        ("openai", "/v1/models", &["authorization"][..]),
        ("azure", "/openai/v1/models", &["api-key"]),
        ("anthropic", "/v1/models", &["x-api-key", "anthropic-version"]),
    ] {
        let probe = probe(dialect);
        assert_eq!((&probe.kind, &*probe.host), (&ProbeKind::Path(path.to_owned()), "127.0.0.1:8001"));
        assert_eq!(probe.fields.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), names);
        assert!(!format!("{probe:?}").contains("Bearer "), "a secret is not shown");
    }
}

#[test]
fn a_key_in_clear_text_has_a_warning_unless_it_stays_in_a_private_network() {
    let warned = |endpoint: &str, tls: &str| {
        let key = "api_key = { env = \"ADMIN_TOKEN\" }";
        let file = format!(
            "[[listener]]\nname = \"ai\"\nprotocol = \"ai\"\nbind = \"127.0.0.1:8000\"\nupstream = \"u\"\n\
             [[upstream]]\nname = \"u\"\nendpoints = [\"{endpoint}\"]\n{tls}\n[upstream.ai]\n{key}\n"
        );
        let snapshot = check(&file, "weir.toml", Path::new(""), &Memory::furnished()).expect("valid");
        let found: Vec<_> = snapshot.warnings.iter().map(|one| one.message.clone()).collect();
        assert!(found.iter().all(|message| message.contains("in clear text")), "{found:?}");
        !found.is_empty()
    };
    for far in ["api.openai.com:443", "203.0.113.7:8000", "[2001:db8::1]:80"] {
        assert!(warned(far, "") && !warned(far, "[upstream.tls]"), "{far}");
    }
    for near in
        ["127.0.0.1:1", "10.0.0.7:1", "[fd00::1]:1", "vllm:8000", "llm.svc.cluster.local:1", "unix:/run/llm.sock"]
    {
        assert!(!warned(near, ""), "{near}");
    }
}

#[test]
fn a_listener_without_keys_refuses_web_pages_unless_it_is_open_to_all() {
    let refuses = |bind: &str, listener: &str| {
        let file = format!(
            "[[listener]]\nname = \"ai\"\nprotocol = \"ai\"\nbind = \"{bind}\"\nupstream = \"u\"\n[listener.ai]\n\
             {listener}\n[[upstream]]\nname = \"u\"\nendpoints = [\"127.0.0.1:8001\"]\n"
        );
        let snapshot = check(&file, "weir.toml", Path::new(""), &Memory::furnished()).expect("valid");
        match &snapshot.listener("ai").expect("the listener").protocol {
            ListenerProtocol::Ai(settings) => settings.refuses_web_pages,
            other => panic!("{other:?}"),
        }
    };
    assert!(refuses("127.0.0.1:8000", ""));
    assert!(!refuses("127.0.0.1:8000", "allow_open = true"));
    assert!(!refuses("127.0.0.1:8000", "keys = \"required\""));
    assert!(!refuses("unix:/run/weir.sock", "") && !refuses("0.0.0.0:8000", "allow_open = true"));
}

#[test]
fn the_example_becomes_the_settings_that_it_describes() {
    let snapshot = crate::examples::loaded("ai-full.toml");
    let ListenerProtocol::Ai(settings) = &snapshot.listener("ai").expect("the listener").protocol else {
        panic!("an AI listener")
    };
    assert_eq!((settings.key_mode, settings.first_token_timeout), (KeyMode::Required, Duration::from_secs(60)));
    let upstreams: Vec<_> = settings.upstreams.iter().map(|name| &**name).collect();
    assert_eq!(upstreams, ["openai", "azure", "anthropic", "own"]);
    let agents: Vec<_> =
        settings.agents.iter().map(|one| (one.protocol, &*one.name, one.upstream, &*one.path)).collect();
    let wanted = [(AgentProtocol::Mcp, "github", 3, "/mcp"), (AgentProtocol::A2a, "planner", 3, "/")];
    assert_eq!(agents, wanted);
    let federations: Vec<_> = settings.federations.iter().map(|one| (&*one.name, &one.servers[..])).collect();
    assert_eq!(federations, [("tools", &[0][..])]);
    let [key] = &settings.keys[..] else { panic!("{:?}", settings.keys) };
    assert_eq!((&*key.name, key.secrets.len(), key.policy.mode), ("search-team", 2, Mode::Enforce));
    let wanted = Budgets {
        day_tokens: Some(5_000_000),
        day_money: Some(20_000_000),
        month_tokens: Some(100_000_000),
        month_money: Some(400_500_000),
    };
    assert_eq!(key.policy.budgets, wanted);
    let rule = |seconds, takes_sampled| Some(CacheRule { ttl: Duration::from_secs(seconds), takes_sampled });
    assert_eq!((key.policy.cache, settings.cache), (rule(300, false), None));
    let ListenerProtocol::Ai(open) = &snapshot.listener("open").expect("the listener").protocol else {
        panic!("an AI listener")
    };
    assert_eq!(open.cache, rule(3_600, true));
    let may_call = |server, tool| key.policy.permits_tool(server, tool);
    assert!(may_call("github", "get_issue") && may_call("files", "read_file") && !may_call("github", "delete_repo"));
    assert!(key.policy.permits_agent("planner") && !key.policy.permits_agent("other"));
    assert_eq!(key.policy.tool_calls, Some(Pace::per_minute(120)));
    let fast = &settings.models[0];
    let targets: Vec<_> = fast.targets.iter().map(|target| (target.upstream, target.weight)).collect();
    assert_eq!((targets, fast.balance), (vec![(0, 3), (1, 1)], Balance::Weight));
    assert_eq!(settings.models[1].balance, Balance::Price);
    let price = settings.prices.price("gpt-4o-mini", Some("flex")).expect("a price");
    assert_eq!((price.input, price.output, settings.prices.version()), (75_000, 300_000, 3));
    let provider = |name: &str| match &snapshot.upstream(name).expect("an upstream").protocol {
        UpstreamProtocol::Ai(upstream) => upstream.provider.clone(),
        other => panic!("{other:?}"),
    };
    let shown = |name: &str| {
        let provider = provider(name);
        (provider.dialect, provider.host.to_string(), provider.base_path.to_string(), provider.api_key.is_some())
    };
    let host = |text: &str| text.to_owned();
    assert_eq!(shown("openai"), (ProviderDialect::OpenAi, host("api.openai.com"), host("/v1"), true));
    assert_eq!(shown("azure"), (ProviderDialect::Azure, host("example.openai.azure.com"), host("/openai/v1"), true));
    assert_eq!(shown("own"), (ProviderDialect::OpenAi, host("10.0.0.7:8000"), host("/v1"), false));
    assert_eq!(snapshot.protocols.ai.cache, CacheSettings::default());
    let state = snapshot.protocols.ai.state.as_ref().expect("a directory");
    assert_eq!(state, Path::new("/var/lib/weir/ai"));
}

#[test]
fn models_of_a_key_that_the_listener_has_are_good_and_so_are_any_without_models() {
    let target = "[[listener.ai.model.target]]\nupstream = \"u\"\n";
    let key = |models: &str| {
        format!("keys = \"required\"\n[[listener.ai.key]]\nname = \"k\"\nsha256 = \"{HASH}\"\nmodels = {models}\n")
    };
    for (models, name) in [("[\"gpt-*\"]", "gpt-4o"), ("[\"gpt-4o\"]", "gpt-*"), ("[\"*-mini\"]", "gpt-*")] {
        let listener = key(models) + &format!("[[listener.ai.model]]\nname = \"{name}\"\n{target}");
        let found = findings("127.0.0.1:8000", &listener, "");
        assert!(found.is_empty(), "{models} {name}: {found}");
    }
    let found = findings("127.0.0.1:8000", &key("[\"anything\"]"), "");
    assert!(found.is_empty(), "{found}");
}

/// The findings about a file with two AI listeners, whose key `k` has these lines, behind these tables.
fn findings_of_store(tables: &str, keys: [&str; 2]) -> Diagnostics {
    let listener = |number: usize, lines: &str| {
        format!(
            "[[listener]]\nname = \"ai{number}\"\nprotocol = \"ai\"\nbind = \"127.0.0.1:800{number}\"\nupstream = \"u\"\n\
             [listener.ai]\nkeys = \"required\"\n[[listener.ai.key]]\nname = \"k\"\nsha256 = \"{HASH}\"\n{lines}\n"
        )
    };
    let upstream = "[[upstream]]\nname = \"u\"\nendpoints = [\"127.0.0.1:9001\"]\n";
    let file = format!("{tables}\n{}{}{upstream}", listener(1, keys[0]), listener(2, keys[1]));
    match check(&file, "weir.toml", Path::new(""), &Memory::furnished()) {
        Ok(snapshot) => snapshot.warnings,
        Err(found) => found,
    }
}

#[test]
fn mistakes_of_a_store_of_budgets_are_named() {
    const STATE: &str = "[ai]\nstate = \"/var/lib/weir/ai\"\n";
    let store = |lines: &str| format!("{STATE}[ai.store]\nendpoints = [\"127.0.0.1:6379\"]\n{lines}");
    let same = ["day_tokens = 5"; 2];
    let good = findings_of_store(&store("on_failure = \"local\"\nclaim_ttl = \"1h\"\n"), same);
    assert!(good.is_empty(), "{good}");
    let cases = [
        ("[ai.store]\nendpoints = [\"127.0.0.1:6379\"]\n".to_owned(), same, "needs `ai.state`"),
        (format!("{STATE}[ai.store]\n"), same, "endpoints"),
        (format!("{STATE}[ai.store]\nendpoints = []\n"), same, "is empty"),
        (format!("{STATE}[ai.store]\nendpoints = [\"a:1\", \"a:1\"]\n"), same, "names a:1 twice"),
        (store("user = \"weir\"\n"), same, "has no effect without a password"),
        (store("password = \"plain\"\n"), same, "plain text"),
        (store("claim_ttl = \"1s\"\n"), same, "claim_ttl"),
        (store("on_failure = \"hope\"\n"), same, "claimed"),
        (store("timeout = \"1s\"\n"), same, "timeout"),
        (store("[ai.store.tls]\nhandshake_timeout = \"2s\"\n"), same, "has no effect beyond 1 s"),
        (store(""), ["day_tokens = 5", "day_tokens = 6"], "different budgets"),
    ];
    for (tables, keys, words) in cases {
        let found = findings_of_store(&tables, keys).to_string();
        assert!(found.contains(words) && found.contains("weir.toml:"), "{tables}: {found}");
    }
}
