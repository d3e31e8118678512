//! The snapshot of a good file: defaults, derived values, the view without secrets, and the difference to another.

use std::path::Path;
use std::time::Duration;

use crate::support::Memory;
use serde_json::json;
use weir_config::{ListenerProtocol, Snapshot, UpstreamProtocol, check, diff, redacted};
use weir_engine::settings::RuntimeSettings;
use weir_listener::settings::{DrainSettings, ListenerSettings};
use weir_redis_session::settings::{RedisListenerSettings, RedisUpstreamSettings};
use weir_upstream::settings::UpstreamSettings;

const SMALLEST: &str = include_str!("../../../../examples/weir.toml");

fn with(surroundings: &Memory, source: &str) -> Snapshot {
    check(source, "weir.toml", Path::new(""), surroundings).unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
}

fn good(source: &str) -> Snapshot {
    with(&Memory::furnished(), source)
}

/// The smallest file with a line added to its listener, its upstream, and at the end.
fn varied(listener: &str, upstream: &str, rest: &str) -> String {
    let marked = SMALLEST.replacen("\n[[upstream]]", &format!("{listener}\n\n[[upstream]]"), 1);
    format!("{marked}{upstream}\n{rest}\n")
}

#[test]
fn the_smallest_file_has_the_defaults_of_the_rooms() {
    let snapshot = good(SMALLEST);
    assert_eq!(snapshot.runtime, RuntimeSettings::default());
    assert_eq!(snapshot.drain, DrainSettings::default());
    assert_eq!(snapshot.admin.bind.to_string(), "127.0.0.1:9900");
    assert_eq!(snapshot.limits, Default::default());
    assert!(snapshot.warnings.is_empty());
    let listener = &snapshot.listeners[0];
    let bind = "127.0.0.1:6380".parse().expect("an address");
    assert_eq!(*listener.settings, ListenerSettings::new("cache", bind));
    let ListenerProtocol::Redis(redis) = &listener.protocol else { panic!("a Redis listener") };
    assert_eq!(**redis, RedisListenerSettings::default());
    assert_eq!(&*listener.upstream, "redis-main");
    let upstream = &snapshot.upstreams[0];
    let endpoint = "127.0.0.1:6379".parse().expect("an address");
    assert_eq!(*upstream.settings, UpstreamSettings::new("redis-main", vec![endpoint]));
    assert_eq!(upstream.protocol, UpstreamProtocol::Redis(RedisUpstreamSettings::default().into()));
}

#[test]
fn the_byte_budget_follows_the_memory_limit() {
    let budget = |memory: Option<u64>, source: &str| {
        let surroundings = Memory { memory, ..Memory::furnished() };
        with(&surroundings, source).limits.buffered_bytes
    };
    assert_eq!(budget(Some(64 << 30), SMALLEST), 1 << 30);
    // A quarter, reckoned in whole hundredths of the memory.
    assert_eq!(budget(Some(400 << 20), SMALLEST), (400 << 20) / 100 * 25);
    assert_eq!(budget(None, SMALLEST), (512 << 20) / 100 * 25);
    assert_eq!(budget(Some(1 << 30), &varied("", "", "[limits]\nbuffered_bytes = \"64MiB\"")), 64 << 20);
}

#[test]
fn defaults_follow_written_keys() {
    let rest = "[limits]\nconnections = 50\nconnections_per_source = 5\n[telemetry.access_log]\nsample = 0.5";
    let snapshot = good(&varied("output_high_water = \"64KiB\"", "pinned_lanes_max = 4", rest));
    let listener = &snapshot.listeners[0];
    assert_eq!(listener.settings.connections_max, 50);
    assert_eq!(listener.settings.connections_per_source_max, 5);
    assert_eq!(listener.settings.output_low_water, 16 << 10);
    assert_eq!(listener.settings.access_log_sample, 0.5);
    let ListenerProtocol::Redis(redis) = &listener.protocol else { panic!("a Redis listener") };
    assert_eq!(redis.blocking_max, 2);
    assert_eq!(snapshot.upstreams[0].settings.pinned_lanes_idle_max, 4);
    let own = good(&varied("access_log_sample = 1\nredis.blocking_max = 4", "pinned_lanes_max = 4", rest));
    assert_eq!(own.listeners[0].settings.access_log_sample, 1.0);
}

#[test]
fn health_checks_can_be_turned_off() {
    let snapshot = good(&varied("", "health.enabled = false", ""));
    assert_eq!(snapshot.upstreams[0].settings.health, None);
    let snapshot = good(&varied("", "health = { interval = \"3s\", timeout = \"3s\" }", ""));
    let health = snapshot.upstreams[0].settings.health.clone().expect("checks");
    assert_eq!((health.interval, health.timeout), (Duration::from_secs(3), Duration::from_secs(3)));
}

