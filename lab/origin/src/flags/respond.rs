//! From a request to its reply.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use weir_flags_codec::{
    Context, ContextError, UnknownFields, etag,
    metrics::{BulkMetrics, ClientApplication, ClientMetrics},
    query,
    tokens::{TokensToValidate, ValidatedTokens},
};
use weir_http_codec::RequestHead;

use super::{
    control,
    document::{self, Document},
    environment::Delta,
    fault::Fault,
    frontend,
    route::Endpoint,
    scope::Scope,
    server::Shared,
    settings::VALIDATE_BYTES_MAX,
    state::{USUAL_ENVIRONMENT, World},
    streaming::Place,
    token::{Token, TokenKind},
};

/// Bytes from which evaluations are compressed. 1 KiB, as Express does.
const COMPRESSED_BYTES_MIN: usize = 1_024;

/// Header lines of bodies that exist as gzip too, and of those that are.
const VARY: &str = "Vary: Accept-Encoding\r\n";
const GZIP: &str = "Content-Encoding: gzip\r\n";

/// A reply with a length.
#[derive(Debug)]
pub struct Whole {
    /// Its status.
    pub status: u16,
    /// Header lines besides those that every reply has, each with its end.
    pub fields: String,
    /// Its body: JSON, or nothing.
    pub body: Body,
}

/// Bytes of a body.
#[derive(Debug)]
pub enum Body {
    /// Those of a document, which many replies share.
    Document(Arc<Document>),
    /// The same as gzip.
    Compressed(Arc<Document>),
    /// Bytes that only this reply has.
    Own(Vec<u8>),
}

impl Body {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Document(document) => &document.body,
            Self::Compressed(document) => document.compressed(),
            Self::Own(bytes) => bytes,
        }
    }
}

impl Whole {
    /// Without a body.
    pub fn empty(status: u16) -> Self {
        Self::json(status, Vec::new())
    }

    /// With JSON.
    pub fn json(status: u16, body: Vec<u8>) -> Self {
        Self { status, fields: String::new(), body: Body::Own(body) }
    }

    /// An error as unleash-server writes it.
    pub fn error(status: u16, name: &str, message: &str) -> Self {
        Self::json(status, json!({ "name": name, "message": message }).to_string().into_bytes())
    }
}

/// A reply.
#[derive(Debug)]
pub enum Reply {
    /// At once.
    Whole(Whole),
    /// Events on an open connection, with these header lines.
    Stream(Box<Place>, String),
    /// None: the connection is reset.
    Reset,
}

/// The reply to a request, and the wait before it.
pub fn respond(shared: &Shared, endpoint: Endpoint<'_>, head: &RequestHead, body: &[u8]) -> (Reply, Duration) {
    if let Endpoint::Control(control, query) = endpoint {
        return (Reply::Whole(control::respond(&shared.state, control, query, body)), Duration::ZERO);
    }
    let Some(name) = endpoint.name() else {
        return (Reply::Whole(about_itself(shared, endpoint)), Duration::ZERO);
    };
    let mut world = shared.state.lock();
    world.ledger.note_head(name, head);
    let fault = world.faults.take(name);
    let is_replaced = fault.as_ref().is_some_and(|fault| fault.reset || fault.status.is_some());
    let right = if is_replaced { Reply::Reset } else { of_api(&mut world, endpoint, head, body) };
    let delay = shared.delay + fault.as_ref().map_or(Duration::ZERO, Fault::delay);
    let reply = match fault {
        Some(fault) => spoiled(fault, right),
        None => right,
    };
    match &reply {
        Reply::Whole(whole) => world.ledger.note(name, whole.status),
        Reply::Stream(..) => world.ledger.note(name, 200),
        Reply::Reset => {}
    }
    (reply, delay)
}

/// The reply with its fault, or another in its place.
fn spoiled(fault: Fault, right: Reply) -> Reply {
    let more: String = fault.fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    if fault.reset {
        return Reply::Reset;
    }
    if let Some(status) = fault.status {
        let body = fault.body.unwrap_or_default().into_bytes();
        return Reply::Whole(Whole { fields: more, ..Whole::json(status, body) });
    }
    match right {
        Reply::Whole(mut whole) => {
            whole.fields.push_str(&more);
            if let Some(body) = fault.body {
                whole.fields = whole.fields.replace(GZIP, "");
                whole.body = Body::Own(body.into_bytes());
            }
            Reply::Whole(whole)
        }
        Reply::Stream(place, fields) => Reply::Stream(place, fields + &more),
        Reply::Reset => Reply::Reset,
    }
}

