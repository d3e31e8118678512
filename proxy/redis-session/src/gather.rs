//! The replies of several shards become one reply.

use std::borrow::Cow;

use weir_analysis::redis::ResponsePolicy;
use weir_base::exchange::FrameKind;
use weir_placement::SHARDS_MAX;
use weir_resp::{ReplyFramer, ReplyLimits, Version, encode};

use crate::{info::merge, refusal};

/// The merging of the replies of several shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// One array: for each of these parts its next element (MGET).
    InOrder(Vec<u16>),
    /// One array after the other (KEYS).
    Concatenate,
    /// The first, unless one is an error.
    AllSucceeded,
    /// The first that is no error.
    OneSucceeded,
    /// The first that is not null (RANDOMKEY).
    NotNull,
    /// Integers, or arrays of them element by element.
    Fold(Fold),
    /// Texts of INFO become one; of a single one nothing is changed.
    Info {
        /// A section of the gateway's own behind it, if it is not empty.
        section: String,
    },
    /// The only part is a page of SCAN: its cursor gets the shard's place among all.
    Page {
        /// The place of the queried shard.
        place: u16,
        /// How many there are.
        shards: u16,
    },
}

/// Two integers become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fold {
    Sum,
    Min,
    Max,
    And,
    Or,
}

impl Fold {
    fn apply(self, one: i64, other: i64) -> i64 {
        match self {
            Fold::Sum => one.saturating_add(other),
            Fold::Min => one.min(other),
            Fold::Max => one.max(other),
            Fold::And => i64::from(one != 0 && other != 0),
            Fold::Or => i64::from(one != 0 || other != 0),
        }
    }
}

impl Merge {
    /// How the replies to a command that went to all shards are merged; `None` if no rule fits and one shard must do.
    pub(crate) fn over_all(policy: ResponsePolicy, name: &str) -> Option<Self> {
        Some(match policy {
            _ if name == "randomkey" => Merge::NotNull,
            _ if name == "info" => Merge::Info { section: String::new() },
            ResponsePolicy::Default => Merge::Concatenate,
            ResponsePolicy::OneSucceeded => Merge::OneSucceeded,
            ResponsePolicy::AllSucceeded => Merge::AllSucceeded,
            ResponsePolicy::AggLogicalAnd => Merge::Fold(Fold::And),
            ResponsePolicy::AggLogicalOr => Merge::Fold(Fold::Or),
            ResponsePolicy::AggMin => Merge::Fold(Fold::Min),
            ResponsePolicy::AggMax => Merge::Fold(Fold::Max),
            ResponsePolicy::AggSum => Merge::Fold(Fold::Sum),
            ResponsePolicy::Special => return None,
        })
    }
}

/// The text of a server that does not fit the rule of the merge.
const MISMATCH: &str = "ERR weir: the shards' replies do not fit together";

/// The reply of one shard, as it came.
#[derive(Clone, Debug, Default)]
struct Part {
    bytes: Vec<u8>,
    is_error: bool,
}

/// Replies of one command that went to several shards, under way.
#[derive(Debug)]
pub(crate) struct Gather {
    /// The exchanges of its parts are numbered one after the other from here.
    first: u64,
    parts: Vec<Part>,
    merge: Merge,
    /// The client does not want the reply.
    pub(crate) is_muted: bool,
}

impl Gather {
    /// Gathers `parts` exchanges, at least one, from number `first` on.
    pub(crate) fn new(first: u64, parts: usize, merge: Merge) -> Self {
        assert!(parts > 0, "a command goes somewhere");
        Self { first, parts: vec![Part::default(); parts], merge, is_muted: false }
    }

    /// The exchange of its last part.
    pub(crate) fn last(&self) -> u64 {
        self.first + self.parts.len() as u64 - 1
    }

    pub(crate) fn holds(&self, exchange: u64) -> bool {
        (self.first..=self.last()).contains(&exchange)
    }

    /// Puts `section` behind the text of INFO.
    pub(crate) fn append(&mut self, text: String) {
        if let Merge::Info { section } = &mut self.merge {
            *section = text;
        }
    }

    fn part(&mut self, exchange: u64) -> &mut Part {
        &mut self.parts[(exchange - self.first) as usize]
    }

    /// Takes a piece of the reply to `exchange`, one of its own.
    pub(crate) fn take(&mut self, exchange: u64, bytes: &[u8], end: Option<FrameKind>) {
        let part = self.part(exchange);
        part.bytes.extend_from_slice(bytes);
        part.is_error |= end == Some(FrameKind::Error);
    }

