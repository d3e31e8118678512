//! One client's session as a state machine: bytes in, commands judged, replies in order.

use std::{rc::Rc, sync::Arc};

use weir_analysis::redis::{self, Args};
use weir_base::{
    error::Culprit,
    exchange::{FrameKind, LossCause, Refusal},
    time::Time,
    violation::Violation,
};
use weir_resp::{ProtocolError, RequestParser, Step, encode};

use crate::{
    access::UserChange,
    batch::Batch,
    io::{Io, Sample},
    pin_reason::PinReason,
    pubsub::{Kind, Name},
    request::Request,
    settings::RedisListenerSettings,
    spares::Spares,
    state::{CommandStatus, Hold, State},
    users::Users,
};

/// The shell's next action for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Give it more bytes of the client.
    Read,
    /// Read no more until something wakes it: a reply, room in an output, a lane.
    Wait,
    /// Send what is buffered, then close.
    Close,
}

/// Offsets of arguments kept for the next command; those of larger ones are freed.
const PARSER_BYTES_KEPT: usize = 4 * 1024;

/// One client's session. The shell gives it bytes with [`Session::on_client`], replies with [`Session::on_reply`] and
/// the other `on_` calls, and after each asks [`Session::next`] what to do.
pub struct Session {
    /// The parser in the middle of a command. `None`: at the beginning of one.
    parser: Option<Box<RequestParser>>,
    input: Vec<u8>,
    /// Bytes at the front of the input that are done with: a deep pipeline is not moved for each of its commands.
    spent: usize,
    /// The client broke the protocol, and replies to what it sent before are still due.
    violation: Option<Box<Violation>>,
    /// Since when the command at the front of the input is incomplete.
    partial_since: Option<Time>,
    pub(crate) state: State,
}

impl Session {
    /// A session fresh from its listener. It has memory of `spares` while it needs it.
    pub fn new(settings: Rc<RedisListenerSettings>, spares: Rc<Spares>) -> Self {
        Self {
            parser: None,
            input: Vec::new(),
            spent: 0,
            violation: None,
            partial_since: None,
            state: State::new(settings, spares),
        }
    }

    /// The client has connected: once, before anything else.
    pub fn arrive(&mut self, io: &impl Io) {
        self.state.arrive(io);
    }

    /// The listener has other users now; true if the session has to end for it.
    pub fn follow_users(&mut self, users: Option<&Arc<Users>>, io: &impl Io) -> bool {
        self.state.follow_users(users, io) == UserChange::Ends
    }

    /// As whom its requests reach the server.
    pub fn login(&self) -> u64 {
        self.state.login
    }

    /// Takes bytes of the client.
    ///
    /// # Errors
    /// The client broke the protocol: the reply has been written, the shell reports and closes. If replies to earlier
    /// commands are due, the error comes from [`Session::on_wake`] once they are out.
    pub fn on_client(&mut self, bytes: &[u8], io: &impl Io) -> Result<(), Violation> {
        let result = if self.input.is_empty() {
            self.run(bytes, io).map(|used| self.input.extend_from_slice(&bytes[used..]))
        } else {
            self.input.extend_from_slice(bytes);
            self.resume(io)
        };
        self.conclude(result, io)
    }

    /// Looks at held input again.
    ///
    /// # Errors
    /// As [`Session::on_client`].
    pub fn on_wake(&mut self, io: &impl Io) -> Result<(), Violation> {
        self.state.release_hold(io);
        if self.violation.is_some() && (self.state.is_quiet() || self.state.is_cut) {
            return self.violation.take().map_or(Ok(()), |violation| Err(*violation));
        }
        let result = self.resume(io);
        self.conclude(result, io)
    }

    fn conclude(&mut self, result: Result<(), ProtocolError>, io: &impl Io) -> Result<(), Violation> {
        if let Some(parser) = &mut self.parser
            && self.input.is_empty()
            && parser.heap_bytes() > PARSER_BYTES_KEPT
        {
            parser.release();
        }
        let Err(error) = result else {
            self.note_partial(io);
            return Ok(());
        };
        self.partial_since = None;
        let violation = self.protocol_violation(&error, io);
        if self.state.is_quiet() || self.state.is_cut {
            return Err(violation);
        }
        self.violation = Some(Box::new(violation));
        Ok(())
    }

