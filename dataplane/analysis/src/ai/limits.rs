//! The budget of one body.

/// Tools of one body. Default 1,024; OpenAI takes 128.
pub const TOOLS_MAX: usize = 1024;

/// Texts of one body, if prompts are looked into. Default 16,384, which are 256 KiB of spans.
pub const SPANS_MAX: usize = 16 * 1024;

/// Tool calls of one body, if prompts are looked into. Default 4,096.
pub const CALLS_MAX: usize = 4 * 1024;

/// Tokens, or choices, that a body can request. Default 2^32: a larger number is a mistake or an attack on the
/// arithmetic behind it.
pub const TOKENS_MAX: u64 = 1 << 32;
