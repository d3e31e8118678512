//! Flags that are on for a context: those of the data set, which knows it by its construction. A flag that has changed since is none
//! of the set, and then there is no reply.

use std::hash::{DefaultHasher, Hash, Hasher};

use weir_flags_codec::{Context, ContextField};
use weir_flagsets::Visitor;

use super::{
    respond::{Body, Whole},
    state::World,
    token::Token,
};

/// The reply for a context.
///
/// # Errors
/// The refusal: the flags have changed.
pub fn respond(
    world: &mut World,
    token: &Token,
    context: &Context<'_>,
    if_none_match: Option<&str>,
) -> Result<Whole, Whole> {
    if world.environment(&token.environment).revision() > 1 {
        return Err(Whole::error(501, "NotImplementedError", "the flags have changed since the start"));
    }
    let visitor = Visitor { user: context.field(ContextField::UserId), plan: context.property("plan") };
    let body = world.set.toggles(&visitor).into_bytes();
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    let etag = format!("\"{:016x}\"", hasher.finish());
    if if_none_match == Some(&etag) {
        return Ok(Whole { fields: format!("ETag: {etag}\r\n"), ..Whole::empty(304) });
    }
    Ok(Whole { status: 200, fields: format!("ETag: {etag}\r\n"), body: Body::Own(body) })
}
