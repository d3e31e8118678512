//! The replies that a server owes, in order.
//!
//! Each request that has a reply of its own is an entry. A reply is for the first entry. An error drops the entries up to the
//! next Sync, as the server skips their messages; while that Sync has not been sent, what follows is skipped too.

use std::collections::VecDeque;
use std::rc::Rc;

use weir_postgres_codec::frontend::tag;

use crate::facts::Facts;
use crate::statements::{Named, Statement};
use crate::variables::Variables;

/// A request by the reply that it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Anything, then ReadyForQuery.
    Query,
    /// FunctionCallResponse, then ReadyForQuery.
    FunctionCall,
    /// ParseComplete.
    Parse,
    /// BindComplete.
    Bind,
    /// RowDescription or NoData.
    Describe,
    /// Rows, then CommandComplete, EmptyQueryResponse or PortalSuspended.
    Execute,
    /// CloseComplete.
    Close,
    /// ReadyForQuery.
    Sync,
    /// CopyDone or CopyFail of the client, which has no reply: behind it, a Sync counts again.
    CopyEnd,
    /// CopyData of the client for a COPY that has not begun, once for any number of them.
    CopyData,
    /// An error of the gateway's own, at its place among the replies.
    LocalError,
    /// A ReadyForQuery of the gateway's own.
    LocalReady,
    /// The reply to a statement that the gateway executed itself.
    LocalCommand,
}

impl Request {
    /// No reply belongs to it: only its place counts.
    pub(crate) const fn is_marker(self) -> bool {
        matches!(self, Self::CopyEnd | Self::CopyData)
    }

    /// The type of the message of one to which the gateway itself replies.
    pub(crate) const fn tag(self) -> u8 {
        match self {
            Self::Parse => tag::PARSE,
            Self::Close => tag::CLOSE,
            _ => tag::QUERY,
        }
    }

    /// ReadyForQuery ends it.
    pub(crate) const fn ends_with_ready(self) -> bool {
        matches!(self, Self::Query | Self::FunctionCall | Self::Sync)
    }
}

/// The destination of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It goes to the client.
    Forward,
    /// The gateway made the request: the client never sees the reply.
    Swallow,
    /// The server never saw the request: the gateway replies when the turn comes.
    Fake,
}

/// The consequence of a reply.
#[derive(Clone, Debug, Default)]
pub(crate) enum Note {
    /// Nothing.
    #[default]
    None,
    /// The effects of the statements.
    Effects(Rc<Facts>),
    /// The client gave a statement a name.
    Named(Rc<Named>),
    /// The server prepared a statement.
    Prepared(Rc<Statement>),
    /// The client's unnamed statement takes the place of the server's.
    Unnamed {
        /// That of the client before.
        before: Option<Rc<Statement>>,
        /// That of the server before.
        at_server: Option<Rc<Statement>>,
    },
    /// The client closed a name.
    Closed(Rc<Named>),
    /// The server closed a statement, which it had under this number.
    Evicted(Rc<Statement>, u64),
    /// The parameters that the client wants were set.
    Replayed {
        /// All of them; `None`: the encoding in front of them, whose report follows.
        wanted: Option<Rc<Variables>>,
        /// The server had parameters or names of others, which may be why it refuses.
        has_foreign: bool,
        /// Names of others are dropped with them: no error undoes that.
        drops_names: bool,
    },
    /// The parameters of others were reset.
    Cleared,
    /// A name of SQL's PREPARE got the meaning at the server that it has for the client; and its meaning there before.
    Aligned(Box<[u8]>, Option<Rc<[u8]>>),
    /// The server counts the advisory locks of the session.
    LocksCounted,
    /// A Bind or Describe of a shared statement, or a Describe of its portal; and the number of the statement at the server.
    Bound(Rc<Named>, u64),
    /// The gateway closes a statement whose plan is outdated, and which has this number.
    Stale(u64),
    /// The gateway has a statement described, which has this number.
    Described(Rc<Statement>, u64),
    /// A Bind that must fail in place of a message that the gateway refuses; and the error of that.
    Refused(Rc<[u8]>),
    /// Bytes of the gateway's own reply.
    Reply(Rc<[u8]>),
}

/// An entry.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) request: Request,
    pub(crate) fate: Fate,
    pub(crate) note: Note,
    /// A Query that ends an unnamed statement.
    pub(crate) ends_unnamed: bool,
}

impl Expected {
    pub(crate) fn forward(request: Request, note: Note) -> Self {
        Self { request, fate: Fate::Forward, note, ends_unnamed: false }
    }

    #[inline]
    fn changes_unnamed(&self) -> bool {
        self.ends_unnamed || matches!(self.note, Note::Unnamed { .. })
    }

    pub(crate) fn swallow(request: Request, note: Note) -> Self {
        Self { request, fate: Fate::Swallow, note, ends_unnamed: false }
    }

