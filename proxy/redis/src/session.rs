//! One client's session as a state machine: bytes in, commands judged, replies in order.

use weir_analysis::redis::{self, Args, Class, Command, Flags, LocalCommand, Resolved};
use weir_base::{error::Culprit, time::Time, violation::Violation};
use weir_resp::{ProtocolError, RequestLimits, RequestParser, Step, Version, encode};
use weir_upstream::{FrameKind, LossCause, Refusal};

use crate::{
    io::{Full, Io, Pinning, Ticket},
    lane::LaneKey,
    ordering::Ordering,
    pin::{PinReason, Pins},
    refusal,
    settings::{RedisListenerSettings, UnknownCommands},
    stream::Streaming,
    transaction::Transaction,
    tunnel::Tunnel,
};

/// What the shell does next with a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Give it more bytes of the client.
    Read,
    /// Read no more until something wakes it: a reply, room in an output, a lane.
    Wait,
    /// Send what is buffered, then close.
    Close,
}

/// Why no command is taken just now, although bytes may be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Until every request has been answered: the next command changes what later ones mean.
    Quiet,
    /// Until the lane asked for is here.
    Pin,
    /// Until the core has room for one more exchange.
    Room,
    /// Until then: a wrong password costs time.
    Until(Time),
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is done with, or on its way.
    Yes,
    /// It stays in the input and is looked at again when the hold is over.
    Held,
}

/// One command: its arguments, and its bytes as they came.
pub(crate) struct Request<'a> {
    pub(crate) parser: &'a RequestParser,
    pub(crate) bytes: &'a [u8],
    pub(crate) is_inline: bool,
}

impl Args for Request<'_> {
    fn argc(&self) -> usize {
        self.parser.argc()
    }

    fn arg(&self, index: usize) -> Option<&[u8]> {
        (index < self.parser.argc()).then(|| self.parser.arg(index, self.bytes))
    }
}

impl Request<'_> {
    /// Argument `index`, or nothing.
    pub(crate) fn text(&self, index: usize) -> &[u8] {
        self.arg(index).unwrap_or_default()
    }

    /// Hands the command to `send` as an array of bulk strings.
    #[inline]
    pub(crate) fn with_wire<R>(&self, send: impl FnOnce(&[u8]) -> R) -> R {
        if !self.is_inline {
            return send(self.bytes);
        }
        let mut wire = Vec::new();
        let args: Vec<&[u8]> = (0..self.argc()).map(|index| self.text(index)).collect();
        encode::command(&mut wire, args);
        send(&wire)
    }
}

/// One client's session. The shell gives it bytes with [`Session::on_client`], replies with [`Session::on_reply`] and
/// the other `on_` calls, and after each asks [`Session::next`] what to do.
pub struct Session {
    parser: RequestParser,
    input: Vec<u8>,
    /// Since when the command at the front of the input is incomplete.
    partial_since: Option<Time>,
    pub(crate) state: State,
}

/// All of a session but its input.
pub(crate) struct State {
    pub(crate) settings: std::rc::Rc<RedisListenerSettings>,
    pub(crate) limits: RequestLimits,
    pub(crate) version: Version,
    pub(crate) db: u32,
    pub(crate) is_authenticated: bool,
    pub(crate) auth_failures: u32,
    pub(crate) order: Ordering,
    pub(crate) hold: Option<Hold>,
    pub(crate) pins: Option<(LaneKey, Pins)>,
    /// The lane asked for will not come.
    pub(crate) pin_refused: Option<Refusal>,
    /// The lane with the watched keys was lost: EXEC must not succeed.
    pub(crate) is_watch_broken: bool,
    pub(crate) transaction: Option<Box<Transaction>>,
    /// Exchange of an EXEC or a SELECT that changes the database if it succeeds.
    pub(crate) changes_db: Option<(u64, u32)>,
    pub(crate) streaming: Option<Box<Streaming>>,
    pub(crate) tunnel: Option<Box<Tunnel>>,
    is_closing: bool,
}