/// Pages that no token protects and no fault hits.
fn about_itself(shared: &Shared, endpoint: Endpoint<'_>) -> Whole {
    let body = match endpoint {
        Endpoint::Requests => shared.requests().to_string(),
        _ => "{\"health\":\"GOOD\"}".to_owned(),
    };
    Whole::json(200, body.into_bytes())
}

fn of_api(world: &mut World, endpoint: Endpoint<'_>, head: &RequestHead, body: &[u8]) -> Reply {
    let whole = match endpoint {
        Endpoint::Validate => validate(world, body),
        Endpoint::Frontend(query) => frontend(world, head, Context::from_query(query, UnknownFields::Properties)),
        Endpoint::PostedFrontend => frontend(world, head, Context::from_json(body)),
        Endpoint::WrongMethod(right) => {
            let refusal = Whole::error(405, "MethodNotAllowedError", "this path has another method");
            Whole { fields: format!("Allow: {right}\r\n"), ..refusal }
        }
        Endpoint::Unknown => Whole::error(404, "NotFoundError", "this path does not exist"),
        _ => match caller(world, head, TokenKind::Backend)
            .and_then(|token| with_token(world, &token, endpoint, head, body))
        {
            Ok(reply) => return reply,
            Err(refusal) => refusal,
        },
    };
    Reply::Whole(whole)
}

/// The token of a request for an API.
fn caller(world: &World, head: &RequestHead, kind: TokenKind) -> Result<Token, Whole> {
    let text = field(head, b"authorization").unwrap_or_default().trim();
    let token = world.token(text).cloned();
    let token = token.ok_or_else(|| Whole::error(401, "AuthenticationRequired", "this token is not valid"))?;
    if token.kind == kind {
        Ok(token)
    } else {
        Err(Whole::error(403, "NoAccessError", "this token is for the other API"))
    }
}

fn frontend(world: &mut World, head: &RequestHead, context: Result<Context<'_>, ContextError>) -> Whole {
    let reply = || {
        let token = caller(world, head, TokenKind::Frontend)?;
        let context = context.map_err(|error| Whole::error(400, "BadDataError", &error.to_string()))?;
        let mut whole = frontend::respond(world, &token, &context, field(head, b"if-none-match"))?;
        if takes_gzip(head) && whole.body.bytes().len() >= COMPRESSED_BYTES_MIN {
            whole.body = Body::Own(document::gzip(whole.body.bytes()));
            whole.fields.push_str(GZIP);
        }
        Ok(whole)
    };
    reply().unwrap_or_else(|refusal: Whole| refusal)
}

fn with_token(
    world: &mut World,
    token: &Token,
    endpoint: Endpoint<'_>,
    head: &RequestHead,
    body: &[u8],
) -> Result<Reply, Whole> {
    check_specification(head)?;
    let wrong = |error: weir_flags_codec::DocumentError| Whole::error(400, "BadDataError", &error.to_string());
    let whole = match endpoint {
        Endpoint::Features(query) => features(world, token, query, head),
        Endpoint::Feature(name) => return feature(world, token, name).map(Reply::Whole),
        Endpoint::Delta(query) => delta(world, token, query, head),
        Endpoint::Streaming(query) => {
            let since = field(head, b"last-event-id").and_then(etag::revision);
            let place = Place::new(world, token, Scope::of(token, query), since);
            return Ok(Reply::Stream(Box::new(place), String::new()));
        }
        Endpoint::Register => {
            world.ledger.note_application(ClientApplication::read(body).map_err(wrong)?);
            Whole::empty(202)
        }
        Endpoint::Metrics => {
            let metrics = ClientMetrics::read(body).map_err(wrong)?;
            world.ledger.note_metrics(&token.environment, metrics);
            Whole::empty(202)
        }
        Endpoint::Bulk => {
            world.ledger.note_bulk(BulkMetrics::read(body).map_err(wrong)?, body.len());
            Whole::empty(202)
        }
        // The others need no token.
        _ => Whole::empty(404),
    };
    Ok(Reply::Whole(whole))
}

