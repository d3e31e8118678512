//! Faults of a reply, by name.

use super::directive::one_of;

/// A fault. Those of a stream come behind so many events with text; those of a whole reply in the middle of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// `cut`: the connection is reset.
    Cut,
    /// `closed`: the connection is closed before the body ends.
    Closed,
    /// `truncated`: the body ends as if it were whole. A whole reply is half of its JSON.
    Truncated,
    /// `error`: an error event, and the end of the body.
    Error,
    /// `no_done`: all but the event that ends a stream of this dialect.
    NoDone,
    /// `stalled`: nothing more, on an open connection.
    Stalled,
    /// `silent`: no head, on an open connection.
    Silent,
    /// `endless`: a line that does not end, of up to 1 GiB.
    Endless,
    /// `garbage`: an event whose data is no JSON. A whole reply is no JSON at all.
    Garbage,
    /// `dataless`: an event with a name and no data.
    Dataless,
    /// `html`: a page of a proxy in place of a reply, with status 502.
    Html,
}

/// Bytes of the line of [`Fault::Endless`].
pub const ENDLESS_BYTES: u64 = 1 << 30;

impl Fault {
    /// All, with their words.
    pub const ALL: [(&'static str, Self); 11] = [
        ("cut", Self::Cut),
        ("closed", Self::Closed),
        ("truncated", Self::Truncated),
        ("error", Self::Error),
        ("no_done", Self::NoDone),
        ("stalled", Self::Stalled),
        ("silent", Self::Silent),
        ("endless", Self::Endless),
        ("garbage", Self::Garbage),
        ("dataless", Self::Dataless),
        ("html", Self::Html),
    ];

    /// The fault of a word.
    pub fn of(word: &str) -> Option<Self> {
        one_of(word, &Self::ALL)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, fault)| *fault == self).map_or("", |(word, _)| word)
    }

    /// The reply goes on behind it.
    pub fn goes_on(self) -> bool {
        matches!(self, Self::Garbage | Self::Dataless | Self::NoDone)
    }
}
