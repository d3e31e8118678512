//! Messages of the client, one by one: what each needs, and where it goes.

use weir_base::{error::Culprit, violation::Violation};
use weir_postgres_codec::{MessageError, backend, frame, frame::Head, frontend, frontend::tag, sqlstate};

use crate::facts::Facts;
use crate::feed::Feed;
use crate::io::{Event, Io};
use crate::judge::Judged;
use crate::outstanding::{Expected, Note, Request};
use crate::refusal::Refusal;
use crate::server::{CopyIn, ServerState};
use crate::session::{Attachment, End, Next, Session, Want, Way};
use crate::statements::ServerName;

/// The client of one message, and its server.
pub(crate) struct Turn<'t, 'i, I> {
    pub(crate) feed: &'t mut Feed<'i>,
    pub(crate) io: &'t I,
}

impl Session {
    /// Takes the next message, or as much of it as is there. `Some`: no further one can be taken.
    #[inline]
    pub(crate) fn take(
        &mut self,
        feed: &mut Feed<'_>,
        mut server: Option<&mut ServerState>,
        io: &impl Io,
    ) -> Option<Next> {
        if self.body_left > 0 {
            return self.take_body(feed, server, io);
        }
        let head = match frame::head(feed.rest()) {
            Ok(Some(head)) => head,
            Ok(None) => return Some(Next::More),
            // As PostgreSQL: without a word.
            Err(error) => return Some(self.violate(error.violation(Culprit::Client))),
        };
        match body_bytes_max(head.tag) {
            None => return Some(self.unknown_type(head.tag, io)),
            Some(max) if head.body > max => return Some(self.violate(too_long(head, max))),
            Some(_) => {}
        }
        if server.as_deref().is_some_and(|server| server.copy != CopyIn::No) && !may_come_within_copy(head.tag) {
            return Some(self.breaks_copy(head.tag, io));
        }
        if self.is_skipping && !matches!(head.tag, tag::SYNC | tag::TERMINATE) {
            self.drop_message(head, feed, io);
            return None;
        }
        let turn = &mut Turn { feed, io };
        let is_notifying = self.listening.as_ref().is_some_and(|listening| listening.is_notifying());
        if (self.has_barrier || is_notifying)
            && let Some(next) = self.wait_at_barrier(head, turn, server.as_deref_mut())
        {
            return Some(next);
        }
        if self.route.is_bounded
            && let Some(server) = server.as_deref()
            && let Some(next) = self.outgrows(head, turn.feed.rest(), server)
        {
            return Some(next);
        }
        match head.tag {
            tag::QUERY => self.on_query(head, turn, server),
            tag::PARSE => self.on_parse(head, turn, server),
            tag::BIND => self.on_bind(head, turn, server),
            tag::DESCRIBE => self.on_describe(head, turn, server),
            tag::EXECUTE => self.on_execute(head, turn, server),
            tag::CLOSE => self.on_close(head, turn, server),
            tag::SYNC => self.on_sync(head, turn, server),
            tag::FUNCTION_CALL => self.on_function_call(head, turn, server),
            tag::FLUSH => self.on_flush(head, turn, server),
            tag::TERMINATE => {
                self.end = Some(Box::new(End::Terminated));
                Some(Next::Close(End::Terminated))
            }
            _ => self.on_copy_message(head, turn, server),
        }
    }

    /// Messages behind the text wait for its reply.
    pub(crate) fn is_barrier(&self, facts: &Facts) -> bool {
        facts.is_barrier || (facts.is_reset && self.startup.has_any())
    }

    #[cold]
    fn wait_at_barrier<I: Io>(
        &mut self,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: Option<&mut ServerState>,
    ) -> Option<Next> {
        let is_request = !matches!(
            head.tag,
            tag::SYNC | tag::FLUSH | tag::TERMINATE | tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL
        );
        match server {
            Some(server) if !server.queue.is_empty() && server.copy == CopyIn::No => {
                is_request.then(|| self.wait_for_replies(turn, server))
            }
            _ => {
                self.has_barrier = false;
                None
            }
        }
    }

    /// The next message can be judged after the replies that are due. A server keeps those of a batch until a Flush or a Sync.
    #[cold]
    pub(crate) fn wait_for_replies<I: Io>(&mut self, turn: &mut Turn<'_, '_, I>, server: &mut ServerState) -> Next {
        self.is_waiting = true;
        if server.queue.flush_due() {
            turn.feed.flush(&mut self.retry, turn.io);
            turn.io.encode_to_server(frontend::flush);
        }
        Next::Wait
    }