    pub(crate) fn fake(request: Request, note: Note) -> Self {
        Self { request, fate: Fate::Fake, note, ends_unnamed: false }
    }
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    entries: VecDeque<Expected>,
    /// An error has no Sync behind it yet.
    is_skipping: bool,
    /// The server has got a part of an extended batch and not its Sync.
    is_open: bool,
    /// A Flush has gone out behind the last request.
    is_flushed: bool,
    /// An Execute is over, and the Sync behind it is not.
    has_executed: bool,
    /// Sync, Query and FunctionCall so far.
    batch: u64,
    /// Statements of the first entry that have completed.
    step: u32,
    /// Entries that give or end the unnamed statement.
    unnamed: u32,
}

impl Outstanding {
    /// Appends an entry. One that the server skips is returned: it gets no reply.
    #[inline]
    pub(crate) fn push(&mut self, entry: Expected) -> Option<Expected> {
        if self.is_skipping {
            if entry.request != Request::Sync {
                return Some(entry);
            }
            self.is_skipping = false;
        }
        if entry.fate != Fate::Fake && !entry.request.is_marker() {
            self.is_flushed = false;
            self.is_open = !entry.request.ends_with_ready();
            self.batch += u64::from(!self.is_open);
        }
        self.unnamed += u32::from(entry.changes_unnamed());
        self.entries.push_back(entry);
        None
    }

    /// Which statement is the unnamed one depends on replies that are due.
    #[inline]
    pub(crate) fn changes_unnamed(&self) -> bool {
        self.unnamed > 0
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&Expected> {
        self.entries.front()
    }

    pub(crate) fn notes(&self) -> impl Iterator<Item = &Note> {
        self.entries.iter().map(|entry| &entry.note)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The server skips everything up to a Sync that has not been sent.
    pub(crate) fn is_skipping(&self) -> bool {
        self.is_skipping
    }

    /// Nothing is owed, and nothing is begun: with the next request, a new unit begins.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.entries.is_empty() && !self.needs_sync()
    }

    /// The server is in the middle of an extended batch: only a Sync ends it.
    #[inline]
    pub(crate) fn needs_sync(&self) -> bool {
        self.is_skipping || self.is_open
    }

    /// Only more of the batch lets the server go on. An Execute without its Sync may be running: that is unknown.
    pub(crate) fn awaits_client(&self) -> bool {
        let runs_nothing = |entry: &Expected| {
            entry.fate == Fate::Fake
                || matches!(entry.request, Request::Parse | Request::Bind | Request::Describe | Request::Close)
        };
        self.needs_sync() && self.entries.iter().all(runs_nothing)
    }

    /// The server keeps replies back, and nothing that was sent makes it send them: without a Flush it may have run everything, or not.
    pub(crate) fn is_unflushed(&self) -> bool {
        self.is_open && !self.is_flushed && !self.entries.is_empty()
    }

    /// Whether a Flush is due so that the replies come; once behind each request.
    pub(crate) fn flush_due(&mut self) -> bool {
        self.needs_sync() && !std::mem::replace(&mut self.is_flushed, true)
    }

    /// The number of the batch that the next request belongs to. An error in an earlier one cannot skip it.
    #[inline]
    pub(crate) fn batch(&self) -> u64 {
        self.batch
    }

    /// Batches below this number have their ReadyForQuery, or get none.
    pub(crate) fn finished(&self) -> u64 {
        let is_due = |entry: &&Expected| entry.fate != Fate::Fake && entry.request.ends_with_ready();
        self.batch - self.entries.iter().filter(is_due).count() as u64
    }

    /// An earlier batch has no ReadyForQuery yet: the transaction status at the next request is not known.
    pub(crate) fn is_status_unknown(&self) -> bool {
        self.entries.iter().any(|entry| entry.request.ends_with_ready())
    }

    /// The only ReadyForQuery to come is that of the Sync at the end.
    pub(crate) fn ends_with_its_only_sync(&self) -> bool {
        let readies = self.entries.iter().filter(|entry| entry.request.ends_with_ready()).count();
        readies == 1 && self.entries.back().is_some_and(|last| last.request == Request::Sync)
    }

    /// The first entry has its reply.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Expected> {
        self.step = 0;
        let entry = self.entries.pop_front()?;
        self.unnamed -= u32::from(entry.changes_unnamed());
        self.has_executed =
            entry.request == Request::Execute || (self.has_executed && !entry.request.ends_with_ready());
        Some(entry)
    }

    /// The client has the reply to an Execute, whose transaction ends with a later Sync.
    pub(crate) fn has_open_transaction(&self) -> bool {
        self.has_executed
    }

    /// The first entry, if it waits for no server.
    #[inline]
    pub(crate) fn pop_due(&mut self) -> Option<Expected> {
        match self.entries.front() {
            Some(entry) if entry.fate == Fate::Fake || entry.request.is_marker() => self.pop(),
            _ => None,
        }
    }

