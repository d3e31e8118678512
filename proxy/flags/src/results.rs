//! Results of evaluations in a coding, for contexts that lead to the same ones.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use weir_flags_codec::etag::EntityTag;
use weir_http::compression::{Coding, compress};

use crate::{
    environment::lock,
    flight::Flights,
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
pub(crate) struct Results {
    kept: Arc<Mutex<Recent<Key, Bytes>>>,
    /// Large ones on their way. `None`: there is no memory for one.
    under_way: Flights<Key, Option<Bytes>>,
}

impl Default for Results {
    fn default() -> Self {
        let kept = Arc::new(Mutex::new(Recent::new(RESULTS_MAX, RESULTS_BYTES_MAX)));
        Self { kept, under_way: Flights::default() }
    }
}

/// The end of a compression.
#[derive(Debug)]
pub(crate) enum Coded {
    /// The body in the coding.
    Compressed(Bytes),
    /// There was no memory or no room for it, or the thread that compressed has panicked: the body as it was.
    Plain(Bytes),
}

impl Results {
    /// The body, if it was compressed of late.
    pub(crate) fn find(&self, key: Key) -> Option<Bytes> {
        lock(&self.kept).find(&key)
    }

    /// Compresses a body, and keeps it. A large one is compressed on another thread, once for all who want it.
    pub(crate) async fn compress(&self, key: Key, body: Vec<u8>) -> Coded {
        self.compress_by(key, body.into(), compress).await
    }

    /// The same with another way to compress.
    pub(crate) async fn compress_by(
        &self,
        key: Key,
        body: Bytes,
        compress: impl FnOnce(Coding, &[u8]) -> Option<Vec<u8>> + Send + 'static,
    ) -> Coded {
        if let Some(known) = self.find(key) {
            return Coded::Compressed(known);
        }
        let (kept, plain) = (self.kept.clone(), body.clone());
        let make = move || {
            let (_, _, coding) = key;
            let compressed = compress(coding, &plain).map(Bytes::from)?;
            let bytes = compressed.len();
            Some(lock(&kept).keep(key, compressed, bytes))
        };
        let compressed = match body.len() <= COMPRESS_AT_ONCE_MAX {
            true => make(),
            false => self.under_way.join(key, || self.find(key).map(Some), make).await.ok().flatten(),
        };
        compressed.map_or(Coded::Plain(body), Coded::Compressed)
    }
}
