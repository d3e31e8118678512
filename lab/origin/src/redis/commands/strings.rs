//! `GET`, `SET` and their family.

use weir_base::Time;

use crate::redis::{
    dispatch::Context,
    errors::{self, Refusal, STRING_TOO_LONG, SYNTAX},
    reply::Reply,
    value::Value,
};

use super::{after, integer};

pub fn get(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    match cx.keys().get(args[1], cx.now) {
        Some(value) => reply.bulk(value.string()?),
        None => reply.null(),
    }
    Ok(())
}

/// Options of `SET`.
#[derive(Default)]
struct SetOptions {
    /// `None` with `KEEPTTL`.
    keeps_expiry: bool,
    expires: Option<Time>,
    only_new: bool,
    only_existing: bool,
    gets: bool,
}

impl SetOptions {
    fn parse(options: &[&[u8]], now: Time) -> Result<Self, Refusal> {
        let mut parsed = Self::default();
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            if is("NX") && !parsed.only_existing {
                parsed.only_new = true;
            } else if is("XX") && !parsed.only_new {
                parsed.only_existing = true;
            } else if is("GET") {
                parsed.gets = true;
            } else if is("KEEPTTL") && parsed.expires.is_none() {
                parsed.keeps_expiry = true;
            } else if (is("EX") || is("PX")) && parsed.expires.is_none() && !parsed.keeps_expiry {
                let value = integer(options.next().ok_or(SYNTAX)?)?;
                let millis = if is("EX") { 1_000 } else { 1 };
                let expires = after(now, value, millis).filter(|_| value > 0);
                parsed.expires = Some(expires.ok_or_else(|| errors::invalid_expire("set"))?);
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(parsed)
    }
}

pub fn set(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let (key, value) = (args[1], args[2]);
    if args.len() == 3 {
        cx.keys().set(key, Value::Str(value.to_vec()), Some(Time::NEVER), cx.now);
        reply.ok();
        return Ok(());
    }
    let options = SetOptions::parse(&args[3..], cx.now)?;
    let mut keys = cx.keys();
    let held = keys.get(key, cx.now);
    let exists = held.is_some();
    if options.gets {
        reply.optional(held.map(Value::string).transpose()?);
    }
    let is_set = if exists { !options.only_new } else { !options.only_existing };
    if is_set {
        let expires = if options.keeps_expiry { None } else { Some(options.expires.unwrap_or(Time::NEVER)) };
        keys.set(key, Value::Str(value.to_vec()), expires, cx.now);
    }
    match (options.gets, is_set) {
        (true, _) => {}
        (false, true) => reply.ok(),
        (false, false) => reply.null(),
    }
    Ok(())
}

pub fn getset(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let mut keys = cx.keys();
    reply.optional(keys.get(args[1], cx.now).map(Value::string).transpose()?);
    keys.set(args[1], Value::Str(args[2].to_vec()), Some(Time::NEVER), cx.now);
    Ok(())
}

pub fn getdel(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let mut keys = cx.keys();
    reply.optional(keys.get(args[1], cx.now).map(Value::string).transpose()?);
    keys.remove(args[1], cx.now);
    Ok(())
}

/// A key of another type is answered with null, as Redis does it.
pub fn mget(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let mut keys = cx.keys();
    reply.array(args.len() - 1);
    for key in &args[1..] {
        reply.optional(keys.get(key, cx.now).and_then(|value| value.string().ok()));
    }
    Ok(())
}

pub fn mset(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let (pairs, []) = args[1..].as_chunks::<2>() else { return Err(errors::arity("mset")) };
    let mut keys = cx.keys();
    for [key, value] in pairs {
        keys.set(key, Value::Str(value.to_vec()), Some(Time::NEVER), cx.now);
    }
    reply.ok();
    Ok(())
}

pub fn append(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let bytes_max = cx.core.settings.message_bytes_max;
    let appended = cx.keys().change(args[1], cx.now, Some(|| Value::Str(Vec::new())), |value| {
        let text = value.string_mut()?;
        if text.len() + args[2].len() > bytes_max {
            return Err(STRING_TOO_LONG);
        }
        text.extend_from_slice(args[2]);
        Ok(text.len())
    });
    reply.count(appended.unwrap_or(Ok(0))?);
    Ok(())
}

pub fn strlen(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let mut keys = cx.keys();
    let text = keys.get(args[1], cx.now).map(Value::string).transpose()?;
    reply.count(text.map_or(0, <[u8]>::len));
    Ok(())
}
