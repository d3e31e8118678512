//! Windows of flow control (RFC 9113 section 5.2), as arithmetic.

use crate::settings::WINDOW_BYTES_MAX;

/// The window for what a peer sends, of a stream or of the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveWindow {
    /// Bytes that are held and those that the peer may send, together, as they should be.
    size: i64,
    /// Bytes that the peer may send; negative after the size has shrunk.
    left: i64,
    /// Bytes that were received and not released.
    held: i64,
}

impl ReceiveWindow {
    /// The peer believes it to be `left`, and it should be `size`.
    pub(crate) fn new(size: u32, left: u32) -> Self {
        Self { size: i64::from(size), left: i64::from(left), held: 0 }
    }

    /// Takes a frame of `count` bytes, of which `kept` wait to be released. False: the peer was not allowed to send so many.
    #[inline]
    pub(crate) fn receive(&mut self, count: u32, kept: u32) -> bool {
        // The end of a stream needs no window, however small that is.
        let is_allowed = count == 0 || i64::from(count) <= self.left;
        if is_allowed {
            self.left -= i64::from(count);
            self.held += i64::from(kept);
        }
        is_allowed
    }

    /// `count` bytes that were received wait to be released.
    #[inline]
    pub(crate) fn hold(&mut self, count: u32) {
        self.held += i64::from(count);
    }

    /// The WINDOW_UPDATE for a window that begins larger than the protocol's first one.
    pub(crate) fn first_increment(&mut self) -> Option<u32> {
        let more = self.size - self.left;
        self.left = self.size;
        (more > 0).then_some(more as u32)
    }

    /// Releases up to `count` bytes; gives how many there were.
    #[inline]
    pub(crate) fn release(&mut self, count: usize) -> usize {
        let count = i64::try_from(count).unwrap_or(i64::MAX).min(self.held);
        self.held -= count;
        count as usize
    }

    /// Bytes that were received and not released.
    pub(crate) fn held(&self) -> u64 {
        self.held as u64
    }

    /// Sets the size; the peer learns of it by [`ReceiveWindow::increment`].
    pub(crate) fn set_size(&mut self, size: u32) {
        self.size = i64::from(size.min(WINDOW_BYTES_MAX));
    }

    /// The peer has taken a setting that changes the size: it knows.
    pub(crate) fn resize(&mut self, size: u32) {
        self.left += i64::from(size) - self.size;
        self.size = i64::from(size);
    }

    /// The WINDOW_UPDATE that is due: half of what the peer may have at a time is used up.
    #[inline]
    pub(crate) fn increment(&mut self) -> Option<u32> {
        let wanted = self.size - self.held;
        if self.left * 2 > wanted || self.left >= wanted {
            return None;
        }
        // A window that had become negative may lack more than one update can carry.
        let more = (wanted - self.left).min(i64::from(WINDOW_BYTES_MAX));
        self.left += more;
        Some(more as u32)
    }
}

/// The window for what is sent to a peer; negative after the peer has shrunk it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWindow(i64);

impl SendWindow {
    pub(crate) fn new(bytes: u32) -> Self {
        Self(i64::from(bytes))
    }

    /// Bytes that may be sent.
    #[inline]
    pub(crate) fn room(self) -> usize {
        self.0.max(0) as usize
    }

    /// `count` bytes are sent, at most as many as there is room.
    #[inline]
    pub(crate) fn spend(&mut self, count: usize) {
        debug_assert!(count <= self.room(), "more than the peer allows");
        self.0 -= count as i64;
    }

    /// Adds bytes, or takes some away. False: it would be larger than a window may be, and stays.
    #[inline]
    pub(crate) fn add(&mut self, count: i64) -> bool {
        let is_allowed = self.0 + count <= i64::from(WINDOW_BYTES_MAX);
        if is_allowed {
            self.0 += count;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_renewed_when_half_of_it_is_used_and_only_as_far_as_bytes_were_released() {
        let mut window = ReceiveWindow::new(100, 100);
        assert!(window.receive(60, 50), "10 of them are padding");
        assert_eq!((window.increment(), window.held()), (None, 50), "40 are left, and 50 at a time are allowed");
        assert_eq!(window.release(20), 20);
        assert_eq!(window.increment(), None);
        assert_eq!((window.release(1_000), window.increment()), (30, Some(60)));
        assert!(!window.receive(101, 0));
        assert!(window.receive(100, 0));
        assert_eq!(window.increment(), Some(100));
    }

    #[test]
    fn a_window_that_shrinks_below_what_is_used_is_negative_until_enough_is_released() {
        let mut window = ReceiveWindow::new(100, 100);
        assert!(window.receive(90, 90));
        window.resize(50);
        assert!(!window.receive(1, 1) && window.receive(0, 0));
        assert_eq!((window.release(60), window.increment()), (60, Some(60)), "20 wanted, and 40 below 0");
        let mut send = SendWindow::new(10);
        send.spend(10);
        assert!(send.add(-20) && send.room() == 0);
        assert!(send.add(i64::from(WINDOW_BYTES_MAX)) && !send.add(1 + 20));
    }
}