impl Session {
    /// A session fresh from its listener.
    pub fn new(settings: std::rc::Rc<RedisListenerSettings>) -> Self {
        let is_authenticated = settings.password.is_none();
        let limits = RequestLimits {
            args_max: settings.args_max,
            bulk_bytes_max: settings.bulk_bytes_max.min(u32::MAX.into()) as u32,
            stream_bytes: settings.stream_bytes.min(u32::MAX.into()) as u32,
            authenticated: is_authenticated,
            ..RequestLimits::default()
        };
        Self {
            parser: RequestParser::new(),
            input: Vec::new(),
            partial_since: None,
            state: State {
                settings,
                limits,
                version: Version::Resp2,
                db: 0,
                is_authenticated,
                auth_failures: 0,
                order: Ordering::default(),
                hold: None,
                pins: None,
                pin_refused: None,
                is_watch_broken: false,
                transaction: None,
                changes_db: None,
                streaming: None,
                tunnel: None,
                is_closing: false,
            },
        }
    }

    /// Takes bytes of the client.
    ///
    /// # Errors
    /// The client broke the protocol: the answer has been written, the shell reports and closes.
    pub fn on_client(&mut self, bytes: &[u8], io: &impl Io) -> Result<(), Violation> {
        let result = if self.input.is_empty() {
            self.run(bytes, io).map(|used| self.input.extend_from_slice(&bytes[used..]))
        } else {
            self.input.extend_from_slice(bytes);
            self.resume(io)
        };
        self.note_partial(io);
        result.map_err(|error| self.protocol_violation(&error, io))
    }

    /// Looks at held input again.
    ///
    /// # Errors
    /// As [`Session::on_client`].
    pub fn on_wake(&mut self, io: &impl Io) -> Result<(), Violation> {
        self.state.release_hold(io);
        let result = self.resume(io);
        self.note_partial(io);
        result.map_err(|error| self.protocol_violation(&error, io))
    }

    fn resume(&mut self, io: &impl Io) -> Result<(), ProtocolError> {
        if self.input.is_empty() {
            return Ok(());
        }
        let mut input = std::mem::take(&mut self.input);
        let used = self.run(&input, io)?;
        input.drain(..used);
        if !input.is_empty() {
            self.input = input;
        }
        Ok(())
    }

    /// Runs the commands at the front of `input`; the number of bytes that are done with.
    fn run(&mut self, input: &[u8], io: &impl Io) -> Result<usize, ProtocolError> {
        let mut at = 0;
        while at < input.len() && self.state.takes_commands(io) {
            let rest = &input[at..];
            if self.state.streaming.is_some() {
                match self.stream(rest, io)? {
                    0 => break,
                    taken => at += taken,
                }
                continue;
            }
            match self.parser.parse(rest, &self.state.limits)? {
                Step::Incomplete => break,
                Step::Skip { len } => at += len,
                Step::Command { len, inline } => {
                    let request = Request { parser: &self.parser, bytes: &rest[..len], is_inline: inline };
                    if self.state.command(&request, io) == Taken::Held {
                        break;
                    }
                    at += len;
                }
                Step::Streaming { len } => {
                    let request = Request { parser: &self.parser, bytes: &rest[..len], is_inline: false };
                    self.state.begin_stream(&request, io);
                }
            }
        }
        Ok(at)
    }

    fn stream(&mut self, input: &[u8], io: &impl Io) -> Result<usize, ProtocolError> {
        self.state.stream(&mut self.parser, input, io)
    }

    fn note_partial(&mut self, io: &impl Io) {
        let is_partial = !self.input.is_empty() && self.state.hold.is_none() && self.state.streaming.is_none();
        self.partial_since = match self.partial_since {
            _ if !is_partial => None,
            None => Some(io.now()),
            since => since,
        };
    }

    /// Answers a protocol error in Redis's words, behind the replies that are due.
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

    /// No reply to `exchange` will come, for `text`; true if the session should be woken.
    pub fn on_no_reply(&mut self, exchange: u64, text: &str, io: &impl Io) -> bool {
        let mut line = Vec::with_capacity(text.len() + 3);
        encode::error(&mut line, text.as_bytes());
        self.state.on_reply(exchange, &line, Some(FrameKind::Error), io)
    }

    /// A piece of an unpaired frame of the client's own lane; true if the session should be woken.
    pub fn on_frame(&mut self, bytes: &[u8], end: Option<FrameKind>, is_push: bool, io: &impl Io) -> bool {
        self.state.on_frame(bytes, end, is_push, io)
    }

