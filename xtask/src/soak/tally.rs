//! What clients saw, counted.

use std::collections::BTreeMap;

/// Counts of one client, or of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Replies that were right.
    pub(crate) right: u64,
    /// Replies that were not what the command has to give, and bytes that nobody asked for.
    pub(crate) wrong: BTreeMap<String, u64>,
    /// Writes that were executed, as a later read showed, although their reply never came.
    pub(crate) lost: u64,
    /// Connections that ended inside a reply.
    pub(crate) cut: u64,
    /// Replies that did not come within their limit.
    pub(crate) late: u64,
    /// Error replies by text.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Connections that ended while nothing was asked of them: what a pool notices before it uses one again.
    pub(crate) closed_between: u64,
    /// Requests that met the end of their connection on the way: unanswered, and not executed as far as that can be
    /// seen. A client may send them again.
    pub(crate) crossed: u64,
    /// Connections that ended, in whatever way.
    pub(crate) closed: u64,
    /// Connections that could not be made, by kind of failure.
    pub(crate) not_connected: BTreeMap<String, u64>,
}

impl Tally {
    /// Adds another client's counts.
    pub(crate) fn add(&mut self, other: &Self) {
        self.right += other.right;
        self.lost += other.lost;
        self.cut += other.cut;
        self.late += other.late;
        self.closed_between += other.closed_between;
        self.crossed += other.crossed;
        self.closed += other.closed;
        for (ours, theirs) in [
            (&mut self.wrong, &other.wrong),
            (&mut self.errors, &other.errors),
            (&mut self.not_connected, &other.not_connected),
        ] {
            for (text, count) in theirs {
                *ours.entry(text.clone()).or_default() += count;
            }
        }
    }

    /// One more of a kind.
    pub(crate) fn count(counts: &mut BTreeMap<String, u64>, text: impl Into<String>) {
        *counts.entry(text.into()).or_default() += 1;
    }

    /// What no event may cause, an ordinary error reply excepted: wrong, lost and cut replies.
    pub(crate) fn broken(&self) -> u64 {
        total(&self.wrong) + self.lost + self.cut
    }

    /// Everything that an application would log as an error. Requests that crossed a close and ends between replies are
    /// not among them: those a client library sends again, and notices, by itself.
    pub(crate) fn visible_errors(&self) -> u64 {
        self.broken() + self.late + total(&self.errors) + total(&self.not_connected)
    }

    /// All kinds with their counts, for the table.
    pub(crate) fn describe(&self) -> String {
        let mut parts = Vec::new();
        for (count, what) in
            [(self.lost, "lost replies"), (self.cut, "cut replies"), (self.late, "replies not in time")]
        {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        for (kinds, what) in
            [(&self.wrong, "wrong"), (&self.errors, "error reply"), (&self.not_connected, "not connected")]
        {
            parts.extend(kinds.iter().map(|(text, count)| format!("{count} x {what} `{text}`")));
        }
        if parts.is_empty() { "none".into() } else { parts.join("; ") }
    }
}

/// Sum of all kinds.
pub(crate) fn total(counts: &BTreeMap<String, u64>) -> u64 {
    counts.values().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_kinds_apart() {
        let mut one = Tally { right: 1, lost: 1, ..Tally::default() };
        Tally::count(&mut one.errors, "ERR a");
        let mut all = Tally::default();
        all.add(&one);
        all.add(&one);
        assert_eq!((all.right, all.broken(), all.visible_errors()), (2, 2, 4));
        assert_eq!(all.describe(), "2 lost replies; 2 x error reply `ERR a`");
        assert_eq!(Tally { crossed: 3, closed_between: 2, ..Tally::default() }.visible_errors(), 0);
    }
}
