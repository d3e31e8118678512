//! The validation of tokens: those of the start, those of clients, and known ones again.

use std::rc::Rc;

use weir_base::time::turn;
use weir_flags_codec::tokens::{TokensToValidate, ValidatedTokens};
use weir_flags_session::{Standing, limits::TOKEN_BATCH_INTERVAL};

use super::{Desk, upstream::Call};
use crate::{edge::Watched, settings::UpstreamSource};

/// Validates tokens for as long as the keeper lives.
pub(super) async fn run(desk: Rc<Desk>, source: UpstreamSource) {
    let mut failure = None;
    loop {
        want_all(&desk, &source);
        let batch = desk.state.borrow_mut().tokens().next_batch(turn::now());
        if let Some(batch) = batch {
            validate(&desk, &source, &batch, &mut failure).await;
        }
        if has_open(&desk, &source) {
            // A batch per second, whatever comes meanwhile.
            weir_engine::sleep(TOKEN_BATCH_INTERVAL).await;
        } else {
            let due = desk.state.borrow_mut().tokens().due_in(turn::now());
            let wait = due.map(|due| due.max(TOKEN_BATCH_INTERVAL));
            match wait {
                Some(wait) => drop(weir_engine::timeout(wait, desk.edge.signal.wait()).await),
                None => desk.edge.signal.wait().await,
            }
        }
    }
}

/// Notes the tokens that clients have sent, and those of the start that are not good yet.
fn want_all(desk: &Desk, source: &UpstreamSource) {
    if desk.is_over.get() {
        return;
    }
    let (wanted, now) = (desk.edge.take_wanted(), turn::now());
    let mut state = desk.state.borrow_mut();
    for token in &*source.tokens {
        let text = token.secret().expose_str().unwrap_or_default();
        if !state.is_revoked(text.as_bytes()) && state.tokens().find(text, now) == Standing::Invalid {
            // A token that is created later is good then, without a restart.
            state.tokens().doubt(text);
        }
        state.tokens().want(text, now);
    }
    let table = state.tokens();
    // A token that is known by now waits no longer, and one without room is to come again.
    let settled: Vec<String> = wanted.into_iter().filter(|text| !table.want(text, now)).collect();
    desk.edge.settle(&settled);
}

/// A token of the start is not good yet, or a token waits for a verdict.
fn has_open(desk: &Desk, source: &UpstreamSource) -> bool {
    let mut state = desk.state.borrow_mut();
    let (table, now) = (state.tokens(), turn::now());
    let is_good = |text: &str| matches!(table.find(text, now), Standing::Valid(_));
    let all_good = source.tokens.iter().all(|token| is_good(token.secret().expose_str().unwrap_or_default()));
    table.has_pending() || !all_good
}

/// The reason why a batch has no verdict, which the log names once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Lost,
    Status(u16),
    Document,
}

async fn validate(desk: &Desk, source: &UpstreamSource, batch: &TokensToValidate, last: &mut Option<Failure>) {
    let outcome = desk.send(source, Call::post("/edge/validate", None, batch.to_json())).await;
    let verdict = match outcome {
        Some(Ok(response)) if response.status == 200 && response.is_whole => {
            ValidatedTokens::read(&response.body).map_err(|_| Failure::Document)
        }
        Some(Ok(response)) => Err(Failure::Status(response.status)),
        Some(Err(_)) | None => Err(Failure::Lost),
    };
    match verdict {
        Ok(mut verdict) => {
            if last.take().is_some() {
                tracing::info!("the server validates tokens again");
            }
            let changes = {
                let mut state = desk.state.borrow_mut();
                // The server's own response to polls is newer than its copy of the tokens.
                verdict.tokens.retain(|token| !state.is_revoked(token.token.as_bytes()));
                state.tokens().on_verdict(batch, &verdict, turn::now())
            };
            desk.edge.settle(&batch.tokens);
            note_bad(desk, source);
            desk.on_changes(&changes);
        }
        Err(failure) => {
            // It is no statement about a token: SDKs would give up for ever.
            if last.replace(failure) != Some(failure) {
                tracing::error!(?failure, tokens = batch.tokens.len(), "the server does not validate tokens");
            }
            let given_up = desk.state.borrow_mut().tokens().on_failure();
            if let Some(token) = given_up {
                desk.edge.settle(&[token]);
                // Its requests send it again, for as long as they wait.
                desk.publish_to(Watched::Verdicts);
            }
        }
    }
}

/// Says which tokens of the start are bad.
fn note_bad(desk: &Desk, source: &UpstreamSource) {
    let mut state = desk.state.borrow_mut();
    let (now, mut noted) = (turn::now(), Vec::new());
    for token in &*source.tokens {
        if state.tokens().find(token.secret().expose_str().unwrap_or_default(), now) == Standing::Invalid {
            noted.push(token.to_string());
        }
    }
    if noted != state.noted_bad {
        for token in &noted {
            tracing::error!(%token, "the server does not know a token of `tokens`; it is tried again each second");
        }
        state.noted_bad = noted;
    }
}