    /// The lane asked for is here, or will not come. False if it is no longer wanted.
    pub fn on_pin(&mut self, result: Result<(), Refusal>) -> bool {
        if self.state.hold != Some(Hold::Pin) {
            return false;
        }
        self.state.hold = None;
        self.state.pin_refused = result.err();
        true
    }

    /// The client's own lane is gone.
    pub fn on_pin_loss(&mut self, cause: LossCause, io: &impl Io) {
        self.state.on_pin_loss(cause, io);
    }

    /// The client sends no more. True if the session ends when all replies are out, false if at once.
    pub fn on_client_end(&mut self) -> bool {
        self.state.is_closing = true;
        let waits_for_data = |(_, pins): &(LaneKey, Pins)| pins.has(PinReason::Blocking);
        self.state.tunnel.is_none() && !self.state.pins.as_ref().is_some_and(waits_for_data)
    }

    /// What the shell does now.
    pub fn next(&self, io: &impl Io) -> Next {
        let state = &self.state;
        if state.is_closing {
            return if state.is_quiet() { Next::Close } else { Next::Wait };
        }
        let is_full = self.input.len() as u64 >= state.settings.pipeline_bytes.max(state.settings.stream_bytes + 1);
        let stops = io.is_congested()
            || is_full
            || state.order.outstanding() >= u64::from(state.settings.pipeline_max)
            || (state.streaming.is_some() && io.is_pin_congested());
        if stops { Next::Wait } else { Next::Read }
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
        self.input.is_empty() && self.state.is_quiet() && self.state.transaction.is_none() && self.state.pins.is_none()
    }

    /// Nothing is on its way, but state may be held (a subscription, a watch, a queued transaction).
    pub fn is_quiet(&self) -> bool {
        self.state.is_quiet()
    }

    /// A command is being streamed through.
    pub fn is_streaming(&self) -> bool {
        self.state.streaming.is_some()
    }

    /// A client that waits for nothing but the passing of time or data: no deadline applies.
    pub fn is_waiting_for_data(&self) -> bool {
        self.state.tunnel.is_some() || self.state.pins.as_ref().is_some_and(|(_, pins)| pins.has(PinReason::Blocking))
    }

    /// Gives up waiting for room: the held command is refused.
    pub fn refuse_held(&mut self, io: &impl Io) -> Result<(), Violation> {
        if self.state.hold == Some(Hold::Room) {
            self.state.hold = None;
            self.state.pin_refused = Some(Refusal::QueueTimeout);
        }
        self.on_wake(io)
    }

    /// No more commands are taken; the session ends when all replies are out.
    pub fn is_closing(&self) -> bool {
        self.state.is_closing
    }

    /// Bytes of commands held.
    pub fn held_bytes(&self) -> usize {
        self.input.len()
    }

    /// Holds because the core is full.
    pub fn waits_for_room(&self) -> bool {
        self.state.hold == Some(Hold::Room)
    }
}

impl State {
    /// The lane that this client's stateless commands ride.
    #[inline]
    pub(crate) fn key(&self) -> LaneKey {
        LaneKey { db: self.db, version: self.version }
    }

    /// Every request has been answered in full.
    pub(crate) fn is_quiet(&self) -> bool {
        self.order.is_quiet() && self.tunnel.as_ref().is_none_or(|tunnel| tunnel.is_quiet())
    }

    fn takes_commands(&self, io: &impl Io) -> bool {
        self.hold.is_none()
            && !self.is_closing
            && self.order.outstanding() < u64::from(self.settings.pipeline_max)
            && !io.is_congested()
    }

    fn release_hold(&mut self, io: &impl Io) {
        let is_over = match self.hold {
            Some(Hold::Quiet) => self.is_quiet(),
            Some(Hold::Room) => io.full().is_none(),
            Some(Hold::Until(time)) => io.now() >= time,
            Some(Hold::Pin) | None => false,
        };
        if is_over {
            self.hold = None;
        }
    }

