//! Connections to a server beside its pools, and what a server says when it refuses.

use std::cell::Cell;

use weir_engine::timeout;
use weir_postgres_codec::{backend::ErrorFields, frame, frontend, sqlstate};
use weir_postgres_session::{CancelTarget, Refusal};
use weir_upstream::pooled::AcquireError;

use crate::{
    cancel::CANCEL_TIMEOUT,
    cancelling::Underway,
    metrics::CancelOutcome,
    server::{PoolKey, encrypt},
    service::PostgresUpstream,
};

/// Cancels the query of a connection to endpoint number `number`. It is over once the server has closed the connection of the request:
/// its signal has been sent then. Without that the signal may come at any time. `underway` counts it meanwhile.
pub(crate) async fn cancel(
    upstream: &PostgresUpstream,
    number: usize,
    target: &CancelTarget,
    mut underway: Underway,
) -> CancelOutcome {
    let is_sent = Cell::new(false);
    let cancelling = async {
        let (mut stream, server) = upstream.connect_aside(number).await.ok()?;
        encrypt(&mut stream, &server).await.ok()?;
        is_sent.set(true);
        stream.output.with(|out| frontend::cancel_request(out, target.pid, &target.secret));
        underway.sent();
        loop {
            match stream.reader.receive().await {
                Ok(Some(_)) => {}
                Ok(None) => return Some(()),
                Err(_) => return None,
            }
        }
    };
    match timeout(CANCEL_TIMEOUT, cancelling).await {
        Ok(Some(())) => CancelOutcome::Forwarded,
        _ if is_sent.get() => CancelOutcome::Unconfirmed,
        _ => CancelOutcome::Failed,
    }
}

/// SQLSTATE and text for a client whose login finds no server.
pub(crate) fn login_failed(error: &AcquireError, key: &PoolKey) -> (&'static str, String) {
    let pool = key.to_string();
    let refusal = match error.refusal {
        weir_upstream::Refusal::Greeting => refusal_of(error.words.as_deref(), &pool),
        weir_upstream::Refusal::QueueTimeout | weir_upstream::Refusal::QueueFull => {
            let text = format!("no server of pool {pool} became free in time");
            return (sqlstate::TOO_MANY_CONNECTIONS, text);
        }
        _ => Refusal::unreachable(&pool),
    };
    (refusal.sqlstate, refusal.text.into_owned())
}

/// The refusal of a login in the words of the server, as far as they can be read.
pub(crate) fn refusal_of(words: Option<&[u8]>, pool: &str) -> Refusal {
    let fields = words.and_then(|words| ErrorFields::read(words.get(frame::HEAD_BYTES..)?).ok());
    let text = fields.and_then(|fields| fields.message()).map(String::from_utf8_lossy);
    let text = match text {
        Some(text) => text.into_owned(),
        None => format!("no server of pool {pool} accepts the login of the gateway"),
    };
    let code = fields.and_then(|fields| fields.sqlstate()).and_then(known);
    Refusal::fatal_error(code.unwrap_or(sqlstate::CONNECTION_FAILURE), text)
}

/// The refusal of a statement of the gateway's own, in the words of the server.
pub(crate) fn refusal_by(fields: &ErrorFields<'_>) -> Refusal {
    let text = fields.message().map(String::from_utf8_lossy).unwrap_or_default();
    let code = fields.sqlstate().and_then(known);
    Refusal::error(code.unwrap_or(sqlstate::INTERNAL_ERROR), text.into_owned())
}

/// Codes with which servers refuse logins, and LISTEN.
fn known(code: &str) -> Option<&'static str> {
    [
        "3D000", "28P01", "28000", "53300", "57P03", "57P01", "42501", "55000", "42704", "22023", "0A000", "25006",
        "42601",
    ]
    .into_iter()
    .find(|known| *known == code)
}
