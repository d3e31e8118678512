//! Received bytes.

use std::{
    cell::RefCell,
    ops::{Deref, DerefMut},
};

use compio::driver::BufferRef;

/// Bytes of one spare buffer: what one polling read or one TLS record delivers.
pub const SPARE_BYTES: usize = 16 * 1024;
/// Bytes of spare buffers kept per core; what comes back beyond that is freed.
const RETAINED_BYTES_MAX: usize = 2 * 1024 * 1024;
/// A first append is a small reply more often than not.
const OUTPUT_BYTES_MIN: usize = 512;

#[derive(Default)]
struct Spares {
    /// Receive buffers, each of [`SPARE_BYTES`].
    received: Vec<Vec<u8>>,
    /// Output buffers of whatever size they grew to.
    output: Vec<Vec<u8>>,
    output_bytes: usize,
}

thread_local! {
    static SPARES: RefCell<Spares> = RefCell::default();
}

/// One received piece of a byte stream.
///
/// With io_uring it is a buffer of the ring's pool that the kernel chose when data arrived, so an idle connection holds
/// none. It returns to the pool on drop: copy what must outlive the turn, or the core starves of buffers.
pub enum Chunk {
    /// A buffer of the ring's pool.
    Pooled(BufferRef),
    /// A buffer of this core's spare list (polling driver, TLS plaintext).
    Spare(Spare),
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Chunk::Pooled(buffer) => buffer,
            Chunk::Spare(spare) => &spare.0,
        }
    }
}

impl DerefMut for Chunk {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Chunk::Pooled(buffer) => buffer,
            Chunk::Spare(spare) => &mut spare.0,
        }
    }
}

/// A heap buffer that goes back to this core's spare list on drop.
pub struct Spare(Vec<u8>);

impl Spare {
    /// Takes an empty buffer of at least [`SPARE_BYTES`] capacity.
    pub fn take() -> Self {
        let spare = SPARES.with_borrow_mut(|spares| spares.received.pop());
        Self(spare.unwrap_or_else(|| Vec::with_capacity(SPARE_BYTES)))
    }

    /// A buffer with a copy of `bytes`, no larger than they are.
    pub fn copy_of(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// The bytes, to be filled.
    pub fn vec(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        let mut vec = std::mem::take(&mut self.0);
        vec.clear();
        SPARES.with_borrow_mut(|spares| {
            let has_room = spares.received.len() * SPARE_BYTES < RETAINED_BYTES_MAX;
            let has_the_size = (SPARE_BYTES..=2 * SPARE_BYTES).contains(&vec.capacity());
            if has_room && has_the_size {
                spares.received.push(vec);
            }
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

/// Gives an output buffer back, unless the core keeps enough: one large reply must not stay in memory for ever.
pub(crate) fn give_output(mut vec: Vec<u8>) {
    let bytes = vec.capacity();
    SPARES.with_borrow_mut(|spares| {
        if bytes > 0 && bytes <= 64 * 1024 && spares.output_bytes + bytes <= RETAINED_BYTES_MAX {
            vec.clear();
            spares.output_bytes += bytes;
            spares.output.push(vec);
        }
    });
}
