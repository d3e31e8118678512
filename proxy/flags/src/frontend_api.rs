//! The API of SDKs in browsers and apps, which get results: `/api/frontend` and `/api/proxy`.

use std::cell::RefCell;

use weir_base::Rng;
use weir_flags_codec::{Context, ContextError, ContextField, Timestamp, etag::EntityTag};
use weir_flags_session::{Decisions, Listing};
use weir_http::{
    compression::{Coding, accepted},
    filter::{HandlerRequest, WholeResponse},
};
use weir_http_codec::Known;

use crate::{
    access::{Access, Denial, Sight},
    edge::{seed, unix_time},
    environment::Environment,
    limits::COMPRESS_MIN,
    reply,
    results::{Coded, Form},
    settings::FlagsListenerSettings,
};

/// The memory of evaluations on one worker.
struct Scratch {
    decisions: Decisions,
    rng: Rng,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        RefCell::new(Scratch { decisions: Decisions::default(), rng: Rng::new(seed()) });
}

/// The context of a request: its query, or its body.
///
/// # Errors
/// The response to one that is none.
pub(crate) fn context<'a>(
    request: &'a HandlerRequest,
    query: &'a str,
    is_post: bool,
    settings: &FlagsListenerSettings,
) -> Result<Context<'a>, WholeResponse> {
    let read = match is_post {
        true => {
            check_json(request)?;
            Context::from_json(body_or_empty(&request.body))
        }
        false => Context::from_query(query, settings.unknown_query_fields),
    };
    let mut context = read.map_err(refused)?;
    if context.field(ContextField::RemoteAddress).is_none() {
        context.set_field(ContextField::RemoteAddress, request.caller.client.to_string());
    }
    Ok(context)
}

/// A request without a body has an empty context.
fn body_or_empty(body: &[u8]) -> &[u8] {
    if body.is_empty() { b"{}" } else { body }
}

/// The response to a context that is none.
pub(crate) fn refused(error: ContextError) -> WholeResponse {
    let is_too_large = matches!(error, ContextError::TooLarge | ContextError::ValueTooLarge);
    let status = if is_too_large { 413 } else { 400 };
    reply::error(status, &error.to_string())
}

/// Refuses a body that is no JSON by its own words.
///
/// # Errors
/// The response.
pub(crate) fn check_json(request: &HandlerRequest) -> Result<(), WholeResponse> {
    let Some(value) = request.head.fields.get(Known::ContentType) else { return Ok(()) };
    let essence = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let is_json = essence.eq_ignore_ascii_case(b"application/json")
        || (essence.len() > 5 && essence[essence.len() - 5..].eq_ignore_ascii_case(b"+json"));
    // A simple request of a browser has this type if its program names none.
    let is_untyped = essence.is_empty() || essence.eq_ignore_ascii_case(b"text/plain");
    if is_json || is_untyped { Ok(()) } else { Err(reply::error(415, "the content type is not application/json")) }
}

/// All flags, or those that are on.
pub(crate) async fn evaluate(
    access: &Access,
    request: &HandlerRequest,
    listing: Listing,
    context: &Context<'_>,
) -> Result<WholeResponse, Denial> {
    let Sight { environment, scope } = access.sight()?;
    let (snapshot, fields) = (&environment.snapshot, &request.head.fields);
    let decided = SCRATCH.with_borrow_mut(|Scratch { decisions, rng }| {
        snapshot.decide(&scope.scope, listing, context, Timestamp::from_unix(unix_time()), rng, decisions);
        let tag = decisions.tag();
        if reply::has(fields, tag) {
            return Err(reply::not_modified(&tag.to_string()));
        }
        if let Some(known) = known(&environment, Form::Unleash, tag, decisions.bytes(), request) {
            return Err(known);
        }
        let mut body = Vec::with_capacity(decisions.bytes());
        decisions.write(snapshot, &mut body);
        Ok((body, tag))
    });
    Ok(match decided {
        Ok((body, tag)) => coded(&environment, Form::Unleash, tag, body, request).await,
        Err(response) => response,
    })
}

/// The coding of a response of so many bytes. `None`: it is too short, or the client accepts none.
fn coding_of(bytes: usize, request: &HandlerRequest) -> Option<Coding> {
    accepted(Coding::ALL, &request.head.fields).filter(|_| bytes >= COMPRESS_MIN)
}

/// The response in its coding, if another one with the same results was compressed of late.
pub(crate) fn known(
    environment: &Environment,
    form: Form,
    tag: EntityTag,
    bytes: usize,
    request: &HandlerRequest,
) -> Option<WholeResponse> {
    let coding = coding_of(bytes, request)?;
    let known = environment.results.find((form, tag, coding))?;
    Some(reply::tagged(known, &tag.to_string(), Some(coding)))
}

/// A response in a coding that the client accepts, if it is long enough.
pub(crate) async fn coded(
    environment: &Environment,
    form: Form,
    tag: EntityTag,
    body: Vec<u8>,
    request: &HandlerRequest,
) -> WholeResponse {
    let text = tag.to_string();
    let Some(coding) = coding_of(body.len(), request) else { return reply::tagged(body.into(), &text, None) };
    match environment.results.compress((form, tag, coding), body).await {
        Coded::Compressed(body) => reply::tagged(body, &text, Some(coding)),
        Coded::Plain(body) => reply::tagged(body, &text, None),
    }
}

/// One flag, on or off.
pub(crate) fn evaluate_one(
    access: &Access,
    request: &HandlerRequest,
    name: &str,
    context: &Context<'_>,
) -> Result<WholeResponse, Denial> {
    let Sight { environment, scope } = access.sight()?;
    let now = Timestamp::from_unix(unix_time());
    SCRATCH.with_borrow_mut(|Scratch { rng, .. }| {
        let Some((text, tag)) = environment.snapshot.decide_one(name, &scope.scope, context, now, rng) else {
            return Ok(reply::empty(404));
        };
        if reply::has(&request.head.fields, tag) {
            return Ok(reply::not_modified(&tag.to_string()));
        }
        Ok(reply::tagged(text.to_vec().into(), &tag.to_string(), None))
    })
}

/// The result of one flag as its document has it.
pub(crate) fn decided_text(sight: &Sight, name: &str, context: &Context<'_>) -> Option<Vec<u8>> {
    let now = Timestamp::from_unix(unix_time());
    SCRATCH.with_borrow_mut(|Scratch { rng, .. }| {
        sight
            .environment
            .snapshot
            .decide_one(name, &sight.scope.scope, context, now, rng)
            .map(|(text, _)| text.to_vec())
    })
}

/// The results of all flags as their document has them, with its tag.
pub(crate) fn decided_all(sight: &Sight, context: &Context<'_>) -> (Vec<u8>, weir_flags_codec::etag::EntityTag) {
    SCRATCH.with_borrow_mut(|Scratch { decisions, rng }| {
        let (snapshot, now) = (&sight.environment.snapshot, Timestamp::from_unix(unix_time()));
        snapshot.decide(&sight.scope.scope, Listing::All, context, now, rng, decisions);
        let mut body = Vec::with_capacity(decisions.bytes());
        decisions.write(snapshot, &mut body);
        (body, decisions.tag())
    })
}
