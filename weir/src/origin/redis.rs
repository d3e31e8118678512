//! `weir lab origin redis`.

use std::{str::FromStr, time::Duration};

use clap::{Args, ValueEnum};
use weir_base::size::ByteSize;
use weir_engine::settings::Address;
use weir_origin::redis::{Faults, Mode, OriginSettings, Stall};

use super::{duration, serve};

/// Source of the replies.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeName {
    /// A small real store: strings, lists, hashes, sets, expiry, transactions, channels.
    Memory,
    /// Fixed replies, at the least possible cost.
    Fixed,
}

/// Start a synthetic Redis server: a small store in memory, or fixed replies with deliberate faults.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir lab origin redis --bind 127.0.0.1:6379\n  weir lab origin redis --mode fixed --payload 64KiB --delay 1ms --workers 2"
)]
pub struct RedisArgs {
    /// Address, or unix:/path; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:6379", value_parser = Address::from_str)]
    bind: Address,

    /// Source of the replies.
    #[arg(long, value_enum, default_value = "memory")]
    mode: ModeName,

    /// Worker threads; more than one only with fixed replies.
    #[arg(long, default_value_t = 1)]
    workers: usize,

    /// Size of the value in fixed replies.
    #[arg(long, default_value = "64", value_parser = ByteSize::from_str)]
    payload: ByteSize,

    /// Wait before each reply, for example 1ms.
    #[arg(long, value_parser = duration)]
    delay: Option<Duration>,

    /// Share of requests that end with an error, 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    error_ratio: f64,

    /// Share of requests that end by closing the connection, 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    disconnect_ratio: f64,

    /// Stall at regular intervals: INTERVAL,DURATION, for example 10s,100ms.
    #[arg(long, value_parser = stall)]
    stall: Option<Stall>,

    /// Environment variable with the password that clients must give.
    #[arg(long, value_name = "NAME")]
    password_env: Option<String>,
}

pub fn run(args: &RedisArgs) -> Result<(), String> {
    let settings = OriginSettings {
        bind: args.bind.clone(),
        workers: args.workers,
        mode: match args.mode {
            ModeName::Memory => Mode::Memory,
            ModeName::Fixed => Mode::Fixed { payload: args.payload.bytes() as usize },
        },
        faults: Faults {
            delay: args.delay.unwrap_or_default(),
            error_ratio: args.error_ratio,
            disconnect_ratio: args.disconnect_ratio,
            stall: args.stall,
            ..Faults::default()
        },
        password: super::password(args.password_env.as_deref())?,
        ..OriginSettings::default()
    };
    let origin = weir_origin::redis::start(settings).map_err(|error| error.to_string())?;
    serve("redis", origin)
}

fn stall(text: &str) -> Result<Stall, String> {
    let (every, lasting) = text.split_once(',').ok_or("two durations, for example 10s,100ms")?;
    Ok(Stall { every: duration(every)?, lasting: duration(lasting)? })
}
