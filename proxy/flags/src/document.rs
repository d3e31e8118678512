//! A document of flags, with the codings that clients have accepted.

use std::sync::{
    OnceLock,
    atomic::{AtomicU8, Ordering},
};

use bytes::Bytes;
use weir_flags_codec::etag::EntityTag;
use weir_flags_session::client::ClientDocument;
use weir_http::compression::{Coding, compress};

use crate::limits::{COMPRESS_AT_ONCE_MAX, COMPRESS_MIN};

/// A document of `GET /api/client/features`, with the codings that clients have accepted so far.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) tag: EntityTag,
    /// The tag as a field has it.
    pub(crate) tag_text: Box<str>,
    pub(crate) json: Bytes,
    /// In the order of [`Coding::ALL`].
    coded: [OnceLock<Option<Bytes>>; Coding::ALL.len()],
    /// Bits of the codings that a client has wanted.
    wanted: AtomicU8,
}

/// The bytes of a document for one client.
pub(crate) struct CodedDocument {
    pub(crate) bytes: Bytes,
    pub(crate) coding: Option<Coding>,
    /// The coding is not there, and this client is the first that wants it: [`Document::make_wanted`] is due.
    pub(crate) is_missing: bool,
    /// The coding was made for this client: the document has grown.
    pub(crate) is_new: bool,
}

impl From<ClientDocument> for Document {
    fn from(document: ClientDocument) -> Self {
        Self {
            tag: document.tag,
            tag_text: document.tag.to_string().into(),
            json: document.json.into(),
            coded: Default::default(),
            wanted: AtomicU8::new(0),
        }
    }
}

impl Document {
    /// The document in a coding if it is there, else as it is. A short one is compressed at once.
    pub(crate) fn in_coding(&self, coding: Option<Coding>) -> CodedDocument {
        let plain = |is_missing| CodedDocument { bytes: self.json.clone(), coding: None, is_missing, is_new: false };
        let Some(coding) = coding.filter(|_| self.json.len() >= COMPRESS_MIN) else { return plain(false) };
        let at = place(coding);
        let is_new = self.json.len() <= COMPRESS_AT_ONCE_MAX && self.make(at);
        match self.coded[at].get() {
            Some(Some(bytes)) => {
                CodedDocument { bytes: bytes.clone(), coding: Some(coding), is_missing: false, is_new }
            }
            Some(None) => plain(false),
            None => plain(self.wanted.fetch_or(1 << at, Ordering::Relaxed) & 1 << at == 0),
        }
    }

    /// The codings that clients have wanted are made for the document that takes the place of this one, too. Takes milliseconds: to be called
    /// off the workers.
    pub(crate) fn hand_codings_to(&self, next: &Self) {
        next.wanted.store(self.wanted.load(Ordering::Relaxed), Ordering::Relaxed);
        next.make_wanted();
    }

    /// Bytes of the document and of its codings.
    pub(crate) fn bytes(&self) -> usize {
        let coded = self.coded.iter().filter_map(|coded| coded.get()?.as_ref()).map(Bytes::len);
        self.json.len() + coded.sum::<usize>()
    }

    /// Makes a coding. False: it is there.
    fn make(&self, at: usize) -> bool {
        self.wanted.fetch_or(1 << at, Ordering::Relaxed);
        let mut is_new = false;
        self.coded[at].get_or_init(|| {
            is_new = true;
            compress(Coding::ALL[at], &self.json).map(Bytes::from)
        });
        is_new
    }

    /// Lets the next client that wants a coding be the first again, if it was not made.
    pub(crate) fn forget_unless_made(&self, coding: Coding) {
        let at = place(coding);
        if self.coded[at].get().is_none() {
            self.wanted.fetch_and(!(1 << at), Ordering::Relaxed);
        }
    }

    /// Makes the codings that clients have wanted. Takes milliseconds: to be called off the workers.
    pub(crate) fn make_wanted(&self) {
        let wanted = self.wanted.load(Ordering::Relaxed);
        for at in (0..Coding::ALL.len()).filter(|at| wanted & 1 << at != 0) {
            self.make(at);
        }
    }
}

fn place(coding: Coding) -> usize {
    Coding::ALL.iter().position(|other| *other == coding).unwrap_or(0)
}