    fn resume(&mut self, io: &impl Io) -> Result<(), ProtocolError> {
        if self.input.is_empty() {
            return Ok(());
        }
        let mut input = std::mem::take(&mut self.input);
        let mut spent = std::mem::take(&mut self.spent);
        spent += self.run(&input[spent..], io)?;
        if spent == input.len() {
            return Ok(());
        }
        if spent > input.len() / 2 {
            input.drain(..spent);
            spent = 0;
        }
        (self.input, self.spent) = (input, spent);
        Ok(())
    }

    /// Runs the commands at the front of `input`; the number of bytes that are done with.
    fn run(&mut self, input: &[u8], io: &impl Io) -> Result<usize, ProtocolError> {
        let used = self.run_commands(input, io)?;
        if used > 0 {
            // Whatever is left began later.
            self.partial_since = None;
        }
        Ok(used)
    }

    fn run_commands(&mut self, input: &[u8], io: &impl Io) -> Result<usize, ProtocolError> {
        let mut batch = Batch::default();
        let mut parser = self.parser.take().unwrap_or_else(|| self.state.order.spares.parsers.take());
        let result = self.take_commands(&mut parser, input, &mut batch, io);
        self.state.send_batch(&mut batch, input, io);
        // After an error the results of a parser mean nothing, and the session makes no more use of one.
        if result.is_ok() {
            self.put_away(parser);
        }
        result
    }

    /// Keeps a parser in the middle of a command. One at the beginning is as good as any other.
    fn put_away(&mut self, mut parser: Box<RequestParser>) {
        if !parser.is_idle() {
            self.parser = Some(parser);
            return;
        }
        if parser.heap_bytes() > PARSER_BYTES_KEPT {
            parser.release();
        }
        self.state.order.spares.parsers.give(parser);
    }

    /// As [`Session::run_commands`]; the last of them may be left in `batch`.
    fn take_commands(
        &mut self,
        parser: &mut RequestParser,
        input: &[u8],
        batch: &mut Batch,
        io: &impl Io,
    ) -> Result<usize, ProtocolError> {
        let mut at = 0;
        while at < input.len() {
            if batch.is_full() {
                self.state.send_batch(batch, input, io);
                if !self.state.takes_commands(io) {
                    break;
                }
                *batch = self.state.begin_batch(at, io);
            }
            let rest = &input[at..];
            if self.state.streaming.is_some() {
                match self.state.stream(parser, rest, io)? {
                    0 => break,
                    taken => at += taken,
                }
                continue;
            }
            match parser.parse(rest, &self.state.limits)? {
                Step::Incomplete => break,
                Step::Skip { len } => {
                    self.state.send_batch(batch, input, io);
                    at += len;
                }
                Step::Command { len, inline } => {
                    let request = Request { parser, bytes: &rest[..len], is_inline: inline };
                    let resolved = redis::resolve(request.text(0), request.arg(1));
                    let sample = io.draw_sample();
                    if sample == Sample::default() && batch.try_add(resolved, &request, &self.state, io) {
                        at += len;
                        continue;
                    }
                    self.state.send_batch(batch, input, io);
                    io.begin_command(sample);
                    if self.state.command(resolved, &request, io) == CommandStatus::Held {
                        break;
                    }
                    self.state.end_caching(Some(resolved));
                    self.state.forget_wait(io);
                    self.state.stream_again();
                    at += len;
                }
                Step::Streaming { len } => {
                    self.state.send_batch(batch, input, io);
                    let request = Request { parser, bytes: &rest[..len], is_inline: false };
                    if self.state.must_be_whole(&request, io) {
                        *parser = RequestParser::new();
                        break;
                    }
                    // Not timed: it may wait long before it begins to flow, and is judged before that.
                    io.begin_command(Sample { is_timed: false, ..io.draw_sample() });
                    self.state.begin_stream(&request, io);
                    self.state.end_caching(None);
                }
            }
        }
        Ok(at)
    }