    /// A Query or FunctionCall behind a batch without its Sync: if the batch fails, the server skips the message too. The gateway has to know
    /// that before it refuses or answers the message itself.
    pub(crate) fn wait_for_open_batch<I: Io>(
        &mut self,
        turn: &mut Turn<'_, '_, I>,
        server: Option<&mut ServerState>,
    ) -> Option<Next> {
        let server = server.filter(|server| server.queue.needs_sync() && !server.queue.is_empty())?;
        Some(self.wait_for_replies(turn, server))
    }

    /// The next bytes of a message that passes in pieces.
    fn take_body(&mut self, feed: &mut Feed<'_>, server: Option<&mut ServerState>, io: &impl Io) -> Option<Next> {
        let bytes = self.body_left.min(feed.rest().len());
        if bytes == 0 {
            return Some(Next::More);
        }
        self.body_left -= bytes;
        match self.way {
            Way::Pass => feed.pass(bytes),
            Way::Drop => feed.skip(bytes, &mut self.retry, io),
        }
        if let Some(server) = server {
            server.is_half_sent = self.body_left > 0 && self.way == Way::Pass;
        }
        None
    }

    /// The rest of the message whose first part is here goes the same way. `Some`: it is not whole.
    #[inline]
    fn follow(&mut self, head: Head, here: usize, way: Way, server: Option<&mut ServerState>) {
        self.body_left = head.whole() - here;
        self.way = way;
        if let Some(server) = server {
            server.is_half_sent = self.body_left > 0 && way == Way::Pass;
        }
    }

    /// The message goes to the server as it is, now and in pieces.
    #[inline]
    pub(crate) fn pass<I: Io>(&mut self, head: Head, turn: &mut Turn<'_, '_, I>, server: &mut ServerState) {
        let here = head.whole().min(turn.feed.rest().len());
        turn.feed.pass(here);
        if here < head.whole() {
            self.follow(head, here, Way::Pass, Some(server));
        }
    }

    /// The first part of the message has gone to the server in another form; what is here is done with.
    pub(crate) fn replaced<I: Io>(&mut self, head: Head, turn: &mut Turn<'_, '_, I>, server: &mut ServerState) {
        let here = head.whole().min(turn.feed.rest().len());
        turn.feed.skip(here, &mut self.retry, turn.io);
        if here < head.whole() {
            self.follow(head, here, Way::Pass, Some(server));
        }
    }

    /// The message goes nowhere.
    #[cold]
    pub(crate) fn drop_message(&mut self, head: Head, feed: &mut Feed<'_>, io: &impl Io) {
        let here = head.whole().min(feed.rest().len());
        feed.skip(here, &mut self.retry, io);
        self.follow(head, here, Way::Drop, None);
    }

