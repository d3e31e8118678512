//! Requests that wait for a connection, as bytes, oldest first.
//!
//! They stand in pieces, so that what goes out of the middle or from the front moves the bytes of its own piece and no others.

use std::{collections::VecDeque, ops::Range};

/// A piece is full with this much; a larger request is a piece by itself. The 64 MiB of a backlog are about a thousand pieces,
/// and to take a request out of one moves less than reading it did.
const PIECE_BYTES: usize = 64 << 10;

/// Bytes in order.
#[derive(Default)]
pub(crate) struct Requests {
    pieces: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Requests {
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Puts `bytes` behind the others.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        match self.pieces.back_mut().filter(|last| last.len() + bytes.len() <= PIECE_BYTES) {
            Some(last) => last.extend_from_slice(bytes),
            None => self.pieces.push_back(bytes.to_vec()),
        }
    }

    /// Puts all of `others` behind these.
    pub(crate) fn append(&mut self, mut others: Self) {
        self.bytes += others.bytes;
        self.pieces.append(&mut others.pieces);
    }

    /// Drops the first `bytes` of them.
    pub(crate) fn drop_front(&mut self, bytes: usize) {
        self.bytes -= bytes;
        let mut left = bytes;
        while let Some(first) = self.pieces.pop_front_if(|first| first.len() <= left) {
            left -= first.len();
        }
        if let Some(first) = self.pieces.front_mut() {
            first.drain(..left);
        }
    }

    /// Takes out these, which are in order and apart, counted from the first byte.
    pub(crate) fn remove(&mut self, ranges: &[Range<usize>]) {
        let (mut end, mut passed) = (0, 0);
        for piece in &mut self.pieces {
            let start = end;
            end += piece.len();
            passed += ranges[passed..].iter().take_while(|range| range.end <= start).count();
            let inside = ranges[passed..].iter().take_while(|range| range.start < end);
            let inside = inside.map(|range| range.start.max(start) - start..range.end.min(end) - start);
            weir_engine::output::remove(piece, inside);
            // No budget counts its unused capacity.
            if piece.len() < piece.capacity() / 2 {
                piece.shrink_to_fit();
            }
        }
        self.pieces.retain(|piece| !piece.is_empty());
        self.bytes = self.pieces.iter().map(Vec::len).sum();
    }

    /// The pieces, first to last.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(Vec::as_slice)
    }
}

impl From<Vec<u8>> for Requests {
    fn from(bytes: Vec<u8>) -> Self {
        let (count, pieces) = (bytes.len(), bytes.chunks(PIECE_BYTES).map(<[u8]>::to_vec));
        Self { pieces: pieces.collect(), bytes: count }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn all(requests: &Requests) -> Vec<u8> {
        let all = requests.pieces().collect::<Vec<_>>().concat();
        assert_eq!(all.len(), requests.len());
        all
    }

    /// As one vector would have it, wherever pieces begin and end.
    #[test]
    fn taking_one_out_leaves_the_rest_in_order() {
        let whole: Vec<u8> = (0..5 * PIECE_BYTES + 123).map(|at| (at % 251) as u8).collect();
        let pushed = |size: usize| {
            let mut requests = Requests::default();
            whole.chunks(size).for_each(|request| requests.push(request));
            requests
        };
        let end = whole.len();
        let cases: [&[Range<usize>]; 6] = [
            &[],
            &[0..1, 1..40_000, end - 1..end],
            &[65_535..65_537, 70_000..70_000, 131_072..196_608],
            &[10..200_000, 200_000..200_001, 300_000..end],
            &[0..1, 1..end],
            &[65_536..131_072, end..end],
        ];
        for ranges in cases {
            for size in [1_000, 40_000, 150_000, usize::MAX] {
                let mut requests = if size == usize::MAX { whole.clone().into() } else { pushed(size) };
                let mut wanted = whole.clone();
                requests.remove(ranges);
                weir_engine::output::remove(&mut wanted, ranges.iter().cloned());
                assert!(all(&requests) == wanted, "{ranges:?}");
                let front = wanted.len() / 3;
                requests.drop_front(front);
                requests.append(pushed(1_000));
                wanted.drain(..front);
                wanted.extend_from_slice(&whole);
                assert!(all(&requests) == wanted, "{ranges:?}");
            }
        }
    }

    /// As one vector each of them moved all that stood behind: 64 GiB.
    #[test]
    fn removing_one_from_a_full_backlog_does_not_move_the_rest() {
        let mut requests = Requests::default();
        (0..64 << 10).for_each(|_| requests.push(&[b'r'; 1 << 10]));
        let started = Instant::now();
        let second = (1 << 10)..(2 << 10);
        (0..500).for_each(|_| requests.remove(std::slice::from_ref(&second)));
        (0..500).for_each(|_| requests.drop_front(1 << 10));
        assert_eq!(requests.len(), (64 << 20) - (1_000 << 10));
        assert!(started.elapsed() < Duration::from_secs(2), "took {:?}", started.elapsed());
    }
}
