//! Responses in the gateway's own name.

use weir_base::time::Time;
use weir_listener::CloseReason;

use crate::{
    asked::Asked,
    client::{After, Client},
    failure::Failure,
    local::Local,
    refusal::Refusal,
    upgrade::Wish,
    waiting::Cut,
};

/// Answers without an upstream.
pub(crate) fn local(client: &mut impl Client, asked: &Asked, local: Local) -> After {
    match local {
        Local::Refused(refusal) => refuse(client, asked, refusal),
        // A 2xx would mean that the WebSocket stands (RFC 8441 section 5).
        Local::Answered(answer)
            if asked.version.is_multiplexed()
                && asked.wish != Wish::None
                && (200..300).contains(&answer.head.status()) =>
        {
            refuse(client, asked, Refusal::CONNECT_PROTOCOL)
        }
        Local::Answered(answer) => {
            let after = client.reply(asked, &answer, false, "answered");
            client.connection().answered(asked, answer.head.status(), None, "", "ok");
            after
        }
    }
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

/// Ends a request before it had an upstream, because its wait was cut short.
pub(crate) fn cut_short(client: &mut impl Client, asked: &Asked, cut: Cut) -> After {
    let failure = match cut {
        Cut::Broken(broken) => client.connection().unread(broken),
        Cut::Gone | Cut::Late => Failure::ClientGone,
    };
    unread(client, asked, failure, "")
}

/// Ends a request that did not come to its end before an origin was asked.
pub(crate) fn unread(client: &mut impl Client, asked: &Asked, failure: Failure, upstream: &str) -> After {
    match failure {
        Failure::Client(refusal) => {
            client.connection().at_fault(&refusal);
            refuse(client, asked, refusal)
        }
        Failure::Unwilling(refusal) => refuse(client, asked, refusal),
        _ => {
            client.connection().abandoned(asked, None, upstream);
            After::Close(CloseReason::ClientReset)
        }
    }
}
