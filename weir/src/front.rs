//! `weir redis`, `weir http`, `weir tcp`, `weir postgres`, `weir mongodb`, `weir ai`: the gateway in front of a server, without a file.
//!
//! The command line becomes the text of a `weir.toml`, which goes through the loader like any other. `--write` shows that text.
//!
//! | file | concept |
//! |---|---|
//! | `address` | the short forms of addresses |
//! | `file` | the configuration that a command means, as text |
//! | `probe` | one real request to the upstream, and the finding in a line |
//! | `redis`, `http`, `tcp`, `postgres`, `mongodb`, `ai` | one protocol each: its row, and its request |

pub mod address;
mod ai;
pub mod file;
mod http;
mod mongodb;
mod postgres;
pub mod probe;
mod redis;
mod tcp;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand, error::ErrorKind};
use weir_config::{Snapshot, surroundings::Machine};
use weir_engine::settings::Address;

use self::{file::GeneratedConfig, probe::ProbeConnection};
use crate::{check, gateway::Gateway, run, upgrade};

/// A protocol with a command of its own.
pub struct Protocol {
    /// The command, and the word of `protocol` in the file.
    pub word: &'static str,
    /// The help text of the command.
    about: &'static str,
    /// The port that `weir init` proposes for the listener.
    pub listen_port: u16,
    /// The usual port of the server.
    pub server_port: u16,
    /// Lines of TOML behind the keys of the listener: its own table; empty: none is needed.
    pub listener_table: &'static str,
    /// TLS to the server begins with a request in clear text; `None`: with its first byte.
    pub tls_request: Option<TlsRequest>,
    /// Sends one request and says in a few words which server responded, and how fast.
    ///
    /// # Errors
    /// In words: the server does not speak the protocol, or refuses.
    ask: fn(&mut ProbeConnection<'_>) -> Result<String, String>,
    /// A shell command that sends a request through a listener at this address to the upstream.
    try_it: fn(&Address) -> String,
}

/// The request for TLS within a protocol.
pub struct TlsRequest {
    /// Bytes of the client.
    pub request: &'static [u8],
    /// The byte of a server that has TLS.
    pub agreement: u8,
}

/// One row per protocol.
pub const PROTOCOLS: &[&Protocol] =
    &[&redis::PROTOCOL, &http::PROTOCOL, &tcp::PROTOCOL, &postgres::PROTOCOL, &mongodb::PROTOCOL, &ai::PROTOCOL];

/// The protocol of this word.
pub fn named(word: &str) -> Option<&'static Protocol> {
    PROTOCOLS.iter().copied().find(|protocol| protocol.word == word)
}

/// A command of [`PROTOCOLS`].
#[derive(Debug)]
pub struct FrontCommand {
    protocol: &'static Protocol,
    args: FrontArgs,
}

impl std::fmt::Debug for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word)
    }
}

#[derive(Clone, Debug, Args)]
struct FrontArgs {
    /// Address for clients: :PORT (on 127.0.0.1), HOST:PORT, 0.0.0.0:PORT for every interface, or unix:/path.
    #[arg(value_parser = address::listen)]
    listen: Address,

    /// Address of the server: HOST:PORT, :PORT (on 127.0.0.1), or unix:/path. `weir http` and `weir tcp` accept several.
    #[arg(required = true, value_parser = address::upstream)]
    upstream: Vec<Address>,

    /// Connect to the upstream with TLS and verify its certificate.
    #[arg(long)]
    tls_upstream: bool,

    /// Worker threads [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,

    /// Address of the admin server [default: 127.0.0.1:9900, or the next free port].
    #[arg(long, value_name = "ADDRESS", value_parser = address::admin)]
    admin: Option<SocketAddr>,

    /// Write the equivalent configuration to FILE and exit; `-` prints it.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,

    /// Let --write overwrite an existing file.
    #[arg(long, requires = "write")]
    force: bool,
}

