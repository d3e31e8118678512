//! The files in `examples/` check clean on a real file system with real certificates, and the full one is full.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::knee::knee;
use serde_json::Value as Json;
use tempfile::TempDir;
use weir_config::{ListenerProtocol, ProtocolName, Snapshot, UpstreamProtocol, load, redacted, schema};
use weir_upstream::placement::{Distribution, KeyHash, Placement, PlacementSettings};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// A copy of an example, with the certificates and the secret that it names beside it.
fn furnished(name: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("temporary directory");
    let certs = directory.path().join("certs");
    fs::create_dir(&certs).expect("certs");
    for party in ["server", "client", "ca"] {
        let names = ["redis.internal", "cache.example"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        fs::write(certs.join(format!("{party}.crt")), made.cert.pem()).expect("certificate");
        private(&certs.join(format!("{party}.key")), &made.signing_key.serialize_pem());
    }
    private(&certs.join("redis-password"), "from a file\n");
    private(&directory.path().join("users.acl"), "user writer on >canary-user ~report:* +@write\n");
    private(&directory.path().join("userlist.txt"), "\"listed\" \"canary-listed\"\n");
    // Made with the crypt of glibc; the key is that of RFC 8037 appendix A.2.
    private(
        &directory.path().join("users.htpasswd"),
        "alice:$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n",
    );
    let jwks = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    fs::write(directory.path().join("jwks.json"), jwks).expect("keys");
    let results = directory.path().join("results");
    fs::create_dir(&results).expect("results");
    // Measured as the example runs: with TLS.
    let knee = knee(|result| result["shape"]["tls"] = "on".into());
    fs::write(results.join("redis-real.json"), knee).expect("a result of the lab");
    let file = directory.path().join(name);
    fs::copy(examples().join(name), &file).expect("the example");
    (directory, file)
}

fn private(path: &Path, contents: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, contents).expect("write");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("permissions");
}

fn env(name: &str) -> Option<String> {
    let value = match name {
        "REDIS_CLIENT_PASSWORD" => "canary-client",
        "REDIS_USER_PASSWORD" => "canary-user",
        "REDIS_SERVER_PASSWORD" => "canary-server",
        "REPORTS_API_KEY" => "canary-key",
        "APP_PASSWORD" | "ADMIN_PASSWORD" | "EXPORTER_PASSWORD" | "PG_PASSWORD" | "REPORTS_PASSWORD" => {
            "canary-postgres"
        }
        "MONGO_PASSWORD" => "canary-mongodb",
        "OPENAI_API_KEY" | "AZURE_API_KEY" | "ANTHROPIC_API_KEY" | "GITHUB_TOKEN" => "canary-provider",
        "UNLEASH_TOKEN" | "CLIENT_TOKEN" => "*:development.canary-backend",
        "UNLEASH_FRONTEND_TOKEN" | "FRONTEND_TOKEN" => "*:development.canary-frontend",
        "UNLEASH_TENANT" => "canary-tenant",
        "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" | "AWS_SESSION_TOKEN" => "canary-bucket",
        "WEIR_ADMIN_TOKEN" => "canary-0123456789abcdef",
        _ => return None,
    };
    Some(value.to_owned())
}

pub(crate) fn loaded(name: &str) -> Snapshot {
    let (_directory, file) = furnished(name);
    load(&file, &env).unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
}

#[test]
fn every_example_checks_clean() {
    let mut seen = 0;
    for entry in fs::read_dir(examples()).expect("examples") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let snapshot = loaded(path.file_name().and_then(|name| name.to_str()).expect("a plain name"));
            assert!(snapshot.warnings.is_empty(), "{}: {}", path.display(), snapshot.warnings);
            seen += 1;
        }
    }
    assert!(seen >= 3);
}

#[test]
fn a_scenario_of_the_lab_is_called_one() {
    let entries = fs::read_dir(examples().join("lab")).expect("scenarios").map(|entry| entry.expect("an entry").path());
    let scenarios: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
    assert!(scenarios.len() >= 10);
    for path in scenarios {
        let found = load(&path, &env).expect_err("no configuration");
        let told = found.iter().filter_map(|one| one.help.as_deref()).any(|help| help.contains("weir lab load"));
        assert!(told, "{}: {found}", path.display());
    }
}

