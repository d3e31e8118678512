//! `stage [--direct-only] <folder> <program> [word ...]`: starts Redis and Valkey and a gateway in
//! front of each, runs a client suite in `folder` with their addresses in its environment, and then
//! judges the gateways: every permit back, no panic, clean exit.
//!
//! The suite reads `WEIR_TARGETS`: targets divided by `;`, each of seven words divided by blanks:
//! `name server via host port auth_port password`, where `server` is `redis` or `valkey`, `via` is
//! `direct` or `weir`, and `auth_port` asks for `password`. The direct targets are the control: a
//! test that fails there is wrong about the server, not about Weir.
//!
//! `WEIR_CLUSTERS` has a Redis Cluster in the same way, for clients that know clusters: `name via host port`, where the
//! port is that of one node, or of the gateway in front of all.
#![forbid(unsafe_code)]

use std::process::{Command, ExitCode};

use weir_tests::cluster::Cluster;
use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::port;
use weir_tests::server::{Kind, Options, Server};
use weir_tests::stream::Address;

/// Password of the ports that require one.
const PASSWORD: &str = "stage-password";

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let direct_only = words.first().is_some_and(|word| word == "--direct-only");
    if direct_only {
        words.remove(0);
    }
    let [folder, program, rest @ ..] = words.as_slice() else {
        eprintln!("usage: stage [--direct-only] <folder> <program> [word ...]");
        return ExitCode::from(2);
    };
    let mut targets = Vec::new();
    let mut servers = Vec::new();
    let mut gateways = Vec::new();
    for kind in Kind::ALL {
        let open = Server::start(kind);
        let closed = Server::start_with(kind, Options { password: Some(PASSWORD.to_owned()), ..Options::default() });
        targets.push(target(kind, "direct", &open.address, &closed.address));
        if !direct_only {
            let (gateway, auth_address) = gateway(&open);
            targets.push(target(kind, "weir", &gateway.address, &auth_address));
            gateways.push(gateway);
        }
        servers.extend([open, closed]);
    }
    let cluster = Cluster::start(Kind::Redis, 3, 1);
    let mut clusters = vec![format!("direct-cluster direct 127.0.0.1 {}", cluster.nodes[0].address.tcp().port())];
    if !direct_only {
        let config = Config::to_all(cluster.addresses()).workers(2).upstream("topology = \"cluster\"");
        let gateway = Gateway::start(config);
        clusters.push(format!("weir-cluster weir 127.0.0.1 {}", gateway.address.tcp().port()));
        gateways.push(gateway);
    }
    let status = Command::new(program)
        .args(rest)
        .current_dir(folder)
        .env("WEIR_TARGETS", targets.join(";"))
        .env("WEIR_CLUSTERS", clusters.join(";"))
        .status()
        .unwrap_or_else(|error| panic!("cannot start {program}: {error}"));
    for gateway in gateways {
        gateway.finish();
    }
    drop((servers, cluster));
    ExitCode::from(status.code().map_or(1, |code| code.clamp(0, 255) as u8))
}

/// A gateway with two workers, one open listener, and one that asks for a password.
fn gateway(server: &Server) -> (Gateway, Address) {
    let auth = Address::port(port::free());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = secret_file(folder.path(), "password", PASSWORD);
    let second = format!(
        "[[listener]]\nname = \"test-auth\"\nprotocol = \"redis\"\nbind = \"{}\"\n\
         upstream = \"server\"\n[listener.redis]\npassword = {{ file = \"{file}\" }}\n",
        auth.text()
    );
    let config = Config::to(&server.address).workers(2).tables(&second);
    // The file is read at start; the folder may go then.
    (Gateway::start(config), auth)
}

fn target(kind: Kind, via: &str, open: &Address, closed: &Address) -> String {
    format!(
        "{via}-{server} {server} {via} 127.0.0.1 {} {} {PASSWORD}",
        open.tcp().port(),
        closed.tcp().port(),
        server = kind.name(),
    )
}
