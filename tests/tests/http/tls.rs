//! TLS towards HTTP clients: certificates by name, and what origins are told of those of clients.

use std::process::{Command, Stdio};

use weir_tests::certificate::Certificates;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::nginx::Nginx;

fn curl(gateway: &Gateway, name: &str, words: &[&str]) -> String {
    let port = gateway.address.tcp().port();
    let resolve = format!("{name}:{port}:127.0.0.1");
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "20", "--resolve", &resolve]).args(words).arg(format!("https://{name}:{port}/"));
    let output = curl.output().expect("curl runs");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_certificate_is_that_of_the_name_that_is_asked_for() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [first, second, third] =
        ["first", "second", "third"].map(|name| Certificates::create(&folder.path().join(name)));
    let pair = |files: &Certificates| {
        format!("cert_file = \"{}\"\nkey_file = \"{}\"\n", files.server.display(), files.server_key.display())
    };
    let tls = format!(
        "[listener.tls]\n{}[[listener.tls.certificate]]\nnames = [\"a.test\", \"*.b.test\"]\n{}[[listener.tls.certificate]]\n{}",
        pair(&first),
        pair(&second),
        pair(&third)
    );
    let origin = Nginx::start("", "location / { return 200 \"$host\"; }");
    let gateway = Gateway::start(Config::http(&origin.address).listener(&tls));
    let is_of = |files: &Certificates, name: &str| {
        let mut openssl = Command::new("openssl");
        openssl.args(["s_client", "-connect", &gateway.address.text(), "-servername", name]).stdin(Stdio::null());
        let shown = String::from_utf8_lossy(&openssl.output().expect("openssl runs").stdout).into_owned();
        let own = std::fs::read_to_string(&files.server).expect("readable").replace('\r', "");
        let leaf = own.split_once("-----END").expect("a certificate").0;
        shown.contains(leaf.trim())
    };
    assert!(is_of(&first, "other.test") && !is_of(&second, "other.test"));
    assert!(is_of(&second, "a.test") && is_of(&second, "x.b.test") && !is_of(&first, "a.test"));
    // This one is found by the names in it, and holds for all that a client verifies.
    let authority = third.authority.display().to_string();
    assert_eq!(curl(&gateway, "localhost", &["--cacert", &authority]), "localhost");
    gateway.finish();
}

#[test]
fn origins_are_told_of_the_certificate_of_a_client_and_of_no_other() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create(folder.path());
    let tls = format!(
        "[listener.http]\nforwarded_client_cert = true\n[listener.tls]\ncert_file = \"{}\"\nkey_file = \"{}\"\nclient_auth = \"optional\"\nclient_ca_file = \"{}\"",
        files.server.display(),
        files.server_key.display(),
        files.authority.display()
    );
    let origin = Nginx::start("", "location / { return 200 \"$http_x_forwarded_client_cert\"; }");
    let gateway = Gateway::start(Config::http(&origin.address).listener(&tls));
    let (authority, certificate, key) = (
        files.authority.display().to_string(),
        files.client.display().to_string(),
        files.client_key.display().to_string(),
    );
    let forged = ["--cacert", &authority, "-H", "X-Forwarded-Client-Cert: Hash=forged"];
    assert_eq!(curl(&gateway, "localhost", &forged), "");
    let own = [&forged[..], &["--cert", &certificate, "--key", &key]].concat();
    let told = curl(&gateway, "localhost", &own);
    let (hash, rest) = told.split_once(';').expect("several parts");
    assert_eq!(rest, "Subject=\"CN=tester\"");
    let mut openssl = Command::new("openssl");
    let printed = openssl
        .args(["x509", "-noout", "-fingerprint", "-sha256", "-in", &certificate])
        .output()
        .expect("openssl runs");
    let printed = String::from_utf8_lossy(&printed.stdout).replace(':', "").to_ascii_lowercase();
    assert_eq!(hash.strip_prefix("Hash="), printed.trim().split('=').nth(1));
    gateway.finish();
}
