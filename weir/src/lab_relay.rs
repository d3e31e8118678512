//! `weir lab relay`: the least that a relay can cost.

use std::{net::SocketAddr, time::Duration};

use clap::Args;
use weir_origin::relay::{self, PAUSE, Way};

use crate::origin::duration;

/// Relay bytes with the least possible work, as the peer `floor` of `weir lab compare`.
///
/// The relay has one thread and no policies, limits or counters, and it trusts its clients. It shows the least cost of a relay, and is
/// not a gateway.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir lab relay --listen 7000 --origin 127.0.0.1:6379\n  weir lab relay --listen 7000 --origin 127.0.0.1:8081 --pairs"
)]
pub struct RelayArgs {
    /// Port to listen on, at 127.0.0.1.
    #[arg(long, value_name = "PORT")]
    listen: u16,

    /// Address of the server.
    #[arg(long, value_name = "ADDRESS:PORT")]
    origin: SocketAddr,

    /// Open one server connection per client, for any protocol. Without --pairs, all clients share one connection to a Redis server.
    #[arg(long)]
    pairs: bool,

    /// Pause before each poll while replies are due, so that more replies arrive together [default: 200us].
    #[arg(long, value_name = "TIME", conflicts_with = "pairs", value_parser = duration)]
    pause: Option<Duration>,
}

pub fn run(args: &RelayArgs) -> Result<(), String> {
    let way = if args.pairs { Way::Pairs } else { Way::Shared { pause: args.pause.unwrap_or(PAUSE) } };
    relay::run(args.listen, args.origin, way).map_err(|error| format!("{error:#}"))
}
