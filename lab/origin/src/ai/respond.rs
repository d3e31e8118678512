//! From a request to its reply.

use std::sync::atomic::Ordering;

use weir_base::secret::Secret;
use weir_http_codec::RequestHead;

use super::{
    chat, completions, embeddings,
    error::Refusal,
    fault::Fault,
    json::{Part, parts},
    ledger::{End, Entry},
    messages,
    model_response::ModelResponse,
    models,
    reply::{Body, Delivery, Events, Reply, Whole},
    request::{Ask, key},
    responses,
    route::{Endpoint, endpoint},
    server::Shared,
    usage::Tokens,
};

/// Entries of the ledger that a query which names no count gets.
const ENTRIES: usize = 10_000;

/// The reply to a request.
pub fn respond(shared: &Shared, head: &RequestHead, body: &[u8]) -> Reply {
    let endpoint = endpoint(head.method(), head.target());
    if let Some(whole) = about_itself(shared, endpoint) {
        return Reply::free(whole);
    }
    let is_anthropic = endpoint.is_anthropic();
    let refuse = |refusal: Refusal| Reply::free(refusal.reply(is_anthropic));
    if !is_key(shared.key.as_ref(), key(head)) {
        return refuse(Refusal::new(401, "invalid_api_key", "Incorrect API key provided."));
    }
    let found = match endpoint {
        Endpoint::Models => {
            let mut out = Vec::new();
            models::write_all(&mut out);
            Ok(Whole::json(out))
        }
        Endpoint::Model(model) => {
            let mut out = Vec::new();
            models::write(model, &mut out).map(|()| Whole::json(out))
        }
        Endpoint::WrongMethod(right) => {
            let mut refusal = Refusal::new(405, "method_not_allowed", format!("this path takes {right}"));
            refusal.fields = format!("allow: {right}\r\n").into_bytes();
            Err(refusal)
        }
        Endpoint::Unknown => Err(Refusal::new(404, "unknown_url", "Unknown request URL.")),
        _ => {
            let ask = Ask::read(endpoint, head, body, shared.seed);
            return ask.map_or_else(refuse, |ask| of_model(shared, &ask));
        }
    };
    found.map_or_else(refuse, Reply::free)
}

/// Whether a key is the one that is needed.
fn is_key(needed: Option<&Secret>, presented: Option<&str>) -> bool {
    needed.is_none_or(|needed| presented.is_some_and(|presented| needed.expose() == presented.as_bytes()))
}

/// Pages about the origin, which no key protects.
fn about_itself(shared: &Shared, endpoint: Endpoint<'_>) -> Option<Whole> {
    let mut out = Vec::new();
    match endpoint {
        Endpoint::Health => out.extend_from_slice(b"{\"status\":\"ok\"}"),
        Endpoint::Requests => parts(&[Part::Number(shared.stats.requests.load(Ordering::Relaxed))], &mut out),
        Endpoint::ClearLedger => {
            shared.ledger.clear();
            out.extend_from_slice(b"{}");
        }
        Endpoint::Ledger(query) => {
            let value = |name: &str| {
                query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse::<u64>().ok())
            };
            let count = value("count").and_then(|count| usize::try_from(count).ok()).unwrap_or(ENTRIES);
            shared.ledger.write(value("from").unwrap_or(0), count, &mut out);
        }
        _ => return None,
    }
    Some(Whole::json(out))
}

/// The reply of a model, or the error that the request has earned or chosen.
fn of_model(shared: &Shared, ask: &Ask<'_>) -> Reply {
    let is_anthropic = ask.endpoint.is_anthropic();
    let mut delivery = delivery(shared, ask);
    let is_spared = ask.directives.fails.is_some_and(|fails| shared.tries.count(ask.word) >= fails);
    if is_spared {
        delivery.fault = None;
    }
    let chosen = Refusal::chosen(&ask.directives).filter(|_| !is_spared);
    let made = match chosen {
        Some(refusal) => Err(refusal),
        None if !models::exists(ask.model()) => Err(Refusal::no_model(ask.model())),
        None => ask.need().and_then(|()| body(shared, ask, &delivery)),
    };
    match made {
        Ok((body, tokens)) => Reply { body, bill: bill(ask, 200, tokens), delivery },
        Err(refusal) => {
            let whole = refusal.reply(is_anthropic);
            let bill = bill(ask, whole.status, Tokens::default());
            // An error waits as a reply does, and has no fault besides.
            Reply {
                body: Body::Whole(whole),
                bill,
                delivery: Delivery { first: delivery.first, ..Delivery::default() },
            }
        }
    }
}

