//! TLS towards HTTP clients: certificates by name, and the fields about client certificates for origins.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use weir_tests::certificate::Certificates;
use weir_tests::deadline::WAIT;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::nginx::Nginx;

/// A certificate and its key, as keys of a table.
fn pair(files: &Certificates) -> String {
    format!("cert_file = \"{}\"\nkey_file = \"{}\"\n", files.server.display(), files.server_key.display())
}

/// Clients may show certificates of this authority.
fn shown_to(files: &Certificates) -> String {
    format!("client_auth = \"optional\"\nclient_ca_file = \"{}\"\n", files.authority.display())
}

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
fn the_certificate_is_that_of_the_requested_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [first, second, third] =
        ["first", "second", "third"].map(|name| Certificates::create(&folder.path().join(name)));
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

const CLEAR_TEXT: &str = "the client sent a plain HTTP request to a TLS port";

#[test]
fn plain_http_on_a_tls_port_is_answered_in_words_and_counted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create(folder.path());
    let origin = Nginx::start("", "location / { return 200 \"$host\"; }");
    let gateway =
        Gateway::start(Config::http(&origin.address).workers(2).listener(&format!("[listener.tls]\n{}", pair(&files))));
    let mut large = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n".to_vec();
    large.resize(large.len() + 40_000, b'x');
    let requests = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        b"GET / HTTP/1.0\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        // All of it is read, else a reset could destroy the response.
        large,
    ];
    let (mut received, mut sent) = (0, 0);
    for request in &requests {
        let mut client = TcpStream::connect(gateway.address.text()).expect("the gateway accepts");
        client.set_read_timeout(Some(WAIT)).expect("a timeout");
        client.write_all(request).expect("sent");
        let mut said = String::new();
        client.read_to_string(&mut said).expect("a response, and a clean end");
        (received, sent) = (received + request.len(), sent + said.len());
        let (head, body) = said.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n") && head.contains("Connection: close"), "{said}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())) && body.contains(CLEAR_TEXT), "{said}");
    }
    // Each is a connection, a response and its bytes, as it would be within TLS.
    gateway.wait_metric("weir_client_read_bytes_total", &[], received as f64);
    let metrics = gateway.metrics();
    assert_eq!(metrics.sum("weir_client_read_bytes_total"), received as f64);
    assert_eq!(metrics.sum("weir_client_written_bytes_total"), sent as f64);
    assert_eq!(metrics.sum_where("weir_http_responses_total", &[("code", "400")]), 4.0);
    assert_eq!(metrics.sum_where("weir_http_listener_responses_total", &[("class", "4xx")]), 4.0);
    assert_eq!(metrics.sum_where("weir_connections_closed_total", &[("reason", "clear_text")]), 4.0);
    assert_eq!(metrics.sum("weir_connections_total"), 4.0);
    let port = gateway.address.tcp().port();
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20", "-w", "%{http_code}", &format!("http://127.0.0.1:{port}/")])
        .output()
        .expect("curl runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(CLEAR_TEXT) && said.ends_with("400"), "{said}");
    gateway.wait_metric("weir_tls_handshake_failures_total", &[("reason", "clear_text")], 5.0);
    let metrics = gateway.metrics();
    assert_eq!(metrics.sum("weir_tls_handshake_failures_total"), 5.0);
    assert_eq!(metrics.sum_where("weir_defensive_closes_total", &[("reason", "clear_text")]), 5.0);
    gateway.wait_log("the client speaks in clear text to a listener with TLS");
    // Bytes that are neither get a TLS alert, and other clients are served.
    let mut other = TcpStream::connect(gateway.address.text()).expect("the gateway accepts");
    other.write_all(&[0x17; 64]).expect("sent");
    let mut alert = Vec::new();
    let _ = other.read_to_end(&mut alert);
    assert!(alert.first().is_none_or(|first| *first == 0x15), "{alert:?}");
    gateway.wait_metric("weir_tls_handshake_failures_total", &[("reason", "tls")], 1.0);
    assert_eq!(curl(&gateway, "localhost", &["--cacert", &files.authority.display().to_string()]), "localhost");
    gateway.finish();
}

#[test]
fn origins_get_the_certificate_of_the_client_and_no_other() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create(folder.path());
    let tls =
        format!("[listener.http]\nforwarded_client_cert = true\n[listener.tls]\n{}{}", pair(&files), shown_to(&files));
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

