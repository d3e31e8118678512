//! Where each kind of body has its members. A body whose prompts nothing looks into is watched in fewer places, which
//! costs less.

use weir_json_codec::Node;

use super::endpoint::Endpoint;
use super::field::Field;

type Place = Node<Field>;

/// The members to watch in a body of this kind.
pub(super) fn of(endpoint: Endpoint, with_prompts: bool) -> &'static Place {
    match (endpoint, with_prompts) {
        (Endpoint::Chat, false) => &CHAT,
        (Endpoint::Chat, true) => &CHAT_PROMPTS,
        (Endpoint::Responses, false) => &RESPONSES,
        (Endpoint::Responses, true) => &RESPONSES_PROMPTS,
        (Endpoint::Completions, false) => &COMPLETIONS,
        (Endpoint::Completions, true) => &COMPLETIONS_PROMPTS,
        (Endpoint::Embeddings, false) => &EMBEDDINGS,
        (Endpoint::Embeddings, true) => &EMBEDDINGS_PROMPTS,
        (Endpoint::Messages, false) => &MESSAGES,
        (Endpoint::Messages, true) => &MESSAGES_PROMPTS,
    }
}

/// The members of all kinds, and those of one.
macro_rules! body {
    ($($own:expr),* $(,)?) => {
        Node::value(Field::Body).members(&[
            ("model", Node::value(Field::Model)),
            ("stream", Node::value(Field::Stream)),
            ("temperature", Node::value(Field::Temperature)),
            ("user", Node::value(Field::User)),
            ("service_tier", Node::value(Field::ServiceTier)),
            $($own),*
        ])
    };
}

/// Members of OpenAI's endpoints that generate text.
macro_rules! openai {
    ($($own:expr),* $(,)?) => {
        body![
            ("stream_options", STREAM_OPTIONS),
            ("n", Node::value(Field::Count)),
            ("safety_identifier", Node::value(Field::SafetyIdentifier)),
            ("prompt_cache_key", Node::value(Field::PromptCacheKey)),
            ("store", Node::value(Field::Store)),
            ("metadata", Node::value(Field::Metadata)),
            $($own),*
        ]
    };
}

macro_rules! chat {
    ($messages:expr, $tool:expr, $function:expr, $($own:expr),* $(,)?) => {
        openai![
            ("max_tokens", Node::value(Field::MaxTokens)),
            ("max_completion_tokens", Node::value(Field::MaxCompletionTokens)),
            ("reasoning_effort", Node::value(Field::ReasoningMode)),
            REASONING,
            THINKING,
            ("tools", Node::value(Field::Tools).items($tool)),
            ("functions", Node::value(Field::Tools).items($function)),
            ("web_search_options", Node::value(Field::WebSearch)),
            ("tool_choice", Node::value(Field::Choice).members(&[CHOICE_TYPE, ("function", CHOICE_NAME)])),
            ("function_call", Node::value(Field::Choice).members(&[("name", Node::value(Field::ChoiceName))])),
            ("messages", $messages),
            $($own),*
        ]
    };
}

macro_rules! responses {
    ($input:expr, $instructions:expr, $tool:expr) => {
        openai![
            ("max_output_tokens", Node::value(Field::MaxOutputTokens)),
            ("previous_response_id", Node::value(Field::PreviousResponse)),
            ("conversation", Node::value(Field::Conversation).members(&[("id", Node::value(Field::Conversation))])),
            ("background", Node::value(Field::Background)),
            REASONING,
            ("tools", Node::value(Field::Tools).items($tool)),
            (
                "tool_choice",
                Node::value(Field::Choice).members(&[CHOICE_TYPE, ("name", Node::value(Field::ChoiceName))])
            ),
            ("instructions", $instructions),
            ("input", $input),
        ]
    };
}

macro_rules! completions {
    ($prompt:expr, $($own:expr),* $(,)?) => {
        openai![
            ("max_tokens", Node::value(Field::MaxTokens)),
            ("best_of", Node::value(Field::BestOf)),
            ("prompt", $prompt),
            $($own),*
        ]
    };
}

macro_rules! messages {
    ($messages:expr, $system:expr, $tool:expr) => {
        body![
            ("max_tokens", Node::value(Field::MaxTokens)),
            ("metadata", Node::value(Field::Metadata).members(&[("user_id", Node::value(Field::User))])),
            THINKING,
            ("tools", Node::value(Field::Tools).items($tool)),
            ("mcp_servers", Node::value(Field::Servers).items(&SERVER)),
            (
                "tool_choice",
                Node::value(Field::Choice).members(&[CHOICE_TYPE, ("name", Node::value(Field::ChoiceName))])
            ),
            ("system", $system),
            ("messages", $messages),
        ]
    };
}