fn bill(ask: &Ask<'_>, status: u16, tokens: Tokens) -> Option<(Entry, Tokens)> {
    let entry = Entry {
        request: ask.request_id.clone(),
        endpoint: ask.endpoint.name()?,
        model: ask.short_model(),
        word: ask.word,
        user: ask.user(),
        attempt: ask.attempt,
        key: ask.key,
        is_stream: ask.is_stream(),
        status,
        end: End::Open,
        events: 0,
        tokens: Tokens::default(),
    };
    Some((entry, tokens))
}

fn delivery(shared: &Shared, ask: &Ask<'_>) -> Delivery {
    let directives = &ask.directives;
    Delivery {
        first: directives.first.unwrap_or(shared.first),
        gap: directives.gap.unwrap_or(shared.gap),
        gaps: directives.gaps.clone(),
        fault: directives.fault.map(|fault| (fault, directives.at.unwrap_or(1))),
        lines: directives.lines,
        split: directives.split,
        has_comments: directives.has_comments,
    }
}

/// The body of a reply, and its cost.
fn body(shared: &Shared, ask: &Ask<'_>, delivery: &Delivery) -> Result<(Body, Tokens), Refusal> {
    let is_stream = ask.is_stream() && !matches!(ask.endpoint, Endpoint::Embeddings | Endpoint::CountTokens);
    if !is_stream && delivery.has(&[Fault::Endless, Fault::NoDone, Fault::Dataless]) {
        return Err(Refusal::new(400, "wrong_directive", "this fault applies only to streams"));
    }
    let mut out = Vec::new();
    match ask.endpoint {
        Endpoint::Embeddings => {
            embeddings::write(ask, &mut out)?;
            let tokens = Tokens { prompt: ask.prompt_tokens(), ..Tokens::default() };
            return Ok((Body::Whole(Whole::json(out)), tokens));
        }
        Endpoint::CountTokens => {
            parts(&[Part::Raw("{\"input_tokens\":"), Part::Number(ask.prompt_tokens()), Part::Raw("}")], &mut out);
            return Ok((Body::Whole(Whole::json(out)), Tokens::default()));
        }
        _ => {}
    }
    let mut response = ModelResponse::of(ask, shared.defaults);
    if !matches!(ask.endpoint, Endpoint::Chat) {
        // Only chat has several choices, or usage in places of its own.
        response.tokens.completion = response.tokens.completion.saturating_sub(response.repeated_tokens());
        response.choices = 1;
    }
    let tokens = response.tokens;
    if is_stream {
        return Ok((stream(ask.endpoint, response), tokens));
    }
    let templates = &shared.templates;
    match ask.endpoint {
        Endpoint::Responses => responses::write(&with_plain_shape(response), templates, &mut out),
        Endpoint::Messages => messages::write(&with_plain_shape(response), templates, &mut out),
        Endpoint::Completions => completions::write(&response, templates, &mut out),
        _ => chat::write(&response, templates, &mut out),
    }
    Ok((Body::Whole(Whole::json(out)), tokens))
}

fn with_plain_shape(response: ModelResponse) -> ModelResponse {
    ModelResponse { usage: responses::shape(response.usage), ..response }
}

fn stream(endpoint: Endpoint<'_>, response: ModelResponse) -> Body {
    let failure = Refusal::new(500, "", "The server had an error while processing your request.");
    let (events, has_done, error): (Box<dyn Events>, _, _) = match endpoint {
        Endpoint::Responses => {
            let data = b"{\"type\":\"error\",\"sequence_number\":1000000,\"code\":\"server_error\",\"message\":\"The server had an \
                error while processing your request.\",\"param\":null}";
            (Box::new(responses::EventSequence::new(with_plain_shape(response))), false, (Some("error"), data.to_vec()))
        }
        Endpoint::Messages => {
            let error = (Some("error"), failure.anthropic());
            (Box::new(messages::EventSequence::new(with_plain_shape(response))), false, error)
        }
        Endpoint::Completions => (Box::new(completions::Chunks::new(response)), true, (None, failure.openai())),
        _ => (Box::new(chat::Chunks::new(response)), true, (None, failure.openai())),
    };
    Body::Stream { events, has_done, error }
}