#[test]
fn secrets_and_tls_files_reach_the_settings() {
    let snapshot = loaded("redis-full.toml");
    let listener = snapshot.listener("cache").expect("the listener");
    let ListenerProtocol::Redis(redis) = &listener.protocol else { panic!("a Redis listener") };
    assert_eq!(redis.password.as_ref().map(|one| one.expose()), Some(&b"canary-client"[..]));
    let upstream = snapshot.upstream(&listener.upstream).expect("the upstream");
    let UpstreamProtocol::Redis(redis) = &upstream.protocol else { panic!("a Redis upstream") };
    assert_eq!(redis.password.as_ref().map(|one| one.expose()), Some(&b"from a file"[..]));
    assert!(listener.settings.tls.as_ref().is_some_and(|tls| tls.cert_file.is_absolute()));
    let shown = format!("{snapshot:?} {}", redacted(&snapshot));
    assert!(!shown.contains("canary") && !shown.contains("from a file"), "{shown}");
}

/// Keys of a schema as `listener.tls.cert_file`.
fn keys(schema: &Json, path: &str, found: &mut Vec<String>) {
    let table = schema.get("items").unwrap_or(schema);
    let Some(properties) = table.get("properties").and_then(Json::as_object) else {
        return;
    };
    for (key, value) in properties {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        keys(value, &path, found);
        found.push(path);
    }
}

/// Whether the key at `path` is there, in any element of a list.
fn has(value: &Json, path: &str) -> bool {
    let (key, rest) = path.split_once('.').map_or((path, None), |(key, rest)| (key, Some(rest)));
    let tables = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    tables.iter().filter_map(|table| table.get(key)).any(|found| rest.is_none_or(|rest| has(found, rest)))
}

#[test]
fn the_full_examples_have_every_key() {
    // A protocol with several examples has one with every key. Several words of a protocol may share an example.
    let name = |protocol: &ProtocolName| {
        let names = [format!("{protocol}-full.toml"), format!("{protocol}.toml")];
        names.into_iter().find(|name| examples().join(name).is_file())
    };
    let mut names: Vec<String> = ProtocolName::ALL.iter().filter_map(name).collect();
    // A flags listener has an upstream or a file, and no example has both.
    names.push("flags-offline.toml".to_owned());
    let shown = |name: &String| {
        let text = fs::read_to_string(examples().join(name)).expect("the example");
        (redacted(&loaded(name)), text)
    };
    let files: Vec<(Json, String)> = names.iter().map(shown).collect();
    let mut declared = Vec::new();
    keys(&schema(), "", &mut declared);
    assert!(declared.len() > 150, "only {} keys were found", declared.len());
    for path in declared {
        let key = path.rsplit('.').next().unwrap_or(&path);
        // The tables of a domain are those of its routes: once is enough.
        let place = match path.strip_prefix("domain.") {
            Some(rest) if rest.contains('.') => format!("route.{rest}"),
            _ => path.clone(),
        };
        let is_written = |text: &str| {
            text.lines().any(|line| {
                line.strip_prefix(key).is_some_and(|rest| rest.starts_with(" ="))
                    || line.starts_with(&format!("[{place}]"))
                    || line.starts_with(&format!("[[{place}]]"))
            })
        };
        // The effective configuration shows that the key is read, the text that it is written.
        let is_there = files.iter().any(|(shown, text)| has(shown, &place) && is_written(text));
        assert!(is_there, "{path} is not written in any of {names:?}");
    }
}

#[test]
fn a_key_that_does_not_belong_to_its_certificate_is_found() {
    let (directory, file) = furnished("redis-tls.toml");
    let other = rcgen::generate_simple_self_signed(vec!["other".to_owned()]).expect("a certificate");
    private(&directory.path().join("certs/server.key"), &other.signing_key.serialize_pem());
    fs::write(directory.path().join("certs/client.crt"), "no PEM").expect("write");
    let diagnostics = load(&file, &env).expect_err("a wrong key");
    let paths: Vec<&str> = diagnostics.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(paths, ["listener[0].tls.key_file", "upstream[0].tls.cert_file"], "{diagnostics}");
    assert!(diagnostics.iter().all(|one| one.line > 0 && one.help.is_some()));
}

/// Writes a certificate for `redis.internal` that is valid in these years, and its key.
fn certificate(certs: &Path, party: &str, years: (i32, i32)) {
    let mut params = rcgen::CertificateParams::new(vec!["redis.internal".to_owned()]).expect("a name");
    params.not_before = rcgen::date_time_ymd(years.0, 1, 2);
    params.not_after = rcgen::date_time_ymd(years.1, 1, 2);
    let key = rcgen::KeyPair::generate().expect("a key");
    let made = params.self_signed(&key).expect("a certificate");
    fs::write(certs.join(format!("{party}.crt")), made.pem()).expect("certificate");
    private(&certs.join(format!("{party}.key")), &key.serialize_pem());
}

