//! The bills of the origin: one entry for each request that reached a model, and sums that no limit cuts.
//!
//! `GET /ledger` gives all entries of [`ENTRIES_MAX`] at most, `GET /ledger?from=N&count=M` a part, in the order in which requests
//! came; `DELETE /ledger` forgets all. An entry is open until the last byte of its reply was handed over to be sent.
//!
//! | field | meaning |
//! |---|---|
//! | `id` | that of the reply's `x-request-id` |
//! | `request` | the `x-request-id` of the request, if it has one |
//! | `endpoint`, `model`, `word`, `user`, `try` | those of the request; `try` counts from 0 as OpenAI's SDKs do |
//! | `key` | a fingerprint of the key that was presented |
//! | `stream`, `status` | form and status of the reply |
//! | `end` | `open`, `completed`, `disconnected`, `refused`, or the name of the fault |
//! | `events` | events with text that were written, which is the most that a client can have seen |
//! | `prompt`, `cached`, `written`, `completion`, `reasoning`, `audio` | tokens as billed: of a stream that was not completed those of its events, of an error none |

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    json::{Part, parts},
    text::Word,
    usage::Tokens,
};

/// Entries that are kept. 262,144: minutes of a fast load, in about 80 MiB. Older ones are dropped and counted; the sums go on.
pub const ENTRIES_MAX: usize = 262_144;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its reply is being written.
    Open,
    /// All of its reply was written.
    Completed,
    /// The client left before.
    Disconnected,
    /// With an error.
    Refused,
    /// With a fault of this name.
    Fault(&'static str),
}

impl End {
    const fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Completed => "completed",
            Self::Disconnected => "disconnected",
            Self::Refused => "refused",
            Self::Fault(name) => name,
        }
    }
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) request: Option<String>,
    pub(super) endpoint: &'static str,
    pub(super) model: String,
    pub(super) word: Word,
    pub(super) user: Option<String>,
    pub(super) attempt: u32,
    pub(super) key: Option<u32>,
    pub(super) is_stream: bool,
    pub(super) status: u16,
    pub(super) end: End,
    pub(super) events: u64,
    pub(super) tokens: Tokens,
}

/// Sums over all entries, dropped ones too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests that reached a model, refused ones too.
    pub requests: u64,
    /// Those whose reply was written to its end.
    pub completed: u64,
    /// Those whose client left before.
    pub disconnected: u64,
    /// Those with an error.
    pub refused: u64,
    /// Those with a fault.
    pub faulty: u64,
    /// Tokens as billed.
    pub prompt: u64,
    /// The same.
    pub completion: u64,
}

#[derive(Debug, Default)]
struct Book {
    /// Number of the first entry.
    first: u64,
    entries: VecDeque<Entry>,
    totals: Totals,
}

/// The ledger of one origin, for all of its workers.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Book>);

impl Ledger {
    fn book(&self) -> MutexGuard<'_, Book> {
        // Every change of a book is whole before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sums so far. Open requests are counted as requests alone.
    pub fn totals(&self) -> Totals {
        self.book().totals
    }

    /// Opens an entry. Its number.
    pub(super) fn open(&self, entry: Entry) -> u64 {
        let mut book = self.book();
        book.totals.requests += 1;
        if book.entries.len() == ENTRIES_MAX {
            book.entries.pop_front();
            book.first += 1;
        }
        book.entries.push_back(entry);
        book.first + book.entries.len() as u64 - 1
    }

    /// Closes entry `number`, also if it was dropped meanwhile.
    pub(super) fn close(&self, number: u64, end: End, events: u64, tokens: Tokens) {
        let mut book = self.book();
        let totals = &mut book.totals;
        match end {
            End::Open => {}
            End::Completed => totals.completed += 1,
            End::Disconnected => totals.disconnected += 1,
            End::Refused => totals.refused += 1,
            End::Fault(_) => totals.faulty += 1,
        }
        totals.prompt += tokens.prompt;
        totals.completion += tokens.completion;
        let at = number.checked_sub(book.first).and_then(|at| usize::try_from(at).ok());
        if let Some(entry) = at.and_then(|at| book.entries.get_mut(at)) {
            (entry.end, entry.events, entry.tokens) = (end, events, tokens);
        }
    }

    /// Forgets everything. Numbers go on, so that requests under way close no entry of others.
    pub(super) fn clear(&self) {
        let mut book = self.book();
        book.first += book.entries.len() as u64;
        book.entries.clear();
        book.totals = Totals::default();
    }

