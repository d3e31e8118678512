//! The upstreams that made stored responses: a request that goes on from a response has to go where it was made.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use memchr::memmem;

/// Ids that a process remembers at the least, if so many were seen: those that were made or used last. Default 16,384: turns of some hours of
/// a busy team. It forgets the older ones half by half, so it has twice as many at most: 8 MiB with ids of the usual 60 bytes.
const IDS_MIN: usize = 16 * 1024;

/// Bytes of an id. Providers have some 60; a longer one is not remembered.
const ID_BYTES_MAX: usize = 128;

/// Bytes at the beginning of a response among which its id stands. Default 4 KiB: it is the first member, in a stream that of the first event.
const HEAD_BYTES_MAX: usize = 4 * 1024;

/// The ids of stored responses of a process, with the names of the upstreams that made them. Clones share them.
///
/// Only requests of responses that a provider keeps touch its lock, once or twice each.
#[derive(Clone, Debug, Default)]
pub struct StoredResponses(Arc<Mutex<Generations>>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Box<str>, Arc<str>>,
    old: HashMap<Box<str>, Arc<str>>,
}

impl StoredResponses {
    /// `upstream` has made the response `id`.
    pub(crate) fn remember(&self, id: &str, upstream: &Arc<str>) {
        if id.len() <= ID_BYTES_MAX {
            self.with(|ids| ids.insert(id.into(), upstream.clone()));
        }
    }

    /// The upstream that made a response. `None`: it is not known.
    pub(crate) fn upstream(&self, id: &str) -> Option<Arc<str>> {
        self.with(|ids| {
            if let Some(upstream) = ids.young.get(id) {
                return Some(upstream.clone());
            }
            // A used id stays.
            let (id, upstream) = ids.old.remove_entry(id)?;
            ids.insert(id, upstream.clone());
            Some(upstream)
        })
    }

    fn with<T>(&self, call: impl FnOnce(&mut Generations) -> T) -> T {
        // Every change is whole before anything can panic.
        call(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Generations {
    fn insert(&mut self, id: Box<str>, upstream: Arc<str>) {
        if self.young.len() == IDS_MIN {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, upstream);
    }
}

/// Looks for the id of a response at its beginning, whole or as a stream.
#[derive(Debug, Default)]
pub(crate) struct IdFinder {
    head: Vec<u8>,
    is_over: bool,
}

impl IdFinder {
    /// Takes the next piece of the body. The id, once.
    pub(crate) fn take(&mut self, piece: &[u8]) -> Option<Box<str>> {
        if self.is_over {
            return None;
        }
        let room = HEAD_BYTES_MAX - self.head.len();
        self.head.extend_from_slice(&piece[..piece.len().min(room)]);
        let found = first_id(&self.head);
        self.is_over = found.is_some() || self.head.len() == HEAD_BYTES_MAX;
        let found = found.map(Into::into);
        if self.is_over {
            self.head = Vec::new();
        }
        found
    }
}

/// The value of the first member `id`. In a string the quotes of that key would have backslashes.
fn first_id(head: &[u8]) -> Option<&str> {
    let key = b"\"id\":";
    let behind = head[memmem::find(head, key)? + key.len()..].trim_ascii_start().strip_prefix(b"\"")?;
    let id = &behind[..memchr::memchr(b'"', behind)?];
    let is_plain = !id.is_empty() && id.len() <= ID_BYTES_MAX && !id.contains(&b'\\');
    std::str::from_utf8(id).ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Arc<str> {
        text.into()
    }

    #[test]
    fn an_id_leads_to_its_upstream_in_every_clone() {
        let ids = StoredResponses::default();
        ids.clone().remember("resp_1", &name("a"));
        ids.remember("resp_2", &name("b"));
        assert_eq!((ids.upstream("resp_1"), ids.upstream("resp_2")), (Some(name("a")), Some(name("b"))));
        assert_eq!(ids.upstream("resp_3"), None);
        ids.remember(&"x".repeat(ID_BYTES_MAX + 1), &name("a"));
        assert_eq!(ids.upstream(&"x".repeat(ID_BYTES_MAX + 1)), None);
    }

    #[test]
    fn ids_that_are_used_stay_and_their_number_is_bounded() {
        let ids = StoredResponses::default();
        ids.remember("used", &name("a"));
        ids.remember("unused", &name("a"));
        for number in 0..3 * IDS_MIN {
            ids.remember(&number.to_string(), &name("b"));
            if number % 1_000 == 0 {
                assert_eq!(ids.upstream("used"), Some(name("a")), "{number}");
            }
        }
        assert_eq!(ids.upstream("unused"), None);
        assert_eq!(ids.upstream(&(3 * IDS_MIN - 1).to_string()), Some(name("b")));
        ids.with(|ids| assert!(ids.young.len() <= IDS_MIN && ids.old.len() <= IDS_MIN));
    }

    #[test]
    fn an_id_is_found_wherever_the_body_is_cut() {
        let whole = br#"{"created_at":1, "id" : "no", "x":"\"id\":\"no\"","id": "resp_1","output":[{"id":"msg_1"}]}"#;
        let stream =
            b"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\"}}\n\n";
        for body in [&whole[..], stream] {
            for cut in 0..body.len() {
                let mut finder = IdFinder::default();
                let found = [&body[..cut], &body[cut..]].map(|piece| finder.take(piece));
                let found: Vec<&str> = found.iter().flatten().map(|id| &**id).collect();
                assert_eq!(found, ["resp_1"], "cut at {cut}");
            }
        }
    }

    #[test]
    fn a_body_without_an_id_at_its_beginning_has_none() {
        let late = format!("{{\"x\":\"{}\",\"id\":\"resp_1\"}}", "y".repeat(HEAD_BYTES_MAX));
        let long = format!("{{\"id\":\"{}\"}}", "y".repeat(ID_BYTES_MAX + 1));
        for body in ["", "{}", "{\"id\":7}", "{\"id\":\"\"}", "{\"id\":\"a\\u0062\"}", "{\"id\":\"resp", &late, &long] {
            let mut finder = IdFinder::default();
            assert_eq!(finder.take(body.as_bytes()), None, "{body}");
            assert!(finder.head.len() <= HEAD_BYTES_MAX);
        }
    }
}