    /// Judges one command and sends it where it belongs.
    pub(crate) fn command(&mut self, request: &Request<'_>, io: &impl Io) -> Taken {
        let command = match redis::resolve(request.text(0), request.arg(1)) {
            Resolved::Known(command) => command,
            Resolved::UnknownSubcommand(container) => return self.unknown_subcommand(container, request, io),
            Resolved::Unknown => return self.unknown(request, io),
        };
        if !redis::check_arity(command, request.argc()) {
            return self.reject_with(io, |out| redis::text::wrong_arity(out, command));
        }
        if !self.is_authenticated && !command.flags.contains(Flags::NO_AUTH) {
            let is_hello = command.class == Class::Local(LocalCommand::Hello);
            if !is_hello {
                return self.reject(io, refusal::NO_AUTH);
            }
        }
        let class = redis::treatment(command, request);
        if self.transaction.is_some() {
            return self.in_transaction(command, class, request, io);
        }
        if let Some(tunnel) = &self.tunnel
            && let Some(no) = tunnel.forbids(command, class, self.version)
        {
            return self.error(io, &no);
        }
        self.dispatch(command, class, request, io)
    }

    #[inline]
    fn dispatch(&mut self, command: &'static Command, class: Class, request: &Request<'_>, io: &impl Io) -> Taken {
        match class {
            Class::Shared | Class::Cluster => self.forward(command, request, io),
            Class::Admin if self.settings.admin_commands => self.forward(command, request, io),
            Class::Admin => {
                io.count_shed("admin_command");
                self.error(io, &refusal::admin(command.name))
            }
            Class::Blocking if command.name.starts_with("wait") => self.forward_on_pin(PinReason::Wait, command, request, io),
            Class::Blocking => self.forward_on_pin(PinReason::Blocking, command, request, io),
            Class::Exclusive => self.forward_on_pin(PinReason::Blocking, command, request, io),
            Class::ConnectionState => self.forward_on_pin(PinReason::ConnectionState, command, request, io),
            Class::Watch => self.forward_on_pin(PinReason::Watch, command, request, io),
            Class::Unwatch => self.unwatch(command, request, io),
            Class::Multi => self.multi(command, io),
            Class::Exec => self.error(io, refusal::EXEC_ALONE),
            Class::Discard => self.error(io, refusal::DISCARD_ALONE),
            Class::Subscribe | Class::Unsubscribe => self.subscribe(command, class, request, io),
            Class::Monitor => self.monitor(command, request, io),
            Class::Local(local) => self.local_command(command, local, request, io),
            Class::Replication | Class::Refused => {
                io.count_shed("unsupported_command");
                self.error(io, &refusal::unsupported(command.name))
            }
            Class::CrossProtocol => {
                io.report(&Violation::rule("cross_protocol", Culprit::Client, "an HTTP request on a Redis port"));
                self.is_closing = true;
                Taken::Yes
            }
        }
    }

    /// Sends a stateless command: on the shared lane, or behind the others on the client's own.
    #[inline]
    pub(crate) fn forward(&mut self, command: &'static Command, request: &Request<'_>, io: &impl Io) -> Taken {
        if let Some(full) = io.full() {
            return self.hold_for_room(full, io);
        }
        let ticket = Ticket { number: self.order.next_number(), skip: 0, has_deadline: true };
        if self.tunnel.is_some() {
            return self.forward_in_tunnel(command, request, io);
        }
        if self.pins.is_some() {
            io.count(Some(command));
            request.with_wire(|wire| io.forward_pinned(wire, ticket));
            self.order.sent();
            return Taken::Yes;
        }
        match request.with_wire(|wire| io.forward(self.key(), wire, ticket)) {
            Ok(()) => {
                io.count(Some(command));
                self.order.sent();
                Taken::Yes
            }
            Err(refusal) => self.refuse(refusal, io),
        }
    }

    /// Waits a little for room; if that was in vain, refuses.
    #[cold]
    fn hold_for_room(&mut self, full: Full, io: &impl Io) -> Taken {
        if self.pin_refused.take().is_some() {
            io.count_shed(full.name());
            return self.error(io, full.text());
        }
        self.hold = Some(Hold::Room);
        Taken::Held
    }

    /// Sends a command on the client's own lane, getting one first.
    pub(crate) fn forward_on_pin(
        &mut self,
        reason: PinReason,
        command: &'static Command,
        request: &Request<'_>,
        io: &impl Io,
    ) -> Taken {
        if let Err(taken) = self.need_pin(reason, self.key(), io) {
            return taken;
        }
        if self.tunnel.is_some() {
            return self.forward_in_tunnel(command, request, io);
        }
        io.count(Some(command));
        let has_deadline = !matches!(reason, PinReason::Blocking | PinReason::Wait);
        let ticket = Ticket { number: self.order.next_number(), skip: 0, has_deadline };
        request.with_wire(|wire| io.forward_pinned(wire, ticket));
        self.order.sent();
        Taken::Yes
    }

