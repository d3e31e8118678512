//! The read preference of a command: tags and a limit of staleness. Its mode is the machine's.
//!
//! Source: "Server Selection" of the driver specifications.

use weir_mongodb_codec::bson::{Document, Value};
use weir_mongodb_session::server_hello::Tag;

/// Tag sets that are looked at. Drivers send as many as an application lists: a few.
const TAG_SETS_MAX: usize = 32;

/// `$readPreference`, as far as it narrows the choice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Preference<'a> {
    /// `tags`: sets of tags, the first one that fits a server counts. `None`: every server fits.
    tag_sets: Option<Document<'a>>,
    /// `maxStalenessSeconds`, in milliseconds; `None`: no limit.
    pub(crate) staleness_max_ms: Option<i64>,
}

impl<'a> Preference<'a> {
    /// Reads the document. Fields of another type are the server's to refuse.
    pub(crate) fn read(document: Option<Document<'a>>) -> Self {
        let field = |name: &[u8]| document.and_then(|document| document.get(name).ok().flatten());
        let tag_sets = field(b"tags").and_then(|value| value.as_document().ok().flatten());
        let seconds = field(b"maxStalenessSeconds").and_then(Value::as_integer).filter(|seconds| *seconds > 0);
        Self { tag_sets, staleness_max_ms: seconds.map(|seconds| seconds.saturating_mul(1_000)) }
    }

    /// Those of `among`, a bit for each server, that the first fitting set of tags leaves.
    pub(crate) fn narrow<'t>(&self, among: u64, tags_of: impl Fn(usize) -> &'t [Tag]) -> u64 {
        let Some(sets) = self.tag_sets else { return among };
        let mut has_set = false;
        for set in sets.elements().take(TAG_SETS_MAX) {
            let Some(set) = set.ok().and_then(|set| set.value.as_document().ok().flatten()) else { continue };
            has_set = true;
            let fits = |number: usize| among & 1 << number != 0 && has_all(tags_of(number), set);
            let fitting = (0..64).filter(|number| fits(*number)).fold(0, |bits, number| bits | 1 << number);
            if fitting != 0 {
                return fitting;
            }
        }
        if has_set { 0 } else { among }
    }
}

/// A server has all tags of a set. An empty set fits every server.
fn has_all(tags: &[Tag], set: Document<'_>) -> bool {
    set.elements().all(|wanted| {
        let Ok(wanted) = wanted else { return false };
        let Some(value) = wanted.value.as_string() else { return false };
        tags.iter().any(|tag| *tag.name == *wanted.name && *tag.value == *value)
    })
}
