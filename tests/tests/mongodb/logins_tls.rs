//! Logins over TLS: SCRAM, certificates (MONGODB-X509) and passwords in clear text (PLAIN), of clients at the gateway, and of the gateway
//! at its servers.

use std::path::Path;
use std::sync::{Arc, Mutex};

use rustls::ClientConfig;
use weir_mongodb_codec::bson::{Value, Writer};
use weir_tests::certificate::Certificates;
use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::mongodb::drivers::{Checks, Driver, run};
use weir_tests::mongodb::fake::{Act, Asked, Fake, honest};
use weir_tests::mongodb::tls::certificate_and_key;
use weir_tests::mongodb::wire::{Reply, Wire, find, plain};
use weir_tests::mongodb::{FerretDb, PASSWORD, USER};
use weir_tests::stream::Address;

use crate::drivers::holds;
use crate::gateway::{before, port};

/// Those that take their certificates from a URL.
const DRIVERS: [Driver; 3] = [Driver::Pymongo, Driver::Node, Driver::Go];
const SERVER_CHECKS_MIN: usize = 40;
const LOGIN_CHECKS_MIN: usize = 12;
/// The subject of the client's certificate.
const SUBJECT: &str = "CN=tester";

/// TLS of the listener; `client_auth`: whether it wants certificates.
fn tls(files: &Certificates, client_auth: Option<&str>) -> String {
    let Certificates { authority, server, server_key, .. } = files;
    let clients =
        client_auth.map(|auth| format!("client_ca_file = \"{}\"\nclient_auth = \"{auth}\"\n", authority.display()));
    let own = format!("cert_file = \"{}\"\nkey_file = \"{}\"\n", server.display(), server_key.display());
    format!("[listener.tls]\n{own}{}", clients.unwrap_or_default())
}

/// The client's side of TLS at an upstream.
fn upstream_tls(files: &Certificates) -> String {
    let Certificates { authority, client, client_key, .. } = files;
    let [authority, client, key] = [authority, client, client_key].map(|path| path.display());
    format!("[upstream.tls]\nca_file = \"{authority}\"\ncert_file = \"{client}\"\nkey_file = \"{key}\"\n")
}

fn config(server: &Address, listener: &str, upstream: &str) -> Config {
    Config { protocol: "mongodb", ..Config::to(server) }
        .workers(2)
        .listener(&format!("[listener.mongodb]\n{listener}"))
        .upstream(&format!("[upstream.mongodb]\npool_size = 20\n{upstream}"))
}

/// A URL with the authority of the gateway's certificate.
fn url(gateway: &Gateway, login: &str, files: &Certificates, options: &str) -> String {
    let authority = in_url(&files.authority);
    format!("mongodb://{login}{}/?tls=true&tlsCAFile={authority}{options}", gateway.address.text())
}

fn in_url(path: &Path) -> String {
    path.to_string_lossy().replace('/', "%2F")
}

fn user(folder: &Path, name: &str, password: &str) -> String {
    let password = secret_file(folder, "client-password", password);
    format!("[[listener.user]]\nname = \"{name}\"\npassword = {{ file = \"{password}\" }}")
}

/// Both ways are encrypted, and the gateway shows a certificate to the server.
#[test]
fn every_check_of_logins_holds_over_tls_on_both_sides() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = Certificates::create(&folder.path().join("certificates"));
    let server = FerretDb::start_with_logins_over_tls(&files);
    let own = secret_file(folder.path(), "server-password", PASSWORD);
    let listener = format!("{}{}", tls(&files, None), user(folder.path(), "client", "another password"));
    let upstream = format!("user = \"{USER}\"\npassword = {{ file = \"{own}\" }}\n{}", upstream_tls(&files));
    let gateway = Gateway::start(config(&server.address, &listener, &upstream));
    let url = url(&gateway, "client:another%20password@", &files, "&authSource=admin");
    holds("over TLS", &run(&DRIVERS, &url, Checks::Login), LOGIN_CHECKS_MIN);
    gateway.finish();
}