    /// Makes sure that the client has a lane of its own, for `reason`. Before it gets one, all it sent must be answered: a
    /// command on another connection could overtake it.
    pub(crate) fn need_pin(&mut self, reason: PinReason, key: LaneKey, io: &impl Io) -> Result<(), Taken> {
        if let Some((_, pins)) = &mut self.pins {
            pins.add(reason);
            self.publish_pins(io);
            return Ok(());
        }
        if let Some(refusal) = self.pin_refused.take() {
            return Err(self.refuse(refusal, io));
        }
        if !self.is_quiet() {
            self.hold = Some(Hold::Quiet);
            return Err(Taken::Held);
        }
        match io.pin(key, reason) {
            Pinning::Ready => {
                let mut pins = Pins::default();
                pins.add(reason);
                self.pins = Some((key, pins));
                self.publish_pins(io);
                Ok(())
            }
            Pinning::TooManyBlocked => {
                io.count_shed("blocked_clients");
                Err(self.error(io, refusal::BLOCKED_CLIENTS))
            }
            Pinning::Later => {
                self.hold = Some(Hold::Pin);
                Err(Taken::Held)
            }
        }
    }

    /// Gives the lane back once nothing needs it.
    pub(crate) fn settle_pin(&mut self, io: &impl Io) {
        if !self.is_quiet() || self.tunnel.is_some() || self.streaming.is_some() {
            return;
        }
        let Some((_, pins)) = &mut self.pins else { return };
        if pins.settle() {
            let is_clean = pins.is_clean();
            self.pins = None;
            io.unpin(is_clean);
        }
        self.publish_pins(io);
    }

    /// Drops the lane and the state on it, whatever it is needed for.
    pub(crate) fn drop_pin(&mut self, io: &impl Io) {
        if self.tunnel.take().is_some() {
            io.set_tunnel(false);
        }
        if self.pins.take().is_some() {
            io.unpin(false);
        }
        self.publish_pins(io);
    }

    pub(crate) fn publish_pins(&self, io: &impl Io) {
        let pinned = self.pins.as_ref().map(|(_, pins)| pins.to_string());
        io.entry().details().pinned = pinned.unwrap_or_default();
    }

    #[inline]
    fn on_reply(&mut self, exchange: u64, bytes: &[u8], end: Option<FrameKind>, io: &impl Io) -> bool {
        if !self.order.is_muted(exchange) {
            io.reply(|out| out.extend_from_slice(bytes));
        }
        let Some(kind) = end else { return false };
        if kind == FrameKind::Error {
            io.count_error(bytes);
        }
        self.order.completed(exchange);
        if self.changes_db.is_some() {
            self.note_db_change(exchange, bytes, kind, io);
        }
        while let Some(reply) = self.order.pop_due() {
            io.reply(|out| out.extend_from_slice(&reply));
        }
        if self.pins.is_some() {
            self.settle_pin(io);
        }
        self.wants_wake()
    }

    /// Something is held back that a reply may have released.
    #[inline]
    pub(crate) fn wants_wake(&self) -> bool {
        let is_below_limit = self.order.outstanding() + 1 == u64::from(self.settings.pipeline_max);
        is_below_limit || (self.is_closing && self.is_quiet()) || (self.hold == Some(Hold::Quiet) && self.is_quiet())
    }

    fn note_db_change(&mut self, exchange: u64, bytes: &[u8], kind: FrameKind, io: &impl Io) {
        if let Some((_, db)) = self.changes_db.take_if(|(number, _)| *number == exchange) {
            let is_null = bytes.starts_with(b"*-1") || bytes.starts_with(b"_");
            if kind == FrameKind::Reply && !is_null {
                self.db = db;
                io.entry().details().db = db;
            }
            if let Some((_, pins)) = &mut self.pins {
                pins.soil();
            }
        }
    }

    fn on_pin_loss(&mut self, _cause: LossCause, io: &impl Io) {
        let Some((_, pins)) = self.pins.take() else { return };
        self.is_watch_broken |= pins.has(PinReason::Watch);
        let was_tunnel = self.tunnel.take().is_some();
        if self.streaming.is_some() || was_tunnel {
            // Half a command cannot be taken back, and a subscriber would wait for ever: it must connect anew.
            self.local(io, |out| encode::error(out, refusal::STATE_LOST.as_bytes()));
            self.is_closing = true;
        }
        self.publish_pins(io);
    }

