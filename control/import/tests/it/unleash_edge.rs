//! Unleash Edge: its command line and its environment.

use weir_import::{Format, import};

use super::{NoFiles, check, notes, read};

/// The import of words, behind variables.
fn words(variables: &str, line: &str) -> weir_import::Imported {
    read(Format::UnleashEdge, &format!("{variables}\n{}", line.split(' ').collect::<Vec<_>>().join("\n")))
}

#[test]
fn an_edge_in_front_of_a_server() {
    let line = "unleash-edge -w 2 --base-path /flags edge --strict -u https://unleash.example.com/unleash \
                -t *:development.not-to-be-repeated --features-refresh-interval-seconds=30 --backup-folder /var/lib/edge \
                -H X-Tenant:not-to-be-repeated --disable-tokens-endpoint --upstream-certificate-file /etc/tls/ca.crt";
    let imported = words("", line);
    let toml = &imported.toml;
    for wanted in [
        "workers = 2\n",
        "protocol = \"flags\"\nbind = \"0.0.0.0:3063\"\nupstream = \"unleash\"\n",
        "tokens = [\"env:UNLEASH_TOKENS\"]\n",
        "poll_interval = \"30s\"\n",
        "backup_dir = \"/var/lib/edge\"\n",
        "base_path = \"/flags\"\n",
        "name = \"X-Tenant\"\nvalue = \"env:UNLEASH_HEADER_X_TENANT\"\n",
        "endpoints = [\"unleash.example.com:443\"]\n",
        "ca_file = \"/etc/tls/ca.crt\"\n",
        "base_path = \"/unleash\"\n",
    ] {
        assert!(toml.contains(wanted), "{wanted}:\n{toml}");
    }
    assert!(!toml.contains("\"tokens\"") && toml.contains("\"metricsbatch\""), "the tokens endpoint is off: {toml}");
    let notes = notes(&imported);
    assert!(notes.contains("set the variable UNLEASH_TOKENS"), "{notes}");
    assert!(!(toml.clone() + &notes).contains("not-to-be-repeated"), "no secret is in an output");
    check(toml);
}

#[test]
fn variables_stand_in_for_words_and_words_take_precedence() {
    let variables = "UPSTREAM_URL=http://127.0.0.1:4242\nexport TOKENS='*:development.not-to-be-repeated'\nPORT=4000\nUNRELATED=1\n\
                     TRUST_PROXY=true\nDENY_LIST=10.0.0.0/8,192.0.2.7\nCORS_ORIGIN=https://a.example";
    let imported = words(variables, "--port 5000 edge");
    let toml = &imported.toml;
    for wanted in [
        "bind = \"0.0.0.0:5000\"",
        "tokens = [\"env:TOKENS\"]",
        "trusted_hops = 1",
        "deny = [\"10.0.0.0/8\", \"192.0.2.7/32\"]",
        "allow_origins = [\"https://a.example\"]",
        "endpoints = [\"127.0.0.1:4242\"]",
    ] {
        assert!(toml.contains(wanted), "{wanted}:\n{toml}");
    }
    assert!(notes(&imported).contains("a client can forge"), "{}", notes(&imported));
    assert!(!toml.contains("not-to-be-repeated"));
    check(toml);
}

#[test]
fn an_offline_edge_has_a_file_and_no_upstream() {
    let line = "offline --bootstrap-file features.json --client-tokens *:development.a --reload-interval 10 --tokens b";
    let imported = words("", line);
    let toml = &imported.toml;
    assert!(
        toml.contains("bootstrap_file = \"features.json\"") && toml.contains("reload_interval = \"10s\""),
        "{toml}"
    );
    assert!(toml.contains("client_tokens = [\"env:UNLEASH_CLIENT_TOKENS\", \"env:UNLEASH_TOKENS\"]"), "{toml}");
    assert!(!toml.contains("upstream") && !toml.contains("nowhere"), "{toml}");
    check(toml);
}

#[test]
fn backups_stay_in_the_store_of_unleash_edge() {
    let imported = |options: &str| words("", &format!("edge -u http://127.0.0.1:4242 -t *:development.s {options}"));
    let redis = imported("--redis-url redis://e%64ge:not-to-be-repeated@redis.internal:6380/3 --redis-secure");
    for wanted in [
        "[listener.flags.backup_redis]\n",
        "endpoints = [\"redis.internal:6380\"]\n",
        "user = \"edge\"\n",
        "password = \"env:UNLEASH_REDIS_PASSWORD\"\n",
        "database = 3\n",
        "[listener.flags.backup_redis.tls]\n",
    ] {
        assert!(redis.toml.contains(wanted), "{wanted}:\n{}", redis.toml);
    }
    assert!(!(redis.toml.clone() + &notes(&redis)).contains("not-to-be-repeated"), "no secret is in an output");
    check(&redis.toml);
    let by_host = imported("--redis-host redis.internal --redis-scheme rediss --redis-mode cluster");
    assert!(by_host.toml.contains("endpoints = [\"redis.internal:6379\"]"), "{}", by_host.toml);
    assert!(notes(&by_host).contains("not to a Redis Cluster"), "{}", notes(&by_host));
    let bucket = words(
        "AWS_REGION=eu-central-1\nS3_BUCKET_NAME=flags",
        "edge -u http://127.0.0.1:4242 -t *:development.s --s3-force-path-style",
    );
    for wanted in [
        "[listener.flags.backup_s3]\n",
        "bucket = \"flags\"\n",
        "region = \"eu-central-1\"\n",
        "path_style = true\n",
        "endpoints = [\"s3.eu-central-1.amazonaws.com:443\"]\n",
    ] {
        assert!(bucket.toml.contains(wanted), "{wanted}:\n{}", bucket.toml);
    }
    assert!(notes(&bucket).contains("AWS_ACCESS_KEY_ID"), "{}", notes(&bucket));
}

