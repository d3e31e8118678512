//! Fixed mode: success without keys.

use crate::redis::{dispatch::Context, errors::Refusal, reply::Reply};

/// One payload.
#[inline]
pub fn get(cx: &mut Context<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    reply.raw(cx.core.payload.as_deref().unwrap_or_default());
    Ok(())
}

/// One payload per key.
pub fn get_keys(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    payloads(cx, args.len() - 1, reply)
}

/// One payload per hash field.
pub fn get_fields(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    payloads(cx, args.len() - 2, reply)
}

fn payloads(cx: &Context<'_>, count: usize, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let payload = cx.core.payload.as_deref().unwrap_or_default();
    reply.array(count);
    (0..count).for_each(|_| reply.raw(payload));
    Ok(())
}

pub fn ok(_: &mut Context<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    reply.ok();
    Ok(())
}

/// As many as there are keys.
pub fn count(_: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    reply.count(args.len() - 1);
    Ok(())
}

pub fn one(_: &mut Context<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    reply.integer(1);
    Ok(())
}
