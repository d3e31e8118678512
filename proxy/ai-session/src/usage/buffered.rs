//! Usage of a response that is no stream. It stands near the end as a rule, but much may follow it: metadata of the client, or the tokens of
//! its prompt. So it is looked for while the response passes.

use weir_json_codec::MemberScan;

use super::Usage;
use super::event::{KEY, Report};
use super::paths::{self, Place};
use crate::dialect::Dialect;
use crate::estimate::TokenEstimate;
use crate::progress::Progress;

/// Bytes of the end that are kept, for an estimate of a response without usage. Default 16 KiB. Worst case twice that for each response.
pub const TAIL_BYTES_MAX: usize = 16 * 1024;

/// Follows a response while it passes.
#[derive(Clone, Debug)]
pub struct BufferedUsage {
    dialect: Dialect,
    /// The length that the response declares.
    length: Option<u64>,
    /// Bytes still to come before the end that is kept, by that length.
    skipped: u64,
    tail: Vec<u8>,
    /// Bytes so far.
    bytes: u64,
    /// The report is that of the outermost object, not a text or a schema that looks like it.
    scan: MemberScan<Place, Report>,
}

impl BufferedUsage {
    /// In front of a response of `length` bytes; `None`: it does not declare its length. A wrong one costs memory or
    /// an estimate, no more.
    pub fn new(dialect: Dialect, length: Option<u64>) -> Self {
        let skipped = length.unwrap_or(0).saturating_sub(TAIL_BYTES_MAX as u64);
        let scan = MemberScan::new(paths::of(dialect), &KEY);
        Self { dialect, length, skipped, tail: Vec::new(), bytes: 0, scan }
    }

    /// Takes the next piece of the body, without its content coding.
    pub fn push(&mut self, piece: &[u8]) {
        self.scan.push(piece);
        self.bytes += piece.len() as u64;
        let skipped = self.skipped.min(piece.len() as u64);
        self.skipped -= skipped;
        let piece = &piece[skipped as usize..];
        let last = &piece[piece.len().saturating_sub(TAIL_BYTES_MAX)..];
        let is_whole = self.length.is_some_and(|length| self.bytes >= length);
        if is_whole && self.finish().is_some() {
            // It needs no estimate.
            return;
        }
        if self.tail.len() + last.len() > 2 * TAIL_BYTES_MAX {
            let kept = TAIL_BYTES_MAX - last.len().min(TAIL_BYTES_MAX);
            self.tail.drain(..self.tail.len() - kept.min(self.tail.len()));
        }
        self.tail.extend_from_slice(last);
    }

    /// The usage, if the response has ended here and reports it.
    pub fn finish(&self) -> Option<Usage> {
        let figures = self.scan.found()?.facts.figures;
        (!figures.is_empty()).then(|| figures.usage(self.dialect, &Progress::default()))
    }

    /// Tokens of the response so far by estimate: those of its end, and as many for each byte before.
    pub fn estimate(&self) -> TokenEstimate {
        let (tail, mut estimate) = (self.tail(), TokenEstimate::default());
        estimate.push(tail);
        let tokens = u128::from(estimate.tokens()) * u128::from(self.bytes) / (tail.len() as u128).max(1);
        TokenEstimate::of_tokens(u64::try_from(tokens).unwrap_or(u64::MAX))
    }

    /// More may be kept than counts: the verdict does not depend on how the body was cut.
    fn tail(&self) -> &[u8] {
        &self.tail[self.tail.len().saturating_sub(TAIL_BYTES_MAX)..]
    }
}
