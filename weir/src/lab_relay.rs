//! `weir lab relay`: the least that a relay can cost.

use std::{net::SocketAddr, time::Duration};

use clap::Args;
use weir_origin::relay::{self, PAUSE, Way};

use crate::origin::duration;

/// Relay bytes with as little work as can be: the peer `floor` of `weir lab compare`. One thread; no policy, no limit, no counter,
/// and clients that it trusts. A measure and no gateway.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir lab relay --listen 7000 --origin 127.0.0.1:6379\n  weir lab relay --listen 7000 --origin 127.0.0.1:8081 --pairs"
)]
pub struct RelayArgs {
    /// Port on 127.0.0.1.
    #[arg(long, value_name = "PORT")]
    listen: u16,

    /// The server.
    #[arg(long, value_name = "ADDRESS:PORT")]
    origin: SocketAddr,

    /// A connection to the server for each client, whatever they speak. Without it: one for all clients of Redis.
    #[arg(long)]
    pairs: bool,

    /// How long a turn waits for more replies while some are due; without it 200us.
    #[arg(long, value_name = "TIME", conflicts_with = "pairs", value_parser = duration)]
    pause: Option<Duration>,
}

pub fn run(args: &RelayArgs) -> Result<(), String> {
    let way = if args.pairs { Way::Pairs } else { Way::Shared { pause: args.pause.unwrap_or(PAUSE) } };
    relay::run(args.listen, args.origin, way).map_err(|error| format!("{error:#}"))
}
