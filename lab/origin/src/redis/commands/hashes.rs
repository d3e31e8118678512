//! Hashes.

use crate::redis::{
    dispatch::Context,
    errors::{self, Refusal},
    reply::Reply,
    value::{Hash, Value},
};

pub fn hset(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let (pairs, []) = args[2..].as_chunks::<2>() else { return Err(errors::arity("hset")) };
    let added = cx.keys().change(args[1], cx.now, Some(|| Value::Hash(Hash::default())), |value| {
        let hash = value.hash_mut()?;
        Ok(pairs.iter().filter(|[field, value]| hash.insert(field, value)).count())
    });
    reply.count(added.unwrap_or(Ok(0))?);
    Ok(())
}

pub fn hget(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let mut keys = cx.keys();
    let hash = keys.get(args[1], cx.now).map(Value::hash).transpose()?;
    reply.optional(hash.and_then(|hash| hash.get(args[2])));
    Ok(())
}

pub fn hmget(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let mut keys = cx.keys();
    let hash = keys.get(args[1], cx.now).map(Value::hash).transpose()?;
    reply.array(args.len() - 2);
    for field in &args[2..] {
        reply.optional(hash.and_then(|hash| hash.get(field)));
    }
    Ok(())
}

pub fn hdel(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let removed = cx.keys().change(args[1], cx.now, None, |value| {
        let hash = value.hash_mut()?;
        Ok(args[2..].iter().filter(|field| hash.remove(field)).count())
    });
    reply.count(removed.unwrap_or(Ok(0))?);
    Ok(())
}

pub fn hgetall(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let mut keys = cx.keys();
    let hash = keys.get(args[1], cx.now).map(Value::hash).transpose()?;
    reply.map(hash.map_or(0, Hash::len));
    for (field, value) in hash.into_iter().flat_map(Hash::iter) {
        reply.bulk(field);
        reply.bulk(value);
    }
    Ok(())
}

pub fn hlen(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let mut keys = cx.keys();
    let hash = keys.get(args[1], cx.now).map(Value::hash).transpose()?;
    reply.count(hash.map_or(0, Hash::len));
    Ok(())
}