    /// Whether a server is there that may get the next message. Otherwise what to do.
    #[inline]
    pub(crate) fn ready<'s, I: Io>(
        &mut self,
        is_read_only: bool,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: Option<&'s mut ServerState>,
    ) -> Result<&'s mut ServerState, Option<Next>> {
        let Some(server) = server else {
            let place = self.taken_bytes + turn.feed.consumed() as u64;
            if let Some(refusal) = self.refusal.take().filter(|refusal| refusal.0 == place) {
                self.refuse(&refusal.1, head, turn, None);
                return Err(None);
            }
            let access = self.choose_access(head, turn.feed.rest());
            return Err(Some(Next::NeedServer(Want { is_read_only, access })));
        };
        self.attachment = Attachment::Used;
        if self.busy_since.is_none() {
            self.busy_since = Some(turn.io.now());
        }
        Ok(server)
    }

    /// Refuses a message in its place, with an error of the gateway's own.
    #[cold]
    pub(crate) fn refuse<I: Io>(
        &mut self,
        refusal: &Refusal,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: Option<&mut ServerState>,
    ) {
        turn.io.count(Event::Refusal);
        let is_batch = !matches!(head.tag, tag::QUERY | tag::FUNCTION_CALL);
        let is_open = |server: &ServerState| server.queue.needs_sync() && !server.queue.is_skipping();
        let server = match server {
            Some(server) if is_open(server) => return self.refuse_at_server(refusal, head, turn, server),
            server => server,
        };
        self.is_skipping = is_batch;
        self.drop_message(head, turn.feed, turn.io);
        match server {
            Some(server) if !server.queue.is_quiet() => {
                // The Sync behind it has to wait for its turn, too.
                self.attachment = Attachment::Used;
                let mut bytes = Vec::new();
                backend::error(&mut bytes, &refusal.report());
                server.queue.push(Expected::fake(Request::LocalError, Note::Reply(bytes.into())));
                if !is_batch {
                    server.queue.push(Expected::fake(Request::LocalReady, Note::None));
                }
                self.emit_due(server, turn.io);
            }
            server => {
                let status = server.map_or(weir_postgres_codec::TransactionStatus::Idle, |server| server.status);
                turn.io.encode_to_client(|out| {
                    backend::error(out, &refusal.report());
                    if !is_batch {
                        backend::ready_for_query(out, status);
                    }
                });
            }
        }
    }

    /// Refuses a message in a batch of which the server has a part: the error ends the transaction. The server gets a Bind that it refuses,
    /// and the client the error of the gateway. A Query or FunctionCall also ends the batch.
    #[cold]
    pub(crate) fn refuse_at_server<I: Io>(
        &mut self,
        refusal: &Refusal,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: &mut ServerState,
    ) {
        self.is_skipping = !matches!(head.tag, tag::QUERY | tag::FUNCTION_CALL);
        self.drop_message(head, turn.feed, turn.io);
        self.retry.forget();
        turn.io.encode_to_server(|out| frontend::bind(out, b"", ServerName::none().bytes(), []));
        let mut error = Vec::new();
        backend::error(&mut error, &refusal.report());
        server.queue.push(Expected::forward(Request::Bind, Note::Refused(error.into())));
        if !self.is_skipping {
            turn.io.encode_to_server(frontend::sync);
            server.queue.push(Expected::forward(Request::Sync, Note::None));
        }
    }

    /// The body of a message is not what its type has.
    #[cold]
    pub(crate) fn refuse_body<I: Io>(
        &mut self,
        error: MessageError,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: Option<&mut ServerState>,
    ) -> Option<Next> {
        self.refuse(&Refusal::error(error.sqlstate(), error.text()), head, turn, server);
        None
    }

    fn on_sync<I: Io>(
        &mut self,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: Option<&mut ServerState>,
    ) -> Option<Next> {
        if turn.feed.rest().len() < head.whole() {
            return Some(Next::More);
        }
        self.is_skipping = false;
        let Some(server) = server.filter(|_| self.attachment == Attachment::Used) else {
            turn.feed.skip(head.whole(), &mut self.retry, turn.io);
            turn.io.encode_to_client(|out| {
                backend::ready_for_query(out, weir_postgres_codec::TransactionStatus::Idle);
            });
            return None;
        };
        turn.feed.pass(head.whole());
        if let CopyIn::Reads { has_data } = server.copy {
            server.late_syncs += u32::from(has_data);
            return None;
        }
        if self.busy_since.is_none() {
            self.busy_since = Some(turn.io.now());
        }
        server.queue.push(Expected::forward(Request::Sync, Note::None));
        None
    }

    fn on_flush<I: Io>(
        &mut self,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: Option<&mut ServerState>,
    ) -> Option<Next> {
        match server.filter(|server| !server.queue.is_empty()) {
            Some(server) => self.pass(head, turn, server),
            None => self.drop_message(head, turn.feed, turn.io),
        }
        None
    }

    fn on_function_call<I: Io>(
        &mut self,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        mut server: Option<&mut ServerState>,
    ) -> Option<Next> {
        if let Some(next) = self.wait_for_open_batch(turn, server.as_deref_mut()) {
            return Some(next);
        }
        if self.is_denied(Judged::FunctionCall, head, turn, server.as_deref_mut()) {
            return None;
        }
        let function = turn.feed.rest().get(frame::HEAD_BYTES..frame::HEAD_BYTES + 4);
        if function.is_none() && head.body >= 4 {
            return Some(Next::More);
        }
        let server = match self.ready(false, head, turn, server) {
            Ok(server) => server,
            Err(next) => return next,
        };
        turn.io.count(Event::Query);
        self.retry.forget();
        if !function.is_some_and(is_of_large_objects) {
            self.note_opaque(server, turn.io);
        }
        server.queue.push(Expected::forward(Request::FunctionCall, Note::None));
        self.pass(head, turn, server);
        None
    }

    /// CopyData, CopyDone, CopyFail. Outside of COPY a server ignores them.
    fn on_copy_message<I: Io>(
        &mut self,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: Option<&mut ServerState>,
    ) -> Option<Next> {
        // A COPY may be about to begin with what is outstanding; otherwise nothing reads the message.
        let Some(server) = server.filter(|server| !server.queue.is_empty()) else {
            self.drop_message(head, turn.feed, turn.io);
            return None;
        };
        if head.tag != tag::COPY_DATA && turn.feed.rest().len() < head.whole() {
            return Some(Next::More);
        }
        match (server.copy, head.tag) {
            (CopyIn::Reads { .. }, tag::COPY_DATA) => server.copy = CopyIn::Reads { has_data: true },
            (CopyIn::Reads { .. }, _) => server.copy = CopyIn::No,
            (CopyIn::No, tag::COPY_DATA) => server.queue.push_data(),
            (CopyIn::No, _) => drop(server.queue.push(Expected::forward(Request::CopyEnd, Note::None))),
        }
        self.pass(head, turn, server);
        None
    }

    #[cold]
    pub(crate) fn violate(&mut self, violation: Violation) -> Next {
        let end = End::Violation(violation);
        self.end = Some(Box::new(end.clone()));
        Next::Close(end)
    }

    #[cold]
    fn unknown_type(&mut self, tag: u8, io: &impl Io) -> Next {
        let text = format!("invalid frontend message type {tag}");
        io.encode_to_client(|out| {
            backend::error(out, &backend::ErrorReport::fatal(sqlstate::PROTOCOL_VIOLATION, &text));
        });
        self.violate(Violation::rule("postgres_message_type", Culprit::Client, text))
    }

    /// The words of PostgreSQL, which cannot tell data from requests any more.
    #[cold]
    pub(crate) fn breaks_copy(&mut self, tag: u8, io: &impl Io) -> Next {
        let text = format!("unexpected message type 0x{tag:02X} during COPY from stdin");
        io.encode_to_client(|out| {
            backend::error(out, &backend::ErrorReport::error(sqlstate::PROTOCOL_VIOLATION, &text));
            let lost = "terminating connection because protocol synchronization was lost";
            backend::error(out, &backend::ErrorReport::fatal(sqlstate::PROTOCOL_VIOLATION, lost));
        });
        self.violate(Violation::rule("postgres_copy_message", Culprit::Client, text))
    }

    /// A text that is too large to be read: it passes in pieces unless a rule denies it.
    #[cold]
    pub(crate) fn pass_opaque<I: Io>(
        &mut self,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        mut server: Option<&mut ServerState>,
        request: Request,
    ) -> Option<Next> {
        if self.is_denied(Judged::Unread, head, turn, server.as_deref_mut()) {
            return None;
        }
        // A Parse without a name takes the place of the unnamed statement.
        let is_unnamed = self.is_multiplexed() && request == Request::Parse && {
            match turn.feed.rest().get(frame::HEAD_BYTES) {
                Some(first) => *first == 0,
                // Nor does a server wait for it.
                None => return Some(Next::More),
            }
        };
        let server = match self.ready(false, head, turn, server) {
            Ok(server) => server,
            Err(next) => return next,
        };
        if is_unnamed && Self::is_unnamed_uncertain(server) {
            return Some(self.wait_for_replies(turn, server));
        }
        self.retry.forget();
        // Its effects are unknown from its first byte on, whatever the reply says.
        self.note_opaque(server, turn.io);
        self.has_barrier |= self.is_multiplexed();
        let note = match self.is_multiplexed() {
            true if is_unnamed => self.note_unnamed(server),
            true => Note::Effects(Facts::opaque()),
            false => Note::None,
        };
        if server.queue.push(Expected::forward(request, note)).is_none() && is_unnamed {
            // The pin keeps it for this client: no text of the gateway may take its place.
            (self.unnamed, server.unnamed) = (None, None);
        }
        self.pass(head, turn, server);
        None
    }
}