#[test]
fn every_check_holds_for_clients_that_log_in_with_certificates() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = Certificates::create(folder.path());
    let server = FerretDb::start();
    let listener = format!("auth = \"x509\"\nsubjects = [\"{SUBJECT}\"]\n{}", tls(&files, Some("required")));
    let gateway = Gateway::start(config(&server.address, &listener, ""));
    let certificate = in_url(&certificate_and_key(&files));
    let options = format!("&tlsCertificateKeyFile={certificate}&authMechanism=MONGODB-X509&authSource=%24external");
    holds("by certificate", &run(&DRIVERS, &url(&gateway, "", &files, &options), Checks::Server), SERVER_CHECKS_MIN);
    assert!(gateway.metric("weir_mongodb_logins_total") >= 3.0);
    gateway.finish();
}

#[test]
fn every_check_holds_for_clients_that_log_in_with_passwords_in_clear_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = Certificates::create(folder.path());
    let server = FerretDb::start();
    let user = user(folder.path(), "client", "another password");
    let listener = format!("auth = \"plain\"\n{}{user}", tls(&files, None));
    let gateway = Gateway::start(config(&server.address, &listener, ""));
    let options = "&authMechanism=PLAIN&authSource=%24external";
    let url = url(&gateway, "client:another%20password@", &files, options);
    holds("in clear text", &run(&DRIVERS, &url, Checks::Server), SERVER_CHECKS_MIN);
    assert!(gateway.metric("weir_mongodb_logins_total") >= 3.0);
    gateway.finish();
}

/// Logs in with a certificate, or without one, and further fields.
fn authenticate(gateway: &Gateway, config: &Arc<ClientConfig>, user: Option<&str>) -> (Wire, Reply) {
    let (mut wire, _) = Wire::connect_tls(port(gateway), config.clone(), |_| {});
    assert_eq!(wire.call(|body| find(body, "notes", 2)).code(), 13, "before the login");
    let reply = wire.call(|body| {
        body.int32("authenticate", 1);
        body.string("mechanism", "MONGODB-X509");
        if let Some(user) = user {
            body.string("user", user);
        }
        body.string("$db", "$external");
    });
    (wire, reply)
}

#[test]
fn a_certificate_logs_in_as_its_subject_and_as_nobody_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = Certificates::create(folder.path());
    let server = Fake::honest();
    let gateway = |subject: &str| {
        let listener = format!("auth = \"x509\"\nsubjects = [\"{subject}\"]\n{}", tls(&files, Some("optional")));
        Gateway::start(config(&server.address, &listener, ""))
    };
    let (with, without) = (files.client_config_with_certificate(), files.client_config());
    let ours = gateway(SUBJECT);
    for user in [None, Some(SUBJECT)] {
        let (mut wire, reply) = authenticate(&ours, &with, user);
        assert!(reply.is_ok() && reply.text(&["user"]) == SUBJECT, "{user:?}: {reply:?}");
        let status = wire.call(|body| plain(body, "connectionStatus"));
        assert_eq!(status.text(&["authInfo", "authenticatedUsers", "0", "user"]), SUBJECT, "{status:?}");
        assert_eq!(wire.call(|body| find(body, "notes", 2)).batch(), [1, 2]);
    }
    let theirs = gateway("CN=somebody else");
    let cases = [
        (&ours, &with, Some("CN=admin")),
        (&ours, &without, None),
        (&ours, &without, Some(SUBJECT)),
        (&theirs, &with, None),
    ];
    for (gateway, config, user) in cases {
        let (mut wire, reply) = authenticate(gateway, config, user);
        assert_eq!(reply.code(), 18, "{user:?}: {reply:?}");
        assert_eq!(wire.call(|body| find(body, "notes", 2)).code(), 13, "still");
    }
    ours.finish();
    theirs.finish();
}