impl FromArgMatches for FrontCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let found = matches.subcommand().and_then(|(word, matches)| Some((named(word)?, matches)));
        let (protocol, matches) = found.ok_or_else(|| clap::Error::new(ErrorKind::InvalidSubcommand))?;
        Ok(Self { protocol, args: FrontArgs::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for FrontCommand {
    fn augment_subcommands(command: Command) -> Command {
        PROTOCOLS.iter().fold(command, |command, protocol| {
            let own = FrontArgs::augment_args(Command::new(protocol.word)).about(protocol.about).after_help(format!(
                "Weir serves until Ctrl-C. It also sends one request to each server, and prints the result.\n\nExamples:\n  \
                 weir {0} :{1} 127.0.0.1:{2}\n  weir {0} 0.0.0.0:{1} {0}.internal:{2} --workers 2\n  \
                 weir {0} :{1} :{2} --write weir.toml   # then: weir run",
                protocol.word, protocol.listen_port, protocol.server_port
            ));
            command.subcommand(own)
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        named(name).is_some()
    }
}

/// Runs the command.
///
/// # Errors
/// In words: the file cannot be written, or the gateway cannot start.
pub fn run(command: &FrontCommand) -> Result<(), String> {
    let FrontCommand { protocol, args } = command;
    let meaning = GeneratedConfig {
        protocol,
        listen: args.listen.clone(),
        upstreams: args.upstream.clone(),
        is_tls: args.tls_upstream,
        workers: args.workers,
        admin: args.admin,
    };
    let text = meaning.text();
    let snapshot = checked(&text)?;
    if let Some(path) = &args.write {
        return file::write(path, &text, args.force);
    }
    // The process that an upgrade starts has the same command line; its user has seen the lines.
    let is_first = std::env::var_os(upgrade::VARIABLE).is_none();
    if is_first {
        // A server that is slow to respond, or away, does not delay the others' clients.
        let protocol = *protocol;
        std::thread::spawn(move || probe::print(protocol, &snapshot, "Weir serves nevertheless and keeps trying."));
    }
    let source = run::Source::Text { text, is_admin_open: args.admin.is_none() };
    let served = run::serve(&source, |gateway, admin| {
        if is_first {
            print_addresses(protocol, gateway, admin);
        }
    });
    served.map_err(|reason| match reason.starts_with("admin server: cannot bind") {
        true => format!("{reason} with --admin"),
        false => reason,
    })
}

/// The snapshot of a text that this program has made.
///
/// # Errors
/// How many mistakes there are, once standard error has them.
pub fn checked(text: &str) -> Result<Snapshot, String> {
    let machine = Machine::new(&|name| std::env::var(name).ok());
    weir_config::check(text, "the configuration that this means", Path::new(""), &machine).map_err(|diagnostics| {
        eprintln!("{diagnostics}");
        format!("{}; nothing was started", check::mistakes(&diagnostics))
    })
}

/// A line for each address that the user can open.
fn print_addresses(protocol: &Protocol, gateway: &Gateway, admin: SocketAddr) {
    for listener in &gateway.snapshot().listeners {
        let bound = gateway.bound(&listener.settings.name).unwrap_or_default();
        let example = bound.parse().map(|address| (protocol.try_it)(&reachable(address)));
        println!("{:<8} {bound:<24} try: {}", protocol.word, example.unwrap_or_default());
    }
    let wanted = gateway.snapshot().admin.bind;
    if admin != wanted {
        println!("{:<8} {wanted} is taken: this gateway has the next free port", "admin");
    }
    println!("{:<8} {:<24} try: weir top --admin http://{admin}", "admin", format!("http://{admin}"));
    println!("Ctrl-C drains and exits; a second one exits at once.");
}

/// An address at which this machine reaches the listener.
fn reachable(address: Address) -> Address {
    match address {
        Address::Socket(mut socket) if socket.ip().is_unspecified() => {
            let is_v4 = socket.is_ipv4();
            socket.set_ip(if is_v4 { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() });
            Address::Socket(socket)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use weir_config::ProtocolName;

    use super::*;

    #[test]
    fn every_row_is_a_protocol_of_the_file() {
        for protocol in PROTOCOLS {
            assert!(ProtocolName::ALL.iter().any(|name| name.name() == protocol.word), "{}", protocol.word);
        }
    }

    #[test]
    fn every_row_means_a_file_that_the_loader_takes() {
        for protocol in PROTOCOLS {
            for is_tls in [false, true] {
                let meaning = GeneratedConfig {
                    protocol,
                    listen: address::listen(":7001").expect("an address"),
                    upstreams: vec![address::upstream("server.internal:7002").expect("an address")],
                    is_tls,
                    workers: Some(2),
                    admin: Some(address::admin(":7003").expect("an address")),
                };
                let text = meaning.text();
                // Whether this machine has a bundle of authorities is not what is tested.
                let text = text.replace("[upstream.tls]", "[upstream.tls]\ninsecure_skip_verify = true");
                let snapshot = checked(&text).unwrap_or_else(|mistakes| panic!("{mistakes}\n{text}"));
                let listener = &snapshot.listeners[0];
                assert_eq!(listener.protocol_name.name(), protocol.word);
                assert_eq!(listener.settings.bind.to_string(), "127.0.0.1:7001");
                assert_eq!(snapshot.upstreams[0].settings.endpoints[0].to_string(), "server.internal:7002");
                assert_eq!(snapshot.upstreams[0].settings.tls.is_some(), is_tls);
                assert_eq!(snapshot.runtime.workers, Some(2));
                assert_eq!(snapshot.admin.bind.to_string(), "127.0.0.1:7003");
            }
        }
    }

    #[test]
    fn several_servers_of_redis_are_refused_with_the_remedy() {
        let meaning = GeneratedConfig {
            protocol: named("redis").expect("Redis"),
            listen: address::listen(":7001").expect("an address"),
            upstreams: [":1", ":2"].map(|text| address::upstream(text).expect("an address")).to_vec(),
            is_tls: false,
            workers: None,
            admin: None,
        };
        assert_eq!(checked(&meaning.text()).map(drop), Err("1 mistake; nothing was started".to_owned()));
    }

    #[test]
    fn a_listener_on_every_interface_is_tried_on_loopback() {
        for (bind, tried) in [("0.0.0.0:80", "127.0.0.1:80"), ("[::]:80", "[::1]:80"), ("10.0.0.1:80", "10.0.0.1:80")] {
            assert_eq!(reachable(bind.parse().expect("an address")).to_string(), tried);
        }
    }
}
