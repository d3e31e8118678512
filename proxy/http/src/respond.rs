//! Responses in the gateway's own name.

use std::cell::RefCell;

use weir_base::time::Time;
use weir_listener::CloseReason;

use crate::{
    asked::Asked,
    client::{After, Client},
    connection::Connection,
    doors::Whole,
    failure::{Failure, INSPECTED},
    inspecting::Inspecting,
    refusal::Refusal,
    response::OwnAnswer,
    upgrade::Wish,
    waiting::Cut,
};

/// Answers without an upstream. `outcome`: the word for it, `ok` for what the route is for.
pub(crate) fn answer(client: &mut impl Client, asked: &Asked, answer: &OwnAnswer, outcome: &'static str) -> After {
    // A 2xx would mean that the WebSocket stands (RFC 8441 section 5).
    let is_misleading = asked.version.is_multiplexed() && asked.wish != Wish::None;
    if is_misleading && (200..300).contains(&answer.head.status()) {
        return refuse(client, asked, Refusal::CONNECT_PROTOCOL);
    }
    let reason = if outcome == "ok" { "answered" } else { outcome };
    let after = client.reply(asked, answer, false, reason);
    client.connection().answered(asked, answer.head.status(), None, "", outcome);
    after
}

/// Answers with a response of another room.
pub(crate) fn whole(client: &mut impl Client, asked: &Asked, whole: Whole, outcome: &'static str) -> After {
    let Whole { status, fields, body } = whole;
    self::answer(client, asked, &OwnAnswer::new(status, b"", body).with_own(fields).with(&asked.own_fields()), outcome)
}

/// Breaks off a response of which the client has a part.
pub(crate) fn broke_off(connection: &Connection, asked: &Asked, status: u16, reason: CloseReason) -> After {
    connection.broke_off(asked, status, None, "", reason);
    After::Broken(reason)
}

/// Refuses a request that goes to no upstream.
pub(crate) fn refuse(client: &mut impl Client, asked: &Asked, refusal: Refusal) -> After {
    refuse_for(client, asked, refusal, None, "")
}

/// Refuses a request in place of this upstream, which had it at `sent`.
pub(crate) fn refuse_for(
    client: &mut impl Client,
    asked: &Asked,
    refusal: Refusal,
    sent: Option<Time>,
    upstream: &str,
) -> After {
    let connection = client.connection().clone();
    let own = asked.answer_fields.get().map(|answer| answer.own());
    let answer = refusal.answer(own, connection.service.sessions.chance());
    let after = client.reply(asked, &answer, refusal.closes, refusal.reason);
    connection.answered(asked, refusal.status, sent, upstream, refusal.reason);
    after
}

/// Refuses a request with the response of its inspection.
pub(crate) fn inspected(client: &mut impl Client, asked: &Asked, inspecting: &mut Inspecting) -> After {
    match inspecting.refused() {
        Some(refused) => whole(client, asked, refused, INSPECTED),
        None => refuse(client, asked, Refusal::POLICY_FAILED),
    }
}

/// Ends a request before it had an upstream, because its wait was cut short.
pub(crate) fn cut_short(client: &mut impl Client, asked: &Asked, cut: Cut) -> After {
    let failure = match cut {
        Cut::Broken(broken) => client.connection().unread(broken),
        Cut::Gone | Cut::Late => Failure::ClientGone,
    };
    unread(client, asked, failure, "", None)
}

/// Ends a request that did not come to its end before an origin was asked.
pub(crate) fn unread(
    client: &mut impl Client,
    asked: &Asked,
    failure: Failure,
    upstream: &str,
    inspecting: Option<&RefCell<Inspecting>>,
) -> After {
    match (failure, inspecting) {
        (Failure::Inspected, Some(inspecting)) => inspected(client, asked, &mut inspecting.borrow_mut()),
        (Failure::Client(refusal), _) => {
            client.connection().at_fault(&refusal);
            refuse(client, asked, refusal)
        }
        (Failure::Unwilling(refusal), _) => refuse(client, asked, refusal),
        _ => {
            client.connection().abandoned(asked, None, upstream);
            After::Close(CloseReason::ClientReset)
        }
    }
}
