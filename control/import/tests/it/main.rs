//! Configurations of the six programs, the `weir.toml` that each becomes, and its notes.
//!
//! Each input has two files beside it: `NAME.toml` and `NAME.notes`. `WEIR_WRITE_GOLDEN=1` writes them; read the difference then.
//! The modules have the name of a program, and hold what differs between it and Weir.

mod envoy;
mod haproxy;
mod nginx;
mod pgbouncer;
mod unleash_edge;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use weir_import::{Files, Format, Imported, import};

/// No input includes a file.
struct NoFiles;

impl Files for NoFiles {
    fn matching(&self, pattern: &str) -> Result<Vec<(String, String)>, String> {
        Err(format!("{pattern} is not there"))
    }
}

/// The files beside the inputs of a format, by the last part of their names.
struct Beside(Format);

impl Files for Beside {
    fn matching(&self, pattern: &str) -> Result<Vec<(String, String)>, String> {
        let name = pattern.rsplit('/').next().unwrap_or(pattern);
        let text = fs::read_to_string(folder(self.0).join(name)).map_err(|_| format!("{pattern} is not there"))?;
        Ok(vec![(name.to_owned(), text)])
    }
}

fn folder(format: Format) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(format.name())
}

fn imported(format: Format, file: &str) -> Imported {
    let text = fs::read_to_string(folder(format).join(file)).expect("the input");
    import(format, file, &text, &Beside(format)).unwrap_or_else(|mistake| panic!("{mistake}"))
}

/// The import of a text as the file `f`.
fn read(format: Format, text: &str) -> Imported {
    import(format, "f", text, &NoFiles).unwrap_or_else(|mistake| panic!("{mistake}\n{text}"))
}

/// All notes, a line for each.
fn notes(imported: &Imported) -> String {
    imported.notes.iter().map(|note| format!("{note}\n")).collect()
}

/// The text of the table called `name` in a list of tables, up to the next table of a list.
fn table(toml: &str, list: &str, name: &str) -> String {
    let (header, line) = (format!("[[{list}]]\n"), format!("name = \"{name}\""));
    let mut parts = toml.split(&header).skip(1).filter_map(|part| part.split("\n\n[[").next());
    let found = parts.find(|part| part.lines().next() == Some(&line));
    found.unwrap_or_else(|| panic!("no {list} {name}:\n{toml}")).to_owned()
}

/// Compares with the files beside the input, and lets Weir check the result.
fn golden(format: Format, file: &str) {
    let imported = imported(format, file);
    let notes = notes(&imported);
    let stem = file.rsplit_once('.').expect("an ending").0;
    for (ending, text) in [("toml", &imported.toml), ("notes", &notes)] {
        let path = folder(format).join(format!("{stem}.{ending}"));
        if std::env::var_os("WEIR_WRITE_GOLDEN").is_some() {
            fs::write(&path, text).expect("written");
        }
        let wanted = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(*text == wanted, "{} differs; now it is:\n{text}", path.display());
    }
    for note in &imported.notes {
        assert!(note.place.line > 0 && *note.place.file == *file && !note.why.is_empty(), "{note}");
    }
    check(&imported.toml);
}

/// Weir's own check finds no mistake.
fn check(toml: &str) {
    let found = mistakes(&furnished(), toml);
    assert!(found.is_empty(), "{}\n{toml}", found.join("\n"));
}