    /// Forgets the beginning of a reply whose end will not come; how many bytes that were.
    pub(crate) fn forget(&mut self, exchange: u64) -> usize {
        std::mem::take(&mut self.part(exchange).bytes).len()
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes.len()).sum()
    }

    /// The one reply, once all parts are here.
    pub(crate) fn merged(self) -> Vec<u8> {
        let Self { parts, merge, .. } = self;
        let mut out = Vec::with_capacity(parts.iter().map(|part| part.bytes.len()).sum());
        let fits = match merge {
            Merge::InOrder(order) => {
                in_order(&parts, &order, &mut out);
                Some(())
            }
            Merge::OneSucceeded => {
                let good = parts.iter().find(|part| !part.is_error).or(parts.first());
                good.map(|part| out.extend_from_slice(&part.bytes))
            }
            // A client that checks health by INFO must not be refused because one shard fails.
            Merge::Info { section } if parts.iter().any(|part| !part.is_error) => info(&parts, &section, &mut out),
            _ if parts.iter().any(|part| part.is_error) => {
                out.extend_from_slice(&failure(&parts));
                Some(())
            }
            Merge::AllSucceeded => parts.first().map(|part| out.extend_from_slice(&part.bytes)),
            Merge::NotNull => {
                let is_null = |part: &&Part| matches!(&*part.bytes, b"$-1\r\n" | b"*-1\r\n" | b"_\r\n");
                let found = parts.iter().find(|part| !is_null(part)).or(parts.first());
                found.map(|part| out.extend_from_slice(&part.bytes))
            }
            Merge::Concatenate => concatenate(&parts, &mut out),
            Merge::Fold(fold) => fold_parts(&parts, fold, &mut out),
            Merge::Info { .. } => None,
            Merge::Page { place, shards } => parts.first().and_then(|part| page(&part.bytes, place, shards, &mut out)),
        };
        if fits.is_none() {
            out.clear();
            encode::error(&mut out, MISMATCH.as_bytes());
        }
        out
    }
}

/// The error in the name of all: the server's own where none succeeded, else how far it came.
fn failure(parts: &[Part]) -> Vec<u8> {
    let failed = parts.iter().filter(|part| part.is_error).count();
    let first = parts.iter().find(|part| part.is_error).map_or(&b""[..], |part| &part.bytes);
    if failed == parts.len() {
        return first.to_vec();
    }
    let text = first.strip_prefix(b"-").unwrap_or(first).trim_ascii_end();
    let done = parts.len() - failed;
    let mut whole = format!("ERR weir: done on {done} of {} shards; another said: ", parts.len()).into_bytes();
    whole.extend_from_slice(text);
    refusal::line(whole)
}

/// Elements of a reply that is an array (or a set, in RESP3).
struct Elements<'a> {
    count: usize,
    rest: &'a [u8],
}

impl<'a> Elements<'a> {
    fn of(reply: &'a [u8]) -> Option<Self> {
        let rest = reply.strip_prefix(b"*").or(reply.strip_prefix(b"~"))?;
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        let count = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
        Some(Self { count, rest: &rest[end + 2..] })
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let scan = ReplyFramer::new(ReplyLimits::default()).advance(self.rest).ok()?;
        scan.end?;
        let (element, rest) = self.rest.split_at(scan.taken);
        self.rest = rest;
        Some(element)
    }
}

/// An error reply stands in the place of each element that its shard owes.
fn in_order(parts: &[Part], order: &[u16], out: &mut Vec<u8>) {
    let mut elements: Vec<Option<Elements<'_>>> = parts.iter().map(|part| Elements::of(&part.bytes)).collect();
    encode::array(out, order.len());
    for &part in order {
        let (part, elements) = (&parts[usize::from(part)], &mut elements[usize::from(part)]);
        match elements.as_mut().and_then(Iterator::next) {
            Some(element) => out.extend_from_slice(element),
            None if part.is_error => out.extend_from_slice(&part.bytes),
            None => encode::error(out, MISMATCH.as_bytes()),
        }
    }
}

/// The text of a bulk string or a verbatim string.
fn text(reply: &[u8]) -> Option<&[u8]> {
    let begin = reply.iter().position(|byte| *byte == b'\n')? + 1;
    let text = reply.get(begin..)?.strip_suffix(b"\r\n")?;
    Some(text.strip_prefix(b"txt:").filter(|_| reply[0] == b'=').unwrap_or(text))
}

fn info(parts: &[Part], section: &str, out: &mut Vec<u8>) -> Option<()> {
    let good = || parts.iter().filter(|part| !part.is_error);
    let first = good().next()?;
    let texts = good().map(|part| text(&part.bytes)).collect::<Option<Vec<&[u8]>>>()?;
    let whole = match &texts[..] {
        [text] => Cow::Borrowed(*text),
        texts => {
            let texts: Vec<Cow<'_, str>> = texts.iter().map(|text| String::from_utf8_lossy(text)).collect();
            Cow::Owned(merge::merged(&texts.iter().map(|text| &**text).collect::<Vec<_>>()).into_bytes())
        }
    };
    let blank: &[u8] = if whole.is_empty() || section.is_empty() { b"" } else { b"\r\n" };
    let version = if first.bytes[0] == b'=' { Version::Resp3 } else { Version::Resp2 };
    encode::verbatim(out, *b"txt", &[&whole, blank, section.as_bytes()].concat(), version);
    Some(())
}

