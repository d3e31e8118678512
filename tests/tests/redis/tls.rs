//! TLS towards clients and towards the server, with and without certificates of the other side.

use weir_tests::certificate::Certificates;
use weir_tests::client::Client;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Options, Server};
use weir_tests::stream::Stream;
use weir_tests::wire::encode;

fn listener_lines(files: &Certificates, client_auth: &str) -> String {
    let authority = if client_auth == "off" {
        String::new()
    } else {
        format!("client_ca_file = \"{}\"\n", files.authority.display())
    };
    format!(
        "[listener.tls]\ncert_file = \"{}\"\nkey_file = \"{}\"\nclient_auth = \"{client_auth}\"\n{authority}",
        files.server.display(),
        files.server_key.display()
    )
}

#[test]
fn clients_reach_the_listener_over_tls() {
    let server = Server::start(Kind::Redis);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create(folder.path());
    let config = Config::to(&server.address).listener(&listener_lines(&files, "off"));
    let gateway = Gateway::start(config);
    let mut client = Client::connect_tls(gateway.address.tcp(), files.client_config());
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
    let pipeline: Vec<u8> = (0..1_000).flat_map(|n| encode(&["INCRBY", "n", &n.to_string()])).collect();
    client.send(&pipeline);
    let mut sum = 0;
    for number in 0..1_000 {
        sum += number;
        assert_eq!(client.reply(), format!(":{sum}\r\n").as_bytes());
    }
    for length in [1_000, 16_384, 16_385, 100_000, 3 << 20] {
        let value = "x".repeat(length);
        client.expect(&["SET", "k", &value], b"+OK\r\n");
        let wanted = format!("${length}\r\n{value}\r\n");
        assert!(client.call(&["GET", "k"]) == wanted.as_bytes());
    }
    assert_eq!(gateway.metric("weir_tls_handshakes_total"), 1.0);
}

#[test]
fn plain_text_on_a_tls_listener_is_refused_and_counted() {
    let server = Server::start(Kind::Redis);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create(folder.path());
    let config = Config::to(&server.address).listener(&listener_lines(&files, "off"));
    let gateway = Gateway::start(config);
    let mut client = gateway.connect();
    client.send(b"*1\r\n$4\r\nPING\r\n");
    let (_, end) = client.read_to_end(weir_tests::deadline::WAIT);
    assert_ne!(end, weir_tests::client::End::Silent);
    gateway.wait_metric("weir_tls_handshake_failures_total", &[], 1.0);
    let mut good = Client::connect_tls(gateway.address.tcp(), files.client_config());
    good.expect(&["PING"], b"+PONG\r\n");
}

#[test]
fn a_client_certificate_is_demanded() {
    let server = Server::start(Kind::Redis);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create(folder.path());
    let strangers = Certificates::create(&folder.path().join("strangers"));
    let config = Config::to(&server.address).listener(&listener_lines(&files, "required"));
    let gateway = Gateway::start(config);
    let mut client = Client::connect_tls(gateway.address.tcp(), files.client_config_with_certificate());
    client.expect(&["PING"], b"+PONG\r\n");
    let address = gateway.address.tcp();
    // With TLS 1.3 the refusal may come after the client's own handshake is done.
    let refused = |stream: std::io::Result<Stream>| match stream {
        Err(_) => true,
        Ok(stream) => {
            let mut client = Client::over(stream);
            let _ = client.try_send(b"PING\r\n");
            client.try_reply(weir_tests::deadline::WAIT).is_err()
        }
    };
    assert!(refused(Stream::connect_tls(address, files.client_config())));
    // A certificate of another authority: the server's one is not trusted by them either, so they
    // are made to trust it.
    let mixed = Certificates {
        authority: files.authority.clone(),
        server: files.server.clone(),
        server_key: files.server_key.clone(),
        client: strangers.client.clone(),
        client_key: strangers.client_key.clone(),
    };
    assert!(refused(Stream::connect_tls(address, mixed.client_config_with_certificate())));
    gateway.wait_metric("weir_tls_handshake_failures_total", &[], 2.0);
}

#[test]
fn an_optional_client_certificate_may_be_absent() {
    let server = Server::start(Kind::Redis);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create(folder.path());
    let config = Config::to(&server.address).listener(&listener_lines(&files, "optional"));
    let gateway = Gateway::start(config);
    for config in [files.client_config(), files.client_config_with_certificate()] {
        let mut client = Client::connect_tls(gateway.address.tcp(), config);
        client.expect(&["PING"], b"+PONG\r\n");
    }
}

fn tls_server(demand_clients: bool) -> Server {
    let options = Options { tls: true, tls_clients: demand_clients, ..Options::default() };
    Server::start_with(Kind::Redis, options)
}

fn towards(server: &Server, lines: &str) -> Config {
    let address = server.tls_address.as_ref().expect("the server has TLS");
    Config::to(address).upstream(&format!("[upstream.tls]\n{lines}"))
}

#[test]
fn the_gateway_reaches_the_server_over_tls() {
    let server = tls_server(false);
    let files = server.certificates.as_ref().expect("certificates");
    let lines = format!("ca_file = \"{}\"", files.authority.display());
    let gateway = Gateway::start(towards(&server, &lines));
    let mut client = gateway.connect();
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
    client.expect(&["WATCH", "k"], b"+OK\r\n");
    client.expect(&["UNWATCH"], b"+OK\r\n");
    let value = "y".repeat(2 << 20);
    client.expect(&["SET", "large", &value], b"+OK\r\n");
    assert!(client.call(&["GET", "large"]).ends_with(b"yy\r\n"));
}

#[test]
fn a_server_of_an_unknown_authority_is_not_trusted() {
    let server = tls_server(false);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let strangers = Certificates::create(folder.path());
    let lines = format!("ca_file = \"{}\"", strangers.authority.display());
    let gateway = Gateway::start_unready(towards(&server, &lines));
    let mut client = gateway.connect();
    let reply = client.call(&["GET", "k"]);
    assert!(reply.starts_with(b"-ERR weir: "), "{}", String::from_utf8_lossy(&reply));
    assert_eq!(server.calls("get"), 0);
}

#[test]
fn a_server_may_be_reached_without_verification_when_configured() {
    let server = tls_server(false);
    let gateway = Gateway::start(towards(&server, "insecure_skip_verify = true"));
    gateway.connect().expect(&["SET", "k", "v"], b"+OK\r\n");
}

#[test]
fn the_gateway_shows_its_own_certificate_to_the_server() {
    let server = tls_server(true);
    let files = server.certificates.as_ref().expect("certificates");
    let lines = format!(
        "ca_file = \"{}\"\ncert_file = \"{}\"\nkey_file = \"{}\"",
        files.authority.display(),
        files.client.display(),
        files.client_key.display()
    );
    let gateway = Gateway::start(towards(&server, &lines));
    gateway.connect().expect(&["SET", "k", "v"], b"+OK\r\n");
}

#[test]
fn tls_on_both_sides() {
    let server = tls_server(false);
    let upstream = server.certificates.as_ref().expect("certificates");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create(folder.path());
    let lines = format!("ca_file = \"{}\"", upstream.authority.display());
    let config = towards(&server, &lines).listener(&listener_lines(&files, "off"));
    let gateway = Gateway::start(config);
    let mut client = Client::connect_tls(gateway.address.tcp(), files.client_config());
    client.expect(&["HSET", "h", "f", "v"], b":1\r\n");
    client.expect(&["HGET", "h", "f"], b"$1\r\nv\r\n");
}
