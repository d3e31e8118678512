//! One client's session as a state machine: bytes in, commands judged, replies in order.

use weir_analysis::redis::Args;
use weir_base::{error::Culprit, time::Time, violation::Violation};
use weir_resp::{ProtocolError, RequestLimits, RequestParser, Step, Version, encode};
use weir_upstream::{FrameKind, LossCause, Refusal};

use crate::{
    io::Io,
    lane::LaneKey,
    ordering::Ordering,
    pin::{PinReason, Pins},
    settings::RedisListenerSettings,
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
    pub(crate) is_closing: bool,
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

    /// Ends the session once all replies are out.
    pub(crate) fn close(&mut self) {
        self.is_closing = true;
    }
}
