//! Scenario files, right and wrong.

use super::*;
use crate::protocols;

const WHOLE: &str = r#"
name = "redis-mixed"
protocol = "redis"
mode = "open"
arrival = "gamma"
burstiness = 4
seed = 7
shards = 2
connections = 8
pipeline = 16
slo_p99 = "100ms"
integrity = true

[keys]
count = 1_000
prefix = "k:"
distribution = "zipf"
exponent = 0.99
preload = false

[[payload]]
size = "64B"
weight = 80
[[payload]]
size = 1024
weight = 20

[[command]]
name = "GET"
weight = 7
[[command]]
name = "MGET"
keys = 5
[[command]]
words = ["HSET", "{key}", "f", "{value}"]

[[phase]]
name = "low"
rate = 1000.5
warmup = "2s"
duration = "10s"
[[phase]]
rate = 2_000
duration = "1m"
"#;

const SMALL: &str = r#"
name = "small"
protocol = "redis"
command = [{ name = "GET" }]
phase = [{ rate = 1, duration = "1s" }]
"#;

fn mistakes(source: &str) -> Vec<String> {
    let mistakes = parse("s.toml", source).expect_err("a wrong scenario");
    mistakes.list().iter().map(|one| format!("{}:{} {}", one.line, one.column, one.what)).collect()
}

/// `SMALL` with more lines in front, which then begin at line 1.
fn with(lines: &str) -> String {
    format!("{lines}{SMALL}")
}

#[test]
fn a_whole_scenario_is_read_as_it_stands() {
    let scenario = parse("s.toml", WHOLE).expect("a right scenario");
    let seconds = Duration::from_secs;
    let expected = Scenario {
        name: "redis-mixed".into(),
        protocol: protocols::named("redis").expect("a row"),
        mode: Mode::Open(Arrival::Gamma { burstiness: 4.0 }),
        seed: 7,
        shards: 2,
        connections: 8,
        pipeline: 16,
        slo_p99: Some(Duration::from_millis(100)),
        thresholds: Vec::new(),
        late_limit: seconds(2),
        integrity: true,
        churn: false,
        keys: KeySpace {
            count: 1_000,
            prefix: "k:".into(),
            distribution: Distribution::Zipf { exponent: 0.99 },
            preload: false,
        },
        payload: Payload(vec![PayloadSize { bytes: 64, weight: 80 }, PayloadSize { bytes: 1_024, weight: 20 }]),
        commands: vec![
            Command { kind: CommandKind::Get, weight: 7 },
            Command { kind: CommandKind::Mget { keys: 5 }, weight: 1 },
            Command {
                kind: CommandKind::Raw { words: ["HSET", "{key}", "f", "{value}"].map(str::to_owned).to_vec() },
                weight: 1,
            },
        ],
        request: Request::default(),
        postgres: Postgres::default(),
        mongodb: Mongodb::default(),
        ai: Ai::default(),
        flags: Flags::default(),
        channels: 0,
        phases: vec![
            Phase {
                name: "low".into(),
                rate: Rate::per_second(1_000.5),
                warmup: seconds(2),
                duration: seconds(10),
                ..Phase::default()
            },
            Phase {
                name: "phase-2".into(),
                rate: Rate::per_second(2_000.0),
                warmup: seconds(5),
                duration: seconds(60),
                ..Phase::default()
            },
        ],
    };
    assert_eq!(scenario, expected);
    assert_eq!(scenario.payload.to_string(), "64B x 80, 1KiB x 20");
}