fn concatenate(parts: &[Part], out: &mut Vec<u8>) -> Option<()> {
    let all: Option<Vec<Elements<'_>>> = parts.iter().map(|part| Elements::of(&part.bytes)).collect();
    let all = all?;
    encode::array(out, all.iter().map(|elements| elements.count).sum());
    all.iter().for_each(|elements| out.extend_from_slice(elements.rest));
    Some(())
}

fn integer(reply: &[u8]) -> Option<i64> {
    let digits = reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn fold_parts(parts: &[Part], fold: Fold, out: &mut Vec<u8>) -> Option<()> {
    let apply = |one, other| fold.apply(one, other);
    if parts.first()?.bytes.starts_with(b":") {
        let all: Option<Vec<i64>> = parts.iter().map(|part| integer(&part.bytes)).collect();
        encode::integer(out, all?.into_iter().reduce(apply)?);
        return Some(());
    }
    let row = |part: &Part| Elements::of(&part.bytes)?.map(integer).collect::<Option<Vec<i64>>>();
    let rows: Option<Vec<Vec<i64>>> = parts.iter().map(row).collect();
    let merged = rows?.into_iter().try_fold(None, |all: Option<Vec<i64>>, row| match all {
        None => Some(Some(row)),
        Some(all) if all.len() == row.len() => {
            Some(Some(all.into_iter().zip(row).map(|(one, other)| apply(one, other)).collect()))
        }
        Some(_) => None,
    })??;
    encode::array(out, merged.len());
    merged.into_iter().for_each(|value| encode::integer(out, value));
    Some(())
}

/// Cursors of the client count shards in their last digit, to this base, however many there are just now.
const CURSOR_BASE: u64 = SHARDS_MAX as u64;

/// The place of the shard that `cursor` asks, and the cursor there.
pub(crate) fn split_cursor(cursor: u64) -> (u16, u64) {
    ((cursor % CURSOR_BASE) as u16, cursor / CURSOR_BASE)
}

fn page(reply: &[u8], place: u16, shards: u16, out: &mut Vec<u8>) -> Option<()> {
    let mut elements = Elements::of(reply).filter(|elements| elements.count == 2)?;
    let cursor = elements.next()?;
    let digits = &cursor[cursor.windows(2).position(|pair| pair == b"\r\n")? + 2..];
    let cursor: u64 = std::str::from_utf8(digits.strip_suffix(b"\r\n")?).ok()?.parse().ok()?;
    let next = match cursor {
        0 if place + 1 < shards => u64::from(place) + 1,
        0 => 0,
        // A server whose cursors use the upper bits too leaves no room.
        cursor => cursor.checked_mul(CURSOR_BASE)?.checked_add(place.into())?,
    };
    encode::array(out, 2);
    encode::bulk(out, next.to_string().as_bytes());
    out.extend_from_slice(elements.rest);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(merge: Merge, replies: &[&str]) -> String {
        let mut gather = Gather::new(7, replies.len(), merge);
        for (reply, exchange) in replies.iter().zip(7..) {
            let kind = if reply.starts_with('-') { FrameKind::Error } else { FrameKind::Reply };
            let (head, tail) = reply.split_at(reply.len() / 2);
            gather.take(exchange, head.as_bytes(), None);
            gather.take(exchange, tail.as_bytes(), Some(kind));
        }
        String::from_utf8(gather.merged()).expect("text")
    }

    #[test]
    fn values_come_in_the_order_of_the_keys() {
        let order = Merge::InOrder(vec![1, 0, 1, 2]);
        let replies = ["*1\r\n$1\r\na\r\n", "*2\r\n$-1\r\n$3\r\n\r\n\r\r\n", "-LOADING x\r\n"];
        let wanted = "*4\r\n$-1\r\n$1\r\na\r\n$3\r\n\r\n\r\r\n-LOADING x\r\n";
        assert_eq!(merged(order.clone(), &replies), wanted);
        // A shard that replies too little does not shift what follows.
        let short = merged(order, &["*1\r\n:1\r\n", "*1\r\n:2\r\n", "*1\r\n:3\r\n"]);
        assert_eq!(short, format!("*4\r\n:2\r\n:1\r\n-{MISMATCH}\r\n:3\r\n"));
    }

    #[test]
    fn numbers_are_added_and_compared() {
        let cases = [
            (Fold::Sum, [":1\r\n", ":0\r\n", ":5\r\n"], ":6\r\n"),
            (Fold::Min, [":1\r\n", ":0\r\n", ":5\r\n"], ":0\r\n"),
            (Fold::Max, [":1\r\n", ":-7\r\n", ":5\r\n"], ":5\r\n"),
            (Fold::And, ["*2\r\n:1\r\n:0\r\n", "*2\r\n:1\r\n:1\r\n", "*2\r\n:1\r\n:1\r\n"], "*2\r\n:1\r\n:0\r\n"),
            (Fold::Or, ["*1\r\n:0\r\n", "*1\r\n:0\r\n", "*1\r\n:1\r\n"], "*1\r\n:1\r\n"),
            (Fold::Sum, [":9223372036854775807\r\n", ":1\r\n", ":0\r\n"], ":9223372036854775807\r\n"),
        ];
        for (fold, replies, wanted) in cases {
            assert_eq!(merged(Merge::Fold(fold), &replies), wanted);
        }
        let mismatch = format!("-{MISMATCH}\r\n");
        assert_eq!(merged(Merge::Fold(Fold::And), &["*1\r\n:1\r\n", "*2\r\n:1\r\n:1\r\n"]), mismatch);
        assert_eq!(merged(Merge::Fold(Fold::Sum), &[":1\r\n", "+OK\r\n"]), mismatch);
    }

    #[test]
    fn arrays_are_put_behind_each_other() {
        assert_eq!(
            merged(Merge::Concatenate, &["*1\r\n+a\r\n", "*0\r\n", "*2\r\n+b\r\n+c\r\n"]),
            "*3\r\n+a\r\n+b\r\n+c\r\n"
        );
        assert_eq!(merged(Merge::Concatenate, &["*-1\r\n", "*0\r\n"]), format!("-{MISMATCH}\r\n"));
    }

    #[test]
    fn info_is_that_of_the_shards_that_answer() {
        let info = || Merge::Info { section: String::new() };
        let one = |count: u32| format!("$19\r\n# Stats\r\nthings:{count}\r\n\r\n");
        assert_eq!(merged(info(), &[&one(1), &one(2)]), one(3));
        assert_eq!(merged(info(), &["-ERR gone\r\n", &one(2), &one(3)]), one(5));
        assert_eq!(merged(info(), &["-ERR gone\r\n", &one(2)]), one(2));
        assert_eq!(merged(info(), &["-ERR gone\r\n", "-ERR too\r\n"]), "-ERR gone\r\n");
        assert_eq!(merged(info(), &["+OK\r\n", &one(2)]), format!("-{MISMATCH}\r\n"));
    }

    #[test]
    fn an_error_is_reported_with_the_completed_part() {
        let sum = Merge::Fold(Fold::Sum);
        assert_eq!(merged(sum.clone(), &["-OOM a\r\n", "-OOM b\r\n"]), "-OOM a\r\n");
        let partly = "-ERR weir: done on 2 of 3 shards; another said: OOM a\r\n";
        assert_eq!(merged(sum, &[":1\r\n", "-OOM a\r\n", ":1\r\n"]), partly);
        assert_eq!(merged(Merge::AllSucceeded, &["+OK\r\n", "+OK\r\n"]), "+OK\r\n");
        assert_eq!(merged(Merge::OneSucceeded, &["-NOTBUSY x\r\n", "+OK\r\n"]), "+OK\r\n");
        assert_eq!(merged(Merge::OneSucceeded, &["-NOTBUSY x\r\n", "-NOTBUSY y\r\n"]), "-NOTBUSY x\r\n");
        assert_eq!(merged(Merge::NotNull, &["$-1\r\n", "$1\r\na\r\n"]), "$1\r\na\r\n");
        assert_eq!(merged(Merge::NotNull, &["_\r\n", "_\r\n"]), "_\r\n");
    }

    #[test]
    fn a_scan_goes_from_shard_to_shard() {
        let page = |cursor: u64, place| {
            let reply = format!("*2\r\n${}\r\n{cursor}\r\n*1\r\n$1\r\nk\r\n", cursor.to_string().len());
            merged(Merge::Page { place, shards: 3 }, &[&reply])
        };
        assert_eq!(page(0, 0), "*2\r\n$1\r\n1\r\n*1\r\n$1\r\nk\r\n");
        assert_eq!(page(5, 1), "*2\r\n$4\r\n5121\r\n*1\r\n$1\r\nk\r\n");
        assert_eq!(page(0, 2), "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nk\r\n");
        assert_eq!(page(u64::MAX, 1), format!("-{MISMATCH}\r\n"));
        assert_eq!([0, 1, 5_121].map(split_cursor), [(0, 0), (1, 0), (1, 5)]);
    }
}