/// The function is one of those that PostgreSQL's own library calls in this way: they leave nothing in the session.
fn is_of_large_objects(function: &[u8]) -> bool {
    // lo_create, lo_open to lo_tell, lo_unlink, lo_truncate, and those with 64 bits: the numbers never change.
    let numbers = [715, 952, 953, 954, 955, 956, 957, 958, 964, 1004, 3170, 3171, 3172];
    function.try_into().is_ok_and(|number| numbers.contains(&u32::from_be_bytes(number)))
}

/// While a server reads the data of a COPY, everything else ends the connection.
fn may_come_within_copy(tag: u8) -> bool {
    matches!(tag, tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL | tag::SYNC | tag::FLUSH | tag::TERMINATE)
}

/// Bytes that the body of a client's message may have; `None`: no message has the type.
#[inline]
fn body_bytes_max(tag: u8) -> Option<usize> {
    let max = frontend::body_bytes_max(tag)?;
    // The server's name of a statement may be longer than the client's, and the server has the same limit.
    Some(if tag == tag::BIND { max - ServerName::BYTES_MAX } else { max })
}

#[cold]
fn too_long(head: Head, max: usize) -> Violation {
    let text = "a message is longer than its type allows";
    Violation::limit("postgres_message_length", Culprit::Client, text, head.body as u64, max as u64)
}
