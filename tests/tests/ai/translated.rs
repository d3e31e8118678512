//! Each SDK in front of a provider that speaks the dialect of the other one: the same checks hold, as far as both dialects can say
//! the same, and the books agree.

use weir_tests::ai::{AiOrigin, KEY, Sdk, gateway};

use crate::{
    sdks::holds,
    through::{sums_agree, url},
};

/// Checks of other endpoints, and of members that Anthropic's dialect has not or has in another form. `openai_translated.py` has the
/// second ones in that form.
const OF_OPENAI_ALONE: [&str; 10] = [
    "chat_answers_whole",
    "a_large_reply_arrives_whole",
    "several_choices_and_a_limit_of_tokens",
    "a_cut_or_filtered_structure_and_a_refusal_are_told_apart",
    "responses_answer_whole",
    "responses_stream_in_the_order_that_accumulators_need",
    "responses_call_tools_and_parse",
    "completions_answer_and_stream",
    "embeddings_are_the_same_as_floats_and_as_base64",
    "every_status_has_its_error",
];

#[test]
fn the_checks_of_openai_hold_in_front_of_a_provider_of_messages() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = gateway(&origin, "anthropic", state.path(), "");
    holds(&Sdk::OpenAi.run_without(&url(&gateway), KEY, &OF_OPENAI_ALONE), 10);
    holds(&Sdk::OpenAi.run_translated(&url(&gateway), KEY), 7);
    sums_agree(&origin, gateway, state.path());
}

#[test]
fn the_checks_of_anthropic_hold_in_front_of_a_provider_of_chats() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = gateway(&origin, "openai", state.path(), "");
    // Counting tokens is another endpoint, without a counterpart.
    holds(&Sdk::Anthropic.run_without(&url(&gateway), KEY, &["tokens_are_counted"]), 9);
    holds(&Sdk::Anthropic.run_translated(&url(&gateway), KEY), 6);
    sums_agree(&origin, gateway, state.path());
}