/// Output of openssl about a certificate, behind the `=` of its line.
fn openssl(certificate: &str, words: &[&str]) -> String {
    let mut openssl = Command::new("openssl");
    openssl.args(["x509", "-noout", "-nameopt", "RFC2253", "-dateopt", "iso_8601", "-in", certificate]).args(words);
    let output = openssl.output().expect("openssl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    line.split_once('=').expect("a name and a value").1.trim().to_owned()
}

#[test]
fn fields_can_tell_of_the_connection_its_tls_and_the_certificate_of_its_client() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create(folder.path());
    let names = [
        ("subject", "DOWNSTREAM_PEER_SUBJECT"),
        ("issuer", "DOWNSTREAM_PEER_ISSUER"),
        ("serial", "DOWNSTREAM_PEER_SERIAL"),
        ("from", "DOWNSTREAM_PEER_CERT_V_START"),
        ("to", "DOWNSTREAM_PEER_CERT_V_END"),
        ("certificate", "DOWNSTREAM_PEER_CERT"),
        ("fingerprint", "DOWNSTREAM_PEER_FINGERPRINT_256"),
        ("version", "DOWNSTREAM_TLS_VERSION"),
        ("cipher", "DOWNSTREAM_TLS_CIPHER"),
        ("local", "DOWNSTREAM_LOCAL_ADDRESS"),
        ("port", "DOWNSTREAM_LOCAL_PORT"),
        ("start", "START_TIME"),
        ("host", "HOSTNAME"),
    ];
    let change = |(name, variable): (&str, &str)| format!("{{ name = \"x-{name}\", value = \"%{variable}%\" }}");
    let fields = names.map(change).join(", ");
    let said = names.map(|(name, _)| format!("$http_x_{name}")).join("\\n");
    let origin = Nginx::start("", &format!("location / {{ return 200 \"{said}\"; }}"));
    let tls = format!("[listener.tls]\n{}{}", pair(&files), shown_to(&files));
    let route = format!(
        "[[route]]\nname = \"all\"\npath_prefix = \"/\"\nupstream = \"server\"\nrequest_header = [{fields}]\n\
         response_header = [{{ name = \"x-origin\", value = \"%UPSTREAM_REMOTE_ADDRESS%\" }}]"
    );
    let gateway = Gateway::start(Config::http(&origin.address).listener(&tls).tables(&route));
    let (authority, certificate, key) = (
        files.authority.display().to_string(),
        files.client.display().to_string(),
        files.client_key.display().to_string(),
    );
    let words = ["--cacert", &authority, "--tls-max", "1.2", "--http1.1", "-i"];
    // A client without a certificate has none of its facts.
    let without = curl(&gateway, "localhost", &words);
    assert!(without.contains("\r\n\r\n\n\n\n\n\n\n\nTLSv1.2\nTLS_ECDHE_"), "{without}");
    let told = curl(&gateway, "localhost", &[&words[..], &["--cert", &certificate, "--key", &key]].concat());
    let (head, body) = told.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains(&format!("x-origin: {}", origin.address.text())), "{head}");
    let told: Vec<&str> = body.split('\n').collect();
    let [subject, issuer, serial, from, to, pem, fingerprint, version, cipher, local, port, start, host] = told[..]
    else {
        panic!("{body}")
    };
    assert_eq!(subject, openssl(&certificate, &["-subject"]));
    assert_eq!(issuer, openssl(&certificate, &["-issuer"]));
    assert_eq!(serial, openssl(&certificate, &["-serial"]).to_ascii_lowercase());
    assert_eq!(from.replace('T', " "), openssl(&certificate, &["-startdate"]));
    assert_eq!(to.replace('T', " "), openssl(&certificate, &["-enddate"]));
    assert_eq!(fingerprint, openssl(&certificate, &["-fingerprint", "-sha256"]).replace(':', "").to_ascii_lowercase());
    let file = std::fs::read_to_string(&certificate).expect("a certificate");
    let unescaped = [("%0A", "\n"), ("%20", " "), ("%2B", "+"), ("%2F", "/"), ("%3D", "=")]
        .iter()
        .fold(pem.to_owned(), |text, (escape, plain)| text.replace(escape, plain));
    assert_eq!(unescaped.trim(), file.trim());
    assert_eq!((version, &cipher[..10]), ("TLSv1.2", "TLS_ECDHE_"));
    assert_eq!((local, port), (&*gateway.address.text(), &*gateway.address.tcp().port().to_string()));
    let now = Command::new("date").args(["-u", "+%Y-%m-%dT%H"]).output().expect("date runs");
    assert_eq!((start.len(), start.ends_with('Z')), (24, true), "{start}");
    assert!(start.as_bytes()[..8] == now.stdout[..8], "{start}");
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    assert_eq!(host, name.trim());
    gateway.finish();
}

#[test]
fn http_2_over_tls_needs_alpn() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create(folder.path());
    let tls = format!("[listener.tls]\n{}", pair(&files));
    let origin = Nginx::start("", "location / { return 200; }");
    let gateway = Gateway::start(Config::http(&origin.address).listener(&tls));
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-quiet", "-connect", &gateway.address.text()]);
    let mut client =
        openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("openssl runs");
    client.stdin.take().expect("piped").write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("taken");
    let said = client.wait_with_output().expect("openssl ends with the connection").stdout;
    assert!(
        said.starts_with(b"HTTP/1.1 400 ") || said.starts_with(b"HTTP/1.1 505 "),
        "{}",
        String::from_utf8_lossy(&said)
    );
    gateway.finish();
}
