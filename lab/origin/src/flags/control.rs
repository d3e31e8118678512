//! The paths by which tests control the origin.

use weir_flags_codec::{DeltaEvent, FeaturesDocument, query, tokens::ValidatedTokens};

use super::{
    fault::Faults,
    ledger::Ledger,
    respond::{Whole, environment_of},
    route::Control,
    state::State,
    token::Token,
};

/// Edits of one request.
const EDITS_MAX: u64 = 10_000;

/// The reply to a request for such a path, behind its effect.
pub fn respond(state: &State, control: Control, query: &str, body: &[u8]) -> Whole {
    let done = match control {
        Control::Ledger => return Whole::json(200, state.lock().shown()),
        Control::ClearLedger => {
            state.lock().ledger = Ledger::default();
            Ok(None)
        }
        Control::Edit => count_of(query).map(|count| Some(state.edit(&environment_of(query), count))),
        Control::Replace => replace(state, query, body).map(Some),
        Control::Events => events(state, query, body).map(Some),
        Control::Broadcast => {
            state.change(|world| world.broadcast(body));
            Ok(None)
        }
        Control::Faults => serde_json::from_slice::<Faults>(body).map_err(|error| error.to_string()).map(|faults| {
            state.lock().faults = faults;
            None
        }),
        Control::ClearFaults => {
            state.lock().faults = Faults::default();
            Ok(None)
        }
        Control::Tokens => tokens(state, body).map(|()| None),
        Control::EndStreams => {
            state.change(|world| world.generation += 1);
            Ok(None)
        }
    };
    match done {
        Ok(Some(revision)) => Whole::json(200, format!("{{\"revision\":{revision}}}").into_bytes()),
        Ok(None) => Whole::json(200, b"{}".to_vec()),
        Err(message) => Whole::error(400, "BadDataError", &message),
    }
}

/// The number of edits: one if the query names none.
fn count_of(query: &str) -> Result<u64, String> {
    let Some((_, text)) = query::pairs(query).flatten().find(|(key, _)| key == "count") else { return Ok(1) };
    let count = text.parse().ok().filter(|count| (1..=EDITS_MAX).contains(count));
    count.ok_or_else(|| format!("count = {text}: from 1 to {EDITS_MAX}"))
}

fn replace(state: &State, query: &str, body: &[u8]) -> Result<u64, String> {
    let document = FeaturesDocument::read(body).map_err(|error| error.to_string())?;
    Ok(state.change(|world| {
        let environment = world.environment(&environment_of(query));
        environment.replace(document);
        environment.revision()
    }))
}

fn events(state: &State, query: &str, body: &[u8]) -> Result<u64, String> {
    let events = DeltaEvent::read_all(body).map_err(|error| error.to_string())?;
    Ok(state.change(|world| {
        let environment = world.environment(&environment_of(query));
        events.into_iter().for_each(|event| environment.apply(event.change));
        environment.revision()
    }))
}

fn tokens(state: &State, body: &[u8]) -> Result<(), String> {
    let named = ValidatedTokens::read(body).map_err(|error| error.to_string())?.tokens;
    let tokens: Option<Vec<Token>> = named.into_iter().map(Token::of_validated).collect();
    let tokens = tokens.ok_or("a token has another type than backend and frontend, or no environment")?;
    state.change(|world| {
        for token in &tokens {
            world.environment(&token.environment);
        }
        world.tokens = tokens;
    });
    Ok(())
}