const STREAM_OPTIONS: Place =
    Node::value(Field::StreamOptions).members(&[("include_usage", Node::value(Field::IncludeUsage))]);
const REASONING: (&str, Place) =
    ("reasoning", Node::value(Field::Reasoning).members(&[("effort", Node::value(Field::ReasoningMode))]));
/// Anthropic's, which other servers take in chats, too.
const THINKING: (&str, Place) =
    ("thinking", Node::value(Field::Reasoning).members(&[("type", Node::value(Field::ReasoningMode))]));
const CHOICE_TYPE: (&str, Place) = ("type", Node::value(Field::ChoiceType));
const CHOICE_NAME: Place = Node::NEW.members(&[("name", Node::value(Field::ChoiceName))]);

static CHAT_TOOL: Place = Node::value(Field::Tool).members(&[
    ("type", Node::value(Field::ToolType)),
    ("function", Node::NEW.members(&[("name", Node::value(Field::FunctionName))])),
    ("custom", Node::NEW.members(&[("name", Node::value(Field::CustomName))])),
]);
/// In responses, in Anthropic's messages, and among the functions of early chats.
static NAMED_TOOL: Place = Node::value(Field::Tool)
    .members(&[("type", Node::value(Field::ToolType)), ("name", Node::value(Field::FunctionName))]);

/// A server of MCP, in Anthropic's messages.
static SERVER: Place = Node::value(Field::Server).members(&[("name", Node::value(Field::FunctionName))]);

/// The same with the texts in them.
const DESCRIPTION: (&str, Place) = ("description", Node::value(Field::ToolDescription));
static CHAT_TOOL_PROMPTS: Place = Node::value(Field::Tool).members(&[
    ("type", Node::value(Field::ToolType)),
    ("function", Node::NEW.members(&[("name", Node::value(Field::FunctionName)), DESCRIPTION])),
    ("custom", Node::NEW.members(&[("name", Node::value(Field::CustomName)), DESCRIPTION])),
]);
static NAMED_TOOL_PROMPTS: Place = Node::value(Field::Tool).members(&[
    ("type", Node::value(Field::ToolType)),
    ("name", Node::value(Field::FunctionName)),
    DESCRIPTION,
]);

/// Messages that are counted and nothing else.
const COUNTED: Place = Node::value(Field::Messages);
const INSTRUCTIONS: Place = Node::value(Field::Instructions);

static CHAT: Place = chat![COUNTED, &CHAT_TOOL, &NAMED_TOOL,];
static RESPONSES: Place = responses![COUNTED, INSTRUCTIONS, &NAMED_TOOL];
static COMPLETIONS: Place = completions![COUNTED.items(&PROMPT_ITEM),];
static EMBEDDINGS: Place = body![("input", COUNTED.items(&PROMPT_ITEM))];
static MESSAGES: Place = messages![COUNTED, INSTRUCTIONS, &NAMED_TOOL];

static CHAT_PROMPTS: Place = chat![
    COUNTED.items(&CHAT_MESSAGE),
    &CHAT_TOOL_PROMPTS,
    &NAMED_TOOL_PROMPTS,
    ("prediction", Node::NEW.members(&[("content", BESIDE.items(&BESIDE_PART))])),
];
static RESPONSES_PROMPTS: Place =
    responses![COUNTED.items(&RESPONSES_ITEM), INSTRUCTIONS.items(&SYSTEM_PART), &NAMED_TOOL_PROMPTS];
static COMPLETIONS_PROMPTS: Place = completions![COUNTED.items(&TEXT), ("suffix", BESIDE)];
static EMBEDDINGS_PROMPTS: Place = body![("input", COUNTED.items(&TEXT))];
static MESSAGES_PROMPTS: Place =
    messages![COUNTED.items(&ANTHROPIC_MESSAGE), INSTRUCTIONS.items(&SYSTEM_PART), &NAMED_TOOL_PROMPTS];

