//! `weir lab compare --load`: wrk, h2load and redis-benchmark in the place of the lab's own generator, and the floor as an arm.

use std::fs;
use std::path::Path;

use serde_json::Value;
use weir_tests::cluster::Cluster;
use weir_tests::server::{Kind, Server};

use super::{Bench, number, word};

/// A closed loop that load programs can send.
fn scenario(protocol: &str, more: &str) -> String {
    format!(
        "name = \"{protocol}-closed\"\nprotocol = \"{protocol}\"\nmode = \"closed\"\nintegrity = false\nconnections = 8\n{more}\n\
         [[phase]]\nname = \"closed\"\nwarmup = \"0s\"\nduration = \"1s\"\n"
    )
}

/// GET of some keys.
const GET: &str = "keys = { count = 100 }\ncommand = [{ name = \"GET\" }]";
/// One short block. On a busy machine the connects of a program may take most of a second.
const SHORT: [&str; 6] = ["--blocks", "1", "--seconds", "2", "--json", "found.json"];

/// A comparison that comes to its end: its page and its result. Whether the machine was fit decides on no test.
fn compared(bench: &Bench, words: &[&str]) -> (String, Value) {
    let output = bench.compare(&[words, &SHORT].concat());
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(bench.path("found.json")).expect("a result");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(result.pointer("/failed").and_then(Value::as_array).map(Vec::len), Some(0), "{told}");
    assert_eq!(result.pointer("/missing").and_then(Value::as_array).map(Vec::len), Some(0), "{told}");
    (told, result)
}

/// Each arm has figures of both runs of its block.
fn assert_figures(told: &str, result: &Value, arms: &[&str]) {
    for arm in arms {
        for run in 0..2 {
            let at = |path: &str| format!("/rows/0/blocks/0/runs/{arm}/{run}{path}");
            assert!(number(result, &at("/trial/completed")) > 100.0, "{arm}\n{told}");
            assert!(number(result, &at("/trial/completed_rate")) > 100.0, "{arm}\n{told}");
            assert!(number(result, &at("/box_us")) > 1.0, "{arm}\n{told}");
            let cost = result.pointer(&at("/trial/parties/gateway_cpu_us_per_req")).and_then(Value::as_f64);
            assert_eq!(cost.is_some_and(|micros| micros > 0.1), *arm != "direct", "{arm}: {cost:?}\n{told}");
        }
    }
    assert!(told.contains("with their connects"), "{told}");
}

#[test]
fn wrk_loads_gateways_of_http_and_the_floor() {
    let bench = Bench::new(&scenario("http1", "payload.size = \"1KiB\""));
    let (told, result) = compared(&bench, &["--load", "wrk", "--peers", "nginx,floor,direct"]);
    assert_figures(&told, &result, &["weir", "nginx", "floor-http", "direct"]);
    assert_eq!(word(&result, "/load/name"), "wrk");
    assert!(word(&result, "/load/version").starts_with("wrk "), "{told}");
    assert!(word(&result, "/rows/0/load").contains("-c 8 -d 2s"), "{told}");
    assert!(word(&result, "/rows/0/load").contains(":PORT/1024"), "{told}");
    assert!(word(&result, "/arms/2/command").contains("lab relay --pairs"), "{told}");
    assert!(number(&result, "/rows/0/blocks/0/runs/weir/0/trial/latency/sojourn_p99_us") > 0.0, "{told}");
    // It stands in a report like any other.
    let reported = bench.weir(&[], &["lab", "report", "."]);
    assert!(reported.status.success(), "{}", String::from_utf8_lossy(&reported.stderr));
}

#[test]
fn nginx_may_stand_behind() {
    let bench = Bench::new(&scenario("http1", "payload.size = \"1KiB\""));
    let (told, result) = compared(&bench, &["--load", "wrk", "--behind", "nginx", "--peers", "direct"]);
    assert_figures(&told, &result, &["weir", "direct"]);
    assert_eq!(word(&result, "/behind"), "nginx with a file");
    assert!(word(&result, "/rows/0/load").ends_with("/payload"), "{told}");
}

#[test]
fn redis_benchmark_finds_every_key_through_each_variant_of_this_gateway() {
    let server = Server::start(Kind::Redis);
    let bench = Bench::new(&scenario("redis", GET));
    let behind = server.address.tcp().to_string();
    let peers = ["--peers", "twemproxy,floor,weir-polling,weir-cache,direct", "--behind", &behind];
    let (told, result) = compared(&bench, &[&["--load", "redis-benchmark"][..], &peers].concat());
    let arms = ["weir", "twemproxy", "floor", "weir-polling", "weir-cache", "direct"];
    assert_figures(&told, &result, &arms);
    assert!(server.calls("get") > 1_000, "the load went to the server");
    assert_eq!(server.info("stats", "keyspace_misses"), "0", "the keys are those that it asks for");
    assert!(word(&result, "/rows/0/load").contains("-t get -r 100 -d 64 -c 8 -P 1"), "{told}");
    assert!(told.contains("driver = \"polling\"") && told.contains("cache_bytes_max = \"64MiB\""), "{told}");
}

