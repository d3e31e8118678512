//! Is this the reply that the plan expects?

use crate::answer::Reply;
use crate::requests::{Checks, Plan, REQUESTS_MAX, Requests, Wanted, http};
use crate::values::{Generation, Seen};

/// What the check of one reply found. Of an MGET the worst of its keys, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Integrity {
    /// Exactly what the plan expects.
    Ok,
    /// A whole value of the right key from another planned SET: another connection or shard can have been faster.
    RaceSuspect,
    /// Nothing, where a value must be.
    Missing,
    /// Anything else: foreign or damaged bytes, a value of another run, the wrong type of reply.
    Mismatch,
}

impl Requests {
    /// Checks the whole reply to request `index`. `None`: there is nothing to check, because the command is a raw one or
    /// the scenario does not ask. An error reply is a mismatch here; see [`classify`](crate::answer::classify) first.
    #[must_use]
    pub fn check(&self, index: u64, reply: &[u8]) -> Option<Integrity> {
        let checks = self.checks.as_ref()?;
        let is_first_round = index < self.plans.len() as u64;
        let found = match self.plans[self.place(index)] {
            // Those of other protocols come by other ways.
            Plan::Raw | Plan::Body { .. } | Plan::Message => return None,
            Plan::Set => is_expected(reply == b"+OK\r\n"),
            Plan::Incr => is_expected(is_count(reply)),
            Plan::Get(wanted) => match take_bulk(reply) {
                Some((value, [])) => self.judge(&wanted, is_first_round, value, checks),
                _ => Integrity::Mismatch,
            },
            Plan::Mget(from, until) => {
                let wanted = &self.wanted[from as usize..until as usize];
                self.check_all(wanted, is_first_round, reply, checks).unwrap_or(Integrity::Mismatch)
            }
        };
        Some(found)
    }

    /// Checks a reply that is no error, of any protocol. `None` as in [`Requests::check`].
    #[must_use]
    pub fn check_reply(&self, index: u64, reply: &Reply<'_>) -> Option<Integrity> {
        match reply {
            Reply::Resp(bytes) => self.check(index, bytes),
            Reply::Http { body, .. } => self.check_body(index, body),
            Reply::Message(message) => self.check_message(index, message),
            Reply::Refused(_) | Reply::Reset => None,
        }
    }

    /// Checks the body of the answer to request `index`.
    #[must_use]
    pub fn check_body(&self, index: u64, body: &[u8]) -> Option<Integrity> {
        let (checks, at) = (self.checks.as_ref()?, self.place(index));
        match self.plans[at] {
            Plan::Body { size, has_word } => {
                Some(http::check_body(&self.values, checks.shard, at, (size, has_word), body))
            }
            _ => Some(Integrity::Mismatch),
        }
    }

    /// Checks the message that came back for message `index`.
    #[must_use]
    pub fn check_message(&self, index: u64, message: &[u8]) -> Option<Integrity> {
        let (checks, at) = (self.checks.as_ref()?, self.place(index));
        Some(http::check_message(&self.values, checks.shard, at, message))
    }

    /// `None`: not an array with a string or nothing for each key.
    fn check_all(&self, wanted: &[Wanted], is_first: bool, reply: &[u8], checks: &Checks) -> Option<Integrity> {
        let (count, mut rest) = take_number(reply.strip_prefix(b"*")?)?;
        if usize::try_from(count).ok()? != wanted.len() {
            return None;
        }
        let mut worst = Integrity::Ok;
        for one in wanted {
            let (value, after) = take_bulk(rest)?;
            worst = worst.max(self.judge(one, is_first, value, checks));
            rest = after;
        }
        rest.is_empty().then_some(worst)
    }

    fn judge(&self, wanted: &Wanted, is_first: bool, value: Option<&[u8]>, checks: &Checks) -> Integrity {
        let number = if is_first { wanted.first } else { wanted.later };
        let expected = Generation::of_set(checks.shard, number);
        let otherwise = if wanted.contested { Integrity::RaceSuspect } else { Integrity::Mismatch };
        let Some(bytes) = value else {
            return match (checks.is_preloaded, number) {
                (true, _) => Integrity::Missing,
                (false, 0) => Integrity::Ok,
                // The SET that the plan has before this may still be on its way.
                (false, _) => Integrity::RaceSuspect,
            };
        };
        match self.values.recognise(wanted.key, bytes) {
            Seen::Value(found) if found == expected => Integrity::Ok,
            Seen::Value(found) if found.is_planned(checks.shard.of(), REQUESTS_MAX as u32) => otherwise,
            Seen::Short if bytes.len() == self.values.size(wanted.key, expected) => Integrity::Ok,
            Seen::Short => otherwise,
            Seen::Value(_) | Seen::Foreign => Integrity::Mismatch,
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
fn take_bulk(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
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
