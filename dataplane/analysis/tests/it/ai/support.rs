//! Shared parts of the tests of AI bodies.

use weir_analysis::ai::{BodyError, BodyReader, Endpoint, Facts, Wanted, read};

/// The facts of `body`, which are the same wherever it is cut.
pub fn facts(endpoint: Endpoint, body: &str) -> Result<Facts, BodyError> {
    let wanted = Wanted { prompts: true };
    let whole = read(endpoint, body.as_bytes(), wanted);
    for cut in 0..=body.len() {
        let (first, second) = body.as_bytes().split_at(cut);
        let mut reader = BodyReader::new(endpoint, wanted);
        let pieces = reader.push(first).and_then(|()| reader.push(second)).and_then(|()| reader.finish());
        assert_eq!(pieces.map(|facts| *facts), whole, "{body} cut at {cut}");
    }
    if let Ok(facts) = &whole {
        let fewer = read(endpoint, body.as_bytes(), Wanted::default()).expect("fewer places, fewer mistakes");
        let mut tools = facts.tools.clone();
        // A text.
        tools.list.iter_mut().for_each(|tool| tool.description = None);
        assert_eq!((&fewer.options, &fewer.tools, fewer.messages), (&facts.options, &tools, facts.messages));
        assert!(fewer.prompts.texts.is_empty() && fewer.prompts.calls.is_empty());
    }
    whole
}

/// The facts of a body that has some.
pub fn valid(endpoint: Endpoint, body: &str) -> Facts {
    facts(endpoint, body).unwrap_or_else(|error| panic!("{body}: {error}"))
}
