//! Results of evaluations in a coding, for contexts that lead to the same ones.

use std::sync::Mutex;

use bytes::Bytes;
use weir_flags_codec::etag::EntityTag;
use weir_http::compression::{Coding, compress};

use crate::{
    environment::lock,
    limits::{COMPRESS_AT_ONCE_MAX, RESULTS_BYTES_MAX, RESULTS_MAX},
    recent::Recent,
};

/// The form of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// Unleash's.
    Unleash,
    /// OpenFeature's.
    Ofrep,
}

/// A body, by its form, its entity tag and its coding. Equal tags of a form mean equal bytes.
pub(crate) type Key = (Form, EntityTag, Coding);

/// The results of one state of an environment.
#[derive(Debug)]
pub(crate) struct Results(Mutex<Recent<Key, Bytes>>);

impl Default for Results {
    fn default() -> Self {
        Self(Mutex::new(Recent::new(RESULTS_MAX, RESULTS_BYTES_MAX)))
    }
}

/// The end of a compression.
pub(crate) enum Coded {
    /// The body in the coding.
    Compressed(Bytes),
    /// There was no memory for it: the body as it was.
    Plain(Bytes),
    /// The thread that compressed has panicked.
    Lost,
}

impl Results {
    /// The body, if it was compressed of late.
    pub(crate) fn find(&self, key: Key) -> Option<Bytes> {
        lock(&self.0).find(&key)
    }

    /// Compresses a body, a large one on another thread, and keeps it.
    pub(crate) async fn compress(&self, key: Key, body: Vec<u8>) -> Coded {
        if let Some(known) = self.find(key) {
            return Coded::Compressed(known);
        }
        let (_, _, coding) = key;
        let (body, compressed) = if body.len() <= COMPRESS_AT_ONCE_MAX {
            let compressed = compress(coding, &body);
            (body, compressed)
        } else {
            let work = move || {
                let compressed = compress(coding, &body);
                (body, compressed)
            };
            let Ok(done) = weir_engine::run_blocking(work).await else { return Coded::Lost };
            done
        };
        let Some(compressed) = compressed.map(Bytes::from) else { return Coded::Plain(body.into()) };
        let bytes = compressed.len();
        Coded::Compressed(lock(&self.0).keep(key, compressed, bytes))
    }
}
