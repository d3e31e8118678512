//! The SDKs directly against the lab's origin: what is measured and checked in front of it is only worth something if it speaks as
//! providers do.

use weir_tests::ai::{AiOrigin, Sdk};
use weir_tests::suite::outcome::{TestOutcome, TestOutcomes};

/// Those that speak OpenAI's dialect beside its SDK for Python, and how many checks each has.
pub const FURTHER: [(Sdk, usize); 3] = [(Sdk::LangChain, 8), (Sdk::OpenAiNode, 12), (Sdk::Vercel, 8)];

/// At least `least` checks ran, and all hold.
pub fn holds(outcomes: &TestOutcomes, least: usize) {
    assert!(outcomes.problems.is_empty(), "{}", outcomes.problems.join("\n"));
    let failed: Vec<_> = outcomes.tests.iter().filter(|(_, end)| **end != TestOutcome::Passed).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(outcomes.tests.len() >= least, "only {} checks", outcomes.tests.len());
}

#[test]
fn every_check_of_openai_holds_directly() {
    let origin = AiOrigin::start();
    holds(&Sdk::OpenAi.run(&origin.url(), "k"), 22);
    let ledger = origin.ledger();
    let entries = ledger["entries"].as_array().expect("entries");
    let of = |end: &str| entries.iter().filter(|entry| entry["end"] == end).count();
    assert!(of("completed") > 100 && of("refused") > 9, "{}", ledger["totals"]);
    // The stream that is left early.
    assert_eq!(of("disconnected"), 1, "{}", ledger["totals"]);
    // A retry of the SDK says which try it is.
    assert!(entries.iter().any(|entry| entry["try"] == 2 && entry["status"] == 200), "{}", ledger["totals"]);
}

#[test]
fn every_check_of_anthropic_holds_directly() {
    let origin = AiOrigin::start();
    holds(&Sdk::Anthropic.run(&origin.url(), "k"), 10);
}

#[test]
fn every_check_of_langchain_and_of_node_holds_directly() {
    let origin = AiOrigin::start();
    for (sdk, least) in FURTHER {
        holds(&sdk.run(&origin.url(), "k"), least);
    }
}