    fn note_partial(&mut self, io: &impl Io) {
        let is_partial = self.held() > 0 && !self.is_streaming() && self.state.takes_commands(io);
        self.partial_since = match self.partial_since {
            _ if !is_partial => None,
            None => Some(io.now()),
            since => since,
        };
    }

    /// Replies to a protocol error in Redis's words, behind the replies that are due.
    fn protocol_violation(&mut self, error: &ProtocolError, io: &impl Io) -> Violation {
        if let Some(text) = error.client_text() {
            self.state.local(io, |out| encode::error(out, text.as_bytes()));
        }
        self.state.is_closing = true;
        Violation::rule(error.reason(), Culprit::Client, error.to_string())
    }

    /// A piece of the reply to `exchange`; true if the session should be woken.
    #[inline]
    pub fn on_reply(&mut self, exchange: u64, bytes: &[u8], end: Option<FrameKind>, io: &impl Io) -> bool {
        self.state.on_reply(exchange, bytes, end, io)
    }

    /// Plain replies may come in one call of [`Session::on_replies`]: none of them has to be looked at.
    #[inline]
    pub fn takes_runs(&self) -> bool {
        self.state.takes_runs()
    }

    /// The rest of the reply to `first` and whole ones to those after it, `count` in all, none of them an error; true if
    /// the session should be woken. Only while it [takes runs](Session::takes_runs).
    #[inline]
    pub fn on_replies(&mut self, first: u64, count: u64, bytes: &[u8], io: &impl Io) -> bool {
        self.state.on_replies(first, count, bytes, io)
    }

    /// The pause that [`Clock::retry_later`](crate::io::Clock::retry_later) was requested is over; true if the session should be
    /// woken.
    pub fn on_retry(&mut self, exchange: u64, io: &impl Io) -> bool {
        self.state.retry(exchange, io)
    }

    /// No reply to `exchange` will come, for `text`; true if the session should be woken.
    pub fn on_no_reply(&mut self, exchange: u64, text: &str, io: &impl Io) -> bool {
        self.state.on_no_reply(exchange, text, io)
    }

    /// A piece of an unpaired frame of the client's own lane; true if the session should be woken.
    pub fn on_frame(&mut self, bytes: &[u8], end: Option<FrameKind>, is_push: bool, io: &impl Io) -> bool {
        self.state.on_frame(bytes, end, is_push, io)
    }

    /// A message for the client: a whole frame, as the server sent it.
    #[inline]
    pub fn on_push(&mut self, frame: &[u8], io: &impl Io) {
        self.state.on_push(frame, io);
    }

    /// The next name of the SUBSCRIBE under way is subscribed; true if the session should be woken.
    pub fn on_subscribed(&mut self, io: &impl Io) -> bool {
        self.state.on_subscribed(io)
    }

    /// The UNSUBSCRIBE under way is done; true if the session should be woken.
    pub fn on_unsubscribed(&mut self, io: &impl Io) -> bool {
        self.state.on_unsubscribed(io)
    }

    /// The rest of the SUBSCRIBE in flight is refused with this error; true if the session should be woken.
    pub fn on_subscription_refused(&mut self, line: &[u8], io: &impl Io) -> bool {
        self.state.complete_with(line, FrameKind::Error, io)
    }

    /// The reply to a PUBLISH that went by [`Feeds::publish`](crate::io::Feeds::publish); `None` if it is lost. True if the
    /// session should be woken.
    pub fn on_published(&mut self, reply: Option<&[u8]>, io: &impl Io) -> bool {
        self.state.on_published(reply, io)
    }

    /// A subscription is lost for good.
    pub fn on_subscription_lost(&mut self, io: &impl Io) {
        self.state.on_subscription_lost(io);
    }

    /// The result of [`Feeds::track`](crate::io::Feeds::track): every change is reported from now on, or this error; true if
    /// the session should be woken.
    pub fn on_tracked(&mut self, refused: Option<&[u8]>, io: &impl Io) -> bool {
        self.state.on_tracked(refused, io)
    }

