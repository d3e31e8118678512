//! A server's bytes, message by message. Whole runs go on in one piece; no row is looked into.

use weir_base::{error::Culprit, violation::Violation};
use weir_postgres_codec::{MessageError, backend, backend::tag, frame, frame::HEAD_BYTES};

use crate::outstanding::{BegunCopy, Expected, Fate, Note, Request};
use crate::row_type::RowType;
use crate::server::{CopyIn, ServerState, unexpected};

/// Longest reply that is read whole. Rows, and what else has no bound, pass in pieces.
const HELD_REPLY_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a larger error that are read: severity and SQLSTATE are its first fields.
const ERROR_HEAD_BYTES: usize = 4 * 1024;

/// The receiver of a server's replies.
pub(crate) trait Replies {
    /// Bytes for the client, as they came.
    fn pass(&mut self, bytes: &[u8]);
    /// A statement of a Query or Execute has completed with this command tag.
    /// True if the tag goes to the client.
    fn on_command(&mut self, server: &mut ServerState, note: &Note, tag: &[u8], step: u32) -> bool;
    /// The client gets something else in front of CommandComplete or ReadyForQuery, or in its place.
    fn interleaves(&self) -> bool;
    /// The first request describes a statement, whose row type is this.
    fn on_row_type(&mut self, server: &mut ServerState, row_type: RowType);
    /// A request has its reply.
    fn on_done(&mut self, server: &mut ServerState, entry: Expected);
    /// It is the turn of a reply of the gateway's own.
    fn on_fake(&mut self, server: &mut ServerState, entry: Expected);
    /// A request was skipped, or is the one that failed.
    fn on_undone(&mut self, server: &mut ServerState, entry: Expected, has_failed: bool);
    /// An error; true if it goes to the client. All bytes before it have been passed.
    fn on_error(&mut self, server: &mut ServerState, fields: backend::ErrorFields<'_>) -> bool;
    /// A parameter has this value now.
    fn on_report(&mut self, server: &mut ServerState, report: backend::ParameterStatus<'_>);
    /// A notification. All bytes before it have been passed.
    fn on_notification(&mut self, server: &ServerState, notification: backend::NotificationResponse<'_>);
    /// ParameterDescription; true if it goes to the client later. All bytes before it have been passed.
    fn holds(&mut self, body: &[u8]) -> bool;
    /// ReadyForQuery; true if it goes to the client.
    fn on_ready(&mut self, server: &mut ServerState, is_forwarded: bool) -> bool;
}

/// Adjacent bytes for the client that have not been passed.
struct Run {
    from: usize,
    at: usize,
}

impl Run {
    fn flush(&mut self, input: &[u8], replies: &mut impl Replies) {
        if self.from < self.at {
            replies.pass(&input[self.from..self.at]);
        }
        self.from = self.at;
    }
}

#[cold]
fn of_server(error: MessageError) -> Violation {
    error.violation(Culprit::Upstream)
}

impl ServerState {
    /// Takes bytes of the server.
    ///
    /// # Errors
    /// The server broke the protocol. No client may use the connection again.
    pub(crate) fn scan(&mut self, input: &[u8], replies: &mut impl Replies) -> Result<(), Violation> {
        if self.partial.is_empty() {
            return self.scan_run(input, replies);
        }
        let mut held = std::mem::take(&mut self.partial);
        held.extend_from_slice(input);
        self.scan_run(&held, replies)
    }

    fn scan_run(&mut self, input: &[u8], replies: &mut impl Replies) -> Result<(), Violation> {
        let mut run = Run { from: 0, at: 0 };
        if self.body_left > 0 {
            run.at = self.body_left.min(input.len());
            self.body_left -= run.at;
            if !self.body_passes {
                run.from = run.at;
            }
        }
        while let Some(head) = frame::head(&input[run.at..]).map_err(|error| error.violation(Culprit::Upstream))? {
            let end = run.at + head.whole();
            let passes = if self.is_streamed(head) {
                let passes = self.streamed_passes(head.tag)?;
                if end > input.len() {
                    self.body_left = end - input.len();
                    self.body_passes = passes;
                }
                passes
            } else if end <= input.len() {
                let has_company = match head.tag {
                    // Whether a batch may run again depends on what the client has seen, the replies in front of the error included.
                    tag::NOTIFICATION | tag::PARAMETER_DESCRIPTION | tag::ERROR => true,
                    tag::READY_FOR_QUERY | tag::COMMAND_COMPLETE => replies.interleaves(),
                    _ => false,
                };
                if has_company {
                    run.flush(input, replies);
                }
                self.on_message(head.tag, &input[run.at + HEAD_BYTES..end], replies)?
            } else if head.body > HELD_REPLY_BYTES_MAX && head.tag == tag::ERROR {
                let here = &input[run.at + HEAD_BYTES..];
                if here.len() < ERROR_HEAD_BYTES {
                    break;
                }
                run.flush(input, replies);
                let passes = self.on_error(backend::ErrorFields::read_head(here), replies)?;
                self.body_left = end - input.len();
                self.body_passes = passes;
                passes
            } else if head.body > HELD_REPLY_BYTES_MAX {
                return Err(too_large(head.body));
            } else {
                break;
            };
            let end = end.min(input.len());
            if passes {
                run.at = end;
            } else {
                run.flush(input, replies);
                run = Run { from: end, at: end };
            }
            if self.broken_by.is_some() {
                // No further reply belongs to a request of the client.
                run.flush(input, replies);
                return Ok(());
            }
            while let Some(entry) = self.queue.pop_due() {
                if !entry.request.is_marker() {
                    run.flush(input, replies);
                    replies.on_fake(self, entry);
                }
            }
        }
        run.flush(input, replies);
        self.partial.extend_from_slice(&input[run.at..]);
        Ok(())
    }

    /// A message that ends no request, and of which only the head matters.
    #[inline]
    fn is_streamed(&self, head: frame::Head) -> bool {
        match head.tag {
            tag::DATA_ROW | tag::COPY_DATA | tag::FUNCTION_CALL => true,
            tag::ROW_DESCRIPTION => self.queue.front().is_some_and(|front| front.request == Request::Query),
            tag::NOTICE => head.body > HELD_REPLY_BYTES_MAX,
            _ => false,
        }
    }

    #[inline]
    fn streamed_passes(&self, tag: u8) -> Result<bool, Violation> {
        if tag == tag::NOTICE {
            return Ok(!self.is_swallowing());
        }
        let front = self.queue.front().ok_or_else(|| unexpected(tag))?;
        let fits = match tag {
            tag::FUNCTION_CALL => front.request == Request::FunctionCall,
            tag::PARAMETER_DESCRIPTION => front.request == Request::Describe,
            _ => matches!(front.request, Request::Query | Request::Execute),
        };
        if fits { Ok(front.fate == Fate::Forward) } else { Err(unexpected(tag)) }
    }

    /// A whole message; true if it goes to the client.
    fn on_message(&mut self, tag: u8, body: &[u8], replies: &mut impl Replies) -> Result<bool, Violation> {
        match tag {
            tag::READY_FOR_QUERY => self.on_ready(body, replies),
            tag::COMMAND_COMPLETE => {
                let command = backend::CommandComplete::read(body).map_err(of_server)?;
                self.on_command(tag, command.tag, replies)
            }
            tag::EMPTY_QUERY | tag::PORTAL_SUSPENDED => self.on_command(tag, b"", replies),
            tag::PARSE_COMPLETE => self.on_end(tag, Request::Parse, replies),
            tag::BIND_COMPLETE => self.on_end(tag, Request::Bind, replies),
            tag::CLOSE_COMPLETE => self.on_end(tag, Request::Close, replies),
            tag::ROW_DESCRIPTION => self.on_row_type(body, replies),
            tag::NO_DATA => self.on_end(tag, Request::Describe, replies),
            tag::ERROR => self.on_error(backend::ErrorFields::read(body).map_err(of_server)?, replies),
            tag::NOTICE => Ok(!self.is_swallowing()),
            tag::PARAMETER_STATUS => {
                let report = backend::ParameterStatus::read(body).map_err(of_server)?;
                replies.on_report(self, report);
                Ok(!self.is_swallowing())
            }
            tag::NOTIFICATION => {
                let notification = backend::NotificationResponse::read(body).map_err(of_server)?;
                replies.on_notification(self, notification);
                Ok(false)
            }
            tag::PARAMETER_DESCRIPTION => Ok(self.streamed_passes(tag)? && !replies.holds(body)),
            tag::COPY_IN => self.on_copy_in(tag),
            tag::COPY_OUT | tag::COPY_BOTH | tag::COPY_DONE => self.streamed_passes(tag),
            _ => Err(unexpected(tag)),
        }
    }

    fn is_swallowing(&self) -> bool {
        self.queue.front().is_some_and(|front| front.fate == Fate::Swallow)
    }

    fn on_row_type(&mut self, body: &[u8], replies: &mut impl Replies) -> Result<bool, Violation> {
        let is_wanted = |front: &Expected| matches!(front.note, Note::Bound(..) | Note::Described(..));
        if self.queue.front().is_some_and(is_wanted) {
            replies.on_row_type(self, RowType::read(body).map_err(of_server)?);
        }
        self.on_end(tag::ROW_DESCRIPTION, Request::Describe, replies)
    }

    fn on_end(&mut self, tag: u8, request: Request, replies: &mut impl Replies) -> Result<bool, Violation> {
        match self.queue.front() {
            // Nothing may run in place of what the gateway has refused.
            Some(front) if front.request == request && !matches!(front.note, Note::Refused(_)) => {}
            _ => return Err(unexpected(tag)),
        }
        let entry = self.queue.pop().expect("it was just seen");
        let passes = entry.fate == Fate::Forward;
        replies.on_done(self, entry);
        Ok(passes)
    }

    fn on_command(&mut self, tag: u8, command: &[u8], replies: &mut impl Replies) -> Result<bool, Violation> {
        let (note, passes, request) = match self.queue.front() {
            Some(front) => (front.note.clone(), front.fate == Fate::Forward, front.request),
            None => return Err(unexpected(tag)),
        };
        let is_kept = match request {
            Request::Query if tag != tag::PORTAL_SUSPENDED => {
                let step = self.queue.step();
                replies.on_command(self, &note, command, step)
            }
            Request::Execute => {
                self.queue.pop();
                replies.on_command(self, &note, command, 0)
            }
            _ => return Err(unexpected(tag)),
        };
        self.copy = CopyIn::No;
        // A COPY that has come to its end has ignored them.
        self.late_syncs = 0;
        Ok(passes && is_kept)
    }

    fn on_copy_in(&mut self, tag: u8) -> Result<bool, Violation> {
        let passes = self.streamed_passes(tag)?;
        let begun = self.queue.begin_copy();
        self.late_syncs = begun.late_syncs;
        self.broken_by = begun.broken_by;
        self.is_doomed |= self.broken_by.is_some();
        self.copy = match begun {
            BegunCopy { has_ended: true, .. } => CopyIn::No,
            BegunCopy { has_data, .. } => CopyIn::Reads { has_data },
        };
        Ok(passes)
    }

    fn on_error(&mut self, fields: backend::ErrorFields<'_>, replies: &mut impl Replies) -> Result<bool, Violation> {
        if fields.sqlstate().is_none() {
            return Err(Violation::rule(
                "postgres_sqlstate",
                Culprit::Upstream,
                "an error of the server has no SQLSTATE",
            ));
        }
        // The error of an idle server is for no request: the next one is owed its own.
        self.has_failed |= !self.queue.is_empty();
        self.is_doomed |= fields.is_fatal();
        let passes = replies.on_error(self, fields);
        self.copy = CopyIn::No;
        let mut undone = Vec::new();
        self.queue.fail(|entry| undone.push(entry));
        // The last first: a name that was given and closed again was never there.
        for (place, entry) in undone.into_iter().enumerate().rev() {
            replies.on_undone(self, entry, place == 0);
        }
        Ok(passes)
    }

    fn on_ready(&mut self, body: &[u8], replies: &mut impl Replies) -> Result<bool, Violation> {
        let backend::ReadyForQuery(status) = backend::ReadyForQuery::read(body).map_err(of_server)?;
        if !self.queue.front().is_some_and(|front| front.request.ends_with_ready()) {
            return Err(unexpected(tag::READY_FOR_QUERY));
        }
        let entry = self.queue.pop().expect("it was just seen");
        self.status = status;
        self.late_syncs = 0;
        let passes = replies.on_ready(self, entry.fate == Fate::Forward);
        self.has_failed = false;
        replies.on_done(self, entry);
        Ok(passes)
    }
}

#[cold]
fn too_large(bytes: usize) -> Violation {
    let text = "a reply of the server is too large to be read whole";
    Violation::limit("postgres_reply_bytes", Culprit::Upstream, text, bytes as u64, HELD_REPLY_BYTES_MAX as u64)
}