#[test]
fn the_view_shows_defaults_and_no_secret() {
    let password = "redis.password = { env = \"REDIS_PASSWORD\" }";
    let snapshot = good(&varied(
        password,
        "redis.password = { file = \"password\" }",
        "[admin]\ntoken = { env = \"ADMIN_TOKEN\" }",
    ));
    let view = redacted(&snapshot);
    assert_eq!(view["admin"]["token"], json!({ "env": "ADMIN_TOKEN" }));
    assert_eq!(view["listener"][0]["redis"]["password"], json!({ "env": "REDIS_PASSWORD" }));
    assert_eq!(view["upstream"][0]["redis"]["password"], json!({ "file": "password" }));
    assert_eq!(view["upstream"][0]["connect_timeout"], json!("1s"));
    assert_eq!(view["listener"][0]["output_high_water"], json!("256KiB"));
    let told = format!("{view} {snapshot:?}");
    assert!(!told.contains("correct horse") && !told.contains("0123456789abcdef") && !told.contains("from a file"));
}

#[test]
fn a_reference_to_a_secret_has_a_short_form() {
    let long = "redis.password = { env = \"REDIS_PASSWORD\" }";
    let short = varied("redis.password = \"env:REDIS_PASSWORD\"", "redis.password = \"file:password\"", "");
    let snapshot = good(&short);
    assert_eq!(snapshot, good(&varied(long, "redis.password = { file = \"password\" }", "")));
    let view = redacted(&snapshot);
    assert_eq!(view["listener"][0]["redis"]["password"], json!({ "env": "REDIS_PASSWORD" }));
    for literal in ["env:", "file:", "env:A=B", "ENV:REDIS_PASSWORD", "hunter2"] {
        let source = varied(&format!("redis.password = \"{literal}\""), "", "");
        let refused = check(&source, "weir.toml", Path::new(""), &Memory::furnished()).expect_err(literal).to_string();
        assert!(refused.contains("is in the file in plain text") && !refused.contains(literal), "{refused}");
    }
}

#[test]
fn a_change_is_reported_by_key_and_by_effect() {
    let old = good(&varied("idle_timeout = \"1m\"", "", ""));
    let rest = "[runtime]\nworkers = 2\n[admin]\nbind = \"127.0.0.1:9901\"\nhosts = [\"a\"]\n[telemetry]\nlevel = \"counters\"\nlog_level = \"debug\"\naccess_log.target = \"stderr\"";
    let new = good(&varied("idle_timeout = \"2m\"", "request_timeout = \"6s\"\n[upstream.tls]", rest));
    let change = diff(&old, &new);
    assert_eq!(
        change.applied,
        [
            "admin.hosts",
            "telemetry.level",
            "telemetry.log_level",
            "listener.cache.idle_timeout",
            "upstream.redis-main.request_timeout",
            "upstream.redis-main.tls added",
        ]
    );
    assert_eq!(change.needs_restart, ["runtime.workers", "admin.bind", "telemetry.access_log.target"]);
}

#[test]
fn telemetry_of_requests_needs_a_restart() {
    let level = |level: &str| good(&varied("", "", &format!("[telemetry]\nlevel = \"{level}\"")));
    let waiting = |old: &str, new: &str| diff(&level(old), &level(new)).needs_restart;
    assert_eq!(waiting("full", "counters"), [""; 0]);
    for (old, new) in [("full", "off"), ("off", "counters")] {
        let waiting = waiting(old, new);
        assert!(waiting.len() == 1 && waiting[0].contains("hot keys"), "{waiting:?}");
    }
}

#[test]
fn listeners_are_matched_by_name_wherever_they_stand() {
    let extra =
        "[[listener]]\nname = \"second\"\nprotocol = \"redis\"\nbind = \"127.0.0.1:6381\"\nupstream = \"redis-main\"\n";
    let old = good(SMALLEST);
    let new = good(&format!("{extra}{SMALLEST}"));
    assert_eq!(diff(&old, &new).applied, ["listener.second added"]);
    assert_eq!(diff(&new, &old).applied, ["listener.second removed"]);
    let moved = good(&format!("{SMALLEST}{extra}"));
    assert!(diff(&new, &moved).is_empty(), "the order means nothing");
}

#[test]
fn a_changed_secret_is_a_change_and_its_value_is_not_shown() {
    let source = varied("redis.password = { env = \"REDIS_PASSWORD\" }", "", "");
    let old = good(&source);
    let mut surroundings = Memory::furnished();
    surroundings.variables.insert("REDIS_PASSWORD", "another".to_owned());
    let new = with(&surroundings, &source);
    assert_ne!(old, new);
    assert_eq!(diff(&old, &new).applied, ["listener.cache.redis.password"]);
    assert!(diff(&old, &good(&source)).is_empty());
}