    /// The sums, and `count` entries from number `from` on, as JSON.
    pub(super) fn write(&self, from: u64, count: usize, out: &mut Vec<u8>) {
        use Part::{Number, Raw};
        let book = self.book();
        let Totals { requests, completed, disconnected, refused, faulty, prompt, completion } = book.totals;
        let open = requests - completed - disconnected - refused - faulty;
        let named = [
            ("{\"totals\":{\"requests\":", requests),
            (",\"completed\":", completed),
            (",\"disconnected\":", disconnected),
            (",\"refused\":", refused),
            (",\"faulty\":", faulty),
            (",\"open\":", open),
            (",\"prompt\":", prompt),
            (",\"completion\":", completion),
            ("},\"first\":", book.first),
        ];
        named.iter().for_each(|(name, value)| parts(&[Raw(name), Number(*value)], out));
        out.extend_from_slice(b",\"entries\":[");
        let skipped = usize::try_from(from.saturating_sub(book.first)).unwrap_or(usize::MAX);
        for (at, entry) in book.entries.iter().enumerate().skip(skipped).take(count) {
            if at > skipped {
                out.push(b',');
            }
            write_entry(book.first + at as u64, entry, out);
        }
        out.extend_from_slice(b"]}");
    }
}

/// The value of `x-request-id` of entry `number`.
pub fn id_of(number: u64) -> String {
    format!("req_{number:016x}")
}

fn write_entry(number: u64, entry: &Entry, out: &mut Vec<u8>) {
    use Part::{Number, Raw, Text};
    let Entry { request, endpoint, model, word, user, attempt, key, is_stream, status, end, events, tokens } = entry;
    let &Tokens { prompt, cached, written, completion, reasoning, audio } = tokens;
    let id = id_of(number);
    parts(&[Raw("{\"id\":"), Text(&id), Raw(",\"endpoint\":"), Text(endpoint), Raw(",\"model\":"), Text(model)], out);
    parts(&[Raw(",\"word\":"), Text(word.as_str())], out);
    if let Some(request) = request {
        parts(&[Raw(",\"request\":"), Text(request)], out);
    }
    if let Some(user) = user {
        parts(&[Raw(",\"user\":"), Text(user)], out);
    }
    if let Some(key) = key {
        parts(&[Raw(",\"key\":"), Text(&format!("{key:08x}"))], out);
    }
    let stream = if *is_stream { ",\"stream\":true,\"status\":" } else { ",\"stream\":false,\"status\":" };
    parts(&[Raw(",\"try\":"), Number((*attempt).into()), Raw(stream), Number((*status).into())], out);
    parts(&[Raw(",\"end\":"), Text(end.word()), Raw(",\"events\":"), Number(*events)], out);
    parts(&[Raw(",\"prompt\":"), Number(prompt), Raw(",\"cached\":"), Number(cached)], out);
    parts(&[Raw(",\"written\":"), Number(written), Raw(",\"completion\":"), Number(completion)], out);
    parts(&[Raw(",\"reasoning\":"), Number(reasoning), Raw(",\"audio\":"), Number(audio), Raw("}")], out);
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn entry() -> Entry {
        Entry {
            request: None,
            endpoint: "chat",
            model: "m\"".to_owned(),
            word: Word::of(7),
            user: Some("u".to_owned()),
            attempt: 1,
            key: Some(5),
            is_stream: true,
            status: 200,
            end: End::Open,
            events: 0,
            tokens: Tokens::default(),
        }
    }

    fn read(ledger: &Ledger, from: u64, count: usize) -> Value {
        let mut out = Vec::new();
        ledger.write(from, count, &mut out);
        serde_json::from_slice(&out).expect("JSON")
    }

    #[test]
    fn an_entry_is_open_and_then_closed_with_what_is_billed() {
        let ledger = Ledger::default();
        let number = ledger.open(entry());
        assert_eq!(read(&ledger, 0, 9)["entries"][0]["end"], "open");
        assert_eq!(read(&ledger, 0, 9)["totals"]["open"], 1);
        let tokens = Tokens { prompt: 9, completion: 4, ..Tokens::default() };
        ledger.close(number, End::Fault("cut"), 2, tokens);
        let found = read(&ledger, 0, 9);
        assert_eq!((&found["entries"][0]["end"], &found["entries"][0]["events"]), (&"cut".into(), &2.into()));
        assert_eq!((&found["totals"]["completion"], &found["totals"]["faulty"]), (&4.into(), &1.into()));
        assert_eq!((found["entries"][0]["model"].as_str(), found["totals"]["open"].as_u64()), (Some("m\""), Some(0)));
    }

    #[test]
    fn old_entries_are_dropped_and_their_tokens_stay_in_the_sums() {
        let ledger = Ledger::default();
        let numbers: Vec<u64> = (0..ENTRIES_MAX + 10).map(|_| ledger.open(entry())).collect();
        let tokens = Tokens { prompt: 1, ..Tokens::default() };
        numbers.iter().for_each(|number| ledger.close(*number, End::Completed, 1, tokens));
        assert_eq!(ledger.totals().prompt, ENTRIES_MAX as u64 + 10);
        let found = read(&ledger, 12, 3);
        assert_eq!((found["first"].as_u64(), found["entries"].as_array().map(Vec::len)), (Some(10), Some(3)));
        assert_eq!(found["entries"][0]["id"], id_of(12));
        ledger.clear();
        let next = ledger.open(entry());
        assert_eq!((next, ledger.totals().requests), (ENTRIES_MAX as u64 + 10, 1), "no number comes twice");
    }
}