/// saslStart with a password in clear text.
fn clear_text(body: &mut Writer<'_>, user: &str, password: &str) {
    body.int32("saslStart", 1);
    body.string("mechanism", "PLAIN");
    body.binary("payload", 0, format!("\0{user}\0{password}").as_bytes());
    body.string("$db", "$external");
}

#[test]
fn a_password_in_clear_text_is_taken_over_tls_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = Certificates::create(folder.path());
    let server = Fake::honest();
    let user = user(folder.path(), "app", "a long word");
    let listener = format!("auth = \"plain\"\n{}{user}", tls(&files, None));
    let gateway = Gateway::start(config(&server.address, &listener, ""));
    for (name, password, code) in
        [("app", "a long word", 0), ("app", "a long", 18), ("app", "", 18), ("nobody", "a long word", 18)]
    {
        let (mut wire, _) = Wire::connect_tls(port(&gateway), files.client_config(), |_| {});
        let reply = wire.call(|body| clear_text(body, name, password));
        assert_eq!(reply.code(), code, "{name} {password}: {reply:?}");
        let found = wire.call(|body| find(body, "notes", 2));
        assert_eq!(found.code(), if code == 0 { 0 } else { 13 }, "{name} {password}: {found:?}");
    }
    gateway.finish();
    // A listener without TLS does not have the mechanism.
    let plain = Gateway::start(config(&server.address, &user, ""));
    let mut wire = Wire::connect(port(&plain));
    assert_eq!(wire.call(|body| clear_text(body, "app", "a long word")).code(), 334);
    drop(wire);
    plain.finish();
}

/// A server that takes every login, and notes its mechanism, its user or payload, and its database.
fn noting(files: &Certificates, needs_certificate: bool) -> (Fake, Arc<Mutex<Vec<[String; 3]>>>) {
    let logins = Arc::new(Mutex::new(Vec::new()));
    let noted = logins.clone();
    let server = Fake::start_tls((files, needs_certificate), move |asked: &Asked<'_>| {
        if !matches!(asked.name, "saslStart" | "authenticate") {
            return honest(asked);
        }
        let field = |name: &[u8]| asked.body.get(name).ok().flatten();
        let text = |name: &[u8]| {
            let bytes = field(name).and_then(|value| value.as_string().or(value.as_binary().map(|(_, bytes)| bytes)));
            String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
        };
        let proof = if field(b"payload").is_some_and(|payload: Value<'_>| payload.as_binary().is_some()) {
            "payload"
        } else {
            "user"
        };
        noted.lock().expect("the logins").push([text(b"mechanism"), text(proof.as_bytes()), text(b"$db")]);
        Act::reply(|body| {
            body.int32("conversationId", 1);
            body.bool("done", true);
            body.binary("payload", 0, b"");
        })
    });
    (server, logins)
}

#[test]
fn the_gateway_logs_in_at_a_server_with_its_certificate_or_a_password_in_clear_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = Certificates::create(folder.path());
    let password = secret_file(folder.path(), "server-password", PASSWORD);
    let login = format!("user = \"{USER}\"\npassword = {{ file = \"{password}\" }}\nauth_mechanism = \"plain\"\n");
    let payload = format!("\0{USER}\0{PASSWORD}");
    for (keys, needs_certificate, noted) in [
        ("auth_mechanism = \"x509\"\n", true, ["MONGODB-X509", "", "$external"]),
        (&*login, false, ["PLAIN", &*payload, "$external"]),
    ] {
        let (server, logins) = noting(&files, needs_certificate);
        let upstream = format!("pool_size = 1\n{keys}{}", upstream_tls(&files));
        let gateway = Gateway::start(before(&server.address, "", &upstream));
        let mut wire = Wire::connect(port(&gateway));
        assert_eq!(wire.call(|body| find(body, "notes", 2)).batch(), [1, 2], "{keys}");
        let logins = logins.lock().expect("the logins").clone();
        assert_eq!(logins, [noted.map(str::to_owned)], "{keys}");
        drop(wire);
        gateway.finish();
    }
}
