//! One request and its replies.

use weir_base::error::Culprit;
use weir_base::violation::Violation;
use weir_mongodb_codec::command::Command;
use weir_mongodb_codec::header::{Header, OpCode};
use weir_mongodb_codec::message::Flags;

use crate::pins::CursorKey;
use crate::request::{Asker, Request};

/// A request that a server gets, and the pins that its reply may change.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// The request that a refusal answers.
    pub(crate) asker: Asker,
    /// No reply will come.
    pub(crate) is_unacknowledged: bool,
    /// The reply may be the first of several.
    pub(crate) may_stream: bool,
    /// The id that the next reply must name: that of the request, or of the reply before.
    pub(crate) expected: i32,
    /// Replies so far.
    pub(crate) replies: u64,
    /// `lsid.id`.
    pub(crate) session: Option<[u8; 16]>,
    /// It is a read, or a write with a number: a driver may try it again.
    pub(crate) may_repeat: Repeat,
    /// It is a part of a transaction.
    pub(crate) transaction: Option<Transaction>,
    /// It is a getMore for this cursor.
    pub(crate) cursor: Option<i64>,
    /// It kills these cursors.
    pub(crate) killed: Vec<CursorKey>,
    /// The pin of its cursor is in use until its end.
    pub(crate) uses_cursor: bool,
    /// The same of its transaction.
    pub(crate) uses_transaction: bool,
    /// It begins a transaction, and has no server yet.
    pub(crate) has_claim: bool,
}

/// Whether a driver may try a request again whose reply was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It reads: the code alone says so.
    Read,
    /// It writes with a number: a label says so.
    Write,
    /// It writes without one, and may have happened.
    Never,
}

/// The place of a request in its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Start,
    Inside,
    Commit,
    Abort,
}

/// A part of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transaction {
    pub(crate) session: [u8; 16],
    pub(crate) number: i64,
    pub(crate) part: Part,
}

impl Part {
    pub(crate) fn of(command: &Command<'_>) -> Part {
        match command.name {
            b"commitTransaction" => Part::Commit,
            b"abortTransaction" => Part::Abort,
            _ if command.is_transaction_start => Part::Start,
            _ => Part::Inside,
        }
    }
}

impl Exchange {
    pub(crate) fn new(request: &Request<'_>, command: &Command<'_>, may_repeat: Repeat) -> Exchange {
        Exchange {
            asker: request.asker(),
            is_unacknowledged: request.is_unacknowledged(),
            // Servers stream the batches of a cursor alone.
            may_stream: command.name == b"getMore" && request.flags.contains(Flags::EXHAUST_ALLOWED),
            expected: request.id,
            replies: 0,
            session: command.session.copied(),
            may_repeat,
            transaction: None,
            cursor: None,
            killed: Vec::new(),
            uses_cursor: false,
            uses_transaction: false,
            has_claim: false,
        }
    }

    /// Checks the header of a reply (L1, M8).
    pub(crate) fn check(&self, header: &Header) -> Result<(), Violation> {
        let rule = |reason, text| Err(Violation::rule(reason, Culprit::Upstream, text));
        if self.is_unacknowledged {
            return rule("mongodb_reply_unexpected", "the server answers a request that wants no reply");
        }
        if header.op_code != OpCode::Msg {
            return rule("mongodb_reply_opcode", "the server answers with another opcode than the request has");
        }
        if header.response_to != self.expected {
            return rule("mongodb_reply_order", "the server answers a request that is not under way");
        }
        Ok(())
    }

    /// Notes a reply; `true`: another one follows.
    pub(crate) fn note(&mut self, header: &Header, flags: Flags) -> Result<bool, Violation> {
        let follows = flags.contains(Flags::MORE_TO_COME);
        if follows && !self.may_stream {
            let text = "the server sends several replies where one was wanted";
            return Err(Violation::rule("mongodb_reply_stream", Culprit::Upstream, text));
        }
        self.expected = header.request;
        self.replies += 1;
        Ok(follows)
    }
}
