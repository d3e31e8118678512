//! `weir lab origin http`.

use std::{str::FromStr, time::Duration};

use clap::Args;
use weir_base::size::ByteSize;
use weir_engine::settings::Address;
use weir_origin::http::HttpOriginSettings;

/// Start a synthetic HTTP server with fixed replies.
///
/// The reply to `/N` has a body of N bytes. The same port speaks HTTP/1.1, HTTP/2 with prior knowledge, and WebSocket. WebSocket messages
/// are sent back.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir lab origin http --bind 127.0.0.1:8081\n  curl http://127.0.0.1:8081/1024\n  curl --http2-prior-knowledge http://127.0.0.1:8081/1024/word   # a body that begins with `word`\n  curl http://127.0.0.1:8081/requests   # number of responses (with --workers 1)"
)]
pub struct HttpArgs {
    /// Address, or unix:/path; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8081", value_parser = Address::from_str)]
    bind: Address,

    /// Worker threads.
    #[arg(long, default_value_t = 1)]
    workers: usize,

    /// Size of the body of `/`.
    #[arg(long, default_value = "128", value_parser = ByteSize::from_str)]
    payload: ByteSize,

    /// Wait before each reply, for example 1ms.
    #[arg(long, value_parser = super::duration)]
    delay: Option<Duration>,
}

pub fn run(args: &HttpArgs) -> Result<(), String> {
    let settings = HttpOriginSettings {
        bind: args.bind.clone(),
        workers: args.workers,
        payload: args.payload.bytes() as usize,
        delay: args.delay.unwrap_or_default(),
        ..HttpOriginSettings::default()
    };
    let origin = weir_origin::http::start(settings).map_err(|error| error.to_string())?;
    super::serve("http", origin)
}
