//! Received bytes.

use std::{
    cell::RefCell,
    ops::{Deref, DerefMut},
};

/// Bytes of one receive buffer: what one receive or one TLS record delivers. 16 KiB hold one TLS record, or 200 pipelined
/// small commands.
pub const CHUNK_BYTES: usize = 16 * 1024;
/// Bytes of one receive from a peer that has just filled a whole buffer: a quarter of the system calls.
pub const BULK_BYTES: usize = 64 * 1024;
/// Receive buffers kept per core: few are ever in hand at once.
const RECEIVED_KEPT_MAX: usize = 32;
/// The same of those for bulk.
const BULK_KEPT_MAX: usize = 8;
/// Output buffers kept per core, and their bytes. Enough for the connections that get their output in one turn; more would pin
/// pages of the heap all over after a burst of connections.
const OUTPUT_KEPT_MAX: usize = 512;
const OUTPUT_KEPT_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Largest output buffer that is kept: the bytes a client may have in it before it is not served further, with room for growth.
const OUTPUT_BUFFER_KEPT_MAX: usize = 512 * 1024;
/// A first append is a small reply more often than not.
const OUTPUT_BYTES_MIN: usize = 512;

/// Full segments of outputs kept per core: enough for a few clients of large values that keep up.
const SEGMENTS_KEPT_MAX: usize = 4;

/// An output with more than this goes on in a new buffer: sealing and sending one takes a bounded part of a turn, and its memory
/// comes back when it has left, not with the last byte. 1 MiB takes about 1 ms to seal.
pub(crate) const SEGMENT_BYTES: usize = 1 << 20;
/// The size of a buffer for a segment: it is full at the first append that reaches [`SEGMENT_BYTES`].
const SEGMENT_CAPACITY: usize = SEGMENT_BYTES + BULK_BYTES;

const TWO_CHUNKS: usize = 2 * CHUNK_BYTES;

struct Spares {
    /// Receive buffers, each of [`CHUNK_BYTES`]. The one used last is the next one taken, so it is warm.
    received: Vec<Vec<u8>>,
    /// Those of [`BULK_BYTES`].
    bulk: Vec<Vec<u8>>,
    /// Output buffers of whatever size they grew to.
    output: Vec<Vec<u8>>,
    output_bytes: usize,
    /// Output buffers of [`SEGMENT_CAPACITY`].
    segments: Vec<Vec<u8>>,
}

impl Spares {
    const fn new() -> Self {
        Self { received: Vec::new(), bulk: Vec::new(), output: Vec::new(), output_bytes: 0, segments: Vec::new() }
    }
}

thread_local! {
    static SPARES: RefCell<Spares> = const { RefCell::new(Spares::new()) };
}

/// One received piece of a byte stream, in a buffer of the core's spare list, where it returns on drop.
///
/// A buffer is taken when bytes are there, so an idle connection holds none: copy what must outlive the turn.
pub struct Chunk(Vec<u8>);

impl Chunk {
    /// An empty buffer of at least [`CHUNK_BYTES`] capacity.
    pub(crate) fn take() -> Self {
        let spare = SPARES.with_borrow_mut(|spares| spares.received.pop());
        Self(spare.unwrap_or_else(|| Vec::with_capacity(CHUNK_BYTES)))
    }

    /// An empty buffer of at least [`BULK_BYTES`] capacity.
    pub(crate) fn take_bulk() -> Self {
        let spare = SPARES.with_borrow_mut(|spares| spares.bulk.pop());
        Self(spare.unwrap_or_else(|| Vec::with_capacity(BULK_BYTES)))
    }

    /// The bytes, to be filled.
    pub(crate) fn vec(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Chunk {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let mut vec = std::mem::take(&mut self.0);
        vec.clear();
        SPARES.with_borrow_mut(|spares| match vec.capacity() {
            CHUNK_BYTES..=TWO_CHUNKS if spares.received.len() < RECEIVED_KEPT_MAX => spares.received.push(vec),
            BULK_BYTES if spares.bulk.len() < BULK_KEPT_MAX => spares.bulk.push(vec),
            _ => {}
        });
    }
}

/// An empty output buffer.
pub(crate) fn take_output() -> Vec<u8> {
    SPARES
        .with_borrow_mut(|spares| {
            let vec = spares.output.pop()?;
            spares.output_bytes -= vec.capacity();
            Some(vec)
        })
        .unwrap_or_else(|| Vec::with_capacity(OUTPUT_BYTES_MIN))
}

/// An empty output buffer for a segment.
pub(crate) fn take_segment() -> Vec<u8> {
    let spare = SPARES.with_borrow_mut(|spares| spares.segments.pop());
    spare.unwrap_or_else(|| Vec::with_capacity(SEGMENT_CAPACITY))
}

/// Has the allocator map large buffers one by one, so that the memory of a large reply goes back to the system when its buffers are
/// freed. By itself glibc maps none any more of a size that was freed once, and its heaps shrink only at their ends.
pub(crate) fn map_large_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: a plain setting of the allocator, which locks itself.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, SEGMENT_BYTES as i32);
    }
}

/// Gives an output buffer back, unless the core keeps enough: one large reply must not stay in memory for ever.
pub(crate) fn give_output(mut vec: Vec<u8>) {
    let bytes = vec.capacity();
    SPARES.with_borrow_mut(|spares| {
        if bytes == SEGMENT_CAPACITY && spares.segments.len() < SEGMENTS_KEPT_MAX {
            vec.clear();
            spares.segments.push(vec);
            return;
        }
        let has_room = spares.output.len() < OUTPUT_KEPT_MAX && spares.output_bytes + bytes <= OUTPUT_KEPT_BYTES_MAX;
        if bytes > 0 && bytes <= OUTPUT_BUFFER_KEPT_MAX && has_room {
            vec.clear();
            spares.output_bytes += bytes;
            spares.output.push(vec);
        }
    });
}
