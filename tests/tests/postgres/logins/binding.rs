//! Channel binding through the gateway: SCRAM-SHA-256-PLUS of its clients, and its own at a server with TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use weir_postgres_codec::{Version, frontend};
use weir_tests::certificate::Certificates;
use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::postgres::{Major, Options, PASSWORD, Postgres, USER};
use weir_tests::tools;

use super::through::{login, text};

/// A gateway with TLS on both sides, whose user is listed.
fn gateway(server: &Postgres, files: &Certificates, folder: &std::path::Path) -> Gateway {
    gateway_with(server, files, folder, "")
}

/// The same with more lines of the upstream.
fn gateway_with(server: &Postgres, files: &Certificates, folder: &std::path::Path, lines: &str) -> Gateway {
    let password = secret_file(folder, "client-password", PASSWORD);
    let upstream = server.certificates.as_ref().expect("a server with TLS");
    let config = Config { protocol: "postgres", ..Config::to(&server.address) }
        .listener(&format!(
            "[listener.tls]\ncert_file = \"{}\"\nkey_file = \"{}\"\n\
             [[listener.user]]\nname = \"{USER}\"\npassword = {{ file = \"{password}\" }}",
            files.server.display(),
            files.server_key.display(),
        ))
        .upstream(&format!("[upstream.tls]\nca_file = \"{}\"\n{lines}", upstream.authority.display()));
    Gateway::start(config)
}

fn words(files: &Certificates, binding: &str) -> String {
    let authority = files.authority.display();
    format!("host=localhost hostaddr=127.0.0.1 sslmode=verify-full sslrootcert={authority} channel_binding={binding}")
}

#[test]
fn libpq_that_requires_channel_binding_logs_in_through_the_gateway_and_after_a_new_certificate() {
    let server = Postgres::start_with(Major::Fifteen, Options { tls: true, ..Options::default() });
    let folder = tempfile::tempdir().expect("a folder");
    let files = Certificates::create(&folder.path().join("first"));
    let gateway = gateway(&server, &files, folder.path());
    let enter =
        |files: &Certificates, binding: &str| login(&gateway, &words(files, binding), (USER, PASSWORD), "select 7");
    for binding in ["require", "prefer", "disable"] {
        assert_eq!(enter(&files, binding).as_deref(), Ok("7"), "{binding}\n{}", gateway.log());
    }
    let refused = login(&gateway, "sslmode=disable channel_binding=require", (USER, PASSWORD), "");
    assert!(refused.expect_err("nothing to bind to").contains("channel binding required"));

    // psycopg uses the libpq of its wheel.
    let script = "import sys, psycopg; print(psycopg.connect(sys.argv[1]).execute('select 8').fetchone()[0])";
    let target = format!(
        "{} port={} user={USER} password={PASSWORD} dbname={USER}",
        words(&files, "require"),
        gateway.address.tcp().port()
    );
    let output = Command::new(tools::python_installed()).args(["-c", script, &target]).output().expect("python starts");
    assert_eq!(text(&output.stdout), "8", "{}\n{}", text(&output.stderr), gateway.log());

    // A session that began before the reload keeps its certificate; a login after it is bound to the new one.
    let new = Certificates::create(&folder.path().join("second"));
    for (from, to) in [(&new.server, &files.server), (&new.server_key, &files.server_key)] {
        std::fs::copy(from, to).expect("copied");
    }
    let reload = gateway.admin.post("/api/v1/reload", "");
    assert_eq!(reload.json()["outcome"], "applied", "{}", reload.body);
    assert_eq!(enter(&new, "require").as_deref(), Ok("7"), "{}", gateway.log());
    assert!(enter(&files, "require").is_err(), "the old authority has not signed the new one");
}

