//! When keys end.

use weir_base::Time;

use crate::redis::{
    dispatch::Context,
    errors::{self, EXPIRE_GT_LT, EXPIRE_NX, Refusal},
    reply::Reply,
};

use super::{after, integer};

pub fn expire(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    expire_in(cx, args, 1_000, "expire", reply)
}

pub fn pexpire(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    expire_in(cx, args, 1, "pexpire", reply)
}

/// Conditions on the expiry that a key has.
#[derive(Default)]
struct Conditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Conditions {
    fn parse(options: &[&[u8]]) -> Result<Self, Refusal> {
        let mut parsed = Self::default();
        for option in options {
            match option.to_ascii_lowercase().as_slice() {
                b"nx" => parsed.nx = true,
                b"xx" => parsed.xx = true,
                b"gt" => parsed.gt = true,
                b"lt" => parsed.lt = true,
                _ => return Err(errors::unsupported_option(option)),
            }
        }
        match parsed {
            Self { nx: true, xx, gt, lt } if xx || gt || lt => Err(EXPIRE_NX),
            Self { gt: true, lt: true, .. } => Err(EXPIRE_GT_LT),
            _ => Ok(parsed),
        }
    }

    /// No expiry counts as later than any.
    fn hold(&self, held: Time, wanted: Time) -> bool {
        let has_expiry = held != Time::NEVER;
        !(self.nx && has_expiry || self.xx && !has_expiry || self.gt && wanted <= held || self.lt && wanted >= held)
    }
}

/// A time that is not in the future removes the key.
fn expire_in(
    cx: &mut Context<'_>,
    args: &[&[u8]],
    millis_per_unit: i64,
    name: &str,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let value = integer(args[2])?;
    let conditions = Conditions::parse(&args[3..])?;
    let wanted = after(cx.now, value, millis_per_unit).ok_or_else(|| errors::invalid_expire(name))?;
    let mut keys = cx.keys();
    let is_set = keys.expires(args[1], cx.now).is_some_and(|held| conditions.hold(held, wanted));
    if is_set && value <= 0 {
        keys.remove(args[1], cx.now);
    } else if is_set {
        keys.set_expires(args[1], wanted, cx.now);
    }
    reply.integer(i64::from(is_set));
    Ok(())
}

/// Rounded to the nearest second, as Redis does it.
pub fn ttl(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let millis = millis_left(cx, args[1]);
    reply.integer(if millis < 0 { millis } else { (millis + 500) / 1_000 });
    Ok(())
}

pub fn pttl(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    reply.integer(millis_left(cx, args[1]));
    Ok(())
}

/// -2 without the key, -1 without expiry.
fn millis_left(cx: &Context<'_>, key: &[u8]) -> i64 {
    match cx.keys().expires(key, cx.now) {
        None => -2,
        Some(Time::NEVER) => -1,
        Some(expires) => i64::try_from(expires.since(cx.now).as_millis()).unwrap_or(i64::MAX),
    }
}

pub fn persist(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let mut keys = cx.keys();
    let has_expiry = keys.expires(args[1], cx.now).is_some_and(|expires| expires != Time::NEVER);
    if has_expiry {
        keys.set_expires(args[1], Time::NEVER, cx.now);
    }
    reply.integer(i64::from(has_expiry));
    Ok(())
}
