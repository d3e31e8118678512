//! A response that is recorded while it passes.

use weir_base::{Permit, Time};

use super::{
    entry::{Entry, OVERHEAD_BYTES, Source},
    response_cache::Lead,
};

/// Bytes for which a recording has memory at first. Default 4 KiB, as much as most chats need.
const FIRST_BYTES: usize = 4 * 1024;

/// A response under way. Dropped, the response has failed.
pub(crate) struct Recording {
    lead: Lead,
    content_type: Box<[u8]>,
    is_stream: bool,
    bytes: Vec<u8>,
    memory: Permit,
}

impl Recording {
    /// In front of the body of a 200. `declared`: its length, if the head says one. `None`: it cannot be stored, and nothing waits for
    /// it any more.
    pub(crate) fn begin(lead: Lead, content_type: &[u8], is_stream: bool, declared: Option<u64>) -> Option<Self> {
        let fits = declared.is_none_or(|length| length <= lead.body_bytes_max());
        match lead.no_memory().filter(|_| fits) {
            Some(memory) => {
                Some(Self { lead, content_type: content_type.into(), is_stream, bytes: Vec::new(), memory })
            }
            None => {
                lead.release();
                None
            }
        }
    }

    /// It is a stream of events.
    pub(crate) fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// The body so far.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes a piece of the body. False: it is too long, or there is no memory; it has to be [released](Self::release) then.
    #[must_use = "false: release it"]
    pub(crate) fn push(&mut self, piece: &[u8]) -> bool {
        let most = self.lead.body_bytes_max();
        let length = self.bytes.len() + piece.len();
        if length as u64 > most {
            return false;
        }
        if length > self.bytes.capacity() {
            let room = length.next_power_of_two().max(FIRST_BYTES).min(usize::try_from(most).unwrap_or(usize::MAX));
            let memory = self.memory_of(room);
            if !self.lead.make_room(&mut self.memory, memory) {
                return false;
            }
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
        true
    }

    /// The response cannot be stored.
    pub(crate) fn release(self) {
        self.lead.release();
    }

    /// The response is whole: stores it. `tokens`: as its provider has reported.
    pub(crate) fn store(self, source: Source, tokens: u64, now: Time) {
        let memory = self.memory_of(self.bytes.len());
        let Self { lead, content_type, is_stream, mut bytes, memory: mut permit } = self;
        bytes.shrink_to_fit();
        let memory = memory + (source.model.len() as u64);
        // An empty body had no memory so far.
        if !lead.make_room(&mut permit, memory) {
            return lead.release();
        }
        let body = bytes.into();
        lead.store(Entry { content_type, body, is_stream, source, tokens, stored: now, _memory: permit });
    }

    fn memory_of(&self, bytes: usize) -> u64 {
        OVERHEAD_BYTES + (self.content_type.len() + bytes) as u64
    }
}