/// unleash-server refuses a version of the specification that is none.
fn check_specification(head: &RequestHead) -> Result<(), Whole> {
    let is_version = |text: &str| {
        let parts: Vec<&str> = text.split(['.', '-', '+']).collect();
        parts.len() >= 3 && parts[..3].iter().all(|part| part.parse::<u32>().is_ok())
    };
    match field(head, b"unleash-client-spec") {
        Some(text) if !is_version(text) => {
            Err(Whole::error(400, "BadDataError", "Unleash-Client-Spec is no version, for example 6.1.0"))
        }
        _ => Ok(()),
    }
}

fn validate(world: &mut World, body: &[u8]) -> Whole {
    if body.len() > VALIDATE_BYTES_MAX {
        return Whole::error(413, "PayloadTooLargeError", "request entity too large");
    }
    let Ok(TokensToValidate { tokens }) = TokensToValidate::read(body) else {
        return Whole::error(400, "BadDataError", "the body has no list `tokens`");
    };
    let valid = tokens.iter().filter_map(|text| world.token(text)).map(Token::validated).collect();
    world.ledger.note_validation(tokens);
    Whole::json(200, ValidatedTokens { tokens: valid }.to_json())
}

fn features(world: &mut World, token: &Token, query: &str, head: &RequestHead) -> Whole {
    let document = world.environment(&token.environment).document(&Scope::of(token, query));
    // As unleash-server 7.5: compared as a whole, and its 304 does not repeat the tag.
    if field(head, b"if-none-match") == Some(&document.etag) {
        return Whole::empty(304);
    }
    let fields = format!("ETag: {}\r\n{VARY}", document.etag);
    match takes_gzip(head) {
        true => Whole { status: 200, fields: fields + GZIP, body: Body::Compressed(document) },
        false => Whole { status: 200, fields, body: Body::Document(document) },
    }
}

/// Whether the client takes gzip. A weight of zero is not looked for: no client of the lab sends one.
fn takes_gzip(head: &RequestHead) -> bool {
    field(head, b"accept-encoding").is_some_and(|codings| codings.contains("gzip"))
}

fn feature(world: &mut World, token: &Token, name: &str) -> Result<Whole, Whole> {
    let decoded = query::pairs(name).next().and_then(Result::ok).map(|(name, _)| name.into_owned()).unwrap_or_default();
    let scope = Scope::of(token, "");
    let features = world.environment(&token.environment).features();
    let found = features.iter().find(|feature| *feature.name == *decoded && scope.has(feature));
    let found = found.ok_or_else(|| Whole::error(404, "NotFoundError", "no flag has this name"))?;
    Ok(Whole::json(200, found.json.as_bytes().to_vec()))
}

fn delta(world: &mut World, token: &Token, query: &str, head: &RequestHead) -> Whole {
    let environment = world.environment(&token.environment);
    let since = field(head, b"if-none-match").and_then(etag::revision);
    match environment.delta(&Scope::of(token, query), since) {
        Delta::Unchanged => Whole::empty(304),
        Delta::Events(events) => {
            let fields = format!("ETag: \"{}\"\r\n", environment.revision());
            Whole { fields, ..Whole::json(200, document::events(&events)) }
        }
    }
}

/// The environment that a control path names.
pub fn environment_of(query: &str) -> String {
    let is_environment = |(key, _): &(_, _)| *key == "environment";
    let named = query::pairs(query).flatten().find(is_environment).map(|(_, value)| value.into_owned());
    named.unwrap_or_else(|| USUAL_ENVIRONMENT.to_owned())
}

/// The first value of a header field.
fn field<'a>(head: &'a RequestHead, name: &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(head.fields.all_named(name).next()?).ok()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{settings::FlagsOriginSettings, state::State},
        *,
    };

    #[test]
    fn a_batch_of_tokens_beyond_the_limit_of_the_server_is_refused() {
        let state = State::new(&FlagsOriginSettings::default());
        let status = |bytes: usize| {
            let frame = TokensToValidate { tokens: vec![String::new()] }.to_json().len();
            let body = TokensToValidate { tokens: vec!["a".repeat(bytes - frame)] }.to_json();
            validate(&mut state.lock(), &body).status
        };
        assert_eq!([status(VALIDATE_BYTES_MAX), status(VALIDATE_BYTES_MAX + 1)], [200, 413]);
    }
}
