//! The requests: whole and as streams, of each endpoint and each fate.

use std::time::Duration;

use weir_base::Rng;

/// A model whose provider speaks OpenAI's dialect, with another one to follow.
pub const MODEL: &str = "m";

/// A model whose first provider speaks Anthropic's.
pub const CROSSED: &str = "crossed";

/// Output tokens that a request may have. No reply has as many.
pub const TOKENS_MAX: u64 = 600;

/// The name of a fate, and the directives that choose it. `WORD` is one of the request's own.
const FATES: [(&str, &str); 13] = [
    ("plain", ""),
    ("plain", ""),
    ("unreported", "usage=missing"),
    ("failed", "status=500"),
    ("limited", "status=429"),
    // The first try fails, and the next one is at another provider.
    ("retried", "status=500 fails=1 WORD"),
    ("closed", "fault=closed at=2"),
    ("cut", "fault=cut at=2"),
    // Behind the head of a response, and again at another provider if it was held.
    ("lost", "fault=closed at=2 fails=1 WORD"),
    ("slow", "gap=2ms events=40 bytes=2000"),
    ("late", "first=20ms"),
    ("reasoning", "reasoning=80 first=5ms gap=1ms"),
    ("reasoning", "reasoning=80 first=20ms"),
];

/// Behind the directives: the origin counts some tokens for the frame of a prompt, and the reservation of a very short one has none.
const WORDS: &str = "A prompt of this length reserves more tokens than the origin counts for its text and its frame.";

/// A request of the mix.
pub struct Request {
    pub path: &'static str,
    pub body: String,
    /// Its client leaves after so long.
    pub leaves_after: Option<Duration>,
}

impl Request {
    /// Request `number`, by chance. Its user names its fate.
    pub fn new(number: usize, rng: &mut Rng) -> Self {
        let (fate, directives) = FATES[rng.below(FATES.len() as u64) as usize];
        let directives = directives.replace("WORD", &format!("word={number:08x}"));
        let prompt = format!("[weir bytes={} events=6 {directives}] {WORDS}", rng.below(400));
        let stream = if rng.below(2) == 0 { ",\"stream\":true" } else { "" };
        let user = format!("{fate}-{number}");
        let reasoning = if fate == "reasoning" { ",\"reasoning_effort\":\"high\"" } else { "" };
        let messages = format!("\"messages\":[{{\"role\":\"user\",\"content\":\"{prompt}\"}}]");
        let limited = |name: &str| format!("\"{name}\":{TOKENS_MAX}{stream}");
        let (path, body) = match rng.below(10) {
            0..4 => {
                let body = format!("\"user\":\"{user}\",{}{reasoning},{messages}", limited("max_tokens"));
                ("/v1/chat/completions", format!("{{\"model\":\"{MODEL}\",{body}}}"))
            }
            4 | 5 => {
                let body = format!("\"user\":\"{user}\",{}{reasoning},{messages}", limited("max_tokens"));
                ("/v1/chat/completions", format!("{{\"model\":\"{CROSSED}\",{body}}}"))
            }
            6 => {
                let thinking = if fate == "reasoning" { ",\"thinking\":{\"type\":\"adaptive\"}" } else { "" };
                let body = format!("{}{thinking},{messages}", limited("max_tokens"));
                let user = format!("\"metadata\":{{\"user_id\":\"{user}\"}}");
                ("/v1/messages", format!("{{\"model\":\"{MODEL}\",{user},{body}}}"))
            }
            7 => {
                let reasoning = if fate == "reasoning" { ",\"reasoning\":{\"effort\":\"high\"}" } else { "" };
                let body = format!("{}{reasoning},\"input\":\"{prompt}\"", limited("max_output_tokens"));
                ("/v1/responses", format!("{{\"model\":\"{MODEL}\",\"user\":\"{user}\",{body}}}"))
            }
            8 => {
                let body = format!("{},\"prompt\":\"{prompt}\"", limited("max_tokens"));
                // Completions have no word for reasoning.
                let user = user.replace("reasoning", "late");
                ("/v1/completions", format!("{{\"model\":\"{MODEL}\",\"user\":\"{user}\",{body}}}"))
            }
            _ => {
                let user = user.replace("reasoning", "late");
                let body = format!("\"user\":\"{user}\",\"input\":\"{prompt}\",\"dimensions\":8");
                ("/v1/embeddings", format!("{{\"model\":\"{MODEL}\",{body}}}"))
            }
        };
        let leaves_after = (rng.below(5) == 0).then(|| Duration::from_millis(rng.below(30)));
        Self { path, body, leaves_after }
    }
}
