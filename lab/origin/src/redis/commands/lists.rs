//! Lists.

use crate::redis::{
    dispatch::Context,
    errors::{self, OUT_OF_RANGE_POSITIVE, Refusal},
    number,
    reply::Reply,
    value::{End, Item, List, Value},
};

use super::integer;

pub fn lpush(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    push(cx, args, End::Left, reply)
}

pub fn rpush(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    push(cx, args, End::Right, reply)
}

fn push(cx: &mut Context<'_>, args: &[&[u8]], end: End, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let pushed = cx.keys().change(args[1], cx.now, Some(|| Value::List(List::default())), |value| {
        let list = value.list_mut()?;
        for item in &args[2..] {
            list.push(end, item);
        }
        Ok(list.len())
    });
    reply.count(pushed.unwrap_or(Ok(0))?);
    Ok(())
}

pub fn lpop(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    pop(cx, args, End::Left, "lpop", reply)
}

pub fn rpop(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    pop(cx, args, End::Right, "rpop", reply)
}

/// Without a count one element or null, with one an array or a null array.
fn pop(cx: &mut Context<'_>, args: &[&[u8]], end: End, name: &str, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let count = match args {
        [_, _] => None,
        [_, _, count] => {
            let count = number::parse(count).and_then(|count| usize::try_from(count).ok());
            Some(count.ok_or(OUT_OF_RANGE_POSITIVE)?)
        }
        _ => return Err(errors::arity(name)),
    };
    let popped = cx.keys().change(args[1], cx.now, None, |value| {
        let list = value.list_mut()?;
        let count = count.unwrap_or(1).min(list.len());
        Ok((0..count).filter_map(|_| list.pop(end)).collect::<Vec<Item>>())
    });
    match (popped.transpose()?, count) {
        (None, Some(_)) => reply.null_array(),
        (Some(items), Some(_)) => {
            reply.array(items.len());
            items.iter().for_each(|item| reply.bulk(item));
        }
        (items, None) => reply.optional(items.as_deref().and_then(<[Item]>::first).map(|item| &**item)),
    }
    Ok(())
}

pub fn lrange(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let (first, last) = (integer(args[2])?, integer(args[3])?);
    let mut keys = cx.keys();
    let Some(value) = keys.get(args[1], cx.now) else {
        reply.array(0);
        return Ok(());
    };
    let range = value.list()?.range(first, last);
    reply.array(range.len());
    range.for_each(|item| reply.bulk(item));
    Ok(())
}

pub fn llen(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let mut keys = cx.keys();
    let list = keys.get(args[1], cx.now).map(Value::list).transpose()?;
    reply.count(list.map_or(0, List::len));
    Ok(())
}
