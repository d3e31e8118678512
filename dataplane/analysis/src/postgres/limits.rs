//! The budget of one analysis.

/// Budget of one text. A text beyond any of these is not whole: the analysis then knows nothing of it (case P18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the text. Default 128 KiB.
    pub bytes_max: usize,
    /// Tokens of the text. Default 32,768: 512 KiB of memory during the analysis.
    pub tokens_max: usize,
    /// Statements of the text. Default 256.
    pub statements_max: usize,
    /// Open parentheses and brackets at one place. Default 256; a server with the usual stack gives up at some
    /// thousands.
    pub depth_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes_max: 128 * 1024, tokens_max: 32 * 1024, statements_max: 256, depth_max: 256 }
    }
}

/// Bytes of an identifier that PostgreSQL keeps (`NAMEDATALEN` - 1). It cuts longer ones and says so in a notice.
pub const NAME_BYTES_MAX: usize = 63;

/// Ranges are 32 bits wide, so a text must be shorter, whatever a configuration says.
pub(super) const TEXT_BYTES_MAX: usize = u32::MAX as usize;
