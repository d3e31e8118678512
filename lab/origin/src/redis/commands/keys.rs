//! Commands about keys of any type.

use crate::redis::{
    dispatch::Context,
    errors::{INVALID_CURSOR, Refusal, SYNTAX},
    glob,
    reply::Reply,
    value::Value,
};

use super::integer;

/// `DEL` and `UNLINK`.
pub fn del(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let mut keys = cx.keys();
    let removed = args[1..].iter().filter(|key| keys.remove(key, cx.now).is_some()).count();
    reply.count(removed);
    Ok(())
}

/// `EXISTS` and `TOUCH`: a key named twice counts twice.
pub fn exists(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let mut keys = cx.keys();
    let found = args[1..].iter().filter(|key| keys.get(key, cx.now).is_some()).count();
    reply.count(found);
    Ok(())
}

pub fn key_type(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    reply.simple(cx.keys().get(args[1], cx.now).map_or("none", Value::type_name));
    Ok(())
}

pub fn keys(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let keys = cx.keys();
    let mut found = Vec::new();
    keys.scan(0, usize::MAX, cx.now, |key, _| {
        if glob::matches(args[1], key) {
            found.push(key);
        }
    });
    reply.array(found.len());
    for key in found {
        reply.bulk(key);
    }
    Ok(())
}

/// Slots looked at without `COUNT`.
const SCAN_COUNT: i64 = 10;

pub fn scan(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let cursor = integer(args[1]).ok().and_then(|cursor| u64::try_from(cursor).ok()).ok_or(INVALID_CURSOR)?;
    let (mut pattern, mut type_name, mut count) = (None, None, SCAN_COUNT);
    let (options, []) = args[2..].as_chunks::<2>() else { return Err(SYNTAX) };
    for [option, value] in options {
        match option.to_ascii_lowercase().as_slice() {
            b"match" => pattern = Some(*value),
            b"type" => type_name = Some(*value),
            b"count" => count = integer(value)?,
            _ => return Err(SYNTAX),
        }
    }
    let count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(SYNTAX)?;
    let keys = cx.keys();
    let mut found = Vec::new();
    let cursor = keys.scan(cursor, count, cx.now, |key, value| {
        let is_wanted = pattern.is_none_or(|pattern| glob::matches(pattern, key))
            && type_name.is_none_or(|name| name.eq_ignore_ascii_case(value.type_name().as_bytes()));
        if is_wanted {
            found.push(key);
        }
    });
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    reply.array(found.len());
    for key in found {
        reply.bulk(key);
    }
    Ok(())
}
