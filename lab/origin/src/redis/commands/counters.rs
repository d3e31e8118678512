//! `INCR` and its family: strings that are canonical decimal integers.

use crate::redis::{
    dispatch::Context,
    errors::{DECREMENT_OVERFLOW, OVERFLOW, Refusal},
    reply::Reply,
    value::Value,
};

use super::integer;

pub fn incr(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    add(cx, args[1], 1, reply)
}

pub fn decr(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    add(cx, args[1], -1, reply)
}

pub fn incrby(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let step = integer(args[2])?;
    add(cx, args[1], step, reply)
}

pub fn decrby(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let step = integer(args[2])?.checked_neg().ok_or(DECREMENT_OVERFLOW)?;
    add(cx, args[1], step, reply)
}

/// A missing key counts as 0; the expiry of the key stays.
fn add(cx: &mut Context<'_>, key: &[u8], step: i64, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let mut keys = cx.keys();
    let held = match keys.get(key, cx.now) {
        Some(value) => integer(value.string()?)?,
        None => 0,
    };
    let sum = held.checked_add(step).ok_or(OVERFLOW)?;
    keys.set(key, Value::Str(sum.to_string().into_bytes()), None, cx.now);
    reply.integer(sum);
    Ok(())
}
