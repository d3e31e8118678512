//! Usage of a response that is no stream: it stands near the end, and the end alone is looked at.

use weir_json_codec::tail::scan_member;

use super::Usage;
use super::event::Report;
use super::paths;
use crate::dialect::Dialect;
use crate::estimate::TokenEstimate;
use crate::progress::Progress;

/// Bytes of the end that are kept. Default 16 KiB: behind the usage come a few short members, and in responses the
/// client's metadata of up to 9 KiB. Worst case twice that for each response.
pub const TAIL_BYTES_MAX: usize = 16 * 1024;

/// Keeps the end of a response while it passes.
#[derive(Clone, Debug)]
pub struct BufferedUsage {
    dialect: Dialect,
    /// The length that the response declares.
    length: Option<u64>,
    /// Bytes still to come before the end, by that length.
    skipped: u64,
    tail: Vec<u8>,
    /// Bytes so far.
    bytes: u64,
    /// The usage of a response that came in one piece: nothing of it was kept.
    at_once: Option<Usage>,
}

impl BufferedUsage {
    /// In front of a response of `length` bytes; `None`: it does not declare its length. A wrong one costs memory or
    /// usage, no more.
    pub fn new(dialect: Dialect, length: Option<u64>) -> Self {
        let skipped = length.unwrap_or(0).saturating_sub(TAIL_BYTES_MAX as u64);
        Self { dialect, length, skipped, tail: Vec::new(), bytes: 0, at_once: None }
    }

    /// Takes the next piece of the body, without its content coding.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        let skipped = self.skipped.min(piece.len() as u64);
        self.skipped -= skipped;
        let piece = &piece[skipped as usize..];
        let last = &piece[piece.len().saturating_sub(TAIL_BYTES_MAX)..];
        let is_whole = self.length.is_some_and(|length| self.bytes >= length);
        if is_whole && self.tail.is_empty() && !last.is_empty() {
            self.at_once = usage(self.dialect, last);
            if self.at_once.is_some() {
                return;
            }
        }
        if self.tail.len() + last.len() > 2 * TAIL_BYTES_MAX {
            let kept = TAIL_BYTES_MAX - last.len().min(TAIL_BYTES_MAX);
            self.tail.drain(..self.tail.len() - kept.min(self.tail.len()));
        }
        self.tail.extend_from_slice(last);
    }

    /// The usage, if the response reports it near its end. The report is that of the outermost object, not a text or a
    /// schema that looks like it.
    pub fn finish(&self) -> Option<Usage> {
        self.at_once.or_else(|| usage(self.dialect, self.tail()))
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

/// The usage in the end of a response.
fn usage(dialect: Dialect, tail: &[u8]) -> Option<Usage> {
    let report: Report = scan_member(tail, "usage", paths::of(dialect))?;
    let figures = report.facts.figures;
    (!figures.is_empty()).then(|| figures.usage(dialect, &Progress::default()))
}