#[test]
fn h2load_loads_gateways_of_http2_and_each_phase_has_its_own_connections() {
    let phases =
        scenario("http2", "streams = 4").replace("name = \"closed\"", "name = \"wide\"\nconnections = 2\nstreams = 8");
    let bench = Bench::new(&phases);
    let (told, result) = compared(&bench, &["--load", "h2load", "--peers", "haproxy,direct"]);
    assert_figures(&told, &result, &["weir", "haproxy-http2", "direct"]);
    assert!(word(&result, "/rows/0/load").contains("-c 2 -m 8 -n "), "{told}");
    // All phases of one load share their connections.
    let refused = bench.weir(&[], &["lab", "load", "scenario.toml", "--target", "127.0.0.1:9"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("share theirs"), "{told}");
}

#[test]
fn clients_may_speak_tls_and_gateways_may_have_routes_and_a_log() {
    let http = Bench::new(&scenario("http1", ""));
    let (told, result) = compared(&http, &["--load", "wrk", "--tls", "--peers", "nginx"]);
    assert_figures(&told, &result, &["weir", "nginx"]);
    assert!(word(&result, "/rows/0/load").contains("https://") && told.contains("ssl_certificate"), "{told}");
    assert!(told.contains("clients speak TLS"), "{told}");
    let http2 = Bench::new(&scenario("http2", "streams = 4"));
    let (told, result) = compared(&http2, &["--load", "h2load", "--tls", "--peers", "haproxy"]);
    assert_figures(&told, &result, &["weir", "haproxy-http2"]);
    let redis = Bench::new(&scenario("redis", GET));
    let (told, result) = compared(&redis, &["--load", "redis-benchmark", "--tls", "--peers", "haproxy"]);
    assert_figures(&told, &result, &["weir", "haproxy"]);
    let (told, result) = compared(&http, &["--load", "wrk", "--routes", "--peers", "nginx"]);
    assert_figures(&told, &result, &["weir", "nginx"]);
    for words in ["location /service-50 {", "path_prefix = \"/service-50\"", "path_prefix = \"/64\"", "100 routes"] {
        assert!(told.contains(words), "{words} is not in\n{told}");
    }
}

/// A peer's file that is delivered as an example.
fn example(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/lab/peers");
    folder.join(name).canonicalize().expect("the example").to_string_lossy().into_owned()
}

#[test]
fn gateways_in_front_of_several_servers_are_compared() {
    let servers = [Server::start(Kind::Redis), Server::start(Kind::Redis)];
    let behind = servers.each_ref().map(|server| server.address.tcp().to_string()).join(",");
    let peers = ["weir-shards.toml", "envoy-shards.toml", "twemproxy-shards.toml"].map(example).join(",");
    let bench = Bench::new(&scenario("redis", GET));
    let words = ["--load", "redis-benchmark", "--peers", &peers, "--behind", &behind];
    let (told, result) = compared(&bench, &words);
    assert_figures(&told, &result, &["weir", "envoy-shards", "twemproxy-shards"]);
    for server in &servers {
        assert!(server.calls("get") > 100, "each has its part");
        assert_eq!(server.info("stats", "keyspace_misses"), "0");
    }
    let cluster = Cluster::start(Kind::Redis, 3, 0);
    let behind = cluster.addresses().map(|address| address.tcp().to_string()).collect::<Vec<_>>().join(",");
    let peers = ["weir-cluster.toml", "envoy-cluster.toml"].map(example).join(",");
    let words = ["--load", "redis-benchmark", "--peers", &peers, "--behind", &behind];
    let (told, result) = compared(&bench, &words);
    assert_figures(&told, &result, &["weir", "envoy-cluster"]);
    assert!(cluster.nodes.iter().all(|node| node.calls("get") > 100), "each has its part");
}

#[test]
fn a_load_program_that_cannot_send_or_gets_errors_fails_loudly() {
    let closed = scenario("http1", "");
    let bench = Bench::new(&closed);
    let refusal = |wrapper: &[&str], text: &str, words: &[&str]| {
        fs::write(bench.path("scenario.toml"), text).expect("written");
        let fixed = ["lab", "compare", "scenario.toml", "--peers", "direct", "--quick"];
        let output = bench.weir(wrapper, &[&fixed[..], words].concat());
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let checked = closed.replace("integrity = false", "integrity = true");
    assert!(refusal(&[], &checked, &["--load", "wrk"]).contains("`integrity` is true"));
    assert!(refusal(&[], &closed, &["--load", "redis-benchmark"]).contains("`protocol` is \"http1\""));
    assert!(refusal(&[], &closed, &["--load", "ab"]).contains("no load program `ab`; there are wrk"));
    assert!(refusal(&[], &closed, &["--tls"]).contains("--load <NAME|FILE.toml>"));
    assert!(refusal(&[], &closed, &["--load", "wrk", "--tls"]).contains("there is no direct arm"));
    let absent = refusal(&["env", "PATH=/nowhere", "VIRTUAL_ENV="], &closed, &["--load", "wrk"]);
    assert!(absent.contains("wrk is not installed: apt install wrk"), "{absent}");
    // The origin knows no such path: the lab sees it before wrk does.
    let lost = scenario("http1", "request.path = \"/none\"");
    let told = refusal(&[], &lost, &["--load", "wrk"]);
    assert!(told.contains("the lab's own check of") && told.contains("status: "), "{told}");
}

#[test]
fn a_profile_tells_where_the_time_goes_or_why_it_cannot() {
    let bench = Bench::new(&scenario("redis", GET));
    let output = bench.weir(&[], &["lab", "profile", "scenario.toml", "--load", "redis-benchmark"]);
    let [told, why] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    // Whether this user may sample is the machine's to say.
    if output.status.success() {
        for words in
            ["# Where the time of weir goes", "us gateway CPU per request", "| kernel: network", "| user: weir_"]
        {
            assert!(told.contains(words), "{words} is not in\n{told}");
        }
    } else {
        assert!(why.contains("perf"), "{why}");
    }
}
