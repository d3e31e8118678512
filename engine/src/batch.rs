//! The bytes that an output sends next: as they were appended, and as they go on the wire.

use std::{collections::VecDeque, io};

use crate::{chunk::give_output, stream::TlsLink};

/// The batch that is sent next.
pub(crate) struct Batch {
    pub(crate) plain: Vec<u8>,
    pub(crate) later: VecDeque<Vec<u8>>,
    pub(crate) wire: Vec<u8>,
}

/// A batch as it goes on the wire, segment by segment.
pub(crate) struct OutgoingBatch {
    pub(crate) bytes: Vec<u8>,
    /// How much of them has left.
    pub(crate) at: usize,
    /// The bytes before they were sealed.
    pub(crate) plain_bytes: usize,
    /// The plain bytes that follow, not sealed yet.
    pub(crate) later: VecDeque<Vec<u8>>,
}

impl OutgoingBatch {
    pub(crate) fn seal(mut batch: Batch, link: &TlsLink) -> io::Result<Self> {
        let plain_bytes = batch.plain.len();
        let bytes = match link.seal(&batch.plain, &mut batch.wire)? {
            true => {
                give_output(batch.plain);
                batch.wire
            }
            false => batch.plain,
        };
        Ok(Self { bytes, at: 0, plain_bytes, later: batch.later })
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.at == self.bytes.len() && self.later.is_empty()
    }
}