    /// One more statement of the first entry has completed: its index.
    #[inline]
    pub(crate) fn step(&mut self) -> u32 {
        self.step += 1;
        self.step - 1
    }

    /// The index of the statement of the first entry that is being executed.
    pub(crate) fn current_step(&self) -> u32 {
        self.step
    }

    /// The server reports an error of the first entry. Entries that get no reply go to `undo`, the first one first.
    pub(crate) fn fail(&mut self, mut undo: impl FnMut(Expected)) {
        match self.entries.front() {
            None => return,
            Some(front) if front.request.ends_with_ready() => return,
            Some(_) => {}
        }
        while let Some(entry) = self.entries.front() {
            if entry.request == Request::Sync {
                break;
            }
            undo(self.pop().expect("it was just seen"));
        }
        self.is_skipping = self.entries.is_empty();
        self.has_executed = false;
    }

    /// The client sends data; whether a COPY reads them is not yet known.
    pub(crate) fn push_data(&mut self) {
        if self.entries.back().is_some_and(|last| last.request != Request::CopyData) {
            self.push(Expected::forward(Request::CopyData, Note::None));
        }
    }

    /// The server begins to read COPY data: it ignores each Sync up to the end of the data.
    pub(crate) fn begin_copy(&mut self) -> BegunCopy {
        let mut begun = BegunCopy::default();
        let at = 1;
        while let Some(entry) = self.entries.get(at) {
            match entry.request {
                Request::Sync => begun.late_syncs += u32::from(begun.has_data),
                Request::CopyData => begun.has_data = true,
                Request::CopyEnd => begun.has_ended = true,
                request => {
                    // The server never sees it, and so reads the data that follow.
                    let breaks = entry.fate == Fate::Fake && !begun.has_data;
                    begun.broken_by = breaks.then_some(request);
                    break;
                }
            }
            self.entries.remove(at);
            if begun.has_ended {
                break;
            }
        }
        // No Sync has counted for the batch of the COPY.
        let is_last = |entry: &Expected| entry.request.is_marker() || entry.fate == Fate::Fake;
        if self.entries.iter().skip(1).all(is_last) {
            self.is_open = self.entries.front().is_some_and(|copy| !copy.request.ends_with_ready());
        }
        begun
    }
}

/// Messages that a client has sent for a COPY before the server said that it begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BegunCopy {
    /// Some data.
    pub(crate) has_data: bool,
    /// The end of the data.
    pub(crate) has_ended: bool,
    /// A request to which the gateway itself replies, in place of data: PostgreSQL ends the connection then.
    pub(crate) broken_by: Option<Request>,
    /// Syncs behind data. If the COPY fails, it is unknown whether the server has read them before that.
    pub(crate) late_syncs: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forward(request: Request) -> Expected {
        Expected::forward(request, Note::None)
    }

    fn queue(requests: &[Request]) -> Outstanding {
        let mut queue = Outstanding::default();
        for &request in requests {
            assert!(queue.push(forward(request)).is_none());
        }
        queue
    }

    #[test]
    fn an_error_of_a_batch_skips_to_its_sync() {
        let mut queue = queue(&[Request::Parse, Request::Bind, Request::Execute, Request::Sync, Request::Sync]);
        let mut undone = Vec::new();
        queue.fail(|entry| undone.push(entry.request));
        assert_eq!(undone, [Request::Parse, Request::Bind, Request::Execute]);
        assert_eq!(queue.len(), 2, "each Sync has a ReadyForQuery");
        assert!(!queue.is_skipping());
    }

    #[test]
    fn a_query_before_the_sync_is_skipped_too() {
        let mut queue = queue(&[Request::Parse]);
        queue.fail(|_| {});
        assert!(queue.is_skipping() && !queue.is_quiet() && queue.needs_sync());
        assert!(queue.push(forward(Request::Query)).is_some());
        assert!(queue.push(forward(Request::Sync)).is_none());
        assert_eq!(queue.len(), 1);
        assert!(!queue.needs_sync());
    }

    #[test]
    fn an_error_of_a_query_leaves_its_ready() {
        let mut queue = queue(&[Request::Query, Request::Query]);
        queue.fail(|_| panic!("nothing is skipped"));
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn a_sync_inside_of_copy_has_no_ready() {
        let mut early = queue(&[Request::Execute, Request::Sync]);
        assert_eq!(early.begin_copy(), BegunCopy::default());
        assert_eq!(early.len(), 1);
        assert!(early.needs_sync(), "that Sync did not count");
        let mut pipelined = queue(&[
            Request::Execute,
            Request::Sync,
            Request::CopyData,
            Request::Sync,
            Request::CopyEnd,
            Request::Sync,
            Request::Parse,
        ]);
        assert_eq!(
            pipelined.begin_copy(),
            BegunCopy { has_data: true, has_ended: true, late_syncs: 1, broken_by: None }
        );
        assert_eq!(pipelined.len(), 3, "the Sync behind the data counts");
    }
}
