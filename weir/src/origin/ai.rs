//! `weir lab origin ai`.

use std::{str::FromStr, time::Duration};

use clap::Args;
use weir_base::size::ByteSize;
use weir_engine::settings::Address;
use weir_origin::ai::AiOriginSettings;

/// Start a synthetic OpenAI and Anthropic server.
///
/// It serves chat completions, responses, completions, embeddings, models and messages, as whole replies and as streams of events. Words
/// in a prompt select the reply, such as `[weir bytes=65536 events=64 gap=20ms fault=cut at=3]`. `GET /ledger` shows the billed tokens of
/// each request.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir lab origin ai --bind 127.0.0.1:8082\n  curl http://127.0.0.1:8082/v1/chat/completions -d '{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi [weir bytes=64]\"}]}'\n  OPENAI_BASE_URL=http://127.0.0.1:8082/v1 OPENAI_API_KEY=x python app.py\n  curl http://127.0.0.1:8082/ledger   # what was billed, request by request\n  weir lab load examples/lab/ai-llm.toml --target 127.0.0.1:8082"
)]
pub struct AiArgs {
    /// Address, or unix:/path; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8082", value_parser = Address::from_str)]
    bind: Address,

    /// Worker threads.
    #[arg(long, default_value_t = 1)]
    workers: usize,

    /// Size of the text of a reply, if the request sets no `bytes`.
    #[arg(long, default_value = "1KiB", value_parser = ByteSize::from_str)]
    payload: ByteSize,

    /// Number of events with text in a stream, if the request sets no `events`.
    #[arg(long, default_value_t = 16)]
    events: usize,

    /// Wait before the first event, or before a whole reply, for example 200ms.
    #[arg(long, value_parser = super::duration)]
    first: Option<Duration>,

    /// Wait before each further event, for example 20ms.
    #[arg(long, value_parser = super::duration)]
    gap: Option<Duration>,

    /// Seed of the words in texts, if the request sets no `word`.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Environment variable with the key that clients must present.
    #[arg(long, value_name = "NAME")]
    key_env: Option<String>,
}

pub fn run(args: &AiArgs) -> Result<(), String> {
    let settings = AiOriginSettings {
        bind: args.bind.clone(),
        workers: args.workers,
        seed: args.seed,
        payload: args.payload.as_usize(),
        events: args.events,
        first: args.first.unwrap_or_default(),
        gap: args.gap.unwrap_or_default(),
        key: super::password(args.key_env.as_deref())?,
        ..AiOriginSettings::default()
    };
    let origin = weir_origin::ai::start(settings).map_err(|error| error.to_string())?;
    super::serve("ai", origin)
}
