//! Is this the reply that the plan expects?

use super::plan::{ExpectedValue, Plan};
use crate::requests::{Expectation, Integrity, PlanPosition, REQUESTS_MAX};
use crate::shard::Shard;
use crate::values::{Generation, ReplyValue, Values};

/// The replies that the planned commands expect.
#[derive(Debug)]
pub(super) struct Replies {
    pub(super) plans: Vec<Plan>,
    /// Keys of MGETs.
    pub(super) expected_value: Vec<ExpectedValue>,
    pub(super) values: Values,
    pub(super) shard: Shard,
    pub(super) is_preloaded: bool,
}

impl Expectation for Replies {
    fn check(&self, place: PlanPosition, reply: &[u8]) -> Option<Integrity> {
        let is_first = place.is_first_round;
        let found = match self.plans[place.at] {
            Plan::Raw => return None,
            Plan::Set => is_expected(reply == b"+OK\r\n"),
            Plan::Incr => is_expected(is_count(reply)),
            Plan::Get(expected_value) => match take_bulk(reply) {
                Some((value, [])) => self.judge(&expected_value, is_first, value),
                _ => Integrity::Mismatch,
            },
            Plan::Mget(from, until) => {
                let expected_value = &self.expected_value[from as usize..until as usize];
                self.check_all(expected_value, is_first, reply).unwrap_or(Integrity::Mismatch)
            }
        };
        Some(found)
    }
}

impl Replies {
    /// `None`: not an array with a string or nothing for each key.
    fn check_all(&self, expected_value: &[ExpectedValue], is_first: bool, reply: &[u8]) -> Option<Integrity> {
        let (count, mut rest) = take_number(reply.strip_prefix(b"*")?)?;
        if usize::try_from(count).ok()? != expected_value.len() {
            return None;
        }
        let mut worst = Integrity::Ok;
        for one in expected_value {
            let (value, after) = take_bulk(rest)?;
            worst = worst.max(self.judge(one, is_first, value));
            rest = after;
        }
        rest.is_empty().then_some(worst)
    }

    fn judge(&self, expected_value: &ExpectedValue, is_first: bool, value: Option<&[u8]>) -> Integrity {
        let number = if is_first { expected_value.first } else { expected_value.later };
        let expected = Generation::of_set(self.shard, number);
        let otherwise = if expected_value.contested { Integrity::RaceSuspect } else { Integrity::Mismatch };
        let Some(bytes) = value else {
            return match (self.is_preloaded, number) {
                (true, _) => Integrity::Missing,
                (false, 0) => Integrity::Ok,
                // The SET that the plan has before this may still be on its way.
                (false, _) => Integrity::RaceSuspect,
            };
        };
        match self.values.recognise(expected_value.key, bytes) {
            ReplyValue::Value(found) if found == expected => Integrity::Ok,
            ReplyValue::Value(found) if found.is_planned(self.shard.of(), REQUESTS_MAX as u32) => otherwise,
            ReplyValue::Short if bytes.len() == self.values.size(expected_value.key, expected) => Integrity::Ok,
            ReplyValue::Short => otherwise,
            ReplyValue::Value(_) | ReplyValue::Foreign => Integrity::Mismatch,
        }
    }
}

fn is_expected(is_expected: bool) -> Integrity {
    if is_expected { Integrity::Ok } else { Integrity::Mismatch }
}

/// `:n` with n of at least 1: what INCR gives for a key that only INCR touches.
fn is_count(reply: &[u8]) -> bool {
    let number = reply.strip_prefix(b":").and_then(take_number);
    matches!(number, Some((count, [])) if count >= 1)
}

/// A string or nothing (`$-1` or `_`) at the front, and what follows it.
pub(super) fn take_bulk(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    if let Some(rest) = bytes.strip_prefix(b"_\r\n").or_else(|| bytes.strip_prefix(b"$-1\r\n")) {
        return Some((None, rest));
    }
    let (length, rest) = take_number(bytes.strip_prefix(b"$")?)?;
    let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some((Some(value), rest.strip_prefix(b"\r\n")?))
}

/// Digits and CRLF at the front, and what follows them.
fn take_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = bytes[digits..].strip_prefix(b"\r\n")?;
    // Empty and overlong numbers fail here.
    let number = std::str::from_utf8(&bytes[..digits]).ok()?.parse().ok()?;
    Some((number, rest))
}
