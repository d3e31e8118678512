//! `weir lab origin flags`.

use std::{str::FromStr, time::Duration};

use clap::Args;
use weir_engine::settings::Address;
use weir_origin::flags::{DataSet, FlagsOriginSettings, Token};

/// Start a synthetic Unleash server.
///
/// It serves the flags of a known data set by Unleash's client API: whole, as deltas and as streams of events. Tokens are validated,
/// and metrics are counted. `GET /lab/ledger` shows all requests, and further paths below `/lab` change flags and tokens, or let
/// replies fail.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir lab origin flags --bind 127.0.0.1:4242\n  curl -H 'Authorization: *:development.lab-backend' http://127.0.0.1:4242/api/client/features\n  weir lab origin flags --data small --edit-every 5s\n  weir lab origin flags --token backend=shop:production.s3cret\n  curl -X POST http://127.0.0.1:4242/lab/edit   # one change, now\n  curl http://127.0.0.1:4242/lab/ledger         # requests, metrics and validated tokens\n  weir lab load examples/lab/flags-client-large.toml --target 127.0.0.1:4242"
)]
pub struct FlagsArgs {
    /// Address, or unix:/path; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:4242", value_parser = Address::from_str)]
    bind: Address,

    /// Worker threads.
    #[arg(long, default_value_t = 1)]
    workers: usize,

    /// Data set: small (5 flags, 2 kB), large (350 flags, 100 kB) or huge (5,000 flags, 1.43 MB).
    #[arg(long, default_value = "large", value_parser = DataSet::from_str)]
    data: DataSet,

    /// Change a flag or a segment in this interval, for example 5s; without it nothing changes.
    #[arg(long, value_parser = super::duration, value_name = "TIME")]
    edit_every: Option<Duration>,

    /// A valid token, as backend=PROJECT:ENVIRONMENT.SECRET or frontend=…; repeat the option for more. Without it:
    /// *:development.lab-backend, *:development.lab-frontend, and both for production.
    #[arg(long, value_parser = Token::from_str, value_name = "KIND=TOKEN")]
    token: Vec<Token>,

    /// Leave out deltas and streams, as the open-source Unleash server does.
    #[arg(long)]
    no_deltas: bool,

    /// Wait before each reply, for example 5ms.
    #[arg(long, value_parser = super::duration)]
    delay: Option<Duration>,
}

pub fn run(args: &FlagsArgs) -> Result<(), String> {
    let defaults = FlagsOriginSettings::default();
    let settings = FlagsOriginSettings {
        bind: args.bind.clone(),
        workers: args.workers,
        data: args.data,
        edit_every: args.edit_every,
        tokens: if args.token.is_empty() { defaults.tokens } else { args.token.clone() },
        has_deltas: !args.no_deltas,
        delay: args.delay.unwrap_or_default(),
        ..FlagsOriginSettings::default()
    };
    let origin = weir_origin::flags::start(settings).map_err(|error| error.to_string())?;
    super::serve("flags", origin)
}