#[test]
fn an_upstream_that_requires_channel_binding_takes_no_server_without_a_proof() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = Certificates::create(&folder.path().join("tls"));
    let require = "[upstream.postgres]\nchannel_binding = \"require\"";
    for (hba, takes) in [(vec![], true), (vec!["hostssl all app all trust".to_owned()], false)] {
        let server = Postgres::start_with(Major::Fifteen, Options { tls: true, hba, ..Options::default() });
        let enter = |lines: &str| {
            let gateway = gateway_with(&server, &files, folder.path(), lines);
            let row = login(&gateway, &words(&files, "prefer"), (USER, PASSWORD), "select 7");
            if row.is_err() {
                gateway.wait_log("channel binding is required");
            }
            (row.as_deref() == Ok("7"), format!("{row:?}\n{}", gateway.log()))
        };
        let (is_in, shown) = enter(require);
        assert_eq!(is_in, takes, "{shown}");
        let (is_in, shown) = enter("[upstream.postgres]\nchannel_binding = \"disable\"");
        assert!(is_in, "{shown}");
    }
}

#[test]
fn a_client_that_pretends_that_the_gateway_offers_no_binding_is_refused() {
    let server = Postgres::start_with(Major::Fifteen, Options { tls: true, ..Options::default() });
    let folder = tempfile::tempdir().expect("a folder");
    let files = Certificates::create(&folder.path().join("tls"));
    let gateway = gateway(&server, &files, folder.path());
    for (header, code, text) in [
        (&b"y,,"[..], "28000", "SCRAM channel binding negotiation error"),
        // A certificate that is not the gateway's: a party in between.
        (b"p=tls-server-end-point,,", "28000", "SCRAM channel binding check failed"),
    ] {
        let reply = scram(&gateway, &files, header);
        let reply = String::from_utf8_lossy(&reply);
        assert!(reply.contains("SCRAM-SHA-256-PLUS"), "the gateway offers it: {reply:?}");
        assert!(reply.contains(&format!("\0C{code}\0")) && reply.contains(text), "{reply:?}");
    }
    gateway.wait_metric("weir_defensive_closes_total", &[("reason", "postgres_scram")], 2.0);
}

/// All that the gateway says to a client that begins SCRAM with `header`, and binds to nonsense.
fn scram(gateway: &Gateway, files: &Certificates, header: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(gateway.address.tcp()).expect("connected");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit");
    let mut out = Vec::new();
    frontend::ssl_request(&mut out);
    socket.write_all(&out).expect("sent");
    let mut accepted = [0];
    socket.read_exact(&mut accepted).expect("a byte");
    assert_eq!(&accepted, b"S");
    let name = ServerName::try_from("localhost").expect("a name");
    let mut stream = StreamOwned::new(ClientConnection::new(files.client_config(), name).expect("a client"), socket);
    let (mut out, mut all) = (Vec::new(), Vec::new());
    frontend::startup(&mut out, Version::V3_0, [(&b"user"[..], USER.as_bytes())]);
    stream.write_all(&out).expect("sent");
    let is_bound = header.starts_with(b"p");
    let mechanism = if is_bound { "SCRAM-SHA-256-PLUS" } else { "SCRAM-SHA-256" };
    out.clear();
    frontend::sasl_initial(&mut out, mechanism.as_bytes(), Some(&[header, b"n=,r=abc"].concat()));
    stream.write_all(&out).expect("sent");
    if is_bound {
        let nonce = loop {
            let mut piece = [0; 4096];
            let count = stream.read(&mut piece).expect("a challenge");
            assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&all));
            all.extend_from_slice(&piece[..count]);
            let text = String::from_utf8_lossy(&all).into_owned();
            if let Some((_, rest)) = text.split_once("r=abc") {
                break rest.split(',').next().expect("a nonce").to_owned();
            }
        };
        // `p=tls-server-end-point,,` and three bytes that are no hash.
        let proof = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        let last = format!("c=cD10bHMtc2VydmVyLWVuZC1wb2ludCwsYWJj,r=abc{nonce},p={proof}");
        out.clear();
        frontend::sasl_response(&mut out, last.as_bytes());
        stream.write_all(&out).expect("sent");
    }
    // The gateway ends the connection; whether with an alert or not is no matter here.
    let _ = stream.read_to_end(&mut all);
    all
}
