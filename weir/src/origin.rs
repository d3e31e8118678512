//! `weir lab origin`: synthetic back ends, a file for each.

use std::time::Duration;

use clap::Subcommand;
use weir_base::secret::Secret;

mod ai;
mod flags;
mod http;
mod mongodb;
mod postgres;
mod redis;
mod tcp;

/// Start a synthetic server as the back end of a test.
#[derive(Debug, Subcommand)]
pub enum OriginCommand {
    Ai(ai::AiArgs),
    Flags(flags::FlagsArgs),
    Http(http::HttpArgs),
    Mongodb(mongodb::MongodbArgs),
    Postgres(postgres::PostgresArgs),
    Redis(redis::RedisArgs),
    Tcp(tcp::TcpArgs),
}

pub fn run(command: &OriginCommand) -> Result<(), String> {
    match command {
        OriginCommand::Ai(args) => ai::run(args),
        OriginCommand::Flags(args) => flags::run(args),
        OriginCommand::Http(args) => http::run(args),
        OriginCommand::Mongodb(args) => mongodb::run(args),
        OriginCommand::Postgres(args) => postgres::run(args),
        OriginCommand::Redis(args) => redis::run(args),
        OriginCommand::Tcp(args) => tcp::run(args),
    }
}

/// Until it is interrupted.
fn serve(protocol: &str, origin: weir_origin::Origin) -> Result<(), String> {
    for address in origin.addresses() {
        println!("{protocol} origin on {address}");
    }
    crate::run::control_runtime()?.block_on(crate::run::until_interrupted());
    let stats = origin.stats();
    println!("{} requests on {} connections", stats.requests, stats.accepted);
    origin.stop().map_err(|error| error.to_string())
}

/// The value of the environment variable with this name; `None`: no name was given.
fn password(variable: Option<&str>) -> Result<Option<Secret>, String> {
    let value = |name| std::env::var(name).map_err(|_| format!("${name} is not set"));
    Ok(variable.map(value).transpose()?.map(Secret::from))
}

/// A whole number and `us`, `ms` or `s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..split].parse().map_err(|_| "a number with a unit, for example 5ms".to_owned())?;
    match &text[split..] {
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err("the unit is us, ms or s".to_owned()),
    }
}