/// A folder with the files that the inputs name below `/etc`.
fn furnished() -> TempDir {
    let directory = tempfile::tempdir().expect("a folder");
    let root = directory.path().join("etc/tls");
    fs::create_dir_all(&root).expect("a folder");
    for name in ["shop", "legacy", "blog", "front", "ca"] {
        let made = rcgen::generate_simple_self_signed(vec![format!("{name}.example.com")]).expect("a certificate");
        fs::write(root.join(format!("{name}.crt")), made.cert.pem()).expect("written");
        private(&root.join(format!("{name}.key")), &made.signing_key.serialize_pem());
    }
    // HAProxy keeps both in one file.
    let made = rcgen::generate_simple_self_signed(vec!["site.example.com".to_owned()]).expect("a certificate");
    private(&root.join("site.pem"), &(made.cert.pem() + &made.signing_key.serialize_pem()));
    for name in ["etc/pgbouncer/users.txt", "etc/pgbouncer/userlist.txt", "users.txt", "none.txt"] {
        let file = directory.path().join(name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        private(&file, &fs::read_to_string(folder(Format::Pgbouncer).join("users.txt")).expect("the users"));
    }
    private(&root.join("users"), "alice:$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n");
    directory
}

/// Findings of Weir's own check.
fn mistakes(directory: &TempDir, toml: &str) -> Vec<String> {
    let here = format!("\"{}/etc/", directory.path().display());
    let file = directory.path().join("weir.toml");
    fs::write(&file, toml.replace("\"/etc/", &here)).expect("written");
    let secret = |name: &str| match name.ends_with("_PASSWORD") {
        true => Some("canary".to_owned()),
        // Tokens of Unleash have a form.
        false => name
            .contains("TOKENS")
            .then(|| "*:development.canary".to_owned())
            .or_else(|| name.contains("HEADER").then(|| "canary".to_owned())),
    };
    let shown = |found: &weir_config::Diagnostics| {
        let errors = found.iter().filter(|one| one.severity == weir_config::Severity::Error);
        errors.map(|one| format!("{}: {} (line {})", one.path, one.message, one.line)).collect()
    };
    match weir_config::load(&file, &secret) {
        Ok(snapshot) => shown(&snapshot.warnings),
        Err(diagnostics) => shown(&diagnostics),
    }
}

fn private(file: &Path, text: &str) {
    fs::write(file, text).expect("written");
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("permissions");
}

#[test]
fn nginx_http_with_locations_upstreams_and_tls() {
    golden(Format::Nginx, "shop.conf");
}

#[test]
fn nginx_server_blocks_without_their_frame() {
    golden(Format::Nginx, "sites.conf");
}

#[test]
fn nginx_streams_by_address_and_by_server_name() {
    golden(Format::Nginx, "stream.conf");
}

#[test]
fn haproxy_http_with_rules_in_their_order() {
    golden(Format::Haproxy, "web.cfg");
}

#[test]
fn haproxy_tcp_and_named_defaults() {
    golden(Format::Haproxy, "tcp.cfg");
}

#[test]
fn twemproxy_pools() {
    golden(Format::Twemproxy, "pools.yml");
}

#[test]
fn envoy_http_in_yaml() {
    golden(Format::Envoy, "front.yaml");
}

#[test]
fn envoy_redis_and_tcp_in_json() {
    golden(Format::Envoy, "redis.json");
}

#[test]
fn pgbouncer_with_several_servers_and_users() {
    golden(Format::Pgbouncer, "full.ini");
}

#[test]
fn pgbouncer_that_believes_its_clients() {
    golden(Format::Pgbouncer, "trust.ini");
}

#[test]
fn pgbouncer_as_debian_installs_it() {
    golden(Format::Pgbouncer, "debian.ini");
}

#[test]
fn passwords_of_the_input_are_in_no_output() {
    for (format, file) in [(Format::Twemproxy, "pools.yml"), (Format::Pgbouncer, "full.ini")] {
        let imported = imported(format, file);
        let text = imported.toml.clone() + &notes(&imported);
        for secret in ["not-to-be-repeated", "SCRAM-SHA-256$", "md545f2603610af569b6155c45067268c6b"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

/// The lines of a file that mean something, without comments.
fn meaning(toml: &str) -> Vec<&str> {
    let lines = toml.lines().map(|line| line.split('#').next().unwrap_or_default().trim_end());
    lines.filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_pairs_of_the_guide_are_results_of_an_import() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/migration.md");
    let guide = fs::read_to_string(guide).expect("the guide");
    let mut seen = 0;
    for format in [Format::Nginx, Format::Haproxy, Format::Twemproxy, Format::Pgbouncer, Format::Envoy] {
        let title = guide.lines().find(|line| line.eq_ignore_ascii_case(&format!("### {}", format.name())));
        let title = title.unwrap_or_else(|| panic!("the guide has no part on {}", format.name()));
        let part = guide.split_once(&format!("{title}\n")).expect("the part").1;
        let mut blocks = part.split("```").skip(1).step_by(2).map(|block| block.split_once('\n').expect("a language"));
        let (before, after) = (blocks.next().expect("an input"), blocks.next().expect("a result"));
        assert_eq!(after.0, "toml");
        let imported = import(format, "f", before.1, &NoFiles).unwrap_or_else(|mistake| panic!("{mistake}"));
        assert_eq!(meaning(after.1), meaning(&imported.toml), "{}", imported.toml);
        check(&imported.toml);
        seen += 1;
    }
    assert_eq!(seen, 5);
}

/// Every input with each of its lines left out, and with each of its lines cut in the middle.
#[test]
fn a_truncated_input_is_imported_well_or_refused_with_its_line() {
    let inputs = [
        (Format::Nginx, "shop.conf"),
        (Format::Nginx, "sites.conf"),
        (Format::Nginx, "stream.conf"),
        (Format::Haproxy, "web.cfg"),
        (Format::Haproxy, "tcp.cfg"),
        (Format::Twemproxy, "pools.yml"),
        (Format::Envoy, "front.yaml"),
        (Format::Envoy, "redis.json"),
        (Format::Pgbouncer, "full.ini"),
        (Format::Pgbouncer, "trust.ini"),
    ];
    let directory = furnished();
    // Half a name of a file is none that is there.
    let is_of_file = |found: &String| {
        let path = found.split(':').next().unwrap_or_default();
        [".tls", "_file", ".userlist"].iter().any(|end| path.ends_with(end))
    };
    let (mut imported, mut refused, mut bad) = (0, 0, BTreeSet::new());
    for (format, file) in inputs {
        let text = fs::read_to_string(folder(format).join(file)).expect("the input");
        let lines: Vec<&str> = text.lines().collect();
        for at in 0..lines.len() {
            let (before, after) = (lines[..at].join("\n"), lines[at + 1..].join("\n"));
            for middle in ["", &lines[at][..lines[at].len() / 2]] {
                match import(format, file, &format!("{before}\n{middle}\n{after}"), &Beside(format)) {
                    Ok(result) => {
                        let found = mistakes(&directory, &result.toml).into_iter().filter(|found| !is_of_file(found));
                        bad.extend(found.map(|found| format!("{file} with `{middle}` in line {}: {found}", at + 1)));
                        imported += 1;
                    }
                    Err(mistake) => {
                        assert!((1..=lines.len() + 1).contains(&mistake.place.line), "{mistake}");
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(imported > 400 && refused > 100, "{imported} imported, {refused} refused");
}

/// The mistake in a text.
fn mistake(format: Format, text: &str) -> String {
    match import(format, "f", text, &NoFiles) {
        Err(mistake) => mistake.to_string(),
        Ok(imported) => panic!("it was imported:\n{}", imported.toml),
    }
}

#[test]
fn mistakes_of_nginx_have_their_line() {
    let cases = [
        ("server {\n listen 80\n}", "f:2: the directive does not end with `;` before `}`"),
        ("server {\n listen 80;\n location ! /x { return 200; }\n}", "f:3: `!` is no modifier of a location"),
        (
            "server {\n listen 80;\n client_max_body_size big;\n}",
            "f:3: `client_max_body_size big` is no size: write it as 10m",
        ),
        ("server {\n listen 443 ssl;\n}", "f:1: the server has TLS, and no ssl_certificate with ssl_certificate_key"),
        ("server {\n limit_req zone=x;\n}", "f:2: limit_req_zone does not name a zone `x`"),
        (
            "upstream u {\n}\nserver {\n location / {\n  proxy_pass http://u;\n }\n}",
            "f:5: upstream `u` has no server that is in use",
        ),
        ("include none.conf;", "f:1: include none.conf: none.conf is not there"),
        ("worker_processes 1;", "f:1: there is no `server` with an address that could be imported"),
    ];
    for (text, wanted) in cases {
        assert_eq!(mistake(Format::Nginx, text), wanted, "{text}");
    }
}

#[test]
fn mistakes_of_haproxy_have_their_line() {
    let cases = [
        ("frontend a\n mode http\n bind :80\n default_backend b", "f:4: there is no backend `b`"),
        (
            "defaults\n timeout client soon\nfrontend a\n mode http\n bind :80",
            "f:2: `timeout client soon` is no time: write it as 30s or 500ms",
        ),
        ("frontend a\n mode http\n bind :443 ssl", "f:3: `ssl` needs a certificate: crt FILE"),
        ("listen a\n mode tcp\n bind :1\n server x", "f:4: server needs a name and an address"),
        (
            "backend a\n server x 1.2.3.4:1",
            "f:1: there is no frontend or listen with an address that could be imported",
        ),
    ];
    for (text, wanted) in cases {
        assert_eq!(mistake(Format::Haproxy, text), wanted, "{text}");
    }
}

#[test]
fn mistakes_of_twemproxy_and_envoy_have_their_line() {
    let pool = "a:\n  listen: 127.0.0.1:1\n  redis: true\n";
    let cases = [
        (
            Format::Twemproxy,
            format!("{pool}  servers:\n   - 127.0.0.1:2\n"),
            "f:5: `127.0.0.1:2` is no server: write host:port:weight",
        ),
        (
            Format::Twemproxy,
            format!("{pool}  servers: [127.0.0.1:2:1]\n  timeuot: 1\n"),
            "f:5: `timeuot` is no key of a pool",
        ),
        (
            Format::Twemproxy,
            format!("{pool}  servers: [127.0.0.1:2:1, 127.0.0.1:3:1]\n  hash: sha\n"),
            "f:5: `sha` is no hash of twemproxy",
        ),
        (
            Format::Twemproxy,
            "a:\n  listen: 127.0.0.1:1\n  servers: [127.0.0.1:2:1]\n".to_owned(),
            "f:1: there is no pool with `redis: true`; Weir does not speak memcached",
        ),
        (
            Format::Envoy,
            "admin: {}\n".to_owned(),
            "f:1: there are no static_resources; resources from xDS cannot be imported",
        ),
        (
            Format::Envoy,
            "static_resources:\n  listeners:\n  - name: a\n".to_owned(),
            "f:3: a listener needs an address",
        ),
    ];
    for (format, text, wanted) in cases {
        assert_eq!(mistake(format, &text), wanted, "{text}");
    }
}