static TEXT: Place = Node::value(Field::Text);
static PROMPT_ITEM: Place = Node::value(Field::PromptItem);
const BESIDE: Place = Node::value(Field::Beside);
static BESIDE_PART: Place = Node::NEW.members(&[("text", BESIDE)]);
static TEXT_PART: Place = Node::NEW.members(&[("text", TEXT_VALUE), ("refusal", TEXT_VALUE)]);
static SYSTEM_PART: Place = Node::NEW.members(&[("text", Node::value(Field::InstructionsText))]);
const TEXT_VALUE: Place = Node::value(Field::Text);
const CALL_NAME: (&str, Place) = ("name", Node::value(Field::CallName));
const ARGUMENTS: Place = Node::value(Field::CallArguments);
const CALL_ARGUMENTS: (&str, Place) = ("arguments", ARGUMENTS);
const CALL_INPUT: (&str, Place) = ("input", ARGUMENTS);

/// Texts that a tool has returned: one, or parts; with what code and commands have written, and what a search has found.
const RESULT_TEXT: Place = Node::value(Field::ResultText);
const RESULT_OUTPUTS: [(&str, Place); 2] = [("stdout", RESULT_TEXT), ("stderr", RESULT_TEXT)];
static RESULT_PART: Place = Node::NEW.members(&[
    ("text", RESULT_TEXT),
    ("title", RESULT_TEXT),
    RESULT_OUTPUTS[0],
    RESULT_OUTPUTS[1],
    ("logs", RESULT_TEXT),
    ("content", RESULT_TEXT.items(&RESULT_INNER_PART)),
    (
        "source",
        Node::value(Field::ResultSource).members(&[
            SOURCE_TYPE,
            SOURCE_DATA,
            ("content", RESULT_TEXT.items(&RESULT_INNER_PART)),
        ]),
    ),
]);
static RESULT_INNER_PART: Place = Node::NEW.members(&[("text", RESULT_TEXT)]);
const SOURCE_TYPE: (&str, Place) = ("type", Node::value(Field::SourceType));
const SOURCE_DATA: (&str, Place) = ("data", Node::value(Field::SourceData));

static CHAT_CALL: Place = Node::value(Field::Call).members(&[
    ("function", Node::NEW.members(&[CALL_NAME, CALL_ARGUMENTS])),
    ("custom", Node::NEW.members(&[CALL_NAME, CALL_INPUT])),
]);
static CHAT_MESSAGE: Place = Node::value(Field::Message).members(&[
    ("role", Node::value(Field::Role)),
    ("content", TEXT_VALUE.items(&TEXT_PART)),
    ("refusal", TEXT_VALUE),
    // As DeepSeek and OpenRouter name what a model has thought.
    ("reasoning_content", TEXT_VALUE),
    ("reasoning", TEXT_VALUE),
    ("tool_calls", Node::NEW.items(&CHAT_CALL)),
    ("function_call", Node::value(Field::Call).members(&[CALL_NAME, CALL_ARGUMENTS])),
]);

/// A message, a call of a tool, its result, or a summary of reasoning. Calls of the provider's own tools have their arguments under
/// different names, one for each item.
static RESPONSES_ITEM: Place = Node::value(Field::Message).members(&[
    ("type", Node::value(Field::ItemType)),
    ("role", Node::value(Field::Role)),
    ("content", TEXT_VALUE.items(&TEXT_PART)),
    ("summary", Node::NEW.items(&TEXT_PART)),
    CALL_NAME,
    CALL_ARGUMENTS,
    CALL_INPUT,
    ("code", ARGUMENTS),
    ("action", ARGUMENTS),
    ("operation", ARGUMENTS),
    ("queries", ARGUMENTS),
    ("output", RESULT_TEXT.items(&RESULT_PART)),
    ("outputs", Node::NEW.items(&RESULT_PART)),
    ("results", Node::NEW.items(&RESULT_PART)),
]);

static ANTHROPIC_PART: Place = Node::value(Field::Call).members(&[
    ("text", TEXT_VALUE),
    ("thinking", TEXT_VALUE),
    CALL_NAME,
    CALL_INPUT,
    ("content", RESULT_TEXT.members(&RESULT_OUTPUTS).items(&RESULT_PART)),
    // Documents.
    ("title", TEXT_VALUE),
    ("context", TEXT_VALUE),
    (
        "source",
        Node::value(Field::Source).members(&[SOURCE_TYPE, SOURCE_DATA, ("content", TEXT_VALUE.items(&TEXT_PART))]),
    ),
]);
static ANTHROPIC_MESSAGE: Place = Node::value(Field::Message)
    .members(&[("role", Node::value(Field::Role)), ("content", TEXT_VALUE.items(&ANTHROPIC_PART))]);