#[test]
fn the_example_of_the_documentation_is_right() {
    let source = include_str!("../scenario.rs");
    let (_, example) = source.split_once("```toml").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let text: String = example.lines().map(|line| line.trim_start_matches("//!").to_owned() + "\n").collect();
    let scenario = parse("s.toml", &text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    assert_eq!((scenario.commands.len(), scenario.phases.len()), (2, 1));
}

#[test]
fn omitted_keys_have_their_default() {
    let scenario = parse("s.toml", SMALL).expect("a right scenario");
    assert_eq!(scenario.mode, Mode::Open(Arrival::Poisson));
    assert_eq!((scenario.connections, scenario.pipeline, scenario.shards, scenario.seed), (50, 1, 1, 1));
    assert_eq!((scenario.late_limit, scenario.slo_p99), (Duration::from_secs(1), None));
    assert_eq!((scenario.payload.to_string().as_str(), scenario.keys.count), ("64B", 100_000));
    assert!(scenario.integrity && scenario.keys.preload);
    assert_eq!(Scenario::late_limit_for(Some(Duration::from_secs(30))), LATENCY_MAX);
}

#[test]
fn thresholds_gate_and_a_bound_on_the_p99_is_the_latency_target() {
    let gates = |source: &str| -> Vec<String> {
        let scenario = parse("s.toml", source).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        scenario.gates().iter().map(Threshold::to_string).collect()
    };
    let both = with("threshold = [\"p99<5ms\", \"errors<0.1%\"]\n");
    assert_eq!(gates(&both), ["p99<5ms", "errors<0.1%"]);
    let scenario = parse("s.toml", &both).expect("right");
    assert_eq!(scenario.slo_p99, Some(Duration::from_millis(5)));
    let explicit = with("slo_p99 = \"2ms\"\nthreshold = [\"rate>1k\"]\n");
    assert_eq!(gates(&explicit), ["rate>1k", "p99<=2ms"]);
    let looser = with("slo_p99 = \"2ms\"\nthreshold = [\"p99<5ms\"]\n");
    assert_eq!(gates(&looser), ["p99<5ms", "p99<=2ms"], "one does not replace the other");
    let same = with("slo_p99 = \"5ms\"\nthreshold = [\"p99<5ms\"]\n");
    assert_eq!(gates(&same), ["p99<5ms"]);
    assert_eq!(gates(SMALL), Vec::<String>::new());
    let found = mistakes(&with("threshold = [\"p99<5\", \"p98<1ms\", 3]\n"));
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(found[0].contains("`threshold[0]` is no threshold: threshold \"p99<5\""), "{found:#?}");
}

#[test]
fn a_threshold_of_the_command_line_means_the_same_as_one_of_the_file() {
    let more: Vec<Threshold> = ["p99<1s", "p99<500ms", "max<60s"].map(|one| one.parse().expect("right")).to_vec();
    let given = parse_with("s.toml", SMALL, &more).expect("right");
    let written = parse("s.toml", &with("threshold = [\"p99<1s\", \"p99<500ms\", \"max<60s\"]\n")).expect("right");
    assert_eq!(given, written);
    // The lowest bound is the target, and the late limit follows from it.
    assert_eq!((given.slo_p99, given.late_limit), (Some(Duration::from_millis(500)), Duration::from_secs(10)));
    let explicit = parse_with("s.toml", &with("slo_p99 = \"2ms\"\n"), &more).expect("right");
    assert_eq!((explicit.slo_p99, explicit.late_limit), (Some(Duration::from_millis(2)), Duration::from_secs(1)));
}

#[test]
fn a_closed_loop_has_neither_rate_nor_arrival() {
    let closed = with("mode = \"closed\"\n").replace("rate = 1, ", "");
    let scenario = parse("s.toml", &closed).expect("a right scenario");
    assert_eq!((scenario.mode, scenario.phases[0].rate), (Mode::Closed, None));
    let found = mistakes(&with("mode = \"closed\"\narrival = \"poisson\"\nburst = 1\n"));
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(found[0].starts_with("2:11 `arrival` has no meaning"), "{found:#?}");
    assert!(found[2].contains("`phase[0].rate` has no meaning"), "{found:#?}");
}

#[test]
fn all_mistakes_are_reported_at_once_with_their_places() {
    let source = r#"name = "not a name"
protocol = "redis"
colour = "red"
connections = 0
shards = 300
pipeline = "two"
late_limit = 5
slo_p99 = "1m30s"
[keys]
distribution = "zipf"
count = -1
preload = "yes"
[payload]
size = "64KB"
wait = 1
[[command]]
name = "DEL"
[[command]]
name = "GET"
keys = 3
weight = 0
[[command]]
words = ["subscribe", "x"]
[[command]]
name = "MGET"
[[phase]]
rate = 0
[[phase]]
rate = 1e-3
duration = "10s"
"wärm" = 1
"#;
    let found = mistakes(source);
    let expected = [
        "1:8 `name` is \"not a name\"",
        "3:1 unknown key `colour` in the file",
        "4:15 `connections` is 0",
        "5:10 `shards` is 300",
        "6:12 `pipeline` is the text \"two\"",
        "7:14 `late_limit` is no duration",
        "8:11 `slo_p99` is no duration",
        "9:1 `keys.exponent` is missing",
        "11:9 `keys.count` is -1",
        "12:11 `keys.preload` is neither true nor false",
        "14:8 `payload.size` is no size",
        "15:1 unknown key `wait` in `payload`",
        "17:8 `command[0].name` is \"DEL\"",
        "20:8 `command[1].keys` is only for MGET",
        "21:10 `command[1].weight` is 0",
        "23:10 `command[2].words[0]` is \"SUBSCRIBE\", which a load cannot be made of",
        "24:1 `command[3].keys` is missing",
        "26:1 `phase[0].duration` is missing",
        "27:8 `phase[0].rate` is 0",
        "29:8 `phase[1].rate` of 0.001 per second gives 0.01 requests in 10s, but one cycle needs 1",
        "31:1 unknown key `wärm` in `phase[1]`",
    ];
    assert_eq!(found, expected);
    let mistakes = parse("s.toml", source).expect_err("wrong");
    assert!(mistakes.list().iter().all(|one| !one.remedy.is_empty()));
    let text = mistakes.to_string();
    assert!(text.starts_with("error: `name` is \"not a name\"\n --> s.toml:1:8\n  = help: use 1 to 64"), "{text}");
    assert!(text.ends_with("21 errors; nothing was sent"), "{text}");
}

#[test]
fn impossible_scenarios_are_refused() {
    for (lines, mistake) in [
        ("shards = 51\n", "51 `shards` cannot share 50 `connections`"),
        ("slo_p99 = \"2s\"\nlate_limit = \"1s\"\n", "`late_limit` is 1s, below the objective of 2s"),
        ("late_limit = \"2m\"\n", "`late_limit` is 120s"),
        ("arrival = \"gamma\"\n", "`burstiness` is missing"),
        ("arrival = \"gamma\"\nburstiness = 0.5\n", "`burstiness` is 0.5"),
        ("arrival = \"poisson\"\nburst = 5\n", "`burst` is only for arrival = \"on_off\""),
        ("arrival = \"on_off\"\nburst = 5\n", "gives 1 requests in 1s, but one cycle needs 5"),
        ("keys.exponent = 1.0\n", "`keys.exponent` is only for distribution = \"zipf\""),
        ("payload = []\n", "`payload` is empty"),
        ("payload = \"64B\"\n", "`payload` is no table"),
        ("payload.size = \"2MiB\"\n", "`payload.size` is 2MiB"),
        ("mode = \"half\"\n", "`mode` is \"half\""),
        ("seed = 0x8000000000000000\n", "`seed` is"),
        ("seed = nan\n", "`seed` is nan"),
    ] {
        let found = mistakes(&with(lines));
        assert!(found.len() == 1 && found[0].contains(mistake), "{lines}: {found:#?}");
    }
    for (from, to, mistake) in [
        ("[{ name = \"GET\" }]", "[]", "`command` is empty"),
        ("name = \"GET\"", "words = [\"PING\"]", "no command of the mix can be checked"),
        ("name = \"GET\"", "words = []", "has 0 words"),
        ("name = \"GET\"", "words = [\"{key}\"]", "`command[0].words[0]` is \"{key}\""),
        ("name = \"GET\"", "name = \"GET\", words = [\"GET\"]", "`command[0].words` stands beside `name`"),
        ("{ name = \"GET\" }", "\"GET\"", "`command[0]` is no table"),
        ("rate = 1, ", "", "`phase[0].rate` is missing"),
        ("\"1s\"", "\"1ms\"", "`phase[0].duration` is 1ms"),
        ("rate = 1,", "rate = nan,", "`phase[0].rate` is nan"),
        ("\"redis\"", "\"http\"", "`protocol` is \"http\""),
    ] {
        let source = SMALL.replacen(from, to, 1);
        assert_ne!(source, SMALL);
        let found = mistakes(&source);
        assert!(found.len() == 1 && found[0].contains(mistake), "{to}: {found:#?}");
    }
    let large = SMALL.replace("name = \"GET\"", "name = \"MGET\", keys = 1024") + "[payload]\nsize = \"1MiB\"\n";
    assert!(mistakes(&large)[0].contains("could have 1073741824 bytes"));
}

const HTTP: &str = r#"
name = "web"
protocol = "http2"
streams = 32
payload.size = "1KiB"
[request]
path = "/a?b=c"
host = "example.org:8080"
[[phase]]
rate = 1
duration = "1s"
"#;

#[test]
fn http_and_websocket_have_requests_in_place_of_keys_and_commands() {
    let scenario = parse("s.toml", HTTP).expect("a right scenario");
    assert_eq!((scenario.protocol.word(), scenario.pipeline, scenario.commands.len()), ("http2", 32, 0));
    assert_eq!(
        scenario.request,
        Request { has_any_length: false, path: Some("/a?b=c".into()), host: "example.org:8080".into() }
    );
    assert!(!scenario.keys.preload, "there is nothing to write");
    let load = crate::record::Load::of(&scenario, &scenario.phases[0]);
    assert_eq!((load.pipeline, load.streams), (1, Some(32)));
    for (from, to, mistake) in [
        ("streams", "pipeline", "`pipeline` is not for HTTP/2"),
        ("http2", "http1", "`streams` is only for protocol = \"http2\""),
        ("streams = 32", "streams = 0", "`streams` is 0"),
        ("[request]", "[keys]\ncount = 1\n[request]", "`keys` is only for protocol = \"redis\""),
        ("streams = 32", "command = [{ name = \"GET\" }]", "`command` is only for protocol = \"redis\""),
        ("/a?b=c", "a b", "`request.path` is \"a b\""),
        ("/a?b=c", "/a b", "`request.path` is \"/a b\""),
        ("example.org:8080", "a/b", "`request.host` is \"a/b\""),
        ("host =", "hosts =", "unknown key `hosts` in `request`"),
        ("payload.size = \"1KiB\"", "payload = [{ size = 1 }, { size = 2 }]", "`payload` has several sizes"),
    ] {
        let source = HTTP.replacen(from, to, 1);
        assert_ne!(source, HTTP, "{from}");
        let found = mistakes(&source);
        assert!(found.len() == 1 && found[0].contains(mistake), "{to}: {found:#?}");
    }
    let redis = with("request.path = \"/\"\n");
    assert!(mistakes(&redis)[0].contains("`request` is only for HTTP and WebSocket"));
    for protocol in protocols::ALL {
        assert_eq!(protocols::named(&protocol.to_string()), Some(*protocol));
    }
}

#[test]
fn floods_and_broken_syntax_are_survived() {
    assert!(mistakes("name = ").len() == 1 && mistakes("= 1\n[[x]\n").len() > 1);
    assert_eq!(mistakes(&" ".repeat(FILE_BYTES_MAX + 1)).len(), 1);
    let flood: String = (0..500).map(|at| format!("unknown{at} = 1\n")).collect();
    let found = parse("s.toml", &with(&flood)).expect_err("wrong");
    assert_eq!(found.list().len(), MISTAKES_MAX);
    assert!(found.to_string().ends_with("500 errors; nothing was sent"));
    assert!(mistakes("").len() >= 4, "everything that must be there is missing");
}

#[test]
fn a_fingerprint_sees_every_key_and_no_comment() {
    let of = |source: &str| parse("s.toml", source).expect("right").fingerprint();
    let whole = of(WHOLE);
    assert_eq!(whole.len(), 16);
    assert_eq!(of(&format!("# a comment\n{WHOLE}\n")), whole);
    for (key, other) in
        [("seed = 7", "seed = 8"), ("count = 1_000", "count = 1_001"), ("weight = 7", "weight = 6"), ("100ms", "101ms")]
    {
        assert_ne!(of(&WHOLE.replacen(key, other, 1)), whole, "{other}");
    }
}

#[test]
fn a_phase_may_have_connections_of_its_own_where_it_runs_alone() {
    let text = "name = \"s\"\nprotocol = \"http2\"\nmode = \"closed\"\nconnections = 4\nstreams = 2\nshards = 2\n\
                phase = [{ duration = \"1s\", connections = 8, streams = 16 }, { duration = \"1s\" }]\n";
    let scenario = parse("s.toml", text).expect("right");
    let shapes: Vec<(u32, u32)> = scenario
        .phases
        .iter()
        .map(|phase| scenario.alone(phase))
        .map(|alone| (alone.connections, alone.pipeline))
        .collect();
    assert_eq!(shapes, [(8, 16), (4, 2)]);
    assert!(!scenario.alone(&scenario.phases[0]).phases[0].has_shape());
    let refusal = parse("s.toml", &text.replace("connections = 8", "connections = 1")).expect_err("2 shards");
    assert!(refusal.to_string().contains("`phase[0].connections` is 1"), "{refusal}");
    let refusal = parse("s.toml", &text.replace("streams = 16", "pipeline = 16")).expect_err("of another protocol");
    assert!(refusal.to_string().contains("unknown key `pipeline`"), "{refusal}");
}