#[test]
fn an_option_with_several_secrets_has_a_note_for_each() {
    let line = "edge -u http://127.0.0.1:4242 -t *:development.not-to-be-repeated --tokens *:production.not-to-be-repeated,x:y.z -p a@b";
    let imported = words("", line);
    assert!(imported.toml.contains("tokens = [\"env:UNLEASH_TOKENS\"]"), "{}", imported.toml);
    let notes = notes(&imported);
    let all: Vec<&str> = notes.lines().filter(|note| note.contains("`UNLEASH_TOKENS`")).collect();
    assert_eq!(all.len(), 2, "{notes}");
    assert!(all.iter().all(|note| note.contains("of all its 2 places, separated by commas")), "{notes}");
    assert!(all[0].contains(":5:") && all[1].contains(":7:"), "{notes}");
    assert!(notes.contains("set the variable UNLEASH_PRETRUSTED_TOKENS to it"), "{notes}");
    assert!(!(imported.toml.clone() + &notes).contains("not-to-be-repeated"), "no secret is in an output");
    check(&imported.toml);
}

#[test]
fn options_without_a_counterpart_become_notes() {
    let line = "edge --upstream-url http://127.0.0.1:4242 --tokens *:a.b \
                --prometheus-remote-write-url http://127.0.0.1 --instance-id one --pkcs12-identity-file a.p12";
    let notes = notes(&words("", line));
    for option in ["--prometheus-remote-write-url", "--instance-id", "--pkcs12-identity-file"] {
        assert!(notes.contains(option), "{option}: {notes}");
    }
}

#[test]
fn no_option_is_dropped_without_a_note() {
    let variables = "SENTRY_DSN=https://not-to-be-repeated@sentry.example\nOTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317\n\
                     EDGE_HOSTING=hosted\nHOSTNAME=box\nUPSTREAM_URL=http://127.0.0.1:4242";
    let line = "-a billing offline --bootstrap-file features.json --client-tokens *:development.a --trust-proxy \
                --proxy-trusted-servers 10.0.0.0/8";
    let imported = words(variables, line);
    let notes = notes(&imported);
    for option in [
        "--sentry-dsn",
        "--otel-exporter-otlp-endpoint",
        "--hosting-type",
        "`--upstream-url`: it has no effect in this mode",
        "`--app-name`: it has no effect in this mode",
        "--proxy-trusted-servers",
    ] {
        assert!(notes.contains(option), "{option}: {notes}");
    }
    assert!(!notes.contains("hostname"), "shells set it for every program: {notes}");
    assert!(!(imported.toml.clone() + &notes).contains("not-to-be-repeated"), "no secret is in an output");
    check(&imported.toml);
}

#[test]
fn every_option_of_version_20_is_known() {
    let options = "--consumption --hostname box --ec2-instance-id i-1 --client-id one --unleash-client-secret not-to-be-repeated \
                   --desired-environments development --desired-projects * \
                   --sentry-tracing-rate 0.5 --sentry-debug --sentry-enable-logs --otel-exporter-otlp-protocol http";
    let imported = words("", &format!("edge --upstream-url http://127.0.0.1:4242 --tokens *:a.b {options}"));
    let notes = notes(&imported);
    for option in options.split(' ').filter(|word| word.starts_with("--")) {
        assert!(notes.contains(option), "{option}: {notes}");
    }
    assert!(!(imported.toml.clone() + &notes).contains("not-to-be-repeated"), "no secret is in an output");
    check(&imported.toml);
}

#[test]
fn a_command_line_that_unleash_edge_would_not_take_is_refused() {
    for (line, message) in [
        ("", "no mode"),
        ("edge", "needs --upstream-url"),
        ("offline", "needs --bootstrap-file"),
        ("edge --upstream-url ftp://a", "http or https"),
        ("edge --upstream-url", "has no value"),
        ("edge --no-such-option", "is no option"),
        ("edge --upstream-url http://a --metrics-interval-seconds soon", "is not a number"),
        ("health", "is a probe"),
        ("edge --upstream-url http://a surplus", "without an option"),
    ] {
        let text = line.split(' ').collect::<Vec<_>>().join("\n");
        let mistake = import(Format::UnleashEdge, "command line", &text, &NoFiles).expect_err(line);
        assert!(mistake.to_string().contains(message), "{line}: {mistake}");
    }
}