    /// These keys have changed, and the client may have kept them.
    pub fn on_changed(&mut self, keys: &[&[u8]], io: &impl Io) {
        self.state.on_changed(keys, io);
    }

    /// All keys may have changed.
    pub fn on_all_changed(&mut self, io: &impl Io) {
        self.state.on_all_changed(io);
    }

    /// Keys have changed, `None`: all, that another client has read, in whose place this one gets the invalidation.
    pub fn on_notice(&mut self, keys: Option<&[&[u8]]>, io: &impl Io) {
        self.state.on_others_changed(keys, io);
    }

    /// The client reads at another upstream from now on.
    pub fn restart_caching(&mut self, io: &impl Io) {
        self.state.restart_caching(io);
    }

    /// The changes that the client gets, if any.
    pub fn tracking_scope(&self) -> Option<crate::tracking::Scope> {
        self.state.tracking.as_ref().map(|tracking| tracking.terms.scope())
    }

    /// The client's subscriptions.
    pub fn subscriptions(&self) -> Vec<(Kind, Name)> {
        self.state.subscriptions.as_ref().map(|subscriptions| subscriptions.names()).unwrap_or_default()
    }

    /// Bytes of messages that wait for the end of a reply.
    #[inline]
    pub fn kept_pushes(&self) -> usize {
        self.state.subscriptions.as_ref().map_or(0, |subscriptions| subscriptions.kept_bytes())
    }

    /// The requested lane is here, or will not come. False if it is no longer wanted.
    pub fn on_pin(&mut self, result: Result<(), Refusal>) -> bool {
        if self.state.hold != Some(Hold::Pin) {
            return false;
        }
        self.state.hold = None;
        self.state.pin_result = Some(result);
        true
    }

    /// The client's own lane is gone.
    pub fn on_pin_loss(&mut self, cause: LossCause, io: &impl Io) {
        self.state.on_pin_loss(cause, io);
    }

    /// The lane that the client had set aside ([`Lanes::park`](crate::io::Lanes::park)) is gone.
    pub fn on_parked_loss(&mut self, io: &impl Io) {
        self.state.on_parked_loss(io);
    }

    /// The client sends no more. True if the session ends when what it sent has been answered, false if at once.
    pub fn on_client_end(&mut self) -> bool {
        self.state.is_ended = true;
        self.state.streaming.is_none() && !self.is_waiting_for_data()
    }

    /// The client sends no more, and the reply to the last command that it sent is on its way to it.
    pub fn has_taken_effect(&self) -> bool {
        let state = &self.state;
        let is_last = state.is_mid_frame && state.order.outstanding() == 1;
        state.is_ended && is_last && state.hold.is_none() && state.streaming.is_none() && self.held() == 0
    }

    /// The shell's next action.
    pub fn next(&self, io: &impl Io) -> Next {
        let state = &self.state;
        if state.is_cut && self.violation.is_none() {
            return Next::Close;
        }
        if state.is_closing {
            return if state.is_quiet() && self.violation.is_none() { Next::Close } else { Next::Wait };
        }
        if state.is_ended {
            // The rest of the input is the beginning of a command whose end will never come.
            let is_over = state.is_quiet() && state.takes_commands(io);
            return if is_over { Next::Close } else { Next::Wait };
        }
        // Without a hold the input is the beginning of a command; its size is the parser's business.
        let is_full = state.hold.is_some() && self.held() as u64 >= state.settings.pipeline_bytes;
        let stops = is_full || state.has_enough(io);
        if stops { Next::Wait } else { Next::Read }
    }

    /// The client broke the protocol, and the reply waits for its turn.
    pub(crate) fn is_violated(&self) -> bool {
        self.violation.is_some()
    }

    /// It has no memory that other sessions could use meanwhile.
    pub(crate) fn is_bare(&self) -> bool {
        let state = &self.state;
        self.parser.is_none() && state.order.is_bare() && state.attempts.is_none() && state.watched.is_none()
    }

    /// Takes the bytes of which no command was made yet.
    pub(crate) fn take_input(&mut self) -> Vec<u8> {
        let mut input = std::mem::take(&mut self.input);
        input.drain(..std::mem::take(&mut self.spent));
        input
    }

