//! Boxes whose memory serves the next one of their size.
//!
//! A future that lives for one request is larger than what the allocator keeps for a thread. Between requests the allocator cuts the free
//! piece up for what stays, such as the parts of the next connection, and the next request needs another one: that doubled the memory
//! of idle connections. Here a worker keeps some such pieces whole, and finds one without the allocator.

use std::{alloc::Layout, cell::RefCell, pin::Pin, ptr::NonNull};

use allocator_api2::{
    alloc::{AllocError, Allocator, Global},
    boxed::Box,
};

/// Sizes of which a thread keeps pieces. Default 8: each kind of future has its own.
const SIZES_MAX: usize = 8;
/// Pieces of a size that a thread keeps. Default 256, as many requests as a busy worker has under way: with 32, most requests of 256
/// clients went to the allocator. Worst case 8 MiB of a thread, with futures of 4 KiB.
const PIECES_MAX: usize = 256;

thread_local! {
    static SPARES: RefCell<Spares> = const { RefCell::new(Spares(Vec::new())) };
}

/// A future in a box whose memory serves the next one. See [`recycled`].
pub type RecycledBox<F> = Pin<Box<F, Recycled>>;

/// Puts the future that `make` returns into a box. Its memory may be that of an earlier one of the same size, on any thread.
///
/// The box is allocated first, so that the compiler can make the future in it. An allocation may panic. A future that existed before would
/// then have to be dropped, so it would need a place on the stack, and its whole size would be copied into the box.
#[inline]
pub fn recycled<F: Future>(make: impl FnOnce() -> F) -> RecycledBox<F> {
    let piece = Box::new_uninit_in(Recycled);
    Box::into_pin(Box::write(piece, make()))
}

/// The allocator of such boxes.
#[derive(Clone, Copy, Debug)]
pub struct Recycled;

// SAFETY: every piece comes from `Global` and goes back there with the layout that it came with, or into the list of that very layout, from
// which it is taken once. A copy of the value is the same allocator.
unsafe impl Allocator for Recycled {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        match SPARES.try_with(|spares| spares.borrow_mut().take(layout)) {
            Ok(Some(piece)) => Ok(NonNull::slice_from_raw_parts(piece, layout.size())),
            _ => Global.allocate(layout),
        }
    }

    unsafe fn deallocate(&self, piece: NonNull<u8>, layout: Layout) {
        let is_kept = SPARES.try_with(|spares| spares.borrow_mut().keep(piece, layout));
        if is_kept != Ok(true) {
            // SAFETY: the caller's, and it is in no list.
            unsafe { Global.deallocate(piece, layout) };
        }
    }
}

/// The free pieces of a thread.
struct Spares(Vec<(Layout, Vec<NonNull<u8>>)>);

impl Spares {
    fn take(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        self.of(layout)?.pop()
    }

    /// False: there are enough.
    fn keep(&mut self, piece: NonNull<u8>, layout: Layout) -> bool {
        if self.of(layout).is_none() && self.0.len() < SIZES_MAX && layout.size() > 0 {
            self.0.push((layout, Vec::new()));
        }
        let Some(pieces) = self.of(layout).filter(|pieces| pieces.len() < PIECES_MAX) else { return false };
        pieces.push(piece);
        true
    }

    fn of(&mut self, layout: Layout) -> Option<&mut Vec<NonNull<u8>>> {
        self.0.iter_mut().find(|(of, _)| *of == layout).map(|(_, pieces)| pieces)
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        for (layout, pieces) in self.0.drain(..) {
            for piece in pieces {
                // SAFETY: it came from `Global` with this layout, and nothing else has it.
                unsafe { Global.deallocate(piece, layout) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    fn address<F>(future: &RecycledBox<F>) -> usize {
        std::ptr::from_ref(&**future).addr()
    }

    /// A future of `N` bytes.
    fn future<const N: usize>(fill: u8) -> impl Future<Output = u8> {
        let bytes = [fill; N];
        async move {
            ready(()).await;
            bytes[N - 1]
        }
    }

    #[test]
    fn the_memory_of_a_box_serves_the_next_one_of_its_size() {
        let first = recycled(|| future::<3000>(1));
        let at = address(&first);
        drop(first);
        let other = recycled(|| future::<2000>(2));
        let again = recycled(|| future::<3000>(3));
        assert_ne!(address(&other), at);
        assert_eq!(address(&again), at);
        assert_eq!(futures_util::FutureExt::now_or_never(again), Some(3));
        assert_eq!(futures_util::FutureExt::now_or_never(other), Some(2));
    }

    #[test]
    fn a_thread_keeps_so_many_and_frees_them_at_its_end() {
        std::thread::spawn(|| {
            let all: Vec<_> = (0..=PIECES_MAX).map(|_| recycled(|| future::<4000>(1))).collect();
            drop(all);
            SPARES.with_borrow(|spares| {
                assert_eq!(spares.0.iter().map(|(_, pieces)| pieces.len()).sum::<usize>(), PIECES_MAX);
            });
            // A box may end on another thread.
            let moved = recycled(|| future::<4000>(7));
            std::thread::spawn(move || assert_eq!(futures_util::FutureExt::now_or_never(moved), Some(7)))
                .join()
                .expect("no panic");
        })
        .join()
        .expect("no panic");
    }
}
