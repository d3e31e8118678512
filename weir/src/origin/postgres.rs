//! `weir lab origin postgres`.

use std::{str::FromStr, time::Duration};

use clap::Args;
use weir_base::size::ByteSize;
use weir_engine::settings::Address;
use weir_origin::postgres::PostgresOriginSettings;

/// Start a synthetic PostgreSQL server.
///
/// It computes the rows of a SELECT from its text and parameters, so that a client can detect a row of another request. Transaction
/// blocks, errors and prepared statements behave as in PostgreSQL 15. Writes are confirmed, but not stored.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir lab origin postgres --bind 127.0.0.1:5433\n  psql -h 127.0.0.1 -p 5433 -c 'SELECT abalance FROM pgbench_accounts WHERE aid = 7'\n  pgbench -h 127.0.0.1 -p 5433 -n -S -c 8 -T 5\n  weir lab load examples/lab/postgres-select.toml --target 127.0.0.1:5433"
)]
pub struct PostgresArgs {
    /// Address, or unix:/path; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:5433", value_parser = Address::from_str)]
    bind: Address,

    /// Worker threads.
    #[arg(long, default_value_t = 1)]
    workers: usize,

    /// Size of the row of a SELECT, except of a SELECT from the pgbench accounts.
    #[arg(long, default_value = "16", value_parser = ByteSize::from_str)]
    payload: ByteSize,

    /// Wait before each reply, for example 1ms.
    #[arg(long, value_parser = super::duration)]
    delay: Option<Duration>,

    /// Environment variable with the password that clients must prove by SCRAM-SHA-256.
    #[arg(long, value_name = "NAME")]
    password_env: Option<String>,
}

pub fn run(args: &PostgresArgs) -> Result<(), String> {
    let settings = PostgresOriginSettings {
        bind: args.bind.clone(),
        workers: args.workers,
        payload: args.payload.bytes() as usize,
        delay: args.delay.unwrap_or_default(),
        password: super::password(args.password_env.as_deref())?,
        ..PostgresOriginSettings::default()
    };
    let origin = weir_origin::postgres::start(settings).map_err(|error| error.to_string())?;
    super::serve("postgres", origin)
}