#[test]
fn certificates_that_are_over_or_have_not_begun_are_warned_about() {
    let (directory, file) = furnished("redis-tls.toml");
    let certs = directory.path().join("certs");
    let warned = || {
        let snapshot = load(&file, &env).unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
        assert_eq!(snapshot.warnings.errors(), 0);
        let told = snapshot.warnings.iter().map(|one| format!("{}: {}", one.path, one.message));
        told.collect::<Vec<_>>()
    };
    assert_eq!(warned(), [""; 0]);
    certificate(&certs, "server", (2001, 2002));
    certificate(&certs, "client", (2101, 2102));
    certificate(&certs, "ca", (2001, 2003));
    let told = warned();
    for (path, date) in [
        ("listener[0].tls.cert_file", "expired on 2002-01-02T00:00:00Z"),
        ("listener[0].tls.client_ca_file", "expired on 2003-01-02T00:00:00Z"),
        ("upstream[0].tls.ca_file", "expired on 2003-01-02T00:00:00Z"),
        ("upstream[0].tls.cert_file", "is not valid before 2101-01-02T00:00:00Z"),
    ] {
        assert!(told.iter().any(|one| one.starts_with(path) && one.contains(date)), "{path} {date}: {told:#?}");
    }
    assert_eq!(told.len(), 4, "{told:#?}");
}

#[test]
fn names_for_which_a_certificate_is_not_made_are_warned_about() {
    let (directory, file) = furnished("redis-tls.toml");
    certificate(&directory.path().join("certs"), "other", (2001, 2101));
    let table = "\n[[listener.tls.certificate]]\nnames = [\"redis.internal\", \"cache.internal\", \"*.internal\"]\n\
         cert_file = \"certs/other.crt\"\nkey_file = \"certs/other.key\"\n";
    let text = fs::read_to_string(&file).expect("the example");
    fs::write(&file, format!("{text}{table}")).expect("written");
    let snapshot = load(&file, &env).unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    let told: Vec<&str> = snapshot.warnings.iter().map(|one| one.message.as_str()).collect();
    assert!(told.len() == 2 && told[0].contains("cache.internal") && told[1].contains("*.internal"), "{told:#?}");
}

#[test]
fn the_sharded_example_gives_each_server_its_share_of_keys_that_are_alike() {
    let snapshot = loaded("redis-sharded.toml");
    let settings = &snapshot.upstreams[0].settings;
    let counts = |placement: PlacementSettings| {
        let placement = Placement::new(placement, &settings.endpoints);
        let mut counts = vec![0; settings.endpoints.len()];
        (0..600).for_each(|number| counts[usize::from(placement.place(format!("key:{number}").as_bytes()))] += 1);
        counts
    };
    let own = settings.placement.clone().expect("shards");
    let even = counts(own.clone());
    assert!(even.iter().all(|count| (150..=250).contains(count)), "{even:?}");
    // The warnings of the check, and its advice.
    let ketama = |hash| counts(PlacementSettings { distribution: Distribution::Ketama, hash, ..own.clone() });
    let (fnv, crc, murmur) = (ketama(KeyHash::Fnv1a64), ketama(KeyHash::Crc16), ketama(KeyHash::Murmur2));
    assert!(fnv.iter().max() > fnv.iter().min().map(|least| 2 * least).as_ref(), "{fnv:?}");
    assert!(crc.iter().any(|count| *count > 500), "{crc:?}");
    assert!(murmur.iter().all(|count| (120..=280).contains(count)), "{murmur:?}");
}

#[test]
fn a_renewed_certificate_is_a_change() {
    let (directory, file) = furnished("redis-tls.toml");
    let old = load(&file, &env).expect("the example");
    let renewed = rcgen::generate_simple_self_signed(vec!["redis.internal".to_owned()]).expect("a certificate");
    fs::write(directory.path().join("certs/server.crt"), renewed.cert.pem()).expect("write");
    private(&directory.path().join("certs/server.key"), &renewed.signing_key.serialize_pem());
    let new = load(&file, &env).expect("the example");
    let change = weir_config::diff(&old, &new);
    assert_eq!(change.applied, ["listener.cache.tls.cert_file", "listener.cache.tls.key_file"]);
    assert_ne!(old.listeners[0].settings, new.listeners[0].settings);
}

#[test]
fn unreadable_files_are_reported_in_one_line() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let file = directory.path().join("weir.toml");
    let failed = |file: &Path| load(file, &env).expect_err("not loadable").to_string();
    assert!(failed(&file).contains("cannot read the configuration"));
    assert!(failed(directory.path()).contains("not a regular file"));
    fs::write(&file, b"a = \"\xff\"").expect("write");
    assert!(failed(&file).contains("not UTF-8 (line 1)"));
    fs::write(&file, "#".repeat(1024 * 1024 + 1)).expect("write");
    assert!(failed(&file).contains("larger than 1048576 bytes"));
}
