//! `weir lab origin tcp`.

use std::{str::FromStr, time::Duration};

use clap::Args;
use weir_engine::settings::Address;
use weir_origin::tcp::TcpOriginSettings;

/// Start a synthetic TCP server that sends back every byte.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  weir lab origin tcp --bind 127.0.0.1:8082\n  \
                  weir lab load examples/lab/tcp.toml --target 127.0.0.1:8082\n\n\
                  Each received chunk counts as a request.")]
pub struct TcpArgs {
    /// Address, or unix:/path; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8082", value_parser = Address::from_str)]
    bind: Address,

    /// Worker threads.
    #[arg(long, default_value_t = 1)]
    workers: usize,

    /// Wait before sending received bytes back, for example 1ms.
    #[arg(long, value_parser = super::duration)]
    delay: Option<Duration>,
}

pub fn run(args: &TcpArgs) -> Result<(), String> {
    let settings = TcpOriginSettings {
        bind: args.bind.clone(),
        workers: args.workers,
        delay: args.delay.unwrap_or_default(),
        ..TcpOriginSettings::default()
    };
    let origin = weir_origin::tcp::start(settings).map_err(|error| error.to_string())?;
    super::serve("tcp", origin)
}
