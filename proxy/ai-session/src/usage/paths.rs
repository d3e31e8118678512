//! Where each dialect reports its figures.

use weir_json_codec::Node;

use crate::dialect::Dialect;

/// A figure of a report, or a mark of the event around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The object with the figures.
    Report,
    /// The same within a choice.
    ChoiceReport,
    Input,
    Output,
    Cached,
    CacheWrite,
    Reasoning,
    InputAudio,
    InputImage,
    OutputAudio,
    /// `choices` of a chunk.
    Choices,
}

/// The places of an event, or of a whole response.
pub(super) const fn of(dialect: Dialect) -> &'static Node<Place> {
    match dialect {
        Dialect::Chat => &CHAT,
        Dialect::Responses => &RESPONSES,
        Dialect::Anthropic => &ANTHROPIC,
    }
}

const INPUT_DETAILS: Node<Place> = Node::NEW.members(&[
    ("cached_tokens", Node::value(Place::Cached)),
    ("cache_write_tokens", Node::value(Place::CacheWrite)),
    ("audio_tokens", Node::value(Place::InputAudio)),
    ("image_tokens", Node::value(Place::InputImage)),
]);
const OUTPUT_DETAILS: Node<Place> = Node::NEW
    .members(&[("reasoning_tokens", Node::value(Place::Reasoning)), ("audio_tokens", Node::value(Place::OutputAudio))]);

/// In the words of chats and of responses: compatible servers mix them.
const OPENAI: Node<Place> = Node::value(Place::Report).members(OPENAI_FIGURES);
const OPENAI_FIGURES: &[(&str, Node<Place>)] = &[
    ("prompt_tokens", Node::value(Place::Input)),
    ("input_tokens", Node::value(Place::Input)),
    ("completion_tokens", Node::value(Place::Output)),
    ("output_tokens", Node::value(Place::Output)),
    ("prompt_tokens_details", INPUT_DETAILS),
    ("input_tokens_details", INPUT_DETAILS),
    ("completion_tokens_details", OUTPUT_DETAILS),
    ("output_tokens_details", OUTPUT_DETAILS),
    // DeepSeek's word.
    ("prompt_cache_hit_tokens", Node::value(Place::Cached)),
];

const REPORT_OF_ANTHROPIC: Node<Place> = Node::value(Place::Report).members(&[
    ("input_tokens", Node::value(Place::Input)),
    ("output_tokens", Node::value(Place::Output)),
    ("cache_read_input_tokens", Node::value(Place::Cached)),
    ("cache_creation_input_tokens", Node::value(Place::CacheWrite)),
    ("output_tokens_details", Node::NEW.members(&[("thinking_tokens", Node::value(Place::Reasoning))])),
]);

/// Moonshot reports within the choice.
static CHOICE: Node<Place> = Node::NEW.members(&[("usage", Node::value(Place::ChoiceReport).members(OPENAI_FIGURES))]);
static CHAT: Node<Place> =
    Node::NEW.members(&[("usage", OPENAI), ("choices", Node::value(Place::Choices).items(&CHOICE))]);
/// `usage` itself is that of a buffered response.
static RESPONSES: Node<Place> =
    Node::NEW.members(&[("usage", OPENAI), ("response", Node::NEW.members(&[("usage", OPENAI)]))]);
static ANTHROPIC: Node<Place> = Node::NEW
    .members(&[("usage", REPORT_OF_ANTHROPIC), ("message", Node::NEW.members(&[("usage", REPORT_OF_ANTHROPIC)]))]);
