//! `weir lab origin ai`.

use std::{str::FromStr, time::Duration};

use clap::Args;
use weir_base::size::ByteSize;
use weir_engine::settings::Address;
use weir_origin::ai::AiOriginSettings;

/// Start a synthetic OpenAI and Anthropic server: chat completions, responses, completions, embeddings, models and messages, whole and as
/// events. A request chooses its reply by words in its prompt, such as `[weir bytes=65536 events=64 gap=20ms fault=cut at=3]`; what it
/// costs stands in a ledger.
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

    /// Bytes of the text of a reply that names none.
    #[arg(long, default_value = "1KiB", value_parser = ByteSize::from_str)]
    payload: ByteSize,

    /// Events with text of a stream that names none.
    #[arg(long, default_value_t = 16)]
    events: usize,

    /// Wait before the first event, or before a whole reply, for example 200ms.
    #[arg(long, value_parser = super::duration)]
    first: Option<Duration>,

    /// Wait before each further event, for example 20ms.
    #[arg(long, value_parser = super::duration)]
    gap: Option<Duration>,

    /// Changes the words of texts whose request names none.
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