    /// Bytes of the client that no command was made of yet.
    pub fn held(&self) -> usize {
        self.input.len() - self.spent
    }

    /// When the shell must look at the session although nothing happens: the head of a command is overdue, or a delay is over.
    pub fn partial_since(&self) -> Option<Time> {
        self.partial_since
    }

    /// The end of a delay.
    pub fn delay(&self) -> Option<Time> {
        match self.state.hold {
            Some(Hold::Until(time)) => Some(time),
            _ => None,
        }
    }

    /// Exchanges without a complete reply.
    pub fn outstanding(&self) -> u64 {
        self.state.order.outstanding()
    }

    /// Nothing is on its way and nothing is half said: the session may end without loss.
    pub fn is_idle(&self) -> bool {
        let is_free = self.state.pins.is_none() && self.state.parked.is_none();
        self.input.is_empty() && self.is_quiet() && self.state.transaction.is_none() && is_free
    }

    /// Nothing is on its way or held back, but state may be held (a subscription, a watch, a queued transaction).
    pub fn is_quiet(&self) -> bool {
        self.state.is_quiet() && self.state.hold.is_none()
    }

    /// A large command is arriving: it is streamed through, or held until it is whole.
    pub fn is_streaming(&self) -> bool {
        self.state.streaming.is_some() || self.state.is_held_whole
    }

    /// Commands are queued or under way for the upstream of the moment: another one may have their keys elsewhere.
    pub fn is_bound(&self) -> bool {
        self.state.transaction.is_some() || self.is_streaming()
    }

    /// As [`Session::is_waiting_for_data`], and nothing else is under way: it may be sent elsewhere without loss.
    pub fn is_only_waiting_for_data(&self) -> bool {
        let state = &self.state;
        self.is_waiting_for_data() && !state.is_mid_frame && state.order.outstanding() <= 1 && self.held_bytes() == 0
    }

    /// A client that waits for nothing but the passing of time or data: no deadline applies.
    pub fn is_waiting_for_data(&self) -> bool {
        self.state.tunnel.is_some()
            || self.state.is_subscriber()
            || self.state.pins.as_ref().is_some_and(|(_, pins)| pins.has(PinReason::Blocking))
    }

    /// Gives up waiting for room: the held command is refused.
    pub fn refuse_held(&mut self, io: &impl Io) -> Result<(), Violation> {
        if self.state.hold == Some(Hold::Room) {
            self.state.hold = None;
            self.state.is_room_refused = true;
        }
        self.on_wake(io)
    }

    /// No more commands are taken; the session ends when all replies are out.
    pub fn is_closing(&self) -> bool {
        self.state.is_closing || self.state.is_ended
    }

    /// Bytes held: commands, those of a transaction being queued too, and replies that wait for their turn.
    pub fn held_bytes(&self) -> usize {
        self.state.transaction.as_ref().map_or(0, |transaction| transaction.bytes()) + self.pending_bytes()
    }

    /// Bytes of held commands and undelivered replies; a transaction that is only queued waits for its client.
    pub fn pending_bytes(&self) -> usize {
        self.input.len() + self.state.order.waiting_bytes() + self.kept_pushes()
    }

    /// Bytes of replies that wait for their turn.
    #[inline]
    pub fn kept_bytes(&self) -> usize {
        if self.state.is_sharded { self.state.order.kept_bytes() } else { 0 }
    }

    /// Tells whether the upstream has the database that the client is in. With another upstream or other settings it may not.
    pub fn has_database(&self, io: &impl Io) -> bool {
        self.state.has_database(io)
    }

    /// Holds because the core is full.
    pub fn waits_for_room(&self) -> bool {
        self.state.hold == Some(Hold::Room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle client has one, and nothing on the heap behind it: see [`Spares`].
    #[test]
    fn a_session_is_small() {
        let parts = [("state", size_of::<State>()), ("session", size_of::<Session>())];
        assert!(size_of::<Session>() <= 384, "{parts:?}");
    }
}