#[test]
fn a_snapshot_gets_its_generation_when_it_is_published() {
    let snapshot = good(SMALLEST);
    assert_eq!(snapshot.generation, 0);
    let published = snapshot.clone().published(7);
    assert_eq!(published.generation, 7);
    assert_eq!(*published, snapshot, "the same configuration");
}

#[test]
fn allowed_but_doubtful_settings_are_warned_about() {
    let bind = SMALLEST.replace("127.0.0.1:6380", "203.0.113.1:6380").replace("127.0.0.1:6379", "203.0.113.2:6379");
    let source = bind.replacen("\n[[upstream]]", "redis.password = { env = \"REDIS_PASSWORD\" }\n[[upstream]]", 1)
        + "redis.password = { file = \"password\" }\n\
           [limits]\nbuffered_bytes = \"16GiB\"\n\
           [[upstream]]\nname = \"unused\"\nendpoints = [\"127.0.0.1:1\"]\n[upstream.tls]\ninsecure_skip_verify = true\n";
    let warnings = good(&source).warnings;
    let paths: Vec<&str> = warnings.iter().map(|one| one.path.as_str()).collect();
    let expected = [
        "listener[0].redis.password",
        "upstream[0].redis.password",
        "limits.buffered_bytes",
        "upstream[1].name",
        "upstream[1].tls.insecure_skip_verify",
    ];
    assert_eq!(paths, expected, "{warnings}");
    assert_eq!((warnings.errors(), warnings.warnings()), (0, 5));
}

#[test]
fn a_limit_of_lag_that_no_look_can_keep_is_warned_about() {
    let paths = |lag: &str, interval: &str| -> Vec<String> {
        let upstream = |name: &str, attrs: &str| {
            format!(
                "[[upstream]]\nname = \"{name}\"\nendpoints = [\"127.0.0.1:5432\"]\n[upstream.postgres]\nuser = \"app\"\n\
                 password = {{ env = \"REDIS_PASSWORD\" }}\ntarget_session_attrs = \"{attrs}\"\n"
            )
        };
        let source = format!(
            "[[listener]]\nname = \"pg\"\nprotocol = \"postgres\"\nbind = \"127.0.0.1:6432\"\nupstream = \"main\"\n\
             [listener.postgres]\nauth = \"trust\"\n[[listener.postgres.database]]\nname = \"*\"\nread_upstream = \"reads\"\n\
             replica_lag_max = \"{lag}\"\n{}role_interval = \"{interval}\"\n{}",
            upstream("main", "primary"),
            upstream("reads", "standby"),
        );
        good(&source).warnings.iter().map(|one| one.path.clone()).collect()
    };
    let warned = ["listener[0].postgres.database[0].replica_lag_max"];
    assert_eq!(paths("1900ms", "1s"), warned);
    assert_eq!(paths("1400ms", "500ms"), warned, "the looks at the standbys are one a second");
    assert!(paths("2s", "1s").is_empty() && paths("1500ms", "500ms").is_empty());
}

#[test]
fn an_addition_to_a_list_without_names_is_a_change() {
    let file = |more: &str| {
        good(&format!(
            "[[listener]]\nname = \"web\"\nprotocol = \"http\"\nbind = \"127.0.0.1:0\"\nupstream = \"app\"\n\
             [[upstream]]\nname = \"app\"\nendpoints = [\"127.0.0.1:8081\"]\n\
             [[route]]\nname = \"cart\"\nupstream = \"app\"\nheader = [{{ name = \"a\", value = \"b\" }}{more}]\n"
        ))
    };
    let (one, two) = (file(""), file(", { name = \"c\", value = \"d\" }"));
    assert_eq!(diff(&one, &two).applied, ["route.cart.header[1] added"]);
    assert_eq!(diff(&two, &one).applied, ["route.cart.header[1] removed"]);
    let other = file(", { name = \"c\", value = \"e\" }");
    assert_eq!(diff(&two, &other).applied, ["route.cart.header[1].value"]);
    assert!(diff(&two, &two).is_empty());
}

#[test]
fn a_path_regex_may_have_as_many_bytes_as_the_documents_say() {
    let file = |bytes: usize| {
        let regex = format!("/{}", "a".repeat(bytes - 1));
        format!(
            "[[listener]]\nname = \"web\"\nprotocol = \"http\"\nbind = \"127.0.0.1:8080\"\nupstream = \"app\"\n\
             [[upstream]]\nname = \"app\"\nendpoints = [\"127.0.0.1:8081\"]\n\
             [[route]]\nname = \"r\"\npath_regex = \"{regex}\"\nupstream = \"app\"\n"
        )
    };
    assert!(good(&file(4_096)).warnings.is_empty());
    let refused = check(&file(4_097), "weir.toml", Path::new(""), &Memory::furnished()).expect_err("too long");
    assert!(refused.to_string().contains("1 to 4096"), "{refused}");
}
