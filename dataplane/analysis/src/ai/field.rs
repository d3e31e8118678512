//! The members that are looked at.

/// A member of a body, by its meaning. Endpoints spell some of them differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// The body itself.
    Body,
    /// `model`
    Model,
    /// `stream`
    Stream,
    /// `stream_options`
    StreamOptions,
    /// `stream_options.include_usage`
    IncludeUsage,
    /// `max_tokens`
    MaxTokens,
    /// `max_completion_tokens`
    MaxCompletionTokens,
    /// `max_output_tokens`
    MaxOutputTokens,
    /// `n`
    Count,
    /// `best_of`
    BestOf,
    /// `temperature`
    Temperature,
    /// `user`, `metadata.user_id`
    User,
    /// `safety_identifier`
    SafetyIdentifier,
    /// `prompt_cache_key`
    PromptCacheKey,
    /// `previous_response_id`
    PreviousResponse,
    /// `conversation`, `conversation.id`
    Conversation,
    /// `service_tier`
    ServiceTier,
    /// `store`
    Store,
    /// `background`
    Background,
    /// `reasoning`, `thinking`
    Reasoning,
    /// `reasoning_effort`, `reasoning.effort`, `thinking.type`
    ReasoningMode,
    /// `metadata`
    Metadata,
    /// `tools`, `functions`
    Tools,
    /// An item of them.
    Tool,
    /// `tools[].type`
    ToolType,
    /// `tools[].function.name`, `tools[].name`, `functions[].name`
    FunctionName,
    /// `tools[].custom.name`
    CustomName,
    /// `tools[].function.description`, `tools[].custom.description`, `tools[].description`
    ToolDescription,
    /// `mcp_servers`, whose tools the provider calls itself
    Servers,
    /// An item of them.
    Server,
    /// `web_search_options`, with which the provider searches itself
    WebSearch,
    /// `tool_choice`, `function_call`
    Choice,
    /// `tool_choice.type`
    ChoiceType,
    /// `tool_choice.function.name`, `tool_choice.name`
    ChoiceName,
    /// `messages`, `input`, `prompt`
    Messages,
    /// An item of them.
    Message,
    /// An item of `input` or `prompt` that is a prompt, or a token of one.
    PromptItem,
    /// `messages[].role`
    Role,
    /// `input[].type`
    ItemType,
    /// A text of a message.
    Text,
    /// A text that a tool has returned.
    ResultText,
    /// `suffix`, `prediction.content`: a text beside the messages.
    Beside,
    /// `messages[].content[].source`
    Source,
    /// `source` within the result of a tool.
    ResultSource,
    /// `source.type`
    SourceType,
    /// `source.data`
    SourceData,
    /// `instructions`, `system`
    Instructions,
    /// A text of them.
    InstructionsText,
    /// A call of a tool in a message.
    Call,
    /// The name of the tool that is called.
    CallName,
    /// Its arguments.
    CallArguments,
}

impl Field {
    /// The name for a client's error, in the words of its request.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Body => "body",
            Self::Model => "model",
            Self::Stream => "stream",
            Self::StreamOptions => "stream_options",
            Self::IncludeUsage => "stream_options.include_usage",
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::MaxOutputTokens => "max_output_tokens",
            Self::Count => "n",
            Self::BestOf => "best_of",
            Self::Temperature => "temperature",
            Self::User => "user",
            Self::SafetyIdentifier => "safety_identifier",
            Self::PromptCacheKey => "prompt_cache_key",
            Self::PreviousResponse => "previous_response_id",
            Self::Conversation => "conversation",
            Self::ServiceTier => "service_tier",
            Self::Store => "store",
            Self::Background => "background",
            Self::Reasoning | Self::ReasoningMode => "reasoning",
            Self::Metadata => "metadata",
            Self::Tools
            | Self::Tool
            | Self::ToolType
            | Self::FunctionName
            | Self::CustomName
            | Self::ToolDescription => "tools",
            Self::Servers | Self::Server => "mcp_servers",
            Self::WebSearch => "web_search_options",
            Self::Choice | Self::ChoiceType | Self::ChoiceName => "tool_choice",
            Self::Instructions | Self::InstructionsText => "instructions",
            _ => "messages",
        }
    }
}
