//! The record of a request that is open, in the short form that the journal keeps: only the death of its process needs its line.
//!
//! ```text
//! 1 | time in milliseconds 8 | version of the price table 4 | ten texts: length 1, or 255 for none, and bytes
//! ```

use std::time::Duration;

use super::record::{Flags, TEXT_BYTES_MAX, UsageRecord};
use crate::{amount::Amount, budget::Day};

/// The first byte. No line begins with it.
const SHORT: u8 = 1;

/// The length of a text that is not there.
const ABSENT: u8 = u8::MAX;

/// Whether a record that the journal keeps is in the short form.
pub fn is_short(record: &[u8]) -> bool {
    record.first() == Some(&SHORT)
}

impl UsageRecord<'_> {
    /// Appends the short form. It has the texts of the request, its time and the version of the price table; day and charge stand beside
    /// it in the journal.
    pub fn write_open(&self, into: &mut Vec<u8>) {
        into.push(SHORT);
        into.extend_from_slice(&u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX).to_le_bytes());
        into.extend_from_slice(&self.price_version.to_le_bytes());
        put(Some(self.request), into);
        put(Some(self.model), into);
        for text in [self.key, self.team, self.server, self.tool, self.user, self.agent, self.conversation, self.tags] {
            put(text, into);
        }
    }
}

fn put(text: Option<&str>, into: &mut Vec<u8>) {
    let Some(text) = text else { return into.push(ABSENT) };
    let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
    into.push(text.len() as u8);
    into.extend_from_slice(text.as_bytes());
}

/// The usage record, with the flag `crash`, of a request whose process has died: the line of a short form. Another record is a line, as
/// earlier versions have written it.
pub fn crash_line(record: &[u8], day: Day, charged: Amount) -> Box<[u8]> {
    if !is_short(record) {
        return record.into();
    }
    let mut line = Vec::new();
    if let Some(record) = read(&record[1..], day, charged) {
        record.write(&mut line);
    }
    line.into()
}

/// `None`: it is cut.
fn read(bytes: &[u8], day: Day, charged: Amount) -> Option<UsageRecord<'_>> {
    let (time, rest) = bytes.split_first_chunk()?;
    let (version, mut rest) = rest.split_first_chunk()?;
    let mut next = || -> Option<Option<&str>> {
        let (&length, behind) = rest.split_first()?;
        let length = if length == ABSENT { 0 } else { usize::from(length) };
        let (text, behind) = behind.split_at_checked(length)?;
        let is_there = rest[0] != ABSENT;
        rest = behind;
        Some(std::str::from_utf8(text).ok().filter(|_| is_there))
    };
    Some(UsageRecord {
        time: Duration::from_millis(u64::from_le_bytes(*time)),
        price_version: u32::from_le_bytes(*version),
        request: next()??,
        model: next()??,
        key: next()?,
        team: next()?,
        server: next()?,
        tool: next()?,
        user: next()?,
        agent: next()?,
        conversation: next()?,
        tags: next()?,
        day,
        charged,
        flags: Flags { crash: true, ..Flags::default() },
        ..UsageRecord::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHARGED: Amount = Amount { tokens: 120, money: 77 };

    fn record(model: &str) -> UsageRecord<'_> {
        UsageRecord {
            time: Duration::from_millis(1_700_000_000_123),
            request: "req_1",
            key: Some("ci"),
            model,
            user: Some(""),
            tool: Some("a \"quoted\" one"),
            tags: Some("\u{4f60}"),
            price_version: 3,
            ..UsageRecord::default()
        }
    }

    #[test]
    fn the_line_is_that_of_the_whole_record() {
        for model in ["", "gpt", &"m".repeat(500), &"\u{4f60}".repeat(99)] {
            let (mut short, mut line) = (Vec::new(), Vec::new());
            record(model).write_open(&mut short);
            let flags = Flags { crash: true, ..Flags::default() };
            UsageRecord { day: Day::new(9), charged: CHARGED, flags, ..record(model) }.write(&mut line);
            assert_eq!(*crash_line(&short, Day::new(9), CHARGED), *line);
            assert!(is_short(&short) && !is_short(&line) && short.len() < line.len());
            for cut in 1..short.len() {
                assert!(crash_line(&short[..cut], Day::new(9), CHARGED).is_empty(), "cut at {cut}");
            }
        }
    }

    #[test]
    fn a_line_of_an_earlier_version_and_none_stay_as_they_are() {
        for line in [&b"{}\n"[..], b""] {
            assert_eq!(*crash_line(line, Day::new(1), CHARGED), *line);
        }
    }
}
