//! Commands too large to hold: their bytes flow to a lane of the client's own while they arrive.

use weir_analysis::redis::{self, Args, Class, LocalCommand, Resolved};
use weir_resp::{ProtocolError, RequestParser};

use crate::{
    io::{Io, Ticket},
    pin::PinReason,
    refusal,
    session::{Request, State},
};

/// The answer to a large command that must be held whole to be understood (SUBSCRIBE with 10,000 channels, say).
const TOO_LARGE: &str = "ERR weir: command too large";

/// A command on its way through.
#[derive(Debug)]
pub(crate) enum Streaming {
    /// The first `held` bytes of the input belong to it and wait for a lane.
    Waiting { held: usize },
    /// The rest goes on as it comes.
    Flowing,
    /// It is refused: `held` bytes of the input belong to it, the rest is dropped as it comes, then the error is sent.
    Refused { held: usize, error: Vec<u8> },
}

impl State {
    /// Decides what becomes of a command of which only the beginning is here.
    pub(crate) fn begin_stream(&mut self, request: &Request<'_>, io: &impl Io) {
        let held = request.bytes.len();
        let streaming = match self.judge_stream(request, io) {
            Ok(()) => Streaming::Waiting { held },
            Err(error) => Streaming::Refused { held, error },
        };
        self.streaming = Some(Box::new(streaming));
    }

    fn judge_stream(&mut self, request: &Request<'_>, io: &impl Io) -> Result<(), Vec<u8>> {
        if self.transaction.is_some() {
            return Err(refusal::TRANSACTION_FULL.into());
        }
        let command = match redis::resolve(request.text(0), request.arg(1)) {
            Resolved::Known(command) => command,
            _ => {
                let mut text = Vec::new();
                redis::text::unknown_command(&mut text, request);
                return Err(text);
            }
        };
        if !redis::check_arity(command, request.parser.args_declared() as usize) {
            let mut text = Vec::new();
            redis::text::wrong_arity(&mut text, command);
            return Err(text);
        }
        if !self.is_authenticated {
            return Err(refusal::NO_AUTH.into());
        }
        let is_plain = match redis::treatment(command, request) {
            Class::Shared | Class::Local(LocalCommand::Ping | LocalCommand::Echo) => true,
            Class::Admin => self.settings.admin_commands,
            _ => false,
        };
        if !is_plain || self.tunnel.is_some() {
            return Err(TOO_LARGE.into());
        }
        io.count(Some(command));
        Ok(())
    }

    /// Moves bytes of the command in flight; how many were taken. Zero: it waits for its lane.
    pub(crate) fn stream(
        &mut self,
        parser: &mut RequestParser,
        input: &[u8],
        io: &impl Io,
    ) -> Result<usize, ProtocolError> {
        match self.streaming.as_deref_mut() {
            Some(&mut Streaming::Waiting { held }) => Ok(self.start_flow(held, input, io)),
            Some(Streaming::Refused { held, .. }) if *held > 0 => Ok(std::mem::take(held)),
            _ => self.flow(parser, input, io),
        }
    }

    fn start_flow(&mut self, held: usize, input: &[u8], io: &impl Io) -> usize {
        if let Some(refusal) = self.pin_refused.take() {
            io.count_shed(refusal.name());
            let error = refusal::refused(refusal).into_bytes();
            self.streaming = Some(Box::new(Streaming::Refused { held: 0, error }));
            return held;
        }
        if io.full().is_some() || self.need_pin(PinReason::Large, self.key(), io).is_err() {
            if self.hold.is_none() {
                self.hold = Some(crate::session::Hold::Room);
            }
            return 0;
        }
        // The client chooses how long the upload takes; its own rate is watched instead.
        let ticket = Ticket { number: self.order.next_number(), skip: 0, has_deadline: false };
        io.forward_pinned(&input[..held], ticket);
        self.order.sent();
        self.streaming = Some(Box::new(Streaming::Flowing));
        held
    }

    fn flow(&mut self, parser: &mut RequestParser, input: &[u8], io: &impl Io) -> Result<usize, ProtocolError> {
        let relay = match parser.relay(input) {
            Ok(relay) => relay,
            Err(error) => {
                // The server has half a command: nobody else may have that lane.
                self.streaming = None;
                self.drop_pin(io);
                return Err(error);
            }
        };
        if matches!(self.streaming.as_deref(), Some(Streaming::Flowing)) {
            io.write_pinned(&input[..relay.taken]);
        }
        if relay.done
            && let Some(streaming) = self.streaming.take()
        {
            match *streaming {
                Streaming::Refused { error, .. } => drop(self.reject_with(io, |out| out.extend_from_slice(&error))),
                _ => self.settle_pin(io),
            }
        }
        Ok(relay.taken)
    }
}
