//! Sets.

use crate::redis::{
    dispatch::Context,
    errors::Refusal,
    reply::Reply,
    value::{Set, Value},
};

pub fn sadd(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let added = cx.keys().change(args[1], cx.now, Some(|| Value::Set(Set::default())), |value| {
        let set = value.set_mut()?;
        Ok(args[2..].iter().filter(|member| set.insert(member)).count())
    });
    reply.count(added.unwrap_or(Ok(0))?);
    Ok(())
}

pub fn srem(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let removed = cx.keys().change(args[1], cx.now, None, |value| {
        let set = value.set_mut()?;
        Ok(args[2..].iter().filter(|member| set.remove(member)).count())
    });
    reply.count(removed.unwrap_or(Ok(0))?);
    Ok(())
}

pub fn smembers(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let mut keys = cx.keys();
    let set = keys.get(args[1], cx.now).map(Value::set).transpose()?;
    reply.set(set.map_or(0, Set::len));
    set.into_iter().flat_map(Set::iter).for_each(|member| reply.bulk(member));
    Ok(())
}

pub fn sismember(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let mut keys = cx.keys();
    let set = keys.get(args[1], cx.now).map(Value::set).transpose()?;
    reply.integer(i64::from(set.is_some_and(|set| set.contains(args[2]))));
    Ok(())
}

pub fn scard(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let mut keys = cx.keys();
    let set = keys.get(args[1], cx.now).map(Value::set).transpose()?;
    reply.count(set.map_or(0, Set::len));
    Ok(())
}