    fn unknown_subcommand(&mut self, container: &'static Command, request: &Request<'_>, io: &impl Io) -> Taken {
        if !self.is_authenticated {
            // The server knows the container, so it asks for authentication only after naming the unknown part.
            return self.reject_with(io, |out| redis::text::unknown_subcommand(out, container, request.text(1)));
        }
        let is_own = matches!(container.class, Class::Local(LocalCommand::Client(_)));
        if is_own || !redis::may_forward_unknown(request.text(1)) || !self.forwards_unknown(container) {
            return self.reject_with(io, |out| redis::text::unknown_subcommand(out, container, request.text(1)));
        }
        self.forward_unknown(request, io)
    }

    /// A subcommand that no known server has, behind a container that only administrators may use, stays here.
    fn forwards_unknown(&self, container: &Command) -> bool {
        self.settings.unknown_commands == UnknownCommands::Forward
            && (container.class != Class::Admin || self.settings.admin_commands)
    }

    fn unknown(&mut self, request: &Request<'_>, io: &impl Io) -> Taken {
        let is_forwarded = self.is_authenticated
            && self.settings.unknown_commands == UnknownCommands::Forward
            && redis::may_forward_unknown(request.text(0));
        if !is_forwarded {
            return self.reject_with(io, |out| redis::text::unknown_command(out, request));
        }
        self.forward_unknown(request, io)
    }

    fn forward_unknown(&mut self, request: &Request<'_>, io: &impl Io) -> Taken {
        if self.transaction.is_some() {
            return self.queue(request, io);
        }
        if let Err(taken) = self.need_pin(PinReason::Unknown, self.key(), io) {
            return taken;
        }
        io.count(None);
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.expect_reply();
            request.with_wire(|wire| io.write_pinned(wire));
            return Taken::Yes;
        }
        let ticket = Ticket { number: self.order.next_number(), skip: 0, has_deadline: true };
        request.with_wire(|wire| io.forward_pinned(wire, ticket));
        self.order.sent();
        Taken::Yes
    }

    /// Writes a reply of the gateway's own, in order.
    pub(crate) fn local(&mut self, io: &impl Io, encode: impl FnOnce(&mut Vec<u8>)) {
        if self.order.mode != crate::ordering::ReplyMode::On {
            self.order.unskip();
            return;
        }
        if self.order.is_quiet() {
            io.reply(encode);
        } else {
            let mut reply = Vec::new();
            encode(&mut reply);
            self.order.wait(reply);
        }
    }

    /// Answers with an error of the gateway's own.
    pub(crate) fn error(&mut self, io: &impl Io, text: &str) -> Taken {
        self.error_line(io, text.as_bytes())
    }

    /// As [`State::error`], for texts that repeat what the client wrote.
    pub(crate) fn error_line(&mut self, io: &impl Io, text: &[u8]) -> Taken {
        let mut line = Vec::with_capacity(text.len() + 3);
        encode::error(&mut line, text);
        io.count_error(&line);
        self.local(io, |out| out.extend_from_slice(&line));
        Taken::Yes
    }

    pub(crate) fn ok(&mut self, io: &impl Io) -> Taken {
        self.local(io, |out| out.extend_from_slice(b"+OK\r\n"));
        Taken::Yes
    }

    /// Answers with an error that also spoils a transaction being queued, as the server does for a command it cannot queue.
    pub(crate) fn reject(&mut self, io: &impl Io, text: &str) -> Taken {
        self.reject_with(io, |out| out.extend_from_slice(text.as_bytes()))
    }

    pub(crate) fn reject_with(&mut self, io: &impl Io, text: impl FnOnce(&mut Vec<u8>)) -> Taken {
        if let Some(transaction) = &mut self.transaction {
            transaction.spoil();
        }
        let mut line = Vec::new();
        text(&mut line);
        self.error_line(io, &line)
    }

    fn refuse(&mut self, refusal: Refusal, io: &impl Io) -> Taken {
        io.count_shed(refusal.name());
        self.error(io, &refusal::refused(refusal))
    }

    /// Ends the session once all replies are out.
    pub(crate) fn close(&mut self) {
        self.is_closing = true;
    }
}
